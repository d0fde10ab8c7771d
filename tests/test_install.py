"""`pip install .` elsewhere: a wheel with parameters, reference data and weights, which runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spnb.core.paths import ROOT

BUILT = ("spnb", "params", "requirements", "pyproject.toml", "setup.py", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
OFFLINE = ("--no-deps", "--no-index")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that a wheel of the project is installed in, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    project = folder / "project"
    project.mkdir()
    for name in BUILT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, project / name)
    left = project / "build/lib/spnb/params/old"  # by an earlier build, of a paper that is gone
    left.mkdir(parents=True)
    (left / "variants.yaml").touch()
    make = [*PIP, "wheel", ".", "--no-build-isolation", *OFFLINE, "-w", str(folder)]
    subprocess.run(make, cwd=project, check=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "target"
    subprocess.run([*PIP, "install", str(wheel), *OFFLINE, "-t", str(target)], check=True)
    return target


def spnb(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, of the installed package, in a folder of its own."""
    kept = {key: value for key, value in os.environ.items() if key != "SPNB_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "spnb.cli", *arguments],
        cwd=cwd,
        env=kept | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_an_installed_package_trains_in_the_current_folder(installed, tmp_path):
    ready = spnb(installed, tmp_path, "doctor")
    assert ready.returncode == 0 and "scale cpu: ready" in ready.stdout, ready.stderr
    (tmp_path / "mine.py").write_text("import spnb as sp\nsp.register_reward('hump', abs)\n")
    given = ["--set", "steps=1", "--set", "plugins=mine.py", "--set", "pay=hump"]
    ran = spnb(
        installed, tmp_path, "run", "proposer", "--scale=smoke", "--variant=learning", *given
    )
    assert ran.returncode == 0, ran.stderr
    folder = tmp_path / "runs/proposer/smoke/learning/seed-0"
    assert (folder / "finished.json").is_file() and str(folder) in ran.stdout
    assert '"commit": null' in (folder / "finished.json").read_text()
    wrong = spnb(installed, tmp_path, "run", "proposer", "--scale=laptop")
    assert wrong.returncode == 2 and "allowed: cpu, gpu, paper, smoke" in wrong.stderr


@pytest.mark.slow
def test_a_wheel_has_data_and_the_locks_as_extras(installed):
    for name in ("params/spell/cpu.yaml", "reference/spell/numbers.csv", "lab/weights/games"):
        assert (installed / "spnb" / name).exists(), name
    assert not (installed / "spnb/params/old").exists()
    (metadata,) = installed.glob("spnb-*.dist-info/METADATA")
    text = metadata.read_text()
    for extra in ("cpu", "gpu"):
        pins = (ROOT / f"requirements/{extra}.txt").read_text().split()
        assert text.count(f'; extra == "{extra}"') == len(pins)
        assert f'Requires-Dist: torch==2.13.0; extra == "{extra}"' in text


@pytest.mark.slow
def test_parameter_files_of_the_current_folder_come_first(installed, tmp_path):
    own = tmp_path / "params/spiral"
    shutil.copytree(ROOT / "params/spiral", own)
    (own / "paper.yaml").unlink()
    told = spnb(installed, tmp_path, "run", "spiral", "--scale", "paper")
    assert f"{own}/paper.yaml does not exist; allowed: smoke, cpu, gpu" in told.stderr
    told = spnb(installed, tmp_path, "run", "spell", "--scale", "smoke", "--variant", "x")
    assert "variant of spell is 'x'" in told.stderr
