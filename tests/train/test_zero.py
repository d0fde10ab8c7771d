"""DeepSpeed's ZeRO-2 in two processes on a CPU, where it is installed: part of `make vllm`."""

import json
from pathlib import Path

import pytest
from processes import finish, finish_together, left_by
from rzero import make_run

from spnb.core.params import shared_file

pytest.importorskip("deepspeed")
HERE = Path(__file__).parent
ZERO2 = shared_file("zero2.json")


def fixed_rows(tmp_path, config, *micro_tokens):
    """Nine fixed rows trained by two processes under DeepSpeed (`two_processes.py`)."""
    script = (HERE / "zero.py", config, HERE / "two_processes.py")
    out = tmp_path / "out.json"
    given = (tmp_path / "run", out, *micro_tokens)
    return finish_together(tmp_path / "log.txt", *script, *given), out


@pytest.mark.slow
def test_zero_3_by_the_side_door_is_refused(tmp_path):
    values = json.loads(ZERO2.read_text()) | {"zero_optimization": {"stage": 3}}
    (tmp_path / "zero3.json").write_text(json.dumps(values))
    done, out = fixed_rows(tmp_path, tmp_path / "zero3.json")
    assert done.returncode and "sharded by DeepSpeed ZeRO-3; allowed: DDP" in done.stderr
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "micro_tokens", "close"), [(ZERO2, (), 1e-4), (f"bf16:{ZERO2}", ("30",), 0.02)]
)
def test_zero_2_takes_the_step_of_one_process(tmp_path, config, micro_tokens, close):
    """In float32, and as on a GPU: in bfloat16, with updates cut by tokens."""
    done, out = fixed_rows(tmp_path, config, *micro_tokens)
    assert done.returncode == 0, done.stderr[-3000:]
    both = json.loads(out.read_text())
    script = (HERE / "two_processes.py", tmp_path / "alone", tmp_path / "alone.json")
    assert finish(tmp_path / "log.txt", *script).returncode == 0
    one = json.loads((tmp_path / "alone.json").read_text())
    for key in ("grad_norm", "reward/r", "samples"):
        assert both[key] == pytest.approx(one[key], rel=close), key
    assert both["moved"] == pytest.approx(one["moved"], rel=1e-4 if config == ZERO2 else 0.3)


@pytest.mark.slow
def test_what_is_below_bfloat16s_last_place_lasts_from_stage_to_stage(tmp_path):
    """Two steps of 1e-6 in two stages: one and two learning rates a weight, as in float32."""
    script = (HERE / "zero.py", f"bf16:{ZERO2}", HERE / "two_stages.py")
    out = tmp_path / "out.json"
    done = finish_together(tmp_path / "log.txt", *script, tmp_path / "run", out)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    script = (HERE / "two_stages.py", tmp_path / "alone", tmp_path / "alone.json")
    assert finish(tmp_path / "log.txt", *script).returncode == 0
    alone = json.loads((tmp_path / "alone.json").read_text())["moved"]
    assert found["moved"] == pytest.approx(alone, rel=0.1) and alone[1] > 1.5 * alone[0] > 0.5
    assert found["gradients added in"] == "torch.float32"


@pytest.mark.slow
def test_zero_2_killed_and_started_again(tmp_path):
    """A run of two stages whose second process dies in a step of the first."""
    stages = [{"policy": "challenger", "steps": 2}, {"policy": "solver", "steps": 1}]
    runs = [make_run(tmp_path / name, stages=stages, steps=3) for name in ("whole", "killed")]

    def start(run, *event):
        script = (HERE / "zero.py", ZERO2, HERE / "rzero.py")
        return finish_together(run.folder / "log.txt", *script, run.folder, *event)

    whole, killed = runs
    assert start(whole).returncode == 0, start(whole).stderr[-3000:]
    assert start(killed, "1:1").returncode != 0 and not killed.finished
    done = start(killed)
    assert done.returncode == 0, done.stderr[-3000:]
    assert left_by(killed) == left_by(whole)
