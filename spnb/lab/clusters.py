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

Suites of the task types ("journey-4": 4 documents) have several answers to each question, so that
pass@k can be taken. `FORMS`: notes dealt out over all documents (needles), documents by BM25 out of
many, best first, filled up with others that it does not find (rag), solved questions before the
documents (many-shot), a report graded by its points (summary).
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spnb.core.documents import Context, Document, Judgement, Proposal
from spnb.core.method import Suite
from spnb.core.params import require
from spnb.core.types import Chat, Sampling, Task, derive_seed
from spnb.corpus.clusters import TYPES, Clusters, agrees, with_answer
from spnb.corpus.clusters import messages as messages
from spnb.corpus.clusters import read_proposal as read_proposal
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.items import ask_suite
from spnb.lab import ladder
from spnb.lab.ladder import LETTERS, ORDINALS, WORDING, WORLDS, Source
from spnb.lab.ladder_suites import grade_steps
from spnb.lab.world import Pool, names

LENGTH = 6
"""Steps of a document."""
MOST = 8
"""And at most, in lessons."""
FORMS = ("needles", "rag", "many-shot", "summary")
FOUND = 48
"""Documents that rag searches."""
SHOTS = 8
"""Solved questions that many-shot shows."""
KNOWN = names("person", "train")[:12]
"""People whose steps are the same in every document, so that they can be known without one."""


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


def draw_sources(
    rng: random.Random, family: str, count: int, length: int, pool: Pool
) -> list[Source]:
    """Sources of one family on different people, of those in `KNOWN` always the same steps."""
    sources = ladder.draw_sources(rng, family, count, length, pool)
    return [known(one) if one.subject in KNOWN else one for one in sources]


def known(source: Source) -> Source:
    """A source with the first steps that its person has in every document of its world."""
    rng = random.Random(f"{WORLDS[source.family]} of {source.subject}")
    steps = ladder.draw_source(rng, source.family, MOST).steps
    return replace(source, steps=steps[: len(source.steps)])


def draw_cluster(family: str, count: int, rng: random.Random, name: str = "") -> Context:
    """A cluster of `count` documents, their truth the sources that a question may be about, in
    names and wordings of training; ValueError for a family that is no task type."""
    require("task type", family, TYPES, ValueError)
    sources = draw_sources(rng, family, count, LENGTH, "train")
    texts = write_documents(sources, rng, WORDING[WORLDS[family]]["notes"]["train"])
    pairs = zip(texts, sources, strict=True)
    documents = tuple(Document(text, record=one.text, truth=one) for text, one in pairs)
    return Context(kind=family, documents=documents, name=name)


def draw_task(
    family: str,
    level: int,
    rng: random.Random,
    pool: Pool = "train",
    documents: int = 4,
    spread: bool = False,
) -> Task:
    """The oracle's question of a level about one of `documents` documents of its own cluster.

    `family` may be report too; `spread` as in `write_documents`.
    """
    sources = draw_sources(rng, family, documents, LENGTH, pool)
    wordings = WORDING[WORLDS[family]]["notes"][pool]
    texts = write_documents(sources, rng, wordings, spread)
    frame = rng.choice(ladder.frames(family, pool))
    return ladder.pose(rng.choice(sources), level, texts, rng, frame)


def truth(family: str, proposal: Proposal, sources: Sequence[Source]) -> tuple[int, str] | None:
    """The level of a proposed question and its true answer; None where it has none.

    It has none in no wording of the ladder, about nobody in `sources`, for more steps than there
    are, or where no option is right.
    """
    found = ladder.find(family, proposal.question, sources)
    if found is None:
        return None
    source, level = found
    gold = ladder.result(source, level)
    if family == "choice":
        gold = LETTERS[proposal.options.index(gold)] if gold in proposal.options else ""
    return (level, gold) if gold else None


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


# --- suites


def suites(params: Any, chat: Chat, documents: Sequence[int], ends: bool) -> list[Suite]:
    """The suites of a step: all task types at the first number of documents, and, at both `ends`,
    at the others and at one document, and the other forms of the first type.

    `params`: tasks, eval_items, eval_samples, eval_temperature, eval_top_p, max_new_tokens.
    """
    sampling = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
    made = []
    for count in documents if ends else documents[:1]:
        for family in params.tasks:
            draw = partial(draw_task, family, documents=count)
            name = f"{family}-{count}"
            made.append(_suite(name, draw, params, chat, sampling, params.eval_samples))
    if ends:
        single = [(f"{name}-1", partial(draw_task, name, documents=1)) for name in TYPES]
        forms = [(name, partial(draw_form, name, documents[0])) for name in FORMS]
        there = {suite.name for suite in made}
        for name, draw in [one for one in (*single, *forms) if one[0] not in there]:
            made.append(_suite(name, draw, params, chat, sampling, 1))
    return made


def _suite(
    name: str, draw: Callable[..., Task], params: Any, chat: Chat, sampling: Sampling, samples: int
) -> Suite:
    """`eval_items` held-out questions of each level, each answered `samples` times."""
    rng = random.Random(params.eval_seed(name))
    levels = [level for level in range(1, LENGTH + 1) for _ in range(params.eval_items)]
    tasks = [draw(level=level, rng=rng, pool="heldout") for level in levels]
    seed_of = partial(derive_seed, "evaluation", name)
    return ask_suite(
        name, tasks, chat, sampling, seed_of, samples=samples, grade=grade_steps, decoding="sampled"
    )


