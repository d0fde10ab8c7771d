"""What a reasoner can do before reinforcement learning: sampled at temperature 1, held-out names.

Answers of SPICE's suites by level, in held-out wordings; tasks that it writes from segments and
from nothing, as the oracle judges them; Absolute Zero's tasks, by the program's steps.
"""

import random

import pandas as pd

from spnb.core.documents import Proposal
from spnb.core.grading import grade_text, read_answer
from spnb.core.types import Trajectory, derive_seed
from spnb.evaluate.proposals import JUDGED
from spnb.games import programs
from spnb.lab import segments
from spnb.lab.pretrain.ladder_skills import COLUMNS, texts
from spnb.lab.pretrain.reasoner_lessons import READ
from spnb.lab.pretrain.skills import Mark, part_rows
from spnb.lab.segment_oracle import judge
from spnb.lab.segment_suites import SUITES, suite_tasks
from spnb.lab.segments import GRADES, HIGHEST, KINDS
from spnb.methods import absolute_zero, spice_prompts
from spnb.train.engines.torch import TorchEngine


def answers(engine: TorchEngine, suite: str, count: int) -> list[Mark]:
    """`count` answers at each level; well-formed where they take each step once, in any order."""
    tasks = suite_tasks(suite, count)
    written = texts(engine, [task.messages for task in tasks])
    return [
        ({task.difficulty: grade_text(text, task)}, segments.order_of(task, text) is not None)
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
        valid = isinstance(written, Proposal)
        parts = {"valid": float(valid)}
        if isinstance(written, Proposal):
            judged = judge(written, entries if grounded else None)
            said = {name: getattr(judged, name) for name in JUDGED}
            parts |= {name: float(value) for name, value in said.items() if value is not None}
            levels = range(1, HIGHEST + 1)
            parts |= {f"asks level {level}": float(judged.level == level) for level in levels}
        marks.append((parts, valid))
    return marks


def proposed(engine: TorchEngine, kind: programs.TaskKind, count: int) -> list[Mark]:
    """Whether proposals of Absolute Zero's tasks are valid; well-formed: they can be read."""
    rng = random.Random(derive_seed("reasoner skills", "propose", kind))
    known = [programs.chain(programs.draw_chain(rng, 1 + n % HIGHEST)) for n in range(count)]
    subjects = known if kind == "induction" else [""] * count
    written = texts(engine, [spice_prompts.propose(kind, (), one) for one in subjects])
    read = [
        absolute_zero.read(kind, Trajectory((), policy_text=text), one)
        for text, one in zip(written, subjects, strict=True)
    ]
    return [({"valid": float(one.task is not None)}, one.readable) for one in read]


def solved(engine: TorchEngine, kind: programs.TaskKind, count: int) -> list[Mark]:
    """`count` solutions of tasks on chains of each number of steps; well-formed: an answer."""
    rng = random.Random(derive_seed("reasoner skills", kind))
    asked, levels = [], [level for level in range(1, HIGHEST + 1) for _ in range(count)]
    for level in levels:
        program, inputs = programs.chain(programs.draw_chain(rng, level)), rng.sample(range(10), 4)
        outputs = programs.runs(program, inputs) or []
        pairs = list(zip(inputs, outputs, strict=True))
        asked.append(absolute_zero.make_task(kind, program, pairs))
    written = texts(engine, [task.messages for task in asked])
    return [
        ({f"level {level}": grade_text(text, task)}, read_answer(text) is not None)
        for level, task, text in zip(levels, asked, written, strict=True)
    ]


def measure(engine: TorchEngine, count: int = 200) -> pd.DataFrame:
    """All skills of a reasoner.

    Columns: benchmark, part, value (0 to 1), low, high (95 %), n, parsed (share of well-formed
    outputs). `count`: answers a level, and tasks of every type.
    """
    rows = []
    for suite in SUITES:
        rows += part_rows(f"answer {suite}", answers(engine, suite, count))
    for answer_type in GRADES:
        for grounded, name in ((True, "challenge"), (False, "alone")):
            marks = tasks(engine, answer_type, count, grounded)
            rows += part_rows(f"{name} {answer_type}", marks)
    for kind in programs.TASK_KINDS:
        rows += part_rows(f"propose {kind}", proposed(engine, kind, count))
        rows += part_rows(f"solve {kind}", solved(engine, kind, count))
    return pd.DataFrame(rows)[COLUMNS]
