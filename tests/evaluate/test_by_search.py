"""QA sets answered by search over a small corpus: records, gold found, the judge, blocks."""

import json
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.params import ParamError, validate
from spnb.core.search import RetrieverError, Tool
from spnb.core.types import Chat, Completion, Sampling, Task, Trajectory
from spnb.corpus.targets import open_retriever
from spnb.evaluate import by_search
from spnb.evaluate.by_search import BySearch, use_of_search
from spnb.evaluate.items import play_suite
from spnb.evaluate.loaders import BenchmarkError, benchmark_suite
from spnb.methods import method_class
from spnb.methods.ssp import Method, Params
from spnb.train.config import params_class

PAGES = {"Reed": "a novel by Ada Orr", "Tarn": "a town on the Elde", "Vell": "a firm of Bo Lind"}
QUESTIONS = [
    ("Who wrote Reed?", ["Ada Orr", "A. Orr"]),
    ("On which river is Tarn?", ["the Elde"]),
    ("Whose firm is Vell?", ["Bo Lind"]),
]


@pytest.fixture
def files(tmp_path):
    """A corpus of three pages, and three questions about them in FlashRAG's schema."""
    pages = [{"id": title, "title": title, "text": text} for title, text in PAGES.items()]
    rows = [
        {"id": f"dev_{n}", "question": text, "golden_answers": gold, "metadata": {f"key {n}": [n]}}
        for n, (text, gold) in enumerate(QUESTIONS)
    ]
    for name, lines in (("pages", pages), ("rows", rows)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return SimpleNamespace(corpus=str(tmp_path / "pages.jsonl"), rows=str(tmp_path / "rows.jsonl"))


class Reader:
    """Searches for what a question names, but not for the river; answers from what it found, in a
    judge's place yes to any answer that speaks of Bo."""

    def __init__(self):
        self.batches, self.judged = [], []

    def generate(self, requests):
        self.batches.append([request.sampling for request in requests])
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]

    def reply(self, prompt):
        if prompts.WORDS["judge"] in prompt:
            self.judged.append(prompt)
            return f"<answer> {'yes' if 'First: Bo' in prompt else 'no'}</answer>"
        if "Tarn" in prompt:
            return "<answer> the Orr</answer>"
        if "[1]" not in prompt:
            return f"<search> {'Reed' if 'Reed' in prompt else 'firm'}</search>"
        return f"<answer> {'The A Orr' if 'Ada Orr' in prompt else 'Bo, of Lind'}</answer>"


def made(files, judge=None, **values):
    tool = Tool(CharTokenizer(), open_retriever("bm25", files.corpus), 1, 4, 100_000)
    how = {"path": files.rows, "by_search": BySearch(tool, judge), **values}
    return benchmark_suite("nq", Chat(CharTokenizer()), Sampling(16, 0.6), **how)


def test_answers_by_search_are_compared_with_any_gold_one(files):
    records, rows = play_suite(made(files), {"policy": Reader()})
    assert [one["score"] for one in records] == [1, 0, 0]
    assert [one["searches"] for one in records] == [1, 0, 1]
    assert [one["gold found"] for one in records] == [1, 0, 1]
    assert [(one["item"], one["sample"], one["decoding"]) for one in records] == [
        (str(place), 0, "sampled") for place in range(3)
    ]
    values = {one["metric"]: one["value"] for one in rows}
    assert values == {
        "accuracy": 1 / 3,
        "parsed": 1,
        "searches": pytest.approx(2 / 3),
        "gold found": pytest.approx(2 / 3),
        "lost": 0,
    }


def test_a_block_shares_the_engine_and_the_retriever(files, monkeypatch):
    """Two answers to each of three questions, four to a block: four and two, then two rounds."""
    monkeypatch.setattr(by_search, "BLOCK", 4)
    suite, reader = made(files, samples=2), Reader()
    assert [len(part) for part in suite.parts] == [4, 2]
    records, rows = play_suite(suite, {"policy": reader})
    assert [(one["item"], one["sample"]) for one in records] == [
        (str(place), sample) for place in range(3) for sample in range(2)
    ]
    assert [len(batch) for batch in reader.batches] == [6, 4]
    assert {row["metric"] for row in rows} >= {"pass@1", "pass@2"}


def test_each_block_asks_the_judge_with_a_seed_of_its_own(files, monkeypatch):
    monkeypatch.setattr(by_search, "BLOCK", 1)
    seeds = []

    def says_no(texts, seed):
        yield from ()
        seeds.append(seed)
        return [False] * len(texts)

    play_suite(made(files, says_no), {"policy": Reader()})
    assert len({*seeds}) == len(seeds) == 3


