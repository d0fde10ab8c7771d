"""The losses of LongPO and SoLoPO against plain torch; resuming, processes, what is refused."""

import copy
import json
import random
import shutil
import time

import pytest
import torch
import torch.nn.functional as F
from oracle import row_logps
from peft import LoraConfig
from processes import RUN, finish_together, start
from safetensors.torch import load_file
from test_trainer import Fixed

from spnb.core.method import Preference
from spnb.core.params import ParamError, validate
from spnb.core.types import Pair, Sample
from spnb.methods.spell import Method as Spell
from spnb.train.config import RunParams, dpo_arguments, params_class
from spnb.train.grpo import trl_names
from spnb.train.guards import TrainerError, check_contract
from spnb.train.metrics import TIMINGS
from spnb.train.plan import make_plan, run_one
from spnb.train.policies import LORA_TARGETS, Policy
from spnb.train.preference import make_preference_trainer, starting_pairs, with_reference
from spnb.train.runs import RunError, last_checkpoint, read_state
from spnb.train.trainer import Hooks

BASE = dict(paper="p", scale="smoke", variant="v", policy="x", save_every=2, seed=3)
LONGPO = Preference("longpo", batch=4, beta=0.7, weight=0.3)
SOLOPO = Preference("solopo", batch=4, beta=0.7, weight=1.3)


def run_params(loss, steps=4, **grpo):
    """Parameters of a run with a loss over pairs."""

    class Params(RunParams):
        preference = property(lambda self: loss)

    return Params(**BASE, steps=steps, grpo={"learning_rate": 1e-2, **grpo})


def ragged_pairs(count=6, vocabulary=300):
    """Pairs of different lengths; a long prompt is longer than its short one."""
    rng = random.Random(0)

    def ids(shortest, longest):
        length = rng.randint(shortest, longest)
        return tuple(rng.randrange(5, vocabulary) for _ in range(length))

    return [
        Pair(ids(2, 9), ids(10, 19), ids(2, 8), ids(2, 8), (1.0, 0.0), ()) for _ in range(count)
    ]


def logp(model, prompt, answer, whole=False):
    """The log-probability of an answer after a prompt, or of every token but the first."""
    prompt, answer = (prompt[:1], (*prompt[1:], *answer)) if whole else (prompt, answer)
    return row_logps(model, Sample(prompt, answer, (1,) * len(answer), None, 0.0, "", "")).sum()


def longpo_loss(model, start, pair, loss, reference="short", sign=1, likelihood=1.0):
    """LongPO's loss of a pair (eq. 12 and 14), written out."""
    L, S = pair.long_ids, pair.short_ids if reference == "short" else pair.long_ids
    chosen = logp(model, L, pair.chosen_ids) - logp(start, S, pair.chosen_ids)
    rejected = logp(model, L, pair.rejected_ids) - logp(start, S, pair.rejected_ids)
    preferred = -F.logsigmoid(sign * loss.beta * (chosen - rejected))
    tokens = len(pair.chosen_ids) + len(L) - 1
    nll = -logp(model, L, pair.chosen_ids, whole=True) / tokens
    return loss.weight * preferred + likelihood * nll


def solopo_loss(model, start, pair, loss, sign=1, of="chosen_ids", distance=abs):
    """SoLoPO's loss of a pair, written out."""

    def reward(prompt, answer):
        return loss.beta * (logp(model, prompt, answer) - logp(start, prompt, answer))

    S, L, chosen = pair.short_ids, pair.long_ids, getattr(pair, of)
    margin = reward(S, pair.chosen_ids) - reward(S, pair.rejected_ids)
    gap = distance(reward(L, chosen) - reward(S, chosen))
    return -F.logsigmoid(sign * margin) + loss.weight * gap


def by_hand(model, pairs, order, params, **changed):
    """Trains a copy by the written-out loss; returns it and (loss, gradient norm) of each step."""
    start, model = copy.deepcopy(model).eval(), copy.deepcopy(model).train()
    loss_of = {"longpo": longpo_loss, "solopo": solopo_loss}[params.preference.loss]
    grpo = params.grpo
    betas = grpo["adam_beta1"], grpo["adam_beta2"]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=grpo["learning_rate"], betas=betas, weight_decay=0.0
    )
    history = []
    for step in range(params.steps):
        size = params.preference.batch
        batch = [pairs[place] for place in order[step * size : (step + 1) * size]]
        each = [loss_of(model, start, pair, params.preference, **changed) for pair in batch]
        loss = torch.stack(each).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grpo["max_grad_norm"])
        optimizer.step()
        history.append((loss.item(), norm.item()))
    return model, history


