"""Trains a tiny Qwen3 with a LoRA adapter on what a real vLLM writes, and prints a JSON object.

    python tests/train/unsloth_vllm_runs.py stock|unsloth FOLDER

In each step the policy, its start and a past self answer in one call. With `unsloth` the trainer's
class is the one that Unsloth writes over TRL's, the vLLM is the model's own, and Unsloth's part of
vLLM reads the adapters. `stock` also trains the same answers without a vLLM.
"""

import json
import os
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
STEPS = 3
ROWS = 8
NAMES = ("policy", "start", "past")
CUTS = {"whole": 1.0, "cut": 0.8}
"""The part of the vocabulary, by probability, from which answers are drawn."""


def change_unsloth():
    """Unsloth's own vLLM in the trainer, and its reading of adapters in vLLM: as its
    `FastLanguageModel` does on a GPU."""
    from unsloth.models.rl import patch_trl_vllm_generation
    from unsloth_zoo import vllm_utils

    patch_trl_vllm_generation()
    vllm_utils.patch_vllm(debug=False)


def give_vllm(model, params, folder):
    """The model's own vLLM, started as Unsloth's `FastLanguageModel` does."""
    import vllm_cpu
    from unsloth_zoo.vllm_utils import load_lora

    from spnb.train.engines.vllm import LOGPROBS_MODE, vllm_settings

    settings = vllm_settings(params) | {"logprobs_mode": LOGPROBS_MODE, "max_logprobs": 0}
    model.vllm_engine = vllm_cpu.start(model=folder, max_model_len=params.max_length, **settings)
    model.vllm_engine.shared_weights = True
    model.load_lora = partial(load_lora, model)


def method_class():
    """Rows whose advantage depends on what all three have answered."""
    from spnb.core.advantages import make_estimator
    from spnb.core.method import Role, SelfPlayMethod
    from spnb.core.types import Request, Trajectory, derive_seed

    class Rows(SelfPlayMethod):
        def default_roles(self):
            return {"r": Role(self.params.sampling, make_estimator("raw"))}

        def requests(self, step):
            draw = random.Random(step)
            for name in NAMES:
                for index in range(ROWS):
                    prompt = tuple(draw.randrange(3, 1400) for _ in range(draw.randrange(3, 12)))
                    sampling = replace(self.params.sampling, max_new_tokens=6 + index)
                    yield Request(prompt, sampling, derive_seed(step, index), name)

        def rollout(self, step):
            asked = [*self.requests(step)]
            answers = yield asked
            self.noted = getattr(self, "noted", {}) | dict(zip(asked, answers, strict=True))
            rows = []
            for index, (request, answer) in enumerate(zip(asked, answers, strict=True)):
                row = Trajectory.of(request, answer).sample((-1.0) ** index, "r", index)
                others = [sum(answers[index % ROWS + ROWS * place].ids) % 7 for place in (1, 2)]
                row.advantage = row.reward * (1 + 0.1 * index + 0.01 * others[0] + 0.1 * others[1])
                padded = self.chat.tokenizer.pad_token_id in row.completion_ids
                row.weight = 0.0 if padded else 1.0  # as Unsloth's has it
                rows.append(row)
            return rows

    return Rows


class Again:
    """Answers what was answered before."""

    def __init__(self, noted):
        self.noted = noted

    def generate(self, requests):
        return [self.noted[request] for request in requests]


