"""Questions about long contexts: the training's number of documents, more, one, and other forms.

Suites of SPELL's three task types ("journey-4": 4 documents) have items of every level with several
answers each, so that pass@k can be taken. `FORMS` are measured at both ends: notes dealt out over
all documents (needles), documents by BM25 out of many, best first, filled up with others that it
does not find (rag), solved questions before the documents (many-shot), a report graded by its
points (summary).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from spnb.core.grading import grade, read_answer
from spnb.core.method import Chat, Suite
from spnb.core.types import Sampling, Task, Trajectory, derive_seed
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.items import Records, Rows, ask_suite, mean_row, record, share_row
from spnb.lab import clusters, ladder
from spnb.lab.clusters import LENGTH, TYPES
from spnb.lab.ladder import WORDING
from spnb.lab.ladder_suites import grade_steps
from spnb.lab.world import Pool

FORMS = ("needles", "rag", "many-shot", "summary")
DIFFICULTY = "difficulty"
"""The suite of proposals that an external policy answers; a record's score is pass@1 of it, its
kind the task type; level 0: no question that has an answer."""
FOUND, SHOTS = 48, 8
"""Documents that rag searches, solved questions that many-shot shows."""
POOL: Pool = "heldout"


def suites(params: Any, chat: Chat, documents: Sequence[int], ends: bool) -> list[Suite]:
    """The suites of a step: all task types at the first number of documents, and, at both `ends`,
    at the others and at one document, and the other forms of the first type.

    `params`: tasks, eval_items, eval_samples, eval_temperature, eval_top_p, max_new_tokens.
    """
    sampling = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
    made = []
    for count in documents if ends else documents[:1]:
        for family in params.tasks:
            draw = partial(clusters.draw_task, family, documents=count)
            name = f"{family}-{count}"
            made.append(_suite(name, draw, params.eval_items, chat, sampling, params.eval_samples))
    if ends:
        single = [(f"{name}-1", partial(clusters.draw_task, name, documents=1)) for name in TYPES]
        forms = [(name, partial(draw_form, name, documents[0])) for name in FORMS]
        for name, draw in [*single, *forms]:
            made.append(_suite(name, draw, params.eval_items, chat, sampling, 1))
    return made


def _suite(
    name: str, draw: Callable[..., Task], items: int, chat: Chat, sampling: Sampling, samples: int
) -> Suite:
    """`items` held-out questions of each level, each answered `samples` times."""
    rng = random.Random(derive_seed("evaluation", name))
    levels = [level for level in range(1, LENGTH + 1) for _ in range(items)]
    tasks = [draw(level=level, rng=rng, pool=POOL) for level in levels]
    seed_of = partial(derive_seed, "evaluation", name)
    return ask_suite(
        name, tasks, chat, sampling, seed_of, samples=samples, grade=grade_steps, decoding="sampled"
    )


def draw_form(name: str, documents: int, level: int, rng: random.Random, pool: Pool) -> Task:
    """A question in one of the `FORMS`, about that many documents."""
    if name in ("needles", "summary"):
        family = "report" if name == "summary" else "journey"
        spread = name == "needles"
        return clusters.draw_task(family, level, rng, pool, documents, spread=spread)
    count = FOUND if name == "rag" else documents
    sources = ladder.draw_sources(rng, "journey", count, LENGTH, pool)
    source, wordings = rng.choice(sources), WORDING["journey"]["notes"][pool]
    texts = clusters.write_documents(sources, rng, wordings)
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
        level, frame = rng.randint(1, LENGTH), rng.choice(ladder.frames("journey", pool))
        text = ladder.question("journey", source.subject, level, frame)
        yield clusters.with_answer(text, ladder.result(source, level))


def unsolved(place: int, family: str) -> dict[str, Any]:
    """The record of a proposal that has no true answer."""
    return record(DIFFICULTY, str(place), 0.0, kind=family, level=0)


def solved(
    place: int, family: str, truth: tuple[int, str], answers: Sequence[Trajectory]
) -> dict[str, Any]:
    """The record of a proposal of a level, with the share of answers that are the true one."""
    level, gold = truth
    kind = ladder.KINDS[family]
    texts = [read_answer(answer.policy_text) or "" for answer in answers]
    share = sum(grade(text, gold, kind) for text in texts) / len(texts)
    return record(DIFFICULTY, str(place), share, kind=family, level=level)


def difficulty_rows(records: Records) -> Rows:
    """valid (proposals that have an answer); over these difficulty, 1 - pass@1, and level."""
    valid = [one for one in records if one["level"]]
    rows = [share_row(DIFFICULTY, "valid", [float(one["level"] > 0) for one in records])]
    for family in ["", *TYPES]:
        of = [one for one in valid if family in ("", one["kind"])]
        hard = [1 - one["score"] for one in of]
        rows.append(mean_row(DIFFICULTY, "difficulty", hard, difficulty=family))
    return [*rows, mean_row(DIFFICULTY, "level", [one["level"] for one in valid])]
