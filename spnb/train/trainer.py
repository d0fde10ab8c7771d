"""Samples in, a GRPO step out: TRL's GRPOTrainer fed by a self-play rollout.

Two methods of TRL are overridden. `_generate_and_score_completions` runs the method's rollout,
hands the rows to TRL through its `rollout_func` and `env_mask` contract, and puts the method's
advantages in the place of TRL's. `_get_per_token_logps_and_entropies` gives TRL's own function rows
of like length together, without their padding. Log-probabilities, every loss type, KL, optimiser,
LoRA and checkpoints stay TRL's.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from safetensors import SafetensorError
from transformers import PrinterCallback

from spnb.core.method import Method
from spnb.core.params import RunParams
from spnb.core.types import Engine, Sample, role_label

STATE_FILE = "selfplay_state.pt"
ROW_DIVIDED_LOSSES = ("grpo", "dr_grpo")
"""Losses that TRL divides by the number of rows, inert ones included; advantages and KL are scaled
up for that."""
LENGTH_GROUPS, GROUP_ROWS = 8, 16
"""Most groups of rows that are run together in an update, and fewest rows in one."""
PRIVATE_NAMES = (
    "_generate_and_score_completions",
    "_get_per_token_logps_and_entropies",
    "_prepare_inputs",
    "_step",
    "_save_checkpoint",
    "_load_optimizer_and_scheduler",
)


class TrainerError(RuntimeError):
    """Training cannot go on, or would silently train something else."""


@dataclass
class Hooks:
    """What a run wants to hear: a metrics row and the samples after each step, and a call before
    each save."""

    on_step: Callable[[dict[str, float], list[Sample]], None]
    on_state: Callable[[], dict[str, Any]] = dict


class SelfPlayMixin:
    """Mixed in over `trl.GRPOTrainer` by `make_trainer`; see the module's docstring."""

    method: Method
    engines: Mapping[str, Engine]
    hooks: Hooks

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        step = self._step // (self.args.steps_per_generation * self.num_iterations)
        samples = self.method.collect(self.engines, step, self.accelerator.process_index)
        rows = self._padded(samples)
        generated = time.perf_counter()
        if "unsloth" in sys.modules:
            _check_rows(samples, self.processing_class.pad_token_id)
        if not self.model.training:
            raise TrainerError(
                "the rollout left the model in eval mode; TRL would take this for an evaluation batch"
            )
        check_engine(
            self.accelerator.unwrap_model(self.model),
            samples,
            self.engine_tolerance,
            self.temperature,
        )
        self._rows = rows
        out = super()._generate_and_score_completions([{"prompt": ""} for _ in rows])
        scale = len(rows) / max(len(samples), 1) if self.loss_type in ROW_DIVIDED_LOSSES else 1.0
        self.beta = self.args.beta * scale
        out["advantages"] = scale * torch.tensor(
            [row.advantage for row in rows], device=out["advantages"].device
        )
        self._record = {
            "samples": samples,
            "kl": _kl_by_role(rows, out),
            "generate": generated - started,
        }
        self._record["started"] = started
        return out

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        ids_BT: torch.Tensor,
        mask_BT: torch.Tensor,
        keep: int,
        batch_size: int | None = None,
        **more,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """As TRL's, rows of like length together without the padding they share: a third to a half
        of the work.

        Same values up to rounding, 0 on a completion's padding, which the loss masks. Where there
        is no gradient, TRL asks for a few rows at a time (`batch_size`); here it is as many as an
        update holds in memory anyway.
        """
        plain = super()._get_per_token_logps_and_entropies
        if "unsloth" in sys.modules or more.get("compute_aux_loss"):
            return plain(model, ids_BT, mask_BT, keep, batch_size=batch_size, **more)
        if batch_size:
            batch_size = max(batch_size, len(ids_BT) // self.args.steps_per_generation)
        groups, found = length_groups(mask_BT), []
        for rows in groups:
            first, last = _span(mask_BT[rows])
            cut = min(ids_BT.shape[1] - last, keep - 1)
            window = slice(first, ids_BT.shape[1] - cut)
            parts = plain(
                model,
                ids_BT[rows, window],
                mask_BT[rows, window],
                keep - cut,
                batch_size=batch_size,
                **more,
            )
            found.append(
                [None if p is None else torch.nn.functional.pad(p, (0, cut)) for p in parts[:2]]
            )
        order = torch.cat(groups).argsort()
        logps_BT, entropies_BT = (
            None if p[0] is None else torch.cat(p)[order] for p in zip(*found, strict=True)
        )
        return logps_BT, entropies_BT, None

    def _padded(self, samples: list[Sample]) -> list[Sample]:
        """Appends inert rows (mask 0, advantage 0): TRL silently drops rows where the count does
        not divide."""
        divisor = math.lcm(self.args.steps_per_generation, self.num_generations)
        count = torch.tensor([max(len(samples), 1)], device=self.accelerator.device)
        count = int(self.accelerator.gather(count).max())
        missing = math.ceil(count / divisor) * divisor - len(samples)
        token = (self.processing_class.eos_token_id,)
        inert = Sample(token, token, (0,), (0.0,), reward=0.0, role="inert", group="inert")
        return samples + [inert] * missing

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Collects TRL's numbers of each optimiser step; a metrics row goes out when the rollout is
        used up."""
        super().log(logs, start_time)
        if "loss" not in logs:
            return
        self._updates.append(
            {key: logs.get(key) for key in ("loss", "grad_norm", "learning_rate", "entropy", "kl")}
        )
        self._updates[-1]["clip_ratio"] = logs.get("clip_ratio/region_mean")
        if len(self._updates) == self.num_iterations:
            row = {"step": self.state.global_step // self.num_iterations, **_means(self._updates)}
            row |= step_metrics(self._record, time.perf_counter()) | self.method.metrics()
            self._updates = []
            self.hooks.on_step(row, self._record["samples"])

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            methods = gather_object(
                [self.method.state_dict()]
            )  # each process has its own, as SPIRAL's actors have
            if not self.accelerator.is_main_process:
                return
            state = {"step": self._step, "methods": methods, "run": self.hooks.on_state()}
            torch.save(state, folder / f"{STATE_FILE}.tmp")
        except (OSError, RuntimeError, SafetensorError) as error:
            raise TrainerError(
                f"checkpoint {folder.name} could not be written ({error}). It will be ignored: free some disk space "
                f"and start the run again, it resumes from the last complete checkpoint in {folder.parent}"
            ) from error
        os.replace(folder / f"{STATE_FILE}.tmp", folder / STATE_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            state = torch.load(
                Path(checkpoint) / STATE_FILE, map_location="cpu", weights_only=False
            )
            self._step = state["step"]
            self.method.load_state_dict(state["methods"][self.accelerator.process_index])


def length_groups(mask_BT: torch.Tensor) -> list[torch.Tensor]:
    """Row indices sorted by length in equal groups; as many on every process, whose rows are
    equally many."""
    order = mask_BT.sum(dim=1).argsort(stable=True)
    return list(order.tensor_split(max(1, min(LENGTH_GROUPS, len(order) // GROUP_ROWS))))


def _span(mask_BT: torch.Tensor) -> tuple[int, int]:
    """First column that any row uses, and the one after the last."""
    used = mask_BT.any(dim=0).nonzero()
    return int(used[0]), int(used[-1]) + 1


def _rollout_columns(prompts: list[str], trainer: Any) -> dict[str, list]:
    """TRL's `rollout_func` contract: one entry per row; `env_mask` is 1 on the tokens that the
    policy sampled."""
    rows = trainer._rows
    return {
        "prompt_ids": [list(row.prompt_ids) for row in rows],
        "completion_ids": [list(row.completion_ids) for row in rows],
        "logprobs": [list(row.logps) for row in rows] if trainer.use_vllm else None,
        "env_mask": [list(row.mask) for row in rows],
    }


def make_trainer(
    params: RunParams,
    model: Any,
    tokenizer: Any,
    method: Method,
    engines: Mapping[str, Engine],
    hooks: Hooks,
    output_dir: Path,
    peft_config: Any = None,
) -> Any:
    """A trainer, its class built at call time because `import unsloth` rebinds `trl.GRPOTrainer`.

    Raises:
        TrainerError: a hyper-parameter was changed on the way (Unsloth's patches have other
            defaults).
    """
    import trl

    if "unsloth" in sys.modules and not any(
        "Unsloth" in base.__name__ for base in trl.GRPOTrainer.__mro__
    ):
        raise TrainerError(
            "unsloth was imported after trl's trainer was taken; import unsloth first"
        )
    os.environ.setdefault(
        "TRL_EXPERIMENTAL_SILENCE", "1"
    )  # rollout_func is marked experimental; pinned and tested here
    explicit = grpo_arguments(params, output_dir)
    cls = type("SelfPlayTrainer", (SelfPlayMixin, trl.GRPOTrainer), {})
    trainer = cls(
        model=model,
        reward_funcs=_no_reward,
        args=trl.GRPOConfig(**explicit),
        train_dataset=Dataset.from_dict({"prompt": [""] * (params.steps * params.micro_batches)}),
        processing_class=tokenizer,
        peft_config=peft_config,
        rollout_func=_rollout_columns,
    )
    for key in (
        "loss_type",
        "epsilon",
        "epsilon_high",
        "optim",
        "mask_truncated_completions",
        "learning_rate",
        "beta",
    ):
        if getattr(trainer.args, key) != explicit[key]:
            raise TrainerError(
                f"{key} became {getattr(trainer.args, key)!r}; asked for {explicit[key]!r}"
            )
    trainer.remove_callback(PrinterCallback)
    trainer.method, trainer.engines, trainer.hooks = method, engines, hooks
    trainer.engine_tolerance = 1e-3 if params.dtype == "float32" else 0.05
    trainer._updates, trainer._rows = [], []
    return trainer


def _no_reward(completions: list, **_: Any) -> list[float]:
    """TRL wants a reward function; rewards here are the method's, and advantages are set by the
    mixin."""
    return [0.0] * len(completions)


def grpo_arguments(params: RunParams, output_dir: Path) -> dict[str, Any]:
    """Every argument of `trl.GRPOConfig` that decides a number, given explicitly: none is left to a
    default."""
    updates = params.steps * params.inner_epochs
    return {
        "output_dir": str(output_dir),
        "max_steps": updates,
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "steps_per_generation": params.micro_batches,
        "gradient_accumulation_steps": params.micro_batches,
        "num_iterations": params.inner_epochs,
        "max_completion_length": params.max_new_tokens,
        "temperature": params.temperature,
        "loss_type": params.loss_type,
        "beta": params.kl_beta,
        "epsilon": params.epsilon,
        "epsilon_high": params.epsilon_high if params.epsilon_high is not None else params.epsilon,
        "scale_rewards": "none",
        "mask_truncated_completions": False,
        "importance_sampling_level": "token",
        "learning_rate": params.learning_rate,
        "lr_scheduler_type": params.lr_schedule,
        "warmup_steps": params.warmup_steps,
        "optim": params.optimizer,
        "adam_beta1": params.adam_betas[0],
        "adam_beta2": params.adam_betas[1],
        "weight_decay": params.weight_decay,
        "max_grad_norm": params.max_grad_norm,
        "bf16": params.dtype == "bfloat16" and torch.cuda.is_available(),
        "fp16": False,
        "use_cpu": not torch.cuda.is_available(),
        "gradient_checkpointing": params.gradient_checkpointing,
        "seed": params.seed,
        "save_strategy": "steps",
        "save_steps": params.save_every * params.inner_epochs,
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": params.report_to,
        "disable_tqdm": True,
        "use_vllm": params.engine == "vllm",
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": params.gpu_memory,
        "vllm_max_model_length": params.max_length,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 3.0,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint: a folder without our state file was cut off while it was
    written."""
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{STATE_FILE}")]
    return max(complete, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def token_logps(model: Any, sample: Sample, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities (T,) in nats of a sample's completion tokens under a model, one plain
    forward pass."""
    ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]], device=model.device)
    with torch.no_grad():
        logits_TV = (
            model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1].float() / temperature
        )
    return logits_TV.log_softmax(-1).gather(1, ids[0, len(sample.prompt_ids) :, None]).squeeze(1)


def check_engine(
    model: Any, samples: Sequence[Sample], tolerance: float, temperature: float = 1.0
) -> None:
    """Compares the engine's log-probabilities with the trainer's on a few samples.

    A LoRA run whose engine generates without the adapter samples the base model and says nothing;
    this shows it.

    Raises:
        TrainerError: they differ by more than `tolerance` nats in the mean over tokens.
    """
    for sample in [s for s in samples if s.logps is not None and any(s.mask)][:4]:
        ours = token_logps(model, sample, temperature)
        pairs = [
            (a, b) for a, b, m in zip(sample.logps, ours.tolist(), sample.mask, strict=True) if m
        ]
        gap = sum(abs(a - b) for a, b in pairs) / len(pairs)
        if gap > tolerance:
            raise TrainerError(
                f"the engine's log-probabilities differ from the trainer's by {gap:.3g} nats a token (allowed: "
                f"{tolerance}): the engine does not generate with the weights in training"
            )


def _check_rows(samples: Sequence[Sample], pad_id: int) -> None:
    """Unsloth rebuilds the completion mask from token ids and would leave a sampled pad token out
    of the loss."""
    for sample in samples:
        if pad_id in sample.completion_ids or pad_id in sample.prompt_ids:
            raise TrainerError(
                f"the pad token ({pad_id}) occurs inside a sample of role {role_label(sample.role)}"
            )


def _kl_by_role(rows: Sequence[Sample], out: Mapping[str, Any]) -> dict[str, float]:
    """Mean KL to the reference policy per role in nats a token (k3 estimator); empty where there is
    no reference."""
    reference = out.get("ref_per_token_logps")
    if reference is None or reference.shape != out["completion_ids"].shape:
        return {}
    sums: dict[str, list[float]] = {}
    for row, ref in zip(rows, reference.tolist(), strict=True):
        for logp, other, mask in zip(row.logps or (), ref, row.mask, strict=False):
            if mask:
                gap = other - logp
                sums.setdefault(role_label(row.role), []).append(math.exp(gap) - gap - 1)
    return {role: sum(values) / len(values) for role, values in sums.items()}


def step_metrics(record: Mapping[str, Any], now: float) -> dict[str, float]:
    """The rollout's numbers, per role and in all; the schema is `spnb.train.runs.METRICS`."""
    samples: list[Sample] = record["samples"]
    seconds = now - record["started"]
    sampled = sum(sum(sample.mask) for sample in samples)
    row = {
        "samples": len(samples),
        "seconds/generate": record["generate"],
        "seconds/update": seconds - record["generate"],
        "seconds/step": seconds,
        "tokens_per_second": sampled / seconds,
    }
    for label in sorted({role_label(sample.role) for sample in samples}):
        members = [sample for sample in samples if role_label(sample.role) == label]
        row |= {f"{key}/{label}": value for key, value in _role_metrics(members).items()}
        if label in record["kl"]:
            row[f"kl/{label}"] = record["kl"][label]
    return row


def _role_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    count = len(samples)
    advantages = torch.tensor([sample.advantage for sample in samples], dtype=torch.float64)
    logps = [lp for s in samples if s.logps for lp, m in zip(s.logps, s.mask, strict=True) if m]
    return {
        "reward": sum(sample.reward for sample in samples) / count,
        "length": sum(sum(sample.mask) for sample in samples) / count,
        "entropy": -sum(logps) / len(logps) if logps else math.nan,
        "advantage_mean": advantages.mean().item(),
        "advantage_std": advantages.std(correction=0).item(),
        "truncated": sum(sample.truncated for sample in samples) / count,
        "invalid": sum(sample.invalid for sample in samples) / count,
    }


def _means(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """Mean of each key over rows; keys without any value are left out."""
    means = {}
    for key in rows[0]:
        values = [row[key] for row in rows if row[key] is not None]
        if values:
            means[key] = sum(values) / len(values)
    return means
