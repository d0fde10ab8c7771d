"""The proposer study: does a policy that is paid for questions near the solver's frontier keep
them there while the solver learns, and does the solver end better for it?

The proposer reads records of the ladder (the source "lab:ladder") and asks for the first steps of
one; how many is the question's level. The oracle says whether a proposal is valid. The solver
answers each valid question several times; p is its share of right answers. The proposer is paid by
a function of p (`spnb.core.rewards`, SSP's 1 - p where nothing else is said), 0 for what is not
valid, compared with the step's mean. The solver trains on some of the valid questions,
as SPICE does: 1 for a right answer, compared with its other answers to the question.

    spnb run proposer --scale cpu --variant learning --seed 0

Arms are roles and draws: a frozen proposer is `{policy: start, trainable: false}`; `questions`
even or curriculum have no proposer at all. The loss is the sum of each role's mean over its own
rows; `grpo.beta` holds the proposer to its start, and the solver is free of it.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core.advantages import make_estimator, skip_zero_advantage
from spnb.core.documents import Context, Rejected, open_source
from spnb.core.episodes import Episode, fill
from spnb.core.grading import graded
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.plugins import reward, reward_name
from spnb.core.types import Sample, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records, record
from spnb.evaluate.proposals import SUITE, proposal_rows, question_metrics

ROUNDS = 8
"""Most rounds of proposals in a step; each asks for what is still missing."""
PROBE_EVERY = 4
PROBED = 16
"""The curriculum's oracle measures every level at so many steps' distance, on so many answers."""
PAYS = ("gaussian", "variance", "absolute_zero", "r_zero", "threshold", "one_minus")


class Params(MethodParams):
    """The study's own parameters."""

    role_names = ("proposer", "solver")

    family: Literal["journey", "ledger", "choice", "report"] = "journey"
    highest: int = Field(10, ge=1, le=16, description="levels go from 1 to this one")
    questions: Literal["proposer", "even", "curriculum"] = "proposer"
    levels: list[int] = Field([], description="the only levels that `even` draws; empty: all")
    pay: reward_name(*PAYS) = "one_minus"
    paid: Literal["earned", "shuffled"] = "earned"
    sources: int = Field(2, ge=1, description="that a proposer reads")
    rivals: int = Field(2, ge=0, description="notes on somebody else that a solver reads")
    proposals: int = Field(32, ge=1, description="valid questions a step, each answered and paid")
    trained_questions: int = Field(16, ge=1, description="of them that the solver trains on")
    answers: int = Field(8, ge=2, description="to each question")
    eval_items: int = Field(64, ge=1, description="held-out questions of each level")
    eval_proposals: int = Field(64, ge=1, description="proposals about held-out sources")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        frozen = sorted(name for name, role in self.roles.items() if role.trainable is False)
        proposer = "proposer" not in frozen and self.questions == "proposer"
        levels = self.levels
        need = self.need
        need(proposer or "solver" not in frozen, "questions roles", "a role that learns")
        need(self.paid == "earned" or proposer, "paid questions roles", "a proposer that learns")
        known = all(1 <= level <= self.highest for level in levels)
        need(known, "levels", f"1 to highest ({self.highest})")
        need(not levels or self.questions == "even", "levels questions", "with questions even")
        most = f"1 to proposals ({self.proposals})"
        need(self.trained_questions <= self.proposals, "trained_questions", most)
        return self

    @property
    def eval_sampling(self) -> Sampling:
        """Held-out questions are answered at temperature 1."""
        return Sampling(self.max_new_tokens)


@dataclass
class Question:
    """A valid question: the task as the solver gets it, p once it is answered, what p pays."""

    task: Task
    success: float = 0.0
    pay: float = 0.0

    def facts(self) -> dict[str, float]:
        """Its level (how many steps it asks for), p and pay."""
        return {"level": self.task.info["level"], "success": self.success, "pay": self.pay}


@dataclass
class Attempt:
    """What a proposer wrote; `question` is None where it is not valid."""

    trajectory: Trajectory
    question: Question | None


