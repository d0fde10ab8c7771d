"""Evaluated numbers taken apart into what each graded answer or match adds to them."""

from types import SimpleNamespace

import pandas as pd
import pytest

from spnb.report.frame import gather
from spnb.report.items import (
    KEYS,
    by_item,
    different_weights,
    first_weights,
    item_contributions,
    item_gains,
    item_interval,
    read_answers,
)
from spnb.train.runs import open_run

RECORD = dict.fromkeys(KEYS, "") | {"step": 0, "sample": 0, "kind": ""}
MATCHES = [("0", "seat 0", "win"), ("1", "seat 1", "draw"), ("2", "seat 0", "loss")]
MATCHES += [("3", "seat 1", "invalid"), ("4", "seat 0", "win")]


def write(folder, records, rows, **params):
    """A run with these records and rows (suite, metric, value, further columns)."""
    run = open_run(folder, {"paper": "p", "scale": "cpu", "variant": "v", "seed": 0} | params)
    run.append("items", *({**RECORD, **record} for record in records))
    for suite, metric, value, others in rows:
        labels = dict.fromkeys(KEYS, "") | {"step": 0, "low": None, "high": None, "n": 1}
        run.append("evals", labels | {"suite": suite, "metric": metric, "value": value} | others)
    return run


def played(folder):
    """Five matches of a game against random play, and their numbers."""
    score = {"win": 1.0, "draw": 0.5, "loss": 0.0, "invalid": 0.0}
    where = {"suite": "a", "opponent": "random"}
    records = [
        where
        | {"item": item, "role": seat, "outcome": outcome, "score": score[outcome], "moves": 3}
        for item, seat, outcome in MATCHES
    ]
    shares = {"win": 0.4, "draw": 0.2, "loss": 0.2, "invalid": 0.2, "moves": 3.0, "tokens": 8.5}
    rows = [("a", name, value, {"opponent": "random"}) for name, value in shares.items()]
    seat = {"opponent": "random", "role": "seat 1"}
    rows += [("a", "win", 0.0, seat), ("a", "draw", 0.5, seat)]
    return write(folder, records, rows)


def apart(run, role="", **weights):
    rows = gather([run]).results
    rows = rows[rows["metric"].isin(list(weights)) & (rows["role"] == role)]
    return item_contributions(read_answers(run), rows, weights)


def by_stratum(rows):
    parts = rows.groupby(["role", "difficulty"])
    return {key: part.set_index("item")["value"].round(9).to_dict() for key, part in parts}


def test_a_win_and_a_draw_of_one_match_are_drawn_together(tmp_path):
    """Score (2 * 100 + 50) / 5: strata are the seats, and items add up to the number."""
    result = apart(played(tmp_path), win=100, draw=50)
    assert by_stratum(result) == {
        ("seat 0", ""): {"0": 20, "2": 0, "4": 20},
        ("seat 1", ""): {"1": 10, "3": 0},
    }
    assert result["bounded"].all()
    assert result.iloc[0, :3].tolist() == ["a", "random", "seat 0"]


def test_a_row_of_a_role_has_the_items_of_that_role(tmp_path):
    result = apart(played(tmp_path), role="seat 1", win=100, draw=50)
    assert by_stratum(result) == {("seat 1", ""): {"1": 25, "3": 0}}


def test_only_a_column_with_the_same_mean_is_taken(tmp_path):
    run = played(tmp_path)
    moves = apart(run, moves=1)
    assert moves["value"].sum() == pytest.approx(3) and not moves["bounded"].any()
    assert apart(run, tokens=1) is None, "a ratio of sums: no column has this mean"
    assert apart(run, moves=1, tokens=1) is None


