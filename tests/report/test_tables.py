"""Tables as data: filled from hand-made rows, in the paper's shape beside its numbers."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from spnb.core.params import ParamError, papers, validate, variants
from spnb.report import frame, tables
from spnb.report.exhibits import catalogue
from spnb.report.frame import Frames, Measure, read_yaml
from spnb.report.tables import (
    Column,
    beside_paper,
    fill_placeholders,
    load_own,
    load_tables,
    printed_table,
    table_of,
)
from spnb.train.runs import Run

MEASURES = {
    "games": {"suite": ["a", "b"], "opponent": "random", "weights": {"win": 100, "draw": 50}},
    "unread": {"suite": "unread", "opponent": "random", "weights": {"win": 100, "draw": 50}},
    "past": {"suite": "a", "opponent": "past", "weights": {"win": 100}},
    "tokens": {"source": "metrics", "role": "*", "weights": {"length": 1}, "window": 0.2},
    "choice": {"suite": "choice", "weights": {"accuracy": 100}},
    "gain": {
        "suite": ["a", "b"],
        "opponent": "random",
        "weights": {"win": 100, "draw": 50},
        "change": "difference",
    },
}
MEASURES = {name: validate(Measure, values) for name, values in MEASURES.items()}
ENTRY = {
    "caption": "What it shows.",
    "protocol": "How ours differs.",
    "rows": [
        {"name": "start", "run": ["full", "start"], "paper": "Base Model"},
        {"name": "self-play", "run": ["full", "end"], "paper": "Multi-Game Model"},
    ],
    "columns": [{"name": "three games", "measure": "games", "paper": "Average"}],
}
AVERAGE = "three games (paper: Average)"


def rows(choice=(25.0, 40.0, 60.0), invalid=0.0):
    """Two seeds of `full` and `other`, steps 0, 4, 8: a game won more often, a game drawn.

    `choice`: right answers (%) at each step; `invalid`: share of the matches of `unread`.
    """
    evals, log = [], []

    def add(run, step, suite, opponent, **metrics):
        labels = dict.fromkeys(frame.KEYS, "") | {"suite": suite, "opponent": opponent}
        at = {**run, **labels, "step": step}
        evals.extend({**at, "metric": name, "value": value} for name, value in metrics.items())

    for variant in ("full", "other"):
        for seed in (0, 1):
            run = {"paper": "spiral", "scale": "cpu", "variant": variant, "seed": seed}
            for place, step in enumerate((0, 4, 8)):
                win = 0.25 + 0.25 * place
                add(run, step, "a", "random", win=win, draw=0.0, invalid=0.0)
                add(run, step, "b", "random", win=0.0, draw=1.0, invalid=0.0)
                add(run, step, "unread", "random", win=0.0, draw=0.0, invalid=invalid)
                add(run, step, "choice", "", accuracy=choice[place] / 100)
                if step:
                    add(run, step, "a", "past", win=win)
            for step in range(1, 9):
                for role, value in (("x", step + seed), ("y", 10.0 * step)):
                    at = {**run, "step": step, "metric": "length"}
                    log.append({**at, "role": role, "value": value})
    return Frames([], pd.DataFrame(evals).reindex(columns=frame.RESULTS), pd.DataFrame(log))


def own_table(**changes):
    return table_of("spiral/table-5", {**ENTRY, **changes}, MEASURES)


def filled(frames=None, **changes):
    return own_table(**changes).fill(frames or rows())


def test_a_line_a_policy_with_the_papers_number_behind_ours():
    """(25 + 50) / 2 at the start, (75 + 50) / 2 at the end; the paper prints 18.7 and 59.5."""
    cells = filled()[AVERAGE]
    assert cells["start (paper: Base Model)"] == "37.5 (n = 1) (paper 18.7)"
    assert cells["self-play (paper: Multi-Game Model)"] == "62.5 [62.5, 62.5] (paper 59.5)"


def test_a_benchmark_that_runs_measured_stands_before_the_papers_number():
    """Right answers of two seeds; MATH500 is "MATH 500" in the paper's table. No other column has
    its number any more. A benchmark that the paper's table lacks is left out."""
    frames = rows()
    lines = [
        dict.fromkeys(frame.KEYS, "")
        | {"paper": "spice", "scale": "gpu", "variant": "full", "seed": seed, "step": step}
        | {"suite": suite, "decoding": "greedy", "metric": "accuracy", "value": value + 0.1 * seed}
        for seed in (0, 1)
        for suite in ("math500", "docmath", "integer")
        for step, value in ((0, 0.2), (8, 0.5))
    ]
    frames = replace(frames, results=pd.DataFrame(lines).reindex(columns=frame.RESULTS))
    measures = {"integer": Measure(suite="integer", decoding="greedy", weights={"accuracy": 100})}
    base, ours = "Qwen3-4B-Base", "Qwen3-4B-Base + SPICE (ours)"
    entry = ENTRY | {
        "rows": [
            {"name": "start", "run": ["full", "start"], "paper": base},
            {"name": "SPICE", "run": ["full", "end"], "paper": ours},
        ],
        "columns": [{"measure": "integer", "paper": ["AMC", "MATH 500"]}],
    }
    table = table_of("spice/table-1", entry, measures)
    assert table.with_benchmarks(rows()) == table, "none was measured"
    shown = table.with_benchmarks(frames).fill(frames)
    cells = shown["MATH 500"]
    assert cells[f"start (paper: {base})"] == "25.0 [20.0, 30.0] (paper 68.2)"
    assert cells[f"SPICE (paper: {ours})"].startswith("55.0 [50.0, 60.0] (paper 78")
    assert shown["integer (paper: AMC)"][f"start (paper: {base})"].endswith("(paper 47.5)")
    assert not [name for name in shown if "math" in name.lower() and "MATH 500" not in name]
    assert {*frame.benchmarks_of(frames)} == {"MATH500"}


