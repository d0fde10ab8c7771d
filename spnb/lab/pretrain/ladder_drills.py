"""Short exercises of what takes a learner of the ladder longest."""

import random

from spnb.core import prompts
from spnb.lab.ladder import COUNTS, LETTERS, NUMBERS, ORDINALS, PAYMENTS, SO
from spnb.lab.pretrain.rows import END, Row, draw_pool
from spnb.lab.world import names


def recall(rng: random.Random) -> Row:
    """A list of names repeated, or pairs of which the second name is asked for."""
    words = [*names("town", draw_pool(rng)), *names("person", draw_pool(rng))]
    if rng.random() < 1 / 2:
        text = "".join(f" {name}" for name in rng.sample(words, rng.randint(6, 20)))
        return [(text, False), (text, True)]
    drawn = iter(rng.sample(words, 2 * rng.randint(4, 12)))
    pairs = list(zip(drawn, drawn, strict=True))
    row: Row = [("".join(f" {key} {value}." for key, value in pairs), False)]
    for key, value in rng.sample(pairs, len(pairs)):
        row += [(f" {key}", False), (f" {value}", True), (".", False)]
    return row


def sums(rng: random.Random) -> Row:
    """Counts after one payment more."""
    row: Row = []
    for _ in range(16):
        count = rng.randrange(COUNTS)
        paid = rng.choice(PAYMENTS)
        row += [(f" {count} {paid}", False), (f" {(2 * count + paid) % COUNTS}", True)]
        row.append((".", False))
    return row


def options(rng: random.Random) -> Row:
    """The letters of listed options."""
    listed = [str(count) for count in rng.sample(range(COUNTS), len(LETTERS))]
    row: Row = [(prompts.lettered(listed) + "\n", False)]
    for place in rng.sample(range(len(LETTERS)), len(LETTERS)):
        row += [(f" {SO} {listed[place]}", False), (f" ({LETTERS[place]})", True), (".", False)]
    return row


def order(rng: random.Random, highest: int) -> Row:
    """The ordinals up to a high level in any order: that none comes twice is what takes longest
    to learn."""
    level = rng.randint(1 + highest // 2, highest)
    who = rng.choice(names("person", draw_pool(rng)))
    row: Row = [(f" {NUMBERS[level - 1]}\n<answer>", False)]
    places = rng.sample(range(level), level)
    for done, place in enumerate(places):
        left = tuple(f" {ORDINALS[one]}" for one in sorted(places[done:]))
        town = rng.choice(names("town", draw_pool(rng)))
        row += [(f" {who}", False), (f" {ORDINALS[place]}", left), (f" {town}", False)]
    return [*row, ("</answer>", True), (END, False)]
