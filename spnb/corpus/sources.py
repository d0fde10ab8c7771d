"""What a corpus is made from: its settings, the source's rows one at a time, and a row as a
document.

A source is a JSONL file, a folder of text files, or a `datasets` id or folder. Each is read from a
position (a byte, a file, a row), so that a build that was stopped goes on where its last finished
shard ends. A row that cannot be used is a named `Reject`, never an exception.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spnb.core.paths import resolve

Document = dict[str, Any]
"""`id`, `title`, `text` (str) and `metadata` (dict)."""
FIELDS = ("id", "title", "text", "metadata")
JSONL = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
DATA = (*JSONL, ".parquet", ".arrow", ".csv")
SAVED = ("dataset_info.json", "dataset_dict.json")
"""Files that mark a folder written by `save_to_disk`."""


class CorpusError(ValueError):
    """A corpus cannot be built or read; the message names what is wrong and what is allowed."""


class CorpusSettings(BaseModel):
    """Everything that decides a corpus, apart from its source, the benchmarks and an own encoder.

    The quality limits follow Gopher's document rules (arXiv 2112.11446, appendix A) where they do
    not depend on the language; the similarity threshold, the permutations and the mean cluster size
    are SPELL's (arXiv 2509.23863).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["auto", "jsonl", "text", "datasets"] = Field(
        "auto", description="how the source is read"
    )
    config: str | None = Field(None, description="configuration of a datasets id")
    split: str | None = Field(
        None, description="split of a datasets source; needed where it has several"
    )
    streaming: bool = Field(
        False, description="read a datasets id from the network without storing it"
    )
    columns: dict[Literal["id", "title", "text", "metadata"], str] = Field(
        {}, description="the source's names of id, title, text and metadata, where they differ"
    )
    keep: tuple[str, ...] = Field(
        (), description="further columns of the source that metadata takes up"
    )
    suffixes: tuple[str, ...] = Field(
        (".txt", ".md"), description="which files of a text folder are documents"
    )
    limit: int | None = Field(None, ge=1, description="rows of the source to read; None reads all")
    max_row_megabytes: int = Field(64, ge=1, le=256, description="a larger row or file is not read")

    min_chars: int = Field(100, ge=1)
    max_chars: int = Field(1_000_000, ge=1)
    min_words: int = Field(20, ge=0)
    max_words: int = Field(100_000, ge=1)
    min_alphabetic: float = Field(
        0.3,
        ge=0,
        le=1,
        description="share of letters among characters that are no space; tables of figures have 0.4",
    )
    max_word_length: float = Field(12, gt=0, description="mean characters a word")
    max_symbols: float = Field(0.1, ge=0, description="hash signs and ellipses a word")
    max_repeated_lines: float = Field(
        0.3, ge=0, le=1, description="share of lines that repeat an earlier line"
    )

    permutations: int = Field(128, ge=32, le=512)
    shingle_words: int = Field(5, ge=1, le=50, description="words in an n-gram")
    duplicate_threshold: float = Field(
        0.8, ge=0.5, le=0.95, description="Jaccard similarity of n-gram sets"
    )
    contamination_threshold: float = Field(
        0.8,
        gt=0,
        le=1,
        description="share of a benchmark text's n-grams that a document may not reach",
    )

    encoder: str = Field(
        "minilm", description="minilm, or folder or hub id of a sentence-transformers model"
    )
    embed_chars: int = Field(
        2000, ge=1, description="characters of title and text that are embedded"
    )
    domains: int = Field(16, ge=1, description="clusters of the upper level")
    cluster_size: int = Field(
        20, ge=1, description="mean documents in a cluster of the lower level"
    )
    cluster_sample: int = Field(
        100_000, ge=1, description="documents that the clusters are trained on"
    )
    domain_key: str | None = Field(
        None, description="metadata key that is the domain, instead of the upper level"
    )
    seed: int = Field(0, ge=0)

    shard_documents: int = Field(10_000, ge=1)
    shard_megabytes: int = Field(
        64, ge=1, le=256, description="millions (2**20) of characters in a shard"
    )

    @model_validator(mode="after")
    def _bounds(self) -> "CorpusSettings":
        for low, high in (("min_chars", "max_chars"), ("min_words", "max_words")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{low} is {getattr(self, low)}, {high} is {getattr(self, high)}; allowed: {low} up to {high}"
                )
        return self


