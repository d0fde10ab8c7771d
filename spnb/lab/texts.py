"""Facts as simple English, simple English back as facts, and whole documents.

A fact is a triple (entity, noun, value). It can be said with the relation's own noun (paraphrase
distance 0), with a synonym (1) or with a verb phrase (2); `facts_in` reads all of these sentences.

    next(documents(1000, seed=0))        # {"id", "title", "text", "metadata"}
"""

import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from spnb.core.types import derive_seed
from spnb.lab.world import (
    BY_NOUN,
    METRICS,
    RELATIONS,
    REPORT_YEARS,
    SUFFIXES,
    SYNONYMS,
    Pool,
    World,
    relations_of,
)

Fact = tuple[str, str, str]
NOUN_SENTENCES = ("The {r} of {e} is {v}.", "{e} has the {r} {v}.")
DISTANCES = (0, 1, 2)
NAME = r"[A-Z][a-z]+(?: [A-Z][a-z]+)*"
VALUE = rf"(?:{NAME}|[a-z]+|[0-9]+)"


def sentence(fact: Fact, distance: int = 0, form: int = 0) -> str:
    """A fact as one sentence at a paraphrase distance; ValueError for an unknown one.

    `form` (0 or 1) says which of the `NOUN_SENTENCES` is used at distances 0 and 1.
    """
    if distance not in DISTANCES:
        raise ValueError(f"paraphrase distance is {distance!r}; allowed: 0, 1, 2")
    entity, noun, value = fact
    relation = BY_NOUN[noun]
    if distance == 2:
        return relation.verb.format(e=entity, v=value)
    return NOUN_SENTENCES[form].format(r=relation.synonym if distance else noun, e=entity, v=value)


_ROW = re.compile(
    rf"^(?P<y>[0-9]{{4}}) (?P<e>{NAME}) (?P<m>{'|'.join(METRICS)}) (?P<v>[0-9]+)$", re.MULTILINE
)
_START = r"(?:(?<=^)|(?<=[\s\]]))"
_NOUN_PATTERNS = (
    re.compile(rf"{_START}The (?P<r>[a-z]+) of (?P<e>{NAME}) is (?P<v>{VALUE})\."),
    re.compile(rf"{_START}(?P<e>{NAME}) has the (?P<r>[a-z]+) (?P<v>{VALUE})\."),
)


@cache
def _verb_patterns() -> list[tuple[str, str, re.Pattern[str]]]:
    """For each relation its noun, its verb sentence's longest fixed words and pattern."""
    patterns = []
    for relation in RELATIONS:
        words = max(re.split(r"\{[ev]\}", relation.verb), key=len)
        text = re.escape(relation.verb)
        text = text.replace(r"\{e\}", f"(?P<e>{NAME})").replace(r"\{v\}", f"(?P<v>{VALUE})")
        patterns.append((relation.noun, words, re.compile(_START + text)))
    return patterns


def facts_in(text: str) -> list[Fact]:
    """Every fact that a text states in the world's sentences or rows, in its order; true or not.

    A row's figure is the fact (company, "metric year", figure).
    """
    matches = [(f"{row['m']} {row['y']}", row) for row in _ROW.finditer(text)]
    for match in itertools.chain(*(pattern.finditer(text) for pattern in _NOUN_PATTERNS)):
        noun = SYNONYMS.get(match["r"], match["r"])
        matches += [(noun, match)] if noun in BY_NOUN else []
    for noun, words, pattern in _verb_patterns():
        if words in text:
            matches += [(noun, match) for match in pattern.finditer(text)]
    facts = sorted((match.start(), (match["e"], noun, match["v"])) for noun, match in matches)
    return [fact for _, fact in facts]


def wordings(documents: Iterable[str]) -> dict[Fact, str]:
    """Each fact that documents state, with the sentence that states it."""
    sentences = [part.strip() for text in documents for part in re.findall(r"[^.]+\.", text)]
    return {fact: part for part in sentences for fact in facts_in(part)}


def facts_of(world: World, entity: str) -> list[Fact]:
    """All facts about one entity."""
    kind = world.kind(entity)
    return [(entity, r.noun, str(world.value(entity, r.noun))) for r in relations_of(kind or "")]


def say(facts: Iterable[Fact], rng: random.Random, distances: Sequence[int] = DISTANCES) -> str:
    """Facts as running text, each in a way drawn from the allowed distances."""
    return " ".join(sentence(fact, rng.choice(distances), rng.randrange(2)) for fact in facts)


def article(world: World, entity: str, rng: random.Random) -> dict[str, Any]:
    """An encyclopedic document about one entity: all of its facts in random order and wording."""
    facts = facts_of(world, entity)
    rng.shuffle(facts)
    return _document(f"article:{entity}", entity, say(facts, rng), "article", world)


def table_row(year: int | str, company: str, metric: str, figure: int | str) -> str:
    """One figure of a company's accounts as a line of its table."""
    return f"{year} {company} {metric} {figure}"


def table(world: World, company: str) -> str:
    """A company's accounts as a table, a line a figure."""
    cells = [(year, metric) for year in world.years(company) for metric in METRICS]
    rows = [table_row(y, company, m, str(world.cell(company, m, y))) for y, m in cells]
    return "\n".join(["year company item figure", *rows])


def report(world: World, company: str) -> dict[str, Any]:
    """A company's financial report: `REPORT_YEARS` years of figures in a table."""
    text = f"Accounts of {company} over {REPORT_YEARS} years.\n{table(world, company)}"
    return _document(f"report:{company}", f"Accounts of {company}", text, "report", world)


def sections(world: World, town: str, rng: random.Random) -> dict[str, Any]:
    """All facts about a town, its mayor, the mayor's employer and the town's twin, in sections."""
    mayor = str(world.value(town, "mayor"))
    subjects = {"The town": town, "The mayor": mayor}
    subjects["Trade"] = str(world.value(mayor, "employer"))
    subjects["The twin"] = str(world.value(town, "twin"))
    parts = [f"{heading}\n{say(facts_of(world, name), rng)}" for heading, name in subjects.items()]
    title = f"A guide to {town}"
    return _document(f"sections:{town}", title, "\n\n".join(parts), "sections", world)


def _document(name: str, title: str, text: str, kind: str, world: World) -> dict[str, Any]:
    metadata = {"kind": kind, "world": world.seed}
    return {"id": name.replace(" ", "-"), "title": title, "text": text, "metadata": metadata}


BLOCK = 15
"""Documents about each two entities of every type: 12 articles, 2 reports, 1 in sections."""


def world_of(count: int, seed: int = 0, pool: Pool = "train") -> World:
    """The world that `documents` with the same arguments are about (another count is another one).

    It has two entities of every type for each `BLOCK` documents, so that every entity has an
    article (where `count` is a multiple of `BLOCK`; else the last two of some types have none).
    """
    return World(seed, size=2 * max(1, math.ceil(count / BLOCK)), pool=pool)


def documents(count: int, seed: int = 0, pool: Pool = "train") -> Iterator[dict[str, Any]]:
    """Streams `count` documents about `world_of(count, seed, pool)`.

    An article on every entity, a report on every company, sections on every second town.
    """
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
