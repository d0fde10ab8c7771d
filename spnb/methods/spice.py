"""SPICE: a challenger with the document, a reasoner without it (Liu et al. 2025, algorithm 1).

One policy plays both roles. The challenger reads a segment of a document and writes a task with
its answer; the reasoner sees the question alone. A valid task pays the challenger most where half
of the reasoner's answers are right (eq. 1); a right answer pays the reasoner 1. Both are compared
with the mean of their group (eq. 3 and 4), in one update.

    spnb run spice --scale cpu --variant full --seed 0

There is no public code. What the paper leaves open is decided here: attempts come in rounds of G,
until a document has a valid task or N are used up; of more than G attempts G stay, valid ones in
proportion (`kept`); one of the valid ones, any, trains the reasoner with the same K answers that
paid the challenger. A text that ends with the token limit is not valid. `algorithm` names the other
methods of the paper's table 1 (`METHODS`).
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from spnb.core.documents import Context
from spnb.core.episodes import Episode, fill
from spnb.core.types import Sample, derive_seed
from spnb.methods.challenger_reasoner import Attempt, ChallengerReasoner
from spnb.methods.challenger_reasoner import Params as Params

METHODS = {"r_zero": "spnb.methods.r_zero", "absolute_zero": "spnb.methods.absolute_zero"}
"""Where the `Method` of another `algorithm` is."""


class Method(ChallengerReasoner):
    """SPICE; see `ChallengerReasoner` for its metrics."""

    estimator = "group_mean"

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Algorithm 1."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, self.share.rank)
        rng = random.Random(seed)
        count = max(1, self.share.of(params.documents_per_step))

        # 1 Sample documents, and the type of answer for each.
        contexts = yield from self.draw(count, seed)

        # 2 Challenger: attempts with the document, until each has a valid task.
        if params.writer == "oracle":
            written = [[self.oracle(context, rng)] for context in contexts]
        else:
            written = yield from self.write(contexts, seed)

        # 3 Keep G of them, valid and invalid in proportion.
        groups = [kept(group, params.group_size, rng) for group in written]

        # 4 Reasoner: K answers to each valid task, from the question alone.
        valid = [one for group in groups for one in group if one.task]
        answers = yield from self.answer(valid, seed)

        # 5 Pay both roles.
        for one in valid:
            one.pay = self.reward(one)
        self.log_tasks([one for group in written for one in group], valid)
        if params.reward == "random":
            permute(valid, answers, rng)
        paid = [
            row for place, group in enumerate(groups) for row in self.challenger_rows(group, place)
        ]

        # 6 One valid task of each document trains the reasoner.
        choose(groups, valid, answers, rng)
        return paid + [sample for rows in answers for sample in rows]

    def write(self, contexts: Sequence[Context], seed: int) -> Episode[list[list[Attempt]]]:
        """Rounds of G attempts on each document that has no valid task yet, N in all; a challenger
        that does not learn makes one at a time."""
        params = self.params
        size = params.group_size if self.roles["challenger"].trainable else 1
        written: list[list[Attempt]] = [[] for _ in contexts]

        def play_round(number: int, missing: Mapping[int, int]) -> Episode[dict[int, list[Any]]]:
            places = [place for place, count in missing.items() if count]
            copies = min(size, params.attempts - number * size)
            left = [contexts[place] for place in places]
            groups = yield from self.propose(left, copies, derive_seed(seed, "write", number))
            for place, group in zip(places, groups, strict=True):
                written[place] += group
            pairs = zip(places, groups, strict=True)
            return {place: [one for one in group if one.task] for place, group in pairs}

        rounds = math.ceil(params.attempts / size)
        yield from fill(play_round, dict.fromkeys(range(len(contexts)), 1), rounds)
        return written

    def oracle(self, context: Context, rng: random.Random) -> Attempt:
        """The strong challenger's task."""
        return self.judged(Attempt(context, None, self.source.write(context, rng)))


def permute(
    valid: Sequence[Attempt], answers: Sequence[Sequence[Sample]], rng: random.Random
) -> None:
    """The control: what the step's valid tasks pay, and its answers' rewards, go to anybody."""
    pays = [one.pay for one in valid]
    rng.shuffle(pays)
    for one, pay in zip(valid, pays, strict=True):
        one.pay = pay
    rows = [sample for group in answers for sample in group]
    rewards = [sample.reward for sample in rows]
    rng.shuffle(rewards)
    for sample, reward in zip(rows, rewards, strict=True):
        sample.reward = reward


def choose(
    groups: Sequence[Sequence[Attempt]],
    valid: Sequence[Attempt],
    answers: Sequence[Sequence[Sample]],
    rng: random.Random,
) -> None:
    """Gives weight 0 to all answers but those to one valid task of each document."""
    rows = {id(one): samples for one, samples in zip(valid, answers, strict=True)}
    for group in groups:
        tasks = [one for one in group if one.task]
        chosen = rng.choice(tasks) if tasks else None
        for one in tasks:
            for sample in rows[id(one)]:
                sample.weight = float(one is chosen)


def kept(attempts: Sequence[Attempt], size: int, rng: random.Random) -> list[Attempt]:
    """At most `size` attempts, valid and invalid in proportion, in their order.

    Of v valid ones among n, size * v / n stay, rounded half up, but at least one where there is
    one.
    """
    if len(attempts) <= size:
        return list(attempts)
    valid = [place for place, one in enumerate(attempts) if one.task]
    invalid = [place for place, one in enumerate(attempts) if not one.task]
    share = math.floor(size * len(valid) / len(attempts) + 0.5)
    count = max(share, min(1, len(valid)))
    places = rng.sample(valid, count) + rng.sample(invalid, size - count)
    return [attempts[place] for place in sorted(places)]
