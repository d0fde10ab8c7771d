"""Suites of tasks, records and rows, by hand."""

import math

import pytest
from fakes import CharTokenizer

from spnb.core.episodes import single_turn
from spnb.core.method import Share
from spnb.core.types import Chat, Completion, Sampling, Task
from spnb.evaluate.items import (
    RECORD,
    ROW,
    ask_suite,
    mean_row,
    pass_at_k_rows,
    play_suite,
    play_suites,
    record,
    row,
    score_row,
    share_row,
)

SAMPLING = Sampling(max_new_tokens=16)


class Pupil:
    """Answers each prompt by its text; a list of answers in turn."""

    def __init__(self, **answers):
        self.answers = {prompt: iter(texts) for prompt, texts in answers.items()}
        self.batches = []

    def generate(self, requests):
        self.batches.append(requests)
        prompts = ["".join(map(chr, request.prompt_ids)) for request in requests]
        texts = [next(self.answers[prompt]) for prompt in prompts]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


CHAT = Chat(CharTokenizer())


def task(text, gold, difficulty=""):
    return Task([{"role": "user", "content": text}], text, (gold,), difficulty=difficulty)


def answer(text):
    return f"<answer>{text}</answer>"


def interval(one):
    return one["value"], one["low"], one["high"], one["n"]


def test_a_share_has_wilsons_bounds():
    """2 of 4: 0.1500 to 0.8500; 1 of 2: 0.0945 to 0.9055."""
    four = share_row("a", "win", [True, False, 1, 0.0], role="seat 0")
    assert interval(four) == pytest.approx((0.5, 0.1500, 0.8500, 4), abs=5e-5)
    assert interval(share_row("a", "win", [1, 0])) == pytest.approx(
        (0.5, 0.0945, 0.9055, 2), abs=5e-5
    )
    assert list(four) == list(ROW)
    assert (four["suite"], four["metric"], four["role"]) == ("a", "win", "seat 0")


def test_a_mean_has_students_bounds():
    """-0.125, squares about it 3.6875: error sqrt(3.6875 / 12) = 0.55434, t(0.975, 3) = 3.18245."""
    one = mean_row("a", "utility", [1.0, -0.5, 0.5, -1.5])
    half = 3.18245 * 0.55434
    assert interval(one) == pytest.approx((-0.125, -0.125 - half, -0.125 + half, 4), abs=1e-4)


def test_scores_are_a_share_where_all_are_0_or_1():
    assert score_row("a", "grade", [1.0, 0.0]) == share_row("a", "grade", [1, 0])
    assert score_row("a", "grade", [1.0, 0.5]) == mean_row("a", "grade", [1.0, 0.5])


def test_no_values_give_nan_and_n_0():
    for build in (share_row, mean_row, score_row):
        *numbers, n = interval(build("a", "win", []))
        assert all(map(math.isnan, numbers)) and n == 0


def test_a_row_has_no_other_columns():
    with pytest.raises(ValueError, match="no column 'seat'; allowed: step, suite, opponent, role"):
        row("a", "win", 0.5, seat=1)


TASKS = [task("a", "1", "easy"), task("b", "2", "hard"), task("c", "3", "hard")]


def suite_of(samples=1, tasks=TASKS, **others):
    return ask_suite(
        "sums",
        tasks,
        CHAT,
        SAMPLING,
        lambda place, sample: 10 * place + sample,
        samples=samples,
        **others,
    )


def test_every_answer_is_a_record():
    pupil = Pupil(a=[answer(1), answer(7)], b=[answer(2), "2"], c=[answer(2), answer(3)])
    suite = suite_of(2, decoding="sampled")
    records, rows = play_suite(suite, {"policy": pupil})
    (batch,) = pupil.batches
    assert [request.seed for request in batch] == [0, 1, 10, 11, 20, 21]
    assert {request.policy for request in batch} == {"policy"}
    assert [one["item"] for one in records] == ["0", "0", "1", "1", "2", "2"]
    assert [one["sample"] for one in records] == [0, 1] * 3
    assert [one["score"] for one in records] == [1, 0, 1, 0, 0, 1]
    assert [one["parsed"] for one in records] == [True, True, True, False, True, True]
    assert all(list(one) == [*RECORD, "parsed"] for one in records)
    assert {(one["suite"], one["decoding"], one["kind"]) for one in records} == {
        ("sums", "sampled", "exact")
    }
    shares = {(one["metric"], one["difficulty"]): interval(one)[::3] for one in rows}
    assert shares == {
        ("accuracy", ""): (0.5, 6),
        ("accuracy", "easy"): (0.5, 2),
        ("accuracy", "hard"): (0.5, 4),
        ("parsed", ""): (5 / 6, 6),
    }
    assert {(one["suite"], one["decoding"]) for one in rows} == {("sums", "sampled")}


def test_one_difficulty_has_no_row_of_its_own():
    pupil = Pupil(b=[answer(2)], c=[answer(2)])
    _, rows = play_suite(suite_of(tasks=TASKS[1:], metric="grade"), {"policy": pupil})
    assert [(one["metric"], one["difficulty"]) for one in rows] == [("grade", ""), ("parsed", "")]


