"""Tables as data: filled from hand-made rows, beside the paper's numbers; every table of the files
can be read."""

import pandas as pd
import pytest

from spnb import reference
from spnb.core.params import ParamError, variants
from spnb.report.exhibits import owed
from spnb.report.tables import load_tables, table_of

MEASURES = {
    "games": {"names": ["a vs random", "b vs random"], "weights": {"win": 100, "draw": 50}},
    "tokens": {"table": "metrics", "names": ["length/*"]},
}
ENTRY = {
    "caption": "What it shows.",
    "protocol": "How ours differs.",
    "runs": {"Base Model": ["full", "start"], "Multi-Game Model": ["full", "end"]},
    "columns": {"Average": "games"},
}


def rows():
    """Two seeds of `full` and of `other`, steps 0, 4 and 8: a game won with 0.25 and 0.75, another
    always drawn."""
    evals, metrics = [], []
    for variant in ("full", "other"):
        for seed in (0, 1):
            for step, win in ((0, 0.25), (4, 0.5), (8, 0.75)):
                run = {"variant": variant, "seed": seed, "step": step}
                for name, won, drawn in (("a vs random", win, 0.0), ("b vs random", 0.0, 1.0)):
                    evals.append({**run, "evaluation": name, "metric": "win", "value": won})
                    evals.append({**run, "evaluation": name, "metric": "draw", "value": drawn})
            for step in range(1, 9):
                length = {"length/x": step + seed, "length/y": 10 * step}
                metrics.append(
                    {"variant": variant, "seed": seed, "step": step, "grad_norm": 1.0, **length}
                )
    return pd.DataFrame(evals), pd.DataFrame(metrics)


def filled(**changes):
    return table_of("spiral/table-5", {**ENTRY, **changes}, MEASURES).fill(*rows())


def test_cells_are_means_over_games_and_seeds_beside_the_papers():
    """(25 + 50) / 2 at the start, (75 + 50) / 2 at the end; the paper prints 18.7 and 59.5."""
    found = filled().set_index("row")
    assert found["ours"].tolist() == [
        "37.5 (n = 1)",
        "62.5 [62.5, 62.5]",
    ]  # the start agrees: one measurement
    assert found["paper"].tolist() == ["18.7", "59.5"] and found["n"].tolist() == [1, 2]
    assert "measured at" not in found


def test_shares_of_training_say_their_step():
    found = filled(runs={"Base Model": ["full", 0.4], "Multi-Game Model": ["full", "end"]})
    assert found["ours"][0] == "50.0 [50.0, 50.0]" and found["measured at"].tolist() == [
        "step 4",
        "step 8",
    ]


def test_a_column_of_the_log_is_a_mean_over_columns_and_seeds():
    """Step 8: (8 + 80) / 2 and (9 + 80) / 2."""
    found = filled(runs={"Base Model": ["full", "end"]}, columns={"tokens": "tokens"})
    assert found["ours"][0].startswith("44.2 [") or found["ours"][0].startswith("44.3 [")
    assert found["paper"].tolist() == ["-"]


def test_a_table_may_be_turned_and_a_column_may_be_of_another_variant():
    turned = filled(runs_in="columns")
    assert turned["row"].tolist() == ["Average"] * 2 and set(turned["column"]) == set(ENTRY["runs"])
    table = table_of("spiral/table-5", {**ENTRY, "variants_of": {"Average": "other"}}, MEASURES)
    assert table.variants == ["full", "other"] and table.missing(["full"]) == ["other"]
    evals, metrics = rows()
    assert table.fill(evals[evals.variant == "full"], metrics)["ours"].tolist() == []


def test_further_cells_stand_among_the_others():
    more = pd.DataFrame(
        [
            {
                "row": "Random Policy",
                "column": "Average",
                "value": 1.0,
                "low": 0.0,
                "high": 2.0,
                "n": 1,
            }
        ]
    )
    found = table_of("spiral/table-5", ENTRY, MEASURES).fill(*rows(), [more])
    assert found.set_index("row").loc["Random Policy", "ours"] == "1.0 [0.0, 2.0]"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {"Average": "gamse"}}, "table spiral/table-5: .*gamse.*games"),
        ({"runs": {"Base Model": ["full", "middle"]}}, "middle"),
        (
            {"runs": {"Base Model": ["full", 1.5]}},
            "runs has 'Base Model' at 1.5; allowed: start, end, or a share",
        ),
        ({"variants_of": {"Averge": "full"}}, "variants_of has 'Averge'; allowed: Average"),
        ({"caption": ""}, "caption"),
        ({"rows": {}}, "rows"),
    ],
)
def test_faults_name_the_table_the_key_and_the_value(changes, message):
    with pytest.raises(ParamError, match=message):
        filled(**changes)


def test_weights_belong_to_evaluations():
    measures = {"games": {"table": "metrics", "names": ["length/*"], "weights": {"win": 1}}}
    with pytest.raises(
        ParamError, match="weights is .*win.* with table metrics; allowed: some with evals only"
    ):
        table_of("spiral/table-5", ENTRY, measures)
    with pytest.raises(
        ParamError, match="factor is 100.* with table evals; allowed: with metrics only"
    ):
        table_of("spiral/table-5", ENTRY, {"games": {**MEASURES["games"], "factor": 100}})


def test_digits_are_the_tables_own():
    assert filled(digits=2)["ours"].tolist() == ["37.50 (n = 1)", "62.50 [62.50, 62.50]"]


def test_every_table_of_spiral_has_its_variants_its_exhibit_and_the_papers_labels():
    printed, known = reference.load("spiral"), variants("spiral")
    for exhibit, table in load_tables("spiral").items():
        assert exhibit in owed() and set(table.variants) <= set(known), exhibit
        paper = printed[printed["exhibit"] == table.printed]
        rows, columns = (
            (table.runs, table.columns) if table.runs_in == "rows" else (table.columns, table.runs)
        )
        assert exhibit == "spiral/poker-rules" or set(rows) & set(paper["row"]), exhibit
        assert exhibit == "spiral/poker-rules" or set(columns) & set(paper["column"]), exhibit


def test_a_paper_without_tables_is_named():
    with pytest.raises(ParamError, match="paper.*'nobody'.*spiral"):
        load_tables("nobody")