class Method(SelfPlayMethod):
    """Proposer and solver on one policy; metrics are those of `question_metrics`, the share of
    valid proposals, and the answers that solvers gave in the step."""

    Params = Params

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.source: Any = open_source("lab:ladder", params, tokenizer)
        self.shares = [0.5] * params.highest  # of right answers at each level, for the curriculum

    def default_roles(self) -> dict[str, Role]:
        """Both learn: proposals are compared within a step, answers within a question."""
        sampling = self.params.sampling
        return {
            "proposer": Role(sampling, make_estimator("group_mean")),
            "solver": Role(sampling, make_estimator("group_zscore"), kl=False),
        }

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Proposals, answers, pay; which questions the solver trains on."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, self.share.rank)
        rng = random.Random(seed)
        count = max(1, self.share.of(params.proposals))

        # 1 Propose until there are enough valid questions, or 2 draw them.
        proposals: list[Attempt] = []
        self.probed = 0
        if params.questions == "proposer":
            proposals = yield from self.propose(count, "train", seed)
            questions = [one.question for one in proposals if one.question]
        else:
            count = max(1, self.share.of(params.trained_questions))
            questions = yield from self.draw(count, step, seed)

        # 3 Answer and verify.
        answers = yield from self.solve(questions, seed)

        # 4 Pay; in the control the same pay goes to any valid proposal.
        pays = [question.pay for question in questions]
        if params.paid == "shuffled":
            rng.shuffle(pays)
        paid = self.pay(proposals, pays)

        # 5 Choose what the solver trains on.
        chosen = max(1, self.share.of(params.trained_questions))
        self.chosen = set(rng.sample(range(len(questions)), min(chosen, len(questions))))
        self.note(proposals, questions)
        return paid + answers

    def note(self, proposals: Sequence[Attempt], questions: Sequence[Question]) -> None:
        """The step's metrics."""
        self.metrics = question_metrics([question.facts() for question in questions])
        if proposals:
            valid = sum(one.question is not None for one in proposals) / len(proposals)
            self.metrics["method/valid"] = valid
        answers = len(questions) * self.params.answers + self.probed
        self.metrics["method/answers"] = float(answers)

    def propose(self, count: int, pool: str, seed: int) -> Episode[list[Attempt]]:
        """Rounds of proposals until `count` are valid, so that every arm has its full quota."""
        proposals: list[Attempt] = []

        def play_round(number: int, missing: Mapping[str, int]) -> Episode[dict[str, list[Any]]]:
            new = yield from self.ask(missing["valid"], pool, derive_seed(seed, "round", number))
            proposals.extend(new)
            return {"valid": [one for one in new if one.question]}

        yield from fill(play_round, {"valid": count}, ROUNDS)
        return proposals

    def ask(self, count: int, pool: str, seed: int) -> Episode[list[Attempt]]:
        """`count` proposals, each about sources of its own."""
        rng = random.Random(derive_seed(seed, "sources"))
        contexts = [self.source.draw(rng, place, pool) for place in range(count)]
        prompts = [self.source.ask(context) for context in contexts]
        groups = yield from self.sample("proposer", prompts, 1, partial(derive_seed, seed, "ask"))
        return [
            Attempt(trajectory, self.question(trajectory, context))
            for context, (trajectory,) in zip(contexts, groups, strict=True)
        ]

    def question(self, trajectory: Trajectory, context: Context) -> Question | None:
        """The question of a valid proposal, with the notes that a solver reads."""
        proposal = self.source.read(trajectory.policy_text, context)
        if isinstance(proposal, Rejected):
            return None
        return Question(self.source.task(proposal, context))

    def draw(self, count: int, step: int, seed: int) -> Episode[list[Question]]:
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
        return [Question(self.source.exercise(level, rng)) for level in drawn]

    def probe(self, seed: int) -> Episode[None]:
        """Measures the solver's share of right answers at every level, on questions of its own."""
        rng = random.Random(derive_seed(seed, "probe"))
        levels = range(1, self.params.highest + 1)
        tasks = [self.source.exercise(level, rng) for level in levels for _ in range(PROBED)]
        seeds = partial(derive_seed, seed, "probe")
        prompts = [task.messages for task in tasks]
        groups = yield from self.sample("solver", prompts, 1, seeds)
        right = [sample.reward for sample in graded(tasks, groups, "solver")]
        self.shares = [sum(right[at : at + PROBED]) / PROBED for at in range(0, len(right), PROBED)]
        self.probed = len(tasks)

    def solve(self, questions: Sequence[Question], seed: int) -> Episode[list[Sample]]:
        """Answers to each question as samples; sets its p and what p pays."""
        tasks = [question.task for question in questions]
        k = self.params.answers
        seeds = partial(derive_seed, seed, "answer")
        prompts = [task.messages for task in tasks]
        groups = yield from self.sample("solver", prompts, k, seeds)
        samples = graded(tasks, groups, "solver")
        for place, question in enumerate(questions):
            question.success = sum(s.reward for s in samples[place * k : (place + 1) * k]) / k
            question.pay = float(reward(self.params.pay)(question.success))
        return samples

    def pay(self, proposals: Sequence[Attempt], pays: Sequence[float]) -> list[Sample]:
        """The proposals as samples, one group a step."""
        remaining = iter(pays)
        samples = []
        for proposal in proposals:
            reward = next(remaining) if proposal.question else 0.0
            samples.append(proposal.trajectory.sample(reward, "proposer", "step"))
            samples[-1].invalid = proposal.question is None
            if proposal.question:
                samples[-1].info |= proposal.question.facts()
        return samples

    def select(self, samples: Sequence[Sample]) -> None:
        """The mean over the proposer's rows plus the mean over the solver's chosen ones."""
        parts = []
        for name, role in self.roles.items():
            rows = [sample for sample in samples if sample.role == name]
            for row in rows:
                trained = name == "proposer" or row.group in self.chosen
                row.weight *= trained and role.trainable
            rows = [row for row in rows if row.weight]
            if rows and not role.kl:
                skip_zero_advantage(rows)
            parts.append([row for row in rows if row.weight])
        total = sum(map(len, parts))
        for rows in parts:
            for row in rows:
                row.weight *= total / len(rows)

    def state_dict(self) -> dict[str, Any]:
        """What the curriculum measured last."""
        return super().state_dict() | {"shares": self.shares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        super().load_state_dict(state)
        self.shares = state["shares"]

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
            seed = derive_seed("evaluation", "proposals", place)
            (proposal,) = yield from self.ask(1, "heldout", seed)
            if proposal.question is None:
                return [record(SUITE, str(place), 0.0, level=0, success=0.0, pay=0.0)]
            yield from self.solve([proposal.question], seed)
            return [record(SUITE, str(place), 1.0, **proposal.question.facts())]

        return Suite(SUITE, range(self.params.eval_proposals), ask, proposal_rows)
