"""How training went, for any set of runs of any papers: series over steps, and what collapsed.

`collapse` and `spikes` are the detector; `verdicts` applies them to every run, `summary` counts
over seeds. SPIRAL (Liu et al., 2025, section 4 and appendix F) describes what is looked for:
responses that shrink to almost nothing, and gradient norms that spike and then die. `exhibit` makes
the table of these, and the figures of `reference/dynamics/curves.yaml`.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from spnb.core.params import StrictData
from spnb.report.curves import chosen, running_means, small_multiples
from spnb.report.exhibits import ExhibitContent, exhibit_info
from spnb.report.frame import KEYS, Frames, format_interval, read_yaml, seed_interval

WHO = ["paper", "variant", "seed"]
SERIES = [*WHO, "step", "part", "value"]
PANELS = 6
"""Most panels that a figure draws."""
EVALUATIONS: tuple[str, ...] = tuple(read_yaml("dynamics", "curves.yaml")["evaluations"])
"""What `dynamics/results` shows."""
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
    return pd.DataFrame(lines, columns=[*keys, *columns], dtype=object).fillna("-")


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
    """Metrics in long form: `SERIES`.

    A part is a metric of a role, "length/kuhn_poker/0"; where a metric has roles, its total over
    roles is left out. Loss and gradient norm have policies: the run's, and others beside it.
    """
    rows = frames.metrics[frames.metrics["metric"].isin(metrics)]
    by_role = set(rows.loc[rows["role"] != "", "metric"]) - {"loss", "grad_norm"}
    rows = rows[(rows["role"] != "") | ~rows["metric"].isin(by_role)]
    part = (rows["metric"] + "/" + rows["role"]).str.rstrip("/")
    return rows.assign(part=part)[SERIES].reset_index(drop=True)


def results(frames: Frames, *patterns: str) -> pd.DataFrame:
    """The evaluations whose name matches a pattern, in long form, in the patterns' order: `SERIES`.

    A name is "suite vs opponent, role, decoding: metric, difficulty", without what is empty. The
    score of matches is the share that was won, draws counting half.
    """
    rows = frames.results.dropna(subset="value")
    points = rows["metric"].map({"win": 1.0, "draw": 0.5})
    scores = rows.assign(metric="score", value=rows["value"] * points).dropna(subset="value")
    same = [*WHO, "step", *KEYS, "metric"]
    rows = pd.concat([rows, scores.groupby(same, sort=False)["value"].sum().reset_index()])
    part = rows["suite"]
    for key, before in JOINED.items():
        part = part + (before + rows[key]).where(rows[key] != "", "")
    names = [name for each in patterns for name in part.unique() if fnmatchcase(name, each)]
    places = part.map({name: place for place, name in enumerate(dict.fromkeys(names))})
    rows = rows.assign(part=part, place=places).dropna(subset="place")
    return rows.sort_values("place", kind="stable")[SERIES].reset_index(drop=True)


def exhibit(
    exhibit_id: str,
    frames: Frames,
    thresholds: Thresholds | None = None,
    evaluations: Sequence[str] = EVALUATIONS,
) -> ExhibitContent | None:
    """An exhibit of training dynamics; None where no run has one to show.

    All numbers are saved (`part`: the role, or game and seat).
    """
    rule = thresholds or Thresholds()
    contents = read_yaml("dynamics", "curves.yaml")
    about = contents["figures"][exhibit_id]
    papers = ", ".join(dict.fromkeys(run.paper for run in frames.runs))
    protocol = contents["protocol"].format(papers=papers, variants=", ".join(frames.variants))
    caption = about["caption"].format(**rule.model_dump())
    if exhibit_id == "dynamics/collapse":
        protocol += "; 95 % intervals over seeds. No paper has this table."
        table = summary(verdicts(frames, rule))
        made = ExhibitContent(table, frames.runs, None, caption, protocol)
        return None if table.empty else made
    metrics = about.get("metrics")
    data = series(frames, *metrics) if metrics else results(frames, *evaluations)
    if metrics:
        data["part"] = data["part"].str.removeprefix(f"{metrics[0]}/")
    figure, words = picture(exhibit_id, data)
    if figure is None:
        return None
    there = {*zip(data["paper"], data["variant"], strict=True)}
    used = [run for run in frames.runs if (run.paper, run.variant) in there]
    return ExhibitContent(figure, used, data, f"{caption} {words}".strip(), f"{protocol}.")


def picture(exhibit_id: str, data: pd.DataFrame) -> tuple[Figure | None, str]:
    """A figure of an exhibit's numbers, `drawn`'s choice of them, and words on both; None where
    nothing is to be drawn. `data`: `SERIES`, as its CSV has it."""
    contents = read_yaml("dynamics", "curves.yaml")
    about = contents["figures"][exhibit_id]
    for metric in about.get("metrics", ()):
        parts = data["part"]
        data = data.assign(part=parts.where(parts == metric, f"{metric}/" + parts))
    shown, left_out = drawn(data, contents["words"], about.get("seats", "together"))
    if shown.empty:
        return None, left_out
    window = about.get("window", 5)
    axis = {"ylim": (None, None), **about.get("axis", {})}
    if axis.get("yscale") == "log":
        shown = shown[shown["value"] > 0]
    figure = small_multiples(shown, exhibit_info(exhibit_id).title, about["label"], window, **axis)
    return figure, f"{running_means(window)} {left_out}".strip()


def drawn(
    data: pd.DataFrame, words: Mapping[str, str], seats: str = "together"
) -> tuple[pd.DataFrame, str]:
    """What a figure shows of these numbers, in words, and a sentence on what it leaves out.

    Of each paper its `chosen` variants; the two seats of a game together or the first alone
    (`seats`: together, first); no panel that is zero in all runs of one length; at most `PANELS`
    panels, half as many where there are several papers.
    """
    seat = data["part"].str.extract(r"/([01])$")[0]
    panel = data["part"].map(lambda part: _in_words(part, words))
    if seats == "first":
        panel = panel.where(seat.isna(), panel + ", first seat")
    rows = data.assign(panel=panel)[(seat != "1") | (seats != "first")]
    rows = rows.groupby([*WHO, "step", "panel"], sort=False)["value"].mean().reset_index()
    length = rows.groupby(["paper", "variant"])["step"].transform("max")
    largest = rows["value"].abs().groupby([rows["paper"], length, rows["panel"]]).transform("max")
    names = rows["paper"] + " " + rows["panel"]
    several = length.groupby(rows["paper"]).transform("nunique") > 1
    names += (", " + length.astype(str) + " steps").where(several, "")
    empty = names[largest < 1e-9].unique()
    rows = rows[largest >= 1e-9]
    room = PANELS if rows["paper"].nunique() == 1 else PANELS // 2
    kept = [rows[:0]]
    more, others = [], []
    for paper, part in rows.groupby("paper", sort=False):
        names = part["variant"].unique()
        panels = part["panel"].unique()
        variants = chosen(paper, list(names))
        kept.append(part[part["variant"].isin(variants) & part["panel"].isin(panels[:room])])
        more += [f"{paper} {panel}" for panel in panels[room:]]
        others += [name for name in names if name not in variants]
    lists = {"zero everywhere": empty, "only in the CSV": [*more, *others]}
    texts = [f"Not drawn, {why}: {', '.join(what)}." for why, what in lists.items() if len(what)]
    return pd.concat(kept), " ".join(texts)


def _in_words(part: str, words: Mapping[str, str]) -> str:
    """A part's title: "length/kuhn_poker/0" is "poker", "grad_norm" is "all roles"."""
    name = re.sub(r"^(method/)?[a-z_]+(/|$)", "", re.sub(r"/[01]$", "", part)) or "all roles"
    for label, word in words.items():
        name = name.replace(label, word)
    return name