def test_what_only_the_paper_has_keeps_its_place_with_a_dash_and_the_reason():
    table = filled(absent={"Instruct*": "no such start", "Instruct M*": "a second reason"})
    assert list(table.columns[[0, -2, -1]]) == ["paper only: TicTacToe", AVERAGE, "seeds"]
    assert list(table.index)[:3] == [
        "start (paper: Base Model)",
        "not run (paper: Random Policy)",
        "not run, no such start (paper: Instruct Model)",
    ]
    assert table.index[-1] == "self-play (paper: Multi-Game Model)" and len(table) == 7
    instruct = table.iloc[2]
    assert (instruct["paper only: TicTacToe"], instruct[AVERAGE]) == ("52.7", "- (paper 57.6)")
    assert table.iloc[1][AVERAGE] == "-" and table.iloc[1]["paper only: Snake"] == "-"


def test_seeds_are_one_column():
    assert filled()["seeds"].tolist()[1:] == [*["-"] * 5, "2"], "none for rows without runs"


def test_what_only_we_have_follows_its_neighbour():
    extra = [ENTRY["rows"][0], {"name": "control", "run": ["other", 0.5]}, ENTRY["rows"][1]]
    table = filled(rows=extra, columns=[{"measure": "past"}, *ENTRY["columns"]])
    assert list(table.index)[:2] == ["start (paper: Base Model)", "control"]
    assert table.loc["control", AVERAGE] == "50.0 [50.0, 50.0]", "of its own variant, at step 4"
    assert table.columns[0] == "past", "before the first that both have"


