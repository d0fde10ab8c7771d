"""Figures over training steps as data: which run is which line, and what is measured.

`reference/<paper>/figures.yaml` lists a paper's, and under `variants` the words, colour and line
style of each variant in every figure of the paper; their measures stand in `tables.yaml`. A user's
own variant is a further line of every panel that has its measure, under its name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, pairwise
from textwrap import fill
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from pydantic import Field

from spnb import reference
from spnb.core import params
from spnb.core.params import ParamError, StrictData, validate
from spnb.report import plots
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import (
    INDEX,
    Frames,
    Measure,
    known_variants,
    load_measures,
    named_variants,
    pick,
    read_yaml,
)
from spnb.report.plots import Look

Limits = tuple[float | None, float | None]
Cell = tuple[str, str, str]
"""A printed number: exhibit, row, column."""
START = "start"
"""Stands for a variant: what was measured before training."""
SHADES = "Thin lines: seeds. Thick: means. Shades: 95 % bootstrap intervals over seeds and items."
MOST = 8
"""Most variants of a paper in a figure of several papers' runs."""


class Words(StrictData):
    """How a variant is drawn throughout a paper."""

    label: str = Field(description="its words in a legend")
    colour: int = Field(ge=0, lt=len(plots.PALETTE))
    line: int = Field(0, ge=0, lt=len(plots.LINES))

    @property
    def look(self) -> Look:
        """Its words, colour and line style as figures take them."""
        return Look(self.label, plots.PALETTE[self.colour], plots.LINES[self.line])


class Line(Words):
    """A line of a panel that shows several measures, each of one variant."""

    measure: Measure
    variant: str


class Panel(StrictData):
    """One panel of a figure: a measure of several variants over training steps, or `lines`."""

    measure: Measure | None = None
    lines: dict[str, Line] = Field({}, description="instead of the variants', by their words")
    label: str = Field("", description="of the vertical axis, with unit")
    window: int = Field(1, description="steps of the running mean")
    variants: list[str] = Field([], description="those drawn; all of the figure's if left out")
    ylim: Limits | None = Field(None, description="the figure's if left out")
    levels: dict[str, float] = Field({}, description="fine grey lines, such as chance, by name")
    paper: dict[str, list[float]] = Field(
        {}, description="the paper's number, or those of start and end, of a variant"
    )

    def data(self, frames: Frames, variants: Sequence[str]) -> pd.DataFrame:
        """Columns variant (or a line's words), seed, step, value."""
        names = frames.with_own(self.variants or variants).variants
        lines = {words: (line.measure, line.variant) for words, line in self.lines.items()}
        lines = lines or {name: (self.measure, name) for name in names}
        parts = [pd.DataFrame(columns=[*INDEX, "value"])] if not lines else []
        for words, (measure, variant) in lines.items():
            parts.append(measure.by_step(frames.only([variant])).assign(variant=words))
        return stacked(parts)


