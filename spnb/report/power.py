"""What a paired difference could show: half-widths by seeds, by held-out items, by evaluations.

Of a difference between two variants (or a variant and its start) each seed s has one value d_s, the
sum over items of what they add (`Measure.items`), on average over the evaluations in a window at
the end of the training. Two components make the spread of d_s. With x_si what item i adds in seed
s, m_h items in stratum h (suite and difficulty) and means over seeds and over a stratum's items,

    items = sum_h m_h sum_si (x_si - x_s. - x_.i + x_..)^2 / ((seeds - 1) (m_h - 1))
    seeds = max(0, var_s(d_s) - items),

a two-way layout with random effects within each stratum: `items` is the variance that asking so few
items adds to d_s (all seeds are asked the same, so that an item's own difficulty is no spread). A
difference of n seeds with r times as many items has the half-width of Student's t,

    t(.975, n - 1) sqrt((seeds + items / r) / n).

The start is one measurement, whose chance all seeds share, and asked of the same items as the end.
So the change of a variant since its start keeps the spread of what items gained, however many seeds
there are: with x_.i the mean over seeds, its half-width is at least

    1.96 sqrt((seeds + items / r) / n + sum_h m_h var_i(x_.i) / r).

Components of few seeds are estimates themselves: of ten, the standard deviation is good to a third.
"""

from collections.abc import Mapping, Sequence
from math import nan, sqrt
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from spnb.core.stats import mean_interval
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import KEYS, Frames, Measure, load_measures, rows_nearest_step
from spnb.report.tables import load_own
from spnb.train.plan import Plan

WINDOWS = {"last": 0.0, "last 25 %": 0.25, "last half": 0.5}
"""Shares of the training whose evaluations are averaged."""
SEEDS = (3, 5, 10, 20)
RATIOS = {"a quarter of": 0.25, "half": 0.5, "twice": 2.0}
"""Of the items that there are, behind a half-width of ten seeds."""
START = "start"


class Components(NamedTuple):
    """Variances of a seed's difference: between seeds, of asking so few items, and, of a change
    since the start, of what all seeds share."""

    seeds: float
    items: float
    shared: float = 0.0

    def half_width(self, n: int, ratio: float = 1.0) -> float:
        """Of the 95 % t-interval of n seeds with `ratio` times as many items."""
        from scipy import stats  # late: 0.7 s

        own = (self.seeds + self.items / ratio) / n
        together = float(stats.norm.ppf(0.975)) * sqrt(own + self.shared / ratio)
        return max(float(stats.t.ppf(0.975, n - 1)) * sqrt(own), together)


def components(table: pd.DataFrame, since_start: bool = False) -> Components:
    """The variances.

    Args:
        table: a row a seed, a column an item (its first level is the stratum); what an item adds
            to the seed's difference. A stratum with one item says nothing of items; with fewer than
            two seeds both are nan.
        since_start: whether it is what each item gained since the start.
    """
    if len(table) < 2:
        return Components(nan, nan)
    items = shared = 0.0
    for _, part in table.T.groupby(level=0):
        x = part.T.to_numpy(float)
        n, m = x.shape
        rest = x - x.mean(axis=1, keepdims=True) - x.mean(axis=0) + x.mean()
        if m > 1:
            items += m * (rest**2).sum() / ((n - 1) * (m - 1))
            shared += m * x.mean(axis=0).var(ddof=1) * since_start
    return Components(max(0.0, float(table.sum(axis=1).var()) - items), items, shared)


def contributions(frames: Frames, measure: Measure, variant: str, share: float) -> pd.DataFrame:
    """What each item adds to a measure of a variant: a row a seed, a column a stratum and item."""
    own = frames.only([variant])
    rows = measure.items(own, measure.by_step(own), share)
    if rows is None:
        raise ValueError(f"a measure of {variant} has no items; allowed: means of graded answers")
    rows = rows.assign(stratum=rows[KEYS].agg("/".join, axis=1))
    return rows.pivot_table("value", "seed", ["stratum", "item"], "sum")


def line(pairs: Sequence[pd.DataFrame], since_start: bool = False) -> dict[str, Any]:
    """The numbers of a row: `contributions` of one arm and of what it is compared with."""
    first, second = pairs
    seeds = first.index.intersection(second.index)
    table = first.loc[seeds].sub(second.loc[seeds], fill_value=0.0).fillna(0.0)
    mean, *_, n = mean_interval(table.sum(axis=1))
    parts = components(table, since_start)
    wide = {f"{count} seeds": parts.half_width(count) for count in SEEDS}
    wide |= {f"10 seeds, {name} the items": parts.half_width(10, r) for name, r in RATIOS.items()}
    spread = {"seeds' spread": sqrt(parts.seeds), "items' spread": sqrt(parts.items)}
    return {"pairs": n, "items": table.shape[1], "difference": mean} | spread | wide


def core_minutes(frames: Frames, variant: str) -> float:
    """Of one core, a run: the median over seeds that ran in one piece."""
    facts = [run.facts() for run in frames.runs if run.variant == variant]
    whole = [fact["seconds"] / 60 for fact in facts if not fact["resumed"]]
    return median(whole) if whole else nan


def table(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """The half-widths of a paper's main comparisons: `words` of its entry in `tables.yaml` name the
    measure, the variant `of`, and those that it is compared with; None without their runs."""
    entry = load_own(plan.paper)[f"{plan.paper}/power"]
    of, measure = entry.words["of"], load_measures(plan.paper)[entry.words["measure"]]
    against: Mapping[str, str] = entry.words["against"]
    used = frames.only(entry.variants)
    if set(entry.variants) - set(used.variants):
        return None
    parts = {
        (name, window): contributions(used, measure.model_copy(update={"window": share}), name, 1.0)
        for name in used.variants
        for window, share in WINDOWS.items()
    }
    parts |= {(START, window): contributions(used, measure, of, 0.0) for window in WINDOWS}
    steps = measure.by_step(used.only([of]))
    first = steps[steps["seed"] == steps["seed"].min()]
    rows = []
    for role, name in against.items():
        minutes = sum(core_minutes(used, arm) for arm in {of, name} - {START})
        for window, share in WINDOWS.items():
            row = {"against": name if role == name else f"{role}: {name}", "window": window}
            row["evaluations"] = len(rows_nearest_step(first, 1.0, share))
            numbers = line([parts[of, window], parts[name, window]], name == START)
            rows.append(row | numbers | {"minutes a pair": minutes})
    return ExhibitContent(pd.DataFrame(rows).round(1), used.runs)
