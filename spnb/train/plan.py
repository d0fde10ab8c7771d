"""What a notebook or a command executes: a paper's variants and seeds, validated before anything.

`make_plan` merges the scale's parameter file, each variant and the caller's values; nothing in it
imports torch. `run_one` trains one run in this process, `run_all` every run of a plan in processes
of their own. A run that starts from another one waits for it. Finished runs are kept, unfinished
ones go on where they were.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Any

from pydantic import Field

from spnb.core.errors import Stopped, signals_stop
from spnb.core.method import POLICY
from spnb.core.params import (
    ParamError,
    Settings,
    require,
    scale_values,
    unknown,
    validate,
    variants,
    variants_at,
)
from spnb.core.paths import ROOT, resolve
from spnb.methods import method_module
from spnb.train import config
from spnb.train.checks import check_gpu, check_needs, check_processes, check_work
from spnb.train.config import RunParams, changed_values, flat, merge, params_class, variant_layers
from spnb.train.doctor import visible_cards
from spnb.train.policies import inputs, policy_path, set_aside
from spnb.train.progress import Progress
from spnb.train.provenance import exhibit_folder, unclean
from spnb.train.runs import SHOWN, Run, RunError, config_hash, open_run
from spnb.train.server import have_ended, last_lines, start_together, stop

Key = tuple[str, int]
"""A run of a plan: its variant and seed."""
FORKED = frozenset(["smoke", "cpu"])
"""Scales whose runs need no GPU and see none: no fork survives CUDA."""
POLL = 0.5
"""Seconds between two looks at the runs in progress."""


class Session(Settings):
    """What a plan adds to the parameters of its runs; `seeds` are those of most variants."""

    variants: list[str] = Field(min_length=1)
    seeds: list[int] = Field([0], min_length=1)
    jobs: int = Field(2, ge=1, description="runs at a time")
    processes: int = Field(1, ge=1, description="that train a run together, each on a GPU or core")
    runs: str = Field("runs", description="folder for runs")
    figures: str | None = Field(None, description="folder for exhibits")
    most_tokens: float | None = Field(
        None, gt=0, description="that a run may write; default: by scale"
    )


_SESSION = frozenset(Session.model_fields)
_NO_NUMBERS = (_SESSION - {"seeds", "processes"}) | {*SHOWN}
"""What a caller may set without another number coming out."""

TEACHING = ("advantage_mean/", "advantage_std/", "preference/")
"""How the metrics begin that are all 0, or not there, where no row teaches anything."""


@dataclass(frozen=True)
class Plan:
    """A paper's runs to execute: every variant with its seeds, and the runs these start from.

    `changed` names what the caller set other than the parameter file has it, `left_out` the
    default variants that the caller's corpus does not allow.
    """

    paper: str
    scale: str
    session: Session
    runs: dict[Key, RunParams] = field(repr=False)
    changed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    known: dict[Key, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def figures(self) -> Path:
        """Where exhibits go: the folder that was named, figures/ if allowed, else runs/figures.

        Raises:
            ParamError: figures/ was named, and this plan may not write there.
        """
        return exhibit_folder(self.session.figures, self.why_not_committed())

    def why_not_committed(self) -> str:
        """Why this plan may not write the committed exhibits in figures/, "" if it may."""
        if self.scale != "cpu":
            return f"Exhibits in figures/ are of scale cpu, this plan is of scale {self.scale}."
        if self.changed:
            names = ", ".join(self.changed)
            file = f"params/{self.paper}/{self.scale}.yaml"
            return f"This plan has its own {names}, and figures/ is made with those of {file}."
        return unclean()

    def destination(self) -> str:
        """Where exhibits go, and why not to figures/ if they do not, in a sentence or two."""
        folder = self.figures
        shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
        gone = ", ".join(self.left_out)
        without = f"Without {gone}, which a corpus of one's own does not allow." if gone else ""
        parts = [f"Exhibits go to {shown}.", self.why_not_committed(), without]
        return " ".join(part for part in parts if part)

    def seeds_of(self, variant: str) -> list[int]:
        """The seeds of one variant."""
        return [seed for name, seed in self.runs if name == variant]

    @property
    def variants(self) -> list[str]:
        """The plan's variants."""
        return list(dict.fromkeys(variant for variant, _ in self.runs))

    def params(self, variant: str, seed: int | None = None) -> RunParams:
        """The resolved parameters of one run; without a seed, of the variant's first. ParamError
        for a variant or seed that the plan has not."""
        require("variant of this plan", variant, self.variants)
        seeds = self.seeds_of(variant)
        seed = seeds[0] if seed is None else seed
        if seed not in seeds:
            raise ParamError(f"seed is {seed!r}; allowed: {', '.join(map(str, seeds))}")
        return self.runs[variant, seed]

    def identity(self, variant: str, seed: int) -> dict[str, Any]:
        """Everything that decides a run's numbers: parameters, weights, data, its start's runs, as
        they were when this was first asked for."""
        if (variant, seed) not in self.known:
            params = self.params(variant, seed)
            starts = {
                policy: {"variant": other, "hash": config_hash(self.identity(other, seed))}
                for policy, other in params.start_from.items()
            }
            identity = params.model_dump(mode="json") | inputs(params) | {"starts": starts}
            self.known[variant, seed] = identity
        return self.known[variant, seed]

    def open(self, variant: str, seed: int | None = None, make: bool = True) -> Run:
        """The run's folder, made if need be (and if `make`)."""
        seed = self.params(variant, seed).seed
        return open_run(resolve(self.session.runs), self.identity(variant, seed), make)

    def check_needs(self, keys: Iterable[Key]) -> None:
        """Looks for what those of some runs that are not finished need, before they have folders;
        raises what `spnb.train.checks.check_needs` does."""
        for key in keys:
            if not self.open(*key, make=False).finished:
                check_needs(self.runs[key])

    def all(self) -> list[Run]:
        """Every run of the plan, in order; no folder is made."""
        return [self.open(*key, make=False) for key in self.runs]

    def needs(self, key: Key) -> list[Key]:
        """The runs that a run starts from."""
        return [(other, key[1]) for other in self.runs[key].start_from.values()]


