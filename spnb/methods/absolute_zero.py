"""Absolute Zero: tasks on programs, which an evaluator checks (Zhao et al. 2025).

The challenger proposes deductions and abductions (a program and an input) and inductions (inputs of
an earlier program); an own small language takes the place of Python (`spnb.games.programs`). K
answers show how hard a task is; one of them trains the reasoner. SPICE's table 5: a task pays 1 - p
for 0 < p < 1, else 0; a right answer 1, a wrong one or a program without a value -0.5, what cannot
be read -1. Rows are compared with all of their role and kind of task in the step (REINFORCE++).
(The released code pays -0.5 for a task that nobody or everybody solves.)
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from spnb.core import prompts
from spnb.core.episodes import Episode
from spnb.core.grading import graded
from spnb.core.method import Suite
from spnb.core.plugins import reward
from spnb.core.types import Messages, Sample, Task, Trajectory, derive_seed
from spnb.evaluate.proposals import CHALLENGES
from spnb.games import programs
from spnb.games.programs import TASK_KINDS, TaskKind
from spnb.methods import spice_prompts
from spnb.methods.challenger_reasoner import ChallengerReasoner
from spnb.methods.challenger_reasoner import Params as Params

UNREADABLE = -1.0
"""What a proposal or an answer is paid that cannot be read."""
WRONG = -0.5
"""What a wrong answer is paid, and a proposal whose program has no value."""
INPUTS = 4
"""Inputs of an induction; half of them are shown."""
KEPT = 256
"""Earlier programs that are kept, for inductions and references."""
FIRST = "x"
"""The program there is before any other."""


@dataclass
class Challenge:
    """What a challenger proposed; `task` is None where it is not valid."""

    kind: TaskKind
    trajectory: Trajectory
    readable: bool = False
    program: str = ""
    task: Task | None = None
    success: float = 0.0
    pay: float = UNREADABLE


class Method(ChallengerReasoner):
    """Absolute Zero; metrics: shares of valid proposals by kind, and of the valid ones mean p and
    pay, with right and wrong answers (mixed), of different programs (distinct)."""

    estimator = "batch_zscore"

    def role_of(self, sample: Sample) -> str:
        """Rows are recorded under role and kind of task."""
        return sample.role[0] if isinstance(sample.role, tuple) else str(sample.role)

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Challenges of the three kinds, answers to them, pay."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, self.share.rank)
        rng = random.Random(seed)
        count = max(3, self.share.of(params.documents_per_step * params.group_size))

        # 1 Propose: as many tasks as SPICE's challenger makes attempts, a third of each kind.
        proposals: list[Challenge] = []
        for number, kind in enumerate(TASK_KINDS):
            new = yield from self.challenges(kind, (count + number) // 3, seed, rng)
            proposals += new
            kept = [one.program for one in new if one.task and kind != "induction"]
            self.programs = [*self.programs, *kept][-KEPT:]

        # 2 Solve each K times.
        valid = [one for one in proposals if one.task]
        tasks = [one.task for one in valid if one.task]
        seeds = partial(derive_seed, seed, "answer")
        prompts = [task.messages for task in tasks]
        groups = yield from self.sample("reasoner", prompts, params.answers, seeds)
        answers = graded(tasks, groups, "reasoner")

        # 3 Pay: proposals by how hard they are, one answer to each by being right.
        for place, one in enumerate(valid):
            rows = answers[place * params.answers : (place + 1) * params.answers]
            one.success = fmean(sample.reward for sample in rows)
            one.pay = float(reward(params.pay)(one.success))
            settle(rows, one.kind, rng)
        self.log(**numbers(proposals, params.answers))
        return [row(one) for one in proposals] + answers

    def challenges(
        self, kind: TaskKind, count: int, seed: int, rng: random.Random
    ) -> Episode[list[Challenge]]:
        """`count` proposals of a kind; inductions are about earlier programs."""
        known = self.programs or [FIRST]
        subjects = [rng.choice(known) if kind == "induction" else "" for _ in range(count)]
        many = min(self.params.references, len(known))
        asking = [spice_prompts.propose(kind, rng.sample(known, many), one) for one in subjects]
        groups = yield from self.sample("challenger", asking, 1, partial(derive_seed, seed, kind))
        pairs = zip(groups, subjects, strict=True)
        return [read(kind, trajectory, program) for (trajectory,), program in pairs]

    def suites(self, step: int) -> list[Suite]:
        """The source's alone: a challenger's tasks are no questions on documents."""
        return [suite for suite in super().suites(step) if suite.name != CHALLENGES]


def read(kind: TaskKind, trajectory: Trajectory, program: str = "") -> Challenge:
    """A proposal from a challenger's text, `program` the one that an induction is about."""
    text = trajectory.policy_text
    program = program or prompts.field(text, "program") or ""
    found = [programs.read_input(one) for one in prompts.fields(text, "input")]
    inputs = list(dict.fromkeys(x for x in found if x is not None))
    proposal = Challenge(kind, trajectory, program=program)
    needed = INPUTS if kind == "induction" else 1
    if not program or len(inputs) < needed:
        return proposal
    proposal.readable = True
    proposal.pay = WRONG
    inputs = inputs[:needed]
    outputs = programs.runs(program, inputs)
    if outputs is not None:
        pairs = list(zip(inputs, outputs, strict=True))
        proposal.task = make_task(kind, program, pairs)
    return proposal


def make_task(kind: TaskKind, program: str, pairs: programs.Pairs) -> Task:
    """A task on a program; of an induction's pairs half are shown and all are checked."""
    shown = pairs[: max(1, len(pairs) // 2)]
    messages: Messages = spice_prompts.solve(kind, program, shown)
    golds = programs.golds(kind, program, pairs)
    return Task(messages, program, golds, programs.GRADES[kind], kind)


def settle(rows: Sequence[Sample], kind: TaskKind, rng: random.Random) -> None:
    """Rewards of the answers to one task, of which one trains; all are recorded by kind."""
    trained = rng.randrange(len(rows))
    for place, sample in enumerate(rows):
        if sample.invalid:
            sample.reward = UNREADABLE
        elif not sample.reward:
            sample.reward = WRONG
        sample.role = ("reasoner", kind)
        if place != trained:
            sample.advantage = 0.0
            sample.weight = 0.0


def row(one: Challenge) -> Sample:
    """A proposal's row."""
    sample = one.trajectory.sample(one.pay, ("challenger", one.kind), "step")
    sample.invalid = one.task is None
    sample.info |= {"program": one.program, "success": one.success}
    return sample


def numbers(proposals: Sequence[Challenge], answers: int) -> dict[str, float]:
    """The step's metrics; `answers` to each valid proposal."""
    valid = [one for one in proposals if one.task]
    found: dict[str, float] = {"attempts": len(proposals), "answers": len(valid) * answers}
    found |= {"valid": len(valid) / len(proposals), "tasks": len(valid)}
    for kind in TASK_KINDS:
        own = [one for one in proposals if one.kind == kind]
        found[f"valid/{kind}"] = fmean(one.task is not None for one in own) if own else 0.0
    if valid:
        found["success"] = fmean(one.success for one in valid)
        found["pay"] = fmean(one.pay for one in valid)
        found["mixed"] = fmean(0 < one.success < 1 for one in valid)
        found["distinct"] = len({(one.kind, one.program) for one in valid}) / len(valid)
    return found
