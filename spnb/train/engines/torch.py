"""The torch engine: batched decoding of all pending requests with any causal LM of transformers.

What makes it fast on a CPU: every live episode decodes in one batch, a prompt shared by several
requests is prefilled once, finished rows leave the batch. What makes it repeatable: each request
draws its random numbers from its own seed, so a completion does not depend on what else is in the
batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, TopKLogitsWarper, TopPLogitsWarper

from spnb.core.types import Completion, Request, Sampling


class TorchEngine:
    """Generates with a transformers model in this process; the model is used as it is at the moment
    of the call.

    Args:
        model: a causal LM; its device and dtype are used as they are.
        tokenizer: with an end token (`eos_token_id`) and a pad token.
        max_batch: most rows decoded at once; more requests are answered in several batches.
    """

    def __init__(self, model: Any, tokenizer: Any, max_batch: int = 512):
        self.model = model
        self.tokenizer = tokenizer
        self.max_batch = max_batch

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order. The model's train or eval mode is left as it was.

        Raises:
            ValueError: an empty prompt, or one that with its new tokens exceeds the model's
                positions.
        """
        self._check(requests)
        answers: list[Completion | None] = [None] * len(requests)
        training = self.model.training
        self.model.eval()
        try:
            for sampling, indices in _by_sampling(requests).items():
                for start in range(0, len(indices), self.max_batch):
                    chunk = indices[start : start + self.max_batch]
                    for i, answer in zip(
                        chunk, self._decode([requests[i] for i in chunk], sampling), strict=True
                    ):
                        answers[i] = answer
        finally:
            self.model.train(training)
        return answers

    def _check(self, requests: Sequence[Request]) -> None:
        limit = getattr(self.model.config, "max_position_embeddings", None)
        for request in requests:
            length = len(request.prompt_ids) + request.sampling.max_new_tokens
            if not request.prompt_ids or (limit is not None and length > limit):
                raise ValueError(
                    f"a request has {len(request.prompt_ids)} prompt tokens and asks for "
                    f"{request.sampling.max_new_tokens} more; allowed: 1 to {limit} in all"
                )

    @torch.inference_mode()
    def _decode(self, requests: list[Request], sampling: Sampling) -> list[Completion]:
        prompts = list(dict.fromkeys(request.prompt_ids for request in requests))
        logits_BV, cache, mask_BT = self._prefill(prompts)
        if len(prompts) < len(requests):
            row_of = {prompt: row for row, prompt in enumerate(prompts)}
            rows = torch.tensor(
                [row_of[request.prompt_ids] for request in requests], device=mask_BT.device
            )
            logits_BV, mask_BT = logits_BV[rows], mask_BT[rows]
            cache.batch_select_indices(rows)
        draws_BN = np.stack(
            [_uniforms(request.seed, sampling.max_new_tokens) for request in requests]
        )
        live = np.arange(len(requests))
        ids: list[list[int]] = [[] for _ in requests]
        logps: list[list[float]] = [[] for _ in requests]
        done: list[bool] = [False] * len(requests)
        for step in range(sampling.max_new_tokens):
            tokens_B, logps_B = _sample(logits_BV, torch.from_numpy(draws_BN[live, step]), sampling)
            for row, token, logp in zip(live, tokens_B.tolist(), logps_B.tolist(), strict=True):
                ids[row].append(token)
                logps[row].append(logp)
                done[row] = self._ends(ids[row], sampling)
            keep = [k for k, row in enumerate(live) if not done[row]]
            if not keep or step + 1 == sampling.max_new_tokens:
                break
            if len(keep) < len(live):
                rows = torch.tensor(keep, device=mask_BT.device)
                live, tokens_B, mask_BT = live[keep], tokens_B[rows], mask_BT[rows]
                cache.batch_select_indices(rows)
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(live), 1)], dim=1)
            logits_BV = self._forward(tokens_B[:, None], mask_BT, cache)
        return [
            self._completion(i, lp, sampling, d) for i, lp, d in zip(ids, logps, done, strict=True)
        ]

    def _prefill(self, prompts: list[tuple[int, ...]]) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Left-pads prompts to (B, T) and runs them once: last logits (B, V), the cache, the mask
        (B, T)."""
        longest = max(map(len, prompts))
        ids_BT = np.full((len(prompts), longest), self.tokenizer.pad_token_id, dtype=np.int64)
        mask_BT = np.zeros((len(prompts), longest), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            ids_BT[row, longest - len(prompt) :] = prompt
            mask_BT[row, longest - len(prompt) :] = 1
        device = self.model.device
        mask = torch.from_numpy(mask_BT).to(device)
        cache = DynamicCache(config=self.model.config)
        return self._forward(torch.from_numpy(ids_BT).to(device), mask, cache), cache, mask

    def _forward(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor, cache: Any) -> torch.Tensor:
        positions_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        output = self.model(
            input_ids=ids_BT,
            attention_mask=mask_BT,
            position_ids=positions_BT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _ends(self, ids: list[int], sampling: Sampling) -> bool:
        if ids[-1] == self.tokenizer.eos_token_id:
            return True
        return bool(sampling.stop) and any(
            stop in self.tokenizer.decode(ids) for stop in sampling.stop
        )

    def _completion(
        self, ids: list[int], logps: list[float], sampling: Sampling, done: bool
    ) -> Completion:
        text = self.tokenizer.decode(ids[:-1] if ids[-1] == self.tokenizer.eos_token_id else ids)
        return Completion(
            ids=tuple(ids), logps=tuple(logps), text=text, finish="stop" if done else "length"
        )


def _by_sampling(requests: Sequence[Request]) -> dict[Sampling, list[int]]:
    """Indices of the requests by their sampling settings; one batch decodes with one setting."""
    settings: dict[Sampling, list[int]] = {}
    for index, request in enumerate(requests):
        settings.setdefault(request.sampling, []).append(index)
    return settings


def _uniforms(seed: int, count: int) -> np.ndarray:
    """The request's own random numbers: `count` uniforms in [0, 1), float64."""
    return np.random.Generator(np.random.Philox(seed)).random(count)


def _sample(
    logits_BV: torch.Tensor, draws_B: torch.Tensor, sampling: Sampling
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws a token per row by inverse CDF; returns tokens (B,) and their log-probabilities (B,) in
    nats."""
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
        tokens_B = (
            torch.searchsorted(cdf_BV, target_B1, right=True)
            .squeeze(1)
            .clamp(max=logits_BV.shape[1] - 1)
        )
    return tokens_B, logps_BV.gather(1, tokens_B[:, None]).squeeze(1)
