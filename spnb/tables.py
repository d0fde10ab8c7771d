"""A paper's tables as data: which run is which row, what a column measures, and the paper's number beside it.

`reference/<paper>_tables.yaml` lists the tables that are made of evaluations at the start and at the end of runs. A
table needs all of its variants: a plan without them leaves an earlier table as it is.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field

from spnb import reference
from spnb.exhibits import beside_paper, exhibit_info
from spnb.params import ParamError, unknown, validate
from spnb.results import When, cells


class _Data(BaseModel):
    """Read-only, and any key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Data):
    """What a column measures: the mean over evaluations of weighted metrics."""

    names: list[str] = Field(min_length=1)
    weights: dict[str, float] = Field(min_length=1)


class Table(_Data):
    """One table: labels are the paper's, or ours where it has no such row or column."""

    exhibit: str
    printed: str = Field(description="the exhibit whose numbers stand beside ours")
    caption: str = Field(min_length=1)
    protocol: str = Field(min_length=1)
    runs: dict[str, tuple[str, When]] = Field(min_length=1)
    columns: dict[str, Column] = Field(min_length=1)
    runs_in: Literal["rows", "columns"] = "rows"

    @property
    def variants(self) -> list[str]:
        """The variants whose runs it takes."""
        return list(dict.fromkeys(variant for variant, _ in self.runs.values()))

    def missing(self, variants: Sequence[str]) -> list[str]:
        """Those of its variants that are not among `variants`."""
        return [variant for variant in self.variants if variant not in variants]

    def fill(self, evals: pd.DataFrame, more: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
        """The table beside the paper's numbers, as `exhibits.beside_paper` gives it; `more` has further cells of ours."""
        named = {label: (column.names, column.weights) for label, column in self.columns.items()}
        ours = cells(evals, self.runs, named)
        if self.runs_in == "columns":
            ours = ours.rename(columns={"row": "column", "column": "row"})
        ours = pd.concat([ours, *more], ignore_index=True)
        printed = reference.load(exhibit_info(self.exhibit).paper)
        printed = printed[printed["exhibit"] == self.printed]
        return beside_paper(printed[printed["row"].isin(ours["row"]) & printed["column"].isin(ours["column"])], ours)


def load_tables(paper: str) -> dict[str, Table]:
    """The tables of a paper ("spiral") by exhibit.

    Raises:
        ParamError: the paper has none, or a fault in the file: the table, the key, the value and what is allowed.
    """
    ending = "_tables.yaml"
    found = {entry.name.removesuffix(ending): entry for entry in files(reference).iterdir() if ending in entry.name}
    if paper not in found:
        raise ParamError(unknown("paper", paper, found))
    content = yaml.safe_load(found[paper].read_text(encoding="utf-8"))
    return {name: _table(name, values, content["measures"]) for name, values in content["tables"].items()}


def _table(exhibit: str, values: dict[str, Any], measures: dict[str, Any]) -> Table:
    columns = {}
    for label, name in values.get("columns", {}).items():
        if name not in measures:
            raise ParamError(f"table {exhibit}: {unknown('measure', name, measures)}")
        columns[label] = measures[name]
    try:
        return validate(Table, {"printed": exhibit, **values, "exhibit": exhibit, "columns": columns})
    except ParamError as error:
        raise ParamError(f"table {exhibit}: {error}") from None
