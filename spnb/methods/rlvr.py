"""RLVR: GRPO on static questions with a rule as reward, the baseline that four of the papers
compare with.

The questions are drawn from the generated world with their gold answers; nobody plays the
questioner. Each step asks `prompts_per_step` new questions, samples `group_size` answers to each,
rewards an answer with 1 where the rule finds it right, and compares it with the others to the same
question (GRPO, DeepSeekMath).

    spnb run rlvr --scale cpu --variant think --seed 0

The control `reward: random` permutes the step's rewards over all of its rollouts: as many ones as
before, given to anybody, so a group's mean is no longer its own but the step's. Evaluation asks
held-out questions: names and wordings that training never uses, the same ones at every step and for
every variant and seed.
"""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from spnb.core import prompts
from spnb.core.advantages import Estimator, make_estimator
from spnb.core.episodes import Episode, run
from spnb.core.params import RunParams
from spnb.core.search import Searched, Tool, rollouts, single
from spnb.core.stats import share_interval
from spnb.core.types import Chat, Engine, Sample, Sampling, derive_seed
from spnb.corpus.retrieval import Retriever, make_retriever
from spnb.testbed import oracle
from spnb.testbed.oracle import Op
from spnb.testbed.suites import Item
from spnb.testbed.tasks import (
    NUMERIC_OPS,
    Level,
    draw_path,
    hops_label,
    options,
    path_task,
    report_task,
)
from spnb.testbed.texts import article
from spnb.testbed.world import HELDOUT_NAMES, SUFFIXES, Pool, World, names

STYLES: dict[str, prompts.Style] = {"read": "careful", "think": "plain", "steps": "steps"}
FRAMES = {"train": oracle.TRAIN_FRAMES, "heldout": oracle.HELDOUT_FRAMES}
ROW_MEAN_LOSSES = ("grpo", "dr_grpo")


class WorldParams(RunParams):
    """Parameters of everything that reads generated documents; `level` puts them together."""

    documents: int = Field(4, ge=1, le=HELDOUT_NAMES, description="documents in a prompt")
    same_relation: float = Field(
        1.0, ge=0, le=1, description="share of distractors with the question's relation"
    )
    facts: int = Field(2, ge=1, le=4, description="facts a document")
    distances: list[Literal[0, 1, 2]] = Field(
        [0], min_length=1, description="paraphrase distances of documents"
    )
    eval_items: int = Field(512, ge=1, description="held-out questions")
    eval_temperature: float = Field(
        1.0, ge=0, description="of the sampled evaluation; another one is greedy"
    )
    eval_top_p: float = Field(1.0, gt=0, le=1)

    def level(self, hops: int, documents: int = 0) -> Level:
        """The level for questions of `hops` hops; `documents` instead of the usual number where not
        0."""
        return Level(
            hops, documents or self.documents, self.same_relation, self.facts, tuple(self.distances)
        )

    def samplings(self) -> dict[str, Sampling]:
        """How held-out questions are answered: sampled, and greedily."""
        sampled = Sampling(self.max_new_tokens, self.eval_temperature, self.eval_top_p)
        return {"sampled": sampled, "greedy": Sampling(self.max_new_tokens, 0.0)}


class Params(WorldParams):
    """RLVR's own parameters.

    `task` decides the prompt: read (careful), think (plain: thinking is allowed, not asked for),
    steps, search (plain, without documents, over a library of its own), choice (multiple choice),
    numeric (a report's figures).
    """

    task: Literal["read", "think", "steps", "search", "choice", "numeric"] = "read"
    hops: list[int] = Field([1], min_length=1, description="1 to 4, in turn; not for numeric")
    operations: list[Op] = Field(
        list(NUMERIC_OPS), min_length=1, description="for numeric, in turn"
    )
    companies: int = Field(1, ge=1, le=HELDOUT_NAMES, description="for numeric: tables in a prompt")
    results: int = Field(2, ge=1, description="for search: documents a search returns")
    max_searches: int = Field(3, ge=1, description="for search: searches a rollout")
    prompts_per_step: int = Field(32, ge=1)
    group_size: int = Field(8, ge=2, description="answers to each question")
    estimator: Literal["group_zscore", "group_mean", "batch_zscore", "raw"] = "group_zscore"
    reward: Literal["rule", "random"] = Field(
        "rule", description="random: the control, the step's rewards permuted"
    )
    transfer_hops: list[int] = Field(
        [], description="a second, harder evaluation with these hops; not for numeric"
    )
    transfer_documents: int = Field(
        0, ge=0, le=HELDOUT_NAMES, description="its documents or tables; 0: as in training"
    )

    @field_validator("operations")
    @classmethod
    def _figures(cls, value: list[Op]) -> list[Op]:
        if not set(value) <= set(NUMERIC_OPS):
            raise ValueError(f"some of {', '.join(NUMERIC_OPS)}")
        return value

    @model_validator(mode="after")
    def _levels_exist(self) -> "Params":
        for turns, documents in (
            (self.hops, 0),
            (self.transfer_hops or self.hops, self.transfer_documents),
        ):
            for hops in turns if self.task != "numeric" else ():
                self.level(hops, oracle.MAX_HOPS if self.task == "search" else documents)
        if self.transfer_hops and self.task == "numeric":
            raise ValueError(
                f"transfer_hops is {self.transfer_hops} with task numeric; allowed: []"
            )
        if self.transfer_documents and self.task == "search":
            raise ValueError(
                f"transfer_documents is {self.transfer_documents} with task search; allowed: 0"
            )
        return self


