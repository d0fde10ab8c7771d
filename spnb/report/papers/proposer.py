"""The proposer study's exhibit that is more than a measure over steps: which reward, when."""

import pandas as pd

from spnb.core.params import validate
from spnb.report import plots
from spnb.report.curves import Words
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import Frames, load_measures
from spnb.report.tables import load_own
from spnb.train.plan import Plan

WHEN = "proposer/when"


def when(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """A panel a measure, a group of bars a condition, a bar a reward: arms are reward-condition."""
    entry = load_own("proposer")[WHEN]
    words = entry.words
    arms = {f"{one}-{at}": (one, at) for at in words["conditions"] for one in words["rewards"]}
    used = frames.only(list(arms))
    measures = load_measures("proposer")
    parts = [
        measures[name].of_runs(used).assign(quantity=title)
        for title, name in words["panels"].items()
    ]
    data = pd.concat(parts, ignore_index=True)
    if data.empty:
        return None
    data["reward"] = [arms[name][0] for name in data["variant"]]
    data["condition"] = [words["conditions"][arms[name][1]] for name in data["variant"]]
    order = {name: validate(Words, look).look for name, look in words["rewards"].items()}
    with plots.style():
        figure = plots.new_figure(7.5, entry.title)
        panels = list(data.groupby("quantity", sort=False))
        axes = figure.subplots(len(panels), 1, squeeze=False).flat
        for ax, (title, rows) in zip(axes, panels, strict=True):
            plots.bars(ax, rows, "condition", "value", hue="reward", order=order)
            ax.set(xlabel="", ylabel="", title=title)
        plots.legend_below(figure, note=entry.note)
    return ExhibitContent(figure, used.runs, data)


MAKERS = {WHEN: when}
