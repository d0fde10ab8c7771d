"""Variants beside one of them: differences by hand, and what is refused."""

import math
from dataclasses import replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest

import spnb
from spnb.core.params import ParamError
from spnb.evaluate.items import record
from spnb.report import compare as module
from spnb.report.frame import KEYS, Measure, gather
from spnb.train.runs import RunError, open_run

T = 12.7062047
"""Student's t of one degree of freedom, 97.5 %."""


def right(root, paper, variant, seed, share, steps=4, suite="ladder", n=10):
    """A run of which this share of n answers is right after its steps."""
    params = {"paper": paper, "scale": "smoke", "variant": variant, "seed": seed}
    run = open_run(root, params)
    for step, value in ((0, 0.5), (steps, share)):
        scores = [float(place < round(value * n)) for place in range(n)]
        where = {"suite": suite, "decoding": "sampled"}
        rows = [record(score=s, item=str(at), sample=0, **where) for at, s in enumerate(scores)]
        run.append("items", *({"step": step, **row} for row in rows))
        numbers = {"metric": "accuracy", "value": value, "low": 0.0, "high": 1.0, "n": n}
        run.append("evals", {"step": step, **dict.fromkeys(KEYS, ""), **where, **numbers})
    run.finish(seconds=1, resumed=False)
    return run


def plan(*runs, paper="proposer", more=()):
    variants = list(dict.fromkeys([*(run.variant for run in runs), *more]))
    return SimpleNamespace(paper=paper, variants=variants, all=lambda: list(runs))


ENDS = {"full": (0.2, 0.4), "mine": (0.4, 0.8), "other": (0.2, 0.5)}


def ladder(root, **changes):
    return [
        right(root, "proposer", name, seed, share, **changes)
        for name, shares in ENDS.items()
        for seed, share in enumerate(shares)
    ]


@pytest.mark.slow
def test_differences_are_paired_by_seed(tmp_path):
    """20 and 40 points: 30, half of the width t * 10; 0 and 10: 5, t * 5."""
    made = spnb.compare(plan(*ladder(tmp_path)))
    table = made.table.set_index(["measure", "variant"])
    line = table.loc["all levels", "mine"]
    assert line["difference"] == pytest.approx(30) and line["n"] == 2
    assert line["smallest visible"] == pytest.approx(T * 10, rel=1e-4)
    assert (line["low"], line["high"]) == (pytest.approx(30 - T * 10, rel=1e-4), 100), "clipped"
    line = table.loc["all levels", "other"]
    assert line["difference"] == pytest.approx(5) and line["n"] == 2
    assert line["high"] == pytest.approx(5 + T * 5, rel=1e-4)
    assert list(made.table["variant"]) == ["mine", "other"], "no answer says if it is consistent"
    assert "minus full" in made.caption


def test_numbers_of_other_games_are_not_subtracted(tmp_path, monkeypatch):
    """`{games}` are each variant's own."""
    measure = Measure(suite="{games}", decoding="sampled", weights={"accuracy": 100})
    runs = [right(tmp_path, "p", name, 0, 0.5, suite=name) for name in ("a", "b")]
    runs = [replace(run, params={**run.params, "games": [run.variant]}) for run in runs]
    frames = gather(runs)
    with pytest.raises(RunError, match="variants a, b have no evaluated number in common"):
        module.differences(frames, {"games": measure}, "a")
    alike = [replace(run, params={**run.params, "games": ["a", "b"]}) for run in runs]
    both = Measure(suite="*", decoding="sampled", weights={"accuracy": 100})
    assert len(module.differences(gather(alike), {"games": both}, "a")) == 1


def test_against_another_the_sign_turns(tmp_path):
    table = spnb.compare(plan(*ladder(tmp_path)), against="mine").table.set_index("variant")
    assert table["difference"].to_dict() == pytest.approx({"full": -30, "other": -25})


@pytest.mark.slow
def test_the_plot_has_a_panel_a_measure_and_a_row_a_variant(tmp_path):
    before = plt.get_fignums()
    made = spnb.compare(plan(*ladder(tmp_path)))
    figure = made.figure
    (ax,) = figure.axes
    assert ax.get_title(loc="left") or ax.get_title() == "all levels"
    labels = [f"{row.variant}, n = {row.n}" for row in made.table.itertuples()]
    assert [text.get_text() for text in ax.get_yticklabels()] == labels
    assert ax.get_xlabel() == "difference (points)" and labels[0].startswith("mine, n = ")
    zero, *lines = ax.lines
    assert list(zero.get_xdata()) == [0, 0]
    assert lines[0].get_xdata()[1] == pytest.approx(30) and set(lines[0].get_ydata()) == {0}
    assert lines[1].get_xdata()[[0, 2]] == pytest.approx([5 - T * 5, 5 + T * 5], rel=1e-4)
    assert set(lines[1].get_ydata()) == {1} and ax.get_ylim() == (1.5, -0.5), "from above"
    assert plt.get_fignums() == before


