"""Estimators against values worked out by hand."""

import json
import math

import pytest

from spnb.core.advantages import (
    ESTIMATORS,
    Estimator,
    assign,
    centred,
    make_estimator,
    skip_zero_advantage,
    sum_of_means,
)
from spnb.core.types import Sample


def test_names():
    assert set(ESTIMATORS) == {
        "group_zscore",
        "group_mean",
        "raw",
        "batch_zscore",
        "batch_mean",
        "role_ema",
    }


def test_raw_is_the_reward():
    assert make_estimator("raw")([1.0, -1.5, 0.0], [0, 0, 1], ["a", "b", "a"]) == [1.0, -1.5, 0.0]


def test_group_zscore_uses_the_sample_deviation():
    # mean .25, sum of squares .75, sample variance .75 / 3 = .25, deviation .5
    advantages = make_estimator("group_zscore")([1, 0, 0, 0], ["g"] * 4, ["a"] * 4)
    assert advantages == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_group_zscore_of_equal_rewards_and_of_one_is_zero():
    estimator = make_estimator("group_zscore")
    assert estimator([0.1, 0.1, 0.1, 5.0], [0, 0, 0, 1], ["a"] * 4) == [0.0] * 4
    assert 0.1 + 0.2 != 0.3, "equal but for the last digit"
    assert estimator([0.1 + 0.2, 0.3], [0, 0], ["a"] * 2) == [0.0] * 2


def test_group_mean_by_group_and_role_in_the_order_given():
    rewards, groups, roles = [1, 10, 3, 20, 7], ["x", "y", "x", "y", "x"], ["a", "a", "a", "a", "b"]
    assert make_estimator("group_mean")(rewards, groups, roles) == [-1.0, -5.0, 1.0, 5.0, 0.0]


def test_batch_zscore_is_over_the_role_whatever_the_group():
    # role a: 1, 3, 5 -> mean 3, sample deviation 2; role b: 4, 4 -> 0
    advantages = make_estimator("batch_zscore")(
        [1, 4, 3, 4, 5], [1, 2, 3, 4, 5], ["a", "b", "a", "b", "a"]
    )
    assert advantages == pytest.approx([-1.0, 0.0, 0.0, 0.0, 1.0])


def test_role_ema_subtracts_the_old_baseline_then_updates_once_a_game():
    estimator = make_estimator("role_ema", decay=0.9)
    rewards = [1.0, -1.0, 1.0, -1.0, 1.0]  # game 1: seats 0, 1, 0; game 2: seats 0, 1
    groups = [1, 1, 1, 2, 2]
    roles = [("k", 0), ("k", 1), ("k", 0), ("k", 0), ("k", 1)]
    # b starts at 0; after game 1 it is 0.1 for seat 0 (once, though it had two turns) and -0.1 for
    # seat 1
    assert estimator(rewards, groups, roles) == pytest.approx([1.0, -1.0, 1.0, -1.1, 1.1])
    assert estimator.baselines[("k", 0)] == pytest.approx(0.9 * 0.1 - 0.1)
    assert estimator.baselines[("k", 1)] == pytest.approx(0.9 * -0.1 + 0.1)


def test_role_ema_default_decay_and_memory_over_calls():
    estimator = make_estimator("role_ema")
    assert estimator([1.0], [0], ["a"]) == [1.0]
    assert estimator([1.0], [1], ["a"]) == pytest.approx([0.95])
    assert estimator([1.0], [1], ["a"]) == pytest.approx([1 - 0.0975])


def test_role_ema_state_goes_on_where_it_was():
    first, second = make_estimator("role_ema"), make_estimator("role_ema")
    roles = [("g", 0), ("g", 1), "solver"]
    first([1.0, 0.5, 0.7], [0, 0, 0], roles)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    more = ([0.2, -0.2, 0.4], [5, 5, 5], roles)
    assert first(*more) == second(*more)


@pytest.mark.parametrize(("decay", "expected"), [(0, [1.0, 2.0]), (1, [1.0, 3.0])])
def test_role_ema_may_keep_the_last_game_alone_or_none(decay, expected):
    """Returns 1 and 3: the baseline of the second game is 1, or still 0."""
    assert make_estimator("role_ema", decay=decay)([1.0, 3.0], [0, 1], ["a"] * 2) == expected


