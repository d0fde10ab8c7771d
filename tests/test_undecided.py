"""The table of what is not decided: from the committed seeds and claims, and up to date."""

import pandas as pd
import pytest

from spnb.report.claims import NOT_DECIDED, Part, load_claims
from spnb.report.frame import Measure, load_measures
from tools import undecided
from tools.sizes import with_table
from tools.undecided import (
    FILES,
    INTERVAL,
    ends_by_seed,
    part_of,
    seed_values,
    seeds_needed,
    seeds_to_decide,
    shown,
    to_decision,
)

SCORE = Measure(weights={"accuracy": 100})
LENGTH = Measure(weights={"length": 1})


@pytest.mark.slow
def test_the_seeds_that_would_decide_a_difference():
    """By hand: deviation 2 at five seeds is a half-width of 2.776 * 2 / sqrt(5) = 2.483."""
    half = 2.776 * 2 / 5**0.5
    assert seeds_to_decide(1.5, half, 5) == 10  # 2.262 * 2 / sqrt(10) = 1.43; nine: 1.54
    assert (
        seeds_to_decide(0.01, half, 5) == 0 and seeds_to_decide(0.01, half, 5, most=10**6) > 10**4
    )


def a_part(**change) -> Part:
    """A against b in a score, without margin."""
    values = {"measure": SCORE, "of": "a", "against": "b", "direction": "greater"}
    return Part(**values | {"text": "a against b"} | change)


@pytest.mark.slow
def test_the_results_have_todays_table():
    text = undecided.RESULTS.read_text()
    now = with_table(text, undecided.table(), undecided.MARKERS)
    assert text == now, "run: python -m tools.undecided"
    assert text == with_table(text, undecided.counts(), undecided.COUNTS)


def test_parts_are_counted_by_verdict_and_by_who_claims_them(monkeypatch):
    lines = [
        ("a", "p", "supported"),
        ("a", "q", "equal within 5"),
        ("a", "r", "not decided"),
        ("a", "v", "lower"),
        ("a", "w (ours)", "supported"),
        ("a", "x (our control)", "not decided"),
    ]
    lines += [("a", "s", "not comparable"), ("a", "all parts", "not supported")]
    lines += [
        ("Not in the paper. b", "t", "contradicted"),
        ("Not in the paper. b", "u", "not measured"),
    ]
    found = [dict(zip(("claim", "part", "verdict"), line, strict=True)) for line in lines]
    monkeypatch.setattr(undecided, "FILES", {"SPELL": ("spell", "claims.yaml")})
    monkeypatch.setattr(undecided, "shown", lambda claims: found)
    assert (
        undecided.counts().splitlines()[-1]
        == "| SPELL | 4 | 1 | 0 | 1 | 0 | 1 | 1 | 75% | 2 of 4 |"
    )


@pytest.mark.slow
def test_a_price_is_of_the_runs_that_are_missing(monkeypatch):
    """Of ten seeds SCOPE has those and the weaker grader three; eleven decide: one run and eight of
    so many minutes, two at a time. Compared with itself an arm is paid once."""
    full, weak = 6.0, 10.0
    monkeypatch.setattr(undecided, "minutes_of", lambda plan: {"full": full, "grader-weak": weak})
    monkeypatch.setattr(undecided, "timings", lambda: {"scope": {"cpu": {}}})
    monkeypatch.setattr(undecided, "seeds_needed", lambda *given: (11, ""))
    seeds = [("full", seed) for seed in range(10)] + [("grader-weak", seed) for seed in range(3)]
    ends = pd.DataFrame(seeds, columns=["variant", "seed"]).assign(measure="oracle", end=1.0)
    monkeypatch.setattr(undecided, "ends_by_seed", lambda paper: ends)
    line = {"verdict": NOT_DECIDED, "part": "x", "n": "3", "here": ""}
    monkeypatch.setattr(undecided, "shown", lambda claims: [line])
    for against, price in (("full", (full + 8 * weak) / 2), ("grader-weak", 8 * weak / 2)):
        part = a_part(of="grader-weak", against=against)
        monkeypatch.setattr(undecided, "part_of", lambda *given, part=part: part)
        assert [one.minutes for one in undecided.undecided("SCOPE")] == [price]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_undecided_part_is_listed_with_its_price(name):
    lines = [line for line in shown(load_claims(*FILES[name])) if line["verdict"] == NOT_DECIDED]
    alone = [line for line in lines if line.get("part") != "all parts" and line["n"] != "1"]
    found = list(undecided.undecided(name))
    assert len(found) == len(alone) == len({price.part for price in found})
    for price, line in zip(found, alone, strict=True):
        assert price.seeds == 0 or int(line["n"]) < price.seeds <= undecided.MOST
        assert (price.minutes > 0) == (price.seeds > 0) and not (price.own and price.seeds)
        assert line.get("part", line.get("of")) in price.part


