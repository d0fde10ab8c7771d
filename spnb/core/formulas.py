r"""Formulas: which texts are some, and whether two are equal, by math-verify.

math-verify takes anything for a formula ("silent" equals "listen", "3 4" is 7), so `latex` decides
first, and writes plain notation as LaTeX. Its own time limit works in a main thread under POSIX
alone, and stops no long operation in C. So formulas are compared in a process that ends itself when
one takes too long: that works in threads, in forked processes and on every platform. This file is
that process's program, too; it may import nothing of spnb.
"""

import atexit
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import threading
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import Any

LIMIT = 10.0
"""Seconds that reading and comparing formulas may take."""
RELATIVE = 1e-9
"""How far values may be apart that are not fractions."""
DEEPEST = 8
"""Brackets within brackets: the time to parse them grows with each."""

FUNCTIONS = "sqrt|arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|exp|log|ln"
GREEK = (
    "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|xi|rho|sigma|tau|phi|psi|omega|Delta|Omega"
)
SPELLED = "|".join(name for name in GREEK.split("|") if len(name) > 2) + "|pi|infty"
"""Letters whose names are no products of two variables."""
COMMAND = re.compile(
    rf"\\(?:{FUNCTIONS}|{GREEK}|pi|infty|[dtc]?frac|binom|cdot|times|div|pm|le|leq|ge|geq|lt|gt|ne"
    r"|neq|in|cup|cap|emptyset)(?![a-zA-Z])|\\(?:begin|end)\{[bp]?matrix\}|\\[\\{}%]"
)
SYMBOLS = re.compile(r"(?:[a-zA-Z]{1,2}(?![a-zA-Z])|[0-9+\-*/^_=<>()\[\]{}|.,;!&%\s])++")
NO_FORMULA = re.compile(
    r"[0-9]\s+[0-9]"
    r"|[0-9]\s+[a-zA-Z]{2}|[a-zA-Z]{2}\s+[0-9]"  # 5 km, on 5
    r"|\^\s*[\w.]+\s*\^"  # 9^9^9
    r"|!\s*!|[-+](?:\s*[-+]){2}"
    r"|[0-9]{5,}\s*!|\^[{(\s]*-?[0-9]{5,}"  # larger than anybody can compare
)
WORD = re.compile(r"[^0-9+\-*/^=<>_\\]*[a-zA-Z]{2}[^0-9+\-*/^=<>_\\]*")
NAME = re.compile(rf"(?<![\\a-zA-Z])(?:(?:{FUNCTIONS})(?=\s*\()|(?:{SPELLED})(?![a-zA-Z]))")
THOUSANDS = re.compile(r"(?<![0-9.,(\[])([0-9]{1,3}(?:,[0-9]{3})+)(?![0-9]|,[0-9])")
LATEX = (
    (r"^([+-]?[0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)$", r"\1\\frac{\2}{\3}"),  # 3 1/2
    (r"(?<=[0-9)])\s*\\?%", r"\\cdot\\frac{1}{100}"),
    (r"(?<=[0-9.])[eE]([+-]?[0-9]{1,3})\b", r"\\cdot 10^{\1}"),
    (r"\*\*", "^"),
    (r"[*·×]", r"\\cdot "),
    (r"π", r"\\pi "),
    (rf"(?<![\\a-zA-Z])({FUNCTIONS}|{SPELLED})(?![a-zA-Z])", r"\\\1 "),
    (r"\^\s*(-\s*[0-9a-zA-Z.]+)", r"^{\1}"),
    (r"(?<![\\a-zA-Z])([a-zA-Z]{1,2}|[0-9)])\s*\(", r"\1\\cdot ("),  # 3(4) is no 3 + 4
)
IMAGINARY = re.compile(r"(?<![\\a-zA-Z])([a-zA-Z]?)i([a-zA-Z]?)(?![a-zA-Z])")
"""math-verify takes variables for complex where it sees an i that stands alone."""
OPENING = dict.fromkeys("([{", 1) | dict.fromkeys(")]}", -1)
GROUP = re.compile(r"(?:\\sqrt|\^)\s*(\()")


def latex(text: str) -> str | None:
    """A formula in LaTeX; None for a text that is none, so far as this can be seen unread.

    Variables have one letter, and two of them may stand together where anything else shows that
    they are factors: "xy + x" is a formula, "is" and "no" are words.
    """
    if WORD.fullmatch(NAME.sub("", text)):
        return None
    text = without_thousands(text)
    for pattern, replacement in LATEX:
        text = re.sub(pattern, replacement, text)
    rest = COMMAND.sub("|", text)
    depth = max(accumulate(OPENING.get(letter, 0) for letter in text), default=0)
    if NO_FORMULA.search(rest) or not SYMBOLS.fullmatch(rest) or depth > DEEPEST:
        return None
    return _with_braces(IMAGINARY.sub(r"\1 i \2", text))


