"""SSP's held-out questions: settings and use of a search; what its oracle cannot read."""

import json
import random
import re
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.documents import Context, Judgement, Proposal, open_source
from spnb.core.params import validate
from spnb.core.search import SYNTAXES
from spnb.core.types import Chat, Completion, Sampling, Trajectory
from spnb.evaluate.items import RECORD, play_suite
from spnb.lab.chain import QUEST, before, follow
from spnb.methods.ssp import UNVERIFIED, Method, Params, Question, numbers

SMALL = dict(results=2, highest=2, eval_items=1, eval_proposals=1, max_length=100_000)
LINKS = QUEST.links_of("train")


class Once:
    """Searches once, for the first step of its question, then answers; keeps what it read."""

    def __init__(self, syntax="xml"):
        self.syntax, self.read = syntax, []

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]

    def reply(self, prompt):
        if "[1]" in prompt:
            self.read.append(prompt)
            return "<answer> nobody</answer>"
        start, relations = QUEST.parse(re.findall(r"Question: (.*)", prompt)[0])
        query = QUEST.query(relations[0], start)
        call = json.dumps({"name": "search", "arguments": {"query": query}})
        calls = {"xml": f"<search> {query}</search>", "qwen3": f"<tool_call>{call}</tool_call>"}
        return calls[self.syntax]


def made(**values):
    return Method(validate(Params, {**SMALL, **values}), CharTokenizer())


@pytest.mark.parametrize("results", [1, 2, 5])
def test_a_suite_has_the_runs_results(results):
    engine = Once()
    play_suite(made(results=results).suites(0)[0], {"policy": engine})
    assert [len(re.findall(r"\[\d\] ", text)) for text in engine.read] == [results] * 2


def test_a_suite_has_the_runs_syntax():
    engine = Once("qwen3")
    records, _ = play_suite(made(syntax="qwen3").suites(0)[0], {"policy": engine})
    assert len(engine.read) == 2 and all("<tool_response>" in text for text in engine.read)
    assert [one["searches"] for one in records] == [1, 1]
    unread, _ = play_suite(made().suites(0)[0], {"policy": Once("qwen3")})
    assert [one["searches"] for one in unread] == [0, 0]


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("asked", [
    prompts.search("Who?"), prompts.search("Who?", "plain"), prompts.ask_search("x", 2),
    prompts.report("Do.", "careful", 2), prompts.ask_report("A text.", "plan", 2, "careful"),
])  # fmt: skip
def test_who_searches_is_told_how_in_the_runs_syntax(asked, syntax):
    """What a model reads is a call that is read; in tags the prompts stay as they are."""
    request = made(syntax=syntax).chat.request(asked, Sampling(1), 0)
    text = "".join(map(chr, request.prompt_ids))
    if syntax == "xml":
        assert text == asked[0]["content"]
    else:
        assert SYNTAXES[syntax].query(text) == "your query"
        assert not re.search("search>|information>", text)


def test_searches_and_gold_found_are_columns_and_rows():
    """One search finds the one sentence of level 1, and one of the two of level 2."""
    records, rows = play_suite(made().suites(0)[0], {"policy": Once()})
    assert [(one["searches"], one["gold found"]) for one in records] == [(1, 1), (1, 0.5)]
    values = {row["metric"]: row["value"] for row in rows if not row["difficulty"]}
    assert values["searches"] == 1 and values["gold found"] == 0.75


def test_other_papers_records_keep_their_columns_and_two_results():
    """Parameters without results and syntax: two documents, in tags."""
    params = SimpleNamespace(
        family="quest", highest=2, max_searches=4, max_length=100_000, eval_items=1,
        eval_seed=lambda *labels: 1, eval_sampling=Sampling(64),
    )  # fmt: skip
    source, engine = open_source("lab:ladder", params, CharTokenizer()), Once()
    (suite,) = source.suites(Chat(CharTokenizer()), params, True)
    records, _ = play_suite(suite, {"policy": engine})
    assert {*records[0]} == {*RECORD, "consistent"}
    assert [len(re.findall(r"\[\d\] ", text)) for text in engine.read] == [2, 2]


def test_examples_are_shown_to_the_proposer_only_where_there_are_some():
    context = made().source.draw(random.Random(0))
    plain = f"{prompts.WORDS['ask by search']}\nAnswer: {context.name}"
    assert made().source.ask(context)[0]["content"] == plain
    shown = made(examples=["Who is the host of Marek?"]).source.ask(context)[0]["content"]
    lines = [
        prompts.WORDS["ask by search"],
        prompts.WORDS["corpus"]["like"],
        "- Who is the host of Marek?",
    ]
    assert shown.split("\n") == [*lines, f"Answer: {context.name}"]


def slot(level, right, reason="", answerable=True):
    judgement = Judgement(level, answerable, right)
    found = Trajectory((1,), searches=["a"])
    return Question(Context("quest"), found, Proposal("?", "x"), reason, judgement=judgement)


def test_what_the_oracle_cannot_read_is_not_hacked():
    """Of six accepted two are right, one is hacked, three unreadable; of what did not pass one of
    each."""
    passed = [slot(2, True), slot(4, True), slot(1, False), *[slot(0, False)] * 3]
    fell = [slot(3, True, UNVERIFIED), slot(2, False, UNVERIFIED), slot(0, False, UNVERIFIED)]
    found = numbers([*passed, *fell], passed)
    assert found["hacked"] == pytest.approx(1 / 6) and found["unreadable"] == 0.5
    assert found["hacked/answerable"] == 1 and found["level"] == 3
    assert found["accept/valid"] == pytest.approx(2 / 3) and found["accept/hacked"] == 0.5


def test_the_oracle_reads_nested_questions():
    source = made().source
    target = QUEST.people("train")[0]
    start = before(LINKS, "host", before(LINKS, "guide", target))
    assert follow(LINKS, start, ("host", "guide"))[-1] == target
    context = SimpleNamespace(pool="train")
    judged = {
        text: source.judge(Proposal(text, target), context)
        for text in (f"Who is the guide of the host of {start}?", f"Who likes the host of {start}?")
    }
    right, unread = judged.values()
    assert (right.level, right.answerable, right.right) == (2, True, True)
    assert unread == Judgement(0)
