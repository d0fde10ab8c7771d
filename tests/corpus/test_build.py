"""The corpus pipeline: sources, filters, duplicates, contamination, clusters, resuming, memory, and
its errors."""

import gzip
import json
import random
import shutil
import subprocess
import sys
import tracemalloc
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from pydantic import ValidationError

from spnb.corpus import build
from spnb.corpus.build import CorpusReport, build_corpus, kmeans, name_domains
from spnb.corpus.documents import CorpusSettings, Filter, quality_reason, read_benchmarks, shingles
from spnb.corpus.store import CorpusError, load_corpus, told_by

SMALL = {"min_chars": 1, "min_words": 1, "domains": 2, "cluster_size": 3}
PLAIN = CorpusSettings(**SMALL)


def words(count, seed):
    """Words that no other seed has, so that texts of different seeds share no n-gram."""
    rng = random.Random(seed)
    return [
        "".join(rng.choices("abcdefghijklmnop", k=6)) + chr(ord("q") + seed % 10)
        for _ in range(count)
    ]


def text(seed, count=60):
    return " ".join(words(count, seed))


def encode(texts):
    """A fake encoder of four dimensions: counts of some letters, which is all that these tests
    need."""
    return np.array(
        [[t.count("a") + 1, t.count("b"), t.count("c"), len(t) % 7] for t in texts], np.float32
    )


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(folder):
    return load_corpus(folder).to_list()


def texts_of(folder):
    return [row["text"] for row in rows_of(folder)]


# ---------------------------------------------------------------- n-grams, similarity


def test_shingles_are_hashes_of_word_ngrams():
    import xxhash

    assert shingles("One, two THREE four", 3) == [
        xxhash.xxh3_64_intdigest(b"one two three"),
        xxhash.xxh3_64_intdigest(b"two three four"),
    ]
    assert len(shingles("two words", 5)) == 1
    assert shingles("!!!", 5) != shingles("???", 5)
    assert len(shingles("東京は大きい", 2)) == 5  # six characters, each a word


def similar(share, seed, total=400):
    """Two texts whose 1-gram sets have Jaccard similarity `share`: so many of the `total` words are
    in both."""
    every = [f"{word}{place}" for place, word in enumerate(words(total, seed))]
    common, rest = every[: round(total * share)], every[round(total * share) :]
    half = len(rest) // 2
    return " ".join(common + rest[:half]), " ".join(common + rest[half:])


def rules(benchmarks=(), **values):
    return Filter(CorpusSettings(**SMALL, shingle_words=1, **values), benchmarks)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "dropped"), [(0.95, 40), (0.9, 40), (0.65, 0), (0.3, 0)])
def test_near_duplicates_on_both_sides_of_the_threshold(share, dropped):
    """40 pairs at .9 or .95 are all found, 40 at .65 none: the threshold .8 is 3 or more standard
    errors away."""
    reasons = []
    for seed in range(40):
        duplicates = rules()
        first, second = similar(share, seed)
        assert duplicates.reason("1", first) == ""
        reasons.append(duplicates.reason("2", second))
    assert reasons.count("near duplicate") == dropped and reasons.count("") == 40 - dropped


def test_threshold_decides():
    first, second = similar(0.7, 3)
    for threshold, reason in ((0.6, "near duplicate"), (0.8, "")):
        duplicates = rules(duplicate_threshold=threshold)
        duplicates.reason("1", first)
        assert duplicates.reason("2", second) == reason


def test_exact_duplicates_and_repeated_ids():
    duplicates = rules()
    assert duplicates.reason("1", "a b  c") == ""
    assert duplicates.reason("2", " a b\nc ") == "exact duplicate"
    assert duplicates.reason("1", text(1)) == "repeated id"
    assert duplicates.reason("3", "A B C") == "near duplicate"  # casefolded
    assert duplicates.reason("3", text(2)) == ""  # what was not kept is not remembered


# ---------------------------------------------------------------- contamination, quality


