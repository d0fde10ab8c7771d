"""Search as a tool inside a trajectory: the policy writes a query, results come back, it goes on.

Trajectories advance in step: a round sends all pending turns to the engine as one batch and all new
queries to the retriever as one call. Results are appended as token ids with mask 0; what the policy
sampled is never decoded and tokenised again, so its ids and log-probabilities stay as sampled.
"""

import ast
import json
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, Protocol

from spnb.core import prompts
from spnb.core.episodes import Episode, run
from spnb.core.types import (
    Chat,
    Completion,
    Engine,
    Request,
    Sample,
    Sampling,
    Task,
    Trajectory,
    derive_seed,
)

Rows = Literal["trajectory", "turn"]


@dataclass(frozen=True)
class Hit:
    """A retrieved document; `score` is None from a server that was asked for no scores."""

    id: str
    title: str
    text: str
    score: float | None


class Retriever(Protocol):
    """What a method needs of search, whatever is behind it."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first."""
        ...


@dataclass(frozen=True)
class ToolSyntax:
    """How a policy calls the search tool, and how results come back.

    A call stands in `<tag>...</tag>`; its end ends the turn. `parse` reads the query out of it,
    `observation` writes the documents' texts and the question as the text that follows.
    """

    tag: str
    parse: Callable[[str], Any]
    observation: Callable[[Sequence[str], str], str]

    @property
    def stop(self) -> str:
        """The string that ends a call."""
        return f"</{self.tag}>"

    def query(self, text: str) -> str | None:
        """The query of a turn's last call, None where the call is malformed."""
        try:
            query = self.parse(prompts.field(text, self.tag) or "")
        except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError):
            return None
        return (query.strip() or None) if isinstance(query, str) else None


def _json_call(call: str) -> Any:
    parsed = json.loads(call)
    return parsed["arguments"]["query"] if parsed["name"] == "search" else None


def _python_call(call: str) -> Any:
    arguments = re.fullmatch(r"search\(\s*query\s*=(.*)\)", call, re.DOTALL)
    return ast.literal_eval(arguments[1].strip()) if arguments else None


def _message(role: str, template: str) -> Callable[[Sequence[str], str], str]:
    """Results as a message between two turns of the policy, in ChatML (Qwen 3, OLMo 3)."""

    def observation(documents: Sequence[str], question: str) -> str:
        again = f"\nQuestion: {question}" if question else ""
        content = template.format(prompts.listing(documents)) + again
        return f"<|im_end|>\n<|im_start|>{role}\n{content}<|im_end|>\n<|im_start|>assistant\n"

    return observation


SYNTAXES = {
    "xml": ToolSyntax("search", str, prompts.information),
    "qwen3": ToolSyntax(
        "tool_call", _json_call, _message("user", "<tool_response>\n{}\n</tool_response>")
    ),
    "olmo3": ToolSyntax("function_calls", _python_call, _message("environment", "{}")),
}
"""xml: Search-R1's tags, within the policy's turn. The others are the models' own calls (SCOPE,
table 11), JSON or `search(query="...")`, answered by a message as their chat templates do."""


@dataclass(frozen=True)
class Tool:
    """What a search reaches and how much of it a trajectory may use.

    Args:
        tokenizer: of the policy; writes the results as token ids.
        k: documents a search returns.
        max_searches: of a trajectory; one more ends it.
        max_length: tokens of prompt, turns and results, room for a next turn included. Results that
            do not fit lose their last documents.
        syntax: one of `SYNTAXES`.

    Raises:
        ValueError: out of range, or an unknown syntax.
    """

    tokenizer: Any
    retriever: Retriever
    k: int = 2
    max_searches: int = 4
    max_length: int = 2048
    syntax: str = "xml"

    def __post_init__(self) -> None:
        for key, least in (("k", 1), ("max_searches", 0), ("max_length", 1)):
            value = getattr(self, key)
            if value < least:
                raise ValueError(f"{key} of a search tool is {value!r}; allowed: {least} or more")
        if self.syntax not in SYNTAXES:
            allowed = ", ".join(SYNTAXES)
            raise ValueError(f"syntax of a search tool is {self.syntax!r}; allowed: {allowed}")


