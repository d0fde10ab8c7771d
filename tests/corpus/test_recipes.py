"""Corpora by name: the settings of each read a local file with the same columns."""

import random

import httpx
import numpy as np
import pytest
from datasets import Dataset, IterableDataset
from typer.testing import CliRunner

from spnb.cli import app
from spnb.corpus import documents
from spnb.corpus.build import build_corpus
from spnb.corpus.documents import recipe
from spnb.corpus.store import CorpusError, load_corpus

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi", "nu") for b in ("den", "fal", "gor", "hat")]
PLAIN = {"config": None, "min_chars": 20, "min_words": 5, "domains": 1, "shuffle": 5}


def text(seed):
    return " ".join(random.Random(seed).choices(WORDS, k=60)) + "."


ROWS = {
    "simple-wikipedia": lambda n: {"id": f"{n}", "url": f"u{n}", "title": f"T{n}", "text": text(n)},
    "nemotron-cc-math": lambda n: {"id": f"i{n}", "text": text(n), "metadata": "{}"},
    "dclm": lambda n: {"text": text(n), "url": f"u{n}", "metadata": {"WARC-Type": "response"}},
    "fineweb-edu": lambda n: {"id": f"<{n}>", "text": text(n), "url": f"u{n}", "score": 3.1},
    "wiki-18": lambda n: {"id": f"{n}", "contents": f'"T{n}"\n{text(n)}'},
}
IDS = {"dclm": "u{}", "nemotron-cc-math": "i{}", "fineweb-edu": "<{}>"}


def encode(texts):
    return np.random.default_rng(0).random((len(texts), 4), np.float32)


@pytest.mark.parametrize("name", ROWS)
def test_a_recipe_reads_rows_of_its_schema(tmp_path, name):
    (tmp_path / "data").mkdir()
    rows = [ROWS[name](n) for n in range(30)]
    Dataset.from_list(rows).to_parquet(str(tmp_path / "data" / "train.parquet"))
    dataset, settings = recipe(name, {"limit": 12, **PLAIN})
    assert "/" in dataset and settings.limit == 12
    report = build_corpus(tmp_path / "data", tmp_path / "corpus", settings, encode=encode)
    assert (report.read, report.kept) == (12, 12)
    found = load_corpus(tmp_path / "corpus")
    numbers = [n for row in found for n in range(30) if row["text"] == text(n)]
    assert numbers != sorted(numbers) and len(numbers) == 12  # drawn, not the first ones
    assert found["id"] == [IDS.get(name, "{}").format(n) for n in numbers]
    titled = name in ("simple-wikipedia", "wiki-18")
    assert found["title"] == [f"T{n}" if titled else "" for n in numbers]
    assert set(found[0]["metadata"]) == {"domain", "cluster"}


@pytest.mark.parametrize("name", ROWS)
def test_a_recipe_is_streamed_with_a_limit_and_a_buffer(tmp_path, monkeypatch, name):
    asked = {}

    def load(source, config, split, **options):
        asked.update(source=source, config=config, split=split, **options)
        return IterableDataset.from_generator(lambda: map(ROWS[name], range(50)))

    monkeypatch.setattr(documents.datasets, "load_dataset", load)
    dataset, settings = recipe(name, {})
    assert settings.limit <= 100_000 and settings.shuffle == 10_000
    rows = documents._load(tmp_path / "none", dataset, settings, tmp_path)
    assert asked["streaming"] is True and asked["source"] == dataset and len(rows) == 50
    configs = {"simple-wikipedia": "20231101.simple", "nemotron-cc-math": "4plus"}
    assert asked["config"] == (configs | {"fineweb-edu": "sample-10BT"}).get(name)


def test_another_source_is_no_recipe_and_values_win(tmp_path):
    assert recipe("my/documents.jsonl", {"seed": 3})[0] == "my/documents.jsonl"
    assert recipe("dclm", {"limit": 7})[1].limit == 7
    (tmp_path / "a.txt").write_text(text(1))
    wrong = CliRunner().invoke(app, ["corpus", "dclm", str(tmp_path), "--set", "limit=none"])
    assert wrong.exit_code == 2 and "limit is 'none'" in wrong.output


@pytest.mark.parametrize("error", [httpx.ConnectError("no route"), OSError("401, it is gated")])
def test_a_hub_that_gives_nothing_names_the_local_folder(tmp_path, monkeypatch, error):
    def load(*_, **__):
        raise error

    monkeypatch.setattr(documents.datasets, "load_dataset", load)
    dataset, settings = recipe("nemotron-cc-math", {})
    with pytest.raises(CorpusError) as caught:
        build_corpus(dataset, tmp_path / "corpus", settings, encode=encode)
    message = str(caught.value)
    assert message.startswith(f"source is 'nvidia/Nemotron-CC-Math-v1', {error}; allowed: ")
    assert "folder of text files or of a downloaded dataset" in message and "gated" in message
