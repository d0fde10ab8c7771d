"""Log-probabilities of an update's rows: of like length together, and never all logits at once.

TRL's own function holds the logits of a micro-batch over the whole vocabulary, several copies at
its peak: 10 GB for one row of 4,096 tokens and a vocabulary of 152,000. With a small vocabulary on
a CPU that is nothing, and `PackingMixin` lets it; else `LogpsMixin` takes its place.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from accelerate.utils import AutocastKwargs
from torch.utils.checkpoint import checkpoint

from spnb.train.config import TrainerError

LENGTH_GROUPS = 8
GROUP_ROWS = 16
"""Most groups of rows that are run together in an update, and fewest rows in one."""
POSITIONS = 256
"""Positions whose logits over the whole vocabulary are in memory at a time."""
SMALL_VOCABULARY = 2**14
"""Up to so many tokens, and on a CPU, all logits of a micro-batch may be."""
ALMOST_ALL = 1 - 1e-6
"""A share of tokens by which Unsloth is asked for their entropies."""
Rows = tuple[torch.Tensor, torch.Tensor, int]
"""Token ids and mask, (rows, tokens), and how many tokens at the end are completions."""
Values = tuple[torch.Tensor | None, ...]
"""Log-probabilities and entropies in nats of those; no entropies where they are not asked for."""


class PackingMixin:
    """Gives TRL's own function rows of like length together, without the padding they share: on a
    CPU a third to a half of the work of an update. Not for Unsloth, which has its own loss.
    """

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
        tensors = any(isinstance(value, torch.Tensor) for value in (*rest, *more.values()))
        if len(rest) > 1 or more.get("compute_aux_loss") or tensors:
            plain = super()._get_per_token_logps_and_entropies
            return plain(model, ids_BT, mask_BT, keep, batch_size, *rest, **more)
        if batch_size:
            batch_size = max(batch_size, len(ids_BT) // self.args.steps_per_generation)
        entropy = rest[0] if rest else more.get("compute_entropy", False)
        return *self._of_rows((ids_BT, mask_BT, keep), model, batch_size, entropy), None

    def _of_rows(self, rows: Rows, model: Any, batch_size: int | None, entropy: bool) -> Values:
        plain = super()._get_per_token_logps_and_entropies

        def values(*part: Any) -> Values:
            return plain(model, *part, batch_size, entropy)[:2]

        return by_group(length_groups(rows[1]), rows, values)


class LogpsMixin(PackingMixin):
    """In the place of TRL's own function: the head makes logits of `POSITIONS` positions at a time,
    and makes them again for the gradient.

    With `micro_tokens` the rows run in groups of at most so many tokens, padding too, or one row;
    activations of one group are in memory at a time, made again for the gradient. The loss stays
    TRL's, over the whole micro-batch.
    """

    micro_tokens: int | None = None

    def _of_rows(self, rows: Rows, model: Any, batch_size: int | None, entropy: bool) -> Values:
        from trl.models.utils import _ForwardRedirection

        groups = length_groups(rows[1], self.micro_tokens)
        if batch_size and not self.micro_tokens:
            groups = [part for group in groups for part in group.split(batch_size)]
        whole = self.accelerator.unwrap_model(model)
        return _ForwardRedirection()(model, whole, self._values, rows, whole, groups, entropy)

    def _values(
        self, rows: Rows, model: Any, groups: Sequence[torch.Tensor], entropy: bool
    ) -> Values:
        """What a forward pass of the model is in this trainer: one call, for all groups. Without
        autocast's cache, weights that were cast have a float32 gradient for each piece."""
        language = language_model(model)
        again = bool(self.micro_tokens) and len(groups) > 1

        def values(ids_BT: torch.Tensor, mask_BT: torch.Tensor, keep: int) -> Values:
            inputs = {"input_ids": ids_BT, "attention_mask": mask_BT, "use_cache": False}
            body = partial(checkpoint, language.base_model, use_reentrant=False)
            out_BTH = (body if again else language.base_model)(**inputs).last_hidden_state
            sampled_BT = mask_BT[:, -keep:].bool()
            hidden_PH = out_BTH[:, -keep - 1 : -1][sampled_BT].split(POSITIONS)
            chunks = zip(hidden_PH, ids_BT[:, -keep:][sampled_BT].split(POSITIONS), strict=True)
            parts = [
                checkpoint(self._of_positions, head, *chunk, entropy, use_reentrant=False)
                for chunk in chunks
            ]
            zeros_BT = torch.zeros(sampled_BT.shape, device=ids_BT.device)
            return tuple(
                None if one[0] is None else zeros_BT.masked_scatter(sampled_BT, torch.cat(one))
                for one in zip(*parts, strict=True)
            )

        head = language.get_output_embeddings()
        with self.accelerator.autocast(AutocastKwargs(cache_enabled=False)):
            return by_group(groups, rows, values)

    def _of_positions(
        self, head: Any, hidden_PH: torch.Tensor, ids_P: torch.Tensor, entropy: bool
    ) -> Values:
        """Values (P,) of tokens, float32; the entropy has a gradient where it is in the loss."""
        from trl.trainer.utils import entropy_from_logits

        logps_P, logits_PV = head_logps(head, hidden_PH, ids_P, self.temperature)
        if not entropy:
            return logps_P, None
        in_loss = self._entropy_bonus_enabled
        return logps_P, entropy_from_logits(logits_PV if in_loss else logits_PV.detach())


