"""What passes between a method and an engine: sampling settings, requests, completions, samples."""

import hashlib
import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")

OVERLONG = "overlong"
"""How an answer ended whose prompt was too long to be asked."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: temperature 0 is greedy, `top_k` 0 and `top_p` 1 are off.

    `stop` strings end a completion once they occur in its text; the tokens that spell one stay in
    the completion.
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
    """One prompt to answer: token ids, how to sample, its own seed, the name of the policy."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    policy: str = "policy"


@dataclass(frozen=True)
class Completion:
    """An answer: token ids (the end token included), their log-probabilities in nats, text without
    the end token.

    `logps` are taken under the policy at the sampling temperature before any top-k or top-p cut:
    these belong in the loss, because TRL computes its own over the whole vocabulary. `finish` is
    "stop" (end token or stop string), "length" (truncated) or `OVERLONG` (without a token).
    """

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    text: str
    finish: Literal["stop", "length", "overlong"]


@dataclass
class Sample:
    """One row of a rollout: a prompt and what followed it.

    `mask` is 1 for tokens that the policy sampled and 0 for tokens from outside (search results,
    an opponent's words); it has one entry per completion token, as has `logps` where an engine
    gave log-probabilities. `role` and `group` say which baseline the reward is compared with.
    `advantage` is what the estimator's name says, None until it is estimated, and is never
    rescaled; `weight` is the row's weight in the loss (0: not trained), `policy` whose answer it
    is. `info` holds what a method wants in its records.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logps: tuple[float, ...] | None
    reward: float
    role: Hashable
    group: Hashable
    advantage: float | None = None
    weight: float = 1.0
    policy: str = "policy"
    truncated: bool = False
    invalid: bool = False
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {"completion_ids": len(self.completion_ids), "mask": len(self.mask)}
        if self.logps is not None:
            lengths["logps"] = len(self.logps)
        if len(set(lengths.values())) > 1 or not self.completion_ids:
            raise ValueError(
                f"sample of role {self.role!r}: {lengths}; all must be equal and at least 1"
            )

    @property
    def scored(self) -> bool:
        """Whether an engine gave log-probabilities of what was sampled (other tokens have 0)."""
        pairs = zip(self.logps or (), self.mask, strict=False)
        return is_scored([logp for logp, sampled in pairs if sampled])


@dataclass(frozen=True)
class Pair:
    """Two answers to one question, of which the chosen one is preferred; all as token ids.

    The question is asked in a short context, the text that it is about, and in a long one, that
    text among others. `rewards` are the method's of chosen and rejected, for records alone.
    `reference` has log-probabilities (nats) under the policy that training starts from, set by
    the trainer: of chosen and rejected in the short context, of chosen in the long one.
    """

    short_ids: tuple[int, ...]
    long_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    rewards: tuple[float, float] = (0.0, 0.0)
    reference: tuple[float, ...] = ()


Messages = list[dict[str, str]]
"""A chat: dictionaries with `role` and `content`."""


@dataclass(frozen=True)
class Task:
    """Something to answer, and how an answer to it is graded.

    `messages` is the prompt, `question` its question alone. `gold` lists the right answer, or one
    for each part of it; `kind` names the rule of `spnb.core.grading.grade`. `difficulty` labels
    the task's level, `info` holds what its maker wants to keep (documents, facts); grading reads
    `tag` (where the answer stands) and `tolerance` (of numbers) from it.
    """

    messages: Messages
    question: str = ""
    gold: tuple[str, ...] = ()
    kind: str = "exact"
    difficulty: str = ""
    info: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass
class Trajectory:
    """All tokens after a prompt, who wrote them, and what was searched for.

    `mask` is 1 for sampled tokens and 0 for observations; `logps` (nats) is 0.0 there. `text` is
    everything, `policy_text` only the policy's own words: answers are read from it, so that a
    document cannot answer. `documents` are what searches found, as it was shown. `contexts` is what
    each turn was asked with, where that is not all before it. `finish` says how it ended, None
    while it goes on: "stop" (end token), "length" (truncated), or a tool's own reason.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    text: str = ""
    policy_text: str = ""
    searches: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    contexts: list[tuple[int, ...]] = field(default_factory=list)
    finish: str | None = None
    policy: str = "policy"

    @classmethod
    def of(cls, request: Request, completion: Completion) -> "Trajectory":
        """One turn of the policy."""
        trajectory = cls(request.prompt_ids, finish=completion.finish, policy=request.policy)
        trajectory.append_policy(completion)
        return trajectory

    @property
    def length(self) -> int:
        """Tokens of the prompt and of all that followed it."""
        return len(self.prompt_ids) + len(self.completion_ids)

    def append_policy(self, completion: Completion) -> None:
        """Appends a turn of the policy."""
        self._append(completion.ids, completion.logps, 1)
        self.text += completion.text
        self.policy_text += completion.text

    def append_observation(self, ids: Sequence[int], text: str) -> None:
        """Appends text from outside."""
        self._append(ids, [0.0] * len(ids), 0)
        self.text += text

    def _append(self, ids: Sequence[int], logps: Sequence[float], mask: int) -> None:
        self.completion_ids += ids
        self.logps += logps
        self.mask += [mask] * len(ids)

    def sample(
        self, reward: float, role: Hashable, group: Hashable, invalid: bool = False, **info: Any
    ) -> Sample:
        """The trajectory as one row; `info` has its text too, and its queries if there are any."""
        queries = {"searches": list(self.searches)} if self.searches else {}
        return Sample(
            prompt_ids=self.prompt_ids,
            completion_ids=tuple(self.completion_ids),
            mask=tuple(self.mask),
            logps=tuple(self.logps),
            reward=reward,
            role=role,
            group=group,
            policy=self.policy,
            truncated=self.finish == "length",
            invalid=invalid,
            info={"text": self.text} | queries | info,
        )


