"""Tables and figures as data: filled from hand-made rows, beside the paper's numbers."""

import pandas as pd
import pytest

from spnb import reference
from spnb.core.params import ParamError, validate, variants
from spnb.report import frame, tables
from spnb.report.exhibits import owed
from spnb.report.frame import Frames, Measure
from spnb.report.tables import beside_paper, fill_in, load_tables, table_of

MEASURES = {
    "games": {"suite": ["a", "b"], "opponent": "random", "weights": {"win": 100, "draw": 50}},
    "tokens": {"source": "metrics", "role": "*", "weights": {"length": 1}},
}
MEASURES = {name: validate(Measure, values) for name, values in MEASURES.items()}
TEXTS = {"caption": "What it shows.", "protocol": "How ours differs."}
ENTRY = {
    **TEXTS,
    "runs": {"Base Model": ["full", "start"], "Multi-Game Model": ["full", "end"]},
    "columns": {"Average": "games"},
}


def rows():
    """Two seeds of `full` and `other`, steps 0, 4 and 8: a game won more often, a game drawn."""
    evals, log = [], []
    for variant in ("full", "other"):
        for seed in (0, 1):
            run = {"paper": "spiral", "scale": "cpu", "variant": variant, "seed": seed}
            for step, win in ((0, 0.25), (4, 0.5), (8, 0.75)):
                for suite, won, drawn in (("a", win, 0.0), ("b", 0.0, 1.0)):
                    labels = dict.fromkeys(frame.KEYS, "") | {"suite": suite, "opponent": "random"}
                    at = {**run, **labels, "step": step}
                    evals.append({**at, "metric": "win", "value": won})
                    evals.append({**at, "metric": "draw", "value": drawn})
            for step in range(1, 9):
                for role, value in (("x", step + seed), ("y", 10.0 * step)):
                    at = {**run, "step": step, "metric": "length"}
                    log.append({**at, "role": role, "value": value})
    return Frames([], pd.DataFrame(evals).reindex(columns=frame.RESULTS), pd.DataFrame(log))


def own_table(**changes):
    return table_of("spiral/table-5", {**ENTRY, **changes}, MEASURES)


def filled(**changes):
    return own_table(**changes).fill(rows())


def test_cells_are_means_over_games_and_seeds_beside_the_papers():
    """(25 + 50) / 2 at the start, (75 + 50) / 2 at the end; the paper prints 18.7 and 59.5."""
    table = filled().set_index("row")
    assert table["ours"].tolist() == ["37.5 (n = 1)", "62.5 [62.5, 62.5]"]  # the starts agree
    assert table["paper"].tolist() == ["18.7", "59.5"] and table["n"].tolist() == [1, 2]
    assert "measured at" not in table


def test_shares_of_training_say_their_step():
    table = filled(runs={"Base Model": ["full", 0.4], "Multi-Game Model": ["full", "end"]})
    assert table["ours"][0] == "50.0 [50.0, 50.0]"
    assert table["measured at"].tolist() == ["step 4", "step 8"]


def test_a_column_of_the_log_is_a_mean_over_roles_and_seeds():
    """Step 8: (8 + 80) / 2 and (9 + 80) / 2."""
    table = filled(runs={"Base Model": ["full", "end"]}, columns={"tokens": "tokens"})
    assert table["ours"][0][:4] in ("44.2", "44.3") and table["paper"].tolist() == ["-"]


def test_a_table_may_be_turned_and_a_column_may_be_of_another_variant():
    turned = filled(runs_in="columns")
    assert turned["row"].tolist() == ["Average"] * 2 and set(turned["column"]) == set(ENTRY["runs"])
    table = own_table(variants_of={"Average": "other"})
    assert table.variants == ["full", "other"] and table.missing(["full"]) == ["other"]
    assert table.fill(rows().only(["full"]))["ours"].tolist() == []


def test_further_cells_stand_among_the_others():
    cell = {"row": "Random Policy", "column": "Average", "value": 1.0, "low": 0.0, "high": 2.0}
    table = own_table().fill(rows(), [pd.DataFrame([cell | {"n": 1}])])
    assert table.set_index("row").loc["Random Policy", "ours"] == "1.0 [0.0, 2.0]"


def test_digits_are_the_tables_own():
    assert filled(digits=2)["ours"].tolist() == ["37.50 (n = 1)", "62.50 [62.50, 62.50]"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {"Average": "gamse"}}, "spiral/table-5: measure is 'gamse'.*'games'"),
        ({"runs": {"Base Model": ["full", "middle"]}}, "middle"),
        ({"runs": {"Base Model": ["full", 1.5]}}, "is 1.5; allowed: less than or equal to 1"),
        ({"rows": {}}, "rows"),
    ],
)
def test_faults_name_the_table_the_key_and_the_value(changes, message):
    with pytest.raises(ParamError, match=message):
        own_table(**changes)


@pytest.mark.parametrize("paper", ["spiral", "rlvr", "proposer"])
def test_every_entry_has_its_variants_its_exhibit_and_the_papers_labels(paper):
    known = variants(paper)
    for exhibit, entry in load_tables(paper).items():
        assert exhibit in owed() and set(entry.variants) <= set(known), exhibit
        assert set(entry.variants_of) <= set(entry.columns)
        printed = reference.load(paper).query("exhibit == @entry.printed")
        sides = (entry.runs, entry.columns)
        lines, columns = sides if entry.runs_in == "rows" else sides[::-1]
        own = exhibit == "spiral/poker-rules"
        assert own or set(lines) & set(printed["row"]), exhibit
        assert own or set(columns) & set(printed["column"]), exhibit


def test_a_paper_without_tables_is_named():
    with pytest.raises(ParamError, match="paper.*'nobody'.*spiral"):
        load_tables("nobody")
    with pytest.raises(ParamError, match="paper.*'nobody'.*spiral"):
        tables.load_measures("nobody")


def test_a_protocol_names_the_parameters_of_its_runs():
    class Run:
        def __init__(self, **params):
            self.params = params

    runs = [Run(steps=30, games=["a", "b"]), Run(steps=90, games=["a", "b"])]
    assert fill_in("{steps} steps of {games}", runs) == "30 or 90 steps of a, b"


def test_ours_stand_beside_the_papers_in_its_order():
    cell = ["row", "column", "value"]
    paper = pd.DataFrame([("Step 16", "b", 52.3), ("Step 16", "a", 0.0)], columns=cell)
    ours = [("Step 16", "a", 10.0, 5.0, 15.0, 3), ("extra", "a", 1.0, None, None, 1)]
    ours = pd.DataFrame(ours, columns=[*cell, "low", "high", "n"])
    assert beside_paper(paper, ours).to_numpy().tolist() == [
        ["Step 16", "b", "52.3", "-", "-"],
        ["Step 16", "a", "0", "10.0 [5.0, 15.0]", 3],
        ["extra", "a", "-", "1.0 (n = 1)", 1],
    ]
    with pytest.raises(ValueError, match="not unique in right dataset"):
        beside_paper(paper, pd.concat([ours, ours]))
