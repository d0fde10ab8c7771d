"""Intervals against values from tables, and seeds treated as the unit."""

import math

import pandas as pd
import pytest

from spnb.core.stats import mean_interval, over_seeds, paired_difference, share_interval


def test_wilson_interval():
    assert share_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert share_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)


def test_mean_interval():
    half = 4.3026527 / math.sqrt(3)  # t(0.975, 2) times s / sqrt(n), s = 1
    assert mean_interval([1, 2, 3]) == pytest.approx((2, 2 - half, 2 + half, 3))
    assert mean_interval([0, 0, 0]) == (0, 0, 0, 3)
    mean, low, high, n = mean_interval([0.5, float("nan")])
    assert (mean, n) == (0.5, 1) and math.isnan(low) and math.isnan(high)
    assert mean_interval([])[3] == 0 and math.isnan(mean_interval([])[0])


def test_over_seeds_averages_within_a_seed_first():
    frame = pd.DataFrame({"seed": [0, 0, 1], "step": [5, 5, 5], "value": [1.0, 3.0, 4.0]})
    row = over_seeds(frame, ["step"]).iloc[0]
    assert (row["step"], row["value"], row["n"]) == (5, 3.0, 2)
    assert row["low"] == pytest.approx(3 - 12.7062047)  # t(0.975, 1), standard error 1


def test_over_seeds_of_one_seed_keeps_the_measurements_own_interval():
    frame = pd.DataFrame({"seed": [0], "step": [5], "value": [0.5], "low": [0.4], "high": [0.6]})
    assert over_seeds(frame, ["step"]).values.tolist() == [[5, 0.5, 0.4, 0.6, 1]]


def test_paired_difference():
    frame = pd.DataFrame(
        {"seed": [0, 1, 0, 1], "variant": ["a", "a", "b", "b"], "value": [1.0, 2.0, 0.5, 0.5]}
    )
    mean, low, high, n = paired_difference(frame, "a", "b")
    assert (mean, n) == (1.0, 2) and low == pytest.approx(1 - 12.7062047 * 0.5)
    assert paired_difference(frame, "a", "c")[3] == 0
