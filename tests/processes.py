"""Scripts run in processes of their own that need not import torch, transformers and TRL again.

They are forked from the server that forks the runs of a plan (`spnb.train.server`).
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path

from spnb.train.server import PRELOAD

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([PRELOAD])
RUN = "spnb.train.run"
"""Trains the run of a folder."""


def start(log, script, *arguments):
    """Starts a script, or a module by its name; its output is in the file `log`."""
    text = tuple(map(str, arguments))
    process = CONTEXT.Process(target=_execute, args=(str(log), str(script), text))
    process.start()
    return process


def finish(log, script, *arguments):
    """Runs a script to its end, as `subprocess.run` does; what it printed is its `stderr`."""
    process = start(log, script, *arguments)
    process.join()
    return subprocess.CompletedProcess(script, process.exitcode, stderr=Path(log).read_text())


def _execute(log, script, arguments):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = [script, *arguments]
    if script.endswith(".py"):
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
    else:
        sys.modules.pop(script, None)
        runpy.run_module(script, run_name="__main__", alter_sys=True)