def without_thousands(text: str) -> str:
    """Numbers without the commas between their thousands, in a list too."""
    return THOUSANDS.sub(lambda at: at[1].replace(",", ""), text)


def _with_braces(text: str) -> str:
    r"""The arguments of roots and powers in braces: \sqrt(x) is no LaTeX."""
    while at := GROUP.search(text):
        depth = 0
        for end in range(at.start(1), len(text)):
            depth += OPENING.get(text[end], 0)
            if not depth:
                break
        inside = text[at.end() : end]
        text = f"{text[: at.start(1)]}{{{inside}}}{text[end + 1 :]}"
    return text


# --- asking


@lru_cache(maxsize=100_000)
def are_equal(gold: str, prediction: str) -> bool:
    """Whether two formulas in LaTeX are equal; False where one has no value or takes too long."""
    return _comparer(os.getpid()).ask([gold, prediction])


@lru_cache(maxsize=100_000)
def has_value(text: str) -> bool:
    """Whether a text in LaTeX can be read as a formula that has a value."""
    return _comparer(os.getpid()).ask([text])


class _Comparer:
    """The process that compares formulas, started when it is needed first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None

    def ask(self, texts: list[str]) -> bool:
        """The answer to one or two texts; False where the process ended over them."""
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = _start()
            try:
                print(json.dumps(texts), file=self.process.stdin, flush=True)
                answer = self.process.stdout.readline()
            except BaseException:  # interrupted: its answer must not be taken for the next one's
                self.process.kill()
                raise
            if not answer:
                self.process.wait()
            return answer == "True\n"


@cache
def _comparer(process_id: int) -> _Comparer:
    """This process's own: a forked one shares no pipe with its parent."""
    return _Comparer()


def _start() -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", __file__, str(LIMIT)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    atexit.register(process.stdin.close)
    if process.stdout.readline() != "ready\n":
        reason = process.stderr.read().strip().split("\n")[-1]
        raise ImportError(f"math-verify does not load: {reason}")
    return process


# --- the process


def serve(limit: float) -> None:
    """Answers lines of standard input, a JSON list of one or two formulas each, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tell_m_from_capital_m()
    _are_equal(_value("x + 1"), _value("1 + x"))  # what the first formula loads is not in its limit
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
        print("ready", flush=True)
        for line in sys.stdin:
            faulthandler.dump_traceback_later(limit, exit=True, file=nowhere)
            try:
                values = [_value(text) for text in json.loads(line)]
                answer = None not in values and (len(values) == 1 or _are_equal(*values))
            except Exception:  # sympy raises nearly everything
                answer = False
            faulthandler.cancel_dump_traceback_later()
            print(bool(answer), flush=True)


def _tell_m_from_capital_m() -> None:
    """math-verify's parser makes one symbol of M and m, and takes no setting for that."""
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
    from math_verify import parser

    cases = ConversionConfig(lowercase_symbols=False)
    parser.latex2sympy = partial(latex2sympy, conversion_config=cases)


@lru_cache(maxsize=1000)
def _value(text: str) -> Any | None:
    """A formula as a sympy object, decimals as fractions; None where it has no value."""
    import sympy
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse
    from sympy.core.relational import Relational
    from sympy.logic.boolalg import BooleanAtom

    rules = NormalizationConfig(malformed_operators=True, boxed="none")
    config = [LatexExtractionConfig(normalization_config=rules)]
    results = parse(f"${text}$", config, fallback_mode="no_fallback", parsing_timeout=None)
    if not results:
        return None
    value = results[0]
    value = value.xreplace({one: sympy.Rational(str(one)) for one in value.atoms(sympy.Float)})
    if isinstance(value, sympy.Expr):
        value = value.doit()
    if isinstance(value, Relational | BooleanAtom) and not value.free_symbols:  # 1 = 1
        return None
    return None if value.has(sympy.zoo, sympy.nan) else value


def _are_equal(gold: Any, prediction: Any) -> bool:
    """Fractions have to be equal, other numbers nearly; math-verify compares anything else."""
    import sympy
    from math_verify import verify

    both = (gold, prediction)
    if all(isinstance(one, sympy.Expr) and not one.free_symbols for one in both):
        if all(one.is_Rational or one.is_infinite for one in both):
            return gold == prediction
        first, second = (one.evalf(30) for one in both)
        return bool(abs(first - second) <= RELATIVE * max(abs(first), abs(second)))
    return verify(gold, prediction, numeric_precision=100, timeout_seconds=None)


if __name__ == "__main__":
    serve(float(sys.argv[1]))
