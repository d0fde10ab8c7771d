"""A user's own variant, which no reference file names, in the exhibits that can show it."""

from types import SimpleNamespace

import pandas as pd
import pytest

from spnb.report import curves, dynamics, show
from spnb.report.frame import KEYS, gather
from spnb.report.papers import rlvr, spell
from spnb.report.tables import load_tables
from spnb.train.runs import open_run

LINES = {"full": (0.25, 0.5), "mine": (0.25, 0.75)}
"""The share of right answers about lines, before and after training."""


def spiral_run(root, variant, seed):
    """A run of three steps: score against random play 25, then 50 or 75 %; answers of 10 tokens."""
    params = {"paper": "spiral", "scale": "smoke", "variant": variant, "seed": seed}
    games = ["kuhn_poker", "TicTacToe-v0", "SimpleNegotiation-v0"]
    run = open_run(root, params | {"games": games, "steps": 3, "policy": "p"})
    for step, share in zip((0, 3), LINES.get(variant, (0.25, 0.25)), strict=True):
        numbers = {"step": step, "low": 0.0, "high": 1.0, "n": 4}
        for game in games:
            where = dict.fromkeys(KEYS, "") | {"suite": game, "opponent": "random"}
            for metric, value in (("win", share), ("draw", 0.0), ("invalid", 0.0)):
                run.append("evals", {**numbers, **where, "metric": metric, "value": value})
        where = dict.fromkeys(KEYS, "") | {"suite": "transfer", "difficulty": "line"}
        run.append("evals", {**numbers, **where, "metric": "accuracy", "value": share})
    for step in (1, 2, 3):
        row = {"step": step, "grad_norm": 1.0, "length/kuhn_poker/0": 10.0}
        run.append("metrics", row | {"entropy/kuhn_poker/0": 0.5, "entropy": 0.5})
    run.finish(seconds=1, resumed=False)
    return run


@pytest.fixture
def plan(tmp_path):
    """Two seeds of `full` and of `mine`."""
    runs = [spiral_run(tmp_path, name, seed) for name in ("full", "mine") for seed in (0, 1)]
    own = {"variants": ["full", "mine"], "figures": tmp_path / "figures", "paper": "spiral"}
    return SimpleNamespace(all=lambda: runs, scale="smoke", **own)


def test_own_variants_are_those_that_no_file_names(plan):
    frames = gather(plan.all())
    assert frames.own == ["mine"] and frames.only(["full"]).own == []
    assert frames.with_own(["no-rae"]).variants == ["mine"]


@pytest.mark.slow
def test_a_figure_has_a_further_line_under_its_name(plan):
    shown = show.exhibit("spiral/figure-9", plan)
    data = pd.read_csv(shown.files["csv"])
    score = data[data["quantity"] == "Three games against random play"]
    ends = score[score["step"] == 3].groupby("variant")["value"].mean()
    assert ends.to_dict() == {"full": 50, "mine": 75}
    labels = [text.get_text() for text in shown.item.legends[0].get_texts()]
    assert "mine (n=2)" in labels and "self-play with RAE (n=2)" in labels
    colours = {line.get_color() for line in shown.item.axes[0].lines if line.get_linewidth() == 1.9}
    assert len(colours) == 2
    assert "2 variants" in shown.where


@pytest.mark.slow
def test_a_table_has_a_further_row_and_dashes_for_what_was_not_run(plan):
    shown = show.exhibit("spiral/table-1", plan)
    table = shown.item
    lines = next(column for column in table if column.startswith("lines"))
    assert table.loc["mine", lines] == "75.0 [75.0, 75.0]" and table.loc["mine", "seeds"] == "2"
    assert table.index[-1] == "mine" or "mine" in table.index
    (full,) = [name for name in table.index if name.startswith("self-play, three games")]
    assert table.loc[full, lines].startswith("50.0 [50.0, 50.0]")
    (other,) = [name for name in table.index if name.startswith("trained against experts")]
    assert table.loc[other, lines].startswith("-")


@pytest.mark.slow
def test_what_cannot_show_it_is_as_without_it(plan, tmp_path):
    frames = gather(plan.all())
    tables = load_tables("spiral")
    assert tables["spiral/table-3"].content(frames) is None, "rows are steps of one variant"
    assert tables["spiral/table-1"].content(frames.only(["full"])) is None, "lacks its variants"
    entry = curves.load_curves("spiral")["spiral/figure-5"]
    assert entry.content(frames.only(["full"])) is None
    assert set(entry.content(frames).data["variant"]) == {"full", "mine"}
    nothing = open_run(
        tmp_path / "no", {"paper": "spiral", "scale": "cpu", "variant": "b", "seed": 0}
    )
    nothing.append("metrics", {"step": 1, "loss": 1.0})
    assert tables["spiral/table-1"].content(gather([nothing])) is None


def test_shared_analyses_have_it_too(plan):
    made = dynamics.exhibit("dynamics/length", gather(plan.all()))
    assert set(made.data["variant"]) == {"full", "mine"}


def test_of_many_variants_those_run_by_default_and_ones_own(monkeypatch):
    known = {"full": {"headline": True}, "mine": {}, **{f"sft{n}": {} for n in range(8)}}
    monkeypatch.setattr(curves.params, "variants", lambda paper: known)
    monkeypatch.setattr(curves, "named_variants", lambda paper: {*known} - {"mine"})
    assert curves.chosen("spiral", list(known)) == ["full", "mine"]


def seconds(root, variant):
    """A step of SPELL that takes 10 seconds, 4 of them to respond."""
    run = open_run(root, {"paper": "spell", "scale": "cpu", "variant": variant, "seed": 0})
    times = {"method/seconds/responding": 4.0, "seconds/update": 2.0, "seconds/step": 10.0}
    run.append("metrics", {"step": 1, **times})
    return run


@pytest.mark.slow
def test_what_code_makes_has_it_as_well(tmp_path):
    made = spell.figure_7(None, gather([seconds(tmp_path, name) for name in ("full", "mine")]))
    assert set(made.data["variant"]) == {"full", "mine"}
    assert "SPELL 10, mine 10." in made.item.legends[0].get_title().get_text()
    run = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "mine", "seed": 0})
    for step, value in ((0, 0.25), (2, 0.75)):
        where = dict.fromkeys(KEYS, "") | {"suite": "held-out", "decoding": "greedy", "step": step}
        numbers = {"metric": "accuracy", "value": value, "low": 0.0, "high": 1.0, "n": 4}
        run.append("evals", {**where, **numbers})
    (line,) = rlvr.gains(None, gather([run])).item.to_dict("records")
    assert (line["task"], line["measure (%)"]) == ("mine", "right, held-out, greedy")
    assert line["gain"] == "50.0 (n = 1)" and line["more than control"] == "-"


def test_arms_of_one_exhibit_alone_are_no_ones_own():
    """The reward study's stand in `proposer/when`; of many those that run by default are drawn."""
    names = sorted(curves.params.variants("proposer"))
    headline = {name for name in names if curves.params.variants("proposer")[name].get("headline")}
    assert "one-minus-easy" in names and set(curves.chosen("proposer", names)) == headline
