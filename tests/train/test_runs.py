"""Run folders: identity, records, locking, damage."""

import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from spnb.train.runs import METRICS, RunError, config_hash, open_run, write_json

PARAMS = {"paper": "p", "scale": "smoke", "variant": "v", "seed": 3, "learning_rate": 0.1}


def test_folder_identity_and_hash(tmp_path):
    run = open_run(tmp_path, PARAMS)
    assert run.folder == tmp_path / "p/smoke/v/seed-3" and run.run_id == "p/smoke/v/seed-3"
    config = json.loads((run.folder / "config.json").read_text())
    assert config["hash"] == run.config_hash == config_hash(dict(reversed(PARAMS.items())))
    assert config["params"] == PARAMS and len(run.config_hash) == 12
    assert config_hash({**PARAMS, "learning_rate": 0.2}) != run.config_hash


def test_a_finished_run_is_recognised_and_one_with_other_parameters_lies_beside_it(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1, "loss": 0.5})
    run.finish(seconds=2.5)
    assert open_run(tmp_path, PARAMS).finished and run.facts()["seconds"] == 2.5
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
    run.rewind(2)
    assert (run.folder / "metrics.jsonl").read_text().count("\n") == 2
    assert run.table("metrics")[["step", "seed"]].values.tolist() == [[1, 3], [2, 3]]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    run = open_run(tmp_path, PARAMS)
    (run.folder / "metrics.jsonl").write_text('{"step": 1}\noops\n{"step": 3}\n')
    with pytest.raises(RunError, match="metrics.jsonl, line 2 is not JSON"):
        run.rows("metrics")


@pytest.mark.parametrize("content", [None, "", "{oops", "[1]"])
def test_a_damaged_or_half_written_folder_is_refused_and_left_alone(tmp_path, content):
    folder = tmp_path / "p/smoke/v/seed-3"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(RunError, match="seed-3 is damaged: config.json"):
        open_run(tmp_path, PARAMS)
    assert (folder / "metrics.jsonl").read_text() == "{}\n"


def test_an_empty_folder_left_by_a_kill_is_used(tmp_path):
    (tmp_path / "p/smoke/v/seed-3").mkdir(parents=True)
    assert open_run(tmp_path, PARAMS).rows("metrics") == []


def test_metrics_schema_is_enforced(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append(
        "metrics", dict.fromkeys([key.replace("<role>", "kuhn_poker/0") for key in METRICS], 0.0)
    )
    with pytest.raises(RunError, match="metrics row has keys outside its schema: rewards/a"):
        run.append("metrics", {"step": 1, "rewards/a": 1.0})
    with pytest.raises(RunError, match="evals row has keys outside its schema: n"):
        run.append(
            "evals", {"step": 1, "evaluation": "e", "metric": "m", "value": 0, "low": 0, "high": 0}
        )


HOLD = """
import sys, time
from pathlib import Path
from spnb.train.runs import open_run
run = open_run(Path(sys.argv[1]), {"paper": "p", "scale": "smoke", "variant": "v", "seed": 3, "learning_rate": 0.1})
with run.lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_two_processes_cannot_write_one_run_and_the_message_says_who_does(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        run = open_run(tmp_path, PARAMS)
        with (
            pytest.raises(
                RunError, match=rf"is being written by process {holder.pid} on .* since 20"
            ),
            run.lock(),
        ):
            pass
    finally:
        holder.communicate("\n", timeout=20)
    with run.lock():
        assert json.loads((run.folder / "lock.json").read_text())["pid"] == os.getpid()
    assert not (run.folder / "lock.json").exists()


def test_a_killed_writer_leaves_no_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    holder.stdout.readline()
    holder.kill()
    holder.communicate()
    with open_run(tmp_path, PARAMS).lock():
        pass


def test_write_json_is_atomic_for_readers(tmp_path):
    path = tmp_path / "x.json"
    writer = multiprocessing.get_context("fork").Process(
        target=lambda: [write_json(path, {"a": list(range(5000)), "i": i}) for i in range(30)]
    )
    write_json(path, {"a": list(range(5000)), "i": -1})
    writer.start()
    while writer.is_alive():
        assert len(json.loads(path.read_text())["a"]) == 5000
    writer.join()
