"""Chains of people: questions read back, answers by brute force, searches that find the facts."""

import itertools
import random
import time
from collections import Counter

import pytest

from spnb.core import prompts
from spnb.core.grading import grade_text
from spnb.corpus.retrieval import make_retriever
from spnb.lab.chain import CHAIN, QUEST, before, follow
from spnb.lab.ladder import ORDINALS
from spnb.lab.world import names

POOLS = ("train", "heldout")


def tasks(count=60, pool="heldout"):
    rng = random.Random(3)
    return [CHAIN.draw_task(rng.randint(1, 6), rng, pool) for _ in range(count)]


@pytest.mark.parametrize("pool", POOLS)
def test_each_relation_goes_through_everybody_once(pool):
    links, people = CHAIN.links_of(pool), set(names("person", pool))
    for relation in CHAIN.relations:
        person, seen = next(iter(people)), set()
        while person not in seen:
            seen.add(person)
            person = links[relation, person]
        assert seen == people
    assert links == CHAIN.draw_links(random.Random(f"chain {pool}"), pool)
    assert links != CHAIN.draw_links(random.Random(1), pool)


def test_an_answer_is_the_end_of_the_chain_that_the_sentences_state():
    """By brute force: the sentences of the library, read word by word."""
    stated = {}
    for document in CHAIN.library("heldout"):
        _, relation, _, person, _, other = document["text"].rstrip(".").split()
        stated[relation, person] = other
    for task in tasks():
        words = task.question.replace(",", "").replace(".", "").replace(":", "").split()
        steps = {o: r for o, r in itertools.pairwise(words) if o in ORDINALS}
        person = task.info["start"]
        assert person in words and len(steps) == task.info["level"]
        for ordinal in ORDINALS[: len(steps)]:
            person = stated[steps[ordinal], person]
        assert task.gold == (person,) and grade_text(f"<answer> {person}</answer>", task) == 1


@pytest.mark.parametrize("pool", POOLS)
def test_every_wording_is_read_back(pool):
    for frame in CHAIN.words["questions"][pool]:
        steps = [("second", "host"), ("third", "guide"), ("first", "coach")]
        text = CHAIN.question("Edana", steps, frame)
        assert CHAIN.parse(text) == ("Edana", ("coach", "host", "guide"))


@pytest.mark.parametrize(
    "steps",
    [
        [("first", "host"), ("third", "guide")],
        [("first", "host"), ("first", "guide")],
        [("first", "host"), ("second", "host")],
        [("first", "king")],
        [],
    ],
    ids=["a gap", "an ordinal twice", "a relation twice", "an unknown relation", "nothing"],
)
def test_questions_that_cannot_be_read(steps):
    assert CHAIN.parse(CHAIN.question("Edana", steps, "Start at {e}: {s}. Who is it?")) is None
    assert CHAIN.parse("Who is it?") is None


@pytest.mark.parametrize(("text", "read"), [
    ("Who is the guide of the host of Belara?", ("Belara", ("host", "guide"))),
    ("who is  the Host of Belara", ("Belara", ("host",))),
    ("Tell me, who was the tutor of guide of the host of Belara .",
     ("Belara", ("host", "guide", "tutor"))),
    ("What is the name of the person that is the guide of the guide of Belara?",
     ("Belara", ("guide", "guide"))),
    ("The guide of someone of Arnford?", ("somebody of Arnford", ("guide",))),
    ("Who is not the guide of the host of Belara?", None),
    ("Who has as a guide the host of Belara?", None),
    ("Who is the guide of the king of Belara?", None),
    ("Who is the guide of the host of Belara's friend?", None),
    ("Who is the guide of the host of Belara and Calric?", None),
    ("Who is the guide of the host?", None),
    ("Who is Belara?", None),
])  # fmt: skip
def test_a_nested_question_is_read_from_within(text, read):
    assert QUEST.parse(text) == read


def test_reading_a_nested_question_takes_linear_time():
    for text in ("who is the " * 20_000, "the guide of " * 20_000 + "who?"):
        started = time.perf_counter()
        assert QUEST.parse(text) is None
        assert time.perf_counter() - started < 5


def test_a_search_finds_both_sentences_of_a_relation():
    links, index = CHAIN.links_of("heldout"), make_retriever("bm25", CHAIN.library("heldout"))
    keys = list(links)
    found = index.search([CHAIN.query(*key) for key in keys], 2)
    for (relation, person), hits in zip(keys, found, strict=True):
        others = [person, before(links, relation, person)]
        assert links[relation, others[1]] == person
        assert {hit.text for hit in hits} == {CHAIN.fact(links, relation, p) for p in others}


