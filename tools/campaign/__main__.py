"""Runs the campaign and writes its report: see `tools.campaign`.

It goes to figures/reliability/ where all parts had their whole time on a clean commit, else to
runs/reliability/. What is found stays in the folder that is printed first.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spnb.train.provenance import commit, unclean
from tools.campaign import ENDS, ROOT, Part
from tools.campaign.damage import damage, disk, starts
from tools.campaign.kills import kills
from tools.campaign.parameters import parameters
from tools.campaign.prompts import prompts
from tools.campaign.retriever import retriever
from tools.campaign.texts import texts

FULL = 60
"""Minutes of the full campaign, two workers on two free cores."""
PARTS: dict[str, tuple[float, Callable[[Part], None]]] = {
    "kills": (32, kills),
    "starts": (1, starts),
    "disk": (3, disk),
    "damage": (8, damage),
    "texts": (10, texts),
    "prompts": (1, prompts),
    "retriever": (2, retriever),
    "parameters": (3, parameters),
}
"""Each part, and its minutes of the full campaign."""


def campaign(
    folder: Path,
    minutes: float,
    seed: int,
    parts: Mapping[str, tuple[float, Callable]] = PARTS,
    target: Path | None = None,
) -> list[Part]:
    """Runs all parts one after the other, each within its share of the time; after each the report
    is written to `target`, if there is one."""
    done: list[Part] = []
    for name, (share, run) in parts.items():
        begun = time.monotonic()
        place = folder / name
        place.mkdir(parents=True)
        scale = minutes / FULL
        part = Part(name, place, scale, begun + 60 * share * scale, seed)
        try:
            run(part)
        except Exception:
            part.end("traceback", f"the part itself: {traceback.format_exc()[-1500:]}")
        part.seconds = round(time.monotonic() - begun, 1)
        print(f"{name}: {part.counts} in {part.seconds:.0f} s", flush=True)
        done.append(part)
        if target is not None:
            write(target, done, minutes, seed)
    return done


def write(folder: Path, parts: Sequence[Part], minutes: float, seed: int) -> None:
    """Writes campaign.md and campaign.json."""
    facts = {"commit": commit() or "unknown", "seed": seed, "minutes": minutes}
    results = [part.result() for part in parts]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "campaign.json").write_text(json.dumps(facts | {"parts": results}, indent=1) + "\n")
    (folder / "campaign.md").write_text(report(facts, results))


def report(facts: Mapping, results: Sequence[Mapping]) -> str:
    """The campaign as Markdown: a table by part, then every sentence that was found."""
    absent = [name for name in PARTS if name not in [one["name"] for one in results]]
    columns = ["part", "tried", *ENDS, "seconds", "of which", "left out and why"]
    rows = []
    for one in results:
        about = ", ".join(f"{count:,} {name}" for name, count in one["about"].items())
        numbers = [f"{one[name]:,}" for name in ("tried", *ENDS)]
        left = "; ".join(one["left_out"]) or "nothing"
        rows.append([one["name"], *numbers, f"{one['seconds']:.0f}", about, left])
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
    found = [
        f"- {one['name']}: {' '.join(each.split())}" for one in results for each in one["found"]
    ]
    return "\n".join([
        "# Reliability campaign",
        "",
        f"`make campaign`, {facts['minutes']:g} minutes, seed {facts['seed']}, commit "
        f"{facts['commit']}."
        + (f" Not tried: {', '.join(absent)}." if absent else ""),
        "Survived: the identical result, or one clear sentence. Wrong: another result in silence. "
        "Lost: results that no start brings back.",
        "",
        *lines,
        "",
        "## Found",
        "",
        *(found or ["Nothing."]),
        "",
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where anything did not survive."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=FULL, help="of all parts together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="of the report")
    given = parser.parse_args(arguments)
    if not 0 < given.minutes < float("inf"):
        parser.error(f"--minutes is {given.minutes}; allowed: above 0")
    whole = given.minutes >= FULL and {*given.parts} == {*PARTS} and not unclean()
    target = given.folder or ROOT / "runs/reliability"
    work = Path(tempfile.mkdtemp(prefix="campaign-"))
    print(f"working in {work}")
    chosen = {name: PARTS[name] for name in given.parts}
    parts = campaign(work, given.minutes, given.seed, chosen, target)
    if whole and not given.folder:
        target = ROOT / "figures/reliability"
        write(target, parts, given.minutes, given.seed)
    print(f"written: {target}")
    return int(any(part.bad for part in parts))


if __name__ == "__main__":
    sys.exit(main())
