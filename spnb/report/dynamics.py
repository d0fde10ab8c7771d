"""How training went, for any set of runs of any papers: series over steps, and what collapsed.

`exhibit` makes one of the exhibits of training dynamics. `collapse` and `spikes` are the detector;
`verdicts` applies them to every run, `summary` counts over seeds. SPIRAL (Liu et al., 2025, section
4 and appendix F) describes what is looked for: responses that shrink to almost nothing, and
gradient norms that spike and then die.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import yaml
from matplotlib.figure import Figure
from pydantic import Field

from spnb import reference
from spnb.core.params import StrictData
from spnb.report import plots
from spnb.report.exhibits import save_exhibit
from spnb.report.frame import Frames, format_interval, seed_interval

WHO = ["paper", "variant", "seed"]
LINES = 7
"""Most variants in a block of panels: the palette's colours but yellow; more make more blocks."""
EVALUATIONS = (
    "* vs random: win",
    "* vs expert: win",
    "* vs past: win",
    "held-out*: accuracy",
    "solver*: accuracy",
)


class Curves(StrictData):
    """One exhibit over training steps, an entry of `reference/dynamics/curves.yaml`."""

    metrics: list[str] = Field([], description="of the training log; without any, evaluations")
    label: str
    caption: str
    window: int = 5
    axis: dict[str, Any] = {}


class Thresholds(StrictData):
    """When something counts as collapsed or as a spike; `validate` makes one from parameters."""

    length: float = Field(0.5, gt=0, lt=1, description="collapsed: below this share of its start")
    entropy: float = Field(0.1, gt=0, lt=1, description="collapsed: below this share of its start")
    gradient: float = Field(0.1, gt=0, lt=1, description="collapsed: below this share of its start")
    spike: float = Field(10.0, gt=1, description="spike: above this many times the running median")
    edge: float = Field(0.1, gt=0, le=0.5, description="share of the steps that is start, and end")
    window: int = Field(5, ge=1, description="steps of the running median")
    minimum: int = Field(20, ge=6, description="steps below which nothing is decided")


class Verdict(NamedTuple):
    """What became of one series: start and end are medians, onset is a training step."""

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
        raise ValueError("the steps of a series do not increase; allowed: one value a step")
    return values.astype(float).dropna()


def verdicts(frames: Frames, thresholds: Thresholds | None = None) -> pd.DataFrame:
    """The detector on every run's lengths and entropies by role and on its gradient norm.

    Returns:
        Columns paper, variant, seed, quantity, role ("all" for the gradient norm), verdict, start,
        end, onset, spikes (steps; of the gradient norm only).
    """
    rule = thresholds or Thresholds()
    shares = {"length": rule.length, "entropy": rule.entropy, "grad_norm": rule.gradient}
    rows = frames.metrics[frames.metrics["metric"].isin(list(shares))]
    rows = rows[(rows["metric"] == "grad_norm") | (rows["role"] != "")]
    lines = []
    for (*who, quantity, role), part in rows.groupby([*WHO, "metric", "role"], sort=False):
        values = part.set_index("step")["value"]
        jumps = spikes(values, rule) if quantity == "grad_norm" else []
        outcome = collapse(values, shares[quantity], rule)
        lines.append((*who, quantity, role or "all", *outcome, jumps))
    table = pd.DataFrame(lines, columns=[*WHO, "quantity", "role", *Verdict._fields, "spikes"])
    return table.astype({"onset": "Int64"})


