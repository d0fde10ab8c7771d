"""SPICE: a challenger with the document, a reasoner without it (Liu et al. 2025, algorithm 1).

One policy plays both roles. The challenger reads a segment of a document and writes a task with
its answer; the reasoner sees the question alone. A valid task pays the challenger most where half
of the reasoner's answers are right (eq. 1); a right answer pays the reasoner 1. Both are compared
with the mean of their group (eq. 3 and 4), in one update.

    spnb run spice --scale cpu --variant full --seed 0

There is no public code. What the paper leaves open is decided here: attempts come in rounds of G,
until a document has a valid task or N are used up; of more than G attempts G stay (`subsample`);
one of the valid ones, any, trains the reasoner with the same K answers that paid the challenger. A
text that ends with the token limit is not valid. `METHODS` has the others of the paper's table 1.
"""

import math
import random
from collections.abc import Sequence
from itertools import chain

from spnb.core.advantages import permute
from spnb.core.documents import Context
from spnb.core.episodes import Episode
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
        seed = self.step_seed(step)
        rng = random.Random(seed)

        # 1 Sample documents, and the type of answer for each.
        contexts = yield from self.draw(self.share.of(params.documents_per_step), seed)

        # 2 Challenger: attempts with the document, until each has a valid task.
        if params.writer == "oracle":
            written = [[self.attempt(x, None, self.source.write(x, rng))] for x in contexts]
        else:
            written = yield from self.write(contexts, seed)

        # 3 Keep G of them, valid and invalid in proportion.
        groups = [subsample(group, params.group_size, rng) for group in written]

        # 4 Reasoner: K answers to each valid task, from the question alone.
        valid = [attempt for group in groups for attempt in group if attempt.task]
        answers = yield from self.answer(valid, seed)
        samples = list(chain.from_iterable(answers))

        # 5 Pay both roles; in the control what they are paid goes to anybody.
        for attempt in valid:
            attempt.pay = self.reward(attempt)
        self.log_tasks(list(chain.from_iterable(written)), valid)
        if params.reward == "random":
            permute(valid, rng, "pay")
            permute(samples, rng)
        paid = self.challenger_rows(groups)

        # 6 One valid task of each document trains the reasoner.
        choose(groups, valid, answers, rng)
        return paid + samples

    def write(self, contexts: Sequence[Context], seed: int) -> Episode[list[list[Attempt]]]:
        """Rounds of G attempts on each document that has no valid task yet, N in all; a challenger
        that does not learn makes one at a time."""
        size = self.params.group_size if self.roles["challenger"].trainable else 1
        written: list[list[Attempt]] = [[] for _ in contexts]
        for number, start in enumerate(range(0, self.params.attempts, size)):
            places = [n for n, group in enumerate(written) if not any(x.task for x in group)]
            copies = min(size, self.params.attempts - start)
            left = [contexts[place] for place in places]
            groups = yield from self.propose(left, copies, derive_seed(seed, "write", number))
            for place, group in zip(places, groups, strict=True):
                written[place] += group
        return written


def choose(
    groups: Sequence[Sequence[Attempt]],
    valid: Sequence[Attempt],
    answers: Sequence[Sequence[Sample]],
    rng: random.Random,
) -> None:
    """Gives weight 0 to all answers but those to one valid task of each document."""
    rows = {id(attempt): samples for attempt, samples in zip(valid, answers, strict=True)}
    for group in groups:
        tasks = [attempt for attempt in group if attempt.task]
        chosen = rng.choice(tasks) if tasks else None
        for attempt in tasks:
            for sample in rows[id(attempt)]:
                sample.weight = float(attempt is chosen)


def subsample(attempts: Sequence[Attempt], size: int, rng: random.Random) -> list[Attempt]:
    """At most `size` attempts, valid and invalid in proportion, in their order.

    Of v valid ones among n, size * v / n stay, rounded half up, but at least one where there is
    one.
    """
    if len(attempts) <= size:
        return list(attempts)
    valid = [place for place, attempt in enumerate(attempts) if attempt.task]
    invalid = [place for place, attempt in enumerate(attempts) if not attempt.task]
    share = math.floor(size * len(valid) / len(attempts) + 0.5)
    count = max(share, min(1, len(valid)))
    places = rng.sample(valid, count) + rng.sample(invalid, size - count)
    return [attempts[place] for place in sorted(places)]
