"""What every run imports, imported once by the server that forks runs (`spnb.train.server`)."""

import gc
import os
from contextlib import suppress
from importlib import import_module

from spnb.core.params import papers
from spnb.train.server import ENVIRONMENT

os.environ |= ENVIRONMENT
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
"""torch looks for a GPU without starting CUDA, which no fork survives."""
for module in (
    "transformers.models.qwen3.modeling_qwen3",
    "trl.trainer.grpo_trainer",
    "spnb.train.run",
    "spnb.lab.decoder",
    *(f"spnb.methods.{paper}" for paper in papers()),
):
    with suppress(Exception):  # a method that does not import stops its own runs alone
        import_module(module)
gc.freeze()  # no child looks at what it shares with the server
