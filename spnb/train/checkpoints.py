"""Checkpoints that can be trusted: a manifest beside the files, written last and checked first.

`manifest.json` in a checkpoint holds the sha-256 of each of its files, the number of rows of each
record at that step, and our own state as JSON. A checkpoint without one was cut off while it was
written and is ignored. Nothing here can execute code when it is read.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spnb.core.errors import OneLine

MANIFEST = "manifest.json"
OLD_STATE = "selfplay_state.pt"
FORMAT = 2


class CheckpointError(OneLine, RuntimeError):
    """A checkpoint cannot be used; the message says what to do."""


def write_json(path: Path, value: Any) -> None:
    """Writes JSON so that a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    temporary.write_text(json.dumps(value, indent=1, default=str, allow_nan=False) + "\n")
    os.replace(temporary, path)


def digest(path: Path) -> str:
    """The sha-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, state: Mapping[str, Any]) -> None:
    """Writes the manifest of a complete checkpoint folder, `state` in it."""
    files = {
        p.relative_to(folder).as_posix(): digest(p)
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
    files.pop(MANIFEST, None)
    write_json(folder / MANIFEST, {"format": FORMAT, "files": files, "state": dict(state)})


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint below `folder`.

    Raises:
        CheckpointError: there are only checkpoints of the layout before manifests.
    """
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{MANIFEST}")]
    if not complete and any(folder.parent.glob(f"**/checkpoint-*/{OLD_STATE}")):
        raise CheckpointError(
            f"{folder.parent} holds checkpoints of an older layout, which cannot be resumed; "
            "delete that folder to start the run again"
        )
    return max(complete, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state of a checkpoint, after every file of it was compared with its manifest.

    Raises:
        CheckpointError: a file is missing or changed, or the manifest cannot be read.
    """
    advice = f"delete {checkpoint} to go on from the one before it, or from the start"
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        files, state = manifest["files"], manifest["state"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{checkpoint / MANIFEST} cannot be read ({error}); {advice}"
        ) from None
    for name, expected in files.items():
        if not (checkpoint / name).is_file():
            raise CheckpointError(f"{checkpoint / name} is missing; {advice}")
        if digest(checkpoint / name) != expected:
            raise CheckpointError(f"{checkpoint / name} is not as it was saved; {advice}")
    return state
