"""Curves that move while runs train: in JupyterLab the figure is redrawn in place."""

import time
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from spnb.report import plots
from spnb.report.frame import Frames, Measure, gather
from spnb.train.plan import Plan


class LiveCurves:
    """Given to `run_all(plan, on_poll=...)`: draws metrics of all runs so far; nothing elsewhere.

    `keys`: columns of metrics.jsonl, a panel each; "entropy/*" is the mean over all roles. `every`:
    seconds between two drawings.
    """

    def __init__(self, keys: Sequence[str], every: float = 10.0):
        self.keys = keys
        self.every = every
        self.handle: Any = None
        self.drawn = 0.0

    def __call__(self, plan: Plan) -> None:
        """Draws if it is time and there is something to draw."""
        if get_ipython() is None or time.monotonic() - self.drawn < self.every:
            return
        self.drawn = time.monotonic()
        frames = gather(plan.all())
        if frames.metrics.empty:
            return
        figure = draw(frames, self.keys)
        if self.handle is None:
            self.handle = display(figure, display_id=True)
        else:
            self.handle.update(figure)
        plt.close(figure)


def draw(frames: Frames, keys: Sequence[str]) -> Figure:
    """A panel a key over training steps, a line a variant; ValueError for an unknown key."""
    parts = []
    for key in keys:
        metric = key.removesuffix("/*")
        measure = Measure(source="metrics", role="" if metric == key else "?*", weights={metric: 1})
        if missing := measure.select(frames)[1]:
            names = sorted(frames.metrics["metric"].unique())
            raise ValueError(f"metric is {key!r} ({missing}); allowed: {', '.join(names)}")
        for variant in frames.metrics["variant"].unique():  # roles differ between variants
            parts.append(measure.by_step(frames.only([variant])).assign(quantity=metric))
    data = pd.concat(parts, ignore_index=True)
    return plots.curves(data, list(data["variant"].unique()))
