"""The measurement itself, on a tiny setting: what it counts and what it returns."""

import engine_speed as bench
import pytest
import torch


@pytest.mark.slow
def test_both_models_are_measured_against_both_libraries():
    threads = torch.get_num_threads()
    frame = bench.bench(prompts=4, group=2, repeats=1)
    assert list(frame["work"]) == ["generate", "train"] * 2
    assert frame["weights"].tolist()[::2] == [148480, 723136]
    assert (frame["rows"] == 8).all() and (
        frame[["ours_seconds", "theirs_seconds"]] > 0
    ).all().all()
    generated, trained = frame.iloc[0], frame.iloc[1]
    ratio = generated["theirs_seconds"] / generated["ours_seconds"]
    assert generated["ratio"] == pytest.approx(ratio)
    assert trained["ratio"] == pytest.approx(trained["ours_seconds"] / trained["theirs_seconds"])
    assert ((frame["gemm_share"] > 0) & (frame["gemm_share"] < 1.5)).all()
    assert frame["bar"].tolist() == [4.0, 1.05] * 2
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_requests_are_different_prompts_each_in_a_group():
    policy = bench.small_policy()
    asked = bench.requests(policy, 6, 3)
    assert len(asked) == 18 and len({request.prompt_ids for request in asked}) == 6
    assert len({request.seed for request in asked}) == 18
    assert len({len(request.prompt_ids) for request in asked}) > 1


def test_tokens_after_the_end_do_not_count():
    policy = bench.small_policy()
    asked = bench.requests(policy, 2, 1)
    torch.manual_seed(0)
    assert 2 <= bench.generate(policy, asked) <= 80
    with torch.no_grad():
        policy.model.lm_head.weight.zero_()
        policy.model.generation_config.eos_token_id = None
    tokens = bench.generate(policy, asked)
    assert 40 < tokens <= 80
