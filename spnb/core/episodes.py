"""Episodes as generators, and what drives them.

An *episode* is a generator. It yields a list of `Request`s, is sent the list of `Completion`s in
the same order, and returns whatever it likes (samples, a transcript). `yield from` nests episodes;
`parallel` has several run side by side; a `Call` is made for all that wait for it.

`run` asks an engine for everything that waits for it at once, so that it sees the biggest batch
there is. An engine may also take requests one after another: its `proceed(requests by number)` goes
on by a token and returns the answers that are there now, by number; its `abort()` gives up what is
open. Then an episode goes on as soon as its own answers are there, and a fast one does not wait for
the slowest of its turn. Results are in the order of the arguments, never in that of time.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, TypeVar

from spnb.core.types import OVERLONG, Engine, Request, Trajectory

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True)
class SideBySide:
    """What `parallel` yields to `run`: episodes, of which it is sent the results in order."""

    episodes: tuple[Generator, ...]


@dataclass(frozen=True)
class Call:
    """What an episode yields to be sent the one result of `function` for `argument`, in a list; it
    is called with a list of arguments, once for all episodes that wait for it."""

    function: Callable[[list[Any]], Sequence[Any]]
    argument: Any


Episode = Generator[list[Request] | SideBySide | Call, Any, T]


def parallel(*episodes: Episode[T]) -> Episode[list[T]]:
    """Runs episodes side by side as one; returns their results in order."""
    return (yield SideBySide(episodes))


def run(episode: Episode[T], engines: Mapping[str, Engine]) -> T:
    """Drives one episode (often `parallel(...)` of thousands) to its end and returns its result.

    Engines that answer a list as a whole are asked once nothing else is left to do. Calls are made
    in threads beside an engine with `proceed` that has something to do, else in this one.

    Raises:
        ValueError: a request names a policy that is not in `engines`.
    """
    tree = _Tree(engines)
    try:
        tree.go_on(_Branch(episode), None)
        while busy := [desk for desk in tree.desks.values() if desk.asked]:
            answered: dict[tuple[int, ...], _Branch] = {}
            going = [desk for desk in busy if hasattr(desk.worker, "proceed")]
            calls = [desk for desk in busy if isinstance(desk.worker, _Calls)]
            for desk in going + calls or busy:
                for branch, place, result in desk.answers(alone=not going):
                    branch.results[place] = result
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
    """All episodes under way, and what they ask of which engine (by its id) or function."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.engines = engines
        self.desks: dict[Any, _Desk] = {}
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
            parts = [asked.argument] if isinstance(asked, Call) else parts
            branch.results, branch.missing = [None] * len(parts), len(parts)
            if isinstance(asked, SideBySide):
                branch.missing += 1  # it goes on here, not within the last of its branches
                for index, episode in enumerate(parts):
                    self.go_on(_Branch(episode, branch, (*branch.place, index)), None)
                branch.missing -= 1
            elif isinstance(asked, Call):
                key, worker = asked.function, _Calls(asked.function)
                self.desks.setdefault(key, _Desk(worker)).ask(branch, 0, asked.argument)
            else:
                for index, request in enumerate(parts):
                    self.desk(request.policy).ask(branch, index, request)
            if branch.missing:
                return
            value = branch.results

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
            if hasattr(desk.worker, "abort"):
                desk.worker.abort()


class _Desk:
    """What is asked of one engine or function: each request or argument has a number."""

    def __init__(self, worker: Any):
        self.worker = worker
        self.asked: dict[int, tuple[_Branch, int]] = {}
        self._new: dict[int, Any] = {}
        self._numbers = count()

    def ask(self, branch: _Branch, place: int, what: Any) -> None:
        """Something whose answer belongs at a place of a branch's results."""
        number = next(self._numbers)
        self.asked[number] = branch, place
        self._new[number] = what

    def answers(self, alone: bool) -> list[tuple[_Branch, int, Any]]:
        """The next answers with their branches and places there; of what answers lists as a whole,
        all, asked in the order of the episodes. `alone`: no engine has anything else to do."""
        order = sorted(self._new, key=lambda n: (self.asked[n][0].place, self.asked[n][1]))
        new, self._new = {number: self._new[number] for number in order}, {}
        if isinstance(self.worker, _Calls):
            done = self.worker.results(new, alone)
        elif hasattr(self.worker, "proceed"):
            done = self.worker.proceed(new)
        else:
            done = dict(zip(new, self.worker.generate([*new.values()]), strict=True))
        return [(*self.asked.pop(number), answer) for number, answer in done.items()]


class _Calls:
    """Calls a function, one call at a time, for all that has come since the one before."""

    def __init__(self, function: Callable[[list[Any]], Sequence[Any]]):
        self.function = function
        self._waiting: dict[int, Any] = {}
        self._running: tuple[dict[int, Any], Future] | None = None

    def results(self, new: Mapping[int, Any], alone: bool) -> dict[int, Any]:
        """Results by number that are there by now; if `alone`, those of a call at least."""
        self._waiting |= new
        if self._running is None:
            asked, self._waiting = self._waiting, {}
            if alone:
                return dict(zip(asked, self.function([*asked.values()]), strict=True))
            thread = ThreadPoolExecutor(1)
            self._running = asked, thread.submit(self.function, [*asked.values()])
            thread.shutdown(wait=False)
        asked, future = self._running
        if not (alone or future.done()):
            return {}
        self._running = None
        return dict(zip(asked, future.result(), strict=True))


def single_turn(request: Request) -> Episode[Trajectory]:
    """One request and its answer as a trajectory."""
    (completion,) = yield [request]
    return Trajectory.of(request, completion) if completion.ids else overlong(request)


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
