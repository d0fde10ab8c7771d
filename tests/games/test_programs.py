"""The language of expressions: values by hand, limits, the three kinds of tasks."""

import random

import pytest

from spnb.core.grading import grade
from spnb.games import programs
from spnb.games.programs import (
    GRADES,
    MOST_CHARACTERS,
    MOST_NODES,
    ProgramError,
    chain,
    draw_chain,
    evaluate,
    parse,
    read_input,
    run,
    runs,
    trace,
)


@pytest.mark.parametrize(
    ("text", "x", "value"),
    [
        ("x", 7, 7),
        ("x", 107, 7),
        ("x * 2 + 3", 5, 13),
        ("(x * 2 + 3) * 2 + 4", 5, 30),
        ("2 + 3 * x", 4, 14),  # * before +
        ("x - 5", 3, 98),  # numbers go round
        ("x * x", 12, 44),
        ("x % 7 % 4", 12, 1),
        ("when(x - 3, 1, 2)", 3, 2),
        ("when(x - 3, 1, 2)", 4, 1),
        ("when(x, 1, 5 % 0)", 4, 1),  # only what is asked for is evaluated
        ("loop(x % 10, x + 1)", 42, 50),
        ("loop(x, x - 3) + 1", 9, 1),
        ("loop(50 % (x + 1), x + 1)", 0, 0),
    ],
)
def test_values_by_hand(text, x, value):
    assert run(text, x) == value


def test_an_expression_that_does_not_end_is_stopped():
    for endless in ("loop(1, x)", "loop(x * 2 + 1, x + 2)", "loop(loop(1, x), x)"):
        with pytest.raises(ProgramError, match="no end after 2000 steps"):
            evaluate(parse(endless), 1)
        assert run(endless, 1) is None and runs(endless, [1]) is None
    with pytest.raises(ProgramError, match="no end after 4 steps"):
        evaluate(parse("x * 2 + 3"), 1, steps=4)
    assert evaluate(parse("x * 2 + 3"), 1, steps=5) == 5  # five parts
    with pytest.raises(ProgramError, match="division by 0"):
        evaluate(parse("4 % (x - x)"), 1)


@pytest.mark.parametrize(
    "text",
    ["", "x +", "(x * 2", "x)", "when(x, 1", "x ** 2", "x / 2", "-x", "y", "100", "1.5", "True"]
    + ["'a'", "x if x else 1", "x.real", "x[0]", "[x]", "print(x)", "when(x, 1)", "loop(x, x, x)"]
    + ["__import__('os')", "lambda: x", "x, x", "when(x, 1, 2, c=3)", "x and 1", "x = 3", "x; x"]
    + ["(when)(*x)", "x\0", "(" * 300 + "x" + ")" * 300],
)
def test_what_is_not_in_the_language_is_no_program(text):
    with pytest.raises(ProgramError):
        parse(text)
    assert run(text, 1) is None


def test_size_is_limited():
    parts = " + ".join(["x"] * (MOST_NODES // 2))
    assert run(parts, 1) == MOST_NODES // 2
    with pytest.raises(ProgramError, match=f"65 parts; allowed: up to {MOST_NODES}"):
        parse(f"{parts} + x")
    with pytest.raises(ProgramError, match=f"characters; allowed: up to {MOST_CHARACTERS}"):
        parse("x" + " " * MOST_CHARACTERS)
    assert run("x" + " " * (MOST_CHARACTERS - 1), 1) == 1


def test_several_inputs_need_a_value_each_and_a_program_that_reads_them():
    assert runs("x + 1", [1, 2, 99]) == [2, 3, 0]
    assert runs("7 % x", [3, 0]) is None
    assert runs("3 + 4", [1, 2]) is None


def test_inputs_are_numbers_of_the_language():
    assert [read_input(text) for text in (" 7", "42", "007", "100", "-1", "x", "", "²")] == [
        *(7, 42),
        *[None] * 6,
    ]


def test_each_kind_is_graded_by_running_it():
    assert set(GRADES) == set(programs.TASK_KINDS)
    assert grade("30", "30", GRADES["deduction"]) == 1
    golds = ("x * 2 % 10", "4")
    assert [grade(x, golds, GRADES["abduction"]) for x in ("2", "7", "52", "3", "x")] == [
        *(1, 1, 1),
        *(0, 0),
    ]
    pairs = ("1 5", "2 7", "60 23")
    for program, right in (("x * 2 + 3", 1), ("3 + x + x", 1), ("x + 4", 0), ("x *", 0)):
        assert grade(program, pairs, GRADES["induction"]) == right
    assert grade("when(x - 1, 7, 5)", pairs, GRADES["induction"]) == 0  # right where shown only


def test_chains_count_as_a_ledger_does():
    assert chain(["3", "4", "9"]) == "((x * 2 + 3) * 2 + 4) * 2 + 9"
    for seed in range(30):
        rng = random.Random(seed)
        numbers, x = draw_chain(rng, 1 + seed % 6), rng.randrange(100)
        assert run(chain(numbers), x) == trace(numbers, x)[-1]
        assert [run(chain(numbers[:n]), x) for n in range(1, len(numbers))] == trace(numbers, x)[
            :-1
        ]
    assert trace(["3", "4", "9"], 0) == [3, 10, 29]
    with pytest.raises(ValueError, match="level is 7; allowed: 1 to 6"):
        draw_chain(random.Random(0), 7)
