"""The collapse detector on series worked out by hand, and runs counted and drawn."""

import shutil

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from spnb.core.params import ParamError, validate
from spnb.report import dynamics, plots, show
from spnb.report.curves import small_multiples
from spnb.report.dynamics import Thresholds, collapse, spikes
from spnb.report.exhibits import read_index
from spnb.report.frame import KEYS, Frames, gather
from spnb.train.runs import open_run
from tools import redraw


def steps(values, first=1):
    """A series over training steps."""
    return pd.Series(list(values), index=range(first, first + len(values)), dtype=float)


# With 30 values k is 3, so start and end are medians of three values.
@pytest.mark.parametrize(
    ("values", "verdict", "onset"),
    [
        ([10] * 30, "no", None),
        ([10] * 12 + [4] * 18, "collapsed", 13),
        ([10] * 12 + [5] * 18, "no", None),  # half is not below half
        ([10] * 10 + [4] * 10 + [10] * 10, "recovered", None),
        ([10] * 15 + [0.1] + [10] * 14, "no", None),  # one odd step: no median of five sees it
        ([10] * 15 + [0.1] * 2 + [10] * 13, "no", None),
        ([10] * 28 + [1] * 2, "no", None),  # end is 1, but for two steps only
        ([10] * 27 + [1] * 3, "collapsed", 28),
        ([10, 1] * 15, "no", None),  # medians of five alternate: 10 wherever the step is odd
        ([1] * 3 + [10] * 27, "no", None),
        (
            [10] * 10 + [4] * 5 + [10] * 5 + [4] * 10,
            "collapsed",
            21,
        ),  # the second fall is the one that stays
    ],
)
def test_verdict_and_onset(values, verdict, onset):
    found = collapse(steps(values), 0.5)
    assert (found.verdict, found.onset) == (verdict, onset)


def test_a_gradual_fall_begins_where_the_limit_is_passed():
    # 10, 9.75, ..., 0.25: k = 4, start is the mean of 9.75 and 9.5, limit 4.8125; step 22 has 4.75.
    found = collapse(steps(np.linspace(10, 0.25, 40)), 0.5)
    assert found == ("collapsed", 9.625, 0.625, 22)
    assert collapse(steps(np.linspace(10, 0.25, 40)), 0.05).verdict == "no"


def test_the_onset_is_a_training_step_and_missing_values_are_left_out():
    values = steps([10] * 12 + [4] * 18, first=101)
    assert collapse(values, 0.5).onset == 113
    with_gaps = pd.concat([values, pd.Series(np.nan, index=range(131, 171))])
    assert collapse(with_gaps, 0.5) == collapse(values, 0.5)


def test_what_is_too_short_or_starts_at_zero_is_not_decided():
    falling = [10.0] * 10 + [1.0] * 9
    assert collapse(steps(falling), 0.5) == ("not decided", 10, 1, None)
    assert collapse(steps([*falling, 1.0]), 0.5).verdict == "collapsed"
    assert collapse(steps([0] * 30), 0.5).verdict == "not decided"
    assert collapse(steps([10, 2]), 0.5) == ("not decided", 6, 6, None)
    assert collapse(steps(falling), 0.5, Thresholds(minimum=6)).verdict == "collapsed"


def test_the_thresholds_change_the_verdict():
    dip = steps([10] * 12 + [4] * 4 + [10] * 14)
    assert collapse(dip, 0.5).verdict == "recovered"
    assert (
        collapse(dip, 0.5, Thresholds(edge=0.2)).verdict == "no"
    )  # k is 6: four in a row are too few
    assert (
        collapse(dip, 0.5, Thresholds(window=9)).verdict == "no"
    )  # four never have the majority of nine
    with pytest.raises(
        ParamError, match=r"length is 2; allowed: less than 1 \(collapsed: below this share"
    ):
        validate(Thresholds, {"length": 2})
    with pytest.raises(ParamError, match="'lenght', which is unknown; did you mean 'length'"):
        validate(Thresholds, {"lenght": 0.3})


