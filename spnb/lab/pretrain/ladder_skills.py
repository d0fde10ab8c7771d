"""What a learner can do before reinforcement learning: sampled at temperature 1, held-out names.

Answers of every family by level, in held-out wordings; questions by level; judging, rubrics and
grading, whose demonstrations are right as often as `spnb.lab.pretrain.learner` says.
"""

import random
from collections.abc import Sequence

import pandas as pd

from spnb.core import prompts
from spnb.core.grading import grade_text
from spnb.core.types import Chat, Messages, Sampling, Task, derive_seed
from spnb.lab import ladder
from spnb.lab.ladder import RIVALS, WORLDS, Source
from spnb.lab.pretrain.skills import Mark, part_rows
from spnb.train.engines.torch import TorchEngine

NEW_TOKENS = 128
SOURCES = 2
POOL: ladder.Pool = "heldout"
COLUMNS = ["benchmark", "part", "value", "low", "high", "n", "parsed"]


def texts(engine: TorchEngine, prompted: Sequence[Messages]) -> list[str]:
    """A policy's answers, each sampled with a seed of its place."""
    chat, sampling = Chat(engine.tokenizer), Sampling(NEW_TOKENS, 1.0)
    requests = [
        chat.request(messages, sampling, derive_seed("ladder skills", place))
        for place, messages in enumerate(prompted)
    ]
    return [completion.text for completion in engine.generate(requests)]


def draw(family: str, level: int, rng: random.Random) -> Task:
    """A question in held-out names and wording."""
    return ladder.draw_task(family, level, rng, POOL, POOL, RIVALS)


def answers(engine: TorchEngine, family: str, highest: int, count: int) -> list[Mark]:
    """`count` answers at each level; well-formed where they take each step once, in any order."""
    rng = random.Random(derive_seed("ladder skills", family))
    tasks = [draw(family, level, rng) for level in range(1, highest + 1) for _ in range(count)]
    written = texts(engine, [task.messages for task in tasks])
    return [
        ({f"level {task.info['level']}": grade_text(text, task)}, bool(ladder.order_of(task, text)))
        for task, text in zip(tasks, written, strict=True)
    ]


def questions(engine: TorchEngine, family: str, highest: int, count: int) -> list[Mark]:
    """Whether proposals ask for each level; well-formed where they are valid."""
    rng = random.Random(derive_seed("ladder skills", "ask", family))
    read = [ladder.draw_sources(rng, family, SOURCES, highest, POOL) for _ in range(count)]
    written = texts(engine, [ladder.ask(sources) for sources in read])
    return [_asked(text, sources, highest) for text, sources in zip(written, read, strict=True)]


def _asked(text: str, sources: Sequence[Source], highest: int) -> Mark:
    valid = ladder.read_proposal(text, sources)
    levels = range(1, highest + 1)
    asked = {f"asks level {level}": float(valid[1] == level) for level in levels} if valid else {}
    return {"valid": float(valid is not None), **asked}, valid is not None


def verdicts(engine: TorchEngine, role: str, highest: int, count: int) -> list[Mark]:
    """Verdicts of a judge (two answers to one question) or a grader (a point of a report)."""
    rng = random.Random(derive_seed("ladder skills", role))
    prompted, golds = [], []
    for _ in range(count):
        family = "report" if role == "grade" else "journey"
        task = draw(family, rng.randint(2, highest), rng)
        steps = range(task.info["level"])
        first, second = (_written(task, rng.sample(steps, len(steps))) for _ in range(2))
        same = rng.random() < 1 / 2
        if role == "judge":
            second = first if same else second
            prompted.append(prompts.judge(task.question, first, second))
            golds.append(first == second)
        else:
            point, other = rng.choice(task.gold), draw(family, 1, rng).gold[0].split()[-1]
            wrong = " ".join([*point.split()[:-1], other])
            prompted.append(prompts.grade(first, point if same else wrong))
            golds.append(same or wrong == point)
    said = [prompts.verdict(text) for text in texts(engine, prompted)]
    return [
        ({"right": float(verdict == gold)}, verdict is not None)
        for verdict, gold in zip(said, golds, strict=True)
    ]


def _written(task: Task, order: Sequence[int]) -> str:
    return prompts.field(ladder.reply(task, order), "answer") or ""


def rubrics(engine: TorchEngine, highest: int, count: int) -> list[Mark]:
    """Points of rubrics that the documents state, and the share of all points that are listed."""
    rng = random.Random(derive_seed("ladder skills", "rubric"))
    tasks = [draw("report", rng.randint(2, highest), rng) for _ in range(count)]
    prompted = [prompts.rubric(task.question, task.info["documents"]) for task in tasks]
    marks = []
    for task, text in zip(tasks, texts(engine, prompted), strict=True):
        points = set(prompts.fields(text, "rubric"))
        right = len(points & set(task.gold))
        parts = {"points right": right / len(points)} if points else {}
        marks.append((parts | {"points listed": right / len(task.gold)}, bool(points)))
    return marks


def measure(engine: TorchEngine, highest: int, count: int = 200) -> pd.DataFrame:
    """All skills of a learner.

    Columns: benchmark, part, value (0 to 1), low, high (95 %), n, parsed (share of well-formed
    outputs). `count`: answers a level, and outputs of every other role.
    """
    rows = []
    for family in WORLDS:
        rows += part_rows(f"answer {family}", answers(engine, family, highest, count))
        rows += part_rows(f"ask {family}", questions(engine, family, highest, count))
    for role in ("judge", "grade"):
        rows += part_rows(role, verdicts(engine, role, highest, count))
    rows += part_rows("rubric", rubrics(engine, highest, count))
    return pd.DataFrame(rows)[COLUMNS]
