"""Several policies, stages, kept checkpoints, and runs that start from other runs."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import rzero
import torch
from processes import finish
from rzero import make_run
from safetensors.torch import load_file

from spnb.core.params import ParamError
from spnb.core.types import Completion, Sample, Sampling
from spnb.train.config import StageParams
from spnb.train.metrics import TIMINGS
from spnb.train.plan import make_plan, run_all, run_one
from spnb.train.policies import PLAIN, load_policy, policy_path
from spnb.train.run import hold_to
from spnb.train.runs import RunError
from spnb.train.weights import trained_weights

SCRIPT = str(Path(__file__).with_name("rzero.py"))
TINY = dict(
    games=["kuhn_poker"], turns_per_step=8, eval_matches=2, eval_samples=1, eval_questions=0,
    eval_games=[], seeds=[0],
)  # fmt: skip


@pytest.fixture
def two_variants(monkeypatch):
    """A paper of two variants, the second from the first one's final weights."""
    longer = {"about": "x.", "set": {"start_from": "full"}}
    variants = {"full": {"about": "x."}, "longer": longer}
    monkeypatch.setattr("spnb.train.plan.variants", lambda paper: variants)


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(first, second):
    return all((first[name] == second[name]).all() for name in first)


def train(run, die_at=None):
    return finish(run.folder / "log.txt", SCRIPT, run.folder, *([die_at] if die_at else []))


@pytest.mark.slow
def test_of_a_policys_earlier_stages_no_weights_are_kept(tmp_path, in_place, monkeypatch):
    run = make_run(tmp_path)

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("spnb.train.run._collect_models", killed)
    with pytest.raises(KeyboardInterrupt):
        rzero.train(run)
    left = {path.parent.name for path in run.folder.glob("stages/*/*.safetensors")}
    assert left == {"2", "3"} and len(list(run.folder.glob("stages/*/method.json"))) == 4
    monkeypatch.undo()


@pytest.mark.slow
def test_what_a_run_reads_is_compared_with_what_it_was_planned_with(tmp_path):
    source = shutil.copytree(policy_path("embedded/games"), tmp_path / "mine")
    values = dict(TINY, runs=str(tmp_path), policy=str(source))
    plan = make_plan("spiral", "smoke", variants=["full"], **values)
    run = plan.open("full", 0)
    (source / "model.safetensors").write_bytes(b"other")
    assert plan.open("full", 0).folder == run.folder, "a plan is what it was"
    with pytest.raises(RunError, match="mine of its weights has changed; allowed: as spiral/smoke"):
        run_one(plan, "full", 0)


@pytest.mark.slow
@pytest.mark.parametrize(("lora", "dtype"), [(0, torch.float32), (4, torch.bfloat16)])
def test_what_a_policy_is_held_to_is_as_exact_as_trl_has_it(lora, dtype):
    params = PLAIN.model_copy(update={"dtype": "bfloat16", "lora_rank": lora, "grpo": {"beta": 1}})
    accelerator = SimpleNamespace(prepare_model=lambda model, evaluation_mode: model)
    trainer = SimpleNamespace(is_deepspeed_enabled=False, accelerator=accelerator)
    trainer.args = SimpleNamespace(beta=0.0)  # no row of the stage is under the KL
    trainer.ref_model = None
    hold_to(trainer, "embedded/games", params)
    assert trainer.ref_model is None
    trainer.args.beta = 1.0
    hold_to(trainer, "embedded/games", params)
    assert trainer.ref_model.dtype == dtype and not trainer.ref_model.training


