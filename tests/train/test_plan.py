"""Runs from parameters to files: plans, kill and resume, several processes, bad input."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import papermill
import pytest
import torch
import yaml
from processes import KEPT, RUN, finish, finish_together, start
from safetensors.torch import load_file

from spnb.core.errors import Stopped
from spnb.core.params import SCALES, ParamError, papers, scale_values, variants, variants_at
from spnb.core.paths import ROOT, resolve
from spnb.train import run as run_module
from spnb.train import states
from spnb.train.metrics import TIMINGS
from spnb.train.plan import _checked, deviations, make_plan, run_all, run_one
from spnb.train.policies import PolicyError, policy_fingerprint, policy_path
from spnb.train.runs import RunError, config_hash, read_state, seal

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
    defaults = dict(variants=["full"], seeds=[0], runs=str(tmp_path / "runs"))
    return make_plan("spiral", "smoke", **{**defaults, **SMALL, **values})


def kill_after(plan, rows, delay):
    """Starts the run and kills it `delay` seconds after it has recorded `rows` steps."""
    run = plan.open("full", 0)
    process = start(run.folder / "log.txt", RUN, run.folder)
    deadline = time.monotonic() + 240
    while len(run.rows("metrics")) < rows:
        assert process.is_alive(), (run.folder / "log.txt").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay)
    process.kill()
    process.join()


def comparable(run):
    """Everything a run recorded but wall times."""
    metrics = [{k: v for k, v in row.items() if k not in TIMINGS} for row in run.rows("metrics")]
    return metrics, *(run.rows(name) for name in ("evals", "items", "rollouts"))


def same_weights(first, second):
    ours, theirs = (load_file(run.model / "model.safetensors") for run in (first, second))
    return ours.keys() == theirs.keys() and all((ours[k] == theirs[k]).all() for k in theirs)


def test_a_variant_that_starts_from_one_without_a_corpus_starts_from_the_policy(tmp_path):
    """SSP's continued goes on from weights that learned in the laboratory."""
    plan = make_plan("ssp", "smoke", variants=["continued"], corpus=str(tmp_path), seeds=[0])
    params = plan.params("continued")
    assert params.start_from == {} and "policy" not in params.policies
    values = {"variants": ["continued"], "corpus": str(tmp_path), "seeds": [0]}
    named = make_plan("ssp", "smoke", **values, start_from={"rival": "search-trained"})
    other = named.params("continued")
    assert (other.start_from, other.policies) == ({}, {"rival": params.policy})


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(tmp_path):
    values = dict(steps=6, save_every=2, eval_every=3, grpo={"num_iterations": 2})
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
    assert same_weights(resumed, whole)


def no_room(*args):
    raise torch.OutOfMemoryError("no room")


