"""Figures: the drawn numbers are the right ones, and colours and legends say what they should."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from spnb.report import plots
from spnb.report.plots import LINES, PALETTE, Look


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


def drawn(ax, width=1.9) -> list[list[float]]:
    """The values of the lines of that width, the means'."""
    return [list(line.get_ydata()) for line in ax.lines if line.get_linewidth() == width]


def test_style_holds_inside_the_block_only() -> None:
    before = mpl.rcParams["axes.spines.top"], mpl.rcParams["figure.dpi"]
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False and mpl.rcParams["figure.dpi"] == 150
        sizes = [mpl.rcParams[f"{part}.labelsize"] for part in ("xtick", "ytick", "axes")]
        assert min(*sizes, mpl.rcParams["legend.fontsize"]) >= 8.5
    assert before == (mpl.rcParams["axes.spines.top"], mpl.rcParams["figure.dpi"])


def test_panels_have_the_house_width() -> None:
    figure, axes = plots.panels(2, height=3)
    assert len(axes) == 2 and figure.get_size_inches().tolist() == [plots.WIDTH, 3]
    mpl.pyplot.close(figure)


def test_few_steps_are_means_with_seeds_as_dots_and_error_bars_within_the_seeds(ax) -> None:
    plots.curve(ax, frame({("a", s): [0.0, 1.0] for s in (0, 1)} | {("a", 2): [9.0, 1.0]}), ["a"])
    assert drawn(ax)[0] == [3.0, 1.0]
    dots, bars = ax.collections
    assert sorted(dots.get_offsets()[:, 1]) == [0, 0, 1, 1, 1, 9]
    low, high = bars.get_segments()[0][:, 1]
    # Of 27 draws of three seeds 8 are 0 0 0 (mean 0) and one is 9 9 9: the 2.5 % ends are 0 and 9.
    assert (low, high) == (0, 9), "a t-interval would run from -9.9 to 15.9"
    plots.legend_below(ax.figure)
    assert labels(ax) == ["a (n=3)"]


def test_few_steps_are_up_to_eight_and_no_line_of_theirs_is_broken(ax) -> None:
    plots.curve(ax, frame({("a", seed): [1.0] * 8 for seed in (0, 1)}), ["a"])
    assert len(ax.collections) == 2, "dots and error bars"
    rows = [("b", 0, step, 3.0) for step in (0, 1, 2, 40)]
    apart = pd.DataFrame(rows, columns=["variant", "seed", "step", "value"])
    plots.curve(ax, apart, ["b"])
    assert list(ax.lines[-1].get_xdata()) == [0, 1, 2, 40] and drawn(ax)[-1] == [3.0] * 4


def test_many_steps_are_a_band_and_a_thin_line_a_seed(ax) -> None:
    steps = plots.FEW + 1
    plots.curve(ax, frame({("a", 0): [0.0] * steps, ("a", 1): [2.0] * steps}), ["a"])
    assert drawn(ax) == [[1.0] * steps]
    assert drawn(ax, 0.6) == [[0.0] * steps, [2.0] * steps]
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0, 2)


def test_a_crowd_of_thin_lines_is_left_out(ax) -> None:
    steps = plots.FEW + 2
    rows = [("a", seed, step, seed) for seed in range(plots.CROWD + 1) for step in range(steps)]
    frame = pd.DataFrame(rows, columns=["variant", "seed", "step", "value"])
    plots.curve(ax, frame, ["a"])
    assert len(ax.lines) == 1 and ax.collections, "the mean and its band"
    plots.curve(ax, frame[frame["seed"] > 0], ["a"])
    assert len(ax.lines) == 2 + plots.CROWD


def test_variants_stand_side_by_side_where_there_are_few_steps(ax) -> None:
    plots.curve(ax, frame({("a", 0): [1.0, 2.0], ("b", 0): [3.0, 4.0]}), ["a", "b"])
    first, second = (line.get_xdata() for line in ax.lines)
    assert first == pytest.approx(np.array([1, 2]) - 0.01875)  # 0.075 of the span for both
    assert second == pytest.approx(np.array([1, 2]) + 0.01875)


def test_few_steps_are_all_marked_on_the_axis(ax) -> None:
    plots.curve(ax, frame({("a", 0): [1.0] * plots.TICKS}), ["a"])
    assert ax.get_xticks().tolist() == list(range(1, plots.TICKS + 1))


