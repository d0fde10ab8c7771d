"""Weights in training: copies of them, adapters in files, engines with earlier ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from spnb.core.types import Completion, Engine, Request
from spnb.train.config import TrainerError

Weights = dict[str, Any]
"""A model's weights by name, torch tensors."""
SAVED = "adapter_model.safetensors"
"""An adapter's file in its folder, as PEFT has it."""


def trained_weights(model: Any) -> Weights:
    """Copies on the CPU of the weights in training: all of them, or the LoRA adapter."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return {name: weights.to("cpu", copy=True).contiguous() for name, weights in trained.items()}


def put_weights(model: Any, weights: Weights) -> None:
    """Writes weights into a model in place, bit by bit.

    Raises:
        TrainerError: the model lacks some of them.
    """
    if lacking := model.load_state_dict(weights, strict=False).unexpected_keys:
        raise TrainerError(f"the snapshot has weights that the model lacks: {', '.join(lacking)}")


def read_adapter(model: Any, folder: str) -> Weights:
    """A saved LoRA adapter under the names that `model`, which has one of the same shape, gives to
    its own."""
    names = {saved_name(name): name for name in trained_weights(model)}
    return {names[name]: weights for name, weights in load_file(Path(folder) / SAVED).items()}


def write_adapter(model: Any, weights: Weights, folder: Path) -> None:
    """Saves weights of a model's LoRA adapter as PEFT does, for an engine that reads them there."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({saved_name(name): value for name, value in weights.items()}, folder / SAVED)
    model.peft_config["default"].save_pretrained(folder)


def saved_name(name: str) -> str:
    """What PEFT calls a weight of an adapter in a file."""
    return name.replace(".default.", ".")


class SnapshotEngine:
    """Answers with earlier weights of the same model, without a second copy on its device."""

    def __init__(self, engine: Engine, model: Any, weights: Weights):
        self.engine = engine
        self.model = model
        self.weights = weights

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order; afterwards, also on errors, the model is as it was."""
        current = trained_weights(self.model)
        put_weights(self.model, self.weights)
        try:
            return self.engine.generate(requests)
        finally:
            put_weights(self.model, current)


def snapshot_engine(engine: Any, model: Any, name: str, weights: Weights) -> Engine:
    """Answers for the policy of this name with earlier weights of an engine's model: the engine
    itself where it can have several at once."""
    if hasattr(engine, "snapshot"):
        return engine.snapshot(name, weights)
    return SnapshotEngine(engine, model, weights)
