"""SPICE's evaluation on the testbed: eight suites in the paper's two groups; challengers' tasks.

Five suites are closed-book: the question holds its notes. In three the notes stand in documents,
among those on somebody else. Levels take turns; names and wordings are held out.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spnb.core import prompts
from spnb.core.method import Suite
from spnb.core.types import Chat, Messages, Sampling, Task, derive_seed
from spnb.evaluate.diversity import clusters
from spnb.evaluate.items import Records, Rows, ask_suite, mean_row, row, share_row
from spnb.lab import segments
from spnb.lab.segment_oracle import Judgement
from spnb.lab.segments import Half

CHALLENGES = "challenges"
"""The suite of a challenger's tasks. A record's item is the document, its score validity; of a
valid task it has the oracle's judgement, p (the reasoner's share of right answers), what that pays
and the question."""
JUDGED = ("self_contained", "right", "faithful", "leaks")
"""What the oracle says of a task; faithful is None where there is no document."""


@dataclass(frozen=True)
class Asked:
    """What a suite asks: the kind of entries, the type of the answer, from documents or not."""

    group: Half
    kind: str
    answer_type: str
    reads: bool = False


SUITES: dict[str, Asked] = {
    "integer": Asked("math", "ledger", "integer"),
    "expression": Asked("math", "formula", "expression"),
    "choice-of-counts": Asked("math", "ledger", "choice"),
    "integer-documents": Asked("math", "ledger", "integer", True),
    "string": Asked("general", "code", "string"),
    "choice-of-words": Asked("general", "code", "choice"),
    "string-documents": Asked("general", "code", "string", True),
    "choice-documents": Asked("general", "code", "choice", True),
}
GROUPS: dict[Half, list[str]] = {
    half: [name for name, asked in SUITES.items() if asked.group == half]
    for half in segments.HALVES
}
"""The suites of the paper's two groups."""


def suite_tasks(
    name: str,
    items: int,
    prompt: Callable[[str], Messages] = prompts.reason,
    tag: str = "answer",
    highest: int = segments.HIGHEST,
) -> list[Task]:
    """`items` held-out questions of each level of a suite, always the same.

    `prompt` and `tag`: how the questions are put, and where their answers stand; by default as the
    embedded policies know it.
    """
    asked, rng = SUITES[name], random.Random(derive_seed("evaluation", "segments", name))
    tasks = []
    for level in [level for level in range(1, highest + 1) for _ in range(items)]:
        task = segments.draw_task(asked.kind, asked.answer_type, level, rng, "heldout", asked.reads)
        if tag != "answer":
            body = task.messages[0]["content"].split("\n", 1)[1]
            task = replace(task, messages=prompt(body), info=task.info | {"tag": tag})
        tasks.append(task)
    return tasks


def segment_suites(
    items: int,
    chat: Chat,
    sampling: Sampling,
    prompt: Callable[[str], Messages] = prompts.reason,
    tag: str = "answer",
    policy: str = "policy",
) -> list[Suite]:
    """All suites, each with `items` questions of every level, sampled; accuracy in all and by
    level."""
    labels = {"policy": policy, "decoding": "sampled"}
    return [
        ask_suite(
            name,
            suite_tasks(name, items, prompt, tag),
            chat,
            sampling,
            lambda place, _, name=name: derive_seed("segments", name, place),
            **labels,
        )
        for name in SUITES
    ]


def judged(judgement: Judgement) -> dict[str, Any]:
    """What the oracle says, as columns of a record."""
    columns = {name: getattr(judgement, name) for name in JUDGED}
    known = {name: float(value) for name, value in columns.items() if value is not None}
    return known | {"level": judgement.level}


def task_numbers(tasks: Records) -> dict[str, float]:
    """Numbers of valid tasks: shares that the oracle finds self-contained, right, faithful or
    leaking, mean level, mean p and pay, shares with right and wrong answers (mixed), of different
    questions (distinct), and clusters of them by BLEU per question (diversity)."""
    numbers: dict[str, float] = {"tasks": float(len(tasks))}
    for name in (*JUDGED, "level", "success", "pay"):
        values = [one[name] for one in tasks if one.get(name) is not None]
        if values:
            numbers[name] = sum(values) / len(values)
    if tasks:
        questions = [one["question"] for one in tasks]
        numbers["mixed"] = sum(0 < one["success"] < 1 for one in tasks) / len(tasks)
        numbers["distinct"] = len(set(questions)) / len(questions)
        numbers["diversity"] = len(set(clusters(questions))) / len(questions)
    return numbers


def challenge_rows(records: Records) -> Rows:
    """valid, over all attempts; over the valid ones everything of `task_numbers`; right and success
    by form (`difficulty`: choice, free form); success over the right ones alone (solved)."""
    valid = [one for one in records if one["score"] == 1]
    rows = [share_row(CHALLENGES, "valid", [one["score"] for one in records])]
    numbers = task_numbers(valid)
    for name in JUDGED:
        values = [one[name] for one in valid if one.get(name) is not None]
        rows += [share_row(CHALLENGES, name, values)] if values else []
    for name in ("level", "success", "pay"):
        rows.append(mean_row(CHALLENGES, name, [one[name] for one in valid if name in one]))
    rows.append(share_row(CHALLENGES, "mixed", [float(0 < one["success"] < 1) for one in valid]))
    for name in ("distinct", "diversity"):
        if name in numbers:
            rows.append(row(CHALLENGES, name, numbers[name], n=len(valid)))
    judged = [one for one in valid if one.get("right") is not None]
    rows.append(mean_row(CHALLENGES, "solved", [one["success"] for one in judged if one["right"]]))
    choices = [one for one in judged if one["answer_type"] == "choice"]
    others = [one for one in judged if one["answer_type"] != "choice"]
    for form, own in (("choice", choices), ("free form", others)):
        if own:
            label = {"difficulty": form}
            rows.append(share_row(CHALLENGES, "right", [one["right"] for one in own], **label))
            rows.append(mean_row(CHALLENGES, "success", [one["success"] for one in own], **label))
    return rows


def group_means(accuracy: Mapping[str, float]) -> dict[str, float]:
    """Means over the suites of each group, and over all of them (overall), of numbers by suite.

    Raises KeyError where a suite is missing.
    """
    means = {half: _mean([accuracy[name] for name in names]) for half, names in GROUPS.items()}
    return means | {"overall": _mean([accuracy[name] for name in SUITES])}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
