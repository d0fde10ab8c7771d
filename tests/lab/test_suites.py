"""The held-out benchmarks: 500 items each, exact grading, determinism, and nothing of the training
tasks in them."""

import hashlib
import json
import random
import re
from collections import Counter
from functools import cache
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.documents import open_source
from spnb.core.grading import grade, grade_text, same
from spnb.core.types import Chat, Completion, Sampling
from spnb.evaluate.items import play_suite
from spnb.lab import oracle
from spnb.lab.suites import (
    BENCHMARKS,
    COUNT,
    POOL,
    SEARCH_SETS,
    benchmark,
    follows,
    needles,
    search_corpus,
    search_world,
    texts,
)
from spnb.lab.tasks import NUMERIC_OPS, Level, open_task, path_task, report_task
from spnb.lab.texts import facts_in, sentence
from spnb.lab.world import SUFFIXES, World, names

TRAIN_NAMES = {name for kind in SUFFIXES for name in names(kind, "train")}
BALANCED = ("judge", "rubric-grading", "logic")
items_of = cache(benchmark)
every = pytest.mark.parametrize("name", BENCHMARKS)


def said(text):
    return f"<think> x</think><answer> {text}</answer>"


@every
def test_there_are_500_different_items_with_every_level_equally_often(name):
    items = items_of(name)
    assert len(items) == COUNT == 500
    assert len({item.messages[0]["content"] for item in items}) == 500
    labels = Counter(level["difficulty"] for level in BENCHMARKS[name]["levels"])
    turns = 500 / sum(labels.values())
    found = Counter(item.difficulty for item in items)
    assert all(abs(found[label] - turns * labels[label]) <= labels[label] for label in labels)


@every
def test_the_gold_answer_is_graded_right_and_others_wrong(name):
    for item in items_of(name):
        gold = (" " if item.kind == "facts" else ", ").join(item.gold)
        assert grade_text(said(gold), item) == 1.0
        assert [grade_text(text, item) for text in (said("nothing of this"), gold, "")] == [0, 0, 0]


@every
def test_no_name_and_no_question_of_training(name):
    for item in items_of(name):
        words = set(
            re.findall(r"[A-Z][a-z]+", " ".join(message["content"] for message in item.messages))
        )
        assert not words & TRAIN_NAMES
    assert not {item.question for item in items_of(name)} & training_questions()


@every
def test_questions_use_no_frame_of_training(name):
    starts = tuple(frame.split("{")[0] for frame in oracle.TRAIN_FRAMES) + (
        "Summarise",
        "Compare",
        "Explain",
        "Plan",
    )
    assert not [item.question for item in items_of(name) if item.question.startswith(starts)]


@cache
def training_questions():
    """A sample of what training tasks ask, short sums in the training frame included."""
    rng = random.Random(0)
    paths = [path_task(rng, Level(1 + n % 4, 6)).question for n in range(400)]
    figures = [report_task(rng, NUMERIC_OPS[n % 5]).question for n in range(100)]
    tasks = [
        open_task(rng, kind, Level(2, 4)).question
        for kind in ("summarise", "compare", "explain", "plan") * 25
    ]
    sums = [f"What is {a} {sign} {b}?" for a in range(1, 50) for b in range(1, 50) for sign in "+-"]
    return {*paths, *figures, *tasks, *sums}


def test_training_tasks_hold_no_heldout_name():
    held = {name for kind in SUFFIXES for name in names(kind, "heldout")}
    rng = random.Random(1)
    for _ in range(200):
        task = path_task(rng, Level(2, 6))
        assert (
            not set(re.findall(r"[A-Z][a-z]+", " ".join([task.question, *task.info["documents"]])))
            & held
        )


@pytest.mark.parametrize(
    "name", ["reading-4", "judge", "needles-4", "open-plan", "search-two-hops", "logic"]
)
def test_same_seed_same_items_and_a_longer_list_begins_with_the_shorter(name):
    few, more = benchmark(name, 12), benchmark(name, 30)
    assert few == more[:12] == benchmark(name, 12) == items_of(name)[:12]
    assert benchmark(name, 12, seed=99) != few and len(few) == 12


@pytest.mark.parametrize(
    "name", ["reading-1", "reading-8", "long-8", "long-32", "reading-three-hops"]
)
def test_reading_golds_follow_from_the_documents(name):
    for item in items_of(name)[:100]:
        stated = [fact for text in item.info["documents"] for fact in facts_in(text)]
        query = oracle.parse(item.question)
        assert oracle.answer_from(query, stated).text == item.gold[0]
        hops, documents = (int(number) for number in re.findall(r"\d+", item.difficulty))
        assert (len(query.nouns), len(item.info["documents"])) == (hops, documents)


@pytest.mark.parametrize("name", ["reading-8", "search-lookup"])
def test_a_style_changes_the_instruction_only(name):
    careful, plain = benchmark(name, 20), benchmark(name, 20, style="plain")
    for one, two in zip(careful, plain, strict=True):
        assert (one.question, one.gold, one.info["documents"]) == (
            two.question,
            two.gold,
            two.info["documents"],
        )
        assert one.messages != two.messages


