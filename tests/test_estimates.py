"""The table of hours and memory at gpu and paper scale: today's, from the estimates of a plan."""

import pytest

from spnb.train.cards import hours, need
from spnb.train.plan import make_plan
from tools import estimates
from tools.sizes import with_table


def test_the_results_have_todays_estimates():
    text = estimates.RESULTS.read_text()
    now = with_table(text, estimates.table(), estimates.MARKERS)
    assert text == now, "run: python -m tools.estimates"


def test_a_row_has_the_hours_of_all_runs_and_the_smallest_card():
    plan = make_plan("spiral", "gpu", variants=["full"], seeds=[0, 1])
    params = plan.params("full")
    (row,) = estimates.lines("spiral/gpu", plan.runs)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["spiral/gpu", "`full`", "2"]
    assert float(cells[4]) == pytest.approx(2 * hours(params)["all"], abs=0.051)
    assert cells[5:] == [f"{need(params, 24):.0f} of 24", "-"]  # Unsloth takes one process


def test_what_fits_no_card_says_so():
    params = make_plan("scope", "paper", variants=["full"], seeds=[0]).params("full")
    assert estimates.on_cards(params, 1) == f"fits none ({need(params, 141):.0f})"
    assert estimates.on_cards(params, 8) == f"{need(params, 141, 8):.0f} of 141"