@pytest.mark.slow
def test_two_policies_trained_in_turn_and_killed_in_the_second_stage(tmp_path):
    whole, killed = make_run(tmp_path / "whole"), make_run(tmp_path / "killed")
    done = train(whole)
    assert done.returncode == 0, done.stderr[-2000:]
    assert train(killed, die_at=3).returncode == 9 and not killed.finished
    assert [path.name for path in killed.checkpoints.iterdir()] == ["stage-1"], "0 is done"
    assert train(killed).returncode == 0
    start = weights(Path(policy_path("embedded/games")))
    for policy in ("challenger", "solver"):
        first, second = (weights(run.model / policy) for run in (whole, killed))
        assert same(first, second) and not same(first, start)
    rows = [
        [{k: v for k, v in row.items() if k not in TIMINGS} for row in run.rows("metrics")]
        for run in (whole, killed)
    ]
    assert rows[0] == rows[1] and [row["step"] for row in rows[0]] == list(range(1, 9))
    for name in ("evals", "items", "rollouts"):
        assert whole.rows(name) == killed.rows(name) != []
    assert [row["step"] for row in whole.rows("evals")] == [0, 4, 8], "not as a stage begins"
    trained = [(row["trained/challenger"] > 0, row["trained/solver"] > 0) for row in rows[0]]
    assert not any(both == (True, True) for both in trained)
    assert any(asks for asks, _ in trained[:2]) and any(answers for _, answers in trained[2:4])


@pytest.mark.slow
def test_a_run_starts_from_another_and_keeps_checkpoints(tmp_path, two_variants):
    values = dict(TINY, steps=2, keep_checkpoints=[0.5, 1.0], runs=str(tmp_path))
    plan = make_plan("spiral", "smoke", variants=["longer"], **values)
    assert list(plan.runs) == [("full", 0), ("longer", 0)]  # what it starts from comes first
    with pytest.raises(RunError, match="starts from full, which is not finished"):
        from spnb.train.run import train_run

        train_run(plan.open("longer", 0))
    run_all(plan)
    first, second = plan.all()
    assert sorted(path.name for path in (first.folder / "kept").iterdir()) == ["step-1", "step-2"]
    assert same(weights(first.folder / "kept" / "step-2"), weights(first.model))
    assert not same(weights(first.folder / "kept" / "step-1"), weights(first.model))
    assert second.rows("evals")[0]["step"] == 0
    changed = make_plan("spiral", "smoke", variants=["longer"], **values | {"temperature": 0.9})
    assert changed.open("longer", 0).config_hash != second.config_hash
    again = run_one(plan, "longer", 0)
    assert again.finished and not same(weights(again.model), weights(first.model))


@pytest.mark.slow
def test_a_run_goes_on_from_a_lora_run(tmp_path, two_variants):
    values = dict(TINY, steps=1, lora_rank=4, runs=str(tmp_path))
    plan = make_plan("spiral", "smoke", variants=["longer"], **values)
    longer = run_one(plan, "longer", 0)
    first = plan.open("full", 0)
    assert (first.model / "adapter_model.safetensors").is_file() and longer.finished
    merged = load_policy(str(first.model)).model.state_dict()
    start = weights(Path(policy_path("embedded/games")))
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(merged[name], start[name])
    assert torch.equal(merged["model.norm.weight"], start["model.norm.weight"])


@pytest.fixture
def in_place(monkeypatch):
    """What `rzero.train` puts in the place of the registered methods is taken back."""
    for name in ("method_module", "method_class"):
        monkeypatch.setattr(rzero.run_module, name, getattr(rzero.run_module, name))


@pytest.fixture
def trained_logits(monkeypatch):
    """What the policy in training says to a text at the end of each stage."""
    finish = rzero.run_module.StageRun.finish
    noted = []

    def at_the_end(self):
        noted.append(said_by(self.model))
        return finish(self)

    monkeypatch.setattr(rzero.run_module.StageRun, "finish", at_the_end)
    return noted


def said_by(model):
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(5, 25)[None]).logits


