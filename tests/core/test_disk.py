"""Files that survive a power cut, and that a reader never sees half written."""

import json
import multiprocessing

from spnb.core.disk import write_json


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
