"""How fast this machine generates and trains: our engine and trainer beside the libraries' own.

For two models (0.15 and 0.7 million weights), on one thread: tokens a second of `TorchEngine` and
of transformers' `generate` on the same requests, and the time of one training step of our trainer
and of TRL's on the same rows. Both also as a share of the rate at which the machine multiplies
matrices (operations: 2 a weight and token forward, 6 in training).
"""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from spnb.core.advantages import make_estimator
from spnb.core.method import Role, SelfPlayMethod
from spnb.core.types import Chat, Completion, Request, Sampling, derive_seed, sample_of
from spnb.games import make_game
from spnb.games.base import messages
from spnb.train.config import RunParams
from spnb.train.engines.decoders import padded
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import Policy, load_policy

GAMES = ("kuhn_poker", "TicTacToe-v0", "SimpleNegotiation-v0")
BARS = {"generate": 4.0, "train": 1.05}
"""At least so many times the tokens a second of `generate`; at most so many times TRL's step."""
MICRO_BATCHES = 4
END_SCALE = 25
"""Makes a random model's answers of various lengths (17 tokens on average)."""


def bench(prompts: int = 32, group: int = 8, repeats: int = 7) -> pd.DataFrame:
    """A row for each model and work: seconds of ours and theirs (medians), their ratio, its bar.

    `ratio` is their time for a token over ours in generation, our time for a step over theirs in
    training; `gemm_share` is what ours does of the machine's matrix rate.

    Args:
        prompts: different prompts from the games; `group`: answers to each, as methods sample them.
        repeats: times that ours and theirs are measured, in turns.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rate = gemm_rate()
        rows = []
        for policy in (small_policy(), load_policy("embedded/games")):
            asked = requests(policy, prompts, group)
            answers = TorchEngine(policy.model, policy.tokenizer).generate(asked)
            weights = policy.model.num_parameters()
            for work, measure in (("generate", generation), ("train", training)):
                row = {"weights": weights, "work": work, "rows": len(asked), "bar": BARS[work]}
                row |= measure(policy, asked, answers, repeats)
                row["gemm_share"] = row.pop("token_passes") * weights / row["ours_seconds"] / rate
                rows.append(row)
        return pd.DataFrame(rows)
    finally:
        torch.set_num_threads(threads)


def small_policy() -> Policy:
    """A random model of 0.15 million weights of the shipped policies' family.

    Its end token is made likely, so that answers end at different lengths, as a policy's do.
    """
    policy = load_policy("embedded/games")
    config = policy.model.config.to_dict()
    config |= {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    config["layer_types"] = config["layer_types"][:2]
    torch.manual_seed(0)
    policy.model = type(policy.model)(type(policy.model.config).from_dict(config)).train()
    with torch.no_grad():
        policy.model.lm_head.weight[policy.tokenizer.eos_token_id] *= END_SCALE
    return policy


def gemm_rate(size: int = 512, repeats: int = 25) -> float:
    """Operations a second of `torch.mm` on square float32 matrices, the median."""
    left, right = torch.randn(2, size, size)
    return 2 * size**3 / statistics.median(_seconds(torch.mm, left, right) for _ in range(repeats))


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


def generation(
    policy: Policy, asked: Sequence[Request], answers: Sequence[Completion], repeats: int
) -> dict[str, float]:
    """Seconds that the engine needs, and `generate` for as many tokens."""
    engine = TorchEngine(policy.model, policy.tokenizer)
    tokens = sum(len(answer.ids) for answer in answers)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(_seconds(engine.generate, asked))
        started = time.process_time()
        theirs_tokens = generate(policy, asked)
        theirs.append((time.process_time() - started) * tokens / theirs_tokens)
    prompt_tokens = sum(map(len, {request.prompt_ids for request in asked}))
    return _compared(ours, theirs, inverse=True) | {
        "token_passes": 2 * (tokens + prompt_tokens),
        "tokens_per_second": tokens / statistics.median(ours),
    }


@torch.no_grad()
def generate(policy: Policy, asked: Sequence[Request]) -> int:
    """Answers requests by transformers' `generate` in one batch; the number of tokens up to the
    end."""
    prompts = [request.prompt_ids for request in asked]
    ids_BT, mask_BT = padded(prompts, policy.tokenizer.pad_token_id, policy.model.device)
    sampling = asked[0].sampling
    training = policy.model.training
    rows_BT = policy.model.eval().generate(
        ids_BT, attention_mask=mask_BT, do_sample=True, max_new_tokens=sampling.max_new_tokens
    )
    policy.model.train(training)
    new_BT = rows_BT[:, ids_BT.shape[1] :] == policy.tokenizer.eos_token_id
    return int((new_BT.cumsum(1) - new_BT.int() == 0).sum())


class Prepared(SelfPlayMethod):
    """A method whose rollout is ready: the same rows at each step."""

    samples: list[Any]

    def default_roles(self) -> dict[str, Role]:
        return {"role": Role(Sampling(), make_estimator("raw"))}

    def rollout(self, step: int) -> Any:
        for sample in self.samples:
            sample.advantage = None
        yield []
        return self.samples


def training(
    policy: Policy, asked: Sequence[Request], answers: Sequence[Completion], repeats: int
) -> dict[str, float]:
    """Seconds of an update on the answers by our trainer and by TRL's, both after two others."""
    from spnb.train.trainer import Hooks, grpo_arguments, make_trainer

    samples = []
    for index, (request, answer) in enumerate(zip(asked, answers, strict=True)):
        reward = (-1.0) ** index
        samples.append(sample_of(request, answer, reward=reward, role="role", group=0))
    steps = repeats + 2
    settings = {"gradient_accumulation_steps": MICRO_BATCHES, "learning_rate": 1e-9}
    identity = {"paper": "bench", "scale": "cpu", "variant": "bench"}
    params = RunParams(**identity, policy="bench", steps=steps, save_every=steps, grpo=settings)
    method = Prepared(params, policy.tokenizer)
    method.samples = samples
    with tempfile.TemporaryDirectory() as folder:
        engines = {"policy": TorchEngine(policy.model, policy.tokenizer)}
        hooks = Hooks(on_step=lambda row, rows: None)
        ours = make_trainer(params, policy, method, engines, hooks, Path(folder))
        theirs = _stock(policy, samples, grpo_arguments(params, steps, Path(folder)))
        times = [_step_seconds(trainer)[2:] for trainer in (ours, theirs)]
    tokens = sum(len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples)
    return _compared(*times, inverse=False) | {"token_passes": 6 * tokens}


