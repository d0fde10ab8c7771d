"""A run's parameters: papermill files, variants by name, one validation at the edge.

Values from a scale's file, a variant and the caller are merged in this order (`grpo`, `roles` and
`policies` key by key) and validated once.
"""

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from spnb.core.errors import OneLine
from spnb.core.method import POLICY, SNAPSHOTS, MethodParams, place_of
from spnb.core.params import StrictData, require, validate
from spnb.core.paths import resolve
from spnb.corpus.retrieval import KINDS
from spnb.evaluate.benchmarks import BENCHMARKS, BY_SEARCH, Use, read_uses
from spnb.train.grpo import GRPOExtras, GRPOParams, trl_names


class TrainerError(OneLine, RuntimeError):
    """Training cannot go on, or would silently train something else."""


NAMED = frozenset(["benchmarks", "policies", "servers", "co_trained", "start_from"])
"""Parameters that name things: {} is none of those that a file or a variant names."""
SHARED = {
    "num_iterations": "they share checkpoints",
    "loss_type": "rows are weighted for one",
    "gradient_accumulation_steps": "accelerate has one state of it for the whole process",
}
"""Settings of `grpo` that policies which learn in the same steps have alike, and why."""


class StageParams(StrictData):
    """One stage of a run: which policy is trained, and for how many steps."""

    policy: str
    steps: int = Field(ge=1)


