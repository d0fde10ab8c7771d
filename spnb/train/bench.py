"""How fast this machine generates and trains: our engine and trainer beside the libraries' own.

    spnb bench

For two models (0.15 and 0.7 million weights), on one thread: tokens a second of `TorchEngine` and
of transformers' `generate` on the same requests, and seconds of one training step of our trainer
and of TRL's on the same rows. Both also as a share of the rate at which the machine multiplies
matrices: 2 operations a weight and token forward, 6 in training.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from spnb.core.types import Chat, Request, Sample, Sampling, derive_seed, sample_of
from spnb.games import make_game
from spnb.games.text import messages
from spnb.train.engines.decoders import padded
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import Policy, load_policy

GAMES = ("kuhn_poker", "TicTacToe-v0", "SimpleNegotiation-v0")
GENERATE_BAR, TRAIN_BAR = 4.0, 1.05
"""Generation is at least so many times as fast as `generate`; a training step takes at most so
many times as long as TRL's."""


def bench(prompts: int = 32, group: int = 8, repeats: int = 5) -> pd.DataFrame:
    """One row a model and work; see the module's docstring.

    Args:
        prompts: different prompts, from the embedded games.
        group: answers sampled for each prompt, as methods with groups do.
        repeats: times that everything is measured, in turns; medians are reported.

    Returns:
        Columns model, weights, work, requests (or rows), tokens, ours, theirs (tokens a second),
        ratio (ours to theirs; for training the time of ours to theirs), bar, gemm_share.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        gemm = gemm_rate()
        rows = []
        for name, policy in models().items():
            rows.append({"model": name, **generation(policy, prompts, group, repeats, gemm)})
            rows.append({"model": name, **training(policy, prompts, group, repeats, gemm)})
        return pd.DataFrame(rows)
    finally:
        torch.set_num_threads(threads)


def models() -> dict[str, Policy]:
    """The policies that are measured: a random one of 0.15 million weights, and the shipped one."""
    games = load_policy("embedded/games")
    small = load_policy("embedded/games")
    config = small.model.config.__class__.from_dict(
        {**small.model.config.to_dict(), "hidden_size": 64, "intermediate_size": 192}
        | {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2}
        | {"layer_types": ["full_attention"] * 2}
    )
    torch.manual_seed(0)
    small.model = type(small.model)(config).train()
    return {"0.15 M (random)": small, "0.7 M (embedded/games)": games}


def gemm_rate(size: int = 512, seconds: float = 0.5) -> float:
    """Floating-point operations a second of `torch.mm` on square float32 matrices; the median."""
    left, right = torch.randn(2, size, size)
    times = []
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(times) < 3:
        times.append(_seconds(lambda: torch.mm(left, right)))
    return 2 * size**3 / statistics.median(times)


def requests(policy: Policy, prompts: int, group: int) -> list[Request]:
    """Prompts from random matches of the games, all different, each `group` times."""
    chat = Chat(policy.tokenizer)
    sampling = Sampling(max_new_tokens=40)
    chosen: dict[tuple[int, ...], None] = {}
    for seed in range(100 * prompts):
        rng = random.Random(seed)
        match = make_game(GAMES[seed % len(GAMES)]).match(seed)
        for _ in range(rng.randrange(4)):
            if match.player is not None and match.legal_actions():
                match.play(rng.choice(match.legal_actions()))
        if match.player is not None and len(chosen) < prompts:
            chosen[chat.request(messages(match), sampling, 0).prompt_ids] = None
    return [
        Request(ids, sampling, derive_seed("bench", index, member))
        for index, ids in enumerate(chosen)
        for member in range(group)
    ]


def generation(policy: Policy, asked: Sequence[Request], repeats: int) -> dict[str, Any]:
    """Tokens a second of the engine and of `generate`, each with its own completions."""
    engine = TorchEngine(policy.model, policy.tokenizer)
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        for name, work in (
            ("ours", lambda: sum(len(answer.ids) for answer in engine.generate(asked))),
            ("theirs", lambda: transformers_tokens(policy, asked)),
        ):
            started = time.perf_counter()
            tokens = work()
            rates[name].append(tokens / (time.perf_counter() - started))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    prompts = sum(map(len, {request.prompt_ids for request in asked}))
    operations = 2 * policy.model.num_parameters() * (1 + prompts / tokens_of(engine, asked))
    return {
        "work": "generate",
        "rows": len(asked),
        **medians,
        "ratio": medians["ours"] / medians["theirs"],
        "bar": GENERATE_BAR,
        "operations": operations * medians["ours"],
    }
