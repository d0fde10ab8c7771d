"""One look for every figure, legible at the width of a README (about 900 pixels).

A variant has one colour and line style throughout a paper (`Look`). Seeds are dots where there are
few steps, thin lines where there are many; thick lines are their means, bands and error bars 95 %
percentile bootstrap intervals, which never leave the range of the seeds. Dashes are the paper's, on
bars or at the edges of a panel: its numbers are of other steps and benchmarks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, product
from string import ascii_uppercase
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullFormatter

from spnb.core.paths import packaged_yaml
from spnb.core.stats import bootstrap_interval

WIDTH = 6.8
DPI = 150
"""Figure width in inches and dots an inch: 1020 pixels, shown at nearly full size in a README."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#808080")
"""Okabe and Ito's colours, with grey instead of their yellow, which is too light for a line."""
LINES: tuple[Any, ...] = (
    "-",
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.2, 1, 1.2, 1, 1.2)),
    (0, (3, 1, 1, 1)),
    (0, (8, 1.5)),
)
"""Line styles for more variants than colours; plain dashes are the paper's."""
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo")
"""Of bars, by the place of their line style in `LINES`."""
DASHED = (0, (4, 2.2))
GAP = 3
"""Where so many times the usual number of steps were not measured, a line is broken: at stages."""
OUTLINE = {"path_effects": [withStroke(linewidth=2.8, foreground="white")]}
"""Keeps an interval visible on a dark bar."""
FEW = 8
"""Up to so many steps a panel has dots and error bars, with more thin lines and bands."""
CROWD = 30
"""More thin lines than these hide what they are of: such a panel has means and bands alone."""
TICKS = 5
"""Up to so many steps each is marked on the axis."""
KEY = "Dots, thin lines: seeds. Thick: means. Bars, shades: 95 % bootstrap intervals over seeds."


class Look(NamedTuple):
    """How a variant is drawn in every figure of a paper: words, colour, line style."""

    label: str
    colour: str
    line: Any = "-"


Order = Sequence[str] | Mapping[str, Look]


@contextmanager
def style() -> Iterator[None]:
    """Use the house style inside a `with` block, leaving the settings outside as they were."""
    own = packaged_yaml("report/style.yaml") | {"axes.prop_cycle": mpl.cycler(color=PALETTE)}
    with mpl.rc_context({**sns.axes_style("ticks"), **own}):
        yield


def free_looks(names: Sequence[str], used: Mapping[str, Look] | None = None) -> dict[str, Look]:
    """Looks for names: themselves as label, the first colours and lines that are not used."""
    taken = {look[1:] for look in (used or {}).values()}
    pairs = ((colour, line) for line, colour in product(LINES, PALETTE))
    free = cycle([pair for pair in pairs if pair not in taken])
    return {name: Look(name, *pair) for name, pair in zip(names, free, strict=False)}


def panels(columns: int = 1, height: float = 3.7) -> tuple[Figure, list[Axes]]:
    """A figure of the house width (inches) with `columns` panels side by side."""
    with style():
        figure, axes = plt.subplots(1, columns, figsize=(WIDTH, height), squeeze=False)
    return figure, list(axes[0])


def new_figure(height: float, title: str = "") -> Figure:
    """An empty figure of the house width, with its title inside the picture."""
    figure = plt.figure(figsize=(WIDTH, height))
    if title:
        figure.suptitle(title)
    return figure


def multiples(
    place: Figure | SubFigure, titles: Sequence[str], layout: str = "", sharey: bool = False
) -> dict[str, Axes]:
    """Panels over training steps by title; only the lowest of each column name their x axis.

    `layout` is matplotlib's `subplot_mosaic`, a letter a title in order ("AAB;AAC" has a large
    first panel); where it is left out or has other letters, rows of three, or of two for four.
    """
    if not titles:
        return {}
    letters = ascii_uppercase[: len(titles)]
    if set(layout) - {";"} != set(letters):
        columns = 2 if len(titles) == 4 else min(3, len(titles))
        rows = [letters[at : at + columns] for at in range(0, len(titles), columns)]
        layout = ";".join(row.ljust(columns, ".") for row in rows)
    mosaic = place.subplot_mosaic(layout, sharey=sharey)
    specs = [ax.get_subplotspec() for ax in mosaic.values()]
    for title, letter in zip(titles, letters, strict=True):
        spec = mosaic[letter].get_subplotspec()
        below = [other for other in specs if other.rowspan.start >= spec.rowspan.stop]
        covered = any(set(other.colspan) & set(spec.colspan) for other in below)
        mosaic[letter].set(title=title, xlabel="" if covered else "training step")
    return {title: mosaic[letter] for title, letter in zip(titles, letters, strict=True)}


