"""The self-test: verdicts, limits, exit codes, and that its parts can fail."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spnb.cli import app
from spnb.core.params import ParamError
from spnb.lab.tiny import tiny_qwen
from spnb.report import selftest as module
from spnb.report.gpu_bench import FAILED, LEFT_OUT, PASSED, Bench, LeftOut, Result
from spnb.report.gpu_engines import adapter
from spnb.report.gpu_parts import PARTS, Part, fixed_loss
from spnb.report.selftest import selftest, write
from spnb.train.doctor import Card, Machine

SOON = 1.0
"""Minutes; a busy machine takes long to start a process."""


def good(bench, result):
    result.bar("threes", 3.0, 1, 3)
    result.measured(of_what="apples")


def broken(bench, result):
    result.bar("held", 1.0, 0)
    result.bar("too few", 1.0, 2)


def silent(bench, result):
    result.measured(nothing="held against a bar")


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


OWN = {one.__name__: Part(one, SOON) for one in (good, broken, silent, absent, wrong, gone)}
OWN["endless"] = Part(endless, 0.4)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "resolve", lambda path: tmp_path / path)
    return tmp_path


@pytest.mark.slow
def test_every_part_has_a_verdict_and_the_reason(home, capsys):
    results = {one.part: one for one in selftest(parts=OWN)}
    said = {name: (one.verdict, one.why) for name, one in results.items()}
    assert said["good"] == (PASSED, "") and results["good"].numbers == {"of what": "apples"}
    assert said["broken"] == (FAILED, "too few: 1, allowed: from 2")
    assert said["silent"] == (FAILED, "it has measured nothing")
    assert said["absent"] == (LEFT_OUT, "vllm is not installed")
    assert said["wrong"] == (FAILED, "ValueError: no such thing")
    assert said["gone"][0] == FAILED and "it ended with exit code 3" in said["gone"][1]
    assert said["endless"] == (FAILED, "over its limit of 0.4 minutes, and was ended")
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
        monkeypatch.setattr(module, "selftest", lambda *given: [made.append(given), *found][1:])
        arguments = ["selftest", "--gpu", "--part", "load", "--part", "loss", "--out", "x"]
        return CliRunner().invoke(app, arguments).exit_code

    assert verdicts(Result("a", PASSED), Result("b", LEFT_OUT)) == 0
    assert verdicts(Result("a", PASSED), Result("b", FAILED)) == 1
    assert verdicts(Result("b", LEFT_OUT)) == 1, "nothing was measured"
    assert made[0] == (["load", "loss"], True, Path("x"))
    monkeypatch.undo()
    with pytest.raises(ParamError, match="part is 'lod', which is unknown; did you mean 'load'?"):
        selftest(["lod"])


def test_limits_are_ten_minutes_at_most_and_45_together():
    assert max(part.minutes for part in PARTS.values()) <= 10
    assert sum(part.minutes for part in PARTS.values()) <= 45


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


def test_the_adapters_part_fails_where_an_engine_answers_with_other_weights(tmp_path, monkeypatch):
    from spnb.train.run import StageRun

    bench = Bench(tmp_path, tiny_qwen(tmp_path / "policy"), gpu=False)
    result = Result("adapter")
    adapter(bench, result)
    result.judge()
    assert result.verdict == PASSED and len(result.bars) == 4
    monkeypatch.setattr(StageRun, "snapshot", lambda stage, *_: stage.engines["policy"])
    result = Result("adapter")
    adapter(bench, result)
    result.judge()
    assert result.verdict == FAILED and "start against its own weights" in result.why


def test_the_rows_of_the_loss_part_give_a_gradient_that_repeats(tmp_path):
    bench = Bench(tmp_path, tiny_qwen(tmp_path / "policy"), gpu=False)
    found = []
    for _ in range(2):
        fixed_loss(bench, "transformers")
        found.append(json.loads((tmp_path / "transformers.json").read_text()))
    assert found[0] == found[1] and found[0]["grad_norm"] > 1e-3
    with pytest.raises(ParamError, match="with engine 'vllm'"):  # Unsloth's, on a CPU
        fixed_loss(bench, "unsloth")


@pytest.mark.slow
def test_parts_run_on_a_cpu_with_a_random_model(home):
    """Of SPIRAL (killed, started again) and of full weights; what needs vLLM is left out."""
    results = {one.part: one for one in selftest(["load", "spiral", "full"], gpu=True)}
    assert {name: one.verdict for name, one in results.items()} == {
        "load": LEFT_OUT,
        "spiral": PASSED,
        "full": PASSED,
    }
    assert results["load"].why == "vllm is not installed"
    assert "seconds a step" in " ".join(results["spiral"].numbers)
