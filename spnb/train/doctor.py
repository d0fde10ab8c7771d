"""What this machine can run: versions, cores, memory, GPU, engines, and what is missing for which
scale."""

import importlib.util
import os
import platform

from spnb.train.provenance import version

PACKAGES = (
    "torch", "transformers", "trl", "peft", "accelerate", "datasets", "numpy", "open_spiel",
    "textarena", "papermill", "jupyterlab", "faiss-cpu", "matplotlib", "vllm", "unsloth",
    "bitsandbytes",
)  # fmt: skip
BASIC = ["torch", "trl", "open_spiel", "textarena", "papermill"]
NEEDS = {
    "smoke": BASIC,
    "cpu": BASIC,
    "gpu": [*BASIC, "unsloth", "vllm", "bitsandbytes"],
    "paper": [*BASIC, "vllm"],
}


def gpus() -> list[str]:
    """Name and memory in GiB of each GPU that torch can use."""
    if version("torch") is None:
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB" for gpu in found]


def missing(scale: str) -> list[str]:
    """What a scale needs and this machine does not have."""
    absent = [package for package in NEEDS[scale] if version(package) is None]
    if scale in ("gpu", "paper") and not gpus():
        absent.append("a GPU that torch can use")
    return absent


def report() -> str:
    """The whole report as text."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [f"python {platform.python_version()} on {platform.platform()}"]
    lines.append(
        f"cores {os.cpu_count()}, memory {memory:.0f} GiB, GPU: {'; '.join(gpus()) or 'none'}"
    )
    lines += [f"  {package:14} {version(package) or 'not installed'}" for package in PACKAGES]
    for engine in ("torch", "vllm"):
        there = importlib.util.find_spec(engine) is not None
        lines.append(f"engine {engine}: {'can run' if there else 'cannot run, not installed'}")
    for scale in NEEDS:
        absent = missing(scale)
        lines.append(f"scale {scale}: {'ready' if not absent else 'missing ' + ', '.join(absent)}")
    return "\n".join(lines)
