"""What this machine can run: versions, cores, memory, GPUs, and what is missing for which scale.

`look` finds what there is, with the standard library, nvidia-smi or torch; `checks` judges it.
"""

import os
import platform
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from spnb.core.paths import ROOT
from spnb.train.provenance import version

PACKAGES = (
    "torch", "transformers", "trl", "peft", "accelerate", "datasets", "numpy", "open_spiel",
    "textarena", "papermill", "jupyterlab", "faiss-cpu", "matplotlib", "vllm", "unsloth",
    "bitsandbytes", "deepspeed",
)  # fmt: skip
BASIC = ["torch", "trl", "open_spiel", "textarena", "papermill"]
NEEDS = {
    "smoke": BASIC,
    "cpu": BASIC,
    "gpu": [*BASIC, "unsloth", "vllm", "bitsandbytes"],
    "paper": [*BASIC, "vllm", "deepspeed"],
}
DRIVER = 580
"""The first NVIDIA driver of CUDA 13, which the pinned torch is built for."""
CAPABILITY = 8.0
"""The first compute capability with bfloat16 (Ampere)."""
ROOM = {"smoke": (2, 1), "cpu": (4, 2), "gpu": (16, 30), "paper": (128, 300)}
"""GB of memory, and GB of disk for packages, models and checkpoints, by scale."""
CARD = {"gpu": 24, "paper": 80}
"""GB that a scale's parameters are made for; a 24 GB card has a little less."""
GB = 10**9


@dataclass(frozen=True)
class Card:
    """A GPU: its name, GB of memory, compute capability."""

    name: str
    memory: float
    capability: float


@dataclass(frozen=True)
class Machine:
    """What was found; GB of memory and of free disk, paths "" and versions None where there is
    none."""

    cards: tuple[Card, ...] = ()
    driver: str = ""
    usable: bool = False
    compiler: str = ""
    header: str = ""
    memory: float = 0.0
    disk: float = 0.0
    versions: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One line of the report: what was looked at, what was found, what is missing ("": nothing),
    and the scales that it matters for."""

    name: str
    found: str
    missing: str
    scales: tuple[str, ...]

    def __str__(self) -> str:
        state = f"missing: {self.missing}" if self.missing else "ok"
        return f"  {self.name:20} {self.found or 'none':32} {state} ({', '.join(self.scales)})"


def look() -> Machine:
    """What this machine has; of its GPUs those that CUDA_VISIBLE_DEVICES names by number."""
    cards, driver = _by_smi()
    numbers = [int(name) for name in visible_cards() if name.isdigit()]
    cards = tuple(cards[number] for number in numbers if number < len(cards)) or cards
    usable = False
    if version("torch") is not None:
        import torch

        usable = torch.cuda.is_available()
        cards = cards or _by_torch()
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    compilers = (os.environ.get("CC", "gcc"), "clang", "cc")
    return Machine(
        cards=cards,
        driver=driver,
        usable=usable,
        compiler=next(filter(None, map(shutil.which, compilers)), ""),
        header=str(header) if header.is_file() else "",
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB,
        disk=shutil.disk_usage(ROOT).free / GB,
        versions={package: version(package) for package in PACKAGES},
    )


def _by_smi() -> tuple[tuple[Card, ...], str]:
    """The GPUs that nvidia-smi lists, and the driver's version."""
    query = "name,memory.total,compute_cap,driver_version"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        rows = [line.split(", ") for line in done.stdout.splitlines() if line.strip()]
        cards = [Card(name, int(mib) * 2**20 / GB, float(cap)) for name, mib, cap, _ in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return (), ""
    return tuple(cards), rows[0][3] if rows else ""


def _by_torch() -> tuple[Card, ...]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(place) for place in range(count)]
    return tuple(Card(g.name, g.total_memory / GB, g.major + g.minor / 10) for g in found)


