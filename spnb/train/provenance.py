"""Where a number comes from: the commit of the code and the versions of what it stands on."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

from spnb.core.paths import ROOT

PACKAGES = ("spnb", "torch", "transformers", "trl", "numpy", "open_spiel", "textarena")


def versions() -> dict[str, str | None]:
    """Version of Python and of each package that decides numbers; None for one that is not
    installed."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def version(package: str) -> str | None:
    """The installed version of a package, None if it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the code, with "-dirty" where tracked files outside figures/ differ from it.

    None without git, and where the package lies inside a repository of something else.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != ROOT.resolve():
            return None
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!figures")
        return git("rev-parse", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None