def test_printed_steps_that_share_an_evaluation_are_one_line():
    """Of 8 steps with evaluations at 0, 4, 8: 16 of 400 is step 0, 128 and 256 are step 4."""
    entry = {
        "rows": [
            {"run": ["full", share], "paper": f"Step {step}"}
            for share, step in ((0.0, 0), (0.32, 128), (0.64, 256))
        ],
        "columns": [
            {"name": "moves", "measure": "tokens", "paper": "Avg. Game Round (Moves)"},
            {"measure": "past"},
        ],
    }
    table = table_of("spiral/table-11", {**ENTRY, **entry}, MEASURES).fill(rows())
    assert list(table.index)[:2] == ["step 0 (paper: Step 0)", "step 4 (paper: Step 128, Step 256)"]
    assert list(table.index)[2:] == [f"not run (paper: Step {step})" for step in (384, 400)]
    moves = table["moves (paper: Avg. Game Round (Moves))"]
    assert moves.iloc[1].endswith("] (paper 7.63; 8.47)")
    assert moves.iloc[1].startswith("22."), "of the log around step 4: (4.5 + 40) / 2"
    assert table["past"].tolist()[:2] == ["-", "50.0 [50.0, 50.0]"], "no past self at the start"
    halfway = filled(rows=[{"run": ["full", 0.25], "paper": "Base Model"}])
    assert halfway.index[0] == "step 0 (paper: Base Model)", "as near as step 4"


def test_a_column_may_be_of_another_variant_and_a_table_turned():
    table = own_table(columns=[{**ENTRY["columns"][0], "variant": "other"}])
    assert table.variants == ["full", "other"]
    alone = table.fill(rows().only(["full"]))[AVERAGE]
    assert alone.iloc[0] == "- (paper 18.7)"
    turned = table_of(
        "spiral/table-8",
        {
            **ENTRY,
            "turned": True,
            "rows": [{"name": "self-play", "run": ["full", "end"], "paper": "SPIRAL (Ours)"}],
            "columns": [{"measure": "games", "paper": "Average (Train)"}],
        },
        MEASURES,
    ).fill(rows())
    cell = turned.loc["self-play (paper: SPIRAL (Ours))", "games (paper: Average (Train))"]
    assert cell == "62.5 [62.5, 62.5] (paper 47.1)"


@pytest.mark.parametrize("paper", papers())
def test_a_line_of_settings_has_a_cell_for_each_column(paper):
    settings = read_yaml(paper, "tables.yaml").get("settings", {"columns": [], "rows": []})
    for row in settings["rows"]:
        assert len(row["here"]) == len(row.get("paper", row["here"])) == len(settings["columns"])


@pytest.mark.slow
def test_a_column_may_be_the_difference_to_a_variant_and_stand_for_several_printed_ones():
    """`other` wins a quarter less often in one of two games; the paper prints two columns."""
    more = rows()
    won = (more.results["variant"] == "other") & (more.results["metric"] == "win")
    more.results.loc[won & (more.results["suite"] == "a"), "value"] -= 0.25
    listed = [*ENTRY["rows"], {"name": "other", "run": ["other", "end"]}]
    both = {**ENTRY["columns"][0], "paper": ["Average", "Snake"]}
    minus = {"name": "minus full", "measure": "games", "minus": "full"}
    gain = {"name": "gain", "measure": "gain"}
    half = {**minus, "name": "visible", "half": True}
    shown = {**gain, "name": "visible gain", "half": True}
    table = own_table(rows=listed, columns=[both, minus, gain, half, shown])
    assert table.variants == ["full", "other"]
    filled = table.fill(more)
    title = "three games (paper: Average, Snake)"
    assert filled[title].iloc[0] == "37.5 (n = 1) (paper 18.7; 7.8)"
    assert filled["minus full"].loc["other"].startswith("-12.5 ["), "half of 25 points"
    ours = filled.loc[["start (paper: Base Model)", "self-play (paper: Multi-Game Model)"]]
    assert ours["minus full"].tolist() == ["-", "-"], "before the end, and of the variant itself"
    assert ours["gain"].tolist() == ["-", "25.0 [25.0, 25.0]"], "no change at the start"
    _, low, high = map(float, re.findall(r"-?\d+\.\d", filled["gain"].loc["other"]))
    assert float(filled["visible gain"].loc["other"]) == pytest.approx((high - low) / 2, abs=0.1)
    assert filled["visible"].loc["other"] == "0.0" and ours["visible"].tolist() == ["-", "-"]
    more.results.loc[won & (more.results["seed"] == 0), "value"] -= 0.1
    more = replace(more)
    wider = table.fill(more)
    _, low, high = map(float, re.findall(r"-?\d+\.\d", wider["minus full"].loc["other"]))
    assert high > low
    assert float(wider["visible"].loc["other"]) == pytest.approx((high - low) / 2, abs=0.1)
    one = replace(more, results=more.results[more.results["seed"] == 0])
    alone = table.fill(one).loc["other", ["minus full", "visible"]]
    assert alone.tolist() == ["-22.5 (n = 1)", "-"], "no interval, so nothing to halve"
    with pytest.raises(ParamError, match="half is true without minus or a change in column"):
        own_table(columns=[{"name": "visible", "measure": "games", "half": True}])


