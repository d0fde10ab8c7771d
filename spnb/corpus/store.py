"""The documents that a retriever searches, by row, and the folders that keep what is built of them.

A corpus is JSONL, parquet, a folder of `datasets` or of `spnb corpus`, or a sequence of documents,
each with `id`, `title`, `text`, or with `id` and `contents`, the columns of Search-R1's Wiki-2018
file. A file is never loaded whole: it is read through a memory map.
"""

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from spnb.core.paths import resolve

LAYOUT = "1"
"""Raised when what an index folder holds changes, so that older folders are built anew."""
Corpus = str | os.PathLike[str] | Sequence[Mapping[str, Any]]
"""A path (.jsonl, .parquet, a folder), or rows (a list, a `datasets.Dataset`)."""


class CorpusError(ValueError):
    """A corpus cannot be built or read; the message names what is wrong and what is allowed."""


class Passage(NamedTuple):
    """What a retriever knows of one document."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """Title in quotes, a line break, the text: what is indexed, and what Search-R1's schema
        calls `contents`."""
        return f'"{" ".join(self.title.split())}"\n{self.text}'


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of a `contents` string; without a first line in quotes, no title and all of it
    as text."""
    first, line_break, rest = contents.partition("\n")
    if line_break and len(first) >= 2 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


class Store:
    """Passages by row, of a list or a `datasets.Dataset`.

    Raises:
        ValueError: no documents. Reading a row that is no document raises it too.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]):
        if not len(rows):
            raise ValueError("corpus has 0 documents; allowed: 1 or more")
        self._rows = rows

    @cached_property
    def key(self) -> str:
        """Hex digest of ids, titles and texts, in order."""
        digest = hashlib.sha256()
        for passage in self:
            digest.update(json.dumps(passage).encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Passage]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> Passage:
        return _passage(self._rows[row], f"document {row}")


class JsonlStore(Store):
    """A JSONL file, one document a line, read by offset through a memory map; blank lines are no
    documents. Opening reads the file once; memory is 16 bytes a document.

    Raises:
        ValueError: no file there, or no document in it.
    """

    def __init__(self, path: Path):
        if not path.is_file():
            raise ValueError(f"corpus is {str(path)!r}; allowed: an existing .jsonl file")
        self._name = path.name
        digest, places, position = hashlib.sha256(), [], 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                digest.update(line)
                if line.strip():
                    places.append((number, position))
                position += len(line)
            if not places:
                raise ValueError(f"corpus {str(path)!r} has 0 documents; allowed: 1 or more")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._places = np.array(places, dtype=np.int64)
        self.key = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: int) -> Passage:
        number, start = self._places[row].tolist()
        end = self._bytes.find(b"\n", start)
        line = self._bytes[start : end if end >= 0 else len(self._bytes)]
        where = f"line {number} of {self._name}"
        try:
            document = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            allowed = "allowed: one document a line"
            raise ValueError(f"{where} is not JSON ({error}); {allowed}") from None
        return _passage(document, where)


def _passage(row: Any, where: str) -> Passage:
    """A row as a passage, checked."""
    if not isinstance(row, Mapping):
        allowed = "allowed: a document with id, title and text"
        raise ValueError(f"{where} is {type(row).__name__}; {allowed}")
    if "text" not in row and isinstance(row.get("contents"), str):
        title, text = split_contents(row["contents"])
        row = {"id": row.get("id"), "title": title, "text": text}
    for name in Passage._fields:
        if not isinstance(row.get(name), str):
            raise ValueError(f"{name} of {where} is {row.get(name)!r}; allowed: a string")
    return Passage(row["id"], row["title"], row["text"])


def open_store(corpus: Corpus) -> Store:
    """The store of a corpus; a relative path is taken from the project root.

    Raises:
        ValueError: no such file, another kind of file, or no documents.
    """
    if not isinstance(corpus, str | os.PathLike):
        return Store(corpus)
    path = resolve(corpus)
    if path.suffix == ".jsonl":
        return JsonlStore(path)
    import datasets

    if (path / "corpus.json").is_file():
        return Store(load_corpus(path))
    if (path / "state.json").is_file():
        return Store(datasets.load_from_disk(str(path)))
    if path.suffix == ".parquet" and path.is_file():
        return Store(datasets.Dataset.from_parquet(str(path)))
    allowed = "an existing .jsonl or .parquet file, or a folder of `spnb corpus` or `save_to_disk`"
    raise ValueError(f"corpus is {str(path)!r}; allowed: {allowed}")


def load_corpus(folder: str | os.PathLike[str]) -> Any:
    """A corpus that `spnb.corpus.build` finished, as a memory-mapped `datasets.Dataset`.

    Raises:
        CorpusError: no finished corpus there.
    """
    from datasets import Dataset

    report = resolve(folder) / "corpus.json"
    if not report.is_file():
        allowed = "one that build_corpus wrote"
        raise CorpusError(f"folder {str(folder)!r} holds no finished corpus; allowed: {allowed}")
    key = json.loads(report.read_text())["key"]
    return Dataset.from_file(str(report.with_name(f"documents-{key}.arrow")))


def index_name(kind: str, *parts: str) -> str:
    """The folder of an index: its kind and a digest of everything that decides its content."""
    digest = hashlib.sha256("\n".join((LAYOUT, kind, *parts)).encode())
    return f"{kind}-{digest.hexdigest()[:16]}"


def built_once(cache_dir: Path, name: str, build: Callable[[Path], None]) -> Path:
    """The folder `cache_dir/name`, which `build` fills the first time.

    `build` writes into another folder, renamed when it returns: what has its name is complete. Of
    several processes one builds and the others wait.
    """
    folder, unfinished = cache_dir / name, cache_dir / f"{name}.part"
    cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir / f"{name}.lock"):
        if not folder.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            os.replace(unfinished, folder)
    return folder
