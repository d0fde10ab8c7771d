"""Several processes train one run: as `spnb run --processes` starts, stops and goes on with them;
sharded weights by the side door."""

import json
from pathlib import Path

import pytest
from processes import RUN, finish_together, left_by
from typer.testing import CliRunner

from spnb.cli import app
from spnb.core.errors import Stopped
from spnb.core.params import ParamError, shared_file
from spnb.core.paths import ROOT
from spnb.train import plan as plans
from spnb.train.checks import check_processes
from spnb.train.plan import make_plan, run_all
from spnb.train.run import train_run
from spnb.train.runs import RunError
from spnb.train.server import last_lines, log_of, start_together, together

SMALL = dict(steps=12, eval_every=12, save_every=1, eval_items=1, family="journey", mix=[1, 1])
SMALL |= dict(fixed=8, prompts_per_step=2, group_size=2, policy="embedded/learner")
HERE = Path(__file__).parent
ZERO2 = shared_file("zero2.json")


def plan_of(folder, **values):
    how = dict(variants=["ladder-even"], seeds=[0], runs=str(folder))
    return make_plan("rlvr", "smoke", **how, **SMALL | values)


def spnb_run(folder, processes, **values):
    """What `spnb run` prints and its exit code, for the run of `plan_of`."""
    pairs = [f"--set={key}={json.dumps(value)}" for key, value in (SMALL | values).items()]
    where = ["--scale", "smoke", "--variant", "ladder-even", "--runs", str(folder)]
    return CliRunner().invoke(app, ["run", "rlvr", *where, "--processes", str(processes), *pairs])


