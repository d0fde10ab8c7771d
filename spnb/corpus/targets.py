"""Answers to ask for by search in a corpus of one's own: the titles of its documents, or a list.

SSP's answers are given, and its paper does not say where they come from; the released ones
(`Quark-LLM/SSP`, 50,000) look like titles of Wikipedia pages. Each has a number of searches and
examples of questions:

    {"ground_truth": "Castle Drogo", "search_turns": 3, "sys_question_example": "..."}
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Context, DocumentSource, Proposal, Rejected
from spnb.core.grading import grade, normal
from spnb.core.paths import resolve
from spnb.core.search import Hit, Retriever
from spnb.core.types import Messages, Task
from spnb.corpus.retrieval import KINDS, make_retriever
from spnb.corpus.store import CorpusError, open_store

KIND = "title"
LONGEST = 8
"""Words of a title that may be an answer."""
INDEXES = "runs/index"
"""Where what is embedded of corpora is kept, as by `spnb serve-retriever`."""
HELD_OUT = 10
"""Every so many-th answer is for evaluation alone."""
FIELDS = ("ground_truth", "search_turns", "sys_question_example")
"""Of a row of a list of answers; the first must be there."""


@dataclass(frozen=True)
class Target(Context):
    """The answer, `name`, that a question is asked for, how many searches it should take (0: to be
    drawn), and questions that it should be like."""

    searches: int = 0
    examples: tuple[str, ...] = ()


class Questions:
    """What sources of given answers share."""

    match = "exact"
    """How an answer has to match: a kind of `spnb.core.grading`."""

    def read(self, text: str, context: Context) -> Proposal | Rejected:
        """Any question in its tag; its answer is the given one."""
        question = prompts.field(text, "question")
        return Proposal(question, context.name) if question else Rejected("no question")

    def task(self, proposal: Proposal, context: Context, documents: bool = True) -> Task:
        """The question, to be answered by search."""
        messages = prompts.search(proposal.question, "plain")
        return Task(messages, proposal.question, (proposal.answer,), self.match)


class Titled:
    """A retriever whose documents begin with their titles: these are the answers."""

    def __init__(self, retriever: Retriever):
        self.retriever = retriever

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        found = self.retriever.search(queries, k)
        return [[replace(hit, text=titled(hit.title, hit.text)) for hit in hits] for hits in found]


def titled(title: str, text: str) -> str:
    """A document as it is read: its title, where it has one, and its text."""
    return f"{title}: {text}" if title else text


def read_answers(file: str) -> list[Target]:
    """The answers of a JSONL file; see the module. Whether a document holds them is not checked: a
    question for one that none holds is hardly ever verified.

    Raises:
        CorpusError: no such file, none in it, or a row that is no answer; the message names the
            line and the field.
    """
    path = resolve(file)
    if not path.is_file():
        raise CorpusError(f"answers is {str(path)!r}; allowed: an existing .jsonl file")
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise CorpusError(f"answers {path.name} has 0 rows; allowed: 1 or more")
    return [_answer(line, f"line {number} of {path.name}") for number, line in rows]


def _answer(line: str, where: str) -> Target:
    """The answer of a line, which stands at `where`."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} is not JSON ({error}); allowed: one answer a line") from None
    if not isinstance(row, Mapping):
        allowed = f"an object with {', '.join(FIELDS)}"
        raise CorpusError(f"{where} is {type(row).__name__}; allowed: {allowed}")
    name, searches, examples = (row.get(field) for field in FIELDS)
    examples = [examples] if isinstance(examples, str) else examples
    texts = examples is None or isinstance(examples, list)
    checks = (
        isinstance(name, str) and normal(name) != "",
        searches is None or (type(searches) is int and searches >= 1),
        texts and all(isinstance(each, str) and each.strip() for each in examples or ()),
    )
    allowed = ("a text", "1 or more, or none", "a text or several, or none")
    for field, fine, instead in zip(FIELDS, checks, allowed, strict=True):
        if not fine:
            raise CorpusError(f"{field} of {where} is {row.get(field)!r}; allowed: {instead}")
    return Target(KIND, name=name.strip(), searches=searches or 0, examples=tuple(examples or ()))


def open_retriever(name: str, corpus: str) -> Titled:
    """An index of a kind over a corpus, or the client of a server; what is embedded is kept."""
    if name in KINDS:
        return Titled(make_retriever(name, corpus, None if name == "bm25" else INDEXES))
    from spnb.corpus.server import RetrieverClient  # late: httpx takes time

    return Titled(RetrieverClient(name))


class TitleTargets(Questions, DocumentSource):
    """The titles of a corpus (`params.corpus`), or the answers of a list (`params.answers`, see
    `read_answers`), and a retriever over the corpus.

    `params.retriever`: a kind of index, or the URL of a server in Search-R1's schema.
    `params.highest`: the most searches that a question is asked to take, where its answer does not
    say how many. `params.examples`: of questions, where it has none.

    Raises:
        CorpusError: no such corpus or list, or fewer than `HELD_OUT` different answers in it.
    """

    kinds: Sequence[str] = (KIND,)
    match = "words"

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        if params.answers:
            targets = read_answers(params.answers)
            there = "answers", params.answers, "different ones"
        else:
            titles = dict.fromkeys(hit.title.strip() for hit in open_store(params.corpus))
            titles = [title for title in titles if normal(title) and len(title.split()) <= LONGEST]
            targets = [Target(KIND, name=title) for title in titles]
            there = "corpus", params.corpus, f"titles of 1 to {LONGEST} words"
        names = dict.fromkeys(normal(target.name) for target in targets)
        if len(names) < HELD_OUT:
            key, value, what = there
            found = f"{key} {value!r} has {len(names)} {what}"
            raise CorpusError(f"{found}; allowed: {HELD_OUT} or more")
        heldout = {*list(names)[::HELD_OUT]}
        self.pools: dict[str, list[Target]] = {"train": [], "heldout": []}
        for target in targets:
            pool = "heldout" if normal(target.name) in heldout else "train"
            self.pools[pool].append(target)
        self._retriever = open_retriever(params.retriever, params.corpus)

    def draw(self, rng: random.Random, place: int = 0, pool: str = "train") -> Target:
        searches = rng.randint(1, self.params.highest)
        target = rng.choice(self.pools[pool])
        return replace(target, searches=target.searches or searches)

    def ask(self, context: Target, earlier: Sequence[str] = ()) -> Messages:
        examples = context.examples or self.params.examples
        return prompts.ask_search(context.name, context.searches, examples)

    def agrees(self, proposal: Proposal, answer: str | None) -> float:
        return 0.0 if answer is None else grade(answer, proposal.answer, self.match)

    def retriever(self, pool: str = "train") -> Retriever:
        return self._retriever
