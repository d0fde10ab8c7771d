"""The documents that a retriever searches, by row, and the folders that keep what is built of them.

A corpus is JSONL, parquet, a folder of `datasets` or of `spnb corpus`, or a sequence of documents,
each with `id`, `title`, `text`, or with `id` and `contents`, the columns of Search-R1's Wiki-2018
file. A file is never loaded whole: it is read through a memory map.
"""

import glob
import hashlib
import json
import mmap
import os
import shutil
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from spnb.core.disk import move
from spnb.core.paths import resolve
from spnb.core.search import Hit

LAYOUT = "1"
"""Raised when what an index folder holds changes, so that older folders are built anew."""
CHECKED = 100_000
"""Documents, of which more than some seconds would be needed to read them all before a run."""
SAVED = "state.json"
"""What a folder of `datasets` has."""
BUILT = "corpus.json"
"""What `spnb corpus` writes last."""
Corpus = str | os.PathLike[str] | Sequence[Mapping[str, Any]]
"""A path (.jsonl, .parquet, a folder), or rows (a list, a `datasets.Dataset`)."""


class CorpusError(ValueError):
    """A corpus cannot be built or read; the message names what is wrong and what is allowed."""


def contents_of(document: Hit) -> str:
    """What is indexed: title in quotes, a line break, the text (as in Search-R1's schema)."""
    return f'"{" ".join(document.title.split())}"\n{document.text}'


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of a `contents` string; without a first line in quotes it is all text."""
    first, line_break, rest = contents.partition("\n")
    quoted = line_break and len(first) >= 2 and first[0] == first[-1] == '"'
    return (first[1:-1], rest) if quoted else ("", contents)


class Store:
    """Documents by row, of a list or a `datasets.Dataset`; CorpusError for none, and when a row
    that is no document is read."""

    def __init__(self, rows: Sequence[Any]):
        if not len(rows):
            raise CorpusError("corpus has 0 documents; allowed: 1 or more")
        self._rows = rows

    @cached_property
    def key(self) -> str:
        """Hex digest of ids, titles and texts, in order."""
        digest = hashlib.sha256()
        for hit in self:
            digest.update(json.dumps([hit.id, hit.title, hit.text]).encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Hit]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> Hit:
        return _document(*self.row(row))

    def row(self, row: int) -> tuple[Any, str]:
        """A document with all its fields, and where it stands."""
        return self._rows[row], f"document {row}"

    def check(self) -> None:
        """Reads the first `CHECKED` documents; CorpusError for what is none, or without words."""
        for row in range(min(len(self), CHECKED)):
            if not self[row].text.strip():
                raise CorpusError(f"text of {self.row(row)[1]} is empty; allowed: words")


class JsonlStore(Store):
    """A JSONL file, read once when it is opened and then by offset through a memory map; blank
    lines are no documents, and memory is 16 bytes a document."""

    def __init__(self, path: Path):
        digest = hashlib.sha256()
        places = array("q")
        position = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                digest.update(line)
                places.extend((number, position) if line.strip() else ())
                position += len(line)
            super().__init__(np.array(places).reshape(-1, 2))
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._name = path.name
        self.key = digest.hexdigest()

    def row(self, row: int) -> tuple[Any, str]:
        number, start = self._rows[row].tolist()
        end = self._bytes.find(b"\n", start)
        where = f"line {number} of {self._name}"
        try:
            return json.loads(self._bytes[start : end if end >= 0 else None]), where
        except (ValueError, RecursionError) as error:
            allowed = "allowed: one document a line"
            raise CorpusError(f"{where} is not JSON ({error}); {allowed}") from None


def _document(row: Any, where: str) -> Hit:
    if not isinstance(row, Mapping):
        allowed = "allowed: a document with id, title and text"
        raise CorpusError(f"{where} is {type(row).__name__}; {allowed}")
    if "text" not in row and isinstance(row.get("contents"), str):
        title, text = split_contents(row["contents"])
        row = {"id": row.get("id"), "title": title, "text": text}
    row = row | {"title": row.get("title") or ""}
    for name in ("id", "title", "text"):
        if not isinstance(row.get(name), str):
            raise CorpusError(f"{name} of {where} is {row.get(name)!r}; allowed: a string")
    return Hit(row["id"], readable(row["title"]), readable(row["text"]), None)


def readable(text: str) -> str:
    """A text with half a surrogate pair, which no tokenizer takes, as "?"."""
    return text.encode(errors="replace").decode()


def open_store(corpus: Corpus) -> Store:
    """The store of a corpus; CorpusError as `check_corpus`, or where it has no documents."""
    if not isinstance(corpus, str | os.PathLike):
        return Store(corpus)
    path = check_corpus(corpus)
    if path.suffix == ".jsonl" and path.is_file():
        return JsonlStore(path)
    if path.is_dir():
        return Store(load_corpus(path))
    import datasets

    try:
        return Store(datasets.Dataset.from_parquet(glob.escape(str(path))))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error.__cause__ or error).splitlines() or [""])[0]
        raise CorpusError(f"corpus {path.name} is damaged ({reason}); allowed: parquet") from None


def check_corpus(corpus: str | os.PathLike[str]) -> Path:
    """Where a corpus lies, a relative path taken from the project root.

    Raises:
        CorpusError: there is none, or a file or folder that is no corpus or not finished.
    """
    path = resolve(corpus)
    file = path.suffix in (".jsonl", ".parquet") and path.is_file()
    if not file and not any((path / name).is_file() for name in (SAVED, BUILT)):
        folder = "a folder that `spnb corpus` finished, or of `save_to_disk`"
        raise CorpusError(
            f"corpus is {str(corpus)!r}; allowed: an existing .jsonl or .parquet file, or {folder}"
        )
    return path


def told_by(corpus: str | os.PathLike[str]) -> Path:
    """The file whose content tells one corpus from another: itself, or a folder's summary."""
    path = resolve(corpus)
    return next((path / name for name in (BUILT, SAVED) if (path / name).is_file()), path)


def load_corpus(folder: str | os.PathLike[str]) -> Any:
    """A corpus that `build_corpus` finished, or one of `datasets`, memory-mapped; CorpusError as
    `check_corpus`."""
    import datasets

    path = check_corpus(folder)
    if not (path / BUILT).is_file():
        return datasets.load_from_disk(str(path))
    key = json.loads((path / BUILT).read_text())["key"]
    return datasets.Dataset.from_file(str(path / f"documents-{key}.arrow"))


def index_name(kind: str, *parts: str) -> str:
    """The folder of an index: its kind and a digest of everything that decides its content."""
    digest = hashlib.sha256("\n".join((LAYOUT, kind, *parts)).encode())
    return f"{kind}-{digest.hexdigest()[:16]}"


def built_once(folder: Path, build: Callable[[Path], Any]) -> Path:
    """A folder that `build` fills the first time. It writes into another one, renamed when it
    returns: what has its name is complete. Of several processes one builds and the others wait."""
    unfinished = Path(f"{folder}.part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            move(unfinished, folder)
    return folder
