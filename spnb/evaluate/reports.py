"""Open-ended tasks in numbers: what reports are worth to an oracle and to a judge, what tasks are.

An item is a task in the making, with the answers that a solver wrote for it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pvariance
from typing import Any

from spnb.core.documents import Context, Judgement, Proposal
from spnb.core.search import LOST
from spnb.core.types import Task, Trajectory, grouped
from spnb.evaluate.items import Records, Rows, mean_row, record, share_row, task_rows

SUITE = "reports"
"""A record's item is the task, its score the oracle's, its role the type of task, its difficulty
the level; it has the judge's grade, points told anywhere, sections told again, tokens, searches."""
TASKS = "tasks"
"""A record's item is the held-out document, its score whether the oracle finds the task as asked
for (without one whether it passed the gates); it has the level, the mean grade of answers, the gate
that stopped it, its text and its rubric."""
LOW, HIGH = 0.2, 0.8
"""Mean grades between which a task is for the solver (SCOPE, section 3.1)."""


@dataclass
class Answer:
    """A solver's trajectory and what it is worth: the rubric's grade, points given one by one (None
    where a grade could not be read), and the reward."""

    trajectory: Trajectory
    text: str | None = None
    given: list[bool | None] = field(default_factory=list)
    tokens: int = 0
    reward: float = 0.0

    @property
    def grade(self) -> float:
        """The share of points given."""
        return fmean(map(bool, self.given)) if self.given else 0.0

    @property
    def lost(self) -> bool:
        """Whether the retriever failed."""
        return self.trajectory.finish == LOST


@dataclass
class Item:
    """A task in the making: what the challenger wrote, which gate stopped it, its rubric, answers.

    `form` is the challenger's format reward; `reason` says what stopped the task, "" for nothing.
    """

    context: Context
    trajectory: Trajectory | None = None
    form: float = 0.0
    proposal: Proposal | None = None
    reason: str = ""
    points: tuple[str, ...] = ()
    judgement: Judgement | None = None
    answers: list[Answer] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean grade of the answers whose search did not fail."""
        return fmean([one.grade for one in self.answers if not one.lost] or [0.0])

    @property
    def level(self) -> int:
        """How many stops the task asks for, by the oracle; 0 where it reads none."""
        return self.judgement.level if self.judgement else 0

    @property
    def lost(self) -> bool:
        """Whether it was answered and every answer's search failed."""
        return bool(self.answers) and all(one.lost for one in self.answers)

    @property
    def spread(self) -> bool:
        """Whether the answers' grades differ."""
        return len({one.grade for one in self.answers if not one.lost}) > 1


def report_rows(records: Records) -> Rows:
    """The oracle's score, in all, by level and by type of task, and the mean of each further
    column but texts; the judge's grade by type, too."""
    plain = [{key: value for key, value in one.items() if key != "text"} for one in records]
    rows = task_rows(SUITE, plain, "oracle")
    for kind, part in grouped(records, lambda one: one["role"]).items():
        for metric, column in (("oracle", "score"), ("judge", "judge")):
            rows.append(mean_row(SUITE, metric, [one[column] for one in part], role=kind))
    return rows


def task_record(place: int, item: Item) -> dict[str, Any]:
    """The record of a task that a challenger wrote on a held-out document."""
    return record(
        TASKS,
        str(place),
        float(item.judgement.right if item.judgement else not item.reason),
        reason=item.reason,
        level=item.level,
        success=item.mean,
        text=item.trajectory.text,
        points=list(item.points),
    )


def written_rows(records: Records) -> Rows:
    """valid; of the tasks that passed the gates success (the mean grade of answers), of all that
    the oracle can read the level."""
    passed = [one["success"] for one in records if not one["reason"]]
    levels = [one["level"] for one in records if one["level"]]
    return [
        share_row(TASKS, "valid", [one["score"] for one in records]),
        mean_row(TASKS, "success", passed),
        mean_row(TASKS, "level", levels),
    ]


