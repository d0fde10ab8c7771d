"""One variant and seed from parameters to a finished run, and many of them side by side.

A `Plan` is what a notebook or a command executes: a paper, a scale, variants and seeds, validated
before anything starts. `run_one` trains and evaluates in this process; `run_all` does every run of
a plan in processes of their own. Both can be stopped at any moment and started again: finished runs
are kept, an unfinished one goes on from its last complete checkpoint and gives bit-identical
numbers on a CPU.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError
from tqdm import tqdm

from spnb.core.params import ParamError, RunParams, scale_values, validate, variant_values, variants
from spnb.core.paths import ROOT, resolve
from spnb.core.types import Sample, role_label
from spnb.methods import method_module
from spnb.report.exhibits import check_writable
from spnb.train.policies import (
    SnapshotEngine,
    fixed_engine,
    load_policy,
    make_engine,
    policy_fingerprint,
    trained_weights,
)
from spnb.train.runs import Run, RunError, open_run
from spnb.train.trainer import STATE_FILE, Hooks, TrainerError, last_checkpoint, make_trainer

SAMPLES_KEPT = 16
"""Loss rows written to rollouts.jsonl at each evaluation."""


class Session(BaseModel):
    """What a notebook or a command adds to the parameters of its runs; `seed` alone means one
    seed."""

    model_config = ConfigDict(extra="forbid")

    variants: list[str] = Field(min_length=1)
    seeds: list[int] = Field([0], min_length=1)
    seed: int | None = None
    runs: str = Field("runs", description="folder for runs")
    figures: str = Field("figures", description="folder for exhibits")
    jobs: int = Field(2, ge=1, description="runs at a time")


@dataclass(frozen=True)
class Plan:
    """A paper's runs to execute: every variant with every seed, all validated."""

    paper: str
    scale: str
    session: Session
    runs: dict[tuple[str, int], RunParams] = field(repr=False)
    weights: dict[str, str] = field(repr=False)

    @property
    def figures(self) -> Path:
        """Where exhibits go."""
        return resolve(self.session.figures)

    def params(self, variant: str, seed: int | None = None) -> RunParams:
        """The resolved parameters of one run; without a seed, the plan's first."""
        return self.runs[variant, self.seeds[0] if seed is None else seed]

    @property
    def seeds(self) -> list[int]:
        """The plan's seeds."""
        return list(dict.fromkeys(seed for _, seed in self.runs))

    @property
    def variants(self) -> list[str]:
        """The plan's variants."""
        return list(dict.fromkeys(variant for variant, _ in self.runs))

    def open(self, variant: str, seed: int | None = None) -> Run:
        """The run's folder, made if need be."""
        params = self.params(variant, seed)
        identity = params.model_dump(mode="json") | {"policy_weights": self.weights[params.policy]}
        if params.other_policies:
            identity["other_weights"] = {
                key: self.weights[name] for key, name in params.other_policies.items()
            }
        return open_run(resolve(self.session.runs), identity)

    def all(self) -> list[Run]:
        """Every run of the plan, in order."""
        return [self.open(variant, seed) for variant, seed in self.runs]


def make_plan(paper: str, scale: str = "cpu", **values: Any) -> Plan:
    """A plan from the scale's parameter file and `values`, which may name session or run
    parameters.

    Raises:
        ParamError: anything unknown, of the wrong type or not allowed, before anything is computed.
        ExhibitError: the folder for exhibits cannot be written.
    """
    merged = scale_values(paper, scale)
    if merged.pop("scale") != scale:
        raise ParamError(f"params/{paper}/{scale}.yaml says another scale")
    for key in ("paper", "variant"):
        if key in values:
            raise ParamError(
                f"{key} is {values[key]!r}, which cannot be set here; allowed: variants, a list"
            )
    merged |= values
    params_class = method_module(paper).Params
    own = {key: merged.pop(key) for key in list(merged) if key in Session.model_fields}
    own.setdefault(
        "variants", [name for name, entry in variants(paper).items() if entry.get("headline")]
    )
    session = validate(Session, own)
    seeds = session.seeds if session.seed is None else [session.seed]
    runs = {}
    for variant in session.variants:
        changes = {
            **merged,
            **variant_values(paper, variant, scale),
            **_user_values(values, params_class),
        }
        for seed in seeds:
            identity = {"paper": paper, "scale": scale, "variant": variant, "seed": seed}
            runs[variant, seed] = validate(params_class, changes | identity)
    check_writable(resolve(session.figures))
    named = {
        name
        for params in runs.values()
        for name in (params.policy, *params.other_policies.values())
    }
    weights = {policy: policy_fingerprint(policy) for policy in named}
    return Plan(paper, scale, session, runs, weights)


def _user_values(values: Mapping[str, Any], params_class: type[RunParams]) -> dict[str, Any]:
    """What the caller set himself wins over a variant, but a variant wins over the scale's file."""
    return {key: value for key, value in values.items() if key in params_class.model_fields}


