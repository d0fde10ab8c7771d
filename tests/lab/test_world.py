"""The world: disjoint names, a name for every index and back, same facts for a seed, values of
their type."""

import itertools
import json
import random
from collections import Counter

import pytest

from spnb.lab.texts import documents, facts_in, world_of
from spnb.lab.world import (
    BY_NOUN,
    CELLS,
    METRICS,
    NUMBERS,
    RELATIONS,
    REPORT_YEARS,
    SUFFIXES,
    SYNONYMS,
    WORDS,
    YEARS,
    World,
    kind_of_word,
    names,
    relations_of,
)


def test_names_of_types_and_pools_are_disjoint():
    every = [
        name for kind in SUFFIXES for pool in ("train", "heldout") for name in names(kind, pool)
    ]
    assert len(every) == len(set(every)) == 6 * (96 + 48)
    assert not set(every) & {word for words in WORDS.values() for word in words}
    assert all(kind_of_word(name) == kind for kind in SUFFIXES for name in names(kind, "heldout"))
    assert kind_of_word("Paris") is None


def test_nouns_and_synonyms_name_one_relation_each():
    words = [word for relation in RELATIONS for word in (relation.noun, relation.synonym)]
    assert len(words) == len(set(words)) == 48
    assert len(SYNONYMS) == len(BY_NOUN) == 24


@pytest.mark.parametrize("call", [lambda: names("planet", "train"), lambda: names("town", "test")])
def test_an_unknown_type_or_pool_is_named(call):
    with pytest.raises(ValueError, match="'(planet|test)'; allowed: "):
        call()


@pytest.mark.parametrize("pool", ["train", "heldout"])
def test_names_and_indices_are_one_to_one(pool):
    world, base = World(0, size=6000, pool=pool), len(names("town", pool))
    found = [world.name("town", index) for index in range(6000)]
    assert len(set(found)) == 6000
    assert [world.index(name) for name in found] == [("town", index) for index in range(6000)]
    assert [len(found[index].split()) for index in (0, base - 1, base, 2 * base)] == [1, 1, 2, 2]


def test_strangers_have_no_index_and_no_values():
    world = World(0, size=5)
    outside = World(0, size=6).name("town", 5)
    for name in (
        "",
        "Paris",
        outside,
        names("town", "heldout")[0],
        f"{world.name('town', 0)} Paris",
    ):
        assert (
            world.index(name) is None
            and world.kind(name) is None
            and world.value(name, "mayor") is None
        )
    mixed = f"{world.name('town', 0)} {world.name('person', 0)}"
    assert World(0, size=9999).index(mixed) is None


def test_every_value_has_its_relations_type_and_no_entity_points_to_itself():
    world = World(3, size=7)
    for kind, index in itertools.product(SUFFIXES, range(7)):
        name = world.name(kind, index)
        for relation in relations_of(kind):
            value = world.value(name, relation.noun)
            assert value != name
            if relation.value in SUFFIXES:
                assert world.kind(value) == relation.value
            elif relation.value in WORDS:
                assert value in WORDS[relation.value]
            else:
                assert int(value) in (NUMBERS if relation.value == "number" else YEARS)
        assert world.value(name, next(r.noun for r in RELATIONS if r.subject != kind)) is None
        assert world.value(name, "colour") is None


def test_the_seed_decides_the_facts():
    def facts(seed):
        world = World(seed)
        return [world.value(name, "mayor") for name in names("town", "train")]

    assert facts(1) == facts(1) != facts(2)


def test_accounts_have_figures_in_their_own_years_only():
    world = World(0, size=4)
    company = world.name("company", 1)
    years = world.years(company)
    assert len(years) == REPORT_YEARS
    assert all(world.cell(company, metric, year) in CELLS for metric in METRICS for year in years)
    assert world.cell(company, "revenue", years[0] - 1) is None
    assert world.cell(company, "profit", years[0]) is None
    assert world.cell(world.name("town", 1), "revenue", years[0]) is None


def test_holders_by_enumeration():
    world = World(5, size=6)
    for relation in RELATIONS:
        by_value: dict[str, list[str]] = {}
        for index in range(6):
            name = world.name(relation.subject, index)
            by_value.setdefault(world.value(name, relation.noun), []).append(name)
        for value, holders in by_value.items():
            assert world.holders(relation.noun, value) == holders
        assert world.holders(relation.noun, "nothing") == []


def test_draw_keeps_out_what_it_is_told_to_and_says_when_none_is_left():
    world, rng = World(0, size=2), random.Random(0)
    first, second = (world.name("book", index) for index in range(2))
    assert {world.draw(rng, "book", but=[first]) for _ in range(5)} == {second}
    with pytest.raises(ValueError, match="size of the world is 2, too few entities of type book"):
        world.draw(rng, "book", but=[first, second])
    with pytest.raises(ValueError, match="size of a world is 1; allowed: 2 or more"):
        World(0, size=1)


def test_documents_are_the_same_for_a_seed_and_in_the_corpus_schema():
    first, again, other = (list(documents(200, seed=seed)) for seed in (0, 0, 1))
    assert json.dumps(first) == json.dumps(again) != json.dumps(other)
    assert all(list(document) == ["id", "title", "text", "metadata"] for document in first)
    assert Counter(document["metadata"]["kind"] for document in first) == {
        "article": 161,
        "report": 26,
        "sections": 13,
    }


def test_every_entity_has_an_article_and_every_company_a_report():
    corpus, world = list(documents(150, seed=3)), world_of(150, seed=3)
    titles = Counter((document["metadata"]["kind"], document["title"]) for document in corpus)
    for kind in SUFFIXES:
        assert all(titles["article", world.name(kind, index)] == 1 for index in range(world.size))
    assert sum(count for (kind, _), count in titles.items() if kind == "report") == world.size
    stated = {fact for document in corpus for fact in facts_in(document["text"])}
    named = {
        value for _, noun, value in stated if noun in BY_NOUN and BY_NOUN[noun].value in SUFFIXES
    }
    assert all(titles["article", name] == 1 for name in named)


def test_no_document_comes_twice_in_a_larger_corpus():
    corpus = list(documents(2000, seed=4, pool="heldout"))
    assert (
        len({document["id"] for document in corpus})
        == len({document["text"] for document in corpus})
        == 2000
    )
    assert all(document["text"] for document in corpus)
