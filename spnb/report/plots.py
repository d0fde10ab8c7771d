"""One look for every figure, legible at the width of a README (about 900 pixels).

Colours can be told apart with the common kinds of colour blindness, line styles on a grey printer.
Intervals are 95 % t-intervals over seeds; every legend entry says how many seeds it rests on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spnb.core.stats import mean_interval

WIDTH, DPI = 6.8, 150
"""Figure width in inches and dots an inch: 1020 pixels, shown at nearly full size in a README."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's colours, the darkest first because lines are thin; yellow comes last."""
LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


def _settings() -> dict[str, Any]:
    text = Path(__file__).with_name("style.yaml").read_text()
    return {
        **sns.axes_style("ticks"),
        **yaml.safe_load(text),
        "axes.prop_cycle": mpl.cycler(color=PALETTE),
    }


@contextmanager
def style() -> Iterator[None]:
    """Use the house style inside a `with` block, leaving the settings outside as they were."""
    with mpl.rc_context(_settings()):
        yield


def apply_style() -> None:
    """Use the house style from here on: the first cell of a notebook calls this once."""
    mpl.rcParams.update(_settings())


def panels(columns: int = 1, height: float = 3.7) -> tuple[Figure, list[Axes]]:
    """A figure of the house width (inches) with `columns` panels side by side."""
    with style():
        figure, axes = plt.subplots(1, columns, figsize=(WIDTH, height), squeeze=False)
    return figure, list(axes[0])


def legend_below(figure: Figure, columns: int = 2) -> None:
    """One legend for all panels, under them, instead of those there are; no entry comes twice."""
    for old in (*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())):
        old.remove()
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    place = {"loc": "outside lower center", "ncols": columns, "borderaxespad": 0.2}
    with style():
        figure.legend(entries.values(), entries.keys(), **place)


def curve(ax: Axes, frame: pd.DataFrame, order: Sequence[str], window: int = 1) -> None:
    """Draws for each variant the mean over seeds by step, with a shaded 95 % t-interval.

    Args:
        frame: columns variant, seed, step, value. One seed draws a line without a band.
        order: all variants: each keeps its colour and line style where another is missing.
        window: smooths each seed by a running mean over that many points first.
    """
    for slot, name, part in _split(frame, "variant", order):
        by_seed = part.groupby(["seed", "step"])["value"].mean().dropna()
        smooth = by_seed.groupby("seed", group_keys=False).rolling(window, min_periods=1).mean()
        rows = smooth.droplevel(0).reset_index()
        n = rows["seed"].nunique()
        look = {"color": PALETTE[slot], "linestyle": LINES[slot % len(LINES)], "legend": False}
        band = {"errorbar": _t_interval if n > 1 else None, "err_kws": {"alpha": 0.15, "lw": 0}}
        sns.lineplot(rows, x="step", y="value", ax=ax, label=f"{name} (n={n})", **look, **band)
    legend_below(ax.figure)


def bars(ax: Axes, frame: pd.DataFrame, x: str, y: str, *, hue: str, order: Sequence[str]) -> None:
    """Draws groups of bars: the mean of `y` over seeds and its 95 % t-interval, a colour a hue."""
    parts = _split(frame, hue, order)
    label = {name: f"{name} (n={part['seed'].nunique()})" for _, name, part in parts}
    rows = frame.groupby([x, hue, "seed"], sort=False)[y].mean().reset_index()
    rows[hue] = rows[hue].map(label)
    look = {"palette": [PALETTE[slot] for slot, *_ in parts], "saturation": 1, "capsize": 0.15}
    look |= {"hue_order": list(label.values()), "errorbar": _t_interval, "err_kws": {"lw": 1.5}}
    sns.barplot(rows, x=x, y=y, hue=hue, ax=ax, **look)
    places = [text.get_text().replace(" ", "\n") for text in ax.get_xticklabels()]
    ax.set_xticks(ax.get_xticks(), places, fontsize=8)
    legend_below(ax.figure)


def curves(
    frame: pd.DataFrame,
    order: Sequence[str],
    labels: Mapping[str, str] | None = None,
    windows: Mapping[str, int] | None = None,
    height: float | None = None,
    **axis: Any,
) -> Figure:
    """A figure of `fill`: a panel for each `quantity` in a long frame, three side by side."""
    count = frame["quantity"].nunique()
    rows = -(-count // 3)
    with style():
        figure = plt.figure(figsize=(WIDTH, height or (3.9 if rows == 1 else 1.0 + 2.2 * rows)))
        axes = figure.subplots(rows, min(3, count), squeeze=False)
        fill(axes, frame, "quantity", order, labels or {}, windows or {}, **axis)
        legend_below(figure, columns=3)
    return figure


def fill(
    axes: Any,
    frame: pd.DataFrame,
    panel: str,
    order: Sequence[str],
    labels: Mapping[str, str],
    windows: Mapping[str, int],
    **axis: Any,
) -> None:
    """Draws a `curve` for each value of the column `panel`.

    Labels of the vertical axis and windows are by panel; `axis`: settings, such as ylim=(0, None).
    """
    parts = list(frame[panel].unique())
    columns = axes.shape[1]
    for ax in axes.flat[len(parts) :]:
        ax.remove()
    for index, (part, ax) in enumerate(zip(parts, axes.flat, strict=False)):
        rows = frame[frame[panel] == part]
        curve(ax, rows, order, windows.get(part, 1))
        label = labels.get(part, "")
        repeated = index % columns > 0 and label == labels.get(parts[index - 1], "")
        below = index + columns < len(parts)
        ax.set(xlabel="" if below else "training step", ylabel="" if repeated else label, **axis)
        ax.set_title(part, fontsize=10 if len(parts) > 2 else None)


def _t_interval(values: Any) -> tuple[float, float]:
    return mean_interval(values)[1:3]


def _split(
    frame: pd.DataFrame, hue: str, order: Sequence[str]
) -> list[tuple[int, str, pd.DataFrame]]:
    """(Slot in the palette, name, rows) of every hue there is; ValueError for one not in order."""
    if len(order) > len(PALETTE) or not set(frame[hue]) <= set(order):
        allowed = f"allowed: those in order={list(order)}, at most {len(PALETTE)}"
        raise ValueError(f"{hue} is {', '.join(dict.fromkeys(frame[hue]))}; {allowed}")
    parts = [(slot, name, frame[frame[hue] == name]) for slot, name in enumerate(order)]
    return [part for part in parts if len(part[2])]
