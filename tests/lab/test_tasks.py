"""Tasks: each dial of a level does what it says, the documents hold what the answer needs, golds
are graded full."""

import random
from dataclasses import replace

import pytest

from spnb.core import prompts
from spnb.core.grading import grade
from spnb.lab import oracle
from spnb.lab.oracle import Query, answer, answer_from, parse, questions_of, read_question
from spnb.lab.tasks import (
    FRAMES,
    LETTERS,
    NUMERIC_OPS,
    Level,
    choice_task,
    draw_path,
    library_world,
    open_task,
    options,
    path_task,
    report_task,
    search_task,
    stated,
    task_of,
    value_type,
)
from spnb.lab.texts import facts_in, sentence, table
from spnb.lab.world import BY_NOUN, SUFFIXES, WORDS, World

LEVELS = [
    Level(hops, documents, share, facts, distances)
    for hops in (1, 2, 3, 4)
    for documents in (4, 9)
    for share in (0.0, 1.0)
    for facts, distances in ((1, (0,)), (3, (0, 1, 2)), (4, (2,)))
]
OPEN = ("summarise", "compare", "explain", "plan")


def drawn(level, count=4):
    return [path_task(random.Random(seed), level) for seed in range(count)]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_a_path_task_keeps_its_level(level):
    for task in drawn(level):
        assert (
            len(task.info["documents"]) == level.documents
            and len(task.info["query"].nouns) == level.hops
        )
        assert all(len(facts_in(text)) == level.facts for text in task.info["documents"])
        assert [
            fact in facts_in(task.info["documents"][n])
            for n, fact in zip(task.info["support"], task.info["answer"].facts, strict=True)
        ] == [True] * level.hops
        subjects = {fact[0] for fact in stated(task)}
        assert len(subjects) == level.documents


@pytest.mark.parametrize("level", LEVELS[::5], ids=str)
def test_the_documents_alone_give_the_gold_answer(level):
    for task in drawn(level):
        assert parse(task.question) == task.info["query"]
        assert answer(task.info["world"], task.info["query"]) == task.info["answer"]
        assert answer_from(task.info["query"], stated(task)) == task.info["answer"]
        missing = [fact for fact in stated(task) if fact != task.info["answer"].facts[-1]]
        assert answer_from(task.info["query"], missing) is None


def noun_only(task):
    """The chance to be right by guessing among the different values that the documents state for
    the last relation."""
    return 1 / len(
        {value for _, noun, value in stated(task) if noun == task.info["query"].nouns[-1]}
    )


def test_who_knows_only_the_relation_is_mostly_wrong():
    one = [noun_only(task) for task in drawn(Level(1, 8, 1.0), 50)]
    assert max(one) < 0.3 and sum(one) / 50 < 0.15
    two = [noun_only(task) for task in drawn(Level(2, 8, 1.0), 50)]
    assert sum(two) / 50 < 0.35


def linked_only(task):
    """The chance to be right by guessing among last facts about an entity that another document
    names as a value."""
    values = {value for _, _, value in stated(task)}
    ends = {
        v
        for entity, noun, v in stated(task)
        if noun == task.info["query"].nouns[-1] and entity in values
    }
    return (task.gold[0] in ends) / len(ends)


def test_who_looks_for_linked_documents_and_not_for_the_start_is_mostly_wrong():
    for hops, documents, most in ((2, 4, 0.6), (2, 8, 0.35), (3, 8, 0.55), (4, 8, 0.6)):
        chances = [linked_only(task) for task in drawn(Level(hops, documents, 1.0), 40)]
        assert sum(chances) / 40 < most, (hops, documents)


def test_distractors_are_whole_rival_chains_where_there_is_room():
    for task in drawn(Level(2, 6, 1.0, 1), 20):
        facts = {fact[:2]: fact[2] for fact in stated(task)}
        starts = [entity for entity, noun in facts if noun == task.info["query"].nouns[0]]
        followed = [
            facts.get((facts[start, task.info["query"].nouns[0]], task.info["query"].nouns[1]))
            for start in starts
        ]
        assert len(starts) >= 3 and sum(end is not None for end in followed) >= 3


def test_a_world_that_is_too_small_for_the_documents_says_so():
    world = World(0, size=3)
    query = draw_path(world, random.Random(0), 2)
    with pytest.raises(ValueError, match="size of the world is 3, too few entities of type"):
        task_of(world, query, random.Random(0), Level(2, 20, 1.0), oracle.TRAIN_FRAMES)


