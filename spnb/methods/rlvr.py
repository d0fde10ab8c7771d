"""RLVR: GRPO on static questions with a rule as reward, the baseline of four of the papers.

An oracle draws questions and their answers: new ones every step, or a set of `fixed` questions.
Each step asks `prompts_per_step` of them, samples `group_size` answers to each, rewards an answer
with 1 where the rule finds it right, and compares it with the other answers to the same question
(GRPO, DeepSeekMath). Questions about a chain may be answered by search.

    spnb run rlvr --scale cpu --variant think --seed 0

The control `reward: random` permutes the step's rewards over all of its answers. Held-out questions
have names and wordings that training never uses; they are the same for every step, variant, seed.
"""

import random
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from spnb.core import prompts
from spnb.core.advantages import make_estimator, permute
from spnb.core.documents import check_source, open_source
from spnb.core.episodes import Episode
from spnb.core.grading import graded
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.types import Request, Sample, Sampling, Task, Trajectory, derive_seed
from spnb.evaluate.items import ask_suite

SOURCE = "lab:ladder"
ROLE = "ladder"
"""The role that samples are recorded under."""


class Params(MethodParams):
    """RLVR's own parameters.

    `transfer` describes a second, harder evaluation. With it, questions are held out as training
    draws them and as `transfer` does, sampled and greedy; without, every level, sampled.
    """

    role_names = ("solver",)
    asks = {
        "step": "prompts_per_step * group_size",
        "evaluation": "eval_items * highest",
        "run": "fixed",
    }

    family: Literal["journey", "ledger", "choice", "report", "chain", "quest"] = Field(
        "journey", description="the kind of answer; chain, quest: by search"
    )
    mix: list[NonNegativeFloat] = Field(
        [1.0], min_length=1, description="how often levels 1, 2, ... are drawn"
    )
    transfer: list[NonNegativeFloat] = Field([], description="as mix, of the harder evaluation")
    max_searches: int = Field(3, ge=1, description="chain, quest: of a trajectory")
    max_length: int = Field(2048, ge=16, description="tokens of prompt and completion together")
    prompts_per_step: int = Field(32, ge=1)
    fixed: int | None = Field(None, ge=1, description="questions drawn once; else always new ones")
    group_size: int = Field(8, ge=2, description="answers to each question")
    reward: Literal["rule", "random"] = "rule"
    eval_items: int = Field(512, ge=1, description="held-out questions, or of each level")
    eval_temperature: float = Field(1.0, ge=0, description="of sampled answers; others are greedy")
    eval_top_p: float = Field(1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _levels_exist(self) -> "Params":
        for name in ("mix", "transfer"):
            weights = getattr(self, name)
            self.need(sum(weights) > 0 or not weights, name, "weights of levels, one above 0")
        self.need("solver" not in self.frozen, "roles", "a solver that learns")
        check_source(SOURCE, self)
        return self

    @property
    def highest(self) -> int:
        """The highest level that is asked for."""
        return max(len(self.mix), len(self.transfer))


def behaviour(trajectory: Trajectory) -> dict[str, bool]:
    """What the policy does: gives an answer that can be read, thinks in its tag, searches."""
    return {
        "parsed": prompts.field(trajectory.policy_text, "answer") is not None,
        "thinks": any(prompts.tagged(trajectory.policy_text, "think")),
        "searches": bool(trajectory.searches),
    }


class Method(SelfPlayMethod):
    """GRPO on drawn questions.

    Metrics: accuracy (mean rule reward, in the control too), parsed, thinks, searches (shares of
    answers), mixed (share of questions with right and wrong answers: only these teach GRPO).
    """

    Params = Params

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.source: Any = open_source(SOURCE, params, tokenizer)

    def default_roles(self) -> dict[str, Role]:
        """One role, compared within the question."""
        return {"solver": Role(self.params.sampling, make_estimator("group_zscore"))}

    def role_of(self, sample: Sample) -> str:
        """Samples are recorded under the source's name."""
        return "solver"

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Questions, a group of answers to each, the rule's rewards."""
        params = self.params
        size = params.group_size
        seed = self.step_seed(step)

        # 1 Draw questions.
        tasks = self.draw(self.share.of(params.prompts_per_step), random.Random(seed))

        # 2 Answer each of them `group_size` times.
        def seed_of(place: int, copy: int) -> int:
            return derive_seed(seed, place * size + copy)

        def answer(place: int, request: Request) -> Episode[Trajectory]:
            return self.source.answer(tasks[place], request)

        prompts = [task.messages for task in tasks]
        groups = yield from self.sample("solver", prompts, size, seed_of, answer)

        # 3 Verify by rule.
        samples = graded(tasks, groups, ROLE)
        rewards = [sample.reward for sample in samples]
        acts = [behaviour(trajectory) for group in groups for trajectory in group]
        mixed = [len(set(rewards[n : n + size])) > 1 for n in range(0, len(rewards), size)]
        self.log(**{key: fmean(act[key] for act in acts) for key in acts[0]})
        self.log(accuracy=fmean(rewards), mixed=fmean(mixed))

        # 4 Pay; in the control the same rewards go to anybody.
        if params.reward == "random":
            permute(samples, random.Random(derive_seed(seed, "permuted")))
        return samples

    def draw(self, count: int, rng: random.Random) -> list[Task]:
        """`count` new questions, or some of the fixed set, none again before all have come."""
        params = self.params
        if params.fixed is None:
            return [self.question(params.mix, rng) for _ in range(count)]
        places: list[int] = []
        while len(places) < count:
            places += rng.sample(range(params.fixed), params.fixed)
        seeds = [derive_seed(params.seed, "fixed", place) for place in places[:count]]
        return [self.question(params.mix, random.Random(seed)) for seed in seeds]

    def question(self, mix: Sequence[float], rng: random.Random, pool: str = "train") -> Task:
        """A question of a level drawn by a mix, in names and wordings of a pool."""
        (level,) = rng.choices(range(1, len(mix) + 1), mix)
        return self.source.exercise(level, rng, pool)

    def suites(self, step: int) -> list[Suite]:
        """Held-out questions of every level; with `transfer` those of two mixes."""
        params = self.params
        if not params.transfer:
            return self.source.suites(self.chat, params, end=step in (0, params.steps))
        greedy = Sampling(params.max_new_tokens, temperature=0.0)
        decodings = {"sampled": params.eval_sampling, "greedy": greedy}
        acts = lambda _, trajectory: behaviour(trajectory)  # noqa: E731
        how = {"answer": partial(self.source.answer, pool="heldout"), "behaviour": acts}
        suites = []
        for name, mix in {"held-out": params.mix, "transfer": params.transfer}.items():
            rng = random.Random(self.params.eval_seed(name))
            tasks = [self.question(mix, rng, "heldout") for _ in range(params.eval_items)]
            for decoding, sampling in decodings.items():
                arguments = name, tasks, self.chat, sampling, partial(_seed, decoding)
                suites.append(ask_suite(*arguments, decoding=decoding, **how))
        return suites


def _seed(decoding: str, place: int, sample: int) -> int:
    """The seed of a held-out answer: the same at every step, in every variant."""
    return derive_seed("evaluation", decoding, place)
