"""Tasks drawn from the world with difficulty as a dial: a question, the documents to read, the gold answer.

The dial is a `Level`: hops, documents, how many distractors state the same relation, facts a document, paraphrase
distance, and for reports the operation and how many companies' tables lie beside the right one. Open-ended tasks
(summarise, compare, explain, plan) come with the facts that a good answer contains.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spnb.data import oracle
from spnb.data.oracle import Answer, Op, Query
from spnb.data.texts import Fact, facts_in, facts_of, say, sentence, table
from spnb.data.world import BY_NOUN, METRICS, SUFFIXES, WORDS, World, names, relations_of

NUMERIC_OPS: tuple[Op, ...] = ("cell", "sum", "difference", "highest", "margin")
OpenKind = Literal["summarise", "compare", "explain", "plan"]
LETTERS = "ABCD"


@dataclass(frozen=True)
class Level:
    """How hard a task is.

    Args:
        hops: 1 to 4 relations to follow.
        documents: documents shown, those that support the answer included.
        same_relation: share of the other documents that state a relation of the question, about another entity.
        facts: facts a document states.
        distances: paraphrase distances that the documents use (0 the question's own noun, 1 a synonym, 2 a verb).

    Raises:
        ValueError: out of range, or too few documents for the hops.
    """

    hops: int = 1
    documents: int = 4
    same_relation: float = 0.5
    facts: int = 2
    distances: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for key, allowed, ok in (
            ("hops", f"1 to {oracle.MAX_HOPS}", 1 <= self.hops <= oracle.MAX_HOPS),
            ("documents", f"hops ({self.hops}) or more", self.documents >= self.hops),
            ("same_relation", "0 to 1", 0 <= self.same_relation <= 1),
            ("facts", "1 to 4", 1 <= self.facts <= 4),
            ("distances", "some of 0, 1, 2", bool(self.distances) and set(self.distances) <= {0, 1, 2}),
        ):
            if not ok:
                raise ValueError(f"level.{key} is {getattr(self, key)!r}; allowed: {allowed}")


@dataclass(frozen=True)
class Task:
    """One question with what belongs to it. `support` are the indices of the documents that the answer needs."""

    question: str
    query: Query
    gold: Answer
    documents: tuple[str, ...]
    support: tuple[int, ...]
    level: Level
    world: World = field(repr=False)

    @property
    def stated(self) -> list[Fact]:
        """All facts that the documents state."""
        return [fact for text in self.documents for fact in facts_in(text)]


def draw_path(world: World, rng: random.Random, hops: int) -> Query:
    """A random path of `hops` relations along which no entity comes twice."""
    while True:
        entity = start = world.draw(rng, rng.choice(list(SUFFIXES)))
        nouns, seen = [], {start}
        for hop in range(hops):
            left = [r for r in relations_of(world.kind(entity) or "") if hop == hops - 1 or r.value in SUFFIXES]
            if not left:
                break
            nouns.append(rng.choice(left).noun)
            entity = str(world.value(entity, nouns[-1]))
            if entity in seen:
                break
            seen.add(entity)
        else:
            return Query("path", start, tuple(nouns))


def path_task(
    rng: random.Random, level: Level, pool: str = "train", frames: Sequence[str] = oracle.TRAIN_FRAMES
) -> Task:
    """A question over `level.hops` relations of a fresh world, its documents in random order."""
    world = World(rng.getrandbits(48), pool=pool)  # type: ignore[arg-type]
    query = draw_path(world, rng, level.hops)
    return task_of(world, query, rng, level, frames)


def task_of(world: World, query: Query, rng: random.Random, level: Level, frames: Sequence[str]) -> Task:
    """The task of a path query: one document for each entity on the path, the others as distractors."""
    gold = oracle.answer(world, query)
    if gold is None:
        raise ValueError(f"query {query} has no answer in this world")
    subjects = [fact[0] for fact in gold.facts]
    nouns = dict(zip(subjects, query.nouns, strict=True))
    every = [*subjects, *distractors(world, rng, query, level, subjects)]
    texts = [_document(world, subject, nouns.get(subject), rng, level) for subject in every]
    order = rng.sample(range(len(every)), len(every))
    return Task(
        question=oracle.ask(query, rng.choice(frames)),
        query=query,
        gold=gold,
        documents=tuple(texts[index] for index in order),
        support=tuple(order.index(index) for index in range(len(subjects))),
        level=level,
        world=world,
    )


def distractors(world: World, rng: random.Random, query: Query, level: Level, subjects: Sequence[str]) -> list[str]:
    """Entities for the other documents; a `same_relation` share has the type of some entity on the path."""
    taken = list(subjects)
    for _ in range(level.documents - len(subjects)):
        same = rng.random() < level.same_relation
        kind = BY_NOUN[rng.choice(query.nouns)].subject if same else rng.choice(list(SUFFIXES))
        taken.append(world.draw(rng, kind, but=taken))
    return taken[len(subjects) :]


def _document(world: World, entity: str, noun: str | None, rng: random.Random, level: Level) -> str:
    """A short document with `level.facts` facts about an entity, `noun`'s among them."""
    facts = facts_of(world, entity)
    needed = [fact for fact in facts if fact[1] == noun]
    others = rng.sample([fact for fact in facts if fact[1] != noun], level.facts - len(needed))
    chosen = needed + others
    rng.shuffle(chosen)
    return say(chosen, rng, level.distances)


def report_task(
    rng: random.Random, op: Op, companies: int = 1, pool: str = "train", frames: Sequence[str] = oracle.TRAIN_FRAMES
) -> Task:
    """A question about figures in a company's accounts, among the accounts of `companies` companies."""
    while True:
        world = World(rng.getrandbits(48), pool=pool)  # type: ignore[arg-type]
        company = world.draw(rng, "company")
        years = tuple(sorted(rng.sample(list(world.years(company)), 2)))
        metric = "" if op == "margin" else rng.choice(METRICS)
        wanted = {"sum": years, "difference": years, "highest": ()}.get(op, years[:1])
        gold = oracle.answer(world, query := Query(op, company, metric=metric, years=wanted))
        if gold is not None and (op == "highest" or int(gold.text) > 0):
            break
    shown = [company]
    while len(shown) < companies:
        shown.append(world.draw(rng, "company", but=shown))
    rng.shuffle(shown)
    texts = tuple(f"Accounts of {name}.\n{table(world, name)}" for name in shown)
    question = oracle.ask(query, rng.choice(frames))
    return Task(question, query, gold, texts, (shown.index(company),), Level(documents=companies), world)


def options(task: Task, rng: random.Random, count: int = 4) -> tuple[list[str], str]:
    """`count` options of the answer's type, the gold answer among them, and the gold letter.

    Values of the same type that the documents state come first, as those mislead.
    """
    gold = task.gold.text
    wrong = [value for value in dict.fromkeys(_rivals(task)) if value != gold]
    rng.shuffle(wrong)
    pool = [value for value in _values_like(task) if value != gold and value not in wrong]
    chosen = [*wrong, *rng.sample(pool, min(count, len(pool)))][: count - 1] + [gold]
    rng.shuffle(chosen)
    return chosen, LETTERS[chosen.index(gold)]


def value_type(query: Query) -> str:
    """The type of a query's answer: an entity type, a kind of word, number or year."""
    if query.op == "holder":
        return BY_NOUN[query.nouns[0]].subject
    if query.op == "path":
        return BY_NOUN[query.nouns[-1]].value
    return "year" if query.op == "highest" else "number"


def _rivals(task: Task) -> list[str]:
    """Values of the answer's type that the documents state, path questions only."""
    kind = value_type(task.query)
    return [value for _, noun, value in task.stated if BY_NOUN[noun].value == kind]


def _values_like(task: Task) -> list[str]:
    kind = value_type(task.query)
    if kind in SUFFIXES:
        return list(names(kind, task.world.pool))
    if kind in WORDS:
        return list(WORDS[kind])
    gold = int(task.gold.text)
    return [str(gold + shift) for shift in range(-9, 10) if shift and gold + shift > 0]


@dataclass(frozen=True)
class OpenTask:
    """An open-ended task, its documents, and the facts that a good answer contains."""

    kind: OpenKind
    text: str
    documents: tuple[str, ...]
    facts: tuple[Fact, ...]

    def rubric(self) -> list[str]:
        """One criterion a fact, as a plain sentence that the answer should state."""
        return [sentence(fact) for fact in self.facts]

    def score(self, answer: str) -> float:
        """Facts asked for that an answer states, divided by the larger of facts asked for and facts stated: 0 to 1.

        A fact contradicted by another value does not count, and copying all documents does not pay.
        """
        values: dict[tuple[str, str], set[str]] = {}
        for entity, noun, value in facts_in(answer):
            values.setdefault((entity, noun), set()).add(value)
        right = sum(values.get(fact[:2]) == {fact[2]} for fact in self.facts)
        return right / max(len(self.facts), len(values))


def open_task(rng: random.Random, kind: OpenKind, level: Level, pool: str = "train") -> OpenTask:
    """An open-ended task over documents of a fresh world.

    - summarise: all facts stated about one entity;
    - compare: one relation for two entities;
    - explain: the chain of facts between an entity and a far value;
    - plan: what a visitor needs to know: a book's or an event's town and who is to be met there.
    """
    hops = max(2, level.hops) if kind in ("explain", "plan") else 1
    task = path_task(rng, replace(level, hops=hops, documents=max(level.documents, hops + (kind == "compare"))), pool)
    documents, entity = list(task.documents), task.query.entity
    facts, text = task.gold.facts, ""
    if kind == "summarise":
        facts = tuple(fact for fact in task.stated if fact[0] == entity)
        text = f"Summarise what the documents say about {entity}."
    elif kind == "compare":
        other, noun = task.world.draw(rng, task.world.kind(entity) or "", but=[entity]), task.query.nouns[0]
        second = (other, noun, str(task.world.value(other, noun)))
        place = next(index for index in range(len(documents)) if index not in task.support)
        documents[place] = say([second], rng, level.distances)
        facts = (*task.gold.facts, second)
        text = f"Compare {entity} and {other} by their {noun}."
    elif kind == "explain":
        text = f"Explain how {entity} is connected with {task.gold.text}."
    else:
        text = f"Plan how to find {oracle.phrase(task.query)}, one step at a time."
    return OpenTask(kind, text, tuple(documents), facts)


def questions_of(documents: Sequence[str], hops: int) -> list[tuple[Query, Answer]]:
    """Every path query of exactly `hops` hops that the documents' stated facts answer, by brute force."""
    stated = list(dict.fromkeys(fact for text in documents for fact in facts_in(text)))
    chains: list[tuple[Fact, ...]] = [(fact,) for fact in stated]
    for _ in range(hops - 1):
        chains = [(*chain, fact) for chain in chains for fact in stated if fact[0] == chain[-1][2]]
    found = []
    for chain in chains:
        query = Query("path", chain[0][0], tuple(fact[1] for fact in chain))
        if oracle.answer_from(query, stated) == chain[-1][2]:
            found.append((query, Answer(chain[-1][2], chain)))
    return found


def about(task: Task | OpenTask) -> dict[str, Any]:
    """A task as a plain record (for `datasets` and JSON)."""
    if isinstance(task, OpenTask):
        return {"kind": task.kind, "question": task.text, "documents": list(task.documents), "rubric": task.rubric()}
    record = {"question": task.question, "answer": task.gold.text, "documents": list(task.documents)}
    return record | {"op": task.query.op, "hops": len(task.query.nouns), "support": list(task.support)}
