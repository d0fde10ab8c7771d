"""The trainer against a plain oracle; what it logs, what it passes to TRL, what it refuses."""

import math
import random
import resource
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import oracle
import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from spnb.core.advantages import make_estimator
from spnb.core.method import Role, SelfPlayMethod
from spnb.core.types import Sample
from spnb.train.config import RunParams, grpo_arguments
from spnb.train.guards import TrainerError, token_logps
from spnb.train.logps import GROUP_ROWS
from spnb.train.metrics import kl_sums, method_metrics, ratio_sums, role_sums, rollout_metrics
from spnb.train.policies import LORA_TARGETS, Policy
from spnb.train.runs import last_checkpoint, read_state
from spnb.train.trainer import Hooks, RunMixin, SelfPlayMixin, Stage, attach, make_trainer

BASE = dict(paper="p", scale="smoke", variant="v", policy="x", max_new_tokens=16, save_every=100)


def test_a_methods_metrics_are_means_of_who_has_one_and_shares_by_reason_of_all():
    """Two processes; nothing passed in the first."""
    first = {"method/passed": 0.0, "method/filter/no question": 1.0}
    second = {"method/passed": 1.0, "method/success": 0.5}
    assert method_metrics([first, second]) == {
        "method/passed": 0.5,
        "method/filter/no question": 0.5,
        "method/success": 0.5,
    }
    assert method_metrics([first]) == first


def run_params(steps=2, grpo=None, **values):
    """Parameters of a run without files."""
    return RunParams(
        **{**BASE, "steps": steps, "grpo": {"learning_rate": 1e-3} | (grpo or {}), **values}
    )


class Fixed(SelfPlayMethod):
    """A method that hands out prepared batches of rows."""

    def __init__(self, batches, params=None):
        self.batches = batches
        super().__init__(params or run_params(len(batches)), None)

    def default_roles(self):
        return {"r": Role(self.params.sampling, make_estimator("raw"))}

    def role_of(self, sample):
        return "r"

    def rollout(self, step):
        yield from ()
        self.metrics = {"method/calls": float(step + 1)}
        return self.batches[step]


def ragged_rows(seed, count=5, vocabulary=300):
    """Rows of different lengths, with masked observations inside, advantages of both signs."""
    rng = random.Random(seed)
    rows = []
    for index in range(count):
        length = rng.randint(3, 12)
        mask = [1] * length
        if index % 2:
            mask[1:3] = [0, 0]
        prompt, completion = (
            tuple(rng.randrange(5, vocabulary) for _ in range(n))
            for n in (rng.randint(2, 9), length)
        )
        row = Sample(prompt, completion, tuple(mask), None, 0.0, role="r", group=index)
        row.advantage = rng.uniform(-2, 2)
        rows.append(row)
    return rows


def trained(
    tmp_path, model, tokenizer, batches, peft_config=None, on_step=None, watch=None, **values
):
    """Trains on prepared batches; returns the trainer and its metrics rows."""
    params = run_params(len(batches), **values)
    rows = []
    hooks = Hooks(on_step=on_step or (lambda row, samples: rows.append(row)))
    policy = Policy(model, tokenizer, peft_config)
    trainer = make_trainer(params, policy, Fixed(batches, params), {}, hooks, tmp_path)
    if watch:
        watch(trainer)
    trainer.train()
    return trainer, rows


@pytest.mark.slow
def test_an_engine_that_can_sleep_does_so_after_each_rollout(tmp_path, tiny_model, tokenizer):
    noted = []

    class Sleeper:
        def sleep(self):
            noted.append("sleep")

    params = run_params(2, {"gradient_accumulation_steps": 2, "num_iterations": 2})
    hooks = Hooks(on_step=lambda row, samples: noted.append("step"))
    method = Fixed([ragged_rows(1), ragged_rows(2)], params)
    engines, stage = {"solver": Sleeper()}, Stage("solver", steps=2)
    policy = Policy(tiny_model, tokenizer)
    make_trainer(params, policy, method, engines, hooks, tmp_path, stage).train()
    assert noted == ["sleep", "step"] * 2


