"""A run's parameters: what ships, how layers merge, what is refused and in which words."""

import dataclasses

import pytest
import torch
import trl
from transformers import get_scheduler
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from spnb.core.params import SCALES, ParamError, papers, scale_values, validate, variants
from spnb.methods import method_module
from spnb.train.config import RunParams, changed_values, merge, params_class, variant_layers
from spnb.train.grpo import GRPOParams, trl_names
from spnb.train.plan import Session

IDENTITY = {"paper": "spiral", "scale": "cpu", "variant": "full", "policy": "x"}


@pytest.mark.parametrize("paper", papers())
def test_every_shipped_scale_and_variant_is_valid(paper):
    model = params_class(method_module(paper).Method)
    for scale in SCALES:
        values = scale_values(paper, scale)
        values = {key: value for key, value in values.items() if key not in Session.model_fields}
        for name, entry in variants(paper).items():
            assert entry["about"].endswith((".", "?"))
            if scale not in entry.get("scales", SCALES):
                continue
            identity = {"paper": paper, "variant": name, "scale": scale}
            validate(model, merge(values, variant_layers(entry, scale), identity))
    assert any(entry.get("headline") for entry in variants(paper).values())


def test_names_of_trl_are_those_of_the_pinned_one():
    names = trl_names()
    of = {
        config: {field.name for field in dataclasses.fields(getattr(trl, config))}
        for config in ("GRPOConfig", "DPOConfig")
    }
    assert {*names["owned"], *GRPOParams.model_fields} <= of["GRPOConfig"]
    assert {*names["shared"]} <= {*GRPOParams.model_fields} & of["DPOConfig"]
    assert {*names["optim"]} <= {one.value for one in OptimizerNames}
    assert {*names["lr_scheduler_type"]} <= {one.value for one in SchedulerType}


def test_every_schedule_takes_what_it_may_be_given():
    for name, keys in trl_names()["lr_scheduler_type"].items():
        keys = [key for key in keys if key != "min_lr_rate"]
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        own = {"scheduler_specific_kwargs": dict.fromkeys(keys, 0.5)}
        schedule = get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=9, **own)
        optimizer.step()
        schedule.step()
        assert schedule.get_last_lr()[0] > 0
        GRPOParams(lr_scheduler_type=name, lr_scheduler_kwargs=dict.fromkeys(keys, 0.5))


def test_settings_of_trl_that_a_run_need_not_have():
    entropy = {"use_adaptive_entropy": True, "entropy_coef_min": 0.1, "entropy_coef_max": 0.1}
    assert validate(RunParams, IDENTITY | {"grpo": entropy}).grpo["entropy_coef_min"] == 0.1
    params = validate(RunParams, IDENTITY | {"grpo": {"delta": 2, "epsilon_high": 0.3}})
    assert (params.grpo["delta"], params.grpo["epsilon_high"], params.grpo["beta"]) == (2.0, 0.3, 0)
    assert "entropy_coef" not in params.grpo and "lr_scheduler_kwargs" not in params.grpo


def test_no_setting_of_trl_but_those_that_train_gets_through():
    """Of every other name of the pinned TRL a user is told that nothing can be set there."""
    for field in dataclasses.fields(trl.GRPOConfig):
        if field.name not in GRPOParams.model_fields:
            with pytest.raises(ParamError, match=f"^[a-z ]*'?grpo.{field.name}"):
                validate(RunParams, IDENTITY | {"grpo": {field.name: True}})


def test_layers_merge_key_by_key():
    merged = merge(
        {"grpo": {"beta": 0.1, "epsilon": 0.3}, "steps": 5, "games": ["a", "b"]},
        {"grpo": {"beta": 0.2}, "roles": {"solver": {"policy": "start"}}},
        {"roles": {"solver": {"trainable": False}}, "games": ["c"]},
    )
    assert merged == {
        "grpo": {"beta": 0.2, "epsilon": 0.3},
        "steps": 5,
        "games": ["c"],
        "roles": {"solver": {"policy": "start", "trainable": False}},
    }
    for name in ("benchmarks", "policies", "servers", "co_trained", "start_from"):
        assert merge({name: {"a": {"b": 1}}}, {name: {}}) == {name: {}}
    assert merge({"benchmarks": {"a": {"b": 1}}}, {"benchmarks": {"a": {}}})["benchmarks"]["a"]
    assert merge({"grpo": {"beta": 0.1}}, {"grpo": {}}) == {"grpo": {"beta": 0.1}}
    entry = {"set": {"grpo": {"beta": 1}}, "at": {"cpu": {"grpo": {"epsilon": 2}}}}
    assert variant_layers(entry, "cpu") == {"grpo": {"beta": 1, "epsilon": 2}}
    assert variant_layers(entry, "gpu") == {"grpo": {"beta": 1}}


