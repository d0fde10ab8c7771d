"""Skills: answers made by the oracle get 1.0, garbage 0, and every interval holds its value."""

import random
import re

import pandas as pd
import pytest

from spnb.core import prompts
from spnb.core.types import Chat, Completion, Sampling, Task
from spnb.games.base import messages
from spnb.games.players import random_action
from spnb.lab import oracle
from spnb.lab.oracle import Query, questions_of
from spnb.lab.pretrain import game_skills, skills
from spnb.lab.suites import BENCHMARKS, SEED, benchmark, search_world
from spnb.lab.texts import facts_in, sentence

QUICK = (
    "reading-4",
    "long-8",
    "numeric",
    "choice",
    "judge",
    "rubric-grading",
    "logic",
    "needles-2",
    "open-compare",
)


class Says:
    """In place of the torch engine: answers a prompt's text by a function."""

    def __init__(self, tokenizer, reply):
        self.tokenizer, self.reply = tokenizer, reply

    def generate(self, requests):
        texts = [self.reply(self.tokenizer.decode(request.prompt_ids)) for request in requests]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


@pytest.fixture
def measured(tokenizer):
    """`skills.measure` of a policy that answers prompts by a function, rows by part."""

    def run(name, reply, count=8):
        table = skills.measure(Says(tokenizer, reply), name, count)
        assert list(table.columns) == ["benchmark", "part", "value", "low", "high", "n", "parsed"]
        assert (table.benchmark == name).all() and table.part.is_unique
        assert (
            (table.low <= table.value + 1e-9) & (table.value <= table.high + 1e-9) | (table.n == 1)
        ).all()
        return table.set_index("part")

    return run


def prompt_of(tokenizer, chat):
    """A prompt's text as an engine sees it."""
    request = Chat(tokenizer).request(chat, Sampling(), 0)
    return tokenizer.decode(request.prompt_ids)


def documents_in(prompt):
    """The numbered documents of a prompt."""
    return re.findall(r"^\[\d+\] (.+)$", prompt, re.MULTILINE)


def proposal(query, gold):
    """A question with its answer."""
    return f"<question> {oracle.ask(query)}</question><answer> {gold}</answer>"


# --- the table


def numbers(row, *keys):
    return pytest.approx([row[key] for key in keys or ("value", "low", "high")], abs=1e-4)


def whole(grades, well_formed=True):
    """The row of all, from grades alone."""
    (row,) = skills.part_rows("x", [({"all": grade}, well_formed) for grade in grades])
    return row


def test_right_and_wrong_have_wilsons_interval_and_shares_a_t_interval():
    marks = [({"all": grade}, grade > 0) for grade in [1.0] * 8 + [0.0] * 2]
    (row,) = skills.part_rows("x", marks)
    expected = [0.8, 0.4902, 0.9433, 10, 0.8]
    assert expected == numbers(row, "value", "low", "high", "n", "parsed")
    # sd 0.2582, t(15) 2.1314: half 2.1314 * 0.2582 / 4
    assert numbers(whole([0.25, 0.75] * 8)) == [0.5, 0.3624, 0.6376]
    assert numbers(whole([0.5, 1.0])) == [0.75, 0.0, 1.0]


def test_balanced_is_the_mean_of_the_classes_with_newcombes_interval():
    marks = [
        ({"all": float(right), f"gold: {gold}": float(right)}, True)
        for gold, hits in (("yes", 8), ("no", 5))
        for right in [1] * hits + [0] * (10 - hits)
    ]
    (row,) = skills.balanced_rows(skills.part_rows("judge", marks))
    # Wilson: 8 of 10 [0.4902, 0.9433], 5 of 10 [0.2366, 0.7634]
    assert numbers(row, "value", "low", "high", "n") == [0.65, 0.4467, 0.7999, 20]
    assert skills.balanced_rows(skills.part_rows("judge", marks[:10])) == []


def test_parts_of_a_kind_stand_together():
    marks = [
        ({"all": 1.0, "gold: no": 1.0, "1 hop": 1.0}, True),
        ({"all": 0.0, "answer: town": 0.0, "2 hops": 0.0, "gold: yes": 0.0}, True),
    ]
    order = ["all", "1 hop", "2 hops", "answer: town", "gold: no", "gold: yes"]
    assert [row["part"] for row in skills.part_rows("x", marks)] == order


@pytest.mark.parametrize(
    ("question", "gold", "chance"),
    [
        ("What is the home of Arana?", "Belford", 0.5),
        ("What is the job of Arana?", "baker", 1.0),
        ("What is the river of Dorvik?", "Senn", 0.0),
    ],
)
def test_noun_chance_is_one_over_the_values_of_the_last_noun(question, gold, chance):
    facts = [
        ("Arana", "home", "Belford"),
        ("Corana", "home", "Dorvik"),
        ("Edana", "home", "Dorvik"),
        ("Arana", "job", "baker"),
    ]
    documents = tuple(map(sentence, facts))
    assert len(facts_in(" ".join(documents))) == 4
    task = Task([], question, (gold,), info={"documents": documents})
    assert skills.noun_chance(task) == chance


