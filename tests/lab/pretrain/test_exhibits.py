"""What the notebook of the shipped policies shows: curves, tables."""

import shutil

import pandas as pd
import pytest

from spnb.core.paths import ROOT, embedded_policies
from spnb.lab import embedded_path
from spnb.lab.pretrain import exhibits
from spnb.report.exhibits import MEASURE, ExhibitError, read_index
from spnb.report.show import regenerate
from spnb.train.policies import load_policy


def test_a_curve_is_drawn_over_steps_or_tokens():
    figure, curve = exhibits.curve_of(embedded_path("games"), "games")
    assert figure.axes[0].get_xlabel() == "training step" and len(curve) == 100
    figure, _ = exhibits.curve_of(embedded_path("player"), "player")
    assert figure.axes[0].get_xlabel() == "tokens (millions)"


def test_a_learners_table_has_a_line_a_skill_and_a_column_a_level(tmp_path, monkeypatch):
    parts = [("answer journey", "level 1", 0.5, 0.9), ("answer journey", "level 2", 0.25, 0.8)]
    parts += [("ask journey", "valid", 0.7, 0.7), ("ask journey", "asks level 1", 0.6, 1.0)]
    parts += [("judge", "right", 0.4, 1.0)]
    keys = ("benchmark", "part", "value", "parsed")
    measured = pd.DataFrame([dict(zip(keys, part, strict=True)) for part in parts])
    monkeypatch.setattr(exhibits, "TorchEngine", lambda *given, **named: None)
    found = measured[:1].assign(benchmark="answer chain", value=0.75)
    asked = measured[3:4].assign(benchmark="ask chain")
    after = asked.assign(part="valid after 0 searches", value=0.2)
    found = pd.concat([found, asked, after])
    monkeypatch.setattr(exhibits, "Chat", lambda tokenizer: None)
    for name, table in (("ladder_skills", measured), ("search_skills", found)):
        monkeypatch.setattr(exhibits.skills, name, lambda *given, table=table: table)
    monkeypatch.setattr(exhibits.skill_suites, "measure", lambda engine, suites: suites)
    rebuilt = shutil.copytree(embedded_path("searcher"), tmp_path / "searcher")
    policies = {"learner": load_policy("embedded/learner"), "searcher": load_policy(str(rebuilt))}
    table = exhibits.learner_table(policies, "smoke", str(tmp_path))
    assert table.loc[("searcher", "answer chain: right"), "1"] == 75
    assert table.loc[("searcher", "ask chain: asks"), "1"] == 60
    assert table.loc[("searcher", "ask chain: valid by searches"), "0"] == 20
    shown = table.loc["learner"]
    assert shown.loc["answer journey: right", ["1", "2"]].tolist() == [50, 25]
    assert shown.loc["answer journey: consistent", ["1", "2"]].tolist() == [90, 80]
    assert shown.at["ask journey", "valid"] == 70 and shown.at["ask journey: asks", "1"] == 60
    assert shown.at["judge", "right"] == 40 and list(shown)[:3] == ["0", "1", "2"]
    assert (tmp_path / "embedded/learner.md").is_file()
    (record,) = read_index(tmp_path)
    assert list(record["policies"]) == ["embedded/learner", str(rebuilt)], "one is not the shipped"
    levels, others = exhibits.parted(table)
    assert list(levels) == ["0", "1", "2"] and list(others) == ["right", "valid"]
    assert [name for _, name in others.index] == ["ask journey", "judge"]
    assert ("learner", "judge") not in levels.index


def test_the_tables_that_a_command_makes_say_so(tmp_path, monkeypatch):
    """Policies that play, one below the other; the readers by level."""
    rows = pd.DataFrame({"suite": ["kuhn_poker"], "metric": ["legal moves"], "value": [0.98765]})
    counts = []
    monkeypatch.setattr(exhibits.skills, "game_skills", lambda chat, count: counts.append(count))
    monkeypatch.setattr(exhibits.skills, "measure_games", lambda engine, suites: rows)
    policies = {name: load_policy(f"embedded/{name}") for name in ("games", "games-rival")}
    table = exhibits.games_table(policies, "cpu", str(tmp_path))
    assert table["policy"].tolist() == ["games", "games-rival"] and counts == [200, 200]
    part = {"benchmark": "answer journey", "part": "level 1", "value": 0.5, "parsed": 1.0}
    monkeypatch.setattr(exhibits.skill_suites, "measure", lambda *given: pd.DataFrame([part]))
    monkeypatch.setattr(exhibits.skills, "skills_of", lambda *given: [])
    exhibits.reader_table({"player": load_policy("embedded/player")}, "smoke", str(tmp_path))
    made = {record["id"]: record for record in read_index(tmp_path)}
    assert list(made["embedded/games"]["policies"]) == ["embedded/games", "embedded/games-rival"]
    assert list(made["embedded/readers"]["policies"]) == ["embedded/player"]
    assert {one["command"] for one in made.values()} == {MEASURE}
    with pytest.raises(ExhibitError, match="ssp/start cannot be made by this.*PAPER=ssp"):
        regenerate("ssp/start")
    with pytest.raises(ExhibitError, match=f"embedded/games cannot be made by this.*{MEASURE}"):
        regenerate("embedded/games")
    shipped = {name for record in measured() for name in record["policies"]}
    assert shipped == {f"embedded/{name}" for name in embedded_policies()}


def measured():
    """The records of every committed exhibit of skills."""
    ids = ("embedded/learner", "embedded/readers", "embedded/games", "ssp/start", "scope/start")
    return [record for record in read_index(ROOT / "figures") if record["id"] in ids]
