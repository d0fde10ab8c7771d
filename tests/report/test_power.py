"""How wide the interval of a difference would be: variances, from data that have known ones."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from spnb.report import power, show
from spnb.report.frame import Measure, gather, load_measures
from spnb.report.power import Components, components, contributions, line
from spnb.report.tables import CustomExhibit, load_own
from spnb.train.runs import open_run, read_run

PAPERS = ("spell", "spice", "scope", "ssp")


def drawn(seeds, items, between, within, strata=2, rng=None, own=3.0):
    """Differences of `seeds` runs that vary by `between`, `items` a stratum by `within` (standard
    deviations); each item has a difficulty of its own (`own`), the same for every seed."""
    rng = rng or np.random.default_rng(0)
    count = strata * items
    common = rng.normal(0, own, count)
    level = rng.normal(0, between, (seeds, 1))
    values = (level + common + rng.normal(0, within, (seeds, count))) / count
    columns = pd.MultiIndex.from_product([range(strata), range(items)])
    return pd.DataFrame(values, columns=columns)


@pytest.mark.slow
def test_known_variances_are_found_and_the_items_own_difficulty_is_none():
    """Between 4 (variance 16), within 20 over 100 items: 400 / 100 = 4; means of 400 draws."""
    rng = np.random.default_rng(1)
    found = [components(drawn(10, 50, 4, 20, rng=rng)) for _ in range(400)]
    assert np.mean([one.items for one in found]) == pytest.approx(4, rel=0.03)
    assert np.mean([one.seeds for one in found]) == pytest.approx(16, rel=0.08)


def test_by_hand():
    """One stratum, two seeds, two items: rests of +-1, 2 x 4 / 1 = 8; sums 4 and 0 have variance
    8, so that nothing is left between the seeds. With sums 8 and 0: 32 - 8."""
    columns = pd.MultiIndex.from_product([["a"], [0, 1]])
    table = pd.DataFrame([[3.0, 1.0], [-1.0, 1.0]], columns=columns)
    assert components(table) == pytest.approx((0, 8, 0))
    table = pd.DataFrame([[5.0, 3.0], [-1.0, 1.0]], columns=columns)
    assert components(table) == pytest.approx((24, 8, 0))
    alone = pd.DataFrame([[5.0, 3.0], [-1.0, 1.0]], columns=[("a", 0), ("b", 0)])
    alone.columns = pd.MultiIndex.from_tuples(alone.columns)
    only = "one item a stratum says nothing of items"
    assert components(alone, since_start=True) == pytest.approx((32, 0, 0)), only
    gains = pd.DataFrame([[5.0, 1.0], [-1.0, 1.0]], columns=columns)
    shared = "means over seeds 2 and 1 have variance .5, of two items 1"
    assert components(gains, since_start=True) == pytest.approx((0, 18, 1)), shared
    assert components(gains).shared == 0
    assert math.isnan(components(table[:1]).half_width(10)), "nor one seed of anything"


def test_half_widths_of_seeds_and_of_more_items():
    """t(.975, 9) = 2.2622, t(.975, 4) = 2.7764; 9 + 16 a seed, 9 + 4 with four times the items."""
    parts = Components(9.0, 16.0)
    assert parts.half_width(10) == pytest.approx(2.2622 * 5 / 10**0.5, rel=1e-4)
    assert parts.half_width(5) == pytest.approx(2.7764 * 5 / 5**0.5, rel=1e-4)
    assert parts.half_width(10, 4) == pytest.approx(2.2622 * (13 / 10) ** 0.5, rel=1e-4)


def test_a_line_has_both_spreads_and_the_widths_of_more_seeds_and_items():
    """The components 24 and 8 of above; the second arm has neither of these items, but one that
    adds nothing, and a seed without a pair. t(.975, 2) = 4.3027."""
    columns = pd.MultiIndex.from_product([["a"], ["0", "1"]])
    first = pd.DataFrame([[5.0, 3.0], [-1.0, 1.0]], columns=columns)
    second = pd.DataFrame({("b", "2"): [0.0, 0.0, 9.0]})
    found = line([first, second])
    assert (found["pairs"], found["items"], found["difference"]) == (2, 3, 4)
    assert found["seeds' spread"] == pytest.approx(24**0.5)
    assert found["items' spread"] == pytest.approx(8**0.5)
    assert found["3 seeds"] == pytest.approx(4.3027 * (32 / 3) ** 0.5, rel=1e-4)
    for name, items in {"a quarter of": 32, "half": 16, "twice": 4}.items():
        half = 2.2622 * ((24 + items) / 10) ** 0.5
        assert found[f"10 seeds, {name} the items"] == pytest.approx(half, rel=1e-4)
    assert line([second[:2], first])["difference"] == -4


def test_a_change_since_the_start_keeps_what_all_seeds_share():
    """1.96 sqrt(25 / 100 + 100 / r), more than t(.975, 99) = 1.984 sqrt(25 / 100)."""
    parts = Components(9.0, 16.0, 100.0)
    assert parts.half_width(100) == pytest.approx(1.96 * 100.25**0.5, rel=1e-4)
    assert parts.half_width(100, 4) == pytest.approx(1.96 * (13 / 100 + 25) ** 0.5, rel=1e-4)
    small = Components(9.0, 16.0, 0.1)
    assert small.half_width(3) == Components(9.0, 16.0).half_width(3), "few seeds: Student's t"


@pytest.mark.slow
def test_what_is_foretold_for_fewer_items_is_what_they_show():
    """The spread of the seeds' differences over a quarter of the items, beside the foretold one."""
    rng = np.random.default_rng(2)
    shown, foretold = [], []
    for _ in range(300):
        whole = drawn(10, 40, 2, 30, rng=rng)
        some = whole[[column for column in whole if column[1] < 10]] * 4
        shown.append(some.sum(axis=1).var())
        parts = components(whole)
        foretold.append(parts.seeds + 4 * parts.items)
    assert np.mean(foretold) == pytest.approx(np.mean(shown), rel=0.08)


