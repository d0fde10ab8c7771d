"""The protocol of documents: what proposer and answerer read, sources by name, prompts too long."""

import random
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core.documents import Context, Document, Rejected, open_source
from spnb.core.episodes import run
from spnb.core.params import ParamError, validate
from spnb.core.types import Completion
from spnb.methods.proposer import Method, Params

LADDER = SimpleNamespace(family="journey", highest=4, sources=2, rivals=2)
DOCUMENTS = (Document("notes on a", "record of a"), Document("b"), Document("c", "record of c"))


@pytest.mark.parametrize(
    ("places", "records"),
    [
        (None, ["record of a", "b", "record of c"]),
        ((2, 0), ["record of c", "record of a"]),
        ((), []),
    ],
)
def test_a_proposer_reads_the_records_of_its_places_and_an_answerer_every_text(places, records):
    context = Context("general", DOCUMENTS, places=places)
    assert context.records == records
    assert context.texts == ("notes on a", "b", "c")


def test_what_the_oracle_knows_is_no_part_of_a_document():
    assert Document("a", truth=1) == Document("a", truth=2)
    assert "17" not in repr(Document("a", truth=17))


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("lab:laddr", "did you mean 'lab:ladder'"), ("ladder", "begins with 'lab:'")],
)
def test_an_unknown_source_is_answered_with_what_is_allowed(name, allowed):
    with pytest.raises(ParamError, match=f"source is '{name}'.*{allowed}"):
        open_source(name, LADDER, CharTokenizer())


def test_the_ladder_reads_its_own_question_back_and_its_oracle_judges_it():
    source = open_source("lab:ladder", LADDER, CharTokenizer())
    context = source.draw(random.Random(0), 0)
    subject = context.sources[1].subject
    first, second = context.sources[1].steps[:2]
    text = (
        "<question> Give each stop with its number, in order. Give the stops "
        f"{subject} made, two of them.</question><answer> {first} {second}</answer>"
    )
    proposal = source.read(text, context)
    judgement = source.judge(proposal, context)
    assert (judgement.level, judgement.answerable, judgement.right) == (2, True, True)
    assert source.task(proposal, context).gold == (
        f"{subject} first {first} {subject} second {second}",
    )
    assert source.agrees(proposal, f"{first} {second}") == 1.0
    assert source.agrees(proposal, f"{second} {first}") == source.agrees(proposal, None) == 0.0
    closed = source.task(proposal, context, documents=False)
    assert subject in closed.question
    assert "[1]" not in closed.messages[0]["content"]
    wrong = source.read(text.replace(f" {first} {second}<", f" {second} {first}<"), context)
    assert wrong == Rejected("no valid question")


@pytest.fixture
def method():
    """A method whose prompts may have fewer than 40 tokens."""
    made = Method(validate(Params, {"highest": 4}), CharTokenizer())
    made.params = made.params.model_copy(update={"max_length": 40})
    return made


class Echo:
    """Answers "ok" and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def generate(self, requests):
        self.asked += requests
        return [Completion((111, 107), (-1.0, -1.0), "ok", "stop") for _ in requests]


def test_a_prompt_that_is_too_long_is_not_asked_and_trains_nothing(method):
    engine = Echo()
    prompts = [[{"role": "user", "content": text}] for text in ("short", "long " * 40)]
    episode = method.sample("solver", prompts, 2, lambda place, copy: 10 * place + copy)
    short, long = run(episode, {"policy": engine})
    assert [request.seed for request in engine.asked] == [0, 1]
    assert [one.text for one in short] == ["ok", "ok"]
    assert [one.finish for one in long] == ["overlong", "overlong"]
    assert all(sum(one.mask) == 0 and not one.policy_text for one in long)
    sample = long[0].sample(0.0, "solver", 0)
    assert len(sample.completion_ids) == len(sample.mask) == 1


def test_numbers_are_logged_under_the_method_and_added(method):
    method.log(valid=True, level=2)
    method.log(**{"bad format": 0.5})
    assert method.metrics == {"method/valid": 1.0, "method/level": 2.0, "method/bad format": 0.5}
