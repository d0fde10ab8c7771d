"""SSP with scripted roles: rules, verification, pay by hand, batch strategies, algorithm pairs."""

import json
import random
import re
from collections import Counter

import pytest
from arms import differences
from fakes import CharTokenizer, Scripts

from spnb.core import prompts
from spnb.core.documents import Context, Judgement, Proposal
from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.params import ParamError, validate
from spnb.core.search import RetrieverError
from spnb.core.types import Sample, Trajectory
from spnb.evaluate.items import play_suite
from spnb.lab.chain import QUEST, before, follow
from spnb.lab.ladder import ORDINALS
from spnb.lab.targets import Target
from spnb.methods import ssp
from spnb.methods.ssp import UNVERIFIED, Method, Params, Question, facts

SMALL = dict(answers_per_step=4, attempts=4, min_words=3, results=2, noisy_documents=1, highest=3)
SMALL |= dict(eval_items=1, eval_proposals=3, max_searches=4, max_length=100_000, reset_every=0)
HELDOUT = QUEST.links_of("heldout")
JUDGED = {"judge": {"policy": "policy"}}


class Scripted(Scripts):
    """An engine in every role, each answer by its number: what a proposer asks ("one" step, "two"
    steps, "nonsense", "wrong" start), whether a solver is right, a reading gives the answer, a
    judge says yes."""

    def __init__(self, asks="one", right=True, reads=True, says=True):
        super().__init__(ask=asks, solve=right, read=reads, judge=says)
        self.read, self.questions = [], []

    def reply(self, prompt):
        if prompts.WORDS["ask by search"] in prompt:
            return self.propose(prompt)
        if prompts.WORDS["search"]["plain"] in prompt:
            return self.solve(prompt)
        if prompts.WORDS["judge"] in prompt:
            return f"<answer> {prompts.YES if self.of('judge') else prompts.NO}</answer>"
        self.read.append(re.findall(r"\[\d+\] (.*)", prompt))
        question = re.findall(r"Question: (.*?)(?:<|$)", prompt, re.MULTILINE)[-1]
        return f"<answer> {gold(question) if self.of('read') else 'nobody'}</answer>"

    def propose(self, prompt):
        target = re.findall(r"Answer: (\w+)", prompt)[0]
        if "[1]" not in prompt:
            return f"<search> {QUEST.query('guide', target)}</search>"
        kind = self.of("ask")
        if kind == "nonsense":
            return "<think> what now?</think>"
        pool = "heldout" if ("guide", target) in HELDOUT else "train"
        links = QUEST.links_of(pool)
        steps = {"one": ["guide"], "wrong": ["guide"], "two": ["host", "guide"]}[kind]
        start = target
        for relation in reversed(steps):
            start = before(links, relation, start)
        start = before(links, "scout", start) if kind == "wrong" else start
        told = QUEST.question(
            start, list(zip(ORDINALS, steps, strict=False)), "Start at {e}: {s}. Who is it?"
        )
        return f"<question> {told}</question>"

    def solve(self, prompt):
        question = re.findall(r"Question: (.*?)(?:<|$)", prompt, re.MULTILINE)[0]
        self.questions.append(question)
        return f"<answer> {gold(question) if self.of('solve') else 'nobody'}</answer>"


def gold(question):
    start, relations = QUEST.parse(question)
    pool = "heldout" if ("guide", start) in HELDOUT else "train"
    return follow(QUEST.links_of(pool), start, relations)[-1]


def method(**values):
    return Method(validate(Params, {**SMALL, **values}), CharTokenizer())


def play(world, step=0, made=None, **values):
    made = made or method(**values)
    rows = run(made.rollout(step), {"policy": world})
    made.estimate(rows)
    made.select(rows)
    return made, rows


def of(rows, role):
    return [row for row in rows if row.role == role]


def numbers(made):
    return {name.removeprefix("method/"): value for name, value in made.metrics.items()}


def in_turn(*values):
    return lambda place: values[place % len(values)]


def test_both_roles_are_paid_by_the_solvers_share():
    """Questions 1 to 3 pass; one of four attempts is right at each, then all, then none."""
    right = [True, False, False, False] + [True] * 4 + [False] * 4
    world = Scripted(asks=in_turn("one", "one", "two", "nonsense"), right=in_turn(*right))
    made, rows = play(world)
    proposer = of(rows, "proposer")
    assert [row.reward for row in proposer] == [0.75, 0.0, 1.0, 0.0]
    assert [row.advantage for row in proposer] == [0.75, 0.0, 1.0, 0.0], "no baseline"
    assert [row.invalid for row in proposer] == [False] * 3 + [True]
    assert [row.info["reason"] for row in proposer] == ["", "", "", "no question"]
    solver = of(rows, "solver")
    assert [row.reward for row in solver] == [float(one) for one in right]
    assert [row.advantage for row in solver[:4]] == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert {row.advantage for row in solver[4:]} == {0.0}
    found = numbers(made)
    assert (found["proposals"], found["questions"], found["passed"]) == (4, 3, 0.75)
    assert found["success"] == pytest.approx(1.25 / 3) and found["mixed"] == pytest.approx(1 / 3)
    assert found["filter/no question"] == 0.25 and found["level"] == pytest.approx(4 / 3)
    assert found["proposer searches"] == 1 and found["solver searches"] == 0
    assert found["accept/valid"] == 1 and found["hacked"] == 0 and "accept/hacked" not in found


