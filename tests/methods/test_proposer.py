"""The proposer study with scripted proposers and solvers: validity, rewards by hand, the control,
every arm."""

import math
import random
import re
from collections import Counter

import pytest

from spnb.core.params import ParamError, validate
from spnb.core.types import Completion, Request, Sample, Sampling
from spnb.methods.proposals import (
    Context,
    Proposal,
    difficulty_reward,
    distinct_share,
    draw_question,
    proposal_metrics,
    proposal_rows,
    read_proposal,
)
from spnb.methods.proposer import Method, Params
from spnb.testbed import oracle
from spnb.testbed.oracle import Query
from spnb.testbed.tasks import questions_of
from spnb.testbed.texts import facts_in
from spnb.testbed.world import names
from spnb.train.plan import make_plan, run_one
from spnb.train.runs import EVAL_KEYS

IDENTITY = {"paper": "proposer", "scale": "smoke", "variant": "test", "seed": 0}
SMALL = dict(
    worlds_per_step=2, proposals=4, answers=4, eval_worlds=3, eval_proposals=2, eval_items=8
)
HALF = math.exp(0)
QUARTER = math.exp(-18 / 16)


class CharTokenizer:
    """One token per character."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}


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
    return Method(Params(**{**IDENTITY, **SMALL, **values}), CharTokenizer())


def engines(ask=one_hop, right=half):
    return {"policy": World(ask, right), "start": World(ask, right)}


# Validity

FACTS = [("Arnford", "mayor", "Belana"), ("Belana", "job", "baker"), ("Corburg", "mayor", "Belana")]


@pytest.mark.parametrize(
    ("question", "answer", "hops"),
    [
        ("What is the mayor of Arnford?", "Belana", 1),
        ("Name the leader of Arnford.", "Ms Belana", 1),
        ("Which is the job of the mayor of Arnford?", "a baker", 2),
        ("What is the person whose job is baker?", "Belana", 1),
    ],
)
def test_valid_proposals(question, answer, hops):
    asked, query, gold = read_proposal(proposal_text(question, answer), FACTS)
    assert asked == question and len(query.nouns) == hops and oracle.same(gold, answer)


@pytest.mark.parametrize(
    "text",
    [
        proposal_text("What is the mayor of Arnford?", "Corana"),  # untrue
        proposal_text("What is the twin of Arnford?", "Corburg"),  # not answerable
        proposal_text("What is the job of the mayor of Dorvik?", "baker"),  # not answerable
        proposal_text("What is the town whose mayor is Belana?", "Arnford"),  # two answers
        proposal_text("Who governs Arnford?", "Belana"),  # in no frame
        proposal_text(
            "What is the revenue of Arnford in 1850?", "Arnford"
        ),  # no question about these facts
        "<question> What is the mayor of Arnford?</question>",  # no answer
        "<answer> Belana</answer>",
        "<question> What is the mayor of Arnford?<answer> Belana</answer>",
        "",
    ],
)
def test_proposals_that_are_not_valid(text):
    assert read_proposal(text, FACTS) is None


def test_spaces_do_not_make_a_question_new():
    text = proposal_text("What  is\n\n the mayor\tof Arnford?", "Belana")
    assert read_proposal(text, FACTS)[0] == "What is the mayor of Arnford?"


def test_a_way_that_comes_back_is_not_valid():
    twins = [("Arnford", "twin", "Belvik"), ("Belvik", "twin", "Arnford")]
    assert read_proposal(proposal_text("What is the twin of Arnford?", "Belvik"), twins)
    assert (
        read_proposal(proposal_text("What is the twin of the twin of Arnford?", "Arnford"), twins)
        is None
    )


def test_figures_may_be_asked_about_where_a_table_states_them():
    stated = facts_in("1820 Artek costs 12\n1821 Artek costs 15")
    text = proposal_text("What is the costs of Artek in 1820 plus 1821?", "27")
    assert read_proposal(text, stated)[2] == "27" and read_proposal(text, stated[:1]) is None


def test_held_out_questions_are_drawn_like_the_uniform_arms():
    """In documents that hold a chain of `max_hops` facts, whatever the question's hops."""
    both = engines()
    list(method().solver_rows(both))
    for request, question in both["policy"].answered:
        shown = "".join(map(chr, request.prompt_ids)).split("\nQuestion:")[0]
        documents = re.findall(r"\[\d+\] (.*)", shown)
        assert oracle.parse(question) in {
            query for n in (1, 2, 3, 4) for query, _ in questions_of(documents, n)
        }
        assert questions_of(documents, 4)


