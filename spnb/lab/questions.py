"""RLVR's questions as a source: on the first document world, the ladders and the chain.

`params` are those of `spnb.methods.rlvr`. An answer may search: the library of the world, or the
sentences of the chain.
"""

import random
from functools import cache, partial
from typing import Any

from spnb.core import prompts
from spnb.core.episodes import Episode, single_turn
from spnb.core.method import Suite
from spnb.core.params import require, unknown
from spnb.core.search import Retriever, Tool, search_rollouts
from spnb.core.types import Chat, Request, Sampling, Task, Trajectory, derive_seed
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.items import ask_suite, behaviour
from spnb.lab import chain, ladder
from spnb.lab import ladder_suites as ladders
from spnb.lab import tasks as testbed
from spnb.lab.oracle import MAX_HOPS
from spnb.lab.tasks import FRAMES, NUMERIC_OPS, Level, library_world
from spnb.lab.texts import article
from spnb.lab.world import HELDOUT_NAMES, SUFFIXES, Pool

STYLES: dict[str, prompts.Style] = {"think": "plain", "steps": "steps"}


def check(params: Any) -> None:
    """ValueError for questions that there are not."""
    for name in ("documents", "companies", "transfer_documents"):
        count = getattr(params, name)
        require(count <= HELDOUT_NAMES, f"{name} is {count}; allowed: {HELDOUT_NAMES} or fewer")
    for operation in params.operations:
        require(operation in NUMERIC_OPS, unknown("operation", operation, NUMERIC_OPS))
    if params.task == "ladder":
        highest = chain.HIGHEST if params.family == "chain" else ladder.HIGHEST
        message = (
            f"mix is {params.mix} with family {params.family}; allowed: 1 to {highest} weights"
        )
        require(sum(params.mix) > 0 and len(params.mix) <= highest, f"{message}, one above 0")
    if params.task not in ("numeric", "ladder"):
        searched = MAX_HOPS if params.task == "search" else 0
        for hops in params.hops:
            level_of(params, hops, searched)
        for hops in params.transfer_hops or params.hops:
            level_of(params, hops, searched or params.transfer_documents)


def level_of(params: Any, hops: int, documents: int = 0) -> Level:
    """The level for questions of `hops` hops; `documents` where not 0 instead of the parameter."""
    shown = documents or params.documents
    return Level(hops, shown, params.same_relation, params.facts, tuple(params.distances))


def draw_task(params: Any, rng: random.Random, index: int, pool: Pool, hard: bool) -> Task:
    """Question `index`, `hard` in the transfer evaluation; hops and operations take turns."""
    documents = params.transfer_documents if hard else 0
    if params.task == "ladder":
        (level,) = rng.choices(range(1, len(params.mix) + 1), params.mix)
        return ladders.draw_task(params.family or "", level, rng, pool, ladder.RIVALS)
    if params.task == "numeric":
        op = params.operations[index % len(params.operations)]
        return testbed.report_task(rng, op, documents or params.companies, pool, FRAMES[pool])
    turns = (params.transfer_hops if hard else []) or params.hops
    hops = turns[index % len(turns)]
    if params.task == "search":
        world = library_world(pool)
        query = testbed.draw_path(world, rng, hops)
        return testbed.search_task(world, query, rng, FRAMES[pool], "plain")
    level = level_of(params, hops, documents)
    style = STYLES.get(params.task, "careful")
    task = testbed.path_task(rng, level, pool, FRAMES[pool], style)
    return testbed.choice_task(task, rng) if params.task == "choice" else task


@cache
def library(pool: Pool, chained: bool = False) -> Retriever:
    """BM25 over an article on every entity of `library_world`: 576 for training, 288 held out; or
    over the sentences of the chain."""
    if chained:
        return make_retriever("bm25", chain.library(pool))
    world = library_world(pool)
    entities = [world.name(kind, index) for kind in SUFFIXES for index in range(world.size)]
    return make_retriever("bm25", [article(world, name, random.Random(name)) for name in entities])


class Questions:
    """RLVR's questions, set up by its parameters."""

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params
        self.tokenizer = tokenizer

    def exercise(self, index: int, rng: random.Random) -> Task:
        """Question `index` of the training."""
        return draw_task(self.params, rng, index, "train", hard=False)

    def answer(self, task: Task, request: Request, pool: Pool = "train") -> Episode[Trajectory]:
        """One answer; it may search the library of `pool` where the task is to search."""
        params = self.params
        chained = params.family == "chain"
        if params.task != "search" and not chained:
            return (yield from single_turn(request))
        limits = params.results, params.max_searches, params.max_length
        tool = Tool(self.tokenizer, library(pool, chained), *limits)
        repeated = "" if chained else task.question
        (trajectory,) = yield from search_rollouts([request], [repeated], tool)
        return trajectory

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        """Held-out questions, sampled and greedy; the harder level too where there is one."""
        answer = partial(self.answer, pool="heldout")
        sampled = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
        if params.task == "ladder":
            size = len(params.mix), params.eval_items, ladder.RIVALS
            return [ladders.ladder_suite(params.family or "", *size, chat, sampled, answer)]
        decodings = {"sampled": sampled, "greedy": Sampling(params.max_new_tokens, 0.0)}
        suites = []
        harder = params.transfer_hops or params.transfer_documents
        for name in ["held-out", "transfer"] if harder else ["held-out"]:
            rng = random.Random(derive_seed("evaluation", name))
            hard = name == "transfer"
            tasks = [draw_task(params, rng, n, "heldout", hard) for n in range(params.eval_items)]
            ask = partial(ask_suite, name, tasks, chat, answer=answer, behaviour=behaviour)
            for decoding, sampling in decodings.items():
                seed = derive_seed("evaluation", decoding)
                seed_of = lambda place, _, seed=seed: derive_seed(seed, place)  # noqa: E731
                suites.append(ask(sampling, seed_of, decoding=decoding))
        return suites


make_source = Questions
