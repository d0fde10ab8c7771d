"""Suites of tasks, and what every evaluation writes: records (items.jsonl) and rows (evals.jsonl).

A *record* is one graded answer, a *row* is one number with its 95 % interval. Each dimension has a
column of its own: the suite, the opponent (another player or policy), the role (a seat, say), the
decoding ("sampled", "greedy"), the difficulty. A column that does not apply is empty.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from spnb.core.episodes import Episode, parallel, run, single_turn
from spnb.core.grading import grade_text, read_answer
from spnb.core.method import Share, Suite
from spnb.core.stats import mean_interval, pass_at_k, share_interval
from spnb.core.types import OVERLONG, Chat, Engine, Request, Sampling, Task, Trajectory

ARM = ("suite", "opponent", "role", "decoding")
"""The columns that say what was measured, in records and in rows."""
RECORD: dict[str, Any] = dict.fromkeys(ARM, "")
RECORD |= {"item": "", "sample": 0, "score": None, "kind": "", "difficulty": ""}
"""A record's columns with their defaults; a suite may add some. `sample`: which of the answers."""
ROW: dict[str, Any] = {"step": 0} | dict.fromkeys((*ARM, "difficulty", "metric"), "")
ROW |= {"value": None, "low": None, "high": None, "n": 1}
"""A row's columns with their defaults; `n` counts the answers or matches behind the value."""

Records = list[dict[str, Any]]
Rows = list[dict[str, Any]]


def record(suite: str, item: str, score: float, **others: Any) -> dict[str, Any]:
    """One graded answer; `others` are further columns of `RECORD` and the suite's own."""
    return RECORD | {"suite": suite, "item": item, "score": score, **others}


def row(suite: str, metric: str, value: float, **others: Any) -> dict[str, Any]:
    """One number; `others` are further columns of `ROW`, ValueError for any that it has not."""
    if unknown := [name for name in others if name not in ROW]:
        raise ValueError(f"a row has no column {unknown[0]!r}; allowed: {', '.join(ROW)}")
    return ROW | {"suite": suite, "metric": metric, "value": value, **others}


def share_row(suite: str, metric: str, hits: Sequence[float], **labels: str) -> dict[str, Any]:
    """The share of ones among zeros and ones, with Wilson's bounds; nan where there are none."""
    if not hits:
        return mean_row(suite, metric, hits, **labels)
    count = int(sum(hits))
    n = len(hits)
    low, high = share_interval(count, n)
    return row(suite, metric, count / n, low=low, high=high, n=n, **labels)


def mean_row(suite: str, metric: str, values: Sequence[float], **labels: str) -> dict[str, Any]:
    """The mean with the bounds of Student's t; nan where there are no values."""
    value, low, high, n = mean_interval(values)
    return row(suite, metric, value, low=low, high=high, n=n, **labels)


def score_row(suite: str, metric: str, scores: Sequence[float], **labels: str) -> dict[str, Any]:
    """`share_row` where all scores are 0 or 1, else `mean_row`."""
    build = share_row if set(scores) <= {0, 1} else mean_row
    return build(suite, metric, scores, **labels)


def pass_at_k_rows(records: Records, ks: Sequence[int]) -> Rows:
    """pass@k for each k and arm: the mean over items, bounds from the spread over items, in [0, 1].

    A score of 1 is a pass. An item with fewer than k answers has no pass@k and is left out.
    """
    passes = pd.DataFrame(records).assign(passed=lambda table: table["score"] == 1)
    rows = []
    for arm, part in passes.groupby(list(ARM), sort=False):
        items = part.groupby("item", sort=False)["passed"].agg(["size", "sum"])
        for k in ks:
            values = [pass_at_k(n, c, k) for n, c in items.values.tolist() if n >= k]
            new = mean_row(metric=f"pass@{k}", values=values, **dict(zip(ARM, arm, strict=True)))
            low, high = np.clip([new["low"], new["high"]], 0, 1)
            rows.append(new | {"low": float(low), "high": float(high)})
    return rows


