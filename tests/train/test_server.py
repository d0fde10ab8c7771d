"""The server that forks runs: as those that are spawned, quick to start, and nobody is left."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from spnb.core.errors import Stopped
from spnb.core.paths import ROOT
from spnb.train import plan as plans
from spnb.train import server
from spnb.train.plan import make_plan, run_all
from spnb.train.runs import RunError
from spnb.train.server import LOG, PRELOAD, start
from tests.train.noted_run import UNSLOTH, noted_run

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


def commands_of(session):
    """The command lines of a session's processes."""
    found = b""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            of = (folder / "stat").read_text().rpartition(")")[2].split()[3]
            found += (folder / "cmdline").read_bytes() if of == str(session) else b""
    return found


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


def seconds(file):
    """What a forked process has taken of a processor once it has all that a run needs."""
    from spnb.train import run  # noqa: F401

    file.write_text(str(time.process_time()))


@pytest.mark.slow
def test_a_start_takes_less_than_two_seconds_of_a_processor(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOAD])
    process = context.Process(target=seconds, args=(tmp_path / "seconds",))
    process.start()
    process.join()
    assert float((tmp_path / "seconds").read_text()) < 2


@pytest.mark.slow
def test_ctrl_c_while_the_server_imports_is_one_sentence(tmp_path):
    """It reaches every process of the command, as it does from a keyboard."""
    command = ["-m", "spnb.cli", "run", "spiral", "--scale", "smoke"]
    options = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    environment = os.environ | {"SPNB_HOME": str(tmp_path)}
    shutil.copytree(ROOT / "params/spiral", tmp_path / "params/spiral")
    with subprocess.Popen(
        [sys.executable, *command], env=environment, start_new_session=True, **options
    ) as process:
        while b"multiprocessing.forkserver" not in commands_of(process.pid):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "Traceback" not in told
    assert told.strip().endswith("stopped; finished runs are kept, start again to go on")


@pytest.mark.parametrize(("scale", "forked"), [("smoke", True), ("cpu", True), ("gpu", False)])
def test_runs_that_need_a_gpu_are_spawned(tmp_path, monkeypatch, scale, forked):
    calls = []

    def started(folder, forked, card, count):
        calls.append((forked, card))
        raise KeyboardInterrupt

    monkeypatch.setattr(plans, "start_together", started)
    monkeypatch.setattr(plans, "visible_cards", lambda: ["5"])
    for name in ("check_needs", "check_gpu"):
        monkeypatch.setattr(plans, name, lambda _: None)
    with pytest.raises(Stopped):
        run_all(make_plan("rlvr", scale, variants=["think"], seeds=[0], runs=str(tmp_path)))
    assert calls == [(forked, "" if forked else "5")]


@pytest.mark.slow
def test_a_run_in_which_nothing_was_learned_says_so(tmp_path, capsys):
    """No answer to ten steps is right, so that none has an advantage; of one or two steps some."""
    hardest = plan_of(tmp_path, mix=[0] * 9 + [1], grpo={"beta": 0.1})
    run_all(hardest)
    said = "rlvr/smoke/ladder-even/seed-0: no answer had an advantage, nothing was learned; "
    assert said + str(tmp_path) in capsys.readouterr().out
    assert hardest.open("ladder-even", 0).rows("rollouts")
    run_all(plan_of(tmp_path / "easy", prompts_per_step=8, group_size=4))
    assert "advantage" not in capsys.readouterr().out


