"""The proposer study: does a policy that is paid for questions near the solver's frontier keep
them there while the solver learns, and does the solver end better for it?

The proposer reads records of the ladder (the source "lab:ladder") and asks for the first steps of
one; how many is the question's level. The oracle says whether a proposal is valid. The solver
answers each valid question several times; p is its share of right answers. The proposer is paid by
a function of p (`spnb.core.rewards`, SSP's 1 - p where nothing else is said), 0 for what is not
valid, compared with the step's mean. `wrong` of the stated answers are made wrong. The solver
trains on some of the valid questions, as SPICE does: 1 for a right answer, compared with its other
answers to the question.

    spnb run proposer --scale cpu --variant learning --seed 0

Arms are roles and draws: a frozen proposer is `{policy: start, trainable: false}`; `questions`
even or curriculum have no proposer at all. The loss is the sum of each role's mean over its own
rows; `grpo.beta` holds the proposer to its start, and the solver is free of it.
"""

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core.advantages import make_estimator, permute, skip_zero_advantage, sum_of_means
from spnb.core.documents import Proposal, check_source, open_source
from spnb.core.episodes import Episode
from spnb.core.grading import graded
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.plugins import reward, reward_name
from spnb.core.types import Sample, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records, record
from spnb.evaluate.proposals import SUITE, proposal_rows, question_metrics

SOURCE = "lab:ladder"
ROUNDS = 8
"""Most rounds of proposals in a step; each asks for what is still missing."""
PROBE_EVERY = 4
PROBED = 16
"""The curriculum's oracle measures every level at so many steps' distance, on so many answers."""
PAYS = ("gaussian", "variance", "absolute_zero", "r_zero", "threshold", "one_minus")


class Params(MethodParams):
    """The study's own parameters."""

    role_names = ("proposer", "solver")
    asks = {
        "step": "proposals * answers",
        "evaluation": "eval_items * highest + eval_proposals * answers",
    }

    family: Literal["journey", "ledger", "choice", "report"] = "journey"
    highest: int = Field(10, ge=1, le=16, description="levels go from 1 to this one")
    questions: Literal["proposer", "even", "curriculum"] = "proposer"
    levels: list[int] = Field([], description="the only levels that `even` draws; empty: all")
    pay: reward_name(*PAYS) = "one_minus"
    paid: Literal["earned", "shuffled"] = "earned"
    sources: int = Field(2, ge=1, description="that a proposer reads")
    rivals: int = Field(2, ge=0, le=1000, description="notes on somebody else that a solver reads")
    wrong: float = Field(
        0, ge=0, le=1, description="share of stated answers replaced by wrong ones"
    )
    proposals: int = Field(32, ge=1, description="valid questions a step, each answered and paid")
    trained_questions: int = Field(16, ge=1, description="of them that the solver trains on")
    answers: int = Field(8, ge=2, description="to each question")
    eval_items: int = Field(64, ge=1, description="held-out questions of each level")
    eval_proposals: int = Field(64, ge=1, description="proposals about held-out sources")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        proposer = "proposer" not in self.frozen and self.questions == "proposer"
        levels = self.levels
        need = self.need
        need(proposer or "solver" not in self.frozen, "questions roles", "a role that learns")
        need(self.paid == "earned" or proposer, "paid questions roles", "a proposer that learns")
        known = all(1 <= level <= self.highest for level in levels)
        need(known, "levels", f"1 to highest ({self.highest})")
        need(not levels or self.questions == "even", "levels questions", "with questions even")
        most = f"1 to proposals ({self.proposals})"
        need(self.trained_questions <= self.proposals, "trained_questions", most)
        stated = self.questions == "proposer" and self.family != "report"
        need(stated or not self.wrong, "wrong questions family", "with a proposer; not in reports")
        several = self.highest > 1 or self.family == "choice" or not self.wrong
        need(several, "highest wrong", "2 or more: a single step has no other order")
        check_source(SOURCE, self)
        return self

    @property
    def eval_sampling(self) -> Sampling:
        """Held-out questions are answered at temperature 1."""
        return Sampling(self.max_new_tokens)