def test_a_question_with_two_stated_answers_is_not_valid():
    text = proposal_text("What is the mayor of Arnford?", "Belana")
    assert read_proposal(text, [*FACTS, ("Arnford", "mayor", "Corana")]) is None


# Rewards


def test_the_difficulty_reward():
    assert difficulty_reward(0.5) == 1 and difficulty_reward(0) == difficulty_reward(1) == 0
    # exp(-18 / 16) = 0.3247 and exp(-18 * 0.375^2) = exp(-2.53125) = 0.0796.
    assert difficulty_reward(0.25) == difficulty_reward(0.75) == pytest.approx(0.32465, abs=1e-5)
    assert difficulty_reward(1 / 8) == pytest.approx(0.07956, abs=1e-5)


def test_rewards_and_advantages_by_hand():
    """p is 1/2, 1/4, 1 for the three frames, the fourth is not valid: rewards 1, 0.3247, 0, 0."""
    study, both = method(solver="learning", kl_beta=0.1), engines(right=which)
    rows = study.collect(both, 0)
    asked = [row for row in rows if row.role == "proposer"]
    assert [row.reward for row in asked] == pytest.approx([HALF, QUARTER, 0, 0] * 2)
    assert [row.invalid for row in asked] == [False, False, False, True] * 2
    mean = (HALF + QUARTER) / 4
    deviation = math.sqrt(((HALF - mean) ** 2 + (QUARTER - mean) ** 2 + 2 * mean**2) / 3)
    by_hand = [(reward - mean) / deviation for reward in (HALF, QUARTER, 0, 0)]
    assert [row.advantage for row in asked] == pytest.approx(
        [a * 32 / 8 for a in by_hand * 2]
    )  # 8 of 32 rows
    answers = [row for row in rows if row.role == "solver"]
    assert [row.reward for row in answers] == [1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1] * 2
    z = 0.8660254  # two of four; one of four gives 1.5 and -0.5, four of four nothing
    by_hand = [z, z, -z, -z, 1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0]
    assert [row.advantage for row in answers] == pytest.approx([a * 32 / 24 for a in by_hand * 2])
    assert study.metrics() == pytest.approx(
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


def test_a_penalty_for_what_is_not_valid():
    rows = method(solver="frozen", invalid_reward=-0.25, kl_beta=0.1).collect(
        engines(right=which), 0
    )
    assert [row.reward for row in rows] == pytest.approx([HALF, QUARTER, 0, -0.25] * 2)


def test_equal_questions_are_answered_once():
    both = engines(ask=lambda facts, index: one_hop(facts, 0))
    rows = method(solver="learning", kl_beta=0.1).collect(both, 0)
    assert Counter(row.role for row in rows) == {"proposer": 8, "solver": 8}
    assert len({question for _, question in both["policy"].answered}) == 2
    assert {row.reward for row in rows if row.role == "proposer"} == {1}


def test_the_control_keeps_the_rewards_and_not_who_gets_them():
    plain, control = (
        method(solver="frozen", reward=reward, worlds_per_step=6, kl_beta=0.1).collect(
            engines(right=which), 0
        )
        for reward in ("difficulty", "shuffled")
    )
    before, after = ([row.reward for row in rows] for rows in (plain, control))
    assert sorted(before) == sorted(after) and before != after
    assert all(row.reward == 0 for row in control if row.invalid)
    assert [row.info for row in plain] == [
        row.info for row in control
    ]  # what is noted of a question stays true


# Arms


def roles_and_engines(**values):
    both = engines()
    rows = method(kl_beta=0.1, **values).collect(both, 0)
    used = {
        name: (len(engine.asked) > 0, len(engine.answered) > 0) for name, engine in both.items()
    }
    return {row.role for row in rows}, used


@pytest.mark.parametrize(
    ("values", "trained", "policy", "start"),
    [
        (dict(solver="frozen"), {"proposer"}, (True, False), (False, True)),
        (dict(solver="learning"), {"proposer", "solver"}, (True, True), (False, False)),
        (dict(proposer="frozen"), {"solver"}, (False, True), (True, False)),
        (dict(proposer="uniform"), {"solver"}, (False, True), (False, False)),
    ],
)
def test_who_asks_who_answers_and_who_is_trained(values, trained, policy, start):
    assert roles_and_engines(**values) == (trained, {"policy": policy, "start": start})


def test_uniform_questions_are_valid_and_even_over_hops():
    study = method(proposer="uniform", worlds_per_step=1, proposals=400, documents=6, kl_beta=0.1)
    (context,) = study.contexts(1, "train", 3)
    asked = study.proposals({}, [context], 400, 3, "train")
    hops = Counter(proposal.hops for proposal in asked)
    assert set(hops) == {1, 2, 3, 4} and all(
        abs(count - 100) < 40 for count in hops.values()
    )  # 4.6 deviations
    for proposal in asked:
        assert (
            read_proposal(proposal_text(proposal.question, proposal.gold), context.stated)[1]
            == proposal.query
        )
    study.collect(engines(), 0)
    assert study.metrics()["method/valid"] == 1


def test_every_context_has_chains_of_all_lengths():
    for seed in range(5):
        for context in method().contexts(4, "train", seed):
            for hops in range(1, 5):
                found = draw_question(0, context, hops, random.Random(seed), oracle.TRAIN_FRAMES)
                assert found.valid and found.hops == hops


def test_a_slower_solver():
    rows = method(solver_weight=0.25).collect(engines(right=which), 0)
    whole = method().collect(engines(right=which), 0)
    ratio = {role: {round(a.advantage / b.advantage, 6) for a, b in zip(rows, whole, strict=True) if a.role == role}
             for role in ("proposer", "solver")}  # fmt: skip
    assert ratio == {"proposer": {1.0}, "solver": {0.25}}


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_the_solver_has_the_same_weight_in_the_loss_with_and_without_a_learning_proposer(beta):
    """The mean over all rows of a solver row's term is the mean over the solver's rows alone, in
    both arms."""

    def gradient(**values):
        rows = method(kl_beta=beta, **values).collect(engines(right=which), 0)
        return [row.advantage / len(rows) for row in rows if row.role == "solver"]

    alone, beside = gradient(proposer="frozen"), gradient(proposer="learning")
    assert alone == pytest.approx(beside) and any(alone)


def test_replay_asks_the_questions_nearest_the_frontier_again():
    """Of three questions a context, p = 1/2, 1/4 and 1, those at 1/2 are kept, among equals the new
    ones."""
    study, both = method(replay=2, kl_beta=0.1), engines(right=which)
    rows = study.collect(both, 0)
    assert [proposal.success for _, proposal in study.memory] == [0.5, 0.5]
    assert [proposal.context for _, proposal in study.memory] == [0, 1]
    kept = {(context.documents, proposal.question) for context, proposal in study.memory}
    both["policy"].answered.clear()
    again = study.collect(both, 1)
    assert Counter(row.role for row in again) == {"proposer": 8, "solver": 8 * 4}
    assert Counter(row.role for row in rows) == {"proposer": 8, "solver": 6 * 4}
    shown = ["".join(map(chr, request.prompt_ids)) for request, _ in both["policy"].answered[-8:]]
    assert all(any(doc[0] in text and question in text for doc, question in kept) for text in shown)
    assert study.metrics()["method/questions"] == 6 and len(study.memory) == 2
    assert not kept & {(context.documents, proposal.question) for context, proposal in study.memory}


def test_seed_step_and_rank_decide_the_documents():
    def prompts(step=0, rank=0, **values):
        return {
            row.prompt_ids for row in method(kl_beta=0.1, **values).collect(engines(), step, rank)
        }

    first = prompts()
    assert first == prompts() and all(
        not first & other for other in (prompts(1), prompts(0, 1), prompts(seed=1))
    )


def test_a_restored_method_goes_on_as_if_it_had_never_stopped():
    straight, resumed = method(replay=3), method(replay=3)
    straight.collect(engines(right=which), 0)
    resumed.load_state_dict(straight.state_dict())
    assert straight.collect(engines(right=which), 1) == resumed.collect(engines(right=which), 1)


# Numbers


def some_proposals():
    one, two = Query("path", "A", ("mayor",)), Query("path", "A", ("mayor", "job"))
    return [
        Proposal(0, "q", one, "x", 0.5),
        Proposal(0, "q in other words", one, "x", 0.25),
        Proposal(0),
        Proposal(1, "q", two, "y", 1.0),
        Proposal(2),
        Proposal(2),
    ]


def test_numbers_of_proposals():
    asked = some_proposals()
    assert distinct_share([p for p in asked if p.valid]) == pytest.approx(2 / 3)
    found = proposal_metrics(asked, hard_hops=2)
    assert found["method/valid"] == 0.5 and found["method/hard_share"] == pytest.approx(1 / 3)
    assert found["method/hops_mean"] == pytest.approx(4 / 3) and found[
        "method/hops/2"
    ] == pytest.approx(1 / 3)
    assert proposal_metrics([Proposal(0)], 2) == {"method/valid": 0, "method/questions": 0}
    rows = {row["metric"]: row for row in proposal_rows(asked, 2)}
    assert rows["valid"]["value"] == pytest.approx((2 / 3 + 1 + 0) / 3) and rows["valid"]["n"] == 3
    assert (rows["hard"]["value"], rows["hard"]["n"]) == (0.5, 2) and rows["distinct"][
        "value"
    ] == 0.75


@pytest.mark.parametrize("solver", ["frozen", "learning"])
def test_evaluation_judges_with_the_start_and_the_present(solver):
    both = engines()
    both["start"].right = always
    rows = method(solver=solver).evaluate(both, 3)
    assert all(set(row) == set(EVAL_KEYS) and row["step"] == 3 for row in rows)
    value = {(row["evaluation"], row["metric"]): row["value"] for row in rows}
    assert value["proposals, starting solver", "success"] == 1
    assert value["proposals, starting solver", "difficulty_reward"] == 0
    if solver == "learning":
        assert value["proposals, current solver", "difficulty_reward"] == 1
    else:
        assert ("proposals, current solver", "success") not in value
    assert {m for e, m in value if e == "solver, greedy"} >= {
        "accuracy",
        "accuracy, 1 hop",
        "accuracy, 4 hops",
    }
    assert len(both["policy"].asked) == 6
    known = {name for kind in ("person", "town", "company") for name in names(kind, "train")}
    shown = "".join(map(chr, both["policy"].asked[0].prompt_ids))
    assert not known & {word.strip(".?") for word in shown.split()}


def test_evaluation_is_the_same_for_every_seed():
    def asked(seed):
        both = engines()
        method(seed=seed).evaluate(both, 0)
        return [request for engine in both.values() for request, _ in engine.answered]

    assert asked(0) == asked(1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            dict(solver="frozen", proposer="uniform"),
            "solver frozen with proposer uniform trains nobody",
        ),
        (
            dict(proposer="frozen", reward="shuffled"),
            "reward shuffled with proposer frozen; allowed: proposer learning",
        ),
        (dict(documents=3), "level.documents is 3; allowed: hops"),
        (dict(invalid_reward=0.5), "invalid_reward is 0.5; allowed: less than or equal to 0"),
        (dict(max_hops=5), "max_hops is 5"),
        (dict(hard_hops=3, max_hops=2), r"hard_hops is 3; allowed: up to max_hops \(2\)"),
        (
            dict(solver="frozen", solver_weight=0.5),
            "solver_weight is 0.5 with solver frozen and proposer learning; allowed: 1",
        ),
        (
            dict(proposer="uniform", solver_weight=0.5),
            "solver_weight is 0.5 with .* proposer uniform; allowed: 1",
        ),
        (dict(solver="frozen", replay=4), "replay is 4 with solver frozen; allowed: 0"),
        (dict(documents=60), "documents is 60; allowed: less than or equal to 48"),
    ],
)
def test_what_is_not_allowed_is_named(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, IDENTITY | values)