def head_logps(
    head: Any, hidden_PH: torch.Tensor, ids_P: torch.Tensor, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities (P,) of tokens, and the logits (P, V) that they are of, float32."""
    logits_PV = head(hidden_PH).float() / temperature
    return logits_PV.gather(1, ids_P[:, None]).squeeze(1) - logits_PV.logsumexp(-1), logits_PV


def sequence_logps(
    head: Any, hidden_BTH: torch.Tensor, ids_BT: torch.Tensor, mask_BT: torch.Tensor
) -> torch.Tensor:
    """The log-probability (B,) in nats of each row's tokens under the mask; the first token of a
    row has none. Logits are of `POSITIONS` positions at a time, made again for the gradient."""
    asked_BT = mask_BT[:, 1:].bool()
    hidden_PH = hidden_BTH[:, :-1][asked_BT].split(POSITIONS)
    chunks = zip(hidden_PH, ids_BT[:, 1:][asked_BT].split(POSITIONS), strict=True)
    parts = [checkpoint(head_logps, head, *chunk, use_reentrant=False)[0] for chunk in chunks]
    zeros_BT = torch.zeros(asked_BT.shape, device=ids_BT.device)
    return zeros_BT.masked_scatter(asked_BT, torch.cat(parts)).sum(dim=1)


@contextmanager
def hidden_states(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collects the last hidden states (B, T, H) of each forward pass of a policy while it lasts."""
    states: list[torch.Tensor] = []
    keep = lambda *call: states.append(call[-1].last_hidden_state)  # noqa: E731
    hook = language_model(model).base_model.register_forward_hook(keep)
    try:
        yield states
    finally:
        hook.remove()


class EntropyMixin:
    """For Unsloth, whose loss has entropies only where it masks tokens by them: asked for a mask,
    by a quantile a little below 1, this keeps TRL's metric of them and masks none of the tokens
    that `top_entropy_quantile` leaves in."""

    def ask_for_entropies(self) -> None:
        """After the settings were compared with what was asked for."""
        self.args.top_entropy_quantile = min(self.top_entropy_quantile, ALMOST_ALL)

    def get_high_entropy_mask(
        self, entropies_BT: torch.Tensor, mask_BT: torch.Tensor, threshold: float
    ) -> torch.Tensor:
        """TRL's mask of the tokens that are trained; 1 on all where the run has no quantile."""
        mean = (entropies_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1.0)
        mean = self.accelerator.gather(mean).nanmean().item()
        self._metrics["train" if self.model.training else "eval"]["entropy"].append(mean)
        if self.top_entropy_quantile == 1.0:
            return torch.ones_like(mask_BT)
        return super().get_high_entropy_mask(entropies_BT, mask_BT, threshold)


def language_model(model: Any) -> Any:
    """The causal LM, with its adapters in its layers where PEFT has wrapped it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def logps_mixin(model: Any, micro_tokens: int | None) -> type[PackingMixin]:
    """What a trainer of a policy has: `PackingMixin` for a small vocabulary on a CPU, as long as
    `micro_tokens` is not set, else `LogpsMixin`.

    Raises:
        TrainerError: see `check_head`.
    """
    small = model.get_input_embeddings().weight.shape[0] <= SMALL_VOCABULARY
    if small and not (micro_tokens or torch.cuda.is_available()):
        return PackingMixin
    check_head(model)
    return LogpsMixin


def check_head(model: Any) -> None:
    """That a policy's logits are what its head makes of its hidden states.

    Raises:
        TrainerError: something follows the head, a soft cap or a scale.
    """
    language = language_model(model)
    training = language.training
    language.eval()
    ids = torch.arange(4, device=model.device)[None]
    with torch.no_grad():
        hidden = language.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits = language(input_ids=ids, use_cache=False).logits.float()
        gap = language.get_output_embeddings()(hidden).float() - logits
    language.train(training)
    if gap.abs().max() > 1e-3 * logits.abs().max():
        raise TrainerError(
            f"the logits of {type(language).__name__} are not its head's alone (a soft cap or a "
            "scale follows); allowed: a policy without, or backend unsloth"
        )


def by_group(groups: Sequence[torch.Tensor], rows: Rows, values: Callable[..., Values]) -> Values:
    """The values of all rows in their order, from those of each group without its padding."""
    ids_BT, mask_BT, keep = rows
    results = []
    for group in groups:
        first, last = _span(mask_BT[group])
        cut = min(ids_BT.shape[1] - last, keep - 1)
        window = slice(first, ids_BT.shape[1] - cut)
        parts = values(ids_BT[group, window], mask_BT[group, window], keep - cut)
        pad = torch.nn.functional.pad
        results.append([None if part is None else pad(part, (0, cut)) for part in parts])
    order = torch.cat(list(groups)).argsort()
    return tuple(
        None if parts[0] is None else torch.cat(parts)[order]
        for parts in zip(*results, strict=True)
    )


def length_groups(mask_BT: torch.Tensor, tokens: int | None = None) -> list[torch.Tensor]:
    """Row indices sorted by length, in equal groups, equally many in every process; or in groups of
    at most so many tokens, padding too, or one row."""
    order = mask_BT.sum(dim=1).argsort(stable=True)
    if tokens is None:
        return list(order.tensor_split(max(1, min(LENGTH_GROUPS, len(order) // GROUP_ROWS))))
    sizes: list[int] = []
    low = high = 0
    for row in mask_BT[order].cpu():
        first, last = _span(row[None])
        low, high = min(low, first), max(high, last)
        if sizes and (sizes[-1] + 1) * (high - low) <= tokens:
            sizes[-1] += 1
        else:
            sizes.append(1)
            low, high = first, last
    return list(order.split(sizes))


def _span(mask_BT: torch.Tensor) -> tuple[int, int]:
    """First column that any row uses, and the one after the last."""
    used = mask_BT.any(dim=0).nonzero()
    return int(used[0]), int(used[-1]) + 1
