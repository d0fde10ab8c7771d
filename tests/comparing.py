"""What two runs must have in common to count as the same run."""

import hashlib

from spnb.train.metrics import TIMINGS

RECORDS = ("metrics", "evals", "items", "rollouts", "pairs")


def state(run):
    """All that a finished run leaves, without times: every row, the counts, weights by digest."""
    rows = {name: run.rows(name) for name in RECORDS}
    rows["metrics"] = [{k: v for k, v in row.items() if not timing(k)} for row in rows["metrics"]]
    weights = {
        path.relative_to(run.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("model", "kept")
        for path in sorted((run.folder / folder).rglob("*.safetensors"))
    }
    return rows | {"weights": weights, "counts": run.facts()["rows"]}


def timing(key):
    """Whether a metric is a time."""
    return key in TIMINGS or "seconds/" in key
