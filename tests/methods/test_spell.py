"""SPELL with scripted roles: each phase, rewards and advantages by hand, what each variant changes,
the loss against a plain oracle, a run that is killed and goes on."""

import json
import random
import re
from collections import Counter
from operator import attrgetter
from statistics import fmean, stdev

import oracle
import pytest
from arms import differences
from fakes import CharTokenizer, Roles, asked_in, step_of
from test_trainer import assert_as_the_oracle
from transformers import AutoModelForCausalLM, AutoTokenizer

from spnb.core import prompts
from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.params import SCALES, ParamError, scale_values, validate, variants
from spnb.core.types import grouped
from spnb.evaluate.items import play_suite
from spnb.lab import embedded_path
from spnb.lab.clusters import TYPES
from spnb.lab.pretrain.build import Recipe, build_model
from spnb.methods.spell import Method, Params
from spnb.train.config import merge, params_class, variant_layers
from spnb.train.engines.torch import TorchEngine
from spnb.train.guards import token_logps
from spnb.train.policies import Policy
from spnb.train.trainer import Hooks, make_trainer

SMALL = dict(
    tasks=["journey"],
    clusters=3,
    documents=3,
    documents_read=2,
    questions_per_round=4,
    groups=2,
    group_size=4,
)
SMALL |= dict(
    static_questions=6, eval_items=1, eval_samples=2, eval_documents=[3], eval_proposals=4
)
ROLES = ("questioner", "responder", "verifier")
Y, N = True, False

# Four questions: the first has a wrong form, the second is answered without documents, two are
# answered four times. One of these answers cannot be read, so that 3 + 4 are judged four times.
ANSWERS = ["right", "wrong", "wrong", None, "right", "alone", "wrong", "wrong"]
VOTES = [[Y, Y, Y, N], [Y, Y, N, N], [N] * 4]
VOTES += [[Y] * 4, [Y, Y, N, Y], [N, N, Y, N], [N, N, N, None]]
GAUSSIAN = 0.3246525  # exp(-18 (1/4 - 1/2)^2)


def story(**changes):
    """The scripted roles of the four questions."""
    votes = [vote for of in VOTES for vote in of]
    parts = dict(
        asks=lambda number: None if number == 0 else 2,
        knows=lambda number: number == 0,
        answers=lambda number: ANSWERS[number % len(ANSWERS)],
        judges=lambda number: votes[number % len(votes)],
    )
    return Roles(**parts | changes)


def method(share=None, **values):
    made = Method(validate(Params, SMALL | values), CharTokenizer())
    made.share = share or Share()
    return made


def play(world=None, share=None, step=0, **values):
    """A step of the story or of another world: the method, its rows, the world."""
    made, world = method(share, **values), world or story()
    return made, step_of(made, world, step), world


def of_role(rows, role):
    return [row for row in rows if row.role == role]


def rewards(rows, role):
    return [row.reward for row in of_role(rows, role)]


def trained(rows, *roles):
    return [row for row in rows if row.weight and row.role in (roles or ROLES)]


def asked_of(row):
    return prompts.field(row.info["text"], "question")


# --- a whole step


def test_each_phase_asks_as_often_as_the_algorithm_says():
    _, rows, world = play()
    # 4 questions, 3 in the right form, 2 grounded ones 4 times, 7 readable answers 4 times.
    assert [len(of) for of in world.prompts.values()] == [4, 3, 8, 28]
    assert list(world.prompts) == ["questioner", "closed", "responder", "verifier"]
    assert world.batches == [4, 3, 8, 28]  # phase by phase
    assert len({request.seed for request in world.requests}) == 4 + 3 + 8 + 28
    assert [len(of_role(rows, role)) for role in ROLES] == [4, 8, 28]
    assert {row.policy for row in rows} == {"policy"}


def test_all_processes_remember_what_any_of_them_asked():
    """In the order of their ranks, after what was there before the step."""
    world = lambda: Roles(answers=lambda number: "wrong" if number % 4 else "right")  # noqa: E731
    stored = [play(world(), Share(rank, 2))[0].memory.latest for rank in range(2)]
    both = [*stored[0], *stored[1]]
    assert len(stored[0]) == len(stored[1]) == 2 and stored[0] != stored[1]
    shared = lambda own: both if own[0] in both else own  # noqa: E731
    memories = []
    for rank in range(2):
        made = method(Share(rank, 2, shared), memory=9)
        made.memory.add("older", {"read": (0,), "question": "q", "answer": "a"})
        step_of(made, world())
        memories.append(made.memory.entries)
    assert memories[0] == memories[1] and len(memories[0].pop("older")) == 1
    assert sorted(map(str, both)) == sorted(
        str((name, entry)) for name, of in memories[1].items() for entry in of if name != "older"
    )


def test_a_question_that_nobody_could_be_asked_is_no_bad_one():
    """Of three whose answers are all wrong, one is fit to stand beside the one that trains."""
    made = method()
    world = Roles(answers=lambda number: "right" if number == 0 else "wrong")
    questions = run(made.play_round(0, 0), {"policy": world})
    batch = [question for question in questions if question.mixed]
    alike = [question for question in questions if not question.mixed]
    assert len(batch) == 1 and len(alike) == 3
    for answer in alike[0].answers:
        answer.finish = "overlong"
    alike[1].answers, alike[1].trajectory.finish = [], "overlong"
    for seed in range(9):
        paid, _ = made.dynamic_sampling(questions, batch, random.Random(seed))
        assert paid == {*batch, alike[2]}
    alike[0].answers[0].finish = "stop"
    found = [made.dynamic_sampling(questions, batch, random.Random(n))[0] for n in range(9)]
    assert {alike[0], alike[2]} <= set().union(*found)


