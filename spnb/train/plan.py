"""What a notebook or a command executes: a paper's variants and seeds, validated before anything.

`make_plan` merges the scale's parameter file, each variant and the caller's values. `run_one`
trains one run in this process, `run_all` every run of a plan in processes of their own. A run that
starts from another one waits for it. Finished runs are kept, unfinished ones go on where they were.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field
from tqdm import tqdm

from spnb.core.params import ParamError, StrictData, scale_values, unknown, validate, variants
from spnb.core.paths import ROOT, resolve
from spnb.methods import method_module
from spnb.train.config import RunParams, merge, params_class, variant_layers
from spnb.train.runs import Run, RunError, config_hash, open_run

Key = tuple[str, int]
"""A run of a plan: its variant and seed."""


class Session(StrictData):
    """What a plan adds to the parameters of its runs."""

    variants: list[str] = Field(min_length=1)
    seeds: list[int] = Field([0], min_length=1)
    runs: str = Field("runs", description="folder for runs")
    figures: str = Field("figures", description="folder for exhibits")
    jobs: int = Field(2, ge=1, description="runs at a time")


@dataclass(frozen=True)
class Plan:
    """A paper's runs to execute: every variant with every seed, and the runs these start from."""

    paper: str
    scale: str
    session: Session
    runs: dict[Key, RunParams] = field(repr=False)
    weights: dict[str, str] = field(repr=False)

    @property
    def figures(self) -> Path:
        """Where exhibits go."""
        return resolve(self.session.figures)

    @property
    def seeds(self) -> list[int]:
        """The plan's seeds."""
        return list(dict.fromkeys(seed for _, seed in self.runs))

    @property
    def variants(self) -> list[str]:
        """The plan's variants."""
        return list(dict.fromkeys(variant for variant, _ in self.runs))

    def params(self, variant: str, seed: int | None = None) -> RunParams:
        """The resolved parameters of one run; without a seed, of the plan's first."""
        return self.runs[variant, self.seeds[0] if seed is None else seed]

    def identity(self, variant: str, seed: int) -> dict[str, Any]:
        """Everything that decides a run's numbers: parameters, weights, the runs it starts from."""
        params = self.params(variant, seed)
        identity = params.model_dump(mode="json")
        identity["weights"] = {name: self.weights[name] for name in sources(params)}
        identity["starts"] = {
            policy: {"variant": other, "hash": config_hash(self.identity(other, seed))}
            for policy, other in params.start_from.items()
        }
        return identity

    def open(self, variant: str, seed: int | None = None) -> Run:
        """The run's folder, made if need be."""
        seed = self.seeds[0] if seed is None else seed
        return open_run(resolve(self.session.runs), self.identity(variant, seed))

    def all(self) -> list[Run]:
        """Every run of the plan, in order."""
        return [self.open(*key) for key in self.runs]

    def needs(self, key: Key) -> list[Key]:
        """The runs that a run starts from."""
        return [(other, key[1]) for other in self.runs[key].start_from.values()]


def sources(params: RunParams) -> list[str]:
    """Where a run's policies come from, as its parameters name them."""
    return list(dict.fromkeys([params.policy, *params.policies.values()]))


def make_plan(paper: str, scale: str = "cpu", **values: Any) -> Plan:
    """A plan from the scale's parameter file and `values`.

    Args:
        values: `variants` (default: the headline ones), `seeds`, `jobs`, `runs`, `figures`, and any
            parameter of a run. What stands here wins over a variant, a variant over the file. A
            value of None counts as not given.

    Raises:
        ParamError: anything unknown, of the wrong type or not allowed, before anything is computed.
    """
    for key in ("paper", "variant", "seed"):
        if key in values:
            raise ParamError(
                f"{key} is {values[key]!r}, which cannot be set here; use variants, seeds"
            )
    file = scale_values(paper, scale)
    values = {key: value for key, value in values.items() if value is not None}
    known = variants(paper)
    names = list(Session.model_fields)
    own = {key: value for key, value in merge(file, values).items() if key in names}
    own.setdefault("variants", [name for name, entry in known.items() if entry.get("headline")])
    session = validate(Session, own)
    layers = [{k: v for k, v in layer.items() if k not in names} for layer in (file, values)]
    model = params_class(method_module(paper).Method)
    runs: dict[Key, RunParams] = {}

    def add(variant: str, seed: int, path: tuple[str, ...] = ()) -> None:
        if variant not in known:
            raise ParamError(unknown("start_from" if path else "variant", variant, known))
        if variant in path:
            raise ParamError(f"start_from makes a circle: {' -> '.join((*path, variant))}")
        identity = {"paper": paper, "scale": scale, "variant": variant, "seed": seed}
        changes = merge(layers[0], variant_layers(known[variant], scale), layers[1], identity)
        params = validate(model, changes)
        for other in params.start_from.values():
            add(other, seed, (*path, variant))
        runs.setdefault((variant, seed), params)

    for variant in session.variants:
        for seed in session.seeds:
            add(variant, seed)
    from spnb.train.policies import policy_fingerprint

    weights = {
        name: policy_fingerprint(name) for params in runs.values() for name in sources(params)
    }
    return Plan(paper, scale, session, runs, weights)


