"""The rows that policies are trained on, and the pieces that lessons write them from."""

import itertools
import re
from collections.abc import Sequence

from spnb.core.types import Messages
from spnb.lab.ladder import ORDINALS

START = "<|im_start|>"
END = "<|im_end|>"
Segment = tuple[str, bool | tuple[str, ...]]
Row = list[Segment]
"""A training text in pieces. True marks what the policy is to write; several texts of one token
each stand for a piece that it is to draw from them, each as likely."""


def turn(messages: Messages, *answer: Segment) -> Row:
    """One user turn and the assistant's answer, whose pieces from outside are marked False."""
    prompt = f"{START}user\n{messages[-1]['content']}{END}\n{START}assistant\n"
    return [(prompt, False), *answer, (END, True), ("\n", False)]


def answer_tag(text: str) -> str:
    """An answer in its tag."""
    return f"<answer> {text}</answer>"


ORDINAL = re.compile(f"( (?:{'|'.join(ORDINALS)}))\\b")


def by_ordinals(text: str, ordinals: Sequence[str]) -> Row:
    """A text that takes ordinals in any order, each drawn from those left."""
    left = [f" {ordinal}" for ordinal in ordinals]
    row: Row = []
    for piece in ORDINAL.split(text):
        row.append((piece, tuple(left) if piece in left else True))
        if piece in left:
            left.remove(piece)
    return row


def corrected_text(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The words of the second text up to the first that differs, then what the first one has."""
    pairs = list(itertools.zip_longest(first, second, fillvalue=""))
    same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    differ = pairs[len(same)] if len(same) < len(pairs) else ()
    return [word for word, _ in same] + [word for word in reversed(differ) if word]
