"""How a skill of a shipped policy is measured: each text is sampled once, and graded in parts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from spnb.core.episodes import Episode, single_turn
from spnb.core.grading import grade_text
from spnb.core.method import Suite
from spnb.core.types import Chat, Engine, Messages, Request, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records, Rows, play_suite, record, row, score_row
from spnb.lab import ladder
from spnb.lab.world import Pool

SAMPLING = Sampling(max_new_tokens=128)
TURN = Sampling(max_new_tokens=64)
"""How a turn with searches is sampled."""
MAX_LENGTH = 1024
"""Tokens of prompt, turns and results together."""
POOL: Pool = "heldout"
Grade = Callable[[int, str], tuple[Mapping[str, float], bool]]
"""Of a text at its place: the grade (0 to 1) in each part that it counts in; is it well-formed?"""


def skill(
    name: str,
    chat: Chat,
    prompted: Sequence[Messages],
    grade: Grade,
    key: str,
    answer: Callable[[Request], Episode[Trajectory]] = single_turn,
    sampling: Sampling = SAMPLING,
) -> Suite:
    """A text of the policy to each prompt, with a seed of `key` and its place.

    A row "grade" for each part, its name as the difficulty, and a row "parsed": the share of
    well-formed texts.
    """

    def ask(place: int) -> Episode[Records]:
        request = chat.request(prompted[place], sampling, derive_seed(key, place))
        trajectory = yield from answer(request)
        parts, well = grade(place, trajectory.policy_text)
        return [
            record(name, str(place), value, difficulty=part, parsed=well)
            for part, value in parts.items()
        ]

    return Suite(name, range(len(prompted)), ask, partial(part_rows, name))


def part_rows(name: str, records: Records) -> Rows:
    """The rows of each part, in the order in which they first come; bounds within [0, 1]."""
    rows = []
    for part, group in pd.DataFrame(records).groupby("difficulty", sort=False):
        graded = score_row(name, "grade", group["score"].tolist(), difficulty=part)
        rows.append(graded | {"low": max(graded["low"], 0.0), "high": min(graded["high"], 1.0)})
        rows.append(row(name, "parsed", float(group["parsed"].mean()), difficulty=part))
    return rows


def measure(engine: Engine, suites: Sequence[Suite]) -> pd.DataFrame:
    """Plays suites of skills on a policy.

    Columns: benchmark, part, value (0 to 1), low, high (95 %), n, parsed (share of well-formed
    texts).
    """
    rows = [row for suite in suites for row in play_suite(suite, {"policy": engine})[1]]
    table = pd.DataFrame(rows).rename(columns={"suite": "benchmark", "difficulty": "part"})
    graded = table[table["metric"] == "grade"].reset_index(drop=True)
    graded["parsed"] = table.loc[table["metric"] == "parsed", "value"].tolist()
    return graded[["benchmark", "part", "value", "low", "high", "n", "parsed"]]


def answers(
    name: str,
    chat: Chat,
    tasks: Sequence[Task],
    order_of: Callable[[Task, str], Any] = ladder.order_of,
    key: str = "ladder skills",
    **others: Any,
) -> Suite:
    """Answers by level; well-formed where `order_of` finds each step once, in any order."""

    def grade(place: int, text: str) -> tuple[dict[str, float], bool]:
        task = tasks[place]
        return {task.difficulty: grade_text(text, task)}, order_of(task, text) is not None

    return skill(name, chat, [task.messages for task in tasks], grade, key, **others)


def proposed(level: int | None, highest: int) -> tuple[dict[str, float], bool]:
    """Whether a proposal is valid (it has a level then), and which level it asks for."""
    if level is None:
        return {"valid": 0.0}, False
    asks = {f"asks level {one}": float(one == level) for one in range(1, highest + 1)}
    return {"valid": 1.0} | asks, True
