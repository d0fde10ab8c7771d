"""The proposer study with scripted proposers and solvers: validity, rewards by hand, the control,
every arm."""

import json
import math
import random
import re
from collections import Counter

import pytest
from fakes import CharTokenizer

from spnb.core.episodes import run
from spnb.core.method import Share, Suite
from spnb.core.params import ParamError, validate
from spnb.core.types import Completion, Request, Sample, Sampling
from spnb.evaluate.items import play_suite, record
from spnb.evaluate.items import row as make_row
from spnb.evaluate.proposals import proposal_metrics, proposal_rows
from spnb.methods.proposer import Method, Params, Proposal, drawn_task, solver_task
from spnb.testbed import oracle
from spnb.testbed.oracle import Query
from spnb.testbed.texts import facts_in
from spnb.testbed.world import names
from spnb.train.plan import make_plan, run_one

SMALL = dict(
    worlds_per_step=2, proposals=4, answers=4, eval_worlds=3, eval_proposals=2, eval_items=8
)
FROZEN = {"policy": "start", "trainable": False}
KL = {"beta": 0.1}  # every row is trained
HALF = math.exp(0)
QUARTER = math.exp(-18 / 16)


class World:
    """An engine in both roles: asks with `ask(facts, index)`, answers with `right(question, index)`
    or not at all."""

    def __init__(self, ask, right):
        self.ask, self.right = ask, right
        self.asked, self.answered = [], []

    def generate(self, requests):
        return [self.reply("".join(map(chr, request.prompt_ids)), request) for request in requests]

    def reply(self, prompt, request):
        if "Write a question" in prompt:
            text = self.ask(facts_in(prompt), len(self.asked))
            self.asked.append(request)
        else:
            question = re.findall(r"Question: (.*)", prompt)[-1]
            true = oracle.answer_from(oracle.parse(question), facts_in(prompt)).text
            text = (
                f"<answer> {true}</answer>"
                if self.right(question, len(self.answered))
                else "<answer> No</answer>"
            )
            self.answered.append((request, question))
        return Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop")


def proposal_text(question, answer):
    return f"<think> hm</think><question> {question}</question><answer> {answer}</answer>"


def one_hop(facts, index):
    """The first fact, in words that change, and nonsense every fourth time."""
    entity, noun, value = facts[0]
    frame = oracle.TRAIN_FRAMES[index % 4] if index % 4 < 3 else "?"
    return proposal_text(frame.replace("{x}", f"the {noun} of {entity}"), value)


def always(question, index):
    return True


def half(question, index):
    return index % 2 == 0


def which(question, index):
    """Right half of the time, a quarter of the time, always: by the question's frame."""
    return {"What": index % 4 < 2, "Which": index % 4 < 1, "Name": True}[question.split()[0]]


def method(**values):
    return Method(Params(**{**SMALL, **values}), CharTokenizer())


def engines(ask=one_hop, right=half):
    return {"policy": World(ask, right), "start": World(ask, right)}


def step_of(study, both, step=0):
    """All rows of a step, as the trainer has them."""
    rows = run(study.rollout(step), both)
    study.estimate(rows)
    study.select(rows)
    return rows


def trained(rows):
    return [row for row in rows if row.weight]


def test_held_out_questions_are_drawn_like_the_uniform_arms():
    """In documents that hold a chain of `max_hops` facts, whatever the question's hops."""
    both = engines()
    play_suite(method().suites(0)[-1], both)
    assert len(both["policy"].answered) == 8
    for request, question in both["policy"].answered:
        shown = "".join(map(chr, request.prompt_ids)).split("\nQuestion:")[0]
        documents = re.findall(r"\[\d+\] (.*)", shown)
        assert oracle.parse(question) in {
            query for n in (1, 2, 3, 4) for query, _ in oracle.questions_of(documents, n)
        }
        assert oracle.questions_of(documents, 4)


# Rewards


