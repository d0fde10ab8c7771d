"""Several processes, each with a vLLM of its own for its share of a step: TRL's colocate mode."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import vllm_cpu

if find_spec("vllm"):
    os.environ |= vllm_cpu.ENVIRONMENT
pytest.importorskip("vllm", reason="no working vllm", exc_type=ImportError)

from processes import finish, finish_together  # noqa: E402
from rzero import make_run  # noqa: E402
from tiny_qwen import make_policy  # noqa: E402
from vllm_processes import COUNT, STEPS  # noqa: E402

pytestmark = pytest.mark.vllm
ON_VLLM = Path(vllm_cpu.__file__)
SCRIPT = Path(__file__).parents[1] / "vllm_processes.py"
RZERO = SCRIPT.with_name("rzero.py")


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_two_processes_answer_and_learn_what_one_does(tmp_path, lora_rank):
    """In each step, so that both have the new weights; one alone asks a snapshot, which waits for
    nobody."""
    policy = make_policy(tmp_path / "policy")
    found = []
    for run in (finish, finish_together):
        name = run.__name__
        file = tmp_path / f"{name}.json"
        given = (policy, lora_rank, tmp_path / f"{name}-run", file)
        done = run(tmp_path / name, ON_VLLM, SCRIPT, *given)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads(file.read_text()))
    one, two = found
    assert (one["processes"], two["processes"]) == (1, 2)
    assert len(one["answers"]) == one["own"] == STEPS * COUNT > two["own"] == STEPS * 5
    assert two["answers"] == one["answers"]
    assert two["moved"] == pytest.approx(one["moved"], rel=1e-3) and one["moved"] > 1
    for both, alone in zip(two["rows"], one["rows"], strict=True):
        assert both["samples"] == alone["samples"] == COUNT
        assert both["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-4)
        assert alone["grad_norm"] > 0.1
        for key in ("reward/r", "length/r", "advantage_std/r"):
            assert both[key] == pytest.approx(alone[key], rel=1e-6, abs=1e-9), key


def test_a_whole_run_whose_second_process_died_and_that_was_started_again(tmp_path):
    """Both play the same here, and share out the evaluation: numbers are those of one process."""
    policy = make_policy(tmp_path / "policy")
    values = dict(policy=policy, policies={}, stages=[], steps=2, eval_every=2, seed=1)
    values |= dict(roles=dict.fromkeys(("challenger", "solver"), {"policy": "policy"}))
    values |= dict(engine="vllm", dtype="bfloat16", max_new_tokens=16)
    one, two = (make_run(tmp_path / name, **values) for name in ("one", "two"))
    done = finish(one.folder / "log.txt", ON_VLLM, RZERO, one.folder)
    assert done.returncode == 0, done.stderr[-3000:]
    given = (two.folder / "log.txt", ON_VLLM, RZERO, two.folder)
    assert finish_together(*given, "1:1").returncode != 0 and not two.finished
    done = finish_together(*given)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [run.facts()["processes"] for run in (one, two)] == [1, 2] and two.facts()["resumed"]
    assert two.rows("items") == one.rows("items") and two.rows("evals") == one.rows("evals")
    both, alone = ([row["text"] for row in run.rows("rollouts")] for run in (two, one))
    assert both == alone and len({*alone}) > 10
    for both, alone in zip(two.rows("metrics"), one.rows("metrics"), strict=True):
        assert both["samples"] == 2 * alone["samples"] == 60
        assert both["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-3)
        assert alone["grad_norm"] > 0.01 and both["engine_gap"] < 1e-5 > alone["engine_gap"]
