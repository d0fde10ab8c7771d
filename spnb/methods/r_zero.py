"""R-Zero: challenger and reasoner on two sets of weights, trained in turn (Huang et al. 2025).

The challenger writes questions from nothing. Nobody knows the answers: the most frequent one of the
reasoner's K answers is taken for right. The challenger is paid 1 - 2|p - 1/2|, where p is the share
of answers that agree with it, less the share of the step's questions that are near to its own (BLEU
clusters), and not below 0. The reasoner trains on questions with p within 1/2 ± `agreement`.

Both are compared as in GRPO. SPICE's table 5 has 4 attempts, 5 answers, -1 for what is not valid.
(R-Zero's released code pays min(p, 1 - p) less the share, and below 0 too.) A stage of the run
decides which of the two learns in a step.
"""

from collections.abc import Sequence
from dataclasses import replace

from spnb.core.episodes import Episode
from spnb.core.grading import grade
from spnb.core.types import Sample, derive_seed
from spnb.evaluate.diversity import shares
from spnb.lab.segment_oracle import judge
from spnb.lab.segments import GRADES
from spnb.methods.spice_tasks import Attempt, Tasks

POLICIES = ("challenger", "policy")
"""The challenger's weights, and the reasoner's."""


def rollout(method: Tasks, step: int) -> Episode[list[Sample]]:
    """One step of the stage that is on: questions, answers, labels by majority, pay."""
    params = method.params
    seed = derive_seed(params.seed, "train", step, method.share.rank)

    # 1 Challenger: G attempts at a question, given a type of answer.
    count = max(1, method.share.of(params.documents_per_step))
    sources = yield from method.draw(count, seed)
    groups = yield from method.attempt(sources, params.group_size, derive_seed(seed, "write"))

    # 2 Reasoner: K answers to each valid question; the most frequent one is its label.
    every = [one for group in groups for one in group]
    valid = [one for one in every if one.written]
    answers = yield from method.answer(valid, seed)

    # 3 Pay the challenger: uncertainty, less repetition.
    for one, near in zip(valid, shares([one.written.question for one in valid]), strict=True):
        one.pay = max(0.0, method.value(one) - near)
    paid = [sample for place, group in enumerate(groups) for sample in method.paid(group, place)]

    # 4 Pay the reasoner: agreement with the label, where this is neither sure nor rare.
    for one, rows in zip(valid, answers, strict=True):
        relabel(one, rows)
        trained = abs(one.agreement - 0.5) <= params.agreement + 1e-9
        for sample in rows:
            sample.weight = float(trained)
    note(method, every)

    # 5 The stage's policy learns.
    samples = paid + [sample for rows in answers for sample in rows]
    learner = learning(params, step)
    for sample in samples:
        sample.weight *= learner in (None, sample.policy)
    return samples


def relabel(one: Attempt, rows: Sequence[Sample]) -> None:
    """1 for an answer that agrees with the label."""
    kind = GRADES[one.source.answer_type]
    for sample in rows:
        answer = sample.info["answer"]
        agrees = answer is not None and one.label is not None and grade(answer, one.label, kind)
        sample.reward = float(agrees)
        sample.info["label"] = one.label


def note(method: Tasks, attempts: Sequence[Attempt]) -> None:
    """The step's metrics; `labels`: the share of labels that the oracle finds right."""
    valid = [one for one in attempts if one.written]
    labelled = [replace(one.written, answer=one.label or "") for one in valid]
    right = sum(judge(written).right for written in labelled) / max(1, len(valid))
    method.note(attempts, valid, labels=right)


def learning(params: object, step: int) -> str | None:
    """The policy that the stage of a step trains; None without stages."""
    for stage in getattr(params, "stages", []):
        if step < stage.steps:
            return stage.policy
        step -= stage.steps
    return None
