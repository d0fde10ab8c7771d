"""Tasks drawn from the world: a question, the documents to read, the gold answer.

Difficulty is a dial: a `Level`, for reports the operation and the number of companies. A task's
`info` has `documents`, and where its answer can be computed `query`, `answer` (gold, with the facts
it rests on), `support` (which documents state these) and `world`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.grading import register
from spnb.core.types import Messages, Task, derive_seed
from spnb.lab import oracle
from spnb.lab.oracle import HELDOUT_FRAMES, TRAIN_FRAMES, Answer, Op, Query
from spnb.lab.texts import Fact, facts_in, facts_of, say, sentence, table
from spnb.lab.world import (
    BY_NOUN,
    METRICS,
    SUFFIXES,
    WORDING,
    WORDS,
    Pool,
    World,
    names,
    relations_of,
)

NUMERIC_OPS: tuple[Op, ...] = ("cell", "sum", "difference", "highest", "margin")
OpenKind = Literal["summarise", "compare", "explain", "plan"]
FRAMES: dict[Pool, tuple[str, ...]] = {"train": TRAIN_FRAMES, "heldout": HELDOUT_FRAMES}
"""Question frames by pool: training and evaluation share neither names nor wordings."""
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
        distances: paraphrase distances that the documents use (see `texts`).

    Raises:
        ValueError: out of range, or too few documents for the hops.
    """

    hops: int = 1
    documents: int = 4
    same_relation: float = 0.5
    facts: int = 2
    distances: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        distances = set(self.distances)
        for key, allowed, ok in (
            ("hops", f"1 to {oracle.MAX_HOPS}", 1 <= self.hops <= oracle.MAX_HOPS),
            ("documents", f"hops ({self.hops}) or more", self.documents >= self.hops),
            ("same_relation", "0 to 1", 0 <= self.same_relation <= 1),
            ("facts", "1 to 4", 1 <= self.facts <= 4),
            ("distances", "some of 0, 1, 2", set() < distances <= {0, 1, 2}),
        ):
            if not ok:
                raise ValueError(f"level.{key} is {getattr(self, key)!r}; allowed: {allowed}")


def hops_label(hops: int) -> str:
    """ "1 hop", "2 hops"; "no question" for 0."""
    return f"{hops} hop{'s' * (hops > 1)}" if hops else "no question"


def stated(task: Task) -> list[Fact]:
    """All facts that a task's documents state."""
    return [fact for text in task.info["documents"] for fact in facts_in(text)]


def _task(world: World, query: Query, question: str, messages: Messages, **info: Any) -> Task:
    answer = oracle.answer(world, query)
    if answer is None:
        raise ValueError(f"query {query} has no answer in this world")
    difficulty = hops_label(len(query.nouns)) if query.op == "path" else query.op
    info = {"query": query, "answer": answer, "world": world, "documents": (), **info}
    return Task(messages, question, (answer.text,), "exact", difficulty, info)


def draw_path(world: World, rng: random.Random, hops: int) -> Query:
    """A random path of `hops` relations along which no entity comes twice."""
    while True:
        way = [world.draw(rng, rng.choice(list(SUFFIXES)))]
        nouns: list[str] = []
        for left in range(hops, 0, -1):
            relations = relations_of(world.kind(way[-1]) or "")
            nouns.append(
                rng.choice([r for r in relations if left == 1 or r.value in SUFFIXES]).noun
            )
            way.append(str(world.value(way[-1], nouns[-1])))
            if way[-1] in way[:-1]:
                break
        else:
            return Query("path", way[0], tuple(nouns))


def path_task(
    rng: random.Random,
    level: Level,
    pool: Pool = "train",
    frames: Sequence[str] = TRAIN_FRAMES,
    style: prompts.Style = "careful",
) -> Task:
    """A question over `level.hops` relations of a fresh world, its documents in random order."""
    world = World(rng.getrandbits(48), pool=pool)
    query = draw_path(world, rng, level.hops)
    return task_of(world, query, rng, level, frames, style)


def task_of(
    world: World,
    query: Query,
    rng: random.Random,
    level: Level,
    frames: Sequence[str],
    style: prompts.Style = "careful",
) -> Task:
    """The task of a path query: a document for each entity on the path, others as distractors."""
    answer = oracle.answer(world, query)
    path = {entity: noun for entity, noun, _ in answer.facts} if answer else {}
    subjects = path | distractors(world, rng, query, level, list(path))
    texts = [_document(world, entity, noun, rng, level) for entity, noun in subjects.items()]
    order = rng.sample(range(len(texts)), len(texts))
    documents = tuple(texts[index] for index in order)
    support = tuple(order.index(index) for index in range(len(path)))
    question = oracle.ask(query, rng.choice(frames))
    messages = prompts.answer(question, documents, style)
    return _task(world, query, question, messages, documents=documents, support=support)


