"""The records of the runs behind a paper's exhibits, in one file: `records/<paper>.jsonl.xz`.

    python -m tools.records keep ssp      # packs the finished runs of runs/ssp/cpu
    python -m tools.records unpack ssp    # puts them into runs/, beside what is there

Training takes hours; what it wrote down is some kB a run. With the records an exhibit is drawn
again, a claim computed otherwise or seeds added, and no run that is there is trained again. Weights
are not kept: before a run that starts from another one's, that one has to be deleted.

To keep it small, metrics and ends of intervals have two to five digits (two where no measure of the
paper takes them), those that no exhibit draws are left out, texts and sampled rollouts are those of
the first seed of `full`, texts at the first two evaluations and the last, and the rows of all runs
are packed by column.
"""

import json
import lzma
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

from spnb.core.disk import write_json, write_lines
from spnb.core.params import unknown
from spnb.core.paths import ROOT, resolve
from spnb.report.frame import load_measures
from spnb.report.papers.spice import CROSS_PLAY
from spnb.train.runs import RECORDS, Run, RunError, open_run, read_run

SCALE = "cpu"
FULL = "full"
"""The variant that is a paper's method."""
NO_WEIGHTS = {"model": {}, "kept": {}, "weights": False}
"""What `finished.json` notes of a run that is unpacked."""
ANEW = {"rows", "digests", *NO_WEIGHTS}
"""What it notes anew."""
PACKED = (*RECORDS, CROSS_PLAY)
"""What is packed: what a run wrote, and what was measured with weights that are not kept."""
RUN = "run"
"""The column that says of which run a row is."""
TEXTS = {"text", "attempts", "question", "answer"}
"""Columns of an evaluation's records that are texts."""
LEFT_OUT = re.compile(
    r"loss|tokens_per_second|samples|learning_rate|engine_gap|(kl|trained)(/.*)?"
    r"|(method/)?seconds/(?!step$).*"
    r"|method/(memory|answerable|answered|questions|proposals)"
)
"""Metrics that no exhibit draws but spell/figure-7, which shows the committed one without them."""
DIGITS = {"length": 5, "entropy": 4, "reward": 4, "method": 4, "low": 4, "high": 4}
"""Of metrics, by what stands before a slash, and of intervals' ends; others have three."""
NOTHING = 1e-9
"""A metric this close to 0 is 0 but for how numbers are added up."""
EXACT = {"value"}
"""Columns of an evaluation's numbers that claims are computed from."""
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""Settings of LZMA for text: a seventh smaller than its preset alone."""
ENDING = ".jsonl.xz"
Row = Mapping[str, Any]


def archive(paper: str, root: Path = ROOT) -> Path:
    """Where a paper's records are."""
    return root / "records" / f"{paper}{ENDING}"


def finished(folder: Path) -> list[Run]:
    """The finished runs of a scale's folder, by variant and seed."""
    folders = sorted(path.parent for path in folder.glob("*/seed-*/finished.json"))
    return [read_run(path) for path in folders]


def keep(runs: Path, paper: str, target: Path) -> int:
    """Packs a paper's finished runs; returns how many. What was packed before is replaced.

    Raises:
        ValueError: there is no run, or one that was packed before is not there with its parameters;
            nothing changes.
        RunError: a run is not as it was written; nothing changes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    found = finished(runs / paper / SCALE)
    for run in found:
        run.check_rows(run.facts(), exact=True)
    there = {(run.folder.relative_to(runs).as_posix(), run.config_hash) for run in found}
    before = read_packed(target)["runs"] if target.exists() else []
    packed_before = {(run["folder"], run["config"]["hash"]) for run in before}
    if lost := [folder for folder, _ in sorted(packed_before - there)]:
        more = f" and {len(lost) - 1} more" if lost[1:] else ""
        allowed = "all runs that are packed already (unpack them first)"
        raise ValueError(f"{runs} has no {lost[0]}{more} as packed; allowed: {allowed}")
    if not found:
        raise ValueError(f"{runs} has no finished run of {paper}; allowed: one at least")
    told: dict[str, list[Row]] = {name: [] for name in PACKED}
    exact = measured(paper)
    read = next((run for run in found if run.variant == FULL), None)
    for place, run in enumerate(found):
        for name, rows in kept_rows(run, exact, texts=run is read).items():
            told[name] += [{RUN: place, **row} for row in rows]
    packed = {
        "runs": [
            {
                "folder": run.folder.relative_to(runs).as_posix(),
                "config": json.loads((run.folder / "config.json").read_text()),
                "facts": {key: value for key, value in run.facts().items() if key not in ANEW},
            }
            for run in found
        ],
        "records": {name: columns(rows) for name, rows in told.items()},
    }
    part = target.with_suffix(".part")
    with lzma.open(part, "wt", filters=XZ) as file:
        json.dump(packed, file, separators=(",", ":"))
    part.replace(target)
    return len(found)


def read_packed(target: Path) -> dict[str, Any]:
    """The content of an archive."""
    with lzma.open(target, "rt") as file:
        return json.load(file)


def measured(paper: str) -> set[str]:
    """The metrics that measures of a paper's tables, figures and claims take."""
    measures = [one for one in load_measures(paper).values() if one.source == "metrics"]
    return {name for one in measures for name in (*one.weights, one.given) if name}