def evaluated(folder, variant, seed, hits, resumed=False):
    """A run with four questions at steps 0, 2, 4; `hits`: which are right, by step."""
    values = {"paper": "p", "scale": "cpu", "variant": variant, "seed": seed}
    run = open_run(folder, values)
    labels = {"suite": "a", "opponent": "", "role": "", "decoding": "sampled", "difficulty": ""}
    for step, right in hits.items():
        row = {"step": step, **labels, "metric": "accuracy", "value": sum(right) / len(right)}
        run.append("evals", row | {"low": 0.0, "high": 1.0, "n": len(right)})
        for item, score in enumerate(right):
            record = {"step": step, **labels, "item": str(item), "sample": 0, "score": score}
            run.append("items", record | {"kind": ""})
    run.finish(seconds=60.0 * (seed + 1), resumed=resumed)
    return run


@pytest.mark.slow
def test_items_are_paired_by_seed_and_averaged_over_the_window(tmp_path):
    """Seed 0: b has no item right at step 4 and one at step 2; a has two and four. b lacks one of
    a's seeds."""
    runs = [
        evaluated(tmp_path, "a", s, {0: [0] * 4, 2: [1] * 4, 4: [1, 1, 0, s == 1]})
        for s in (0, 1, 5)
    ]
    few = {0: [0] * 4, 2: [1, 0, 0, 0], 4: [0] * 4}
    runs += [evaluated(tmp_path, "b", s, few, resumed=s == 7) for s in (0, 1, 7)]
    frames = gather(runs)
    last = Measure(suite="a", decoding="sampled", weights={"accuracy": 100})
    half = last.model_copy(update={"window": 0.5})
    a, b, start = (contributions(frames, last, *one) for one in (("a", 1), ("b", 1), ("a", 0)))
    assert a.to_numpy().tolist() == [[25, 25, 0, 0], [25, 25, 0, 25], [25, 25, 0, 0]]
    assert line([a, b])["difference"] == line([a[:2], start])["difference"] == 62.5
    pair = [contributions(frames, half, name, 1) for name in ("a", "b")]
    found = line(pair)
    assert found["difference"] == pytest.approx((62.5 + 75) / 2)
    assert (found["pairs"], found["items"]) == (2, 4)
    assert power.core_minutes(frames, "a") == 2 and power.core_minutes(frames, "b") == 1.5
    assert math.isnan(power.core_minutes(gather(runs[-1:]), "b")), "resumed runs say nothing"