def distractors(
    world: World, rng: random.Random, query: Query, level: Level, subjects: Sequence[str]
) -> dict[str, str | None]:
    """Entities for the other documents, each with the noun that its document must state.

    A `same_relation` share belongs to rival chains: other starts followed along the question's own
    nouns (where there is no room, a chain's last facts). So neither the relation asked for nor a
    link between documents shows which value is meant. The others state anything (None).
    """
    chosen: dict[str, str | None] = {}
    others = level.documents - len(subjects)
    rivals = sum(rng.random() < level.same_relation for _ in range(others))
    while len(chosen) < rivals:
        chosen |= rival_chain(world, rng, query, [*subjects, *chosen])[len(chosen) - rivals :]
    while len(chosen) < others:
        chosen[world.draw(rng, rng.choice(list(SUFFIXES)), but=[*subjects, *chosen])] = None
    return chosen


def rival_chain(
    world: World, rng: random.Random, query: Query, taken: Sequence[str]
) -> list[tuple[str, str]]:
    """Another start followed along a query's nouns: entities, none `taken`, each with its noun.

    Where `ATTEMPTS` starts in a crowded world lead to taken entities: the longest end of a chain
    without one, or any entity that has the last noun.
    """
    longest: list[tuple[str, str]] = []
    for _ in range(ATTEMPTS):
        entity = world.draw(rng, BY_NOUN[query.nouns[0]].subject, but=taken)
        chain: list[tuple[str, str]] = []
        for noun in query.nouns:
            met = entity in taken or any(entity == name for name, _ in chain)
            chain = [] if met else [*chain, (entity, noun)]
            entity = str(world.value(entity, noun))
        longest = max(longest, chain, key=len)
        if len(longest) == len(query.nouns):
            return longest
    noun = query.nouns[-1]
    return longest or [(world.draw(rng, BY_NOUN[noun].subject, but=taken), noun)]


def _document(world: World, entity: str, noun: str | None, rng: random.Random, level: Level) -> str:
    """A short document with `level.facts` facts about an entity, `noun`'s among them."""
    facts = facts_of(world, entity)
    chosen = [fact for fact in facts if fact[1] == noun]
    chosen += rng.sample([fact for fact in facts if fact not in chosen], level.facts - len(chosen))
    rng.shuffle(chosen)
    return say(chosen, rng, level.distances)


def draw_figure(
    world: World, company: str, op: Op, rng: random.Random
) -> tuple[Query, Answer] | None:
    """A question about figures of a company; None where it has no answer above 0."""
    years = tuple(sorted(rng.sample(list(world.years(company)), 2)))
    years = {"sum": years, "difference": years, "highest": ()}.get(op, years[:1])
    metric = "" if op == "margin" else rng.choice(METRICS)
    query = Query(op, company, metric=metric, years=years)
    gold = oracle.answer(world, query)
    return None if gold is None or int(gold.text) <= 0 else (query, gold)


def report_task(
    rng: random.Random,
    op: Op,
    companies: int = 1,
    pool: Pool = "train",
    frames: Sequence[str] = TRAIN_FRAMES,
    style: prompts.Style = "careful",
) -> Task:
    """A question about figures in a company's accounts, among those of `companies` companies."""
    drawn = None
    while drawn is None:
        world = World(rng.getrandbits(48), pool=pool)
        company = world.draw(rng, "company")
        drawn = draw_figure(world, company, op, rng)
    shown = [company]
    while len(shown) < companies:
        shown.append(world.draw(rng, "company", but=shown))
    rng.shuffle(shown)
    documents = tuple(f"Accounts of {name}.\n{table(world, name)}" for name in shown)
    question = oracle.ask(drawn[0], rng.choice(frames))
    messages = prompts.answer(question, documents, style)
    how = {"documents": documents, "support": (shown.index(company),)}
    return _task(world, drawn[0], question, messages, **how)


def search_task(
    world: World,
    query: Query,
    rng: random.Random,
    frames: Sequence[str],
    style: prompts.SearchStyle = "careful",
) -> Task:
    """A query as a question without documents, to be answered by searching a library."""
    question = oracle.ask(query, rng.choice(frames))
    return _task(world, query, question, prompts.search(question, style))


