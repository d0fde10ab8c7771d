"""Retrieval: one call for a batch of queries, over BM25 or dense vectors.

    retriever = make_retriever("bm25", documents)  # in memory
    retriever = make_retriever("dense", "wiki.jsonl", cache_dir="runs/index")  # built once
    hits = retriever.search(["Who governs Arnford?"], k=3)[0]

An index is kept under a name made of the corpus's content, the encoder and the kind of index: a
changed corpus gets a new one, an unchanged one is never built twice. `spnb.corpus.server` has the
same over HTTP.
"""

import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from spnb.core.paths import resolve
from spnb.core.search import Hit
from spnb.corpus.store import Corpus, Store, built_once, index_name, open_store

KINDS = ("bm25", "dense", "flat", "hnsw", "ivfpq")
"""`flat`, `hnsw` and `ivfpq` are dense; `dense` is the one that the corpus's size asks for."""
K1, B = 0.9, 0.4
"""BM25's term saturation and length normalisation: Pyserini's defaults, which Search-R1's BM25
server runs with."""


class Ranker(Protocol):
    """An index: knows rows and scores, no documents."""

    def rank(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """For each query at most `k` pairs of row and score, best first."""


def check_request(queries: Sequence[str], k: int) -> None:
    """Raises ValueError unless `queries` is a sequence of strings and `k` a positive integer."""
    if isinstance(queries, str) or not isinstance(queries, Sequence):
        raise ValueError(f"queries is {queries!r}; allowed: a list of strings")
    for place, query in enumerate(queries):
        if not isinstance(query, str):
            raise ValueError(f"queries[{place}] is {query!r}; allowed: a string")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k is {k!r}; allowed: an integer, 1 or more")


class LocalRetriever:
    """An index in this process and the documents that its rows stand for. Safe to share between
    threads."""

    def __init__(self, store: Store, ranker: Ranker):
        self.store = store
        self.ranker = ranker

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first; equal scores in the order of the corpus.

        A query without any text has no hits. `k` may exceed the corpus.

        Raises:
            ValueError: queries is no list of strings, or k below 1.
        """
        check_request(queries, k)
        hits: list[list[Hit]] = [[] for _ in queries]
        places = [place for place, query in enumerate(queries) if query.strip()]
        if places:
            texts = [queries[place] for place in places]
            ranked = self.ranker.rank(texts, min(k, len(self.store)))
            for place, pairs in zip(places, ranked, strict=True):
                hits[place] = [Hit(*self.store[row], score) for row, score in pairs]
        return hits


def words(text: str) -> list[str]:
    """Words as BM25 sees them: runs of letters and digits, in any case and any of Unicode's equal
    spellings. Scripts without spaces between words are not divided: a dense index suits these."""
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


class Bm25Ranker:
    """BM25 in Lucene's variant (bm25s); every document is scored, so its ranking is exact.

    Only documents that share a word with the query are ranked; English function words count for
    nothing.
    """

    def __init__(self, index: Any):
        self.index = index

    @classmethod
    def build(cls, store: Store, k1: float = K1, b: float = B) -> "Bm25Ranker":
        """The index of a store, in memory; texts are read one at a time."""
        import bm25s
        from bm25s.tokenization import Tokenized, Tokenizer

        tokenizer = Tokenizer(lower=False, splitter=words, stopwords="en")
        texts = (passage.contents for passage in store)
        ids = list(tokenizer.tokenize(texts, update_vocab=True, return_as="stream"))  # type: ignore[arg-type]
        index = bm25s.BM25(k1=k1, b=b, method="lucene")
        index.index(Tokenized(ids, tokenizer.get_vocab_dict()), show_progress=False)
        return cls(index)

    def rank(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """Rows and scores, best first, equal scores by row."""
        return [self._rank(query, k) for query in queries]

    def _rank(self, query: str, k: int) -> list[tuple[int, float]]:
        known = self.index.get_tokens_ids(words(query))
        if not known:
            return []
        scores = self.index.get_scores_from_ids(known)
        rows = np.flatnonzero(scores)
        if len(rows) > k:
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        best = rows[np.lexsort((rows, -scores[rows]))][:k]
        return [(int(row), float(scores[row])) for row in best]


def make_retriever(
    kind: str,
    corpus: Corpus,
    cache_dir: str | os.PathLike[str] | None = None,
    encoder: Any = "minilm",
    k1: float = K1,
    b: float = B,
) -> LocalRetriever:
    """A retriever over a corpus.

    Args:
        kind: one of `KINDS`.
        corpus: a .jsonl or .parquet file, a `datasets` folder, or documents in memory (see
            `spnb.corpus.store`).
        cache_dir: where indexes and embeddings are kept, relative to the project root; None keeps
            them in memory.
        encoder: for dense kinds, "minilm" (its weights are in an installed package), the folder or
            hub id of a sentence-transformers model, or an `Encoder` (prefixes, precision, device).
        k1, b: for bm25, term saturation (0 or more) and length normalisation (0 to 1).

    Raises:
        ValueError: unknown kind, k1 or b out of range, no such corpus or encoder, or a corpus too
            small for the index.
    """
    if kind not in KINDS:
        raise ValueError(f"kind of retriever is {kind!r}; allowed: {', '.join(KINDS)}")
    if k1 < 0 or not 0 <= b <= 1:
        raise ValueError(f"k1 and b are {k1!r} and {b!r}; allowed: k1 of 0 or more, b from 0 to 1")
    store = open_store(corpus)
    folder = None if cache_dir is None else resolve(cache_dir)
    if kind != "bm25":
        from spnb.corpus.dense import dense_ranker

        return LocalRetriever(store, dense_ranker(kind, store, folder, encoder))
    if folder is None:
        return LocalRetriever(store, Bm25Ranker.build(store, k1, b))
    import bm25s

    def build(part: Path) -> None:
        Bm25Ranker.build(store, k1, b).index.save(part, show_progress=False)

    name = index_name("bm25", store.key, str(float(k1)), str(float(b)))
    index = bm25s.BM25.load(built_once(folder, name, build), mmap=True, show_progress=False)
    return LocalRetriever(store, Bm25Ranker(index))
