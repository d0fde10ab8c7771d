"""Unsloth's case end to end, on a CPU: its trainer under ours, its reading of adapters in a real
vLLM, three adapters in one call. Its losses are those of TRL's own trainer, with and without vLLM.

`make vllm` runs it: the environment of the vLLM engine, with Unsloth's packages on the path.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
from unsloth_runs import by_trainer
from unsloth_vllm_runs import CUTS, NAMES, ROWS, STEPS

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not (find_spec("vllm") and find_spec("unsloth")),
        reason="unsloth and vllm are not both here: make vllm",
    ),
]
SCRIPT = Path(__file__).with_name("unsloth_vllm_runs.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What the script prints, by trainer."""
    return by_trainer(SCRIPT, tmp_path_factory.mktemp)


@pytest.mark.parametrize("cut", CUTS)
def test_loss_and_gradient_are_trls_with_vllm_and_without(runs, cut):
    """Of the same answers: where top-p cuts, without log-probabilities of the engine."""
    stock, unsloth = (runs[kind][cut] for kind in ("stock", "unsloth"))
    assert "UnslothGRPOTrainer" in unsloth["classes"]
    assert not [name for name in stock["classes"] if "Unsloth" in name]
    assert unsloth["ids"] == stock["ids"] and len(stock["ids"]) == len(NAMES) * ROWS * STEPS
    for found, expected, without in zip(
        unsloth["rows"], stock["rows"], stock["again"], strict=True
    ):
        assert abs(expected["loss"]) > 0.005 and expected["grad_norm"] > 0.1
        assert ("engine_gap" in found) == (cut == "whole" and found["step"] < STEPS)
        for key in ("loss", "grad_norm"):
            assert found[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-6), key
            assert without[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-6), key
    losses = [round(row["loss"], 4) for each in CUTS for row in runs["stock"][each]["rows"]]
    assert len({*losses}) == len(losses)


@pytest.mark.parametrize("kind", ["stock", "unsloth"])
@pytest.mark.parametrize("cut", CUTS)
def test_three_policies_answer_in_one_call_each_with_its_own_adapter(runs, kind, cut):
    found = runs[kind][cut]
    assert found["engines"] == 1 and {*found["gaps"]} == {*NAMES}
    for name, (own, bare) in found["gaps"].items():
        assert own < 1e-5
        assert (bare < 1e-5) if name == "start" else bare > 0.05


@pytest.mark.parametrize("cut", CUTS)
def test_unsloths_code_reads_the_adapter_from_a_file_as_from_memory(runs, cut):
    zoo = runs["unsloth"][cut]["zoo"]
    assert zoo["reader"] == "unsloth_zoo.vllm_lora_worker_manager"
    own, in_memory, none = zoo["ids"]
    assert own == in_memory != none and len(own) == len(NAMES) * ROWS
