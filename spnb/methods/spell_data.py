"""What SPELL's questions are about: clusters of documents, their memory, the static set.

Documents are generated (`spnb.lab.clusters`) or a corpus of one's own: a folder that `spnb
corpus` wrote, or JSONL with the same columns, whose `metadata` has each document's cluster, and its
task type under `task` where the corpus says so (else types take turns).
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Any

from spnb.core import prompts
from spnb.core.paths import resolve
from spnb.core.types import Messages, Task, Trajectory, derive_seed
from spnb.corpus.store import CorpusError, load_corpus
from spnb.lab import clusters
from spnb.lab.clusters import LENGTH, Cluster, Document, Proposal
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


def read_clusters(corpus: str, types: Sequence[str], count: int, seed: int) -> list[Cluster]:
    """The clusters of a corpus, `count` documents of each, drawn by the seed.

    Raises:
        CorpusError: documents without a cluster, an unknown task type, or a cluster with fewer
            documents than `count`.
    """
    members: dict[str, list[Mapping[str, Any]]] = {}
    for number, row in enumerate(_rows(corpus)):
        metadata = row.get("metadata") or {}
        if "cluster" not in metadata:
            allowed = "allowed: a corpus of `spnb corpus`, whose documents have one"
            raise CorpusError(f"document {number} of {corpus!r} has no cluster; {allowed}")
        members.setdefault(str(metadata["cluster"]), []).append(row)
    made = []
    for place, (name, rows) in enumerate(sorted(members.items())):
        if len(rows) < count:
            message = f"cluster {name!r} of {corpus!r} has {len(rows)} documents"
            raise CorpusError(f"{message}; allowed: documents ({count}) or more")
        family = (rows[0].get("metadata") or {}).get("task", types[place % len(types)])
        clusters.check_type(family)
        drawn = random.Random(derive_seed(seed, "cluster", name)).sample(rows, count)
        made.append(Cluster(name, family, tuple(Document(row["text"]) for row in drawn)))
    return made


def shortened(cluster: Cluster, tokenizer: Any, size: int) -> Cluster:
    """A cluster whose documents have at most `size` tokens each."""
    texts = [cut(text, tokenizer, size) for text in cluster.texts]
    return replace(cluster, documents=tuple(map(Document, texts)))


def cut(text: str, tokenizer: Any, size: int) -> str:
    """The first `size` tokens of a text, back to the last end of a word where there is one."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [start for start, _ in encoded["offset_mapping"]]
    if len(starts) <= size:
        return text
    end = starts[size]
    places = [at for at in range(1, end + 1) if text[at].isspace() and not text[at - 1].isspace()]
    return text[: places[-1] if places else end].rstrip()


def _rows(corpus: str) -> Iterable[Mapping[str, Any]]:
    if not corpus.endswith(".jsonl"):
        return load_corpus(corpus)
    path = resolve(corpus)
    if not path.is_file():
        raise CorpusError(f"corpus is {str(path)!r}; allowed: an existing file, or a folder")
    lines = enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
    return [
        _document(line, f"line {number} of {corpus!r}") for number, line in lines if line.strip()
    ]


def _document(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{where} is not JSON ({error}); allowed: one document a line") from None
    known = isinstance(row, dict) and isinstance(row.get("metadata") or {}, dict)
    if not known or not isinstance(row.get("text"), str):
        raise CorpusError(f"{where} is no document; allowed: an object with text and metadata")
    return row


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
