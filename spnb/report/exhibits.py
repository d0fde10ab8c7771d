"""Runs become exhibits: files, a record of where they come from, and a gallery.

`save_exhibit` writes `<figures>/<paper>/<name>.{png,svg,csv,md}` and a record into
`<figures>/index.json`: run ids and config hashes, seeds, scale, policies, package versions, commit,
date.
Every file but the CSV, which is pure data, carries caption and protocol. `gallery` turns the index
into pages that can be read on the web. The committed folder takes exhibits of a clean commit only.
"""

import io
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from html import escape
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from filelock import FileLock
from matplotlib.figure import Figure
from PIL import Image, ImageColor
from PIL.PngImagePlugin import PngInfo

from spnb.core import params
from spnb.core.disk import move
from spnb.core.errors import OneLine
from spnb.core.params import unknown
from spnb.core.paths import packaged_yaml, resolve
from spnb.report.plots import DPI, PALETTE
from spnb.train import provenance
from spnb.train.policies import policy_fingerprint
from spnb.train.provenance import exhibit_folder, unclean
from spnb.train.runs import Run

OTHERS = ("embedded", "speed", "dynamics", "pass_at_k", "shapes")
"""What has exhibits and no runs of its own."""
TABLE_ROWS_SHOWN = 40
TABLE_ROWS_READ = 500
"""Most rows that a page has of a figure's numbers, and of a table; of longer ones it has a link."""
THUMBNAIL = 420
"""Width of a picture in the gallery, in pixels."""
MEASURE = "python -m spnb.lab.pretrain.exhibits"
COMMANDS = {"speed": "make bench", "embedded/readers": MEASURE, "embedded/games": MEASURE}
COMMANDS |= {f"{paper}/start": f"make reproduce PAPER={paper}" for paper in ("ssp", "scope")}
"""What makes exhibits that `spnb exhibit` does not make, by paper or id."""
HOW_TO_READ = """\
Every table and figure that was made here, a page a paper. A number of ours has its 95 % interval,
and the paper's number beside or under it. The caption says what is shown, the protocol how our
measurement differs from the paper's. A picture leads to its full size. The last line names the
runs, the commit and the command that makes the exhibit again. Intervals are bootstraps over seeds,
or as the protocol says; where all seeds and items are alike, at 0 or 100 %, it is Wilson's, of
one seed's items, and so wider than that of a number just beside. `spnb gallery` generates these
pages from `index.json`."""
LONG = re.compile(r"\d+\.\d{3,}")
STROKES = re.compile(r"([ML](?: \S+){2})((?: L(?: \S+){2})+)")
"""In an SVG: a number with needless digits; a line of several strokes, each with its letter."""
RECORD = ("id", "title", "files", "caption", "protocol", "scale", "seeds", "runs", "commit", "date")


class ExhibitError(OneLine, RuntimeError):
    """An exhibit cannot be written or its index cannot be read; the message says what to do."""


class ExhibitInfo(NamedTuple):
    """One table or figure of a paper: id, kind (table, figure), what it is computed from, title."""

    id: str
    kind: str
    source: str
    title: str
    paper = property(lambda self: self.id.split("/")[0])


class ExhibitContent(NamedTuple):
    """A table, or a figure and its numbers, and what is recorded with it."""

    item: pd.DataFrame | Figure
    runs: Sequence[Run]
    data: pd.DataFrame | None = None
    caption: str = ""
    protocol: str = ""


@cache
def catalogue() -> dict[str, ExhibitInfo]:
    """Every exhibit of every paper by id, in printed order (`spnb/reference/exhibits.yaml`)."""
    papers: dict[str, list[dict[str, str]]] = packaged_yaml("reference/exhibits.yaml")
    return {entry["id"]: ExhibitInfo(**entry) for entries in papers.values() for entry in entries}


def exhibit_info(exhibit_id: str) -> ExhibitInfo:
    """What is known of an exhibit; ValueError names the nearest to an unknown one.

    The nearest is one of the same paper, or else one of a paper that can be made here.
    """
    if exhibit_id not in catalogue():
        known = {info.paper for info in catalogue().values()}
        paper = exhibit_id.split("/")[0]
        near = {paper} & known or known & {*params.papers(), *OTHERS}
        allowed = [info.id for info in catalogue().values() if info.paper in near]
        raise ValueError(unknown("exhibit", exhibit_id, allowed))
    return catalogue()[exhibit_id]


def default_folder() -> Path:
    """`figures/` for the code of a commit, else where a trial changes nothing committed."""
    return exhibit_folder(None, unclean())


