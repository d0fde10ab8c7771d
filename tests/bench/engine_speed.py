"""How fast this machine generates and trains: our engine and trainer beside the libraries' own.

For two models (0.15 and 0.7 million weights), on one thread: tokens a second of `TorchEngine` and
of transformers' `generate` on the same requests, and the time of one training step of our trainer
and of TRL's on the same rows. Both also as a share of the rate at which the machine multiplies
matrices (operations: 2 a weight and token forward, 6 in training).

    make bench      # two minutes; writes the exhibit speed/engine
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import PrinterCallback, TrainerCallback

from spnb.core.advantages import make_estimator
from spnb.core.episodes import Episode
from spnb.core.method import Role, SelfPlayMethod
from spnb.core.types import Chat, Completion, Request, Sample, Sampling, Trajectory, derive_seed
from spnb.games import make_game
from spnb.games.base import messages
from spnb.report.exhibits import save_exhibit
from spnb.train.config import RunParams
from spnb.train.engines.decoders import padded
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import Policy, load_policy
from spnb.train.provenance import exhibit_folder, unclean

GAMES = ("kuhn_poker", "TicTacToe-v0", "SimpleNegotiation-v0")
BARS = {"generate": 4.0, "train": 1.05}
"""At least so many times the tokens a second of `generate`; at most so many times TRL's step."""
MICRO_BATCHES = 4
COLUMNS = ("prompt_ids", "completion_ids")
WORK = {"generate": "generate", "train": "training step"}
BAR = {"generate": "at least {:g}", "train": "at most {:g}"}
TEXTS = {
    "caption": "CPU seconds of the torch engine and of a training step beside the libraries' own.",
    "protocol": "No paper has this table. One thread, medians of 7 in turns; 32 prompts, 8 answers "
    "each. Theirs: transformers' generate (its time scaled to our number of tokens), TRL's "
    "step. Ratio: their time over ours in generation, ours over theirs in training.",
}
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
                row["gemm_share"] = row.pop("passes") * weights / row["ours_seconds"] / rate
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
    times = [_seconds(torch.mm, left, right)[0] for _ in range(repeats)]
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


def generation(
    policy: Policy, asked: Sequence[Request], answers: Sequence[Completion], repeats: int
) -> dict[str, float]:
    """The engine beside `generate`, whose seconds are scaled to the engine's number of tokens."""
    engine = TorchEngine(policy.model, policy.tokenizer)
    tokens = sum(len(answer.ids) for answer in answers)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(_seconds(engine.generate, asked)[0])
        seconds, count = _seconds(generate, policy, asked)
        theirs.append(seconds * tokens / count)
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    prompt_tokens = sum(map(len, {request.prompt_ids for request in asked}))
    times = {"ours_seconds": ours, "theirs_seconds": theirs, "ratio": theirs / ours}
    return times | {"tokens_per_second": tokens / ours, "passes": 2 * (tokens + prompt_tokens)}


@torch.no_grad()
def generate(policy: Policy, asked: Sequence[Request]) -> int:
    """Answers requests by `generate` in one batch; the number of tokens up to the ends."""
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

    samples: list[Sample]

    def default_roles(self) -> dict[str, Role]:
        return {"role": Role(Sampling(), make_estimator("raw"))}

    def rollout(self, step: int) -> Episode[list[Sample]]:
        yield []
        return [replace(sample) for sample in self.samples]


def training(
    policy: Policy, asked: Sequence[Request], answers: Sequence[Completion], repeats: int
) -> dict[str, float]:
    """An update on the answers by our trainer and by TRL's own; the first two are not counted."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from spnb.train.config import grpo_arguments
    from spnb.train.trainer import Hooks, make_trainer

    labels = {"role": "role", "group": 0}
    pairs = zip(asked, answers, strict=True)
    samples = [Trajectory.of(*pair).sample((-1.0) ** i, **labels) for i, pair in enumerate(pairs)]
    names = {"paper": "bench", "scale": "cpu", "variant": "bench", "policy": "bench"}
    grpo = {"gradient_accumulation_steps": MICRO_BATCHES, "learning_rate": 1e-9}
    params = RunParams(**names, steps=repeats + 2, save_every=repeats + 2, grpo=grpo)
    method = Prepared(params, policy.tokenizer)
    method.samples = samples
    columns = {name: [list(getattr(s, name)) for s in samples] for name in COLUMNS}
    with tempfile.TemporaryDirectory() as folder:
        hooks = Hooks(on_step=lambda row, rows: None)
        ours = make_trainer(params, policy, method, {}, hooks, Path(folder))
        arguments = grpo_arguments(params, params.steps, Path(folder)) | {"save_strategy": "no"}
        arguments["per_device_train_batch_size"] = len(samples) // MICRO_BATCHES
        theirs = GRPOTrainer(
            model=policy.model,
            reward_funcs=lambda completions, **_: [sample.reward for sample in samples],
            args=GRPOConfig(**arguments),
            train_dataset=Dataset.from_dict({"prompt": [""] * len(samples)}),
            processing_class=policy.tokenizer,
            rollout_func=lambda prompts, trainer: {**columns, "logprobs": None},
        )
        theirs.remove_callback(PrinterCallback)
        ours, theirs = (statistics.median(_steps(trainer)[2:]) for trainer in (ours, theirs))
    tokens = sum(len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples)
    times = {"ours_seconds": ours, "theirs_seconds": theirs, "ratio": ours / theirs}
    return times | {"passes": 6 * tokens}


def _steps(trainer: Any) -> list[float]:
    """Seconds of each step of a training; the first has the set-up in it."""
    ends = [time.process_time()]
    clock = TrainerCallback()
    clock.on_step_end = lambda *_, **__: ends.append(time.process_time())
    trainer.add_callback(clock)
    trainer.train()
    return [end - start for start, end in zip(ends, ends[1:], strict=False)]


def _seconds(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.process_time()
    result = work(*arguments)
    return time.process_time() - started, result


def save_speed(figures: str) -> str:
    """Runs the bench, saves its exhibit below `figures`; returns the table and the files' paths."""
    rows = bench()
    table = pd.DataFrame({"model (weights)": rows["weights"], "what": rows["work"].map(WORK)})
    for side in ("ours", "theirs"):
        table[side] = rows[f"{side}_seconds"].map("{:.3g} s".format)
    table["ratio"] = rows["ratio"].round(2)
    table["bar"] = [BAR[row.work].format(row.bar) for row in rows.itertuples()]
    table["share of GEMM rate"] = rows["gemm_share"].round(3)
    files = save_exhibit("speed/engine", table, [], folder=figures, **TEXTS)
    return "\n".join([table.to_string(index=False), *map(str, files)])


if __name__ == "__main__":
    print(save_speed(str(exhibit_folder(None, unclean()))))
