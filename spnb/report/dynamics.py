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
from matplotlib.figure import Figure
from pydantic import Field

from spnb.core.params import StrictData
from spnb.report import plots
from spnb.report.exhibits import save_exhibit
from spnb.report.frame import Frames, format_interval, seed_interval
from spnb.report.tables import read_yaml

WHO = ["paper", "variant", "seed"]
LINES = 7
"""Most variants in a block of panels: the palette's colours but yellow; more make more blocks."""
WON = ("* vs random: win", "* vs expert: win", "* vs past: win")
EVALUATIONS = (*WON, "held-out*: accuracy", "solver*: accuracy")
JOINED = {"opponent": " vs ", "role": ", ", "decoding": ", ", "metric": ": ", "difficulty": ", "}
"""What stands before each part of an evaluation's name; an empty part is left out."""
COLLAPSE = "collapsed: below this share of its start"


class Thresholds(StrictData):
    """When something counts as collapsed or as a spike; `validate` makes one from parameters."""

    length: float = Field(0.5, gt=0, lt=1, description=COLLAPSE)
    entropy: float = Field(0.1, gt=0, lt=1, description=COLLAPSE)
    gradient: float = Field(0.1, gt=0, lt=1, description=COLLAPSE)
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
    """Whether a series (by training step, gaps left out) fell below a share of its start for good.

    With n values v, k = max(3, floor(edge n)) and m the running median over `window` values around
    each: start = median(v_1..v_k), end = median(v_{n-k+1}..v_n), limit = share * start.

    - "not decided": n < `minimum`, or start <= 0 (there is no share of nothing).
    - "collapsed": m was below the limit at k or more values in a row, and both end and the last m
      are below it. The onset is the step from which m stays below.
    - "recovered": m was below the limit at k or more values in a row, but not at the end.
    - "no": anything else. So one that fell within the last k values is not called collapsed yet.

    Raises:
        ValueError: share is not between 0 and 1, or the steps do not increase.
    """
    rule = thresholds or Thresholds()
    values = _checked(values)
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; allowed: above 0 and below 1")
    ends = max(3, int(rule.edge * len(values)))
    start = float(values.iloc[:ends].median())
    end = float(values.iloc[-ends:].median())
    if len(values) < rule.minimum or start <= 0:
        return Verdict("not decided", start, end, None)
    low = values.rolling(rule.window, center=True, min_periods=1).median() < share * start
    if low.groupby((~low).cumsum()).sum().max() < ends:
        return Verdict("no", start, end, None)
    if not (low.iloc[-1] and end < share * start):
        return Verdict("recovered", start, end, None)
    onset = np.flatnonzero(~low.to_numpy())[-1] + 1
    return Verdict("collapsed", start, end, int(values.index[onset]))


def spikes(values: pd.Series, thresholds: Thresholds | None = None) -> list[int]:
    """The steps where a series exceeds `spike` times the median of the `window` values before.

    A lasting jump is one spike until the median has followed; nothing is one after a median of 0.
    ValueError where the steps, the index, do not increase.
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

    Columns paper, variant, seed, quantity, role ("all" for the gradient norm), verdict, start, end,
    onset, spikes (steps; of the gradient norm only).
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

    A cell has end / start over the seeds that were decided, how many runs have another verdict than
    "no", and the median step of a collapse's onset. Spikes: in how many runs, and the first step.
    """
    keys = ["paper", "variant", "role"]
    roles = ["all", *decided["role"].unique()]
    lines = []
    for (paper, variant), rows in decided.groupby(keys[:2], sort=False):
        for role in dict.fromkeys(roles):
            line = {}
            for quantity, part in rows[rows["role"] == role].groupby("quantity", sort=False):
                line[{"grad_norm": "gradient norm"}.get(quantity, quantity)] = _cell(part)
                if quantity == "grad_norm":
                    first = [steps[0] for steps in part["spikes"] if steps]
                    counted = f"{len(first)} of {len(part)} runs, first at {min(first, default=0)}"
                    line["gradient spikes"] = counted if first else "none"
            lines += [dict(zip(keys, (paper, variant, role), strict=True)) | line] if line else []
    columns = ["length", "entropy", "gradient norm", "gradient spikes"]
    return pd.DataFrame(lines, columns=[*keys, *columns]).fillna("-")