@pytest.mark.slow
def test_a_checkpoint_is_checked_and_has_the_weights_once(tmp_path, monkeypatch):
    plan = small_plan(tmp_path, steps=3, save_every=1, eval_every=1)
    run = plan.open("full", 0)
    kill_after(plan, rows=2, delay=0.0)
    folder = max((run.checkpoints / "stage-0").glob("checkpoint-*/manifest.json")).parent
    names = {path.name for path in folder.iterdir()}
    assert {
        "optimizer.safetensors",
        "random-0.safetensors",
        "model.safetensors",
        "manifest.json",
    } <= names
    assert "past.safetensors" in names and not list(folder.glob("*selfplay*"))
    assert read_state(folder)["run"]["rows"]["metrics"] >= 1
    metrics = run.folder / "metrics.jsonl"
    content = metrics.read_bytes()
    metrics.write_bytes(b"")
    with pytest.raises(RunError, match="metrics.jsonl has 0 rows and had"):
        run_one(plan, "full", 0)
    metrics.write_bytes(content.replace(b'"step": 1,', b'"step": 0,', 1))
    with pytest.raises(RunError, match="metrics.jsonl is not as it was written"):
        run_one(plan, "full", 0)
    metrics.write_bytes(content)
    with monkeypatch.context() as full, pytest.raises(torch.OutOfMemoryError, match="no room"):
        full.setattr(states.StatesMixin, "_load_optimizer_and_scheduler", no_room)
        run_one(plan, "full", 0)
    optimizer = folder / "optimizer.safetensors"
    flipped = bytearray(optimizer.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    optimizer.write_bytes(flipped)
    with pytest.raises(RunError, match="optimizer.safetensors is not as it was saved; delete"):
        run_one(plan, "full", 0)
    torch.save({"state": tmp_path}, optimizer)  # a pickle that builds an object
    seal(folder, json.loads((folder / "manifest.json").read_text())["state"])
    with pytest.raises(RunError, match="optimizer.safetensors cannot be read .*; delete"):
        run_one(plan, "full", 0)
    shutil.rmtree(folder)
    assert run_one(plan, "full", 0).finished and not list(run.folder.rglob("training_args.bin"))


@pytest.mark.slow
def test_run_all_runs_each_once_and_a_failure_names_the_run(tmp_path):
    polls = []
    plan = small_plan(tmp_path, variants=["full", "no-rae"], steps=1)
    done = run_all(plan, on_poll=polls.append)
    assert [run.run_id for run in done] == [f"spiral/smoke/{v}/seed-0" for v in ("full", "no-rae")]
    assert all(run.finished for run in done) and polls
    stamp = (done[0].folder / "metrics.jsonl").stat().st_mtime_ns
    assert run_one(plan, "full", 0).finished  # not computed again
    assert (done[0].folder / "metrics.jsonl").stat().st_mtime_ns == stamp
    shutil.copytree(policy_path("embedded/games"), tmp_path / "halved")
    weights = tmp_path / "halved" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:10_000])
    broken = small_plan(tmp_path, seeds=[7], steps=1, policy=str(tmp_path / "halved"))
    message = r"run spiral/smoke/full/seed-7 failed(.|\n)*halved', which cannot be loaded"
    with pytest.raises(RunError, match=message):
        run_all(broken)


@pytest.mark.slow
def test_two_processes_share_a_steps_turns_and_the_evaluation(tmp_path):
    """Data-parallel over gloo: step quantities are global, both play, one records."""
    plan = small_plan(tmp_path, steps=2, save_every=1, eval_every=2, turns_per_step=13)
    run = plan.open("full", 0)
    done = finish_together(run.folder / "log.txt", KEPT, run.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert run.facts()["processes"] == 2 and [row["step"] for row in run.rows("metrics")] == [1, 2]
    for row in run.rows("metrics"):
        assert round(row["trained"] * row["samples"]) == 13  # not 26
    state = read_state(max((run.checkpoints / "stage-0").glob("checkpoint-*")))
    first, second = (method["estimators"] for method in state["methods"])
    assert first != second and first.keys() == second.keys()
    alone = run_one(small_plan(tmp_path / "alone", steps=1, eval_every=2), "full", 0)
    at_start = [[row for row in one.rows("evals") if row["step"] == 0] for one in (run, alone)]
    assert at_start[0] == at_start[1] != []  # the shared evaluation measures the same


@pytest.mark.slow
def test_the_loss_of_two_processes_is_that_of_one(tmp_path):
    """Also where their updates are cut by tokens."""
    script = Path(__file__).with_name("two_processes.py")
    losses = []
    for run, *cut in ((finish,), (finish_together,), (finish_together, "30")):
        out = tmp_path / f"{len(losses)}.json"
        done = run(tmp_path / "log.txt", script, tmp_path / out.stem, out, *cut)
        assert done.returncode == 0, done.stderr[-3000:]
        losses.append(json.loads(out.read_text()))
    one, *both = losses
    for two in both:
        assert two["samples"] == one["samples"] == 9
        for key in ("grad_norm", "reward/r", "advantage_std/r", "moved"):
            assert two[key] == pytest.approx(one[key], rel=1e-4), key


@pytest.mark.slow
def test_lora_and_kl_through_a_whole_run(tmp_path):
    run = run_one(small_plan(tmp_path, steps=2, lora_rank=4, grpo={"beta": 0.05}), "full", 0)
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
        ({"seeds": [-1]}, "seed is -1; allowed: greater than or equal to 0"),
        ({"seed": 3}, "seed is 3, which cannot be set here; use variants, seeds"),
        ({"variantss": ["full"]}, "'variantss', which is unknown; did you mean 'variants'"),
        ({"run": {"steps": 3}}, "parameter is 'run', which is unknown"),
        ({"baseline": "rae"}, "baseline is 'rae'; allowed: 'role_ema'"),
        ({"turn_per_step": 3}, "'turn_per_step', which is unknown; did you mean 'turns_per_step'"),
        ({"variant": "no-rae"}, "variant is 'no-rae', which cannot be set here"),
    ],
)
def test_bad_plans_are_refused_before_anything_runs(tmp_path, values, message):
    values = {"runs": str(tmp_path), **values}
    with pytest.raises(ParamError, match=message):
        make_plan("spiral", values.pop("scale", "smoke"), **values)


