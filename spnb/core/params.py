"""Parameters: papermill files, variants by name, and one validation at the edge.

`params/<paper>/<scale>.yaml` is a papermill parameter file; `params/<paper>/variants.yaml` names
the paper's ablations as changes to it. Values from the file, a variant and the caller are merged in
this order and validated once; what a user gets wrong is answered by a `ParamError` that names the
key, the value and what is allowed.
"""

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from spnb.core.paths import ROOT

SCALES = ("smoke", "cpu", "gpu", "paper")


class ParamError(ValueError):
    """A parameter is unknown, of the wrong type, or outside what is allowed."""


class StrictData(BaseModel):
    """Read-only, and any key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunParams(StrictData):
    """What every run has, whatever its paper; a paper's own parameters are added by a subclass.

    Units: `steps`, `save_every`, `eval_every` count training steps (one rollout and its updates);
    `max_new_tokens` counts tokens. Defaults are those of most papers; a parameter file states what
    it changes.
    """

    paper: str
    scale: Literal["smoke", "cpu", "gpu", "paper"]
    variant: str
    seed: int = Field(0, ge=0)

    policy: str = Field(
        "embedded/games", description="embedded/<name>, a folder, or a hub id of a causal LM"
    )
    dtype: Literal["float32", "bfloat16"] = "float32"
    backend: Literal["transformers", "unsloth"] = "transformers"
    engine: Literal["torch", "vllm"] = "torch"
    gpu_memory: float = Field(
        0.5, gt=0, lt=1, description="share of the GPU's memory that vLLM may take"
    )
    max_length: int = Field(
        2048, ge=16, description="tokens of prompt and completion together, for Unsloth and vLLM"
    )
    load_in_4bit: bool = False
    lora_rank: int = Field(0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(32, ge=1)
    gradient_checkpointing: bool = False

    steps: int = Field(100, ge=1)
    inner_epochs: int = Field(1, ge=1, description="optimiser updates on each rollout")
    micro_batches: int = Field(
        1, ge=1, description="pieces that a rollout is cut into for one update"
    )
    learning_rate: float = Field(1e-6, gt=0)
    lr_schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    optimizer: Literal["adamw_torch", "adamw_8bit"] = "adamw_torch"
    adam_betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"] = "dr_grpo"
    epsilon: float = Field(0.2, gt=0)
    epsilon_high: float | None = Field(None, gt=0)
    kl_beta: float = Field(0.0, ge=0)

    max_new_tokens: int = Field(64, ge=1)
    temperature: float = Field(1.0, gt=0)
    eval_temperature: float = Field(0.6, ge=0)
    eval_top_p: float = Field(0.95, gt=0, le=1)

    save_every: int = Field(10, ge=1)
    eval_every: int = Field(20, ge=1)
    report_to: str = Field("none", description="tensorboard, wandb, trackio or none")

    @field_validator("seed", "steps", mode="before")
    @classmethod
    def _no_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a truth value is not a number")
        return value

    @model_validator(mode="after")
    def _together(self) -> "RunParams":
        if self.engine == "vllm" and self.dtype == "float32":
            raise ValueError(
                "engine vllm with dtype float32: TRL starts vLLM in 16 bits; allowed: dtype bfloat16"
            )
        if self.backend == "unsloth" and self.engine == "vllm" and self.lora_rank == 0:
            raise ValueError(
                "backend unsloth with engine vllm and lora_rank 0; allowed: a lora_rank of 1 or more"
            )
        return self

    @property
    def other_policies(self) -> dict[str, str]:
        """Policies that a run needs besides the one that it trains, by the name of their engine."""
        return {}


P = TypeVar("P", bound=BaseModel)


def validate(model: type[P], values: Mapping[str, Any]) -> P:
    """Values as an instance of a parameter class.

    Raises:
        ParamError: one line a fault, each with the key, the value and what is allowed.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ParamError("\n".join(_explain(model, item) for item in error.errors())) from None


def _explain(model: type[BaseModel], item: Mapping[str, Any]) -> str:
    key = ".".join(map(str, item["loc"]))
    if not key:  # a check of several parameters together, which names them itself
        return item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return unknown("parameter", key, list(model.model_fields))
    if item["type"] == "missing":
        return f"{key} is missing; it has no default"
    field = model.model_fields.get(str(item["loc"][0]))
    about = f" ({field.description})" if field is not None and field.description else ""
    return f"{key} is {item['input']!r}; allowed: {item['msg'].removeprefix('Input should be ')}{about}"


def unknown(what: str, value: Any, allowed: Collection[str]) -> str:
    """The sentence for a name that does not exist: the name, the nearest one, all that are
    allowed."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{what} is {value!r}, which is unknown; {hint}allowed: {', '.join(sorted(allowed))}"


def papers() -> list[str]:
    """The papers that have parameter files."""
    return sorted(
        path.name for path in (ROOT / "params").iterdir() if (path / "variants.yaml").is_file()
    )


def scale_values(paper: str, scale: str) -> dict[str, Any]:
    """The values of a scale's parameter file.

    Raises:
        ParamError: unknown paper or scale, or a file that is not a mapping.
    """
    folder = _folder(paper)
    if scale not in SCALES or not (folder / f"{scale}.yaml").is_file():
        raise ParamError(
            unknown("scale", scale, [s for s in SCALES if (folder / f"{s}.yaml").is_file()])
        )
    return _mapping(folder / f"{scale}.yaml")


def variants(paper: str) -> dict[str, dict[str, Any]]:
    """The paper's variants by name.

    `about` (one sentence), `set` (changed parameters), `at` (further ones by scale), `headline`
    (run by default).
    """
    return _mapping(_folder(paper) / "variants.yaml")


def variant_values(paper: str, variant: str, scale: str) -> dict[str, Any]:
    """What a variant changes at a scale.

    Raises:
        ParamError: unknown variant.
    """
    known = variants(paper)
    if variant not in known:
        raise ParamError(unknown("variant", variant, known))
    entry = known[variant]
    return {**entry.get("set", {}), **entry.get("at", {}).get(scale, {})}


def _folder(paper: str) -> Path:
    if paper not in papers():
        raise ParamError(unknown("paper", paper, papers()))
    return ROOT / "params" / paper


def _mapping(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ParamError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ParamError(
            f"{path} holds {type(values).__name__}; allowed: a mapping of names to values"
        )
    return values
