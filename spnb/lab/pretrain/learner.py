"""Pre-trains the learners, policies shown the rows of `spnb.lab.pretrain.ladder_lessons`."""

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from spnb.core import prompts
from spnb.lab import chain, embedded_path, ladder
from spnb.lab.ladder import COUNTS, HIGHEST, LETTERS, ORDINALS, WORDING, WORLDS
from spnb.lab.pretrain import build as games
from spnb.lab.pretrain import training
from spnb.lab.pretrain.build import Batches
from spnb.lab.pretrain.ladder_lessons import LearnerRecipe, Lessons
from spnb.lab.pretrain.rows import END, START, Row
from spnb.lab.world import names

TAGS = ("think", "answer", "search", "information", "question", "rubric")
CONSTANT = 0.4
"""The share of the training with the full learning rate."""

RECIPES: dict[str, dict[str, Any]] = {"learner": {}, "learner-even": {"asks": "even"}}
RECIPES["learner-large"] = {
    "hidden": 128,
    "feed_forward": 384,
    "highest": HIGHEST,
    "tokens": 18_000_000,
    "dtype": "bfloat16",
}
"""What the recipes set."""


def turns() -> list[str]:
    """The marks of turns, with what stands before them."""
    reply = f"{END}\n{START}assistant\n"
    return [f"{START}user\n", f"{START}assistant\n", reply, f"?{reply}", f".{reply}"]


def fixed_phrases() -> list[str]:
    """Constant text that becomes one token each."""
    instructions = [prompts.ANSWERING["plain"], prompts.CHOICE, prompts.TASK, prompts.CLOSED]
    instructions += [prompts.JUDGE, prompts.RUBRIC, prompts.GRADE]
    instructions += [prompts.SEARCHING["plain"], prompts.ASK_SEARCH]
    for asking in prompts.ASKING.values():
        instructions += [asking, asking + prompts.ASK_BEYOND]
    tags = [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
    words = ("Question", "Task", "First", "Second", "Response", "Point")
    labels = [*(f"\n{word}:" for word in words), *(f"\n[{number}]" for number in range(1, 33))]
    rules = [f" {WORDING[world]['rule']}" for world in set(WORLDS.values())]
    results = ["\n<information>", "\n</information>\n"]
    return [*turns(), *instructions, *tags, *results, *labels, *sorted(rules)]


def build_tokenizer(
    recipe: LearnerRecipe, further: Sequence[str] = (), phrases: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A byte-level BPE: names, ordinals, counts and fixed phrases are one token each.

    `further` texts and `phrases` are those of other things that a policy does.
    """
    pools = itertools.product(("person", "town"), ("train", "heldout"))
    every = sorted({name for kind, pool in pools for name in names(kind, pool)})
    wordings = [
        frame
        for family in WORLDS
        for pool in ("train", "heldout")
        for frame in ladder.frames(family, pool)
    ]
    wordings += [
        text
        for world in set(WORLDS.values())
        for pool in ("train", "heldout")
        for text in WORDING[world]["notes"][pool]
    ]
    wordings += [chain.WORDS["fact"], *chain.WORDS["questions"]["train"]]
    wordings += chain.WORDS["questions"]["heldout"]
    texts = sorted(" " + re.sub("{[evrs]}", "", text) for text in wordings) * 20
    texts += further
    words = [*ORDINALS, *ladder.NUMBERS, *map(str, range(COUNTS)), prompts.YES, prompts.NO, *every]
    words += [*chain.RELATIONS, ladder.SO, *LETTERS, *(f"({letter})" for letter in LETTERS)]
    added = [*fixed_phrases(), *phrases, *(f" {word}" for word in words)]
    return games.train_tokenizer(texts, " ?[0-9]", added, recipe.vocabulary, 10)


def stream(lessons: Lessons, tokenizer: Any, progress: training.Progress) -> Batches:
    """Batches of lessons, their difficulty following the tokens seen."""
    recipe = lessons.recipe

    def rows() -> Iterator[Row]:
        for row in lessons.rows():
            lessons.progress = progress.tokens / recipe.tokens
            yield row

    rng = random.Random(recipe.seed)
    split = partial(training.split_by_tokens, most=recipe.batch_tokens)
    return games.batches(rows(), tokenizer, recipe.outside_weight, rng, training.POOL, split)


def rate(recipe: LearnerRecipe, tokens: int) -> float:
    """The rate's factor: a warm-up, constant up to `CONSTANT`, then a cosine to 0."""
    warm = min(1.0, (tokens + 1) / recipe.warmup_tokens)
    late = max(0.0, (tokens / recipe.tokens - CONSTANT) / (1 - CONSTANT))
    return warm * 0.5 * (1 + math.cos(math.pi * late))


def build(
    lessons: Lessons,
    folder: Path,
    report: Callable[[str], None] = print,
    start: str = "",
    tokens: Callable[[Any], PreTrainedTokenizerFast] = build_tokenizer,
) -> None:
    """Makes the policy of these lessons: tokenizer, training, saving.

    `start`: the embedded policy that it goes on from; from scratch where there is none, with the
    tokenizer that `tokens` makes for the recipe.
    """
    recipe = lessons.recipe
    progress = training.Progress()
    if start:
        tokenizer = AutoTokenizer.from_pretrained(embedded_path(start))
        model = AutoModelForCausalLM.from_pretrained(embedded_path(start), dtype=torch.float32)
    else:
        tokenizer = tokens(recipe)
        model = training.build_model(recipe, tokenizer)
    batches = stream(lessons, tokenizer, progress)
    for _ in training.train(recipe, model, batches, recipe.tokens, progress, rate):
        tokens, _, seconds = progress.curve[-1]
        if len(progress.curve) % 50 == 0:
            recent = sum(loss for _, loss, _ in progress.curve[-50:]) / 50
            report(f"{tokens / 1e6:.2f} M tokens, loss {recent:.3f} nats, {seconds:.0f} s")
    weights = model.to(getattr(torch, recipe.dtype))
    games.save(weights, tokenizer, recipe, folder, "tokens", progress.curve)
