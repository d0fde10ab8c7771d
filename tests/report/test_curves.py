"""Figures over training steps as data: lines, panels, what is missing, what is drawn."""

from dataclasses import replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from spnb import reference
from spnb.core.params import ParamError, variants
from spnb.report import frame, plots
from spnb.report.curves import Panel, curves_of, lines_with_intervals, load_curves, looks
from spnb.report.exhibits import catalogue
from spnb.report.frame import Measure
from spnb.report.plots import LINES, PALETTE, Look
from spnb.report.tables import load_own
from tests.report.test_tables import rows

MEASURES = {
    "games": Measure(suite="*", opponent="random", weights={"win": 100, "draw": 50}),
    "tokens": Measure(source="metrics", role="*", weights={"length": 1}),
}
LOOKS = {
    "none": Look("nothing", PALETTE[0]),
    "full": Look("with", PALETTE[1]),
    "other": Look("without", PALETTE[2]),
}
CELL = ["spiral/figure-9", "REINFORCE without RAE"]
BEFORE, AFTER = ([*CELL, f"Math score {when} collapse (%)"] for when in ("before", "after"))
FIGURE = {
    "title": "What it is",
    "caption": "What is shown.",
    "protocol": "How.",
    "note": "The paper has {0:g} %.",
    "printed": [AFTER],
    "variants": ["none", "full", "other"],
    "panels": {
        "Score": {
            "measure": "games",
            "label": "score (%)",
            "levels": {"chance": 50},
            "paper": {"full": [BEFORE, AFTER], "none": [BEFORE]},
        },
        "Length": {
            "measure": "tokens",
            "label": "tokens",
            "window": 2,
            "variants": ["other"],
            "ylim": [0, 250],
        },
        "Never measured": {"measure": "games", "variants": ["none"]},
    },
}


@pytest.fixture
def curves():
    """The figure of the entry above."""
    yield curves_of("spiral/figure-6", FIGURE, MEASURES, LOOKS)
    plt.close("all")


@pytest.fixture(autouse=True)
def nobodys_own(monkeypatch):
    """`other` is no variant of a user's own."""
    named = frame.named_variants
    monkeypatch.setattr(frame, "named_variants", lambda paper: named(paper) | {"other"})


def frames():
    """The rows of runs that have these variants."""
    runs = [SimpleNamespace(paper="spiral", variant=name) for name in ("full", "other")]
    return replace(rows(), runs=runs)


def means(ax):
    """The values of the thick lines."""
    return [list(line.get_ydata()) for line in ax.lines if line.get_linewidth() == 1.9]


def test_a_figure_has_a_panel_a_measure_and_a_line_a_variant(curves):
    data = curves.data(frames())
    assert list(data.columns) == ["variant", "seed", "step", "value", "quantity"]
    assert set(data.loc[data["quantity"] == "Length", "variant"]) == {"other"}
    figure = curves.draw(data)
    score, length = figure.axes  # nothing is known of the third panel
    steps = sorted(data.loc[data["quantity"] == "Score", "step"].unique())
    expected = data[data["quantity"] == "Score"].groupby(["variant", "step"])["value"].mean()
    drawn = [values for values in means(score) if len(values) == len(steps)]
    assert drawn == [expected["full"].tolist(), expected["other"].tolist()]
    thick = [line for line in score.lines if line.get_linewidth() == 1.9]
    assert thick[0].get_color() == PALETTE[1], "a variant without runs keeps its colour"
    own = data[data["quantity"] == "Length"].groupby("step")["value"].mean()
    assert means(length)[0][1] == pytest.approx(own.iloc[:2].mean()), "window of two"
    assert (score.get_ylabel(), length.get_ylabel()) == ("score (%)", "tokens")
    assert score.get_ylim()[0] == 0 and length.get_ylim() == (0, 250), "a panel's own"
    wide = curves.model_copy(update={"layout": "AAB"}).draw(data)
    assert [len(ax.get_subplotspec().colspan) for ax in wide.axes] == [2, 1]
    empty = [ax for ax in curves.content(frames()).item.axes if not ax.lines]
    assert ["not in these runs" in [text.get_text() for text in ax.texts] for ax in empty] == [True]
    runs = [*frames().runs, SimpleNamespace(paper="spiral", variant="no-rae")]
    shown = curves.content(replace(frames(), runs=runs)).runs
    assert [run.variant for run in shown] == ["full", "other"], "those that it shows"


