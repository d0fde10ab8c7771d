"""Search as a tool inside a trajectory: the policy writes a query, results come back, it goes on.

Searches that wait for the retriever at the same time are one call of it. Results are token ids with
mask 0; what the policy sampled is never tokenised again: its ids and log-probabilities stay as
sampled.
"""

import ast
import json
import logging
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any, Literal, Protocol

import pydantic.dataclasses
from pydantic import NonNegativeInt, PositiveInt

from spnb.core import prompts
from spnb.core.episodes import Call, Episode, overlong, parallel
from spnb.core.types import Chat, Request, Sample, Trajectory, derive_seed

LOST = "retriever"
"""How a trajectory ended whose search failed: it is neither paid nor trained."""
LONGEST = 1000
"""Characters of a query that a retriever gets."""


@dataclass(frozen=True)
class Hit:
    """A retrieved document; `score` is None from a server that was asked for no scores."""

    id: str
    title: str
    text: str
    score: float | None


class RetrieverError(RuntimeError):
    """A retriever could not be reached, kept failing, or answered in another form."""


class Retriever(Protocol):
    """What a method needs of search, whatever is behind it."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first; RetrieverError where there is no answer."""
        ...


@dataclass(frozen=True)
class ToolSyntax:
    """A call stands in `<tag>...</tag>`, and its end ends the turn. `parse` reads the query out of
    it, `observation` writes the text that follows, from the documents' texts."""

    tag: str
    parse: Callable[[str], Any]
    observation: Callable[[Sequence[str]], str]

    @property
    def stop(self) -> str:
        """The string that ends a call."""
        return f"</{self.tag}>"

    def query(self, text: str) -> str | None:
        """The query of a turn's last call, in a thought too, cut to `LONGEST` characters; None
        where the call is malformed."""
        try:
            query = self.parse(prompts.tagged(text, self.tag)[-1]).strip()[:LONGEST]
            return query if query.encode() else None  # half a surrogate pair cannot be encoded
        except Exception:  # a policy wrote the text: nothing in it may stop a run
            return None


def _json_call(call: str) -> Any:
    parsed = json.loads(call)
    return parsed["arguments"]["query"] if parsed["name"] == "search" else None


PYTHON_CALL = re.compile(
    r"""search\(\s*query\s*=\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*\)""", re.DOTALL
)
"""One text in quotes: two side by side would be one to Python."""


def _python_call(call: str) -> Any:
    arguments = PYTHON_CALL.fullmatch(call)
    return ast.literal_eval(arguments[1]) if arguments else None


def _message(role: str, template: str) -> Callable[[Sequence[str]], str]:
    """Results as a message between two turns of the policy, in ChatML (Qwen 3, OLMo 3)."""
    form = f"<|im_end|>\n<|im_start|>{role}\n{template}<|im_end|>\n<|im_start|>assistant\n"
    return lambda documents: form.format(prompts.listing(documents))


_QWEN3 = _message("user", "<tool_response>\n{}\n</tool_response>")
SYNTAXES = {
    "xml": ToolSyntax("search", str, prompts.information),
    "qwen3": ToolSyntax("tool_call", _json_call, _QWEN3),
    "olmo3": ToolSyntax("function_calls", _python_call, _message("environment", "{}")),
}
"""xml: Search-R1's tags, within the policy's turn. The others are the models' own calls (SCOPE,
table 11), JSON or `search(query="...")`, answered by a message as their chat templates do."""


@pydantic.dataclasses.dataclass(frozen=True)
class Tool:
    """What a search reaches, the policy's tokenizer, and what a trajectory may use."""

    tokenizer: Any
    retriever: Any
    k: PositiveInt = 2
    """Documents a search returns."""
    max_searches: NonNegativeInt = 4
    """Of a trajectory; one more ends it."""
    max_length: PositiveInt = 2048
    """Tokens of prompt, turns, results and a next turn; documents that do not fit are left out."""
    syntax: Literal["xml", "qwen3", "olmo3"] = "xml"
    result_tokens: PositiveInt | None = None
    """Tokens of a search's documents together; the last that fits in part is cut."""
    hide_thoughts: bool = False
    """Whether a turn is asked without the thoughts of those before it, as the chat templates of
    thinking models have it."""

    def found(self, queries: list[str]) -> list[list[Hit] | None]:
        """What each query finds; None for all where the retriever fails."""
        try:
            return self.retriever.search(queries, self.k)
        except RetrieverError as error:
            logging.warning("no search results for %d trajectories: %s", len(queries), error)
            return [None] * len(queries)


def make_tool(params: Any, tokenizer: Any, retriever: Any, **usual: Any) -> Tool:
    """A tool as `params` have it: results, result_tokens, max_searches, max_length, syntax, and
    thoughts hidden where a turn is a row; what they lack is as `usual`, else as in `Tool`."""
    same = ("result_tokens", "max_searches", "max_length", "syntax")
    names = {"k": "results"} | {name: name for name in same}
    usual["hide_thoughts"] = getattr(params, "rows", "") == "turn"
    given = {field: getattr(params, name) for field, name in names.items() if hasattr(params, name)}
    return Tool(tokenizer, retriever, **usual | given)


def search_rollouts(requests: Sequence[Request], tool: Tool) -> Episode[list[Trajectory]]:
    """Rolls all requests out side by side.

    `max_new_tokens` counts for each turn; a turn's seed follows from its request's. `finish` is
    "stop" (end token), "length" (a turn was cut off, or results left no room for another),
    "searches" (one query too many), "malformed" (a call without a query), "retriever" (it failed,
    for all that were searched for together) or "overlong" (a prompt leaves no room for a turn and
    is not asked).
    """
    return (yield from parallel(*(search_rollout(request, tool) for request in requests)))


