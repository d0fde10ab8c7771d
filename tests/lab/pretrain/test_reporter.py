"""What a reporter is shown: consistent reports, tasks named step by step, a judge that is right."""

import re
from collections import Counter

import pytest

from spnb.core import prompts
from spnb.lab import groups
from spnb.lab.groups import TYPES, Source
from spnb.lab.ladder import NUMBERS, ORDINALS
from spnb.lab.pretrain import reporter
from spnb.lab.pretrain.make import lessons_of
from spnb.lab.pretrain.rows import END
from spnb.lab.world import names

PEOPLE = {name for pool in groups.POOLS for name in names("person", pool)}
NOTE = re.compile(f"(\\w+) ({'|'.join(ORDINALS)}) (\\w+)\\.")


@pytest.fixture
def made():
    lessons = lessons_of("reporter")
    lessons.progress = 1.0
    return lessons


def read(row):
    """The prompt, and all that follows up to the end of the turn."""
    (prompt, by_policy), *pieces = row
    assert not by_policy
    return prompt, "".join(text for text, _ in pieces).partition(END)[0]


def own(row):
    return "".join(text for text, by_policy in row[1:] if by_policy).partition(END)[0]


def sources_in(text):
    """The stops of everybody in passages."""
    steps = {}
    for who, ordinal, step in NOTE.findall(text):
        steps.setdefault(who, {})[ordinal] = step
    return {
        who: Source("report", who, tuple(told[one] for one in ORDINALS[: len(told)]))
        for who, told in steps.items()
    }


def kind_of(text):
    keys = {kind: TYPES[kind]["keys"] for kind in ("summary", "plan", "writing")}
    found = [kind for kind, words in keys.items() if {*words} & {*re.findall(r"\w+", text)}]
    assert len(found) < 2
    return found[0] if found else "question"


def test_reports_are_consistent_on_those_who_were_searched_for(made):
    again, left_out, orders = 0, 0, Counter()
    for _ in range(300):
        row = made.answer()
        prompt, reply = read(row)
        task = re.search("Task: (.*?)<", prompt)[1]
        people = [who for who in re.findall(r"\w+", task) if who in PEOPLE]
        named = re.findall("<think> (\\w+)", reply)
        assert named.pop() == reporter.DONE
        searches = [query.removeprefix("stops of ") for query in prompts.fields(own(row), "search")]
        assert searches == named
        told = groups.sections(prompts.field(own(row), "answer"))
        known = sources_in(reply)
        assert {*known} == {*searches}
        level = (
            NUMBERS.index(next(word for word in re.findall(r"\w+", task) if word in NUMBERS)) + 1
        )
        subjects = []
        for part in told:
            assert groups.is_consistent(kind_of(task), list(known.values()), level, part), part
            subjects.append(next(word for word in part.split() if word in known))
        assert list(dict.fromkeys(subjects)) == searches
        again += len(subjects) - len({*subjects})
        left_out += len({*people} - {*searches})
        if level == 3 and kind_of(task) != "plan":
            orders[tuple(word for word in told[0].split() if word in ORDINALS)] += 1
    assert 0.05 < again / 300 / 4 < 0.2 and left_out > 10
    assert len(orders) > 3


def test_targets_of_a_report_are_whole_distributions(made):
    """An ordinal is any of those left; after a section one of ten is told again."""
    for _ in range(50):
        for text, wanted in made.answer():
            if not isinstance(wanted, tuple) or len(set(wanted)) < 2:
                continue
            assert text in wanted
            counts = Counter(wanted)
            if text.strip() in ORDINALS:
                assert {*counts.values()} == {1}
            else:
                assert max(counts.values()) == 9 and len(wanted) == 10


def test_a_challenger_names_the_steps_one_by_one_and_stops_as_often_as_it_goes_on(made):
    stray, levels = Counter(), Counter()
    for _ in range(400):
        row = made.ask()
        prompt, reply = read(row)
        searches = int(re.search(r"Queries: (\d)", prompt)[1])
        people = re.search(r"With (\w+) went ([\w, ]+)\.", prompt)
        people = [people[1], *people[2].split(", ")]
        asked = [query.removeprefix("stops of ") for query in prompts.fields(own(row), "search")]
        assert asked == people[2 : 2 + searches]
        steps = prompts.tagged(own(row), "think")[-1].split()
        assert steps == list(NUMBERS[: len(steps)])
        kind, named, level = groups.parse(prompts.field(own(row), "task"))
        assert level == len(steps) and kind == re.search(r"Type: (\w+)", prompt)[1]
        levels[level] += 1
        stray[
            "fine" if list(named) == people[: 2 + searches] else "others" if named else "they"
        ] += 1
        choices = [wanted for _, wanted in row if isinstance(wanted, tuple)]
        assert len(choices) == level
        for place, wanted in enumerate(choices, 1):
            further = () if place == 8 else (f" {NUMBERS[place]}",)
            assert wanted == ("</think>", *further)
    assert min(levels.values()) > 25 and set(levels) == set(range(1, 9)), "deep ones as often"
    assert 0.04 < stray["they"] / 400 < 0.13 and 0.04 < stray["others"] / 400 < 0.13


