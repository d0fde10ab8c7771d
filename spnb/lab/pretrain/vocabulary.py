"""The tokens of policies that read: names, ordinals, counts and fixed phrases are one each."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from spnb.core.prompts import NO, WORDS, YES
from spnb.lab import groups, ladder
from spnb.lab.chain import CHAIN, QUEST
from spnb.lab.ladder import COUNTS, LETTERS, NUMBERS, ORDINALS, SO, WORDING, WORLDS
from spnb.lab.pretrain.build import train_tokenizer
from spnb.lab.pretrain.rows import END, START
from spnb.lab.segments import HIGHEST, KINDS, MAKES
from spnb.lab.world import names
from spnb.methods import spice_prompts

POOLS = ("train", "heldout")
DIGIT = " ?[0-9]"
LETTERED = [*LETTERS, *(f"({letter})" for letter in LETTERS)]


def tags(*words: str) -> list[str]:
    """The opening and closing tags of these words."""
    return [f"<{slash}{word}>" for word in words for slash in ("", "/")]


def turns() -> list[str]:
    """The marks of turns, with what stands before them."""
    reply = f"{END}\n{START}assistant\n"
    return [f"{START}user\n", f"{START}assistant\n", reply, f"?{reply}", f".{reply}"]


def ladder_tokenizer(
    size: int, further: Sequence[str] = (), phrases: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `size` tokens, and those of the ladder and the chain.

    `further` texts and `phrases` are those of other things that a policy does.
    """
    instructions = [WORDS["answer"]["plain"], WORDS["choice"], WORDS["task"], WORDS["closed"]]
    instructions += [WORDS["judge"], WORDS["rubric"], WORDS["grade"]]
    instructions += [WORDS["search"]["plain"], WORDS["ask by search"]]
    for asking in WORDS["ask"].values():
        instructions += [asking, asking + WORDS["ask beyond"]]
    marks = tags("think", "answer", "search", "information", "question", "rubric")
    marks += ["\n<information>", "\n</information>\n"]
    labelled = ("Question", "Task", "First", "Second", "Response", "Point")
    labels = [*(f"\n{word}:" for word in labelled), *(f"\n[{n}]" for n in range(1, 33))]
    rules = sorted(f" {WORDING[world]['rule']}" for world in set(WORLDS.values()))
    kinds = itertools.product(("person", "town"), POOLS)
    every = sorted({name for kind, pool in kinds for name in names(kind, pool)})
    wordings = [CHAIN.words["fact"]]
    for pool in POOLS:
        wordings += CHAIN.words["questions"][pool]
        wordings += [frame for family in WORLDS for frame in ladder.frames(family, pool)]
        for world in set(WORLDS.values()):
            wordings += WORDING[world]["notes"][pool]
    texts = sorted(" " + re.sub("{[evrs]}", "", text) for text in wordings) * 20
    words = [*ORDINALS, *NUMBERS, *map(str, range(COUNTS)), YES, NO, *every]
    words += [*CHAIN.relations, SO, *LETTERED]
    constant = [*turns(), *instructions, *marks, *labels, *rules]
    added = [*constant, *phrases, *(f" {word}" for word in words)]
    return train_tokenizer([*texts, *further], DIGIT, added, size, 10)


