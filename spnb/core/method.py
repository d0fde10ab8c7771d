"""What a self-play method is: its parameters, its roles as data, one rollout, what it evaluates.

A method's file reads like the paper's algorithm. Its `rollout` is one episode with numbered stages;
everything around it (estimating, training, evaluating, saving) is done by `spnb.train`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from spnb.core import plugins, prompts
from spnb.core.advantages import (
    ESTIMATORS,
    Estimator,
    RoleEMA,
    assign,
    make_estimator,
    skip_zero_advantage,
)
from spnb.core.episodes import Episode, ask_group, overlong, single_turn
from spnb.core.params import Settings, StrictData, require
from spnb.core.search import Tool, make_tool, search_rollout
from spnb.core.types import Chat, Messages, Pair, Request, Sample, Sampling, Trajectory, derive_seed

POLICY = "policy"
"""The name of a run's one policy where it has no several."""
ROW_MEAN_LOSSES = ("grpo", "dr_grpo")
"""Losses of TRL that are means over rows, whatever their number of tokens."""
SNAPSHOTS = ("start", "past")
"""Earlier weights of the policy in training: before its first step, at the evaluation before."""


class RoleParams(StrictData):
    """Changes to one role of a method; what is left out stays as the method has it."""

    policy: str | None = Field(None, description="a policy of the run, or the snapshot start")
    trainable: bool | None = None
    estimator: Literal[tuple(ESTIMATORS)] | None = None  # type: ignore[valid-type]
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_new_tokens: int | None = Field(None, ge=1)
    kl: bool | None = Field(None, description="whether grpo.beta holds the role to its start")


@dataclass(frozen=True)
class Role:
    """One role of a method: who answers, how it samples, what it is compared with, if it learns.

    `kl` False takes the role's rows out of the KL term that `grpo.beta` adds.
    """

    sampling: Sampling
    estimator: Estimator
    policy: str = POLICY
    trainable: bool = True
    kl: bool = True

    def changed(self, params: RoleParams) -> "Role":
        """This role with the parameters that are set; a snapshot never learns."""
        changes = params.model_dump(exclude_none=True)
        sampling = {n: changes.pop(n) for n in Sampling.__annotations__ if n in changes}
        if params.estimator == "role_ema" and isinstance(self.estimator, RoleEMA):
            del changes["estimator"]  # it keeps its decay
        elif params.estimator:
            changes["estimator"] = make_estimator(params.estimator)
        if params.policy in SNAPSHOTS:
            changes["trainable"] = False
        return replace(self, sampling=replace(self.sampling, **sampling), **changes)


@dataclass(frozen=True)
class Preference:
    """A loss over preference pairs, in the place of rollouts (`spnb.train.preference`).

    `batch` pairs make an update, over all processes. `beta` scales the implicit reward, `weight` is
    that of longpo's preference term or of solopo's reward alignment.
    """

    loss: Literal["longpo", "solopo"]
    batch: int
    beta: float
    weight: float


