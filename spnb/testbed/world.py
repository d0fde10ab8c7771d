"""A small world whose facts are known exactly: entities, relations, yearly accounts, for any seed
and size.

Nothing is stored: a fact is drawn from a hash of (seed, entity, relation), so a world of a million
entities costs no memory, and the same seed gives the same facts anywhere. Names come from two
disjoint pools: `train` names are used in reinforcement learning's training questions, `heldout`
names in benchmarks; the embedded policies know both as words.

    world = World(seed=0)
    world.value("Arnford", "mayor")      # a person's name
    next(documents(1000, seed=0))        # {"id", "title", "text", "metadata"}
"""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from spnb.core.types import derive_seed

Pool = Literal["train", "heldout"]


@dataclass(frozen=True)
class Relation:
    """What a subject type can be asked about. `verb` says the fact without the relation's noun, {e}
    and {v} filled in.

    `noun` is the relation's name in questions, `synonym` another noun for it (paraphrase distance
    1), `verb` is distance 2.
    """

    noun: str
    subject: str
    value: str
    synonym: str
    verb: str


RELATIONS = (
    Relation("home", "person", "town", "residence", "{e} lives in {v}."),
    Relation("employer", "person", "company", "firm", "{e} works for {v}."),
    Relation("teacher", "person", "person", "tutor", "{e} was taught by {v}."),
    Relation("job", "person", "job", "trade", "{e} works as {v}."),
    Relation("mayor", "town", "person", "leader", "{e} is governed by {v}."),
    Relation("twin", "town", "town", "partner", "{e} is paired with {v}."),
    Relation("river", "town", "river", "stream", "{e} stands by the {v}."),
    Relation("population", "town", "number", "headcount", "{e} is home to {v} families."),
    Relation("head", "company", "person", "chief", "{e} is run by {v}."),
    Relation("seat", "company", "town", "base", "{e} sits in {v}."),
    Relation("product", "company", "product", "output", "{e} makes {v}."),
    Relation("founding", "company", "year", "start", "{e} began in {v}."),
    Relation("author", "book", "person", "writer", "{e} was written by {v}."),
    Relation("setting", "book", "town", "scene", "{e} plays in {v}."),
    Relation("publisher", "book", "company", "printer", "{e} was printed by {v}."),
    Relation("length", "book", "number", "extent", "{e} runs to {v} pages."),
    Relation("builder", "bridge", "company", "maker", "{e} was built by {v}."),
    Relation("site", "bridge", "town", "place", "{e} stands in {v}."),
    Relation("designer", "bridge", "person", "planner", "{e} was drawn by {v}."),
    Relation("opening", "bridge", "year", "debut", "{e} opened in {v}."),
    Relation("winner", "event", "person", "champion", "{e} was won by {v}."),
    Relation("venue", "event", "town", "location", "{e} took place in {v}."),
    Relation("sponsor", "event", "company", "patron", "{e} was funded by {v}."),
    Relation("date", "event", "year", "time", "{e} happened in {v}."),
)
BY_NOUN = {relation.noun: relation for relation in RELATIONS}
SYNONYMS = {relation.synonym: relation.noun for relation in RELATIONS}
# fmt: off
PREFIXES = (
    "Al", "Ar", "Bel", "Bor", "Cal", "Dor", "Ed", "Fal", "Gar", "Hal", "Il", "Jor",
    "Kel", "Lor", "Mar", "Nor", "Os", "Pel", "Quin", "Rud", "Sel", "Tor", "Ul", "Var",
)
# fmt: on
SUFFIXES = {
    "person": ("ana", "eric", "ino", "wyn", "isa", "mund"),
    "town": ("ford", "burg", "holm", "stead", "vik", "mouth"),
    "company": ("tek", "corp", "mill", "ware", "trade", "works"),
    "book": ("iad", "ode", "saga", "lied", "tale", "ballad"),
    "bridge": ("span", "arch", "pont", "cross", "link", "pass"),
    "event": ("fest", "cup", "fair", "race", "games", "day"),
}
# fmt: off
WORDS = {
    "job": ("baker", "miller", "smith", "tailor", "painter", "lawyer",
            "doctor", "sailor", "farmer", "mason", "weaver", "clerk"),
    "river": ("Senn", "Ubra", "Tamar", "Ouse", "Lenk", "Drava", "Isk", "Mura", "Naab", "Pegn", "Rhone", "Sawa"),
    "product": ("glass", "paper", "steel", "rope", "cloth", "soap",
                "salt", "tea", "wine", "clocks", "boots", "lamps"),
}
# fmt: on
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
    every = [prefix + suffix for prefix, suffix in itertools.product(PREFIXES, SUFFIXES[kind])]
    random.Random(kind).shuffle(every)
    return tuple(every[:HELDOUT_NAMES] if pool == "heldout" else every[HELDOUT_NAMES:])


