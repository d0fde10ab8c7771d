"""Short exercises of what takes a learner of the ladder longest."""

import random
from collections.abc import Sequence
from typing import Any

from spnb.core import prompts
from spnb.lab.ladder import COUNTS, HIGHEST, LETTERS, NUMBERS, ORDINALS, PAYMENTS, SO
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import END, Row
from spnb.lab.world import Pool, names

BEYOND = 2
"""Levels above the highest whose order is practised."""


class Drills:
    """Rows of short exercises, drawn by the recipe's seed."""

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
        if self.rng.random() < 1 / 2:
            return self.copied(words)
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
        """The letters of listed options."""
        listed = [str(count) for count in self.rng.sample(range(COUNTS), len(LETTERS))]
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
