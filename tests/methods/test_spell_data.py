"""SPELL's clusters of documents, its memory by the paper's rule and the code's, its static set."""

import json
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from spnb.core.grading import grade
from spnb.core.types import Trajectory
from spnb.corpus.build import build_corpus
from spnb.corpus.clusters import read_clusters
from spnb.corpus.documents import CorpusSettings
from spnb.corpus.store import CorpusError
from spnb.lab import ladder
from spnb.lab.clusters import LENGTH, TYPES, Cluster, Document, Proposal
from spnb.lab.world import names
from spnb.methods.spell_data import Library, Memory, static_question, static_set
from spnb.methods.spell_questions import Question

PARAMS = dict(
    tasks=list(TYPES),
    corpus="",
    document_tokens=None,
    documents=3,
    clusters=7,
    seed=0,
    static=36,
    context=[],
)
SIX = Cluster("c", "journey", tuple(Document(f"Text {number}.") for number in range(6)))


def params(**values):
    return SimpleNamespace(**{**PARAMS, **values})


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


# --- clusters


def test_generated_clusters_take_types_in_turn():
    library = Library(params())
    assert {name: len(those) for name, those in library.by_type.items()} == {
        "journey": 3,
        "ledger": 2,
        "choice": 2,
    }
    every = [cluster for those in library.by_type.values() for cluster in those]
    assert len({cluster.name for cluster in every}) == 7
    assert {len(cluster.documents) for cluster in every} == {3}
    assert len({cluster.texts for cluster in every}) == 7
    again, other = Library(params()), Library(params(seed=1))
    assert again.by_type == library.by_type and other.by_type != library.by_type
    people = {source.subject for cluster in every for source in cluster.sources}
    assert people <= set(names("person", "train"))


def test_draws_take_types_in_turn_and_any_cluster_of_a_type():
    library, rng = Library(params()), random.Random(0)
    drawn = [library.draw(rng, place) for place in range(60)]
    assert [cluster.family for cluster in drawn] == list(TYPES) * 20
    assert len({cluster.name for cluster in drawn}) == 7
    two = Library(params(tasks=["choice", "ledger"]))
    assert [two.draw(rng, place).family for place in range(3)] == ["choice", "ledger", "choice"]
    with pytest.raises(CorpusError, match="2 clusters have none of task type 'choice'; allowed"):
        Library(params(clusters=2))


def test_a_questioner_reads_records_and_earlier_questions():
    library = Library(params())
    cluster = library.by_type["journey"][0]
    (turn,) = library.ask(cluster, (0, 2), ["Where? There"])
    first, second = cluster.sources[0].text, cluster.sources[2].text
    assert turn["content"].endswith(f"they do:\n- Where? There\n[1] {first}\n[2] {second}")
    (turn,) = library.ask(cluster, (1,), [])
    assert "asked before" not in turn["content"] and cluster.sources[1].text in turn["content"]
    (turn,) = library.ask(library.by_type["choice"][0], (0,), [])
    assert "multiple-choice" in turn["content"]
    asked = "<question> Who?</question><answer> Alana</answer>"
    question = library.question(cluster, Trajectory((1,), [2], [1], [-1.0], asked, asked))
    assert question.proposal == Proposal("Who?", "Alana") and question.cluster == cluster.name
    assert (question.documents, question.sources) == (cluster.texts, cluster.sources)


# --- a corpus of one's own


def rows_of(*sizes, **more):
    """Documents of clusters of these sizes."""
    return [
        {"id": f"{name}-{n}", "text": f"Text {name}-{n}.", "metadata": {"cluster": name} | more}
        for name, size in enumerate(sizes)
        for n in range(size)
    ]


def test_clusters_of_a_jsonl_corpus(tmp_path):
    rows = rows_of(3, 5) + [
        {"text": f"Paid {n}.", "metadata": {"cluster": "paid", "task": "ledger"}} for n in range(3)
    ]
    random.Random(0).shuffle(rows)
    path = write(tmp_path / "own.jsonl", rows)
    first, second, paid = read_clusters(path, ["choice", "journey"], 3, 0)
    assert [one.name for one in (first, second, paid)] == ["0", "1", "paid"]
    assert [one.family for one in (first, second, paid)] == ["choice", "journey", "ledger"]
    assert set(first.texts) == {"Text 0-0.", "Text 0-1.", "Text 0-2."}
    assert len(set(second.texts)) == 3 and all(text.startswith("Text 1-") for text in second.texts)
    assert first.documents[0].record == first.texts[0] and first.sources == ()
    drawn = {read_clusters(path, ["journey"], 3, seed)[1].texts for seed in range(20)}
    assert len(drawn) > 5 and read_clusters(path, ["journey"], 3, 4)[1].texts in drawn
    library = Library(params(corpus=path, tasks=["ledger", "journey"], documents=2))
    assert {name: len(those) for name, those in library.by_type.items()} == {
        "ledger": 2,  # the first cluster, and the one that says so
        "journey": 1,
    }


