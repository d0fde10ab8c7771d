"""Runs become exhibits: files, a record of where they come from, and a gallery.

`save_exhibit` writes `<figures>/<paper>/<name>.{png,svg,csv,md}` and a record into
`<figures>/index.json`: run ids and config hashes, seeds, scale, package versions, commit, date.
`gallery` turns the index into a page that can be read on the web. Tables put the paper's value
beside ours (`beside_paper`).
"""

import io
import json
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
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
from PIL import Image

from spnb.core.params import unknown
from spnb.core.paths import resolve
from spnb.train import provenance

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
    """Every exhibit of every paper by id, in printed order (`spnb/reference/exhibits.yaml`)."""
    text = (resources.files("spnb.reference") / "exhibits.yaml").read_text(encoding="utf-8")
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


def check_writable(folder: str | Path) -> None:
    """Makes the folder if need be and tries to write in it, before hours are spent on what should
    go there.

    Raises:
        ExhibitError: it cannot be written, or its index is damaged.
    """
    folder = resolve(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=folder
        ):  # a name of its own: runs that start together check together
            pass
    except OSError as error:
        raise ExhibitError(
            f"figures is {folder}, which cannot be written ({error.strerror}); allowed: a writable folder. "
            "Finished runs are kept, so nothing is computed twice"
        ) from None
    read_index(folder)


def save_exhibit(
    exhibit_id: str,
    item: pd.DataFrame | Figure,
    runs: Sequence[RunLike],
    *,
    caption: str,
    protocol: str,
    folder: str | Path = "figures",
    data: pd.DataFrame | None = None,
) -> list[Path]:
    """Writes one exhibit, its record and the gallery; returns the files.

    Args:
        item: a table, or a figure together with `data`, the plotted numbers in long form.
        runs: every run that the numbers come from; one scale. May be empty for exhibits computed
            from a formula.
        caption: what it shows, one sentence.
        protocol: how ours differs from the paper's.
        folder: where to write; a relative one is taken from the project's root.

    Raises:
        ValueError: unknown exhibit, an empty table, caption or protocol, no runs where runs are
            needed, runs of several scales or of another paper, a figure without data.
        ExhibitError: the folder cannot be written, or its index is damaged; then nothing has
            changed.
    """
    info, folder = exhibit_info(exhibit_id), resolve(folder)
    _check_item(info, item, data, caption=caption, protocol=protocol)
    _check_runs(info, runs)
    check_writable(folder)
    name = exhibit_id.split("/")[1]
    files = (
        _figure_files(item, data, caption, name)
        if isinstance(item, Figure)
        else _table_files(item, caption, name)
    )
    target = folder / info.paper
    paths = [target / file_name for file_name in files]
    record = _record(info, runs, caption, protocol) | {
        "files": [path.relative_to(folder).as_posix() for path in paths]
    }
    with FileLock(folder / ".index.lock"):
        records = [known for known in read_index(folder) if known["id"] != exhibit_id]
        for path, content in zip(paths, files.values(), strict=True):
            _write(path, content)
        order = {known: place for place, known in enumerate(owed())}
        records = sorted([*records, record], key=lambda known: order.get(known["id"], len(order)))
        _write(folder / "index.json", (json.dumps({"exhibits": records}, indent=1) + "\n").encode())
        gallery(folder)
    return paths


def _check_item(info: ExhibitInfo, item: Any, data: pd.DataFrame | None, **texts: str) -> None:
    """Stops at an item that is not what the exhibit shows; transcripts printed as a figure may be a
    table."""
    kinds = {
        "table": (pd.DataFrame,),
        "figure": (Figure, pd.DataFrame) if info.source == "rollouts" else (Figure,),
    }
    if not isinstance(item, kinds[info.kind]):
        allowed = " or ".join(kind.__name__ for kind in kinds[info.kind])
        raise ValueError(f"exhibit {info.id} is a {type(item).__name__}; allowed: {allowed}")
    if isinstance(item, Figure) and data is None:
        raise ValueError(
            f"exhibit {info.id} is a figure; data is missing (the plotted numbers as a data frame)"
        )
    numbers = data if isinstance(item, Figure) else item
    if numbers.empty:
        raise ValueError(f"exhibit {info.id}: the table of its numbers is empty")
    for key, text in texts.items():
        if not text.strip():
            raise ValueError(f"exhibit {info.id}: {key} is {text!r}; allowed: a sentence")


