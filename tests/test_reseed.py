"""A committed table's rows of some variants, drawn again."""

import json
from pathlib import Path

import pytest

from tools import reseed

ROWS = """measure,variant,seed,start,end
right,a,1,10,20
right,b,1,5,18
"not, so",b,1,0,1e-05
right,b,2,5,22
"""
A, B1, B2 = "rlvr/cpu/a/seed-1", "rlvr/cpu/b/seed-1", "rlvr/cpu/b/seed-2"
RECORD = {
    "id": "rlvr/seeds",
    "title": "t",
    "caption": "c",
    "protocol": "p",
    "command": "make it",
    "scale": "cpu",
    "seeds": [1, 2],
    "variants": ["a", "b"],
    "runs": {A: "x", B1: "old", B2: "old"},
    "policies": {"player": "1", "searcher": "2"},
    "trained_at": ["then"],
    "commit": "c" * 40,
    "date": "2026-01-01T00:00:00+00:00",
    "files": ["rlvr/seeds.csv", "rlvr/seeds.md"],
}
NEW = {
    "runs": {B1: "new", B2: "new"},
    "policies": {"searcher": "3"},
    "trained_at": ["now"],
    "commit": "d" * 40,
    "date": "2026-02-02T00:00:00+00:00",
}


def saved(folder, rows, record):
    (folder / "rlvr").mkdir(parents=True)
    (folder / "rlvr/seeds.csv").write_text(rows)
    (folder / "rlvr/seeds.md").write_text(f"# t\n\n{reseed.made_from(record)}. `make it`.\n")
    (folder / "index.json").write_text(json.dumps({"exhibits": [record]}))


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Takes these rows for what the exhibit of b's runs is; the committed table is in a folder."""
    monkeypatch.setattr(reseed, "FIGURES", tmp_path)
    saved(tmp_path, ROWS, RECORD)

    def make_plan(paper, scale, variants, figures):
        assert (paper, scale, variants) == ("rlvr", "cpu", ["b"])
        return Path(figures)

    def draws(rows):
        exhibit = {"rlvr/seeds": lambda plan: saved(plan, rows, RECORD | NEW)}
        monkeypatch.setattr(reseed.sp, "make_plan", make_plan)
        monkeypatch.setattr(reseed.sp, "exhibit", lambda name, plan: exhibit[name](plan))

    return draws


def test_the_rows_of_a_variant_are_drawn_again_in_their_places(drawn, tmp_path):
    lines = ["right,b,2,6,23", '"not, so",b,1,0,0.3', "right,b,1,4,17"]
    drawn("\n".join(["measure,variant,seed,start,end", *lines]) + "\n")
    assert reseed.reseed("rlvr", "b") == 3
    after = (tmp_path / "rlvr/seeds.csv").read_text().splitlines()
    assert after == [*ROWS.splitlines()[:2], lines[2], lines[1], lines[0]]
    (record,) = reseed.read_index(tmp_path)
    assert record["runs"] == {A: "x", B1: "new", B2: "new"}
    assert record["policies"] == {"player": "1", "searcher": "3"}
    assert record["trained_at"] == ["now", "then"] and record["commit"] == NEW["commit"]
    assert {key: record[key] for key in ("variants", "seeds", "files")} == {
        key: RECORD[key] for key in ("variants", "seeds", "files")
    }
    page = (tmp_path / "rlvr/seeds.md").read_text()
    assert "2026-02-02, commit dddddddddd" in page and "2026-01-01" not in page
    assert "2026-02-02" in (tmp_path / "rlvr/README.md").read_text()


def test_other_rows_are_refused_and_nothing_changes(drawn, tmp_path):
    drawn("measure,variant,seed,start,end\nright,b,1,4,17\nright,b,3,6,23\n")
    with pytest.raises(ValueError, match=r"rlvr/seeds has other rows .*; allowed: the rows that"):
        reseed.reseed("rlvr", "b")
    assert (tmp_path / "rlvr/seeds.csv").read_text() == ROWS
    assert reseed.read_index(tmp_path) == [RECORD]