@pytest.fixture
def saved_model(tiny_model, tmp_path):
    """The tiny model on disk, because TRL loads the reference of a full fine-tune from its path."""
    tiny_model.save_pretrained(tmp_path / "model")
    return AutoModelForCausalLM.from_pretrained(tmp_path / "model")


def assert_as_the_oracle(rows, history, epochs):
    for index, row in enumerate(rows):
        updates = history[index * epochs : (index + 1) * epochs]
        for key, column in (("loss", 0), ("grad_norm", 1)):
            expected = sum(update[column] for update in updates) / epochs
            assert row[key] == pytest.approx(expected, rel=1e-4, abs=1e-4), (key, index)


SETTINGS = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 4},
    "clipped second epoch": {"num_iterations": 2, "learning_rate": 3e-2},
    "wider upper clip": {"num_iterations": 2, "learning_rate": 3e-2, "epsilon_high": 0.6},
    "KL": {"beta": 0.3, "gradient_accumulation_steps": 2},
    "temperature, clipped gradient, weight decay": {"max_grad_norm": 0.01, "weight_decay": 0.5},
}
QUICK = ("clipped second epoch", "KL")


@pytest.mark.parametrize(
    "loss_type",
    ["dr_grpo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("grpo", "dapo"))],
)
@pytest.mark.parametrize(
    "grpo",
    [
        pytest.param(SETTINGS[name], marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in SETTINGS
    ],
)
def test_loss_and_gradient_equal_the_oracles(tmp_path, saved_model, tokenizer, loss_type, grpo):
    batches = [ragged_rows(1), ragged_rows(2, count=7)]
    settings = {"loss_type": loss_type, **grpo}
    temperature = 0.7 if "weight_decay" in grpo else 1.0
    params = run_params(grpo=settings, temperature=temperature)
    expected_model, history = oracle.train(saved_model, batches, params)
    trainer, rows = trained(
        tmp_path, saved_model, tokenizer, batches, grpo=settings, temperature=temperature
    )
    assert_as_the_oracle(rows, history, params.grpo["num_iterations"])
    pairs = zip(trainer.model.parameters(), expected_model.parameters(), strict=True)
    moved = max((a - b).abs().max() for a, b in pairs)
    assert moved < 2 * params.grpo["learning_rate"] * len(history) * 0.05


@pytest.mark.slow
@pytest.mark.parametrize("loss_type", ["bnpo", "cispo"])
def test_the_other_losses_equal_the_oracles(tmp_path, saved_model, tokenizer, loss_type):
    settings = {"loss_type": loss_type, "epsilon_high": 3.0}
    batches = [ragged_rows(1), ragged_rows(2, count=7)]
    _, history = oracle.train(saved_model, batches, run_params(grpo=settings))
    _, rows = trained(tmp_path, saved_model, tokenizer, batches, grpo=settings)
    assert_as_the_oracle(rows, history, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "grpo", [{}, {"num_iterations": 2, "learning_rate": 3e-2}, {"beta": 0.3}], ids=str
)
def test_rows_grouped_by_length_have_the_oracles_loss(tmp_path, saved_model, tokenizer, grpo):
    batches = [ragged_rows(1, count=3 * GROUP_ROWS + 5), ragged_rows(2, count=40)]
    params = run_params(grpo=grpo)
    _, history = oracle.train(saved_model, batches, params)
    _, rows = trained(tmp_path, saved_model, tokenizer, batches, grpo=grpo)
    assert_as_the_oracle(rows, history, params.grpo["num_iterations"])


def test_weights_multiply_a_rows_part_of_the_loss(tmp_path, saved_model, tokenizer):
    """Rows of weight 0 are not counted, the others' mean is weighted, advantages stay."""
    rows = ragged_rows(4, count=6)
    for row, weight in zip(rows, (0.0, 2.0, 1.0, 0.5, 0.0, 1.0), strict=True):
        row.weight = weight
    before = [row.advantage for row in rows]
    kept = [row for row in rows if row.weight]
    _, history = oracle.train(saved_model, [kept], run_params(1))
    _, metrics = trained(tmp_path, saved_model, tokenizer, [rows])
    assert_as_the_oracle(metrics, history, 1)
    assert [row.advantage for row in rows] == before
    assert (metrics[0]["samples"], metrics[0]["trained"]) == (6, 4 / 6)


def test_masked_tokens_and_inert_rows_teach_nothing(tmp_path, tiny_model, tokenizer):
    before = [p.detach().clone() for p in tiny_model.parameters()]
    rows = ragged_rows(3, count=3)
    for row in rows:
        row.mask = (0,) * len(row.mask)
    trainer, metrics = trained(tmp_path, tiny_model, tokenizer, [rows, []])
    assert [row["grad_norm"] for row in metrics] == [0.0, 0.0]
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


@pytest.mark.slow
def test_rows_of_another_policy_are_not_trained(tmp_path, tiny_model, tokenizer):
    rows = ragged_rows(3, count=4)
    for row in rows[:3]:
        row.policy, row.logps = "rival", (-9.0,) * len(row.mask)
    rows[3].logps = tuple(token_logps(tiny_model, rows[3]).tolist())
    _, metrics = trained(tmp_path, tiny_model, tokenizer, [rows])
    assert [row.weight for row in rows] == [0, 0, 0, 1]
    assert metrics[0]["trained"] == 0.25
    assert metrics[0]["engine_gap"] < 1e-4, "nor compared"


def test_rows_with_the_pad_are_not_trained_by_unsloth(tmp_path, tiny_model, tokenizer, monkeypatch):
    """It rebuilds masks from token ids, and would leave the pad out of its row."""
    rows = ragged_rows(1)
    rows[1].completion_ids = (tokenizer.pad_token_id, *rows[1].completion_ids[1:])
    _, history = oracle.train(tiny_model, [[rows[0], *rows[2:]]], run_params(1))
    beside = lambda _: monkeypatch.setitem(sys.modules, "unsloth", object())  # noqa: E731
    _, metrics = trained(tmp_path, tiny_model, tokenizer, [rows], watch=beside)
    assert_as_the_oracle(metrics, history, 1)
    assert (metrics[0]["bad_rows"], metrics[0]["trained"]) == (1, 4 / 5)


@pytest.mark.slow
def test_lora_trains_the_adapter_only(tmp_path, saved_model, tokenizer):
    from peft import LoraConfig

    config = LoraConfig(r=4, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM")
    base = {name: p.detach().clone() for name, p in saved_model.named_parameters()}
    batches = [ragged_rows(1), ragged_rows(2)]
    trainer, rows = trained(
        tmp_path, saved_model, tokenizer, batches, peft_config=config, grpo={"beta": 0.1}
    )
    weights = dict(trainer.model.named_parameters())
    assert any("lora_B" in name and weights[name].abs().sum() > 0 for name in weights)
    for name, before in base.items():
        stem, _, leaf = name.rpartition(".")
        names = (f"base_model.model.{name}", f"base_model.model.{stem}.base_layer.{leaf}")
        after = next(weights[key] for key in names if key in weights)
        assert torch.equal(after, before), name
    assert rows[1]["kl"] > 0


@pytest.mark.parametrize("save_every", [1, 9])
def test_a_rollout_that_leaves_eval_mode_is_refused(tmp_path, tiny_model, tokenizer, save_every):
    """As such, and not as a checkpoint that could not be written, with one before or without."""

    class Careless(Fixed):
        def rollout(self, step):
            if step:
                tiny_model.eval()
            return (yield from super().rollout(step))

    params, hooks = run_params(2, save_every=save_every), Hooks(on_step=lambda *_: None)
    method = Careless([ragged_rows(1), ragged_rows(2)], params)
    policy = Policy(tiny_model, tokenizer)
    trainer = make_trainer(params, policy, method, {}, hooks, tmp_path)
    with pytest.raises(TrainerError, match="^the rollout left the model in eval mode"):
        trainer.train()
    assert (last_checkpoint(tmp_path) is None) is (save_every > 1)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, tiny_model, tokenizer):
    rows = ragged_rows(1)
    rows[0].advantage = float("nan")
    with pytest.raises(TrainerError, match="not finite|nan"):
        trained(tmp_path, tiny_model, tokenizer, [rows])


def test_roles_that_learn_share_a_temperature(tmp_path, tiny_model, tokenizer):
    """Those of one policy; Unsloth reads that of args."""

    class Two(Fixed):
        other = "policy"

        def default_roles(self):
            role = super().default_roles()["r"]
            cooler = replace(role.sampling, temperature=0.5)
            return {"r": role, "s": replace(role, sampling=cooler, policy=self.other)}

    policy, hooks = Policy(tiny_model, tokenizer), Hooks(on_step=lambda *_: None)
    with pytest.raises(TrainerError, match=r"temperatures \[0.5, 1.0\]; allowed: one"):
        make_trainer(run_params(1), policy, Two([[]]), {}, hooks, tmp_path)
    Two.other = "rival"
    for name, temperature in (("policy", 1.0), ("rival", 0.5)):
        given = (run_params(1), policy, Two([[]]), {}, hooks, tmp_path, Stage(name))
        trainer = make_trainer(*given)
        assert trainer.temperature == trainer.args.temperature == temperature


# --- what is logged


def sample(reward, advantage, logps=(-1.0, -3.0, -9.0), mask=(1, 1, 0), **values):
    """A row of one prompt token and three completion tokens."""
    ids = tuple(range(6, 6 + len(mask)))
    row = Sample((5,), ids, mask, logps, reward, ("g", 0), 0, advantage=advantage)
    for key, value in values.items():
        setattr(row, key, value)
    return row


def test_rollout_metrics_by_hand():
    """All rows count, trained or not: the dropped one has reward 4 and three tokens."""
    rows = [
        sample(1.0, 2.0, truncated=True),
        sample(-2.0, -1.0, logps=(-2.0,), mask=(1,), invalid=True),
        sample(4.0, 0.0, logps=(-3.0, -3.0, -6.0), mask=(1, 1, 1), weight=0.0, truncated=True),
    ]
    metrics = rollout_metrics([role_sums(rows)], [{}])
    assert metrics["samples"] == 3 and metrics["trained"] == pytest.approx(2 / 3)
    assert metrics["reward/g/0"] == 1.0
    assert metrics["length/g/0"] == 2.0
    assert metrics["entropy/g/0"] == pytest.approx((1 + 3 + 2 + 3 + 3 + 6) / 6)
    assert metrics["truncated/g/0"] == pytest.approx(2 / 3)
    assert metrics["invalid/g/0"] == pytest.approx(1 / 3)
    assert metrics["trained/g/0"] == pytest.approx(2 / 3)
    assert metrics["advantage_mean/g/0"] == pytest.approx(1 / 3)
    assert metrics["advantage_std/g/0"] == pytest.approx((5 / 3 - 1 / 9) ** 0.5)
    assert metrics["tokens_per_second"] == 6  # tokens; the trainer divides by the time


def test_a_row_of_cut_draws_and_of_what_was_found_has_no_entropy():
    row = sample(1.0, 1.0, logps=(math.nan, math.nan, 0.0))
    assert "entropy/g/0" not in rollout_metrics([role_sums([row])], [{}])


def test_metrics_of_several_processes_are_added_up_not_averaged():
    first, second = role_sums([sample(1.0, 1.0)] * 3), role_sums([sample(5.0, 1.0)])
    metrics = rollout_metrics([first, second], [{"g/0": (3.0, 3)}, {"g/0": (5.0, 1)}])
    assert (metrics["samples"], metrics["reward/g/0"], metrics["kl/g/0"]) == (4, 2.0, 2.0)


def test_kl_by_role_is_k3_by_hand():
    row = sample(0.0, 1.0, logps=(-1.0, -2.0, -9.0))
    out = {
        "ref_per_token_logps": torch.tensor([[-1.5, -1.0, 0.0]]),
        "completion_ids": torch.zeros(1, 3),
    }
    total, count = kl_sums([row], out)["g/0"]
    e = 2.718281828459045
    assert count == 2 and total == pytest.approx((e**-0.5 + 0.5 - 1) + (e - 1 - 1))
    assert kl_sums([row], {"completion_ids": torch.zeros(1, 3)}) == {}


def test_kl_of_unsloths_rows_that_are_moved_by_their_prompts_padding():
    """Prompts of 1 and 3 tokens: two columns before the completions, the short one's row is two to
    the left, into them. Its log-probabilities are Unsloth's too."""
    rows = [sample(0.0, 1.0, logps=(-1.0, -2.0, -9.0)), sample(0.0, 1.0, logps=None)]
    rows[1] = replace(rows[1], prompt_ids=(1, 2, 3), role="long")
    own = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0], [7.0, 7.0, -1.0, -1.0, 0.0]])
    reference = torch.tensor([[-1.5, -1.0, 0.0, 7.0, 7.0], [7.0, 7.0, -2.0, -1.0, 0.0]])
    out = {"ref_per_token_logps": reference, "old_per_token_logps": own}
    out |= {"completion_ids": torch.zeros(2, 3), "prompt_ids": torch.zeros(2, 3)}
    sums, e = kl_sums(rows, out), 2.718281828459045
    assert sums["g/0"] == (pytest.approx((e**-0.5 + 0.5 - 1) + (e - 1 - 1)), 2)
    assert sums["long"] == (pytest.approx(1 / e + 1 - 1), 2)