@pytest.mark.slow
def test_without_reference_numbers_the_scores_of_the_suites(tmp_path):
    """A method that no folder of the reference has; and a paper's run without its main measures."""
    for paper in ("nobody", "spice"):
        runs = [
            right(tmp_path, paper, name, seed, share, suite="quiz")
            for name, shares in ENDS.items()
            for seed, share in enumerate(shares)
        ]
        table = spnb.compare(plan(*runs, paper=paper)).table.set_index("variant")
        assert set(table["measure"]) == {"quiz, sampled"}
        assert table["difference"].to_dict() == pytest.approx({"mine": 30, "other": 5})
        assert table.loc["mine", "high"] == 100


def test_a_suites_score_is_of_each_opponent_and_decoding(tmp_path):
    """Per step the mean over answers: (1 + 0.5 + 0) / 3 against an expert, 0.25 without."""
    run = open_run(tmp_path, {"paper": "p", "scale": "cpu", "variant": "a", "seed": 0})
    expert = {"opponent": "expert", "decoding": "greedy"}
    for step, scores in ((0, (0.0, 0.0, 0.0)), (4, (1.0, 0.5, 0.0))):
        rows = [record("quiz", str(at), score, **expert) for at, score in enumerate(scores)]
        run.append("items", *({"step": step, **one} for one in [*rows, record("quiz", "0", 0.25)]))
    frames, measures = module.suite_scores(gather([run]))
    found = {name: each.of_runs(frames)["value"].item() for name, each in measures.items()}
    assert found == {"quiz, against expert, greedy": pytest.approx(50), "quiz": 25}


def test_a_number_that_is_no_share_is_not_clipped(tmp_path):
    runs = []
    for variant, values in {"full": (1.0, 2.0), "mine": (3.0, 8.0)}.items():
        for seed, value in enumerate(values):
            where = {"paper": "spiral", "scale": "smoke", "variant": variant, "seed": seed}
            run = open_run(tmp_path, where)
            labels = dict.fromkeys(KEYS, "") | {"suite": "kuhn_poker", "metric": "exploitability"}
            numbers = {"value": value, "low": 0.0, "high": 1.0, "n": 1}
            run.append("evals", {"step": 4, **labels, **numbers})
            run.finish(seconds=1, resumed=False)
            runs.append(run)
    made = spnb.compare(plan(*runs, paper="spiral"))
    (line,) = made.table.to_dict("records")
    assert made.figure.axes[0].get_xlabel() == "difference", "no points"
    assert (line["measure"], line["difference"]) == ("exploitability", 4)
    assert line["high"] == pytest.approx(4 + T * 2, rel=1e-4)


def test_one_pair_has_no_interval(tmp_path):
    runs = [right(tmp_path, "proposer", name, 0, ENDS[name][0]) for name in ("full", "mine")]
    made = spnb.compare(plan(*runs))
    (line,) = made.table.to_dict("records")
    assert (line["difference"], line["n"]) == (pytest.approx(20), 1)
    assert math.isnan(line["low"]) and math.isnan(line["smallest visible"])


def test_it_is_shown_with_its_table(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(module, "display", shown.append)
    made = spnb.compare(plan(*ladder(tmp_path)))
    made._ipython_display_()
    assert shown[0] is made.figure and list(shown[1].columns) == module.COLUMNS


def test_variants_that_cannot_be_subtracted_are_named(tmp_path, monkeypatch):
    fewer = lambda *given: made(*given).query("variant != 'other'")  # noqa: E731
    made = module.differences
    monkeypatch.setattr(module, "differences", fewer)
    caption = spnb.compare(plan(*ladder(tmp_path))).caption
    assert caption.endswith("95 % intervals. Left out, of other games or documents: other.")


@pytest.mark.slow
def test_what_is_refused_is_said_in_one_sentence(tmp_path):
    full = [right(tmp_path, "proposer", "full", seed, 0.5) for seed in (0, 1)]
    mine = [right(tmp_path, "proposer", "mine", seed, 0.5, steps=6) for seed in (0, 1)]
    late = [right(tmp_path, "proposer", "late", 7, 0.5)]
    with pytest.raises(ParamError, match=r"variants is \['full'\]; allowed: two or more"):
        spnb.compare(plan(*full))
    with pytest.raises(ParamError, match="against is 'ful', which is unknown.*'full'"):
        spnb.compare(plan(*full, *late), against="ful")
    caption = spnb.compare(plan(*full, *mine)).caption
    assert caption.endswith("Each at its own last step: full 4, mine 6.")
    with pytest.raises(ParamError, match=r"seeds of late is \[7\]; allowed: full's, \[0, 1\]"):
        spnb.compare(plan(*full, *late))
    with pytest.raises(RunError, match="no finished run of more; run first"):
        spnb.compare(plan(*full, more=["more"]))
    for run in mine:
        (run.folder / "finished.json").unlink()
    with pytest.raises(RunError, match="no finished run of mine; run first"):
        spnb.compare(plan(*full, *mine))
