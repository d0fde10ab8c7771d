"""A corpus's titles as answers to ask for, and SSP over them, in process and over HTTP."""

import json
import random
import threading
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.documents import Context, Proposal, Rejected
from spnb.core.episodes import run
from spnb.core.params import ParamError, validate
from spnb.core.search import LONGEST, Hit, RetrieverError, Tool, search_rollouts
from spnb.core.types import Completion, Request, Sampling
from spnb.corpus.store import CorpusError
from spnb.corpus.targets import TitleTargets
from spnb.methods.ssp import Method, Params


@pytest.fixture
def corpus(tmp_path):
    """Thirty pages with titles, one without, one with a title of nine words."""
    pages = [(str(n), f"Page {n}", f"Page {n} is about x{n}.") for n in range(30)]
    pages += [("none", "", "Untitled."), ("long", " ".join("abcdefghi"), "Long.")]
    lines = [json.dumps(dict(zip(("id", "title", "text"), page, strict=True))) for page in pages]
    path = tmp_path / "pages.jsonl"
    path.write_text("\n".join(lines))
    return str(path)


def params(corpus, **values):
    return SimpleNamespace(**{"corpus": corpus, "retriever": "bm25", "highest": 3, **values})


def test_titles_are_drawn_with_a_number_of_searches_and_pools_are_disjoint(corpus):
    source = TitleTargets(params(corpus), None)
    rng = random.Random(0)
    drawn = {pool: [source.draw(rng, 0, pool) for _ in range(300)] for pool in ("train", "heldout")}
    names = {pool: {one.name for one in each} for pool, each in drawn.items()}
    assert names["heldout"] == {"Page 0", "Page 10", "Page 20"}
    assert len(names["train"]) == 27 and not names["train"] & names["heldout"]
    assert {one.searches for one in drawn["train"]} == {1, 2, 3}


def test_a_proposer_is_told_the_answer_the_searches_and_examples(corpus):
    source = TitleTargets(params(corpus), None)
    target = source.draw(random.Random(1))
    text = source.ask(target)[0]["content"]
    assert prompts.ASK_SEARCH in text and text.endswith(f"Answer: {target.name}")
    assert f"at least {target.searches} searches" in text
    assert all(example in text for example in prompts.ASK_EXAMPLES)
    assert prompts.ask_search("x")[0]["content"] == f"{prompts.ASK_SEARCH}\nAnswer: x"


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


class Reader:
    """Searches for the page, asks about it, reads and solves by the title in its prompt."""

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]

    def reply(self, prompt):
        if prompts.ASK_SEARCH in prompt:
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
    rows = run(search_rollouts(requests, ["", ""], tool), {"policy": Searching()})
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
        if prompts.SEARCHING["plain"] in prompt and "[1]" not in prompt:
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
