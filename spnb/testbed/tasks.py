"""Tasks drawn from the world with difficulty as a dial: a question, the documents to read, the gold
answer.

The dial is a `Level`: hops, documents, how many distractors state the same relation, facts a
document, paraphrase distance, and for reports the operation and how many companies' tables lie
beside the right one. Open-ended tasks (summarise, compare, explain, plan) come with the facts that
a good answer contains.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from spnb.testbed import oracle
from spnb.testbed.oracle import Answer, Op, Query
from spnb.testbed.texts import Fact, facts_in, facts_of, say, sentence, table
from spnb.testbed.world import BY_NOUN, METRICS, SUFFIXES, WORDS, World, names, relations_of

NUMERIC_OPS: tuple[Op, ...] = ("cell", "sum", "difference", "highest", "margin")
OpenKind = Literal["summarise", "compare", "explain", "plan"]
LETTERS = "ABCD"
ATTEMPTS = 100


@dataclass(frozen=True)
class Level:
    """How hard a task is.

    Args:
        hops: 1 to 4 relations to follow.
        documents: documents shown, those that support the answer included.
        same_relation: share of the other documents that belong to rival chains (see `distractors`).
        facts: facts a document states.
        distances: paraphrase distances that the documents use (0 the question's own noun, 1 a
            synonym, 2 a verb).

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
            (
                "distances",
                "some of 0, 1, 2",
                bool(self.distances) and set(self.distances) <= {0, 1, 2},
            ),
        ):
            if not ok:
                raise ValueError(f"level.{key} is {getattr(self, key)!r}; allowed: {allowed}")


@dataclass(frozen=True)
class Task:
    """One question with what belongs to it. `support` are the indices of the documents that the
    answer needs."""

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


def hops_label(hops: int) -> str:
    """ "1 hop", "2 hops"; "no question" for 0."""
    return f"{hops} hop{'s' * (hops > 1)}" if hops else "no question"


def draw_path(world: World, rng: random.Random, hops: int) -> Query:
    """A random path of `hops` relations along which no entity comes twice."""
    while True:
        entity = start = world.draw(rng, rng.choice(list(SUFFIXES)))
        nouns, seen = [], {start}
        for hop in range(hops):
            left = [
                r
                for r in relations_of(world.kind(entity) or "")
                if hop == hops - 1 or r.value in SUFFIXES
            ]
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
    rng: random.Random,
    level: Level,
    pool: str = "train",
    frames: Sequence[str] = oracle.TRAIN_FRAMES,
) -> Task:
    """A question over `level.hops` relations of a fresh world, its documents in random order."""
    world = World(rng.getrandbits(48), pool=pool)  # type: ignore[arg-type]
    query = draw_path(world, rng, level.hops)
    return task_of(world, query, rng, level, frames)


def task_of(
    world: World, query: Query, rng: random.Random, level: Level, frames: Sequence[str]
) -> Task:
    """The task of a path query: one document for each entity on the path, the others as
    distractors."""
    gold = oracle.answer(world, query)
    if gold is None:
        raise ValueError(f"query {query} has no answer in this world")
    stated = {entity: noun for entity, noun, _ in gold.facts}
    stated |= distractors(world, rng, query, level, list(stated))
    texts = [_document(world, entity, noun, rng, level) for entity, noun in stated.items()]
    order = rng.sample(range(len(texts)), len(texts))
    return Task(
        question=oracle.ask(query, rng.choice(frames)),
        query=query,
        gold=gold,
        documents=tuple(texts[index] for index in order),
        support=tuple(order.index(index) for index in range(len(gold.facts))),
        level=level,
        world=world,
    )


def distractors(
    world: World, rng: random.Random, query: Query, level: Level, subjects: Sequence[str]
) -> dict[str, str | None]:
    """Entities for the other documents, each with the noun that its document must state.

    A `same_relation` share belongs to rival chains: other starts followed along the question's own
    nouns. So neither the relation asked for nor a link between documents shows which value is
    meant. Where there is no room for a whole chain its last facts are taken. The others are of any
    type and state anything (None).
    """
    found: dict[str, str | None] = {}
    others = level.documents - len(subjects)
    rivals = sum(rng.random() < level.same_relation for _ in range(others))
    while len(found) < rivals:
        found |= rival_chain(world, rng, query, [*subjects, *found])[len(found) - rivals :]
    while len(found) < others:
        found[world.draw(rng, rng.choice(list(SUFFIXES)), but=[*subjects, *found])] = None
    return found


