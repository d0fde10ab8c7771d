"""A run that is killed in the middle of a step goes on to the same weights and records."""

import pytest
from processes import finish
from safetensors.torch import load_file

from spnb.train.metrics import TIMINGS
from spnb.train.plan import make_plan, run_one

DYING = """
import importlib, os, sys
from pathlib import Path
from spnb.train.run import read_run, train_run

Method = importlib.import_module("spnb.methods." + sys.argv[2]).Method
played = Method.rollout

def rollout(self, step):
    if step == 1:
        os._exit(9)
    return (yield from played(self, step))

Method.rollout = rollout
train_run(read_run(Path(sys.argv[1])))
"""


def killed_at(step, folder, paper):
    """Trains the run of a folder until it rolls out a step, where the process dies."""
    script = folder.parent / "dying.py"
    script.write_text(DYING.replace("step == 1", f"step == {step}"))
    done = finish(folder.parent / "log.txt", script, folder, paper)
    assert done.returncode == 9, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "variant", "kept"), [
    ("spell", "kl", "memory"), ("ssp", "released-rules", "replayed"),
])  # fmt: skip
def test_a_run_that_is_killed_goes_on_to_the_same_numbers(tmp_path, paper, variant, kept):
    """Killed in its second step: SPELL's memory, SSP's pool and a role's KL are the first's."""
    plans = [
        make_plan(paper, "smoke", variants=[variant], seeds=[0], runs=str(tmp_path / name))
        for name in ("whole", "killed")
    ]
    whole = run_one(plans[0], variant, 0)
    killed = plans[1].open(variant, 0)
    killed_at(1, killed.folder, paper)
    assert not killed.finished
    assert [row["step"] for row in killed.rows("metrics")] == [1]
    runs = [whole, run_one(plans[1], variant, 0)]
    metrics = [
        [
            {key: value for key, value in row.items() if not timing(key)}
            for row in one.rows("metrics")
        ]
        for one in runs
    ]
    assert metrics[0] == metrics[1] and [row["step"] for row in metrics[0]] == [1, 2]
    for name in ("evals", "items", "rollouts"):
        assert runs[0].rows(name) == runs[1].rows(name) != []
    first, second = (load_file(one.model / "model.safetensors") for one in runs)
    assert all((first[name] == second[name]).all() for name in first)
    assert metrics[0][1][f"method/{kept}"] > 0, "the second step needs what the first one kept"
    assert all(row["grad_norm"] > 0 for row in metrics[0])
    held = "questioner" if paper == "spell" else "proposer"
    assert metrics[0][1][f"kl/{held}"] > 0


def timing(key):
    return key in TIMINGS or "seconds/" in key


STAGES = [{"policy": "challenger", "steps": 2}, {"policy": "policy", "steps": 2}]


def planned(root, **values):
    exact = {"stages": STAGES, "steps": 4, "eval_every": 4, "eval_tasks": 2, "short_items": 1}
    exact |= {"keep_checkpoints": [1.0]}
    exact |= values
    return make_plan("scope", "smoke", exact=exact, variants=["full"], seeds=[0], runs=str(root))


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The run that nobody kills."""
    return run_one(planned(tmp_path_factory.mktemp("whole")), "full", 0)


def compared(run):
    rows = [{k: v for k, v in row.items() if not timing(k)} for row in run.rows("metrics")]
    return rows, [run.rows(name) for name in ("evals", "items", "rollouts")]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path, first, step):
    """Killed in a challenger's second step, where a solver's stage begins, and in its second step,
    whose tasks the first made."""
    killed = planned(tmp_path / "killed")
    folder = killed.open("full", 0).folder
    killed_at(step, folder, "scope")
    assert not killed.open("full", 0).finished
    assert len(killed.open("full", 0).rows("metrics")) == step
    second = run_one(killed, "full", 0)
    assert compared(first) == compared(second)
    rows, (_, items, _) = compared(first)
    assert [row["step"] for row in rows] == [1, 2, 3, 4] and items
    assert rows[0]["kl/challenger"] == pytest.approx(0, abs=1e-5) and rows[1]["kl/challenger"] > 0
    assert "method/filled" in rows[2]
    free = [key for row in rows[2:] for key in row if key.startswith("kl")]
    assert not free, "the solver is free of the KL: its stage has no reference"
    assert "method/filled" not in rows[3] and rows[3]["method/tokens"] > 0
    for policy in ("challenger", "policy"):
        one, other = (
            load_file(run.model / policy / "model.safetensors") for run in (first, second)
        )
        assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.slow
def test_a_run_with_too_few_tasks_goes_on_with_a_smaller_bound_to_the_same_numbers(tmp_path):
    """Eight candidates for sixteen tasks stop the run; all else is that of one with that bound."""
    few = {"tasks_per_step": 8, "most_batches": 1}
    bold, modest = few | {"filled_at_least": 1.0}, few | {"filled_at_least": 0.01}
    message = r"of 16 tasks .* allowed: 1 of them or more \(filled_at_least; with a smaller one"
    with pytest.raises(ValueError, match=message):
        run_one(planned(tmp_path / "stopped", **bold), "full", 0)
    stopped = planned(tmp_path / "stopped", **modest).open("full", 0)
    assert [row["step"] for row in stopped.rows("metrics")] == [1, 2] and not stopped.finished
    runs = [run_one(planned(tmp_path / name, **modest), "full", 0) for name in ("stopped", "whole")]
    assert compared(runs[0]) == compared(runs[1])
    assert runs[0].folder == stopped.folder and 0 < runs[0].rows("metrics")[2]["method/filled"] < 1
