"""Malformed outputs: valid ones of every method, mutated with an eye to their grammar."""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import cycle

TOKEN = re.compile(r"(</?\w+>|\\\w+\{?|[{}\[\]()\",:/]|\d+|\s+)")
TAGS = ("answer", "think", "question", "search", "rubric", "task", "program", "input")
TAGS += ("tool_call", "function_calls", "information")
FRAGMENTS = [f"<{name}>" for name in TAGS] + [f"</{name}>" for name in TAGS]
FRAGMENTS += ["<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>", "<", ">", "</", "<answer"]
FRAGMENTS += [
    "\ud83d",
    "\udc00",
    "\\ud83d",
    "\\u0000",
    "\x00",
    "\u2028",
    "\u200b",
    "\u202e",
    "\r\n",
]
FRAGMENTS += ["٣", "²", "½", "Ⅳ", "１２", "−", "İ", "ß", "ﬁ", "e\u0301", "\u00a0", "\t", "\n", " "]
FRAGMENTS += ["9" * 400, "1e999", "-1e-999", "0x10", "1_000", "NaN", "Infinity", "-0", "1/0", "00"]
FRAGMENTS += [
    "9^9^9^9",
    "\\frac{1}{0}",
    "\\boxed{",
    "\\text{",
    "\\}",
    "{",
    "}",
    "[" * 300,
    "(" * 300,
]
FRAGMENTS += [
    "{" * 300,
    '{"',
    '"}',
    "null",
    "true",
    '"question": 1',
    "```json\n",
    "\n```",
    "\\",
    "%",
]
FRAGMENTS += ["f'{\"\u200b\"}'", "lambda: x", "x**x**x", "loop(1, x)", "when(x, 1", "x if x else x"]
FRAGMENTS += ["import os", "__import__('os')", "search(query=", "'\\N{DASH}'", "b'x'", "yes", "no"]
FRAGMENTS += ["or", "and", "not", ",", ";", ".", "$", "[Accept]", "[Offer: 1 Wood -> ² Brick]"]
REPEATED = (
    "<answer>",
    "</answer>",
    "<think>",
    "</think>",
    "<answer> 5</answer>",
    "\\boxed{",
    "\\boxed{5}",
)
REPEATED += (
    "{",
    "}",
    '{"',
    '{"a":',
    '{"question": "a", ',
    "[",
    "(",
    "a,",
    "a and ",
    ". ",
    "a. ",
    " ",
)
REPEATED += (
    "5",
    "5 ",
    "1,000",
    "-",
    "x",
    "x + ",
    "\n",
    "\\",
    "\\text{5}",
    "^",
    "$",
    "<search> a</search>",
)
REPEATED += (
    "mine: 1 ",
    "a risk ",
    "if ",
    "first of ",
    "the guide of the ",
    "- a (A)\n",
    "é",
    "<|im_end|>",
)
"""What is written again and again, up to 100,000 characters, to see how time grows."""


def mutated(valid: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Malformed texts without an end, each made of one or two valid ones."""
    for text in cycle(rng.sample(valid, len(valid))):
        parts = TOKEN.split(text)
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            _mutate(parts, rng)
        if rng.random() < 0.1:
            parts.insert(rng.randrange(2) * len(parts), rng.choice(valid))
        yield "".join(parts)


def _mutate(parts: list[str], rng: random.Random) -> None:
    """One change, in place."""
    at, to = rng.randrange(len(parts) or 1), rng.randrange(len(parts) or 1)
    match rng.randrange(9):
        case 0:  # without a part
            del parts[at : at + 1]
        case 1:  # twice
            parts[at:at] = parts[at : at + rng.randint(1, 8)]
        case 2:  # in another order
            if parts:
                parts[at], parts[to] = parts[to], parts[at]
        case 3:  # cut off
            del parts[at + 1 :]
        case 4 | 5:  # something hostile between
            parts.insert(at, rng.choice(FRAGMENTS))
        case 6:  # something hostile in its place
            parts[at : at + 1] = [rng.choice(FRAGMENTS)]
        case 7:  # within a tag
            name = rng.choice(TAGS)
            first, last = sorted((at, to))
            parts[first:last] = [f"<{name}>", *parts[first:last], f"</{name}>" * rng.randrange(2)]
        case 8:  # again and again
            parts[at : at + 1] = parts[at : at + 1] * rng.randint(2, 40)
