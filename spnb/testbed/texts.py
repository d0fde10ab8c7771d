"""Facts as simple English, and simple English back as facts.

A fact is a triple (entity, noun, value). It can be said with the relation's own noun (paraphrase
distance 0), with a synonym (1) or with a verb phrase (2); `facts_in` reads every one of these
sentences, so an answer that explains something can be checked fact by fact.
"""

import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from spnb.testbed.world import (
    BY_NOUN,
    METRICS,
    RELATIONS,
    REPORT_YEARS,
    SYNONYMS,
    World,
    relations_of,
)

Fact = tuple[str, str, str]
NOUN_SENTENCES = ("The {r} of {e} is {v}.", "{e} has the {r} {v}.")
DISTANCES = (0, 1, 2)
NAME = r"[A-Z][a-z]+(?: [A-Z][a-z]+)*"
VALUE = rf"(?:{NAME}|[a-z]+|\d+)"


def sentence(fact: Fact, distance: int = 0, form: int = 0) -> str:
    """A fact as one sentence.

    Args:
        distance: 0 the relation's noun, 1 its synonym, 2 a verb phrase.
        form: 0 or 1, which of the two noun sentences (distances 0 and 1).

    Raises:
        ValueError: unknown distance.
    """
    if distance not in DISTANCES:
        raise ValueError(f"paraphrase distance is {distance!r}; allowed: 0, 1, 2")
    entity, noun, value = fact
    relation = BY_NOUN[noun]
    if distance == 2:
        return relation.verb.format(e=entity, v=value)
    return NOUN_SENTENCES[form].format(r=relation.synonym if distance else noun, e=entity, v=value)


_ROW = re.compile(
    rf"^(?P<y>\d{{4}}) (?P<e>{NAME}) (?P<m>{'|'.join(METRICS)}) (?P<v>\d+)$", re.MULTILINE
)
_START = r"(?:(?<=^)|(?<=[\s\]]))"
_NOUN_PATTERNS = (
    re.compile(rf"{_START}The (?P<r>[a-z]+) of (?P<e>{NAME}) is (?P<v>{VALUE})\."),
    re.compile(rf"{_START}(?P<e>{NAME}) has the (?P<r>[a-z]+) (?P<v>{VALUE})\."),
)


@cache
def _verb_patterns() -> list[tuple[str, str, re.Pattern[str]]]:
    """For each relation its noun, the fixed words of its verb sentence, and the pattern of that
    sentence."""
    found = []
    for relation in RELATIONS:
        words = max(re.split(r"\{[ev]\}", relation.verb), key=len)
        text = (
            re.escape(relation.verb)
            .replace(r"\{e\}", f"(?P<e>{NAME})")
            .replace(r"\{v\}", f"(?P<v>{VALUE})")
        )
        found.append((relation.noun, words, re.compile(_START + text)))
    return found


def facts_in(text: str) -> list[Fact]:
    """Every fact that a text states in one of the world's sentences or table rows, in the text's
    order; true or not.

    A row's figure is the fact (company, "metric year", figure).
    """
    found = [
        (row.start(), (row["e"], f"{row['m']} {row['y']}", row["v"])) for row in _ROW.finditer(text)
    ]
    for pattern in _NOUN_PATTERNS:
        for match in pattern.finditer(text):
            noun = SYNONYMS.get(match["r"], match["r"])
            if noun in BY_NOUN:
                found.append((match.start(), (match["e"], noun, match["v"])))
    for noun, words, pattern in _verb_patterns():
        if words in text:
            found += [
                (match.start(), (match["e"], noun, match["v"])) for match in pattern.finditer(text)
            ]
    return [fact for _, fact in sorted(found)]


def wordings(documents: Iterable[str]) -> dict[Fact, str]:
    """Each fact that documents state, with the sentence that states it."""
    found = (said for text in documents for said in re.findall(r"[^.]+\.", text))
    return {fact: said.strip() for said in found for fact in facts_in(said.strip())}


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
    years, header = world.years(company), "year company item figure"
    return "\n".join(
        [
            header,
            *(
                table_row(y, company, m, str(world.cell(company, m, y)))
                for y in years
                for m in METRICS
            ),
        ]
    )


def report(world: World, company: str) -> dict[str, Any]:
    """A company's financial report: `REPORT_YEARS` years of figures in a table."""
    text = f"Accounts of {company} over {REPORT_YEARS} years.\n{table(world, company)}"
    return _document(f"report:{company}", f"Accounts of {company}", text, "report", world)


def sections(world: World, town: str, rng: random.Random) -> dict[str, Any]:
    """A longer document in sections: a town, its mayor, the mayor's employer and the town's twin,
    with all facts."""
    mayor = str(world.value(town, "mayor"))
    subjects = {
        "The town": town,
        "The mayor": mayor,
        "Trade": str(world.value(mayor, "employer")),
        "The twin": str(world.value(town, "twin")),
    }
    parts = [
        f"{heading}\n{say(facts_of(world, subject), rng)}" for heading, subject in subjects.items()
    ]
    return _document(
        f"sections:{town}", f"A guide to {town}", "\n\n".join(parts), "sections", world
    )


def _document(name: str, title: str, text: str, kind: str, world: World) -> dict[str, Any]:
    identifier = name.replace(" ", "-")
    return {
        "id": identifier,
        "title": title,
        "text": text,
        "metadata": {"kind": kind, "world": world.seed},
    }