def rival_chain(
    world: World, rng: random.Random, query: Query, taken: Sequence[str]
) -> list[tuple[str, str]]:
    """Another start followed along a query's nouns: each entity that is met, none of them `taken`,
    and its noun.

    Where a world is so crowded that `ATTEMPTS` starts lead to taken entities, the longest end of a
    chain without one, or any entity that has the last noun.
    """
    longest: list[tuple[str, str]] = []
    for _ in range(ATTEMPTS):
        entity, chain = world.draw(rng, BY_NOUN[query.nouns[0]].subject, but=taken), []
        for noun in query.nouns:
            met = {name for name, _ in chain}
            chain = [] if entity in taken or entity in met else [*chain, (entity, noun)]
            entity = str(world.value(entity, noun))
        longest = max(longest, chain, key=len)
        if len(longest) == len(query.nouns):
            return longest
    return longest or [
        (world.draw(rng, BY_NOUN[query.nouns[-1]].subject, but=taken), query.nouns[-1])
    ]


def _document(world: World, entity: str, noun: str | None, rng: random.Random, level: Level) -> str:
    """A short document with `level.facts` facts about an entity, `noun`'s among them."""
    facts = facts_of(world, entity)
    needed = [fact for fact in facts if fact[1] == noun]
    others = rng.sample([fact for fact in facts if fact[1] != noun], level.facts - len(needed))
    chosen = needed + others
    rng.shuffle(chosen)
    return say(chosen, rng, level.distances)


def draw_figure(
    world: World, company: str, op: Op, rng: random.Random
) -> tuple[Query, Answer] | None:
    """A question about figures of a company; None where it has no single answer or that is not
    above 0."""
    years = tuple(sorted(rng.sample(list(world.years(company)), 2)))
    wanted = {"sum": years, "difference": years, "highest": ()}.get(op, years[:1])
    query = Query(op, company, metric="" if op == "margin" else rng.choice(METRICS), years=wanted)
    gold = oracle.answer(world, query)
    return None if gold is None or int(gold.text) <= 0 else (query, gold)


def report_task(
    rng: random.Random,
    op: Op,
    companies: int = 1,
    pool: str = "train",
    frames: Sequence[str] = oracle.TRAIN_FRAMES,
) -> Task:
    """A question about figures in a company's accounts, among the accounts of `companies`
    companies."""
    found = None
    while found is None:
        world = World(rng.getrandbits(48), pool=pool)  # type: ignore[arg-type]
        company = world.draw(rng, "company")
        found = draw_figure(world, company, op, rng)
    query, gold = found
    shown = [company]
    while len(shown) < companies:
        shown.append(world.draw(rng, "company", but=shown))
    rng.shuffle(shown)
    texts = tuple(f"Accounts of {name}.\n{table(world, name)}" for name in shown)
    question = oracle.ask(query, rng.choice(frames))
    return Task(
        question, query, gold, texts, (shown.index(company),), Level(documents=companies), world
    )


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
    """Values of the answer's type that the documents state: figures for a figure, the company's
    years for a year.

    None for a figure that is worked out: stated ones are too small or too large to mislead.
    """
    query, stated = task.query, task.stated
    if query.op == "highest":
        return [str(year) for year in task.world.years(query.entity)]
    if query.op in NUMERIC_OPS:
        return [value for _, _, value in stated] if query.op == "cell" else []
    kind = value_type(query)
    return [value for _, noun, value in stated if BY_NOUN[noun].value == kind]


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
        """Facts asked for that an answer states, divided by the larger of facts asked for and facts
        stated: 0 to 1.

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
    - plan: the chain of facts that leads to a value, named by its path.
    """
    hops = max(2, level.hops) if kind in ("explain", "plan") else 1
    task = path_task(
        rng,
        replace(level, hops=hops, documents=max(level.documents, hops + (kind == "compare"))),
        pool,
    )
    documents, entity = list(task.documents), task.query.entity
    facts, text = task.gold.facts, ""
    if kind == "summarise":
        facts = tuple(fact for fact in task.stated if fact[0] == entity)
        text = f"Summarise what the documents say about {entity}."
    elif kind == "compare":
        other, noun = (
            task.world.draw(rng, task.world.kind(entity) or "", but=[entity]),
            task.query.nouns[0],
        )
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
    """Every path query of exactly `hops` hops that the documents' stated facts answer, no entity
    twice on its way."""
    stated = list(dict.fromkeys(fact for text in documents for fact in facts_in(text)))
    chains: list[tuple[Fact, ...]] = [(fact,) for fact in stated]
    for _ in range(hops - 1):
        chains = [
            (*chain, fact)
            for chain in chains
            for fact in stated
            if fact[0] == chain[-1][2] and fact[2] not in {past[0] for past in chain}
        ]
    found = []
    for chain in chains:
        query = Query("path", chain[0][0], tuple(fact[1] for fact in chain))
        gold = oracle.answer_from(query, stated)
        if gold and gold.facts == chain:
            found.append((query, gold))
    return found
