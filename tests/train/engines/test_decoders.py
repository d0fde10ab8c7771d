"""The fast decoder against transformers' own forward pass: the same numbers."""

import random

import pytest
import torch
import transformers
from transformers import Qwen3Config, Qwen3ForCausalLM

from spnb.core.types import Request, Sampling
from spnb.lab import decoder
from spnb.train.engines import decoders
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy


def requests(tokenizer, count, group=1, seed=0, longest=90):
    rng = random.Random(seed)
    prompts = [
        tuple(rng.randrange(5, len(tokenizer)) for _ in range(rng.randint(1, longest)))
        for _ in range(count)
    ]
    sampling = Sampling(24, top_p=0.9 if seed % 2 else 1.0)
    return [Request(p, sampling, 31 * i + k) for i, p in enumerate(prompts) for k in range(group)]


def by_transformers(engine, asked, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(decoder.Qwen3Decoder, "fits", staticmethod(lambda model: False))
        return engine.generate(asked)


@pytest.mark.parametrize(
    "count, group",
    [
        *((1, 1), (2, 1), (7, 3), (26, 1)),
        pytest.param(61, 2, marks=pytest.mark.slow),
        pytest.param(33, 8, marks=pytest.mark.slow),
    ],
)
def test_the_embedded_policy_answers_the_same(count, group, monkeypatch):
    policy = load_policy("embedded/games")
    engine = policy.engine()
    assert decoder.Qwen3Decoder.fits(policy.model)
    asked = requests(policy.tokenizer, count, group, seed=count)
    expected = by_transformers(engine, asked, monkeypatch)
    answers = engine.generate(asked)
    assert [answer.ids for answer in answers] == [answer.ids for answer in expected]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.logps == pytest.approx(other.logps, abs=1e-5)


def test_prompts_of_one_length_and_long_prefills_in_parts(tiny_model, tokenizer, monkeypatch):
    monkeypatch.setattr(decoder, "PREFILL_TOKENS", 64)
    engine = TorchEngine(tiny_model, tokenizer)
    asked = [Request(tuple(range(5 + i, 25 + i)), Sampling(16), i) for i in range(9)]
    expected = by_transformers(engine, asked, monkeypatch)
    for answer, other in zip(engine.generate(asked), expected, strict=True):
        assert answer.ids == other.ids and answer.logps == pytest.approx(other.logps, abs=1e-5)


def changed(**values):
    shape = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    heads = dict(num_attention_heads=2, num_key_value_heads=2, head_dim=16)
    return Qwen3ForCausalLM(Qwen3Config(**{**shape, **heads, **values}))


def test_only_what_it_knows_is_run_by_the_fast_decoder(tokenizer):
    from peft import LoraConfig, get_peft_model, inject_adapter_in_model

    fits = decoder.Qwen3Decoder.fits
    assert fits(changed())
    assert not fits(changed().to(torch.bfloat16))
    assert not fits(changed(num_key_value_heads=1))
    assert not fits(changed(attention_bias=True))
    assert not fits(changed(hidden_act="gelu"))
    assert not fits(changed(attn_implementation="eager"))
    assert not fits(changed(use_sliding_window=True, sliding_window=8, max_window_layers=0))
    config = LoraConfig(r=2, target_modules=["q_proj"])
    assert not fits(get_peft_model(changed(), config))
    assert not fits(inject_adapter_in_model(config, changed()))


@pytest.mark.parametrize("name", ["Lfm2", "Qwen3Next", "Qwen3"])
def test_a_model_with_linear_attention_goes_on_with_the_rows_that_are_kept(name):
    """Its state is no keys and values: what it says next is what it says of the whole row."""
    shape = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
    shape |= dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    kinds = {"Lfm2": "conv", "Qwen3Next": "linear_attention"}
    if name in kinds:
        shape |= dict(layer_types=[kinds[name], "full_attention"])
    if name == "Qwen3Next":
        shape |= dict(num_experts=0, linear_num_value_heads=2, linear_num_key_heads=2)
        shape |= dict(linear_key_head_dim=16, linear_value_head_dim=16)
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**shape)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    plain = decoders.Decoder(model, 0)
    with torch.no_grad():
        plain.prefill([(5, 6, 7), (8, 9)], torch.tensor([0, 1, 1]), 4)
        plain.keep(torch.tensor([2, 0]))
        after = plain.step(torch.tensor([10, 11]))
        expected = [model(torch.tensor([ids])).logits[0, -1] for ids in ([8, 9, 10], [5, 6, 7, 11])]
    torch.testing.assert_close(after, torch.stack(expected), atol=1e-5, rtol=1e-4)


def test_other_models_are_run_by_transformers():
    model = changed(num_key_value_heads=1).eval()
    plain = decoders.make_decoder(model, 0)
    assert type(plain) is decoders.Decoder
    with torch.no_grad():
        logits = plain.prefill([(5, 6, 7), (8,)], torch.tensor([0, 1, 1]), 4)
        plain.keep(torch.tensor([0, 2]))
        after = plain.step(torch.tensor([9, 10]))
        expected = [model(torch.tensor([ids])).logits[0, -1] for ids in ([5, 6, 7, 9], [8, 10])]
    assert logits.shape == (3, 64)
    torch.testing.assert_close(after, torch.stack(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_end_early_leave_the_others_as_they_are(tiny_model, tokenizer, monkeypatch, seed):
    tiny_model.generation_config.eos_token_id = list(range(5, 45))
    engine = TorchEngine(tiny_model, tokenizer)
    asked = requests(tokenizer, 24, 2, seed=seed)
    expected = by_transformers(engine, asked, monkeypatch)
    answers = engine.generate(asked)
    assert [answer.ids for answer in answers] == [answer.ids for answer in expected]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.logps == pytest.approx(other.logps, abs=1e-5)
    ended = [len(answer.ids) for answer in answers if answer.finish == "stop"]
    assert len(ended) > 24 and len(set(ended)) > 5  # so the cache was made smaller