def test_types_take_turns_over_the_rounds_of_a_step():
    """Nobody is right, so that a step has all its rounds."""
    world = Roles(answers=lambda number: "wrong")
    made = method(tasks=["journey", "ledger", "choice"], rounds=3)
    rows = of_role(step_of(made, world), "questioner")
    asked = world.prompts["questioner"]
    choices = [prompt for prompt in asked if "multiple-choice" in prompt]
    ledgers = [one for one in asked if "Payments of" in one and one not in choices]
    assert (len(rows), len(choices), len(ledgers)) == (12, 4, 4)


def test_each_role_reads_what_the_algorithm_says():
    made, rows, world = play()
    asked = [asked_of(row) for row in of_role(rows, "questioner")]
    for prompt in world.prompts["questioner"]:  # m documents, no earlier questions
        assert "[2] Stops of" in prompt and "[3] " not in prompt
        assert prompts.WORDS["ask beyond"] not in prompt
    for question, prompt in zip(asked[1:], world.prompts["closed"], strict=True):
        assert prompt == f"{prompts.WORDS['closed']}\nQuestion: {question}"
    clusters = {c.texts: c for c in made.source.by_kind["journey"]}
    for place, prompt in enumerate(world.prompts["responder"]):  # all n documents
        listed = tuple(re.findall(r"\[\d\] (.*)", prompt))
        assert listed in clusters and prompt.endswith(f"Question: {asked[2 + place // 4]}")
    answers = [prompts.field(row.info["text"], "answer") for row in of_role(rows, "responder")]
    readable = [(n // 4, text) for n, text in enumerate(answers) if text]
    for place, prompt in enumerate(world.prompts["verifier"]):  # the answer, then the stated one
        number, answer = readable[place // 4]
        question = asked[2 + number]
        first = f"Question: {question}\nFirst: {answer}\nSecond: {world.stated[question]}"
        assert prompt == f"{prompts.WORDS['judge']}\n{first}"


def test_rewards_by_hand():
    _, rows, _ = play()
    # A wrong form, not grounded, 1 of 4 right, 2 of 4 right (one by the majority alone).
    assert rewards(rows, "questioner") == pytest.approx([-1, -0.5, GAUSSIAN, 1])
    assert rewards(rows, "responder") == [1, 0, 0, 0, 1, 1, 0, 0]
    judged = rewards(rows, "verifier")
    assert [judged[at : at + 4] for at in range(0, 28, 4)] == [
        [1, 1, 1, 0],
        [0, 0, 1, 1],  # a tie is no
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 0, 1],
        [1, 1, 0, 1],
        [1, 1, 1, 0],
    ]
    assert [row.invalid for row in of_role(rows, "questioner")] == [True, False, False, False]
    assert [row.invalid for row in of_role(rows, "responder")] == [n == 3 for n in range(8)]
    assert [row.invalid for row in of_role(rows, "verifier")] == [n == 27 for n in range(28)]
    facts = of_role(rows, "questioner")[3].info
    assert (facts["success"], facts["pay"], facts["level"], facts["right"]) == (0.5, 1, 2, 1)


def test_advantages_by_hand():
    """Questioners: mean -0.04384 and sample deviation 0.88463 over the batch's four. Answers: 1/4
    and 1/2, or 1/2 and 0.57735; judgments 3/4 and 1/2."""
    _, rows, _ = play()
    of = {role: [row.advantage for row in of_role(rows, role)] for role in ROLES}
    assert of["questioner"] == pytest.approx([-1.08086, -0.51565, 0.41654, 1.17997], abs=1e-4)
    half = 0.8660254
    assert of["responder"] == pytest.approx([1.5, -0.5, -0.5, -0.5, half, half, -half, -half])
    judged = [row.advantage for row in trained(rows, "verifier")]
    assert sorted(judged) == pytest.approx([-1.5, 0.5, 0.5, 0.5])
    assert all(row.advantage == 0 for row in rows if not row.weight)


def test_the_verifier_trains_on_disputed_answers_that_the_rule_agrees_with():
    """Of the seven the first of question 2 and the third of question 3: others are tied, unanimous
    or, as the second of question 3, against the rule."""
    groups = set()
    for seed in range(12):
        rows = trained(play(seed=seed)[1], "verifier")
        ((group, count),) = Counter(row.group for row in rows).items()
        assert count == 4  # judgments for 2 questions, in whole groups
        groups.add(group)
    assert groups == {(2, 0), (3, 2)}


def equation_12(rows, term):
    """Each role's mean over groups of (sum of A times a row's terms) / (tokens of the group)."""
    for role in ROLES:
        groups = {}
        for number, row in enumerate(rows):
            if row.role == role:
                key = number if role == "questioner" else row.group
                groups.setdefault(key, []).append(row)
        values = [
            sum(row.advantage * term(row) for row in group) / sum(sum(row.mask) for row in group)
            for group in groups.values()
        ]
        if values:
            yield sum(values) / len(values)


def places(row):
    """A row's terms: the place of each token."""
    return sum(range(1, len(row.mask) + 1))


def objective(rows):
    """What the trainer makes of the rows: the mean over rows of weighted token means."""
    of = trained(rows)
    return fmean(row.weight * row.advantage * places(row) / len(row.mask) for row in of)


def test_the_loss_is_equation_12():
    _, rows, _ = play()
    assert objective(rows) == pytest.approx(sum(equation_12(trained(rows), places)))
    lengths = {len(row.mask) for row in trained(rows, "responder")}
    assert len(lengths) > 2  # else the mean over rows would be the same


def test_questioners_are_compared_with_those_of_the_batch_alone():
    """Six mixed questions, two are wanted; none is paid nothing or less."""
    one_or_two = Roles(answers=lambda n: "right" if n % 4 <= n // 4 % 2 else "wrong")
    _, rows, _ = play(one_or_two, questions_per_round=6)
    asked = of_role(rows, "questioner")
    assert [row.reward for row in asked] == pytest.approx([GAUSSIAN, 1] * 3)
    assert [row.advantage for row in asked] == pytest.approx([-0.7071068, 0.7071068, 0, 0, 0, 0])
    assert [bool(row.weight) for row in asked] == [True, True] + [False] * 4
    assert {row.group for row in trained(rows, "responder")} == {0, 1}
    assert len(of_role(rows, "responder")) == 24


def test_rounds_go_on_until_enough_questions_are_mixed():
    for first, rounds in ((0, 1), (15, 2), (63, 5)):  # answers from this one on are mixed
        mixed = lambda n, first=first: "wrong" if n >= first and n % 4 == 0 else "right"  # noqa: E731
        made, rows, _ = play(Roles(answers=mixed))
        assert len(of_role(rows, "questioner")) == made.metrics["method/questions"] == 4 * rounds
        assert len({row.group for row in trained(rows, "responder")}) == 2
    made, rows, world = play(Roles(answers=lambda number: "right"))
    assert len(of_role(rows, "questioner")) == 4 * 10  # and no further
    assert trained(rows) == [] and made.metrics["method/mixed"] == 0
    assert len({request.seed for request in world.requests}) == len(world.requests)
    assert len(set(world.prompts["questioner"])) > 6  # a round does not repeat the one before
    assert len(of_role(play(Roles(answers=lambda number: "right"), rounds=2)[1], "questioner")) == 8


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ({"groups": 128, "group_size": 8}, 16),  # 128 judgments for 128 questions
        ({"groups": 128, "judgments_per_answer": 4}, 32),
        ({"groups": 8, "group_size": 16}, 1),
    ],
)
def test_how_many_groups_of_judgments_are_trained(values, groups):
    assert validate(Params, SMALL | values).verifier_groups == groups


def test_metrics_of_the_step():
    made, _, _ = play()
    found = {key.removeprefix("method/"): value for key, value in made.metrics.items()}
    assert found["questions"] == 4 and found["bad format"] == found["ungrounded"] == 0.25
    assert (
        found["trained"] == 2
        and found["answered"] == found["mixed"] == 0.5
        and found["malformed"] == 1 / 28
    )
    assert found["success"] == 0.375 and found["pay"] == pytest.approx((GAUSSIAN + 1) / 2)
    assert found["level"] == found["right"] + 1 == 2 and found["valid/general QA"] == 1
    # Of 7 judged answers the verdict differs on the steps alone, which mean the same.
    assert found["disagreement"] == pytest.approx(1 / 7) and found["rule false yes"] == 0
    assert found["rule false no"] == pytest.approx(1 / 3)
    assert found["verifier false no"] == found["verifier false yes"] == 0
    phases = {"questioning", "grounding", "responding", "verifying"}
    seconds = {key.removeprefix("seconds/") for key in found if key.startswith("seconds/")}
    assert seconds == phases and all(found[f"seconds/{phase}"] >= 0 for phase in phases)


def test_task_types_take_turns_over_all_processes():
    three = dict(tasks=list(TYPES), clusters=6, groups=1)
    _, rows, world = play(Roles(), questions_per_round=6, **three)
    assert [asked_in(prompt)[0] for prompt in world.prompts["responder"][::4]] == [*TYPES] * 2
    assert rewards(rows, "responder") == [1, 0] * 12  # each type's rule
    total = Counter()
    for rank in range(4):
        world = play(Roles(), Share(rank, 4), questions_per_round=4, **three)[2]
        total.update(asked_in(prompt)[0] for prompt in world.prompts["responder"][::4])
    assert total == {"journey": 2, "ledger": 1, "choice": 1}


def test_quantities_of_a_step_are_for_all_processes():
    for rank, groups in ((0, 2), (1, 1)):
        _, rows, _ = play(Roles(), Share(rank, 2), questions_per_round=6, groups=3)
        assert len(of_role(rows, "questioner")) == 3
        assert len({row.group for row in trained(rows, "responder")}) == groups


def test_a_step_is_fixed_by_seed_step_and_rank():
    first = play()[2].requests
    assert play()[2].requests == first
    for other in ({"step": 1}, {"seed": 1}, {"share": Share(1, 2)}):
        assert not {request.seed for request in first} & {
            request.seed for request in play(**other)[2].requests
        }


# --- memory


def test_solvable_questions_are_remembered_and_gone_beyond():
    """One cluster: what paid in a step stands in the prompts of the next, with its documents."""
    made, rows, _ = play(clusters=1, documents_read=1)
    entries = made.memory.entries["journey-0"]
    assert [entry["question"] for entry in entries] == [
        asked_of(row) for row in of_role(rows, "questioner")[2:]
    ]
    assert made.metrics["method/memory"] == 2
    world = Roles()
    run(made.rollout(1), {"policy": world})
    (cluster,) = made.source.by_kind["journey"]
    stored = {place for entry in entries for place in entry["read"]}
    for prompt in world.prompts["questioner"]:
        assert prompts.WORDS["ask beyond"] in prompt
        for entry in entries:
            assert f"\n- {entry['question']} {entry['answer']}\n" in prompt
        listed = re.findall(r"\[\d\] (.*)", prompt)
        records = [document.record for document in cluster.documents]
        assert {records[place] for place in stored} <= {*listed}
        assert listed == [record for record in records if record in listed]  # in their order


def test_without_memory_no_question_is_gone_beyond():
    made, _, _ = play(clusters=1, memory=0)
    world = Roles()
    run(made.rollout(1), {"policy": world})
    assert not any(prompts.WORDS["ask beyond"] in prompt for prompt in world.prompts["questioner"])
    assert made.memory.entries == {} and made.metrics["method/memory"] == 0


def test_a_restored_method_goes_on_as_if_it_had_never_stopped():
    small = dict(clusters=2, memory=2)
    straight, resumed = method(**small), method(**small)
    for step in range(2):
        step_of(straight, Roles(), step)
    assert {len(of) for of in straight.memory.entries.values()} == {2}  # the latest two
    state = json.loads(json.dumps(straight.state_dict()))
    expected = step_of(straight, Roles(), 2)
    assert step_of(method(**small), Roles(), 2) != expected
    resumed.load_state_dict(state)
    assert step_of(resumed, Roles(), 2) == expected
    states = [json.loads(json.dumps(one.state_dict())) for one in (straight, resumed)]
    assert states[0] == states[1] != state


def test_the_codes_rule_stores_solved_questions_with_all_documents_that_were_read():
    small = dict(clusters=1, documents_read=1, questions_per_round=1)
    made, _, _ = play(Roles(answers=lambda number: "right"), **small)
    assert made.memory.entries == {}  # what everybody answers pays nothing
    made, _, world = play(Roles(answers=lambda number: "right"), **small, memory_rule="code")
    (entries,) = made.memory.entries.values()
    assert [len(entry["read"]) for entry in entries] == [3, 3, 3]  # the latest of ten rounds
    counts = [len(re.findall(r"\n\[\d\] ", prompt)) for prompt in world.prompts["questioner"]]
    assert counts == [1, 2] + [3] * 8


# --- what each variant changes


def test_without_the_format_penalty_a_wrong_form_is_not_trained():
    _, rows, _ = play(format_penalty=False)
    asked = of_role(rows, "questioner")
    assert [bool(row.weight) for row in asked] == [False, True, True, True]
    pays = [-0.5, GAUSSIAN, 1]
    expected = [0, *((pay - fmean(pays)) / stdev(pays) for pay in pays)]
    assert [row.advantage for row in asked] == pytest.approx(expected)


def test_without_the_grounding_filter_every_question_is_answered():
    _, rows, world = play(grounding=False)
    assert world.batches == [4, 12, 40]
    assert rewards(rows, "questioner")[:2] == pytest.approx([-1, GAUSSIAN])


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_is_not_updated_plays_on(role):
    _, rows, _ = play()
    _, others, _ = play(roles={role: {"trainable": False}})
    assert [row.reward for row in others] == [row.reward for row in rows]
    for before, after in zip(rows, others, strict=True):
        assert bool(after.weight) == (bool(before.weight) and after.role != role)
        if after.role != role:
            assert after.advantage == before.advantage
    assert objective(others) == pytest.approx(sum(equation_12(trained(others), places)))


def test_without_a_verifier_the_rule_decides():
    _, rows, world = play(judgments_per_answer=0)
    assert world.batches == [4, 3, 8] and not of_role(rows, "verifier")
    assert rewards(rows, "responder") == [1, 0, 0, 0, 1, 0, 0, 0]
    assert rewards(rows, "questioner")[2:] == pytest.approx([GAUSSIAN] * 2)


def test_without_a_vote_one_judgment_decides_and_teaches_nothing():
    _, rows, world = play(judgments_per_answer=1, groups=1)
    assert world.batches == [4, 3, 8, 7]
    # VOTES one by one: Y Y Y, then N Y Y N.
    assert rewards(rows, "responder") == [1, 1, 1, 0, 1, 1, 1, 0]
    assert len(of_role(rows, "verifier")) == 7 and not trained(rows, "verifier")
    assert trained(rows, "responder", "questioner")


def test_without_consistency_the_verifier_learns_against_the_rule_too():
    """All answers are wrong by the rule; the majority takes some of them."""
    votes = [vote for of in ([Y, Y, Y, N], [Y, N, Y, Y], [N] * 4, [N] * 4) for vote in of]
    for consistency, count in ((True, 0), (False, 4)):
        world = story(answers=lambda n: "wrong", judges=lambda n: votes[n % 16])
        _, rows, _ = play(world, consistency=consistency)
        assert rewards(rows, "responder") == [1, 1, 0, 0] * 2
        assert len(trained(rows, "verifier")) == count


@pytest.mark.parametrize("size", [2, 8, 16])
def test_other_group_sizes(size):
    world = Roles(answers=lambda n: "right" if n % size == 0 else "wrong")
    _, rows, _ = play(world, group_size=size, groups=1, questions_per_round=1)
    assert world.batches == [1, 1, size, size * size]
    (asked,) = of_role(rows, "questioner")
    pay = {2: 1.0, 8: 0.0796, 16: 0.0319}[size]  # exp(-18 (1/16 - 1/2)^2) = exp(-3.4453)
    assert asked.reward == pytest.approx(pay, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "pays"),
    [
        ({"sigma": 1 / 12}, [0.0111, 1]),
        ({"sigma": 1 / 4}, [0.6065, 1]),
        ({"mapping": "absolute_zero"}, [0.75, 0.5]),
        ({"mapping": "r_zero"}, [0.5, 1]),
    ],
)
def test_other_pays(values, pays):
    _, rows, _ = play(**values)
    assert rewards(rows, "questioner") == pytest.approx([-1, -0.5, *pays], abs=1e-4)
    assert rewards(rows, "responder") == rewards(play()[1], "responder")


