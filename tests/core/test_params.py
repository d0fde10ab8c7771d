"""Parameters: files that ship, merging, and answers to bad input."""

import pytest

from spnb.core.params import (
    SCALES,
    ParamError,
    RunParams,
    papers,
    scale_values,
    unknown,
    validate,
    variant_values,
    variants,
)
from spnb.methods import method_module

IDENTITY = {"paper": "spiral", "scale": "cpu", "variant": "full", "seed": 0}


@pytest.mark.parametrize("paper", papers())
def test_every_shipped_scale_and_variant_is_valid(paper):
    from spnb.train.plan import Session

    for scale in SCALES:
        values = scale_values(paper, scale)
        assert values.pop("scale") == scale
        for name, entry in variants(paper).items():
            assert set(entry) <= {"about", "set", "at", "headline"} and entry["about"].endswith(".")
            assert set(entry.get("at", {})) <= set(SCALES)
            merged = {k: v for k, v in values.items() if k not in Session.model_fields}
            merged |= variant_values(paper, name, scale)
            validate(
                method_module(paper).Params,
                merged | IDENTITY | {"paper": paper, "variant": name, "scale": scale},
            )
    assert any(entry.get("headline") for entry in variants(paper).values())


def test_a_variant_may_change_more_at_one_scale():
    assert variant_values("proposer", "frozen-solver", "smoke") == {"solver": "frozen"}
    assert variant_values("proposer", "frozen-solver", "cpu") == {
        "solver": "frozen",
        "steps": 90,
        "eval_every": 30,
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; allowed: a valid number"),
        ({"learning_rate": 0}, "learning_rate is 0; allowed: greater than 0"),
        ({"steps": True}, "steps is True; allowed: "),
        ({"steps": 2.5}, "steps is 2.5; allowed: a valid integer"),
        ({"loss_type": "ppo"}, "loss_type is 'ppo'; allowed: 'grpo', 'dr_grpo'"),
        (
            {"learnin_rate": 0.1},
            "parameter is 'learnin_rate', which is unknown; did you mean 'learning_rate'?",
        ),
        ({"engine": "vllm"}, "engine vllm with dtype float32.*allowed: dtype bfloat16"),
        (
            {"engine": "vllm", "dtype": "bfloat16", "backend": "unsloth"},
            "backend unsloth with engine vllm and lora_rank 0; allowed: a lora_rank of 1 or more",
        ),
        ({"gpu_memory": 2}, r"gpu_memory is 2; allowed: less than 1 \(share of the GPU's memory"),
    ],
)
def test_a_bad_value_is_answered_with_key_value_and_what_is_allowed(values, message):
    with pytest.raises(ParamError, match=message):
        validate(RunParams, IDENTITY | values)


def test_every_fault_has_a_line():
    with pytest.raises(ParamError) as caught:
        validate(RunParams, {"paper": "x", "scale": "cpu", "variant": "v", "steps": 0, "seed": -1})
    assert len(str(caught.value).splitlines()) == 2
    with pytest.raises(ParamError, match="variant is missing"):
        validate(RunParams, {"paper": "x", "scale": "cpu"})


def test_numbers_as_yaml_reads_them():
    assert validate(RunParams, IDENTITY | {"learning_rate": "1e-3"}).learning_rate == 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: scale_values("spiral", "cpuu"),
            "scale is 'cpuu', which is unknown; did you mean 'cpu'?",
        ),
        (
            lambda: scale_values("alphago", "cpu"),
            "paper is 'alphago', which is unknown; allowed: .*spiral",
        ),
        (
            lambda: variant_values("spiral", "no_rae", "cpu"),
            "variant is 'no_rae', which is .*; did you mean 'no-rae'?",
        ),
        (lambda: method_module("../spiral"), "paper is '../spiral', which is unknown"),
    ],
)
def test_unknown_names(call, message):
    with pytest.raises(ParamError, match=message):
        call()


def test_a_broken_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("spnb.core.params.ROOT", tmp_path)
    folder = tmp_path / "params" / "mine"
    folder.mkdir(parents=True)
    (folder / "variants.yaml").write_text("full: {about: x.}")
    (folder / "cpu.yaml").write_text("a: [1")
    with pytest.raises(ParamError, match="cpu.yaml is not valid YAML"):
        scale_values("mine", "cpu")
    (folder / "cpu.yaml").write_text("- a")
    with pytest.raises(ParamError, match="holds list; allowed: a mapping"):
        scale_values("mine", "cpu")


def test_unknown_without_a_near_match():
    assert (
        unknown("colour", "q", ["red", "blue"])
        == "colour is 'q', which is unknown; allowed: blue, red"
    )
