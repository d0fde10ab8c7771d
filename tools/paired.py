"""The difference of two arms' ends, paired by seed, from the values by seed that are committed.

    python -m tools.paired spiral "three games" full fixed-random
    python -m tools.paired scope oracle curated start    # an arm's rise over its own start

Mean and Student's t 95 % interval over seeds, in the measure's points, how many seeds it is above 0
in, and n. Nothing is adjusted for how many differences are looked at.
"""

import sys

import pandas as pd

from spnb.core.params import ParamError, papers, require
from spnb.core.paths import ROOT
from spnb.core.stats import mean_interval

START = "start"
USAGE = "usage: python -m tools.paired PAPER MEASURE ARM OTHER|start"


def paired(paper: str, measure: str, arm: str, other: str) -> str:
    """The sentence; ParamError for a name that the paper's values by seed have not."""
    require("paper", paper, papers())
    table = pd.read_csv(ROOT / f"figures/{paper}/seeds.csv")
    require("measure", measure, list(table["measure"].unique()))
    rows = table[table["measure"] == measure]
    arms = list(rows["variant"].unique())
    require("arm", arm, arms)
    require("other arm", other, [*arms, START])
    by_seed = dict(list(rows.set_index("seed").groupby("variant")))
    against = by_seed[arm]["start"] if other == START else by_seed[other]["end"]
    pairs = (by_seed[arm]["end"] - against).dropna()
    mean, low, high, n = mean_interval(pairs.tolist())
    above = f"above 0 in {(pairs > 0).sum()} of {n} seeds"
    return f"{paper}, {measure}: {arm} minus {other} {mean:.1f} [{low:.1f}, {high:.1f}], {above}"


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(USAGE)
    try:
        print(paired(*sys.argv[1:]))
    except ParamError as error:
        sys.exit(f"error: {error}")