def folder_of(made_of: Sequence[Run]) -> Path:
    """Where exhibits of any papers' runs go: `default_folder` if committed exhibits of their own
    papers were made of all these runs, else runs/figures."""
    known: set[tuple[str, str]] = set()
    for record in read_index(resolve(provenance.COMMITTED)):
        paper = record["id"].split("/")[0]
        known |= {pair for pair in record["runs"].items() if pair[0].startswith(f"{paper}/")}
    there = {(run.run_id, run.config_hash) for run in made_of} <= known
    return default_folder() if there else resolve(provenance.TRIALS)


def check_writable(folder: str | Path) -> None:
    """Whether exhibits can be saved in a folder.

    Raises:
        ExhibitError: it cannot be made or written, or its index is damaged.
        ParamError: it is `figures/`, and the code is not that of a commit.
    """
    folder = exhibit_folder(folder, unclean())
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
    policies: Sequence[str] = (),
) -> list[Path]:
    """Writes one exhibit, its record and the gallery; returns the files.

    Args:
        item: a table, or a figure together with `data`, the plotted numbers in long form.
        runs: all that the numbers come from, of one scale; may be empty for a formula's exhibit.
        caption, protocol: what it shows, and how ours differs from the paper's.
        folder: a relative one is taken from the project's root.
        policies: those that it measures without runs ("embedded/player"), recorded as runs' are.

    Raises:
        ValueError: unknown exhibit, what `_check` refuses, or `figures/` without a clean commit.
        ExhibitError: the folder cannot be written, or its index is damaged; nothing has changed.
    """
    info = exhibit_info(exhibit_id)
    folder = resolve(folder)
    made = ExhibitContent(item, runs, data, caption, protocol)
    _check(info, made)
    check_writable(folder)
    record = _record(info, made, policies)
    make = figure_files if isinstance(item, Figure) else _table_files
    files = {folder / info.paper / name: content for name, content in make(record, made).items()}
    record["files"] = [path.relative_to(folder).as_posix() for path in files]
    with FileLock(folder / ".index.lock"):
        records = [known for known in read_index(folder) if known["id"] != exhibit_id]
        for path, content in files.items():
            _write(path, content)
        order = [*catalogue(), *(known["id"] for known in records)]
        records = sorted([*records, record], key=lambda known: order.index(known["id"]))
        _write(folder / "index.json", (json.dumps({"exhibits": records}, indent=0) + "\n").encode())
        gallery(folder)
    return list(files)


def _check(info: ExhibitInfo, made: ExhibitContent) -> None:
    """Stops at what is not the exhibit: its kind, its numbers, its texts, its runs."""
    allowed = "Figure" if info.kind == "figure" else "DataFrame"
    kind = type(made.item).__name__
    numbers = made.data if kind == "Figure" else made.item
    scales = sorted({run.scale for run in made.runs})
    others = {known.paper for known in catalogue().values()} - {info.paper}
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


def number_or_text(value: Any) -> str:
    """A cell as it is shown: a float with six digits, "-" where there is none."""
    if pd.api.types.is_float(value):
        return "-" if pd.isna(value) else f"{value:.6g}"
    return str(value)


