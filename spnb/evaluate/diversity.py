"""How much texts differ: BLEU between them, clusters of near ones (R-Zero, arXiv 2508.05004)."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np

LONGEST = 4
"""Words of an n-gram at most."""
SMOOTHING = 0.1
"""Counts for n-grams of a length of which none is shared."""
THRESHOLD = 0.5
"""Of 1 - BLEU, R-Zero's: clusters nearer than this become one."""


def bleu(hypothesis: str, reference: str) -> float:
    """Sentence BLEU of words, 0 to 1: the geometric mean of the shares of n-grams (n = 1 to 4)
    that the reference has too, less where the hypothesis is shorter. 0 without words."""
    words = hypothesis.split()
    other = reference.split()
    if not words or not other:
        return 0.0
    total = 0.0
    for n in range(1, LONGEST + 1):
        own = _grams(words, n)
        theirs = _grams(other, n)
        shared = sum((own & theirs).values())
        if n == 1 and not shared:
            return 0.0
        total += math.log((shared or SMOOTHING) / max(1, sum(own.values())))
    return math.exp(total / LONGEST) * min(1.0, math.exp(1 - len(other) / len(words)))


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def clusters(texts: Sequence[str], threshold: float = THRESHOLD) -> list[int]:
    """The cluster of each text: average linkage on 1 - BLEU of the earlier text against the later,
    merged up to the threshold."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(texts) < 2:
        return [0] * len(texts)

    @cache
    def distance(first: str, second: str) -> float:
        return 0.0 if first == second else 1 - bleu(first, second)

    distances = [distance(*pair) for pair in combinations(texts, 2)]
    tree = linkage(np.array(distances), method="average")
    return [int(label) for label in fcluster(tree, threshold, criterion="distance")]


def shares(texts: Sequence[str]) -> list[float]:
    """The share of all texts that is in each text's cluster: R-Zero's repetition penalty."""
    labels = clusters(texts)
    sizes = Counter(labels)
    return [sizes[label] / len(texts) for label in labels]
