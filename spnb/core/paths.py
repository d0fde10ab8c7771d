"""Where the project lies: a notebook run from any working directory finds the same files."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from spnb.core.strict_yaml import own_yaml

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = (PACKAGE.parent / "pyproject.toml").is_file()
"""Whether the package lies in its project; otherwise it was installed by `pip install .`."""


def _find_root() -> Path:
    """The folder that SPNB_HOME names, which must exist, else the project that the package lies in,
    else, where it is installed, the current folder."""
    home = os.environ.get("SPNB_HOME")
    project = PACKAGE.parent if CHECKOUT else Path.cwd()
    root = Path(home).expanduser().resolve() if home else project
    if not root.is_dir():
        raise ValueError(
            f"SPNB_HOME is {home!r}; "
            "allowed: an existing folder, the one that holds params/ and figures/"
        )
    return root


ROOT: Path = _find_root()
"""The project root, fixed at import: params/, runs/ and figures/ lie under it."""
PACKAGED_PARAMS = PACKAGE / "params"
"""The parameter files of an installed package (setup.py puts them there)."""
WEIGHTS = PACKAGE / "lab" / "weights"
"""The policies that ship with the package, a folder each."""


def resolve(path: str | os.PathLike[str]) -> Path:
    """`path` as an absolute path, a relative one taken from `ROOT`.

    Papermill and JupyterLab start kernels in different folders; `figures` is the same in both.
    """
    return ROOT / Path(path).expanduser()


@cache
def packaged_yaml(path: str) -> Any:
    """The content of a YAML file of the package, by its path in it."""
    return own_yaml((PACKAGE / path).read_text(encoding="utf-8"))


def embedded_policies() -> list[str]:
    """The names of the policies that ship with the package."""
    return sorted(path.parent.name for path in WEIGHTS.glob("*/config.json"))


def embedded_path(name: str) -> Path:
    """The folder of a policy that ships with the package.

    Raises:
        ValueError: there is none of that name.
    """
    known = embedded_policies()
    if name not in known:
        raise ValueError(f"embedded policy is {name!r}; allowed: {', '.join(known)}")
    return WEIGHTS / name
