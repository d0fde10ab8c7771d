"""The retrieval measurement: questions and their gold answers, found@3 by what documents state, the
extrapolation, one small run."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import retrieval_speed as retrieval
import typer
from typer.testing import CliRunner

from spnb.corpus.retrieval import LocalRetriever, make_retriever
from spnb.corpus.store import open_store
from spnb.lab import oracle
from spnb.lab.texts import facts_in, world_of


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """300 documents and 40 questions about them, with the static vectors."""
    made = retrieval.Cell(tmp_path_factory.mktemp("work"), 300, "static", 40)
    return made


def test_every_question_has_its_gold_answer_and_a_document_that_states_it(cell):
    world, store = world_of(300), open_store(cell.corpus())
    stated = [facts_in(store[row].text) for row in range(len(store))]
    questions = cell.questions()
    assert len(questions) == 40 and questions == cell.questions()
    for question, gold in questions:
        assert oracle.answer(world, oracle.parse(question)) == gold
        assert oracle.support(gold, stated)
    assert {oracle.parse(question).op for question, _ in questions} == {"path", "cell"}


def ranking(*rows):
    """A ranker that returns the same rows for every question."""
    return lambda queries, k: [[(row, 1.0) for row in rows[:k]] for _ in queries]


def test_found_counts_any_document_that_states_the_fact(tmp_path):
    cell = retrieval.Cell(tmp_path, 300, "none", 1)
    store, world = open_store(cell.corpus()), world_of(300)
    row = next(row for row in range(len(store)) if store[row].id.startswith("sections:"))
    town = store[row].title.removeprefix("A guide to ")
    mayor = world.value(town, "mayor")
    questions = [
        (
            f"What is the {noun} of {entity}?",
            oracle.answer(world, oracle.Query("path", entity, (noun,))),
        )
        for entity, noun in (
            (town, "river"),
            (mayor, "job"),
            (town, "population"),
            (world.name("book", 0), "author"),
        )
    ]
    found = {}
    for rows in ((row,), (row + 1,)):
        retriever = LocalRetriever(store, ranking(*rows))
        found[rows] = retrieval.quality(retriever, retriever, questions)
    assert found[(row,)] == {
        "recall@3": 1.0,
        "found@3": 0.75,
    }  # the guide states the town and its mayor, not the book
    assert found[(row + 1,)] == {"recall@3": 1.0, "found@3": 0.0}


@pytest.mark.slow
def test_the_static_encoder_gives_the_mean_of_its_tokens_vectors(cell):
    encoder = cell.encoder()
    words = encoder._model[0].embedding.weight.detach().numpy()
    tokens = (
        encoder._model[0].tokenizer.encode("the river of Arnford", add_special_tokens=False).ids
    )
    expected = words[tokens].mean(axis=0)
    assert words.shape == (30522, 384) and len(tokens) > 3
    given = encoder.encode_queries(["the river of Arnford"])[0]
    assert np.allclose(given, expected / np.linalg.norm(expected), atol=1e-6)
    assert retrieval.Cell(cell.work, 300, "none", 1).encoder() is None


@pytest.mark.slow
def test_an_exact_index_has_recall_one_and_a_wrong_one_has_less(cell):
    encoder, questions = cell.encoder(), cell.questions()
    flat = make_retriever("flat", cell.corpus(), cell.cache, encoder)
    again = make_retriever("flat", cell.corpus(), cell.cache, encoder)
    assert retrieval.quality(flat, again, questions)["recall@3"] == 1.0
    best = [row for row, _ in flat.rank([questions[0][0]], 3)[0]]
    absent = next(row for row in range(300) if row not in best)
    wrong = LocalRetriever(flat.store, ranking(*best[:2], absent))
    assert retrieval.quality(wrong, flat, questions[:1])["recall@3"] == pytest.approx(2 / 3)


def frame(index: str, vectors: str, passages: int, seconds: float, alone: float) -> dict:
    """A measured row; a question is encoded in a thousandth of a second."""
    return {
        **{"passages": passages, "index": index, "vectors": vectors, "queries": 500},
        **{"embedding s": passages / 100, "index build s": seconds, "index MB": passages / 1000},
        **{"resident MB": passages / 500, "recall@3": 0.9, "found@3": 0.8},
        **{"queries/s, index alone": alone, "queries/s": 1 / (1 / alone + 0.001)},
    }


def test_extrapolation_is_a_line_through_the_two_largest_sizes_of_the_same_vectors():
    rows = (
        ("flat", "MiniLM", 1_000, 9.0, 500.0),
        ("flat", "MiniLM", 10_000, 1.0, 1000.0),
        ("flat", "MiniLM", 100_000, 10.0, 100.0),
        ("flat", "static", 100_000, 20.0, 100.0),
        ("flat", "static", 1_000_000, 200.0, 10.0),
        ("hnsw", "static", 10_000, 1.0, 100.0),
    )
    measured = pd.DataFrame([frame(*row) for row in rows])
    wiki = retrieval.extrapolate(measured, 2_000_000).set_index(["index", "vectors"])
    assert list(wiki.index) == [("flat", "MiniLM"), ("flat", "static")]  # hnsw: one size only
    assert wiki.loc[("flat", "MiniLM"), "index build s"] == pytest.approx(200.0)
    assert wiki.loc[("flat", "static"), "index build s"] == pytest.approx(400.0)
    assert wiki.loc[("flat", "static"), "queries/s, index alone"] == pytest.approx(5.0)
    assert wiki.loc[("flat", "static"), "queries/s"] == pytest.approx(1 / 0.201)
    assert wiki.loc[("flat", "static"), "index MB"] == pytest.approx(2000.0)
    assert wiki["recall@3"].isna().all()


def test_the_table_has_both_encoders_sorted_by_size_index_and_vectors(tmp_path):
    shuffled = [("hnsw", "static"), ("flat", "static"), ("flat", "MiniLM"), ("bm25", "–")]
    larger = [frame(*kind, 10_000, 1.0, 100.0) for kind in shuffled]
    measured = pd.DataFrame([*larger, frame("ivfpq", "static", 1_000, 1.0, 100.0)])
    retrieval.write_table(measured, tmp_path)
    rows = pd.read_csv(tmp_path / "indexes.csv")
    assert list(zip(rows["passages"], rows["index"], rows["vectors"], strict=True)) == [
        (1_000, "ivfpq", "static"),
        *(
            (10_000, "bm25", "–"),
            (10_000, "flat", "MiniLM"),
            (10_000, "flat", "static"),
            (10_000, "hnsw", "static"),
        ),
    ]
    text = (tmp_path / "indexes.md").read_text(encoding="utf-8")
    assert "500 questions" in text and "extrapolated" not in text.split("One thread")[0]


@pytest.mark.slow
def test_a_small_run_measures_once_and_writes_the_table(tmp_path, monkeypatch):
    """Two sizes with 20 questions, in this process; a second run measures nothing anew."""
    monkeypatch.setattr(retrieval, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    arguments = ["300", "400", "--encoder", "static", "--queries", "20"]
    arguments += ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    app = typer.Typer()
    app.command()(retrieval.run)
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    table = pd.read_csv(tmp_path / "out" / "indexes.csv")
    assert [*table.columns] == [*retrieval.COLUMNS, "source"] and len(table) == 8
    assert [*table["index"][:4]] == [*retrieval.INDEXES]
    measured = table.drop(columns="embedding s")
    assert measured.notna().all().all() and (table["found@3"] > 0.3).all()
    assert (table["recall@3"][table["index"] == "flat"] > 0.9).all()
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "indexes.csv").equals(table)


def test_an_unknown_encoder_is_refused(tmp_path):
    app = typer.Typer()
    app.command()(retrieval.run)
    result = CliRunner().invoke(app, ["300", "--encoder", "none", "--work", str(tmp_path)])
    assert result.exit_code == 2 and "'none'" in result.output
