"""Facts as simple English, and simple English back as facts.

A fact is a triple (entity, noun, value). It can be said with the relation's own noun (paraphrase distance 0), with a
synonym (1) or with a verb phrase (2); `facts_in` reads every one of these sentences, so an answer that explains
something can be checked fact by fact.
"""

import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from spnb.data.world import BY_NOUN, METRICS, RELATIONS, REPORT_YEARS, World, relations_of

Fact = tuple[str, str, str]
NOUN_SENTENCES = ("The {r} of {e} is {v}.", "{e} has {v} as its {r}.")
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


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    found = []
    for relation in RELATIONS:
        forms = [form.replace("{r}", word) for form in NOUN_SENTENCES for word in (relation.noun, relation.synonym)]
        for form in [*forms, relation.verb]:
            text = re.escape(form).replace(r"\{e\}", f"(?P<e>{NAME})").replace(r"\{v\}", f"(?P<v>{VALUE})")
            found.append((relation.noun, re.compile(rf"(?:(?<=^)|(?<=[\s\]])){text}")))
    return found


def facts_in(text: str) -> list[Fact]:
    """Every fact that a text states in one of the world's sentences, in the order of the text; true or not."""
    found = []
    for noun, pattern in _patterns():
        for match in pattern.finditer(text):
            entity = match["e"].removeprefix("The ")
            found.append((match.start(), (entity, noun, match["v"])))
    return [fact for _, fact in sorted(found)]


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


def table(world: World, company: str) -> str:
    """A company's accounts, a row a year with one figure for each metric."""
    rows = [f"year | {' | '.join(METRICS)}"]
    for year in world.years(company):
        rows.append(f"{year} | {' | '.join(str(world.cell(company, metric, year)) for metric in METRICS)}")
    return "\n".join(rows)


def report(world: World, company: str) -> dict[str, Any]:
    """A company's financial report: `REPORT_YEARS` years of figures in a table."""
    text = f"Accounts of {company} over {REPORT_YEARS} years.\n{table(world, company)}"
    return _document(f"report:{company}", f"Accounts of {company}", text, "report", world)


def sections(world: World, town: str, rng: random.Random) -> dict[str, Any]:
    """A longer document in sections: a town, its mayor, the mayor's employer, and the town's twin, each with all facts."""
    mayor = str(world.value(town, "mayor"))
    subjects = {
        "The town": town,
        "The mayor": mayor,
        "Trade": str(world.value(mayor, "employer")),
        "The twin": str(world.value(town, "twin")),
    }
    parts = [f"{heading}\n{say(facts_of(world, subject), rng)}" for heading, subject in subjects.items()]
    return _document(f"sections:{town}", f"A guide to {town}", "\n\n".join(parts), "sections", world)


def _document(name: str, title: str, text: str, kind: str, world: World) -> dict[str, Any]:
    identifier = name.replace(" ", "-")
    return {"id": identifier, "title": title, "text": text, "metadata": {"kind": kind, "world": world.seed}}
