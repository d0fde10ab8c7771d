"""A run's folder: what was asked, what came out, and that only one process writes it.

`runs/<paper>/<scale>/<variant>/seed-<n>/` holds `config.json` (resolved parameters, their hash),
`metrics.jsonl` (a row a training step, schema `METRICS`), `evals.jsonl` and `items.jsonl` (schemas
`ROW` and `RECORD` of `spnb.evaluate.items`), `rollouts.jsonl` (some samples), `pairs.jsonl`
(all preference pairs, where a run learns from these), `checkpoints/`, `kept/` (weights at chosen
steps), `model/` (final weights) and, once all is done, `finished.json`.
A finished run with the same hash is never computed again; one with other parameters gets a folder
of its own beside it.

A checkpoint's `manifest.json` holds the sha-256 of each of its files and our own state as JSON, the
number of rows of each record in it. It is written last and checked first: a checkpoint without one
was cut off while it was written and is ignored. Nothing here can execute code when it is read.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from spnb.core.errors import OneLine
from spnb.core.params import ParamError
from spnb.core.paths import CHECKOUT, ROOT, resolve
from spnb.evaluate.items import RECORD, ROW
from spnb.train.metrics import METRICS

RECORDS = ("metrics", "evals", "items", "rollouts")
_PATTERNS = [re.compile(re.sub(r"<\w+>", ".+", key) + "$") for key in METRICS]
MANIFEST = "manifest.json"
OLD_STATE = "selfplay_state.pt"
FORMAT = 2
"""Of checkpoints; those before had a pickle and no manifest."""
PACKAGES = ("spnb", "torch", "transformers", "trl", "numpy", "open_spiel", "textarena")
COMMITTED = "figures"
"""The folder of committed exhibits, written only with the committed settings and code."""
TRIALS = "runs/figures"
"""Where all other exhibits go."""


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

    @property
    def finished(self) -> bool:
        """Whether the run is done."""
        return (self.folder / "finished.json").is_file()

    @property
    def has_weights(self) -> bool:
        """Whether the final weights are there."""
        return any(self.model.rglob("*.safetensors"))

    def finish(self, **facts: Any) -> None:
        """Marks the run as done: commit, versions, rows of each record, facts such as its time."""
        where = {"commit": commit(), "versions": versions()}
        rows = self.row_counts()
        write_json(self.folder / "finished.json", {"date": _now(), "rows": rows, **where, **facts})

    def facts(self) -> dict[str, Any]:
        """What `finish` noted."""
        return _read_json(self.folder / "finished.json")

    @property
    def commit(self) -> str | None:
        """The commit that it was finished at; None where none is noted."""
        return self.facts().get("commit") if self.finished else None

    def check_finished(self) -> None:
        """Compares a finished run with what `finish` noted.

        Raises:
            RunError: a record lost rows, or the final weights are gone, unless it was unpacked
                without them (`tools.records`).
        """
        facts = self.facts()
        self.check_rows(facts.get("rows", {}), exact=True)
        if facts.get("weights", True) and not self.has_weights:
            raise RunError(
                f"run {self.run_id} is finished, but {self.model} has no weights any more; delete "
                f"{self.folder} to compute it again"
            )

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Adds rows to `<name>.jsonl` and flushes them to disk.

        Raises:
            RunError: a row that is not in the schema, or metrics of a step that has some already.
        """
        for row in rows:
            _check_schema(name, row)
        if name == "metrics":
            self._check_steps([row["step"] for row in rows])
        with open(self.folder / f"{name}.jsonl", "a") as file:
            file.writelines(json.dumps(_plain(row)) + "\n" for row in rows)

    def _check_steps(self, steps: Sequence[int]) -> None:
        last = next((row["step"] for row in reversed(self.rows("metrics"))), 0)
        for before, step in pairwise([last, *steps]):
            if step <= before:
                raise RunError(
                    f"metrics of step {step} come after those of step {before} in {self.folder}; "
                    "delete that folder to compute the run again"
                )

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of `<name>.jsonl`; a last line that was cut off by a kill is left out.

        Raises:
            RunError: a line in the middle is not a JSON object.
        """
        path = self.folder / f"{name}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        rows = []
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
                rows[-1]["step"]
            except (ValueError, TypeError, KeyError) as error:
                if number == len(lines) and len(rows) < number:
                    break
                advice = "move the run folder away"
                raise RunError(f"{path}, line {number} is damaged ({error}); {advice}") from None
        return rows

    def row_counts(self) -> dict[str, int]:
        """How many rows each record has."""
        return {name: len(self.rows(name)) for name in RECORDS}

    def check_rows(self, expected: Mapping[str, int], exact: bool = False) -> None:
        """Compares the records with the rows they had when a checkpoint was written.

        Raises:
            RunError: one has fewer rows (with `exact`: another number of rows).
        """
        for name, count in expected.items():
            there = len(self.rows(name))
            if there < count or (exact and there != count):
                raise RunError(
                    f"{self.folder / name}.jsonl has {there} rows and had {count}; put the file "
                    f"back, or delete {self.folder} to compute the run again"
                )

    def rewind(self, counts: Mapping[str, int]) -> None:
        """Cuts every record to so many rows, so that a resumed run writes the rest again.

        Raises:
            RunError: one has fewer; nothing was cut.
        """
        self.check_rows(counts)
        for name in RECORDS:
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                write_lines(path, self.rows(name)[: counts.get(name, 0)])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Makes this process the run's only writer.

        Raises:
            RunError: another process writes it; says which.
        """
        holder = self.folder / "lock.json"
        try:
            held = FileLock(self.folder / ".lock").acquire(timeout=0)
        except Timeout:
            who = (_read_json(holder) if holder.exists() else {}).get("who", "another process")
            raise RunError(
                f"run {self.run_id} is being written by {who}; wait for it or stop it"
            ) from None
        who = f"process {os.getpid()} on {socket.gethostname()} since {_now()}"
        with held:
            write_json(holder, {"who": who})
            try:
                yield
            finally:
                holder.unlink(missing_ok=True)


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
        facts = _read_json(folder / "config.json")
        if facts.get("hash") == config_hash(params):
            return Run(folder, dict(params))
        there = facts.get("params", {})
        if odd := sorted(set(there) - set(current(there))):
            raise RunError(
                f"run folder {folder} has earlier names of parameters ({', '.join(odd)}); this "
                f"gives all runs today's: spnb migrate {root}"
            )
    raise RunError(f"run folder {folder} holds another run than its name says; move it away")


