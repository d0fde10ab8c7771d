"""A corpus of a user's own documents: cleaned, deduplicated, kept free of benchmarks, clustered.

    build_corpus("my/documents.jsonl", "corpora/mine", CorpusSettings(domains=8), questions)
    corpus = load_corpus("corpora/mine")  # id, title, text, metadata {..., domain, cluster}

Every stage is a `datasets.map` whose fingerprint says what decides it: a build that was stopped
goes on after its last finished stage (embedding: after its last `SHARD`); other cluster settings
reuse cleaned documents and their vectors. Memory holds a batch of documents, all vectors, and what
`Duplicates` and `Benchmarks` keep. `.stages` takes twice the corpus's size and may be deleted.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
import yaml
from datasets import Dataset, Features, Json, List, Value, concatenate_datasets
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from pydantic import BaseModel

from spnb.core.paths import resolve
from spnb.corpus.cleaning import Benchmarks, Duplicates, hash64, quality_reason, shingles, sketch
from spnb.corpus.sources import FIELDS, CorpusSettings, Read, open_source, to_document
from spnb.corpus.store import CorpusError
from spnb.corpus.store import load_corpus as load_corpus

Vectors = NDArray[np.float32]
Encode = Callable[[list[str]], Vectors]
"""Texts to float32 vectors [texts, dimensions]."""
LAYOUT = 2
"""Counts up when the same input would give another corpus, so that no older stage is reused."""
BATCH = 32
"""Documents in memory at a time, and in one call of the encoder."""
SHARD = 10_000
"""Documents whose vectors are one file."""


JUDGED = Features(
    {
        **dict.fromkeys((*FIELDS, "reason", "digest"), Value("string")),
        "signature": List(Value("uint32")),
        "characters": Value("int64"),
    }
)
DOCUMENT = Features({**dict.fromkeys(FIELDS, Value("string")), "metadata": Json()})
CLUSTERING = {"domains", "cluster_size", "domain_key", "seed"}
LATER = {"encoder", "embed_chars", *CLUSTERING}


class CorpusReport(BaseModel):
    """What became of a source's rows: `read` is `kept` plus all that `dropped` counts by reason."""

    source: str
    key: str
    read: int
    kept: int
    dropped: dict[str, int]
    characters: int
    benchmarks: int
    benchmarks_short: int
    domains: dict[str, int]
    clusters: int
    median_cluster: float

    def __str__(self) -> str:
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


def build_corpus(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    settings: CorpusSettings | None = None,
    benchmarks: Iterable[str] = (),
    encode: Encode | None = None,
) -> CorpusReport:
    """Builds a corpus, or goes on with one that was stopped; a finished one is only reported.

    Args:
        source: a JSONL file (.gz too), a folder of text files, or a `datasets` id or folder.
        folder: where the corpus is written; one of other input in it is replaced at the end.
        benchmarks: texts that no document may contain, for instance each question with its answer.
        encode: an own encoder. Its name and `settings.encoder` stand for it when stages are reused:
            give another `encoder` with another one. Default: the encoder that the settings name.

    Raises:
        CorpusError: nothing usable in the source, a source that cannot be read, an encoder of the
            wrong shape, or a folder that another process is writing to.
    """
    settings = settings or CorpusSettings()
    name, folder = os.fspath(source), resolve(folder)
    if folder.is_file() or resolve(name) in (folder, *folder.parents):
        allowed = "a folder of its own, outside the source"
        raise CorpusError(f"folder is {str(folder)!r}; allowed: {allowed}")
    stages = folder / ".stages"
    stages.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            n, threshold = settings.shingle_words, settings.contamination_threshold
            search = Benchmarks(benchmarks, n, threshold)
            rows, read = open_source(name, settings, stages)
            encoder = getattr(encode, "__qualname__", type(encode).__qualname__)
            embedding = [encoder, settings.encoder, settings.embed_chars]
            clean = _key(rows._fingerprint, settings.model_dump(exclude=LATER), search.texts)
            final = _key(clean, embedding, settings.model_dump(include=CLUSTERING))
            path = folder / f"documents-{final}.arrow"
            report = folder / "corpus.json"
            if report.is_file() and path.is_file():
                return CorpusReport.model_validate_json(report.read_text())
            judged = _judge(rows, read, settings, search, stages / f"clean-{clean}.arrow")
            kept, dropped = _keep(judged, settings, stages / f"marks-{clean}.arrow", name)
            vectors = _embed(kept, settings, encode, stages, _key(clean, embedding))
            corpus = _cluster(kept, vectors, settings, path)
            domains = Counter(metadata["domain"] for metadata in corpus["metadata"])
            clusters = Counter(metadata["cluster"] for metadata in corpus["metadata"])
            about = CorpusReport(
                source=name,
                key=final,
                read=len(rows),
                kept=len(kept),
                dropped=dropped,
                characters=sum(kept["characters"]),
                benchmarks=len(search),
                benchmarks_short=search.short,
                domains=dict(domains.most_common()),
                clusters=len(clusters),
                median_cluster=float(np.median(list(clusters.values()))),
            )
            part = folder / ".corpus.json"
            part.write_text(about.model_dump_json(indent=1))
            os.replace(part, report)
            for other in set(folder.glob("documents-*.arrow")) - {path}:
                other.unlink()
            return about
    except Timeout:
        raise CorpusError(f"folder {folder} is written by another process; wait for it") from None


