"""Scripts run in processes of their own that need not import torch, transformers and TRL again.

They are forked from the server that forks the runs of a plan (`spnb.train.server`).
"""

import hashlib
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path

from spnb.train.metrics import TIMINGS
from spnb.train.server import PRELOAD, together

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([PRELOAD])
RUN = "spnb.train.run"
"""Trains the run of a folder."""
KEPT = str(Path(__file__).with_name("kept_run.py"))
"""The same, and its checkpoints stay."""


def server_address():
    """Where the tests' server listens, which is started if it is not there."""
    multiprocessing.forkserver.ensure_running()
    return multiprocessing.forkserver._forkserver._forkserver_address


def share_server(address):
    """In a process of its own: what it forks comes from the tests' server, not from a new one."""
    server = multiprocessing.forkserver._forkserver
    server._forkserver_address, server.ensure_running = address, lambda: None


def start(log, script, *arguments, **environment):
    """Starts a script, or a module by its name; its output is in the file `log`."""
    text = tuple(map(str, arguments))
    process = CONTEXT.Process(target=_execute, args=(str(log), str(script), text, environment))
    process.start()
    return process


def finish(log, script, *arguments):
    """Runs a script to its end, as `subprocess.run` does; what it printed is its `stderr`."""
    process = start(log, script, *arguments)
    process.join()
    return subprocess.CompletedProcess(script, process.exitcode, stderr=Path(log).read_text())


def finish_together(log, script, *arguments, count=2):
    """Runs a script in processes that train together, as `spnb run --processes` starts them."""
    logs = [f"{log}.{rank}" for rank in range(count)]
    places = zip(logs, together(count, gpus=False), strict=True)
    group = [start(file, script, *arguments, **place) for file, place in places]
    while any(process.is_alive() for process in group):
        wait([process.sentinel for process in group if process.is_alive()])
        if any(process.exitcode for process in group):  # the others would wait for it
            for process in group:
                process.terminate()
    code = next((process.exitcode for process in group if process.exitcode), 0)
    return subprocess.CompletedProcess(script, code, stderr="".join(map(_text, logs)))


def left_by(run):
    """Everything that a run leaves, without times."""
    names = ("metrics", "evals", "items", "rollouts")
    rows = {name: run.rows(name) for name in names if (run.folder / f"{name}.jsonl").is_file()}
    if (run.folder / "pairs.jsonl").is_file():
        rows["pairs"] = (run.folder / "pairs.jsonl").read_text()
    for row in rows["metrics"]:
        for key in [key for key in row if key in TIMINGS or "seconds/" in key]:
            del row[key]
    weights = [path for part in ("model", "kept") for path in run.folder.glob(f"{part}/**/*.saf*")]
    digests = {
        path.relative_to(run.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in weights
    }
    return rows | {"weights": digests, "counts": run.facts()["rows"]}


def _text(log):
    return Path(log).read_text()


def _execute(log, script, arguments, environment):
    os.environ |= environment
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    run_script(script, arguments)


def run_script(script, arguments):
    """A file or a module as the main program of this process."""
    sys.argv = [script, *arguments]
    if script.endswith(".py"):
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
    else:
        sys.modules.pop(script, None)
        runpy.run_module(script, run_name="__main__", alter_sys=True)
