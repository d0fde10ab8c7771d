"""Runs on disk as tidy frames, one kind of measure on them, and intervals.

Tables, figures and claims are made of measures. All intervals have 95 %. A level (a number of one
variant) has a bootstrap interval over seeds and, where the number is a mean of graded answers, over
the items, which all seeds share (SPIRAL's matches are dealt anew in each seed and drawn with it);
it stays within the number's range. A change since the start and a difference of two variants are
paired by seed and have Student's t over the seeds.

An evaluated number that is the mean of a column of the graded answers is taken apart into what each
item adds to it (`spnb.report.items`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from spnb import reference
from spnb.core.params import StrictData, require, validate
from spnb.core.stats import TOLERANCE, bootstrap_interval, difference_interval, mean_interval
from spnb.core.strict_yaml import own_yaml
from spnb.evaluate.benchmarks import BENCHMARKS
from spnb.report.items import (
    KEYS,
    Answers,
    Ends,
    Interval,
    by_item,
    different_weights,
    item_contributions,
    item_gains,
    item_interval,
    read_answers,
)
from spnb.train.runs import Run, RunError

RUN = ["paper", "scale", "variant", "seed"]
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
    # what `once` made: `only` shares it, `replace` begins anew; the tables are not changed in place
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    variants = property(lambda self: list(dict.fromkeys(run.variant for run in self.runs)))

    @property
    def own(self) -> list[str]:
        """A user's own variants: those that the paper's reference files do not name."""
        own = (run.variant for run in self.runs if run.variant not in named_variants(run.paper))
        return list(dict.fromkeys(own))

    def with_own(self, variants: Sequence[str]) -> "Frames":
        """Those of some variants and of a user's own."""
        return self.only([*variants, *self.own])

    def only(self, variants: Sequence[str]) -> "Frames":
        """Those of some variants."""
        runs = [run for run in self.runs if run.variant in variants]
        tables = [t[t["variant"].isin(variants)] for t in (self.results, self.metrics)]
        own = Frames(runs, *tables, self.cache)
        own.__dict__["known"] = self.known
        return own

    def once(self, asked: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` makes of these rows: a table of claims asks for the same again and again."""
        asked = (*asked, len(self.results), len(self.metrics))
        if asked not in self.known:
            self.known[asked] = make()
        return self.known[asked]

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
    """The answers of some runs, or other records; RunError for a finished run that lost rows."""
    for run in runs:
        if run.finished and name in (noted := run.facts().get("rows", {})):
            run.check_rows({"rows": {name: noted[name]}})
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
    since: float = Field(0, ge=0, le=1, description="share of the training that a change is from")
    until: float = Field(1, ge=0, le=1, description="share of the training that counts")
    window: float = Field(0, ge=0, le=1, description="share of the training averaged around a step")
    given: str = Field("", description="a logged metric: steps at which it is 0 do not count")
    unit: str = ""

    @model_validator(mode="after")
    def _filters(self) -> "Measure":
        odd = [key for key in KEYS if key != "role" and getattr(self, key) != [""]]
        if self.source == "metrics" and odd:
            raise ValueError(f"{odd[0]} is set with source metrics; allowed: role")
        if self.source == "evals" and self.given:
            raise ValueError(f"given is {self.given!r} with source evals; allowed: none")
        if self.change == "steps" and not self.window:
            raise ValueError("window is 0 with change steps; allowed: above 0")
        if self.since >= self.until:
            raise ValueError(f"since is {self.since:g}; allowed: below until, {self.until:g}")
        return self

    def select(self, frames: Frames) -> tuple[pd.DataFrame, str]:
        """The rows that it is made of, and in words what is missing ("" if nothing is)."""
        rows = frames.results if self.source == "evals" else frames.metrics
        rows = rows[rows["metric"].isin(list(self.weights))]
        if rows.empty:
            return rows, f"no {self.source} named {', '.join(self.weights)}"
        for key, labels in self.labels(frames).items():
            known = rows[key].unique()
            matched = {label: [n for n in known if fnmatchcase(n, label)] for label in labels}
            if absent := [label for label, names in matched.items() if not names]:
                return rows[:0], f"no {self.source} with {key} {', '.join(map(repr, absent))}"
            rows = rows[rows[key].isin(sum(matched.values(), []))]
        return rows, ""

    def labels(self, frames: Frames) -> dict[str, list[str]]:
        """What it takes, with the parameters of these runs in it."""
        keys = KEYS if self.source == "evals" else ["role"]
        return {
            key: [one for label in getattr(self, key) for one in _filled(label, frames.runs)]
            for key in keys
        }

    def by_step(self, frames: Frames) -> pd.DataFrame:
        """The measure at every step of every run with all cells that any has: `INDEX`, value, which
        is NaN at a step that does not count."""
        rows, missing = self.select(frames)
        if missing:
            return pd.DataFrame(columns=[*INDEX, "value"])
        keys = [key for key in KEYS if key in rows]
        wide = rows.pivot_table("value", [*INDEX, *keys], "metric").reindex(columns=[*self.weights])
        sums = (wide * pd.Series(self.weights)).sum(axis=1, skipna=False)
        values = sums.unstack(keys).mean(axis=1, skipna=False).dropna()
        if self.given:
            given = Measure(source="metrics", weights={self.given: 1}).by_step(frames)
            values = values.where(given.set_index(INDEX)["value"].reindex(values.index) > 0)
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
            rows = rows_nearest_step(run, min(share, self.until), self.window)
            value = rows["value"].mean()
            if self.change == "steps":
                value = rows["value"].diff().abs().mean()
            elif self.change != "none":
                first = rows_nearest_step(run, self.since, self.window)["value"].mean()
                start = first if len(run) > 1 else nan
                value = value - start if self.change == "difference" else 100 * value / start
            lines.append((variant, seed, value, rows["step"].min(), rows["step"].max()))
        return pd.DataFrame(lines, columns=["variant", "seed", "value", "first", "last"]).dropna()

    def interval(self, frames: Frames, variant: str, share: float = 1.0) -> Interval:
        """Mean over a variant's seeds, its ends, and n, the number of seeds.

        A level has a bootstrap over seeds and items, or over seeds alone where it has no items.
        Before training all seeds are the same weights: their items are put together, and n counts
        different weights. A change has Student's t over the seeds; as they share the start's chance
        and the items, it is at least as wide as a bootstrap of what each item gained.
        """
        own = frames.only([variant])
        return own.once((repr(self), variant, share), lambda: self._interval(own, share))

    def _interval(self, own: Frames, share: float) -> Interval:
        steps = self.by_step(own)
        if self.change == "none":
            return self._level(own, steps, share)
        changes = self._at(steps, share)
        change = within(seed_interval(changes, share), self.range)
        if self.change != "difference" or change[3] == 0:
            return change
        gains = self.gains(own, steps[steps["seed"].isin(changes["seed"])], share)
        if gains is None:
            return change
        return within(widened(change, item_interval(gains, self.sums)[1:3]), self.range)

    @property
    def sums(self) -> Ends:
        """The least and the largest value of numbers from 0 to 1, or change of it."""
        low, high = (end(0.0, *self.weights.values()) for end in (min, max))
        return (low - high, high - low) if self.change == "difference" else (low, high)

    @property
    def range(self) -> Ends:
        """The least and the largest value that it can have. A weight of 100 is of a share in per
        cent; without one, or as a ratio, it has no ends."""
        share = max(map(abs, self.weights.values())) == 100
        return self.sums if share and self.change in ("none", "difference") else (-inf, inf)

    def reach(self, other: "Measure | None" = None) -> Ends:
        """The least and the largest difference of two variants, the second of `other` if that is
        given. Evaluated changes since one start differ as their ends do."""
        pair = [self, other or self]
        if all((one.source, one.change, one.since) == ("evals", "difference", 0) for one in pair):
            pair = [one.model_copy(update={"change": "none"}) for one in pair]
        (low, high), (its_low, its_high) = (one.range for one in pair)
        return low - its_high, high - its_low

    def _level(self, frames: Frames, steps: pd.DataFrame, share: float) -> Interval:
        """The interval of a level of one variant, from its `by_step`."""
        values = self._at(steps, share)
        started = share == 0 and self.source == "evals" and (values["last"] == 0).all()
        runs = [run for run in frames.runs if run.seed in set(values["seed"])]
        n = different_weights(runs) if started and runs else len(values)
        items = self.items(frames, steps, share)
        if items is None:
            repeated = started and values["value"].nunique() == 1
            seeds = [{"": [value]} for value in values["value"][: 1 if repeated else None]]
            return *bootstrap_interval(seeds)[:3], n
        if n == 1:
            items["value"] /= items["seed"].nunique()
            items = by_item(items.assign(seed=0), ["seed"])
        return *item_interval(items, self.sums)[:3], n

    def items(self, frames: Frames, steps: pd.DataFrame, share: float) -> pd.DataFrame | None:
        """What each item adds to a level of one variant (columns seed and `item_contributions`'),
        None without items. `steps`: its `by_step`. Opponents get the seed's name: it deals anew."""
        values = self._at(steps, share)
        runs = {run.seed: run for run in frames.runs}
        if self.source != "evals" or values.empty or not {*values["seed"]} <= {*runs}:
            return None
        taken = steps.merge(values[["seed", "first", "last"]], on="seed")
        taken = taken.query("first <= step <= last")[["seed", "step"]]
        parts = []
        for seed, own in self.select(frames)[0].merge(taken).groupby("seed"):
            part = item_contributions(frames.answers(runs[seed]), own, self.weights)
            if part is None:
                return None
            part.loc[part["opponent"] != "", "opponent"] += f", dealt by {seed}"
            parts.append(part.assign(seed=seed))
        return pd.concat(parts)

    def gains(self, own: Frames, steps: pd.DataFrame, share: float) -> pd.DataFrame | None:
        """What each item adds to a change of one variant, as `items` to a level."""
        level = self.model_copy(update={"change": "none"})
        last, first = (level.items(own, steps, at) for at in (share, self.since))
        return None if last is None or first is None else item_gains(last, first)

    def differences(
        self, frames: Frames, first: str, second: str, other: "Measure | None" = None
    ) -> list[float]:
        """`first` minus `second` at the end, one a seed; NaN where only one of them has the seed.

        Both variants of a seed share start, deals and evaluation seeds, which the pairs take out.
        `other` is the measure of `second`, where it is not this one.
        """

        def ends(measure: Measure, name: str) -> pd.Series:
            own = frames.only([name])
            made = lambda: measure.of_runs(own).set_index("seed")["value"]  # noqa: E731
            return own.once((repr(measure), name), made)

        return (ends(self, first) - ends(other or self, second)).tolist()

    def difference(
        self, frames: Frames, first: str, second: str, other: "Measure | None" = None
    ) -> Interval:
        """The mean of `differences` with its interval: `paired_interval`, which may go beyond
        `reach`: a p or a width follows from it, what is shown is cut (`within`). Two changes of one
        variant share its start and its items, so theirs is as wide as a change's, too."""
        sides = ((self, first), (other or self, second))
        pairs = paired_interval(
            self.differences(frames, first, second, other),
            lambda: [measure.interval(frames, name)[:3] for measure, name in sides],
        )
        if first != second or {one.change for one, _ in sides} != {"difference"}:
            return pairs
        own = frames.only([first])
        gains = [measure.gains(own, measure.by_step(own), 1.0) for measure, _ in sides]
        if gains[0] is None or gains[1] is None:
            return pairs
        (low, high), (its_low, its_high) = (measure.sums for measure, _ in sides)
        items = item_interval(item_gains(*gains), (low - its_high, high - its_low))
        return widened(pairs, items[1:3])


def read_yaml(paper: str, name: str) -> dict[str, Any]:
    """A file of a paper's reference folder; ParamError names the papers that have one."""
    sources = reference.sources(name)
    require("paper", paper, sources)
    return own_yaml(sources[paper].read_text(encoding="utf-8"))


@cache
def known_variants(paper: str) -> Mapping[str, Any]:
    """How the paper's variants are drawn: the section `variants` of `figures.yaml`, by name."""
    return section(paper, "figures.yaml", "variants")


@cache
def named_variants(paper: str) -> set[str]:
    """The variants that the paper's reference files name, to be drawn or for an exhibit alone."""
    own = section(paper, "tables.yaml", "own").values()
    return {*known_variants(paper)}.union(*(one.get("variants", []) for one in own))


def section(paper: str, name: str, key: str) -> Any:
    """A section of a file of a paper's reference folder, {} where there is none."""
    return read_yaml(paper, name).get(key, {}) if paper in reference.sources(name) else {}


def benchmarks_of(frames: Frames) -> dict[str, Measure]:
    """Right answers (%) to each measured benchmark, by its column in the paper's tables."""
    suites = {*frames.results["suite"]}
    paper = "".join(frames.results["paper"][:1])
    return {
        each.papers[paper].column: Measure(suite=name, decoding="*", weights={"accuracy": 100})
        for name, each in BENCHMARKS.items()
        if name in suites and paper in each.papers
    }


def plain(label: str) -> str:
    """A label's letters and digits: papers write MATH500 and MATH 500, AIME24 and AIME'24."""
    return re.sub(r"\W", "", label).lower()


def load_measures(paper: str) -> dict[str, Measure]:
    """The measures of a paper's tables, figures and claims by name; ParamError if it has none."""
    tables = ["tables.yaml"] * (paper in reference.sources("tables.yaml"))
    files = [*tables, *reference.claims_files(paper)] or ["tables.yaml"]
    contents = [read_yaml(paper, name) for name in files]
    return {key: measure for each in contents for key, measure in measures_of(each).items()}


def measures_of(content: Mapping[str, Any]) -> dict[str, Measure]:
    """The section `measures` of a file."""
    entries = content.get("measures", {})
    return {name: validate(Measure, each, f"{name}: ") for name, each in entries.items()}


def pick(measures: Mapping[str, Measure], name: str, where: str) -> Measure:
    """A measure by its name; ParamError for an unknown one, which begins with `where`."""
    require(f"{where}measure", name, measures)
    return measures[name]


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
    first, last = rows["step"].min(), rows["step"].max()
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


def within(interval: Interval, ends: Ends) -> Interval:
    """An interval as it is shown: no end is beyond what is possible; nan stays."""
    mean, low, high, n = interval
    return mean, *map(float, np.clip((low, high), *ends)), n


def paired_interval(
    differences: Sequence[float], levels: Callable[[], Sequence[Sequence[float]]]
) -> Interval:
    """Mean, Student's t and n of differences of pairs of seeds.

    Not a bootstrap: with five pairs its percentiles are a third too narrow. Where all pairs agree,
    the two `levels` (value, low, high each) say how wide the interval is.
    """
    pairs = mean_interval(differences)
    if pairs[3] < 2 or pairs[2] - pairs[1] > TOLERANCE:
        return pairs
    first, second = levels()
    ends = difference_interval(first, second)
    moved = pairs[0] - (first[0] - second[0])  # the levels may have seeds that make no pair
    return pairs[0], ends[0] + moved, ends[1] + moved, pairs[3]


def format_interval(value: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """A number as printed everywhere: "52.1 [48.0, 56.2]", or "52.1 (n = 1)" without interval."""
    if pd.isna(value):
        return "-"
    if pd.isna(low) or pd.isna(high):
        return f"{value:.{digits}f} (n = 1)"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
