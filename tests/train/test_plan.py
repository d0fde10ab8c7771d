"""Runs from parameters to files: plans, kill and resume, several at once, bad input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from spnb.core.params import ParamError
from spnb.train.plan import (
    deviations,
    gather,
    make_plan,
    plan_from,
    run_all,
    run_arguments,
    run_one,
)
from spnb.train.policies import PolicyError
from spnb.train.runs import TIMINGS, RunError

SMALL = dict(
    games=["kuhn_poker"],
    turns_per_step=12,
    eval_matches=4,
    eval_samples=1,
    eval_questions=4,
    eval_games=[],
)


def small_plan(tmp_path, **values):
    """A plan of one short run of SPIRAL in a folder of its own."""
    defaults = dict(
        variants=["full"], seeds=[0], runs=str(tmp_path / "runs"), figures=str(tmp_path / "figures")
    )
    return make_plan("spiral", "smoke", **{**defaults, **SMALL, **values})


def start(plan):
    """The plan's first run as a process."""
    command = [sys.executable, "-m", "spnb.cli", *run_arguments(plan, "full", 0)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def kill_after(plan, rows, delay):
    """Starts the run and kills it `delay` seconds after it has recorded `rows` steps."""
    process, run = start(plan), plan.open("full", 0)
    deadline = time.monotonic() + 120
    while len(run.rows("metrics")) < rows:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def comparable(run):
    """Everything a run recorded but wall times."""
    metrics = [{k: v for k, v in row.items() if k not in TIMINGS} for row in run.rows("metrics")]
    return metrics, run.rows("evals"), run.rows("rollouts")


def test_killed_and_resumed_is_bit_identical(tmp_path):
    values = dict(steps=6, save_every=2, eval_every=3, inner_epochs=2)
    whole = run_one(small_plan(tmp_path / "whole", **values), "full", 0)
    plan = small_plan(tmp_path / "killed", **values)
    kill_after(plan, rows=3, delay=0.0)  # between steps, one step after a checkpoint
    assert not plan.open("full", 0).finished
    kill_after(plan, rows=5, delay=0.15)  # inside a step
    assert not plan.open("full", 0).finished
    resumed = run_one(plan, "full", 0)
    assert resumed.facts()["resumed"] and not whole.facts()["resumed"]
    assert comparable(resumed) == comparable(whole)
    assert [row["step"] for row in resumed.rows("metrics")] == [1, 2, 3, 4, 5, 6]
    ours, theirs = (load_file(run.model / "model.safetensors") for run in (resumed, whole))
    assert (
        all((ours[name] == theirs[name]).all() for name in theirs) and ours.keys() == theirs.keys()
    )


def test_a_finished_run_is_not_computed_again(tmp_path):
    plan = small_plan(tmp_path, steps=1)
    run = run_one(plan, "full", 0)
    stamp = (run.folder / "metrics.jsonl").stat().st_mtime_ns
    assert run_one(plan, "full", 0).finished
    assert (run.folder / "metrics.jsonl").stat().st_mtime_ns == stamp


def test_run_all_runs_each_once_and_a_failure_names_the_run(tmp_path):
    polls = []
    plan = small_plan(tmp_path, variants=["full", "no-rae"], steps=1)
    done = run_all(plan, on_poll=polls.append)
    assert [run.run_id for run in done] == [
        "spiral/smoke/full/seed-0",
        "spiral/smoke/no-rae/seed-0",
    ]
    assert all(run.finished for run in done) and polls
    assert set(gather(done, "evals")["variant"]) == {"full", "no-rae"}
    broken = small_plan(tmp_path, seeds=[7], steps=1, max_new_tokens=2000)
    with pytest.raises(
        RunError, match=r"run spiral/smoke/full/seed-7 failed(.|\n)*allowed: 1 to 1024 in all"
    ):
        run_all(broken)


def test_two_processes_train_one_run_together(tmp_path):
    """Data-parallel over gloo: each process plays its own matches; one records; checkpoints hold
    both baselines."""
    plan = small_plan(tmp_path, steps=2, save_every=1, eval_every=2)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "spnb.cli",
    ]
    command += run_arguments(plan, "full", 0)
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    run = plan.open("full", 0)
    assert run.facts()["processes"] == 2 and [row["step"] for row in run.rows("metrics")] == [1, 2]
    state = torch.load(
        run.checkpoints / "checkpoint-4" / "selfplay_state.pt",
        map_location="cpu",
        weights_only=False,
    )
    first, second = (method["estimator"]["baselines"] for method in state["methods"])
    assert first != second and first.keys() == second.keys()


def test_lora_and_kl_through_a_whole_run(tmp_path):
    plan = small_plan(tmp_path, steps=2, lora_rank=4, kl_beta=0.05)
    run = run_one(plan, "full", 0)
    rows = run.rows("metrics")
    assert all("kl" in row and "kl/kuhn_poker/0" in row for row in rows)
    assert (run.model / "adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"scale": "laptop"},
            "scale is 'laptop', which is unknown; allowed: cpu, gpu, paper, smoke",
        ),
        ({"variants": ["fulll"]}, "variant is 'fulll', which is unknown; did you mean 'full'?"),
        ({"seeds": ["a"]}, "seeds.0 is 'a'; allowed: a valid integer"),
        ({"seeds": []}, r"seeds is \[\]; allowed: "),
        ({"baseline": "rae"}, "baseline is 'rae'; allowed: 'role_ema'"),
        (
            {"turn_per_step": 3},
            "parameter is 'turn_per_step', which is unknown; did you mean 'turns_per_step'",
        ),
    ],
)
def test_bad_plans_are_refused_before_anything_runs(tmp_path, values, message):
    values = {"runs": str(tmp_path), "figures": str(tmp_path), **values}
    with pytest.raises(ParamError, match=message):
        make_plan("spiral", values.pop("scale", "smoke"), **values)


