"""The documents that a retriever searches, by row, and the folders that keep what was built of them.

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

Corpus = str | os.PathLike[str] | Sequence[Mapping[str, Any]]
"""A path (.jsonl, .parquet, a folder), or rows (a list, a `datasets.Dataset`)."""


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
    """Passages by row; reading a row that is no document raises ValueError.

    Args:
        rows: documents, or what `JsonlRows` reads.
        where: what a row is called in messages, from its number.

    Raises:
        ValueError: no documents.
    """

    def __init__(self, rows: Sequence[Any], name: str = "", where: Callable[[int], str] | None = None):
        if not len(rows):
            raise ValueError(f"corpus {name}has 0 documents; allowed: 1 or more")
        self._rows = rows
        self._where = where or (lambda row: f"document {row}")

    @cached_property
    def key(self) -> str:
        """Hex digest of the content: of a file's bytes, else of ids, titles and texts in order."""
        if isinstance(self._rows, JsonlRows):
            return self._rows.key
        digest = hashlib.sha256()
        for passage in self:
            digest.update(json.dumps(passage).encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Passage]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> Passage:
        return _passage(self._rows[row], self._where(row))
