"""pass@k from the records of runs: hand-computed values, starts, gains, what is read from them."""

import math

import pandas as pd
import pytest
from matplotlib.figure import Figure

from spnb.evaluate.items import record
from spnb.report import pass_at_k, show
from spnb.report.curves import SHADES, looks, small_multiples
from spnb.report.exhibits import read_index
from spnb.report.frame import Frames
from spnb.report.pass_at_k import (
    curve,
    ends,
    flows,
    gain,
    gains,
    headline,
    largest,
    level,
    moves,
    passes,
    reading,
    seed_values,
)
from spnb.train.runs import open_run

BEFORE = {("journey-4", "level 1"): [1, 0], ("ledger-4", "level 2"): [4]}
"""How many of four answers are right, item by item, of each suite and level."""
AFTER = {("journey-4", "level 1"): [3, 1], ("ledger-4", "level 2"): [4]}


def answers(step, right, n=4):
    """The records of n answers an item, of which so many are right."""
    rows = []
    for (suite, difficulty), counts in right.items():
        for item, count in enumerate(counts):
            for sample in range(n):
                score = 1.0 if sample < count else 0.5
                place = {"item": str(item), "sample": sample, "difficulty": difficulty}
                rows.append(
                    record(suite, score=score, decoding="sampled", **place) | {"step": step}
                )
    return rows


def write(root, variant="full", seed=0, after=AFTER, paper="spell", weights="abc", before=BEFORE):
    """A run of two steps, and a suite with one answer an item, which has no pass@k."""
    params = {"paper": paper, "scale": "cpu", "variant": variant, "seed": seed}
    run = open_run(root, params | {"policy": "p", "weights": {"p": weights}, "steps": 2})
    for step, right in ((0, before), (2, after)):
        run.append("items", *answers(step, right))
        run.append("items", *answers(step, {("needles", "level 1"): [1, 0]}, n=1))
    return run


def of(table, **values):
    for key, value in values.items():
        table = table[table[key] == value]
    return table


def test_pass_at_k_of_every_item(tmp_path):
    """One of four right: 1/4, 1 - 3/6, 1 - 1/4, 1. A score of one half is no right answer."""
    table = passes([write(tmp_path)])
    item = of(table, step=0, suite="journey-4", item="0")
    assert item["k"].tolist() == [1, 2, 3, 4], "no item has more than four answers"
    assert item["value"].tolist() == pytest.approx([0.25, 0.5, 0.75, 1])
    later = of(table, step=2, suite="journey-4", item="0")["value"]
    assert later.tolist() == pytest.approx([0.75, 1, 1, 1])
    assert set(table["suite"]) == {"journey-4", "ledger-4"}, "one answer has no pass@k"
    assert (
        set(table["answers"]) == {4}
        and set(table["questions"]) == {"4 documents"}
        and set(table["variant"]) == {"full"}
    )
    assert largest(table) == 4 and passes([write(tmp_path, seed=1)], [3])["k"].unique() == [3]


def test_suites_of_a_paper_without_groups_stand_alone(tmp_path):
    table = passes([write(tmp_path, paper="rlvr")])
    assert set(table["questions"]) == {"journey-4", "ledger-4"}


def test_no_run_with_several_answers(tmp_path):
    run = open_run(tmp_path, {"paper": "spell", "scale": "cpu", "variant": "full", "seed": 0})
    run.append("items", *answers(0, BEFORE, n=1))
    table = passes([run])
    assert table.empty and ends(table).empty and gains(table).empty and flows(table).empty
    assert pass_at_k.exhibit("pass_at_k/gains", Frames([run])) is None
    other = write(tmp_path, "rlvr")
    assert pass_at_k.exhibit("pass_at_k/gains", Frames([run, other])).runs == [other]


def test_moves_in_a_game_are_no_answers(tmp_path):
    """SPIRAL asks for several moves in each state of Kuhn poker; a legal one has score 1."""
    run = write(tmp_path, paper="spiral")
    moves = answers(2, {("kuhn_poker", ""): [4]})
    run.append("items", *({**row, "action": "bet"} for row in moves))
    assert set(passes([run])["suite"]) == {"journey-4", "ledger-4"}


def test_suites_count_alike(tmp_path):
    """(1/4 + 0) / 2 and 1: their mean, not that of three items."""
    table = of(passes([write(tmp_path)]), step=0, k=1)
    assert seed_values(table).to_dict() == {0: pytest.approx((0.125 + 1) / 2)}
    value, low, high, n = level(table)
    # Journey's two items are drawn twice: 0, 1/8 or 1/4 beside ledger's 1.
    assert (value, low, high, n) == (pytest.approx(0.5625), 0.5, pytest.approx(0.625), 1)


