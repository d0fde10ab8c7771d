"""Suites about long contexts, answered by scripted responders: what each holds, and its numbers."""

import random
import re

import pytest
from fakes import CharTokenizer, Roles, asked_in, steps_in

from spnb.core import prompts
from spnb.core.documents import Judgement
from spnb.core.types import Chat, Trajectory
from spnb.evaluate.items import pass_at_k_rows, play_suite
from spnb.evaluate.proposals import difficulty, difficulty_rows
from spnb.lab import ladder
from spnb.lab.clusters import FORMS, LENGTH, SHOTS, TYPES, draw_form, suites
from spnb.lab.world import names
from spnb.methods.spell import Params

PARAMS = dict(tasks=list(TYPES), eval_items=2, eval_samples=3, max_new_tokens=64)
PARAMS |= dict(eval_temperature=0.7, eval_top_p=0.95)
LONGER = [f"{name}-8" for name in TYPES]
SINGLE = [f"{name}-1" for name in TYPES]


def made(ends=True, documents=(2, 8), **values):
    """The suites of a step by name."""
    params = Params(**PARAMS | values)
    return {one.name: one for one in suites(params, Chat(CharTokenizer()), documents, ends)}


def played(suite, answers=None):
    """Records, rows and prompts of a suite."""
    engine = Roles(answers=answers or (lambda number: "right"))
    records, rows = play_suite(suite, {"policy": engine})
    return records, rows, engine


def value(rows, metric, difficulty=""):
    (row,) = [row for row in rows if (row["metric"], row["difficulty"]) == (metric, difficulty)]
    return row["value"]


def listed(prompt):
    """The documents of a prompt."""
    return re.findall(r"\[\d+\] (.*)", prompt)


def test_what_is_measured_at_the_ends_and_between():
    first = [f"{name}-2" for name in TYPES]
    assert list(made(ends=False)) == first
    assert list(made()) == [*first, *LONGER, *SINGLE, *FORMS]
    assert list(made(ends=False, tasks=["choice"])) == ["choice-2"]
    for name, suite in made().items():
        samples = 1 if name in (*SINGLE, *FORMS) else 3
        assert len(suite.parts) == 2 * LENGTH * samples, name


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("family", list(TYPES))
def test_documents_levels_and_names_of_a_suite(family, count):
    records, rows, engine = played(made()[f"{family}-{count}"])
    levels, trained = [], {*names("person", "train"), *names("town", "train")}
    for prompt in engine.prompts["responder"]:
        assert len(listed(prompt)) == count
        assert not trained & set(re.findall(r"[A-Z]\w+", prompt))
        asked, who, level = asked_in(prompt)
        assert asked == family and len(steps_in(prompt, who)) == LENGTH
        levels.append(level)
    samples = 1 if count == 1 else 3
    assert levels == [level for level in range(1, LENGTH + 1) for _ in range(2 * samples)]
    assert {record["suite"] for record in records} == {f"{family}-{count}"}
    assert value(rows, "accuracy") == 1
    sampling = {request.sampling for request in engine.requests}
    assert {(one.temperature, one.top_p, one.max_new_tokens) for one in sampling} == {
        (0.7, 0.95, 64)
    }
    assert len({request.seed for request in engine.requests}) == len(engine.requests)


@pytest.mark.slow
def test_questions_are_the_same_at_every_step_and_for_every_number_of_samples():
    def asked(**values):
        return played(made(**values)["journey-2"])[2].prompts["responder"]

    first = asked()
    assert asked() == asked(ends=False) == first and asked(eval_samples=1) == first[::3]
    assert played(made(tasks=["journey"])["journey-2"])[2].prompts["responder"] == first
    assert not {*asked()} & {*played(made()["needles"])[2].prompts["responder"]}
    other = asked(eval_draw="search")
    assert len(other) == len(first) and not {*other} & {*first} and asked(eval_draw="a") != other


def test_accuracy_by_level_and_pass_at_k_by_hand():
    """One of three answers is right up to level 2, two at levels 3 and 4, none above."""

    def answers(number):
        level, sample = number // 6 + 1, number % 3
        right = {1: 1, 2: 1, 3: 2, 4: 2}.get(level, 0)
        return "right" if sample < right else "wrong"

    records, rows, _ = played(made()["journey-2"], answers)
    shares = [value(rows, "accuracy", f"level {level}") for level in range(1, 7)]
    assert shares == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 0, 0])
    assert value(rows, "accuracy") == pytest.approx(1 / 3)
    assert {record["sample"] for record in records} == {0, 1, 2}
    passes = {row["metric"]: row["value"] for row in pass_at_k_rows(records, (1, 2, 3))}
    # pass@2 of 3: 1 - C(2, 2) / C(3, 2) with one right answer, 1 with two.
    expected = {"pass@1": 1 / 3, "pass@2": (2 / 3 + 1) / 3, "pass@3": 2 / 3}
    assert passes == pytest.approx(expected)


