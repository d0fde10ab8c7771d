"""What a corpus is made of: its settings, a source's rows as documents, and which of them it keeps.

A text is the set of its word n-grams, casefolded, each a 64-bit hash. Near duplicates have a
Jaccard similarity over the threshold, by MinHash and LSH (128 permutations: a standard error of
.035). Contamination is containment, the share of a benchmark text's n-grams in the document.
"""

import glob
import json
import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import datasets
import httpx
import numpy as np
import regex
import xxhash
from datasets import Dataset, Features, Value
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray
from pydantic import Field

from spnb.core.grading import NO_SPACES
from spnb.core.params import StrictData, validate
from spnb.core.paths import ROOT, packaged_yaml, resolve
from spnb.corpus.store import CorpusError, split_contents

FIELDS = ("id", "title", "text", "metadata")
TEXTS = (".txt", ".md", ".markdown")
DATA = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".json.gz", ".parquet", ".arrow", ".csv")
TABLES = {".parquet": "parquet", ".csv": "csv", ".arrow": "arrow"}
"""Files that `datasets` reads by rows."""
FAILURES = (OSError, ValueError, RuntimeError, httpx.HTTPError)
"""Of a source: what is not there, of another kind, or not in reach."""
Read = Callable[[Mapping[str, Any]], Any]
"""A row of a source, or why there is none."""
LONG = re.compile("[0-9]{19}")
WORD = regex.compile(rf"(?V1)[{NO_SPACES}]|[[\w\p{{M}}\p{{N}}]--[{NO_SPACES}]]+")
"""Letters with their vowel signs and digits, or one Chinese or Japanese character: no spaces part
their words."""


class CorpusSettings(StrictData):
    """Everything that decides a corpus, apart from its source, the benchmarks and an own encoder.

    The quality limits are Gopher's document rules (arXiv 2112.11446, appendix A) where these do not
    depend on the language; similarity, permutations and cluster size are SPELL's (2509.23863).
    """

    config: str | None = Field(None, description="configuration of a datasets id")
    split: str = Field("train", description="of a datasets id or folder")
    limit: int | None = Field(None, ge=1, description="rows that are read, streamed")
    shuffle: int = Field(0, ge=0, description="with a limit: rows that the next one is drawn from")
    columns: dict[Literal["id", "title", "text", "metadata"], str] = Field({}, description="names")
    min_chars: int = Field(100, ge=1)
    max_chars: int = Field(1_000_000, ge=1)
    min_words: int = Field(20, ge=0)
    max_words: int = Field(100_000, ge=1)
    min_alphabetic: float = Field(0.3, ge=0, le=1, description="share of letters, spaces left out")
    max_word_length: float = Field(12, gt=0, description="mean characters a word")
    max_symbols: float = Field(0.1, ge=0, description="hash signs and ellipses a word")
    max_repeated_lines: float = Field(0.3, ge=0, le=1, description="share of repeated lines")
    permutations: int = Field(128, ge=32, le=512)
    shingle_words: int = Field(5, ge=1, le=50, description="words in an n-gram")
    duplicate_threshold: float = Field(0.8, ge=0.5, le=0.95, description="Jaccard similarity")
    contamination_threshold: float = Field(0.8, gt=0, le=1, description="share of a benchmark text")
    encoder: str = Field("minilm", description="minilm, or a sentence-transformers folder or id")
    embed_chars: int = Field(2000, ge=1, description="characters that are embedded")
    domains: int = Field(16, ge=1, description="clusters of the upper level")
    cluster_size: int = Field(20, ge=1, description="mean documents in a cluster below")
    seed: int = Field(0, ge=0)


def recipe(source: str, values: Mapping[str, Any]) -> tuple[str, CorpusSettings]:
    """A source and its settings with changes; a name in recipes.yaml stands for both."""
    settings = {"dataset": source} | packaged_yaml("corpus/recipes.yaml").get(source, {})
    return settings.pop("dataset"), validate(CorpusSettings, settings | values)


