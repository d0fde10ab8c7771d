"""The proposer study with scripted proposers and solvers: validity, pay by hand, every arm."""

import json
import re
from collections import Counter

import pytest
from arms import differences
from fakes import CharTokenizer

from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.params import ParamError, validate
from spnb.core.plugins import reward
from spnb.core.types import Completion
from spnb.evaluate.items import play_suite
from spnb.evaluate.proposals import proposal_rows, question_metrics
from spnb.lab import ladder
from spnb.lab.ladder import ORDINALS, Source
from spnb.methods.proposer import PAYS, PROBE_EVERY, Attempt, Method, Params, pay_metrics
from spnb.train.policies import load_policy

SMALL = dict(highest=4, proposals=6, trained_questions=3, answers=4, eval_items=2, eval_proposals=4)
SMALL |= dict(pay="r_zero")
FROZEN = {"policy": "start", "trainable": False}


class Scripted:
    """An engine in both roles: `asks(sources, index)` is a level or None for nonsense,
    `right(level, index)` whether an answer takes the steps in order."""

    def __init__(self, asks, right):
        self.asks, self.right = asks, right
        self.asked, self.answered = [], []

    def generate(self, requests):
        return [self.reply("".join(map(chr, request.prompt_ids)), request) for request in requests]

    def reply(self, prompt, request):
        if "Write a question" in prompt:
            text = self.propose(prompt, request)
        else:
            text = self.solve(prompt, request)
        return Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop")

    def propose(self, prompt, request):
        sources = [
            Source("journey", who, tuple(steps.split()[1::2]))
            for who, steps in re.findall(r"\] Stops of (\w+): ([\w ]+)\.", prompt)
        ]
        level = self.asks(sources, len(self.asked))
        self.asked.append(request)
        if level is None:
            return "<question> Why?</question>"
        frame = ladder.frames("journey", "train")[0]
        return ladder.proposal(sources[-1], level, frame)

    def solve(self, prompt, request):
        who, level = ladder.parse("journey", re.findall(r"Question: (.*)", prompt)[-1])
        step = {}
        for line in re.findall(r"\[\d+\] (.*)", prompt):
            words = re.findall(r"\w+", line)
            if who in words:
                town = next(w for w in words if w != who and w in TOWNS)
                step[next(w for w in words if w in ORDINALS)] = town
        order = list(ORDINALS[:level])
        right = self.right(level, len(self.answered))
        self.answered.append((level, request))
        order = order if right else order[::-1] if level > 1 else ["second"]
        return "<answer> " + " ".join(f"{who} {n} {step.get(n, 'x')}" for n in order) + "</answer>"


TOWNS = {*ladder.names("town", "train"), *ladder.names("town", "heldout")}


def method(**values):
    params = validate(Params, {**SMALL, **values})
    return Method(params, CharTokenizer())


def rollout(world, step=0, **values):
    made = method(**values)
    samples = run(made.rollout(step), {"policy": world, "start": world})
    return made, samples


def rows_of(samples, role):
    return [sample for sample in samples if sample.role == role]


def test_proposals_are_paid_by_the_share_of_right_answers():
    """Levels 1, 2, 3 in turn: everybody, half and nobody right; every seventh is nonsense."""
    world = Scripted(
        lambda sources, index: None if index == 2 else index % 3 + 1,
        lambda level, index: (True, index % 2 == 0, False)[level - 1],
    )
    made, samples = rollout(world)
    proposals = rows_of(samples, "proposer")
    assert len(proposals) == 7  # one more for the one that is not valid
    for index, sample in enumerate(proposals):
        level = index % 3 + 1
        expected = 0.0 if index == 2 else {1: 0.0, 2: 1.0, 3: 0.0}[level]
        assert sample.reward == pytest.approx(expected), index
        assert sample.invalid == (index == 2)
    answers = rows_of(samples, "solver")
    assert len(answers) == 6 * 4
    levels = [1, 2, 1, 2, 3, 1]  # of the valid proposals, in order
    assert [level for level, _ in world.answered[::4]] == levels
    assert made.metrics["method/level"] == pytest.approx(sum(levels) / 6)
    assert made.metrics["method/success"] == pytest.approx((3 * 1 + 2 * 0.5) / 6)
    assert made.metrics["method/mixed"] == pytest.approx(2 / 6)
    assert made.metrics["method/pay"] == pytest.approx(2 / 6)
    assert made.metrics["method/valid"] == pytest.approx(6 / 7)
    assert made.metrics["method/answers"] == 24


