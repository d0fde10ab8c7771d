"""All weights of a bfloat16 policy, trained at 1e-6 by the real trainer: the masters are float32,
the computation bfloat16, as on a GPU."""

import pytest
import torch
from test_trainer import Fixed, ragged_rows, run_params
from tiny_qwen import make_policy

from spnb.train import trainer as trainers
from spnb.train.config import grpo_arguments
from spnb.train.policies import load_policy
from spnb.train.trainer import Hooks, make_trainer
from spnb.train.weights import trained_weights

STEPS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_policy(tmp_path_factory.mktemp("qwen"))


@pytest.fixture
def bf16(monkeypatch):
    """Autocast as a GPU's runs have it."""
    monkeypatch.setattr(
        trainers, "grpo_arguments", lambda *given: grpo_arguments(*given) | {"bf16": True}
    )


def share_that_moves(folder, tmp_path, masters=None, learning_rate=1e-6):
    """Of all weights, in three steps; and the dtypes in which a layer computes."""
    params = run_params(STEPS, grpo={"learning_rate": learning_rate}, dtype="bfloat16")
    policy = load_policy(folder, params)
    policy.model.to(masters)
    before, computed = trained_weights(policy.model), set()
    policy.model.model.layers[0].mlp.down_proj.register_forward_hook(
        lambda layer, inputs, output: computed.add(output.dtype)
    )
    method = Fixed([ragged_rows(step, count=8) for step in range(STEPS)], params)
    hooks = Hooks(on_step=lambda row, samples: None)
    trainer = make_trainer(params, policy, method, {}, hooks, tmp_path)
    trainer.train()
    after = trained_weights(policy.model)
    changed = sum(int((before[name] != after[name]).sum()) for name in before)
    return changed / sum(value.numel() for value in before.values()), computed


@pytest.mark.slow
def test_three_steps_move_the_float32_masters(folder, tmp_path, bf16):
    share, computed = share_that_moves(folder, tmp_path)
    assert share > 0.9 and computed == {torch.bfloat16}


@pytest.mark.slow
def test_masters_in_bfloat16_would_stay_where_they_are(folder, tmp_path, bf16):
    assert share_that_moves(folder, tmp_path, torch.bfloat16)[0] < 0.1


@pytest.mark.slow
def test_the_share_is_that_of_the_learning_rate(folder, tmp_path, bf16):
    """Steps below what float32 tells apart move less."""
    assert share_that_moves(folder, tmp_path, learning_rate=1e-10)[0] < 0.5
