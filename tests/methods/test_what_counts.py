"""The rule of `spnb.core.prompts` for every reader of an output: thoughts do not count, and of
several answers the last one does, unless it was cut off."""

import pytest

from spnb.core.documents import Context, Proposal
from spnb.core.grading import read_answer
from spnb.core.prompts import field, verdict
from spnb.core.types import Trajectory
from spnb.corpus import clusters, passages, targets
from spnb.evaluate.patterns import PATTERNS, parse_labels
from spnb.games.base import parse_action
from spnb.methods import absolute_zero, rlvr, spice_prompts

FIRST, LAST, NONE = "2", "1", None
HOSTILE = [
    ("<think>{first}</think>", NONE),
    ("<think>{first}", NONE),
    ("{first}</think>", NONE),
    ("<think><think></think>{first}</think>", NONE),
    ("{first} no, {cut}", NONE),
    ("<think>{first}</think>{cut}", NONE),
    ("{last}", LAST),
    ("{first} no, {last}", LAST),
    ("<think>{first}</think>{last}", LAST),
    ("{first}</think>{last}", LAST),
    ("{last}<think>{first}</think>", LAST),
    ("{last}<think>{first}", LAST),
    ("{last}<think>{cut}</think>", LAST),
    ("<think><think></think>{first}</think>{last}", LAST),
    ("<think>a</think>{first}<think>b</think>{last}<think>{first}</think>", LAST),
]


def stated(proposal):
    """The number in a proposal's question, None where it was rejected."""
    return proposal.question[-1] if isinstance(proposal, Proposal) else None


def programmed(text, kind="deduction"):
    """The program of a task of Absolute Zero and its input, which is the same number."""
    read = absolute_zero.read(kind, Trajectory((), policy_text=text))
    return read.task and read.program[-1]


def judged(text):
    value = verdict(text)
    return None if value is None else LAST if value else FIRST


TASK = "<question> What is {0}</question><answer> {0}</answer>"
JSON = '{{"question": "What is {0}", "answer": "{0}", "answer_type": "Integer"}}'
SELECTION = (
    '{{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "{0}"}}'
)
NAMES = {"Integer": FIRST, "String": LAST}
LABELS = "{{" + ", ".join(f'"{pattern}": {{0}}' for pattern in PATTERNS) + "}}"
READERS = {
    "answer": ("<answer> {0}</answer>", read_answer),
    "box": (r"\boxed{{{0}}}", lambda text: read_answer(text, "boxed")),
    "game": (r"\boxed{{{0}}}", lambda text: parse_action(text, [FIRST, LAST])),
    "verdict": ("<answer> {0}</answer>", judged),
    "spell": (TASK, lambda text: stated(clusters.read_proposal(text, "bridge"))),
    "spice": (TASK, lambda text: stated(spice_prompts.read_task("plain", text, "integer"))),
    "spice, paper": (JSON, lambda text: stated(spice_prompts.read_task("paper", text, "integer"))),
    "spice, type": (
        SELECTION,
        lambda text: {"integer": FIRST, "string": LAST}.get(spice_prompts.read_selection(text)),
    ),
    "absolute zero": ("<program> x + {0}</program><input> {0}</input>", programmed),
    "ssp": ("<question> {0}</question>", lambda text: stated(QUESTIONS.read(text, CONTEXT))),
    "scope": ("<task> {0}</task>", lambda text: stated(READINGS.read(text, CONTEXT))),
    "patterns": (LABELS, lambda text: labelled(parse_labels(text))),
}
WORDS = {
    "verdict": {FIRST: "no", LAST: "yes"},
    "spice, type": {FIRST: "Integer", LAST: "String"},
    "patterns": {FIRST: "false", LAST: "true"},
}
CONTEXT = Context("question")
QUESTIONS = targets.Questions()
READINGS = passages.Readings()


def labelled(labels):
    return None if labels is None else LAST if labels else FIRST


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("form", "expected"), HOSTILE)
def test_what_counts_of_an_output(reader, form, expected):
    wording, read = READERS[reader]
    words = WORDS.get(reader, {FIRST: FIRST, LAST: LAST})
    first, last = (wording.format(words[value]) for value in (FIRST, LAST))
    text = form.replace("{first}", first).replace("{last}", last).replace("{cut}", last[:-1])
    assert read(text) == expected


@pytest.mark.parametrize(("form", "expected"), HOSTILE)
def test_an_answer_that_does_not_count_is_not_parsed(form, expected):
    answer = "<answer> 1</answer>"
    text = form.replace("{first}", answer).replace("{last}", answer).replace("{cut}", answer[:-1])
    assert rlvr.behaviour(Trajectory((), policy_text=text))["parsed"] == (expected is not None)
    assert (field(text, "answer") is None) == (expected is None)
