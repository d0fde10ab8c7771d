"""Draws figures over training steps again, from the numbers that stand beside them.

    python -m tools.redraw dynamics/length proposer/frontier

Records that ship lack some metrics, and those of some runs do not ship: `spnb exhibit` would have
to train again.
"""

import json
import sys

import pandas as pd

from spnb.core.params import papers, require
from spnb.core.paths import ROOT
from spnb.report import plots
from spnb.report.curves import load_curves
from spnb.report.dynamics import SERIES, picture
from spnb.report.exhibits import ExhibitContent, figure_files

FIGURES = ROOT / "figures"


def redraw(exhibit_id: str) -> list[str]:
    """Writes an exhibit's picture again; the names of the files that changed."""
    records = json.loads((FIGURES / "index.json").read_text())["exhibits"]
    by_id = {each["id"]: each for each in records}
    curves = {name: one for paper in papers() for name, one in load_curves(paper).items()}
    known = [one for one in by_id if one.startswith("dynamics/") or one in curves]
    require("exhibit", exhibit_id, known)
    record = by_id[exhibit_id]
    data = pd.read_csv(FIGURES / f"{exhibit_id}.csv", dtype={"part": str})
    if exhibit_id in curves:
        figure, words = curves[exhibit_id].draw(data), plots.KEY
    else:
        figure, words = picture(exhibit_id, data[SERIES])
    if figure is None or not record["caption"].endswith(words):
        raise SystemExit(f"{exhibit_id} would show something else now: {words or 'nothing'}")
    changed = []
    for name, new in figure_files(record, ExhibitContent(figure, [], data)).items():
        path = FIGURES / exhibit_id.split("/")[0] / name
        if path.read_bytes() != new:
            path.write_bytes(new)
            changed.append(name)
    return changed


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(f"{each}: {', '.join(redraw(each)) or 'as it was'}")
