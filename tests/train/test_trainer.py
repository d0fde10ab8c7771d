"""The trainer against a plain oracle, its guards, and the private names of TRL that it stands
on."""

import inspect
import random
import resource
import signal

import oracle
import pytest
import torch
import trl
from transformers import AutoModelForCausalLM

from spnb.core.params import RunParams
from spnb.core.types import Sample
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import LORA_TARGETS
from spnb.train.trainer import (
    GROUP_ROWS,
    LENGTH_GROUPS,
    PRIVATE_NAMES,
    Hooks,
    TrainerError,
    check_engine,
    last_checkpoint,
    length_groups,
    make_trainer,
    token_logps,
)

BASE = dict(
    paper="p",
    scale="smoke",
    variant="v",
    learning_rate=1e-3,
    max_new_tokens=16,
    steps=2,
    save_every=100,
)


class Fixed:
    """A method that hands out prepared batches of rows."""

    def __init__(self, batches):
        self.batches, self.state = batches, {"calls": 0}

    def collect(self, engines, step, rank=0):
        self.state["calls"] += 1
        return self.batches[step]

    def metrics(self):
        return {"method/calls": self.state["calls"]}

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = state


def ragged_rows(seed, count=5, vocabulary=300):
    """Rows of different lengths, with masked observations inside, advantages of both signs."""
    rng = random.Random(seed)
    rows = []
    for index in range(count):
        length = rng.randint(3, 12)
        mask = [1] * length
        if index % 2:
            mask[1:3] = [0, 0]
        ids = [
            tuple(rng.randrange(5, vocabulary) for _ in range(n))
            for n in (rng.randint(2, 9), length)
        ]
        rows.append(
            Sample(
                *ids, tuple(mask), None, 0.0, role="r", group=index, advantage=rng.uniform(-2, 2)
            )
        )
    return rows


def trained(tmp_path, model, tokenizer, batches, peft_config=None, engines=None, **values):
    """Trains on prepared batches; returns the trainer and its metrics rows."""
    params = RunParams(**{**BASE, "steps": len(batches), **values})
    rows = []
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    trainer = make_trainer(
        params, model, tokenizer, Fixed(batches), engines or {}, hooks, tmp_path, peft_config
    )
    trainer.train()
    return trainer, rows, params


@pytest.fixture
def saved_model(tiny_model, tokenizer, tmp_path):
    """The tiny model on disk, because TRL loads the reference of a full fine-tune from its path."""
    tiny_model.save_pretrained(tmp_path / "model")
    return AutoModelForCausalLM.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"micro_batches": 4},
        {"inner_epochs": 2, "learning_rate": 3e-2},
        {"kl_beta": 0.3, "micro_batches": 2},
        {"temperature": 0.7, "max_grad_norm": 0.01},
    ],
    ids=["plain", "accumulation", "clipped second epoch", "KL", "temperature and clipping"],
)
def test_loss_and_gradient_equal_the_oracles(tmp_path, saved_model, tokenizer, loss_type, values):
    batches = [ragged_rows(1), ragged_rows(2, count=7)]
    params = RunParams(**{**BASE, "loss_type": loss_type, **values})
    expected_model, history = oracle.train(saved_model, batches, params)
    trainer, rows, _ = trained(
        tmp_path, saved_model, tokenizer, batches, loss_type=loss_type, **values
    )
    epochs = params.inner_epochs
    for index, row in enumerate(rows):
        updates = history[index * epochs : (index + 1) * epochs]
        for key, column in (("loss", 0), ("grad_norm", 1)):
            expected = sum(update[column] for update in updates) / epochs
            assert row[key] == pytest.approx(expected, rel=1e-4, abs=1e-4), (key, index)
    moved = [
        (a - b).abs().max()
        for a, b in zip(trainer.model.parameters(), expected_model.parameters(), strict=True)
    ]
    assert max(moved) < 2 * params.learning_rate * len(history) * 0.05


@pytest.mark.parametrize(
    "values", [{}, {"inner_epochs": 2, "learning_rate": 3e-2}, {"kl_beta": 0.3}]
)
def test_rows_grouped_by_length_have_the_oracles_loss_and_gradient(
    tmp_path, saved_model, tokenizer, values
):
    batches = [ragged_rows(1, count=3 * GROUP_ROWS + 5), ragged_rows(2, count=40)]
    params = RunParams(**{**BASE, **values})
    _, history = oracle.train(saved_model, batches, params)
    _, rows, _ = trained(tmp_path, saved_model, tokenizer, batches, **values)
    for index, row in enumerate(rows):
        updates = history[index * params.inner_epochs : (index + 1) * params.inner_epochs]
        assert row["grad_norm"] == pytest.approx(
            sum(u[1] for u in updates) / len(updates), rel=1e-4, abs=1e-4
        )
        assert row["loss"] == pytest.approx(
            sum(u[0] for u in updates) / len(updates), rel=1e-4, abs=1e-4
        )


def test_groups_are_equal_sorted_by_length_and_complete():
    lengths = torch.tensor([5, 1, 9, 3] * 10)
    groups = length_groups((torch.arange(10) < lengths[:, None]).int())
    assert [len(group) for group in groups] == [20, 20] and sorted(
        torch.cat(groups).tolist()
    ) == list(range(40))
    assert lengths[groups[0]].max() == 3 and lengths[groups[1]].min() == 5
    assert (
        len(length_groups(torch.ones(3, 4))) == 1
        and len(length_groups(torch.ones(999, 4))) == LENGTH_GROUPS
    )


