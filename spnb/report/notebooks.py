"""Executes the notebooks with papermill: one exhibit, one paper, or everything that exists.

Executed copies go to `runs/notebooks/`; the notebooks themselves are never written to. How long
each part took is kept in `figures/timings.json`, so that the next person is told before it starts.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import papermill

from spnb.core import params
from spnb.core.params import ParamError, unknown
from spnb.core.paths import ROOT, resolve
from spnb.report.exhibits import check_writable, exhibit_info, read_index
from spnb.train.checkpoints import write_json
from spnb.train.plan import Plan, make_plan

TIMINGS = Path("figures/timings.json")
SHARED = ("dynamics",)
"""Notebooks that read the papers' finished runs and have none of their own."""


def notebook_of(paper: str) -> Path:
    """The notebook of a paper, a study or a shared analysis; ParamError if it has none yet."""
    matches = sorted((ROOT / "notebooks").glob(f"[0-9][0-9]_*{paper}*.ipynb"))
    if not matches or paper not in [*params.papers(), *SHARED, "embedded"]:
        raise ParamError(unknown("paper", paper, with_notebook()))
    return matches[0]


def with_notebook() -> list[str]:
    """The papers that have parameters and a notebook."""
    folder = ROOT / "notebooks"
    return [name for name in params.papers() if list(folder.glob(f"[0-9][0-9]_{name}.ipynb"))]


def describe(plan: Plan) -> pd.DataFrame:
    """What a plan will do: a row a run, its state, the minutes it took when last measured."""
    minutes = timings().get(plan.paper, {}).get(plan.scale, {})
    columns = ["run", "steps", "state", "minutes when last measured"]
    rows = []
    for run in plan.all():
        state = "finished" if run.finished else "to do"
        rows.append((run.run_id, run.params["steps"], state, minutes.get(run.variant)))
    return pd.DataFrame(rows, columns=columns)


def about(plan: Plan) -> pd.DataFrame:
    """The plan's variants, each in a sentence."""
    known = params.variants(plan.paper)
    return pd.DataFrame({"about": {name: known[name]["about"] for name in plan.variants}})


def estimate(plan: Plan) -> str:
    """One sentence on how long a plan will take, from measured times."""
    minutes = timings().get(plan.paper, {}).get(plan.scale, {})
    to_do = [run.variant for run in plan.all() if not run.finished]
    if not {*to_do, "rest"} <= set(minutes):
        return "Not measured yet on any machine."
    total = sum(minutes[variant] for variant in to_do) / plan.session.jobs + minutes["rest"]
    cores = minutes["cores"]
    return f"About {total:.0f} minutes on {cores} cores for {len(to_do)} runs and the rest."


def timings() -> dict[str, Any]:
    """Measured minutes: paper, scale, then each variant's run, and the rest of the notebook."""
    path = resolve(TIMINGS)
    return json.loads(path.read_text()) if path.exists() else {}


def execute(paper: str, scale: str, **values: Any) -> Path:
    """Executes a notebook at a scale; returns the executed copy and notes how long things took.

    ParamError or ExhibitError (bad parameters or figures) before it starts;
    papermill.PapermillExecutionError where a cell failed.
    """
    source = notebook_of(paper)
    target = resolve("runs/notebooks") / f"{source.stem}-{scale}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    plan = make_plan(paper, scale, **values) if paper in params.papers() else None
    if plan is not None:
        check_writable(plan.figures)
    trained = plan is not None and any(not run.finished for run in plan.all())
    if paper in SHARED:  # its exhibits go where those of the papers go
        figures = params.scale_values(params.papers()[0], scale).get("figures", "figures")
        values = {"figures": figures, **values}
    started = time.perf_counter()
    told = {"log_output": True, "stdout_file": sys.stdout, "stderr_file": sys.stderr}
    papermill.execute_notebook(
        str(source),
        str(target),
        parameters={"scale": scale, **values},
        cwd=str(source.parent),
        progress_bar=False,
        **told,
    )
    if plan is not None and scale != "smoke":
        note_times(plan, None if trained else time.perf_counter() - started)
    return target


def note_times(plan: Plan, rest: float | None) -> None:
    """Keeps the minutes of a plan's runs (the longest seed) and of the rest, given in seconds."""
    known = timings()
    entry = known.setdefault(plan.paper, {}).setdefault(plan.scale, {})
    for variant in plan.variants:
        facts = [run.facts() for run in plan.all() if run.variant == variant]
        whole = [fact["seconds"] / 60 for fact in facts if not fact["resumed"]]
        entry |= {variant: round(max(whole), 1)} if whole else {}
    entry |= {"cores": os.cpu_count()} | ({} if rest is None else {"rest": round(rest / 60, 1)})
    write_json(resolve(TIMINGS), known)


def reproduce(
    paper: str | None, scale: str, variants: Sequence[str] | None, seeds: Sequence[int] | None
) -> list[Path]:
    """Executes one paper's notebook or all, the shared analyses last; says first how long.

    `variants` ["all"] stands for every variant of a paper.
    """
    common: dict[str, Any] = {"seeds": list(seeds)} if seeds else {}
    every = list(variants or []) == ["all"]
    values: dict[str, dict[str, Any]] = {}
    for name in [paper] if paper else with_notebook():
        names = list(params.variants(name)) if every else list(variants or [])
        values[name] = common | ({"variants": names} if names else {})
        plan = make_plan(name, scale, **values[name])
        print(f"\n{notebook_of(name).name} at scale {scale}:")
        print(describe(plan).to_string(index=False, na_rep="not measured"))
        print(estimate(plan), flush=True)
    shared = common | ({} if every or not variants else {"variants": list(variants)})
    values |= dict.fromkeys(SHARED, shared)
    return [execute(name, scale, **own) for name, own in values.items()]


def regenerate(exhibit_id: str, scale: str) -> Path:
    """Regenerates one exhibit by executing its paper's notebook; finished runs are reused.

    All variants and seeds that the paper's exhibits in the gallery have at this scale are taken,
    the headline runs where there are none. ValueError for an unknown exhibit, ParamError where its
    paper has no notebook yet.
    """
    paper = exhibit_info(exhibit_id).paper
    notebook_of(paper)
    there: list[dict[str, Any]] = []
    if paper in params.papers():
        records = read_index(make_plan(paper, scale).figures)
        there = [r for r in records if r["id"].startswith(f"{paper}/") and r["scale"] == scale]
    same = {
        key: list(dict.fromkeys(v for r in there for v in r[key])) for key in ("variants", "seeds")
    }
    return execute(paper, scale, **(same if there else {}))
