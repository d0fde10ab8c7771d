"""Several optimiser updates on the rows of one step: against the oracle, and after a kill."""

import math

import oracle
import pytest
from processes import finish, left_by
from rzero import make_run
from test_trainer import assert_as_the_oracle, ragged_rows, run_params, saved_model, trained  # noqa: F401

from spnb.core.params import ParamError, scale_values, validate
from spnb.train.cards import amount, data, piece
from spnb.train.config import RunParams, grpo_arguments
from spnb.train.plan import make_plan

SETTINGS = {
    "plain": {},
    "clipped": {"learning_rate": 3e-2, "epsilon": 0.05},
    "pieces, twice": {"gradient_accumulation_steps": 2, "num_iterations": 2, "learning_rate": 1e-2},
    "KL": {"beta": 0.3},
    "grpo": {"loss_type": "grpo"},
    "dapo": {"loss_type": "dapo", "learning_rate": 1e-2},
}
COUNTS = (11, 9)
"""Rows of the two steps, of which an update has a third, and the last what is left."""


def sizes_of(count, parts, pieces):
    """Rows of each update: TRL has equally many, the last ones inert."""
    whole = math.ceil(count / math.lcm(parts * pieces, 2)) * math.lcm(parts * pieces, 2) // parts
    return [max(0, min(whole, count - part * whole)) for part in range(parts)]


@pytest.mark.parametrize("grpo", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.slow
def test_each_update_equals_the_oracles(tmp_path, saved_model, tokenizer, monkeypatch, grpo):  # noqa: F811
    """In the order of rows: without TRL's shuffle, so that it is known which are in which."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda rows: rows)
    batches = [ragged_rows(seed, count=count) for seed, count in enumerate(COUNTS)]
    params = run_params(grpo=grpo, updates=3)
    pieces = params.grpo["gradient_accumulation_steps"]
    sizes = [sizes_of(count, 3, pieces) for count in COUNTS]
    _, history = oracle.train(saved_model, batches, params, sizes=sizes)
    trainer, rows = trained(tmp_path, saved_model, tokenizer, batches, grpo=grpo, updates=3)
    per_step = 3 * params.grpo["num_iterations"]
    assert trainer.state.global_step == 2 * per_step == len(history)
    assert_as_the_oracle(rows, history, per_step)
    assert [row["step"] for row in rows] == [1, 2]
    assert [row["rows_per_update"] for row in rows] == pytest.approx([11 / 3, 3.0])
    assert rows[0]["clip_ratio"] > 0 or "epsilon" not in grpo


def test_rows_are_dealt_at_random_and_each_is_trained_once(tmp_path, saved_model, tokenizer):  # noqa: F811
    rows = ragged_rows(1, count=12)
    dealt = []

    class Watched:
        def __init__(self, trainer):
            self.prepare = trainer._prepare_inputs
            trainer._prepare_inputs = self.prepared

        def prepared(self, batch):
            inputs = self.prepare(batch)
            dealt.append([tuple(ids.tolist()) for ids in inputs["completion_ids"]])
            return inputs

    _, metrics = trained(tmp_path, saved_model, tokenizer, [rows], updates=3, watch=Watched)
    assert [len(part) for part in dealt] == [4, 4, 4] and metrics[0]["rows_per_update"] == 4
    order = [ids[: len(ids) - ids.count(0)] for part in dealt for ids in part]
    assert len({*order}) == 12
    assert order != [row.completion_ids for row in rows]


@pytest.mark.slow
def test_one_update_is_what_none_is(tmp_path, saved_model, tokenizer):  # noqa: F811
    batches = [ragged_rows(1), ragged_rows(2, count=7)]
    plain, one = (
        trained(tmp_path / str(updates), saved_model, tokenizer, batches, updates=updates)
        for updates in (None, 1)
    )
    assert [row["loss"] for row in plain[1]] == [row["loss"] for row in one[1]]
    assert "rows_per_update" not in one[1][0]


@pytest.mark.slow
def test_killed_between_two_steps_and_started_again(tmp_path):
    stages = [{"policy": "challenger", "steps": 1}, {"policy": "solver", "steps": 2}]
    entropy = {"use_adaptive_entropy": True, "entropy_target": 9.0, "entropy_coef_max": 1.0}
    grpo = {"learning_rate": 1e-3, "entropy_coef_delta": 0.1, **entropy}  # TRL's own state
    small = {"stages": stages, "steps": 3, "eval_every": 3, "updates": 3, "grpo": grpo}
    script = str(make_run.__globals__["__file__"])
    whole, killed = (make_run(tmp_path / name, **small) for name in ("whole", "killed"))
    done = finish(whole.folder / "log.txt", script, whole.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert finish(killed.folder / "log.txt", script, killed.folder, "2").returncode != 0
    names = sorted(path.name for path in killed.checkpoints.glob("stage-1/checkpoint-*"))
    assert names == ["checkpoint-3"] and not killed.finished
    assert finish(killed.folder / "log.txt", script, killed.folder).returncode == 0
    assert left_by(killed) == left_by(whole)
    assert killed.facts()["resumed"]


def test_what_is_allowed(tmp_path):
    base = dict(paper="p", scale="smoke", variant="v", policy="x")
    for value in (0, -1, 1.5, "two"):
        with pytest.raises(ParamError, match=f"updates is '?{value}'?; allowed"):
            validate(RunParams, {**base, "updates": value})
    unsloth = {"backend": "unsloth", "engine": "vllm", "dtype": "bfloat16", "lora_rank": 8}
    with pytest.raises(ParamError, match="updates is 2 with backend 'unsloth'; allowed: 1, or tra"):
        validate(RunParams, {**base, **unsloth, "updates": 2})
    with pytest.raises(ParamError, match="updates is 2 with the loss of longpo; allowed: None"):
        make_plan("spell", "smoke", variants=["longpo"], runs=str(tmp_path), updates=2)


def test_spice_at_the_papers_scale_has_its_128_trajectories_an_update():
    params = make_plan("spice", "paper", variants=["full"]).params("full")
    rows = amount(params, data()["work"]["spice"]["rows"])
    assert rows == 2048 and rows / params.parts == 128
    assert scale_values("spice", "paper")["updates"] == 16
    arguments = grpo_arguments(params, params.steps, "x")
    assert arguments["max_steps"] == 640 * 16 and arguments["save_steps"] == 20 * 16
    assert arguments["steps_per_generation"] == 16 * arguments["gradient_accumulation_steps"]
    assert piece(params)[0] == 16
    steps = params.grpo["gradient_accumulation_steps"]
    assert piece(params, 3 * steps)[0] == math.ceil(128 / (3 * steps)), "processes cut too"
