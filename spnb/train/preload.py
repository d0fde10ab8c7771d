"""What every run imports, imported once by the server that forks runs (`spnb.train.server`)."""

import gc
import os
import signal
from contextlib import suppress
from importlib import import_module

from spnb.core.params import papers
from spnb.train.server import ENVIRONMENT

os.environ |= ENVIRONMENT
# torch looks for a GPU without starting CUDA, which no fork survives
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
ours = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's to answer
gc.disable()  # modules are no garbage: to look at them again and again takes a sixth of this time
for module in (
    "trl.trainer.grpo_trainer",
    "spnb.train.run",
    "spnb.lab.decoder",  # and Qwen3's model with it
    *(f"spnb.methods.{paper}" for paper in papers()),
):
    with suppress(Exception):  # a method that does not import stops its own runs alone
        import_module(module)
signal.signal(signal.SIGINT, ours)
gc.enable()
gc.freeze()  # no child looks at what it shares with the server
