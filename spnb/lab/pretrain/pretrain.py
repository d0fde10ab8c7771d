"""Pre-trains the policies of the document world from one seed: `unskilled`, `base` and `instruct`.

One training run, three stopping points. In a course in reading, `unskilled` is where the policy
knows the formats but not how to match an entity's name, `base` where matching is half learned. A
course in all roles and more practice in what is learned last make it `instruct`.
"""

import copy
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch.nn.functional import cross_entropy, normalize, one_hot
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from spnb.core import prompts
from spnb.lab import oracle
from spnb.lab.pretrain import build as games
from spnb.lab.pretrain import lessons
from spnb.lab.pretrain.build import Batches, Encoded, ModelRecipe
from spnb.lab.pretrain.drills import recall
from spnb.lab.pretrain.rows import END, START, Row
from spnb.lab.world import SUFFIXES, names

TAGS = ("think", "answer", "search", "information", "question", "rubric")
Dtype = Literal["float32", "bfloat16"]
CONSTANT, EMBEDDING_STD, QK_GAIN = 0.6, 0.08, 1.6
POOL, LONGEST = 384, 512
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


class WorldRecipe(TextRecipe):
    """Everything that decides the document world's policies."""

    dtype: Dtype = "bfloat16"
    unskilled_at: int = 1_500_000
    base_at: int = 2_150_000
    reading_until: int = 3_600_000
    roles_until: int = 12_000_000
    practice_until: int = 14_000_000
    recall_share: float = Field(0.3, ge=0, le=1)
    role_rate: float = Field(0.6, gt=0)
    practice_rate: float = Field(0.3, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> "WorldRecipe":
        keys = ("unskilled_at", "base_at", "reading_until", "roles_until", "practice_until")
        marks = [getattr(self, key) for key in keys]
        if not 0 < marks[0] <= marks[1] <= marks[2] < marks[3] < marks[4]:
            allowed = "above 0, each at least the one before, the last two above it"
            raise ValueError(f"{', '.join(keys)} are {marks}; allowed: {allowed}")
        return self


def fixed_phrases(seed: int) -> list[str]:
    """Constant text that becomes one token each: instructions, tags, turns, parts of game rules."""
    reply = f"{END}\n{START}assistant\n"
    turns = [f"{START}user\n", f"{START}assistant\n", reply, f"?{reply}", f".{reply}"]
    instructions = [
        *prompts.ANSWERING.values(),
        *prompts.SEARCHING.values(),
        *(prompts.CLOSED, prompts.CHOICE, prompts.ASKING["question"] + prompts.ASK_BEYOND),
        prompts.ASKING["question"],
        *(prompts.ASK_SEARCH, prompts.JUDGE, prompts.TASK, prompts.RUBRIC, prompts.GRADE),
    ]
    tags = [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
    labels = ["Question:", "\nQuestion:", *(f"\n[{number}]" for number in range(1, 65))]
    rules = games.phrases(games.demo_texts(lessons.game_demos(seed)), 20)
    return [*turns, *instructions, *tags, *labels, *(text for text in rules if len(text) >= 12)]


def build_tokenizer(recipe: WorldRecipe) -> PreTrainedTokenizerFast:
    """A byte-level BPE: digits are single tokens, names and fixed phrases added ones."""
    pools = itertools.product(SUFFIXES, ("train", "heldout"))
    all_names = {name for kind, pool in pools for name in names(kind, pool)}
    rows = itertools.islice(lessons.role_rows(recipe.seed, "tokenizer"), 6000)
    texts = [
        " ".join(word for word in text.split(" ") if word.strip(" .?\n") not in all_names)
        for row in rows
        for text, _ in row
    ]
    texts += [f" {frame.replace('{x}', '')}" for frame in oracle.FRAMES] * 20
    added = [*fixed_phrases(recipe.seed), *(f" {name}" for name in sorted(all_names))]
    return games.train_tokenizer(texts, " ?[0-9]", added, recipe.vocabulary, 10)


def build_model(recipe: TextRecipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, layer 0's heads set to look a fixed distance back."""
    rope, std = {"rope_type": "default", "rope_theta": 1e6}, recipe.matrix_std
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
    size, theta = attention.head_dim, model.config.rope_parameters["rope_theta"]
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


def reading_stream(recipe: WorldRecipe, progress: Progress) -> Iterator[Row]:
    """Reading and copying: few documents and single hops at first."""
    for index in itertools.count():
        done = progress.tokens / recipe.reading_until
        documents = (1, 2) if done < 0.36 else (1, 2, 4) if done < 0.6 else (1, 2, 4, 8)
        hops = (1.0,) if done < 0.36 else (0.6, 0.25, 0.1, 0.05)
        rng = random.Random(recipe.seed * 1_000_003 + index)
        for _ in range(POOL):
            copying = rng.random() < recipe.recall_share
            yield recall(rng) if copying else lessons.reading(rng, documents, hops)


def courses(
    recipe: WorldRecipe, tokenizer: PreTrainedTokenizerFast, progress: Progress
) -> list[tuple[Batches, int]]:
    """The three courses as batches, each with the number of tokens at which it ends."""

    streams = [
        (reading_stream(recipe, progress), recipe.reading_until),
        (lessons.role_rows(recipe.seed + 1), recipe.roles_until),
        (lessons.role_rows(recipe.seed + 2, "practice"), recipe.practice_until),
    ]
    parts = []
    for number, (rows, until) in enumerate(streams):
        rng = random.Random(recipe.seed + number)
        split = partial(split_by_tokens, most=recipe.batch_tokens)
        stream = games.batches(rows, tokenizer, recipe.outside_weight, rng, POOL, split)
        parts.append((stream, until))
    return parts


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


def rate(recipe: WorldRecipe, tokens: int) -> float:
    """The rate's factor: a warm-up in each course, then constant (reading) or a cosine to 0."""
    if tokens < recipe.reading_until:
        return min(1.0, (tokens + 1) / recipe.warmup_tokens)
    start, end, top = recipe.reading_until, recipe.roles_until, recipe.role_rate
    if tokens >= recipe.roles_until:
        start, end, top = recipe.roles_until, recipe.practice_until, recipe.practice_rate
    done = min(1.0, (tokens - start) / (end - start))
    warm = min(1.0, (tokens - start + 1) / recipe.warmup_tokens)
    return warm * top * 0.5 * (1 + math.cos(math.pi * done))


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


def train_course(
    recipe: TextRecipe,
    model: Any,
    stream: Batches,
    until: int,
    progress: Progress,
    rate: Callable[[Any, int], float] = rate,
) -> Iterator[None]:
    """Trains on one course, until so many tokens in all were seen; yields after every step.

    `rate` is the learning rate's factor after so many tokens of a recipe.
    Forward and backward passes are in bfloat16 on a working copy, the weights themselves and the
    optimizers (each course has its own) in float32.
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


def build(recipe: WorldRecipe, folder: Path, report: Callable[[str], None] = print) -> None:
    """Makes the three policies as sub-folders, each where its number of tokens is reached."""
    tokenizer, progress = build_tokenizer(recipe), Progress()
    stops = {"unskilled": recipe.unskilled_at, "base": recipe.base_at}
    stops["instruct"] = recipe.practice_until
    model = build_model(recipe, tokenizer)
    parts = courses(recipe, tokenizer, progress)
    steps = (train_course(recipe, model, *part, progress) for part in parts)
    for _ in itertools.chain.from_iterable(steps):
        tokens, _, seconds = progress.curve[-1]
        if len(progress.curve) % 50 == 0:
            recent = sum(loss for _, loss, _ in progress.curve[-50:]) / 50
            report(f"{tokens / 1e6:.2f} M tokens, loss {recent:.3f} nats, {seconds:.0f} s")
        for name in [name for name, at in stops.items() if tokens >= at]:
            del stops[name]
            weights = copy.deepcopy(model).to(getattr(torch, recipe.dtype))
            games.save(weights, tokenizer, recipe, folder / name, "tokens", progress.curve)
            report(f"{name} saved")