def test_a_variant_with_a_further_cell_takes_no_line_away(curves):
    """Of the steps of one variant those with all of its cells count, not those of another."""
    data = frames()
    more = data.metrics[data.metrics["variant"] == "other"].assign(role="a further one")
    both = replace(data, metrics=pd.concat([data.metrics, more]))
    panel = Panel(measure=MEASURES["tokens"])
    assert {*panel.data(both, ["full", "other"])["variant"]} == {"full", "other"}


def test_the_picture_has_its_title_the_words_and_the_papers_numbers(curves):
    figure = curves.draw(curves.data(frames()))
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [text.split(" (n=")[0] for text in legend] == ["with", "without", "paper"]
    assert figure.get_suptitle() == "What it is"
    note = figure.legends[0].get_title().get_text().replace("\n", " ")
    assert note == f"The paper has 12 %. {plots.KEY}"
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    values = [list(line.get_ydata()) for line in dashed if len(line.get_ydata())]
    assert values == [[12, 12], [35, 35]], "not that of a variant without runs"
    assert [text.get_text() for text in figure.axes[0].texts] == ["chance"]
    assert curves.caption.startswith("What is shown. ") and "seeds" in curves.caption


def test_a_figure_needs_one_of_its_variants_or_all(curves):
    assert curves.missing(["full"]) == [] and len(curves.missing(["sft"])) == 3
    whole = curves.model_copy(update={"whole": True})
    assert whole.missing(["full", "none"]) == ["other"]


def test_a_panel_may_have_several_measures_of_one_variant():
    """The lengths of two roles: s + seed and 10 s at step s; a colour and a style each."""
    roles = {
        name: Measure(source="metrics", role=name, weights={"length": 1}) for name in ("x", "y")
    }
    lines = {
        "first": {"measure": "x", "variant": "full", "colour": 3},
        "second": {"measure": "y", "variant": "full", "colour": 3, "line": 2},
        "nobody's": {"measure": "x", "variant": "none", "colour": 4},
    }
    entry = {**FIGURE, "panels": {"Lengths": {"lines": lines}}}
    figure = curves_of("spiral/figure-6", entry, MEASURES | roles, LOOKS)
    data = figure.data(frames())
    means = data.groupby(["variant", "step"])["value"].mean()
    assert set(data["variant"]) == {"first", "second"} and set(data["quantity"]) == {"Lengths"}
    assert means["first", 4] == 4.5 and means["second", 4] == 40
    drawn = figure.draw(data)
    thick = [line for line in drawn.axes[0].lines if line.get_linewidth() == 1.9]
    assert [line.get_color() for line in thick] == [PALETTE[3], PALETTE[3]]
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert labels == ["first (n=2)", "second (n=2)"]
    plt.close("all")


