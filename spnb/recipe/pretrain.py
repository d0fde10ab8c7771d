"""Pre-trains the policies of the document world from one seed: `unskilled`, `base` and `instruct`.

One training run, three stopping points. It begins with a course in reading; early on, where a
policy knows the formats but not how to match an entity's name, is `unskilled`; where matching is
half learned is `base`. A course in all roles and some more practice in what is learned last make it
`instruct`. Standard Qwen3 checkpoints, ChatML template.

    spnb embedded FOLDER --recipe world
"""

import copy
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from spnb.core import prompts
from spnb.recipe import lessons
from spnb.recipe.build import END, START, optimizers, phrases, random_model, train_tokenizer
from spnb.recipe.lessons import Row
from spnb.testbed import oracle
from spnb.testbed.world import SUFFIXES, names

TAGS = ("think", "answer", "search", "information", "question", "rubric")
CONSTANT, EMBEDDING_STD, QK_GAIN = 0.6, 0.08, 1.6


class WorldRecipe(BaseModel):
    """Everything that decides the weights; amounts in tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    hidden: int = Field(128, gt=0)
    layers: int = Field(3, gt=0)
    heads: int = Field(4, gt=0)
    feed_forward: int = Field(384, gt=0)
    vocabulary: int = Field(1500, gt=256)
    batch_tokens: int = Field(4096, gt=0)
    unskilled_at: int = 1_500_000
    base_at: int = 2_150_000
    reading_until: int = 3_600_000
    roles_until: int = 12_000_000
    practice_until: int = 14_000_000
    recall_share: float = Field(0.3, ge=0, le=1)
    outside_share: float = Field(0.15, ge=0, le=1)
    outside_weight: float = Field(0.3, ge=0, lt=1)
    learning_rate: float = Field(3e-3, gt=0)
    matrix_learning_rate: float = Field(0.02, gt=0)
    role_rate: float = Field(0.6, gt=0)
    practice_rate: float = Field(0.3, gt=0)
    warmup_tokens: int = Field(200_000, gt=0)
    matrix_std: float = Field(0.04, gt=0)
    offset_heads: bool = True
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="in which the weights are written"
    )

    @model_validator(mode="after")
    def _in_order(self) -> "WorldRecipe":
        marks = (
            self.unskilled_at,
            self.base_at,
            self.reading_until,
            self.roles_until,
            self.practice_until,
        )
        if not 0 < marks[0] <= marks[1] <= marks[2] < marks[3] < marks[4]:
            raise ValueError(
                f"unskilled_at, base_at, reading_until, roles_until, practice_until are {marks}; allowed: above 0, "
                "each at least the one before, the last two above it"
            )
        return self


RECIPES: dict[str, dict[str, Any]] = {
    "world": {},
    "world-large": {
        "hidden": 160,
        "layers": 4,
        "heads": 5,
        "feed_forward": 480,
        "base_at": 3_600_000,
    }
    | {"dtype": "bfloat16"},
}
"""The policies' sizes; the larger one is for tables that compare sizes. It half knows how to match
names only where the smaller one already does, at the end of the reading course, and is written in
half the bytes."""


def recipe_values(name: str) -> dict[str, Any]:
    """What a recipe by name sets.

    Raises:
        ValueError: no such recipe.
    """
    if name not in RECIPES:
        raise ValueError(f"recipe is {name!r}; allowed: games, {', '.join(RECIPES)}")
    return RECIPES[name]


@dataclass
class Progress:
    """Where a training stands: tokens seen, seconds, and the curve so far."""

    tokens: int = 0
    started: float = field(default_factory=time.perf_counter)
    curve: list[dict[str, float]] = field(default_factory=list)


def fixed_phrases(seed: int) -> list[str]:
    """Text that is always the same and becomes one token: instructions, tags, turn openings, parts
    of game rules."""
    reply = f"{END}\n{START}assistant\n"
    turns = [f"{START}user\n", f"{START}assistant\n", reply, f"?{reply}", f".{reply}"]
    instructions = [
        *prompts.ANSWERING.values(),
        *prompts.SEARCHING.values(),
        prompts.CLOSED,
        prompts.CHOICE,
        prompts.ASK + prompts.ASK_BEYOND,
        prompts.ASK,
        prompts.ASK_SEARCH,
        prompts.JUDGE,
        prompts.TASK,
        prompts.RUBRIC,
        prompts.GRADE,
    ]
    tags = [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
    games = list(itertools.islice(lessons.game_demos(seed), 3000))
    stretches = phrases(
        [demo.messages[0]["content"] for demo in games] + [demo.answer for demo in games], 20
    )
    labels = ["Question:", "\nQuestion:", *(f"\n[{number}]" for number in range(1, 65))]
    return [*turns, *instructions, *tags, *labels, *(text for text in stretches if len(text) >= 12)]


def build_tokenizer(recipe: WorldRecipe) -> PreTrainedTokenizerFast:
    """A byte-level BPE: digits are single tokens (with or without a space), names and fixed phrases
    added ones."""
    rows = itertools.islice(lessons.role_rows(recipe.seed, lessons.TOKENIZER_SHARES), 6000)
    known = {
        name for kind in SUFFIXES for pool in ("train", "heldout") for name in names(kind, pool)
    }
    frames = [frame.replace("{x}", "") for frame in oracle.FRAMES] * 20
    texts = [
        " ".join(w for w in text.split(" ") if w.strip(" .?\n") not in known)
        for row in rows
        for text, _ in row
    ]
    added = [*fixed_phrases(recipe.seed), *(f" {name}" for name in sorted(known))]
    return train_tokenizer(
        [*texts, *(f" {frame}" for frame in frames)], " ?[0-9]", added, recipe.vocabulary, 10
    )


def build_model(recipe: WorldRecipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 model with random weights, layer 0's heads set to look a fixed distance back
    (`set_offset_heads`)."""
    rope = {"rope_type": "default", "rope_theta": 1e6}
    model = random_model(
        recipe, tokenizer, 2048, rope_parameters=rope, initializer_range=recipe.matrix_std
    )
    if recipe.offset_heads:
        set_offset_heads(model)
    return model


