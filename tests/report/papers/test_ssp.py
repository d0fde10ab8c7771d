"""SSP's own exhibits: gains by level, rounds and hacks to read, on runs that a test writes."""

import matplotlib.pyplot as plt
import pytest

from spnb.evaluate.items import record
from spnb.report.frame import KEYS, Frames, gather
from spnb.report.papers import ssp
from spnb.train.runs import open_run

FOUND = "\n<information>\n[1] a note\n</information>\n"
"""What a search finds."""


def ssp_run(root, variant="full", seed=0):
    return open_run(root, {"paper": "ssp", "scale": "cpu", "variant": variant, "seed": seed})


def proposal(step, question, score=1.0, **others):
    """The record of a held-out question, which its proposer searched once for."""
    text = f"<search> s</search>{FOUND}<question> {question}</question>"
    told = {"answer": "Ann", "reason": "", "attempts": [], "success": 0.5, "level": 2}
    told |= {"text": text} | others
    return {"step": step, **record("proposals", "0", score, **told)}


def written(content):
    """The rows of an exhibit: who, and the last turn alone."""
    table = content.item
    last = table[table["found (not trained)"] == ""]
    return list(zip(last["who"], last["written (trained)"], strict=True))


def test_a_trajectory_has_a_row_a_turn():
    assert list(ssp.turns(f"one{FOUND}two{FOUND}three", "who")) == [
        {"who": "who", "written (trained)": "one", "found (not trained)": "[1] a note"},
        {"who": "who", "written (trained)": "two", "found (not trained)": "[1] a note"},
        {"who": "who", "written (trained)": "three", "found (not trained)": ""},
    ]


def test_a_round_is_the_deepest_valid_question_that_some_attempts_answer(tmp_path):
    """At the last step none is answered by some: the deepest. Steps between are left out."""
    run = ssp_run(tmp_path)
    attempts = [[1.0, "<answer> Ann</answer>"], [0.5, "<answer> Bo</answer>"]]
    lost = proposal(0, "all searches of its attempts were lost", level=8, reason="retriever")
    del lost["success"]
    run.append(
        "items",
        proposal(0, "shallow"),
        proposal(0, "chosen", level=3, attempts=attempts),
        proposal(0, "never answered", level=4, success=0.0),
        lost,
        proposal(0, "not valid", 0.0, level=6),
        proposal(2, "between", level=7),
        proposal(4, "always answered", level=3, success=1.0),
        proposal(4, "deepest", level=5, success=0.0),
    )
    made = ssp.rounds(None, Frames([run, ssp_run(tmp_path, seed=1)]))
    assert written(made) == [
        ("step 0: proposer of Ann", "<question> chosen</question>"),
        ("step 0: attempt 1, reward 1", "<answer> Ann</answer>"),
        ("step 0: attempt 2, reward 0.5", "<answer> Bo</answer>"),
        ("step 4: proposer of Ann", "<question> deepest</question>"),
    ]
    assert made.runs == [run] and len(made.item) == 6
    assert ssp.rounds(None, Frames()) is None
    assert ssp.rounds(None, Frames([ssp_run(tmp_path, seed=2)])) is None, "without records"


def test_hacks_are_one_that_was_caught_and_one_that_was_not(tmp_path):
    """Of several the one that names nobody, else the last; valid ones and other faults are none."""
    first, second = ssp_run(tmp_path), ssp_run(tmp_path, "three-readings")
    caught = {"score": 0.0, "reason": "not verified"}
    first.append(
        "items",
        proposal(0, "of somebody of a town", **caught),
        proposal(4, "of Bo", **caught),
        proposal(4, "somebody of a town", 0.0, reason="form"),
        proposal(4, "somebody of a town", reason=""),
    )
    second.append("items", proposal(0, "early", 0.0), proposal(4, "late", 0.0))
    made = ssp.hacks(None, Frames([ssp_run(tmp_path, "random"), first, second]))
    assert written(made) == [
        ("caught: full, step 0: proposer of Ann", "<question> of somebody of a town</question>"),
        ("not caught: three-readings, step 4: proposer of Ann", "<question> late</question>"),
    ]
    assert made.runs == [first, second]
    assert ssp.hacks(None, Frames()) is None
    others = [ssp_run(tmp_path, name) for name in ("no-verification", "noise-0")]
    for run in others:
        run.append("items", proposal(0, run.variant, **caught), proposal(0, run.variant, 0.0))
    made = ssp.hacks(None, Frames(others))
    assert {text for _, text in written(made)} == {"<question> noise-0</question>"}
    assert made.runs == [others[1]], "once, where both are of one run"


def test_figure_1_has_the_gain_of_each_arm_by_level(tmp_path):
    """Level n is right in n tenths of answers before, in 5 + n tenths after, less by one in 10."""
    runs = [ssp_run(tmp_path, *which) for which in (("full", 0), ("full", 1), ("random", 0))]
    for run in runs:
        less = 0.1 * run.seed + 0.5 * (run.variant == "random")
        for step, level in ((0, 1), (0, 3), (9, 1), (9, 3)):
            row = dict.fromkeys(KEYS, "") | {"suite": "ladder", "decoding": "sampled"}
            row |= {"step": step, "difficulty": f"level {level}", "metric": "accuracy", "n": 10}
            value = 0.1 * level + (step == 9) * (0.5 - less)
            run.append("evals", {**row, "value": value, "low": 0.0, "high": 1.0})
    made = ssp.figure_1(None, gather(runs))
    gains = made.data.groupby(["variant", "level"])["value"].mean()
    assert gains["full"].to_dict() == pytest.approx({"1": 45, "3": 45})
    assert gains["random"].to_dict() == pytest.approx({"1": 0, "3": 0}, abs=1e-9)
    (ax,) = made.item.axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "3"]
    words = (ax.get_xlabel(), ax.get_ylabel())
    assert words == ("searches that a question takes", "gain (points)")
    labels = [text.get_text() for text in made.item.legends[0].get_texts()]
    assert labels == ["SSP (n=2)", "control: rewards permuted (n=1)"]
    assert ssp.figure_1(None, gather(runs[2:])) is None, "without SSP itself"
    plt.close(made.item)
