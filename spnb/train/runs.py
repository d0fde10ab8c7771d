"""A run's folder: what was asked, what came out, and that only one process writes it.

`runs/<paper>/<scale>/<variant>/seed-<n>/` holds `config.json` (resolved parameters, their hash),
`metrics.jsonl` (a row a training step, schema `METRICS`), `evals.jsonl` and `items.jsonl` (schemas
`ROW` and `RECORD` of `spnb.evaluate.items`), `rollouts.jsonl` (some samples), `pairs.jsonl`
(all preference pairs, where a run learns from these), `checkpoints/`, `kept/` (weights at chosen
steps), `model/` (final weights) and, once all is done, `finished.json`.
A finished run with the same hash is never computed again; one with other parameters gets a folder
of its own beside it.

A checkpoint's `manifest.json` holds its folder's name, the sha-256 of each of its files and our own
state as JSON, in it how many rows each record had and the sha-256 of these. It is written last and
checked first: a checkpoint without one was cut off while it was written and is ignored.
`finished.json` has the like of all records and of `model/`. Nothing here can execute code when it
is read.
"""

import hashlib
import json
import math
import os
import re
import reprlib
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from spnb.core.disk import digest, digests, sync, write_json, write_lines
from spnb.core.errors import OneLine
from spnb.core.paths import packaged_yaml
from spnb.evaluate.items import RECORD, ROW
from spnb.train import provenance
from spnb.train.metrics import METRICS

RECORDS = ("metrics", "evals", "items", "rollouts")
PAIRS = "pairs"
"""A record that is written at once, and again where it is missing."""
NOTED = {"rows": dict.fromkeys(RECORDS, int)}
"""The shape of what notes how many rows each record has."""
CONFIG = {"hash": str, "params": dict}
BOUNDS = {"filled_at_least"}
"""Parameters that decide whether a run stops, and no number of one that does not: no part of its
identity, so that a run that has stopped goes on with another."""
SHOWN = {"report_to": "none"}
"""Parameters that decide where numbers are shown, with the value that stands for all in a run's
identity."""
ROOM = {"gpu_memory", "micro_tokens", "max_num_seqs", "vllm_sleep", "gradient_checkpointing"}
"""Parameters of a GPU's memory, as little part of a run's identity on one: a run that found no room
goes on with less."""
WEIGHTS = ("model", "kept")
"""The folders of a run's weights: the final ones, and those at chosen steps."""
_PATTERNS = [re.compile(re.sub(r"<\w+>", ".+", key) + "$") for key in METRICS]
MANIFEST = "manifest.json"
AWAY = "move the run folder away"
FORMAT = 3
"""Of checkpoints: those before had pickles."""