class Curves(StrictData):
    """One figure over training steps, or over what `x` names."""

    title: str = ""
    caption: str = ""
    protocol: str = ""
    note: str = Field("", description="in the picture; {0}, {1:g} are the numbers of `printed`")
    printed: list[float] = []
    variants: list[str] = []
    looks: dict[str, Look]
    whole: bool = Field(False, description="whether it needs all of its variants")
    panels: dict[str, Panel]
    layout: str = Field("", description="panels as letters, for instance AAB;AAC")
    height: float = Field(4.0, description="inches")
    x: Literal["step", "k", "difficulty"] = "step"
    ylim: Limits = (0, None)
    yscale: Literal["linear", "log"] = "linear"
    sharey: bool = Field(False, description="one vertical scale for all panels")

    def missing(self, variants: Sequence[str]) -> list[str]:
        """The variants without which it cannot be drawn and that are not among `variants`."""
        absent = [variant for variant in self.variants if variant not in variants]
        return absent if self.whole or len(absent) == len(self.variants) else []

    def content(self, frames: Frames) -> ExhibitContent | None:
        """The exhibit of these runs; None where they lack its variants and have none of one's own
        to show."""
        used = frames.with_own(self.variants)
        data = self.data(used)
        if not self.shows(frames, data):
            return None
        absent = {title: "not in these runs" for title in {*self.panels} - {*data["quantity"]}}
        return ExhibitContent(self.draw(data, absent), used.runs, data, self.caption, self.protocol)

    def shows(self, frames: Frames, data: pd.DataFrame) -> bool:
        """Whether these numbers are of the variants that it needs, or of one's own."""
        return not self.missing(frames.variants) or bool({*frames.own} & {*data["variant"]})

    def data(self, frames: Frames) -> pd.DataFrame:
        """The drawn numbers: columns variant, seed, step, value, quantity (the panel)."""
        parts = []
        for title, panel in self.panels.items():
            parts.append(panel.data(frames, self.variants).assign(quantity=title))
        return stacked(parts)

    def draw(self, data: pd.DataFrame, absent: Mapping[str, str] | None = None) -> Figure:
        """Their figure; a panel without numbers says why (`absent`, by title) or is left out."""
        there = {*data["quantity"], *(absent or {})}
        with plots.style():
            figure = plots.new_figure(self.height, self.title)
            titles = [title for title in self.panels if title in there]
            axes = self.draw_on(figure, titles, data)
            for title, why in (absent or {}).items():
                place = {"transform": axes[title].transAxes, "fontsize": 8, "va": "top"}
                axes[title].text(0.05, 0.9, fill(why, 34)[:300], **place)
            plots.legend_below(figure, note=self.words)
        return figure

    @property
    def words(self) -> str:
        """What stands in small type below the picture."""
        key = plots.KEY if self.x == "step" else SHADES
        return f"{self.note.format(*self.printed)} {key}".strip()

    def order(self, data: pd.DataFrame) -> dict[str, Look]:
        """The looks of its variants, then of those in the numbers that it does not know."""
        own = [name for name in dict.fromkeys(data["variant"]) if name not in self.looks]
        known = {name: self.looks[name] for name in self.variants}
        return known | plots.free_looks(own, self.looks)

    def draw_on(
        self, place: Figure | SubFigure, titles: Sequence[str], data: pd.DataFrame
    ) -> dict[str, Axes]:
        """Draws the panels with these titles; one that is not of `panels` stays empty."""
        axes = plots.multiples(place, titles, self.layout, self.sharey)
        order = self.order(data)
        drawn = {title: ax for title, ax in axes.items() if title in self.panels}
        for title, ax in drawn.items():
            panel = self.panels[title]
            rows = data[data["quantity"] == title]
            if self.x != "step":
                lines_with_intervals(ax, rows, self.x, order)
            elif len(rows):
                looks = {words: line.look for words, line in panel.lines.items()} or order
                plots.curve(ax, rows, looks, panel.window)
        for title, ax in drawn.items():  # after all curves, where the scale is shared
            panel = self.panels[title]
            if self.yscale == "log":
                ax.set(yscale="log")
                plots.plain_log(ax)
            ax.set(ylabel=panel.label, ylim=panel.ylim or self.ylim)
            for name, value in panel.levels.items():
                plots.level(ax, value, name)
            looks = {**self.looks, **{words: line.look for words, line in panel.lines.items()}}
            there = set(data.loc[data["quantity"] == title, "variant"])
            for variant in [name for name in panel.paper if name in there]:
                plots.paper_line(ax, panel.paper[variant], looks[variant].colour)
        return axes


def stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables below each other; empty ones, whose columns have no type, only if all are."""
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def lines_with_intervals(ax: Axes, rows: pd.DataFrame, by: str, order: Mapping[str, Look]) -> None:
    """Each variant's mean with its interval, and its seeds, over labels of the column `by`.

    `rows`: columns variant, `by`, seed (none of a mean), value, low, high.
    """
    ticks = {label: place for place, label in enumerate(rows[by].unique(), 1)}
    for variant, own in rows.groupby("variant", sort=False):
        look = order[variant]
        seeds = dict(list(own.dropna(subset="seed").groupby("seed")))
        mean = own[own["seed"].isna()]
        for part in seeds.values():
            ax.plot(part[by].map(ticks), part["value"], color=look.colour, lw=0.6, alpha=0.3)
        label = look.label if variant.startswith(START) else f"{look.label} (n={len(seeds) or 1})"
        x = mean[by].map(ticks)
        ax.plot(x, mean["value"], color=look.colour, linestyle=look.line, label=label, zorder=3)
        ax.fill_between(x, mean["low"], mean["high"], color=look.colour, alpha=0.15, lw=0)
    words = {label: re.sub(r"^level ", "", str(label)) for label in ticks}
    ax.set_xticks(list(ticks.values()), list(words.values()))
    ax.set_xlabel(ax.get_xlabel() and ("level" if by == "difficulty" else by))


def small_multiples(
    data: pd.DataFrame, title: str, label: str, window: int = 1, **settings: Any
) -> Figure:
    """A block of panels a paper, with one vertical scale; arms of half as many steps as others, or
    less, have a block of their own.

    Args:
        data: columns paper, panel, variant, seed, step, value, or those of `lines_with_intervals`.
        label: of the vertical axis, with unit.
        settings: further fields of `Curves`.
    """
    blocks = dict(_blocks(data, settings.get("x", "step")))
    taller = 0.5 if settings.get("x", "step") != "step" else 0.0
    heights = [block_height(rows) + taller for rows in blocks.values()]
    heights[-1] += 0.0 if taller else 0.15  # the note
    note = SHADES if taller else running_means(window)
    with plots.style():
        figure = plots.new_figure(0.3 + sum(heights), title)
        places = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
        for place, (paper, rows) in zip(places, blocks.items(), strict=True):
            place.suptitle(paper, fontsize=10, x=0.01, ha="left")
            titles = list(rows["panel"].unique())
            panels = {each: {"window": window} for each in titles}
            panels[titles[0]]["label"] = fill(label, 14)
            names = list(rows["variant"].unique())
            known = looks(rows["paper"].iloc[0], names)
            own = {"variants": [name for name in known if name in names], "panels": panels}
            block = Curves(looks=known, sharey=True, **own, **settings)
            block.draw_on(place, titles, rows.rename(columns={"panel": "quantity"}))
            plots.legend_below(place, note=note if place is places[-1] else "")
    return figure


def _blocks(data: pd.DataFrame, x: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each paper by its name; of arms of very different lengths by name and steps."""
    for paper, rows in data.groupby("paper", sort=False):
        if x != "step":
            yield paper, rows
            continue
        steps = rows.groupby("variant")["step"].transform("max")
        starts: list[int] = []
        for length in sorted(steps.unique()):
            starts += [length] if not starts or length >= 2 * max(starts[-1], 1) else []
        for first, end in pairwise([*starts, steps.max() + 1]):
            part = rows[(steps >= first) & (steps < end)]
            many = len(starts) > 1
            yield f"{paper}, {part['step'].max()} steps" if many else paper, part


