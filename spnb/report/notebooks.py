"""Executes the notebooks with papermill: one paper, or everything that exists.

Runs are trained first, in this terminal; the notebook then finds them finished. Executed copies go
to `runs/notebooks/`; the notebooks themselves are never written to. How long each part took is kept
in `timings.json` (in `figures/` of the committed settings, in `runs/figures/` of others), so that
the next person is told before it starts.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from spnb.core import params
from spnb.core.disk import write_json
from spnb.core.errors import signals_stop
from spnb.core.params import ParamError, unknown
from spnb.core.paths import ROOT, resolve
from spnb.report.exhibits import check_writable, default_folder, folder_of, ranges
from spnb.train.find import find_runs
from spnb.train.plan import Plan, make_plan, run_all
from spnb.train.provenance import COMMITTED, TRIALS

TIMINGS = "timings.json"
SHARED = ("dynamics", "pass_at_k")
"""Notebooks that read the papers' finished runs and have none of their own."""
FORMULAS = ("shapes",)
"""Notebooks that need no run."""
OTHERS = ("embedded", "gpu")
"""Notebooks that are executed by their name alone."""
QUIET = ["--IPKernelApp.no_stderr=True", "--IPKernelApp.log_level=40"]
"""For the kernel: no warnings of its own, no tracebacks when it is stopped."""


def notebook_of(paper: str) -> Path:
    """The notebook of a paper, a study or a shared analysis; ParamError if it has none yet."""
    matches = sorted((ROOT / "notebooks").glob(f"[0-9][0-9]_*{paper}*.ipynb"))
    if not matches or paper not in [*params.papers(), *SHARED, *FORMULAS, *OTHERS]:
        raise ParamError(unknown("paper", paper, with_notebook()))
    return matches[0]


def with_notebook() -> list[str]:
    """The papers that have parameters and a notebook."""
    folder = ROOT / "notebooks"
    return [name for name in params.papers() if list(folder.glob(f"[0-9][0-9]_{name}.ipynb"))]


def describe(plan: Plan) -> pd.DataFrame:
    """What a plan will do: a row a variant, how far it is, about how many minutes a run takes."""
    minutes = minutes_of(plan)
    rows: dict[str, dict[str, Any]] = {}
    for variant in plan.variants:
        runs = [run for run in plan.all() if run.variant == variant]
        rows[variant] = {
            "seeds": ranges([run.seed for run in runs]),
            "steps": runs[0].params["steps"],
            "finished": f"{sum(run.finished for run in runs)} of {len(runs)}",
            "minutes a run": minutes.get(variant, "not measured"),
        }
    return _headline_first(plan, rows).reset_index()


def minutes_of(plan: Plan) -> dict[str, float]:
    """Minutes of a run of each variant, when last measured at this scale, and of the "rest" of the
    notebook; a variant that nobody measured has the median of the others. Empty: none was."""
    measured = of_today(plan.paper, timings().get(plan.paper, {}).get(plan.scale, {}))
    known = [value for name, value in measured.items() if name not in ("rest", "cores")]
    typical = dict.fromkeys(plan.variants, round(median(known), 1)) if known else {}
    return typical | measured


def announce(plan: Plan, rest: bool = True) -> str:
    """`describe` and `estimate` as text."""
    return f"{describe(plan).to_string(index=False)}\n{estimate(plan, rest)}"


def about(plan: Plan) -> pd.DataFrame:
    """The plan's variants, each in a sentence."""
    known = params.variants(plan.paper)
    return _headline_first(plan, {n: {"about": known[n].get("about", "")} for n in plan.variants})


