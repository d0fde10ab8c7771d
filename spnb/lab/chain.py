"""Ladders by search: a chain of people, each of whom takes one search more to reach.

Everybody has a guide, a host and some others, and is each of these to one person. A question names
a start and the relations to follow, each with its ordinal, in random order; level k has k of them.
A library holds one sentence a relation. A searcher follows the relations in any order at first, so
that level k is in the right order by chance 1/k!; in another order some one in as many answers is
right as there are people. A questioner goes back from an answer by search.

    task = CHAIN.draw_task(3, random.Random(0))
    grade_text("<answer> ...</answer>", task)

`CHAIN` has six relations. `QUEST` has eight, more people, and each sentence says in which of a few
towns somebody lives: a question may then start at "somebody of Arnford", which fits one person
among the documents that a questioner found, and dozens in the library.
"""

import random
import re
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

from spnb.core import prompts
from spnb.core.types import Task
from spnb.lab.ladder import NAME, ORDINALS, WORDING, check_level, pattern_of
from spnb.lab.world import Pool, names

LEAD = "who|who's|what|which|person|is|was|the|name|of|it|that|tell|me|give|find|identify|please"
"""Words before a nested question's chain that leave its meaning as it is."""
RESULTS = 2
"""What a search returns: who it is to somebody, and to whom this somebody is it."""


class Links(dict[tuple[str, str], str]):
    """By relation and person, who it is; `homes` has everybody's town, in a world with towns."""

    homes: dict[str, str]