def test_ratios_of_trainer_and_engine_by_hand():
    """Masked tokens and rows without the engine's numbers are left out; the trainer's are half a
    nat less and one and a half more, which is 0.61 and 4.48 times the engine's probability."""
    row = sample(0.0, 1.0, logps=(-1.0, -2.0, -9.0))
    out = {"completion_ids": torch.zeros(2, 3)}
    rows = [row, replace(row, logps=(math.nan,) * 3)]
    out["old_per_token_logps"] = torch.tensor([[-1.5, -0.5, 0.0]] * 2)
    e = 2.718281828459045
    for most, above in ((3.0, 1), (8.0, 0)):
        expected = {"tokens": 2, "ratio": pytest.approx(e**-0.5 + e**1.5), "above": above}
        assert ratio_sums(rows, out, most) == expected
    assert not ratio_sums(rows, {"completion_ids": torch.zeros(2, 3)}, 3.0)


@pytest.mark.slow
def test_ratios_of_an_engine_that_is_off_are_in_the_metrics(tmp_path, tiny_model, tokenizer):
    """TRL's mean where it cuts none: the engine has four times the trainer's probabilities in one
    row, and an eighth in the other."""
    shifts, seen = (math.log(4), -math.log(8)), {}

    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, logs, **_):
            seen.update(logs)

    for most in (9.0, 3.0):
        rows = [sample(1.0, 1.0), sample(-1.0, -1.0)]
        for row, shift in zip(rows, shifts, strict=True):
            exact = token_logps(tiny_model, row).tolist()
            row.logps = tuple(logp + shift for logp in exact)

        def as_with_vllm(trainer, most=most):
            trainer.use_vllm, trainer.watch.tolerance = True, 9.0
            trainer.args.vllm_importance_sampling_clip_max = most
            trainer.vllm_importance_sampling_clip_max = most
            trainer.add_callback(Tracker())

        grpo = {"learning_rate": 1e-9}
        _, (row,) = trained(tmp_path, tiny_model, tokenizer, [rows], watch=as_with_vllm, grpo=grpo)
        assert row["engine_ratio"] == pytest.approx((1 / 4 + 8) / 2, rel=1e-4)
        assert row["engine_above"] == (0.5 if most == 3 else 0)
        trls = seen["sampling/importance_sampling_ratio/mean"]
        assert (trls == pytest.approx(row["engine_ratio"], rel=1e-5)) == (most == 9)


