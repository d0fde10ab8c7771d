"""The papers' reported numbers: schema, completeness, spot values and look-up."""

import re
from importlib.resources import files

import pytest
import yaml

from spnb import reference

SPELL = "Qwen2.5-7B-Instruct + SPELL"
SPICE = "Qwen3-4B-Base + SPICE"
SSP = "Qwen2.5-7B-Instruct + SSP"

# Numbers printed per exhibit. Full forms of a table (SPIRAL's 9; SPICE's 6, 7, 8) keep ids of their
# own.
CELLS = {
    "spiral": {
        "spiral/table-1": 17 * 9 + 5 * 9,  # 17 rows, and the gains of 5 SPIRAL rows
        "spiral/figure-4": 8,
        "spiral/table-3": 6,
        "spiral/table-4": 18,
        "spiral/table-5": 6 * 7 + 3,  # the random policy has no unseen games and no average
        "spiral/figure-6": 8,
        "spiral/table-6": 16,
        "spiral/figure-9": 7,
        "spiral/table-8": 24,
        "spiral/table-9": 26 * 9,
        "spiral/table-10": 9,
        "spiral/table-11": 40,
        "spiral/table-12": 45,
        "spiral/table-13": 27,
    },
    "spell": {
        "spell/table-1": 36 * 10 + 24 * 2,  # 12 models in 3 rows; gains of RLVR and SPELL
        "spell/figure-3": 10,
        "spell/table-2": 9 * 5 + 8,  # gains of 8 ablations
        "spell/figure-5": 2,
        "spell/table-3": 25,
        "spell/table-4": 25,
        "spell/figure-6": 11,
        "spell/figure-7": 3,
        "spell/table-7": 6 * 7 + 3,
        "spell/table-8": 63,
        "spell/table-9": 35,
        "spell/figure-8": 1,
    },
    "spice": {
        "spice/table-1": 20 * 12 + 16,  # 4 models in 5 rows; differences of 4 of them
        "spice/figure-3": 8,
        "spice/figure-4": 2,
        "spice/figure-5": 2,
        "spice/table-2": 9,
        "spice/table-3": 9,
        "spice/table-4": 12,
        "spice/table-5": 26,
        "spice/table-6": 36,
        "spice/table-7": 36,
        "spice/table-8": 48,
        "spice/figure-7": 8,
    },
    "ssp": {
        "ssp/table-1": 18 * 8 + 9 * 8,  # 9 models before and after; gains of 7 benchmarks, average
        "ssp/table-2": 32,
        "ssp/figure-3": 1,
        "ssp/table-3": 10,
        "ssp/table-4": 13,
        "ssp/table-5": 40,
        "ssp/figure-4": 2,
        "ssp/figure-5": 5,
        "ssp/table-6": 6 * 9,
    },
    "scope": {
        "scope/table-2": 15 * 9,  # 3 models in 5 rows
        "scope/table-3": 15 * 8,
        "scope/figure-2": 4,
        "scope/figure-3": 14,
        "scope/figure-4": 8,
        "scope/table-4": 3 * 4 + 8,  # gains of two rows
        "scope/figure-5": 3,
        "scope/figure-6": 2,
        "scope/figure-7": 4,
        "scope/table-5": 7 * 9,
        "scope/figure-8": 3,
        "scope/table-6": 5 * 9,
        "scope/table-7": 8,
        "scope/table-8": 4 * 9,
        "scope/table-9": 32,
    },
}

# Exhibits of the catalogue without a legible number.
WITHOUT_NUMBERS = {
    "spiral": {"spiral/table-2", "spiral/figure-5", "spiral/table-7"},
    "spell": {"spell/figure-4", "spell/table-6"},
    "spice": {"spice/figure-1", "spice/figure-6"},
    "ssp": {"ssp/figure-1", "ssp/table-7", "ssp/table-13"},
    "scope": {"scope/table-1", "scope/table-10", "scope/figure-15", "scope/figure-17"},
}