def test_an_oracle_in_the_rules_place():
    """The steps alone mean the same as the stated answer."""
    for judge, expected in (("rule", [1, 0, 0, 0]), ("oracle", [1, 1, 0, 0])):
        _, rows, _ = play(judge=judge, judgments_per_answer=0)
        assert rewards(rows, "responder")[4:] == expected
    groups = {
        row.group
        for seed in range(12)
        for row in trained(play(judge="oracle", seed=seed)[1], "verifier")
    }
    assert groups == {(2, 0), (3, 1), (3, 2)}  # now the second answer is no contradiction


def test_the_codes_ties_and_malformed_judgments():
    _, rows, _ = play(tie="first")
    assert rewards(rows, "responder") == [1, 1, 0, 0, 1, 1, 0, 0]  # the tie's first label was yes
    assert rewards(rows, "verifier")[4:8] == [1, 1, 0, 0]
    _, rows, _ = play(malformed="penalised")
    assert rewards(rows, "verifier")[-4:] == [1, 1, 1, -1]


def test_questioners_are_compared_over_the_batch_or_in_the_code_by_task_type():
    """Journeys have 1, 2 and 0 of 4 right answers, ledgers 1, 1 and 0."""
    right = (1, 1, 2, 1, 0, 0)
    pays = [GAUSSIAN, GAUSSIAN, 1, GAUSSIAN, 0, 0]
    parts = {"batch": [pays], "task": [pays[::2], pays[1::2]]}
    for normalise, compared in parts.items():
        world = Roles(answers=lambda n: "right" if n % 4 < right[n // 4] else "wrong")
        values = dict(
            tasks=["journey", "ledger"], questions_per_round=6, groups=4, normalise=normalise
        )
        asked = of_role(play(world, **values)[1], "questioner")
        assert [row.reward for row in asked] == pytest.approx(pays)
        for place, of in enumerate(compared):
            expected = [(pay - fmean(of)) / stdev(of) for pay in of]
            found = [row.advantage for row in asked[place :: len(compared)]]
            assert found == pytest.approx(expected, abs=1e-6), normalise


def test_random_rewards_are_the_same_rewards_for_anybody_of_a_role():
    made, rows, _ = play()
    control, others, _ = play(rewards="random")
    for role in ROLES:
        assert Counter(rewards(others, role)) == Counter(rewards(rows, role))
        assert rewards(others, role) != rewards(rows, role)
    assert control.memory.entries == made.memory.entries  # which are by what was earned
    assert [row.info for row in others] == [row.info for row in rows]
    assert [bool(row.weight) for row in others] == [bool(row.weight) for row in rows]
    again = play(rewards="random")[1]
    assert [row.reward for row in again] == [row.reward for row in others]


def test_a_static_set_has_no_questioner():
    made, rows, world = play(Roles(), question_source="static", judgments_per_answer=0)
    assert world.batches == [16] and {row.role for row in rows} == {"responder"}
    assert rewards(rows, "responder") == [1, 0] * 8 and "questioner" not in made.roles
    assert len({row.group for row in trained(rows)}) == 2
    assert objective(rows) == pytest.approx(sum(equation_12(trained(rows), places)))
    known = {task.question for task in made.static[0]}
    asked = [re.findall("Question: (.*)", prompt)[0] for prompt in world.prompts["responder"]]
    assert {*asked} <= known and len(set(asked)) > 1
    assert made.memory.entries == {} and "method/bad format" not in made.metrics
    judged = Roles(judges=lambda number: number == 1)
    _, rows, world = play(
        judged, question_source="static", judgments_per_answer=1
    )  # QwenLong-L1's reward
    assert world.batches == [16, 16] and rewards(rows, "responder")[:4] == [1, 1, 1, 0]


BY_START = dict(question_source="start", judgments_per_answer=0)
BY_START |= dict(roles={"questioner": {"policy": "start"}})


def test_the_start_writes_a_fixed_set_once():
    def world():
        return Roles(lambda number: 2 if number else None, lambda number: number == 1)

    def step(made, start, number):
        return run(made.rollout(number), {"policy": now, "start": start})

    made, start, now = method(**BY_START), world(), Roles()
    rows = step(made, start, 0)
    # Six proposals: one in a wrong form, one that is answered without documents.
    assert start.batches == [6, 5] and len(made.written) == 4
    assert {proposal.question: proposal.answer for proposal, _ in made.written}.items() <= (
        start.stated.items()
    )
    asked = [re.findall("Question: (.*)", prompt)[0] for prompt in now.prompts["responder"]]
    known = {proposal.question for proposal, _ in made.written}
    assert {*asked} <= known and len({*asked}) > 1
    assert {row.role for row in rows} == {"responder"} and made.memory.entries == {}
    step(made, start, 1)
    assert start.batches == [6, 5], "written once"
    resumed, second = method(**BY_START), world()
    resumed.load_state_dict(made.state_dict())
    assert [row.info for row in step(resumed, second, 2)] == [
        row.info for row in step(made, start, 2)
    ]
    assert resumed.written == made.written and second.batches == [6, 5]
    with pytest.raises(ParamError, match="static_questions is 6; 0 of the start's are in"):
        step(method(**BY_START), Roles(asks=lambda number: None), 0)
    with pytest.raises(ParamError, match="question_source is 'start' with roles .*policy: start"):
        method(question_source="start")


def test_roles_weigh_alike_or_by_their_groups():
    """Equation 10's roles count alike; by counts every group does, whatever its role."""
    sums = {}
    for balance in ("", "counts"):
        judged = Roles(judges=lambda number: number % 4 == 0)
        _, rows, _ = play(judged, balance=balance, consistency=False)
        counted = trained(rows)
        shares = {}
        for row in counted:
            shares[row.role] = shares.get(row.role, 0) + row.weight / len(counted)
        sums[balance] = shares
        groups = {
            role: len({id(row) if role == "questioner" else row.group for row in part})
            for role, part in grouped(counted, attrgetter("role")).items()
        }
    assert all(share == pytest.approx(1) for share in sums[""].values())
    total = sum(groups.values())
    expected = {role: len(groups) * count / total for role, count in groups.items()}
    assert len(set(groups.values())) > 1 and sums["counts"] == pytest.approx(expected)
    with pytest.raises(ParamError, match="static_levels is .*question_source"):
        play(Roles(), static_levels=[1])
    with pytest.raises(ParamError, match=r"static_levels is \[7\].*allowed: 1 to 6"):
        play(Roles(), question_source="static", judgments_per_answer=0, static_levels=[7])


def test_the_context_of_a_static_set_grows():
    values = dict(question_source="static", judgments_per_answer=0, steps=4, context=[1, 3])
    counts = []
    for step in range(4):
        world = play(Roles(), step=step, **values)[2]
        found = [len(re.findall(r"\[\d\] ", prompt)) for prompt in world.prompts["responder"]]
        counts.append(set(found))
    assert counts == [{1}, {1}, {3}, {3}]


# --- evaluation


def whole(**values):
    """The method with the parameters of a run."""
    values = dict(paper="spell", scale="smoke", variant="v", policy="embedded/reader") | values
    values |= dict(grpo={"loss_type": "grpo"})
    return Method(validate(params_class(Method), SMALL | values), CharTokenizer())


EXTERNAL = dict(policies={"external": "embedded/reader"})


def test_an_external_policy_answers_proposals_about_the_trainings_clusters():
    made = whole(**EXTERNAL)
    own = {cluster.name: cluster for cluster in made.source.by_kind["journey"]}
    for name in own:
        earlier = {"question": f"EARLIER {name}", "answer": "A", "read": (0,)}
        made.memory.entries[name] = [earlier]
    (suite,) = [suite for suite in made.suites(1) if suite.name == "difficulty"]
    asks = Roles(asks=lambda number: (None, 1, 2, 3)[number])
    solves = Roles(answers=lambda number: ("right", "wrong", "right", "right")[number % 4])
    records, rows = play_suite(suite, {"policy": asks, "external": solves})
    assert [record["score"] for record in records] == [0, 0.5, 1, 0.5]
    assert [record["level"] for record in records] == [0, 1, 2, 3]
    value = {(row["metric"], row["difficulty"]): row["value"] for row in rows}
    assert value["valid", ""] == 0.75 and value["level", ""] == 2
    assert value["difficulty", ""] == value["difficulty", "journey"] == pytest.approx(1 / 3)
    assert len(asks.prompts["questioner"]) == 4 and len(solves.prompts["responder"]) == 6
    for prompt in asks.prompts["questioner"]:
        (name,) = re.findall(r"EARLIER (journey-\d)", prompt)
        people = [document.truth.subject for document in own[name].documents]
        read = re.findall(r"Stops of (\w+)", prompt)
        assert read[0] == people[0] and {*read} <= {*people} and len(read) in (2, 3)
    assert all("[3] " in prompt for prompt in solves.prompts["responder"])
    assert not made.roles["external"].trainable


def test_difficulty_is_measured_only_where_there_is_an_external_policy_and_a_questioner():
    def measured(step, **values):
        return [suite.name for suite in whole(**values, steps=4).suites(step)]

    assert measured(2) == ["journey-3"] and measured(2, **EXTERNAL) == ["journey-3", "difficulty"]
    assert measured(2, question_source="static", **EXTERNAL) == ["journey-3"]
    assert measured(0)[0] == measured(4)[0] == "journey-3" and len(measured(0)) == 8
    assert measured(0) == measured(4)


# --- parameters

KL = {"loss_type": "grpo", "beta": 0.1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"documents_read": 4}, r"documents_read is 4 with documents \[3\]; allowed: 1 to the"),
        ({"documents": [3, 49]}, r"documents is \[3, 49\] with context .*; allowed: 1 to 48"),
        ({"documents": []}, "documents is "),
        ({"documents": [4, 2], "documents_read": 3}, "documents_read is 3 with documents"),
        ({"eval_documents": [64]}, r"eval_documents \[64\]; allowed: 1 to 48"),
        ({"eval_documents": [48]}, r"eval_documents is \[48\]; allowed: first 1 to 47"),
        ({"context": [2]}, r"context is \[2\] with question_source 'policy'; allowed: with static"),
        (
            {"corpus": "c", "question_source": "static"},
            "question_source is 'static' with corpus 'c'; allowed: policy, start; there is no",
        ),
        ({"corpus": "c", "judge": "oracle"}, "judge is 'oracle' with corpus 'c'; allowed: rule"),
        ({"grpo": {"loss_type": "dapo"}}, "grpo.loss_type is 'dapo'; allowed: grpo"),
        ({"tasks": ["report"]}, "tasks.0 is 'report'; allowed: 'journey', 'ledger' or 'choice'"),
        ({"tasks": []}, "tasks is "),
        ({"group_size": 1}, "group_size is 1"),
        ({"judgments_per_answer": -1}, "judgments_per_answer is -1"),
        ({"sigma": 0}, "sigma is 0"),
        (
            {"mapping": "one_minus"},
            "mapping is 'one_minus'; allowed: gaussian, absolute_zero, r_zero",
        ),
        (
            {"roles": {"responder": {"kl": True}}, "grpo": KL},
            "roles is .* with grpo.beta 0.1; allowed: kl of the questioner alone, or of all roles",
        ),
        (
            {"roles": {"responder": {"kl": True}, "questioner": {"kl": False}}, "grpo": KL},
            "allowed: kl of the questioner alone",
        ),
        ({"roles": {"solver": {}}}, "role is 'solver', which is unknown; .*questioner, responder"),
    ],
)
def test_bad_parameters_are_named(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, SMALL | values)


