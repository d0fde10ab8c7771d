"""A staged run that is killed at an event, and started again, ends as one that was not."""

import json
import shutil
from pathlib import Path

import pytest
from processes import finish, left_by
from rzero import make_run

from spnb.train.run import DONE, TRAINED
from spnb.train.runs import RECORDS, RunError, read_run

SCRIPT = str(Path(__file__).with_name("rzero.py"))
LONG = {"save_every": 100}
"""A stage's only checkpoint is the one at its end."""
EVENTS = ("row-3", "row-5", "mark-1", "move-1", "finish")


def start(run, *event):
    return finish(run.folder / "log.txt", SCRIPT, run.folder, *event)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing stopped."""
    run = make_run(tmp_path_factory.mktemp("whole"), **LONG)
    done = start(run)
    assert done.returncode == 0, done.stderr[-2000:]
    return run


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS)
def test_a_kill_at_an_event_changes_nothing(event, whole, tmp_path):
    run = make_run(tmp_path, **LONG)
    assert start(run, event).returncode == 9 and not run.finished
    done = start(run)
    assert done.returncode == 0, done.stderr[-2000:]
    assert left_by(run) == left_by(whole)
    assert [row["step"] for row in run.rows("metrics")] == list(range(1, 9))
    assert run.facts()["resumed"] and not whole.facts()["resumed"]


@pytest.mark.slow
def test_a_finished_run_whose_end_mark_was_deleted_loses_nothing(whole, tmp_path):
    run = make_run(tmp_path, **LONG)
    shutil.copytree(whole.folder, run.folder, dirs_exist_ok=True)
    (run.folder / "finished.json").unlink()
    assert start(run).returncode == 0
    assert left_by(run) == left_by(whole)


@pytest.mark.slow
def test_a_stage_that_vanished_is_named_and_no_record_is_cut(tmp_path):
    run = make_run(tmp_path, **LONG)
    assert start(run, "row-5").returncode == 9
    before = {path.name: path.read_bytes() for path in run.folder.glob("*.jsonl")}
    (run.folder / "stages" / "0" / DONE).unlink()
    done = start(run)
    assert done.returncode != 0 and "what stage 0 left in" in done.stderr
    assert {path.name: path.read_bytes() for path in run.folder.glob("*.jsonl")} == before


@pytest.mark.slow
def test_other_processes_than_wrote_a_stage_do_not_go_on_from_it(tmp_path):
    run = make_run(tmp_path, **LONG)
    assert start(run, "row-5").returncode == 9
    file = run.folder / "stages" / "1" / DONE
    noted = json.loads(file.read_text())
    file.write_text(json.dumps(noted | {"methods": noted["methods"] * 2}))
    done = start(run)
    assert "the stage before was written by 2 processes, and 1 run now" in done.stderr
    file.write_text(json.dumps(noted))
    assert start(run).returncode == 0


@pytest.mark.slow
def test_weights_are_collected_only_beside_the_records_that_they_belong_to(tmp_path):
    run = make_run(tmp_path)
    (run.folder / TRAINED).write_text(json.dumps({"rows": dict.fromkeys(RECORDS, 3)}))
    done = start(run)
    assert done.returncode != 0 and "has 0 rows and had 3" in done.stderr
    assert not run.finished


def test_a_step_is_recorded_once(tmp_path):
    run = make_run(tmp_path)
    run.append("metrics", {"step": 1, "loss": 0.5})
    run.append("metrics", {"step": 2, "loss": 0.5}, {"step": 3, "loss": 0.5})
    for step in (3, 1):
        with pytest.raises(RunError, match=f"metrics of step {step} come after those of step 3"):
            run.append("metrics", {"step": step, "loss": 0.5})
    assert [row["step"] for row in run.rows("metrics")] == [1, 2, 3]


def test_what_a_kill_leaves_of_a_config_does_not_block_the_run(tmp_path):
    run = make_run(tmp_path)
    (run.folder / "config.json").rename(run.folder / ".tmp-17-config.json")
    assert make_run(tmp_path).folder == run.folder
    assert read_run(run.folder).config_hash == run.config_hash
