"""The papers' own arithmetic: printed means, gains and repeated rows, with every known slip."""

import re

import pytest

from spnb import reference

SPELL = "Qwen2.5-7B-Instruct + SPELL"
SPICE = "Qwen3-4B-Base + SPICE"
SSP = "Qwen2.5-7B-Instruct + SSP"
MEAN = r"Average|Avg\.?|Overall"  # in the label of a column of printed means
NO_SCORE = f"{MEAN}|Delta|T/step"  # in the label of a column that no mean averages

# Printed means per exhibit.
MEANS = {
    "spiral/table-1": 17 + 5,  # also of the gains
    "spiral/table-5": 6,
    "spiral/table-9": 26,
    "spiral/table-10": 1,
    "spiral/table-12": 5,
    "spiral/table-13": 3,
    "spell/table-1": 36 * 2,
    "spell/table-2": 9,
    "spell/table-3": 5,
    "spell/table-4": 5,
    "spell/table-7": 6,
    "spell/table-8": 9,
    "spell/table-9": 7,
    "spice/table-1": 20,
    "spice/table-6": 3,
    "spice/table-7": 3,
    "spice/table-8": 4,
    "ssp/table-1": 18 + 9,  # also of the gains
    "ssp/table-2": 4,
    "ssp/table-5": 5,
    "ssp/table-6": 6,
}
HUNDREDTHS = {"spiral/table-13", "spell/table-7"}  # means with two decimals; the others have one

# (exhibit, row, column of the printed mean) -> (printed, mean of the row): the papers' arithmetic
# slips.
WRONG_MEANS = {
    ("spiral/table-1", "Qwen3-8B-Base + SPIRAL-Multi (Ours)", "Average gain"): (10.1, 10.0125),
    ("spiral/table-9", "Qwen3-4B-Base + SFT (Multi, 52k)", "Average"): (39.7, 39.775),
    ("spiral/table-12", "Qwen3-4B-Base + RLVR -> SPIRAL", "Average"): (47.9, 48.1375),
    ("spiral/table-13", "Qwen3-4B-Instruct (Base)", "Average"): (74.10, 74.2625),
    ("spiral/table-13", "Qwen3-4B-Instruct + SPIRAL-Multi (Ours)", "Average"): (75.91, 75.2625),
    ("spice/table-6", f"{SPICE}, Corpus Type: Math (Nemotron-CC-Math)", "Overall"): (43.2, 44.9818),
    ("spice/table-7", f"{SPICE}, Response Format: MCQ", "Overall"): (42.0, 42.9545),
    ("spice/table-7", f"{SPICE}, Response Format: Free-form", "Overall"): (43.7, 45.0909),
    ("ssp/table-1", "Qwen2.5-32B-Instruct + SSP", "Avg"): (58.5, 59.1429),
    ("ssp/table-1", "Qwen2.5-32B-Instruct + SSP", "Avg gain"): (3.4, 4.0286),
}

# The same of the means of SPICE's tables 2 to 4, recomputed from tables 6 to 8.
SPICES_WRONG_MEANS = {
    ("Corpus Type: Nemotron-CC-Math", "Math Avg"): (53.4, 53.6429),
    ("Corpus Type: Nemotron-CC-Math", "Overall Avg"): (43.2, 44.9818),
    ("Task Type: MCQ only", "General Avg"): (35.7, 35.975),
    ("Task Type: MCQ only", "Overall Avg"): (42.0, 42.9545),
    ("Task Type: Free-form only", "Math Avg"): (52.5, 52.7),
    ("Task Type: Free-form only", "Overall Avg"): (43.7, 45.0909),
    ("Challenger Reward: Absolute Zero", "Math"): (48.2, 46.3571),
    ("Challenger Reward: Threshold", "Math"): (48.6, 46.9286),
    ("Challenger Reward: R-Zero", "Math"): (50.0, 49.3143),
    ("Challenger Reward: R-Zero", "General"): (33.9, 33.675),
}

# Exhibit -> (what follows the baseline's label in a row's label, gains printed).
GAINS = {
    "spiral/table-1": (" + ", 45),
    "spell/table-1": (" + ", 48),
    "spell/figure-3": (" + ", 1),
    "spell/table-2": (", ", 8),
    "spell/table-7": (" + ", 3),
    "spice/table-1": (" + ", 16),
    "ssp/table-1": (" + ", 72),
}