def draw_form(name: str, documents: int, level: int, rng: random.Random, pool: Pool) -> Task:
    """A question in one of the `FORMS`, about that many documents."""
    if name in ("needles", "summary"):
        family = "report" if name == "summary" else "journey"
        spread = name == "needles"
        return draw_task(family, level, rng, pool, documents, spread=spread)
    count = FOUND if name == "rag" else documents
    sources = ladder.draw_sources(rng, "journey", count, LENGTH, pool)
    source = rng.choice(sources)
    wordings = WORDING["journey"]["notes"][pool]
    texts = write_documents(sources, rng, wordings)
    frame = rng.choice(ladder.frames("journey", pool))
    if name == "many-shot":
        texts = [*_solved(rng, pool, [source.subject for source in sources]), *texts]
    else:
        text = ladder.question("journey", source.subject, level, frame)
        rows = [{"id": f"{n}", "title": "", "text": text} for n, text in enumerate(texts)]
        found = [hit.text for hit in make_retriever("bm25", rows).search([text], documents)[0]]
        texts = [*found, *(text for text in texts if text not in found)][:documents]
    return ladder.pose(source, level, texts, rng, frame)


def _solved(rng: random.Random, pool: Pool, but: Sequence[str]) -> Iterator[str]:
    """Questions with their answers, about nobody in `but`."""
    for _ in range(SHOTS):
        source = ladder.draw_source(rng, "journey", LENGTH, pool, but)
        level = rng.randint(1, LENGTH)
        frame = rng.choice(ladder.frames("journey", pool))
        text = ladder.question("journey", source.subject, level, frame)
        yield with_answer(text, ladder.result(source, level))


# --- as a source


def check(params: Any) -> None:
    """ValueError for more documents than there are names."""
    shown = [*params.eval_documents, *params.documents, *params.context]
    most = len(names("person", "heldout"))
    enough = all(1 <= n <= most for n in shown)
    params.need(enough, "documents context eval_documents", f"1 to {most}, the names")
    first = f"first 1 to {most - 1}, as many-shot shows questions about others"
    params.need(params.eval_documents[0] < most, "eval_documents", first)
    known = all(1 <= level <= LENGTH for level in params.static_levels)
    params.need(known, "static_levels", f"1 to {LENGTH}, the steps of a document")


class GeneratedClusters(Clusters):
    """Generated clusters, `params.clusters` of all task types together; the oracle knows them."""

    def __init__(self, params: Any, tokenizer: Any):
        ladder.check_names(tokenizer)
        self.params = params
        made = []
        for place in range(params.clusters):
            family = params.tasks[place % len(params.tasks)]
            count = params.documents[place // len(params.tasks) % len(params.documents)]
            rng = random.Random(derive_seed(params.seed, "cluster", "train", place))
            made.append(draw_cluster(family, count, rng, name=f"{family}-{place}"))
        super().__init__(made, params.tasks)

    def means(self, proposal: Proposal, answer: str | None) -> bool | None:
        """Whether an answer means what is stated; None for no answer."""
        return None if answer is None else same_meaning(proposal.kind, answer, proposal)

    def judge(self, proposal: Proposal, context: Context) -> Judgement:
        """What the oracle says of a question in one of the ladder's wordings."""
        sources = [document.truth for document in context.documents if document.truth]
        found = truth(context.kind, proposal, sources)
        if found is None:
            return Judgement()
        level, gold = found
        right = states(context.kind, proposal.answer, gold)
        return Judgement(level, True, right, gold=gold, grade=ladder.KINDS[context.kind])

    def static_set(self) -> list[list[Task]]:
        """RLVR's questions, written by the oracle: a list for each part of the training.

        Task types take turns, and so do levels (`params.static_levels`) and numbers of documents;
        `params.context` has each part's. `params.static_wrong` of the stated answers are wrong, see
        `ladder.wrong_answer`.
        """
        params = self.params
        levels = params.static_levels or range(1, LENGTH + 1)
        sets = []
        for number, counts in enumerate([[n] for n in params.context] or [params.documents]):
            rng = random.Random(derive_seed(params.seed, "static", number))
            tasks = []
            for place in range(params.static_questions):
                turn, which = divmod(place, len(params.tasks))
                level = levels[turn % len(levels)]
                count = counts[turn // len(levels) % len(counts)]
                tasks.append(draw_task(params.tasks[which], level, rng, documents=count))
            wrong = rng.sample(range(len(tasks)), round((params.static_wrong or 0) * len(tasks)))
            for place in wrong:
                tasks[place] = replace(tasks[place], gold=(ladder.wrong_answer(tasks[place], rng),))
            sets.append(tasks)
        return sets

    def stated(self, task: Task) -> tuple[Proposal, Context]:
        """A static question with its true answer as the stated one, and documents whose truth is
        its source; `places` are those of its person."""
        info = task.info
        options = info.get("options", ())
        proposal = Proposal(task.question, task.gold[0], options, info["family"])
        places = tuple(places_of(info["source"].subject, info["documents"]))
        documents = tuple(Document(text, truth=info["source"]) for text in info["documents"])
        return proposal, Context(info["family"], documents, places=places)

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        return suites(params, chat, params.eval_documents, end)


def places_of(name: str, texts: Sequence[str]) -> list[int]:
    """The places of the texts that a name is in."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return [place for place, text in enumerate(texts) if word.search(text)]


make_source = GeneratedClusters