@pytest.mark.slow
def test_what_a_lora_run_saves_is_what_it_trained_also_after_another(
    tmp_path, monkeypatch, in_place, trained_logits
):
    """The second stage trains an adapter on the first one's merged weights, which no folder has."""
    stages = [{"policy": "solver", "steps": 2}] * 2
    run = make_run(tmp_path, stages=stages, steps=4, lora_rank=4)
    rzero.train(run)
    first, second = trained_logits
    assert not torch.allclose(first, second, atol=1e-3)
    said = said_by(load_policy(str(run.model)).model)
    torch.testing.assert_close(said, second, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["solver", "challenger", "judge"], "policies has 'judge', which nothing uses; allowed:"
         " what a role .*has: challenger, solver"),
        (["solver"], "policy of a role is 'challenger', which is unknown; .*solver"),
    ],
)  # fmt: skip
def test_policies_and_roles_name_each_other(tmp_path, in_place, names, message):
    stages = [{"policy": "solver", "steps": 1}]
    policies = dict.fromkeys(names, "embedded/games")
    run = make_run(tmp_path, policies=policies, stages=stages, steps=1)
    with pytest.raises(ParamError, match=message):
        rzero.train(run)


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "to_start"), [(0, False), (4, False), (4, True)])
def test_a_later_stage_has_the_runs_start(tmp_path, monkeypatch, in_place, rank, to_start):
    said = {"start": [], "solver": []}
    finish = rzero.run_module.StageRun.finish

    def at_the_end(self):
        for name, texts in said.items():
            request = self.method.request("solver", "Ask.", "said")
            asked = replace(request, policy=name, sampling=replace(request.sampling, temperature=0))
            (answer,) = self.engines[name].generate([asked])
            texts.append(answer.logps)
        return finish(self)

    monkeypatch.setattr(rzero.run_module.StageRun, "finish", at_the_end)
    monkeypatch.setattr(rzero.Method, "snapshots", ("start",))
    grpo = {"learning_rate": 1e-2, "beta": 0.1}
    stages = [{"policy": "solver", "steps": 1}] * 2
    values = {"lora_rank": rank, "grpo": grpo, "kl_to": "start" if to_start else "stage"}
    rzero.train(make_run(tmp_path, stages=stages, steps=2, **values))
    assert said["start"][0] == pytest.approx(said["start"][1], abs=1e-4)
    assert said["solver"][1] != pytest.approx(said["start"][1], abs=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {
                "stages": [{"policy": "other", "steps": 1}, {"policy": "policy", "steps": 1}],
                "policies": {"other": "embedded/games"},
                "keep_checkpoints": [0.5, 1.0],
            },
            "keep_checkpoints is .*allowed: shares at whose steps policy is trained, as at the end",
        ),
        ({"start_from": "fulll"}, "start_from is 'fulll', which is unknown; did you mean 'full'?"),
        (
            {"start_from": {"solver": "no-rae"}},
            "start_from is 'solver', which is unknown; .*policy",
        ),
        ({"start_from": "full"}, "start_from makes a circle: full -> full"),
        ({"roles": {"judge": {}}}, "role is 'judge', which is unknown; allowed: opponent, player"),
        ({"roles": {"player": {"policy": "x"}}}, "roles.player.policy is 'x', which is unknown"),
        (
            {"roles": {"player": {"policy": "start", "trainable": True}}},
            "roles.player.trainable is True with policy start, earlier weights; allowed: false",
        ),
        ({"stages": [{"policy": "b", "steps": 2}]}, "stages.0.policy is 'b', which is unknown"),
        (
            {"stages": [{"policy": "policy", "steps": 1}]},
            "steps is 2 with stages .*; allowed: 1, as many",
        ),
        ({"policies": {"past": "x"}}, "policies names 'past'"),
        (
            {"grpo": {"bta": 1}},
            "parameter is 'grpo.bta', which is unknown; did you mean 'grpo.beta'",
        ),
        ({"kl_to": "start"}, "kl_to is 'start' with grpo.beta 0.0; allowed: with a KL"),
        ({"grpo": {"max_steps": 1}}, "grpo.max_steps is 1; allowed: nothing, steps decides it"),
        (
            {"policies": {"b": "embedded/games"}, "co_trained": {"b": {"num_iterations": 3}}},
            r"allowed: the same for all: they share checkpoints",
        ),
    ],
)
def test_names_that_do_not_exist_are_answered_before_anything_runs(tmp_path, values, message):
    with pytest.raises(ParamError, match=message):
        make_plan("spiral", "smoke", variants=["full"], runs=str(tmp_path), steps=2, **values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kl_to", "lora"),
    [("start", {}), ("stage", {}), ("", {}), ("start", {"lora_rank": 4}), ("", {"lora_rank": 4})],
)
def test_a_later_stage_is_held_to_the_runs_first_weights_or_its_own(
    tmp_path, in_place, kl_to, lora
):
    stages = [{"policy": "solver", "steps": 2}] * 2
    grpo = {"learning_rate": 1e-2 if lora else 1e-3, "beta": 0.1}
    run = make_run(tmp_path, stages=stages, steps=4, grpo=grpo, kl_to=kl_to, **lora)
    rzero.train(run)
    kl = [row["kl/solver"] for row in run.rows("metrics")]
    assert kl[0] == pytest.approx(0, abs=1e-5) and kl[1] > 1e-4
    assert (kl[2] > 1e-4) is (kl_to == "start")