def search_rollout(request: Request, tool: Tool) -> Episode[Trajectory]:
    """Rolls one request out; see `search_rollouts`."""
    syntax = SYNTAXES[tool.syntax]
    limit = tool.max_length - request.sampling.max_new_tokens
    if len(request.prompt_ids) > limit:
        return overlong(request)
    row = Trajectory(request.prompt_ids, policy=request.policy)
    while row.finish is None:
        asked = _turn(request, row, tool)
        if len(asked.prompt_ids) > limit:  # control tokens that were broken up
            row.finish = "length"
            break
        if tool.hide_thoughts:
            row.contexts.append(asked.prompt_ids)
        (completion,) = yield [asked]
        if not completion.ids and not row.completion_ids:
            return overlong(request)
        row.append_policy(completion)
        if syntax.stop not in completion.text:
            row.finish = completion.finish if completion.ids else "length"
        elif (query := syntax.query(completion.text)) is None:
            row.finish = "malformed"
        elif len(row.searches) == tool.max_searches:
            row.finish = "searches"
        else:
            row.searches.append(query)
            (hits,) = yield Call(tool.found, query)
            if hits is None:
                row.finish = LOST
            else:
                _append_results(row, [hit.text for hit in hits], tool, limit)
    return row


def _turn(request: Request, trajectory: Trajectory, tool: Tool) -> Request:
    """The next turn's request: the same sampling for all, so that an engine has one batch."""
    turn = len(trajectory.searches)
    return replace(
        request,
        prompt_ids=(*trajectory.prompt_ids, *_history(trajectory, tool)),
        sampling=replace(request.sampling, stop=(SYNTAXES[tool.syntax].stop,)),
        seed=derive_seed(request.seed, "turn", turn) if turn else request.seed,
    )


def _history(trajectory: Trajectory, tool: Tool) -> Sequence[int]:
    """What a next turn reads after the prompt: all, or all but the thoughts. Words of the policy
    that stand there without their thoughts are tokenised again; they are no targets."""
    if not tool.hide_thoughts:
        return trajectory.completion_ids
    ids: list[int] = []
    tokens = zip(trajectory.completion_ids, trajectory.mask, strict=True)
    for own, part in groupby(tokens, itemgetter(1)):
        turn = [token for token, _ in part]
        if own:
            said = prompts.outside(tool.tokenizer.decode(turn)).lstrip()
            said = Chat(tool.tokenizer).content(said)  # control tokens that it spelled are words
            turn = tool.tokenizer(said, add_special_tokens=False)["input_ids"]
        ids += turn
    return ids


def _within(documents: list[str], tool: Tool) -> list[str]:
    """Documents of `result_tokens` together."""
    if tool.result_tokens is None:
        return documents
    kept = []
    left = tool.result_tokens
    for document in documents:
        ids = tool.tokenizer(document, add_special_tokens=False)["input_ids"]
        if left:
            kept.append(document if len(ids) <= left else tool.tokenizer.decode(ids[:left]))
        left = max(0, left - len(ids))
    return kept


def _append_results(trajectory: Trajectory, documents: list[str], tool: Tool, limit: int) -> None:
    """Appends as many results as `limit` tokens have room for; ends the trajectory if none fits."""
    documents = _within([*map(Chat(tool.tokenizer).content, documents)], tool)
    for count in range(len(documents), 0, -1) if documents else [0]:
        text = SYNTAXES[tool.syntax].observation(documents[:count])
        ids = tool.tokenizer(text, add_special_tokens=False)["input_ids"]
        if trajectory.length + len(ids) <= limit:
            trajectory.documents += documents[:count]
            return trajectory.append_observation(ids, text)
    trajectory.finish = "length"


def samples(
    trajectory: Trajectory, reward: float, role: Hashable, group: Hashable, rows: str
) -> list[Sample]:
    """A trajectory as loss rows: one "trajectory", or one for each "turn" of the policy.

    A turn's prompt is what it was asked with, `info["turn"]` its number; only the last can be
    truncated.
    """
    whole = trajectory.sample(reward, role, group)
    if rows == "trajectory":
        return [whole]
    ends = accumulate(len(list(tokens)) for _, tokens in groupby(whole.mask))
    spans = [(start, end) for start, end in pairwise([0, *ends]) if whole.mask[start]]
    before = [(*whole.prompt_ids, *whole.completion_ids[:start]) for start, _ in spans]
    return [
        replace(
            whole,
            prompt_ids=(trajectory.contexts or before)[turn],
            completion_ids=whole.completion_ids[start:end],
            mask=whole.mask[start:end],
            logps=tuple(trajectory.logps[start:end]),
            truncated=whole.truncated and end == len(whole.mask),
            info={**whole.info, "turn": turn},
        )
        for turn, (start, end) in enumerate(spans)
    ]


def first_turns(rows: Sequence[Sample]) -> list[Sample]:
    """One row a trajectory."""
    return [row for row in rows if not row.info.get("turn")]


def as_first_turns(rows: Sequence[Sample], name: str) -> None:
    """Gives rows of further turns what the row of their trajectory's first turn has."""
    for before, row in pairwise(rows):
        if row.info.get("turn"):
            setattr(row, name, getattr(before, name))
