"""Search as a tool inside a rollout: the policy writes a query, results are put into its turn, it
goes on.

Rollouts run in step: every round sends all pending turns to the engine as one batch and all new
queries to the retriever as one call. What comes back is appended as token ids with mask 0; what the
policy sampled is never decoded and tokenised again, so its ids and log-probabilities stay those it
was sampled with (as Search-R1 masks retrieved text).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from spnb.core import prompts
from spnb.core.episodes import Episode, run
from spnb.core.types import Chat, Completion, Engine, Request, Sample, Sampling, derive_seed
from spnb.corpus.retrieval import Hit, Retriever

CLOSE = "</search>"
Finish = Literal["stop", "length", "searches", "malformed"]


@dataclass(frozen=True)
class Tool:
    """What a search reaches and how much of it a rollout may use.

    Args:
        tokenizer: of the policy; writes the results as token ids.
        k: documents a search returns.
        max_searches: searches a rollout may make; one more ends it.
        max_length: tokens of prompt, turns and results together, room for a next turn included.
            Results that do not fit lose their last documents.

    Raises:
        ValueError: out of range.
    """

    tokenizer: Any
    retriever: Retriever
    k: int = 2
    max_searches: int = 4
    max_length: int = 2048

    def __post_init__(self) -> None:
        for key, least in (("k", 1), ("max_searches", 0), ("max_length", 1)):
            if getattr(self, key) < least:
                raise ValueError(
                    f"{key} of a search tool is {getattr(self, key)!r}; allowed: {least} or more"
                )


@dataclass
class Searched:
    """One rollout: all tokens after the prompt, who wrote them, and what was looked for.

    `mask` is 1 for sampled tokens and 0 for results, `logps` (nats) is 0.0 there. `text` is
    everything, `said` only the policy's own words: answers are read from `said`, so that a document
    cannot answer. `finish` is "stop" (end token), "length" (a turn was cut off, or results left no
    room for another), "searches" (one query too many) or "malformed" (a closing search tag without
    a query).
    """

    prompt_ids: tuple[int, ...]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    text: str = ""
    said: str = ""
    searches: list[str] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def length(self) -> int:
        """Tokens of prompt, turns and results."""
        return len(self.prompt_ids) + len(self.completion_ids)

    def say(self, done: Completion) -> None:
        """Appends a turn of the policy."""
        self._append(done.ids, done.logps, 1)
        self.text += done.text
        self.said += done.text

    def hear(self, ids: Sequence[int], text: str) -> None:
        """Appends text from outside."""
        self._append(ids, [0.0] * len(ids), 0)
        self.text += text

    def _append(self, ids: Sequence[int], logps: Sequence[float], mask: int) -> None:
        self.completion_ids += ids
        self.logps += logps
        self.mask += [mask] * len(ids)

    def sample(self, reward: float, role: Any, group: Any) -> Sample:
        """The rollout as a loss row; `info` has its text and queries."""
        ids, mask, logps = tuple(self.completion_ids), tuple(self.mask), tuple(self.logps)
        row = Sample(self.prompt_ids, ids, mask, logps, reward, role, group)
        row.truncated = self.finish == "length"
        row.info = {"text": self.text, "searches": list(self.searches)}
        return row


def single(request: Request, done: Completion) -> Searched:
    """A rollout of one turn without any tool."""
    rollout = Searched(request.prompt_ids, finish=done.finish)
    rollout.say(done)
    return rollout


def rollouts(
    requests: Sequence[Request], questions: Sequence[str], tool: Tool
) -> Episode[list[Searched]]:
    """Plays all requests with the tool, in step; results in order.

    `max_new_tokens` of a request's sampling counts for each turn. A turn's seed follows from the
    request's.

    Args:
        questions: said again after the results of each request's searches; "" for none.

    Raises:
        ValueError: a prompt leaves no room for a turn within `tool.max_length`, or the lists differ
            in length.
    """
    found = [Searched(request.prompt_ids) for request in requests]
    for request, rollout in zip(requests, found, strict=True):
        if rollout.length + request.sampling.max_new_tokens > tool.max_length:
            raise ValueError(
                f"max_length is {tool.max_length}; a prompt has {rollout.length} tokens and a turn "
                f"{request.sampling.max_new_tokens}; allowed: their sum or more"
            )
    live = list(zip(requests, found, questions, strict=True))
    while live:
        answers = yield [_turn(request, rollout) for request, rollout, _ in live]
        for (_, rollout, _), done in zip(live, answers, strict=True):
            rollout.say(done)
            rollout.finish = _query(rollout, done, tool)
        live = [entry for entry in live if entry[1].finish is None]
        if live:
            hits = tool.retriever.search([rollout.searches[-1] for _, rollout, _ in live], tool.k)
            for (request, rollout, question), some in zip(live, hits, strict=True):
                _inform(
                    rollout, some, question, tool, tool.max_length - request.sampling.max_new_tokens
                )
            live = [entry for entry in live if entry[1].finish is None]
    return found


def _turn(request: Request, rollout: Searched) -> Request:
    """The next turn's request: the same sampling for all, so that an engine answers them in one
    batch."""
    turn = len(rollout.searches)
    return replace(
        request,
        prompt_ids=(*rollout.prompt_ids, *rollout.completion_ids),
        sampling=replace(request.sampling, stop=(CLOSE,)),
        seed=derive_seed(request.seed, "turn", turn) if turn else request.seed,
    )


def _query(rollout: Searched, done: Completion, tool: Tool) -> Finish | None:
    """Notes a turn's query; how the rollout ends, None where its query is to be answered."""
    if CLOSE not in done.text:
        return done.finish
    query = prompts.field(done.text, "search")
    if query is None:
        return "malformed"
    if len(rollout.searches) == tool.max_searches:
        return "searches"
    rollout.searches.append(query)
    return None


def _inform(rollout: Searched, hits: Sequence[Hit], question: str, tool: Tool, limit: int) -> None:
    """Appends as many results as keep the rollout within `limit` tokens; where none fits it
    ends."""
    for kept in range(len(hits), 0, -1) if hits else [0]:
        text = prompts.information([hit.text for hit in hits[:kept]], question)
        ids = tool.tokenizer(text, add_special_tokens=False)["input_ids"]
        if rollout.length + len(ids) <= limit:
            return rollout.hear(ids, text)
    rollout.finish = "length"


class Asked(Protocol):
    """An item with a prompt and the question in it."""

    @property
    def messages(self) -> prompts.Messages:
        """The prompt."""
        ...

    @property
    def question(self) -> str:
        """What is said again after results."""
        ...


def search_texts(
    engine: Engine,
    tokenizer: Any,
    retriever: Retriever,
    items: Sequence[Asked],
    temperature: float = 0.0,
    max_new_tokens: int = 120,
) -> list[str]:
    """What a policy says to each item when it may search: its own words, without the results."""
    chat, sampling = Chat(tokenizer), Sampling(max_new_tokens, temperature)
    requests = [
        chat.request(item.messages, sampling, derive_seed("search", place))
        for place, item in enumerate(items)
    ]
    tool = Tool(tokenizer, retriever)
    found = run(rollouts(requests, [item.question for item in items], tool), {"policy": engine})
    return [rollout.said for rollout in found]
