"""Which GPU a run needs, and for how long: an estimate from shapes of models and parameters alone.

Memory is in GB (10^9 bytes), of one process on one GPU; `cards.yaml` has what is assumed. Nothing
in it imports torch or loads a model.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from spnb.core.paths import packaged_yaml
from spnb.methods import method_class
from spnb.train.checks import benchmark_answers, factors
from spnb.train.config import RunParams, TrainerError
from spnb.train.doctor import GB
from spnb.train.policies import policy_path

KINDS = ("qwen3", "qwen2", "llama")
"""Architectures whose weights are counted, by their names in a config.json."""
UPDATE = ("gradients", "logits", "activations")
"""What only an update holds."""


def data() -> dict[str, Any]:
    """The content of cards.yaml."""
    return packaged_yaml("train/cards.yaml")


@dataclass(frozen=True)
class Shape:
    """A causal LM's sizes, under the names of its config.json."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of a layer's seven projections, attention first."""
        wide, deep = self.hidden_size, self.intermediate_size
        queries = self.num_attention_heads * self.head_dim
        keys = self.num_key_value_heads * self.head_dim
        attention = [(wide, queries), (wide, keys), (wide, keys), (queries, wide)]
        return [*attention, (wide, deep), (wide, deep), (deep, wide)]

    @property
    def parameters(self) -> int:
        """All weights; those of a tied head count once."""
        layer = sum(a * b for a, b in self.linears) + 2 * self.hidden_size
        if self.model_type == "qwen3":  # norms of queries and keys
            layer += 2 * self.head_dim
        if self.model_type == "qwen2":  # biases of queries, keys, values
            layer += sum(outputs for _, outputs in self.linears[:3])
        embeddings = (1 if self.tie_word_embeddings else 2) * self.vocab_size * self.hidden_size
        return embeddings + self.num_hidden_layers * layer + self.hidden_size

    def adapter(self, rank: int) -> int:
        """Weights of a LoRA adapter on all seven projections."""
        return self.num_hidden_layers * sum(rank * (a + b) for a, b in self.linears)

    @property
    def kv(self) -> int:
        """Keys and values of a token, numbers."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim


@cache
def shape_of(source: str) -> Shape | None:
    """A policy's sizes: of a folder's config.json, of cards.yaml, of the hub's cache; else None."""
    path = Path(policy_path(source))
    config = data()["shapes"].get(source)
    if config is None:
        file = path / "config.json" if path.is_dir() else _cached(source)
        if file is None or not file.is_file():
            return None
        config = json.loads(file.read_text())
    if config.get("model_type") not in KINDS:
        return None
    heads = config["num_attention_heads"]
    own = {"head_dim": config["hidden_size"] // heads, "num_key_value_heads": heads}
    own |= {"tie_word_embeddings": False}
    known = {name: config[name] for name in Shape.__annotations__ if config.get(name) is not None}
    return Shape(**own | known)


def _cached(source: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(source, "config.json")
    return Path(file) if isinstance(file, str) else None


def amount(params: RunParams, text: str | int) -> int:
    """A sum of products of parameters and numbers ("games * 431 + eval_samples")."""
    return sum(math.prod(factors(params, one).values()) for one in str(text).split(" + "))


def piece(params: RunParams, processes: int = 1) -> tuple[int, int]:
    """Of a process's piece of an update its rows, and the positions of which logits are held."""
    longest = params.max_length if _searches(params) else params.max_new_tokens
    if params.preference:  # pairs, all of their logits at once
        rows = 2 * math.ceil(params.preference.batch / _pieces(params, processes))
        return rows, rows * params.max_length
    if params.backend == "unsloth":  # it takes as many rows at a time as fit, one at least
        return 1, longest
    work = data()["work"].get(params.paper)
    rows = math.ceil(amount(params, work["rows"]) / _pieces(params, processes)) if work else 1
    return rows, min(rows * longest, data()["memory"]["logit_positions"])


def _pieces(params: RunParams, processes: int = 1) -> int:
    """Of all rows of a step, those of all processes."""
    each = math.ceil(params.grpo["gradient_accumulation_steps"] / processes)
    return processes * each * params.parts


def _searches(params: RunParams) -> bool:
    """Whether a row holds what searches found."""
    by_search = getattr(params, "family", "quest") in ("chain", "quest")
    return by_search and hasattr(params, "max_searches")


def memory(params: RunParams, card: float, processes: int = 1) -> dict[str, float]:
    """GB of a run on a card of so many GB, by what takes them; {} where a shape is not known.

    `processes` share out gradients, optimiser and float32 copies of the weights (ZeRO-2), from the
    first step on. Of an update and a rollout, which take turns, only the larger counts in `need`.
    `snapshots` are in the memory of the machine, not of the card.
    """
    shapes = {name: shape_of(name) for name in {*params.loaded.values()}}
    own = shapes[params.policy]
    beside = [name for name in params.policies if name in params.loaded]
    if None in shapes.values():
        return {}
    assumed = data()["memory"]
    vllm = params.engine == "vllm"
    shared = params.backend == "unsloth" and vllm  # the trainer's weights are vLLM's
    lora = params.lora_rank
    width = 4 if params.dtype == "float32" or not lora else 2
    trained = own.adapter(lora) if lora else own.parameters
    optimiser = 8 * trained
    if "8bit" in params.grpo["optim"]:  # transformers keeps embeddings' states in 32 bit
        optimiser = 2 * trained + (0 if lora else 6 * own.vocab_size * own.hidden_size)
    rows, positions = piece(params, processes)
    tokens = rows * params.max_length
    tokens = max(min(tokens, params.micro_tokens or tokens), params.max_length)
    live = assumed["activation"] * own.hidden_size
    layers = own.num_hidden_layers
    kept = layers * own.hidden_size + live if params.gradient_checkpointing else layers * live
    cache = max(0.0, params.gpu_memory * card - 2 * own.parameters / GB)
    full = assumed["torch_rows"] * params.max_length * own.kv * width / GB
    wide = 2 if processes > 1 and params.dtype == "bfloat16" else 4  # DeepSpeed rounds a reference
    again = 0 if lora or not params.grpo["beta"] else wide * own.parameters
    weights = own.parameters * width + (4 * trained if lora else 0)
    if processes > 1:
        held = 4 if params.dtype == "float32" else 2
        weights = held * (own.parameters + (trained if lora else 0)) + 4 * trained / processes
    numbers = {
        "weights": weights,
        "gradients": 4 * trained / processes,
        "optimiser": optimiser / processes,
        "KL reference": again,
        "weights of vLLM": 2 * own.parameters if vllm and not shared else 0,
        "logits": positions * own.vocab_size * assumed["logit"],
        "activations": tokens * kept * 2,
        "further policies": sum(_beside(params, name, shapes) for name in beside),
        "snapshots": _snapshots(params) * 4 * trained,
    }
    parts = {name: number / GB for name, number in numbers.items()}
    return parts | {"KV cache": cache if vllm else full, "context": assumed["context"]}


def _beside(params: RunParams, name: str, shapes: dict[str, Shape | None]) -> int:
    """Bytes of a further policy: in training in the same steps, an adapter of the first, the
    weights below the run's own adapter, or as it is."""
    shape = shapes[params.policies[name]]
    if name in params.co_trained:
        if rank := params.lora_rank:
            return 2 * shape.parameters + 16 * shape.adapter(rank)
        held = (params.grpo | params.co_trained[name])["beta"]  # to a reference in float32
        return (20 if held else 16) * shape.parameters
    same = params.lora_rank and params.policies[name] == params.policy
    unmerged = method_class(params.paper, params).unmerged(params)
    if same and (params.engine == "vllm" or unmerged):
        return 0
    return shape.parameters * (4 if params.dtype == "float32" else 2)


def _snapshots(params: RunParams) -> int:
    """Sets of earlier weights that are kept: of the start where a role has it, of the past where
    the method measures it, the current ones while one of them answers."""
    kept = {*method_class(params.paper, params).snapshots}
    kept |= {role.policy for role in params.roles.values()} & {"start", "past"}
    return len(kept) + 1 if kept else 0


def need(params: RunParams, card: float, processes: int = 1) -> float:
    """GB of a card that a run needs at its peak on one of so many; 0 where a shape is not known."""
    parts = memory(params, card, processes)
    if not parts:
        return 0.0
    update = sum(parts[name] for name in UPDATE)
    passing = params.engine == "torch" or params.vllm_sleep
    whole = memory(params, card)["weights"]  # until the first step, which has the optimiser too
    start = max(0.0, whole - parts["weights"] - parts["optimiser"])
    rollout = start + (parts["KV cache"] if passing else 0.0)
    apart = {*UPDATE, "snapshots"} | ({"KV cache"} if passing else set())
    return sum(gb for name, gb in parts.items() if name not in apart) + max(update, rollout)


def vllm_needs(params: RunParams) -> float:
    """GB that vLLM needs at least: its weights, one sequence of full length, and to start with 1
    and 6 MB a sequence at a time (Unsloth measured 1.6 for 256 of a small model's); 0 where it is
    not in use, or a shape is not known."""
    own = shape_of(params.policy)
    if own is None or params.engine != "vllm":
        return 0.0
    held = 2 * own.parameters + 2 * params.max_length * own.kv
    return held / GB + 1 + 0.006 * params.sequences


def fits(params: RunParams, card: float, processes: int = 1) -> bool:
    """Whether a run fits a card of so many GB; True where a shape is not known."""
    return need(params, card, processes) <= card and vllm_needs(params) <= params.gpu_memory * card


def refuse_small(params: RunParams, card: float, processes: int = 1) -> None:
    """Raises TrainerError where a run does not fit a card of so many GB, before anything is
    loaded."""
    if fits(params, card, processes):
        return
    whole = need(params, card, processes)
    if whole <= card:
        share = f"which leaves vLLM {params.gpu_memory * card:.1f} of the GPU's {card:.0f} GB"
        least = f"{vllm_needs(params):.1f} GB or more, a smaller policy, a shorter max_length"
        raise TrainerError(f"gpu_memory is {params.gpu_memory}, {share}; allowed: {least}")
    largest = sorted(memory(params, card, processes).items(), key=lambda item: -item[1])[:4]
    shown = ", ".join(f"{name} {gb:.1f}" for name, gb in largest)
    change = "a smaller policy, max_length or max_new_tokens, another gpu_memory (of vLLM)"
    lora = "" if params.lora_rank else "lora_rank above 0, "
    raise TrainerError(
        f"variant {params.variant!r} needs about {whole:.0f} GB ({shown}), and the "
        f"GPU has {card:.0f}; allowed: {lora}{change}, more grpo.gradient_accumulation_steps"
    )


def refuse_taken(params: RunParams, card: float, free: float, processes: int = 1) -> None:
    """Raises TrainerError where a run does not fit what other processes leave free of a card of so
    many GB; some of this process's own context may be taken already."""
    whole = need(params, card, processes)
    if whole > free + data()["memory"]["context"]:
        raise TrainerError(
            f"variant {params.variant!r} needs about {whole:.0f} GB, and another process has taken "
            f"{card - free:.0f} of the GPU's {card:.0f}; allowed: {free:.0f}, or end it first"
        )


def hours(params: RunParams) -> dict[str, float]:
    """Hours of a run on one H100 for answers, updates and evaluations, and in all; {} where its
    method or a shape is not known."""
    own = shape_of(params.policy)
    work = data()["work"].get(params.paper)
    if own is None or work is None:
        return {}
    speed = data()["speed"]
    rows = amount(params, work["rows"])
    flops = 8 * own.parameters * rows * (params.max_new_tokens + 512)
    updates = params.grpo["num_iterations"] * (_pieces(params) * speed["piece"])
    updates += params.grpo["num_iterations"] * flops / speed["flops"]
    evaluations = 1 + math.ceil(params.steps / params.eval_every)
    seconds = {
        "answers": params.steps * _seconds(params, own, work["step"]),
        "updates": params.steps * updates,
        "evaluations": evaluations * _seconds(params, own, work["evaluation"])
        + 2 * _seconds(params, own, work.get("ends", {}))
        + sum(_asked(params, own, name) for name in params.benchmarks),
    }
    parts = {name: number / 3600 for name, number in seconds.items()}
    return parts | {"all": (sum(seconds.values()) + speed["start"]) / 3600}


def _seconds(params: RunParams, own: Shape, phase: dict[str, Any]) -> float:
    """Of a phase of cards.yaml: its answers in waves, as many at once as the engine decodes."""
    turns = phase.get("turns", 1)
    answers = amount(params, phase.get("answers", 0))
    short = amount(params, phase.get("short", 0))
    whole = _waves(params, own, answers / turns, params.max_new_tokens) * turns
    return whole + _waves(params, own, short, params.max_new_tokens / 10)


def _waves(params: RunParams, own: Shape, answers: float, tokens: float) -> float:
    """Seconds of so many answers of so many tokens."""
    speed = data()["speed"]
    if params.engine == "torch":
        step, at_once = speed["torch_step"], speed["torch_rows"]
    else:
        step = speed["step"] + speed["step_billion"] * own.parameters / GB
        at_once = params.sequences
    return math.ceil(answers / at_once) * tokens * step * (speed["lora"] if params.lora_rank else 1)


def _asked(params: RunParams, own: Shape, name: str) -> float:
    """Seconds of a published benchmark in all evaluations that have it."""
    times, count, samples, tokens = benchmark_answers(params, name).values()
    return times * _waves(params, own, count * samples, tokens)


def judged(runs: Mapping[tuple[str, int], RunParams], with_memory: bool, processes: int = 1) -> str:
    """A plan's runs as text: hours of each on one H100, GB with `with_memory`, which cards fit."""
    lines = []
    total = 0.0
    seeds = Counter(variant for variant, _ in runs)
    for variant, params in {params.variant: params for params in runs.values()}.items():
        took = hours(params)
        total += took.get("all", 0.0) * seeds[variant]
        shown = ", ".join(f"{name} {value:.1f}" for name, value in took.items())
        count = f"{seeds[variant]} run{'s' * (seeds[variant] > 1)}, hours of one H100 each"
        lines.append(f"{variant}: {count}: {shown or 'not known'}")
        if with_memory:
            lines += _memory_lines(params, processes)
    return "\n".join([*lines, f"together {total:.1f} H100-hours; nothing of this was measured"])


def _memory_lines(params: RunParams, processes: int) -> list[str]:
    cards = data()["cards"]
    if not memory(params, cards[0]):
        return ["  GB: not known, a policy has no config.json here"]
    table = {card: memory(params, card, processes) for card in cards}
    names = [name for name in table[cards[0]] if any(parts[name] for parts in table.values())]
    lines = ["  {:18}".format("card, GB") + "".join(f"{card:>8}" for card in cards)]
    for name in names:
        numbers = "".join(f"{table[card][name]:8.1f}" for card in cards)
        lines.append(f"  {name:18}{numbers}{'  in RAM' * (name == 'snapshots')}")
    peaks = "".join(f"{need(params, card, processes):8.1f}" for card in cards)
    lines.append("  {:18}".format("at the peak") + peaks)
    verdicts = "".join(f"{'fits' if fits(params, card, processes) else 'no':>8}" for card in cards)
    return [*lines, f"  {'':18}{verdicts}"]
