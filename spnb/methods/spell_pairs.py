"""Preference pairs for the baselines of SPELL's table 9 that learn from pairs: LongPO and SoLoPO.

Questions are the oracle's static set. The short context of a question is the document that it is
about (SPELL takes the m documents that its questioner read), the long one all n documents.

- longpo (arXiv 2502.13922, eq. 6 and 7): chosen is the policy's answer from the short context,
  rejected its answer from the long one. LongPO assumes that the first is better; it is not graded.
  The paper decodes greedily (`roles: {responder: {temperature: 0}}`) and drops repetitive answers;
  here a chosen answer that was cut at its limit is dropped.
- solopo (arXiv 2505.11166): of G answers from the short context (32 in the paper, at temperature
  0.85) chosen is one that the judge finds right, rejected one that it finds wrong, the first of
  each (our choice); questions without either give no pair.

The losses are in `spnb.train.preference`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spnb.core.episodes import Episode
from spnb.core.types import Messages, Pair, Trajectory, derive_seed


def make_pairs(method: Any, questions: Sequence[Any], seed: int) -> Episode[list[Pair]]:
    """The pairs of `method.params.alignment` that the responder's answers to static questions give.

    `method` is SPELL's, `questions` its own of the static set.
    """
    params = method.params
    short = [short_prompt(method, question) for question in questions]
    long = [method.prompt(question) for question in questions]

    def answers(asking: Sequence[Messages], k: int, name: str) -> Episode[list[list[Trajectory]]]:
        return method.sample("responder", asking, k, partial(derive_seed, seed, name))

    if params.alignment == "longpo":
        chosen = yield from answers(short, 1, "short")
        rejected = yield from answers(long, 1, "long")
        chances = [(*one, *other) for one, other in zip(chosen, rejected, strict=True)]
    else:
        chances = yield from answers(short, params.group_size, "short")
    sampling = method.roles["responder"].sampling
    pairs = []
    for place, (question, group) in enumerate(zip(questions, chances, strict=True)):
        question.answers = list(group)
        question.settle(params, method.source)
        picked = pick(params.alignment, group, question.rewards)
        if picked:
            ids = [method.chat.request(one[place], sampling, 0).prompt_ids for one in (short, long)]
            answered = [tuple(group[index].completion_ids) for index in picked]
            earned = tuple(question.rewards[index] for index in picked)
            pairs.append(Pair(*ids, *answered, earned))
    return pairs


def short_prompt(method: Any, question: Any) -> Messages:
    """A static question with the documents alone that its person is in."""
    context = question.context
    documents = tuple(context.documents[place] for place in context.places)
    return method.prompt(replace(question, context=replace(context, documents=documents)))


def pick(
    alignment: str, answers: Sequence[Trajectory], rewards: Sequence[float]
) -> tuple[int, int] | None:
    """Places of the chosen and the rejected answer; None where there is no pair."""
    if alignment == "longpo":
        return None if answers[0].finish == "length" else (0, 1)
    if len(set(rewards)) < 2:
        return None
    return rewards.index(1.0), rewards.index(0.0)