def plain(text: Any) -> str:
    """A text in Markdown that is shown as it is: nothing in it is markup, a link or HTML."""
    marked = re.sub(r"[\\`*|~$]|(?<!\w)_|_(?!\w)|](?=[(\[:])", r"\\\g<0>", str(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")


def _markdown(table: pd.DataFrame) -> str:
    """The table in Markdown, cells shown as they are: none is read as a number or as markup."""
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    sides = ["right" if each else "left" for each in numeric]
    shown = table.map(lambda value: plain(number_or_text(value))).rename(columns=plain)
    return shown.to_markdown(index=False, disable_numparse=True, colalign=sides)


def _page(record: dict[str, Any], body: str) -> bytes:
    """An exhibit in Markdown: title, caption, table or picture, protocol, where it is from."""
    head = f"# {record['id']}: {record['title']}"
    protocol = f"*Protocol.* {plain(record['protocol'])}"
    parts = [head, plain(record["caption"]), body, protocol, _origin(record), ""]
    return "\n\n".join(parts).encode()


def _origin(record: dict[str, Any]) -> str:
    return f"{made_from(record)}. `{record['command']}`."


def _table_files(record: dict[str, Any], made: ExhibitContent) -> dict[str, bytes]:
    name = _name(record["id"])
    table = made.item
    index = not isinstance(table.index, pd.RangeIndex)
    text = f"Numbers: [{name}.csv]({name}.csv)"
    if len(table) <= TABLE_ROWS_READ:
        text = _markdown(table.reset_index() if index else table)
    numbers = table.to_csv(index=index, float_format="%.6g").encode()
    return {f"{name}.csv": numbers, f"{name}.md": _page(record, text)}


def figure_files(record: dict[str, Any], made: ExhibitContent) -> dict[str, bytes]:
    """The picture as PNG and SVG, its numbers, and a page; the same bytes for the same figure."""
    name = _name(record["id"])
    data = made.data
    texts = {
        "Title": record["title"],
        "Description": f"{record['caption']} Protocol: {record['protocol']}",
    }
    png = io.BytesIO()
    svg = io.BytesIO()
    whole = {"bbox_inches": "tight", "pad_inches": 0.08}  # no title is cut at the edge
    with matplotlib.rc_context({"svg.hashsalt": name}):
        made.item.savefig(png, format="png", dpi=DPI, **whole)
        made.item.savefig(svg, format="svg", metadata={"Date": None, **texts}, **whole)
    short = len(data) <= TABLE_ROWS_SHOWN
    numbers = _markdown(data) if short else f"Numbers: [{name}.csv]({name}.csv)"
    return {
        f"{name}.png": small_png(png.getvalue(), texts),
        f"{name}.svg": small_svg(svg.getvalue().decode()).encode(),
        f"{name}.csv": data.to_csv(index=False, float_format="%.4g").encode(),
        f"{name}.md": _page(record, f"![{record['title']}]({name}.png)\n\n{numbers}"),
    }


def small_png(png: bytes, texts: Mapping[str, str] | None = None) -> bytes:
    """A picture with 32 colours, a fifth of its bytes, and with texts inside; white and the lines'
    colours stay as they are, however few pixels have them."""
    small = io.BytesIO()
    info = PngInfo()
    for key, text in (texts or {}).items():
        info.add_itxt(key, text)
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    own = np.array([ImageColor.getrgb(colour) for colour in ("#FFFFFF", *PALETTE)])
    others = picture.quantize(32 - len(own), Image.Quantize.MEDIANCUT, kmeans=2).getpalette()
    colours = np.vstack([own, np.reshape(others, (-1, 3))])[:32]
    pixels, at = np.unique(np.asarray(picture) @ [2**16, 2**8, 1], return_inverse=True)
    parts = np.stack([pixels >> 16, pixels >> 8 & 255, pixels & 255], axis=1)
    blocks = np.array_split(parts, 1 + len(parts) // 50_000)  # a photograph has very many
    nearest = [np.square(each[:, None] - colours).sum(axis=2).argmin(axis=1) for each in blocks]
    places = np.concatenate(nearest).astype(np.uint8)[at]
    few = Image.fromarray(places.reshape(picture.size[::-1]), "P")
    few.putpalette(colours.astype(np.uint8).tobytes())
    few.save(small, format="png", optimize=True, pnginfo=info)
    return small.getvalue()


def small_svg(svg: str) -> str:
    """A drawing of matplotlib's with places to a hundredth of a point and no needless letters."""

    def path(match: re.Match) -> str:
        places = LONG.sub(_rounded, " ".join(match[1].split()))
        return f' d="{STROKES.sub(lambda line: line[1] + line[2].replace(" L", ""), places)}"'

    svg = re.sub(r"\n\s+", "\n", svg)
    svg = re.sub(rf'(?<= [xy]="){LONG.pattern}', _rounded, svg)
    return re.sub(r' d="([^"]*)"', path, svg)


def _rounded(number: re.Match) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _record(info: ExhibitInfo, made: ExhibitContent, policies: Sequence[str]) -> dict[str, Any]:
    runs = made.runs
    policies = {name: policy_fingerprint(name) for name in policies}
    for run in runs:
        policies |= run.params.get("weights") or {}
    scale = runs[0].scale if runs else None
    ids = [run.run_id for run in runs]  # with the hash where runs of several settings share one
    pairs = ((run.run_id, run.config_hash) for run in runs)
    return {
        **{"id": info.id, "title": info.title, "kind": info.kind},
        "caption": made.caption,
        "protocol": made.protocol,
        "scale": scale,
        "seeds": sorted({run.seed for run in runs}),
        "variants": list(dict.fromkeys(run.variant for run in runs)),
        "runs": {f"{name}.{one}" if ids.count(name) > 1 else name: one for name, one in pairs},
        "policies": policies,
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "trained_at": sorted({commit for run in runs if (commit := getattr(run, "commit", None))}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_of(info, scale or "cpu"),
    }


def command_of(info: ExhibitInfo, scale: str) -> str:
    """What makes an exhibit again."""
    if "/search" in info.id:
        return f"spnb search {info.id.removesuffix('/search')} --scale {scale}"
    own = COMMANDS.get(info.id) or COMMANDS.get(info.paper)
    return own or f"spnb exhibit {info.id} --scale {scale}"


def _write(path: Path, content: bytes) -> None:
    """Writes a file so that a reader sees the old one or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        temporary.write_bytes(content)
        move(temporary, path)
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


def find_record(exhibit_id: str, folder: Path) -> dict[str, Any] | None:
    """The record of a saved exhibit whose files are all there."""
    own = [record for record in read_index(folder) if record["id"] == exhibit_id]
    return next((one for one in own if all((folder / f).is_file() for f in one["files"])), None)


def gallery(folder: str | Path) -> Path:
    """Writes `<folder>/README.md`, a line an exhibit of the index, and a page of each paper's.

    Raises:
        ExhibitError: no exhibit was ever saved in that folder, or its index is damaged.
    """
    folder = resolve(folder)
    if not (folder / "index.json").is_file():
        raise ExhibitError(f"{folder} has no index.json; allowed: a folder of exhibits")
    records = {record["id"]: record for record in read_index(folder)}
    lines = ["# Gallery", "", HOW_TO_READ]
    for paper, entries in groupby(catalogue().values(), key=attrgetter("paper")):
        infos = list(entries)
        there = [info for info in infos if info.id in records]
        if not there:
            continue
        page = f"{paper}/README.md"
        links = [f"- [{info.id}]({page}#{_name(info.id)}): {info.title}" for info in there]
        lines += ["", f"## [{paper}]({page})", "", *links]
        parts = [f"# {paper}", "[All papers](../README.md)"]
        parts += [part for info in there for part in _gallery_entry(records[info.id], folder)]
        missing = [i.id for i in infos if i.id not in records and i.source != "static"]
        parts += [f"*Not yet made:* {', '.join(missing)}."] if missing else []
        _write(folder / page, ("\n\n".join(parts) + "\n").encode())
    others = [
        page.relative_to(folder).with_suffix("")
        for page in sorted(folder.glob("*/*.md"))
        if not page.with_name("README.md").exists()
    ]
    links = [f"- [{name}]({name}.md)" for name in others]
    lines += ["", "## Beside the papers", "", *links] if links else []
    _write(folder / "README.md", ("\n".join(lines) + "\n").encode())
    return folder / "README.md"


def _name(exhibit_id: str) -> str:
    return exhibit_id.split("/")[1]


def _gallery_entry(record: dict[str, Any], folder: Path) -> list[str]:
    """Its title, its picture or table (or what is not there any more), where it is from."""
    files = {Path(name).suffix[1:]: Path(name).name for name in record["files"]}
    home = folder / record["id"].split("/")[0]
    there = {kind: name for kind, name in files.items() if (home / name).is_file()}
    if gone := [name for name in files.values() if name not in there.values()]:
        body = f"Not there any more: {', '.join(gone)}; the command below makes it again."
    elif "png" in files:
        picture = f'<img src="{files["png"]}" alt="{escape(record["title"])}" width="{THUMBNAIL}">'
        body = f'<a href="{files["png"]}">{picture}</a>'
    else:
        page = (home / files["md"]).read_text(encoding="utf-8")
        lines = [line for line in page.splitlines() if line.startswith("|")]
        rows = len(lines) - 2
        linked = f"{rows} rows: [{files['md']}]({files['md']})"
        body = "\n".join(lines) if rows <= TABLE_ROWS_SHOWN else linked
    links = ", ".join(f"[{kind}]({name})" for kind, name in there.items())
    head = f'<a id="{_name(record["id"])}"></a>'
    protocol = f"<details><summary>Protocol</summary>\n\n{plain(record['protocol'])}\n\n</details>"
    title = f"## {record['id']}: {record['title']}"
    origin = f"{_origin(record)} Files: {links}."
    return [head, title, plain(record["caption"]), body, protocol, origin]


def made_from(record: dict[str, Any]) -> str:
    """What a saved exhibit was made from: scale, variants, runs, seeds, date, commit."""
    commit, dirty, _ = (record["commit"] or "").partition("-dirty")
    when = record["date"][:10] + (f", commit {commit[:10]}{dirty}" if commit else "")
    if not record["runs"]:
        return f"No run needed, {when}"
    variants = list(dict.fromkeys(run.split("/")[-2] for run in record["runs"]))
    counts = {"variant": len(variants), "run": len(record["runs"])}
    of = ", ".join(f"{count} {word}{'s' * (count > 1)}" for word, count in counts.items())
    several = "s" * (len(record["seeds"]) > 1)
    return f"Scale {record['scale']}, {of}, seed{several} {ranges(record['seeds'])}, {when}"


def ranges(numbers: Sequence[int]) -> str:
    """Seeds as text: 0, 1, 2, 5 as "0-2, 5"."""
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    parts = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)
