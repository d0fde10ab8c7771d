"""A corpus's titles as answers to ask for, and SSP over them, in process and over HTTP."""

import json
import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.documents import Context, Proposal, Rejected
from spnb.core.episodes import run
from spnb.core.params import ParamError, validate
from spnb.core.search import LONGEST, Hit, RetrieverError, Tool, search_rollouts
from spnb.core.types import Completion, Request, Sampling
from spnb.corpus import dense, targets
from spnb.corpus.store import CorpusError, open_store
from spnb.corpus.targets import TitleTargets
from spnb.methods.ssp import Method, Params


@pytest.fixture
def corpus(tmp_path):
    """Thirty pages with titles, one without, and titles of nine and of eight words."""
    pages = [(str(n), f"Page {n}", f"Page {n} is about x{n}.") for n in range(30)]
    pages += [("none", "", "Untitled."), ("long", " ".join("abcdefghi"), "Long.")]
    pages.append(("most", " ".join("bcdefghi"), "Most."))
    lines = [json.dumps(dict(zip(("id", "title", "text"), page, strict=True))) for page in pages]
    path = tmp_path / "pages.jsonl"
    path.write_text("\n".join(lines))
    return str(path)


def params(corpus, **values):
    values = {"answers": "", "examples": [], **values}
    return SimpleNamespace(**{"corpus": corpus, "retriever": "bm25", "highest": 3, **values})


def test_titles_are_drawn_with_a_number_of_searches_and_pools_are_disjoint(corpus):
    source = TitleTargets(params(corpus), None)
    rng = random.Random(0)
    drawn = {pool: [source.draw(rng, 0, pool) for _ in range(300)] for pool in ("train", "heldout")}
    names = {pool: {one.name for one in each} for pool, each in drawn.items()}
    assert names["heldout"] == {"Page 0", "Page 10", "Page 20", "b c d e f g h i"}
    assert len(names["train"]) == 27 and not names["train"] & names["heldout"]
    assert {one.searches for one in drawn["train"]} == {1, 2, 3}


def test_a_proposer_is_told_the_answer_the_searches_and_examples(corpus):
    source = TitleTargets(params(corpus), None)
    target = source.draw(random.Random(1))
    text = source.ask(target)[0]["content"]
    assert prompts.WORDS["ask by search"] in text and text.endswith(f"Answer: {target.name}")
    assert f"at least {target.searches} searches" in text
    assert all(example in text for example in prompts.WORDS["corpus"]["examples"])
    assert prompts.ask_search("x")[0]["content"] == f"{prompts.WORDS['ask by search']}\nAnswer: x"


def test_answers_are_compared_with_the_title(corpus):
    source = TitleTargets(params(corpus), None)
    context = Context("title", name="Page 3")
    proposal = source.read("<question> Which page?</question>", context)
    assert proposal == Proposal("Which page?", "Page 3")
    assert source.read("Which page?", context) == Rejected("no question")
    assert source.agrees(proposal, "page 3.") == 1 and source.agrees(proposal, "Page 4") == 0
    assert source.agrees(proposal, None) == 0 and source.judge(proposal, context) is None
    assert source.task(proposal, context).gold == ("Page 3",)
    ((hit,),) = source.retriever("train").search(["x7"], 1)
    assert hit.title == "Page 7" and hit.text == "Page 7: Page 7 is about x7."


def test_a_corpus_without_titles_is_refused(tmp_path):
    path = tmp_path / "few.jsonl"
    path.write_text(json.dumps({"id": "1", "title": "One", "text": "One."}))
    with pytest.raises(CorpusError, match="has 1 titles of 1 to 8 words; allowed: 10 or more"):
        TitleTargets(params(str(path)), None)


def test_what_has_no_title_is_read_without_one(tmp_path):
    rows = [{"id": "0", "title": "", "text": "moss"}, {"id": "1", "title": "Fern", "text": "green"}]
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = targets.open_retriever("bm25", str(path)).search(["moss", "fern green"], 1)
    assert [hit.text for (hit,) in found] == ["moss", "Fern: green"]


def test_what_was_embedded_of_a_corpus_is_not_embedded_again(corpus, tmp_path, monkeypatch):
    embedded = []

    def encode(texts):
        return np.random.default_rng(0).normal(size=(len(texts), 4)).astype(np.float32)

    def encode_passages(texts):
        embedded.extend(texts)
        return encode(texts)

    fake = SimpleNamespace(key="fake", encode_passages=encode_passages, encode_queries=encode)
    monkeypatch.setattr(targets, "INDEXES", str(tmp_path / "indexes"))
    monkeypatch.setattr(dense, "Encoder", lambda name: fake)
    first = targets.open_retriever("flat", corpus).search(["moss"], 3)
    assert len(embedded) == len(open_store(corpus))
    assert targets.open_retriever("flat", corpus).search(["moss"], 3) == first
    assert len(embedded) == len(open_store(corpus))


def listed(tmp_path, *rows):
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


