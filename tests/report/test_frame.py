"""Runs as tidy frames, and measures of them: hand-computed scores, steps, changes, intervals."""

import math

import pandas as pd
import pytest

from spnb.core.params import ParamError, validate
from spnb.report import frame
from spnb.report.frame import Frames, Measure, compare, gather, near, over_seeds, paired_difference
from spnb.train.runs import RunError, open_run

SCORE = {"win": 100, "draw": 50}


def results(*rows):
    """Rows (variant, seed, step, suite, opponent, metric, value) as the table of results."""
    names = ("variant", "seed", "step", "suite", "opponent", "metric", "value")
    table = pd.DataFrame(rows, columns=names).assign(paper="spiral", scale="cpu")
    table = table.reindex(columns=frame.RESULTS)
    return table.assign(**{key: table[key].astype(object).fillna("") for key in frame.KEYS})


def games():
    """Two seeds of `full`, one of `sft`: a game at steps 0 and 8, another only of `full`."""
    wins = {("full", 0): (0.25, 0.75), ("full", 1): (0.25, 0.5), ("sft", 0): (0.0, 1.0)}
    rows = []
    for (variant, seed), values in wins.items():
        for step, win in zip((0, 8), values, strict=True):
            run = (variant, seed, step)
            rows += [(*run, "a", "random", "win", win), (*run, "a", "random", "draw", 0.1)]
            rows += [(*run, "a", "random", "loss", 0.5)]
            if variant == "full":
                rows += [(*run, "b", "random", "win", win / 2), (*run, "b", "random", "draw", 0.0)]
    return Frames(results=results(*rows))


def values(measure, frames, share=1.0):
    table = measure.of_runs(frames, share)
    return {(row.variant, row.seed): row.value for row in table.itertuples()}


