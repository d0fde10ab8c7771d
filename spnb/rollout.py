"""What passes between a method and an engine: requests, completions, samples, and episodes as generators.

An *episode* is a generator. It yields a list of `Request`s, is sent the list of `Completion`s in the same order, and
returns whatever it likes (samples, a transcript). `yield from` nests episodes; `parallel` runs several side by side and
merges their requests, so that an engine always sees the biggest batch there is. The order of everything is fixed by the
order of the arguments, never by timing.
"""

import hashlib
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: temperature 0 is greedy, `top_k` 0 and `top_p` 1 are off.

    `stop` strings end a completion once they occur in its text; the tokens that spell one stay in the completion.
    """

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, allowed, ok in (
            ("max_new_tokens", "an integer of 1 or more", self.max_new_tokens >= 1),
            ("temperature", "0 or more", self.temperature >= 0),
            ("top_p", "above 0 and at most 1", 0 < self.top_p <= 1),
            ("top_k", "0 (off) or more", self.top_k >= 0),
        ):
            if not ok:
                raise ValueError(f"sampling.{key} is {getattr(self, key)!r}; allowed: {allowed}")


@dataclass(frozen=True)
class Request:
    """One prompt to answer: token ids, how to sample, an own seed, and the name of the engine that answers."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    engine: str = "policy"


@dataclass(frozen=True)
class Completion:
    """An answer: token ids (the end token included), their log-probabilities in nats, text without the end token.

    `logps` are taken under the policy at the sampling temperature before any top-k or top-p cut, as TRL's loss takes
    them (vLLM gives them after the cut, so training rollouts must not cut with it). `finish` is "stop" (end token or
    stop string) or "length" (truncated).
    """

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    text: str
    finish: Literal["stop", "length"]


@dataclass
class Sample:
    """One row of the loss: a prompt and what followed it.

    `mask` is 1 for tokens that the policy sampled and 0 for tokens from outside (search results, an opponent's words);
    it has one entry per completion token, as has `logps` where an engine gave log-probabilities. `role` and `group` say
    which baseline the reward is compared with. `info` holds what a method wants in its records.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logps: tuple[float, ...] | None
    reward: float
    role: Hashable
    group: Hashable
    advantage: float = 0.0
    truncated: bool = False
    invalid: bool = False
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {"completion_ids": len(self.completion_ids), "mask": len(self.mask)}
        if self.logps is not None:
            lengths["logps"] = len(self.logps)
        if len(set(lengths.values())) > 1 or not self.completion_ids:
            raise ValueError(f"sample of role {self.role!r}: {lengths}; all must be equal and at least 1")


Episode = Generator[list[Request], list[Completion], T]


class Engine(Protocol):
    """Turns token ids into token ids; the only thing an episode ever sees of a model."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order."""
        ...


def sample_of(request: Request, completion: Completion, *, reward: float, role: Hashable, group: Hashable) -> Sample:
    """The loss row of one request and its answer: every completion token was sampled by the policy."""
    return Sample(
        prompt_ids=request.prompt_ids,
        completion_ids=completion.ids,
        mask=(1,) * len(completion.ids),
        logps=completion.logps,
        reward=reward,
        role=role,
        group=group,
        truncated=completion.finish == "length",
    )


def role_label(role: Hashable) -> str:
    """A role as it is written in records: ("kuhn_poker", 0) becomes "kuhn_poker/0"."""
    return "/".join(map(str, role)) if isinstance(role, tuple) else str(role)


def derive_seed(*parts: Hashable) -> int:
    """A 63-bit seed from any parts (run seed, step, episode, turn), the same on every machine and in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def parallel(*episodes: Episode[T]) -> Episode[list[T]]:
    """Runs episodes side by side as one: their pending requests are merged in order; returns their results in order."""
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
        ValueError: a request names an engine that is not in `engines`.
    """
    answers = None
    while True:
        try:
            requests = episode.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value
        answers = answer_all(requests, engines)


def answer_all(requests: Sequence[Request], engines: Mapping[str, Engine]) -> list[Completion]:
    """The completions of requests, in order, each from the engine that it names.

    Raises:
        ValueError: a request names an engine that is not in `engines`.
    """
    answers: list[Completion | None] = [None] * len(requests)
    by_engine: dict[str, list[int]] = {}
    for index, request in enumerate(requests):
        by_engine.setdefault(request.engine, []).append(index)
    for name, indices in by_engine.items():
        if name not in engines:
            raise ValueError(f"request for engine {name!r}; available: {', '.join(sorted(engines))}")
        completions = engines[name].generate([requests[i] for i in indices])
        for i, completion in zip(indices, completions, strict=True):
            answers[i] = completion
    return answers  # type: ignore[return-value]


class Chat:
    """Writes chat messages as a request's token ids with a tokenizer's own chat template."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

    def request(self, messages: list[dict[str, str]], sampling: Sampling, seed: int, engine: str = "policy") -> Request:
        """A request that ends where the assistant's turn begins."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Request(prompt_ids=tuple(ids), sampling=sampling, seed=seed, engine=engine)
