"""The lessons say the truth where they claim to, and are wrong as often as they state."""

import collections
import hashlib
import itertools
import random
import re

import pytest

from spnb.core import prompts
from spnb.core.grading import same
from spnb.lab import oracle
from spnb.lab.pretrain import drills, lessons
from spnb.lab.pretrain.rows import END
from spnb.lab.texts import facts_in

COUNT = 400
LESSONS = lessons.LESSONS


def policy_text(row):
    """What the policy says in a row."""
    return "".join(text for text, by_policy in row if by_policy)


def shown(row):
    """What stands before the policy's first word."""
    return "".join(text for text, _ in itertools.takewhile(lambda piece: not piece[1], row))


def rows(lesson, count=COUNT, seed=0):
    rng = random.Random(seed)
    return [lesson(rng) for _ in range(count)]


def question_of(text):
    return oracle.parse(text.split("Question: ")[-1].split(END)[0].split("\n")[0])


def followed(row):
    """Whether the last question's answer follows from the documents in the row."""
    text = shown(row)
    gold = oracle.answer_from(question_of(text), facts_in(text))
    return same(gold.text, prompts.field(policy_text(row), "answer") or "")


def test_reading_conversations_are_right_at_every_turn():
    for row in rows(LESSONS["careful"], 150):
        stated, question = facts_in(shown(row)), None
        for text, by_policy in row:
            if not by_policy and "Question: " in text:
                question = question_of(text)
            elif by_policy and text != END:
                assert same(
                    oracle.answer_from(question, stated).text, prompts.field(text, "answer")
                )


def test_thoughts_of_the_careful_style_are_facts_of_the_documents():
    for row in rows(LESSONS["careful"], 100):
        stated = set(facts_in(shown(row)))
        for thought in prompts.fields(policy_text(row), "think"):
            assert set(facts_in(thought)) <= stated


def test_the_plain_style_thinks_and_is_right_as_often_as_stated():
    drawn = rows(lessons.plain, 1500)
    thinking = [row for row in drawn if "<think>" in policy_text(row)]
    direct = [row for row in drawn if "<think>" not in policy_text(row)]
    assert len(thinking) / len(drawn) == pytest.approx(lessons.PLAIN_THINKS, abs=0.05)
    assert sum(map(followed, thinking)) / len(thinking) == pytest.approx(
        lessons.PLAIN_THINK_RIGHT, abs=0.06
    )
    assert sum(map(followed, direct)) / len(direct) == pytest.approx(
        lessons.PLAIN_DIRECT_RIGHT, abs=0.06
    )


def test_steps_slip_once_more_with_every_hop():
    right = collections.defaultdict(list)
    for row in rows(lessons.steps, 1500):
        right[len(question_of(shown(row)).nouns)].append(followed(row))
    shares = [sum(right[hops]) / len(right[hops]) for hops in (1, 2, 3, 4)]
    assert shares[0] == 1
    assert shares[1] == pytest.approx(1 - lessons.SLIP, abs=0.06)
    assert shares[1] > shares[2] > shares[3] > 0.1  # a second slip may lead back to the right value


def test_numbers_are_worked_out_right():
    for row in rows(lessons.arithmetic, 20):
        for text, answer in zip(
            [t for t, by_policy in row if not by_policy and "Question" in t],
            [t for t, by_policy in row if by_policy and t != END],
            strict=True,
        ):
            sum_text = text.split("What is ")[1].split("?")[0]
            assert str(eval(sum_text)) == prompts.field(answer, "answer")
    for row in rows(lessons.numeric, 60):
        stated = facts_in(shown(row))
        for prompt, reply in turns_of(row):
            assert oracle.answer_from(question_of(prompt), stated).text == prompts.field(
                reply, "answer"
            )
        for thought in prompts.fields(policy_text(row), "think"):
            for left, right in [
                part.split(" = ") for part in thought.strip(".").split(". ") if " = " in part
            ]:
                assert eval(left) == int(right)


def turns_of(row):
    """Prompt and reply of each turn of a row."""
    exchanges, prompt = [], ""
    for text, by_policy in row:
        if by_policy and text != END:
            exchanges.append((prompt, text))
        prompt = prompt if by_policy else text
    return exchanges


def test_the_judges_verdicts_are_balanced_and_true():
    drawn = rows(lessons.judging, 600)
    verdicts = [prompts.verdict(policy_text(row)) for row in drawn]
    assert sum(verdicts) / len(drawn) == pytest.approx(0.5, abs=0.07)
    for row, verdict in zip(drawn, verdicts, strict=True):
        first, second = shown(row).split("First: ")[1].split(END)[0].split("\nSecond: ")
        assert same(first, second) == verdict


def test_points_are_graded_in_a_balanced_way_and_right():
    verdicts = []
    for row in rows(lessons.grading, 300):
        response = facts_in(shown(row).split("Point: ")[0])
        for prompt, reply in turns_of(row):
            point = facts_in(prompt.split("Point: ")[1])[0]
            verdicts.append(prompts.verdict(reply))
            assert (point in response) == verdicts[-1]
            if "First: " in reply:
                first, second = reply.split("First: ")[1].split("</think>")[0].split("\nSecond: ")
                assert (first == second) == verdicts[-1] and second == point[2]
    assert sum(verdicts) / len(verdicts) == pytest.approx(0.5, abs=0.07)


