"""Skills: answers made by the oracle get 1.0, garbage 0, and every interval holds its value."""

import random
import re

import pandas as pd
import pytest

from spnb.core import prompts
from spnb.core.types import Chat, Completion, Sampling
from spnb.games.text import messages
from spnb.recipe import check, skills
from spnb.testbed import oracle
from spnb.testbed.oracle import Query
from spnb.testbed.suites import BENCHMARKS, Item, benchmark, search_world
from spnb.testbed.tasks import questions_of
from spnb.testbed.texts import facts_in, sentence

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
def measured(tokenizer, monkeypatch):
    """`skills.measure` of a policy that answers prompts by a function, rows by part."""

    def run(name, reply, count=8):
        monkeypatch.setattr(skills, "TorchEngine", lambda *_, **__: Says(tokenizer, reply))
        table = skills.measure(None, tokenizer, name, count)
        assert list(table.columns) == ["benchmark", "part", "value", "low", "high", "n", "parsed"]
        assert (table.benchmark == name).all() and table.part.is_unique
        assert (
            (table.low <= table.value + 1e-9) & (table.value <= table.high + 1e-9) | (table.n == 1)
        ).all()
        return table.set_index("part")

    return run


def prompt_of(tokenizer, asked):
    """A prompt's text as an engine sees it."""
    request = Chat(tokenizer).request(asked, Sampling(), 0)
    return tokenizer.decode(request.prompt_ids)


def listed(prompt):
    """The numbered documents of a prompt."""
    return re.findall(r"^\[\d+\] (.+)$", prompt, re.MULTILINE)


def proposal(query, gold):
    """A question with its answer."""
    return f"<question> {oracle.ask(query)}</question><answer> {gold}</answer>"


# --- the table


def test_right_and_wrong_have_wilsons_interval_and_shares_a_t_interval():
    whole = skills.row("x", "all", [1.0] * 8 + [0.0] * 2, [True] * 9 + [False])
    assert [whole[key] for key in ("value", "low", "high", "n", "parsed")] == pytest.approx(
        [0.8, 0.4902, 0.9433, 10, 0.9], abs=1e-4
    )
    shares = skills.row(
        "x", "all", [0.25, 0.75] * 8, [True] * 16
    )  # sd 0.2582, t(15) 2.1314: half 2.1314 * 0.2582 / 4
    assert [shares[key] for key in ("value", "low", "high")] == pytest.approx(
        [0.5, 0.3624, 0.6376], abs=1e-4
    )
    cut = skills.row("x", "all", [0.5, 1.0], [True, True])
    assert (cut["value"], cut["low"], cut["high"]) == (0.75, 0.0, 1.0)


def test_balanced_is_the_mean_of_the_classes_with_newcombes_interval():
    found = [
        ({"all": float(right), f"gold: {gold}": float(right)}, True)
        for gold, hits in (("yes", 8), ("no", 5))
        for right in [1] * hits + [0] * (10 - hits)
    ]
    known = skills.balanced(skills.rows("judge", found))[0]
    # Wilson: 8 of 10 [0.4902, 0.9433], 5 of 10 [0.2366, 0.7634]
    assert [known[key] for key in ("value", "low", "high", "n")] == pytest.approx(
        [0.65, 0.4467, 0.7999, 20], abs=1e-4
    )
    assert skills.balanced(skills.rows("judge", found[:10])) == []


def test_parts_of_a_kind_stand_together():
    found = [
        ({"all": 1.0, "gold: no": 1.0, "1 hop": 1.0}, True),
        ({"all": 0.0, "answer: town": 0.0, "gold: yes": 0.0, "2 hops": 0.0}, True),
    ]
    order = ["all", "1 hop", "2 hops", "answer: town", "gold: no", "gold: yes"]
    assert [known["part"] for known in skills.rows("x", found)] == order


def test_noun_chance_is_one_over_the_values_of_the_last_noun():
    facts = [
        ("Arana", "home", "Belford"),
        ("Corana", "home", "Dorvik"),
        ("Edana", "home", "Dorvik"),
        ("Arana", "job", "baker"),
    ]
    documents = tuple(map(sentence, facts))
    assert len(facts_in(" ".join(documents))) == 4
    assert (
        skills.noun_chance(
            Item([], "What is the home of Arana?", ("Belford",), documents=documents)
        )
        == 0.5
    )
    assert (
        skills.noun_chance(Item([], "What is the job of Arana?", ("baker",), documents=documents))
        == 1.0
    )
    assert (
        skills.noun_chance(Item([], "What is the river of Dorvik?", ("Senn",), documents=documents))
        == 0.0
    )


# --- benchmarks


@pytest.mark.parametrize("name", QUICK)
def test_the_golds_get_everything_and_garbage_nothing(tokenizer, measured, name):
    gold = {prompt_of(tokenizer, item.messages): item.answer for item in benchmark(name, 8)}
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
    found = measured(name, lambda prompt: "<answer> yes</answer>", 12)
    assert found.value[["gold: yes", "gold: no", "balanced", "all"]].tolist() == [
        1.0,
        0.0,
        0.5,
        0.5,
    ]
    assert found.n[["gold: yes", "gold: no", "balanced"]].tolist() == [6, 6, 12]


