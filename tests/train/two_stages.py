"""Two stages of one step each, the second from the weights that the first one saved; writes how far
each moved them, in learning rates a weight, and what pieces of a gradient are added in, as JSON.

python [-m torch.distributed.run ...] tests/train/two_stages.py FOLDER FILE
"""

import json
import sys
from pathlib import Path

from safetensors.torch import load_file
from test_trainer import run_params
from two_processes import Shared

from spnb.lab import embedded_path
from spnb.train.policies import load_policy, save_policy
from spnb.train.trainer import Hooks, make_trainer

RATE = 1e-6


def weights_of(source):
    """A saved model's."""
    return load_file(source / "model.safetensors")


if __name__ == "__main__":
    folder, file = Path(sys.argv[1]), Path(sys.argv[2])
    params = run_params(1, {"learning_rate": RATE})
    source, moved = embedded_path("games"), []
    before = weights_of(source)
    for stage in ("first", "second"):
        policy = load_policy(str(source), params)
        hooks = Hooks(on_step=lambda row, samples: None)
        trainer = make_trainer(params, policy, Shared([[]], params), {}, hooks, folder)
        trainer.train()
        source = folder / stage
        save_policy(trainer, source)
        trainer.accelerator.wait_for_everyone()
        now = weights_of(source)
        total = sum((now[name] - before[name]).abs().sum().item() for name in before)
        moved.append(total / RATE / sum(value.numel() for value in before.values()))
    if trainer.accelerator.is_main_process:
        zero = getattr(trainer.model_wrapped, "optimizer", None)
        added = str(getattr(zero, "gradient_accumulation_dtype", None))
        file.write_text(json.dumps({"moved": moved, "gradients added in": added}))
