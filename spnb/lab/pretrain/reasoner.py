"""Pre-trains the reasoners, policies shown the rows of `spnb.lab.pretrain.reasoner_lessons`."""

import itertools
import re
from typing import Any

from transformers import PreTrainedTokenizerFast

from spnb.core import prompts
from spnb.lab.ladder import COUNTS, LETTERS, SO
from spnb.lab.pretrain import build as games
from spnb.lab.pretrain.learner import turns
from spnb.lab.pretrain.reasoner_lessons import ReasonerRecipe
from spnb.lab.segments import HIGHEST, KINDS, MAKES, NUMBERS, ORDINALS
from spnb.lab.world import names
from spnb.methods import spice_prompts

RECIPES: dict[str, dict[str, Any]] = {"reasoner": {"dtype": "bfloat16"}}
RECIPES["reasoner-large"] = {"hidden": 128, "dtype": "bfloat16"}
"""What the recipes set."""
TAGS = ("think", "answer", "question", "program", "input")


def fixed_phrases() -> list[str]:
    """Constant text that becomes one token each."""
    instructions = [*spice_prompts.CHALLENGING.values(), *spice_prompts.PROPOSING.values()]
    instructions += [*spice_prompts.SOLVING.values(), prompts.REASON, prompts.CHOICE]
    instructions.append(prompts.ANSWERING["plain"])
    tags = [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
    labels = [f"\n{word}:" for word in ("Question", "Program", "Input", "Output")]
    labels += [", output:", *(f"\n[{number}]" for number in range(1, 2 * HIGHEST + 1))]
    titles = [kind.title.removesuffix(" {e}") for kind in KINDS.values()]
    texts = [f"{start}{title}" for title in titles for start in ("\n", "")]
    signs = [" * 2 +", " +", " x", "\n-", *(f"x^{power}" for power in range(2, HIGHEST))]
    return [*turns(), *instructions, *tags, *labels, *texts, *signs, *rules()]


def rules() -> list[str]:
    """The rules of the kinds of documents, as they stand after notes."""
    return [f" {kind.rule}" for kind in KINDS.values()]


def words() -> list[str]:
    """Words that become one token each, with the space before them."""
    pools = ("train", "heldout")
    texts = [
        text
        for kind in KINDS.values()
        for pool in pools
        for text in (*kind.notes[pool], *kind.questions[pool])
    ]
    spoken = re.findall(r"[A-Za-z]+", " ".join(re.sub("{[envk]}", "", text) for text in texts))
    people = [name for pool in pools for name in names("person", pool)]
    letters = [*LETTERS, *(f"({letter})" for letter in LETTERS), *KINDS["code"].steps]
    numbers = [*ORDINALS[:HIGHEST], *NUMBERS[:HIGHEST], *map(str, range(COUNTS))]
    return list(itertools.chain(numbers, [SO, MAKES], letters, sorted(set(spoken)), sorted(people)))


def build_tokenizer(recipe: ReasonerRecipe) -> PreTrainedTokenizerFast:
    """Bytes, and a token each for the world's words and the fixed phrases."""
    added = [*fixed_phrases(), *(f" {word}" for word in words())]
    return games.train_tokenizer([], " ?[0-9]", added, recipe.vocabulary)