@pytest.mark.parametrize(("count", "threshold"), [(24, 0.8), (20, 0.8), (19, 0.75)])
def test_contamination_is_containment_of_the_benchmark_text(tmp_path, count, threshold):
    """A question of 24 words has 20 5-grams: a document with its first 20 words holds 16 of them,
    .8; with 19, .75; one more word is needed than the document beside it has."""
    question = words(24, 1)
    rows = [
        {"text": " ".join([text(seed, 100), *question[:length], text(seed + 20, 100)])}
        for seed, length in ((2, count), (3, round(threshold * 20) + 3))
    ]
    settings = CorpusSettings(**SMALL, contamination_threshold=threshold)
    source = write(tmp_path / "rows.jsonl", rows)
    report = build_corpus(
        source, tmp_path / "corpus", settings, [" ".join(question), "too short"], encode
    )
    assert report.dropped == {"benchmark contamination": 1}
    assert texts_of(tmp_path / "corpus") == [rows[1]["text"]]
    assert (report.benchmarks, report.benchmarks_short) == (1, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'one question\n {"question": "q", "answer": "a"}\n', "line 2 of benchmarks .* is JSON;"),
        (b"\xff\xfe", "benchmarks is .*utf-8.*; allowed: a UTF-8 file of one text a line"),
        (None, "benchmarks is .*No such file.*; allowed: a UTF-8 file"),
    ],
)
def test_a_file_of_benchmarks_that_would_keep_nothing_out_is_refused(tmp_path, content, message):
    path = tmp_path / "named.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read_benchmarks(str(path))


def test_a_file_of_benchmarks_has_a_text_a_line(tmp_path):
    path = tmp_path / "named.txt"
    path.write_text("\ufeffthe set {1, 2}\n\na line\u2028of two\n{1, 2}\n")
    assert read_benchmarks(str(path)) == ["the set {1, 2}", "a line\u2028of two", "{1, 2}"]


def test_benchmarks_are_found_in_any_case_and_punctuation():
    search = Filter(PLAIN, ["Who made the first Map of the Town?"])
    reason = search.reason("1", "they asked: who made the FIRST map, of the town")
    assert reason == "benchmark contamination"


def test_a_benchmark_text_has_as_many_words_as_an_n_gram_or_more():
    search = Filter(PLAIN, ["one two three four five", "six seven eight nine"])
    assert (len(search.benchmarks), search.short) == (1, 1)
    assert search.reason("1", "x one two three four five") == "benchmark contamination"
    assert search.reason("2", "x six seven eight nine") == ""


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("short", "too short"),
        (text(1, 100) * 2_000, "too long"),
        ("x" * 60 + " " + "y" * 60, "too few words"),
        ("the " * 120_000, "too many words"),
        ("12345 67890 a " * 20, "too few letters"),
        ("abcdefghijklmnopqrst " * 30, "words too long"),
        ("word # " * 30, "too many symbols"),
        ("the same line again and again\n" * 10, "repeated lines"),
        (text(1), ""),
    ],
)
def test_quality_rules_name_their_reason(broken, reason):
    assert quality_reason(broken, CorpusSettings()) == reason


LOOSE = dict(min_chars=1, min_words=0, min_alphabetic=0, max_word_length=99, max_symbols=9)
LOOSE |= dict(max_repeated_lines=1)


@pytest.mark.parametrize(
    ("limits", "kept", "broken", "reason"),
    [
        ({"min_chars": 5}, "a b c", "a bc", "too short"),
        ({"max_chars": 5}, "a b c", "a b cd", "too long"),
        ({"min_words": 2}, "a b", "ab", "too few words"),
        ({"max_words": 2}, "a b", "a b c", "too many words"),
        ({"min_alphabetic": 0.5}, "ab 1 2", "ab 1 2 3", "too few letters"),  # of what is seen
        ({"max_word_length": 3}, "abcd ab", "abcd abc", "words too long"),  # in the mean
        ({"max_symbols": 1}, "a# b...", "a# b... \u2026", "too many symbols"),
        ({"max_repeated_lines": 0.5}, "a\na\n\nb\n b", "a\n a\na\n\nb\nb", "repeated lines"),
    ],
)
def test_a_quality_rules_limit_itself_is_allowed(limits, kept, broken, reason):
    settings = CorpusSettings(**LOOSE | limits)
    assert [quality_reason(text, settings) for text in (kept, broken)] == ["", reason]


# ---------------------------------------------------------------- rows and sources