@pytest.mark.parametrize(
    ("invalid", "cell"),
    [(0.98, "- (forfeits 98 %)"), (0.9, "- (forfeits 90 %)"), (0.89, "0.0 [0.0")],
)
def test_a_score_of_forfeits_is_a_dash(invalid, cell):
    column = {"name": "unread", "measure": "unread", "paper": "Snake"}
    table = filled(rows(invalid=invalid), columns=[column])
    last = table["unread (paper: Snake)"].iloc[-1]
    assert last.startswith(cell) and last.endswith("(paper 31.6)")


@pytest.mark.parametrize(
    ("choice", "chance", "cell"),
    [
        ((99.0, 50.0, 100.0), 25, "- (ceiling)"),
        ((98.0, 99.0, 100.0), 25, "100.0 [100.0, 100.0]"),
        ((21.0, 50.0, 30.0), 25, "- (chance 25 %)"),
        ((25.0, 25.0, 31.0), 25, "31.0 [31.0, 31.0]"),
        ((25.0, 50.0, 5.0), 25, "5.0 [5.0, 5.0]"),  # far below chance is no guess
        ((25.0, 25.0, 25.0), None, "25.0 [25.0, 25.0]"),
    ],
)
def test_ceilings_and_guesses_are_dashes_where_chance_is_given(choice, chance, cell):
    columns = [{"measure": "choice", "chance": chance}]
    assert filled(rows(choice), columns=columns)["choice"].iloc[-1] == cell


def test_a_dash_for_what_says_nothing_is_by_the_mean_over_seeds():
    """Invalid: 100 and 84 %, mean 92. Right: 100 and 96 %, mean 98, which is below the ceiling."""
    frames = rows(choice=(100.0, 100.0, 100.0), invalid=1.0)
    other = frames.results["seed"] == 1
    for metric, value in (("invalid", 0.84), ("accuracy", 0.96)):
        frames.results.loc[other & (frames.results["metric"] == metric), "value"] = value
    columns = [{"measure": "unread"}, {"measure": "choice", "chance": 25}]
    last = filled(frames, columns=columns).iloc[-1]
    assert last["unread"] == "- (forfeits 92 %)"
    assert last["choice"] == "98.0 [96.0, 100.0]"


def test_a_number_stands_only_where_each_seed_was_evaluated_at_its_step():
    """Seed 1 stopped at step 4."""
    frames = rows()
    late = (frames.results["seed"] == 1) & (frames.results["step"] == 8)
    frames = replace(frames, results=frames.results[~late])
    assert filled(frames)[AVERAGE].iloc[-1] == "- (paper 59.5)"


