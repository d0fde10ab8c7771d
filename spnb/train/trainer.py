"""Samples in, a GRPO step out: TRL's GRPOTrainer fed by a self-play rollout.

`_generate_and_score_completions` plays the method's rollout, hands the rows that are trained to TRL
through its `rollout_func` and `env_mask` contract, and puts the method's advantages, times their
weights, in the place of TRL's. A callback (`RunCallback`) adds the rollout's own numbers to what
TRL reports and our state to its checkpoints. Log-probabilities, every loss type, KL, optimiser,
LoRA and checkpoints stay TRL's; what we rely on in it is listed and checked in `spnb.train.guards`.

The loss of an update is the mean over all its trained rows of all processes, each row's advantage
multiplied by its weight. With `updates` a step's rows are dealt at random, in each process, into so
many parts, an update each; ratios are to the policy of the rollout. A KL term counts every trained
token once, whatever the weights; where only some roles are under it, it has their weight, and each
row's own where the method wants that (`kl_weighted`).
"""

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from safetensors import SafetensorError
from transformers import PrinterCallback, TrainerCallback
from transformers.trainer import TRAINING_ARGS_NAME

from spnb.core.episodes import run
from spnb.core.method import POLICY, ROW_MEAN_LOSSES, Role, SelfPlayMethod, Share
from spnb.core.types import Engine, Sample
from spnb.train import grpo, guards
from spnb.train.config import RunParams, check_settings, grpo_arguments, processes
from spnb.train.engines.vllm import starting, vllm_settings
from spnb.train.guards import TrainerError
from spnb.train.logps import EntropyMixin, logps_mixin
from spnb.train.masters import MastersMixin
from spnb.train.metrics import (
    kl_sums,
    mean_of,
    method_metrics,
    ratio_sums,
    role_sums,
    rollout_metrics,
)
from spnb.train.partners import Partner
from spnb.train.role_kl import IN_KL, KL_WEIGHT, RoleKLMixin, WeightedKLMixin
from spnb.train.runs import RunError, seal
from spnb.train.states import StatesMixin

CHECKED_ROLLOUTS = 2
"""After each start of a run, the engine is compared with the trainer in so many rollouts."""
INERT = "inert"
"""The role of rows that only fill a batch."""
TRAINED = "trained"
"""The key of TRL's dictionaries that says which rows are not inert."""
GAP_EVERY = 10
"""After that, in every tenth."""


@dataclass(frozen=True)
class Stage:
    """What one trainer trains: a policy's name, the first step (from 0) and how many."""

    policy: str = POLICY
    first: int = 0
    steps: int = 1


@dataclass
class Hooks:
    """What a run wants to hear: each step's metrics and samples, and each checkpoint, to which it
    adds files and the state that this returns."""

    on_step: Callable[[dict[str, float], list[Sample]], None]
    on_state: Callable[[Path], dict[str, Any]] = lambda checkpoint: {}


