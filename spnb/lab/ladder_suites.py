"""The ladders as sources of documents, and as a suite: held-out questions of every level."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Context, Document, Judgement, Proposal, Rejected
from spnb.core.episodes import Episode, single_turn
from spnb.core.grading import grade_text
from spnb.core.method import Chat, Suite
from spnb.core.params import require
from spnb.core.search import Retriever, make_tool, search_rollout
from spnb.core.types import Messages, Request, Task, Trajectory, derive_seed
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.items import ask_suite
from spnb.lab import ladder
from spnb.lab.chain import CHAIN, CHAINS, RESULTS
from spnb.lab.world import Pool, names

SUITE = "ladder"
"""A record has the score, and whether the text takes each step once as its note says, in any order
(`consistent`); its difficulty is the level."""


def grade_steps(task: Task, text: str) -> dict[str, Any]:
    """A text's score, and whether it is consistent (see `SUITE`)."""
    chains = CHAINS.get(task.info["family"])
    read = chains.order_of if chains else ladder.order_of
    return {"score": grade_text(text, task), "consistent": read(task, text) is not None}


# --- as a source


@dataclass(frozen=True)
class LadderContext(Context):
    """Records of the ladder; the notes for an answerer are drawn by `rng` once there is a question.

    `pool`: of names and wordings.
    """

    rng: random.Random = field(default_factory=random.Random, compare=False, repr=False)
    pool: Pool = "train"

    @property
    def sources(self) -> list[ladder.Source]:
        """What the records list."""
        return [document.truth for document in self.documents]


class LadderSource:
    """The ladder's records of one family (a `DocumentSource`); its oracle knows every answer.

    `params`: family, highest (level); rivals and, of who proposes, sources. A proposal is valid
    only if the stated answer is right.
    """

    def __init__(self, params: Any, tokenizer: Any):
        check(params)
        ladder.check_names(tokenizer)
        self.params = params
        self.tokenizer = tokenizer
        self.rivals: int = getattr(params, "rivals", ladder.RIVALS)
        self.kinds = (params.family,)

    def draw(self, rng: random.Random, place: int = 0, pool: Pool = "train") -> LadderContext:
        """As many records as a proposer reads."""
        family = self.params.family
        drawn = ladder.draw_sources(rng, family, self.params.sources, self.params.highest, pool)
        documents = tuple(Document(source.text, truth=source) for source in drawn)
        return LadderContext(kind=family, documents=documents, rng=rng, pool=pool)

    def ask(self, context: LadderContext, earlier: Sequence[str] = ()) -> Messages:
        return ladder.ask(context.sources, earlier)

    def read(self, text: str, context: LadderContext) -> Proposal | Rejected:
        """A valid proposal; see `ladder.read_proposal`."""
        valid = ladder.read_proposal(text, context.sources)
        if valid is None:
            return Rejected("no valid question")
        question = prompts.field(text, "question") or ""
        if valid[2]:
            question, _ = prompts.read_options(question)
        answer = prompts.field(text, "answer") or ""
        return Proposal(question, answer, options=valid[2], kind=context.kind)

    def task(self, proposal: Proposal, context: LadderContext, documents: bool = True) -> Task:
        """The question with notes on its steps, among those on a rival; without: no notes."""
        source, level = ladder.find(context.kind, proposal.question, context.sources)
        if not documents:
            return Task(prompts.closed(proposal.question), proposal.question, (proposal.answer,))
        how = {"rivals": self.rivals, "options": proposal.options}
        return ladder.make_task(source, level, context.rng, context.pool, **how)

    def agrees(self, proposal: Proposal, answer: str | None) -> float:
        return float(answer is not None and answer == proposal.answer)

    def judge(self, proposal: Proposal, context: LadderContext) -> Judgement:
        """A valid proposal is right; its level is the number of steps that it asks for."""
        _, level = ladder.find(context.kind, proposal.question, context.sources)
        return Judgement(level=level, answerable=True, right=True, gold=proposal.answer)

    def misstated(self, task: Task, rng: random.Random) -> Task:
        """The task with a wrong answer as the stated one."""
        return replace(task, gold=(ladder.wrong_answer(task, rng),))

    def exercise(self, level: int, rng: random.Random, pool: Pool = "train") -> Task:
        """The oracle's question of a level, about a record of its own."""
        return ladder.draw_task(self.params.family, level, rng, pool, self.rivals)

    def answer(self, task: Task, request: Request, pool: Pool = "train") -> Episode[Trajectory]:
        """The episode that answers an exercise of a pool: one turn."""
        return single_turn(request)

    def behaviour(self, task: Task, trajectory: Trajectory) -> dict[str, float]:
        return {}

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        """`eval_items` questions of every level, in held-out names and wordings, sampled."""
        rng = random.Random(params.eval_seed(SUITE, params.family))
        levels = [level for level in range(1, params.highest + 1) for _ in range(params.eval_items)]
        tasks = [self.exercise(level, rng, "heldout") for level in levels]
        seed_of = lambda place, _: derive_seed(SUITE, place)  # noqa: E731
        how = {"answer": partial(self.answer, pool="heldout"), "behaviour": self.behaviour}
        how |= {"grade": grade_steps, "decoding": "sampled"}
        return [ask_suite(SUITE, tasks, chat, params.eval_sampling, seed_of, **how)]


class ChainSource(LadderSource):
    """The ladder by search: exercises alone, as who asks goes by search too.

    `params` may have results and syntax of a search.
    """

    def exercise(self, level: int, rng: random.Random, pool: Pool = "train") -> Task:
        """The oracle's question of a level, to be answered by search."""
        return CHAINS[self.params.family].draw_task(level, rng, pool)

    def answer(self, task: Task, request: Request, pool: Pool = "train") -> Episode[Trajectory]:
        """An answer with searches in the pool's library."""
        shelf = library(pool, self.params.family)
        tool = make_tool(self.params, self.tokenizer, shelf, k=RESULTS)
        return search_rollout(request, tool)


@cache
def library(pool: Pool, family: str = CHAIN.name) -> Retriever:
    """BM25 over the sentences of a pool's chains."""
    return make_retriever("bm25", CHAINS[family].library(pool))


def check(params: Any) -> None:
    """Raises ValueError for a family or a level that there is not."""
    if params.family in CHAINS:
        return ladder.check_level(params.highest, CHAINS[params.family].highest)
    require("family", params.family, ladder.WORLDS, ValueError)
    ladder.check_level(params.highest)
    people = len(names("person", "heldout"))
    if getattr(params, "sources", 1) > people:
        params.need(False, "sources", f"1 to {people}, the people that there are")


def make_source(params: Any, tokenizer: Any) -> LadderSource:
    """The source of `params.family`."""
    kind = ChainSource if params.family in CHAINS else LadderSource
    return kind(params, tokenizer)
