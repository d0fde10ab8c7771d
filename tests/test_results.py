"""Evaluation rows as numbers of a paper: hand-computed scores, cells and steps."""

import math

import pandas as pd
import pytest

from spnb.results import SCORE, at_share, by_step, cells, scores


def evals():
    """Two seeds of `full`, one of `sft`: a game at steps 0 and 8, another where only `full` was measured."""
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
    assert set(rows["variant"]) == {"full"} and list(rows.columns) == ["variant", "seed", "step", "value"]
    assert rows.set_index(["seed", "step"])["value"].to_dict() == pytest.approx(
        {(0, 0): 12.5, (0, 8): 37.5, (1, 0): 12.5, (1, 8): 25}
    )


def test_cells_have_the_mean_over_seeds_and_their_interval():
    """80 and 55: mean 67.5, half width 12.706 * 25 / 2."""
    rows = {"trained": ("full", "end"), "base": ("full", "start"), "SFT": ("sft", "end"), "none": ("other", "end")}
    found = cells(evals(), rows, {"A": (["a vs random"], SCORE), "B": (["a vs random", "b"], {"win": 100})})
    table = found.set_index(["row", "column"])
    assert set(table.index) == {("trained", "A"), ("base", "A"), ("SFT", "A")}
    assert table.loc[("trained", "A"), "value"] == pytest.approx(67.5)
    assert table.loc[("trained", "A"), "high"] - 67.5 == pytest.approx(12.7062 * 12.5, rel=1e-4)
    assert table.loc[("base", "A"), "value"] == pytest.approx(30) and table.loc[("trained", "A"), "n"] == 2
    assert math.isnan(table.loc[("SFT", "A"), "low"]) and table.loc[("SFT", "A"), "value"] == pytest.approx(105)


def test_a_column_of_several_evaluations_needs_all_of_them():
    frame = evals().replace({"metric": {"right": "win"}})
    found = cells(
        frame, {"full": ("full", "end"), "sft": ("sft", "end")}, {"both": (["a vs random", "b"], {"win": 100})}
    )
    assert found["row"].tolist() == ["full"] and found["value"][0] == pytest.approx((75 + 37.5 + 50 + 25) / 4)


def test_the_step_nearest_to_a_share_of_training():
    rows = scores(evals(), ["a vs random"]).query("variant == 'full'")
    early, late = (at_share(rows, share, 8, "row", "column") for share in (0.4, 0.6))
    assert early["at"].tolist() == ["step 0 of 8"] and early["value"][0] == pytest.approx(30)
    assert late["at"].tolist() == ["step 8 of 8"] and late["value"][0] == pytest.approx(67.5)
    assert at_share(rows[:0], 0.4, 8, "row", "column").empty
