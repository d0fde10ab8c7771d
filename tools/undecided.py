"""How many seeds would decide the parts of claims that are not decided, and how long they take.

    python -m tools.undecided    # writes the table of RESULTS.md

A part's interval is taken from the committed claims. It is decided once the interval lies on one
side of the bound, or within the margin, if mean and spread of the seeds stay what they are.
Minutes: the seeds that are missing, times those of a run of each of its variants
(`timings.json`), on two cores.
"""

import json
import re
from collections.abc import Iterator

import pandas as pd

from spnb.core.paths import ROOT
from spnb.core.stats import seeds_to_decide
from spnb.report.claims import NOT_DECIDED, Claims, Part, load_claims
from tools.sizes import with_table

PAPERS = ("spell", "spice", "spiral")
MARKERS = ("<!-- undecided -->", "<!-- end of undecided -->")
RESULTS = ROOT / "RESULTS.md"
MOST = 200
"""More seeds than these are no plan: the effect is too small for this world."""
NUMBER = r"(-?\d+(?:\.\d+)?)"
INTERVAL = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]")


def undecided(paper: str) -> Iterator[tuple[str, int, float]]:
    """Part, seeds (0: more than `MOST`) and minutes of each part that is not decided."""
    folder = ROOT / "figures"
    minutes = json.loads((folder / "timings.json").read_text())[paper]["cpu"]
    lines = pd.read_csv(folder / paper / "claims.csv", dtype=str)
    open_parts = lines[(lines["verdict"] == NOT_DECIDED) & (lines["part"] != "all parts")]
    parts = parts_of(load_claims(paper))
    for line in open_parts.itertuples():
        part = parts[line.claim, line.part]
        bound = part.against if isinstance(part.against, float | int) else 0.0
        mean, low, high = map(float, INTERVAL.match(line.here).groups())
        n = int(line.n)
        seeds = seeds_to_decide(mean - bound, (high - low) / 2, n, part.margin, MOST)
        a_seed = sum(minutes.get(name, minutes["full"]) for name in part.variants)
        yield line.part, seeds, max(0, seeds - n) * a_seed / 2


def parts_of(claims: Claims) -> dict[tuple[str, str], Part]:
    """The parts by the texts of claim and part."""
    return {(claim.text, part.text): part for claim in claims.claims for part in claim.parts}


def table() -> str:
    """The parts of all papers, in Markdown."""
    rows = [
        "| paper | not decided | seeds that would decide | minutes more |",
        "| --- | --- | --- | --- |",
    ]
    for paper in PAPERS:
        for part, seeds, more in undecided(paper):
            numbers = f"about {seeds} | {more:.0f}" if seeds else f"more than {MOST} | -"
            rows.append(f"| {paper.upper()} | {part} | {numbers} |")
    return "\n".join(rows)


if __name__ == "__main__":
    RESULTS.write_text(with_table(RESULTS.read_text(), table(), MARKERS))
    print(table())
