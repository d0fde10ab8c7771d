"""Clusters of documents to ask about: their task types, the form of a proposal, a corpus's own.

A corpus is a folder that `spnb corpus` wrote, or JSONL with the same columns, whose `metadata` has
each document's cluster, and its task type under `task` where the corpus says so (else types take
turns).
"""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Context, Document, DocumentSource, Proposal, Rejected
from spnb.core.grading import grade
from spnb.core.params import require
from spnb.core.types import Messages, Task, derive_seed
from spnb.corpus.store import CorpusError, open_store, readable

LETTERS = "ABCD"
"""Of a choice's options."""
TYPES = {"journey": "general QA", "ledger": "financial", "choice": "multiple choice"}
"""Task types by their names in params, as papers call them."""
RULES = {"journey": "cover", "ledger": "numeric", "choice": "letter"}
"""How a response is compared with a proposal's answer, by family (`spnb.core.grading`)."""
MOST_WORDS = 40
"""Of a stated answer that is no letter."""
TOLERANCE = 0.0015
"""Of numbers, relative to the proposal's answer (SPELL's released grader)."""


def messages(family: str, proposal: Proposal, documents: Sequence[str]) -> Messages:
    """An answerer's prompt for a proposed question; without documents a closed one."""
    if family == "choice":
        return prompts.choice(proposal.question, proposal.options, documents)
    if not documents:
        return prompts.closed(proposal.question)
    return prompts.answer(proposal.question, documents, "plain")


def with_answer(question: str, answer: str) -> str:
    """A question with its answer, on one line."""
    return " ".join(f"{question} {answer}".split())


def read_proposal(text: str, family: str) -> Proposal | Rejected:
    """What a questioner wrote, by its form alone (SPELL's format errors).

    Right: a question and an answer in their tags; the answer to a ledger is a number, a choice has
    four different options and the letter of one. Whether the answer is right is not looked at.
    """
    asked = prompts.field(text, "question")
    answer = prompts.field(text, "answer")
    if asked is None or answer is None:
        return Rejected("no question or no answer")
    if family != "choice":
        if family == "ledger" and not grade(answer, answer, "numeric"):
            return Rejected("the answer is no number")
        if len(answer.split()) > MOST_WORDS:
            return Rejected("the answer is too long")
        return Proposal(" ".join(asked.split()), answer, kind=family)
    question, options = prompts.read_options(asked)
    answer = answer.strip(" .()")
    if not len(options) == len(set(options)) == len(LETTERS):
        return Rejected("not four different options")
    if answer not in [*LETTERS]:
        return Rejected("the answer is no option's letter")
    return Proposal(question, answer, tuple(options), family)


def agrees(family: str, answer: str | None, proposal: Proposal) -> bool:
    """Whether a response's answer is the proposal's by the rule of its task type."""
    tolerance = TOLERANCE if family == "ledger" else 0.0
    return answer is not None and bool(grade(answer, proposal.answer, RULES[family], tolerance))


