"""One run from its parameters to final weights: stages, evaluation, snapshots, resume.

    python -m spnb.train.run runs/spiral/cpu/full/seed-0

A run can be stopped at any moment and started again: it goes on from its last complete checkpoint
and gives bit-identical numbers on a CPU. Under `accelerate launch` every process plays, trains and
evaluates its share; only the main one records.
"""

import gc
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.utils import gather_object
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from spnb.core.disk import digests, move, sync, write_json
from spnb.core.method import SNAPSHOTS
from spnb.core.params import ParamError, require, validate
from spnb.core.types import Sample, Sampling, role_label
from spnb.evaluate.items import play_suites
from spnb.evaluate.loaders import run_suites
from spnb.methods import method_class, method_module
from spnb.train import guards
from spnb.train.config import RunParams, params_class, processes
from spnb.train.find import starting_policies
from spnb.train.grpo import GRPOParams
from spnb.train.guards import TrainerError
from spnb.train.partners import Partner
from spnb.train.policies import (
    fixed_engine,
    has_adapter,
    inputs,
    load_policy,
    make_engine,
    same_tokens,
    save_policy,
)
from spnb.train.preference import make_preference_trainer, starting_pairs
from spnb.train.runs import (
    NOTED,
    Run,
    RunError,
    compare,
    last_checkpoint,
    read_json,
    read_run,
    read_state,
)
from spnb.train.states import unreadable
from spnb.train.trainer import Hooks, Stage, as_many, make_trainer
from spnb.train.weights import Weights, put_weights, read_adapter, snapshot_engine, trained_weights

SAMPLES_KEPT = 16
"""Rows written to rollouts.jsonl at each evaluation."""
ASKED = 16
"""Answers by which an engine shows that it uses an adapter."""
DONE = "method.json"
"""The method's state and the records' rows after a stage, written last: the stage is done where it
lies."""
PAST = "past.safetensors"
"""The weights of the evaluation before, in a checkpoint."""
TRAINED = "trained.json"
"""The records' rows after all stages: only the weights are still to be collected where it lies."""


def train_run(run: Run) -> Run:
    """Trains and evaluates a run in this process, or returns it at once if it is finished.

    Raises:
        RunError: the folder cannot be used, or the run that it starts from is not finished.
        TrainerError: training cannot go on; what is computed stays.
    """
    if run.finished:
        run.check_finished()
        return run
    params = run_params(run)
    if torch.cuda.is_available():  # its own GPU; else torch takes the first that it sees
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    started = time.perf_counter()
    with run.lock(wait=processes() == 1) if _rank() == 0 else nullcontext():
        if run.finished:  # by the process that it waited for
            return run
        guards.check_card(params)
        if _rank() == 0:
            check_inputs(run, params)
        sources = starting_policies(run, params)
        left = ("checkpoints/stage-*/checkpoint-*", f"stages/*/{DONE}", TRAINED)
        resumed = any(path for pattern in left for path in run.folder.glob(pattern))
        if not torch.cuda.is_available():
            torch.set_num_threads(1)  # the same sums on any machine and beside any other run
        if not (run.folder / TRAINED).is_file():
            train_stages(run, params, sources)
        if _rank() == 0:
            noted = read_json(run.folder / TRAINED, NOTED, "delete it to go on")
            run.check_rows(noted, exact=True)
            _collect_models(run, params)
            facts = {"threads": torch.get_num_threads(), "processes": processes()}
            run.finish(seconds=round(time.perf_counter() - started, 1), resumed=resumed, **facts)
    return run


def train_stages(run: Run, params: RunParams, sources: dict[str, str]) -> None:
    """Trains the stages that are not done; at the end `TRAINED` says that all are."""
    first = 0
    origins = sources
    before: dict[str, Any] | None = None
    for index, stage in enumerate(params.all_stages):
        steps = Stage(stage.policy, first, stage.steps)
        part = StageRun(run, params, steps, index, (origins, sources))
        before = part.go(before)
        sources = sources | {stage.policy: str(part.folder)}
        first += stage.steps
        del part  # its policies leave the card before the next stage's come
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if _rank() == 0:
        write_json(run.folder / TRAINED, run.noted())


