"""Trains a run on a disk that notes what a power cut would leave at each moment of it.

python tests/train/power.py RUNS FOLDER IMAGES COUNT [FORGETS]

The run in FOLDER, below RUNS, is trained to its end. What was left at COUNT moments of it, chosen
at random, and after its end lies in IMAGES/0, IMAGES/1 and so on, each as RUNS; `promised.json`
holds for each the steps up to the last checkpoint that was complete. FORGETS is a pattern of the
files of which nothing is put on the disk.
"""

import json
import os
import random
import stat
import sys
from pathlib import Path

from spnb.core import disk
from spnb.train import trainer
from spnb.train.run import train_run
from spnb.train.runs import read_run


class Disk:
    """What a power cut leaves of a folder: of each file the bytes, of each folder the names, that
    it had when it was last synced, and nothing of what never was."""

    def __init__(self, root):
        self.kept, self.held, self.moments, self.promised = {}, [], [], 0
        self.root = root.stat().st_ino
        for path in (root, *root.rglob("*")):
            self.sync(os.open(path, os.O_RDONLY))

    def sync(self, handle):
        status = os.fstat(handle)
        if status.st_ino not in self.kept:
            self.held.append(os.dup(handle))  # so that no other file gets this number
        if stat.S_ISDIR(status.st_mode):
            names = [(entry.name, entry.inode(), entry.is_dir()) for entry in os.scandir(handle)]
            self.kept[status.st_ino] = names
        else:
            self.kept[status.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()
        self.moments.append((self.promised, dict(self.kept)))

    def seal(self, folder, state):
        SEAL(folder, state)
        self.promised = state["run"]["rows"]["metrics"]
        self.moments.append((self.promised, dict(self.kept)))


def lay(kept, number, target):
    """Writes what is left of a folder."""
    target.mkdir(parents=True)
    for name, inner, is_folder in kept.get(number, []):
        if is_folder:
            lay(kept, inner, target / name)
        else:
            (target / name).write_bytes(kept.get(inner, b""))


SEAL, SYNC = trainer.seal, disk._sync


def main(runs, folder, images, count, forgets=""):
    noted = Disk(Path(runs))
    noted.moments.clear()
    os.fsync, trainer.seal = noted.sync, noted.seal
    disk._sync = lambda path: None if forgets and path.match(forgets) else SYNC(path)
    train_run(read_run(Path(folder)))
    end = (noted.promised, noted.kept)
    chosen = sorted(random.Random(0).sample(range(len(noted.moments)), int(count)))
    left = [*(noted.moments[place] for place in chosen), end]
    for number, (_, kept) in enumerate(left):
        lay(kept, noted.root, Path(images) / str(number))
    (Path(images) / "promised.json").write_text(json.dumps([steps for steps, _ in left]))
    print(f"{len(noted.moments)} moments, chosen {chosen}")


if __name__ == "__main__":
    main(*sys.argv[1:])
