"""The stages of a corpus build: clean, embed, grow the clusters, write; each goes on after its last
finished shard.

A stage is a folder of numbered shards with a record each. The record is written last and tells
where in the source the shard ends and what was counted so far, so nothing but finished shards is
needed to go on.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from spnb.corpus.cleaning import Benchmarks, Duplicates, quality_reason
from spnb.corpus.clusters import Tree, Vectors, grow_tree, name_domains
from spnb.corpus.sources import CorpusError, CorpusSettings, Document, Reject, Source, to_document

Encode = Callable[[list[str]], Vectors]
"""Texts to float32 vectors [texts, dimensions]."""
BATCH = 256
"""Texts in one call of the encoder."""
NAMED_FROM = 200
"""Documents of a domain whose words may give its name."""
MAX_KEYS = 256
"""Different metadata keys in one corpus: each becomes a column."""
CLEAN = pa.schema([(name, pa.string()) for name in ("id", "title", "text", "metadata")])
"""Cleaned documents; metadata as JSON until all of its keys are known."""
TYPES = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "json": pa.string(),
}
"""Metadata columns by kind of value; `json` for lists, objects and keys whose values are of several
kinds."""


class Stage:
    """A stage's folder: numbered shards with a record each, written last. `records` are those of
    finished shards."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.records: list[dict[str, Any]] = []
        while (path := self.path(len(self.records), ".json")).is_file():
            self.records.append(json.loads(path.read_text()))

    def path(self, index: int, suffix: str) -> Path:
        """The file of a shard."""
        return self.folder / f"{index:05d}{suffix}"

    def commit(self, record: dict[str, Any]) -> None:
        """Finishes the next shard, whose files have been written."""
        with atomic(self.path(len(self.records), ".json")) as path:
            path.write_text(json.dumps(record))
        self.records.append(record)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends: a half-written file never has a
    whole one's name."""
    temporary = path.with_name(f".{path.name}.part{path.suffix}")
    yield temporary
    os.replace(temporary, path)


def progress(what: str, done: int, total: int | None, unit: str) -> tqdm:
    """A progress bar over all of a stage's work, of which `done` was done before."""
    look = {"unit": unit, "unit_scale": True, "file": sys.stdout, "mininterval": 1, "ncols": 90}
    return tqdm(desc=what, initial=done, total=total, **look)


def clean(source: Source, settings: CorpusSettings, benchmarks: Benchmarks, stage: Stage) -> None:
    """Reads the source from where the last finished shard ended; writes kept documents and their
    fingerprints.

    The last record, with `done`, counts over the whole source: `read`, `dropped` by reason,
    `characters` kept, and `types`, the kind of each metadata key.
    """
    state = {"read": 0, "position": 0, "dropped": {}, "types": {}, "characters": 0, "done": False}
    state |= stage.records[-1] if stage.records else {}
    if state["done"]:
        return
    kept = Duplicates(settings)
    for index in range(len(stage.records)):
        with np.load(stage.path(index, ".npz")) as arrays:
            kept.restore(arrays)
    dropped, documents, size = Counter(state["dropped"]), [], 0
    with progress("clean", state["position"], source.total, source.unit) as bar:
        for row, position in source.rows(state["position"]):
            if state["read"] == settings.limit:
                break
            document = _decide(row, state["read"], settings, kept, benchmarks)
            bar.update(position - state["position"])
            state |= {"read": state["read"] + 1, "position": position}
            if isinstance(document, Reject):
                dropped[document.reason] += 1
                continue
            state["types"] = merge_types(state["types"], document["metadata"])
            state["characters"] += len(document["text"])
            documents.append({**document, "metadata": json.dumps(document["metadata"])})
            size += sum(map(len, documents[-1].values()))
            if (
                len(documents) >= settings.shard_documents
                or size >= settings.shard_megabytes * 2**20
            ):
                _write_clean(stage, documents, kept, {**state, "dropped": dict(dropped)})
                documents, size = [], 0
        _write_clean(stage, documents, kept, {**state, "dropped": dict(dropped), "done": True})