class RunError(OneLine, RuntimeError):
    """A run's folder, or a checkpoint in it, cannot be used; the message says what to do, and
    nothing in it was changed."""


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

    seed = property(lambda self: self.params["seed"])
    scale = property(lambda self: self.params["scale"])
    variant = property(lambda self: self.params["variant"])
    paper = property(lambda self: self.params["paper"])
    root = property(lambda self: self.folder.parents[3])
    checkpoints = property(lambda self: self.folder / "checkpoints")
    model = property(lambda self: self.folder / "model")
    holder = property(lambda self: self.folder / "lock.json")
    again = property(lambda self: f"put it back, or delete {self.folder} to compute the run again")

    @property
    def finished(self) -> bool:
        """Whether the run is done."""
        return (self.folder / "finished.json").is_file()

    @property
    def has_weights(self) -> bool:
        """Whether the final weights are there."""
        return any(self.model.rglob("*.safetensors"))

    def finish(self, **facts: Any) -> None:
        """Marks the run as done: commit, versions, digests, rows, facts such as its time."""
        where = {"commit": provenance.commit(), "versions": provenance.versions()}
        weights = {name: digests(self.folder / name) for name in WEIGHTS}
        noted = {"date": _now(), **self.noted(), **weights, **where, **facts}
        write_json(self.folder / "finished.json", noted)

    def facts(self) -> dict[str, Any]:
        """What `finish` noted."""
        return read_json(self.folder / "finished.json", NOTED, self.again)

    @property
    def commit(self) -> str | None:
        """The commit that it was finished at; None where none is noted."""
        return self.facts().get("commit") if self.finished else None

    def check_finished(self) -> None:
        """Compares a finished run with what `finish` noted.

        Raises:
            RunError: a record or the final weights were changed or are gone, unless it was unpacked
                without weights (`tools.records`).
        """
        facts = self.facts()
        self.check_rows(facts, exact=True)
        if facts.get("weights", True) and not self.has_weights:
            raise RunError(
                f"run {self.run_id} is finished, but {self.model} has no weights any more; delete "
                f"{self.folder} to compute it again"
            )
        self.weights()

    def weights(self) -> Path:
        """The folder of the final weights, of a finished run compared with what `finish` noted.

        Raises:
            RunError: a file is missing or changed.
        """
        return self._compared("model")

    def kept(self) -> dict[int, Path]:
        """The folders of the weights kept on the way, by training step in order; they are compared
        like the final ones."""
        folders = self._compared("kept").glob("step-*")
        steps = {int(folder.name.removeprefix("step-")): folder for folder in folders}
        return dict(sorted(steps.items()))

    def _compared(self, name: str) -> Path:
        folder = self.folder / name
        compare(folder, self.facts().get(name, {}) if self.finished else {}, self.again)
        return folder

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Adds rows to `<name>.jsonl`.

        Raises:
            RunError: a row that is not in the schema, or metrics of a step that has some already.
        """
        for row in rows:
            _check_schema(name, row)
        if name == "metrics":
            last = next((row["step"] for row in reversed(self.rows("metrics"))), 0)
            for before, step in pairwise([last, *(row["step"] for row in rows)]):
                if step <= before:
                    raise RunError(
                        f"metrics of step {step} come after those of step {before} in "
                        f"{self.folder}; delete that folder to compute the run again"
                    )
        with open(self.folder / f"{name}.jsonl", "a") as file:
            file.writelines(json.dumps(_plain(row)) + "\n" for row in rows)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of `<name>.jsonl`; a last line that was cut off by a kill is left out.

        Raises:
            RunError: a line in the middle is not a JSON object with a whole number as its step.
        """
        path = self.folder / f"{name}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        with suppress(ValueError, RecursionError, AttributeError):  # four times as fast as by line
            rows = json.loads(b"[" + b",".join(lines) + b"]")
            if [isinstance(row.get("step"), int) for row in rows] == [True] * len(lines):
                return rows
        rows = []
        for number, line in enumerate(lines, 1):
            row, why = _parsed(line, {"step": int})
            if row is None and number == len(lines):
                break
            if why:
                raise RunError(f"{path}, line {number} is damaged ({why}); {AWAY}")
            rows.append(row)
        return rows

    def noted(self) -> dict[str, Any]:
        """The number of `rows` of each record, and `digests` of these; they are on the disk."""
        for path in self.folder.glob("*.jsonl"):
            sync(path, self.folder)
        rows = {name: len(self.rows(name)) for name in RECORDS}
        digests = {name: self._digest(name, rows.get(name)) for name in (*RECORDS, PAIRS)}
        return {"rows": rows, "digests": digests}

    def _digest(self, name: str, count: int | None) -> str:
        """The sha-256 of a record's first rows, of all where `count` is None."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return hashlib.sha256(b"".join(lines[:count])).hexdigest()

    def check_rows(self, noted: Mapping[str, Any], exact: bool = False) -> None:
        """Compares the records with what was `noted` of them (before digests: rows alone).

        Raises:
            RunError: one has fewer rows (with `exact`: another number of rows) or other ones.
        """
        for name, count in {PAIRS: None, **noted.get("rows", {})}.items():
            path = self.folder / f"{name}.jsonl"
            expected = noted.get("digests", {}).get(name)
            if expected == self._digest(name, None if exact else count):
                continue
            there = None if count is None else len(self.rows(name))
            if there is not None and (there < count or (exact and there != count)):
                raise RunError(f"{path} has {there} rows and had {count}; {self.again}")
            if expected and path.exists():
                raise RunError(f"{path} is not as it was written; {self.again}")

    def rewind(self, noted: Mapping[str, Any]) -> None:
        """Cuts every record to its rows in `noted`, so that a resumed run writes the rest again.

        Raises:
            RunError: one has fewer rows or other ones; nothing was cut.
        """
        self.check_rows(noted)
        for name in RECORDS:
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                write_lines(path, self.rows(name)[: noted.get("rows", {}).get(name, 0)])

    def busy(self) -> str:
        """Which other process writes the run, in a sentence; "" if none does."""
        try:
            with FileLock(self.folder / ".lock", timeout=0):
                return ""
        except Timeout:
            who = "another process"
            with suppress(RunError):  # it is just starting or ending
                who = read_json(self.holder, {"who": str})["who"]
            return f"run {self.run_id} is being written by {who}"

    @contextmanager
    def lock(self, wait: bool = True) -> Iterator[None]:
        """Makes this process the run's only writer. Where another one is, it waits and says so, or,
        without `wait`, raises RunError."""
        if busy := self.busy():
            if not wait:
                raise RunError(f"{busy}; wait for it or stop it")
            print("waiting:", busy, flush=True)
        who = f"process {os.getpid()} on {socket.gethostname()} since {_now()}"
        with FileLock(self.folder / ".lock"):
            write_json(self.holder, {"who": who})
            try:
                yield
            finally:
                self.holder.unlink(missing_ok=True)


def open_run(root: Path, params: Mapping[str, Any], make: bool = True) -> Run:
    """The run with these parameters below `root`, its folder made if need be (and if `make`).

    Nothing is ever moved or overwritten: where `seed-<n>` holds a run with other parameters, the
    folder is `seed-<n>.<hash>`, so both stay and both are found again.

    Raises:
        RunError: the folder is there but its `config.json` is missing or damaged, or has earlier
            names of parameters: that run is not computed again in silence.
    """
    first = root / "{paper}/{scale}/{variant}/seed-{seed}".format(**params)
    for folder in (first, first.with_name(f"{first.name}.{config_hash(params)}")):
        if not any(folder.glob("[!.]*.json*")):  # what a kill left of a config begins with a dot
            if not make:
                return Run(folder, dict(params))
            folder.mkdir(parents=True, exist_ok=True)
            facts = {"hash": config_hash(params), "date": _now(), "params": dict(params)}
            write_json(folder / "config.json", facts)
            sync(folder, root.parent)
        facts = read_json(folder / "config.json", CONFIG)
        if facts["hash"] == config_hash(params):
            run = Run(folder, dict(params))
            if make and not run.finished and _set(facts["params"]) != _set(run.params):
                now = {"hash": run.config_hash, "params": run.params}
                write_json(folder / "config.json", facts | now)
            return run
        there = facts["params"]
        if odd := sorted(set(there) - set(current(there))):
            raise RunError(
                f"run folder {folder} has earlier names of parameters ({', '.join(odd)}); this "
                f"gives all runs today's: spnb migrate {root}"
            )
    raise RunError(f"run folder {folder} holds another run than its name says; move it away")


def read_run(folder: Path) -> Run:
    """The run in a folder; RunError where its `config.json` is missing or damaged."""
    facts = read_json(folder / "config.json", CONFIG)
    if facts["hash"] != config_hash(facts["params"]):
        raise RunError(f"run folder {folder} is damaged: config.json was changed; move it away")
    return Run(folder, facts["params"])


def config_hash(params: Mapping[str, Any]) -> str:
    """12 hex digits over the parameters that are set, independent of their order.

    What is empty (None, "", [], {}) does not count, at any depth: a parameter that is added later,
    and empty by default, leaves earlier runs what they are. Nor do `BOUNDS`, the value of `SHOWN`,
    and at the scales of GPUs `ROOM`.
    """
    room = ROOM if params.get("scale") in ("gpu", "paper") else set()
    given = {**params, **SHOWN} if SHOWN.keys() <= params.keys() else params
    counted = _set({name: given[name] for name in given.keys() - BOUNDS - room})
    text = json.dumps(counted, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _set(value: Any) -> Any:
    """A value without what is empty in it."""
    if not isinstance(value, Mapping):
        return value
    inner = {key: _set(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each not in (None, "", [], {}, ())}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: a number that is not finite becomes null."""
    bad = [
        key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)
    ]
    return {**row, **dict.fromkeys(bad)}