def test_what_the_oracle_says_of_what_passed_by_hand():
    """Of five that reached the verifier it reads four: right ones are accepted once in two, wrong
    ones always. Of four accepted one is unreadable, two are wrong, one of these answerable."""
    reasons = ["", "", "", "", UNVERIFIED, "too short", "no question"]
    asked = Context("quest"), Trajectory((1,)), Proposal("q", "x")
    slots = [Question(*asked, reason) for reason in reasons]
    judged = [(2, True, True), (1, True, False), (1, False, False), (0, False, False)]
    judged += [(3, True, True), (3, True, False)]
    for slot, judgement in zip(slots, judged, strict=False):
        slot.judgement = Judgement(*judgement)
    found = ssp.numbers(slots, slots[:1])
    assert (found["accept/valid"], found["accept/hacked"]) == (0.5, 1)
    assert (found["unreadable"], found["hacked"], found["hacked/answerable"]) == (0.25, 0.5, 0.5)
    assert found["passed"] == pytest.approx(4 / 7) and found["level"] == 2


def test_searched_tokens_are_not_trained():
    _, rows = play(Scripted())
    for row in of(rows, "proposer"):
        text = "".join(
            chr(token) for token, own in zip(row.completion_ids, row.mask, strict=True) if own
        )
        assert "<information>" in row.info["text"] and "information" not in text
        assert text.startswith("<search>") and text.endswith("</question>")


RULES = [
    ({"min_characters": 40}, "too short"),
    ({"min_words": 9}, "too few words"),
    ({"max_characters": 20}, "too long"),
    ({"min_searches": 2}, "too few searches"),
    ({"distinct_queries": True}, "a query twice"),
    ({"hidden_answer": True}, "answer in a query"),
    ({}, ""),
]


@pytest.mark.parametrize(("values", "reason"), RULES)
def test_rules_name_what_they_remove(values, reason):
    """By a question of 38 characters and 8 words, of one query that is asked twice or one; case
    and spaces make no other query."""
    question = Proposal("Start at Belana: first guide. Who is it", "Arwyn")
    twice = "distinct_queries" in values
    searched = ["guide of Arwyn", " Guide of  Arwyn"][: 1 + twice]
    found = Trajectory((1,), searches=searched, documents=["x"])
    assert len(question.question) == 39 and len(question.question.split()) == 8
    assert method(**values).broken_rule(question, found) == reason


def test_each_rule_has_a_name_of_its_own():
    """The paper's second, no search, is no search that found nothing; two words can be long."""
    made = method()
    asked = Proposal("Start at Belana: first guide?", "Arwyn")
    assert made.broken_rule(asked, Trajectory((1,))) == "too few searches"
    assert made.broken_rule(Proposal("Whose guide's?", "Arwyn"), Trajectory((1,))) == (
        "too few words"
    )


def test_an_answer_in_the_question_and_nothing_found():
    made, found = method(), Trajectory((1,), searches=["a"], documents=["x"])
    leak = Proposal("Start at Belana: who is BELANA here?", "Belana")
    assert made.broken_rule(leak, found) == "answer in the question"
    band = Proposal("Whoever sang it in which town?", "The Who")
    assert made.broken_rule(band, found) == "", "the paper's rule: the answer as it stands"
    clean = Proposal("Start at Belana: first guide?", "Arwyn")
    assert made.broken_rule(clean, Trajectory((1,), searches=["a"])) == "nothing found"
    free = method(min_searches=0)
    assert free.broken_rule(clean, Trajectory((1,))) == ""


def test_every_reading_has_to_give_the_answer():
    """Eight readings of four questions: the second reading of the third is wrong."""
    world = Scripted(reads=in_turn(*[True] * 5, False, True, True))
    made, rows = play(world, readings=2)
    reasons = [row.info["reason"] for row in of(rows, "proposer")]
    assert reasons == ["", "", UNVERIFIED, ""]
    assert len(world.read) == 8 and numbers(made)["filter/not verified"] == 0.25
    assert numbers(made)["accept/valid"] == 0.75


def test_a_judge_reads_what_a_reading_does_not_match():
    """The second and the fourth reading give another answer; the judge takes the first of them."""
    world = Scripted(reads=in_turn(True, False), says=in_turn(True, False))
    _, rows = play(world, grader="judge", roles=JUDGED)
    assert [row.info["reason"] for row in of(rows, "proposer")] == ["", "", "", UNVERIFIED]
    assert world.counts["judge"] == 2


def test_another_policy_may_verify():
    world, other = Scripted(reads=False), Scripted(reads=in_turn(True, False))
    made = method(roles={"verifier": {"policy": "other"}})
    rows = run(made.rollout(0), {"policy": world, "other": other})
    assert [row.info["reason"] for row in of(rows, "proposer")] == ["", UNVERIFIED] * 2
    assert (world.counts["read"], other.counts) == (
        0,
        {"ask": 0, "solve": 0, "read": 4, "judge": 0},
    )


def test_a_reading_that_does_not_fit_is_not_asked_and_nothing_passes_unread():
    """Proposals fit into 1,100 characters, what all twelve found together does not."""
    world = Scripted()
    with pytest.raises(ValueError, match=r"\(check too long: 12\)"):
        play(world, answers_per_step=12, noisy_documents=99, max_length=1100)
    assert world.counts["ask"] == 12 and not world.read


@pytest.mark.parametrize(("unit", "noise", "expected"), [
    ("document", 0, 0), ("document", 3, 3), ("document", 99, 6),
    ("trajectory", 1, 2), ("trajectory", 2, 4), ("trajectory", 99, 6),
])  # fmt: skip
def test_noise_is_what_other_trajectories_found(unit, noise, expected):
    """Each of four trajectories found two documents, all different."""
    world = Scripted()
    play(world, noise=unit, noisy_documents=noise)
    assert len({text for texts in world.read for text in texts}) == 8
    for texts in world.read:
        assert len(texts) == len({*texts}) == 2 + expected