class MethodParams(Settings):
    """Parameters that every method reads. Subclasses add the method's own.

    `role_names` are the method's roles; `roles` changes them, for instance
    `{"proposer": {"policy": "start", "trainable": False}}` for a frozen proposer. What
    `silent` ones answer is no row, so they cannot learn.

    `asks` says how many answers a `step`, an `evaluation` and once the `run` ask for at most, as a
    sum of products of parameters ("proposals * answers + eval_items"; a list counts its items).
    """

    role_names: ClassVar[tuple[str, ...]] = ()
    silent: ClassVar[tuple[str, ...]] = ()
    asks: ClassVar[dict[str, str]] = {}

    plugins: str = Field("", description="a file that registers rewards, games, sources")
    seed: int = Field(0, ge=0, lt=2**32)
    steps: int = Field(100, ge=1, le=10**7, description="rollouts, each with its updates")
    roles: dict[str, RoleParams] = Field({}, description="changes to the method's roles")
    grpo: dict[str, Any] = Field(
        {}, validate_default=True, description="settings of trl.GRPOConfig by their own names"
    )
    kl_to: Literal["", "start", "stage"] = Field(
        "",
        description="weights that grpo.beta holds to: those before the run's first step, or the "
        "stage's; empty: as the method has it",
    )
    max_new_tokens: int = Field(64, ge=1, le=10**6)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1, description="also while training")
    eval_temperature: float = Field(0.6, ge=0)
    eval_top_p: float = Field(0.95, gt=0, le=1)
    eval_draw: str = Field("", description="empty: held-out questions; a word: others")

    @model_validator(mode="before")
    @classmethod
    def _plugins_first(cls, values: Any) -> Any:
        file = values.get("plugins") if isinstance(values, Mapping) else None
        if file and isinstance(file, str):
            plugins.load(file)
        return values

    @model_validator(mode="after")
    def _roles_exist(self) -> "MethodParams":
        for name, role in self.roles.items():
            require("role", name, self.role_names, ValueError)
            if role.trainable and name in self.silent:
                raise ValueError(f"roles.{name}.trainable is True; allowed: false, it has no rows")
            still = name in (*self.silent, *self.frozen) or self.preference
            own = f"roles.{name}.temperature"
            self.need(still or role.temperature != 0, own, "above 0, or trainable: false")
        self.need(not self.kl_to or self.grpo.get("beta"), "kl_to grpo.beta", "with a KL")
        return self

    def need_group(self, role: str, size: str, rule: str) -> None:
        """Refuses what teaches nothing: to compare an answer with itself, or to follow a mean by
        match in a group of several. `size`: the parameter that is a group's; `rule`: the usual."""
        rule = getattr(self.roles.get(role), "estimator", None) or rule
        alone = getattr(self, size) == 1 and rule.startswith("group") and role not in self.frozen
        self.need(not alone, f"{size} roles", "2 or more, to be compared with each other")
        fits = rule != "role_ema" or getattr(self, size) == 1
        self.need(fits, f"{size} roles", "role_ema where a group has one reward")

    def eval_seed(self, *labels: Any) -> int:
        """The seed that draws the questions of an evaluation: those of `eval_draw`."""
        return derive_seed("evaluation", *filter(None, [self.eval_draw]), *labels)

    @property
    def sampling(self) -> Sampling:
        """How training rollouts are sampled where a role does not say otherwise."""
        return Sampling(self.max_new_tokens, self.temperature, self.top_p)

    @property
    def eval_sampling(self) -> Sampling:
        """How held-out questions are answered."""
        return Sampling(self.max_new_tokens, self.eval_temperature, self.eval_top_p)

    @property
    def preference(self) -> Preference | None:
        """The loss of a run that learns from pairs; None: from rollouts."""
        return None

    @property
    def paths(self) -> dict[str, list[str]]:
        """Files and folders that must be there, by the parameter that names them."""
        corpus = getattr(self, "corpus", "") or []
        names = [corpus] if isinstance(corpus, str) else corpus
        return {"corpus": [name for name in names if plugins.find("source", name) is None]}

    @property
    def frozen(self) -> list[str]:
        """The roles that are told not to learn, or are snapshots."""
        roles = self.roles.items()
        return sorted(n for n, r in roles if r.trainable is False or r.policy in SNAPSHOTS)