def averaged(mean: str, columns: list[str]) -> list[str]:
    """The columns that a column of printed means averages: those of the same context ("16K Avg."),
    gains for a mean of gains ("Average gain")."""
    prefix, suffix = re.split(MEAN, mean)
    return [
        column
        for column in columns
        if column.startswith(prefix)
        and column.endswith(" gain") == (suffix == " gain")
        and not re.search(NO_SCORE, column)
    ]


@pytest.mark.parametrize(("exhibit", "count"), MEANS.items())
def test_printed_means_are_row_means_but_for_the_known_slips(exhibit: str, count: int) -> None:
    wide = reference.table(exhibit.split("/")[0], exhibit)
    half = (0.01 if exhibit in HUNDREDTHS else 0.1) / 2
    found, checked = {}, 0
    for mean in wide.columns[wide.columns.str.contains(MEAN)]:
        parts = wide[averaged(mean, list(wide.columns))]
        rows = wide[mean].notna() & parts.notna().all(axis=1) & (parts.shape[1] > 0)
        checked += rows.sum()
        for row in wide.index[rows]:
            if abs(parts.loc[row].mean() - wide.loc[row, mean]) > half + 1e-9:
                recomputed = pytest.approx(parts.loc[row].mean(), abs=1e-4)
                found[exhibit, row, mean] = (wide.loc[row, mean], recomputed)
    assert checked == count
    assert found == {key: slip for key, slip in WRONG_MEANS.items() if key[0] == exhibit}


@pytest.mark.parametrize(
    ("exhibit", "baseline", "count"), [(e, *gain) for e, gain in GAINS.items()]
)
def test_printed_gains_are_scores_minus_the_baselines(
    exhibit: str, baseline: str, count: int
) -> None:
    wide = reference.table(exhibit.split("/")[0], exhibit)
    checked = 0
    for column in wide.columns[wide.columns.str.contains(" gain$|Delta vs Base")]:
        scores = wide["Overall" if column == "Delta vs Base" else column.removesuffix(" gain")]
        for row, gain in wide[column].dropna().items():
            assert gain == pytest.approx(scores[row] - scores[row.split(baseline)[0]])
            checked += 1
    assert checked == count


def test_spirals_column_means_of_table_8_and_game_means_of_table_11() -> None:
    larger = reference.table("spiral", "spiral/table-8")
    for kind in ("(Train)", "(OOD)"):
        games = [
            row for row in larger.index if row.endswith(kind) and not row.startswith("Average")
        ]
        assert len(games) == 3
        assert (larger.loc[games].mean() - larger.loc[f"Average {kind}"]).abs().max() < 0.05
    steps = reference.table("spiral", "spiral/table-11")
    games = steps[[c for c in steps.columns if c.startswith("Win-Rate vs. Gemini (")]]
    assert (games.mean(axis=1) - steps["Avg. Win-Rate vs. Gemini"]).abs().max() < 0.05
    assert steps.filter(like="Self-Play").sum(axis=1).tolist() == pytest.approx([100.0] * 5)


def test_spirals_table_1_repeats_table_9_in_table_9s_order() -> None:
    short, full = (
        reference.table("spiral", "spiral/table-1"),
        reference.table("spiral", "spiral/table-9"),
    )
    names = {"SFT-Kuhn": "SFT (Kuhn)", "SPIRAL-Kuhn (Ours)": "SPIRAL (KuhnPoker)"}
    names |= {"SFT-Multi": "SFT (Multi, 25k)", "SPIRAL-Multi (Ours)": "SPIRAL (Multi-Game)"}
    for row in short.index:
        model, _, method = row.partition(" + ")
        twin = f"{model} + {names[method]}" if method else model
        twin = twin.replace(
            "DeepSeek-Distill-Qwen-7B + SFT (Multi, 25k)", "DeepSeek-Distill-Qwen-7B + SFT (Multi)"
        )
        assert short.loc[row].iloc[:9].tolist() == full.loc[twin].tolist()