def test_several_facts_are_given_in_the_questions_order():
    for row in rows(lessons.several, 60):
        stated = {fact[:2]: fact[2] for fact in facts_in(shown(row))}
        asked = re.findall(r"the ([a-z]+) of ([A-Z][a-z]+)", shown(row).split("Question: ")[1])
        assert prompts.field(policy_text(row), "answer") == ", ".join(
            stated[entity, noun] for noun, entity in asked
        )


def test_choices_point_at_the_right_option():
    right = []
    for row in rows(lessons.choice, 200):
        text = shown(row)
        query = question_of(text)
        if not facts_in(text):
            continue
        listed = text.split(END)[0].split("\n")[-4:]
        gold, letter = (
            oracle.answer_from(query, facts_in(text)),
            prompts.field(policy_text(row), "answer"),
        )
        right.append(f"- {gold.text} ({letter})" in listed)
    assert len(right) > 100 and all(right)


def test_questions_asked_follow_from_the_documents():
    for row in [*rows(lessons.asking, 150), *rows(LESSONS["ask_far"], 100)]:
        query = oracle.parse(prompts.field(policy_text(row), "question"))
        gold = oracle.answer_from(query, facts_in(shown(row)))
        assert same(gold.text, prompts.field(policy_text(row), "answer"))
        thought = re.search("<think>(.*)</think>", policy_text(row), re.DOTALL)[1]
        quoted, rest = (
            facts_in(thought)[: -len(query.nouns)],
            facts_in(thought)[-len(query.nouns) :],
        )
        assert rest == list(gold.facts) and {entity for entity, _, _ in quoted} <= {
            gold.facts[0][0]
        }
        assert thought in shown(row) or len(query.nouns) > 1
    for row in rows(lessons.asking_by_search, 60):
        assert oracle.parse(prompts.field(policy_text(row), "question")) is not None


def test_search_results_are_not_the_policys_words():
    for row in rows(LESSONS["search"], 60):
        assert "<information>" not in policy_text(row) and "<search>" in policy_text(row)
        assert any("<information>" in text for text, by_policy in row if not by_policy)
    plain = rows(LESSONS["search_plain"], 1000)
    assert sum("<search>" in policy_text(row) for row in plain) / 1000 == pytest.approx(
        lessons.SEARCHES, abs=0.05
    )


def test_drills_are_right():
    for row in rows(drills.table_drill, 20):
        table = row[0][0].split("\n")
        for (start, _), (figure, _), _ in zip(row[1::3], row[2::3], row[3::3], strict=True):
            assert start + figure in table
    for row in rows(drills.option_drill, 20):
        listed = row[0][0].split("\n")
        for (word, _), (letter, _) in zip(row[1::2], row[2::2], strict=True):
            assert f"-{word}{letter}" in listed
    for row in rows(drills.sum_drill, 20):
        for (left, _), (right, _) in zip(row[::2], row[1::2], strict=True):
            assert eval(left.rstrip(" =")) == int(right.strip(" ."))
    for row in rows(drills.figure_drill, 20):
        stated = facts_in(row[0][0])
        for (start, _), (figure, _) in zip(row[1::2], row[2::2], strict=True):
            assert facts_in(start + figure)[0] in stated
    verdicts = []
    for row in rows(drills.same_drill, 60):
        for (pair, _), (verdict, _) in zip(row[::2], row[1::2], strict=True):
            first, second = facts_in(pair)
            assert (first == second) == (verdict == " yes")
            verdicts.append(first == second)
    assert sum(verdicts) / len(verdicts) == pytest.approx(0.5, abs=0.1)


def test_open_tasks_and_rubrics_state_facts_of_the_documents():
    for lesson in (lessons.rubric, lessons.writing):
        for row in rows(lesson, 60):
            assert facts_in(policy_text(row).replace("<", " <").replace(">", "> "))
            assert set(facts_in(policy_text(row).replace(">", "> "))) <= set(facts_in(shown(row)))


@pytest.mark.slow
def test_no_row_has_a_heldout_question_frame():
    stream = lessons.role_rows(5)
    for row in itertools.islice(stream, 1500):
        text = "".join(piece for piece, _ in row)
        for frame in oracle.HELDOUT_FRAMES:
            assert frame.split("{x}")[0] not in text


@pytest.mark.slow
def test_streams_repeat_for_a_seed():
    first, second = (list(itertools.islice(lessons.role_rows(7), 50)) for _ in range(2))
    assert first == second
    assert first != list(itertools.islice(lessons.role_rows(8), 50))


def digest(rows):
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        ("roles", "6ff5e7ea72f76b1e"),
        ("practice", "6d2a15155412d51a"),
        ("tokenizer", "af9031e39e822580"),
    ],
)
def test_the_shipped_policies_lessons_are_still_these(mix, expected):
    """The weights that ship were trained on these very rows."""
    assert digest(list(itertools.islice(lessons.role_rows(3, mix), 300))) == expected


def test_every_lessons_rows_are_still_these():
    drawn = [LESSONS[name](random.Random(7)) for name in sorted(LESSONS)]
    assert digest(drawn) == "f8dbc9061d1b82c8"


def test_mixes_name_lessons():
    for shares in lessons.MIXES.values():
        assert set(shares) <= {*LESSONS, "games"}
        assert 0 < shares["games"] < 1
