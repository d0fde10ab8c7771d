"""Intervals: every number is shown with one, or with n = 1. The formulas are scipy's."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
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
    kept = np.asarray(values, dtype=float)
    kept = kept[np.isfinite(kept)]
    if len(kept) == 0:
        return float("nan"), float("nan"), float("nan"), 0
    mean = float(kept.mean())
    if len(kept) == 1:
        return mean, float("nan"), float("nan"), 1
    half = float(stats.sem(kept) * stats.t.ppf(0.975, len(kept) - 1))
    return mean, mean - half, mean + half, len(kept)


def over_seeds(frame: pd.DataFrame, by: Sequence[str], value: str = "value") -> pd.DataFrame:
    """Mean and interval over seeds for each group: columns `by`, value, low, high, n (seeds).

    Rows of one seed in a group (several games, say) are averaged first. With one seed the interval
    is the measurement's own, where the frame has columns low and high and the group one row; else
    its ends are nan.
    """
    rows = []
    for keys, part in frame.groupby(list(by), sort=False):
        mean, low, high, n = mean_interval(part.groupby("seed")[value].mean().tolist())
        if n == 1 and len(part) == 1 and {"low", "high"} <= set(part.columns):
            low, high = part["low"].iloc[0], part["high"].iloc[0]
        rows.append((*keys, mean, low, high, n))
    return pd.DataFrame(rows, columns=[*by, "value", "low", "high", "n"])


def paired_difference(
    frame: pd.DataFrame, first: str, second: str, value: str = "value"
) -> tuple[float, ...]:
    """Mean, 95 % t-interval and n of variant `first` minus variant `second`, paired by seed.

    Both variants of a seed share start, deals and evaluation seeds, so the pairs take out what they
    have in common.
    """
    wide = frame.groupby(["seed", "variant"])[value].mean().unstack("variant")
    if not {first, second} <= set(wide.columns):
        return float("nan"), float("nan"), float("nan"), 0
    return mean_interval((wide[first] - wide[second]).tolist())