def test_a_fall_lasts_where_the_end_and_the_last_median_are_below():
    """Of 40 values k is 4: medians of the last four are 3.5 and 7, of the last three 6 and 4."""
    assert collapse(steps([10] * 20 + [1] * 18 + [6] * 2), 0.5) == ("recovered", 10, 3.5, None)
    values = steps([10] * 20 + [4] * 16 + [10, 4, 4, 10])
    assert collapse(values, 0.5) == ("recovered", 10, 7, None)


def test_ends_are_of_three_values_or_more():
    alone = Thresholds(window=1)
    assert collapse(steps([10] * 18 + [1] * 2), 0.5, alone).verdict == "no", "2 of 20 are too few"
    assert collapse(steps([10] * 17 + [1] * 3), 0.5, alone).verdict == "collapsed"


@pytest.mark.parametrize("share", [0, 1, -0.5, 2])
def test_a_share_that_is_none(share):
    with pytest.raises(ValueError, match=f"share is {share}; allowed: above 0 and below 1"):
        collapse(steps([1] * 30), share)


@pytest.mark.parametrize("index", [[1, 3, 2], [1, 1, 2]])
def test_steps_must_increase(index):
    values = pd.Series([1.0, 2.0, 3.0], index=index)
    for call in (lambda: collapse(values, 0.5), lambda: spikes(values)):
        with pytest.raises(ValueError, match="do not increase"):
            call()


def test_spikes():
    # Step 6: nine times the median 0.1. Step 7: 0.2 is the median of 0.2, 0.1, 0.2, 0.1, 0.9. Step
    # 16: three 9s before.
    norms = [0.1, 0.2, 0.1, 0.2, 0.1, 0.9, 2.1, 0.1, 0.2, 0.1, 0.2, 0.1] + [9.0] * 5
    assert spikes(steps(norms)) == [7, 13, 14, 15]
    assert spikes(steps(norms), Thresholds(spike=8)) == [6, 7, 13, 14, 15]
    assert spikes(steps([1, 100, 1, 1, 1])) == [], "no median of five before the sixth value"
    assert spikes(steps([0.0] * 6 + [5.0])) == [], "nothing is a multiple of zero"
    assert spikes(steps([1.0] * 5 + [np.nan, 11.0])) == [7]
    assert spikes(steps([1.0] * 5 + [10.0])) == [], "ten times is not above it"


def write_run(root, variant="full", seed=0, lengths=(10,) * 30, **changes):
    """A run of rlvr with these lengths, a steady entropy and one gradient spike at step 10."""
    params = {"paper": "rlvr", "scale": "cpu", "variant": variant, "seed": seed, **changes}
    run = open_run(root, params)
    for step, length in enumerate(lengths, 1):
        norm = 20.0 if step == 10 else 1.0
        row = {"step": step, "grad_norm": norm, "length/read": length, "entropy/read": 0.5}
        run.append("metrics", row | {"entropy": 0.4, "kl": None, "trained/read": 0.25})
    labels = dict.fromkeys(KEYS, "") | {"suite": "held-out", "decoding": "greedy"}
    for metric, difficulty in (("accuracy", ""), ("accuracy", "2 hops"), ("parsed", "")):
        numbers = {"metric": metric, "value": 0.25, "low": 0.0, "high": 1.0, "n": 8}
        run.append("evals", {"step": 0, **labels, "difficulty": difficulty, **numbers})
    run.append("evals", {"step": 0, **labels, "role": "seat 0", "opponent": "random", **numbers})
    return run


COLLAPSED = (10,) * 12 + (4,) * 18


def runs_of(root):
    """Two collapsed runs and a short one."""
    return [
        write_run(root, seed=0, lengths=COLLAPSED),
        write_run(root, seed=1, lengths=(10,) * 14 + (2,) * 16),
        write_run(root, "steady", lengths=(10,) * 5),
    ]


