"""What a reasoner can do before reinforcement learning: sampled at temperature 1, held-out names.

Answers of SPICE's suites by level, in held-out wordings; tasks that it writes from segments and from
nothing, as the oracle judges them; Absolute Zero's tasks, by the program's steps.
"""

import random
from collections.abc import Sequence

import pandas as pd

from spnb.core.grading import grade, grade_text
from spnb.core.types import Task, derive_seed
from spnb.evaluate.segments import JUDGED, SUITES, suite_tasks
from spnb.methods import spice_prompts
from spnb.recipe.ladder_skills import COLUMNS, texts
from spnb.recipe.reasoner_lessons import INPUTS, READ
from spnb.recipe.skills import Mark, part_rows
from spnb.testbed import programs, segments
from spnb.testbed.segment_oracle import judge
from spnb.testbed.segments import HIGHEST, KINDS
from spnb.train.engines.torch import TorchEngine


def answers(engine: TorchEngine, suite: str, count: int) -> list[Mark]:
    """`count` answers at each level; well-formed where they take each step once, in any order."""
    tasks = suite_tasks(suite, count)
    written = texts(engine, [task.messages for task in tasks])
    return [
        (
            {task.difficulty: grade_text(text, task)},
            segments.order_of(task, text) is not None,
        )
        for task, text in zip(tasks, written, strict=True)
    ]


def tasks(engine: TorchEngine, answer_type: str, count: int, grounded: bool) -> list[Mark]:
    """What the oracle says of tasks from held-out segments, or from nothing; well-formed: valid."""
    rng = random.Random(derive_seed("reasoner skills", answer_type))
    kinds = [kind for kind, one in KINDS.items() if answer_type in one.types]
    read = []
    for place in range(count):
        kind, length = kinds[place % len(kinds)], rng.randint(segments.SHORTEST, HIGHEST)
        number = rng.choice(READ[kind])
        read.append(segments.draw_entries(rng, kind, number, length, "heldout"))
    shown = ["\n".join(entry.text for entry in entries) for entries in read]
    prompted = [
        spice_prompts.challenge("plain", answer_type, text if grounded else None) for text in shown
    ]
    marks = []
    for text, entries in zip(texts(engine, prompted), read, strict=True):
        written = spice_prompts.read_task("plain", text, answer_type)
        parts = {"valid": float(written is not None)}
        if written:
            judged = judge(written, entries if grounded else None)
            said = {name: getattr(judged, name) for name in JUDGED}
            parts |= {name: float(value) for name, value in said.items() if value is not None}
            levels = range(1, HIGHEST + 1)
            parts |= {f"asks level {level}": float(judged.level == level) for level in levels}
        marks.append((parts, written is not None))
    return marks


def solved(engine: TorchEngine, kind: programs.TaskKind, count: int) -> list[Mark]:
    """`count` solutions of tasks on chains of each number of steps."""
    rng = random.Random(derive_seed("reasoner skills", kind))
    drawn, prompted = [], []
    for level in [level for level in range(1, HIGHEST + 1) for _ in range(count)]:
        program = programs.chain(programs.draw_chain(rng, level))
        pairs = [(x, programs.run(program, x) or 0) for x in rng.sample(range(10), INPUTS)]
        drawn.append((f"level {level}", *gold_of(kind, program, pairs)))
        shown = pairs[: INPUTS // 2] if kind == "induction" else pairs[:1]
        prompted.append(spice_prompts.solve(kind, program, shown))
    marks = []
    for text, (level, golds, rule) in zip(texts(engine, prompted), drawn, strict=True):
        right = grade_text(text, Task([], gold=golds, kind=rule))
        marks.append(({level: right}, grade("", "", "literal") >= 0))
    return marks
