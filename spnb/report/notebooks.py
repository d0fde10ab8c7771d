"""Executes the notebooks with papermill: one exhibit, one paper, or everything that exists, with
measured times.

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

from spnb.core.params import ParamError, papers, scale_values, unknown
from spnb.core.params import variants as all_variants
from spnb.core.paths import ROOT, resolve
from spnb.report.exhibits import exhibit_info, read_index
from spnb.train.plan import Plan, make_plan
from spnb.train.runs import write_json

TIMINGS = Path("figures/timings.json")
SHARED = (Path("notebooks/12_training_dynamics.ipynb"),)
"""Notebooks that read the papers' finished runs and have none of their own."""


def notebook_of(paper: str) -> Path:
    """The notebook of a paper: notebooks/NN_<paper>.ipynb.

    Raises:
        ParamError: unknown paper, or one without a notebook yet.
    """
    found = sorted((ROOT / "notebooks").glob(f"[0-9][0-9]_{paper}.ipynb"))
    if paper not in papers() or not found:
        raise ParamError(unknown("paper", paper, with_notebook()))
    return found[0]


def with_notebook() -> list[str]:
    """The papers that have parameters and a notebook."""
    return [
        paper for paper in papers() if list((ROOT / "notebooks").glob(f"[0-9][0-9]_{paper}.ipynb"))
    ]


def describe(plan: Plan, minutes: dict[str, Any]) -> pd.DataFrame:
    """What a plan will do: a row a run, with its state and the minutes it took when last
    measured."""
    rows = []
    for (variant, seed), params in plan.runs.items():
        run = plan.open(variant, seed)
        state = "finished" if run.finished else "to do"
        took = minutes.get(plan.paper, {}).get(plan.scale, {}).get(variant)
        rows.append(
            {
                "run": run.run_id,
                "steps": params.steps,
                "state": state,
                "minutes when last measured": took,
            }
        )
    return pd.DataFrame(rows)


def execute(paper: str, scale: str, **values: Any) -> Path:
    """Executes a paper's notebook at a scale; returns the executed copy.

    Runs that are finished are not computed again. What the notebook prints is shown while it runs.

    Raises:
        ParamError: bad parameters, before the notebook starts.
        papermill.PapermillExecutionError: a cell failed; the executed copy shows where.
    """
    source = notebook_of(paper)
    plan = make_plan(paper, scale, **values)
    to_do = [run for run in plan.all() if not run.finished]
    started = time.perf_counter()
    target = run_notebook(source, scale, **values)
    note_times(plan, None if to_do else time.perf_counter() - started)
    return target


def run_shared(path: Path, scale: str, **values: Any) -> Path:
    """Executes a shared notebook; its exhibits go where the papers' parameter files of that scale
    send theirs."""
    folder = scale_values(papers()[0], scale).get("figures", "figures")
    return run_notebook(ROOT / path, scale, figures=folder, **values)


def run_notebook(source: Path, scale: str, **values: Any) -> Path:
    """Executes a notebook, of a paper or shared, with parameters; returns the executed copy."""
    target = resolve("runs/notebooks") / f"{source.stem}-{scale}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    papermill.execute_notebook(
        str(source),
        str(target),
        parameters={"scale": scale, **values},
        cwd=str(source.parent),
        progress_bar=False,
        log_output=True,
        stdout_file=sys.stdout,
        stderr_file=sys.stderr,
    )
    return target


def timings() -> dict[str, Any]:
    """Measured minutes: paper, scale, then each variant's run and "rest" (the notebook when all
    runs are finished)."""
    path = resolve(TIMINGS)
    return json.loads(path.read_text()) if path.exists() else {}


def note_times(plan: Plan, rest: float | None) -> None:
    """Keeps the minutes of a plan's runs (the longest seed), and those of the notebook without
    them, given in seconds.

    Smoke runs and runs that were resumed say nothing about a whole run, and are not noted.
    """
    if plan.scale == "smoke":
        return
    known = timings()
    entry = known.setdefault(plan.paper, {}).setdefault(plan.scale, {})
    for variant in plan.variants:
        facts = [run.facts() for run in plan.all() if run.variant == variant]
        minutes = [round(fact["seconds"] / 60, 1) for fact in facts if not fact["resumed"]]
        if minutes:
            entry[variant] = max(minutes)
    if rest is not None:
        entry["rest"] = round(rest / 60, 1)
    entry["cores"] = os.cpu_count()
    write_json(resolve(TIMINGS), known)


def estimate(plan: Plan, minutes: dict[str, Any]) -> str:
    """One sentence on how long a plan will take, from measured times, runs side by side as the plan
    does them."""
    known = minutes.get(plan.paper, {}).get(plan.scale, {})
    to_do = [run.variant for run in plan.all() if not run.finished]
    if not {*to_do, "rest"} <= set(known):
        return "Not measured yet on any machine."
    of_runs = sum(known[variant] for variant in to_do) / plan.session.jobs
    return (
        f"About {of_runs + known['rest']:.0f} minutes on {known['cores']} cores when last measured: {of_runs:.0f} for "
        f"{len(to_do)} runs, {plan.session.jobs} at a time, and {known['rest']:.0f} for the rest."
    )


def reproduce(
    paper: str | None, scale: str, variants: Sequence[str] | None, seeds: Sequence[int] | None
) -> list[Path]:
    """Executes one paper's notebook, or every one there is; says first what it will do and how long
    it took before.

    `variants` ["all"] stands for every variant of a paper.
    """
    chosen, known = [paper] if paper else with_notebook(), timings()
    common: dict[str, Any] = {"seeds": list(seeds)} if seeds else {}
    every = list(variants or []) == ["all"]
    if variants and not every:
        common["variants"] = list(variants)
    values = {
        name: common | ({"variants": list(all_variants(name))} if every else {}) for name in chosen
    }
    for name in chosen:
        plan = make_plan(name, scale, **values[name])
        print(f"\n{notebook_of(name).name} at scale {scale}:")
        print(describe(plan, known).to_string(index=False, na_rep="not measured"))
        print(estimate(plan, known), flush=True)
    executed = [execute(name, scale, **values[name]) for name in chosen]
    return executed + [run_shared(shared, scale, **common) for shared in SHARED]


def regenerate(exhibit_id: str, scale: str) -> Path:
    """Regenerates one exhibit by executing its paper's notebook; finished runs are reused.

    The notebook writes the paper's other exhibits too, so that all that is in the gallery at this
    scale is made again with all its variants and seeds; where nothing is there yet, with the
    headline runs.

    Raises:
        ValueError: no such exhibit, its paper has no notebook yet, or the notebook does not make it
            yet.
    """
    paper = exhibit_info(exhibit_id).paper
    shared = [path for path in SHARED if f'\\"{exhibit_id}\\"' in (ROOT / path).read_text()]
    if shared:
        return run_shared(shared[0], scale)
    source = notebook_of(paper)
    if f'\\"{exhibit_id}\\"' not in source.read_text():
        raise ValueError(f"exhibit is {exhibit_id!r}, which {source.name} does not make yet")
    records = [
        r for r in read_index(make_plan(paper, scale).figures) if r["id"].split("/")[0] == paper
    ]
    there = [record for record in records if record["scale"] == scale]
    same = {
        key: list(dict.fromkeys(value for r in there for value in r[key]))
        for key in ("variants", "seeds")
    }
    return execute(paper, scale, **(same if there else {}))
