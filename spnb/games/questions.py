"""Short questions near the games, with known answers: the transfer suite of the embedded scale.

SPIRAL asks whether skill from games shows outside of them. At paper scale the benchmarks are
mathematics and general reasoning; the embedded policy can read none of these, so it is asked about
lines on a board, cards and chips, in sentences that no game prints. The answers are computed, never
written by a model.
"""

import random
from collections.abc import Callable

from spnb.core.types import Task

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
        open_cells = completing_cells(cells, mark)
        if len(open_cells) == 1:
            break
    text = f"{_rows(cells)}\nWhere does {mark} complete a line?"
    return _question("line", text, str(open_cells[0]))


def _card(rng: random.Random) -> Task:
    first, second = rng.sample(CARDS, 2)
    wanted = rng.choice(("higher", "lower"))
    higher = CARDS.index(first) > CARDS.index(second)
    answer = "0" if higher == (wanted == "higher") else "1"
    text = f"Seat 0 has {first}, seat 1 has {second}. Whose card is {wanted}?"
    return _question("card", text, answer)


def _chips(rng: random.Random) -> Task:
    pot, more = rng.randint(1, 8), rng.randint(0, 4)
    more = min(more, 9 - pot)
    text = f"There are {pot} chips in the pot. A player adds {more}. How many chips are there now?"
    return _question("chips", text, str(pot + more))


def _count(rng: random.Random) -> Task:
    cells = [rng.choice("..xo") for _ in range(9)]
    mark = rng.choice("xo")
    text = f"{_rows(cells)}\nHow many cells have {mark}?"
    return _question("count", text, str(cells.count(mark)))


KINDS: dict[str, Callable[[random.Random], Task]] = {
    "line": _line,
    "card": _card,
    "chips": _chips,
    "count": _count,
}


def completing_cells(cells: list[str], mark: str) -> list[int]:
    """Free cells (".") where `mark` would complete a line of three on a board of nine cells, in
    order."""
    return [
        cell
        for cell in range(9)
        if cells[cell] == "."
        and any(cell in line and sum(cells[c] == mark for c in line) == 2 for line in LINES)
    ]


def questions(count: int, seed: int) -> list[Task]:
    """`count` questions, the kinds taking turns; the same for the same seed.

    A question's kind (line, card, ...) is its `difficulty`; it is graded by its boxed answer. They
    are drawn with repetition: there are only 12 different questions about cards and a few dozen
    about chips.
    """
    rng = random.Random(seed)
    makers = list(KINDS.values())
    return [makers[index % len(makers)](rng) for index in range(count)]