def test_bad_rows_are_counted_with_a_reason(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = json.dumps(
        {"id": "good", "title": "T", "text": text(1), "metadata": {"year": 1999}}
    ).encode()
    lines = [
        b"\xef\xbb\xbf" + good,
        b"",
        b"\xff\xfe",
        b"{not json",
        b"[1, 2]",
        b'{"id": 1}',
        b'{"text": "  "}',
    ]
    lines += [
        b'{"text": "half \\ud800 pair"}',
        b'{"text": "words", "metadata": 3}',
        b"[" * 100_000,
        b'{"text": 5}',
        b'""',
        b'"a whole text as a string"',
        b"null",
    ]
    path.write_bytes(b"\n".join(lines))
    report = build_corpus(path, tmp_path / "corpus", PLAIN, encode=encode)
    assert report.dropped == {
        "empty row": 1,
        "not UTF-8": 2,
        "not JSON": 2,
        "not an object": 4,
        "no text": 2,
        "empty text": 1,
        "metadata is no object": 1,
    }
    assert report.read == 14 and report.kept == 1 and report.characters == len(text(1))
    (row,) = rows_of(tmp_path / "corpus")
    assert (row["id"], row["title"], row["text"], row["metadata"]["year"]) == (
        "good",
        "T",
        text(1),
        1999,
    )
    assert '"not UTF-8": 2' in str(report)


@pytest.mark.slow
def test_ten_megabyte_documents(tmp_path):
    long = " ".join(f"{place:x}" + "word" * 9 for place in range(256_000))
    assert len(long) > 10 * 2**20
    path = write(
        tmp_path / "rows.jsonl", [{"text": text(1)}, {"text": long}, {"text": long + " end"}]
    )
    assert build_corpus(path, tmp_path / "a", PLAIN, encode=encode).dropped == {"too long": 2}
    roomy = CorpusSettings(**SMALL, max_word_length=50, max_chars=20_000_000, max_words=2_000_000)
    report = build_corpus(path, tmp_path / "b", roomy, encode=encode)
    assert report.dropped == {"near duplicate": 1} and texts_of(tmp_path / "b") == [text(1), long]


def sources(tmp_path):
    """The same four documents as a text folder, JSONL, gzipped JSONL, a saved dataset and a folder
    of parquet."""
    names = ["a.txt", "b.md", "deep/c.txt", "deep/d.txt"]
    rows = [
        {"id": name, "title": name.split("/")[-1].split(".")[0], "text": f"{text(seed)}\nüber"}
        for seed, name in enumerate(names)
    ]
    for row in rows:
        (tmp_path / "texts" / row["id"]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / row["id"]).write_text(row["text"], encoding="utf-8")
    (tmp_path / "texts" / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "texts" / ".hidden.txt").write_text("no document")
    jsonl = write(tmp_path / "rows.jsonl", rows)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(jsonl.read_bytes()))
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "parquet").mkdir()
    Dataset.from_list(rows).to_parquet(str(tmp_path / "parquet" / "rows.parquet"))
    (tmp_path / "parquet" / "README.md").write_text("about")
    return [
        tmp_path / name for name in ("texts", "rows.jsonl", "rows.jsonl.gz", "saved", "parquet")
    ]


@pytest.mark.slow
def test_every_source_gives_the_same_documents(tmp_path):
    corpora = []
    for place, source in enumerate(sources(tmp_path)):
        build_corpus(source, tmp_path / f"corpus{place}", PLAIN, encode=encode)
        corpora.append(rows_of(tmp_path / f"corpus{place}"))
    assert all(corpus == corpora[0] for corpus in corpora) and len(corpora[0]) == 4
    assert corpora[0][2]["id"] == "deep/c.txt" and corpora[0][2]["title"] == "c"
    assert load_corpus(tmp_path / "corpus0").cache_files  # memory-mapped
    assert not list((tmp_path / "saved").glob("*cache*"))  # the source stays as it was


@pytest.mark.parametrize("place", range(5))
def test_a_limit_keeps_the_first_documents_of_every_source(tmp_path, place):
    source = sources(tmp_path)[place]
    settings = CorpusSettings(**SMALL, limit=3)
    report = build_corpus(source, tmp_path / "corpus", settings, encode=encode)
    assert (report.read, report.kept) == (3, 3)
    assert [row["id"] for row in rows_of(tmp_path / "corpus")] == ["a.txt", "b.md", "deep/c.txt"]


@pytest.mark.slow
def test_a_limit_reads_no_more_than_it_needs(tmp_path):
    """Sources whose later part cannot be read."""
    settings = CorpusSettings(**SMALL, limit=3)
    path = write(tmp_path / "rows.jsonl", [{"text": text(seed, 900)} for seed in range(1000)])
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    (tmp_path / "parquet").mkdir()
    rows = Dataset.from_list([{"text": text(seed)} for seed in range(5)])
    rows.to_parquet(str(tmp_path / "parquet" / "train-0.parquet"))
    (tmp_path / "parquet" / "train-1.parquet").write_bytes(b"damaged")
    for source in ("rows.jsonl.gz", "parquet"):
        with pytest.raises(CorpusError, match="allowed: a JSONL file"):
            build_corpus(tmp_path / source, tmp_path / "whole", PLAIN, encode=encode)
        report = build_corpus(tmp_path / source, tmp_path / "c", settings, encode=encode)
        assert (report.read, report.kept) == (3, 3)


