"""Samples in, a GRPO step out: TRL's GRPOTrainer fed by a self-play rollout.

`_generate_and_score_completions` plays the method's rollout, hands the rows that are trained to TRL
through its `rollout_func` and `env_mask` contract, and puts the method's advantages, times their
weights, in the place of TRL's. `log` adds the rollout's own numbers to what TRL reports. Others
save and load our state (`spnb.train.hooks`). Log-probabilities, every loss type, KL, optimiser,
LoRA and checkpoints stay TRL's; what we rely on in it is listed and checked in `spnb.train.guards`.

The loss of a step is the mean over all trained rows of all processes, each row's advantage
multiplied by its weight. A KL term counts every trained token once, whatever the weights; where
only some roles are under it, it has their weight.
"""

import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset

from spnb.core.episodes import run
from spnb.core.method import ROW_MEAN_LOSSES, Role, SelfPlayMethod
from spnb.core.types import Engine, Sample
from spnb.train import guards
from spnb.train.arguments import grpo_arguments, processes
from spnb.train.config import RunParams
from spnb.train.guards import TrainerError
from spnb.train.hooks import Hooks, RunMixin, Stage, attach
from spnb.train.metrics import kl_sums, mean_of, role_sums, rollout_metrics
from spnb.train.packing import PackingMixin
from spnb.train.partners import Partner
from spnb.train.role_kl import IN_KL, RoleKLMixin

CHECKED_ROLLOUTS = 2
"""After each start of a run, so many rollouts must agree with the trainer, or it stops."""
INERT = "inert"
"""The role of rows that only fill a batch."""
GAP_EVERY = 10
"""The engine's gap is logged at the first steps and at every tenth."""


