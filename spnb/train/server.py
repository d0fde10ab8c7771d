"""Runs in processes of their own, at smoke and cpu scale without importing torch again for each.

There, `multiprocessing`'s fork server imports what a run needs (`spnb.train.preload`) when the
first run starts, runs no tensor operation, and forks all runs that this process ever starts.
Elsewhere each run is spawned, and imports Unsloth first where that is its backend (a forked one
sees no GPU, which Unsloth needs). Either way it is what `python -m spnb.train.run FOLDER` is.
"""

import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

from spnb.core.params import shared_file

LOG = "log.txt"
"""What a run prints, in its folder; of processes that train together, what the first prints."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Of runs, which stand side by side."""
PRELOAD = "spnb.train.preload"
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets where its parent ends."""


def start_together(folder: Path, forked: bool, card: str | None, count: int) -> list[BaseProcess]:
    """Starts the processes that train the run of a folder together; see `start`."""
    return [start(folder, forked, card, place) for place in together(count, gpus=bool(card))]


def together(count: int, gpus: bool) -> list[dict[str, str]]:
    """The environment of each process, as `accelerate launch` makes it: with gloo on a CPU, with
    DeepSpeed's ZeRO-2 on GPUs; {} of one alone."""
    if count == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    shared |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    if gpus:
        config = str(shared_file("zero2.json"))
        shared |= {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": config}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def have_ended(group: Sequence[BaseProcess]) -> bool:
    """Whether all processes of a run have; where one has failed, the others are stopped, which
    would wait for it."""
    if any(process.exitcode for process in group):
        for process in group:
            process.terminate()
    return not any(process.is_alive() for process in group)


def stop(processes: Sequence[BaseProcess]) -> None:
    """Ends processes, and waits until they are gone."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def log_of(folder: Path, rank: int) -> Path:
    """Where a process of a run prints."""
    return folder / (f"log-{rank}.txt" if rank else LOG)


def last_lines(folder: Path, count: int) -> list[str]:
    """The end of the log that says what stopped a run of so many processes, else of the first."""
    files = [log_of(folder, rank) for rank in range(count)]
    texts = [file.read_text(errors="replace") for file in files if file.is_file()] or [""]
    logs = [text.splitlines()[-15:] for text in texts]
    return next((log for log in logs if log and log[-1].startswith("error: ")), logs[0])


def start(
    folder: Path, forked: bool, card: str | None = None, place: Mapping[str, str] | None = None
) -> BaseProcess:
    """Starts the run of a folder, its output at the end of the folder's log.

    Args:
        card: the GPUs that it sees, as CUDA_VISIBLE_DEVICES names them; "": none; None: all that
            this process sees.
        place: what `together` says of it; None: it trains alone.
    """
    method = "forkserver" if forked and sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload([PRELOAD])
    process = context.Process(target=_run, args=(folder, method, card, dict(place or {})))
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


def _run(folder: Path, method: str, card: str | None, place: dict[str, str]) -> None:
    if method == "forkserver":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # it ends with the server
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= ENVIRONMENT | place
    if card is not None:
        if not os.environ.get("CUDA_VISIBLE_DEVICES"):  # else its numbers are of the order in use
            os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = card
    file = log_of(folder, int(place.get("RANK", 0)))
    begun = os.O_APPEND if file.name == LOG else os.O_APPEND | os.O_TRUNC
    log = os.open(file, os.O_WRONLY | os.O_CREAT | begun, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    if method == "spawn":
        _import_first(folder)
    from spnb.train.run import main

    main(folder)


def _import_first(folder: Path) -> None:
    """Unsloth, where it is the run's backend, before `spnb.train.run` imports what it rewrites."""
    from spnb.train.policies import import_unsloth
    from spnb.train.runs import read_run

    with suppress(Exception):  # it is told where the run is read, or its policy loaded
        params = read_run(folder).params
        if params["backend"] == "unsloth":
            import_unsloth(params["vllm_sleep"], folder)


def _end_with_parent() -> None:
    """Waits for the end of the process that asked for the run, which may be killed."""
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)