def test_reading_has_answer_types_and_the_baseline(measured):
    found = measured("reading-4", lambda prompt: "hm", 40)
    chances = [skills.noun_chance(item) for item in benchmark("reading-4", 40)]
    assert found.value[skills.BASELINE] == pytest.approx(sum(chances) / 40)
    own_words = [
        chance
        for chance, item in zip(chances, benchmark("reading-4", 40), strict=True)
        if item.difficulty == "1 hop, 4 documents, own words"
    ]
    assert found.value["baseline: 1 hop, 4 documents, own words"] == pytest.approx(
        sum(own_words) / 20
    )
    assert (found.n[skills.BASELINE], found.parsed[skills.BASELINE]) == (40, 1.0)
    assert found.n[[part for part in found.index if part.startswith("answer: ")]].sum() == 40


# --- roles


def asks(hops):
    """A reply that proposes a valid question of so many hops about the prompt's documents."""

    def reply(prompt):
        query, gold = questions_of(listed(prompt), hops)[0]
        return proposal(query, gold.text)

    return reply


@pytest.mark.parametrize(("hops", "label"), [(1, "1 hop"), (3, "3 hops")])
def test_valid_questions_count_by_their_hops(measured, hops, label):
    found = measured("ask", asks(hops))
    assert list(found.index) == [
        "all",
        "sampled, all",
        f"asked: {label}",
        f"sampled, asked: {label}",
    ]
    assert (found.value == 1).all() and (found.parsed == 1).all() and (found.n == 8).all()


def test_a_wrong_answer_is_well_formed_and_not_valid(measured):
    found = measured(
        "ask", lambda prompt: proposal(questions_of(listed(prompt), 2)[0][0], "nobody")
    )
    assert found.value["all"] == found.value["asked: 2 hops"] == 0 and (found.parsed == 1).all()


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
        stated = [fact for text in listed(prompt) for fact in facts_in(text)]
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
    found = measured("ask-search", searcher)
    assert (found.value == 1).all() and (found.parsed == 1).all() and found.n["all"] == 8
    entity, noun, value = next(
        fact for fact in skills.targets() if len(search_world().holders(*fact[1:])) > 1
    )
    other = oracle.ask(Query("holder", value, (noun,)))  # several holders: no answer
    assert skills.target_marks(f"<question> {other}</question>", (entity, noun, value))["all"] == 0


def test_no_answer_is_given_twice_to_ask_for():
    values = [fact[2] for fact in skills.targets()]
    assert len(values) == len(set(values)) > 200 and skills.targets() == skills.targets()


def test_rubrics_are_graded_by_the_facts_of_the_task(tokenizer, measured):
    suites = [benchmark(name, 2).items for name in skills.OPEN_SETS]
    items = {
        prompt_of(tokenizer, prompts.rubric(item.question, item.documents)): item
        for suite in suites
        for item in suite
    }
    points = {
        prompt: [f"<rubric> {point}</rubric>" for point in item.gold]
        for prompt, item in items.items()
    }
    found = measured("rubric", lambda prompt: "".join(points[prompt]))
    assert list(found.index) == ["all", "summarise", "compare", "explain", "plan"]
    assert (
        (found.value == 1).all()
        and (found.parsed == 1).all()
        and (found.n == [8, 2, 2, 2, 2]).all()
    )
    half = measured("rubric", lambda prompt: points[prompt][0])
    assert half.value["compare"] == 0.5 and half.parsed["all"] == 1
    copied = measured("rubric", lambda prompt: f"<rubric> {' '.join(listed(prompt))}</rubric>")
    assert copied.value["all"] < 0.8


def test_games_count_legal_answers(tokenizer, measured):
    matches = [match for name in skills.GAMES for match in check.positions(name, 3, skills.SEED)]
    rng = random.Random(0)
    legal = {
        prompt_of(tokenizer, messages(match)): check.random_action(match, rng) for match in matches
    }
    found = measured("games", lambda prompt: f"\\boxed{{{legal[prompt]}}}", 12)
    assert list(found.index) == ["all", *skills.GAMES] and found.n.tolist() == [12, 3, 3, 3, 3]
    assert (found.value == 1).all() and (found.parsed == 1).all()
    illegal = measured("games", lambda prompt: "\\boxed{Offer it}", 12)
    assert (illegal.value == 0).all() and (illegal.parsed == 1).all()


@pytest.mark.parametrize("name", skills.ROLES)
def test_garbage_is_worth_nothing_in_any_role(measured, name):
    found = measured(name, lambda prompt: "hm <question> why?</question> <rubric>", 9)
    assert (found.value == 0).all() and (found.parsed == 0).all()


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
    with pytest.raises(ValueError, match="style of role ask is 'plain'; allowed: careful"):
        skills.measure(None, tokenizer, "ask", 4, "plain")
    with pytest.raises(ValueError, match="count of role games is 0; allowed: 1 or more"):
        skills.measure(None, tokenizer, "games", 0)
    assert set(BENCHMARKS) < set(skills.NAMES)


def test_two_policies_are_compared_within_noise():
    def table(*values):
        shares = [
            skills.row(name, "all", [1.0] * hits + [0.0] * (500 - hits), [True])
            for name, hits in values
        ]
        return pd.DataFrame([*shares, skills.row("judge", "balanced", [1.0], [True])])

    found = skills.compare(
        table(("judge", 250), ("choice", 250)), table(("judge", 270), ("choice", 350))
    )
    assert found.benchmark.tolist() == [
        "judge",
        "choice",
    ] and found.difference.tolist() == pytest.approx([-0.04, -0.2])
    # sqrt(2 x .25 / 500) = 0.0316; 3.5 of them are 0.11
    assert found.noise[0] == pytest.approx(0.11, abs=0.002) and found.within.tolist() == [
        True,
        False,
    ]