def test_cells_count_alike_and_several_answers_to_an_item_are_drawn_together(tmp_path):
    """Suite b has two answers to each of two items, suite c one: cells of weight one half."""
    records = [
        {"suite": "b", "item": "x", "difficulty": level, "score": float(right), "did": right}
        for level, answers in (("easy", (True, False)), ("hard", (True, True)))
        for right in answers
    ]
    records += [{"suite": "c", "item": "y", "score": 0.0, "did": True}]
    rows = [("b", "accuracy", 0.75, {}), ("c", "accuracy", 0.0, {}), ("b", "did", 0.75, {})]
    rows += [("b", "accuracy", 1.0, {"difficulty": "hard"})]
    run = write(tmp_path, records, rows)
    results = gather([run]).results.query("metric == 'accuracy' and difficulty == ''")
    whole = item_contributions(read_answers(run), results, {"accuracy": 100})
    assert by_stratum(whole) == {
        ("", "easy"): {"x": 12.5},
        ("", "hard"): {"x": 25},
        ("", ""): {"y": 0},
    }
    did = gather([run]).results.query("metric == 'did'")
    assert item_contributions(read_answers(run), did, {"did": 1})["bounded"].all(), "true or false"


def test_items_of_one_end_alone_are_drawn_apart():
    """All right, 60 before and 500 after: a resample of both together would weigh the 60 anew."""

    def right(count):
        rows = pd.DataFrame({"item": map(str, range(count)), "value": 100 / count, "bounded": True})
        return rows.assign(seed=0, **dict.fromkeys(KEYS, ""))

    gained = item_gains(right(500), right(60))
    assert gained["ends"].value_counts().to_dict() == {1: 440, 3: 60}
    assert item_interval(gained, (-100, 100))[:3] == pytest.approx((0, -0.76, 0.76), abs=0.01)
    assert set(item_gains(right(60), right(500))["ends"]) == {2, 3}


def test_measurements_of_the_same_weights_are_put_together_by_item(tmp_path):
    run = played(tmp_path)
    one = apart(run, win=100)
    again = by_item(pd.concat([one, one]))
    assert by_stratum(again) == by_stratum(one.assign(value=2 * one["value"]))
    other = one[one["item"] == "0"].assign(bounded=False)
    both = by_item(pd.concat([one, other]))
    assert by_stratum(both)["seat 0", ""] == {"0": 40, "2": 0, "4": 20}
    assert not both.set_index("item")["bounded"]["0"]
    assert by_stratum(both)["seat 1", ""] == {"1": 0, "3": 0}


def test_weights_differ_by_policy_or_by_the_run_they_start_from(tmp_path):
    runs = [
        write(tmp_path, [], [], seed=seed, weights={"policy": "abc"}, starts=starts)
        for seed, starts in enumerate(({}, {}, {"policy": {"hash": "1"}}))
    ]
    assert different_weights(runs[:2]) == 1 and different_weights(runs) == 2
    beside = {"policies": {"external": "abc"}, "starts": {"external": {"hash": "2"}}}
    fourth = write(tmp_path, [], [], seed=4, weights={"policy": "abc"}, **beside)
    assert different_weights([runs[0], fourth]) == 1, "what is asked beside it is not trained"
    stages = {"stages": [{"policy": "external", "steps": 1}], **beside}
    fifth = write(tmp_path, [], [], seed=5, weights={"policy": "abc"}, **stages)
    assert different_weights([runs[0], fifth]) == 2


def test_a_metric_may_have_the_name_of_a_label(tmp_path):
    where = {"suite": "b", "item": "0", "score": 0.25, "level": 3}
    run = write(tmp_path, [where], [("b", "difficulty", 0.75, {}), ("b", "level", 3.0, {})])
    (table,) = read_answers(run).values()
    assert table.index[0] == (0, "b", "", "", "", "", "0") and table["level"].tolist() == [3]
    assert "difficulty" not in table


def test_a_run_without_records_has_no_items(tmp_path):
    run = write(tmp_path, [], [("a", "win", 0.5, {})])
    assert read_answers(run) == {}
    assert item_contributions({}, pd.DataFrame(gather([run]).results), {"win": 1}) is None


def test_the_weights_of_policies_that_are_not_trained_are_no_other_start():
    starts = {"policy": "a", "judge": "b", "proposer": "c"}
    params = {"weights": {"w": "1"}, "starts": starts, "co_trained": {"proposer": {}}}
    first = first_weights(SimpleNamespace(params=params))
    assert first == {"weights": {"w": "1"}, "starts": {"policy": "a", "proposer": "c"}}
