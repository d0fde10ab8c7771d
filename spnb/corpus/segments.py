"""Segments: parts of documents that a model reads at once, cut by tokens.

The rule: from a document's start, each segment takes as many tokens as it may have, then goes back
to the last line end among them, if there is one. So whole lines stay together, only a line longer
than a segment is cut within, and a document shorter than a segment is one.

    corpus = Segments([documents], tokenizer, 5992)
    corpus.draw(random.Random(0), 128)
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spnb.corpus.store import Corpus, CorpusError, open_store

CACHED = 4096
"""Documents whose segments are kept."""


@dataclass(frozen=True)
class Segment:
    """A part of a document: the document's id, which part (from 0), the text."""

    document: str
    number: int
    text: str


def cut(text: str, tokenizer: Any, size: int) -> list[str]:
    """A text in segments of at most `size` tokens, as the tokenizer has them in the whole text.

    Raises:
        ValueError: a size below 1, or a text without words.
    """
    if size < 1:
        raise ValueError(f"size of a segment is {size!r}; allowed: 1 or more tokens")
    if not text.strip():
        raise ValueError("text is empty; allowed: a document with words")
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [start for start, _ in offsets["offset_mapping"]] + [len(text)]
    pieces, first, last = [], 0, len(starts) - 1
    while first < last:
        end = min(first + size, last)
        if end < last:
            places = range(end, first, -1)
            end = next((at for at in places if _ends_line(text, starts[at])), end)
        pieces.append(text[starts[first] : starts[end]].strip("\n"))
        first = end
    return [piece for piece in pieces if piece.strip()]


def _ends_line(text: str, at: int) -> bool:
    """Whether a line ends before the character at a place."""
    return text[at - 1] == "\n" or text[at] == "\n"


class Segments:
    """The segments of one corpus or several, of which any document is drawn as often as any other.

    Raises:
        CorpusError: no documents at all, or, when it is read, a document without words.
    """

    def __init__(self, corpora: Sequence[Corpus], tokenizer: Any, size: int):
        self.stores = [open_store(corpus) for corpus in corpora]
        self.tokenizer, self.size = tokenizer, size
        if not self.stores:
            raise CorpusError("corpus has 0 documents; allowed: 1 or more")
        self.of = lru_cache(CACHED)(self._cut)

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    def _cut(self, row: int) -> list[Segment]:
        """The segments of a document by its row in all corpora together."""
        for store in self.stores:
            if row < len(store):
                break
            row -= len(store)
        hit = store[row]
        try:
            texts = cut(hit.text, self.tokenizer, self.size)
        except ValueError as error:
            raise CorpusError(f"document {hit.id!r}: {error}") from None
        return [Segment(hit.id, number, text) for number, text in enumerate(texts)]

    def draw(self, rng: random.Random, count: int) -> list[Segment]:
        """Documents at random, none twice before all have come, and any segment of each."""
        rows: list[int] = []
        while len(rows) < count:
            rows += rng.sample(range(len(self)), min(len(self), count - len(rows)))
        return [rng.choice(self.of(row)) for row in rows]
