"""SPICE's table of settings: the compared methods at this scale, beside the paper's."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import Frames
from spnb.report.tables import printed_table, read_yaml
from spnb.train.plan import Plan, make_plan


def table_5(plan: Plan, frames: Frames) -> ExhibitContent:
    """What each method's variant has at the plan's scale, with the paper's setting behind it."""
    content = read_yaml("spice", "tables.yaml")["settings"]
    printed = printed_table("spice/table-5")
    rows = content["rows"]
    own = make_plan("spice", plan.scale, variants=[*content["methods"].values()])
    table = {}
    for place, (method, variant) in enumerate(content["methods"].items()):
        values = own.params(variant).model_dump()
        table[method] = [setting(row, place, printed[method], values) for row in rows]
    names = pd.Index([row["name"] for row in rows], name="setting")
    return ExhibitContent(pd.DataFrame(table, index=names), [])


def setting(
    row: Mapping[str, Any], place: int, printed: pd.Series, values: Mapping[str, Any]
) -> str:
    """A cell of a line of `settings`: "8 (paper 8)"; "-" where neither side has anything.

    Args:
        place: which of the methods.
        printed: the method's column of the printed table.
        values: the parameters of its variant.
    """
    labels = row.get("printed", [])
    found = printed[[labels] if isinstance(labels, str) else labels].dropna()
    numbers = "; ".join(map("{:g}".format, found)) or "-"
    paper = row["paper"][place].format(printed=numbers) if "paper" in row else numbers
    here = row["here"][place].format(**values)
    return here if paper == "-" else f"{here} (paper {paper})"


MAKERS = {"spice/table-5": table_5}
