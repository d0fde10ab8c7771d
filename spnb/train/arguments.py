"""Arguments of TRL's trainers: the user's under `grpo:`, and those that a run decides."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from spnb.core.method import Preference
from spnb.train.config import GRPO_ALONE, RunParams
from spnb.train.guards import TrainerError


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def pieces(params: RunParams) -> int:
    """Into how many pieces each process cuts an update."""
    return max(1, math.ceil(params.grpo["gradient_accumulation_steps"] / processes()))


def owned_arguments(params: RunParams, output_dir: Path) -> dict[str, Any]:
    """What a run decides of any trainer; updates are counted by the caller."""
    cuda = torch.cuda.is_available()
    return {
        "output_dir": str(output_dir),
        "gradient_accumulation_steps": pieces(params),
        "bf16": params.dtype == "bfloat16" and cuda,
        "fp16": False,
        "use_cpu": not cuda,
        "gradient_checkpointing": params.gradient_checkpointing,
        "seed": params.seed,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": params.report_to,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }


def grpo_arguments(params: RunParams, steps: int, output_dir: Path) -> dict[str, Any]:
    """Arguments of `trl.GRPOConfig`."""
    grpo = dict(params.grpo)
    if grpo["epsilon_high"] is None:
        grpo["epsilon_high"] = grpo["epsilon"]
    owned = {
        "max_steps": steps * grpo["num_iterations"],
        "save_steps": params.save_every * grpo["num_iterations"],
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "steps_per_generation": pieces(params),
        "max_completion_length": params.max_new_tokens,
        "temperature": params.temperature,
        "scale_rewards": "none",
        "mask_truncated_completions": False,
        "use_vllm": params.engine == "vllm",
        "vllm_gpu_memory_utilization": params.gpu_memory,
        "vllm_max_model_length": params.max_length,
    }
    defaults = {
        "vllm_mode": "colocate",
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 3.0,
        "ddp_timeout": 7200,
    }
    return defaults | grpo | owned_arguments(params, output_dir) | owned


def dpo_arguments(
    params: RunParams, preference: Preference, steps: int, output_dir: Path
) -> dict[str, Any]:
    """Arguments of `trl.DPOConfig`; `preference.batch` pairs make an update.

    Raises:
        TrainerError: the pairs of an update cannot be divided evenly.
    """
    cut = pieces(params) * processes()
    if preference.batch % cut:
        raise TrainerError(
            f"an update of {preference.batch} pairs is cut into {cut} pieces (processes and "
            "grpo.gradient_accumulation_steps); allowed: a number that divides it"
        )
    weight = preference.weight if preference.loss == "longpo" else 1.0
    owned = {
        "max_steps": steps,
        "save_steps": params.save_every,
        "per_device_train_batch_size": preference.batch // cut,
        "loss_type": ["sigmoid"],
        "loss_weights": [weight],
        "beta": preference.beta,
        "max_length": None,
        "precompute_ref_log_probs": True,
        "train_sampling_strategy": "sequential",
    }
    shared = {key: value for key, value in params.grpo.items() if key not in GRPO_ALONE}
    return {"ddp_timeout": 7200} | shared | owned_arguments(params, output_dir) | owned


def check_settings(args: Any, explicit: Mapping[str, Any]) -> None:
    """Raises TrainerError for a setting that is not what was asked for."""
    for key, value in explicit.items():
        given = getattr(args, key)
        if key == "report_to":
            given = (given or ["none"])[0] if isinstance(given, list) else given
        if getattr(given, "value", given) != value:
            name = type(args).__name__
            raise TrainerError(f"{key} became {given!r} in trl.{name}; asked for {value!r}")
