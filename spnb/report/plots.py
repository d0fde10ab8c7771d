"""One look for every figure, legible at the width of a README (about 900 pixels).

Colours are the eight of Okabe and Ito, which readers with the common kinds of colour blindness can
tell apart; line styles change with them, so that a figure also survives a grey printer. Intervals
are 95 % t-intervals over seeds and every legend entry says how many seeds it rests on.
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
CYCLE = mpl.cycler(color=PALETTE)


def _settings() -> dict[str, Any]:
    text = Path(__file__).with_name("style.yaml").read_text()
    return {**sns.axes_style("ticks"), **yaml.safe_load(text), "axes.prop_cycle": CYCLE}


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

    `curve` and `bars` call this; call it again after drawing more, or for other columns.
    """
    for old in (*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())):
        old.remove()
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    place = {"loc": "outside lower center", "ncols": columns, "borderaxespad": 0.2}
    with style():
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
        frame: long; rows that share hue, seed and x are averaged first, so n counts seeds. One seed
            draws a line without a band and its entry says n=1.
        order: the hues in legend order: with the same list in every figure a variant keeps its
            colour and line style, also where another is missing.
        window: smooths each seed by a running mean over that many points first.

    Raises:
        ValueError: a missing column, no rows, a hue that is not in `order`, too many hues.
    """
    if window < 1:
        raise ValueError(f"curve: window is {window}; allowed: 1 (no smoothing) or more points")
    for slot, name, part in _split(frame, hue, order, (x, y, "seed")):
        by_seed = part.groupby(["seed", x])[y].mean().dropna()
        smooth = by_seed.groupby("seed", group_keys=False).rolling(window, min_periods=1).mean()
        rows = smooth.droplevel(0).rename(y).reset_index()
        n = rows["seed"].nunique()
        look = {"color": PALETTE[slot], "linestyle": LINES[slot % len(LINES)]}
        band = {"errorbar": _t_interval if n > 1 else None, "err_kws": {"alpha": 0.15, "lw": 0}}
        sns.lineplot(rows, x=x, y=y, ax=ax, label=f"{name} (n={n})", legend=False, **look, **band)
    legend_below(ax.figure)


def bars(ax: Axes, frame: pd.DataFrame, x: str, y: str, *, hue: str, order: Sequence[str]) -> None:
    """Draws groups of bars: the mean of `y` over seeds and its 95 % t-interval, a colour a hue."""
    parts = _split(frame, hue, order, (x, y, "seed"))
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
    columns: int = 3,
    height: float | None = None,
    **axis: Any,
) -> Figure:
    """A figure of `fill`: a panel for each `quantity` in a long frame, `columns` side by side."""
    count = frame["quantity"].nunique()
    rows = -(-count // columns)
    size = (WIDTH, height or (3.9 if rows == 1 else 1.0 + 2.2 * rows))
    with style():
        figure = plt.figure(figsize=size)
        axes = figure.subplots(rows, min(columns, count), squeeze=False)
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
    """Draws a panel over training steps for each value of the column `panel`, a line a variant.

    Args:
        frame: columns variant, seed, step, value, and `panel`.
        order: all variants, in colour order.
        labels, windows: label of the vertical axis and smoothing by panel.
        axis: settings of every panel's axes, for instance ylim=(0, None).
    """
    parts = list(frame[panel].unique())
    columns = axes.shape[1]
    for index, ax in enumerate(axes.flat):
        if index >= len(parts):
            ax.remove()
            continue
        part = parts[index]
        rows = frame[frame[panel] == part]
        curve(ax, rows, "step", "value", hue="variant", order=order, window=windows.get(part, 1))
        label = labels.get(part, "")
        repeated = index % columns > 0 and label == labels.get(parts[index - 1], "")
        below = index + columns < len(parts)
        ax.set(xlabel="" if below else "training step", ylabel="" if repeated else label, **axis)
        ax.set_title(part, fontsize=10 if len(parts) > 2 else None)


def _t_interval(values: Any) -> tuple[float, float]:
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
