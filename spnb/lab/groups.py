"""Reports on groups of people, by search: SCOPE's documents, tasks without one right answer.

A library holds a passage on everybody's stops, in random order, each with its ordinal. A document
names a group and holds the passages on two of its people. A task asks for the first `level` stops
of three to five people; its type says how a section, which tells the stops of one, is written. A
point of its rubric is a section in the right order, as a whole. A reporter takes the stops in any
order at first, so that a point of level k is right by chance 1/k!.

    task = draw_task("plan", 3, random.Random(0))
    oracle(task, "<answer> Belana third Arnford Belana second ...</answer>")["points"]

The oracle takes off what is wrong or told twice; a judge that looks for one point at a time does
not.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from statistics import fmean
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Document, Judgement, Proposal
from spnb.core.grading import read_answer, register
from spnb.core.method import Suite
from spnb.core.params import require
from spnb.core.search import Retriever, make_tool
from spnb.core.types import Chat, Task, derive_seed
from spnb.corpus.passages import Reading, Readings, draw_searches
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.by_search import BySearch, search_suite
from spnb.lab import ladder
from spnb.lab.ladder import NAME, NUMBERS, ORDINALS, WORDING, Source, check_level
from spnb.lab.world import Pool, names

WORDS: dict[str, Any] = WORDING["groups"]
TYPES: dict[str, dict[str, Any]] = WORDS["types"]
SIZE: int = WORDS["size"]
"""People of a group, and the most that a task may be about."""
READ = 2
"""People of a group whose passages a document holds."""
FEWEST = 3
"""People of a task; fewer points are no rubric."""
HIGHEST = 8
"""Stops of everybody."""
POOLS: tuple[Pool, ...] = ("train", "heldout")
MARK = ";"
"""Stands between two sections."""
SHORT = {1: "single-hop", 2: "multi-hop"}
"""Suites of short questions, by the number of people whose stop they ask for."""
Group = tuple[Source, ...]


@cache
def groups(pool: Pool) -> tuple[Group, ...]:
    """The groups of a pool with everybody's stops: the same ones always."""
    rng = random.Random(f"groups {pool}")
    people = rng.sample(names("person", pool), len(names("person", pool)))
    towns = names("town", pool)
    sources = [Source("report", who, tuple(rng.sample(towns, HIGHEST))) for who in people]
    whole = len(sources) // SIZE * SIZE
    return tuple(tuple(sources[at : at + SIZE]) for at in range(0, whole, SIZE))


@cache
def everybody(pool: Pool) -> dict[str, Source]:
    """The people of a pool by name."""
    return {source.subject: source for group in groups(pool) for source in group}


def passage(source: Source, rng: random.Random) -> str:
    """Everybody's stops in random order, each with its ordinal."""
    places = rng.sample(range(len(source.steps)), len(source.steps))
    return " ".join(f"{ladder.fact(source, place)}." for place in places)


@cache
def passages(pool: Pool) -> dict[str, str]:
    """The library of a pool: a passage on each of its people."""
    rng = random.Random(f"passages {pool}")
    return {who: passage(source, rng) for who, source in everybody(pool).items()}


def passage_of(who: str) -> str:
    """The passage on somebody of either pool."""
    return next(passages(pool)[who] for pool in POOLS if who in passages(pool))


@cache
def library(pool: Pool) -> Retriever:
    """BM25 over the passages of a pool."""
    told = passages(pool)
    return make_retriever("bm25", [{"id": who, "title": who, "text": told[who]} for who in told])


def roster(people: Sequence[str]) -> str:
    """Who went together."""
    return WORDS["roster"].format(e=people[0], s=", ".join(people[1:]))


def query(who: str) -> str:
    """What to search for to find somebody's passage."""
    return WORDS["query"].format(e=who)


# --- reports


def section(kind: str, source: Source, places: Sequence[int]) -> str:
    """The stops of one person in an order (places from 0), as a type of task has them written."""
    facts = [ladder.fact(source, place) for place in places]
    return " ".join([TYPES[kind].get("head", ""), *facts]).strip()


def in_order(kind: str, level: int) -> list[int]:
    """The places of the first `level` stops as a type of task wants them told."""
    places = list(range(level))
    return places[::-1] if TYPES[kind].get("back") else places


def points(kind: str, people: Sequence[Source], level: int) -> tuple[str, ...]:
    """The oracle's rubric: a section for each, once, in the right order."""
    return tuple(section(kind, each, in_order(kind, level)) for each in dict.fromkeys(people))


