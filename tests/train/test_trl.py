"""What we rely on in TRL is listed (trl_names.yaml), and there in the TRL that is installed."""

import ast
import inspect
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest
import trl
from transformers import Trainer
from trl import GRPOConfig

from spnb.train import guards
from spnb.train.grpo import ORDERED, trl_names
from spnb.train.logps import LogpsMixin, PackingMixin
from spnb.train.preference import PreferenceMixin
from spnb.train.role_kl import RoleKLMixin, WeightedKLMixin
from spnb.train.trainer import RunMixin, SelfPlayMixin


def from_trl(path):
    """What a module of ours imports from TRL, or reads of the module trl, by its full name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trl":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "trl":
            yield f"trl.{node.attr}"


def test_all_that_is_used_of_trl_is_listed():
    """Every import, and every method of TRL's that a mixin of ours overrides."""
    used = {name for path in Path(guards.__file__).parent.rglob("*.py") for name in from_trl(path)}
    listed = {*trl_names()["functions"]}
    assert {name for name in used if not any(one.startswith(name) for one in listed)} == set()
    ours = {
        trl.GRPOTrainer: (RunMixin, SelfPlayMixin, PackingMixin, LogpsMixin, RoleKLMixin)
        + (WeightedKLMixin,),
        trl.DPOTrainer: (RunMixin, PreferenceMixin),
    }
    of_transformers = {*vars(Trainer)} - {"_save"}
    for theirs, mixins in ours.items():
        own = {name for mixin in mixins for name in vars(mixin) if not name.startswith("__")}
        overridden = {name for name in own if hasattr(theirs, name)} - of_transformers
        contract = {*trl_names()["contract"][theirs.__name__]["methods"]}
        assert overridden <= contract, overridden - contract


@pytest.mark.parametrize("name", trl_names()["functions"])
def test_what_is_used_of_trl_is_there_as_we_call_it(name):
    parts = name.split(".")
    depth = next(n for n in range(len(parts), 0, -1) if find(".".join(parts[:n])))
    value = reduce(getattr, parts[depth:], import_module(".".join(parts[:depth])))
    if expected := trl_names()["functions"][name]:
        if name.endswith("_ForwardRedirection"):
            value = value.__call__
        value = value.__init__ if isinstance(value, type) else value
        assert [*inspect.signature(value).parameters][: len(expected)] == expected


@pytest.mark.parametrize("most", ORDERED.values())
def test_the_upper_bounds_that_are_not_given_are_trls(most):
    name, default = most
    assert GRPOConfig.__dataclass_fields__[name].default == default


def find(module):
    try:
        return import_module(module)
    except ModuleNotFoundError:
        return None
