"""The exhibit of the bench, from numbers by hand."""

import engine_speed as bench
import pandas as pd

from spnb.report.exhibits import read_index


def test_the_bench_becomes_an_exhibit(tmp_path, monkeypatch):
    row = {"weights": 150_000, "rows": 256, "passes": 1, "tokens_per_second": 9.0}
    numbers = {"ours_seconds": 0.5, "theirs_seconds": 2.25, "ratio": 4.5, "gemm_share": 0.1234}
    lines = [{**row, **numbers, "work": "generate", "bar": 4.0}]
    lines.append({**row, **numbers, "work": "train", "bar": 1.05})
    monkeypatch.setattr(bench, "bench", lambda: pd.DataFrame(lines))
    printed = bench.save_speed(str(tmp_path))
    assert "at least 4" in printed and "speed/engine.csv" in printed
    table = pd.read_csv(tmp_path / "speed/engine.csv")
    assert list(table.columns) == [
        *("model (weights)", "what", "ours", "theirs", "ratio", "bar", "share of GEMM rate")
    ]
    assert table.iloc[1].tolist() == [
        *(150_000, "training step", "0.5 s", "2.25 s", 4.5, "at most 1.05", 0.123)
    ]
    (record,) = read_index(tmp_path)
    assert record["command"] == "make bench" and record["runs"] == {}
