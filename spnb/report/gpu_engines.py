"""Parts of `spnb selftest` that ask an engine: whether it has what was asked for, answers with the
weights that it should, and how fast.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from spnb.core.method import POLICY
from spnb.core.types import Completion, Engine, Request, Sample, Trajectory
from spnb.report.gpu_bench import Bench, Result, asked, timed, tolerance
from spnb.train.cards import GB, memory, need

TOKENS = 64
"""Of an answer."""


def load(bench: Bench, result: Result) -> None:
    """Policy, trainer and engine in one process: they load, have the room that was asked for, and
    answer as many at once; Unsloth and vLLM fit the estimate, and sleep."""
    stage = bench.stage(result, vllm_sleep=bench.gpu and bench.values.get("engine") != "torch")
    read_back(result, stage)
    engine, requests = stage.engines[POLICY], asked(bench, stage.params.sequences, 64, TOKENS)
    answers, steps, seconds = stepped(engine, requests)
    written = sum(bool(answer.ids) for answer in answers)
    result.bar("requests answered", written, len(requests), len(requests))
    result.numbers["seconds for them"] = round(seconds, 2)
    if steps:  # in two rounds they would take twice as many as an answer has tokens
        result.bar("steps of the engine for them", steps, high=1.5 * TOKENS)
    if stage.params.vllm_sleep:
        sleeping(result, stage, requests)


def read_back(result: Result, stage: Any) -> None:
    """Bars on what the model and the running engine say of themselves, against the parameters."""
    params, rank = stage.params, stage.model.peft_config["default"].r
    result.bar("rank of the adapter", rank, params.lora_rank, params.lora_rank)
    if params.engine == "torch":
        from spnb.train.engines.torch import rows_with_room

        least = min(stage.engines[POLICY].max_batch, rows_with_room(stage.model, 2 * TOKENS))
        return result.bar("answers at once", least, params.sequences)
    from spnb.train.engines.vllm import ADAPTERS

    config = stage.trainer.vllm_generation.llm.llm_engine.vllm_config
    at_once = config.scheduler_config.max_num_seqs
    most = params.sequences + (params.backend == "unsloth")  # see `_load_unsloth`
    result.bar("answers at once, max_num_seqs", at_once, params.sequences, most)
    result.bar("adapters at once, max_loras", config.lora_config.max_loras, ADAPTERS, ADAPTERS)
    result.bar("room of an adapter, max_lora_rank", config.lora_config.max_lora_rank, rank)


def stepped(engine: Any, requests: Sequence[Request]) -> tuple[list[Completion], int, float]:
    """Answers, how many steps of an engine that goes token by token they took (0 of another), and
    how many seconds."""
    if not hasattr(engine, "proceed"):
        answers, seconds = timed(engine, requests)
        return answers, 0, seconds
    started = time.perf_counter()
    steps, found = 1, engine.proceed(dict(enumerate(requests)))
    while len(found) < len(requests):
        steps += 1
        found |= engine.proceed({})
    seconds = time.perf_counter() - started
    return [found[place] for place in range(len(requests))], steps, seconds


def sleeping(result: Result, stage: Any, requests: Sequence[Request]) -> None:
    """Memory by the estimate, what one sleep gives back of it, and answers after it."""
    import torch

    from spnb.train.guards import engine_gap

    engine = stage.engines[POLICY]
    free, total = torch.cuda.mem_get_info()
    estimate = need(stage.params, total / GB)
    result.bar("GB in use", (total - free) / GB, high=1.1 * estimate)
    started = time.perf_counter()
    engine.sleep()
    result.numbers["seconds to sleep"] = round(time.perf_counter() - started, 2)
    freed = (torch.cuda.mem_get_info()[0] - free) / GB
    cache = memory(stage.params, total / GB)["KV cache"]
    result.bar("GB that sleep frees", freed, low=cache / 2)
    answers, seconds = timed(engine, requests)
    result.numbers["seconds to wake and answer"] = round(seconds, 2)
    gap = engine_gap(stage.model, samples(requests, answers), count=16)
    result.bar("after it, engine against model (nats)", gap, 0, tolerance(dict(stage.params)))


def samples(requests: Sequence[Request], answers: Sequence[Completion]) -> list[Sample]:
    """Answers as rows."""
    pairs = zip(requests, answers, strict=True)
    return [Trajectory.of(*pair).sample(0.0, "", "") for pair in pairs]


def adapter(bench: Bench, result: Result) -> None:
    """An adapter in training, the start, and a past one: each answers with its own weights."""
    from spnb.train.weights import trained_weights

    stage = bench.stage(result)
    start = trained_weights(stage.model)
    kept = {POLICY: noisy(start, 0), "start": start, "past": noisy(start, 1)}
    each_its_own(bench, result, stage, kept)


def noisy(weights: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Weights near these: an adapter's zero factors moved, else all by a fifth of their spread."""
    import torch

    from spnb.train.guards import NOISE

    draw = torch.Generator().manual_seed(seed)
    scales = {name: NOISE for name in weights if "lora_B" in name}
    scales = scales or {name: 0.2 * value.std() for name, value in weights.items()}
    noise = {name: torch.randn(weights[name].shape, generator=draw) for name in scales}
    return dict(weights) | {name: weights[name] + scales[name] * noise[name] for name in scales}


