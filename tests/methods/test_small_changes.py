"""Small changes to SPELL, SPICE and what SPICE is compared with, each of which fails a test here:
another group, order, draw, policy or process."""

import json
import random
from collections import Counter
from statistics import fmean

import pytest
from fakes import Roles
from methods import test_absolute_zero as A
from methods import test_r_zero as R
from methods import test_spell as S
from spice_world import Tokenizer, World, rows_of, type_asked
from spice_world import method as spice_method

from spnb.core.documents import Context, Proposal
from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.params import ParamError, validate
from spnb.corpus.segments import Segments
from spnb.evaluate.diversity import shares
from spnb.evaluate.items import play_suite
from spnb.methods import spell, spice
from spnb.methods.challenger_reasoner import Attempt
from spnb.methods.spice import subsample

FROZEN = {"challenger": {"trainable": False}}


def test_nobody_chooses_the_type_of_an_oracles_task():
    class Choosing(World):
        def reply(self, prompt, request):
            assert not prompt.startswith("Which kind"), "the policy chose"
            return super().reply(prompt, request)

    made = spice_method(selection="asked", writer="oracle", roles=FROZEN)
    world = Choosing(None)
    assert run(made.rollout(0), {"policy": world})


def test_every_static_question_comes():
    made = S.method(question_source="static", judgments_per_answer=0, static_questions=24, rounds=1)
    asked = set()
    for step in range(40):
        world = Roles()
        S.step_of(made, world, step)
        asked |= {*world.prompts["responder"]}
    assert len(asked) == 24


def test_a_static_question_comes_again_only_after_all_others():
    """In a step, whose four rounds ask for as many as the set has; over two processes, too."""
    values = dict(question_source="static", judgments_per_answer=0, static_questions=24, rounds=4)
    values |= dict(questions_per_round=6, steps=2)

    def asked(rank, processes, step, **more):
        made, world = S.method(**values | more), Roles()
        made.share = Share(rank, processes)
        S.step_of(made, world, step)
        return Counter(world.prompts["responder"])  # of each question a group of four

    once = dict(groups=24)  # more than have mixed answers: all rounds are played
    for step in range(2):
        whole = asked(0, 1, step, **once)
        assert {*whole.values()} == {4} and len(whole) == 24
    places = ((0, 0), (0, 1), (1, 0))
    orders = [S.method(seed=seed).shuffled(range(24), range(24), step) for seed, step in places]
    assert len({tuple(order) for order in orders}) == 3
    halves = [asked(rank, 2, 1, **once) for rank in range(2)]
    assert [len(half) for half in halves] == [12, 12] and sum(halves, Counter()) == whole
    small = asked(0, 1, 0, **once | dict(static_questions=9))
    assert sorted(small.values()) == [8] * 3 + [12] * 6


def test_a_question_of_the_start_comes_again_only_after_its_others():
    """Each process has a set of its own."""
    for rank, processes in ((0, 1), (0, 2), (1, 2)):
        roles = {"questioner": {"policy": "start"}}
        values = dict(question_source="start", judgments_per_answer=0, roles=roles, clusters=48)
        made = S.method(**values, static_questions=12, questions_per_round=6, rounds=2, groups=12)
        made.share, now = Share(rank, processes), Roles()
        run(made.rollout(1), {"policy": now, "start": Roles(lambda number: 2)})
        written = [spell.Question(context, proposal=it) for it, context in made.written]
        once = Counter(made.prompt(question)[-1]["content"] for question in written)
        assert once.total() == 12 // processes and len(once) > 4
        assert Counter(now.prompts["responder"]) == Counter({it: 4 * n for it, n in once.items()})


def test_a_question_is_stored_once():
    made = S.method(memory=9)
    for step in range(3):
        S.step_of(made, Roles(), step)  # four mixed questions a step, in three clusters
    assert sum(map(len, made.memory.entries.values())) == 12


@pytest.mark.parametrize("balance", ["", "counts"])
def test_a_policy_is_weighed_by_its_own_rows_alone(balance):
    made = S.method(roles={"questioner": {"policy": "own"}}, balance=balance)
    world = S.story()
    rows = run(made.rollout(0), {"policy": world, "own": world})
    made.estimate(rows)
    made.select(rows)
    for policy in ("own", "policy"):
        of = [row for row in S.trained(rows) if row.policy == policy]
        if balance:
            total = fmean(row.weight for row in of)
            assert total == pytest.approx(len({row.role for row in of}))
        else:
            assert S.objective(of) == pytest.approx(sum(S.equation_12(of, S.places)))


def test_any_of_the_valid_and_of_the_invalid_attempts_stay():
    written, source = Proposal("Why?", "7", kind="integer"), Context("integer")
    attempts = [Attempt(source, None, written if n < 8 else None) for n in range(16)]
    place, drawn = {id(one): n for n, one in enumerate(attempts)}, Counter()
    for seed in range(200):
        drawn.update(place[id(one)] for one in subsample(attempts, 4, random.Random(seed)))
    # two of eight of either kind: 50 of 200 each, deviation 6
    assert len(drawn) == 16 and all(20 < count < 80 for count in drawn.values())


