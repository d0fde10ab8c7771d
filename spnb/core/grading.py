r"""Answers: how one is read out of a policy's text, and how it is graded against the gold answer.

    grade("the town Arnford.", "Arnford")                       # 1.0: exact

Right is an answer that any of the gold texts fits, by kind: literal (the same text), exact (the
same after `normal`), words (the same words), cover (gold's words stand in it), numeric (the same
number: 1,234.5, 12 %, 3/4, $5), integer, letter (of an option), expression (`same_expression`),
ordered (`same_in_order`). `register` adds a kind whose gold has a text for each part.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise

from spnb.core import formulas, prompts
from spnb.core.params import require
from spnb.core.types import Sample, Task, Trajectory

PartsGrader = Callable[[str, Sequence[str]], float]

BOX = re.compile(r"\\boxed\s*\{")
UPRIGHT = r"\\(?:text(?:tt|rm|bf|it)?|mathrm|mbox)\s*"
FONT = rf"(?:{UPRIGHT}|\\(?:mathbf|bm|boldsymbol)\s*)"
WRAPPER = re.compile(FONT + r"\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped character is no brace


def grade(
    prediction: str, gold: str | Sequence[str], kind: str = "exact", tolerance: float = 0.0
) -> float:
    """The grade of an answer, 0 to 1.

    Args:
        gold: right answers of which any will do, or one for each part (see the module).
        tolerance: of numeric, relative to gold; SPELL's rule for accounts has 0.0015.

    Raises:
        ValueError: unknown kind.
    """
    golds = (gold,) if isinstance(gold, str) else gold
    if kind in PARTS:
        return PARTS[kind](prediction, golds)
    require("kind of grading", kind, [*RULES, *PARTS], ValueError)
    rule = partial(_same_number, tolerance=tolerance) if kind == "numeric" else RULES[kind]
    return float(any(rule(text, prediction) for text in golds))


def grade_text(text: str, task: Task) -> float:
    """The grade of a policy's whole output, 0 where no answer can be read from it: by the task's
    own tag (`info["tag"]`, else "answer") and tolerance of numbers (`info["tolerance"]`)."""
    answer = read_answer(text, task.info.get("tag", "answer"))
    tolerance = task.info.get("tolerance", 0.0)
    return 0.0 if answer is None else grade(answer, task.gold, task.kind, tolerance)


def read_answer(text: str, tag: str = "answer") -> str | None:
    """The answer in a text, in `<tag>` or for "boxed" in a box, by the rule of `spnb.core.prompts`;
    None without one."""
    return extract_boxed(text) if tag == "boxed" else prompts.field(text, tag)


def graded(
    tasks: Sequence[Task], groups: Sequence[Sequence[Trajectory]], role: str
) -> list[Sample]:
    """A group of answers to each task as samples, 1 for a right answer; `group` is the place."""
    samples = []
    for place, (task, answers) in enumerate(zip(tasks, groups, strict=True)):
        for trajectory in answers:
            text = trajectory.policy_text
            sample = trajectory.sample(grade_text(text, task), role, place)
            sample.invalid = read_answer(text, task.info.get("tag", "answer")) is None
            sample.info["gold"] = ", ".join(task.gold)
            samples.append(sample)
    return samples


def register(kind: str, grader: PartsGrader) -> None:
    """Adds a kind of several parts, or one that needs to know more than text."""
    PARTS[kind] = grader


def majority_vote(answers: Sequence[str | None], kind: str = "exact") -> str | None:
    """The most frequent answer, equal ones by a kind of grading; of equally frequent the first.

    None and empty answers are not counted; None where no other is there. (SPELL's verifier asks for
    more than half: count its votes.)
    """
    votes = [answer for answer in answers if answer is not None and normal(answer)]
    counts = {vote: sum(grade(one, vote, kind) for one in votes) for vote in dict.fromkeys(votes)}
    return max(counts, key=counts.__getitem__, default=None)


def extract_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, without outer spaces and one \text, \mathbf.

    Braces are matched, escaped ones skipped. Boxes in thoughts do not count; None if there is no
    other, or the last is not closed (the rule of `spnb.core.prompts`).
    """
    text = prompts.outside(text)
    start = max((box.end() for box in BOX.finditer(text)), default=None)
    end = None if start is None else _closing_brace(text, start)
    if end is None:
        return None
    content = text[start:end].strip()
    wrapper = WRAPPER.match(content)
    if wrapper and _closing_brace(content, wrapper.end()) == len(content) - 1:
        content = content[wrapper.end() : -1].strip()
    return content


