"""A run's parameters: papermill files, variants by name, one validation at the edge.

`params/<paper>/<scale>.yaml` is a papermill parameter file with a run's parameters under `run`;
`params/<paper>/variants.yaml` names the paper's ablations as changes to them. Values from the file,
a variant and the caller are merged in this order (`grpo`, `roles` and `policies` key by key) and
validated once.
"""

import ast
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, create_model, field_validator, model_validator

from spnb.core.method import POLICY, SNAPSHOTS, MethodParams
from spnb.core.params import StrictData, unknown, validate
from spnb.evaluate.benchmarks import Use, read_uses

GRPO_OWNED = {
    "max_steps": "steps",
    "num_train_epochs": "steps",
    "max_completion_length": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "data_seed": "seed",
    "save_steps": "save_every",
    "report_to": "report_to",
    "use_vllm": "engine",
    "bf16": "dtype",
    "fp16": "dtype",
    "gradient_checkpointing": "gradient_checkpointing",
    "vllm_gpu_memory_utilization": "gpu_memory",
    "vllm_max_model_length": "max_length",
    "scale_rewards": "a role's estimator",
    "num_generations": "the method's group size",
    "generation_batch_size": "the method's step quantities",
    "steps_per_generation": "grpo.gradient_accumulation_steps",
    "per_device_train_batch_size": "grpo.gradient_accumulation_steps",
    **dict.fromkeys(
        (
            "output_dir",
            "save_strategy",
            "save_total_limit",
            "eval_strategy",
            "resume_from_checkpoint",
        ),
        "the run's folder",
    ),
    **dict.fromkeys(
        ("logging_steps", "logging_strategy", "disable_tqdm", "use_cpu", "remove_unused_columns"),
        "the trainer",
    ),
    **dict.fromkeys(("reward_weights", "mask_truncated_completions"), "the method"),
}
"""Settings of `trl.GRPOConfig` that the trainer sets, and what decides them instead."""
GRPO_ALONE = frozenset(
    ["beta", "epsilon", "epsilon_high", "importance_sampling_level", "loss_type", "num_iterations"]
)
"""Settings under `grpo:` that a loss over pairs does not have."""


