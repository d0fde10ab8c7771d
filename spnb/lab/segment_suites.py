"""SPICE's evaluation on generated documents, eight suites in the paper's two groups; its source.

Five suites are closed-book: the question holds its notes. In three the notes stand in documents,
among those on somebody else. Levels take turns; names and wordings are held out.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Context, Judgement, Proposal
from spnb.core.method import Suite
from spnb.core.types import Chat, Messages, Sampling, Task, derive_seed
from spnb.corpus.segments import SegmentSource
from spnb.corpus.store import Corpus
from spnb.evaluate.items import ask_suite
from spnb.lab import ladder, segment_oracle, segments
from spnb.lab.segments import Half


@dataclass(frozen=True)
class SuiteSpec:
    """What a suite asks: the kind of entries, the type of the answer, from documents or not."""

    group: Half
    kind: str
    answer_type: str
    reads: bool = False


SUITES: dict[str, SuiteSpec] = {
    "integer": SuiteSpec("math", "ledger", "integer"),
    "expression": SuiteSpec("math", "formula", "expression"),
    "choice-of-counts": SuiteSpec("math", "ledger", "choice"),
    "integer-documents": SuiteSpec("math", "ledger", "integer", True),
    "string": SuiteSpec("general", "code", "string"),
    "choice-of-words": SuiteSpec("general", "code", "choice"),
    "string-documents": SuiteSpec("general", "code", "string", True),
    "choice-documents": SuiteSpec("general", "code", "choice", True),
}
GROUPS: dict[Half, list[str]] = {
    half: [name for name, asked in SUITES.items() if asked.group == half]
    for half in segments.HALVES
}
"""The suites of the paper's two groups."""


def suite_tasks(
    name: str,
    items: int,
    prompt: Callable[[str], Messages] = prompts.reason,
    tag: str = "answer",
    highest: int = segments.HIGHEST,
) -> list[Task]:
    """`items` held-out questions of each level of a suite, always the same.

    `prompt` and `tag`: how the questions are put, and where their answers stand; by default as the
    embedded policies know it.
    """
    asked = SUITES[name]
    rng = random.Random(derive_seed("evaluation", "segments", name))
    tasks = []
    for level in [level for level in range(1, highest + 1) for _ in range(items)]:
        task = segments.draw_task(asked.kind, asked.answer_type, level, rng, "heldout", asked.reads)
        if tag != "answer":
            body = task.messages[0]["content"].split("\n", 1)[1]
            task = replace(task, messages=prompt(body), info=task.info | {"tag": tag})
        tasks.append(task)
    return tasks


def segment_suites(
    items: int,
    chat: Chat,
    sampling: Sampling,
    prompt: Callable[[str], Messages] = prompts.reason,
    tag: str = "answer",
    policy: str = "policy",
) -> list[Suite]:
    """All suites, each with `items` questions of every level, sampled; accuracy in all and by
    level."""
    labels = {"policy": policy, "decoding": "sampled"}
    return [
        ask_suite(
            name,
            suite_tasks(name, items, prompt, tag),
            chat,
            sampling,
            lambda place, _, name=name: derive_seed("segments", name, place),
            **labels,
        )
        for name in SUITES
    ]


# --- as a source


def check(params: Any) -> None:
    """ValueError for a corpus and types of answers that do not fit, or a strong challenger where
    the oracle does not know every document."""
    known = [name for name in params.corpus if name in segments.HALVES]
    kinds = [kind for half in known for kind in segments.kinds_of(half, params.task_types)]
    params.need(kinds or not known, "task_types corpus", "types that its documents have")
    fits = params.writer == "policy" or (known and known == params.corpus)
    params.need(fits, "writer corpus", list(segments.HALVES))


class GeneratedSegments(SegmentSource):
    """Halves of the generated corpus, and corpora by path; the oracle reads what is generated."""

    def __init__(self, params: Any, tokenizer: Any):
        self.halves = [name for name in params.corpus if name in segments.HALVES]
        if self.halves or not params.corpus:
            ladder.check_names(tokenizer)
        super().__init__(params, tokenizer)

    def rows(self, name: str, pool: Any, count: int) -> Corpus:
        """A half's share of `count` documents on people of a pool; a corpus by its path."""
        if name not in self.halves:
            return name
        return segments.documents(name, -(-count // len(self.halves)), self.kinds, pool)

    def allowed(self, text: str) -> list[str]:
        """The types of answers that the segment's kind has."""
        kind = segments.kind_of(text)
        return [one for one in self.kinds if kind is None or one in segments.KINDS[kind].types]

    def judge(self, proposal: Proposal, context: Context) -> Judgement | None:
        """What the oracle says of a task; None where it can read neither the segment nor, without
        one, the question."""
        if not context.documents:
            judgement = segment_oracle.judge(proposal)
            return judgement if judgement.grade else None
        entries = segments.read_segment(context.texts[0])
        return segment_oracle.judge(proposal, entries) if entries else None

    def write(self, context: Context, rng: random.Random) -> Proposal | None:
        """The oracle's task on a segment: right, self-contained, of any level that there is."""
        entries = [
            entry
            for entry in segments.read_segment(context.texts[0])
            if context.kind in segments.KINDS[entry.kind].types
        ]
        if not entries:
            return None
        entry = rng.choice(entries)
        level = rng.randint(1, len(entry.steps))
        return segments.write_task(entry, level, context.kind, rng)

    def suites(self, items: int, chat: Chat, sampling: Sampling, **prompting: Any) -> list[Suite]:
        """See `segment_suites`."""
        return segment_suites(items, chat, sampling, **prompting)


make_source = GeneratedSegments