def test_metrics_of_a_step(tmp_path, tiny_model, tokenizer):
    rows = [sample(1.0, 2.0, logps=None), sample(-1.0, -1.0, logps=None)]
    _, metrics = trained(tmp_path, tiny_model, tokenizer, [rows])
    row = metrics[0]
    assert (row["step"], row["samples"], row["trained"], row["reward/g/0"]) == (1, 2, 1.0, 0.0)
    assert row["method/calls"] == 1
    assert row["tokens_per_second"] * row["seconds/step"] == pytest.approx(2 + 2)
    assert row["seconds/generate"] + row["seconds/update"] == pytest.approx(row["seconds/step"])
    assert 0 < row["seconds/update"] < row["seconds/step"]


@pytest.mark.slow
def test_trackers_get_the_rollouts_metrics_and_no_constant_reward(tmp_path, tiny_model, tokenizer):
    """With the last of two updates; TRL's own numbers stay those of one update."""
    rows = [sample(reward, reward, logps=None) for reward in (0.5, 1.0, 3.0)]
    rows[2] = replace(rows[2], role="h")
    params, tracked, steps = run_params(1, {"num_iterations": 2, "learning_rate": 0.02}), [], []

    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, logs, **_):
            tracked.append(dict(logs))

    hooks = Hooks(on_step=lambda row, samples: steps.append(row))
    policy = Policy(tiny_model, tokenizer)
    trainer = make_trainer(params, policy, Fixed([rows], params), {}, hooks, tmp_path)
    trainer.callback_handler.callbacks.insert(1, Tracker())  # where those of report_to are
    trainer.train()
    first, logged = tracked[:2]
    assert first["loss"] != logged["loss"] and logged["entropy"] > 0
    assert steps[0]["loss"] == pytest.approx((first["loss"] + logged["loss"]) / 2)
    assert (logged["reward/g/0"], logged["reward/h"]) == (0.75, 3.0)
    assert logged["reward"] == (0.75 + 3.0) / 2 and "reward" not in first
    assert logged["method/calls"] == 1 and logged["trained/g/0"] == 1.0 and "step" not in logged
    assert not [key for key in logged if key.startswith(("rewards/", "frac_reward", "reward_std"))]


