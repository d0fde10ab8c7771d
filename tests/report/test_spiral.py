"""SPIRAL's own exhibits, on texts by hand and on runs whose final weights are the shipped ones."""

import pytest

from spnb.report import spiral
from spnb.report.frame import gather
from spnb.testbed import embedded_path
from spnb.train.plan import make_plan

pytestmark = pytest.mark.slow
TEXTS = {
    "embedded/games": [("kuhn_poker", "\\boxed{bet}"), ("questions", "\\boxed{1}")],
    "trained": [
        ("kuhn_poker", "My card is Q. A check risks 1, a bet risks 2. \\boxed{bet}"),
        ("questions", "\\boxed{1}"),
    ],
}


@pytest.fixture
def plan(tmp_path):
    """A plan at smoke scale whose runs end with the weights that they begin with."""
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    variants = ["full", *spiral.SPECIALISTS.values()]
    plan = make_plan("spiral", "smoke", variants=variants, eval_games=[], **folders)
    for run in plan.all():
        run.model.symlink_to(embedded_path("games"))
    return plan


def test_what_a_policy_says_is_counted_and_quoted(plan, monkeypatch):
    said = lambda path, folder: TEXTS.get(path, TEXTS["trained"])  # noqa: E731
    monkeypatch.setattr(spiral, "_spoken", said)
    frames = gather(plan.all())
    shares = spiral.figure_4(plan, frames).data.set_index(["when", "where", "pattern"])["value"]
    assert shares["start", "kuhn_poker", "case analysis"] == 0
    assert shares["end", "kuhn_poker", "case analysis"] == 1
    table = spiral.table_2(plan, frames).item
    assert table["kuhn_poker"]["case analysis"] == TEXTS["trained"][0][1]
    assert table["questions"]["case analysis"] == "none"


def test_the_settings_stand_beside_the_papers(plan):
    table = spiral.table_6(plan, gather([])).item
    assert table.loc["Batch size"].tolist() == ["128", "18"]
    assert table.loc["top k"].tolist() == ["-1", "off"]
    assert table.loc["Learning rate"].tolist() == ["1e-06", "0.0003"]
    assert table.loc["Discount factor"].tolist() == ["1", "1"] and len(table) == 16


def test_problems_are_answered_again_and_specialists_meet(plan):
    frames = gather(plan.all())
    answers = spiral.table_7(plan, frames).item
    assert list(answers.columns) == ["problem (its end)", "start", "step 2"]
    assert (answers["start"] == answers["step 2"]).all() and "question" in answers.index
    table = spiral.table_4(plan, frames).item.set_index(["row", "column"])
    assert table.loc[("Poker Specialist", "Kuhn Poker"), "n"] == 1
    assert spiral.table_4(plan, frames.only(["full"])) is None
