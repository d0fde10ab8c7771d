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

A context that leaves no room for an answer gives no pair. The losses are in
`spnb.train.preference`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spnb.core.episodes import Episode
from spnb.core.method import Preference
from spnb.core.types import Messages, Pair, Trajectory, derive_seed

WEIGHTS = {"longpo": 0.01, "solopo": 3.0}
"""lambda of LongPO (eq. 14), alpha of SoLoPO (DPO, Qwen2.5-7B)."""


def preference(params: Any) -> Preference | None:
    """The loss of a run with `alignment`, None of others; `params` are SPELL's."""
    name = params.alignment
    return name and Preference(name, batch=params.groups, beta=0.1, weight=WEIGHTS[name])


def make_pairs(method: Any, attempt: int = 0) -> Episode[list[Pair]]:
    """The pairs of `alignment` that the responder's answers to static questions give; of the
    questions a process takes its share. `method` is SPELL's."""
    params = method.params
    sampling = method.roles["responder"].sampling
    if attempt and not sampling.temperature:
        return []  # the answers would be the same again
    again = (attempt,) if attempt else ()
    seed = derive_seed(params.seed, "pairs", method.share.rank, *again)
    questions = list(map(method.static_question, method.share.part(method.static[0])))
    short = [short_prompt(method, question) for question in questions]
    long = [method.prompt(question) for question in questions]

    def answers(asking: Sequence[Messages], k: int, name: str) -> Episode[list[list[Trajectory]]]:
        return method.sample("responder", asking, k, partial(derive_seed, seed, name))

    if params.alignment == "longpo":
        chosen = yield from answers(short, 1, "short")
        rejected = yield from answers(long, 1, "long")
        groups = [[*first, *second] for first, second in zip(chosen, rejected, strict=True)]
    else:
        groups = yield from answers(short, params.group_size, "short")
    pairs = []
    for *asking, question, group in zip(short, long, questions, groups, strict=True):
        question.answers = group
        question.settle(params, method.source)
        picked = pick(params.alignment, group, question.rewards)
        contexts = [method.chat.request(prompt, sampling, 0).prompt_ids for prompt in asking]
        said = picked and all(any(group[index].mask) for index in picked)
        if said and all(map(method.has_room, contexts)):
            completions = [tuple(group[index].completion_ids) for index in picked]
            rewards = tuple(question.rewards[index] for index in picked)
            pairs.append(Pair(*contexts, *completions, rewards))
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
