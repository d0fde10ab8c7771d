"""Runs that are killed, half of the time at random and half at events, and started again."""

import itertools
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

from comparing import state
from processes import RUN, start

from tools.campaign import Part, Trial, together
from tools.campaign.runs import DYING, Whole, ended, judge

KINDS = (
    "spiral/full",
    "spell/full",
    "spice/full",
    "spice/r-zero",
    "spice/absolute-zero",
    "ssp/full",
    "scope/full",
    "rlvr/think",
    "proposer/learning",
    "proposer/learning-two",
    "spell/longpo",
)
EVENTS = ("seal-1", "row-2", "mark-0", "move-1", "finish")
"""A partial checkpoint, a row (of the second stage, where there are two), between two stages, while
weights are collected, before the end is noted."""
LATER = {
    "scope/full": ("row-3", "row-4", "mark-2", "move-2", "seal-3"),
    "spice/r-zero": ("row-2", "mark-1", "move-2", "seal-2"),
}
"""More events of runs with several stages."""
NOTEBOOK, CORPUS = "tools.campaign.notebook", "tools.campaign.corpus"
AGAIN = 0.3
"""The share of killed runs that are killed again."""


def kills(part: Part, kinds: tuple[str, ...] = KINDS, notebooks: bool = True) -> None:
    """Kills runs of each kind, papermill, and the building of a corpus."""
    wholes = {kind: Whole(kind, part.folder) for kind in kinds}
    count = part.of(200)
    others = max(1, count // 20)
    extra = [partial(killed_corpus, part, place) for place in range(others)]
    if notebooks:
        extra += [partial(killed_notebook, part, place) for place in range(others)]
    else:
        part.leave_out("kills of a notebook: not in the short version")
    moments = itertools.islice(_moments(part, kinds), count - len(extra))
    runs = [
        partial(killed_run, part, wholes[kind], place, event)
        for place, (kind, event) in enumerate(moments)
    ]
    part.random.shuffle(trials := [*runs, *extra])
    together(part, trials)


def _moments(part: Part, kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Kinds in turn, each at random ("") and at one of its events in turn."""
    events = {
        kind: itertools.cycle(part.random.sample(every, len(every)))
        for kind in kinds
        for every in [EVENTS + LATER.get(kind, ())]
    }
    for place in itertools.count():
        for kind in part.random.sample(kinds, len(kinds)):
            yield kind, "" if place % 2 else next(events[kind])


def killed_run(part: Part, whole: Whole, place: int, event: str) -> Trial:
    """A run that is killed, perhaps twice, and started until it ends."""
    rng = random.Random(f"{part.seed} {place}")
    limit = 1.5 + whole.seconds
    run = whole.again(part.folder / f"run-{place}")
    told = []
    while not told or rng.random() < AGAIN:
        if event and not told:
            code = yield from ended(run, DYING, event)
            if code != 9:
                break
            told.append(event)
        else:
            after = rng.uniform(0.1, limit)
            if not (yield from _killed(start(run.folder / "log.txt", RUN, run.folder), after)):
                break
            told.append(f"{after:.2f} s")
    code = yield from ended(run)
    about = f"killed ({', '.join(told) or 'not reached: ' + (event or 'it had ended')})"
    part.tally("events" if event and told else "random times", max(1, len(told)))
    judge(part, whole, run, code, f"{about}, seed {part.seed}, place {place},", max(1, len(told)))


def _killed(process, after: float) -> Generator[None, None, bool]:
    """Kills a process after some seconds; False where it ended before."""
    ends = time.monotonic() + after
    while process.is_alive() and time.monotonic() < ends:
        yield
    if not process.is_alive():
        return False
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return True


def _whole_or_killed(
    part: Part, place: int, module: str, read: Callable[[Path], object], name: str
) -> Trial:
    """A command that is killed at a random time and given again, beside one that was not."""
    whole, folder = part.folder / f"whole-{name}", part.folder / f"{name}-{place}"
    log = part.folder / f"{name}-{place}.txt"
    took = part.folder / f"whole-{name}.json"
    while not took.is_file():
        if whole.exists():  # another trial makes it
            yield
            continue
        whole.mkdir()
        begun = time.monotonic()
        process = start(log, module, whole)
        while process.is_alive():
            yield
        if process.exitcode:
            raise RuntimeError(f"{module} does not run undisturbed:\n{log.read_text()[-1500:]}")
        took.write_text(json.dumps(time.monotonic() - begun))
    seconds = json.loads(took.read_text())
    rng = random.Random(f"{part.seed} {name} {place}")
    folder.mkdir()
    after = rng.uniform(0.3, max(0.5, seconds))
    killed = yield from _killed(start(log, module, folder), after)
    process = start(log, module, folder)
    while process.is_alive():
        yield
    said = log.read_text(errors="replace")
    if process.exitcode:
        end = "traceback" if "Traceback" in said else "lost"
    else:
        end = "survived" if read(folder) == read(whole) else "wrong"
    part.tally(name)
    part.end(end, f"{name}, {'killed' if killed else 'ended'} after {after:.2f} s: {said[-300:]}")
    if end == "survived":
        shutil.rmtree(folder)


def killed_notebook(part: Part, place: int) -> Trial:
    """A paper's notebook under papermill."""
    from spnb.train.plan import make_plan
    from tools.campaign.notebook import PAPER, VARIANT

    def read(folder: Path) -> object:
        plan = make_plan(PAPER, "smoke", variants=[VARIANT], seeds=[0], runs=str(folder / "runs"))
        exhibits = sorted(path.name for path in (folder / "figures").rglob("*.*"))
        return state(plan.open(VARIANT, 0)), exhibits

    yield from _whole_or_killed(part, place, NOTEBOOK, read, "notebook")


def killed_corpus(part: Part, place: int) -> Trial:
    """A corpus of one's own that is built."""
    from spnb.corpus.store import load_corpus

    def read(folder: Path) -> object:
        return load_corpus(folder / "corpus").to_list(), (folder / "corpus/corpus.json").read_text()

    yield from _whole_or_killed(part, place, CORPUS, read, "corpus")
