"""Policies that learn in the same steps as the run's own, each with weights of its own.

The run's trainer leads: it plays the rollout and hands each partner the rows of its policy. A
partner's trainer runs beside it as a greenlet, in the same thread: it goes on until it asks for
the next rollout, so the order of all updates is fixed. TRL does for each what it does for one:
loss, KL, optimiser, clipping, checkpoints.
"""

from pathlib import Path
from typing import Any

from greenlet import greenlet

from spnb.core.types import Sample
from spnb.train.runs import read_state


class Partner:
    """One policy that learns beside the leader's: a trainer of `make_trainer` with the leader's
    method, which takes rows that are handed over instead of playing. `row` holds its metrics of
    the last step."""

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self.trainer.play = lambda step: self._body.parent.switch()
        self.trainer.hooks.on_step = lambda row, samples: setattr(self, "row", row)
        self.row: dict[str, float] = {}
        self._body = greenlet(trainer.train)

    def start(self, checkpoint: Path | None = None) -> None:
        """Goes on from a checkpoint if there is one, up to where the first rows are asked for."""
        if checkpoint:
            self.trainer._step = read_state(checkpoint)["step"]
        self._body.switch(str(checkpoint) if checkpoint else None)

    def step(self, samples: list[Sample]) -> None:
        """Trains on the rows of a step; returns when they are used up."""
        self._body.switch(samples)

    def metrics(self, name: str) -> dict[str, float]:
        """What a step's row says of this policy besides its roles' rewards."""
        own = {f"{key}/{name}": self.row[key] for key in ("loss", "grad_norm") if key in self.row}
        return own | {key: value for key, value in self.row.items() if key.startswith("kl/")}
