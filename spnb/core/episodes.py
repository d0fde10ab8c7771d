"""Episodes as generators, and what drives them.

An *episode* is a generator. It yields a list of `Request`s, is sent the list of `Completion`s in
the same order, and returns whatever it likes (samples, a transcript). `yield from` nests episodes;
`parallel` has several run side by side.

`run` asks an engine for everything that waits for it at once, so that it sees the biggest batch
there is. An engine may also take requests one after another: it has `proceed`, as `TurnEngine`
says. Then an episode goes on as soon as its own answers are there, and a fast one does not wait for
the slowest of its turn. Results are in the order of the arguments, never in that of time.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Protocol, TypeVar

from spnb.core.types import Completion, Engine, Request, Trajectory

T = TypeVar("T")
Item = TypeVar("Item")

OVERLONG = "overlong"
"""How a trajectory ended whose prompt was too long to be asked."""


@dataclass(frozen=True)
class SideBySide:
    """What `parallel` yields to `run`: episodes, of which it is sent the results in order."""

    episodes: tuple[Generator, ...]


Episode = Generator[list[Request] | SideBySide, Any, T]


class TurnEngine(Engine, Protocol):
    """An engine that goes on with what it has while more is asked of it."""

    def proceed(self, requests: Mapping[int, Request]) -> dict[int, Completion]:
        """Takes further requests by their numbers; the answers by number that are there next, at
        least one of all that are open."""
        ...

    def abort(self) -> None:
        """Gives up what is open."""
        ...


def parallel(*episodes: Episode[T]) -> Episode[list[T]]:
    """Runs episodes side by side as one; returns their results in order."""
    return (yield SideBySide(episodes))


def run(episode: Episode[T], engines: Mapping[str, Engine]) -> T:
    """Drives one episode (often `parallel(...)` of thousands) to its end and returns its result.

    Engines that answer a list as a whole are asked once no `TurnEngine` has anything left to do.

    Raises:
        ValueError: a request names a policy that is not in `engines`.
    """
    tree = _Tree(engines)
    try:
        tree.go_on(_Branch(episode), None)
        while busy := [desk for desk in tree.desks.values() if desk.asked]:
            answered: dict[tuple[int, ...], _Branch] = {}
            for desk in [desk for desk in busy if desk.by_turns] or busy:
                for branch, place, completion in desk.answers():
                    branch.results[place] = completion
                    branch.missing -= 1
                    if not branch.missing:
                        answered[branch.place] = branch
            for place in sorted(answered):
                tree.go_on(answered[place], answered[place].results)
    except BaseException:
        tree.abort()
        raise
    return tree.result


@dataclass
class _Branch:
    """An episode under way: `missing` of its `results`, answers or what its branches return, are
    not there yet. `place` is that of each branch above it in the one above that, and its own."""

    episode: Episode
    above: "_Branch | None" = None
    place: tuple[int, ...] = ()
    results: list[Any] = field(default_factory=list)
    missing: int = 0


class _Tree:
    """All episodes under way, and what they ask of which engine (by its id)."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.engines = engines
        self.desks: dict[int, _Desk] = {}
        self.result: Any = None

    def go_on(self, branch: _Branch | None, value: Any) -> None:
        """Sends an episode what it waits for, and those above it their results, up to requests."""
        while branch:
            try:
                asked = branch.episode.send(value)
            except StopIteration as stop:
                above, value = branch.above, stop.value
                if above is None:
                    self.result = value
                    return
                above.results[branch.place[-1]] = value
                above.missing -= 1
                if above.missing:
                    return
                branch, value = above, above.results
                continue
            parts = asked.episodes if isinstance(asked, SideBySide) else asked
            branch.results, branch.missing = [None] * len(parts), len(parts)
            if isinstance(asked, SideBySide):
                for index, episode in enumerate(parts):
                    self.go_on(_Branch(episode, branch, (*branch.place, index)), None)
            else:
                for index, request in enumerate(parts):
                    self.desk(request.policy).ask(branch, index, request)
            if parts:
                return
            value = []

    def desk(self, policy: str) -> "_Desk":
        """Where the engine of a policy is asked."""
        if policy not in self.engines:
            known = ", ".join(sorted(self.engines))
            raise ValueError(f"request for policy {policy!r}; available: {known}")
        engine = self.engines[policy]
        if id(engine) not in self.desks:
            self.desks[id(engine)] = _Desk(engine)
        return self.desks[id(engine)]

    def abort(self) -> None:
        """Has engines give up what nobody waits for any more."""
        for desk in self.desks.values():
            if desk.by_turns:
                desk.engine.abort()


class _Desk:
    """What is asked of one engine: each request has a number."""

    def __init__(self, engine: Any):
        self.engine = engine
        self.by_turns = hasattr(engine, "proceed")
        self.asked: dict[int, tuple[_Branch, int]] = {}
        self._new: dict[int, Request] = {}
        self._numbers = count()

    def ask(self, branch: _Branch, place: int, request: Request) -> None:
        """A request, whose answer belongs at a place of a branch's results."""
        number = next(self._numbers)
        self.asked[number] = branch, place
        self._new[number] = request

    def answers(self) -> list[tuple[_Branch, int, Completion]]:
        """The next answers with their branches and places there; of an engine that answers lists
        as a whole, all, asked in the order of the episodes."""
        new, self._new = self._new, {}
        if self.by_turns:
            done = self.engine.proceed(new)
        else:
            order = sorted(new, key=lambda number: self._order(*self.asked[number]))
            completions = self.engine.generate([new[number] for number in order])
            done = dict(zip(order, completions, strict=True))
        return [(*self.asked.pop(number), completion) for number, completion in done.items()]

    @staticmethod
    def _order(branch: _Branch, place: int) -> tuple[tuple[int, ...], int]:
        return branch.place, place


def answer_all(requests: Sequence[Request], engines: Mapping[str, Engine]) -> list[Completion]:
    """The completions of requests, in order, each from the engine of the policy that it names.

    Raises:
        ValueError: a request names a policy that is not in `engines`.
    """

    def ask() -> Episode[list[Completion]]:
        return (yield list(requests))

    return run(ask(), engines)


def single_turn(request: Request) -> Episode[Trajectory]:
    """One request and its answer as a trajectory."""
    (completion,) = yield [request]
    return Trajectory.of(request, completion)


def overlong(request: Request) -> Trajectory:
    """A prompt that no answer fits after: nothing is asked, no token of it can be trained."""
    prompt_ids = request.prompt_ids[:1]
    trajectory = Trajectory(prompt_ids, finish=OVERLONG, policy=request.policy)
    trajectory.append_observation(prompt_ids, "")
    return trajectory


def ask_group(
    tasks: Sequence[Item], k: int, answer: Callable[[int, Item, int], Episode[T]]
) -> Episode[list[list[T]]]:
    """`k` answers to every task, all side by side; one list of `k` results per task, in order.

    Args:
        answer: called as `answer(place, task, copy)` for each of the `k` copies of a task; returns
            the episode that answers it once.
    """
    copies = [(place, task, copy) for place, task in enumerate(tasks) for copy in range(k)]
    results = iter((yield from parallel(*(answer(*arguments) for arguments in copies))))
    return [list(islice(results, k)) for _ in tasks]
