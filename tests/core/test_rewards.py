"""Every reward at points worked out by hand, on numbers and arrays, and its refusals."""

import math

import numpy as np
import pytest

from spnb.core import rewards

ALL = ("gaussian", "variance", "absolute_zero", "r_zero", "threshold", "tent", "one_minus")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gaussian", [0.0, 0.07956, 0.32465, 0.75484, 1.0, 0.32465, 0.0]),
        ("variance", [0.04394, 0.37203, 0.82257, 0.98787, 1.0, 0.82257, 0.04394]),
        ("absolute_zero", [0.0, 0.875, 0.75, 0.625, 0.5, 0.25, 0.0]),
        ("r_zero", [0.0, 0.25, 0.5, 0.75, 1.0, 0.5, 0.0]),
        ("threshold", [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
        ("tent", [0.0, 0.25, 0.5, 0.75, 1.0, 0.5, 0.0]),
        ("one_minus", [1.0, 0.875, 0.75, 0.625, 0.5, 0.25, 0.0]),
    ],
)
def test_rewards_at_eighths(name, values):
    """The papers' groups of 8: the tables of SPELL's and SPICE's rewards."""
    shares = [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 6 / 8, 1]
    reward = getattr(rewards, name)
    assert [reward(p) for p in shares] == pytest.approx(values, abs=1e-5)


def test_parameters():
    assert rewards.gaussian(0.25, sigma=0.25) == pytest.approx(math.exp(-0.5))
    assert rewards.tent(0.1, tau=0.2) == pytest.approx(0.5)
    assert rewards.tent(0.3, tau=0.2) == pytest.approx(0.5)
    assert rewards.tent(0.5, tau=0.2) == 0.0
    assert rewards.tent(0.9, tau=0.8) == pytest.approx(0.5)


def test_the_gaussian_is_the_float_that_the_proposer_study_was_paid():
    for p in (1 / 8, 0.3, 2 / 3, 0.9):
        assert rewards.gaussian(p) == math.exp(-((p - 0.5) ** 2) / (2 * (1 / 6) ** 2))


@pytest.mark.parametrize("name", ALL)
def test_arrays_keep_their_shape_and_numbers_stay_numbers(name):
    reward = getattr(rewards, name)
    shares = np.array([[0.0, 0.25], [0.5, 1.0]])
    values = reward(shares)
    assert isinstance(values, np.ndarray) and values.shape == (2, 2)
    assert values.tolist() == [[reward(p) for p in row] for row in shares.tolist()]
    assert isinstance(reward(0.5), float) and isinstance(reward(np.float64(0.5)), float)
    assert reward(np.array([])).shape == (0,)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("p", [-0.01, 1.01, math.nan, math.inf, np.array([0.5, -1.0])])
def test_what_is_no_share_is_refused(name, p):
    with pytest.raises(ValueError, match="p is .*; allowed: 0 to 1"):
        getattr(rewards, name)(p)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rewards.gaussian(0.5, sigma=0), "sigma is 0; allowed: above 0"),
        (lambda: rewards.tent(0.5, tau=1), "tau is 1; allowed: above 0 and below 1"),
        (lambda: rewards.tent(0.5, tau=0), "tau is 0; allowed: above 0 and below 1"),
    ],
)
def test_a_bad_parameter_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
