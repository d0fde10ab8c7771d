"""How a tiny Qwen3 on a CPU decodes fast, with the logits of transformers bit by bit.

Between its kernels a model of a million weights spends more time than in them. Here are the same
kernels in the same order of sums without the modules around them: no work on padding, projections
side by side, a cache that grows in place and lets finished rows lie for a while.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Qwen3ForCausalLM

PREFILL_TOKENS = 2048
"""Tokens, padding included, that `Qwen3Decoder` prefills at once: their activations stay in the
processor's cache."""
TILE = 8
"""Rows that a matrix product takes at a time (MKL); the rest it sums in another order. Where few
rows go on, each is in a tile, or in the rest, as it is in transformers' padded batch."""
SMALL = 32
"""Rows added to a product of few ones, because a small product is summed in another order too."""
LIVE_SHARE = 0.75
"""The cache is made smaller once fewer of its rows are still decoded."""


class Qwen3Decoder:
    """A plain Qwen3 in float32 on a CPU, without the overhead of its modules.

    Its methods are those of `spnb.train.engines.decoders.Decoder`.

    Tensor names: N tokens of a batch without padding, H heads, D dimensions of a head, S slots of
    the cache, of which the rows in `_slots_B` are decoded.
    """

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether this class knows everything that the model does."""
        if type(model) is not Qwen3ForCausalLM or model.device.type != "cpu":
            return False
        config = model.config
        projections = [m for name, m in model.named_modules() if name.endswith(("_proj", "head"))]
        return (
            all(type(m) is nn.Linear and m.bias is None for m in projections)
            and all(p.dtype == torch.float32 for p in model.parameters())
            and all(kind == "full_attention" for kind in config.layer_types)
            and config.num_attention_heads == config.num_key_value_heads
            and config._attn_implementation == "sdpa"
            and config.hidden_act == "silu"
            and model.model.rotary_emb.rope_type == "default"
        )

    def __init__(self, model: Any):
        self.model = model
        config = model.config
        self.heads = config.num_attention_heads
        self.head_dim = config.head_dim
        self.eps = config.rms_norm_eps
        everywhere = torch.arange(config.max_position_embeddings)[None]
        cos, sin = model.model.rotary_emb(model.model.embed_tokens.weight, everywhere)
        self.cos_T1D = cos[0][:, None]
        self.sin_T1D = sin[0][:, None]
        self.layers = [self._weights(layer) for layer in model.model.layers]

    def _weights(self, layer: Any) -> tuple[torch.Tensor, ...]:
        """One layer's weights in the order of use; what is applied to the same input is joined."""
        attention = layer.self_attn
        mlp = layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        norms = (attention.q_norm, attention.k_norm)
        return (
            layer.input_layernorm.weight,
            torch.cat([linear.weight for linear in projections]),
            torch.cat([norm.weight.expand(self.heads, -1) for norm in norms]),
            attention.o_proj.weight,
            layer.post_attention_layernorm.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            mlp.down_proj.weight,
        )

    def prefill(
        self, prompts: Sequence[tuple[int, ...]], rows: torch.Tensor, room: int
    ) -> torch.Tensor:
        """See `Decoder`; the cache gets all its room at once."""
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        self._length = int(lengths.max())
        self._positions_B = lengths[rows]
        self._slots_B = torch.arange(len(rows))
        shape = (len(rows), self.heads, self._length + room, self.head_dim)
        self._cache = [(torch.empty(shape), torch.empty(shape)) for _ in self.layers]
        self._bias = None
        if int(lengths.min()) < self._length:
            pads_BT = torch.arange(shape[2]) < (self._length - self._positions_B)[:, None]
            self._bias = torch.zeros(len(rows), 1, 1, shape[2])
            self._bias.masked_fill_(pads_BT[:, None, None], -torch.inf)
        last = []
        count = max(1, PREFILL_TOKENS // self._length)
        for start in range(0, len(prompts), count):
            end = start + count
            rest = len(prompts) * self._length % TILE if end >= len(prompts) else 0
            last.append(self._prefill_part(prompts[start:end], start, rows, rest))
        return self._logits(torch.cat(last))[rows]

    def _prefill_part(
        self, prompts: Sequence[tuple[int, ...]], start: int, rows: torch.Tensor, rest: int
    ) -> torch.Tensor:
        """Runs some of the prompts and copies their keys and values to the rows that share them.

        `rest` is how many rows of the padded batch are after its last whole tile.
        """
        longest = self._length
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask_PT = torch.arange(longest) >= (longest - lengths)[:, None]
        row_N, column_N = mask_PT.nonzero(as_tuple=True)
        position_N = column_N - (longest - lengths)[row_N]
        bias = None
        if self._bias is not None:
            causal_TT = torch.ones(longest, longest, dtype=torch.bool).tril()
            bias = torch.zeros(len(prompts), 1, longest, longest)
            bias.masked_fill_(~(causal_TT & mask_PT[:, None])[:, None], -torch.inf)
        shared = ((rows >= start) & (rows < start + len(prompts))).nonzero()[:, 0]
        ids_N = torch.tensor([i for prompt in prompts for i in prompt])
        x_NC = F.embedding(ids_N, self._embedding)
        for index, weights in enumerate(self.layers):
            qkv_N3HD = self._qkv(x_NC, weights, position_N)
            all_PT3HD = qkv_N3HD.new_zeros(len(prompts), longest, 3 * self.heads, self.head_dim)
            all_PT3HD[row_N, column_N] = qkv_N3HD
            q, k, v = all_PT3HD.transpose(1, 2).contiguous().split(self.heads, dim=1)
            for buffer, new in zip(self._cache[index], (k, v), strict=True):
                buffer[shared, :, :longest] = new[rows[shared] - start]
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=bias is None, scale=self.head_dim**-0.5
            )
            out_NC = out.transpose(1, 2)[row_N, column_N].flatten(1)
            if index + 1 == len(self.layers):
                last_M, chosen_P = _last_rows(lengths.cumsum(0) - 1, rest)
                x_NC = x_NC[last_M]
                out_NC = out_NC[last_M]
            x_NC = self._rest(x_NC, out_NC, weights)
        return x_NC[chosen_P]

    def keep(self, rows: torch.Tensor) -> None:
        """See `Decoder`; finished rows stay in the cache until they are many."""
        self._positions_B = self._positions_B[rows]
        self._slots_B = self._slots_B[rows]
        slots = len(self._cache[0][0])
        if len(rows) > LIVE_SHARE * slots:
            return
        length = self._length
        if self._bias is not None:
            self._bias = self._bias[self._slots_B]
        for index, pair in enumerate(self._cache):
            for buffer in pair:
                buffer[: len(rows), :, :length] = buffer[:, :, :length][self._slots_B]
            self._cache[index] = tuple(buffer[: len(rows)] for buffer in pair)
        self._slots_B = torch.arange(len(rows))

    def step(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """See `Decoder`."""
        end = self._length + 1
        bias = None if self._bias is None else self._bias[..., :end]
        slots = len(self._cache[0][0])
        whole = len(tokens_B) == slots
        x_BC = F.embedding(tokens_B, self._embedding)
        for weights, (keys, values) in zip(self.layers, self._cache, strict=True):
            qkv = self._qkv(x_BC, weights, self._positions_B)
            if not whole:
                live = qkv
                qkv = live.new_zeros(slots, *live.shape[1:])
                qkv[self._slots_B] = live
            q, k, v = qkv.split(self.heads, dim=1)
            keys[:, :, self._length] = k
            values[:, :, self._length] = v
            out = F.scaled_dot_product_attention(
                q[:, :, None],
                keys[:, :, :end],
                values[:, :, :end],
                attn_mask=bias,
                scale=self.head_dim**-0.5,
            ).flatten(1)
            x_BC = self._rest(x_BC, out if whole else out[self._slots_B], weights)
        self._length = end
        self._positions_B = self._positions_B + 1
        return self._logits(x_BC)

    @property
    def _embedding(self) -> torch.Tensor:
        return self.model.model.embed_tokens.weight

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        return (x * variance.add_(self.eps).rsqrt_()).mul_(weight)

    def _qkv(
        self, x_NC: torch.Tensor, weights: tuple[torch.Tensor, ...], position_N: torch.Tensor
    ) -> torch.Tensor:
        """Queries, keys (both rotated) and values of each token, (N, 3H, D)."""
        norm, projection, qk_norm, *_ = weights
        qkv_N3HD = F.linear(self._rms(x_NC, norm), projection).unflatten(1, (-1, self.head_dim))
        qk = self._rms(qkv_N3HD[:, : 2 * self.heads], qk_norm)
        first, second = qk.chunk(2, dim=-1)
        rotated = torch.cat((-second, first), dim=-1).mul_(self.sin_T1D[position_N])
        qkv_N3HD[:, : 2 * self.heads] = (qk * self.cos_T1D[position_N]).add_(rotated)
        return qkv_N3HD

    def _rest(
        self, x_NC: torch.Tensor, attended_NC: torch.Tensor, weights: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """What a layer does after its attention."""
        *_, out, norm, gate_up, down = weights
        x_NC = x_NC + F.linear(attended_NC, out)
        gate, up = F.linear(self._rms(x_NC, norm), gate_up).chunk(2, dim=1)
        return x_NC + F.linear(F.silu(gate).mul_(up), down)

    def _logits(self, x_NC: torch.Tensor) -> torch.Tensor:
        return F.linear(self._rms(x_NC, self.model.model.norm.weight), self.model.lm_head.weight)


def _last_rows(last_P: torch.Tensor, rest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows to go on with where only the last of each prompt is needed, and where those are in them.

    The batch's very last row is in the rest behind the whole tiles, the others are not.
    """
    tiled = last_P[:-1] if rest else last_P
    filled = torch.cat([last_P[:1].expand(SMALL + -len(tiled) % TILE), tiled])
    chosen = torch.arange(len(filled) - len(tiled), len(filled))
    if rest:
        filled = torch.cat([filled, last_P[-1:].expand(rest)])
        chosen = torch.cat([chosen, torch.tensor([len(filled) - 1])])
    return filled, chosen