BY_HAND = {
    "gaussian": 0.3247,  # exp(-(1/4)^2 / (2 / 36))
    "variance": 0.8226,  # exp(-(3/16 - 1/4)^2 / 0.02)
    "absolute_zero": 0.75,
    "r_zero": 0.5,
    "threshold": 1.0,
    "one_minus": 0.75,
}


@pytest.mark.parametrize("pay", list(PAYS))
def test_every_reward_pays_what_it_says(pay):
    world = Scripted(lambda sources, index: 2, lambda level, index: index % 4 == 0)
    _, samples = rollout(world, pay=pay)
    expected = BY_HAND[pay]
    assert float(reward(pay)(0.25)) == pytest.approx(expected, abs=1e-4)
    for sample in rows_of(samples, "proposer"):
        assert sample.reward == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("pay", "nobody", "everybody"),
    [("one_minus", 1, 0), ("absolute_zero", 0, 0), ("variance", 0.0439, 0.0439)],
)
def test_what_nobody_or_everybody_answers_pays_what_the_paper_says(pay, nobody, everybody):
    world = Scripted(lambda sources, index: index % 2 + 1, lambda level, index: level == 1)
    _, samples = rollout(world, pay=pay)
    rewards = [one.reward for one in rows_of(samples, "proposer")]
    assert rewards == pytest.approx([everybody, nobody] * 3, abs=1e-4)


def test_wrong_stated_answers_are_graded_as_stated_and_counted():
    """A solver that is always right is wrong about each of them: 1 - p pays 1 for these alone."""
    values = dict(pay="one_minus", proposals=40, trained_questions=40, wrong=0.3)
    world = Scripted(lambda sources, index: 2, lambda level, index: True)
    made, samples = rollout(world, **values)
    pays = [sample.reward for sample in rows_of(samples, "proposer")]
    share = sum(pays) / 40
    assert set(pays) == {0.0, 1.0} and 0.1 < share < 0.5
    assert made.metrics["method/wrong"] == pytest.approx(share)
    assert made.metrics["method/idle pay"] == 1
    rewards = [sample.reward for sample in rows_of(samples, "solver")]
    assert sum(rewards) / len(rewards) == pytest.approx(1 - share)
    for asked, expected in ((0.0, {0.0}), (1.0, {1.0})):
        _, samples = rollout(world, **{**values, "wrong": asked})
        assert {sample.reward for sample in rows_of(samples, "proposer")} == expected
    (suite,) = [one for one in method(**values).suites(0) if one.name == "proposals"]
    records, _ = play_suite(suite, {"policy": world, "start": world})
    assert {record["success"] for record in records} == {1.0}, "wrong in training alone"


def test_pay_that_teaches_nothing_right():
    """One of four answers half of the questions, nobody the others: 1 - p pays .75 and 1."""
    world = Scripted(
        lambda sources, index: index % 2 + 1, lambda level, index: level == 1 and index % 4 == 0
    )
    made, _ = rollout(world, pay="one_minus")
    assert made.metrics["method/idle pay"] == pytest.approx(3 / (3 + 3 * 0.75))
    made, _ = rollout(world, pay="absolute_zero")
    assert made.metrics["method/idle pay"] == 0


def test_pay_for_a_wrong_stated_answer_that_somebody_gives_is_idle():
    """Half of the answers agree with each: one question of two is stated wrong, so is half the
    pay."""
    questions = [Attempt(None, None, wrong, success=0.5, pay=0.5) for wrong in (True, False)]
    assert pay_metrics(questions) == {"wrong": 0.5, "idle pay": 0.5}


def test_each_step_makes_other_answers_wrong():
    values = dict(pay="one_minus", proposals=40, wrong=0.5)
    world = Scripted(lambda sources, index: 2, lambda level, index: True)
    rows = [rows_of(rollout(world, step, **values)[1], "proposer") for step in range(2)]
    first, second = ([row.reward for row in step] for step in rows)
    assert first != second and {*first} == {*second} == {0.0, 1.0}


def test_shuffled_pay_is_the_same_pay_for_anybody():
    def play(paid):
        world = Scripted(
            lambda sources, index: None if index == 0 else index % 4 + 1,
            lambda level, index: level == 2 and index % 2 == 0,
        )
        return rows_of(rollout(world, paid=paid, seed=3)[1], "proposer")

    earned, shuffled = play("earned"), play("shuffled")
    assert Counter(one.reward for one in earned) == Counter(one.reward for one in shuffled)
    assert [one.reward for one in earned] != [one.reward for one in shuffled]
    assert earned[0].reward == shuffled[0].reward == 0.0  # what is not valid keeps its own


