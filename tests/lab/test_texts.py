"""Sentences and back: every wording of every fact is read again; documents state true facts
only."""

import random

import pytest

from spnb.lab.texts import (
    article,
    facts_in,
    facts_of,
    report,
    say,
    sections,
    sentence,
    table,
    wordings,
)
from spnb.lab.world import BY_NOUN, METRICS, RELATIONS, SUFFIXES, World

WORLD = World(7, size=300)
WORDINGS = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.noun)
@pytest.mark.parametrize("index", [3, 250], ids=["one-word", "two-word"])
def test_every_wording_of_a_fact_is_read_back(relation, index):
    entity = WORLD.name(relation.subject, index)
    fact = (entity, relation.noun, WORLD.value(entity, relation.noun))
    said = [sentence(fact, distance, form) for distance, form in WORDINGS]
    assert len(set(said)) == 5
    for text in said:
        assert facts_in(text) == [fact]
        assert facts_in(f"[1] {text}") == [fact]
    assert facts_in(" ".join(said)) == [fact] * 5


def test_sentences_by_hand():
    fact = ("Arnford", "mayor", "Velmund")
    assert sentence(fact) == "The mayor of Arnford is Velmund."
    assert sentence(fact, 0, 1) == "Arnford has the mayor Velmund."
    assert sentence(fact, 1) == "The leader of Arnford is Velmund."
    assert sentence(fact, 2) == BY_NOUN["mayor"].verb.format(e="Arnford", v="Velmund")
    with pytest.raises(ValueError, match="paraphrase distance is 3; allowed: 0, 1, 2"):
        sentence(fact, 3)


def test_facts_are_read_in_the_order_of_the_text_true_or_not():
    said = sentence(("Arnford", "mayor", "Velmund"), 2)
    text = f"{said} I think that Arnford is nice. The mayor of Arnford is Corana."
    assert facts_in(text) == [("Arnford", "mayor", "Velmund"), ("Arnford", "mayor", "Corana")]


@pytest.mark.parametrize(
    "text", ["", "Hello.", "The colour of Arnford is red.", "the mayor of Arnford is Velmund."]
)
def test_other_text_states_nothing(text):
    assert facts_in(text) == []


@pytest.mark.parametrize("kind", SUFFIXES)
def test_an_article_states_all_facts_of_its_entity_and_no_others(kind):
    for index in (0, 1, 299):
        entity = WORLD.name(kind, index)
        document = article(WORLD, entity, random.Random(index))
        assert sorted(facts_in(document["text"])) == sorted(facts_of(WORLD, entity))
        assert document["title"] == entity


def test_sections_state_true_facts_about_four_subjects():
    town = WORLD.name("town", 5)
    document = sections(WORLD, town, random.Random(0))
    stated = facts_in(document["text"])
    assert len(stated) == 16 and all(
        WORLD.value(entity, noun) == value for entity, noun, value in stated
    )
    assert document["text"].count("\n\n") == 3


def test_a_table_holds_the_worlds_figures():
    company = WORLD.name("company", 5)
    head, *rows = table(WORLD, company).split("\n")
    assert head == "year company item figure"
    lines = [row.split() for row in rows]
    assert [metric for _, _, metric, _ in lines] == list(METRICS) * len(WORLD.years(company))
    assert all(
        WORLD.cell(name, metric, int(year)) == int(figure) for year, name, metric, figure in lines
    )
    assert facts_in(table(WORLD, company)) == [
        (name, f"{m} {y}", figure) for y, name, m, figure in lines
    ]
    assert report(WORLD, company)["text"].endswith(table(WORLD, company))


def test_wordings_give_each_fact_its_sentence():
    facts = facts_of(WORLD, WORLD.name("town", 1))
    said = [sentence(fact, distance) for fact, distance in zip(facts, (0, 1, 2, 0), strict=True)]
    assert wordings([" ".join(said[:2]), " ".join(said[2:])]) == dict(zip(facts, said, strict=True))


def test_distances_are_kept():
    facts = facts_of(WORLD, WORLD.name("town", 1))
    assert say(facts, random.Random(0), (2,)) == " ".join(sentence(fact, 2) for fact in facts)
    assert say(facts, random.Random(0)) == say(facts, random.Random(0))
