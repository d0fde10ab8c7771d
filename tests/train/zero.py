"""A script or module under DeepSpeed, or FSDP, on a CPU: accelerate takes both for GPUs alone.

python tests/train/zero.py ([bf16:]CONFIG.json | fsdp) (SCRIPT | MODULE) [ARGUMENT ...]
"""

import os
import sys

from accelerate.state import PartialState
from accelerate.utils import DistributedType
from processes import run_script
from transformers import training_args

from spnb.train import config

config_file, script, *arguments = sys.argv[1:]
bf16 = config_file.startswith("bf16:")
config_file = config_file.removeprefix("bf16:")
if config_file == "fsdp":
    os.environ |= {"ACCELERATE_USE_FSDP": "true", "ACCELERATE_TORCH_DEVICE": "cpu"}
    kind = DistributedType.MULTI_GPU
else:
    os.environ |= {"ACCELERATE_USE_DEEPSPEED": "true", "DS_ACCELERATOR": "cpu"}
    os.environ |= {"ACCELERATE_DEEPSPEED_CONFIG_FILE": config_file}
    kind = DistributedType.MULTI_CPU
    from deepspeed.comm import torch as collectives

    collectives.build_shm_op = lambda: None  # else DeepSpeed compiles one, and waits for its lock
owned = config.owned_arguments
config.owned_arguments = lambda *given: owned(*given) | {"use_cpu": False, "bf16": bf16}
training_args.is_torch_bf16_gpu_available = lambda: True
PartialState._prepare_backend = lambda self, *_: ("gloo", kind)
run_script(script, arguments)