def test_verdicts_and_their_summary(tmp_path):
    decided = dynamics.verdicts(gather(runs_of(tmp_path)))
    lengths = decided[decided["quantity"] == "length"].set_index(["variant", "seed"])
    assert lengths["verdict"].tolist() == ["collapsed", "collapsed", "not decided"]
    assert lengths["onset"].tolist()[:2] == [13, 15] and lengths["role"].eq("read").all()
    gradient = decided[(decided["quantity"] == "grad_norm") & (decided["variant"] == "full")]
    assert gradient["spikes"].tolist() == [[10], [10]] and gradient["verdict"].eq("no").all()
    table = dynamics.summary(decided).set_index(["variant", "role"])
    # Shares 0.4 and 0.2: mean 0.3, standard error 0.1, t(0.975, 1) = 12.706; onsets 13 and 15.
    assert table["length"]["full", "read"] == "0.30 [-0.97, 1.57]; collapsed 2 of 2 from step 14"
    assert table["entropy"]["full", "read"] == "1.00 [1.00, 1.00]"
    assert table["length"]["full", "all"] == table["entropy"]["full", "all"] == "-"
    assert table["gradient spikes"]["full", "all"] == "2 of 2 runs, first at 10"
    assert table["length"]["steady", "read"] == "not decided 1 of 1"
    assert table["gradient spikes"]["steady", "all"] == "none"
    both = ("full", "steady")
    assert list(table.index) == [(name, role) for name in both for role in ("all", "read")]


def test_each_quantity_has_a_threshold_of_its_own():
    """All three fall to .3 of their start."""
    values = steps([10] * 12 + [3] * 18)
    about = {"paper": "p", "variant": "v", "seed": 0, "step": values.index, "value": values}
    metrics = {"length": "x", "entropy": "x", "grad_norm": ""}
    parts = [pd.DataFrame(about | {"metric": key, "role": who}) for key, who in metrics.items()]
    frames = Frames(metrics=pd.concat(parts, ignore_index=True))

    def collapsed(**changes):
        table = dynamics.verdicts(frames, Thresholds(**changes))
        return set(table.loc[table["verdict"] == "collapsed", "quantity"])

    assert collapsed() == {"length"} and collapsed(length=0.25) == set()
    assert collapsed(entropy=0.4) == {"length", "entropy"}
    assert collapsed(gradient=0.4) == {"length", "grad_norm"}


def test_a_summary_has_the_median_onset_and_the_first_spike():
    """All end at a quarter of their start; onsets 13, 15 and 32."""
    lengths = [("collapsed", 13), ("collapsed", 15), ("collapsed", 32), ("recovered", None)]
    rows = [("length", "x", *lengths[seed], []) for seed in range(4)]
    rows += [("entropy", "x", "no", None, [])] * 2
    rows += [("grad_norm", "all", "no", None, jumps) for jumps in ([12, 20], [7], [], [9])]
    names = ["quantity", "role", "verdict", "onset", "spikes"]
    table = pd.DataFrame(rows, columns=names).assign(paper="p", variant="v", start=8.0, end=2.0)
    made = dynamics.summary(table.astype({"onset": "Int64"})).set_index("role")
    share = "0.25 [0.25, 0.25]"
    assert made["length"]["x"] == f"{share}; collapsed 3 of 4 from step 15; recovered 1 of 4"
    assert made["entropy"]["x"] == made["gradient norm"]["all"] == share
    assert made["gradient spikes"]["all"] == "3 of 4 runs, first at 7"


def test_an_exhibit_takes_a_readers_thresholds_and_evaluations(tmp_path):
    """Lengths end at .4 and .2 of their start."""
    frames = gather(runs_of(tmp_path))
    made = dynamics.exhibit("dynamics/collapse", frames, Thresholds(length=0.3))
    assert "collapsed 1 of 2 from step 15" in made.item["length"].str.cat()
    assert "below 0.3 (length), 0.1 (entropy)" in made.caption
    asked = dynamics.exhibit("dynamics/results", frames, evaluations=["held-out, *: parsed"])
    assert set(asked.data["part"]) == {"held-out, greedy: parsed"}
    plt.close(asked.item)


