"""Where a policy's weights are, and which they are, or a benchmark's rows: in files, no torch."""

import hashlib
from functools import cache
from pathlib import Path

from spnb.core.errors import OneLine
from spnb.core.paths import embedded_path, resolve

ADAPTER = "adapter_config.json"
ALLOWED = "embedded/<name>, a folder with a causal LM and its tokenizer, or a hub id in reach"


class PolicyError(OneLine, ValueError):
    """The policy cannot be used as it is; the message says why."""


def policy_path(source: str) -> str:
    """Where the weights are: "embedded/<name>" ships with the project, then a folder, or a hub id.

    Raises:
        PolicyError: there is no such embedded policy, no model in the folder, or no such folder.
    """
    if not source.strip():
        raise PolicyError(f"policy is {source!r}; allowed: {ALLOWED}")
    if source.startswith("embedded/"):
        try:
            return str(embedded_path(source.removeprefix("embedded/")))
        except ValueError as error:
            raise PolicyError(f"policy is {source!r}: {error}") from None
    folder = resolve(source)
    if any((folder / name).is_file() for name in ("config.json", ADAPTER)):
        return str(folder)
    if folder.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise PolicyError(
            f"policy is {source!r}, and {folder} holds no model (config.json); allowed: {ALLOWED}"
        )
    return source


def policy_fingerprint(source: str) -> str:
    """12 hex digits over a local policy's files, so that a rebuilt one counts as another.

    For a hub id it is the id. In a folder of your own the template or the architecture may change
    alone, so these files count there too.
    """
    folder = Path(policy_path(source))
    if not folder.is_dir():
        return source
    patterns = ("*.safetensors", "tokenizer*.json", ADAPTER)
    if not source.startswith("embedded/"):
        patterns += ("*.bin", "config.json", "*.jinja")
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def data_fingerprint(source: str) -> str:
    """12 hex digits over a local file, or over all in a folder, so that a changed one counts as
    another."""
    path = resolve(source)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256("".join(_content(*one) for one in stats).encode()).hexdigest()[:12]


@cache
def _content(file: str, changed: int) -> str:
    """A file's digest, taken once for the time it was `changed`."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