@pytest.mark.parametrize("paper", CELLS)
def test_schema_and_completeness(paper: str) -> None:
    numbers = reference.load(paper)
    assert list(numbers.columns) == ["exhibit", "row", "column", "value"]
    assert numbers["value"].dtype == "float64"
    assert not numbers.isna().any().any()
    assert not numbers.duplicated(["exhibit", "row", "column"]).any()
    assert numbers["exhibit"].value_counts(sort=False).to_dict() == CELLS[paper]
    assert (files(reference) / paper / "numbers.csv").read_text(encoding="utf-8").isascii()
    for label in ("exhibit", "row", "column"):
        texts = numbers[label]
        assert (texts == texts.str.strip()).all() and texts.str.len().min() > 0


def test_every_file_of_numbers_is_tested_and_counted_in_the_readme() -> None:
    assert set(reference.sources("numbers.csv")) == set(CELLS)
    readme = (files(reference) / "README.md").read_text(encoding="utf-8")
    counts = re.findall(r"^## (\w+)/numbers.csv: (\d+) numbers, (\d+) exhibits$", readme, re.M)
    assert {paper: (int(n), int(m)) for paper, n, m in counts} == {
        paper: (sum(cells.values()), len(cells)) for paper, cells in CELLS.items()
    }


@pytest.mark.parametrize("paper", CELLS)
def test_catalogued_exhibits_have_numbers_but_for_those_without_any(paper: str) -> None:
    catalogue = yaml.safe_load((files(reference) / "exhibits.yaml").read_text(encoding="utf-8"))
    catalogue = {entry["id"] for entry in catalogue[paper]}
    catalogue = {exhibit for exhibit in catalogue if re.search(r"/(table|figure)-\d+$", exhibit)}
    assert catalogue - set(CELLS[paper]) == WITHOUT_NUMBERS[paper]