def test_short_questions_are_answered_from_what_was_found(made):
    people = Counter()
    for _ in range(60):
        row = made.short()
        prompt, reply = read(row)
        asked = re.findall(r"the (\w+) of (\w+)", re.search("Question: (.*?)<", prompt)[1])
        known = sources_in(reply)
        facts = [f"{who} {one} {known[who].steps[ORDINALS.index(one)]}" for one, who in asked]
        assert prompts.tagged(own(row), "think")[-1] == " ".join(facts)
        stops = [fact.split()[-1] for fact in facts]
        assert prompts.field(own(row), "answer") == " ".join(stops)
        queries = [f"stops of {who}" for _, who in asked]
        assert prompts.fields(own(row), "search") == queries
        people[len(asked)] += 1
    assert {*people} == {1, 2} and people[1] > people[2]


def test_a_drill_asks_for_the_stops_of_its_passages(made):
    for _ in range(30):
        (told, _), *rest = made.drill()
        known = sources_in(told)
        for (key, _), (step, by_policy), _ in zip(*[iter(rest)] * 3, strict=True):
            who, ordinal = key.split()
            assert by_policy and step.strip() == known[who].steps[ORDINALS.index(ordinal)]
        assert 1 <= len(known) <= 3 and len(rest) == 3 * 8 * len(known)


def test_a_rubric_is_the_oracles(made):
    for _ in range(60):
        prompt, reply = read(made.rubric())
        known = sources_in(prompt)
        task = re.search("Task: (.*?)<", prompt)[1]
        level = (
            NUMBERS.index(next(word for word in re.findall(r"\w+", task) if word in NUMBERS)) + 1
        )
        points = prompts.fields(reply, "rubric")
        assert points == list(groups.points(kind_of(task), list(known.values()), level))
        assert 3 <= len(points) <= 5


def test_a_grade_is_right_and_its_thought_leads_along_the_point(made):
    verdicts = Counter()
    for _ in range(400):
        prompt, reply = read(made.grade())
        response, point = re.search("Response: (.*)\nPoint: (.*?)<", prompt).groups()
        said = prompts.verdict(reply)
        assert said == (point.strip() in groups.sections(response))
        thought = prompts.tagged(reply, "think")[0]
        assert (thought == point.strip()) == said
        untold = not any(who in response for who in PEOPLE if who in point)
        assert (thought == reporter.NOTHING) == untold
        verdicts[said] += 1
    assert 0.3 < verdicts[True] / 400 < 0.8


def test_gates_are_right(made):
    verdicts = Counter()
    for _ in range(300):
        prompt, reply = read(made.gate())
        task = re.search("Task: (.*?)<", prompt)[1]
        named = [who for who in re.findall(r"\w+", task) if who in PEOPLE]
        if prompts.WORDS["identifiable"] in prompt:
            wanted, gate = "they" not in task, "identifiable"
        else:
            document = re.search("Document: (.*)", prompt)[1]
            wanted, gate = "they" not in task and all(one in document for one in named), "relevant"
        assert prompts.verdict(reply) == wanted, prompt
        verdicts[gate, wanted] += 1
    assert min(verdicts.values()) > 25 and len(verdicts) == 4


def test_near_orders_exchange_two_neighbours():
    lessons = lessons_of("reporter")
    assert lessons.near([0]) == [0]
    for _ in range(20):
        changed = lessons.near([0, 1, 2, 3])
        moved = [at for at in range(4) if changed[at] != at]
        assert len(moved) == 2 and moved[1] - moved[0] == 1 and sorted(changed) == [0, 1, 2, 3]
    assert reporter.agreement(["a", "b", "c"], ["a", "b", "d"]) == 2
    assert reporter.agreement(["a"], ["a"]) == 1 and reporter.agreement(["a"], []) == 0


def test_names_ordinals_and_phrases_are_one_token_each(made):
    tokenizer = made.tokenizer()
    one = lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1  # noqa: E731
    people = [who for pool in groups.POOLS for who in groups.everybody(pool)]
    words = [*people, *ORDINALS[:8], *NUMBERS[:8], groups.MARK, reporter.DONE, "once", "they"]
    assert all(one(f" {word}") for word in words)
    assert all(
        one(text) for text in (prompts.WORDS["report"]["plain"], prompts.WORDS["grade"], "</task>")
    )
