"""Curves that move while runs train: in JupyterLab the figure is redrawn in place, elsewhere
nothing is drawn."""

import time
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython import get_ipython
from IPython.display import display

from spnb.report import plots
from spnb.train.plan import Plan


class LiveCurves:
    """Given to `run_all(plan, on_poll=...)`: draws metrics of all runs so far, at most every
    `every` seconds.

    Args:
        keys: columns of metrics.jsonl, one panel each; a column is averaged over all roles when it
            ends in "/*".
        every: seconds between two drawings.
    """

    def __init__(self, keys: Sequence[str], every: float = 10.0):
        self.keys, self.every = list(keys), every
        self.handle: Any = None
        self.drawn = 0.0

    def __call__(self, plan: Plan) -> None:
        """Draws if it is time and there is something to draw."""
        if get_ipython() is None or time.monotonic() - self.drawn < self.every:
            return
        self.drawn = time.monotonic()
        tables = [table for run in plan.all() if len(table := run.table("metrics"))]
        if not tables:
            return
        figure = draw(pd.concat(tables, ignore_index=True), self.keys)
        if self.handle is None:
            self.handle = display(figure, display_id=True)
        else:
            self.handle.update(figure)
        plt.close(figure)


def column(metrics: pd.DataFrame, key: str) -> pd.Series:
    """A metrics column, or with "name/*" the mean of that metric over the roles, row by row."""
    if key in metrics.columns:
        return metrics[key]
    prefix = key.removesuffix("*")
    matching = (
        [name for name in metrics.columns if name.startswith(prefix)] if key.endswith("/*") else []
    )
    if not matching:
        raise ValueError(f"metric is {key!r}; allowed: {', '.join(sorted(metrics.columns))}")
    return metrics[matching].mean(axis=1)


def draw(metrics: pd.DataFrame, keys: Sequence[str]) -> Any:
    """One panel a key over training steps, a line a variant, intervals over the seeds that have
    reached a step."""
    figure, axes = plots.panels(len(keys))
    for ax, key in zip(axes, keys, strict=True):
        frame = pd.DataFrame(
            {"variant": metrics["variant"], "seed": metrics["seed"], "step": metrics["step"]}
        )
        plots.curve(ax, frame.assign(value=column(metrics, key)), "step", "value", hue="variant")
        ax.set(xlabel="training step", ylabel=key.removesuffix("/*"))
    return figure
