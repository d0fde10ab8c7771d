"""Runs become exhibits: files, a record of where they come from, and a gallery.

`save_exhibit` writes `<figures>/<paper>/<name>.{png,svg,csv,md}` and a record into `<figures>/index.json`: run ids and
config hashes, seeds, scale, package versions, commit, date. `gallery` turns the index into a page that can be read on
the web. Tables put the paper's value beside ours (`beside_paper`).
"""

import importlib.metadata
import io
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import matplotlib
import pandas as pd
import yaml
from filelock import FileLock
from matplotlib.figure import Figure

from spnb.params import unknown
from spnb.paths import ROOT

VERSIONS = ("spnb", "torch", "transformers", "trl", "numpy", "open_spiel", "textarena")
DPI = 150
TABLE_ROWS_SHOWN = 40


class ExhibitError(RuntimeError):
    """An exhibit cannot be written or its index cannot be read; the message says what to do."""


class RunLike(Protocol):
    """What an exhibit notes of a run."""

    run_id: str
    config_hash: str
    seed: int
    scale: str
    variant: str


@dataclass(frozen=True)
class ExhibitInfo:
    """One table or figure of a paper: id, kind (table, figure), what it is computed from, title."""

    id: str
    kind: str
    source: str
    title: str

    @property
    def paper(self) -> str:
        """The paper's name, the id's first part."""
        return self.id.split("/")[0]


@cache
def owed() -> dict[str, ExhibitInfo]:
    """Every exhibit of every paper by id, in printed order (`spnb/exhibits.yaml`)."""
    text = (resources.files("spnb") / "exhibits.yaml").read_text(encoding="utf-8")
    papers: dict[str, list[dict[str, str]]] = yaml.safe_load(text)
    return {entry["id"]: ExhibitInfo(**entry) for entries in papers.values() for entry in entries}


def exhibit_info(exhibit_id: str) -> ExhibitInfo:
    """What is known of an exhibit.

    Raises:
        ValueError: no such exhibit; names the nearest.
    """
    if exhibit_id not in owed():
        raise ValueError(unknown("exhibit", exhibit_id, owed()))
    return owed()[exhibit_id]


def check_writable(folder: Path) -> None:
    """Makes the folder if need be and tries to write in it, before hours are spent on what should go there.

    Raises:
        ExhibitError: it cannot be written.
    """
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ExhibitError(
            f"figures is {folder}, which cannot be written ({error.strerror}); allowed: a writable folder. "
            "Finished runs are kept, so nothing is computed twice"
        ) from None


def save_exhibit(
    exhibit_id: str,
    item: pd.DataFrame | Figure,
    runs: Sequence[RunLike],
    *,
    caption: str,
    protocol: str,
    folder: Path,
    data: pd.DataFrame | None = None,
) -> list[Path]:
    """Writes one exhibit, its record and the gallery; returns the files.

    Args:
        item: a table, or a figure together with `data`, the plotted numbers in long form.
        runs: every run that the numbers come from; one scale. May be empty for exhibits computed from a formula.
        caption: what it shows, one sentence.
        protocol: how ours differs from the paper's.

    Raises:
        ValueError: unknown exhibit, no runs where runs are needed, several scales, a figure without data.
        ExhibitError: the folder cannot be written, or its index is damaged.
    """
    info = exhibit_info(exhibit_id)
    _check_call(info, item, runs, data)
    check_writable(folder)
    name = exhibit_id.split("/")[1]
    files = _figure_files(item, data, caption, name) if isinstance(item, Figure) else _table_files(item, caption, name)
    target = folder / info.paper
    target.mkdir(exist_ok=True)
    paths = []
    for file_name, content in files.items():
        _write(target / file_name, content)
        paths.append(target / file_name)
    record = _record(info, runs, caption, protocol) | {"files": [str(path.relative_to(folder)) for path in paths]}
    with FileLock(folder / ".index.lock"):
        records = [known for known in read_index(folder) if known["id"] != exhibit_id]
        order = list(owed())
        records = sorted([*records, record], key=lambda known: order.index(known["id"]))
        _write(folder / "index.json", (json.dumps({"exhibits": records}, indent=1) + "\n").encode())
        gallery(folder)
    return paths


def _check_call(info: ExhibitInfo, item: Any, runs: Sequence[RunLike], data: pd.DataFrame | None) -> None:
    scales = sorted({run.scale for run in runs})
    if not runs and info.source in ("runs", "rollouts"):
        raise ValueError(f"exhibit {info.id} is computed from {info.source}; runs is empty")
    if len(scales) > 1:
        raise ValueError(f"exhibit {info.id}: runs of the scales {', '.join(scales)}; allowed: one scale")
    if isinstance(item, Figure) and data is None:
        raise ValueError(f"exhibit {info.id} is a figure; data is missing (the plotted numbers as a data frame)")


def _table_files(table: pd.DataFrame, caption: str, name: str) -> dict[str, bytes]:
    index = not isinstance(table.index, pd.RangeIndex)
    text = f"{caption}\n\n{table.to_markdown(index=index)}\n"
    return {f"{name}.csv": table.to_csv(index=index).encode(), f"{name}.md": text.encode()}


