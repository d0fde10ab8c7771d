"""How training went, for any set of runs of any papers: their series over steps, and whether
something collapsed.

`find_runs` finds runs on disk, `gather` and `series` make one long table of what they logged,
`draw` shows it as small multiples. `collapse` and `spikes` are the detector; `verdicts` applies
them to every run, `summary` counts over seeds. SPIRAL (Liu et al., 2025, section 4 and appendix F)
describes what is looked for: responses that shrink to almost nothing, and gradient norms that spike
and then die.
"""

import glob
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from spnb.core import params
from spnb.core.params import SCALES, ParamError, unknown
from spnb.core.paths import resolve
from spnb.core.stats import mean_interval
from spnb.report import plots
from spnb.report.exhibits import format_interval
from spnb.train.runs import Run, RunError, config_hash

WHO = ["paper", "variant", "seed"]
LINES = 7
"""Most variants in a block of panels: the palette's colours but yellow, which is hard to see. More
make more blocks."""


class Thresholds(BaseModel):
    """When something counts as collapsed or as a spike; `spnb.core.params.validate` makes one from
    parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    length: float = Field(
        0.5, gt=0, lt=1, description="collapsed: length below this share of its start"
    )
    entropy: float = Field(
        0.1, gt=0, lt=1, description="collapsed: entropy below this share of its start"
    )
    gradient: float = Field(
        0.1, gt=0, lt=1, description="collapsed: gradient norm below this share of its start"
    )
    spike: float = Field(
        10.0, gt=1, description="spike: gradient norm above this many times the running median"
    )
    edge: float = Field(
        0.1, gt=0, le=0.5, description="share of the steps that is the start, and the end"
    )
    window: int = Field(5, ge=1, description="steps of the running median")
    minimum: int = Field(20, ge=6, description="steps below which nothing is decided")


class Verdict(NamedTuple):
    """What became of one series; start and end are medians in the series' own unit, onset is a
    training step."""

    verdict: str
    start: float
    end: float
    onset: int | None


def collapse(values: pd.Series, share: float, thresholds: Thresholds | None = None) -> Verdict:
    """Whether a series fell below `share` of its start and stayed there.

    With n values v (missing ones are left out), k = max(3, floor(edge n)) and m the running median
    over `window` values around each: start = median(v_1..v_k), end = median(v_{n-k+1}..v_n), limit
    = share * start.

    - "not decided": n < `minimum`, or start <= 0 (there is no share of nothing).
    - "collapsed": m was below the limit at k or more values in a row, and both end and the last m
      are below it. The onset is the step from which m stays below.
    - "recovered": m was below the limit at k or more values in a row, but not at the end.
    - "no": anything else. So one that fell within the last k values is not called collapsed yet.

    Args:
        values: indexed by training step.

    Raises:
        ValueError: share is not between 0 and 1, or the steps do not increase.
    """
    rule = thresholds or Thresholds()
    values = _checked(values)
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; allowed: above 0 and below 1")
    ends = max(3, int(rule.edge * len(values)))
    start, end = float(values.iloc[:ends].median()), float(values.iloc[-ends:].median())
    if len(values) < rule.minimum or start <= 0:
        return Verdict("not decided", start, end, None)
    limit = share * start
    low = values.rolling(rule.window, center=True, min_periods=1).median() < limit
    longest = int(low.groupby((~low).cumsum()).sum().max())
    if longest < ends:
        return Verdict("no", start, end, None)
    if not (low.iloc[-1] and end < limit):
        return Verdict("recovered", start, end, None)
    onset = int(np.flatnonzero(~low.to_numpy())[-1]) + 1
    return Verdict("collapsed", start, end, int(values.index[onset]))


def spikes(values: pd.Series, thresholds: Thresholds | None = None) -> list[int]:
    """The steps where a series exceeds `spike` times the median of the `window` values before.

    The median is of earlier values only, so the first `window` values are never a spike and a
    lasting jump is one spike until the median has followed. Nothing is a spike after a median of 0.

    Args:
        values: indexed by training step; missing values are left out.

    Raises:
        ValueError: the steps do not increase.
    """
    rule = thresholds or Thresholds()
    values = _checked(values)
    before = values.rolling(rule.window).median().shift(1)
    return [int(step) for step in values.index[(before > 0) & (values > rule.spike * before)]]


def _checked(values: pd.Series) -> pd.Series:
    if not (values.index.is_monotonic_increasing and values.index.is_unique):
        raise ValueError(
            "the steps of a series do not increase; allowed: one value a step, in order"
        )
    return values.astype(float).dropna()


def verdicts(metrics: pd.DataFrame, thresholds: Thresholds | None = None) -> pd.DataFrame:
    """The detector on the length and entropy of every role and on the gradient norm of every run.

    Args:
        metrics: of `gather(runs, "metrics")`.

    Returns:
        A row a run and series: paper, variant, seed, quantity (length, entropy or grad_norm), role
            ("all" for the
        gradient), verdict, start, end, onset, and spikes (steps; only for the gradient).
    """
    rule = thresholds or Thresholds()
    shares = {"length": rule.length, "entropy": rule.entropy, "grad_norm": rule.gradient}
    rows = []
    for keys, part in series(metrics, "length/*", "entropy/*", "grad_norm").groupby(
        [*WHO, "part"], sort=False
    ):
        *who, key = keys
        quantity, _, role = key.partition("/")
        values = part.set_index("step")["value"]
        found = collapse(values, shares[quantity], rule)
        jumps = spikes(values, rule) if quantity == "grad_norm" else []
        rows.append((*who, quantity, role or "all", *found, jumps))
    table = pd.DataFrame(rows, columns=[*WHO, "quantity", "role", *Verdict._fields, "spikes"])
    return table.astype({"onset": "Int64"})


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Verdicts counted over seeds: a row a paper, variant and role, a column a quantity.

    A cell has end / start (mean and 95 % t-interval over the seeds that were decided) and how many
    runs have another verdict than "no"; for a collapse also the median step of its onset. Spikes:
    in how many runs, and the first step.
    """
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for (paper, variant, role, quantity), part in found.groupby(
        ["paper", "variant", "role", "quantity"], sort=False
    ):
        row = rows.setdefault((paper, variant, role), {})
        row[{"grad_norm": "gradient norm"}.get(quantity, quantity)] = _cell(part)
        if quantity == "grad_norm":
            first = [steps[0] for steps in part["spikes"] if steps]
            row["gradient spikes"] = (
                f"{len(first)} of {len(part)} runs, first at {min(first)}" if first else "none"
            )
    lines = [
        {"paper": paper, "variant": variant, "role": role, **row}
        for (paper, variant, role), row in rows.items()
    ]
    columns = ["paper", "variant", "role", "length", "entropy", "gradient norm", "gradient spikes"]
    table = pd.DataFrame(lines, columns=columns).fillna("-")
    together = (
        table.groupby(["paper", "variant"], sort=False).ngroup().sort_values(kind="stable").index
    )
    return table.loc[together].reset_index(drop=True)