@pytest.mark.parametrize(
    ("changes", "values", "message"),
    [
        ({"steps": "x"}, {}, r"^steps is 'x'; .* \(variant full of params/spiral/variants.yaml\)$"),
        ({"steps": 2}, {"steps": "y"}, r"^steps is 'y'; allowed: [^(]*\(rollouts.*updates\)$"),
        ({"scale": "paper"}, {}, r"^scale is 'paper' in variant full of .*; allowed: other param"),
    ],
)
def test_a_variants_fault_names_it(monkeypatch, changes, values, message):
    monkeypatch.setitem(known := variants("spiral"), "full", known["full"] | {"set": changes})
    monkeypatch.setattr("spnb.train.plan.variants", lambda paper: known)
    with pytest.raises(ParamError, match=message):
        make_plan("spiral", "smoke", variants=["full"], **values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"games": ["go9000"]}, "game is 'go9000'; allowed: kuhn_poker"),
        ({"games": "connect_five"}, "game is 'connect_five'; allowed: kuhn_poker"),
        ({"games": ["kuhn_poker(players=3)"]}, "has 3 players; allowed: games for two"),
        ({"games": ["kuhn_poker", "kuhn_poker"]}, "allowed: each game once"),
        (
            {"games": ["connect_four"], "opponent": "expert"},
            "opponent is 'expert', which game 'connect_four' has not",
        ),
        ({"policy": "embedded/chess"}, "embedded policy is 'chess'; allowed: "),
    ],
)
def test_bad_game_and_policy(tmp_path, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small_plan(tmp_path, **values)


def test_a_policy_that_is_not_there(tmp_path):
    with pytest.raises(PolicyError, match="policy is 'no/such-model', which is not in the"):
        run_one(small_plan(tmp_path, policy="no/such-model"), "full", 0)
    assert not list(tmp_path.iterdir())


def test_what_a_user_sets_wins_over_the_variant(tmp_path):
    plan = small_plan(tmp_path, variants=["no-rae"], baseline="batch_mean")
    assert plan.params("no-rae").baseline == "batch_mean"
    plan = small_plan(tmp_path, grpo={"beta": 0.1})
    assert plan.params("full").grpo["beta"] == 0.1
    default = small_plan(tmp_path).params("full").grpo
    assert plan.params("full").grpo["learning_rate"] == default["learning_rate"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("paper", papers())
def test_a_parameter_file_passed_whole_changes_nothing(paper, scale):
    """As papermill passes it with -f, for every variant, whatever the variant changes."""
    file = yaml.safe_load((ROOT / "params" / paper / f"{scale}.yaml").read_text())
    assert set(file) <= {"scale", "variants", "seeds", "jobs", "run"} and file["scale"] == scale
    options = {"seeds": file.get("seeds"), "jobs": file.get("jobs"), **file["run"]}
    every = list(variants_at(paper, scale))
    plan = make_plan(paper, scale, variants=every, **options)
    assert plan == make_plan(paper, scale, variants=every) and plan.changed == ()
    whole = make_plan(paper, scale, variants=file.get("variants"), **options)
    assert whole == make_plan(paper, scale)


def test_a_value_of_the_file_wins_over_a_variant_where_it_is_meant_exactly():
    """A frozen proposer's solver has a rate of its own; the command line asks for the scale's."""
    values = {"grpo": {"learning_rate": 1e-3}}
    own = make_plan("proposer", "cpu", variants=["frozen"], **values)
    assert own.params("frozen").grpo["learning_rate"] == 2e-3 and own.changed == ()
    plan = make_plan("proposer", "cpu", values, variants=["frozen"])
    assert plan.params("frozen").grpo["learning_rate"] == 1e-3
    assert plan.params("frozen").grpo["beta"] == 0 and plan.changed == ("grpo.learning_rate",)
    assert make_plan("spell", "cpu", steps=None).changed == ()
    assert make_plan("scope", "gpu").params("full").micro_tokens == 16384
    assert make_plan("scope", "gpu", {"micro_tokens": None}).params("full").micro_tokens is None
    with pytest.raises(ParamError, match="steps is None"):
        make_plan("spell", "cpu", {"steps": None})


def test_numbers_of_policies_that_learn_in_the_same_steps_are_numbers_however_they_are_spelled():
    """To YAML 1.1 a number with an exponent and no point is a text."""

    def exact(beta):
        return {"co_trained": {"proposer": {"beta": beta}}}

    spelled = [
        make_plan("proposer", "cpu", exact(beta), variants=["learning-two"])
        for beta in (0.1, "1e-1")
    ]
    assert spelled[0].params("learning-two").co_trained["proposer"]["beta"] == 0.1
    assert len({config_hash(plan.identity("learning-two", 10)) for plan in spelled}) == 1


@pytest.mark.parametrize("paper", papers())
def test_papermill_knows_every_name_of_a_parameter_file(paper):
    (notebook,) = (ROOT / "notebooks").glob(f"*_{paper}.ipynb")
    known = papermill.inspect_notebook(str(notebook))
    for scale in SCALES:
        file = yaml.safe_load((ROOT / "params" / paper / f"{scale}.yaml").read_text())
        assert set(file) <= set(known)


def test_an_edited_copy_of_a_parameter_file_takes_effect():
    file = yaml.safe_load((ROOT / "params/proposer/cpu.yaml").read_text())
    every = list(variants("proposer"))
    run = file["run"] | {"steps": 31, "grpo": file["run"]["grpo"] | {"beta": 0.2}}
    edited = make_plan("proposer", "cpu", variants=every, seeds=[7], jobs=1, **run)
    assert edited.changed == ("seeds", "steps", "grpo.beta")
    assert edited.session.jobs == 1 and list(edited.runs) == [(name, 7) for name in every]
    plain = make_plan("proposer", "cpu", variants=every, seeds=[7])
    for name in every:  # some have a learning rate of their own, which was not edited
        params = edited.params(name)
        assert (params.steps, params.grpo["beta"], params.seed) == (31, 0.2, 7)
        assert params.grpo["learning_rate"] == plain.params(name).grpo["learning_rate"]


def test_a_parameter_corrected_or_taken_away_is_gone():
    with pytest.raises(ParamError, match="'stepz', which is unknown; did you mean 'steps'"):
        make_plan("spiral", "smoke", stepz=3)
    assert make_plan("spiral", "smoke", steps=3).params("full").steps == 3
    assert make_plan("spiral", "smoke") == make_plan("spiral", "smoke", steps=None)


SEEDED = {
    "full": {"about": "x.", "headline": True, "seeds": {"smoke": [3, 1, 2]}},
    "other": {"about": "x.", "headline": True, "seeds": {"cpu": [8]}},
    "longer": {"about": "x.", "seeds": {"smoke": [1]}, "set": {"start_from": "other"}},
}


def test_a_variant_may_have_seeds_of_its_own(monkeypatch):
    monkeypatch.setattr("spnb.train.plan.variants", lambda paper: SEEDED)
    file = scale_values("spiral", "smoke")["seeds"]
    assert file == [0]
    plan = make_plan("spiral", "smoke", variants=["other", "full"])
    assert list(plan.runs) == [("other", 0), ("full", 3), ("full", 1), ("full", 2)]
    assert plan.seeds_of("full") == [3, 1, 2]
    assert plan.params("full").seed == 3 and plan.params("other").seed == 0
    assert plan == make_plan("spiral", "smoke", variants=["other", "full"], seeds=file)
    theirs = make_plan("spiral", "smoke", variants=["other", "full"], seeds=[5])
    assert list(theirs.runs) == [("other", 5), ("full", 5)] and theirs.changed == ("seeds",)
    started = make_plan("spiral", "smoke", variants=["longer"])  # with what it starts from, first
    assert list(started.runs) == [("other", 1), ("longer", 1)]
    two = make_plan("spiral", "smoke", variants=["longer"], seeds=[4, 2])
    assert two.needs(("longer", 2)) == [("other", 2)], "of the same seed"
    start = two.identity("longer", 2)["starts"]["policy"]
    assert start == {"variant": "other", "hash": config_hash(two.identity("other", 2))}
    monkeypatch.setitem(SEEDED, "full", SEEDED["full"] | {"seeds": {"smoke": ["a"]}})
    with pytest.raises(ParamError, match="seeds.0 is 'a'; allowed: a valid integer"):
        make_plan("spiral", "smoke", variants=["full"])


@pytest.mark.parametrize("paper", ["scope", "spell", "spice", "ssp"])
def test_some_of_the_seeds_are_those_alone(paper):
    """Also where they are the first of the file's."""
    first = scale_values(paper, "cpu")["seeds"][:3]
    plan = make_plan(paper, "cpu", seeds=first)
    assert sorted({seed for _, seed in plan.runs}) == first
    assert len(plan.runs) == 3 * len(plan.variants)


@pytest.mark.parametrize(
    ("scale", "values", "commit", "why"),
    [
        ("cpu", {}, "abc", ""),
        ("cpu", {"variants": ["no-rae"], "jobs": 1, "runs": "x", "eval_every": 15}, "abc", ""),
        ("cpu", {"report_to": "tensorboard", "most_tokens": 1e15, "processes": 1}, "abc", ""),
        ("cpu", {}, "abcdef0123456-dirty", "The code has changes since commit abcdef012."),
        ("cpu", {}, None, "The code is in no git repository of its own"),
        ("gpu", {}, "abc", "Exhibits in figures/ are of scale cpu, this plan is of scale gpu."),
        ("smoke", {}, "abc", "this plan is of scale smoke."),
        ("cpu", {"seeds": [77]}, "abc", "This plan has its own seeds, and figures/ is made with"),
        ("cpu", {"grpo": {"beta": 0.5}, "steps": 9}, "abc", "its own steps, grpo.beta, and figure"),
    ],
)
def test_only_a_committed_plan_of_a_clean_commit_writes_figures(
    monkeypatch, scale, values, commit, why
):
    monkeypatch.setattr("spnb.train.provenance.commit", lambda: commit)
    plan = make_plan("spiral", scale, **values)
    assert why in plan.why_not_committed() and bool(why) == bool(plan.why_not_committed())
    folder = plan.session.figures or ("runs/figures" if why else "figures")
    assert plan.figures == resolve(folder)
    assert (plan.figures == ROOT / "figures") == (why == "")
    assert make_plan("spiral", scale, figures="mine", **values).figures == ROOT / "mine"
    for named in ("figures", "figures/spiral", "notebooks/../figures", str(ROOT / "figures")):
        if not why:
            assert make_plan("spiral", scale, figures=named, **values).figures == resolve(named)
            continue
        message = f"figures is '{named}', the committed exhibits; .*{re.escape(why)}"
        with pytest.raises(ParamError, match=message):
            make_plan("spiral", scale, figures=named, **values)


@pytest.mark.slow
def test_interrupting_stops_the_processes_and_says_one_sentence(tmp_path, monkeypatch, capsys):
    processes = []

    def sleeper(folder, forked, card, count):
        assert forked and count == 1
        context = multiprocessing.get_context("forkserver")
        processes.append(context.Process(target=time.sleep, args=(60,)))
        processes[-1].start()
        return [processes[-1]]

    def interrupt(plan):
        raise KeyboardInterrupt

    monkeypatch.setattr("spnb.train.plan.start_together", sleeper)
    plan = small_plan(tmp_path, variants=["full", "no-rae"], jobs=2)
    with pytest.raises(Stopped, match="^stopped; finished runs are kept, start again to go on$"):
        run_all(plan, on_poll=interrupt)
    assert [process.exitcode for process in processes] == [-signal.SIGTERM] * 2
    assert "0/2 runs; loading full/0, no-rae/0" in capsys.readouterr().out


@pytest.mark.slow
def test_parameters_are_checked_without_torch():
    """Also of a valid plan of every paper, its policies' weights included."""
    code = (
        "import sys\n"
        "from spnb.core.params import papers\n"
        "from spnb.train.plan import make_plan\n"
        "plans = [make_plan(paper, scale) for paper in papers() for scale in ('cpu', 'gpu')]\n"
        "assert len(plans) >= 6 and all(plan.runs for plan in plans)\n"
        "print([name for name in ('torch', 'transformers', 'trl') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("scale", ["gpu", "paper"])
def test_no_embedded_policy_is_trained_on_a_gpu(scale):
    for paper in papers():
        plan = make_plan(paper, scale, variants=list(variants_at(paper, scale)), seeds=[0])
        for (variant, _), params in plan.runs.items():
            used = [params.policy, *params.policies.values()]
            assert not [name for name in used if name.startswith("embedded/")], (paper, variant)


def test_a_variant_of_other_scales_is_refused_and_not_a_default():
    with pytest.raises(ParamError, match="'ladder-even' at scale gpu; allowed: scale smoke or cpu"):
        make_plan("rlvr", "gpu", variants=["ladder-even"])
    assert "ladder-even" in make_plan("rlvr", "cpu").variants
    assert "ladder-even" not in make_plan("rlvr", "gpu").variants
    assert "mix" in deviations(make_plan("rlvr", "cpu", variants=["ladder-even"]))


def test_runs_of_another_number_of_processes_are_said(tmp_path, monkeypatch, capsys):
    plan = small_plan(tmp_path)
    plan.open("full").finish(seconds=1, resumed=False, processes=8)
    monkeypatch.setattr("spnb.train.plan.Run.check_finished", lambda run: None)
    run_all(plan)
    told = capsys.readouterr().out
    assert told.endswith("spiral/smoke/full/seed-0 was trained by 8 processes, not 1\n")


def test_after_a_failure_no_other_run_is_started(tmp_path, monkeypatch):
    """Of three runs, two at a time, the first fails while the second goes on."""
    groups, polls = [], []

    def started(*_):
        groups.append([SimpleNamespace(exitcode=int(not groups), is_alive=lambda: False)])
        return groups[-1]

    monkeypatch.setattr("spnb.train.plan.POLL", 0)
    monkeypatch.setattr("spnb.train.plan.start_together", started)
    monkeypatch.setattr("spnb.train.plan.have_ended", lambda group: group in groups[: len(polls)])
    plan = small_plan(tmp_path, seeds=[0, 1, 2], jobs=2)
    with pytest.raises(RunError, match="^run spiral/smoke/full/seed-0 failed; its log ends:"):
        run_all(plan, on_poll=polls.append)
    assert len(groups) == 2


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"advantage_mean/a": 0.0, "advantage_std/a": 0.0, "loss": 0.5}, True),
        ({"advantage_mean/a": -0.5, "advantage_std/a": 0.0}, False),
        ({"preference/margin": 0.25}, False),
    ],
)
def test_a_run_in_which_nothing_could_teach_is_told(tmp_path, monkeypatch, capsys, numbers, told):
    plan = small_plan(tmp_path)
    run = plan.open("full", 0)
    run.append("metrics", {"step": 1} | numbers, {"step": 2, "loss": 0.0})
    run.finish()
    monkeypatch.setattr("spnb.train.plan.Run.check_finished", lambda run: None)
    _checked(plan, plan.runs)
    assert ("nothing was learned" in capsys.readouterr().out) is told