def test_noise_is_drawn_anew_for_each_reading_and_mixed_with_the_rest():
    world = Scripted()
    play(world, answers_per_step=12, readings=6, noisy_documents=2)
    first = [tuple(texts) for texts in world.read[:6]]
    assert len({frozenset(texts) for texts in first}) > 1 and len({*first}) > 2


def test_noise_is_another_one_with_another_seed():
    made, world = method(noisy_documents=2), Scripted()
    contexts = [made.source.draw(random.Random(place), place) for place in range(12)]
    batch = run(made.ask(contexts, 1, 5), {"policy": world})
    run(made.verify(batch, 6), {"policy": world})
    run(made.verify(batch, 6), {"policy": world})
    assert world.read[:12] != world.read[12:24] == world.read[24:]


def test_the_oracle_or_nobody_verifies():
    asks = in_turn("one", "wrong")
    made, rows = play(Scripted(asks=asks), verify="oracle")
    assert [row.info["reason"] for row in of(rows, "proposer")] == ["", UNVERIFIED] * 2
    assert numbers(made)["accept/hacked"] == 0 and numbers(made)["accept/valid"] == 1
    made, rows = play(Scripted(asks=asks), verify="none")
    found = numbers(made)
    assert found["passed"] == 1 and found["hacked"] == 0.5 and found["accept/hacked"] == 1
    assert [row.reward for row in of(rows, "proposer")] == [0, 1, 0, 1], "a hack is paid most"


def test_what_does_not_pass_may_be_punished():
    world = Scripted(asks=in_turn("one", "nonsense"))
    _, rows = play(world, invalid_reward=-0.1)
    assert [row.reward for row in of(rows, "proposer")] == [0, -0.1, 0, -0.1]


def test_dummy_slots_count_in_the_solvers_mean():
    """Half of the slots are empty: the solver's mean is over 16 rows, eight of which are there."""
    world = Scripted(asks=in_turn("one", "nonsense"), right=in_turn(True, False))
    kept = dict(grpo={"beta": 0.01})
    _, rows = play(world, fill="dummy", **kept)
    proposer, solver = of(rows, "proposer"), of(rows, "solver")
    total = len(rows)
    assert (len(proposer), len(solver)) == (4, 8)
    assert sum(row.weight for row in proposer) == pytest.approx(total)
    assert sum(row.weight for row in solver) == pytest.approx(total / 2)
    _, rows = play(world, fill="resample", **kept)
    assert sum(row.weight for row in of(rows, "solver")) == pytest.approx(len(rows))


def test_rows_that_add_nothing_are_left_out_and_the_means_stay():
    world = Scripted(right=in_turn(*[True] * 4, *[True, False] * 2))
    _, rows = play(world, fill="dummy")
    loss = sum(row.weight * row.advantage**2 for row in rows)
    kept = sum(row.weight > 0 for row in rows)
    parts = [of(rows, "proposer"), of(rows, "solver")]
    expected = sum(sum(row.advantage**2 for row in part) / len(part) for part in parts)
    assert kept < len(rows) and loss / kept == pytest.approx(expected)


def test_resampling_asks_until_the_batch_is_full():
    """Every third proposal passes: two further batches for the first four, cut at four."""
    world = Scripted(asks=in_turn("nonsense", "nonsense", "one"))
    made, rows = play(world, fill="resample", resamples=5)
    found = numbers(made)
    assert (found["proposals"], found["questions"]) == (12, 4)
    assert len(of(rows, "proposer")) == 4 and not any(row.invalid for row in rows)
    assert found["passed"] == pytest.approx(1 / 3)
    made, rows = play(world, fill="resample", resamples=1)
    found = numbers(made)
    assert (found["proposals"], found["questions"]) == (8, 4), "too few: some come twice"
    assert len(of(rows, "proposer")) < 4 and len({*world.questions[-16:]}) < 4


def test_replay_fills_the_slots_of_later_steps_until_it_is_reset():
    world = Scripted(asks=lambda place: "one" if place in (0, 1, 4, 8, 12) else "nonsense")
    made, _ = play(world, step=0, reset_every=3)
    assert numbers(made)["questions"] == 2 and len(made.pool) == 2, "nothing to replay yet"
    first = {question for question, _ in made.pool}
    for step, pool in ((1, 3), (2, 0)):
        before = len(world.questions)
        _, rows = play(world, step=step, made=made)
        assert numbers(made)["questions"] == 4 and numbers(made)["replayed"] == 0.75
        assert len(made.pool) == pool
        new = [row for row in of(rows, "proposer") if not row.invalid]
        assert len(new) == 1 and len(of(rows, "proposer")) == 4
    assert {*world.questions[before:]} & first
    play(world, step=3, made=made)
    assert numbers(made)["questions"] == 1, "forgotten"
    made, _ = play(Scripted(), step=2, reset_every=0)
    assert len(made.pool) == 4


def test_the_pool_survives_a_restart():
    made, _ = play(Scripted())
    again = method()
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    assert again.pool == made.pool and len(again.pool) == 4
    assert again.replay(3, random.Random(1)) == made.replay(3, random.Random(1))


def test_a_step_without_a_question_says_which_filter_removed_how_many():
    world = Scripted(asks=in_turn("one", "nonsense", "nonsense", "nonsense"), reads=False)
    with pytest.raises(
        ValueError, match=r"no question of 4 passed .*no question: 3, not verified: 1"
    ):
        play(world)
    made, _ = play(Scripted())
    play(world, step=1, made=made)
    assert numbers(made)["replayed"] == 1


