"""The training of policies that read: batches by tokens, a model that looks back, the loss."""

import copy
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, normalize, one_hot
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from spnb.lab.pretrain import build as games
from spnb.lab.pretrain.build import Batches, Encoded
from spnb.lab.pretrain.ladder_lessons import Lessons
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import Row

DIRECTION = 0.6
EMBEDDING_STD = 0.08
QK_GAIN = 1.6
POOL = 384
LONGEST = 512
"""Rows that are drawn at once; rows of more tokens than the second are left out."""
CONSTANT = 0.4
"""The share of the training with the full learning rate."""


def build_model(recipe: LearnerRecipe, tokenizer: PreTrainedTokenizerFast) -> Any:
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
    embedding += DIRECTION * shared
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


@torch.no_grad()
def narrow(model: Any, width: int) -> None:
    """Leaves so many neurons to each feed-forward layer, in place: those of the largest weights.

    A neuron's weight is the product of the norms of what goes in and what comes out, as in
    structured pruning by magnitude (Li et al. 2017, 1608.08710).
    """
    for layer in model.model.layers:
        gate, up, down = layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj
        size_F = gate.weight.norm(dim=1) * up.weight.norm(dim=1) * down.weight.norm(dim=0)
        kept_W = size_F.topk(width).indices.sort().values
        for linear, dim in ((gate, 0), (up, 0), (down, 1)):
            linear.weight = torch.nn.Parameter(linear.weight.index_select(dim, kept_W))
        gate.out_features = up.out_features = down.in_features = width
    model.config.intermediate_size = width


def seen(curve: games.Curve) -> int:
    """Tokens of the training so far."""
    return curve[-1][0] if curve else 0


def split_by_tokens(encoded: list[Encoded], most: int) -> list[list[Encoded]]:
    """Rows of rising length in batches of at most so many tokens; the longest are left out."""
    groups: list[list[Encoded]] = [[]]
    for row in encoded:
        length = len(row[0])
        if length > LONGEST:
            break
        if groups[-1] and (len(groups[-1]) + 1) * length > most:
            groups.append([])
        groups[-1].append(row)
    return [group for group in groups if group]


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


def stream(lessons: Lessons, tokenizer: Any, curve: games.Curve) -> Batches:
    """Batches of lessons, their difficulty following the tokens seen."""
    recipe = lessons.recipe

    def rows() -> Iterator[Row]:
        for row in lessons.rows():
            lessons.progress = seen(curve) / recipe.tokens
            yield row

    rng = random.Random(recipe.seed)
    split = partial(split_by_tokens, most=recipe.batch_tokens)
    return games.batches(rows(), tokenizer, recipe.outside_weight, rng, POOL, split)


def rate(recipe: LearnerRecipe, tokens: int) -> float:
    """The rate's factor: a warm-up, constant up to `CONSTANT`, then a cosine to 0."""
    warm = min(1.0, (tokens + 1) / recipe.warmup_tokens)
    late = max(0.0, (tokens / recipe.tokens - CONSTANT) / (1 - CONSTANT))
    return warm * 0.5 * (1 + math.cos(math.pi * late))


def train(
    recipe: LearnerRecipe, model: Any, batches: Batches, curve: games.Curve
) -> Iterator[None]:
    """Trains until the recipe's tokens were seen; adds to the curve and yields after every step.

    Forward and backward passes are on a working copy, in bfloat16 where the processor has it (it is
    five times slower than float32 elsewhere); the weights themselves and the optimizers in float32.
    """
    fast = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    working = copy.deepcopy(model).to(torch.bfloat16 if fast else torch.float32)
    working.set_attn_implementation("eager")  # the fused kernel is slower at these lengths on CPUs
    pairs = list(zip(working.parameters(), model.parameters(), strict=True))
    generator = torch.Generator().manual_seed(recipe.seed)
    optimizers = games.make_optimizers(model, recipe)
    started = time.perf_counter()
    while seen(curve) < recipe.tokens:
        games.set_rate(optimizers, rate(recipe, seen(curve)))
        ids_BT, weights_BT, draws = next(batches)
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
        tokens = seen(curve) + int((weights_BT > 0).sum())
        curve.append((tokens, loss.item(), time.perf_counter() - started))
        yield


def build(
    lessons: Lessons, folder: Path, start: Path | None = None, report: Callable[[str], None] = print
) -> None:
    """Makes the policy of these lessons: tokenizer, training, saving.

    It goes on from the policy in `start`, with fewer neurons where the recipe says so, or starts
    from scratch without one.
    """
    recipe = lessons.recipe
    curve: games.Curve = []
    if start:
        tokenizer = AutoTokenizer.from_pretrained(start)
        model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
        model, tokenizer = lessons.go_on(model, tokenizer)
        if recipe.feed_forward < model.config.intermediate_size:
            narrow(model, recipe.feed_forward)
    else:
        tokenizer = lessons.tokenizer()
        model = build_model(recipe, tokenizer)
    for _ in train(recipe, model, stream(lessons, tokenizer, curve), curve):
        tokens, _, seconds = curve[-1]
        if len(curve) % 50 == 0:
            recent = sum(loss for _, loss, _ in curve[-50:]) / 50
            report(f"{tokens / 1e6:.2f} M tokens, loss {recent:.3f} nats, {seconds:.0f} s")
    weights = model.to(getattr(torch, recipe.dtype))
    games.save(weights, tokenizer, recipe, folder, "tokens", curve)