def make(folder, model, tokenizer, params, rows=None, peft_config=None, pairs=None):
    """A trainer that has taken its pairs."""
    hooks = Hooks(on_step=lambda row, samples: rows.append((row, samples)))
    policy = Policy(model, tokenizer, peft_config)
    trainer = make_preference_trainer(params, policy, Fixed([], params), hooks, folder)
    trainer.take([with_reference(pair, model) for pair in pairs or ragged_pairs()])
    return trainer


@pytest.mark.parametrize("loss", [LONGPO, SOLOPO], ids=["longpo", "solopo"])
@pytest.mark.parametrize("pieces", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.slow
def test_loss_gradient_and_weights_are_the_written_out_ones(
    tmp_path, tiny_model, tokenizer, loss, pieces
):
    params, rows = run_params(loss, gradient_accumulation_steps=pieces), []
    trainer = make(tmp_path, copy.deepcopy(tiny_model), tokenizer, params, rows)
    expected, history = by_hand(tiny_model, ragged_pairs(), trainer._order, params)
    trainer.train()
    for (row, _), (value, norm) in zip(rows, history, strict=True):
        assert row["loss"] == pytest.approx(value, rel=1e-4)
        assert row["grad_norm"] == pytest.approx(norm, rel=1e-3)
    pairs = zip(trainer.model.parameters(), expected.parameters(), strict=True)
    assert max((a - b).abs().max().item() for a, b in pairs) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "name", "without", "weight"),
    [
        (LONGPO, "likelihood", {"likelihood": 0.0}, 1.0),
        (SOLOPO, "alignment", {"distance": lambda gap: 0 * gap}, 1.3),
    ],
    ids=["longpo", "solopo"],
)
def test_the_second_term_is_logged_without_its_weight(
    tmp_path, tiny_model, tokenizer, loss, name, without, weight
):
    rows, start, loss_of = [], copy.deepcopy(tiny_model), globals()[f"{loss.loss}_loss"]
    trainer = make(tmp_path, tiny_model, tokenizer, run_params(loss, steps=2), rows)
    trainer.train()
    after, _ = by_hand(start, ragged_pairs(), trainer._order, run_params(loss, steps=1))
    second = []
    for place in trainer._order[4:8]:
        given = (after, start, ragged_pairs()[place], loss)
        with torch.no_grad():
            second.append((loss_of(*given) - loss_of(*given, **without)).item() / weight)
    assert rows[1][0][f"preference/{name}"] == pytest.approx(sum(second) / 4, rel=0.02)