def test_a_difference_is_cut_at_what_is_possible_and_its_half_width_is_not():
    """Seed 0 of `other` never wins, 25 instead of 62.5; seed 1 does as `full`."""
    frames = rows()
    lost = frames.results[["variant", "seed", "metric"]] == ["other", 0, "win"]
    frames.results.loc[lost.all(axis=1), "value"] = 0.0
    minus = {"name": "minus full", "measure": "games", "minus": "full"}
    columns = [minus, {**minus, "name": "visible", "half": True}]
    line = filled(frames, rows=[{"name": "other", "run": ["other", "end"]}], columns=columns)
    assert line.loc["other", ["minus full", "visible"]].tolist() == [
        "-18.8 [-100.0, 100.0]",
        "238.2",  # 12.706 x 18.75
    ]


def test_a_parameter_that_differs_between_runs_has_both_values():
    runs = [SimpleNamespace(variant="full", params={"steps": steps}) for steps in (30, 90, 30)]
    column = Column(name="steps", says="steps")
    assert column.cell(Frames(runs), "full", 1) == ("30 or 90", 0)
    assert column.cell(Frames(runs), "other", 1) == ("-", 0)


def test_a_row_of_ones_own_has_its_own_numbers_alone():
    """No file names `other`: a column of `full` is not of it, nor a difference to itself."""
    base = {"paper": "spiral", "scale": "cpu"}
    names = [(variant, seed) for variant in ("full", "other", "no-rae") for seed in (0, 1)]
    runs = [Run(Path("nowhere"), base | {"variant": name, "seed": n}) for name, n in names]
    games = ENTRY["columns"][0]
    others = [{"name": "of full", "variant": "full"}, {"name": "minus other", "minus": "other"}]
    columns = [games, *({"measure": "games", **each} for each in others)]
    frames = replace(rows(), runs=runs)
    made = own_table(columns=columns).content(frames)
    assert {run.variant for run in made.runs} == {"full", "other"}, "those that it shows"
    line = made.item.loc["other"]
    shown = line[[AVERAGE, "of full", "minus other"]].tolist()
    assert shown == ["62.5 [62.5, 62.5]", "-", "-"]


def test_further_cells_stand_among_the_others():
    cell = {"row": "random play", "column": "three games", "text": "1.0 [0.0, 2.0]", "n": 0}
    listed = [*ENTRY["rows"], {"name": "random play", "paper": "Random Policy"}]
    table = own_table(rows=listed).fill(rows(), [pd.DataFrame([cell])])
    line = table.loc["random play (paper: Random Policy)"]
    assert (line[AVERAGE], line["seeds"]) == ("1.0 [0.0, 2.0]", "-")


@pytest.mark.slow
def test_a_table_takes_the_variants_that_its_scale_has():
    """SSP's table 1: at cpu scale one family, at paper scale the paper's policies, no oracle."""
    table = load_tables("ssp")["ssp/table-1"]

    def frames(scale, *names, paper="ssp"):
        each = {"paper": paper, "scale": scale, "seed": 0}
        return Frames([Run(Path(), each | {"variant": name}) for name in names])

    at_cpu = ["full", "continued", "smaller", "even", "oracle", "random"]
    assert table.there(frames("cpu", "full")) == at_cpu
    assert table.shows(frames("cpu", *at_cpu)) and not table.shows(frames("cpu", *at_cpu[1:]))
    others = ["base", "other-family", "qwen3", "zerosearch", "search-r1", "r-search"]
    at_paper = frames("paper", "full", *others, "larger", "largest", "random")
    lacking = [name for name in table.there(frames("paper", "full")) if name != "full"]
    assert table.shows(at_paper) and lacking[:2] == others[:2]
    lines = list(table.fill(at_paper).index)
    assert "Search-R1 (paper: Search-R1-7B)" in lines and "control: rewards permuted" in lines
    assert not any("oracle" in line or "smaller" in line or "not run" in line for line in lines)
    lines = list(table.fill(frames("cpu", *at_cpu)).index)
    assert "not run, no such policy at this scale (paper: Qwen3-8B + SSP)" in lines
    assert not any(line.startswith("Search-R1") for line in lines) and len(lines) == 18 + 5
    quest = load_tables("rlvr")["rlvr/quest"]
    assert not quest.shows(frames("gpu", "think", paper="rlvr")), "of two cores alone"


