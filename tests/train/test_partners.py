"""Policies that learn in the same steps, each like one trained alone on its own rows."""

import copy
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import rzero
import torch
from processes import finish
from rzero import make_run
from safetensors.torch import load_file
from test_trainer import Fixed, ragged_rows, run_params

from spnb.core.params import ParamError, validate
from spnb.train.config import RunParams
from spnb.train.metrics import TIMINGS
from spnb.train.partners import Partner
from spnb.train.policies import Policy
from spnb.train.runs import config_hash
from spnb.train.trainer import Hooks, Stage, make_trainer

SCRIPT = str(Path(__file__).with_name("rzero.py"))
SLEPT = 0.5
"""Seconds that a partner's step takes more."""
BESIDE = dict(
    stages=[], steps=6, save_every=2, roles={"solver": {"policy": "policy"}},
    policies={"challenger": "embedded/games"}, co_trained={"challenger": {"learning_rate": 3e-3}},
)  # fmt: skip


def batches():
    """Three batches, every third row of another policy, some rows of weight 0."""
    every = [ragged_rows(seed, count=7) for seed in (1, 2, 3)]
    for rows in every:
        for index, row in enumerate(rows):
            row.policy = "other" if index % 3 == 0 else "policy"
            row.weight = 0.0 if index == 3 else 1.0 + index % 2
    return every


def alone(tmp_path, model, tokenizer, params, policy):
    """The weights after training on the rows of one policy."""
    stage = Stage(policy, 0, 3)
    hooks = Hooks(on_step=lambda row, samples: None)
    model = copy.deepcopy(model)
    method = Fixed(batches(), params)
    trainer = make_trainer(params, Policy(model, tokenizer), method, {}, hooks, tmp_path, stage)
    trainer.train()
    return trainer.model.state_dict()


@pytest.mark.slow
def test_each_learns_as_if_alone(tmp_path, tiny_model, tokenizer):
    params = run_params(3)
    faster = run_params(3, grpo={"learning_rate": 5e-3})
    other = copy.deepcopy(tiny_model)
    with torch.no_grad():
        other.model.norm.weight.mul_(1.5)  # other weights
    expected = {
        "policy": alone(tmp_path, tiny_model, tokenizer, params, "policy"),
        "other": alone(tmp_path, other, tokenizer, faster, "other"),
    }
    method, rows = Fixed(batches(), params), []
    hooks = Hooks(on_step=lambda row, samples: None)

    stage, policy = Stage("other", 0, 3), Policy(copy.deepcopy(other), tokenizer)
    partner = Partner(make_trainer(faster, policy, method, {}, hooks, tmp_path / "other", stage))
    lead = Hooks(on_step=lambda row, samples: rows.append(row))
    policy = Policy(copy.deepcopy(tiny_model), tokenizer)
    stage = Stage("policy", 0, 3)
    leader = make_trainer(
        params, policy, method, {}, lead, tmp_path, stage, partners={"other": partner}
    )
    partner.start()
    step = partner.step
    partner.step = lambda samples: (time.sleep(SLEPT), step(samples))
    leader.train()
    for name, trainer in (("policy", leader), ("other", partner.trainer)):
        for key, value in trainer.model.state_dict().items():
            assert torch.allclose(value, expected[name][key], atol=1e-6), (name, key)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["grad_norm/other"] > 0 and "loss/other" in row for row in rows)
    assert rows[0]["trained"] == 6 / 7  # both policies' rows
    assert all(row["seconds/generate"] < SLEPT < row["seconds/update"] for row in rows)


