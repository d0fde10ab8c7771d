"""Settings of TRL's trainer that a run may set, by TRL's names, and which fit together."""

from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core.params import StrictData
from spnb.core.paths import packaged_yaml


def trl_names() -> dict[str, Any]:
    """TRL's names as data, what we set and read of them; see the file. Tests compare them with the
    pinned TRL."""
    return packaged_yaml("train/trl_names.yaml")


Schedule = Literal[tuple(trl_names()["lr_scheduler_type"])]  # type: ignore[valid-type]


class GRPOExtras(StrictData):
    """Settings of `trl.GRPOConfig` that a run has only where they are set."""

    adam_epsilon: float = Field(None, gt=0)
    lr_scheduler_kwargs: dict[str, float] = Field(None)
    delta: float = Field(None, gt=0, description="the second clip of the ratio")
    top_entropy_quantile: float = Field(None, gt=0, le=1)
    entropy_coef: float = Field(None, ge=0)
    use_adaptive_entropy: bool = Field(None)
    entropy_target: float = Field(None, ge=0)
    entropy_coef_min: float = Field(None, ge=0)
    entropy_coef_max: float = Field(None, ge=0)
    entropy_coef_delta: float = Field(None, ge=0)
    use_bias_correction_kl: bool = Field(None)
    router_aux_loss_coef: float = Field(None, ge=0)
    disable_dropout: bool = Field(None)
    gradient_checkpointing_kwargs: dict[Literal["use_reentrant"], bool] = Field(None)
    torch_empty_cache_steps: int = Field(None, ge=1)
    ddp_timeout: int = Field(None, ge=1, description="seconds")
    ddp_find_unused_parameters: bool = Field(None)
    vllm_model_impl: Literal["vllm", "transformers"] = Field(None)
    vllm_importance_sampling_correction: bool = Field(None)
    vllm_importance_sampling_mode: Literal[
        "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"
    ] = Field(None)
    vllm_importance_sampling_clip_min: float = Field(None, gt=0)
    vllm_importance_sampling_clip_max: float = Field(None, gt=0)


ADAPTIVE = ("entropy_target", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta")
NEEDS = {"use_bias_correction_kl": "beta", **dict.fromkeys(ADAPTIVE, "use_adaptive_entropy")}
"""Settings of `grpo` that do nothing without another one, and that one."""
ORDERED = {
    "entropy_coef_min": ("entropy_coef_max", 1.0),
    "vllm_importance_sampling_clip_min": ("vllm_importance_sampling_clip_max", 3.0),
}
"""Settings of `grpo` that are at most another one, and TRL's default of that."""


class GRPOParams(GRPOExtras):
    """Settings of `trl.GRPOConfig` under their own names: those that change the training.

    `gradient_accumulation_steps` cuts the rows of an update, of all processes, into so many pieces.
    """

    learning_rate: float = Field(1e-6, gt=0, lt=10)
    lr_scheduler_type: Schedule = "constant"
    warmup_steps: int = Field(0, ge=0)
    num_iterations: int = Field(1, ge=1, description="times that a rollout is trained on")
    gradient_accumulation_steps: int = Field(1, ge=1, le=10**4)
    optim: Literal[tuple(trl_names()["optim"])] = "adamw_torch"  # type: ignore[valid-type]
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.95, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"] = "dr_grpo"
    importance_sampling_level: Literal["token", "sequence"] = "token"
    epsilon: float = Field(0.2, gt=0)
    epsilon_high: float | None = Field(None, gt=0)
    beta: float = Field(0.0, ge=0, description="KL to the policy that training started from")

    @model_validator(mode="before")
    @classmethod
    def _not_owned(cls, values: Any) -> Any:
        for name, owner in trl_names()["owned"].items():
            if name in values:
                advice = f"nothing, {owner} decides it"
                raise ValueError(f"grpo.{name} is {values[name]!r}; allowed: {advice}")
        return values

    @model_validator(mode="after")
    def _schedule(self) -> "GRPOParams":
        given = {*(self.lr_scheduler_kwargs or {})}
        allowed = trl_names()["lr_scheduler_type"][self.lr_scheduler_type]
        least = self.lr_scheduler_type == "cosine_with_min_lr"
        if given - {*allowed} or least != (len(given & {"min_lr", "min_lr_rate"}) == 1):
            shown = f"grpo.lr_scheduler_kwargs is {self.lr_scheduler_kwargs}"
            which = f"with lr_scheduler_type {self.lr_scheduler_type!r}"
            names = ", ".join(allowed) or "nothing"
            raise ValueError(f"{shown} {which}; allowed: {names}")
        if self.warmup_steps and self.lr_scheduler_type == "constant":
            ignored = f"grpo.warmup_steps is {self.warmup_steps} with lr_scheduler_type 'constant'"
            allowed = "0, or a schedule that has one, such as constant_with_warmup"
            raise ValueError(f"{ignored}, which has none; allowed: {allowed}")
        return self

    @model_validator(mode="after")
    def _together(self) -> "GRPOParams":
        for name, other in NEEDS.items():
            if (value := getattr(self, name)) and not getattr(self, other):
                shown = f"grpo.{name} is {value} with {other} {getattr(self, other)}"
                raise ValueError(f"{shown}; allowed: with {other}, without which it does nothing")
        for name, (other, default) in ORDERED.items():
            least, most = getattr(self, name), getattr(self, other)
            most = default if most is None else most
            if least and least > most:
                raise ValueError(f"grpo.{name} is {least} with {other} {most}; allowed: up to that")
        high = 1 + (self.epsilon_high or self.epsilon)
        if self.delta and (self.loss_type == "cispo" or self.delta <= high):
            shown = f"grpo.delta is {self.delta} with loss_type {self.loss_type!r}"
            raise ValueError(f"{shown}; allowed: above {high:g}, the first clip, not with cispo")
        return self

    def resolved(self) -> dict[str, Any]:
        """The settings of a run, as JSON."""
        unset = {*GRPOExtras.model_fields} - self.model_fields_set
        return self.model_dump(mode="json", exclude=unset)