def _closing_brace(text: str, start: int) -> int | None:
    """Index of the brace that closes the one just before `start`, None if nothing does."""
    braces = list(BRACE.finditer(text, start))
    depths = accumulate({"{": 1, "}": -1}.get(brace.group(), 0) for brace in braces)
    return next((at.start() for at, depth in zip(braces, depths, strict=True) if depth < 0), None)


# --- words

ARTICLES = re.compile(
    r"(?:(?:the year|the town|the river|the company|the number|mr|ms|dr|the|a|an|in|about)\s+)++",
    re.IGNORECASE,
)


PRINTED = str.maketrans("’‘“”‐‑‒–—−", "''\"\"------")
INITIAL = re.compile(r"\b([^\W\d_]{1,2})\.(?=[^\W\d_]\b)")
NO_SPACES = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Characters of scripts in which no spaces part words, inside of a class."""
_DIGITS = rf"\d[^\W{NO_SPACES}]*"
WORD = re.compile(
    rf"(?:(?<!\w)-)?{_DIGITS}(?:[.,/:]{_DIGITS})*|[{NO_SPACES}]"
    rf"|[^\s!-/:-@\[-`{{-~…、。«»„¿¡·।{NO_SPACES}]+"
)
"""A number, one Chinese or Japanese character (no spaces part their words), or another word."""
SPACES = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
"""Spaces, but for those between digits: "3 1/2" is not "31/2"."""


def normal(text: str) -> str:
    """An answer without case, outer punctuation, articles, titles, type words, a printer's marks as
    those of a keyboard; "47.0" as "47", but ".5" and "5!" as they are."""
    text = unicodedata.normalize("NFC", " ".join(text.split())).casefold().translate(PRINTED)
    if not re.fullmatch(r"\d+!+", text):
        text = re.sub(r"^(?:[ ,;:!\"']|\.(?!\d))+", "", text).rstrip(" .,;:!\"'")
    if articles := ARTICLES.match(text):
        text = text[articles.end() :]
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def same(gold: str, prediction: str) -> bool:
    """Whether two answers are equal after `normal`, and not empty."""
    return normal(gold) == normal(prediction) != ""


def _covers(gold: str, prediction: str) -> bool:
    """Cover exact match of R1-Searcher and SPELL, by words (theirs also takes "4" in "14"): every
    mark parts them but those inside numbers and abbreviations."""
    plain = (formulas.without_thousands(_typed(text)) for text in (gold, prediction))
    answer, text = (_joined(WORD.findall(INITIAL.sub(r"\1", each))) for each in plain)
    return f" {answer} " in f" {text} " and answer != ""


def _typed(text: str) -> str:
    """A text without case, a printer's marks as those of a keyboard."""
    return unicodedata.normalize("NFKC", text).casefold().translate(PRINTED)


def _joined(words: Iterable[str]) -> str:
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def _words(text: str) -> str:
    """The words of a text without case, punctuation and articles, as SQuAD compares answers."""
    return _joined(_typed(text).translate(str.maketrans("", "", string.punctuation)).split())


def _same_words(gold: str, prediction: str) -> bool:
    """SQuAD's exact match; an answer of nothing but articles or punctuation as it stands."""
    if _words(gold):
        return _words(gold) == _words(prediction)
    return gold.strip() != "" and gold.casefold().split() == prediction.casefold().split()


# --- numbers

