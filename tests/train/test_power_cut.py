"""A run whose machine lost its power goes on from its last checkpoint, to the same end."""

import json
from pathlib import Path

import pytest
from processes import RUN, finish, left_by

from spnb.train.plan import make_plan
from spnb.train.progress import kept_steps
from spnb.train.runs import read_run

SCRIPT = str(Path(__file__).with_name("power.py"))
SMALL = dict(eval_items=1, family="journey", mix=[1, 1], fixed=8, prompts_per_step=2, group_size=2)
PLAIN = ("rlvr", "ladder-even", SMALL | dict(policy="embedded/learner", steps=3, eval_every=3))
PLAIN[2]["keep_checkpoints"] = [0.5]
STAGES = [{"policy": "challenger", "steps": 1}, {"policy": "policy", "steps": 2}]
STAGED = ("spice", "r-zero", dict(stages=STAGES, steps=3, eval_every=3, eval_tasks=2))
CUTS = 3


def train(root, paper, variant, values, *forgets, cuts=CUTS):
    """Trains a run; it, and for each cut its folder as the power cut left it, and the steps that
    it should be able to go on from."""
    plan = make_plan(paper, "smoke", values, variants=[variant], seeds=[0], runs=str(root / "runs"))
    run = plan.open(variant, 0)
    done = finish(root / "log", SCRIPT, root / "runs", run.folder, root / "images", cuts, *forgets)
    assert done.returncode == 0, done.stderr[-2000:]
    promised = json.loads((root / "images" / "promised.json").read_text())
    place = run.folder.relative_to(root / "runs")
    folders = [root / "images" / str(number) / place for number in range(len(promised))]
    return run, list(zip(folders, promised, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("what", [PLAIN, STAGED], ids=["plain", "staged"])
def test_a_power_cut_costs_the_steps_since_the_last_checkpoint_and_changes_nothing(what, tmp_path):
    run, cuts = train(tmp_path, *what)
    whole = left_by(run)
    for folder, promised in cuts[:-1]:
        assert kept_steps(read_run(folder)) >= promised
        done = finish(folder / "log", RUN, folder)
        assert done.returncode == 0, done.stderr[-2000:]
    for folder, _ in cuts:
        assert left_by(read_run(folder)) == whole


@pytest.mark.slow
@pytest.mark.parametrize("forgets", ["*", "*.jsonl"])
def test_the_cut_takes_what_was_not_put_on_the_disk(forgets, tmp_path):
    """Without what this test takes away, the one above finds a loss."""
    _, cuts = train(tmp_path, *PLAIN, forgets, cuts=0)
    folder, promised = cuts[-1]
    run = read_run(folder)
    if forgets == "*":
        assert kept_steps(run) < promised == 3
    else:
        assert promised == 3
        (folder / "finished.json").unlink()
        done = finish(folder / "log", RUN, folder)
        assert done.returncode == 1 and "metrics.jsonl has 0 rows and had 3" in done.stderr
