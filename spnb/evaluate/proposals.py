"""Proposed questions in numbers: how many are valid, how hard they are, how much they differ."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from spnb.core.documents import Judgement
from spnb.core.grading import grade, read_answer
from spnb.core.types import Trajectory
from spnb.corpus.clusters import TYPES
from spnb.evaluate.diversity import clusters
from spnb.evaluate.items import Records, Rows, mean_row, record, row, share_row

SUITE = "proposals"
"""A record's item is the set of sources, its score validity; it has the question's level,
p (the solver's share of right answers) and what that pays."""
UNVERIFIED = "not verified"
"""The reason for a question whose answer a verifier does not give."""
CHALLENGES = "challenges"
"""The suite of a challenger's tasks. A record's item is the document, its score validity; of a
valid task it has the oracle's judgement, p (the reasoner's share of right answers), what that pays
and the question."""
JUDGED = ("self_contained", "right", "faithful", "leaks")
"""What the oracle says of a task; faithful is None where there is no document."""
DIFFICULTY = "difficulty"
"""The suite of proposals that an external policy answers; a record's score is pass@1 of it, its
kind the task type; level 0: no question that has an answer."""


def proposal_rows(records: Records) -> Rows:
    """valid; over the valid ones level, success (mean p), pay, and mixed (right and wrong)."""
    valid = [one for one in records if one["score"] == 1]
    return [share_row(SUITE, "valid", [one["score"] for one in records]), *_mean_rows(SUITE, valid)]


def _mean_rows(suite: str, valid: Records) -> Rows:
    """level, success, pay and mixed of valid questions."""
    rows = []
    for metric in ("level", "success", "pay"):
        values = [one[metric] for one in valid if metric in one]
        rows.append(mean_row(suite, metric, values))
    mixed = [float(0 < one["success"] < 1) for one in valid if "success" in one]
    return [*rows, share_row(suite, "mixed", mixed)]


def question_metrics(questions: Records) -> dict[str, float]:
    """A step's valid questions: how many, mean level, success and pay, the share with right and
    wrong answers, the share of each level."""
    numbers: dict[str, Any] = {"questions": len(questions)}
    if questions:
        frame = pd.DataFrame(questions, dtype=float)
        numbers |= frame.mean().to_dict()
        numbers["mixed"] = frame["success"].between(0, 1, inclusive="neither").mean()
        levels = frame["level"].value_counts(normalize=True).sort_index()
        numbers |= {f"level/{level:.0f}": share for level, share in levels.items()}
    return numbers


# --- SPELL's


def difficulty(
    place: int, kind: str, judgement: Judgement, answers: Sequence[Trajectory]
) -> dict[str, Any]:
    """The record of a proposal: its level, and the share of answers that are the true one."""
    texts = [read_answer(answer.policy_text) or "" for answer in answers]
    right = [grade(text, judgement.gold, judgement.grade) for text in texts]
    share = sum(right) / len(right) if right else 0.0
    return record(DIFFICULTY, str(place), share, kind=kind, level=judgement.level)


def difficulty_rows(records: Records) -> Rows:
    """valid (proposals that have an answer); over these difficulty, 1 - pass@1, and level."""
    valid = [one for one in records if one["level"]]
    rows = [share_row(DIFFICULTY, "valid", [float(one["level"] > 0) for one in records])]
    for family in ["", *TYPES]:
        of = [one for one in valid if family in ("", one["kind"])]
        hard = [1 - one["score"] for one in of]
        rows.append(mean_row(DIFFICULTY, "difficulty", hard, difficulty=family))
    return [*rows, mean_row(DIFFICULTY, "level", [one["level"] for one in valid])]


def spell_numbers(questions: Sequence[Any]) -> dict[str, float]:
    """A step's metrics: what became of its questions (`spnb.methods.spell.Question`), and what the
    oracle says of them.

    Shares of all questions: bad format, ungrounded, answered, mixed; `valid/<type>`: a type's share
    of the answered ones. Over the answered ones: success, level, right (the stated answer is true),
    answerable (there is a true answer); malformed: judgments that are neither yes nor no.
    """
    count = len(questions)
    answered = [question for question in questions if question.rewards]
    metrics: dict[str, float] = {"questions": float(count)}
    if any(question.trajectory for question in questions):
        metrics["bad format"] = sum(q.proposal is None for q in questions) / count
        metrics["ungrounded"] = sum(not q.grounded for q in questions) / count
    metrics["mixed"] = sum(q.mixed for q in questions) / count
    metrics["answered"] = len(answered) / count
    if answered:
        for family, name in TYPES.items():
            metrics[f"valid/{name}"] = fmean(q.context.kind == family for q in answered)
        facts = [question.facts() for question in answered]
        metrics["answerable"] = fmean("level" in one for one in facts)
        for key in ("success", "pay", "level", "right"):
            if values := [one[key] for one in facts if key in one]:
                metrics[key] = fmean(values)
        if votes := [vote for question in answered for of in question.votes for vote in of]:
            metrics["malformed"] = fmean(vote is None for vote in votes)
        metrics |= verifier_numbers(answered)
    return metrics


def verifier_numbers(questions: Sequence[Any]) -> dict[str, float]:
    """How often rule and majority differ, also by task type, and how often each is wrong by the
    oracle, where there is one.

    False yes: of answers that mean something else than the stated one; false no: of those that mean
    the same.
    """
    rows = [
        (same, rule, bool(verdict), verdict is not None, question.context.kind)
        for question in questions
        for answer, same, rule, verdict in zip(
            question.answers, question.same, question.rule, question.majorities, strict=True
        )
        if read_answer(answer.policy_text) is not None
    ]
    numbers: dict[str, float] = {}
    verified = [row for row in rows if row[3]]
    if verified:
        numbers["disagreement"] = fmean(rule != verdict for _, rule, verdict, *_ in verified)
    for family, name in TYPES.items():
        if of := [rule != verdict for _, rule, verdict, _, each in verified if each == family]:
            numbers[f"disagreement/{name}"] = fmean(of)
    for name, at, of in (("rule", 1, rows), ("verifier", 2, verified)):
        yes = [row[at] for row in of if row[0] is False]
        no = [not row[at] for row in of if row[0]]
        numbers |= {f"{name} false yes": fmean(yes)} if yes else {}
        numbers |= {f"{name} false no": fmean(no)} if no else {}
    return numbers


# --- SPICE's


def judged_columns(judgement: Judgement) -> dict[str, Any]:
    """What the oracle says, as columns of a record."""
    columns = {name: getattr(judgement, name) for name in JUDGED}
    known = {name: float(value) for name, value in columns.items() if value is not None}
    return known | {"level": judgement.level}


def task_numbers(tasks: Records) -> dict[str, float]:
    """Numbers of valid tasks: shares that the oracle finds self-contained, right, faithful or
    leaking, mean level, mean p and pay, shares with right and wrong answers (mixed), of different
    questions (distinct), and clusters of them by BLEU per question (diversity)."""
    numbers: dict[str, float] = {"tasks": float(len(tasks))}
    for name in (*JUDGED, "level", "success", "pay"):
        if values := [one[name] for one in tasks if one.get(name) is not None]:
            numbers[name] = sum(values) / len(values)
    if tasks:
        questions = [one["question"] for one in tasks]
        numbers["mixed"] = sum(0 < one["success"] < 1 for one in tasks) / len(tasks)
        numbers["distinct"] = len(set(questions)) / len(questions)
        numbers["diversity"] = len(set(clusters(questions))) / len(questions)
    return numbers


def challenge_rows(records: Records) -> Rows:
    """valid, over all attempts; over the valid ones everything of `task_numbers`; success where the
    stated answer is right (solved) or wrong (misled); right, success and misled by form
    (`difficulty`: choice, free form)."""
    valid = [one for one in records if one["score"] == 1]
    rows = [share_row(CHALLENGES, "valid", [one["score"] for one in records])]
    numbers = task_numbers(valid)
    for name in JUDGED:
        values = [one[name] for one in valid if one.get(name) is not None]
        rows += [share_row(CHALLENGES, name, values)] if values else []
    rows += _mean_rows(CHALLENGES, valid)
    for name in ("distinct", "diversity"):
        if name in numbers:
            rows.append(row(CHALLENGES, name, numbers[name], n=len(valid)))
    known = [one for one in valid if one.get("right") is not None]
    rows += [mean_row(CHALLENGES, name, values) for name, values in _by_truth(known).items()]
    choices = [one for one in known if one["answer_type"] == "choice"]
    others = [one for one in known if one["answer_type"] != "choice"]
    for form, own in (("choice", choices), ("free form", others)):
        if own:
            label = {"difficulty": form}
            rows.append(share_row(CHALLENGES, "right", [one["right"] for one in own], **label))
            rows.append(mean_row(CHALLENGES, "success", [one["success"] for one in own], **label))
            rows.append(mean_row(CHALLENGES, "misled", _by_truth(own)["misled"], **label))
    return rows


def _by_truth(tasks: Records) -> dict[str, list[float]]:
    """p of the tasks whose stated answer is right (solved), and of the others (misled)."""
    solved = [one["success"] for one in tasks if one["right"]]
    return {"solved": solved, "misled": [one["success"] for one in tasks if not one["right"]]}