def search_rollouts(
    requests: Sequence[Request], questions: Sequence[str], tool: Tool
) -> Episode[list[Trajectory]]:
    """Rolls all requests out with the tool, in step; trajectories in order.

    `max_new_tokens` counts for each turn; a turn's seed follows from its request's. A trajectory's
    `finish` is "stop" (end token), "length" (a turn was cut off, or results left no room for
    another), "searches" (one query too many) or "malformed" (a call without a query).

    Args:
        questions: said again after the results of each request's searches; "" for none.

    Raises:
        ValueError: a prompt leaves no room for a turn, or the lists differ in length.
    """
    trajectories = [Trajectory(request.prompt_ids, policy=request.policy) for request in requests]
    for request, trajectory in zip(requests, trajectories, strict=True):
        if trajectory.length + request.sampling.max_new_tokens > tool.max_length:
            raise ValueError(
                f"max_length is {tool.max_length}; a prompt has {trajectory.length} tokens and a "
                f"turn {request.sampling.max_new_tokens}; allowed: their sum or more"
            )
    live = list(zip(requests, trajectories, questions, strict=True))
    while live:
        completions = yield [_turn(request, row, tool) for request, row, _ in live]
        for (_, trajectory, _), completion in zip(live, completions, strict=True):
            trajectory.append_policy(completion)
            trajectory.finish = _read_query(trajectory, completion, tool)
        live = [entry for entry in live if entry[1].finish is None]
        if live:
            hits = tool.retriever.search([row.searches[-1] for _, row, _ in live], tool.k)
            for (request, trajectory, question), documents in zip(live, hits, strict=True):
                limit = tool.max_length - request.sampling.max_new_tokens
                _append_results(trajectory, documents, question, tool, limit)
            live = [entry for entry in live if entry[1].finish is None]
    return trajectories


def _turn(request: Request, trajectory: Trajectory, tool: Tool) -> Request:
    """The next turn's request: the same sampling for all, so that an engine has one batch."""
    turn = len(trajectory.searches)
    return replace(
        request,
        prompt_ids=(*trajectory.prompt_ids, *trajectory.completion_ids),
        sampling=replace(request.sampling, stop=(SYNTAXES[tool.syntax].stop,)),
        seed=derive_seed(request.seed, "turn", turn) if turn else request.seed,
    )


def _read_query(trajectory: Trajectory, completion: Completion, tool: Tool) -> str | None:
    """Notes a turn's query; returns how the trajectory ends, None where the query is answered."""
    syntax = SYNTAXES[tool.syntax]
    if syntax.stop not in completion.text:
        return completion.finish
    query = syntax.query(completion.text)
    if query is None:
        return "malformed"
    if len(trajectory.searches) == tool.max_searches:
        return "searches"
    trajectory.searches.append(query)
    return None


def _append_results(
    trajectory: Trajectory, hits: Sequence[Hit], question: str, tool: Tool, limit: int
) -> None:
    """Appends as many results as keep the trajectory within `limit` tokens; ends it where none
    fits."""
    for count in range(len(hits), 0, -1) if hits else [0]:
        documents = [hit.text for hit in hits[:count]]
        text = SYNTAXES[tool.syntax].observation(documents, question)
        ids = tool.tokenizer(text, add_special_tokens=False)["input_ids"]
        if trajectory.length + len(ids) <= limit:
            return trajectory.append_observation(ids, text)
    trajectory.finish = "length"


def samples(
    trajectory: Trajectory, reward: float, role: Hashable, group: Hashable, rows: Rows
) -> list[Sample]:
    """A trajectory as loss rows: one "trajectory", or one for each "turn" of the policy.

    A turn's prompt is everything before it, `info["turn"]` its number; reward and group are the
    trajectory's. Only the last turn can be truncated.
    """
    whole = trajectory.sample(reward, role, group)
    if rows == "trajectory":
        return [whole]
    if rows != "turn":
        raise ValueError(f"rows is {rows!r}; allowed: trajectory, turn")
    turns: list[Sample] = []
    end = 0
    for sampled, tokens in groupby(whole.mask):
        start, end = end, end + len(list(tokens))
        if sampled:
            turn = replace(
                whole,
                prompt_ids=(*whole.prompt_ids, *whole.completion_ids[:start]),
                completion_ids=whole.completion_ids[start:end],
                mask=whole.mask[start:end],
                logps=tuple(trajectory.logps[start:end]),
                truncated=whole.truncated and end == len(whole.mask),
                info={**whole.info, "turn": len(turns)},
            )
            turns.append(turn)
    return turns


def search_texts(
    engine: Engine,
    tokenizer: Any,
    retriever: Retriever,
    tasks: Sequence[Task],
    temperature: float = 0.0,
    max_new_tokens: int = 120,
) -> list[str]:
    """What a policy says to each task when it may search: its own words, without the results."""
    chat = Chat(tokenizer)
    sampling = Sampling(max_new_tokens, temperature)
    requests = [
        chat.request(task.messages, sampling, derive_seed("search", place))
        for place, task in enumerate(tasks)
    ]
    questions = [task.question for task in tasks]
    episode = search_rollouts(requests, questions, Tool(tokenizer, retriever))
    return [trajectory.policy_text for trajectory in run(episode, {"policy": engine})]
