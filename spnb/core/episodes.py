"""Episodes as generators, and what drives them.

An *episode* is a generator. It yields a list of `Request`s, is sent the list of `Completion`s in
the same order, and returns whatever it likes (samples, a transcript). `yield from` nests episodes;
`parallel` runs several side by side and merges their requests, so that an engine always sees the
biggest batch there is. The order of everything is fixed by the order of the arguments, never by
timing.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from spnb.core.types import Completion, Engine, Request, Trajectory

T = TypeVar("T")
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

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
    by_engine: dict[str, list[int]] = {}
    for index, request in enumerate(requests):
        by_engine.setdefault(request.policy, []).append(index)
    for name, indices in by_engine.items():
        if name not in engines:
            raise ValueError(
                f"request for policy {name!r}; available: {', '.join(sorted(engines))}"
            )
        completions = engines[name].generate([requests[i] for i in indices])
        for i, completion in zip(indices, completions, strict=True):
            answers[i] = completion
    return answers  # type: ignore[return-value]


def single_turn(request: Request) -> Episode[Trajectory]:
    """One request and its answer as a trajectory."""
    (completion,) = yield [request]
    trajectory = Trajectory(request.prompt_ids, finish=completion.finish, policy=request.policy)
    trajectory.append_policy(completion)
    return trajectory


def overlong(request: Request) -> Episode[Trajectory]:
    """A prompt that no answer fits after: nothing is asked, no token of it can be trained."""
    prompt_ids = request.prompt_ids[:1]
    trajectory = Trajectory(prompt_ids, finish=OVERLONG, policy=request.policy)
    trajectory.append_observation(prompt_ids, "")
    yield from ()
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
    results = yield from parallel(*(answer(*arguments) for arguments in copies))
    return [results[start : start + k] for start in range(0, len(results), k)]


def fill(
    play_round: Callable[[int, Mapping[Key, int]], Episode[Mapping[Key, Sequence[T]]]],
    quota: Mapping[Key, int],
    max_rounds: int,
) -> Episode[dict[Key, list[T]]]:
    """Plays rounds until every key has its quota of usable items, or `max_rounds` are over.

    A round may bring more than was missing; nothing is thrown away here.

    Args:
        play_round: called as `play_round(number, missing)` with what each key still lacks (0 or
            more); returns the episode of one round, whose result are the new items by key.
    """
    items: dict[Key, list[T]] = {key: [] for key in quota}
    for number in range(max_rounds):
        missing = {key: max(0, count - len(items[key])) for key, count in quota.items()}
        if not any(missing.values()):
            break
        new = yield from play_round(number, missing)
        for key, found in new.items():
            items[key].extend(found)
    return items
