"""Runs in processes of their own, at smoke and cpu scale without importing torch again for each.

There, `multiprocessing`'s fork server imports what a run needs (`spnb.train.preload`) when the
first run starts, runs no tensor operation, and forks all runs that this process ever starts.
Elsewhere each run is spawned. Either way it is what `python -m spnb.train.run FOLDER` is.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

LOG = "log.txt"
"""What a run prints, in its folder."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Of runs, which stand side by side."""
PRELOAD = "spnb.train.preload"
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets where its parent ends."""


def start(folder: Path, forked: bool, card: str | None = None) -> BaseProcess:
    """Starts the run of a folder, its output at the end of the folder's log.

    Args:
        card: the one GPU that it sees, as CUDA_VISIBLE_DEVICES names it; "": none; None: all that
            this process sees.
    """
    method = "forkserver" if forked and sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload([PRELOAD])
    process = context.Process(target=_run, args=(folder, method, card))
    with _without_main():
        process.start()
    return process


@contextmanager
def _without_main() -> Iterator[None]:
    """Keeps a child from executing the caller's script again, which need not be guarded for it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run(folder: Path, method: str, card: str | None) -> None:
    if method == "forkserver":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # it ends with the server
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= ENVIRONMENT
    if card is not None:
        os.environ |= {"CUDA_VISIBLE_DEVICES": card, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for file in (1, 2):
        os.dup2(log, file)
    from spnb.train.run import main

    main(folder)


def _end_with_parent() -> None:
    """Waits for the end of the process that asked for the run, which may be killed."""
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)
