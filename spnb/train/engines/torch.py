"""The torch engine: batched decoding of all pending requests with any causal LM of transformers.

What makes it fast on a CPU: every live episode decodes in one batch, or in a few by length where
prompts differ much, a prompt shared by several requests is prefilled once, finished rows leave the
batch, and tiny models have a decoder of their own. What makes it repeatable: each request draws its
random numbers from its own seed, so a completion does not depend on what else is in the batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from spnb.core.types import Completion, Request, Sampling, grouped
from spnb.train.engines import NOTHING, end_ids, new_token_limits, text_of
from spnb.train.engines.decoders import make_decoder

FEWEST = 32
LIKE = 0.8
"""Where more than a fifth of a batch would be padding, a CPU decodes so many prompts together, and
more if they have such a share of the longest's tokens."""
STOP_MARGIN = 8
"""Tokens more than a stop string has bytes in which it is looked for: a character may be cut."""


class TorchEngine:
    """Generates with a transformers model in this process, as it is at the moment of the call.

    Args:
        model: a causal LM; its device and dtype are used as they are.
        tokenizer: with an end token (`eos_token_id`) and a pad token.
        max_batch: most rows decoded at once; more requests are answered in several batches. On a
            GPU there are only as many as have room for their keys and values.
    """

    def __init__(self, model: Any, tokenizer: Any, max_batch: int = 512):
        self.model = model
        self.tokenizer = tokenizer
        self.max_batch = max_batch
        self.end_ids = end_ids(model, tokenizer)
        self._last: dict[tuple[int, tuple[str, ...]], bool] = {}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """See `Engine`. The model's train or eval mode is left as it was."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        limits = new_token_limits(requests, limit)
        answers = [NOTHING] * len(requests)
        training = self.model.training
        self.model.eval()
        try:
            places = [place for place, room in enumerate(limits) if room]
            for sampling, indices in grouped(places, lambda i: requests[i].sampling).items():
                lengths = [len(requests[i].prompt_ids) + limits[i] for i in indices]
                size = min(self.max_batch, rows_with_room(self.model, max(lengths)))
                for chunk in self._batches(indices, requests, size):
                    rows = [_Row(requests[i], limits[i]) for i in chunk]
                    self._decode(rows, sampling)
                    for i, row in zip(chunk, rows, strict=True):
                        answers[i] = row.completion(self.end_ids, self.tokenizer)
        finally:
            self.model.train(training)
        return answers

    def _batches(
        self, indices: Sequence[int], requests: Sequence[Request], most: int
    ) -> list[list[int]]:
        """Which requests are decoded together."""
        lengths = [len(requests[i].prompt_ids) for i in indices]
        parts = [list(range(len(indices)))]
        if self.model.device.type == "cpu" and sum(lengths) < LIKE * max(lengths) * len(lengths):
            parts = by_length(lengths)
        cut = [part[at : at + most] for part in parts for at in range(0, len(part), most)]
        return [[indices[place] for place in part] for part in cut]

    @torch.inference_mode()
    def _decode(self, rows: list["_Row"], sampling: Sampling) -> None:
        """Draws tokens for all rows, step by step, until each is finished."""
        prompts = {row.request.prompt_ids: None for row in rows}
        prompt_index = {prompt: index for index, prompt in enumerate(prompts)}
        source_B = torch.tensor([prompt_index[row.request.prompt_ids] for row in rows])
        steps = max(row.limit for row in rows)
        decoder = make_decoder(self.model, self.tokenizer.pad_token_id)
        logits_BV = decoder.prefill(list(prompts), source_B, steps)
        own = [np.random.Generator(np.random.Philox(row.request.seed)) for row in rows]
        draws_NB = torch.from_numpy(np.stack([each.random(steps) for each in own], axis=1))
        for step in range(steps):
            tokens_B, logps_B = _sample(logits_BV, draws_NB[step], sampling)
            for row, token, logp in zip(rows, tokens_B.tolist(), logps_B.tolist(), strict=True):
                row.ids.append(token)
                row.logps.append(logp)
            keep = [at for at, row in enumerate(rows) if not self._finished(row, sampling)]
            if not keep:
                return
            if len(keep) < len(rows):
                rows = [rows[index] for index in keep]
                kept_B = torch.tensor(keep)
                draws_NB = draws_NB[:, kept_B]
                tokens_B = tokens_B[kept_B.to(tokens_B.device)]
                decoder.keep(kept_B)
            logits_BV = decoder.step(tokens_B)

    def _finished(self, row: "_Row", sampling: Sampling) -> bool:
        stopped = row.ids[-1] in self.end_ids
        if sampling.stop and not stopped and self._may_stop(row.ids[-1], sampling.stop):
            stopped = has_stop(row.ids, sampling.stop, self.tokenizer)
        if stopped:
            row.finish = "stop"
        return stopped or len(row.ids) == row.limit

    def _may_stop(self, token: int, stops: tuple[str, ...]) -> bool:
        """Whether a token can complete a stop string: it has its last character, or a part of one
        (spaces are not told from those that a tokenizer adds or drops)."""
        key = token, stops
        if key not in self._last:
            text = self.tokenizer.decode([token])
            last = {stop[-1] for stop in stops}
            cut = not text or "\ufffd" in text or any(map(str.isspace, last))
            self._last[key] = cut or not last.isdisjoint(text)
        return self._last[key]


def by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Places of prompts of like length, the longest first."""
    parts: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        longest = lengths[parts[-1][0]] if parts else 0
        if parts and (len(parts[-1]) < FEWEST or lengths[place] >= LIKE * longest):
            parts[-1].append(place)
        else:
            parts.append([place])
    if len(parts) > 1 and len(parts[-1]) < FEWEST:
        few = parts.pop()
        parts[-1] += few
    return parts


