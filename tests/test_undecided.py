"""The table of what is not decided: from the committed claims, and up to date."""

import pandas as pd
import pytest

from spnb.core.paths import ROOT
from spnb.report.claims import NOT_DECIDED
from tools import undecided
from tools.sizes import with_table


def test_the_results_have_todays_table():
    text = undecided.RESULTS.read_text()
    now = with_table(text, undecided.table(), undecided.MARKERS)
    assert text == now, "run: python -m tools.undecided"


@pytest.mark.parametrize("paper", undecided.PAPERS)
def test_every_undecided_part_is_listed_with_its_price(paper):
    lines = pd.read_csv(ROOT / "figures" / paper / "claims.csv", dtype=str)
    alone = lines[(lines["verdict"] == NOT_DECIDED) & (lines["part"] != "all parts")]
    found = list(undecided.undecided(paper))
    assert [part for part, *_ in found] == alone["part"].tolist()
    for (_, seeds, minutes), n in zip(found, alone["n"].astype(int), strict=True):
        assert seeds == 0 or n < seeds <= undecided.MOST
        assert (minutes > 0) == (seeds > 0)
