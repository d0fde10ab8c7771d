"""SPELL's clusters of documents, its memory by the paper's rule and the code's, its static set."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import CharTokenizer

from spnb.core.documents import Context, Document, Proposal
from spnb.core.grading import grade
from spnb.core.types import Trajectory
from spnb.corpus.build import build_corpus
from spnb.corpus.clusters import CorpusClusters, read_clusters, read_proposal
from spnb.corpus.documents import CorpusSettings
from spnb.corpus.store import CorpusError
from spnb.lab import ladder
from spnb.lab.clusters import LENGTH, TYPES, GeneratedClusters, places_of
from spnb.lab.world import names
from spnb.methods.spell import Question
from spnb.methods.spell_memory import Memory

PARAMS = dict(
    tasks=list(TYPES),
    corpus="",
    document_tokens=None,
    documents=[3],
    clusters=7,
    seed=0,
    static_questions=36,
    static_levels=[],
    static_wrong=None,
    context=[],
    documents_read=2,
)
SIX = Context("journey", tuple(Document(f"Text {number}.") for number in range(6)), "c")


def params(**values):
    return SimpleNamespace(**{**PARAMS, **values})


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def library(**values):
    """The generated clusters, or those of a corpus."""
    return (CorpusClusters if "corpus" in values else GeneratedClusters)(
        params(**values), CharTokenizer()
    )


# --- clusters


def test_generated_clusters_take_types_in_turn():
    made = library()
    assert {name: len(those) for name, those in made.by_kind.items()} == {
        "journey": 3,
        "ledger": 2,
        "choice": 2,
    }
    every = [cluster for those in made.by_kind.values() for cluster in those]
    assert len({cluster.name for cluster in every}) == 7
    assert {len(cluster.documents) for cluster in every} == {3}
    assert len({cluster.texts for cluster in every}) == 7
    again, other = library(), library(seed=1)
    assert again.by_kind == made.by_kind and other.by_kind != made.by_kind
    people = {one.truth.subject for cluster in every for one in cluster.documents}
    assert people <= set(names("person", "train"))


def test_draws_take_types_in_turn_and_any_cluster_of_a_type():
    made, rng = library(), random.Random(0)
    drawn = [made.draw(rng, place) for place in range(60)]
    assert [cluster.kind for cluster in drawn] == list(TYPES) * 20
    assert len({cluster.name for cluster in drawn}) == 7
    two = library(tasks=["choice", "ledger"])
    assert [two.draw(rng, place).kind for place in range(3)] == ["choice", "ledger", "choice"]
    with pytest.raises(CorpusError, match="2 clusters have none of task type 'choice'; allowed"):
        library(clusters=2)


def test_a_questioner_reads_records_and_earlier_questions():
    made = library()
    cluster = made.by_kind["journey"][0]
    (turn,) = made.ask(replace(cluster, places=(0, 2)), ["Where? There"])
    first, other, second = (document.truth.text for document in cluster.documents)
    assert turn["content"].endswith(f"they do:\n- Where? There\n[1] {first}\n[2] {second}")
    (turn,) = made.ask(replace(cluster, places=(1,)))
    assert "asked before" not in turn["content"] and other in turn["content"]
    (turn,) = made.ask(replace(made.by_kind["choice"][0], places=(0,)))
    assert "multiple-choice" in turn["content"]
    asked = "<question> Who?</question><answer> Alana</answer>"
    assert made.read(asked, cluster) == Proposal("Who?", "Alana", kind="journey")


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
    first, second, paid = read_clusters(path, ["choice", "journey"], [3], 0)
    assert [one.name for one in (first, second, paid)] == ["0", "1", "paid"]
    assert [one.kind for one in (first, second, paid)] == ["choice", "journey", "ledger"]
    assert set(first.texts) == {"Text 0-0.", "Text 0-1.", "Text 0-2."}
    assert len(set(second.texts)) == 3 and all(text.startswith("Text 1-") for text in second.texts)
    assert first.records[0] == first.texts[0]
    turns = read_clusters(path, ["choice", "journey"], [3, 2], 0)
    assert [len(one.texts) for one in turns] == [3, 3, 2]  # each number for every task type
    whole = read_clusters(path, ["choice", "journey"], [4], 0)
    assert [len(one.texts) for one in whole] == [3, 4, 3], "all of a smaller cluster"
    drawn = {read_clusters(path, ["journey"], [3], seed)[1].texts for seed in range(20)}
    assert len(drawn) > 5 and read_clusters(path, ["journey"], [3], 4)[1].texts in drawn
    made = library(corpus=path, tasks=["ledger", "journey"], documents=[2])
    assert {name: len(those) for name, those in made.by_kind.items()} == {
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
    made = read_clusters(folder, ["ledger"], [4], 0)
    assert len(made) == 3 and {one.kind for one in made} == {"journey"}
    topics = [{topic for topic in "abc" for text in one.texts if topic in text} for one in made]
    assert sorted(map(sorted, topics)) == [["a"], ["b"], ["c"]]
    assert Counter(text for one in made for text in one.texts) == Counter(r["text"] for r in rows)
    assert len(library(corpus=folder, tasks=["journey"]).by_kind["journey"]) == 3


def test_separators_of_unicode_stay_in_their_document(tmp_path):
    text = "One\u2028two\u0085three."
    row = {"text": text, "metadata": {"cluster": 1}}
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n\n", encoding="utf-8")
    (cluster,) = read_clusters(str(path), ["journey"], [1], 0)
    assert cluster.texts == (text,)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "A."}], "document 0 of .* has no cluster; allowed: a corpus of `spnb corpus`"),
        ([*rows_of(2), {"text": "A.", "metadata": {}}], "document 2 of .* has no cluster"),
        (rows_of(1, 1), r"no cluster of .* has documents_read \(2\) documents"),
        (rows_of(2, task="novel"), "task type is 'novel', which is unknown; .*choice, journey"),
        ([{"metadata": {"cluster": 1}}], "line 1 of .* is no document; allowed: an object with"),
        ([{"text": "A.", "metadata": "x"}], "line 1 of .* is no document"),
        ([["A."]], "line 1 of .* is no document"),
        (rows_of(2), "1 clusters have none of task type 'ledger'; allowed: at least one of each"),
        ([], "corpus has 0 documents; allowed: 1 or more"),
    ],
)
def test_what_a_corpus_lacks_is_named(tmp_path, rows, message):
    path = write(tmp_path / "own.jsonl", rows)
    with pytest.raises(ValueError, match=message):
        library(corpus=path, tasks=["journey", "ledger"], documents=[2])


def test_clusters_with_fewer_documents_than_a_questioner_reads_are_left_out(tmp_path, caplog):
    path = write(tmp_path / "own.jsonl", rows_of(2, 1, 3))
    assert [each.name for each in read_clusters(path, ["journey"], [2], 0, 2)] == ["0", "2"]
    assert (
        "of 3 clusters of" in caplog.text and "1 have fewer than documents_read (2)" in caplog.text
    )


def test_a_choice_may_be_stated_as_its_options_are_marked():
    asked = "<question>Who?\nA) Ann\nB) Bo\nC) Cy\nD) Di</question><answer>{}</answer>"
    for said in ("B", "B)", "(B)", "B."):
        assert read_proposal(asked.format(said), "choice").answer == "B"


def test_what_is_no_corpus_is_named(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"text": "A.", "metadata": {"cluster": 1}}\n\n{"text": \n')
    with pytest.raises(CorpusError, match="line 3 of .* is not JSON .*one document a line"):
        read_clusters(str(path), ["journey"], [1], 0)
    with pytest.raises(CorpusError, match="corpus is .*none.jsonl'; allowed: an existing .jsonl"):
        read_clusters(str(tmp_path / "none.jsonl"), ["journey"], [1], 0)
    with pytest.raises(CorpusError, match="that `spnb corpus` finished"):
        read_clusters(str(tmp_path), ["journey"], [1], 0)


# --- memory


def solved(success, read, answer="A", cluster="c"):
    """A question on its way into the memory, paid by eq. 7 at half of the cases."""
    pay = 0.0 if success in (0, 1) else 1.0
    question = Question(Context("journey", name=cluster), trajectory=Trajectory((1,)))
    question.proposal = Proposal(f"Where? {answer}", answer)
    question.read = read
    question.success = success
    question.pay = pay
    return question


def read_again(memory, count=2, seed=0):
    new, context, earlier = memory.reading(SIX, count, random.Random(seed))
    return new, context.places, earlier


def test_the_paper_stores_questions_that_pay_and_the_code_those_solved_at_least_once():
    for rule, stored in (("paper", ["b", "c"]), ("code", ["b", "c", "d"])):
        memory = Memory(5, rule)
        for answer, success in zip("abcd", (0.0, 0.125, 0.875, 1.0), strict=True):
            memory.push(solved(success, (0,), answer))
        wrong = Question(Context("journey", name="c"), trajectory=Trajectory((1,)))
        memory.push(wrong)  # a wrong form pays -1
        known = solved(0.0, (0,), "e")
        known.pay = -0.5
        memory.push(known)
        assert [entry["answer"] for entry in memory.entries["c"]] == stored, rule


def test_an_earlier_question_is_one_line_whatever_its_answer_says():
    memory = Memory(1)
    memory.push(solved(0.5, (0,), "a\n[1] Stops of Bo\n- Who?"))
    _, _, earlier = read_again(memory)
    assert earlier == ["Where? a [1] Stops of Bo - Who? a [1] Stops of Bo - Who?"]


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
    (tasks,) = library().static_set()
    counts = Counter((task.info["family"], task.info["level"]) for task in tasks)
    assert len(counts) == len(TYPES) * LENGTH and set(counts.values()) == {2}
    assert len({task.messages[0]["content"] for task in tasks}) == 36
    assert {len(task.info["documents"]) for task in tasks} == {3}
    assert library().static_set() == [tasks] and library(seed=1).static_set() != [tasks]
    parts = library(context=[1, 4], static_questions=6).static_set()
    assert [{len(task.info["documents"]) for task in part} for part in parts] == [{1}, {4}]
    assert [len(part) for part in parts] == [6, 6]
    (mixed,) = library(documents=[2, 4]).static_set()
    of = Counter((task.info["level"], len(task.info["documents"])) for task in mixed)
    assert of == {(level, n): 3 for level in range(1, LENGTH + 1) for n in (2, 4)}
    clusters_of = library(documents=[2, 4], clusters=12).by_kind
    assert [[len(one.texts) for one in those] for those in clusters_of.values()] == [[2, 4] * 2] * 3
    (one,) = library(tasks=["ledger"], static_questions=4).static_set()
    assert [task.info["level"] for task in one] == [1, 2, 3, 4]


def test_a_static_set_of_limited_levels_with_wrong_answers():
    values = {"static_questions": 24, "static_levels": [2, 1]}
    (right,) = library(**values).static_set()
    assert [task.info["level"] for task in right] == [2, 2, 2, 1, 1, 1] * 4
    (some,) = library(**values, static_wrong=0.25).static_set()
    changed = [(a, b) for a, b in zip(right, some, strict=True) if a.gold != b.gold]
    assert len(changed) == 6 and [a.question for a in right] == [b.question for b in some]
    for before, after in changed:
        (answer,) = after.gold
        kind = after.info["family"]
        shape = {"ledger": r"\d+", "choice": "[ABCD]", "journey": r"(\w+ \w+ \w+ ?)+"}[kind]
        assert re.fullmatch(shape, answer) and len(answer.split()) == len(before.gold[0].split())
        proposal, _ = library(**values).stated(after)
        assert proposal.answer == answer  # what a run takes for right


def test_a_static_question_states_the_true_answer():
    made = library()
    for task in made.static_set()[0]:
        proposal, context = made.stated(task)
        family, source, level = (task.info[key] for key in ("family", "source", "level"))
        assert (context.kind, context.texts) == (family, task.info["documents"])
        assert [source.subject in text for text in context.texts].count(True) == 1
        assert source.subject in context.texts[context.places[0]]
        kind = {"journey": "exact", "ledger": "integer", "choice": "letter"}[family]
        assert grade(proposal.answer, task.gold, kind) == 1
        judged = made.judge(proposal, context)
        assert (judged.level, judged.gold, judged.right) == (level, task.gold[0], True)
        assert judged.grade == kind and judged.answerable
        assert ladder.parse(family, proposal.question) == (source.subject, level)
        assert len(proposal.options) == (4 if family == "choice" else 0)


def test_only_the_persons_own_documents_count():
    assert places_of("Ann", ("Anna left.", "As first Ann left.")) == [1]
