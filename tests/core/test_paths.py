"""Relative paths mean the project, wherever the process was started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import spnb
from spnb.core import paths

PACKAGE_PARENT = Path(spnb.__file__).resolve().parent.parent


def fresh_python(code: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter, because ROOT is fixed when the module is imported."""
    kept = {key: value for key, value in os.environ.items() if key != "SPNB_HOME"}
    environment = {**kept, "PYTHONPATH": str(PACKAGE_PARENT), **extra}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_relative_paths_start_at_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.resolve("figures/a.png") == paths.ROOT / "figures" / "a.png"
    assert paths.resolve(Path("runs")) == paths.ROOT / "runs"


def test_absolute_paths_and_home_are_kept(tmp_path: Path) -> None:
    assert paths.resolve(tmp_path / "figures") == tmp_path / "figures"
    assert paths.resolve("~/figures") == Path.home() / "figures"


def test_root_is_the_parent_of_the_package_from_any_working_directory(tmp_path: Path) -> None:
    done = fresh_python("from spnb.core.paths import ROOT; print(ROOT)", tmp_path)
    assert done.stdout.strip() == str(PACKAGE_PARENT), done.stderr


def test_spnb_home_overrides_the_root(tmp_path: Path) -> None:
    code = "from spnb.core.paths import resolve; print(resolve('figures'))"
    done = fresh_python(code, tmp_path, SPNB_HOME=str(tmp_path))
    assert done.stdout.strip() == str(tmp_path.resolve() / "figures"), done.stderr


def test_spnb_home_that_is_no_folder_is_refused_by_name(tmp_path: Path) -> None:
    done = fresh_python("import spnb.core.paths", tmp_path, SPNB_HOME=str(tmp_path / "nowhere"))
    assert done.returncode != 0
    assert "SPNB_HOME" in done.stderr and "nowhere" in done.stderr
