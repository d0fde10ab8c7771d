"""What the campaign kills, in a process of its own.

    python -m tools.campaign.work run FOLDER EVENT      trains a run and dies at an event
    python -m tools.campaign.work notebook FOLDER       executes a paper's notebook
    python -m tools.campaign.work corpus FOLDER         builds a corpus of generated texts

EVENT: one of `tests/train/rzero.py` (row-N, mark-N, move-N, finish), or seal-N: N checkpoints were
written, the last without its manifest.
"""

import json
import os
import random
import sys
from pathlib import Path

import numpy as np

import tools.campaign  # noqa: F401  (makes the modules of tests known)

PAPER, VARIANT = "rlvr", "think"
"""Of the notebook."""
DOCUMENTS = 400
LETTERS = "abcdefghijklmnop"


def run(folder: Path, event: str) -> None:
    """Trains the run of a folder, up to an event."""
    from rzero import arrange

    from spnb.train import run, trainer

    name, _, number = event.partition("-")
    seal, sealed = trainer.seal, []

    def dying(*arguments):
        sealed.append(arguments)
        if len(sealed) == int(number):
            os._exit(9)
        seal(*arguments)

    if name == "seal":
        trainer.seal = dying
    else:
        arrange(event)
    run.main(folder)


def notebook(folder: Path) -> None:
    """Executes a notebook at smoke scale; its copy, runs and exhibits stay in the folder."""
    from spnb.report import notebooks

    notebooks.resolve = lambda path: folder / path
    inside = {"runs": str(folder / "runs"), "figures": str(folder / "figures")}
    notebooks.execute(PAPER, "smoke", variants=[VARIANT], seeds=[0], **inside)


def corpus(folder: Path) -> None:
    """Builds a corpus of random words, always the same; every tenth document is there twice."""
    from spnb.corpus.build import CorpusSettings, build_corpus

    rng = random.Random(0)
    words = ["".join(rng.choices(LETTERS, k=6)) for _ in range(2000)]
    texts = [" ".join(rng.choices(words, k=60)) for _ in range(DOCUMENTS)]
    rows = [{"id": str(n), "text": texts[n - n % 10 // 9]} for n in range(DOCUMENTS)]
    source = folder.parent / "documents.jsonl"
    if not source.is_file():
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = CorpusSettings(min_chars=1, min_words=1, domains=2, cluster_size=3)
    build_corpus(source, folder / "corpus", small, encode=encode)


def encode(texts: list[str]) -> np.ndarray:
    """Counts of letters, in place of an encoder: [texts, letters]."""
    return np.array([[text.count(one) + 1 for one in LETTERS] for text in texts], np.float32)


if __name__ == "__main__":
    ways = {"run": run, "notebook": notebook, "corpus": corpus}
    ways[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