def test_rewards_and_advantages_by_hand():
    """p is 1/2, 1/4, 1 for the three frames, the fourth is not valid: rewards 1, 0.3247, 0, 0."""
    study, both = method(grpo=KL), engines(right=which)
    rows = step_of(study, both)
    proposals = [row for row in rows if row.role == "proposer"]
    assert [row.reward for row in proposals] == pytest.approx([HALF, QUARTER, 0, 0] * 2)
    assert [row.invalid for row in proposals] == [False, False, False, True] * 2
    mean = (HALF + QUARTER) / 4
    deviation = math.sqrt(((HALF - mean) ** 2 + (QUARTER - mean) ** 2 + 2 * mean**2) / 3)
    by_hand = [(reward - mean) / deviation for reward in (HALF, QUARTER, 0, 0)]
    assert [row.advantage for row in proposals] == pytest.approx(by_hand * 2)
    assert {row.weight for row in proposals} == {32 / 8}  # 8 of 32 rows
    answers = [row for row in rows if row.role == "solver"]
    assert [row.reward for row in answers] == [1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1] * 2
    z = 0.8660254  # two of four; one of four gives 1.5 and -0.5, four of four nothing
    by_hand = [z, z, -z, -z, 1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0]
    assert [row.advantage for row in answers] == pytest.approx(by_hand * 2)
    assert {row.weight for row in answers} == {32 / 24}
    assert study.metrics == pytest.approx(
        {
            "method/valid": 6 / 8,
            "method/questions": 6,
            "method/success": (1 / 2 + 1 / 4 + 1) / 3,
            "method/difficulty_reward": (HALF + QUARTER) / 3,
            "method/hops_mean": 1,
            "method/hard_share": 0,
            "method/distinct": 1 / 3,
            "method/hops/1": 1,
            "method/hops/2": 0,
            "method/hops/3": 0,
            "method/hops/4": 0,
        }
    )
    assert all(
        "Follow the question" in "".join(map(chr, request.prompt_ids))
        for request, _ in both["policy"].answered
    )


def test_rows_without_an_advantage_have_no_weight():
    rows = step_of(method(), engines(right=which))
    proposals, answers = rows[:8], rows[8:]
    assert all((row.weight > 0) == (row.advantage != 0) for row in rows)
    assert {row.role for row in proposals} == {"proposer"}
    assert {row.role for row in answers} == {"solver"}
    # 16 of 24 answers and all 8 proposals stay: each role's weights add up to the rows that stay.
    for part in (proposals, answers):
        kept = [row.weight for row in part if row.weight]
        assert kept == pytest.approx([24 / len(part)] * len(kept))


def test_a_penalty_for_what_is_not_valid():
    study = method(roles={"solver": FROZEN}, invalid_reward=-0.25)
    rows = [row for row in step_of(study, engines(right=which)) if row.role == "proposer"]
    assert [row.reward for row in rows] == pytest.approx([HALF, QUARTER, 0, -0.25] * 2)


def test_equal_questions_are_answered_once():
    both = engines(ask=lambda facts, index: one_hop(facts, 0))
    rows = step_of(method(), both)
    assert Counter(row.role for row in rows) == {"proposer": 8, "solver": 8}
    assert len({question for _, question in both["policy"].answered}) == 2
    assert {row.reward for row in rows if row.role == "proposer"} == {1}


def test_the_control_keeps_the_rewards_and_not_who_gets_them():
    plain, control = (
        step_of(method(reward=reward, worlds_per_step=6), engines(right=which))[:24]
        for reward in ("difficulty", "shuffled")
    )
    before, after = ([row.reward for row in rows] for rows in (plain, control))
    assert {row.role for row in control} == {"proposer"}
    assert sorted(before) == sorted(after) and before != after
    assert all(row.reward == 0 for row in control if row.invalid)
    # What is noted of a question stays true.
    assert [row.info for row in plain] == [row.info for row in control]


# Arms


@pytest.mark.parametrize(
    ("values", "learns", "policy", "start"),
    [
        (dict(roles={"solver": FROZEN}), {"proposer"}, (True, False), (False, True)),
        (dict(), {"proposer", "solver"}, (True, True), (False, False)),
        (dict(roles={"proposer": FROZEN}), {"solver"}, (False, True), (True, False)),
        (dict(questions="uniform"), {"solver"}, (False, True), (False, False)),
    ],
)
def test_who_asks_who_answers_and_who_is_trained(values, learns, policy, start):
    both = engines()
    rows = step_of(method(grpo=KL, **values), both)
    used = {name: (bool(world.asked), bool(world.answered)) for name, world in both.items()}
    assert {row.role for row in trained(rows)} == learns
    assert used == {"policy": policy, "start": start}
    assert {row.policy for row in trained(rows)} == {"policy"}
    assert len(rows) == 24 + 8 * ("questions" not in values) + 8 * ("questions" in values)