def test_questions_that_are_too_long_to_be_asked_are_counted(files, caplog):
    tool = Tool(CharTokenizer(), open_retriever("bm25", files.corpus), 1, 4, 10)
    how = {"path": files.rows, "by_search": BySearch(tool, None)}
    suite = benchmark_suite("nq", Chat(CharTokenizer()), Sampling(16, 0.6), **how)
    records, _ = play_suite(suite, {"policy": Reader()})
    assert "nq: 3 of 3 questions are too long to be asked" in caplog.text
    assert [one["score"] for one in records] == [0.0] * 3


def test_without_a_retriever_it_is_refused(files):
    with pytest.raises(BenchmarkError, match="nq is answered by search; allowed: in a run with a"):
        made(files, by_search=None)


@pytest.mark.parametrize(("paper", "values"), [
    ("ssp", {}), ("spell", {"corpus": "x.jsonl"}), ("rlvr", {}),
])  # fmt: skip
def test_a_run_without_a_retriever_is_refused(paper, values):
    identity = {"paper": paper, "scale": "cpu", "variant": "full", "policy": "embedded/searcher"}
    with pytest.raises(ParamError, match="benchmarks has 'nq', answered by search; allowed: in a"):
        own = params_class(method_class(paper, None))
        validate(own, {**identity, **values, "benchmarks": {"nq": None}})


def ssp(files, **values):
    values = {"corpus": files.corpus, "results": 1, "max_length": 100_000, **values}
    return values


@pytest.mark.parametrize(("grader", "scores"), [("match", [1, 0, 0]), ("judge", [1, 0, 1])])
def test_ssp_asks_with_its_retriever_and_its_judge(files, tmp_path, grader, scores):
    """The corpus has ten titles; the judge reads both answers that do not match, with all gold."""
    lines = [json.dumps({"id": str(n), "title": f"Page {n}", "text": f"x{n}"}) for n in range(7)]
    with open(files.corpus, "a") as file:
        file.write("\n" + "\n".join(lines))
    method = Method(
        validate(Params, ssp(files, grader=grader, roles={"judge": {"policy": "policy"}})),
        CharTokenizer(),
    )
    reader = Reader()
    suite = made(files, by_search=method.by_search)
    records, _ = play_suite(suite, {"policy": reader})
    assert [one["score"] for one in records] == scores
    assert [one["searches"] for one in records] == [1, 0, 1]
    if grader == "judge":
        assert len(reader.judged) == 2 and "Second: the Elde" in reader.judged[0]


def test_the_share_of_gold_documents_or_a_gold_answer_in_one():
    found = Trajectory((1,), searches=["a", "b"], documents=["One.", "The Elde is long."])
    told = Task([], "?", ("x",), info={"documents": ("One.", "Two.", "Three.", "Four.")})
    assert use_of_search(told, found) == {"searches": 2, "gold found": 0.25, "lost": 0}
    for gold, share in ((("Tarn", "elde"), 1), (("eld",), 0), (("Tarn",), 0)):
        assert use_of_search(Task([], "?", gold), found)["gold found"] == share
    assert use_of_search(told, Trajectory((1,))) == {"searches": 0, "gold found": 0, "lost": 0}


class Down:
    """A retriever that gives no answer."""

    def search(self, queries, k):
        raise RetrieverError("down")


def test_an_answer_whose_search_failed_is_wrong_and_counted(files):
    tool = Tool(CharTokenizer(), Down(), 1, 4, 100_000)
    records, rows = play_suite(made(files, by_search=BySearch(tool, None)), {"policy": Reader()})
    assert [one["lost"] for one in records] == [1, 0, 1], "the second asks for nothing"
    assert {one["metric"]: one["value"] for one in rows}["lost"] == pytest.approx(2 / 3)
    assert [one["score"] for one in records] == [0, 0, 0]


def test_what_was_said_before_a_search_that_failed_is_no_answer(files):
    tool, reader = Tool(CharTokenizer(), Down(), 1, 4, 100_000), Reader()
    reader.reply = lambda prompt: "<answer> Ada Orr</answer><search> x</search>"
    records, _ = play_suite(made(files, by_search=BySearch(tool, None)), {"policy": reader})
    assert [(one["lost"], one["score"]) for one in records] == [(1, 0)] * 3


def test_a_judge_reads_no_answer_that_cannot_be_read(files):
    asked, reader = [], Reader()
    reader.reply = lambda prompt: "Ada Orr"

    def says_yes(texts, seed):
        yield from ()
        asked.extend(texts)
        return [True] * len(texts)

    records, _ = play_suite(made(files, says_yes), {"policy": reader})
    assert [(one["parsed"], one["score"]) for one in records] == [(0, 0)] * 3 and not asked
