"""The ladder as a suite: held-out questions of every level, graded exactly."""

import random
from typing import Any

from spnb.core.grading import grade_text
from spnb.core.method import Chat, Suite
from spnb.core.types import Sampling, Task, derive_seed
from spnb.evaluate.items import ask_suite
from spnb.testbed import ladder

SUITE = "ladder"
"""A record has the score, and whether the text takes each step once as its note says, in any order
(`consistent`); its difficulty is the level."""


def ladder_suite(
    family: str, highest: int, items: int, rivals: int, chat: Chat, sampling: Sampling
) -> Suite:
    """`items` questions of each level up to `highest`, in held-out names and wordings, sampled."""
    rng = random.Random(derive_seed("evaluation", SUITE, family))
    levels = [level for level in range(1, highest + 1) for _ in range(items)]
    pool: ladder.Pool = "heldout"
    tasks = [ladder.draw_task(family, level, rng, pool, pool, rivals) for level in levels]
    seed = lambda place, _: derive_seed(SUITE, place)  # noqa: E731
    return ask_suite(SUITE, tasks, chat, sampling, seed, grade=_grade, decoding="sampled")


def _grade(task: Task, text: str) -> dict[str, Any]:
    consistent = ladder.order_of(task, text) is not None
    return {"score": grade_text(text, task), "consistent": consistent}
