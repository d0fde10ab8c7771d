"""Runs as tidy frames, and measures of them: hand-computed scores, steps, changes, intervals."""

import math

import pandas as pd
import pytest

from spnb.core.params import ParamError, validate
from spnb.evaluate.items import record, row
from spnb.report import frame
from spnb.report.frame import Frames, Measure, gather, paired_interval, rows_nearest_step, within
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


@pytest.mark.parametrize("name", ["evals", "metrics"])
def test_a_finished_run_with_fewer_rows_than_it_had_is_refused(tmp_path, name):
    run = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "read", "seed": 3})
    labels = dict.fromkeys(frame.KEYS, "") | {"metric": "accuracy", "value": 0.5}
    labels |= {"low": 0.25, "high": 0.75, "n": 8}
    run.append("metrics", {"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4})
    run.append("evals", {"step": 0, **labels}, {"step": 2, **labels})
    run.finish(seconds=1)
    assert len(gather([run]).results) == 2
    path = run.folder / f"{name}.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(RunError, match=f"{name}.jsonl has 1 rows and had 2; put it back, or del"):
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


def test_steps_at_which_a_metric_is_0_do_not_count():
    """A share of what does not occur is logged as 0: of the last ten steps two have any."""
    shares = [1.0] * 10 + [0.0] * 6 + [0.5, 0.0, 1.0, 0.0]
    hacked = [0.1] * 10 + [0.0] * 6 + [0.2, 0.0, 0.4, 0.0]
    of = {"source": "metrics", "role": "answerable", "weights": {"hacked": 100}, "window": 0.5}
    frames = log(hacked__answerable=shares, hacked=hacked)
    assert values(Measure(**of), frames)["full", 3] == pytest.approx(100 * 1.5 / 10)
    given = Measure(**of, given="hacked")
    assert values(given, frames)["full", 3] == pytest.approx(75)
    assert given.interval(frames, "full")[0] == pytest.approx(75)
    assert values(given, log(hacked__answerable=shares, hacked=[0.0] * 20)) == {}
    with pytest.raises(ParamError, match="given is 'hacked' with source evals; allowed: none"):
        validate(Measure, {"weights": {"win": 1}, "given": "hacked"})


def test_the_step_nearest_to_a_share_or_all_within_a_window():
    rows = pd.DataFrame({"step": range(1, 11)})
    assert rows_nearest_step(rows, 0)["step"].tolist() == [1] and rows_nearest_step(rows, 1)[
        "step"
    ].tolist() == [10]
    assert rows_nearest_step(rows, 0.42)["step"].tolist() == [4]
    assert rows_nearest_step(rows, 0.5, 0.12)["step"].tolist() == [4, 5, 6]


def test_numbers_without_items_are_drawn_by_seed():
    """Two seeds of 80 and 55: a resample has both, or one of them twice."""
    score = Measure(suite="a", opponent="random", weights=SCORE)
    assert score.interval(games(), "full") == pytest.approx((67.5, 55, 80, 2))
    assert score.interval(games(), "sft")[3] == 1 and math.isnan(score.interval(games(), "sft")[1])
    assert score.interval(games(), "none")[3] == 0


def test_a_change_and_a_difference_have_students_t():
    gain = Measure(suite="a", opponent="random", weights=SCORE, change="difference")
    assert gain.interval(games(), "full") == (pytest.approx(37.5), -100, 100, 2)  # 50 and 25
    tenth = gain.model_copy(update={"weights": {"win": 10, "draw": 5}})  # no per cent, no ends
    mean, _, high, n = tenth.interval(games(), "full")
    assert (mean, n) == (pytest.approx(3.75), 2)
    assert high - mean == pytest.approx(12.7062 * 1.25, rel=1e-4)
    both = results(*((name, seed, 8, "a", "random", "win", win) for name, seed, win in PAIRS))
    win = Measure(suite="a", opponent="random", weights={"win": 1})
    mean, low, _, n = win.difference(Frames(results=both), "x", "y")  # 0.2 and 0.4
    assert (mean, n) == (pytest.approx(0.3), 2) and mean - low == pytest.approx(12.7062 * 0.1)
    assert win.differences(Frames(results=both), "y", "x") == pytest.approx([-0.2, -0.4])
    assert all(map(math.isnan, win.differences(Frames(results=both), "x", "z")))


PAIRS = [("x", 0, 0.5), ("x", 1, 0.9), ("y", 0, 0.3), ("y", 1, 0.5)]
"""Of four pairs x is higher in three, but for a tie: 0.5 beside 0.5."""


def answered(root, variant, seed, *ends, n=100, opponent="", **params):
    """A run with `n` answers at steps 0, 8 and so on, of which these were right."""
    run = open_run(
        root, {"paper": "rlvr", "scale": "cpu", "variant": variant, "seed": seed, **params}
    )
    run.append("metrics", {"step": 8 * (len(ends) - 1), "loss": 1.0})
    for step, right in zip(range(0, 8 * len(ends), 8), ends, strict=True):
        scores = [float(place < right) for place in range(n)]
        where = {"opponent": opponent}
        records = [record("q", str(place), score, **where) for place, score in enumerate(scores)]
        run.append("items", *({**each, "step": step} for each in records))
        run.append("evals", row("q", "accuracy", right / n, n=n, step=step, **where))
    return run


RIGHT = Measure(suite="q", weights={"accuracy": 100})
GAIN = RIGHT.model_copy(update={"change": "difference"})


def test_a_level_is_drawn_over_seeds_and_items(tmp_path):
    one = gather([answered(tmp_path, "a", 0, 50, 60)])
    mean, low, high, n = RIGHT.interval(one, "a")
    assert (mean, n) == (pytest.approx(60), 1)
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(24), rel=0.1)  # 60 * 40 / 100
    runs = [answered(tmp_path, "b", seed, 50, right) for seed, right in enumerate((30, 90))]
    mean, low, high, n = RIGHT.interval(gather(runs), "b")
    assert (mean, n) == (pytest.approx(60), 2)
    assert 20 < low < 30 and 90 < high <= 100, "a seed may be drawn twice, then its items"
    assert RIGHT.interval(gather(runs), "b") == (mean, low, high, n)


def test_more_seeds_do_not_take_away_the_doubt_of_the_items_they_share(tmp_path):
    alike = gather([answered(tmp_path, "a", seed, 50, 60) for seed in range(4)])
    alone = gather([answered(tmp_path, "b", 0, 50, 60)])
    assert RIGHT.interval(alike, "a")[1:3] == pytest.approx(RIGHT.interval(alone, "b")[1:3])


def test_matches_are_dealt_anew_in_each_seed(tmp_path):
    """The chance of its matches is in what a seed ends at: nothing but seeds is drawn. Before
    training all play equal weights: their 400 matches are drawn, of 60 * 40 / 100 each hundred."""
    played = {"opponent": "random", "weights": {"p": "1"}}
    runs = [answered(tmp_path, "a", s, 60, end, **played) for s, end in enumerate((50, 50, 70, 70))]
    for run in runs:  # a second opponent, always lost to, is another stratum
        lost = {"opponent": "expert"}
        for step in (0, 8):
            records = [record("q", str(place), 0.0, **lost) for place in range(100)]
            run.append("items", *({**each, "step": step} for each in records))
            run.append("evals", row("q", "accuracy", 0.0, n=100, step=step, **lost))
    frames = gather(runs)
    against = RIGHT.model_copy(update={"opponent": ["random", "expert"]})
    assert against.interval(frames, "a") == pytest.approx((30, 25, 35, 4))
    _, low, high, n = against.interval(frames, "a", 0)
    assert n == 1
    assert high - low == pytest.approx(1.96 * math.sqrt(24 / 4), rel=0.1)  # of two, half


@pytest.mark.slow
def test_answers_that_are_all_right_leave_room_for_one_that_is_wrong(tmp_path):
    runs = [answered(tmp_path, "a", seed, 512, 512, n=512) for seed in range(3)]
    assert frame.format_interval(*RIGHT.interval(gather(runs), "a")[:3]) == "100.0 [99.3, 100.0]"
    gain = GAIN.interval(gather(runs), "a")
    assert frame.format_interval(*gain[:3]) == "0.0 [-0.7, 0.7]"


@pytest.mark.slow
def test_before_training_all_seeds_are_one_measurement(tmp_path):
    """Equal answers of equal weights count once; other weights are another seed."""
    runs = [answered(tmp_path, "a", seed, 50, 60, weights={"p": "1"}) for seed in range(4)]
    once = RIGHT.interval(gather(runs[:1]), "a", 0)
    assert RIGHT.interval(gather(runs), "a", 0) == once and once[3] == 1
    assert once[2] - once[1] == pytest.approx(2 * 1.96 * 5, rel=0.1)  # 50 * 50 / 100
    other = [answered(tmp_path, "b", seed, 50, 60, weights={"p": str(seed)}) for seed in range(4)]
    assert RIGHT.interval(gather(other), "b", 0)[3] == 4
    whole = RIGHT.model_copy(update={"window": 1.0})
    assert whole.interval(gather(runs), "a", 0)[3] == 4, "what was trained is not the start"
    table = results(*(("full", seed, 0, "q", "", "accuracy", 0.5) for seed in range(3)))
    assert RIGHT.interval(Frames(results=table), "full", 0)[:1] == (50,)
    assert math.isnan(RIGHT.interval(Frames(results=table), "full", 0)[1]), "no items, one number"


@pytest.mark.slow
def test_seeds_that_agree_leave_the_doubt_of_the_items(tmp_path):
    """Gains of 10 in every seed: Student's t alone would have no width. The gain is that of ten
    items of a hundred, whose variance is 10 * 90 / 100."""
    runs = [answered(tmp_path, "a", seed, 50, 60) for seed in range(3)]
    runs += [answered(tmp_path, "b", seed, 50, 50) for seed in range(3)]
    mean, low, high, n = GAIN.interval(gather(runs), "a")
    assert (mean, n) == (pytest.approx(10), 3)
    assert high - low == pytest.approx(2 * 1.96 * 3, rel=0.1)
    mean, low, high, n = RIGHT.difference(gather(runs), "a", "b")
    assert (mean, n) == (pytest.approx(10), 3) and low < 5 and high > 15


def test_a_change_from_a_share_on_has_the_doubt_of_the_items_there(tmp_path):
    """From 60 to 70 in every seed; that all began with 10 says nothing of it."""
    runs = gather([answered(tmp_path, "a", seed, 10, 60, 70) for seed in range(3)])
    mean, low, high, n = GAIN.model_copy(update={"since": 0.5}).interval(runs, "a")
    assert (mean, n) == (pytest.approx(10), 3) and 0 < low < 5 and 15 < high < 20
    assert GAIN.interval(runs, "a")[1] > 45


def test_answers_are_read_once_and_only_when_needed(tmp_path, monkeypatch):
    asked = []
    read = frame.read_answers
    monkeypatch.setattr(frame, "read_answers", lambda run: asked.append(run.seed) or read(run))
    frames = gather([answered(tmp_path, "a", seed, 50, 60) for seed in range(2)])
    RIGHT.of_runs(frames)
    assert asked == []
    RIGHT.interval(frames, "a")
    RIGHT.interval(frames.only(["a"]), "a")
    assert asked == [0, 1]


def test_a_paired_interval_is_the_levels_where_all_pairs_agree():
    mean, low, _, n = paired_interval([0.5, 1.5], lambda: 1 / 0)
    assert (mean, n) == (1.0, 2) and low == pytest.approx(1 - 12.7062047 * 0.5)
    levels = [(5.0, 2.0, 9.0), (4.0, 0.0, 8.0)]
    assert paired_interval([1.0, 1.0], lambda: levels) == pytest.approx(
        (1, 1 - math.hypot(3, 4), 1 + math.hypot(4, 4), 2)
    )
    more = [(50.0, 48.0, 52.0), (40.0, 38.0, 42.0)]  # of other seeds than the two pairs
    mean, low, high, _ = paired_interval([0.0, 0.0], lambda: more)
    assert (mean, low, high) == pytest.approx((0, -math.hypot(2, 2), math.hypot(2, 2)))
    assert (
        paired_interval([], lambda: 1 / 0)[3] == 0 and paired_interval([1.0], lambda: 1 / 0)[3] == 1
    )


def test_what_a_measure_and_a_difference_can_be():
    """Per cent have ends; a change goes either way; changes since one start differ as ends do."""
    share = Measure(weights={"win": 100, "draw": 50})
    above = Measure(weights={"judge": 100, "oracle": -100})
    gain = share.model_copy(update={"change": "difference"})
    late = gain.model_copy(update={"since": 0.5})
    assert (share.range, above.range, gain.range) == ((0, 100), (-100, 100), (-100, 100))
    assert share.reach() == gain.reach() == (-100, 100) and above.reach() == (-200, 200)
    assert late.reach() == gain.reach(late) == (-200, 200)
    assert share.reach(above) == (-100, 200) and above.reach(share) == (-200, 100)
    open_ended = [share.model_copy(update={"change": kind}) for kind in ("percent", "steps")]
    open_ended += [Measure(weights={"level": 1})]
    for one in open_ended:
        assert one.range == one.reach() == (-math.inf, math.inf)
    assert within((50.0, -9.0, 130.0, 3), (0, 100)) == (50.0, 0.0, 100.0, 3)
    assert math.isnan(within((50.0, math.nan, math.nan, 1), (0, 100))[1])


def test_intervals_are_printed_in_one_way():
    nan = float("nan")
    assert frame.format_interval(52.08, 48.0, 56.16) == "52.1 [48.0, 56.2]"
    assert frame.format_interval(0.5, 0.25, 0.754, digits=2) == "0.50 [0.25, 0.75]"
    assert frame.format_interval(52.08, nan, nan) == "52.1 (n = 1)"
    assert frame.format_interval(nan, nan, nan) == "-"


def test_a_label_may_name_a_parameter_of_the_runs(tmp_path):
    params = {"paper": "p", "scale": "cpu", "variant": "v", "seed": 0, "sizes": [4, 16]}
    params["suites"] = ["a-4", "a-16"]
    run = open_run(tmp_path, params)
    for name, value in (("a-4", 0.25), ("a-16", 0.75)):
        labels = dict.fromkeys(frame.KEYS, "") | {"suite": name, "metric": "right"}
        run.append("evals", {"step": 0, **labels, "value": value, "low": 0, "high": 1, "n": 1})
    frames = gather([run])
    taken = [Measure(suite=f"a-{{sizes[{place}]}}", weights={"right": 100}) for place in (0, 1, 2)]
    assert [list(values(each, frames).values()) for each in taken] == [[25], [75], []]
    assert taken[2].select(frames)[1] == "no evals with suite 'a-{sizes[2]}'"
    both = Measure(suite="{suites}", weights={"right": 100})
    assert list(values(both, frames).values()) == [50], "of a list that many labels"


def test_changes_from_step_to_step_have_a_mean_size():
    """1, 3, 2, 2: changes of 2, 1 and 0; over the second half 1 and 0, over the last step none."""
    rows = [("full", 0, step, "a", "random", "win", v) for step, v in enumerate((1, 3, 2, 2))]
    frames = Frames(results=results(*rows))
    own = {"suite": "a", "opponent": "random", "weights": {"win": 1}, "change": "steps"}
    assert values(Measure(**own, window=1), frames) == {("full", 0): 1.0}
    assert values(Measure(**own, window=0.7), frames) == {("full", 0): 0.5}
    assert values(Measure(**own, window=0.1), frames) == {}
    with pytest.raises(ParamError, match="window is 0 with change steps; allowed: above 0"):
        validate(Measure, own)


def test_a_change_may_be_from_a_share_of_the_training_and_up_to_one():
    """2, 5, 4, 1 at steps 1 to 4: up to the half +3, from the half on -4."""
    logged = log(length__a=[2.0, 5.0, 4.0, 1.0])
    own = {"source": "metrics", "role": "a", "weights": {"length": 1}, "change": "difference"}
    assert values(validate(Measure, own | {"until": 0.5}), logged) == {("full", 3): 3}
    assert values(validate(Measure, own | {"since": 0.5}), logged) == {("full", 3): -4}
    level = validate(Measure, own | {"until": 0.75, "change": "none"})
    assert values(level, logged) == {("full", 3): 4}
    assert values(level, logged, 0.5) == {("full", 3): 5}, "an earlier share is as it is"
    with pytest.raises(ParamError, match="since is 0.6; allowed: below until, 0.5"):
        validate(Measure, own | {"since": 0.6, "until": 0.5})


def test_answers_that_agree_leave_room_for_others_where_they_are_yes_or_no(tmp_path):
    """64 of 64 can be read: Wilson's lower end is 64 / (64 + 1.96^2). Each takes two turns; there
    could be any number."""
    run = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "a", "seed": 0})
    run.append("metrics", {"step": 8, "loss": 1.0})
    records = [record("q", str(place), 1.0, parsed=True, turns=2) for place in range(64)]
    run.append("items", *({**each, "step": 8} for each in records))
    for metric, value in (("parsed", 1.0), ("turns", 2.0)):
        run.append("evals", row("q", metric, value, n=64, step=8))
    frames = gather([run])
    read = Measure(suite="q", weights={"parsed": 100}).interval(frames, "a")
    assert read == (100, pytest.approx(94.34, abs=0.01), 100, 1)
    turns = Measure(suite="q", weights={"turns": 1}).interval(frames, "a")
    assert turns == pytest.approx((2, 2, 2, 1))


def test_an_interval_is_widened_where_either_has_ends():
    nan = math.nan
    assert frame.widened((1.0, nan, nan, 1), (0.5, 2.0)) == (1.0, 0.5, 2.0, 1)
    assert frame.widened((1.0, 0.5, 2.0, 2), (nan, nan)) == (1.0, 0.5, 2.0, 2)
    assert frame.widened((1.0, 0.5, 1.5, 2), (0.7, 2.0)) == (1.0, 0.5, 2.0, 2)
