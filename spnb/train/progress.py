"""One bar over the steps of many runs, and what each run in progress is doing."""

import io
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tqdm import tqdm

from spnb.train.runs import MANIFEST, Run, RunError, read_json

FORMAT = "{percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} steps [{elapsed}<{remaining}] {desc}"


class CellBar(tqdm):
    """A bar that is one output of a notebook's cell, redrawn in place beside other outputs."""

    def __init__(self, **options: Any):
        super().__init__(**options | {"file": io.StringIO(), "mininterval": 1, "miniters": 0})

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        """What tqdm calls with each new state of the bar; `file` stays unused."""
        from IPython.display import display

        handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
        return lambda line: handle.update({"text/plain": line}, raw=True)


class Progress:
    """A bar over the steps of runs: in a notebook's cell one output, elsewhere lines of tqdm's."""

    def __init__(self, runs: Sequence[Run]):
        self.runs = list(runs)
        self.started: dict[str, float] = {}
        self.kept = {run.run_id: kept_steps(run) for run in runs}
        self.text = ""
        total = sum(run.params["steps"] for run in runs)
        look = {"total": total, "initial": sum(self.kept.values()), "bar_format": FORMAT}
        if in_cell():
            self.bar = CellBar(**look)
        else:
            width = {"dynamic_ncols": sys.stdout.isatty()}
            self.bar = tqdm(file=sys.stdout, mininterval=10, **look, **width)

    def show(self, active: Sequence[Run]) -> None:
        """Moves the bar to what the runs' files say; `active` are the runs that have a process."""
        doing: dict[str, list[str]] = {}
        for run in (run for run in active if not run.finished):
            since = self.started.setdefault(run.run_id, time.time())
            doing.setdefault(phase(run, since), []).append(f"{run.variant}/{run.seed}")
        parts = [f"{name} {', '.join(runs)}" for name, runs in doing.items()]
        finished = sum(run.finished for run in self.runs)
        text = "; ".join([f"{finished}/{len(self.runs)} runs", *parts])
        self.bar.update(sum(map(self.steps, self.runs)) - self.bar.n)
        if text != self.text:
            self.text = text
            self.bar.set_description_str(text)

    def steps(self, run: Run) -> int:
        """Steps that need not be done again: until a run is loaded, those of its checkpoint."""
        since = self.started.get(run.run_id)
        if since is None or phase(run, since) == "loading":
            return self.kept[run.run_id]
        return steps_done(run)


def phase(run: Run, since: float) -> str:
    """What a run is doing, read from its files.

    Args:
        since: when its process was started, in seconds since 1970; older files say nothing.
    """
    files = [*run.checkpoints.glob("stage-*"), run.folder / "evals.jsonl"]
    files.append(run.folder / "metrics.jsonl")
    if not any(path.exists() and path.stat().st_mtime >= since for path in files):
        return "loading"
    done = steps_done(run)
    if done == 0:
        return "measuring the start of"
    return "training" if done < run.params["steps"] else "measuring the end of"


def steps_done(run: Run) -> int:
    """The steps that a run has recorded."""
    path = run.folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kept_steps(run: Run) -> int:
    """The steps up to a run's last checkpoint or stage, from which it goes on; 0 without one."""
    steps = [0]
    for path in run.folder.glob("stages/*/method.json"):
        with suppress(RunError):
            steps.append(read_json(path, {"rows": {"metrics": int}})["rows"]["metrics"])
    for path in run.checkpoints.glob(f"stage-*/checkpoint-*/{MANIFEST}"):
        with suppress(RunError):  # the run itself says what is wrong with it
            manifest = read_json(path, {"state": {"run": {"rows": {"metrics": int}}}})
            steps.append(manifest["state"]["run"]["rows"]["metrics"])
    return max(steps)


def in_cell() -> bool:
    """Whether a person's notebook shows the output; papermill reads it line by line instead."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    request = kernel.get_parent() if kernel is not None else {}
    return bool(request.get("content", {}).get("allow_stdin"))