def draw_item(
    params: Params, rng: random.Random, index: int, pool: Pool, transfer: bool = False
) -> Item:
    """Question `index` of a step or an evaluation; hops and operations take turns.

    `Item.difficulty` is the number of hops or the operation.
    """
    frames, documents = FRAMES[pool], params.transfer_documents if transfer else 0
    if params.task == "numeric":
        op = params.operations[index % len(params.operations)]
        task = report_task(rng, op, documents or params.companies, pool, frames)
        messages = prompts.answer(task.question, task.documents)
        return Item(messages, task.question, (task.gold.text,), difficulty=str(op))
    turns = (params.transfer_hops if transfer else []) or params.hops
    hops = turns[index % len(turns)]
    if params.task == "search":
        return _searched(rng, hops, pool)
    task = path_task(rng, params.level(hops, documents), pool, frames)
    if params.task == "choice":
        listed, letter = options(task, rng)
        messages = prompts.choice(task.question, listed, task.documents)
        return Item(messages, task.question, (letter,), "letter", difficulty=hops_label(hops))
    messages = prompts.answer(task.question, task.documents, STYLES[params.task])
    return Item(messages, task.question, (task.gold.text,), difficulty=hops_label(hops))


def _searched(rng: random.Random, hops: int, pool: Pool) -> Item:
    """A question about the library's world, to be answered by searching it."""
    world = library_world(pool)
    query = draw_path(world, rng, hops)
    question, gold = oracle.ask(query, rng.choice(FRAMES[pool])), oracle.answer(world, query)
    return Item(
        prompts.search(question, "plain"),
        question,
        (gold.text if gold else "",),
        difficulty=hops_label(hops),
    )


def library_world(pool: Pool) -> World:
    """The world that the library of a pool of names is about: training and evaluation share no fact
    and no name."""
    return World(derive_seed("library", pool), len(names("person", pool)), pool)


@cache
def library(pool: Pool) -> Retriever:
    """BM25 over an article on every entity of `library_world` (576 for training, 288 held out), in
    mixed wording."""
    world = library_world(pool)
    every = [world.name(kind, index) for kind in SUFFIXES for index in range(world.size)]
    return make_retriever("bm25", [article(world, name, random.Random(name)) for name in every])


