"""A run's policies for exhibits that let them answer again: its checkpoints and their engines."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spnb.core.types import Chat, Completion, Engine, Request
from spnb.train.config import RunParams
from spnb.train.runs import Run


def load_engine(path: str | Path, params: RunParams) -> tuple[Engine, Chat]:
    """A policy from a folder or by name, with the chat that its tokenizer needs."""
    from spnb.train.engines.torch import TorchEngine
    from spnb.train.policies import load_policy

    plain = {"backend": "transformers", "engine": "torch"}
    policy = load_policy(str(path), params.model_copy(update=plain), trained=False)
    return TorchEngine(policy.model, policy.tokenizer), Chat(policy.tokenizer, params.thinking)


def run_params(run: Run) -> RunParams:
    """A run's parameters; its module needs torch, which this one does not import."""
    from spnb.train import run as trained

    return trained.run_params(run)


class Greedy:
    """An engine that takes the most likely tokens, and keeps its texts."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.texts: list[str] = []

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        greedy = [replace(one, sampling=replace(one.sampling, temperature=0.0)) for one in requests]
        replies = self.engine.generate(greedy)
        self.texts += [reply.text for reply in replies]
        return replies


class CachedEngine:
    """An engine that answers equal requests, which have equal answers, only once a batch."""

    def __init__(self, engine: Engine):
        self.engine = engine

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        different = list(dict.fromkeys(requests))
        replies = dict(zip(different, self.engine.generate(different), strict=True))
        return [replies[one] for one in requests]