def test_a_kl_holds_the_questioner_or_all_that_learn():
    on, still = {"kl": True}, {"trainable": False}
    for roles in (
        {},
        {"questioner": still},
        {"responder": on, "verifier": on},
        {"responder": on, "verifier": still},
    ):
        assert validate(Params, SMALL | {"roles": roles, "grpo": KL})
    assert validate(Params, SMALL | {"roles": {"responder": on}}), "without a KL it says nothing"


def test_contexts_longer_than_the_policys_train_nothing(caplog):
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("reader"))
    model = build_model(Recipe(hidden=32, layers=2, heads=2, feed_forward=64), tokenizer)
    model.config.max_position_embeddings = 64
    made = Method(validate(Params, SMALL), tokenizer)
    rows = run(made.rollout(0), {"policy": TorchEngine(model, tokenizer)})
    unasked = [row for row in rows if not any(row.mask)]
    assert unasked and all(row.invalid for row in unasked)
    assert "prompts of 64 tokens or more are not asked" in caplog.text


@pytest.mark.parametrize("scale", SCALES)
def test_every_variant_is_valid_at_every_scale(scale):
    for name, entry in variants("spell").items():
        values = merge(scale_values("spell", scale), variant_layers(entry, scale))
        for key in ("variants", "seeds", "jobs", "figures"):
            values.pop(key, None)
        params = validate(
            params_class(Method), values | dict(paper="spell", scale=scale, variant=name)
        )
        assert params.grpo["num_iterations"] == 1  # on-policy, eq. 12


