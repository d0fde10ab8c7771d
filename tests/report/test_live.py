"""Live curves: what is averaged, what is labelled, and when something is drawn at all."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from spnb.report import live
from spnb.report.live import LiveCurves, column, draw
from spnb.train.runs import open_run

METRICS = pd.DataFrame(
    {
        "step": [1, 2, 1, 2],
        "seed": [0, 0, 1, 1],
        "variant": ["full"] * 4,
        "loss": [4.0, 2.0, 2.0, 0.0],
        "reward/kuhn_poker/0": [1.0, 0.5, 0.0, 0.5],
        "reward/kuhn_poker/1": [-1.0, None, 1.0, 0.0],
    }
)


@pytest.fixture
def shown(monkeypatch):
    """Figures given to the notebook: ("new", figure) and ("update", figure)."""
    monkeypatch.setattr(live, "get_ipython", object)
    calls = []

    def display(figure, display_id):
        calls.append(("new", figure))
        return SimpleNamespace(update=lambda figure: calls.append(("update", figure)))

    monkeypatch.setattr(live, "display", display)
    return calls


def plan(folder, rows=()):
    """A stand-in for a plan: runs of two seeds, the first with these rows of metrics."""
    runs = [
        open_run(folder, {"paper": "p", "scale": "smoke", "variant": "full", "seed": seed})
        for seed in (0, 1)
    ]
    for row in rows:
        runs[0].append("metrics", row)
    return SimpleNamespace(all=lambda: runs)


def test_a_column_by_name_or_averaged_over_the_roles_that_have_it():
    assert column(METRICS, "loss").tolist() == [4, 2, 2, 0]
    assert column(METRICS, "reward/kuhn_poker/1").tolist()[2:] == [1, 0]
    assert column(METRICS, "reward/*").tolist() == [0, 0.5, 0.5, 0.25]


@pytest.mark.parametrize("key", ["rewards/*", "reward", "reward/", "kl"])
def test_an_unknown_metric_is_named_with_those_there_are(key):
    with pytest.raises(ValueError) as error:
        column(METRICS, key)
    assert str(error.value) == (
        f"metric is {key!r}; allowed: loss, reward/kuhn_poker/0, reward/kuhn_poker/1, seed, step, variant"
    )


def test_draw_gives_one_labelled_panel_a_metric_with_means_over_seeds():
    figure = draw(METRICS, ["loss", "reward/*"])
    assert [ax.get_xlabel() for ax in figure.axes] == ["training step", "training step"]
    assert [ax.get_ylabel() for ax in figure.axes] == ["loss", "reward"]
    lines = [ax.lines[0] for ax in figure.axes]
    assert [line.get_xdata().tolist() for line in lines] == [[1, 2], [1, 2]]
    assert lines[0].get_ydata().tolist() == [3, 1]
    assert lines[1].get_ydata().tolist() == pytest.approx([0.25, 0.375])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["full (n=2)"]
    plt.close(figure)


def test_without_runs_or_metrics_nothing_is_drawn(tmp_path, shown):
    curves = LiveCurves(["loss"], every=0)
    curves(SimpleNamespace(all=list))
    curves(plan(tmp_path))
    (tmp_path / "p/smoke/full/seed-0/metrics.jsonl").write_text(
        ""
    )  # opened, its first row not yet written
    curves(plan(tmp_path))
    assert shown == [] and curves.handle is None


def test_one_figure_is_drawn_then_updated_and_none_stays_open(tmp_path, shown):
    curves, before = LiveCurves(["loss"], every=0), plt.get_fignums()
    curves(plan(tmp_path, [{"step": 1, "loss": 3.0}]))
    curves(plan(tmp_path, [{"step": 2, "loss": 1.0}]))
    assert [kind for kind, _ in shown] == ["new", "update"]
    assert [figure.axes[0].lines[0].get_ydata().tolist() for _, figure in shown] == [[3], [3, 1]]
    assert plt.get_fignums() == before


def test_drawings_are_some_seconds_apart(tmp_path, shown, monkeypatch):
    seconds = iter([1000.0, 1000.0, 1009.9, 1010.0, 1010.0])
    monkeypatch.setattr(live.time, "monotonic", lambda: next(seconds))
    curves, running = LiveCurves(["loss"], every=10), plan(tmp_path, [{"step": 1, "loss": 3.0}])
    curves(running)
    assert len(shown) == 1
    curves(running)
    assert len(shown) == 1
    curves(running)
    assert len(shown) == 2