@pytest.mark.slow
def test_a_price_of_the_median_says_so(monkeypatch):
    """No arm of the proposer's is timed: all are guessed; of SSP's one is not."""
    monkeypatch.setattr(undecided, "FILES", {"SSP": FILES["SSP"]})
    before = undecided.table()
    (paper, _), timed = FILES["SSP"], undecided.timings()
    left = {name: value for name, value in timed[paper]["cpu"].items() if name in ("rest", "cores")}
    monkeypatch.setattr(undecided, "timings", lambda: {paper: {"cpu": left}})
    priced = [line for line in undecided.table().splitlines() if "about" in line]
    assert priced and all("(median of the paper's arms)" in line for line in priced)
    assert before.count("median of the paper's arms") < len(priced)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_committed_seeds_are_those_of_the_claims(name):
    """All parts that seeds.csv has: the claims' mean and number of seeds, but for rounding."""
    claims, (paper, _) = load_claims(*FILES[name]), FILES[name]
    measures, ends = load_measures(paper), ends_by_seed(paper)
    shown_parts = [line for line in shown(claims) if line.get("part") != "all parts"]
    lines = [line for line in shown_parts if line["n"] not in ("0", "1")]
    known = 0
    for line in lines:
        values = seed_values(part_of(claims, line), measures, ends)
        known += bool(values)
        if values:
            mean = float(INTERVAL.match(line["here"])[1])
            assert sum(values) / len(values) == pytest.approx(mean, abs=0.051), line
            assert len(values) == int(line["n"]), line
    assert known == len(lines)


def test_seeds_are_paired_whatever_their_order():
    """8 - 5, 6 - 7 of the seeds 10 and 11; 12 has no pair. Beside a constant all three count."""
    rows = [("score", "a", 12, 1.0), ("score", "a", 11, 6.0), ("score", "a", 10, 8.0)]
    rows += [("score", "b", 10, 5.0), ("score", "b", 11, 7.0), ("length", "b", 10, 2.0)]
    ends = pd.DataFrame(rows, columns=["measure", "variant", "seed", "end"])
    measures = {"score": SCORE, "length": LENGTH}
    assert sorted(seed_values(a_part(), measures, ends)) == [-1, 3]
    assert seed_values(a_part(other=LENGTH), measures, ends) == [6]  # 8 - 2
    assert sorted(seed_values(a_part(against=5.0), measures, ends)) == [1, 6, 8]
    assert seed_values(a_part(measure=LENGTH), measures, ends) == []  # a has none
    assert seed_values(a_part(), {"another": SCORE}, ends) == []


FIVE = [-1.0, 0.0, 1.0, 2.0, 3.0]
"""Mean 1, standard deviation sqrt(2.5) = 1.581: t(4) 2.776 x 1.581 / sqrt(5) = 1.963."""


def test_the_price_is_of_the_seeds_not_of_rounded_text():
    """t(11) 2.201 x 1.581 / sqrt(12) = 1.005 is not below 1, t(12) 2.179 x 1.581 / sqrt(13) = .956
    is."""
    small = [value / 1000 for value in FIVE]
    assert seeds_needed(a_part(), "0.0 [-0.0, 0.0] nats", 5, small, 1) == (13, "")
    assert seeds_needed(a_part(), "0.0 [-0.0, 0.0] nats", 5, [], 1) == (0, "")


def test_bound_and_margin_count_in_the_price():
    """Two below a bound of 3: t(4) 1.963 is below 2, so one more seed is enough; 1.3 from 2.3: t(7)
    2.365 x 1.581 / sqrt(8) = 1.322, t(8) 2.306 x 1.581 / 3 = 1.215. A margin of 2.3 leaves 1.3."""
    here = "1.0 [-1.0, 3.0] points"
    assert seeds_needed(a_part(against=3.0), here, 5, FIVE, 1) == (6, "")
    assert seeds_needed(a_part(against=2.3), here, 5, FIVE, 1) == (9, "")
    assert seeds_needed(a_part(margin=2.3), here, 5, FIVE, 1) == (9, "")


def test_a_part_is_as_far_as_from_where_it_would_be_settled():
    """1 is 2 below a least effect of 3, where less is claimed -1 is 4 below it; 1 is 1 within a
    margin of 2, .6 outside one of .4, .1 above a gain of .9."""
    assert to_decision(a_part(minimal_effect=3), 1.0) == 2
    assert to_decision(a_part(minimal_effect=3, direction="less"), 1.0) == 4
    near = [to_decision(a_part(direction="near", margin=margin), 1.0) for margin in (2, 0.4)]
    assert near == pytest.approx([1, 0.6])
    assert to_decision(a_part(direction="no gain", margin=0.9), 1.0) == pytest.approx(0.1)
    assert to_decision(a_part(margin=5), -1.0) == 4, "equal within the margin is settled, too"
    here = "1.0 [-1.0, 3.0] points"
    assert seeds_needed(a_part(minimal_effect=3), here, 5, FIVE, 1) == (6, "")


def test_a_width_of_the_items_is_told_and_has_no_price():
    """The seeds' own is 1 +- 1.963; ends that rounding can explain are theirs."""
    part = a_part(against=0.0)
    for here in ("1.0 [-2.5, 3.0] points", "1.0 [-1.0, 4.1] points"):
        assert seeds_needed(part, here, 5, FIVE, 1) == (0, "2.0")
    assert seeds_needed(part, "1.0 [-1.0, 3.0] points", 5, FIVE, 1) == (13, "")


def test_without_seeds_the_spread_is_that_of_the_claims():
    """Half 4.35 with five seeds. With ten, t(9) 2.262 / sqrt(10) to t(4) 2.776 / sqrt(5) of it:
    2.51, below 2.6; with nine 2.69."""
    here = "-2.6 [-7.0, 1.7] points"
    assert seeds_needed(a_part(margin=5), here, 5, [], 1) == (10, "")
    assert seeds_needed(a_part(margin=5), here, 5, [-2.6], 1) == (10, "")
