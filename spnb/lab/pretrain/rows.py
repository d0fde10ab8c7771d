"""The rows that policies are trained on, the pieces that lessons write them from, and drills."""

import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

from spnb.core import prompts
from spnb.core.types import Messages
from spnb.lab.ladder import COUNTS, HIGHEST, LETTERS, NUMBERS, ORDINALS, PAYMENTS, SO
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.world import Pool, names

START = "<|im_start|>"
END = "<|im_end|>"
BEYOND = 2
"""Levels above the highest whose order is practised."""
Segment = tuple[str, bool | tuple[str, ...]]
Row = list[Segment]
"""A training text in pieces. True marks what the policy is to write; several texts of one token
each stand for a piece that it is to draw from them, each as likely."""


def turn(messages: Messages, *answer: Segment) -> Row:
    """One user turn and the assistant's answer, whose pieces from outside are marked False."""
    prompt = f"{START}user\n{messages[-1]['content']}{END}\n{START}assistant\n"
    return [(prompt, False), *answer, (END, True), ("\n", False)]


ORDINAL = re.compile(f"( (?:{'|'.join(ORDINALS)}))\\b")


def by_ordinals(text: str, ordinals: Sequence[str]) -> Row:
    """A text that takes ordinals in any order, each drawn from those left."""
    left = [f" {ordinal}" for ordinal in ordinals]
    row: Row = []
    for piece in ORDINAL.split(text):
        row.append((piece, tuple(left) if piece in left else True))
        if piece in left:
            left.remove(piece)
    return row


def corrected_text(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The words of the second text up to the first that differs, then what the first one has."""
    pairs = list(itertools.zip_longest(first, second, fillvalue=""))
    same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    differ = pairs[len(same)] if len(same) < len(pairs) else ()
    return [word for word, _ in same] + [word for word in reversed(differ) if word]


class Drills:
    """Short exercises of what takes a learner of the ladder longest, drawn by the recipe's seed."""

    def __init__(self, recipe: LearnerRecipe):
        self.recipe = recipe
        self.rng = random.Random(recipe.seed)

    def pool(self) -> Pool:
        """Which names a row uses: all are to be known as words; the facts are new in every row."""
        return "train" if self.rng.random() < 2 / 3 else "heldout"

    def shuffled(self, items: Sequence[Any]) -> list[Any]:
        """All of these in random order."""
        return self.rng.sample(items, len(items))

    def recall(self) -> Row:
        """A list of names repeated, or pairs of which the second name is asked for."""
        words = [*names("town", self.pool()), *names("person", self.pool())]
        return self.copied(words) if self.rng.random() < 1 / 2 else self.paired(words)

    def paired(self, words: list[str]) -> Row:
        """Pairs of these words, of which the second is asked for."""
        drawn = iter(self.rng.sample(words, 2 * self.rng.randint(4, 12)))
        pairs = list(zip(drawn, drawn, strict=True))
        row: Row = [("".join(f" {key} {value}." for key, value in pairs), False)]
        for key, value in self.shuffled(pairs):
            row += [(f" {key}", False), (f" {value}", True), (".", False)]
        return row

    def copied(self, words: list[str]) -> Row:
        """Six to twenty of these words, repeated."""
        text = "".join(f" {word}" for word in self.rng.sample(words, self.rng.randint(6, 20)))
        return [(text, False), (text, True)]

    def sums(self) -> Row:
        """Counts after one payment more."""
        row: Row = []
        for _ in range(16):
            count = self.rng.randrange(COUNTS)
            paid = self.rng.choice(PAYMENTS)
            row += [(f" {count} {paid}", False), (f" {(2 * count + paid) % COUNTS}", True)]
            row.append((".", False))
        return row

    def options(self) -> Row:
        """The letters of listed counts."""
        return self.letters([str(n) for n in self.rng.sample(range(COUNTS), len(LETTERS))])

    def letters(self, listed: Sequence[str]) -> Row:
        """The letters of four options, in any order."""
        row: Row = [(prompts.lettered(listed) + "\n", False)]
        for at in self.shuffled(range(len(LETTERS))):
            row += [(f" {SO} {listed[at]}", False), (f" ({LETTERS[at]})", True), (".", False)]
        return row

    def order(self) -> Row:
        """The ordinals up to a high level in any order: that none comes twice is what takes longest
        to learn."""
        highest = min(self.recipe.highest + BEYOND, HIGHEST)
        level = self.rng.randint(1 + highest // 2, highest)
        who = self.rng.choice(names("person", self.pool()))
        row: Row = [(f" {NUMBERS[level - 1]}\n<answer>", False)]
        places = self.shuffled(range(level))
        for done, place in enumerate(places):
            left = tuple(f" {ORDINALS[one]}" for one in sorted(places[done:]))
            town = self.rng.choice(names("town", self.pool()))
            row += [(f" {who}", False), (f" {ORDINALS[place]}", left), (f" {town}", False)]
        return [*row, ("</answer>", True), (END, False)]
