"""Marks of a policy's texts as rows of a table, for the measurements of shipped policies."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from spnb.evaluate.items import score_row

Mark = tuple[dict[str, float], bool]
"""A text's grade (0 to 1) in each part of the table it counts in; whether it is well-formed."""


def part_rows(name: str, marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """A row for each part: its mean grade with an interval, and the share of well-formed texts.

    Parts stand in the order of the marks; after them, sorted by name, those with a colon.
    """
    grades = [(part, value, well) for parts, well in marks for part, value in parts.items()]
    frame = pd.DataFrame(grades, columns=["part", "grade", "parsed"])
    rows = []
    for part, group in frame.groupby("part", sort=False):
        row = score_row(name, "grade", group["grade"].tolist())
        bounds = {"low": max(row["low"], 0.0), "high": min(row["high"], 1.0), "n": row["n"]}
        parsed = float(group["parsed"].mean())
        columns = {"benchmark": name, "part": part, "value": row["value"]}
        rows.append(columns | bounds | {"parsed": parsed})
    return sorted(rows, key=lambda row: row["part"] if ": " in row["part"] else "")
