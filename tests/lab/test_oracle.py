"""The oracle against plain search over all facts of a small world, and the questions' text back to
queries."""

import itertools
import time

import pytest

from spnb.core.grading import PREFIXES, normal, same, variants
from spnb.lab import oracle
from spnb.lab.oracle import FRAMES, Query, answer, answer_from, ask, parse, support
from spnb.lab.texts import facts_in, facts_of, sentence, table
from spnb.lab.world import BY_NOUN, METRICS, RELATIONS, SUFFIXES, WORDS, World, relations_of

WORLD = World(11, size=3)
ENTITIES = [WORLD.name(kind, index) for kind in SUFFIXES for index in range(3)]
FACTS = [fact for entity in ENTITIES for fact in facts_of(WORLD, entity)]
NOUNS = list(BY_NOUN)


def searched(entity, nouns):
    """The end of a path by a look through the list of all facts."""
    for noun in nouns:
        entity = next((v for e, n, v in FACTS if (e, n) == (entity, noun)), None)
    return entity


@pytest.mark.parametrize("hops", [1, 2])
def test_paths_against_search(hops):
    for entity, nouns in itertools.product(ENTITIES, itertools.product(NOUNS, repeat=hops)):
        found = answer(WORLD, Query("path", entity, nouns))
        assert (found and found.text) == searched(entity, nouns)
        assert answer_from(Query("path", entity, nouns), FACTS) == found


@pytest.mark.slow
def test_long_paths_against_search_and_their_facts_form_a_chain():
    links = [r.noun for r in RELATIONS if r.value in SUFFIXES]
    for nouns in itertools.product(links, links, links, ("river", "home")):
        for entity in ENTITIES[::3]:
            found = answer(WORLD, Query("path", entity, nouns))
            assert (found and found.text) == searched(entity, nouns)
            if found:
                assert [fact[1] for fact in found.facts] == list(nouns) and set(found.facts) <= set(
                    FACTS
                )
                assert all(a[2] == b[0] for a, b in itertools.pairwise(found.facts))


def test_holders_against_search():
    values = {value for _, _, value in FACTS} | {"nothing"}
    for noun, value in itertools.product(NOUNS, values):
        query, holders = (
            Query("holder", value, (noun,)),
            [e for e, n, v in FACTS if (n, v) == (noun, value)],
        )
        found = answer(WORLD, query)
        assert (found and found.text) == (holders[0] if len(holders) == 1 else None)
        assert answer_from(query, FACTS) == found


def figures(company):
    """A company's table as printed, {(metric, year): figure}."""
    head, *rows = table(WORLD, company).split("\n")
    assert head == "year company item figure"
    return {
        (metric, int(year)): int(figure)
        for year, _, metric, figure in (row.split() for row in rows)
    }


COMPANIES = [WORLD.name("company", index) for index in range(3)]
OTHER = dict(zip(COMPANIES, [*COMPANIES[1:], COMPANIES[0]], strict=True))


@pytest.mark.parametrize("company", COMPANIES)
def test_figures_against_the_printed_table(company):
    cells = figures(company)
    years = sorted({year for _, year in cells})

    def found(op, *wanted, metric=""):
        query = Query(op, company, metric=metric, years=wanted)
        result = answer(WORLD, query)
        assert answer_from(query, facts_in(table(WORLD, company))) == result
        assert answer_from(query, facts_in(table(WORLD, OTHER[company]))) is None
        return result and result.text

    for metric in METRICS:
        row = [cells[metric, year] for year in years]
        best = [year for year in years if cells[metric, year] == max(row)]
        assert found("highest", metric=metric) == (str(best[0]) if len(best) == 1 else None)
        assert found("cell", years[-1] + 1, metric=metric) is None
        for first, second in itertools.product(years, repeat=2):
            a, b = cells[metric, first], cells[metric, second]
            assert found("cell", first, metric=metric) == str(a)
            twice = first == second
            assert found("sum", first, second, metric=metric) == (None if twice else str(a + b))
            rise = found("difference", first, second, metric=metric)
            assert rise == (None if twice else str(b - a))
    for year in years:
        assert found("margin", year) == str(cells["revenue", year] - cells["costs", year])


def test_figures_of_no_company_or_metric_have_no_answer():
    town, company = WORLD.name("town", 0), WORLD.name("company", 0)
    year = WORLD.years(company)[0]
    assert (
        answer(WORLD, Query("cell", town, metric="revenue", years=(WORLD.years(town)[0],))) is None
    )
    assert answer(WORLD, Query("cell", company, metric="profit", years=(year,))) is None
    assert answer(WORLD, Query("highest", "Nobody", metric="costs")) is None