def _cell(part: pd.DataFrame) -> str:
    """One quantity of one role and variant over its seeds."""
    kept = part[part["verdict"] != "not decided"]
    text = (
        [format_interval(*mean_interval((kept["end"] / kept["start"]).tolist())[:3], 2)]
        if len(kept)
        else []
    )
    for verdict in ("collapsed", "recovered", "not decided"):
        those = part[part["verdict"] == verdict]
        onset = (
            f" from step {those['onset'].median():.0f}"
            if verdict == "collapsed" and len(those)
            else ""
        )
        text += [f"{verdict} {len(those)} of {len(part)}{onset}"] if len(those) else []
    return "; ".join(text)


def find_runs(
    runs: str = "runs",
    papers: Sequence[str] | None = None,
    scale: str = "cpu",
    variants: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    run_dirs: Sequence[str] | None = None,
) -> list[Run]:
    """The finished runs of some papers (None: of all that have any) at a scale, variants in their
    papers' order.

    Of runs of one variant with different parameters, those with the parameters of the run finished
    last are taken.

    Args:
        runs: folder for runs.
        variants: names to keep; None keeps all.
        seeds: seeds to keep; None keeps all.
        run_dirs: globs of run folders, used instead of `runs`, `papers` and `scale`; these may be
            unfinished.

    Raises:
        ParamError: an unknown paper or scale, a variant of which there is no run, a glob without a
            run folder.
        RunError: no finished runs (says what to run first), a damaged folder, two runs of one
            variant and seed.
    """
    if run_dirs is None:
        found = _finished(resolve(runs), papers, scale)
    else:
        found = [_read(folder) for folder in _folders(run_dirs)]
    for name in variants or []:
        if name not in {run.variant for run in found}:
            raise ParamError(unknown("variant", name, {run.variant for run in found}))
    chosen = [
        run
        for run in found
        if (not variants or run.variant in variants) and (seeds is None or run.seed in seeds)
    ]
    if not chosen:
        raise ParamError(
            f"seeds is {seeds}, of which there is no run; allowed: {sorted({run.seed for run in found})}"
        )
    folders: dict[str, Path] = {}
    for run in chosen:
        if folders.setdefault(run.run_id, run.folder) != run.folder:
            raise RunError(
                f"{folders[run.run_id]} and {run.folder} are both {run.run_id}; allowed: one of them"
            )
    return sorted(chosen, key=lambda run: _place(run, variants))


