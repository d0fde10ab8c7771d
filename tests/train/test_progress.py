"""Progress over runs: phases from a run's files, and one bar wherever it is shown."""

import json
import os
import time

import pytest
from jupyter_client.manager import start_new_kernel

from spnb.train.progress import Progress, kept_steps, phase
from spnb.train.runs import open_run

ROWS = 2


def make(folder, seed=0, steps=ROWS):
    values = {"paper": "p", "scale": "smoke", "variant": "full", "seed": seed, "steps": steps}
    return open_run(folder, values)


def checkpoint(run, rows):
    folder = run.checkpoints / "stage-0" / f"checkpoint-{rows}"
    folder.mkdir(parents=True)
    state = {"run": {"rows": {"metrics": rows}}}
    (folder / "manifest.json").write_text(json.dumps({"state": state}))


def test_phases_come_from_the_runs_files(tmp_path):
    run, start = make(tmp_path), time.time() - 1
    assert phase(run, start) == "loading"
    (run.checkpoints / "stage-0").mkdir(parents=True)  # the trainer is built
    assert phase(run, start) == "measuring the start of"
    for step, name in ((1, "training"), (2, "measuring the end of")):
        run.append("metrics", {"step": step})
        assert phase(run, start) == name
    assert phase(run, time.time() + 9) == "loading"  # another process, which has not come so far


def test_a_bar_counts_the_steps_that_are_kept(tmp_path, capsys):
    """A run that goes on starts at its last checkpoint, whatever it had recorded after it."""
    first, second = make(tmp_path, 0, steps=4), make(tmp_path, 1, steps=4)
    first.append("metrics", *({"step": step} for step in (1, 2, 3)))
    os.utime(first.folder / "metrics.jsonl", (1, 1))
    checkpoint(first, 1)
    checkpoint(first, 2)
    os.utime(first.checkpoints / "stage-0", (1, 1))
    assert (kept_steps(first), kept_steps(second)) == (2, 0)
    done = make(tmp_path, seed=2)
    (done.folder / "stages" / "0").mkdir(parents=True)
    (done.folder / "stages" / "0" / "method.json").write_text('{"rows": {"metrics": 1}}')
    assert kept_steps(done) == 1, "of a stage, whose checkpoints are gone"
    progress = Progress([first, second])
    assert progress.bar.n == progress.bar.initial == 2, "no step that it did, for what remains"
    progress.show([first])
    assert progress.bar.n == 2
    first.rewind({"rows": {"metrics": 2}})
    progress.show([first, second])
    assert progress.bar.n == 2
    first.append("metrics", {"step": 3}, {"step": 4})
    first.finish()
    progress.show([second])
    assert (progress.bar.n, progress.bar.total) == (4, 8)
    progress.bar.close()
    shown = capsys.readouterr().out
    texts = [line.split("] ")[-1].strip() for line in shown.split("\r") if "runs" in line]
    assert list(dict.fromkeys(texts)) == [
        "0/2 runs; loading full/0",
        "0/2 runs; training full/0; loading full/1",
        "1/2 runs; loading full/1",
    ]
    assert " 50%|##########          | 4/8 steps" in shown.replace("█", "#")


CELL = """
import sys, time
from pathlib import Path
from IPython.display import display
from spnb.train.progress import Progress
sys.path.insert(0, {tests!r})
from test_progress import make
run = make(Path({folder!r}))
progress = Progress([run])
progress.show([run])
live = display("curve 0", display_id=True)
for step in (1, 2):
    run.append("metrics", {{"step": step}})
    progress.show([run])
    live.update(f"curve {{step}}")
progress.bar.close()
"""


@pytest.fixture(scope="module")
def client():
    """Of a notebook's kernel."""
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
@pytest.mark.parametrize("person", [True, False])
def test_in_a_notebook_the_bar_is_one_output_beside_a_live_figure(client, tmp_path, person):
    """A frontend with a person takes input; without one (papermill) lines are logged."""
    outputs, streams = {}, []

    def hook(message):
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            outputs[content["transient"]["display_id"]] = content["data"]["text/plain"]
        elif message["msg_type"] == "stream":
            streams.append(content["text"])

    code = CELL.format(tests=os.path.dirname(__file__), folder=str(tmp_path))
    reply = client.execute_interactive(
        code, allow_stdin=person, output_hook=hook, timeout=120, stdin_hook=lambda message: None
    )
    assert reply["content"]["status"] == "ok", reply["content"].get("traceback")
    if person:
        bar, curve = outputs.values()
        assert curve == "'curve 2'" and not "".join(streams).strip()
        assert "2/2 steps" in bar and bar.endswith("measuring the end of full/0")
    else:
        assert list(outputs.values()) == ["'curve 2'"]
        assert "2/2 steps" in "".join(streams)