def test_the_start_is_one_measurement_for_all_runs_that_share_it(tmp_path):
    runs = [write(tmp_path, name, seed) for name in ("full", "rlvr") for seed in (0, 1)]
    both = of(ends(passes(runs)), k=1)
    assert list(both["variant"].unique()) == ["start", "full", "rlvr"]
    assert set(both["before"]) == {"start"} and set(of(both, variant="start")["seed"]) == {0}
    assert level(of(both, variant="start")) == level(of(passes(runs[:1]), step=0, k=1))
    assert set(of(both, variant="full")["step"]) == {2} and len(of(both, variant="full")) == 6
    other = write(tmp_path, "even", weights="def")
    names = ends(passes([*runs, other]))["variant"].unique()
    assert list(names) == ["start of full, rlvr", "full", "rlvr", "start of even", "even"]


def test_each_run_has_its_own_end_and_none_before_training(tmp_path):
    longer = write(tmp_path, seed=1)
    longer.append("items", *answers(4, AFTER))
    begun = open_run(tmp_path, {**longer.params, "variant": "rlvr"})
    begun.append("items", *answers(0, BEFORE))
    both = ends(passes([write(tmp_path), longer, begun]))
    own = both[both["variant"] != "start"]
    assert {*zip(own["variant"], own["seed"], own["step"], strict=True)} == {
        ("full", 0, 2),
        ("full", 1, 4),
    }


def test_the_largest_k_is_one_that_every_item_has(tmp_path):
    run = write(tmp_path)
    run.append("items", *answers(2, {("choice-4", "level 1"): [1]}, n=3))
    table = passes([run])
    assert (table["k"].max(), largest(table), largest(table[:0])) == (4, 3, 1)


def test_starts_of_several_weights_are_seeds(tmp_path):
    runs = [write(tmp_path, "full", seed, weights=f"w{seed}") for seed in (3, 4)]
    start = of(ends(passes(runs)), variant="start", k=1)
    assert level(start)[3] == 2


def test_a_gain_is_paired_by_seed_and_no_narrower_than_that_of_its_items(tmp_path):
    """Seeds gain (1/2 + 1/4) / 4 and, with no right answer to journeys, -1/16."""
    worse = {("journey-4", "level 1"): [0, 0], ("ledger-4", "level 2"): [4]}
    table = of(passes([write(tmp_path), write(tmp_path, seed=1, after=worse)]), k=1)
    both = ends(table)
    start, end = of(table, step=0), of(both, variant="full")
    mean, low, high, n = gain(start, end)
    expected = [3 / 16, -1 / 16]
    half = 12.7062 * math.sqrt(sum((x - 1 / 16) ** 2 for x in expected) / 2)
    assert (mean, n) == (pytest.approx(1 / 16), 2)
    assert half > 1 and (low, high) == (-1, 1), "cut at what a difference of shares can be"
    alike = of(passes([write(tmp_path, "b", seed) for seed in (0, 1)]), k=1)
    mean, low, high, _ = gain(of(alike, step=0), of(ends(alike), variant="b"))
    assert mean == pytest.approx(3 / 16) and low < 3 / 16 < high, "the items are few"


def test_a_seed_without_a_pair_has_no_part_in_a_gain(tmp_path):
    worse = {("journey-4", "level 1"): [0, 0], ("ledger-4", "level 2"): [0]}
    runs = [write(tmp_path, seed=seed) for seed in (0, 1)]
    table = of(passes([*runs, write(tmp_path, seed=7, after=worse)]), k=1)
    start, end = table[table["seed"] != 7], of(ends(table), variant="full")
    expected = gain(of(start, step=0), end[end["seed"] != 7])
    assert gain(of(start, step=0), end) == expected and expected[3] == 2


def test_a_difference_is_paired_by_seed_and_no_narrower_than_that_of_its_items(tmp_path):
    better = {("journey-4", "level 1"): [4, 4], ("ledger-4", "level 2"): [4]}
    runs = [write(tmp_path, "a", 0), write(tmp_path, "a", 1, better)]
    runs += [write(tmp_path, "b", seed, BEFORE) for seed in (0, 1)]
    both = of(ends(passes(runs)), k=1)
    mean, low, high, n = gain(of(both, variant="b"), of(both, variant="a"))
    first, second = (0.5 + 1) / 2 - 0.5625, 1 - 0.5625
    assert (mean, n) == (pytest.approx((first + second) / 2), 2)
    half = 12.7062 * (second - first) / 2
    assert (low, high) == (pytest.approx(max(-1, mean - half)), pytest.approx(min(1, mean + half)))
    alike = [write(tmp_path, "c", seed) for seed in (0, 1)]
    both = of(ends(passes([*alike, *runs[2:]])), k=1)
    mean, low, high, _ = gain(of(both, variant="b"), of(both, variant="c"))
    assert mean == pytest.approx(3 / 16) and low < 3 / 16 < high, "the items are few"