def visible_cards() -> list[str]:
    """The GPUs that runs may have, as CUDA_VISIBLE_DEVICES names them: those that it has, else all
    of the machine."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(place) for place in range(len(_by_smi()[0] or _by_torch()))]
    names = [name.strip() for name in named.split(",")]
    return [name for name in takewhile(lambda name: name != "-1", names) if name]


def checks(machine: Machine, scale: str) -> list[Check]:
    """What a scale needs, judged."""
    memory, disk = ROOM[scale]
    only = (scale,)
    lacking = [name for name in NEEDS[scale] if machine.versions.get(name) is None]
    there = f"{len(NEEDS[scale]) - len(lacking)} of {len(NEEDS[scale])}"
    few = f"{memory} GB, large policies and corpora would not fit"
    full = f"{disk} GB for packages, models and checkpoints"
    made = " (`make lab GPU=1` sets them up)" if lacking and scale in CARD else ""
    found = [
        Check("packages", there, ", ".join(lacking) + made, only),
        Check("memory", f"{machine.memory:.0f} GB", few * (machine.memory < memory), only),
        Check("free disk", f"{machine.disk:.0f} GB", full * (machine.disk < disk), only),
    ]
    return found + (_of_cards(machine, scale) if scale in CARD else [])


def _of_cards(machine: Machine, scale: str) -> list[Check]:
    """What a scale with GPUs needs beside that."""
    cards = machine.cards
    only = (scale,)
    shown = f"{len(cards)} x {cards[0].name}, {cards[0].memory:.0f} GB" if cards else ""
    old = int(machine.driver.partition(".")[0] or 0) < DRIVER
    least = min((card.capability for card in cards), default=0.0)
    small = min((card.memory for card in cards), default=0.0) < CARD[scale] * 0.9
    wanted = f"{CARD[scale]} GB a GPU (CUDA_VISIBLE_DEVICES chooses); `spnb plan PAPER --scale "
    wanted += f"{scale} --memory` says what fits"
    no_bf16 = f"bfloat16, which needs {CAPABILITY} (Ampere) or later: these runs compute in it"
    triton = "which Triton needs to build kernels when a run starts"
    lacks_card = "an NVIDIA GPU that torch can use" if not machine.usable else wanted * small
    return [
        Check("NVIDIA driver", machine.driver, f"{DRIVER} or later (CUDA 13)" * old, only),
        Check("GPUs", shown, lacks_card, only),
        Check("compute capability", f"{least}" * bool(cards), no_bf16 * (least < CAPABILITY), only),
        Check("C compiler", machine.compiler, f"gcc, {triton}" * (not machine.compiler), only),
        Check("Python.h", machine.header, f"python3-dev, {triton}" * (not machine.header), only),
    ]


def missing(scale: str, machine: Machine | None = None) -> list[str]:
    """What a scale needs and a machine (this one) does not have."""
    found = checks(machine or look(), scale)
    return [f"{check.name}: {check.missing}" for check in found if check.missing]


def report(machine: Machine | None = None) -> str:
    """The whole report as text; a line that several scales share stands once."""
    machine = machine or look()
    lines = [f"python {platform.python_version()} on {platform.platform()}"]
    lines.append(f"cores {os.cpu_count()}, GPU: {len(machine.cards) or 'none'}")
    lines += [f"  {name:14} {machine.versions.get(name) or 'not installed'}" for name in PACKAGES]
    together: dict[tuple[str, str, str], list[str]] = {}
    for scale in NEEDS:
        for check in checks(machine, scale):
            together.setdefault((check.name, check.found, check.missing), []).append(scale)
    lines += [str(Check(*key, tuple(scales))) for key, scales in together.items()]
    for scale in NEEDS:
        absent = [check.name for check in checks(machine, scale) if check.missing]
        lines.append(f"scale {scale}: {'ready' if not absent else 'missing ' + ', '.join(absent)}")
    return "\n".join(lines)
