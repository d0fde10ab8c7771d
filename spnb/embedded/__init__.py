"""Tiny policies that ship with the project, and how they are made."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def embedded_path(name: str) -> Path:
    """The folder of a shipped policy.

    Raises:
        ValueError: there is none of that name.
    """
    known = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))
    if name not in known:
        raise ValueError(f"embedded policy is {name!r}; allowed: {', '.join(known)}")
    return FOLDER / name