def test_only_what_differs_is_left():
    base = {"steps": 5, "games": ["a"], "grpo": {"beta": 0.1, "epsilon": 0.2}, "roles": {"x": {}}}
    assert changed_values(base, base) == {}
    values = {"steps": 5, "games": ["a", "b"], "grpo": {"beta": 0.1, "epsilon": 0.3, "delta": None}}
    assert changed_values(values, base) == {
        "games": ["a", "b"],
        "grpo": {"epsilon": 0.3, "delta": None},
    }
    named = base | {"policies": {"judge": "x"}, "servers": {}}
    assert changed_values({"policies": {}, "servers": {}, "grpo": {}}, named) == {"policies": {}}
    roles = {"roles": {"x": {"policy": "start"}}}
    assert changed_values(roles, base) == roles and changed_values({"grpo": 3}, base) == {"grpo": 3}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grpo": {"learning_rate": "fast"}}, "grpo.learning_rate is 'fast'; allowed: a valid num"),
        ({"grpo": {"learning_rate": 0}}, "grpo.learning_rate is 0; allowed: greater than 0"),
        ({"grpo": {"learning_rate": float("inf")}}, "grpo.learning_rate is inf; allowed: a finite"),
        ({"grpo": {"delta": float("nan")}}, "grpo.delta is nan; allowed: a finite number"),
        ({"grpo": {"adam_beta1": 2}}, "grpo.adam_beta1 is 2; allowed: less than 1"),
        ({"grpo": {"loss_type": "ppo"}}, "grpo.loss_type is 'ppo'; allowed: 'grpo', 'dr_grpo'"),
        (
            {"grpo": {"warmup_steps": 5}},
            "grpo.warmup_steps is 5 with lr_scheduler_type 'constant', .*allowed: 0, or a schedule",
        ),
        (
            {"grpo": {"entropy_target": 1.0}},
            "grpo.entropy_target is 1.0 with use_adaptive_entropy None; allowed: with use_adaptive",
        ),
        (
            {"grpo": {"use_bias_correction_kl": True, "beta": 0}},
            "grpo.use_bias_correction_kl is True with beta 0.0; allowed: with beta, without which",
        ),
        ({"grpo": {"delta": 4, "loss_type": "cispo"}}, "delta is 4.0 with loss_type 'cispo'; all"),
        ({"grpo": {"delta": 1.2}}, "grpo.delta is 1.2 with .*; allowed: above 1.2, the first clip"),
        ({"grpo": {"delta": 1.3, "epsilon_high": 0.3}}, "grpo.delta is 1.3 with .*above 1.3"),
        (
            {
                "grpo": {
                    "vllm_importance_sampling_clip_min": 5,
                    "vllm_importance_sampling_clip_max": 2,
                }
            },
            "grpo.vllm_importance_sampling_clip_min is 5.0 with .*_max 2.0; allowed: up to that",
        ),
        (
            {"grpo": {"vllm_importance_sampling_clip_min": 5}},
            "grpo.vllm_importance_sampling_clip_min is 5.0 with .*_max 3.0; allowed: up to that",
        ),
        (
            {
                "grpo": {
                    "use_adaptive_entropy": True,
                    "entropy_coef_min": 0.5,
                    "entropy_coef_max": 0,
                }
            },
            "grpo.entropy_coef_min is 0.5 with entropy_coef_max 0.0; allowed: up to that",
        ),
        (
            {"grpo": {"vllm_model_impl": "vllm"}},
            "grpo.vllm_model_impl is 'vllm' with engine 'torch'; allowed: nothing, or with vllm",
        ),
        ({"max_num_seqs": 8}, "max_num_seqs is 8 with engine 'torch'; allowed: none, or with vll"),
        ({"lora_alpha": 64}, "lora_alpha is 64 with lora_rank 0; allowed: 32, or with a lora_rank"),
        (
            {"grpo": {"gradient_checkpointing_kwargs": {"use_reentrant": True}}},
            "grpo.gradient_checkpointing_kwargs is .* with gradient_checkpointing False; allowed",
        ),
        ({"grpo": {"learnin_rate": 1}}, "'grpo.learnin_rate', .*did you mean 'grpo.learning_rat"),
        ({"grpo": {"temperature": 1}}, "grpo.temperature is 1; allowed: nothing, temperature dec"),
        ({"temperature": float("inf")}, "temperature is inf; allowed: a finite number"),
        ({"steps": True}, "steps is True; allowed: a truth value is not a number"),
        ({"seed": True}, "seed is True; allowed: a truth value is not a number"),
        ({"chat_template": "no.jinja"}, "chat_template is 'no.jinja'; allowed: a file with a Jinj"),
        (
            {
                "grpo": {
                    "lr_scheduler_type": "cosine_with_min_lr",
                    "lr_scheduler_kwargs": {"min_lr": 1e-7, "min_lr_rate": 0.1},
                }
            },
            "grpo.lr_scheduler_kwargs is .* with lr_scheduler_type 'cosine_with_min_lr'; allowed",
        ),
        ({"steps": 2.5}, "steps is 2.5; allowed: a valid integer"),
        ({"steps": 10**20}, "steps is 1000.*; allowed: less than or equal to 10000000"),
        ({"seed": 2**32}, "seed is 4294967296; allowed: less than"),
        ({"learning_rate": 1}, "parameter is 'learning_rate', which is unknown"),
        ({"report_to": "nonsense"}, "report_to is 'nonsense'; allowed: 'none', 'tensorboard'"),
        ({"engine": "vllm"}, "dtype is 'float32' with engine 'vllm'; allowed: bfloat16"),
        (
            {
                "backend": "unsloth",
                "engine": "vllm",
                "dtype": "bfloat16",
                "lora_rank": 8,
                "policies": {"rival": "other/model"},
            },
            "policies is .*rival.* with backend 'unsloth'; allowed: the run's own weights, what a",
        ),
        (
            {
                "backend": "unsloth",
                "engine": "vllm",
                "dtype": "bfloat16",
                "lora_rank": 8,
                "policies": {"rival": "x"},
                "start_from": {"rival": "full"},
            },
            "policies is .*rival.* with backend 'unsloth'; allowed: the run's own weights, what a",
        ),
        (
            {
                "stages": [{"policy": "policy", "steps": 1}] * 2,
                "steps": 2,
                "engine": "vllm",
                "dtype": "bfloat16",
            },
            "engine is 'vllm' with stages .*; allowed: torch where there are several",
        ),
        (
            {
                "backend": "unsloth",
                "engine": "vllm",
                "dtype": "bfloat16",
                "lora_rank": 8,
                "grpo": {"use_adaptive_entropy": True},
            },
            "grpo.use_adaptive_entropy is True with backend 'unsloth'; allowed: false, or transf",
        ),
        (
            {"backend": "unsloth", "lora_rank": 8},
            "engine is 'torch' with backend 'unsloth'; allowed",
        ),
        (
            {"backend": "unsloth", "engine": "vllm", "dtype": "bfloat16"},
            "lora_rank is 0 with backend 'unsloth'; allowed: 1 or more",
        ),
        ({"vllm_sleep": True}, "vllm_sleep is True with engine 'torch'; allowed: false: only vLLM"),
        (
            {"grpo": {"vllm_enable_sleep_mode": True}},
            "grpo.vllm_enable_sleep_mode is True; allowed: nothing, vllm_sleep decides it",
        ),
        ({"gpu_memory": 2}, r"gpu_memory is 2; allowed: less than 1 \(share of the GPU"),
        (
            {"keep_checkpoints": [0.0]},
            "keep_checkpoints.0 is 0.0; allowed: greater than 0 .shares of",
        ),
        ({"policy": None}, "policy is None; allowed: a valid string"),
        ({"benchmarks": {"gsm": None}}, "benchmark is 'gsm', which is unknown; .*'gsm8k'"),
        ({"benchmarks": {"gsm8k": {"samples": 0}}}, "benchmarks.gsm8k.samples is 0; allowed: grea"),
        ({"benchmarks": {"gsm8k": {"cuont": 1}}}, "did you mean 'benchmarks.gsm8k.count'"),
        (
            {"stages": [{"policy": "policy", "stepz": 1}]},
            "'stages.0.stepz', .*did you mean 'stages.0.steps'. allowed: stages.0.policy, stages.0",
        ),
        ({"benchmarks": "gsm8k"}, "benchmarks is 'gsm8k'; allowed: a valid dictionary"),
    ],
)
def test_a_bad_value_is_answered_with_key_value_and_what_is_allowed(values, message):
    with pytest.raises(ParamError, match=message):
        validate(RunParams, IDENTITY | values)


def test_a_path_or_null_stands_for_how_a_benchmark_is_measured():
    uses = {"gsm8k": None, "frames": "data/frames.jsonl", "bbeh": {"count": 5}}
    values = validate(RunParams, IDENTITY | {"benchmarks": uses}).benchmarks
    assert [(name, use.path, use.count) for name, use in values.items()] == [
        ("gsm8k", "hub", None),
        ("frames", "data/frames.jsonl", None),
        ("bbeh", "hub", 5),
    ]


def test_every_fault_has_a_line():
    with pytest.raises(ParamError) as caught:
        validate(RunParams, IDENTITY | {"steps": 0, "seed": -1, "grpo": {"epsilon": 0, "x": 1}})
    assert len(str(caught.value).splitlines()) >= 3
    with pytest.raises(ParamError, match="variant is missing"):
        validate(RunParams, {"paper": "x", "scale": "cpu", "policy": "x"})


def test_numbers_as_yaml_reads_them():
    params = validate(RunParams, IDENTITY | {"grpo": {"learning_rate": "1e-3"}})
    assert params.grpo["learning_rate"] == 1e-3
