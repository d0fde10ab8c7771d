"""Retrieval: rankings by hand and by brute force, the cache by content, stores that are read by
row."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest

from spnb.core.search import Hit
from spnb.corpus import dense
from spnb.corpus.dense import Encoder, build_index, choose_index, embed
from spnb.corpus.retrieval import KINDS, LocalRetriever, make_retriever, words
from spnb.corpus.store import CorpusError, JsonlStore, contents_of, open_store, split_contents
from spnb.lab.chain import CHAIN


def document(name, text, title=""):
    return {"id": name, "title": title, "text": text, "metadata": {"kind": "test"}}


SMALL = [
    document("a", "red red fox"),
    document("b", "red fish sea boat"),
    document("c", "green fish"),
    document("d", "green boat sea boat net"),
]


class WordEncoder:
    """An encoder without a model: hashed word counts as unit vectors; counts how many passages it
    was given."""

    def __init__(self, key="words", dimensions=32):
        self.key, self.dimensions, self.embedded = key, dimensions, 0

    def encode_passages(self, texts):
        self.embedded += len(texts)
        return self.encode_queries(texts)

    def encode_queries(self, texts):
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in words(text) or ["-"]:
                row += np.random.default_rng(sum(map(ord, word)) * 131 + len(word)).normal(
                    size=self.dimensions
                )
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="session")
def minilm():
    """The packaged encoder, loaded once."""
    return Encoder("minilm")


@pytest.fixture
def many():
    rng = np.random.default_rng(0)
    names = [f"w{i}" for i in range(80)]
    return [
        document(f"d{i}", " ".join(rng.choice(names, 12)), title=f"Title {i}") for i in range(400)
    ]


def write(path, documents):
    path.write_text(
        "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents), encoding="utf-8"
    )
    return path


def ids(hits):
    return [hit.id for hit in hits]


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("intfloat/e5-base-v2", {"query": "query: ", "document": "passage: "}),
        ("intfloat/multilingual-e5-large-instruct", {"query": "", "document": ""}),
        ("thenlper/gte-base", {"query": "", "document": ""}),
        ("snapshots/3fe5a0c1", {"query": "", "document": ""}),
    ],
)
def test_e5_is_asked_with_its_prefixes(name, prompts, monkeypatch):
    model = SimpleNamespace(prompts={"query": "", "document": ""})
    monkeypatch.setattr(dense, "_load_model", lambda name: model)
    monkeypatch.setattr(dense, "_digest", lambda model: str(model.prompts))
    assert Encoder(name).key == str(prompts)


def test_an_e5_that_has_prefixes_of_its_own_keeps_them(monkeypatch):
    model = SimpleNamespace(prompts={"query": "ask: ", "document": ""})
    monkeypatch.setattr(dense, "_load_model", lambda name: model)
    monkeypatch.setattr(dense, "_digest", lambda model: str(model.prompts))
    assert Encoder("my/e5-base").key == "{'query': 'ask: ', 'document': ''}"


def test_bm25_is_the_formula_computed_by_hand():
    # Lucene's BM25 with k1 0.9, b 0.4: idf = ln(1 + (N - df + .5) / (df + .5)), tf / (tf + k1 (1 -
    # b + b len / mean)).
    def idf(df):
        return math.log(1 + (4 - df + 0.5) / (df + 0.5))

    def part(tf, length):
        return tf / (tf + 0.9 * (0.6 + 0.4 * length / 3.5))

    hits = make_retriever("bm25", SMALL).search(["red boat"], 4)[0]
    expected = {
        "a": idf(2) * part(2, 3),
        "b": idf(2) * part(1, 4) + idf(2) * part(1, 4),
        "d": idf(2) * part(2, 5),
    }
    assert ids(hits) == ["b", "a", "d"]
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-5)


def test_bm25_ranks_only_documents_with_a_word_of_the_query():
    search = make_retriever("bm25", SMALL).search
    assert ids(search(["net"], 4)[0]) == ["d"]
    assert search(["whale"], 4) == [[]]
    assert search(["the of and"], 4) == [[]]


def test_equal_scores_come_in_the_order_of_the_corpus():
    same = [document(str(i), "one two") for i in range(20)] + [document("best", "one one")]
    assert ids(make_retriever("bm25", same).search(["one"], 4)[0]) == ["best", "0", "1", "2"]
    hits = make_retriever("flat", same, encoder=WordEncoder()).search(["one two"], 20)[0]
    assert ids(hits) == [str(i) for i in range(20)]


def test_bm25_searches_the_title_too_and_single_characters_and_digits():
    documents = [
        document("a", "about it", title="Arnford"),
        document("b", "7 ships"),
        document("c", "8 ships"),
    ]
    search = make_retriever("bm25", documents).search
    assert ids(search(["arnford"], 1)[0]) == ["a"]
    assert ids(search(["7 ships"], 2)[0]) == ["b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_flat_equals_brute_force_on_the_packaged_encoder(minilm, seed):
    corpus = random.Random(seed).sample(CHAIN.library("train"), 30)
    queries = [f"Who is the guide of {corpus[i]['title']}?" for i in range(0, 30, 5)]
    passages = minilm.encode_passages([f'"{d["title"]}"\n{d["text"]}' for d in corpus])
    scores = minilm.encode_queries(queries) @ passages.T
    assert np.linalg.norm(passages, axis=1) == pytest.approx(1, abs=1e-5)
    for hits, row in zip(
        make_retriever("flat", corpus, encoder=minilm).search(queries, 5), scores, strict=True
    ):
        assert ids(hits) == [corpus[i]["id"] for i in np.argsort(-row)[:5]]
        assert [hit.score for hit in hits] == pytest.approx(np.sort(row)[::-1][:5], abs=1e-5)


@pytest.mark.slow
def test_the_encoder_finds_meaning_where_no_word_is_shared(minilm):
    corpus = [
        document("boat", "A vessel crossed the ocean."),
        document("tax", "The levy on income was raised."),
    ]
    assert ids(make_retriever("dense", corpus, encoder=minilm).search(["a ship at sea"], 1)[0]) == [
        "boat"
    ]


@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
def test_approximate_indexes_find_most_of_what_is_exact(kind, many):
    encoder = WordEncoder()
    queries = [each["text"] for each in many[:100]]
    exact = make_retriever("flat", many, encoder=encoder).search(queries, 3)
    found = make_retriever(kind, many, encoder=encoder).search(queries, 3)
    recall = np.mean([len({*ids(x)} & {*ids(y)}) / 3 for x, y in zip(exact, found, strict=True)])
    assert recall > (0.95 if kind == "hnsw" else 0.6)


@pytest.mark.parametrize("kind", ["bm25", "flat", "hnsw", "ivfpq"])
def test_a_batch_equals_one_by_one_and_k_may_exceed_the_corpus(kind, many):
    retriever = make_retriever(kind, many, encoder=WordEncoder())
    queries = ["w1 w2 w3", "", "w7", "w60 w61", " \n", "w5 w5 w79"]
    batch = retriever.search(queries, 10_000)
    alone = [retriever.search([query], 10_000)[0] for query in queries]
    for together, single in zip(batch, alone, strict=True):
        assert {*ids(together)} == {*ids(single)} and ids(together)[:3] == ids(single)[:3]
        assert [hit.score for hit in together] == pytest.approx(
            [hit.score for hit in single], abs=1e-5
        )
    assert batch[1] == batch[4] == []
    assert all(len(hits) <= len(many) for hits in batch)
    assert kind != "flat" or len(batch[0]) == len(many)
    assert retriever.search([], 3) == []


@pytest.mark.slow
def test_batches_of_the_packaged_encoder_equal_one_by_one(minilm):
    retriever = make_retriever("flat", SMALL, encoder=minilm)
    queries = ["a fox", "where do fish of many colours live in the deep sea, and who catches them?"]
    for hits, query in zip(retriever.search(queries, 4), queries, strict=True):
        alone = retriever.search([query], 4)[0]
        assert ids(hits) == ids(alone)
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in alone], abs=1e-5)


def test_unicode_is_found_in_any_case_and_spelling(tmp_path):
    corpus = [
        document("a", "Zoë möchte CAFÉ — 東京"),
        document("b", "plain"),
        document("c", "Ελλάδα", title="ΕΛΛΆΔΑ"),
    ]
    for store in (corpus, write(tmp_path / "c.jsonl", corpus)):
        search = make_retriever("bm25", store).search
        assert ids(search(["cafe\u0301"], 3)[0]) == ["a"]
        assert ids(search(["東京"], 3)[0]) == ["a"]
        assert search(["ελλάδα"], 1)[0][0].text == "Ελλάδα"


def test_a_word_has_its_vowel_signs():
    corpus = [document("a", "क्रिकेट एक खेल है"), document("b", "कबीर की कविता"), document("c", "नदी")]
    assert ids(make_retriever("bm25", corpus).search(["क्रिकेट"], 3)[0]) == ["a"]
    assert words("हिन्दी में") == ["हिन्दी", "में"] and words("a_1 x²,½") == ["a_1", "x2", "1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bm25", "flat", "hnsw", "ivfpq"])
def test_a_second_build_loads_the_cache_and_a_changed_corpus_builds_anew(kind, many, tmp_path):
    path, cache = write(tmp_path / "corpus.jsonl", many), tmp_path / "cache"
    query = [many[3]["text"], many[9]["text"]]
    first = make_retriever(kind, path, cache, WordEncoder()).search(query, 3)
    assert first == make_retriever(kind, path, None, WordEncoder()).search(query, 3)
    folders = {p.name: p.stat().st_mtime_ns for p in cache.iterdir() if p.is_dir()}

    again = WordEncoder()
    assert make_retriever(kind, path, cache, again).search(query, 3) == first
    assert again.embedded == 0
    assert {p.name: p.stat().st_mtime_ns for p in cache.iterdir() if p.is_dir()} == folders

    write(path, [*many[:3], document("new", many[3]["text"] + " w1"), *many[4:]])
    changed = make_retriever(kind, path, cache, WordEncoder())
    assert len({p.name for p in cache.iterdir() if p.is_dir()}) == 2 * len(folders)
    assert changed.store[3].id == "new"


def test_another_encoder_builds_another_index_and_indexes_share_embeddings(many, tmp_path):
    first = WordEncoder()
    make_retriever("flat", many, tmp_path, first)
    make_retriever("hnsw", many, tmp_path, first)
    assert first.embedded == len(many)
    other = WordEncoder(key="other")
    make_retriever("flat", many, tmp_path, other)
    assert other.embedded == len(many)


def test_embedding_goes_on_where_it_stopped_and_leaves_no_half_index(many, tmp_path, monkeypatch):
    monkeypatch.setattr(dense, "BLOCK", 100)

    class Stops(WordEncoder):
        def encode_passages(self, texts):
            if self.embedded == 200:
                raise KeyboardInterrupt
            return super().encode_passages(texts)

    with pytest.raises(KeyboardInterrupt):
        make_retriever("flat", many, tmp_path, Stops())
    assert not list(tmp_path.glob("flat-????????????????"))
    rest = WordEncoder()
    resumed = make_retriever("flat", many, tmp_path, rest)
    assert rest.embedded == 200
    assert resumed.search(["w1 w2"], 5) == make_retriever("flat", many, None, WordEncoder()).search(
        ["w1 w2"], 5
    )
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("kind", ["bm25", "flat", "hnsw", "ivfpq"])
def test_a_loaded_index_is_memory_mapped(kind, many, tmp_path):
    retriever = make_retriever(
        kind, write(tmp_path / "c.jsonl", many), tmp_path / "cache", WordEncoder()
    )
    mapped = Path("/proc/self/maps")
    if not mapped.exists():
        pytest.skip("no /proc on this system")
    names = mapped.read_text()
    assert str(tmp_path / "c.jsonl") in names
    folder = next(p for p in (tmp_path / "cache").glob(f"{kind}-*") if p.is_dir())
    assert str(folder) in names
    assert len(retriever.store) == 400


@pytest.mark.slow
def test_two_processes_build_one_index(many, tmp_path):
    path = write(tmp_path / "c.jsonl", many)
    code = (
        "import sys; from spnb.corpus.retrieval import make_retriever\n"
        "retriever = make_retriever('bm25', sys.argv[1], sys.argv[2])\n"
        "print([hit.id for hit in retriever.search(['w1 w2'], 5)[0]])"
    )
    start = [sys.executable, "-c", code, str(path), str(tmp_path / "cache")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    answers = {run.communicate(timeout=60)[0] for run in runs}
    assert len(answers) == 1 and "d" in answers.pop()
    assert len([p for p in (tmp_path / "cache").iterdir() if p.is_dir()]) == 1


def test_stores_give_the_same_passages_from_every_form(many, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(many)
    rows.save_to_disk(str(tmp_path / "folder"))
    rows.to_parquet(str(tmp_path / "c.parquet"))
    forms = [
        many,
        rows,
        tmp_path / "folder",
        tmp_path / "c.parquet",
        write(tmp_path / "c.jsonl", many),
    ]
    for store in map(open_store, forms):
        assert len(store) == 400
        assert store[399] == Hit("d399", "Title 399", many[399]["text"], None)
    assert len({open_store(form).key for form in forms[:4]}) == 1


def test_a_key_tells_whatever_is_indexed_and_its_order():
    first, second = document("a", "fox", title="T"), document("b", "fish")
    changed = [first | {name: "other"} for name in ("id", "title", "text")]
    corpora = [[first, second], [second, first], *([one, second] for one in changed)]
    assert len({open_store(rows).key for rows in corpora}) == 5


def test_wikipedia_rows_of_search_r1_are_read(tmp_path):
    path = write(
        tmp_path / "wiki.jsonl",
        [{"id": "0", "contents": '"Arnford "Old" town"\nA town.\nBy a river.'}],
    )
    passage = open_store(path)[0]
    assert passage == Hit("0", 'Arnford "Old" town', "A town.\nBy a river.", None)
    assert split_contents(contents_of(passage)) == (passage.title, passage.text)
    assert split_contents("no title\nhere") == ("", "no title\nhere")
    assert split_contents(contents_of(Hit("x", "two\nlines", "t", None))) == ("two lines", "t")


def test_blank_lines_and_a_missing_last_line_break(tmp_path):
    path = tmp_path / "c.jsonl"
    lines = [json.dumps(document(name, name)) for name in "abc"]
    path.write_text(f"\n{lines[0]}\n\n  \n{lines[1]}\r\n{lines[2]}")
    store = JsonlStore(path)
    assert [store[i].id for i in range(len(store))] == ["a", "b", "c"]


def test_a_missing_title_and_half_a_character_end_nothing(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "a", "title": null, "text": "cut \\ud83d"}\n{"id": "b", "text": "x"}')
    store = JsonlStore(path)
    store.check()
    assert [(hit.title, hit.text) for hit in store] == [("", "cut ?"), ("", "x")]


def test_a_parquet_file_may_have_brackets_in_its_name_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "c[1].parquet"
    datasets.Dataset.from_list(SMALL).to_parquet(str(path))
    assert [hit.id for hit in open_store(path)] == [row["id"] for row in SMALL]
    path.write_bytes(b"bad")
    with pytest.raises(CorpusError, match=r"c\[1\].parquet is damaged \(.*; allowed: parquet"):
        open_store(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken", r"line 2 of c.jsonl is not JSON .*allowed: one document a line"),
        (b"\xff\xfe{}", r"line 2 of c.jsonl is not JSON"),
        (b"[" * 100_000, r"line 2 of c.jsonl is not JSON"),
        (b"[1]", r"line 2 of c.jsonl is list; allowed: a document with id, title and text"),
        (b'{"id": "b", "title": ""}', r"text of line 2 of c.jsonl is None; allowed: a string"),
        (b'{"id": 3, "title": "", "text": ""}', r"id of line 2 of c.jsonl is 3; allowed: a string"),
    ],
)
def test_a_bad_line_is_named(line, message, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(json.dumps(SMALL[0]).encode() + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match=message):
        make_retriever("bm25", path, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("bm25-????????????????"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tfidf", SMALL), "kind of retriever is 'tfidf'; allowed: bm25, dense, flat, hnsw, ivfpq"),
        (("bm25", []), "corpus has 0 documents; allowed: 1 or more"),
        (
            ("bm25", "/nowhere/c.jsonl"),
            r"corpus is '/nowhere/c.jsonl'; allowed: an existing .jsonl or .parquet file",
        ),
        (
            ("bm25", "/nowhere/c.txt"),
            "corpus is '/nowhere/c.txt'; allowed: an existing .jsonl or .parquet",
        ),
        (("bm25", [{"id": "a"}]), "text of document 0 is None; allowed: a string"),
        (("ivfpq", SMALL), "index is 'ivfpq' over 4 passages; allowed: 256 passages or more"),
        pytest.param(
            ("flat", SMALL, None, "/nowhere/model"),
            "encoder is '/nowhere/model'; allowed: minilm, or the folder",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_retriever(*arguments)


def test_compressed_vectors_need_256_passages(many):
    hits = make_retriever("ivfpq", many[:256], encoder=WordEncoder()).search(["w1 w2"], 3)[0]
    assert len(hits) == 3
    with pytest.raises(ValueError, match="index is 'ivfpq' over 255 passages; allowed: 256"):
        make_retriever("ivfpq", many[:255], encoder=WordEncoder())


def test_empty_file_folder_and_dimensions_are_named(tmp_path):
    (tmp_path / "c.jsonl").write_text("\n \n")
    with pytest.raises(ValueError, match="has 0 documents; allowed: 1 or more"):
        make_retriever("bm25", tmp_path / "c.jsonl")
    with pytest.raises(ValueError, match="or a folder that `spnb corpus` finished"):
        make_retriever("bm25", tmp_path)
    with pytest.raises(ValueError, match="over 30 dimensions; allowed: a multiple of 4"):
        build_index("ivfpq", [np.zeros((300, 30), dtype=np.float32)])


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        ("red", 1, "queries is 'red'; allowed: a list of strings"),
        (None, 1, "queries is None; allowed: a list of strings"),
        (["red", 3], 1, r"queries\[1\] is 3; allowed: a string"),
        (["red"], 0, "k is 0; allowed: an integer, 1 or more"),
        (["red"], 2.0, "k is 2.0; allowed"),
        (["red"], True, "k is True; allowed"),
    ],
)
def test_bad_requests_are_named(queries, k, message):
    with pytest.raises(ValueError, match=message):
        make_retriever("bm25", SMALL).search(queries, k)


def test_dense_chooses_its_index_by_size():
    assert [choose_index(n) for n in (1, 100_000, 100_001, 2_000_000, 21_015_324)] == [
        *("flat", "flat", "hnsw", "hnsw", "ivfpq")
    ]
    assert set(KINDS) == {"bm25", "dense", "flat", "hnsw", "ivfpq"}


def test_an_index_is_the_same_each_time(many):
    import faiss

    blocks = embed(open_store(many), WordEncoder())
    faiss.omp_set_num_threads(1)
    for kind in ("hnsw", "ivfpq"):
        assert np.array_equal(*(faiss.serialize_index(build_index(kind, blocks)) for _ in range(2)))


def test_a_hit_is_the_document_with_its_score():
    retriever = make_retriever("bm25", [document("a", "fox", title="T")])
    assert isinstance(retriever, LocalRetriever)
    hit = retriever.search(["fox"], 1)[0][0]
    assert hit == Hit("a", "T", "fox", hit.score) and hit.score == pytest.approx(
        math.log(4 / 3) / 1.9, rel=1e-5
    )