def test_a_methods_numbers_are_those_of_the_step(tmp_path, tiny_model, tokenizer):
    class Once(Fixed):
        def rollout(self, step):
            yield from ()
            if step == 0:
                self.log(first=3)
            return self.batches[step]

    params, rows = run_params(2), []
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    method = Once([ragged_rows(1), ragged_rows(2)], params)
    make_trainer(params, Policy(tiny_model, tokenizer), method, {}, hooks, tmp_path).train()
    assert [row.get("method/first") for row in rows] == [3, None]


def test_no_kl_is_reported_where_nothing_is_held_by_one():
    """Unsloth says 0 there."""
    trainer, logs = RunMixin(), {"loss": 0.5, "kl": 0.0, "entropy": None, "num_tokens": 9}
    trainer.trl, trainer.args = "GRPOTrainer", SimpleNamespace(beta=0.0)
    assert trainer.reported(logs | {"clip_ratio/region_mean": 0.25}) == {
        "loss": 0.5, "clip_ratio": 0.25
    }  # fmt: skip
    trainer.args.beta = 0.1
    assert trainer.reported(logs) == {"loss": 0.5, "kl": 0.0}


# --- what is passed on to TRL


def test_every_setting_reaches_trl(tmp_path):
    settings = {
        "lr_scheduler_type": "cosine",
        "warmup_steps": 3,
        "weight_decay": 0.25,
        "epsilon_high": 0.285,
        "delta": 4.0,
        "adam_beta2": 0.99,
        "ddp_timeout": 99,
    }
    params = run_params(5, grpo={"num_iterations": 2, **settings}, temperature=0.8, seed=7)
    arguments = grpo_arguments(params, 5, tmp_path)
    assert {key: arguments[key] for key in settings} == settings
    assert (arguments["max_steps"], arguments["temperature"], arguments["seed"]) == (10, 0.8, 7)
    high = lambda **grpo: grpo_arguments(run_params(1, grpo=grpo), 1, tmp_path)["epsilon_high"]  # noqa: E731
    assert (high(), high(epsilon=0.3), high(loss_type="cispo", epsilon=0.3)) == (0.2, 0.3, 5.0)