def grade_task(task: Task, text: str) -> dict[str, Any]:
    """A text's score by the task's own rule, and whether it has an answer that can be read."""
    parsed = read_answer(text, task.info.get("tag", "answer")) is not None
    return {"score": grade_text(text, task), "parsed": parsed}


def ask_suite(
    name: str,
    tasks: Sequence[Task],
    chat: Chat,
    sampling: Sampling,
    seed_of: Callable[[int, int], int],
    *,
    samples: int = 1,
    answer: Callable[[Task, Request], Episode[Trajectory]] | None = None,
    behaviour: Callable[[Task, Trajectory], Mapping[str, float]] = lambda task, trajectory: {},
    grade: Callable[[Task, str], dict[str, Any]] = grade_task,
    summarise: Callable[[Records], Rows] | None = None,
    metric: str = "accuracy",
    policy: str = "policy",
    **labels: str,
) -> Suite:
    """Asks every task `samples` times and grades each answer.

    Rows, where `summarise` does not make others: `metric` in all and by difficulty (where there are
    several), then the mean of each further column (parsed: answers that can be read).

    Args:
        seed_of: the seed of an answer from its task's place and its number.
        answer: the episode that answers a request; one turn where not given.
        behaviour: further columns of a record, besides those that `grade` makes of its words.
        labels: opponent, role, decoding.
    """
    require_positive(tasks=len(tasks), samples=samples)

    def ask(part: tuple[int, int]) -> Episode[Records]:
        place, sample = part
        task = tasks[place]
        request = chat.request(task.messages, sampling, seed_of(place, sample), policy)
        trajectory = yield from (answer(task, request) if answer else single_turn(request))
        if trajectory.finish == OVERLONG and not sample:
            logging.warning("%s: question %d is too long to be asked; it is wrong", name, place)
        columns = {"item": str(place), "kind": task.kind, "difficulty": task.difficulty}
        columns |= grade(task, trajectory.policy_text) | behaviour(task, trajectory)
        return [record(name, sample=sample, **labels | columns)]

    parts = list(product(range(len(tasks)), range(samples)))
    rows_of = partial(task_rows, name, metric=metric, **labels)
    return Suite(name, parts, ask, summarise or rows_of)


def task_rows(name: str, records: Records, metric: str = "accuracy", **labels: str) -> Rows:
    """The rows of a suite of tasks; see `ask_suite`."""
    levels = dict.fromkeys(one["difficulty"] for one in records)
    rows = []
    for level in ["", *levels] if len(levels) > 1 else [""]:
        scores = [one["score"] for one in records if level in ("", one["difficulty"])]
        rows.append(score_row(name, metric, scores, difficulty=level, **labels))
    for act in [key for key in records[0] if key not in RECORD]:
        rows.append(score_row(name, act, [one[act] for one in records], **labels))
    return rows


def play_suite(suite: Suite, engines: Mapping[str, Engine]) -> tuple[Records, Rows]:
    """Plays one suite in this process."""
    return play_suites([suite], engines)[0]


def play_suites(
    suites: Sequence[Suite], engines: Mapping[str, Engine], share: Share | None = None
) -> list[tuple[Records, Rows]]:
    """Plays this process's part of every suite, all side by side; of each suite the records of all
    processes in order, and their rows."""
    share = share or Share()
    own = [share.part(range(len(suite.parts))) for suite in suites]
    places = [(number, place) for number, part in enumerate(own) for place in part]
    asked = (suites[number].ask(suites[number].parts[place]) for number, place in places)
    pieces = share.gather(list(zip(places, run(parallel(*asked), engines), strict=True)))
    records: list[Records] = [[] for _ in suites]
    for (number, _), part in sorted(pieces, key=itemgetter(0)):
        records[number] += part
    return [(rows, suite.summarise(rows)) for suite, rows in zip(suites, records, strict=True)]


def require_positive(**counts: int) -> None:
    """Raises ValueError where a count is below 1."""
    for key, value in counts.items():
        if value < 1:
            raise ValueError(f"{key} is {value!r}; allowed: 1 or more")
