"""Preference pairs for the baselines of SPELL's table 9 that learn from pairs: LongPO and SoLoPO.

Questions are the oracle's static set. The short context of a question is the document that it is
about (SPELL takes the m documents that its questioner read), the long one all n documents.

- longpo (arXiv 2502.13922, eq. 6 and 7): chosen is the policy's answer from the short context,
  rejected its answer from the long one. Nobody looks whether that is so. The paper decodes
  greedily (`roles: {responder: {temperature: 0}}`) and drops repetitive answers; here a chosen
  answer that was cut at its limit is dropped.
- solopo (arXiv 2505.11166): of G answers from the short context (32 in the paper, at temperature
  0.85) chosen is one that the judge finds right, rejected one that it finds wrong, the first of
  each (our choice); questions without either give no pair.

The losses are in `spnb.train.preference`.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from spnb.core.episodes import Episode
from spnb.core.method import Role
from spnb.core.types import Chat, Pair, Task, Trajectory, derive_seed
from spnb.corpus import clusters
from spnb.methods.rlvr import Groups, answer_groups
from spnb.methods.spell_data import static_question
from spnb.methods.spell_questions import Question, Rules


def make_pairs(
    params: Any, chat: Chat, role: Role, tasks: Sequence[Task], seed: int
) -> Episode[list[Pair]]:
    """The pairs of `params.alignment` that a role's answers to static questions give."""
    questions = [static_question(task) for task in tasks]
    short = [asked(question, about(question)) for question in questions]
    long = [asked(question, question.documents) for question in questions]

    def answers(prompts: Sequence[Task], k: int, name: str) -> Episode[Groups]:
        return answer_groups(chat, role, prompts, k, partial(derive_seed, seed, name))

    if params.alignment == "longpo":
        chosen = yield from answers(short, 1, "short")
        rejected = yield from answers(long, 1, "long")
        chances = [(*one, *other) for one, other in zip(chosen, rejected, strict=True)]
    else:
        chances = yield from answers(short, params.group_size, "short")
    pairs = []
    for place, (question, group) in enumerate(zip(questions, chances, strict=True)):
        rewards = graded(question, group, params.rules)
        picked = pick(params.alignment, group, rewards)
        if picked:
            ids = (chat.request(one[place].messages, role.sampling, 0) for one in (short, long))
            answered = (tuple(group[index].completion_ids) for index in picked)
            prompts = (request.prompt_ids for request in ids)
            pairs.append(Pair(*prompts, *answered, tuple(rewards[index] for index in picked)))
    return pairs


def about(question: Question) -> tuple[str, ...]:
    """The documents of a static question that are about its person."""
    name = re.compile(rf"\b{re.escape(question.sources[0].subject)}\b")
    return tuple(text for text in question.documents if name.search(text))


def asked(question: Question, documents: Sequence[str]) -> Task:
    """A question with these documents."""
    return Task(clusters.messages(question.family, question.proposal, documents))


def graded(question: Question, answers: Sequence[Trajectory], rules: Rules) -> list[float]:
    """The judge's rewards of answers to a question."""
    question.answers = list(answers)
    question.settle(rules)
    return question.rewards


def pick(
    alignment: str, answers: Sequence[Trajectory], rewards: Sequence[float]
) -> tuple[int, int] | None:
    """Places of the chosen and the rejected answer; None where there is no pair."""
    if alignment == "longpo":
        return None if answers[0].finish == "length" else (0, 1)
    if len(set(rewards)) < 2:
        return None
    return rewards.index(1.0), rewards.index(0.0)
