"""Makes the embedded policy from a seed: tokenizer, a small Qwen3 model, supervised training on
demonstrations.

The result is a standard checkpoint (`AutoModelForCausalLM`, `AutoTokenizer`, ChatML template, pad
distinct from the end token). `spnb embedded FOLDER` runs this; `notebooks/90_embedded_policy.ipynb`
shows what each part does.
"""

import collections
import itertools
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from spnb.recipe.demos import Demo, demos

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYMBOLS = re.compile(r"([0-9]|\b[XOxoJQK]\b|\b(?:check|bet|call|fold)\b)")
CURVE_FILE = "curve.csv"
POOLED = 16
"""Batches drawn at once and sorted by length."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights. Times in the notebook are for these values on 2
    cores."""

    seed: int = 0
    vocabulary: int = 448
    phrase_count: int = 20
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    feed_forward: int = 384
    steps: int = 2000
    batch: int = 96
    learning_rate: float = 3e-3
    matrix_learning_rate: float = 0.02
    warmup: int = 100
    prompt_weight: float = 0.02


def phrases(texts: Iterable[str], at_least: int) -> list[str]:
    """The stretches between symbols (digits, marks, cards, moves) that occur `at_least` times,
    longest first.

    Fixed sentences of a game's rules become one token each, so that a prompt of 700 characters has
    about 60 tokens and every symbol a policy must read stays a token of its own.
    """
    counts = collections.Counter(
        part for text in texts for part in SYMBOLS.split(text) if len(part) >= 3
    )
    return sorted(
        (part for part, count in counts.items() if count >= at_least),
        key=lambda part: (-len(part), part),
    )


def train_tokenizer(
    texts: Sequence[str], symbols: str, added: Iterable[str], vocabulary: int, at_least: int = 0
) -> PreTrainedTokenizerFast:
    """A byte-level BPE with the ChatML template: any text can be encoded.

    Args:
        symbols: pattern of what stays a token of its own, or is never merged with its neighbours.
        added: texts that become one token each, wherever they stand.
        at_least: how often a pair must occur to be merged.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern=Regex(symbols), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[START, END, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
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


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """The game policy's tokenizer: symbols as single tokens, fixed phrases as added ones."""
    sample = list(itertools.islice(demos(recipe.seed), 3000))
    texts = [demo.messages[0]["content"] for demo in sample] + [demo.answer for demo in sample]
    fixed = ["user\n", "assistant\n", *phrases(texts, recipe.phrase_count)]
    return train_tokenizer(texts, SYMBOLS.pattern, fixed, recipe.vocabulary)


def random_model(
    recipe: Any, tokenizer: PreTrainedTokenizerFast, positions: int, **config: Any
) -> Qwen3ForCausalLM:
    """A Qwen3 model of a recipe's size with random weights from its seed, float32.

    Args:
        recipe: has seed, hidden, layers, heads and feed_forward.
        positions: longest input in tokens.
        config: further values of `Qwen3Config`.
    """
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
    """The game policy before training."""
    return random_model(
        recipe, tokenizer, 1024, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    )


def encode(demo: Demo, tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], int]:
    """Token ids of prompt and answer with the end token, and the prompt's length."""
    prompt = tokenizer.apply_chat_template(
        demo.messages, tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer = tokenizer(demo.answer, add_special_tokens=False)["input_ids"]
    return ids + answer + [tokenizer.eos_token_id], len(ids)


def batches(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Endless right-padded batches: ids (B, T) and loss weights (B, T), which are 0 on padding.

    Demonstrations are drawn for `POOLED` batches and sorted by length, so that little is padding;
    the batches' order is random. A prompt of negotiation has several times the tokens of one about
    a board.
    """
    stream, rng = demos(recipe.seed + 1), random.Random(recipe.seed)
    while True:
        drawn = [
            encode(demo, tokenizer) for demo in itertools.islice(stream, POOLED * recipe.batch)
        ]
        drawn.sort(key=lambda row: len(row[0]))
        starts = [index * recipe.batch for index in range(POOLED)]
        rng.shuffle(starts)
        yield from (
            padded(drawn[start : start + recipe.batch], recipe, tokenizer.pad_token_id)
            for start in starts
        )


def padded(
    rows: Sequence[tuple[list[int], int]], recipe: Recipe, pad: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """One batch: ids (B, T) and weights (B, T); prompts count `prompt_weight`, answers 1, padding
    0."""
    longest = max(len(ids) for ids, _ in rows)
    ids_BT = torch.full((len(rows), longest), pad)
    weights_BT = torch.zeros(len(rows), longest)
    for row, (ids, prompt) in enumerate(rows):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        weights_BT[row, :prompt] = recipe.prompt_weight
        weights_BT[row, prompt : len(ids)] = 1.0
    return ids_BT, weights_BT


def loss_of(model: Any, ids_BT: torch.Tensor, weights_BT: torch.Tensor) -> torch.Tensor:
    """Weighted next-token cross-entropy in nats."""
    logits_BTV = model(input_ids=ids_BT).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(
        logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten(), reduction="none"
    )
    weights = weights_BT[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def optimizers(model: Any, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and gains."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=recipe.matrix_learning_rate, weight_decay=0.0, momentum=0.95),
        torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def train(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerFast,
    on_step: Callable[[int, float, float], None] = lambda *_: None,
) -> Qwen3ForCausalLM:
    """Trains from scratch; `on_step(step, loss, seconds)` hears of every step."""
    model = build_model(recipe, tokenizer)
    steppers = optimizers(model, recipe)
    bases = [group["lr"] for stepper in steppers for group in stepper.param_groups]
    started, stream = time.perf_counter(), batches(recipe, tokenizer)
    for step in range(recipe.steps):
        scale = (
            min(1.0, (step + 1) / recipe.warmup)
            * 0.5
            * (1 + math.cos(math.pi * step / recipe.steps))
        )
        for group, base in zip([g for s in steppers for g in s.param_groups], bases, strict=True):
            group["lr"] = base * scale
        loss = loss_of(model, *next(stream))
        loss.backward()
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
        on_step(step + 1, loss.item(), time.perf_counter() - started)
    return model.eval()


def save(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, folder: Path
) -> None:
    """Writes weights (safetensors), tokenizer and the recipe."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "recipe.json").write_text(json.dumps(asdict(recipe), indent=1) + "\n")


def build(recipe: Recipe, folder: Path, report: Callable[[str], None] = print) -> None:
    """Tokenizer, training and saving in one go; the learning curve (step, loss in nats, seconds) as
    `CURVE_FILE`."""
    tokenizer, curve = build_tokenizer(recipe), []

    def hear(step: int, loss: float, seconds: float) -> None:
        curve.append(f"{step},{loss:.4f},{seconds:.1f}")
        if step % 100 == 0 or step == recipe.steps:
            report(f"step {step}/{recipe.steps}, loss {loss:.3f} nats, {seconds:.0f} s")

    save(train(recipe, tokenizer, hear), tokenizer, recipe, folder)
    (folder / CURVE_FILE).write_text("\n".join(["step,loss,seconds", *curve]) + "\n")