def test_a_start_has_nothing_of_the_training_log():
    """A row of steps has what was logged around each step, the first too (SPIRAL's table 11)."""
    columns = [{"name": "tokens", "measure": "tokens"}, *ENTRY["columns"]]
    cells = filled(columns=columns)["tokens"]
    assert cells["start (paper: Base Model)"] == "-"
    assert cells["self-play (paper: Multi-Game Model)"].startswith("41.5 [41.2"), "steps 7 and 8"
    steps = [{"run": ["full", 0.0], "paper": "Base Model"}]
    assert filled(rows=steps, columns=columns)["tokens"].iloc[0].startswith("8.5 [")


def test_digits_are_the_columns_own():
    columns = [{**ENTRY["columns"][0], "digits": 2}]
    assert filled(columns=columns)[AVERAGE].iloc[-1] == "62.50 [62.50, 62.50] (paper 59.5)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": [{"measure": "gamse"}]}, "spiral/table-5: measure is 'gamse'.*'games'"),
        ({"rows": [{"name": "x", "run": ["full", "middle"]}]}, "middle"),
        ({"rows": [{"name": "x", "run": ["full", 1.5]}]}, "is 1.5; allowed: less than or equal to"),
        ({"rows": [{"run": ["a", 0]}, {"run": ["b", 0]}]}, "allowed: steps of one variant"),
        ({"rows": [{"paper": "Base Model"}]}, "rows without name are of .'no run'"),
        ({"lines": {}}, "lines"),
    ],
)
def test_faults_name_the_table_the_key_and_the_value(changes, message):
    with pytest.raises(ParamError, match=message):
        own_table(**changes)


def test_a_label_that_is_not_printed_is_named():
    wrong = [{"name": "start", "run": ["full", "start"], "paper": "Base Modell"}]
    with pytest.raises(ParamError, match="printed row is 'Base Modell'.*did you mean 'Base Model'"):
        filled(rows=wrong)


@pytest.mark.parametrize("paper", ["spiral", "spell", "spice", "scope", "ssp", "rlvr", "proposer"])
def test_every_entry_has_its_variants_its_exhibit_and_the_papers_labels(paper):
    known = set(variants(paper))
    for exhibit, entry in load_tables(paper).items():
        assert exhibit in catalogue() and set(entry.variants) <= known, exhibit
        printed = printed_table(entry.printed)
        sides = (
            (printed.columns, printed.index) if entry.turned else (printed.index, printed.columns)
        )
        assert {row.paper for row in entry.rows} - {""} <= set(sides[0]), exhibit
        assert {label for each in entry.columns for label in each.paper} <= set(sides[1]), exhibit
        assert re.search("bootstrap intervals.* over seeds", entry.protocol), exhibit
    for exhibit, own in load_own(paper).items():
        assert exhibit in catalogue() and set(own.variants) <= known, exhibit


def test_an_entry_says_which_variants_it_takes():
    order = ["full", "rlvr", "play-then-rlvr", "rlvr-then-play"]
    assert load_tables("spiral")["spiral/table-12"].variants == order
    own = load_own("spiral")
    assert own["spiral/table-7"].variants == ["full"] and own["spiral/table-6"].variants == []
    assert list(load_own("proposer")) == ["proposer/when"]


def test_a_paper_without_tables_is_named():
    with pytest.raises(ParamError, match="paper.*'nobody'.*spiral"):
        load_tables("nobody")
    with pytest.raises(ParamError, match="paper.*'nobody'.*spiral"):
        frame.load_measures("nobody")