def test_series_and_results_are_long_tables(tmp_path):
    frames = gather([write_run(tmp_path, lengths=(3, 4))])
    table = dynamics.series(frames, "length", "kl")
    assert table.columns.tolist() == ["paper", "variant", "seed", "step", "part", "value"]
    assert table.to_numpy().tolist() == [
        ["rlvr", "full", 0, 1, "length/read", 3],
        ["rlvr", "full", 0, 2, "length/read", 4],
    ]
    assert set(dynamics.series(frames, "entropy")["part"]) == {"entropy/read"}, "not the total"
    assert set(dynamics.series(frames, "grad_norm")["part"]) == {"grad_norm"}
    two = write_run(tmp_path, lengths=(3,), variant="two")
    two.append("metrics", {"step": 2, "grad_norm/proposer": 0.5})
    both = dynamics.series(gather([*frames.runs, two]), "grad_norm")
    parts = both.groupby("variant")["part"].unique().map(set).to_dict()
    assert parts == {"full": {"grad_norm"}, "two": {"grad_norm", "grad_norm/proposer"}}
    assert dynamics.series(frames, "reward").empty
    assert dynamics.results(frames, "*")["part"].tolist() == [
        "held-out, greedy: accuracy",
        "held-out, greedy: accuracy, 2 hops",
        "held-out, greedy: parsed",
        "held-out vs random, seat 0, greedy: parsed",
    ]
    assert len(dynamics.results(frames, "held-out*: accuracy")) == 1


def test_the_score_counts_draws_half_and_patterns_give_the_order(tmp_path):
    run = write_run(tmp_path, lengths=(3,))
    match = dict.fromkeys(KEYS, "") | {"suite": "poker", "opponent": "random", "n": 8}
    for metric, value in (("win", 0.5), ("draw", 0.25), ("loss", 0.25)):
        row = {"step": 4, **match, "metric": metric, "value": value, "low": 0.0, "high": 1.0}
        run.append("evals", row)
    table = dynamics.results(gather([run]), "poker*: score", "*: accuracy")
    assert table[["step", "part", "value"]].to_numpy().tolist() == [
        [4, "poker vs random: score", 0.625],
        [0, "held-out, greedy: accuracy", 0.25],
    ]


@pytest.mark.slow
def test_the_exhibits_say_what_they_show(tmp_path):
    frames, folder = gather(runs_of(tmp_path / "runs")), tmp_path / "figures"
    shown = {
        name: show.exhibit(f"dynamics/{name}", frames=frames, folder=folder)
        for name in ("collapse", "length", "gradient", "rewards", "results")
    }
    assert "collapsed 2 of 2" in shown["collapse"].item["length"].str.cat()
    data = pd.read_csv(folder / "dynamics/length.csv")
    assert list(data.columns) == ["paper", "variant", "seed", "step", "part", "value"]
    assert set(data["part"]) == {"read"} and data["seed"].nunique() == 2
    records = {record["id"]: record for record in read_index(folder)}
    assert "Running means over 5 steps. Dots, thin lines" in records["dynamics/length"]["caption"]
    assert "Running mean" not in records["dynamics/gradient"]["caption"]
    assert pd.read_csv(folder / "dynamics/gradient.csv")["value"].max() == 20, "no logarithm"
    assert "no run has anything to show" in repr(shown["rewards"])
    assert not (folder / "dynamics/rewards.csv").exists()


def test_an_exhibit_is_of_the_runs_that_have_its_metric(tmp_path):
    other = write_run(tmp_path, variant="two")
    other.append("metrics", {"step": 31, "truncated/read": 0.25})
    made = dynamics.exhibit("dynamics/truncated", gather([write_run(tmp_path), other]))
    assert {run.variant for run in made.runs} == {*made.data["variant"]} == {"two"}
    plt.close(made.item)


def long_frame(variants, parts, paper="rlvr"):
    """Two seeds of two steps of every variant and part."""
    rows = [
        (paper, v, seed, step, part, float(step))
        for v in variants
        for seed in (0, 1)
        for step in (1, 2)
        for part in parts
    ]
    return pd.DataFrame(rows, columns=["paper", "variant", "seed", "step", "part", "value"])