def kept_rows(run: Run, exact: set[str], texts: bool) -> dict[str, list[dict[str, Any]]]:
    """The rows of a run's records as they are packed; `exact`: metrics that measures take; `texts`:
    whether with its texts."""
    records = {name: run.rows(name) for name in PACKED}
    records["metrics"] = [
        {key: metric(key, row[key], exact) for key in row if not LEFT_OUT.fullmatch(key)}
        for row in records["metrics"]
    ]
    records["evals"] = [{key: short(key, row[key]) for key in row} for row in records["evals"]]
    if not texts:
        records["rollouts"] = []
    steps = sorted({row["step"] for row in records["items"]})
    told = {*steps[:2], *steps[-1:]} if texts else {}
    records["items"] = [
        {key: row[key] for key in row if key not in TEXTS or row["step"] in told}
        for row in records["items"]
    ]
    return records


def unpack(target: Path, runs: Path) -> int:
    """Puts packed runs where there is none; returns how many. A run in `runs` stays as it is, where
    it has more than a folder that a plan made."""
    packed = read_packed(target)
    there = [open_run(runs, run["config"]["params"], make=False) for run in packed["runs"]]
    missing = {place: run.folder for place, run in enumerate(there) if not begun(run)}
    parts = {place: folder.with_name(f".{folder.name}") for place, folder in missing.items()}
    for part in parts.values():
        rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    for name, value in packed["records"].items():
        rows: dict[int, list[Row]] = {place: [] for place in missing}
        for row in rows_of(value):
            if (place := row.pop(RUN)) in missing:
                rows[place].append(row)
        for place, part in parts.items():
            if rows[place] or name in RECORDS:
                write_lines(part / f"{name}.jsonl", rows[place])
    for place, part in parts.items():
        run = packed["runs"][place]
        write_json(part / "config.json", run["config"])
        write_json(part / "finished.json", run["facts"] | read_run(part).noted() | NO_WEIGHTS)
        rmtree(missing[place], ignore_errors=True)
        part.replace(missing[place])
    return len(missing)


def unfinished(target: Path, runs: Path) -> list[str]:
    """The packed runs that stay as they are because they began in `runs` and have not finished."""
    there = [open_run(runs, r["config"]["params"], make=False) for r in read_packed(target)["runs"]]
    return [str(run.folder) for run in there if begun(run) and not run.finished]


def begun(run: Run) -> bool:
    """Whether a run's folder has anything of a run, or is being written."""
    written = any(run.folder.glob("*.jsonl")) or run.checkpoints.exists() or run.finished
    return written or (run.folder.exists() and bool(run.busy()))


def metric(name: str, value: Any, exact: set[str]) -> Any:
    """A logged metric (with its role after a slash, where it has one), with two digits where no
    measure takes it."""
    taken = name in exact or name.rpartition("/")[0] in exact
    return short(name, value) if taken else rounded(value, 2)


def short(name: str, value: Any) -> Any:
    """A float with the digits of `DIGITS`, else three; an evaluation's numbers stay as they are."""
    return value if name in EXACT else rounded(value, DIGITS.get(name.partition("/")[0], 3))


def rounded(value: Any, digits: int) -> Any:
    """A float with so many digits, 0 if it is below `NOTHING`; anything else stays as it is."""
    if not isinstance(value, float):
        return value
    return 0.0 if abs(value) < NOTHING else float(f"{value:.{digits}g}")


def columns(rows: Iterable[Row]) -> dict[str, Any]:
    """Rows by column: for each set of keys its values key by key, and which set each row has."""
    shapes: dict[tuple[str, ...], list[list[Any]]] = {}
    order = []
    for row in rows:
        values = shapes.setdefault(tuple(row), [[] for _ in row])
        order.append(list(shapes).index(tuple(row)))
        for column, value in zip(values, row.values(), strict=True):
            column.append(value)
    return {"shapes": [[list(keys), values] for keys, values in shapes.items()], "order": order}


def rows_of(packed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows that `columns` packed, in their order."""
    made = [(keys, zip(*values, strict=True)) for keys, values in packed["shapes"]]
    for shape in packed["order"]:
        keys, rows = made[shape]
        yield dict(zip(keys, next(rows), strict=True))


def main(command: str, *papers: str) -> None:
    """Packs or unpacks the records of papers, in and out of `runs/`."""
    for paper in papers:
        target = archive(paper)
        runs = resolve("runs")
        if command == "unpack" and not target.exists():
            known = [path.name.removesuffix(ENDING) for path in target.parent.glob(f"*{ENDING}")]
            sys.exit(f"error: {unknown('paper', paper, known)}")
        try:
            count = keep(runs, paper, target) if command == "keep" else unpack(target, runs)
        except (ValueError, RunError, EOFError, lzma.LZMAError) as error:
            sys.exit(f"error: {error}")
        print(f"{paper}: {count} runs, {target.stat().st_size / 1e6:.1f} MB packed")
        if command == "unpack" and (left := unfinished(target, runs)):
            print("left as they are, to be gone on with or deleted:", *left, sep="\n  ")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("keep", "unpack"):
        sys.exit("usage: python -m tools.records keep|unpack PAPER ...")
    main(*sys.argv[1:])