def run_params(run: Run) -> RunParams:
    """The parameters in a run's `config.json`, as an instance of its method's class."""
    model = params_class(method_module(run.paper).Method)
    values = {key: run.params[key] for key in model.model_fields if key in run.params}
    return validate(model, values)


def check_inputs(run: Run, params: RunParams) -> None:
    """Raises RunError where weights or data are not as they were when the run was planned."""
    for kind, found in inputs(params).items():
        for name, fingerprint in found.items() if kind in run.params else ():
            if fingerprint != run.params[kind].get(name):
                allowed = f"as {run.run_id} was planned with it; plan again with a changed one"
                raise RunError(f"{name} of its {kind} has changed; allowed: {allowed}")


def _collect_models(run: Run, params: RunParams) -> None:
    """Puts the last weights of each trained policy into `model/`: bare if there is one policy.

    It can be stopped anywhere and done again: what is moved already is not there to be moved.
    """
    last = {stage.policy: index for index, stage in enumerate(params.all_stages)}
    for policy, index in last.items():
        target = run.model / policy if len(last) > 1 else run.model
        source = stage_folder(run, index)
        if source.is_dir():
            if (source / DONE).exists():
                read_done(source, run)
                (source / DONE).unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            move(source, target, run.folder)
    for left in (run.folder / "stages", run.checkpoints):
        shutil.rmtree(left, ignore_errors=True)


def stage_folder(run: Run, index: int) -> Path:
    """Where a stage's final weights are until the run is finished."""
    return run.folder / "stages" / str(index)


def read_done(folder: Path, run: Run) -> dict[str, Any]:
    """What is noted of a stage that is done.

    Raises:
        RunError: it cannot be read, or the stage's weights are not as they were saved.
    """
    noted = read_json(folder / DONE, {"methods": list, **NOTED}, run.again)
    compare(folder, noted.get("weights", {}), run.again)
    return noted


Sources = tuple[dict[str, str], dict[str, str]]
"""Where each policy's weights are, before the run's first step and now."""


