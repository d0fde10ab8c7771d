"""SPICE's suites: what they ask, how they are graded; numbers of tasks by hand."""

import re

import pytest
from fakes import CharTokenizer

from spnb.core.documents import Judgement
from spnb.core.types import Chat, Completion, Sampling
from spnb.evaluate.items import play_suite
from spnb.evaluate.proposals import challenge_rows, judged_columns, task_numbers
from spnb.lab.ladder import reply
from spnb.lab.segments import GROUPS, KINDS, SUITES, segment_suites, suite_tasks
from spnb.lab.world import names


class Solver:
    """Answers every task in the order that `order(level)` says."""

    def __init__(self, tasks, order):
        self.by_prompt = {task.messages[0]["content"]: task for task in tasks}
        self.order = order

    def generate(self, requests):
        answers = []
        for request in requests:
            task = self.by_prompt["".join(map(chr, request.prompt_ids))]
            text = reply(task, self.order(task.info["level"]), "E")
            answers.append(Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop"))
        return answers


def play(order, items=2):
    tasks = [task for name in SUITES for task in suite_tasks(name, items)]
    solver = Solver(tasks, order)
    suites = segment_suites(items, Chat(CharTokenizer()), Sampling(64))
    return {suite.name: play_suite(suite, {"policy": solver}) for suite in suites}


def test_five_suites_are_closed_book_and_three_have_documents():
    closed = [name for name, asked in SUITES.items() if "reads" not in asked]
    assert len(closed) == 5 and len(SUITES) == 8
    assert {half: len(names) for half, names in GROUPS.items()} == {"math": 4, "general": 4}
    trained = {*names("person", "train")}
    for name, asked in SUITES.items():
        assert KINDS[asked["kind"]].half == asked["group"]
        for task in suite_tasks(name, 2):
            prompt = task.messages[0]["content"]
            assert ("\n[1] " in prompt) == ("reads" in asked)
            assert not trained & set(re.findall("[A-Z][a-z]+", prompt))
            assert (len(task.info.get("options", ())) == 4) == (asked["answer_type"] == "choice")
        assert suite_tasks(name, 2) == suite_tasks(name, 2)


@pytest.mark.slow
def test_the_right_order_is_right_everywhere_and_others_are_not():
    for name, (records, rows) in play(lambda level: range(level)).items():
        assert len(records) == 12 and {one["score"] for one in records} == {1.0}
        assert {row["suite"] for row in rows} == {name}
    for name, (_, rows) in play(lambda level: range(level)[::-1]).items():
        accuracy = {row["difficulty"]: row["value"] for row in rows if row["metric"] == "accuracy"}
        assert accuracy["level 1"] == 1
        kind = SUITES[name]["kind"]
        assert all(accuracy[f"level {n}"] == 0 for n in range(2, 7)) or kind == "ledger"
        assert accuracy[""] < 0.5


def test_another_prompt_and_tag_may_be_used():
    ask = lambda text: [{"role": "user", "content": f"{text}\n\nBox it."}]  # noqa: E731
    for name in ("string", "choice-documents"):
        plain, boxed = suite_tasks(name, 1), suite_tasks(name, 1, ask, "boxed")
        for one, other in zip(plain, boxed, strict=True):
            text = other.messages[0]["content"]
            assert text.endswith("\n\nBox it.") and "<answer>" not in text
            assert one.question in text and one.gold == other.gold
            assert other.info["tag"] == "boxed"


def task(question, success, pay, answer_type="string", **judgement):
    facts = {"question": question, "success": success, "pay": pay, "answer_type": answer_type}
    judgement = {"self_contained": False, "leaks": False} | judgement
    return facts | judged_columns(Judgement(**judgement))


TASKS = [
    task("a b c d e", 0.5, 1.0, level=2, self_contained=True, right=True, faithful=True),
    task("a b c d e", 1.0, 0.0, level=1, self_contained=True, faithful=False, leaks=True),
    task("a b c d x", 0.0, 0.5, "choice", level=3, right=True),  # another, and near
]


def test_numbers_of_tasks_by_hand():
    numbers = task_numbers(TASKS)
    assert numbers == pytest.approx(
        {
            **{"tasks": 3, "self_contained": 2 / 3, "right": 2 / 3, "leaks": 1 / 3},
            **{"faithful": 1 / 2, "level": 2, "success": 0.5, "pay": 0.5},
            **{"mixed": 1 / 3, "distinct": 2 / 3, "diversity": 1 / 3},
        }
    )
    assert task_numbers([]) == {"tasks": 0}
    records = [{"score": 1.0, **one} for one in TASKS] + [{"score": 0.0}]
    rows = challenge_rows(records)
    found = {row["metric"]: row["value"] for row in rows if not row["difficulty"]}
    expected = {key: value for key, value in numbers.items() if key != "tasks"}
    assert found == pytest.approx(expected | {"valid": 0.75, "solved": 0.25, "misled": 1.0})
    forms = {
        (row["difficulty"], row["metric"]): row["value"]
        for row in rows
        if row["difficulty"] and row["n"]
    }
    assert forms == {
        **{("choice", "right"): 1, ("choice", "success"): 0},
        **{("free form", "right"): 0.5, ("free form", "success"): 0.75, ("free form", "misled"): 1},
    }


def test_tasks_that_the_oracle_cannot_judge_are_left_out_of_its_numbers():
    """On a document of another corpus nothing is known but how the task was answered."""
    read = {"score": 1.0, "question": "a", "success": 0.5, "pay": 1.0}
    known = {**read, "question": "b", "level": 3, "right": 1.0, "answer_type": "integer"}
    found = {row["metric"]: row["value"] for row in challenge_rows([read, known])}
    assert (found["level"], found["right"], found["success"], found["valid"]) == (3, 1, 0.5, 1)
    alone = {row["metric"]: row["value"] for row in challenge_rows([read])}
    assert alone["level"] != alone["level"] and "right" not in alone and alone["pay"] == 1
