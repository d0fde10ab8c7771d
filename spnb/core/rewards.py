"""What a question is worth to its proposer, from the share p of right answers that a solver gives.

Every function takes a number or an array of numbers in [0, 1] and returns the same; a p outside of
it, or one that is not finite, is a ValueError. What a paper pays for invalid questions (SPELL -1
and -0.5, SPICE -0.1) is its method's.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np

P = TypeVar("P", float, np.ndarray)


def _of_shares(reward: Callable[..., float]) -> Callable[..., P]:
    """A reward of one share as a reward of a share or an array of them, each checked."""

    @wraps(reward)
    def rewards(p: P, *args: float, **kwargs: float) -> P:
        shares = np.asarray(p, dtype=float)
        wrong = shares[~((shares >= 0) & (shares <= 1))]
        if wrong.size:
            raise ValueError(f"p is {wrong.flat[0]}; allowed: 0 to 1, a share of right answers")
        values = [reward(float(share), *args, **kwargs) for share in shares.flat]
        return values[0] if np.isscalar(p) else np.array(values).reshape(shares.shape)

    return rewards


@_of_shares
def gaussian(p: float, sigma: float = 1 / 6) -> float:
    """exp(-(p - 1/2)^2 / (2 sigma^2)), 0 where nobody or everybody is right (SPELL eq. 7)."""
    if not sigma > 0:
        raise ValueError(f"sigma is {sigma}; allowed: above 0")
    return 0.0 if p in (0.0, 1.0) else math.exp(-((p - 0.5) ** 2) / (2 * sigma**2))


@_of_shares
def variance(p: float) -> float:
    """exp(-(p(1 - p) - 1/4)^2 / (2 * 0.01)) (SPICE eq. 1; 0.01 is sigma^2).

    p(1 - p) is the population variance of right and wrong. 0.044 at p = 0 and 1, not 0.
    """
    return math.exp(-((p * (1 - p) - 0.25) ** 2) / (2 * 0.01))


@_of_shares
def absolute_zero(p: float) -> float:
    """1 - p, 0 where nobody is right (Absolute Zero's learnability; at p = 1 it is 0 anyway).

    SPICE's figure 7 draws plain 1 - p: `one_minus`.
    """
    return 0.0 if p == 0 else 1 - p


@_of_shares
def r_zero(p: float) -> float:
    """1 - 2 |p - 1/2| (R-Zero, arXiv 2508.05004; p is agreement with the majority answer)."""
    return 1 - 2 * abs(p - 0.5)


@_of_shares
def threshold(p: float) -> float:
    """1 where 0 < p < 1, else 0 (SPICE's appendix, figure 7: neither 0/8 nor 8/8 right)."""
    return float(0 < p < 1)


@_of_shares
def tent(p: float, tau: float = 0.5) -> float:
    """max(0, 1 - |p - tau| / min(tau, 1 - tau)) (SCOPE eq. 5).

    p is a mean rubric grade there. Equal to `r_zero` for tau = 1/2.
    """
    if not 0 < tau < 1:
        raise ValueError(f"tau is {tau}; allowed: above 0 and below 1")
    return max(0.0, 1 - abs(p - tau) / min(tau, 1 - tau))


@_of_shares
def one_minus(p: float) -> float:
    """1 - p, at p = 0 too (SSP eq. 7, for a question that passed its checks)."""
    return 1 - p


def length_factor(tokens: int, short: int, long: int, least: float) -> float:
    """What an answer of so many tokens keeps of its grade (SCOPE eq. 7): all up to `short`, `least`
    from `long` on, between them a half cosine.

    Raises:
        ValueError: `short` is not below `long`, or `least` not in [0, 1].
    """
    if not 0 <= short < long:
        raise ValueError(f"short is {short}, long is {long}; allowed: 0 <= short < long")
    if not 0 <= least <= 1:
        raise ValueError(f"least is {least}; allowed: 0 to 1")
    way = min(1.0, max(0.0, (tokens - short) / (long - short)))
    return least + (1 - least) / 2 * (1 + math.cos(math.pi * way))