def library_world(pool: Pool) -> World:
    """The world of a pool's library: training and evaluation share no fact and no name."""
    return World(derive_seed("library", pool), len(names("person", pool)), pool)


# --- options


def choice_task(task: Task, rng: random.Random) -> Task:
    """A task as a multiple-choice question; `info` also has its `options`."""
    listed, letter = options(task, rng)
    messages = prompts.choice(task.question, listed, task.info["documents"])
    info = {**task.info, "options": listed}
    return replace(task, messages=messages, gold=(letter,), kind="letter", info=info)


def options(task: Task, rng: random.Random) -> tuple[list[str], str]:
    """Four options of the answer's type, the gold answer among them, and the gold letter.

    Values of the same type that the documents state come first, as those mislead.
    """
    gold = task.info["answer"].text
    wrong = [value for value in dict.fromkeys(_rivals(task)) if value != gold]
    rng.shuffle(wrong)
    pool = [value for value in _values_like(task) if value != gold and value not in wrong]
    chosen = [*wrong, *rng.sample(pool, min(4, len(pool)))][:3] + [gold]
    rng.shuffle(chosen)
    return chosen, LETTERS[chosen.index(gold)]


def value_type(query: Query) -> str:
    """The type of a query's answer: an entity type, a kind of word, number or year."""
    if query.nouns:
        relation = BY_NOUN[query.nouns[-1]]
        return relation.subject if query.op == "holder" else relation.value
    return "year" if query.op == "highest" else "number"


def _rivals(task: Task) -> list[str]:
    """Values of the answer's type that the documents state, for a year the company's.

    None for a figure that is worked out: stated ones are too small or too large to mislead.
    """
    query = task.info["query"]
    if query.op == "highest":
        return [str(year) for year in task.info["world"].years(query.entity)]
    if query.op in NUMERIC_OPS and query.op != "cell":
        return []
    kind = value_type(query)
    return [v for _, noun, v in stated(task) if query.op == "cell" or BY_NOUN[noun].value == kind]


def _values_like(task: Task) -> Sequence[str]:
    kind = value_type(task.info["query"])
    if kind in SUFFIXES or kind in WORDS:
        return WORDS.get(kind) or names(kind, task.info["world"].pool)
    number = int(task.info["answer"].text)
    return [str(number + shift) for shift in range(-9, 10) if shift and number + shift > 0]


# --- open-ended tasks


def open_task(
    rng: random.Random, kind: OpenKind, level: Level, pool: Pool = "train", wording: Pool = "train"
) -> Task:
    """An open-ended task over documents of a fresh world, in training's or in held-out words.

    Gold, a rubric: a plain sentence for each fact that a good answer states. `info` has these
    `facts`, and the kind as `open`. Summarise: all facts stated about one entity; compare: one
    relation for two; explain: the chain of facts from an entity to a far value; plan: the chain
    that leads to a value named by its path.
    """
    hops = max(2, level.hops) if kind in ("explain", "plan") else 1
    shown = max(level.documents, hops + (kind == "compare"))
    task = path_task(rng, replace(level, hops=hops, documents=shown), pool)
    query, answer, world = (task.info[key] for key in ("query", "answer", "world"))
    documents, facts = list(task.info["documents"]), answer.facts
    entity, noun, other = query.entity, query.nouns[0], answer.text
    if kind == "summarise":
        facts = tuple(fact for fact in stated(task) if fact[0] == entity)
    elif kind == "compare":
        other = world.draw(rng, world.kind(entity) or "", but=[entity])
        facts = (*facts, (other, noun, str(world.value(other, noun))))
        place = min(set(range(len(documents))) - set(task.info["support"]))
        documents[place] = say(facts[-1:], rng, level.distances)
    template = WORDING["open"][wording][kind]
    text = template.format(entity=entity, other=other, noun=noun, phrase=oracle.phrase(query))
    info = {"documents": tuple(documents), "facts": facts, "open": kind}
    gold = tuple(map(sentence, facts))
    return Task(prompts.task(text, documents), text, gold, "facts", info=info)


def _grade_facts(prediction: str, golds: Sequence[str]) -> float:
    """Gold facts that a text states, divided by the larger of gold facts and facts stated.

    A fact contradicted by another value does not count, and copying all documents does not pay.
    """
    values: dict[tuple[str, str], set[str]] = {}
    for entity, noun, value in facts_in(prediction):
        values.setdefault((entity, noun), set()).add(value)
    facts = [fact for gold in golds for fact in facts_in(gold)]
    right = sum(values.get(fact[:2]) == {fact[2]} for fact in facts)
    return right / max(len(facts), len(values))


register("facts", _grade_facts)
