"""SPELL's questions on their way through a step: what was written, judged and paid.

    question = Question("journey", documents, proposal=proposal, answers=..., judgments=...)
    question.settle(Rules())        # eq. 4 to 7

The oracle's numbers (`facts`, `numbers`) are for the log alone: no reward reads them.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from spnb.core import prompts, rewards
from spnb.core.grading import read_answer
from spnb.core.types import Sample, Trajectory
from spnb.corpus.clusters import TYPES, Proposal
from spnb.lab import clusters
from spnb.lab.ladder import Source

Mapping = Literal["gaussian", "absolute_zero", "r_zero"]
BAD_FORMAT, UNGROUNDED = -1.0, -0.5
"""What a questioner gets for a wrong form, and for a question answered without documents."""


@dataclass(frozen=True)
class Rules:
    """How a question is settled: the paper's way by default, the code's by other values."""

    judge: Literal["rule", "oracle"] = "rule"
    tie: Literal["no", "first"] = "no"
    malformed: Literal["ignored", "penalised"] = "ignored"
    mapping: Mapping = "gaussian"
    sigma: float = 1 / 6

    def map(self, success: float) -> float:
        """What a mean reward of responders pays the questioner (eq. 7); 0 at 0 and 1."""
        if success in (0.0, 1.0):
            return 0.0
        options = {"sigma": self.sigma} if self.mapping == "gaussian" else {}
        return float(getattr(rewards, self.mapping)(success, **options))


def majority(votes: Sequence[bool | None], rules: Rules) -> bool | None:
    """The verdict of several judgments (eq. 4): yes where more than half of the votes are yes.

    A judgment that is neither yes nor no (None) is no vote; where it is `penalised`, it is a label
    of its own. With tie "first" (released code) the most frequent label wins, of equally frequent
    ones the one seen first. None: there is no verdict, the rule decides alone.
    """
    labels = [vote for vote in votes if vote is not None or rules.malformed == "penalised"]
    if rules.tie == "first":
        return max(labels, key=labels.count, default=None)
    return labels.count(True) > len(labels) / 2 if labels else None


@dataclass(eq=False)
class Question:
    """One proposal, or one static question, with its answers and judgments.

    Attributes:
        trajectory: the questioner's, None for a static question.
        proposal: None where the form is wrong.
        read: places of the new documents that the questioner read.
        rule, votes, verdicts: of each answer: whether the rule finds it right, its judgments, their
            majority (None without a verdict).
        success: the mean reward of the answers, r-bar.
    """

    family: str
    documents: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    cluster: str = ""
    trajectory: Trajectory | None = None
    proposal: Proposal | None = None
    read: tuple[int, ...] = ()
    grounded: bool = True
    answers: list[Trajectory] = field(default_factory=list)
    judgments: list[list[Trajectory]] = field(default_factory=list)
    rule: list[bool] = field(default_factory=list)
    votes: list[list[bool | None]] = field(default_factory=list)
    verdicts: list[bool | None] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    success: float = 0.0
    pay: float = BAD_FORMAT

    @property
    def mixed(self) -> bool:
        """Whether its answers have different rewards: only then can they be compared."""
        return len(set(self.rewards)) > 1

    def settle(self, rules: Rules) -> None:
        """Sets rule, verdicts, rewards, success and pay from the answers and judgments."""
        if self.proposal is None or not self.grounded:
            self.pay = UNGROUNDED if self.proposal else BAD_FORMAT
            return
        agrees = clusters.same_meaning if rules.judge == "oracle" else clusters.agrees
        texts = [read_answer(answer.policy_text) for answer in self.answers]
        self.rule = [agrees(self.family, text, self.proposal) for text in texts]
        self.votes = [[prompts.verdict(one.policy_text) for one in of] for of in self.judgments]
        self.verdicts = [majority(votes, rules) for votes in self.votes]
        self.verdicts = self.verdicts or [None] * len(self.answers)
        pairs = zip(self.rule, self.verdicts, strict=True)
        self.rewards = [float(max(rule, bool(verdict))) for rule, verdict in pairs]
        self.success = fmean(self.rewards)
        self.pay = rules.map(self.success)

    def judged(self, rules: Rules) -> list[list[float]]:
        """The rewards of all judgments (eq. 5): 1 for agreeing with the majority.

        A judgment that is neither yes nor no gets 0, or -1 where it is `penalised`.
        """
        other = -1.0 if rules.malformed == "penalised" else 0.0
        return [
            [other if vote is None else float(vote == verdict) for vote in votes]
            for votes, verdict in zip(self.votes, self.verdicts, strict=bool(self.votes))
        ]

    def disputed(self, place: int, consistent: bool) -> bool:
        """Whether the judgments of an answer can teach the verifier: they differ, more than half of
        those that are yes or no agree, and, where it has to be `consistent`, with the rule."""
        votes = [vote for vote in self.votes[place] if vote is not None]
        verdict = self.verdicts[place]
        split = len(set(votes)) > 1 and max(map(votes.count, votes)) > len(votes) / 2
        return split and (not consistent or verdict == self.rule[place])

    def truth(self) -> tuple[int, str] | None:
        """The level and the true answer by the oracle; None where there is none."""
        if self.proposal is None or not self.sources:
            return None
        return clusters.truth(self.family, self.proposal, self.sources)

    def facts(self) -> dict[str, float]:
        """What the log and the records say of it."""
        facts = {"success": self.success, "pay": self.pay}
        truth = self.truth()
        if truth and self.proposal:
            right = clusters.states(self.family, self.proposal.answer, truth[1])
            facts |= {"level": float(truth[0]), "right": float(right)}
        return facts


def judged_by_oracle(questions: Sequence[Question]) -> dict[str, float]:
    """How often rule and verdict differ, also by task type, and how often each is wrong by the
    oracle, which knows no corpus.

    False yes: of answers that mean something else than the stated one; false no: of those that mean
    the same.
    """
    rows = []
    for question in questions:
        for answer, rule, verdict in zip(
            question.answers, question.rule, question.verdicts, strict=False
        ):
            text = read_answer(answer.policy_text)
            if question.proposal and text is not None:
                same = clusters.same_meaning(question.family, text, question.proposal)
                rows.append((same, rule, bool(verdict), verdict is not None, question.family))
    numbers: dict[str, float] = {}
    verified = [row for row in rows if row[3]]
    if verified:
        numbers["disagreement"] = fmean(rule != verdict for _, rule, verdict, *_ in verified)
    for family, name in TYPES.items():
        if of := [rule != verdict for _, rule, verdict, _, each in verified if each == family]:
            numbers[f"disagreement/{name}"] = fmean(of)
    if not all(question.sources for question in questions):
        return numbers
    for name, at, of in (("rule", 1, rows), ("verifier", 2, verified)):
        yes = [row[at] for row in of if not row[0]]
        no = [not row[at] for row in of if row[0]]
        numbers |= {f"{name} false yes": fmean(yes)} if yes else {}
        numbers |= {f"{name} false no": fmean(no)} if no else {}
    return numbers


def numbers(questions: Sequence[Question]) -> dict[str, float]:
    """A step's metrics: what became of its questions, and what the oracle says of them.

    Shares of all questions: bad format, ungrounded, answered, mixed; `valid/<type>`: a type's share
    of the answered ones. Over the answered ones: success, level, right (the stated answer is true),
    answerable (there is a true answer); malformed: judgments that are neither yes nor no.
    """
    count = len(questions)
    answered = [question for question in questions if question.rewards]
    metrics: dict[str, float] = {"questions": float(count)}
    if any(question.trajectory for question in questions):
        metrics["bad format"] = sum(q.proposal is None for q in questions) / count
        metrics["ungrounded"] = sum(not q.grounded for q in questions) / count
    metrics["mixed"] = sum(q.mixed for q in questions) / count
    metrics["answered"] = len(answered) / count
    if answered:
        for family, name in TYPES.items():
            metrics[f"valid/{name}"] = fmean(q.family == family for q in answered)
        facts = [question.facts() for question in answered]
        metrics["answerable"] = fmean("level" in one for one in facts)
        for key in ("success", "pay", "level", "right"):
            if values := [one[key] for one in facts if key in one]:
                metrics[key] = fmean(values)
        votes = [vote for question in answered for of in question.votes for vote in of]
        if votes:
            metrics["malformed"] = fmean(vote is None for vote in votes)
        metrics |= judged_by_oracle(answered)
    return {f"method/{key}": value for key, value in metrics.items()}


def token_mean(groups: Sequence[Sequence[Sample]], rows: int) -> None:
    """Sets weights that turn a mean over `rows` rows' token means into eq. 12.

    Each group is the mean over all of its tokens; groups count alike. The result is the mean over
    groups: weight = the row's share of its group's tokens, times rows / groups.
    """
    for group in groups:
        tokens = sum(sum(sample.mask) for sample in group)
        for sample in group:
            sample.weight = sum(sample.mask) / max(tokens, 1) * rows / len(groups)


def dynamic_sampling(
    questions: Sequence[Question],
    kept: Sequence[Question],
    verifier_groups: int,
    consistent: bool,
    penalised: bool,
    rng: random.Random,
) -> tuple[set[int], set[tuple[int, int]]]:
    """Places of the questioners and (question, answer) of the verifier groups that are trained.

    Questioners: those of the kept questions, and as many of each task type that pay nothing or less
    (wrong form unless it is not `penalised`, not grounded, all answers alike); where a type has too
    few, others fill up. Verifiers: so many groups of disputed answers, see `Question.disputed`.
    """
    positive = [place for place, question in enumerate(questions) if question in kept]
    pool = [
        place
        for place, question in enumerate(questions)
        if not question.mixed and (penalised or question.proposal)
    ]
    rng.shuffle(pool)
    wanted = Counter(questions[place].family for place in positive)
    negative = []
    for place in pool:
        if wanted[questions[place].family] > 0:
            wanted[questions[place].family] -= 1
            negative.append(place)
    others = [place for place in pool if place not in negative]
    negative += others[: len(positive) - len(negative)]
    disputed = [
        (place, number)
        for place in positive
        for number in range(len(questions[place].votes))
        if questions[place].disputed(number, consistent)
    ]
    judged = rng.sample(disputed, min(verifier_groups, len(disputed)))
    return {*positive, *negative}, set(judged)


def permute_rewards(samples: Sequence[Sample], rng: random.Random) -> None:
    """The control: each role's rewards go to any of its rows."""
    for role in dict.fromkeys(sample.role for sample in samples):
        rows = [sample for sample in samples if sample.role == role]
        rewards = rng.sample([row.reward for row in rows], len(rows))
        for row, reward in zip(rows, rewards, strict=True):
            row.reward = reward
