"""Questions that a proposer asks about documents: which are valid, what they pay, and numbers about
many of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spnb.core import prompts
from spnb.core.stats import mean_interval
from spnb.core.types import Completion, Request
from spnb.testbed import oracle
from spnb.testbed.oracle import MAX_HOPS, Query
from spnb.testbed.tasks import questions_of
from spnb.testbed.texts import Fact

SIGMA = 1 / 6


@dataclass(frozen=True)
class Context:
    """Documents to ask about, and all facts that they state."""

    documents: tuple[str, ...]
    stated: tuple[Fact, ...]


@dataclass
class Proposal:
    """A proposed question about context number `context`; `query` and `gold` are None where it is
    not valid.

    `success` is p once a solver has answered. Questions that the oracle draws have no request and
    no completion.
    """

    context: int
    question: str = ""
    query: Query | None = None
    gold: str | None = None
    success: float = math.nan
    request: Request | None = None
    completion: Completion | None = None

    @property
    def valid(self) -> bool:
        """Whether it can be asked."""
        return self.gold is not None

    @property
    def hops(self) -> int:
        """Relations to follow, 1 for a question about figures; 0 where it is not valid."""
        return max(1, len(self.query.nouns)) if self.query else 0

    @property
    def key(self) -> tuple[int, str]:
        """Equal for equal questions about the same documents."""
        return self.context, self.question


def read_proposal(text: str, stated: Sequence[Fact]) -> tuple[str, Query, str] | None:
    """Question, query and gold answer of a valid proposal, None for any other.

    Valid: `<question>` parses, the stated facts have one answer to it, `<answer>` is it, and the
    way to it comes back to no entity. White space is made plain, so that odd spacing makes no
    question new or hard.
    """
    question, given = (
        " ".join((prompts.field(text, "question") or "").split()),
        prompts.field(text, "answer"),
    )
    query = oracle.parse(question)
    gold = oracle.answer_from(query, stated) if query else None
    if query is None or gold is None or given is None or not oracle.same(gold.text, given):
        return None
    met = [gold.facts[0][0], *(value for _, _, value in gold.facts)]
    return None if query.op == "path" and len(set(met)) < len(met) else (question, query, gold.text)


def difficulty_reward(success: float) -> float:
    """exp(-18 (p - 1/2)^2): 1 at p = 1/2, 0.325 at 1/4; 0 where nobody or everybody is right."""
    return 0.0 if success in (0.0, 1.0) else math.exp(-((success - 0.5) ** 2) / (2 * SIGMA**2))


def draw_question(
    place: int, context: Context, hops: int, rng: random.Random, frames: Sequence[str]
) -> Proposal:
    """A valid question about a context: one of all with so many hops."""
    query, gold = rng.choice(questions_of(context.documents, hops))
    return Proposal(place, oracle.ask(query, rng.choice(frames)), query, gold.text)


def nearest_frontier(
    contexts: Sequence[Context], proposals: Sequence[Proposal], count: int
) -> list[tuple[Context, Proposal]]:
    """The `count` different valid questions that pay most, each with its documents; of equal ones
    the newest first."""
    asked = {proposal.key: proposal for proposal in proposals if proposal.valid}.values()
    best = sorted(asked, key=lambda proposal: -difficulty_reward(proposal.success))[:count]
    return [(contexts[p.context], replace(p, request=None, completion=None)) for p in best]


def distinct_share(proposals: Sequence[Proposal]) -> float:
    """Different things asked for, whatever their words, among the valid proposals of each context
    together."""
    return len({(p.context, p.query) for p in proposals}) / len(proposals)


def proposal_metrics(proposals: Sequence[Proposal], hard_hops: int) -> dict[str, float]:
    """Numbers of a step's proposals.

    valid (share of all), questions (different valid ones, each answered by the solver); of the
    valid ones: success (mean p), difficulty_reward (mean of what the difficulty pays, in the
    control too), hops_mean, hard_share (`hard_hops` or more), distinct, hops/<n> (share with n
    hops).
    """
    valid = [proposal for proposal in proposals if proposal.valid]
    found = {
        "method/valid": len(valid) / len(proposals),
        "method/questions": float(len({p.key for p in valid})),
    }
    if valid:
        count = len(valid)
        found |= {
            "method/success": sum(p.success for p in valid) / count,
            "method/difficulty_reward": sum(difficulty_reward(p.success) for p in valid) / count,
            "method/hops_mean": sum(p.hops for p in valid) / count,
            "method/hard_share": sum(p.hops >= hard_hops for p in valid) / count,
            "method/distinct": distinct_share(valid),
        }
        found |= {
            f"method/hops/{n}": sum(p.hops == n for p in valid) / count
            for n in range(1, MAX_HOPS + 1)
        }
    return found


def by_context(proposals: Sequence[Proposal]) -> list[list[Proposal]]:
    """The proposals of each context that has some."""
    found: dict[int, list[Proposal]] = {}
    for proposal in proposals:
        found.setdefault(proposal.context, []).append(proposal)
    return list(found.values())


def mean_row(evaluation: str, metric: str, values: Sequence[float]) -> dict[str, Any]:
    """A mean over contexts with its t-interval; the proposals of one context are no independent
    draws."""
    mean, low, high, n = mean_interval(values)
    return {
        "evaluation": evaluation,
        "metric": metric,
        "value": mean,
        "low": low,
        "high": high,
        "n": n,
    }


def proposal_rows(proposals: Sequence[Proposal], hard_hops: int) -> list[dict[str, Any]]:
    """What is asked about held-out documents, as means over contexts: valid; of the valid ones
    hard, hops, distinct."""
    groups = by_context(proposals)
    valid = by_context([p for p in proposals if p.valid])
    values = {
        "valid": [sum(p.valid for p in group) / len(group) for group in groups],
        "hard": [sum(p.hops >= hard_hops for p in group) / len(group) for group in valid],
        "hops": [sum(p.hops for p in group) / len(group) for group in valid],
        "distinct": [distinct_share(group) for group in valid],
    }
    return [mean_row("proposals", metric, found) for metric, found in values.items()]


def judged_rows(judge: str, proposals: Sequence[Proposal]) -> list[dict[str, Any]]:
    """How hard the valid proposals are for a solver: mean difficulty reward and mean p, as means
    over contexts."""
    groups = by_context([p for p in proposals if p.valid])
    paid = [sum(difficulty_reward(p.success) for p in group) / len(group) for group in groups]
    success = [sum(p.success for p in group) / len(group) for group in groups]
    return [
        mean_row(f"proposals, {judge}", *pair)
        for pair in (("difficulty_reward", paid), ("success", success))
    ]