def test_questions_of_documents_come_back_to_no_entity():
    text = "The twin of Arnford is Belvik. The twin of Belvik is Arnford."
    assert len(questions_of([text], 1)) == 2 and questions_of([text], 2) == []


def test_same_relation_makes_the_other_documents_mislead():
    for task in drawn(Level(1, 8, 1.0), 20):
        kinds = {task.info["world"].kind(facts_in(text)[0][0]) for text in task.info["documents"]}
        assert kinds == {BY_NOUN[task.info["query"].nouns[0]].subject}
    kinds = {
        task.info["world"].kind(facts_in(text)[0][0])
        for task in drawn(Level(1, 8, 0.0), 20)
        for text in task.info["documents"]
    }
    assert kinds == set(SUFFIXES)


@pytest.mark.parametrize("distance", [0, 1, 2])
def test_documents_keep_the_paraphrase_distance(distance):
    for task in drawn(Level(1, 3, distances=(distance,)), 10):
        for text in task.info["documents"]:
            facts = facts_in(text)
            said = [{sentence(fact, distance, form) for form in (0, 1)} for fact in facts]
            assert len(facts) == 2 and any(f"{a} {b}" == text for a in said[0] for b in said[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hops": 0}, "level.hops is 0; allowed: 1 to 4"),
        ({"hops": 5, "documents": 9}, "level.hops is 5; allowed: 1 to 4"),
        ({"hops": 3, "documents": 2}, r"level.documents is 2; allowed: hops \(3\) or more"),
        ({"same_relation": 1.1}, "level.same_relation is 1.1; allowed: 0 to 1"),
        ({"facts": 5}, "level.facts is 5; allowed: 1 to 4"),
        ({"distances": ()}, r"level.distances is \(\); allowed: some of 0, 1, 2"),
        ({"distances": (0, 3)}, r"level.distances is \(0, 3\); allowed: some of 0, 1, 2"),
    ],
)
def test_a_level_out_of_range_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Level(**arguments)


def test_the_same_generator_state_gives_the_same_task():
    level = Level(2, 6, distances=(0, 1, 2))
    one, two, three = (path_task(random.Random(seed), level) for seed in (5, 5, 6))
    assert (one.question, one.info["documents"], one.info["support"]) == (
        two.question,
        two.info["documents"],
        two.info["support"],
    )
    assert one.question != three.question


def test_a_drawn_path_meets_no_entity_twice():
    rng = random.Random(0)
    for hops in (1, 2, 3, 4) * 50:
        world = World(rng.getrandbits(30), size=8)
        gold = answer(world, draw_path(world, rng, hops))
        met = [gold.facts[0][0], *(value for _, _, value in gold.facts)]
        assert len(set(met)) == hops + 1


@pytest.mark.parametrize("op", NUMERIC_OPS)
@pytest.mark.parametrize("companies", [1, 3])
def test_a_report_task_is_answered_by_its_own_table(op, companies):
    for seed in range(10):
        task = report_task(random.Random(seed), op, companies)
        company = task.info["query"].entity
        assert len(task.info["documents"]) == companies and task.info["query"].op == op
        assert (
            task.info["documents"][task.info["support"][0]]
            == f"Accounts of {company}.\n{table(task.info['world'], company)}"
        )
        assert (
            parse(task.question) == task.info["query"]
            and answer(task.info["world"], task.info["query"]) == task.info["answer"]
        )
        assert int(task.gold[0]) > 0


def test_options_hold_the_gold_once_at_its_letter():
    tasks = [
        *drawn(Level(2, 6), 30),
        *(report_task(random.Random(s), NUMERIC_OPS[s % 5]) for s in range(30)),
    ]
    letters = set()
    for seed, task in enumerate(tasks):
        listed, letter = options(task, random.Random(seed))
        assert len(set(listed)) == 4 and listed[LETTERS.index(letter)] == task.gold[0]
        letters.add(letter)
    assert letters == set(LETTERS)


def test_options_are_of_the_answers_type():
    for seed in range(40):
        task = path_task(random.Random(seed), Level(1, 8, 1.0))
        kind = value_type(task.info["query"])
        for option in options(task, random.Random(seed))[0]:
            if kind in SUFFIXES:
                assert World(0).kind(option) == kind
            elif kind in WORDS:
                assert option in WORDS[kind]
            else:
                assert option.isdigit()


