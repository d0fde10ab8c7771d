"""Malformed outputs: valid ones of every method, mutated with an eye to their grammar.

`texts.json` has tags, valid outputs, hostile fragments, and what is written again and again, up to
100,000 characters, to see how time grows.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

TOKEN = re.compile(r"(</?\w+>|\\\w+\{?|[{}\[\]()\",:/]|\d+|\s+)")
TEXTS = json.loads(Path(__file__).with_name("texts.json").read_text())
TAGS, VALID, REPEATED = TEXTS["tags"], TEXTS["valid"], TEXTS["repeated"]
FRAGMENTS = TEXTS["fragments"] + [f"<{name}>" for name in TAGS] + [f"</{name}>" for name in TAGS]


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
    first, last = sorted(rng.randrange(len(parts) + 1) for _ in range(2))
    inside = parts[first:last]
    match rng.randrange(8):
        case 0:  # without a part
            del parts[first : first + 1]
        case 1:  # twice
            parts[first:last] = inside * 2
        case 2:  # in another order
            parts[first:last] = inside[::-1]
        case 3:  # cut off
            del parts[last:]
        case 4:  # something hostile between
            parts.insert(first, rng.choice(FRAGMENTS))
        case 5:  # something hostile in its place
            parts[first : first + 1] = [rng.choice(FRAGMENTS)]
        case 6:  # within a tag, which may stay open
            name = rng.choice(TAGS)
            parts[first:last] = [f"<{name}>", *inside, f"</{name}>" * rng.randrange(2)]
        case 7:  # again and again
            parts[first : first + 1] = parts[first : first + 1] * rng.randint(2, 40)