def encode(texts):
    """A fake encoder: a text's letters."""
    return np.array([[text.count(letter) for letter in "abc"] for text in texts], np.float32)


def test_clusters_of_a_corpus_that_was_built(tmp_path):
    """Three topics of four texts, which differ in their letters."""
    rng, rows = random.Random(0), []
    for topic in "abc":
        for _ in range(4):
            words = ["".join(rng.choices("defghij", k=5)) + topic * 3 for _ in range(20)]
            rows.append({"text": " ".join(words), "metadata": {"task": "journey"}})
    settings = CorpusSettings(min_chars=1, min_words=1, domains=3, cluster_size=4)
    folder = str(tmp_path / "corpus")
    build_corpus(write(tmp_path / "own.jsonl", rows), folder, settings, [], encode)
    made = read_clusters(folder, ["ledger"], 4, 0)
    assert len(made) == 3 and {one.family for one in made} == {"journey"}
    topics = [{topic for topic in "abc" for text in one.texts if topic in text} for one in made]
    assert sorted(map(sorted, topics)) == [["a"], ["b"], ["c"]]
    assert Counter(text for one in made for text in one.texts) == Counter(r["text"] for r in rows)
    assert len(Library(params(corpus=folder, tasks=["journey"])).by_type["journey"]) == 3


def test_separators_of_unicode_stay_in_their_document(tmp_path):
    text = "One\u2028two\u0085three."
    row = {"text": text, "metadata": {"cluster": 1}}
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n\n", encoding="utf-8")
    (cluster,) = read_clusters(str(path), ["journey"], 1, 0)
    assert cluster.texts == (text,)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "A."}], "document 0 of .* has no cluster; allowed: a corpus of `spnb corpus`"),
        ([*rows_of(2), {"text": "A.", "metadata": {}}], "document 2 of .* has no cluster"),
        (rows_of(2, 1), r"cluster '1' of .* has 1 documents; allowed: documents \(2\) or more"),
        (rows_of(2, task="novel"), "task type is 'novel', which is unknown; .*choice, journey"),
        ([{"metadata": {"cluster": 1}}], "line 1 of .* is no document; allowed: an object with"),
        ([{"text": "A.", "metadata": "x"}], "line 1 of .* is no document"),
        ([["A."]], "line 1 of .* is no document"),
        (rows_of(2), "1 clusters have none of task type 'ledger'; allowed: at least one of each"),
        ([], "0 clusters have none of task type 'journey'"),
    ],
)
def test_what_a_corpus_lacks_is_named(tmp_path, rows, message):
    path = write(tmp_path / "own.jsonl", rows)
    with pytest.raises(ValueError, match=message):
        Library(params(corpus=path, tasks=["journey", "ledger"], documents=2))