EXTERNALS = {"policies.external"}
FIXED = EXTERNALS | {"question_source", "judgments_per_answer", "static_levels", "static_wrong"}
JOURNEYS = EXTERNALS | {"tasks"}
ARMS = {
    "rlvr": FIXED,
    "rlvr-start": EXTERNALS
    | {"question_source", "judgments_per_answer", "roles.questioner.policy"},
    "rlvr-no-wrong": FIXED - {"static_wrong"},
    "rlvr-all-levels": FIXED - {"static_levels", "static_wrong"},
    "own-best": EXTERNALS | {"grpo.learning_rate"},
    "own-best-rlvr": FIXED | {"grpo.learning_rate"},
    "own-best-frozen": EXTERNALS | {"grpo.learning_rate", "roles.questioner.trainable"},
    "own-best-random": EXTERNALS | {"grpo.learning_rate", "rewards"},
    "no-format-penalty": EXTERNALS | {"format_penalty"},
    "no-grounding": EXTERNALS | {"grounding"},
    "questioner-frozen": {"roles.questioner.trainable"},
    "no-memory": {"memory"},
    "no-verifier": EXTERNALS | {"judgments_per_answer"},
    "verifier-frozen": EXTERNALS | {"roles.verifier.trainable"},
    "no-vote": EXTERNALS | {"judgments_per_answer"},
    "no-consistency": EXTERNALS | {"consistency"},
    "random": EXTERNALS | {"rewards"},
    "group-4": EXTERNALS | {"group_size"},
    "group-16": EXTERNALS | {"group_size"},
    "sigma-1-12": EXTERNALS | {"sigma"},
    "sigma-1-4": EXTERNALS | {"sigma"},
    "pay-absolute-zero": EXTERNALS | {"mapping"},
    "pay-r-zero": EXTERNALS | {"mapping"},
    "judge": EXTERNALS | {"judge"},
    "judge-no-verifier": EXTERNALS | {"judge", "judgments_per_answer"},
    "code": EXTERNALS | {"tie", "malformed", "memory_rule", "normalise"},
    "kl": EXTERNALS | {"grpo.beta"},
    "counts": EXTERNALS | {"balance"},
    "journeys": JOURNEYS,
    "journeys-no-verifier": JOURNEYS | {"judgments_per_answer"},
    "journeys-even": JOURNEYS | {"verifier_draw"},
    "journeys-verifier-frozen": JOURNEYS | {"roles.verifier.trainable"},
    "longpo": FIXED | {"alignment", "roles.responder.temperature"},
    "solopo": FIXED | {"alignment"},
    "qwenlong-l1": FIXED | {"context", "roles.verifier.policy", "roles.verifier.trainable"},
}