def test_runs_become_tidy_tables(tmp_path):
    run = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "read", "seed": 3})
    row = {"step": 1, "loss": 0.5, "kl": None, "length/read": 3.0, "method/hops/2": 0.25}
    run.append("metrics", row | {"seconds/step": 1.0})
    labels = dict.fromkeys(frame.KEYS, "") | {"suite": "held-out", "decoding": "greedy"}
    numbers = {"metric": "accuracy", "value": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    run.append("evals", {"step": 0, **labels, **numbers})
    frames = gather([run])
    (line,) = frames.results.to_dict("records")
    assert (line["variant"], line["seed"], line["decoding"]) == ("read", 3, "greedy")
    assert list(frames.results.columns) == frame.RESULTS and frames.variants == ["read"]
    long = frames.metrics.set_index(["metric", "role"])["value"].to_dict()
    assert long == {
        ("loss", ""): 0.5,
        ("length", "read"): 3.0,
        ("method/hops", "2"): 0.25,
        ("seconds/step", ""): 1.0,
    }
    assert frames.only(["think"]).results.empty and frames.only(["think"]).runs == []
    assert gather([]).metrics.empty
    (run.folder / "evals.jsonl").write_text('{"step": 0, "evaluation": "a vs random"}\n')
    with pytest.raises(RunError, match="runs of an earlier version.*train again"):
        gather([run])


def test_draws_count_half_and_what_is_selected_is_averaged():
    one = Measure(suite="a", opponent="random", weights=SCORE)
    assert values(one, games(), 0)["full", 0] == pytest.approx(30)
    assert values(one, games())["full", 1] == pytest.approx(55)
    both = Measure(suite="*", opponent="random", weights=SCORE)
    assert values(both, games()) == {  # sft lacks a game that others have
        ("full", 0): pytest.approx((80 + 37.5) / 2),
        ("full", 1): pytest.approx((55 + 25) / 2),
    }


def test_a_filter_left_out_is_the_empty_label():
    seats = results(
        ("full", 0, 8, "a", "random", "win", 1.0), ("full", 0, 8, "a", "", "win", 0.25)
    ).assign(role=["seat 0", ""])
    frames = Frames(results=pd.concat([games().results, seats]))
    assert values(Measure(suite="a", weights={"win": 1}), frames) == {("full", 0): 0.25}
    seat = Measure(suite="a", opponent="random", role="seat *", weights={"win": 1})
    assert values(seat, frames) == {("full", 0): 1.0}


def test_what_is_missing_is_said():
    def missing(**changes):
        given = {"suite": "a", "opponent": "random", "weights": SCORE} | changes
        return Measure(**given).select(games())[1]

    assert missing() == ""
    assert missing(weights={"utility": 1}) == "no evals named utility"
    assert missing(suite=["a", "c*"]) == "no evals with suite 'c*'"
    assert missing(opponent="expert") == "no evals with opponent 'expert'"
    absent = Measure(suite="a", opponent="random", weights={"win": 1, "tie": 1})
    assert values(absent, games()) == {}
    with pytest.raises(ParamError, match="suite is set with source metrics; allowed: role"):
        validate(Measure, {"source": "metrics", "suite": "a", "weights": {"loss": 1}})


def log(**columns):
    """One run of 20 steps with these metrics, "length/x" for a role's."""
    rows = []
    for name, series in columns.items():
        metric, _, role = name.partition("__")
        for step, value in enumerate(series, 1):
            where = {"paper": "p", "scale": "cpu", "variant": "full", "seed": 3, "step": step}
            rows.append(where | {"metric": metric, "role": role, "value": value})
    return Frames(metrics=pd.DataFrame(rows).dropna())


def test_a_change_is_taken_from_the_first_to_the_last_steps():
    """Reach 0.1 * 19: steps 1 and 2, 19 and 20."""
    steps = [float(step) for step in range(1, 21)]
    kept = Measure(source="metrics", role="*", weights={"length": 1}, change="percent", window=0.1)
    frames = log(length__a=[10.0] * 20, length__b=steps, loss=steps)
    expected = 100 * (10 + 19.5) / (10 + 1.5)
    assert values(kept, frames) == {("full", 3): pytest.approx(expected)}
    gap = log(length__a=[10.0] * 19 + [math.nan], length__b=steps)  # the step is left out
    assert values(kept, gap)["full", 3] == pytest.approx(100 * (10 + 18.5) / (10 + 1.5))
    minus = kept.model_copy(update={"change": "difference", "window": 0})
    assert values(minus, frames) == {("full", 3): pytest.approx((30 - 11) / 2)}
    assert values(minus, log(length__a=[5.0])) == {}, "one step has no change"
    off = Measure(source="metrics", weights={"loss": 1}, distance=12.0, window=1)
    assert values(off, frames)["full", 3] == pytest.approx(sum(abs(s - 12) for s in steps) / 20)


def test_the_step_nearest_to_a_share_or_all_within_a_window():
    rows = pd.DataFrame({"step": range(1, 11)})
    assert near(rows, 0)["step"].tolist() == [1] and near(rows, 1)["step"].tolist() == [10]
    assert near(rows, 0.42)["step"].tolist() == [4]
    assert near(rows, 0.5, 0.12)["step"].tolist() == [4, 5, 6]


def test_seeds_that_agree_before_training_are_one_measurement():
    score = Measure(suite="a", opponent="random", weights=SCORE)
    assert score.interval(games(), "full", 0)[0] == pytest.approx(30)
    assert score.interval(games(), "full", 0)[3] == 1
    mean, _, high, n = score.interval(games(), "full")
    assert (mean, n) == (pytest.approx(67.5), 2)
    assert high - mean == pytest.approx(12.7062 * 12.5, rel=1e-4)


def test_variants_side_by_side_and_their_differences():
    measures = {"score": Measure(suite="a", opponent="random", weights=SCORE)}
    ends = compare(games(), measures, ["full", "sft", "none"], digits=0)
    assert ends["score"].to_dict() == {"full": "68 [-91, 226]", "sft": "105 (n = 1)", "none": "-"}
    minus = compare(games(), measures, ["full", "sft"], minus="full", digits=0)
    assert minus["score"].to_dict() == {"sft": "25 (n = 1)"}


def test_over_seeds_averages_within_a_seed_first():
    table = pd.DataFrame({"seed": [0, 0, 1], "step": [5, 5, 5], "value": [1.0, 3.0, 4.0]})
    row = over_seeds(table, ["step"]).iloc[0]
    assert (row["step"], row["value"], row["n"]) == (5, 3.0, 2)
    assert row["low"] == pytest.approx(3 - 12.7062047)  # t(0.975, 1), standard error 1


def test_paired_difference():
    columns = {"seed": [0, 1, 0, 1], "variant": ["a", "a", "b", "b"], "value": [1.0, 2.0, 0.5, 0.5]}
    mean, low, _, n = paired_difference(pd.DataFrame(columns), "a", "b")
    assert (mean, n) == (1.0, 2) and low == pytest.approx(1 - 12.7062047 * 0.5)
    assert paired_difference(pd.DataFrame(columns), "a", "c")[3] == 0


def test_intervals_are_printed_in_one_way():
    nan = float("nan")
    assert frame.format_interval(52.08, 48.0, 56.16) == "52.1 [48.0, 56.2]"
    assert frame.format_interval(0.5, 0.25, 0.754, digits=2) == "0.50 [0.25, 0.75]"
    assert frame.format_interval(52.08, nan, nan) == "52.1 (n = 1)"
    assert frame.format_interval(nan, nan, nan) == "-"
