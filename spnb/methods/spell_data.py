"""What SPELL's questions are about: clusters of documents, their memory, the static set.

Documents are generated (`spnb.lab.clusters`) or a corpus of one's own (`spnb.corpus.clusters`).
"""

import random
from collections.abc import Sequence
from itertools import chain
from statistics import fmean
from typing import Any

from spnb.core import prompts
from spnb.core.types import Messages, Task, Trajectory, derive_seed
from spnb.corpus.clusters import Cluster, Proposal, read_clusters, shortened
from spnb.corpus.store import CorpusError
from spnb.lab import clusters
from spnb.lab.clusters import LENGTH
from spnb.lab.ladder import ASKED
from spnb.methods.spell_questions import Question


class Library:
    """The clusters that questions are about, by task type.

    Raises:
        CorpusError: a corpus without clusters, or a cluster with fewer documents than n.
    """

    def __init__(self, params: Any, tokenizer: Any = None):
        self.types = list(params.tasks)
        if params.corpus:
            every = read_clusters(params.corpus, self.types, params.documents, params.seed)
            if params.document_tokens:
                every = [shortened(one, tokenizer, params.document_tokens) for one in every]
        else:
            every = [_generated(params, place) for place in range(params.clusters)]
        self.by_type = {name: [c for c in every if c.family == name] for name in self.types}
        for name, those in self.by_type.items():
            if not those:
                count = f"{len(every)} clusters have none of task type {name!r}"
                raise CorpusError(f"{count}; allowed: at least one of each of {self.types}")

    def draw(self, rng: random.Random, place: int) -> Cluster:
        """A cluster; task types take turns with the place."""
        return rng.choice(self.by_type[self.types[place % len(self.types)]])

    def ask(self, cluster: Cluster, places: Sequence[int], earlier: Sequence[str]) -> Messages:
        """The questioner's prompt: these documents of a cluster, and earlier questions."""
        records = [cluster.documents[place].record for place in places]
        return prompts.ask(records, earlier, ASKED[cluster.family])

    def question(self, cluster: Cluster, trajectory: Trajectory) -> Question:
        """What a questioner wrote about a cluster."""
        proposal = clusters.read_proposal(trajectory.policy_text, cluster.family)
        of = cluster.family, cluster.texts, cluster.sources, cluster.name
        return Question(*of, trajectory=trajectory, proposal=proposal)


def _generated(params: Any, place: int) -> Cluster:
    family = params.tasks[place % len(params.tasks)]
    rng = random.Random(derive_seed(params.seed, "cluster", "train", place))
    return clusters.draw_cluster(family, params.documents, rng, name=f"{family}-{place}")


class Memory:
    """The latest `size` solvable questions of each cluster with their documents (H of algorithm 1).

    The paper stores a question that pays (0 < r-bar < 1) with its new documents, and the next one
    is about m new documents and all stored ones. The released code stores every question that is
    solved at least once, fully solved ones too, with all documents that its questioner saw, and
    draws new documents from those not seen yet.
    """

    def __init__(self, size: int, rule: str = "paper"):
        self.size, self.rule = size, rule
        self.entries: dict[str, list[dict[str, Any]]] = {}

    def reading(
        self, cluster: Cluster, count: int, rng: random.Random
    ) -> tuple[tuple[int, ...], tuple[int, ...], list[str]]:
        """(New documents, all documents to read in their order, earlier questions with answers);
        documents by their places in the cluster."""
        entries = self.entries.get(cluster.name, [])
        seen = set(chain.from_iterable(entry["read"] for entry in entries))
        places = range(len(cluster.documents))
        unseen = [place for place in places if self.rule == "paper" or place not in seen]
        new = tuple(sorted(rng.sample(unseen, min(count, len(unseen)))))
        earlier = [clusters.with_answer(entry["question"], entry["answer"]) for entry in entries]
        return new, tuple(sorted({*new, *seen})), earlier

    def push(self, question: Question) -> None:
        """Stores a question that is solvable by the memory's rule."""
        solvable = question.pay > 0 if self.rule == "paper" else question.success >= 0.01
        if not self.size or not solvable or question.trajectory is None:
            return
        stated = question.proposal or Proposal("", "")
        entry = {"read": question.read, "question": stated.question, "answer": stated.answer}
        kept = [*self.entries.get(question.cluster, []), entry]
        self.entries[question.cluster] = kept[-self.size :]

    def mean_length(self) -> float:
        """Questions stored, mean over clusters that have some; 0 without."""
        return fmean(map(len, self.entries.values())) if self.entries else 0.0


def static_set(params: Any) -> list[list[Task]]:
    """RLVR's questions, written by the oracle: a list for each part of the training.

    Task types take turns, and so do levels; `context` names the documents of each part.
    """
    parts = params.context or [params.documents]
    sets = []
    for number, documents in enumerate(parts):
        rng = random.Random(derive_seed(params.seed, "static", number))
        tasks = []
        for place in range(params.static):
            turn, which = divmod(place, len(params.tasks))
            family, level = params.tasks[which], 1 + turn % LENGTH
            tasks.append(clusters.draw_task(family, level, rng, documents=documents))
        sets.append(tasks)
    return sets


def static_question(task: Task) -> Question:
    """A static question, its true answer as the stated one."""
    info = task.info
    proposal = Proposal(task.question, task.gold[0], info.get("options", ()))
    return Question(info["family"], info["documents"], (info["source"],), proposal=proposal)
