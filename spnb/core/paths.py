"""Where the project lies, so that a notebook run from any working directory finds the same
files."""

import os
from pathlib import Path


def _find_root() -> Path:
    """The folder SPNB_HOME names, else the parent of this package; a SPNB_HOME that is no folder is
    refused."""
    home = os.environ.get("SPNB_HOME")
    root = Path(home).expanduser().resolve() if home else Path(__file__).resolve().parent.parent
    if not root.is_dir():
        raise ValueError(
            f"SPNB_HOME is {home!r}; allowed: an existing folder, the one that holds params/ and figures/"
        )
    return root


ROOT: Path = _find_root()
"""The project root, fixed at import: params/, runs/ and figures/ lie under it. SPNB_HOME overrides
it."""


def resolve(path: str | os.PathLike[str]) -> Path:
    """`path` as an absolute path: a relative one is taken from `ROOT`, never from the working
    directory.

    Papermill and JupyterLab start kernels in different folders; through this, `figures` means the
    same folder in both.
    """
    return ROOT / Path(path).expanduser()