def legend_below(figure: Figure | SubFigure, columns: int = 3, note: str = "") -> None:
    """One legend for all panels, under them, instead of those there are; no entry comes twice.

    It has that many columns (four entries: four or two) or as many as there is room for. `note`:
    what else a reader has to know, in small type above the entries.
    """
    for old in (*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())):
        old.remove()
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    options = (4, 2) if len(entries) == 4 else range(columns, 1, -1)
    columns = next((count for count in options if _inches(list(entries), count) <= WIDTH), 1)
    place = {"loc": "outside lower center", "ncols": columns, "borderaxespad": 0.2}
    with style():
        legend = figure.legend(entries.values(), entries.keys(), title=fill(note, 118), **place)
    legend.get_title().set(color="0.3", multialignment="left")


def _inches(labels: Sequence[str], columns: int) -> float:
    """About how wide a legend is: 0.063 inches a letter, 0.5 for a handle and its space."""
    parts = [part for part in np.array_split(labels, columns) if len(part)]
    return sum(0.5 + 0.063 * max(map(len, part)) for part in parts)


def curve(ax: Axes, frame: pd.DataFrame, order: Order, window: int = 1) -> None:
    """Draws each variant by step: its seeds, their mean, and the mean's interval.

    With few steps the variants stand side by side at each of them; with more, lines are broken
    where steps were not measured (`GAP`).

    Args:
        frame: columns variant, seed, step, value; rows of one seed and step are averaged.
        order: all variants: each keeps its look where another is missing.
        window: smooths each seed by a running mean over that many points first.
    """
    looks = _looks(frame, "variant", order)
    few = frame["step"].nunique() <= FEW
    apart = 0.075 / len(looks) * np.ptp(frame["step"]) if few else 0.0
    names = {"xlabel": ax.get_xlabel(), "ylabel": ax.get_ylabel()}
    crowded = len(frame[["variant", "seed"]].drop_duplicates()) > CROWD
    for place, (name, look) in enumerate(looks.items()):
        rows = _smooth(frame[frame["variant"] == name], window)
        rows["spell"] *= not few
        rows["step"] = rows["step"] + apart * (place - (len(looks) - 1) / 2)
        n = rows["seed"].nunique()
        own = {"x": "step", "y": "value", "ax": ax, "color": look.colour, "legend": False}
        interval: dict[str, Any] = {"errorbar": None}
        if n > 1 and few:
            beside = rows.assign(step=rows["step"] - 0.4 * apart)
            sns.scatterplot(beside, **own, s=14, alpha=0.5, linewidth=0)
            look_of_bars = {"capsize": 3, "lw": 1.4}
            interval = {"errorbar": _interval, "err_style": "bars", "err_kws": look_of_bars}
        elif n > 1:
            thin = {"units": "seed", "estimator": None, "lw": 0.6, "alpha": 0.3}
            for _, spell in () if crowded else rows.groupby("spell"):
                sns.lineplot(spell, **own, **thin)
            interval = {"errorbar": _interval, "err_kws": {"alpha": 0.15, "lw": 0}}
        own |= {"linestyle": look.line, "zorder": 3}
        for number, spell in rows.groupby("spell"):
            label = None if number else f"{look.label} (n={n})"
            alone = {"marker": "o"} if spell["step"].nunique() == 1 and (n == 1 or not few) else {}
            sns.lineplot(spell, **own, **interval, **alone, label=label)
    steps = sorted(frame["step"].unique())
    if 1 < len(steps) <= TICKS:
        ax.set_xticks(steps)
    ax.set(**names)
    ax.margins(x=0.03)