class Down:
    """A retriever that gives no answer."""

    def search(self, queries, k):
        raise RetrieverError("down")


@pytest.mark.parametrize("fill", ["dummy", "resample", "replay"])
def test_a_step_without_a_question_for_want_of_searches_ends_no_run(fill, monkeypatch):
    made = method(fill=fill, resamples=1)
    monkeypatch.setattr(made.source, "retriever", lambda pool: Down())
    _, rows = play(Scripted(), made=made)
    assert {row.info["reason"] for row in rows} <= {"retriever"} and made.pool == []
    assert {row.weight for row in rows} <= {0.0} and numbers(made)["filter/retriever"] == 1


@pytest.mark.parametrize("values", [
    {"attempts": 1, "roles": {"solver": {"estimator": "raw"}}},
    {"attempts": 1, "roles": {"solver": {"policy": "start"}}},
    {"roles": {"proposer": {"estimator": "group_zscore", "trainable": False}}},
])  # fmt: skip
def test_who_is_alone_in_a_group_and_compared_with_nobody_is_taken(values):
    assert method(**values).params.seed == 0


PAIRS = {"raw": [0.75, 0.0], "group_zscore": [0.7071, -0.7071], "batch_zscore": None}


@pytest.mark.parametrize("estimator", list(PAIRS))
def test_each_algorithm_compares_what_it_says(estimator):
    """Two proposals for each answer; those for one are a group, a quarter or all right."""
    right = in_turn(True, False, False, False, *[True] * 4)
    values = dict(proposals=2, roles={"proposer": {"estimator": estimator}})
    _, rows = play(Scripted(right=right), **values)
    proposer = of(rows, "proposer")
    assert [row.group for row in proposer] == [0, 0, 1, 1, 2, 2, 3, 3]
    expected = PAIRS[estimator]
    if expected is None:
        assert sum(row.advantage for row in proposer) == pytest.approx(0, abs=1e-9)
        expected = [proposer[0].advantage, -proposer[0].advantage]
    assert [row.advantage for row in proposer] == pytest.approx(expected * 4, abs=1e-3)


def test_a_judge_reads_what_does_not_match():
    world = Scripted(right=in_turn(True, False), says=in_turn(True, False))
    _, rows = play(world, grader="judge", roles=JUDGED)
    assert [row.reward for row in of(rows, "solver")] == [1, 1, 1, 0] * 4
    assert world.counts["judge"] == 8


def test_an_attempt_without_an_answer_is_not_read_by_the_judge():
    class Mute(Scripted):
        def solve(self, prompt):
            return "hm" if self.of("solve") else super().solve(prompt)

    world = Mute(says=True)
    _, rows = play(world, grader="judge", roles=JUDGED)
    assert world.counts["judge"] == 0 and {row.reward for row in of(rows, "solver")} == {0}


def test_controls_and_upper_bound():
    world = Scripted(asks=in_turn("one", "two"), right=in_turn(True, *[False] * 3))
    _, earned = play(world)
    _, permuted = play(
        Scripted(asks=in_turn("one", "two"), right=in_turn(True, *[False] * 3)), paid="shuffled"
    )
    for role in ("proposer", "solver"):
        rewards = [[row.reward for row in of(rows, role)] for rows in (earned, permuted)]
        assert sorted(rewards[0]) == sorted(rewards[1])
    assert [row.reward for row in of(permuted, "solver")] != [
        row.reward for row in of(earned, "solver")
    ]
    made, rows = play(world, questions="even", answers_per_step=30)
    assert not of(rows, "proposer") and len(of(rows, "solver")) == 120 and not made.pool
    levels = [len(QUEST.parse(question)[1]) for question in world.questions[-120::4]]
    assert {*levels} == {1, 2, 3}


@pytest.mark.parametrize("grpo", [{}, {"beta": 0.3}])
def test_a_frozen_role_does_not_learn(grpo):
    frozen = {"policy": "start", "trainable": False}
    made = method(roles={"proposer": frozen}, grpo=grpo)
    world = Scripted(right=in_turn(True, False))
    rows = run(made.rollout(0), {"policy": world, "start": world})
    made.estimate(rows)
    made.select(rows)
    assert {row.weight for row in of(rows, "proposer")} == {0.0}
    assert {row.policy for row in of(rows, "proposer")} == {"start"}
    kept = [row for row in rows if row.weight]
    assert sum(row.weight for row in kept) / len(kept) == pytest.approx(1)


def test_proposals_for_held_out_answers_are_judged_and_solved():
    """The verifier catches the second, which the oracle reads and finds wrong."""
    world = Scripted(asks=in_turn("two", "wrong", "nonsense"), right=in_turn(True, False))
    *_, suite = method().suites(0)
    records, _ = play_suite(suite, {"policy": world})
    assert [one["score"] for one in records] == [1, 0, 0]
    assert [one["level"] for one in records] == [2, 1, 0]
    assert [(one["answerable"], one["right"]) for one in records[:2]] == [(1, 1), (1, 0)]
    assert "right" not in records[2], "nothing to judge"
    assert [one["success"] for one in records] == [0.5, 0, 0] and records[0]["pay"] == 0.5
    assert [one["reason"] for one in records] == ["", UNVERIFIED, "no question"]
    assert [len(texts) for texts in world.read] == [3, 3], "one noisy document, as in training"
    assert [len(one["attempts"]) for one in records] == [2, 0, 0]
    assert records[0]["text"].startswith("<search>") and records[0]["answer"] in records[0]["text"]
    assert all(("guide", QUEST.parse(text)[0]) in HELDOUT for text in world.questions)