def report(sections: Sequence[str]) -> str:
    """Sections as one text."""
    return f" {MARK} ".join(sections)


def sections(text: str) -> list[str]:
    """The sections of a text."""
    parts = (" ".join(part.split()) for part in text.split(MARK))
    return [part for part in parts if part]


def is_consistent(kind: str, people: Sequence[Source], level: int, text: str) -> bool:
    """Whether a section tells the first `level` stops of one of these people, in any order."""
    who = next((source for source in people if source.subject in text.split()), None)
    places = [ORDINALS.index(word) for word in text.split() if word in ORDINALS]
    if who is None or sorted(places) != list(range(level)):
        return False
    return text == section(kind, who, places)


def oracle(task: Task, text: str) -> dict[str, float]:
    """What a report is worth, each a share of the task's points, `consistent` of its sections.

    `score`: points that are told, less the sections that tell none or one again, at least 0.
    `points`: points that are told anywhere. `repeated`: sections on somebody told of before.
    `consistent`: sections that take each stop once, in any order.
    """
    told = sections(read_answer(text) or "")
    info = task.info
    fine = [is_consistent(info["kind"], info["people"], info["level"], part) for part in told]
    subjects = [who for part in told for who in part.split()[:2] if who in info["names"]]
    count = len(task.gold)
    return {
        "score": scored(told, task.gold),
        "points": len({*told} & {*task.gold}) / count,
        "repeated": (len(subjects) - len({*subjects})) / count,
        "consistent": fmean(fine) if fine else 0.0,
    }


def scored(told: Sequence[str], golds: Sequence[str]) -> float:
    """Points among sections, less the other sections, at least 0: a share of the points."""
    right = len({*told} & {*golds})
    return max(0.0, 2 * right - len(told)) / len(golds)


register("report", lambda prediction, golds: scored(sections(prediction), golds))


# --- tasks


def question(kind: str, people: Sequence[str], level: int, frame: str) -> str:
    """A task on these people in a wording."""
    return frame.format(s=", ".join(people), k=NUMBERS[level - 1])


PATTERNS = {
    kind: [
        ladder.pattern_of(frame.replace("{s}", "{e}"), f"{NAME}(?:, {NAME})*|{WORDS['unnamed']}")
        for frames in one["questions"].values()
        for frame in frames
    ]
    for kind, one in TYPES.items()
}


def parse(text: str) -> tuple[str, tuple[str, ...], int] | None:
    """Type, people and level of a task; None where it is in no wording."""
    text = " ".join(text.split())
    for kind, patterns in PATTERNS.items():
        for pattern in patterns:
            if match := pattern.fullmatch(text):
                people = tuple(match["e"].split(", "))
                named = people if people != (WORDS["unnamed"],) else ()
                return kind, named, NUMBERS.index(match["k"]) + 1
    return None


def make_task(kind: str, text: str, people: Sequence[Source], level: int) -> Task:
    """A task, its points as gold answers."""
    info = {"kind": kind, "people": tuple(people), "level": level}
    info["names"] = frozenset(source.subject for source in people)
    info["documents"] = tuple(passage_of(source.subject) for source in people)
    gold = points(kind, people, level)
    return Task(prompts.report(text), text, gold, "report", f"level {level}", info)


def draw_task(kind: str, level: int, rng: random.Random, pool: Pool = "train") -> Task:
    """The oracle's task of a type and a level, on some of a group.

    Raises ValueError for a type or a level that there is not.
    """
    require("type of task", kind, TYPES, ValueError)
    check_level(level, HIGHEST)
    people = rng.sample(rng.choice(groups(pool)), rng.randint(FEWEST, SIZE))
    frame = rng.choice(TYPES[kind]["questions"][pool])
    text = question(kind, [source.subject for source in people], level, frame)
    return make_task(kind, text, people, level)


# --- as a source


