"""The questions of the transfer suite, each answered again by brute force from its words alone."""

import itertools
import random
import re

import pytest

from spnb.core.grading import grade_text
from spnb.core.types import derive_seed
from spnb.games.questions import (
    CLOSING,
    KINDS,
    TRANSFER,
    completing_cells,
    questions,
    transfer_suite,
)

MAGIC = (2, 7, 6, 9, 5, 1, 4, 3, 8)
WINS = [
    triple
    for triple in itertools.combinations(range(9), 3)
    if sum(MAGIC[cell] for cell in triple) == 15
]
"""The eight lines of the board: three cells stand in line where a magic square sums to 15."""


def board(text):
    """The nine cells in a question's first three lines, free ones as ".", after checking the
    numbers of free cells."""
    shown = " ".join(text.splitlines()[:3]).split()
    assert len(shown) == 9 and all(
        cell in ("x", "o", str(place)) for place, cell in enumerate(shown)
    )
    return ["." if cell.isdigit() else cell for cell in shown]


def winning(cells, mark):
    """Free cells that, once marked, complete a line."""
    found = []
    for cell in (place for place in range(9) if cells[place] == "."):
        after = [*cells[:cell], mark, *cells[cell + 1 :]]
        if any(cell in line and all(after[place] == mark for place in line) for line in WINS):
            found.append(cell)
    return found


def answer_line(text):
    (cell,) = winning(board(text), re.search(r"Where does ([xo]) complete a line\?", text).group(1))
    return str(cell)


def answer_card(text):
    first, second, wanted = re.match(
        r"Seat 0 has ([JQK]), seat 1 has ([JQK])\. Whose card is (higher|lower)\?", text
    ).groups()
    rank = {"J": 11, "Q": 12, "K": 13}
    assert first != second
    best = max if wanted == "higher" else min
    return str([rank[first], rank[second]].index(best(rank[first], rank[second])))


def answer_chips(text):
    return str(sum(map(int, re.findall(r"\d+", text))))


def answer_count(text):
    mark = re.search(r"How many cells have ([xo])\?", text).group(1)
    return str(sum(cell == mark for cell in board(text)))


ANSWERS = {"line": answer_line, "card": answer_card, "chips": answer_chips, "count": answer_count}


def test_there_are_eight_lines():
    assert len(WINS) == 8


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_answer_is_right(seed):
    for question in questions(800, seed):
        (gold,) = question.gold
        assert gold == ANSWERS[question.difficulty](question.question), question
        assert question.question.endswith(f"? {CLOSING}") and re.fullmatch("[0-9]", gold)
        assert question.messages == [{"role": "user", "content": question.question}]


def test_answers_are_graded_by_the_box_alone():
    question = questions(1, 0)[0]
    (gold,) = question.gold
    assert grade_text(f"so \\boxed{{ {gold} }}", question) == 1.0
    for text in (f"<answer>{gold}</answer>", gold, f"\\boxed{{{gold}.}}", f"\\boxed{{0{gold}}}"):
        assert grade_text(text, question) == 0.0


def test_kinds_take_turns():
    assert [question.difficulty for question in questions(10, 3)] == [
        *KINDS,
        *KINDS,
        *list(KINDS)[:2],
    ]
    assert set(KINDS) == set(ANSWERS)
    assert questions(0, 3) == []


def test_the_transfer_suite_asks_about_boards_only():
    """The two kinds take turns, from a seed of their own; a longer suite begins like a shorter."""
    suite = transfer_suite(7)
    assert [task.difficulty for task in suite] == ["line", "count"] * 3 + ["line"]
    assert [len(task.question.splitlines()) for task in suite] == [4] * 7
    assert transfer_suite(20)[:7] == suite == questions(7, derive_seed("transfer suite"), TRANSFER)


def test_the_same_seed_gives_the_same_questions():
    assert questions(60, 5) == questions(60, 5) == questions(80, 5)[:60]
    assert questions(60, 5) != questions(60, 6)


def test_all_answers_occur():
    """Every cell is asked for, both seats, sums from 1 to 9 and counts from 0."""
    found = {kind: set() for kind in KINDS}
    for question in questions(2000, 0):
        found[question.difficulty].add(question.gold[0])
    assert found["line"] == set("012345678") and found["card"] == set("01")
    assert found["chips"] == set("123456789") and found["count"] >= set("0123456")


def test_completing_cells_on_any_board():
    rng = random.Random(0)
    for _ in range(1500):
        cells = rng.choices(".xo", k=9)
        for mark in "xo":
            assert completing_cells(cells, mark) == winning(cells, mark)
    assert completing_cells(list("xx..x...."), "x") == [2, 7, 8]
    assert completing_cells(["."] * 9, "x") == []