def test_finished_runs_are_said_and_drawn(tmp_path, monkeypatch, capsys):
    plan = small_plan(tmp_path, seeds=[0, 1])
    monkeypatch.setattr("spnb.train.plan._checked", lambda plan, *_: ["runs"])
    monkeypatch.setattr("spnb.train.plan.Run.finished", True)
    polls = []
    assert run_all(plan, on_poll=polls.append) == ["runs"] and polls == [plan]
    assert capsys.readouterr().out == "2 of 2 runs are finished already\n"


def test_deviations_from_the_paper(tmp_path):
    changed = deviations(small_plan(tmp_path))
    assert changed["grpo.learning_rate"] == (3e-4, 1e-6)
    assert "scale" not in changed


def test_deviations_are_of_the_first_variant_or_of_a_named_one():
    """Of these two QwenLong-L1 alone has contexts that grow, other ones at paper scale."""
    plan = make_plan("spell", "cpu", variants=["full", "qwenlong-l1"])
    assert "steps" in deviations(plan) and "context" not in deviations(plan)
    assert deviations(plan, "qwenlong-l1")["context"] == ([4, 8], [10, 20])


def test_deviations_name_benchmarks_and_leave_out_what_is_not_set():
    changed = deviations(make_plan("ssp", "cpu", variants=["full"]))
    here, paper = changed["benchmarks"]
    assert here == [] and paper == sorted(paper) and {"nq", "bamboogle"} <= {*paper}
    assert changed["roles"][0] == {"solver": {"kl": False}}
    same = deviations(make_plan("rlvr", "gpu"))["benchmarks"]
    assert [*same[0]] == [*same[1]] and same[0]["gsm8k"]["count"] == 200