def summary(decided: pd.DataFrame) -> pd.DataFrame:
    """Verdicts counted over seeds: a row a paper, variant and role, a column a quantity.

    A cell has end / start (mean and 95 % t-interval over the seeds that were decided) and how many
    runs have another verdict than "no"; for a collapse also the median step of its onset. Spikes:
    in how many runs, and the first step.
    """
    columns = ["length", "entropy", "gradient norm", "gradient spikes"]
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for who, _ in decided.groupby(["paper", "variant"], sort=False):
        for role in ["all", *decided["role"].unique()]:
            rows[*who, role] = {}
    keys = ["paper", "variant", "role", "quantity"]
    for (paper, variant, role, quantity), part in decided.groupby(keys, sort=False):
        row = rows[paper, variant, role]
        row[{"grad_norm": "gradient norm"}.get(quantity, quantity)] = _cell(part)
        if quantity == "grad_norm":
            first = [steps[0] for steps in part["spikes"] if steps]
            counted = f"{len(first)} of {len(part)} runs, first at {min(first, default=0)}"
            row["gradient spikes"] = counted if first else "none"
    lines = [dict(zip(keys, who, strict=False)) | row for who, row in rows.items() if row]
    return pd.DataFrame(lines, columns=[*keys[:3], *columns]).fillna("-")


def _cell(part: pd.DataFrame) -> str:
    """One quantity of one role and variant over its seeds."""
    texts = []
    clear = part[part["verdict"] != "not decided"]
    if len(clear):
        shares = clear.assign(value=clear["end"] / clear["start"])
        texts.append(format_interval(*seed_interval(shares)[:3], 2))
    for verdict in ("collapsed", "recovered", "not decided"):
        runs = part[part["verdict"] == verdict]
        collapsed = verdict == "collapsed" and len(runs)
        onset = f" from step {runs['onset'].median():.0f}" if collapsed else ""
        texts += [f"{verdict} {len(runs)} of {len(part)}{onset}"] if len(runs) else []
    return "; ".join(texts)


def series(frames: Frames, *metrics: str) -> pd.DataFrame:
    """Metrics in the form of `draw`: columns paper, variant, seed, step, part, value.

    A part is a metric of a role, "length/kuhn_poker/0"; where a metric has roles, its total over
    roles is left out.
    """
    rows = frames.metrics[frames.metrics["metric"].isin(metrics)]
    by_role = rows.loc[rows["role"] != "", "metric"].unique()
    rows = rows[(rows["role"] != "") | ~rows["metric"].isin(by_role)]
    part = rows["metric"] + ("/" + rows["role"]).where(rows["role"] != "", "")
    return rows.assign(part=part)[[*WHO, "step", "part", "value"]].reset_index(drop=True)


def results(frames: Frames, *patterns: str) -> pd.DataFrame:
    """The evaluations whose name matches a pattern, in the form of `draw`.

    A name is "suite vs opponent, role, decoding: metric, difficulty", without what is empty.
    """
    rows = frames.results.dropna(subset="value")
    part = rows["suite"]
    for before, key in (
        (" vs ", "opponent"),
        (", ", "role"),
        (", ", "decoding"),
        (": ", "metric"),
        (", ", "difficulty"),
    ):
        part = part + (before + rows[key]).where(rows[key] != "", "")
    rows = rows.assign(part=part)
    wanted = [name for name in part.unique() if any(fnmatchcase(name, each) for each in patterns)]
    return rows[part.isin(wanted)][[*WHO, "step", "part", "value"]].reset_index(drop=True)


