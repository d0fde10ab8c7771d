"""Live curves: what is averaged, what is labelled, and when something is drawn at all."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from spnb.report import live
from spnb.report.frame import INDEX, KEYS, RESULTS, Frames
from spnb.report.live import LiveCurves, draw
from spnb.train.runs import RunError, open_run

ROWS = [  # variant, seed, step, metric, role, value
    *(("full", seed, step, "loss", "", 4.0 - seed - step) for seed in (0, 1) for step in (1, 2)),
    *(("full", 0, step, "reward", "poker/0", 0.5 * step) for step in (1, 2)),
    *(("full", 0, step, "reward", "poker/1", 0.0) for step in (1, 2)),
    *(("sft", 0, step, "reward", "turns", 1.0) for step in (1, 2)),
]
GAMES = ["TicTacToe-v0", "kuhn_poker"]
RUNS = [
    SimpleNamespace(paper="spiral", variant=name, params={"games": GAMES})
    for name in ("full", "sft")
]


def frames() -> Frames:
    """The metrics above, and a score against random play of a quarter won, half drawn; in a game
    that was not trained all matches are won."""
    labels = dict.fromkeys(KEYS, "") | {"opponent": "random"}
    at = {"variant": "full", "seed": 0, "step": 0, **labels}
    results = [
        {**at, "suite": game, "metric": metric, "value": value}
        for game in GAMES
        for metric, value in (("win", 0.25), ("draw", 0.5))
    ]
    other = {**at, "suite": "Snake-v0"}
    results += [other | {"metric": "win", "value": 1.0}, other | {"metric": "draw", "value": 0.0}]
    results = pd.DataFrame(results).reindex(columns=RESULTS)
    return Frames(RUNS, results, pd.DataFrame(ROWS, columns=[*INDEX, "metric", "role", "value"]))


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
    return SimpleNamespace(all=lambda: runs, paper="p")


def values(ax) -> list[list[float]]:
    """The means of a panel."""
    return [list(line.get_ydata()) for line in ax.lines if line.get_linewidth() == 1.9]


def test_a_panel_is_a_measure_or_a_metric_in_words():
    panels = {"score (%)": "training games", "loss": "loss", "reward": "reward"}
    figure = draw(frames(), "spiral", panels | {"first seat": "reward/*/0"})
    score, loss, reward, first = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == [*panels, "first seat"]
    assert values(score) == [[50]] and values(loss) == [[2.5, 1.5]]
    assert values(reward) == [[0.25, 0.5], [1, 1]], "mean over roles, by variant"
    assert values(first) == [[0.5, 1]]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "self-play with RAE (n=1)" in legend and "experts' games imitated (n=1)" in legend
    plt.close(figure)


def test_a_panel_without_numbers_says_why():
    panels = {"a": "lenght", "b": "poker, expert", "c": "loss"}
    figure = draw(frames(), "spiral", panels)
    texts = [" ".join(text.get_text() for text in ax.texts) for ax in figure.axes]
    assert texts[0].startswith("panel is 'lenght', which is") and "loss" in texts[0]
    assert texts[1:] == ["not measured yet", ""]
    plt.close(figure)


def test_without_runs_or_metrics_nothing_is_drawn(tmp_path, shown):
    curves = LiveCurves(["loss"], every=0)
    curves(SimpleNamespace(all=list, paper="p"))
    curves(plan(tmp_path))
    path = tmp_path / "p/smoke/full/seed-0/metrics.jsonl"
    path.write_text("")  # opened, its first row not yet written
    curves(plan(tmp_path))
    path.write_text('{"step": 1, "lo')  # half a row
    curves(plan(tmp_path))
    assert shown == [] and curves.handle is None


def test_what_cannot_be_read_now_is_read_next_time(tmp_path, shown, monkeypatch):
    curves, running = LiveCurves(["loss"], every=0), plan(tmp_path, [{"step": 1, "loss": 3.0}])
    for error in (RunError("line 1 is damaged"), FileNotFoundError("gone")):
        with monkeypatch.context() as broken:
            broken.setattr(live, "gather", lambda runs, error=error: (_ for _ in ()).throw(error))
            curves(running)
    assert shown == []
    curves(running)
    assert len(shown) == 1


def test_outside_of_a_notebook_nothing_is_drawn(tmp_path, shown, monkeypatch):
    monkeypatch.setattr(live, "get_ipython", lambda: None)
    LiveCurves(["loss"], every=0)(plan(tmp_path, [{"step": 1, "loss": 3.0}]))
    assert shown == []


def test_one_figure_is_drawn_then_updated_and_none_stays_open(tmp_path, shown):
    curves, before = LiveCurves({"the loss": "loss"}, every=0), plt.get_fignums()
    curves(plan(tmp_path, [{"step": 1, "loss": 3.0}]))
    curves.drawn = 0.0
    curves(plan(tmp_path, [{"step": 2, "loss": 1.0}]))
    assert [kind for kind, _ in shown] == ["new", "update"]
    assert [values(figure.axes[0]) for _, figure in shown] == [[[3]], [[3, 1]]]
    assert shown[0][1].axes[0].get_title(loc="left") == "the loss"
    assert plt.get_fignums() == before


def test_drawings_are_some_seconds_apart(tmp_path, shown, monkeypatch):
    """Ten seconds from a start to the next; where one takes two, twenty."""
    seconds = iter([0.0, 0.0, 0.0, 9.9, 10.0, 10.0, 12.0, 29.9, 30.0, 30.0, 30.0])
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    curves, running = LiveCurves(["loss"], every=10), plan(tmp_path, [{"step": 1, "loss": 3.0}])
    curves(running)
    assert len(shown) == 1
    curves(running)
    assert len(shown) == 1
    for count in (2, 2, 3):
        curves(running)
        assert len(shown) == count
