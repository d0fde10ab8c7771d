"""Prompts hold what they are given; fields are read as written and only where well-formed."""

import hashlib
import json
import time

import pytest

from spnb.core import prompts

TRAINED_ON = "a98e6320a493bf92bfac03163642287a349a3ab888b6dff9ca775a24d6e332cd"
"""SHA-256 of the prompts that the shipped policies were trained on."""


def test_the_words_are_those_that_the_shipped_policies_were_trained_on():
    others = ("exam", "corpus", "rubric careful", "grade careful", "calls")
    words = {k: words for k, words in prompts.WORDS.items() if k not in others}
    text = json.dumps(words, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == TRAINED_ON


@pytest.mark.parametrize(
    ("text", "tag", "found"),
    [
        ("<answer> Arnford</answer>", "answer", "Arnford"),
        ("<answer>a</answer> then <answer> b </answer>", "answer", "b"),
        ("<answer> cut off", "answer", None),
        ("<answer></answer>", "answer", None),
        ("<answer> a <answer> b</answer>", "answer", "b"),
        ("<think> x</think><answer> two\nlines</answer>", "answer", "two\nlines"),
        ("<question> q</question>", "answer", None),
        ("<answer> a</answer> no, <answer> b", "answer", None),
        ("<answer> a</answer></answer>", "answer", "a"),
        ("a</answer>", "answer", None),
    ],
)
def test_field(text, tag, found):
    assert prompts.field(text, tag) == found


def test_fields_keep_their_order():
    text = "<rubric> a</rubric>x<rubric> b</rubric><think><rubric> c</rubric></think><rubric> d"
    assert prompts.fields(text, "rubric") == ["a", "b"]
    assert prompts.tagged(text, "rubric") == ["a", "b", "c"]
    ranked = '<rubric priority="critical"> a</rubric><rubric  x> b </rubric><rubrics> c</rubrics>'
    assert prompts.points(ranked + text) == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("a", "a"),
        ("<think>x</think>a", "a"),
        ("a<think>x</think>b<think>y</think>c", "abc"),
        ("x</think>a", "a"),
        ("x</think>y</think>a", "a"),
        ("a<think>x", "a"),
        ("a<think>x<think>y", "a"),
        ("<think>x<think>y</think>z</think>a", "a"),
        ("<think>x<think>y</think>a", "a"),
        ("a <thinking>b</thinking>", "a <thinking>b</thinking>"),
    ],
)
def test_thoughts_are_taken_out(text, said):
    assert prompts.outside(text) == said


def test_a_long_text_of_marks_takes_no_time():
    start = time.perf_counter()
    for mark in ("<think>", "</think>", "<think></think>", "<answer>"):
        prompts.field(mark * 20_000, "answer")
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<answer> yes</answer>", True),
        ("<answer>No.</answer>", False),
        ("<answer> so</answer>", None),
        ("yes", None),
    ],
)
def test_verdict(text, value):
    assert prompts.verdict(text) is value


def content(messages):
    (message,) = messages
    assert message["role"] == "user"
    return message["content"]


def test_answer_prompts_end_with_the_question():
    for style in ("careful", "plain", "steps"):
        text = content(prompts.answer("What is x?", ["One.", "Two."], style))
        assert text.endswith("[1] One.\n[2] Two.\nQuestion: What is x?")
        assert text.startswith(prompts.WORDS["answer"][style])


def test_choice_letters_its_options():
    text = content(prompts.choice("What is x?", ["red", "blue"], ["Doc."]))
    assert text.endswith("Question: What is x?\n- red (A)\n- blue (B)")
    assert "[1]" not in content(prompts.choice("What is x?", ["red"]))


def test_asking_shows_earlier_questions_only_where_there_are_some():
    assert prompts.WORDS["ask beyond"] not in content(prompts.ask(["Doc."]))
    text = content(prompts.ask(["Doc."], ["What is x?"]))
    assert prompts.WORDS["ask beyond"] in text and "- What is x?" in text


def test_other_roles_hold_their_parts():
    asked = content(prompts.judge("Q?", "a\nSecond: a", "b"))
    assert asked.endswith("Question: Q?\nFirst: a Second: a\nSecond: b")
    assert content(prompts.grade("Resp.", "Point.")).endswith("Response: Resp.\nPoint: Point.")
    assert content(prompts.task("Do.", ["D."])).endswith("[1] D.\nTask: Do.")
    assert content(prompts.rubric("Do.", ["D."])).endswith("[1] D.\nTask: Do.")
    assert content(prompts.search("Q?", "plain")).endswith("Question: Q?")
    assert content(prompts.ask_search("x")).endswith("Answer: x")
    assert content(prompts.closed("Q?")).endswith("Question: Q?")
