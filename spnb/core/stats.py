"""Intervals: every number is shown with one, or with n = 1.

A number of one variant has a bootstrap interval over seeds and items; a difference has Student's t
over the differences of the seeds. The closed formulas are scipy's.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from math import ceil, comb, floor, hypot, inf, isfinite

import numpy as np

RESAMPLES = 1000
"""Draws of a bootstrap; its seed is fixed."""
TOLERANCE = 1e-9


def share_interval(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `n` trials."""
    from scipy import stats  # late: 0.7 s, and a wrong parameter is answered without it

    test = stats.binomtest(int(successes), int(n))
    bounds = test.proportion_ci(confidence_level=0.95, method="wilson")
    return float(bounds.low), float(bounds.high)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Mean, Student-t 95 % interval (over seeds, say) and n; the ends are nan where n is 1.

    Values that are not finite are left out and not counted; with none left, mean and ends are nan
    and n is 0.
    """
    from scipy import stats  # late: 0.7 s, and a wrong parameter is answered without it

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
    seeds: Sequence[Mapping[Hashable, Sequence[float]]],
    bounds: tuple[float, float] | None = None,
    resamples: int = RESAMPLES,
) -> tuple[float, float, float, int]:
    """Mean over seeds, its 95 % bootstrap interval over seeds and items, and the number of seeds.

    All seeds answer the same items, so both are drawn again, crossed (Owen 2007, "The pigeonhole
    bootstrap"): each resample draws seeds with replacement, and the items of each stratum once for
    all of them. Of m items it draws m - 1, each of which then counts m / (m - 1) times, so that a
    stratum of few items has its whole variance (Rao and Wu 1988). The ends are the 2.5th and 97.5th
    percentile, within the range of what the items can add up to; one seed has an interval over its
    items, nan where there is nothing to draw: strata of one item. Equal arguments, equal numbers.

    A stratum of one item adds nothing of its own, nor one that one of several seeds has alone. Few
    seeds without items are drawn too alike: in a simulation three held the truth in 74 % of cases,
    ten in 90 %. Verdicts rest on `mean_interval`.

    Args:
        seeds: of each seed its strata by key, of each stratum what each item adds to the seed's
            value. The n-th item is the same one in all seeds that have the key and as many items.
        bounds: the least and the largest value that a seed can have. Where all resamples are equal,
            Wilson's interval for the items of one seed says how many more there could be that
            differ, up to these bounds; without bounds such an interval has no width.

    Raises:
        ValueError: a seed has no stratum, or one that is empty or has a value that is not finite.
    """
    strata = [
        {(key, len(stratum)): np.asarray(stratum, dtype=float) for key, stratum in items.items()}
        for items in seeds
    ]
    if not all(strata):
        raise ValueError(f"seed {strata.index({})} has no stratum; allowed: one or more")
    for (key, _), stratum in chain.from_iterable(items.items() for items in strata):
        if stratum.ndim != 1 or len(stratum) == 0 or not np.isfinite(stratum).all():
            raise ValueError(f"stratum {key} is {stratum}; allowed: one finite number or more")
    count = len(strata)
    if count == 0:
        return float("nan"), float("nan"), float("nan"), 0
    value = float(np.mean([sum(stratum.sum() for stratum in items.values()) for items in strata]))
    known = Counter(chain.from_iterable(strata))
    if bounds is None and count == max(size for _, size in known) == 1:
        return value, float("nan"), float("nan"), 1
    rng = np.random.default_rng(0)
    times = {
        (key, size): _times_drawn(size if having > 1 or count == 1 else 1, resamples, rng)
        for (key, size), having in known.items()
    }
    drawn = [sum((times[each] * items[each]).sum(1) for each in items) for items in strata]
    which = rng.integers(count, size=(count, resamples))
    means = np.take_along_axis(np.array(drawn), which, axis=0).mean(axis=0)
    low, high = np.clip(np.percentile(means, (2.5, 97.5)), (-inf, value), (value, inf))
    if bounds is not None and high - low <= TOLERANCE:
        fewest = min(sum(map(len, items.values())) for items in strata)
        like = share_interval(fewest, fewest)[0]
        low, high = (value * like + bound * (1 - like) for bound in bounds)
    return value, float(low), float(high), count


def _times_drawn(items: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """How often each item counts, (resamples, items): all but one drawn, scaled up to all."""
    drawn = max(items - 1, 1)
    return rng.multinomial(drawn, np.full(items, 1 / items), size=resamples) * (items / drawn)


def difference_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Bounds of the difference of two independent numbers from those of each (Newcombe 1998).

    Args:
        first, second: value, low, high; nan in any of them makes the bounds nan.
    """
    (a, a_low, a_high) = first
    (b, b_low, b_high) = second
    return a - b - hypot(a - a_low, b_high - b), a - b + hypot(a_high - a, b - b_low)


def improvement_interval(differences: Sequence[float]) -> tuple[float, float, float, int]:
    """The share of paired differences above 0, ties are half, with Wilson's 95 % interval and n.

    Differences that are nan are left out; with none left the numbers are nan and n is 0.
    """
    known = np.asarray(differences, dtype=float)
    known = known[np.isfinite(known)]
    n = len(known)
    if n == 0:
        return float("nan"), float("nan"), float("nan"), 0
    better = float((known > 0).sum() + 0.5 * (known == 0).sum())
    return better / n, share_interval(floor(better), n)[0], share_interval(ceil(better), n)[1], n


def p_value(interval: tuple[float, float, float, int], zero: float = 0.0) -> float:
    """The two-sided p of Student's t by which a mean's 95 % interval (over n values) was made.

    Where the interval is lopsided (widened by that of the items) the side of `zero` counts: p is
    below .05 where `zero` is outside. nan where the interval has no ends; 0 or 1 where that side
    has no width.
    """
    from scipy import stats  # late: 0.7 s, and a wrong parameter is answered without it

    mean, low, high, n = interval
    if n < 2 or not isfinite(high - low):
        return float("nan")
    side = mean - low if mean > zero else high - mean
    if side == 0:
        return float(mean == zero)
    error = side / stats.t.ppf(0.975, n - 1)
    return float(2 * stats.t.sf(abs(mean - zero) / error, n - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p of a family, adjusted for their number (Holm 1979); nan ones are not of the family."""
    adjusted = [float("nan")] * len(p_values)
    ranked = sorted((p, place) for place, p in enumerate(p_values) if isfinite(p))
    largest = 0.0
    for rank, (p, place) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - rank) * p))
        adjusted[place] = largest
    return adjusted


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
