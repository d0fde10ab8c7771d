"""A corpus of a user's own documents: cleaned, deduplicated, decontaminated, clustered, in the
collection's schema.

    report = build_corpus("my/documents.jsonl", "corpora/mine", CorpusSettings(domains=8),
    benchmarks=questions) corpus = load_corpus("corpora/mine")     # a datasets.Dataset: id, title,
    text, metadata {..., domain, cluster}

Stages, each a folder of shards under `.stages/`: `clean` (read, filter, deduplicate,
decontaminate), `vectors` (embed), `tree` (clusters trained on a sample, domains named), `final`
(clusters assigned, documents written). A shard is finished when its record is there, and the record
is written last; a build that was killed goes on after the last finished shard and ends with the
same corpus. A stage's folder carries a hash of everything that decides it, so other cluster
settings reuse the cleaned documents and their vectors.

Memory holds one shard, the vectors of the cluster sample, and what `Duplicates` and `Benchmarks`
say they keep; it does not grow with the corpus's text. On disk the stages take about the size of
the corpus and its vectors; `.stages` may be deleted when the corpus is finished.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from pydantic import BaseModel

from spnb.core.paths import resolve
from spnb.corpus import stages as stages
from spnb.corpus.cleaning import Benchmarks
from spnb.corpus.sources import CorpusError, CorpusSettings, open_source
from spnb.corpus.stages import Encode, Stage, atomic

LAYOUT = 1
"""Counts up when the same input would give another corpus, so that no stage of an older version is
reused."""
EMBEDDING = {"encoder", "embed_chars"}
CLUSTERING = {"domains", "cluster_size", "cluster_sample", "domain_key", "seed"}


class CorpusReport(BaseModel):
    """What became of a source's rows. `read` is `kept` plus all that `dropped` counts by reason.

    `characters` counts the kept texts'; `benchmarks` the benchmark texts that were looked for,
    `benchmarks_short` those too short to look for; `domains` the documents of each;
    `median_cluster` the documents in the median cluster.
    """

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
        lines = [
            f"{self.source}: {self.read} rows read, {self.kept} documents kept ({self.characters} characters)"
        ]
        lines += [f"  dropped, {reason}: {count}" for reason, count in self.dropped.items()]
        lines += [
            f"  benchmark texts looked for: {self.benchmarks}; too short to look for: {self.benchmarks_short}"
        ]
        lines += [
            f"  clusters: {self.clusters}, the median one of {self.median_cluster:g} documents"
        ]
        return "\n".join(
            lines + [f"  domain {name}: {count} documents" for name, count in self.domains.items()]
        )


def build_corpus(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    settings: CorpusSettings | None = None,
    benchmarks: Iterable[str] = (),
    encode: Encode | None = None,
) -> CorpusReport:
    """Builds a corpus, or goes on with one that was stopped; a finished one of the same input is
    only reported.

    Args:
        source: a JSONL file, a folder of text files, or a `datasets` id or folder.
        folder: where the corpus is written; a corpus of other input or settings in it is replaced
            at the end.
        benchmarks: texts that no document may contain, for instance each question with its answer.
        encode: an own encoder. Its name and `settings.encoder` stand for it when stages are reused:
            give another `encoder` with another one. Default: the encoder that the settings name.

    Raises:
        CorpusError: nothing usable in the source, a source that cannot be read, an encoder of the
            wrong shape, or a folder that another process is writing to.
    """
    settings, folder = settings or CorpusSettings(), resolve(folder)
    if folder.is_file() or resolve(source) in (folder, *folder.parents):
        raise CorpusError(
            f"folder is {str(folder)!r}; allowed: a folder of its own, outside the source"
        )
    opened, looked_for = open_source(os.fspath(source), settings), Benchmarks(benchmarks, settings)
    keys = _keys(settings, opened.identity, looked_for.digest, encode)
    with _locked(folder):
        report = _finished(folder)
        if report is not None and report.key == keys["final"]:
            return report
        folders = {name: folder / ".stages" / f"{name}-{key}" for name, key in keys.items()}
        cleaned, vectors, final = (Stage(folders[name]) for name in ("clean", "vectors", "final"))
        stages.clean(opened, settings, looked_for, cleaned)
        facts = cleaned.records[-1]
        _check(source, settings, facts)
        stages.embed(cleaned, settings, encode or stages.default_encode(settings.encoder), vectors)
        tree, names = stages.grow(cleaned, vectors, settings, folders["tree"])
        stages.finish(cleaned, vectors, tree, names, settings, final)
        about = {
            "source": os.fspath(source),
            "key": keys["final"],
            **_counts(facts, looked_for),
            **_sizes(final),
        }
        return _publish(
            folder, CorpusReport(**about), final, {path.name for path in folders.values()}
        )


def load_corpus(folder: str | os.PathLike[str]) -> Any:
    """A finished corpus as a memory-mapped `datasets.Dataset`; `datasets` keeps its Arrow copy in
    `.arrow` beside it.

    Raises:
        CorpusError: no finished corpus there.
    """
    from datasets import Dataset

    folder = resolve(folder)
    files = sorted(map(str, folder.glob("documents-*.parquet")))
    if not files or not (folder / "corpus.json").is_file():
        raise CorpusError(
            f"folder is {str(folder)!r}, which holds no finished corpus; allowed: one that build_corpus wrote"
        )
    return Dataset.from_parquet(files, cache_dir=str(folder / ".arrow"))


def _finished(folder: Path) -> CorpusReport | None:
    """The report of the finished corpus in a folder, if there is one."""
    path = folder / "corpus.json"
    return CorpusReport.model_validate_json(path.read_text()) if path.is_file() else None


def _keys(
    settings: CorpusSettings, source: str, benchmarks: str, encode: Encode | None
) -> dict[str, str]:
    """A key for each stage, over all that decides its shards: its own settings and the stage
    before."""
    own = {"mode": "json", "exclude": EMBEDDING | CLUSTERING}
    clean = _key(source, benchmarks, settings.model_dump(**own))
    name = None if encode is None else getattr(encode, "__qualname__", type(encode).__qualname__)
    vectors = _key(clean, name, settings.model_dump(mode="json", include=EMBEDDING))
    final = _key(vectors, settings.model_dump(mode="json", include=CLUSTERING))
    return {"clean": clean, "vectors": vectors, "tree": final, "final": final}


def _key(*parts: Any) -> str:
    return sha256(json.dumps([LAYOUT, *parts], sort_keys=True).encode()).hexdigest()[:12]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise CorpusError(
            f"folder {folder} is being written by another process; wait for it or stop it"
        ) from None


def _check(source: str | os.PathLike[str], settings: CorpusSettings, facts: dict[str, Any]) -> None:
    """Stops where no document is left, or none has the key that is to be its domain."""
    if facts["read"] == sum(facts["dropped"].values()):
        why = (
            ", ".join(f"{reason} {count}" for reason, count in facts["dropped"].items())
            or "it is empty"
        )
        raise CorpusError(
            f"source {os.fspath(source)!r} gives no usable document of {facts['read']} rows: {why}"
        )
    if settings.domain_key is not None and settings.domain_key not in facts["types"]:
        known = ", ".join(sorted(facts["types"])) or "there is none"
        raise CorpusError(
            f"domain_key is {settings.domain_key!r}; allowed: a key of the documents' metadata ({known})"
        )


def _counts(facts: dict[str, Any], benchmarks: Benchmarks) -> dict[str, Any]:
    counts = {key: facts[key] for key in ("read", "dropped", "characters")}
    kept = facts["read"] - sum(facts["dropped"].values())
    return {
        **counts,
        "kept": kept,
        "benchmarks": len(benchmarks),
        "benchmarks_short": benchmarks.short,
    }


def _sizes(final: Stage) -> dict[str, Any]:
    """Documents of each domain, largest first, and the clusters' number and median size."""
    domains, clusters = Counter(), Counter()
    for index in range(len(final.records)):
        metadata = pq.read_table(final.path(index, ".parquet"), columns=["metadata"])[
            "metadata"
        ].combine_chunks()
        domains.update(metadata.field("domain").to_pylist())
        clusters.update(metadata.field("cluster").to_pylist())
    median = float(np.median(list(clusters.values())))
    return {
        "domains": dict(domains.most_common()),
        "clusters": len(clusters),
        "median_cluster": median,
    }


def _publish(folder: Path, report: CorpusReport, final: Stage, used: set[str]) -> CorpusReport:
    """Puts finished shards in place of an older corpus, then the report; stages of other input are
    deleted."""
    (folder / "corpus.json").unlink(missing_ok=True)
    shutil.rmtree(folder / ".arrow", ignore_errors=True)
    for path in folder.glob("documents-*.parquet"):
        path.unlink()
    shards = [index for index, record in enumerate(final.records) if record["rows"]]
    for number, index in enumerate(shards):
        shutil.copyfile(final.path(index, ".parquet"), folder / f"documents-{number:05d}.parquet")
    with atomic(folder / "corpus.json") as path:
        path.write_text(report.model_dump_json(indent=1))
    for stage in final.folder.parent.iterdir():
        if stage == final.folder or stage.name not in used:
            shutil.rmtree(stage)
    return report