@torch.no_grad()
def set_offset_heads(model: Any) -> None:
    """Starts head j of layer 0 as one that attends j tokens back, so that matching names is learned
    at once.

    All embeddings share a constant direction; queries and keys of layer 0 read only this direction,
    as vectors whose rotary phases agree at distance j. Without this the ability to match an
    entity's name appears late or never in a training of this length. Everything is trained from
    there.
    """
    embedding = model.get_input_embeddings().weight
    torch.nn.init.normal_(embedding, std=EMBEDDING_STD)
    shared = torch.nn.functional.normalize(torch.randn(embedding.shape[1]), dim=0)
    embedding += CONSTANT * shared
    for layer in model.model.layers:
        layer.self_attn.q_norm.weight.fill_(QK_GAIN)
        layer.self_attn.k_norm.weight.fill_(QK_GAIN)
    attention = model.model.layers[0].self_attn
    size, theta = attention.head_dim, model.config.rope_parameters["rope_theta"]
    speeds = theta ** (-torch.arange(0, size, 2) / size)
    fast = speeds > 0.05
    for head in range(model.config.num_attention_heads):
        angle = (head + 1) * speeds
        query, key = torch.zeros(size), torch.zeros(size)
        query[: size // 2] = fast
        key[: size // 2], key[size // 2 :] = fast * torch.cos(angle), fast * torch.sin(angle)
        rows = slice(head * size, (head + 1) * size)
        attention.q_proj.weight[rows] = torch.outer(query, shared)
        attention.k_proj.weight[rows] = torch.outer(key, shared)


def encode(
    row: Row, tokenizer: PreTrainedTokenizerFast, outside: float
) -> tuple[list[int], list[float]]:
    """Token ids of a row and their loss weights: 1 where the policy speaks, `outside` elsewhere."""
    ids: list[int] = []
    weights: list[float] = []
    for text, said in row:
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += piece
        weights += [1.0 if said else outside] * len(piece)
    return ids, weights


Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def batches(
    rows: Iterator[Row],
    tokenizer: PreTrainedTokenizerFast,
    recipe: WorldRecipe,
    rng: random.Random,
    limit: int = 512,
) -> Batches:
    """Endless right-padded batches of about `batch_tokens`: ids (B, T), weights (B, T), 0 on
    padding.

    Rows are drawn by the pool and sorted by length, so that little is padding; the order of batches
    is random.
    """
    while True:
        pool = [
            encode(row, tokenizer, recipe.outside_weight) for row in itertools.islice(rows, 384)
        ]
        pool = sorted((row for row in pool if len(row[0]) <= limit), key=lambda row: len(row[0]))
        groups: list[list[tuple[list[int], list[float]]]] = [[]]
        for row in pool:
            if (len(groups[-1]) + 1) * len(row[0]) > recipe.batch_tokens:
                groups.append([])
            groups[-1].append(row)
        rng.shuffle(groups)
        for group in groups:
            longest = max(len(ids) for ids, _ in group)
            ids_BT = torch.full((len(group), longest), tokenizer.pad_token_id)
            weights_BT = torch.zeros(len(group), longest)
            for index, (ids, weights) in enumerate(group):
                ids_BT[index, : len(ids)] = torch.tensor(ids)
                weights_BT[index, : len(ids)] = torch.tensor(weights)
            yield ids_BT, weights_BT


def course(recipe: WorldRecipe, tokens: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Documents and hops of the reading course after so many tokens: few and single at first."""
    done = tokens / recipe.reading_until
    if done < 0.36:
        return (1, 2), (1.0,)
    return (1, 2, 4) if done < 0.6 else (1, 2, 4, 8), (0.6, 0.25, 0.1, 0.05)


def reading_stream(recipe: WorldRecipe, progress: Progress) -> Iterator[Row]:
    """Lessons of the reading course, harder as training goes on."""
    for index in itertools.count():
        documents, hops = course(recipe, progress.tokens)
        stream = lessons.reading_rows(
            recipe.seed * 1_000_003 + index, documents, hops, recipe.recall_share
        )
        yield from itertools.islice(stream, 384)


def rate(recipe: WorldRecipe, tokens: int) -> float:
    """The learning rate's factor: constant while reading, then a cosine to 0 in each course; a
    warm-up before each."""
    if tokens < recipe.reading_until:
        return min(1.0, (tokens + 1) / recipe.warmup_tokens)
    start, end, top = recipe.reading_until, recipe.roles_until, recipe.role_rate
    if tokens >= recipe.roles_until:
        start, end, top = recipe.roles_until, recipe.practice_until, recipe.practice_rate
    done = min(1.0, (tokens - start) / (end - start))
    return (
        min(1.0, (tokens - start + 1) / recipe.warmup_tokens)
        * top
        * 0.5
        * (1 + math.cos(math.pi * done))
    )


def loss_of(
    model: Any,
    ids_BT: torch.Tensor,
    weights_BT: torch.Tensor,
    recipe: WorldRecipe,
    draws: torch.Generator,
) -> torch.Tensor:
    """Weighted next-token cross-entropy in nats over what the policy says and a random share of all
    other tokens."""
    weights_BT = weights_BT[:, 1:]
    drawn_BT = torch.rand(weights_BT.shape, generator=draws) < recipe.outside_share
    keep_BT = (weights_BT == 1) | ((weights_BT > 0) & drawn_BT)
    hidden_NH = model.model(input_ids=ids_BT).last_hidden_state[:, :-1][keep_BT]
    logits_NV = model.lm_head(hidden_NH).float()
    losses_N = torch.nn.functional.cross_entropy(
        logits_NV, ids_BT[:, 1:][keep_BT], reduction="none"
    )
    return (losses_N * weights_BT[keep_BT]).sum() / weights_BT[keep_BT].sum()


@torch.no_grad()
def hand_over(source: Any, target: Any, grads: bool) -> None:
    """Copies gradients (bfloat16 to float32) or weights (float32 to bfloat16) between two copies of
    a model."""
    for a, b in zip(source.parameters(), target.parameters(), strict=True):
        if grads:
            b.grad, a.grad = a.grad.float(), None
        else:
            b.copy_(a)


OnStep = Callable[[Any, Progress, float], None]


def train_course(
    recipe: WorldRecipe,
    model: Any,
    stream: Batches,
    until: int,
    progress: Progress,
    on_step: OnStep,
) -> None:
    """Trains a model on one course until so many tokens in all were seen, with optimizers of its
    own.

    Forward and backward passes are in bfloat16 on a working copy, the weights themselves and the
    optimizers in float32.
    """
    working, draws = copy.deepcopy(model).bfloat16(), torch.Generator().manual_seed(recipe.seed)
    working.set_attn_implementation(
        "eager"
    )  # faster than the fused kernel at these lengths on a CPU
    steppers = optimizers(model, recipe)
    bases = [group["lr"] for stepper in steppers for group in stepper.param_groups]
    while progress.tokens < until:
        for group, base in zip([g for s in steppers for g in s.param_groups], bases, strict=True):
            group["lr"] = base * rate(recipe, progress.tokens)
        ids_BT, weights_BT = next(stream)
        loss = loss_of(working, ids_BT, weights_BT, recipe, draws)
        loss.backward()
        hand_over(working, model, grads=True)
        for stepper in steppers:
            stepper.step()
        hand_over(model, working, grads=False)
        progress.tokens += int((weights_BT > 0).sum())
        on_step(model, progress, loss.item())


def courses(
    recipe: WorldRecipe, tokenizer: PreTrainedTokenizerFast, progress: Progress
) -> list[tuple[Batches, int]]:
    """The three courses as streams of batches, each with the number of tokens at which it ends."""
    streams = [
        (reading_stream(recipe, progress), recipe.reading_until),
        (lessons.role_rows(recipe.seed + 1), recipe.roles_until),
        (lessons.role_rows(recipe.seed + 2, lessons.PRACTICE_SHARES), recipe.practice_until),
    ]
    return [
        (batches(rows, tokenizer, recipe, random.Random(recipe.seed + number)), until)
        for number, (rows, until) in enumerate(streams)
    ]


def save(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    recipe: WorldRecipe,
    folder: Path,
    progress: Progress,
) -> None:
    """Writes weights (safetensors), tokenizer, recipe and the learning curve up to here."""
    copy.deepcopy(model).to(getattr(torch, recipe.dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "recipe.json").write_text(recipe.model_dump_json(indent=1) + "\n")
    rows = [
        "tokens,loss,seconds",
        *(f"{int(r['tokens'])},{r['loss']:.4f},{r['seconds']:.1f}" for r in progress.curve),
    ]
    (folder / "curve.csv").write_text("\n".join(rows) + "\n")


def build(recipe: WorldRecipe, folder: Path, report: Callable[[str], None] = print) -> None:
    """Makes the three policies as sub-folders of `folder`, each where its number of tokens is
    reached."""
    tokenizer, progress = build_tokenizer(recipe), Progress()
    stops = {
        "unskilled": recipe.unskilled_at,
        "base": recipe.base_at,
        "instruct": recipe.practice_until,
    }

    def hear(model: Any, progress: Progress, loss: float) -> None:
        seconds = time.perf_counter() - progress.started
        progress.curve.append({"tokens": progress.tokens, "loss": loss, "seconds": seconds})
        if len(progress.curve) % 50 == 0:
            recent = sum(row["loss"] for row in progress.curve[-50:]) / 50
            report(f"{progress.tokens / 1e6:.2f} M tokens, loss {recent:.3f} nats, {seconds:.0f} s")
        for name in [name for name, at in stops.items() if progress.tokens >= at]:
            del stops[name]
            save(model, tokenizer, recipe, folder / name, progress)
            report(f"{name} saved")

    model = build_model(recipe, tokenizer)
    for stream, until in courses(recipe, tokenizer, progress):
        train_course(recipe, model, stream, until, progress, hear)