class Chains:
    """A world of chains, by its name in `words.yaml`."""

    def __init__(self, name: str):
        self.name = name
        self.words: dict[str, Any] = WORDING["chains"][name]
        self.relations: tuple[str, ...] = tuple(self.words["relations"])
        self.highest = len(self.relations)
        steps = "|".join(ORDINALS[: self.highest])
        self._links: dict[str, Links] = {}
        self.step = re.compile(f"({steps}) ({'|'.join(self.relations)})")

    def people(self, pool: Pool) -> tuple[str, ...]:
        """Everybody of a pool."""
        return names(self.words["people"], pool)

    def towns(self, pool: Pool) -> tuple[str, ...]:
        """The towns where a pool's people live; none in a world without."""
        return names("town", pool)[: self.words["towns"]]

    def draw_links(self, rng: random.Random, pool: Pool, people: Sequence[str] = ()) -> Links:
        """Relations among the people of a pool, or some of them; each relation goes through
        everybody once."""
        people = people or self.people(pool)
        links = Links()
        for relation in self.relations:
            circle = rng.sample(people, len(people))
            pairs = zip(circle, [*circle[1:], circle[0]], strict=True)
            links |= {(relation, person): other for person, other in pairs}
        towns = self.towns(pool)
        links.homes = {person: rng.choice(towns) for person in people} if towns else {}
        return links

    def links_of(self, pool: Pool) -> Links:
        """The relations that a pool's library holds: the same ones always."""
        if pool not in self._links:
            self._links[pool] = self.draw_links(random.Random(f"{self.name} {pool}"), pool)
        return self._links[pool]

    def fact(self, links: Links, relation: str, person: str) -> str:
        """The sentence on a relation of a person."""
        place = {"t": links.homes.get(person, "")}
        return self.words["fact"].format(r=relation, e=person, v=links[relation, person], **place)

    def library(self, pool: Pool) -> list[dict[str, str]]:
        """The sentences on everybody of a pool, as documents to be indexed."""
        links = self.links_of(pool)
        return [
            {"id": f"{relation}:{who}", "title": who, "text": self.fact(links, relation, who)}
            for relation, who in links
        ]

    def query(self, relation: str, person: str) -> str:
        """What to search for: the relation's two sentences on a person."""
        return self.words["query"].format(r=relation, e=person)

    def somebody(self, town: str) -> str:
        """A start that names a town alone, and what to search for to find one of its people."""
        return self.words["somebody"].format(t=town)

    def question(self, start: str, steps: Sequence[tuple[str, str]], frame: str) -> str:
        """A question from a start, with its steps (ordinal and relation) in the order given."""
        return frame.format(e=start, s=", ".join(map(" ".join, steps)))

    def pose(self, start: str, relations: Sequence[str], rng: random.Random, frame: str) -> str:
        """A question for these relations, told in random order."""
        steps = list(zip(ORDINALS, relations, strict=False))
        return self.question(start, rng.sample(steps, len(steps)), frame)

    def draw_task(self, level: int, rng: random.Random, pool: Pool = "train") -> Task:
        """A question of so many steps in the wordings of a pool, to be answered by search in its
        library. Raises ValueError for a level that there is not."""
        check_level(level, self.highest)
        start = rng.choice(self.people(pool))
        relations = rng.sample(self.relations, level)
        text = self.pose(start, relations, rng, rng.choice(self.words["questions"][pool]))
        return self.make_task(text, start, relations, self.links_of(pool))

    def make_task(self, text: str, start: str, relations: Sequence[str], links: Links) -> Task:
        """A question whose start and relations are known."""
        reached = follow(links, start, relations)
        documents = map(partial(self.fact, links), relations, [start, *reached])
        info = {"family": self.name, "level": len(relations), "links": links}
        info |= {"start": start, "relations": tuple(relations), "documents": tuple(documents)}
        level = f"level {len(relations)}"
        return Task(prompts.search(text, "plain"), text, (reached[-1],), "exact", level, info)

    @cached_property
    def frames(self) -> list[re.Pattern[str]]:
        """What matches a question in a wording of either pool."""
        start = f"{NAME}|{self.somebody(NAME)}" if self.words["towns"] else NAME
        wordings = self.words["questions"].values()
        return [pattern_of(frame, start) for of_pool in wordings for frame in of_pool]

    @cached_property
    def nested(self) -> re.Pattern[str]:
        """What matches "Who is the guide of the host of Belana?", and nothing that says more."""
        start = f"{NAME}|(?i:somebody|someone) of {NAME}" if self.words["towns"] else NAME
        steps = f"(?i:(?:(?:the )?(?:{'|'.join(self.relations)}) of )+)"
        return re.compile(rf"(?i:(?:(?:{LEAD})[ ,:]+)*)(?P<s>{steps})(?P<e>{start}) ?[?.!]?")

    def parse(self, text: str) -> tuple[str, tuple[str, ...]] | None:
        """The start and the relations in order, in a wording of the world or nested, innermost
        first; None where a question is in neither, or an ordinal is missing or comes twice, or a
        relation does in a wording of the world."""
        text = " ".join(text.split())
        if told := self.nested.fullmatch(text):
            relations = [word for word in told["s"].lower().split() if word not in ("the", "of")]
            start = re.sub("^some(?:body|one)", "somebody", told["e"], flags=re.IGNORECASE)
            return start, tuple(reversed(relations))
        match = next((m for frame in self.frames if (m := frame.fullmatch(text))), None)
        steps = [self.step.fullmatch(part) for part in match["s"].split(", ")] if match else []
        if not match or not all(steps):
            return None
        pairs = [(ORDINALS.index(step[1]), step[2]) for step in steps if step]
        relations = tuple(relation for _, relation in sorted(pairs))
        numbered = sorted(place for place, _ in pairs) == list(range(len(pairs)))
        return (match["e"], relations) if numbered and len({*relations}) == len(pairs) else None

    def read_proposal(self, text: str, target: str, pool: Pool) -> Task | None:
        """A questioner's question as a task, None unless it leads to the target."""
        question = prompts.field(text, "question") or ""
        read = self.parse(question)
        if not read or read[0] not in self.people(pool):
            return None
        task = self.make_task(question, *read, self.links_of(pool))
        return task if task.gold == (target,) else None

    def reply(self, task: Task, order: Sequence[int]) -> tuple[list[str], str]:
        """The turns of an answerer that follows the relations in `order` (places from 0), each with
        the step it takes and a query; and its answer."""
        asked = queries(task, order)
        turns = [
            f"<think> {ORDINALS[place]}</think><search> {self.query(*one)}</search>"
            for place, one in zip(order, asked, strict=True)
        ]
        return turns, f"<answer> {task.info['links'][asked[-1]]}</answer>"

    def order_of(self, task: Task, text: str) -> tuple[int, ...] | None:
        """The order in which a text follows a task's relations; None where it is not consistent.

        Consistent: one search for each relation, each from the person reached before, and the
        answer is whom the last one reaches. `text` is the policy's own, without the results.
        """
        relations = task.info["relations"]
        asked = [found.strip().partition(" of ")[0] for found in prompts.fields(text, "search")]
        if sorted(asked) != sorted(relations):
            return None
        order = tuple(relations.index(relation) for relation in asked)
        turns, answer = self.reply(task, order)
        return order if text.strip() == "".join(turns) + answer else None


def before(links: Links, relation: str, person: str) -> str:
    """To whom a person is something."""
    return next(p for (r, p), who in links.items() if (r, who) == (relation, person))


def follow(links: Links, start: str, relations: Sequence[str]) -> list[str]:
    """The people reached one after the other, the start left out."""
    reached = []
    person = start
    for relation in relations:
        person = links[relation, person]
        reached.append(person)
    return reached


def queries(task: Task, order: Sequence[int]) -> list[tuple[str, str]]:
    """What an answerer asks for that follows the relations in `order` (places from 0)."""
    relations = [task.info["relations"][place] for place in order]
    reached = follow(task.info["links"], task.info["start"], relations)
    return list(zip(relations, [task.info["start"], *reached], strict=False))


CHAINS = {name: Chains(name) for name in WORDING["chains"]}
CHAIN = CHAINS["chain"]
QUEST = CHAINS["quest"]
