"""Curves that move while runs train: in JupyterLab the figure is redrawn in place."""

import re
import time
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from spnb import reference
from spnb.core.params import unknown
from spnb.report import plots
from spnb.report.curves import looks
from spnb.report.frame import Frames, Measure, gather
from spnb.report.tables import load_measures
from spnb.train.plan import Plan
from spnb.train.runs import RunError


class LiveCurves:
    """Given to `run_all(plan, on_poll=...)`: draws all runs of the plan so far; nothing elsewhere.

    Args:
        panels: what to draw by its words, {"score against random play (%)": "training games"}, or a
            list of names. A name is a measure of the paper's `tables.yaml`, or a metric of the
            training log: "entropy" over all roles (their mean where there is no such number),
            "reward/*/0" the mean over roles of that form, here the first seats.
        every: seconds between two drawings.
    """

    def __init__(self, panels: Mapping[str, str] | Sequence[str], every: float = 10.0):
        named = isinstance(panels, Mapping)
        self.panels = dict(panels) if named else {name: name for name in panels}
        self.every = every
        self.handle: Any = None
        self.drawn = 0.0

    def __call__(self, plan: Plan) -> None:
        """Draws if it is time, or all is finished, and there is something to draw."""
        if get_ipython() is None:
            return
        soon = time.monotonic() - self.drawn < self.every
        if soon and not all(run.finished for run in plan.all()):
            return
        try:
            frames = gather(plan.all())
        except (OSError, RunError):  # a file that is being written: the next drawing has it
            return
        if frames.metrics.empty and frames.results.empty:
            return
        self.drawn = time.monotonic()
        figure = draw(frames, plan.paper, self.panels)
        if self.handle is None:
            self.handle = display(figure, display_id=True)
        else:
            self.handle.update(figure)
        plt.close(figure)


def draw(frames: Frames, paper: str, panels: Mapping[str, str]) -> Figure:
    """A panel a name over training steps, a line a variant; it says so where nothing is there."""
    measures = load_measures(paper) if paper in reference.sources("tables.yaml") else {}
    order = looks(paper, frames.variants)
    rows = 1 if len(panels) <= 3 else -(-len(panels) // 3)
    with plots.style():
        figure = plots.new_figure(0.9 + 2.2 * rows)
        for words, ax in plots.multiples(figure, list(panels)).items():
            data = _values(frames, panels[words], measures)
            if len(data):
                plots.curve(ax, data, order)
            else:
                text = fill(_absent(frames, panels[words], measures), 34)[:300]
                ax.text(0.05, 0.9, text, transform=ax.transAxes, fontsize=8, va="top")
        plots.legend_below(figure, note=plots.KEY)
    return figure


def _values(frames: Frames, name: str, measures: Mapping[str, Measure]) -> pd.DataFrame:
    """Columns variant, seed, step, value of a measure or a metric."""
    measure = measures.get(name)
    if measure is None:
        metric, role = re.match(r"((?:(?:method|seconds)/)?[^/]+)/?(.*)", name).groups()
        known = frames.metrics.loc[frames.metrics["metric"] == metric, "role"]
        role = role or ("" if (known == "").any() else "?*")
        measure = Measure(source="metrics", role=role, weights={metric: 1})
    parts = [measure.by_step(frames.only([variant])) for variant in frames.variants]
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def _absent(frames: Frames, name: str, measures: Mapping[str, Measure]) -> str:
    """Why a panel is empty."""
    if name in measures or frames.metrics.empty:
        return "not measured yet"
    return unknown("panel", name, [*frames.metrics["metric"].unique(), *measures])