def test_masked_tokens_and_inert_rows_teach_nothing(tmp_path, tiny_model, tokenizer):
    before = [p.detach().clone() for p in tiny_model.parameters()]
    rows = ragged_rows(3, count=3)
    for row in rows:
        row.mask = (0,) * len(row.mask)
    trainer, metrics, _ = trained(tmp_path, tiny_model, tokenizer, [rows, []])
    assert [row["grad_norm"] for row in metrics] == [0.0, 0.0]
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_lora_trains_the_adapter_only_and_the_engine_sees_it(tmp_path, saved_model, tokenizer):
    from peft import LoraConfig

    config = LoraConfig(r=4, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM")
    base = {name: p.detach().clone() for name, p in saved_model.named_parameters()}
    trainer, rows, _ = trained(
        tmp_path,
        saved_model,
        tokenizer,
        [ragged_rows(1), ragged_rows(2)],
        peft_config=config,
        kl_beta=0.1,
    )
    weights = dict(trainer.model.named_parameters())
    assert any("lora_B" in name and weights[name].abs().sum() > 0 for name in weights)
    for name, before in base.items():
        after = weights.get(
            f"base_model.model.{name}", weights.get(f"base_model.model.{_base_layer(name)}")
        )
        assert torch.equal(after, before), name
    assert rows[1]["kl"] > 0


def _base_layer(name):
    stem, _, leaf = name.rpartition(".")
    return f"{stem}.base_layer.{leaf}"


def test_an_engine_with_other_weights_is_found_out(tiny_model, tokenizer):
    engine = TorchEngine(tiny_model, tokenizer)
    rows = ragged_rows(1)
    for row in rows:
        row.logps = tuple(token_logps(tiny_model, row).tolist())
    check_engine(engine.model, rows, tolerance=1e-3)
    with torch.no_grad():
        tiny_model.model.layers[0].mlp.down_proj.weight.mul_(3)
    with pytest.raises(TrainerError, match="does not generate with the weights in training"):
        check_engine(engine.model, rows, tolerance=1e-3)


def test_a_rollout_that_leaves_eval_mode_is_refused(tmp_path, tiny_model, tokenizer):
    class Careless(Fixed):
        def collect(self, engines, step, rank=0):
            tiny_model.eval()
            return super().collect(engines, step)

    params = RunParams(**{**BASE, "steps": 1})
    hooks = Hooks(on_step=lambda *_: None)
    trainer = make_trainer(
        params, tiny_model, tokenizer, Careless([ragged_rows(1)]), {}, hooks, tmp_path
    )
    with pytest.raises(TrainerError, match="eval mode"):
        trainer.train()


def test_private_names_of_trl_are_still_there():
    source = inspect.getsource(trl.GRPOTrainer)
    gone = [name for name in PRIVATE_NAMES if name not in source]
    assert not gone, f"trl {trl.__version__} no longer has {gone}; the trainer stands on them"
    assert list(inspect.signature(trl.GRPOTrainer._generate_and_score_completions).parameters) == [
        "self",
        "inputs",
    ]
    assert '"env_mask"' in source, "trl no longer reads env_mask: observations would be trained on"


def test_metrics_of_a_step_by_hand(tmp_path, tiny_model, tokenizer):
    logps = (-1.0, -3.0, -9.0)
    rows = [
        Sample((5,), (6, 7, 8), (1, 1, 0), logps, 1.0, ("g", 0), 0, advantage=2.0, truncated=True),
        Sample((5,), (6,), (1,), (-2.0,), -1.0, ("g", 0), 1, advantage=-1.0, invalid=True),
    ]
    for row in rows:  # the engine check wants true log-probabilities; they are set after it
        row.logps = None
    trainer, metrics, _ = trained(tmp_path, tiny_model, tokenizer, [rows])
    found = metrics[0]
    assert (found["reward/g/0"], found["length/g/0"]) == (0.0, 1.5)
    assert (found["truncated/g/0"], found["invalid/g/0"]) == (0.5, 0.5)
    assert (found["advantage_mean/g/0"], found["advantage_std/g/0"]) == (0.5, 1.5)
    assert found["samples"] == 2 and found["tokens_per_second"] > 0


def test_last_checkpoint_takes_the_newest_complete_one(tmp_path):
    assert last_checkpoint(tmp_path) is None
    for step in (2, 10, 12):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for step in (2, 10):
        (tmp_path / f"checkpoint-{step}" / "selfplay_state.pt").touch()
    assert last_checkpoint(tmp_path).name == "checkpoint-10"


def test_a_full_disk_while_saving_is_told_and_the_checkpoint_before_stays(
    tmp_path, tiny_model, tokenizer
):
    """A file size limit stands in for the full disk: the operating system refuses the write
    half-way."""
    params = RunParams(**{**BASE, "steps": 2, "save_every": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk(row, samples):
        if row["step"] == 2:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))

    method = Fixed([ragged_rows(1), ragged_rows(2)])
    trainer = make_trainer(
        params, tiny_model, tokenizer, method, {}, Hooks(on_step=fill_the_disk), tmp_path
    )
    try:
        with pytest.raises(
            TrainerError, match="checkpoint-2 could not be written.*free some disk space"
        ):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert last_checkpoint(tmp_path).name == "checkpoint-1"