def test_wrong_answers_near_the_gold_are_wrong():
    item = items_of("reading-4")[0]
    other = next(
        value
        for text in item.info["documents"]
        for *_, value in facts_in(text)
        if value != item.gold[0]
    )
    assert grade_text(said(other), item) == 0.0
    assert grade_text(f"{said(item.gold[0])}{said(other)}", item) == 0.0
    assert grade_text(said(item.gold[0] + "."), item) == 1.0


def test_choices_are_graded_by_letter():
    for item in items_of("choice")[:50]:
        wrong = [letter for letter in "ABCD" if letter != item.gold[0]]
        assert grade_text(said(f"({item.gold[0].lower()})"), item) == 1.0
        assert [grade_text(said(letter), item) for letter in wrong] == [0.0, 0.0, 0.0]
    assert set(item.gold[0] for item in items_of("choice")) == set("ABCD")


@pytest.mark.parametrize("name", BALANCED)
def test_verdicts_are_balanced_in_every_level(name):
    found = Counter((item.difficulty, item.gold[0]) for item in items_of(name))
    for difficulty in {item.difficulty for item in items_of(name)}:
        assert abs(found[difficulty, "yes"] - found[difficulty, "no"]) <= 1
    for item in items_of(name)[:40]:
        assert grade_text(said({"yes": "no", "no": "yes"}[item.gold[0]]), item) == 0.0


def test_judged_pairs_mean_the_same_exactly_when_the_gold_says_so():
    for item in items_of("judge"):
        first, second = re.search(
            r"First: (.*)\nSecond: (.*)$", item.messages[0]["content"]
        ).groups()
        assert same(first, second) == (item.gold[0] == "yes")
        assert item.difficulty != "reworded" or first != second


def test_graded_responses_state_the_point_exactly_when_the_gold_says_so():
    for item in items_of("rubric-grading"):
        (point,) = facts_in(item.question)
        assert (point in facts_in(item.info["documents"][0])) == (item.gold[0] == "yes")
        assert sentence(point) == item.question


def test_needles_are_graded_by_the_share_found_and_listing_everything_does_not_pay():
    item = needles(random.Random(3), 4, 9, POOL, oracle.HELDOUT_FRAMES[0])
    assert len(set(item.gold)) == 4 and len(item.info["documents"]) == 9
    assert grade_text(said(", ".join(item.gold)), item) == 1.0
    assert grade_text(said(" and ".join(reversed(item.gold))), item) == 1.0
    assert grade_text(said(item.gold[2]), item) == 0.25
    assert grade_text(said(", ".join([*item.gold[:2], "Nowhere", "Nobody"])), item) == 0.5
    assert grade_text(said(", ".join([*item.gold, *"abcdefghijkl"])), item) == 0.25
    stated = {fact for text in item.info["documents"] for fact in facts_in(text)}
    asked = re.findall(r"the (\w+) of (\w+)", item.question)
    assert [
        value for noun, entity in asked for e, n, value in stated if (e, n) == (entity, noun)
    ] == list(item.gold)


@pytest.mark.parametrize("count", [1, 10])
def test_needles_out_of_range_are_named(count):
    with pytest.raises(ValueError, match=f"count of needles is {count}; allowed: 2 to 9"):
        needles(random.Random(0), count, 9, POOL, oracle.HELDOUT_FRAMES[0])


def test_open_tasks_are_reworded_and_graded_by_share():
    kinds = ["summarise", "compare", "explain", "plan"]
    for kind in kinds:
        for item in items_of(f"open-{kind}")[:50]:
            assert (
                item.question.startswith("Tell me ")
                and item.question in item.messages[0]["content"]
            )
            assert grade_text(said(item.gold[0]), item) == pytest.approx(1 / len(item.gold))


def test_sums_are_right_and_not_negative():
    for item in items_of("arithmetic"):
        numbers = [
            int(part) for part in re.findall(r"[+-]?\d+", item.question.replace(" - ", " -"))
        ]
        assert sum(numbers) == int(item.gold[0]) >= 0
        count, digits = (int(part) for part in re.findall(r"\d", item.difficulty))
        assert len(numbers) == count and all(len(str(abs(number))) == digits for number in numbers)


@pytest.mark.parametrize(
    ("premises", "conclusion", "valid"),
    [
        (["All cats are birds", "All birds are fish"], "All cats are fish", True),
        (["All birds are cats", "All birds are fish"], "All cats are fish", False),
        (["All birds are cats", "All birds are fish"], "Some cats are fish", True),
        (["No cats are birds", "All fish are birds"], "No cats are fish", True),
        (["Some cats are birds", "Some birds are fish"], "Some cats are fish", False),
        (["Some cats are not birds", "All fish are birds"], "Some cats are not fish", True),
    ],
)
def test_syllogisms_by_hand(premises, conclusion, valid):
    assert follows(premises, conclusion) == valid


def test_every_syllogisms_label_holds_in_all_models():
    for item in items_of("logic"):
        first, second, conclusion = re.fullmatch(
            r"(.*)\. (.*)\. Does it follow that (.*)\?", item.question
        ).groups()
        assert follows([first, second], conclusion[0].upper() + conclusion[1:]) == (
            item.gold[0] == "yes"
        )


