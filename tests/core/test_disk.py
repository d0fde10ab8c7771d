"""Files that survive a power cut, and that a reader never sees half written."""

import json
import multiprocessing
import os

import pytest

from spnb.core import disk
from spnb.core.disk import move, sync, write_json


def test_write_json_is_atomic_for_readers(tmp_path):
    path = tmp_path / "x.json"
    writer = multiprocessing.get_context("fork").Process(
        target=lambda: [write_json(path, {"a": list(range(5000)), "i": i}) for i in range(30)]
    )
    write_json(path, {"a": list(range(5000)), "i": -1})
    writer.start()
    while writer.is_alive():
        assert len(json.loads(path.read_text())["a"]) == 5000
    writer.join()


@pytest.fixture
def events(monkeypatch):
    """What is put on the disk or renamed, in order; a temporary file as "tmp"."""
    noted, replace = [], os.replace

    def replaced(source, target):
        noted.append("rename")
        replace(source, target)

    monkeypatch.setattr(disk, "_sync", lambda path: noted.append(path.name.split("-")[0]))
    monkeypatch.setattr(os, "replace", replaced)
    return noted


def test_a_file_is_on_the_disk_before_its_name_is(events, tmp_path):
    (tmp_path / "folder").mkdir()
    write_json(tmp_path / "folder" / "x.json", {})
    assert events == [".tmp", "rename", "folder"]


def test_a_folder_is_on_the_disk_with_all_in_it_and_its_name_in_those_above(events, tmp_path):
    inner = tmp_path / "top" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    sync(inner, tmp_path / "top")
    assert events == ["file", "b", "a", "top"]
    events.clear()
    move(inner, tmp_path / "top" / "c", tmp_path / "top")
    assert events == ["file", "b", "rename", "top"]
    assert (tmp_path / "top" / "c" / "file").exists()