def test_a_setting_that_trl_changes_stops_the_run(tmp_path, tiny_model, tokenizer, monkeypatch):
    import trl

    class Patched(trl.GRPOConfig):
        def __post_init__(self):
            super().__post_init__()
            self.weight_decay = 0.01

    monkeypatch.setattr(trl, "GRPOConfig", Patched)
    with pytest.raises(TrainerError, match="weight_decay became 0.01"):
        trained(tmp_path, tiny_model, tokenizer, [ragged_rows(1)])


@pytest.mark.slow
def test_the_learning_rate_follows_its_schedule(tmp_path, tiny_model, tokenizer):
    batches = [ragged_rows(seed) for seed in range(4)]
    grpo = {"lr_scheduler_type": "linear", "warmup_steps": 2}
    _, rows = trained(tmp_path, tiny_model, tokenizer, batches, grpo=grpo)
    assert [row["learning_rate"] for row in rows] == pytest.approx([0, 5e-4, 1e-3, 5e-4])


# --- checkpoints


def test_a_checkpoint_counts_the_pieces_of_updates_as_trl_does(tmp_path, tiny_model, tokenizer):
    grpo = {"gradient_accumulation_steps": 3, "num_iterations": 2}
    trained(tmp_path, tiny_model, tokenizer, [ragged_rows(1)], grpo=grpo)
    assert read_state(tmp_path / "checkpoint-2")["step"] == 2 * 3


