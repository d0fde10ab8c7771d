"""Which documents a corpus keeps: quality, contamination with benchmarks, exact and near
duplicates.

A text is seen as the set of its word n-grams (`shingles`), casefolded; each n-gram is a 64-bit
hash. Both similarity measures work on that set:

- Near duplicates: Jaccard similarity, estimated with MinHash and looked up through LSH (datasketch;
  threshold 0.8, 128 permutations, as SPELL prepares its corpus). The bands are chosen for recall,
  since the similarity of each candidate is then estimated from its whole signature: at the defaults
  a pair at the threshold becomes a candidate with probability .95, and the standard error of the
  estimate there is sqrt(.8 * .2 / 128) = .035.
- Contamination: containment, the share of a benchmark text's n-grams that occur in the document. A
  question is far shorter than the document that contains it, so their Jaccard similarity is near 0
  even when the document holds it word by word; and containment is never below Jaccard similarity,
  so the same threshold removes all that MinHash would.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from spnb.corpus.sources import CorpusError, CorpusSettings, Document

_NO_SPACES = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
WORD = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")
"""A run of letters and digits; a Chinese or Japanese character by itself, since no spaces part
their words."""
_BLOCK = 8192
_RECALL = (0.05, 0.95)
"""LSH's weights of false positives and false negatives: a false positive costs one comparison, no
document."""


def shingles(text: str, n: int) -> Iterator[list[int]]:
    """64-bit hashes of a text's word n-grams, in blocks, so that a long text needs no more memory
    than a short one.

    A text of fewer than n words is one n-gram; one without words is one n-gram of all its
    characters.
    """
    words = (match.group() for match in WORD.finditer(text.casefold()))
    block = list(islice(words, _BLOCK))
    if not block:
        yield [_hash(text.strip())]
        return
    while True:
        starts = range(max(1, len(block) - n + 1))
        yield [_hash(" ".join(block[start : start + n])) for start in starts]
        more = list(islice(words, _BLOCK))
        if not more:
            return
        block = block[len(block) - n + 1 :] + more


def _hash(text: str) -> int:
    """64 bits of a text; the same in every process, which Python's own hash is not."""
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))


def quality_reason(text: str, settings: CorpusSettings) -> str | None:
    """The first quality rule that a text breaks, or None. Limits are in characters, words, and
    shares."""
    if not settings.min_chars <= len(text) <= settings.max_chars:
        return "too short" if len(text) < settings.min_chars else "too long"
    words, length = 0, 0
    for match in WORD.finditer(text):
        words, length = words + 1, length + match.end() - match.start()
    if not settings.min_words <= words <= settings.max_words:
        return "too few words" if words < settings.min_words else "too many words"
    letters, spaces = sum(map(str.isalpha, text)), sum(map(str.isspace, text))
    if letters < settings.min_alphabetic * (len(text) - spaces):
        return "too few letters"
    if length > settings.max_word_length * words:
        return "words too long"
    if text.count("#") + text.count("...") + text.count("…") > settings.max_symbols * words:
        return "too many symbols"
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    if len(lines) - len(set(lines)) > settings.max_repeated_lines * len(lines):
        return "repeated lines"
    return None


class Benchmarks:
    """The n-grams of benchmark texts, each with the texts that have it; memory grows with the
    benchmarks alone.

    Texts of fewer than n words are too common to say anything; they are counted in `short` and not
    looked for.
    """

    def __init__(self, texts: Iterable[str], settings: CorpusSettings):
        self._threshold = settings.contamination_threshold
        self._owners: dict[int, list[int]] = {}
        self._sizes: list[int] = []
        self.short = 0
        digest = xxhash.xxh3_128()
        for text in texts:
            if not isinstance(text, str):
                raise CorpusError(f"a benchmark text is {text!r}; allowed: a string")
            digest.update(text.encode(errors="surrogatepass") + b"\0")
            if (
                sum(1 for _ in islice(WORD.finditer(text), settings.shingle_words))
                < settings.shingle_words
            ):
                self.short += 1
                continue
            grams = set().union(*shingles(text, settings.shingle_words))
            for gram in grams:
                self._owners.setdefault(gram, []).append(len(self._sizes))
            self._sizes.append(len(grams))
        self.digest = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._sizes)

    def shared(self, grams: Iterable[int]) -> set[int]:
        """Those n-grams that a benchmark text has too."""
        return self._owners.keys() & grams if self._owners else set()

    def contaminated(self, shared: set[int]) -> bool:
        """Whether a document that shares these n-grams contains the threshold's share of some
        benchmark text."""
        counts = Counter(owner for gram in shared for owner in self._owners[gram])
        return any(count >= self._threshold * self._sizes[owner] for owner, count in counts.items())


