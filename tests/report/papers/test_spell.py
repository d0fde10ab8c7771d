"""SPELL's own exhibits: pass@k, levels and lengths counted by hand, on runs that a test writes."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from spnb.lab.clusters import TYPES
from spnb.report import curves, plots
from spnb.report.frame import KEYS, gather, read_yaml
from spnb.report.papers import spell
from spnb.report.tables import load_tables, settings_table
from spnb.train.plan import make_plan
from spnb.train.runs import open_run

PARAMS = {"paper": "spell", "scale": "smoke", "policy": "embedded/reader", "steps": 8}
PARAMS |= {"tasks": ["journey", "ledger"], "eval_documents": [2, 8], "eval_samples": 2}


def spell_run(root, variant="full", seed=0, right=(0, 2)):
    """A run with two questions a suite, two answers each, before and after 8 steps.

    `right`: how many of the four answers are right before and after; the first question's first.
    At eight documents one more is right after training.
    """
    run = open_run(root, {**PARAMS, "variant": variant, "seed": seed})
    for step, count in zip((0, 8), right, strict=True):
        for family in PARAMS["tasks"]:
            for documents in PARAMS["eval_documents"]:
                good = count + (documents == 8 and step == 8)
                where = dict.fromkeys(KEYS, "") | {"suite": f"{family}-{documents}"}
                answers = [(item, sample) for item in "01" for sample in (0, 1)]
                for place, (item, sample) in enumerate(answers):
                    one = {"step": step, **where, "item": item, "sample": sample, "kind": "exact"}
                    run.append("items", {**one, "score": float(place < good)})
                row = {"step": step, **where, "metric": "accuracy", "value": good / 4}
                run.append("evals", {**row, "low": 0.0, "high": 1.0, "n": 4})
    return run


def asked(run, step, **levels):
    """Proposals of a step: a list of levels for each task type."""
    for family, values in levels.items():
        for place, level in enumerate(values):
            where = dict.fromkeys(KEYS, "") | {"suite": "difficulty", "step": step}
            one = where | {"item": f"{family}{place}", "sample": 0, "kind": family, "score": 0.0}
            run.append("items", one | {"level": level})


def test_pass_at_k_has_means_and_types_and_the_start_is_measured_once(tmp_path):
    """Two of four answers right, both of one question: pass@1 and pass@2 are 1/2. Three: the other
    question has one of two, so pass@1 is 3/4 and pass@2 is 1."""
    runs = [spell_run(tmp_path, "rlvr"), spell_run(tmp_path), spell_run(tmp_path, seed=1)]
    data = spell.pass_curves(gather(runs))
    types = ["general QA, 8", "financial, 8"]
    assert list(data["panel"].unique()) == ["mean, 2 documents", "mean, 8 documents", *types]
    means = data[data["seed"].isna()].set_index(["panel", "variant", "k"])["value"].sort_index()
    assert means.index.is_unique
    for panel, of_two, of_three in (("mean, 8 documents", 75, 100), ("mean, 2 documents", 50, 50)):
        assert means[panel, "full"].tolist() == [of_two, of_three]
        assert means[panel, "start"].tolist() == [0, 0]
    assert means["financial, 8", "rlvr"].tolist() == [75, 100]
    assert set(data.loc[data["variant"] == "full", "seed"].dropna()) == {0, 1}


@pytest.mark.slow
def test_figure_3_marks_the_papers_pass_at_8(tmp_path):
    runs = [spell_run(tmp_path, "rlvr", right=(0, 1)), spell_run(tmp_path, "full")]
    made = spell.figure_3(None, gather(runs))
    few, many, *types = made.item.axes
    assert few.get_xlabel() == "answers k" and few.get_ylabel() == "pass@k (%)"
    assert [ax.get_ylabel() for ax in types] == ["", ""]
    lines = [each for each in many.collections if isinstance(each, LineCollection)]
    assert {float(each.get_segments()[0][0, 1]) for each in lines} == {66.9, 68.1, 74.5}
    assert lines[0].get_segments()[0][:, 0].tolist() == [7.4, 8.6], "at k = 8"
    note = made.item.legends[0].get_title().get_text().replace("\n", " ")
    assert note.endswith(curves.SHADES)
    assert {"panel", "variant", "k", "value"} <= set(made.data.columns)
    assert spell.figure_3(None, gather([spell_run(tmp_path, "random")])) is None
    plots.plt.close("all")


def test_the_shapes_are_those_that_the_variants_pay():
    wide = {"mapping": "gaussian", "sigma": 0.25}
    named = spell.unrun(["full", "pay-absolute-zero", "pay-r-zero", "sigma-1-4"])
    table = spell.shapes(named | {"wide": wide, "plugin": wide | {"mapping": "mine"}})
    values = table.set_index(["variant", "step"])["value"].unstack(0)
    ours = {"sigma-1-4": 1, "wide": 1}
    assert values.loc[0.5].to_dict() == {
        **{"full": 1, "pay-absolute-zero": 0.5, "pay-r-zero": 1},
        **ours,
    }
    assert (values["wide"] == values["sigma-1-4"]).all()
    assert values.loc[0.25, "wide"] == pytest.approx(np.exp(-1 / 2))
    assert values.loc[0.25, "full"] == pytest.approx(np.exp(-18 / 16))
    assert values.loc[0.25, "pay-absolute-zero"] == 0.75 and values.loc[0.25, "pay-r-zero"] == 0.5
    assert (values.loc[[0.0, 1.0]] == 0).all(axis=None)


def test_shapes_have_dots_at_eighths_and_are_named_where_no_run_names_them():
    with plots.style():
        figure, (ax,) = plots.panels()
        looks = curves.looks("spell", [])
        spell.draw_shapes(ax, spell.shapes(spell.unrun(["full", "pay-r-zero"])), looks, ["full"])
    lines, dots = ax.lines[::2], ax.lines[1::2]
    assert [len(each.get_xdata()) for each in dots] == [9, 9]
    assert dots[1].get_ydata()[:3] == pytest.approx([0, 0.25, 0.5])
    assert [min(each.get_xdata()) > 0 for each in lines] == [True, True]
    assert ax.get_legend_handles_labels()[1] == [looks["pay-r-zero"].label]
    plots.plt.close(figure)


def test_shares_of_levels_count_those_that_nobody_asked(tmp_path):
    runs = [spell_run(tmp_path, seed=seed) for seed in (0, 1)]
    for run in runs:
        asked(run, 0, journey=[1, 1, 2, 0], ledger=[3])
        asked(run, 8, journey=[5, 5, 5, 6], ledger=[0])
    table = spell.proposals(gather(runs))
    shares = table.set_index(["family", "when", "seed", "level"])["value"].sort_index()
    assert shares["journey", "start", 0].to_dict() == {
        **dict.fromkeys("0123456", 0.0),
        **{"0": 25.0, "1": 50.0, "2": 25.0},
    }
    assert shares["journey", "end", 1, "5"] == 75 and shares["ledger", "end", 1, "0"] == 100
    assert (shares.groupby(["family", "when", "seed"]).sum() == 100).all()


@pytest.mark.slow
def test_contexts_are_those_of_the_suites_and_grow_with_the_documents(tmp_path):
    plan = make_plan("spell", "smoke", variants=["rlvr"], runs=str(tmp_path))
    lengths = spell.contexts(plan.all()[0]).groupby("suite")["tokens"].agg(["min", "max", "size"])
    params = plan.params("rlvr")
    first, more = params.eval_documents
    for words in TYPES.values():
        one, few, many = (lengths.loc[f"{words}, {count}"] for count in (1, first, more))
        assert one["max"] < few["min"] and few["max"] < many["min"]
        assert one["size"] == 6 * params.eval_items, "one prompt a question, not one an answer"
    assert {*spell.OWN["spell/figure-6"].words.values()} < {*lengths.index} and len(
        lengths
    ) == 3 * 3 + 4


def timed_run(root, variant, responding):
    """A run whose steps take 10 seconds, 2 for updating; RLVR has no questioner."""
    run = open_run(root, {**PARAMS, "variant": variant, "seed": 0})
    for step, value in enumerate(responding, 1):
        phases = {"questioning": 0.0 if variant == "rlvr" else 1.0, "responding": value}
        row = {f"method/seconds/{name}": each for name, each in phases.items()}
        run.append("metrics", row | {"step": step, "seconds/update": 2.0, "seconds/step": 10.0})
    return run


def test_shares_of_seconds_are_medians_by_phase_and_half_of_the_training(tmp_path):
    """One slow step changes no median; the halves are steps 1 and 2, 3 and 4."""
    runs = [timed_run(tmp_path, "full", (1, 3, 5, 9)), timed_run(tmp_path, "rlvr", (2, 2, 2, 7))]
    runs[0].append("metrics", {"step": 5, "seconds/step": 90.0})
    frames = gather(runs)
    whole = spell.shares(frames, 1).set_index(["variant", "phase"])["value"]
    assert whole["full"].to_dict() == {"questioning": 10, "responding": 40, "updating": 20}
    assert whole["rlvr"].to_dict() == {"responding": 20, "updating": 20}
    halves = spell.shares(frames.only(["full"]), 2).set_index(["phase", "half"])["value"]
    assert halves["responding"].to_dict() == {"first": 20, "second": 70}
    made = spell.figure_7(None, frames)
    titles = [ax.get_title("left") or ax.get_title() for ax in made.item.axes]
    assert titles == ["All of the training", "SPELL"]
    (legend,) = made.item.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[:2] == ["SPELL (n=1)", "RLVR (n=1)"] and len(labels) == 4
    assert "(median): SPELL 10, RLVR 10." in legend.get_title().get_text()
    plots.plt.close("all")


def test_seconds_of_some_runs_alone_are_not_drawn(tmp_path):
    """Records that were unpacked have none; what is committed stays."""
    unpacked = open_run(tmp_path, {"paper": "spell", "scale": "cpu", "variant": "full", "seed": 0})
    unpacked.append("metrics", {"step": 1, "seconds/step": 10.0})
    timed = timed_run(tmp_path, "rlvr", (2, 2))
    assert spell.figure_7(None, gather([timed])) is not None
    assert spell.figure_7(None, gather([unpacked, timed])) is None
    plots.plt.close("all")


def test_the_words_of_suites():
    assert spell.suite_words("choice-16") == "multiple choice, 16"
    assert spell.suite_words("many-shot") == "after examples"


def test_models_stand_beside_the_papers(tmp_path):
    plan = make_plan("spell", "smoke", variants=["even", "full"], runs=str(tmp_path))
    table = settings_table(plan, gather([])).item
    assert table.loc["policy of the ablations"].tolist() == [
        "Qwen/Qwen2.5-7B-Instruct",
        "embedded/reader",
    ]
    assert table.loc["policy of another family", "here"] == "embedded/reader-even"
    assert table.loc["third size", "here"] == "-" and not table.map(lambda c: "{" in c).any(
        axis=None
    )
    assert len(table) == len(read_yaml("spell", "tables.yaml")["settings"]["rows"])


def test_a_table_takes_the_suites_of_its_runs_documents(tmp_path):
    """2 of 4 right at two documents, 3 of 4 at eight; the labels name the runs' parameter."""
    tables = load_tables("spell")
    column = next(each for each in tables["spell/table-1"].columns if each.name == "general QA")
    longer = next(each for each in tables["spell/table-1"].columns if each.name[-6:] == "longer")
    frames = gather([spell_run(tmp_path)])
    for each, value in ((column, 50), (longer, 75)):
        measure = each.measure.model_copy(update={"decoding": [""]})
        assert measure.of_runs(frames)["value"].tolist() == [value]
    assert column.paper == ["16K Frames", "16K LB-MQA"]