NUMBER = re.compile(
    r"(?P<sign>[+-]?)[$€£]?(?=\.?[0-9])(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)"
    r"(?P<rest>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)(?:/(?P<below>[0-9]+))?(?P<percent>\s?\\?%)?"
)
INTEGER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.0+)?[.,]*")
LONGEST = 200
"""Characters that a number or an expression may have."""


def _number(text: str) -> Fraction | None:
    text = text.strip().rstrip(".,").replace("−", "-")
    match = NUMBER.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    below = int(match["below"] or 1) * (100 if match["percent"] else 1)
    digits = match["sign"] + match["whole"].replace(",", "") + match["rest"]
    return Fraction(digits) / below if below else None


def _same_number(gold: str, prediction: str, tolerance: float = 0.0) -> bool:
    first = _number(gold)
    second = _number(prediction)
    if first is None or second is None:
        return False
    return abs(first - second) <= Fraction(str(tolerance)) * abs(first)


def _same_integer(*texts: str) -> bool:
    return all(INTEGER.fullmatch(text.strip()) for text in texts) and _same_number(*texts)


# --- expressions

WRAPPED = FONT + r"\{([^{}]*)\}"
UNIT = re.compile(
    r"(?:(?<=[0-9)}])|(?<=\\pi))"
    r"(?=\s*(?:\\\w+\s*\{(?:\s|\w\w|[mgsNJKVWCALhTF]\})|\^|\\degree|°))"  # no \mathrm{e}, \text{x}
    rf"\s*(?:{UPRIGHT}\{{([^{{}}]*)\}}(\^\{{?[0-9]\}}?)?|(\^\{{?\\circ\}}?|\\degree|°))\s*$"
)
PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z])")
"""It stands for two formulas."""
DEGREE = re.compile(r"\^\\circ|\\degree|degrees?")
BASE = re.compile(r"[0-9][0-9A-F]*_\{?([0-9]+)\}?")
NAME = re.compile(r"\\?[a-zA-Z]+(?:_\{?\w+\}?)?(?:\([a-zA-Z]\))?")
NAMED = (
    "(?:centi|milli|kilo)?(?:met(?:er|re)|gram|lit(?:er|re))s?|[ckm]m|[km]g|ml|ft|lb|inch(?:es)?"
    "|f(?:ee|oo)t|(?:yard|mile|degree|dollar|cent|euro|pound|second|minute|hour|day|week)s?"
    "|(?:month|year)s?|percent|hundred|thousand|million|billion|trillion"
)
"""Units and numbers in words."""
POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
PLAIN = (
    (r"(?:,\\!|\{,\})\s*(?=[0-9]{3})", ","),  # 10,\!000 and 10{,}000
    (r"\\(?:left|right)(?![a-zA-Z])|(?<!\\)\\[,!$()\[\]]|\$", ""),
    (r"(?<!\\)\\[; ]", " "),
    ("−", "-"),
    ("²", "^2"),
    ("³", "^3"),
    (r"√\s*([0-9]+|[a-z])", r"\\sqrt{\1}"),
    (rf"(?<=[0-9)}}])\s*({NAMED})$", r"\\text{ \1}"),
    (rf"{UPRIGHT}\{{\s*percent\s*\}}$", "%"),
    *(
        (rf"{UPRIGHT}\{{\s*{word}\s*\}}$", rf"\\cdot 10^{{{power}}}")
        for word, power in POWERS.items()
    ),
)


