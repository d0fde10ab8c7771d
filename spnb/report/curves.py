"""A paper's figures over training steps as data: which run is which line, and what is measured.

`reference/<paper>/figures.yaml` lists them; their measures stand in `tables.yaml`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from matplotlib.figure import Figure
from pydantic import BeforeValidator, Field

from spnb import reference
from spnb.core.params import StrictData, validate
from spnb.report import plots
from spnb.report.frame import Frames, Measure
from spnb.report.tables import load_measures, pick, read_yaml

Names = Annotated[
    dict[str, str],
    BeforeValidator(lambda names: {n: n for n in names} if isinstance(names, list) else names),
]


class Panel(StrictData):
    """One panel of a figure: a measure over training steps."""

    measure: Measure
    label: str = Field("", description="of the vertical axis, with unit")
    window: int = Field(1, description="steps of the running mean")
    variants: list[str] = Field([], description="those drawn; all of the figure's if left out")


class Curves(StrictData):
    """One figure over training steps: panels, and the variants' names in the legend."""

    caption: str
    protocol: str
    variants: Names = Field(description="variants, with their names in the legend")
    whole: bool = Field(False, description="whether it needs all of its variants")
    panels: dict[str, Panel]
    height: float | None = Field(None, description="inches")
    ylim: tuple[float | None, float | None] = (0, None)

    def missing(self, variants: Sequence[str]) -> list[str]:
        """The variants without which it cannot be drawn and that are not among `variants`."""
        absent = [variant for variant in self.variants if variant not in variants]
        return absent if self.whole or len(absent) == len(self.variants) else []

    def data(self, frames: Frames) -> pd.DataFrame:
        """The drawn numbers: columns variant, seed, step, value, quantity (the panel)."""
        parts = []
        for title, panel in self.panels.items():
            rows = panel.measure.by_step(frames.only(panel.variants or list(self.variants)))
            parts.append(rows.assign(quantity=title))
        return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)

    def draw(self, data: pd.DataFrame) -> Figure:
        """Their figure."""
        labels = {title: panel.label for title, panel in self.panels.items()}
        windows = {title: panel.window for title, panel in self.panels.items()}
        rows = data.assign(variant=data["variant"].map(self.variants))
        order = list(dict.fromkeys(self.variants.values()))
        return plots.curves(rows, order, labels, windows, self.height, ylim=self.ylim)


def load_curves(paper: str) -> dict[str, Curves]:
    """The figures of a paper that are data, by exhibit; none where it has no such file."""
    if paper not in reference.sources("figures.yaml"):
        return {}
    measures = load_measures(paper)
    entries = read_yaml(paper, "figures.yaml")
    return {name: curves_of(name, each, measures) for name, each in entries.items()}


def curves_of(exhibit: str, values: Mapping[str, Any], measures: Mapping[str, Measure]) -> Curves:
    """A figure from its entry in the file."""
    where = f"{exhibit}: "
    panels = {}
    for title, panel in values["panels"].items():
        panels[title] = {**panel, "measure": pick(measures, panel["measure"], where)}
    return validate(Curves, {**values, "panels": panels}, where)