class GRPOParams(StrictData):
    """Settings of `trl.GRPOConfig` under their own names; any other of its names may be added.

    `gradient_accumulation_steps` cuts the rollout of all processes into that many pieces an update.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    learning_rate: float = Field(1e-6, gt=0, lt=10)
    lr_scheduler_type: str = "constant"
    warmup_steps: int = Field(0, ge=0)
    num_iterations: int = Field(1, ge=1, description="optimiser updates on each rollout")
    gradient_accumulation_steps: int = Field(1, ge=1, le=10**4)
    optim: str = "adamw_torch"
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.95, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"] = "dr_grpo"
    importance_sampling_level: Literal["token", "sequence"] = "token"
    epsilon: float = Field(0.2, gt=0)
    epsilon_high: float | None = Field(None, gt=0)
    beta: float = Field(0.0, ge=0, description="KL to the policy that training started from")

    @model_validator(mode="after")
    def _names_of_trl(self) -> "GRPOParams":
        for name, value in (self.model_extra or {}).items():
            if name in GRPO_OWNED:
                owner = GRPO_OWNED[name]
                raise ValueError(f"grpo.{name} is {value!r}; allowed: nothing, {owner} decides it")
            if name not in grpo_names():
                raise ValueError(unknown("parameter", f"grpo.{name}", _allowed_grpo()))
            if isinstance(value, float) and not abs(value) < float("inf"):
                raise ValueError(f"grpo.{name} is {value!r}; allowed: a finite number")
        return self


@cache
def grpo_names(name: str = "GRPO") -> frozenset[str]:
    """The fields of `trl.GRPOConfig` (or DPO's), read from its source: importing it takes
    seconds."""
    names: set[str] = set()
    for package, path, classes in (
        ("trl", f"trainer/{name.lower()}_config.py", {f"{name}Config"}),
        ("trl", "trainer/base_config.py", {"_BaseConfig"}),
        ("transformers", "training_args.py", {"TrainingArguments"}),
    ):
        spec = importlib.util.find_spec(package)
        file = Path(spec.origin).parent / path if spec and spec.origin else None
        if file is None or not file.is_file():
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
                names.update(target.id for target in fields if isinstance(target, ast.Name))
    return frozenset(names)


def _allowed_grpo() -> list[str]:
    return [f"grpo.{name}" for name in sorted(grpo_names() - set(GRPO_OWNED))]


class StageParams(StrictData):
    """One stage of a run: which policy is trained, and for how many steps."""

    policy: str
    steps: int = Field(ge=1)


class RunParams(MethodParams):
    """What every run has beside its method's own parameters.

    Units: `steps`, `save_every`, `eval_every` count training steps (one rollout and its updates);
    `max_new_tokens` and `max_length` count tokens. Step quantities of a method are for all
    processes together. Defaults are those of most papers; a parameter file states what it changes.
    """

    paper: str
    scale: Literal["smoke", "cpu", "gpu", "paper"]
    variant: str

    policy: str = Field(description="embedded/<name>, a folder, or a hub id of a causal LM")
    policies: dict[str, str] = Field({}, description="further policies by name")
    stages: list[StageParams] = Field([], description="policies trained in turn; default: one")
    co_trained: dict[str, dict[str, Any]] = Field(
        {}, description="policies that learn in the same steps, each with its changes to grpo"
    )
    start_from: dict[str, str] = Field({}, description="policy: the variant whose final weights")
    keep_checkpoints: list[float] = Field([], description="shares of the steps, above 0, up to 1")

    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the computation")
    backend: Literal["transformers", "unsloth"] = "transformers"
    engine: Literal["torch", "vllm"] = "torch"
    gpu_memory: float = Field(0.5, gt=0, lt=1, description="share of the GPU that vLLM may take")
    max_length: int = Field(2048, ge=16, description="prompt and completion, Unsloth and vLLM")
    lora_rank: int = Field(0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(32, ge=1)
    gradient_checkpointing: bool = False

    save_every: int = Field(10, ge=1)
    eval_every: int = Field(20, ge=1)
    benchmarks: dict[str, Use] = Field({}, description="published ones: a path, null: the hub")
    report_to: Literal["none", "tensorboard", "wandb", "trackio"] = "none"

    @field_validator("grpo")
    @classmethod
    def _grpo(cls, value: dict[str, Any]) -> dict[str, Any]:
        return validate(GRPOParams, value, "grpo.").model_dump(mode="json")

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _benchmarks(cls, value: Any) -> Any:
        return read_uses(value)

    @field_validator("start_from", mode="before")
    @classmethod
    def _one_name(cls, value: Any) -> Any:
        return {POLICY: value} if isinstance(value, str) else value

    @field_validator("keep_checkpoints")
    @classmethod
    def _shares(cls, value: list[float]) -> list[float]:
        if not all(0 < share <= 1 for share in value):
            raise ValueError("shares of the steps, above 0 and up to 1")
        return value

    @field_validator("seed", "steps", mode="before")
    @classmethod
    def _no_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a truth value is not a number")
        return value

    @model_validator(mode="after")
    def _engines_fit(self) -> "RunParams":
        full = self.lora_rank == 0
        if self.engine == "vllm" and self.dtype == "float32":
            raise ValueError("dtype is float32 with engine vllm; allowed: bfloat16, as vLLM has it")
        if self.backend == "unsloth" and self.engine == "torch":
            raise ValueError(
                "backend is unsloth with engine torch, which would generate garbage (Unsloth's "
                "model returns its own cache); allowed: engine vllm, or backend transformers"
            )
        if self.backend == "unsloth" and full:
            raise ValueError("lora_rank is 0 with backend unsloth; allowed: 1 or more")
        return self

    @model_validator(mode="after")
    def _pairs_fit(self) -> "RunParams":
        if self.preference is None:
            return self
        loss = f"with the loss of {self.preference.loss}"
        for key, value, allowed in (
            ("engine", self.engine, "torch"),
            ("backend", self.backend, "transformers"),
            ("stages", self.stages, []),
            ("co_trained", self.co_trained, {}),
            ("grpo.beta", self.grpo.get("beta", 0.0), 0.0),
            ("grpo.num_iterations", self.grpo.get("num_iterations", 1), 1),
        ):
            if value != allowed:
                raise ValueError(f"{key} is {value!r} {loss}; allowed: {allowed!r}")
        if odd := sorted(set(self.grpo) - GRPO_ALONE - grpo_names("DPO")):
            value = self.grpo[odd[0]]
            raise ValueError(f"grpo.{odd[0]} is {value!r} {loss}; allowed: one of trl.DPOConfig")
        return self

    @model_validator(mode="after")
    def _policies_exist(self) -> "RunParams":
        names = [POLICY, *self.policies]
        if bad := [name for name in self.policies if name in (POLICY, *SNAPSHOTS)]:
            raise ValueError(f"policies names {bad[0]!r}; allowed: a name that is not taken")
        for name, role in self.roles.items():
            if role.policy and role.policy not in (*names, *SNAPSHOTS):
                raise ValueError(unknown(f"roles.{name}.policy", role.policy, (*names, *SNAPSHOTS)))
            if role.policy in SNAPSHOTS and role.trainable:
                snapshot = f"with policy {role.policy}, earlier weights"
                raise ValueError(f"roles.{name}.trainable is True {snapshot}; allowed: false")
        for index, stage in enumerate(self.stages):
            if stage.policy not in names:
                raise ValueError(unknown(f"stages.{index}.policy", stage.policy, names))
        for name, changes in self.co_trained.items():
            if name not in self.policies:
                raise ValueError(unknown("co_trained", name, list(self.policies)))
            validate(GRPOParams, self.grpo | changes, f"co_trained.{name}.")
        if self.co_trained and (self.stages or self.engine == "vllm"):
            other = "stages" if self.stages else "engine vllm"
            raise ValueError(f"co_trained is set with {other}; allowed: one stage, engine torch")
        for name in self.start_from:
            if name not in names:
                raise ValueError(unknown("start_from", name, names))
        if self.stages and sum(stage.steps for stage in self.stages) != self.steps:
            total = sum(stage.steps for stage in self.stages)
            raise ValueError(f"stages have {total} steps together; allowed: steps ({self.steps})")
        if len({stage.policy for stage in self.stages}) > 1 and self.engine == "vllm":
            raise ValueError(
                "stages train several policies with engine vllm; allowed: engine torch"
            )
        return self

    @property
    def all_stages(self) -> list[StageParams]:
        """The stages, one of all steps where none are named."""
        return self.stages or [StageParams(policy=POLICY, steps=self.steps)]


@cache
def params_class(method: type) -> type[RunParams]:
    """The parameters of a run of a method: what every run has, and the method's own."""
    return create_model(
        "Params", __base__=(method.Params, RunParams), __doc__=method.Params.__doc__
    )


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; mappings in them are merged key by key, roles two levels deep."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            before = merged.get(key)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            merged[key] = merge(before, value) if both else value
    return merged


def differing(values: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What of `values` is not in `base` already; mappings in them are compared key by key."""
    left: dict[str, Any] = {}
    for key, value in values.items():
        before = base.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := differing(value, before):
                left[key] = inner
        elif key not in base or value != before:
            left[key] = value
    return left


def variant_layers(entry: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """What an entry of variants.yaml changes at a scale."""
    return merge(entry.get("set", {}), entry.get("at", {}).get(scale, {}))
