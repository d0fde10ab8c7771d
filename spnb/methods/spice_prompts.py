"""What SPICE's roles are told (`spice_prompts.yaml`), and how a challenger's text is read.

Two styles. "plain": tags, as everywhere in `spnb.core.prompts`; the embedded policies know these
words. "paper": JSON with the fields of the paper's prompts (figures 8 to 10; the words are our
own), boxed answers, and a prompt by which the challenger chooses the type of answer. Absolute
Zero's prompts are here too.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.documents import Proposal, Rejected
from spnb.core.grading import is_expression
from spnb.core.params import require
from spnb.core.paths import packaged_yaml
from spnb.core.types import Messages

Style = Literal["plain", "paper"]
LETTERS = "ABCD"
MOST_WORDS = 3
"""Of an answer that is a string."""
MOST_CHARACTERS = 200
"""Of any answer."""
MOST_OBJECTS = 1000
"""JSON objects that are tried in a text, which bounds the time it takes."""
OBJECT = re.compile(r'\{\s*["}]')
WHOLE = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)")
WORDS = packaged_yaml("methods/spice_prompts.yaml")
WANTED = WORDS["wanted"]
"""What a challenger is asked for, by the type of the answer."""
CHALLENGING = {
    (answer, grounded): WORDS["grounded" if grounded else "ungrounded"].format(wanted=wanted)
    for grounded in (True, False)
    for answer, wanted in WANTED.items()
}
"""The plain instruction by the type of the answer, with and without a document."""
PROPOSING = WORDS["propose"]
SOLVING = {kind: f"{text} {prompts.WORDS['reason']}" for kind, text in WORDS["solve"].items()}
"""Absolute Zero's instructions by the kind of a task."""
QUESTION_FIELDS = {"choice": ("multiple_choice_question", "multiple_choice_correct")}
TYPE_NAMES = {"integer": "Integer", "expression": "Expression", "string": "String"}


# --- roles


def challenge(style: Style, answer_type: str, text: str | None) -> Messages:
    """Asks for a task with this type of answer from a segment, from nothing where it is None."""
    require("type of answers", answer_type, VALIDATORS, ValueError)
    if style == "plain":
        instruction = CHALLENGING[answer_type, text is not None]
        return _user(instruction, *([text] if text is not None else []))
    kind = "choice" if answer_type == "choice" else "free"
    fields = "\n".join(f'- "{name}": {about}' for name, about in WORDS["fields"][kind].items())
    wanted = f"Write {WANTED[answer_type]}, hard enough for an exam. The answer: "
    document = [f"Text:\n{text}"] if text is not None else ["Choose a subject yourself."]
    name = TYPE_NAMES.get(answer_type, "a letter")
    rule = f"{WORDS['rules'][answer_type]} ({name})."
    rest = [WORDS[name] for name in ("steps", "empty", "json only")]
    return _user(wanted + rule, *document, *rest, fields)


def reason(style: Style, question: str) -> Messages:
    """The reasoner's prompt: the question alone."""
    return prompts.reason(question) if style == "plain" else _user(question, "", WORDS["boxed"])


def answer_tag(style: Style) -> str:
    """Where the reasoner's answer stands (`spnb.core.grading.read_answer`)."""
    return "answer" if style == "plain" else "boxed"


def select(text: str) -> Messages:
    """Asks which type of answer suits a segment (the paper's figure 9)."""
    return _user(WORDS["select"], f"Document:\n{text}")


def _user(*parts: str) -> Messages:
    return [{"role": "user", "content": "\n".join(parts)}]


# --- reading


def read_selection(text: str) -> str | None:
    """The type of answer that was chosen, None where the object is not as asked for."""
    selection = last_object(text) or {}
    choice = selection.get("suitable_for_mcq")
    free = selection.get("suitable_for_free_form")
    if choice is True and free is False:
        return "choice"
    names = {name: answer for answer, name in TYPE_NAMES.items()}
    best = selection.get("best_answer_type")
    return names.get(str(best)) if free is True and choice is False else None