def test_bad_game_and_policy(tmp_path):
    for values, message in (
        ({"games": ["go9000"]}, "game is 'go9000'; allowed: kuhn_poker"),
        ({"games": ["kuhn_poker(players=3)"]}, "has 3 players; allowed: games for two"),
        ({"games": ["kuhn_poker", "kuhn_poker"]}, "allowed: each game once"),
        (
            {"games": ["connect_four"], "opponent": "expert"},
            "opponent is 'expert', which game 'connect_four' has not",
        ),
        ({"policy": "embedded/chess"}, "embedded policy is 'chess'; allowed: "),
        ({"variant": "no-rae"}, "variant is 'no-rae', which cannot be set here"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            small_plan(tmp_path, **values)
    with pytest.raises(PolicyError, match="policy is 'no/such-model', which cannot be loaded"):
        run_one(small_plan(tmp_path, policy="no/such-model"), "full", 0)


def test_policies_that_would_train_the_wrong_tokens_are_refused(tmp_path, tokenizer, tiny_model):
    for change, message in (
        (dict(chat_template=None), "has no chat template"),
        (
            dict(pad_token=tokenizer.eos_token),
            "pad token is '<|im_end|>' and end token '<|im_end|>'",
        ),
    ):
        folder = tmp_path / next(iter(change))
        tiny_model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        changed = type(tokenizer).from_pretrained(folder)
        changed.chat_template = tokenizer.chat_template
        for key, value in change.items():
            setattr(changed, key, value)
        changed.save_pretrained(folder)
        with pytest.raises(PolicyError, match=message):
            run_one(small_plan(tmp_path, policy=str(folder)), "full", 0)


def test_a_notebooks_namespace_becomes_a_plan(tmp_path):
    namespace = {
        "json": json,
        "_i1": "",
        "In": [],
        "scale": "smoke",
        "variants": ["no-rae"],
        "seed": 5,
        "steps": None,
    }
    namespace |= {"figures": str(tmp_path), "runs": str(tmp_path), "learning_rate": 0.5}
    plan = plan_from("spiral", namespace, before={"json"})
    assert (
        plan_from("spiral", namespace | {"plan": plan, "table": 1}, before={"json", "scale"})
        == plan
    )
    assert list(plan.runs) == [("no-rae", 5)]
    params = plan.params("no-rae")
    assert (params.learning_rate, params.baseline, params.steps) == (0.5, "none", 2)
    with pytest.raises(ParamError, match="parameter is 'learnin_rate', which is unknown"):
        plan_from("spiral", namespace | {"learnin_rate": 1}, before={"json"})


def test_what_a_user_sets_wins_over_the_variant(tmp_path):
    plan = small_plan(tmp_path, variants=["no-rae"], baseline="batch_mean")
    assert plan.params("no-rae").baseline == "batch_mean"


def test_deviations_from_the_paper(tmp_path):
    table = deviations(small_plan(tmp_path))
    assert table.loc["learning_rate"].tolist() == [3e-4, 1e-6]
    assert "scale" not in table.index


def test_two_processes_cannot_do_one_run(tmp_path):
    plan = small_plan(tmp_path, steps=1)
    with plan.open("full", 0).lock(), pytest.raises(RunError, match="is being written by process"):
        run_one(plan, "full", 0)


def test_a_damaged_checkpoint_is_named(tmp_path):
    plan = small_plan(tmp_path, steps=2, save_every=1)
    run = run_one(plan, "full", 0)
    (run.folder / "finished.json").unlink()
    state = run.checkpoints / "checkpoint-4" / "selfplay_state.pt"
    state.write_bytes(state.read_bytes()[:50])
    with pytest.raises(
        RunError, match="checkpoint-4 cannot be read .*; delete it to go on from the one before"
    ):
        run_one(plan, "full", 0)
    shutil.rmtree(run.checkpoints / "checkpoint-4")
    weights = run.checkpoints / "checkpoint-2" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(
        RunError, match="checkpoint-2 cannot be read .*; delete it to go on from the one before"
    ):
        run_one(plan, "full", 0)


def test_a_free_text_game_can_be_trained(tmp_path):
    run = run_one(
        small_plan(tmp_path, games=["SimpleNegotiation-v0"], steps=1, max_length=2048), "full", 0
    )
    assert (
        run.rows("metrics")[0]["invalid/SimpleNegotiation-v0/0"] < 0.5
    )  # the shipped policy negotiates
    opponents = {
        row["evaluation"].split(" vs ")[-1]
        for row in run.rows("evals")
        if " vs " in row["evaluation"]
    }
    assert {"random", "expert", "past"} <= opponents


def test_a_fixed_rival_belongs_to_the_runs_identity_and_plays_the_other_seat(tmp_path):
    plan = small_plan(tmp_path, variants=["fixed-policy"], steps=1, eval_questions=0)
    run = run_one(plan, "fixed-policy", 0)
    config = json.loads((run.folder / "config.json").read_text())["params"]
    assert config["other_weights"] == {"fixed": plan.weights["embedded/games-rival"]}
    assert plan.weights["embedded/games-rival"] != plan.weights["embedded/games"]
    rewards = [key for key in run.rows("metrics")[0] if key.startswith("reward/")]
    assert rewards and run.rows("metrics")[0]["samples"] > 0
