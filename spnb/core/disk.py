"""Files that survive a power cut: what these functions wrote is on the disk when they return; their
digests."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def sync(path: Path, top: Path | None = None) -> None:
    """Puts a file, or a folder with all that is in it, on the disk, and its name and those of the
    folders above it up to `top`."""
    for each in (*path.rglob("*"), path, *_above(path, top)):
        _sync(each)


def move(source: Path, target: Path, top: Path | None = None) -> None:
    """Puts a file or folder on the disk, then gives it another name, then puts that there too, and
    the names of the folders above it up to `top`."""
    sync(source)
    os.replace(source, target)
    for folder in _above(target, top or target.parent):
        _sync(folder)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON; a reader sees the old file or the whole new one."""
    _replace(path, json.dumps(value, indent=1, default=str, allow_nan=False) + "\n")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows as JSON, a line each; a reader sees the old file or the whole new one."""
    _replace(path, "".join(json.dumps(row) + "\n" for row in rows))


def digest(path: Path) -> str:
    """The sha-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """The sha-256 of each file in a folder, by its path there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path) for path in paths}


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    temporary.write_text(text)
    move(temporary, path)


def _above(path: Path, top: Path | None) -> list[Path]:
    return [folder for folder in path.parents if top and folder.is_relative_to(top)]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