# --- benchmarks


@pytest.mark.parametrize("name", QUICK)
def test_the_golds_get_everything_and_garbage_nothing(tokenizer, measured, name):
    tasks = benchmark(name, 8)
    separator = " " if name.startswith("open-") else ", "
    gold = {prompt_of(tokenizer, task.messages): separator.join(task.gold) for task in tasks}
    right = measured(name, lambda prompt: f"<answer> {gold[prompt]}</answer>").filter(
        regex="^(?!baseline)", axis=0
    )
    assert (right.value == 1).all() and (right.parsed == 1).all()
    wrong = measured(name, lambda prompt: "hm").filter(regex="^(?!baseline)", axis=0)
    assert (
        (wrong.value == 0).all()
        and (wrong.parsed == 0).all()
        and list(wrong.index) == list(right.index)
    )


@pytest.mark.parametrize("name", ["judge", "rubric-grading", "logic"])
def test_always_yes_is_right_for_one_class_only(measured, name):
    table = measured(name, lambda prompt: "<answer> yes</answer>", 12)
    assert table.value[["gold: yes", "gold: no", "balanced", "all"]].tolist() == [
        1.0,
        0.0,
        0.5,
        0.5,
    ]
    assert table.n[["gold: yes", "gold: no", "balanced"]].tolist() == [6, 6, 12]


def test_reading_has_answer_types_and_the_baseline(measured):
    table = measured("reading-4", lambda prompt: "hm", 40)
    chances = [skills.noun_chance(item) for item in benchmark("reading-4", 40)]
    assert table.value[skills.BASELINE] == pytest.approx(sum(chances) / 40)
    own_words = [
        chance
        for chance, item in zip(chances, benchmark("reading-4", 40), strict=True)
        if item.difficulty == "1 hop, 4 documents, own words"
    ]
    assert table.value["baseline: 1 hop, 4 documents, own words"] == pytest.approx(
        sum(own_words) / 20
    )
    assert (table.n[skills.BASELINE], table.parsed[skills.BASELINE]) == (40, 1.0)
    assert table.n[[part for part in table.index if part.startswith("answer: ")]].sum() == 40


# --- roles


def asks(hops):
    """A reply that proposes a valid question of so many hops about the prompt's documents."""

    def reply(prompt):
        query, gold = questions_of(documents_in(prompt), hops)[0]
        return proposal(query, gold.text)

    return reply


@pytest.mark.parametrize(("hops", "label"), [(1, "1 hop"), (3, "3 hops")])
def test_valid_questions_count_by_their_hops(measured, hops, label):
    table = measured("ask", asks(hops))
    assert list(table.index) == [
        "all",
        "sampled, all",
        f"asked: {label}",
        f"sampled, asked: {label}",
    ]
    assert (table.value == 1).all() and (table.parsed == 1).all() and (table.n == 8).all()


def test_a_wrong_answer_is_well_formed_and_not_valid(measured):
    table = measured(
        "ask", lambda prompt: proposal(questions_of(documents_in(prompt), 2)[0][0], "nobody")
    )
    assert table.value["all"] == table.value["asked: 2 hops"] == 0 and (table.parsed == 1).all()


def test_beyond_needs_more_hops_than_the_earlier_questions(measured):
    parts = ["all", "beyond", "beyond: after 1 hop", "beyond: after 2 hops"]
    for hops, expected in ((1, [1, 0, 0, 0]), (2, [1, 0.5, 1, 0]), (3, [1, 1, 1, 1])):
        assert measured("ask-beyond", asks(hops)).value[parts].tolist() == expected


def test_earlier_questions_are_one_or_two_that_the_documents_answer(measured):
    seen = []
    measured("ask-beyond", lambda prompt: seen.append(prompt) or "hm", 40)
    earlier = [re.findall(r"^- (.+)$", prompt, re.MULTILINE) for prompt in seen]
    assert {len(questions) for questions in earlier} == {1, 2}
    for index, (prompt, questions) in enumerate(zip(seen, earlier, strict=True)):
        stated = [fact for text in documents_in(prompt) for fact in facts_in(text)]
        gold = [oracle.answer_from(oracle.parse(question), stated) for question in questions]
        assert all(answer is not None and len(answer.facts) == 1 + index % 2 for answer in gold)


def searcher(prompt):
    """Searches for the answer it is to have a question for, then asks for a fact with that
    value."""
    target = re.findall("Answer: (.+?)<", prompt)[0]
    if "\n<information>\n[1] " not in prompt:
        return f"<search> {target}</search>"
    entity, noun, _ = next(fact for fact in skills.targets() if fact[2] == target)
    return f"<question> {oracle.ask(Query('path', entity, (noun,)))}</question>"