def test_uniform_questions_are_valid_and_even_over_hops():
    study = method(questions="uniform", worlds_per_step=1, proposals=400, documents=6)
    worlds = study.worlds(1, "train", 3)
    stated = [fact for text in worlds[0] for fact in facts_in(text)]
    proposals = study.draw(worlds, 400, "train", 3)
    hops = Counter(proposal.task.info["hops"] for proposal in proposals)
    assert set(hops) == {1, 2, 3, 4}
    assert all(abs(count - 100) < 40 for count in hops.values())  # 4.6 deviations
    for proposal in proposals:
        text = proposal_text(proposal.task.question, proposal.task.gold[0])
        assert oracle.read_question(text, stated)[1] == proposal.task.info["query"]
    step_of(study, engines())
    assert study.metrics["method/valid"] == 1


def test_every_set_of_documents_has_chains_of_all_lengths():
    for seed in range(5):
        for documents in method().worlds(4, "train", seed):
            for hops in range(1, 5):
                task = drawn_task(documents, hops, random.Random(seed), "train")
                assert task.info["hops"] == hops and task.difficulty.startswith(str(hops))


def test_a_slower_solver():
    slow = step_of(method(solver_weight=0.25), engines(right=which))
    whole = step_of(method(), engines(right=which))
    assert [row.advantage for row in slow] == [row.advantage for row in whole]
    ratios = {"proposer": set(), "solver": set()}
    for one, other in zip(trained(slow), trained(whole), strict=True):
        ratios[one.role].add(one.weight / other.weight)
    assert ratios == {"proposer": {1.0}, "solver": {0.25}}


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_the_solver_has_the_same_weight_in_the_loss_with_and_without_a_learning_proposer(beta):
    """The mean over all trained rows of a solver row's term is the mean over the solver's rows
    alone, in both arms."""

    def gradient(**values):
        rows = trained(step_of(method(grpo={"beta": beta}, **values), engines(right=which)))
        return [row.advantage * row.weight / len(rows) for row in rows if row.role == "solver"]

    alone, beside = gradient(roles={"proposer": FROZEN}), gradient()
    assert alone == pytest.approx(beside) and any(alone)


def test_replay_asks_the_questions_nearest_the_frontier_again():
    """Of three questions a context, p = 1/2, 1/4 and 1, those at 1/2 are kept, among equals the new
    ones."""
    study, both = method(replay=2), engines(right=which)
    rows = step_of(study, both)
    remembered = {(tuple(documents), question) for documents, question, _ in study.memory}
    assert len(remembered) == 2 and all(q.startswith("What") for _, q in remembered)
    both["policy"].answered.clear()
    again = step_of(study, both, 1)
    assert Counter(row.role for row in again) == {"proposer": 8, "solver": 8 * 4}
    assert Counter(row.role for row in rows) == {"proposer": 8, "solver": 6 * 4}
    shown = ["".join(map(chr, request.prompt_ids)) for request, _ in both["policy"].answered[-8:]]
    for text in shown:
        assert any(docs[0] in text and question in text for docs, question in remembered)
    assert study.metrics["method/questions"] == 6 and len(study.memory) == 2
    assert not remembered & {(tuple(docs), question) for docs, question, _ in study.memory}


def test_seed_step_and_rank_decide_the_documents():
    def prompts(step=0, rank=0, **values):
        study = method(**values)
        study.share = Share(rank, 1)
        return {row.prompt_ids for row in step_of(study, engines(), step)}

    first = prompts()
    assert first == prompts()
    assert all(not first & other for other in (prompts(1), prompts(0, 1), prompts(seed=1)))


def test_worlds_are_shared_by_the_processes():
    counts = []
    for rank in range(2):
        study = method(worlds_per_step=5)
        study.share = Share(rank, 2)
        rows = step_of(study, engines())
        counts.append(len({row.group for row in rows if row.role == "proposer"}))
    assert counts == [3, 2]


