"""A corpus of a user's own documents: cleaned, deduplicated, kept free of benchmarks, clustered.

    build_corpus("my/documents.jsonl", "corpora/mine", CorpusSettings(domains=8), questions)
    corpus = load_corpus("corpora/mine")  # id, title, text, metadata {..., domain, cluster}

Every stage (cleaning, vectors, clusters) is a `datasets.map` whose fingerprint says what decides
it: a build that was stopped goes on after its last finished stage, and other cluster settings reuse
the vectors. Memory holds a batch of documents, all vectors, and what `Filter` remembers.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Json, List, Value
from numpy.typing import NDArray
from pydantic import BaseModel

from spnb.core.disk import move, sync
from spnb.core.paths import resolve
from spnb.corpus.dense import Encoder, Vectors
from spnb.corpus.documents import FIELDS, Filter, Read, hash64, open_source, to_document
from spnb.corpus.documents import CorpusSettings as CorpusSettings
from spnb.corpus.store import CorpusError

Encode = Callable[[list[str]], Vectors]
"""Texts to float32 vectors [texts, dimensions]."""
LAYOUT = 4
"""Counts up when the same input would give another corpus, so that no older stage is reused."""
BATCH = 32
"""Documents in memory at a time, and in one call of the encoder."""
DOCUMENT = Features({**dict.fromkeys(FIELDS, Value("string")), "metadata": Json()})
EMBEDDING = {"encoder", "embed_chars"}
CLUSTERING = {"domains", "cluster_size", "seed"}


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
    smallest_cluster: int = 0

    def __str__(self) -> str:
        return self.model_dump_json(indent=1)


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
        folder: where the corpus is written; an older one in it is replaced at the end.
        benchmarks: texts that no document may contain: each question alone, and each long answer.
        encode: in place of the encoder that the settings name. Both names stand for it when stages
            are reused.

    Raises:
        CorpusError: a source or an encoder that is of no use.
    """
    source = os.fspath(source)
    folder = resolve(folder)
    settings = settings or CorpusSettings()
    if folder.is_file() or resolve(source) in (folder, *folder.parents):
        allowed = "a folder of its own, outside the source"
        raise CorpusError(f"folder is {str(folder)!r}; allowed: {allowed}")
    stages = folder / ".stages"
    stages.mkdir(parents=True, exist_ok=True)
    rows, read = open_source(source, settings, stages)
    texts = list(benchmarks)
    name = getattr(encode, "__qualname__", type(encode).__qualname__)
    clean = _key(rows._fingerprint, settings.model_dump(exclude=EMBEDDING | CLUSTERING), texts)
    embedded = _key(clean, name, settings.model_dump(include=EMBEDDING))
    final = _key(embedded, settings.model_dump(include=CLUSTERING))
    path = folder / f"documents-{final}.arrow"
    report = folder / "corpus.json"
    if report.is_file() and path.is_file():
        done = CorpusReport.model_validate_json(report.read_text())
        if done.key == final:
            return done
    rules = Filter(settings, texts)
    judged = _clean(rows, read, rules, settings, stages / f"clean-{clean}.arrow")
    dropped = Counter(reason for reason in judged["reason"] if reason)
    kept = judged.select(np.flatnonzero(np.array(judged["reason"]) == ""))
    if not len(kept):
        why = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        text = f"gives no usable document of {len(rows)} rows: {why}"
        raise CorpusError(f"source {source!r} {text}")
    vectors = _embed(kept, settings, encode, stages / f"vectors-{embedded}.arrow")
    corpus = _cluster(kept, vectors, settings, path)
    counts = {"key": final, "read": len(rows), "kept": len(kept), "dropped": dict(dropped)}
    about = CorpusReport(source=source, **counts, **_describe(corpus, rules))
    part = folder / ".corpus.json"
    part.write_text(str(about))
    sync(path)
    move(part, report)
    for other in set(folder.glob("documents-*.arrow")) - {path}:
        other.unlink()
    return about


def _describe(corpus: Dataset, rules: Filter) -> dict[str, Any]:
    """What a report says of the documents that were kept."""
    domains = Counter(metadata["domain"] for metadata in corpus["metadata"])
    clusters = Counter(metadata["cluster"] for metadata in corpus["metadata"])
    return {
        "characters": sum(map(len, corpus["text"])),
        "benchmarks": len(rules.benchmarks),
        "benchmarks_short": rules.short,
        "domains": dict(domains.most_common()),
        "clusters": len(clusters),
        "median_cluster": float(np.median(list(clusters.values()))),
        "smallest_cluster": min(clusters.values()),
    }


def _key(*parts: Any) -> str:
    return f"{hash64(json.dumps([LAYOUT, *parts], sort_keys=True)):016x}"


def _stage(data: Dataset, function: Any, path: Path, features: Features, **options: Any) -> Dataset:
    """`map` to one file, which is there only when it is whole."""
    return data.map(
        function,
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


def _clean(
    rows: Dataset, read: Read, rules: Filter, settings: CorpusSettings, path: Path
) -> Dataset:
    """A document a row, or the reason why it is none."""

    def clean(row: Any, number: int) -> dict[str, str]:
        document = to_document(read(row), number, settings.columns)
        if isinstance(document, str):
            return dict.fromkeys(FIELDS, "") | {"reason": document}
        return document | {"reason": rules.reason(document["id"], document["text"])}

    strings = Features(dict.fromkeys((*FIELDS, "reason"), Value("string")))
    return _stage(rows, clean, path, strings, with_indices=True)


def _embed(kept: Dataset, settings: CorpusSettings, encode: Encode | None, path: Path) -> Dataset:
    """Unit vectors of title and text."""

    def embed(titles: list[str], texts: list[str]) -> dict[str, Vectors]:
        nonlocal encode
        encode = encode or Encoder(settings.encoder).encode_passages
        pairs = zip(titles, texts, strict=True)
        heads = [f"{title}\n{text}"[: settings.embed_chars] for title, text in pairs]
        vectors = np.asarray(encode(heads), np.float32)
        good = vectors.ndim == 2 and vectors.size and np.isfinite(vectors).all()
        if not good or len(vectors) != len(heads):
            allowed = f"({len(heads)}, dimensions), finite"
            shape = f"of shape {vectors.shape} for {len(heads)} texts"
            raise CorpusError(f"encode gives an array {shape}; allowed: {allowed}")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return {"vector": vectors / np.where(lengths == 0, 1, lengths)}

    floats = Features({"vector": List(Value("float32"))})
    options = {"batched": True, "input_columns": ["title", "text"]}
    return _stage(kept, embed, path, floats, **options).with_format("numpy")


def _cluster(kept: Dataset, vectors: Dataset, settings: CorpusSettings, path: Path) -> Dataset:
    """The documents with domain and cluster in their metadata, by two levels of k-means."""
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

    def assign(row: Any, number: int) -> dict[str, Any]:
        own = {"domain": names[domains[number]], "cluster": int(clusters[number])}
        fields = {field: row[field] for field in FIELDS}
        return fields | {"metadata": json.loads(row["metadata"]) | own}

    return _stage(kept, assign, path, DOCUMENT, with_indices=True)


def kmeans(vectors: Vectors, count: int, seed: int) -> NDArray[np.int64]:
    """The cluster of each vector, by k-means++; at most as many as there are different vectors."""
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
    """The three words of highest tf-idf in each domain's first 200 documents, or its number."""
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
