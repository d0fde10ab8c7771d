"""Runs of SCOPE: killed in a stage or between two, they go on to the same weights and records."""

import subprocess
import sys

import pytest
from safetensors.torch import load_file
from test_killed_runs import DYING, timing

from spnb.train.plan import make_plan, run_all, run_one

STAGES = [{"policy": "challenger", "steps": 1}, {"policy": "policy", "steps": 2}]


def planned(root):
    exact = {"stages": STAGES, "steps": 3, "eval_every": 3, "eval_tasks": 2, "short_items": 1}
    return make_plan("scope", "smoke", exact=exact, variants=["full"], seeds=[0], runs=str(root))


def compared(run):
    rows = [{k: v for k, v in row.items() if not timing(k)} for row in run.rows("metrics")]
    return rows, [run.rows(name) for name in ("evals", "items", "rollouts")]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2])
def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path, step):
    """Killed where a solver's stage begins, and in its second step, whose tasks the first made."""
    whole, killed = planned(tmp_path / "whole"), planned(tmp_path / "killed")
    run_all(whole)
    folder = killed.open("full", 0).folder
    script = DYING.replace("step == 1", f"step == {step}")
    done = subprocess.run([sys.executable, "-c", script, str(folder), "scope"])
    assert done.returncode == 9 and not killed.open("full", 0).finished
    assert len(killed.open("full", 0).rows("metrics")) == step
    first, second = whole.open("full", 0), run_one(killed, "full", 0)
    assert compared(first) == compared(second)
    rows, (_, items, _) = compared(first)
    assert [row["step"] for row in rows] == [1, 2, 3] and items
    assert rows[0]["kl/challenger"] == pytest.approx(0, abs=1e-5)
    assert "kl/solver" not in rows[1] and "method/filled" in rows[1]
    assert "method/filled" not in rows[2] and rows[2]["method/tokens"] > 0
    for policy in ("challenger", "policy"):
        one, other = (
            load_file(run.model / policy / "model.safetensors") for run in (first, second)
        )
        assert all((one[name] == other[name]).all() for name in one)
