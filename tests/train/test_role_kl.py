"""KL on the rows of some roles only, against the oracle's loss."""

import sys
from types import SimpleNamespace

import oracle
import pytest
from test_trainer import Fixed, assert_as_the_oracle, ragged_rows, run_params
from transformers import AutoModelForCausalLM

from spnb.core.advantages import make_estimator
from spnb.core.method import Role, RoleParams
from spnb.core.types import Sample
from spnb.train import trainer as trainers
from spnb.train.guards import TrainerError
from spnb.train.policies import Policy
from spnb.train.role_kl import RoleKLMixin
from spnb.train.trainer import Hooks, SelfPlayMixin, make_trainer


class TwoRoles(Fixed):
    """Rows of a role that is held to its start and of one that is free."""

    def default_roles(self):
        roles = {name: Role(self.params.sampling, make_estimator("raw")) for name in "rs"}
        return roles | {"s": roles["s"].changed(RoleParams(kl=False))}

    def role_of(self, sample):
        return sample.role


def batches():
    """Two batches of rows, every second one of the free role, weights of several sizes."""
    both = [ragged_rows(1, count=6), ragged_rows(2, count=9)]
    for index, row in enumerate(row for rows in both for row in rows):
        row.role = "rs"[index % 2]
        row.weight = 2.0 if row.role == "r" else (0.5, 1.5)[index % 4 // 2]
    return both


def make(tmp_path, model, tokenizer, params, method=None, rows=None):
    """A trainer on `batches()`."""
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    method = method or TwoRoles(batches(), params)
    return make_trainer(params, Policy(model, tokenizer), method, {}, hooks, tmp_path)


@pytest.mark.parametrize(
    "grpo",
    [
        {"beta": 3.0, "learning_rate": 3e-2},
        {"beta": 3.0, "learning_rate": 3e-2, "gradient_accumulation_steps": 3, "loss_type": "grpo"},
        {"beta": 3.0, "learning_rate": 3e-2, "num_iterations": 2},
    ],
    ids=str,
)
@pytest.mark.slow
def test_loss_and_gradient_are_the_oracles(tmp_path, tiny_model, tokenizer, grpo):
    tiny_model.save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    params, rows = run_params(grpo=grpo), []
    _, history = oracle.train(model, batches(), params, free=("s",))
    _, everywhere = oracle.train(model, batches(), params)
    make(tmp_path, model, tokenizer, params, rows=rows).train()
    assert_as_the_oracle(rows, history, params.grpo["num_iterations"])
    assert abs(history[-1][0] - everywhere[-1][0]) > 1e-3  # the roles differ in something


@pytest.mark.slow
def test_a_rows_kl_has_its_weight_where_the_method_wants_that(tmp_path, tiny_model, tokenizer):
    tiny_model.save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    params, rows = run_params(grpo={"beta": 3.0, "learning_rate": 3e-2}), []
    _, history = oracle.train(model, batches(), params, weighted=True)
    _, alike = oracle.train(model, batches(), params)
    method = Fixed(batches(), params)
    method.kl_weighted = True
    make(tmp_path, model, tokenizer, params, method, rows=rows).train()
    assert_as_the_oracle(rows, history, params.grpo["num_iterations"])
    assert abs(history[-1][0] - alike[-1][0]) > 1e-3


@pytest.mark.slow
def test_the_free_roles_kl_is_still_measured(tmp_path, tiny_model, tokenizer):
    tiny_model.save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    rows, params = [], run_params(grpo={"beta": 0.3, "learning_rate": 3e-2})
    method = TwoRoles(batches(), params)
    for row in (row for batch in method.batches for row in batch):
        row.logps = tuple(0.0 for _ in row.mask)
    trainer = make(tmp_path, model, tokenizer, params, method, rows)
    trainer.watch.tolerance = float("inf")
    trainer.train()
    assert rows[-1]["kl/r"] > 0 and rows[-1]["kl/s"] > 0


@pytest.mark.parametrize("held", [{"policy": "another"}, {"trainable": False}], ids=str)
def test_without_a_row_under_the_kl_there_is_no_reference(
    tmp_path, tiny_model, tokenizer, monkeypatch, held
):
    """The held role is another policy's, or does not learn: the weights are, bit by bit, those that
    come of a reference for rows that are all free of it."""
    tiny_model.save_pretrained(tmp_path / "model")
    params, weights = run_params(grpo={"beta": 3.0, "learning_rate": 3e-2}), []
    for without in (True, False):
        if not without:
            monkeypatch.setattr(trainers, "_without_kl", lambda params, *_: params)
        method = TwoRoles(batches(), params)
        method.roles["r"] = method.roles["r"].changed(RoleParams(**held))
        for row in (row for batch in method.batches for row in batch):
            row.role = "s"
        model, rows = AutoModelForCausalLM.from_pretrained(tmp_path / "model"), []
        trainer = make(tmp_path, model, tokenizer, params, method, rows)
        assert isinstance(trainer, RoleKLMixin) is not without
        assert (trainer.ref_model is None) is without
        trainer.train()
        assert any("kl" in row for row in rows) is not without
        weights.append(model.state_dict())
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


def test_it_is_there_only_where_it_is_needed(tmp_path, tiny_model, tokenizer, monkeypatch):
    assert not isinstance(make(tmp_path, tiny_model, tokenizer, run_params()), RoleKLMixin)
    tiny_model.save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    params = run_params(grpo={"beta": 0.1})
    alone = Fixed(batches(), params)
    assert not isinstance(make(tmp_path, model, tokenizer, params, alone), RoleKLMixin)
    assert isinstance(make(tmp_path, model, tokenizer, params), RoleKLMixin)
    monkeypatch.setitem(sys.modules, "unsloth", SimpleNamespace())
    with pytest.raises(TrainerError, match=r"roles\.s\.kl is False with backend unsloth"):
        trainers._mixins(params, TwoRoles(batches(), params), trainers.Stage(), True)
    alone.kl_weighted = True
    with pytest.raises(TrainerError, match="grpo.beta is 0.1 with backend unsloth"):
        trainers._mixins(params, alone, trainers.Stage(), True)


def test_rows_under_the_kl_have_one_weight():
    """TRL's loss has one beta a step: rows that are held by it cannot weigh differently."""
    roles = {name: SimpleNamespace(kl=name == "r") for name in "rs"}
    weights = (("r", 2.0), ("s", 0.5), ("r", 2.0))
    rows = [Sample((1,), (2,), (1,), None, 0.0, role, 0, weight=w) for role, w in weights]
    trainer = type("Trainer", (SelfPlayMixin, RoleKLMixin), {})()
    trainer.method = SimpleNamespace(roles=roles, role_of=lambda row: row.role)
    assert (trainer._kl_weight(rows), trainer._kl_weight(rows[1:2])) == (2.0, 1.0)
    rows[0].weight = 1.0
    with pytest.raises(TrainerError, match="rows under KL have weights from 1.0 to 2.0; allowed"):
        trainer._kl_weight(rows)
