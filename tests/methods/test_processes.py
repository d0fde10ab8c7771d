"""A step's weights where its rows lie in several processes, or belong to several policies."""

import copy
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import combinations, pairwise
from threading import Barrier

import pytest
from fakes import CharTokenizer

from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.types import Completion, Sample
from spnb.methods import method_class
from spnb.train.plan import make_plan

METHODS = ("spell/full", "spell/counts", "ssp/full", "proposer/learning", "proposer/learning-two")
METHODS += ("spice/full", "scope/simultaneous", "rlvr/think")


def a_method(name):
    paper, variant = name.split("/")
    params = make_plan(paper, "smoke", variants=[variant], seeds=[0]).params(variant)
    made = method_class(paper, params)(params, CharTokenizer())
    made.filled = (3, 8)  # questions and slots of an SSP step, in each process
    made.chosen = {0, 2, 3, 5, 6}  # the groups that train the solver, in the proposer study
    return made


def rows_of(made):
    """Seven groups a role of one to four rows, in a third of which no row has an advantage."""
    rng = random.Random(0)
    rows = []
    for role, what in made.roles.items():
        for group in range(7):
            for _ in range(rng.randint(1, 4)):
                mask = (1,) * rng.randint(1, 9)
                row = Sample((1,), mask, mask, None, 0.0, role, group, policy=what.policy)
                row.advantage = rng.uniform(-1, 1) if group % 3 else 0.0
                rows.append(row)
    return rows


def together(made, parts, work):
    """Does `work` with the method and its rows in a process for each part of a step's rows."""
    barrier, given = Barrier(len(parts), timeout=20), [[]] * len(parts)

    def in_process(rank):
        def gather(own):
            given[rank] = own
            barrier.wait()
            everything = [each for part in given for each in part]
            barrier.wait()
            return everything

        one = copy.copy(made)
        one.share = Share(rank, len(parts), gather)
        work(one, parts[rank])

    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(in_process, range(len(parts))))


def selected(made, *parts):
    """Each row's part of its policy's mean."""
    together(made, parts, lambda one, rows: one.select(rows))
    rows = [row for part in parts for row in part]
    number = Counter(row.policy for row in rows if row.weight)
    return [row.weight / max(number[row.policy], 1) for row in rows]


@pytest.mark.parametrize("groups", ["bbbbbbbb", "xxyxyyyx"])
def test_spells_questioners_are_compared_in_the_batch_of_all_processes(groups):
    """Of one batch, or of its task types, however it is shared out."""
    made, estimates = a_method("spell/full"), []
    for ends in ((0, 8), (0, 4, 8), (0, 1, 6, 8)):
        pays = zip((1, 1, 0.75, 0.75, 0, 0, 0.75, -1), groups, strict=True)
        rows = [Sample((1,), (1,), (1,), None, pay, "questioner", at) for pay, at in pays]
        parts = [rows[first:last] for first, last in pairwise(ends)]
        together(made, parts, lambda one, own: one.estimate(own))
        estimates.append([row.advantage for row in rows])
    first, *others = estimates
    assert others == [pytest.approx(first)] * 2 and any(first)


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_weigh_rows_as_one_does(name):
    """The second has no row of the first role: it asks for the totals all the same."""
    made = a_method(name)
    first = next(iter(made.roles))
    rows = sorted(rows_of(made), key=lambda row: row.group > 1 and row.role != first)
    cut = sum(row.group <= 1 or row.role == first for row in rows)
    whole = selected(made, copy.deepcopy(rows))
    assert any(whole)
    assert selected(made, rows[:cut], rows[cut:]) == pytest.approx(whole)


@pytest.mark.parametrize("name", ["proposer/learning-two", "scope/simultaneous"])
def test_a_policy_is_weighed_by_its_own_rows_alone(name):
    """As if the other policy's rows were not there."""
    made = a_method(name)
    rows = rows_of(made)
    whole = selected(made, copy.deepcopy(rows))
    for policy in {row.policy for row in rows if row.weight}:
        own = [copy.deepcopy(row) for row in rows if row.policy == policy]
        expected = [w for w, row in zip(whole, rows, strict=True) if row.policy == policy]
        assert selected(made, own) == pytest.approx(expected)


POLICIES = ("policy", "challenger", "judge", "proposer")
DRAWN = (*METHODS, "proposer/even", "proposer/curriculum", "spice/r-zero", "spice/absolute-zero")


class Noted:
    """Says nothing that counts; keeps what it was asked."""

    def __init__(self):
        self.requests = []

    def generate(self, requests):
        self.requests += requests
        return [Completion((1,), (-1.0,), "no", "stop")] * len(requests)


def asked(name, step=0, seed=0, rank=0):
    """Seeds and prompts of a process in a step of a run."""
    paper, variant = name.split("/")
    room = {"max_length": 10**5}  # a token is a character here
    params = make_plan(paper, "smoke", room, variants=[variant], seeds=[seed]).params(variant)
    made, world = method_class(paper, params)(params, CharTokenizer()), Noted()
    made.share = Share(rank, 2)
    with suppress(ValueError):  # nothing passed
        run(made.rollout(step), dict.fromkeys(POLICIES, world))
    return {one.seed for one in world.requests}, tuple(one.prompt_ids for one in world.requests)


@pytest.mark.parametrize("name", DRAWN)
def test_every_step_run_and_process_draws_and_asks_anew(name):
    others = ({}, {"step": 1}, {"seed": 1}, {"rank": 1})
    seeds, prompts = zip(*(asked(name, **other) for other in others), strict=True)
    assert all(one and not one & other for one, other in combinations(seeds, 2))
    assert "zero" in name or len({*prompts}) == 4  # those two ask without documents
