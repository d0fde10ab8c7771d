"""Open-ended tasks and reports in numbers, by hand."""

from types import SimpleNamespace

import pytest

from spnb.core.documents import Judgement
from spnb.core.search import LOST
from spnb.core.types import Task, Trajectory
from spnb.corpus.passages import Reading
from spnb.evaluate.reports import (
    Answer,
    Item,
    answer_numbers,
    rubric_numbers,
    task_numbers,
    task_record,
    written_rows,
)

Y, N = True, False


def answer(*given, text="x", finish="stop", searches=0, tokens=0):
    told = Trajectory((), policy_text=text, finish=finish, searches=["q"] * searches)
    return Answer(told, text, list(given), tokens)


def item(*answers, **values):
    return Item(Reading("plan"), Trajectory((), text="t"), answers=list(answers), **values)


def judged(level, right):
    return Judgement(level, True, right)


def test_numbers_of_tasks_by_hand():
    """Of five tasks three were measured: of mean 1/2 with spread, too easy, of mean 1/2 without."""
    items = [
        item(answer(Y, Y, N), answer(Y, N, N), form=1.0, judgement=judged(2, True)),
        item(answer(Y, Y), answer(Y, Y), form=0.5, judgement=judged(5, False)),
        item(answer(Y, None), answer(Y, N), form=0.25),
        item(reason="no rubric", judgement=judged(8, False)),
        item(answer(Y, finish=LOST), reason="retriever"),
    ]
    assert task_numbers(items) == pytest.approx(
        {
            **{"form": 1.75 / 5, "stopped/no rubric": 1 / 5, "stopped/retriever": 1 / 5},
            **{"usable": 3 / 5, "success": 2 / 3, "unreadable grades": 1 / 14},
            **{"middle": 2 / 3, "spread": 1 / 3, "middle without spread": 1 / 2},
            **{"level": 3.5, "right": 1 / 2},
        }
    )
    assert task_numbers([]) == {"form": 0, "usable": 0}


def test_a_lost_answer_is_no_part_of_a_task_and_one_that_is_left_is():
    lost = answer(Y, Y, finish=LOST)
    half = item(answer(Y, N), lost)
    assert (half.mean, half.spread, half.lost) == (0.5, False, False)
    assert item(lost, lost).lost and item(lost).mean == 0 and not item().lost


def test_points_of_rubrics_count_alike_whatever_their_rubric():
    """Two of three and one of one are there; of the oracle's four, and one."""
    golds = [tuple("abxy"), ("d",), None]
    points = [tuple("abc"), ("d",), ("z",)]
    items = [item(proposal=gold, points=own) for gold, own in zip(golds, points, strict=True)]
    source = SimpleNamespace(rubric=lambda proposal, context: proposal)
    found = rubric_numbers(items, source)
    assert found == pytest.approx({"rubric precision": 3 / 4, "rubric recall": 3 / 5})
    assert rubric_numbers(items[2:], source) == {}


def test_numbers_of_answers_by_hand():
    """Grades of 1 and 0 to one task, 1 to another; one answer is lost, one the oracle cannot read.

    Points are there: a, not b; not a, b; c. Three of the five grades say so.
    """
    first = answer(Y, Y, text="a", searches=2, tokens=10), answer(N, None, text="b", tokens=30)
    lost = answer(Y, Y, text="a", finish=LOST, tokens=999)
    second = answer(Y, text="c", searches=1, tokens=20)
    items = [item(*first, lost, points=("a", "b")), item(second, points=("c",))]
    said = {"a": {"score": 0.25, "points": 0.5, "repeated": 0.5}}
    said["c"] = {"score": 1.0, "points": 0.75, "repeated": 0.0}
    oracle = SimpleNamespace(
        states=lambda text, point: point in text, oracle=lambda task, text: said.get(text, {})
    )
    assert answer_numbers(items, [Task([])] * 2, oracle) == pytest.approx(
        {
            **{"grade": 2 / 3, "variance": 1 / 8, "tokens": 20, "searches": 1},
            **{"unreadable grades": 1 / 5, "grades right": 3 / 5},
            **{"given and not there": 1 / 2, "withheld and there": 1 / 3},
            **{"oracle": 0.625, "repeated": 0.25, "judge above points": 0.375},
        }
    )


def test_rows_of_written_tasks_by_hand():
    """The oracle's word, or without one the gates'; success of what passed, levels of what is read.

    Means: (1/2 + 0) / 2 and (2 + 5) / 2.
    """
    items = [
        item(answer(Y, N), judgement=judged(2, True)),
        item(answer(N, N), judgement=judged(5, False)),
        item(answer(Y, Y), reason="too easy"),
    ]
    records = [task_record(place, one) for place, one in enumerate(items)]
    assert [(one["item"], one["score"], one["level"]) for one in records] == [
        *(("0", 1, 2), ("1", 0, 5), ("2", 0, 0))
    ]
    values = {row["metric"]: (row["value"], row["n"]) for row in written_rows(records)}
    assert values == {"valid": (pytest.approx(1 / 3), 3), "success": (0.25, 2), "level": (3.5, 2)}
    assert task_record(0, item())["score"] == 1