def open_source(source: str, settings: CorpusSettings, cache_dir: Path) -> tuple[Dataset, Read]:
    """A source's rows, and what reads one: JSONL (.gz too), a folder of .txt and .md files, or else
    what `datasets` knows; CorpusError where there is nothing that it can load.

    With a limit, rows are streamed and no more of them are read (of a file, its first MB).
    """
    path = resolve(source)
    if path.is_file() and not path.name.lower().endswith(DATA):
        allowed = f"a file of {', '.join(DATA)}, or the folder that has the texts"
        raise CorpusError(f"source is {source!r}; allowed: {allowed}")
    files = [file for file in sorted(path.rglob("*")) if "/." not in str(file)[len(str(path)) :]]
    texts = [file for file in files if file.suffix.lower() in TEXTS and file.is_file()]
    data = [file for file in files if file.name.lower().endswith(DATA)]
    if data and len(texts) > len(data):
        both = f"texts ({texts[0].name}) and data ({data[0].name})"
        raise CorpusError(f"source {source!r} has {both}; allowed: a folder of one or the other")
    if texts and not data:
        if settings.limit and settings.shuffle:
            random.Random(settings.seed).shuffle(texts)
        texts = texts[: settings.limit]
        changed = [file.stat().st_mtime_ns for file in texts]  # part of the fingerprint
        rows = Dataset.from_dict({"file": [*map(str, texts)], "changed": changed})
        return rows, partial(_read_text, path)
    try:
        rows = _load(path, source, settings, cache_dir)
    except (*FAILURES, datasets.exceptions.DatasetsError) as error:
        reason = (str(error.__cause__ or error).splitlines() or [""])[0]
        allowed = f"a JSONL file, a folder of text files or of a downloaded dataset (in {ROOT}, or "
        allowed += "its whole path), an id that datasets loads (gated: log in and accept its terms)"
        raise CorpusError(f"source is {source!r}, {reason}; allowed: {allowed}") from None
    column = settings.columns.get("text", "text")
    lines = path.is_file() and path.suffix.lower() not in TABLES
    if not lines and not {column, "contents"} & {*rows.column_names}:
        allowed = f"{', '.join(rows.column_names)} (set columns)"
        raise CorpusError(f"column for text is {column!r}; allowed: {allowed}")
    return rows, _read_line if lines else lambda row: row


def read_benchmarks(file: str) -> list[str]:
    """The texts of a file, one a line, that no document may contain.

    Raises:
        CorpusError: no such file, no UTF-8, or a line that is JSON: its letters, with the names of
            its fields, stand in no document.
    """
    allowed = "a UTF-8 file of one text a line, questions and answers on lines of their own"
    try:
        lines = resolve(file).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        raise CorpusError(f"benchmarks is {file!r} ({error}); allowed: {allowed}") from None
    for number, line in enumerate(lines, 1):
        if re.fullmatch(r'\s*\{\s*".*\}\s*', line):
            raise CorpusError(f"line {number} of benchmarks {file!r} is JSON; allowed: {allowed}")
    return [line for line in lines if line.strip()]


def _load(path: Path, source: str, settings: CorpusSettings, cache_dir: Path) -> Dataset:
    """A file's lines, or the rows of a table, of a folder or an id of `datasets`."""
    limit = settings.limit
    options = {"cache_dir": str(cache_dir), "streaming": limit is not None}
    if path.is_file():
        options |= {"data_files": glob.escape(str(path)), "split": "train"}
    if path.suffix.lower() in TABLES and path.is_file():
        rows = datasets.load_dataset(TABLES[path.suffix.lower()], **options)
    elif path.is_file():
        options |= {"encoding": "utf-8-sig", "encoding_errors": "replace", "chunksize": 2**20}
        options |= {"features": Features({"text": Value("string")})}
        rows = datasets.load_dataset("text", **options)
    elif (path / "state.json").is_file():
        rows = datasets.load_from_disk(str(path))
        if limit and settings.shuffle:
            rows = rows.shuffle(settings.seed, keep_in_memory=True)
        return rows.take(min(limit, len(rows))) if limit else rows
    else:
        name = str(path) if path.is_dir() else source
        rows = datasets.load_dataset(name, settings.config, split=settings.split, **options)
    if not limit:
        return rows
    if settings.shuffle:
        rows = rows.shuffle(settings.seed, buffer_size=settings.shuffle)
    return Dataset.from_list(list(islice(rows, limit)), features=rows.features)


def _read_text(folder: Path, row: Mapping[str, Any]) -> dict[str, str]:
    file = Path(row["file"])
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    return {"id": file.relative_to(folder).as_posix(), "title": file.stem, "text": text}


def _read_line(row: Mapping[str, Any]) -> Any:
    if not row["text"].strip():
        return "empty row"
    try:
        value = json.loads(row["text"])
        return "not an object" if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return "not UTF-8" if "\ufffd" in row["text"] else "not JSON"