def test_a_run_that_another_process_writes_is_named(tmp_path, monkeypatch, capsys):
    """Where several train together, none waits: the others would not know that one does."""
    plan = small_plan(tmp_path, steps=1)

    def started(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("spnb.train.plan.start_together", started)
    monkeypatch.setenv("WORLD_SIZE", "2")
    who = f"run spiral/smoke/full/seed-0 is being written by process {os.getpid()} on "
    with plan.open("full", 0).lock():
        with pytest.raises(Stopped):
            run_all(plan)
        assert f"waiting: {who}" in capsys.readouterr().out
        with pytest.raises(RunError, match=f"^{who}.*; wait for it or stop it"):
            run_one(plan, "full", 0)


@pytest.mark.slow
def test_a_free_text_game_can_be_trained(tmp_path):
    values = dict(games=["SimpleNegotiation-v0"], steps=1, max_length=2048)
    run = run_one(small_plan(tmp_path, **values), "full", 0)
    row = run.rows("metrics")[0]
    assert row["invalid/SimpleNegotiation-v0/0"] < 0.5  # the shipped policy negotiates
    assert {"random", "expert", "past"} <= {row["opponent"] for row in run.rows("evals")}
    items = run.rows("items")
    assert {0.0, 0.5, 1.0} >= {row["score"] for row in items if row["opponent"] == "random"}


@pytest.mark.slow
def test_a_fixed_rival_belongs_to_the_runs_identity_and_plays_the_other_seat(tmp_path):
    plan = small_plan(tmp_path, variants=["fixed-policy"], steps=1, eval_questions=0)
    run = run_one(plan, "fixed-policy", 0)
    identity = json.loads((run.folder / "config.json").read_text())["params"]
    assert set(identity["weights"]) == {"embedded/games", "embedded/games-rival"}
    assert len(set(identity["weights"].values())) == 2
    rewards = [key for key in run.rows("metrics")[0] if key.startswith("reward/")]
    assert rewards and run.rows("metrics")[0]["samples"] > 0


@pytest.mark.slow
def test_snapshots_exist_only_where_a_method_asks_for_them(tmp_path, monkeypatch):
    values = dict(
        runs=str(tmp_path), variants=["think"], seeds=[0], steps=1, prompts_per_step=2,
        group_size=2,
        eval_items=2, max_new_tokens=4,
    )  # fmt: skip
    monkeypatch.setattr(run_module, "save_file", None)  # of the past policy
    run = run_one(make_plan("rlvr", "smoke", **values), "think", 0)
    assert run.rows("items") and not run.checkpoints.exists(), "nothing goes on from them"


@pytest.mark.slow
def test_published_benchmarks_are_measured_at_both_ends_and_belong_to_the_runs_identity(tmp_path):
    rows = [{"question": f"{n} and {n}?", "answer": f"#### {2 * n}"} for n in range(3)]
    file = tmp_path / "gsm8k.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = dict(
        runs=str(tmp_path), variants=["think"], seeds=[0], steps=2, prompts_per_step=2,
        group_size=2,
        eval_items=2, eval_every=1, max_new_tokens=4,
    )  # fmt: skip
    plan = make_plan("rlvr", "smoke", **values)
    use = {"path": str(file), "samples": 2}
    measured = make_plan("rlvr", "smoke", benchmarks={"gsm8k": use}, **values)
    run = run_one(measured, "think", 0)
    table = pd.DataFrame(run.rows("evals")).query("suite == 'gsm8k'")
    assert sorted(set(table["step"])) == [0, 2]
    assert {"accuracy", "parsed", "pass@1", "pass@2"} == set(table["metric"])
    assert len(pd.DataFrame(run.rows("items")).query("suite == 'gsm8k'")) == 2 * 3 * 2

    hashes = {one.open("think", 0).config_hash for one in (plan, measured)}
    hub = make_plan("rlvr", "smoke", benchmarks={"gsm8k": None}, **values)
    hashes |= {hub.open("think", 0).config_hash}
    file.write_text(json.dumps(rows[0]))
    os.utime(file, (1, 1))
    changed = make_plan("rlvr", "smoke", benchmarks={"gsm8k": use}, **values)
    hashes |= {changed.open("think", 0).config_hash}
    assert len(hashes) == 4
    assert plan.identity("think", 0)["data"] == {}


