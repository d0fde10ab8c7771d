"""Policies that learn in the same steps as the run's own, each with weights of its own.

The run's trainer leads: it plays the rollout and hands each partner the rows of its policy. A
partner's trainer runs beside it as a greenlet, in the same thread: it goes on until it asks for
the next rollout, so the order of all updates is fixed. TRL does for each what it does for one:
loss, KL, optimiser, clipping, checkpoints.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from greenlet import greenlet

from spnb.core.episodes import Episode
from spnb.core.method import Role, SelfPlayMethod
from spnb.core.types import Sample
from spnb.train.runs import read_state


class FollowerMethod(SelfPlayMethod):
    """A method without a rollout of its own: its rows come estimated and weighted from a leader."""

    def __init__(self, leader: SelfPlayMethod, fetch: Callable[[], list[Sample]]):
        self.leader = leader
        self.fetch = fetch
        super().__init__(leader.params, leader.chat.tokenizer)

    def default_roles(self) -> dict[str, Role]:
        """The leader's."""
        return self.leader.roles

    def role_of(self, sample: Sample) -> str:
        """As the leader says."""
        return self.leader.role_of(sample)

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """The rows that the leader hands over."""
        yield from ()
        return self.fetch()

    def estimate(self, samples: list[Sample]) -> None:
        """Done by the leader."""

    def select(self, samples: list[Sample]) -> None:
        """Done by the leader."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the leader's state has it."""
        return {"estimators": {}}


class Partner:
    """One policy that learns beside the leader's; its trainer is made by `make` from a function
    that fetches the next rows. `row` holds its metrics of the last step."""

    def __init__(self, make: Callable[[Callable[[], list[Sample]]], Any]):
        self.trainer = make(self._fetch)
        self.trainer.hooks.on_step = self._on_step
        self.row: dict[str, float] = {}
        self._body = greenlet(self._train)

    def start(self, checkpoint: Path | None = None) -> None:
        """Goes on from a checkpoint if there is one, up to where the first rows are asked for."""
        if checkpoint:
            self.trainer.restore(read_state(checkpoint))
        self._body.switch(str(checkpoint) if checkpoint else None)

    def step(self, samples: list[Sample]) -> None:
        """Trains on the rows of a step; returns when they are used up."""
        self._body.switch(samples)

    def metrics(self, name: str) -> dict[str, float]:
        """What a step's row says of this policy besides its roles' rewards."""
        own = {f"{key}/{name}": self.row[key] for key in ("loss", "grad_norm") if key in self.row}
        return own | {key: value for key, value in self.row.items() if key.startswith("kl/")}

    def _on_step(self, row: dict[str, float], samples: list[Sample]) -> None:
        self.row = row

    def _fetch(self) -> list[Sample]:
        return self._body.parent.switch()

    def _train(self, checkpoint: str | None) -> None:
        self.trainer.train(resume_from_checkpoint=checkpoint)