def test_the_search_corpus_answers_every_search_question():
    corpus = list(search_corpus())
    assert (
        corpus == list(search_corpus())
        and len({document["id"] for document in corpus}) == len(corpus) == 360
    )
    assert all(list(document) == ["id", "title", "text", "metadata"] for document in corpus)
    stated = {fact for document in corpus for fact in facts_in(document["text"])}
    tables = "\n".join(
        document["text"] for document in corpus if document["metadata"]["kind"] == "report"
    )
    for name in SEARCH_SETS:
        for item in items_of(name):
            gold = oracle.answer(search_world(), query := oracle.parse(item.question))
            assert gold.text == item.gold[0]
            assert set(gold.facts) <= stated or f"Accounts of {query.entity} " in tables


def test_there_are_seven_search_sets_and_wordings_of_articles_are_kept():
    assert len(SEARCH_SETS) == 7
    reworded = {
        d["title"]: d["metadata"]["reworded"]
        for d in search_corpus()
        if d["metadata"]["kind"] == "article"
    }
    for name, wanted in (
        ("search-lookup", False),
        ("search-reworded", True),
        ("search-two-reworded", True),
    ):
        for item in items_of(name):
            gold = oracle.answer(search_world(), oracle.parse(item.question))
            assert {reworded[fact[0]] for fact in gold.facts} == {wanted}
    document = next(d for d in search_corpus() if d["metadata"].get("reworded"))
    assert not any(sentence(fact) in document["text"] for fact in facts_in(document["text"]))
    assert search_world().pool == "heldout" and search_world() is search_world()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "math"}, "benchmark is 'math'; allowed: reading-1, "),
        (
            {"name": "judge", "style": "plain"},
            "style of benchmark judge is 'plain'; allowed: careful",
        ),
        (
            {"name": "reading-1", "count": 0},
            "count of benchmark reading-1 is 0; allowed: 1 or more",
        ),
        (
            {"name": "search-lookup", "count": 600},
            "count of benchmark search-lookup is above 5[0-9]+; allowed: fewer",
        ),
    ],
)
def test_a_bad_request_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        benchmark(**arguments)


def test_a_rubric_point_cannot_be_graded_by_its_value_alone():
    """Whether the point's value stands in the response decides nothing: it always does."""
    for item in items_of("rubric-grading")[:200]:
        point, response = facts_in(item.question)[0], facts_in(item.info["documents"][0])
        assert point[2] in {value for _, _, value in response}
        assert (point in response) == (item.gold[0] == "yes")


def test_texts_hold_questions_and_documents_without_instructions():
    held = texts("reading-1", 5)
    items = items_of("reading-1")[:5]
    assert held == [
        *(item.question for item in items),
        *(item.info["documents"][0] for item in items),
    ]
    assert prompts.ANSWERING["careful"] not in " ".join(held)
    assert len(texts("search-lookup", 5)) == 5 + 360


def test_worlds_of_benchmarks_differ_from_item_to_item():
    documents = {text for item in items_of("reading-1") for text in item.info["documents"]}
    assert len(documents) == 500
    assert World(0, pool="heldout").size == 48


def test_the_first_tasks_of_every_benchmark_are_those_of_the_committed_results():
    """Results of different days are only comparable while prompts and golds stay what they are."""
    digest = hashlib.sha256()
    for name, suite in BENCHMARKS.items():
        for task in benchmark(name, 12, style=suite["styles"][-1]):
            digest.update(json.dumps([task.messages, task.gold, task.difficulty]).encode())
    assert digest.hexdigest()[:16] == "4566dd4ee2fa775f"


def test_rubrics_are_graded_like_texts():
    task = benchmark("open-summarise", 1)[0]
    assert grade(" ".join(task.gold), task.gold, task.kind) == 1.0
    assert grade(task.gold[0], task.gold, task.kind) == pytest.approx(1 / len(task.gold))


class Fixed:
    """Answers every request with the same text."""

    def __init__(self, text):
        self.text = text
        self.requests = []

    def generate(self, requests):
        self.requests += requests
        return [Completion((1,), (-1.0,), self.text, "stop") for _ in requests]


def test_a_benchmark_is_graded_greedily_with_an_interval():
    text = "<answer>B</answer>"
    share = sum(grade_text(text, task) for task in benchmark("choice", 40)) / 40
    params = SimpleNamespace(eval_benchmarks=["choice"], eval_questions=40)
    source = open_source("lab:benchmarks", params, None)
    assert source.suites(Chat(CharTokenizer()), params, end=False) == []
    (suite,) = source.suites(Chat(CharTokenizer()), params, end=True)
    engine = Fixed(text)
    records, rows = play_suite(suite, {"policy": engine})
    assert {record["suite"] for record in records} == {"choice"}
    (row,) = [row for row in rows if row["metric"] == "grade" and not row["difficulty"]]
    assert (row["value"], row["n"]) == (share, 40) and row["low"] < share < row["high"]
    assert {request.sampling for request in engine.requests} == {Sampling(120, temperature=0.0)}