def _cell(part: pd.DataFrame) -> str:
    """One quantity of one role and variant over its seeds."""
    texts = []
    clear = part[part["verdict"] != "not decided"]
    if len(clear):
        shares = clear.assign(value=clear["end"] / clear["start"])
        texts.append(format_interval(*seed_interval(shares)[:3], 2))
    for verdict in ("collapsed", "recovered", "not decided"):
        runs = part[part["verdict"] == verdict]
        onset = f" from step {runs['onset'].median():.0f}" if verdict == "collapsed" else ""
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
    part = (rows["metric"] + "/" + rows["role"]).str.rstrip("/")
    return rows.assign(part=part)[[*WHO, "step", "part", "value"]].reset_index(drop=True)


def results(frames: Frames, *patterns: str) -> pd.DataFrame:
    """The evaluations whose name matches a pattern, in the form of `draw`.

    A name is "suite vs opponent, role, decoding: metric, difficulty", without what is empty.
    """
    rows = frames.results.dropna(subset="value")
    part = rows["suite"]
    for key, before in JOINED.items():
        part = part + (before + rows[key]).where(rows[key] != "", "")
    wanted = [name for name in part.unique() if any(fnmatchcase(name, each) for each in patterns)]
    rows = rows.assign(part=part)[part.isin(wanted)]
    return rows[[*WHO, "step", "part", "value"]].reset_index(drop=True)


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
    rule = thresholds or Thresholds()
    about = read_yaml("dynamics", "curves.yaml")[exhibit_id]
    papers = ", ".join(dict.fromkeys(run.paper for run in frames.runs))
    variants = ", ".join(frames.variants)
    protocol = f"Runs of {papers} as their own notebooks set them up; variants {variants}; "
    protocol += "95 % t-intervals over seeds."
    texts = {"caption": about["caption"].format(**rule.model_dump()), "folder": folder}
    if exhibit_id == "dynamics/collapse":
        table = summary(verdicts(frames, rule))
        protocol += " No paper has this table."
        save_exhibit(exhibit_id, table, frames.runs, protocol=protocol, **texts)
        return table
    metrics = about.get("metrics")
    data = series(frames, *metrics) if metrics else results(frames, *evaluations)
    if exhibit_id == "dynamics/gradient":
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
    window = about.get("window", 5)
    figure = draw(data, about["label"], order, window, **about.get("axis", {}))
    drawn = set(zip(data["paper"], data["variant"], strict=True))
    used = [run for run in frames.runs if (run.paper, run.variant) in drawn]
    protocol += f" Running mean over {window} steps." if window > 1 else ""
    save_exhibit(exhibit_id, figure, used, data=data, protocol=protocol, **texts)
    plt.close(figure)
    return figure


def draw(
    frame: pd.DataFrame,
    label: str,
    variants: Mapping[str, Sequence[str]],
    window: int = 5,
    **axis: Any,
) -> Figure:
    """Small multiples over training steps: a block of panels a paper, a panel a part.

    A paper with more than `LINES` variants gets several blocks of about equal size.

    Args:
        frame: long form of `series` or `results`; `label` is the vertical axis', with unit.
        variants: all of each paper, so that a variant keeps its colour in every figure.
        window: steps of the running mean; `axis`: settings of every panel, ylim=(0, None).
    """
    blocks = []
    for paper, rows in frame.groupby("paper", sort=False):
        for order in np.array_split(list(variants[paper]), -(-len(variants[paper]) // LINES)):
            part = rows[rows["variant"].isin(list(order))]
            blocks += [(part, list(order), _shape(part["part"].unique()))] if len(part) else []
    heights = [1.0 + 1.9 * rows for *_, (rows, _) in blocks]
    with plots.style():
        figure = plt.figure(figsize=(plots.WIDTH, sum(heights)))
        places = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
        for place, (rows, order, shape) in zip(places, blocks, strict=True):
            place.suptitle(rows["paper"].iloc[0], fontweight="bold", fontsize=11)
            axes = place.subplots(*shape, squeeze=False)
            each = (dict.fromkeys(rows["part"], value) for value in (label, window))
            plots.fill(axes, rows, "part", order, *each, **axis)
            plots.legend_below(place, columns=3 if max(map(len, order)) <= 16 else 2)
    return figure


def _shape(parts: Sequence[str]) -> tuple[int, int]:
    """Rows and columns of a block: three panels side by side where titles are short, else two."""
    columns = min(len(parts), 3 if len(parts) != 4 and max(map(len, parts)) <= 22 else 2)
    return -(-len(parts) // columns), columns
