"""Where a number comes from and where it may go: the commit, versions, the committed exhibits."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

from spnb.core.params import ParamError
from spnb.core.paths import ROOT, resolve

PACKAGES = ("spnb", "torch", "transformers", "trl", "numpy", "open_spiel", "textarena")
COMMITTED = "figures"
"""The folder of committed exhibits, written only with the committed settings and code."""
TRIALS = "runs/figures"
"""Where all other exhibits go."""


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
    """The commit of the code, with "-dirty" where tracked files differ from it.

    figures/ and notebooks/ do not count: making exhibits writes there. None without git, and where
    the package lies inside a repository of something else.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != ROOT.resolve():
            return None
        paths = (".", f":!{COMMITTED}", ":!notebooks")
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", *paths)
        return git("rev-parse", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def unclean() -> str:
    """Why the code is not that of a commit, in a sentence; "" if it is."""
    here = commit()
    if here is None:
        return "The code is in no git repository of its own, so its commit is unknown."
    return f"The code has changes since commit {here[:9]}." if here.endswith("-dirty") else ""


def exhibit_folder(named: str | Path | None, why_not: str) -> Path:
    """Where exhibits go: the named folder; without one figures/, or runs/figures if `why_not`.

    Args:
        why_not: a sentence that says why figures/ may not be written, "" if it may.

    Raises:
        ParamError: figures/ was named and may not be written.
    """
    if named is None:
        return resolve(TRIALS if why_not else COMMITTED)
    folder, committed = resolve(named), resolve(COMMITTED).resolve()
    if why_not and committed in (folder.resolve(), *folder.resolve().parents):
        allowed = f"allowed: another folder, or none for {TRIALS}"
        raise ParamError(f"figures is {str(named)!r}, the committed exhibits; {allowed}. {why_not}")
    return folder
