"""What the parts of `spnb selftest` stand on: where they run, what they note, runs that they train.

A part gets a `Bench` (where it runs, with which policy) and notes in a `Result` what it found. On a
CPU the smoke scale's engines take the place of Unsloth and vLLM.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

from spnb.core.method import POLICY
from spnb.core.types import Completion, Engine, Request, Sampling
from spnb.train.cards import GB, refuse_small
from spnb.train.checks import PACKAGES
from spnb.train.config import TrainerError, flat
from spnb.train.plan import Plan, make_plan
from spnb.train.policies import import_unsloth
from spnb.train.runs import Run
from spnb.train.server import last_lines, start

PASSED, FAILED, LEFT_OUT = "passed", "failed", "left out"
POLL = 0.05
"""Seconds between two looks at a process."""


class LeftOut(Exception):
    """A part cannot be run here; the message says why."""


@dataclass
class Result:
    """What a part has measured, and which bars it held: a sentence each, with the value in it."""

    part: str
    verdict: str = FAILED
    why: str = ""
    seconds: float = 0.0
    date: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    bars: dict[str, bool] = field(default_factory=dict)

    def bar(self, name: str, value: float, low: float = -inf, high: float = inf) -> None:
        """Notes a number that must be within bounds, both included."""
        bounds = f"from {low:.4g} to {high:.4g}".replace("from -inf ", "").replace(" to inf", "")
        self.bars[f"{name}: {value:.4g}, allowed: {bounds}"] = bool(low <= value <= high)

    def judge(self) -> None:
        """The verdict by the bars."""
        broken = [sentence for sentence, held in self.bars.items() if not held]
        self.why = "; ".join(broken) if self.bars else "it has measured nothing"
        self.verdict = FAILED if self.why else PASSED


@dataclass(frozen=True)
class Bench:
    """Where a part runs: its folder, the policy, whether on the GPU, with which parameters."""

    folder: Path
    policy: str
    gpu: bool
    values: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, paper: str, variant: str = "full", **values: Any) -> Plan:
        """One run, without benchmarks; LeftOut where a package that it needs is not here, or the
        card is too small for it."""
        own = {"policy": self.policy, "runs": str(self.folder), "seeds": [0], "thinking": False}
        if not self.gpu:
            own |= {"max_length": 8192, "max_new_tokens": 16}
        own |= {"variants": [variant], "keep_checkpoints": []}
        plan = make_plan(paper, "gpu" if self.gpu else "smoke", **own | values | self.values)
        runs = {k: p.model_copy(update={"benchmarks": {}}) for k, p in plan.runs.items()}
        for params in runs.values():
            named = flat(dict(params))
            for key, packages in PACKAGES.items():
                missing(packages.get(named[key]))
            try:
                if self.gpu:
                    refuse_small(params, room(self))
            except TrainerError as error:
                raise LeftOut(str(error)) from None
        return replace(plan, runs=runs)

    def stage(self, result: Result, **values: Any) -> Any:
        """A run's policy, trainer and engines, loaded as for training; notes the seconds."""
        started = time.perf_counter()
        plan = self.plan("spiral", **KUHN | values)
        params, sources = plan.params("full"), {POLICY: self.policy}
        if params.backend == "unsloth":
            import_unsloth(params.vllm_sleep, self.folder)
        from spnb.train.run import StageRun
        from spnb.train.trainer import Stage

        stage = Stage(POLICY, 0, params.steps)
        loaded = StageRun(plan.open("full"), params, stage, 0, (sources, sources))
        loaded.build(None)
        how = ", vLLM can sleep" if params.vllm_sleep else ""
        result.numbers[f"seconds to load{how}"] = round(time.perf_counter() - started, 1)
        return loaded

    def ids(self, count: int, seed: int) -> tuple[int, ...]:
        """Token ids of plain text."""
        return tuple((31 * place + 97 * seed + place * place) % 199 for place in range(count))


KUHN: dict[str, Any] = {"games": ["kuhn_poker"], "eval_games": [], "eval_questions": 0}
KUHN |= {"eval_matches": 4, "eval_samples": 1, "lora_rank": 8}


def missing(package: str | None) -> None:
    """Raises LeftOut where a package is named that is not installed."""
    if package and find_spec(package) is None:
        raise LeftOut(f"{package} is not installed")


def train(run: Run, until: Callable[[], bool] = lambda: False) -> float:
    """Trains a run in a process, which is killed once `until` holds; the peak of memory in GB, of
    the GPU, or of the process where there is none.

    Raises:
        RuntimeError: it ended with an error, whose last line is the message.
    """
    import torch

    peak = 0.0
    process = start(run.folder, forked=False)
    while process.is_alive() and not until():
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            peak = max(peak, (total - free) / GB)
        else:
            with suppress(OSError, StopIteration):
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                line = next(each for each in status if each.startswith("VmHWM"))
                peak = max(peak, 1024 * int(line.split()[1]) / GB)
        time.sleep(POLL)
    stopped = process.is_alive()
    process.kill()
    process.join()
    if process.exitcode and not stopped:
        lines = [line for line in last_lines(run.folder, 1) if line.strip()]
        raise RuntimeError(lines[-1] if lines else "a run ended without a word")
    return peak


def trained(result: Result, name: str, run: Run, steps: int) -> None:
    """Bars that every finished run has: it is whole, and its numbers are numbers."""
    rows = run.rows("metrics")
    result.bar(f"{name}, steps recorded", len(rows), steps, steps)
    finite = [row["loss"] is not None and row.get("grad_norm") is not None for row in rows]
    result.bar(f"{name}, steps with a loss", sum(finite), steps)
    for key, text in (("seconds/step", "seconds a step"), ("tokens_per_second", "tokens a second")):
        if found := noted(rows, key):
            result.numbers[f"{name}, {text}"] = round(sum(found) / len(found), 2)
    if gaps := noted(rows, "engine_gap"):
        result.bar(f"{name}, engine against trainer (nats)", max(gaps), 0, tolerance(run.params))
    if ratios := noted(rows, "engine_ratio"):
        mean, above = sum(ratios) / len(ratios), max(noted(rows, "engine_above"))
        result.bar(f"{name}, trainer's probabilities over the engine's", mean, 0.9, 1.1)
        result.bar(f"{name}, share of them that the loss cuts", above, 0, 0.02)


def noted(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """A metric in the steps that have it."""
    return [row[key] for row in rows if row.get(key) is not None]


def room(bench: Bench) -> float:
    """GB of the card; on a CPU what a run with a tiny policy may take."""
    import torch

    return torch.cuda.get_device_properties(0).total_memory / GB if bench.gpu else 8


def tolerance(params: Mapping[str, Any]) -> float:
    """Nats a token that an engine may differ, by a run's parameters."""
    from spnb.train.guards import ENGINE_TOLERANCE

    return ENGINE_TOLERANCE[params["dtype"]]


def asked(bench: Bench, count: int, length: int, tokens: int, same: bool = False) -> list[Request]:
    """Requests with prompts of so many tokens."""
    prompts = [bench.ids(length, 0 if same else place) for place in range(count)]
    return [Request(prompt, Sampling(tokens), seed) for seed, prompt in enumerate(prompts)]


def timed(engine: Engine, requests: Sequence[Request]) -> tuple[list[Completion], float]:
    """Answers, and how many seconds they took."""
    started = time.perf_counter()
    answers = engine.generate(requests)
    return answers, time.perf_counter() - started
