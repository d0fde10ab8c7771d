"""Questions about the world in a form that can be computed, their text, and exact answers.

`ask` puts a `Query` into words, `parse` reads it back out of a question that uses one of the frames
(a generated one or a policy's), `answer` computes the gold answer with the facts that it rests on.
So every judge, grader and reward of a method can be compared with the truth.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from spnb.core import prompts
from spnb.core.grading import same
from spnb.lab.texts import NAME, VALUE, Fact, facts_in
from spnb.lab.world import BY_NOUN, METRICS, SYNONYMS, WORDING, World

Op = Literal["path", "holder", "cell", "sum", "difference", "highest", "margin"]
MAX_HOPS = 4
TRAIN_FRAMES: tuple[str, ...] = tuple(WORDING["frames"]["train"])
HELDOUT_FRAMES: tuple[str, ...] = tuple(WORDING["frames"]["heldout"])
FRAMES = TRAIN_FRAMES + HELDOUT_FRAMES
FIGURES: dict[Op, str] = {
    "cell": "the {metric} of {entity} in {}",
    "sum": "the {metric} of {entity} in {} plus {}",
    "difference": "the rise in {metric} of {entity} from {} to {}",
    "highest": "the year with the highest {metric} of {entity}",
    "margin": "the margin of {entity} in {}",
}
"""Noun phrases of questions about figures, years to be filled in."""


@dataclass(frozen=True)
class Query:
    """What a question asks.

    - path: the value at the end of `nouns`, followed from `entity` (1 to 4 hops);
    - holder: the entity whose relation `nouns[0]` has the value `entity`;
    - others: figures of the company `entity`, `metric` in `years`: one, two added, the later minus
      the earlier, the year with the highest figure, revenue minus costs.
    """

    op: Op
    entity: str
    nouns: tuple[str, ...] = ()
    metric: str = ""
    years: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A gold answer, and the facts it rests on (for figures: (company, "metric year", value))."""

    text: str
    facts: tuple[Fact, ...]


def phrase(query: Query, nouns: dict[str, str] | None = None) -> str:
    """What is asked for, "the home of the mayor of Arnford"; `nouns` may replace nouns."""
    words = [(nouns or {}).get(noun, noun) for noun in query.nouns]
    if query.op == "path":
        return "".join(f"the {noun} of " for noun in reversed(words)) + query.entity
    if query.op == "holder":
        return f"the {BY_NOUN[query.nouns[0]].subject} whose {words[0]} is {query.entity}"
    return FIGURES[query.op].format(*query.years, metric=query.metric, entity=query.entity)


def ask(query: Query, frame: str = FRAMES[0], nouns: dict[str, str] | None = None) -> str:
    """A query as a question in one of `FRAMES`."""
    return frame.format(x=phrase(query, nouns))


_FRAME_PATTERNS = [re.compile(re.escape(frame).replace(r"\{x\}", "(?P<x>.+)")) for frame in FRAMES]
_HOP = re.compile(r"the ([a-z]+) of ")
_PATH = re.compile(rf"(?P<way>(?:the [a-z]+ of ){{1,{MAX_HOPS}}})(?P<entity>{NAME})")
_YEAR = "[0-9]{4}"
_GROUPS = {"metric": f"(?P<metric>{'|'.join(METRICS)})", "entity": f"(?P<entity>{NAME})"}
_FIGURES = {op: re.compile(text.format(_YEAR, _YEAR, **_GROUPS)) for op, text in FIGURES.items()}
_HOLDER = re.compile(rf"the ([a-z]+) whose ([a-z]+) is ({VALUE})")


def parse(question: str) -> Query | None:
    """The query of a question; None where it is not in any frame or names no relation there is."""
    text = " ".join(question.split())
    matches = (pattern.fullmatch(text) for pattern in _FRAME_PATTERNS)
    return next((_parse_phrase(match["x"]) for match in matches if match), None)


def _parse_phrase(text: str) -> Query | None:
    for op, pattern in _FIGURES.items():
        if match := pattern.fullmatch(text):
            years = tuple(map(int, re.findall(_YEAR, text)))
            metric = match.groupdict().get("metric", "")
            return Query(op, match["entity"], metric=metric, years=years)
    if match := _HOLDER.fullmatch(text):
        noun = SYNONYMS.get(match[2], match[2])
        fits = noun in BY_NOUN and BY_NOUN[noun].subject == match[1]
        return Query("holder", match[3], (noun,)) if fits else None
    path = _PATH.fullmatch(text)
    nouns = [SYNONYMS.get(noun, noun) for noun in _HOP.findall(path["way"])] if path else []
    if path is None or any(noun not in BY_NOUN for noun in nouns):
        return None
    return Query("path", path["entity"], tuple(reversed(nouns)))


