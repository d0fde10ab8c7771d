"""Runs on disk: the finished ones of some papers at a scale, or those in folders by name."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spnb.core import params
from spnb.core.params import SCALES, ParamError, unknown
from spnb.core.paths import resolve
from spnb.train.runs import Run, RunError, config_hash, read_run


def find_runs(
    runs: str = "runs",
    papers: Sequence[str] | None = None,
    scale: str = "cpu",
    variants: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    run_dirs: Sequence[str] | None = None,
) -> list[Run]:
    """The finished runs of some papers (None: of all that have any) at a scale, in their order.

    Of runs of one variant with different parameters, those with the parameters of the run finished
    last are taken.

    Args:
        runs: folder for runs.
        variants, seeds: those to keep; None keeps all.
        run_dirs: globs of run folders, used instead of `runs`, `papers` and `scale`; these may be
            unfinished.

    Raises:
        ParamError: an unknown paper or scale, a variant or seed of which there is no run, a glob
            without a run folder.
        RunError: no finished runs (says what to run first), a damaged folder, two runs of one
            variant and seed.
    """
    if run_dirs is None:
        there = _finished(resolve(runs), papers, scale)
    else:
        there = [read_run(folder) for pattern in run_dirs for folder in _folders(pattern)]
    names = list(dict.fromkeys(run.variant for run in there))
    for name in variants or []:
        if name not in names:
            raise ParamError(unknown("variant", name, names))
    chosen = [run for run in there if run.variant in (variants or names)]
    known = sorted({run.seed for run in chosen})
    chosen = [run for run in chosen if run.seed in (known if seeds is None else seeds)]
    if not chosen:
        raise ParamError(f"seeds is {seeds}, of which there is no run; allowed: {known}")
    folders: dict[str, Path] = {}
    for run in chosen:
        other = folders.setdefault(run.run_id, run.folder)
        if other != run.folder:
            raise RunError(f"{other} and {run.folder} are both {run.run_id}; allowed: one of them")

    def place(run: Run) -> tuple[Any, ...]:
        order = list(
            variants or (params.variants(run.paper) if run.paper in params.papers() else [])
        )
        at = order.index(run.variant) if run.variant in order else len(order)
        return run.paper, at, run.variant, run.seed

    return sorted(chosen, key=place)


def _finished(root: Path, papers: Sequence[str] | None, scale: str) -> list[Run]:
    if scale not in SCALES:
        raise ParamError(unknown("scale", scale, SCALES))
    found: list[Run] = []
    for paper in papers or params.papers():
        if paper not in params.papers():
            raise ParamError(unknown("paper", paper, params.papers()))
        paths = sorted(root.glob(f"{paper}/{scale}/*/seed-*/finished.json"))
        here = [read_run(path.parent) for path in paths]
        for variant in dict.fromkeys(run.variant for run in here):
            same = [run for run in here if run.variant == variant]
            last = max(same, key=lambda run: run.facts()["date"])
            found += [run for run in same if _setting(run) == _setting(last)]
        if papers and not here:
            raise RunError(
                f"no finished runs in {root / paper / scale}; run first: "
                f"make reproduce PAPER={paper} SCALE={scale}"
            )
    if not found:
        raise RunError(
            f"no finished runs in {root}/<paper>/{scale}; run first: make reproduce SCALE={scale}"
        )
    return found


def _setting(run: Run) -> str:
    """What runs of one variant share: everything but the seed, and the runs they start from."""
    return config_hash({k: v for k, v in run.params.items() if k not in ("seed", "starts")})


def _folders(pattern: str) -> list[Path]:
    matched = [Path(name) for name in sorted(glob.glob(str(resolve(pattern))))]
    if not matched or not all((folder / "config.json").is_file() for folder in matched):
        what = "something else" if matched else "nothing"
        raise ParamError(
            f"run_dirs has {pattern!r}, which matches {what}; allowed: globs of run folders, for "
            "instance runs/spiral/cpu/*/seed-*"
        )
    return matched
