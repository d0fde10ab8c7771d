"""Shared fixtures: one thread, and a tiny random policy with the embedded policy's tokenizer."""

import gc
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)
# Rules for addresses, which no notebook's format asks for; jsonschema builds them in two seconds.
sys.modules.setdefault("rfc3987_syntax", None)


# The files that take longest, longest first. Each file stays with one of the two workers: begun
# late, one of these keeps a worker busy for minutes while the other has nothing left.
LONGEST = (
    "test_notebooks.py",
    "test_killed_runs.py",
    "test_records.py",
    "test_selftest.py",
    "test_reasoner.py",
    "test_jupyterlab.py",
    "test_signals.py",
    "test_cli.py",
)


def pytest_collection_modifyitems(items):
    """The longest files first; the order is else pytest's."""
    place = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch):
    """What a test's plugins register is gone after it."""
    from spnb.core import plugins

    monkeypatch.setattr(plugins, "LOADED", {})


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """No power is cut during a test; those about `fsync` put their own in its place."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="session")
def tokenizer():
    """The shipped policy's tokenizer."""
    from transformers import AutoTokenizer

    from spnb.lab import embedded_path

    return AutoTokenizer.from_pretrained(embedded_path("games"))


@pytest.fixture
def tiny_model(tokenizer):
    """A new random Qwen3 of 2 layers and 32 dimensions, float32; the same weights each time."""
    from spnb.lab.pretrain.build import Recipe, build_model

    return build_model(Recipe(hidden=32, layers=2, heads=2, feed_forward=64), tokenizer)


def pytest_collection_finish():
    """What is there when the tests begin stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()