def test_value_types_by_hand():
    assert value_type(Query("path", "Arnford", ("mayor", "home"))) == "town"
    assert value_type(Query("holder", "47", ("population",))) == "town"
    assert value_type(Query("highest", "Artek", metric="costs")) == "year"
    assert value_type(Query("margin", "Artek", years=(1820,))) == "number"


@pytest.mark.parametrize("kind", OPEN)
def test_open_tasks_are_graded_by_their_facts(kind):
    for seed in range(25):
        task = open_task(random.Random(seed), kind, Level(2, 5, distances=(0, 1, 2)))
        in_documents = {fact for text in task.info["documents"] for fact in facts_in(text)}
        facts = task.info["facts"]
        assert set(facts) <= in_documents and len(facts) >= 2
        points = list(task.gold)
        assert points == [sentence(fact) for fact in facts]

        def score(text, task=task):
            return grade(text, task.gold, task.kind)

        assert score(" ".join(points)) == 1.0
        assert score(" ".join(sentence(fact, 2) for fact in facts)) == 1.0
        assert score(points[0]) == pytest.approx(1 / len(points))
        assert score("") == score("A nice place.") == 0.0
        entity, noun, _ = facts[0]
        wrong = sentence((entity, noun, "Nowhere"))
        assert score(f"{' '.join(points)} {wrong}") == pytest.approx(1 - 1 / len(points))


def test_open_tasks_say_what_they_are_about_in_two_wordings():
    for wording, compare, explain in (
        ("train", "Compare {} and {} by their {}.", "Explain how {} is connected with {}."),
        (
            "heldout",
            "Tell me how {} and {} compare by their {}.",
            "Tell me how {} is connected with {}.",
        ),
    ):
        task = open_task(random.Random(0), "compare", Level(1, 4), wording=wording)
        (first, noun, _), (second, other, _) = task.info["facts"]
        assert noun == other and task.question == compare.format(first, second, noun)
        assert task.messages[0]["content"].endswith(f"Task: {task.question}")
        task = open_task(random.Random(0), "explain", Level(3, 4), wording=wording)
        facts = task.info["facts"]
        assert task.question == explain.format(facts[0][0], facts[-1][2]) and len(facts) == 3


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_all_questions_of_documents_against_search(hops):
    task = path_task(random.Random(hops), Level(3, 8, 0.5, 3))
    facts = list(dict.fromkeys(stated(task)))
    found = {query: gold.text for query, gold in questions_of(task.info["documents"], hops)}
    for entity in {fact[0] for fact in facts}:
        ways = {(): (entity,)}
        for _ in range(hops):
            ways = {
                (*nouns, n): (*way, v)
                for nouns, way in ways.items()
                for e, n, v in facts
                if e == way[-1] and v not in way
            }
        ends = {nouns: way[-1] for nouns, way in ways.items()}
        assert {q.nouns: text for q, text in found.items() if q.entity == entity} == ends
    assert hops != 3 or found[task.info["query"]] == task.gold[0]


def test_training_and_heldout_tasks_share_no_name_and_no_question():
    rng, level = random.Random(0), Level(2, 6)
    train = [path_task(rng, level) for _ in range(100)]
    held = [path_task(rng, replace(level), "heldout", oracle.HELDOUT_FRAMES) for _ in range(100)]
    subjects = [{e for task in tasks for e, _, _ in stated(task)} for tasks in (train, held)]
    assert not subjects[0] & subjects[1]
    assert not {task.question for task in train} & {task.question for task in held}
    assert not any(task.question.startswith(("What", "Which", "Name")) for task in held)


@pytest.mark.parametrize("kind", ["summarise", "compare", "explain", "plan"])
def test_copying_the_documents_is_no_good_text(kind):
    task = open_task(random.Random(3), kind, Level(2, 5, 0.5, 2))
    assert grade(" ".join(task.gold), task.gold, "facts") == 1
    assert grade(" ".join(task.info["documents"]), task.gold, "facts") <= 0.5


