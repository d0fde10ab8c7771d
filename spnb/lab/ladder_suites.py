"""The ladder as a suite: held-out questions of every level, graded exactly."""

import random
from collections.abc import Callable
from typing import Any, Literal

from spnb.core.episodes import Episode
from spnb.core.grading import grade_text
from spnb.core.method import Chat, Suite
from spnb.core.types import Request, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import ask_suite
from spnb.lab import chain, ladder
from spnb.lab.world import Pool

Family = Literal["journey", "ledger", "choice", "report", "chain"]
"""Every ladder: those of `spnb.lab.ladder`, and the one by search."""
SUITE = "ladder"
"""A record has the score, and whether the text takes each step once as its note says, in any order
(`consistent`); its difficulty is the level."""


def draw_task(family: str, level: int, rng: random.Random, pool: Pool, rivals: int) -> Task:
    """A question of any ladder, names and wordings of one pool; `rivals` as `ladder.make_task`."""
    if family == "chain":
        return chain.draw_task(level, rng, pool)
    return ladder.draw_task(family, level, rng, pool, pool, rivals)


def ladder_suite(
    family: str,
    highest: int,
    items: int,
    rivals: int,
    chat: Chat,
    sampling: Sampling,
    answer: Callable[[Task, Request], Episode[Trajectory]] | None = None,
) -> Suite:
    """`items` questions of each level up to `highest`, in held-out names and wordings, sampled;
    `answer` as in `ask_suite`."""
    rng = random.Random(derive_seed("evaluation", SUITE, family))
    levels = [level for level in range(1, highest + 1) for _ in range(items)]
    tasks = [draw_task(family, level, rng, "heldout", rivals) for level in levels]
    seed = lambda place, _: derive_seed(SUITE, place)  # noqa: E731
    return ask_suite(
        SUITE, tasks, chat, sampling, seed, answer=answer, grade=grade_steps, decoding="sampled"
    )


def grade_steps(task: Task, text: str) -> dict[str, Any]:
    """A text's score, and whether it is consistent (see `SUITE`)."""
    read = chain.order_of if task.info["family"] == "chain" else ladder.order_of
    return {"score": grade_text(text, task), "consistent": read(task, text) is not None}