def read_json(path: Path, shape: Mapping[str, Any], advice: str = AWAY) -> dict[str, Any]:
    """A JSON object with at least the keys of `shape`, whose values are types, or such shapes;
    RunError, which ends with `advice`, where the file holds anything else."""
    try:
        value, why = _parsed(path.read_bytes(), shape)
    except OSError as error:
        why = str(error)
    if why:
        raise RunError(f"{path} cannot be read ({why}); {advice}")
    return value


def _parsed(text: bytes, shape: Mapping[str, Any]) -> tuple[Any, str]:
    """What JSON says, None where it is none, and why that is not of the shape, "" if it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, str(error)
    return value, _misfit(value, shape)


def _misfit(value: Any, shape: Any, name: str = "") -> str:
    kind = shape if isinstance(shape, type) else dict
    if not isinstance(value, kind):
        return f"{name.lstrip('.') or 'it'} is {reprlib.repr(value)}; allowed: {kind.__name__}"
    inner = {} if shape is kind else shape
    parts = (_misfit(value.get(key), one, f"{name}.{key}") for key, one in inner.items())
    return next(filter(None, parts), "")


def _check_schema(name: str, row: Mapping[str, Any]) -> None:
    odd: Sequence[str] = []
    if name == "metrics":
        odd = [key for key in row if not any(pattern.match(key) for pattern in _PATTERNS)]
    elif name == "evals":
        odd = sorted(set(row) ^ set(ROW))
    elif name == "items":
        odd = sorted(set(RECORD) - set(row))
    if odd:
        raise RunError(f"{name} row has keys outside its schema: {', '.join(odd)}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def current(params: Mapping[str, Any]) -> dict[str, Any]:
    """A run's parameters under today's names.

    A parameter that is gone is left out if it has the value that every such run has today, and kept
    otherwise: that run has no counterpart.
    """
    params = dict(params)
    renames = packaged_yaml("train/renames.yaml")
    for group in ("every", params.get("paper", "")):
        names = {kind: entries.get(group, {}) for kind, entries in renames.items()}
        for old, new in names["renamed"].items():
            if old in params:
                params[new] = params.pop(old)
        for name, values in names["values"].items():
            if name in params:
                params[name] = values.get(params[name], params[name])
        removed = names["removed"].items()
        params = {name: value for name, value in params.items() if (name, value) not in removed}
    return params


def compare(folder: Path, files: Mapping[str, str], advice: str) -> None:
    """Compares what is in a folder with its noted `digests`; {}: nothing was noted.

    Raises:
        RunError: a file is missing or has another digest (the sentence ends with `advice`), or
            there are weights that were not noted.
    """
    for name, expected in files.items():
        if not (folder / name).is_file():
            raise RunError(f"{folder / name} is missing; {advice}")
        if digest(folder / name) != expected:
            raise RunError(f"{folder / name} is not as it was saved; {advice}")
    for path in sorted(folder.rglob("*.safetensors")) if files else ():
        if path.relative_to(folder).as_posix() not in files:
            raise RunError(f"{path} is none of the files that the run saved; move it away")


def seal(folder: Path, state: Mapping[str, Any]) -> None:
    """Puts a complete checkpoint folder of a run on the disk, then its manifest, `state` in it."""
    sync(folder, folder.parents[2])
    files = digests(folder)
    files.pop(MANIFEST, None)
    facts = {"format": FORMAT, "name": folder.name, "files": files, "state": dict(state)}
    write_json(folder / MANIFEST, facts)


def last_checkpoint(folder: Path, beside: Iterable[Path] = ()) -> Path | None:
    """The newest checkpoint below `folder` that is complete there and in the folders beside it."""
    sealed = [
        {path.parent.name for path in place.glob(f"checkpoint-*/{MANIFEST}")}
        for place in (folder, *beside)
    ]
    names = [x for x in set.intersection(*sealed) if re.fullmatch("checkpoint-[0-9]+", x)]
    newest = max(names, key=lambda name: int(name.rpartition("-")[2]), default=None)
    return folder / newest if newest else None


def read_state(checkpoint: Path, run: Any = dict) -> dict[str, Any]:
    """The state of a checkpoint, after every file of it was compared with its manifest; the run's
    part of it has the shape `run` (see `read_json`).

    Raises:
        RunError: a file is missing or changed, the folder has another's name or is of an older
            version, or the manifest cannot be read.
    """
    advice = f"delete {checkpoint} to go on from the one before it, or from the start"
    state = {"step": int, "methods": list, "run": run}
    manifest = read_json(checkpoint / MANIFEST, {"files": dict, "state": state}, advice)
    if manifest.get("format") != FORMAT:
        where = f"delete {checkpoint.parent} to compute it again"
        raise RunError(f"{checkpoint} is of an older version, which cannot be resumed; {where}")
    if (name := manifest.get("name", checkpoint.name)) != checkpoint.name:
        raise RunError(f"{checkpoint} was saved as {name}; {advice}")
    compare(checkpoint, manifest["files"], advice)
    return manifest["state"]
