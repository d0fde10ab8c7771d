"""Finished runs on disk, by paper, scale, variant and seed, and those that a run starts from."""

import glob
from collections.abc import Sequence
from pathlib import Path

from spnb.core import params
from spnb.core.method import POLICY
from spnb.core.params import SCALES, ParamError, require
from spnb.core.paths import resolve
from spnb.train.config import RunParams
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

    Of runs of one variant with different parameters, those like the run finished last are taken.

    Args:
        runs: folder for runs.
        variants, seeds: those to keep; None keeps all.
        run_dirs: globs of run folders, instead of `runs`, `papers`, `scale`; may be unfinished.

    Raises:
        ParamError: an unknown paper or scale, or no run of a variant, a seed or a glob.
        RunError: no finished runs, a damaged folder, records that were changed, two runs of one
            variant and seed.
    """
    if run_dirs is None:
        there = _finished(resolve(runs), papers, scale)
    else:
        there = [read_run(folder) for pattern in run_dirs for folder in _folders(pattern)]
    names = list(dict.fromkeys(run.variant for run in there))
    for name in variants or []:
        require("variant", name, names)
    known = sorted({run.seed for run in there if run.variant in (variants or names)})
    chosen: dict[str, Run] = {}
    for run in there:
        if run.variant in (variants or names) and run.seed in (known if seeds is None else seeds):
            other = chosen.setdefault(run.run_id, run).folder
            if other != run.folder:
                both = f"{other} and {run.folder} are both {run.run_id}"
                raise RunError(f"{both}; allowed: one of them")
    if not chosen:
        raise ParamError(f"seeds is {seeds}, of which there is no run; allowed: {known}")
    for run in chosen.values():
        if run.finished:
            run.check_rows(run.facts(), exact=True)
    listed = {name: list(params.variants(name)) for name in params.papers()}

    def place(run: Run) -> tuple[str, int, int]:
        order = [*(variants or []), *listed.get(run.paper, []), *names]
        return run.paper, order.index(run.variant), run.seed

    return sorted(chosen.values(), key=place)


def _finished(root: Path, papers: Sequence[str] | None, scale: str) -> list[Run]:
    require("scale", scale, SCALES)
    taken: list[Run] = []
    for paper in papers or params.papers():
        require("paper", paper, params.papers())
        paths = sorted(root.glob(f"{paper}/{scale}/*/seed-*/finished.json"))
        there = [read_run(path.parent) for path in paths]
        if papers and not there:
            command = f"make reproduce PAPER={paper} SCALE={scale}"
            raise RunError(f"no finished runs in {root / paper / scale}; run first: {command}")
        for variant in dict.fromkeys(run.variant for run in there):
            same = [run for run in there if run.variant == variant]
            last = max(same, key=lambda run: run.facts()["date"])
            taken += [run for run in same if _setting(run) == _setting(last)]
    if not taken:
        command = f"make reproduce SCALE={scale}"
        raise RunError(f"no finished runs in {root}/<paper>/{scale}; run first: {command}")
    return taken


def _setting(run: Run) -> str:
    """What the runs of one variant share: all but the seed and the runs that they start from."""
    return config_hash({k: v for k, v in run.params.items() if k not in ("seed", "starts")})


def _folders(pattern: str) -> list[Path]:
    matched = [Path(name) for name in sorted(glob.glob(str(resolve(pattern))))]
    if not matched or not all((folder / "config.json").is_file() for folder in matched):
        what = "something else" if matched else "nothing"
        example = "globs of run folders, for instance runs/spiral/cpu/*/seed-*"
        raise ParamError(f"run_dirs has {pattern!r}, which matches {what}; allowed: {example}")
    return matched


def starting_policies(run: Run, values: RunParams) -> dict[str, str]:
    """Where each policy's first weights are: its name in the parameters, or another run's model.

    Raises:
        RunError: the run that it starts from is not there or not finished.
    """
    sources = {POLICY: values.policy, **values.policies}
    for name, start in run.params.get("starts", {}).items():
        folder = run.root / run.paper / run.scale / start["variant"]
        folders = (folder / f"seed-{run.seed}", folder / f"seed-{run.seed}.{start['hash']}")
        runs = [read_run(path) for path in folders if (path / "config.json").is_file()]
        other = next((one for one in runs if one.config_hash == start["hash"]), None)
        if other is None or not other.finished:
            raise RunError(
                f"run {run.run_id} starts from {start['variant']}, which is not finished; run that"
            )
        if not other.has_weights:
            raise RunError(
                f"run {run.run_id} starts from {start['variant']}, whose weights are not there; "
                f"delete {other.folder} to compute it again"
            )
        model = other.weights()
        there = sorted(path.name for path in model.iterdir() if path.is_dir())
        if name not in there and not any(model.glob("*config.json")):
            allowed = f"for {' or '.join(there)}, which it trained"
            raise RunError(f"start_from is {start['variant']!r} for {name}; allowed: {allowed}")
        sources[name] = str(model / name if name in there else model)
    return sources