@pytest.mark.slow
def test_all_weights_that_go_on_from_an_adapter_learn_and_are_held_to_it(tmp_path, two_variants):
    """The one update of the second run begins where its KL is taken to."""
    grpo = {"learning_rate": 0.05, "beta": 0.1, "num_iterations": 1}
    values = dict(TINY, steps=1, variants=["full"], grpo=grpo, runs=str(tmp_path))
    adapter = run_one(make_plan("spiral", "smoke", **values, lora_rank=4), "full", 0)
    shutil.copytree(adapter.model, policy := tmp_path / "adapter")
    whole = run_one(make_plan("spiral", "smoke", **values, policy=str(policy)), "full", 0)
    assert whole.rows("metrics")[0]["kl"] == pytest.approx(0, abs=1e-5)
    merged = load_policy(str(policy)).model.state_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(weights(whole.model)[name], merged[name])


@pytest.mark.slow
def test_a_partner_that_goes_on_from_an_adapter_is_held_to_it(tmp_path, in_place):
    """All of its weights learn; its KL is 0 before the first update."""
    adapter = rzero.train(make_run(tmp_path / "first", lora_rank=4)).model / "challenger"
    policies = {"challenger": str(shutil.copytree(adapter, tmp_path / "adapter"))}
    values = {"stages": [], "steps": 1, "roles": {"solver": {"policy": "policy"}}}
    values |= {"policies": policies, "co_trained": {"challenger": {}}, "grpo": {"beta": 0.1}}
    run = make_run(tmp_path / "second", **values)
    rzero.train(run)
    first = run.rows("metrics")[0]
    assert first["kl/challenger"] == pytest.approx(0, abs=1e-5) == first["kl/solver"]


@pytest.mark.slow
def test_the_past_policy_is_the_start_before_the_first_step(tmp_path):
    roles = {"proposer": {"policy": "past", "trainable": False}}
    values = {"variants": ["learning"], "roles": roles, "steps": 1, "runs": str(tmp_path)}
    rows = run_one(make_plan("proposer", "smoke", **values), "learning", 0).rows("evals")
    assert "proposals" in {row["suite"] for row in rows if row["step"] == 0}


@pytest.mark.slow
def test_the_past_policy_is_there_when_a_later_stage_begins(tmp_path):
    """Its first evaluation is after its first step; a match with the past is played in it."""
    stages = [{"policy": "policy", "steps": 1}] * 2
    plan = make_plan(
        "spiral", "smoke", variants=["full"], **TINY, steps=2, stages=stages, runs=str(tmp_path)
    )
    opponents = {row["opponent"] for row in run_one(plan, "full", 0).rows("evals")}
    assert "past" in opponents


@pytest.mark.slow
def test_lora_policies_that_began_as_one_are_adapters_of_one_model(tmp_path, monkeypatch, in_place):
    """Each stage goes on with its policy's adapter; the other one is another adapter, or none."""
    monkeypatch.setattr(rzero.run_module, "fixed_engine", None)  # no second copy is loaded
    build = rzero.run_module.StageRun.build
    seen = []

    def noted(self, state):
        build(self, state)
        other = {"challenger": "solver", "solver": "challenger"}[self.stage.policy]
        engine = self.engines[self.stage.policy]
        seen.append((trained_weights(self.model), self.engines[other].weights))
        assert self.engines[other].engine is engine

    monkeypatch.setattr(rzero.run_module.StageRun, "build", noted)
    run = make_run(tmp_path, lora_rank=4, kl_to="start", grpo={"beta": 0.1})
    rzero.train(run)
    (asks, new), (answers, asked), (asks_on, answered), (answers_on, asked_on) = seen
    for adapter in (asks, new, answers):
        assert not any(values.any() for name, values in adapter.items() if "lora_B" in name)
    assert same(asks_on, asked) and same(answers_on, answered) and not same(asked, asked_on)
    assert any(values.any() for name, values in asked.items() if "lora_B" in name)
    final = load_file(run.model / "challenger" / "adapter_model.safetensors")
    assert same({name.replace(".default.", "."): asked_on[name] for name in asked_on}, final)


