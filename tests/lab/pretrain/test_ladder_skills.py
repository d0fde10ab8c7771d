"""How a learner is measured: known texts have known marks."""

import pytest

from spnb.lab import ladder
from spnb.lab.pretrain import ladder_skills


@pytest.fixture
def tasks(monkeypatch):
    """The tasks that are drawn, in order."""
    drawn, draw = [], ladder_skills.draw

    def kept(*given):
        drawn.append(draw(*given))
        return drawn[-1]

    monkeypatch.setattr(ladder_skills, "draw", kept)
    return drawn


def say(monkeypatch, write):
    """`write(place, prompt)` is the policy."""

    def texts(engine, prompted):
        return [write(place, messages[0]["content"]) for place, messages in enumerate(prompted)]

    monkeypatch.setattr(ladder_skills, "texts", texts)


def backwards(task):
    return ladder.reply(task, range(task.info["level"])[::-1], "A")


@pytest.mark.parametrize("family", ["journey", "report"])
def test_the_wrong_order_is_consistent_and_not_right(family, tasks, monkeypatch):
    say(monkeypatch, lambda place, prompt: backwards(tasks[place]))
    marks = ladder_skills.answers(None, family, 4, 3)
    assert [parts for parts, _ in marks[:3]] == [{"level 1": 1.0}] * 3
    assert all(consistent for _, consistent in marks)
    assert [parts for parts, _ in marks[-3:]] == [{"level 4": 0.0}] * 3
    say(monkeypatch, lambda place, prompt: "<answer> who knows</answer>")
    tasks.clear()
    assert not any(consistent for _, consistent in ladder_skills.answers(None, family, 2, 2))


def test_questions_count_where_they_are_valid(monkeypatch):
    frame = ladder.frames("journey", "train")[0]

    def write(place, prompt):
        (_, line) = prompt.split("\n")[1:3]
        words = line.replace(":", "").replace(".", "").split()
        source = ladder.Source("journey", words[3], tuple(words[5::2]))
        return ladder.proposal(source, 2 if place else 9, frame)

    say(monkeypatch, write)
    marks = ladder_skills.questions(None, "journey", 4, 3)
    assert marks[0] == ({"valid": 0.0}, False), "more steps than there are"
    expected = {"valid": 1.0, **{f"asks level {level}": float(level == 2) for level in range(1, 5)}}
    assert marks[1:] == [(expected, True)] * 2


@pytest.mark.parametrize("role", ["judge", "grade"])
def test_one_verdict_for_all_is_right_in_about_half(role, monkeypatch):
    say(monkeypatch, lambda place, prompt: "<answer> yes</answer>")
    yes = ladder_skills.verdicts(None, role, 5, 200)
    say(monkeypatch, lambda place, prompt: "<answer> no</answer>")
    no = ladder_skills.verdicts(None, role, 5, 200)
    right = sum(parts["right"] for parts, _ in yes)
    assert 80 < right < 130
    assert [a["right"] + b["right"] for (a, _), (b, _) in zip(yes, no, strict=True)] == [1.0] * 200
    say(monkeypatch, lambda place, prompt: "<answer> perhaps</answer>")
    assert ladder_skills.verdicts(None, role, 5, 3) == [({"right": 0.0}, False)] * 3


def test_rubrics_are_marked_by_right_and_by_listed_points(tasks, monkeypatch):
    def write(place, prompt):
        first = tasks[place].gold[0]
        return "" if place == 0 else f"<rubric> {first}</rubric><rubric> {first} twice</rubric>"

    say(monkeypatch, write)
    marks = ladder_skills.rubrics(None, 5, 3)
    assert marks[0] == ({"points listed": 0.0}, False)
    for task, (parts, well) in zip(tasks[1:], marks[1:], strict=True):
        assert well and parts == {"points right": 0.5, "points listed": 1 / len(task.gold)}


def test_held_out_wordings_and_names_are_used(monkeypatch):
    seen = []
    say(monkeypatch, lambda place, prompt: seen.append(prompt) or "")
    ladder_skills.answers(None, "journey", 3, 5)
    trained = {*ladder.names("person", "train"), *ladder.names("town", "train")}
    assert not trained & set(" ".join(seen).replace(".", " ").split())
