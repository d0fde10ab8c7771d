"""Gives earlier runs today's names of parameters, so that none of them is computed again.

Parameters are a run's identity: where one was renamed (`renames.yaml`), an earlier run would
not be found any more.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spnb.core.disk import move, write_json
from spnb.train.runs import Run, RunError, config_hash, current, read_run


def migrate(root: Path) -> list[str]:
    """Gives every run below `root` today's names; the ids of those that had others.

    A run names the runs that it starts from by their hashes: these follow. What is interrupted goes
    on when it is called again.

    Raises:
        RunError: a run's `config.json` is damaged; the runs before it are done.
    """
    runs = [read_run(path.parent) for path in sorted(root.glob("*/*/*/seed-*/config.json"))]
    hashes = {old: run.config_hash for run in runs if (old := _config(run.folder).get("before"))}
    waiting = {run.config_hash: run for run in runs}
    done = []
    while waiting:
        run = next(run for run in waiting.values() if not _started_from(run) & set(waiting))
        del waiting[run.config_hash]
        params = current(run.params)
        params["starts"] = {
            policy: start | {"hash": hashes.get(start["hash"], start["hash"])}
            for policy, start in params.get("starts", {}).items()
        }
        if config_hash(params) != run.config_hash:
            hashes[run.config_hash] = config_hash(params)
            _rewrite(run, params)
            done.append(run.run_id)
    return done


def _started_from(run: Run) -> set[str]:
    """The hashes of the runs that a run starts from."""
    return {start["hash"] for start in run.params.get("starts", {}).values()}


def _rewrite(run: Run, params: Mapping[str, Any]) -> None:
    """Writes a run's parameters; a folder that is named by its hash gets the new one first."""
    if busy := run.busy():
        raise RunError(busy)
    new = config_hash(params)
    folder = run.folder
    if folder.name.endswith(f".{run.config_hash}"):
        folder = folder.with_name(f"seed-{run.seed}.{new}")
        move(run.folder, folder)
    facts = {"hash": new, "before": run.config_hash, "params": dict(params)}
    write_json(folder / "config.json", _config(folder) | facts)


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())
