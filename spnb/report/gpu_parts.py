"""The parts of `spnb selftest`: each measures something of training and holds it against bars.

A part gets a `Bench` (where it runs, with which policy) and notes in a `Result` what it found. On a
CPU the smoke scale's engines take the place of Unsloth and vLLM.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from spnb.core.disk import write_json
from spnb.core.method import POLICY
from spnb.core.types import Completion, Engine, Request, Sample, Sampling, Trajectory
from spnb.train.cards import GB, need
from spnb.train.checks import PACKAGES
from spnb.train.config import RunParams, flat
from spnb.train.doctor import checks, look
from spnb.train.plan import Plan, make_plan
from spnb.train.progress import kept_steps
from spnb.train.runs import Run

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

    def measured(self, **numbers: float | str) -> None:
        """Notes numbers under their names, without a bar."""
        self.numbers |= {name.replace("_", " "): value for name, value in numbers.items()}

    def bar(
        self, name: str, value: float, low: float = float("-inf"), high: float = float("inf")
    ) -> None:
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
    """Where a part runs: its folder, the policy, whether on the GPU."""

    folder: Path
    policy: str
    gpu: bool

    def plan(self, paper: str, variant: str = "full", **values: Any) -> Plan:
        """One run, without benchmarks; LeftOut where it needs a package that is not here."""
        own = {"policy": self.policy, "runs": str(self.folder), "seeds": [0], "thinking": False}
        if not self.gpu:
            own |= {"max_length": 8192, "max_new_tokens": 16}
        own |= {"variants": [variant], "keep_checkpoints": []}
        plan = make_plan(paper, "gpu" if self.gpu else "smoke", **own | values)
        runs = {k: p.model_copy(update={"benchmarks": {}}) for k, p in plan.runs.items()}
        for params in runs.values():
            named = flat(dict(params))
            for key, packages in PACKAGES.items():
                missing(packages.get(named[key]))
        return replace(plan, runs=runs)

    @property
    def params(self) -> RunParams:
        """Those of the stage that most parts look at."""
        return self.plan("spiral", **KUHN).params("full")

    def stage(self) -> Any:
        """A run's policy, trainer and engines, loaded as for training, with an adapter."""
        from spnb.train.run import StageRun
        from spnb.train.trainer import Stage

        plan = self.plan("spiral", **KUHN)
        params, sources = plan.params("full"), {POLICY: self.policy}
        stage = Stage(POLICY, 0, params.steps)
        loaded = StageRun(plan.open("full"), params, stage, 0, (sources, sources))
        loaded.build(None)
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

    log = run.folder / "log.txt"
    peak = 0.0
    with log.open("a") as file:
        command = [sys.executable, "-m", "spnb.train.run", str(run.folder)]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None and not until():
            if torch.cuda.is_available():
                free, total = torch.cuda.mem_get_info()
                peak = max(peak, (total - free) / GB)
            else:
                with suppress(OSError, StopIteration):
                    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                    line = next(each for each in status if each.startswith("VmHWM"))
                    peak = max(peak, 1024 * int(line.split()[1]) / GB)
            time.sleep(POLL)
        process.kill()
        if process.wait() > 0:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise RuntimeError(lines[-1] if lines else "a run ended without a word")
    return peak


def trained(result: Result, name: str, run: Run, steps: int) -> None:
    """Bars that every finished run has: it is whole, and its numbers are numbers."""
    rows = run.rows("metrics")
    result.bar(f"{name}, steps recorded", len(rows), steps, steps)
    finite = [row["loss"] is not None and row.get("grad_norm") is not None for row in rows]
    result.bar(f"{name}, steps with a loss", sum(finite), steps)
    seconds = [row["seconds/step"] for row in rows]
    tokens = [row["tokens_per_second"] for row in rows]
    result.numbers[f"{name}, seconds a step"] = round(sum(seconds) / len(seconds), 2)
    result.numbers[f"{name}, tokens a second"] = round(sum(tokens) / len(tokens), 1)
    gaps = [row["engine_gap"] for row in rows if row.get("engine_gap") is not None]
    if gaps:
        result.bar(f"{name}, engine against trainer (nats)", max(gaps), 0, tolerance(run.params))


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


# --- the parts


def machine(bench: Bench, result: Result) -> None:
    """Packages, memory, disk; on a GPU driver, compute capability, compiler."""
    found = checks(look(), "gpu" if bench.gpu else "smoke")
    result.measured(**{check.name: check.found for check in found})
    lacking = [f"{check.name} ({check.missing})" for check in found if check.missing]
    result.bar(" and ".join(["missing", *lacking]), len(lacking), high=0)