CHANGED = {
    "longpo, preference the wrong way": (LONGPO, {"sign": -1}),
    "longpo, reference under the long context": (LONGPO, {"reference": "long"}),
    "longpo, no likelihood": (LONGPO, {"likelihood": 0.0}),
    "longpo, likelihood the wrong way": (LONGPO, {"likelihood": -1.0}),
    "solopo, preference the wrong way": (SOLOPO, {"sign": -1}),
    "solopo, no alignment": (SOLOPO, {"distance": lambda gap: 0 * gap}),
    "solopo, alignment without absolute value": (SOLOPO, {"distance": lambda gap: gap}),
    "solopo, alignment of the rejected": (SOLOPO, {"of": "rejected_ids"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "changed"), CHANGED.values(), ids=CHANGED)
def test_a_changed_loss_would_be_seen(tiny_model, loss, changed):
    params, order = run_params(loss, steps=3), list(range(6)) * 2
    right, wrong = (
        [value for value, _ in by_hand(tiny_model, ragged_pairs(), order, params, **way)[1]]
        for way in ({}, changed)
    )
    assert any(a != pytest.approx(b, rel=2e-3) for a, b in zip(right, wrong, strict=True))


def test_pairs_come_in_an_order_of_the_seed_anew_each_time_all_have_come(
    tmp_path, tiny_model, tokenizer
):
    trainer = make(tmp_path, tiny_model, tokenizer, run_params(LONGPO, steps=3))
    order = trainer._order
    assert sorted(order[:6]) == sorted(order[6:]) == list(range(6)) and order[:6] != order[6:]
    trainer.take(trainer.pairs)
    assert trainer._order == order
    trainer.args.seed = 4
    trainer.take(trainer.pairs)
    assert trainer._order != order
    kept, pair = trainer._sample(2, "rejected"), trainer.pairs[2]
    assert (kept.prompt_ids, kept.completion_ids) == (pair.long_ids, pair.rejected_ids)
    assert (kept.reward, kept.group) == (0.0, 2)


def test_what_trl_gets_for_a_loss_over_pairs(tmp_path, monkeypatch):
    own = {"weight_decay": 0.25, "max_grad_norm": 0.5, "adam_beta2": 0.99, "ddp_timeout": 99}
    given = dpo_arguments(run_params(LONGPO, steps=5, **own), tmp_path)
    assert {name: given[name] for name in own} == own
    assert (given["beta"], given["loss_weights"]) == (0.7, [0.3])
    assert (given["max_steps"], given["save_steps"], given["seed"]) == (5, 2, 3)
    assert given["per_device_train_batch_size"] == 4
    monkeypatch.setenv("WORLD_SIZE", "2")
    given = dpo_arguments(run_params(SOLOPO, gradient_accumulation_steps=3), tmp_path)
    assert given["loss_weights"] == [1.0], "its weight is that of the alignment"
    assert (given["gradient_accumulation_steps"], given["per_device_train_batch_size"]) == (2, 1)


@pytest.mark.slow
def test_a_steps_row_and_records(tmp_path, tiny_model, tokenizer):
    rows, params = [], run_params(SOLOPO, steps=3)
    trainer = make(tmp_path, tiny_model, tokenizer, params, rows)
    pairs, order = trainer.pairs, trainer._order
    assert sorted(order[:6]) == list(range(6)) == sorted(order[6:12])  # all before any again
    trainer.train()
    first, samples = rows[0]
    assert first["loss"] == pytest.approx(0.6931, abs=1e-4)  # the policy is its reference
    assert first["preference/margin"] == pytest.approx(0, abs=1e-5)
    assert first["preference/alignment"] == pytest.approx(0, abs=1e-5)
    assert rows[1][0]["preference/alignment"] > 1e-3
    assert all(0 < row["seconds/step"] < 60 for row, _ in rows)
    assert [row["step"] for row, _ in rows] == [1, 2, 3] and first["samples"] == 8
    assert (first["reward/chosen"], first["reward/rejected"]) == (1.0, 0.0)
    lengths = [len(pairs[place].rejected_ids) for place in order[:4]]
    assert first["length/rejected"] == sum(lengths) / 4
    assert [(one.role, one.group, one.reward) for one in samples[:2]] == [
        ("chosen", order[0], 1.0), ("rejected", order[0], 0.0),
    ]  # fmt: skip
    assert samples[1].completion_ids == pairs[order[0]].rejected_ids
    assert samples[0].prompt_ids == pairs[order[0]].short_ids


@pytest.mark.slow
@pytest.mark.parametrize("loss", [LONGPO, SOLOPO], ids=["longpo", "solopo"])
def test_resumed_is_bit_identical(tmp_path, tiny_model, tokenizer, loss):
    whole, again, params = [], [], run_params(loss)
    trainer = make(tmp_path, copy.deepcopy(tiny_model), tokenizer, params, whole)
    trainer.train()
    shutil.rmtree(tmp_path / "checkpoint-4")
    checkpoint = last_checkpoint(tmp_path)
    resumed = make(tmp_path, copy.deepcopy(tiny_model), tokenizer, params, again)
    resumed.restore(read_state(checkpoint))
    resumed.train(resume_from_checkpoint=str(checkpoint))

    def plain(rows):
        return [{k: v for k, v in row.items() if k not in TIMINGS} for row, _ in rows]

    assert checkpoint.name == "checkpoint-2" and plain(again) == plain(whole)[2:]
    pairs = zip(trainer.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_lora_trains_the_adapter_against_the_weights_below(tmp_path, tiny_model, tokenizer):
    rows, before = [], copy.deepcopy(tiny_model)
    adapter = LoraConfig(r=4, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM")
    params = run_params(SOLOPO, steps=2)
    trainer = make(tmp_path, tiny_model, tokenizer, params, rows, adapter)
    trainer.train()
    assert rows[0][0]["loss"] == pytest.approx(0.6931, abs=1e-4) != rows[1][0]["loss"]
    name = "model.layers.0.self_attn.q_proj.base_layer.weight"
    kept = dict(trainer.model.base_model.model.named_parameters())[name]
    assert torch.equal(kept, before.model.layers[0].self_attn.q_proj.weight)


def test_pairs_are_made_once_with_the_starts_log_probabilities(tmp_path, tiny_model, tokenizer):
    params, file, calls = run_params(LONGPO), tmp_path / "pairs.jsonl", []
    trainer = make(tmp_path, tiny_model, tokenizer, params)

    def episode(attempt):
        calls.append(attempt)
        yield from ()
        return ragged_pairs()

    trainer.method.pairs = episode
    made = starting_pairs(file, trainer, {})
    assert starting_pairs(file, trainer, {}) == made and calls == [0]
    assert [pair.chosen_ids for pair in made] == [pair.chosen_ids for pair in ragged_pairs()]
    pair = made[0]
    with torch.no_grad():
        expected = [
            logp(tiny_model, pair.short_ids, pair.chosen_ids),
            logp(tiny_model, pair.short_ids, pair.rejected_ids),
            logp(tiny_model, pair.long_ids, pair.chosen_ids),
        ]
    assert pair.reference == pytest.approx([value.item() for value in expected], rel=1e-5)
    file.write_text('{"short_ids": [1]}\n')
    with pytest.raises(RunError, match=r"pairs.jsonl cannot be read .*it is made again"):
        starting_pairs(file, trainer, {})


@pytest.mark.parametrize("found_at", [2, 9])
def test_without_a_pair_the_questions_are_asked_again(
    tmp_path, tiny_model, tokenizer, capsys, found_at
):
    """Three more times at most, then the run ends; each is said."""
    trainer = make(tmp_path, tiny_model, tokenizer, run_params(LONGPO))
    calls = []

    def episode(attempt):
        calls.append(attempt)
        yield from ()
        return ragged_pairs() if attempt == found_at else []

    trainer.method.pairs = episode
    made = starting_pairs(tmp_path / "pairs.jsonl", trainer, {})
    assert len(made) == (6 if found_at == 2 else 0)
    assert calls == ([0, 1, 2] if found_at == 2 else [0, 1, 2, 3])
    said = capsys.readouterr().out.splitlines()
    assert len(said) == (2 if found_at == 2 else 4)
    assert said[1] == "attempt 2 of 4 gave no preference pair"
    if not made:
        with pytest.raises(TrainerError, match="gave no preference pair; allowed: one at least"):
            trainer.take(made)


def test_bad_input_is_named(tmp_path, tiny_model, tokenizer):
    trainer = make(tmp_path, tiny_model, tokenizer, run_params(LONGPO))
    with pytest.raises(TrainerError, match="gave no preference pair; allowed: one at least"):
        trainer.take([])
    for pieces in (3, 8):
        params = run_params(LONGPO, gradient_accumulation_steps=pieces)
        with pytest.raises(TrainerError, match=f"update of 4 pairs is cut into {pieces} pieces"):
            make(tmp_path, tiny_model, tokenizer, params)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, tiny_model, tokenizer):
    trainer = make(tmp_path, tiny_model, tokenizer, run_params(LONGPO))
    with torch.no_grad():
        trainer.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainerError, match="is nan at update 1"):
        trainer.train()


def test_trls_trainer_is_the_one_that_ours_stands_on(monkeypatch):
    import trl

    check_contract(trl.DPOTrainer, "DPOTrainer")
    for name in trl_names()["contract"]["DPOTrainer"]["methods"]:
        with pytest.raises(TrainerError, match=f"{name}.*expected"), monkeypatch.context() as m:
            m.setattr(trl.DPOTrainer, name, lambda one: None)
            check_contract(trl.DPOTrainer, "DPOTrainer")
    contract = {"DPOTrainer": {"methods": {}, "names": ["no_such_key"]}}
    monkeypatch.setattr("spnb.train.guards.trl_names", lambda: {"contract": contract})
    with pytest.raises(TrainerError, match="no_such_key"):
        check_contract(trl.DPOTrainer, "DPOTrainer")


SPELL = BASE | dict(steps=2, question_source="static", judgments_per_answer=0, alignment="longpo")
GROUPED = {"grpo": {"loss_type": "grpo"}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"question_source": "policy"},
            "question_source is 'policy' with alignment 'longpo'; allowed: static",
        ),
        (
            {"judgments_per_answer": 2},
            "judgments_per_answer is 2 with alignment 'longpo'; allowed: 0",
        ),
        ({"context": [2, 4]}, r"context is \[2, 4\] with alignment 'longpo'; allowed: nothing"),
        ({"rewards": "random"}, "rewards is 'random' with alignment 'longpo'; allowed: earned"),
        ({"alignment": "dpo"}, "alignment is 'dpo'; allowed: 'longpo' or 'solopo'"),
        ({"grpo": {"beta": 0.3}}, "grpo.beta is 0.3 with the loss of longpo; allowed: 0.0"),
        ({"grpo": {"num_iterations": 2}}, "grpo.num_iterations is 2 with .*; allowed: 1"),
        ({"micro_tokens": 64}, "micro_tokens is 64 with the loss of longpo; allowed: None"),
        ({"grpo": {"epsilon": 0.3}}, "grpo.epsilon is 0.3 with the loss of longpo; allowed: 0.2"),
        ({"grpo": {"epsilon_high": 0.3}}, "grpo.epsilon_high is 0.3 with .*; allowed: None"),
        (
            {"grpo": {"importance_sampling_level": "sequence"}},
            "grpo.importance_sampling_level is 'sequence' with .*; allowed: 'token'",
        ),
        (
            {"grpo": {"delta": 2.0}},
            "grpo.delta is 2.0 with .*; allowed: nothing, of these alone: learn",
        ),
        ({"engine": "vllm", "dtype": "bfloat16"}, "engine is 'vllm' with .*; allowed: 'torch'"),
        (
            {"policies": {"b": "y"}, "co_trained": {"b": {}}},
            "co_trained is .* with the loss of longpo",
        ),
        ({"stages": [{"policy": "policy", "steps": 2}]}, "stages is .* with the loss of longpo"),
    ],
)
def test_parameters_that_do_not_fit_are_answered(values, message):
    with pytest.raises(ParamError, match=message):
        validate(params_class(Spell), SPELL | values)