def answer(number, **others):
    return {"ground_truth": f"Thing {number}", **others}


def test_answers_of_ones_own_take_the_place_of_titles(corpus, tmp_path):
    """Twenty answers, one of them twice; the first has everything, most have no searches."""
    first = answer(1, search_turns=7, sys_question_example="Q: a?\nQ: b?", other=1)
    rows = [answer(0), first, answer(2, search_turns=5, sys_question_example=["a?", "b?"])]
    rows += [answer(0, search_turns=None), "", *(answer(n) for n in range(3, 20))]
    source = TitleTargets(params(corpus, answers=listed(tmp_path, *rows)), None)
    rng = random.Random(0)
    drawn = {pool: [source.draw(rng, 0, pool) for _ in range(600)] for pool in ("train", "heldout")}
    assert {one.name for one in drawn["heldout"]} == {"Thing 0", "Thing 10"}
    assert len(source.pools["heldout"]) == 3, "an answer that comes twice is in one pool"
    searches = {}
    for one in drawn["train"]:
        searches.setdefault(one.name, set()).add(one.searches)
    assert len(searches) == 18 and searches["Thing 1"] == {7} and searches["Thing 2"] == {5}
    assert searches["Thing 3"] == {1, 2, 3}
    asked = {one.name: source.ask(one)[0]["content"] for one in drawn["train"]}
    assert "at least 7 searches" in asked["Thing 1"] and "\n- Q: a?\nQ: b?\n" in asked["Thing 1"]
    assert "\n- a?\n- b?\n" in asked["Thing 2"]
    assert not any(example in asked["Thing 1"] for example in prompts.WORDS["corpus"]["examples"])
    assert all(example in asked["Thing 3"] for example in prompts.WORDS["corpus"]["examples"])
    own = TitleTargets(params(corpus, examples=["Why?"]), None)
    assert "\n- Why?\n" in own.ask(own.draw(rng))[0]["content"]


@pytest.mark.parametrize(("rows", "message"), [
    ([], "answers answers.jsonl has 0 rows; allowed: 1 or more"),
    (["", " "], "answers answers.jsonl has 0 rows"),
    ([answer(1), "{x"], "line 2 of answers.jsonl is not JSON .*allowed: one answer a line"),
    (["[1]"], "line 1 of answers.jsonl is list; allowed: an object with ground_truth, search"),
    (["[" * 100_000], "line 1 of answers.jsonl is not JSON"),
    (["", {"search_turns": 1}], "ground_truth of line 2 of answers.jsonl is None; allowed: a text"),
    ([{"ground_truth": " . "}], "ground_truth of line 1 .* is ' . '"),
    ([answer(1, search_turns=0)], "search_turns of line 1 of answers.jsonl is 0; allowed: 1 or m"),
    ([answer(1, search_turns=True)], "search_turns of line 1 of answers.jsonl is True"),
    ([answer(1, search_turns="3")], "search_turns of line 1 of answers.jsonl is '3'"),
    ([answer(1, sys_question_example=[3])], "sys_question_example of line 1 .* is .3.; allowed: a"),
    ([answer(1, sys_question_example=3)], "sys_question_example of line 1 .* is 3"),
    ([answer(n % 9) for n in range(20)], "answers '.*' has 9 different ones; allowed: 10 or more"),
])  # fmt: skip
def test_a_bad_list_of_answers_is_named(corpus, tmp_path, rows, message):
    with pytest.raises(CorpusError, match=message):
        TitleTargets(params(corpus, answers=listed(tmp_path, *rows)), None)


def test_a_list_that_is_not_there_or_has_no_corpus_is_refused(corpus, tmp_path):
    with pytest.raises(CorpusError, match="answers is '.*gone.jsonl'; allowed: an existing .jsonl"):
        TitleTargets(params(corpus, answers=str(tmp_path / "gone.jsonl")), None)
    with pytest.raises(ParamError, match="answers is 'a.jsonl' with corpus ''; allowed: with the"):
        validate(Params, {**SMALL, "answers": "a.jsonl"})


class Reader:
    """Searches for the page, asks about it, reads and solves by the title in its prompt."""

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]

    def reply(self, prompt):
        if prompts.WORDS["ask by search"] in prompt:
            number = prompt.split("Answer: Page ")[1].split("<")[0].split("\n")[0].strip()
            if "[1]" not in prompt:
                return f"<search> x{number}</search>"
            return f"<question> Which page of this corpus is about x{number}?</question>"
        return f"<answer> Page {prompt.split('is about x')[-1].split('?')[0]}</answer>"


SMALL = dict(answers_per_step=3, attempts=2, min_words=3, max_length=100_000, highest=2)


def test_a_step_of_ssp_on_a_corpus(corpus):
    made = Method(validate(Params, {**SMALL, "corpus": corpus}), CharTokenizer())
    rows = run(made.rollout(0), {"policy": Reader()})
    made.estimate(rows)
    assert made.metrics["method/passed"] == 1 and made.metrics["method/success"] == 1
    assert "method/hacked" not in made.metrics, "there is no oracle"
    (suite,) = made.suites(0)
    assert suite.name == "proposals"