def test_non_utf8_text_files_are_skipped(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "good.txt").write_text(text(1))
    (tmp_path / "texts" / "latin.txt").write_bytes("Müller".encode("latin-1"))
    (tmp_path / "texts" / "empty.txt").write_text("")
    report = build_corpus(tmp_path / "texts", tmp_path / "corpus", PLAIN, encode=encode)
    assert report.kept == 1 and report.dropped == {"empty text": 1, "not UTF-8": 1}


def test_columns_of_another_name(tmp_path):
    rows = [{"contents": text(seed), "about": {"url": f"u{seed}"}, "noise": 1} for seed in range(3)]
    path = write(tmp_path / "rows.jsonl", rows)
    settings = CorpusSettings(**SMALL, columns={"text": "contents", "metadata": "about"})
    build_corpus(path, tmp_path / "corpus", settings, encode=encode)
    found = rows_of(tmp_path / "corpus")
    assert [row["id"] for row in found] == ["000000000", "000000001", "000000002"]
    assert [row["metadata"]["url"] for row in found] == ["u0", "u1", "u2"] and "noise" not in found[
        0
    ]["metadata"]


def test_metadata_of_mixed_kinds_is_kept(tmp_path):
    metadata = [{"n": 1, "m": 1, "l": [1]}, {"n": 2.5, "m": "two", "o": None}, {"b": True}]
    rows = [{"text": text(seed), "metadata": own} for seed, own in enumerate(metadata)]
    build_corpus(write(tmp_path / "rows.jsonl", rows), tmp_path / "corpus", PLAIN, encode=encode)
    for row, own in zip(rows_of(tmp_path / "corpus"), metadata, strict=True):
        assert own.items() <= row["metadata"].items()
        assert set(row["metadata"]) - set(own) == {"domain", "cluster"}


# ---------------------------------------------------------------- clusters


def blobs(seed=0):
    """Three domains far apart; in each, two clusters of 20 near each other. Returns vectors and
    their true cluster."""
    rng = np.random.default_rng(seed)
    centres = [
        10 * np.eye(5)[domain] + side * np.eye(5)[3] for domain in range(3) for side in (-1, 1)
    ]
    truth = np.repeat(np.arange(6), 20)
    vectors = np.array([centres[cluster] for cluster in truth]) + rng.normal(0, 0.05, (120, 5))
    order = rng.permutation(120)
    return vectors[order].astype(np.float32), truth[order]