@pytest.mark.parametrize("arm", list(ARMS))
def test_the_arms_differ_only_in_what_they_say(arm):
    assert differences("spell", arm, "full") == ARMS[arm]


# --- the loss, and whole runs


def loss_of_equation_12(model, reference, rows, old, params, free, weighted, tokens):
    """Minus eq. 10 and 12, whose ratio is 1 in value; and the mean KL (k3) of the questioners."""
    del old, weighted

    def term(row):
        logps = oracle.row_logps(model, row)
        return (logps - logps.detach()).exp().sum()

    loss = -sum(equation_12(rows, term))
    held = []
    for row in rows:
        if row.role not in free and params.grpo["beta"]:
            logps = oracle.row_logps(model, row)
            gap, ratio = token_logps(reference, row) - logps, (logps - logps.detach()).exp()
            held.append(((gap.exp() - gap - 1) * ratio).mean())
    return loss + params.grpo["beta"] * sum(held) / max(len(held), 1)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_loss_and_gradient_of_a_step_are_equation_12(tmp_path, monkeypatch, beta):
    """Two steps, so that the policy has left its start."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("reader"))
    size = dict(hidden=32, layers=2, heads=2, feed_forward=64)
    build_model(Recipe(**size), tokenizer).save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    grpo = dict(loss_type="grpo", learning_rate=3e-2, beta=beta)
    values = dict(paper="spell", scale="smoke", variant="v", policy="x", steps=2, save_every=9)
    params = validate(params_class(Method), SMALL | values | dict(max_new_tokens=96, grpo=grpo))

    def world():
        again = dict(asks=lambda n: None if n % 4 == 0 else 2, knows=lambda n: n % 3 == 0)
        return story(**again, tokenizer=tokenizer)

    made, engine = Method(params, tokenizer), world()
    batches = [trained(step_of(made, engine, step)) for step in range(2)]
    assert all({row.role for row in rows} == {*ROLES} for rows in batches)
    monkeypatch.setattr(oracle, "batch_loss", loss_of_equation_12)
    _, history = oracle.train(model, batches, params, free=("responder", "verifier"))
    rows, hooks = [], Hooks(on_step=lambda row, samples: rows.append(row))
    fresh, engines = Method(params, tokenizer), {"policy": world()}
    trainer = make_trainer(params, Policy(model, tokenizer), fresh, engines, hooks, tmp_path)
    trainer.watch.tolerance = float("inf")  # the script gives no log-probabilities
    trainer.train()
    assert_as_the_oracle(rows, history, 1)
    assert [row["trained/questioner"] for row in rows] == [1, 1]
    if beta:
        assert rows[1]["kl/questioner"] > 0 and abs(history[1][0]) > 1e-3


def test_judgments_that_train_are_for_all_processes():
    """Eight judgments for eight questions, in groups of four: of two processes each has one."""
    counts = []
    for processes in (1, 2):
        world = Roles(judges=lambda number: number % 4 == 0)  # one of four says yes
        _, rows, _ = play(world, Share(0, processes), questions_per_round=8, groups=8)
        counts.append(len({row.group for row in trained(rows, "verifier")}))
    assert counts == [2, 1]


def proposed(**values):
    """Who proposes what an external policy answers."""
    made = whole(**EXTERNAL, clusters=12, eval_proposals=12, **values)
    (suite,) = [suite for suite in made.suites(1) if suite.name == "difficulty"]
    play_suite(suite, {"policy": (asks := Roles()), "external": Roles()})
    return asks


def test_difficulty_is_of_clusters_of_their_own():
    asks = proposed()
    assert len({*asks.prompts["questioner"]}) > 6
    assert len({request.seed for request in asks.requests}) == 12


def test_another_draw_proposes_from_other_documents():
    first, again, other = (
        proposed(eval_draw=draw).prompts["questioner"] for draw in ("", "", "search")
    )
    assert first == again and len(other) == len(first)
    assert sum(one != two for one, two in zip(first, other, strict=True)) > 6
