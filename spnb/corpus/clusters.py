"""Clusters of documents to ask about: their task types, the form of a proposal, a corpus's own.

A corpus is a folder that `spnb corpus` wrote, or JSONL with the same columns, whose `metadata` has
each document's cluster, and its task type under `task` where the corpus says so (else types take
turns).
"""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spnb.core import prompts
from spnb.core.grading import grade
from spnb.core.params import unknown
from spnb.core.paths import resolve
from spnb.core.types import Messages, derive_seed
from spnb.corpus.store import CorpusError, load_corpus

LETTERS = "ABCD"
"""Of a choice's options."""
TYPES = {"journey": "general QA", "ledger": "financial", "choice": "multiple choice"}
"""Task types by their names in params, as papers call them."""
RULES = {"journey": "cover", "ledger": "numeric", "choice": "letter"}
"""How a response is compared with a proposal's answer, by family (`spnb.core.grading`)."""
TOLERANCE = 0.0015
"""Of numbers, relative to the proposal's answer (SPELL's released grader)."""
OPTION = re.compile(r"- (.+) \(([A-D])\)")


@dataclass(frozen=True)
class Document:
    """A text as an answerer reads it; with its source, as of generated ones, a record too."""

    text: str
    source: Any = None

    @property
    def record(self) -> str:
        """What a questioner reads: the source's steps in order, or the text where it has none."""
        return self.source.text if self.source else self.text


@dataclass(frozen=True)
class Cluster:
    """Documents of one task type that belong together."""

    name: str
    family: str
    documents: tuple[Document, ...]

    @property
    def sources(self) -> tuple[Any, ...]:
        """Those of its documents; none of a corpus."""
        return tuple(document.source for document in self.documents if document.source)

    @property
    def texts(self) -> tuple[str, ...]:
        """What an answerer reads."""
        return tuple(document.text for document in self.documents)


@dataclass(frozen=True)
class Proposal:
    """A question in the right form: its text, the options of a choice, the stated answer."""

    question: str
    answer: str
    options: tuple[str, ...] = ()


def check_type(family: str) -> None:
    """Raises ValueError for a family that is no task type."""
    if family not in TYPES:
        raise ValueError(unknown("task type", family, list(TYPES)))


def messages(family: str, proposal: Proposal, documents: Sequence[str]) -> Messages:
    """An answerer's prompt for a proposed question; without documents a closed one."""
    if family == "choice":
        return prompts.choice(proposal.question, proposal.options, documents)
    if not documents:
        return prompts.closed(proposal.question)
    return prompts.answer(proposal.question, documents, "plain")


def with_answer(question: str, answer: str) -> str:
    """A question with its answer, on one line."""
    return f"{question} {answer}"


def read_proposal(text: str, family: str) -> Proposal | None:
    """What a questioner wrote, None where its form is wrong (SPELL's format errors).

    Right: a question and an answer in their tags; the answer to a ledger is a number, a choice has
    four different options and the letter of one. Whether the answer is right is not looked at.
    """
    asked, answer = prompts.field(text, "question"), prompts.field(text, "answer")
    if asked is None or answer is None:
        return None
    if family != "choice":
        number = family != "ledger" or grade(answer, answer, "numeric")
        return Proposal(" ".join(asked.split()), answer) if number else None
    question, *listed = asked.split("\n")
    matches = [OPTION.fullmatch(line) for line in listed]
    options = tuple(match[1] for match in matches if match)
    in_order = [match[2] for match in matches if match] == list(LETTERS)
    whole = len(matches) == len(set(options)) == len(LETTERS) and in_order
    return Proposal(question, answer, options) if whole and answer in [*LETTERS] else None


def agrees(family: str, answer: str | None, proposal: Proposal) -> bool:
    """Whether a response's answer is the proposal's by the rule of its task type."""
    tolerance = TOLERANCE if family == "ledger" else 0.0
    return answer is not None and bool(grade(answer, proposal.answer, RULES[family], tolerance))


def read_clusters(corpus: str, types: Sequence[str], count: int, seed: int) -> list[Cluster]:
    """The clusters of a corpus, `count` documents of each, drawn by the seed.

    Raises:
        CorpusError: documents without a cluster, an unknown task type, or a cluster with fewer
            documents than `count`.
    """
    members: dict[str, list[Mapping[str, Any]]] = {}
    for number, row in enumerate(_rows(corpus)):
        metadata = row.get("metadata") or {}
        if "cluster" not in metadata:
            allowed = "allowed: a corpus of `spnb corpus`, whose documents have one"
            raise CorpusError(f"document {number} of {corpus!r} has no cluster; {allowed}")
        members.setdefault(str(metadata["cluster"]), []).append(row)
    made = []
    for place, (name, rows) in enumerate(sorted(members.items())):
        if len(rows) < count:
            message = f"cluster {name!r} of {corpus!r} has {len(rows)} documents"
            raise CorpusError(f"{message}; allowed: documents ({count}) or more")
        family = (rows[0].get("metadata") or {}).get("task", types[place % len(types)])
        check_type(family)
        drawn = random.Random(derive_seed(seed, "cluster", name)).sample(rows, count)
        made.append(Cluster(name, family, tuple(Document(row["text"]) for row in drawn)))
    return made


def shortened(cluster: Cluster, tokenizer: Any, size: int) -> Cluster:
    """A cluster whose documents have at most `size` tokens each."""
    texts = [cut(text, tokenizer, size) for text in cluster.texts]
    return replace(cluster, documents=tuple(map(Document, texts)))


def cut(text: str, tokenizer: Any, size: int) -> str:
    """The first `size` tokens of a text, back to the last end of a word where there is one."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [start for start, _ in encoded["offset_mapping"]]
    if len(starts) <= size:
        return text
    end = starts[size]
    places = [at for at in range(1, end + 1) if text[at].isspace() and not text[at - 1].isspace()]
    return text[: places[-1] if places else end].rstrip()


def _rows(corpus: str) -> Iterable[Mapping[str, Any]]:
    if not corpus.endswith(".jsonl"):
        return load_corpus(corpus)
    path = resolve(corpus)
    if not path.is_file():
        raise CorpusError(f"corpus is {str(path)!r}; allowed: an existing file, or a folder")
    lines = enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
    return [
        _document(line, f"line {number} of {corpus!r}") for number, line in lines if line.strip()
    ]


def _document(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{where} is not JSON ({error}); allowed: one document a line") from None
    known = isinstance(row, dict) and isinstance(row.get("metadata") or {}, dict)
    if not known or not isinstance(row.get("text"), str):
        raise CorpusError(f"{where} is no document; allowed: an object with text and metadata")
    return row
