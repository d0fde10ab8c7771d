"""Guards of a training run: what would silently train something else stops it with a sentence."""

import inspect
import math
import os
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

import torch

from spnb.core.method import SelfPlayMethod
from spnb.core.types import Engine, Request, Sample, Trajectory
from spnb.train.cards import GB, refuse_small, refuse_taken
from spnb.train.config import RunParams, TrainerError, processes
from spnb.train.doctor import CAPABILITY
from spnb.train.grpo import trl_names
from spnb.train.metrics import mean_of

CHUNK = 256
"""Positions whose logits over the whole vocabulary are held in memory at a time."""
ENGINE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}
"""Nats a token, in the mean, that an engine may differ from the trainer, by the engine's dtype."""
FEW_ROWS = 4
ENOUGH = 2_000
"""Rows in which an engine is compared with the trainer, and tokens where it seems to differ."""
NOISE = 0.03
"""Standard deviation of what is added to a LoRA adapter to see whether an engine uses it."""


def token_logps(model: Any, sample: Sample, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities (T,) in nats of a sample's completion tokens under a model, float32.

    At most `CHUNK` positions have logits at a time; a longer completion takes a forward pass each.
    """
    ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]], device=model.device)
    first = len(sample.prompt_ids)
    parts = []
    for start in range(first, ids.shape[1], CHUNK):
        end = min(start + CHUNK, ids.shape[1])
        with torch.no_grad():
            output = model(input_ids=ids[:, : end - 1], logits_to_keep=end - start)
        logits_TV = output.logits[0, start - end :].float() / temperature
        chosen_T = logits_TV.gather(1, ids[0, start:end, None]).squeeze(1)
        parts.append(chosen_T - logits_TV.logsumexp(-1))
    return torch.cat(parts)


def engine_gap(
    model: Any, samples: Sequence[Sample], temperature: float = 1.0, count: int = FEW_ROWS
) -> float | None:
    """The mean |engine - model| of log-probabilities in nats over the sampled tokens of `count`
    samples that have both; None if none has. A row that is NaN throughout has none."""
    usable = [sample for sample in samples if sample.scored]
    chosen = usable[:: max(1, len(usable) // count)][:count]
    return mean_of([gap for one in chosen for gap in token_gaps(model, one, temperature)])


def token_gaps(model: Any, sample: Sample, temperature: float = 1.0) -> list[float]:
    """|engine - model| of log-probabilities in nats, of each sampled token of a scored sample."""
    trainer = token_logps(model, sample, temperature).tolist()
    rows = zip(sample.logps, trainer, sample.mask, strict=True)
    return [abs(engine - logp) for engine, logp, sampled in rows if sampled]


class EngineWatch:
    """Compares an engine with the trainer now and then; stops a run whose engine does not generate
    with the weights in training.

    Args:
        tolerance: see `ENGINE_TOLERANCE`.
    """

    def __init__(self, tolerance: float):
        self.tolerance = tolerance
        self._strikes = 0

    def gap(self, model: Any, samples: Sequence[Sample], temperature: float = 1.0) -> float | None:
        """`engine_gap` of a few rows; where it is too large, of rows of some `ENOUGH` tokens.

        Raises:
            TrainerError: that was too large twice in a row.
        """
        gap = engine_gap(model, samples, temperature)
        if gap is None or gap <= self.tolerance:
            self._strikes = 0
            return gap
        length = mean_of([sum(sample.mask) for sample in samples])
        gap = engine_gap(model, samples, temperature, math.ceil(ENOUGH / max(length, 1)))
        self._strikes = 0 if gap <= self.tolerance else self._strikes + 1
        if self._strikes == 2:
            raise TrainerError(
                f"the engine's log-probabilities differ from the trainer's by {gap:.3g} nats a "
                f"token (allowed: {self.tolerance}): it does not generate with the weights in "
                "training"
            )
        return gap


def check_adapter(model: Any, engine: Engine, requests: Sequence[Request]) -> None:
    """Whether an engine answers with a LoRA adapter. A new adapter changes nothing, so noise is
    added to it for as long as this takes.

    Raises:
        TrainerError: the answers are as near to the model without an adapter, or nearer.
    """
    names = [name for name, p in model.named_parameters() if p.requires_grad and "lora_B" in name]
    adapter = [model.get_parameter(name) for name in names]
    before = [weights.detach().clone() for weights in adapter]
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        try:
            for weights in adapter:
                noise = torch.randn(weights.shape, generator=draw) * NOISE
                weights.add_(noise.to(weights.device, weights.dtype))
            answers = zip(requests, engine.generate(requests), strict=True)
            rows = [Trajectory.of(*pair).sample(0.0, "", "") for pair in answers]
            own = engine_gap(model, rows, count=len(rows))
            for weights in adapter:
                weights.zero_()
            bare = engine_gap(model, rows, count=len(rows))
        finally:
            for weights, value in zip(adapter, before, strict=True):
                weights.copy_(value)
    if not own < bare / 2:
        raise TrainerError(
            f"the engine does not generate with the LoRA adapter: its log-probabilities differ by "
            f"{own:.3g} nats a token from the model with the adapter, by {bare:.3g} without it"
        )


def drop_padded(samples: Sequence[Sample], pad_id: int) -> int:
    """Gives weight 0 to rows that hold the pad token, which a policy may sample; returns how many.

    For Unsloth, which rebuilds masks from token ids and would not train that token.
    """
    bad = [
        row for row in samples if row.weight and pad_id in (*row.prompt_ids, *row.completion_ids)
    ]
    for row in bad:
        row.weight = 0.0
    return len(bad)


def check_card(params: RunParams) -> None:
    """Raises TrainerError where the GPU, if there is one, is too old for the run's dtype (Unsloth
    would go on in float16), or has less memory in all, or free, than its estimate."""
    if not torch.cuda.is_available():
        return
    card = torch.cuda.get_device_properties(None)  # of the one in use
    capability = card.major + card.minor / 10
    if params.dtype == "bfloat16" and capability < CAPABILITY:
        raise TrainerError(
            f"dtype is 'bfloat16', and the GPU has compute capability {capability}; allowed: "
            f"{CAPABILITY} (Ampere) or later, or float32 with engine torch and backend transformers"
        )
    zero = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"
    count = processes() if zero else 1
    refuse_small(params, card.total_memory / GB, count)
    refuse_taken(params, card.total_memory / GB, torch.cuda.mem_get_info()[0] / GB, count)


def refuse_sharded(accelerator: Any) -> None:
    """Sharded weights cannot be read one by one, as engines and snapshots do.

    Raises:
        TrainerError: FSDP, or DeepSpeed ZeRO stage 3.
    """
    state = accelerator.state
    sharding = "FSDP" if getattr(state, "fsdp_plugin", None) is not None else None
    if getattr(getattr(state, "deepspeed_plugin", None), "zero_stage", 0) == 3:
        sharding = "DeepSpeed ZeRO-3"
    if sharding:
        raise TrainerError(
            f"weights are sharded by {sharding}; allowed: DDP (accelerate launch without a plugin) "
            "or DeepSpeed ZeRO-2, which shards the optimiser and leaves the weights whole"
        )


def one_temperature(method: SelfPlayMethod, policy: str, default: float) -> float:
    """The one temperature of the roles that train a policy; TrainerError for several, or 0."""
    roles = [role for role in method.roles.values() if role.trainable and role.policy == policy]
    temperatures = {role.sampling.temperature for role in roles}
    if len(temperatures) > 1 or 0 in temperatures:
        raise TrainerError(
            f"roles that learn have temperatures {sorted(temperatures)}; allowed: one above 0, "
            "by which TRL's loss divides (a role that does not learn may have its own)"
        )
    return next(iter(temperatures), default)


def check_finite(loss: float, grad_norm: float | None, step: int) -> None:
    """Stops before weights that are not numbers are sampled, evaluated and saved.

    Raises:
        TrainerError: the loss or the gradient's norm is infinite or not a number.
    """
    for name, value in (("loss", loss), ("grad_norm", grad_norm)):
        if value is not None and not math.isfinite(value):
            raise TrainerError(
                f"{name} is {float(value)} at update {step}; the last checkpoint is from before "
                "it. Lower grpo.learning_rate or grpo.max_grad_norm"
            )


def check_contract(trainer_class: type, name: str = "GRPOTrainer") -> None:
    """That TRL's trainer, as it is or rewritten by Unsloth, still has what ours stands on.

    Args:
        name: the trainer's name in TRL, under which `trl_names.yaml` lists methods that are
            overridden, with their first parameters, and attributes and keys that are used.

    Raises:
        TrainerError: methods with other parameters, or names and keys that are gone.
    """
    contract = trl_names()["contract"][name]
    faults = []
    for method, expected in contract["methods"].items():
        there = getattr(trainer_class, method, None)
        parameters = inspect.signature(there).parameters if there else {}
        first = list(parameters)[: len(expected)]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        if first != expected and not (open_ended and first):
            faults.append(f"{method} with {first or 'nothing (gone)'}, expected {expected}")
    functions = [f for base in trainer_class.__mro__ for f in vars(base).values()]
    codes = [inspect.unwrap(f).__code__ for f in functions if inspect.isfunction(f)]
    present = {name for code in codes for name in names_in(code)}
    faults += [f"{used} (gone)" for used in contract["names"] if used not in present]
    if faults:
        raise TrainerError(
            f"{trainer_class.__name__} is not the one that spnb is written for: "
            f"{'; '.join(faults)}. Install the pinned trl (and unsloth) of requirements/"
        )


def names_in(code: CodeType) -> Iterator[Any]:
    """Every attribute name and constant in a function's code and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
        elif isinstance(constant, tuple):
            yield from constant
        else:
            yield constant
