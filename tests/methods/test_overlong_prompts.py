"""A prompt that leaves no room for an answer is not asked and ends no run, whoever's it is."""

import pytest
from fakes import CharTokenizer
from spice_world import Tokenizer

from spnb.core.episodes import run
from spnb.core.params import validate
from spnb.evaluate.items import play_suite
from spnb.methods import method_class, method_module
from spnb.train.config import params_class
from spnb.train.engines import NOTHING

STATIC = dict(question_source="static", judgments_per_answer=0, static_questions=4)
R_ZERO = dict(algorithm="r_zero", pay="r_zero", corpus=[])
STAGES = [dict(policy="challenger", steps=1), dict(policy="policy", steps=1)]
ZERO = dict(algorithm="absolute_zero", pay="absolute_zero", corpus=[], group_size=4)
SCOPE = dict(documents_per_step=1, proposals=2, tasks_per_step=1, answers=2)
SCOPE |= dict(policies={"challenger": "x", "judge": "x"})
FROZEN = {"challenger": {"trainable": False}}
CASES = {
    "spell": ("spell", {}, "questioner"),
    "static": ("spell", STATIC, "responder"),
    "spice": ("spice", dict(documents=4, attempts=8, documents_per_step=2), "challenger"),
    "r-zero": ("spice", R_ZERO | dict(stages=STAGES, steps=2), "challenger"),
    "absolute-zero": ("spice", ZERO, "challenger"),
    "proposer": ("proposer", dict(proposals=2, trained_questions=2), "proposer"),
    "solver": ("proposer", dict(questions="even", trained_questions=2), "solver"),
    "rlvr": ("rlvr", dict(family="journey", prompts_per_step=2), "ladder"),
    "search": ("rlvr", dict(family="chain", prompts_per_step=2), "ladder"),
    "even": ("ssp", dict(questions="even", answers_per_step=2), "solver"),
    "tasks": ("scope", SCOPE | dict(stages=STAGES, steps=2), "challenger"),
    "reports": ("scope", SCOPE | dict(tasks="even", roles=FROZEN), "solver"),
    "questions": ("spiral", dict(phases=["answer"], turns_per_step=16), "questions"),
}


class Silence:
    """An engine that nobody asks."""

    def generate(self, requests):
        assert not requests, "a prompt without room was asked"
        return []


def method(paper, **values):
    """A paper's method with 16 tokens of room, tokens being characters."""
    values = dict(paper=paper, scale="smoke", variant="v", policy="x", max_length=16) | values
    if paper == "spell":
        values |= dict(grpo={"loss_type": "grpo"})
    if values.get("algorithm") == "r_zero":
        values |= dict(policies={"challenger": "x"}, roles={"challenger": {"policy": "challenger"}})
    module = method_module(paper)
    params = validate(params_class(module.Method), values | dict(max_new_tokens=4))
    tokenizer = Tokenizer() if paper == "spice" else CharTokenizer()
    return method_class(paper, params)(params, tokenizer)


@pytest.mark.parametrize("case", list(CASES))
def test_a_prompt_that_is_too_long_is_an_invalid_row(case):
    paper, values, role = CASES[case]
    made = method(paper, **values)
    rows = run(made.rollout(0), dict.fromkeys(("policy", "challenger", "judge"), Silence()))
    first = [row for row in rows if role in (row.role, row.role[0])]
    assert first and all(row.invalid and not any(row.mask) for row in first)
    made.estimate(rows)
    made.select(rows)
    assert not any(row.weight for row in rows if row.advantage), "nothing is learned from them"


def test_proposals_by_search_that_are_too_long_leave_their_slots_to_earlier_ones():
    made = method("ssp", answers_per_step=2, attempts=2)
    made.pool = [["Who?", "x"]]
    rows = run(made.rollout(0), {"policy": Silence()})
    assert [row.role for row in rows] == ["proposer"] * 2 + ["solver"] * 4
    assert all(row.invalid and not any(row.mask) and not row.reward for row in rows)


def test_a_search_that_is_too_long_ends_no_evaluation():
    made = method("rlvr", family="chain", eval_items=2)
    for suite in made.suites(0):
        records, _ = play_suite(suite, {"policy": Silence()})
        assert {record["score"] for record in records} == {0}


@pytest.mark.parametrize("alignment", ["longpo", "solopo"])
def test_a_context_that_is_too_long_gives_no_pair(alignment):
    made = method("spell", **STATIC, alignment=alignment)
    assert run(made.pairs(), {"policy": Silence()}) == []


def test_an_observation_that_is_too_long_loses_the_match():
    made = method("spiral", games=["tic_tac_toe"])
    transcript = run(made.match(made.games[0], seed=0, learner=0), {"policy": Silence()})
    assert transcript.invalid_seat == 0 and made.samples(transcript) == []


class Small:
    """An engine whose model has no room for any prompt."""

    def generate(self, requests):
        return [NOTHING] * len(requests)


@pytest.mark.slow
@pytest.mark.parametrize("paper, values", [("spiral", {"eval_questions": 4}), ("rlvr", {})])
def test_prompts_longer_than_the_model_end_no_evaluation(paper, values):
    made = method(paper, max_length=4096, **values)
    suites = made.suites(0)
    for suite in suites:
        records, _ = play_suite(suite, {"policy": Small()})
        assert records and not any(record.get("parsed") for record in records)
    assert suites
