"""SIGTERM and SIGHUP stop commands and their runs; a start waits for a run of another process."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from test_server import plan_of, start_of

from spnb.core.errors import Stopped, signals_stop
from spnb.core.paths import ROOT
from spnb.train.plan import run_all
from spnb.train.server import start

COMMANDS = {
    signal.SIGTERM: ["reproduce", "--paper", "rlvr", "--scale", "smoke", "--variants", "think"],
    signal.SIGHUP: ["run", "rlvr", "--scale", "smoke", "--variant", "think"],
}


def wait_for(found, seconds=120):
    """What `found` returns once it is something."""
    deadline = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS, ids=["reproduce", "run"])
def test_a_signal_ends_a_command_with_its_runs(kind, tmp_path):
    for name in ("params", "notebooks"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "spnb.cli", *COMMANDS[kind]]
    home = os.environ | {"SPNB_HOME": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    heard = lambda: signal.signal(kind, signal.SIG_DFL)  # noqa: E731  (nohup has one ignored)
    parent = subprocess.Popen(command, env=home, preexec_fn=heard, **pipes)
    try:
        (lock,) = wait_for(lambda: list(tmp_path.glob("runs/rlvr/smoke/*/*/lock.json")))
        run = int(re.search(r"process (\d+) on", json.loads(lock.read_text())["who"])[1])
        assert start_of(run)
        parent.send_signal(kind)
        _, errors = parent.communicate(timeout=60)
    finally:
        parent.kill()
    assert parent.returncode == 130 and errors.decode().endswith(f"{Stopped()}\n")
    assert start_of(run) is None and not (lock.parent / "finished.json").exists()


def test_signals_are_as_before_afterwards_and_ignored_ones_stay_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), signals_stop():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_second_start_waits_and_computes_nothing_again(tmp_path, capsys):
    plan = plan_of(tmp_path)
    run = plan.open("ladder-even", 0)
    first = start(run.folder, forked=True)
    assert wait_for(lambda: run.busy() and (run.folder / "lock.json").exists())
    run_all(plan)
    first.join()
    who = f"run {run.run_id} is being written by process {first.pid} on "
    assert who in capsys.readouterr().out
    assert first.exitcode == 0 and (run.folder / "log.txt").read_text().count(who) == 1
    assert [row["step"] for row in run.rows("metrics")] == [1]