def _headline_first(plan: Plan, rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """A row a variant; a notebook folds those that are no headline ones, where there are others."""
    known = params.variants(plan.paper)
    order = sorted(rows, key=lambda name: not known[name].get("headline"))
    table = pd.DataFrame.from_dict({name: rows[name] for name in order}, orient="index")
    headline = {name: bool(known[name].get("headline")) for name in order}
    table.attrs["first"] = headline if any(headline.values()) else {}
    return table.rename_axis("variant")


def estimate(plan: Plan, rest: bool = True) -> str:
    """One sentence on how long a plan will take, from measured times; `rest`: with its notebook."""
    minutes = minutes_of(plan)
    to_do = Counter(run.variant for run in plan.all() if not run.finished)
    if not to_do and not rest:
        return "Every run is finished: nothing is trained."
    if missing := [name for name in [*to_do, *["rest"] * rest] if name not in minutes]:
        names = ", ".join("the notebook" if name == "rest" else name for name in missing)
        return f"Not measured yet on any machine: {names}."
    spent = [minutes[name] for name in to_do.elements()]
    total = max(sum(spent) / plan.session.jobs, *spent, 0) + (minutes["rest"] if rest else 0)
    about = f"About {total:.0f} minutes" if total >= 1 else "Less than a minute"
    runs = ", ".join(f"{name} {count}" for name, count in to_do.items())
    several = "s" * (to_do.total() > 1)
    trained = [f"{to_do.total()} run{several} ({runs})"] if to_do else []
    parts = " and ".join([*trained, *["the notebook"] * rest])
    changed = [name for name in plan.changed if name != "seeds"]
    other = f", with other {', '.join(changed)}" if changed else ""
    on = f"on {minutes['cores']:.0f} cores for {parts}"
    return f"{about} {on}, as last measured at this scale{other}."


def timings() -> dict[str, Any]:
    """Measured minutes: paper, scale, then each variant's run, and the rest of the notebook; one's
    own win over the committed ones."""
    known: dict[str, Any] = {}
    for folder in (COMMITTED, TRIALS):
        for paper, scales in _read(resolve(folder) / TIMINGS).items():
            for scale, minutes in scales.items():
                known.setdefault(paper, {}).setdefault(scale, {}).update(minutes)
    return known


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def of_today(paper: str, measured: Mapping[str, float]) -> dict[str, float]:
    """Measured minutes without those of names that are no variant any more."""
    known = {*params.variants(paper), "rest", "cores"}
    return {name: value for name, value in measured.items() if name in known}


def execute(paper: str, scale: str, **values: Any) -> Path:
    """Trains what is not finished, executes a paper's notebook; returns the executed copy.

    Args:
        values: names of the notebook's parameters cell, or parameters of a run.

    Raises:
        ParamError, ExhibitError: bad parameters, or a folder that cannot be written, before it
            starts.
        RunError: a run failed.
        papermill.PapermillExecutionError: a cell failed.
    """
    import papermill

    source = notebook_of(paper)
    target = resolve("runs/notebooks") / f"{source.stem}-{scale}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    plan = make_plan(paper, scale, **values) if paper in params.papers() else None
    if plan is not None:
        check_writable(plan.figures)
        run_all(plan)
    names = list(papermill.inspect_notebook(str(source)))
    given = fit(names, {"scale": scale, **values})
    if plan is None and "figures" in names and "figures" not in given:
        folder = default_folder()
        if paper in SHARED:
            keep = {key: given.get(key) for key in ("variants", "seeds")}
            folder = folder_of(find_runs(scale=scale, **keep))
        given["figures"] = str(folder)
    started = time.perf_counter()
    papermill.execute_notebook(
        str(source), str(target), parameters=given, cwd=str(source.parent), extra_arguments=QUIET
    )
    if plan is not None:
        note_times(plan, time.perf_counter() - started)
    return target


def fit(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a parameters cell with those names takes them: others go inside `run`.

    Raises:
        ParamError: the cell has neither the name nor `run`.
    """
    own = {key: value for key, value in values.items() if key in names}
    others = {key: value for key, value in values.items() if key not in names}
    if others and "run" not in names:
        raise ParamError(unknown("parameter", next(iter(others)), names))
    return own | ({"run": {**own.get("run", {}), **others}} if others else {})


def note_times(plan: Plan, rest: float | None) -> None:
    """Keeps the minutes of a plan's finished runs (of the quickest seed: others may have shared the
    machine) and of the rest, given in seconds; those of variants that are gone are dropped. Runs
    with other parameters say nothing of a scale's."""
    if {*plan.changed} - {"seeds"}:
        return
    path = resolve(TRIALS if plan.why_not_committed() else COMMITTED) / TIMINGS
    known = _read(path)
    scales = known.setdefault(plan.paper, {})
    entry = scales[plan.scale] = of_today(plan.paper, scales.get(plan.scale, {}))
    finished = [run for run in plan.all() if run.finished]
    for variant in plan.variants:
        facts = [run.facts() for run in finished if run.variant == variant]
        whole = [fact["seconds"] / 60 for fact in facts if not fact["resumed"]]
        entry |= {variant: round(min(whole), 1)} if whole else {}
    entry |= {"cores": os.cpu_count()} | ({} if rest is None else {"rest": round(rest / 60, 1)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, known)


@signals_stop()
def reproduce(
    paper: str | None, scale: str, variants: Sequence[str] | None, seeds: Sequence[int] | None
) -> list[Path]:
    """Executes one paper's notebook or all, the shared analyses last; says first how long.

    Those that need no run are executed with all papers, not with one. `variants` ["all"] stands
    for every variant of a paper.
    """
    common: dict[str, Any] = {"seeds": list(seeds)} if seeds else {}
    every = list(variants or []) == ["all"]
    values: dict[str, dict[str, Any]] = {}
    for name in [paper] if paper else with_notebook():
        names = list(params.variants_at(name, scale)) if every else list(variants or [])
        values[name] = common | ({"variants": names} if names else {})
        plan = make_plan(name, scale, **values[name])
        print(f"\n{notebook_of(name).name} at scale {scale}:")
        print(announce(plan), flush=True)
    shared = common | ({} if every or not variants else {"variants": list(variants)})
    values |= dict.fromkeys(SHARED, shared)
    if not paper:
        own = {} if scale == "cpu" else {"figures": f"{TRIALS}/{scale}"}
        values |= dict.fromkeys(FORMULAS, own)
    return [execute(name, scale, **own) for name, own in values.items()]
