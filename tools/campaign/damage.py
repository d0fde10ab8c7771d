"""Two starts of a run at once, full disks, and files of a run's folder that are damaged."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from processes import RUN, start

from tools.campaign import Part, Trial, together
from tools.campaign.runs import Whole, ended, judge, said

SHORT = "rlvr/think"
STAGED = "spice/r-zero"
SIZES = (0.03, 0.1, 0.25, 0.4, 0.6, 0.8, 0.97)
"""Of a disk, as shares of what the run writes."""
FILES = (
    "config.json",
    "metrics.jsonl",
    "evals.jsonl",
    "items.jsonl",
    "rollouts.jsonl",
    "finished.json",
    "trained.json",
    "model/**/model.safetensors",
    "model/**/config.json",
    "stages/0/method.json",
    "stages/0/model.safetensors",
    "checkpoints/*/checkpoint-*/manifest.json",
    "checkpoints/*/checkpoint-*/model.safetensors",
    "checkpoints/*/checkpoint-*/optimizer.pt",
    "checkpoints/*/checkpoint-*/trainer_state.json",
)
"""Of each pattern the last file is damaged."""


def starts(part: Part) -> None:
    """Starts a run twice at the same time: one trains it, the other says so in a sentence."""
    whole = Whole(SHORT, part.folder)
    together(part, [partial(_started_twice, part, whole, n) for n in range(part.of(8))], workers=1)


def _started_twice(part: Part, whole: Whole, place: int) -> Trial:
    run = whole.again(part.folder / f"run-{place}")
    logs = [run.folder / name for name in ("log.txt", "second.txt")]
    both = [start(log, RUN, run.folder) for log in logs]
    while any(process.is_alive() for process in both):
        yield
    codes = [process.exitcode for process in both]
    words = [log.read_text() for log in logs]
    refused = [word for word, code in zip(words, codes, strict=True) if code]
    if 0 not in codes or any("is being written by" not in word for word in refused):
        return part.end("wrong", f"two starts at once ended with {codes}: {words}")
    logs[0].write_text("")
    judge(part, whole, run, 0, f"two starts at once, codes {codes},")


# --- disks


def disk(part: Part) -> None:
    """Runs on disks that are full at some time, and are larger at the next start."""
    small = part.folder / "disk"
    small.mkdir()
    if os.getuid() or _mount(small, 1 << 20):
        return part.leave_out("full disk: no tmpfs may be mounted here (needs root and a mount)")
    _umount(small)
    for kind in (SHORT, STAGED):
        whole = Whole(kind, part.folder)
        need = sum(p.stat().st_size for p in whole.run.folder.rglob("*") if p.is_file())
        shares = part.random.sample(SIZES, part.of(len(SIZES)))
        for share in shares if kind == SHORT or part.scale > 0.1 else []:
            if not part.late:
                together(part, [partial(_filled, part, whole, small, int(share * need))])
        part.tally(kind, len(shares))


def _filled(part: Part, whole: Whole, small: Path, size: int) -> Trial:
    _mount(small, size)
    try:
        run = whole.again(small / "runs")
        code = yield from ended(run)
        words = said(run)
        subprocess.run(["mount", "-o", "remount,size=1g", str(small)], check=True)
        if not code or "Traceback" in words:
            return part.end("traceback" if code else "wrong", f"disk of {size}: {words[-300:]}")
        code = yield from ended(run)
        judge(part, whole, run, code, f"disk of {size} bytes, then a larger one,")
    finally:
        _umount(small)


def _mount(folder: Path, size: int) -> int:
    options = ["-t", "tmpfs", "-o", f"size={max(size, 1 << 16)}", "tmpfs", str(folder)]
    return subprocess.run(["mount", *options], capture_output=True).returncode


def _umount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


# --- damage


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 4)


def _bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _digit(path: Path) -> None:
    """Another digit in the place of the last that is a fraction's."""
    content = path.read_bytes()
    places = [n for n in range(1, len(content)) if content[n : n + 1].isdigit()]
    place = next((n for n in places[::-1] if content[n - 1 : n] == b"."), places[-1])
    changed = b"3" if content[place : place + 1] != b"3" else b"7"
    path.write_bytes(content[:place] + changed + content[place + 1 :])


def _lines(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[::-1]))


def _twice(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))


def _rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.old"))


def _copy(path: Path) -> None:
    shutil.copy(path, path.with_name(f"copy-of-{path.name}"))


def _deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def _null(path: Path) -> None:
    path.write_text("null\n")


def _checkpoint_copied(path: Path) -> None:
    """The folder of a checkpoint, also under a later number."""
    shutil.copytree(path.parent, path.parent.with_name("checkpoint-99"))


ANY = {"deleted": Path.unlink, "emptied": _empty, "cut": _cut, "noise": _noise, "one bit": _bit}
ANY |= {"renamed": _rename, "copied": _copy}
TEXT = {"one digit": _digit, "null": _null, "nested": _deep}
OWN = {".jsonl": {"reversed": _lines, "last line twice": _twice}}
OWN |= {"manifest.json": {"folder copied": _checkpoint_copied}}


def kinds_of_damage() -> list[tuple[str, str, Callable[[Path], None]]]:
    """Each file with all that is done to it."""
    found = []
    for file in FILES:
        text = TEXT if ".json" in file else {}
        own = next((ways for name, ways in OWN.items() if file.endswith(name)), {})
        found += [(file, name, way) for name, way in (ANY | text | own).items()]
    return found


def damage(part: Part) -> None:
    """Damages folders of finished runs and of unfinished ones, and starts them again."""
    wholes = [Whole(kind, part.folder) for kind in (SHORT, STAGED)]
    if part.scale < 0.1:
        wholes = wholes[:1]
    every = [
        (*one, whole, half) for one in kinds_of_damage() for whole in wholes for half in (0, 1)
    ]
    chosen = part.random.sample(every, min(len(every), part.of(2 * len(every))))
    together(part, [partial(_damaged, part, n, *one) for n, one in enumerate(chosen)])


def _damaged(
    part: Part,
    place: int,
    file: str,
    name: str,
    way: Callable[[Path], None],
    whole: Whole,
    half: bool,
) -> Trial:
    run = whole.copy(part.folder / f"run-{place}", whole.half if half else whole.run)
    found = sorted(run.folder.glob(file))
    if not found:
        shutil.rmtree(run.root)
        return None
    way(found[-1])
    code = yield from ended(run)
    part.tally(f"{'unfinished' if half else 'finished'}")
    about = f"damage: {file} {name} in {'an unfinished' if half else 'a finished'} run"
    judge(part, whole, run, code, about)