@pytest.mark.parametrize(
    ("one", "many", "words"),
    [
        ((0.3, 0.2, 0.4, 5), (0.1, 0.05, 0.15, 5), "extends"),
        ((0.3, 0.2, 0.4, 5), (0.0, -0.01, 0.01, 5), "sharpens"),
        ((0.3, 0.2, 0.4, 5), (0.1, -0.02, 0.22, 5), "not decided"),
        ((0.0, -0.1, 0.1, 5), (-0.1, -0.22, 0.02, 5), "not decided"),
        ((0.1, -0.1, 0.3, 5), (0.0, -0.01, 0.01, 5), "not decided"),
        ((0.3, 0.2, 0.4, 5), (0.0, -0.05, 0.05, 5), "not decided"),
        ((0.3, 0.2, 0.4, 5), (-0.1, -0.15, -0.05, 5), "sharpens and narrows"),
        ((0.0, -0.1, 0.1, 5), (-0.1, -0.15, -0.05, 5), "narrows"),
        ((0.0, -0.1, 0.1, 5), (0.0, -0.01, 0.01, 5), "not decided"),
        ((0.3, 0.2, 0.4, 1), (0.1, 0.05, 0.15, 1), "not decided (n = 1)"),
        ((0.3, 0.2, 0.4, 5), (0.05, 0.0, 0.1, 5), "not decided"),  # no end is the bound itself
        ((0.3, 0.2, 0.4, 5), (0.0, -0.02, 0.02, 5), "not decided"),
        ((0.3, 0.2, 0.4, 5), (-0.05, -0.1, 0.0, 5), "sharpens"),
        ((0.2, 0.0, 0.4, 5), (0.0, -0.01, 0.01, 5), "not decided"),
    ],
)
def test_what_is_read_from_the_gains(one, many, words):
    assert reading(one, many) == words


def test_the_table_of_gains(tmp_path):
    runs = [write(tmp_path, "full"), write(tmp_path, "rlvr", after=BEFORE)]
    table = gains(passes(runs)).set_index("variant")
    assert list(table.index) == ["full", "rlvr"] and set(table["seeds"]) == {1}
    assert table["pass@1, start"]["full"].startswith("56.2 [50.0, 62.5]")
    assert table["pass@1, end"]["full"].startswith("75.0 [")
    assert table["pass@1, gain"]["full"].startswith("18.8 [")
    assert table["pass@4, gain"]["full"].startswith("25.0 ["), "both journeys are covered"
    first, second = table["pass@1, minus rlvr"]
    assert first == table["pass@1, gain"]["full"] and second == "-", "rlvr ends as the start"
    assert "pass@1, minus questioner-frozen" not in table
    assert set(table["training"]) == {"not decided (n = 1)"}


def test_training_that_extends_is_read_from_the_largest_k(tmp_path):
    """Half of 16 questions are always right before, after it half of each one's answers: pass@1 is
    as before, pass@4 1 instead of 1/2."""
    before, after = ({("journey-4", "level 1"): right} for right in ([4, 0] * 8, [2] * 16))
    runs = [write(tmp_path, seed=seed, before=before, after=after) for seed in (0, 1)]
    (line,) = gains(passes(runs)).to_dict("records")
    assert line["pass@1, gain"].startswith("0.0 [-") and line["pass@4, gain"].startswith("50.0 [")
    assert (line["training"], line["seeds"]) == ("extends", 2)


def test_where_items_moved(tmp_path):
    """Journeys: sometimes to sometimes, never to sometimes; the ledger stays always right."""
    table = moves(passes([write(tmp_path)])).loc["spell", "4 documents", "full"]
    assert table.loc["sometimes", "sometimes"] == pytest.approx(100 / 3)
    assert table.loc["never", "sometimes"] == pytest.approx(100 / 3)
    assert table.loc["always", "always"] == pytest.approx(100 / 3)
    assert table.to_numpy().sum() == pytest.approx(100) and table.shape == (3, 3)
    worse = {("journey-4", "level 1"): [0, 1], ("ledger-4", "level 2"): [0]}
    both = flows(passes([write(tmp_path, "rlvr", after=worse)])).loc["spell", "4 documents", "rlvr"]
    assert both.tolist() == pytest.approx([100 / 3, 200 / 3])


