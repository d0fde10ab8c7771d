"""A second reading of answers, verdicts and numbers: simple, slow, and written without a look at
the first one's code. What the first takes for right has to be right by this one."""

import ast
from collections.abc import Sequence
from fractions import Fraction

SMALL_WORDS = {"a", "an", "the", "in", "about", "mr", "ms", "dr", "year", "town", "river"}
SMALL_WORDS |= {"company", "number"}


def outside(text: str) -> str:
    """What is not thought: after the last `</think>` that nothing opened, between thoughts, up to
    a `<think>` that nothing closes."""
    kept, thinking, at = "", False, 0
    while at < len(text):
        if text.startswith("<think>", at):
            thinking, at = True, at + 7
        elif text.startswith("</think>", at):
            kept = kept if thinking else ""
            thinking, at = False, at + 8
        else:
            kept += "" if thinking else text[at]
            at += 1
    return kept


def field(text: str, tag: str = "answer") -> str | None:
    """What stands in the tag that is opened last."""
    parts = outside(text).split(f"<{tag}>")
    inside = parts[-1].split(f"</{tag}>")
    return inside[0].strip() or None if len(parts) > 1 and len(inside) > 1 else None


def boxed(text: str) -> str | None:
    """What stands in the last box, by counting braces; wrappers stay."""
    text = outside(text)
    starts = [at for at in range(len(text)) if text.startswith("\\boxed", at)]
    opened = [(at, text[at + 6 :].lstrip()) for at in starts]
    opened = [rest for _, rest in opened if rest.startswith("{")]
    if not opened:
        return None
    depth, inside, escaped = 0, "", False
    for letter in opened[-1]:
        depth += 0 if escaped else {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0:
            return inside[1:].strip()
        escaped = letter == "\\" and not escaped
        inside += letter
    return None


def verdict(text: str) -> bool | None:
    """Yes or no."""
    said = (field(text) or "").strip(" .").lower()
    return True if said == "yes" else False if said == "no" else None


def words(text: str) -> list[str]:
    """Letters and digits alone, in small letters, one string a word."""
    plain = "".join(one if one.isalnum() else " " for one in text.casefold())
    return plain.split()


def meat(text: str) -> str:
    """The words without small ones, joined; a fraction of nothing but zeros is left out."""
    found = [word for word in words(text) if word not in SMALL_WORDS]
    if len(found) == 2 and found[0].isdigit() and set(found[1]) == {"0"}:
        found = found[:1]
    return "".join(found)


def number(text: str) -> Fraction | None:
    """A number in ASCII digits with sign, currency, groups of three, exponent, divisor, %."""
    text = text.strip().rstrip(".,").replace("−", "-")
    percent = text.endswith("%")
    text = text.removesuffix("%").rstrip("\\").strip() if percent else text
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-") if sign < 0 else text.removeprefix("+")
    text = text[1:] if text[:1] in ("$", "€", "£") else text
    above, slash, below = text.partition("/")
    first, *groups = above.partition(".")[0].split(",")
    letters = set(above) | set(below)
    fits = letters <= set("0123456789.,eE+-") and all(len(one) == 3 for one in groups)
    if not fits or (groups and not 1 <= len(first) <= 3) or (slash and not below.isdigit()):
        return None
    try:
        value = Fraction(above.replace(",", "")) / (int(below) if slash else 1)
    except (ValueError, ZeroDivisionError):
        return None
    return sign * value / (100 if percent else 1)


def arithmetic(text: str) -> Fraction | None:
    """The value of numbers with + - * / and brackets; None for everything else."""
    try:
        return _value(ast.parse(text.replace("^", "**").strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as found) if type(found) is not bool:
            return Fraction(str(found))
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -_value(one)
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _value(left), _value(right)
            ways = {ast.Add: first.__add__, ast.Sub: first.__sub__, ast.Mult: first.__mul__}
            ways |= {ast.Div: first.__truediv__}
            if type(op) in ways:
                return ways[type(op)](second)
    raise ValueError("no arithmetic")


def may_be_right(kind: str, answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer can be right for one of the golds at all, by this reading."""
    if kind in ("numeric", "integer"):
        return number(answer) is not None and number(answer) in map(number, golds)
    if kind in ("expression", "ordered"):
        value = number(answer) or arithmetic(answer)
        if value is None:
            return any(letter.isnumeric() for letter in answer)
        return value in [number(gold) for gold in golds]
    if kind == "input":
        digits = set(answer.strip()) <= set("0123456789")
        return digits and _comes_out(golds[0], f"{answer} {golds[1]}")
    if kind == "program":
        return True if _unknown(answer) else all(_comes_out(answer, gold) for gold in golds)
    if kind in ("letter", "literal"):
        return answer.strip(" .()\n\t").casefold() in [gold.strip().casefold() for gold in golds]
    said = meat(answer)
    return any(meat(gold) in said if kind != "exact" else meat(gold) == said for gold in golds)


def _unknown(program: str) -> bool:
    """Whether a program has more than sums and products, which may be cut to 0..99 at the end."""
    return not set(program) <= set("0123456789x+-* ()\n\t") or "**" in program


def _comes_out(program: str, pair: str) -> bool:
    x, output = map(int, pair.split())
    return eval(program.strip(), {"x": x}) % 100 == output  # (its only name is x)
