"""The self-test: verdicts, limits, exit codes, and that its parts can fail."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import trl
from processes import server_address, share_server
from typer.testing import CliRunner

from spnb.cli import app
from spnb.core.params import ParamError
from spnb.lab.tiny import tiny_qwen
from spnb.report import gpu_bench, gpu_parts
from spnb.report import selftest as module
from spnb.report.gpu_bench import FAILED, LEFT_OUT, PASSED, Bench, LeftOut, Result, trained
from spnb.report.gpu_engines import adapter, each_its_own, load, noisy, spread
from spnb.report.gpu_parts import PARTS, fixed_loss, logits_peak
from spnb.report.selftest import selftest, write
from spnb.train.doctor import Card, Machine
from spnb.train.run import StageRun
from spnb.train.server import start
from spnb.train.weights import SnapshotEngine, trained_weights

SOON = 1.0
"""Minutes; a busy machine takes long to start a process."""


def good(bench, result):
    result.bar("threes", 3.0, 1, 3)
    result.numbers["of what"] = "apples"


def broken(bench, result):
    result.bar("held", 1.0, 0)
    result.bar("too few", 1.0, 2)


def silent(bench, result):
    result.numbers["nothing"] = "held against a bar"


def absent(bench, result):
    raise LeftOut("vllm is not installed")


def wrong(bench, result):
    result.bar("held", 1.0, 0)
    raise ValueError("no such thing\nat all")


def gone(bench, result):
    os._exit(3)


def endless(bench, result):
    result.bar("held", 1.0, 0)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (bench.folder / "pid").write_text(str(child.pid))
    time.sleep(600)


OWN = {one.__name__: (SOON, one) for one in (good, broken, silent, absent, wrong, gone)}
OWN["endless"] = (0.05, endless)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "resolve", lambda path: tmp_path / path)
    return tmp_path


@pytest.mark.slow
def test_every_part_has_a_verdict_and_the_reason(home, capsys, monkeypatch):
    # forked, for speed: a spawned part imports torch first; the test with a random model spawns
    monkeypatch.setattr(module, "get_context", lambda kind: get_context("fork"))
    monkeypatch.setattr(module, "PARTS", OWN)
    results = {one.part: one for one in selftest()}
    said = {name: (one.verdict, one.why) for name, one in results.items()}
    assert said["good"] == (PASSED, "") and results["good"].numbers == {"of what": "apples"}
    assert said["broken"] == (FAILED, "too few: 1, allowed: from 2")
    assert said["silent"] == (FAILED, "it has measured nothing")
    assert said["absent"] == (LEFT_OUT, "vllm is not installed")
    assert said["wrong"] == (FAILED, "ValueError: no such thing")
    assert said["gone"][0] == FAILED and "exit code 3; see" in said["gone"][1]
    assert said["endless"] == (FAILED, "over its limit of 0.05 minutes, and was ended")
    (pid,) = home.glob("runs/selftest/*/endless/pid")
    status = Path(f"/proc/{pid.read_text()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(), "with all it has started"
    out = capsys.readouterr().out
    assert out.startswith("CPU alone, random model; ") and "broken   failed" in out
    assert not (home / "figures").exists(), "a CPU makes no figure of a GPU"
    (file,) = home.glob("runs/selftest/*/selftest.json")
    told = {one["part"]: one["verdict"] for one in json.loads(file.read_text())["parts"]}
    assert told == {name: verdict for name, (verdict, _) in said.items()}
    assert "| endless | failed |" in file.with_suffix(".md").read_text()


@pytest.mark.slow
def test_an_interrupt_ends_a_part_and_all_that_it_has_started_and_keeps_the_verdicts_before(
    home, monkeypatch
):
    monkeypatch.setattr(module, "get_context", lambda kind: get_context("fork"))
    monkeypatch.setattr(module, "PARTS", {"good": OWN["good"], "endless": (1, endless)})

    def interrupt():
        while not list(home.glob("runs/selftest/*/endless/pid")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        selftest()
    (pid,) = home.glob("runs/selftest/*/endless/pid")
    status = Path(f"/proc/{pid.read_text()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    (file,) = home.glob("runs/selftest/*/selftest.json")
    assert [one["part"] for one in json.loads(file.read_text())["parts"]] == ["good"]


def test_bars_hold_within_their_bounds_alone():
    result = Result("x")
    for value in (0.0, 1.0, 2.0, 3.0, math.nan):
        result.bar(f"b{value}", value, 1, 2)
    assert list(result.bars.values()) == [False, True, True, False, False]
    result.judge()
    assert result.verdict == FAILED and result.why.startswith("b0.0: 0, allowed: from 1 to 2; b3.0")


def test_parts_that_ran_before_on_the_same_machine_stay(tmp_path):
    write(tmp_path, "a card", [Result("load", PASSED), Result("speed", FAILED, "slow")])
    write(tmp_path, "a card", [Result("speed", PASSED, bars={"1 > 0": True})])
    text = (tmp_path / "selftest.md").read_text()
    assert "| load | passed |" in text and "| speed | passed |" in text and "- held: 1 > 0" in text
    write(tmp_path, "another card", [Result("speed", PASSED)])
    assert "load" not in (tmp_path / "selftest.md").read_text()


def test_the_command_has_an_exit_code(monkeypatch, tmp_path):
    made = []

    def verdicts(*found):
        monkeypatch.setattr(
            module, "selftest", lambda *given, **values: [made.append((given, values)), *found][1:]
        )
        arguments = ["selftest", "--gpu", "--part", "load", "--part", "loss", "--out", "x"]
        arguments += ["--set", "engine=torch", "--set", "grpo.beta=0.1"]
        return CliRunner().invoke(app, arguments).exit_code

    assert verdicts(Result("a", PASSED), Result("b", LEFT_OUT)) == 0
    assert verdicts(Result("a", PASSED), Result("b", FAILED)) == 1
    assert verdicts(Result("b", LEFT_OUT)) == 1, "nothing was measured"
    values = {"engine": "torch", "grpo": {"beta": 0.1}}
    assert made[0] == ((["load", "loss"], True, Path("x")), values)
    monkeypatch.undo()
    with pytest.raises(ParamError, match="part is 'lod', which is unknown; did you mean 'load'?"):
        selftest(["lod"])


def test_parameters_are_those_of_every_run_and_stand_in_the_report(home, monkeypatch, tmp_path):
    plan = Bench(tmp_path, "embedded/games", False, {"max_new_tokens": 7}).plan("spiral")
    assert plan.params("full").max_new_tokens == 7
    given = []
    monkeypatch.setattr(
        module, "run_part", lambda name, part, bench: [given.append(bench.values), Result(name)][1]
    )
    selftest(["machine"], out=tmp_path, engine="torch", max_new_tokens=7)
    assert given == [{"engine": "torch", "max_new_tokens": 7}]
    text = (tmp_path / "selftest.md").read_text()
    assert "random model, engine=torch, max_new_tokens=7" in text
    with pytest.raises(ParamError, match="engine is 'tprch'"):
        selftest(["machine"], engine="tprch")


def test_limits_are_ten_minutes_at_most_and_45_together():
    assert max(minutes for minutes, _ in PARTS.values()) <= 10
    assert sum(minutes for minutes, _ in PARTS.values()) <= 45


def test_a_gpu_has_its_own_folder_and_a_model_in_reach_or_of_that_shape(home, monkeypatch):
    seen = Machine(cards=(Card("H100", 85, 9.0),), driver="580.1", usable=True)
    monkeypatch.setattr(module, "look", lambda: seen)
    monkeypatch.setattr(module, "tiny_qwen", lambda folder, **sizes: sizes)
    chosen = module.choose_policy(True, home)  # there is no hub
    assert (chosen["hidden_size"], chosen["num_hidden_layers"]) == (1024, 28)
    assert chosen["vocab_size"] == 151936 and "model_type" not in chosen
    monkeypatch.setattr(module, "check_policies", lambda names: None)
    assert module.choose_policy(True, home) == module.MODEL
    monkeypatch.setattr(module, "run_part", lambda name, part, bench: Result(name, PASSED))
    selftest(["machine"], gpu=True)
    assert "H100, driver 580.1" in (home / "figures/gpu/selftest.md").read_text()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path, tiny_qwen(tmp_path / "policy"), gpu=False)


@pytest.fixture
def stage(bench):
    return bench.stage(Result("x"))


def broken_bars(check, bench, *more):
    """What a part finds wrong, without values."""
    result = Result("x")
    check(bench, result, *more)
    return {sentence.split(":")[0] for sentence, held in result.bars.items() if not held}


@pytest.mark.slow
def test_the_adapters_part_fails_where_an_engine_answers_with_other_weights(bench, monkeypatch):
    result = Result("adapter")
    adapter(bench, result)
    result.judge()
    assert result.verdict == PASSED and len(result.bars) == 12 and len(result.numbers) == 8
    snapshot = StageRun.snapshot
    for policy in ("start", "past"):

        def other(stage, name, weights, policy=policy):
            own = stage.engines["policy"]
            return own if name == policy else snapshot(stage, name, weights)

        monkeypatch.setattr(StageRun, "snapshot", other)
        found = broken_bars(adapter, bench)
        assert f"{policy} against its own weights (nats)" in found
        assert all(one.startswith(policy) for one in found)


class Several:
    """A stand-in for vLLM: weights of its own by policy, of the one in training as they were at the
    last `sync`; goes token by token, at most `at_once` answers at a time."""

    def __init__(self, stage, at_once=8):
        self.model, self.inner = stage.model, stage.engines["policy"]
        self.kept, self.calls, self.at_once = {}, [], at_once
        self.open, self.left = {}, {}
        self.awake, self.asleep = 34e9, 4e9
        self.sync()

    def sync(self):
        self.kept["policy"] = trained_weights(self.model)

    def snapshot(self, name, weights):
        self.kept[name] = weights
        return self

    def generate(self, requests):
        self.used = self.awake
        self.calls.append(len(requests))
        own = {name: [one for one in requests if one.policy == name] for name in self.kept}
        answers = {}
        for name, asked in own.items():
            engine = SnapshotEngine(self.inner, self.model, self.kept[name])
            answers |= dict(zip(map(id, asked), engine.generate(asked), strict=True))
        return [answers[id(one)] for one in requests]

    def proceed(self, requests):
        if requests:
            answers = self.generate([*requests.values()])
            self.open = dict(zip(requests, answers, strict=True))
            self.left = {number: len(one.ids) for number, one in self.open.items()}
        for number in [*self.left][: self.at_once]:
            self.left[number] -= 1
        done = [number for number, count in self.left.items() if not count]
        for number in done:
            del self.left[number]
        return {number: self.open.pop(number) for number in done}

    def sleep(self):
        self.used = self.asleep


def on_vllm(stage, engine, **values):
    """A stage that looks like one on a GPU, with a stand-in as its engine."""
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        lora_config=SimpleNamespace(max_loras=3, max_lora_rank=8),
    )
    llm = SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=config))
    names = dict(vllm_generation=SimpleNamespace(llm=llm), accelerator=stage.trainer.accelerator)
    params = stage.params.model_copy(update={"engine": "vllm", "max_num_seqs": 8} | values)
    return SimpleNamespace(
        params=params,
        engine=engine,
        engines={"policy": engine},
        model=stage.model,
        snapshot=engine.snapshot,
        trainer=SimpleNamespace(**names),
        config=config,
    )


@pytest.mark.slow
def test_an_engine_with_several_adapters_is_asked_once_for_all(bench, stage, monkeypatch):
    engine = Several(stage)
    seen = on_vllm(stage, engine)
    start = trained_weights(stage.model)
    kept = {"policy": noisy(start, 0), "start": start, "past": noisy(start, 1)}
    result = Result("x")
    each_its_own(bench, result, seen, kept)
    result.judge()
    assert result.verdict == PASSED and engine.calls == [48]
    assert result.numbers["seconds of a synchronisation"] >= 0
    monkeypatch.setattr(engine, "sync", lambda: None)
    engine.kept["policy"] = start
    found = broken_bars(each_its_own, bench, seen, kept)
    assert "policy against its own weights (nats)" in found and "start against" not in str(found)
    monkeypatch.undo()
    seen.snapshot = lambda name, weights: SnapshotEngine(engine, stage.model, weights)
    assert "calls for all policies" in broken_bars(each_its_own, bench, seen, kept)


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ({}, []),
        ({"loss": None}, ["steps with a loss"]),
        ({"engine_gap": 0.2}, ["engine against trainer (nats)"]),
        ({"engine_ratio": 1.3}, ["trainer's probabilities over the engine's"]),
        ({"engine_above": 0.03}, ["share of them that the loss cuts"]),
    ],
)
def test_bars_of_a_run_that_vllm_answers_in(values, bars):
    row = {"loss": 0.1, "grad_norm": 1.0, "seconds/step": 2.0, "tokens_per_second": 9.0}
    row |= {"engine_ratio": 1.01, "engine_above": 0.001}
    rows = [row | {"engine_gap": 0.02}, row | values]
    result = Result("x")
    trained(result, "r", SimpleNamespace(rows=lambda _: rows, params={"dtype": "bfloat16"}), 2)
    found = [
        text.split(":")[0].removeprefix("r, ") for text, held in result.bars.items() if not held
    ]
    assert found == bars and len(result.bars) == 5
    assert result.numbers == {"r, seconds a step": 2.0, "r, tokens a second": 9.0}


def test_an_error_that_grows_with_length_shows_in_the_second_half():
    result = Result("x")
    spread(result, "policy", [[0.0] * 60 + [0.4] * 40, [0.3]], 0.1)
    assert [*result.bars.values()] == [True, False]
    assert [*result.numbers.values()] == [0.0, pytest.approx(0.4)]
    assert "second half of answers (nats): 0.32" in [*result.bars][1]
    assert "first half of answers (nats): 0.005882" in [*result.bars][0]


def changed(seen, place, value):
    """Sets what is at a place, a path of attributes."""
    path, _, name = place.rpartition(".")
    setattr(attrgetter(path)(seen), name, value)


@pytest.mark.slow
def test_the_load_part_on_a_gpu_with_a_stand_in_for_vllm(bench, stage, monkeypatch):
    """All of its bars hold, and each fault of the engine breaks the one that is about it."""
    gpu, total, loads = replace(bench, gpu=True), 80e9, []

    def found(fault=lambda seen: None):
        seen = on_vllm(stage, Several(stage), gpu_memory=0.4, vllm_sleep=True)
        fault(seen)
        monkeypatch.setattr(Bench, "stage", lambda *_, **values: loads.append(values) or seen)
        used = lambda: (total - seen.engine.used, total)  # noqa: E731
        monkeypatch.setattr(torch.cuda, "mem_get_info", used)
        return broken_bars(load, gpu)

    def ranked(seen):
        seen.params = seen.params.model_copy(update={"lora_rank": 4})

    def one_more(seen):
        """As Unsloth is asked for."""
        seen.params = seen.params.model_copy(update={"backend": "unsloth"})
        seen.config.scheduler_config.max_num_seqs = 9

    def forgetful(seen):
        def sleep():
            seen.engine.used = seen.engine.asleep
            seen.engine.kept["policy"] = noisy(seen.engine.kept["policy"], 3)

        seen.engine.sleep = sleep

    assert found() == set() and loads == [{"vllm_sleep": True}]
    scheduler, adapters = "config.scheduler_config.", "config.lora_config."
    for bar, place, value in (
        ("answers at once, max_num_seqs", f"{scheduler}max_num_seqs", 4),
        ("answers at once, max_num_seqs", f"{scheduler}max_num_seqs", 9),
        ("adapters at once, max_loras", f"{adapters}max_loras", 1),
        ("room of an adapter, max_lora_rank", f"{adapters}max_lora_rank", 4),
        ("steps of the engine for them", "engine.at_once", 4),
        ("GB in use", "engine.awake", 38e9),
        ("GB that sleep frees", "engine.asleep", 30e9),
    ):
        assert found(partial(changed, place=place, value=value)) == {bar}
    assert found(ranked) == {"rank of the adapter"}
    assert found(one_more) == set()
    assert found(forgetful) == {"after it, engine against model (nats)"}


@pytest.mark.slow
def test_the_peak_of_logits_is_an_eighth_where_they_are_in_chunks(bench, monkeypatch):
    """2,048 positions, 256 at a time; on a GPU what torch counts beyond what was there."""
    for values, share in (({}, 1), ({"micro_tokens": 4096}, 1 / 8)):
        stage = bench.stage(Result("x"), lora_rank=0, **values)
        peaks = [logits_peak(bench, stage, kind) for kind in (trl.GRPOTrainer, type(stage.trainer))]
        assert peaks[1] / peaks[0] == pytest.approx(share, abs=2e-3)
        assert peaks[0] == 2 * 1025 * 4 * stage.model.config.vocab_size / 1e9
    counted = {
        "reset_peak_memory_stats": None,
        "memory_allocated": 2e9,
        "max_memory_allocated": 5e9,
    }
    for name, value in counted.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    assert logits_peak(replace(bench, gpu=True), stage, trl.GRPOTrainer) == 3


@pytest.mark.parametrize("part", ["spiral", "full", "papers", "pairs"])
def test_parts_that_train_fit_a_card_of_24_gb_and_are_left_out_on_a_smaller_one(
    tmp_path, monkeypatch, part
):
    """By the estimate, with the model of the self-test; L4 and A10 have 23.7 GB for it."""
    started = []
    card = SimpleNamespace(total_memory=23.7e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(gpu_bench, "missing", lambda package: None)
    monkeypatch.setattr(gpu_parts, "train", lambda run, **_: started.append(run.params) or 1 / 0)
    bench = Bench(tmp_path, module.MODEL, gpu=True)
    with pytest.raises(ZeroDivisionError):
        PARTS[part][1](bench, Result("x"))
    assert started[0]["max_length"] >= 2048 and started[0]["policy"] == module.MODEL
    card.total_memory = 6e9
    with pytest.raises(LeftOut, match="needs about .* GB .*and the GPU has 6|leaves vLLM"):
        PARTS[part][1](bench, Result("x"))
    assert len(started) == 1


@pytest.mark.slow
def test_the_rows_of_the_loss_part_give_a_gradient_that_repeats(bench, tmp_path):
    found = []
    for _ in range(2):
        fixed_loss(bench, "transformers")
        found.append(json.loads((tmp_path / "transformers.json").read_text()))
    assert found[0] == found[1] and found[0]["grad_norm"] > 1e-3
    with pytest.raises(ParamError, match="with engine 'vllm'"):  # Unsloth's, on a CPU
        fixed_loss(bench, "unsloth")


@pytest.mark.slow
def test_parts_run_on_a_cpu_with_a_random_model(home, monkeypatch):
    """Of SPIRAL (killed, started again), of full weights, of LongPO with a policy that ships, and
    what an engine on a CPU can say. The first is spawned; the others are forked, and their runs
    are, for speed."""
    results = {one.part: one for one in selftest(["load"], gpu=True)}
    monkeypatch.setattr(module, "get_context", lambda kind: get_context("fork"))
    address = server_address()

    def forked(folder, forked):
        assert not forked, "a forked run sees no GPU"
        share_server(address)
        return start(folder, forked=True)

    monkeypatch.setattr(gpu_bench, "start", forked)
    results |= {one.part: one for one in selftest(["spiral", "full", "pairs"], gpu=True)}
    assert {name: one.verdict for name, one in results.items()} == dict.fromkeys(results, PASSED)
    assert "seconds a step" in " ".join(results["spiral"].numbers)
    assert "requests answered: 256, allowed: from 256 to 256" in results["load"].bars
    assert results["pairs"].numbers["pairs"] > 0
