"""The reliability campaign: what is tried to break, part by part, and what came of it.

    python -m tools.campaign --minutes 60

A part tries many things, one after the other or two at a time, and counts what became of each:
survived (the identical result, or one clear sentence), wrong (another result, in silence), lost
(results that no start brings back), traceback.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / name) for name in ("", "train")]
"""What the tests already have is used here, too."""
ENDS = ("survived", "wrong", "lost", "traceback")
SHOWN = 20
"""Sentences of each kind that are written down; all are counted."""
Trial = Generator[None, None, None]
"""Something that is tried, in pieces: it yields wherever it has to wait."""


@dataclass
class Part:
    """A part of the campaign: how much of it there is to be, and what was found.

    `scale` is the share of the full campaign, `ends` the time (`time.monotonic`) at which nothing
    new is begun, `about` counts tries by their kind.
    """

    name: str
    folder: Path
    scale: float = 1.0
    ends: float = float("inf")
    seed: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDS, 0))
    found: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    about: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.name} {self.seed}")

    def of(self, full: int) -> int:
        """How many of what the full campaign tries so often; at least one."""
        return max(1, round(full * self.scale))

    def some(self, every: Sequence[Any]) -> list[Any]:
        """This part's share of all there is to be tried, drawn; all of it at most."""
        return self.random.sample(every, min(len(every), self.of(len(every))))

    @property
    def short(self) -> bool:
        """Whether it is to be over in seconds: one kind of run, no notebook."""
        return self.scale < 0.02

    @property
    def late(self) -> bool:
        """Whether the part's time is over."""
        return time.monotonic() > self.ends

    @property
    def tried(self) -> int:
        """All that came to an end."""
        return sum(self.counts.values())

    @property
    def bad(self) -> int:
        """All that did not survive."""
        return self.tried - self.counts["survived"]

    def end(self, end: str, sentence: str = "", count: int = 1) -> None:
        """Counts what became of something; the sentence says of what, and how to try it again."""
        self.counts[end] += count
        if end != "survived" and sum(one.startswith(end) for one in self.found) < SHOWN:
            self.found.append(f"{end}: {sentence}")

    def leave_out(self, what: str) -> None:
        """Says what was not tried, and why."""
        self.left_out.append(what)

    def result(self) -> dict[str, Any]:
        """Everything that is written down."""
        names = ("name", "seed", "seconds", "about", "found", "left_out")
        return {"tried": self.tried} | self.counts | {name: getattr(self, name) for name in names}


def together(part: Part, trials: Iterable[Callable[[], Trial]], workers: int = 2) -> None:
    """Tries all, so many at a time, until the part's time is over: at least one, and what has begun
    is ended."""
    waiting = list(trials)
    active = [waiting.pop(0)()] if waiting else []
    while active or (waiting and not part.late):
        while waiting and len(active) < workers and not part.late:
            active.append(waiting.pop(0)())
        active = [trial for trial in active if next(trial, active) is None]
        time.sleep(0.002)
    if waiting:
        part.leave_out(f"{len(waiting)} trials: no time was left")