@dataclass(frozen=True)
class Reject:
    """A row that cannot be a document, and why."""

    reason: str


Rows = Iterator[tuple[dict[str, Any] | Reject, int]]
"""Rows, each with the position after it."""


@dataclass(frozen=True)
class Source:
    """A corpus source: `identity` changes with its content, `rows` reads from a position, `total`
    is the last one."""

    identity: str
    rows: Callable[[int], Rows]
    total: int | None
    unit: str


def open_source(source: str | Path, settings: CorpusSettings) -> Source:
    """The source that a path or id means. A relative path is taken from the project root.

    With kind `auto` a file is JSONL, a folder with data files or from `save_to_disk` goes to
    `datasets`, one with text files is a text folder, and what does not exist on disk is a
    `datasets` id.

    Raises:
        CorpusError: nothing there, or `datasets` cannot load it.
    """
    path = resolve(source)
    kind = settings.kind
    if kind == "auto":
        kind = (
            "jsonl"
            if path.is_file()
            else _folder_kind(path, settings)
            if path.is_dir()
            else "datasets"
        )
    if kind == "jsonl":
        if not path.is_file() or not path.name.endswith(JSONL):
            raise CorpusError(
                f"source is {str(source)!r}; allowed: a folder, or a file named {', '.join(JSONL)}"
            )
        total = None if path.suffix == ".gz" else path.stat().st_size
        return Source(_state([path]), lambda start: _jsonl(path, start, settings), total, "B")
    if kind == "text":
        if not path.is_dir():
            raise CorpusError(f"source is {str(source)!r}; allowed with kind text: a folder")
        files = _text_files(path, settings)
        identity = f"{path} {_state([path / name for name in files])}"
        return Source(
            identity, lambda start: _texts(path, files, start, settings), len(files), "file"
        )
    return _datasets_source(source, path, settings)


def _folder_kind(path: Path, settings: CorpusSettings) -> Literal["text", "datasets"]:
    files = (file for file in path.rglob("*") if file.is_file() and not _hidden(file, path))
    if any(file.name in SAVED or file.name.endswith(DATA) for file in files) or not _text_files(
        path, settings
    ):
        return "datasets"
    return "text"


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _text_files(folder: Path, settings: CorpusSettings) -> list[str]:
    """Relative names of a text folder's documents, sorted; hidden files and folders are left
    out."""
    found = (
        file
        for file in folder.rglob("*")
        if file.name.endswith(settings.suffixes) and file.is_file()
    )
    return sorted(
        file.relative_to(folder).as_posix() for file in found if not _hidden(file, folder)
    )


def _state(files: list[Path]) -> str:
    """A digest of names, sizes and times of files: their content is not read twice for a key."""
    digest = hashlib.sha256()
    for file in files:
        facts = file.stat()
        digest.update(
            f"{file} {facts.st_size} {facts.st_mtime_ns}\n".encode(errors="surrogateescape")
        )
    return digest.hexdigest()