@pytest.mark.parametrize(
    ("values", "world", "score", "pay"),
    [({}, Scripted(reads=False), 1, 0), ({"verify": "none"}, Scripted(asks="wrong"), 0, 1)],
)
def test_held_out_proposals_that_are_valid_or_passed_are_solved(values, world, score, pay):
    """Right and not verified, then wrong and passed, which pays most as nobody answers as stated;
    two of the attempts are shown."""
    *_, suite = method(**values).suites(0)
    records, _ = play_suite(suite, {"policy": world})
    assert {(one["score"], one["pay"]) for one in records} == {(score, pay)}
    assert all(len(one["attempts"]) == 2 for one in records)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fill": "pad"}, "fill is 'pad'; allowed: .*dummy"),
        ({"noise": "page"}, "noise is 'page'"),
        ({"proposals": 5, "fill": "resample"}, "proposals is 5 with fill 'resample'; allowed: 1"),
        ({"min_searches": 9}, "min_searches is 9; allowed: up to max_searches"),
        ({"highest": 9}, "level is 9|highest"),
        ({"invalid_reward": 0.5}, "invalid_reward is 0.5"),
        (
            {"questions": "even", "roles": {"solver": {"trainable": False}}},
            "questions is 'even' with roles .*; allowed: a role that learns",
        ),
        (
            {"questions": "even", "roles": {"solver": {"policy": "start"}}},
            "questions is 'even' with roles .*; allowed: a role that learns",
        ),
        ({"attempts": 1}, "attempts is 1 with roles {}; allowed: 2 or more, to be compared"),
        (
            {"roles": {"proposer": {"estimator": "group_mean"}}},
            "proposals is 1 with roles .*; allowed: 2 or more, to be compared",
        ),
    ],
)
def test_bad_parameters_are_named(values, message):
    with pytest.raises((ParamError, ValueError), match=message):
        method(**values)


class Seeds(Scripted):
    """Also keeps each request's seed, by what is asked."""

    def __init__(self, **script):
        super().__init__(**script)
        self.seeds = {"ask": [], "solve": [], "read": []}

    def generate(self, requests):
        for request in requests:
            prompt = "".join(map(chr, request.prompt_ids))
            solves = prompts.WORDS["search"]["plain"] in prompt
            role = (
                "ask" if prompts.WORDS["ask by search"] in prompt else "solve" if solves else "read"
            )
            self.seeds[role].append(request.seed)
        return super().generate(requests)


def test_every_proposal_attempt_and_reading_has_a_seed_of_its_own():
    world = Seeds(right=in_turn(True, False))
    play(world, proposals=2, readings=2, roles={"proposer": {"estimator": "group_zscore"}})
    asked, solved, read = (world.seeds[role] for role in ("ask", "solve", "read"))
    assert len(asked) == 16 == len({*asked}), "two turns of eight proposals"
    assert len(solved) == 32 == len({*solved})
    assert len(read) == 16 == len({*read})
    again = Seeds(right=in_turn(True, False))
    play(again, step=1, proposals=2, readings=2, roles={"proposer": {"estimator": "group_zscore"}})
    assert not {*asked} & {*again.seeds["ask"]} and not {*solved} & {*again.seeds["solve"]}


def test_each_batch_of_a_resampled_step_has_seeds_of_its_own():
    world = Seeds(asks=in_turn("nonsense", "one"))
    play(world, fill="resample")
    asked, read = world.seeds["ask"], world.seeds["read"]
    assert len(asked) > 8 and len(asked) == len({*asked})
    assert len(read) == len({*read}) > 2


def test_a_process_proposes_for_its_share_of_the_answers():
    made = method(answers_per_step=5)
    made.share = Share(1, 2, lambda mine: mine)
    world = Scripted()
    play(world, made=made)
    assert world.counts["ask"] == 2, "the first process takes three"


def test_documents_are_in_random_order_and_a_questions_own_are_no_noise():
    made = method(noisy_documents=2)
    found = [Trajectory((1,), documents=texts) for texts in (["a", "b"], ["b", "c"], ["d", "a"])]
    batch = [Question(Context("quest"), one) for one in found]
    mixed = [made.mixed(batch[0], batch, random.Random(seed)) for seed in range(40)]
    assert all(sorted(each) == ["a", "b", "c", "d"] for each in mixed), "two that it did not find"
    assert len({tuple(each) for each in mixed}) > 10
    assert {each[0] for each in mixed} == {"a", "b", "c", "d"}


def test_training_searches_its_own_library_and_evaluation_the_held_out_one(monkeypatch):
    made, pools = method(), []
    retriever = made.source.retriever
    monkeypatch.setattr(
        made.source, "retriever", lambda pool: pools.append(pool) or retriever(pool)
    )
    play(Scripted(), made=made)
    assert {*pools} == {"train"}
    pools.clear()
    *_, suite = made.suites(0)
    play_suite(suite, {"policy": Scripted()})
    assert {*pools} == {"heldout"}


def test_a_search_has_the_limits_and_the_syntax_of_the_parameters():
    tool = method(results=3, max_searches=2, max_length=999, syntax="qwen3").tool("train")
    assert (tool.k, tool.max_searches, tool.max_length, tool.syntax) == (3, 2, 999, "qwen3")


