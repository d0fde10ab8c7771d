"""SPICE with scripted challengers and reasoners: every formula, quota and rounding by hand."""

import itertools
import json
import random
from collections import Counter
from statistics import fmean

import pytest
from arms import differences
from spice_world import SMALL, Tokenizer, World, method, rows_of, type_asked

from spnb.core.documents import Context, Proposal
from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.params import ParamError, validate
from spnb.core.plugins import reward
from spnb.corpus.store import CorpusError
from spnb.evaluate.items import play_suite
from spnb.evaluate.proposals import CHALLENGES
from spnb.lab import segments
from spnb.lab.segments import KINDS, SUITES, judge
from spnb.methods.challenger_reasoner import PAYS, Attempt, share_right
from spnb.methods.spice import Params, subsample
from spnb.train.plan import make_plan

FROZEN = {"challenger": {"policy": "start", "trainable": False}}


def rollout(world, step=0, share=None, **values):
    made = method(**values)
    made.share = share or Share()
    samples = run(made.rollout(step), {"policy": world, "start": world})
    return made, samples


def trained(made, samples):
    made.estimate(samples)
    made.select(samples)
    return [one for one in samples if one.weight]


EQUATION_1 = {0: 0.0439, 1: 0.8226, 2: 1.0, 3: 0.8226, 4: 0.0439}
"""Pay by how many of 4 answers are right: exp(-(p(1 - p) - 1/4)^2 / 0.02)."""


