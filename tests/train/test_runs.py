"""Run folders: identity, records, locking, damage."""

import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from spnb.evaluate.items import RECORD, ROW
from spnb.train.metrics import METRICS
from spnb.train.runs import RunError, commit, config_hash, open_run, read_run

PARAMS = {"paper": "p", "scale": "smoke", "variant": "v", "seed": 3, "learning_rate": 0.1}


def test_folder_identity_and_hash(tmp_path):
    run = open_run(tmp_path, PARAMS)
    assert run.folder == tmp_path / "p/smoke/v/seed-3" and run.run_id == "p/smoke/v/seed-3"
    config = json.loads((run.folder / "config.json").read_text())
    assert config["hash"] == run.config_hash == config_hash(dict(reversed(PARAMS.items())))
    assert config["params"] == PARAMS and len(run.config_hash) == 12
    assert config_hash({**PARAMS, "learning_rate": 0.2}) != run.config_hash
    later = {"start": None, "roles": {"solver": {"kl": None}}, "co_trained": {}, "names": []}
    assert config_hash({**PARAMS, **later}) == run.config_hash  # empty ones do not count
    assert config_hash({**PARAMS, "shuffled": False}) != run.config_hash


def test_a_new_folder_and_those_above_it_are_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("spnb.core.disk._sync", synced.append)
    folder = open_run(tmp_path / "runs", PARAMS).folder
    above = [one for one in folder.parents if one.is_relative_to(tmp_path)]
    assert len(above) == 5 and {folder, *above} <= set(synced)


def test_a_finished_run_is_recognised_and_one_with_other_parameters_lies_beside_it(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1, "loss": 0.5})
    run.finish(seconds=2.5)
    assert open_run(tmp_path, PARAMS).finished and run.facts()["seconds"] == 2.5
    assert run.commit == commit() and open_run(tmp_path, {**PARAMS, "seed": 9}).commit is None
    changed = open_run(tmp_path, {**PARAMS, "learning_rate": 0.2})
    assert not changed.finished and changed.rows("metrics") == []
    assert changed.folder.name == f"seed-3.{changed.config_hash}" and changed.run_id == run.run_id
    changed.finish(seconds=1)
    assert open_run(tmp_path, PARAMS).rows("metrics") == [{"step": 1, "loss": 0.5}]
    assert open_run(tmp_path, {**PARAMS, "learning_rate": 0.2}).finished


def test_rows_survive_a_cut_off_last_line_and_rewind_drops_what_came_later(tmp_path):
    run = open_run(tmp_path, PARAMS)
    for step in (1, 2, 3):
        run.append("metrics", {"step": step, "reward/a/0": float(step)})
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "rew')
    assert [row["step"] for row in run.rows("metrics")] == [1, 2, 3]
    assert run.row_counts() == {"metrics": 3, "evals": 0, "items": 0, "rollouts": 0}
    run.rewind({"metrics": 2})
    assert (run.folder / "metrics.jsonl").read_text().count("\n") == 2
    assert [row["step"] for row in run.rows("metrics")] == [1, 2]


def test_records_that_lost_rows_are_refused(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1}, {"step": 2})
    run.check_rows({"metrics": 2})
    run.check_rows({"metrics": 1})
    with pytest.raises(RunError, match="metrics.jsonl has 2 rows and had 3; put it back, or"):
        run.check_rows({"metrics": 3})
    with pytest.raises(RunError, match="metrics.jsonl has 2 rows and had 1"):
        run.check_rows({"metrics": 1}, exact=True)


def test_a_finished_run_without_weights_or_rows_is_not_taken_for_whole(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1})
    run.finish(seconds=1)
    with pytest.raises(RunError, match="is finished, but .*model has no weights any more; delete"):
        run.check_finished()
    run.model.mkdir()
    (run.model / "model.safetensors").touch()
    run.check_finished()
    (run.folder / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match="metrics.jsonl has 0 rows and had 1"):
        run.check_finished()


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1, "entropy": float("nan"), "loss": float("inf")})
    assert run.rows("metrics") == [{"step": 1, "entropy": None, "loss": None}]


def test_a_run_is_read_from_its_folder_and_a_changed_config_is_refused(tmp_path):
    run = open_run(tmp_path, PARAMS)
    assert read_run(run.folder) == run and run.root == tmp_path
    path = run.folder / "config.json"
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(RunError, match="config.json was changed"):
        read_run(run.folder)


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    run = open_run(tmp_path, PARAMS)
    (run.folder / "metrics.jsonl").write_text('{"step": 1}\noops\n{"step": 3}\n')
    with pytest.raises(RunError, match="metrics.jsonl, line 2 is damaged"):
        run.rows("metrics")


@pytest.mark.parametrize("content", [None, "", "{oops", "[1]"])
def test_a_damaged_or_half_written_folder_is_refused_and_left_alone(tmp_path, content):
    folder = tmp_path / "p/smoke/v/seed-3"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(RunError, match="seed-3/config.json cannot be read"):
        open_run(tmp_path, PARAMS)
    assert (folder / "metrics.jsonl").read_text() == "{}\n"


def test_an_empty_folder_left_by_a_kill_is_used(tmp_path):
    (tmp_path / "p/smoke/v/seed-3").mkdir(parents=True)
    assert open_run(tmp_path, PARAMS).rows("metrics") == []


def test_metrics_schema_is_enforced(tmp_path):
    run = open_run(tmp_path, PARAMS)
    row = dict.fromkeys([key.replace("<role>", "kuhn_poker/0") for key in METRICS], 0.0)
    run.append("metrics", row | {"step": 1})
    with pytest.raises(RunError, match="metrics row has keys outside its schema: rewards/a"):
        run.append("metrics", {"step": 2, "rewards/a": 1.0})
    row = dict(ROW, step=1, suite="s", metric="m", value=0)
    run.append("evals", row)
    with pytest.raises(RunError, match="evals row has keys outside its schema: evaluation"):
        run.append("evals", row | {"evaluation": "e"})
    with pytest.raises(RunError, match="items row has keys outside its schema: score"):
        run.append("items", {key: "" for key in RECORD if key != "score"})


HOLD = """
import sys, time
from pathlib import Path
from spnb.train.runs import open_run
identity = {"paper": "p", "scale": "smoke", "variant": "v", "seed": 3, "learning_rate": 0.1}
run = open_run(Path(sys.argv[1]), identity)
with run.lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_that_another_process_writes_is_waited_for(tmp_path, capsys):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    run = open_run(tmp_path, PARAMS)
    try:
        assert holder.stdout.readline() == "held\n"
        busy = rf"run {run.run_id} is being written by process {holder.pid} on \S+ since 20\S+"
        with pytest.raises(RunError, match=f"{busy}; wait for it or stop it"):
            run.lock(wait=False).__enter__()
        waited = threading.Timer(0.5, holder.communicate, ["\n"])
        waited.start()
        started = time.monotonic()
        with run.lock():
            assert time.monotonic() > started + 0.4
            who = json.loads((run.folder / "lock.json").read_text())["who"]
        assert who.startswith(f"process {os.getpid()} on ")
        assert re.fullmatch(f"waiting: {busy}\n", capsys.readouterr().out)
        waited.join()
    finally:
        holder.kill()
    assert run.busy() == "" and not (run.folder / "lock.json").exists()


def test_a_killed_writer_leaves_no_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    holder.stdout.readline()
    holder.kill()
    holder.communicate()
    with open_run(tmp_path, PARAMS).lock():
        pass