@pytest.mark.parametrize(
    ("exhibit", "row", "column", "expected"),
    [
        ("spiral/table-1", "Qwen3-4B-Base + SPIRAL-Multi (Ours)", "Average", 44.5),
        ("spiral/table-1", "Qwen3-4B-Base + SPIRAL-Multi (Ours)", "AMC-23 gain", 19.2),
        ("spiral/table-1", "Llama-3.1-8B-Instruct + SFT-Multi", "Olympiad", 19.1),
        ("spiral/table-3", "Step 16", "Gemini Opponent Win Rate vs Gemini-2.0-Flash-Lite", 0.0),
        ("spiral/table-3", "Step 16", "Self-Play Win Rate vs Self (t-16)", 52.3),
        ("spiral/table-4", "Poker Specialist", "Pig Dice", 91.7),
        (
            "spiral/table-5",
            "Single-Game Specialists: TicTacToe Specialist",
            "Truth and Deception",
            79.9,
        ),
        ("spiral/table-5", "Random Policy", "Simple Negotiation", 8.2),
        ("spiral/table-6", "Learning rate", "Value", 1e-6),
        ("spiral/table-6", "Maximum response length", "Value", 4096),
        ("spiral/table-6", "top k", "Value", -1),
        ("spiral/table-8", "Tic-Tac-Toe, 5x5 (OOD)", "SPIRAL (Ours)", 27.3),
        ("spiral/table-8", "Average (OOD)", "SFT", 18.4),
        ("spiral/table-9", "Llama-3.1-8B-Instruct + SFT (Multi, 52k)", "AIME'25", 0.0),
        ("spiral/table-9", "DeepSeek-Distill-Qwen-7B + SFT (Multi)", "MMLU-Pro", 55.6),
        ("spiral/table-10", "Qwen3-4B-Base", "GPQA-D", 30.6),
        ("spiral/table-11", "Step 400", "Avg. Game Round (Moves)", 9.55),
        ("spiral/table-11", "Step 0", "Win-Rate vs. Gemini (Kuhn Poker)", 6.25),
        ("spiral/table-12", "Qwen3-4B-Base + SPIRAL -> RLVR", "AMC-23", 59.6),
        ("spiral/table-13", "Qwen3-4B-Instruct + SFT-Multi", "Average", 71.88),
        (
            "spiral/figure-4",
            "Expected Value Calculation, late training stage (%)",
            "Math solutions",
            28,
        ),
        ("spiral/figure-6", "REINFORCE with RAE", "General reasoning score at end (%)", 47),
        ("spiral/figure-9", "REINFORCE without RAE", "Math score after collapse (%)", 12),
        ("spell/table-1", "Qwen2.5-7B", "16K DocMath", 10.9),
        ("spell/table-1", "Qwen2.5-7B + RLVR", "16K Avg.", 40.8),
        ("spell/table-1", "Qwen2.5-14B + SPELL", "100K Avg. gain", 15.0),
        ("spell/table-1", "Qwen3-30B-A3B-Thinking + RLVR", "16K Avg. gain", 0.0),
        ("spell/table-1", "Llama3.1-8B-Instruct + SPELL", "100K LB-V2", 26.2),
        ("spell/figure-3", "Qwen3-30B-A3B-Thinking + RLVR", "100K average pass@8", 68.1),
        ("spell/figure-3", "gemini-2.5-pro", "LB-MQA (dashed line)", 81.3),
        ("spell/table-2", f"{SPELL}, Questioner: w/o Update", "LB-MQA", 50.9),
        ("spell/table-2", f"{SPELL}, Verifier: w/o Update", "Average gain", -0.4),
        ("spell/figure-5", "R-Zero", "Average responder accuracy with the highest reward", 0.5),
        ("spell/table-3", f"{SPELL}, Group Size: G = 4", "Average", 46.4),
        ("spell/table-3", f"{SPELL}, Standard Deviation: sigma = 0.5/2", "LB-MQA", 59.4),
        ("spell/table-4", f"{SPELL} (Gpt-oss-120b Judge)", "DocMath", 47.1),
        ("spell/table-4", f"{SPELL} (Gpt-oss-120b Judge) w/o Verifier", "LB-V2", 31.3),
        ("spell/figure-6", "Training corpus (left): clusters", "Count", 50000),
        ("spell/figure-7", SPELL, "Time per step, about (minutes)", 7),
        ("spell/table-7", "Qwen2.5-32B + SPELL", "AMC23", 55.62),
        ("spell/table-7", "Qwen2.5-14B", "MMLU Pro", 46.67),
        ("spell/table-8", "Qwen2.5-32B + RLVR", "Helmet-ICL", 16.7),
        ("spell/table-9", "Qwen2.5-7B-Instruct + LongPO (Official)", "Frames", 41.4),
        ("spice/table-1", "Qwen3-4B-Base", "Overall", 35.8),
        ("spice/table-1", "Qwen3-8B-Base + R-Zero", "Delta vs Base", 3.3),
        ("spice/table-1", "OctoThinker-3B-Hybrid-Base + Strong Challenger", "MATH 500", 39.7),
        ("spice/table-1", "OctoThinker-8B-Hybrid-Base + SPICE (ours)", "GPQA-Diamond", 31.8),
        ("spice/table-1", "OctoThinker-8B-Hybrid-Base + Absolute Zero", "AIME 24", 0.1),
        (
            "spice/figure-3",
            "(a) Fixed Reasoner of step 200, later Challengers",
            "Pass rate with the last checkpoint (%)",
            35,
        ),
        ("spice/figure-4", "(b) Without corpus grounding", "Performance reached (%)", 40.7),
        ("spice/table-2", f"{SPICE}, Corpus Type: NaturalReasoning", "General Avg", 37.0),
        ("spice/table-3", f"{SPICE}, Task Type: MCQ + Free-form", "Overall Avg", 44.9),
        ("spice/table-4", f"{SPICE}, Challenger Reward: Threshold", "General", 31.6),
        ("spice/table-5", "Challenger sampling", "R-Zero", 4),
        ("spice/table-5", "Invalid penalty", "SPICE", -0.1),
        ("spice/table-6", f"{SPICE}, Corpus Type: Math (Nemotron-CC-Math)", "AMC", 62.5),
        ("spice/table-7", f"{SPICE}, Response Format: Free-form", "AIME25", 23.6),
        ("spice/table-8", f"{SPICE}, Challenger Reward: R-Zero Reward", "BBEH", 11.2),
        ("spice/figure-7", "Variance (SPICE)", "tau", 0.01),
        ("ssp/table-1", "Qwen2.5-7B-Base + SSP", "TriviaQA gain", 40.4),
        ("ssp/table-1", "LLaMA-3.1-8B", "2Wiki", 19.4),
        ("ssp/table-1", "R-Search-7B + SSP", "PopQA", 56.8),
        ("ssp/table-1", "Qwen2.5-32B-Instruct + SSP", "Avg", 58.5),
        ("ssp/table-1", "ZeroSearch-7B + SSP", "Avg gain", 2.3),
        ("ssp/table-2", f"{SSP} (Solver-Only)", "MuSiQue", 21.0),
        ("ssp/table-2", f"{SSP} (Proposer-Only)", "Avg.", 41.7),
        (
            "ssp/figure-3",
            f"{SSP} (Solver-Only)",
            "(a) Solver's in-game reward, saturates near",
            0.9,
        ),
        ("ssp/table-3", f"{SSP}, No RAG Verifi.", "GeneralQA", 49.5),
        ("ssp/table-3", f"{SSP}, RAG verification w/ 7 Noisy Docs", "Multi-HopQA", 35.9),
        ("ssp/table-4", "Learning Rate", "Value", 1e-6),
        ("ssp/table-4", "Proposer Warm-up Steps", "Value", -1),
        ("ssp/table-5", "Qwen2.5-7B-Base + SSP, Dynamic Resampling", "PopQA", 45.8),
        ("ssp/table-5", "Qwen2.5-7B-Base + SSP, Replay Buffer (Full Reuse)", "Bamboogle", 48.0),
        (
            "ssp/figure-4",
            "Qwen2.5-7B-Base + SSP, Replay Buffer (Periodic Reset)",
            "Search steps, at most (count)",
            10,
        ),
        (
            "ssp/figure-5",
            "Penalty for invalid questions",
            "Proposer's reward for an invalid question",
            -0.1,
        ),
        ("ssp/table-6", f"{SSP}, Proposer: GRPO, Solver: RF++", "MuSiQue", 7.4),
        ("ssp/table-6", f"{SSP}, Proposer: GRPO, Solver: GRPO", "T/step(s)", 504.4),
    ],
)
def test_spot_values(exhibit: str, row: str, column: str, expected: float) -> None:
    assert reference.value(exhibit.split("/")[0], exhibit, row, column) == expected


