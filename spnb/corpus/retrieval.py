"""Retrieval: one call for a batch of queries, over BM25 or dense vectors.

    retriever = make_retriever("bm25", documents)  # in memory
    retriever = make_retriever("dense", "wiki.jsonl", cache_dir="runs/index")  # built once
    hits = retriever.search(["Who governs Arnford?"], k=3)[0]

An index's name is made of the corpus's content, the encoder and the kind: a changed corpus gets a
new one.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import regex

from spnb.core.paths import resolve
from spnb.core.search import Hit
from spnb.corpus.store import Corpus, Store, built_once, contents_of, index_name, open_store

WORD = r"[\w\p{M}\p{N}]+"
"""Of BM25: letters with their vowel signs, digits, numbers."""
KINDS = ("bm25", "dense", "flat", "hnsw", "ivfpq")
"""`flat`, `hnsw` and `ivfpq` are dense; `dense` is the one that the corpus's size asks for."""
K1 = 0.9
B = 0.4
"""BM25's term saturation and length normalisation, as in Pyserini and Search-R1's server."""
Rank = Callable[[Sequence[str], int], list[list[tuple[int, float]]]]
"""An index: for each query at most k pairs of row and score, best first."""


def check_request(queries: Sequence[str], k: int) -> None:
    """Raises ValueError unless `queries` is a sequence of strings and `k` a positive integer."""
    if isinstance(queries, str) or not isinstance(queries, Sequence):
        raise ValueError(f"queries is {queries!r}; allowed: a list of strings")
    for place, query in enumerate(queries):
        if not isinstance(query, str):
            raise ValueError(f"queries[{place}] is {query!r}; allowed: a string")
    if type(k) is not int or k < 1:
        raise ValueError(f"k is {k!r}; allowed: an integer, 1 or more")


class LocalRetriever:
    """An index in this process and the documents of its rows; threads may share it."""

    def __init__(self, store: Store, rank: Rank):
        self.store = store
        self.rank = rank

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first; equal scores in the order of the corpus. A
        query without any text has no hits, and `k` may exceed the corpus."""
        check_request(queries, k)
        texts = [query for query in queries if query.strip()]
        ranked = iter(self.rank(texts, min(k, len(self.store))) if texts else ())
        rows = [next(ranked) if query.strip() else [] for query in queries]
        return [[replace(self.store[row], score=score) for row, score in pairs] for pairs in rows]


def words(text: str) -> list[str]:
    """Words as BM25 sees them: `WORD`, in any case and any of Unicode's equal
    spellings. Scripts without spaces between words are not divided: a dense index suits these."""
    return regex.findall(WORD, unicodedata.normalize("NFKC", text).casefold())


def build_bm25(store: Store) -> Any:
    """A bm25s index in Lucene's variant, without English function words."""
    import bm25s
    from bm25s.tokenization import Tokenized, Tokenizer

    tokenizer = Tokenizer(lower=False, splitter=words, stopwords="en")
    texts = map(contents_of, store)
    ids = list(tokenizer.tokenize(texts, update_vocab=True, return_as="stream"))
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(Tokenized(ids, tokenizer.get_vocab_dict()), show_progress=False)
    return index


def rank_bm25(index: Any, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
    """Every document that shares a word with the query is scored, so the ranking is exact."""
    ranked = []
    for query in queries:
        known = index.get_tokens_ids(words(query))
        scores = index.get_scores_from_ids(known) if known else np.zeros(0)
        rows = np.flatnonzero(scores)
        if len(rows) > k:
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        best = rows[np.lexsort((rows, -scores[rows]))][:k]
        ranked.append(list(zip(best.tolist(), scores[best].tolist(), strict=True)))
    return ranked


def make_retriever(
    kind: str, corpus: Corpus, cache_dir: PathLike[str] | str | None = None, encoder: Any = "minilm"
) -> LocalRetriever:
    """A retriever over a corpus.

    Args:
        kind: one of `KINDS`.
        corpus: a .jsonl or .parquet file, a `datasets` folder, or documents in memory.
        cache_dir: where indexes and embeddings are kept; None keeps them in memory.
        encoder: of dense kinds, an `Encoder` or a name for one.

    Raises:
        ValueError: unknown kind, no such corpus or encoder, or a corpus too small for the index.
    """
    if kind not in KINDS:
        raise ValueError(f"kind of retriever is {kind!r}; allowed: {', '.join(KINDS)}")
    store = open_store(corpus)
    folder = None if cache_dir is None else resolve(cache_dir)
    if kind != "bm25":
        from spnb.corpus.dense import dense_index, rank_vectors

        return LocalRetriever(
            store, partial(rank_vectors, *dense_index(kind, store, folder, encoder))
        )
    if folder is None:
        return LocalRetriever(store, partial(rank_bm25, build_bm25(store)))
    import bm25s

    folder /= index_name("bm25", store.key, str(K1), str(B), WORD)
    built_once(folder, lambda part: build_bm25(store).save(part, show_progress=False))
    index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
    return LocalRetriever(store, partial(rank_bm25, index))