def read_clusters(
    corpus: str, types: Sequence[str], counts: Sequence[int], seed: int, least: int = 1
) -> list[Context]:
    """The clusters of a corpus, so many documents of each, drawn by the seed; `counts` take turns.
    Of a cluster with fewer, all; those with fewer than `least`, which a questioner reads, are left
    out, with a warning.

    Raises:
        CorpusError: documents without a cluster, an unknown task type, or every cluster left out.
    """
    members: dict[str, list[Mapping[str, Any]]] = {}
    for number, row in enumerate(_rows(corpus)):
        metadata = row.get("metadata") or {}
        if "cluster" not in metadata:
            allowed = "allowed: a corpus of `spnb corpus`, whose documents have one"
            raise CorpusError(f"document {number} of {corpus!r} has no cluster; {allowed}")
        members.setdefault(str(metadata["cluster"]), []).append(row)
    large = {name: rows for name, rows in members.items() if len(rows) >= least}
    if not large:
        raise CorpusError(f"no cluster of {corpus!r} has documents_read ({least}) documents")
    if small := len(members) - len(large):
        few = "of %d clusters of %r, %d have fewer than documents_read (%d) and are left out"
        logging.warning(few, len(members), corpus, small, least)
    made = []
    for place, (name, rows) in enumerate(sorted(large.items())):
        count = counts[place // len(types) % len(counts)]
        family = (rows[0].get("metadata") or {}).get("task", types[place % len(types)])
        require("task type", family if isinstance(family, str) else repr(family), TYPES, ValueError)
        rng = random.Random(derive_seed(seed, "cluster", name))
        drawn = rng.sample(rows, min(count, len(rows)))
        documents = tuple(Document(row["text"]) for row in drawn)
        made.append(Context(kind=family, documents=documents, name=name))
    return made


def shortened(cluster: Context, tokenizer: Any, size: int) -> Context:
    """A cluster whose documents have at most `size` tokens each."""
    texts = [cut(text, tokenizer, size) for text in cluster.texts]
    return replace(cluster, documents=tuple(map(Document, texts)))


def cut(text: str, tokenizer: Any, size: int) -> str:
    """The first `size` tokens of a text, back to the last end of a word where there is one. Blanks
    before the first word are left out."""
    text = text.lstrip()
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [start for start, _ in encoded["offset_mapping"]]
    if len(starts) <= size:
        return text
    end = starts[size]
    places = [at for at in range(1, end + 1) if text[at].isspace() and not text[at - 1].isspace()]
    return text[: places[-1] if places else end].rstrip()


class Clusters(DocumentSource):
    """Clusters of documents by task type, without an oracle. `form`: what a questioner is told of
    its proposal's form by task type, beside `prompts.ask`.

    Raises:
        CorpusError: there is no cluster of a task type.
    """

    form: Mapping[str, str] = {}

    def __init__(self, every: Sequence[Context], kinds: Sequence[str]):
        self.kinds = list(kinds)
        self.by_kind = {name: [one for one in every if one.kind == name] for name in self.kinds}
        for name, those in self.by_kind.items():
            if not those:
                why = f"{len(every)} clusters have none of task type {name!r}"
                raise CorpusError(f"{why}; allowed: at least one of each of tasks {self.kinds}")

    def draw(self, rng: random.Random, place: int) -> Context:
        """A cluster; task types take turns with the place."""
        return rng.choice(self.by_kind[self.kinds[place % len(self.kinds)]])

    def ask(self, context: Context, earlier: Sequence[str] = ()) -> Messages:
        kind = "choice" if context.kind == "choice" else "question"
        return prompts.ask(context.records, earlier, kind, self.form.get(context.kind, ""))

    def read(self, text: str, context: Context) -> Proposal | Rejected:
        return read_proposal(text, context.kind)

    def task(self, proposal: Proposal, context: Context, documents: bool = True) -> Task:
        texts = context.texts if documents else ()
        return Task(messages(context.kind, proposal, texts), proposal.question, (proposal.answer,))

    def agrees(self, proposal: Proposal, answer: str | None) -> float:
        """1 where an answer is the stated one by the rule of its task type."""
        return float(agrees(proposal.kind, answer, proposal))

    def means(self, proposal: Proposal, answer: str | None) -> bool | None:
        """Whether an answer means the stated one: None, nobody knows."""
        return None


class CorpusClusters(Clusters):
    """The clusters of a corpus of one's own (`params.corpus`), as `read_clusters` reads them."""

    form = prompts.WORDS["corpus"]["form"]

    def __init__(self, params: Any, tokenizer: Any = None):
        few = params.documents_read
        every = read_clusters(params.corpus, params.tasks, params.documents, params.seed, few)
        if params.document_tokens:
            every = [shortened(one, tokenizer, params.document_tokens) for one in every]
        super().__init__(every, params.tasks)


def _rows(corpus: str) -> Iterator[Mapping[str, Any]]:
    store = open_store(corpus)
    for place in range(len(store)):
        row, where = store.row(place)
        known = isinstance(row, Mapping) and isinstance(row.get("metadata") or {}, dict)
        if not (known and isinstance(row.get("text"), str) and row["text"].strip()):
            raise CorpusError(f"{where} is no document; allowed: an object with text and metadata")
        yield row | {"text": readable(row["text"])}
