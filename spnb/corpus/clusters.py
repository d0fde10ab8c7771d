"""Two levels of k-means clusters over document vectors (faiss), and names for the upper level from
its own words.

The upper level's clusters are domains; the lower level cuts each of them into clusters of about the
wanted number of documents (SPELL draws each question from one cluster of 20 documents on average).
Both are trained on a bounded sample; every other document is then assigned to its nearest
centroids, so memory does not grow with the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Tree:
    """Centroids of both levels.

    Attributes:
        tops: [domains, dimensions].
        leaves: [clusters, dimensions], those of one domain together.
        first: [domains + 1]; clusters `first[d]` to `first[d + 1] - 1` belong to domain d.
    """

    tops: Vectors
    leaves: Vectors
    first: NDArray[np.int64]

    def assign(self, vectors: Vectors) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Domain and cluster [documents] of each vector: the nearest upper centroid, then the
        nearest below it."""
        domains = _nearest(vectors, self.tops)
        clusters = np.zeros(len(vectors), np.int64)
        for domain in np.unique(domains):
            rows = np.flatnonzero(domains == domain)
            low, high = self.first[domain], self.first[domain + 1]
            clusters[rows] = low + _nearest(vectors[rows], self.leaves[low:high])
        return domains, clusters

    def save(self, path: Path) -> None:
        """Writes the tree as one .npz file."""
        np.savez(path, tops=self.tops, leaves=self.leaves, first=self.first)

    @classmethod
    def load(cls, path: Path) -> "Tree":
        """A tree that `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["tops"], arrays["leaves"], arrays["first"])


def grow_tree(sample: Vectors, total: int, domains: int, cluster_size: int, seed: int) -> Tree:
    """Trains both levels on a sample [documents, dimensions] of a corpus of `total` documents; same
    seed, same tree.

    A domain that holds a share s of the sample gets s * total / cluster_size clusters, at least one
    and at most as many as it has documents in the sample; so with a sample of less than total /
    cluster_size documents the clusters are larger.
    """
    tops = _centroids(sample, domains, seed)
    owner = _nearest(sample, tops)
    leaves = []
    for domain in range(len(tops)):
        members = sample[owner == domain]
        wanted = max(1, round(len(members) / len(sample) * total / cluster_size))
        leaves.append(
            _centroids(members, wanted, seed) if len(members) else tops[domain : domain + 1]
        )
    first = np.cumsum([0, *map(len, leaves)], dtype=np.int64)
    return Tree(tops, np.concatenate(leaves), first)


def _centroids(vectors: Vectors, count: int, seed: int) -> Vectors:
    """The best of three runs of k-means from k-means++ seeds; at most as many centroids as
    different vectors."""
    import faiss

    distinct = np.unique(vectors, axis=0)
    if len(distinct) <= count:
        return distinct
    means = faiss.Kmeans(
        vectors.shape[1], count, niter=20, nredo=3, seed=seed, min_points_per_centroid=1
    )
    means.cp.max_points_per_centroid = len(vectors)
    means.cp.init_method = faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS
    means.train(np.ascontiguousarray(vectors, np.float32))
    return means.centroids


def _nearest(vectors: Vectors, centroids: Vectors) -> NDArray[np.int64]:
    import faiss

    return faiss.knn(np.ascontiguousarray(vectors, np.float32), centroids, 1)[1][:, 0]


def name_domains(texts: Sequence[str], domains: NDArray[np.int64], count: int) -> list[str]:
    """A name for each of `count` domains: the three words whose mean tf-idf in it exceeds the
    corpus's mean most.

    Args:
        texts: some documents of each domain.
        domains: the domain of each text.

    Words have three letters or more; a domain without such words, or with another's name, is
    numbered.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        stop_words="english", token_pattern=r"(?u)\b[^\W\d_]{3,}\b", max_features=50_000
    )
    try:
        weights: Any = vectorizer.fit_transform(texts)
        words = vectorizer.get_feature_names_out()
    except ValueError:  # no text has a word that counts
        return [f"domain {domain}" for domain in range(count)]
    overall = np.asarray(weights.mean(axis=0)).ravel() if count > 1 else np.zeros(len(words))
    names: list[str] = []
    for domain in range(count):
        rows = np.flatnonzero(domains == domain)
        own = (
            np.asarray(weights[rows].mean(axis=0)).ravel() - overall
            if len(rows)
            else np.zeros(len(words))
        )
        best = [words[place] for place in np.argsort(-own, kind="stable")[:3] if own[place] > 0]
        name = ", ".join(best) or f"domain {domain}"
        names.append(f"{name} ({domain})" if name in names else name)
    return names