def test_role_ema_refuses_two_returns_in_one_game():
    with pytest.raises(ValueError, match="rewards 1.0, 0.5; a game has one"):
        make_estimator("role_ema")([1.0, 0.5], [0, 0], ["a", "a"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "ppo",
            {},
            "estimator is 'ppo'; allowed: group_zscore, .*, batch_zscore, batch_mean, role_ema",
        ),
        ("raw", {"decay": 0.5}, r"estimator 'raw' does not take the options \['decay'\]"),
        ("role_ema", {"decay": 1.5}, "decay is 1.5; allowed: a number from 0 to 1"),
    ],
)
def test_bad_estimators(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_estimator(name, **options)


def test_bad_calls():
    with pytest.raises(ValueError, match="lengths 2, 1, 2"):
        make_estimator("raw")([1, 2], [0], ["a", "a"])
    with pytest.raises(ValueError, match=r"rewards\[1\] is nan"):
        make_estimator("raw")([1, float("nan")], [0, 0], ["a", "a"])
    with pytest.raises(ValueError, match=r"rewards\[0\] is -inf"):
        make_estimator("raw")([-math.inf], [0], ["a"])
    with pytest.raises(ValueError, match="keeps no state"):
        make_estimator("raw").load_state_dict({"baselines": {}})


def row(reward, role, group=0, **values):
    """A row of one token."""
    return Sample((1,), (2,), (1,), None, reward, role, group, **values)


def test_assign_uses_each_roles_estimator_and_leaves_what_is_set():
    rows = [
        row(1.0, "a"),
        row(3.0, "a"),
        row(5.0, "b"),
        row(9.0, "c"),
        row(9.0, "a", advantage=7.0),
    ]
    assign(rows, {"a": make_estimator("group_mean"), "b": make_estimator("raw")})
    assert [one.advantage for one in rows] == [-1.0, 1.0, 5.0, 0.0, 7.0]
    assert [one.weight for one in rows] == [1, 1, 1, 0, 1]  # role c does not learn


def test_a_batch_is_that_of_all_processes_and_a_group_its_processs_own():
    """Rewards 1, 3 here and 8 in the process before: their mean is 4. Role b is there alone."""
    rows = [row(1.0, "a", group=0), row(3.0, "a", group=1), row(1.0, "g"), row(3.0, "g")]
    estimators = {"a": make_estimator("batch_mean"), "g": make_estimator("group_mean")}
    before = {"a": [(8.0, 0)], "b": [(5.0, 0)], "g": [(9.0, 0)]}
    assign(rows, estimators, lambda own: [(0, before), *own], rank=1)
    assert [one.advantage for one in rows] == [-3.0, -1.0, -1.0, 1.0]


def test_shared_groups_are_those_of_all_processes():
    """Of group x: 1 here, 5 and 3 before; of group y 2 here and 4 after."""
    rows = [row(1.0, "q", group="x"), row(2.0, "q", group="y")]
    others = {"q": [(5.0, "x"), (3.0, "x")]}, {"q": [(4.0, "y")]}
    everyone = lambda own: [(2, others[1]), *own, (0, others[0])]  # noqa: E731
    assign(rows, {"q": Estimator(centred, shared=True)}, everyone, rank=1)
    assert [one.advantage for one in rows] == [-2.0, -1.0]


def test_drop_uninformative_keeps_the_mean_over_all_rows():
    advantages, gradients = [0.0, 2.0, -1.0, 0.0, 4.0], [9.0, 1.0, 2.0, 9.0, 3.0]
    rows = [row(0.0, "a", advantage=a, weight=0.5) for a in advantages]
    skip_zero_advantage(rows)
    assert [one.weight for one in rows] == pytest.approx([0, 0.3, 0.3, 0, 0.3])
    assert [one.advantage for one in rows] == advantages
    kept = [(one, g) for one, g in zip(rows, gradients, strict=True) if one.weight]
    mean = sum(one.weight * one.advantage * g for one, g in kept) / len(kept)
    assert mean == pytest.approx(0.5 * sum(map(lambda a, g: a * g, advantages, gradients)) / 5)


def test_rows_without_a_weight_count_in_no_mean():
    """Two of a policy's three weighted rows stay; of two groups' means over 2 and 1 of 3 rows."""
    rows = [row(0.0, "a", advantage=a) for a in (2.0, 0.0, -1.0)]
    rows.append(row(0.0, "a", advantage=5.0, weight=0.0))
    skip_zero_advantage(rows)
    assert [one.weight for one in rows] == pytest.approx([2 / 3, 0, 2 / 3, 0])
    groups = [[row(0.0, "a"), row(0.0, "a", weight=0.0), row(0.0, "a")], [row(0.0, "b")]]
    sum_of_means(groups)
    assert [[one.weight for one in group] for group in groups] == [[1.5, 0, 1.5], [3]]
