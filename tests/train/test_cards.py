"""Which GPU a run needs, and for how long: by hand for one run, exactly for weights, for every
parameter file."""

import json
import struct
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from spnb.cli import app
from spnb.core.params import papers, variants_at
from spnb.core.paths import ROOT, WEIGHTS
from spnb.train import guards, run
from spnb.train.cards import amount, fits, hours, judged, memory, need, refuse_small, shape_of
from spnb.train.config import TrainerError
from spnb.train.plan import make_plan

SWEEP = [
    (paper, scale, variant)
    for paper in papers()
    for scale in ("gpu", "paper")
    for variant in variants_at(paper, scale)
]
LARGE = {("spell", "longpo"), ("spell", "solopo")}
"""Losses over pairs of whole prompts, which do not fit 24 GB."""


def params_of(variant="think", paper="rlvr", scale="gpu", **values):
    return make_plan(paper, scale, values, variants=[variant]).params(variant)


@pytest.mark.parametrize("name", sorted(path.name for path in WEIGHTS.iterdir() if path.is_dir()))
def test_the_weights_of_an_embedded_policy_are_counted_exactly(name):
    content = (WEIGHTS / name / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + length])
    entries.pop("__metadata__", None)
    sizes = [torch.Size(entry["shape"]).numel() for entry in entries.values()]
    assert shape_of(f"embedded/{name}").parameters == sum(sizes)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("Qwen/Qwen3-0.6B", 596_049_920),
        ("Qwen/Qwen3-4B-Base", 4_022_468_096),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-32B", 32_762_123_264),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-14B-Instruct", 14_770_033_664),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
    ],
)
def test_the_weights_of_the_hubs_models_are_those_on_their_cards(name, weights):
    assert shape_of(name).parameters == weights


def test_the_memory_of_a_run_by_hand():
    """Qwen3-0.6B, rank 32: (3072 + 2 x 2048 + 3072 + 3 x 4096) x 32 x 28 weights of an adapter."""
    parts = memory(params_of(), 24)
    adapter = 20_185_088
    expected = {
        "weights": (2 * 596_049_920 + 4 * adapter) / 1e9,
        "gradients": 4 * adapter / 1e9,
        "optimiser": 8 * adapter / 1e9,
        "KL reference": 0,
        "weights of vLLM": 0,  # Unsloth shares them
        "KV cache": 0.4 * 24 - 2 * 596_049_920 / 1e9,
        "logits": 512 * 151_936 * 16.2 / 1e9,
        "activations": 4096 * (28 + 40) * 1024 * 2 / 1e9,
        "further policies": 0,
        "snapshots": 0,
        "context": 1.5,
    }
    assert parts == pytest.approx(expected)
    assert need(params_of(), 24) == pytest.approx(sum(expected.values()))
    full = memory(params_of(lora_rank=0, backend="transformers", grpo={"beta": 0.1}), 80)
    for name, wide in {"weights": 4, "gradients": 4, "optimiser": 8, "KL reference": 4}.items():
        assert full[name] == pytest.approx(wide * 596_049_920 / 1e9)
    assert full["weights of vLLM"] == pytest.approx(2 * 596_049_920 / 1e9)
    assert full["logits"] == pytest.approx(256 * 151_936 * 16.2 / 1e9)
    of_tokens = lambda micro: memory(params_of("full", "ssp", micro_tokens=micro), 24)  # noqa: E731
    live = [of_tokens(micro)["activations"] / (28 + 40) / 1024 / 2 * 1e9 for micro in (5000, 100)]
    assert live == pytest.approx([5000, 4096])  # a row at least


def test_keys_and_values_of_a_vllm_that_sleeps_are_not_there_in_an_update():
    awake, asleep = (need(params_of(vllm_sleep=sleep), 24) for sleep in (None, True))
    parts = memory(params_of(vllm_sleep=True), 24)
    update = sum(parts[name] for name in ("gradients", "logits", "activations"))
    passing = {"gradients", "logits", "activations", "KV cache", "snapshots"}
    always = sum(gb for name, gb in parts.items() if name not in passing)
    assert asleep == pytest.approx(always + max(update, parts["KV cache"])) and asleep < awake


