"""Run folders: identity, records, locking, damage."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from spnb.core.disk import write_json, write_lines
from spnb.evaluate.items import RECORD, ROW
from spnb.train import provenance
from spnb.train import run as run_module
from spnb.train.metrics import METRICS
from spnb.train.run import starting_policies
from spnb.train.runs import RECORDS, RunError, config_hash, open_run, read_run

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
    shown = {config_hash(PARAMS | {"report_to": to}) for to in ("none", "wandb")}
    assert len(shown) == 1 and run.config_hash not in shown, "where numbers are shown changes none"


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
    assert (
        run.commit == provenance.commit()
        and open_run(tmp_path, {**PARAMS, "seed": 9}).commit is None
    )
    changed = open_run(tmp_path, {**PARAMS, "learning_rate": 0.2})
    assert not changed.finished and changed.rows("metrics") == []
    assert changed.folder.name == f"seed-3.{changed.config_hash}" and changed.run_id == run.run_id
    changed.finish(seconds=1)
    assert open_run(tmp_path, PARAMS).rows("metrics") == [{"step": 1, "loss": 0.5}]
    assert open_run(tmp_path, {**PARAMS, "learning_rate": 0.2}).finished


def test_a_run_that_has_stopped_goes_on_with_another_bound_and_a_finished_one_keeps_its_own(
    tmp_path,
):
    bounded = PARAMS | {"filled_at_least": 0.5}
    run = open_run(tmp_path, bounded)
    run.append("metrics", {"step": 1})
    assert run.config_hash == config_hash(PARAMS), "a bound changes no number"
    looked = open_run(tmp_path, bounded | {"filled_at_least": 0.1}, make=False)
    assert looked.folder == run.folder and read_run(run.folder).params["filled_at_least"] == 0.5
    again = open_run(tmp_path, bounded | {"filled_at_least": 0.1})
    assert again.folder == run.folder and again.rows("metrics") == [{"step": 1}]
    assert read_run(run.folder).params == again.params == bounded | {"filled_at_least": 0.1}
    again.finish(seconds=1)
    open_run(tmp_path, bounded | {"filled_at_least": 0.2})
    assert read_run(run.folder).params["filled_at_least"] == 0.1


def test_a_run_that_found_no_room_on_a_gpu_goes_on_with_less(tmp_path):
    less = {"gpu_memory": 0.3, "micro_tokens": 8192, "vllm_sleep": True, "max_num_seqs": 8}
    less |= {"gradient_checkpointing": True}
    for scale in ("gpu", "paper"):
        large = PARAMS | {"scale": scale}
        assert open_run(tmp_path, large).folder == open_run(tmp_path, large | less).folder
    assert config_hash(PARAMS) != config_hash(PARAMS | {"micro_tokens": 8192}), "exact on a CPU"


def test_a_full_card_is_said_in_one_sentence(tmp_path, monkeypatch):
    def full(run):
        raise torch.OutOfMemoryError("tried 2 GiB")

    monkeypatch.setattr(run_module, "train_run", full)
    folder = open_run(tmp_path, PARAMS).folder
    with pytest.raises(SystemExit, match=r"^error: the GPU has no room \(tried 2.*gpu_mem"):
        run_module.main(folder)


def test_rows_survive_a_cut_off_last_line_and_rewind_drops_what_came_later(tmp_path):
    run = open_run(tmp_path, PARAMS)
    for step in (1, 2, 3):
        run.append("metrics", {"step": step, "reward/a/0": float(step)})
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "rew')
    assert [row["step"] for row in run.rows("metrics")] == [1, 2, 3]
    assert run.noted()["rows"] == {"metrics": 3, "evals": 0, "items": 0, "rollouts": 0}
    run.rewind({"rows": {"metrics": 2}})
    assert (run.folder / "metrics.jsonl").read_text().count("\n") == 2
    assert [row["step"] for row in run.rows("metrics")] == [1, 2]


def test_records_that_lost_rows_are_refused(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1}, {"step": 2})
    run.check_rows({"rows": {"metrics": 2}})
    run.check_rows({"rows": {"metrics": 1}})
    with pytest.raises(RunError, match="metrics.jsonl has 2 rows and had 3; put it back, or"):
        run.check_rows({"rows": {"metrics": 3}})
    with pytest.raises(RunError, match="metrics.jsonl has 2 rows and had 1"):
        run.check_rows({"rows": {"metrics": 1}}, exact=True)


DAMAGE = {
    "a digit": lambda lines: [*lines[:-1], lines[-1].replace("7", "8")],
    "reversed": lambda lines: lines[::-1],
    "twice": lambda lines: [lines[1], *lines[1:]],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["metrics", "evals", "items", "rollouts", "pairs"])
def test_a_record_that_was_changed_is_named(tmp_path, name, damage):
    run = open_run(tmp_path, PARAMS)
    path = run.folder / f"{name}.jsonl"
    rows = [{"step": step, "about": 7} for step in (1, 2, 3)]
    write_lines(path, rows)
    noted = json.loads(json.dumps(run.noted()))
    run.finish()
    run.model.mkdir()
    (run.model / "model.safetensors").touch()
    run.check_finished()
    before = path.read_text()
    path.write_text("".join(DAMAGE[damage](before.splitlines(keepends=True))))
    changed = path.read_text()
    message = f"{name}.jsonl is not as it was written; put it back, or delete"
    for check in (lambda: run.rewind(noted), run.check_finished):
        with pytest.raises(RunError, match=message) as caught:
            check()
        assert "\n" not in str(caught.value)
    assert path.read_text() == changed != before


def test_rows_that_came_later_are_cut_and_the_first_are_as_they_were(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1, "loss": 0.1 + 0.2, "reward/ü/0": 1e-300})
    noted = run.noted()
    run.append("metrics", {"step": 2})
    run.check_rows(noted)
    with pytest.raises(RunError, match="metrics.jsonl has 2 rows and had 1"):
        run.check_rows(noted, exact=True)
    run.rewind(noted)
    assert run.noted() == noted


def test_pairs_may_be_missing_and_what_was_noted_before_digests_is_enough(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1})
    write_lines(run.folder / "pairs.jsonl", [{"chosen_ids": [1]}])
    noted = run.noted()
    (run.folder / "pairs.jsonl").unlink()
    run.check_rows(noted, exact=True)
    (run.folder / "metrics.jsonl").write_text('{"step": 2}\n')
    run.check_rows({"rows": noted["rows"]}, exact=True)


@pytest.mark.parametrize("content", [b"", b"half", b"weightS", None])
def test_weights_that_were_changed_are_named_where_they_are_loaded(tmp_path, content):
    run = open_run(tmp_path, PARAMS)
    path = run.model / "solver" / "model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    run.finish()
    assert run.weights() == run.model
    named = {"variant": "v", "hash": run.config_hash}
    following = replace(run, params={**PARAMS, "variant": "w", "starts": {"solver": named}})
    start = SimpleNamespace(policy="embedded/games", policies={})
    policies = {"policy": "embedded/games", "solver": str(run.model / "solver")}
    assert starting_policies(following, start) == policies
    other = replace(run, params={**PARAMS, "variant": "w", "starts": {"policy": named}})
    with pytest.raises(RunError, match="start_from is 'v' for policy; allowed: for solver, which"):
        starting_policies(other, start)
    path.unlink() if content is None else path.write_bytes(content)
    if content is None:
        (run.model / "other.safetensors").touch()
    what = "is missing" if content is None else "is not as it was saved"
    for load in (run.weights, lambda: starting_policies(following, start)):
        with pytest.raises(RunError, match=f"solver/model.safetensors {what}; put it back, or del"):
            load()


@pytest.mark.parametrize("content", [b"weightS", None])
def test_kept_weights_that_were_changed_are_named_where_they_are_loaded(tmp_path, content):
    run = open_run(tmp_path, PARAMS)
    for step in (8, 24, 16):
        folder = run.folder / "kept" / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
    run.finish()
    assert list(run.kept().items()) == [
        (step, run.folder / "kept" / f"step-{step}") for step in (8, 16, 24)
    ]
    path = run.kept()[16] / "model.safetensors"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(RunError, match="kept/step-16/model.safetensors is (missing|not as it was)"):
        run.kept()


def test_a_run_that_was_finished_before_digests_is_read(tmp_path):
    run = open_run(tmp_path, PARAMS)
    run.append("metrics", {"step": 1})
    run.model.mkdir()
    (run.model / "model.safetensors").touch()
    write_json(run.folder / "finished.json", {"rows": dict.fromkeys(RECORDS, 0) | {"metrics": 1}})
    run.check_finished()
    assert run.weights() == run.model


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


def test_a_row_broken_at_its_comma_is_no_row(tmp_path):
    """All lines together would read as JSON."""
    run = open_run(tmp_path, PARAMS)
    (run.folder / "metrics.jsonl").write_text('{"step": 1\n"loss": 2}\n{"step": 2}\n')
    with pytest.raises(RunError, match="metrics.jsonl, line 1 is damaged"):
        run.rows("metrics")


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
    with pytest.raises(RunError, match="metrics row has keys outside its schema: rewards/a, loss2"):
        run.append("metrics", {"step": 2, "rewards/a": 1.0, "loss2": 1.0})
    row = dict(ROW, step=1, suite="s", metric="m", value=0)
    run.append("evals", row)
    with pytest.raises(RunError, match="evals row has keys outside its schema: evaluation"):
        run.append("evals", row | {"evaluation": "e"})
    with pytest.raises(RunError, match="evals row has keys outside its schema: metric"):
        run.append("evals", {key: row[key] for key in row if key != "metric"})
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_killed_writer_leaves_no_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    holder.stdout.readline()
    holder.kill()
    holder.communicate()
    with open_run(tmp_path, PARAMS).lock():
        pass