def test_finished_runs_start_no_process(tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    monkeypatch.setattr(plans, "_checked", lambda plan, *_: ["finished"])
    monkeypatch.setattr(plans.Run, "finished", True)
    monkeypatch.setattr(plans, "start_together", None)
    assert run_all(plan) == ["finished"]


@pytest.mark.slow
@pytest.mark.parametrize("forked", [True, False])
def test_a_run_that_fails_says_so_in_its_log(tmp_path, forked):
    (tmp_path / "config.json").write_text("{}")
    for count in (1, 2) if forked else (1,):
        run = start(tmp_path, forked)
        run.join()
        assert run.exitcode == 1
        text = (tmp_path / LOG).read_text()
        assert (
            text.startswith(f"error: {tmp_path / 'config.json'} cannot be read")
            and text.count("error: ") == count
        )


@pytest.mark.slow
def test_a_run_that_is_stopped_ends_by_the_signal(tmp_path):
    os.mkfifo(tmp_path / "config.json")  # who reads it waits
    run = start(tmp_path, forked=True)
    assert run.is_alive()
    run.terminate()
    run.join()
    assert run.exitcode == -signal.SIGTERM
    run.terminate()  # nobody is there any more


PARENT = """
import json, os, sys, time
from multiprocessing import forkserver
from pathlib import Path
from spnb.train.server import start

run = start(Path(sys.argv[1]), forked=True)
print(json.dumps([forkserver._forkserver._forkserver_pid, run.pid]), flush=True)
time.sleep(600)
"""


@contextmanager
def parent_of(folder):
    """A process that has started a run which waits; its server and the run."""
    os.mkfifo(folder / "config.json")
    (folder / "parent.py").write_text(PARENT)
    command = [sys.executable, str(folder / "parent.py"), str(folder)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield parent, *json.loads(parent.stdout.readline())
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["parent", "server"])
def test_the_server_has_no_threads_and_who_is_killed_leaves_nobody(tmp_path, killed):
    """`PARENT` would start processes without end if a child executed it again."""
    with parent_of(tmp_path) as (parent, server, run):
        assert start_of(server) and start_of(run)
        names = [path.read_text().strip() for path in Path(f"/proc/{server}/task").glob("*/comm")]
        assert len([name for name in names if name != "jemalloc_bg_thd"]) == 1  # pyarrow's memory
        time.sleep(0.5)  # the run has begun
        os.kill(parent.pid if killed == "parent" else server, signal.SIGKILL)
        assert gone(run) and gone(server)


@pytest.mark.slow
def test_the_log_of_a_failed_run_ends_the_error(tmp_path):
    plan = plan_of(tmp_path)
    run = plan.open("ladder-even", 0)
    (run.folder / "checkpoints").write_text("in the way")
    with pytest.raises(RunError, match="rlvr/smoke/ladder-even/seed-0 failed; its log ends"):
        run_all(plan)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "first"), [("unsloth", "unsloth 1"), ("transformers", None)])
def test_unsloth_is_imported_before_what_it_rewrites(tmp_path, monkeypatch, backend, first):
    """Once it knows whether its vLLM sleeps; not where it is not the run's backend."""
    monkeypatch.setattr(server, "_run", noted_run)
    plan = make_plan(
        "spiral", "gpu", seeds=[0], runs=str(tmp_path), backend=backend, vllm_sleep=True
    )
    run = plan.open("full")
    (run.folder / "unsloth.py").write_text(UNSLOTH)
    process = start(run.folder, forked=False)
    process.join()
    *said, noted = (run.folder / LOG).read_text().splitlines()
    assert said == ([first] if first else []) and noted.startswith("noted")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cards", "seen"),
    [(["2", "GPU-7"], ["2", "GPU-7"]), ([], ["all"])],
    ids=["two GPUs", "none found"],
)
def test_each_run_has_a_gpu_of_its_own(tmp_path, monkeypatch, cards, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(plans, "FORKED", frozenset())
    monkeypatch.setattr(plans, "visible_cards", lambda: cards)
    monkeypatch.setattr(plans, "_checked", lambda plan, *_: None)
    monkeypatch.setattr(server, "_run", noted_run)
    count = 3 if cards else 1
    plan = plan_of(tmp_path, seeds=list(range(count)), jobs=3)
    run_all(plan)
    logs = [(run.folder / LOG).read_text().split(" ") for run in plan.all()]
    assert sorted({log[1] for log in logs}) == seen
    for card in cards:
        times = sorted((float(log[2]), float(log[3])) for log in logs if log[1] == card)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(times))