@pytest.mark.parametrize(("paper", "key"), [("spice", "corpus"), ("ssp", "answers")])
def test_a_changed_file_of_documents_is_another_run(tmp_path, paper, key):
    file = tmp_path / "own.jsonl"

    def hash_of(source, text, time):
        file.write_text(json.dumps({"id": "0", "title": "A", "text": text}))
        os.utime(file, (time, time))
        values = {"corpus": str(file)} | {key: str(source)}
        plan = make_plan(paper, "smoke", variants=["full"], seeds=[0], runs=str(tmp_path), **values)
        return plan.open("full", 0, make=False).config_hash

    first = hash_of(file, "one", 1)
    assert hash_of(file, "one", 2) == first != hash_of(file, "two", 3)


def test_a_corpus_in_a_folder_is_known_by_its_summary(tmp_path):
    """An index beside it, which a run builds, makes it no other."""
    (tmp_path / "corpus.json").write_text('{"key": "a"}')

    def data():
        plan = make_plan("spice", "smoke", seeds=[0], corpus=str(tmp_path))
        return plan.identity("full", 0)["data"]

    before = data()
    (tmp_path / "bm25").write_text("x")
    assert data() == before and set(before) == {str(tmp_path)}
    (tmp_path / "corpus.json").write_text('{"key": "another"}')
    assert data() != before


def test_a_changed_template_is_another_run(tmp_path):
    path = tmp_path / "own.jinja"

    def hash_of(text, time):
        path.write_text(text)
        os.utime(path, (time, time))
        plan = small_plan(tmp_path, chat_template=str(path))
        return plan.open("full", 0, make=False).config_hash

    assert hash_of("a", 1) == hash_of("a", 2) != hash_of("b", 3)
    run = small_plan(tmp_path, chat_template=str(path)).open("full", 0)
    run_module.check_inputs(run, run_module.run_params(run))
    path.write_text("c")
    os.utime(path, (4, 4))
    with pytest.raises(RunError, match="chat_template of its data has changed; allowed: as spiral"):
        run_module.check_inputs(run, run_module.run_params(run))


def test_every_file_of_a_policys_folder_counts(tmp_path):
    names = ("config.json", "tokenizer.json", "chat_template.jinja", "adapter_config.json")
    names = (*names, "pytorch_model.bin", "model.safetensors")
    found = set()
    for text in ("first", "second"):
        for name in names:
            (tmp_path / name).write_text(text)
            if text == "second" or name == names[-1]:
                found.add(policy_fingerprint(str(tmp_path)))
    assert len(found) == 1 + len(names)
