"""Intervals against values from tables, and seeds treated as the unit."""

import math

import numpy as np
import pytest

from spnb.core.stats import (
    bootstrap_interval,
    difference_interval,
    holm,
    improvement_interval,
    mean_interval,
    p_value,
    pass_at_k,
    share_interval,
)


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


def mean_of(*strata):
    """One seed whose value is the mean of all values."""
    count = sum(map(len, strata))
    return {place: np.asarray(values) / count for place, values in enumerate(strata)}


@pytest.mark.parametrize("seeds", [[{}], [{"a": [1.0]}, {}]])
def test_a_seed_without_items_is_named(seeds):
    with pytest.raises(ValueError, match=f"seed {len(seeds) - 1} has no stratum; allowed: one or"):
        bootstrap_interval(seeds, (0.0, 1.0))


@pytest.mark.slow
def test_the_bootstrap_interval_has_95_percent():
    """For a mean of 400 draws it is that of the normal law: 1.96 standard errors either way; 1.64
    would be the 5th and 95th percentile."""
    values = np.random.default_rng(1).choice([0.0, 1.0, 3.0], size=400)
    value, low, high, n = bootstrap_interval([mean_of(values)], resamples=20_000)
    error = values.std() / 20
    assert value == pytest.approx(values.mean()) and n == 1
    assert [(value - low) / error, (high - value) / error] == pytest.approx([1.96, 1.96], abs=0.06)


def width(seeds):
    _, low, high, _ = bootstrap_interval(seeds, resamples=20_000)
    return high - low


