"""The proposer study: does a policy that is paid for questions near the solver's frontier find it,
and does that help?

The game: the proposer reads documents and writes a question with its answer. The world's oracle
decides whether it is valid: it parses, the documents answer it, and the proposed answer is right. A
solver answers each distinct valid question several times; p is its share of right answers. The
proposer gets exp(-(p - 1/2)^2 / (2 sigma^2)) with sigma = 1/6 (SPELL's and SPICE's shape: most
where the solver is right half of the time), 0 where p is 0 or 1, and `invalid_reward` for a
question that is not valid, compared with the other proposals for the same documents. The solver
gets 1 for a right answer, compared with the others to the same question.

    spnb run proposer --scale cpu --variant frozen-solver --seed 0

Arms are parameters: `solver` frozen (the weights that training began with) or learning; `proposer`
learning, frozen or uniform (nobody asks: the oracle draws questions evenly over hops, the control
for "does choosing help?"); `reward` difficulty or shuffled (the control for "is it the
difficulty?": the same rewards, permuted among the step's valid proposals); `replay` asks a learning
solver again what was nearest the frontier. Policy and solver that learn share one set of weights,
as in the papers. The advantages' part of the loss is the sum of each role's mean over its own rows,
so that a role's weight in it does not depend on how many rows the other has. (Two roles still share
AdamW's step: each moves the weights less than it would alone.)
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core import prompts
from spnb.core.advantages import make_estimator
from spnb.core.episodes import answer_all
from spnb.core.search import single
from spnb.core.types import Chat, Engine, Sample, Sampling, derive_seed, sample_of
from spnb.methods.proposals import (
    Context,
    Proposal,
    difficulty_reward,
    draw_question,
    judged_rows,
    nearest_frontier,
    proposal_metrics,
    proposal_rows,
    read_proposal,
)
from spnb.methods.rlvr import FRAMES, WorldParams, answer_rows, with_advantages
from spnb.testbed import oracle
from spnb.testbed.oracle import MAX_HOPS
from spnb.testbed.suites import Item
from spnb.testbed.tasks import hops_label, path_task
from spnb.testbed.world import Pool

START = "start"
"""The engine that answers with the weights from before the first step; `Method.uses_start` asks for
it."""


class Params(WorldParams):
    """The study's own parameters; see the module's docstring for the arms."""

    solver: Literal["frozen", "learning"] = "learning"
    proposer: Literal["learning", "frozen", "uniform"] = "learning"
    reward: Literal["difficulty", "shuffled"] = "difficulty"
    max_hops: int = Field(
        4, ge=1, le=MAX_HOPS, description="the longest chain that all documents contain"
    )
    hard_hops: int = Field(
        2, ge=1, le=MAX_HOPS, description="hops from which a question counts as hard"
    )
    worlds_per_step: int = Field(8, ge=1, description="sets of documents to ask about")
    proposals: int = Field(16, ge=1, description="proposals for each")
    answers: int = Field(8, ge=2, description="answers to each distinct valid question")
    invalid_reward: float = Field(0.0, le=0, description="0 or a small penalty")
    solver_weight: float = Field(
        1.0, gt=0, description="factor on the solver's advantages; below 1 it learns slower"
    )
    replay: int = Field(
        0, ge=0, description="earlier questions nearest the frontier that the solver is asked again"
    )
    eval_worlds: int = Field(64, ge=2, description="held-out sets of documents")
    eval_proposals: int = Field(8, ge=1, description="proposals for each")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        if self.solver == "frozen" and self.proposer != "learning":
            raise ValueError(
                f"solver frozen with proposer {self.proposer} trains nobody; allowed: proposer learning"
            )
        if self.solver_weight != 1 and not self.solver == self.proposer == "learning":
            raise ValueError(
                f"solver_weight is {self.solver_weight} with solver {self.solver} and proposer {self.proposer}; "
                "allowed: 1, as one role alone learns at the optimiser's own pace"
            )
        if self.replay and self.solver == "frozen":
            raise ValueError(
                f"replay is {self.replay} with solver frozen; allowed: 0, as nobody learns to answer"
            )
        if self.hard_hops > self.max_hops:
            raise ValueError(
                f"hard_hops is {self.hard_hops}; allowed: up to max_hops ({self.max_hops})"
            )
        if self.reward == "shuffled" and self.proposer != "learning":
            raise ValueError(
                f"reward shuffled with proposer {self.proposer}; allowed: proposer learning"
            )
        self.level(self.max_hops)
        return self

    @property
    def asker(self) -> str:
        """The engine that asks."""
        return START if self.proposer == "frozen" else "policy"

    @property
    def answerer(self) -> str:
        """The engine whose answers decide p."""
        return START if self.solver == "frozen" else "policy"


class Method:
    """Proposer and solver on one policy, either of them frozen where an arm says so."""

    uses_start = True

    def __init__(self, params: Params, tokenizer: Any):
        self.params = params
        self.chat = Chat(tokenizer)
        self.sampling = Sampling(params.max_new_tokens, params.temperature)
        self.estimator = make_estimator("group_zscore")
        self.memory: list[tuple[Context, Proposal]] = []
        self._metrics: dict[str, float] = {}

    def collect(self, engines: Mapping[str, Engine], step: int, rank: int = 0) -> list[Sample]:
        """Contexts, proposals, answers (to remembered questions too); the rows of whoever learns,
        with advantages."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, rank)
        contexts = self.contexts(params.worlds_per_step, "train", seed)
        proposals = self.proposals(engines, contexts, params.proposals, seed, "train")
        again = [
            replace(old, context=len(contexts) + place)
            for place, (_, old) in enumerate(self.memory)
        ]
        contexts += [context for context, _ in self.memory]
        answers = self.solve(engines, params.answerer, contexts, [*proposals, *again], seed)
        self.memory = nearest_frontier(contexts, [*proposals, *again], params.replay)
        self._metrics = proposal_metrics(proposals, params.hard_hops)
        asked = self.proposer_rows(proposals, seed) if params.proposer == "learning" else []
        answered = answers if params.solver == "learning" else []
        kept = [with_advantages(rows, self.estimator, params) for rows in (asked, answered) if rows]
        total = sum(map(len, kept))
        for rows in kept:
            for row in rows:
                row.advantage *= (
                    total / len(rows) * (params.solver_weight if row.role == "solver" else 1.0)
                )
        return [row for rows in kept for row in rows]

    def contexts(self, count: int, pool: Pool, seed: int) -> list[Context]:
        """Documents of fresh worlds, each set with a chain of `max_hops` facts, so with shorter
        ones too."""
        rng, level = (
            random.Random(derive_seed(seed, "contexts")),
            self.params.level(self.params.max_hops),
        )
        tasks = [path_task(rng, level, pool) for _ in range(count)]
        return [Context(task.documents, tuple(task.stated)) for task in tasks]

    def proposals(
        self,
        engines: Mapping[str, Engine],
        contexts: Sequence[Context],
        count: int,
        seed: int,
        pool: Pool,
    ) -> list[Proposal]:
        """`count` proposals about each context, one context after the other."""
        if self.params.proposer == "uniform":
            rng = random.Random(derive_seed(seed, "uniform"))
            places = [place for place in range(len(contexts)) for _ in range(count)]
            hops = [rng.randint(1, self.params.max_hops) for _ in places]
            return [
                draw_question(place, contexts[place], n, rng, FRAMES[pool])
                for place, n in zip(places, hops, strict=True)
            ]
        requests = [
            self.chat.request(
                prompts.ask(context.documents),
                self.sampling,
                derive_seed(seed, "ask", place, index),
                self.params.asker,
            )
            for place, context in enumerate(contexts)
            for index in range(count)
        ]
        found = []
        for index, (request, done) in enumerate(
            zip(requests, answer_all(requests, engines), strict=True)
        ):
            place = index // count
            read = read_proposal(done.text, contexts[place].stated) or ("", None, None)
            found.append(Proposal(place, *read, request=request, completion=done))
        return found

    def solve(
        self,
        engines: Mapping[str, Engine],
        engine: str,
        contexts: Sequence[Context],
        proposals: Sequence[Proposal],
        seed: int,
    ) -> list[Sample]:
        """Answers to each distinct valid question; sets `success` of all its proposals; returns the
        answers as rows."""
        count, asked = self.params.answers, {}
        for proposal in proposals:
            if proposal.valid:
                asked.setdefault(proposal.key, proposal)
        keys = [key for key in asked for _ in range(count)]
        requests = [
            self.chat.request(
                prompts.answer(question, contexts[place].documents, "steps"),
                self.sampling,
                derive_seed(seed, "answer", place, question, index % count),
                engine,
            )
            for index, (place, question) in enumerate(keys)
        ]
        rows, right_of = [], dict.fromkeys(asked, 0)
        for key, request, done in zip(keys, requests, answer_all(requests, engines), strict=True):
            given, gold = prompts.field(done.text, "answer"), str(asked[key].gold)
            right = given is not None and oracle.same(gold, given)
            right_of[key] += right
            rows.append(sample_of(request, done, reward=float(right), role="solver", group=key))
            rows[-1].invalid = given is None
            rows[-1].info = {"text": done.text, "gold": gold}
        for proposal in proposals:
            if proposal.valid:
                proposal.success = right_of[proposal.key] / count
        return rows

    def proposer_rows(self, proposals: Sequence[Proposal], seed: int) -> list[Sample]:
        """The proposals as loss rows; the control permutes the rewards of the step's valid ones."""
        paid = [difficulty_reward(proposal.success) for proposal in proposals if proposal.valid]
        if self.params.reward == "shuffled":
            random.Random(derive_seed(seed, "shuffled")).shuffle(paid)
        rewards, rows = iter(paid), []
        for p in proposals:
            assert p.request is not None and p.completion is not None
            reward = next(rewards) if p.valid else self.params.invalid_reward
            rows.append(
                sample_of(p.request, p.completion, reward=reward, role="proposer", group=p.context)
            )
            rows[-1].invalid = not p.valid
            rows[-1].info = {
                "text": p.completion.text,
                "success": p.success if p.valid else None,
                "hops": p.hops,
            }
        return rows

    def metrics(self) -> dict[str, float]:
        """The last rollout's proposals: see `proposal_metrics`."""
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        """The estimator's and the remembered questions; documents follow from seed and step."""
        return {"estimator": self.estimator.state_dict(), "memory": list(self.memory)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        self.estimator.load_state_dict(state["estimator"])
        self.memory = list(state["memory"])

    def evaluate(self, engines: Mapping[str, Engine], step: int) -> list[dict[str, Any]]:
        """What the arm's proposer asks about held-out documents, judged by the starting solver and,
        where the solver learns, by the current one; and the policy's own answers to held-out
        questions of 1 to `max_hops` hops.
        """
        params, seed = self.params, derive_seed("evaluation")
        contexts = self.contexts(params.eval_worlds, "heldout", seed)
        proposals = self.proposals(engines, contexts, params.eval_proposals, seed, "heldout")
        rows = proposal_rows(proposals, params.hard_hops)
        judges = {"starting solver": START} | (
            {"current solver": "policy"} if params.solver == "learning" else {}
        )
        for judge, engine in judges.items():
            self.solve(engines, engine, contexts, proposals, seed)
            rows += judged_rows(judge, proposals)
        return [{"step": step, **row} for row in [*rows, *self.solver_rows(engines)]]

    def solver_rows(self, engines: Mapping[str, Engine]) -> list[dict[str, Any]]:
        """Held-out accuracy of the policy as solver, sampled and greedy, by hops, which take turns.

        The questions are drawn as those of the uniform arm, one about each of `eval_items`
        contexts.
        """
        params, seed = self.params, derive_seed("evaluation", "items")
        rng, items = random.Random(seed), []
        for place, context in enumerate(self.contexts(params.eval_items, "heldout", seed)):
            drawn = draw_question(
                place, context, place % params.max_hops + 1, rng, FRAMES["heldout"]
            )
            messages = prompts.answer(drawn.question, context.documents, "steps")
            items.append(
                Item(
                    messages, drawn.question, (str(drawn.gold),), difficulty=hops_label(drawn.hops)
                )
            )
        rows = []
        for label, sampling in params.samplings().items():
            requests = [
                self.chat.request(item.messages, sampling, derive_seed("solver", label, place))
                for place, item in enumerate(items)
            ]
            found = [
                single(*pair) for pair in zip(requests, answer_all(requests, engines), strict=True)
            ]
            rows += answer_rows(f"solver, {label}", items, found)
        return rows
