"""A small world whose facts are known exactly: entities, relations, accounts; any seed and size.

Nothing is stored: a fact is drawn from a hash of (seed, entity, relation), so a world of a million
entities costs no memory. Names come from two disjoint pools: `train` names are used in training
questions, `heldout` names in benchmarks; the embedded policies know both as words. All words are in
`world.yaml`.

    world = World(seed=0)
    world.value("Arnford", "mayor")      # a person's name
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from spnb.core.types import derive_seed

Pool = Literal["train", "heldout"]
WORDING = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


@dataclass(frozen=True)
class Relation:
    """What entities of type `subject` can be asked about, with a value of type `value`.

    `synonym` is another noun for it, `verb` a sentence without either, {e} and {v} to be filled in.
    """

    noun: str
    subject: str
    value: str
    synonym: str
    verb: str


RELATIONS = tuple(Relation(*row) for row in WORDING["relations"])
BY_NOUN = {relation.noun: relation for relation in RELATIONS}
SYNONYMS = {relation.synonym: relation.noun for relation in RELATIONS}
SUFFIXES: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in WORDING["suffixes"].items()}
"""Endings of an entity type's names; its keys are the entity types."""
WORDS: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in WORDING["words"].items()}
NUMBERS, YEARS = range(10, 100), range(1750, 1900)
METRICS = ("revenue", "costs", "staff")
CELLS = range(10, 30)
REPORT_YEARS = 4
HELDOUT_NAMES = 48
"""Names of each type kept for benchmarks; the other 96 are for training."""


@cache
def names(kind: str, pool: Pool) -> tuple[str, ...]:
    """The one-word names of a type in a pool: 96 for training, 48 held out, disjoint.

    Raises:
        ValueError: no such type or pool.
    """
    if kind not in SUFFIXES:
        raise ValueError(f"entity type is {kind!r}; allowed: {', '.join(SUFFIXES)}")
    if pool not in ("train", "heldout"):
        raise ValueError(f"pool of names is {pool!r}; allowed: train, heldout")
    parts = itertools.product(WORDING["prefixes"], SUFFIXES[kind])
    every = [prefix + suffix for prefix, suffix in parts]
    random.Random(kind).shuffle(every)
    return tuple(every[:HELDOUT_NAMES] if pool == "heldout" else every[HELDOUT_NAMES:])


@cache
def _kinds() -> dict[str, str]:
    kinds = ((kind, names(kind, "train") + names(kind, "heldout")) for kind in SUFFIXES)
    return {word: kind for kind, words in kinds for word in words}


def kind_of_word(word: str) -> str | None:
    """The entity type that a one-word name has, None where it is no name of the world."""
    return _kinds().get(word)


def relations_of(kind: str) -> tuple[Relation, ...]:
    """The relations that an entity type has."""
    return tuple(relation for relation in RELATIONS if relation.subject == kind)


class World:
    """All facts for one seed.

    Args:
        seed: same seed, same facts.
        size: entities of each type; beyond the pool's names of one word they have two, then three.
        pool: which names are used.

    Raises:
        ValueError: size below 2.
    """

    def __init__(self, seed: int, size: int | None = None, pool: Pool = "train"):
        self.pool: Pool = pool
        self.seed = seed
        self.size = len(names("person", pool)) if size is None else size
        if self.size < 2:
            raise ValueError(f"size of a world is {size}; allowed: 2 or more entities of each type")

    def name(self, kind: str, index: int) -> str:
        """The name of entity `index` (0 to size - 1) of a type."""
        words, base = [], names(kind, self.pool)
        index += 1
        while index:
            index, digit = divmod(index - 1, len(base))
            words.append(base[digit])
        return " ".join(reversed(words))

    def index(self, name: str) -> tuple[str, int] | None:
        """Type and index of an entity's name, None where the world has no such entity."""
        words = name.split()
        kind = kind_of_word(words[0]) if words else None
        if kind is None:
            return None
        base, index = names(kind, self.pool), 0
        for word in words:
            if word not in base:
                return None
            index = index * len(base) + base.index(word) + 1
        return (kind, index - 1) if index <= self.size else None

    def kind(self, name: str) -> str | None:
        """The type of an entity, None where the world has no such entity."""
        place = self.index(name)
        return None if place is None else place[0]

    def value(self, entity: str, noun: str) -> str | None:
        """The value of a relation (a name, word, number or year), None where there is none."""
        relation, place = BY_NOUN.get(noun), self.index(entity)
        if relation is None or place is None or place[0] != relation.subject:
            return None
        draw = derive_seed(self.seed, *place, noun)
        if relation.value in SUFFIXES:
            index = draw % self.size
            if relation.value == relation.subject and index == place[1]:
                index = (index + 1) % self.size
            return self.name(relation.value, index)
        values = WORDS.get(relation.value) or (NUMBERS if relation.value == "number" else YEARS)
        return str(values[draw % len(values)])

    def years(self, company: str) -> range:
        """The years of a company's accounts."""
        first = 1810 + derive_seed(self.seed, company, "years") % 80
        return range(first, first + REPORT_YEARS)

    def cell(self, company: str, metric: str, year: int) -> int | None:
        """One figure of a company's accounts, 10 to 29; None where there is none."""
        known = self.kind(company) == "company" and metric in METRICS
        if not known or year not in self.years(company):
            return None
        return CELLS[derive_seed(self.seed, company, metric, year) % len(CELLS)]

    def holders(self, noun: str, value: str) -> list[str]:
        """All entities whose relation has this value."""
        every = (self.name(BY_NOUN[noun].subject, index) for index in range(self.size))
        return [entity for entity in every if self.value(entity, noun) == value]

    def draw(self, rng: random.Random, kind: str, but: Sequence[str] = ()) -> str:
        """A random entity of a type that is not among `but`; ValueError where all of them are."""
        if sum(self.kind(name) == kind for name in set(but)) >= self.size:
            raise ValueError(
                f"size of the world is {self.size}, too few entities of type {kind}; allowed: more"
            )
        while True:
            name = self.name(kind, rng.randrange(self.size))
            if name not in but:
                return name
