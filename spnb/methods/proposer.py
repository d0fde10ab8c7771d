"""The proposer study: does a policy paid for questions near the solver's frontier find it and help?

The proposer reads documents and writes a question with its answer. The world's oracle decides
whether it is valid: it parses, the documents answer it, and the proposed answer is right. A solver
answers each distinct valid question several times; p is its share of right answers. The proposer
gets `rewards.gaussian(p)` (SPELL's and SPICE's shape), `invalid_reward` for what is not valid, and
is compared with its other proposals about the same documents. The solver gets 1 for a right answer,
compared with its other answers to the question.

    spnb run proposer --scale cpu --variant frozen-solver --seed 0

Arms are roles: a frozen one has `{policy: start, trainable: false}`. Roles that learn share one set
of weights and AdamW's step; the loss is the sum of each role's mean over its own rows, so a role's
weight in it does not depend on how many rows the other has.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core import prompts
from spnb.core.advantages import make_estimator
from spnb.core.episodes import Episode
from spnb.core.method import Role, SelfPlayMethod, Suite
from spnb.core.params import require
from spnb.core.rewards import gaussian
from spnb.core.types import Sample, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records, ask_suite, record
from spnb.evaluate.proposals import SUITE, proposal_metrics, proposal_rows
from spnb.methods.rlvr import answer_groups, behaviour, graded
from spnb.testbed import oracle
from spnb.testbed import tasks as testbed
from spnb.testbed.oracle import MAX_HOPS
from spnb.testbed.texts import facts_in
from spnb.testbed.world import Pool

Worlds = list[Sequence[str]]  # documents, a set for each world


class Params(testbed.WorldParams):
    """The study's own parameters.

    Controls: with `questions` uniform nobody proposes, the oracle draws questions evenly over hops
    (does choosing help?); with `reward` shuffled the rewards are permuted among the step's valid
    proposals (is it the difficulty?). `replay` asks the solver again what was nearest the frontier.
    """

    role_names = ("proposer", "solver")

    questions: Literal["proposer", "uniform"] = "proposer"
    reward: Literal["difficulty", "shuffled"] = "difficulty"
    max_hops: int = Field(4, ge=1, le=MAX_HOPS, description="the longest chain in all documents")
    hard_hops: int = Field(2, ge=1, le=MAX_HOPS, description="from which a question is hard")
    worlds_per_step: int = Field(8, ge=1, description="sets of documents to ask about")
    proposals: int = Field(16, ge=1, description="proposals about each")
    answers: int = Field(8, ge=2, description="answers to each distinct valid question")
    invalid_reward: float = Field(0.0, le=0, description="0 or a small penalty")
    solver_weight: float = Field(1.0, gt=0, description="of the solver's rows in the loss")
    replay: int = Field(0, ge=0, description="earlier questions asked again")
    eval_worlds: int = Field(64, ge=2, description="held-out sets of documents")
    eval_proposals: int = Field(8, ge=1, description="proposals about each")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        frozen = {name for name, role in self.roles.items() if role.trainable is False}
        solver, proposer = "solver" not in frozen, "proposer" not in frozen
        proposer = proposer and self.questions == "proposer"
        arm = f"questions {self.questions} and frozen roles {sorted(frozen)}"
        require(solver or proposer, f"{arm} train nobody; allowed: a role that learns")
        message = f"solver_weight is {self.solver_weight} with {arm}; allowed: 1 for one role alone"
        require(self.solver_weight == 1 or (solver and proposer), message)
        message = f"replay is {self.replay} with a frozen solver; allowed: 0"
        require(solver or not self.replay, message)
        message = f"reward is shuffled with {arm}; allowed: a proposer that learns"
        require(self.reward == "difficulty" or proposer, message)
        message = f"hard_hops is {self.hard_hops}; allowed: up to max_hops ({self.max_hops})"
        require(self.hard_hops <= self.max_hops, message)
        self.level(self.max_hops)
        return self


@dataclass
class Proposal:
    """A question about the documents at `place`; `task` is None where it is not valid."""

    place: int
    task: Task | None
    trajectory: Trajectory | None = None
    success: float = 0.0  # p, once a solver has answered

    @property
    def key(self) -> tuple[int, str]:
        """Equal for equal questions about the same documents."""
        return self.place, self.task.question if self.task else ""

    def record(self, copy: int = 0, **success: float) -> dict[str, Any]:
        """A record of the suite of proposals, with p under a judge's name."""
        place, question = self.key
        about = {"question": question, "hops": 0, "query": ""}
        if self.task:
            about |= {"hops": self.task.info["hops"], "query": repr(self.task.info["query"])}
        return record(SUITE, place, float(bool(self.task)), sample=copy, **about, **success)


