"""BLEU by hand, and which texts end up in one cluster."""

import math

import pytest

from spnb.evaluate.diversity import bleu, clusters, shares


def test_bleu_by_hand():
    assert bleu("a b c d e", "a b c d e") == pytest.approx(1)
    assert bleu("a b c d", "e f g h") == bleu("", "a") == bleu("a", "") == 0
    # n-grams shared: 4/5, 3/4, 2/3, 1/2.
    expected = (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert bleu("a b c d x", "a b c d e") == pytest.approx(expected)
    # Shorter than the reference: 4 of 5 words.
    assert bleu("a b c d", "a b c d e") == pytest.approx(math.exp(1 - 5 / 4))
    assert bleu("a b c d e", "a b c d") == pytest.approx(expected)  # no bonus for more words
    # No pair is shared: 0.1 in place of 0; of three words there are no four in a row.
    assert bleu("a x b", "a y b") == pytest.approx((2 / 3 * 0.1 / 2 * 0.1 / 1 * 0.1 / 1) ** 0.25)
    assert bleu("a a a a", "a b c d") == pytest.approx((1 / 4 * 0.1 / 3 * 0.1 / 2 * 0.1) ** 0.25)


ONE, TWO = "which town did the first traveller see at noon", "how many coins are in seven bags"
NEAR = "which town did the second traveller see at noon"


def test_near_texts_are_one_cluster():
    labels = clusters([ONE, TWO, NEAR, ONE])
    assert labels[0] == labels[2] == labels[3] != labels[1]
    assert 0.5 < bleu(ONE, NEAR) < 1
    assert shares([ONE, TWO, NEAR, ONE]) == [0.75, 0.25, 0.75, 0.75]
    assert len(set(clusters([ONE, TWO, NEAR, ONE], threshold=0.01))) == 3
    assert shares([ONE]) == [1.0] and shares([]) == []


def test_linkage_is_by_the_mean_distance():
    """Two near texts and one that is near to one of them only: on average it is too far."""
    texts = ["a b c d e f", "a b c d e f g h", "e f g h i j k l"]
    first, second = 1 - bleu(texts[0], texts[2]), 1 - bleu(texts[1], texts[2])
    near = (second + 0.01, (first + second) / 2 - 0.01)
    assert near[0] < near[1]
    assert len(set(clusters(texts, sum(near) / 2))) == 2
    assert len(set(clusters(texts, (first + second) / 2 + 0.01))) == 1


def test_the_earlier_text_is_compared_with_the_later():
    """exp(-1/3) is 0.72; the other way (6 * 5 * 4 * 3 / (8 * 7 * 6 * 5)) ** 0.25 is 0.68."""
    short, long = "a b c d e f", "a b c d e f g h"
    assert len({*clusters([short, long], 0.3)}) == 1
    assert len({*clusters([long, short], 0.3)}) == 2
