"""What a self-play method is: its parameters, its roles as data, one rollout, what it evaluates.

A method's file reads like the paper's algorithm. Its `rollout` is one episode with numbered stages;
everything around it (estimating, training, evaluating, saving) is done by `spnb.train`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from spnb.core import plugins
from spnb.core.advantages import ESTIMATORS, Estimator, assign, make_estimator, skip_zero_advantage
from spnb.core.episodes import Episode, ask_group, overlong, single_turn
from spnb.core.params import Settings, StrictData, unknown
from spnb.core.types import Chat, Messages, Pair, Request, Sample, Sampling, Trajectory

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
        names = ("temperature", "top_p", "max_new_tokens")
        sampling = {name: getattr(params, name) for name in names}
        sampling = {name: value for name, value in sampling.items() if value is not None}
        trainable = self.trainable if params.trainable is None else params.trainable
        return Role(
            sampling=replace(self.sampling, **sampling),
            estimator=make_estimator(params.estimator) if params.estimator else self.estimator,
            policy=params.policy or self.policy,
            trainable=trainable and params.policy not in SNAPSHOTS,
            kl=self.kl if params.kl is None else params.kl,
        )


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
    `{"proposer": {"policy": "start", "trainable": False}}` for a frozen proposer.
    """

    role_names: ClassVar[tuple[str, ...]] = ()

    plugins: str = Field("", description="a file that registers rewards, games, sources")
    seed: int = Field(0, ge=0, lt=2**32)
    steps: int = Field(100, ge=1, le=10**7, description="rollouts, each with its updates")
    roles: dict[str, RoleParams] = Field({}, description="changes to the method's roles")
    grpo: dict[str, Any] = Field({}, description="settings of trl.GRPOConfig by their own names")
    max_new_tokens: int = Field(64, ge=1, le=10**6)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1, description="also while training")
    eval_temperature: float = Field(0.6, ge=0)
    eval_top_p: float = Field(0.95, gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _plugins_first(cls, values: Any) -> Any:
        file = values.get("plugins") if isinstance(values, Mapping) else None
        if file and isinstance(file, str):
            plugins.load(file)
        return values

    @model_validator(mode="after")
    def _roles_exist(self) -> "MethodParams":
        for name in self.roles:
            if name not in self.role_names:
                raise ValueError(unknown("role", name, self.role_names))
        return self

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
    def skips_zero_advantage(self) -> bool:
        """Whether rows with advantage 0 add nothing to the loss but time."""
        mean_of_rows = self.grpo.get("loss_type", "dr_grpo") in ROW_MEAN_LOSSES
        return mean_of_rows and not self.grpo.get("beta", 0)


@dataclass(frozen=True)
class Share:
    """One process's part of a quantity that is meant for all processes together."""

    rank: int = 0
    processes: int = 1

    def of(self, count: int) -> int:
        """How many of `count` this process takes; the remainder goes to the first ones."""
        return count // self.processes + (self.rank < count % self.processes)

    def part(self, items: Sequence[Any]) -> list[Any]:
        """The items that this process takes: every `processes`-th."""
        return list(items[self.rank :: self.processes])


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
    """

    Params: ClassVar[type[MethodParams]] = MethodParams
    snapshots: tuple[str, ...] = ()

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        self.chat = Chat(tokenizer)
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

    def pairs(self) -> Episode[list[Pair]]:
        """What a run with `params.preference` learns from, made before its first step; a process
        makes its share."""
        yield from ()
        return []

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
        asked = self.roles[role]
        limit = getattr(self.params, "max_length", None)

        def turn(place: int, messages: Messages, copy: int) -> Episode[Trajectory]:
            seed = seed_of(place, copy)
            request = self.chat.request(messages, asked.sampling, seed, asked.policy)
            if limit is not None and len(request.prompt_ids) >= limit:
                return overlong(request)
            return answer(place, request) if answer else single_turn(request)

        return (yield from ask_group(prompts, copies, turn))

    def log(self, **numbers: float) -> None:
        """Adds numbers to the step's metrics, each under "method/"."""
        self.metrics |= {f"method/{name}": float(value) for name, value in numbers.items()}

    def role_of(self, sample: Sample) -> str:
        """The name of the role that a sample belongs to."""
        return str(sample.role)

    def estimate(self, samples: Sequence[Sample]) -> None:
        """Sets the advantages that are still missing, by each role's estimator; see `assign`."""
        estimators: dict[Hashable, Estimator] = {}
        for sample in samples:
            role = self.roles[self.role_of(sample)]
            if role.trainable:
                estimators[sample.role] = role.estimator
        assign(samples, estimators)

    def select(self, samples: Sequence[Sample]) -> None:
        """Sets weights: which rows are trained, how much each counts.

        By default all count alike, except that rows without an advantage are left out where they
        add nothing to the loss but time.
        """
        if self.params.skips_zero_advantage:
            skip_zero_advantage(samples)

    def suites(self, step: int) -> list[Suite]:
        """What is measured after `step` steps."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart, as JSON: the estimators' states, what a subclass adds."""
        states = {name: role.estimator.state_dict() for name, role in self.roles.items()}
        return {"estimators": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        for name, value in state["estimators"].items():
            self.roles[name].estimator.load_state_dict(value)
