"""Segments: parts of documents that a model reads at once, cut by tokens.

The rule: from a document's start, each segment takes as many tokens as it may have, then goes back
to the last line end among them, if there is one. So whole lines stay together, only a line longer
than a segment is cut within, and a document shorter than a segment is one.

    corpus = Segments([documents], tokenizer, 5992)
    corpus.draw(random.Random(0), 128)
"""

import random
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from spnb.core.documents import Context, Document, Judgement, Proposal
from spnb.core.method import Suite
from spnb.core.types import Chat, Sampling
from spnb.corpus.store import Corpus, CorpusError, open_store

GRADES = {"choice": "letter", "integer": "integer", "expression": "expression", "string": "exact"}
"""Types of answers and how each is graded (`spnb.core.grading`)."""
CACHED = 4096
"""Documents whose segments are kept."""


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
    pieces = []
    first = 0
    last = len(starts) - 1
    while first < last:
        end = min(first + size, last)
        if end < last:
            places = range(end, first, -1)
            end = next((at for at in places if _ends_line(text, starts[at])), end)
        pieces.append(text[starts[first] : starts[end]].strip("\n"))
        first = end
    return [piece for piece in pieces if piece.strip()]


def _ends_line(text: str, at: int) -> bool:
    return text[at - 1] == "\n" or text[at] == "\n"


class Segments:
    """The segments of one corpus or several, of which any document is drawn as often as any other.

    Raises:
        CorpusError: no documents at all, or a document without words.
    """

    def __init__(self, corpora: Sequence[Corpus], tokenizer: Any, size: int):
        self.stores = [open_store(corpus) for corpus in corpora]
        for store in self.stores:
            store.check()
        self.tokenizer = tokenizer
        self.size = size
        if not self.stores:
            raise CorpusError("corpus has 0 documents; allowed: 1 or more")
        self.of = lru_cache(CACHED)(self._cut)

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    def _cut(self, row: int) -> list[str]:
        """The segments of a document by its row in all corpora together; none of blank text."""
        for store in self.stores:
            if row < len(store):
                break
            row -= len(store)
        text = store[row].text
        return cut(text, self.tokenizer, self.size) if text.strip() else []

    def draw(self, rng: random.Random, count: int) -> list[str]:
        """Documents at random, none twice before all have come, and any segment of each; the next
        with words in the place of a blank one, behind those that `store.check` looked at."""
        rows: list[int] = []
        while len(rows) < count:
            rows += rng.sample(range(len(self)), min(len(self), count - len(rows)))
        return [rng.choice(self._next(row)) for row in rows]

    def _next(self, row: int) -> list[str]:
        following = (self.of((row + further) % len(self)) for further in range(len(self)))
        return next(filter(None, following))


class SegmentSource:
    """Segments of corpora of one's own, and the types of answers to ask for; without an oracle.

    `corpora`: for training and for evaluation, which writes tasks on documents of its own.
    """

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        self.tokenizer = tokenizer
        self.kinds = list(params.task_types)
        self.training = self.open("train", params.documents) if params.corpus else None

    def open(self, pool: str, count: int) -> Segments:
        """The corpora by path; `pool` and `count` are for those that are drawn."""
        corpora = [rows for name in self.params.corpus if len(rows := self.rows(name, pool, count))]
        return Segments(corpora, self.tokenizer, self.params.segment_tokens)

    def rows(self, name: str, pool: str, count: int) -> Corpus:
        return name

    @cached_property
    def held_out(self) -> list[str]:
        """What evaluation writes tasks on, always the same: segments of `eval_tasks` documents,
        none twice before all have come. Documents of a corpus by path are in training too."""
        count = self.params.eval_tasks
        return self.open("heldout", count).draw(random.Random(self.params.eval_seed()), count)

    def draw_several(
        self, rng: random.Random, count: int, read: Sequence[str] = ()
    ) -> list[Context]:
        """Segments of different documents, unless they are given, and a type of answer for each;
        without a corpus the type alone."""
        if self.training is None:
            return [Context(rng.choice(self.kinds)) for _ in range(count)]
        read = read or self.training.draw(rng, count)
        return [
            Context(rng.choice(self.allowed(text) or self.kinds), (Document(text),))
            for text in read
        ]

    def allowed(self, text: str) -> list[str]:
        """The types of answers that a segment has something for."""
        return self.kinds

    def judge(self, proposal: Proposal, context: Context) -> Judgement | None:
        return None

    def suites(self, items: int, chat: Chat, sampling: Sampling, **prompting: Any) -> list[Suite]:
        return []
