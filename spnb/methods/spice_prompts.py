"""What SPICE's roles are told, and how a challenger's text is read.

Two styles. "plain": tags, as everywhere in `spnb.core.prompts`; the embedded policies know these
words. "paper": JSON with the fields of the paper's prompts (figures 8 to 10; the words are our
own), boxed answers, and a prompt by which the challenger chooses the type of answer. Absolute
Zero's prompts are here too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.grading import is_expression
from spnb.core.params import unknown
from spnb.core.types import Messages
from spnb.lab.ladder import LETTERS
from spnb.lab.segment_oracle import split_options
from spnb.lab.segments import Written

Style = Literal["plain", "paper"]
MOST_WORDS, MOST_CHARACTERS = 3, 200
"""Of an answer that is a string; of any answer."""
WHOLE = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)")

WANTED = {
    "choice": "a multiple-choice question with four options, each on a line with its letter",
    "integer": "a question whose answer is a whole number",
    "expression": "a question whose answer is an expression",
    "string": "a question whose answer is one to three words",
}
"""What a challenger is asked for, by the type of the answer."""
TAGGED = (
    "Put what leads to the answer inside <think> and </think>, the question inside <question> and "
    "</question>, the answer inside <answer> and </answer>."
)
GROUNDED = (
    "Write {wanted}. The document below states the answer. Whoever answers does not see the "
    "document, so the question has to hold all that is needed. " + TAGGED
)
UNGROUNDED = "Write {wanted}, and its answer. The question has to hold all that is needed. "
UNGROUNDED += TAGGED
CHALLENGING = {
    **{(answer, True): GROUNDED.format(wanted=wanted) for answer, wanted in WANTED.items()},
    **{(answer, False): UNGROUNDED.format(wanted=wanted) for answer, wanted in WANTED.items()},
}
"""The plain instruction by the type of the answer, with and without a document."""
BOXED = "Think step by step, then put the final answer within \\boxed{}."

FIELDS = {
    "choice": {
        "identified_answer": "the conclusion that the question is about",
        "answer_quote": "a list of quotations that it rests on",
        "hardening_process": "how you make the question hard",
        "exam_question": "the question without options",
        "correct_answer": "the full answer",
        "multiple_choice_question": "the question with four lines, A) to D), of similar length",
        "multiple_choice_correct": "the letter of the right option",
        "self_test_solution": "your own solution of it, step by step",
        "knowledge_and_reasoning_steps": "what it takes, and why looking it up is not enough",
        "question_difficulty": "Hard or Extra Hard",
    },
    "free": {
        "identified_information": "a list of at least three facts that it takes",
        "relevant_quotes": "a list of quotations",
        "hardening_process": "how you make the question hard",
        "question": "one question, a string",
        "answer": "the answer, a single value",
        "answer_type": "as asked for",
        "step_by_step_solution": "a list of steps",
        "intermediate_results": "an object of results on the way",
        "difficulty_level": "Hard or Extra Hard",
        "difficulty_justification": "why",
        "solving_time_estimate": "in minutes",
        "required_concepts": "a list",
        "potential_errors": "a list",
    },
}
"""The fields of the paper's prompts, and what goes into each."""
QUESTION_FIELDS = {"choice": ("multiple_choice_question", "multiple_choice_correct")}
TYPE_NAMES = {"integer": "Integer", "expression": "Expression", "string": "String"}
RULES = {
    "integer": "a whole number, no unit in it",
    "expression": "one formula in standard notation, its variables defined in the question",
    "string": "at most three words, a name or a term",
    "choice": "a letter from A to D; the wrong options are what partial reasoning leads to",
}
STEPS = (
    "1. Find relations in the text that take several facts or calculations together; leave out "
    "what one sentence states.\n"
    "2. Decide how the question gets hard: which facts have to be connected, which shortcuts are "
    "closed.\n"
    "3. Write a question that can be answered without the text: it states all that is needed, and "
    "never mentions a text, document or passage.\n"
    "4. Check that exactly one answer is right, and that it follows from the text.\n"
    "5. Solve the question yourself, step by step; if that takes less than three steps, make it "
    "harder."
)
JSON_ONLY = "Think first. Then write one JSON object with these fields and nothing after it:"
EMPTY = "If the text has nothing for such a question, leave question and answer empty."
SELECT = (
    "Which kind of question suits this document best? A multiple-choice question needs relations "
    "with three plausible wrong answers; a free-form one a single clear answer that is an "
    "Integer, an Expression or a String of up to three words. Write only a JSON object: "
    "suitable_for_mcq and suitable_for_free_form (exactly one is true), best_answer_type (Integer, "
    "Expression, String or null), reason (below 100 characters)."
)


# --- roles


def challenge(style: Style, answer_type: str, text: str | None) -> Messages:
    """Asks for a task with this type of answer from a segment, from nothing where it is None."""
    check_type(answer_type)
    if style == "plain":
        instruction = CHALLENGING[answer_type, text is not None]
        return _user(instruction, *([text] if text is not None else []))
    kind = "choice" if answer_type == "choice" else "free"
    fields = "\n".join(f'- "{name}": {about}' for name, about in FIELDS[kind].items())
    wanted = f"Write {WANTED[answer_type]}, hard enough for an exam. The answer: "
    document = [f"Text:\n{text}"] if text is not None else ["Choose a subject yourself."]
    asked = TYPE_NAMES.get(answer_type, "a letter")
    return _user(
        wanted + f"{RULES[answer_type]} ({asked}).", *document, STEPS, EMPTY, JSON_ONLY, fields
    )


