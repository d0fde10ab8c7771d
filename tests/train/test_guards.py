"""Guards: each stops what it is for, and nothing else."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import trl

from spnb.core.advantages import make_estimator
from spnb.core.method import Role
from spnb.core.types import Completion, Request, Sample, Sampling
from spnb.train import guards
from spnb.train.guards import EngineWatch, TrainerError, check_adapter, engine_gap, token_logps


def rows(model, temperature=1.0, roles=("a", "b", "c", "d")):
    torch.manual_seed(0)
    samples = []
    for role in roles:
        ids = tuple(torch.randint(5, 300, (9,)).tolist())
        row = Sample(ids[:3], ids[3:], (1, 0, 1, 1, 1, 1), None, 0.0, role=role, group=0)
        row.logps = tuple(token_logps(model, row, temperature).tolist())
        samples.append(row)
    return samples


def test_log_probabilities_are_the_models(tiny_model):
    row = Sample((5, 6, 7), (8, 9, 10), (1, 1, 1), None, 0.0, role="a", group=0)
    with torch.no_grad():
        logits = tiny_model(torch.tensor([[5, 6, 7, 8, 9, 10]])).logits[0, 2:-1] / 0.7
    expected = logits.log_softmax(-1)[[0, 1, 2], [8, 9, 10]]
    torch.testing.assert_close(token_logps(tiny_model, row, 0.7), expected, atol=1e-5, rtol=0)


def test_long_completions_go_in_chunks_of_the_vocabulary(tiny_model, monkeypatch):
    row = Sample((5,) * 4, tuple(range(5, 35)), (1,) * 30, None, 0.0, role="a", group=0)
    whole = token_logps(tiny_model, row)
    monkeypatch.setattr(guards, "CHUNK", 8)
    shapes = []
    hook = tiny_model.register_forward_hook(lambda m, a, out: shapes.append(out.logits.shape[1]))
    torch.testing.assert_close(token_logps(tiny_model, row), whole, atol=1e-5, rtol=0)
    hook.remove()
    assert shapes == [8, 8, 8, 6]


def test_the_gap_is_a_mean_over_sampled_tokens_of_both_signs(tiny_model):
    samples = rows(tiny_model)
    shifts = (0.3, 9.0, -0.1, 0.0, 0.0, 0.0)  # the second token was not sampled
    samples[0].logps = tuple(a + b for a, b in zip(samples[0].logps, shifts, strict=True))
    assert engine_gap(tiny_model, samples[:1]) == pytest.approx(0.4 / 5, abs=1e-5)
    longer = Sample((5,), tuple(range(6, 21)), (1,) * 15, None, 0.0, role="a", group=0)
    longer.logps = tuple(token_logps(tiny_model, longer).tolist())
    assert engine_gap(tiny_model, [samples[0], longer]) == pytest.approx(0.4 / 20, abs=1e-5)
    searched = ((math.nan,) * 5, (0.0,) * 5, (math.nan,) * 5)  # a cut draw, what was found, another
    for logps in (None, (math.nan,) * 15, sum(searched, ())):
        longer.logps = logps
        longer.mask = tuple(int(logp != 0) for logp in logps or longer.mask)
        assert engine_gap(tiny_model, [longer]) is None
        assert engine_gap(tiny_model, [samples[0], longer]) == pytest.approx(0.4 / 5, abs=1e-5)
        assert EngineWatch(1e-3).gap(tiny_model, [longer]) is None


def test_the_rows_that_are_compared_are_spread_over_all(tiny_model):
    """The last four of eight are off by 1 nat: of every second row two of four."""
    samples = rows(tiny_model, roles="abcdefgh")
    for row in samples[4:]:
        row.logps = tuple(logp + 1 for logp in row.logps)
    assert engine_gap(tiny_model, samples, count=4) == pytest.approx(0.5, abs=1e-5)


def test_an_engine_is_compared_at_the_temperature_of_its_samples(tiny_model):
    hot = rows(tiny_model, 2.0)
    assert EngineWatch(1e-3).gap(tiny_model, hot, 2.0) < 1e-5
    assert EngineWatch(1e-3).gap(tiny_model, hot) > 0.01


def test_an_engine_with_other_weights_is_caught_the_second_time_in_a_row(tiny_model):
    samples = rows(tiny_model)
    watch = EngineWatch(1e-3)
    assert watch.gap(tiny_model, samples) < 1e-5
    weight = tiny_model.model.layers[0].mlp.down_proj.weight
    kept = weight.detach().clone()
    other = kept * 3
    for value in (other, kept, other):
        weight.data.copy_(value)
        watch.gap(tiny_model, samples)
    with pytest.raises(TrainerError, match="does not generate with the weights in training"):
        watch.gap(tiny_model, samples)
    weight.data.copy_(kept)
    samples[0].logps = (math.nan, *samples[0].logps[1:])
    watch = EngineWatch(1e9)
    assert math.isnan(watch.gap(tiny_model, samples))
    with pytest.raises(TrainerError, match="nan nats"):
        watch.gap(tiny_model, samples)


@pytest.mark.slow
def test_a_few_rows_that_are_far_off_are_not_the_engines_fault(tiny_model):
    """The first four rows differ by 1 nat, the other sixty not: in 2,000 tokens that is little."""
    samples = rows(tiny_model) * 32
    odd = replace(samples[0], logps=tuple(value + 1 for value in samples[0].logps))
    step = len(samples) // 4
    mixed = [odd if place % step == 0 else sample for place, sample in enumerate(samples)]
    watch = EngineWatch(0.1)
    for _ in range(3):
        assert watch.gap(tiny_model, mixed) == pytest.approx(4 / len(samples), abs=0.02)


class Answering:
    """Two tokens for each request, scored by a model as it is at that moment."""

    def __init__(self, model):
        self.model = model

    def generate(self, requests):
        answers = []
        for request in requests:
            ids = (6 + request.seed % 5, 7)
            row = Sample(request.prompt_ids, ids, (1, 1), None, 0.0, "", "")
            logps = tuple(token_logps(self.model, row).tolist())
            answers.append(Completion(ids, logps, "", "stop"))
        return answers


def test_an_engine_without_the_adapter_is_caught_at_the_start(tiny_model):
    from peft import LoraConfig, get_peft_model

    base = Answering(copy.deepcopy(tiny_model))
    model = get_peft_model(tiny_model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    requests = [Request((5, 9), Sampling(2), seed) for seed in range(8)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_adapter(model, Answering(model), requests)
    with pytest.raises(TrainerError, match="does not generate with the LoRA adapter"):
        check_adapter(model, base, requests)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_rows_with_a_pad_token_inside_get_no_weight():
    fine = Sample((5, 6), (7, 8), (1, 1), None, 0.0, role=("g", 1), group=0)
    assert guards.drop_padded([fine], pad_id=2) == 0 and fine.weight == 1
    for pad in (6, 8):
        row, other = replace(fine), replace(fine, prompt_ids=(1,), completion_ids=(3, 4))
        assert guards.drop_padded([row, other], pad) == 1
        assert (row.weight, other.weight) == (0, 1)


def test_sharded_weights_are_refused():
    def accelerator(**state):
        return SimpleNamespace(state=SimpleNamespace(**state))

    for stage in (0, 1, 2):
        guards.refuse_sharded(accelerator(deepspeed_plugin=SimpleNamespace(zero_stage=stage)))
    guards.refuse_sharded(accelerator(fsdp_plugin=None, deepspeed_plugin=None))
    with pytest.raises(TrainerError, match="FSDP; allowed: DDP .* or DeepSpeed ZeRO-2"):
        guards.refuse_sharded(accelerator(fsdp_plugin=object()))
    with pytest.raises(TrainerError, match="DeepSpeed ZeRO-3; allowed: DDP"):
        guards.refuse_sharded(accelerator(deepspeed_plugin=SimpleNamespace(zero_stage=3)))


@pytest.mark.parametrize("loss, norm", [(math.nan, 1.0), (math.inf, None), (0.0, -math.inf)])
def test_numbers_that_are_not_finite_stop_the_run(loss, norm):
    guards.check_finite(0.0, None, 1)
    guards.check_finite(-3.0, 2.0, 1)
    with pytest.raises(TrainerError, match="at update 7"):
        guards.check_finite(loss, norm, 7)


def test_trls_trainer_is_the_one_that_ours_stands_on():
    guards.check_contract(trl.GRPOTrainer)


@pytest.mark.parametrize(
    "name", ["_generate_and_score_completions", "_get_per_token_logps_and_entropies"]
)
def test_a_method_with_other_parameters_is_caught(name):
    changed = type("Changed", (trl.GRPOTrainer,), {name: lambda self, other: None})
    with pytest.raises(TrainerError, match=f"Changed is not .*{name}"):
        guards.check_contract(changed)
    wrapped = type("Wrapped", (trl.GRPOTrainer,), {name: lambda self, *args, **kwargs: None})
    guards.check_contract(wrapped)


def test_names_count_only_whole(monkeypatch):
    def close(self):
        return self.my_step, "env_masks"

    assert {"my_step", "env_masks"} <= set(guards.names_in(close.__code__))
    assert not {"_step", "env_mask"} & set(guards.names_in(close.__code__))
    contract = {"GRPOTrainer": {"methods": {}, "names": ["env_mas"]}}
    monkeypatch.setattr(guards, "trl_names", lambda: {"contract": contract})
    with pytest.raises(TrainerError, match=r"env_mas \(gone\)"):
        guards.check_contract(trl.GRPOTrainer)


def test_the_temperature_of_the_loss_is_that_of_the_roles_that_learn():
    learns = Role(Sampling(4, 0.5), make_estimator("raw"))
    judge = Role(Sampling(4, 0.9), make_estimator("raw"), trainable=False)
    made = SimpleNamespace(roles={"r": learns, "judge": judge})
    assert guards.one_temperature(made, "policy", 1.0) == 0.5
    assert guards.one_temperature(made, "another", 1.0) == 1.0
    made.roles["r"] = Role(Sampling(4, 0.0), make_estimator("raw"))
    with pytest.raises(TrainerError, match=r"have temperatures \[0.0\]; allowed: one above 0"):
        guards.one_temperature(made, "policy", 1.0)