@pytest.fixture
def tiny_plan(tmp_path, tiny_model, tokenizer):
    """Plans of short runs from a random policy."""
    tiny_model.save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    small = dict(
        SMALL, policy=str(tmp_path / "tiny"), figures=str(tmp_path), max_new_tokens=6, save_every=1
    )
    return lambda folder, **values: make_plan(
        "proposer", "smoke", runs=str(tmp_path / folder), **{**small, **values}
    )


def test_a_whole_run(tiny_plan):
    """A random policy asks nothing valid, so the oracle has to."""
    run = run_one(tiny_plan("a", steps=1, variants=["joint-uniform"]), "joint-uniform", 0)
    assert {row["metric"] for row in run.rows("evals")} >= {
        "difficulty_reward",
        "hard",
        "accuracy, 4 hops",
    }
    assert all(row["value"] == 1 for row in run.rows("evals") if row["metric"] == "valid")
    (row,) = run.rows("metrics")
    assert row["method/valid"] == 1 and row["method/success"] == 0


def test_the_start_survives_training_and_a_restart(tiny_plan, monkeypatch):
    """Made-up rows move the weights; a fixed answer's log-probability shows whose weights an engine
    has."""
    stops = [2]

    def collect(self, engines, step, rank=0):
        if step in stops:
            raise KeyError("stopped")
        return [Sample((5, 6, 7), (8, 9), (1, 1), None, 1.0, "solver", 0, advantage=1.0)]

    def evaluate(self, engines, step):
        request = Request((5, 6, 7), Sampling(4, 0.0), seed=1)
        scores = {
            name: sum(engines[name].generate([request])[0].logps) for name in ("start", "policy")
        }
        common = {"evaluation": "scores", "low": None, "high": None, "n": 1}
        return [
            {"step": step, **common, "metric": name, "value": value}
            for name, value in scores.items()
        ]

    monkeypatch.setattr(Method, "collect", collect)
    monkeypatch.setattr(Method, "evaluate", evaluate)
    plan = tiny_plan("b", steps=3, variants=["joint"], eval_every=1, learning_rate=0.01)
    with pytest.raises(KeyError, match="stopped"):
        run_one(plan, "joint", 0)
    stops.clear()
    run = run_one(plan, "joint", 0)
    values = {
        name: [r["value"] for r in run.rows("evals") if r["metric"] == name]
        for name in ("start", "policy")
    }
    assert run.facts()["resumed"] and [row["step"] for row in run.rows("metrics")] == [1, 2, 3]
    assert len(values["start"]) == 4 and set(values["start"]) == {values["policy"][0]}
    assert len(set(values["policy"])) == 4


def test_the_oracles_view_of_a_context():
    (context,) = method().contexts(1, "train", 0)
    assert isinstance(context, Context) and len(context.documents) == 4
    assert list(context.stated) == [fact for text in context.documents for fact in facts_in(text)]