def test_prompts_labels_and_kinds():
    task = path_task(random.Random(0), Level(2, 4), style="steps")
    content = task.messages[0]["content"]
    assert content == prompts.answer(task.question, task.info["documents"], "steps")[0]["content"]
    assert (task.kind, task.difficulty) == ("exact", "2 hops")
    assert report_task(random.Random(0), "sum").difficulty == "sum"


def test_a_choice_is_graded_by_its_letter():
    task = path_task(random.Random(0), Level(1, 4))
    lettered = choice_task(task, random.Random(1))
    shown, letter = options(task, random.Random(1))
    assert (lettered.gold, lettered.kind, lettered.question) == ((letter,), "letter", task.question)
    assert lettered.messages == prompts.choice(task.question, shown, task.info["documents"])
    assert grade(f"({letter.lower()})", lettered.gold, lettered.kind) == 1.0


@pytest.mark.parametrize("pool", ["train", "heldout"])
def test_a_search_task_is_about_the_pools_library_and_shows_no_document(pool):
    world, rng = library_world(pool), random.Random(0)
    query = draw_path(world, rng, 2)
    task = search_task(world, query, rng, FRAMES[pool], "plain")
    assert task.gold == (answer(world, query).text,) and task.info["documents"] == ()
    assert task.messages == prompts.search(task.question, "plain")
    assert parse(task.question) == query and world.pool == pool
    other = library_world({"train": "heldout", "heldout": "train"}[pool])
    assert other.index(query.entity) is None


def test_a_query_without_an_answer_makes_no_task():
    query = Query("cell", "Nobody", metric="costs", years=(1820,))
    with pytest.raises(ValueError, match="has no answer in this world"):
        search_task(World(0), query, random.Random(0), FRAMES["train"])


TOWN = [("Arnford", "mayor", "Alana"), ("Alana", "home", "Belvik"), ("Belvik", "twin", "Arnford")]


def proposal(question, proposed):
    return f"<question> {question}</question><answer> {proposed}</answer>"


def test_a_valid_proposal_is_read():
    question = "What is the home of the mayor of Arnford?"
    expected = (question, Query("path", "Arnford", ("mayor", "home")), "Belvik")
    assert read_question(proposal(question, "the town Belvik."), TOWN) == expected
    assert read_question(proposal(question.replace(" ", "  "), "Belvik"), TOWN) == expected


@pytest.mark.parametrize(
    ("question", "proposed"),
    [
        ("What is the home of the mayor of Arnford?", "Arnford"),
        ("What is the job of Alana?", "baker"),
        ("What is Arnford?", "Arnford"),
        ("What is the twin of the home of the mayor of Arnford?", "Arnford"),
    ],
    ids=["wrong answer", "not stated", "no question", "comes back"],
)
def test_other_proposals_are_not_valid(question, proposed):
    assert read_question(proposal(question, proposed), TOWN) is None
    assert read_question("", TOWN) is None


ACCOUNTS = [("Artek", "costs 1827", "12"), ("Artek", "costs 1828", "14")]


@pytest.mark.parametrize(
    ("question", "proposed", "facts"),
    [
        ("What is the rise in costs of Artek from 1827 to 1827?", "0", ACCOUNTS),
        ("What is the costs of Artek in 1827 plus 1827?", "24", ACCOUNTS),
        ("What is the year with the highest costs of Artek?", "1827", ACCOUNTS[:1]),
        ("What is the costs of Artek in \u0661\u0668\u0662\u0667?", "12", ACCOUNTS),
    ],
    ids=["rise over no time", "a year twice", "the highest of one", "other digits"],
)
def test_figures_that_need_no_work_are_no_questions(question, proposed, facts):
    assert read_question(proposal(question, proposed), facts) is None


def test_figures_that_need_work_are_questions():
    rise = proposal("What is the rise in costs of Artek from 1827 to 1828?", "2")
    assert read_question(rise, ACCOUNTS)[2] == "2"
    highest = proposal("What is the year with the highest costs of Artek?", "1828")
    assert read_question(highest, ACCOUNTS)[2] == "1828"


def test_every_question_of_documents_is_valid_and_has_its_hops():
    task = path_task(random.Random(2), Level(3, 5))
    for hops in (1, 2, 3):
        for query, gold in questions_of(task.info["documents"], hops):
            question = oracle.ask(query, FRAMES["train"][0])
            assert len(query.nouns) == hops and parse(question) == query
            found = read_question(proposal(question, gold.text), stated(task))
            assert found == (question, query, gold.text)
