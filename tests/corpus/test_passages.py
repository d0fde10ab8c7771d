"""Documents of a corpus of one's own for open-ended tasks: draws, prompts, and SCOPE over them."""

import json
import random
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.documents import Proposal, Rejected
from spnb.core.episodes import run
from spnb.core.params import ParamError, validate
from spnb.core.types import Completion
from spnb.corpus.passages import Passages, draw_searches
from spnb.corpus.store import CorpusError
from spnb.methods.scope import Method, Params

PAGES = {"Reed": "a novel by Ada Orr " * 9, "Tarn": "a town on the Elde", "Vell": "a firm in Tarn"}
PAGES |= {f"Page {number}": f"of no interest, {number}" for number in range(9)}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "pages.jsonl"
    rows = [{"id": name, "title": name, "text": text} for name, text in PAGES.items()]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def source(corpus, **values):
    own = {"kinds": ["summary", "plan"], "style": "careful", "max_searches": 5}
    own |= {"document_tokens": 30, "retriever": "bm25", "corpus": corpus, **values}
    return Passages(SimpleNamespace(**own), CharTokenizer())


def test_documents_are_cut_types_take_turns_and_searches_come_as_four_to_three_to_two(corpus):
    made = source(corpus)
    drawn = [made.draw(random.Random(seed), seed) for seed in range(300)]
    texts = {context.texts[0] for context in drawn}
    named = [f"{name}: {text[:30].rstrip()}" for name, text in PAGES.items()]
    kept = {made.draw(random.Random(seed), 0, "heldout").texts[0] for seed in range(30)}
    assert kept == {named[0], named[10]} and texts == {*named} - kept
    assert [context.kind for context in drawn[:3]] == ["summary", "plan", "summary"]
    rng = random.Random(0)
    counts = Counter(draw_searches(rng) for _ in range(900))
    assert [counts[one] / 900 for one in (1, 2, 3)] == pytest.approx(
        [4 / 9, 3 / 9, 2 / 9], abs=0.06
    )


def test_prompts_name_type_searches_and_document(corpus):
    made = source(corpus)
    context = made.draw(random.Random(1), 1)
    content = made.ask(context)[0]["content"]
    assert content.startswith(prompts.WORDS["ask by reading"]["careful"])
    assert f"Type: {prompts.TASK_TYPES['plan']}\nQueries: {context.searches}\n" in content
    assert content.endswith(f"Document: {context.texts[0]}")
    proposal = made.read("<think> x</think><task> Plan a visit.</task>", context)
    assert proposal == Proposal("Plan a visit.", "", kind="plan")
    assert made.read("Plan a visit.", context) == Rejected("no task")
    task = made.task(proposal, context)
    assert task.messages[0]["content"].endswith("Queries, at most: 5\nTask: Plan a visit.")
    assert task.gold == () and made.judge(proposal, context) is None
    assert made.rubric(proposal, context) is None and made.oracle(task, "x") == {}
    assert made.states("a", "a") is None and made.heldout(3) == []
    assert made.suites(None, made.params, True) == []


def test_a_small_corpus_is_named(tmp_path):
    nine = tmp_path / "nine.jsonl"
    rows = [{"id": str(n), "title": f"T{n}", "text": "x"} for n in range(10)]
    nine.write_text("\n".join(map(json.dumps, rows[:9])))
    with pytest.raises(CorpusError, match="has 9 documents; allowed: 10 or more"):
        source(str(nine))
    ten = tmp_path / "ten.jsonl"
    ten.write_text("\n".join(map(json.dumps, rows)))
    assert source(str(ten)).draw(random.Random(0), 0, "heldout").name == "T0"


def test_an_empty_corpus_is_named(tmp_path):
    empty = tmp_path / "none.jsonl"
    empty.write_text("")
    with pytest.raises(CorpusError, match="0"):
        source(str(empty))


class World:
    """All roles over the pages: tasks, three points, answers that state two or one of them."""

    def __init__(self):
        self.answers, self.graded = 0, []

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]

    def reply(self, prompt):
        if prompts.WORDS["identifiable"] in prompt or prompts.WORDS["relevant"] in prompt:
            return "<answer> yes</answer>"
        if prompts.RUBRICS["careful"] in prompt:
            assert re.search("\nType: (question|summary|plan|writing)\nTask: Tell", prompt)
            return "<rubric>Names Ada.</rubric><rubric>Names Elde.</rubric><rubric>Sings.</rubric>"
        if prompts.WORDS["grade careful"] in prompt:
            self.graded.append(prompt)
            response, point = prompt.split("Response: ")[1].split("\nPoint: ")
            there = point.removeprefix("Names ").strip(".") in response
            return f"<answer> {'yes' if there else 'no'}</answer>"
        if "<information>\n[1]" not in prompt:
            return "<think> look</think><search> Tarn</search>"
        if prompts.WORDS["ask by reading"]["careful"] in prompt:
            return "<think> go</think><task> Tell of Ada and the Elde.</task>"
        self.answers += 1
        text = "Ada by the Elde" if self.answers % 2 else "Ada"
        return f"<think> go</think><answer> {text}</answer>"


def test_scope_learns_over_a_corpus_without_an_oracle(corpus):
    values = {"corpus": corpus, "documents_per_step": 2, "proposals": 2, "attempts": 2}
    values |= {"max_length": 100_000, "results": 1}
    made = Method(validate(Params, values), CharTokenizer())
    world = World()
    rows = run(made.rollout(0), dict.fromkeys(("challenger", "policy", "judge"), world))
    challenger = [row for row in rows if row.role == "challenger"]
    assert [row.info["success"] for row in challenger] == pytest.approx([0.5] * 4)
    assert all("Task: Tell of Ada and the Elde." in prompt for prompt in world.graded)
    numbers = {name.removeprefix("method/"): value for name, value in made.metrics.items()}
    assert numbers["grade"] == pytest.approx(0.5) and numbers["usable"] == 1
    assert not {"oracle", "grades right", "level", "rubric recall"} & {*numbers}
    assert not {"given and not there", "withheld and there"} & {*numbers}
    assert [suite.name for suite in made.suites(0)] == ["tasks"]
    with pytest.raises(ParamError, match="without an oracle"):
        validate(Params, values | {"rubrics": "oracle"})