def test_a_restored_method_goes_on_as_if_it_had_never_stopped():
    straight, resumed = method(replay=3), method(replay=3)
    step_of(straight, engines(right=which))
    resumed.load_state_dict(json.loads(json.dumps(straight.state_dict())))
    expected = step_of(straight, engines(right=which), 1)
    assert step_of(resumed, engines(right=which), 1) == expected
    assert resumed.state_dict() == straight.state_dict()


# Numbers


def some_records():
    """Of six proposals three are valid; the first two ask the same in other words."""
    one, two = Query("path", "A", ("mayor",)), Query("path", "A", ("mayor", "job"))
    valid = [
        (0, solver_task(("A doc.",), "q", one, "x"), 0.5),
        (0, solver_task(("A doc.",), "q in other words", one, "x"), 0.25),
        (1, solver_task(("A doc.",), "q", two, "y"), 1.0),
    ]
    records = [Proposal(place, task).record(judge=p) for place, task, p in valid]
    return records + [Proposal(place, None).record(judge=0.0) for place in (0, 2, 2)]


def test_numbers_of_proposals():
    found = proposal_metrics(some_records(), "judge", 2)
    by_hand = {"valid": 1 / 2, "questions": 3, "success": 1.75 / 3, "hops_mean": 4 / 3}
    by_hand |= {"hard_share": 1 / 3, "distinct": 2 / 3, "hops/1": 2 / 3, "hops/2": 1 / 3}
    by_hand |= {"difficulty_reward": (1 + QUARTER) / 3, "hops/3": 0, "hops/4": 0}
    assert found == pytest.approx({f"method/{key}": value for key, value in by_hand.items()})
    nothing = proposal_metrics([Proposal(0, None).record(judge=0.0)], "judge", 2)
    assert nothing == {"method/valid": 0, "method/questions": 0}


def test_rows_of_proposals_are_means_over_sets_of_documents():
    rows = {
        (row["metric"], row["opponent"]): row for row in proposal_rows(some_records(), ["judge"], 2)
    }
    value = {key: (row["value"], row["n"]) for key, row in rows.items()}
    assert value == {
        ("valid", ""): (pytest.approx((2 / 3 + 1 + 0) / 3), 3),
        ("hard", ""): (0.5, 2),
        ("hops", ""): (1.5, 2),
        ("distinct", ""): (0.75, 2),
        ("success", "judge"): (pytest.approx((0.375 + 1) / 2), 2),
        ("difficulty_reward", "judge"): (pytest.approx((1 + QUARTER) / 4), 2),
    }
    none = [Proposal(place, None).record(judge=0.0) for place in range(3)]
    found = {row["metric"]: row for row in proposal_rows(none, ["judge"], 2)}
    assert found["valid"]["value"] == 0 and found["success"]["n"] == 0


def evaluated(study, both, step=3):
    return [row for suite in study.suites(step) for row in play_suite(suite, both)[1]]


@pytest.mark.parametrize("frozen", [True, False])
def test_evaluation_judges_with_the_start_and_the_present(frozen):
    both = engines()
    both["start"].right = always
    rows = evaluated(method(roles={"solver": FROZEN} if frozen else {}), both)
    labels = ("suite", "opponent", "decoding", "difficulty", "metric")
    value = {tuple(row[key] for key in labels): row["value"] for row in rows}
    assert value["proposals", "starting solver", "", "", "success"] == 1
    assert value["proposals", "starting solver", "", "", "difficulty_reward"] == 0
    current = ("proposals", "current solver", "", "", "difficulty_reward")
    assert current not in value if frozen else value[current] == 1
    hops = {key[3] for key in value if key[2] == "greedy" and key[4] == "accuracy"}
    assert hops == {"", "1 hop", "2 hops", "3 hops", "4 hops"}
    assert len(both["policy"].asked) == 6
    known = {name for kind in ("person", "town", "company") for name in names(kind, "train")}
    shown = "".join(map(chr, both["policy"].asked[0].prompt_ids))
    assert not known & {word.strip(".?") for word in shown.split()}


def test_uniform_questions_are_evaluated_too():
    rows = evaluated(method(questions="uniform"), engines())
    assert {row["value"] for row in rows if row["metric"] == "valid"} == {1}


