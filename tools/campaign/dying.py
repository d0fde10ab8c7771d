"""Trains the run of a folder, and dies without a word at an event.

python -m tools.campaign.dying RUN_FOLDER EVENT

EVENT: one of `tests/train/rzero.py` (row-N, mark-N, move-N, finish), or seal-N: N checkpoints were
written, the last without its manifest.
"""

import os
import sys
from pathlib import Path

import tools.campaign  # noqa: F401  (makes the modules of tests known)

from rzero import arrange  # isort: skip
from spnb.train import run, trainer


def arrange_seal(count: int) -> None:
    """Makes the process die where it would seal its checkpoint of this number."""
    seal = trainer.seal
    sealed = []

    def dying(*arguments):
        sealed.append(arguments)
        if len(sealed) == count:
            os._exit(9)
        seal(*arguments)

    trainer.seal = dying


if __name__ == "__main__":
    name, _, number = sys.argv[2].partition("-")
    arrange_seal(int(number)) if name == "seal" else arrange(sys.argv[2])
    run.main(Path(sys.argv[1]))