@pytest.mark.slow
def test_both_roles_are_paid_as_the_paper_says():
    """In each group of 4 attempts one is nonsense; of the others 4, 2 and 1 answers are right."""
    rights = (4, 2, 1)
    world = World(
        lambda index: None if index % 4 == 3 else 2,
        lambda level, index: index % 4 < rights[index // 4 % 3],
    )
    made, samples = rollout(world)
    asked, answered = rows_of(samples, "challenger"), rows_of(samples, "reasoner")
    assert len(asked) == 3 * 4 and len(answered) == 3 * 3 * 4
    for index, one in enumerate(asked):
        expected = -0.1 if index % 4 == 3 else EQUATION_1[rights[index % 4]]
        assert one.reward == pytest.approx(expected, abs=1e-4)
        assert one.invalid == (index % 4 == 3) and one.group == index // 4
    for index, one in enumerate(answered):
        assert one.reward == float(index % 4 < rights[index // 4 % 3])
        assert one.group == index // 4
    made.estimate(samples)
    for rows, size in ((asked, 4), (answered, 4)):  # eq. 3 and 4: no standard deviation
        for start in range(0, len(rows), size):
            group = rows[start : start + size]
            mean = sum(one.reward for one in group) / size
            for one in group:
                assert one.advantage == pytest.approx(one.reward - mean)
    numbers = made.metrics
    assert numbers["method/valid"] == 0.75 and numbers["method/attempts"] == 12
    assert numbers["method/success"] == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert numbers["method/pay"] == pytest.approx((0.0439 + 1 + 0.8226) / 3, abs=1e-4)
    assert numbers["method/mixed"] == pytest.approx(2 / 3)
    assert numbers["method/level"] == 2 and numbers["method/answers"] == 9 * 4
    for name in ("self_contained", "right", "faithful"):
        assert numbers[f"method/{name}"] == 1
    assert numbers["method/leaks"] == 0


def test_the_challenger_has_the_document_and_the_reasoner_has_not():
    world = World(lambda index: 2)
    rollout(world)
    titles = [kind.title.removesuffix("{e}") for kind in KINDS.values()]
    for prompt, _ in world.asked:
        assert any(title in prompt for title in titles) and " makes " in prompt
    for prompt, _ in world.answered:
        assert not any(title in prompt for title in titles) and " makes " not in prompt


def test_one_valid_task_of_each_document_trains_the_reasoner():
    world = World(lambda index: 2 if index % 4 else None, lambda level, index: index % 2)
    chosen = Counter()
    for step in range(6):
        made, samples = rollout(world, step=step)
        rows = trained(made, samples)
        groups = Counter(one.group for one in rows if one.role == "reasoner")
        assert list(groups.values()) == [4, 4, 4]  # all answers of one task a document
        assert [group // 3 for group in sorted(groups)] == [0, 1, 2]
        chosen.update(group % 3 for group in groups)
        asked = [one for one in rows if one.role == "challenger"]
        assert len(asked) == 12  # as many rows as the reasoner has
        # 24 of 24 rows stay, each with weight 1.
        assert {one.weight for one in rows} == {1.0}
    assert len(chosen) > 1  # any of the valid ones


def test_rows_without_an_advantage_are_left_out_of_the_same_mean():
    """The challenger's are all equal, the answers of one document of three are mixed."""
    mixed = iter(itertools.count())
    world = World(lambda index: 1, lambda level, index: index >= 16 or next(mixed) % 2)
    made, samples = rollout(world)
    rows = trained(made, samples)
    # The first document's 4 tasks are half right, so its challenger's rows are equal, too.
    assert {one.role for one in rows} == {"reasoner"} and len(rows) == 4
    chosen = 3 * 4 + 3 * 4
    total = sum(abs(one.advantage) * one.weight for one in rows) / len(rows)
    assert total == pytest.approx(4 * 0.5 / chosen)


def test_the_kl_keeps_the_challengers_rows_with_one_weight():
    world = World(lambda index: 1, lambda level, index: index % 2)
    made, samples = rollout(world, grpo={"beta": 0.1})
    assert made.roles["challenger"].kl and not made.roles["reasoner"].kl
    rows = trained(made, samples)
    roles = Counter(one.role for one in rows)
    assert roles == {"challenger": 12, "reasoner": 12}
    assert {one.weight for one in rows} == {1.0}
    world = World(lambda index: 1)  # all right: nothing to learn but the KL
    made, samples = rollout(world, grpo={"beta": 0.1})
    rows = trained(made, samples)
    assert {one.role for one in rows} == {"challenger"} and len(rows) == 12
    assert {one.weight for one in rows} == {0.5}  # 12 rows in the place of 24


def test_attempts_go_on_until_there_is_a_valid_task_or_none_are_left():
    """Only the attempt of number 9, in the third document's group, is valid at first."""
    world = World(lambda index: 2 if index == 9 or index >= 16 else None)
    made, samples = rollout(world)
    prompts = [prompt for prompt, _ in world.asked]
    assert len(prompts) == 12 + 8 + 4  # the third one needs no more; then one of two does
    assert prompts[12:16] == [prompts[0]] * 4 and prompts[16:20] == [prompts[4]] * 4
    assert prompts[20:] == [prompts[0]] * 4
    assert made.metrics["method/attempts"] == 24 and made.metrics["method/valid"] == 9 / 24
    assert made.metrics["method/answers"] == 4 * 4 and made.metrics["method/success"] == 1
    # Documents keep 4: of 4 valid among 12, 8; the second has 4 of 8; the third 1 of 4.
    valid = Counter(one.group for one in rows_of(samples, "challenger") if not one.invalid)
    assert valid == {0: 1, 1: 2, 2: 1}
    assert Counter(one.group for one in rows_of(samples, "challenger")) == {0: 4, 1: 4, 2: 4}
    world = World(lambda index: None)
    made, samples = rollout(world)
    assert len(world.asked) == 3 * 12 and not world.answered  # N on each document
    assert {one.reward for one in samples} == {-0.1} and len(samples) == 12
    assert trained(made, samples) == []
    world = World(lambda index: None)
    rollout(world, attempts=6)  # a last round of 2
    assert len(world.asked) == 3 * 6


@pytest.mark.parametrize(
    ("valid", "count", "size", "stay"),
    [
        (0, 16, 8, 0),
        (1, 1024, 8, 1),  # at least one where there is one
        (64, 1024, 8, 1),  # 0.5, half up
        (191, 1024, 8, 1),  # 1.49
        (192, 1024, 8, 2),  # 1.5
        (512, 1024, 8, 4),
        (1023, 1024, 8, 8),
        (1024, 1024, 8, 8),
        (3, 12, 4, 1),
        (5, 12, 4, 2),  # 1.67
        (2, 3, 8, 2),  # no more than 8: all stay
    ],
)
def test_the_subsample_keeps_the_share_of_valid_attempts(valid, count, size, stay):
    written = Proposal("Why?", "7", kind="integer")
    source = Context("integer")
    attempts = [Attempt(source, None, written if n < valid else None) for n in range(count)]
    random.Random(0).shuffle(attempts)
    left = subsample(attempts, size, random.Random(1))
    assert len(left) == min(size, count)
    assert sum(one.task is not None for one in left) == stay
    places = [next(n for n, one in enumerate(attempts) if one is other) for other in left]
    assert places == sorted(places) and len(set(places)) == len(places)


@pytest.mark.slow
def test_types_are_those_that_the_document_allows():
    seen = Counter()
    for step in range(12):
        world = World(lambda index: 1)
        rollout(world, step=step)
        for prompt, _ in world.asked[::4]:
            (kind,) = {entry.family for entry in segments.read_segment(prompt.partition("\n")[2])}
            assert type_asked(prompt) in KINDS[kind].types
            seen[kind, type_asked(prompt)] += 1
    assert set(seen) == {(kind, one) for kind, words in KINDS.items() for one in words.types}
    for types, kinds in ((["choice"], {"ledger", "code"}), (["integer", "string"], None)):
        world = World(lambda index: 1)
        rollout(world, task_types=types, documents_per_step=12)
        assert {type_asked(prompt) for prompt, _ in world.asked} <= set(types)
        titles = {kind for kind in KINDS for prompt, _ in world.asked if named(kind, prompt)}
        assert titles == (kinds or {"ledger", "code"})


def named(kind, prompt):
    return KINDS[kind].title.removesuffix("{e}") in prompt


@pytest.mark.parametrize("half", ["math", "general"])
def test_halves_of_the_corpus(half):
    world = World(lambda index: 1)
    rollout(world, corpus=half, documents_per_step=12)
    kinds = {kind for kind in KINDS for prompt, _ in world.asked if named(kind, prompt)}
    assert kinds == {kind for kind, words in KINDS.items() if words.half == half}


def test_the_challenger_may_choose_the_type():
    class Choosing(World):
        def reply(self, prompt, request):
            if prompt.startswith("Which kind"):
                self.selections += 1
                chosen = {"suitable_for_mcq": True, "suitable_for_free_form": False}
                return json.dumps(chosen) if self.selections % 3 else "I cannot say"
            return super().reply(prompt, request)

    world = Choosing(lambda index: 1)
    world.selections = 0
    _, samples = rollout(world, selection="asked", corpus="general", documents_per_step=12)
    assert world.selections == 12
    types = [type_asked(prompt) for prompt, _ in world.asked[::4]]
    assert all(one == "choice" for place, one in enumerate(types) if place % 3 != 2)
    assert len(samples) == 12 * 4 + 12 * 4 * 4  # a choice of type is no row


def test_a_fixed_challenger_makes_one_valid_task_a_document():
    world = World(lambda index: None if index < 2 else 2, lambda level, index: index % 2)
    made, samples = rollout(world, roles=FROZEN)
    assert len(world.asked) == 3 + 2 and len(world.answered) == 3 * 4
    assert {request.policy for _, request in world.asked} == {"start"}
    rows = trained(made, samples)
    assert {one.role for one in rows} == {"reasoner"} and len(rows) == 12
    assert {one.weight for one in rows} == {1.0}


@pytest.mark.slow
def test_a_share_of_the_oracles_answers_is_wrong_where_it_is_to_be():
    """Of 36 tasks a third: 12, with a standard deviation of 3. They are whole, in form, graded."""
    frozen = {"challenger": {"trainable": False}}
    rights = []
    for step in range(12):
        made, _ = rollout(World(None), step=step, writer="oracle", roles=frozen, writer_wrong=0.333)
        assert made.metrics["method/self_contained"] == 1
        rights.append(made.metrics["method/right"])
    assert 0.5 < fmean(rights) < 0.83
    for kind in ("choice", "integer", "expression", "string"):
        values = {"writer_wrong": 1.0, "task_types": [kind]}
        made, samples = rollout(World(None), writer="oracle", roles=frozen, **values)
        assert made.metrics["method/right"] == 0 and made.metrics["method/tasks"] == 3
    with pytest.raises(ParamError, match="writer_wrong"):
        validate(Params, {"writer_wrong": 0.3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"references": 3}, "references is 3 with algorithm 'spice'; allowed: 0, or absolute_zero"),
        (
            {"algorithm": "absolute_zero", "pay": "absolute_zero", "invalid_reward": -2},
            "invalid_reward is -2.0 with algorithm 'absolute_zero'; allowed: -0.1",
        ),
    ],
)
def test_what_an_algorithm_does_not_read_is_refused(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, values)


def test_held_out_questions_are_answered_greedily_unless_it_is_said_otherwise():
    for values, sampling in (
        ({}, (0.0, 0.95)),
        ({"eval_temperature": 0.7, "eval_top_p": 0.5}, (0.7, 0.5)),
    ):
        world = World(lambda index: 2)
        sampled, *greedy = [one for one in method(**values).suites(0) if one.name == "string"]
        assert len(greedy) == bool(values)
        records, _ = play_suite(sampled, {"policy": world})
        assert {one["decoding"] for one in records} == {""}
        asked = {(one.sampling.temperature, one.sampling.top_p) for _, one in world.answered}
        assert asked == {sampling}


@pytest.mark.slow
def test_the_oracle_is_right_at_every_level():
    world = World(None, lambda level, index: index % 2)
    for step in range(10):
        frozen = {"challenger": {"trainable": False}}
        made, samples = rollout(world, step=step, writer="oracle", roles=frozen)
        assert {one.role for one in samples} == {"reasoner"} and len(samples) == 12
        assert made.metrics["method/right"] == made.metrics["method/self_contained"] == 1
        assert made.metrics["method/faithful"] == 1
    questions = [prompt.partition("Question: ")[2] for prompt, _ in world.answered]
    levels = Counter(judge(Proposal(question, "", kind="string")).level for question in questions)
    assert not world.asked and set(levels) == {1, 2, 3, 4, 5, 6}


def test_without_a_corpus_the_challenger_has_no_document():
    world = World(lambda index: 2, lambda level, index: index % 2)
    made, samples = rollout(world, corpus=[])
    assert len(world.asked) == 12
    for prompt, _ in world.asked:
        assert " makes " not in prompt and "ocument" not in prompt
    assert "method/faithful" not in made.metrics and made.metrics["method/right"] == 1
    assert len(trained(made, samples)) == 12  # the challenger's rewards are all equal


def test_a_wrong_stated_answer_is_the_reasoners_gold_and_the_oracle_counts_it():
    class Wrong(World):
        def challenge(self, prompt, index):
            text = super().challenge(prompt, index)
            return text[: text.rindex("<answer>")] + "<answer> 77</answer>"

    world = Wrong(lambda index: 3, lambda level, index: index % 4 == 0)
    made, samples = rollout(world, corpus="math", task_types=["integer"])
    assert made.metrics["method/right"] == 0 and made.metrics["method/valid"] == 1
    assert made.metrics["method/success"] == 0.75  # three of four say 77
    assert {one.info["gold"] for one in rows_of(samples, "reasoner")} == {"77"}


def test_a_random_reward_is_the_same_rewards_for_anybody():
    def play(reward):
        rights = (4, 2, 1, 3)
        world = World(
            lambda index: None if index % 4 == 3 else 2,
            lambda level, index: index % 4 < rights[index // 4 % 4],
        )
        made, samples = rollout(world, reward=reward, seed=5)
        return made, [rows_of(samples, role) for role in ("challenger", "reasoner")]

    (first, rule), (second, random_) = play("rule"), play("random")
    assert first.metrics == second.metrics  # what is measured is what happened
    for before, after in zip(rule, random_, strict=True):
        assert Counter(one.reward for one in before) == Counter(one.reward for one in after)
        assert [one.reward for one in before] != [one.reward for one in after]
    assert all(one.reward == -0.1 for one in random_[0] if one.invalid)


BY_HAND = {"variance": 0.8226, "absolute_zero": 0.75, "threshold": 1.0, "r_zero": 0.5}
"""What one right answer of four pays; the other three agree, so R-Zero's p is 3/4."""


@pytest.mark.parametrize("pay", list(PAYS))
def test_every_reward_pays_what_it_says(pay):
    world = World(lambda index: 2, lambda level, index: index % 4 == 0)
    _, samples = rollout(world, pay=pay, corpus="general", task_types=["string"])
    for one in rows_of(samples, "challenger"):
        assert one.reward == pytest.approx(BY_HAND[pay], abs=1e-4)
    edges = {pay: [float(reward(pay)(p)) for p in (0.0, 1.0)] for pay in PAYS}
    assert edges == {
        "variance": pytest.approx([0.0439, 0.0439], abs=1e-4),
        **{"absolute_zero": [0, 0], "threshold": [0, 0], "r_zero": [0, 0]},
    }


def test_r_zeros_reward_looks_at_the_most_frequent_answer():
    """Two agree on something wrong, one is right, one says something else."""

    class Split(World):
        def answer(self, question, index):
            said = ("KK", "KK", "LL")[index % 4] if index % 4 < 3 else None
            return f"<answer> {said}</answer>" if said else super().answer(question, index)

    for pay, expected in (("r_zero", 1.0), ("absolute_zero", 0.75)):
        _, samples = rollout(
            Split(lambda index: 2), pay=pay, corpus="general", task_types=["string"]
        )
        for one in rows_of(samples, "challenger"):
            assert one.reward == pytest.approx(expected)  # 1 - 2 |2/4 - 1/2|; 1 - 1/4
            assert (one.info["agreement"], one.info["success"]) == (0.5, 0.25)


def test_processes_share_the_documents():
    rows = 0
    for rank in (0, 1):
        _, samples = rollout(World(lambda index: 1), share=Share(rank, 2))
        rows += len(rows_of(samples, "challenger"))
    assert rows == 3 * 4


def test_steps_draw_other_documents_and_seeds_others_still():
    def prompts(**values):
        world = World(lambda index: 1)
        rollout(world, **values)
        return [prompt for prompt, _ in world.asked]

    assert prompts() == prompts() != prompts(step=1)
    assert prompts(seed=1) != prompts()


def test_another_draw_has_other_questions_and_other_documents():
    """The questions of a search: none of the held-out ones, and the same for the same word."""

    def asked(name, **values):
        world = World(lambda index: 2)
        play_suite(
            {suite.name: suite for suite in method(**values).suites(0)}[name], {"policy": world}
        )
        return [prompt for prompt, _ in world.asked or world.answered]

    for name in ("string", CHALLENGES):
        held_out = asked(name)
        other = asked(name, eval_draw="search")
        assert other == asked(name, eval_draw="search") and len(other) == len(held_out)
        assert other != held_out and asked(name, eval_draw="b") != other


def test_suites_and_the_challengers_tasks_on_held_out_documents():
    made = method()
    suites = {suite.name: suite for suite in made.suites(0)}
    assert list(suites) == [*SUITES, CHALLENGES]
    world = World(lambda index: None if index == 3 else 2, lambda level, index: index % 4 == 0)
    records, rows = play_suite(suites[CHALLENGES], {"policy": world})
    found = {row["metric"]: row["value"] for row in rows if not row["difficulty"]}
    assert found["valid"] == 0.75 and found["success"] == 0.25 and found["level"] == 2
    assert found["pay"] == pytest.approx(0.8226, abs=1e-4) and found["right"] == 1
    assert [one["score"] for one in records] == [1, 1, 1, 0]
    assert all(one["question"] and one["answer"] for one in records[:3])
    texts = {
        pool: [one["text"] for half in ("math", "general") for one in docs(half, pool)]
        for pool in ("train", "heldout")
    }
    for prompt, _ in world.asked:
        segment = prompt.partition("\n")[2]
        assert any(segment in text for text in texts["heldout"])
        assert not any(segment in text for text in texts["train"])
    records, rows = play_suite(suites["string"], {"policy": World(None)})
    assert {one["score"] for one in records} == {1.0} and len(records) == 6
    alone = method(writer="oracle", roles={"challenger": {"trainable": False}})
    assert CHALLENGES not in {suite.name for suite in alone.suites(0)}


def docs(half, pool):
    return segments.documents(half, 12, pool=pool)


def test_roles_may_have_policies_of_their_own_for_cross_play():
    """The first step's reasoner answers a later challenger's tasks."""
    roles = {"challenger": {"policy": "late"}, "reasoner": {"policy": "early"}}
    made = method(roles=roles)
    late = World(lambda index: 4)
    early = World(None, lambda level, index: index % 2)
    records, _ = play_suite(made.challenge_suite(), {"late": late, "early": early})
    assert len(late.asked) == 4 and len(early.answered) == 16
    assert {(one["level"], one["success"]) for one in records} == {(4, 0.5)}
    suites = {suite.name: suite for suite in made.suites(0)}
    records, _ = play_suite(suites["string"], {"early": World(None)})
    assert [one["score"] for one in records] == [1.0] * 6


def test_answers_that_cannot_be_read_count_among_all():
    """One of four is right, one wrong, two have no answer."""
    assert share_right(["7", None, "8", None], "7", "integer") == 0.25
    assert share_right([None], "7", "integer") == share_right(["7"], None, "integer") == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task_types": []}, r"task_types is \[\]; allowed: one or more, each once"),
        ({"task_types": ["choice", "choice"]}, "each once"),
        ({"task_types": ["float"]}, "task_types"),
        ({"task_types": ["string"], "corpus": "math"}, "task_types is .* with corpus .'math'"),
        ({"corpus": ["math", "math"]}, "corpus is .*; allowed: each once"),
        ({"attempts": 3}, r"attempts is 3; allowed: group_size \(4\) or more"),
        (
            {"algorithm": "r_zero", "pay": "r_zero", "reward": "random"},
            "reward is 'random' with algorithm 'r_zero'; allowed: rule",
        ),
        (
            {"algorithm": "absolute_zero", "pay": "absolute_zero", "writer": "oracle"},
            "writer is 'oracle' with algorithm 'absolute_zero'; allowed: policy",
        ),
        ({"writer": "oracle", "corpus": []}, r"writer is 'oracle' with corpus \[\]"),
        ({"algorithm": "r_zero"}, "pay is 'variance' with algorithm 'r_zero'; allowed: r_zero"),
        ({"algorithm": "absolute_zero", "pay": "r_zero"}, "allowed: absolute_zero"),
        ({"pay": "tent"}, "pay"),
        (
            {"roles": FROZEN | {"reasoner": {"trainable": False}}},
            "roles is .*trainable.*; allowed: one that learns",
        ),
    ],
)
def test_bad_parameters_are_named(values, message):
    with pytest.raises(ParamError, match=message):
        method(**values)


def test_a_document_that_is_empty_or_not_there_is_named(tmp_path):
    path = tmp_path / "own.jsonl"
    rows = [{"id": f"d{n}", "title": "", "text": text} for n, text in enumerate(["Rivers.", " "])]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(CorpusError, match="text of line 2 of own.jsonl is empty"):
        rollout(World(lambda index: None), corpus=str(path))
    path.write_text(json.dumps(rows[0]))  # shorter than a segment: all of it
    world = World(lambda index: None)
    made, _ = rollout(world, corpus=str(path))
    assert {prompt.partition("\n")[2] for prompt, _ in world.asked} == {"Rivers."}
    assert "method/right" not in made.metrics  # nobody knows what is right there
    with pytest.raises(ValueError, match="corpus is .*missing.jsonl"):
        method(corpus=str(tmp_path / "missing.jsonl"))


ARMS = {
    "fixed-challenger": {"roles.challenger.policy", "roles.challenger.trainable"},
    "strong-challenger": {"roles.challenger.policy", "roles.challenger.trainable"}
    | {"policies.strong"},
    "oracle": {"roles.challenger.trainable", "writer"},
    "oracle-third-wrong": {"roles.challenger.trainable", "writer", "writer_wrong"},
    "no-corpus": {"corpus"},
    "random-reward": {"reward"},
    "corpus-math": {"corpus"},
    "corpus-general": {"corpus"},
    "choice-only": {"task_types"},
    "free-form-only": {"task_types"},
    "pay-absolute-zero": {"pay"},
    "pay-threshold": {"pay"},
    "pay-r-zero": {"pay"},
    "large": {"policy"},
    "kl": {"grpo.beta"},
    "r-zero": {"corpus", "algorithm", "pay", "invalid_reward", "policies.challenger", "stages"}
    | {"roles.challenger.policy", "group_size", "answers", "documents_per_step"},
    "absolute-zero": {"corpus", "algorithm", "pay"},
}
BEST = {
    "own-best-fixed": "fixed-challenger",
    "own-best-strong": "strong-challenger",
    "own-best-no-corpus": "no-corpus",
    "own-best-r-zero": "r-zero",
    "own-best-absolute-zero": "absolute-zero",
    "own-best-random": "random-reward",
    "own-best": "full",
}


@pytest.mark.parametrize("arm", list(ARMS))
def test_the_variants_differ_only_in_what_they_say(arm):
    assert differences("spice", arm, "full") == ARMS[arm]


@pytest.mark.parametrize("arm", list(BEST))
def test_an_arm_at_its_own_best_differs_in_the_rate_alone(arm):
    assert differences("spice", arm, BEST[arm]) == {"grpo.learning_rate"}


def test_r_zero_needs_its_stages():
    with pytest.raises(
        ParamError,
        match=r"stages is \[\] with algorithm 'r_zero'; allowed: stages of .'challenger'",
    ):
        make_plan("spice", "smoke", variants=["r-zero"], seeds=[0], stages=[])


def test_a_tokenizer_that_loses_names_is_refused():
    lossy = type("Lossy", (Tokenizer,), {"decode": lambda self, ids, **_: "?"})()
    from spnb.core.params import validate
    from spnb.methods.spice import Method

    with pytest.raises(ValueError, match="tokenizer reads .* as '\\?'"):
        Method(validate(Params, SMALL), lossy)


def test_no_attempt_and_no_answer_repeats_another():
    world = World(lambda index: None)
    rollout(world)
    assert len(world.asked) == 36 == len({request.seed for _, request in world.asked})
    world = World(lambda index: 2)
    rollout(world)
    assert len(world.answered) == 48 == len({request.seed for _, request in world.answered})


def test_greedy_answers_are_greedy():
    world = World(lambda index: 2)
    for suite in method(eval_temperature=0.7).suites(0):
        if suite.name == "string":
            play_suite(suite, {"policy": world})
    asked = [one.sampling.temperature for _, one in world.answered]
    assert asked == [0.7] * 6 + [0.0] * 6