def partition(labels):
    return {frozenset(np.flatnonzero(labels == label)) for label in set(labels.tolist())}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_separable_vectors_are_split_right_and_the_same_each_time(tmp_path, seed):
    vectors, truth = blobs(seed)
    labels = kmeans(vectors, 3, seed)
    assert partition(labels) == partition(truth // 2)
    assert np.array_equal(labels, kmeans(vectors, 3, seed))
    rows = [{"text": text(place, 8)} for place in range(120)]
    by_text = {row["text"]: vector for row, vector in zip(rows, vectors, strict=True)}

    def see(texts):
        return np.array([by_text[text.strip()] for text in texts])

    settings = CorpusSettings(min_chars=1, min_words=1, domains=3, cluster_size=20, seed=seed)
    build_corpus(write(tmp_path / "r.jsonl", rows), tmp_path / "c", settings, encode=see)
    metadata = [row["metadata"] for row in rows_of(tmp_path / "c")]
    clusters = np.array([own["cluster"] for own in metadata])
    assert partition(clusters) == partition(truth)
    assert len({(own["domain"], own["cluster"]) for own in metadata}) == 6


def test_fewer_vectors_than_clusters():
    vectors = np.array([[0, 1], [1, 0], [1, 0]], np.float32)
    labels = kmeans(vectors, 5, 0)
    assert labels[1] == labels[2] != labels[0]


def test_domains_are_named_by_their_own_words():
    texts = ["the bank raised its profit and the bank paid", "profit of the bank fell"] * 3
    texts += ["the river flows under the bridge", "a bridge over the river is old"] * 3
    names = name_domains(Dataset.from_dict({"text": texts}), np.repeat([0, 1], 6))
    assert {"bank", "profit"} <= set(names[0].split(", "))
    assert {"river", "bridge"} <= set(names[1].split(", "))
    assert [len(name.split(", ")) for name in names] == [3, 3] and names[0].startswith("bank, ")
    numbers = Dataset.from_dict({"text": ["1 2", "3"]})
    assert name_domains(numbers, np.array([0, 1])) == ["domain 0", "domain 1"]


def test_domains_and_clusters_of_a_corpus(tmp_path):
    """Documents about two subjects; the fake encoder sees the subject, and the domain's name says
    it."""
    subjects = {"river": [1, 0], "profit": [0, 1]}
    rows = [
        {"text": f"{subject} {subject} " + text(2 * seed + side), "metadata": {"kind": subject}}
        for seed in range(10)
        for side, subject in enumerate(subjects)
    ]
    path = write(tmp_path / "rows.jsonl", rows[:-1] + [{"text": text(77) + " river"}])

    def see(texts):
        return np.array(
            [subjects["river" if "river" in t else "profit"] for t in texts], np.float32
        )

    report = build_corpus(path, tmp_path / "corpus", CorpusSettings(**SMALL), encode=see)
    found = rows_of(tmp_path / "corpus")
    assert all(
        row["metadata"]["domain"].startswith("river") == ("river" in row["text"]) for row in found
    )
    assert (
        sorted(report.domains.values()) == [9, 11] and report.clusters == 2
    )  # equal vectors stay together
    assert report.smallest_cluster == 9


def test_clusters_are_as_many_as_their_size_says_and_the_report_describes_them(tmp_path):
    """Eleven documents, four a cluster: nearest are three clusters, here of 8, 2 and 1."""
    words = ["river"] * 8 + ["profit"] * 2 + ["harbour"]
    rows = [{"text": f"{word} {text(seed, 9)}"} for seed, word in enumerate(words)]

    def see(texts):
        return np.array([[t.startswith(f"\n{w}") for w in sorted({*words})] for t in texts], float)

    settings = CorpusSettings(min_chars=1, min_words=1, domains=1, cluster_size=4)
    report = build_corpus(write(tmp_path / "r.jsonl", rows), tmp_path / "c", settings, encode=see)
    assert (report.clusters, report.median_cluster, report.smallest_cluster) == (3, 2, 1)


def test_titles_and_the_beginnings_of_texts_are_embedded(tmp_path):
    seen = []
    rows = [{"title": "Rivers", "text": text(1)}, {"text": text(2)}]
    settings = CorpusSettings(**SMALL, embed_chars=20)

    def noted(texts):
        seen.extend(texts)
        return encode(texts)

    build_corpus(write(tmp_path / "r.jsonl", rows), tmp_path / "c", settings, encode=noted)
    assert seen == [f"Rivers\n{text(1)[:13]}", f"\n{text(2)[:19]}"]


def test_vectors_are_compared_by_their_direction(tmp_path):
    """The second is far from both, and points where the first does."""
    vectors = [[1, 0], [9, 0], [0, 1]]
    path = write(tmp_path / "rows.jsonl", [{"text": text(seed, 9)} for seed in range(3)])
    build_corpus(path, tmp_path / "c", PLAIN, encode=lambda texts: np.array(vectors))
    first, second, third = (row["metadata"]["domain"] for row in rows_of(tmp_path / "c"))
    assert first == second != third


@pytest.mark.slow
def test_the_shipped_encoder(tmp_path):
    """MiniLM puts texts about rivers and about companies into different domains."""
    rivers = [
        "The river flows under a bridge.",
        "A bridge crosses the wide river.",
        "The river reaches the old bridge.",
    ]
    money = [
        "The company's profit rose.",
        "Profit of the company fell.",
        "Yearly profit of a company.",
    ]
    path = write(tmp_path / "rows.jsonl", [{"text": t} for t in rivers + money])
    report = build_corpus(path, tmp_path / "corpus", PLAIN)
    domains = [row["metadata"]["domain"] for row in rows_of(tmp_path / "corpus")]
    assert (
        len(set(domains[:3])) == len(set(domains[3:])) == 1
        and domains[0] != domains[3]
        and report.kept == 6
    )


# ---------------------------------------------------------------- resuming, memory


class Killed(BaseException):
    """Stands for a kill: nothing in the pipeline may catch it."""


def many(tmp_path, count=60):
    rows = [{"text": text(seed % 50, 30), "metadata": {"n": seed}} for seed in range(count)] + [
        {"text": ""}
    ]
    return write(tmp_path / "rows.jsonl", rows)


@pytest.mark.parametrize("kill_at", [1, 2, 3])
def test_a_killed_build_goes_on_and_ends_the_same(tmp_path, monkeypatch, kill_at):
    """Killed before the n-th file is there: clean documents, vectors, the corpus."""
    path = many(tmp_path)
    expected = build_corpus(path, tmp_path / "whole", PLAIN, [text(3, 20)], encode)
    count, encoded, move = [0], [], shutil.move

    def counted(source, target):
        count[0] += Path(target).stem.split("-")[0] in ("clean", "vectors", "documents")
        if count[0] == kill_at:
            raise Killed
        return move(source, target)

    def noted(texts):
        encoded.extend(texts)
        return encode(texts)

    noted.__qualname__ = encode.__qualname__
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "move", counted)
        with pytest.raises(Killed):
            build_corpus(path, tmp_path / "killed", PLAIN, [text(3, 20)], noted)
    assert not (tmp_path / "killed" / "corpus.json").exists()
    with pytest.raises(CorpusError, match="that `spnb corpus` finished"):
        load_corpus(tmp_path / "killed")
    stages = [*(tmp_path / "killed" / ".stages").glob("*-*.arrow")]
    assert len(stages) == kill_at - 1
    before = {file: file.stat().st_mtime_ns for file in stages}
    report = build_corpus(path, tmp_path / "killed", PLAIN, [text(3, 20)], noted)
    assert report == expected
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())
    twice = len(encoded) > len(set(encoded))
    assert twice == (kill_at == 2)  # vectors that were not there yet


