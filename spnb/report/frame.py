"""Runs on disk as tidy frames, one kind of measure on them, and intervals.

Tables, figures and claims are made of measures. All intervals have 95 %. A level (a number of one
variant) has a bootstrap interval over seeds and, where the number is a mean of graded answers, over
the items of each; it stays within the number's range. A change since the start and a difference of
two variants are paired by seed and have Student's t over the seeds, which needs no range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from spnb.core.params import StrictData
from spnb.core.stats import (
    TOLERANCE,
    bootstrap_interval,
    difference_interval,
    improvement_interval,
    mean_interval,
)
from spnb.report.answers import (
    Answers,
    ItemContributions,
    different_weights,
    item_contributions,
    pooled,
    read_answers,
)
from spnb.train.runs import Run, RunError

RUN = ["paper", "scale", "variant", "seed"]
KEYS = ["suite", "opponent", "role", "decoding", "difficulty"]
RESULTS = [*RUN, "step", *KEYS, "metric", "value", "low", "high", "n"]
METRICS = [*RUN, "step", "metric", "role", "value"]
INDEX = ["variant", "seed", "step"]
Labels = Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]


@dataclass(frozen=True)
class Frames:
    """Runs with their results (columns `RESULTS`) and their training metrics (`METRICS`)."""

    runs: Sequence[Run] = ()
    results: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=RESULTS))
    metrics: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=METRICS))
    cache: dict[Path, Answers] = field(default_factory=dict, repr=False, compare=False)

    variants = property(lambda self: list(dict.fromkeys(run.variant for run in self.runs)))

    def only(self, variants: Sequence[str]) -> "Frames":
        """Those of some variants."""
        runs = [run for run in self.runs if run.variant in variants]
        tables = [t[t["variant"].isin(variants)] for t in (self.results, self.metrics)]
        return Frames(runs, *tables, cache=self.cache)

    def answers(self, run: Run) -> Answers:
        """A run's graded answers; read once, when they are first asked for."""
        if run.folder not in self.cache:
            self.cache[run.folder] = read_answers(run)
        return self.cache[run.folder]


def gather(runs: Sequence[Run]) -> Frames:
    """The results (a row an evaluated number) and the training metrics (a row a logged one).

    RunError for runs of the old layout.
    """
    results = records(runs, "evals")
    if "evaluation" in results:
        raise RunError("runs of an earlier version, whose results have other columns; train again")
    results = results.reindex(columns=RESULTS)
    labels = [*KEYS, "metric"]
    results[labels] = results[labels].astype(object).fillna("").astype(str)
    results = results.astype(dict.fromkeys(("value", "low", "high"), float))
    wide = records(runs, "metrics")
    if wide.empty:
        return Frames(runs, results)
    long = wide.melt([*RUN, "step"], var_name="name").dropna(subset="value")
    parts = long["name"].str.extract(r"^((?:(?:method|seconds)/)?[^/]+)/?(.*)$")
    metrics = long.assign(metric=parts[0], role=parts[1], value=long["value"].astype(float))
    return Frames(runs, results, metrics[METRICS].reset_index(drop=True))


def records(runs: Sequence[Run], name: str = "items") -> pd.DataFrame:
    """The graded answers of some runs (`items.jsonl`), or other records, one row each."""
    rows = [{key: run.params[key] for key in RUN} | row for run in runs for row in run.rows(name)]
    return pd.DataFrame(rows)