def test_a_judge_is_asked_about_the_question_that_was_answered():
    asked = []

    class Judged(Scripted):
        def reply(self, prompt):
            if prompts.WORDS["judge"] in prompt:
                asked.append(prompt)
            return super().reply(prompt)

    world = Judged(right=in_turn(True, False), says=True)
    _, rows = play(world, grader="judge", roles=JUDGED)
    assert len(asked) == 8 and all(row.reward == 1 for row in of(rows, "solver"))
    questions = world.questions[1::2]
    for prompt, question in zip(asked, questions, strict=True):
        assert question in prompt and gold(question) in prompt and "nobody" in prompt


def test_what_did_not_pass_is_invalid():
    _, rows = play(Scripted(asks=in_turn("one", "wrong", "nonsense", "two")))
    assert [row.invalid for row in of(rows, "proposer")] == [False, True, True, False]


@pytest.mark.parametrize(("free", "kept"), [("solver", "proposer"), ("proposer", "solver")])
def test_rows_without_an_advantage_are_kept_under_a_kl_alone(free, kept):
    """All attempts are right: nobody's reward differs, the proposer's is 0."""
    _, rows = play(Scripted(), roles={free: {"kl": False}}, grpo={"beta": 0.1})
    assert {row.advantage for row in rows} == {0.0}
    assert {row.role for row in rows if row.weight} == {kept}


PERSON = QUEST.people("train")[0]
TOLD = "Start at {e}: first guide, second host. Who is it?"


@pytest.mark.parametrize(("text", "level", "answerable", "right"), [
    (TOLD.format(e=PERSON), 2, True, True),
    (f"Start at {PERSON}: second host, first guide. Who is it?", 2, True, True),
    (f"Start at {PERSON}: first host, second guide. Who is it?", 2, True, False),
    (f"Start at {PERSON}: first guide, second host, third tutor. Who is it?", 3, True, False),
    (f"Start at {PERSON}: first guide. Who is it?", 1, True, False),
    (TOLD.format(e=QUEST.somebody(QUEST.towns("train")[0])), 2, False, False),
    (TOLD.format(e=QUEST.people("heldout")[0]), 2, False, False),
    (TOLD.format(e="Nobody"), 2, False, False),
    (f"Start at {PERSON}: first guide, third host. Who is it?", 0, False, False),
    ("Who could that be?", 0, False, False),
])  # fmt: skip
def test_the_oracle_says_where_a_chain_leads(text, level, answerable, right):
    answer = follow(QUEST.links_of("train"), PERSON, ("guide", "host"))[-1]
    told = method().source.judge(Proposal(text, answer), Target("quest", answer, pool="train"))
    assert (told.level, told.answerable, told.right) == (level, answerable, right)


def test_a_policy_is_weighed_by_its_own_rows_alone():
    """A proposer of its own, of four rows, beside sixteen of the solver: each mean is over its
    policy's rows."""
    made, world = (
        method(roles={"proposer": {"policy": "own"}}),
        Scripted(right=in_turn(True, False)),
    )
    rows = run(made.rollout(0), {"policy": world, "own": world})
    made.estimate(rows)
    made.select(rows)
    assert {row.weight for row in rows} == {1.0} and len(rows) == 20


OLDER = {"policy"}
"""The arms of batches and of the penalty have a start of their own."""
ARMS = {
    "solver-only": {"roles.proposer.policy", "roles.proposer.trainable"},
    "proposer-only": {"roles.solver.trainable"},
    "random": {"paid"},
    "own-best": {"grpo.learning_rate"},
    "fresh-seeds-solver": {"roles.proposer.policy", "roles.proposer.trainable"},
    "half-rate-solver": {"grpo.learning_rate", "roles.proposer.policy", "roles.proposer.trainable"},
    "no-verification": {"verify"},
    "noise-0": {"noisy_documents"},
    "three-noise-7": {"noisy_documents", "readings"},
    "released-rules": {"distinct_queries", "min_searches"},
    "reset": OLDER,
    "dummy": OLDER | {"fill"},
    "full-reuse": OLDER | {"reset_every"},
    "punished": OLDER | {"reset_every", "invalid_reward"},
    "rf-rf": {"attempts", "roles.solver.estimator"},
    "grpo-grpo": {"proposals", "roles.proposer.estimator"},
    "smaller": {"policy"},
}


@pytest.mark.parametrize("arm", list(ARMS))
def test_the_arms_differ_only_in_what_they_say(arm):
    assert differences("ssp", arm, "full") == ARMS[arm]


class Seeking(Scripted):
    """A solver whose first attempts at a question, so many of four, search."""

    def __init__(self, searching, **script):
        super().__init__(**script)
        self.searching, self.attempts = searching, 0

    def solve(self, prompt):
        self.attempts += 1
        searches = (self.attempts - 1) % 4 < self.searching
        return "<search> x</search>" if searches else super().solve(prompt)


def failing(monkeypatch, **values):
    """A method whose retriever answers the proposers, its first call, and is down for solvers."""
    made, calls = method(**values), []
    retriever = made.source.retriever("train")

    class Failing:
        def search(self, queries, k):
            calls.append(queries)
            if len(calls) > 1:
                raise RetrieverError("down")
            return retriever.search(queries, k)

    down = Failing()
    monkeypatch.setattr(made.source, "retriever", lambda pool: down)
    return made


def test_held_out_proposals_whose_solvers_could_not_search_have_no_success(monkeypatch):
    made = failing(monkeypatch)
    *_, suite = made.suites(0)
    records, rows = play_suite(suite, {"policy": Seeking(4)})
    assert [(one["score"], one["reason"]) for one in records] == [(1, "retriever")] * 3
    assert not any({"success", "pay"} & {*one} for one in records)
    found = {one["metric"]: (one["value"], one["n"]) for one in rows}
    assert found["valid"] == (1, 3)
    assert [found[name][1] for name in ("success", "pay", "mixed")] == [0, 0, 0]


