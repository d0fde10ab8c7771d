"""Figures: the drawn numbers are the right ones, and colours and legends say what they should."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from spnb.report import plots


@pytest.fixture
def ax():
    """The only panel of a new figure."""
    with plots.style():
        _, (panel,) = plots.panels(1)
        yield panel
    mpl.pyplot.close(panel.figure)


def frame(values: dict[tuple[str, int], list[float]]) -> pd.DataFrame:
    """Long form of {(variant, seed): value at step 1, 2, ...}."""
    rows = [
        (v, s, step, y) for (v, s), series in values.items() for step, y in enumerate(series, 1)
    ]
    return pd.DataFrame(rows, columns=["variant", "seed", "step", "value"])


def labels(ax) -> list[str]:
    (legend,) = ax.figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_style_holds_inside_the_block_only() -> None:
    before = mpl.rcParams["axes.spines.top"], mpl.rcParams["figure.dpi"]
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False and mpl.rcParams["figure.dpi"] == 150
        sizes = [mpl.rcParams[f"{part}.labelsize"] for part in ("xtick", "ytick", "axes")]
        assert min(*sizes, mpl.rcParams["legend.fontsize"]) >= 10
    assert before == (mpl.rcParams["axes.spines.top"], mpl.rcParams["figure.dpi"])


def test_panels_have_the_house_width() -> None:
    figure, axes = plots.panels(2, height=3)
    assert len(axes) == 2 and figure.get_size_inches().tolist() == [plots.WIDTH, 3]
    mpl.pyplot.close(figure)


def test_a_curve_is_the_mean_over_seeds_with_its_t_interval(ax) -> None:
    plots.curve(ax, frame({("a", 0): [0.0, 1.0], ("a", 1): [2.0, 1.0]}), ["a"])
    (line,) = ax.lines
    assert line.get_xdata().tolist() == [1, 2] and line.get_ydata().tolist() == [1.0, 1.0]
    # Two seeds 0 and 2: standard error 1, t(0.975, 1) = 12.7062, so the band at step 1 runs from
    # -11.7062 to 13.7062.
    ends = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert ends.min() == pytest.approx(-11.7062, abs=1e-3) and ends.max() == pytest.approx(
        13.7062, abs=1e-3
    )
    assert labels(ax) == ["a (n=2)"]


def test_one_seed_draws_a_line_without_a_band_and_says_so(ax) -> None:
    plots.curve(ax, frame({("a", 0): [1.0, 2.0]}), ["a"])
    assert len(ax.lines) == 1 and len(ax.collections) == 0 and labels(ax) == ["a (n=1)"]


def test_rows_of_one_seed_are_averaged_first(ax) -> None:
    doubled = pd.concat(
        [frame({("a", 0): [0.0]}), frame({("a", 0): [1.0]}), frame({("a", 1): [2.5]})]
    )
    plots.curve(ax, doubled, ["a"])
    assert ax.lines[0].get_ydata().tolist() == [1.5] and labels(ax) == ["a (n=2)"]


def test_the_window_is_a_running_mean_within_a_seed(ax) -> None:
    plots.curve(ax, frame({("a", 0): [0.0, 2.0, 4.0]}), ["a"], 2)
    assert ax.lines[0].get_ydata().tolist() == [0.0, 1.0, 3.0]


def test_order_keeps_colour_and_line_style_where_a_variant_is_missing(ax) -> None:
    plots.curve(ax, frame({("b", 0): [1.0, 2.0]}), ["a", "b"])
    assert ax.lines[0].get_color() == plots.PALETTE[1]
    assert ax.lines[0].get_linestyle() == "--"


def test_bars_are_means_over_seeds_side_by_side_with_their_intervals(ax) -> None:
    """Seeds 1 and 3: mean 2, half width 12.706; an `x` that a hue lacks has no bar of it."""
    rows = [
        ("two words", "a", 0, 1.0),
        ("two words", "a", 1, 3.0),
        ("two words", "b", 0, 5.0),
        ("other", "a", 0, 4.0),
    ]
    frame = pd.DataFrame(rows, columns=["place", "kind", "seed", "value"])
    plots.bars(ax, frame, "place", "value", hue="kind", order=["a", "b"])
    bars = [bar for bar in ax.patches if bar.get_width()]  # without the legend's
    drawn = {(round(bar.get_x() + bar.get_width() / 2, 6), bar.get_height()) for bar in bars}
    assert drawn == {(-0.2, 2.0), (0.8, 4.0), (0.2, 5.0)}
    assert [text.get_text() for text in ax.get_xticklabels()] == ["two\nwords", "other"]
    ends = np.concatenate([line.get_ydata() for line in ax.lines])
    assert np.nanmax(ends) - np.nanmin(ends) == pytest.approx(2 * 12.7062, rel=1e-4)
    assert labels(ax) == ["a (n=2)", "b (n=1)"]


def test_panels_share_one_legend() -> None:
    with plots.style():
        figure, axes = plots.panels(2)
        for panel in axes:
            plots.curve(panel, frame({("a", 0): [1.0]}), ["a"])
    assert labels(axes[0]) == ["a (n=1)"]
    mpl.pyplot.close(figure)


@pytest.mark.parametrize("order", [["b"], list("abcdefghi")])
def test_variants_without_a_colour_are_refused(ax, order: list[str]) -> None:
    with pytest.raises(ValueError, match="variant is a; allowed: those in order=.*at most 8"):
        plots.curve(ax, frame({("a", 0): [1.0]}), order)
