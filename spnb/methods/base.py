"""What the trainer and a run ask of any paper's method."""

from collections.abc import Mapping
from typing import Any, Protocol

from spnb.rollout import Engine, Sample


class Method(Protocol):
    """A self-play method: it plays rollouts, sets advantages, evaluates, and can be stopped and resumed."""

    def collect(self, engines: Mapping[str, Engine], step: int, rank: int = 0) -> list[Sample]:
        """One rollout: the loss rows of training step `step` (from 0) with their advantages; may be empty."""
        ...

    def evaluate(self, engines: Mapping[str, Engine], step: int) -> list[dict[str, Any]]:
        """Measures the policy after `step` training steps: rows with `spnb.runs.EVAL_KEYS`.

        An engine named "past" is the policy at the evaluation before; it is absent the first time.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """The method's own numbers of the last rollout, keys beginning with "method/"."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        ...
