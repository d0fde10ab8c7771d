"""Live curves: what is averaged, what is labelled, and when something is drawn at all."""

import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from spnb.report import live
from spnb.report.frame import INDEX, Frames
from spnb.report.live import LiveCurves, draw
from spnb.train.runs import open_run

ROWS = [  # variant, seed, step, metric, role, value
    *(("full", seed, step, "loss", "", 4.0 - seed - step) for seed in (0, 1) for step in (1, 2)),
    *(("full", 0, step, "reward", "poker/0", 0.5 * step) for step in (1, 2)),
    *(("full", 0, step, "reward", "poker/1", 0.0) for step in (1, 2)),
    *(("sft", 0, step, "reward", "turns", 1.0) for step in (1, 2)),
]
FRAMES = Frames(metrics=pd.DataFrame(ROWS, columns=[*INDEX, "metric", "role", "value"]))


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


@pytest.mark.parametrize("key", ["rewards/*", "reward", "kl"])
def test_an_unknown_metric_is_named_with_those_there_are(key):
    with pytest.raises(ValueError, match=f"metric is '{re.escape(key)}'.*allowed: loss, reward"):
        draw(FRAMES, [key])


def test_draw_gives_a_panel_a_metric_with_means_over_seeds_and_roles():
    figure = draw(FRAMES, ["loss", "reward/*"])
    loss, reward = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["loss", "reward"]
    assert loss.lines[0].get_xdata().tolist() == [1, 2]
    assert loss.lines[0].get_ydata().tolist() == [2.5, 1.5]
    assert [line.get_ydata().tolist() for line in reward.lines] == [[0.25, 0.5], [1, 1]]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["full (n=2)", "full (n=1)", "sft (n=1)"]
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