def test_policies_beside_the_first_take_memory_unless_they_are_adapters_of_it():
    beside = lambda *names: memory(params_of(*names), 24)["further policies"]  # noqa: E731
    assert beside("full", "scope") == 0
    assert beside("grader-strong", "scope") == pytest.approx(2 * 4_022_468_096 / 1e9)
    trained = 2 * 596_049_920 + 16 * 20_185_088
    assert beside("learning-two", "proposer") == pytest.approx(trained / 1e9)
    snapshots = memory(params_of("fixed-challenger", "spice"), 24)["snapshots"]
    assert snapshots == pytest.approx(2 * 4 * 20_185_088 / 1e9)


def test_a_policy_that_learns_beside_has_a_reference_where_it_has_a_kl():
    """16 bytes a weight for itself, gradient and optimiser, 4 for the reference in float32."""
    values = {"lora_rank": 0, "co_trained": {"proposer": {"beta": 0.05}}}
    beside = memory(params_of("learning-two", "proposer", **values), 80)["further policies"]
    assert beside == pytest.approx(20 * 596_049_920 / 1e9)
    values["co_trained"] = {"proposer": {"beta": 0.0}}
    beside = memory(params_of("learning-two", "proposer", **values), 80)["further policies"]
    assert beside == pytest.approx(16 * 596_049_920 / 1e9)


def test_a_benchmark_of_every_evaluation_takes_as_many_hours():
    """Eleven evaluations of 512 and 1,024 tokens instead of two."""
    token = (0.004 + 0.0015 * 0.59604992) * 1.4
    every = {name: use.settings() | {"every": True} for name, use in params_of().benchmarks.items()}
    more = hours(params_of(benchmarks=every))["evaluations"] - hours(params_of())["evaluations"]
    assert more == pytest.approx(9 * (512 + 1024) * token / 3600)


def test_the_hours_of_a_run_by_hand():
    """256 answers in one wave of 512 tokens, 11 evaluations of 2,048 in eight waves, two benchmarks
    at both ends in one each, of 512 and 1,024 tokens."""
    token = (0.004 + 0.0015 * 0.59604992) * 1.4
    update = 32 * 0.2 + 8 * 596_049_920 * 256 * 1024 / 2.5e14
    seconds = {"answers": 100 * 512 * token, "updates": 100 * update}
    seconds["evaluations"] = (11 * 8 * 512 + 2 * 512 + 2 * 1024) * token
    expected = {name: number / 3600 for name, number in seconds.items()}
    expected["all"] = sum(expected.values()) + 180 / 3600
    assert hours(params_of()) == pytest.approx(expected)
    assert amount(params_of(), "prompts_per_step * mix + 7 + fixed") == 32 * 3 + 7


def test_8_bit_adam_keeps_states_of_embeddings_in_32_bit():
    """2 bytes a weight, 8 of one of the input's embeddings, which a tied head is too."""
    bits = {"backend": "transformers", "grpo": {"optim": "adamw_8bit"}}
    full = params_of(lora_rank=0, **bits)
    expected = 2 * 596_049_920 + 6 * 151_936 * 1024
    assert memory(full, 80)["optimiser"] == pytest.approx(expected / 1e9)
    assert memory(full, 80, 8)["optimiser"] == pytest.approx(expected / 8e9)
    assert memory(params_of(**bits), 80)["optimiser"] == pytest.approx(2 * 20_185_088 / 1e9)


@pytest.mark.parametrize("asleep", [True, False])
def test_processes_have_whole_weights_until_the_first_step(asleep):
    """4 bytes a weight beside vLLM with its keys and values, no optimiser yet."""
    beside = {"external": "Qwen/Qwen2.5-7B-Instruct"}
    params = params_of("full", "spell", "paper", vllm_sleep=asleep, policies=beside)
    parts, billions = memory(params, 80, 8), shape_of(params.policy).parameters / 1e9
    names = ("weights of vLLM", "KV cache", "further policies", "context")
    start = 4 * billions + sum(parts[name] for name in names)
    update = sum(gb for name, gb in parts.items() if name != "snapshots")
    assert need(params, 80, 8) == pytest.approx(start if asleep else update)
    assert (start > update - parts["KV cache"]) and fits(params, 80, 8) is asleep