class Groups(Readings):
    """Documents on groups of people, who are their truth (a `DocumentSource`); the oracle knows
    every rubric.

    `params`: kinds, style, max_searches, highest; for the suites eval_items and what a search
    needs. A task is right if it is on three to five different people of the document's group.
    """

    def __init__(self, params: Any, tokenizer: Any):
        ladder.check_names(tokenizer)
        self.params = params
        self.tokenizer = tokenizer
        self.kinds: Sequence[str] = params.kinds

    def draw(self, rng: random.Random, place: int = 0, pool: Pool = "train") -> Reading:
        """A group's document; types of tasks take turns with the place."""
        group = tuple(rng.sample(rng.choice(groups(pool)), SIZE))
        people = [source.subject for source in group]
        told = [passages(pool)[who] for who in people[:READ]]
        document = Document(" ".join([roster(people), *told]), truth=group)
        kind = self.kinds[place % len(self.kinds)]
        return Reading(kind, (document,), people[0], searches=draw_searches(rng), pool=pool)

    def task(self, proposal: Proposal, context: Reading, documents: bool = True) -> Task:
        """The task, to be done by search; the oracle's rubric is in it where it can be read."""
        text = proposal.question
        messages = prompts.report(text, self.params.style)
        kind, people, level = self._read(proposal, context)
        if not people:
            return Task(messages, text, kind="report")
        return replace(make_task(kind, text, people, level), messages=messages)

    def _read(self, proposal: Proposal, context: Reading) -> tuple[str, tuple[Source, ...], int]:
        """Type, people and level of a task; no people where one is not in the library."""
        kind, named, level = parse(proposal.question) or ("", (), 0)
        known = everybody(context.pool)
        people = tuple(known[who] for who in named if who in known)
        everyone = len(people) == len(named) and level <= HIGHEST
        return kind, people if everyone else (), level

    def judge(self, proposal: Proposal, context: Reading) -> Judgement:
        """What a task is about, and whether it is of the type that was asked for."""
        kind, people, level = self._read(proposal, context)
        ours = {*people} <= {*context.documents[0].truth}
        several = FEWEST <= len(people) == len({*people})
        right = ours and several and kind == context.kind
        return Judgement(level, bool(people), right, bool(people), bool(people) and ours)

    def rubric(self, proposal: Proposal, context: Reading) -> tuple[str, ...] | None:
        """The oracle's points of a task; None for one that it cannot read."""
        kind, people, level = self._read(proposal, context)
        return points(kind, people, level) if people else None

    def oracle(self, task: Task, text: str) -> dict[str, float]:
        """See the function `oracle`; nothing for a task that it cannot read."""
        return oracle(task, text) if task.gold else {}

    def states(self, answer: str, point: str) -> bool:
        """Whether an answer tells a point anywhere."""
        return point in sections(answer)

    def retriever(self, pool: Pool = "train") -> Retriever:
        return library(pool)

    def exercise(self, kind: str, level: int, rng: random.Random, pool: Pool = "train") -> Task:
        """The oracle's task of a type and a level."""
        task = draw_task(kind, level, rng, pool)
        return replace(task, messages=prompts.report(task.question, self.params.style))

    def heldout(self, count: int) -> list[Task]:
        """`count` tasks of every type and level on held-out people, in held-out wordings."""
        rng = random.Random(self.params.eval_seed("reports"))
        levels = range(1, self.params.highest + 1)
        return [
            self.exercise(kind, level, rng, "heldout")
            for kind in TYPES
            for level in levels
            for _ in range(count)
        ]

    def short_tasks(self, number: int) -> list[Task]:
        """`short_items` held-out questions for a stop of each of so many people."""
        rng = random.Random(self.params.eval_seed("short", number))
        return [short_task(number, rng, "heldout") for _ in range(self.params.short_items)]

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        """Short questions by search: a stop of one person, or one of each of two."""
        by_search = BySearch(make_tool(params, self.tokenizer, library("heldout")))
        suites = []
        for number, name in SHORT.items():
            seed_of = partial(derive_seed, "short", number)
            asked = self.short_tasks(number), chat, params.eval_sampling, seed_of, by_search
            suites.append(search_suite(name, *asked))
        return suites


def short_task(number: int, rng: random.Random, pool: Pool) -> Task:
    """A question for a stop of each of so many people of a group."""
    people = rng.sample(rng.choice(groups(pool)), number)
    stops = [(source, rng.randrange(HIGHEST)) for source in people]
    text = short_question(stops, pool)
    gold = " ".join(source.steps[place] for source, place in stops)
    info = {"documents": tuple(passage_of(source.subject) for source in people)}
    return Task(prompts.search(text, "plain"), text, (gold,), "exact", SHORT[number], info)


def short_question(stops: Sequence[tuple[Source, int]], pool: Pool) -> str:
    """It asks for these stops: a person, and the place from 0."""
    words = WORDS["short"]
    asked = [words["of"].format(e=source.subject, n=ORDINALS[place]) for source, place in stops]
    return words["question"][pool].format(s=words["and"].join(asked))


def check(params: Any) -> None:
    """Raises ValueError for a type of task or a level that there is not."""
    for kind in params.kinds:
        require("type of task", kind, TYPES, ValueError)
    check_level(params.highest, HIGHEST)


make_source = Groups
