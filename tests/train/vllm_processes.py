"""Nine requests a step, shared out to the processes there are, each with a vLLM of its own; writes
what was answered and each step's metrics as JSON.

python tests/vllm_cpu.py tests/train/vllm_processes.py POLICY LORA_RANK FOLDER FILE
"""

import json
import sys
from pathlib import Path

from accelerate.utils import gather_object

from spnb.core.advantages import make_estimator
from spnb.core.method import Role, SelfPlayMethod
from spnb.core.types import Request, Sampling, Trajectory, derive_seed
from spnb.train.config import RunParams
from spnb.train.policies import load_policy, make_engine
from spnb.train.trainer import Hooks, make_trainer
from spnb.train.weights import snapshot_engine, trained_weights

STEPS = 3
COUNT = 9


class Asked(SelfPlayMethod):
    """The policy answers all but the first request, which one process alone asks of its start."""

    answers = ()

    def default_roles(self):
        return {"r": Role(Sampling(12), make_estimator("raw"))}

    def rollout(self, step):
        mine = self.share.part(range(COUNT))
        asked = [
            Request(
                (5, 6, *range(7, 8 + index)),
                Sampling(6 + index),
                derive_seed(step, index),
                "policy" if index else "start",
            )
            for index in mine
        ]
        rows = []
        for index, pair in zip(mine, zip(asked, (yield asked), strict=True), strict=True):
            row = Trajectory.of(*pair).sample((-1.0) ** index, "r", index)
            row.advantage = row.reward * (1 + 0.1 * index)
            rows.append(row)
            self.answers = [*self.answers, (step, index, row.completion_ids)]
        return rows


def main(policy, lora_rank, folder, file):
    names = dict(policy="x", paper="p", scale="smoke", variant="v", steps=STEPS, save_every=100)
    sizes = dict(max_new_tokens=16, max_length=64, lora_rank=int(lora_rank))
    grpo = {"learning_rate": 1e-2, "gradient_accumulation_steps": 2, "adam_epsilon": 1e-6}
    params = RunParams(**names, **sizes, grpo=grpo, engine="vllm", dtype="bfloat16")
    loaded = load_policy(policy, params)
    loaded.model.float()  # as vLLM computes here
    rows, engines = [], {}
    method = Asked(params, loaded.tokenizer)
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    trainer = make_trainer(params, loaded, method, engines, hooks, Path(folder))
    model = trainer.accelerator.unwrap_model(trainer.model)
    before = trained_weights(model)
    engines["policy"] = make_engine(params, trainer)
    engines["start"] = snapshot_engine(engines["policy"], model, "start", before)
    trainer.train()
    after = trained_weights(model)
    moved = sum((after[name] - before[name]).abs().sum().item() for name in before)
    answers = sorted(gather_object(method.answers))
    if trainer.accelerator.is_main_process:
        counts = {"processes": trainer.accelerator.num_processes, "own": len(method.answers)}
        done = {"rows": rows, "answers": answers, "moved": moved}
        Path(file).write_text(json.dumps(done | counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