def test_a_type_that_the_document_has_nothing_for_is_not_taken():
    class Expression(World):
        def reply(self, prompt, request):
            if prompt.startswith("Which kind"):
                fits = {"suitable_for_mcq": False, "suitable_for_free_form": True}
                return json.dumps(fits | {"best_answer_type": "Expression"})
            return super().reply(prompt, request)

    world = Expression(lambda index: 1)
    made = spice_method(selection="asked", corpus="general")  # words alone, no expression
    run(made.rollout(0), {"policy": world})
    assert world.asked and "expression" not in {type_asked(prompt) for prompt, _ in world.asked}


def test_the_responder_is_tried_without_documents():
    _, _, world = S.play(roles={"responder": {"temperature": 0.3}})
    assert [one.sampling.temperature for one in world.requests[:15]] == [1.0] * 4 + [0.3] * 11


def test_difficulty_is_of_all_task_types_in_turn():
    made = S.whole(**S.EXTERNAL, tasks=["journey", "ledger"], clusters=4)
    (suite,) = [one for one in made.suites(1) if one.name == "difficulty"]
    records, _ = play_suite(suite, {"policy": Roles(), "external": Roles()})
    assert [one["kind"] for one in records] == ["journey", "ledger"] * 2


def test_a_suite_has_a_name_of_its_own():
    names = [suite.name for suite in S.whole(eval_documents=[1, 3]).suites(0)]
    assert len(names) == len(set(names)), names


@pytest.mark.parametrize(
    "values",
    [
        {"roles": {role: {"trainable": False} for role in S.ROLES}},
        {
            "question_source": "static",
            "judgments_per_answer": 0,
            "roles": {"responder": {"trainable": False}},
        },
    ],
)
def test_a_run_in_which_nothing_learns_is_refused(values):
    with pytest.raises(ParamError, match="one that learns"):
        validate(spell.Params, S.SMALL | values)


def test_a_run_of_spice_in_which_nothing_learns_is_refused():
    with pytest.raises(ParamError, match="one that learns"):
        validate(spice.Params, {"writer": "oracle", "roles": {"reasoner": {"trainable": False}}})


def test_difficulty_is_sampled_as_evaluations_are():
    made = S.whole(**S.EXTERNAL, eval_temperature=0.3, eval_top_p=0.5)
    (suite,) = [one for one in made.suites(1) if one.name == "difficulty"]
    external = Roles()
    play_suite(suite, {"policy": Roles(), "external": external})
    assert {(one.sampling.temperature, one.sampling.top_p) for one in external.requests} == {
        (0.3, 0.5)
    }


def repeated(rank, gather):
    """The challenger's rows of one of two processes, whose questions are its number's."""
    made = spice_method(**R.TWO, documents_per_step=2, group_size=2)
    made.share = Share(rank, 2, gather)
    voters = R.Voters(None, [["KK", "KK", "LL", "MM", None]])
    engines = {"challenger": World(lambda index: 3 + rank), "policy": voters}
    return rows_of(run(made.rollout(0), engines), "challenger")


def test_repetition_is_of_the_whole_step():
    texts = [[row.info["question"] for row in repeated(rank, list)] for rank in range(2)]

    def gather(own):
        questions = bool(own) and own[0][:1] == (0,)
        return [*own, *((1, text) for text in texts[1])] if questions else own

    expected = [max(0.0, 0.8 - share) for share in shares(texts[0] + texts[1])[:2]]
    assert [row.reward for row in repeated(0, gather)] == pytest.approx(expected)


def test_the_latest_programs_are_kept():
    made = spice_method(**A.ZERO)
    made.programs = ["x"] * 300
    A.rollout(A.Machine(), made=made)
    assert made.programs[-12:] == A.KNOWN[:6] * 2


@pytest.mark.parametrize("documents", [2, 4, 5])
def test_all_proposals_are_made(documents):
    machine = A.Machine()
    A.rollout(machine, group_size=4, documents_per_step=documents)
    assert sum(machine.proposed.values()) == 4 * documents


def test_the_start_writes_of_all_types_in_turn():
    start, now = Roles(), Roles()
    made = S.method(**S.BY_START | dict(tasks=["journey", "ledger", "choice"], clusters=6))
    run(made.rollout(0), {"policy": now, "start": start})
    assert [context.kind for _, context in made.written] == ["journey", "ledger", "choice"] * 2


def test_processes_write_different_sets():
    sets = []
    for rank in range(2):
        start = Roles()
        made = S.method(Share(rank, 2), **S.BY_START)
        run(made.rollout(0), {"policy": Roles(), "start": start})
        sets.append({request.seed for request in start.requests})
    assert not sets[0] & sets[1]


def test_greedy_answers_at_both_ends():
    made = spice_method(eval_temperature=0.7, steps=4)
    counts = [[one.name for one in made.suites(step)].count("string") for step in (0, 2, 4)]
    assert counts == [2, 1, 2]


def test_any_segment_of_a_document_is_drawn():
    rows = [{"id": "d", "title": "", "text": "One\nTwo\nSix"}]
    made = Segments([rows], Tokenizer(), 4)
    assert len({text for n in range(40) for text in made.draw(random.Random(n), 1)}) == 3


def test_a_random_reward_goes_to_answers_to_any_question():
    world = World(lambda index: 2, lambda level, index: index < 8)
    made = spice_method(reward="random")
    rows = [one for one in run(made.rollout(0), {"policy": world}) if one.role == "reasoner"]
    sums = [sum(one.reward for one in rows if one.group == group) for group in range(12)]
    assert sum(sums) == 8 and sums != [4, 4] + [0] * 10