def reason(style: Style, question: str) -> Messages:
    """The reasoner's prompt: the question alone."""
    return prompts.reason(question) if style == "plain" else _user(question, "", BOXED)


def answer_tag(style: Style) -> str:
    """Where the reasoner's answer stands (`spnb.core.grading.read_answer`)."""
    return "answer" if style == "plain" else "boxed"


def select(text: str) -> Messages:
    """Asks which type of answer suits a segment (the paper's figure 9)."""
    return _user(SELECT, f"Document:\n{text}")


def _user(*parts: str) -> Messages:
    return [{"role": "user", "content": "\n".join(parts)}]


# --- reading


def read_selection(text: str) -> str | None:
    """The type of answer that was chosen, None where the object is not as asked for."""
    found = last_object(text) or {}
    choice, free = found.get("suitable_for_mcq"), found.get("suitable_for_free_form")
    if choice is True and free is False:
        return "choice"
    names = {name: answer for answer, name in TYPE_NAMES.items()}
    best = found.get("best_answer_type")
    return names.get(str(best)) if free is True and choice is False else None


def read_task(style: Style, text: str, answer_type: str) -> Written | None:
    """The task that a challenger's text holds, None unless it is valid (`is_valid`)."""
    read = _read_plain(text) if style == "plain" else _read_json(text, answer_type)
    if read is None:
        return None
    written = Written(*read, answer_type)
    return written if is_valid(written) else None


def _read_plain(text: str) -> tuple[str, str] | None:
    question, answer = prompts.field(text, "question"), prompts.field(text, "answer")
    return (question, answer) if question and answer else None


def _read_json(text: str, answer_type: str) -> tuple[str, str] | None:
    found = last_object(text)
    names = QUESTION_FIELDS.get(answer_type, ("question", "answer"))
    question, answer = ((found or {}).get(name) for name in names)
    if answer_type == "integer" and type(answer) is int:
        answer = str(answer)
    if answer_type != "choice" and (found or {}).get("answer_type") != TYPE_NAMES[answer_type]:
        return None
    if not (isinstance(question, str) and isinstance(answer, str)):
        return None
    lines = [re.sub(r"^\s*\(?([A-D])[).:]\s*(.+?)\s*$", r"- \2 (\1)", x) for x in _lines(question)]
    return ("\n".join(lines), answer.strip()) if lines and answer.strip() else None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def last_object(text: str) -> dict[str, Any] | None:
    """The last JSON object in a text that is not within another, fences or not; None without."""
    decoder, found, at = json.JSONDecoder(), None, text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            found, at = value, text.find("{", end)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
    return found


def _four_options(written: Written) -> bool:
    options = split_options(written.question)[1]
    different = len({" ".join(option.casefold().split()) for option in options})
    return len(options) == different == len(LETTERS) and written.answer in tuple(LETTERS)


def _is_text(text: str) -> bool:
    """Whether a text can be encoded: half a surrogate pair, as JSON may spell it, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


VALIDATORS: Mapping[str, Any] = {
    "choice": _four_options,
    "integer": lambda written: WHOLE.fullmatch(written.answer) is not None,
    "expression": lambda written: is_expression(written.answer),
    "string": lambda written: 1 <= len(written.answer.split()) <= MOST_WORDS,
}
"""What makes a task valid, by the type of its answer: formatted as asked for and parsable."""


def check_type(answer_type: str) -> None:
    """Raises ValueError for a type of answers that has no validator."""
    if answer_type not in VALIDATORS:
        raise ValueError(unknown("type of answers", answer_type, list(VALIDATORS)))


def is_valid(written: Written) -> bool:
    """Whether a task is well-formed for its type of answer; nothing is said of its truth.

    ValueError for a type without a validator.
    """
    check_type(written.answer_type)
    if not written.question.strip() or len(written.answer) > MOST_CHARACTERS:
        return False
    if not _is_text(written.question + written.answer):
        return False
    return bool(VALIDATORS[written.answer_type](written))


# --- Absolute Zero

LANGUAGE = (
    "A program is one expression in the input x: whole numbers from 0 to 99, which go round, "
    "+ - * %, when(c, a, b) and loop(c, e)."
)
PROPOSING = {
    "deduction": (
        f"{LANGUAGE} Write a program and an input; somebody else is to say what comes out. Put the "
        "program inside <program> and </program>, the input inside <input> and </input>."
    ),
    "abduction": (
        f"{LANGUAGE} Write a program and an input; somebody else sees what comes out and is to say "
        "what went in. Put the program inside <program> and </program>, the input inside <input> "
        "and </input>."
    ),
    "induction": (
        f"{LANGUAGE} Write four different inputs for the program below; somebody else sees what "
        "comes out for two of them and is to write the program. Put each inside <input> and "
        "</input>."
    ),
}
SOLVING = {
    "deduction": f"{LANGUAGE} What comes out? ",
    "abduction": f"{LANGUAGE} What went in? ",
    "induction": f"{LANGUAGE} Which program is it? ",
}
SOLVING = {kind: text + prompts.REASON for kind, text in SOLVING.items()}
DIFFERENT = "These were written before; write a different one:"


def propose(kind: str, references: Sequence[str] = (), program: str = "") -> Messages:
    """Asks for a task on a program: with its input, different from earlier ones; or (induction)
    for inputs of a given program."""
    if kind == "induction":
        return _user(PROPOSING[kind], f"Program: {program}")
    before = [DIFFERENT, *(f"- {one}" for one in references)] if references else []
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
