"""Which documents a corpus keeps: quality, benchmarks in them, exact and near duplicates.

A text is seen as the set of its word n-grams, casefolded, each a 64-bit hash. Near duplicates have
a Jaccard similarity over the threshold, by MinHash and LSH (datasketch; 0.8 and 128 permutations as
in SPELL: a standard error of .035). Contamination is containment, the share of a benchmark text's
n-grams in the document: a question is far too short for its Jaccard similarity to say anything.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import xxhash
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

_NO_SPACES = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
WORD = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")
"""A run of letters and digits, or one Chinese or Japanese character: no spaces part their words."""
BLOCK = 8192


def hash64(text: str) -> int:
    """64 bits of a text; the same in every process, which Python's own hash is not."""
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))


def shingles(text: str, n: int) -> Iterator[list[int]]:
    """Hashes of a text's word n-grams, in blocks; a shorter text is one n-gram, and one without
    words is one of all its characters."""
    words = WORD.findall(text.casefold()) or [text.strip()]
    count = max(1, len(words) - n + 1)
    for start in range(0, count, BLOCK):
        grams = (" ".join(words[i : i + n]) for i in range(start, min(start + BLOCK, count)))
        yield [hash64(gram) for gram in grams]


def quality_reason(text: str, settings: Any) -> str:
    """The first quality rule of a `CorpusSettings` that a text breaks, or ""."""
    if not settings.min_chars <= len(text) <= settings.max_chars:
        return "too short" if len(text) < settings.min_chars else "too long"
    words = WORD.findall(text)
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    visible = sum(not char.isspace() for char in text)
    symbols = text.count("#") + text.count("...") + text.count("…")
    rules = {
        "too few words": len(words) < settings.min_words,
        "too many words": len(words) > settings.max_words,
        "too few letters": sum(map(str.isalpha, text)) < settings.min_alphabetic * visible,
        "words too long": sum(map(len, words)) > settings.max_word_length * len(words),
        "too many symbols": symbols > settings.max_symbols * len(words),
        "repeated lines": len(lines) - len(set(lines)) > settings.max_repeated_lines * len(lines),
    }
    return next((reason for reason, broken in rules.items() if broken), "")


class Benchmarks:
    """The n-grams of benchmark texts. Texts of fewer than n words are too common to say anything;
    they are counted in `short` and not looked for."""

    def __init__(self, texts: Iterable[str], n: int, threshold: float):
        self.texts = list(texts)
        self.short = 0
        self._threshold = threshold
        self._owners: dict[int, list[int]] = {}
        self._sizes: list[int] = []
        for text in self.texts:
            if len(WORD.findall(text)) < n:
                self.short += 1
                continue
            grams = set().union(*shingles(text, n))
            for gram in grams:
                self._owners.setdefault(gram, []).append(len(self._sizes))
            self._sizes.append(len(grams))

    def __len__(self) -> int:
        return len(self._sizes)

    def shared(self, grams: Iterable[int]) -> set[int]:
        """Those n-grams that a benchmark text has too."""
        return self._owners.keys() & grams if self._owners else set()

    def contaminate(self, shared: set[int]) -> bool:
        """Whether these n-grams are the threshold's share of some benchmark text's."""
        counts = Counter(owner for gram in shared for owner in self._owners[gram])
        return any(count >= self._threshold * self._sizes[owner] for owner, count in counts.items())


@cache
def _empty(permutations: int) -> MinHash:
    return MinHash(permutations, scheme="affine32", hashfunc=(0xFFFFFFFF).__and__)


def sketch(permutations: int, signature: NDArray[np.uint32] | None = None) -> MinHash:
    """A MinHash over 64-bit n-gram hashes, empty or with a signature's 32-bit values."""
    minhash = _empty(permutations).copy()
    minhash.hashvalues = minhash.hashvalues if signature is None else signature
    return minhash


class Duplicates:
    """Ids, texts and signatures of the documents kept so far; of equal ones the first is kept.

    Memory grows with the number of documents, not with their length: about 10 kB each, most of it
    in datasketch's index, so 10 GB a million.
    """

    def __init__(self, permutations: int, threshold: float):
        self._threshold = threshold
        # Bands for recall: a false candidate costs one comparison of whole signatures.
        self._lsh = MinHashLSH(threshold, permutations, weights=(0.05, 0.95))
        self._seen: set[int] = set()
        self._signatures: list[NDArray[np.uint32]] = []

    def reason(self, identity: str, digest: str, signature: Sequence[int]) -> str:
        """Why a document is not kept; "" keeps it, and later ones are compared with it too."""
        name, text = hash64(f"id {identity}"), hash64(digest)
        if name in self._seen or text in self._seen:
            return "repeated id" if name in self._seen else "exact duplicate"
        values = np.asarray(signature, np.uint32)
        candidate = sketch(len(values), values)
        others = (self._signatures[row] for row in self._lsh.query(candidate))
        if any(np.mean(other == values) >= self._threshold for other in others):
            return "near duplicate"
        self._seen |= {name, text}
        self._lsh.insert(len(self._signatures), candidate, check_duplication=False)
        self._signatures.append(values)
        return ""
