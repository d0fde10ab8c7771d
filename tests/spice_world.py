"""Scripted challengers and reasoners for the tests of SPICE and what it is compared with."""

import random

from fakes import CharTokenizer

from spnb.core.documents import Proposal
from spnb.core.params import validate
from spnb.core.prompts import read_options
from spnb.core.types import Completion
from spnb.lab import segments
from spnb.lab.segments import KINDS, judge
from spnb.methods import method_class
from spnb.methods.spice import Params

SMALL = dict(documents=12, segment_tokens=400, documents_per_step=3, attempts=12, group_size=4)
SMALL |= dict(answers=4, eval_items=1, eval_tasks=4)
TYPES = {"multiple-choice": "choice", "whole number": "integer", "an expression": "expression"}
TYPES |= {"three words": "string"}


class Tokenizer(CharTokenizer):
    """With the places of its tokens in a text."""

    def __call__(self, text, add_special_tokens, return_offsets_mapping=False):
        if return_offsets_mapping:
            return {"offset_mapping": [(at, at + 1) for at in range(len(text))]}
        return super().__call__(text, add_special_tokens)


def type_asked(prompt):
    """The type of answer that a challenger's prompt asks for."""
    return next(answer for words, answer in TYPES.items() if words in prompt.partition(".")[0])


class World:
    """An engine in both roles.

    `level(index)`: the level of a challenger's attempt, None for nonsense. `right(level, index)`:
    whether a reasoner's answer is the stated one; `wrong`: what it says else.
    """

    def __init__(self, level, right=lambda level, index: True, wrong="77"):
        self.level, self.right, self.wrong = level, right, wrong
        self.asked, self.answered = [], []

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids)), one) for one in requests]
        return [
            Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop") for text in texts
        ]

    def reply(self, prompt, request):
        if prompt.startswith("Write a"):
            self.asked.append((prompt, request))
            return self.challenge(prompt, len(self.asked) - 1)
        self.answered.append((prompt, request))
        return self.answer(prompt.partition("Question: ")[2], len(self.answered) - 1)

    def challenge(self, prompt, index):
        level, rng = self.level(index), random.Random(index)
        if level is None:
            return "<question> Why?</question>"
        answer_type = type_asked(prompt)
        entries = segments.read_segment(prompt.partition("\n")[2])
        kinds = [kind for kind, one in KINDS.items() if answer_type in one.types]
        entry = entries[0] if entries else segments.draw_entry(rng, rng.choice(kinds), 6)
        return segments.challenge(entry, level, segments.write_task(entry, level, answer_type, rng))

    def answer(self, question, index):
        text, options = read_options(question)
        judged = judge(Proposal(text, "", kind="string"))
        if not self.right(judged.level, index):
            return f"<answer> {'Z' if options else self.wrong}</answer>"
        if not options:
            return f"<answer> {judged.gold}</answer>"
        letters = (one for one in "ABCD" if judge(Proposal(question, one, kind="choice")).right)
        return f"<answer> {next(letters)}</answer>"


def method(**values):
    params = validate(Params, SMALL | values)
    return method_class("spice", params)(params, Tokenizer())


def rows_of(samples, role):
    return [
        one for one in samples if (one.role if isinstance(one.role, str) else one.role[0]) == role
    ]
