"""Short questions near the games, with computed answers: the transfer suite of the embedded scale.

SPIRAL asks whether skill from games shows outside of them, in mathematics and general reasoning.
The embedded policy can read none of these. It is asked to read a board in other words than a game's
(`TRANSFER`): where a mark completes a line, which it gets right twice as often as by guessing, and
how many cells hold a mark, which is a guess and reported as one. Two more kinds were among its
lessons and measure nothing: adding chips, which it never gets wrong, and comparing two cards, which
it answers like a coin.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence

from spnb.core.types import Task, derive_seed

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
CARDS = "JQK"
CLOSING = "Answer in \\boxed{}."


def _question(kind: str, text: str, answer: str) -> Task:
    text = f"{text} {CLOSING}"
    messages = [{"role": "user", "content": text}]
    return Task(messages, text, (answer,), "literal", kind, {"tag": "boxed"})


def _rows(cells: list[str]) -> str:
    """A board in three lines, free cells as their numbers."""
    shown = [str(i) if cell == "." else cell for i, cell in enumerate(cells)]
    return "\n".join(" ".join(shown[i : i + 3]) for i in (0, 3, 6))


def _line(rng: random.Random) -> Task:
    """Two of a mark in a line with the third cell free; only one such cell on the board."""
    while True:
        cells = [rng.choice("..xo") for _ in range(9)]
        mark = rng.choice("xo")
        match completing_cells(cells, mark):
            case [cell]:
                text = f"{_rows(cells)}\nWhere does {mark} complete a line?"
                return _question("line", text, str(cell))


def _card(rng: random.Random) -> Task:
    first, second = rng.sample(CARDS, 2)
    wanted = rng.choice(("higher", "lower"))
    right = (CARDS.index(first) > CARDS.index(second)) == (wanted == "higher")
    text = f"Seat 0 has {first}, seat 1 has {second}. Whose card is {wanted}?"
    return _question("card", text, "0" if right else "1")


def _chips(rng: random.Random) -> Task:
    pot = rng.randint(1, 8)
    more = min(rng.randint(0, 4), 9 - pot)
    text = f"There are {pot} chips in the pot. A player adds {more}. How many chips are there now?"
    return _question("chips", text, str(pot + more))


def _count(rng: random.Random) -> Task:
    cells = [rng.choice("..xo") for _ in range(9)]
    mark = rng.choice("xo")
    text = f"{_rows(cells)}\nHow many cells have {mark}?"
    return _question("count", text, str(cells.count(mark)))


KINDS: dict[str, Callable[[random.Random], Task]] = {"line": _line, "card": _card}
KINDS |= {"chips": _chips, "count": _count}
TRANSFER = ("line", "count")
"""The kinds of the transfer suite: reading a board in other words."""


def completing_cells(cells: list[str], mark: str) -> list[int]:
    """Free cells (".") of a board of nine, in order, where `mark` completes a line of three."""
    lines = [line for line in LINES if Counter(cells[c] for c in line) == {mark: 2, ".": 1}]
    return sorted({cell for line in lines for cell in line if cells[cell] == "."})


def questions(count: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> list[Task]:
    """`count` questions, the kinds taking turns; the same for the same seed.

    A question's kind (line, card, ...) is its `difficulty`; it is graded by its boxed answer. There
    are repetitions: only 12 different questions are about cards and a few dozen about chips.
    """
    rng = random.Random(seed)
    return [KINDS[kind](rng) for kind in itertools.islice(itertools.cycle(kinds), count)]


def transfer_suite(count: int, draw: str = "") -> list[Task]:
    """The first `count` questions of the transfer suite, or of another with a `draw`'s name."""
    return questions(count, derive_seed("transfer suite", *filter(None, [draw])), TRANSFER)