class SelfPlayMixin(RunMixin):
    """Mixed in over `trl.GRPOTrainer` by `make_trainer`; see the module's docstring."""

    engines: Mapping[str, Engine]
    partners: Mapping[str, Partner]
    engine_tolerance: float

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        index = self._step // (self.args.steps_per_generation * self.num_iterations)
        self.method.metrics = {}
        samples = run(self.method.rollout(self.stage.first + index), self.engines)
        self.method.estimate(samples)
        self.method.select(samples)
        for sample in samples:
            if sample.policy not in (self.stage.policy, *self.partners):
                sample.weight = 0.0
        for name, partner in self.partners.items():
            partner.step([one for one in samples if one.policy == name and one.weight])
        trained = [one for one in samples if one.policy == self.stage.policy and one.weight]
        rows = self._padded(trained)
        generated = time.perf_counter()
        gap = self._check(trained, self.stage.first + index)
        self._rows = rows
        out = super()._generate_and_score_completions([{"prompt": ""} for _ in rows])
        scale = self._row_scale(len(rows), len(trained))
        self.beta = self.args.beta * scale * self._kl_weight(trained)
        weighted = [(row.advantage or 0.0) * row.weight for row in rows]
        device = out["advantages"].device
        out["advantages"] = scale * torch.tensor(weighted, device=device)
        if isinstance(self, RoleKLMixin):
            held = [row.role != INERT and self._role_of(row).kl for row in rows]
            out[IN_KL] = torch.tensor(held, device=device)
        self._record = {"samples": samples, "kl": kl_sums(rows, out), "gap": gap}
        self._record |= {"started": started, "generate": generated - started}
        return out

    def _row_scale(self, rows: int, trained: int) -> float:
        """Makes TRL's mean over this process's rows, inert ones too, one over all trained rows."""
        if self.loss_type not in ROW_MEAN_LOSSES:
            return 1.0
        total = sum(gather_object([trained]))
        return rows * self.accelerator.num_processes / max(total, 1)

    def _check(self, trained: list[Sample], step: int) -> float | None:
        """The guards of a rollout; the engine's gap where it is due."""
        if "unsloth" in sys.modules:
            guards.check_rows(trained, self.processing_class.pad_token_id)
        if not self.model.training:
            raise TrainerError(
                "the rollout left the model in eval mode; TRL would take this for evaluation"
            )
        self._rollouts += 1
        model = self.accelerator.unwrap_model(self.model)
        temperature = {role.sampling.temperature for role in self._trained_roles()}
        if self._rollouts <= CHECKED_ROLLOUTS:
            guards.check_engine(model, trained, self.engine_tolerance, *temperature)
        if step % GAP_EVERY and step >= CHECKED_ROLLOUTS:
            return None
        return guards.engine_gap(model, trained, *temperature).mean

    def _kl_weight(self, trained: list[Sample]) -> float:
        """The weight of the rows that KL by role holds, which must all have the same; else 1."""
        if not isinstance(self, RoleKLMixin):
            return 1.0
        weights = {row.weight for row in trained if self._role_of(row).kl}
        if len(weights) > 1:
            raise TrainerError(
                f"rows under KL have weights from {min(weights)} to {max(weights)}; allowed: one "
                "weight, because TRL's loss has one beta a step"
            )
        return next(iter(weights), 1.0)

    def _role_of(self, sample: Sample) -> Role:
        return self.method.roles[self.method.role_of(sample)]

    def _trained_roles(self) -> list[Role]:
        roles = self.method.roles.values()
        return [role for role in roles if role.trainable and role.policy == self.stage.policy]

    def _padded(self, samples: list[Sample]) -> list[Sample]:
        """Appends inert rows (mask 0): TRL silently drops rows where the count does not divide."""
        divisor = math.lcm(self.args.steps_per_generation, self.num_generations)
        count = max(gather_object([max(len(samples), 1)]))
        missing = math.ceil(count / divisor) * divisor - len(samples)
        token = (self.processing_class.eos_token_id,)
        inert = Sample(token, token, (0,), (0.0,), reward=0.0, role=INERT, group=INERT)
        return samples + [inert] * missing

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's numbers of an update, and with the last update of a rollout its own metrics."""
        if "loss" not in logs:
            return super().log(logs, start_time)
        guards.check_finite(logs["loss"], logs.get("grad_norm"), self.state.global_step)
        own = self._metrics["train"]
        update = {key: logs.get(key) for key in ("loss", "grad_norm", "learning_rate")}
        for key, name in (
            ("entropy", "entropy"),
            ("kl", "kl"),
            ("clip_ratio/region_mean", "clip_ratio"),
        ):
            update[name] = mean_of(own.get(key, []))
        for key in [key for key in own if key.startswith(("reward", "frac_reward"))]:
            del own[key]  # TRL's reward function is a constant 0 here
        self._updates.append(update)
        row = self._step_row() if len(self._updates) == self.num_iterations else None
        super().log(logs | _reported(row), start_time)
        if row is not None:
            self.hooks.on_step(row, self._record["samples"])

    def _step_row(self) -> dict[str, float]:
        """The metrics of a step, the same in every process."""
        updates = self._updates
        self._updates = []
        means = {
            key: mean_of([u[key] for u in updates if u[key] is not None]) for key in updates[0]
        }
        row = {"step": self.stage.first + self.state.global_step // self.num_iterations}
        row |= {key: value for key, value in means.items() if value is not None}
        if self._record["gap"] is not None:
            row["engine_gap"] = self._record["gap"]
        parts = gather_object([(role_sums(self._record["samples"]), self._record["kl"])])
        row |= rollout_metrics([sums for sums, _ in parts], [kl for _, kl in parts])
        seconds = time.perf_counter() - self._record["started"]
        tokens = row["tokens_per_second"] / seconds
        row |= {"seconds/generate": self._record["generate"], "seconds/step": seconds}
        row |= {"seconds/update": seconds - self._record["generate"], "tokens_per_second": tokens}
        for name, partner in self.partners.items():
            row |= partner.metrics(name)
        methods = gather_object([self.method.metrics])
        return row | {key: mean_of([m[key] for m in methods if key in m]) for key in methods[0]}

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._step = self._restored


def _rollout_columns(prompts: list[str], trainer: Any) -> dict[str, list]:
    """TRL's `rollout_func`: one entry a row; `env_mask` is 1 on tokens that the policy sampled."""
    rows = trainer._rows
    return {
        "prompt_ids": [list(row.prompt_ids) for row in rows],
        "completion_ids": [list(row.completion_ids) for row in rows],
        "logprobs": [list(row.logps) for row in rows] if trainer.use_vllm else None,
        "env_mask": [list(row.mask) for row in rows],
    }


def make_trainer(
    params: RunParams,
    policy: Any,
    method: SelfPlayMethod,
    engines: Mapping[str, Engine],
    hooks: Hooks,
    output_dir: Path,
    stage: Stage | None = None,
    partners: Mapping[str, Partner] | None = None,
) -> Any:
    """A trainer, its class built at call time because `import unsloth` rebinds `trl.GRPOTrainer`.

    Args:
        policy: a `spnb.train.policies.Policy`.
        engines: by the name of the policy that answers; may be filled later.
        stage: default: all of the run's steps, on the policy "policy".
        partners: other policies that learn in the same steps, by name.

    Raises:
        TrainerError: a setting was changed on the way (Unsloth's patches have other defaults),
            weights are sharded, or the roles that learn have several temperatures.
    """
    import trl

    unsloth = "unsloth" in sys.modules
    if unsloth and not any("Unsloth" in base.__name__ for base in trl.GRPOTrainer.__mro__):
        raise TrainerError("unsloth was imported after trl's trainer; import unsloth first")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # for rollout_func: pinned, tested here
    guards.check_contract(trl.GRPOTrainer)
    stage = stage or Stage(steps=params.steps)
    explicit = grpo_arguments(params, stage.steps, output_dir)
    mixins = _mixins(params, method, stage, unsloth)
    prompts = stage.steps * explicit["steps_per_generation"] * processes()
    trainer = type("SelfPlayTrainer", (*mixins, trl.GRPOTrainer), {})(
        model=policy.model,
        reward_funcs=_no_reward,
        args=trl.GRPOConfig(**explicit),
        train_dataset=Dataset.from_dict({"prompt": [""] * prompts}),
        processing_class=policy.tokenizer,
        peft_config=policy.peft_config,
        rollout_func=_rollout_columns,
    )
    attach(trainer, explicit, method, hooks, stage)
    trainer.engines = engines
    trainer.partners = partners or {}
    trainer.engine_tolerance = guards.ENGINE_TOLERANCE[params.dtype]
    trainer._updates, trainer._rows, trainer._rollouts = [], [], 0
    trainer.temperature = _temperature(trainer._trained_roles(), params.temperature)
    return trainer


def _mixins(
    params: RunParams, method: SelfPlayMethod, stage: Stage, unsloth: bool
) -> tuple[type, ...]:
    """What goes over TRL's trainer: ours, KL by role where a role is free of it, the packing."""
    roles = {name: role for name, role in method.roles.items() if role.policy == stage.policy}
    free = [name for name, role in roles.items() if role.trainable and not role.kl]
    by_role = bool(params.grpo["beta"] and free)
    if by_role and unsloth:
        raise TrainerError(
            f"roles.{free[0]}.kl is False with backend unsloth, whose loss has one KL for all "
            "rows; allowed: backend transformers, or grpo.beta 0"
        )
    packed = not (unsloth or torch.cuda.is_available())
    return (SelfPlayMixin, *[RoleKLMixin] * by_role, *[PackingMixin] * packed)


def _temperature(roles: list[Any], default: float) -> float:
    """The one temperature of the roles that learn."""
    temperatures = {role.sampling.temperature for role in roles}
    if len(temperatures) > 1:
        raise TrainerError(
            f"roles that learn have temperatures {sorted(temperatures)}; allowed: one, because "
            "TRL's loss takes one (a role that does not learn may have its own)"
        )
    return next(iter(temperatures), default)


def _no_reward(completions: list, **_: Any) -> list[float]:
    """TRL wants a reward function; rewards are the method's, advantages are set by the mixin."""
    return [0.0] * len(completions)


def _reported(row: Mapping[str, float] | None) -> dict[str, float]:
    """What trackers get of a step: our metrics, and the mean reward over all roles as `reward`."""
    if row is None:
        return {}
    rewards = [value for key, value in row.items() if key.startswith("reward/")]
    own = {key: value for key, value in row.items() if key not in ("step", "loss", "grad_norm")}
    return own | ({"reward": mean_of(rewards)} if rewards else {})