def test_the_solver_trains_on_as_many_questions_in_every_arm():
    """Of six valid questions three; the loss is the sum of the two roles' means."""
    world = Scripted(lambda sources, index: index % 2 + 1, lambda level, index: index % 3 == 0)
    for values in ({}, {"roles": {"proposer": FROZEN}}, {"questions": "even"}):
        made, samples = rollout(world, **values)
        made.estimate(samples)
        made.select(samples)
        solver, proposer = rows_of(samples, "solver"), rows_of(samples, "proposer")
        trained = [one for one in samples if one.weight]
        groups = {one.group for one in solver if one.weight}
        assert groups <= made.chosen and len(made.chosen) == 3
        assert len(groups) == 3  # every question has right and wrong answers here
        for rows in (solver, proposer):
            kept = [one for one in rows if one.weight]
            if kept:
                assert sum(one.weight for one in kept) / len(trained) == pytest.approx(1.0)
        learns = bool(proposer) and made.roles["proposer"].trainable
        assert any(one.weight for one in proposer) == learns


def test_questions_without_mixed_answers_still_count_in_the_solvers_mean():
    world = Scripted(
        lambda sources, index: 1 + index % 2, lambda level, index: level == 1 or index % 2
    )
    made, samples = rollout(world, trained_questions=6)
    made.estimate(samples)
    made.select(samples)
    solver = rows_of(samples, "solver")
    kept = [one for one in solver if one.weight]
    trained = [one for one in samples if one.weight]
    assert len(kept) == 12 and len(solver) == 24
    # 12 of 24 rows stay; their mean over all trained rows is the mean over all 24.
    assert sum(one.weight for one in kept) / len(trained) == pytest.approx(12 / 24)
    made, samples = rollout(world, trained_questions=6, grpo={"entropy_coef": 0.01})
    made.estimate(samples)
    made.select(samples)
    assert all(one.weight for one in rows_of(samples, "solver")), "each has an entropy"


def test_a_step_without_a_valid_question_trains_the_proposer_alone():
    world = Scripted(lambda sources, index: None, lambda level, index: True)
    made, samples = rollout(world)
    made.estimate(samples)
    made.select(samples)
    assert {one.role for one in samples} == {"proposer"}
    assert made.metrics["method/questions"] == made.metrics["method/valid"] == 0
    assert len(samples) == 8 * 6  # rounds end
    assert {one.reward for one in samples} == {0.0}


def test_even_draws_take_all_levels_or_those_given():
    world = Scripted(None, lambda level, index: True)
    _, samples = rollout(world, questions="even", trained_questions=6, seed=1)
    assert {level for level, _ in world.answered} <= {1, 2, 3, 4}
    assert len({level for level, _ in world.answered}) > 1 and not rows_of(samples, "proposer")
    assert len({request.prompt_ids for _, request in world.answered}) == 6, "each another question"
    world = Scripted(None, lambda level, index: True)
    rollout(world, questions="even", levels=[3])
    assert {level for level, _ in world.answered} == {3}


def test_the_curriculum_draws_levels_with_mixed_answers():
    """Level 2 is half right, all others are settled: after the probe only it is drawn."""
    world = Scripted(None, lambda level, index: level == 1 or (level == 2 and index % 2))
    made, _ = rollout(world, questions="curriculum")
    assert made.shares == [1.0, 0.5, 0.0, 0.0]
    probed = 4 * 16
    assert {level for level, _ in world.answered[probed:]} == {2}
    assert made.metrics["method/answers"] == probed + 3 * 4
    again = method(questions="curriculum")
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    assert again.shares == made.shares
    before = len(world.answered)
    run(again.rollout(1), {"policy": world})  # not probed again before the fourth step
    assert len(world.answered) - before == 3 * 4


def test_roles_are_compared_as_the_study_says():
    made = method()
    proposer, solver = made.roles["proposer"], made.roles["solver"]
    assert proposer.kl and not solver.kl
    world = Scripted(
        lambda sources, index: index % 2 + 1, lambda level, index: level == 2 and index % 2
    )
    samples = run(made.rollout(0), {"policy": world})
    made.estimate(samples)
    rewards = [one.reward for one in rows_of(samples, "proposer")]
    mean = sum(rewards) / len(rewards)
    for one in rows_of(samples, "proposer"):  # no division by the standard deviation
        assert one.advantage == pytest.approx(one.reward - mean)


