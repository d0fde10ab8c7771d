"""Tasks answered by search, as a suite; how often an answer searched, and whether that found gold.

A block of questions goes through one call of the engine and one of the retriever a round, as a
retriever over HTTP is asked for many queries at once.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from spnb.core import prompts
from spnb.core.episodes import Episode
from spnb.core.grading import grade, read_answer, register
from spnb.core.method import Suite
from spnb.core.search import LOST, Tool, search_rollouts
from spnb.core.types import OVERLONG, Chat, Messages, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records, grade_task, record, require_positive, task_rows

BLOCK = 64
"""Answers that search together."""

Judge = Callable[[Sequence[Messages], int], Episode[list[bool | None]]]
"""Whether a judge says yes to each prompt, None for neither yes nor no; the number is a seed."""


@dataclass(frozen=True)
class BySearch:
    """What a run's questions are answered with, and who reads answers that do not match."""

    tool: Tool
    judge: Judge | None = None


def use_of_search(task: Task, trajectory: Trajectory) -> dict[str, float]:
    """Columns of a record: the number of searches, the share of the gold documents
    (`info["documents"]`) that they found, or where a task names none whether a document that they
    found has one of the gold answers in it, and whether one failed (lost)."""
    found = trajectory.documents
    if gold := task.info.get("documents"):
        share = fmean(text in found for text in gold)
    else:
        share = float(any(grade(text, task.gold, "cover") for text in found))
    lost = float(trajectory.finish == LOST)
    return {"searches": len(trajectory.searches), "gold found": share, "lost": lost}


def search_suite(
    name: str,
    tasks: Sequence[Task],
    chat: Chat,
    sampling: Sampling,
    seed_of: Callable[[int, int], int],
    by_search: BySearch,
    samples: int = 1,
    **labels: str,
) -> Suite:
    """Asks every task `samples` times, with a search tool; arguments, records and rows as in
    `ask_suite`, with the columns of `use_of_search`.

    Where there is a judge it reads each answer that does not match, with all the gold ones: its yes
    makes the score 1. An answer whose search failed (the retriever gave none) is a wrong one.
    Open-ended tasks are graded by `GRADERS`.
    """
    require_positive(tasks=len(tasks), samples=samples)
    asked = list(product(range(len(tasks)), range(samples)))
    parts = [asked[first : first + BLOCK] for first in range(0, len(asked), BLOCK)]

    def ask(part: Sequence[tuple[int, int]]) -> Episode[Records]:
        requests = [
            chat.request(tasks[place].messages, sampling, seed_of(place, sample))
            for place, sample in part
        ]
        rows = yield from search_rollouts(requests, by_search.tool)
        if long := sum(row.finish == OVERLONG for row in rows):
            logging.warning(
                "%s: %d of %d questions are too long to be asked", name, long, len(rows)
            )
        records = []
        texts = ["" if row.finish == LOST else row.policy_text for row in rows]
        for (place, sample), row, text in zip(part, rows, texts, strict=True):
            task = tasks[place]
            columns: dict[str, Any] = {"kind": task.kind, "difficulty": task.difficulty}
            columns |= grade_task(task, text) | use_of_search(task, row)
            records.append(record(name, str(place), sample=sample, **labels | columns))
        if by_search.judge:
            answered = [
                (tasks[place], read_answer(text, tasks[place].info.get("tag", "answer")))
                for (place, _), text in zip(part, texts, strict=True)
            ]
            seed = derive_seed(seed_of(*part[0]), "judge")
            grades = GRADERS.get(tasks[0].kind, judged)
            yield from grades(answered, records, by_search.judge, seed)
        return records

    return Suite(name, parts, ask, partial(task_rows, name, **labels))


Answered = Sequence[tuple[Task, str | None]]
"""Tasks with an answer to each, None where it cannot be read."""


def judged(answered: Answered, records: Records, judge: Judge, seed: int) -> Episode[None]:
    """The judge's verdicts on answers that can be read and do not match."""
    wrong = [at for at, one in enumerate(records) if one["parsed"] and not one["score"]]
    told = [answered[at] for at in wrong]
    texts = [
        prompts.judge(task.question, text or "", " or ".join(task.gold)) for task, text in told
    ]
    verdicts = yield from judge(texts, seed)
    for at, yes in zip(wrong, verdicts, strict=True):
        records[at]["score"] = float(bool(yes))


def by_points(answered: Answered, records: Records, judge: Judge, seed: int) -> Episode[None]:
    """Each answer's score by its rubric: the judge reads one point at a time."""
    read = [(at, point) for at, (task, text) in enumerate(answered) if text for point in task.gold]
    texts = [
        prompts.grade(answered[at][1] or "", point, answered[at][0].question) for at, point in read
    ]
    verdicts = yield from judge(texts, seed)
    given: dict[int, list[bool]] = {}
    for (at, _), yes in zip(read, verdicts, strict=True):
        given.setdefault(at, []).append(bool(yes))
    for at, marks in given.items():
        records[at]["score"] = rubric_score(marks, answered[at][0].info["weights"])


def by_pairs(answered: Answered, records: Records, judge: Judge, seed: int) -> Episode[None]:
    """How often the judge finds each answer better than the gold one, which it reads before it and
    after it; half where it says neither yes nor no."""
    read = [(at, task, text) for at, (task, text) in enumerate(answered) if text]
    texts = [
        prompts.better(task.question, *pair)
        for _, task, text in read
        for pair in ((text, task.gold[0]), (task.gold[0], text))
    ]
    verdicts = yield from judge(texts, seed)
    points = [0.5 if yes is None else float(yes) for yes in verdicts]
    for (at, *_), first, second in zip(read, points[::2], points[1::2], strict=True):
        records[at]["score"] = (first + 1 - second) / 2


def rubric_score(given: Sequence[bool], weights: Sequence[float]) -> float:
    """The weight of the points that are there, of all weight above 0; below 0 where more counts
    against an answer (HealthBench, which has its mean, not this, at 0 or more)."""
    total = sum(weight for weight, mark in zip(weights, given, strict=True) if mark)
    return total / sum(weight for weight in weights if weight > 0)


GRADERS = {"rubric": by_points, "pair": by_pairs}
"""Who sets the scores of open-ended tasks, by their kind."""
for kind in GRADERS:
    register(kind, lambda prediction, golds: 0.0)  # a judge decides
