"""Episodes as generators, and what drives them.

An *episode* is a generator. It yields a list of `Request`s, is sent the list of `Completion`s in
the same order, and returns whatever it likes (samples, a transcript). `yield from` nests episodes;
`parallel` runs several side by side and merges their requests, so that an engine always sees the
biggest batch there is. The order of everything is fixed by the order of the arguments, never by
timing.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from spnb.core.types import Completion, Engine, Request, Trajectory, grouped

T = TypeVar("T")
Item = TypeVar("Item")

OVERLONG = "overlong"
"""How a trajectory ended whose prompt was too long to be asked."""
Episode = Generator[list[Request], list[Completion], T]


def parallel(*episodes: Episode[T]) -> Episode[list[T]]:
    """Runs episodes side by side as one: their pending requests are merged in order; returns their
    results in order."""
    results: list[Any] = [None] * len(episodes)
    pending: dict[int, list[Request]] = {}

    def advance(index: int, answers: list[Completion] | None) -> None:
        try:
            pending[index] = episodes[index].send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            results[index] = stop.value
            pending.pop(index, None)

    for index in range(len(episodes)):
        advance(index, None)
    while pending:
        answers = iter((yield [request for requests in pending.values() for request in requests]))
        for index, requests in list(pending.items()):
            advance(index, [next(answers) for _ in requests])
    return results


def run(episode: Episode[T], engines: Mapping[str, Engine]) -> T:
    """Drives one episode (often `parallel(...)` of thousands) to its end and returns its result.

    Raises:
        ValueError: a request names a policy that is not in `engines`.
    """
    answers = None
    while True:
        try:
            requests = episode.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value
        answers = answer_all(requests, engines)


def answer_all(requests: Sequence[Request], engines: Mapping[str, Engine]) -> list[Completion]:
    """The completions of requests, in order, each from the engine of the policy that it names.

    Raises:
        ValueError: a request names a policy that is not in `engines`.
    """
    answers: list[Completion | None] = [None] * len(requests)
    places = grouped(range(len(requests)), lambda place: requests[place].policy)
    for name, of_engine in places.items():
        if name not in engines:
            known = ", ".join(sorted(engines))
            raise ValueError(f"request for policy {name!r}; available: {known}")
        completions = engines[name].generate([requests[place] for place in of_engine])
        for place, completion in zip(of_engine, completions, strict=True):
            answers[place] = completion
    return answers  # type: ignore[return-value]


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