def _jsonl(path: Path, start: int, settings: CorpusSettings) -> Rows:
    """Rows of a JSONL file from a byte offset; a line over the limit is skipped without being held
    in memory."""
    limit = settings.max_row_megabytes * 2**20
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            file.seek(start)
            while line := file.readline(limit + 1):
                row = (
                    _parse(line, first=file.tell() == len(line))
                    if len(line) <= limit
                    else Reject("row too large")
                )
                while len(line) > limit and not line.endswith(b"\n"):
                    line = file.readline(limit + 1) or b"\n"
                yield row, file.tell()
    except (EOFError, OSError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read to its end: {error}") from None


def _parse(line: bytes, first: bool) -> dict[str, Any] | Reject:
    try:
        text = line.decode("utf-8-sig" if first else "utf-8").strip()
    except UnicodeDecodeError:
        return Reject("not UTF-8")
    if not text:
        return Reject("empty row")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return Reject("not JSON")
    return row if isinstance(row, dict) else Reject("not an object")


def _texts(folder: Path, files: list[str], start: int, settings: CorpusSettings) -> Rows:
    """Files of a text folder from a place in their list: the id is the relative name, the title the
    name's stem."""
    columns = {field: settings.columns.get(field, field) for field in FIELDS}
    for place, name in enumerate(islice(files, start, None), start + 1):
        try:
            large = (folder / name).stat().st_size > settings.max_row_megabytes * 2**20
            text = "" if large else (folder / name).read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            yield Reject("not UTF-8"), place
        except OSError:
            yield Reject("not readable"), place
        else:
            row = {columns["id"]: name, columns["title"]: Path(name).stem, columns["text"]: text}
            yield Reject("row too large") if large else row, place


def _datasets_source(source: str | Path, path: Path, settings: CorpusSettings) -> Source:
    """A `datasets` id or folder. An id is known by its name, configuration and split, a folder by
    its files' state."""
    dataset = _load(source, path, settings)
    columns = dataset.column_names
    text = settings.columns.get("text", "text")
    if columns is not None:
        if text not in columns:
            raise CorpusError(
                f"column for text is {text!r}; allowed: {', '.join(columns)} (set columns)"
            )
        mapped = [settings.columns.get(field, field) for field in FIELDS]
        dataset = dataset.select_columns(
            [name for name in dict.fromkeys((*mapped, *settings.keep)) if name in columns]
        )
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file, path))
    identity = (
        f"{path if path.is_dir() else source} {settings.config} {settings.split} {_state(files)}"
    )
    total = None if settings.streaming else len(dataset)

    def rows(start: int) -> Rows:
        yield from ((row, place) for place, row in enumerate(dataset.skip(start), start + 1))

    return Source(identity, rows, total, "row")


def _load(source: str | Path, path: Path, settings: CorpusSettings) -> Any:
    import datasets

    saved = any((path / name).is_file() for name in SAVED)
    options = {
        "name": settings.config,
        "split": None if saved else settings.split,
        "streaming": settings.streaming,
    }
    try:
        loaded = (
            datasets.load_from_disk(str(path))
            if saved
            else datasets.load_dataset(str(path if path.is_dir() else source), **options)
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [""])[0]
        allowed = "a JSONL file, a folder of text files, or an id or folder that datasets loads"
        raise CorpusError(f"source is {str(source)!r}; allowed: {allowed} ({reason})") from None
    if not isinstance(loaded, dict):
        return loaded
    names = list(loaded)
    if settings.split not in names and (settings.split is not None or len(names) > 1):
        raise CorpusError(f"split is {settings.split!r}; allowed: {', '.join(names)}")
    return loaded[settings.split or names[0]]


def to_document(row: dict[str, Any], number: int, settings: CorpusSettings) -> Document | Reject:
    """A source's row in the corpus's schema; a row without an id gets its number in the source.

    Metadata holds the row's own and the columns named in `keep`; it must be JSON (dates become
    text).
    """
    named = {field: row.get(settings.columns.get(field, field)) for field in FIELDS}
    text, metadata = named["text"], named["metadata"] or {}
    if not isinstance(text, str):
        return Reject("no text")
    if not text.strip():
        return Reject("empty text")
    if not isinstance(metadata, dict):
        return Reject("metadata is no object")
    metadata = {**metadata, **{key: row[key] for key in settings.keep if row.get(key) is not None}}
    identity = f"{number:09d}" if named["id"] in (None, "") else str(named["id"])
    document = {
        "id": identity,
        "title": str(named["title"] or ""),
        "text": text,
        "metadata": metadata,
    }
    try:
        document["metadata"] = json.loads(json.dumps(metadata, ensure_ascii=False, default=str))
        "".join(
            (identity, document["title"], json.dumps(document["metadata"], ensure_ascii=False))
        ).encode()
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, written as an escape
        return Reject("not UTF-8")
    except (TypeError, ValueError, RecursionError):
        return Reject("metadata is no object")
    return document
