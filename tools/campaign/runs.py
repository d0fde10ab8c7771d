"""Runs at smoke scale that are disturbed, each beside one of its kind that nothing disturbed."""

import os
import shutil
import signal
import time
from collections.abc import Generator
from functools import cached_property
from pathlib import Path

from processes import RUN, left_by, start

from spnb.core.errors import OneLine
from spnb.train.plan import Plan, make_plan
from spnb.train.runs import Run, open_run
from tools.campaign import Part

WORK = "tools.campaign.work"
"""Trains a run that kills itself at an event, among others."""
UNDISTURBED = 600
"""Seconds in which a smoke run has to end."""


class Whole:
    """Runs of one kind ("paper/variant") that nothing disturbed; they are made when first asked."""

    def __init__(self, kind: str, folder: Path):
        self.kind = kind
        self.folder = folder / "whole" / kind.replace("/", "-")
        self.paper, self.variant = kind.split("/")

    @cached_property
    def plan(self) -> Plan:
        """The kind's plan: one seed at smoke scale, with the runs that it starts from."""
        names = {"variants": [self.variant], "seeds": [0]}
        return make_plan(self.paper, "smoke", runs=str(self.folder), **names)

    @cached_property
    def run(self) -> Run:
        """The undisturbed run."""
        for key in self.plan.runs:
            run = self.plan.open(*key)
            _train(run, 0)
        return run

    @cached_property
    def half(self) -> Run:
        """One that died in its second step."""
        run = self.again(self.folder / "half")
        _train(run, 9, "row-2")
        return run

    @cached_property
    def state(self) -> dict:
        """What the undisturbed run left."""
        return left_by(self.run)

    def again(self, root: Path) -> Run:
        """A new run of this kind, not begun; those that it starts from are there."""
        for variant, seed in self.plan.needs((self.variant, 0)):
            done = self.plan.open(variant, seed).folder if self.run else None
            shutil.copytree(done, root / done.relative_to(self.folder))
        return open_run(root, self.plan.identity(self.variant, 0))

    def copy(self, root: Path, of: Run) -> Run:
        """A copy of a run of this kind."""
        run = self.again(root)
        shutil.copytree(of.folder, run.folder, dirs_exist_ok=True)
        return run


def begin(run: Run, event: str = ""):
    """Starts a run, to its end or to an event."""
    script = (WORK, "run", run.folder, event) if event else (RUN, run.folder)
    return start(run.folder / "log.txt", *script)


def _train(run: Run, code: int, event: str = "") -> None:
    process = begin(run, event)
    process.join(UNDISTURBED)
    if process.exitcode != code:
        raise RuntimeError(f"{run.run_id} ended with {process.exitcode}:\n{said(run)}")


def said(run: Run) -> str:
    """The end of what a run printed."""
    return (run.folder / "log.txt").read_text(errors="replace")[-1500:]


def ended(run: Run, event: str = "") -> Generator[None, None, int]:
    """Starts a run and waits for its end; its exit code."""
    return (yield from gone(begin(run, event)))


def gone(process, after: float = float("inf")) -> Generator[None, None, int]:
    """Waits for a process's end, and kills it after some seconds; its exit code."""
    ends = time.monotonic() + after
    while process.is_alive() and time.monotonic() < ends:
        yield
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode


def judge(part: Part, whole: Whole, run: Run, code: int, about: str, count: int = 1) -> None:
    """Counts what became of a disturbed run's last start, and removes it where it survived.

    Survived: it ended like the undisturbed one, or refused in one sentence, which may be so only
    where its folder was damaged (`about` begins with "damage").
    """
    words = said(run)
    if "Traceback" in words or code < 0:
        end = "traceback"
    elif code:
        end = "survived" if about.startswith("damage") and "error: " in words else "lost"
    else:
        try:
            end = "survived" if left_by(run) == whole.state else "wrong"
        except (OneLine, OSError, ValueError) as error:
            end, words = "wrong", f"finished, and cannot be read: {error}"
    last = words.strip().splitlines()[-1:]
    part.end(end, f"{about} of {whole.kind}: {' '.join(last)} [{run.folder}]", count)
    if end == "survived":
        shutil.rmtree(run.root, ignore_errors=True)
