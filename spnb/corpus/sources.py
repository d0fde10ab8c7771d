"""What a corpus is made from: its settings, and a source's rows as documents.

A row that cannot be used is a sentence that says why, never an exception.
"""

import glob
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import datasets
from datasets import Dataset, Features, Value
from pydantic import Field, model_validator

from spnb.core.params import StrictData
from spnb.core.paths import resolve
from spnb.corpus.store import CorpusError

FIELDS = ("id", "title", "text", "metadata")
JSONL = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
DATA = (*JSONL, ".parquet", ".arrow", ".csv", "dataset_dict.json")
Row = dict[str, Any] | str
"""A row, or why it cannot be read."""
Read = Callable[[dict[str, list[Any]], list[int]], list[Row]]
"""A batch of a source and its places in it, as rows."""


class CorpusSettings(StrictData):
    """Everything that decides a corpus, apart from its source, the benchmarks and an own encoder.

    The quality limits are Gopher's document rules (arXiv 2112.11446, appendix A) where these do not
    depend on the language; similarity, permutations and cluster size are SPELL's (2509.23863).
    """

    config: str | None = Field(None, description="configuration of a datasets id")
    split: str | None = Field(None, description="of a datasets source that has several")
    columns: dict[Literal["id", "title", "text", "metadata"], str] = Field(
        {}, description="the source's names of id, title, text and metadata"
    )
    keep: tuple[str, ...] = Field((), description="further columns that metadata takes up")
    suffixes: tuple[str, ...] = Field((".txt", ".md"), description="a text folder's documents")
    limit: int | None = Field(None, ge=1, description="rows to read; None reads all")
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
    contamination_threshold: float = Field(
        0.8, gt=0, le=1, description="share of a benchmark text's n-grams in one document"
    )
    encoder: str = Field("minilm", description="minilm, or a sentence-transformers folder or id")
    embed_chars: int = Field(2000, ge=1, description="characters that are embedded")
    domains: int = Field(16, ge=1, description="clusters of the upper level")
    cluster_size: int = Field(20, ge=1, description="mean documents in a cluster below")
    domain_key: str | None = Field(None, description="metadata key that is the domain instead")
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _bounds(self) -> "CorpusSettings":
        for low, high in (("min_chars", "max_chars"), ("min_words", "max_words")):
            least, most = getattr(self, low), getattr(self, high)
            if least > most:
                raise ValueError(f"{low} is {least}, {high} is {most}; allowed: {low} up to {high}")
        return self


def open_source(source: str, settings: CorpusSettings, cache: Path) -> tuple[Dataset, Read]:
    """A source's rows, and what reads a batch of them.

    A file is JSONL; a folder with data files, or from `save_to_disk`, goes to `datasets`; one with
    text files is a text folder; what is not on disk is a `datasets` id.

    Raises:
        CorpusError: nothing there, or `datasets` cannot load it.
    """
    path = resolve(source)
    files = sorted(file for file in path.rglob("*") if _visible(file, path))
    texts = [file for file in files if file.name.endswith(settings.suffixes)]
    options: dict[str, Any] = {"cache_dir": str(cache), "split": "train"}
    text: dict[str, Any] = {"encoding": "utf-8-sig", "encoding_errors": "replace"}
    text |= {"chunksize": 2**20, "features": Features({"text": Value("string")})}
    read: Read = _read_rows
    if path.is_file():
        if not path.name.endswith(JSONL):
            allowed = f"a folder, or a file named {', '.join(JSONL)}"
            raise CorpusError(f"source is {source!r}; allowed: {allowed}")
        if not path.stat().st_size:
            raise CorpusError(f"source {source!r} gives no usable document: it is empty")
        options |= {"path": "text", "data_files": glob.escape(str(path)), **text}
        read = _read_lines
    elif texts and not any(file.name.endswith(DATA) for file in files):
        names = [glob.escape(str(file)) for file in texts]
        options |= {"path": "text", "data_files": names, "sample_by": "document", **text}
        columns = [settings.columns.get(field, field) for field in FIELDS[:3]]

        def read(batch: dict[str, list[Any]], places: list[int]) -> list[Row]:
            facts = [
                (texts[place].relative_to(path).as_posix(), texts[place].stem) for place in places
            ]
            rows = zip(facts, batch["text"], strict=True)
            return [dict(zip(columns, (*names, text), strict=True)) for names, text in rows]

    else:
        name = str(path) if path.is_dir() else source
        options |= {"path": name, "name": settings.config, "split": settings.split}
    rows = _load(source, path, options, settings)
    if read is _read_rows:
        wanted = [settings.columns.get(field, field) for field in FIELDS]
        if wanted[2] not in rows.column_names:
            allowed = f"{', '.join(rows.column_names)} (set columns)"
            raise CorpusError(f"column for text is {wanted[2]!r}; allowed: {allowed}")
        wanted += settings.keep
        rows = rows.select_columns([name for name in rows.column_names if name in wanted])
    return rows.select(range(min(len(rows), settings.limit or len(rows)))), read


def _visible(file: Path, folder: Path) -> bool:
    return file.is_file() and "/." not in f"/{file.relative_to(folder).as_posix()}"


def _load(source: str, path: Path, options: dict[str, Any], settings: CorpusSettings) -> Dataset:
    """One split of what `datasets` loads."""
    try:
        if any((path / name).is_file() for name in ("dataset_info.json", "dataset_dict.json")):
            loaded = datasets.load_from_disk(str(path))
        else:
            loaded = datasets.load_dataset(**options)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error.__cause__ or error).splitlines() or [""])[0]
        allowed = "a JSONL file, a folder of text files, or an id or folder that datasets loads"
        raise CorpusError(f"source is {source!r}; allowed: {allowed} ({reason})") from None
    if not isinstance(loaded, dict):
        return loaded
    if settings.split not in loaded and (settings.split is not None or len(loaded) > 1):
        raise CorpusError(f"split is {settings.split!r}; allowed: {', '.join(loaded)}")
    return loaded[settings.split or next(iter(loaded))]


def _read_rows(batch: dict[str, list[Any]], _: list[int]) -> list[Row]:
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def _read_lines(batch: dict[str, list[Any]], _: list[int]) -> list[Row]:
    return [_parse(line) for line in batch["text"]]


def _parse(line: str) -> Row:
    if not line.strip():
        return "empty row"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "not UTF-8" if "\ufffd" in line else "not JSON"
    return row if isinstance(row, dict) else "not an object"


def to_document(row: dict[str, Any], number: int, settings: CorpusSettings) -> dict[str, Any] | str:
    """A row in the corpus's schema, metadata as JSON; a row without an id gets its number. Or why
    it is no document."""
    names = (settings.columns.get(field, field) for field in FIELDS)
    identity, title, text, metadata = (row.get(name) for name in names)
    if not isinstance(text, str):
        return "no text"
    if not text.strip():
        return "empty text"
    if not isinstance(metadata or {}, dict):
        return "metadata is no object"
    identity = f"{number:09d}" if identity in (None, "") else str(identity)
    extra = {key: row[key] for key in settings.keep if row.get(key) is not None}
    try:
        notes = json.dumps({**(metadata or {}), **extra}, ensure_ascii=False, default=str)
        values = (identity, str(title or ""), text, notes)
        "".join(values).encode()
    except (TypeError, ValueError, RecursionError) as error:  # or half a surrogate pair, escaped
        return "not UTF-8" if isinstance(error, UnicodeError) else "metadata is no object"
    return "not UTF-8" if "\ufffd" in text else dict(zip(FIELDS, values, strict=True))