def load(bench: Bench, result: Result) -> None:
    """Unsloth and vLLM in one process: they load, fit the estimate, and answer as many as asked."""
    missing("vllm")
    missing("unsloth")
    import torch

    started = time.perf_counter()
    stage = bench.stage()
    result.measured(seconds_to_load=round(time.perf_counter() - started, 1))
    free, total = torch.cuda.mem_get_info()
    estimate = need(stage.params, total / GB)
    result.bar("GB in use", (total - free) / GB, high=1.1 * estimate)
    count = stage.params.sequences
    answers, seconds = timed(stage.engines[POLICY], asked(bench, count, 64, 32))
    result.bar("answers at once", sum(bool(answer.ids) for answer in answers), count)
    result.measured(seconds_for_them=round(seconds, 2))


def adapter(bench: Bench, result: Result) -> None:
    """A perturbed adapter and the start, asked in turn: each answers with its own weights."""
    import torch

    from spnb.train.guards import NOISE, engine_gap
    from spnb.train.weights import put_weights, trained_weights

    stage = bench.stage()
    model, policy = stage.model, stage.engines[POLICY]
    before = trained_weights(model)
    draw = torch.Generator().manual_seed(0)
    noisy = {
        name: weights + NOISE * torch.randn(weights.shape, generator=draw) * ("lora_B" in name)
        for name, weights in before.items()
    }
    start = stage.snapshot("start", before)
    put_weights(model, noisy)
    requests = asked(bench, 16, 48, 64)
    rows: dict[str, list[Sample]] = {}
    for name, engine in (("policy", policy), ("start", start)):
        named = [replace(one, policy=name) for one in requests]
        pairs = zip(named, engine.generate(named), strict=True)
        rows[name] = [Trajectory.of(*pair).sample(0.0, "", "") for pair in pairs]
    gaps = {("policy", "own"): engine_gap(model, rows["policy"], count=16)}
    gaps["start", "other"] = engine_gap(model, rows["start"], count=16)
    put_weights(model, before)
    gaps["start", "own"] = engine_gap(model, rows["start"], count=16)
    gaps["policy", "other"] = engine_gap(model, rows["policy"], count=16)
    for name in rows:
        own, other = gaps[name, "own"], gaps[name, "other"]
        result.bar(f"{name} against its own weights (nats)", own, 0, tolerance(dict(stage.params)))
        result.bar(f"{name} against the other's (nats)", other, max(2 * own, 1e-3))


def speed(bench: Bench, result: Result) -> None:
    """Tokens a second by rows at once; a prompt that eight rows share against eight prompts."""
    stage = bench.stage()
    engine = stage.engines[POLICY]
    timed(engine, asked(bench, 2, 16, 4))  # what is compiled at the first call
    rates = {}
    for rows in (32, 64, 256) if bench.gpu else (2, 8, 32):
        answers, seconds = timed(engine, asked(bench, rows, 32, 64))
        rates[rows] = sum(len(answer.ids) for answer in answers) / seconds
        result.numbers[f"tokens a second, {rows} rows"] = round(rates[rows], 1)
    few, many = min(rates), max(rates)
    result.bar(f"{many} rows against {few}, times as fast", rates[many] / rates[few], 1.5)
    length = 4000 if bench.gpu else 2000
    own = timed(engine, asked(bench, 8, length, 4))[1]
    shared = timed(engine, [replace(one, seed=9) for one in asked(bench, 8, length, 4, True)])[1]
    result.bar("seconds of a shared prompt against eight", shared / own, high=0.75)


def spiral(bench: Bench, result: Result) -> None:
    """Three steps and an evaluation, killed after the first checkpoint and started again."""
    steps = 3 if bench.gpu else 5
    values = KUHN | {"steps": steps, "save_every": 1, "eval_every": steps}
    values |= {} if bench.gpu else {"turns_per_step": 16}
    plan = bench.plan("spiral", **values)
    run = plan.open("full")
    train(run, until=lambda: kept_steps(run) >= 1)
    kept = kept_steps(run)
    result.bar("steps kept when it was killed", kept, 1, steps - 1)
    peak = train(run)
    trained(result, "spiral", run, steps)
    result.bar("spiral, went on from its checkpoint", float(run.facts()["resumed"]), 1)
    result.bar("GB at the peak", peak, high=need(plan.params("full"), _card()) if bench.gpu else 8)


def _card() -> float:
    import torch

    return torch.cuda.get_device_properties(0).total_memory / GB


def full(bench: Bench, result: Result) -> None:
    """All weights in float32, three steps at a rate of 1e-6: nearly all of them have moved."""
    values = KUHN | {"steps": 3, "eval_every": 3, "lora_rank": 0, "grpo": {"learning_rate": 1e-6}}
    values |= {"backend": "transformers"} if bench.gpu else {"turns_per_step": 16}
    plan = bench.plan("spiral", **values)
    run = plan.open("full")
    peak = train(run)
    trained(result, "full weights", run, 3)
    from spnb.train.policies import load_policy

    params = plan.params("full")
    pair = [load_policy(source, params).model for source in (bench.policy, str(run.model))]
    weights = zip(*(model.parameters() for model in pair), strict=True)
    counts = [(int((old != new).sum()), old.numel()) for old, new in weights]
    moved = sum(changed for changed, _ in counts) / sum(count for _, count in counts)
    result.bar("share of weights that moved", moved, 0.9)
    result.measured(GB_at_the_peak=round(peak, 2))