@pytest.mark.parametrize("paper", ["spiral", "spice"])
def test_eight_processes_share_out_what_one_card_does_not_hold(paper, monkeypatch):
    """By hand: 16 bytes a weight; among eight, 16 shared out and 2, in bfloat16, whole."""
    params = params_of("full", paper, scale="paper")
    one, eight = memory(params, 80), memory(params, 80, 8)
    names = ("weights", "gradients", "optimiser")
    billions = shape_of(params.policy).parameters / 1e9
    assert sum(one[name] for name in names) == pytest.approx(16 * billions)
    assert sum(eight[name] for name in names) == pytest.approx((2 + 16 / 8) * billions)
    assert {key: one[key] for key in one if key not in names} == {
        key: eight[key] for key in eight if key not in names
    }
    assert fits(params, 80, 8) and not fits(params, 80)
    lora = params.model_copy(update={"lora_rank": 32})
    adapter = shape_of(params.policy).adapter(32) / 1e9
    whole = memory(lora, 80, 8)["weights"]
    assert whole == pytest.approx(2 * (billions + adapter) + 4 * adapter / 8)
    asked = []
    monkeypatch.setattr(guards, "refuse_small", lambda params, card, count: asked.append(count))
    put_in(monkeypatch, total_memory=80e9, major=9, minor=0)
    monkeypatch.setenv("WORLD_SIZE", "8")
    guards.check_card(params)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    guards.check_card(params)
    assert asked == [1, 8]


