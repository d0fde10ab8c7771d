"""The documents that a retriever searches, read one at a time, and the folders that keep what was
built from them.

A corpus is JSONL, parquet, a `datasets` folder or a sequence of documents, each with `id`, `title`,
`text`, or with `id` and `contents`, the columns of Search-R1's Wiki-2018 file. A file is never
loaded whole: JSONL is read by offset through a memory map, parquet and `datasets` folders through
Arrow's.
"""

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from filelock import FileLock

from spnb.core.paths import resolve

Corpus = str | os.PathLike[str] | Sequence[Mapping[str, Any]]
"""A path (.jsonl, .parquet, a folder that `Dataset.save_to_disk` wrote), or rows (a list, a
`datasets.Dataset`)."""


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


class Store(Protocol):
    """Passages by row, 0 to `len(store) - 1`, and a key that differs for every other content."""

    @property
    def key(self) -> str:
        """Hex digest of the content."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Passage: ...


class JsonlStore:
    """A JSONL file, one document a line, read by offset through a memory map; blank lines are no
    documents.

    Opening reads the file once to find its lines and its digest; memory is 8 bytes a document.

    Raises:
        ValueError: no file there, or no document in it. Reading a line that is no document raises
            it too.
    """

    def __init__(self, path: Path):
        if not path.is_file():
            raise ValueError(f"corpus is {str(path)!r}; allowed: an existing .jsonl file")
        self.path = path
        digest, starts, lines, position = hashlib.sha256(), [], [], 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                digest.update(line)
                if line.strip():
                    starts.append(position)
                    lines.append(number)
                position += len(line)
        if not starts:
            raise ValueError(f"corpus {str(path)!r} has 0 documents; allowed: 1 or more")
        self.key = digest.hexdigest()
        self._starts = np.array(starts, dtype=np.int64)
        self._lines = None if lines[-1] == len(lines) else np.array(lines, dtype=np.int64)
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> Passage:
        start = int(self._starts[row])
        end = self._bytes.find(b"\n", start)
        line = self._bytes[start : end if end >= 0 else len(self._bytes)]
        where = (
            f"line {row + 1 if self._lines is None else int(self._lines[row])} of {self.path.name}"
        )
        try:
            return _passage(json.loads(line), where)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{where} is not JSON ({error}); allowed: one document a line"
            ) from None


class RowStore:
    """Documents of a list or a `datasets.Dataset`; the digest is computed when it is first asked
    for.

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
        for passage in passages(self):
            digest.update(json.dumps(passage).encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Passage:
        return _passage(self._rows[row], f"document {row}")


def _passage(row: Any, where: str) -> Passage:
    """A row as a passage, checked."""
    if not isinstance(row, Mapping):
        raise ValueError(
            f"{where} is {type(row).__name__}; allowed: a document with id, title and text"
        )
    if "text" not in row and isinstance(row.get("contents"), str):
        title, text = split_contents(row["contents"])
        row = {"id": row.get("id"), "title": title, "text": text}
    for name in Passage._fields:
        if not isinstance(row.get(name), str):
            raise ValueError(f"{name} of {where} is {row.get(name)!r}; allowed: a string")
    return Passage(row["id"], row["title"], row["text"])


def passages(store: Store) -> Iterator[Passage]:
    """All passages in order, one at a time."""
    return (store[row] for row in range(len(store)))


def open_store(corpus: Corpus) -> Store:
    """The store of a corpus; a relative path is taken from the project root.

    Raises:
        ValueError: no such file, another kind of file, or no documents.
    """
    if not isinstance(corpus, str | os.PathLike):
        return RowStore(corpus)
    path = resolve(corpus)
    if path.is_dir():
        import datasets

        from spnb.corpus.build import load_corpus

        if (path / "corpus.json").is_file():
            return RowStore(load_corpus(path))
        try:
            return RowStore(datasets.load_from_disk(str(path)))
        except FileNotFoundError:
            message = f"corpus is the folder {str(path)!r}; allowed: one that `spnb corpus` or `save_to_disk` wrote"
            raise ValueError(message) from None
    if path.suffix == ".parquet" and path.is_file():
        import datasets

        return RowStore(datasets.Dataset.from_parquet(str(path)))
    if path.suffix != ".jsonl":
        raise ValueError(
            f"corpus is {str(path)!r}; allowed: an existing .jsonl or .parquet file or `datasets` folder"
        )
    return JsonlStore(path)


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