def running_means(window: int) -> str:
    """What lines, dots and bars are, and how they are smoothed."""
    return (f"Running means over {window} steps. " if window > 1 else "") + plots.KEY


def block_height(rows: pd.DataFrame) -> float:
    """Inches of a paper's block: its rows of panels and of legend."""
    panels = rows["panel"].nunique()
    variants = rows["variant"].nunique()
    return 0.55 + 1.4 * -(-panels // (2 if panels == 4 else 3)) + 0.17 * -(-variants // 3)


def chosen(paper: str, names: list[str]) -> list[str]:
    """A paper's variants if there are few, else those that are run by default and one's own."""
    if len(names) <= MOST:
        return names
    known = params.variants(paper) if paper in params.papers() else {}
    own = {*known} - named_variants(paper)
    headline = [name for name in names if name in own or known.get(name, {}).get("headline")]
    return (headline or names)[:MOST]


def looks(paper: str, variants: Sequence[str]) -> dict[str, Look]:
    """How variants are drawn: those of the paper's `figures.yaml`, "start" and "start of ..." in
    dotted grey, then the others."""
    known = {n: validate(Words, each, f"{n}: ").look for n, each in known_variants(paper).items()}
    greys = cycle(("0.3", "0.6"))
    starts = [name for name in variants if name.split(" of ")[0] == START]
    known |= {name: Look(name, next(greys), plots.LINES[2]) for name in starts}
    return known | plots.free_looks([name for name in variants if name not in known], known)


def load_curves(paper: str) -> dict[str, Curves]:
    """The figures of a paper that are data, by exhibit; none where it has no such file."""
    if paper not in reference.sources("figures.yaml"):
        return {}
    measures = load_measures(paper)
    entries = {key: each for key, each in read_yaml(paper, "figures.yaml").items() if "/" in key}
    return {
        name: curves_of(name, each, measures, looks(paper, each["variants"]))
        for name, each in entries.items()
    }


def curves_of(
    exhibit: str,
    values: Mapping[str, Any],
    measures: Mapping[str, Measure],
    looks: Mapping[str, Look],
) -> Curves:
    """A figure from its entry in the file; KeyError for a cell that the paper does not have."""
    where = f"{exhibit}: "
    panels = {}
    for title, panel in values["panels"].items():
        if ("measure" in panel) == bool(panel.get("lines")):
            raise ParamError(f"{where}{title} has both measure and lines, or none; allowed: one")
        own = {"paper": {name: _printed(at) for name, at in panel.get("paper", {}).items()}}
        if "measure" in panel:
            own["measure"] = pick(measures, panel["measure"], where)
        else:
            own["lines"] = {
                words: {"label": words, **line, "measure": pick(measures, line["measure"], where)}
                for words, line in panel["lines"].items()
            }
        panels[title] = panel | own
    made = {
        "caption": f"{values['caption']} {plots.KEY}",
        "printed": _printed(values.get("printed", [])),
        "panels": panels,
        "looks": looks,
    }
    return validate(Curves, {**values, **made}, where)


def _printed(cells: Sequence[Cell]) -> list[float]:
    return [reference.value(cell[0].split("/")[0], *cell) for cell in cells]


def bars_of(
    paper: str,
    entry: Any,
    used: Frames,
    measures: Mapping[str, Measure],
    by: str,
    words: Mapping[str, str],
) -> ExhibitContent:
    """A figure of measures at the end, side by side, a bar a variant in each; `entry` has its title
    and note, `by` is the column of the measures' names, `words` are the axes'."""
    parts = [measure.of_runs(used).assign(**{by: name}) for name, measure in measures.items()]
    data = pd.concat(parts, ignore_index=True)
    order = looks(paper, used.variants)
    order = {name: order[name] for name in used.variants if name in {*data["variant"]}}
    with plots.style():
        figure = plots.new_figure(3.8, entry.title)
        (ax,) = plots.multiples(figure, [""]).values()
        plots.bars(ax, data, by, "value", hue="variant", order=order)
        ax.set(**words)
        plots.legend_below(figure, note=entry.note)
    return ExhibitContent(figure, used.runs, data)