class Duplicates:
    """Ids, texts and signatures of the documents kept so far; of equal documents the first is kept.

    Memory grows with the number of documents, not with their length: 6 to 10 kB a document at the
    defaults (16 bands of 8 values in datasketch's index in memory, a signature of 128 values of 4
    bytes, two hashes), so 10 GB a million.
    """

    def __init__(self, settings: CorpusSettings):
        from datasketch import MinHash, MinHashLSH

        self._settings = settings
        self._empty = MinHash(settings.permutations, scheme="affine32", hashfunc=_low)
        self._lsh = MinHashLSH(settings.duplicate_threshold, settings.permutations, weights=_RECALL)
        self._ids: set[int] = set()
        self._texts: set[bytes] = set()
        self._signatures: list[NDArray[np.uint32]] = []
        self._new: list[tuple[int, bytes]] = []

    def reason(self, document: Document, benchmarks: Benchmarks) -> str | None:
        """Why a document is not kept; None keeps it, and later documents are compared with it
        too."""
        identity = _hash(document["id"])
        text = xxhash.xxh3_128_digest(" ".join(document["text"].split()).encode())
        if identity in self._ids:
            return "repeated id"
        if text in self._texts:
            return "exact duplicate"
        sketch, shared = self._empty.copy(), set()
        for block in shingles(document["text"], self._settings.shingle_words):
            sketch.update_batch(block)
            shared |= benchmarks.shared(block)
        if benchmarks.contaminated(shared):
            return "benchmark contamination"
        if self._near(sketch):
            return "near duplicate"
        self._add(identity, text, sketch)
        self._new.append((identity, text))
        return None

    def _near(self, sketch: Any) -> bool:
        rows = self._lsh.query(sketch)
        equal = (np.mean(self._signatures[row] == sketch.hashvalues) for row in rows)
        return any(similarity >= self._settings.duplicate_threshold for similarity in equal)

    def _add(self, identity: int, text: bytes, sketch: Any) -> None:
        self._ids.add(identity)
        self._texts.add(text)
        self._lsh.insert(len(self._signatures), sketch, check_duplication=False)
        self._signatures.append(sketch.hashvalues)

    def take_new(self) -> dict[str, NDArray[Any]]:
        """What `restore` needs of the documents kept since the last call: `ids`, `texts`,
        `signatures`, [new, ...]."""
        count, self._new, new = len(self._new), [], self._new
        width = self._settings.permutations
        return {
            "ids": np.array([identity for identity, _ in new], np.uint64),
            "texts": np.frombuffer(b"".join(text for _, text in new), np.uint8).reshape(count, 16),
            "signatures": np.array(
                self._signatures[len(self._signatures) - count :], np.uint32
            ).reshape(count, width),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Takes up documents kept by an earlier process, without their texts."""
        for identity, text, signature in zip(
            arrays["ids"], arrays["texts"], arrays["signatures"], strict=True
        ):
            sketch = self._empty.copy()
            sketch.hashvalues = signature.copy()
            self._add(int(identity), text.tobytes(), sketch)


def _low(gram: int) -> int:
    """MinHash's 32 bits of an n-gram's hash."""
    return gram & 0xFFFFFFFF