WORDS = {"kuhn_poker": "poker", " vs random: score": " against random"}


def test_a_figure_shows_seats_together_in_words():
    frame = long_frame("a", ["length/kuhn_poker/0", "length/kuhn_poker/1", "length/solver"])
    frame.loc[frame["part"] == "length/kuhn_poker/1", "value"] += 10
    shown, left_out = dynamics.drawn(frame, WORDS)
    assert list(shown["panel"].unique()) == ["poker", "solver"] and left_out == ""
    assert shown.query("panel == 'poker' and step == 1")["value"].tolist() == [6, 6]
    shown, _ = dynamics.drawn(frame, WORDS, "first")
    assert list(shown["panel"].unique()) == ["poker, first seat", "solver"]
    assert shown.query("panel != 'solver' and step == 1")["value"].tolist() == [1, 1]
    parts = ["grad_norm", "method/baseline/kuhn_poker/0", "kuhn_poker vs random: score"]
    shown, _ = dynamics.drawn(long_frame("a", parts), WORDS)
    assert list(shown["panel"].unique()) == ["all roles", "poker", "poker against random"]


def test_a_figure_names_what_it_leaves_out():
    frame = long_frame("a", [f"length/{role}" for role in "stuvwxyz"])
    frame.loc[frame["part"] == "length/t", "value"] = 0
    shown, left_out = dynamics.drawn(frame, {})
    assert list(shown["panel"].unique()) == list("suvwxy")
    assert left_out == "Not drawn, zero everywhere: rlvr t. Not drawn, only in the CSV: rlvr z."
    both = pd.concat([frame, long_frame("a", ["length/p"], "spiral")])
    shown, _ = dynamics.drawn(both, {})
    assert shown.groupby("paper")["panel"].nunique().to_dict() == {"rlvr": 3, "spiral": 1}
    shown, left_out = dynamics.drawn(long_frame([*"abcdefgh", "think", "search"], ["length/s"]), {})
    assert list(shown["variant"].unique()) == ["think", "search"], "run by default, of ten"
    assert left_out == "Not drawn, only in the CSV: a, b, c, d, e, f, g, h."
    shown, _ = dynamics.drawn(long_frame("abcdefghi", ["length/s"]), {})
    assert list(shown["variant"].unique()) == list("abcdefgh")
    assert dynamics.drawn(frame.assign(value=0.0), {})[0].empty
    assert not dynamics.drawn(frame.assign(value=-1.0), {})[0].empty
    longer = long_frame("b", ["length/s"]).assign(value=0.0)
    longer["step"] *= 9
    shown, left_out = dynamics.drawn(pd.concat([long_frame("a", ["length/s"]), longer]), {})
    steps = longer["step"].max()
    assert list(shown["variant"].unique()) == ["a"], "long runs, which have a block of their own"
    assert left_out == f"Not drawn, zero everywhere: rlvr s, {steps} steps."


def test_small_multiples_have_a_block_a_paper_and_one_scale_in_it():
    frame = pd.concat(
        [
            long_frame(["think", "b"], ["x", "y", "z", "w", "v"]),
            long_frame(["c"], ["x"], "spiral").assign(value=9.0),
        ]
    )
    shown = frame.rename(columns={"part": "panel"})
    figure = small_multiples(shown, "Lengths", "tokens", ylim=(0, None))
    assert figure.get_suptitle() == "Lengths"
    first, second = figure.subfigs
    assert (first.get_suptitle(), second.get_suptitle()) == ("rlvr", "spiral")
    assert [ax.get_title(loc="left") for ax in first.axes] == ["x", "y", "z", "w", "v"]
    scales = {ax.get_ylim() for ax in first.axes}
    ((bottom, top),) = scales
    assert bottom == 0 and 2 < top < 3 and second.axes[0].get_ylim()[1] > 9
    assert [ax.get_ylabel() for ax in first.axes] == ["tokens", "", "", "", ""]
    legend = [text.get_text() for text in first.legends[0].get_texts()]
    assert legend == ["think: rule (n=2)", "b (n=2)"]
    assert figure.get_size_inches()[1] * plots.DPI < 1100
    plt.close(figure)


