"""SPICE's table of settings, and what its measures and claims are made of."""

import pandas as pd
import pytest

from spnb import reference
from spnb.lab import segments
from spnb.methods import absolute_zero
from spnb.report.claims import load_claims
from spnb.report.frame import Frames, load_measures, read_yaml
from spnb.report.tables import load_tables, printed_table, setting, settings_table
from spnb.train.plan import make_plan


@pytest.fixture(scope="module")
def settings():
    return settings_table(make_plan("spice", "cpu"), Frames()).item


def test_settings_are_those_of_each_methods_variant(settings):
    assert list(settings.columns) == ["SPICE", "Strong Challenger", "R-Zero", "Absolute Zero"]
    cells = {
        "attempts of the challenger": ["8 (paper 8)", "one at a time", "4 (paper 4)"],
        "answers of the reasoner": [
            "8 (paper 8)",
            "8 (paper 8)",
            "5 (paper 5)",
            "1 of 8 (paper 1)",
        ],
        "documents of the corpus": ["200 (paper 20000)", "200 (paper 20000)", "-", "-"],
        "steps": ["16 (paper 640)", "16 (paper 640)", "16, in stages of 2 and 6 (paper 5)"],
        "documents or prompts a step": ["8 (paper 128)", "8 (paper 128)", "16 (paper 128)"],
        "KL of the challenger to its start": ["0.0 (paper 0)", "0.0 (paper 0)", "0.0", "0.0"],
    }
    for name, expected in cells.items():
        assert settings.loc[name].tolist()[: len(expected)] == expected, name
    assert settings.loc["challenger", "Strong Challenger"].startswith(
        "embedded/reasoner-large, fixed (paper Qwen3-32B"
    )
    penalties = settings.loc["penalty for what is not valid (wrong; unreadable)"]
    own = f"{absolute_zero.WRONG}; {absolute_zero.UNREADABLE}"
    assert penalties["Absolute Zero"] == f"{own} (paper -0.5; -1)"
    assert penalties["SPICE"] == "-0.1 (paper -0.1)"


def test_every_printed_setting_is_used():
    rows = read_yaml("spice", "tables.yaml")["settings"]["rows"]
    used = [row.get("printed", []) for row in rows]
    labels = [label for each in used for label in ([each] if isinstance(each, str) else each)]
    assert sorted(labels) == sorted(printed_table("spice/table-5").index)


def test_a_setting_has_both_sides_or_one_or_none():
    printed = pd.Series({"a": 8.0, "b": float("nan"), "c": -0.5})
    row = {"printed": ["a", "b", "c"], "here": ["{x}"]}
    assert setting(row, 0, printed, {"x": 4}) == ("8; -0.5", "4")
    assert setting({**row, "printed": "b"}, 0, printed, {"x": 4}) == ("-", "4")
    words = {"printed": "a", "paper": ["at most {printed}"], "here": ["-"]}
    assert setting(words, 0, printed, {}) == ("at most 8", "-")


def test_means_are_over_the_suites_of_the_papers_two_groups():
    measures = load_measures("spice")
    assert measures["mathematics"].suite == segments.GROUPS["math"]
    assert measures["general"].suite == segments.GROUPS["general"]
    assert measures["overall"].suite == measures["overall, gain"].suite == [*segments.SUITES]
    asked = [each.measure.suite for each in load_tables("spice")["spice/table-1"].columns]
    assert {suite for suites in asked for suite in suites if len(suites) == 1} == {*segments.SUITES}


def test_every_printed_benchmark_stands_beside_a_suite():
    for name, count in (("table-1", 13), ("table-2", 14), ("table-3", 14), ("table-4", 14)):
        entry = load_tables("spice")[f"spice/{name}"]
        labels = [label for column in entry.columns for label in column.paper]
        assert sorted(labels) == sorted(printed_table(entry.printed)) and len(labels) == count


def test_means_of_the_papers_own_benchmarks_in_claims_are_recomputed():
    parts = [part for claim in load_claims("spice").claims for part in claim.parts]
    numbers = {label: value for part in parts for label, value in part.paper.items()}
    rows = {
        "mathematical by table 6": ("spice/table-6", "Corpus Type: Math (Nemotron-CC-Math)"),
        "choice by table 7": ("spice/table-7", "Response Format: MCQ"),
        "free form by table 7": ("spice/table-7", "Response Format: Free-form"),
    }
    for label, (exhibit, row) in rows.items():
        table = reference.table("spice", exhibit).drop(columns="Overall")
        mean = table.loc[f"Qwen3-4B-Base + SPICE, {row}"].mean()
        assert numbers[label] == pytest.approx(mean, abs=0.005), label


def test_each_claim_asks_for_the_papers_side():
    """Where a part has two printed numbers, the claimed side is the one that the paper has."""
    sides = {"greater": 1, "less": -1}
    checked = 0
    for claim in load_claims("spice").claims:
        for part in claim.parts:
            if isinstance(part.against, str) and len(part.paper) >= 2:
                names = list(part.paper)
                first = next(
                    name for name in names if name in ("SPICE", "variance", "both", "documents")
                )
                other = next(name for name in names if name != first and " by table" not in name)
                ahead = part.paper[first] - part.paper[other]
                ahead = ahead if part.of in ("full", "own-best") else -ahead
                assert ahead * sides[part.direction] > 0, part.text
                checked += 1
    assert checked == 19
