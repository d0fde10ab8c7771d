"""RLVR: GRPO on static questions with a rule as reward, the baseline of four of the papers.

Questions and gold answers are an oracle's: new ones every step, or from a set of `fixed` questions.
Each step asks `prompts_per_step` of them, samples `group_size` answers to each, rewards an answer
with 1 where the rule finds it right, and compares it with the other answers to the same question
(GRPO, DeepSeekMath).

    spnb run rlvr --scale cpu --variant think --seed 0

The control `reward: random` permutes the step's rewards over all of its answers. Held-out questions
have names and wordings that training never uses; they are the same for every step, variant, seed.
"""

import random
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from spnb.core.advantages import make_estimator
from spnb.core.documents import check_source, open_source
from spnb.core.episodes import Episode
from spnb.core.grading import graded as graded
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.params import require
from spnb.core.types import Request, Sample, Task, Trajectory, derive_seed
from spnb.evaluate.items import behaviour as behaviour

SOURCE = "lab:questions"


class Params(MethodParams):
    """RLVR's own parameters.

    `task` decides the prompt: read (careful), think (plain: thinking is allowed, not asked for),
    steps, search (plain, over a library of its own), choice (multiple choice), numeric (a report's
    figures), ladder (a `family` of the ladder, or `chain`, answered by search; levels are drawn by
    `mix`). `transfer_*` describe a second, harder evaluation; 0 or none: as in training.
    """

    role_names = ("solver",)

    task: Literal["read", "think", "steps", "search", "choice", "numeric", "ladder"] = "read"
    hops: list[int] = Field([1], min_length=1, description="1 to 4, in turn; not for numeric")
    documents: int = Field(4, ge=1, description="documents in a prompt")
    same_relation: float = Field(1.0, ge=0, le=1, description="share of rival distractors")
    facts: int = Field(2, ge=1, le=4, description="facts a document")
    distances: list[Literal[0, 1, 2]] = Field([0], min_length=1, description="of paraphrases")
    operations: list[str] = Field(
        ["cell", "sum", "difference", "highest", "margin"],
        min_length=1,
        description="for numeric, in turn",
    )
    companies: int = Field(1, ge=1, description="numeric: tables in a prompt")
    family: Literal["journey", "ledger", "choice", "report", "chain"] | None = Field(
        None, description="ladder: the kind of answer"
    )
    mix: list[NonNegativeFloat] = Field(
        [], description="ladder: how often levels 1, 2, ... are drawn"
    )
    results: int = Field(2, ge=1, description="search: documents that a search returns")
    max_searches: int = Field(3, ge=1, description="search: searches of a trajectory")
    max_length: int = Field(2048, ge=16, description="tokens of prompt and completion together")
    prompts_per_step: int = Field(32, ge=1)
    fixed: int | None = Field(None, ge=1, description="questions drawn once; else always new ones")
    group_size: int = Field(8, ge=2, description="answers to each question")
    reward: Literal["rule", "random"] = "rule"
    transfer_hops: list[int] = Field([], description="not for numeric")
    transfer_documents: int = Field(0, ge=0, description="not for search")
    eval_items: int = Field(512, ge=1, description="held-out questions")
    eval_temperature: float = Field(1.0, ge=0, description="of sampled answers; others are greedy")
    eval_top_p: float = Field(1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _levels_exist(self) -> "Params":
        plain = [("numeric", "transfer_hops"), ("search", "transfer_documents")]
        plain += [("ladder", "transfer_hops"), ("ladder", "transfer_documents")]
        for task, name in plain:
            value = getattr(self, name)
            message = f"{name} is {value} with task {task}; allowed: nothing"
            require(self.task != task or not value, message)
        if self.task == "ladder":
            require(self.family is not None, "family is None with task ladder; allowed: a family")
        elif self.family or self.mix:
            raise ValueError(f"family and mix are set with task {self.task}; allowed: with ladder")
        check_source(SOURCE, self)
        return self


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
        """Samples are recorded under the task's name."""
        return "solver"

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """New questions, a group of answers to each, the rule's rewards."""
        params = self.params
        size = params.group_size
        seed = derive_seed(params.seed, "train", step, self.share.rank)

        # 1 Draw questions.
        tasks = self.draw(max(1, self.share.of(params.prompts_per_step)), random.Random(seed))

        # 2 Answer each of them `group_size` times.
        def seed_of(place: int, copy: int) -> int:
            return derive_seed(seed, place * size + copy)

        def answer(place: int, request: Request) -> Episode[Trajectory]:
            return self.source.answer(tasks[place], request)

        prompts = [task.messages for task in tasks]
        groups = yield from self.sample("solver", prompts, size, seed_of, answer)

        # 3 Verify by rule.
        samples = graded(tasks, groups, params.task)
        rewards = [sample.reward for sample in samples]
        acts = [behaviour(trajectory) for group in groups for trajectory in group]
        mixed = [len(set(rewards[n : n + size])) > 1 for n in range(0, len(rewards), size)]
        self.log(**{key: fmean(act[key] for act in acts) for key in acts[0]})
        self.log(accuracy=fmean(rewards), mixed=fmean(mixed))

        # 4 Pay; in the control the same rewards go to anybody.
        if params.reward == "random":
            random.Random(derive_seed(seed, "permuted")).shuffle(rewards)
        for sample, reward in zip(samples, rewards, strict=True):
            sample.reward = reward
        return samples

    def draw(self, count: int, rng: random.Random) -> list[Task]:
        """`count` new questions, or some of the fixed set, none again before all have come."""
        params = self.params
        if params.fixed is None:
            return [self.source.exercise(index, rng) for index in range(count)]
        places: list[int] = []
        while len(places) < count:
            places += rng.sample(range(params.fixed), params.fixed)
        seeds = [derive_seed(params.seed, "fixed", place) for place in places[:count]]
        pairs = zip(places, seeds, strict=False)
        return [self.source.exercise(place, random.Random(seed)) for place, seed in pairs]

    def suites(self, step: int) -> list[Suite]:
        """The source's held-out questions."""
        return self.source.suites(self.chat, self.params, step in (0, self.params.steps))
