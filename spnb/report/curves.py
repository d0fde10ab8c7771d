"""A paper's figures over training steps as data: which run is which line, and what is measured.

`reference/<paper>/figures.yaml` lists them, and under `variants` the words, colour and line style
of each variant in every figure of the paper; their measures stand in `tables.yaml`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, model_validator

from spnb import reference
from spnb.core.params import StrictData, validate
from spnb.report import plots
from spnb.report.frame import Frames, Measure
from spnb.report.plots import Look
from spnb.report.tables import load_measures, pick, read_yaml

Limits = tuple[float | None, float | None]
Cell = tuple[str, str, str]
"""A printed number: exhibit, row, column."""


class Words(StrictData):
    """How a variant is drawn throughout a paper."""

    label: str = Field(description="its words in a legend")
    colour: int = Field(ge=0, lt=len(plots.PALETTE))
    line: int = Field(0, ge=0, lt=len(plots.LINES))

    @property
    def look(self) -> Look:
        """Its words, colour and line style as figures take them."""
        return Look(self.label, plots.PALETTE[self.colour], plots.LINES[self.line])


class Line(StrictData):
    """A line of a panel that shows several measures of one variant."""

    measure: Measure
    variant: str
    look: Look


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

    @model_validator(mode="after")
    def _one_kind(self) -> "Panel":
        if (self.measure is None) != bool(self.lines):
            raise ValueError("a panel has both measure and lines, or none; allowed: one of them")
        return self

    def data(self, frames: Frames, variants: Sequence[str]) -> pd.DataFrame:
        """Columns variant (or a line's words), seed, step, value."""
        if self.measure is not None:
            return self.measure.by_step(frames.only(self.variants or variants))
        parts = []
        for words, line in self.lines.items():
            rows = line.measure.by_step(frames.only([line.variant]))
            parts.append(rows.assign(variant=words))
        return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


class Curves(StrictData):
    """One figure over training steps."""

    title: str
    caption: str
    protocol: str
    note: str = Field("", description="in the picture; {0}, {1:g} are the numbers of `printed`")
    printed: list[float] = []
    variants: list[str]
    looks: dict[str, Look]
    whole: bool = Field(False, description="whether it needs all of its variants")
    panels: dict[str, Panel]
    layout: str = Field("", description="panels as letters, for instance AAB;AAC")
    height: float = Field(4.0, description="inches")
    ylim: Limits = (0, None)
    sharey: bool = Field(False, description="one vertical scale for all panels")

    def missing(self, variants: Sequence[str]) -> list[str]:
        """The variants without which it cannot be drawn and that are not among `variants`."""
        absent = [variant for variant in self.variants if variant not in variants]
        return absent if self.whole or len(absent) == len(self.variants) else []

    def data(self, frames: Frames) -> pd.DataFrame:
        """The drawn numbers: columns variant, seed, step, value, quantity (the panel)."""
        parts = []
        for title, panel in self.panels.items():
            parts.append(panel.data(frames, self.variants).assign(quantity=title))
        return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)

    def draw(self, data: pd.DataFrame) -> Figure:
        """Their figure; a panel without numbers is left out."""
        titles = [title for title in self.panels if title in set(data["quantity"])]
        with plots.style():
            figure = plots.new_figure(self.height, self.title)
            axes = plots.multiples(figure, titles, self.layout, self.sharey)
            self.draw_panels(axes, data)
            plots.legend_below(figure, note=self.words)
        return figure

    @property
    def words(self) -> str:
        """What stands in small type below the picture."""
        return f"{self.note.format(*self.printed)} {plots.KEY}".strip()

    def draw_panels(self, axes: Mapping[str, Axes], data: pd.DataFrame) -> None:
        """Draws the panels with these titles on their axes."""
        order = {name: self.looks[name] for name in self.variants}
        for title, ax in axes.items():
            panel = self.panels[title]
            lines = {words: line.look for words, line in panel.lines.items()}
            plots.curve(ax, data[data["quantity"] == title], lines or order, panel.window)
        for title, ax in axes.items():  # after all curves, where the scale is shared
            drawn = set(data.loc[data["quantity"] == title, "variant"])
            self._finish(ax, self.panels[title], drawn)

    def _finish(self, ax: Axes, panel: Panel, drawn: set[str]) -> None:
        ax.set(ylabel=panel.label, ylim=panel.ylim or self.ylim)
        for name, value in panel.levels.items():
            plots.level(ax, value, name)
        for variant, values in panel.paper.items():
            if variant in drawn:
                plots.paper_line(ax, values, self.looks[variant].colour)


def looks(paper: str, variants: Sequence[str]) -> dict[str, Look]:
    """How a paper's variants are drawn: first those of its `figures.yaml`, then the others."""
    there = paper in reference.sources("figures.yaml")
    entries = read_yaml(paper, "figures.yaml").get("variants", {}) if there else {}
    words = {name: validate(Words, each, f"{name}: ") for name, each in entries.items()}
    known = {name: each.look for name, each in words.items()}
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
        paper = {name: _printed(cells) for name, cells in panel.get("paper", {}).items()}
        own = {"paper": paper, "lines": _lines(panel, measures, where)}
        if "measure" in panel:
            own["measure"] = pick(measures, panel["measure"], where)
        panels[title] = panel | own
    made = {
        "caption": f"{values['caption']} {plots.KEY}",
        "printed": _printed(values.get("printed", [])),
        "panels": panels,
        "looks": looks,
    }
    return validate(Curves, {**values, **made}, where)


def _lines(
    panel: Mapping[str, Any], measures: Mapping[str, Measure], where: str
) -> dict[str, dict[str, Any]]:
    """A panel's lines from its entry: measure and variant by name, colour and style by number."""
    lines = {}
    for words, entry in panel.get("lines", {}).items():
        known = {key: each for key, each in entry.items() if key not in ("measure", "variant")}
        drawn = validate(Words, {"label": words, **known}, f"{where}{words}: ")
        measure = pick(measures, entry["measure"], where)
        lines[words] = {"measure": measure, "variant": entry["variant"], "look": drawn.look}
    return lines


def _printed(cells: Sequence[Cell]) -> list[float]:
    """The paper's numbers in those cells."""
    return [reference.value(cell[0].split("/")[0], *cell) for cell in cells]