def _decide(
    row: dict[str, Any] | Reject,
    number: int,
    settings: CorpusSettings,
    kept: Duplicates,
    benchmarks: Benchmarks,
) -> Document | Reject:
    """The document in a row, or why the corpus does not take it."""
    document = row if isinstance(row, Reject) else to_document(row, number, settings)
    if isinstance(document, Reject):
        return document
    reason = quality_reason(document["text"], settings) or kept.reason(document, benchmarks)
    return document if reason is None else Reject(reason)


def _write_clean(
    stage: Stage, documents: list[Document], kept: Duplicates, record: dict[str, Any]
) -> None:
    index = len(stage.records)
    with atomic(stage.path(index, ".parquet")) as path:
        pq.write_table(pa.Table.from_pylist(documents, CLEAN), path, compression="zstd")
    with atomic(stage.path(index, ".npz")) as path:
        np.savez(path, **kept.take_new())
    stage.commit({**record, "rows": len(documents)})


def merge_types(types: dict[str, str], metadata: dict[str, Any]) -> dict[str, str]:
    """The column types of metadata once more metadata is seen: a key with values of several types
    is kept as JSON.

    Raises:
        CorpusError: more keys than a table should have columns.
    """
    types = dict(types)
    for key, value in metadata.items():
        kind = type(value).__name__ if isinstance(value, bool | int | float | str) else "json"
        if kind == "int" and not -(2**63) <= value < 2**63:
            kind = "json"
        before = types.get(key, kind)
        if value is None:
            types[key] = types.get(key, "null")
        elif before == kind or before == "null":
            types[key] = kind
        else:
            types[key] = "float" if {before, kind} == {"int", "float"} else "json"
    if len(types) > MAX_KEYS:
        raise CorpusError(
            f"metadata has more than {MAX_KEYS} different keys, for instance {key!r}; allowed: {MAX_KEYS}"
        )
    return types


def default_encode(name: str) -> Encode:
    """The collection's encoder, loaded at its first use."""
    loaded: list[Any] = []

    def encode(texts: list[str]) -> Vectors:
        from spnb.corpus.dense import Encoder

        if not loaded:
            loaded.append(Encoder(name))
        return loaded[0].encode_passages(texts)

    return encode


def embed(cleaned: Stage, settings: CorpusSettings, encode: Encode, stage: Stage) -> None:
    """Unit vectors of title and text, a file [documents, dimensions] for each cleaned shard."""
    total, done = (sum(record["rows"] for record in of.records) for of in (cleaned, stage))
    with progress("embed", done, total, "doc") as bar:
        for index in range(len(stage.records), len(cleaned.records)):
            rows = pq.read_table(
                cleaned.path(index, ".parquet"), columns=["title", "text"]
            ).to_pylist()
            texts = [f"{row['title']}\n{row['text']}"[: settings.embed_chars] for row in rows]
            blocks = []
            for start in range(0, len(texts), BATCH):
                blocks.append(
                    _unit(encode(texts[start : start + BATCH]), len(texts[start : start + BATCH]))
                )
                bar.update(len(blocks[-1]))
            dimensions = {block.shape[1] for block in blocks} | {
                r["dimensions"] for r in stage.records if r["rows"]
            }
            if len(dimensions) > 1:
                raise CorpusError(
                    f"encode gives vectors of {sorted(dimensions)} dimensions; allowed: always the same"
                )
            with atomic(stage.path(index, ".npy")) as path:
                np.save(path, np.concatenate(blocks) if blocks else np.zeros((0, 0), np.float32))
            stage.commit({"rows": len(rows), "dimensions": next(iter(dimensions), 0)})