def plan_from(paper: str, namespace: Mapping[str, Any], before: set[str]) -> Plan:
    """The plan of a notebook: its parameters cell and what papermill injected.

    Every public name that came into `namespace` since `before` was recorded counts as a parameter,
    so a misspelt one is an error instead of silently changing nothing. Once the notebook has a
    plan, its own variables are there too, and only names of parameters are read. A value of None
    means: as in the parameter file.
    """
    hidden = re.compile(r"_|In$|Out$|exit$|quit$|get_ipython$|papermill$")
    given = {
        key: namespace[key] for key in namespace if key not in before and not hidden.match(key)
    }
    if any(isinstance(value, Plan) for value in namespace.values()):
        known = {"scale", *Session.model_fields, *method_module(paper).Params.model_fields}
        given = {key: value for key, value in namespace.items() if key in known}
    given = {key: value for key, value in given.items() if value is not None}
    scale = given.pop("scale", "cpu")
    file = scale_values(paper, scale)
    if "paper" in given:
        raise ParamError(
            f"paper is {given['paper']!r}, which cannot be set in a paper's own notebook"
        )
    return make_plan(
        paper, scale, **{key: value for key, value in given.items() if file.get(key) != value}
    )


def run_one(plan: Plan, variant: str, seed: int) -> Run:
    """Trains and evaluates one run in this process, or returns it at once if it is finished.

    Raises:
        RunError: the folder is damaged or another process writes it.
        TrainerError: training cannot go on; what is computed stays.
    """
    run = plan.open(variant, seed)
    if run.finished:
        return run
    with run.lock() if int(os.environ.get("RANK", "0")) == 0 else nullcontext():
        _Training(run, plan.params(variant, seed)).go()
    return run


