"""Claims: measures and verdicts on frames small enough to compute by hand, and the faults of a
claims file."""

import pandas as pd
import pytest

from spnb.core.params import ParamError
from spnb.report.claims import (
    CONTRADICTED,
    NOT_DECIDED,
    NOT_MEASURED,
    SUPPORTED,
    Claim,
    Measure,
    Part,
    decide,
    load_claims,
    measured,
    read_claims,
    together,
    verdicts,
)

SCORE = {"table": "evals", "names": ["* vs random"], "weights": {"win": 100, "draw": 50}}
NOTHING = pd.DataFrame()


def part(**changes):
    given = {
        "text": "a",
        "measure": Measure(**SCORE),
        "of": "full",
        "against": "no-rae",
        "direction": "greater",
    }
    return Part(**given | changes)


def evals(*rows):
    """Rows (variant, seed, step, evaluation, win, draw) as the frame of two metrics."""
    long = []
    for variant, seed, step, evaluation, win, draw in rows:
        where = {"variant": variant, "seed": seed, "step": step, "evaluation": evaluation}
        long += [where | {"metric": "win", "value": win}, where | {"metric": "draw", "value": draw}]
    return pd.DataFrame(long)


def ends(*wins, variant="full", evaluation="a vs random", step=9):
    """The last evaluation of seeds 0, 1, ... with these wins and no draws."""
    return evals(*((variant, seed, step, evaluation, win, 0.0) for seed, win in enumerate(wins)))


def only(frame, metrics=NOTHING, **changes):
    """The one line of a claim with one part."""
    claim = Claim(id="c", text="the claim", source="s", parts=[part(**changes)])
    return verdicts([claim], frame, metrics).iloc[0]


@pytest.mark.parametrize(
    ("changes", "low", "high", "verdict"),
    [
        ({}, 0.1, 2, SUPPORTED),
        ({}, 0, 2, NOT_DECIDED),
        ({}, -1, 2, NOT_DECIDED),
        ({}, -2, -0.1, CONTRADICTED),
        ({"direction": "less"}, -2, -0.1, SUPPORTED),
        ({"direction": "less"}, 0.1, 2, CONTRADICTED),
        ({"minimal_effect": 5}, 6, 9, SUPPORTED),
        ({"minimal_effect": 5}, 1, 9, NOT_DECIDED),
        ({"minimal_effect": 5}, 1, 4, NOT_DECIDED),  # there, but too small to matter
        ({"minimal_effect": 5}, -3, -1, CONTRADICTED),
        ({"direction": "less", "minimal_effect": 5}, -9, -6, SUPPORTED),
        ({"direction": "near", "margin": 5}, -5, 5, SUPPORTED),
        ({"direction": "near", "margin": 5}, 1, 2, SUPPORTED),  # off 0, but by little
        ({"direction": "near", "margin": 5}, -6, 2, NOT_DECIDED),
        ({"direction": "near", "margin": 5}, 5.1, 9, CONTRADICTED),
        ({"direction": "near", "margin": 5}, -9, -5.1, CONTRADICTED),
    ],
)
def test_decide(changes, low, high, verdict):
    assert decide(part(**changes), low, high) == verdict


def test_together_all_parts_must_hold():
    assert together([SUPPORTED, SUPPORTED]) == SUPPORTED
    assert together([SUPPORTED, NOT_DECIDED]) == NOT_DECIDED
    assert together([NOT_DECIDED, NOT_MEASURED]) == NOT_MEASURED
    assert together([NOT_MEASURED, CONTRADICTED, SUPPORTED]) == CONTRADICTED


def test_variants_are_compared_in_pairs_of_a_seed():
    frame = pd.concat([ends(0.60, 0.30), ends(0.40, 0.08, variant="no-rae")])
    row = only(frame)  # differences 20 and 22: mean 21, standard error 1, t(0.975, 1) = 12.706
    assert row[["claim", "part", "paper", "here"]].tolist() == [
        "the claim",
        "a",
        "-",
        "21.0 [8.3, 33.7]",
    ]
    assert row[["n", "verdict", "note"]].tolist() == [2, SUPPORTED, ""]
    assert only(frame, of="no-rae", against="full")["verdict"] == CONTRADICTED
    row = only(frame, minimal_effect=10)
    assert row[["verdict", "note"]].tolist() == [NOT_DECIDED, "perhaps smaller than 10"]


