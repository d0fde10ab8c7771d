"""SCOPE's reported numbers: completeness, spot values, and the paper's own arithmetic."""

import pandas as pd
import pytest

from spnb import reference

QWEN = "Qwen3-8B"
SCOPE = "Qwen3-8B + SCOPE"
FROZEN = "Qwen3-8B + SCOPE, No Co-Evolution"
MODELS = ["Qwen2.5-7B", QWEN, "OLMo-3-7B"]

# Printed means per exhibit.
MEANS = {
    "scope/table-2": 15,
    "scope/table-3": 15,
    "scope/table-5": 7,
    "scope/table-6": 5,
    "scope/table-8": 4,
}

# (exhibit, row) -> (printed, mean of the row): the paper's arithmetic slips.
WRONG_MEANS = {("scope/table-2", "OLMo-3-7B + SCOPE iter1"): (35.8, 35.8625)}


def table(number: int) -> pd.DataFrame:
    return reference.table("scope", f"scope/table-{number}")


def value(exhibit: str, row: str, column: str) -> float:
    return reference.value("scope", f"scope/{exhibit}", row, column)


@pytest.mark.parametrize(
    ("exhibit", "row", "column", "expected"),
    [
        ("table-2", "Qwen2.5-7B", "Avg.", 24.4),
        ("table-2", "Qwen2.5-7B + SCOPE iter3", "AH-CW", 13.9),
        ("table-2", "Qwen3-8B + GRPO_data", "AH-CW", 21.0),
        ("table-2", "OLMo-3-7B + SCOPE iter2", "ResPlan", 58.8),
        ("table-3", "Qwen2.5-7B + SCOPE iter3", "Avg.", 59.7),
        ("table-3", "OLMo-3-7B + GRPO_data", "Bamboogle", 38.0),
        ("table-3", "OLMo-3-7B + SCOPE iter1", "MuSiQue", 16.7),
        ("figure-2", f"{SCOPE}, No-LP", "Average, iter-3", 32.8),
        ("figure-2", f"{SCOPE}, No-QG", "Average, iter-3", 37.4),
        ("figure-3", SCOPE, "(b) Mean rubric score in training, iter-3 (0 to 1)", 0.48),
        ("figure-3", FROZEN, "(b) Mean rubric score in training, iter-3 (0 to 1)", 0.71),
        ("figure-3", FROZEN, "(a) Average, iter-3", 40.5),
        ("figure-4", f"{SCOPE}, iter-2, Rubric generator: 4B", "Average, drop", 2.8),
        ("table-4", f"{SCOPE}, Search: Iter-3, Answer: Iter-1", "HotpotQA", 64.5),
        ("table-4", f"{SCOPE}, Search: Iter-1, Answer: Iter-3", "ResearchQA gain", 3.5),
        ("figure-5", "OLMo-3-7B + GRPO_data", "Lead over SCOPE, iteration 3", 0.5),
        ("figure-6", "Challenger's tasks", "Rubric score aimed at, tau (0 to 1)", 0.5),
        ("figure-7", "OLMo-3-7B + SCOPE", "Searches per rollout after the early fall, about", 1.9),
        ("table-5", f"{SCOPE} iter 6", "Avg.", 44.8),
        ("table-5", f"{SCOPE} iter 4", "HealthB.", 27.8),
        ("figure-8", SCOPE, "Lead over the best leave-one-out variant, iter 2", 0.99),
        ("table-6", f"{SCOPE} w/o Writing", "AH-CW", 20.3),
        ("table-7", "# Seed Prompts", "WebExplorer", 12000),
        ("table-7", "Training Recipe: DPO (iterations)", "WebThinker-R1", 2),
        ("table-8", "Qwen3-8B + DR Tulu", "AH-CW", 4.4),
        ("table-8", "QwQ-32B + WebThinker-R1", "ResPlan", 23.0),
        ("table-9", "Trainer: KL coefficient (beta)", "Value", 1e-3),
        ("table-9", "Rollout: Batch size, Challenger (prompts)", "Value", 64),
        ("table-9", "Rollout: Batch size, Solver (prompts)", "Value", 256),
        ("table-9", "Solver Reward: Length penalty floor", "Value", 0.05),
    ],
)
def test_spot_values(exhibit: str, row: str, column: str, expected: float) -> None:
    assert value(exhibit, row, column) == expected


