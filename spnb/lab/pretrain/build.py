"""Makes the games policy from a seed: tokenizer, small Qwen3, training on demonstrations.

The result is a standard checkpoint with a ChatML template and a pad token other than the end token.
`spnb.lab.pretrain.training` uses the same batches, model and optimizers.
"""

import collections
import itertools
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Split
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from spnb.lab.pretrain.demos import Demo, demos
from spnb.lab.pretrain.recipes import ModelRecipe, Recipe
from spnb.lab.pretrain.rows import END, START, Row, turn

PAD = "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYMBOLS = re.compile(r"([0-9]|\b[XOxoJQK]\b|\b(?:check|bet|call|fold)\b)")
CURVE_FILE = "curve.csv"
CURVE_STEPS = 20
"""Steps whose mean loss is a row of the curve."""
POOLED = 16
"""Batches of demonstrations that are drawn at once and sorted by length."""

Draws = dict[int, list[int]]
"""By its place in a row, the ids that a token is to be drawn from."""
Encoded = tuple[list[int], list[float], Draws]
"""The token ids of a row, the weight of each in the loss, and what some are drawn from."""
Batches = Iterator[tuple[torch.Tensor, torch.Tensor, list[Draws]]]
"""Right-padded batches: ids (B, T), loss weights (B, T), which are 0 on padding, draws by row."""
Curve = list[tuple[int, float, float]]
"""Steps or tokens so far, loss in nats, seconds."""


def phrases(texts: Iterable[str], at_least: int) -> list[str]:
    """The stretches between symbols (digits, marks, cards, moves) that occur often, longest first.

    As tokens they make a prompt of 700 characters about 60 tokens long.
    """
    stretches = (part for text in texts for part in SYMBOLS.split(text) if len(part) >= 3)
    counts = collections.Counter(stretches)
    frequent = [part for part, count in counts.items() if count >= at_least]
    return sorted(frequent, key=lambda part: (-len(part), part))


def train_tokenizer(
    texts: Sequence[str], symbols: str, added: Iterable[str], vocabulary: int, at_least: int = 0
) -> PreTrainedTokenizerFast:
    """A byte-level BPE with the ChatML template.

    `symbols` (a pattern) are never merged with their neighbours, `added` texts become one token
    each, and a pair must occur `at_least` times to be merged.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [Split(pattern=Regex(symbols), behavior="isolated"), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[START, END, PAD],
        initial_alphabet=ByteLevel.alphabet(),
        min_frequency=at_least,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in dict.fromkeys(added)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, additional_special_tokens=[START]
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def demo_texts(stream: Iterator[Demo]) -> list[str]:
    """The prompts, then the answers, of the 3,000 demonstrations that a tokenizer is made from."""
    sample = list(itertools.islice(stream, 3000))
    return [demo.messages[0]["content"] for demo in sample] + [demo.answer for demo in sample]


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """The games policy's tokenizer: symbols as single tokens, fixed phrases as added ones."""
    texts = demo_texts(demos(recipe.seed))
    fixed = ["user\n", "assistant\n", *phrases(texts, recipe.phrase_count)]
    return train_tokenizer(texts, SYMBOLS.pattern, fixed, recipe.vocabulary)


def random_model(
    recipe: ModelRecipe, tokenizer: PreTrainedTokenizerFast, positions: int, **config: Any
) -> Qwen3ForCausalLM:
    """A float32 Qwen3 with random weights; `positions` is its longest input in tokens."""
    torch.manual_seed(recipe.seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=recipe.hidden,
            intermediate_size=recipe.feed_forward,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            head_dim=recipe.hidden // recipe.heads,
            max_position_embeddings=positions,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            dtype="float32",
            **config,
        )
    )


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The games policy before training."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    return random_model(recipe, tokenizer, 1024, rope_parameters=rope)


def encode(row: Row, tokenizer: PreTrainedTokenizerFast, outside_weight: float) -> Encoded:
    """Token ids of a row, their loss weights (1 where the policy writes) and draws."""
    ids: list[int] = []
    weights: list[float] = []
    draws: Draws = {}
    pieces = tokenizer([text for text, _ in row], add_special_tokens=False)["input_ids"]
    for piece, (_, by_policy) in zip(pieces, row, strict=True):
        if isinstance(by_policy, tuple):
            draws[len(ids)] = tokenizer.convert_tokens_to_ids(list(by_policy))
        ids += piece
        weights += [1.0 if by_policy else outside_weight] * len(piece)
    return ids, weights, draws


