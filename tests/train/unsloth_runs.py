"""Trains a tiny Qwen3 with a LoRA adapter in several settings and prints its metrics as JSON.

    python tests/train/unsloth_runs.py stock|unsloth FOLDER

With `unsloth` the trainer's class is the one that Unsloth writes over TRL's; all else is the same.
A process of its own for each, because the import of unsloth changes TRL for good.
"""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
STEPS = 3
ROWS = 10
SETTINGS = {
    "dr_grpo": {},
    "two iterations": {"num_iterations": 2},
    "grpo": {"loss_type": "grpo"},
    "dapo, KL": {"loss_type": "dapo", "beta": 0.1},
    "dr_grpo, KL": {"beta": 0.1},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sequences": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "num_iterations": 2,
    },
    "entropy bonus": {"entropy_coef": 0.03},
    "half of the tokens": {"top_entropy_quantile": 0.5},
    "a cooler role": {"num_iterations": 2, "temperature": 0.5},
}
"""Parameters of `grpo`, and the role's temperature where it is not 1."""


def import_unsloth(folder):
    """Unsloth on a CPU, before anything that it rewrites; without a GPU it leaves TRL's trainers
    alone, so that the one in use is rewritten by hand."""
    os.environ |= {
        "UNSLOTH_ALLOW_CPU": "1",
        "UNSLOTH_COMPILE_LOCATION": f"{folder}/compiled",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    import unsloth  # noqa: F401 I001
    import trl
    from unsloth.models import rl

    if "Unsloth" not in trl.GRPOTrainer.__name__:
        rl._patch_trl_rl_trainers_impl("grpo_trainer")


def by_trainer(script, folders):
    """What a script prints last, from JSON, with `stock` and with `unsloth`, each in a folder of
    its own (`folders` makes one by a name)."""
    found = {}
    for kind in ("stock", "unsloth"):
        folder = folders(kind)
        command = [sys.executable, str(script), kind, str(folder)]
        own = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=own, cwd=folder)
        assert done.returncode == 0, done.stderr[-3000:]
        found[kind] = json.loads(done.stdout.splitlines()[-1])
    return found


def adapted(policy):
    """A policy with the same adapter each time, and what Unsloth's loader gives a model."""
    import torch
    from peft import LoraConfig, get_peft_model

    from spnb.train.policies import LORA_TARGETS, Policy, load_policy

    torch.manual_seed(0)  # of the adapter
    loaded = load_policy(policy)
    config = LoraConfig(r=8, lora_alpha=8, target_modules=[*LORA_TARGETS], task_type="CAUSAL_LM")
    model = get_peft_model(loaded.model, config)
    model._unsloth_user_float32 = True  # else float16, where there is no bfloat16
    model.for_training = lambda use_gradient_checkpointing=True: model.train()
    model.for_inference = model.eval
    return Policy(model, loaded.tokenizer)


def method_class(sampling):
    """Ten rows a step, of different lengths and weights, some with observations inside."""
    from spnb.core.advantages import make_estimator
    from spnb.core.method import Role, SelfPlayMethod
    from spnb.core.types import Request, Trajectory, derive_seed

    class Rows(SelfPlayMethod):
        def default_roles(self):
            return {"r": Role(sampling, make_estimator("raw"))}

        def rollout(self, step):
            draw = random.Random(step)
            asked = []
            for index in range(ROWS):
                prompt = tuple(draw.randrange(3, 1400) for _ in range(draw.randrange(3, 12)))
                asked.append(Request(prompt, sampling, derive_seed(step, index)))
            rows = []
            for index, pair in enumerate(zip(asked, (yield asked), strict=True)):
                row = Trajectory.of(*pair).sample(reward=(-1.0) ** index, role="r", group=index)
                row.advantage = row.reward * (1 + 0.1 * index)
                padded = self.chat.tokenizer.pad_token_id in row.completion_ids
                row.weight = 0.0 if padded else 1 + 0.5 * (index % 3)  # as Unsloth's has it
                if index % 3 == 0 and len(row.mask) > 4:
                    row = replace(row, mask=(*row.mask[:2], 0, 0, *row.mask[4:]))
                rows.append(row)
            return rows

    return Rows


def metrics(policy, settings, folder):
    """The rows of a run's metrics, and the names of the trainer's classes."""
    from spnb.core.types import Sampling
    from spnb.train.config import RunParams
    from spnb.train.policies import make_engine
    from spnb.train.trainer import Hooks, make_trainer

    loaded = adapted(policy)
    names = dict(policy="x", paper="p", scale="smoke", variant="v")
    grpo = {"gradient_accumulation_steps": 4, "learning_rate": 2e-2} | settings
    sampling = Sampling(14, grpo.pop("temperature", 1.0))
    sizes = dict(steps=STEPS, save_every=100, max_new_tokens=14, max_length=128)
    params = RunParams(**names, **sizes, lora_rank=8, grpo=grpo)
    rows, engines = [], {}
    method = method_class(sampling)(params, loaded.tokenizer)
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    trainer = make_trainer(params, loaded, method, engines, hooks, folder)
    engines["policy"] = make_engine(params, trainer)
    trainer.train()
    return {"rows": rows, "classes": [base.__name__ for base in type(trainer).__mro__]}


def main(kind, folder):
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    if kind == "unsloth":
        import_unsloth(folder)
    import torch
    from tiny_qwen import make_policy

    torch.set_num_threads(1)
    policy = make_policy(Path(folder) / "policy")
    done = {name: metrics(policy, SETTINGS[name], Path(folder) / "out") for name in SETTINGS}
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