QUERIES = [
    *(Query("path", "Arnford", (noun,)) for noun in NOUNS),
    Query("path", "Arnford Belvik", ("mayor", "employer")),
    Query("path", "Arnford", ("mayor", "employer", "head")),
    Query("path", "Arnford", ("mayor", "employer", "head", "job")),
    *(
        Query("holder", value, (noun,))
        for noun, value in (("home", "Arnford"), ("population", "47"), ("job", "baker"))
    ),
    Query("holder", "Arnford Belvik", ("twin",)),
    *(Query("cell", "Artek", metric=metric, years=(1820,)) for metric in METRICS),
    Query("sum", "Artek", metric="costs", years=(1820, 1823)),
    Query("difference", "Artek Beltek", metric="staff", years=(1820, 1823)),
    Query("highest", "Artek", metric="staff"),
    Query("margin", "Artek", years=(1820,)),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_question_is_read_back(frame):
    for query in QUERIES:
        reworded = {noun: BY_NOUN[noun].synonym for noun in query.nouns}
        for nouns in (None, reworded):
            question = ask(query, frame, nouns)
            assert parse(question) == parse(f"  {question.replace(' ', '  ')} ") == query, question


def test_questions_by_hand():
    assert (
        ask(Query("path", "Arnford", ("mayor", "home")))
        == "What is the home of the mayor of Arnford?"
    )
    assert (
        ask(Query("holder", "Arnford", ("home",)), "Name {x}.")
        == "Name the person whose home is Arnford."
    )
    assert ask(Query("difference", "Artek", metric="costs", years=(1820, 1823))) == (
        "What is the rise in costs of Artek from 1820 to 1823?"
    )


@pytest.mark.parametrize(
    "question",
    [
        "",
        "the mayor of Arnford",
        "What is the mayor of Arnford",
        "What is the colour of Arnford?",
        "What is Arnford?",
        "What is the mayor of arnford?",
        "What is the town whose home is Arnford?",
        "What is the profit of Artek in 1820?",
        "What is the home of the teacher of the teacher of the teacher of the teacher of Alana?",
        "What is the mayor of Arnford? What is the mayor of Arnford?",
    ],
)
def test_other_questions_are_no_queries(question):
    assert parse(question) is None


def test_an_answer_needs_every_fact_and_for_a_holder_only_one():
    town = WORLD.name("town", 0)
    mayor = WORLD.value(town, "mayor")
    query = Query("path", town, ("mayor", "job"))
    needed = [(town, "mayor", mayor), (mayor, "job", WORLD.value(mayor, "job"))]
    assert answer_from(query, needed) == answer_from(query, FACTS) == answer(WORLD, query)
    assert answer_from(query, needed[:1]) is None and answer_from(query, []) is None
    assert answer_from(Query("path", "Nobody", ("job",)), FACTS) is None
    holder = Query("holder", mayor, ("mayor",))
    assert answer_from(holder, needed[:1] * 2).text == town
    assert answer_from(holder, [*needed, ("Arnford", "mayor", mayor)]) is None


def test_contradicting_facts_give_no_answer():
    facts = [("Arnford", "mayor", "Alana"), ("Arnford", "mayor", "Velana")]
    assert answer_from(Query("path", "Arnford", ("mayor",)), facts) is None
    assert answer_from(Query("path", "Arnford", ("mayor",)), facts[:1]).text == "Alana"
    figures = [("Artek", "costs 1820", "12"), ("Artek", "costs 1820", "13")]
    assert answer_from(Query("cell", "Artek", metric="costs", years=(1820,)), figures) is None


def test_figures_are_answerable_from_a_table_and_not_from_half_of_it():
    company = WORLD.name("company", 0)
    years = WORLD.years(company)
    query = Query("sum", company, metric="costs", years=(years[0], years[3]))
    text = table(WORLD, company)
    assert answer_from(query, facts_in(text)) == answer(WORLD, query)
    assert answer_from(query, facts_in("\n".join(text.split("\n")[:-3]))) is None


def test_support_names_the_documents_that_state_a_fact_of_the_answer():
    facts = [("Arnford", "mayor", "Alana"), ("Alana", "home", "Belvik")]
    gold = answer_from(Query("path", "Arnford", ("mayor", "home")), facts)
    documents = [facts[:1], [("Belvik", "river", "Senn")], facts, facts[1:]]
    assert support(gold, documents) == (0, 2, 3)


KINDS = [*SUFFIXES, *WORDS, "number", "year"]


@pytest.mark.parametrize("kind", KINDS)
def test_variants_mean_the_same_and_no_other_value(kind):
    text, other = {"number": ("47", "48"), "year": ("1874", "1873")}.get(
        kind, ("Arnford", "Belford")
    )
    written = variants(text, kind)
    assert written[0] == text and len(set(written)) == len(written) >= 3
    assert all(same(text, way) and same(way, text) and not same(other, way) for way in written)


def test_every_type_with_prefixes_is_a_type_of_the_world():
    assert set(PREFIXES) <= set(KINDS)


def test_a_long_chain_of_nouns_is_read_in_linear_time():
    text = f"What is {'the mayor of ' * 100_000}Arnford?"
    start = time.perf_counter()
    assert parse(text) is None
    assert time.perf_counter() - start < 1.0


def test_values_of_the_world_stay_apart_after_normalising():
    values = [v for r in RELATIONS for v in (WORDS.get(r.value) or ())] + [e for e in ENTITIES]
    assert len({normal(value) for value in values}) == len(set(values))


def test_every_relation_can_be_asked_and_said():
    for relation in RELATIONS:
        entity = WORLD.name(relation.subject, 0)
        gold = answer(WORLD, parse(ask(Query("path", entity, (relation.noun,)))))
        assert sentence(gold.facts[0], 2) == relation.verb.format(e=entity, v=gold.text)
    assert sum(len(relations_of(kind)) for kind in SUFFIXES) == len(oracle.BY_NOUN)
