"""The papers' reported numbers as data: one CSV file a paper, one line a printed number.

Exhibits put these numbers beside a run's own. README.md in this folder says where each number was
recovered from and which printed means are not the mean of their row.
"""

from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable

import pandas as pd

_TYPES = {"exhibit": str, "row": str, "column": str, "value": "float64"}


def sources(name: str) -> dict[str, Traversable]:
    """The files of that name ("claims.yaml") in the papers' folders, by paper."""
    folders = [entry for entry in files(__name__).iterdir() if entry.is_dir()]
    return {folder.name: folder / name for folder in folders if (folder / name).is_file()}


def claims_files(paper: str) -> list[str]:
    """The names of a paper's files of claims: claims.yaml, claims-*.yaml of further exhibits."""
    folder = files(__name__) / paper
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return sorted(name for name in names if name.startswith("claims") and name.endswith(".yaml"))


def load(paper: str) -> pd.DataFrame:
    """Return every reported number of `paper` ("spiral"), in printed order.

    Columns: exhibit ("spiral/table-3"), row and column (str, labels as printed), value (float64;
    per cent as printed, so 52.3 means 52.3 %). Raises ValueError for a paper without a file, naming
    those that exist.
    """
    found = sources("numbers.csv")
    if paper not in found:
        raise ValueError(
            f"unknown paper {paper!r}: reference numbers exist for {', '.join(sorted(found))}"
        )
    with found[paper].open(encoding="utf-8") as handle:
        return pd.read_csv(handle, dtype=_TYPES, keep_default_na=False)


def value(paper: str, exhibit: str, row: str, column: str) -> float:
    """Return one printed number.

    Raises KeyError at the first label that does not exist (exhibit, then row in it, then column in
    that row), with the nearest ones that do. A cell the paper leaves empty or prints as N/A is such
    a missing column of its row.
    """
    cells = _narrow(load(paper), "exhibit", exhibit, f"paper {paper!r}")
    cells = _narrow(cells, "row", row, f"exhibit {exhibit!r}")
    cells = _narrow(cells, "column", column, f"row {row!r} of exhibit {exhibit!r}")
    return float(cells["value"].item())


def table(paper: str, exhibit: str) -> pd.DataFrame:
    """Return one exhibit as printed: rows by columns of float64, both in printed order, NaN where
    nothing is printed.

    Raises KeyError for an exhibit without reported numbers, with the nearest ids.
    """
    cells = _narrow(load(paper), "exhibit", exhibit, f"paper {paper!r}")
    wide = cells.pivot(index="row", columns="column", values="value")
    return wide.reindex(index=cells["row"].unique(), columns=cells["column"].unique())


def _narrow(cells: pd.DataFrame, key: str, label: str, where: str) -> pd.DataFrame:
    """Return the lines of `cells` whose `key` is `label`; KeyError naming `where` and the nearest
    labels if none is."""
    found = cells[cells[key] == label]
    if found.empty:
        near = get_close_matches(str(label), cells[key].unique(), n=5, cutoff=0.0)
        raise KeyError(f"{where} has no {key} {label!r}; nearest: {', '.join(map(repr, near))}")
    return found