def _finished(root: Path, papers: Sequence[str] | None, scale: str) -> list[Run]:
    if scale not in SCALES:
        raise ParamError(unknown("scale", scale, SCALES))
    found = []
    for paper in papers or params.papers():
        if paper not in params.papers():
            raise ParamError(unknown("paper", paper, params.papers()))
        here = [
            _read(path.parent)
            for path in sorted(root.glob(f"{paper}/{scale}/*/seed-*/finished.json"))
        ]
        if papers and not here:
            raise RunError(_run_first(root / paper / scale, f" PAPER={paper}", scale))
        for variant in dict.fromkeys(run.variant for run in here):
            found += _latest([run for run in here if run.variant == variant])
    if not found:
        raise RunError(_run_first(root / "<paper>" / scale, "", scale))
    return found


def _run_first(folder: Path, paper: str, scale: str) -> str:
    return f"no finished runs in {folder}; run first: make reproduce{paper} SCALE={scale}"


def _latest(runs: list[Run]) -> list[Run]:
    """Of one variant's runs those whose parameters, but for the seed, are those of the run finished
    last."""
    asked = [
        config_hash({key: value for key, value in run.params.items() if key != "seed"})
        for run in runs
    ]
    last = max(range(len(runs)), key=lambda index: runs[index].facts()["date"])
    return [run for run, hashed in zip(runs, asked, strict=True) if hashed == asked[last]]


def _folders(run_dirs: Sequence[str]) -> list[Path]:
    folders = {}
    for pattern in run_dirs:
        matched = [Path(name) for name in sorted(glob.glob(str(resolve(pattern))))]
        if not matched or not all((folder / "config.json").is_file() for folder in matched):
            raise ParamError(
                f"run_dirs has {pattern!r}, which matches {'something else' if matched else 'nothing'}; "
                "allowed: globs of run folders, for instance runs/spiral/cpu/*/seed-*"
            )
        folders |= dict.fromkeys(matched)
    return list(folders)


