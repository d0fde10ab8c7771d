"""Intervals against values from tables, and seeds treated as the unit."""

import math

import numpy as np
import pytest

from spnb.core.stats import bootstrap_interval, mean_interval, pass_at_k, share_interval


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


def test_pass_at_k_by_hand():
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 1, 2) == 0.5
    assert pass_at_k(8, 2, 4) == pytest.approx(1 - 15 / 70)  # C(6, 4) of C(8, 4) hold none
    assert pass_at_k(8, 0, 8) == 0.0 and pass_at_k(8, 1, 8) == pass_at_k(8, 5, 4) == 1.0
    assert pass_at_k(5000, 2500, 100) == 1.0


def test_pass_at_k_is_unbiased():
    """Its mean over all samples of 5 answers is the chance of a hit among 2 fresh ones."""
    p = 0.3
    mean = sum(math.comb(5, c) * p**c * (1 - p) ** (5 - c) * pass_at_k(5, c, 2) for c in range(6))
    assert mean == pytest.approx(1 - (1 - p) ** 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 1), "n of pass@k is 0; allowed: an integer, 1 or more"),
        ((4, 5, 1), r"c of pass@k is 5; allowed: an integer, 0 to n \(4\)"),
        ((4, -1, 1), "c of pass@k is -1"),
        ((4, 2, 5), r"k of pass@k is 5; allowed: an integer, 1 to n \(4\)"),
        ((4, 2, 0), "k of pass@k is 0"),
        ((4, 1.5, 1), "c of pass@k is 1.5"),
    ],
)
def test_a_bad_pass_at_k_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(*arguments)


def test_the_bootstrap_interval_has_95_percent():
    """For a mean of 400 draws it is that of the normal law: 1.96 standard errors either way; 1.64
    would be the 5th and 95th percentile."""
    values = np.random.default_rng(1).normal(size=400)
    value, low, high = bootstrap_interval([values], resamples=20_000)
    error = values.std() / 20
    assert value == pytest.approx(values.mean())
    assert [(value - low) / error, (high - value) / error] == pytest.approx([1.96, 1.96], abs=0.06)


def test_strata_are_drawn_apart():
    """Values that differ between strata only leave no doubt; drawn as one they would."""
    assert bootstrap_interval([[0.0] * 5, [1.0] * 15]) == (0.75, 0.75, 0.75)
    value, low, high = bootstrap_interval([[0.0] * 5 + [1.0] * 15])
    assert value == 0.75 and low < 0.6 and high > 0.85


def test_the_bootstrap_takes_any_statistic_and_repeats():
    strata = [[1.0, 2.0, 3.0], [10.0, 20.0]]
    value, low, high = bootstrap_interval(strata, statistic=np.median, seed=3)
    assert value == 3.0 and low <= 3.0 <= high
    assert (value, low, high) == bootstrap_interval(strata, statistic=np.median, seed=3)


def test_one_value_a_stratum_has_no_interval():
    value, low, high = bootstrap_interval([[1.0], [3.0]])
    assert value == 2.0 and math.isnan(low) and math.isnan(high)


@pytest.mark.parametrize("strata", [[], [[1.0], []], [[math.nan, 1.0]]])
def test_bad_strata_are_named(strata):
    with pytest.raises(ValueError, match="strat.* is .*; allowed: one"):
        bootstrap_interval(strata)