@cache
def _kinds() -> dict[str, str]:
    return {
        word: kind
        for kind in SUFFIXES
        for pool in ("train", "heldout")
        for word in names(kind, pool)
    }


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
        size: entities of each type; beyond the pool's one-word names, names have two words, then
            three.
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
        found = self.index(name)
        return None if found is None else found[0]

    def value(self, entity: str, noun: str) -> str | None:
        """The value of a relation as text (a name, word, number or year), None where the entity has
        none."""
        relation, found = BY_NOUN.get(noun), self.index(entity)
        if relation is None or found is None or found[0] != relation.subject:
            return None
        draw = derive_seed(self.seed, *found, noun)
        if relation.value in SUFFIXES:
            index = draw % self.size
            if relation.value == relation.subject and index == found[1]:
                index = (index + 1) % self.size
            return self.name(relation.value, index)
        if relation.value in WORDS:
            return WORDS[relation.value][draw % len(WORDS[relation.value])]
        return str(
            (NUMBERS if relation.value == "number" else YEARS)[
                draw % (90 if relation.value == "number" else 150)
            ]
        )

    def years(self, company: str) -> range:
        """The years of a company's accounts."""
        first = 1810 + derive_seed(self.seed, company, "years") % 80
        return range(first, first + REPORT_YEARS)

    def cell(self, company: str, metric: str, year: int) -> int | None:
        """One figure of a company's accounts, 10 to 29; None where there is none."""
        if (
            self.kind(company) != "company"
            or metric not in METRICS
            or year not in self.years(company)
        ):
            return None
        return CELLS[derive_seed(self.seed, company, metric, year) % len(CELLS)]

    def holders(self, noun: str, value: str) -> list[str]:
        """All entities whose relation has this value, by a look at every entity of the subject
        type."""
        relation = BY_NOUN[noun]
        every = (self.name(relation.subject, index) for index in range(self.size))
        return [entity for entity in every if self.value(entity, noun) == value]

    def draw(self, rng: random.Random, kind: str, but: Sequence[str] = ()) -> str:
        """A random entity of a type that is not among `but`.

        Raises:
            ValueError: all of them are.
        """
        left = self.size - sum(self.kind(name) == kind for name in set(but))
        if left < 1:
            raise ValueError(
                f"size of the world is {self.size}, too few entities of type {kind}; allowed: more"
            )
        while True:
            name = self.name(kind, rng.randrange(self.size))
            if name not in but:
                return name


BLOCK = 15
"""Documents about each two entities of every type: 12 articles, 2 reports, 1 longer document in
sections."""


def world_of(count: int, seed: int = 0, pool: Pool = "train") -> World:
    """The world that `documents` with the same arguments are about.

    It has two entities of every type for each `BLOCK` documents, so that every entity has an
    article (where `count` is a multiple of `BLOCK`; else the last two of some types have none).
    Another count is another world.
    """
    return World(seed, size=2 * max(1, math.ceil(count / BLOCK)), pool=pool)


def documents(count: int, seed: int = 0, pool: Pool = "train") -> Iterator[dict[str, Any]]:
    """Streams `count` generated documents about `world_of(count, seed, pool)`: an article on every
    entity, a report on every company, a longer document in sections on every second town.
    """
    from spnb.testbed.texts import article, report, sections

    world = world_of(count, seed, pool)
    kinds = list(SUFFIXES)
    for number in range(count):
        block, place = divmod(number, BLOCK)
        index, rng = 2 * block, random.Random(derive_seed(seed, "document", number))
        if place < 2 * len(kinds):
            yield article(world, world.name(kinds[place // 2], index + place % 2), rng)
        elif place < BLOCK - 1:
            yield report(world, world.name("company", index + place % 2))
        else:
            yield sections(world, world.name("town", index), rng)
