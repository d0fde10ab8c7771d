"""Curves that move while runs train: in JupyterLab the figure is redrawn in place."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from spnb import reference
from spnb.core.params import unknown
from spnb.report.curves import Curves, Panel, looks
from spnb.report.frame import Frames, Measure, gather, load_measures
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
        self.drawn = float("-inf")

    def __call__(self, plan: Plan) -> None:
        """Draws if it is time, or all is finished, and there is something to draw."""
        if get_ipython() is None:
            return
        soon = time.monotonic() - self.drawn < self.every
        if soon and not all(run.finished for run in plan.all()):
            return
        begun = time.monotonic()
        try:
            frames = gather(plan.all())
        except (OSError, RunError):  # a file that is being written: the next drawing has it
            return
        if frames.metrics.empty and frames.results.empty:
            return
        figure = draw(frames, plan.paper, self.panels)
        if self.handle is None:
            self.handle = display(figure, display_id=True)
        else:
            self.handle.update(figure)
        plt.close(figure)
        took = time.monotonic() - begun  # of which a tenth of the time may be
        self.drawn = begun + max(0.0, 10 * took - self.every)


def draw(frames: Frames, paper: str, panels: Mapping[str, str]) -> Figure:
    """A panel a name over training steps, a line a variant; it says so where nothing is there."""
    known = load_measures(paper) if paper in reference.sources("tables.yaml") else {}
    measures = {name: known.get(name) or _logged(frames, name) for name in panels.values()}
    drawn = {words: Panel(measure=measures[name]) for words, name in panels.items()}
    rows = -(-len(panels) // 3)
    variants = frames.variants
    order = {name: look for name, look in looks(paper, variants).items() if name in variants}
    own = {"variants": list(order), "looks": order, "height": 0.9 + 2.2 * rows}
    curves = Curves(panels=drawn, ylim=(None, None), **own)
    data = curves.data(frames)
    empty = {words: name for words, name in panels.items() if words not in set(data["quantity"])}
    logged = [*frames.metrics["metric"].unique()]
    absent = dict.fromkeys(empty, "not measured yet")
    wrong = {words: name for words, name in empty.items() if logged and name not in known}
    absent |= {words: unknown("panel", wrong[words], [*logged, *known]) for words in wrong}
    return curves.draw(data, absent)


def _logged(frames: Frames, name: str) -> Measure:
    """The measure of a metric of the training log: "entropy", "reward/*/0"."""
    metric, role = re.match(r"((?:(?:method|seconds)/)?[^/]+)/?(.*)", name).groups()
    known = frames.metrics.loc[frames.metrics["metric"] == metric, "role"]
    role = role or ("" if (known == "").any() else "?*")
    return Measure(source="metrics", role=role, weights={metric: 1})
