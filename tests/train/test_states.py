"""What a checkpoint keeps of the optimizer, the schedule and the generators: numbers, exactly."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from spnb.train.states import StatesMixin, load_state, save_state

PARTS = ("_save_optimizer_and_scheduler", "_load_optimizer_and_scheduler")


class Loads:
    """What TRL's trainer loads by itself from a checkpoint."""

    loaded = ()

    def _load_optimizer_and_scheduler(self, checkpoint):
        self.loaded = (*self.loaded, checkpoint)


class Trainer(StatesMixin, Loads):
    """As much of a trainer as states need."""

    is_deepspeed_enabled = False

    def __init__(self, process=0, saves=True):
        self.args = SimpleNamespace(process_index=process, should_save=saves)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 1 / (1 + step)
        )

    def step(self):
        self.model(torch.ones(1, 3)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.lr_scheduler.step()


def test_everything_comes_back_as_it_was(tmp_path):
    state = {
        0: torch.arange(6.0).reshape(2, 3).T, "half": torch.tensor(0.1, dtype=torch.bfloat16),
        "numbers": np.array([2**32 - 1], dtype=np.uint32), "none": None, "flag": True,
        "nested": ({"a": [1, 0.1]}, [], ()), "text": "tensor",
    }  # fmt: skip
    save_state(tmp_path / "s", state)
    back = load_state(tmp_path / "s")
    assert list(back) == list(state)
    for name in (0, "half"):
        assert back[name].dtype == state[name].dtype and torch.equal(back[name], state[name])
    assert back["numbers"].dtype == np.uint32 and back["numbers"].tolist() == [2**32 - 1]
    rest = ("none", "flag", "nested", "text")
    assert [back[name] for name in rest] == [state[name] for name in rest]


def test_training_goes_on_where_it_was(tmp_path):
    first, second = Trainer(), Trainer()
    for _ in range(2):
        first.step()
    first._save_optimizer_and_scheduler(str(tmp_path))
    second.model.load_state_dict(first.model.state_dict())
    second._load_optimizer_and_scheduler(str(tmp_path))
    assert second.lr_scheduler.get_last_lr() == [0.1 / 3] and second.loaded == (str(tmp_path),)
    for one in (first, second):
        one.step()
    assert torch.equal(first.model.weight, second.model.weight)
    Trainer(saves=False)._save_optimizer_and_scheduler(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_each_process_has_its_own_random_numbers(tmp_path):
    def drawn():
        return random.random(), np.random.rand(), torch.rand(2).tolist()

    expected = {}
    for process in (0, 1):
        Trainer(process)._save_rng_state(str(tmp_path / "checkpoint-1"))
        expected[process] = drawn()
        torch.rand(process + 1)
    for process in (1, 0):
        Trainer(process)._load_rng_state(str(tmp_path / "checkpoint-1"))
        assert drawn() == expected[process]
    assert expected[0] != expected[1]


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"{}"])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "optimizer.safetensors").write_bytes(content)
    with pytest.raises(SafetensorError):
        Trainer()._load_optimizer_and_scheduler(str(tmp_path))


def test_deepspeed_keeps_its_own():
    asked = []
    above = type("Above", (), {
        name: lambda self, folder, name=name: asked.append((name, folder)) for name in PARTS
    })  # fmt: skip
    own = type("Own", (StatesMixin, above), {"is_deepspeed_enabled": True})()
    for name in PARTS:
        getattr(own, name)("there")
    assert asked == [(name, "there") for name in PARTS]