class Method:
    """GRPO on drawn questions."""

    def __init__(self, params: Params, tokenizer: Any):
        self.params = params
        self.chat = Chat(tokenizer)
        self.sampling = Sampling(params.max_new_tokens, params.temperature)
        self.estimator = make_estimator(params.estimator)
        self._metrics: dict[str, float] = {}

    def collect(self, engines: Mapping[str, Engine], step: int, rank: int = 0) -> list[Sample]:
        """New questions, a group of answers to each, rewards and advantages; rows without an
        advantage are left out."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, rank)
        rng = random.Random(seed)
        items = [draw_item(params, rng, index, "train") for index in range(params.prompts_per_step)]
        asked = [
            (place, item) for place, item in enumerate(items) for _ in range(params.group_size)
        ]
        found = run(self.play([item for _, item in asked], self.sampling, seed, "train"), engines)
        rewards = [
            item.grade(rollout.said) for (_, item), rollout in zip(asked, found, strict=True)
        ]
        self._metrics = rollout_metrics(found, rewards, params.group_size)
        if params.reward == "random":
            random.Random(derive_seed(seed, "permuted")).shuffle(rewards)
        samples = []
        for (place, item), rollout, reward in zip(asked, found, rewards, strict=True):
            row = rollout.sample(reward, params.task, place)
            row.invalid = not behaviour(rollout)["parsed"]
            row.info |= {"gold": item.answer}
            samples.append(row)
        return with_advantages(samples, self.estimator, params)

    def play(
        self, items: Sequence[Item], sampling: Sampling, seed: int, pool: Pool
    ) -> Episode[list[Searched]]:
        """A rollout of each item, all side by side; with the library of `pool` where the task is to
        search."""
        params, chat = self.params, self.chat
        requests = [
            chat.request(item.messages, sampling, derive_seed(seed, place))
            for place, item in enumerate(items)
        ]
        if params.task != "search":
            return [single(*pair) for pair in zip(requests, (yield requests), strict=True)]
        tool = Tool(
            chat.tokenizer, library(pool), params.results, params.max_searches, params.max_length
        )
        return (yield from rollouts(requests, [item.question for item in items], tool))

    def metrics(self) -> dict[str, float]:
        """The last rollout before any row is left out.

        accuracy (mean rule reward, in the control too), parsed, thinks, searches (shares of
        rollouts), and mixed (share of questions with right and wrong answers, the only ones that
        teach GRPO anything).
        """
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        """The estimator's; questions follow from seed and step."""
        return {"estimator": self.estimator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        self.estimator.load_state_dict(state["estimator"])

    def evaluate(self, engines: Mapping[str, Engine], step: int) -> list[dict[str, Any]]:
        """Held-out accuracy, sampled and greedy, with the behaviour behind it; the harder level
        where there is one."""
        params, rows = self.params, []
        suites = {"held-out": False} | (
            {"transfer": True} if params.transfer_hops or params.transfer_documents else {}
        )
        for name, transfer in suites.items():
            rng = random.Random(derive_seed("evaluation", name))
            items = [
                draw_item(params, rng, index, "heldout", transfer)
                for index in range(params.eval_items)
            ]
            for label, sampling in params.samplings().items():
                found = run(
                    self.play(items, sampling, derive_seed("evaluation", label), "heldout"), engines
                )
                rows += answer_rows(f"{name}, {label}", items, found)
        return [{"step": step, **row} for row in rows]


def behaviour(rollout: Searched) -> dict[str, bool]:
    """What a rollout does: gives an answer that can be read, thinks in its tag, searches."""
    return {
        "parsed": prompts.field(rollout.said, "answer") is not None,
        "thinks": any(prompts.fields(rollout.said, "think")),
        "searches": bool(rollout.searches),
    }


def rollout_metrics(
    found: Sequence[Searched], rewards: Sequence[float], group_size: int
) -> dict[str, float]:
    """Numbers of a step's rollouts, the groups one after the other; see `Method.metrics`."""
    groups = [
        set(rewards[start : start + group_size]) for start in range(0, len(rewards), group_size)
    ]
    acts = [behaviour(rollout) for rollout in found]
    shares = {key: sum(act[key] for act in acts) / len(acts) for key in acts[0]}
    shares |= {
        "accuracy": sum(rewards) / len(rewards),
        "mixed": sum(len(group) > 1 for group in groups) / len(groups),
    }
    return {f"method/{key}": value for key, value in shares.items()}


def answer_rows(
    evaluation: str, items: Sequence[Item], found: Sequence[Searched]
) -> list[dict[str, Any]]:
    """Accuracy in all and by difficulty (where there are several), and behaviour rates, with Wilson
    bounds."""
    hits: dict[str, list[bool]] = {"accuracy": []}
    several = len({item.difficulty for item in items}) > 1
    for item, rollout in zip(items, found, strict=True):
        right = item.grade(rollout.said) == 1.0
        hits["accuracy"].append(right)
        if several:
            hits.setdefault(f"accuracy, {item.difficulty}", []).append(right)
        for key, did in behaviour(rollout).items():
            hits.setdefault(key, []).append(did)
    rows = []
    for metric, values in hits.items():
        low, high = share_interval(sum(values), len(values))
        found_here = {
            "value": sum(values) / len(values),
            "low": low,
            "high": high,
            "n": len(values),
        }
        rows.append({"evaluation": evaluation, "metric": metric, **found_here})
    return rows


def with_advantages(samples: list[Sample], estimator: Estimator, params: RunParams) -> list[Sample]:
    """Sets advantages and leaves out rows whose advantage is 0: they would cost time and teach
    nothing.

    Losses that are means over rows would grow by this, so the advantages that stay are scaled by
    the share of rows that stay: the gradient is exactly that of all rows. Where a row without an
    advantage counts (KL, losses divided by tokens), all stay.
    """
    rewards, groups, roles_of = (
        [getattr(row, key) for row in samples] for key in ("reward", "group", "role")
    )
    for sample, advantage in zip(samples, estimator(rewards, groups, roles_of), strict=True):
        sample.advantage = advantage
    if params.kl_beta > 0 or params.loss_type not in ROW_MEAN_LOSSES:
        return samples
    kept = [sample for sample in samples if sample.advantage != 0]
    for sample in kept:
        sample.advantage *= len(kept) / len(samples)
    return kept