def read_run(folder: Path) -> Run:
    """The run in a folder.

    Raises:
        RunError: its `config.json` is missing or damaged.
    """
    facts = _read_json(folder / "config.json")
    if config_hash(facts.get("params", {})) != facts.get("hash"):
        raise RunError(f"run folder {folder} is damaged: config.json was changed; move it away")
    return Run(folder, facts["params"])


def config_hash(params: Mapping[str, Any]) -> str:
    """12 hex digits over the parameters that are set, independent of their order.

    What is empty (None, "", [], {}) does not count, at any depth: a parameter that is added later,
    and empty by default, leaves earlier runs what they are.
    """
    text = json.dumps(_set(params), sort_keys=True, default=str)
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


def _read_json(path: Path) -> dict[str, Any]:
    damaged = f"run folder {path.parent} is damaged: {path.name}"
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{damaged} cannot be read ({error}); move the folder away") from None
    if not isinstance(value, dict):
        raise RunError(f"{damaged} holds {type(value).__name__}, not an object")
    return value


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


@cache
def _renames() -> dict[str, dict[str, Any]]:
    text = (files("spnb") / "train" / "renames.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def current(params: Mapping[str, Any]) -> dict[str, Any]:
    """A run's parameters under today's names.

    A parameter that is gone is left out if it has the value that every such run has today, and kept
    otherwise: that run has no counterpart.
    """
    params = dict(params)
    for group in ("every", params.get("paper", "")):
        names = {kind: entries.get(group, {}) for kind, entries in _renames().items()}
        for old, new in names["renamed"].items():
            if old in params:
                params[new] = params.pop(old)
        for name, values in names["values"].items():
            if name in params:
                params[name] = values.get(params[name], params[name])
        removed = names["removed"].items()
        params = {name: value for name, value in params.items() if (name, value) not in removed}
    return params


def write_json(path: Path, value: Any) -> None:
    """Writes JSON; a reader sees the old file or the whole new one."""
    _replace(path, json.dumps(value, indent=1, default=str, allow_nan=False) + "\n")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows as JSON, a line each; a reader sees the old file or the whole new one."""
    _replace(path, "".join(json.dumps(row) + "\n" for row in rows))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    temporary.write_text(text)
    os.replace(temporary, path)


def digest(path: Path) -> str:
    """The sha-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, state: Mapping[str, Any]) -> None:
    """Writes the manifest of a complete checkpoint folder, `state` in it."""
    files = {
        p.relative_to(folder).as_posix(): digest(p)
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
    files.pop(MANIFEST, None)
    write_json(folder / MANIFEST, {"format": FORMAT, "files": files, "state": dict(state)})


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint below `folder`.

    Raises:
        RunError: there are only checkpoints of the layout before manifests.
    """
    complete = [path.parent for path in folder.glob(f"checkpoint-*/{MANIFEST}")]
    if not complete and any(folder.parent.glob(f"**/checkpoint-*/{OLD_STATE}")):
        raise RunError(
            f"{folder.parent} holds checkpoints of an older layout, which cannot be resumed; "
            "delete that folder to start the run again"
        )
    return max(complete, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """The updates that were done when a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state of a checkpoint, after every file of it was compared with its manifest.

    Raises:
        RunError: a file is missing or changed, or the manifest cannot be read.
    """
    advice = f"delete {checkpoint} to go on from the one before it, or from the start"
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        files = manifest["files"]
        state = manifest["state"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{checkpoint / MANIFEST} cannot be read ({error}); {advice}") from None
    for name, expected in files.items():
        if not (checkpoint / name).is_file():
            raise RunError(f"{checkpoint / name} is missing; {advice}")
        if digest(checkpoint / name) != expected:
            raise RunError(f"{checkpoint / name} is not as it was saved; {advice}")
    return state


def versions() -> dict[str, str | None]:
    """Version of Python and of each package that decides numbers; None for one that is not
    installed."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def version(package: str) -> str | None:
    """The installed version of a package, None if it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git(*arguments: str) -> str:
    """What git says in the project's folder; raises OSError or CalledProcessError."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit() -> str | None:
    """The commit of the code, with "-dirty" where tracked files differ from it.

    figures/ and notebooks/ do not count: making exhibits writes there. None without git, where the
    package is installed, and where it lies inside a repository of something else.
    """
    try:
        if not CHECKOUT or Path(git("rev-parse", "--show-toplevel")) != ROOT.resolve():
            return None
        paths = (".", f":!{COMMITTED}", ":!notebooks")
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", *paths)
        return git("rev-parse", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def file_at(commit: str, path: Path) -> str | None:
    """A file's text at a commit; None where git does not know it."""
    try:
        return git("show", f"{commit}:{path.resolve().relative_to(ROOT.resolve()).as_posix()}")
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def unclean() -> str:
    """Why the code is not that of a commit, in a sentence; "" if it is."""
    here = commit()
    if here is None:
        return "The code is in no git repository of its own, so its commit is unknown."
    return f"The code has changes since commit {here[:9]}." if here.endswith("-dirty") else ""


def exhibit_folder(named: str | Path | None, why_not: str) -> Path:
    """Where exhibits go: the named folder; without one figures/, or runs/figures if `why_not`.

    Args:
        why_not: a sentence that says why figures/ may not be written, "" if it may.

    Raises:
        ParamError: figures/ was named and may not be written.
    """
    if named is None:
        return resolve(TRIALS if why_not else COMMITTED)
    folder = resolve(named)
    committed = resolve(COMMITTED).resolve()
    if why_not and committed in (folder.resolve(), *folder.resolve().parents):
        allowed = f"allowed: another folder, or none for {TRIALS}"
        raise ParamError(f"figures is {str(named)!r}, the committed exhibits; {allowed}. {why_not}")
    return folder
