"""Runs become exhibits: files, a record of where they come from, and a gallery.

`save_exhibit` writes `<figures>/<paper>/<name>.{png,svg,csv,md}` and a record into
`<figures>/index.json`: run ids and config hashes, seeds, scale, package versions, commit, date.
`gallery` turns the index into a page that can be read on the web.
"""

import io
import json
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
import yaml
from filelock import FileLock
from matplotlib.figure import Figure
from PIL import Image

from spnb.core.params import unknown
from spnb.core.paths import resolve
from spnb.report.plots import DPI
from spnb.train import provenance
from spnb.train.runs import Run

TABLE_ROWS_SHOWN = 40
COMMANDS = {"speed": "spnb bench"}
"""What makes exhibits that no notebook makes."""
RECORD = ("id", "title", "files", "caption", "protocol", "scale", "seeds", "runs", "commit", "date")


class ExhibitError(RuntimeError):
    """An exhibit cannot be written or its index cannot be read; the message says what to do."""


class ExhibitInfo(NamedTuple):
    """One table or figure of a paper: id, kind (table, figure), what it is computed from, title."""

    id: str
    kind: str
    source: str
    title: str
    paper = property(lambda self: self.id.split("/")[0])


class Made(NamedTuple):
    """A table, or a figure and its numbers, and what is recorded with it."""

    item: pd.DataFrame | Figure
    runs: Sequence[Run]
    data: pd.DataFrame | None = None
    caption: str = ""
    protocol: str = ""


@cache
def owed() -> dict[str, ExhibitInfo]:
    """Every exhibit of every paper by id, in printed order (`spnb/reference/exhibits.yaml`)."""
    text = (resources.files("spnb.reference") / "exhibits.yaml").read_text(encoding="utf-8")
    papers: dict[str, list[dict[str, str]]] = yaml.safe_load(text)
    return {entry["id"]: ExhibitInfo(**entry) for entries in papers.values() for entry in entries}


def exhibit_info(exhibit_id: str) -> ExhibitInfo:
    """What is known of an exhibit; ValueError names the nearest to an unknown one."""
    if exhibit_id not in owed():
        raise ValueError(unknown("exhibit", exhibit_id, owed()))
    return owed()[exhibit_id]


def check_writable(folder: str | Path) -> None:
    """Raises ExhibitError where a folder cannot be made or written, or its index is damaged."""
    folder = resolve(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.NamedTemporaryFile(dir=folder).close()  # its own name: others may check as well
    except OSError as error:
        raise ExhibitError(
            f"figures is {folder}, which cannot be written ({error.strerror}); allowed: a writable "
            "folder. Finished runs are kept, so nothing is computed twice"
        ) from None
    read_index(folder)


def save_exhibit(
    exhibit_id: str,
    item: pd.DataFrame | Figure,
    runs: Sequence[Run],
    *,
    caption: str,
    protocol: str,
    folder: str | Path = "figures",
    data: pd.DataFrame | None = None,
) -> list[Path]:
    """Writes one exhibit, its record and the gallery; returns the files.

    Args:
        item: a table, or a figure together with `data`, the plotted numbers in long form.
        runs: all that the numbers come from, of one scale; may be empty for a formula's exhibit.
        caption, protocol: what it shows, and how ours differs from the paper's.
        folder: a relative one is taken from the project's root.

    Raises:
        ValueError: unknown exhibit, or what `_check` refuses.
        ExhibitError: the folder cannot be written, or its index is damaged; nothing has changed.
    """
    info = exhibit_info(exhibit_id)
    folder = resolve(folder)
    made = Made(item, runs, data, caption, protocol)
    _check(info, made)
    check_writable(folder)
    name = exhibit_id.split("/")[1]
    figure = isinstance(item, Figure)
    make = _figure_files(item, data, caption, name) if figure else _table_files(item, caption, name)
    files = {folder / info.paper / file_name: content for file_name, content in make.items()}
    record = _record(info, made)
    record["files"] = [path.relative_to(folder).as_posix() for path in files]
    with FileLock(folder / ".index.lock"):
        records = [known for known in read_index(folder) if known["id"] != exhibit_id]
        for path, content in files.items():
            _write(path, content)
        order = [*owed(), *(known["id"] for known in records)]
        records = sorted([*records, record], key=lambda known: order.index(known["id"]))
        _write(folder / "index.json", (json.dumps({"exhibits": records}, indent=1) + "\n").encode())
        gallery(folder)
    return list(files)


def _check(info: ExhibitInfo, made: Made) -> None:
    """Stops at what is not the exhibit: its kind, its numbers, its texts, its runs."""
    allowed = "Figure" if info.kind == "figure" else "DataFrame"
    kind = type(made.item).__name__
    numbers = made.data if kind == "Figure" else made.item
    scales = sorted({run.scale for run in made.runs})
    others = {known.paper for known in owed().values()} - {info.paper}
    foreign = [run.run_id for run in made.runs if run.run_id.split("/")[0] in others]
    fault = ""
    if kind != allowed and (kind, info.source) != ("DataFrame", "rollouts"):
        fault = f"is a {kind}; allowed: {allowed}"
    elif numbers is None or numbers.empty:
        fault = "its numbers are missing or empty (data, of a figure)"
    elif not made.caption.strip() or not made.protocol.strip():
        fault = f"caption is {made.caption!r}, protocol is {made.protocol!r}; allowed: sentences"
    elif not made.runs and info.source in ("runs", "rollouts", "shared"):
        fault = f"is computed from {info.source}; runs is empty"
    elif len(scales) > 1:
        fault = f"runs of the scales {', '.join(scales)}; allowed: one scale"
    elif foreign and info.source != "shared":
        fault = f"run {foreign[0]} is of another paper"
    if fault:
        raise ValueError(f"exhibit {info.id}: {fault}")


def _markdown(table: pd.DataFrame) -> str:
    """The table in Markdown, cells shown as they are: none is read as a number or as markup."""

    def cell(value: Any) -> str:
        if pd.api.types.is_float(value):
            return "-" if pd.isna(value) else f"{value:.6g}"
        text = re.sub(r"[\\`*|~$]|(?<!\w)_|_(?!\w)", r"\\\g<0>", str(value))
        return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")

    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    sides = ["right" if each else "left" for each in numeric]
    shown = table.map(cell).rename(columns=cell)
    return shown.to_markdown(index=False, disable_numparse=True, colalign=sides)


def _table_files(table: pd.DataFrame, caption: str, name: str) -> dict[str, bytes]:
    index = not isinstance(table.index, pd.RangeIndex)
    text = f"{caption}\n\n{_markdown(table.reset_index() if index else table)}\n"
    return {f"{name}.csv": table.to_csv(index=index).encode(), f"{name}.md": text.encode()}


def _figure_files(figure: Figure, data: pd.DataFrame, caption: str, name: str) -> dict[str, bytes]:
    """The same bytes for the same figure; the picture has 256 colours, a third of its bytes."""
    png, small, svg = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None})
    picture = Image.open(png).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    table = _markdown(data) if len(data) <= TABLE_ROWS_SHOWN else f"Numbers: {name}.csv"
    return {
        f"{name}.png": small.getvalue(),
        f"{name}.svg": svg.getvalue(),
        f"{name}.csv": data.to_csv(index=False, float_format="%.6g").encode(),
        f"{name}.md": f"{caption}\n\n![{caption}]({name}.png)\n\n{table}\n".encode(),
    }