def test_lines_over_levels_have_means_seeds_and_intervals():
    """Two levels in the order of the rows; two seeds of `full`, means alone of the others."""
    levels = ("level 2", "level 10")
    of = {"full": [(40, 30, 55), (20, 15, 22)], "other": [(7, 6, 9), (5, 4, 6)]}
    of["start"] = [(10, 9, 13), (8, 7, 9)]
    rows = [(name, levels[at], None, *of[name][at]) for name in of for at in (0, 1)]
    seeds = [(35, 18), (45, 22)]
    rows += [("full", levels[at], n, seeds[n][at], None, None) for n in (0, 1) for at in (0, 1)]
    columns = ["variant", "difficulty", "seed", "value", "low", "high"]
    table = pd.DataFrame(rows, columns=columns).astype({"seed": "Int64", "low": float})
    with plots.style():
        figure, (ax,) = plots.panels()
        ax.set_xlabel("training step")
        order = {**LOOKS, "start": Look("before", "0.3")}
        lines_with_intervals(ax, table, "difficulty", order)
    thin = [list(line.get_ydata()) for line in ax.lines if line.get_linewidth() == 0.6]
    assert thin == [[35, 18], [45, 22]] and list(ax.lines[0].get_xdata()) == [1, 2]
    assert means(ax) == [[40, 20], [7, 5], [10, 8]]
    ends = [each.get_paths()[0].vertices[:, 1] for each in ax.collections]
    assert [(one.min(), one.max()) for one in ends] == [(15, 55), (4, 9), (7, 13)]
    assert ax.get_legend_handles_labels()[1] == ["with (n=2)", "without (n=1)", "before"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["2", "10"]
    assert ax.get_xlabel() == "level"
    plt.close(figure)


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        ({}, "both measure and lines, or none"),
        (
            {
                "measure": "games",
                "lines": {"a": {"measure": "games", "variant": "full", "colour": 1}},
            },
            "both measure and lines, or none",
        ),
        ({"lines": {"a": {"measure": "gamse", "variant": "full", "colour": 1}}}, "is 'gamse'"),
        ({"lines": {"a": {"measure": "games", "variant": "full", "colour": 9}}}, r"a.colour is 9"),
    ],
)
def test_a_panel_has_one_measure_or_lines(panel, message):
    with pytest.raises(ParamError, match=message):
        curves_of("spiral/figure-6", {**FIGURE, "panels": {"A": panel}}, MEASURES, LOOKS)


def test_a_cell_that_the_paper_does_not_have_is_refused():
    panel = FIGURE["panels"]["Score"] | {"paper": {"full": [[*CELL, "Math score"]]}}
    with pytest.raises(KeyError, match="Math score before collapse"):
        curves_of("spiral/figure-6", {**FIGURE, "panels": {"Score": panel}}, MEASURES, LOOKS)
    with pytest.raises(ParamError, match="spiral/figure-6: measure is 'score'"):
        entry = {**FIGURE, "panels": {"Score": {"measure": "score"}}}
        curves_of("spiral/figure-6", entry, MEASURES, LOOKS)


@pytest.mark.parametrize("paper", ["spiral", "spell", "spice", "rlvr", "proposer"])
def test_every_entry_has_its_variants_and_its_exhibit(paper):
    entries = load_curves(paper)
    assert entries
    for exhibit, entry in entries.items():
        assert exhibit in catalogue() and set(entry.variants) <= set(variants(paper)), exhibit
        panels = entry.panels.values()
        shown = [name for panel in panels for name in panel.variants]
        shown += [line.variant for panel in panels for line in panel.lines.values()]
        with_paper = [name for panel in panels for name in panel.paper]
        assert {*shown, *with_paper} <= set(entry.variants)
        assert entry.note.format(*entry.printed).count("{") == 0
        windows = {panel.window for panel in panels}
        for text in (entry.note, entry.caption):
            assert windows == {1} or "running mean" in text.lower(), exhibit


@pytest.mark.parametrize("paper", ["spiral", "spell", "spice", "scope", "ssp", "rlvr", "proposer"])
def test_every_variant_of_a_paper_has_a_look_of_its_own(paper):
    words = [entry.words for entry in load_own(paper).values()]
    by_reward = {
        f"{one}-{at}" for w in words for at in w.get("conditions", ()) for one in w["rewards"]
    }
    assert len(by_reward) == (35 if paper == "proposer" else 0), "drawn by their rewards' looks"
    own = looks(paper, [name for name in variants(paper) if name not in by_reward])
    assert len({look[1:] for look in own.values()}) == len(own)
    assert len({look.label for look in own.values()}) == len(own)


def test_a_paper_without_the_section_has_names_and_slots_in_order():
    assert "shapes" not in reference.sources("figures.yaml")
    assert looks("shapes", ["a", "b"]) == {"a": Look("a", PALETTE[0]), "b": Look("b", PALETTE[1])}
    assert looks("spiral", ["new"])["new"].label == "new"
    assert looks("spiral", [])["full"] == Look("self-play with RAE", PALETTE[0], LINES[0])