class RunParams(MethodParams):
    """What every run has beside its method's own parameters.

    Units: `steps`, `save_every`, `eval_every` count training steps (one rollout and its updates);
    `max_new_tokens`, `max_length` and `micro_tokens` count tokens. Step quantities of a method are
    for all processes together. Defaults are those of most papers; a parameter file states what it
    changes.
    """

    paper: str
    scale: Literal["smoke", "cpu", "gpu", "paper"]
    variant: str

    policy: str = Field(description="embedded/<name>, a folder, or a hub id of a causal LM")
    policies: dict[str, str] = Field({}, description="further policies by name")
    servers: dict[str, Annotated[str, Field(pattern=r"^https?://[^/\s]+$")]] = Field(
        {}, description="of further policies by name: http://host:port of a vLLM that serves it"
    )
    stages: list[StageParams] = Field([], description="policies trained in turn; default: one")
    co_trained: dict[str, dict[str, Any]] = Field(
        {}, description="policies that learn in the same steps, each with its changes to grpo"
    )
    start_from: Annotated[
        dict[str, str], BeforeValidator(lambda at: {POLICY: at} if isinstance(at, str) else at)
    ] = Field({}, description="policy: the variant whose final weights")
    keep_checkpoints: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        [], description="shares of the steps"
    )

    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the computation")
    backend: Literal["transformers", "unsloth"] = "transformers"
    engine: Literal["torch", "vllm"] = "torch"
    gpu_memory: float = Field(0.5, gt=0, lt=1, description="share of the GPU that vLLM may take")
    max_num_seqs: int | None = Field(None, ge=1, description="answers vLLM writes at once: 256")
    vllm_sleep: bool | None = Field(None, description="vLLM's memory is free during updates")
    thinking: bool | None = Field(None, description="of templates that can think; none: as they do")
    chat_template: str = Field("", description="a Jinja file in place of the tokenizer's own")
    max_length: int = Field(
        2048, ge=16, description="prompt and completion; longer ones are not asked"
    )
    lora_rank: int = Field(0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(32, ge=1)
    gradient_checkpointing: bool = False
    micro_tokens: int | None = Field(None, ge=1, description="most that an update holds at a time")
    updates: int | None = Field(None, ge=1, le=10**4, description="that share a step's rows: 1")

    save_every: int = Field(10, ge=1)
    eval_every: int = Field(20, ge=1)
    benchmarks: Annotated[dict[str, Use], BeforeValidator(read_uses)] = Field(
        {}, description="published ones: a path, null: the hub"
    )
    report_to: Literal["none", "tensorboard", "wandb", "trackio"] = "none"

    @field_validator("grpo")
    @classmethod
    def _grpo(cls, value: dict[str, Any]) -> dict[str, Any]:
        return validate(GRPOParams, value, "grpo.").resolved()

    @field_validator("seed", "steps", mode="before")
    @classmethod
    def _no_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("a truth value is not a number")
        return value

    @model_validator(mode="after")
    def _searches(self) -> "RunParams":
        retriever, corpus = (getattr(self, name, "") for name in ("retriever", "corpus"))
        found = retriever and corpus
        known = retriever in ("", *KINDS) or retriever.startswith(("http://", "https://"))
        self.need(known, "retriever", f"{', '.join(KINDS)}, or a URL")
        own = retriever in ("", KINDS[0]) or corpus
        self.need(own, "retriever", f"{KINDS[0]} without a corpus")
        turn = not hasattr(self, "max_searches") or self.max_new_tokens < self.max_length
        self.need(turn, "max_new_tokens max_length", "a turn that is shorter than a trajectory")
        searching = {*self.roles} - {*self.silent} if hasattr(self, "max_searches") else {}
        for name in sorted(searching):
            key = f"roles.{name}.max_new_tokens"
            fits = (self.roles[name].max_new_tokens or 0) < self.max_length
            self.need(fits, f"{key} max_length", "a turn that is shorter than a trajectory")
        thinks = getattr(self, "syntax", "xml") == "xml" or self.thinking is not False
        self.need(thinks, "thinking syntax", "none, or xml: turns after a search think")
        for name in self.benchmarks:
            if BENCHMARKS[name].prompt in BY_SEARCH and not found:
                allowed = "in a run with a corpus and a retriever"
                raise ValueError(f"benchmarks has {name!r}, answered by search; allowed: {allowed}")
        return self

    @model_validator(mode="after")
    def _engines_fit(self) -> "RunParams":
        vllm = self.engine == "vllm"
        unsloth = self.backend == "unsloth"
        self.need(not vllm or self.dtype != "float32", "dtype engine", "bfloat16, as vLLM has it")
        self.need(vllm or not self.vllm_sleep, "vllm_sleep engine", "false: only vLLM can sleep")
        self.need(vllm or not self.max_num_seqs, "max_num_seqs engine", "none, or with vllm")
        for key in (key for key in self.grpo if key.startswith("vllm_")):
            self.need(vllm, f"grpo.{key} engine", "nothing, or with vllm")
        low_rank = self.lora_rank or self.lora_alpha == 32
        self.need(low_rank, "lora_alpha lora_rank", "32, or with a lora_rank above 0")
        own = "grpo.gradient_checkpointing_kwargs"
        kept = self.gradient_checkpointing or own.partition(".")[2] not in self.grpo
        self.need(kept, f"{own} gradient_checkpointing", "nothing, or with gradient_checkpointing")
        cache = "vllm, or backend transformers: Unsloth's model returns a cache of its own"
        self.need(vllm or not unsloth, "engine backend", cache)
        self.need(self.lora_rank or not unsloth, "lora_rank backend", "1 or more")
        own = "empty: Unsloth's loss cuts an update itself"
        self.need(not (unsloth and self.micro_tokens), "micro_tokens backend", own)
        self.need(not (unsloth and self.parts > 1), "updates backend", "1, or transformers")
        adaptive = unsloth and self.grpo.get("use_adaptive_entropy")
        self.need(not adaptive, "grpo.use_adaptive_entropy backend", "false, or transformers")
        alone = len(self.loaded) == 1 or (
            {*self.loaded.values()} == {self.policy} and not self.start_from
        )
        rewritten = "the run's own weights, what a server has, or backend transformers: Unsloth"
        rewritten += " rewrites the classes of all models in the process"
        self.need(alone or not unsloth, "policies backend", rewritten)
        there = not self.chat_template or resolve(self.chat_template).is_file()
        self.need(there, "chat_template", "a file with a Jinja template")
        return self

    @model_validator(mode="after")
    def _pairs_fit(self) -> "RunParams":
        if self.preference is None:
            return self
        loss = f"with the loss of {self.preference.loss}"
        fits = {"engine": "torch", "backend": "transformers", "stages": [], "co_trained": {}}
        fits |= {"grpo.beta": 0.0, "grpo.num_iterations": 1, "micro_tokens": None, "updates": None}
        fits |= {"grpo.epsilon": 0.2, "grpo.epsilon_high": None}
        fits |= {"grpo.importance_sampling_level": "token"}
        values = flat(dict(self))
        for key, allowed in fits.items():
            if values.get(key, allowed) != allowed:
                raise ValueError(f"{key} is {values[key]!r} {loss}; allowed: {allowed!r}")
        shared = trl_names()["shared"]
        if odd := sorted({*self.grpo} & {*GRPOExtras.model_fields} - {*shared}):
            value = self.grpo[odd[0]]
            allowed = f"nothing, of these alone: {', '.join(shared)}"
            raise ValueError(f"grpo.{odd[0]} is {value!r} {loss}; allowed: {allowed}")
        return self

    @model_validator(mode="after")
    def _policies_exist(self) -> "RunParams":
        names = [POLICY, *self.policies]
        trained = {stage.policy for stage in self.stages}
        if bad := [name for name in self.policies if name in (POLICY, *SNAPSHOTS)]:
            raise ValueError(f"policies names {bad[0]!r}; allowed: a name that is not taken")
        roles = {f"roles.{name}.policy": role.policy for name, role in self.roles.items()}
        stages = {f"stages.{index}.policy": one.policy for index, one in enumerate(self.stages)}
        uses = [(key, name, [*names, *SNAPSHOTS]) for key, name in roles.items() if name]
        uses += [(key, name, names) for key, name in stages.items()]
        uses += [("co_trained", name, [*self.policies]) for name in self.co_trained]
        uses += [("start_from", name, names) for name in self.start_from]
        fixed = {*self.policies} - {*trained, *self.co_trained, *self.start_from}
        uses += [("servers", name, sorted(fixed)) for name in self.servers]
        for key, name, known in uses:
            require(key, name, known, ValueError)
        for name, role in self.roles.items():
            if role.policy in SNAPSHOTS and role.trainable:
                snapshot = f"with policy {role.policy}, earlier weights"
                raise ValueError(f"roles.{name}.trainable is True {snapshot}; allowed: false")
        for name, changes in self.co_trained.items():
            if not changes:  # what is empty does not count in a run's identity
                changes["learning_rate"] = self.grpo["learning_rate"]
            typed = validate(GRPOParams, self.grpo | changes, f"co_trained.{name}.").resolved()
            changes.update({key: typed[key] for key in changes})
            for key, why in SHARED.items():
                same = changes.get(key, self.grpo[key]) == self.grpo[key]
                self.need(same, f"co_trained grpo.{key}", f"the same for all: {why}")
        alone = not (self.stages or self.engine == "vllm")
        self.need(alone or not self.co_trained, "co_trained stages engine", "no stages, torch")
        total = sum(stage.steps for stage in self.all_stages)
        self.need(total == self.steps, "steps stages", f"{total}, as many as the stages have")
        one = len(self.stages) < 2 or self.engine == "torch"
        self.need(one, "engine stages", "torch where there are several: a process has one vLLM")
        last, *kept = (place_of(self, step - 1)[0] for step in (self.steps, *self.kept_steps))
        fits = f"shares at whose steps {last} is trained, as at the end"
        self.need({*kept} <= {last}, "keep_checkpoints stages", fits)
        return self

    @property
    def kept_steps(self) -> list[int]:
        """The steps after which the policy in training is kept."""
        return [max(1, round(share * self.steps)) for share in self.keep_checkpoints]

    @property
    def sequences(self) -> int:
        """Answers that vLLM writes at once; by themselves TRL and Unsloth have fewer."""
        return self.max_num_seqs or 256

    @property
    def parts(self) -> int:
        """Into how many parts, an optimiser update each, the rows of a step are dealt."""
        return self.updates or 1

    @property
    def loaded(self) -> dict[str, str]:
        """The policies that this machine loads, by name."""
        beside = {name: at for name, at in self.policies.items() if name not in self.servers}
        return {POLICY: self.policy} | beside

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


def empties(key: str, value: Mapping[str, Any]) -> bool:
    """Whether a layer takes out all names that an earlier one has there."""
    return key in NAMED and not value


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; mappings in them are merged key by key; {} empties one of `NAMED`."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            before = merged.get(key)
            both = isinstance(before, Mapping) and isinstance(value, Mapping)
            merged[key] = merge(before, value) if both and not empties(key, value) else value
    return merged


def changed_values(values: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What of `values` is not in `base` already; mappings in them are compared key by key."""
    left: dict[str, Any] = {}
    for key, value in values.items():
        before = base.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            inner = changed_values(value, before)
            if inner or (before and empties(key, value)):
                left[key] = inner
        elif key not in base or value != before:
            left[key] = value
    return left


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """TRL's parameters beside the others, as "grpo.<name>"."""
    grpo = {f"grpo.{key}": value for key, value in values.get("grpo", {}).items()}
    return {key: value for key, value in values.items() if key != "grpo"} | grpo


def variant_layers(entry: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """What an entry of variants.yaml changes at a scale."""
    return merge(entry.get("set", {}), entry.get("at", {}).get(scale, {}))


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def pieces(params: RunParams) -> int:
    """Into how many pieces each process cuts an update."""
    return max(1, math.ceil(params.grpo["gradient_accumulation_steps"] / processes()))


def owned_arguments(params: RunParams, output_dir: Path) -> dict[str, Any]:
    """What a run decides of any trainer; updates are counted by the caller."""
    import torch

    cuda = torch.cuda.is_available()
    return trl_names()["fixed"]["every"] | {
        "output_dir": str(output_dir),
        "gradient_accumulation_steps": pieces(params),
        "bf16": params.dtype == "bfloat16" and cuda,
        "use_cpu": not cuda,
        "gradient_checkpointing": params.gradient_checkpointing,
        "seed": params.seed,
        "report_to": params.report_to,
    }


def grpo_arguments(params: RunParams, steps: int, output_dir: Path) -> dict[str, Any]:
    """Arguments of `trl.GRPOConfig`."""
    grpo = dict(params.grpo)
    if grpo["epsilon_high"] is None:
        cispo = grpo["loss_type"] == "cispo"  # there it is the most that a ratio counts
        grpo["epsilon_high"] = 5.0 if cispo else grpo["epsilon"]
    owned = {
        "max_steps": steps * params.parts * grpo["num_iterations"],
        "save_steps": params.save_every * params.parts * grpo["num_iterations"],
        "steps_per_generation": pieces(params) * params.parts,
        "max_completion_length": params.max_new_tokens,
        "temperature": params.temperature,
        "use_vllm": params.engine == "vllm",
        "vllm_gpu_memory_utilization": params.gpu_memory,
        "vllm_max_model_length": params.max_length,
    }
    defaults = trl_names()["defaults"]["every"] | trl_names()["defaults"]["GRPOConfig"]
    fixed = trl_names()["fixed"]["GRPOConfig"]
    return defaults | grpo | owned_arguments(params, output_dir) | fixed | owned


def dpo_arguments(params: RunParams, output_dir: Path) -> dict[str, Any]:
    """Arguments of `trl.DPOConfig`; `params.preference.batch` pairs make an update.

    Raises:
        TrainerError: the pairs of an update cannot be divided evenly.
    """
    preference = params.preference
    cut = pieces(params) * processes()
    if preference.batch % cut:
        raise TrainerError(
            f"an update of {preference.batch} pairs is cut into {cut} pieces (processes and "
            "grpo.gradient_accumulation_steps); allowed: a number that divides it"
        )
    weight = preference.weight if preference.loss == "longpo" else 1.0
    owned = {
        "max_steps": params.steps,
        "save_steps": params.save_every,
        "per_device_train_batch_size": preference.batch // cut,
        "loss_weights": [weight],
        "beta": preference.beta,
    }
    defaults = trl_names()["defaults"]["every"]
    shared = {key: params.grpo[key] for key in params.grpo if key in trl_names()["shared"]}
    fixed = trl_names()["fixed"]["DPOConfig"]
    return defaults | shared | owned_arguments(params, output_dir) | fixed | owned


def check_settings(args: Any, explicit: Mapping[str, Any]) -> None:
    """Raises TrainerError for a setting that is not what was asked for."""
    for key, value in explicit.items():
        given = getattr(args, key)
        if key == "report_to":
            given = (given or ["none"])[0] if isinstance(given, list) else given
        if getattr(given, "value", given) != value:
            name = type(args).__name__
            raise TrainerError(f"{key} became {given!r} in trl.{name}; asked for {value!r}")
