"""Runs that are killed, half of the time at random and half at events, and started again."""

import itertools
import json
import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from processes import left_by, start

from spnb.train.plan import make_plan
from tools.campaign import Part, Trial, together
from tools.campaign.runs import WORK, Whole, begin, ended, gone, judge
from tools.campaign.work import PAPER, VARIANT

EVENTS = ("seal-1", "row-2", "mark-0", "move-1", "finish")
"""A partial checkpoint, a row (of the second stage, where there are two), between two stages, while
weights are collected, before the end is noted."""
KINDS = dict.fromkeys(("spiral/full", "spell/full", "spell/longpo", "spice/full"), EVENTS)
KINDS |= dict.fromkeys(("spice/absolute-zero", "ssp/full"), EVENTS)
KINDS |= dict.fromkeys(("rlvr/think", "proposer/learning", "proposer/learning-two"), EVENTS)
KINDS |= {"spice/r-zero": (*EVENTS, "mark-1", "move-2", "seal-2")}
KINDS |= {"scope/full": (*EVENTS, "row-3", "row-4", "mark-2", "move-2", "seal-3")}
"""Kinds of runs, and the events at which each is killed."""
KILLED = (9, -9)
"""Exit codes of what killed itself at an event, and of what was killed."""
AGAIN = 0.3
"""The share of killed runs that are killed again."""


def kills(part: Part) -> None:
    """Kills runs of each kind, papermill, and the building of a corpus."""
    count = part.of(200)
    others = max(1, count // 20)
    trials = [partial(killed_corpus, part, place) for place in range(others)]
    if part.short:
        part.leave_out("kills of a notebook: not in the short version")
    else:
        trials += [partial(killed_notebook, part, place) for place in range(others)]
    kinds = ["rlvr/think"] if part.short else [*KINDS]
    wholes = {kind: Whole(kind, part.folder) for kind in kinds}
    orders = {kind: part.random.sample(KINDS[kind], len(KINDS[kind])) for kind in kinds}
    events = {kind: itertools.cycle(order) for kind, order in orders.items()}
    for place in range(max(1, count - len(trials))):
        turn, which = divmod(place, len(kinds))
        event = "" if turn % 2 else next(events[kinds[which]])
        trials.append(partial(killed_run, part, wholes[kinds[which]], place, event))
    part.random.shuffle(trials)
    together(part, trials)


def killed_run(part: Part, whole: Whole, place: int, event: str) -> Trial:
    """A run that is killed, perhaps twice, and started until it ends."""
    rng = random.Random(f"{part.seed} {place}")
    run = whole.again(part.folder / f"run-{place}")
    told = []
    while not told or rng.random() < AGAIN:
        if event and not told:
            code, about = (yield from ended(run, event)), event
        else:
            after = rng.uniform(0.1, 1.5 + whole.run.facts()["seconds"])
            code, about = (yield from gone(begin(run), after)), f"{after:.2f} s"
        if code not in KILLED:
            break
        told.append(about)
    if code in (0, *KILLED):  # any other start failed
        code = yield from ended(run)
    if not told and not code:
        return part.leave_out(f"{about} of {whole.kind}: it had ended before")
    part.about["at events" if event else "at random"] += len(told)
    about = f"seed {part.seed}, place {place}, killed at {', '.join(told) or 'nothing'}"
    judge(part, whole, run, code, about, max(1, len(told)))


def killed_notebook(part: Part, place: int) -> Trial:
    """A paper's notebook under papermill."""

    def read(folder: Path) -> object:
        where = {"variants": [VARIANT], "seeds": [0], "runs": str(folder / "runs")}
        exhibits = sorted(path.name for path in (folder / "figures").rglob("*.*"))
        return left_by(make_plan(PAPER, "smoke", **where).open(VARIANT)), exhibits

    yield from _given_again(part, place, "notebook", read)


def killed_corpus(part: Part, place: int) -> Trial:
    """A corpus of one's own that is built."""
    from spnb.corpus.store import load_corpus

    def read(folder: Path) -> object:
        report = json.loads((folder / "corpus" / "corpus.json").read_text())
        return load_corpus(folder / "corpus").to_list(), report | {"source": ""}

    yield from _given_again(part, place, "corpus", read)


def _given_again(part: Part, place: int, name: str, read: Callable[[Path], object]) -> Trial:
    """A command that is killed at a random time and given again, beside one that was not."""
    names = ("whole", place, f"{place}.txt", "seconds.json")
    whole, folder, log, took = (part.folder / f"{name}-{each}" for each in names)
    if not whole.exists():
        whole.mkdir()
        begun = time.monotonic()
        yield from gone(start(log, WORK, name, whole))
        took.write_text(json.dumps(time.monotonic() - begun))
    while not took.is_file():  # another trial makes it
        yield
    rng = random.Random(f"{part.seed} {name} {place}")
    after = rng.uniform(0.3, 0.3 + json.loads(took.read_text()))
    folder.mkdir()
    first = code = yield from gone(start(log, WORK, name, folder), after)
    if first in (0, *KILLED):  # any other start failed
        code = yield from gone(start(log, WORK, name, folder))
    same = not code and read(folder) == read(whole)
    part.about[name] += 1
    end = "survived" if same else "traceback" if code else "wrong"
    about = f"{name}, {'killed' if first in KILLED else 'ended'} after {after:.2f} s"
    part.end(end, f"{about}: {log.read_text(errors='replace')[-300:]}")
    shutil.rmtree(folder) if same else None
