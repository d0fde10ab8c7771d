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
from operator import attrgetter
from statistics import fmean
from typing import Any

from spnb.core import prompts
from spnb.core.advantages import leave_out
from spnb.core.episodes import Episode
from spnb.core.grading import graded
from spnb.core.method import Suite
from spnb.core.plugins import reward
from spnb.core.types import Messages, Sample, Task, Trajectory, derive_seed, grouped
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

    def row(self) -> Sample:
        """The challenger's row, compared with all of its kind in the step."""
        role = "challenger", self.kind
        about = {"program": self.program, "success": self.success}
        return self.trajectory.sample(self.pay, role, "step", self.task is None, **about)


class Method(ChallengerReasoner):
    """Absolute Zero; metrics: shares of valid proposals by kind, and of the valid ones mean p and
    pay, with right and wrong answers (mixed), of different programs (distinct)."""

    estimator = "batch_zscore"
    stateful = ("programs",)

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.programs: list[str] = []  # earlier ones

    def role_of(self, sample: Sample) -> str:
        """Rows are recorded under role and kind of task."""
        return sample.role[0] if isinstance(sample.role, tuple) else str(sample.role)

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Challenges of the three kinds, answers to them, pay."""
        params = self.params
        seed = self.step_seed(step)
        rng = random.Random(seed)
        count = max(3, self.share.of(params.documents_per_step * params.group_size))

        # 1 Propose: as many tasks as SPICE's challenger makes attempts, a third of each kind; what
        # is left over is of other kinds in other processes.
        challenges: list[Challenge] = []
        for number, kind in enumerate(TASK_KINDS):
            many = (count + (number + self.share.rank) % 3) // 3
            new = yield from self.challenges(kind, many, seed, rng)
            challenges += new
            if kind != "induction":
                self.programs += [challenge.program for challenge in new if challenge.task]
                self.programs = self.programs[-KEPT:]

        # 2 Solve each K times.
        valid = [challenge for challenge in challenges if challenge.task]
        tasks = [challenge.task for challenge in valid]
        prompts = [task.messages for task in tasks]
        seeds = partial(derive_seed, seed, "answer")
        groups = yield from self.sample("reasoner", prompts, params.answers, seeds)
        answers = graded(tasks, groups, "reasoner")

        # 3 Pay: proposals by how hard they are, one answer to each by being right.
        for place, challenge in enumerate(valid):
            rows = answers[place * params.answers : (place + 1) * params.answers]
            challenge.success = fmean(sample.reward for sample in rows)
            challenge.pay = float(reward(params.pay)(challenge.success))
            settle(rows, challenge.kind, rng)
        self.log(**numbers(challenges, params.answers))
        return [challenge.row() for challenge in challenges] + answers

    def challenges(
        self, kind: TaskKind, count: int, seed: int, rng: random.Random
    ) -> Episode[list[Challenge]]:
        """`count` proposals of a kind; inductions are about earlier programs."""
        known = self.programs or [FIRST]
        subjects = [rng.choice(known) if kind == "induction" else "" for _ in range(count)]
        many = min(self.params.references, len(known))
        asking = [spice_prompts.propose(kind, rng.sample(known, many), x) for x in subjects]
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
    needed = INPUTS if kind == "induction" else 1
    written = prompts.fields(text, "input") if needed > 1 else [prompts.field(text, "input") or ""]
    inputs = [x for x in dict.fromkeys(map(programs.read_input, written)) if x is not None][:needed]
    challenge = Challenge(kind, trajectory, program=program)
    if not program or len(inputs) < needed:
        return challenge
    challenge.readable = True
    challenge.pay = WRONG
    outputs = programs.runs(program, inputs)
    if outputs is not None:
        challenge.task = make_task(kind, program, list(zip(inputs, outputs, strict=True)))
    return challenge


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
        leave_out(sample, place != trained)


def numbers(challenges: Sequence[Challenge], answers: int) -> dict[str, float]:
    """The step's metrics; `answers` to each valid proposal."""
    valid = [challenge for challenge in challenges if challenge.task]
    counts: dict[str, float] = {"attempts": len(challenges), "answers": len(valid) * answers}
    counts |= {"valid": len(valid) / len(challenges), "tasks": len(valid)}
    for kind, group in grouped(challenges, attrgetter("kind")).items():
        counts[f"valid/{kind}"] = fmean(challenge.task is not None for challenge in group)
    if valid:
        counts["success"] = fmean(challenge.success for challenge in valid)
        counts["pay"] = fmean(challenge.pay for challenge in valid)
        counts["mixed"] = fmean(0 < challenge.success < 1 for challenge in valid)
        counts["distinct"] = len({(x.kind, x.program) for x in valid}) / len(valid)
    return counts