def to_document(row: Any, number: int, columns: Mapping[str, str]) -> dict[str, Any] | str:
    """A row in the corpus's schema, metadata as JSON and its number for an id that it lacks; or why
    it is no document."""
    if not isinstance(row, Mapping):
        return row if isinstance(row, str) else "not an object"
    identity, title, text, metadata = (row.get(columns.get(field, field)) for field in FIELDS)
    if text is None and isinstance(row.get("contents"), str):  # of Search-R1's passages
        title, text = split_contents(row["contents"])
    if not isinstance(text, str) or not text.strip():
        return "empty text" if isinstance(text, str) else "no text"
    if not isinstance(metadata or {}, dict):
        return "metadata is no object"
    identity = f"{number:09d}" if identity in (None, "") else str(identity)
    try:
        notes = json.dumps(metadata or {}, ensure_ascii=False, default=str)
        if LONG.search(notes):
            notes = json.dumps(json.loads(notes, parse_int=_integer), ensure_ascii=False)
        values = (identity, str(title or ""), text, notes)
        "".join(values).encode()
    except (UnicodeError, RecursionError) as error:  # half a surrogate pair, escaped
        return "not UTF-8" if isinstance(error, UnicodeError) else "metadata is no object"
    return "not UTF-8" if "\ufffd" in text else dict(zip(FIELDS, values, strict=True))


def _integer(digits: str) -> int | str:
    """A number that 64 bits hold, or its digits."""
    return int(digits) if abs(int(digits)) < 2**63 else digits


def quality_reason(text: str, settings: CorpusSettings) -> str:
    """The first quality rule that a text breaks, or ""."""
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


def hash64(text: str) -> int:
    """64 bits of a text; the same in every process, which Python's own hash is not."""
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))


def shingles(text: str, n: int) -> list[int]:
    """Hashes of a text's word n-grams; a shorter text is one n-gram, and one without words is one
    of all its characters."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold()) or [text.strip()]
    count = max(1, len(words) - n + 1)
    return [hash64(" ".join(words[place : place + n])) for place in range(count)]


class Filter:
    """Why a document is not kept, asked of one after another: the first of duplicates stays.

    It remembers ids, texts and signatures of the documents kept, about 10 kB each, whatever their
    length, most of it in datasketch's index: 10 GB a million. Benchmark texts of fewer words than
    an n-gram has are counted (`short`), not looked for.
    """

    def __init__(self, settings: CorpusSettings, benchmarks: Sequence[str] = ()):
        self._settings = settings
        size = settings.shingle_words
        long = [text for text in benchmarks if len(WORD.findall(text)) >= size]
        self.short = len(benchmarks) - len(long)
        self.benchmarks = [set(shingles(text, size)) for text in long]
        self._benchmark_grams = set().union(*self.benchmarks)
        permutations = settings.permutations
        hash32 = (0xFFFFFFFF).__and__
        self._empty = MinHash(permutations, scheme="affine32", hashfunc=hash32)
        # Bands for recall: a false candidate costs one comparison of whole signatures.
        threshold = settings.duplicate_threshold
        self._lsh = MinHashLSH(threshold, permutations, weights=(0.05, 0.95))
        self._seen: set[int] = set()
        self._signatures: list[NDArray[np.uint32]] = []

    def reason(self, identity: str, text: str) -> str:
        """The first of quality, contamination and duplicates that speaks against it; "" keeps it,
        and later ones are compared with it too."""
        if broken := quality_reason(text, self._settings):
            return broken
        grams = shingles(text, self._settings.shingle_words)
        if self._is_contaminated(grams):
            return "benchmark contamination"
        plain = " ".join(unicodedata.normalize("NFKC", text).split())
        return self._duplicate_of(identity, plain, grams)

    def _is_contaminated(self, grams: Sequence[int]) -> bool:
        """Whether they hold the threshold's share of some benchmark text's n-grams."""
        shared = self._benchmark_grams.intersection(grams)
        share = self._settings.contamination_threshold
        texts = self.benchmarks if shared else ()
        return any(len(text & shared) >= share * len(text) for text in texts)

    def _duplicate_of(self, identity: str, text: str, grams: Sequence[int]) -> str:
        name = hash64(f"id {identity}")
        digest = hash64(text)
        if name in self._seen or digest in self._seen:
            return "repeated id" if name in self._seen else "exact duplicate"
        signature = self._empty.copy()
        signature.update_batch(grams)
        values = signature.hashvalues
        others = (self._signatures[row] for row in self._lsh.query(signature))
        if any(np.mean(other == values) >= self._settings.duplicate_threshold for other in others):
            return "near duplicate"
        self._seen |= {name, digest}
        self._lsh.insert(len(self._signatures), signature, check_duplication=False)
        self._signatures.append(values)
        return ""