def exhibit(
    exhibit_id: str,
    frames: Frames,
    folder: str | Path = "figures",
    thresholds: Thresholds | None = None,
    evaluations: Sequence[str] = EVALUATIONS,
) -> pd.DataFrame | Figure | None:
    """Makes, saves and returns an exhibit of training dynamics; None where no run has one to show.

    A panel that would be zero everywhere is named instead of drawn.
    """
    name = exhibit_id.split("/")[1]
    papers = ", ".join(dict.fromkeys(run.paper for run in frames.runs))
    protocol = (
        f"Runs of {papers} as their own notebooks set them up; variants "
        f"{', '.join(frames.variants)}; 95 % t-intervals over seeds."
    )
    if name == "collapse":
        rule = thresholds or Thresholds()
        table = summary(verdicts(frames, rule))
        caption = (
            f"End / start of each series and what the detector says. Collapsed: below "
            f"{rule.length:g} (length), {rule.entropy:g} (entropy), {rule.gradient:g} (gradient "
            f"norm) of its start; spike: above {rule.spike:g} times the median of the "
            f"{rule.window} steps before."
        )
        own = {"caption": caption, "protocol": f"{protocol} No paper has this table."}
        save_exhibit(exhibit_id, table, frames.runs, folder=folder, **own)
        return table
    text = reference.sources("curves.yaml")["dynamics"].read_text(encoding="utf-8")
    curves = Curves.model_validate(yaml.safe_load(text)[exhibit_id])
    data = series(frames, *curves.metrics) if curves.metrics else results(frames, *evaluations)
    if name == "gradient":
        data = data[data["value"] > 0].assign(value=lambda rows: np.log10(rows["value"]))
    zero = data.groupby(["paper", "part"])["value"].transform(lambda v: v.abs().max()) < 1e-9
    if zero.any():
        parts = (data["paper"] + ": " + data["part"])[zero].unique()
        print(f"zero in every run and at every step: {', '.join(parts)}")
    data = data[~zero]
    if data.empty:
        print(f"{exhibit_id}: no run has anything else to show")
        return None
    order = frames.metrics.groupby("paper", sort=False)["variant"].unique()
    figure = draw(data, curves.label, order, curves.window, **curves.axis)
    drawn = set(zip(data["paper"], data["variant"], strict=True))
    used = [run for run in frames.runs if (run.paper, run.variant) in drawn]
    smoothed = f" Running mean over {curves.window} steps." if curves.window > 1 else ""
    texts = {"caption": curves.caption, "protocol": protocol + smoothed}
    save_exhibit(exhibit_id, figure, used, data=data, folder=folder, **texts)
    plt.close(figure)
    return figure


def draw(
    frame: pd.DataFrame,
    label: str,
    variants: Mapping[str, Sequence[str]] | None = None,
    window: int = 5,
    **axis: Any,
) -> Figure:
    """Small multiples over training steps: a block of panels a paper, a panel a part.

    A paper with more than `LINES` variants gets several blocks of about equal size.

    Args:
        frame: long form of `series` or `results`.
        label: of the vertical axis, with unit.
        variants: all of each paper: with the same ones a variant keeps its colour in every figure,
            also where another has nothing to show. None: those of the frame.
        window: steps of the running mean by which each seed is smoothed first.
        axis: settings of every panel's axes, for instance ylim=(0, None) or yscale="log".

    Raises:
        ValueError: the frame has no rows.
    """
    if frame.empty:
        raise ValueError(f"draw: no rows to show as {label!r}")
    names = frame.groupby("paper", sort=False)["variant"].unique() if variants is None else variants
    blocks = []
    for paper, rows in frame.groupby("paper", sort=False):
        for cut in np.array_split(list(names[paper]), -(-len(names[paper]) // LINES)):
            part = rows[rows["variant"].isin(list(cut))]
            blocks += [(part, list(cut), _shape(list(part["part"].unique())))] if len(part) else []
    heights = [1.0 + 1.9 * rows for *_, (rows, _) in blocks]
    with plots.style():
        figure = plt.figure(figsize=(plots.WIDTH, sum(heights)))
        places = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
        for place, (rows, order, shape) in zip(places, blocks, strict=True):
            place.suptitle(rows["paper"].iloc[0], fontweight="bold", fontsize=11)
            axes = place.subplots(*shape, squeeze=False)
            parts = list(rows["part"].unique())
            each = dict.fromkeys(parts, label), dict.fromkeys(parts, window)
            plots.fill(axes, rows, "part", order, *each, **axis)
            plots.legend_below(place, columns=3 if max(map(len, order)) <= 16 else 2)
    return figure


def _shape(parts: list[str]) -> tuple[int, int]:
    """Rows and columns of a block: three panels side by side where titles are short, else two."""
    columns = min(len(parts), 3 if len(parts) != 4 and max(map(len, parts)) <= 22 else 2)
    return -(-len(parts) // columns), columns