def test_processes_share_the_proposals():
    made = [method(), method()]
    total = 0
    for rank, one in enumerate(made):
        one.share = Share(rank, 2)
        world = Scripted(lambda sources, index: 1, lambda level, index: True)
        total += len(rows_of(run(one.rollout(0), {"policy": world}), "proposer"))
    assert total == 6


def test_evaluation_is_by_level_and_on_held_out_names():
    world = Scripted(lambda sources, index: 2, lambda level, index: level < 3)
    ladder_suite, proposals = method().suites(0)
    records, rows = play_suite(ladder_suite, {"policy": world})
    by_level = {row["difficulty"]: row["value"] for row in rows if row["metric"] == "accuracy"}
    assert by_level == {"": 0.5, "level 1": 1, "level 2": 1, "level 3": 0, "level 4": 0}
    assert {record["consistent"] for record in records} == {True}
    trained = {*ladder.names("person", "train"), *ladder.names("town", "train")}
    for _, request in world.answered:
        assert not trained & set(re.findall(r"[A-Z]\w+", "".join(map(chr, request.prompt_ids))))
    _, rows = play_suite(proposals, {"policy": world})
    found = {row["metric"]: row["value"] for row in rows}
    assert found == {"valid": 1, "level": 2, "success": 1, "pay": 0, "mixed": 0}
    assert [suite.name for suite in method(questions="even").suites(0)] == ["ladder"]


def test_numbers_of_proposals_by_hand():
    facts = [{"level": 1, "success": 1.0, "pay": 0.0}, {"level": 3, "success": 0.5, "pay": 1.0}]
    numbers = question_metrics(facts)
    assert numbers["questions"] == 2 and numbers["level"] == 2
    assert numbers["level/1"] == numbers["level/3"] == numbers["mixed"] == 0.5
    assert question_metrics([]) == {"questions": 0}
    records = [{"score": 1.0, **one} for one in facts] + [{"score": 0.0, **facts[0]}] * 2
    found = {row["metric"]: row["value"] for row in proposal_rows(records)}
    assert found == {"valid": 0.5, "level": 2, "success": 0.75, "pay": 0.5, "mixed": 0.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"family": "novel"}, "family"),
        ({"highest": 17}, "highest"),
        ({"questions": "even", "levels": [5]}, r"levels is \[5\]; allowed: 1 to highest \(4\)"),
        ({"levels": [2]}, "levels is .* with questions 'proposer'; allowed: with questions even"),
        ({"paid": "shuffled", "questions": "even"}, "paid is 'shuffled' with questions"),
        ({"wrong": 0.1, "questions": "even"}, "wrong is 0.1 with questions 'even'"),
        ({"wrong": 0.1, "family": "report"}, "wrong is 0.1 with .*family 'report'"),
        ({"wrong": 0.1, "highest": 1}, "highest is 1 with wrong 0.1; allowed: 2 or more"),
        ({"paid": "shuffled", "roles": {"proposer": FROZEN}}, "paid is 'shuffled' with questions"),
        ({"trained_questions": 7}, r"trained_questions is 7; allowed: 1 to proposals \(6\)"),
        (
            {"roles": {"proposer": FROZEN, "solver": FROZEN}},
            "questions is 'proposer' with roles .*; allowed: a role that learns",
        ),
    ],
)
def test_bad_parameters_are_named(values, message):
    with pytest.raises(ParamError, match=message):
        method(**values)


RATE = {"grpo.learning_rate"}
ARMS = {
    "learning-two": {"policies.proposer", "roles.proposer.policy", "grpo.beta"}
    | {"co_trained.proposer.learning_rate", "co_trained.proposer.beta"},
    "frozen": {"roles.proposer.policy", "roles.proposer.trainable", "grpo.beta", *RATE},
    "shuffled": {"paid"},
    "even": {"questions", "grpo.beta", *RATE},
    "curriculum": {"questions", "grpo.beta", *RATE},
    "kl-0": {"grpo.beta"},
    "pay-variance": {"pay"},
    "with-std": {"roles.proposer.estimator"},
    "proposals-64": {"proposals"},
    "answers-4": {"answers"},
    "learning-even-start": {"policy"},
    "choice-easiest": {"family", "questions", "levels", "grpo.beta"},
    "gaussian-wrong-30": {"pay", "proposals", "wrong", "eval_every", "eval_proposals", "grpo.beta"},
    "threshold-hard": {"pay", "proposals", "policy", "eval_every", "eval_proposals", *RATE},
}


@pytest.mark.parametrize("arm", list(ARMS))
def test_the_arms_differ_only_in_what_they_say(arm):
    assert differences("proposer", arm, "learning") == ARMS[arm]


