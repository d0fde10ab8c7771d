"""Documents of a corpus of one's own to write open-ended tasks about, and to search in: SCOPE's.

Nobody knows the truth about them: rubrics and grades are a judge's alone.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.documents import Context, Document, DocumentSource, Proposal, Rejected
from spnb.core.search import Retriever
from spnb.core.types import Messages, Task
from spnb.corpus.clusters import cut
from spnb.corpus.store import CorpusError, open_store
from spnb.corpus.targets import HELD_OUT, open_retriever, titled

SEARCHES = {1: 4, 2: 3, 3: 2}
"""How often a challenger has to search, and in which proportions (SCOPE, appendix)."""
Pool = Literal["train", "heldout"]


@dataclass(frozen=True)
class Reading(Context):
    """A document, the type of task to write about it, and how many searches come before."""

    searches: int = 1
    pool: Pool = "train"


def draw_searches(rng: random.Random) -> int:
    """A number of searches in the paper's proportions."""
    return rng.choices(list(SEARCHES), list(SEARCHES.values()))[0]


class Readings:
    """What sources of open-ended tasks share; `params.style`: of the prompts."""

    params: Any

    def ask(self, context: Reading, earlier: Sequence[str] = ()) -> Messages:
        (text,) = context.texts
        return prompts.ask_report(text, context.kind, context.searches, self.params.style)

    def read(self, text: str, context: Context) -> Proposal | Rejected:
        """Any task in its tag."""
        task = prompts.field(text, "task")
        return Proposal(task, "", kind=context.kind) if task else Rejected("no task")

    def agrees(self, proposal: Proposal, answer: str | None) -> float:
        """No answer is the right one: a rubric decides."""
        return 0.0


class Passages(Readings, DocumentSource):
    """The documents of `params.corpus`, each cut to `params.document_tokens`.

    `params.retriever`: a kind of index, or the URL of a server in Search-R1's schema.
    `params.kinds`: types of tasks, `params.style` and `params.max_searches`: for the prompts.

    Raises:
        CorpusError: no such corpus, fewer than `HELD_OUT` documents in it, or one without words.
    """

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        self.tokenizer = tokenizer
        self.kinds: Sequence[str] = params.kinds
        self.store = open_store(params.corpus)
        if (count := len(self.store)) < HELD_OUT:
            there = f"corpus {params.corpus!r} has {count} documents"
            allowed = f"{HELD_OUT} or more, one in {HELD_OUT} is held out"
            raise CorpusError(f"{there}; allowed: {allowed}")
        self.store.check()
        self._retriever = open_retriever(params.retriever, params.corpus)

    def draw(self, rng: random.Random, place: int = 0, pool: Pool = "train") -> Reading:
        """A document, a held-out one in `HELD_OUT`; types of tasks take turns with the place. Of a
        page that is cut into several documents some may be held out and others not."""
        heldout = range(0, len(self.store), HELD_OUT)
        if pool == "heldout":
            row = rng.choice(heldout)
        else:
            number = rng.randrange(len(self.store) - len(heldout))
            row = number + number // (HELD_OUT - 1) + 1
        hit = self.store[row]
        text = cut(hit.text, self.tokenizer, self.params.document_tokens)
        document = Document(titled(hit.title, text))
        kind = self.kinds[place % len(self.kinds)]
        return Reading(kind, (document,), hit.title, searches=draw_searches(rng), pool=pool)

    def task(self, proposal: Proposal, context: Context, documents: bool = True) -> Task:
        text = proposal.question
        messages = prompts.report(text, self.params.style, self.params.max_searches)
        return Task(messages, text, kind="report")

    def rubric(self, proposal: Proposal, context: Context) -> tuple[str, ...] | None:
        return None

    def oracle(self, task: Task, text: str) -> dict[str, float]:
        return {}

    def states(self, answer: str, point: str) -> bool | None:
        return None

    def retriever(self, pool: str = "train") -> Retriever:
        return self._retriever

    def heldout(self, count: int) -> list[Task]:
        return []
