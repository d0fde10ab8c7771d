"""The proposer study: does a policy paid for questions near the solver's frontier find it and help?

The proposer reads documents and writes a question with its answer. The world's oracle decides
whether it is valid: it parses, the documents answer it, and the proposed answer is right. A solver
answers each distinct valid question several times; p is its share of right answers. The proposer
gets `rewards.gaussian(p)` (SPELL's and SPICE's shape: most where the solver is right half of the
time, nothing where p is 0 or 1), and `invalid_reward` for a question that is not valid, compared
with the other proposals about the same documents. The solver gets 1 for a right answer, compared
with the other answers to the same question.

    spnb run proposer --scale cpu --variant frozen-solver --seed 0

Arms are roles: a frozen one has `{policy: start, trainable: false}`. Roles that learn share one set
of weights, as in the papers. The advantages' part of the loss is the sum of each role's mean over
its own rows, so a role's weight in it does not depend on how many rows the other has. (Both share
AdamW's step: each moves the weights less than it would alone.)
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd
from pydantic import Field, model_validator

from spnb.core import prompts
from spnb.core.advantages import make_estimator
from spnb.core.episodes import Episode
from spnb.core.method import Role, SelfPlayMethod, Suite
from spnb.core.params import require
from spnb.core.rewards import gaussian
from spnb.core.types import Sample, Task, Trajectory, derive_seed
from spnb.evaluate.items import ask_suite, mean_row, record
from spnb.methods.rlvr import answer_groups, behaviour, graded
from spnb.testbed import oracle
from spnb.testbed import tasks as testbed
from spnb.testbed.oracle import MAX_HOPS
from spnb.testbed.texts import facts_in
from spnb.testbed.world import Pool

Documents = Sequence[str]


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
    """A question about the documents at `place`; `task` is None where it is not valid.

    `success` is p once a solver has answered. Questions of the oracle have no trajectory.
    """

    place: int
    task: Task | None
    trajectory: Trajectory | None = None
    success: float = 0.0

    @property
    def key(self) -> tuple[int, str]:
        """Equal for equal questions about the same documents."""
        return self.place, self.task.question if self.task else ""

    @property
    def hops(self) -> int:
        """Relations to follow, 1 for a question about figures; 0 where it is not valid."""
        return max(1, len(self.task.info["query"].nouns)) if self.task else 0


def solver_task(documents: Documents, question: str, query: oracle.Query, gold: str) -> Task:
    """A valid question as the solver gets it."""
    messages = prompts.answer(question, documents, "steps")
    label = testbed.hops_label(max(1, len(query.nouns)))
    info = {"query": query, "documents": documents}
    return Task(messages, question, (gold,), difficulty=label, info=info)


class Method(SelfPlayMethod):
    """Proposer and solver on one policy, either of them frozen where an arm says so.

    Metrics: valid (share of proposals), questions (different valid ones); of the valid ones success
    (mean p), difficulty_reward (mean, in the control too), hops_mean, hard_share, distinct, and
    hops/<n> (share with n hops).
    """

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
            proposals = yield from self.propose(worlds, params.proposals, seed)

        # 3 Answer and 4 verify, remembered questions too.
        every = list(proposals)
        for place, (documents, question, gold) in enumerate(self.memory, len(worlds)):
            task = solver_task(documents, question, oracle.parse(question), gold)
            every.append(Proposal(place, task))
        answers = yield from self.solve(self.roles["solver"], every, seed)
        distinct = {proposal.key: proposal for proposal in every if proposal.task}.values()
        best = sorted(distinct, key=lambda proposal: -gaussian(proposal.success))[: params.replay]
        self.memory = [[p.task.info["documents"], p.task.question, p.task.gold[0]] for p in best]

        # 5 Pay the proposer.
        self.metrics = proposal_metrics(proposals, params.hard_hops)
        return self.pay(proposals, seed) + answers

    def worlds(self, count: int, pool: Pool, seed: int) -> list[Documents]:
        """Documents of fresh worlds, each set with a chain of `max_hops` facts and shorter ones."""
        rng = random.Random(derive_seed(seed, "contexts"))
        level = self.params.level(self.params.max_hops)
        return [testbed.path_task(rng, level, pool).info["documents"] for _ in range(count)]

    def draw(
        self, worlds: Sequence[Documents], count: int, pool: Pool, seed: int
    ) -> list[Proposal]:
        """`count` questions of the oracle about each set of documents, evenly over hops."""
        rng = random.Random(derive_seed(seed, "uniform"))
        places = [place for place in range(len(worlds)) for _ in range(count)]
        hops = [rng.randint(1, self.params.max_hops) for _ in places]
        proposals = []
        for place, number in zip(places, hops, strict=True):
            drawn = testbed.draw_question(worlds[place], number, rng, testbed.FRAMES[pool])
            proposals.append(Proposal(place, solver_task(worlds[place], *drawn)))
        return proposals

    def propose(
        self, worlds: Sequence[Documents], count: int, seed: int, first: int = 0
    ) -> Episode[list[Proposal]]:
        """`count` proposals about each set of documents, in places from `first` on."""

        def seed_of(index: int, copy: int) -> int:
            return derive_seed(seed, "ask", first + index, copy)

        tasks = [Task(prompts.ask(documents)) for documents in worlds]
        role = self.roles["proposer"]
        groups = yield from answer_groups(self.chat, role, tasks, count, seed_of)
        proposals = []
        for place, (documents, group) in enumerate(zip(worlds, groups, strict=True), first):
            stated = [fact for text in documents for fact in facts_in(text)]
            for trajectory in group:
                valid = testbed.read_question(trajectory.policy_text, stated)
                task = solver_task(documents, *valid) if valid else None
                proposals.append(Proposal(place, task, trajectory))
        return proposals

    def solve(self, role: Role, proposals: Sequence[Proposal], seed: int) -> Episode[list[Sample]]:
        """Answers to each distinct valid question; sets `success` of all its proposals."""
        tasks = {proposal.key: proposal.task for proposal in proposals if proposal.task}
        keys, distinct, k = list(tasks), list(tasks.values()), self.params.answers

        def seed_of(index: int, copy: int) -> int:
            return derive_seed(seed, "answer", *keys[index], copy)

        groups = yield from answer_groups(self.chat, role, distinct, k, seed_of)
        samples = graded(distinct, groups, "solver")
        right = Counter(keys[sample.group] for sample in samples if sample.reward)
        for proposal in proposals:
            proposal.success = right[proposal.key] / k
        return samples

    def pay(self, proposals: Sequence[Proposal], seed: int) -> list[Sample]:
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
                success = proposal.success if proposal.task else None
                sample.info |= {"success": success, "hops": proposal.hops}
                samples.append(sample)
        return samples

    def select(self, samples: Sequence[Sample]) -> None:
        """Weighs each role's rows as if it were alone, the solver's by `solver_weight` too."""
        rows_of = {
            name: [sample for sample in samples if sample.role == name]
            for name, role in self.roles.items()
            if role.trainable
        }
        for rows in rows_of.values():
            super().select(rows)
        counts = {name: sum(row.weight > 0 for row in rows) for name, rows in rows_of.items()}
        for name, rows in rows_of.items():
            factor = self.params.solver_weight if name == "solver" else 1.0
            for row in rows:
                row.weight *= sum(counts.values()) / max(1, counts[name]) * factor

    def state_dict(self) -> dict[str, Any]:
        """The remembered questions; documents follow from seed and step."""
        return super().state_dict() | {"memory": [list(entry) for entry in self.memory]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        super().load_state_dict(state)
        self.memory = list(state["memory"])

    def suites(self, step: int) -> list[Suite]:
        """Proposals about held-out documents, and answers to questions of 1 to `max_hops` hops."""
        params, seed = self.params, derive_seed("evaluation", "items")
        rng, frames = random.Random(seed), testbed.FRAMES["heldout"]
        tasks = []
        for place, documents in enumerate(self.worlds(params.eval_items, "heldout", seed)):
            drawn = testbed.draw_question(documents, place % params.max_hops + 1, rng, frames)
            tasks.append(solver_task(documents, *drawn))
        suites = [self.proposal_suite(derive_seed("evaluation"))]
        for decoding, sampling in params.samplings().items():
            seed_of = lambda place, _, name=decoding: derive_seed("solver", name, place)  # noqa: E731
            how = {"behaviour": behaviour, "decoding": decoding}
            suites.append(ask_suite("solver", tasks, self.chat, sampling, seed_of, **how))
        return suites

    def proposal_suite(self, seed: int) -> Suite:
        """What is asked, judged by the starting solver and by one that learns; a part is one set of
        documents. A record's score is validity; it has p under each judge's name."""
        params, solver = self.params, self.roles["solver"]
        worlds = self.worlds(params.eval_worlds, "heldout", seed)
        count, uniform = params.eval_proposals, params.questions == "uniform"
        drawn = self.draw(worlds, count, "heldout", seed) if uniform else []
        judges = {"starting solver": replace(solver, policy="start")}
        if solver.trainable:
            judges["current solver"] = solver

        def ask(place: int) -> Episode[list[dict[str, Any]]]:
            proposals = drawn[place * count : (place + 1) * count]
            if not uniform:
                proposals = yield from self.propose([worlds[place]], count, seed, place)
            records = proposal_records(proposals)
            for judge, role in judges.items():
                yield from self.solve(role, proposals, seed)
                for entry, proposal in zip(records, proposals, strict=True):
                    entry[judge] = proposal.success
            return records

        def summarise(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
            frame = pd.DataFrame(records)
            frame["hard"] = frame["hops"] >= params.hard_hops
            sets = frame.groupby("item", sort=False)
            valid = frame[frame["score"] == 1].groupby("item", sort=False)
            means = {("valid", ""): sets["score"].mean()}
            means |= {(metric, ""): valid[metric].mean() for metric in ("hard", "hops")}
            means["distinct", ""] = valid["query"].nunique() / valid.size()
            for judge in judges:
                difficulty = valid[judge].agg(lambda values: values.map(gaussian).mean())
                means["difficulty_reward", judge] = difficulty
                means["success", judge] = valid[judge].mean()
            return [
                mean_row("proposals", metric, values.tolist(), opponent=judge)
                for (metric, judge), values in means.items()
            ]

        return Suite("proposals", range(len(worlds)), ask, summarise)


def proposal_records(proposals: Sequence[Proposal]) -> list[dict[str, Any]]:
    """The records of proposals: score 1 where valid, hops, and what is asked for."""
    return [
        record(
            "proposals",
            proposal.place,
            float(proposal.task is not None),
            sample=copy,
            hops=proposal.hops,
            query=repr(proposal.task.info["query"]) if proposal.task else "",
        )
        for copy, proposal in enumerate(proposals)
    ]


def proposal_metrics(proposals: Sequence[Proposal], hard_hops: int) -> dict[str, float]:
    """Numbers of a step's proposals; see `Method`."""
    frame = pd.DataFrame(proposal_records(proposals))
    frame["success"] = [proposal.success for proposal in proposals]
    valid = frame[frame["score"] == 1]
    numbers = {
        "valid": frame["score"].mean(),
        "questions": len({proposal.key for proposal in proposals if proposal.task}),
    }
    if len(valid):
        numbers |= {
            "success": valid["success"].mean(),
            "difficulty_reward": valid["success"].map(gaussian).mean(),
            "hops_mean": valid["hops"].mean(),
            "hard_share": (valid["hops"] >= hard_hops).mean(),
            "distinct": len(valid[["item", "query"]].drop_duplicates()) / len(valid),
        }
        for hops in range(1, MAX_HOPS + 1):
            numbers[f"hops/{hops}"] = (valid["hops"] == hops).mean()
    return {f"method/{key}": float(value) for key, value in numbers.items()}