def answer(world: World, query: Query) -> Answer | None:
    """The gold answer in a world; None where there is none or, for a holder, more than one."""
    entity = query.entity
    if query.op == "path":
        return _follow(query, world.value)
    if query.op == "holder":
        (noun,) = query.nouns
        return answer_from(query, [(e, noun, entity) for e in world.holders(noun, entity)])
    cells = [(m, y, world.cell(entity, m, y)) for m in METRICS for y in world.years(entity)]
    return _work_out(query, [(entity, f"{m} {y}", str(n)) for m, y, n in cells if n is not None])


def answer_from(query: Query, stated: Sequence[Fact]) -> Answer | None:
    """The answer that follows from stated facts alone; None where none or several do."""
    if query.op == "holder":
        facts = {fact for fact in stated if fact[1:] == (*query.nouns, query.entity)}
        return Answer(next(iter(facts))[0], tuple(facts)) if len(facts) == 1 else None
    if query.op != "path":
        return _work_out(query, stated)

    def value(entity: str, noun: str) -> str | None:
        values = {fact[2] for fact in stated if fact[:2] == (entity, noun)}
        return values.pop() if len(values) == 1 else None

    return _follow(query, value)


def _follow(query: Query, value: Callable[[str, str], str | None]) -> Answer | None:
    """The end of a path; `value(entity, noun)` is None where there is none."""
    entity, facts = query.entity, []
    for noun in query.nouns:
        end = value(entity, noun)
        if end is None:
            return None
        facts.append((entity, noun, end))
        entity = end
    return Answer(entity, tuple(facts))


def _work_out(query: Query, stated: Sequence[Fact]) -> Answer | None:
    """The answer about a company's figures; the highest is that of all years stated.

    None where a figure is missing or stated in two ways, two years are highest, or there is nothing
    to work out: one year only, or the same one twice.
    """
    cells: dict[tuple[str, int], int] = {}
    for entity, label, value in stated:
        metric, _, year = label.partition(" ")
        if entity != query.entity or metric not in METRICS:
            continue
        if cells.setdefault((metric, int(year)), int(value)) != int(value):
            return None
    years = tuple(sorted({year for _, year in cells})) if query.op == "highest" else query.years
    metrics = ("revenue", "costs") if query.op == "margin" else (query.metric,)
    wanted = [(metric, year) for metric in metrics for year in years]
    alone = query.op in ("sum", "difference", "highest") and len(set(years)) < 2
    if alone or not wanted or any(cell not in cells for cell in wanted):
        return None
    values = [cells[cell] for cell in wanted]
    if query.op == "highest":
        best = [year for year, value in zip(years, values, strict=True) if value == max(values)]
        if len(best) > 1:
            return None
        result = best[0]
    elif query.op in ("margin", "difference"):
        result = (values[0] - values[1]) * (1 if query.op == "margin" else -1)
    else:
        result = sum(values)  # of a single one for a cell
    facts = ((query.entity, f"{m} {year}", str(cells[m, year])) for m, year in wanted)
    return Answer(str(result), tuple(facts))


def support(gold: Answer, documents: Sequence[Collection[Fact]]) -> tuple[int, ...]:
    """The indices of the documents (each as its `facts_in`) that state a fact of an answer."""
    return tuple(index for index, stated in enumerate(documents) if set(gold.facts) & set(stated))


def questions_of(documents: Sequence[str], hops: int) -> list[tuple[Query, Answer]]:
    """Every path query of `hops` hops that the documents' facts answer, no entity twice on it."""
    facts = list(dict.fromkeys(fact for text in documents for fact in facts_in(text)))
    chains: list[tuple[Fact, ...]] = [(fact,) for fact in facts]
    for _ in range(hops - 1):
        chains = [
            (*chain, fact)
            for chain in chains
            for fact in facts
            if fact[0] == chain[-1][2] and fact[2] not in {past[0] for past in chain}
        ]
    questions = []
    for chain in chains:
        query = Query("path", chain[0][0], tuple(fact[1] for fact in chain))
        gold = answer_from(query, facts)
        if gold and gold.facts == chain:
            questions.append((query, gold))
    return questions


def read_question(text: str, facts: Sequence[Fact]) -> tuple[str, Query, str] | None:
    """Question, query and gold answer of a proposal that is valid, None for any other.

    Valid: `<question>` parses, the stated facts have one answer to it, `<answer>` is it, and the
    way to it comes back to no entity. Odd spacing makes no question new.
    """
    question = " ".join((prompts.field(text, "question") or "").split())
    proposed = prompts.field(text, "answer")
    query = parse(question)
    gold = answer_from(query, facts) if query else None
    if query is None or gold is None or proposed is None or not same(gold.text, proposed):
        return None
    way = [gold.facts[0][0], *(value for _, _, value in gold.facts)]
    comes_back = query.op == "path" and len(set(way)) < len(way)
    return None if comes_back else (question, query, gold.text)
