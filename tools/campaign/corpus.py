"""Builds a corpus of generated texts: python -m tools.campaign.corpus FOLDER."""

import json
import random
import sys
from pathlib import Path

import numpy as np

DOCUMENTS = 400
LETTERS = "abcdefghijklmnop"


def encode(texts: list[str]) -> np.ndarray:
    """Counts of letters, in place of an encoder: [texts, letters]."""
    return np.array([[text.count(one) + 1 for one in LETTERS] for text in texts], np.float32)


def rows() -> list[dict[str, str]]:
    """Documents of random words, always the same, every tenth there twice."""
    rng = random.Random(0)
    words = ["".join(rng.choices(LETTERS, k=6)) for _ in range(2000)]
    texts = [" ".join(rng.choices(words, k=60)) for _ in range(DOCUMENTS)]
    return [{"id": str(n), "text": texts[n - n % 10 // 9]} for n in range(DOCUMENTS)]


if __name__ == "__main__":
    from spnb.corpus.build import CorpusSettings, build_corpus

    folder = Path(sys.argv[1])
    source = folder.parent / "documents.jsonl"
    if not source.is_file():
        source.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    small = CorpusSettings(min_chars=1, min_words=1, domains=2, cluster_size=3)
    print(build_corpus(source, folder / "corpus", small, encode=encode))