@pytest.mark.parametrize(
    ("exhibit", "row", "first", "twin"),
    [
        ("table-2", SPELL, "table-1", SPELL),
        ("table-3", SPELL, "table-1", SPELL),
        ("table-4", "Qwen2.5-7B-Instruct", "table-1", "Qwen2.5-7B-Instruct"),
        ("table-4", f"{SPELL} (Rule-based Judge)", "table-1", SPELL),
        (
            "table-4",
            f"{SPELL} (Rule-based Judge) w/o Verifier",
            "table-2",
            f"{SPELL}, Verifier: w/o Verifier",
        ),
        ("table-9", "Qwen2.5-7B-Instruct", "table-1", "Qwen2.5-7B-Instruct"),
        ("table-9", "Qwen2.5-7B-Instruct + RLVR", "table-1", "Qwen2.5-7B-Instruct + RLVR"),
        ("table-9", f"{SPELL} (Ours)", "table-1", SPELL),
    ],
)
def test_spell_repeats_rows_with_the_same_numbers(
    exhibit: str, row: str, first: str, twin: str
) -> None:
    wide = reference.table("spell", f"spell/{exhibit}").loc[row].iloc[:5]
    source = reference.table("spell", f"spell/{first}").loc[twin].iloc[:5]
    assert list(wide.index) == ["DocMath", "Frames", "LB-MQA", "LB-V2", "Average"]
    assert wide.tolist() == source.tolist()


def test_spices_means_of_parts_are_the_means_of_the_full_tables_but_for_the_known_slips() -> None:
    found = {}
    for number in (2, 3, 4):
        short = reference.table("spice", f"spice/table-{number}")
        full = reference.table("spice", f"spice/table-{number + 4}").drop(columns="Overall")
        assert short.shape[0] == full.shape[0] and full.shape[1] == 11
        means = [full.iloc[:, :7].mean(axis=1), full.iloc[:, 7:].mean(axis=1), full.mean(axis=1)]
        for column, mean in zip(short.columns, means, strict=True):
            for row, printed, recomputed in zip(short.index, short[column], mean, strict=True):
                if abs(printed - recomputed) > 0.05 + 1e-9:
                    setting = row.removeprefix(f"{SPICE}, ")
                    found[setting, column] = (printed, pytest.approx(recomputed, abs=1e-4))
    assert found == SPICES_WRONG_MEANS


@pytest.mark.parametrize(
    ("exhibit", "row", "twin"),
    [
        ("spice/table-6", "Corpus Type: DCLM + Math (SPICE)", "SPICE (ours)"),
        ("spice/table-7", "Response Format: MCQ + Free-form (SPICE)", "SPICE (ours)"),
        ("spice/table-8", "Challenger Reward: Variance (SPICE)", "SPICE (ours)"),
        ("spice/table-8", "Challenger Reward: Absolute Zero Reward", "Absolute Zero"),
    ],
)
def test_spice_repeats_rows_of_table_1_in_its_full_tables(
    exhibit: str, row: str, twin: str
) -> None:
    full = reference.table("spice", exhibit).loc[f"{SPICE}, {row}"]
    main = reference.table("spice", "spice/table-1").loc[f"Qwen3-4B-Base + {twin}"]
    assert full.iloc[:11].tolist() == main.iloc[1:12].tolist()
    assert full["Overall"] == main["Overall"]


def test_spices_scores_beside_the_best_other_row_and_gains_by_kind() -> None:
    main = reference.table("spice", "spice/table-1").iloc[:, 1:12]
    above, equal, kinds = 0, 0, []
    for start in range(0, 20, 5):
        others, spice = main.iloc[start : start + 4], main.iloc[start + 4]
        above += (spice > others.max()).sum()
        equal += (spice == others.max()).sum()
        gain = spice - others.iloc[0]
        kinds.append((gain.iloc[:7].mean(), gain.iloc[7:].mean()))
    assert (above, equal) == (22, 19)
    assert [sum(kind) / 4 for kind in zip(*kinds, strict=True)] == pytest.approx(
        [9.0, 9.8], abs=0.01
    )


@pytest.mark.parametrize(
    ("exhibit", "row", "twin"),
    [
        ("ssp/table-2", "Qwen2.5-7B-Instruct", "Qwen2.5-7B-Instruct"),
        ("ssp/table-2", SSP, SSP),
        ("ssp/table-5", "Qwen2.5-7B-Base (Baseline)", "Qwen2.5-7B-Base"),
        (
            "ssp/table-5",
            "Qwen2.5-7B-Base + SSP, Replay Buffer (Periodic Reset)",
            "Qwen2.5-7B-Base + SSP",
        ),
        ("ssp/table-6", f"{SSP}, Proposer: RF, Solver: GRPO", SSP),
    ],
)
def test_ssp_repeats_rows_of_table_1(exhibit: str, row: str, twin: str) -> None:
    again = reference.table("ssp", exhibit)
    main = reference.table("ssp", "ssp/table-1")
    assert list(again.columns[:8]) == [*main.columns[:7], "Avg."]
    assert again.loc[row].iloc[:8].tolist() == main.loc[twin].iloc[:8].tolist()


