"""Answers to ask for by search in a corpus of one's own: the titles of its documents.

SSP's answers are given, and its paper does not say where they come from; the released ones look
like titles of Wikipedia pages, with a number of searches for each.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Context, Judgement, Proposal, Rejected
from spnb.core.grading import grade
from spnb.core.method import Suite
from spnb.core.search import Hit, Retriever
from spnb.core.types import Chat, Messages, Task
from spnb.corpus.retrieval import KINDS, make_retriever
from spnb.corpus.store import CorpusError, open_store

KIND = "title"
LONGEST = 8
"""Words of a title that may be an answer."""
HELD_OUT = 10
"""Every so many-th title is for evaluation alone."""


@dataclass(frozen=True)
class Target(Context):
    """The answer, `name`, that a question is asked for, and how many searches it should take."""

    searches: int = 1


def read_question(text: str, context: Context) -> Proposal | Rejected:
    """Any question in its tag; its answer is the given one."""
    question = prompts.field(text, "question")
    return Proposal(question, context.name) if question else Rejected("no question")


def search_task(proposal: Proposal) -> Task:
    """A question to be answered by search."""
    messages = prompts.search(proposal.question, "plain")
    return Task(messages, proposal.question, (proposal.answer,), "exact")


class Titled:
    """A retriever whose documents begin with their titles: these are the answers."""

    def __init__(self, retriever: Retriever):
        self.retriever = retriever

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """What the retriever finds."""
        found = self.retriever.search(queries, k)
        return [[replace(hit, text=f"{hit.title}: {hit.text}") for hit in hits] for hits in found]


def open_retriever(name: str, corpus: str) -> Titled:
    """An index of a kind over a corpus, or the client of a server."""
    if name in KINDS:
        return Titled(make_retriever(name, corpus))
    from spnb.corpus.server import RetrieverClient  # late: httpx takes time

    return Titled(RetrieverClient(name))


class TitleTargets:
    """The titles of a corpus (`params.corpus`), and a retriever over it.

    `params.retriever`: a kind of index, or the URL of a server in Search-R1's schema.
    `params.highest`: the most searches that a question is asked to take.

    Raises:
        CorpusError: no such corpus, or fewer than `HELD_OUT` titles in it.
    """

    kinds: Sequence[str] = (KIND,)

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        store = open_store(params.corpus)
        titles = dict.fromkeys(hit.title.strip() for hit in store)
        self.titles = [title for title in titles if 0 < len(title.split()) <= LONGEST]
        if len(self.titles) < HELD_OUT:
            there = f"corpus {params.corpus!r} has {len(self.titles)} titles"
            raise CorpusError(f"{there} of 1 to {LONGEST} words; allowed: {HELD_OUT} or more")
        self.pools = {
            "train": [title for place, title in enumerate(self.titles) if place % HELD_OUT],
            "heldout": self.titles[::HELD_OUT],
        }
        self._retriever = open_retriever(params.retriever, params.corpus)

    def draw(self, rng: random.Random, place: int = 0, pool: str = "train") -> Target:
        """A title of a pool, and a number of searches."""
        searches = rng.randint(1, self.params.highest)
        return Target(kind=KIND, name=rng.choice(self.pools[pool]), searches=searches)

    def ask(self, context: Target, earlier: Sequence[str] = ()) -> Messages:
        """The proposer's prompt."""
        return prompts.ask_search(context.name, context.searches)

    def read(self, text: str, context: Context) -> Proposal | Rejected:
        """See `read_question`."""
        return read_question(text, context)

    def task(self, proposal: Proposal, context: Context, documents: bool = True) -> Task:
        """See `search_task`."""
        return search_task(proposal)

    def agrees(self, proposal: Proposal, answer: str | None) -> float:
        """Whether an answer is the given one."""
        return 0.0 if answer is None else grade(answer, proposal.answer)

    def judge(self, proposal: Proposal, context: Context) -> Judgement | None:
        """There is no oracle."""
        return None

    def retriever(self, pool: str = "train") -> Retriever:
        """The same for both pools."""
        return self._retriever

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        """None: a run's benchmarks measure it."""
        return []