def rows_with_room(model: Any, tokens: int) -> float:
    """How many rows of so many tokens a model's GPU has room for, 1 at least: two thirds of what is
    free, for keys and values; any number on a CPU."""
    if model.device.type != "cuda":
        return float("inf")
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    kept = getattr(config, "num_key_value_heads", heads) * width * config.num_hidden_layers
    cuda, device = torch.cuda, model.device
    unused = cuda.memory_reserved(device) - cuda.memory_allocated(device)  # of torch's allocator
    room = (cuda.mem_get_info(device)[0] + unused) * 2 // 3
    return max(1, room // (2 * kept * model.dtype.itemsize * tokens))


class _Row:
    """A request while it is answered."""

    def __init__(self, request: Request, limit: int):
        self.request = request
        self.limit = limit
        self.ids: list[int] = []
        self.logps: list[float] = []
        self.finish = "length"

    def completion(self, ends: frozenset[int], tokenizer: Any) -> Completion:
        text = text_of(self.ids, ends, tokenizer)
        return Completion(tuple(self.ids), tuple(self.logps), text, self.finish)


def has_stop(ids: Sequence[int], stops: Sequence[str], tokenizer: Any) -> bool:
    """Whether the last token completed a stop string; earlier tokens did not.

    Only as many tokens are decoded as can spell the longest stop string, at least one byte each
    (more where tokens are no text), so a completion costs linear time.
    """
    count = max(len(stop.encode()) for stop in stops) + STOP_MARGIN
    text = tokenizer.decode(ids[-count:])
    while len(text) < max(map(len, stops)) + STOP_MARGIN and count < len(ids):
        count *= 2
        text = tokenizer.decode(ids[-count:])
    return any(stop in text for stop in stops)


def _sample(
    logits_BV: torch.Tensor, draws_B: torch.Tensor, sampling: Sampling
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws a token per row by inverse CDF: tokens (B,), their log-probabilities (B,) in nats.

    The log-probabilities are those before a top-k or top-p cut.
    """
    if sampling.temperature == 0:
        logps_BV = logits_BV.log_softmax(-1)
        tokens_B = logits_BV.argmax(-1)
    else:
        logps_BV = (logits_BV / sampling.temperature).log_softmax(-1)
        kept_BV = logps_BV
        if sampling.top_k:
            kept_BV = TopKLogitsWarper(sampling.top_k)(None, kept_BV)
        if sampling.top_p < 1:
            kept_BV = TopPLogitsWarper(sampling.top_p)(None, kept_BV)
        cdf_BV = kept_BV.double().softmax(-1).cumsum(-1)
        target_B1 = (draws_B.to(cdf_BV.device) * cdf_BV[:, -1])[:, None]
        drawn_B1 = torch.searchsorted(cdf_BV, target_B1, right=True)
        tokens_B = drawn_B1.squeeze(1).clamp(max=logits_BV.shape[1] - 1)
    return tokens_B, logps_BV.gather(1, tokens_B[:, None]).squeeze(1)