def same_expression(gold: str, prediction: str) -> bool:
    """Whether two formulas (LaTeX or plain; several with commas) are equal, by math-verify.

    Numbers and fractions have to be equal, other values to 1e-9, relatively: sqrt(x^2) is not x,
    1/0 equals nothing, 50% is 0.5 and not 50. Where both have a unit (or degrees) it has to be the
    same; so has a number's base. An equation is more than its right side, but x = 2 is 2. A text
    that is no formula (`formulas.latex`) has to be the same after `normal`.
    """
    if max(len(gold), len(prediction)) > LONGEST:
        return same(gold, prediction)
    first, unit = _plain(gold)
    second, other_unit = _plain(prediction)
    if unit and other_unit and unit != other_unit:
        return False
    numbers = (_number(first), _number(second))
    if None not in numbers:
        return numbers[0] == numbers[1]
    one = formulas.latex(first)
    other = formulas.latex(second)
    if one is None or other is None:
        pairs = ((gold, prediction), [SPACES.sub("", text) for text in (first, second)])
        primes = {0 if text[:1] in "\"'" else text.count("'") for text in (first, second)}
        return len(primes) == 1 and any(same(*pair) for pair in pairs)
    if (_is_equation(first) and not _is_equation(second)) or _base(first) != _base(second):
        return False
    return formulas.are_equal(one, other)


def _is_equation(text: str) -> bool:
    """Whether something else than a name is on the left, so that the right alone is no answer."""
    left, sign, _ = text.partition("=")
    return bool(sign) and left[-1:] not in "<>!" and not NAME.fullmatch(left.strip())


def _base(text: str) -> str:
    """What stands below a number, such as 8 in 2516_8; math-verify does not look at it."""
    match = BASE.fullmatch(text.strip())
    return match[1] if match else ""


def same_in_order(gold: str, prediction: str) -> bool:
    """`same_expression` of each part between commas, in order: "1, 0" is not "0, 1"."""
    first, second = (_parts(_plain(text)[0]) for text in (gold, prediction))
    if len(first) == len(second) == 1 or same(gold, prediction):
        return same(gold, prediction) or same_expression(gold, prediction)
    return len(first) == len(second) and all(
        (one.strip().isalpha() and same(one, other)) or same_expression(one, other)
        for one, other in zip(first, second, strict=True)
    )


def _parts(text: str) -> list[str]:
    """What stands between the commas outside of brackets, but for a pair around all."""
    text = formulas.without_thousands(text)
    depths = list(accumulate(formulas.OPENING.get(letter, 0) for letter in text))
    if len(depths) > 1 and depths[0] and depths[-1] == 0 and min(depths[:-1]):
        return _parts(text[1:-1].strip().strip("\\"))
    cuts = [at for at, letter in enumerate(text) if letter == "," and not depths[at]]
    return [text[before + 1 : cut] for before, cut in pairwise([-1, *cuts, len(text)])]


def is_expression(text: str) -> bool:
    """Whether a text is a formula that has a value."""
    if len(text) > LONGEST:
        return False
    plain = _plain(text)[0]
    latex = formulas.latex(plain)
    return _number(plain) is not None or (latex is not None and formulas.has_value(latex))


def _plain(text: str) -> tuple[str, str]:
    r"""A formula without signs that say nothing (\left, \text, $), and its unit, "" without one."""
    text = text.strip().rstrip(".")
    for pattern, plain in PLAIN:
        text = re.sub(pattern, plain, text)
    unit = UNIT.search(text)
    text = re.sub(WRAPPED, r"\1", text[: unit.start()] if unit else text).strip()
    if PLUS_MINUS.search(text):
        text = ", ".join(PLUS_MINUS.sub(sign, text) for sign in "+-")
    parts = unit.groups() if unit else ()
    return text, DEGREE.sub("°", re.sub(r"[\s{}]", "", "".join(part or "" for part in parts)))


def _letter(text: str) -> str:
    return re.sub(WRAPPED, r"\1", text).strip(" .()").upper()


RULES: dict[str, Callable[[str, str], bool]] = {
    "numeric": _same_number,
    "literal": lambda gold, prediction: gold.strip() == prediction.strip(),
    "exact": same,
    "words": _same_words,
    "cover": _covers,
    "integer": _same_integer,
    "letter": lambda gold, prediction: _letter(prediction) == _letter(gold) != "",
    "expression": same_expression,
    "ordered": same_in_order,
}
PARTS: dict[str, PartsGrader] = {}
