"""RLVR: GRPO on static questions with a rule as reward, the baseline of four of the papers.

Questions and gold answers are drawn from a generated world: new ones every step, or from a set of
`fixed` questions. Each step asks `prompts_per_step` of them, samples `group_size` answers to each,
rewards an answer with 1 where the rule finds it right, and compares it with the other answers to
the same question (GRPO, DeepSeekMath).

    spnb run rlvr --scale cpu --variant think --seed 0

The control `reward: random` permutes the step's rewards over all of its answers. Held-out questions
have names and wordings that training never uses; they are the same for every step, variant, seed.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Literal

from pydantic import Field, NonNegativeFloat, model_validator

from spnb.core import prompts
from spnb.core.advantages import make_estimator
from spnb.core.episodes import Episode, ask_group, single_turn
from spnb.core.grading import grade_text, read_answer
from spnb.core.method import Role, SelfPlayMethod, Suite
from spnb.core.params import require
from spnb.core.search import Retriever, Tool, search_rollouts
from spnb.core.types import Chat, Request, Sample, Task, Trajectory, derive_seed
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.items import ask_suite
from spnb.lab import chain, ladder
from spnb.lab import ladder_suites as ladders
from spnb.lab import tasks as testbed
from spnb.lab.oracle import MAX_HOPS
from spnb.lab.tasks import FRAMES, NUMERIC_OPS, library_world
from spnb.lab.texts import article
from spnb.lab.world import HELDOUT_NAMES, SUFFIXES, Pool

Groups = list[list[Trajectory]]
STYLES: dict[str, prompts.Style] = {"think": "plain", "steps": "steps"}


class Params(testbed.WorldParams):
    """RLVR's own parameters.

    `task` decides the prompt: read (careful), think (plain: thinking is allowed, not asked for),
    steps, search (plain, over a library of its own), choice (multiple choice), numeric (a report's
    figures), ladder (a `family` of `spnb.lab.ladder`, or `chain`, answered by search; levels
    are drawn by `mix`).
    `transfer_*` describe a second, harder evaluation; 0 or none: as in training.
    """

    role_names = ("solver",)

    task: Literal["read", "think", "steps", "search", "choice", "numeric", "ladder"] = "read"
    hops: list[int] = Field([1], min_length=1, description="1 to 4, in turn; not for numeric")
    operations: list[Literal[NUMERIC_OPS]] = Field(  # type: ignore[valid-type]
        list(NUMERIC_OPS), min_length=1, description="for numeric, in turn"
    )
    companies: int = Field(1, ge=1, le=HELDOUT_NAMES, description="numeric: tables in a prompt")
    family: ladders.Family | None = Field(None, description="ladder: the kind of answer")
    mix: list[NonNegativeFloat] = Field(
        [], max_length=ladder.HIGHEST, description="ladder: how often levels 1, 2, ... are drawn"
    )
    results: int = Field(2, ge=1, description="search: documents that a search returns")
    max_searches: int = Field(3, ge=1, description="search: searches of a trajectory")
    max_length: int = Field(2048, ge=16, description="tokens of prompt and completion together")
    prompts_per_step: int = Field(32, ge=1)
    fixed: int | None = Field(None, ge=1, description="questions drawn once; else always new ones")
    group_size: int = Field(8, ge=2, description="answers to each question")
    reward: Literal["rule", "random"] = "rule"
    transfer_hops: list[int] = Field([], description="not for numeric")
    transfer_documents: int = Field(0, ge=0, le=HELDOUT_NAMES, description="not for search")

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
            highest = chain.HIGHEST if self.family == "chain" else ladder.HIGHEST
            message = (
                f"mix is {self.mix} with family {self.family}; allowed: 1 to {highest} weights"
            )
            require(sum(self.mix) > 0 and len(self.mix) <= highest, f"{message}, one above 0")
        elif self.family or self.mix:
            raise ValueError(f"family and mix are set with task {self.task}; allowed: with ladder")
        if self.task not in ("numeric", "ladder"):
            library = MAX_HOPS if self.task == "search" else 0
            for hops in self.hops:
                self.level(hops, library)
            for hops in self.transfer_hops or self.hops:
                self.level(hops, library or self.transfer_documents)
        return self


def draw_task(params: Params, rng: random.Random, index: int, pool: Pool, hard: bool) -> Task:
    """Question `index`, `hard` in the transfer evaluation; hops and operations take turns."""
    documents = params.transfer_documents if hard else 0
    if params.task == "ladder":
        (level,) = rng.choices(range(1, len(params.mix) + 1), params.mix)
        return ladders.draw_task(params.family or "", level, rng, pool, ladder.RIVALS)
    if params.task == "numeric":
        op = params.operations[index % len(params.operations)]
        return testbed.report_task(rng, op, documents or params.companies, pool, FRAMES[pool])
    turns = (params.transfer_hops if hard else []) or params.hops
    hops = turns[index % len(turns)]
    if params.task == "search":
        world = library_world(pool)
        query = testbed.draw_path(world, rng, hops)
        return testbed.search_task(world, query, rng, FRAMES[pool], "plain")
    level, style = params.level(hops, documents), STYLES.get(params.task, "careful")
    task = testbed.path_task(rng, level, pool, FRAMES[pool], style)
    return testbed.choice_task(task, rng) if params.task == "choice" else task


@cache
def library(pool: Pool, chained: bool = False) -> Retriever:
    """BM25 over an article on every entity of `library_world`: 576 for training, 288 held out; or
    over the sentences of the chain."""
    if chained:
        return make_retriever("bm25", chain.library(pool))
    world = library_world(pool)
    entities = [world.name(kind, index) for kind in SUFFIXES for index in range(world.size)]
    return make_retriever("bm25", [article(world, name, random.Random(name)) for name in entities])


def answer_groups(
    chat: Chat,
    role: Role,
    tasks: Sequence[Task],
    k: int,
    seed_of: Callable[[int, int], int],
    answer: Callable[[Task, Request], Episode[Trajectory]] | None = None,
) -> Episode[Groups]:
    """`k` answers of a role to each task, in one turn unless `answer` is given."""

    def ask(place: int, task: Task, copy: int) -> Episode[Trajectory]:
        seed = seed_of(place, copy)
        request = chat.request(task.messages, role.sampling, seed, role.policy)
        return answer(task, request) if answer else single_turn(request)

    return (yield from ask_group(tasks, k, ask))


def graded(tasks: Sequence[Task], groups: Groups, role: str) -> list[Sample]:
    """A group of answers to each task as samples, 1 for a right answer; `group` is the place."""
    samples = []
    for place, (task, answers) in enumerate(zip(tasks, groups, strict=True)):
        for trajectory in answers:
            text = trajectory.policy_text
            sample = trajectory.sample(grade_text(text, task), role, place)
            sample.invalid = read_answer(text, task.info.get("tag", "answer")) is None
            sample.info["gold"] = ", ".join(task.gold)
            samples.append(sample)
    return samples


def behaviour(trajectory: Trajectory) -> dict[str, bool]:
    """What the policy does: gives an answer that can be read, thinks in its tag, searches."""
    return {
        "parsed": prompts.field(trajectory.policy_text, "answer") is not None,
        "thinks": any(prompts.fields(trajectory.policy_text, "think")),
        "searches": bool(trajectory.searches),
    }


class Method(SelfPlayMethod):
    """GRPO on drawn questions.

    Metrics: accuracy (mean rule reward, in the control too), parsed, thinks, searches (shares of
    answers), mixed (share of questions with right and wrong answers: only these teach GRPO).
    """

    Params = Params

    def default_roles(self) -> dict[str, Role]:
        """One role, compared within the question."""
        return {"solver": Role(self.params.sampling, make_estimator("group_zscore"))}

    def role_of(self, sample: Sample) -> str:
        """Samples are recorded under the task's name."""
        return "solver"

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """New questions, a group of answers to each, the rule's rewards."""
        params, size = self.params, self.params.group_size
        seed = derive_seed(params.seed, "train", step, self.share.rank)

        # 1 Draw questions.
        tasks = self.draw(max(1, self.share.of(params.prompts_per_step)), random.Random(seed))

        # 2 Answer each of them `group_size` times.
        def seed_of(place: int, copy: int) -> int:
            return derive_seed(seed, place * size + copy)

        solver, answer = self.roles["solver"], partial(self.answer, pool="train")
        groups = yield from answer_groups(self.chat, solver, tasks, size, seed_of, answer)

        # 3 Verify by rule.
        samples = graded(tasks, groups, params.task)
        rewards = [sample.reward for sample in samples]
        acts = [behaviour(trajectory) for group in groups for trajectory in group]
        numbers = {key: fmean(act[key] for act in acts) for key in acts[0]}
        mixed = [len(set(rewards[n : n + size])) > 1 for n in range(0, len(rewards), size)]
        numbers |= {"accuracy": fmean(rewards), "mixed": fmean(mixed)}
        self.metrics = {f"method/{key}": value for key, value in numbers.items()}

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
            return [draw_task(params, rng, index, "train", False) for index in range(count)]
        places: list[int] = []
        while len(places) < count:
            places += rng.sample(range(params.fixed), params.fixed)
        rngs = [random.Random(derive_seed(params.seed, "fixed", place)) for place in places[:count]]
        return [
            draw_task(params, own, place, "train", False)
            for place, own in zip(places, rngs, strict=False)
        ]

    def answer(self, task: Task, request: Request, pool: Pool) -> Episode[Trajectory]:
        """One answer; it may search the library of `pool` where the task is to search."""
        params = self.params
        chained = params.family == "chain"
        if params.task != "search" and not chained:
            return (yield from single_turn(request))
        limits = params.results, params.max_searches, params.max_length
        tool = Tool(self.chat.tokenizer, library(pool, chained), *limits)
        repeated = "" if chained else task.question
        (trajectory,) = yield from search_rollouts([request], [repeated], tool)
        return trajectory

    def suites(self, step: int) -> list[Suite]:
        """Held-out questions, sampled and greedy; the harder level too where there is one."""
        params, answer = self.params, partial(self.answer, pool="heldout")
        if params.task == "ladder":
            of = params.family or "", len(params.mix), params.eval_items, ladder.RIVALS
            return [ladders.ladder_suite(*of, self.chat, params.samplings()["sampled"], answer)]
        suites = []
        harder = params.transfer_hops or params.transfer_documents
        for name in ["held-out", "transfer"] if harder else ["held-out"]:
            rng = random.Random(derive_seed("evaluation", name))
            hard = name == "transfer"
            tasks = [draw_task(params, rng, n, "heldout", hard) for n in range(params.eval_items)]
            ask = partial(ask_suite, name, tasks, self.chat, answer=answer, behaviour=behaviour)
            for decoding, sampling in params.samplings().items():
                seed = derive_seed("evaluation", decoding)
                seed_of = lambda place, _, seed=seed: derive_seed(seed, place)  # noqa: E731
                suites.append(ask(sampling, seed_of, decoding=decoding))
        return suites
