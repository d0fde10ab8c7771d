"""The training of policies that read: batches by tokens, a model that looks back, the loss.

Every recipe of the ladders and of documents uses it (`spnb.lab.pretrain.learner`).
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch.nn.functional import cross_entropy, normalize, one_hot
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from spnb.lab.pretrain import build as games
from spnb.lab.pretrain.build import Batches, Encoded, ModelRecipe

Dtype = Literal["float32", "bfloat16"]
CONSTANT = 0.6
EMBEDDING_STD = 0.08
QK_GAIN = 1.6
POOL = 384
LONGEST = 512
"""Rows that are drawn at once; rows of more tokens than the second are left out."""


class TextRecipe(ModelRecipe):
    """What the recipes of policies that read have in common; amounts in tokens."""

    vocabulary: int = Field(1500, gt=256)
    batch_tokens: int = Field(4096, gt=0)
    outside_share: float = Field(0.15, ge=0, le=1)
    outside_weight: float = Field(0.3, ge=0, lt=1)
    warmup_tokens: int = Field(200_000, gt=0)
    matrix_std: float = Field(0.04, gt=0)
    offset_heads: bool = True
    dtype: Dtype = Field("float32", description="of the saved weights")


def build_model(recipe: TextRecipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, layer 0's heads set to look a fixed distance back."""
    rope = {"rope_type": "default", "rope_theta": 1e6}
    std = recipe.matrix_std
    config = {"rope_parameters": rope, "initializer_range": std}
    model = games.random_model(recipe, tokenizer, 2048, **config)
    if recipe.offset_heads:
        set_offset_heads(model)
    return model


@torch.no_grad()
def set_offset_heads(model: Any) -> None:
    """Starts head j of layer 0 as one that attends j + 1 tokens back.

    All embeddings share a constant direction; queries and keys of layer 0 read only this direction,
    as vectors whose rotary phases agree at that distance. Without this the ability to match an
    entity's name appears late or never in a training of this length.
    """
    embedding = model.get_input_embeddings().weight
    torch.nn.init.normal_(embedding, std=EMBEDDING_STD)
    shared = normalize(torch.randn(embedding.shape[1]), dim=0)
    embedding += CONSTANT * shared
    for layer in model.model.layers:
        layer.self_attn.q_norm.weight.fill_(QK_GAIN)
        layer.self_attn.k_norm.weight.fill_(QK_GAIN)
    attention = model.model.layers[0].self_attn
    size = attention.head_dim
    theta = model.config.rope_parameters["rope_theta"]
    speeds = theta ** (-torch.arange(0, size, 2) / size)
    fast = speeds > 0.05
    query = torch.cat([fast.float(), torch.zeros(size // 2)])
    for head in range(model.config.num_attention_heads):
        angle = (head + 1) * speeds
        key = torch.cat([fast * torch.cos(angle), fast * torch.sin(angle)])
        rows = slice(head * size, (head + 1) * size)
        attention.q_proj.weight[rows] = torch.outer(query, shared)
        attention.k_proj.weight[rows] = torch.outer(key, shared)


@dataclass
class Progress:
    """Where a training stands: tokens seen, and the curve so far."""

    tokens: int = 0
    started: float = field(default_factory=time.perf_counter)
    curve: games.Curve = field(default_factory=list)


def split_by_tokens(encoded: list[Encoded], most: int) -> list[list[Encoded]]:
    """Rows of rising length in batches of at most so many tokens; the longest are left out."""
    groups: list[list[Encoded]] = [[]]
    for row in encoded:
        length = len(row[0])
        if length > LONGEST:
            break
        if (len(groups[-1]) + 1) * length > most:
            groups.append([])
        groups[-1].append(row)
    return groups


def loss_of(
    model: Any,
    ids_BT: torch.Tensor,
    weights_BT: torch.Tensor,
    draws: Sequence[games.Draws],
    outside_share: float,
    generator: torch.Generator,
) -> torch.Tensor:
    """Weighted cross-entropy in nats over the policy's words and a random share of the others.

    Where a token is one of several as likely, the target is all of them in equal shares: the same
    in the mean over rows, with less noise.
    """
    weights_BT = weights_BT[:, 1:]
    drawn_BT = torch.rand(weights_BT.shape, generator=generator) < outside_share
    counts_BT = (weights_BT == 1) | ((weights_BT > 0) & drawn_BT)
    hidden_NH = model.model(input_ids=ids_BT).last_hidden_state[:, :-1][counts_BT]
    logits_NV = model.lm_head(hidden_NH).float()
    targets_NV = one_hot(ids_BT[:, 1:][counts_BT], logits_NV.shape[1]).float()
    places_BT = counts_BT.flatten().cumsum(0).view(counts_BT.shape) - 1
    drawn = [(row, at - 1, ids) for row, one in enumerate(draws) for at, ids in one.items()]
    places = [int(places_BT[row, at]) for row, at, _ in drawn]
    targets_NV[places] = 0.0
    entries = [
        (place, id, 1 / len(ids))
        for place, (*_, ids) in zip(places, drawn, strict=True)
        for id in ids
    ]
    if entries:
        rows, ids, shares = map(torch.tensor, zip(*entries, strict=True))
        targets_NV.index_put_((rows, ids), shares, accumulate=True)
    losses_N = cross_entropy(logits_NV, targets_NV, reduction="none")
    return (losses_N * weights_BT[counts_BT]).sum() / weights_BT[counts_BT].sum()


def train(
    recipe: TextRecipe,
    model: Any,
    stream: Batches,
    until: int,
    progress: Progress,
    rate: Callable[[Any, int], float],
) -> Iterator[None]:
    """Trains until so many tokens in all were seen; yields after every step.

    `rate` is the learning rate's factor after so many tokens of a recipe.
    Forward and backward passes are in bfloat16 on a working copy, the weights themselves and the
    optimizers in float32.
    """
    working = copy.deepcopy(model).bfloat16()
    working.set_attn_implementation("eager")  # the fused kernel is slower at these lengths on CPUs
    pairs = list(zip(working.parameters(), model.parameters(), strict=True))
    generator = torch.Generator().manual_seed(recipe.seed)
    optimizers = games.make_optimizers(model, recipe)
    while progress.tokens < until:
        games.set_rate(optimizers, rate(recipe, progress.tokens))
        ids_BT, weights_BT, draws = next(stream)
        loss = loss_of(working, ids_BT, weights_BT, draws, recipe.outside_share, generator)
        loss.backward()
        for copied, master in pairs:
            master.grad = copied.grad.float()
            copied.grad = None
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            for copied, master in pairs:
                copied.copy_(master)
        progress.tokens += int((weights_BT > 0).sum())
        seconds = time.perf_counter() - progress.started
        progress.curve.append((progress.tokens, loss.item(), seconds))
        yield