def test_arms_of_very_different_lengths_have_blocks_of_their_own():
    short = long_frame(["full", "no-rae"], ["x"], "spiral")
    long = short.assign(variant="full-long", step=short["step"] * 3)
    shown = pd.concat([short, long]).rename(columns={"part": "panel"})
    figure = small_multiples(shown, "", "tokens a response")
    most = short["step"].max()
    titles = [block.get_suptitle() for block in figure.subfigs]
    assert titles == [f"spiral, {most} steps", f"spiral, {3 * most} steps"]
    counts = [len(block.legends[0].get_texts()) for block in figure.subfigs]
    several = [(40, "a"), (80, "b"), (100, "c")]  # twice as many and more
    parts = [short[short["variant"] == "full"].assign(variant=v, step=n) for n, v in several]
    other = small_multiples(pd.concat(parts).rename(columns={"part": "panel"}), "", "x")
    assert [each.get_suptitle() for each in other.subfigs] == [
        "spiral, 40 steps",
        "spiral, 100 steps",
    ]
    plt.close(other)
    assert counts == [2, 1] and figure.subfigs[0].axes[0].get_ylabel() == "tokens a\nresponse"
    plt.close(figure)


def test_a_picture_of_rewards_is_of_the_first_seat_and_smoothed():
    frame = long_frame(["full"], ["kuhn_poker/0", "kuhn_poker/1"], "spiral")
    figure, words = dynamics.picture("dynamics/rewards", frame)
    (ax,) = figure.subfigs[0].axes
    assert ax.get_title(loc="left") == "poker, first seat"
    assert words.startswith("Running means over 5 steps.")
    plt.close(figure)


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", ["dynamics/clip-ratio", "proposer/leash"])
def test_a_picture_is_drawn_again_from_its_numbers(tmp_path, monkeypatch, exhibit):
    """Nothing but the picture changes; it shows its lines and panels."""
    folder, name = exhibit.split("/")
    shutil.copy(redraw.FIGURES / "index.json", tmp_path)
    (tmp_path / folder).mkdir()
    for path in (redraw.FIGURES / folder).glob(f"{name}.*"):
        shutil.copy(path, tmp_path / folder)
    for suffix in ("png", "svg"):
        (tmp_path / f"{exhibit}.{suffix}").write_text("gone")
    committed = (redraw.FIGURES / f"{exhibit}.svg").read_text()
    monkeypatch.setattr(redraw, "FIGURES", tmp_path)
    assert redraw.redraw(exhibit) == [f"{name}.png", f"{name}.svg"]
    assert len((tmp_path / f"{exhibit}.svg").read_text()) == pytest.approx(len(committed), rel=0.1)


@pytest.mark.parametrize("exhibit", ["dynamics/clip-ratio", "proposer/leash"])
def test_a_caption_that_says_something_else_stops_a_new_picture(tmp_path, monkeypatch, exhibit):
    folder, name = exhibit.split("/")
    (tmp_path / folder).mkdir()
    shutil.copy(redraw.FIGURES / folder / f"{name}.csv", tmp_path / folder)
    about = (redraw.FIGURES / "index.json").read_text()
    (tmp_path / "index.json").write_text(about.replace("Thick: means.", "Thick: medians."))
    monkeypatch.setattr(redraw, "FIGURES", tmp_path)
    with pytest.raises(SystemExit, match="would show something else now: .*Thick: means"):
        redraw.redraw(exhibit)


def test_a_logarithmic_scale_is_shared_too():
    shown = long_frame("a", ["x", "y"]).rename(columns={"part": "panel"})
    figure = small_multiples(shown, "", "norm", yscale="log", ylim=(None, None))
    assert [ax.get_yscale() for ax in figure.subfigs[0].axes] == ["log", "log"]
    plt.close(figure)
