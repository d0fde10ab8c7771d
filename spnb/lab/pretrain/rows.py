"""The rows that policies are trained on, and the pieces that lessons write them from."""

import itertools
import random
import re
from collections.abc import Sequence

from spnb.core import prompts
from spnb.core.types import Messages, Task
from spnb.lab import oracle, tasks, texts
from spnb.lab.ladder import ORDINALS
from spnb.lab.oracle import Answer, Op, Query
from spnb.lab.texts import Fact, sentence
from spnb.lab.world import BY_NOUN, SUFFIXES, WORDS, Pool, names

START, END = "<|im_start|>", "<|im_end|>"
Segment = tuple[str, bool | tuple[str, ...]]
Row = list[Segment]
"""A training text in pieces. True marks what the policy is to write; several texts of one token
each stand for a piece that it is to draw from them, each as likely."""
WORKED = {"sum": " {0} + {1} = {2}.", "difference": " {1} - {0} = {2}."}
WORKED["margin"] = " {0} - {1} = {2}."


def turn(messages: Messages, *answer: Segment) -> Row:
    """One user turn and the assistant's answer, whose pieces from outside are marked False."""
    prompt = f"{START}user\n{messages[-1]['content']}{END}\n{START}assistant\n"
    return [(prompt, False), *answer, (END, True), ("\n", False)]


def conversation(first: Messages, label: str, exchanges: Sequence[tuple[str, str]]) -> Row:
    """Questions with answers, turn by turn: the prompt `first`, later questions after `label`."""
    row = turn(first, (exchanges[0][1], True))
    for question, reply in exchanges[1:]:
        row += turn([{"role": "user", "content": f"{label}: {question}"}], (reply, True))
    return row


def answer_tag(text: str) -> str:
    """An answer in its tag."""
    return f"<answer> {text}</answer>"


def verdict_tag(yes: bool) -> str:
    """A verdict in the answer tag."""
    return answer_tag(prompts.YES if yes else prompts.NO)


def thoughts(facts: Sequence[Fact]) -> str:
    """Facts in the order of the steps, inside the thinking tag."""
    return f"<think> {' '.join(sentence(fact) for fact in facts)}</think>"


def solution(query: Query, gold: Answer) -> str:
    """The right answer; first a thought where it takes figures or more than one fact."""
    if query.op in tasks.NUMERIC_OPS:
        return f"<think> {working(query.op, gold)}</think>{answer_tag(gold.text)}"
    return (thoughts(gold.facts) if len(gold.facts) > 1 else "") + answer_tag(gold.text)


def working(op: Op, gold: Answer) -> str:
    """The lines of the table that a numeric answer rests on, and the sum where there is one."""
    lines = []
    for company, label, value in gold.facts:
        metric, year = label.split()
        lines.append(f"{texts.table_row(year, company, metric, value)}.")
    values = [value for _, _, value in gold.facts]
    return " ".join(lines) + WORKED.get(op, "").format(*values, gold.text)


def exchange(query: Query, gold: Answer, rng: random.Random) -> tuple[str, str]:
    """A question in one of the training frames, and its solution."""
    return oracle.ask(query, rng.choice(oracle.TRAIN_FRAMES)), solution(query, gold)


def draw_pool(rng: random.Random) -> Pool:
    """Which names a row uses: all are to be known as words; the facts are new in every row."""
    return "train" if rng.random() < 2 / 3 else "heldout"


def fresh_task(rng: random.Random, level: tasks.Level, style: prompts.Style = "careful") -> Task:
    """A path task in a world of its own, with names of either pool."""
    return tasks.path_task(rng, level, draw_pool(rng), style=style)


def wrong_answer(task: Task, rng: random.Random) -> str:
    """A wrong answer of the right type; three times in four one that the documents state."""
    values, letter = tasks.options(task, rng)
    del values[tasks.LETTERS.index(letter)]
    return rng.choice(values)


def wrong_value(task: Task, noun: str, value: str, rng: random.Random) -> str:
    """Another value of a relation: one that the documents state if there is one, else any."""
    kind = BY_NOUN[noun].value
    rivals = [v for _, n, v in tasks.stated(task) if BY_NOUN[n].value == kind and v != value]
    if rivals:
        return rng.choice(rivals)
    if kind in SUFFIXES:
        pool = task.info["world"].pool
        return rng.choice([name for name in names(kind, pool) if name != value])
    if kind in WORDS:
        return rng.choice([word for word in WORDS[kind] if word != value])
    return str(int(value) + rng.choice((-3, -2, -1, 1, 2, 3)))


def sum_of(a: int, b: int, rng: random.Random) -> tuple[str, int]:
    """A sum of two numbers or their difference, and its value, which is never negative."""
    if rng.random() < 0.5:
        return f"{a} + {b}", a + b
    return f"{max(a, b)} - {min(a, b)}", abs(a - b)


ORDINAL = re.compile(f"( (?:{'|'.join(ORDINALS)}))\\b")


def by_ordinals(text: str, ordinals: Sequence[str]) -> Row:
    """A text that takes ordinals in any order, each drawn from those left."""
    left = [f" {ordinal}" for ordinal in ordinals]
    row: Row = []
    for piece in ORDINAL.split(text):
        row.append((piece, tuple(left) if piece in left else True))
        if piece in left:
            left.remove(piece)
    return row


def along(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The words of the second text up to the first that differs, then what the first one has."""
    pairs = list(itertools.zip_longest(first, second, fillvalue=""))
    same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    differ = pairs[len(same)] if len(same) < len(pairs) else ()
    return [word for word, _ in same] + [word for word in reversed(differ) if word]
