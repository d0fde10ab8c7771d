"""Episodes, the scheduler, seeds, samples."""

import subprocess
import sys

import pytest

from spnb.core.episodes import ask_group, parallel, run, single_turn
from spnb.core.types import (
    Completion,
    Request,
    Sample,
    Sampling,
    Trajectory,
    derive_seed,
    role_label,
)


class Echo:
    """Answers with the prompt's own ids and remembers the sizes of its batches."""

    def __init__(self):
        self.batches = []

    def generate(self, requests):
        self.batches.append(len(requests))
        return [
            Completion(r.prompt_ids, (0.0,) * len(r.prompt_ids), str(r.prompt_ids[0]), "stop")
            for r in requests
        ]


def request(number, policy="policy"):
    return Request((number,), Sampling(), seed=0, policy=policy)


def counting(start, turns):
    """Asks one request a turn, returns the texts."""
    texts = []
    for turn in range(turns):
        (answer,) = yield [request(start + turn)]
        texts.append(answer.text)
    return texts


def nested():
    """Two sub-episodes side by side, then one of its own."""
    both = yield from parallel(counting(1, 2), counting(10, 3))
    last = yield from counting(99, 1)
    return both, last


def test_parallel_merges_pending_requests_and_keeps_order():
    engine = Echo()
    assert run(nested(), {"policy": engine}) == ([["1", "2"], ["10", "11", "12"]], ["99"])
    assert engine.batches == [2, 2, 1, 1]


def test_parallel_of_nothing_and_of_an_episode_without_requests():
    def silent():
        return 7
        yield

    assert run(parallel(), {}) == []
    assert run(parallel(silent(), silent()), {}) == [7, 7]


def test_thousands_of_episodes_are_one_batch():
    engine = Echo()
    assert len(run(parallel(*(counting(i, 1) for i in range(3000))), {"policy": engine})) == 3000
    assert engine.batches == [3000]


def test_requests_go_to_the_engine_they_name():
    def mixed():
        answers = yield [request(1), request(2, "past"), request(3)]
        return [answer.text for answer in answers]

    policy, past = Echo(), Echo()
    assert run(mixed(), {"policy": policy, "past": past}) == ["1", "2", "3"]
    assert (policy.batches, past.batches) == ([2], [1])
    with pytest.raises(ValueError, match="request for policy 'past'; available: policy"):
        run(mixed(), {"policy": policy})


def test_an_error_inside_an_episode_is_raised():
    def broken():
        yield [request(1)]
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        run(parallel(counting(1, 2), broken()), {"policy": Echo()})


def test_derived_seeds_differ_by_part_and_not_by_process():
    seeds = {derive_seed(0, "train", step, name) for step in range(50) for name in ("a", "b")}
    assert len(seeds) == 100 and all(0 <= seed < 2**63 for seed in seeds)
    code = "from spnb.core.types import derive_seed; print(derive_seed(0, 'train', 3, 'a'))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert int(printed) == derive_seed(0, "train", 3, "a")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_new_tokens": 0}, "sampling.max_new_tokens is 0"),
        ({"temperature": -1}, "sampling.temperature is -1"),
        ({"top_p": 0}, "sampling.top_p is 0"),
        ({"top_k": -2}, "sampling.top_k is -2"),
    ],
)
def test_sampling_is_checked(values, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**values)


def test_samples():
    completion = Completion((5, 6), (-0.1, -0.2), "x", "length")
    row = Trajectory.of(request(1), completion).sample(1.0, ("kuhn_poker", 0), 3)
    assert (row.mask, row.logps, row.truncated, role_label(row.role)) == (
        (1, 1),
        (-0.1, -0.2),
        True,
        "kuhn_poker/0",
    )
    with pytest.raises(ValueError, match="all must be equal"):
        Sample((1,), (2, 3), (1,), None, reward=0.0, role="a", group=0)
    with pytest.raises(ValueError, match="at least 1"):
        Sample((1,), (), (), None, reward=0.0, role="a", group=0)


def test_single_turn_is_a_trajectory_of_all_sampled_tokens():
    trajectory = run(single_turn(request(7, policy="other")), {"other": Echo()})
    assert (trajectory.prompt_ids, trajectory.completion_ids, trajectory.mask) == ((7,), [7], [1])
    assert (trajectory.text, trajectory.policy_text, trajectory.finish) == ("7", "7", "stop")
    row = trajectory.sample(0.5, "solver", 3)
    assert (row.policy, row.role, row.group, row.reward) == ("other", "solver", 3, 0.5)
    assert row.advantage is None and row.weight == 1.0 and row.info == {"text": "7"}


def test_an_observation_is_masked_and_is_not_the_policys_text():
    trajectory = run(single_turn(request(7)), {"policy": Echo()})
    trajectory.append_observation([8, 9], "seen")
    assert trajectory.mask == [1, 0, 0] and trajectory.logps == [0.0, 0.0, 0.0]
    assert (trajectory.text, trajectory.policy_text, trajectory.length) == ("7seen", "7", 4)


def test_ask_group_answers_each_task_k_times_in_one_batch():
    engine = Echo()

    def answer(place, task, copy):
        (completion,) = yield [request(100 * place + 10 * task + copy)]
        return completion.text

    groups = run(ask_group([1, 2], 3, answer), {"policy": engine})
    assert groups == [["10", "11", "12"], ["120", "121", "122"]] and engine.batches == [6]
