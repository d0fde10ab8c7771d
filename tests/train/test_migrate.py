"""Runs with earlier names of parameters: refused by name, then migrated, never computed again."""

import json

import pytest

from spnb.core.disk import write_json
from spnb.train import migrate as module
from spnb.train import runs
from spnb.train.migrate import migrate
from spnb.train.runs import RunError, config_hash, open_run, read_run

RENAMES = {
    "renamed": {"every": {"beside": "co_trained"}, "p": {"asked": "questions_per_round"}},
    "values": {"p": {"source": {"self": "policy"}}},
    "removed": {"every": {"load_in_4bit": False}},
}
IDENTITY = {"paper": "p", "scale": "smoke", "variant": "v", "seed": 3}
OLD = IDENTITY | {"asked": 12, "source": "self", "load_in_4bit": False, "beside": {"b": {"x": 1}}}
NEW = IDENTITY | {"questions_per_round": 12, "source": "policy", "co_trained": {"b": {"x": 1}}}


@pytest.fixture(autouse=True)
def names(monkeypatch):
    monkeypatch.setattr("spnb.train.runs.packaged_yaml", lambda path: RENAMES)


def old_run(root, params, name=""):
    """A run's folder as an earlier version wrote it."""
    folder = root / "{paper}/{scale}/{variant}/seed-{seed}".format(**params)
    folder = folder.with_name(folder.name + name)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", {"hash": config_hash(params), "params": params})
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    return folder


def test_names_and_values_are_todays_and_what_never_differed_is_gone():
    assert runs.current(OLD) == NEW
    assert runs.current(NEW) == NEW
    assert runs.current(OLD | {"paper": "q"}).keys() - {"asked"} == NEW.keys() - {
        "questions_per_round"
    }
    assert runs.current(IDENTITY | {"load_in_4bit": True})["load_in_4bit"] is True


def test_an_earlier_run_is_refused_by_name_until_it_is_migrated(tmp_path):
    old_run(tmp_path, OLD)
    with pytest.raises(RunError, match=r"\(asked, beside, load_in_4bit\).*spnb migrate"):
        open_run(tmp_path, NEW)
    assert migrate(tmp_path) == ["p/smoke/v/seed-3"]
    run = open_run(tmp_path, NEW)
    assert run.rows("metrics") == [{"step": 1}] and run.folder.name == "seed-3"
    assert migrate(tmp_path) == []


def test_a_folder_named_by_its_hash_and_the_runs_that_start_from_another(tmp_path):
    start = {"policy": {"variant": "v", "hash": config_hash(OLD)}}
    later = OLD | {"variant": "w", "starts": start}
    another = OLD | {"asked": 13}
    old_run(tmp_path, OLD)
    old_run(tmp_path, later)
    old_run(tmp_path, another, f".{config_hash(another)}")
    assert sorted(migrate(tmp_path)) == ["p/smoke/v/seed-3", "p/smoke/v/seed-3", "p/smoke/w/seed-3"]
    moved = open_run(tmp_path, NEW | {"questions_per_round": 13})
    assert moved.folder.name == f"seed-3.{moved.config_hash}" and moved.rows("metrics")
    found = read_run(tmp_path / "p/smoke/w/seed-3")
    assert found.params["starts"]["policy"]["hash"] == config_hash(NEW)
    assert len(list(tmp_path.glob("p/smoke/*/*"))) == 3


def test_a_run_that_is_being_written_is_left_alone(tmp_path):
    with read_run(old_run(tmp_path, OLD)).lock(), pytest.raises(RunError, match="is being written"):
        migrate(tmp_path)


def test_what_is_interrupted_goes_on(tmp_path, monkeypatch):
    start = {"policy": {"variant": "v", "hash": config_hash(OLD)}}
    old_run(tmp_path, OLD)
    second = old_run(tmp_path, OLD | {"variant": "w", "starts": start})
    rewrite = module._rewrite

    def stop(run, params):
        if run.variant == "w":
            raise KeyboardInterrupt
        rewrite(run, params)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_rewrite", stop)
        with pytest.raises(KeyboardInterrupt):
            migrate(tmp_path)
    assert migrate(tmp_path) == ["p/smoke/w/seed-3"]
    assert read_run(second).params["starts"]["policy"]["hash"] == config_hash(NEW)


def test_a_damaged_run_is_named(tmp_path):
    folder = old_run(tmp_path, OLD)
    facts = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", facts | {"hash": "0"})
    with pytest.raises(RunError, match="is damaged: config.json was changed"):
        migrate(tmp_path)
