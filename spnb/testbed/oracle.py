"""Questions about the world in a form that can be computed, their text, and exact answers.

A `Query` is what a question asks for, whatever its words. `ask` puts it into words, `parse` reads
it back out of any text that uses one of the frames (a generated question or one that a policy
wrote), `answer` computes the gold answer with the facts that it rests on. So every judge, grader
and reward of a method can be compared with the truth.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spnb.testbed.texts import NAME, VALUE, Fact
from spnb.testbed.world import BY_NOUN, METRICS, SYNONYMS, World

Op = Literal["path", "holder", "cell", "sum", "difference", "highest", "margin"]
MAX_HOPS = 4
TRAIN_FRAMES = (
    "What is {x}?",
    "Which is {x}?",
    "Name {x}.",
    "Give {x}.",
    "Find {x}.",
    "State {x}.",
    "Tell us {x}.",
    "Do find {x}.",
    "Can you name {x}?",
    "Let us know {x}.",
    "Say to me {x}.",
    "Please tell {x}.",
)
HELDOUT_FRAMES = ("Tell me {x}.", "Do you know {x}?")
FRAMES = TRAIN_FRAMES + HELDOUT_FRAMES


@dataclass(frozen=True)
class Query:
    """What a question asks.

    - path: the value at the end of `nouns`, followed from `entity` (1 to 4 hops, the first noun
      first);
    - holder: the entity whose relation `nouns[0]` has the value `entity`;
    - cell, sum, difference, highest, margin: figures of the company `entity`: `metric` in `years`
      (one, two added, the later minus the earlier, the year with the highest figure, revenue minus
      costs).
    """

    op: Op
    entity: str
    nouns: tuple[str, ...] = ()
    metric: str = ""
    years: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A gold answer as text, the facts it rests on (for figures: (company, "metric year", value)),
    and its steps."""

    text: str
    facts: tuple[Fact, ...]


def phrase(query: Query, nouns: dict[str, str] | None = None) -> str:
    """The thing asked for as a noun phrase: "the home of the mayor of Arnford"; `nouns` may replace
    nouns."""
    nouns = nouns or {}
    if query.op == "path":
        return (
            "".join(f"the {nouns.get(noun, noun)} of " for noun in reversed(query.nouns))
            + query.entity
        )
    if query.op == "holder":
        noun = query.nouns[0]
        return f"the {BY_NOUN[noun].subject} whose {nouns.get(noun, noun)} is {query.entity}"
    years = [str(year) for year in query.years]
    return {
        "cell": f"the {query.metric} of {query.entity} in {years[0] if years else ''}",
        "sum": f"the {query.metric} of {query.entity} in {' plus '.join(years)}",
        "difference": f"the rise in {query.metric} of {query.entity} from {' to '.join(years)}",
        "highest": f"the year with the highest {query.metric} of {query.entity}",
        "margin": f"the margin of {query.entity} in {years[0] if years else ''}",
    }[query.op]


def ask(query: Query, frame: str = FRAMES[0], nouns: dict[str, str] | None = None) -> str:
    """A query as a question in one of `FRAMES`."""
    return frame.format(x=phrase(query, nouns))


_FRAME_PATTERNS = [re.compile(re.escape(frame).replace(r"\{x\}", "(?P<x>.+)")) for frame in FRAMES]
_HOP = re.compile(r"the ([a-z]+) of ")
_YEAR = r"(\d{4})"
_METRIC = rf"({'|'.join(METRICS)})"
_FIGURES: dict[Op, re.Pattern[str]] = {
    "cell": re.compile(rf"the {_METRIC} of ({NAME}) in {_YEAR}"),
    "sum": re.compile(rf"the {_METRIC} of ({NAME}) in {_YEAR} plus {_YEAR}"),
    "difference": re.compile(rf"the rise in {_METRIC} of ({NAME}) from {_YEAR} to {_YEAR}"),
    "highest": re.compile(rf"the year with the highest {_METRIC} of ({NAME})"),
}
_MARGIN = re.compile(rf"the margin of ({NAME}) in {_YEAR}")
_HOLDER = re.compile(rf"the ([a-z]+) whose ([a-z]+) is ({VALUE})")


def parse(question: str) -> Query | None:
    """The query of a question's text, None where it is not in any frame or names no relation of the
    world."""
    text = " ".join(question.split())
    match = next((found for pattern in _FRAME_PATTERNS if (found := pattern.fullmatch(text))), None)
    return None if match is None else _parse_phrase(match["x"])


def _parse_phrase(text: str) -> Query | None:
    if found := _MARGIN.fullmatch(text):
        return Query("margin", found[1], years=(int(found[2]),))
    for op, pattern in _FIGURES.items():
        if found := pattern.fullmatch(text):
            return Query(
                op, found[2], metric=found[1], years=tuple(int(year) for year in found.groups()[2:])
            )
    if found := _HOLDER.fullmatch(text):
        noun = SYNONYMS.get(found[2], found[2])
        fits = noun in BY_NOUN and BY_NOUN[noun].subject == found[1]
        return Query("holder", found[3], (noun,)) if fits else None
    nouns = []
    while found := _HOP.match(text):
        nouns.append(SYNONYMS.get(found[1], found[1]))
        text = text[found.end() :]
    if not nouns or not re.fullmatch(NAME, text) or any(noun not in BY_NOUN for noun in nouns):
        return None
    return Query("path", text, tuple(reversed(nouns))) if len(nouns) <= MAX_HOPS else None