def papers(bench: Bench, result: Result) -> None:
    """A step of SPELL, whose draws are cut, and two of SPICE."""
    small: dict[str, dict[str, Any]] = {"spell": {"steps": 1}, "spice": {"steps": 2}}
    if bench.gpu:
        few = {"eval_items": 1, "eval_samples": 1, "eval_proposals": 4}
        small["spell"] |= few | {"questions_per_round": 12, "eval_documents": [8]}
        small["spice"] |= {"eval_items": 1, "eval_tasks": 4}
    for paper, values in small.items():
        values |= {"eval_every": values["steps"]}
        values |= {"policies": {"external": bench.policy}} if paper == "spell" else {}
        run = bench.plan(paper, **values).open("full")
        train(run)
        trained(result, paper, run, values["steps"])


def pairs(bench: Bench, result: Result) -> None:
    """LongPO with the torch engine: the policy's own answers as preference pairs."""
    if Path(bench.policy).is_dir():
        raise LeftOut("a random policy writes no answer that could be preferred")
    values = {"steps": 2, "eval_every": 2, "eval_items": 1, "eval_samples": 1, "eval_proposals": 4}
    run = bench.plan("spell", "longpo", **values | {"static_questions": 32}).open("longpo")
    peak = train(run)
    trained(result, "longpo", run, 2)
    result.bar("GB at the peak", peak, high=_card())


def loss(bench: Bench, result: Result) -> None:
    """Unsloth's gradient and TRL's own, of the same rows and the same adapter."""
    missing("unsloth")
    missing("vllm")
    norms = {}
    for backend in ("transformers", "unsloth"):
        process = get_context("spawn").Process(target=fixed_loss, args=(bench, backend))
        process.start()  # of its own: Unsloth changes TRL
        process.join()
        norms[backend] = json.loads((bench.folder / f"{backend}.json").read_text())
    for key, own in norms["unsloth"].items():
        other = norms["transformers"][key]
        result.bar(f"{key}, difference", abs(own - other) / max(abs(other), 1e-6), 0, 0.03)


def fixed_loss(bench: Bench, backend: str) -> None:
    """Writes loss and gradient norm of one update, with rows and an adapter that are always the
    same, to `<backend>.json`."""
    import torch

    from spnb.core.advantages import make_estimator
    from spnb.core.method import Role, SelfPlayMethod
    from spnb.train.policies import load_policy
    from spnb.train.trainer import Hooks, Stage, make_trainer

    folder = bench.folder / backend
    values = {"backend": backend, "engine": "vllm" if backend == "unsloth" else "torch"}
    one = {"steps": 1, "grpo": {"num_iterations": 1}}
    params = bench.plan("spiral", **KUHN | values | one).params("full")

    class Fixed(SelfPlayMethod):
        """Sixteen rows of plain tokens, half of them good."""

        def default_roles(self) -> dict[str, Role]:
            return {"row": Role(params.sampling, make_estimator("raw"))}

        def rollout(self, step: int) -> Any:
            yield from ()
            nan = (float("nan"),) * 32
            texts = [(bench.ids(20, row), bench.ids(32, 50 + row)) for row in range(16)]
            return [
                Sample(*text, (1,) * 32, nan, 1.0 - 2 * (row % 2), "row", row)
                for row, text in enumerate(texts)
            ]

    loaded = load_policy(bench.policy, params, folder=folder)
    rows: list[dict[str, float]] = []
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    method = Fixed(params.model_copy(update={"roles": {}}), loaded.tokenizer)
    trainer = make_trainer(params, loaded, method, {}, hooks, folder, Stage(steps=1))
    for name, weights in trainer.model.named_parameters():
        if weights.requires_grad:
            draw = torch.Generator().manual_seed(len(name) + sum(map(ord, name)))
            noise = torch.randn(weights.shape, generator=draw) * 0.03
            weights.data.copy_(noise.to(weights.device, weights.dtype))
    trainer.train()
    write_json(
        bench.folder / f"{backend}.json", {key: rows[0][key] for key in ("loss", "grad_norm")}
    )


@dataclass(frozen=True)
class Part:
    """A part by its function, and the minutes that it may take."""

    check: Callable[[Bench, Result], None]
    minutes: float


PARTS = {
    "machine": Part(machine, 1),
    "load": Part(load, 6),
    "adapter": Part(adapter, 4),
    "speed": Part(speed, 4),
    "spiral": Part(spiral, 8),
    "full": Part(full, 6),
    "papers": Part(papers, 8),
    "pairs": Part(pairs, 4),
    "loss": Part(loss, 4),
}