def plain_log(ax: Axes) -> None:
    """Marks a logarithmic vertical axis at 1, 2, 5, 10, ... in plain numbers."""
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def level(ax: Axes, value: float, label: str) -> None:
    """A fine grey line across a panel, such as chance, with its name below."""
    ax.axhline(value, color="0.45", linewidth=0.9, linestyle=":", zorder=1)
    words = {"fontsize": 8, "color": "0.35", "ha": "center", "va": "top", "zorder": 4}
    words["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
    place = {"xytext": (0, -3), "textcoords": "offset points", "annotation_clip": True}
    ax.annotate(label, (0.76, value), xycoords=("axes fraction", "data"), **place, **words)


def paper_line(ax: Axes, values: Sequence[float], colour: str) -> None:
    """The paper's number at the right edge of a panel, or start and end at both, dashed."""
    look = {"color": colour, "linestyle": DASHED, "linewidth": 1.5, "zorder": 4}
    ends = {(0.9, 1.0): values[-1]}
    if len(values) > 1:
        ends[0.0, 0.1] = values[0]
    for place, value in ends.items():
        ax.plot(place, [value] * 2, transform=ax.get_yaxis_transform(), **look)
    ax.plot([], [], label="paper", **look | {"color": "0.3"})


def bars(
    ax: Axes,
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    order: Order,
    paper: Mapping[str, float] | None = None,
) -> None:
    """Draws groups of bars: the mean of `y` over seeds with its interval, and dots for seeds.

    `order`: all hues, as names or with looks. `paper`: its number by value of x, a dashed mark
    across the group.
    """
    looks = _looks(frame, hue, order)
    seeds = frame.groupby(hue)["seed"].nunique()
    label = {name: f"{look.label} (n={seeds[name]})" for name, look in looks.items()}
    rows = frame.groupby([x, hue, "seed"], sort=False)[y].mean().reset_index()
    rows[hue] = rows[hue].map(label)
    own = {"x": x, "y": y, "hue": hue, "ax": ax, "hue_order": list(label.values())}
    colours = [look.colour for look in looks.values()]
    interval = {"errorbar": _interval, "capsize": 0.15}
    interval["err_kws"] = {"lw": 1.3, "color": "0.2", **OUTLINE}
    sns.barplot(rows, **own, palette=colours, saturation=1, alpha=0.75, **interval)
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    for (name, look), group in zip(looks.items(), ax.containers, strict=True):
        for bar in (*group, handles[label[name]]):
            bar.set(hatch=HATCHES[LINES.index(look.line)], edgecolor="white", linewidth=0)
    if seeds.max() > 1:
        dots = {"palette": ["0.2"] * len(looks), "size": 2.8, "alpha": 0.7, "legend": False}
        dots |= {"linewidth": 0.4, "edgecolor": "white"}
        sns.stripplot(rows, **own, **dots, dodge=True, jitter=False)
    names = [text.get_text() for text in ax.get_xticklabels()]
    marks = {"color": "0.1", "linestyles": [DASHED], "linewidth": 1.5, "label": "paper"}
    if known := [(at, paper[name]) for at, name in enumerate(names) if name in (paper or {})]:
        places, values = np.array(known).T
        ax.hlines(values, places - 0.45, places + 0.45, **marks)
    ax.set_xticks(ax.get_xticks(), [name.replace(" ", "\n") for name in names], fontsize=8)
    legend_below(ax.figure)


def _smooth(rows: pd.DataFrame, window: int) -> pd.DataFrame:
    """Rows by seed, spell and step, each seed a running mean over `window` of a spell's points; a
    spell ends where steps were not measured."""
    means = rows.groupby(["seed", "step"])["value"].mean().dropna().reset_index()
    steps = pd.Series(sorted(means["step"].unique()))
    gaps = steps.diff()
    spells = (gaps > GAP * gaps.median()).cumsum()
    means["spell"] = means["step"].map(dict(zip(steps, spells, strict=True)))
    by_spell = means.set_index("step").groupby(["seed", "spell"])["value"]
    return by_spell.rolling(window, min_periods=1).mean().reset_index()


def _interval(values: Any) -> tuple[float, float]:
    return bootstrap_interval([{"": [value]} for value in values])[1:3]


def _looks(frame: pd.DataFrame, hue: str, order: Order) -> dict[str, Look]:
    """The looks of every hue there is, in order; ValueError for one that is not in it."""
    looks = dict(order) if isinstance(order, Mapping) else free_looks(order)
    there = dict.fromkeys(frame[hue])
    if not set(there) <= set(looks):
        raise ValueError(f"{hue} is {', '.join(there)}; allowed: those in order={list(looks)}")
    return {name: look for name, look in looks.items() if name in there}