def make_plan(
    paper: str, scale: str = "cpu", exact: Mapping[str, Any] | None = None, **values: Any
) -> Plan:
    """A plan from the scale's parameter file, `values` and `exact`.

    What stands in `values` wins over a variant, a variant over the file. A value of None there, or
    one that equals the file's (key by key, also inside of `grpo`, `roles` and `policies`), counts
    as not given: a plan made with all that the file says equals one made without.

    Args:
        exact: parameters of a run that win over a variant even where they equal the file's.
        values: `variants` (default: the headline ones), `seeds` (default: the variant's own at this
            scale, else the file's), `jobs`, `runs`, `figures`, and any parameter of a run.

    Raises:
        ParamError: anything unknown, of the wrong type or not allowed, before anything is computed.
        PolicyError: a policy of a run is not there.
    """
    for key in ("paper", "variant", "seed"):
        if key in values:
            raise ParamError(
                f"{key} is {values[key]!r}, which cannot be set here; use variants, seeds"
            )
    file = scale_values(paper, scale)
    values = {key: value for key, value in values.items() if value is not None}
    given = merge(changed_values(values, {"processes": 1, **file}), exact or {})
    known = variants(paper)
    own = {key: value for key, value in (file | given).items() if key in _SESSION}
    there = [name for name, entry in known.items() if scale in entry.get("scales", [scale])]
    own.setdefault("variants", [name for name in there if known[name].get("headline")])
    left_out = []
    if "corpus" in given and "variants" not in given:
        left_out = [name for name in own["variants"] if _why_not(paper, scale, name, given)]
        own["variants"] = [name for name in own["variants"] if name not in left_out]
    session = validate(Session, own)
    keys: list[Key] = []
    for variant in session.variants:
        require("variant", variant, known)
        if variant not in there:
            scales = " or ".join(known[variant]["scales"])
            raise ParamError(f"variant is {variant!r} at scale {scale}; allowed: scale {scales}")
        seeds = own.get("seeds") if "seeds" in given else known[variant].get("seeds", {}).get(scale)
        one = validate(Session, own | ({} if seeds is None else {"seeds": seeds}))
        keys += [(variant, seed) for seed in one.seeds]
    runs = _resolve(paper, scale, keys, file, given)
    for params in runs.values():
        check_work(params, session.most_tokens)
    for source in {source for params in runs.values() for source in params.loaded.values()}:
        policy_path(source)
    changed = [name for name in flat(given) if name not in _NO_NUMBERS]
    plan = Plan(paper, scale, session, runs, tuple(changed), tuple(left_out))
    exhibit_folder(session.figures, plan.why_not_committed())  # refused now, not after training
    return plan