def test_a_protocol_names_the_parameters_of_its_runs():
    class Run:
        def __init__(self, **params):
            self.params = params

    runs = [Run(steps=30, games=["a", "b"]), Run(steps=90, games=["a", "b"], sizes=[4, 16])]
    text = fill_placeholders("{steps} steps of {games}, {sizes}", runs)
    assert text == "30 or 90 steps of a, b, 4, 16"


def test_printed_tables_stand_side_by_side_under_the_first_ones_rows():
    """SPICE's table 2 has three means, its table 6 the eleven benchmarks and one of the means."""
    table = printed_table(["spice/table-2", "spice/table-6"])
    assert list(table.index) == list(printed_table("spice/table-2").index)
    assert list(table.columns[:4]) == ["Math Avg", "General Avg", "Overall Avg", "AMC"]
    assert len(table.columns) == 3 + 11 and "Overall" not in table.columns
    mathematical = table.loc["Qwen3-4B-Base + SPICE, Corpus Type: Nemotron-CC-Math"]
    assert mathematical[["Overall Avg", "AMC", "BBEH"]].tolist() == [43.2, 62.5, 9.6]
    assert list(printed_table("spice/table-4").columns) == ["Math", "General", "Overall"]
    with pytest.raises(ValueError, match="have 3 and 4 rows; allowed: equal"):
        printed_table(["spice/table-2", "spice/table-8"])
    with pytest.raises(ValueError, match="AMC"):
        printed_table(["spice/table-6", "spice/table-7"])


def test_both_sides_of_every_cell():
    printed = pd.DataFrame({"B": [52.3], "A": [0.0]}, index=["Step 16"])
    cells = [("early", "a", "10.0", 3), ("extra", "a", "1.0", 1), ("extra", "c", "2.0", 10)]
    ours = pd.DataFrame(cells, columns=["row", "column", "text", "n"])
    labels = {"early": ["Step 16"], "extra": []}, {"a": ["A"], "c": []}
    table = beside_paper(ours, printed, *labels)
    assert list(table.columns) == ["paper only: B", "a (paper: A)", "c", "seeds"]
    assert table.reset_index().to_numpy().tolist() == [
        ["early (paper: Step 16)", "52.3", "10.0 (paper 0)", "-", "3"],
        ["extra", "-", "1.0", "2.0", "1, 10"],
    ]
    with pytest.raises(ValueError, match="duplicate entries"):
        beside_paper(pd.concat([ours, ours]), printed, *labels)
    some = pd.DataFrame({"A": [1.5], "B": [float("nan")]}, index=["Step 16"])
    table = beside_paper(ours[:1], some, {"early": ["Step 16"]}, {"a": ["A", "B"]})
    assert table["a (paper: A, B)"].tolist() == ["10.0 (paper 1.5; -)"]


def test_seeds_have_start_and_end_in_their_columns(monkeypatch):
    late = MEASURES["games"].model_copy(update={"change": "difference", "since": 0.5})
    known = {name: MEASURES[name] for name in ("games", "tokens")} | {"late": late}
    monkeypatch.setattr(tables, "load_measures", lambda paper: known)
    runs = [SimpleNamespace(paper="spiral", variant=name) for name in ("full", "other")]
    table = tables.seeds_table(None, replace(rows(), runs=runs)).item
    changes = table[table["measure"] == "late"]
    assert changes["start"].isna().all() and changes["end"].tolist() == [12.5] * 4
    assert list(table) == ["measure", "variant", "seed", "start", "end"]
    table = table.set_index(["measure", "seed"])[["start", "end"]]
    assert table.loc["games"].to_numpy().tolist() == [[37.5, 62.5]] * 4
    tokens = table.loc["tokens"].groupby("seed").agg(list).to_numpy().tolist()
    assert tokens == [[[8.25] * 2, [41.25] * 2], [[8.75] * 2, [41.75] * 2]], "two steps each"