def test_beside_a_constant_the_measure_itself_is_shown():
    near = {
        "against": 50,
        "direction": "near",
        "margin": 14,
        "paper": {"step 16": 52.3, "late": 51.0},
    }
    row = only(ends(0.50, 0.52), measure=Measure(**SCORE, unit="%"), **near)
    assert row[["paper", "here"]].tolist() == ["step 16: 52.3; late: 51", "51.0 [38.3, 63.7] %"]
    assert row["verdict"] == SUPPORTED  # 1 +- 12.7 lies within 14
    assert only(ends(0.50, 0.52), **near | {"margin": 13})["verdict"] == NOT_DECIDED
    assert only(ends(0.70, 0.70), against=70)["verdict"] == NOT_DECIDED  # no spread, no difference
    assert only(ends(0.70, 0.70), against=71, direction="less")["verdict"] == SUPPORTED


def test_not_measured_says_what_is_missing():
    both = pd.concat([ends(0.6, 0.3), ends(0.4, variant="no-rae")])
    other = measure_of(names=["a vs random", "b vs *"])
    cases = [
        (only(NOTHING), "no runs of full, no-rae"),
        (only(ends(0.6, 0.3)), "no runs of no-rae"),
        (only(both, measure=other), "no evals named b vs *"),
        (only(both), "1 seed(s) with the whole measure; needed: 2"),
        (
            only(both, measure=measure_of(weights={"utility": 1})),
            "0 seed(s) with the whole measure; needed: 2",
        ),
        (
            only(both, measure=measure_of(change="difference")),
            "0 seed(s) with the whole measure; needed: 2",
        ),
    ]
    assert [(row["verdict"], row["note"]) for row, _ in cases] == [
        (NOT_MEASURED, note) for _, note in cases
    ]


def test_a_claim_of_several_parts_ends_with_all_parts():
    parts = [part(against=40), part(against=80, direction="less"), part(against="sft")]
    table = verdicts(
        [Claim(id="c", text="the claim", source="s", parts=parts)], ends(0.60, 0.60), NOTHING
    )
    assert table["verdict"].tolist() == [SUPPORTED, SUPPORTED, NOT_MEASURED, NOT_MEASURED]
    assert table["part"].tolist() == ["a", "a", "a", "all parts"] and table["n"].tolist() == [
        2,
        2,
        0,
        0,
    ]
    assert list(table.columns) == ["claim", "part", "paper", "here", "n", "verdict", "note"]


def measure_of(**changes):
    return Measure(**SCORE | changes)


def values(measure, frame):
    found = measured(measure, frame)
    return {(row.variant, row.seed): row.value for row in found.itertuples()}


def test_draws_count_half_and_games_are_averaged_at_the_last_step():
    frame = evals(
        ("full", 0, 8, "a vs random", 0.9, 0.1),
        ("full", 0, 9, "a vs random", 0.5, 0.2),
        ("full", 0, 9, "b vs random", 0.3, 0.0),
        ("full", 0, 9, "b vs random, seat 0", 1.0, 0.0),
    )
    assert values(measure_of(), frame) == {("full", 0): pytest.approx((60 + 30) / 2)}


def test_a_run_without_one_of_the_names_is_left_out():
    frame = pd.concat(
        [ends(0.5, 0.6), ends(0.1, 0.2, variant="sft"), ends(0.3, evaluation="b vs random")]
    )
    assert values(measure_of(), frame) == {
        ("full", 0): pytest.approx(40)
    }  # every other run has game a only
    assert len(values(measure_of(names=["a vs random"]), frame)) == 4


def test_change_and_window_over_evaluations():
    frame = evals(
        *(
            ("full", 0, step, "a vs random", win, 0.0)
            for step, win in ((0, 0.2), (5, 0.3), (10, 0.8))
        )
    )
    assert values(measure_of(change="difference"), frame) == {("full", 0): pytest.approx(60)}
    assert values(measure_of(change="percent"), frame) == {("full", 0): pytest.approx(400)}
    assert values(measure_of(window=0.5), frame) == {
        ("full", 0): pytest.approx(55)
    }  # steps 5 and 10
    assert values(measure_of(window=1), frame) == {("full", 0): pytest.approx(130 / 3)}


def test_metrics_columns_from_the_first_to_the_last_tenth():
    steps = range(1, 21)  # reach 0.1 * 19: steps 1 and 2, 19 and 20
    frame = pd.DataFrame(
        {"step": steps, "length/g/0": 10.0, "length/g/1": [float(s) for s in steps], "loss": 9.0}
    )
    frame = frame.assign(variant="full", seed=3)
    frame["length/other/0"] = float("nan")  # a column of other variants
    kept = Measure(table="metrics", names=["length/*"], change="percent", window=0.1)
    assert values(kept, frame) == {("full", 3): pytest.approx(100 * (10 + 19.5) / (10 + 1.5))}
    frame.loc[frame.step == 20, "length/g/0"] = float(
        "nan"
    )  # no row of that role in the step: the step is left out
    assert values(kept, frame) == {
        ("full", 3): pytest.approx(100 * (10 + 18.5) / (10 + 1.5))
    }  # 18 and 19


