"""R-Zero with scripted policies: labels by majority, pay by hand, what is trained on."""

from types import SimpleNamespace

import pytest
from spice_world import World, method, rows_of

from spnb.core.episodes import run
from spnb.core.method import place_of
from spnb.evaluate.diversity import shares
from spnb.lab.segments import KINDS
from spnb.methods import r_zero

TWO = {"algorithm": "r_zero", "pay": "r_zero", "corpus": [], "invalid_reward": -1.0}
TWO |= {"roles": {"challenger": {"policy": "challenger"}}, "task_types": ["string"], "answers": 5}


class Voters(World):
    """Says the n-th of `said` to the n-th answer to each question; None: the right answer."""

    def __init__(self, level, said):
        super().__init__(level)
        self.said = said

    def answer(self, question, index):
        words = self.said[index // 5 % len(self.said)][index % 5]
        return f"<answer> {words}</answer>" if words else super().answer(question, index)


def rollout(said, level=lambda index: 3, step=0, **values):
    made, asks, answers = method(**TWO | values), World(level), Voters(None, said)
    samples = run(made.rollout(step), {"challenger": asks, "policy": answers})
    return made, samples, asks, answers


def test_the_most_frequent_answer_is_taken_for_right():
    """In turn: all agree on something wrong; two on something wrong; three on the truth."""
    said = [["KK"] * 5, ["KK", "KK", "LL", "MM", None], [None, None, None, "KK", "LL"]]
    made, samples, asks, answers = rollout(said)
    rewards = [one.reward for one in rows_of(samples, "reasoner")]
    assert rewards[:5] == [1] * 5 and rewards[5:10] == [1, 1, 0, 0, 0]
    assert rewards[10:15] == [1, 1, 1, 0, 0]
    assert made.metrics["method/labels"] == pytest.approx(4 / 12)  # each third label is right
    assert made.metrics["method/right"] == 1  # what the challenger states plays no part
    agreement = [one.info["agreement"] for one in rows_of(samples, "challenger")]
    assert agreement[:3] == [1.0, 0.4, 0.6]
    assert len(asks.asked) == 12 and len(answers.answered) == 60
    for prompt, _ in asks.asked:
        assert "ocument" not in prompt  # no document


def test_the_challenger_is_paid_for_uncertainty_less_repetition():
    said = [["KK", "KK", "LL", "MM", None], [None, None, None, "KK", "LL"], ["KK"] * 5]
    _, samples, asks, _ = rollout(said, level=lambda index: None if index == 3 else 2)
    asked = rows_of(samples, "challenger")
    valid = [one for one in asked if not one.invalid]
    near = shares([one.info["question"] for one in valid])
    assert len(valid) == 11 and 1 / 11 <= min(near) <= max(near) < 1
    for place, (one, share) in enumerate(zip(valid, near, strict=True)):
        uncertain = (0.8, 0.8, 0.0)[place % 3]  # 1 - 2 |2/5 - 1/2|, 3/5, 5/5
        assert one.reward == pytest.approx(max(0.0, uncertain - share))
    assert asked[3].reward == -1
    assert any(one.reward == 0 for one in valid) and any(one.reward > 0 for one in valid)


def test_the_reasoner_trains_where_the_label_is_neither_sure_nor_rare(monkeypatch):
    every = ["E", "F", "G", "H", "J"]
    said = [every, ["KK"] * 2 + every[:3], ["KK"] * 3 + every[:2], ["KK"] * 4 + ["E"], ["KK"] * 5]
    made, samples, _, _ = rollout(said, group_size=5, documents_per_step=1)
    rows = rows_of(samples, "reasoner")
    weights = [{one.weight for one in rows[at : at + 5]} for at in range(0, 25, 5)]
    assert weights == [{0.0}, {1.0}, {1.0}, {0.0}, {0.0}]  # p = .2, .4, .6, .8, 1
    monkeypatch.setattr(r_zero, "AGREEMENT", 0.3)
    _, samples, _, _ = rollout(said, group_size=5, documents_per_step=1)
    rows = rows_of(samples, "reasoner")
    assert [rows[at].weight for at in range(0, 25, 5)] == [1, 1, 1, 1, 0]
    made.estimate(samples)
    group = rows[5:10]
    assert [one.reward for one in group] == [1, 1, 0, 0, 0]
    # GRPO divides by the standard deviation: sqrt(0.3).
    assert group[0].advantage == pytest.approx(0.6 / 0.3**0.5)


def test_a_stage_decides_who_learns():
    stages = [
        SimpleNamespace(policy=name, steps=n) for name, n in (("challenger", 2), ("policy", 3))
    ]
    params = SimpleNamespace(stages=stages * 2)
    learners = [place_of(params, step)[0] for step in range(10)]
    assert learners == (["challenger"] * 2 + ["policy"] * 3) * 2
    assert place_of(SimpleNamespace(), 0)[0] is None
    said = [[None, None, None, "KK", "LL"]]
    for name, role in (("challenger", "challenger"), ("policy", "reasoner")):
        made, asks, answers = method(**TWO), World(lambda index: 1 + index % 3), Voters(None, said)
        made.params = SimpleNamespace(
            **{key: getattr(made.params, key) for key in type(made.params).model_fields},
            stages=[SimpleNamespace(policy=name, steps=9)],
        )
        samples = run(made.rollout(0), {"challenger": asks, "policy": answers})
        made.estimate(samples)
        made.select(samples)
        trained = [one for one in samples if one.weight]
        assert {one.role for one in trained} == {role} and {one.policy for one in trained} == {name}
        chosen = 60 if role == "reasoner" else 12
        assert sum(one.weight for one in trained) == pytest.approx(len(trained) ** 2 / chosen)


@pytest.mark.slow
def test_choices_and_expressions_are_labelled_in_their_own_kind():
    world = {"task_types": ["expression"]}
    said = [["3 + 4x", "4x + 3", "5", "6", "3+4x"]]
    _, samples, _, _ = rollout(said, level=lambda index: 2, **world)
    rows = rows_of(samples, "reasoner")[:5]
    assert [one.reward for one in rows] == [1, 1, 0, 0, 1]  # equal expressions agree
    assert rows[0].info["label"] == "3 + 4x"
    _, samples, _, _ = rollout(
        [["3 + 4x", "4x + 3", "5", "5", "3+4x"]], level=lambda index: 2, **world
    )
    rows = rows_of(samples, "reasoner")[:5]
    assert [one.reward for one in rows] == [1, 1, 0, 0, 1] and rows[0].info["label"] == "3 + 4x"
    assert set(KINDS) == {"ledger", "formula", "code"}