def test_evaluation_is_the_same_for_every_seed():
    def requests(seed):
        both = engines()
        evaluated(method(seed=seed), both)
        return [request for world in both.values() for request, _ in world.answered]

    assert requests(0) == requests(1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            dict(roles={"solver": FROZEN}, questions="uniform"),
            r"questions uniform and frozen roles \['solver'\] train nobody",
        ),
        (dict(roles={"solver": FROZEN, "proposer": FROZEN}), "train nobody"),
        (
            dict(roles={"proposer": FROZEN}, reward="shuffled"),
            "reward is shuffled with .*; allowed: a proposer that learns",
        ),
        (dict(documents=3), "level.documents is 3; allowed: hops"),
        (dict(invalid_reward=0.5), "invalid_reward is 0.5; allowed: less than or equal to 0"),
        (dict(max_hops=5), "max_hops is 5"),
        (dict(hard_hops=3, max_hops=2), r"hard_hops is 3; allowed: up to max_hops \(2\)"),
        (
            dict(roles={"solver": FROZEN}, solver_weight=0.5),
            r"solver_weight is 0.5 with .* roles \['solver'\]; allowed: 1",
        ),
        (
            dict(questions="uniform", solver_weight=0.5),
            "solver_weight is 0.5 with questions uniform .*; allowed: 1",
        ),
        (dict(roles={"solver": FROZEN}, replay=4), "replay is 4 with a frozen solver; allowed: 0"),
        (dict(documents=60), "documents is 60; allowed: less than or equal to 48"),
    ],
)
def test_what_is_not_allowed_is_named(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, values)


@pytest.fixture
def tiny_plan(tmp_path, tiny_model, tokenizer):
    """Plans of short runs from a random policy."""
    tiny_model.save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    small = dict(SMALL, policy=str(tmp_path / "tiny"), max_new_tokens=6, save_every=1)
    folders = dict(runs=str(tmp_path / "runs"), figures=str(tmp_path))
    return lambda **values: make_plan("proposer", "smoke", **{**small, **folders, **values})


@pytest.mark.slow
def test_a_whole_run(tiny_plan):
    """A random policy asks nothing valid, so the oracle has to."""
    run = run_one(tiny_plan(steps=1, variants=["joint-uniform"]), "joint-uniform", 0)
    rows = run.rows("evals")
    assert {row["metric"] for row in rows} >= {"difficulty_reward", "hard", "accuracy"}
    assert all(row["value"] == 1 for row in rows if row["metric"] == "valid")
    (row,) = run.rows("metrics")
    assert row["method/valid"] == 1 and row["method/success"] == 0


@pytest.mark.slow
def test_the_start_survives_training_and_a_restart(tiny_plan, monkeypatch):
    """Made-up rows move the weights; a fixed answer's log-probability shows whose weights an engine
    has."""
    stops = [2]

    def rollout(self, step):
        yield from ()
        if step in stops:
            raise KeyError("stopped")
        return [Sample((5, 6, 7), (8, 9), (1, 1), None, 1.0, "solver", 0, advantage=1.0)]

    def ask(name):
        (answer,) = yield [Request((5, 6, 7), Sampling(4, 0.0), seed=1, policy=name)]
        return [record("scores", name, sum(answer.logps))]

    def summarise(records):
        return [make_row("scores", one["item"], one["score"]) for one in records]

    suite = Suite("scores", ["start", "policy"], ask, summarise)
    monkeypatch.setattr(Method, "rollout", rollout)
    monkeypatch.setattr(Method, "suites", lambda self, step: [suite])
    plan = tiny_plan(steps=3, variants=["joint"], eval_every=1, grpo={"learning_rate": 0.01})
    with pytest.raises(KeyError, match="stopped"):
        run_one(plan, "joint", 0)
    stops.clear()
    run = run_one(plan, "joint", 0)
    values = {
        name: [row["value"] for row in run.rows("evals") if row["metric"] == name]
        for name in ("start", "policy")
    }
    assert [row["step"] for row in run.rows("metrics")] == [1, 2, 3]
    assert len(values["start"]) == 4 and set(values["start"]) == {values["policy"][0]}
    assert len(set(values["policy"])) == 4
