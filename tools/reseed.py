"""Puts the values by seed of runs that are here in the place of a committed table's older ones.

    python -m tools.reseed rlvr chain-even chain-easiest chain-hardest chain-even-random

`spnb exhibit rlvr/seeds` writes the table of all runs that are here. Where a policy of some arms
has changed, and the other arms' runs are on another machine, this draws those arms' rows alone;
the other rows stay. The table's record says which runs it is of.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

import spnb as sp
from spnb.core.paths import ROOT
from spnb.report.exhibits import find_record, gallery, made_from, read_index

FIGURES = ROOT / "figures"
SCALE = "cpu"
KEYS = ["measure", "variant", "seed"]


def reseed(paper: str, *variants: str) -> int:
    """Writes the rows of these variants again; how many.

    Raises:
        ValueError: the new rows are of other measures, variants or seeds; nothing changes.
    """
    name = f"{paper}/seeds"
    old = pd.read_csv(FIGURES / f"{name}.csv", dtype=str, keep_default_na=False)
    with TemporaryDirectory() as folder:
        sp.exhibit(name, sp.make_plan(paper, SCALE, variants=list(variants), figures=folder))
        new = pd.read_csv(Path(folder) / f"{name}.csv", dtype=str, keep_default_na=False)
        drawn = find_record(name, Path(folder))
    theirs = old["variant"].isin(variants)
    fresh = new.set_index(KEYS)
    places = pd.MultiIndex.from_frame(old.loc[theirs, KEYS])
    if sorted(places) != sorted(fresh.index):
        differ = sorted({*places} ^ {*fresh.index})
        allowed = "the rows that are there (else draw the whole table)"
        raise ValueError(f"{name} has other rows of {differ[:2]}; allowed: {allowed}")
    old.loc[theirs, fresh.columns] = fresh.loc[places].to_numpy()
    write(name, old, drawn)
    return int(theirs.sum())


def write(name: str, table: pd.DataFrame, drawn: dict[str, Any]) -> None:
    """The table, its record with what was drawn, and its page."""
    records = read_index(FIGURES)
    record = next(one for one in records if one["id"] == name)
    before = made_from(record)
    for key in ("runs", "policies"):
        record[key] |= drawn[key]
    record["trained_at"] = sorted({*record["trained_at"], *drawn["trained_at"]})
    record |= {key: drawn[key] for key in ("commit", "date")}
    page = FIGURES / f"{name}.md"
    page.write_text(page.read_text().replace(before, made_from(record)))
    table.to_csv(FIGURES / f"{name}.csv", index=False)
    (FIGURES / "index.json").write_text(json.dumps({"exhibits": records}, indent=0) + "\n")
    gallery(FIGURES)


if __name__ == "__main__":
    print(f"{reseed(*sys.argv[1:])} rows of {sys.argv[1]}/seeds drawn again")
