"""The reported numbers of SPIRAL: schema, completeness, spot values, and the paper's own
arithmetic."""

from importlib.resources import files

import pandas as pd
import pytest

from spnb import reference

# Numbers printed per exhibit. Table 9 is the full form of table 1 and keeps an id of its own.
CELLS = {
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
}

# (exhibit, row, column of the printed mean) -> (printed, mean of the row): the paper's arithmetic
# slips.
WRONG_MEANS = {
    ("spiral/table-1", "Qwen3-8B-Base + SPIRAL-Multi (Ours)", "Average gain"): (10.1, 10.0125),
    ("spiral/table-9", "Qwen3-4B-Base + SFT (Multi, 52k)", "Average"): (39.7, 39.775),
    ("spiral/table-12", "Qwen3-4B-Base + RLVR -> SPIRAL", "Average"): (47.9, 48.1375),
    ("spiral/table-13", "Qwen3-4B-Instruct (Base)", "Average"): (74.10, 74.2625),
    ("spiral/table-13", "Qwen3-4B-Instruct + SPIRAL-Multi (Ours)", "Average"): (75.91, 75.2625),
}


@pytest.fixture(scope="module")
def spiral() -> pd.DataFrame:
    return reference.load("spiral")


def test_schema_and_completeness(spiral: pd.DataFrame) -> None:
    assert list(spiral.columns) == ["exhibit", "row", "column", "value"]
    assert spiral["value"].dtype == "float64"
    assert not spiral.isna().any().any()
    assert not spiral.duplicated(["exhibit", "row", "column"]).any()
    assert spiral["exhibit"].value_counts(sort=False).to_dict() == CELLS
    assert (files(reference) / "spiral" / "numbers.csv").read_text(encoding="utf-8").isascii()
    for label in ("exhibit", "row", "column"):
        assert (spiral[label] == spiral[label].str.strip()).all() and spiral[
            label
        ].str.len().min() > 0


@pytest.mark.parametrize(
    ("exhibit", "row", "column", "expected"),
    [
        ("table-1", "Qwen3-4B-Base + SPIRAL-Multi (Ours)", "Average", 44.5),
        ("table-1", "Qwen3-4B-Base + SPIRAL-Multi (Ours)", "AMC-23 gain", 19.2),
        ("table-1", "Llama-3.1-8B-Instruct + SFT-Multi", "Olympiad", 19.1),
        ("table-3", "Step 16", "Gemini Opponent Win Rate vs Gemini-2.0-Flash-Lite", 0.0),
        ("table-3", "Step 16", "Self-Play Win Rate vs Self (t-16)", 52.3),
        ("table-4", "Poker Specialist", "Pig Dice", 91.7),
        ("table-5", "Single-Game Specialists: TicTacToe Specialist", "Truth and Deception", 79.9),
        ("table-5", "Random Policy", "Simple Negotiation", 8.2),
        ("table-6", "Learning rate", "Value", 1e-6),
        ("table-6", "Maximum response length", "Value", 4096),
        ("table-6", "top k", "Value", -1),
        ("table-8", "Tic-Tac-Toe, 5x5 (OOD)", "SPIRAL (Ours)", 27.3),
        ("table-8", "Average (OOD)", "SFT", 18.4),
        ("table-9", "Llama-3.1-8B-Instruct + SFT (Multi, 52k)", "AIME'25", 0.0),
        ("table-9", "DeepSeek-Distill-Qwen-7B + SFT (Multi)", "MMLU-Pro", 55.6),
        ("table-10", "Qwen3-4B-Base", "GPQA-D", 30.6),
        ("table-11", "Step 400", "Avg. Game Round (Moves)", 9.55),
        ("table-11", "Step 0", "Win-Rate vs. Gemini (Kuhn Poker)", 6.25),
        ("table-12", "Qwen3-4B-Base + SPIRAL -> RLVR", "AMC-23", 59.6),
        ("table-13", "Qwen3-4B-Instruct + SFT-Multi", "Average", 71.88),
        ("figure-4", "Expected Value Calculation, late training stage (%)", "Math solutions", 28),
        ("figure-6", "REINFORCE with RAE", "General reasoning score at end (%)", 47),
        ("figure-9", "REINFORCE without RAE", "Math score after collapse (%)", 12),
    ],
)
def test_spot_values(exhibit: str, row: str, column: str, expected: float) -> None:
    assert reference.value("spiral", f"spiral/{exhibit}", row, column) == expected


def test_printed_means_are_row_means_but_for_the_known_slips(spiral: pd.DataFrame) -> None:
    found, checked = {}, 0
    for (exhibit, row), cells in spiral.groupby(["exhibit", "row"], sort=False):
        printed = cells.set_index("column")["value"]
        unit = 0.01 if exhibit == "spiral/table-13" else 0.1  # the printed precision of a mean
        for suffix in ("", " gain"):
            name = f"Average{suffix}"
            if name not in printed:
                continue
            mean = printed[
                [c for c in printed.index if c.endswith(" gain") == bool(suffix) and c != name]
            ].mean()
            checked += 1
            if abs(mean - printed[name]) > unit / 2 + 1e-9:
                found[exhibit, row, name] = (printed[name], pytest.approx(mean))
    assert checked == 17 + 5 + 6 + 26 + 1 + 5 + 3  # tables 1, its gains, 5, 9, 10, 12, 13
    assert found == WRONG_MEANS


def test_column_means_of_table_8_and_game_means_of_table_11() -> None:
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


def test_gains_of_table_1_are_spiral_minus_base() -> None:
    wide = reference.table("spiral", "spiral/table-1")
    rows = [row for row in wide.index if "SPIRAL-Multi" in row]
    assert len(rows) == 5
    for row in rows:
        gains = wide.loc[row].filter(like=" gain").rename(lambda c: c.removesuffix(" gain"))
        base = wide.loc[row.split(" + ")[0]]
        assert (wide.loc[row, gains.index] - base[gains.index]).to_numpy() == pytest.approx(
            gains.to_numpy()
        )


def test_table_1_repeats_table_9_in_table_9s_order() -> None:
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
    assert len(reference.load("spiral")) == sum(CELLS.values()) == 685


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
