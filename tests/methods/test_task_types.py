"""SPELL's task types take turns over the questions of all processes together."""

from collections import Counter

import pytest
from fakes import CharTokenizer, Roles, step_of

from spnb.core.method import Share
from spnb.core.params import validate
from spnb.methods.spell import Method, Params

SMALL = dict(clusters=6, documents=3, documents_read=2, group_size=4, groups=2, rounds=1)
SMALL |= dict(
    static_questions=6, eval_items=1, eval_samples=2, eval_documents=[3], eval_proposals=4
)
TYPES = ["journey", "ledger", "choice"]


def types_asked(rank, processes, asked):
    """The task types that a process asks for in one round, in their order."""
    made = Method(
        validate(Params, SMALL | {"tasks": TYPES, "questions_per_round": asked}), CharTokenizer()
    )
    made.share, world = Share(rank, processes), Roles()
    step_of(made, world)
    kinds = []
    for prompt in world.prompts["questioner"]:
        kind = "ledger" if "Payments of" in prompt else "journey"
        kinds.append("choice" if "multiple-choice" in prompt else kind)
    return kinds


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_types_take_turns_over_all_processes(processes):
    """12 questions: each process has several, and the place in the whole decides the type."""
    asked = [types_asked(rank, processes, 12) for rank in range(processes)]
    assert {len(kinds) for kinds in asked} == {12 // processes} and 12 // processes > 1
    for rank, kinds in enumerate(asked):
        places = range(rank, 12, processes)
        assert kinds == [TYPES[place % 3] for place in places]
    assert Counter(kind for kinds in asked for kind in kinds) == dict.fromkeys(TYPES, 4)
