"""Figures over training steps as data: lines, panels, what is missing, what is drawn."""

import matplotlib.pyplot as plt
import pytest

from spnb.core.params import variants
from spnb.report.curves import curves_of, load_curves
from spnb.report.exhibits import owed
from spnb.report.plots import PALETTE
from tests.report.test_tables import MEASURES, TEXTS, rows

FIGURE = {
    **TEXTS,
    "variants": {"none": "nothing", "full": "with", "other": "without"},
    "panels": {
        "Score": {"measure": "games", "label": "score (%)"},
        "Length": {"measure": "tokens", "label": "tokens", "window": 2, "variants": ["other"]},
    },
}


def test_a_figure_has_a_panel_a_measure_and_a_line_a_variant():
    curves = curves_of("spiral/figure-6", FIGURE, MEASURES)
    data = curves.data(rows())
    assert list(data.columns) == ["variant", "seed", "step", "value", "quantity"]
    assert set(data.loc[data["quantity"] == "Length", "variant"]) == {"other"}
    figure = curves.draw(data)
    score, length = figure.axes
    assert [line.get_ydata().tolist() for line in score.lines] == [[37.5, 50.0, 62.5]] * 2
    assert score.lines[0].get_color() == PALETTE[1], "a variant without runs keeps its colour"
    assert length.lines[0].get_ydata()[:2] == pytest.approx([(1.5 + 10) / 2, (2 + 15) / 2])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["with (n=2)", "without (n=2)"]
    assert (score.get_ylabel(), length.get_ylabel()) == ("score (%)", "tokens")
    plt.close(figure)


def test_a_figure_needs_one_of_its_variants_or_all():
    curves = curves_of("spiral/figure-6", FIGURE, MEASURES)
    assert curves.missing(["full"]) == [] and len(curves.missing(["sft"])) == 3
    whole = curves.model_copy(update={"whole": True})
    assert whole.missing(["full", "none"]) == ["other"]


@pytest.mark.parametrize("paper", ["spiral", "rlvr", "proposer"])
def test_every_entry_has_its_variants_and_its_exhibit(paper):
    entries = load_curves(paper)
    assert entries
    for exhibit, entry in entries.items():
        assert exhibit in owed() and set(entry.variants) <= set(variants(paper)), exhibit
        shown = [name for panel in entry.panels.values() for name in panel.variants]
        assert set(shown) <= set(entry.variants)
