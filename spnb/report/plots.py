"""One look for every figure: sizes and colours that stay legible at the width of a README (about
900 pixels).

Colours are the eight of Okabe and Ito, which readers with the common kinds of colour blindness can
tell apart; line styles change with them, so that a figure also survives a grey printer. Intervals
are 95 % t-intervals over seeds and every legend entry says how many seeds it rests on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spnb.core.stats import mean_interval

WIDTH = 6.8
"""Figure width in inches; at `DPI` that is 1020 pixels, shown at nearly full size in a README."""
DPI = 150
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's colours, the darkest first because lines are thin; yellow comes last."""
LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


def _settings() -> dict[str, Any]:
    """The style as matplotlib settings; DejaVu Sans ships with matplotlib, so text measures the
    same everywhere."""
    look = {
        "font.family": "DejaVu Sans",
        "font.size": 10.5,
        "axes.titlesize": 11.5,
        "axes.labelsize": 10.5,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "legend.fontsize": 10,
        "legend.title_fontsize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "0.35",
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "0.9",
        "grid.linewidth": 0.8,
        "lines.linewidth": 1.9,
        "legend.frameon": False,
        "legend.handlelength": 2.8,
        "figure.figsize": (WIDTH, 3.7),
        "figure.dpi": DPI,
        "figure.constrained_layout.use": True,
        "savefig.facecolor": "white",
        "axes.prop_cycle": mpl.cycler(color=PALETTE),
    }
    return {**sns.axes_style("ticks"), **look}


@contextmanager
def style() -> Iterator[None]:
    """Use the house style inside a `with` block, leaving the settings outside as they were."""
    with mpl.rc_context(_settings()):
        yield


def apply_style() -> None:
    """Use the house style from here on: the first cell of a notebook calls this once."""
    mpl.rcParams.update(_settings())


def panels(columns: int = 1, height: float = 3.7) -> tuple[Figure, list[Axes]]:
    """A figure of the house width (inches) with `columns` panels side by side, each with its own
    axes."""
    with style():
        figure, axes = plt.subplots(1, columns, figsize=(WIDTH, height), squeeze=False)
    return figure, list(axes[0])


def legend_below(figure: Figure, columns: int = 2) -> None:
    """One legend for all panels, under them, where it hides no data; an entry that panels share is
    listed once.

    `curve` calls this; call it again after drawing more, or for other columns.
    The room under the panels needs a constrained layout, which `panels` and the style turn on.
    """
    for old in (*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())):
        old.remove()
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside lower center",
        ncols=columns,
        borderaxespad=0.2,
    )


def curve(
    ax: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    seed: str = "seed",
    order: Sequence[str] | None = None,
    window: int = 1,
) -> None:
    """Draw, for each value of `hue`, the mean of `y` over seeds against `x`, with a shaded 95 %
    t-interval over seeds.

    `frame` is long: one row per (hue, seed, x); rows that share all three are averaged first, so n
    counts seeds, not rows. `window` smooths each seed by a running mean over that many points
    before anything else. One seed draws a line without a band and its legend entry says n=1.
    `order` names the hues in legend order: pass the same list to every figure and a variant keeps
    its colour and line style, also where another is missing.
    """
    if window < 1:
        raise ValueError(f"curve: window is {window}; allowed: 1 (no smoothing) or more points")
    for slot, name, part in _split(frame, "curve", hue, order, (x, y, seed)):
        per_seed = part.groupby([x, seed])[y].mean().unstack(seed).sort_index()
        per_seed = per_seed.rolling(window, min_periods=1).mean().where(per_seed.notna())
        table = np.array([mean_interval(row) for row in per_seed.to_numpy()])
        color = PALETTE[slot % len(PALETTE)]
        label = f"{name} (n={per_seed.notna().any().sum()})"
        ax.plot(
            per_seed.index,
            table[:, 0],
            color=color,
            linestyle=LINES[slot % len(LINES)],
            label=label,
        )
        if np.isfinite(table[:, 1]).any():
            ax.fill_between(
                per_seed.index, table[:, 1], table[:, 2], color=color, alpha=0.15, linewidth=0
            )
    ax.set(xlabel=x, ylabel=y)
    legend_below(ax.figure)


def bars(
    ax: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    order: Sequence[str],
    seed: str = "seed",
) -> None:
    """Draw groups of bars: for each `x`, in their order in `frame`, a bar for each `hue` of `order`
    that has rows.

    A bar is the mean of `y` over seeds, its line the 95 % t-interval over seeds; rows that share x,
    hue and seed are averaged first. The legend says how many seeds there are.
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(frame[x]))}
    width = 0.8 / len(order)
    for slot, name, part in _split(frame, "bars", hue, order, (x, y, seed)):
        per_seed = part.groupby([x, seed])[y].mean().unstack(seed)
        found = np.array([mean_interval(row) for row in per_seed.to_numpy()])
        middle = [places[group] + (slot - (len(order) - 1) / 2) * width for group in per_seed.index]
        ends = np.abs(found[:, 1:3].T - found[:, 0])  # nan with one seed: no line
        label = f"{name} (n={per_seed.notna().any().sum()})"
        ax.bar(
            middle,
            found[:, 0],
            0.95 * width,
            color=PALETTE[slot],
            yerr=ends,
            capsize=2,
            label=label,
        )
    ax.set(xlabel=x, ylabel=y)
    ax.set_xticks(
        list(places.values()), [str(name).replace(" ", "\n") for name in places], fontsize=8
    )
    legend_below(ax.figure)


def _split(
    frame: pd.DataFrame, caller: str, hue: str, order: Sequence[str] | None, needed: Sequence[str]
) -> list[tuple[int, str, pd.DataFrame]]:
    """(slot in the palette, name, rows) of every hue in `frame`, after checking columns and
    names."""
    missing = [column for column in (hue, *needed) if column not in frame.columns]
    if missing:
        raise ValueError(
            f"{caller}: no column {missing} in the frame; it has {list(frame.columns)}"
        )
    if frame.empty:
        raise ValueError(f"{caller}: the frame has no rows, so there is nothing to draw")
    present = list(dict.fromkeys(frame[hue]))
    names = present if order is None else list(order)
    if len(names) > len(PALETTE):
        raise ValueError(
            f"{caller}: {len(names)} values of {hue}; allowed: at most {len(PALETTE)} told apart by colour"
        )
    unknown = [name for name in present if name not in names]
    if unknown:
        raise ValueError(f"{caller}: {hue} {unknown} is not in order={names}")
    return [
        (slot, name, frame[frame[hue] == name])
        for slot, name in enumerate(names)
        if name in present
    ]
