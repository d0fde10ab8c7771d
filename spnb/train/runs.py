"""A run's folder: what was asked, what came out, and that only one process writes it.

`runs/<paper>/<scale>/<variant>/seed-<n>/` holds `config.json` (resolved parameters and their hash),
`metrics.jsonl` (a row a training step, schema `METRICS`), `evals.jsonl` (schema `EVAL_KEYS`),
`rollouts.jsonl` (samples at some steps), `checkpoints/`, `model/` (final weights) and, once all is
done, `finished.json`. A finished run with the same hash is never computed again; one with other
parameters gets a folder of its own beside it.
"""

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from spnb.train import provenance

METRICS = {
    "step": "training steps done (one rollout and its updates), from 1",
    "loss": "TRL's loss, mean over the step's updates",
    "grad_norm": "norm of the joint gradient before clipping, mean over the step's updates",
    "learning_rate": "learning rate",
    "entropy": "mean entropy of the policy over trained tokens, nats",
    "kl": "mean KL to the reference policy over trained tokens, nats; only with kl_beta > 0",
    "clip_ratio": "share of tokens whose ratio was clipped",
    "samples": "loss rows",
    "seconds/generate": "wall time of the rollout, s",
    "seconds/update": "wall time of scoring and updates, s",
    "seconds/step": "wall time of the step, s",
    "tokens_per_second": "sampled and trained tokens per second of wall time",
    "reward/<role>": "mean reward of the role's rows",
    "length/<role>": "mean number of sampled tokens a row",
    "entropy/<role>": "mean negative log-probability of the role's sampled tokens, nats",
    "kl/<role>": "mean KL to the reference policy a token (k3), nats; only with kl_beta > 0",
    "advantage_mean/<role>": "mean advantage",
    "advantage_std/<role>": "standard deviation of the advantages",
    "truncated/<role>": "share of rows cut at max_new_tokens",
    "invalid/<role>": "share of rows whose output could not be used (no legal action, no answer)",
    "method/<name>": "the method's own numbers, described in its file",
}
TIMINGS = ("seconds/generate", "seconds/update", "seconds/step", "tokens_per_second")
EVAL_KEYS = ("step", "evaluation", "metric", "value", "low", "high", "n")
_PATTERNS = [re.compile(re.sub(r"<\w+>", ".+", key) + "$") for key in METRICS]


class RunError(RuntimeError):
    """A run's folder cannot be used; the message says what to do, and nothing in it was changed."""


@dataclass(frozen=True)
class Run:
    """One run: its folder and the parameters that decide its numbers."""

    folder: Path
    params: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """paper/scale/variant/seed-n"""
        return "{paper}/{scale}/{variant}/seed-{seed}".format(**self.params)

    @property
    def config_hash(self) -> str:
        """12 hex digits over the resolved parameters; equal hashes give equal numbers."""
        return config_hash(self.params)

    @property
    def commit(self) -> str | None:
        """The commit of the code that finished it; None while unfinished or without git."""
        return self.facts().get("commit") if self.finished else None

    seed = property(lambda self: self.params["seed"])
    scale = property(lambda self: self.params["scale"])
    variant = property(lambda self: self.params["variant"])
    checkpoints = property(lambda self: self.folder / "checkpoints")
    model = property(lambda self: self.folder / "model")

    @property
    def finished(self) -> bool:
        """Whether the run is done."""
        return (self.folder / "finished.json").is_file()

    def finish(self, **facts: Any) -> None:
        """Marks the run as done, with commit, versions, and facts such as its wall time."""
        where = {"commit": provenance.commit(), "versions": provenance.versions()}
        write_json(self.folder / "finished.json", {"date": _now(), **where, **facts})

    def facts(self) -> dict[str, Any]:
        """What `finish` noted."""
        return _read_json(self.folder / "finished.json")

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Adds a row to `<name>.jsonl` and flushes it to disk.

        Raises:
            RunError: a metrics or evaluation row that is not in the schema.
        """
        _check_schema(name, row)
        with open(self.folder / f"{name}.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of `<name>.jsonl`; a last line that was cut off by a kill is left out.

        Raises:
            RunError: a line in the middle is not JSON.
        """
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                if number < len(lines):
                    raise RunError(
                        f"{path}, line {number} is not JSON ({error}); move the run folder away"
                    ) from None
        return rows

    def table(self, name: str) -> pd.DataFrame:
        """`rows(name)` as a data frame, with the run's variant and seed."""
        return pd.DataFrame(self.rows(name)).assign(variant=self.variant, seed=self.seed)

    def rewind(self, step: int) -> None:
        """Drops what was recorded after `step`, so that a resumed run writes it again."""
        for name in ("metrics", "evals", "rollouts"):
            kept = [row for row in self.rows(name) if row["step"] <= step]
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                path.with_suffix(".tmp").write_text("".join(json.dumps(row) + "\n" for row in kept))
                os.replace(path.with_suffix(".tmp"), path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Makes this process the run's only writer.

        Raises:
            RunError: another process writes it; says which.
        """
        holder = self.folder / "lock.json"
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = _read_json(holder) if holder.exists() else {}
            raise RunError(
                f"run {self.run_id} is being written by process {who.get('pid', '?')} on {who.get('host', '?')} since "
                f"{who.get('since', '?')}; wait for it or stop it"
            ) from None
        try:
            write_json(holder, {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()})
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()


def open_run(root: Path, params: Mapping[str, Any]) -> Run:
    """The run with these parameters below `root`, its folder made if need be.

    Nothing is ever moved or overwritten: where `seed-<n>` holds a run with other parameters, the
    folder is `seed-<n>.<hash>`, so both stay and both are found again.

    Raises:
        RunError: the folder is there but its `config.json` is missing or damaged.
    """
    first = root / "{paper}/{scale}/{variant}/seed-{seed}".format(**params)
    for folder in (first, first.with_name(f"{first.name}.{config_hash(params)}")):
        config = folder / "config.json"
        if not config.exists() and not any(folder.glob("*.json*")):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(
                config, {"hash": config_hash(params), "date": _now(), "params": dict(params)}
            )
        if _read_json(config).get("hash") == config_hash(params):
            return Run(folder, dict(params))
    raise RunError(
        f"run folder {folder} holds another run than its name says; move it away or delete it"
    )


def config_hash(params: Mapping[str, Any]) -> str:
    """12 hex digits over parameters, independent of their order."""
    return hashlib.sha256(json.dumps(params, sort_keys=True, default=str).encode()).hexdigest()[:12]


def write_json(path: Path, value: Any) -> None:
    """Writes JSON so that a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.stem}")
    temporary.write_text(json.dumps(value, indent=1, default=str) + "\n")
    os.replace(temporary, path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(
            f"run folder {path.parent} is damaged: {path.name} cannot be read ({error}); "
            "move the folder away or delete it"
        ) from None
    if not isinstance(value, dict):
        raise RunError(
            f"run folder {path.parent} is damaged: {path.name} holds {type(value).__name__}, not an object"
        )
    return value


def _check_schema(name: str, row: Mapping[str, Any]) -> None:
    if name == "metrics":
        odd = [key for key in row if not any(pattern.match(key) for pattern in _PATTERNS)]
    elif name == "evals":
        odd = sorted(set(row) ^ set(EVAL_KEYS))
    else:
        odd = []
    if odd:
        raise RunError(f"{name} row has keys outside its schema: {', '.join(odd)}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