class Measure(StrictData):
    """One number a run: filters on the columns, metrics to add up, and what to take of the steps.

    A filter is a label or a list of them, * stands for anything, {name} for that parameter of the
    runs ("journey-{eval_documents[0]}"; a list of names is that many labels); one that is left out
    is the empty label: all roles together, all difficulties. What is selected is averaged.
    """

    source: Literal["evals", "metrics"] = "evals"
    suite: Labels = [""]
    opponent: Labels = [""]
    role: Labels = [""]
    decoding: Labels = [""]
    difficulty: Labels = [""]
    weights: dict[str, float] = Field(description="metrics to add up and their factors: {win: 100}")
    change: Literal["none", "difference", "percent", "steps"] = Field(
        "none", description="from the start; steps: its mean size from one step to the next"
    )
    window: float = Field(0, ge=0, le=1, description="share of the training averaged around a step")
    distance: float | None = Field(None, description="take the distance from this value")
    unit: str = ""

    @model_validator(mode="after")
    def _filters(self) -> "Measure":
        odd = [key for key in KEYS if key != "role" and getattr(self, key) != [""]]
        if self.source == "metrics" and odd:
            raise ValueError(f"{odd[0]} is set with source metrics; allowed: role")
        if self.change == "steps" and not self.window:
            raise ValueError("window is 0 with change steps; allowed: above 0")
        return self

    def select(self, frames: Frames) -> tuple[pd.DataFrame, str]:
        """The rows that it is made of, and in words what is missing ("" if nothing is)."""
        rows = frames.results if self.source == "evals" else frames.metrics
        rows = rows[rows["metric"].isin(list(self.weights))]
        if rows.empty:
            return rows, f"no {self.source} named {', '.join(self.weights)}"
        for key in KEYS if self.source == "evals" else ["role"]:
            known = rows[key].unique()
            labels = [one for label in getattr(self, key) for one in _filled(label, frames.runs)]
            matched = {label: [n for n in known if fnmatchcase(n, label)] for label in labels}
            if absent := [label for label, names in matched.items() if not names]:
                return rows[:0], f"no {self.source} with {key} {', '.join(map(repr, absent))}"
            rows = rows[rows[key].isin(sum(matched.values(), []))]
        return rows, ""

    def by_step(self, frames: Frames) -> pd.DataFrame:
        """The measure at every step of every run with all cells that any has: `INDEX`, value."""
        rows, missing = self.select(frames)
        if missing:
            return pd.DataFrame(columns=[*INDEX, "value"])
        keys = [key for key in KEYS if key in rows]
        wide = rows.pivot_table("value", [*INDEX, *keys], "metric").reindex(columns=[*self.weights])
        sums = (wide * pd.Series(self.weights)).sum(axis=1, skipna=False)
        values = sums.unstack(keys).mean(axis=1, skipna=False).dropna()
        if self.distance is not None:
            values = (values - self.distance).abs()
        return values.rename("value").reset_index()

    def of_runs(self, frames: Frames, share: float = 1.0) -> pd.DataFrame:
        """One number a run at a share of its training (0 is the start, 1 the end).

        Columns variant, seed, value, first and last (the steps it was taken from). A run without
        such a step, or with one step only where a change is wanted, has no line.
        """
        return self._at(self.by_step(frames), share)

    def _at(self, steps: pd.DataFrame, share: float) -> pd.DataFrame:
        """`of_runs` from `by_step`."""
        lines = []
        for (variant, seed), run in steps.groupby(["variant", "seed"]):
            rows = rows_nearest_step(run, share, self.window)
            value = rows["value"].mean()
            if self.change == "steps":
                value = rows["value"].diff().abs().mean()
            elif self.change != "none":
                start = (
                    rows_nearest_step(run, 0, self.window)["value"].mean()
                    if len(run) > 1
                    else float("nan")
                )
                value = value - start if self.change == "difference" else 100 * value / start
            lines.append((variant, seed, value, rows["step"].min(), rows["step"].max()))
        return pd.DataFrame(lines, columns=["variant", "seed", "value", "first", "last"]).dropna()

    def interval(self, frames: Frames, variant: str, share: float = 1.0) -> "Interval":
        """Mean over a variant's seeds, its ends, and n, the number of seeds.

        A level has a two-level bootstrap over seeds and items, or over seeds alone where it has no
        items (`spnb.report.answers`). Before training all seeds are the same weights: their items
        are put together, and n counts different weights.

        A change has Student's t over the seeds. As all seeds share the start's
        chance, a difference of levels that have items is at least as wide as theirs together.
        """
        own = frames.only([variant])
        steps = self.by_step(own)
        if self.change == "none":
            return self._level(own, steps, share)[0]
        gain = seed_interval(self._at(steps, share), share)
        if self.change != "difference" or gain[3] == 0:
            return gain
        level = self.model_copy(update={"change": "none"})
        (last, itemised), (first, _) = (level._level(own, steps, at) for at in (share, 0))
        return widened(gain, difference_interval(last[:3], first[:3])) if itemised else gain

    def _level(self, frames: Frames, steps: pd.DataFrame, share: float) -> tuple["Interval", bool]:
        """The interval of a level of one variant, from its `by_step`; whether it has items."""
        values = self._at(steps, share)
        started = share == 0 and self.source == "evals" and (values["first"] == 0).all()
        runs = [run for run in frames.runs if run.seed in set(values["seed"])]
        n = different_weights(runs) if started and runs else len(values)
        behind = self._added(frames, steps, values)
        if behind is None:
            repeated = started and values["value"].nunique() == 1
            seeds = [[[value]] for value in values["value"][: 1 if repeated else None]]
            return (*bootstrap_interval(seeds)[:3], n), False
        if n == 1:
            behind = [pooled(behind)]
        ends = (min(0.0, *self.weights.values()), max(0.0, *self.weights.values()))
        bounds = ends if all(each.bounded for each in behind) else None
        return (*bootstrap_interval([each.values for each in behind], bounds)[:3], n), True

    def _added(
        self, frames: Frames, steps: pd.DataFrame, values: pd.DataFrame
    ) -> list[ItemContributions] | None:
        """What each item adds to the numbers in `values`, run by run; None where one has no items.

        Args:
            steps, values: `by_step` and `of_runs` of one variant.
        """
        runs = {run.seed: run for run in frames.runs}
        known = set(values["seed"]) <= {*runs}
        if self.source != "evals" or self.distance is not None or values.empty or not known:
            return None
        taken = steps.merge(values[["seed", "first", "last"]], on="seed")
        taken = taken.loc[taken["step"].between(taken["first"], taken["last"]), ["seed", "step"]]
        by_seed = self.select(frames)[0].merge(taken).groupby("seed")
        behind = [
            item_contributions(frames.answers(runs[seed]), own, self.weights)
            for seed, own in by_seed
        ]
        return None if any(each is None for each in behind) else behind

    def difference(self, frames: Frames, first: str, second: str) -> "Interval":
        """`first` minus `second` at the end, paired by seed, with Student's t over the pairs.

        Not a bootstrap: with five pairs its percentiles are a third too narrow. Where all pairs
        agree, the levels say how wide the interval is.
        """
        pairs = paired_difference(self.of_runs(frames.only([first, second])), first, second)
        if pairs[3] < 2 or pairs[2] - pairs[1] > TOLERANCE:
            return pairs
        sides = [self.interval(frames, name)[:3] for name in (first, second)]
        low, high = difference_interval(*sides)
        return pairs[0], low, high, pairs[3]

    def p_improvement(self, frames: Frames, first: str, second: str) -> "Interval":
        """The share of all pairs of seeds in which `first` is higher at the end; ties are half."""
        values = self.of_runs(frames.only([first, second])).groupby("variant")["value"]
        sides = (
            values.get_group(name) if name in values.groups else [] for name in (first, second)
        )
        return improvement_interval(*sides)


