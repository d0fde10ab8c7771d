"""What every trainer of a run has, whatever its loss: a stage, hooks, checkpoints to trust."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from safetensors import SafetensorError
from transformers import PrinterCallback

from spnb.core.method import POLICY, SelfPlayMethod, Share
from spnb.core.types import Sample
from spnb.train import guards
from spnb.train.arguments import check_settings
from spnb.train.checkpoints import seal
from spnb.train.guards import TrainerError


@dataclass(frozen=True)
class Stage:
    """What one trainer trains: a policy's name, the first step (from 0) and how many."""

    policy: str = POLICY
    first: int = 0
    steps: int = 1


@dataclass
class Hooks:
    """What a run wants to hear: each step's metrics and samples, and what to save with them."""

    on_step: Callable[[dict[str, float], list[Sample]], None]
    on_state: Callable[[], dict[str, Any]] = dict


class RunMixin:
    """Mixed in over a trainer of TRL: saves our state with each checkpoint and takes it back."""

    method: SelfPlayMethod
    hooks: Hooks
    stage: Stage
    _step = 0
    _restored = 0

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        methods = gather_object([self.method.state_dict()])  # each process has its own baselines
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                state = {"step": self._step, "methods": methods, "run": self.hooks.on_state()}
                seal(folder, state)
        except (OSError, RuntimeError, SafetensorError) as error:
            raise TrainerError(
                f"checkpoint {folder.name} could not be written ({error}). It will be ignored: "
                "free some disk space and start the run again, it resumes from the last complete "
                f"checkpoint in {folder.parent}"
            ) from error

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over our part of a checkpoint's state, before `train(resume_from_checkpoint)`."""
        self._restored = state["step"]
        processes = self.accelerator.num_processes
        if len(state["methods"]) != processes:
            raise TrainerError(
                f"the checkpoint was written by {len(state['methods'])} processes, and {processes} "
                "run now; allowed: as many"
            )
        self.method.load_state_dict(state["methods"][self.accelerator.process_index])


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
    trainer.method, trainer.hooks, trainer.stage = method, hooks, stage
    method.share = Share(trainer.accelerator.process_index, trainer.accelerator.num_processes)
