"""A paper's tables as data: which run is which row, and what is measured.

`reference/<paper>/tables.yaml` lists measures by name, and the tables that are made of them. A
table needs all of its variants: a plan without them leaves an earlier table as it is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pandas as pd
import yaml
from pydantic import BeforeValidator, Field

from spnb import reference
from spnb.core.params import ParamError, StrictData, unknown, validate
from spnb.report.frame import Frames, Measure, format_interval, seed_interval
from spnb.train.runs import Run

ENDS = {"start": 0, "end": 1}
At = Annotated[float, BeforeValidator(lambda at: ENDS.get(at, at)), Field(ge=0, le=1)]


class Table(StrictData):
    """One table: labels are the paper's, or ours where it has no such row or column.

    `runs` gives a row's variant and the share of its training: start, end, or 0 to 1. Columns in
    `variants_of` are measured on another variant than the row's.
    """

    printed: str = Field(description="the exhibit whose numbers stand beside ours")
    caption: str
    protocol: str
    runs: dict[str, tuple[str, At]]
    columns: dict[str, Measure]
    variants_of: dict[str, str] = {}
    runs_in: Literal["rows", "columns"] = "rows"
    digits: int = 1

    @property
    def variants(self) -> list[str]:
        """The variants whose runs it takes."""
        rows = (variant for variant, _ in self.runs.values())
        return list(dict.fromkeys([*rows, *self.variants_of.values()]))

    def missing(self, variants: Sequence[str]) -> list[str]:
        """Those of its variants that are not among `variants`."""
        return [variant for variant in self.variants if variant not in variants]

    def fill(self, frames: Frames, more: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
        """The table beside the paper's numbers (`beside_paper`); `more`: further cells of ours."""
        cells = []
        for label, measure in self.columns.items():
            for row, (variant, share) in self.runs.items():
                own = frames.only([self.variants_of.get(label, variant)])
                values = measure.of_runs(own, share)
                first, last = values["first"].min(), values["last"].max()
                at = f"step {first}" if first == last else f"steps {first}-{last}"
                if len(values):
                    cells.append((row, label, *seed_interval(values, share), at))
        keys = ["row", "column"] if self.runs_in == "rows" else ["column", "row"]
        ours = pd.DataFrame(cells, columns=[*keys, "value", "low", "high", "n", "at"])
        ours = pd.concat([ours, *more])
        if {share for _, share in self.runs.values()} <= {0, 1}:
            ours = ours.drop(columns="at")
        printed = reference.load(self.printed.split("/")[0]).query("exhibit == @self.printed")
        printed = printed[printed["row"].isin(ours["row"]) & printed["column"].isin(ours["column"])]
        return beside_paper(printed, ours, self.digits)


def load_measures(paper: str) -> dict[str, Measure]:
    """The measures of a paper's tables, figures and claims by name; ParamError if it has none."""
    files = [name for name in ("tables.yaml", "claims.yaml") if paper in reference.sources(name)]
    contents = [read_yaml(paper, name) for name in files or ["tables.yaml"]]
    return {key: measure for each in contents for key, measure in measures_of(each).items()}


def load_tables(paper: str) -> dict[str, Table]:
    """The tables of a paper that are data, by exhibit."""
    content = read_yaml(paper, "tables.yaml")
    entries = content.get("tables", {})
    return {name: table_of(name, each, measures_of(content)) for name, each in entries.items()}


def table_of(exhibit: str, values: Mapping[str, Any], measures: Mapping[str, Measure]) -> Table:
    """A table from its entry in the file."""
    where = f"{exhibit}: "
    columns = {k: pick(measures, name, where) for k, name in values["columns"].items()}
    return validate(Table, {"printed": exhibit, **values, "columns": columns}, where)


def pick(measures: Mapping[str, Measure], name: str, where: str) -> Measure:
    """A measure by its name; ParamError for an unknown one, which begins with `where`."""
    if name not in measures:
        raise ParamError(where + unknown("measure", name, measures))
    return measures[name]


def measures_of(content: Mapping[str, Any]) -> dict[str, Measure]:
    """The section `measures` of a file."""
    entries = content.get("measures", {})
    return {name: validate(Measure, each, f"{name}: ") for name, each in entries.items()}


def read_yaml(paper: str, name: str) -> dict[str, Any]:
    """A file of a paper's reference folder; ParamError names the papers that have one."""
    sources = reference.sources(name)
    if paper not in sources:
        raise ParamError(unknown("paper", paper, sources))
    return yaml.safe_load(sources[paper].read_text(encoding="utf-8"))


def fill_in(text: str, runs: Sequence[Run]) -> str:
    """A text with each {name} replaced by that parameter of the runs; values are joined by "or"."""

    def shown(match: re.Match) -> str:
        values = [run.params[match[1]] for run in runs if run.params.get(match[1]) is not None]
        words = [", ".join(v) if isinstance(v, list) else f"{v}" for v in values]
        return " or ".join(dict.fromkeys(words))

    return re.sub(r"\{(\w+)\}", shown, text)


def beside_paper(paper: pd.DataFrame, ours: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Ours beside the paper's: one line a cell that either has.

    `paper` has columns row, column, value, `ours` also low, high, n (seeds), maybe at (step).
    The result has row, column, paper, ours (with 95 % interval), n, maybe "measured at", in the
    paper's order, then ours; "-" where a side has no such number. ValueError for a cell twice.
    """
    cell = ["row", "column"]
    paper = paper[[*cell, "value"]]
    sides = {"how": "outer", "suffixes": ("_paper", ""), "validate": "one_to_one"}
    merged = paper.merge(ours, on=cell, **sides)
    for key in cell:
        merged[key] = pd.Categorical(merged[key], list(dict.fromkeys([*paper[key], *ours[key]])))
    merged = merged.sort_values(cell).reset_index(drop=True)
    shown = merged[cell].astype(str)
    shown["paper"] = ["-" if pd.isna(value) else f"{value:g}" for value in merged["value_paper"]]
    intervals = merged[["value", "low", "high"]].to_numpy(float)
    shown["ours"] = [format_interval(*each, digits) for each in intervals]
    shown["n"] = ["-" if pd.isna(n) else int(n) for n in merged["n"]]
    return shown.assign(**{"measured at": merged["at"].fillna("-")}) if "at" in merged else shown