@pytest.mark.parametrize(("lost", "share"), [(0, 1), (3, 12 / 13), (4, 1)])
def test_who_could_not_search_takes_no_part_in_the_mean(lost, share, monkeypatch):
    """Of four questions the first loses attempts; one that is left alone has no advantage."""
    search = Method.search

    def losing(self, role, *arguments):
        groups = yield from search(self, role, *arguments)
        for attempt in groups[0][:lost] if role == "solver" else ():
            attempt.finish = "retriever"
        return groups

    monkeypatch.setattr(Method, "search", losing)
    values = {"attempts": 4, "answers_per_step": 4, "fill": "dummy", "verify": "none"}
    _, rows = play(Scripted(right=in_turn(True, False)), **values)
    kept = [row.weight for row in rows if row.weight]
    solver = [row.weight for row in of(rows, "solver") if row.weight]
    assert len(solver) == (12 if lost else 16)
    assert sum(solver) == pytest.approx(share * len(kept))


@pytest.mark.parametrize("role", ["proposer", "solver"])
@pytest.mark.parametrize("lost", [2, 4])
def test_replayed_questions_fill_what_a_search_lost(role, lost, monkeypatch):
    """A lost proposal's slot has a replayed question; a question lost itself has no slot."""
    made, _ = play(Scripted(right=in_turn(True, False)), attempts=2, answers_per_step=4)
    assert made.pool
    search = Method.search

    def losing(self, asked, *arguments):
        groups = yield from search(self, asked, *arguments)
        for attempt in (one for group in groups[:lost] for one in group if asked == role):
            attempt.finish = "retriever"
        return groups

    monkeypatch.setattr(Method, "search", losing)
    _, rows = play(Scripted(right=in_turn(True, False)), step=1, made=made)
    kept = [row.weight for row in rows if row.weight]
    solver = [row.weight for row in of(rows, "solver") if row.weight]
    assert len(solver) == (8 if role == "proposer" else 8 - 2 * lost)
    assert sum(solver) == pytest.approx(len(kept) if solver else 0)


@pytest.mark.parametrize("searching", [1, 4])
def test_attempts_whose_search_failed_count_nowhere(searching, monkeypatch):
    made = failing(monkeypatch)
    _, rows = play(Seeking(searching, right=in_turn(True, False, True)), made=made)
    solver, proposer = of(rows, "solver"), of(rows, "proposer")
    if searching == 4:
        assert not solver and {row.info["reason"] for row in proposer} == {"retriever"}
        assert {(row.weight, row.advantage) for row in proposer} == {(0.0, 0.0)} and not made.pool
        assert not {"success", "mixed", "replayed", "solver searches"} & {*numbers(made)}
        return
    assert {(row.weight, row.advantage) for row in solver[::4]} == {(0.0, 0.0)}
    assert [row.info["success"] for row in proposer] == pytest.approx([2 / 3] * 4)
    assert [r.advantage for r in solver[1:4]] == pytest.approx([0.577, -1.155, 0.577], abs=1e-3)
    kept = [row.weight for row in rows if row.weight]
    assert sum(row.weight for row in solver) == pytest.approx(len(kept)), "a mean over the others"


def test_a_question_that_no_solver_can_be_asked_is_worth_nothing_and_not_kept():
    """A reading may be as long as `max_length`; a solver's turn needs room beside its prompt."""
    long = method(max_new_tokens=400)
    asked = long.source.task(Proposal("Who is x?" * 9, "x"), Context("quest")).messages
    need = len(long.chat.request(asked, long.params.sampling, 0).prompt_ids)
    made = method(max_new_tokens=400, max_length=need + 399)
    slot = Question(Context("quest", name="x"), Trajectory((1,), finish="stop"))
    slot.proposal = Proposal("Who is x?" * 9, "x")
    run(made.solve([slot], 0), {"policy": Scripted()})
    assert slot.reason == "prompt too long" and not slot.passed
    made.remember([slot], 0)
    assert made.pool == []
    replayed = Question(slot.context, proposal=slot.proposal, replayed=True)
    run(made.solve([replayed], 0), {"policy": Scripted()})
    assert replayed.passed and {row.invalid for row in replayed.rows} == {True}, "an earlier one"


def test_a_reading_that_fails_counts_before_one_that_does_not_fit(monkeypatch):
    """Of two readings the first says nothing, the second is not asked."""
    sample = Method.sample

    def cut(self, role, *arguments):
        groups = yield from sample(self, role, *arguments)
        for (reading,) in groups[1::2] if role == "verifier" else ():
            reading.finish = "overlong"
        return groups

    monkeypatch.setattr(Method, "sample", cut)
    monkeypatch.setattr(ssp, "read_answer", lambda text: None)
    with pytest.raises(ValueError, match=r"\(not verified: 4\)"):
        play(Scripted(), readings=2)


def test_a_proposer_whose_prompt_is_too_long_did_nothing_wrong():
    made = method(max_new_tokens=16, max_length=64, invalid_reward=-1.0)
    with pytest.raises(
        ValueError, match=r"no question of 4 passed the filters \(prompt too long: 4"
    ):
        run(made.rollout(0), {"policy": Scripted()})


def test_the_judge_is_no_policy_that_learns_unless_that_is_said():
    with pytest.raises(
        ParamError, match="grader is 'judge' with roles .*allowed: a policy for the"
    ):
        method(grader="judge")


