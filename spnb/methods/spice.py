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
methods of the paper's table 1: `spnb.methods.r_zero`, `spnb.methods.absolute_zero`.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core.episodes import Episode, fill
from spnb.core.method import MethodParams
from spnb.core.params import require
from spnb.core.types import Sample, derive_seed
from spnb.lab import segments
from spnb.lab.segments import HALVES, AnswerType
from spnb.methods import absolute_zero, r_zero
from spnb.methods.spice_prompts import Style
from spnb.methods.spice_tasks import Attempt, Pay, Source, Tasks

ALGORITHMS = {"r_zero": r_zero.rollout, "absolute_zero": absolute_zero.rollout}


class Params(MethodParams):
    """SPICE's own parameters; defaults are the paper's (section 3.1, table 5).

    `corpus` names halves of the testbed's corpus, or corpora by path; without any the challenger
    writes from nothing. `writer: oracle` is the strong challenger. The control `reward: random`
    permutes what valid tasks pay, and the answers' rewards, within each step. R-Zero takes stages
    (`challenger`, `policy` in turn) and a policy of this name.
    """

    role_names = ("challenger", "reasoner")

    algorithm: Literal["spice", "r_zero", "absolute_zero"] = "spice"
    corpus: list[str] = list(HALVES)
    documents: int = Field(20_000, ge=1, description="of the testbed's corpus")
    segment_tokens: int = Field(5992, ge=1, description="of a segment at most")
    documents_per_step: int = Field(128, ge=1, description="B")
    attempts: int = Field(1024, ge=1, description="N: attempts on a document at most")
    group_size: int = Field(8, ge=1, description="G: attempts that are paid, on one document")
    answers: int = Field(8, ge=2, description="K: to each valid task")
    task_types: list[AnswerType] = Field(["choice", "integer", "expression", "string"])
    selection: Literal["drawn", "asked"] = "drawn"
    writer: Literal["policy", "oracle"] = "policy"
    prompts: Style = "plain"
    pay: Pay = "variance"
    invalid_reward: float = Field(-0.1, le=0)
    reward: Literal["rule", "random"] = "rule"
    agreement: float = Field(0.25, ge=0, le=0.5, description="R-Zero: trained within 1/2 ± this")
    references: int = Field(0, ge=0, description="Absolute Zero: earlier programs in a prompt")
    eval_items: int = Field(64, ge=1, description="held-out questions of each level and suite")
    eval_tasks: int = Field(128, ge=1, description="held-out documents to write tasks on")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        message = f"task_types is {self.task_types}; allowed: one or more, each once"
        require(self.task_types and len(set(self.task_types)) == len(self.task_types), message)
        message = f"corpus is {self.corpus}; allowed: each once"
        require(len(set(self.corpus)) == len(self.corpus), message)
        known = [half for half in self.corpus if half in HALVES]
        kinds = [kind for half in known for kind in segments.kinds_of(half, self.task_types)]
        message = f"task_types is {self.task_types} with corpus {self.corpus}; allowed: types that"
        require(kinds or not known, f"{message} its documents have")
        frozen = sorted(name for name, role in self.roles.items() if role.trainable is False)
        message = f"roles {frozen} do not learn; allowed: one that does"
        require(len(frozen) < len(self.role_names), message)
        message = f"writer is {self.writer} with corpus {self.corpus}; allowed: {list(HALVES)}"
        require(self.writer == "policy" or (known and known == self.corpus), message)
        message = f"attempts is {self.attempts}; allowed: group_size ({self.group_size}) or more"
        require(self.attempts >= self.group_size, message)
        pay = {"r_zero": "r_zero", "absolute_zero": "absolute_zero"}.get(self.algorithm, self.pay)
        message = f"pay is {self.pay} with algorithm {self.algorithm}; allowed: {pay}"
        require(self.pay == pay, message)
        stages = {stage.policy for stage in getattr(self, "stages", None) or []}
        message = f"stages train {sorted(stages)} with r_zero; allowed: {list(r_zero.POLICIES)}"
        alone = self.algorithm != "r_zero" or not hasattr(self, "stages")
        require(alone or stages == set(r_zero.POLICIES), message)
        return self