@pytest.mark.slow
def test_two_processes_from_the_command_line_stopped_and_started_again(tmp_path):
    whole = plan_of(tmp_path / "whole").open("ladder-even", 0)
    done = finish_together(whole.folder / "log.txt", RUN, whole.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    plan = plan_of(tmp_path / "stopped", processes=2)
    run = plan.open("ladder-even", 0)
    assert run.config_hash == whole.config_hash and plan.changed.count("processes") == 1

    def stop(plan):
        if any(run.checkpoints.glob("stage-0/checkpoint-*/manifest.json")):
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        run_all(plan, stop)
    assert not run.busy() and not run.finished
    alone = spnb_run(tmp_path / "stopped", 1)
    assert alone.exit_code == 2
    assert "written by 2 processes, and 1 run now; allowed: as many" in alone.stderr
    again = spnb_run(tmp_path / "stopped", 2)
    assert again.exit_code == 0, again.output
    assert run.facts()["processes"] == 2 and run.facts()["resumed"]
    assert left_by(run) == left_by(whole)


@pytest.mark.slow
def test_where_one_process_dies_the_other_is_stopped(tmp_path, monkeypatch):
    started = []

    def start(*given):
        started.extend(start_together(*given))
        return started

    monkeypatch.setattr(plans, "start_together", start)
    plan = plan_of(tmp_path, processes=2)
    killed = r"seed-0 was killed by SIGKILL \(memory\? start again: .*\); its log ends:"
    with pytest.raises(RunError, match=f"run rlvr/smoke/ladder-even/{killed}"):
        run_all(plan, lambda plan: started[1].kill())
    assert len(started) == 2 and not any(process.is_alive() for process in started)


def test_the_log_that_says_what_stopped_a_run_is_shown(tmp_path):
    first, second = log_of(tmp_path, 0), log_of(tmp_path, 1)
    assert (first.name, second.name) == ("log.txt", "log-1.txt")
    first.write_text("Traceback\nconnection closed by peer\n")
    second.write_text("warning\nerror: loss is nan at update 3\n")
    assert last_lines(tmp_path, 2)[-1] == "error: loss is nan at update 3"
    assert last_lines(tmp_path, 1) == ["Traceback", "connection closed by peer"]
    assert last_lines(tmp_path, 3)[-1] == "error: loss is nan at update 3", "one never began"


def test_too_few_places_for_the_processes(tmp_path, monkeypatch):
    assert "processes is 0; allowed: greater than or equal to 1" in spnb_run(tmp_path, 0).stderr
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(ParamError, match="^processes is 3 with 2 cores; allowed: 1 to 2$"):
        run_all(plan_of(tmp_path, processes=3))
    params = plan_of(tmp_path).params("ladder-even")
    with pytest.raises(ParamError, match="^processes is 3 with 2 GPUs; allowed: 1 to 2$"):
        check_processes(3, ["4", "5"], [params])
    check_processes(1, ["4"], [params])
    unsloth = params.model_copy(update={"backend": "unsloth"})
    with pytest.raises(ParamError, match="2 with backend 'unsloth'; allowed: 1 process, or"):
        check_processes(2, ["4", "5"], [unsloth])
    monkeypatch.setattr("spnb.train.checks.find_spec", lambda name: None)
    with pytest.raises(ParamError, match="package deepspeed, .* not installed; allowed: 1, or"):
        check_processes(2, ["4", "5"], [params])
    check_processes(2, [], [params])
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "processes is 2 under `accelerate launch`" in spnb_run(tmp_path, 2).stderr
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_each_run_has_gpus_of_its_own(tmp_path, monkeypatch, jobs):
    """As many at a time as `jobs` and the GPUs allow; the next one has those of one that ended."""
    groups, calls, polls, cards = [], [], [], ["2,3", "5,7"][:jobs]

    def started(folder, forked, card, count):
        calls.append((forked, card, count))
        groups.append([])
        return groups[-1]

    def poll(plan):
        polls.append(len(calls))
        if len(polls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(plans, "POLL", 0)
    monkeypatch.setattr(plans, "start_together", started)
    monkeypatch.setattr(plans, "have_ended", lambda group: group is groups[0] and bool(polls))
    monkeypatch.setattr(plans, "visible_cards", lambda: ["2", "3", "5", "7", "9"])
    for check in ("check_needs", "check_gpu", "check_processes"):
        monkeypatch.setattr(plans, check, lambda *_: None)
    how = dict(variants=["think"], seeds=[0, 1, 2, 3], runs=str(tmp_path))
    with pytest.raises(Stopped):
        run_all(make_plan("rlvr", "paper", **how, jobs=jobs, processes=2), poll)
    assert calls == [(False, card, 2) for card in [*cards, "2,3"]]
    assert polls == [len(cards), len(cards), len(cards) + 1]


def test_the_environment_of_processes_that_train_together():
    assert together(1, gpus=True) == [{}]
    first, second = together(2, gpus=True)
    assert (first["RANK"], second["RANK"], second["LOCAL_RANK"]) == ("0", "1", "1")
    assert first["WORLD_SIZE"] == first["LOCAL_WORLD_SIZE"] == "2"
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert first["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == str(ROOT / "params" / "zero2.json")
    assert json.loads(ZERO2.read_text())["zero_optimization"]["stage"] == 2
    assert not [key for key in together(2, gpus=False)[0] if "DEEPSPEED" in key]


@pytest.mark.parametrize("rank", [0, 3])
def test_each_process_loads_onto_its_own_gpu(tmp_path, monkeypatch, rank):
    """Before anything else is done there: of several that all see, torch takes the first one."""

    def taken(device):
        raise KeyError(device)

    run = plan_of(tmp_path).open("ladder-even", 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_device", taken)
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    with pytest.raises(KeyError, match=f"^{rank}$"):
        train_run(run)


@pytest.mark.parametrize("name", ["deepspeed", "fsdp", "parallelism_config"])
def test_no_parameter_shards_weights(tmp_path, name):
    with pytest.raises(ParamError, match=f"'grpo.{name}', which is unknown"):
        plan_of(tmp_path, grpo={name: "x"})


@pytest.mark.slow
def test_fsdp_by_the_side_door_is_refused(tmp_path):
    script = (HERE / "zero.py", "fsdp", HERE / "two_processes.py")
    out = tmp_path / "out.json"
    done = finish_together(tmp_path / "log.txt", *script, tmp_path / "run", out)
    assert done.returncode and "weights are sharded by FSDP; allowed: DDP" in done.stderr
    assert not out.exists()