def test_two_changes_of_one_variant_are_as_wide_as_its_items_say(tmp_path):
    """Of 40 items 20 are learned in each half; seed 1 learns one of the second early: differences
    0, 5, 0, t(.975, 2) = 4.303 times 1.667. By items 2.5 up or down each: 1.96 * 2.5 sqrt(40)."""
    for name in ("a", "b"):
        for seed in (0, 1, 2):
            early = [1] * 20 + [int(seed == 1)] + [0] * 19
            evaluated(tmp_path, name, seed, {0: [0] * 40, 2: early, 4: [1] * 40})
    frames = gather([read_run(one.parent) for one in sorted(tmp_path.rglob("finished.json"))])
    later = Measure(
        suite="a", decoding="sampled", weights={"accuracy": 100}, change="difference", since=0.5
    )
    first = later.model_copy(update={"since": 0, "until": 0.5})
    mean, low, high, n = first.difference(frames, "a", "b", later)
    assert (mean, n) == (pytest.approx(5 / 3), 3)
    assert (low, high) == pytest.approx((5 / 3 - 4.303 * 5 / 3, 5 / 3 + 4.303 * 5 / 3), abs=0.01)
    mean, low, high, n = first.difference(frames, "a", "a", later)
    assert (mean, n) == (pytest.approx(5 / 3), 3)
    assert (high - low) / 2 == pytest.approx(1.96 * 2.5 * 40**0.5, rel=0.1)


@pytest.mark.slow
def test_the_table_has_a_row_a_comparison_and_window(tmp_path, monkeypatch):
    """Steps 0, 2, 4: within half of the training from the end are two. A run takes 60 (seed + 1)
    seconds, a comparison with the start one arm."""
    hits = {"a": [1, 1, 0], "b": [1, 0, 0]}
    for name, right in hits.items():
        for seed in (0, 1, 2):
            evaluated(tmp_path, name, seed, {0: [0] * 3, 2: right, 4: [*right[:2], seed == 1]})
    runs = [read_run(path.parent) for path in sorted(tmp_path.glob("p/cpu/*/*/finished.json"))]
    words = {"of": "a", "measure": "m", "against": {"control": "b", "start": "start"}}
    entry = CustomExhibit(caption="c", protocol="p", variants=["a", "b"], words=words)
    right = Measure(suite="a", decoding="sampled", weights={"accuracy": 100})
    monkeypatch.setattr(power, "load_own", lambda paper: {"p/power": entry})
    monkeypatch.setattr(power, "load_measures", lambda paper: {"m": right})
    plan = SimpleNamespace(paper="p")
    made = power.table(plan, gather(runs))
    assert made.item["against"].tolist() == ["control: b"] * 3 + ["start"] * 3
    assert made.item["evaluations"].tolist() == [1, 1, 2] * 2
    assert made.item["minutes a pair"].tolist() == [4.0] * 3 + [2.0] * 3
    assert made.item["difference"][:3].tolist() == pytest.approx([33.3] * 3)
    assert made.item["difference"][3:].tolist() == pytest.approx([77.8, 77.8, 72.2])
    shared = 100 / 3 * np.sqrt(3 * np.var([1, 1, 1 / 3], ddof=1))  # of what items gained
    one_seed = 100 / 3 * np.sqrt(1 / 3)  # the third item is right in one seed of three
    least = 1.96 * np.sqrt(one_seed**2 / 20 + shared**2)
    assert made.item["20 seeds"][3] == pytest.approx(least, abs=0.06)
    assert power.table(plan, gather([run for run in runs if run.variant == "a"])) is None


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_comparisons_are_of_known_arms_and_a_measure_with_items(paper):
    entry = load_own(paper)[f"{paper}/power"]
    words = entry.words
    named = {words["of"], *words["against"].values()} - {power.START}
    assert named == set(entry.variants) and words["measure"] in load_measures(paper)
    assert show.MAKERS[f"{paper}/power"] is power.table
    assert power.table(SimpleNamespace(paper=paper), gather([])) is None