@pytest.mark.parametrize("values", [{"verify": "oracle"}, {"questions": "even"}])
def test_what_needs_an_oracle_is_refused(corpus, values):
    with pytest.raises(ParamError, match="allowed: without an oracle"):
        validate(Params, {**SMALL, "corpus": corpus, **values})


def test_an_answer_that_no_document_holds_is_asked_for_and_not_verified(corpus, tmp_path):
    """What Reader reads about x90 is not there, so that it answers another page."""
    rows = [{"ground_truth": f"Page {n}", "search_turns": 2} for n in range(90, 110)]

    class Honest(Reader):
        def reply(self, prompt):
            if prompts.WORDS["answer"]["plain"] in prompt:
                return f"<answer> {prompt.split('[1] ')[1].split(':')[0]}</answer>"
            return super().reply(prompt).replace("<search> x", "<search> page x")

    values = {**SMALL, "corpus": corpus, "answers": listed(tmp_path, *rows), "reset_every": 0}
    made = Method(validate(Params, values), CharTokenizer())
    made.pool = [["Which page of this corpus is about x1?", "Page 1"]]
    run(made.rollout(0), {"policy": Honest()})
    assert made.metrics["method/filter/not verified"] == 1
    assert made.metrics["method/replayed"] == 1


class Failing:
    """A retriever that fails from some call on."""

    def __init__(self, calls):
        self.calls = calls
        self.queries = []

    def search(self, queries, k):
        self.queries += queries
        self.calls -= 1
        if self.calls < 0:
            raise RetrieverError("down")
        return [[Hit("1", "One", "One.", 1.0)] for _ in queries]


class Searching:
    """Searches with a long query, and then again."""

    def generate(self, requests):
        text = f"<search> {'q' * 10_000}</search>"
        one = Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop")
        return [one] * len(requests)


def test_a_retriever_that_fails_marks_the_trajectories_and_ends_no_run():
    retriever = Failing(1)
    tool = Tool(CharTokenizer(), retriever, max_length=10**6)
    requests = [Request((1,), Sampling(16), seed) for seed in range(2)]
    rows = run(search_rollouts(requests, tool), {"policy": Searching()})
    assert [row.finish for row in rows] == ["retriever"] * 2
    assert [row.documents for row in rows] == [["One."]] * 2, "what was found before stays"
    assert {len(query) for query in retriever.queries} == {LONGEST}


class Failed(Failing):
    """A retriever that works for the proposers alone."""

    def search(self, queries, k):
        found = super().search(queries, k)
        return [[Hit(hit.id, "Page 1", "x1", 1.0) for hit in hits] for hits in found]


class Both(Reader):
    """Solves by a search too."""

    def reply(self, prompt):
        if prompts.WORDS["search"]["plain"] in prompt and "[1]" not in prompt:
            return "<search> x</search>"
        return super().reply(prompt)


@pytest.mark.parametrize("calls", [0, 1])
def test_what_a_failed_search_ended_is_neither_paid_nor_trained(corpus, calls):
    """It fails for the proposers, or for the solvers: one question is earlier's."""
    values = {**SMALL, "corpus": corpus, "reset_every": 0, "verify": "none"}
    made = Method(validate(Params, values), CharTokenizer())
    made.pool = [["Which page of this corpus is about x1?", "Page 1"]]
    made.source._retriever = Failed(calls)
    rows = run(made.rollout(0), {"policy": Both()})
    made.estimate(rows)
    made.select(rows)
    proposer = [row for row in rows if row.role == "proposer"]
    assert {row.info["reason"] for row in proposer} == {"retriever"}
    assert {row.weight for row in rows} == {0.0} and {row.advantage for row in rows} == {0.0}
    assert len(made.pool) == 1, "not remembered"
    assert made.metrics["method/passed"] == 0


@pytest.mark.slow
def test_ssp_over_http(corpus):
    """A step with the retriever in another thread, in Search-R1's schema; then without it."""
    import uvicorn

    from spnb.corpus.retrieval import make_retriever
    from spnb.corpus.server import create_app

    config = uvicorn.Config(create_app(make_retriever("bm25", corpus)), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        pass
    port = server.servers[0].sockets[0].getsockname()[1]
    values = {**SMALL, "corpus": corpus, "retriever": f"http://127.0.0.1:{port}"}
    made = Method(validate(Params, values), CharTokenizer())
    run(made.rollout(0), {"policy": Reader()})
    assert made.metrics["method/success"] == 1
    server.should_exit = True
    thread.join()
    made.source._retriever.retriever._attempts = 1
    run(made.rollout(1), {"policy": Reader()})  # replays: nothing new passes, nothing is lost
    assert made.metrics["method/passed"] == 0 and made.metrics["method/replayed"] == 1
