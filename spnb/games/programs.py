"""A small language of expressions and the three kinds of tasks about them (Absolute Zero).

A program is one expression in the input x: numbers, `+ - * %`, `when(c, a, b)` (a where c is not 0,
else b) and `loop(c, e)` (as long as c is not 0, x becomes e; then its value is x). Numbers are 0 to
99 and go round, as in the ledger. An evaluator walks the parsed expression, with limits on size and
steps: no text is run as code.

    evaluate(parse("(x * 2 + 3) * 2 + 4"), 5)            # 30
    evaluate(parse("loop(1, x)"), 5)                     # ProgramError: no end after 2000 steps

Deduction: which output? Abduction: which input gives this output? Induction: which program gives
these outputs for these inputs, and right ones for others that are not shown?
"""

import ast
import operator
import random
from collections.abc import Callable, Sequence
from typing import Literal

from spnb.core.grading import register

TaskKind = Literal["deduction", "abduction", "induction"]
TASK_KINDS: tuple[TaskKind, ...] = ("deduction", "abduction", "induction")
ROUND = 100
"""Numbers are kept modulo this one."""
MOST_NODES = 64
MOST_CHARACTERS = 400
MOST_STEPS = 2000
"""Of a program: parts, characters, and parts that are evaluated on one input."""
HIGHEST = 6
"""Steps of a chain at most."""
OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
}
CALLS = {"when": 3, "loop": 2}
"""Functions and how many arguments they take."""


class ProgramError(ValueError):
    """A text is no program, or a program has no value; says why."""


def parse(text: str) -> ast.expr:
    """A program's expression.

    Raises:
        ProgramError: too long, not finished, or with parts that the language does not have.
    """
    if len(text) > MOST_CHARACTERS:
        raise ProgramError(f"{len(text)} characters; allowed: up to {MOST_CHARACTERS}")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ProgramError(f"{text!r} is no finished expression") from None
    parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
    if len(parts) > MOST_NODES:
        raise ProgramError(f"{len(parts)} parts; allowed: up to {MOST_NODES}")
    _check(node)
    return node


def _check(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=int() as number) if type(number) is int and 0 <= number < ROUND:
            return
        case ast.Name(id="x"):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            _check(left)
            _check(right)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if CALLS.get(name) == len(
            parts
        ):
            for part in parts:
                _check(part)
        case _:
            allowed = f"0 to {ROUND - 1}, x, + - * %, when(c, a, b), loop(c, e)"
            name = type(node).__name__  # no `unparse`: it raises on some trees
            raise ProgramError(f"{name} is not in the language; allowed: {allowed}")


def evaluate(program: ast.expr, x: int, steps: int = MOST_STEPS) -> int:
    """A parsed program's value for an input, 0 to 99.

    Raises:
        ProgramError: it does not end within so many steps, or divides by 0.
    """
    left = steps

    def value(node: ast.expr, x: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise ProgramError(f"no end after {steps} steps")
        match node:
            case ast.Constant(value=number):
                return number
            case ast.BinOp(left=first, op=op, right=second):
                pair = value(first, x), value(second, x)
                if isinstance(op, ast.Mod) and pair[1] == 0:
                    raise ProgramError("division by 0")
                return OPERATORS[type(op)](*pair) % ROUND
            case ast.Call(func=ast.Name(id="when"), args=[condition, then, other]):
                return value(then if value(condition, x) else other, x)
            case ast.Call(args=[condition, update]):
                while value(condition, x):
                    x = value(update, x)
                return x
        return x

    return value(program, x % ROUND)


def run(text: str, x: int) -> int | None:
    """The value of a program given as text, None where there is none."""
    try:
        return evaluate(parse(text), x)
    except ProgramError:
        return None


def runs(text: str, inputs: Sequence[int]) -> list[int] | None:
    """The values for several inputs; None for a text that is no program, lacks one, or does not
    use its input."""
    try:
        program = parse(text)
        values = [evaluate(program, x) for x in inputs]
    except ProgramError:
        return None
    uses = any(isinstance(node, ast.Name) and node.id == "x" for node in ast.walk(program))
    return values if uses else None


def read_input(text: str) -> int | None:
    """A number of the language, None for any other text."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else None


# --- tasks


def _grade_input(prediction: str, golds: Sequence[str]) -> float:
    """Abduction: `golds` are program and output, and any input that gives it is right."""
    program, output = golds
    x = read_input(prediction)
    return float(x is not None and run(program, x) == int(output))


def _grade_program(prediction: str, golds: Sequence[str]) -> float:
    """Induction: `golds` are pairs "input output", all of which have to come out."""
    pairs = [tuple(map(int, pair.split())) for pair in golds]
    return float(all(run(prediction, x) == output for x, output in pairs))


register("input", _grade_input)
register("program", _grade_program)
GRADES: dict[TaskKind, str] = {"deduction": "integer", "abduction": "input", "induction": "program"}
"""How answers to a kind of tasks are graded (`spnb.core.grading`)."""

Pairs = Sequence[tuple[int, int]]
"""Inputs of a program and what comes out."""


def golds(kind: TaskKind, program: str, pairs: Pairs) -> tuple[str, ...]:
    """What answers to a task are graded by: the first pair's output, the program with this output,
    or all pairs."""
    if kind == "induction":
        return tuple(f"{x} {output}" for x, output in pairs)
    output = str(pairs[0][1])
    return (program, output) if kind == "abduction" else (output,)


# --- chains: programs of a known number of steps


def chain(numbers: Sequence[str]) -> str:
    """The program that doubles and adds each number in turn, as a ledger counts."""
    text = "x"
    for place, number in enumerate(numbers):
        text = f"{text if place == 0 else f'({text})'} * 2 + {number}"
    return text


def draw_chain(rng: random.Random, level: int) -> list[str]:
    """The numbers of a chain of `level` steps; ValueError for more than `HIGHEST`."""
    if not 1 <= level <= HIGHEST:
        raise ValueError(f"level is {level!r}; allowed: 1 to {HIGHEST}")
    return [str(rng.randint(1, 9)) for _ in range(level)]


def trace(numbers: Sequence[str], x: int) -> list[int]:
    """The values of a chain after each of its steps."""
    values = []
    for number in numbers:
        x = (2 * x + int(number)) % ROUND
        values.append(x)
    return values