def _resolve(
    paper: str, scale: str, keys: list[Key], file: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[Key, RunParams]:
    """The parameters of runs, and of those that they start from: these first."""
    known = variants(paper)
    model = params_class(method_module(paper).Method)
    allowed = (_SESSION | set(model.model_fields)) - {"paper", "scale", "variant", "seed"}
    near = allowed | {f"grpo.{name}" for name in config.GRPOParams.model_fields}
    if wrong := [unknown("parameter", key, near) for key in given if key not in allowed]:
        raise ParamError("\n".join(wrong))
    first, last = ({k: v for k, v in layer.items() if k not in _SESSION} for layer in (file, given))
    runs: dict[Key, RunParams] = {}

    def add(variant: str, seed: int, path: tuple[str, ...] = ()) -> None:
        require("start_from", variant, known)
        if variant in path:
            raise ParamError(f"start_from makes a circle: {' -> '.join((*path, variant))}")
        identity = {"paper": paper, "scale": scale, "variant": variant, "seed": seed}
        layers, where = variant_layers(known[variant], scale), f"params/{paper}/variants.yaml"
        if own := sorted(identity.keys() & layers):
            shown = f"{own[0]} is {layers[own[0]]!r} in variant {variant} of {where}"
            raise ParamError(f"{shown}; allowed: other parameters of a run")
        changes = merge(first, layers, last, identity)
        if "corpus" in last:
            changes = _own_start(paper, scale, changes, last)
            if why := _why_not(paper, scale, variant, last):
                raise ParamError(f"variant is {variant!r} with corpus {last['corpus']!r}; {why}")
        try:
            params = validate(model, changes)
        except ParamError as error:
            with suppress(ParamError):  # without the variant it would be a fault as well
                validate(model, merge(first, last, identity))
                error = ParamError(f"{error} (variant {variant} of {where})")
            raise error from None
        for other in params.start_from.values():
            add(other, seed, (*path, variant))
        runs.setdefault((variant, seed), params)

    for key in keys:
        add(*key)
    return runs


ORACLES = {"question_source": "static", "judge": "oracle", "writer": "oracle"}
ORACLES |= {"questions": "even", "verify": "oracle"}
"""Parameters whose value here needs an oracle."""


def _why_not(paper: str, scale: str, variant: str, given: Mapping[str, Any]) -> str:
    """What keeps a variant from the caller's corpus, "" if nothing does."""
    layers = variant_layers(variants(paper).get(variant, {}), scale)
    values = merge(scale_values(paper, scale), layers, given)
    if not values.get("corpus"):
        return ""
    for name, value in ORACLES.items():
        if values.get(name) == value:
            return f"allowed: variants without {name} {value}, the oracle knows no corpus"
    if "corpus" in layers:
        return "allowed: variants that have no corpus of their own"
    return ""


def _own_start(
    paper: str, scale: str, values: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """A run's values with the policy itself for each that would start from such a variant."""
    starts = values.get("start_from", {})
    starts = {POLICY: starts} if isinstance(starts, str) else starts
    own = [name for name, of in starts.items() if _why_not(paper, scale, of, given)]
    left = {name: of for name, of in starts.items() if name not in own}
    beside = {name: values.get("policy") for name in own if name != POLICY}
    policies = values.get("policies", {}) | beside
    return {**values, "start_from": left, "policies": policies} if own else dict(values)


def run_one(plan: Plan, variant: str, seed: int) -> Run:
    """Trains and evaluates one run in this process, after the runs that it starts from.

    Raises:
        RunError: the folder is damaged.
        TrainerError: training cannot go on; what is computed stays.
    """
    from spnb.train.run import train_run

    if plan.session.processes > 1 and "WORLD_SIZE" not in os.environ:
        allowed = "1, run_all, or a launch of so many processes"
        raise ParamError(f"processes is {plan.session.processes} in this one; allowed: {allowed}")
    plan.check_needs([(variant, seed)])
    for key in plan.needs((variant, seed)):
        run_one(plan, *key)
    return train_run(plan.open(variant, seed))


@signals_stop()
def run_all(plan: Plan, on_poll: Callable[[Plan], None] | None = None) -> list[Run]:
    """Every run of a plan, `jobs` at a time in processes of their own; returns finished runs.

    With GPUs each process has one of its own: there are as many runs at a time as they allow.

    Args:
        on_poll: called at least every half second, for instance to draw live curves.

    Raises:
        ParamError: runs need a GPU, and torch can use none.
        RunError: a run failed, with its last lines; others in progress are brought to their end.
        Stopped: a person interrupted it, or a signal; the processes are stopped.
    """
    plan.check_needs(plan.runs)
    waiting = [key for key in plan.runs if not plan.open(*key, make=False).finished]
    queue = list(waiting)
    active: dict[Key, list[BaseProcess]] = {}
    failed: dict[Key, list[int | None]] = {}
    if not waiting:
        print(f"{len(plan.runs)} of {len(plan.runs)} runs are finished already")
        if on_poll is not None:
            on_poll(plan)
        return _checked(plan)
    check_gpu([plan.runs[key] for key in waiting])
    forked = {params.scale for params in plan.runs.values()} <= FORKED
    cards = [] if forked else visible_cards()
    set_aside()
    count = plan.session.processes
    check_processes(count, cards, plan.runs.values())
    jobs = min(plan.session.jobs, len(cards) // count or plan.session.jobs)
    held: dict[Key, list[str]] = {}
    progress = Progress([plan.open(*key) for key in waiting])
    try:
        while (queue and not failed) or active:
            free = 0 if failed else jobs - len(active)
            for key in _ready(plan, queue)[:free]:
                queue.remove(key)
                if count == 1 and (busy := plan.open(*key).busy()):
                    print("waiting:", busy, flush=True)
                taken = [card for one in active for card in held[one]]
                held[key] = [card for card in cards if card not in taken][:count]
                card = "" if forked else ",".join(held[key]) or None
                active[key] = start_together(plan.open(*key).folder, forked, card, count)
            wait([one.sentinel for each in active.values() for one in each if one.is_alive()], POLL)
            for key in [key for key, group in active.items() if have_ended(group)]:
                if any(codes := [process.exitcode for process in active.pop(key)]):
                    failed[key] = codes
            progress.show([plan.open(*key) for key in active])
            if on_poll is not None:
                on_poll(plan)
    except KeyboardInterrupt:
        raise Stopped from None
    finally:  # their runs can be started again once they are gone
        stop([process for group in active.values() for process in group])
        progress.bar.close()
    if failed:
        key, codes = next(iter(failed.items()))
        raise _failure(plan.open(*key), codes)
    return _checked(plan, waiting)


def _failure(run: Run, codes: Sequence[int | None]) -> RunError:
    """A run's end by the exit codes of its processes; SIGTERM is ours, for the others."""
    how = "failed"
    if killed := [code for code in codes if code and code < 0 and code != -SIGTERM]:
        name = Signals(-killed[0]).name
        how = f"was killed by {name} (memory? start again: it goes on from its checkpoint)"
    log = last_lines(run.folder, len(codes))
    return RunError(f"run {run.run_id} {how}; its log ends:\n" + "\n".join(log))


def _ready(plan: Plan, queue: list[Key]) -> list[Key]:
    """The waiting runs whose starting points are finished."""
    return [key for key in queue if all(plan.open(*need).finished for need in plan.needs(key))]


def _checked(plan: Plan, trained: Iterable[Key] = ()) -> list[Run]:
    """The finished runs of a plan; it is said which had another number of processes than the plan,
    and of those just `trained` where nothing could teach."""
    runs = plan.all()
    for run in runs:
        run.check_finished()
        if (count := run.facts().get("processes", 1)) != plan.session.processes:
            print(f"{run.run_id} was trained by {count} processes, not {plan.session.processes}")
    for run in (plan.open(*key) for key in trained):
        told = [item for row in run.rows("metrics") for item in row.items()]
        if told and not any(value for key, value in told if key.startswith(TEACHING)):
            found = f"no answer had an advantage, nothing was learned; {run.folder}/rollouts.jsonl"
            print(f"{run.run_id}: {found} has a sample of answers with their rewards")
    return runs


def deviations(plan: Plan, variant: str = "") -> dict[str, tuple[Any, Any]]:
    """Where the plan's scale differs from the paper's settings: parameter to (here, paper).

    Of its first variant, or of the named one; where that has no settings at the paper's scale, they
    are those of the first variant that has. Of benchmarks the names, where these differ.
    """
    variant = variant or plan.variants[0]
    there = variant if variant in variants_at(plan.paper, "paper") else None
    at_paper = make_plan(plan.paper, "paper", variants=[there] if there else None)
    both = plan.params(variant), at_paper.params(there or at_paper.variants[0])
    here, paper = (flat(each.model_dump(mode="json", exclude_none=True)) for each in both)
    names = [name for name in here | paper if name not in ("scale", "seed", "variant")]
    pairs = {name: (here.get(name), paper.get(name)) for name in names}
    named = tuple(sorted(each or ()) for each in pairs["benchmarks"])
    if named[0] != named[1]:
        pairs["benchmarks"] = named
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