Interval = tuple[float, float, float, int]


def _filled(label: str, runs: Sequence[Run]) -> list[str]:
    """A label with the runs' parameters in it, or those that a parameter lists; as it is where
    there are none of these."""
    if "{" not in label or not runs:
        return [label]
    listed = runs[0].params.get(label.strip("{}"))
    if isinstance(listed, list):
        return listed
    try:
        return [label.format(**runs[0].params)]
    except (KeyError, IndexError):
        return [label]


def rows_nearest_step(rows: pd.DataFrame, share: float, window: float = 0) -> pd.DataFrame:
    """Those rows whose step is nearest to a share of the training, or within `window` (a share)."""
    first = rows["step"].min()
    last = rows["step"].max()
    distance = (rows["step"] - max(share * last, first)).abs()
    return rows[distance <= max(distance.min(), window * (last - first))]


def seed_interval(rows: pd.DataFrame, share: float = 1.0) -> Interval:
    """Mean, ends by Student's t, and n over seeds.

    At the start, equal numbers are one measurement, n = 1.
    """
    values = rows["value"].tolist()
    return mean_interval(values[:1] if share == 0 and len(set(values)) == 1 else values)


def widened(interval: Interval, ends: tuple[float, float]) -> Interval:
    """An interval that reaches to these ends as well, where they are not nan."""
    mean, low, high, n = interval
    return mean, float(np.fmin(low, ends[0])), float(np.fmax(high, ends[1])), n


def over_seeds(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean and bootstrap interval over seeds by group: columns `by`, value, low, high, n (seeds).

    Rows of one seed in a group (several games, say) are averaged first.
    """
    means = frame.groupby([*by, "seed"], sort=False)["value"].mean().groupby(list(by), sort=False)
    rows = [(*keys, *bootstrap_interval([[[v]] for v in values])) for keys, values in means]
    return pd.DataFrame(rows, columns=[*by, "value", "low", "high", "n"])


def paired_difference(frame: pd.DataFrame, first: str, second: str) -> Interval:
    """Mean, ends and n of variant `first` minus variant `second`, paired by seed.

    Both variants of a seed share start, deals and evaluation seeds, which the pairs take out.
    """
    wide = frame.groupby(["seed", "variant"])["value"].mean().unstack("variant")
    wide = wide.reindex(columns=[first, second])
    return mean_interval((wide[first] - wide[second]).tolist())


def compare(
    frames: Frames,
    measures: Mapping[str, Measure],
    variants: Sequence[str],
    minus: str | None = None,
    share: float = 1.0,
    digits: int = 2,
) -> pd.DataFrame:
    """Rows variants, columns measures: each with its interval, or the difference to `minus`."""
    names = [name for name in variants if name != minus]

    def cell(measure: Measure, name: str) -> str:
        over = measure.difference(frames, name, minus) if minus else None
        return format_interval(*(over or measure.interval(frames, name, share))[:3], digits)

    table = {label: [cell(each, name) for name in names] for label, each in measures.items()}
    return pd.DataFrame(table, index=names)


def format_interval(value: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """A number as printed everywhere: "52.1 [48.0, 56.2]", or "52.1 (n = 1)" without interval."""
    if pd.isna(value):
        return "-"
    if pd.isna(low) or pd.isna(high):
        return f"{value:.{digits}f} (n = 1)"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
