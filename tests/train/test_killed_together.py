"""Two processes train together: one or both are killed and started again."""

from pathlib import Path

import pytest
from processes import finish_together, left_by
from rzero import make_run

SCRIPT = str(Path(__file__).with_name("rzero.py"))
STAGES = [{"policy": "challenger", "steps": 1}, {"policy": "solver", "steps": 2}]
SMALL = {"stages": STAGES, "steps": 3, "eval_every": 3}
EVENTS = {
    "one, in a step": "1:1",
    "the one that records, after a row of the second stage": "0:row-2",
    "both, in a step": "2",
    "the one that records, while weights are collected": "0:move-1",
}


def start(run, *event):
    return finish_together(run.folder / "log.txt", SCRIPT, run.folder, *event)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two processes that nothing stopped."""
    run = make_run(tmp_path_factory.mktemp("whole"), **SMALL)
    done = start(run)
    assert done.returncode == 0, done.stderr[-2000:]
    assert run.facts()["processes"] == 2
    return run


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS)
def test_killed_together_and_started_again(event, whole, tmp_path):
    run = make_run(tmp_path, **SMALL)
    assert start(run, EVENTS[event]).returncode != 0 and not run.finished
    done = start(run)
    assert done.returncode == 0, done.stderr[-2000:]
    assert left_by(run) == left_by(whole)
    assert [row["step"] for row in run.rows("metrics")] == [1, 2, 3]