class Engine(Protocol):
    """Turns token ids into token ids; the only thing an episode ever sees of a model."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order; one that asks for more tokens than fit gets those, also
        none (`OVERLONG`). ValueError for an empty prompt."""
        ...


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Items by their key, keys and items in the order in which they come."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def in_turn(groups: Sequence[Sequence[T]], rng: random.Random) -> list[T]:
    """One of each group in turn, both the groups and what is in them in random order; at the end
    what is left of the larger ones."""
    drawn = rng.sample([rng.sample(group, len(group)) for group in groups], len(groups))
    return [one for turn in zip_longest(*drawn) for one in turn if one is not None]


def is_scored(logps: Sequence[float] | None) -> bool:
    """Whether an engine gave log-probabilities: those of a draw from a part of the vocabulary are
    NaN throughout where it does not know them over the whole of it."""
    return bool(logps) and not all(map(math.isnan, logps))


def role_label(role: Hashable) -> str:
    """A role as it is written in records: ("kuhn_poker", 0) becomes "kuhn_poker/0"."""
    return "/".join(map(str, role)) if isinstance(role, tuple) else str(role)


def derive_seed(*parts: Hashable) -> int:
    """A 63-bit seed from any parts (run seed, step, episode, turn), the same on every machine and
    in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@lru_cache
def control_strings(tokenizer: Any) -> tuple[str, ...]:
    """The texts that a tokenizer reads as control tokens, the longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    texts = {token.content for token in added if token.special}
    texts |= set(getattr(tokenizer, "all_special_tokens", ()))
    return tuple(sorted(texts - {""}, key=lambda text: (-len(text), text)))


class Chat:
    """Writes chat messages as a request's token ids with a tokenizer's own chat template.

    Content is data: whatever a policy, a document or a search result spells, no control token comes
    of it. The template's own control tokens stay; content without control strings keeps its ids.
    """

    def __init__(self, tokenizer: Any, thinking: bool | None = None, words: dict | None = None):
        """`thinking`: for templates that know `enable_thinking`; None leaves it to them. `words`:
        what requests say in the place of others (`spnb.core.prompts.CALLS`)."""
        self.tokenizer = tokenizer
        self._words = words or {}
        self._controls = control_strings(tokenizer)
        self._template = {} if thinking is None else {"enable_thinking": thinking}

    def content(self, text: str) -> str:
        """A text as content: a space inside each control string, half a surrogate as "?"."""
        for control in self._controls:
            if control in text:
                broken = f"{control[0]} {control[1:]}" if len(control) > 1 else " "
                text = text.replace(control, broken)
        return text.encode(errors="replace").decode()

    def request(
        self, messages: list[dict[str, str]], sampling: Sampling, seed: int, policy: str = "policy"
    ) -> Request:
        """A request that ends where the assistant's turn begins."""
        written = []
        for message in messages:
            text = message["content"]
            for usual, instead in self._words.items():
                text = text.replace(usual, instead)
            written.append(message | {"content": self.content(text)})
        text = self.tokenizer.apply_chat_template(
            written, tokenize=False, add_generation_prompt=True, **self._template
        )
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Request(prompt_ids=tuple(ids), sampling=sampling, seed=seed, policy=policy)