def test_other_policies_behaviour_and_ways_to_answer():
    asked = []

    def own_way(one, request):
        asked.append(one.question)
        return (yield from single_turn(request))

    suite = suite_of(
        policy="start",
        answer=own_way,
        behaviour=lambda task, trajectory: {"long": len(trajectory.policy_text) > 20},
    )
    pupil = Pupil(a=[answer(1)], b=[answer("a long answer")], c=[""])
    records, rows = play_suite(suite, {"start": pupil})
    assert asked == ["a", "b", "c"]
    assert [one["long"] for one in records] == [False, True, False]
    assert rows[-1]["metric"] == "long" and rows[-1]["value"] == 1 / 3


def test_a_question_that_is_too_long_is_wrong_and_named_once(caplog):
    class Full:
        def generate(self, requests):
            return [Completion((), (), "", "overlong") for _ in requests]

    records, _ = play_suite(suite_of(2, tasks=TASKS[:2]), {"policy": Full()})
    assert [(one["score"], one["parsed"]) for one in records] == [(0, False)] * 4
    said = "sums: question {} is too long to be asked; it is wrong"
    assert caplog.messages == [said.format(place) for place in range(2)]


def test_own_grades_and_rows():
    suite = suite_of(
        grade=lambda one, text: {"score": float(len(text)), "item": one.question},
        summarise=lambda records: [mean_row("sums", "length", [one["score"] for one in records])],
    )
    records, rows = play_suite(suite, {"policy": Pupil(a=["x"], b=["xx"], c=["xxx"])})
    assert [one["item"] for one in records] == ["a", "b", "c"]
    assert [(one["metric"], one["value"]) for one in rows] == [("length", 2)]


def test_nothing_to_ask_is_refused():
    with pytest.raises(ValueError, match="tasks is 0; allowed: 1 or more"):
        suite_of(tasks=[])
    with pytest.raises(ValueError, match="samples is 0; allowed: 1 or more"):
        suite_of(0)


def test_processes_share_the_parts_and_agree_on_records_and_rows():
    texts = {"a": answer(1), "b": answer(2), "c": answer(2)}
    alone = play_suite(suite_of(), {"policy": Pupil(**{k: [v] for k, v in texts.items()})})
    pieces, pupils = [], []
    for rank in range(2):
        pupils.append(Pupil(**{k: [v] for k, v in texts.items()}))
        other = [((0, 0), [record("sums", "0", 0.0, parsed=True)])]
        share = Share(rank, 2, lambda new, other=other: pieces.append(new) or other)
        play_suites([suite_of()], {"policy": pupils[-1]}, share)
    assert [len(pupil.batches[0]) for pupil in pupils] == [2, 1]
    together = pieces[1] + pieces[0]  # in whatever order they come
    last = Pupil(**{k: [v] for k, v in texts.items()})
    shared = play_suites([suite_of()], {"policy": last}, Share(1, 2, lambda _: together))
    assert shared == [alone]


class Echo:
    """Answers by the request alone, whatever is asked beside it."""

    def __init__(self):
        self.sizes = []

    def generate(self, requests):
        self.sizes.append(len(requests))
        texts = [answer((one.seed + sum(one.prompt_ids)) % 3) for one in requests]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


def twice(one, request):
    """Two turns, of which the second counts."""
    yield [request]
    return (yield from single_turn(request))


@pytest.mark.parametrize("processes", [1, 2])
def test_suites_side_by_side_give_what_they_give_one_after_another_in_fewer_calls(processes):
    suites = [suite_of(3, answer=twice), suite_of(tasks=TASKS[1:]), suite_of(2, answer=twice)]
    after, beside = Echo(), Echo()
    alone = [play_suite(suite, {"policy": after}) for suite in suites]
    alike = [((number, 0), records) for number, (records, _) in enumerate(alone)]
    pieces = []
    for rank in reversed(range(processes)):
        every = lambda new: pieces.extend(new) or (pieces if len(pieces) == 17 else alike)  # noqa: E731
        found = play_suites(suites, {"policy": beside}, Share(rank, processes, every))
    assert found == alone and [len(records) for records, _ in found] == [9, 2, 6]
    assert after.sizes == [9, 9, 2, 6, 6]
    assert beside.sizes == ([17, 15] if processes == 1 else [8, 7, 9, 8])


def test_pass_at_k_by_hand():
    """2 of 4 right: pass@2 is 1 - 1/6; 0 of 4: 0; an item of one answer has no pass@2."""
    scores = {"a": [1, 1, 0, 0], "b": [0, 0, 0, 0.5], "c": [1]}
    records = [
        record("sums", item, score, decoding=decoding)
        for decoding in ("sampled", "greedy")
        for item, row_of in scores.items()
        for score in row_of
    ]
    rows = pass_at_k_rows(records, [1, 2])
    assert [(one["decoding"], one["metric"]) for one in rows] == [
        ("sampled", "pass@1"),
        ("sampled", "pass@2"),
        ("greedy", "pass@1"),
        ("greedy", "pass@2"),
    ]
    assert rows[0]["value"] == pytest.approx(0.5) and rows[0]["n"] == 3
    assert rows[1]["value"] == pytest.approx(5 / 12) and rows[1]["n"] == 2
    assert (rows[1]["low"], rows[1]["high"]) == (0, 1)