def quest_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Bytes, and a token each for the words and the fixed phrases of a seeker."""
    instructions = [WORDS["answer"]["plain"], WORDS["search"]["plain"], WORDS["ask by search"]]
    marks = [*tags("think", "answer", "search", "information", "question"), "\n<information>"]
    marks += ["\n</information>\n", "\nQuestion:", "\nAnswer:"]
    labels = [f"\n[{n}]" for n in range(1, 33)]
    questions = [frame for pool in POOLS for frame in QUEST.words["questions"][pool]]
    texts = [QUEST.words["fact"], QUEST.words["somebody"], *questions]
    spoken = re.findall(r"[A-Za-z]+", " ".join(re.sub("{[ervts]}", "", text) for text in texts))
    names_of = [[*QUEST.people(pool), *QUEST.towns(pool)] for pool in POOLS]
    words = [*ORDINALS[: QUEST.highest], *QUEST.relations, *sorted({*spoken})]
    words += sorted(name for each in names_of for name in each)
    added = [*turns(), *instructions, *marks, *labels, *(f" {word}" for word in words)]
    return train_tokenizer([], DIGIT, added, size)


def report_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Bytes, and a token each for the words and the fixed phrases of a reporter."""
    instructions = [WORDS["report"]["plain"], WORDS["ask by reading"]["plain"], WORDS["rubric"]]
    instructions += [WORDS["grade"], WORDS["identifiable"], WORDS["relevant"]]
    instructions.append(WORDS["search"]["plain"])
    marks = tags("think", "answer", "search", "information", "task", "rubric")
    marks += ["\n<information>", "\n</information>\n"]
    words = ("Question", "Task", "Type", "Queries", "Document", "Response", "Point")
    labels = [*(f"\n{word}:" for word in words), *(f"\n[{n}]" for n in range(1, 6))]
    kinds = groups.TYPES.values()
    frames = [frame for kind in kinds for each in kind["questions"].values() for frame in each]
    short = groups.WORDS["short"]
    texts = [*frames, groups.WORDS["roster"], groups.WORDS["query"], *short["question"].values()]
    texts += [short["of"], short["and"], groups.WORDS["unnamed"], *groups.TYPES]
    texts += [kind.get("head", "") for kind in kinds]
    spoken = re.findall(r"[A-Za-z]+", " ".join(re.sub("{[a-z]}", "", text) for text in texts))
    kept = [*ORDINALS[: groups.HIGHEST + 2], *NUMBERS[: groups.HIGHEST + 2], *sorted({*spoken})]
    kept += [groups.MARK, "done", "nothing", YES, NO, "1", "2", "3"]
    every = itertools.product(("person", "town"), POOLS)
    kept += sorted(name for kind, pool in every for name in names(kind, pool))
    added = [*turns(), *instructions, *marks, *labels, *(f" {word}" for word in kept)]
    return train_tokenizer([], DIGIT, added, size)


def reasoner_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Bytes, and a token each for the words of documents and the fixed phrases."""
    instructions = [*spice_prompts.CHALLENGING.values(), *spice_prompts.PROPOSING.values()]
    instructions += [*spice_prompts.SOLVING.values(), WORDS["reason"], WORDS["choice"]]
    instructions.append(WORDS["answer"]["plain"])
    marks = tags("think", "answer", "question", "program", "input")
    labels = [f"\n{word}:" for word in ("Question", "Program", "Input", "Output")]
    labels += [", output:", *(f"\n[{n}]" for n in range(1, 2 * HIGHEST + 1))]
    titles = [kind.title.removesuffix(" {e}") for kind in KINDS.values()]
    texts = [f"{start}{title}" for title in titles for start in ("\n", "")]
    signs = [" * 2 +", " +", " x", "\n-", *(f"x^{power}" for power in range(2, HIGHEST))]
    rules = [f" {kind.rule}" for kind in KINDS.values()]
    phrases = [*turns(), *instructions, *marks, *labels, *texts, *signs, *rules]
    added = [*phrases, *(f" {word}" for word in reasoner_words())]
    return train_tokenizer([], DIGIT, added, size)


def reasoner_words() -> list[str]:
    """Words of documents that become one token each, with the space before them."""
    texts = []
    for kind, pool in itertools.product(KINDS.values(), POOLS):
        texts += [*kind.notes[pool], *kind.questions[pool]]
    spoken = re.findall(r"[A-Za-z]+", " ".join(re.sub("{[envk]}", "", text) for text in texts))
    people = [name for pool in POOLS for name in names("person", pool)]
    numbers = [*ORDINALS[:HIGHEST], *NUMBERS[:HIGHEST], *map(str, range(COUNTS)), SO, MAKES]
    return [*numbers, *LETTERED, *KINDS["code"].steps, *sorted(set(spoken)), *sorted(people)]


@torch.no_grad()
def with_tokens(model: Any, old: Any, new: Any, alike: Sequence[str]) -> tuple[Any, Any]:
    """A model with the tokens of `new` in the place of `old`, and `new`; as it is where it has as
    many. A text that is a token of both keeps its embedding; another's is drawn with mean and
    covariance of those of the names `alike`."""
    if len(new) == len(old):
        return model, old
    known = {old.decode([place]): place for place in range(len(old))}
    embedding_VD = model.get_input_embeddings().weight.clone()
    pieces = old([f" {name}" for name in alike], add_special_tokens=False)["input_ids"]
    alike_ND = embedding_VD[[ids[0] for ids in pieces]]
    mean_D = alike_ND.mean(0)
    generator = torch.Generator().manual_seed(0)
    model.resize_token_embeddings(len(new), mean_resizing=False)
    rows_VD = model.get_input_embeddings().weight
    for place in range(len(new)):
        text = new.decode([place])
        drawn_N = torch.randn(len(alike_ND), generator=generator) / len(alike_ND) ** 0.5
        fresh_D = mean_D + drawn_N @ (alike_ND - mean_D)
        rows_VD[place] = embedding_VD[known[text]] if text in known else fresh_D
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = new.eos_token_id, new.pad_token_id
    return model, new
