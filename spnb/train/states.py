"""What a checkpoint has beside weights, as safetensors: optimizer, schedule and random states.

The trainer would write them with torch.save, which pickles. DeepSpeed writes files of its own.
"""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from spnb.core.errors import OneLine

OPTIMIZER = "optimizer.safetensors"
RANDOM = "random-{}.safetensors"
"""Of each process."""


def save_state(path: Path, state: Any) -> None:
    """Writes nested dicts, lists and tuples of numbers, texts, tensors and arrays."""
    tensors: dict[str, torch.Tensor] = {}
    outline = json.dumps(_outlined(state, tensors))
    save_file(tensors, path, {"outline": outline})


def load_state(path: Path) -> Any:
    """What `save_state` wrote, on the CPU.

    Raises:
        SafetensorError: the file is none, or cut off.
        ValueError, KeyError: it has no outline, or lacks a tensor of it.
    """
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _restored(json.loads((file.metadata() or {})["outline"]), tensors)


def _outlined(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """JSON in which a kind stands before what JSON has no form for; tensors are put aside."""
    if isinstance(value, torch.Tensor | np.ndarray):
        name = str(len(tensors))
        tensors[name] = torch.as_tensor(value).detach().cpu().clone().contiguous()
        return ["tensor" if isinstance(value, torch.Tensor) else "array", name]
    if isinstance(value, dict):
        items = [[_outlined(each, tensors) for each in item] for item in value.items()]
        return ["dict", items]
    if isinstance(value, list | tuple):
        inner = [_outlined(each, tensors) for each in value]
        return ["tuple" if isinstance(value, tuple) else "list", inner]
    return value


def _restored(outline: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(outline, list):
        return outline
    kind, inner = outline
    if kind in ("tensor", "array"):
        return tensors[inner] if kind == "tensor" else tensors[inner].numpy()
    if kind == "dict":
        return {_restored(key, tensors): _restored(value, tensors) for key, value in inner}
    values = [_restored(each, tensors) for each in inner]
    return tuple(values) if kind == "tuple" else values


def unreadable(checkpoint: Path, error: Exception) -> str:
    """What of a checkpoint cannot be read, and what to do; "" where the error is of no file and of
    no state."""
    advice = f"delete {checkpoint} to go on from the one before it"
    for path in sorted(checkpoint.parents[1].glob(f"*/{checkpoint.name}/*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError as broken:
            return f"{path} cannot be read ({broken}); {advice}"
    said = (OneLine, torch.OutOfMemoryError)
    odd = isinstance(error, (RuntimeError, KeyError)) and not isinstance(error, said)
    return f"{checkpoint} cannot be read ({str(error).partition(chr(10))[0]}); {advice}" * odd


class StatesMixin:
    """Mixed in over a trainer of transformers."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.is_deepspeed_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
        elif self.args.should_save:
            parts = (self.optimizer, self.lr_scheduler)
            save_state(Path(output_dir) / OPTIMIZER, [each.state_dict() for each in parts])

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # TRL's entropy controller too
        if self.is_deepspeed_enabled or checkpoint is None:
            return
        parts = (self.optimizer, self.lr_scheduler)
        for part, state in zip(parts, load_state(Path(checkpoint) / OPTIMIZER), strict=True):
            part.load_state_dict(state)

    def _save_rng_state(self, output_dir: str) -> None:
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)  # process 0 may come later
        cards = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        states = [random.getstate(), np.random.get_state(), torch.get_rng_state(), cards]
        save_state(folder / RANDOM.format(self.args.process_index), states)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        path = Path(checkpoint) / RANDOM.format(self.args.process_index)
        of_python, of_numpy, of_torch, cards = load_state(path)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        for card, state in enumerate(cards[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, card)