@pytest.mark.slow
def test_the_gate_of_the_starting_policy():
    """What the ladder needs: level 1 known, the hardest out of reach, mixed answers between."""
    start = load_policy("embedded/learner")
    settings = dict(highest=10, proposals=8, trained_questions=8, answers=8, max_new_tokens=96)

    def shares(**values):
        made = Method(Params(**settings, **values), start.tokenizer)
        run(made.rollout(0), {"policy": start.engine()})
        return made.metrics["method/success"], made.metrics["method/mixed"]

    easiest, hardest = (shares(questions="even", levels=[level])[0] for level in (1, 10))
    assert easiest > 0.9 and hardest == 0
    for family in ("journey", "ledger"):
        assert shares(questions="even", levels=[2], family=family)[1] > 0.5
    assert shares(questions="curriculum")[1] > shares(questions="even")[1]


def test_a_tokenizer_that_loses_names_is_refused():
    lossy = type("Lossy", (CharTokenizer,), {"decode": lambda self, ids, **_: "?"})()
    with pytest.raises(ValueError, match="tokenizer reads .* as '\\?'"):
        Method(validate(Params, SMALL), lossy)


def test_no_round_repeats_the_one_before():
    world = Scripted(lambda sources, index: None, lambda level, index: True)
    rollout(world)
    assert len(world.asked) == 8 * 6 == len({request.seed for request in world.asked})
    assert len({request.prompt_ids for request in world.asked}) > 6


def test_the_curriculum_is_measured_again():
    """At first level 2 alone is half right, then level 3: it is drawn from the next probe on."""
    made, half, drawn = method(questions="curriculum"), 2, []
    world = Scripted(None, lambda level, index: level < half or (level == half and index % 2))
    for step in range(PROBE_EVERY + 1):
        before = len(world.answered)
        run(made.rollout(step), {"policy": world})
        probed = 4 * 16 if step in (0, PROBE_EVERY) else 0
        drawn.append({level for level, _ in world.answered[before + probed :]})
        half = 3
        assert made.metrics["method/answers"] == probed + 3 * 4
    assert drawn == [{2}] * PROBE_EVERY + [{3}]


def test_the_curriculum_draws_all_levels_where_all_are_settled():
    made = method(questions="curriculum")
    made.shares = [1.0, 1.0, 0.0, 0.0]
    drawn = run(made.draw(100, 1, 5), {})
    assert {one.task.info["level"] for one in drawn} == {1, 2, 3, 4}


def test_the_curriculum_draws_by_the_square_of_the_variance():
    """Shares of 1/2 and three of 1/8: 1/16 of 1/16 + 3 (7/64)^2 is .635; unsquared it were .43."""
    made = method(questions="curriculum")
    made.shares = [0.5, 0.125, 0.125, 0.125]
    drawn = Counter(one.task.info["level"] for one in run(made.draw(600, 1, 5), {}))
    assert 0.57 < drawn[1] / 600 < 0.70 and len(drawn) == 4


def test_held_out_proposals_that_are_not_valid_count_in_their_share_alone():
    """One of four is nonsense; the others are of level 2, which half of the answers take: 1."""
    *_, suite = method().suites(0)
    world = Scripted(lambda sources, index: index and 2, lambda level, index: index % 2)
    records, rows = play_suite(suite, {"policy": world})
    assert [one["score"] for one in records] == [0, 1, 1, 1]
    found = {row["metric"]: row["value"] for row in rows}
    assert found == {"valid": 0.75, "level": 2, "success": 0.5, "pay": 1, "mixed": 1}


def test_held_out_questions_are_answered_at_temperature_1_whatever_training_has():
    suite, proposals = method(temperature=0.5).suites(0)
    world = Scripted(lambda sources, index: 2, lambda level, index: True)
    play_suite(suite, {"policy": world})
    assert {request.sampling.temperature for _, request in world.answered} == {1.0}
    world.answered.clear()
    play_suite(proposals, {"policy": world})
    assert {request.sampling.temperature for _, request in world.answered} == {0.5}, "as in a step"


def test_held_out_proposals_are_about_sources_of_their_own():
    *_, suite = method(eval_proposals=8).suites(0)
    world = Scripted(lambda sources, index: 1, lambda level, index: True)
    play_suite(suite, {"policy": world})
    asked, answered = world.asked, [request for _, request in world.answered]
    assert len({one.prompt_ids for one in asked}) == len({one.seed for one in asked}) == 8
    assert len({one.seed for one in answered}) == len(answered) == 8 * 4
