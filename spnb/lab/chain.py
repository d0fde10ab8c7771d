"""A ladder by search: a chain of people, each of whom takes one search more to reach.

Everybody has a guide, a host and four others, and is each of these to one person. A question names
a start and the relations to follow, each with its ordinal, in random order; level k has k of them.
A library holds one sentence a relation. `embedded/searcher` follows the relations in any order at
first, so that level k is right by chance 1/k!; a questioner goes back from an answer by search.

    task = draw_task(3, random.Random(0))
    grade_text("<answer> ...</answer>", task)
"""

import random
import re
from collections.abc import Sequence
from functools import cache, partial

from spnb.core import prompts
from spnb.core.types import Task
from spnb.lab.ladder import ORDINALS, WORDING, check_level, pattern_of
from spnb.lab.world import Pool, names

WORDS = WORDING["chain"]
Links = dict[tuple[str, str], str]
"""By relation and person, who it is."""
RELATIONS: tuple[str, ...] = tuple(WORDS["relations"])
HIGHEST = len(RELATIONS)
RESULTS = 2
"""What a search returns: who it is to somebody, and to whom this somebody is it."""
STEP = re.compile(f"({'|'.join(ORDINALS[:HIGHEST])}) ({'|'.join(RELATIONS)})")


def draw_links(rng: random.Random, pool: Pool) -> Links:
    """Relations among the people of a pool; each goes through everybody once."""
    links = {}
    for relation in RELATIONS:
        circle = rng.sample(names("person", pool), len(names("person", pool)))
        pairs = zip(circle, [*circle[1:], circle[0]], strict=True)
        links |= {(relation, person): other for person, other in pairs}
    return links


@cache
def links_of(pool: Pool) -> Links:
    """The relations that a pool's library holds: the same ones always."""
    return draw_links(random.Random(f"chain {pool}"), pool)


def fact(links: Links, relation: str, person: str) -> str:
    """The sentence on a relation of a person."""
    return WORDS["fact"].format(r=relation, e=person, v=links[relation, person])


def library(pool: Pool) -> list[dict[str, str]]:
    """The sentences on everybody of a pool, as documents to be indexed."""
    links = links_of(pool)
    return [
        {"id": f"{relation}:{person}", "title": person, "text": fact(links, relation, person)}
        for relation, person in links
    ]


def query(relation: str, person: str) -> str:
    """What to search for: the relation's two sentences on a person."""
    return WORDS["query"].format(r=relation, e=person)


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


def question(start: str, steps: Sequence[tuple[str, str]], frame: str) -> str:
    """A question from a start, with its steps (ordinal and relation) in the order given."""
    return frame.format(e=start, s=", ".join(map(" ".join, steps)))


def pose(start: str, relations: Sequence[str], rng: random.Random, frame: str) -> str:
    """A question for these relations, told in random order."""
    steps = list(zip(ORDINALS, relations, strict=False))
    return question(start, rng.sample(steps, len(steps)), frame)


def draw_task(
    level: int, rng: random.Random, pool: Pool = "train", links: Links | None = None
) -> Task:
    """A question of so many steps in the wordings of a pool, to be answered by search.

    `links`: of the pool's library unless they are given. Raises ValueError for a level that there
    is not.
    """
    check_level(level, HIGHEST)
    start = rng.choice(names("person", pool))
    relations = rng.sample(RELATIONS, level)
    text = pose(start, relations, rng, rng.choice(WORDS["questions"][pool]))
    return make_task(text, start, relations, links or links_of(pool))


def make_task(text: str, start: str, relations: Sequence[str], links: Links) -> Task:
    """A question whose start and relations are known."""
    reached = follow(links, start, relations)
    documents = map(partial(fact, links), relations, [start, *reached])
    info = {"family": "chain", "level": len(relations), "links": links}
    info |= {"start": start, "relations": tuple(relations), "documents": tuple(documents)}
    level = f"level {len(relations)}"
    return Task(prompts.search(text, "plain"), text, (reached[-1],), "exact", level, info)


FRAMES = [pattern_of(frame) for pool in WORDS["questions"].values() for frame in pool]


def parse(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The start and the relations in order; None where a question is in no wording, or an ordinal
    or relation is missing or comes twice."""
    match = next((m for frame in FRAMES if (m := frame.fullmatch(" ".join(text.split())))), None)
    steps = [STEP.fullmatch(part) for part in match["s"].split(", ")] if match else []
    if not match or not all(steps):
        return None
    pairs = [(ORDINALS.index(step[1]), step[2]) for step in steps if step]
    relations = tuple(relation for _, relation in sorted(pairs))
    numbered = sorted(place for place, _ in pairs) == list(range(len(pairs)))
    return (match["e"], relations) if numbered and len(set(relations)) == len(pairs) else None


def read_proposal(text: str, target: str, pool: Pool) -> Task | None:
    """A questioner's question as a task, None unless it leads to the target."""
    read = parse(prompts.field(text, "question") or "")
    if not read or read[0] not in names("person", pool):
        return None
    task = make_task(prompts.field(text, "question") or "", *read, links_of(pool))
    return task if task.gold == (target,) else None


def queries(task: Task, order: Sequence[int]) -> list[tuple[str, str]]:
    """What an answerer asks for that follows the relations in `order` (places from 0)."""
    relations = [task.info["relations"][place] for place in order]
    reached = follow(task.info["links"], task.info["start"], relations)
    return list(zip(relations, [task.info["start"], *reached], strict=False))


def reply(task: Task, order: Sequence[int]) -> tuple[list[str], str]:
    """The turns of this answerer, each with the step it takes and a query; and its answer."""
    asked = queries(task, order)
    turns = [
        f"<think> {ORDINALS[place]}</think><search> {query(*one)}</search>"
        for place, one in zip(order, asked, strict=True)
    ]
    return turns, f"<answer> {task.info['links'][asked[-1]]}</answer>"


def order_of(task: Task, text: str) -> tuple[int, ...] | None:
    """The order in which a text follows a task's relations; None where it is not consistent.

    Consistent: one search for each relation, each from the person reached before, and the answer is
    whom the last one reaches. `text` is the policy's own, without the results.
    """
    relations = task.info["relations"]
    asked = [found.strip().partition(" of ")[0] for found in prompts.fields(text, "search")]
    if sorted(asked) != sorted(relations):
        return None
    order = tuple(relations.index(relation) for relation in asked)
    turns, answer = reply(task, order)
    return order if text.strip() == "".join(turns) + answer else None