@pytest.mark.slow
def test_an_adapter_in_16_bits_goes_on_without_a_kl_as_it_was(tmp_path, monkeypatch, in_place):
    """It is not merged into the weights below it, which would round most of it away."""
    build, begun = rzero.run_module.StageRun.build, []

    def noted(self, state):
        build(self, state)
        begun.append(trained_weights(self.model))

    monkeypatch.setattr(rzero.run_module.StageRun, "build", noted)
    stages = [{"policy": "solver", "steps": 1}] * 2
    values = {"stages": stages, "steps": 2, "lora_rank": 4, "dtype": "bfloat16"}
    run = make_run(tmp_path, **values, grpo={"learning_rate": 1e-2})
    rzero.train(run)
    first, second = begun
    assert not any(values.any() for name, values in first.items() if "lora_B" in name)
    assert any(values.any() for name, values in second.items() if "lora_B" in name)
    assert (run.model / "adapter_model.safetensors").is_file()
    assert not run.checkpoints.exists(), "nothing goes on from them"


@pytest.mark.slow
def test_a_new_adapter_is_drawn_from_the_runs_seed(tmp_path, in_place, monkeypatch):
    module, drawn = rzero.run_module, []
    monkeypatch.setattr(module, "method_module", lambda _: SimpleNamespace(Method=rzero.Method))
    monkeypatch.setattr(module, "method_class", lambda *_: rzero.Method)
    first = dict.fromkeys(("challenger", "solver"), "embedded/games")
    for place, seed in enumerate((3, 3, 4)):
        torch.manual_seed(place)
        run = make_run(tmp_path / str(place), seed=seed, lora_rank=2)
        steps = module.Stage("challenger", 0, 2)
        stage = module.StageRun(run, module.run_params(run), steps, 0, (first, first))
        stage.build(None)
        drawn.append(stage.new_adapter)
    assert same(drawn[0], drawn[1]) and not same(drawn[0], drawn[2])


def test_each_process_goes_on_with_its_own_state_of_the_method(tmp_path, monkeypatch, tokenizer):
    module, told = rzero.run_module, []

    class Method(rzero.Method):
        def load_state_dict(self, state):
            told.append(state)

    for name, other in {
        "method_module": lambda _: SimpleNamespace(Method=Method),
        "method_class": lambda *_: Method,
        "load_policy": lambda *_: SimpleNamespace(tokenizer=tokenizer),
        "make_trainer": lambda *_: 1 / 0,
    }.items():
        monkeypatch.setattr(module, name, other)
    run = make_run(tmp_path)
    first = dict.fromkeys(("challenger", "solver"), "embedded/games")
    steps = module.Stage("solver", 2, 2)
    stage = module.StageRun(run, module.run_params(run), steps, 1, (first, first))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ZeroDivisionError):
        stage.build([{"of": "first"}, {"of": "second"}])
    assert told == [{"of": "second"}]


class Adapters:
    """A stand-in for vLLM: notes whose weights it keeps."""

    def __init__(self):
        self.kept = {}

    def snapshot(self, name, weights):
        self.kept[name] = weights
        return self


