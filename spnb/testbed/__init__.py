"""The generated world of documents, its oracle and suites, and the policies that ship with spnb."""

from pathlib import Path

WEIGHTS = Path(__file__).resolve().parent / "weights"


def embedded_path(name: str) -> Path:
    """The folder of a shipped policy.

    Raises:
        ValueError: there is none of that name.
    """
    known = sorted(path.parent.name for path in WEIGHTS.glob("*/config.json"))
    if name not in known:
        raise ValueError(f"embedded policy is {name!r}; allowed: {', '.join(known)}")
    return WEIGHTS / name