def each_its_own(bench: Bench, result: Result, stage: Any, kept: Mapping[str, Any]) -> None:
    """Asks policies that are one model with several `kept` weights, by name: each must answer with
    its own, and as none of the others would. An engine that has several is asked once for all."""
    from spnb.train.guards import token_gaps
    from spnb.train.weights import put_weights

    engines = {name: stage.snapshot(name, kept[name]) for name in kept if name != POLICY}
    engines[POLICY] = stage.engines[POLICY]
    put_weights(stage.model, kept[POLICY])
    synchronise(result, stage)
    few = asked(bench, 16, 48, 4 * TOKENS if bench.gpu else TOKENS)
    requests = [replace(one, policy=name) for one in few for name in kept]
    rows, calls = answered(engines, requests)
    if stage.params.engine == "vllm" and stage.params.lora_rank:
        result.bar("calls for all policies", calls, 1, 1)
    gaps: dict[tuple[str, str], list[list[float]]] = {}
    for holder, weights in kept.items():
        put_weights(stage.model, weights)
        with stage.trainer.accelerator.autocast():  # keeps casts of weights while it lasts
            for name in kept:
                gaps[name, holder] = [token_gaps(stage.model, row) for row in rows[name]]
    limit = tolerance(dict(stage.params))
    for name in kept:
        own = mean(gaps[name, name])
        other = min(mean(gaps[name, holder]) for holder in kept if holder != name)
        result.bar(f"{name} against its own weights (nats)", own, 0, limit)
        result.bar(f"{name} against others (nats)", other, max(2 * own, 1e-3))
        spread(result, name, gaps[name, name], limit)


def answered(
    engines: Mapping[str, Engine], requests: Sequence[Request]
) -> tuple[dict[str, list[Sample]], int]:
    """Rows by the policy that is asked, and in how many calls of `generate`: one of each engine."""
    rows: dict[str, list[Sample]] = {name: [] for name in engines}
    distinct = {id(engine): engine for engine in engines.values()}.values()
    for engine in distinct:
        own = [one for one in requests if engines[one.policy] is engine]
        for row in samples(own, engine.generate(own)):
            rows[row.policy].append(row)
    return rows, len(distinct)


def spread(result: Result, name: str, gaps: Sequence[Sequence[float]], limit: float) -> None:
    """Quantiles of a policy's gaps a token, and their means in the first and second half of each
    answer: an error that adds up with length would show in the second."""
    for share in (50, 99):
        value = float(np.quantile([*chain(*gaps)], share / 100))
        result.numbers[f"{name}, gap a token (nats), p{share}"] = value
    first = [row[: (len(row) + 1) // 2] for row in gaps]
    second = [row[(len(row) + 1) // 2 :] for row in gaps]
    result.bar(f"{name}, first half of answers (nats)", mean(first), 0, limit)
    result.bar(f"{name}, second half of answers (nats)", mean(second), 0, limit)


def mean(gaps: Sequence[Sequence[float]]) -> float:
    """Over all tokens of all rows."""
    return float(np.mean([*chain(*gaps)]))


def synchronise(result: Result, stage: Any) -> None:
    """Notes how long the engine takes to have the weights in training, where it has its own."""
    import torch

    engine = stage.engines[POLICY]
    seconds: float | str = "none, the engine has the model itself"
    if hasattr(engine, "sync"):
        started = time.perf_counter()
        engine.sync()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = round(time.perf_counter() - started, 3)
    result.numbers["seconds of a synchronisation"] = seconds


def speed(bench: Bench, result: Result) -> None:
    """Tokens a second by rows at once, with an adapter and without seeds; a prompt that eight rows
    share against eight prompts."""
    from spnb.train.weights import put_weights, trained_weights

    stage = bench.stage(result)
    engine = stage.engines[POLICY]
    timed(engine, asked(bench, 2, 16, 4))  # what is compiled at the first call
    counts = (32, 64, 256) if bench.gpu else (2, 8, 32)
    rates = {rows: rate(engine, asked(bench, rows, 32, TOKENS)) for rows in counts}
    few, many = counts[0], counts[-1]
    requests = asked(bench, many, 32, TOKENS)
    own = {"without seeds": rate(engine, [replace(one, seed=None) for one in requests])}
    put_weights(stage.model, noisy(trained_weights(stage.model), 0))  # zeros are no adapter to vLLM
    timed(engine, asked(bench, 2, 16, 4))
    own["with an adapter"] = rate(engine, requests)
    named = {f"{rows} rows": value for rows, value in rates.items()}
    named |= {f"{many} rows {how}": value for how, value in own.items()}
    for name, value in named.items():
        result.numbers[f"tokens a second, {name}"] = round(value, 1)
    result.bar(f"{many} rows against {few}, times as fast", rates[many] / rates[few], 1.5)
    result.bar("seeds against none, times as fast", rates[many] / own["without seeds"], 0.3)
    result.bar("an adapter against none, times as fast", own["with an adapter"] / rates[many], 0.3)
    length = 4000 if bench.gpu else 2000
    apart = timed(engine, asked(bench, 8, length, 4))[1]
    shared = timed(engine, [replace(one, seed=9) for one in asked(bench, 8, length, 4, True)])[1]
    result.bar("seconds of a shared prompt against eight", shared / apart, high=0.75)


def rate(engine: Engine, requests: Sequence[Request]) -> float:
    """Tokens a second, the better of two times."""
    tries = [timed(engine, requests) for _ in range(2)]
    return max(sum(len(one.ids) for one in answers) / seconds for answers, seconds in tries)