def outside(mean: float) -> str:
    """Why a task of this mean grade is not for the solver; "" where it is."""
    mean = round(mean, 9)  # 0.8 of three answers is a little above it
    return "too hard" if mean < LOW else "too easy" if mean > HIGH else ""


def unfit(item: Item) -> str:
    """Why a task that was answered is not for the solver; "" where it is."""
    given = {mark for one in item.answers for mark in one.given}
    return "unreadable grades" if given == {None} else outside(item.mean)


def task_numbers(items: Sequence[Any]) -> dict[str, float]:
    """Of a challenger's tasks: mean format reward, the share stopped by each gate; of those that
    were answered the mean grade, grades that could not be read, the share with a mean in the
    middle, with spread, and without spread in the middle; by the oracle their level and the share
    that is as was asked for."""
    count = max(1, len(items))
    numbers: dict[str, float] = {"form": sum(item.form for item in items) / count}
    reasons = Counter(item.reason for item in items if item.reason)
    numbers |= {f"stopped/{why}": number / count for why, number in reasons.items()}
    measured = [item for item in items if item.answers and not item.lost]
    numbers["usable"] = len(measured) / count
    middle = [item for item in measured if not outside(item.mean)]
    judged = [item.judgement for item in measured if item.judgement]
    means: dict[str, list[float]] = {
        "success": [item.mean for item in measured],
        "unreadable grades": [
            mark is None for item in measured for one in item.answers for mark in one.given
        ],
        "middle": [not outside(item.mean) for item in measured],
        "spread": [item.spread for item in measured],
        "middle without spread": [not item.spread for item in middle],
        "level": [judgement.level for judgement in judged],
        "right": [judgement.right for judgement in judged],
    }
    return numbers | {name: fmean(values) for name, values in means.items() if values}


def rubric_numbers(items: Sequence[Any], source: Any) -> dict[str, float]:
    """Of rubrics whose task the oracle can read: points that it would write (precision), and its
    points that are there (recall)."""
    golds = [source.rubric(item.proposal, item.context) for item in items]
    known = [({*item.points}, {*gold}) for item, gold in zip(items, golds, strict=True) if gold]
    right = sum(len(points & gold) for points, gold in known)
    if not known:
        return {}
    return {
        "rubric precision": right / max(1, sum(len(points) for points, _ in known)),
        "rubric recall": right / sum(len(gold) for _, gold in known),
    }


def answer_numbers(items: Sequence[Any], tasks: Sequence[Task], source: Any) -> dict[str, float]:
    """Of a step's answers: mean grade, its variance within a task, tokens, searches, grades that
    could not be read. By the oracle: score, sections told again, how far the judge's grade is above
    the points that are there, and the shares of single grades that are right, of points given among
    those that are not there, and withheld among those that are."""
    answers = [
        (task, item, one)
        for task, item in zip(tasks, items, strict=True)
        for one in item.answers
        if not one.lost
    ]
    marks = [
        (mark, source.states(one.text, point))
        for _, item, one in answers
        for mark, point in zip(one.given, item.points, strict=False)
    ]
    told = [(one, source.oracle(task, one.trajectory.policy_text)) for task, _, one in answers]
    told = [(one, said) for one, said in told if said]
    grades = [[one.grade for one in item.answers if not one.lost] for item in items]
    means: dict[str, list[float]] = {
        "grade": [one.grade for *_, one in answers],
        "variance": [pvariance(each) for each in grades if each],
        "tokens": [one.tokens for *_, one in answers],
        "searches": [len(one.trajectory.searches) for *_, one in answers],
        "unreadable grades": [mark is None for mark, _ in marks],
        "grades right": [bool(mark) == right for mark, right in marks if right is not None],
        "given and not there": [bool(mark) for mark, right in marks if right is False],
        "withheld and there": [not mark for mark, right in marks if right],
        "oracle": [said["score"] for _, said in told],
        "repeated": [said["repeated"] for _, said in told],
        "judge above points": [one.grade - said["points"] for one, said in told],
    }
    return {name: fmean(values) for name, values in means.items() if values}
