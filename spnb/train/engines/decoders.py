"""How the torch engine runs a model: any causal LM of transformers, and tiny ones on a CPU fast.

The fast decoder of tiny policies is the laboratory's and reached by name. Its logits are those of
transformers bit by bit (tests/train/engines/test_decoders.py), so a run does not depend on which of
the two decoded.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

TINY = "spnb.lab.decoder"
"""The module of the fast decoder."""


def make_decoder(model: Any, pad_id: int) -> Any:
    """The fastest decoder that gives the model's own logits."""
    tiny = import_module(TINY).Qwen3Decoder
    return tiny(model) if tiny.fits(model) else Decoder(model, pad_id)


def padded(
    prompts: Sequence[tuple[int, ...]], pad_id: int, device: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask of prompts, padded on the left, each (B, T)."""
    ids = [torch.tensor(prompt) for prompt in prompts]
    ids_BT = pad_sequence(ids, batch_first=True, padding_value=pad_id, padding_side="left")
    mask = [torch.ones_like(row) for row in ids]
    mask_BT = pad_sequence(mask, batch_first=True, padding_side="left")
    return ids_BT.to(device), mask_BT.to(device)


class Decoder:
    """Runs any causal LM of transformers with its own cache.

    Args:
        model: used as it is; its mode is the caller's business.
        pad_id: fills rows of shorter prompts; never attended to.
    """

    def __init__(self, model: Any, pad_id: int):
        self.model = model
        self.pad_id = pad_id

    def prefill(
        self, prompts: Sequence[tuple[int, ...]], rows: torch.Tensor, room: int
    ) -> torch.Tensor:
        """Runs each prompt once; row r of the batch goes on from prompt `rows[r]`.

        Returns the logits (B, V) of the next tokens, float32; `room` is the most tokens to come.
        """
        ids_BT, self._mask_BT = padded(prompts, self.pad_id, self.model.device)
        self._cache = DynamicCache(config=self.model.config)
        logits_BV = self._forward(ids_BT)
        if not torch.equal(rows, torch.arange(len(prompts))):
            self.keep(rows)
            logits_BV = logits_BV[rows.to(logits_BV.device)]
        return logits_BV

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with these rows (indices into the batch as it is) and forgets the others."""
        rows = rows.to(self._mask_BT.device)
        self._mask_BT = self._mask_BT[rows]
        self._cache.reorder_cache(rows)  # of linear attention too

    def step(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Appends a token to each row; the logits (B, V) of the next ones."""
        ones_B1 = self._mask_BT.new_ones(len(tokens_B), 1)
        self._mask_BT = torch.cat([self._mask_BT, ones_B1], dim=1)
        return self._forward(tokens_B[:, None])

    def _forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        positions_BT = (self._mask_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        output = self.model(
            input_ids=ids_BT,
            attention_mask=self._mask_BT,
            position_ids=positions_BT,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()