def trained(policy, top_p, folder, noted=None):
    """A trained trainer, its weights by name, the rows of its metrics; `noted`: answers to take in
    place of a vLLM's."""
    import torch
    from unsloth_runs import adapted

    from spnb.train.config import RunParams
    from spnb.train.policies import make_engine
    from spnb.train.trainer import Hooks, make_trainer
    from spnb.train.weights import trained_weights

    loaded = adapted(policy)
    model = loaded.model
    kind = {"engine": "torch"} if noted else {"engine": "vllm", "dtype": "bfloat16"}
    grpo = {"gradient_accumulation_steps": 4, "learning_rate": 2e-2}
    grpo["adam_epsilon"] = 1e-6  # less would make differences of 1e-8 in a gradient large
    sizes = dict(steps=STEPS, save_every=100, max_new_tokens=14, max_length=128, top_p=top_p)
    names = dict(policy="x", paper="p", scale="smoke", variant="v")
    params = RunParams(**names, **sizes, **kind, lora_rank=8, grpo=grpo)
    if "unsloth" in sys.modules:
        give_vllm(model, params, policy)
    rows, engines = [], {}
    method = method_class()(params, loaded.tokenizer)
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    trainer = make_trainer(params, loaded, method, engines, hooks, folder)
    weights = {"start": trained_weights(model)}
    draw = torch.Generator().manual_seed(1)
    weights["past"] = {
        name: value + 0.1 * torch.randn(value.shape, generator=draw)
        for name, value in weights["start"].items()
    }
    if noted:
        engines |= dict.fromkeys(NAMES, Again(noted))
    else:
        engine = engines["policy"] = make_engine(params, trainer)
        engines |= {name: engine.snapshot(name, value) for name, value in weights.items()}
    trainer.train()
    return trainer, weights | {"policy": trained_weights(model)}, rows


def gaps(trainer, weights):
    """For each policy how far, in nats, its answers are from the model with its adapter, and with
    none."""
    from spnb.core.episodes import run
    from spnb.core.types import Sampling, Trajectory
    from spnb.train.guards import engine_gap
    from spnb.train.weights import put_weights

    def answered(asked):
        return (yield asked)

    asked = [replace(one, sampling=Sampling(14)) for one in trainer.method.requests(STEPS)]
    answers = run(answered(asked), trainer.engines)
    rows = [Trajectory.of(*pair).sample(0.0, "r", 0) for pair in zip(asked, answers, strict=True)]
    trainer.model.eval()
    found = {}
    for name in NAMES:
        put_weights(trainer.model, weights[name])
        own = [row for row in rows if row.policy == name]
        with trainer.model.disable_adapter():
            bare = engine_gap(trainer.model, own, count=len(own))
        found[name] = engine_gap(trainer.model, own, count=len(own)), bare
    return found


def by_zoo(trainer, folder):
    """The policy's answers with the adapter that the engine hands over in a file, with the one that
    Unsloth's `load_lora` hands over in memory, and with none; and whose code reads them."""
    engine = trainer.engines["policy"]
    asked = [replace(one, policy="policy") for one in trainer.method.requests(STEPS)]
    answers = [engine.generate(asked)]
    in_memory = trainer.model.load_lora(folder, load_tensors=True, lora_request_id=1000)
    for engine._adapter in (in_memory, None):
        answers.append(engine.generate(asked))
    reader = trainer.vllm_generation.llm.llm_engine.model_executor.driver_worker.model_runner
    ids = [[answer.ids for answer in each] for each in answers]
    return {"ids": ids, "reader": type(reader.lora_manager).__module__}


def main(kind, folder):
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    import vllm_cpu

    os.environ |= vllm_cpu.ENVIRONMENT
    import vllm  # noqa: F401 before unsloth

    if kind == "unsloth":
        from unsloth_runs import import_unsloth

        import_unsloth(folder)
        change_unsloth()
    vllm_cpu.change_trl()
    import torch
    from tiny_qwen import make_policy

    torch.set_num_threads(1)
    policy = make_policy(Path(folder) / "policy")
    done = {}
    for name, top_p in CUTS.items():
        trainer, weights, rows = trained(policy, top_p, Path(folder) / name)
        noted = trainer.method.noted
        found = {"rows": rows, "classes": [base.__name__ for base in type(trainer).__mro__]}
        found["ids"] = [answer.ids for answer in noted.values()]
        found["engines"] = len(set(map(id, trainer.engines.values())))
        if kind == "unsloth":
            found["zoo"] = by_zoo(trainer, f"{folder}/adapter")
            trainer.engines["policy"].sync()
        else:
            found["again"] = trained(policy, top_p, Path(folder) / f"{name}-again", noted)[2]
        done[name] = found | {"gaps": gaps(trainer, weights)}
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