@dataclass(frozen=True)
class Share:
    """One process's part of a quantity that is meant for all processes together.

    `gather` makes one list of every process's list; all of them have to call it.
    """

    rank: int = 0
    processes: int = 1
    gather: Callable[[list[Any]], list[Any]] = list

    def of(self, count: int) -> int:
        """How many of `count` this process takes, at least 1; the first ones take the remainder."""
        return max(1, count // self.processes + (self.rank < count % self.processes))

    def part(self, items: Sequence[Any]) -> list[Any]:
        """The items that this process takes: every `processes`-th."""
        return list(items[self.rank :: self.processes])

    def counts(self, own: Counter) -> Counter:
        """Counts added up over all processes; all of them have to ask."""
        return sum(self.gather([own]), Counter())


@dataclass(frozen=True)
class Suite:
    """One measurement of a policy, in parts that any process may play in any order.

    `ask(part)` is the episode that plays one part; its result are the part's records, dictionaries
    with at least the keys `item` and `score` (see `spnb.evaluate.items`). `summarise` makes rows
    of all records in the order of `parts`; a row has the keys of `spnb.evaluate.items.ROW` that
    are not the default.
    """

    name: str
    parts: Sequence[Any]
    ask: Callable[[Any], Episode[list[dict[str, Any]]]] = field(repr=False)
    summarise: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = field(repr=False)


class SelfPlayMethod(ABC):
    """Base of all methods. A subclass sets `Params` and writes `default_roles` and `rollout`.

    Attributes:
        roles: role by name, with the changes of `params.roles`.
        share: this process's part of global quantities, set by the trainer.
        metrics: the method's own numbers of the last rollout; keys begin with "method/".
        snapshots: which of `SNAPSHOTS` the run must keep for this method.
        stateful: attributes that must survive a restart; JSON can hold their values.
        by_search: what benchmarks that need a search are answered with
            (`spnb.evaluate.by_search.BySearch`); None: there are none.
        kl_weighted: a row's KL has the row's weight, also where all roles are under it.
        kl_to: where `params.kl_to` is empty.
    """

    Params: ClassVar[type[MethodParams]] = MethodParams
    snapshots: tuple[str, ...] = ()
    stateful: tuple[str, ...] = ()
    by_search: Any = None
    kl_weighted = False
    kl_to: Literal["start", "stage"] = "stage"

    @classmethod
    def kl_to_start(cls, params: MethodParams) -> bool:
        """Whether `grpo.beta` holds to the weights before the run's first step."""
        return (params.kl_to or cls.kl_to) == "start"

    @classmethod
    def unmerged(cls, params: MethodParams) -> bool:
        """Whether a stage goes on with the LoRA adapter of the one before: merged into weights of
        16 bits small changes are lost."""
        return cls.kl_to_start(params) or not params.grpo["beta"]

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        words = prompts.CALLS.get(getattr(params, "syntax", ""))
        self.chat = Chat(tokenizer, getattr(params, "thinking", None), words)
        self.share = Share()
        self.metrics: dict[str, float] = {}
        self.roles = {
            name: role.changed(params.roles[name]) if name in params.roles else role
            for name, role in self.default_roles().items()
        }

    @abstractmethod
    def default_roles(self) -> dict[str, Role]:
        """The method's roles before `params.roles` changes them."""

    @abstractmethod
    def rollout(self, step: int) -> Episode[list[Sample]]:
        """One rollout of training step `step` (from 0): every row, trained later or not.

        A row's `advantage` may be left None: then its role's estimator sets it.
        """

    def pairs(self, attempt: int = 0) -> Episode[list[Pair]]:
        """What a run with `params.preference` learns from, made before its first step; a process
        makes its share. Each `attempt` without a pair is followed by another, with new seeds."""
        yield from ()
        return []

    def step_seed(self, step: int) -> int:
        """The seed of a training step in this process."""
        return derive_seed(self.params.seed, "train", step, self.share.rank)

    def sample(
        self,
        role: str,
        prompts: Sequence[Messages],
        copies: int,
        seed_of: Callable[[int, int], int],
        answer: Callable[[int, Request], Episode[Trajectory]] | None = None,
    ) -> Episode[list[list[Trajectory]]]:
        """`copies` answers of a role to each prompt, all side by side; a list for each prompt.

        A prompt that leaves no room for an answer is not asked: its trajectories are `overlong`,
        without a word, and train nothing.

        Args:
            seed_of: the seed of a copy, from its prompt's place and its number.
            answer: the episode that answers the prompt of a place; one turn where not given.
        """
        settings = self.roles[role]

        @cache
        def first(place: int) -> Request:
            return self.chat.request(prompts[place], settings.sampling, 0, settings.policy)

        def turn(place: int, _: Messages, copy: int) -> Episode[Trajectory]:
            request = replace(first(place), seed=seed_of(place, copy))
            if not self.has_room(request.prompt_ids):
                return overlong(request)
            return (yield from answer(place, request) if answer else single_turn(request))

        return (yield from ask_group(prompts, copies, turn))

    def has_room(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the run's `max_length` leaves room for an answer to a prompt."""
        limit = getattr(self.params, "max_length", None)
        return limit is None or len(prompt_ids) < limit

    def log(self, **numbers: float) -> None:
        """Adds numbers to the step's metrics, each under "method/"."""
        self.metrics |= {f"method/{name}": float(value) for name, value in numbers.items()}

    def role_of(self, sample: Sample) -> str:
        """The name of the role that a sample belongs to."""
        return str(sample.role)

    def estimate(self, samples: Sequence[Sample]) -> None:
        """Sets the advantages that are still missing, by each role's estimator; see `assign`."""
        roles = {sample.role: self.roles[self.role_of(sample)] for sample in samples}
        estimators = {key: role.estimator for key, role in roles.items() if role.trainable}
        assign(samples, estimators, self.share.gather, self.share.rank)

    def select(self, samples: Sequence[Sample]) -> None:
        """Sets weights: which rows are trained, how much each counts.

        By default all count alike, except that rows are left out which add nothing to the loss but
        time: in a mean over rows those without an advantage, and without a term beside it.
        """
        whole = {name for name, role in self.roles.items() if self.counts_all(role)}
        if self.params.grpo.get("loss_type", "dr_grpo") in ROW_MEAN_LOSSES:
            skip_zero_advantage(
                samples,
                lambda sample: sample.advantage or self.role_of(sample) in whole,
                self.share.counts,
            )

    def counts_all(self, role: Role) -> bool:
        """Whether the loss of a role's policy, whose settings may be its own (`co_trained`), has a
        term for rows without an advantage, too: KL or entropy."""
        own = getattr(self.params, "co_trained", {}).get(role.policy, {})
        grpo = self.params.grpo | own
        entropy = grpo.get("entropy_coef") or grpo.get("use_adaptive_entropy")
        mixed = (grpo.get("top_entropy_quantile") or 1) < 1  # its threshold is one over all rows
        return bool(entropy or mixed or (role.kl and grpo.get("beta")))

    def suites(self, step: int) -> list[Suite]:
        """What is measured after `step` steps."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as JSON: the estimators' states, and what is `stateful`."""
        states = {name: role.estimator.state_dict() for name, role in self.roles.items()}
        return {"estimators": states} | {name: getattr(self, name) for name in self.stateful}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        for name, value in state["estimators"].items():
            self.roles[name].estimator.load_state_dict(value)
        for name in self.stateful:
            setattr(self, name, state[name])


class SearchMethod(SelfPlayMethod):
    """Base of methods whose roles search. `params` has max_length, max_searches, results, syntax;
    `source` a `retriever(pool)`."""

    source: Any

    def search(
        self,
        role: str,
        prompts: Sequence[Messages],
        copies: int,
        seed: int,
        pool: str,
        sampling: Sampling | None = None,
    ) -> Episode[list[list[Trajectory]]]:
        """`copies` trajectories of a role with searches to each prompt; one call of the retriever a
        round. `sampling`: in place of the role's."""
        policy, sampling = self.roles[role].policy, sampling or self.roles[role].sampling
        asked = [self.chat.request(messages, sampling, 0, policy) for messages in prompts]
        tool = self.tool(pool)

        def answer(place: int, request: Request, copy: int) -> Episode[Trajectory]:
            return search_rollout(replace(request, seed=derive_seed(seed, role, place, copy)), tool)

        return (yield from ask_group(asked, copies, answer))

    def tool(self, pool: str) -> Tool:
        """What a search reaches, and what a trajectory may use."""
        return make_tool(self.params, self.chat.tokenizer, self.source.retriever(pool))


def place_of(params: Any, step: int) -> tuple[str | None, int, int]:
    """The policy of a step's stage, the step's place in it, and the stage's steps; without stages
    no policy and the place of the only step."""
    for stage in getattr(params, "stages", []):
        if step < stage.steps:
            return stage.policy, step, stage.steps
        step -= stage.steps
    return None, 0, 1