def test_where_items_moved_of_runs_that_began_differently(tmp_path):
    """Each run's items are compared with its own start: none moves from the second run's."""
    runs = [write(tmp_path, weights="a"), write(tmp_path, seed=1, weights="b", after=BEFORE)]
    table = moves(passes(runs)).loc["spell", "4 documents", "full"]
    assert table.loc["never"].tolist() == pytest.approx([100 / 6, 100 / 6, 0])


@pytest.mark.slow
def test_of_many_variants_those_that_are_run_by_default(tmp_path):
    names = ["full", "rlvr", "no-memory", "no-vote", "random", "judge", "code", "large"]
    runs = [write(tmp_path, name) for name in names]
    assert set(headline(passes(runs))["variant"]) == set(names), "eight have room"
    more = [*runs, write(tmp_path, "even")]
    default = {"full", "rlvr", "random"}  # the last stands beside those
    assert set(headline(passes(more))["variant"]) == default
    more += [write(tmp_path, "questioner-frozen")]
    assert set(headline(passes(more))["variant"]) == default | {"questioner-frozen"}
    assert headline(passes([])).empty


def test_a_curve_has_means_with_intervals_and_seeds(tmp_path):
    both = ends(passes([write(tmp_path), write(tmp_path, seed=1, after=BEFORE)]))
    data = of(curve(both), variant="full", k=2)
    assert data["value"].tolist() == pytest.approx([0.75, 0.875, 0.625])
    assert data["seed"].tolist()[1:] == [0, 1] and pd.isna(data["seed"].iloc[0])
    assert data["low"].notna().tolist() == [True, False, False]
    assert of(curve(both), variant="start")["seed"].isna().all()
    levels = curve(of(both, k=1), "difficulty")
    shown = of(levels, variant="start").set_index("difficulty")["value"].to_dict()
    assert shown == {"level 1": pytest.approx(0.125), "level 2": 1}


def test_the_figure_has_a_panel_a_group_and_the_start_dotted(tmp_path):
    data = curve(ends(passes([write(tmp_path), write(tmp_path, paper="rlvr")])))
    figure = small_multiples(data, "Title", "pass@k", x="k")
    assert isinstance(figure, Figure)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "4 documents",
        "journey-4",
        "ledger-4",
    ]
    assert figure.axes[0].get_xlabel() == "k"
    note = figure.subfigs[-1].legends[0].get_title().get_text()
    assert note.replace("\n", " ") == SHADES
    order = looks("spell", ["start", "full", "start of a"])
    assert len({order[name].colour for name in ("start", "full", "start of a")}) == 3
    assert order["start"].line == order["start of a"].line != order["full"].line


@pytest.mark.slow
def test_exhibits_are_made_of_the_runs_at_hand(tmp_path, monkeypatch):
    frames = Frames([write(tmp_path), write(tmp_path, "rlvr")])
    for name in ("curves", "levels", "gains"):
        shown = show.exhibit(f"pass_at_k/{name}", frames=frames, folder=tmp_path / "f")
        assert shown.item is not None and "Scale cpu, 2 variants, 2 runs" in shown.where
    records = read_index(tmp_path / "f")
    assert "3 held-out questions of the suites journey-4, ledger-4" in records[0]["protocol"]
    assert (
        "pass@1 and pass@4" in records[1]["caption"] and "below 2 points" in records[2]["caption"]
    )
    assert "each answered 4 times" in records[0]["protocol"]
    levels = pd.read_csv(tmp_path / "f/pass_at_k/levels.csv")
    assert set(levels["panel"]) == {"4 documents, pass@1", "4 documents, pass@4"}
    monkeypatch.setattr(show, "COMMITTED", str(tmp_path / "f"))
    single = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "read", "seed": 0})
    shown = show.exhibit("pass_at_k/gains", frames=Frames([single]), folder=tmp_path / "other")
    assert "no run has anything to show; committed: Scale cpu" in repr(shown)
    monkeypatch.setattr(show, "COMMITTED", str(tmp_path / "nowhere"))
    shown = show.exhibit("pass_at_k/gains", frames=Frames([single]), folder=tmp_path / "other")
    assert repr(shown) == "pass_at_k/gains: no run has anything to show"