@pytest.mark.parametrize(("exhibit", "count"), MEANS.items())
def test_printed_means_are_row_means_but_for_the_known_slip(exhibit: str, count: int) -> None:
    wide = reference.table("scope", exhibit)
    assert len(wide) == count and not wide.isna().any().any()
    found = {}
    for row, mean in wide.drop(columns="Avg.").mean(axis=1).items():
        printed = wide.loc[row, "Avg."]
        if abs(mean - printed) > 0.05 + 1e-9:
            found[exhibit, row] = (printed, pytest.approx(mean, abs=1e-4))
    assert found == {key: slip for key, slip in WRONG_MEANS.items() if key[0] == exhibit}


def test_printed_gains_of_table_4_are_scores_minus_the_first_rows() -> None:
    wide = table(4)
    first, checked = wide.iloc[0], 0
    for column in wide.columns[wide.columns.str.endswith(" gain")]:
        score = column.removesuffix(" gain")
        for row, gain in wide[column].dropna().items():
            assert gain == pytest.approx(wide.loc[row, score] - first[score])
            checked += 1
    assert checked == 8


def test_rows_that_tables_repeat_have_the_same_numbers() -> None:
    main = table(2)
    names = [QWEN, *(f"{SCOPE} iter{k}" for k in (1, 2, 3))]
    assert table(5).iloc[:4].values.tolist() == main.loc[names].values.tolist()
    assert table(6).loc[SCOPE].tolist() == main.loc[f"{SCOPE} iter3"].tolist()
    assert table(8).loc[f"{SCOPE} (ours)"].tolist() == main.loc[f"{SCOPE} iter3"].tolist()
    first, short = table(4).iloc[0], table(3).loc[f"{SCOPE} iter1"]
    assert first[["NQ", "HotpotQA"]].tolist() == short[["NQ", "HotpotQA"]].tolist()
    scores = main.loc[f"{SCOPE} iter1", ["ResQA", "HealthB."]].tolist()
    assert first[["ResearchQA", "HealthBench"]].tolist() == scores


def test_numbers_about_figures_agree_with_the_averages_of_table_2() -> None:
    average = table(2)["Avg."]
    last = average[f"{SCOPE} iter3"]
    assert value("figure-2", QWEN, "Average") == average[QWEN]
    assert value("figure-2", SCOPE, "Average, iter-3") == last
    for row, end, gain in ((SCOPE, last, 3.4), (FROZEN, 40.5, 0.8)):
        start = value("figure-3", row, "(a) Average, iter-1")
        assert start == average[f"{SCOPE} iter1"]
        assert value("figure-3", row, "(a) Average, iter-3") == end
        assert value("figure-3", row, "(a) Average gain, iter-1 to iter-3") == gain
        assert end - start == pytest.approx(gain)
    lead = value("figure-3", SCOPE, "(a) Lead over No Co-Evolution, iter-3")
    assert lead == pytest.approx(last - value("figure-3", FROZEN, "(a) Average, iter-3"))
    grader = reference.table("scope", "scope/figure-4").loc[f"{SCOPE}, iter-2, Grader: 4B to 32B"]
    assert grader["Average, highest"] - grader["Average, lowest"] == pytest.approx(
        grader["Average, range"]
    )
    for model in ("Qwen2.5-7B", QWEN):
        gain = average[f"{model} + SCOPE iter3"] - average[model]
        assert value("figure-5", f"{model} + SCOPE", "Average gain, iteration 3") == pytest.approx(
            gain
        )
    behind = average["OLMo-3-7B + GRPO_data"] - average["OLMo-3-7B + SCOPE iter3"]
    assert behind == pytest.approx(0.5)


def test_gains_by_kind_of_benchmark_that_the_text_states() -> None:
    def gain(number: int) -> pd.Series:
        wide = table(number)
        return sum(wide.loc[f"{m} + SCOPE iter3"] - wide.loc[m] for m in MODELS) / len(MODELS)

    kinds, short = gain(2), gain(3)
    research = kinds[["DRB", "Rubrics", "ResQA", "SQAv2"]].mean()
    stated = [research, kinds["ResPlan"], kinds["AH-CW"], kinds[["HealthB.", "WildB."]].mean()]
    assert stated == pytest.approx([11.1, 8.4, 4.3, 3.0], abs=0.05)
    stated = [short.iloc[:3].mean(), short.iloc[3:7].mean()]
    assert stated == pytest.approx([9.2, 11.0], abs=0.05)


