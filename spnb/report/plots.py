"""One look for every figure, legible at the width of a README (about 900 pixels).

Colours are the eight of Okabe and Ito, which readers with the common kinds of colour blindness can
tell apart; line styles change with them, so that a figure also survives a grey printer. Intervals
are 95 % t-intervals over seeds and every legend entry says how many seeds it rests on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
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
    """The style as settings; DejaVu Sans ships with matplotlib, so text is the same anywhere."""
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
    """A figure of the house width (inches) with `columns` panels side by side."""
    with style():
        figure, axes = plt.subplots(1, columns, figsize=(WIDTH, height), squeeze=False)
    return figure, list(axes[0])


def legend_below(figure: Figure, columns: int = 2) -> None:
    """One legend for all panels, under them; an entry that panels share is listed once.

    `curve` and `bars` call this; call it again after drawing more, or for other columns. The room
    needs a constrained layout, which `panels` and the style turn on.
    """
    for old in (*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())):
        old.remove()
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    place = {"loc": "outside lower center", "ncols": columns, "borderaxespad": 0.2}
    figure.legend(entries.values(), entries.keys(), **place)


def curve(
    ax: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    order: Sequence[str] | None = None,
    window: int = 1,
) -> None:
    """Draws, for each value of `hue`, the mean of `y` over seeds, with a shaded 95 % t-interval.

    Args:
        frame: long, a row a (hue, seed, x); rows that share all three are averaged first, so n
            counts seeds. One seed draws a line without a band and its entry says n=1.
        order: the hues in legend order: with the same list in every figure a variant keeps its
            colour and line style, also where another is missing.
        window: smooths each seed by a running mean over that many points first.

    Raises:
        ValueError: a column is missing, there are no rows, a hue is not in `order`, or there are
            more hues than colours.
    """
    if window < 1:
        raise ValueError(f"curve: window is {window}; allowed: 1 (no smoothing) or more points")
    for slot, name, part in _split(frame, hue, order, (x, y, "seed")):
        by_seed = part.groupby(["seed", x])[y].mean().dropna()
        smooth = by_seed.groupby("seed", group_keys=False).rolling(window, min_periods=1).mean()
        rows = smooth.droplevel(0).rename(y).reset_index()
        n = rows["seed"].nunique()
        sns.lineplot(
            rows,
            x=x,
            y=y,
            ax=ax,
            label=f"{name} (n={n})",
            legend=False,
            color=PALETTE[slot],
            linestyle=LINES[slot % len(LINES)],
            errorbar=_t_interval if n > 1 else None,
            err_kws={"alpha": 0.15, "linewidth": 0},
        )
    legend_below(ax.figure)


def bars(ax: Axes, frame: pd.DataFrame, x: str, y: str, *, hue: str, order: Sequence[str]) -> None:
    """Draws groups of bars: the mean of `y` over seeds and its 95 % t-interval, a colour a hue."""
    parts = _split(frame, hue, order, (x, y, "seed"))
    rows = frame.groupby([x, hue, "seed"], sort=False)[y].mean().reset_index()
    label = {name: f"{name} (n={part['seed'].nunique()})" for _, name, part in parts}
    sns.barplot(
        rows.assign(**{hue: rows[hue].map(label)}),
        x=x,
        y=y,
        hue=hue,
        hue_order=list(label.values()),
        palette=[PALETTE[slot] for slot, _, _ in parts],
        saturation=1,
        errorbar=_t_interval,
        err_kws={"linewidth": 1.5},
        capsize=0.15,
        ax=ax,
    )
    places = [text.get_text() for text in ax.get_xticklabels()]
    ax.set_xticks(ax.get_xticks(), [place.replace(" ", "\n") for place in places], fontsize=8)
    legend_below(ax.figure)


def curves(
    frame: pd.DataFrame,
    order: Sequence[str],
    labels: str | Mapping[str, str] = "",
    windows: int | Mapping[str, int] = 1,
    columns: int = 3,
    height: float | None = None,
    **axis: Any,
) -> Figure:
    """A panel over training steps for each `quantity` in a long frame, a line a `variant`.

    Args:
        frame: columns quantity, variant, seed, step, value.
        order: all variants, in colour order.
        labels, windows: label of the vertical axis and smoothing, of all panels or by quantity.
        columns: panels side by side.
        axis: settings of every panel's axes, for instance ylim=(0, None).
    """
    count = frame["quantity"].nunique()
    rows = -(-count // columns)
    size = (WIDTH, height or (3.9 if rows == 1 else 1.0 + 2.2 * rows))
    with style():
        figure = plt.figure(figsize=size)
        axes = figure.subplots(rows, min(columns, count), squeeze=False)
        fill(axes, frame, "quantity", order, labels, windows, **axis)
        legend_below(figure, columns=3)
    return figure


def fill(
    axes: Any,
    frame: pd.DataFrame,
    panel: str,
    order: Sequence[str],
    labels: str | Mapping[str, str] = "",
    windows: int | Mapping[str, int] = 1,
    **axis: Any,
) -> None:
    """Draws a panel for each value of the column `panel`; removes the axes without one."""
    parts = list(frame[panel].unique())
    for ax in list(axes.flat)[len(parts) :]:
        ax.remove()
    for index, part in enumerate(parts):
        ax = axes.flat[index]
        window = windows if isinstance(windows, int) else windows.get(part, 1)
        label = labels if isinstance(labels, str) else labels.get(part, "")
        rows = frame[frame[panel] == part]
        curve(ax, rows, "step", "value", hue="variant", order=order, window=window)
        shown = not isinstance(labels, str) or index % axes.shape[1] == 0
        last = index + axes.shape[1] >= len(parts)
        ax.set(xlabel="training step" if last else "", ylabel=label if shown else "", **axis)
        ax.set_title(part, fontsize=10 if len(parts) > 2 else None)


def _t_interval(values: Any) -> tuple[float, float]:
    """Seaborn's error bar: the 95 % t-interval."""
    return mean_interval(values)[1:3]


def _split(
    frame: pd.DataFrame, hue: str, order: Sequence[str] | None, needed: Sequence[str]
) -> list[tuple[int, str, pd.DataFrame]]:
    """(Slot in the palette, name, rows) of every hue in `frame`, after checking columns, names."""
    if missing := [column for column in (hue, *needed) if column not in frame]:
        raise ValueError(f"no column {missing} in the frame; it has {list(frame.columns)}")
    if frame.empty:
        raise ValueError("the frame has no rows, so there is nothing to draw")
    present = list(dict.fromkeys(frame[hue]))
    names = present if order is None else list(order)
    if len(names) > len(PALETTE):
        raise ValueError(f"{len(names)} values of {hue}; allowed: at most {len(PALETTE)} colours")
    if unknown := [name for name in present if name not in names]:
        raise ValueError(f"{hue} {unknown} is not in order={names}")
    slots = [(slot, name) for slot, name in enumerate(names) if name in present]
    return [(slot, name, frame[frame[hue] == name]) for slot, name in slots]