class StageRun:
    """One stage of a run in training, and what happens between its steps."""

    def __init__(self, run: Run, params: RunParams, stage: Stage, index: int, sources: Sources):
        self.run = run
        self.params = params
        self.stage = stage
        self.index = index
        self.origins, self.sources = sources
        self.folder = stage_folder(run, index)
        self.past: Weights | None = None

    def go(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """Trains the stage, or skips it if it is done.

        Args:
            before: what this returned for the stage before.

        Returns:
            The method's state in each process after it (`methods`), and what the run `noted` of its
            records then.

        Raises:
            RunError: what is in the run's folder does not fit together; nothing was changed.
        """
        if (self.folder / DONE).is_file():
            return read_done(self.folder, self.run)
        self.check_first()
        beside = [self.partner_checkpoints(name) for name in self.params.co_trained]
        checkpoint = last_checkpoint(self.run.checkpoints / f"stage-{self.index}", beside)
        saved = read_state(checkpoint, NOTED) if checkpoint else None
        self.build(before["methods"] if before else None)
        if self.main:
            self.run.rewind(saved["run"] if saved else before or {})
        self.trainer.accelerator.wait_for_everyone()
        if not saved and "past" in self.snapshots:
            self.keep_past(trained_weights(self.model))
        if not saved and self.index == 0:
            self.evaluate(0)
        try:
            if saved:
                self.resume(saved, checkpoint)
            for name, partner in self.partners.items():
                partner.start(checkpoint and self.partner_checkpoints(name) / checkpoint.name)
            self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except Exception as error:
            broken = checkpoint and not self.trainer.started and unreadable(checkpoint, error)
            if not broken:
                raise
            raise RunError(broken) from error
        return self.finish()

    def check_first(self) -> None:
        """Raises RunError where a later stage has begun although this one is not done."""
        for later in range(self.index + 1, len(self.params.all_stages)):
            checkpoints = self.run.checkpoints / f"stage-{later}"
            begun = (stage_folder(self.run, later) / DONE, *checkpoints.glob("checkpoint-*"))
            if any(path.exists() for path in begun):
                raise RunError(
                    f"run {self.run.run_id} has a stage {later}, and what stage {self.index} left "
                    f"in {self.folder} is gone; put it back, or delete {self.run.folder} to "
                    "compute the run again"
                )

    def build(self, methods: Sequence[dict[str, Any]] | None) -> None:
        """Loads the policies, the method, the trainer and the engines; `methods`: each process's
        state of the method after the stage before."""
        params = self.params
        transformers.set_seed(params.seed)  # a new LoRA adapter is drawn before the trainer seeds
        self.first, self.now = (at[self.stage.policy] for at in (self.origins, self.sources))
        method = method_class(params.paper, params)
        to_start = method.kl_to_start(params)
        unmerged = params.lora_rank > 0 and method.unmerged(params)
        self.adapters = unmerged and not has_adapter(self.first)
        policy = load_policy(self.first if self.adapters else self.now, params)
        self.method = method(params, policy.tokenizer)
        if methods is not None:
            as_many("stage before", len(methods), processes())
            self.method.load_state_dict(methods[_rank()])
        self.engines: dict[str, Any] = {}
        hooks = Hooks(on_step=self.on_step, on_state=self.on_state)
        output = self.run.checkpoints / f"stage-{self.index}"
        self.partners = {name: self.partner(name) for name in params.co_trained}
        if params.preference:
            self.trainer = make_preference_trainer(params, policy, self.method, hooks, output)
        else:
            self.trainer = make_trainer(
                params, policy, self.method, self.engines, hooks, output, self.stage, self.partners
            )
        if to_start and self.now != self.first and not self.adapters:
            hold_to(self.trainer, self.first, params)
        elif has_adapter(self.now) and not params.lora_rank:
            hold_to(self.trainer, self.now, params)
        self.main = self.trainer.accelerator.is_main_process
        self.model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        self.engines[self.stage.policy] = make_engine(params, self.trainer)
        if params.engine == "vllm" and params.lora_rank:
            self.check_adapter()
        if params.lora_rank:
            self.new_adapter = trained_weights(self.model)
        names = {role.policy for role in self.method.roles.values()}
        used = {role.policy for role in self.method.default_roles().values()} | names
        used |= {*params.co_trained, *(stage.policy for stage in params.all_stages)}
        if unused := sorted({*params.policies} - used):
            allowed = f"what a role (roles.<role>.policy) or stage has: {', '.join(sorted(used))}"
            raise ParamError(f"policies has {unused[0]!r}, which nothing uses; allowed: {allowed}")
        for name in sorted(names - {self.stage.policy, *self.partners, *SNAPSHOTS}):
            require("policy of a role", name, [*self.sources, *SNAPSHOTS])
            self.engines[name] = self.beside(name, policy.tokenizer)
        if self.adapters:
            put_weights(self.model, self.adapter(self.stage.policy))
        self.snapshots = {*self.method.snapshots, *names} & {*SNAPSHOTS}
        if "start" in self.snapshots:
            self.engines["start"] = self.starting_engine(policy.tokenizer)
        if params.preference:
            file = self.run.folder / "pairs.jsonl"
            self.trainer.take(starting_pairs(file, self.trainer, self.engines))

    def check_adapter(self) -> None:
        """Asks the engine something, to see that it answers with the adapter."""
        asked = [{"role": "user", "content": "Write a line about the sea."}]
        requests = [self.method.chat.request(asked, Sampling(32), seed) for seed in range(ASKED)]
        guards.check_adapter(self.model, self.engines[self.stage.policy], requests)

    def beside(self, name: str, tokenizer: Any) -> Any:
        """An engine of a policy that does not learn in this stage: where adapters are trained and
        it began as the same weights, another adapter of the one model, or none; vLLM's without its
        adapter where these are the weights below it."""
        below = self.params.engine == "vllm" and self.params.lora_rank and not has_adapter(self.now)
        same = below and self.sources[name] == self.now
        if self.adapters:
            same = self.origins[name] == self.first
        if not same or name in self.params.servers:
            return fixed_engine(name, self.sources[name], self.params, tokenizer)
        return self.snapshot(name, self.adapter(name))

    def starting_engine(self, tokenizer: Any) -> Any:
        """The policy in training as it was before the run's first step, in a later stage too."""
        if self.adapters:
            return self.snapshot("start", self.new_adapter)
        if self.now == self.first:
            return self.snapshot("start", trained_weights(self.model))
        return fixed_engine("start", self.first, self.params, tokenizer)

    def adapter(self, name: str) -> Weights:
        """A policy's adapter as it is now: that of its last stage, or the new one, which changes
        nothing."""
        if self.sources[name] == self.origins[name]:
            return self.new_adapter
        return read_adapter(self.model, self.sources[name])

    def partner(self, name: str) -> Partner:
        """A policy that learns in the same steps, with its trainer and engine."""
        changed = self.params.grpo | self.params.co_trained[name]
        changed = validate(GRPOParams, changed, f"co_trained.{name}.").resolved()
        params = self.params.model_copy(update={"grpo": changed, "report_to": "none"})
        policy = load_policy(self.sources[name], params)
        same_tokens(self.sources[name], policy.tokenizer, self.method.chat.tokenizer)
        stage = replace(self.stage, policy=name)
        output = self.partner_checkpoints(name)
        hooks = Hooks(on_step=lambda row, samples: None)
        trainer = make_trainer(params, policy, self.method, self.engines, hooks, output, stage)
        if has_adapter(self.sources[name]) and not params.lora_rank:
            hold_to(trainer, self.sources[name], params)
        self.engines[name] = make_engine(params, trainer)
        return Partner(trainer)

    def partner_checkpoints(self, name: str) -> Path:
        """Where a partner's checkpoints are; those of a step are written before the leader's."""
        return self.run.checkpoints / f"beside-{name}"

    def snapshot(self, name: str, weights: Weights) -> Any:
        """The engine of a policy with earlier weights of the one in training."""
        return snapshot_engine(self.engines[self.stage.policy], self.model, name, weights)

    def keep_past(self, weights: Weights) -> None:
        """Has the past policy answer with these weights."""
        self.past = weights
        self.engines["past"] = self.snapshot("past", weights)

    def resume(self, state: dict[str, Any], checkpoint: Path) -> None:
        """Takes the trainer and the past policy back to a checkpoint."""
        self.trainer.restore(state)
        if (checkpoint / PAST).is_file():
            self.keep_past(load_file(checkpoint / PAST))

    def on_step(self, row: dict[str, float], samples: list[Sample]) -> None:
        """Records a step; evaluates and keeps weights where it is due."""
        step = int(row["step"])
        if self.main:
            self.run.append("metrics", row)
        if step % self.params.eval_every == 0 or step == self.params.steps:
            if self.main:
                chosen = samples[:: max(1, len(samples) // SAMPLES_KEPT)]
                self.run.append("rollouts", *(self.record(step, sample) for sample in chosen))
            self.evaluate(step)
        if step in self.params.kept_steps:
            kept = self.run.folder / "kept" / f"step-{step}"
            save_policy(self.trainer, kept)
            if self.main:
                sync(kept, self.run.folder)

    def record(self, step: int, sample: Sample) -> dict[str, Any]:
        """A sample as it is kept for reading."""
        return {
            "step": step,
            "role": role_label(sample.role),
            "policy": sample.policy,
            "reward": sample.reward,
            "advantage": sample.advantage,
            "weight": sample.weight,
            "prompt": self.trainer.processing_class.decode(sample.prompt_ids),
            **sample.info,
        }

    def evaluate(self, step: int) -> None:
        """Every process plays its share of the suites, with vLLM of all at once, as it takes what
        it has room for; then the weights become the past policy."""
        params = self.params
        end = step in (0, self.params.steps)
        plain = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
        how = (params.paper, plain, end, self.method.by_search, params.max_length)
        suites = [*self.method.suites(step), *run_suites(params.benchmarks, self.method.chat, *how)]
        share = self.method.share
        vllm = params.engine == "vllm"
        # before the first step too in the arithmetic of the others
        half = params.dtype == "bfloat16" and torch.cuda.is_available()
        with nullcontext() if vllm else torch.autocast("cuda", torch.bfloat16, enabled=half):
            for group in [suites] if vllm else [[suite] for suite in suites]:
                for records, rows in play_suites(group, self.engines, share):
                    if self.main:
                        self.run.append("items", *({"step": step, **record} for record in records))
                        self.run.append("evals", *({**row, "step": step} for row in rows))
        if "past" in self.snapshots:
            self.keep_past(trained_weights(self.model))

    def on_state(self, checkpoint: Path) -> dict[str, Any]:
        """Our part of a checkpoint: what is noted of the records, and in a file the past policy."""
        if self.past is not None:
            save_file(self.past, checkpoint / PAST)
        return self.run.noted()

    def finish(self) -> dict[str, Any]:
        """Saves the stage's weights; on a full disk the last checkpoint is there to go on from."""
        try:
            save_policy(self.trainer, self.folder)
            for name, partner in self.partners.items():
                save_policy(partner.trainer, self.folder / name)
            if self.main:
                sync(self.folder, self.run.folder)
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"the final weights of {self.run.run_id} could not be written ({error}); free some "
                "disk space and start the run again, it goes on from its last checkpoint"
            ) from error
        self.trainer.accelerator.wait_for_everyone()
        methods = gather_object([self.method.state_dict()])
        state = {"methods": methods, "weights": digests(self.folder)}
        noted = state | self.run.noted()
        if self.main:
            write_json(self.folder / DONE, noted)
            shutil.rmtree(self.run.checkpoints, ignore_errors=True)  # nothing goes on from these
            self.drop_earlier()
        self.trainer.accelerator.wait_for_everyone()
        return noted

    def drop_earlier(self) -> None:
        """Deletes what this policy's earlier stages left, from which nothing goes on, but what is
        noted of them."""
        for index, stage in enumerate(self.params.all_stages[: self.index]):
            folder = stage_folder(self.run, index)
            if stage.policy == self.stage.policy:
                write_json(folder / DONE, read_json(folder / DONE, {}) | {"weights": {}})
                for path in folder.rglob("*"):
                    if path.is_file() and path.name != DONE:
                        path.unlink()


def hold_to(trainer: Any, source: str, params: RunParams) -> None:
    """Takes the KL of `grpo.beta`, where there is one, to the weights of `source`."""
    if params.grpo["beta"] and trainer.args.beta:  # a stage may have no row under the KL
        full = not (params.lora_rank or trainer.is_deepspeed_enabled)  # as TRL's own is
        model = load_policy(source, params, trained=full).model.eval()
        trainer.ref_model = trainer.accelerator.prepare_model(model, evaluation_mode=True)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def main(folder: Path) -> None:
    """Trains the run of a folder; what stops it is said in one sentence, and exit code 1."""
    try:
        train_run(read_run(folder))
    except torch.OutOfMemoryError as error:
        fewer = "lower gpu_memory or micro_tokens, or set gradient_checkpointing or vllm_sleep"
        sys.exit(f"error: the GPU has no room ({error}); {fewer}, and start again: it goes on")
    except (RunError, TrainerError, ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