def _unit(vectors: Any, count: int) -> Vectors:
    """The encoder's answer to `count` texts, checked and scaled to length 1; a vector of zeros
    stays."""
    vectors = np.asarray(vectors, np.float32)
    if (
        vectors.ndim != 2
        or len(vectors) != count
        or not vectors.shape[1]
        or not np.isfinite(vectors).all()
    ):
        raise CorpusError(
            f"encode gives an array of shape {vectors.shape} for {count} texts; allowed: ({count}, dimensions), finite"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def grow(
    cleaned: Stage, vectors: Stage, settings: CorpusSettings, folder: Path
) -> tuple[Tree, list[str]]:
    """The clusters' centroids and the domains' names, from a random sample of all documents."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "names.json").is_file():
        return Tree.load(folder / "tree.npz"), json.loads((folder / "names.json").read_text())
    rows = [record["rows"] for record in vectors.records]
    starts, total = np.cumsum([0, *rows]), sum(rows)
    generator = np.random.default_rng(settings.seed)
    chosen = np.sort(generator.choice(total, min(total, settings.cluster_sample), replace=False))
    places = [
        chosen[(chosen >= low) & (chosen < low + n)] - low
        for low, n in zip(starts, rows, strict=False)
    ]
    sample = np.concatenate(
        [
            np.load(vectors.path(index, ".npy"), mmap_mode="r")[own]
            for index, own in enumerate(places)
            if len(own)
        ]
    )
    tree = grow_tree(sample, total, settings.domains, settings.cluster_size, settings.seed)
    names = _names(cleaned, places, tree.assign(sample)[0], len(tree.tops))
    with atomic(folder / "tree.npz") as path:
        tree.save(path)
    with atomic(folder / "names.json") as path:
        path.write_text(json.dumps(names))
    return tree, names


def _names(
    cleaned: Stage, places: Sequence[NDArray[Any]], domains: NDArray[Any], count: int
) -> list[str]:
    """Names from the sampled documents' first words, at most NAMED_FROM documents of a domain."""
    texts, owners, seen, start = [], [], Counter(), 0
    for index, own in enumerate(places):
        wanted = []
        for place, domain in zip(own, domains[start : start + len(own)].tolist(), strict=True):
            if seen[domain] < NAMED_FROM:
                seen[domain] += 1
                wanted.append(int(place))
                owners.append(domain)
        start += len(own)
        if wanted:
            column = pq.read_table(cleaned.path(index, ".parquet"), columns=["text"])["text"].take(
                wanted
            )
            texts += [text.as_py()[:2000] for text in column]
    return name_domains(texts, np.array(owners), count)


def finish(
    cleaned: Stage,
    vectors: Stage,
    tree: Tree,
    names: Sequence[str],
    settings: CorpusSettings,
    stage: Stage,
) -> None:
    """Assigns domain and cluster to each document and writes the shards of the corpus."""
    types = {
        key: kind
        for key, kind in cleaned.records[-1]["types"].items()
        if key not in ("domain", "cluster")
    }
    columns = {key: TYPES.get(kind, pa.string()) for key, kind in types.items()}
    metadata = pa.struct([*columns.items(), ("domain", pa.string()), ("cluster", pa.int64())])
    schema = pa.schema(
        [("id", pa.string()), ("title", pa.string()), ("text", pa.string()), ("metadata", metadata)]
    )
    total, done = (sum(record["rows"] for record in of.records) for of in (cleaned, stage))
    with progress("write", done, total, "doc") as bar:
        for index in range(len(stage.records), len(cleaned.records)):
            documents = pq.read_table(cleaned.path(index, ".parquet")).to_pylist()
            owners, clusters = (
                tree.assign(np.load(vectors.path(index, ".npy"))) if documents else ([], [])
            )
            for document, owner, cluster in zip(documents, owners, clusters, strict=True):
                own = json.loads(document["metadata"])
                domain = (
                    names[owner] if settings.domain_key is None else own.get(settings.domain_key)
                )
                own = {key: _cell(own.get(key), kind) for key, kind in types.items()}
                own |= {"domain": "other" if domain is None else str(domain), "cluster": cluster}
                document["metadata"] = own
            with atomic(stage.path(index, ".parquet")) as path:
                pq.write_table(
                    pa.Table.from_pylist(documents, schema),
                    path,
                    compression="zstd",
                    row_group_size=1000,
                )
            stage.commit({"rows": len(documents)})
            bar.update(len(documents))


def _cell(value: Any, kind: str) -> Any:
    """A metadata value as its column's type takes it."""
    if value is None:
        return None
    if kind == "float":
        return float(value)
    return json.dumps(value) if kind == "json" and not isinstance(value, str) else value
