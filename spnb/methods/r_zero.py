"""R-Zero: challenger and reasoner on two sets of weights, trained in turn (Huang et al. 2025).

The challenger writes questions from nothing. Nobody knows the answers: the most frequent one of the
reasoner's K answers is taken for right. The challenger is paid 1 - 2|p - 1/2|, where p is the share
of answers that agree with it, less the share of the step's questions that are near to its own (BLEU
clusters), and not below 0. The reasoner trains on questions with p within 1/2 ± `AGREEMENT`.

Both are compared as in GRPO. SPICE's table 5 has 4 attempts, 5 answers, -1 for what is not valid.
(R-Zero's released code pays min(p, 1 - p) less the share, and below 0 too.) A stage of the run
decides which of the two learns in a step.
"""

from collections.abc import Sequence
from dataclasses import replace

from spnb.core.episodes import Episode
from spnb.core.method import place_of
from spnb.core.types import Sample, derive_seed
from spnb.corpus.segments import GRADES
from spnb.evaluate.diversity import shares
from spnb.methods.challenger_reasoner import Attempt, ChallengerReasoner, share_right
from spnb.methods.challenger_reasoner import Params as Params

AGREEMENT = 0.25


class Method(ChallengerReasoner):
    """R-Zero; `labels` among its metrics: the share of labels that the oracle finds right."""

    estimator = "group_zscore"

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """One step of the stage that is on: questions, answers, labels by majority, pay."""
        params = self.params
        seed = self.step_seed(step)

        # 1 Challenger: G attempts at a question, given a type of answer.
        contexts = yield from self.draw(self.share.of(params.documents_per_step), seed)
        groups = yield from self.propose(contexts, params.group_size, derive_seed(seed, "write"))

        # 2 Reasoner: K answers to each valid question; the most frequent one is its label.
        attempts = [attempt for group in groups for attempt in group]
        valid = [attempt for attempt in attempts if attempt.task]
        answers = yield from self.answer(valid, seed)

        # 3 Pay the challenger: uncertainty, less repetition.
        rank = self.share.rank
        every = self.share.gather([(rank, attempt.task.question) for attempt in valid])
        near = zip(every, shares([question for _, question in every]), strict=True)
        repeated = [share for (of, _), share in near if of == rank]
        for attempt, share in zip(valid, repeated, strict=True):
            attempt.pay = max(0.0, self.reward(attempt) - share)
        samples = self.challenger_rows(groups)

        # 4 Pay the reasoner: agreement with the label, where this is neither sure nor rare.
        for attempt, rows in zip(valid, answers, strict=True):
            kind = GRADES[attempt.context.kind]
            trained = abs(attempt.agreement - 0.5) <= AGREEMENT + 1e-9
            for sample in rows:
                sample.reward = share_right([sample.info["answer"]], attempt.label, kind)
                sample.info["label"] = attempt.label
                sample.weight = float(trained)
            samples += rows
        self.log_tasks(attempts, valid, labels=self.right_labels(valid))

        # 5 The stage's policy learns.
        learner, *_ = place_of(params, step)
        for sample in samples:
            sample.weight *= learner in (None, sample.policy)
        return samples

    def right_labels(self, valid: Sequence[Attempt]) -> float:
        """The share of labels that the oracle finds right."""
        labelled = [(replace(a.task, answer=a.label or ""), a.context) for a in valid]
        judgements = [self.source.judge(task, context) for task, context in labelled]
        right = sum(judgement is not None and judgement.right for judgement in judgements)
        return right / max(1, len(valid))