@pytest.mark.parametrize(
    ("engine", "rank", "changed", "once"),
    [
        ("vllm", 4, {}, True),
        ("torch", 4, {}, False),
        ("vllm", 0, {}, False),
        ("vllm", 4, {"solver": "another"}, False),
        ("vllm", 4, {"challenger": "an earlier stage's"}, False),
        ("vllm", 4, dict.fromkeys(["challenger", "solver"], "an adapter"), False),
    ],
)
def test_vllm_answers_without_its_adapter_for_a_policy_of_the_weights_below_it(
    tmp_path, monkeypatch, engine, rank, changed, once
):
    """They are loaded once; `changed`: where weights are now, the challenger being in training."""
    module, made, load = rzero.run_module, Adapters(), rzero.run_module.load_policy
    on_cpu = lambda params: params.model_copy(update={"engine": "torch"})  # noqa: E731
    make = module.make_trainer
    for name, other in {
        "method_module": lambda paper: SimpleNamespace(Method=rzero.Method),
        "method_class": lambda paper, params: rzero.Method,
        "has_adapter": lambda source: source == "an adapter",
        "load_policy": lambda source, *more, **named: load("embedded/games", *more, **named),
        "make_trainer": lambda params, *more: make(on_cpu(params), *more),
        "make_engine": lambda *_: made,
        "fixed_engine": lambda name, source, *_: source,
    }.items():
        monkeypatch.setattr(module, name, other)
    monkeypatch.setattr(module.StageRun, "check_adapter", lambda stage: None)
    run = make_run(tmp_path, lora_rank=rank, grpo={"beta": 0.1})  # to the weights of each stage
    params = module.run_params(run).model_copy(update={"engine": engine})
    first = dict.fromkeys(("challenger", "solver"), "embedded/games")
    steps = module.Stage("challenger", 0, 2)
    stage = module.StageRun(run, params, steps, 0, (first, first | changed))
    stage.build(None)
    assert stage.engines["solver"] == (made if once else (first | changed)["solver"])
    assert [*made.kept] == ["solver"] * once
    adapter = made.kept.get("solver", {})
    assert not any(values.any() for name, values in adapter.items() if "lora_B" in name)


class Asked:
    """An engine that writes a word, and notes how many requests come at once."""

    def __init__(self):
        self.sizes = []

    def generate(self, requests):
        self.sizes.append(len(requests))
        return [Completion((0,), (0.0,), str(one.seed % 3), "stop") for one in requests]


def test_vllm_gets_all_suites_of_an_evaluation_at_once(tmp_path, tokenizer, monkeypatch):
    """With the same records and rows as one after another, as the torch engine gets them."""
    found, sizes, entered = [], [], []
    autocast = lambda *how, enabled: entered.append((*how, enabled)) or nullcontext()  # noqa: E731
    monkeypatch.setattr(torch, "autocast", autocast)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for engine in ("torch", "vllm"):
        params = SimpleNamespace(seed=0, sampling=Sampling(4), roles={})
        method = rzero.Method(params, tokenizer)
        (suite,) = method.suites(0)
        method.suites = lambda step, one=suite: [one, replace(one, parts=[7, 8]), one]
        run, asked = make_run(tmp_path / engine), Asked()
        stage = rzero.run_module.StageRun(run, PLAIN, None, 0, ({}, {}))
        stage.params = PLAIN.model_copy(
            update={"engine": engine, "paper": "rzero", "benchmarks": {}, "dtype": "bfloat16"}
        )
        stage.method, stage.main, stage.snapshots = method, True, set()
        stage.engines = {"solver": asked}
        stage.evaluate(4)
        found.append({name: run.rows(name) for name in ("items", "evals")})
        sizes.append(asked.sizes)
    assert sizes == [[5, 2, 5], [12]] and found[0] == found[1]
    assert entered == [("cuda", torch.bfloat16, True)], "as in training; vLLM has its own"
    assert [row["step"] for row in found[0]["items"]] == [4] * 12 and len(found[0]["evals"]) == 3


def stage_of(tmp_path, **params):
    """A stage of a run without a trainer."""
    stage = rzero.run_module.StageRun(make_run(tmp_path), PLAIN, None, 0, ({}, {}))
    stage.params = PLAIN.model_copy(update={"paper": "rzero", "benchmarks": {}} | params)
    return stage


def test_the_past_policy_is_met_before_the_weights_become_it(tmp_path, tokenizer):
    stage, order = stage_of(tmp_path), []
    given = SimpleNamespace(seed=0, sampling=Sampling(4), roles={})
    stage.method, stage.model = rzero.Method(given, tokenizer), torch.nn.Linear(1, 1)
    stage.main, stage.snapshots = True, {"past"}
    stage.keep_past = lambda weights: order.append("kept")
    asked = Asked()
    answer = asked.generate
    asked.generate = lambda requests: order.append("asked") or answer(requests)
    stage.engines = {"solver": asked}
    stage.evaluate(4)
    assert order == ["asked", "kept"]