@pytest.mark.slow
def test_a_full_disk_while_saving_is_told_and_the_checkpoint_before_stays(
    tmp_path, tiny_model, tokenizer
):
    """A file size limit stands in for the full disk: the system refuses the write half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk(row, samples):
        if row["step"] == 2:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))

    batches = [ragged_rows(1), ragged_rows(2)]
    try:
        with pytest.raises(TrainerError, match="checkpoint-2 could not be written.*free some disk"):
            trained(tmp_path, tiny_model, tokenizer, batches, on_step=fill_the_disk, save_every=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert last_checkpoint(tmp_path).name == "checkpoint-1"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".jinja", ".md"}


@pytest.mark.slow
def test_a_later_stage_goes_on_counting(tmp_path, tiny_model, tokenizer):
    """Its first rollouts are not a run's, in which the engine's gap is logged."""
    rows, steps = [], []

    class Counting(Fixed):
        def rollout(self, step):
            steps.append(step)
            yield from ()
            drawn = ragged_rows(1)
            for row in drawn:
                row.logps = tuple(token_logps(tiny_model, row).tolist())
            return drawn

    params = run_params(5)
    trainer = make_trainer(
        params,
        Policy(tiny_model, tokenizer),
        Counting([], params),
        {},
        Hooks(on_step=lambda row, _: rows.append((row["step"], "engine_gap" in row))),
        tmp_path,
        Stage("policy", first=3, steps=2),
    )
    trainer.train()
    assert steps == [3, 4] and rows == [(4, False), (5, False)]


@pytest.mark.parametrize("unsloth", [False, True])
def test_the_cpus_packing_is_not_in_unsloths_class(
    tmp_path, tiny_model, tokenizer, monkeypatch, unsloth
):
    """Unsloth calls the log-probability function with seven positional arguments of its own."""
    import trl

    if unsloth:
        monkeypatch.setitem(sys.modules, "unsloth", object())
        patched = type("UnslothGRPOTrainer", (trl.GRPOTrainer,), {})
        monkeypatch.setattr(trl, "GRPOTrainer", patched)
    hooks = Hooks(on_step=lambda *_: None)
    policy = Policy(tiny_model, tokenizer)
    trainer = make_trainer(run_params(1), policy, Fixed([[]]), {}, hooks, tmp_path)
    bases = [base.__name__ for base in type(trainer).__mro__]
    assert ("PackingMixin" in bases) is not unsloth and "SelfPlayMixin" in bases


def test_sharded_weights_are_refused(tmp_path, tiny_model, tokenizer, monkeypatch):
    from spnb.train import guards

    def refuse(accelerator):
        raise TrainerError("weights are sharded")

    monkeypatch.setattr(guards, "refuse_sharded", refuse)
    policy, hooks = Policy(tiny_model, tokenizer), Hooks(on_step=lambda *_: None)
    with pytest.raises(TrainerError, match="sharded"):
        make_trainer(run_params(1), policy, Fixed([[]]), {}, hooks, tmp_path)


def test_a_process_that_sees_two_gpus_is_refused():
    args, accelerator = SimpleNamespace(n_gpu=2), SimpleNamespace(state=None)
    trainer = SimpleNamespace(args=args, accelerator=accelerator)
    with pytest.raises(TrainerError, match="^2 GPUs are visible to one process; allowed: one"):
        attach(trainer, {}, None, None, None)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_goes_on_from_its_own_state(rank):
    trainer, kept = RunMixin(), []
    trainer.accelerator = SimpleNamespace(num_processes=2, process_index=rank)
    trainer.method = SimpleNamespace(load_state_dict=kept.append)
    trainer.restore({"step": 4, "methods": ["first", "second"]})
    assert (trainer._step, kept) == (4, [["first", "second"][rank]])
    trainer.accelerator.num_processes = 3
    with pytest.raises(TrainerError, match="written by 2 processes, and 3 run now"):
        trainer.restore({"step": 4, "methods": ["first", "second"]})


def test_a_runs_own_parameters_reach_trl(tmp_path, monkeypatch):
    own = dict(gradient_checkpointing=True, report_to="tensorboard", gpu_memory=0.3, max_length=99)
    params = run_params(5, grpo={"num_iterations": 2}, save_every=3, updates=4, **own)
    found = grpo_arguments(params, 5, tmp_path)
    assert (found["max_steps"], found["save_steps"]) == (5 * 4 * 2, 3 * 4 * 2)
    assert found["gradient_checkpointing"] and found["report_to"] == "tensorboard"
    assert found["max_completion_length"] == params.max_new_tokens
    monkeypatch.setenv("WORLD_SIZE", "2")
    pieces = grpo_arguments(run_params(1, {"gradient_accumulation_steps": 5}, updates=4), 1, "x")
    assert pieces["gradient_accumulation_steps"] == 3, "in each of two processes"
    assert pieces["steps_per_generation"] == 3 * 4
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    exact, half = (
        grpo_arguments(run_params(1, dtype=dtype), 1, "x") for dtype in ("float32", "bfloat16")
    )
    assert (exact["bf16"], half["bf16"], half["use_cpu"]) == (False, True, False)
    assert found["vllm_gpu_memory_utilization"] == 0.3 and found["vllm_max_model_length"] == 99


def test_an_engine_with_other_weights_stops_the_run(tmp_path, tiny_model, tokenizer):
    batches = [ragged_rows(1), ragged_rows(2)]
    for row in batches[0]:
        row.logps = tuple(token_logps(tiny_model, row).tolist())
    _, (found,) = trained(tmp_path / "same", tiny_model, tokenizer, batches[:1])
    assert 0 <= found["engine_gap"] < 1e-4
    for row in (row for rows in batches for row in rows):
        row.logps = (-9.0,) * len(row.mask)
    with pytest.raises(TrainerError, match="does not generate with the weights in training"):
        trained(tmp_path, tiny_model, tokenizer, batches)


def test_an_engine_in_16_bits_may_be_off_by_more(tmp_path, tiny_model, tokenizer):
    batches = [ragged_rows(1), ragged_rows(2)]
    for row in (row for rows in batches for row in rows):
        row.logps = tuple(logp + 0.05 for logp in token_logps(tiny_model, row).tolist())
    how = {"dtype": "bfloat16", "grpo": {"learning_rate": 1e-9}}
    _, found = trained(tmp_path, tiny_model, tokenizer, batches, **how)
    assert [row["engine_gap"] for row in found] == pytest.approx([0.05] * 2, abs=1e-3)


def test_an_engine_is_compared_after_each_start_and_in_every_tenth_rollout():
    def checked(steps):
        trainer, asked = SelfPlayMixin(), []
        trainer.model, trainer.temperature = SimpleNamespace(training=True), 0.7
        trainer.accelerator = SimpleNamespace(unwrap_model=lambda model: model)
        trainer.watch = SimpleNamespace(gap=lambda *given: asked.append(given[2]) or 0.5)
        gaps = [step for step in steps if trainer._check([], step) is not None]
        assert {*asked} == {0.7}
        return gaps, len(asked)

    assert checked(range(21)) == ([0, 1, 10, 20], 4)
    assert checked(range(5, 12)) == ([10], 3)  # the first two after a start are not logged