def _stock(policy: Policy, samples: Sequence[Any], arguments: dict[str, Any]) -> Any:
    """TRL's own trainer on the same rows, with the same settings."""
    import trl
    from datasets import Dataset

    columns = {
        "prompt_ids": [list(sample.prompt_ids) for sample in samples],
        "completion_ids": [list(sample.completion_ids) for sample in samples],
        "logprobs": None,
    }
    rows = {"per_device_train_batch_size": len(samples) // MICRO_BATCHES, "save_strategy": "no"}
    return trl.GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda completions, **_: [sample.reward for sample in samples],
        args=trl.GRPOConfig(**{**arguments, **rows}),
        train_dataset=Dataset.from_dict({"prompt": [""] * len(samples)}),
        processing_class=policy.tokenizer,
        rollout_func=lambda prompts, trainer: columns,
    )


def _step_seconds(trainer: Any) -> list[float]:
    """Seconds of each step of a training; the first has the set-up in it."""
    from transformers import TrainerCallback

    ends = [time.process_time()]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.process_time())

    trainer.add_callback(Clock())
    trainer.train()
    return [end - start for start, end in zip(ends, ends[1:], strict=False)]


def _seconds(work: Any, *arguments: Any) -> float:
    started = time.process_time()
    work(*arguments)
    return time.process_time() - started


def _compared(ours: Sequence[float], theirs: Sequence[float], *, inverse: bool) -> dict[str, float]:
    medians = statistics.median(ours), statistics.median(theirs)
    ratio = medians[1] / medians[0] if inverse else medians[0] / medians[1]
    return {"ours_seconds": medians[0], "theirs_seconds": medians[1], "ratio": ratio}
