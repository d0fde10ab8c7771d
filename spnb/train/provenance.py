"""Where numbers come from: commit of the code, versions of packages; where exhibits may go."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

from spnb.core.params import ParamError
from spnb.core.paths import CHECKOUT, ROOT, resolve

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


def git(*arguments: str) -> str:
    """What git says in the project's folder; raises OSError or CalledProcessError."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit() -> str | None:
    """The commit of the code, with "-dirty" where tracked files differ from it.

    figures/ and notebooks/ do not count: making exhibits writes there. None without git, where the
    package is installed, and where it lies inside a repository of something else.
    """
    try:
        if not CHECKOUT or Path(git("rev-parse", "--show-toplevel")) != ROOT.resolve():
            return None
        paths = (".", f":!{COMMITTED}", ":!notebooks")
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", *paths)
        return git("rev-parse", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def file_at(commit: str, path: Path) -> str | None:
    """A file's text at a commit; None where git does not know it."""
    try:
        return git("show", f"{commit}:{path.resolve().relative_to(ROOT.resolve()).as_posix()}")
    except (OSError, ValueError, subprocess.CalledProcessError):
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
    folder = resolve(named)
    committed = resolve(COMMITTED).resolve()
    if why_not and committed in (folder.resolve(), *folder.resolve().parents):
        allowed = f"allowed: another folder, or none for {TRIALS}"
        raise ParamError(f"figures is {str(named)!r}, the committed exhibits; {allowed}. {why_not}")
    return folder