def test_one_seed_draws_a_line_alone_and_says_so(ax) -> None:
    plots.curve(ax, frame({("a", 0): [1.0, 2.0]}), ["a"])
    plots.legend_below(ax.figure)
    assert len(ax.lines) == 1 and len(ax.collections) == 0 and labels(ax) == ["a (n=1)"]


def test_rows_of_one_seed_are_averaged_first(ax) -> None:
    doubled = pd.concat(
        [frame({("a", 0): [0.0]}), frame({("a", 0): [1.0]}), frame({("a", 1): [2.5]})]
    )
    plots.curve(ax, doubled, ["a"])
    assert drawn(ax)[0] == [1.5]


def test_the_window_is_a_running_mean_within_a_seed(ax) -> None:
    plots.curve(ax, frame({("a", 0): [0.0, 2.0, 4.0]}), ["a"], 2)
    assert ax.lines[0].get_ydata().tolist() == [0.0, 1.0, 3.0]


def test_a_line_is_broken_where_steps_were_not_measured(ax) -> None:
    """Two lines, and no mean over both; a gap of 3 breaks nothing; a step alone is a dot."""
    steps = [*range(1, 9), *range(13, 19), 21, 40]
    rows = [{"variant": "a", "seed": 0, "step": s, "value": float(s > 9)} for s in steps]
    plots.curve(ax, pd.DataFrame(rows), ["a"], 3)
    lines = [line.get_ydata().tolist() for line in ax.lines]
    assert lines == [[0.0] * 8, [1.0] * 7, [1.0]]
    assert [line.get_marker() for line in ax.lines] == ["None", "None", "o"]
    plots.legend_below(ax.figure)
    assert labels(ax) == ["a (n=1)"]


def test_a_variant_keeps_its_look_where_another_is_missing(ax) -> None:
    plots.curve(ax, frame({("b", 0): [1.0, 2.0]}), ["a", "b"])
    assert ax.lines[0].get_color() == PALETTE[1]
    order = {"a": Look("first", PALETTE[0]), "b": Look("in words", PALETTE[3], LINES[1])}
    plots.curve(ax, frame({("b", 0): [1.0, 2.0]}), order)
    assert ax.lines[1].get_color() == PALETTE[3] and ax.lines[1].get_linestyle() != "-"
    plots.legend_below(ax.figure)
    assert labels(ax) == ["b (n=1)", "in words (n=1)"]


def test_free_looks_are_those_that_are_not_used() -> None:
    names = [f"v{number}" for number in range(9)]
    looks = plots.free_looks(names)
    assert [looks[name][1:] for name in names[:2]] == [(PALETTE[0], "-"), (PALETTE[1], "-")]
    assert looks["v8"] == Look("v8", PALETTE[0], LINES[1]), "then the line styles"
    used = {"full": Look("self-play", PALETTE[0])}
    assert plots.free_looks(["other"], used)["other"] == Look("other", PALETTE[1])
    many = plots.free_looks([str(number) for number in range(40)])
    assert len(many) == 40


def test_bars_are_means_over_seeds_with_dots_and_the_papers_numbers_dashed(ax) -> None:
    """Seeds 1 and 3: mean 2, interval 1 to 3; an `x` that a hue lacks has no bar of it."""
    rows = [
        ("two words", "a", 0, 1.0),
        ("two words", "a", 1, 3.0),
        ("two words", "b", 0, 5.0),
        ("other", "a", 0, 4.0),
    ]
    frame = pd.DataFrame(rows, columns=["place", "kind", "seed", "value"])
    how = {"hue": "kind", "order": ["a", "b"], "paper": {"other": 7.5}}
    plots.bars(ax, frame, "place", "value", **how)
    bars = [bar for bar in ax.patches if bar.get_width()]  # without the legend's
    heights = {(round(bar.get_x() + bar.get_width() / 2, 6), bar.get_height()) for bar in bars}
    assert heights == {(-0.2, 2.0), (0.8, 4.0), (0.2, 5.0)}
    assert [text.get_text() for text in ax.get_xticklabels()] == ["two\nwords", "other"]
    ends = np.concatenate([line.get_ydata() for line in ax.lines])
    assert (np.nanmin(ends), np.nanmax(ends)) == (1, 3)
    (mark,) = ax.collections[-1].get_segments()
    assert mark.tolist() == [[0.55, 7.5], [1.45, 7.5]]
    points = np.concatenate([dots.get_offsets() for dots in ax.collections[:-1]])
    assert sorted(points[:, 1]) == [1, 3, 4, 5]
    assert labels(ax) == ["a (n=2)", "b (n=1)", "paper"]


