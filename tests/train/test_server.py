"""The server that forks runs: as those that are spawned, quick to start, and nobody is left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spnb.train import plan as plans
from spnb.train.plan import make_plan, run_all
from spnb.train.runs import RunError
from spnb.train.server import LOG, RunServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")
SMALL = dict(steps=1, eval_every=1, eval_items=1, family="journey", mix=[1, 1], fixed=8)
SMALL |= dict(prompts_per_step=2, group_size=2, policy="embedded/learner")


def plan_of(folder, **values):
    values = dict(seeds=[0], runs=str(folder)) | SMALL | values
    return make_plan("rlvr", "smoke", variants=["ladder-even"], **values)


def start_of(pid):
    """When a process started, None where it is no more: tells it from another of its number."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else rest[18]


def gone(pid, seconds=30):
    deadline = time.monotonic() + seconds
    while start_of(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return start_of(pid) is None


@pytest.mark.slow
def test_a_forked_run_is_what_a_spawned_one_is(tmp_path, monkeypatch):
    (forked,) = run_all(plan_of(tmp_path / "forked"))
    monkeypatch.setattr(plans, "FORKED", frozenset())
    (spawned,) = run_all(plan_of(tmp_path / "spawned"))
    weights = [run.model / "model.safetensors" for run in (forked, spawned)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    for name in ("evals", "items", "rollouts"):
        assert forked.rows(name) == spawned.rows(name) != []
    assert forked.facts()["threads"] == spawned.facts()["threads"] == 1
    with RunServer() as server:  # the run is finished: this is what a start costs
        again = server.start(forked.folder)
        assert again.wait() == 0 and again.seconds < 2


def test_who_starts_no_run_starts_no_server(tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    monkeypatch.setattr(plans, "_checked", lambda plan: ["finished"])
    monkeypatch.setattr(plans.Run, "finished", True)
    monkeypatch.setattr(plans, "RunServer", None)
    assert run_all(plan) == ["finished"]


@pytest.fixture(scope="module")
def server():
    with RunServer() as one:
        yield one


def test_a_run_that_fails_says_so_in_its_log(tmp_path, server):
    (tmp_path / "config.json").write_text("{}")
    run = server.start(tmp_path)
    assert run.wait() == run.poll() == 1 and run.seconds < 2
    assert (tmp_path / LOG).read_text().startswith("error: run folder")
    other = server.start(tmp_path)
    assert other.wait() == 1 and (tmp_path / LOG).read_text().count("error: ") == 2


def test_a_run_that_is_stopped_ends_by_the_signal(tmp_path, server):
    os.mkfifo(tmp_path / "config.json")  # who reads it waits
    # The server reads parameters too: another process gives it what it asks for.
    feed = f"open({str(tmp_path / 'config.json')!r}, 'w').write('{{}}')"
    subprocess.Popen([sys.executable, "-c", feed])
    run = server.start(tmp_path)
    assert run.poll() is None
    run.terminate()
    assert run.wait() == -signal.SIGTERM
    run.terminate()  # nobody is there any more


def test_the_server_has_started_no_threads(server):
    names = [
        Path(f"/proc/{server.process.pid}/task/{task}/comm").read_text().strip()
        for task in os.listdir(f"/proc/{server.process.pid}/task")
    ]
    assert len([name for name in names if name != "jemalloc_bg_thd"]) == 1  # pyarrow's memory


PARENT = """
import json, sys, time
from pathlib import Path
from spnb.train.server import RunServer

server = RunServer()
run = server.start(Path(sys.argv[1]))
print(json.dumps([server.process.pid, run.pid]), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("killed", ["parent", "server"])
def test_who_is_killed_leaves_nobody(tmp_path, killed):
    os.mkfifo(tmp_path / "config.json")
    feed = f"open({str(tmp_path / 'config.json')!r}, 'w').write('{{}}')"
    subprocess.Popen([sys.executable, "-c", feed])
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        server, run = json.loads(parent.stdout.readline())
        assert start_of(server) and start_of(run)
        os.kill(parent.pid if killed == "parent" else server, signal.SIGKILL)
        assert gone(run) and gone(server)
    finally:
        parent.kill()
        parent.wait()


def test_a_server_that_ended_is_named(tmp_path):
    with RunServer() as server:
        os.kill(server.process.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="ended with exit code -9; .* start again"):
            server.start(tmp_path)


@pytest.mark.slow
def test_the_log_of_a_failed_run_ends_the_error(tmp_path):
    plan = plan_of(tmp_path)
    run = plan.open("ladder-even", 0)
    (run.folder / "checkpoints").write_text("in the way")
    with pytest.raises(RunError, match="rlvr/smoke/ladder-even/seed-0 failed; its log ends"):
        run_all(plan)