def answer(world: World, query: Query) -> Answer | None:
    """The gold answer in a world; None where there is none or, for a holder, more than one."""
    if query.op == "path":
        return _follow(world, query)
    if query.op == "holder":
        holders = world.holders(query.nouns[0], query.entity)
        facts = tuple((holder, query.nouns[0], query.entity) for holder in holders)
        return Answer(holders[0], facts) if len(holders) == 1 else None
    return _figure(world, query)


def _follow(world: World, query: Query) -> Answer | None:
    entity, facts = query.entity, []
    for noun in query.nouns:
        value = world.value(entity, noun)
        if value is None:
            return None
        facts.append((entity, noun, value))
        entity = value
    return Answer(entity, tuple(facts))


def _figure(world: World, query: Query) -> Answer | None:
    company = query.entity
    cells = {(m, y): world.cell(company, m, y) for m in METRICS for y in world.years(company)}
    return _worked_out(query, {cell: value for cell, value in cells.items() if value is not None})


def _worked_out(query: Query, cells: Mapping[tuple[str, int], int]) -> Answer | None:
    """The answer to a query about figures from a company's cells, None where one is missing or two
    years are highest.

    The highest is that of all years in the cells.
    """
    years = tuple(sorted({year for _, year in cells})) if query.op == "highest" else query.years
    metrics = ("revenue", "costs") if query.op == "margin" else (query.metric,)
    wanted = [(metric, year) for metric in metrics for year in years]
    if not wanted or any(cell not in cells for cell in wanted):
        return None
    values = [cells[cell] for cell in wanted]
    facts = tuple(
        (query.entity, f"{metric} {year}", str(cells[metric, year])) for metric, year in wanted
    )
    if query.op == "highest":
        return (
            Answer(str(years[values.index(max(values))]), facts)
            if values.count(max(values)) == 1
            else None
        )
    if query.op == "sum":
        return Answer(str(sum(values)), facts)
    if query.op == "cell":
        return Answer(str(values[0]), facts)
    minus = values[0] - values[1] if query.op == "margin" else values[1] - values[0]
    return Answer(str(minus), facts)


def answerable(world: World, query: Query, stated: Collection[Fact]) -> bool:
    """Whether the stated facts (`facts_in` documents) suffice for the unique answer.

    A holder is answerable where exactly one stated fact has the relation and value: a reader cannot
    look beyond the documents.
    """
    if query.op == "holder":
        return len({fact for fact in stated if fact[1:] == (query.nouns[0], query.entity)}) == 1
    found = answer(world, query)
    return found is not None and set(found.facts) <= set(stated)


def answer_from(query: Query, stated: Sequence[Fact]) -> Answer | None:
    """The answer that follows from stated facts alone, with those it rests on; None where none or
    several do."""
    if query.op == "holder":
        found = {fact for fact in stated if fact[1:] == (query.nouns[0], query.entity)}
        return Answer(next(iter(found))[0], tuple(found)) if len(found) == 1 else None
    if query.op != "path":
        return _figure_from(query, stated)
    entity, facts = query.entity, []
    for noun in query.nouns:
        values = {value for e, n, value in stated if (e, n) == (entity, noun)}
        if len(values) != 1:
            return None
        facts.append((entity, noun, values.pop()))
        entity = facts[-1][2]
    return Answer(entity, tuple(facts))


def _figure_from(query: Query, stated: Sequence[Fact]) -> Answer | None:
    cells: dict[tuple[str, int], int] = {}
    for entity, label, value in stated:
        metric, _, year = label.partition(" ")
        if entity != query.entity or metric not in METRICS:
            continue
        if cells.setdefault((metric, int(year)), int(value)) != int(value):
            return None
    return _worked_out(query, cells)


def support(gold: Answer, documents: Sequence[Collection[Fact]]) -> tuple[int, ...]:
    """Which documents (each as its `facts_in`) state a fact that an answer rests on, as indices."""
    return tuple(index for index, stated in enumerate(documents) if set(gold.facts) & set(stated))


ARTICLES = re.compile(
    r"^(?:the year|the town|the river|the company|the number|mr|ms|dr|the|a|an|in|about)\s+",
    re.IGNORECASE,
)


def normal(text: str) -> str:
    """An answer without case, final punctuation, articles, titles and type words; "47.0" as
    "47"."""
    text = " ".join(text.split()).strip(" .,;:!\"'").casefold()
    while (shorter := ARTICLES.sub("", text)) != text:
        text = shorter
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def same(gold: str, given: str) -> bool:
    """Whether two answers mean the same in the world: equal after `normal`."""
    return normal(gold) == normal(given) != ""


PREFIXES_OF: dict[str, tuple[str, ...]] = {
    "person": ("Mr ", "Ms ", "Dr "),
    "town": ("the town ", "in "),
    "company": ("the company ",),
    "river": ("the ", "the river "),
    "job": ("a ", "the "),
    "number": ("the number ", "about "),
    "year": ("the year ", "in "),
}
"""Words before an answer of a type (`tasks.value_type`) that leave its meaning as it is."""


def variants(text: str, kind: str) -> tuple[str, ...]:
    """Other ways to write an answer of a type (`tasks.value_type`), the text itself first; `same`
    holds for all.

    variants("47", "number") == ("47", "47.", "the number 47", "about 47", "47.0")
    """
    written = [
        text,
        f"{text}.",
        *(f"{before}{text}" for before in PREFIXES_OF.get(kind, ("the ",))),
    ]
    return (*written, f"{text}.0") if kind == "number" else tuple(written)
