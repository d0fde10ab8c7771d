"""A whole run of SSP on a corpus of one's own: search over HTTP, answers of a list, a QA set."""

import json
import re
import threading
from contextlib import contextmanager

import pytest

from spnb.core import prompts
from spnb.core.types import Completion, Sample
from spnb.corpus.retrieval import make_retriever
from spnb.corpus.server import create_app
from spnb.train.engines.torch import TorchEngine
from spnb.train.guards import token_logps
from spnb.train.plan import make_plan, run_one


class Counted:
    """A retriever that keeps its queries."""

    def __init__(self, retriever):
        self.retriever, self.queries = retriever, []

    def search(self, queries, k):
        self.queries += queries
        return self.retriever.search(queries, k)


@contextmanager
def served(retriever):
    """The URL of a server on the loopback."""
    import uvicorn

    config = uvicorn.Config(create_app(retriever), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        pass
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def said(prompt, seed):
    """Proposers search and ask for their page; solvers search, and half of them are right."""
    searched = "[1]" in prompt
    if prompts.WORDS["ask by search"] in prompt:
        number = re.findall(r"Answer: Page (\d+)", prompt)[0]
        asked = f"<question> Which page is about x{number}?</question>"
        return asked if searched else f"<search> x{number}</search>"
    number = re.findall(r"about x(\d+)\?", prompt)[0]
    if prompts.WORDS["search"]["plain"] in prompt and not searched:
        return f"<search> x{number}</search>"
    right = prompts.WORDS["answer"]["plain"] in prompt or seed % 2
    return f"<answer> Page {number if right else 99}</answer>"


@pytest.mark.slow
def test_two_steps_over_http_with_a_qa_set_at_both_ends(tmp_path, monkeypatch):
    def generate(self, requests):
        answers = []
        for request in requests:
            text = said(self.tokenizer.decode(request.prompt_ids), request.seed)
            ids = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
            row = Sample(request.prompt_ids, ids, (1,) * len(ids), None, 0.0, "r", 0)
            logps = tuple(token_logps(self.model, row).tolist())
            answers.append(Completion(ids, logps, text, "stop"))
        return answers

    monkeypatch.setattr(TorchEngine, "generate", generate)
    files = {
        "pages": [{"id": str(n), "title": f"Page {n}", "text": f"x{n}"} for n in range(20)],
        "answers": [{"ground_truth": f"Page {n}", "search_turns": 1} for n in range(20)],
        "bamboogle": [
            {"id": "0", "question": f"Which page is about x{n}?", "golden_answers": [f"page {n}"]}
            for n in range(3)
        ],
    }
    paths = {}
    for name, rows in files.items():
        paths[name] = str(tmp_path / f"{name}.jsonl")
        with open(paths[name], "w") as file:
            file.write("\n".join(map(json.dumps, rows)))
    retriever = Counted(make_retriever("bm25", paths["pages"]))
    with served(retriever) as url:
        plan = make_plan(
            "ssp", "smoke", variants=["full"], policy="embedded/searcher", runs=str(tmp_path),
            figures=str(tmp_path), corpus=paths["pages"], answers=paths["answers"], retriever=url,
            benchmarks={"bamboogle": paths["bamboogle"]}, answers_per_step=2, attempts=2,
            results=1, noisy_documents=1, eval_proposals=1, max_length=2048, steps=2,
        )  # fmt: skip
        run = run_one(plan, "full", 0)
    steps = run.rows("metrics")
    assert [row["step"] for row in steps] == [1, 2]
    assert [row["method/passed"] for row in steps] == [1, 1]
    assert all(row["method/solver searches"] == 1 for row in steps)
    items = [row for row in run.rows("items") if row["suite"] == "bamboogle"]
    assert [row["step"] for row in items] == [0, 0, 0, 2, 2, 2]
    assert {(row["searches"], row["gold found"]) for row in items} == {(1, 1.0)}
    assert len(retriever.queries) > 0 and all(text[0] == "x" for text in retriever.queries)