@pytest.mark.slow
def test_a_real_kill(tmp_path):
    """SIGKILL in the middle of the embedding; the process that follows redoes no finished stage."""
    path = many(tmp_path)
    code = (
        "import os, signal, sys, numpy as np\n"
        "from spnb.corpus import build\n"
        "from spnb.corpus.documents import CorpusSettings\n"
        "build.BATCH = 10\n"
        "calls = []\n"
        "def encode(texts):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    rows = [[t.count('a') + 1, t.count('b'), t.count('c'), len(t) % 7] for t in texts]\n"
        "    return np.array(rows, np.float32)\n"
        f"settings = CorpusSettings(**{PLAIN.model_dump()!r})\n"
        f"folder = {str(tmp_path / 'killed')!r}\n"
        f"build.build_corpus({str(path)!r}, folder, settings, encode=encode)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    stages = tmp_path / "killed" / ".stages"
    before = {file: file.stat().st_mtime_ns for file in stages.glob("*-*.arrow")}
    assert len(before) == 1
    report = build_corpus(path, tmp_path / "killed", PLAIN, encode=encode)
    assert report == build_corpus(path, tmp_path / "whole", PLAIN, encode=encode)
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())


def test_a_finished_corpus_is_reported_and_other_settings_reuse_stages(tmp_path):
    path, calls = many(tmp_path), []

    def counted(texts):
        calls.append(len(texts))
        return encode(texts)

    first = build_corpus(path, tmp_path / "corpus", PLAIN, encode=counted)
    done = len(calls)
    assert (
        build_corpus(path, tmp_path / "corpus", PLAIN, encode=counted) == first
        and len(calls) == done
    )
    other = PLAIN.model_copy(update={"domains": 3})
    assert (
        len(build_corpus(path, tmp_path / "corpus", other, encode=counted).domains) == 3
        and len(calls) == done
    )
    many(tmp_path, 61)  # the source changes
    assert build_corpus(path, tmp_path / "corpus", other, encode=counted).read == 62
    assert len(calls) > done and len(load_corpus(tmp_path / "corpus")) == 50
    assert len(list((tmp_path / "corpus").glob("documents-*"))) == 1
    shutil.rmtree(tmp_path / "corpus" / ".stages")
    done = len(calls)
    build_corpus(path, tmp_path / "corpus", other, encode=counted)
    assert len(calls) == done  # a finished corpus does not need its stages


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    """Four times the text in as many documents: of 4.7 MB more at most 1 MB stays in memory."""
    monkeypatch.setattr(build, "BATCH", 4)
    settings = CorpusSettings(**SMALL, max_word_length=300)
    peaks = []
    for length in (80, 80, 320):  # the first run builds up what libraries keep
        rows = (
            {"text": " ".join(word * 30 for word in words(length, seed))} for seed in range(100)
        )
        path = tmp_path / f"{len(peaks)}.jsonl"
        with path.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        tracemalloc.start()
        build_corpus(path, tmp_path / f"corpus{len(peaks)}", settings, encode=encode)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert path.stat().st_size > 5_900_000
    assert peaks[2] - peaks[1] < 1_000_000, peaks


