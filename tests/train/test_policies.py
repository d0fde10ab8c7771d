"""Loading, fingerprints, past selves."""

import pytest
import torch

from spnb.core.params import RunParams
from spnb.core.types import Request, Sampling
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import (
    PolicyError,
    SnapshotEngine,
    fixed_engine,
    load_policy,
    policy_fingerprint,
    policy_path,
    trained_weights,
)

PARAMS = RunParams(paper="p", scale="smoke", variant="v", seed=0)


def test_the_embedded_policy_loads_ready_to_train():
    policy = load_policy(PARAMS)
    assert (
        policy.model.training
        and policy.model.config.model_type == "qwen3"
        and policy.peft_config is None
    )
    assert next(policy.model.parameters()).dtype == torch.float32
    assert load_policy(PARAMS.model_copy(update={"lora_rank": 4})).peft_config.r == 4


def test_paths_and_fingerprints(tmp_path, tiny_model):
    assert policy_path("embedded/games").endswith("games")
    assert policy_path("org/some-model") == "org/some-model" == policy_fingerprint("org/some-model")
    tiny_model.save_pretrained(tmp_path)
    first = policy_fingerprint(str(tmp_path))
    with torch.no_grad():
        tiny_model.lm_head.weight[0, 0] += 1
    tiny_model.save_pretrained(tmp_path)
    assert len(first) == 12 and policy_fingerprint(str(tmp_path)) != first
    with pytest.raises(
        ValueError,
        match="embedded policy is 'x'; allowed: base, base-large, games, games-rival, inst",
    ):
        policy_path("embedded/x")


def test_a_past_self_answers_with_its_own_weights_and_puts_the_others_back(tiny_model, tokenizer):
    engine = TorchEngine(tiny_model, tokenizer)
    asked = [Request((5, 6, 7), Sampling(12), seed) for seed in range(4)]
    then, past = engine.generate(asked), trained_weights(tiny_model)
    with torch.no_grad():
        for parameter in tiny_model.parameters():
            parameter.mul_(0.5)
    now = engine.generate(asked)
    assert now != then
    assert SnapshotEngine(engine, tiny_model, past).generate(asked) == then
    assert engine.generate(asked) == now


def test_weights_are_put_back_after_an_error(tiny_model, tokenizer):
    class Broken:
        def generate(self, requests):
            raise RuntimeError("no answer")

    past = {
        name: torch.zeros_like(weights) for name, weights in trained_weights(tiny_model).items()
    }
    before = trained_weights(tiny_model)
    with pytest.raises(RuntimeError, match="no answer"):
        SnapshotEngine(Broken(), tiny_model, past).generate([])
    assert all(
        torch.equal(before[name], weights) for name, weights in trained_weights(tiny_model).items()
    )


def test_a_fixed_engine_has_its_own_weights_and_must_read_the_same_tokens():
    learner = load_policy(PARAMS)
    rival = fixed_engine(
        "embedded/games-rival", PARAMS.model_copy(update={"lora_rank": 4}), learner.tokenizer
    )
    assert not rival.model.training and next(rival.model.parameters()).dtype == torch.float32
    pairs = zip(rival.model.parameters(), learner.model.parameters(), strict=True)
    assert (
        all(a.shape == b.shape for a, b in pairs)
        and rival.tokenizer.get_vocab() == learner.tokenizer.get_vocab()
    )
    assert not torch.equal(rival.model.lm_head.weight, learner.model.lm_head.weight)
    with pytest.raises(
        PolicyError,
        match="policy is 'embedded/instruct', whose vocabulary is not that of 'embedded/g",
    ):
        fixed_engine("embedded/instruct", PARAMS, learner.tokenizer)