def test_the_judge_says_when_it_cannot_be_read():
    made = method(grader="judge", roles=JUDGED)
    world = Scripted()
    world.reply = lambda prompt: "<answer> perhaps</answer>"
    assert run(made.says([prompts.judge("q", "a", "b")], 0), {"policy": world}) == [None]
    assert run(made.judged([("q", "a", "b")], 0), {"policy": world}) == [False]


def test_a_question_that_did_not_pass_is_recorded_as_paid_nothing():
    slot = Question(Context("quest", name="x"), Trajectory((1,)), reason=UNVERIFIED)
    row = Sample((1,), (2,), (1,), None, 0.0, "solver", 0, info={"text": ""})
    slot.proposal, slot.rows, slot.success = Proposal("q", "x"), [row], 0.25
    assert facts(slot)["pay"] == 0
    slot.reason = ""
    assert facts(slot)["pay"] == 0.75


def test_a_roles_kl_is_a_part_of_its_mean():
    assert Method.kl_weighted


def test_a_process_without_a_question_goes_on_where_another_has_one():
    made, slots = method(), [Question(Context("quest"), reason="no question")]
    made.share = Share(0, 2, lambda own: [*own, Counter(left=1)])
    made.check_any(slots, [])
    made.share = Share(0, 2, lambda own: [*own, Counter()])
    with pytest.raises(ValueError, match="no question of 1 passed"):
        made.check_any(slots, [])


@pytest.mark.parametrize("seed", range(3))
def test_a_control_permutes_what_counts_alone(monkeypatch, seed):
    """The first of four attempts at each question cannot search; the others are right."""
    made = failing(monkeypatch, paid="shuffled", seed=seed)
    _, rows = play(Seeking(1), made=made)
    solver = of(rows, "solver")
    assert [row.reward for at, row in enumerate(solver) if at % 4] == [1.0] * 12


def test_a_full_batch_is_cut():
    """Three of four pass at first, then four more: the surplus is left out."""

    def asks(place):
        return "nonsense" if place == 0 else "one"

    made, rows = play(Scripted(asks=asks), fill="resample")
    assert numbers(made)["proposals"] == 8
    assert len(of(rows, "proposer")) == 4 and len(of(rows, "solver")) == 16


def test_one_right_reading_mends_no_other():
    """Of each question's two readings the first says nothing, the judge takes the second."""

    class Mute(Scripted):
        def reply(self, prompt):
            text = super().reply(prompt)
            other = (
                prompts.WORDS["ask by search"],
                prompts.WORDS["search"]["plain"],
                prompts.WORDS["judge"],
            )
            reads = not any(words in prompt for words in other)
            return "hm" if reads and self.counts["read"] % 2 else text

    world = Mute(reads=False, says=True)
    with pytest.raises(ValueError, match="not verified: 4"):
        play(world, readings=2, grader="judge", roles=JUDGED)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"min_characters": 39, "min_words": 8, "max_characters": 39}, ""),
        ({"min_characters": 40}, "too short"),
        ({"min_words": 9}, "too few words"),
        ({"max_characters": 38}, "too long"),
    ],
)
def test_the_bounds_themselves_are_allowed(values, reason):
    question = Proposal("Start at Belana: first guide. Who is it", "Arwyn")
    found = Trajectory((1,), searches=["guide of x"], documents=["x"])
    assert method(**values).broken_rule(question, found) == reason


def test_noise_is_of_trajectories_that_found_something():
    made = method(noise="trajectory", noisy_documents=1)
    found = [Trajectory((1,), documents=texts) for texts in (["a"], [], ["d"])]
    batch = [Question(Context("quest"), one) for one in found]
    mixed = [made.mixed(batch[0], batch, random.Random(seed)) for seed in range(20)]
    assert all(sorted(each) == ["a", "d"] for each in mixed)


def test_a_prompt_that_is_too_long_is_left_out():
    made = method(max_new_tokens=16, max_length=64, invalid_reward=-1.0)
    made.pool = [["Who?", "x"]]
    rows = run(made.rollout(0), {"policy": Scripted()})
    proposer = of(rows, "proposer")
    assert {(row.weight, row.advantage) for row in proposer} == {(0.0, 0.0)}


@pytest.mark.parametrize("role", ["verifier", "judge"])
def test_who_is_never_trained_cannot_be_told_to_learn(role):
    with pytest.raises(ParamError, match="trainable"):
        method(roles={role: {"trainable": True}})


def test_a_moving_average_is_for_one_reward_a_group():
    with pytest.raises(ParamError, match="role_ema where a group has one reward"):
        method(roles={"solver": {"estimator": "role_ema"}})


def test_all_held_out_answers_have_a_proposal_block_by_block():
    *_, suite = method(eval_proposals=18).suites(0)
    world = Seeds()
    records, _ = play_suite(suite, {"policy": world})
    assert len(suite.parts) == 2 and [one["item"] for one in records] == [*map(str, range(18))]
    assert len({one["answer"] for one in records}) > 9
    assert len(world.seeds["ask"]) == 2 * 18 == len({*world.seeds["ask"]})


def asked_by(place, **values):
    """A suite's questions, and the seeds of its proposals."""
    play_suite(method(**values).suites(0)[place], {"policy": (world := Seeds())})
    return {*world.questions, *world.seeds["ask"]}


@pytest.mark.parametrize("place", [0, -1])
def test_another_draw_has_other_questions_and_other_proposals(place):
    held_out = asked_by(place)
    assert len(held_out) >= 3 and held_out == asked_by(place)
    assert not held_out & asked_by(place, eval_draw="search")