@dataclass
class Attempt:
    """What a proposer wrote, or a drawn question, which has no trajectory: the task as the solver
    gets it (None: not valid), whether its stated answer was made wrong, p once it is answered, what
    p pays."""

    trajectory: Trajectory | None
    task: Task | None
    wrong: bool = False
    success: float = 0.0
    pay: float = 0.0

    def facts(self) -> dict[str, float]:
        """Of a valid question its level (how many steps it asks for), p and pay."""
        return {"level": self.task.info["level"], "success": self.success, "pay": self.pay}


class Method(SelfPlayMethod):
    """Proposer and solver on one policy; metrics are those of `question_metrics`, the share of
    valid proposals, and the answers that solvers gave in the step."""

    Params = Params
    stateful = ("shares",)

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.source: Any = open_source(SOURCE, params, tokenizer)
        self.shares = [0.5] * params.highest  # of right answers at each level, for the curriculum

    def default_roles(self) -> dict[str, Role]:
        """Both learn: proposals are compared within a step, answers within a question."""
        sampling = self.params.sampling
        return {
            "proposer": Role(sampling, make_estimator("batch_mean")),
            "solver": Role(sampling, make_estimator("group_zscore"), kl=False),
        }

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Proposals, answers, pay; which questions the solver trains on."""
        params = self.params
        seed = self.step_seed(step)
        rng = random.Random(seed)

        # 1 Propose until there are enough valid questions, or 2 draw them.
        proposals: list[Attempt] = []
        self.probed = 0
        if params.questions == "proposer":
            proposals = yield from self.propose(self.share.of(params.proposals), seed)
            questions = [attempt for attempt in proposals if attempt.task]
        else:
            count = self.share.of(params.trained_questions)
            questions = yield from self.draw(count, step, seed)

        # 3 Answer and verify.
        answers = yield from self.solve(questions, seed)

        # 4 Pay; in the control the same pay goes to any valid proposal.
        rows = [row(attempt) for attempt in proposals]
        if params.paid == "shuffled":
            permute([sample for sample in rows if not sample.invalid], rng)

        # 5 Choose what the solver trains on.
        count = min(self.share.of(params.trained_questions), len(questions))
        self.chosen = set(rng.sample(range(len(questions)), count))
        self.log(**question_metrics([question.facts() for question in questions]))
        self.log(answers=len(questions) * params.answers + self.probed)
        if proposals:
            self.log(valid=len(questions) / len(proposals))
        self.log(**pay_metrics(questions))
        return rows + answers

    def propose(self, count: int, seed: int) -> Episode[list[Attempt]]:
        """Rounds of proposals until `count` are valid, so that every arm has its full quota."""
        proposals: list[Attempt] = []
        for number in range(ROUNDS):
            missing = count - sum(attempt.task is not None for attempt in proposals)
            new = yield from self.ask(max(0, missing), "train", derive_seed(seed, "round", number))
            proposals += new
        return proposals

    def ask(self, count: int, pool: str, seed: int) -> Episode[list[Attempt]]:
        """`count` proposals, each about sources of its own; with a valid one come the notes that a
        solver reads."""
        rng = random.Random(derive_seed(seed, "sources"))
        contexts = [self.source.draw(rng, place, pool) for place in range(count)]
        prompts = [self.source.ask(context) for context in contexts]
        groups = yield from self.sample("proposer", prompts, 1, partial(derive_seed, seed, "ask"))
        attempts = []
        for context, (trajectory,) in zip(contexts, groups, strict=True):
            proposal = self.source.read(trajectory.policy_text, context)
            valid = isinstance(proposal, Proposal)
            task = self.source.task(proposal, context) if valid else None
            attempts.append(Attempt(trajectory, task))
        if pool == "train":
            self.misstate([attempt for attempt in attempts if attempt.task], seed)
        return attempts

    def misstate(self, attempts: Sequence[Attempt], seed: int) -> None:
        """Makes the stated answer of each valid question wrong with the chance `wrong`."""
        rng = random.Random(derive_seed(seed, "wrong"))
        for attempt in attempts:
            attempt.wrong = rng.random() < self.params.wrong
            if attempt.wrong:
                attempt.task = self.source.misstated(attempt.task, rng)

    def draw(self, count: int, step: int, seed: int) -> Episode[list[Attempt]]:
        """Questions without a proposer: of even levels, or of levels with mixed answers."""
        params = self.params
        rng = random.Random(derive_seed(seed, "drawn"))
        levels = params.levels or range(1, params.highest + 1)
        weights = [1.0] * len(levels)
        if params.questions == "curriculum":
            if step % PROBE_EVERY == 0:
                yield from self.probe(seed)
            weights = [max(p * (1 - p), 1e-4) ** 2 for p in self.shares]
        drawn = rng.choices(levels, weights, k=count)
        return [Attempt(None, self.source.exercise(level, rng)) for level in drawn]

    def probe(self, seed: int) -> Episode[None]:
        """Measures the solver's share of right answers at every level, on questions of its own."""
        rng = random.Random(derive_seed(seed, "probe"))
        levels = range(1, self.params.highest + 1)
        tasks = [self.source.exercise(level, rng) for level in levels for _ in range(PROBED)]
        right = [sample.reward for sample in (yield from self.answer(tasks, 1, seed, "probe"))]
        self.shares = [sum(right[at : at + PROBED]) / PROBED for at in range(0, len(right), PROBED)]
        self.probed = len(tasks)

    def solve(self, questions: Sequence[Attempt], seed: int) -> Episode[list[Sample]]:
        """Answers to each question as samples; sets its p and what p pays."""
        k = self.params.answers
        tasks = [question.task for question in questions]
        samples = yield from self.answer(tasks, k, seed, "answer")
        for place, question in enumerate(questions):
            question.success = sum(s.reward for s in samples[place * k : (place + 1) * k]) / k
            question.pay = float(reward(self.params.pay)(question.success))
        return samples

    def answer(self, tasks: Sequence[Task], copies: int, *seed: Hashable) -> Episode[list[Sample]]:
        """Graded answers of the solver to each task."""
        prompts = [task.messages for task in tasks]
        groups = yield from self.sample("solver", prompts, copies, partial(derive_seed, *seed))
        return graded(tasks, groups, "solver")

    def select(self, samples: Sequence[Sample]) -> None:
        """The mean over the proposer's rows plus the mean over the solver's chosen ones; where each
        has weights of its own, one mean each."""
        parts = []
        for name, role in self.roles.items():
            rows = [sample for sample in samples if sample.role == name]
            for row in rows:
                trained = name == "proposer" or row.group in self.chosen
                row.weight *= trained and role.trainable
            rows = [row for row in rows if row.weight]
            if not (role.kl or self.counts_all(role)):
                skip_zero_advantage(rows, total=self.share.counts)
            parts.append(rows)
        sum_of_means(parts, self.share.counts)

    def suites(self, step: int) -> list[Suite]:
        """Held-out questions of every level, sampled; proposals about held-out sources."""
        ends = step in (0, self.params.steps)
        suites = self.source.suites(self.chat, self.params, ends)
        if self.params.questions == "proposer":
            suites.append(self.proposal_suite())
        return suites

    def proposal_suite(self) -> Suite:
        """Proposals about held-out sources, each answered by the solver as it is."""

        def ask(place: int) -> Episode[Records]:
            seed = self.params.eval_seed("proposals", place)
            (attempt,) = yield from self.ask(1, "heldout", seed)
            if attempt.task is None:
                return [record(SUITE, str(place), 0.0, level=0, success=0.0, pay=0.0)]
            yield from self.solve([attempt], seed)
            return [record(SUITE, str(place), 1.0, **attempt.facts())]

        return Suite(SUITE, range(self.params.eval_proposals), ask, proposal_rows)


def pay_metrics(questions: Sequence[Attempt]) -> dict[str, float]:
    """The share of wrong stated answers, and of all pay the share for questions that teach nothing
    right: those that nobody answers as stated, and those whose stated answer is wrong."""
    if not questions:
        return {}
    idle = [one.pay for one in questions if one.wrong or not one.success]
    paid = sum(one.pay for one in questions)
    wrong = fmean(one.wrong for one in questions)
    return {"wrong": wrong, "idle pay": sum(idle) / paid if paid else 0.0}


def row(attempt: Attempt) -> Sample:
    """A proposal's row, compared with all of the step: what a valid one pays, else 0."""
    facts = attempt.facts() if attempt.task else {}
    return attempt.trajectory.sample(attempt.pay, "proposer", "step", attempt.task is None, **facts)