def read_task(style: Style, text: str, answer_type: str) -> Proposal | Rejected:
    """The task that a challenger's text holds: formatted as asked for and parsable. Nothing is said
    of its truth.

    ValueError for a type of answers that there is not.
    """
    require("type of answers", answer_type, VALIDATORS, ValueError)
    read = _read_plain(text) if style == "plain" else _read_json(text, answer_type)
    if read is None:
        return Rejected("no question or no answer")
    proposal = Proposal(*read, kind=answer_type)
    reason = fault(proposal)
    return Rejected(reason) if reason else proposal


def fault(proposal: Proposal) -> str:
    """Why a task is not valid, "" if it is; nothing is said of its truth."""
    question = proposal.question
    answer = proposal.answer
    half = re.search("[\ud800-\udfff]", question + answer)  # of a pair, as JSON may spell it
    if not question.strip() or len(answer) > MOST_CHARACTERS or half:
        return "a question or an answer that cannot be used"
    return "" if VALIDATORS[proposal.kind](question, answer) else f"no {proposal.kind}"


def _read_plain(text: str) -> tuple[str, str] | None:
    question = prompts.field(text, "question")
    answer = prompts.field(text, "answer")
    return (question, answer) if question and answer else None


def _read_json(text: str, answer_type: str) -> tuple[str, str] | None:
    fields = last_object(text) or {}
    names = QUESTION_FIELDS.get(answer_type, ("question", "answer"))
    question, answer = map(fields.get, names)
    if answer_type == "integer" and type(answer) is int:
        answer = str(answer)
    if answer_type != "choice" and fields.get("answer_type") != TYPE_NAMES[answer_type]:
        return None
    if not (isinstance(question, str) and isinstance(answer, str)):
        return None
    text, options = prompts.read_options(question)
    text += f"\n{prompts.lettered(options)}" if options else ""
    return (text, answer.strip()) if text and answer.strip() else None


def last_object(text: str) -> dict[str, Any] | None:
    """The last JSON object in a text that is not within another, fences or not, by the rule of
    `spnb.core.prompts`; None without one, and where more than MOST_OBJECTS seem to start."""
    text = prompts.outside(text)
    found, at = None, 0
    for _ in range(MOST_OBJECTS):
        start = OBJECT.search(text, at)
        if start is None:
            return found
        try:
            found, at = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            found, at = None, start.end()
    return None


def _four_options(question: str, answer: str) -> bool:
    options = prompts.read_options(question)[1]
    different = len({" ".join(option.casefold().split()) for option in options})
    return len(options) == different == len(LETTERS) and answer in tuple(LETTERS)


VALIDATORS: dict[str, Callable[[str, str], bool]] = {
    "choice": _four_options,
    "integer": lambda _, answer: WHOLE.fullmatch(answer) is not None,
    "expression": lambda _, answer: is_expression(answer),
    "string": lambda _, answer: 1 <= len(answer.split()) <= MOST_WORDS,
}
"""What makes a question and its answer valid, by the type of the answer."""


# --- Absolute Zero


def propose(kind: str, references: Sequence[str] = (), program: str = "") -> Messages:
    """Asks for a task on a program: with its input, different from earlier ones; or (induction)
    for inputs of a given program."""
    if kind == "induction":
        return _user(PROPOSING[kind], f"Program: {program}")
    before = [WORDS["different"], *(f"- {program}" for program in references)] if references else []
    return _user(PROPOSING[kind], *before)


def solve(kind: str, program: str, pairs: Sequence[tuple[int, int]]) -> Messages:
    """Asks to solve a task on a program: `pairs` of inputs and outputs, of which what is asked for
    is left out."""
    x, y = pairs[0]
    shown = {
        "deduction": [f"Program: {program}", f"Input: {x}"],
        "abduction": [f"Program: {program}", f"Output: {y}"],
        "induction": [f"Input: {x}, output: {y}" for x, y in pairs],
    }
    return _user(SOLVING[kind], *shown[kind])
