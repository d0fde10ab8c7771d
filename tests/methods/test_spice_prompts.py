"""What a challenger's text has to look like, in both styles; validity by type of answer."""

import json
import time

import pytest

from spnb.core.documents import Proposal, Rejected
from spnb.methods import spice_prompts
from spnb.methods.spice_prompts import (
    WORDS,
    challenge,
    fault,
    last_object,
    read_selection,
    read_task,
    reason,
)

OPTIONS = "\n- 3 (A)\n- 4 (B)\n- 5 (C)\n- 6 (D)"


@pytest.mark.parametrize(
    ("answer_type", "answer", "valid"),
    [
        ("integer", "42", True),
        ("integer", "-7", True),
        ("integer", "1,234", True),
        ("integer", "12,34", False),
        ("integer", "4.0", False),
        ("integer", "5 km", False),
        ("integer", "[42]", False),
        ("integer", "", False),
        ("integer", "9" * 201, False),
        ("expression", "3 + 4x", True),
        ("expression", r"\frac{x}{2}", True),
        ("expression", "2*x**2", True),
        ("expression", "3 + 4x +", False),  # does not end
        ("expression", "(3 + 4x", False),
        ("expression", "Paris", False),
        ("string", "Paris", True),
        ("string", "Newton's third law", True),
        ("string", "the law of gravitation", False),
        ("string", "  ", False),
        ("choice", "A", False),  # no options
    ],
)
def test_answers_are_valid_by_their_type(answer_type, answer, valid):
    assert (not fault(Proposal("Why?", answer, kind=answer_type))) == valid


@pytest.mark.parametrize(
    ("question", "letter", "valid"),
    [
        ("Why?" + OPTIONS, "B", True),
        ("Why?" + OPTIONS, "E", False),
        ("Why?" + OPTIONS, "4", False),
        ("Why?" + OPTIONS.replace("4 (B)", "3 (B)"), "A", False),  # twice the same option
        ("Why?\n- The sun (A)\n- the  sun (B)\n- 5 (C)\n- 6 (D)", "A", False),
        ("Why?" + OPTIONS.replace("\n- 6 (D)", ""), "B", False),
        ("Why?" + OPTIONS.replace("(C)", "(D)"), "B", False),
        ("Why?" + OPTIONS + "\n- 7 (E)", "B", False),
    ],
)
def test_a_choice_has_four_different_options(question, letter, valid):
    assert (not fault(Proposal(question, letter, kind="choice"))) == valid


def test_a_type_without_a_validator_is_an_error():
    for call in (
        lambda: challenge("plain", "float", "text"),
        lambda: read_task("plain", "<question> Why?</question><answer> 1</answer>", "float"),
    ):
        with pytest.raises(ValueError, match="type of answers is 'float', which is unknown"):
            call()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<question> Why? </question><answer> 7 </answer>", ("Why?", "7")),
        ("<think> x</think><question> a</question> b <answer> 7</answer>", ("a", "7")),
        ("<question> Why?</question>", None),
        ("<answer> 7</answer>", None),
        ("<question> </question><answer> 7</answer>", None),
        ("<question> Why?<answer> 7</answer>", None),
        ("<question> Why?</question><answer> seven</answer>", None),
        ("", None),
    ],
)
def test_plain_texts(text, read):
    found = read_task("plain", text, "integer")
    assert found == Proposal(*read, kind="integer") if read else isinstance(found, Rejected)


def said(**fields):
    return json.dumps(fields)


FREE = {"question": "Why?", "answer": "7", "answer_type": "Integer"}


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (said(**FREE), True),
        (said(**FREE | {"answer": 7}), True),
        ("I think {of} it.\n```json\n" + said(**FREE) + "\n```", True),
        (said(question="no") + said(**FREE), True),  # the last object counts
        (said(**FREE) + said(question="no"), False),
        (said(**FREE | {"answer": [7]}), False),
        (said(**FREE | {"answer": {"value": 7}}), False),
        (said(**FREE | {"answer": True}), False),
        (said(**FREE | {"question": ["Why?"]}), False),
        (said(**FREE | {"question": "", "answer": ""}), False),  # nothing in the text for it
        (said(**FREE | {"answer_type": "String"}), False),
        (said(**FREE)[:-1], False),
        ("[1, 2]", False),
        ("", False),
    ],
)
def test_json_texts(text, valid):
    found = read_task("paper", text, "integer")
    assert found == Proposal("Why?", "7", kind="integer") if valid else isinstance(found, Rejected)


def test_options_of_a_json_choice():
    for mark in ("A) 3", "(A) 3", "A. 3", "A: 3"):
        pairs = zip("ABCD", "3456", strict=True)
        lines = [mark.replace("A", letter).replace("3", n) for letter, n in pairs]
        fields = {"multiple_choice_question": "Why?\n\n" + "\n".join(lines)}
        fields |= {"multiple_choice_correct": " C "}
        assert read_task("paper", said(**fields), "choice") == Proposal(
            "Why?" + OPTIONS, "C", kind="choice"
        )


def test_the_last_object_that_is_not_within_another():
    assert last_object('{"a": {"b": 1}} {') == {"a": {"b": 1}}
    assert last_object("{" * 5000) is None and last_object("none") is None
    assert last_object(r"\frac{1}{2} " * 2000 + '{"a": 1}') == {"a": 1}


def test_objects_are_looked_for_in_linear_time():
    start = time.process_time()
    for text in ("{", '{"', '{"a":', '{"a":[', "{} ", "{ "):
        last_object(text * (100_000 // len(text)))
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ((True, False, None), "choice"),
        ((False, True, "Integer"), "integer"),
        ((False, True, "Expression"), "expression"),
        ((False, True, "String"), "string"),
        ((False, True, None), None),
        ((False, True, "Float"), None),
        ((True, True, "String"), None),  # exactly one has to be true
        ((False, False, "String"), None),
        (("true", False, None), None),
    ],
)
def test_selections(fields, chosen):
    names = ("suitable_for_mcq", "suitable_for_free_form", "best_answer_type")
    assert read_selection(said(**dict(zip(names, fields, strict=True)))) == chosen
    assert read_selection("choice") is None


@pytest.mark.parametrize("answer_type", ["choice", "integer", "expression", "string"])
def test_prompts_have_the_document_and_ask_for_every_field(answer_type):
    for style in ("plain", "paper"):
        (with_text,) = challenge(style, answer_type, "Rivers flow.")
        (without,) = challenge(style, answer_type, None)
        assert "Rivers flow." in with_text["content"]
        assert "ocument" not in without["content"].replace("a text, document or passage", "")
    fields = WORDS["fields"]["choice" if answer_type == "choice" else "free"]
    assert all(f'"{name}"' in with_text["content"] for name in fields)
    assert [len(WORDS["fields"][kind]) for kind in ("choice", "free")] == [
        10,
        13,
    ]  # the paper's figure 10


def test_the_reasoner_gets_the_question_alone():
    for style, tag in (("plain", "answer"), ("paper", "boxed")):
        (message,) = reason(style, "Why?")
        assert "Why?" in message["content"] and "ocument" not in message["content"]
        assert spice_prompts.answer_tag(style) == tag
    assert "\\boxed{}" in message["content"]
