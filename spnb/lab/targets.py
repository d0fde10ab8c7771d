"""Answers to ask for by search, and the library to search in: SSP's source.

Its oracle follows the chain that a question tells.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spnb.core import prompts
from spnb.core.documents import Context, Judgement, Proposal
from spnb.core.params import require
from spnb.core.search import Retriever
from spnb.core.types import Messages
from spnb.corpus.targets import Questions
from spnb.evaluate.by_search import use_of_search
from spnb.lab.chain import CHAINS, follow
from spnb.lab.ladder import check_level
from spnb.lab.ladder_suites import ChainSource, library
from spnb.lab.world import Pool


@dataclass(frozen=True)
class Target(Context):
    """The answer, `name`, that a question is asked for, of a pool's people."""

    pool: Pool = "train"


class Targets(Questions, ChainSource):
    """People of a world of chains (`params.family`).

    `params` has highest, max_searches, max_length, results, syntax, examples and eval_items too. A
    question is answerable if its chain can be read and starts at one person: at "somebody of" a
    town it is not, though it may look so among a few documents. One that cannot be read has level 0
    (`Chains.parse`).
    """

    def draw(self, rng: random.Random, place: int = 0, pool: Pool = "train") -> Target:
        family = self.params.family
        return Target(kind=family, name=rng.choice(CHAINS[family].people(pool)), pool=pool)

    def ask(self, context: Context, earlier: Sequence[str] = ()) -> Messages:
        return prompts.ask_search(context.name, examples=self.params.examples)

    def judge(self, proposal: Proposal, context: Target) -> Judgement:
        """Where the chain of a question leads, and of how many steps it is."""
        chains = CHAINS[self.params.family]
        start, relations = chains.parse(proposal.question) or ("", ())
        if start not in chains.people(context.pool):
            return Judgement(len(relations))
        gold = follow(chains.links_of(context.pool), start, relations)[-1]
        return Judgement(len(relations), True, gold == proposal.answer, gold=gold, grade="exact")

    behaviour = staticmethod(use_of_search)

    def retriever(self, pool: Pool = "train") -> Retriever:
        return library(pool, self.params.family)


def check(params: Any) -> None:
    """Raises ValueError for a world of chains or a level that there is not."""
    require("family", params.family, CHAINS, ValueError)
    check_level(params.highest, CHAINS[params.family].highest)


make_source = Targets
