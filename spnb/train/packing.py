"""Rows of like length are run together in an update: on a CPU a third to a half of the work.

TRL pads every row of a batch to the longest one. Only for `trl.GRPOTrainer` as it is: Unsloth has
its own loss and must not have this mixin in its class.
"""

from typing import Any

import torch

LENGTH_GROUPS, GROUP_ROWS = 8, 16
"""Most groups of rows that are run together in an update, and fewest rows in one."""


class PackingMixin:
    """Gives TRL's own function rows of like length together, without the padding they share."""

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        ids_BT: torch.Tensor,
        mask_BT: torch.Tensor,
        keep: int,
        batch_size: int | None = None,
        *rest: Any,
        **more: Any,
    ) -> tuple[torch.Tensor | None, ...]:
        """TRL's values up to rounding, 0 on a completion's padding, which the loss masks.

        Where there is no gradient, TRL asks for a few rows at a time (`batch_size`); here it is as
        many as an update holds in memory anyway. Anything beside token ids goes to TRL unchanged.
        """
        plain = super()._get_per_token_logps_and_entropies
        tensors = any(isinstance(value, torch.Tensor) for value in (*rest, *more.values()))
        if len(rest) > 1 or more.get("compute_aux_loss") or tensors:
            return plain(model, ids_BT, mask_BT, keep, batch_size, *rest, **more)
        if batch_size:
            batch_size = max(batch_size, len(ids_BT) // self.args.steps_per_generation)
        groups = length_groups(mask_BT)
        results = []
        for rows in groups:
            first, last = _span(mask_BT[rows])
            cut = min(ids_BT.shape[1] - last, keep - 1)
            window = slice(first, ids_BT.shape[1] - cut)
            ids, mask = ids_BT[rows, window], mask_BT[rows, window]
            parts = plain(model, ids, mask, keep - cut, batch_size, *rest, **more)
            pad = torch.nn.functional.pad
            results.append([None if p is None else pad(p, (0, cut)) for p in parts[:2]])
        order = torch.cat(groups).argsort()
        logps_BT, entropies_BT = (
            None if parts[0] is None else torch.cat(parts)[order]
            for parts in zip(*results, strict=True)
        )
        return logps_BT, entropies_BT, None


def length_groups(mask_BT: torch.Tensor) -> list[torch.Tensor]:
    """Row indices sorted by length in equal groups, equally many in every process."""
    order = mask_BT.sum(dim=1).argsort(stable=True)
    return list(order.tensor_split(max(1, min(LENGTH_GROUPS, len(order) // GROUP_ROWS))))


def _span(mask_BT: torch.Tensor) -> tuple[int, int]:
    """First column that any row uses, and the one after the last."""
    used = mask_BT.any(dim=0).nonzero()
    return int(used[0]), int(used[-1]) + 1
