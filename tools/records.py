"""The records of the runs behind a paper's exhibits, in one file: `records/<paper>.tar.xz`.

    python -m tools.records keep ssp      # packs the finished runs of runs/ssp/cpu
    python -m tools.records unpack ssp    # puts them into runs/, beside what is there

Training takes hours; what it wrote down is some kB a run. With the records an exhibit is drawn
again, a claim computed otherwise or seeds added, and no run that is there is trained again. Weights
are not kept: before a run that starts from another one's, that one has to be deleted.
"""

import io
import json
import sys
import tarfile
from pathlib import Path

from spnb.core.paths import ROOT, resolve
from spnb.train.runs import RECORDS, Run, read_run, write_json

SCALE = "cpu"
NAMES = ["config.json", *(f"{record}.jsonl" for record in RECORDS), "finished.json"]
"""Of a run, as they are put back: the last one says that the run is there."""


def archive(paper: str, root: Path = ROOT) -> Path:
    """Where a paper's records are."""
    return root / "records" / f"{paper}.tar.xz"


def finished(folder: Path) -> list[Run]:
    """The finished runs of a scale's folder, by variant and seed."""
    folders = sorted(path.parent for path in folder.glob("*/seed-*/finished.json"))
    return [read_run(path) for path in folders]


def keep(runs: Path, paper: str, target: Path) -> int:
    """Packs a paper's finished runs; returns how many. What was packed before is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    found = finished(runs / paper / SCALE)
    with tarfile.open(target, "w:xz", preset=9) as file:
        for run in found:
            for name in NAMES:
                if (run.folder / name).is_file():
                    content = (run.folder / name).read_bytes()
                    entry = tarfile.TarInfo((run.folder / name).relative_to(runs).as_posix())
                    entry.size = len(content)
                    file.addfile(entry, io.BytesIO(content))
    return len(found)


def unpack(target: Path, runs: Path) -> int:
    """Puts packed runs where there is none; returns how many. A run in `runs` stays as it is."""
    there = {path.parent for path in runs.glob("*/*/*/*/config.json")}
    count = 0
    with tarfile.open(target) as file:
        for entry in file:
            folder = (runs / entry.name).parent
            if folder in there:
                continue
            file.extract(entry, runs, filter="data")
            if entry.name.endswith("finished.json"):
                path = runs / entry.name
                write_json(path, json.loads(path.read_text()) | {"weights": False})
                count += 1
    return count


def main(command: str, *papers: str) -> None:
    """Packs or unpacks the records of papers, in and out of `runs/`."""
    for paper in papers:
        target = archive(paper)
        runs = resolve("runs")
        count = keep(runs, paper, target) if command == "keep" else unpack(target, runs)
        print(f"{paper}: {count} runs, {target.stat().st_size / 1e6:.1f} MB packed")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("keep", "unpack"):
        sys.exit("usage: python -m tools.records keep|unpack PAPER ...")
    main(*sys.argv[1:])
