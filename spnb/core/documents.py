"""Documents, questions about them, and an oracle that may know the truth: what the papers share.

SPELL's clusters, SPICE's segments, the proposer's sources, RLVR's questions, SSP's targets and
SCOPE's documents are sources in this sense. A method proposes, filters, answers, verifies and pays
over a `DocumentSource` and knows nothing else of the documents.

    source = open_source("lab:ladder", params, tokenizer)
    context = source.draw(rng, place=0)
    proposal = source.read(text_of_a_proposer, context)     # a Proposal, or Rejected("no question")
    task = source.task(proposal, context)                   # as the answerer gets it
"""

import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from spnb.core.method import Suite
from spnb.core.params import ParamError
from spnb.core.plugins import find
from spnb.core.types import Chat, Messages, Task

LAB = "lab:"
"""What the names of the laboratory's sources begin with; all others are corpora of one's own."""


@dataclass(frozen=True)
class Document:
    """A text as an answerer reads it.

    `record` is what a proposer reads of it, where that is another text; `truth` what the source's
    oracle knows of it, None in a corpus. No method reads `truth`.
    """

    text: str
    record: str = ""
    truth: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Context:
    """What one proposal is about: a task type, and documents under a name.

    `places` are those of the documents that the proposer reads; None: all.
    """

    kind: str
    documents: tuple[Document, ...] = ()
    name: str = ""
    places: tuple[int, ...] | None = None

    @property
    def records(self) -> list[str]:
        """What the proposer reads."""
        places = range(len(self.documents)) if self.places is None else self.places
        chosen = [self.documents[place] for place in places]
        return [document.record or document.text for document in chosen]

    @property
    def texts(self) -> tuple[str, ...]:
        """What an answerer reads."""
        return tuple(document.text for document in self.documents)


@dataclass(frozen=True)
class Proposal:
    """A question in the right form: its text, the stated answer, the options of a choice, and the
    type of its answer. Whether the answer is right is another matter (`Judgement`)."""

    question: str
    answer: str
    options: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Rejected:
    """A proposer's text that is no proposal; the reason is a few words, the same for each cause, so
    that reasons can be counted."""

    reason: str


@dataclass(frozen=True)
class Judgement:
    """What an oracle says of a proposal. It goes into records and metrics, never into a reward.

    `level`: steps that the answer takes, 0 where the oracle cannot read the question.
    `answerable`: there is one true answer, `gold`; `right`: it is the stated one.
    `grade`: how an answer is compared with `gold` (`spnb.core.grading`).
    `self_contained`: the question holds all that is needed. `faithful`: what it states stands in
    the documents. `leaks`: the answer stands in the question. The last three are None where they
    do not apply.
    """

    level: int = 0
    answerable: bool = False
    right: bool = False
    self_contained: bool | None = None
    faithful: bool | None = None
    leaks: bool | None = None
    gold: str = ""
    grade: str = ""


class DocumentSource(Protocol):
    """Documents to ask about. A corpus of one's own knows no truth; the laboratory's sources do."""

    kinds: Sequence[str]
    """The task types that there are."""

    def draw(self, rng: random.Random, place: int) -> Context:
        """What a proposal is about; task types take turns with the place."""

    def ask(self, context: Context, earlier: Sequence[str] = ()) -> Messages:
        """The proposer's prompt; `earlier` questions are to be surpassed."""

    def read(self, text: str, context: Context) -> Proposal | Rejected:
        """What a proposer wrote, by its form alone."""

    def task(self, proposal: Proposal, context: Context, documents: bool = True) -> Task:
        """The proposal as an answerer gets it, with the documents or without them."""

    def agrees(self, proposal: Proposal, answer: str | None) -> float:
        """Whether an answer is the stated one, by the paper's rule; 0 to 1."""

    def judge(self, proposal: Proposal, context: Context) -> Judgement | None:
        """What the oracle says; None where there is none."""
        return None

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        """What is measured in the documents' world; `end`: before the first step, after the last.
        A corpus has none of its own: the run's `benchmarks` measure it."""
        return []


def open_source(
    name: str,
    params: Any,
    tokenizer: Any,
    corpus: Callable[[Any, Any], Any] | None = None,
    kind: type = object,
) -> Any:
    """A source of this name, set up by a method's parameters: the laboratory's ("lab:ladder"), one
    that a plugin registered (`spnb.core.plugins`), or what `corpus` makes of a corpus of one's own.

    Raises:
        ParamError: there is no source of this name, or a plugin's is not of the `kind` that the
            method takes.
    """
    if corpus is None or name.startswith(LAB):
        return _laboratory(name).make_source(params, tokenizer)
    source = (find("source", name) or corpus)(params, tokenizer)
    if not isinstance(source, kind):
        allowed = f"one that makes a {kind.__module__}.{kind.__name__}"
        raise ParamError(f"source {name!r} makes a {type(source).__name__}; allowed: {allowed}")
    return source


def check_source(name: str, params: Any) -> None:
    """ValueError for parameters that the source of this name does not take; see `open_source`."""
    _laboratory(name).check(params)


def _laboratory(name: str) -> Any:
    """The module of a source of the laboratory, which is reached by name alone, so that nothing
    that a method needs imports it."""
    if not name.startswith(LAB):
        raise ParamError(f"source is {name!r}; allowed: a name that begins with {LAB!r}")
    return importlib.import_module("spnb.lab").source_module(name.removeprefix(LAB))