def test_an_order_is_read_where_the_work_is_consistent():
    for task in tasks(20):
        level = task.info["level"]
        order = tuple(random.Random(level).sample(range(level), level))
        turns, answer = CHAIN.reply(task, order)
        text = "".join(turns) + answer
        assert CHAIN.order_of(task, text) == order
        right = order == tuple(range(level))
        assert right <= grade_text(text, task)  # another order may come to the same person
        assert CHAIN.order_of(task, "".join(turns[1:]) + answer) is None
        assert CHAIN.order_of(task, text.replace("<answer> ", "<answer> No")) is None
        assert CHAIN.order_of(task, text + turns[0]) is None


def test_orders_other_than_the_right_one_are_wrong_nearly_always():
    grades = Counter()
    for task in tasks(200):
        if (level := task.info["level"]) > 1:
            turns, answer = CHAIN.reply(task, tuple(reversed(range(level))))
            grades[grade_text("".join(turns) + answer, task)] += 1
    assert grades[1.0] < 0.05 * grades[0.0]


def test_a_question_is_valid_where_it_leads_to_the_answer():
    links = CHAIN.links_of("train")
    start = names("person", "train")[0]
    target = follow(links, start, ["host", "guide"])[-1]
    steps = [("first", "host"), ("second", "guide")]
    text = f"<question> {CHAIN.question(start, steps, 'Start at {e}: {s}. Who is it?')}</question>"
    task = CHAIN.read_proposal(text, target, "train")
    assert task.gold == (target,) and task.info["level"] == 2
    assert target in prompts.ask_search(target)[0]["content"]
    assert CHAIN.read_proposal(text, start, "train") is None
    assert CHAIN.read_proposal(text.replace(start, "Nobody"), target, "train") is None
    assert CHAIN.read_proposal("<question> Who?</question>", target, "train") is None


def test_unknown_levels_are_refused():
    with pytest.raises(ValueError, match="level is 7; allowed: 1 to 6"):
        CHAIN.draw_task(7, random.Random(0))


def test_a_quest_names_towns_in_every_sentence_and_has_eight_levels():
    links = QUEST.links_of("heldout")
    people, towns = QUEST.people("heldout"), QUEST.towns("heldout")
    assert len(people) == 128 and len(towns) == 3 and QUEST.highest == 8
    for relation in QUEST.relations:
        assert {links[relation, person] for person in people} == {*people}
    for document in QUEST.library("heldout"):
        _, town, _, relation, _, person, _, other = document["text"].rstrip(".").split()
        assert links[relation, person] == other and links.homes[person] == town in towns
    homes = Counter(links.homes.values())
    assert min(homes.values()) > 25, "a town does not say who is meant"
    task = QUEST.draw_task(8, random.Random(0), "heldout")
    assert follow(links, task.info["start"], task.info["relations"])[-1] == task.gold[0]


def test_searches_in_a_quest_find_both_sentences_or_somebody_of_a_town():
    links, index = QUEST.links_of("heldout"), make_retriever("bm25", QUEST.library("heldout"))
    keys = random.Random(1).sample(list(links), 200)
    found = index.search([QUEST.query(*key) for key in keys], 2)
    for (relation, person), hits in zip(keys, found, strict=True):
        others = [person, before(links, relation, person)]
        assert {hit.text for hit in hits} == {QUEST.fact(links, relation, p) for p in others}
    for town in QUEST.towns("heldout"):
        (hits,) = index.search([QUEST.somebody(town)], 2)
        assert {links.homes[hit.title] for hit in hits} == {town}


def test_a_question_from_a_town_is_read_and_is_no_valid_proposal():
    town = QUEST.towns("train")[0]
    text = "Start at {e}: first host, second tutor. Who is it?"
    assert QUEST.parse(text.format(e=QUEST.somebody(town))) == (
        f"somebody of {town}",
        ("host", "tutor"),
    )
    assert CHAIN.parse(text.format(e=QUEST.somebody(town))) is None
    start = QUEST.people("train")[0]
    target = follow(QUEST.links_of("train"), start, ("host", "tutor"))[-1]
    asked = f"<question> {text.format(e=start)}</question>"
    assert QUEST.read_proposal(asked, target, "train").gold == (target,)
    by_town = f"<question> {text.format(e=QUEST.somebody(town))}</question>"
    assert QUEST.read_proposal(by_town, target, "train") is None


def test_links_of_some_people_are_among_them():
    some = QUEST.people("train")[5:17]
    links = QUEST.draw_links(random.Random(0), "train", some)
    assert {person for _, person in links} == {*some} == {*links.homes} == {*links.values()}
