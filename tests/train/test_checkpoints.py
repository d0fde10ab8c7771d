"""Manifests: what is written, what is refused, and that nothing is executed when it is read."""

import json
import shutil

import pytest

from spnb.core.disk import digest
from spnb.train.runs import RunError, last_checkpoint, read_state, seal

STATE = {"step": 2, "methods": [], "run": {"rows": {"metrics": 2}}}


@pytest.fixture
def checkpoint(tmp_path):
    """A sealed checkpoint of two files, one of them in a folder."""
    folder = tmp_path / "stage-0" / "checkpoint-2"
    (folder / "adapter").mkdir(parents=True)
    (folder / "optimizer.safetensors").write_bytes(b"momentum")
    (folder / "adapter" / "weights").write_bytes(b"weights")
    seal(folder, STATE)
    return folder


def test_a_sealed_checkpoint_is_read_back(checkpoint):
    assert read_state(checkpoint) == STATE
    files = json.loads((checkpoint / "manifest.json").read_text())["files"]
    assert files["adapter/weights"] == digest(checkpoint / "adapter" / "weights")
    assert set(files) == {"optimizer.safetensors", "adapter/weights"}


@pytest.mark.parametrize("name", ["optimizer.safetensors", "adapter/weights"])
def test_a_missing_or_changed_file_is_refused(checkpoint, name):
    content = (checkpoint / name).read_bytes()
    (checkpoint / name).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(RunError, match=f"{name} is not as it was saved; delete .*-2 to go on"):
        read_state(checkpoint)
    (checkpoint / name).unlink()
    with pytest.raises(RunError, match=f"{name} is missing; delete .*checkpoint-2 to go on"):
        read_state(checkpoint)


def test_a_checkpoint_copied_under_another_number_is_refused(checkpoint):
    copied = shutil.copytree(checkpoint, checkpoint.with_name("checkpoint-99"))
    assert last_checkpoint(checkpoint.parent) == copied
    with pytest.raises(RunError, match="checkpoint-99 was saved as checkpoint-2; delete .*-99 to"):
        read_state(copied)
    manifest = json.loads((copied / "manifest.json").read_text())
    del manifest["name"]  # as an earlier version wrote it
    (copied / "manifest.json").write_text(json.dumps(manifest))
    assert read_state(copied)["step"] == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": {}}'])
def test_a_damaged_manifest_is_refused(checkpoint, text):
    (checkpoint / "manifest.json").write_text(text)
    with pytest.raises(RunError, match="manifest.json cannot be read"):
        read_state(checkpoint)


def test_a_checkpoint_of_an_older_version_is_refused(checkpoint):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for older in ({"format": manifest["format"] - 1}, {"format": None}):
        (checkpoint / "manifest.json").write_text(json.dumps(manifest | older))
        with pytest.raises(RunError, match="-2 is of an older version, .*; delete .*stage-0 to"):
            read_state(checkpoint)


def test_the_newest_complete_checkpoint_counts(tmp_path):
    folder = tmp_path / "stage-0"
    assert last_checkpoint(folder) is None
    for step in (2, 10, 12):
        (folder / f"checkpoint-{step}").mkdir(parents=True)
    (folder / "checkpoint-abc").mkdir()
    for step in (2, 10, "abc"):
        seal(folder / f"checkpoint-{step}", {})
    assert last_checkpoint(folder).name == "checkpoint-10"
    for step in (2, 12):
        (tmp_path / f"beside-b/checkpoint-{step}").mkdir(parents=True)
        seal(tmp_path / f"beside-b/checkpoint-{step}", {})
    both = last_checkpoint(folder, [tmp_path / "beside-b"])
    assert both == folder / "checkpoint-2", "the newest that the partner has as well"
    assert last_checkpoint(folder, [tmp_path / "beside-c"]) is None