def test_the_figures_are_not_made_without_their_runs():
    nothing = gather([])
    made = (spell.figure_3, spell.figure_5, spell.figure_6, spell.figure_7)
    assert [each(SimpleNamespace(), nothing) for each in made] == [None] * 4


def test_figure_5_has_the_shapes_that_runs_pay_and_those_of_other_variants(tmp_path):
    """Entropies 0.5, 0.25 and 0.75, as running means of up to three."""
    identity = {"variant": "full", "seed": 0, "mapping": "gaussian", "sigma": 0.25}
    run = open_run(tmp_path, PARAMS | identity)
    for step, entropy in enumerate((0.5, 0.25, 0.75), 1):
        run.append("metrics", {"step": step, "entropy": entropy})
    made = spell.figure_5(None, gather([run]))
    shapes, entropy = made.item.axes
    titles = [ax.get_title("left") for ax in (shapes, entropy)]
    assert titles == [spell.SHAPES, "(b) Entropy"] and shapes.get_ylabel() == "pay"
    paid = made.data[made.data["quantity"] == spell.SHAPES].set_index(["variant", "step"])["value"]
    assert paid["full", 0.25] == pytest.approx(np.exp(-1 / 2)), "of the run's sigma"
    assert paid["pay-r-zero", 0.25] == 0.5
    assert entropy.lines[0].get_ydata() == pytest.approx([0.5, 0.375, 0.5])
    labels = {text.get_text() for text in made.item.legends[0].get_texts()}
    assert labels == {"Absolute Zero: 1 - p", "R-Zero: 1 - 2|p - 1/2|", "SPELL (n=1)"}
    plots.plt.close("all")


def test_figure_6_has_a_panel_a_type_and_all_test_contexts(tmp_path, monkeypatch):
    run = spell_run(tmp_path)
    asked(run, 0, journey=[1, 2], ledger=[3])
    asked(run, 8, journey=[5, 5], ledger=[0])
    lengths = pd.DataFrame({"suite": ["b", "b", "a"], "item": [0, 1, 0], "tokens": [90, 110, 50]})
    monkeypatch.setattr(spell, "contexts", lambda run: lengths)
    made = spell.figure_6(None, gather([run]))
    *panels, contexts = made.item.axes
    titles = [ax.get_title("left") or ax.get_title() for ax in panels]
    assert titles == ["Asked: general QA", "Asked: financial"]
    ticks = [text.get_text() for text in contexts.get_yticklabels()]
    assert ticks == ["a", "b"], "the shortest first"
    assert set(made.data["quantity"]) == {"proposals (%)", "tokens of a prompt"}
    plots.plt.close("all")