def solver_task(documents: Sequence[str], question: str, query: oracle.Query, gold: str) -> Task:
    """A valid question as the solver gets it."""
    messages = prompts.answer(question, documents, "steps")
    hops = max(1, len(query.nouns))
    info = {"query": query, "hops": hops, "documents": documents}
    return Task(messages, question, (gold,), difficulty=testbed.hops_label(hops), info=info)


def drawn_task(documents: Sequence[str], hops: int, rng: random.Random, pool: Pool) -> Task:
    """A question of the oracle, one of all with so many hops."""
    frames = testbed.FRAMES[pool]
    return solver_task(documents, *oracle.draw_question(documents, hops, rng, frames))


class Method(SelfPlayMethod):
    """Proposer and solver on one policy; metrics are those of `proposal_metrics`."""

    Params = Params
    snapshots = ("start",)

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.memory: list[list[Any]] = []  # documents, question, gold answer

    def default_roles(self) -> dict[str, Role]:
        """Both learn: proposals are compared within their documents, answers within a question."""
        names, sampling = self.params.role_names, self.params.sampling
        return {name: Role(sampling, make_estimator("group_zscore")) for name in names}

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Documents, proposals, answers (to remembered questions too), rewards."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, self.share.rank)
        worlds = self.worlds(max(1, self.share.of(params.worlds_per_step)), "train", seed)

        # 1 Propose and 2 filter: what is not valid has no task.
        if params.questions == "uniform":
            proposals = self.draw(worlds, params.proposals, "train", seed)
        else:
            proposals = yield from self.propose(worlds, params.proposals, seed, 0)

        # 3 Answer and 4 verify, remembered questions too.
        every = list(proposals)
        for place, (documents, question, gold) in enumerate(self.memory, len(worlds)):
            task = solver_task(documents, question, oracle.parse(question), gold)
            every.append(Proposal(place, task))
        answers = yield from self.solve(self.roles["solver"], every, seed)
        distinct = {proposal.key: proposal for proposal in every if proposal.task}.values()
        best = sorted(distinct, key=lambda proposal: -gaussian(proposal.success))[: params.replay]
        tasks = [proposal.task for proposal in best]
        self.memory = [[list(t.info["documents"]), t.question, t.gold[0]] for t in tasks]

        # 5 Pay the proposer.
        records = [proposal.record(p=proposal.success) for proposal in proposals]
        self.metrics = proposal_metrics(records, "p", params.hard_hops)
        return self.pay(proposals, seed) + answers

    def worlds(self, count: int, pool: Pool, seed: int) -> Worlds:
        """Documents of fresh worlds, each set with a chain of `max_hops` facts and shorter ones."""
        rng = random.Random(derive_seed(seed, "contexts"))
        level = self.params.level(self.params.max_hops)
        return [testbed.path_task(rng, level, pool).info["documents"] for _ in range(count)]

    def draw(self, worlds: Worlds, count: int, pool: Pool, seed: int) -> list[Proposal]:
        """`count` questions of the oracle about each set of documents, evenly over hops."""
        rng = random.Random(derive_seed(seed, "uniform"))
        hops = [rng.randint(1, self.params.max_hops) for _ in range(count * len(worlds))]
        proposals = []
        for index, number in enumerate(hops):
            task = drawn_task(worlds[index // count], number, rng, pool)
            proposals.append(Proposal(index // count, task))
        return proposals

    def propose(self, worlds: Worlds, count: int, seed: int, first: int) -> Episode[list[Proposal]]:
        """`count` proposals about each set of documents, in places from `first` on."""
        tasks = [Task(prompts.ask(documents)) for documents in worlds]
        role = self.roles["proposer"]
        groups = yield from answer_groups(
            self.chat, role, tasks, count, lambda n, copy: derive_seed(seed, "ask", first + n, copy)
        )
        proposals = []
        for place, (documents, group) in enumerate(zip(worlds, groups, strict=True), first):
            stated = [fact for text in documents for fact in facts_in(text)]
            for trajectory in group:
                valid = oracle.read_question(trajectory.policy_text, stated)
                task = solver_task(documents, *valid) if valid else None
                proposals.append(Proposal(place, task, trajectory))
        return proposals

    def solve(self, role: Role, proposals: list[Proposal], seed: int) -> Episode[list[Sample]]:
        """Answers to each distinct valid question; sets `success` of all its proposals."""
        tasks = {proposal.key: proposal.task for proposal in proposals if proposal.task}
        keys, distinct, k = list(tasks), list(tasks.values()), self.params.answers
        groups = yield from answer_groups(
            self.chat,
            role,
            distinct,
            k,
            lambda n, copy: derive_seed(seed, "answer", *keys[n], copy),
        )
        samples = graded(distinct, groups, "solver")
        right = Counter(keys[sample.group] for sample in samples if sample.reward)
        for proposal in proposals:
            proposal.success = right[proposal.key] / k
        return samples

    def pay(self, proposals: list[Proposal], seed: int) -> list[Sample]:
        """The proposals as samples; the control permutes the rewards of the step's valid ones."""
        rewards = [gaussian(proposal.success) for proposal in proposals if proposal.task]
        if self.params.reward == "shuffled":
            random.Random(derive_seed(seed, "shuffled")).shuffle(rewards)
        remaining = iter(rewards)
        samples = []
        for proposal in proposals:
            reward = next(remaining) if proposal.task else self.params.invalid_reward
            if proposal.trajectory:
                sample = proposal.trajectory.sample(reward, "proposer", proposal.place)
                sample.invalid = proposal.task is None
                if proposal.task:
                    sample.info |= {"success": proposal.success, "hops": proposal.task.info["hops"]}
                samples.append(sample)
        return samples

    def select(self, samples: Sequence[Sample]) -> None:
        """Weighs each role's rows as if it were alone, the solver's by `solver_weight` too."""
        rows_of = {name: [one for one in samples if one.role == name] for name in self.roles}
        for rows in rows_of.values():
            super().select(rows)
        counts = {name: sum(row.weight > 0 for row in rows) for name, rows in rows_of.items()}
        for name, rows in rows_of.items():
            factor = self.params.solver_weight if name == "solver" else 1.0
            for row in rows:
                row.weight *= sum(counts.values()) / max(1, counts[name]) * factor

    def state_dict(self) -> dict[str, Any]:
        """The remembered questions; documents follow from seed and step."""
        return super().state_dict() | {"memory": self.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        super().load_state_dict(state)
        self.memory = state["memory"]

    def suites(self, step: int) -> list[Suite]:
        """Proposals about held-out documents, and answers to questions of 1 to `max_hops` hops."""
        params, seed = self.params, derive_seed("evaluation", "items")
        rng = random.Random(seed)
        worlds = self.worlds(params.eval_items, "heldout", seed)
        turns = [place % params.max_hops + 1 for place in range(params.eval_items)]
        tasks = [drawn_task(*pair, rng, "heldout") for pair in zip(worlds, turns, strict=True)]
        suites = [self.proposal_suite(derive_seed("evaluation"))]
        for decoding, sampling in params.samplings().items():

            def seed_of(place: int, _: int, name: str = decoding) -> int:
                return derive_seed("solver", name, place)

            how = {"behaviour": behaviour, "decoding": decoding}
            suites.append(ask_suite("solver", tasks, self.chat, sampling, seed_of, **how))
        return suites

    def proposal_suite(self, seed: int) -> Suite:
        """Proposals, judged by the starting solver and one that learns; a part is one world."""
        params, solver = self.params, self.roles["solver"]
        worlds = self.worlds(params.eval_worlds, "heldout", seed)
        count, uniform = params.eval_proposals, params.questions == "uniform"
        drawn = self.draw(worlds, count, "heldout", seed) if uniform else []
        judges = {"starting solver": replace(solver, policy="start")}
        if solver.trainable:
            judges["current solver"] = solver

        def ask(place: int) -> Episode[Records]:
            proposals = drawn[place * count : (place + 1) * count]
            if not uniform:
                proposals = yield from self.propose([worlds[place]], count, seed, place)
            records = [proposal.record(copy) for copy, proposal in enumerate(proposals)]
            for judge, role in judges.items():
                yield from self.solve(role, proposals, seed)
                for entry, proposal in zip(records, proposals, strict=True):
                    entry[judge] = proposal.success
            return records

        summarise = partial(proposal_rows, judges=list(judges), hard_hops=params.hard_hops)
        return Suite(SUITE, range(len(worlds)), ask, summarise)
