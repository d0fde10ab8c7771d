"""The search for settings: its file, its numbers by hand, its runs at smoke scale."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from spnb.core.params import ParamError, search_values, validate
from spnb.core.paths import ROOT
from spnb.report import search, show
from spnb.report.exhibits import ExhibitError, command_of, exhibit_info, find_record
from spnb.report.frame import RESULTS, Frames, Measure
from spnb.report.search import Search, edge, half_width, marked, nested, numbers
from tests.report.test_compare import plan, right

FILE = {"arms": ["full", "random", "rlvr"], "controls": ["random"], "seeds": [100, 101]}
FILE |= {"measure": "mean", "grid": {"grpo.learning_rate": [1e-3, 2e-3], "steps": [8]}}
RIGHT = Measure(suite="a", weights={"accuracy": 100})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"against": "none"}, "none is no arm of the search; allowed: full, random, rlvr"),
        ({"controls": ["x"]}, "x is no arm of the search"),
        ({"grid": {}}, "grid"),
        ({"grid": {"steps": []}}, "grid.steps is empty; allowed: one value or more"),
        ({"grid": {"steps": [[1]]}}, "grid"),
        ({"seeds": [1]}, "seeds"),
        ({"armz": ["full"]}, "armz"),
        ({"set": {"seeds": [1, 2]}}, "set or grid has seeds; allowed: other parameters of a run"),
        ({"grid": {"eval_draw": ["a"]}}, "set or grid has eval_draw"),
        ({"seeds": [100, 100]}, r"seeds is \[100, 100\]; allowed: each once"),
    ],
)
def test_a_wrong_file_is_named(changes, words):
    with pytest.raises(ParamError, match=words):
        validate(Search, FILE | changes)


def test_the_grid_is_crossed_and_its_keys_reach_inside():
    made = validate(Search, FILE | {"grid": {"grpo.beta": [0, 1], "steps": [2, 3]}})
    assert made.settings[1:3] == [{"grpo.beta": 0, "steps": 3}, {"grpo.beta": 1, "steps": 2}]
    assert nested("grpo.beta", 1) == {"grpo": {"beta": 1}} and nested("steps", 2) == {"steps": 2}


def test_values_of_a_grid_that_is_not_crossed_stand_alone_beside_the_arms_as_they_are():
    grid = {"grpo.beta": [0.1, 0.2], "pay": ["spread"]}
    made = validate(Search, FILE | {"grid": grid, "crossed": False})
    assert made.settings == [{}, {"grpo.beta": 0.1}, {"grpo.beta": 0.2}, {"pay": "spread"}]
    base, *others = search.plans("scope", "cpu", search.load_search("scope", "search-cures"))
    assert base.params("six").kl_to == "" and base.params("six").pay == "earned"
    assert [plan.params("six").kl_to for plan in others] == ["", "", "", "", "stage"]
    assert [plan.params("six").pay for plan in others].count("spread") == 1


def test_a_measure_that_is_none_is_found_before_anything_runs(monkeypatch):
    monkeypatch.setattr(search, "search_values", lambda *_: FILE | {"measure": "meen"})
    with pytest.raises(ParamError, match=r"spell/search-x.yaml: measure is 'meen', which is unkno"):
        search.load_search("spell", "search-x")


def test_a_paper_without_a_search_is_named():
    with pytest.raises(ParamError, match="rlvr has no search.yaml; allowed: .*scope, spell, "):
        search_values("rlvr")
    with pytest.raises(ParamError, match="has no search-tow.yaml; .*proposer/search-two, "):
        search_values("proposer", "search-tow")
    files = {(path.parent.name, path.stem) for path in (ROOT / "params").glob("*/search*.yaml")}
    assert {("proposer", "search"), ("proposer", "search-two")} < files
    for paper, name in files:
        found = search.load_search(paper, name)
        info = exhibit_info(f"{paper}/{name}")
        named = {"search": f"spnb search {paper} --scale cpu"}
        command = named.get(name, f"spnb search {paper}/{name} --scale cpu")
        assert info.source == "runs" and command_of(info, "cpu") == command
        assert not set(found.seeds) & {*range(100), *range(200, 204), *range(300, 304)}
        assert search.plans(paper, "cpu", found)  # every arm and parameter is known


def test_runs_of_a_search_have_questions_of_their_own_and_the_settings_win_over_variants():
    made = validate(Search, FILE | {"set": {"clusters": 96}})
    first, second = search.plans("spell", "cpu", made, runs="runs/elsewhere")
    params = first.params("rlvr", 100)
    assert (params.grpo["learning_rate"], params.steps, params.clusters) == (1e-3, 8, 96)
    assert second.params("rlvr", 100).grpo["learning_rate"] == 2e-3
    assert params.eval_draw == "search" and params.eval_seed("x") != _held_out(params)("x")
    assert params.grpo["beta"] == 0.0  # of the variant, which the search leaves alone


def _held_out(params):
    return params.model_copy(update={"eval_draw": ""}).eval_seed


def test_half_of_the_interval_of_ten_pairs():
    """Differences 1, 2, 3: standard deviation 1, t(0.975, 9) = 2.2622, chi2(0.05, 2) = 0.10259."""
    half, most = half_width(pd.Series([1.0, 2.0, 3.0]))
    assert half == pytest.approx(2.2622 / math.sqrt(10), abs=1e-4)
    assert most == pytest.approx(half * math.sqrt(2 / 0.10259), rel=1e-4)
    assert half_width(pd.Series([5.0, 5.0])) == (0, 0)
    assert math.isnan(half_width(pd.Series([5.0]))[1])


def test_what_cannot_be_saved_or_measured_is_said(monkeypatch):
    monkeypatch.setattr(search, "load_search", lambda *given: pytest.fail("must not be read"))
    with pytest.raises(ValueError, match="exhibit is 'rlvr/search'"):
        show.searched("rlvr/search", "smoke")
    made = validate(Search, FILE)
    empty = [SimpleNamespace(all=list) for _ in made.settings]
    with pytest.raises(ExhibitError, match="spell/search-two: no run of full measures 'mean'"):
        search.table("spell/search-two", made, empty)


def test_a_table_is_of_finished_runs_and_averages_its_window(tmp_path):
    """Half of the answers are right at step 0; a window of 1 has both evaluations."""
    ends = {"full": (0.2, 0.4), "mine": (0.5, 0.9)}
    pairs = [(name, seed) for name in ends for seed in (0, 1)]
    runs = [right(tmp_path, "rlvr", name, seed, ends[name][seed]) for name, seed in pairs]
    late = right(tmp_path, "rlvr", "mine", 2, 0.1)
    (late.folder / "finished.json").unlink()
    values = {"arms": ["full", "mine"], "seeds": [0, 1, 2], "measure": "all levels"}
    made = validate(Search, values | {"grid": {"steps": [4]}, "window": 1})
    content = search.table("rlvr/search", made, [plan(*runs, late)])
    assert content.item["mean"].tolist() == pytest.approx([40, 60]) and len(content.runs) == 4
    assert content.item["n"].tolist() == [2, 2]
    assert "a difference to full would have with 10 paired seeds" in content.caption
    assert "Mean of the evaluations in the last 100% of the training." in content.protocol
    alone = made.model_copy(update={"window": 0, "widest": 7.5, "controls": ["mine"]})
    content = search.table("rlvr/search", alone, [plan(*runs)])
    assert content.item["mean"].tolist() == pytest.approx([30, 70])
    assert "The last evaluation. Common: highest mean over full, where no" in content.protocol
    assert "half-width is above 7.5; edge" in content.protocol


class Done:
    """A finished run of three minutes."""

    variant = "full"

    def facts(self):
        return {"seconds": 180.0, "resumed": False}


class Slow(Done):
    """One of eight minutes."""

    def facts(self):
        return {"seconds": 480.0, "resumed": False}


class Resumed(Done):
    """Its seconds are those of its last part."""

    def facts(self):
        return {"seconds": 1.0, "resumed": True}


def test_the_numbers_of_an_arm_by_hand():
    rows = []
    for variant, values in {"full": (0.5, 0.7), "random": (0.2, 0.6, 0.1)}.items():
        for seed, value in enumerate(values):
            row = {"variant": variant, "seed": seed, "step": 8, "suite": "a"}
            rows.append(row | {"metric": "accuracy", "value": value})
    results = pd.DataFrame(rows).reindex(columns=RESULTS)
    keys = ["opponent", "role", "decoding", "difficulty"]
    results[keys] = ""
    frames = Frames([Done(), Slow(), Resumed()], results)
    full = numbers(RIGHT, frames, "full", "full")
    assert (full["mean"], full["n"], full["minutes"]) == (pytest.approx(60), 2, 5.5)
    assert full["spread"] == pytest.approx(10 * math.sqrt(2)) and math.isnan(full["half-width"])
    other = numbers(RIGHT, frames, "random", "full")  # differences -30 and -10
    spread = 10 * math.sqrt(2)
    assert (other["mean"], other["n"]) == (pytest.approx(30), 3), "one seed without a pair"
    assert math.isnan(other["minutes"]), "none of its runs are finished"
    assert numbers(RIGHT, frames, "full", "random")["n"] == 2
    assert other["half-width"] == pytest.approx(2.2622 * spread / math.sqrt(10), abs=1e-3)


def test_the_common_setting_is_chosen_without_controls_and_edges_are_said():
    made = validate(Search, FILE | {"grid": {"rate": [1, 2, 4]}})
    means = {1: (10, 90, 10), 2: (30, 5, 30), 4: (20, 5, 50)}
    lines = [
        {"rate": rate, "arm": arm, "mean": mean, "half-width": rate}
        for rate, values in means.items()
        for arm, mean in zip(made.arms, values, strict=True)
    ]
    table = marked(pd.DataFrame(lines), made)
    common = table[table["common"] != ""]
    assert set(common["rate"]) == {4} and set(common["common"]) == {"yes (edge: rate)"}
    best = table[table["best"] != ""].set_index("arm")
    assert best["rate"].to_dict() == {"full": 2, "random": 1, "rlvr": 4}
    assert best["best"].to_dict()["full"] == "yes"
    for widest, rate in {2: [2], 1: [1], 0.5: []}.items():
        narrow = made.model_copy(update={"widest": widest})
        table = marked(pd.DataFrame(lines), narrow)
        assert table[table["common"] != ""]["rate"].unique().tolist() == rate
    unknown = pd.DataFrame(lines)
    unknown.loc[unknown["rate"] == 1, "half-width"] = math.nan
    table = marked(unknown, made.model_copy(update={"widest": 3}))
    assert table[table["common"] != ""]["rate"].unique().tolist() == [2], "nan is not narrow"


def test_of_equal_settings_the_first_is_common_and_a_single_value_is_no_edge():
    made = validate(Search, FILE | {"grid": {"rate": [1, 2, 4], "steps": [8]}})
    rows = [{"rate": rate, "steps": 8} for rate in (1, 2, 4)]
    assert [edge(row, made) for row in rows] == [" (edge: rate)", "", " (edge: rate)"]
    for values in ([False, True], ["mean", "sum"]):
        words = validate(Search, FILE | {"grid": {"rate": values}})
        assert [edge({"rate": value}, words) for value in values] == ["", ""], "they have no ends"
    alike = {"mean": 7.0, "half-width": 1.0}
    lines = [row | {"arm": arm} | alike for row in rows for arm in made.arms]
    table = marked(pd.DataFrame(lines), made)
    assert table[table["common"] != ""]["rate"].unique().tolist() == [1]


@pytest.mark.slow
def test_a_search_runs_is_saved_and_is_not_run_twice(tmp_path, monkeypatch):
    values = {"arms": ["rlvr", "random"], "against": "rlvr", "controls": ["random"]}
    values |= {"seeds": [100, 101], "measure": "mean", "set": {"steps": 1}}
    values |= {"grid": {"grpo.learning_rate": [1e-3, 2e-3]}}
    monkeypatch.setattr(search, "search_values", lambda *given: values)
    plans = search.plans
    monkeypatch.setattr(search, "plans", lambda *given: plans(*given, runs=str(tmp_path / "runs")))
    shown = show.searched("spell/search", "smoke", tmp_path / "figures")
    table = shown.item
    assert table["n"].tolist() == [2] * 4 and list(table["arm"]) == ["rlvr", "random"] * 2
    assert table["grpo.learning_rate"].tolist() == [0.001] * 2 + [0.002] * 2
    assert (table["mean"] == table["mean"].round(1)).all()
    assert table["half-width"].notna().tolist() == [False, True] * 2
    record = find_record("spell/search", tmp_path / "figures")
    assert record["command"] == "spnb search spell --scale smoke" and record["seeds"] == [100, 101]
    assert len(record["runs"]) == 8  # the settings' runs share their names
    folders = sorted((tmp_path / "runs").rglob("finished.json"))
    written = [path.stat().st_mtime_ns for path in folders]
    again = show.searched("spell/search", "smoke", tmp_path / "figures").item
    assert len(folders) == 8 and [path.stat().st_mtime_ns for path in folders] == written
    pd.testing.assert_frame_equal(again, table)