def _check_runs(info: ExhibitInfo, runs: Sequence[RunLike]) -> None:
    scales = sorted({run.scale for run in runs})
    if not runs and info.source in ("runs", "rollouts", "shared"):
        raise ValueError(f"exhibit {info.id} is computed from {info.source}; runs is empty")
    if len(scales) > 1:
        raise ValueError(
            f"exhibit {info.id}: runs of the scales {', '.join(scales)}; allowed: one scale"
        )
    papers = (
        {known.paper for known in owed().values()} - {info.paper}
        if info.source != "shared"
        else set()
    )
    for run in runs:
        if run.run_id.split("/")[0] in papers:
            raise ValueError(
                f"exhibit {info.id}: run {run.run_id} is of another paper; allowed: runs of {info.paper}"
            )


def _markdown(table: pd.DataFrame, index: bool = False) -> str:
    """The table in Markdown, cells shown as they are: none is read as a number, as markup or as a
    border."""

    def cell(value: Any) -> str:
        if pd.api.types.is_float(value):
            return "-" if pd.isna(value) else f"{value:.6g}"
        text = re.sub(r"[\\`*|~$]|(?<!\w)_|_(?!\w)", r"\\\g<0>", str(value))
        return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")

    shown = table.reset_index() if index else table
    right = [pd.api.types.is_numeric_dtype(kind) for kind in shown.dtypes]
    return shown.map(cell).to_markdown(
        index=False,
        headers=[cell(name) for name in shown.columns],
        disable_numparse=True,
        colalign=["right" if numeric else "left" for numeric in right],
    )


def _table_files(table: pd.DataFrame, caption: str, name: str) -> dict[str, bytes]:
    index = not isinstance(table.index, pd.RangeIndex)
    text = f"{caption}\n\n{_markdown(table, index)}\n"
    return {f"{name}.csv": table.to_csv(index=index).encode(), f"{name}.md": text.encode()}


def _figure_files(figure: Figure, data: pd.DataFrame, caption: str, name: str) -> dict[str, bytes]:
    pictures = {}
    with matplotlib.rc_context({"svg.hashsalt": name}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
            pictures[f"{name}.{kind}"] = _small(buffer) if kind == "png" else buffer.getvalue()
    table = (
        f"\n{_markdown(data)}\n" if len(data) <= TABLE_ROWS_SHOWN else f"\nNumbers: {name}.csv\n"
    )
    return {
        **pictures,
        f"{name}.csv": data.to_csv(index=False, float_format="%.6g").encode(),
        f"{name}.md": f"{caption}\n\n![{caption}]({name}.png)\n{table}".encode(),
    }


def _small(png: io.BytesIO) -> bytes:
    """A picture with 256 colours, a third of its bytes: lines keep their colours exactly, shades
    differ by a little."""
    small = io.BytesIO()
    Image.open(png).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        small, format="png", optimize=True
    )
    return small.getvalue()


def _record(
    info: ExhibitInfo, runs: Sequence[RunLike], caption: str, protocol: str
) -> dict[str, Any]:
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
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "trained_at": sorted({commit for run in runs if (commit := getattr(run, "commit", None))}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"spnb exhibit {info.id} --scale {scale or 'cpu'}",
    }


