"""Episodes, the scheduler, seeds, samples."""

import subprocess
import sys
import threading

import pytest

from spnb.core.episodes import Call, ask_group, parallel, run, single_turn
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

    def often():
        for _ in range(5000):  # more than Python's calls within calls
            assert (yield from parallel(silent(), silent())) == [7, 7]

    assert run(parallel(often()), {}) == [None]


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


class Turns(Echo):
    """An answer at a time, the shortest first: a number of three digits takes longest."""

    def __init__(self):
        super().__init__()
        self.open, self.taken, self.aborted = {}, [], 0

    def proceed(self, requests):
        self.open |= requests
        self.taken.append(len(requests))
        number = min(self.open, key=lambda one: (len(str(self.open[one].prompt_ids[0])), one))
        return {number: self.generate([self.open.pop(number)])[0]}

    def abort(self):
        self.aborted += 1
        self.open = {}


def test_an_episode_goes_on_when_its_own_answers_are_there():
    slow, fast = counting(100, 2), counting(1, 3)
    engine, noted = Turns(), []

    def watched(episode):
        result = yield from episode
        noted.append(result)
        return result

    episodes = parallel(watched(slow), watched(fast), nested())
    results = run(episodes, {"policy": engine})
    assert results == [["100", "101"], ["1", "2", "3"], ([["1", "2"], ["10", "11", "12"]], ["99"])]
    assert noted == [["1", "2", "3"], ["100", "101"]]
    assert engine.taken[0] == 4 and max(engine.taken[1:]) == 1 and not engine.aborted


def test_an_engine_of_whole_lists_is_asked_when_the_others_are_done_and_in_order():
    def two(first, second):
        return [(yield [request(first)])[0].text, (yield [request(second, "judge")])[0].text]

    judge = Echo()
    judged = []
    answer = judge.generate
    judge.generate = lambda asked: judged.append([r.prompt_ids[0] for r in asked]) or answer(asked)
    episodes = parallel(two(100, 7), two(10, 8), two(1, 9))
    results = run(episodes, {"policy": Turns(), "judge": judge})
    assert results == [["100", "7"], ["10", "8"], ["1", "9"]] and judged == [[7, 8, 9]]


def looking(first, look, turns):
    """A turn, then a look at something, `turns` times; returns what was seen."""
    seen = []
    for turn in range(turns):
        (answer,) = yield [request(first + turn)]
        seen += yield Call(look, answer.text)
    return seen


def test_one_call_is_made_for_all_that_wait_for_it():
    calls, engine = [], Echo()

    def look(texts):
        calls.append((texts, threading.current_thread() is threading.main_thread()))
        return [f"{text}!" for text in texts]

    episodes = parallel(looking(1, look, 2), counting(30, 3), parallel(looking(50, look, 1)))
    assert run(episodes, {"policy": engine}) == [["1!", "2!"], ["30", "31", "32"], [["50!"]]]
    assert calls == [(["1", "50"], True), (["2"], True)] and engine.batches == [3, 2, 1]


def test_calls_are_made_beside_an_engine_that_goes_on():
    engine, begun, gone_on = Turns(), threading.Event(), threading.Event()
    calls, proceed = [], engine.proceed

    def watched(requests):
        if begun.is_set():  # a call is under way
            gone_on.set()
        return proceed(requests)

    def look(texts):
        calls.append(texts)
        begun.set()
        assert len(calls) > 1 or gone_on.wait(30)
        return [f"{text}!" for text in texts]

    engine.proceed = watched
    episodes = (looking(1, look, 1), looking(2, look, 1), looking(3, look, 1), counting(100, 3))
    results = run(parallel(*episodes), {"policy": engine})
    assert results == [["1!"], ["2!"], ["3!"], ["100", "101", "102"]]
    assert calls[0] == ["1"] and sorted(sum(calls, [])) == ["1", "2", "3"]


def test_what_is_open_after_an_error_is_given_up():
    def broken():
        yield [request(1)]
        raise KeyError("inside")

    engine = Turns()
    with pytest.raises(KeyError, match="inside"):
        run(parallel(counting(100, 2), broken()), {"policy": engine})
    assert engine.aborted == 1 and not engine.open


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
