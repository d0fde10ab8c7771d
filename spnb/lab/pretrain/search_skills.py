"""What a searcher can do before reinforcement learning: sampled at temperature 1, held-out names.

Answers by search and questions by search over the library of `spnb.lab.chain`, and answers from
the sentences that a chain takes.
"""

import random
from collections.abc import Sequence

import pandas as pd

from spnb.core import episodes, prompts
from spnb.core.grading import grade_text
from spnb.core.search import Tool, search_rollouts
from spnb.core.types import Chat, Messages, Sampling, derive_seed
from spnb.corpus.retrieval import make_retriever
from spnb.lab import chain
from spnb.lab.chain import HIGHEST, RESULTS
from spnb.lab.pretrain.ladder_skills import COLUMNS, POOL
from spnb.lab.pretrain.skills import Mark, part_rows
from spnb.lab.world import names
from spnb.train.engines.torch import TorchEngine

NEW_TOKENS, MAX_LENGTH = 64, 1024
"""Of a turn, and of prompt, turns and results together."""


def texts(engine: TorchEngine, prompted: Sequence[Messages], searches: int) -> list[str]:
    """A policy's own words over all turns, with at most so many searches."""
    chat, sampling = Chat(engine.tokenizer), Sampling(NEW_TOKENS, 1.0)
    requests = [
        chat.request(messages, sampling, derive_seed("search skills", place))
        for place, messages in enumerate(prompted)
    ]
    index = make_retriever("bm25", chain.library(POOL))
    tool = Tool(engine.tokenizer, index, RESULTS, searches, MAX_LENGTH)
    episode = search_rollouts(requests, [""] * len(requests), tool)
    return [row.policy_text for row in episodes.run(episode, {"policy": engine})]


def answers(engine: TorchEngine, count: int, told: bool = False) -> list[Mark]:
    """`count` answers at each level, by search or from the sentences (`told`); well-formed where
    they follow each relation once, in any order, or can be read."""
    rng = random.Random(derive_seed("search skills", "answer"))
    levels = [level for level in range(1, HIGHEST + 1) for _ in range(count)]
    tasks = [chain.draw_task(level, rng, POOL) for level in levels]
    prompted = [task.messages for task in tasks]
    if told:
        documents = [rng.sample(task.info["documents"], task.info["level"]) for task in tasks]
        prompted = [
            prompts.answer(task.question, told, "plain")
            for task, told in zip(tasks, documents, strict=True)
        ]
    return [
        ({f"level {task.info['level']}": grade_text(text, task)},
         told or chain.order_of(task, text) is not None)
        for task, text in zip(tasks, texts(engine, prompted, 0 if told else HIGHEST), strict=True)
    ]  # fmt: skip


def questions(engine: TorchEngine, count: int) -> list[Mark]:
    """Whether questions have each level; well-formed where they lead to the answer they are for."""
    rng = random.Random(derive_seed("search skills", "ask"))
    targets = [rng.choice(names("person", POOL)) for _ in range(count)]
    written = texts(engine, [chain.ask(target) for target in targets], HIGHEST)
    marks = []
    for text, target in zip(written, targets, strict=True):
        task = chain.read_proposal(text, target, POOL)
        parts = {"valid": float(task is not None)}
        if task:
            levels = range(1, HIGHEST + 1)
            parts |= {f"asks level {one}": float(task.info["level"] == one) for one in levels}
        marks.append((parts, task is not None))
    return marks


def measure(engine: TorchEngine, count: int = 200) -> pd.DataFrame:
    """All skills of a searcher; columns as `ladder_skills.measure`."""
    rows = part_rows("answer chain", answers(engine, count))
    rows += part_rows("answer chain, told", answers(engine, count, told=True))
    rows += part_rows("ask chain", questions(engine, count))
    return pd.DataFrame(rows)[COLUMNS]