def test_ssps_table_3_has_means_of_the_first_three_and_the_last_four_benchmarks() -> None:
    kinds = reference.table("ssp", "ssp/table-3")
    main = reference.table("ssp", "ssp/table-1").iloc[:, :7]
    default = kinds.loc[f"{SSP}, RAG verification w/ 4 Noisy Docs"].tolist()
    means = [main.loc[SSP].iloc[:3].mean(), main.loc[SSP].iloc[3:].mean()]
    assert default == pytest.approx(means, abs=0.05 + 1e-9)
    assert (kinds.drop(index=f"{SSP}, RAG verification w/ 4 Noisy Docs") < default).all().all()
    untrained = main.loc["Qwen2.5-7B-Instruct"].iloc[3:].mean()
    assert untrained == pytest.approx(36.45)
    multi_hop = kinds["Multi-HopQA"].tolist()
    assert multi_hop[-1] < untrained < multi_hop[0] < multi_hop[2] < multi_hop[1]


def test_ssps_gains_are_positive_and_its_largest_model_leads_on_four_and_ties_on_one() -> None:
    main = reference.table("ssp", "ssp/table-1")
    assert (main.filter(like=" gain").dropna() > 0).all().all()
    scores, largest = main.iloc[:, :7], "Qwen2.5-32B-Instruct + SSP"
    others = scores.drop(index=largest).max()
    lead = scores.loc[largest] - others
    assert list(lead.index[lead > 0]) == ["NQ", "TriviaQA", "HotpotQA", "MuSiQue"]
    assert list(lead.index[lead == 0]) == ["Bamboogle"]


@pytest.mark.parametrize(
    ("exhibit", "column", "answers", "unit", "misfits"),
    [
        ("spell/table-7", "AMC23", 40 * 8, 0.01, []),
        ("spell/table-7", "AMC23", 25 * 8, 0.01, [33.44, 40.31, 37.81, 50.31, 45.31, 55.62]),
        ("spice/table-1", "AMC", 40, 0.1, [20.4]),
        ("spice/table-1", "MATH 500", 500, 0.1, [39.7]),
        ("spice/table-1", "GPQA-Diamond", 198, 0.1, []),
        ("spice/table-6", "AMC", 40, 0.1, []),
        ("spice/table-6", "GPQA-Dmd", 198, 0.1, []),
        ("spice/table-7", "AMC", 40, 0.1, [61.0, 54.5]),
        ("spice/table-7", "GPQA-Dmd", 198, 0.1, [41.8, 34.2]),
        ("spice/table-8", "AMC", 40, 0.1, []),
        ("spice/table-8", "GPQA-Dmd", 198, 0.1, [36.2]),
        ("ssp/table-1", "2Wiki", 500, 0.1, [51.5]),
    ]
    + [(f"ssp/table-{n}", "Bamboogle", 125, 0.1, []) for n in (1, 2, 5, 6)]
    + [(f"ssp/table-{n}", "2Wiki", 500, 0.1, []) for n in (2, 5, 6)]
    + [
        (f"ssp/table-{n}", benchmark, 500, 0.1, [])
        for n in (1, 2, 5, 6)
        for benchmark in ("NQ", "TriviaQA", "PopQA", "HotpotQA", "MuSiQue")
    ],
)
def test_scores_that_no_number_of_right_answers_gives(
    exhibit: str, column: str, answers: int, unit: float, misfits: list[float]
) -> None:
    possible = [100 * right / answers for right in range(answers + 1)]

    def fits(score: float) -> bool:  # rounded, or cut off after the last printed decimal
        return any(score - unit / 2 - 1e-9 <= value < score + unit - 1e-9 for value in possible)

    scores = reference.table(exhibit.split("/")[0], exhibit)[column]
    assert [score for score in scores if not fits(score)] == misfits