def put_in(monkeypatch, free=10**12, **card):
    """A GPU with these properties, and so many bytes free."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, card["total_memory"]))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda place: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: SimpleNamespace(**card))


def test_a_card_without_bfloat16_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    plan = make_plan(
        "rlvr", "gpu", {"policy": "Qwen/Qwen3-4B"}, variants=["think"], runs=str(tmp_path)
    )
    put_in(monkeypatch, total_memory=80 * 2**30, major=7, minor=5)
    monkeypatch.setattr(run, "train_stages", None)
    message = "dtype is 'bfloat16', and the GPU has compute capability 7.5; allowed: 8.0 .* float32"
    with pytest.raises(TrainerError, match=message):
        run.train_run(plan.open("think"))
    guards.check_card(params_of(engine="torch", backend="transformers", dtype="float32"))


@pytest.mark.parametrize(
    ("paper", "scale", "card"),
    [("spice", "gpu", 24), ("ssp", "gpu", 24), ("rlvr", "paper", 80), ("spice", "paper", 80),
     ("spiral", "paper", 80)],
)  # fmt: skip
def test_all_weights_fit_one_card_with_8_bit_adam_as_the_files_say(paper, scale, card):
    variant = make_plan(paper, scale).variants[0]
    full = {"lora_rank": 0, "grpo": {"optim": "adamw_8bit"}}
    found = need(params_of(variant, paper, scale, **full), card)
    assert found <= card and need(params_of(variant, paper, scale, lora_rank=0), card) > found + 2
    said = (ROOT / "params" / paper / f"{scale}.yaml").read_text().replace("\n# ", " ")
    assert "optim: adamw_8bit" in said and f"{found:.0f} of {card} GB" in said


def test_a_run_that_does_not_fit_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    values = {"policy": "Qwen/Qwen3-4B", "lora_rank": 0, "backend": "transformers"}
    plan = make_plan("rlvr", "gpu", values, variants=["think"], runs=str(tmp_path))

    put_in(monkeypatch, total_memory=24 * 2**30, major=8, minor=0)
    monkeypatch.setattr(run, "train_stages", None)
    with pytest.raises(TrainerError) as error:
        run.train_run(plan.open("think"))
    text = str(error.value)
    assert text.startswith("variant 'think' needs about ") and "optimiser 32.2" in text
    assert "the GPU has 26; allowed: lora_rank above 0, a smaller policy, max_length" in text


def test_a_card_that_another_process_fills_is_refused_before_anything_is_loaded(
    tmp_path, monkeypatch
):
    """13.2 GB are needed; what of the context is there already is not counted twice."""
    plan = make_plan("rlvr", "gpu", variants=["think"], runs=str(tmp_path))
    card = dict(total_memory=24 * 10**9, major=8, minor=0)
    put_in(monkeypatch, free=10 * 10**9, **card)
    monkeypatch.setattr(run, "train_stages", None)
    message = "needs about 13 GB, and another process has taken 14 of the GPU's 24; allowed: 10, or"
    with pytest.raises(TrainerError, match=message):
        run.train_run(plan.open("think"))
    for free, enough in ((12.0, True), (11.4, False)):
        put_in(monkeypatch, free=free * 10**9, **card)
        with nullcontext() if enough else pytest.raises(TrainerError, match="allowed: 11, or"):
            guards.check_card(params_of())


def test_a_share_of_the_card_that_vllm_cannot_start_with_does_not_fit():
    small = params_of(gpu_memory=0.08)
    assert fits(params_of(), 24) and not fits(small, 24)
    with pytest.raises(TrainerError, match="leaves vLLM 1.9 of the GPU's 24 GB; allowed: 4.2 GB"):
        refuse_small(small, 24)


def test_a_policy_of_an_unknown_shape_has_no_estimate_and_is_not_refused(tmp_path):
    params = params_of(policy="some/model")
    assert memory(params, 24) == hours(params) == {} and fits(params, 1)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert shape_of(str(tmp_path)) is None
    plan = make_plan("rlvr", "gpu", {"policy": "some/model"}, variants=["think"])
    assert "hours of one H100 each: not known" in judged(plan.runs, True)
    assert "GB: not known" in judged(plan.runs, True)


@pytest.mark.parametrize(("paper", "scale", "variant"), SWEEP)
def test_every_variant_has_a_plan_and_an_estimate(paper, scale, variant):
    params = params_of(variant, paper, scale)
    assert memory(params, 80) and hours(params)["all"] > 0
    assert all(gb >= 0 for gb in memory(params, 80).values())
    if scale == "gpu":
        assert fits(params, 24) is ((paper, variant) not in LARGE)
        assert fits(params, 80) and params.thinking is False


@pytest.mark.parametrize("paper", papers())
def test_the_headline_of_every_gpu_file_takes_at_most_five_hours(paper):
    plan = make_plan(paper, "gpu")
    total = sum(hours(params)["all"] for params in plan.runs.values())
    assert total < 5.05
    file = (ROOT / "params" / paper / "gpu.yaml").read_text().replace("\n# ", " ")
    assert f"Headline about {total:.1f} H100-hours" in file
    peak = max(need(params, 24) for params in plan.runs.values())
    assert f"at most {peak:.0f} of 24 GB" in file


def test_the_command_prints_runs_hours_and_cards():
    printed = CliRunner().invoke(app, ["plan", "spiral", "--variant", "sft", "--memory"])
    assert printed.exit_code == 0
    lines = printed.output.splitlines()
    assert lines[0].startswith("sft: 1 run, hours of one H100 each: answers ")
    assert lines[1].split() == ["card,", "GB", "24", "48", "80", "141"]
    assert lines[-2].split() == ["fits"] * 4 and "H100-hours" in lines[-1]
    assert "snapshots" not in CliRunner().invoke(app, ["plan", "spiral"]).output
    two = CliRunner().invoke(app, ["plan", "spiral", "--seeds", "3,4"]).output
    assert two.startswith("full: 2 runs, ")
    laptop = CliRunner().invoke(app, ["plan", "spiral", "--scale", "cpu", "--seeds", "3,4"]).output
    assert "3-4" in laptop and "minutes on 2 cores for 4 runs (full 2, no-rae 2)" in laptop
    assert "H100" not in laptop
    wrong = CliRunner().invoke(app, ["plan", "spirall"])
    assert wrong.exit_code == 2 and "did you mean 'spiral'" in wrong.output