def test_table_keeps_printed_order_and_leaves_unprinted_cells_empty() -> None:
    wide = reference.table("spiral", "spiral/table-5")
    assert wide.index[0] == "Base Model" and wide.index[-1] == "Multi-Game Model"
    assert list(wide.columns[:3]) == ["TicTacToe", "KuhnPoker", "Simple Negotiation"]
    assert wide.isna().sum().sum() == 4
    assert (
        wide.loc["Random Policy", ["Snake", "Pig Dice", "Truth and Deception", "Average"]]
        .isna()
        .all()
    )


def test_reading_does_not_depend_on_the_working_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(reference.load("spiral")) == sum(CELLS["spiral"].values()) == 685


@pytest.mark.parametrize("paper", ["chess", "../spiral", "Spiral", ""])
def test_unknown_paper(paper: str) -> None:
    with pytest.raises(ValueError, match=r"unknown paper .*exist for .*spiral") as caught:
        reference.load(paper)
    assert repr(paper) in str(caught.value)


@pytest.mark.parametrize(
    ("exhibit", "row", "column", "wrong", "near"),
    [
        ("spiral/table-33", "Step 16", "x", "'spiral/table-33'", "'spiral/table-3'"),
        ("spiral/table-3", "Step 17", "x", "'Step 17'", "'Step 16'"),
        ("spiral/table-11", "Step 16", "x", "'Step 16'", "'Step 256'"),
        ("spiral/table-1", "Qwen3-4B-Base", "Math 500", "'Math 500'", "'Math500'"),
        ("spiral/table-5", "Random Policy", "Snake", "row 'Random Policy'", "'TicTacToe'"),
        ("spiral/table-6", "Batch size", 0, "no column 0", "'Value'"),
    ],
)
def test_unknown_cell_lists_the_nearest(
    exhibit: str, row: str, column: str, wrong: str, near: str
) -> None:
    with pytest.raises(KeyError) as caught:
        reference.value("spiral", exhibit, row, column)
    assert wrong in str(caught.value) and near in str(caught.value).split("nearest:")[1]


def test_unknown_exhibit_of_table() -> None:
    with pytest.raises(KeyError, match=r"no exhibit 'table-3'; nearest: 'spiral/table-3'"):
        reference.table("spiral", "table-3")
