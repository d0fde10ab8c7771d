"""A paper's tables as data: which run is which row, what a column measures, and the paper's number
beside it.

`reference/<paper>/tables.yaml` lists the tables that are made of evaluations and training logs. A
table needs all of its variants: a plan without them leaves an earlier table as it is.
"""

from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd
import yaml
from pydantic import Field, model_validator

from spnb import reference
from spnb.core.params import ParamError, StrictData, unknown, validate
from spnb.report.exhibits import beside_paper, exhibit_info
from spnb.report.frame import cells, logged, scores

LOG_WINDOW = 0.04
"""A number of the training log is a mean over this share of the training to either side."""


class Column(StrictData):
    """What a column measures: the mean over evaluations of weighted metrics, or over columns of the
    training log."""

    table: Literal["evals", "metrics"] = "evals"
    names: list[str] = Field(
        min_length=1, description="evaluations, or columns of the log (* for anything)"
    )
    weights: dict[str, float] = Field(
        {}, description="evals only: metrics to add up and their factors"
    )
    factor: float = Field(1, description="metrics only")

    @model_validator(mode="after")
    def _weighted(self) -> "Column":
        if bool(self.weights) != (self.table == "evals"):
            raise ValueError(
                f"weights is {self.weights} with table {self.table}; allowed: some with evals only"
            )
        if self.table == "evals" and self.factor != 1:
            raise ValueError(
                f"factor is {self.factor} with table evals; allowed: with metrics only"
            )
        return self

    def rows(self, evals: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
        """Rows variant, seed, step, value; of evaluations, steps that have all of them."""
        if self.table == "evals":
            return scores(evals, self.names, self.weights, whole=True)
        return logged(metrics, self.names).assign(value=lambda rows: self.factor * rows["value"])


class Table(StrictData):
    """One table: labels are the paper's, or ours where it has no such row or column."""

    exhibit: str
    printed: str = Field(description="the exhibit whose numbers stand beside ours")
    caption: str = Field(min_length=1)
    protocol: str = Field(min_length=1)
    runs: dict[str, tuple[str, float]] = Field(
        min_length=1, description="a variant and a share of its training"
    )
    columns: dict[str, Column] = Field(min_length=1)
    variants_of: dict[str, str] = Field(
        {}, description="columns that are measured on another variant than the row's"
    )
    runs_in: Literal["rows", "columns"] = "rows"
    digits: int = Field(1, ge=0, description="decimals shown")

    @model_validator(mode="after")
    def _known(self) -> "Table":
        if odd := [label for label in self.variants_of if label not in self.columns]:
            raise ValueError(f"variants_of has {odd[0]!r}; allowed: {', '.join(self.columns)}")
        for label, (_, share) in self.runs.items():
            if not 0 <= share <= 1:
                raise ValueError(
                    f"runs has {label!r} at {share}; allowed: start, end, or a share from 0 to 1"
                )
        return self

    @property
    def variants(self) -> list[str]:
        """The variants whose runs it takes."""
        return list(
            dict.fromkeys(
                [*(variant for variant, _ in self.runs.values()), *self.variants_of.values()]
            )
        )

    def missing(self, variants: Sequence[str]) -> list[str]:
        """Those of its variants that are not among `variants`."""
        return [variant for variant in self.variants if variant not in variants]

    def fill(
        self, evals: pd.DataFrame, metrics: pd.DataFrame, more: Sequence[pd.DataFrame] = ()
    ) -> pd.DataFrame:
        """The table beside the paper's numbers, as `exhibits.beside_paper` gives it; `more`:
        further cells of ours."""
        found = []
        for label, column in self.columns.items():
            other = self.variants_of.get(label)
            runs = {row: (other or variant, share) for row, (variant, share) in self.runs.items()}
            window = LOG_WINDOW if column.table == "metrics" else 0
            found.append(cells({label: column.rows(evals, metrics)}, runs, window))
        ours = pd.concat([*found, *more], ignore_index=True)
        if {share for _, share in self.runs.values()} <= {0, 1}:
            ours = ours.drop(columns="at")
        if self.runs_in == "columns":
            ours = ours.rename(columns={"row": "column", "column": "row"})
        printed = reference.load(exhibit_info(self.exhibit).paper)
        printed = printed[printed["exhibit"] == self.printed]
        printed = printed[printed["row"].isin(ours["row"]) & printed["column"].isin(ours["column"])]
        return beside_paper(printed, ours, self.digits)


def load_tables(paper: str) -> dict[str, Table]:
    """The tables of a paper ("spiral") by exhibit.

    Raises:
        ParamError: the paper has none, or a fault in the file: the table, the key, the value and
            what is allowed.
    """
    found = reference.sources("tables.yaml")
    if paper not in found:
        raise ParamError(unknown("paper", paper, found))
    content = yaml.safe_load(found[paper].read_text(encoding="utf-8"))
    return {
        name: table_of(name, values, content["measures"])
        for name, values in content["tables"].items()
    }


def table_of(exhibit: str, values: dict[str, Any], measures: dict[str, Any]) -> Table:
    """A table from its entry in the file; `start` and `end` stand for the shares 0 and 1, columns
    name measures.

    Raises:
        ParamError: as `load_tables`.
    """
    columns = {}
    for label, name in values.get("columns", {}).items():
        if name not in measures:
            raise ParamError(f"table {exhibit}: {unknown('measure', name, measures)}")
        columns[label] = measures[name]
    ends = {"start": 0, "end": 1}
    runs = {
        label: [variant, ends.get(when, when)]
        for label, (variant, when) in values.get("runs", {}).items()
    }
    try:
        return validate(
            Table,
            {"printed": exhibit, **values, "exhibit": exhibit, "columns": columns, "runs": runs},
        )
    except ParamError as error:
        raise ParamError(f"table {exhibit}: {error}") from None