@pytest.mark.parametrize(
    ("number", "behind", "below_base", "falls"),
    [
        (2, [3, 2, 6], {(QWEN, "HealthB."), (QWEN, "AH-CW"), ("OLMo-3-7B", "AH-CW")}, 5),
        (3, [1, 1, 4], {("OLMo-3-7B", "2Wiki")}, 8),
    ],
)
def test_single_scores_beside_grpo_and_over_the_iterations(
    number: int, behind: list[int], below_base: set, falls: int
) -> None:
    wide = table(number).drop(columns="Avg.")
    counts, below, fallen = [], set(), 0
    for model in MODELS:
        base, curated = wide.loc[model], wide.loc[f"{model} + GRPO_data"]
        steps = wide.loc[[model, *(f"{model} + SCOPE iter{k}" for k in (1, 2, 3))]]
        assert (steps.iloc[3] > base).all()
        counts.append((steps.iloc[3] < curated).sum())
        below |= {(model, column) for column in wide.columns[curated < base]}
        fallen += (steps.diff() < 0).sum().sum()
    assert counts == behind
    assert below == below_base
    assert fallen == falls


def test_gains_of_the_average_shrink_at_every_iteration_but_the_second() -> None:
    steps = table(5)["Avg."].diff().iloc[1:]
    assert steps.tolist() == pytest.approx([2.0, 2.2, 1.2, 0.8, 0.5, 0.4])


def test_falls_in_table_5() -> None:
    steps = table(5).diff() < 0
    fallen = {(row, column) for row in steps.index for column in steps.columns[steps.loc[row]]}
    assert fallen == {
        (f"{SCOPE} iter 3", "WildB."),
        (f"{SCOPE} iter 4", "HealthB."),
        (f"{SCOPE} iter 6", "AH-CW"),
    }


def test_leaving_a_domain_out() -> None:
    wide = table(6)
    drops = wide.loc[SCOPE] - wide.iloc[1:]
    means = drops.drop(columns="Avg.").mean(axis=1)
    assert drops["Avg."].tolist() == pytest.approx([1.7, 1.9, 1.6, 3.1])
    assert means.tolist() == pytest.approx([1.7125, 1.8875, 1.5875, 3.05])
    lead = value("figure-8", SCOPE, "Lead over the best leave-one-out variant, iter 3")
    assert lead == 1.55 != round(means.min(), 2)
    above = drops.drop(columns="Avg.") < 0
    assert above.sum().sum() == 7 and above["HealthB."].all()
    worst = wide.drop(columns="Avg.").idxmin()
    assert (worst == f"{SCOPE} w/o Long-form QA").sum() == 4
    planning = drops.loc[f"{SCOPE} w/o Planning"]
    assert planning[["SQAv2", "ResPlan", "AH-CW"]].tolist() == pytest.approx([3.3, 2.9, 2.9])


def test_related_methods_beside_scope_and_the_base_model() -> None:
    wide = table(8)
    best = wide.drop(columns="Avg.").idxmax()
    ours = ["SQAv2", "HealthB.", "WildB.", "AH-CW"]
    assert best.index[best == f"{SCOPE} (ours)"].tolist() == ours
    below = wide.loc[f"{QWEN} + DR Tulu"] < table(2).loc[QWEN]
    assert wide.columns[below].tolist() == ["HealthB.", "WildB.", "AH-CW"]


def test_bamboogle_scores_that_no_number_of_right_answers_gives() -> None:
    possible = [100 * right / 125 for right in range(126)]
    scores = table(3)["Bamboogle"]
    misfits = {
        row: score
        for row, score in scores.items()
        if min(abs(score - share) for share in possible) > 0.05 + 1e-9
    }
    assert misfits == {f"{QWEN} + GRPO_data": 62.3, "OLMo-3-7B + GRPO_data": 38.0}
    whole = table(3).drop(columns="Avg.")
    whole = whole.index[(whole % 1 == 0).all(axis=1)]
    assert whole.tolist() == ["OLMo-3-7B + GRPO_data"]
