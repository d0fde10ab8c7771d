"""Runs forked from a process that has imported what a run needs: the imports are paid once.

`RunServer.start` is to `spnb.train.plan.run_all` what `subprocess.Popen` is, at the scales that
need no GPU. The process behind it, `python -m spnb.train.server`, imports torch, transformers, TRL
and the paper's games, runs no tensor operation, and forks a child for each folder that it reads
from its standard input. A child is what `python -m spnb.train.run FOLDER` is. Where the input ends,
because its parent has ended or was killed, the server stops its children and ends.
"""

import ctypes
import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from spnb.core.paths import ROOT

LOG = "log.txt"
"""What a run prints, in its folder."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Of runs, which stand side by side."""
FORK_SAFE = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""torch looks for a GPU without starting CUDA, which no fork survives."""
STOPS = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets where its parent ends."""


class ForkedRun:
    """A run that the server forked; to those who wait for it, what a `Popen` is.

    `seconds` are those of a processor that it took, once it has ended.
    """

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode: int | None = None
        self.seconds = 0.0
        self.ended = threading.Event()

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return self.returncode

    def terminate(self) -> None:
        """Asks it to end."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int | None:
        """Waits until it has ended."""
        self.ended.wait()
        return self.returncode


class RunServer:
    """Starts runs; to be closed by `with`, which waits for the runs that are still there."""

    def __init__(self) -> None:
        self.runs: dict[int, ForkedRun] = {}
        self.newest: ForkedRun | None = None
        self.answered = threading.Semaphore(0)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spnb.train.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ENVIRONMENT | FORK_SAFE,
            cwd=ROOT,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def __enter__(self) -> "RunServer":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.reader.join()

    def start(self, folder: Path) -> ForkedRun:
        """Starts the run of a folder, its output at the end of the folder's log.

        Raises:
            RuntimeError: the server has ended.
        """
        try:
            self.process.stdin.write(json.dumps(str(folder)).encode() + b"\n")
            self.process.stdin.flush()
            self.answered.acquire()
        except OSError:
            self.newest = None
        if self.newest is None:
            raise RuntimeError(
                f"the process that starts runs ended with exit code {self.process.wait()}; what is "
                "computed stays, start again"
            )
        return self.newest

    def _read(self) -> None:
        """Takes the server's messages: a new run, or how one ended. Its end is that of its runs."""
        for line in self.process.stdout:
            message = json.loads(line)
            if "returncode" in message:
                self._end(**message)
            else:
                self.newest = self.runs[message["pid"]] = ForkedRun(message["pid"])
                self.answered.release()
        for pid in list(self.runs):
            self._end(pid, -signal.SIGTERM, 0.0)
        self.newest = None
        self.answered.release()

    def _end(self, pid: int, returncode: int, seconds: float) -> None:
        run = self.runs.pop(pid)
        run.returncode = returncode
        run.seconds = seconds
        run.ended.set()


def serve() -> Path | None:
    """Forks a child for each folder on the standard input; returns its folder in a child, None in
    the server, at the end of the input."""
    children: set[int] = set()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is for the runs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_stop(children)))
    ready = selectors.DefaultSelector()
    ready.register(0, selectors.EVENT_READ)
    ready.register(woken, selectors.EVENT_READ)
    rest = b""
    while True:
        files = {key.fd for key, _ in ready.select()}
        if woken in files:
            os.read(woken, 4096)
            _reap(children)
        if 0 not in files:
            continue
        data = os.read(0, 65536)
        if not data:
            _stop(children)
            return None
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            folder = Path(json.loads(line))
            _import_for(folder)
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # none is lost, none is for the other
            pid = os.fork()
            if not pid:
                _become_a_run(folder)
                return folder
            children.add(pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            _report(pid=pid)


def _import_for(folder: Path) -> None:
    """Imports what the run's parameters name; a fault in them is for the run to say."""
    from spnb.train.run import run_params
    from spnb.train.runs import read_run

    with suppress(RuntimeError, ValueError, OSError):
        run_params(read_run(folder))


def _become_a_run(folder: Path) -> None:
    """Gives a child its log, and the signals of a process that nobody forked."""
    server = os.getppid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != server:  # it ended before it could tell
        sys.exit(1)
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for file, number in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(file, number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def _reap(children: set[int]) -> None:
    """Reports the children that have ended."""
    for pid in list(children):
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            children.remove(pid)
            code = os.waitstatus_to_exitcode(status)
            _report(pid=pid, returncode=code, seconds=used.ru_utime + used.ru_stime)


def _report(**message: float) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _stop(children: set[int]) -> None:
    """Ends the children and waits until they are gone."""
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401
    import trl.trainer.grpo_trainer  # noqa: F401

    from spnb.train.run import main

    gc.freeze()  # no child looks at what it shares with the server
    started = serve()
    if started:
        main(started)