def test_benchmarks_are_sampled_as_evaluations_are(tmp_path, monkeypatch):
    how = []
    monkeypatch.setattr(rzero.run_module, "run_suites", lambda *given: how.append(given[2:]) or [])
    own = dict(max_new_tokens=9, temperature=0.9, eval_temperature=0.25, eval_top_p=0.5, steps=8)
    stage = stage_of(tmp_path, **own)
    stage.method = SimpleNamespace(
        suites=lambda step: [], by_search="tool", chat="chat", share=None
    )
    stage.snapshots, stage.engines = set(), {}
    for step in (0, 4, 8):
        stage.evaluate(step)
    plain, room = Sampling(9, 0.25, 0.5), PLAIN.max_length
    assert how == [("rzero", plain, end, "tool", room) for end in (True, False, True)]


def test_stages_hand_on_steps_weights_and_the_methods_state(tmp_path, monkeypatch):
    module, noted = rzero.run_module, []

    class Part:
        def __init__(self, run, params, stage, index, sources):
            self.folder, self.given = f"after {index}", (stage, *sources)

        def go(self, before):
            noted.append((*self.given, before))
            return {"methods": [self.folder]}

    monkeypatch.setattr(module, "StageRun", Part)
    stages = [{"policy": name, "steps": steps} for name, steps in (("a", 2), ("b", 3), ("a", 1))]
    params = PLAIN.model_copy(update={"stages": [StageParams(**one) for one in stages]})
    first = {"a": "x", "b": "y"}
    module.train_stages(make_run(tmp_path), params, first)
    assert noted == [
        (module.Stage("a", 0, 2), first, first, None),
        (module.Stage("b", 2, 3), first, {"a": "after 0", "b": "y"}, {"methods": ["after 0"]}),
        (
            module.Stage("a", 5, 1),
            first,
            {"a": "after 0", "b": "after 1"},
            {"methods": ["after 1"]},
        ),
    ]


def test_a_stage_begins_with_the_state_that_the_one_before_left(tmp_path):
    stage, told = stage_of(tmp_path), []
    stage.build = lambda methods: told.append(methods) or 1 / 0
    with pytest.raises(ZeroDivisionError):
        stage.go({"methods": ["left"]})
    assert told == [["left"]]


def test_evaluations_rollouts_and_weights_come_where_they_are_due(tmp_path, monkeypatch):
    stage, due = stage_of(tmp_path, steps=5, eval_every=2, keep_checkpoints=[0.55, 0.1]), []
    stage.main, stage.evaluate = True, due.append

    def save(trainer, folder):
        folder.mkdir(parents=True)
        due.append(folder.name)

    monkeypatch.setattr(rzero.run_module, "save_policy", save)
    stage.trainer = SimpleNamespace(processing_class=SimpleNamespace(decode=lambda ids: ids[0]))
    rows = [Sample((place,), (2,), (1,), None, 0.0, "r", 0) for place in range(40)]
    for step in range(1, 6):
        stage.on_step({"step": step}, rows)
    assert due == ["step-1", 2, "step-3", 4, 5]
    assert [row["step"] for row in stage.run.rows("metrics")] == [1, 2, 3, 4, 5]
    kept = stage.run.rows("rollouts")
    assert [(row["step"], row["prompt"]) for row in kept] == [
        (step, place) for step in (2, 4, 5) for place in range(0, 40, 2)
    ]


def test_a_kept_rollout_says_what_it_was(tmp_path):
    stage = stage_of(tmp_path)
    stage.trainer = SimpleNamespace(processing_class=SimpleNamespace(decode=lambda ids: "asked"))
    row = Sample((1,), (2,), (1,), None, 0.25, ("g", 1), 0, advantage=-2.0, weight=0.5)
    row.info = {"text": "said"}
    kept = stage.record(3, row)
    assert (kept["step"], kept["prompt"], kept["text"]) == (3, "asked", "said")
    assert (kept["role"], kept["reward"], kept["advantage"], kept["weight"]) == (
        "g/1",
        0.25,
        -2,
        0.5,
    )