def run_one(plan: Plan, variant: str, seed: int) -> Run:
    """Trains and evaluates one run in this process, after the runs that it starts from.

    Raises:
        RunError: the folder is damaged or another process writes it.
        TrainerError: training cannot go on; what is computed stays.
    """
    from spnb.train.run import train_run

    for key in plan.needs((variant, seed)):
        run_one(plan, *key)
    return train_run(plan.open(variant, seed))


def run_all(plan: Plan, on_poll: Callable[[Plan], None] | None = None) -> list[Run]:
    """Every run of a plan, `jobs` at a time in processes of their own; returns finished runs.

    Args:
        on_poll: called every half second, for instance to draw live curves.

    Raises:
        RunError: a run failed; the message ends with its last lines. Other runs in progress are
            brought to their end.
    """
    waiting = [key for key in plan.runs if not plan.open(*key).finished]
    queue = list(waiting)
    active: dict[Key, subprocess.Popen] = {}
    failed: list[Key] = []
    total = sum(plan.runs[key].steps for key in waiting)
    before = sum(_steps_done(plan, key) for key in waiting)
    look = {"unit": "step", "file": sys.stdout, "mininterval": 10, "ncols": 90}
    with tqdm(total=total, initial=before, desc=f"{len(waiting)} runs", **look) as bar:
        try:
            while (queue and not failed) or active:
                while not failed and len(active) < plan.session.jobs:
                    key = _next(plan, queue)
                    if key is None:
                        break
                    queue.remove(key)
                    active[key] = _spawn(plan.open(*key))
                time.sleep(0.5)
                for key in [key for key, process in active.items() if process.poll() is not None]:
                    if active.pop(key).returncode:
                        failed.append(key)
                bar.update(sum(_steps_done(plan, key) for key in waiting) - bar.n)
                if on_poll is not None:
                    on_poll(plan)
        finally:
            for process in active.values():
                process.terminate()
    if failed:
        run = plan.open(*failed[0])
        log = (run.folder / "log.txt").read_text(errors="replace").splitlines()
        raise RunError(f"run {run.run_id} failed; its log ends:\n" + "\n".join(log[-15:]))
    runs = plan.all()
    for run in runs:
        run.check_finished()
    return runs


def _next(plan: Plan, queue: list[Key]) -> Key | None:
    """The first waiting run whose starting points are finished."""
    ready = (key for key in queue if all(plan.open(*need).finished for need in plan.needs(key)))
    return next(ready, None)


def _spawn(run: Run) -> subprocess.Popen:
    """Starts one run as a process, its output in the run's log.txt."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "spnb.train.run", str(run.folder)]
    with open(run.folder / "log.txt", "a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=ROOT)


def _steps_done(plan: Plan, key: Key) -> int:
    path = plan.open(*key).folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def deviations(plan: Plan) -> dict[str, tuple[Any, Any]]:
    """Where the plan's scale differs from the paper's settings: parameter to (here, paper)."""
    variant = plan.variants[0]
    here = _flat(plan.params(variant))
    paper = _flat(make_plan(plan.paper, "paper", variants=[variant]).params(variant))
    names = [name for name in {**here, **paper} if name not in ("scale", "seed")]
    changed = [name for name in names if here.get(name) != paper.get(name)]
    return {name: (here.get(name), paper.get(name)) for name in changed}


def _flat(params: RunParams) -> dict[str, Any]:
    values: Mapping[str, Any] = params.model_dump(mode="json")
    grpo = {f"grpo.{key}": value for key, value in values["grpo"].items()}
    return {key: value for key, value in values.items() if key != "grpo"} | grpo