def test_metrics_claims_read_the_metrics_frame():
    rows = [("full", 0, 1, 10.0), ("full", 0, 2, 9.0), ("full", 1, 1, 10.0), ("full", 1, 2, 9.0)]
    frame = pd.DataFrame(rows, columns=["variant", "seed", "step", "length/g/0"])
    kept = Measure(table="metrics", names=["length/*"], change="percent")
    row = only(NOTHING, frame, measure=kept, against=100, direction="near", margin=25)
    assert row[["here", "n", "verdict"]].tolist() == ["90.0 [90.0, 90.0]", 2, SUPPORTED]


def test_spirals_claims():
    claims = {claim.id: claim for claim in load_claims("spiral")}
    assert [len(claim.parts) for claim in claims.values()] == [3, 3, 3, 3, 1]
    past, rises, _ = claims["past-self-stays-near-half"].parts
    assert past.paper == {"step 16": 52.3, "step 128": 51.7, "step 384": 50.9} and past.margin == 5
    assert (
        rises.measure.weights == {"win": 100, "draw": 50} and rises.measure.change == "difference"
    )
    assert claims["larger-variants"].parts[0].paper == {"SPIRAL": 36.1, "SFT": 18.4}
    used = {
        variant for claim in claims.values() for each in claim.parts for variant in each.variants
    }
    fixed, alone = (
        {"fixed-random", "fixed-expert", "fixed-policy"},
        {"only-tictactoe", "only-kuhn", "only-negotiation"},
    )
    assert used == {"full", "no-rae", "sft"} | fixed | alone


def test_claims_of_an_unknown_paper():
    with pytest.raises(
        ParamError, match="paper is 'spirall', which is unknown; did you mean 'spiral'"
    ):
        load_claims("spirall")


GOOD = """
measures:
  score: {table: evals, names: ["* vs random"], weights: {win: 100}}
claims:
  - id: one
    text: t
    source: s
    parts:
      - {text: p, measure: score, of: full, against: 50, direction: greater, paper: {a: 1}}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("measures:", "measure:", r"claims.yaml: measures is missing; .*\n?.*"),
        ("measures:", "x: [", "claims.yaml: not valid YAML"),
        (
            "table: evals",
            "table: rollouts",
            "measure 'score': table is 'rollouts'; allowed: 'evals' or 'metrics'",
        ),
        (
            "weights: {win: 100}",
            "weights: {}",
            "measure 'score': weights is empty; allowed with table evals",
        ),
        (
            "table: evals",
            "table: metrics",
            "weights is {'win': 100.0}; allowed with table metrics: none",
        ),
        (
            "weights:",
            "wieghts:",
            "parameter is 'wieghts', which is unknown; did you mean 'weights'",
        ),
        ("names: [", "window: 2, names: [", "window is 2; allowed: less than or equal to 1"),
        (
            "measure: score",
            "measure: scores",
            "claim 'one': part 1: measure is 'scores', .* did you mean 'score'",
        ),
        ("measure: score, ", "", "part 1: measure is missing"),
        (
            "direction: greater",
            "direction: more",
            "direction is 'more'; allowed: 'greater', 'less' or 'near'",
        ),
        (
            "direction: greater",
            "direction: near",
            "margin is None with direction near; allowed: a margin with near",
        ),
        ("direction: greater", "direction: less, margin: 3", "margin is 3.0 with direction less"),
        (
            "direction: greater",
            "direction: near, margin: 3, minimal_effect: 1",
            "minimal_effect is 1.0; allowed",
        ),
        ("against: 50", "against: full", "against is 'full'; allowed: another variant"),
        ("{a: 1}", "{a: [spiral/table-3, Step 17, x]}", "no row 'Step 17'; nearest: 'Step 16'"),
        (
            "{a: 1}",
            "{a: [spiral/table-3]}",
            r"paper has \['spiral/table-3'\]; allowed: a number, or \[exhibit",
        ),
        ("    source: s\n", "", "claim 'one': source is missing"),
        ("    parts:\n      - {", "    parts: []\n    # {", "claim 'one': parts is"),
        (
            "      - {text: p",
            "      - 5 # {",
            "part 1: is 5; allowed: a mapping of text, measure, of",
        ),
    ],
)
def test_faults_name_place_key_value_and_what_is_allowed(tmp_path, old, new, message):
    path = tmp_path / "claims.yaml"
    path.write_text(GOOD)
    assert read_claims(path, "spiral")[0].parts[0].against == 50
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ParamError, match=message):
        read_claims(path, "spiral")


def test_ids_are_unique(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(GOOD + GOOD.split("claims:\n")[1])
    with pytest.raises(ParamError, match="claim id 'one' is there more than once"):
        read_claims(path, "spiral")
