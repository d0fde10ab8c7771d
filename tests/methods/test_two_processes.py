"""SSP and SCOPE in two real processes: they share a step's work and the evaluation, one records."""

import pytest
from processes import KEPT, finish_together

from spnb.train.plan import make_plan, run_one
from spnb.train.runs import read_state


def planned(root, paper, **exact):
    return make_plan(paper, "smoke", exact=exact, variants=["full"], seeds=[0], runs=str(root))


def together(plan):
    """The run of a plan, trained by two processes."""
    run = plan.open("full", 0)
    done = finish_together(run.folder / "log.txt", KEPT, run.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert run.facts()["processes"] == 2
    return run


@pytest.mark.slow
def test_two_processes_share_ssps_answers_and_each_has_its_questions(tmp_path):
    run = together(planned(tmp_path, "ssp", eval_every=2))
    rows = run.rows("metrics")
    assert [row["step"] for row in rows] == [1, 2]
    proposed = [row["method/proposals"] for row in rows]
    assert proposed == [4, 4], "of eight answers, the mean of both"
    checkpoint = max((run.checkpoints / "stage-0").glob("checkpoint-*"))
    first, second = (method["pool"] for method in read_state(checkpoint)["methods"])
    assert first != second and len(first) + len(second) <= 16
    alone = run_one(planned(tmp_path / "alone", "ssp", eval_every=2, steps=1), "full", 0)
    start = [[row for row in one.rows("evals") if row["step"] == 0] for one in (run, alone)]
    assert start[0] == start[1] != []


@pytest.mark.slow
def test_two_processes_share_scopes_documents_and_tasks(tmp_path):
    stages = [{"policy": "challenger", "steps": 1}, {"policy": "policy", "steps": 2}]
    small = {"stages": stages, "steps": 3, "eval_every": 3, "eval_tasks": 2, "short_items": 1}
    run = together(planned(tmp_path, "scope", **small))
    rows = run.rows("metrics")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[0]["samples"] == 4, "two documents, two tasks each"
    assert [row["samples"] for row in rows[1:]] == [4, 4], "two tasks, two answers each"
    checkpoint = max((run.checkpoints / "stage-1").glob("checkpoint-*"))
    first, second = (method["kept"] for method in read_state(checkpoint)["methods"])
    assert len(first) == len(second) == 2 and first != second