def batches(
    rows: Iterator[Row],
    tokenizer: PreTrainedTokenizerFast,
    outside_weight: float,
    rng: random.Random,
    pool: int,
    split: Callable[[list[Encoded]], list[list[Encoded]]],
) -> Batches:
    """Endless batches of rows of similar length.

    Draws `pool` rows, sorts them by length, has `split` cut them, and shuffles the batches.
    """
    while True:
        encoded = [encode(row, tokenizer, outside_weight) for row in itertools.islice(rows, pool)]
        groups = split(sorted(encoded, key=lambda row: len(row[0])))
        rng.shuffle(groups)
        for group in groups:
            ids, weights, draws = zip(*group, strict=True)
            padded = partial(pad_sequence, batch_first=True)
            ids_BT = padded(list(map(torch.tensor, ids)), padding_value=tokenizer.pad_token_id)
            yield ids_BT, padded(list(map(torch.tensor, weights))), list(draws)


def demo_batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Batches:
    """Batches of demonstrations, which end with the end token."""
    rows = (turn(demo.messages, (demo.answer, True))[:-1] for demo in demos(recipe.seed + 1))
    size = recipe.batch
    rng = random.Random(recipe.seed)

    def split(pool: list[Encoded]) -> list[list[Encoded]]:
        return [pool[start : start + size] for start in range(0, len(pool), size)]

    return batches(rows, tokenizer, recipe.prompt_weight, rng, POOLED * size, split)


def loss_of(model: Any, ids_BT: torch.Tensor, weights_BT: torch.Tensor) -> torch.Tensor:
    """Weighted next-token cross-entropy in nats."""
    logits_BTV = model(input_ids=ids_BT).logits[:, :-1]
    targets = ids_BT[:, 1:].flatten()
    losses = cross_entropy(logits_BTV.flatten(0, 1), targets, reduction="none")
    weights = weights_BT[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def make_optimizers(model: Any, recipe: ModelRecipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and gains."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=recipe.matrix_learning_rate, weight_decay=0.0, momentum=0.95),
        torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def set_rate(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Sets each learning rate to its first value times a factor."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor


def save(
    model: Any, tokenizer: Any, recipe: ModelRecipe, folder: Path, unit: str, curve: Curve
) -> None:
    """Writes weights (safetensors), tokenizer, recipe and the curve; `unit`: what that counts."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "recipe.json").write_text(recipe.model_dump_json(indent=1) + "\n")
    parts = [curve[at : at + CURVE_STEPS] for at in range(0, len(curve), CURVE_STEPS)]
    rows = [(part[-1][0], fmean(loss for _, loss, _ in part), part[-1][2]) for part in parts]
    lines = [f"{count},{loss:.4f},{seconds:.1f}\n" for count, loss, seconds in rows]
    (folder / CURVE_FILE).write_text("".join([f"{unit},loss,seconds\n", *lines]))


def build(recipe: Recipe, folder: Path, report: Callable[[str], None] = print) -> None:
    """Makes the games policy: tokenizer, training from scratch, saving."""
    tokenizer = build_tokenizer(recipe)
    model = build_model(recipe, tokenizer)
    optimizers = make_optimizers(model, recipe)
    stream = demo_batches(recipe, tokenizer)
    started = time.perf_counter()
    curve = []
    for step in range(recipe.steps):
        warm = min(1.0, (step + 1) / recipe.warmup)
        set_rate(optimizers, warm * 0.5 * (1 + math.cos(math.pi * step / recipe.steps)))
        ids_BT, weights_BT, _ = next(stream)
        loss = loss_of(model, ids_BT, weights_BT)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        curve.append((step + 1, loss.item(), time.perf_counter() - started))
        if (step + 1) % 100 == 0 or step + 1 == recipe.steps:
            report("step {}, loss {:.3f} nats, {:.0f} s".format(*curve[-1]))
    save(model, tokenizer, recipe, folder, "step", curve)
