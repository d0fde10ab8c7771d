"""SPELL's memory: earlier questions of a cluster, which the next questioner reads."""

import random
from dataclasses import replace
from statistics import fmean
from typing import Any

from spnb.core.documents import Context
from spnb.corpus import clusters


class Memory:
    """The latest `size` solvable questions of each cluster with their documents (H of algorithm 1).

    The paper stores a question that pays (0 < r-bar < 1) with its new documents, and the next one
    is about m new documents and all stored ones. The released code stores every question that is
    solved at least once, fully solved ones too, with all documents that its questioner saw, and
    draws new documents from those not seen yet.
    """

    def __init__(self, size: int, rule: str = "paper"):
        self.size = size
        self.rule = rule
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.latest: list[tuple[str, dict[str, Any]]] = []
        """What was stored since the step began, with the names of the clusters."""

    def reading(
        self, cluster: Context, count: int, rng: random.Random
    ) -> tuple[tuple[int, ...], Context, list[str]]:
        """(Places of the new documents, the cluster with the places of all documents to read in
        their order, earlier questions with answers)."""
        entries = self.entries.get(cluster.name, [])
        seen = {place for entry in entries for place in entry["read"]}
        places = range(len(cluster.documents))
        unseen = [place for place in places if self.rule == "paper" or place not in seen]
        new = tuple(sorted(rng.sample(unseen, min(count, len(unseen)))))
        earlier = [clusters.with_answer(entry["question"], entry["answer"]) for entry in entries]
        return new, replace(cluster, places=tuple(sorted({*new, *seen}))), earlier

    def push(self, question: Any) -> None:
        """Stores a `spnb.methods.spell.Question` that is solvable by the rule."""
        success = question.success
        solvable = 0 < success < 1 if self.rule == "paper" else success >= 0.01
        if not self.size or not solvable or question.trajectory is None:
            return
        entry = {"read": question.read, "question": question.proposal.question}
        entry |= {"answer": question.proposal.answer}
        self.latest.append((question.context.name, entry))
        self.add(*self.latest[-1])

    def add(self, cluster: str, entry: dict[str, Any]) -> None:
        """Stores a question of a cluster, which forgets its oldest one beyond `size`."""
        self.entries[cluster] = [*self.entries.get(cluster, []), entry][-self.size :]

    def mean_length(self) -> float:
        """Questions stored, mean over clusters that have some; 0 without."""
        return fmean(map(len, self.entries.values())) if self.entries else 0.0