def test_methods_keys_reach_the_loss():
    longpo, solopo = (
        validate(params_class(Spell), SPELL | GROUPED | {"alignment": name, "groups": 6}).preference
        for name in ("longpo", "solopo")
    )
    assert longpo == Preference("longpo", 6, beta=0.1, weight=0.01)
    assert solopo == Preference("solopo", 6, beta=0.1, weight=3.0)
    assert validate(params_class(Spell), SPELL | GROUPED | {"alignment": None}).preference is None


TINY = dict(
    steps=4, save_every=1, eval_every=2, eval_items=1, eval_samples=1, groups=2, static_questions=6
)


def plan_of(folder, variant, **values):
    """A plan of one short run of SPELL's baselines."""
    values = dict(seeds=[0], runs=str(folder), eval_documents=[2], **TINY) | values
    return make_plan("spell", "smoke", variants=[variant], **values)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["longpo", "solopo"])
def test_a_run_killed_and_resumed_is_bit_identical(tmp_path, variant):
    whole = run_one(plan_of(tmp_path / "whole", variant), variant, 0)
    plan = plan_of(tmp_path / "killed", variant)
    run = plan.open(variant, 0)
    child = start(run.folder / "log.txt", RUN, run.folder)
    deadline = time.monotonic() + 240
    while len(run.rows("metrics")) < 2:
        assert child.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    child.kill()
    child.join()
    assert not run.finished
    resumed = run_one(plan, variant, 0)
    assert resumed.facts()["resumed"] and not whole.facts()["resumed"]
    for name in ("metrics", "evals", "items", "rollouts"):
        first, second = (
            [{k: v for k, v in row.items() if k not in TIMINGS} for row in one.rows(name)]
            for one in (whole, resumed)
        )
        assert first == second != [], name
    pairs = [(one.folder / "pairs.jsonl").read_text() for one in (whole, resumed)]
    assert pairs[0] == pairs[1] and {row["step"] for row in whole.rows("evals")} == {0, 2, 4}
    ours, theirs = (load_file(one.model / "model.safetensors") for one in (whole, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path):
    two = plan_of(tmp_path / "two", "solopo").open("solopo", 0)
    done = finish_together(two.folder / "log.txt", RUN, two.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert two.facts()["processes"] == 2
    pairs = [json.loads(line) for line in (two.folder / "pairs.jsonl").read_text().splitlines()]
    assert len(pairs) == len({json.dumps(pair["long_ids"]) for pair in pairs}) > 0
    plan = plan_of(tmp_path / "one", "solopo")
    shutil.copy(two.folder / "pairs.jsonl", plan.open("solopo", 0).folder)  # its own seeds differ
    one = run_one(plan, "solopo", 0)
    for ours, theirs in zip(one.rows("metrics"), two.rows("metrics"), strict=True):
        for key in ("loss", "grad_norm", "preference/alignment", "preference/margin", "samples"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-3, abs=1e-5), key


@pytest.mark.slow
def test_a_damaged_file_of_pairs_stops_the_run(tmp_path):
    plan = plan_of(tmp_path, "longpo")
    run = plan.open("longpo", 0)
    (run.folder / "pairs.jsonl").write_text("{\n")
    with pytest.raises(RunError, match="pairs.jsonl cannot be read"):
        run_one(plan, "longpo", 0)
    (run.folder / "pairs.jsonl").unlink()
    assert run_one(plan, "longpo", 0).finished