class _Training:
    """The parts of one run in training and what happens between them.

    Under accelerate every process plays and trains; only the main one records, evaluates and saves.
    """

    def __init__(self, run: Run, params: RunParams):
        if not torch.cuda.is_available():
            torch.set_num_threads(1)  # the same sums on any machine and beside any other run
        transformers.set_seed(
            params.seed
        )  # a new LoRA adapter is drawn before the trainer seeds itself
        self.run, self.params, self.started = run, params, time.perf_counter()
        policy = load_policy(params)
        self.method = method_module(params.paper).Method(params, policy.tokenizer)
        self.engines: dict[str, Any] = {}
        hooks = Hooks(on_step=self.on_step, on_state=lambda: {"past": self.past})
        self.trainer = make_trainer(
            params,
            policy.model,
            policy.tokenizer,
            self.method,
            self.engines,
            hooks,
            run.checkpoints,
            policy.peft_config,
        )
        self.engines["policy"] = make_engine(params, self.trainer)
        if getattr(self.method, "uses_start", False):
            self.engines["start"] = self.snapshot()
        for name, other in params.other_policies.items():
            self.engines[name] = fixed_engine(other, params, policy.tokenizer)
        self.past: dict[str, torch.Tensor] | None = None
        self.main = self.trainer.accelerator.is_main_process

    def go(self) -> None:
        """Resumes or begins, trains to the end, saves the final weights."""
        checkpoint = last_checkpoint(self.run.checkpoints)
        if self.main and checkpoint is None:
            self.run.rewind(-1)
            self.evaluate(0)
        elif self.main:
            self.resume(checkpoint)
        try:
            self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except TrainerError:
            raise
        except Exception as error:
            if checkpoint is None or self.trainer.state.global_step > _updates_done(checkpoint):
                raise
            raise _unreadable(checkpoint, error) from error
        self.save()
        self.trainer.accelerator.wait_for_everyone()
        if self.main:
            self.finish(resumed=checkpoint is not None)

    def finish(self, resumed: bool) -> None:
        """Marks the run as done, with what it took."""
        seconds = round(time.perf_counter() - self.started, 1)
        processes = self.trainer.accelerator.num_processes
        self.run.finish(
            seconds=seconds, resumed=resumed, threads=torch.get_num_threads(), processes=processes
        )

    def save(self) -> None:
        """Writes the final weights; on a full disk the last checkpoint is still there to go on
        from."""
        try:
            self.trainer.save_model(str(self.run.model))
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"the final weights of {self.run.run_id} could not be written ({error}); free some disk space "
                "and start the run again, it goes on from its last checkpoint"
            ) from error

    def resume(self, checkpoint: Path) -> None:
        """Takes the run's records back to a checkpoint; the trainer restores itself from it."""
        try:
            state = torch.load(checkpoint / STATE_FILE, map_location="cpu", weights_only=False)
        except Exception as error:
            raise _unreadable(checkpoint, error) from error
        self.past = state["run"]["past"]
        self.run.rewind(_updates_done(checkpoint) // self.params.inner_epochs)

    def on_step(self, row: dict[str, float], samples: list[Sample]) -> None:
        """Records a step; evaluates where it is due."""
        if not self.main:
            return
        self.run.append("metrics", row)
        if row["step"] % self.params.eval_every == 0 or row["step"] == self.params.steps:
            for sample in samples[:: max(1, len(samples) // SAMPLES_KEPT)]:
                self.run.append("rollouts", {"step": row["step"], **self.record(sample)})
            self.evaluate(row["step"])

    def record(self, sample: Sample) -> dict[str, Any]:
        """A sample as it is kept for reading."""
        prompt = self.trainer.processing_class.decode(sample.prompt_ids)
        facts = {
            "role": role_label(sample.role),
            "reward": sample.reward,
            "advantage": sample.advantage,
        }
        return facts | {"prompt": prompt, **sample.info}

    def evaluate(self, step: int) -> None:
        """Evaluates the policy, then keeps its weights as the next evaluation's past self."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        if self.past is not None:
            self.engines["past"] = SnapshotEngine(self.engines["policy"], model, self.past)
        for row in self.method.evaluate(self.engines, step):
            self.run.append("evals", row)
        self.past = trained_weights(model)

    def snapshot(self) -> SnapshotEngine:
        """The policy as it is now. Before training (and before a checkpoint is read) these are its
        first weights."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        return SnapshotEngine(self.engines["policy"], model, trained_weights(model))


def _updates_done(checkpoint: Path) -> int:
    return int(checkpoint.name.rsplit("-", 1)[1])


def _unreadable(checkpoint: Path, error: Exception) -> RunError:
    return RunError(
        f"{checkpoint} cannot be read ({error}); delete it to go on from the one before"
    )


def run_all(plan: Plan, on_poll: Callable[[Plan], None] | None = None) -> list[Run]:
    """Every run of a plan, `session.jobs` at a time in processes of their own; shows progress;
    returns finished runs.

    Args:
        on_poll: called every few seconds, for instance to draw live curves.

    Raises:
        RunError: a run failed; the message ends with its last lines. Other runs in progress are
            brought to their end.
    """
    waiting = [key for key in plan.runs if not plan.open(*key).finished]
    total, before = (
        sum(plan.runs[key].steps for key in waiting),
        sum(_steps_done(plan, key) for key in waiting),
    )
    active: dict[tuple[str, int], subprocess.Popen] = {}
    failed: list[tuple[str, int]] = []
    look = {
        "unit": "step",
        "desc": f"{len(waiting)} runs",
        "file": sys.stdout,
        "mininterval": 10,
        "ncols": 90,
    }
    with tqdm(total=total, initial=before, **look) as bar:
        try:
            queue = list(waiting)
            while (queue and not failed) or active:
                while queue and not failed and len(active) < plan.session.jobs:
                    key = queue.pop(0)
                    active[key] = _spawn(plan, *key)
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
        raise RunError(f"run {run.run_id} failed; its log ends:\n{_tail(run.folder / 'log.txt')}")
    return plan.all()


def run_arguments(plan: Plan, variant: str, seed: int) -> list[str]:
    """One run of a plan as arguments of the command `spnb`, every parameter spelt out."""
    params = plan.params(variant, seed).model_dump(
        mode="json", exclude={"paper", "scale", "variant", "seed"}
    )
    params["figures"] = plan.session.figures
    arguments = [
        "run",
        plan.paper,
        "--scale",
        plan.scale,
        "--variant",
        variant,
        "--seed",
        str(seed),
    ]
    arguments += ["--runs", plan.session.runs]
    return arguments + [
        part for key, value in params.items() for part in ("--set", f"{key}={json.dumps(value)}")
    ]


def _spawn(plan: Plan, variant: str, seed: int) -> subprocess.Popen:
    """Starts one run as a process, its output in the run's log.txt."""
    command = [sys.executable, "-m", "spnb.cli", *run_arguments(plan, variant, seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with open(plan.open(variant, seed).folder / "log.txt", "a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT
        )


def _steps_done(plan: Plan, key: tuple[str, int]) -> int:
    path = plan.open(*key).folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def gather(runs: Sequence[Run], name: str) -> Any:
    """The rows of `<name>.jsonl` of several runs as one data frame."""
    import pandas as pd

    return pd.concat([run.table(name) for run in runs], ignore_index=True)


def deviations(plan: Plan) -> Any:
    """Where the plan's scale differs from the paper's settings: parameter, value here, value at
    paper scale."""
    import pandas as pd

    here = plan.params(plan.variants[0])
    theirs = make_plan(
        plan.paper, "paper", variants=[plan.variants[0]], figures=plan.session.figures
    )
    paper = theirs.params(plan.variants[0])
    changed = [
        {"parameter": name, "here": getattr(here, name), "paper": getattr(paper, name)}
        for name in type(here).model_fields
        if name not in ("scale", "seed") and getattr(here, name) != getattr(paper, name)
    ]
    return pd.DataFrame(changed, columns=["parameter", "here", "paper"]).set_index("parameter")
