"""Tasks answered by search, as a suite; how often an answer searched, and whether that found gold.

A block of questions goes through one call of the engine and one of the retriever a round, as a
retriever over HTTP is asked for many queries at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from spnb.core import prompts
from spnb.core.episodes import Episode
from spnb.core.grading import grade, read_answer
from spnb.core.method import Suite
from spnb.core.search import Tool, search_rollouts
from spnb.core.types import Chat, Messages, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records, grade_task, record, require_positive, task_rows

BLOCK = 64
"""Answers that search together."""

Judge = Callable[[Sequence[Messages], int], Episode[list[bool]]]
"""Whether a judge says yes to each prompt; the number is a seed."""


@dataclass(frozen=True)
class BySearch:
    """What a run's questions are answered with, and who reads answers that do not match."""

    tool: Tool
    judge: Judge | None = None


def use_of_search(task: Task, trajectory: Trajectory) -> dict[str, float]:
    """Columns of a record: the number of searches, and the share of the gold documents
    (`info["documents"]`) that they found; where a task names none, whether a document that they
    found has one of the gold answers in it."""
    found = trajectory.documents
    if gold := task.info.get("documents"):
        share = fmean(text in found for text in gold)
    else:
        share = float(any(grade(text, task.gold, "cover") for text in found))
    return {"searches": len(trajectory.searches), "gold found": share}


def search_suite(
    name: str,
    tasks: Sequence[Task],
    chat: Chat,
    sampling: Sampling,
    seed_of: Callable[[int, int], int],
    by_search: BySearch,
    samples: int = 1,
    policy: str = "policy",
    **labels: str,
) -> Suite:
    """Asks every task `samples` times, with a search tool; arguments, records and rows as in
    `ask_suite`, with the columns of `use_of_search`.

    Where there is a judge it reads each answer that does not match, with all the gold ones: its yes
    makes the score 1. An answer whose search failed (the retriever gave none) is a wrong one.
    """
    require_positive(tasks=len(tasks), samples=samples)
    asked = list(product(range(len(tasks)), range(samples)))
    parts = [asked[first : first + BLOCK] for first in range(0, len(asked), BLOCK)]

    def ask(part: Sequence[tuple[int, int]]) -> Episode[Records]:
        requests = [
            chat.request(tasks[place].messages, sampling, seed_of(place, sample), policy)
            for place, sample in part
        ]
        rows = yield from search_rollouts(requests, [""] * len(part), by_search.tool)
        records = []
        for (place, sample), row in zip(part, rows, strict=True):
            task = tasks[place]
            columns: dict[str, Any] = {"kind": task.kind, "difficulty": task.difficulty}
            columns |= grade_task(task, row.policy_text) | use_of_search(task, row)
            records.append(record(name, str(place), sample=sample, **labels | columns))
        if by_search.judge:
            yield from judged(part, rows, records)
        return records

    def judged(
        part: Sequence[tuple[int, int]], rows: Sequence[Trajectory], records: Records
    ) -> Episode[None]:
        """The judge's verdicts on answers that can be read and do not match."""
        wrong = [place for place, one in enumerate(records) if one["parsed"] and not one["score"]]
        texts = []
        for place in wrong:
            task = tasks[part[place][0]]
            answer = read_answer(rows[place].policy_text, task.info.get("tag", "answer")) or ""
            texts.append(prompts.judge(task.question, answer, " or ".join(task.gold)))
        seed = derive_seed(seed_of(*part[0]), "judge")
        verdicts = yield from by_search.judge(texts, seed)
        for place, yes in zip(wrong, verdicts, strict=True):
            records[place]["score"] = float(yes)

    return Suite(name, parts, ask, partial(task_rows, name, **labels))
