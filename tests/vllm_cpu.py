"""A real vLLM on a CPU inside a real TRL trainer: what has to be otherwise than on a GPU.

Three changes make TRL's colocate mode run without a GPU, none of them in the engine: vLLM is
started eagerly and in float32, its CPU linear layers keep plain weights, because packed ones cannot
be loaded one by one as TRL does, and its CPU kernel of adapters adds nothing where a request has
none, as the one on a GPU does (as it is, it adds the last slot's beside requests that have one).

python tests/vllm_cpu.py (SCRIPT | MODULE) [ARGUMENT ...]    runs that with these changes
"""

import os
import sys

import torch

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCHDYNAMO_DISABLE": "1",
}
"""Before vLLM is imported."""


def start(**settings):
    """vLLM with settings made for a GPU."""
    import vllm

    return vllm.LLM(**settings | {"enforce_eager": True, "dtype": "float32"})


def changes():
    """What takes the place of what, as arguments of setattr."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu
    from vllm.model_executor.layers import utils

    def keep(layer, remove_weight):
        layer.cpu_linear = torch.nn.functional.linear

    def shrink(inputs, weights, output, slots, scaling=1.0, real=lora_ops.bgmv_shrink):
        """vLLM's first product of adapters in their slots; slot -1 is none."""
        real(inputs * (slots >= 0)[:, None], weights, output, slots, scaling)

    yield utils, "dispatch_cpu_unquantized_gemm", keep
    yield from ((module, "bgmv_shrink", shrink) for module in (lora_ops, punica_cpu))


def change_trl():
    """Makes TRL start vLLM on a CPU, for the rest of this process."""
    os.environ |= ENVIRONMENT
    from trl.generation import vllm_generation

    vllm_generation.LLM = start
    for change in changes():
        setattr(*change)


if __name__ == "__main__":
    from processes import run_script

    change_trl()
    run_script(sys.argv[1], sys.argv[2:])
