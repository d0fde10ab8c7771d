"""Which curriculum reward, when: the figure's numbers by reward and condition, and its claims."""

import pytest

from spnb.core.params import variants
from spnb.report.claims import load_claims, verdict_table
from spnb.report.frame import KEYS, gather
from spnb.report.papers.proposer import WHEN, when
from spnb.report.show import described
from spnb.report.tables import load_own
from spnb.train.plan import make_plan
from spnb.train.runs import open_run

STEPS = 8
RIGHT = {"one-minus-easy": 0.8, "gaussian-easy": 0.6, "frozen-easy": 0.5, "one-minus-hard": 0.2}
RIGHT |= {"frozen-hard": 0.5}


@pytest.fixture
def frames(tmp_path):
    """Two seeds an arm, .02 apart; one arm belongs to another exhibit."""
    runs = []
    for variant, right in {**RIGHT, "learning": 0.9}.items():
        for seed in (10, 11):
            identity = {"paper": "proposer", "scale": "cpu", "variant": variant, "seed": seed}
            run = open_run(tmp_path, identity)
            for step, value in ((0, 0.1), (STEPS, right + 0.02 * (seed - 10))):
                row = dict.fromkeys(KEYS, "") | {"suite": "ladder", "decoding": "sampled"}
                numbers = {"step": step, "metric": "accuracy", "value": value, "n": 8}
                run.append("evals", {**row, **numbers, "low": 0.0, "high": 1.0})
            for step in range(1, STEPS + 1):
                logged = {"method/level": float(step), "method/idle pay": step / STEPS}
                run.append("metrics", {"step": step, **logged})
            runs.append(run)
    return gather(runs)


def test_a_bar_a_reward_in_each_condition(frames):
    made = when(None, frames)
    data = made.data.set_index(["quantity", "condition", "reward", "seed"])["value"]
    right, level, idle = load_own("proposer")[WHEN].words["panels"]
    assert data[right, "easy start", "one-minus", 10] == pytest.approx(80)
    assert data[right, "easy start", "one-minus", 11] == pytest.approx(82)
    assert data[right, "hard start", "frozen", 10] == pytest.approx(50)
    assert data[level, "easy start", "gaussian", 10] == pytest.approx(8), "the last eighth"
    assert data[idle, "easy start", "gaussian", 10] == pytest.approx(100 * 6.5 / 8), "second half"
    assert {run.variant for run in made.runs} == {*RIGHT}
    panels = made.item.axes
    assert [ax.get_title("left") for ax in panels] == [right, level, idle]
    assert [text.get_text() for text in panels[0].get_xticklabels()] == [
        "easy\nstart",
        "hard\nstart",
    ]
    heights = sorted(bar.get_height() for bars in panels[0].containers[:3] for bar in bars)
    assert heights == pytest.approx([21, 51, 51, 61, 81])


def test_a_measure_that_no_run_has_gets_no_panel(frames):
    for run in frames.runs:
        (run.folder / "metrics.jsonl").write_text("")
    made = when(None, gather(frames.runs))
    (panel,) = made.item.axes
    assert panel.get_title("left") == next(iter(load_own("proposer")[WHEN].words["panels"]))


@pytest.mark.slow
def test_every_arm_is_a_variant_with_its_seeds_and_is_claimed():
    words = load_own("proposer")[WHEN].words
    arms = {f"{one}-{at}" for at in words["conditions"] for one in words["rewards"]}
    assert len(arms) == 35 and arms <= set(variants("proposer"))
    claims = load_claims("proposer", "claims-when.yaml")
    assert set(claims.variants) == arms
    assert described("proposer")[claims.exhibit].file == "claims-when.yaml"
    parts = [part for claim in claims.claims for part in claim.parts]
    assert {part.margin for part in parts} == {5} and len(parts) == 5 * (6 + 5)
    for arm in arms:
        seeds = make_plan("proposer", "cpu", variants=[arm]).seeds_of(arm)
        assert seeds == list(range(20, 30 if arm.endswith("-easy") else 25))


@pytest.mark.slow
def test_the_claims_are_judged_beside_frozen_and_one_minus(frames):
    table = verdict_table(load_claims("proposer", "claims-when.yaml"), frames)
    found = {(row.reward, row.against): row.verdict for row in table.itertuples()}
    assert found == {
        ("one-minus-easy", "frozen-easy"): "higher",
        ("gaussian-easy", "frozen-easy"): "higher",
        ("gaussian-easy", "one-minus-easy"): "lower",
        ("one-minus-hard", "frozen-hard"): "lower",
    }