def test_seeds_and_items_are_both_drawn():
    """The variance is that of the seeds over their number plus that of the items over theirs: more
    seeds do not take away the doubt of the items, which they share."""
    shifts, answers = np.linspace(-0.2, 0.2, 31), np.array([0.0] * 60 + [1.0] * 40)
    seeds, items = np.var(shifts) / 31, np.var(answers) / 100
    for each, variance in (
        ([mean_of(answers) for _ in shifts], items),
        ([mean_of(answers + shift) for shift in shifts], seeds + items),
        ([{"": [shift]} for shift in shifts], seeds),
    ):
        assert width(each) == pytest.approx(3.92 * math.sqrt(variance), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("items", [2, 4, 9])
def test_few_items_have_their_whole_variance(items):
    """Strata of m items that differ by one: each has a mean's variance, that of m - 1 degrees."""
    stratum = np.arange(items) / items
    error = math.sqrt(400 * np.var(stratum * items, ddof=1) / items)
    assert width([dict.fromkeys(range(400), stratum)]) == pytest.approx(3.92 * error, rel=0.03)


@pytest.mark.slow
def test_items_that_one_of_several_seeds_has_alone_are_drawn_with_it():
    """A stratum is shared by its key and its size; its chance is in the seed's value already."""
    answers = np.array([0.0] * 200 + [1.0] * 200)
    alone = width([mean_of(answers)])
    assert width([mean_of(answers), mean_of(answers)]) == alone > 0.09
    assert width([mean_of(answers), mean_of([*answers, 0.5])]) == pytest.approx(0, abs=1e-12)
    half = [{"shared": answers / 800, seed: answers / 800} for seed in (0, 1)]
    assert width(half) == pytest.approx(alone / 2)


def test_strata_are_drawn_apart_and_the_range_is_kept():
    """Values that differ between strata only leave no doubt; drawn as one they would."""
    value, low, high, _ = bootstrap_interval([mean_of([0.0] * 5, [1.0] * 15)])
    assert [value, low, high] == pytest.approx([0.75] * 3)
    value, low, high, _ = bootstrap_interval([mean_of([0.0] * 5 + [1.0] * 15)])
    assert value == pytest.approx(0.75) and low < 0.6 and 0.85 < high <= 1
    rare = [mean_of([1.0] + [0.0] * 19) for _ in range(3)]
    assert bootstrap_interval(rare)[1] == 0 and bootstrap_interval(rare) == bootstrap_interval(rare)


@pytest.mark.parametrize("value", [0.1, 17.3, 100 / 3, 200 / 7])
def test_a_mean_lies_between_its_ends_to_the_last_digit(value):
    """An error bar cannot be less than nothing."""
    for count in range(2, 12):
        mean, low, high, _ = bootstrap_interval([{"a": [value] * 3, "b": [value]}] * count)
        assert low <= mean <= high


def test_items_that_agree_have_wilsons_bounds():
    right = mean_of([100.0] * 512)
    assert bootstrap_interval([right])[1:3] == pytest.approx((100, 100))
    low, high = bootstrap_interval([right, right], (0, 100))[1:3]
    assert (low, high) == (pytest.approx(100 * share_interval(512, 512)[0]), pytest.approx(100))
    assert 99.2 < low < 99.3
    draws = mean_of([50.0] * 10)  # at least 72.25 % of all matches are draws
    assert bootstrap_interval([draws], (0, 100))[1:3] == pytest.approx((36.12, 63.88), abs=0.01)


def test_items_that_agree_have_the_bounds_of_the_seed_with_the_fewest():
    """64 of 64: Wilson's lower end is 64 / (64 + 1.96^2) = 0.9434."""
    seeds = [mean_of([100.0] * count) for count in (512, 64)]
    assert bootstrap_interval(seeds, (0, 100))[1:3] == pytest.approx((94.34, 100), abs=0.01)


def test_what_has_nothing_to_draw_has_no_interval():
    value, low, high, n = bootstrap_interval([{"a": [1.0], "b": [3.0]}])
    assert (value, n) == (4.0, 1) and math.isnan(low) and math.isnan(high)
    assert bootstrap_interval([])[3] == 0 and math.isnan(bootstrap_interval([])[0])


@pytest.mark.parametrize("strata", [{"a": [1.0], "b": []}, {"b": [math.nan, 1.0]}])
def test_bad_strata_are_named(strata):
    with pytest.raises(ValueError, match="stratum b is .*; allowed: one"):
        bootstrap_interval([strata])


def test_the_difference_of_two_intervals():
    """Newcombe's table II, case (a): 56 of 70 minus 48 of 80 is 0.2 [0.0524, 0.3339]."""
    first, second = ((a / n, *share_interval(a, n)) for a, n in ((56, 70), (48, 80)))
    assert difference_interval(first, second) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_share_of_paired_differences_above_0():
    """Two above, one tie, one below: 2.5 of 4, between Wilson's ends for 2 and for 3 of 4."""
    value, low, high, n = improvement_interval([3.0, 1.0, 0.0, -1.0, math.nan])
    assert (value, n) == (0.625, 4)
    assert (low, high) == (share_interval(2, 4)[0], share_interval(3, 4)[1])
    assert improvement_interval([1.0] * 10)[1] == pytest.approx(0.7225, abs=1e-4)  # not 1
    assert improvement_interval([-1.0])[0] == 0
    assert improvement_interval([])[3] == 0 and math.isnan(improvement_interval([math.nan])[0])


def test_the_p_of_a_mean_is_that_of_its_t_interval():
    """Differences 1, 2, 3: mean 2, error 0.5774, t = 3.464 with 2 degrees of freedom."""
    interval = mean_interval([1.0, 2.0, 3.0])
    assert p_value(interval) == pytest.approx(0.0742, abs=1e-4)
    assert p_value(interval, zero=2.0) == pytest.approx(1.0)
    assert p_value(interval, zero=-2.0) == pytest.approx(0.0202, abs=1e-4)  # t = 6.928
    assert math.isnan(p_value(mean_interval([1.0])))
    assert p_value((1.0, 1.0, 1.0, 3)) == 0 and p_value((1.0, 1.0, 1.0, 3), 1.0) == 1


def test_the_p_of_a_lopsided_interval_is_below_a_twentieth_where_zero_is_outside():
    """Ten values, t(.975, 9) = 2.2622: 2 is 2 / 1.9 and 2 / 2.1 times as many errors from 0."""
    assert p_value((2, 0.1, 5, 10)) == pytest.approx(0.0412, abs=1e-4)
    assert p_value((2, -0.1, 3, 10)) == pytest.approx(0.0596, abs=1e-4)
    assert p_value((-2, -5, -0.1, 10)) == pytest.approx(p_value((2, 0.1, 5, 10)))
    assert p_value((2, 0.1, 5, 10), zero=5) == pytest.approx(0.05)
    assert p_value((2, 2, 5, 10)) == 0 and p_value((2, 2, 5, 10), zero=5) == pytest.approx(0.05)


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    """Holm 1979: .01 x 3, .03 x 2, .04 x 1 but at least the one before."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    alone = holm([math.nan, 0.02])
    assert math.isnan(alone[0]) and alone[1] == 0.02