class Method(Tasks):
    """SPICE, and what it is compared with.

    Metrics: `valid` (share of attempts); of the answered tasks what `task_numbers` says: the
    oracle's judgement, level, p, pay, diversity.
    """

    Params = Params

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Algorithm 1, or another algorithm's rollout."""
        params = self.params
        if params.algorithm in ALGORITHMS:
            return (yield from ALGORITHMS[params.algorithm](self, step))
        seed = derive_seed(params.seed, "train", step, self.share.rank)
        rng = random.Random(seed)
        count = max(1, self.share.of(params.documents_per_step))

        # 1 Sample documents, and the type of answer for each.
        sources = yield from self.draw(count, seed)

        # 2 Challenger: attempts with the document, until each has a valid task.
        if params.writer == "oracle":
            written = [[self.oracle(source, rng)] for source in sources]
        else:
            written = yield from self.write(sources, seed)

        # 3 Keep G of them, valid and invalid in proportion.
        groups = [kept(group, params.group_size, rng) for group in written]

        # 4 Reasoner: K answers to each valid task, from the question alone.
        valid = [one for group in groups for one in group if one.written]
        answers = yield from self.answer(valid, seed)

        # 5 Pay both roles.
        for one in valid:
            one.pay = self.value(one)
        self.note([one for group in written for one in group], valid)
        if params.reward == "random":
            self.permute(valid, answers, rng)
        paid = [row for place, group in enumerate(groups) for row in self.paid(group, place)]

        # 6 One valid task of each document trains the reasoner.
        self.choose(groups, valid, answers, rng)
        return paid + [sample for rows in answers for sample in rows]

    def write(self, sources: Sequence[Source], seed: int) -> Episode[list[list[Attempt]]]:
        """Rounds of G attempts on each document that has no valid task yet, N in all; a challenger
        that does not learn makes one at a time."""
        params = self.params
        size = params.group_size if self.roles["challenger"].trainable else 1
        written: list[list[Attempt]] = [[] for _ in sources]

        def play_round(number: int, missing: Mapping[int, int]) -> Episode[dict[int, list[Any]]]:
            places = [place for place, count in missing.items() if count]
            copies = min(size, params.attempts - number * size)
            asked = [sources[place] for place in places]
            groups = yield from self.attempt(asked, copies, derive_seed(seed, "write", number))
            for place, group in zip(places, groups, strict=True):
                written[place] += group
            pairs = zip(places, groups, strict=True)
            return {place: [one for one in group if one.written] for place, group in pairs}

        rounds = math.ceil(params.attempts / size)
        yield from fill(play_round, dict.fromkeys(range(len(sources)), 1), rounds)
        return written

    def oracle(self, source: Source, rng: random.Random) -> Attempt:
        """The strong challenger's task: right, self-contained, of any level that there is."""
        entries = [
            entry
            for entry in segments.read_segment(source.text or "")
            if source.answer_type in segments.KINDS[entry.kind].types
        ]
        if not entries:
            return Attempt(source, None, None)
        entry = rng.choice(entries)
        level = rng.randint(1, len(entry.steps))
        written = segments.write_task(entry, level, source.answer_type, rng)
        return self.judge(Attempt(source, None, written))

    def permute(
        self, valid: Sequence[Attempt], answers: Sequence[Sequence[Sample]], rng: random.Random
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
        self,
        groups: Sequence[Sequence[Attempt]],
        valid: Sequence[Attempt],
        answers: Sequence[Sequence[Sample]],
        rng: random.Random,
    ) -> None:
        """Gives weight 0 to all answers but those to one valid task of each document."""
        rows = {id(one): samples for one, samples in zip(valid, answers, strict=True)}
        for group in groups:
            tasks = [one for one in group if one.written]
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
    valid = [place for place, one in enumerate(attempts) if one.written]
    invalid = [place for place, one in enumerate(attempts) if not one.written]
    share = math.floor(size * len(valid) / len(attempts) + 0.5)
    count = max(share, min(1, len(valid)))
    places = rng.sample(valid, count) + rng.sample(invalid, size - count)
    return [attempts[place] for place in sorted(places)]