def test_bars_of_one_seed_have_no_dots(ax) -> None:
    table = pd.DataFrame({"place": ["x", "y"], "kind": "a", "seed": 3, "value": [1.0, 2.0]})
    plots.bars(ax, table, "place", "value", hue="kind", order=["a"])
    assert not [each for each in ax.collections if len(each.get_offsets())]
    assert labels(ax) == ["a (n=1)"]


def test_bars_of_one_colour_differ_by_their_hatch(ax) -> None:
    rows = [("x", kind, seed, 1.0) for kind in ("a", "b") for seed in (0, 1)]
    frame = pd.DataFrame(rows, columns=["place", "kind", "seed", "value"])
    looks = {"a": Look("a", PALETTE[4]), "b": Look("b", PALETTE[4], LINES[1])}
    plots.bars(ax, frame, "place", "value", hue="kind", order=looks)
    first, second = ax.containers
    assert (first[0].get_hatch(), second[0].get_hatch()) == ("", "///")
    legend = ax.figure.legends[0]
    assert [handle.get_hatch() for handle in legend.legend_handles] == ["", "///"]


def test_panels_share_one_legend_with_a_note() -> None:
    with plots.style():
        figure, axes = plots.panels(2)
        for panel in axes:
            plots.curve(panel, frame({("a", 0): [1.0]}), ["a"])
        plots.legend_below(figure, note="smoothed")
    assert labels(axes[0]) == ["a (n=1)"]
    assert figure.legends[0].get_title().get_text() == "smoothed"
    mpl.pyplot.close(figure)


@pytest.mark.parametrize(
    ("count", "letters", "columns"), [(4, 5, 4), (4, 30, 2), (7, 20, 3), (7, 60, 1)]
)
def test_a_legend_has_as_many_columns_as_there_is_room_for(ax, count, letters, columns) -> None:
    for number in range(count):
        ax.plot([0], [0], label=f"{number}".ljust(letters, "x"))
    plots.legend_below(ax.figure)
    assert ax.figure.legends[0]._ncols == columns


def test_the_papers_numbers_are_dashed_and_levels_are_named(ax) -> None:
    ax.plot([0, 30], [1, 2])
    plots.paper_line(ax, [35.0, 12.0], "red")
    plots.paper_line(ax, [0.1], "blue")
    end, start, _, alone, _ = ax.lines[1:]
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in (start, end, alone)]
    assert drawn == [([0, 0.1], [35] * 2), ([0.9, 1], [12] * 2), ([0.9, 1], [0.1] * 2)]
    assert ax.get_xlim()[1] < 40 and ax.get_ylim()[1] > 35, "across the panel, at its own height"
    assert alone.get_color() == "blue" and alone.get_linestyle() == "--"
    plots.level(ax, 50, "chance")
    assert ax.texts[0].get_text() == "chance" and list(ax.lines[-1].get_ydata()) == [50, 50]


def test_only_the_lowest_panels_name_the_steps() -> None:
    figure = plots.new_figure(3, "Title")
    axes = plots.multiples(figure, list("vwxyz"))
    names = [ax.get_xlabel() for ax in axes.values()]
    assert names == ["", "", "training step", "training step", "training step"]
    assert [ax.get_title(loc="center") for ax in axes.values()] == list("vwxyz")
    assert figure.get_suptitle() == "Title"
    large = plots.multiples(plots.new_figure(3), list("abc"), "AAB;AAC")
    assert [ax.get_xlabel() for ax in large.values()] == ["training step", "", "training step"]
    four = plots.multiples(plots.new_figure(3), list("abcd"))
    names = [ax.get_xlabel() for ax in four.values()]
    assert names == ["", "", "training step", "training step"], "two rows of two"
    fewer = plots.multiples(plots.new_figure(3), ["a", "b"], "AAB;AAC")
    assert len(fewer) == 2, "a layout of other panels is not taken"
    mpl.pyplot.close("all")


def test_a_logarithmic_axis_has_plain_numbers(ax) -> None:
    ax.plot([0, 1], [0.02, 0.3])
    ax.set_yscale("log")
    plots.plain_log(ax)
    ax.figure.canvas.draw()
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert {"0.05", "0.1", "0.2"} <= set(names)


def test_variants_without_a_look_are_refused(ax) -> None:
    with pytest.raises(ValueError, match=r"variant is a; allowed: those in order=\['b'\]"):
        plots.curve(ax, frame({("a", 0): [1.0]}), ["b"])