def test_memory_of_duplicates_is_bounded_per_document():
    """No more than its docstring says."""
    count = 150
    texts = [text(seed, 10) for seed in range(count)]
    tracemalloc.start()
    duplicates = rules()
    start = tracemalloc.get_traced_memory()[0]
    for seed, words in enumerate(texts):
        duplicates.reason(str(seed), words)
    size = (tracemalloc.get_traced_memory()[0] - start) / count
    tracemalloc.stop()
    assert size < 11_000, size


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"domain": 3}, "domain"),
        ({"duplicate_threshold": 1.5}, "duplicate_threshold"),
        ({"permutations": 4}, "permutations"),
        ({"columns": {"body": "text"}}, "columns"),
    ],
)
def test_bad_settings_are_refused_by_name(values, message):
    with pytest.raises(ValidationError, match=message):
        CorpusSettings(**values)


def test_nothing_usable_is_one_clear_error(tmp_path):
    path = write(tmp_path / "rows.jsonl", [{"body": "x"}, {"text": ""}])
    with pytest.raises(CorpusError, match="no usable document of 2 rows: no text 1, empty text 1"):
        build_corpus(path, tmp_path / "corpus", PLAIN, encode=encode)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(CorpusError, match="allowed: a JSONL file|no usable document of 0 rows"):
        build_corpus(tmp_path / "empty.jsonl", tmp_path / "corpus", PLAIN, encode=encode)


def test_sources_that_cannot_be_read(tmp_path):
    def error(source, **values):
        with pytest.raises(CorpusError) as caught:
            build_corpus(
                source, tmp_path / "corpus", CorpusSettings(**SMALL, **values), encode=encode
            )
        return str(caught.value)

    (tmp_path / "page.pdf").write_bytes(b"%PDF")
    (tmp_path / "void").mkdir()
    assert "page.pdf'; allowed: a file of .jsonl, .ndjson" in error(tmp_path / "page.pdf")
    assert "allowed: a JSONL file" in error(tmp_path / "void")
    assert "no/such-dataset" in error("no/such-dataset")
    assert "allowed: a folder of its own" in error(tmp_path / "corpus")
    assert "allowed: a folder of its own" in error(tmp_path)
    (tmp_path / "data").mkdir()
    Dataset.from_list([{"body": text(1)}]).to_parquet(str(tmp_path / "data" / "test.parquet"))
    assert 'Unknown split "train". Should be one of' in error(tmp_path / "data")
    assert "column for text is 'text'; allowed: body" in error(tmp_path / "data", split="test")
    write(tmp_path / "rows.jsonl", [{"text": text(1)}] * 3)
    damaged = gzip.compress((tmp_path / "rows.jsonl").read_bytes())[:-20]
    (tmp_path / "damaged.jsonl.gz").write_bytes(damaged)
    assert "end-of-stream" in error(tmp_path / "damaged.jsonl.gz")


@pytest.mark.parametrize(
    "answer",
    [np.zeros((1, 4)), np.zeros(3), np.full((3, 4), np.nan), np.zeros((3, 0))],
    ids=["rows", "flat", "nan", "no dimensions"],
)
def test_a_wrong_encoder_is_refused(tmp_path, answer):
    path = write(tmp_path / "rows.jsonl", [{"text": text(seed)} for seed in range(3)])
    with pytest.raises(
        CorpusError,
        match=r"encode gives an array of shape .* for 3 texts; allowed: \(3, dimensions\)",
    ):
        build_corpus(path, tmp_path / "corpus", PLAIN, encode=lambda texts: answer)


def test_vectors_of_several_lengths_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "BATCH", 1)
    path = write(tmp_path / "rows.jsonl", [{"text": text(seed, 10 + seed)} for seed in range(3)])
    with pytest.raises(CorpusError, match="vectors of several lengths; allowed: always the same"):
        build_corpus(path, tmp_path / "c", PLAIN, encode=lambda texts: np.ones((1, len(texts[0]))))


def test_a_report_can_be_read_back(tmp_path):
    report = build_corpus(many(tmp_path), tmp_path / "corpus", PLAIN, encode=encode)
    assert (
        CorpusReport.model_validate_json((tmp_path / "corpus" / "corpus.json").read_text())
        == report
    )
    assert report.read == report.kept + sum(report.dropped.values()) == 61
    assert sum(report.domains.values()) == report.kept == 50


# --- what a source may look like


def test_a_folder_of_texts_and_data_is_refused_and_suffixes_may_be_large(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for seed, name in enumerate(("A.TXT", "b.txt", "c.markdown")):
        (folder / name).write_text(text(seed))
    report = build_corpus(folder, tmp_path / "corpus", PLAIN, encode=encode)
    assert report.kept == 3
    settings = CorpusSettings(**SMALL, shuffle=9)  # without a limit: as they are
    build_corpus(folder, tmp_path / "whole", settings, encode=encode)
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "corpus")
    (folder / "Index.JSON").write_text("{}")
    message = r"texts \(A.TXT\) and data \(Index.JSON\); allowed: a folder of one or the other"
    with pytest.raises(CorpusError, match=message):
        build_corpus(folder, tmp_path / "other", PLAIN, encode=encode)


