"""Full copies of sharded weights beside a stand-in for DeepSpeed, whose own are cut to bfloat16."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from spnb.train.masters import MastersMixin


class Deep:
    """What DeepSpeed does: copies of the weights after they were cut, and weights in bfloat16."""

    is_deepspeed_enabled = True

    def _prepare_for_training(self, *_):
        for each in self.model.parameters():
            self.masters[each] = each.detach().bfloat16().float()
            each.data = each.data.bfloat16()

    def save_model(self, *_):
        self.saved = "plain"

    def _save(self, output_dir, state_dict):
        self.saved = state_dict


@pytest.mark.parametrize("checkpoint", [None, "checkpoint-1"])
def test_the_copies_begin_as_float32_and_are_saved(monkeypatch, checkpoint):
    """A resumed run has its copies from the checkpoint, which are left alone."""
    one = type("Trainer", (MastersMixin, Deep), {})()
    one.model, one.masters, one.args = torch.nn.Linear(3, 2), {}, SimpleNamespace(should_save=True)
    utils = ModuleType("deepspeed.utils")
    utils.safe_set_full_fp32_param = one.masters.__setitem__
    utils.safe_get_full_fp32_param = one.masters.__getitem__
    for name, module in (("deepspeed", ModuleType("deepspeed")), ("deepspeed.utils", utils)):
        monkeypatch.setitem(sys.modules, name, module)
    before = {name: each.detach().clone() for name, each in one.model.named_parameters()}
    one._prepare_for_training(1, None, checkpoint)
    one.save_model("there")
    exact = [torch.equal(one.saved[name], value) for name, value in before.items()]
    assert all(exact) if checkpoint is None else not any(exact)
    one.save_model("there", _internal_call=True)
    assert one.saved == "plain"