def test_what_is_no_corpus_is_named(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"text": "A.", "metadata": {"cluster": 1}}\n\n{"text": \n')
    with pytest.raises(CorpusError, match="line 3 of .* is not JSON .*one document a line"):
        read_clusters(str(path), ["journey"], 1, 0)
    with pytest.raises(CorpusError, match="corpus is .*none.jsonl'; allowed: an existing file"):
        read_clusters(str(tmp_path / "none.jsonl"), ["journey"], 1, 0)
    with pytest.raises(CorpusError, match="holds no finished corpus"):
        read_clusters(str(tmp_path), ["journey"], 1, 0)


# --- memory


def solved(success, read, answer="A", cluster="c"):
    """A question on its way into the memory, paid by eq. 7 at half of the cases."""
    pay = 0.0 if success in (0, 1) else 1.0
    question = Question("journey", (), cluster=cluster, trajectory=Trajectory((1,)))
    question.proposal = Proposal(f"Where? {answer}", answer)
    question.read, question.success, question.pay = read, success, pay
    return question


def read_again(memory, count=2, seed=0):
    return memory.reading(SIX, count, random.Random(seed))


def test_the_paper_stores_questions_that_pay_and_the_code_those_solved_at_least_once():
    for rule, stored in (("paper", ["b", "c"]), ("code", ["b", "c", "d"])):
        memory = Memory(5, rule)
        for answer, success in zip("abcd", (0.0, 0.125, 0.875, 1.0), strict=True):
            memory.push(solved(success, (0,), answer))
        wrong = Question("journey", (), cluster="c", trajectory=Trajectory((1,)))
        memory.push(wrong)  # a wrong form pays -1
        known = solved(0.0, (0,), "e")
        known.pay = -0.5
        memory.push(known)
        assert [entry["answer"] for entry in memory.entries["c"]] == stored, rule


def test_the_latest_questions_of_a_cluster_stay():
    memory = Memory(2)
    for number, answer in enumerate("abc"):
        memory.push(solved(0.5, (number,), answer))
    memory.push(solved(0.5, (5,), "x", cluster="other"))
    new, places, earlier = read_again(memory)
    assert earlier == ["Where? b b", "Where? c c"]  # in order, the first is gone
    assert set(places) == {1, 2, *new} and memory.mean_length() == 1.5
    assert {name: len(of) for name, of in memory.entries.items()} == {"c": 2, "other": 1}


def test_documents_are_read_in_their_order_new_and_stored_ones_together():
    memory = Memory(3)
    memory.push(solved(0.5, (4, 5)))
    memory.push(solved(0.5, (0, 4)))
    drawn = Counter()
    for seed in range(300):
        new, places, _ = read_again(memory, seed=seed)
        assert places == tuple(sorted({0, 4, 5, *new})) and new == tuple(sorted(new))
        assert len(set(new)) == 2
        drawn.update(new)
    # The paper draws from all of the cluster's documents: each in 100 of 300, deviation 8.
    assert sorted(drawn) == [0, 1, 2, 3, 4, 5] and all(65 < n < 135 for n in drawn.values())


def test_the_code_draws_documents_that_are_not_stored():
    memory = Memory(3, "code")
    assert read_again(memory)[1] == read_again(memory)[0]
    memory.push(solved(0.5, (0, 4, 5)))
    for seed in range(30):
        new, places, _ = read_again(memory, seed=seed)
        assert not {0, 4, 5} & {*new} and set(places) == {0, 4, 5, *new} and len(new) == 2
    memory.push(solved(0.5, (0, 1, 2, 4, 5)))
    assert read_again(memory)[:2] == ((3,), (0, 1, 2, 3, 4, 5))  # fewer where fewer are left
    memory.push(solved(0.5, (0, 1, 2, 3, 4, 5)))
    assert read_again(memory)[:2] == ((), (0, 1, 2, 3, 4, 5))


def test_without_a_memory_nothing_is_stored():
    memory = Memory(0)
    memory.push(solved(0.5, (0,)))
    assert memory.entries == {} and memory.mean_length() == 0 and read_again(memory)[2] == []


def test_a_static_question_is_not_stored():
    memory, question = Memory(3), solved(0.5, (0,))
    question.trajectory = None
    memory.push(question)
    assert memory.entries == {}


# --- the static set


def test_the_static_set_has_all_types_and_levels_evenly():
    (tasks,) = static_set(params())
    counts = Counter((task.info["family"], task.info["level"]) for task in tasks)
    assert len(counts) == len(TYPES) * LENGTH and set(counts.values()) == {2}
    assert len({task.messages[0]["content"] for task in tasks}) == 36
    assert {len(task.info["documents"]) for task in tasks} == {3}
    assert static_set(params()) == [tasks] and static_set(params(seed=1)) != [tasks]
    parts = static_set(params(context=[1, 4], static=6))
    assert [{len(task.info["documents"]) for task in part} for part in parts] == [{1}, {4}]
    assert [len(part) for part in parts] == [6, 6]
    (one,) = static_set(params(tasks=["ledger"], static=4))
    assert [task.info["level"] for task in one] == [1, 2, 3, 4]


def test_a_static_question_states_the_true_answer():
    for task in static_set(params())[0]:
        question = static_question(task)
        family, source, level = (task.info[key] for key in ("family", "source", "level"))
        assert (question.family, question.documents) == (family, task.info["documents"])
        assert question.trajectory is None and question.sources == (source,)
        kind = {"journey": "exact", "ledger": "integer", "choice": "letter"}[family]
        assert grade(question.proposal.answer, task.gold, kind) == 1
        assert question.truth() == (level, task.gold[0])
        assert ladder.parse(family, question.proposal.question) == (source.subject, level)
        assert len(question.proposal.options) == (4 if family == "choice" else 0)