@pytest.mark.parametrize("saved", [False, True])
def test_a_limited_sample_of_a_folder_is_shuffled(tmp_path, saved):
    rows = [{"id": f"{seed:02d}.txt", "text": text(seed)} for seed in range(20)]
    (tmp_path / "source").mkdir()
    for row in rows:
        (tmp_path / "source" / row["id"]).write_text(row["text"])
    if saved:
        shutil.rmtree(tmp_path / "source")
        Dataset.from_list(rows).save_to_disk(str(tmp_path / "source"))
    drawn = []
    for shuffle, seed in ((0, 0), (9, 0), (9, 0), (9, 1)):
        settings = CorpusSettings(**SMALL, limit=5, shuffle=shuffle, seed=seed)
        folder = tmp_path / f"c{len(drawn)}"
        build_corpus(tmp_path / "source", folder, settings, encode=encode)
        drawn.append([row["id"] for row in rows_of(folder)])
    assert not list((tmp_path / "source").glob("cache*"))
    assert drawn[0] == [row["id"] for row in rows[:5]]
    assert drawn[1] == drawn[2] and len({tuple(one) for one in drawn}) == 3


@pytest.mark.parametrize("name", ["rows.parquet", "rows.CSV"])
def test_a_file_of_a_table_is_read_by_rows(tmp_path, name):
    rows = Dataset.from_list([{"id": f"d{seed}", "words": text(seed)} for seed in range(3)])
    (rows.to_csv if name.endswith("CSV") else rows.to_parquet)(str(tmp_path / name))
    settings = CorpusSettings(**SMALL, columns={"text": "words"})
    build_corpus(tmp_path / name, tmp_path / "corpus", settings, encode=encode)
    assert [row["id"] for row in rows_of(tmp_path / "corpus")] == ["d0", "d1", "d2"]
    with pytest.raises(CorpusError, match="column for text is 'text'; allowed: id, words"):
        build_corpus(tmp_path / name, tmp_path / "other", PLAIN, encode=encode)


def test_numbers_of_more_than_64_bits_are_kept_as_digits(tmp_path):
    numbers = [10**20, -(10**30), 2**63 - 1, 0.5, 7]
    rows = [{"text": text(1), "metadata": {"n": numbers, "word": "1" * 25}}]
    path = write(tmp_path / "rows.jsonl", rows)
    build_corpus(path, tmp_path / "corpus", PLAIN, encode=encode)
    (row,) = rows_of(tmp_path / "corpus")
    expected = [str(10**20), str(-(10**30)), 2**63 - 1, numbers[3], 7]
    assert row["metadata"]["n"] == expected and row["metadata"]["word"] == "1" * 25


def test_an_older_corpus_is_not_reported_as_the_new_one(tmp_path, monkeypatch):
    path, folder = many(tmp_path), tmp_path / "corpus"
    build_corpus(path, folder, PLAIN, encode=encode)
    other = PLAIN.model_copy(update={"domains": 3})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "_describe", lambda *given: raise_(KeyboardInterrupt()))
        build_corpus(path, folder, other, encode=encode)
    assert len(build_corpus(path, folder, other, encode=encode).domains) == 3
    assert len(list(folder.glob("documents-*"))) == 1


def raise_(error):
    raise error


def test_a_corpus_is_read_though_a_saved_dataset_lies_there_too(tmp_path):
    folder = tmp_path / "both"
    Dataset.from_list([{"id": "old", "title": "", "text": "old"}]).save_to_disk(str(folder))
    build_corpus(many(tmp_path), folder, PLAIN, encode=encode)
    assert len(load_corpus(folder)) > 1 and told_by(folder).name == "corpus.json"


def test_letters_and_their_marks_are_one_word_in_any_of_unicodes_forms():
    sentence = "Über die Größe der Äpfel urteilt Änne öfter als früher"
    apart = unicodedata.normalize("NFD", sentence)
    assert apart != sentence and shingles(apart, 3) == shingles(sentence, 3)
    filled = PLAIN.model_copy(update={"max_symbols": 9})
    assert Filter(filled, [sentence]).reason("d", f"x {apart} y") == "benchmark contamination"
    both = Filter(filled)
    assert both.reason("a", sentence) == "" and both.reason("b", apart) == "exact duplicate"
    assert len(shingles("हिन्दी में नमस्ते दुनिया", 1)) == 4