def _read(folder: Path) -> Run:
    try:
        return Run(folder, json.loads((folder / "config.json").read_text())["params"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"run folder {folder} is damaged: config.json cannot be read ({error!r})"
        ) from None


def _place(run: Run, variants: Sequence[str] | None) -> tuple[Any, ...]:
    paper = run.params["paper"]
    names = list(variants or (params.variants(paper) if paper in params.papers() else ()))
    return (
        paper,
        names.index(run.variant) if run.variant in names else len(names),
        run.variant,
        run.seed,
    )


def gather(runs: Sequence[Run], name: str) -> pd.DataFrame:
    """The rows of `<name>.jsonl` of several runs as one data frame, each with its run's paper,
    variant and seed."""
    return pd.concat(
        [run.table(name).assign(paper=run.params["paper"]) for run in runs], ignore_index=True
    )


def series(metrics: pd.DataFrame, *patterns: str) -> pd.DataFrame:
    """What matches a pattern ("length/*") among the columns of metrics, in long form, without
    missing values.

    Returns:
        Columns paper, variant, seed, step, part (the column's name), value.
    """
    keys = [
        key for key in metrics.columns if any(fnmatchcase(key, pattern) for pattern in patterns)
    ]
    rows = metrics.melt([*WHO, "step"], keys, "part", "value").astype({"value": float})
    return rows.dropna(subset="value").reset_index(drop=True)


def results(evals: pd.DataFrame, *patterns: str) -> pd.DataFrame:
    """The evaluations whose "evaluation: metric" matches a pattern, in the long form of
    `series`."""
    rows = evals.assign(part=evals["evaluation"] + ": " + evals["metric"]).astype({"value": float})
    rows = rows[[any(fnmatchcase(part, pattern) for pattern in patterns) for part in rows["part"]]]
    return rows[[*WHO, "step", "part", "value"]].dropna(subset="value").reset_index(drop=True)


def draw(
    frame: pd.DataFrame,
    label: str,
    variants: Mapping[str, Sequence[str]] | None = None,
    *,
    window: int = 5,
    **axis: Any,
) -> Figure:
    """Small multiples over training steps: a block of panels a paper, a panel a part, a line a
    variant.

    Shades are 95 % t-intervals over seeds. A paper with more than `LINES` variants gets several
    blocks.

    Args:
        frame: long form of `series` or `results`.
        label: of the vertical axis, with unit.
        variants: all of each paper. With the same ones a variant keeps its colour in every figure,
            also where another has nothing to show; None: those of the frame.
        window: steps of the running mean by which each seed is smoothed first.
        axis: settings of every panel's axes, for instance ylim=(0, None) or yscale="log".

    Raises:
        ValueError: the frame has no rows.
    """
    if frame.empty:
        raise ValueError(f"draw: no rows to show as {label!r}")
    names = frame.groupby("paper", sort=False)["variant"].unique() if variants is None else variants
    papers = frame["paper"].unique()
    blocks = [
        block for paper in papers for block in _blocks(frame[frame["paper"] == paper], names[paper])
    ]
    shapes = [_shape(list(rows["part"].unique())) for rows, _ in blocks]
    heights = [1.0 + 1.9 * rows for rows, _ in shapes]
    with plots.style():
        figure = plt.figure(figsize=(plots.WIDTH, sum(heights)))
        places = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
        for place, (rows, order), shape in zip(places, blocks, shapes, strict=True):
            place.suptitle(rows["paper"].iloc[0], fontweight="bold", fontsize=11)
            _panels(rows, place.subplots(*shape, squeeze=False), order, label, window, axis)
            plots.legend_below(place, columns=3 if max(map(len, order)) <= 16 else 2)
    return figure


def _blocks(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple[pd.DataFrame, list[str]]]:
    """One paper's rows, cut by variant into blocks of about equal size, each with its variants in
    colour order."""
    parts = [list(part) for part in np.array_split(list(names), -(-len(names) // LINES))]
    cut = [(frame[frame["variant"].isin(part)], part) for part in parts]
    return [(rows, part) for rows, part in cut if len(rows)]


def _shape(parts: list[str]) -> tuple[int, int]:
    """Rows and columns of a block: three panels side by side where their titles are short enough,
    else two."""
    columns = min(len(parts), 3 if len(parts) != 4 and max(map(len, parts)) <= 22 else 2)
    return -(-len(parts) // columns), columns


def _panels(
    block: pd.DataFrame,
    axes: np.ndarray,
    order: list[str],
    label: str,
    window: int,
    axis: dict[str, Any],
) -> None:
    """One block: a panel a part; axes without a part are taken away."""
    parts = list(block["part"].unique())
    for index, ax in enumerate(axes.flat):
        if index >= len(parts):
            ax.remove()
            continue
        rows = block[block["part"] == parts[index]]
        plots.curve(ax, rows, "step", "value", hue="variant", order=order, window=window)
        last = index + axes.shape[1] >= len(parts)
        ax.set(
            xlabel="training step" if last else "",
            ylabel=label if index % axes.shape[1] == 0 else "",
            **axis,
        )
        ax.set_title(parts[index], fontsize=10)
