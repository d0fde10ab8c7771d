"""Clusters of documents on the ladder: what SPELL's three roles read and write.

A document is about one person. A questioner reads it as a record, the steps in order
(`Source.text`); an answerer reads it as notes on all of its steps in random order, among the other
documents of its cluster. A question asks for the first `level` steps of one document.

    cluster = draw_cluster("journey", 4, random.Random(0))
    task = draw_task("journey", 3, random.Random(0), documents=4)
    grade_text(reply(task, (0, 1, 2)), task)     # 1.0

Task types are families of the ladder: journey (general question answering), ledger (numbers worked
out from accounts), choice (four options). `read_proposal` checks a proposal's form alone, as SPELL
does; `truth` is the oracle's answer to any question in one of the ladder's wordings.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from spnb.core.documents import Context, Document, Proposal
from spnb.core.types import Task
from spnb.corpus.clusters import TYPES as TYPES
from spnb.corpus.clusters import agrees, check_type
from spnb.corpus.clusters import messages as messages
from spnb.corpus.clusters import read_proposal as read_proposal
from spnb.corpus.clusters import with_answer as with_answer
from spnb.lab import ladder
from spnb.lab.ladder import LETTERS, ORDINALS, WORDING, WORLDS, Source
from spnb.lab.world import Pool

LENGTH = 6
"""Steps of a document."""


@dataclass(frozen=True)
class Cluster(Context):
    """A generated cluster with the sources that a question may be about."""

    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)


def write_documents(
    sources: Sequence[Source], rng: random.Random, wordings: Sequence[str], spread: bool = False
) -> list[str]:
    """A text for each source, all of its notes in random order and wordings.

    `spread`: the notes of all sources are dealt out to all texts alike, so that no document has a
    person's steps together.
    """
    notes = [(source, place) for source in sources for place in range(len(source.steps))]
    texts: list[list[str]] = [[] for _ in sources]
    for number, (source, place) in enumerate(rng.sample(notes, len(notes))):
        at = number % len(sources) if spread else sources.index(source)
        texts[at].append(ladder.note(source, place, rng.choice(wordings)))
    return [" ".join(text) for text in texts]


def draw_cluster(
    family: str,
    count: int,
    rng: random.Random,
    length: int = LENGTH,
    pool: Pool = "train",
    name: str = "",
) -> Cluster:
    """A cluster of `count` documents of `length` steps, names and wordings of a pool.

    Raises ValueError for a family that is no task type, or a length that there is not.
    """
    check_type(family)
    sources = ladder.draw_sources(rng, family, count, length, pool)
    texts = write_documents(sources, rng, WORDING[WORLDS[family]]["notes"][pool])
    pairs = zip(texts, sources, strict=True)
    documents = tuple(Document(text, record=one.text, truth=one) for text, one in pairs)
    return Cluster(kind=family, documents=documents, name=name, sources=tuple(sources))


def draw_task(
    family: str,
    level: int,
    rng: random.Random,
    pool: Pool = "train",
    documents: int = 4,
    length: int = LENGTH,
    spread: bool = False,
) -> Task:
    """The oracle's question of a level about one of `documents` documents of its own cluster.

    `family` may be report too; `spread` as in `write_documents`.
    """
    sources = ladder.draw_sources(rng, family, documents, length, pool)
    wordings = WORDING[WORLDS[family]]["notes"][pool]
    texts = write_documents(sources, rng, wordings, spread)
    frame = rng.choice(ladder.frames(family, pool))
    return ladder.pose(rng.choice(sources), level, texts, rng, frame)


def truth(family: str, proposal: Proposal, sources: Sequence[Source]) -> tuple[int, str] | None:
    """The level of a proposed question and its true answer; None where it has none.

    It has none in no wording of the ladder, about nobody in `sources`, for more steps than there
    are, or where no option is right.
    """
    query = ladder.parse(family, proposal.question)
    source = next((one for one in sources if query and one.subject == query[0]), None)
    if query is None or source is None or query[1] > len(source.steps):
        return None
    gold = ladder.result(source, query[1])
    if family == "choice":
        gold = LETTERS[proposal.options.index(gold)] if gold in proposal.options else ""
    return (query[1], gold) if gold else None


def states(family: str, answer: str, gold: str) -> bool:
    """Whether a stated answer is the true one; a journey may be stated by its steps alone."""
    steps = " ".join(gold.split()[2::3]) if family == "journey" else gold
    return " ".join(answer.split()) in (gold, steps)


def same_meaning(family: str, answer: str | None, proposal: Proposal) -> bool:
    """Whether a response means what a proposal states: a perfect judge.

    Either may give a journey in full or by its steps alone.
    """
    if answer is None or family != "journey":
        return agrees(family, answer, proposal)
    words = answer.split()
    stated = proposal.answer.split()
    steps = _steps(words)
    return words == stated or (steps == _steps(stated) and steps in (words, stated))


def _steps(words: list[str]) -> list[str]:
    """The steps of a journey's answer, alone where it says them in full."""
    full = len(words) % 3 == 0 and all(word in ORDINALS for word in words[1::3])
    return words[2::3] if full else words
