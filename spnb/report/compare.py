"""Variants of any method beside one of them: a forest plot and a table of paired differences."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from spnb.core.params import ParamError, require
from spnb.report import plots
from spnb.report.curves import looks
from spnb.report.frame import (
    RESULTS,
    RUN,
    Frames,
    Measure,
    gather,
    load_measures,
    pick,
    records,
    section,
    within,
)
from spnb.train.plan import Plan
from spnb.train.runs import RunError

SUITE = ["suite", "opponent", "decoding"]
COLUMNS = ["variant", "measure", "difference", "low", "high", "n", "smallest visible"]


@dataclass(frozen=True)
class Comparison:
    """A table of differences (`COLUMNS`), their forest plot, and what both show."""

    table: pd.DataFrame
    figure: Figure
    caption: str

    def _ipython_display_(self) -> None:
        display(self.figure)
        display(self.table.round(2))
        print(self.caption)


def compare(plan: Plan, against: str = "full") -> Comparison:
    """The plan's variants minus one of them after training, paired by seed.

    Measures are the paper's main ones (`main` in `tables.yaml`); where it has none that these runs
    have, the mean score (%) of each suite. An interval has Student's t over the n pairs of seeds,
    95 %; of a share it is clipped to what a difference of two shares can be. A true difference
    below the smallest visible one, half of the interval's width before that, would not be told
    from 0.

    Raises:
        ParamError: one variant alone, `against` is not in the plan, no seed in common.
        RunError: a variant without finished runs.
    """
    if len(plan.variants) < 2:
        raise ParamError(f"variants is {plan.variants}; allowed: two or more to compare")
    require("against", against, plan.variants)
    frames = gather([run for run in plan.all() if run.finished])
    if missing := [name for name in plan.variants if name not in frames.variants]:
        raise RunError(f"no finished run of {', '.join(missing)}; run first: run_all(plan)")
    seeds = {name: [r.seed for r in frames.runs if r.variant == name] for name in frames.variants}
    for name, own in seeds.items():
        if not {*own} & {*seeds[against]}:
            raise ParamError(f"seeds of {name} is {own}; allowed: {against}'s, {seeds[against]}")
    last = frames.results.groupby("variant")["step"].max()
    frames, measures = main_measures(frames, plan.paper)
    table = differences(frames, measures, against)
    caption = f"Each variant minus {against} after training, paired by seed: 95 % intervals."
    if last.nunique() > 1:
        shown = ", ".join(f"{name} {steps:g}" for name, steps in last.items())
        caption += f" Each at its own last step: {shown}."
    if lost := [name for name in frames.variants if name not in (against, *table["variant"])]:
        caption += f" Left out, of other games or documents: {', '.join(lost)}."
    return Comparison(table, forest(table, measures, plan.paper, against), caption)


def main_measures(frames: Frames, paper: str) -> tuple[Frames, dict[str, Measure]]:
    """The paper's main measures that these runs have, else the suites' scores; with their runs."""
    names = section(paper, "tables.yaml", "main")
    measures = {name: pick(load_measures(paper), name, "main: ") for name in names}
    there = {name: each for name, each in measures.items() if len(each.of_runs(frames))}
    return (frames, there) if there else suite_scores(frames)


def suite_scores(frames: Frames) -> tuple[Frames, dict[str, Measure]]:
    """The mean score of each suite (opponent, decoding) as results, and measures in per cent."""
    rows = records(frames.runs).reindex(columns=[*RUN, "step", *SUITE, "score"])
    rows[SUITE] = rows[SUITE].fillna("").astype(str)
    means = rows.groupby([*RUN, "step", *SUITE])["score"].mean().rename("value").reset_index()
    results = means.assign(metric="score", role="", difficulty="").reindex(columns=RESULTS)
    measures = {}
    for labels in means[SUITE].drop_duplicates().to_dict("records"):
        words = [f"against {v}" if k == "opponent" else v for k, v in labels.items() if v]
        measures[", ".join(words)] = Measure(**labels, weights={"score": 100})
    return replace(frames, results=results), measures


def differences(frames: Frames, measures: Mapping[str, Measure], against: str) -> pd.DataFrame:
    """A row a variant and measure, `COLUMNS`; those without a pair of numbers are left out, or that
    are of other games or documents in one variant than in `against`.

    Raises:
        RunError: none is left.
    """
    lines = []
    for label, measure in measures.items():
        of = {name: measure.labels(frames.only([name])) for name in frames.variants}
        for variant in (name for name in of if name != against and of[name] == of[against]):
            pairs = measure.difference(frames, variant, against)
            visible = (pairs[2] - pairs[1]) / 2
            shown = within(pairs, measure.reach())
            lines += [(variant, label, *shown, visible)] if pairs[3] else []
    if not lines:
        raise RunError(f"variants {', '.join(frames.variants)} have no evaluated number in common")
    return pd.DataFrame(lines, columns=COLUMNS)


def forest(
    table: pd.DataFrame, measures: Mapping[str, Measure], paper: str, against: str
) -> Figure:
    """A panel a measure, a row a variant with its n: the difference with its interval, and 0; in
    percentage points where the measure is in per cent."""
    variants = list(table["variant"].unique())
    order = looks(paper, variants)
    pairs = table.groupby("variant")["n"].unique()
    labels = [f"{name}, n = {', '.join(map(str, sorted(pairs[name])))}" for name in variants]
    panels = dict(list(table.groupby("measure", sort=False)))
    rows = -(-len(panels) // 3)
    with plots.style():
        figure = plots.new_figure(rows * (1.5 + 0.25 * len(variants)), f"Minus {against}")
        axes = figure.subplots(rows, min(3, len(panels)), sharey=True, squeeze=False)
        for ax in axes.flat[len(panels) :]:
            ax.set_axis_off()
        for ax, (title, part) in zip(axes.flat, panels.items(), strict=False):
            ax.axvline(0, color="0.45", linewidth=0.9, linestyle=":")
            for row in part.itertuples():
                look = {"color": order[row.variant].colour, "marker": "o", "markevery": [1]}
                ends = [row.low, row.difference, row.high]
                ax.plot(ends, [variants.index(row.variant)] * 3, linewidth=1.4, **look)
            unit = " (points)" if 100 in measures[title].weights.values() else ""
            ax.set(title=title, xlabel=f"difference{unit}")
            ax.set(yticks=range(len(variants)), yticklabels=labels)
            ax.set_ylim(len(variants) - 0.5, -0.5)
    plt.close(figure)
    return figure
