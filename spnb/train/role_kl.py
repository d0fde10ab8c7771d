"""The KL term of `grpo.beta` on the rows of some roles only.

A proposer may need a leash to its start where the solver, on the same weights, must be free to
learn.
"""

from typing import Any

import torch

IN_KL = "in_kl"
"""The key of TRL's dictionaries that says which rows the KL term holds."""


class RoleKLMixin:
    """The reference of every other row is the policy as it is: KL and gradient are exactly 0.

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
