"""Evaluation rows as numbers of a paper: hand-computed scores, cells and steps."""

import math

import pandas as pd
import pytest

from spnb.report.frame import SCORE, by_step, cells, logged, near, scores


def evals():
    """Two seeds of `full`, one of `sft`: a game at steps 0 and 8, another where only `full` was
    measured."""
    wins = {("full", 0): (0.25, 0.75), ("full", 1): (0.25, 0.5), ("sft", 0): (0.0, 1.0)}
    rows = []
    for (variant, seed), values in wins.items():
        for step, win in zip((0, 8), values, strict=True):
            run = {"variant": variant, "seed": seed, "step": step}
            rows.append({**run, "evaluation": "a vs random", "metric": "win", "value": win})
            rows.append({**run, "evaluation": "a vs random", "metric": "draw", "value": 0.1})
            rows.append({**run, "evaluation": "a vs random", "metric": "loss", "value": 0.5})
            if variant == "full":
                rows.append({**run, "evaluation": "b", "metric": "right", "value": win / 2})
    return pd.DataFrame(rows)


def test_draws_count_half():
    found = by_step(evals(), ["a vs random"], SCORE)["a vs random"]
    assert found["full", 0, 0] == pytest.approx(30) and found["full", 0, 8] == pytest.approx(80)


def test_an_evaluation_or_a_metric_that_is_not_there_is_nan():
    found = by_step(evals(), ["a vs random", "c"], {"win": 1, "tie": 1})
    assert list(found.columns) == ["a vs random", "c"] and found.isna().all().all()


def test_scores_are_means_over_what_a_run_has():
    rows = scores(evals().assign(metric="win"), ["b", "c"], {"win": 100})
    assert set(rows["variant"]) == {"full"} and list(rows.columns) == [
        "variant",
        "seed",
        "step",
        "value",
    ]
    assert rows.set_index(["seed", "step"])["value"].to_dict() == pytest.approx(
        {(0, 0): 12.5, (0, 8): 37.5, (1, 0): 12.5, (1, 8): 25}
    )


def test_whole_leaves_out_steps_that_lack_an_evaluation():
    frame = evals().replace({"metric": {"right": "win"}})
    assert set(scores(frame, ["a vs random", "b"], {"win": 100}, whole=True)["variant"]) == {"full"}
    assert set(scores(frame, ["a vs random", "b"], {"win": 100})["variant"]) == {"full", "sft"}


def test_the_log_is_averaged_over_columns():
    metrics = pd.DataFrame(
        {"variant": ["full"] * 2, "seed": [0, 0], "step": [1, 2], "length/a": [1, 3], "length/b": 5}
    )
    assert logged(metrics, ["length/*"])["value"].tolist() == [3, 4]


def test_the_step_nearest_to_a_share_or_all_within_a_window():
    rows = pd.DataFrame({"step": range(1, 11), "value": range(1, 11)})
    assert near(rows, 0)["step"].tolist() == [1] and near(rows, 1)["step"].tolist() == [10]
    assert near(rows, 0.42)["step"].tolist() == [4] and near(rows, 0.5, 0.1)["step"].tolist() == [
        4,
        5,
        6,
    ]
    assert near(rows[:0], 0.5).empty


def test_cells_have_the_mean_over_seeds_and_their_interval():
    """80 and 55: mean 67.5, half width 12.706 * 25 / 2."""
    rows = {"trained": ("full", 1), "base": ("full", 0), "SFT": ("sft", 1), "none": ("other", 1)}
    columns = {
        "A": scores(evals(), ["a vs random"]),
        "B": scores(evals(), ["a vs random", "b"], {"win": 100}, whole=True),
    }
    table = cells(columns, rows).set_index(["row", "column"])
    assert set(table.index) == {("trained", "A"), ("base", "A"), ("SFT", "A")}
    assert table.loc[("trained", "A"), "value"] == pytest.approx(67.5)
    assert table.loc[("trained", "A"), "high"] - 67.5 == pytest.approx(12.7062 * 12.5, rel=1e-4)
    assert (
        table.loc[("base", "A"), "value"] == pytest.approx(30)
        and table.loc[("trained", "A"), "n"] == 2
    )
    assert math.isnan(table.loc[("SFT", "A"), "low"]) and table.loc[
        ("SFT", "A"), "value"
    ] == pytest.approx(105)
    assert table.loc[("trained", "A"), "at"] == "step 8"
