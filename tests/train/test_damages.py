"""What is wrong with a run's folder is one sentence that names the file and what to do."""

import json
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import finish
from rzero import make_run

from spnb.core.disk import digests, write_json
from spnb.train.plan import make_plan
from spnb.train.run import StageRun, _collect_models, train_run
from spnb.train.runs import RunError, open_run, read_run, read_state, seal
from spnb.train.trainer import Stage

ROWS = {"metrics": 1, "evals": 0, "items": 0, "rollouts": 0}
STATE = {"step": 2, "methods": [{}], "run": {"rows": ROWS}}
SCRIPT = str(Path(__file__).with_name("rzero.py"))
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(("line", "why"), [
    (b'{"step": 1, "x": ' + DEEP + b"}", "recursion"),
    (b'{"step": "abc"}', "step is 'abc'; allowed: int"),
    (b'{"step": 1.5}', r"step is 1.5; allowed: int"),
    (b'{"loss": 1.5}', "step is None; allowed: int"),
    (b'""', "it is ''; allowed: dict"),
    (b"[1]", r"it is \[1\]; allowed: dict"),
    (b"\xff", "decode byte"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["metrics", "items"])
def test_a_damaged_row(name, line, why, tmp_path):
    run = open_run(tmp_path, {"paper": "p", "scale": "smoke", "variant": "v", "seed": 0})
    (run.folder / f"{name}.jsonl").write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    sentence = rf"/{name}.jsonl, line 2 is damaged \(.*{why}.*\); move the run folder away$"
    with pytest.raises(RunError, match=sentence):
        run.rows(name)


@pytest.mark.parametrize(("change", "why"), [
    ({"state": None}, "state is None; allowed: dict"),
    ({"state": {}}, "state.step is None; allowed: int"),
    ({"state": STATE | {"step": "2"}}, "state.step is '2'; allowed: int"),
    ({"state": STATE | {"methods": None}}, "state.methods is None; allowed: list"),
    ({"state": STATE | {"run": {}}}, "state.run.rows is None; allowed: dict"),
    ({"state": STATE | {"run": {"rows": ROWS | {"items": "x"}}}}, "rows.items is 'x'; .*"),
    ({"files": []}, r"files is \[\]; allowed: dict"),
])  # fmt: skip
def test_a_damaged_manifest(change, why, tmp_path):
    run = open_run(tmp_path, {"paper": "p", "scale": "smoke", "variant": "v", "seed": 0})
    folder = run.checkpoints / "stage-0" / "checkpoint-2"
    folder.mkdir(parents=True)
    seal(folder, STATE)
    stage = StageRun(run, SimpleNamespace(co_trained={}), Stage(), 0, ({}, {}))
    stage.check_first = lambda: None
    manifest = json.loads((folder / "manifest.json").read_text())
    write_json(folder / "manifest.json", manifest | change)
    sentence = rf"manifest.json cannot be read \(.*{why}\); delete .*checkpoint-2 to go on"
    with pytest.raises(RunError, match=sentence):
        stage.go(None)


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"{}", b'{"rows": []}', DEEP])
@pytest.mark.parametrize("name", ["finished.json", "trained.json", "config.json"])
def test_a_damaged_file_of_a_run(name, content, tmp_path):
    values = dict(variants=["ladder-even"], seeds=[0], runs=str(tmp_path))
    run = make_plan("rlvr", "smoke", **values).open("ladder-even", 0)
    (run.folder / name).write_bytes(content)
    with pytest.raises(RunError, match=rf"/seed-0/{name} cannot be read \(.+\); \w+"):
        train_run(read_run(run.folder))


@pytest.mark.slow
def test_files_of_a_checkpoint_that_are_pickles(tmp_path):
    """Their digests in the manifest are right."""
    run = make_run(tmp_path)
    assert finish(tmp_path / "log", SCRIPT, run.folder, 1).returncode == 9
    folder = run.checkpoints / "stage-0" / "checkpoint-1"
    state = read_state(folder)
    for name in ("optimizer.safetensors", "random-0.safetensors", "model.safetensors"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(pickle.dumps(Path("x")))
        seal(folder, state)
        done = finish(tmp_path / "log", SCRIPT, run.folder)
        (error,) = re.findall(r"^\S*RunError: (.*)$", done.stderr, re.MULTILINE)
        assert re.match(rf".*/{name} cannot be read \(.+\); delete .*-1 to go on from the", error)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("content", ["{", "{}", "null"])
def test_a_damaged_mark_of_a_stage(content, tmp_path):
    run = make_run(tmp_path)
    stage = StageRun(run, None, Stage(), 0, ({}, {}))
    stage.folder.mkdir(parents=True)
    (stage.folder / "method.json").write_text(content)
    with pytest.raises(
        RunError, match=r"0/method.json cannot be read \(.+\); put it back, or delete .*/seed-0 to"
    ):
        stage.go(None)


def test_weights_of_a_stage_that_were_changed_or_are_none_of_the_runs(tmp_path):
    """A stage's weights wait for the end of the run, and the next stages start from them."""
    run = make_run(tmp_path)
    stage = StageRun(run, None, Stage(), 0, ({}, {}))
    stage.folder.mkdir(parents=True)
    weights = stage.folder / "model.safetensors"
    weights.write_bytes(b"weights")
    noted = {"methods": [{}], "weights": digests(stage.folder), "rows": dict.fromkeys(ROWS, 0)}
    write_json(stage.folder / "method.json", noted)
    params = SimpleNamespace(all_stages=[Stage()])
    before = [lambda: stage.go(None), lambda: _collect_models(run, params)]
    for content, says in (
        (b"weightS", "is not as it was saved; put it"),
        (None, "is missing; put"),
    ):
        weights.unlink() if content is None else weights.write_bytes(content)
        for start in before:
            with pytest.raises(RunError, match=f"stages/0/model.safetensors {says}"):
                start()
    weights.write_bytes(b"weights")
    copy = stage.folder / "copy-of-model.safetensors"
    copy.write_bytes(b"others")
    for start in before:
        with pytest.raises(RunError, match="copy-of-.* is none of the files that the run saved"):
            start()
    copy.unlink()
    assert stage.go(None) == noted
    _collect_models(run, params)
    assert [path.name for path in run.model.iterdir()] == ["model.safetensors"]