def _write(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old one or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ExhibitError(
            f"{path} cannot be written ({error.strerror}); set figures to a writable folder"
        ) from None


def read_index(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder's index, none where there is no index.

    Raises:
        ExhibitError: the index is damaged; it is left as it is.
    """
    path = folder / "index.json"
    if not path.exists():
        return []
    needed = {
        "id",
        "title",
        "files",
        "caption",
        "protocol",
        "scale",
        "seeds",
        "runs",
        "commit",
        "date",
        "command",
    }
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["exhibits"]
        for record in records:
            if missing := needed - set(record):
                raise ValueError(
                    f"the record of {record.get('id')} lacks {', '.join(sorted(missing))}"
                )
        return list(records)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExhibitError(
            f"{path} is damaged ({error}); restore it from git or delete it, and save again"
        ) from None


def gallery(folder: str | Path) -> Path:
    """Writes `<folder>/README.md` from the index: every exhibit, what it shows, where it comes
    from."""
    folder = resolve(folder)
    records = {record["id"]: record for record in read_index(folder)}
    lines = [
        "# Gallery",
        "",
        "Generated from `index.json` by `spnb gallery`; do not edit. The command under each exhibit makes it again.",
    ]
    for paper in dict.fromkeys(info.paper for info in owed().values() if info.id in records):
        lines += ["", f"## {paper}"]
        for info in (
            info for info in owed().values() if info.paper == paper and info.id in records
        ):
            lines += _gallery_entry(records[info.id], folder)
        missing = [
            i
            for i in owed().values()
            if i.paper == paper and i.id not in records and i.source != "static"
        ]
        if missing:
            lines += [
                "",
                f"### Not yet made ({paper})",
                "",
                *(f"- {info.id}: {info.title}" for info in missing),
            ]
    path = folder / "README.md"
    _write(path, ("\n".join(lines) + "\n").encode())
    return path


def _gallery_entry(record: dict[str, Any], folder: Path) -> list[str]:
    gone = [name for name in record["files"] if not (folder / name).is_file()]
    picture = next((name for name in record["files"] if name.endswith(".png")), None)
    if gone:
        body = f"Not there any more: {', '.join(gone)}; the command below makes it again."
    elif picture:
        body = f"![{record['caption']}]({picture})"
    else:
        text = folder / next(name for name in record["files"] if name.endswith(".md"))
        body = text.read_text(encoding="utf-8").removeprefix(record["caption"]).strip()
    seeds = ", ".join(map(str, record["seeds"]))
    links = ", ".join(
        f"[{Path(name).suffix[1:]}]({name})" for name in record["files"] if name not in gone
    )
    count = len(record["runs"])
    made = (
        f"Scale {record['scale']}, {count} run{'s' * (count > 1)}, seeds {seeds}"
        if count
        else "No run needed"
    )
    commit, dirty, _ = (record["commit"] or "").partition("-dirty")
    commit = f", commit {commit[:10]}{dirty}" if commit else ""
    return [
        *("", f"### {record['id']}: {record['title']}", "", record["caption"], "", body, ""),
        *(
            f"*Protocol.* {record['protocol']}",
            "",
            f"{made}, {record['date'][:10]}{commit}. `{record['command']}`. Files: {links}",
        ),
    ]


def format_interval(value: float, low: float | None, high: float | None, digits: int = 1) -> str:
    """A number with its interval as printed everywhere: "52.1 [48.0, 56.2]", or "52.1 (n = 1)"
    where there is none."""
    if value is None or pd.isna(value):
        return "-"
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return f"{value:.{digits}f} (n = 1)"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def beside_paper(paper: pd.DataFrame, ours: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Ours beside the paper's: one line a cell that either has.

    Args:
        paper: columns row, column, value (`spnb.reference`).
        ours: columns row, column, value, low, high, n (seeds), and optionally at (what ours was
            measured at).

    Returns:
        Columns row, column, paper, ours (with 95 % interval), n, and "measured at" if given, row by
        row in the paper's order, then ours; "-" where a side has no such number.
    """
    for side, frame, needed in (
        ("paper", paper, ["value"]),
        ("ours", ours, ["value", "low", "high", "n"]),
    ):
        missing = {"row", "column", *needed} - set(frame.columns)
        if missing:
            raise ValueError(f"beside_paper: {side} lacks the columns {', '.join(sorted(missing))}")
        if (
            twice := frame.loc[frame.duplicated(["row", "column"]), ["row", "column"]]
            .to_numpy()
            .tolist()
        ):
            raise ValueError(
                f"beside_paper: {side} has more than one value for {twice[0]}; allowed: one a cell"
            )
    merged = paper[["row", "column", "value"]].merge(
        ours, on=["row", "column"], how="outer", suffixes=("_paper", "")
    )
    for key in ("row", "column"):
        merged[key] = pd.Categorical(merged[key], list(dict.fromkeys([*paper[key], *ours[key]])))
    merged = merged.sort_values(["row", "column"]).reset_index(drop=True)
    shown = {
        "row": merged["row"].astype(str),
        "column": merged["column"].astype(str),
        "paper": ["-" if pd.isna(value) else f"{value:g}" for value in merged["value_paper"]],
        "ours": [
            format_interval(*cell, digits)
            for cell in zip(merged["value"], merged["low"], merged["high"], strict=True)
        ],
        "n": ["-" if pd.isna(n) else int(n) for n in merged["n"]],
    }
    if "at" in merged:
        shown["measured at"] = merged["at"].fillna("-")
    return pd.DataFrame(shown)