def _key(*parts: Any) -> str:
    return f"{hash64(json.dumps([LAYOUT, *parts], sort_keys=True)):016x}"


def _stage(data: Dataset, function: Any, path: Path, features: Features, **options: Any) -> Dataset:
    """`map` to one file, which is there only when it is whole."""
    return data.map(
        function,
        batched=True,
        batch_size=BATCH,
        writer_batch_size=BATCH,
        remove_columns=data.column_names,
        features=features,
        cache_file_name=str(path),
        load_from_cache_file=True,
        new_fingerprint=path.stem,
        desc=path.stem.partition("-")[0],
        **options,
    )


def _judge(
    rows: Dataset, read: Read, settings: CorpusSettings, search: Benchmarks, path: Path
) -> Dataset:
    """Every row as a document, with the first reason that speaks against it and its signature."""

    def judge(row: dict[str, Any] | str, number: int) -> dict[str, Any]:
        document = row if isinstance(row, str) else to_document(row, number, settings)
        if isinstance(document, str):
            document = {**dict.fromkeys(FIELDS, ""), "reason": document}
        text = document["text"]
        reason = document.get("reason") or quality_reason(text, settings)
        signature, shared = sketch(settings.permutations), set()
        for block in shingles(text, settings.shingle_words) if not reason else ():
            signature.update_batch(block)
            shared |= search.shared(block)
        return {
            **document,
            "reason": reason or "benchmark contamination" * search.contaminate(shared),
            "signature": signature.hashvalues,
            "digest": xxhash.xxh3_128_hexdigest(" ".join(text.split()).encode()),
            "characters": len(text),
        }

    def judge_batch(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        judged = list(map(judge, read(batch, indices), indices))
        return {key: [document[key] for document in judged] for key in JUDGED}

    return _stage(rows, judge_batch, path, JUDGED, with_indices=True)


def _keep(
    judged: Dataset, settings: CorpusSettings, path: Path, source: str
) -> tuple[Dataset, dict[str, int]]:
    """The documents that nothing speaks against, duplicates left out; how many were dropped why."""
    duplicates = Duplicates(settings.permutations, settings.duplicate_threshold)

    def mark(batch: dict[str, list[Any]]) -> dict[str, list[str]]:
        rows = zip(batch["reason"], batch["id"], batch["digest"], batch["signature"], strict=True)
        return {"reason": [reason or duplicates.reason(*row) for reason, *row in rows]}

    columns = judged.select_columns(["reason", "id", "digest", "signature"])
    reasons = np.array(_stage(columns, mark, path, Features({"reason": Value("string")}))["reason"])
    dropped = Counter(reasons[reasons != ""].tolist())
    if len(reasons) == dropped.total():
        why = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        text = f"gives no usable document of {len(reasons)} rows: {why}"
        raise CorpusError(f"source {source!r} {text}")
    return judged.select(np.flatnonzero(reasons == "")), dict(dropped)


def _embed(
    kept: Dataset, settings: CorpusSettings, encode: Encode | None, stages: Path, key: str
) -> Dataset:
    """Unit vectors of title and text, a file for each shard."""
    encode = encode or (lambda texts: _encoder(settings.encoder).encode_passages(texts))

    def embed(batch: dict[str, list[str]]) -> dict[str, Vectors]:
        pairs = zip(batch["title"], batch["text"], strict=True)
        texts = [f"{title}\n{text}"[: settings.embed_chars] for title, text in pairs]
        vectors = np.asarray(encode(texts), np.float32)
        good = vectors.ndim == 2 and vectors.size and np.isfinite(vectors).all()
        if not good or len(vectors) != len(texts):
            allowed = f"({len(texts)}, dimensions), finite"
            shape = f"of shape {vectors.shape} for {len(texts)} texts"
            raise CorpusError(f"encode gives an array {shape}; allowed: {allowed}")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return {"vector": vectors / np.where(lengths == 0, 1, lengths)}

    shards = []
    for start in range(0, len(kept), SHARD):
        shard = kept.select(range(start, min(start + SHARD, len(kept))))
        path = stages / f"vectors-{key}-{start}.arrow"
        shards.append(_stage(shard, embed, path, Features({"vector": List(Value("float32"))})))
    return concatenate_datasets(shards).with_format("numpy")


@cache
def _encoder(name: str) -> Any:
    from spnb.corpus.dense import Encoder

    return Encoder(name)


def _cluster(kept: Dataset, vectors: Dataset, settings: CorpusSettings, path: Path) -> Dataset:
    """The documents with domain and cluster in their metadata, by two levels of k-means."""
    keys = {key for text in kept["metadata"] for key in json.loads(text)}
    if settings.domain_key is not None and settings.domain_key not in keys:
        allowed = f"a key of the documents' metadata ({', '.join(sorted(keys)) or 'there is none'})"
        raise CorpusError(f"domain_key is {settings.domain_key!r}; allowed: {allowed}")
    points = vectors[:]["vector"]
    if points.ndim != 2:
        raise CorpusError("encode gives vectors of several lengths; allowed: always the same")
    domains = kmeans(points, settings.domains, settings.seed)
    clusters = np.zeros(len(points), np.int64)
    for domain in np.unique(domains):
        rows = domains == domain
        count = max(1, round(rows.sum() / settings.cluster_size))
        clusters[rows] = clusters.max() + 1 + kmeans(points[rows], count, settings.seed)
    names = name_domains(kept, domains)

    def assign(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        metadata = [json.loads(text) for text in batch["metadata"]]
        for own, row in zip(metadata, indices, strict=True):
            label = names[domains[row]]
            if settings.domain_key is not None:
                label = str(own.get(settings.domain_key) or "other")
            own |= {"domain": label, "cluster": int(clusters[row])}
        return {**{key: batch[key] for key in FIELDS}, "metadata": metadata}

    return _stage(kept, assign, path, DOCUMENT, with_indices=True)


def kmeans(vectors: Vectors, count: int, seed: int) -> NDArray[np.int64]:
    """The cluster of each vector [rows, dimensions]: the best of three runs of k-means++ (faiss);
    at most as many clusters as different vectors."""
    import faiss

    points = np.ascontiguousarray(vectors, np.float32)
    centroids = np.unique(points, axis=0)
    if len(centroids) > count:
        options = {"niter": 20, "nredo": 3, "seed": seed, "min_points_per_centroid": 1}
        means = faiss.Kmeans(points.shape[1], count, **options)
        means.cp.init_method = faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS
        means.train(points)
        centroids = means.centroids
    return faiss.knn(points, centroids, 1)[1][:, 0]


def name_domains(documents: Dataset, domains: NDArray[np.int64]) -> list[str]:
    """A name for each domain: its number, and the three words of highest tf-idf in its first 200
    documents where it has words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = []
    for domain in range(domains.max() + 1):
        rows = np.flatnonzero(domains == domain)[:200]
        texts.append(" ".join(text[:2000] for text in documents.select(rows)["text"]))
    pattern = r"(?u)\b[^\W\d_]{3,}\b"
    vectorizer = TfidfVectorizer(stop_words="english", token_pattern=pattern)
    try:
        weights = vectorizer.fit_transform(texts).toarray()
    except ValueError:  # no text has a word that counts
        return [f"domain {domain}" for domain in range(len(texts))]
    words = vectorizer.get_feature_names_out()
    best = [[words[place] for place in row.argsort()[:-4:-1] if row[place]] for row in weights]
    return [", ".join(names) or f"domain {domain}" for domain, names in enumerate(best)]