def test_an_answer_in_another_order_is_consistent_but_not_right():
    for manner, right, consistent in (("backwards", 1 / 6, 1), ("wrong", 0, 0), ("right", 1, 1)):
        records, rows, _ = played(made()["journey-2"], lambda number, manner=manner: manner)
        assert value(rows, "accuracy") == pytest.approx(right)  # one stop has one order
        assert value(rows, "consistent") == consistent
        assert {record["consistent"] for record in records} == {bool(consistent)}


# --- other forms


def tasks_of(form, count=4, levels=range(1, LENGTH + 1), seeds=range(5)):
    for seed in seeds:
        for level in levels:
            yield draw_form(form, count, level, random.Random(seed), "heldout")


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_answered_from_its_own_documents(form):
    _, rows, engine = played(made()[form])
    assert value(rows, "accuracy") == 1
    counts = {len(listed(prompt)) for prompt in engine.prompts["responder"]}
    assert counts == {2 + (SHOTS if form == "many-shot" else 0)}
    _, rows, _ = played(made()[form], lambda number: "wrong")
    assert value(rows, "accuracy") == 0


def test_needles_are_dealt_out():
    for task in tasks_of("needles"):
        texts, who = task.info["documents"], task.info["source"].subject
        assert len(texts) == 4 and {len(re.findall(r"\.", text)) for text in texts} == {LENGTH}
        assert sum(who in text.split() for text in texts) > 1


def test_documents_are_found_among_many():
    for task in tasks_of("rag", seeds=range(2)):
        texts, source = task.info["documents"], task.info["source"]
        assert len(texts) == len(set(texts)) == 4
        assert tuple(steps_in(texts[0], source.subject)) == source.steps  # the best one first


def test_solved_questions_stand_before_the_documents():
    for task in tasks_of("many-shot"):
        shots, texts = task.info["documents"][:SHOTS], task.info["documents"][SHOTS:]
        people = {word for text in texts for word in re.findall(r"\w+", text)}
        for shot in shots:
            question, answer = re.fullmatch(r"(.*[.?]) (.*)", shot).groups()
            (who, level), words = ladder.parse("journey", question), answer.split()
            assert words[::3] == [who] * level and words[1::3] == [*ladder.ORDINALS[:level]]
            assert who not in people  # nobody whom the documents are about
        assert len(texts) == 4 and task.messages == prompts.answer(
            task.question, [*shots, *texts], "plain"
        )


def test_a_summary_is_graded_by_its_points():

    def partly(prompt, number):
        family, who, level = asked_in(prompt)
        source = ladder.Source(family, who, tuple(steps_in(prompt, who)))
        return f"<answer> {ladder.result(source, max(1, level - 1))}</answer>"

    engine = Roles()
    engine.responder = partly
    _, rows = play_suite(made()["summary"], {"policy": engine})
    # All but the last point: (level - 1 - 1) / level, never below 0; level 1 in full.
    expected = [1, 0, 1 / 3, 1 / 2, 3 / 5, 2 / 3]
    shares = [value(rows, "accuracy", f"level {level}") for level in range(1, 7)]
    assert shares == pytest.approx(expected)


# --- difficulty


def test_difficulty_by_hand():
    def answers(*texts):
        text = [f"<answer> {text}</answer>" for text in texts]
        return [Trajectory((1,), [2], [1], [-1.0], one, one) for one in text]

    def judged(level, gold, grade):
        return Judgement(level, True, True, gold=gold, grade=grade)

    full = "Alana first Arnford Alana second Belford"
    records = [
        difficulty(
            0, "journey", judged(2, full, "exact"), answers(full, "Arnford Belford", full, "")
        ),
        difficulty(1, "ledger", judged(3, "29", "integer"), answers("29", "30", "29.0", "nothing")),
        difficulty(2, "choice", Judgement(), []),
        difficulty(3, "choice", judged(1, "B", "letter"), answers("B", "b", "(B)", "b.")),
    ]
    # The full answer alone is exact: 2 of 4; 29 and 29.0 are 2 of 4; every B.
    assert [(one["score"], one["level"], one["kind"]) for one in records] == [
        (0.5, 2, "journey"),
        (0.5, 3, "ledger"),
        (0, 0, "choice"),
        (1, 1, "choice"),
    ]
    rows = difficulty_rows(records)
    assert value(rows, "valid") == 0.75 and value(rows, "level") == 2
    hard = {name: value(rows, "difficulty", name) for name in ("", *TYPES)}
    assert hard == pytest.approx({"": 1 / 3, "journey": 0.5, "ledger": 0.5, "choice": 0})
    rows = difficulty_rows([difficulty(0, "journey", Judgement(), [])])
    assert value(rows, "valid") == 0 and value(rows, "difficulty") != value(rows, "difficulty")