class RunMixin(MastersMixin, StatesMixin):
    """Mixed in over the trainer of TRL named `trl`: our part of its checkpoints. A subclass has
    `updated`, which takes TRL's numbers of an update and may change what trackers get."""

    trl: str
    method: SelfPlayMethod
    hooks: Hooks
    stage: Stage
    _step = 0
    _saving = False
    started = 0.0
    """When the last update began, by `time.perf_counter`; 0 before the first."""

    def train(self, *args: Any, **more: Any) -> Any:
        """TRL's, with a sentence where a checkpoint cannot be written."""
        try:
            return super().train(*args, **more)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not self._saving or isinstance(error, (RunError, torch.OutOfMemoryError)):
                raise
            raise TrainerError(
                f"checkpoint-{self.state.global_step} could not be written ({error}). It will be "
                "ignored: free some disk space and start the run again, it resumes from the last "
                f"complete checkpoint in {self.args.output_dir}"
            ) from error

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """TRL's, without its arguments, which it pickles and nothing here reads."""
        super()._save(output_dir, state_dict)
        (Path(output_dir or self.args.output_dir) / TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def reported(self, logs: Mapping[str, float]) -> dict[str, float]:
        """TRL's numbers of an update under our names; no KL where nothing is held by one, of which
        Unsloth says 0."""
        names = grpo.trl_names()["reported"][self.trl]
        found = {name: logs[key] for name, key in names.items() if logs.get(key) is not None}
        return found if self.args.beta else {key: found[key] for key in found if key != "kl"}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over our part of a checkpoint's state, before `train(resume_from_checkpoint)`."""
        self._step = state["step"]
        as_many("checkpoint", len(state["methods"]), self.accelerator.num_processes)
        self.method.load_state_dict(state["methods"][self.accelerator.process_index])


def as_many(what: str, then: int, now: int) -> None:
    """Raises TrainerError where other than so many processes go on from what is saved."""
    if then != now:
        raise TrainerError(
            f"the {what} was written by {then} processes, and {now} run now; allowed: as many"
        )


class RunCallback(TrainerCallback):
    """Hears of TRL's updates and checkpoints before any tracker does."""

    def __init__(self, trainer: Any):
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The first batch of an update is there, all of a checkpoint is read."""
        self.trainer.started = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        """An update, or TRL's summary at the end of training, which has no loss."""
        if "loss" in logs:
            guards.check_finite(logs["loss"], logs.get("grad_norm"), state.global_step)
            self.trainer.updated(logs)
            self.trainer._saving = control.should_save

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """TRL's files of a checkpoint are written; our state and the manifest follow."""
        trainer = self.trainer
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        methods = gather_object([trainer.method.state_dict()])  # each process has its own
        if state.is_world_process_zero:
            noted = trainer.hooks.on_state(folder)
            seal(folder, {"step": trainer._step, "methods": methods, "run": noted})
        trainer._saving = False


def attach(
    trainer: Any, explicit: Mapping[str, Any], method: SelfPlayMethod, hooks: Hooks, stage: Stage
) -> None:
    """Gives a new trainer its method, hooks and stage, and the method its share of the work.

    Raises:
        TrainerError: a setting was changed on the way (Unsloth's patches have other defaults),
            weights are sharded, or a process sees several GPUs.
    """
    check_settings(trainer.args, explicit)
    guards.refuse_sharded(trainer.accelerator)
    if trainer.args.n_gpu > 1:
        raise TrainerError(
            f"{trainer.args.n_gpu} GPUs are visible to one process; allowed: one "
            "(CUDA_VISIBLE_DEVICES), or `accelerate launch` with a process for each"
        )
    trainer.remove_callback(PrinterCallback)
    trainer.callback_handler.callbacks.insert(0, RunCallback(trainer))
    trainer.method = method
    trainer.hooks = hooks
    trainer.stage = stage
    accelerator = trainer.accelerator
    method.share = Share(accelerator.process_index, accelerator.num_processes, gather_object)


class SelfPlayMixin(RunMixin):
    """Mixed in over `trl.GRPOTrainer` by `make_trainer`; see the module's docstring."""

    trl = "GRPOTrainer"
    engines: Mapping[str, Engine]
    partners: Mapping[str, Partner]
    watch: guards.EngineWatch
    _rollouts = 0
    _rows: Sequence[Sample] = ()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        index = self._step // (self.args.steps_per_generation * self.num_iterations)
        samples = self.play(self.stage.first + index)
        generated = time.perf_counter()
        for sample in samples:
            if sample.policy not in (self.stage.policy, *self.partners):
                sample.weight = 0.0
        for name, partner in self.partners.items():
            partner.step([one for one in samples if one.policy == name and one.weight])
        trained = [one for one in samples if one.policy == self.stage.policy and one.weight]
        bad = 0
        if "unsloth" in sys.modules:
            bad = guards.drop_padded(trained, self.processing_class.pad_token_id)
            trained = [one for one in trained if one.weight]
        rows = self._padded(trained)
        gap = self._check(trained, self.stage.first + index)
        own = self.engines.get(self.stage.policy)
        if hasattr(own, "sleep"):
            own.sleep()
        self._rows = rows
        self._last_loaded_step = self.state.global_step  # TRL pushes nothing to vLLM, engines do
        out = super()._generate_and_score_completions([{"prompt": ""} for _ in rows])
        self._beta = self.args.beta * self._kl_weight(trained)
        weighted = [(row.advantage or 0.0) * row.weight for row in rows]
        out["advantages"] = out["advantages"].new_tensor(weighted)
        out[TRAINED] = out["advantages"].new_tensor([row.role != INERT for row in rows])
        if isinstance(self, RoleKLMixin):
            held = [row.role != INERT and self._role_of(row).kl for row in rows]
            out[IN_KL] = torch.tensor(held, device=out["advantages"].device)
        if isinstance(self, WeightedKLMixin):
            out[KL_WEIGHT] = out["advantages"].new_tensor([row.weight for row in rows])
        self._record = {"samples": samples, "kl": kl_sums(rows, out), "gap": gap}
        self._record |= {"started": started, "generate": generated - started, "bad": bad}
        self._record["rows"] = len(trained)
        most = self.args.vllm_importance_sampling_clip_max
        self._record["ratio"] = ratio_sums(rows, out, most) if self.use_vllm else Counter()
        return out

    def play(self, step: int) -> list[Sample]:
        """The rows of a step, with advantages and weights; a partner's are handed over."""
        self.method.metrics = {}
        samples = run(self.method.rollout(step), self.engines)
        self.method.estimate(samples)
        self.method.select(samples)
        return samples

    def _prepare_inputs(self, generation_batch: list[dict[str, Any]]) -> dict[str, Any]:
        """The next piece of the rollout, and the KL's weight in its update."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is not before:
            self._scales = self._scale_updates()
        pieces = self.args.gradient_accumulation_steps
        self.beta = self._beta * self._scales[self._step % len(self._buffered_inputs) // pieces]
        return inputs

    def _scale_updates(self) -> list[float]:
        """Makes TRL's mean over the rows of each update, inert ones too, one over those that are
        trained in all processes; returns the factors."""
        size = self.args.gradient_accumulation_steps
        pieces = self._buffered_inputs
        updates = [pieces[first : first + size] for first in range(0, len(pieces), size)]
        if self.loss_type not in ROW_MEAN_LOSSES:
            return [1.0] * len(updates)
        own = [sum(int(piece[TRAINED].sum()) for piece in update) for update in updates]
        scales = []
        for update, trained in zip(updates, zip(*gather_object([own]), strict=True), strict=True):
            rows = sum(len(piece[TRAINED]) for piece in update)
            scales.append(rows * self.accelerator.num_processes / max(sum(trained), 1))
            for piece in update:
                piece["advantages"] = scales[-1] * piece["advantages"]
        return scales

    def _check(self, trained: list[Sample], step: int) -> float | None:
        """The guards of a rollout; the engine's gap where it is due."""
        if not self.model.training:
            raise TrainerError(
                "the rollout left the model in eval mode; TRL would take this for evaluation"
            )
        self._rollouts += 1
        logged = step < CHECKED_ROLLOUTS or not step % GAP_EVERY
        if self._rollouts > CHECKED_ROLLOUTS and not logged:
            return None
        gap = self.watch.gap(self.accelerator.unwrap_model(self.model), trained, self.temperature)
        return gap if logged else None

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

    def _padded(self, samples: list[Sample]) -> list[Sample]:
        """Appends inert rows (mask 0): TRL silently drops rows where the count does not divide."""
        divisor = math.lcm(self.args.steps_per_generation, self.num_generations)
        count = max(gather_object([max(len(samples), 1)]))
        missing = math.ceil(count / divisor) * divisor - len(samples)
        token = (self.processing_class.eos_token_id,)
        inert = Sample(token, token, (0,), (0.0,), reward=0.0, role=INERT, group=INERT)
        return samples + [inert] * missing

    def updated(self, logs: dict[str, float]) -> None:
        """With the last update of a rollout come its own metrics, for the run and for trackers;
        these get the mean over all roles as `reward`."""
        for key in [key for key in logs if key.startswith(("reward", "frac_reward"))]:
            del logs[key]  # TRL's reward function is a constant 0 here
        self._updates.append(self.reported(logs))
        if len(self._updates) == self._updates_per_step:
            row = self._step_row()
            logs |= {key: row[key] for key in row if key not in ("step", "loss", "grad_norm")}
            if rewards := [value for key, value in row.items() if key.startswith("reward/")]:
                logs["reward"] = mean_of(rewards)
            self.hooks.on_step(row, self._record["samples"])

    def _step_row(self) -> dict[str, float]:
        """The metrics of a step, the same in every process."""
        row = {"step": self.stage.first + self.state.global_step // self._updates_per_step}
        for name in dict.fromkeys(name for update in self._updates for name in update):
            row[name] = mean_of([update[name] for update in self._updates if name in update])
        self._updates = []
        if self._record["gap"] is not None:
            row["engine_gap"] = self._record["gap"]
        record = self._record
        noted = [role_sums(record["samples"])]
        noted += [record[name] for name in ("kl", "bad", "ratio", "rows")]
        sums, kl, bad, ratios, rows = zip(*gather_object([noted]), strict=True)
        row |= rollout_metrics(sums, kl)
        ratio = sum(ratios, Counter())
        if ratio["tokens"]:
            row["engine_ratio"] = ratio["ratio"] / ratio["tokens"]
            row["engine_above"] = ratio["above"] / ratio["tokens"]
        if self.parts > 1:
            row["rows_per_update"] = sum(rows) / self.parts
        if "unsloth" in sys.modules:
            row["bad_rows"] = sum(bad)
        seconds = time.perf_counter() - self._record["started"]
        tokens = row["tokens_per_second"] / seconds
        row |= {"seconds/generate": self._record["generate"], "seconds/step": seconds}
        row |= {"seconds/update": seconds - self._record["generate"], "tokens_per_second": tokens}
        for name, partner in self.partners.items():
            row |= partner.metrics(name)
        return row | method_metrics(gather_object([self.method.metrics]))


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
        TrainerError: see `attach`, `check_head` and `guards.one_temperature`.
    """
    import trl

    unsloth = "unsloth" in sys.modules
    if unsloth and not any("Unsloth" in base.__name__ for base in trl.GRPOTrainer.__mro__):
        raise TrainerError("unsloth was imported after trl's trainer; import unsloth first")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # for rollout_func: pinned, tested here
    guards.check_contract(trl.GRPOTrainer)
    stage = stage or Stage(steps=params.steps)
    params = _without_kl(params, method, stage)
    explicit = grpo_arguments(params, stage.steps, output_dir)
    logps = EntropyMixin if unsloth else logps_mixin(policy.model, params.micro_tokens)
    mixins = (*_mixins(params, method, stage, unsloth), logps)
    prompts = stage.steps * explicit["steps_per_generation"] * processes()
    own_vllm = params.engine == "vllm" and not unsloth
    settings = vllm_settings(params, policy.merged)
    with starting(settings) if own_vllm else nullcontext():
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
    if unsloth:
        trainer.ask_for_entropies()
    trainer.merged = policy.merged
    trainer.engines = engines
    trainer.partners = partners or {}
    trainer.micro_tokens = params.micro_tokens
    trainer.parts = params.parts
    trainer._updates_per_step = params.parts * params.grpo["num_iterations"]
    trainer.watch = guards.EngineWatch(guards.ENGINE_TOLERANCE[params.dtype])
    trainer._updates = []
    temperature = guards.one_temperature(method, stage.policy, params.temperature)
    trainer.temperature = trainer.args.temperature = temperature  # Unsloth's loss has that of args
    return trainer


def _learning(method: SelfPlayMethod, stage: Stage) -> dict[str, Role]:
    """The roles whose rows a stage trains."""
    return {n: r for n, r in method.roles.items() if r.trainable and r.policy == stage.policy}


def _without_kl(params: RunParams, method: SelfPlayMethod, stage: Stage) -> RunParams:
    """A stage's settings: where no row is under the KL, neither it nor the pass of a reference."""
    if any(role.kl for role in _learning(method, stage).values()):
        return params
    return params.model_copy(update={"grpo": params.grpo | {"beta": 0.0}})


def _mixins(
    params: RunParams, method: SelfPlayMethod, stage: Stage, unsloth: bool
) -> tuple[type, ...]:
    """What goes over TRL's trainer: ours, and KL by role where a role is free of it."""
    free = [name for name, role in _learning(method, stage).items() if not role.kl]
    beta = params.grpo["beta"]
    if not (beta and (free or method.kl_weighted)):
        return (SelfPlayMixin,)
    if unsloth:
        what = f"roles.{free[0]}.kl is False" if free else f"grpo.beta is {beta}"
        raise TrainerError(
            f"{what} with backend unsloth, whose loss has one KL, and one weight of it, for all "
            "rows; allowed: backend transformers, or grpo.beta 0"
        )
    return SelfPlayMixin, RoleKLMixin if free else WeightedKLMixin


def _no_reward(completions: list, **_: Any) -> list[float]:
    """TRL wants a reward function; rewards are the method's, advantages are set by the mixin."""
    return [0.0] * len(completions)
