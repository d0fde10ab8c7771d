"""A run that notes which GPU it sees and when, in a real process that starts quickly."""

import os
import sys
import time
from types import ModuleType

from spnb.train import server

REAL = server._run


UNSLOTH = """
import os, sys

before = {*sys.modules} & {"transformers", "peft", "trl"}
print("unsloth", os.environ["UNSLOTH_VLLM_STANDBY"], *before)
FastLanguageModel = None
"""


def noted_run(folder, method, card, place):
    sys.modules["spnb.train.run"] = fake = ModuleType("spnb.train.run")
    fake.main = _note
    sys.path.insert(0, str(folder))  # where there may be an unsloth.py
    REAL(folder, method, card, place)


def _note(folder):
    began = time.time()
    time.sleep(0.3)
    print("noted", os.environ.get("CUDA_VISIBLE_DEVICES", "all"), began, time.time(), flush=True)