def _figure_files(figure: Figure, data: pd.DataFrame, caption: str, name: str) -> dict[str, bytes]:
    pictures = {}
    with matplotlib.rc_context({"svg.hashsalt": name}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
            pictures[f"{name}.{kind}"] = buffer.getvalue()
    table = f"\n{data.to_markdown(index=False)}\n" if len(data) <= TABLE_ROWS_SHOWN else f"\nNumbers: {name}.csv\n"
    return {
        **pictures,
        f"{name}.csv": data.to_csv(index=False, float_format="%.6g").encode(),
        f"{name}.md": f"{caption}\n\n![{caption}]({name}.png)\n{table}".encode(),
    }


def _record(info: ExhibitInfo, runs: Sequence[RunLike], caption: str, protocol: str) -> dict[str, Any]:
    scale = runs[0].scale if runs else None
    return {
        "id": info.id,
        "title": info.title,
        "kind": info.kind,
        "caption": caption,
        "protocol": protocol,
        "scale": scale,
        "seeds": sorted({run.seed for run in runs}),
        "variants": list(dict.fromkeys(run.variant for run in runs)),
        "runs": {run.run_id: run.config_hash for run in runs},
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in VERSIONS},
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"spnb exhibit {info.id} --scale {scale or 'cpu'}",
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the code, with "-dirty" where tracked files outside figures/ differ from it; None without git."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!figures")
        return git("rev-parse", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _write(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old one or the whole new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise ExhibitError(f"{path} cannot be written ({error.strerror}); set figures to a writable folder") from None


def read_index(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder's index, none where there is no index.

    Raises:
        ExhibitError: the index is damaged; it is left as it is.
    """
    path = folder / "index.json"
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text())["exhibits"]
        return [record for record in records if record["id"] in owed()]
    except (ValueError, KeyError, TypeError) as error:
        raise ExhibitError(f"{path} is damaged ({error}); restore it from git or delete it, and save again") from None


def gallery(folder: Path) -> Path:
    """Writes `<folder>/README.md` from the index: every exhibit, what it shows, where it comes from."""
    records = {record["id"]: record for record in read_index(folder)}
    lines = [
        "# Gallery",
        "",
        "Generated from `index.json` by `spnb gallery`; do not edit. The command under each exhibit makes it again.",
    ]
    for paper in dict.fromkeys(record_id.split("/")[0] for record_id in records):
        lines += ["", f"## {paper}"]
        for info in (info for info in owed().values() if info.paper == paper and info.id in records):
            lines += _gallery_entry(records[info.id], folder)
        missing = [i for i in owed().values() if i.paper == paper and i.id not in records and i.source != "static"]
        if missing:
            lines += ["", f"### Not yet made ({paper})", "", *(f"- {info.id}: {info.title}" for info in missing)]
    path = folder / "README.md"
    _write(path, ("\n".join(lines) + "\n").encode())
    return path


def _gallery_entry(record: dict[str, Any], folder: Path) -> list[str]:
    picture = next((name for name in record["files"] if name.endswith(".png")), None)
    if picture:
        body = f"![{record['caption']}]({picture})"
    else:
        text = next(name for name in record["files"] if name.endswith(".md"))
        body = (folder / text).read_text().split("\n\n", 1)[1].strip()
    seeds = ", ".join(map(str, record["seeds"])) or "none"
    facts = f"Scale {record['scale']}, {len(record['runs'])} runs, seeds {seeds}, {record['date'][:10]}"
    commit = f", commit {record['commit'][:10]}" if record["commit"] else ""
    return [
        *("", f"### {record['id']}: {record['title']}", "", record["caption"], "", body, ""),
        *(f"*Protocol.* {record['protocol']}", "", f"{facts}{commit}. `{record['command']}`"),
    ]


def format_interval(value: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """A number with its interval as printed everywhere: "52.1 [48.0, 56.2]", or "52.1 (n = 1)" where there is none."""
    if value is None or pd.isna(value):
        return "-"
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return f"{value:.{digits}f} (n = 1)"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def beside_paper(paper: pd.DataFrame, ours: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Ours beside the paper's: one line a cell that either has.

    Args:
        paper: columns row, column, value (`spnb.reference`).
        ours: columns row, column, value, low, high, n (seeds), and optionally at (what ours was measured at).

    Returns:
        Columns row, column, paper, ours (with 95 % interval), n, and "measured at" if given, in the paper's order; "-"
        where a side has no such number.
    """
    merged = paper[["row", "column", "value"]].merge(ours, on=["row", "column"], how="outer", suffixes=("_paper", ""))
    order = {pair: i for i, pair in enumerate(zip(paper["row"], paper["column"], strict=True))}
    merged["order"] = [order.get(pair, len(order)) for pair in zip(merged["row"], merged["column"], strict=True)]
    merged = merged.sort_values("order", kind="stable").reset_index(drop=True)
    shown = {
        "row": merged["row"],
        "column": merged["column"],
        "paper": ["-" if pd.isna(value) else f"{value:g}" for value in merged["value_paper"]],
        "ours": [
            format_interval(*cell, digits) for cell in zip(merged["value"], merged["low"], merged["high"], strict=True)
        ],
        "n": ["-" if pd.isna(n) else int(n) for n in merged["n"]],
    }
    if "at" in merged:
        shown["measured at"] = merged["at"].fillna("-")
    return pd.DataFrame(shown)
