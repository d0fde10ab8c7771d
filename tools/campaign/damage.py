"""Two starts of a run at once, full disks, and files of a run's folder that are damaged."""

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from processes import RUN, start

from tools.campaign import Part, Trial, together
from tools.campaign.runs import Whole, ended, judge, said

SHORT, STAGED = "rlvr/think", "spice/r-zero"
SIZES = (0.03, 0.1, 0.25, 0.4, 0.6, 0.8, 0.97)
"""Of a disk, as shares of what the run writes."""
RECORDS = ("metrics.jsonl", "evals.jsonl", "items.jsonl", "rollouts.jsonl")
FILES = (*RECORDS, "config.json", "finished.json", "trained.json", "stages/0/method.json")
FILES += ("model/**/model.safetensors", "model/**/config.json", "stages/0/model.safetensors")
FILES += tuple(
    f"checkpoints/*/checkpoint-*/{name}"
    for name in ("manifest.json", "model.safetensors", "opt*.safetensors", "trainer_state.json")
)
"""Of each pattern the last file is damaged."""


def starts(part: Part) -> None:
    """Starts a run twice at the same time: one trains it, the other waits or says so."""
    whole = Whole(SHORT, part.folder)
    together(part, [partial(_started_twice, part, whole, n) for n in range(part.of(8))], workers=1)


def _started_twice(part: Part, whole: Whole, place: int) -> Trial:
    run = whole.again(part.folder / f"run-{place}")
    logs = [run.folder / name for name in ("log.txt", "second.txt")]
    both = [start(log, RUN, run.folder) for log in logs]
    while any(process.is_alive() for process in both):
        yield
    words = [log.read_text() for log in logs]
    codes = [process.exitcode for process in both]
    refused = [word for word, code in zip(words, codes, strict=True) if code]
    if 0 not in codes or any("is being written by" not in word for word in refused):
        return part.end("wrong", f"two starts at once ended with {codes}: {words}")
    logs[0].write_text("")
    judge(part, whole, run, 0, f"two starts at once, codes {codes}")


# --- disks


def disk(part: Part) -> None:
    """Runs on disks that are full at some time, and are larger at the next start."""
    small = part.folder / "disk"
    small.mkdir()
    if os.getuid() or _mount(small, 1 << 20):
        return part.leave_out("full disk: no tmpfs may be mounted here (it needs root)")
    subprocess.run(["umount", str(small)], check=True)
    for kind in (SHORT,) if part.short else (SHORT, STAGED):
        whole = Whole(kind, part.folder)
        need = sum(path.stat().st_size for path in whole.run.folder.rglob("*") if path.is_file())
        shares = part.random.sample(SIZES, min(len(SIZES), part.of(7)))
        trials = [partial(_filled, part, whole, small, int(share * need)) for share in shares]
        together(part, trials, workers=1)


def _filled(part: Part, whole: Whole, small: Path, size: int) -> Trial:
    _mount(small, size)
    try:
        run = whole.again(small / "runs")
        code = yield from ended(run)
        words = said(run)
        if not code or "Traceback" in words:
            return part.end("traceback" if code else "wrong", f"disk of {size}: {words[-300:]}")
        subprocess.run(["mount", "-o", "remount,size=1g", str(small)], check=True)
        code = yield from ended(run)
        judge(part, whole, run, code, f"disk of {size} bytes, then a larger one")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def _mount(folder: Path, size: int) -> int:
    options = ["-t", "tmpfs", "-o", f"size={max(size, 1 << 16)}", "tmpfs", str(folder)]
    return subprocess.run(["mount", *options], capture_output=True).returncode


# --- damage


def _bit(content: bytes) -> bytes:
    half = len(content) // 2
    return content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]


def _digit(content: bytes) -> bytes:
    at = max(match.start() for match in re.finditer(rb"\d", content))
    return content[:at] + (b"3" if content[at : at + 1] != b"3" else b"7") + content[at + 1 :]


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


CONTENT = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "noise": lambda content: bytes(range(256)) * 4,
    "one bit": _bit,
    "one digit": _digit,
    "null": lambda content: b"null\n",
    "nested": lambda content: b"[" * 100_000,
    "reversed": _lines(lambda lines: lines[::-1]),
    "a line twice": _lines(lambda lines: [*lines, lines[-1]]),
}
NAMES = {
    "deleted": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name(f"{path.name}.old")),
    "copied": lambda path: shutil.copy(path, path.with_name(f"copy-of-{path.name}")),
    "folder copied": lambda path: shutil.copytree(
        path.parent, path.parent.with_name("checkpoint-99")
    ),
}


def damage(part: Part) -> None:
    """Damages folders of finished runs and of unfinished ones, and starts them again."""
    wholes = [Whole(kind, part.folder) for kind in ((SHORT,) if part.short else (SHORT, STAGED))]
    ways = [
        one
        for one in itertools.product(FILES, [*CONTENT, *NAMES])
        if one[1] not in ("reversed", "a line twice") or one[0] in RECORDS
        if one[1] != "folder copied" or one[0].endswith("manifest.json")
    ]
    chosen = part.some([*itertools.product(ways, wholes, (False, True))])
    together(part, [partial(_damaged, part, n, *one) for n, one in enumerate(chosen)])


def _damaged(
    part: Part, place: int, kind: tuple[str, str], whole: Whole, unfinished: bool
) -> Trial:
    file, way = kind
    of = whole.half if unfinished else whole.run
    if not (found := sorted(of.folder.glob(file))):
        return
    run = whole.copy(part.folder / f"run-{place}", of)
    path = run.folder / found[-1].relative_to(of.folder)
    if way in NAMES:
        NAMES[way](path)
    else:
        path.write_bytes(CONTENT[way](path.read_bytes()))
    code = yield from ended(run)
    part.about["unfinished" if unfinished else "finished"] += 1
    about = f"damage: {file} {way}, in {'an unfinished' if unfinished else 'a finished'} run"
    judge(part, whole, run, code, about)