def _record(info: ExhibitInfo, made: Made) -> dict[str, Any]:
    runs = made.runs
    scale = runs[0].scale if runs else None
    return {
        **{"id": info.id, "title": info.title, "kind": info.kind},
        "caption": made.caption,
        "protocol": made.protocol,
        "scale": scale,
        "seeds": sorted({run.seed for run in runs}),
        "variants": list(dict.fromkeys(run.variant for run in runs)),
        "runs": {run.run_id: run.config_hash for run in runs},
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "trained_at": sorted({commit for run in runs if (commit := getattr(run, "commit", None))}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": COMMANDS.get(info.paper, f"spnb exhibit {info.id} --scale {scale or 'cpu'}"),
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
    """The records of a folder's index, if there is one; ExhibitError where it is damaged."""
    path = folder / "index.json"
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["exhibits"]
        list(map(itemgetter(*RECORD, "command"), records))
        return list(records)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExhibitError(
            f"{path} is damaged ({error!r}); restore it from git or delete it, and save again"
        ) from None


def gallery(folder: str | Path) -> Path:
    """Writes `<folder>/README.md`: every exhibit of the index, what it shows, where it is from."""
    folder = resolve(folder)
    records = {record["id"]: record for record in read_index(folder)}
    lines = ["# Gallery", "", "Generated from `index.json` by `spnb gallery`; do not edit. "]
    lines[-1] += "The command under each exhibit makes it again."
    for paper in dict.fromkeys(info.paper for info in owed().values() if info.id in records):
        lines += ["", f"## {paper}"]
        missing = []
        for info in (info for info in owed().values() if info.paper == paper):
            if info.id in records:
                lines += _gallery_entry(records[info.id], folder)
            elif info.source != "static":
                missing.append(f"- {info.id}: {info.title}")
        lines += ["", f"### Not yet made ({paper})", "", *missing] if missing else []
    path = folder / "README.md"
    _write(path, ("\n".join(lines) + "\n").encode())
    return path


def _gallery_entry(record: dict[str, Any], folder: Path) -> list[str]:
    """Its title, its picture or table (or what is not there any more), where it is from."""
    files = {Path(name).suffix[1:]: name for name in record["files"]}
    there = {kind: name for kind, name in files.items() if (folder / name).is_file()}
    if gone := [name for name in files.values() if name not in there.values()]:
        body = f"Not there any more: {', '.join(gone)}; the command below makes it again."
    elif "png" in files:
        body = f"![{record['caption']}]({files['png']})"
    else:
        text = (folder / files["md"]).read_text(encoding="utf-8")
        body = text.removeprefix(record["caption"]).strip()
    links = ", ".join(f"[{kind}]({name})" for kind, name in there.items())
    made = f"{made_from(record)}. `{record['command']}`. Files: {links}"
    head = ["", f"### {record['id']}: {record['title']}", "", record["caption"], ""]
    return [*head, body, "", f"*Protocol.* {record['protocol']}", "", made]


def made_from(record: dict[str, Any]) -> str:
    """What a saved exhibit was made from: scale, runs, seeds, date, commit."""
    count = len(record["runs"])
    seeds = ", ".join(map(str, record["seeds"]))
    runs = f"Scale {record['scale']}, {count} run{'s' * (count > 1)}, seeds {seeds}"
    commit, dirty, _ = (record["commit"] or "").partition("-dirty")
    commit = f", commit {commit[:10]}{dirty}" if commit else ""
    return f"{runs if count else 'No run needed'}, {record['date'][:10]}{commit}"
