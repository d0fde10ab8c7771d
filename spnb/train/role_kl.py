"""Which rows TRL's KL term holds, and with which weight."""

from typing import Any

import torch

IN_KL = "in_kl"
"""The key of TRL's dictionaries that says which rows the KL term holds."""
KL_WEIGHT = "kl_weight"
"""The key of each row's weight in the KL term."""


class RoleKLMixin:
    """The KL term of `grpo.beta` on the rows of some roles only: a proposer may need a leash to its
    start where the solver, on the same weights, must be free to learn. The reference of every other
    row is the policy as it is: KL and gradient are exactly 0.

    Not for Unsloth, whose compiled loss does not ask for log-probabilities in this way.
    """

    _in_loss: dict[str, Any] | None = None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._in_loss = inputs
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._in_loss = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **more: Any) -> tuple[Any, ...]:
        parts = super()._get_per_token_logps_and_entropies(*args, **more)
        if self._in_loss is not None:
            free_B = ~self._in_loss[IN_KL]
            self._in_loss["ref_per_token_logps"][free_B] = parts[0].detach()[free_B]
        return parts


class RowBeta(float):
    """A coefficient of the KL term that is multiplied by each row's own weight."""

    weights_B: torch.Tensor

    def __mul__(self, kl_BT: torch.Tensor) -> torch.Tensor:
        return float(self) * self.weights_B[:, None] * kl_BT


class WeightedKLMixin:
    """The KL term of a row has the row's weight, so that each role may have a mean of its own. TRL
    multiplies the term by `beta`. Not for Unsloth, whose compiled loss takes one number."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        beta = self.beta
        self.beta = RowBeta(beta)
        self.beta.weights_B = inputs[KL_WEIGHT]
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self.beta = beta
