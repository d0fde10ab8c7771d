"""Intervals: every number is shown with one, or with n = 1. The formulas are scipy's."""

from collections.abc import Callable, Sequence
from math import comb

import numpy as np
from scipy import stats


def share_interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `n` trials."""
    bounds = stats.binomtest(int(successes), int(n)).proportion_ci(
        confidence_level=0.95, method="wilson"
    )
    return float(bounds.low), float(bounds.high)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Mean, Student-t 95 % interval (over seeds, say) and n; the ends are nan where n is 1.

    Values that are not finite are left out and not counted; with none left, mean and ends are nan
    and n is 0.
    """
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if len(finite) == 0:
        return float("nan"), float("nan"), float("nan"), 0
    mean = float(finite.mean())
    if len(finite) == 1:
        return mean, float("nan"), float("nan"), 1
    half = float(stats.sem(finite) * stats.t.ppf(0.975, len(finite) - 1))
    return mean, mean - half, mean + half, len(finite)


def bootstrap_interval(
    strata: Sequence[Sequence[float]],
    statistic: Callable[..., float] = np.mean,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """A statistic of values in strata and its 95 % stratified bootstrap interval.

    Values are drawn again within each stratum, so that every resample has as many of each (seeds
    within variants, items within suites). The ends are the 2.5th and 97.5th percentile, and nan
    where no stratum has two values.

    Args:
        statistic: of all values together, with an argument `axis` as numpy's have.

    Raises:
        ValueError: no values, an empty stratum, or one with a value that is not finite.
    """
    arrays = [np.asarray(values, dtype=float) for values in strata]
    for place, values in enumerate(arrays):
        if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
            raise ValueError(f"stratum {place} is {values}; allowed: one finite number or more")
    if not arrays:
        raise ValueError("strata is empty; allowed: one stratum or more")
    value = float(statistic(np.concatenate(arrays), axis=-1))
    if max(map(len, arrays)) == 1:
        return value, float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    draws = [values[rng.integers(len(values), size=(resamples, len(values)))] for values in arrays]
    low, high = np.percentile(statistic(np.concatenate(draws, axis=1), axis=-1), (2.5, 97.5))
    return value, float(low), float(high)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that one of `k` answers is right, from `n` answers of which `c` are.

    1 - C(n - c, k) / C(n, k), unbiased (Chen et al. 2021, arXiv 2107.03374; SPELL eq. 11).

    Raises:
        ValueError: not 1 <= k <= n and 0 <= c <= n.
    """
    for key, value, low, high in (("n", n, 1, None), ("c", c, 0, n), ("k", k, 1, n)):
        if int(value) != value or value < low or (high is not None and value > high):
            allowed = f"{low} or more" if high is None else f"{low} to n ({n})"
            raise ValueError(f"{key} of pass@k is {value!r}; allowed: an integer, {allowed}")
    return 1.0 - comb(int(n) - int(c), int(k)) / comb(int(n), int(k))