@pytest.mark.slow
def test_a_run_of_two_policies_killed_and_resumed_is_bit_identical(tmp_path):
    whole, killed = (make_run(tmp_path / name, **BESIDE) for name in ("whole", "killed"))

    def train(run, *die_at):
        return finish(run.folder / "log.txt", SCRIPT, run.folder, *die_at)

    done = train(whole)
    assert done.returncode == 0, done.stderr[-2000:]
    assert train(killed, 5).returncode == 9 and not killed.finished
    assert train(killed).returncode == 0
    for folder in ("", "challenger"):
        first, second = (
            load_file(run.model / folder / "model.safetensors") for run in (whole, killed)
        )
        assert all(torch.equal(first[name], second[name]) for name in first)
    own, challenger = (load_file(whole.model / f / "model.safetensors") for f in ("", "challenger"))
    assert any(not torch.equal(own[name], challenger[name]) for name in own)
    rows = [
        [{k: v for k, v in row.items() if k not in TIMINGS} for row in run.rows("metrics")]
        for run in (whole, killed)
    ]
    assert rows[0] == rows[1]
    first = rows[0][0]
    assert first["trained/challenger"] > 0 and first["trained/solver"] > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"co_trained": {"judge": {}}}, "co_trained is 'judge', which is unknown; allowed: other"),
        ({"co_trained": {"other": {"learning_rate": -1}}}, "co_trained.other.learning_rate is -1"),
        (
            {"co_trained": {"other": {"loss_type": "dapo"}}},
            "co_trained is .* with grpo.loss_type .*; allowed: the same for all: rows are",
        ),
        (
            {"co_trained": {"other": {"gradient_accumulation_steps": 2}}},
            "co_trained is .* with grpo.gradient_accumulation_steps .*; allowed: the same for all",
        ),
        (
            {"co_trained": {"other": {}}, "stages": [{"policy": "other", "steps": 2}]},
            "co_trained is .* with stages",
        ),
        (
            {"co_trained": {"other": {}}, "engine": "vllm", "dtype": "bfloat16"},
            "co_trained is .* engine 'vllm'; allowed: no stages, torch",
        ),
    ],
)
def test_bad_input_is_named(values, message):
    base = dict(paper="p", scale="smoke", variant="v", policy="x", steps=2)
    with pytest.raises(ParamError, match=message):
        validate(RunParams, {**base, "policies": {"other": "y"}, **values})


def test_a_partner_without_settings_of_its_own_makes_another_run(tmp_path):
    """What is empty does not count in a run's hash, and this is no run without the partner."""
    base = dict(paper="p", scale="smoke", variant="v", policy="x", steps=2)
    both = [base | {"policies": {"other": "y"}, "co_trained": own} for own in ({}, {"other": {}})]
    alone, beside = (validate(RunParams, values) for values in both)
    rate = beside.grpo["learning_rate"]
    assert alone.co_trained == {} and beside.co_trained == {"other": {"learning_rate": rate}}
    assert len({config_hash(one.model_dump(mode="json")) for one in (alone, beside)}) == 2


def test_of_a_partner_a_steps_row_has_loss_gradient_and_kl_by_role():
    partner = Partner(SimpleNamespace(hooks=SimpleNamespace(), train=None))
    row = {"step": 3, "loss": 0.5, "grad_norm": 2.0, "kl": 9.0, "kl/r": 0.25, "reward/r": 1.0}
    partner.trainer.hooks.on_step(row, [])
    assert partner.metrics("b") == {"loss/b": 0.5, "grad_norm/b": 2.0, "kl/r": 0.25}


def test_a_partner_is_trained_with_its_own_settings(tmp_path, monkeypatch):
    """Trackers get the numbers of the run alone."""
    module = rzero.run_module
    there = SimpleNamespace(tokenizer=None, chat=SimpleNamespace(tokenizer=None))
    given = {
        "method_module": lambda _: SimpleNamespace(Method=rzero.Method),
        "load_policy": lambda *_: there,
        "same_tokens": lambda *_: None,
        "make_engine": lambda *_: None,
        "make_trainer": lambda params, *_: params,
        "Partner": lambda params: params,
    }
    for name, other in given.items():
        monkeypatch.setattr(module, name, other)
    made = make_run(tmp_path, **BESIDE, report_to="tensorboard")
    stage = module.StageRun(
        made, module.run_params(made), module.Stage(), 0, ({}, {"challenger": "x"})
    )
    stage.method, stage.engines = there, {}
    partner = stage.partner("challenger")
    assert partner.grpo == stage.params.grpo | {"learning_rate": 3e-3}
    assert (partner.report_to, stage.params.report_to) == ("none", "tensorboard")