def test_a_question_to_a_given_answer_has_it_as_its_only_one(measured):
    table = measured("ask-search", searcher)
    assert (table.value == 1).all() and (table.parsed == 1).all() and table.n["all"] == 8
    entity, noun, value = next(
        fact for fact in skills.targets() if len(search_world().holders(*fact[1:])) > 1
    )
    other = oracle.ask(Query("holder", value, (noun,)))  # several holders: no answer
    assert (
        skills.mark_target(f"<question> {other}</question>", (entity, noun, value))[0]["all"] == 0
    )


def test_no_answer_is_given_twice_to_ask_for():
    values = [fact[2] for fact in skills.targets()]
    assert len(values) == len(set(values)) > 200 and skills.targets() == skills.targets()


def test_rubrics_are_graded_by_the_facts_of_the_task(tokenizer, measured):
    names = [name for name in BENCHMARKS if name.startswith("open-")]
    tasks = [task for name in names for task in benchmark(name, 2)]
    points = {
        prompt_of(tokenizer, prompts.rubric(task.question, task.info["documents"])): [
            f"<rubric> {point}</rubric>" for point in task.gold
        ]
        for task in tasks
    }
    table = measured("rubric", lambda prompt: "".join(points[prompt]))
    assert list(table.index) == ["all", "summarise", "compare", "explain", "plan"]
    assert (
        (table.value == 1).all()
        and (table.parsed == 1).all()
        and (table.n == [8, 2, 2, 2, 2]).all()
    )
    half = measured("rubric", lambda prompt: points[prompt][0])
    assert half.value["compare"] == 0.5 and half.parsed["all"] == 1
    copied = measured(
        "rubric", lambda prompt: f"<rubric> {' '.join(documents_in(prompt))}</rubric>"
    )
    assert copied.value["all"] < 0.8


def test_games_count_legal_answers(tokenizer, measured):
    matches = [match for name in skills.GAMES for match in game_skills.positions(name, 3, SEED)]
    rng = random.Random(0)
    legal = {prompt_of(tokenizer, messages(match)): random_action(match, rng) for match in matches}
    table = measured("games", lambda prompt: f"\\boxed{{{legal[prompt]}}}", 12)
    assert list(table.index) == ["all", *skills.GAMES] and table.n.tolist() == [12, 3, 3, 3, 3]
    assert (table.value == 1).all() and (table.parsed == 1).all()
    illegal = measured("games", lambda prompt: "\\boxed{Offer it}", 12)
    assert (illegal.value == 0).all() and (illegal.parsed == 1).all()


@pytest.mark.parametrize("name", skills.ROLES)
def test_garbage_is_worth_nothing_in_any_role(measured, name):
    table = measured(name, lambda prompt: "hm <question> why?</question> <rubric>", 9)
    assert (table.value == 0).all() and (table.parsed == 0).all()


def test_a_policy_is_measured_from_its_weights(tiny_model, tokenizer, monkeypatch):
    monkeypatch.setattr(skills, "NEW_TOKENS", 4)
    names = ("reading-1", "search-lookup", "ask", "ask-search")
    table = skills.report(tiny_model, tokenizer, 4, names)
    assert tuple(table.benchmark.unique()) == names
    assert (table[table.part == "all"].value == 0).all()
    assert table.bar.notna().sum() == 1 and table[table.bar.notna()].iloc[0][
        ["benchmark", "bar"]
    ].tolist() == ["reading-1", 0.95]


def test_bad_input_is_named(tokenizer):
    with pytest.raises(ValueError, match="benchmark is 'asks'; allowed: reading-1, .*games"):
        skills.report(None, tokenizer, 4, ["reading-1", "asks"])
    with pytest.raises(ValueError, match="count of role games is 0; allowed: 1 or more"):
        skills.measure(Says(tokenizer, str), "games", 0)
    assert set(BENCHMARKS) < set(skills.NAMES)


def test_two_policies_are_compared_within_noise():
    def table(**hits):
        shares = {
            name: whole([1.0] * count + [0.0] * (500 - count)) for name, count in hits.items()
        }
        rows = [row | {"benchmark": name} for name, row in shares.items()]
        return pd.DataFrame([*rows, whole([1.0]) | {"benchmark": "judge", "part": "balanced"}])

    compared = skills.compare(table(judge=250, choice=250), table(judge=270, choice=350))
    columns = ["benchmark", "value", "other", "difference", "noise", "within"]
    assert list(compared.columns) == columns
    assert compared.benchmark.tolist() == ["judge", "choice"]
    assert compared.other.tolist() == [0.54, 0.7]
    assert compared.difference.tolist() == pytest.approx([-0.04, -0.2])
    # sqrt(2 x .25 / 500) = 0.0316; 3.5 of them are 0.11
    assert compared.noise[0] == pytest.approx(0.11, abs=0.002)
    assert compared.within.tolist() == [True, False]
