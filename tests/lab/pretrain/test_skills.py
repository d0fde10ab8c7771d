"""How policies are measured: known texts have known grades, and every interval holds its value."""

import random
import re
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from fakes import CharTokenizer

from spnb.core.types import Completion, Request, Sampling
from spnb.evaluate.items import play_suite, record
from spnb.games import programs
from spnb.lab import groups, ladder, segments
from spnb.lab.chain import CHAIN, QUEST, before, follow
from spnb.lab.pretrain import report_skills, skill_suites, skills


@dataclass(frozen=True)
class Prompted(Request):
    """A request that still has its words."""

    prompt: str = ""


class Words:
    """In the place of a chat and of an engine: `write(place, prompt)` is the policy."""

    tokenizer = CharTokenizer()

    def __init__(self, write):
        self.write = write

    def request(self, messages, sampling, seed):
        return Prompted((0,), sampling, seed, prompt=messages[0]["content"])

    def generate(self, requests):
        texts = [self.write(place, one.prompt) for place, one in enumerate(requests)]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


def graded(write, suite, *given):
    """Grade by part and whether well-formed, for each text."""
    words = Words(write)
    records, _ = play_suite(suite(words, *given), {"policy": words})
    marks = {}
    for one in records:
        parts, _ = marks.setdefault(one["item"], ({}, one["parsed"]))
        parts[one["difficulty"]] = one["score"]
    return list(marks.values())


def numbers(row, *keys):
    return pytest.approx([row[key] for key in keys or ("value", "low", "high")], abs=1e-4)


def rows_of(grades, part="all"):
    """The rows "grade" and "parsed" of grades, of which those above 0 are well-formed."""
    records = [record("x", "0", one, difficulty=part, parsed=one > 0) for one in grades]
    return skill_suites.part_rows("x", records)


def test_right_and_wrong_have_wilsons_interval_and_shares_a_t_interval():
    grade, parsed = rows_of([1.0] * 8 + [0.0] * 2)
    assert numbers(grade, "value", "low", "high", "n") == [0.8, 0.4902, 0.9433, 10]
    assert (parsed["metric"], parsed["value"], parsed["difficulty"]) == ("parsed", 0.8, "all")
    # sd 0.2582, t(15) 2.1314: half 2.1314 * 0.2582 / 4
    assert numbers(rows_of([0.25, 0.75] * 8)[0]) == [0.5, 0.3624, 0.6376]
    assert numbers(rows_of([0.5, 1.0])[0]) == [0.75, 0.0, 1.0]


def test_a_text_is_sampled_with_a_seed_of_its_place_and_counts_in_its_parts():
    seeds = []

    class Kept(Words):
        def request(self, messages, sampling, seed):
            seeds.append((seed, sampling))
            return super().request(messages, sampling, seed)

    words = Kept(lambda place, prompt: prompt * 2)
    prompted = [[{"role": "user", "content": text}] for text in "abc"]
    grade = lambda place, text: ({text: place / 2, "all": 1.0}, place > 0)  # noqa: E731
    suite = skill_suites.skill("x", words, prompted, grade, "key", sampling=Sampling(7))
    table = skill_suites.measure(words, [suite])
    assert table["part"].tolist() == ["aa", "all", "bb", "cc"]
    assert table["value"].tolist() == [0.0, 1.0, 0.5, 1.0]
    assert table["parsed"].tolist() == pytest.approx([0.0, 2 / 3, 1.0, 1.0])
    assert set(table["benchmark"]) == {"x"}
    assert seeds == [(skills.derive_seed("key", place), Sampling(7)) for place in range(3)]


@pytest.fixture
def tasks(monkeypatch):
    """The tasks that are drawn, in order."""
    drawn = []
    draw = ladder.draw_task

    def kept(*given):
        drawn.append(draw(*given))
        return drawn[-1]

    monkeypatch.setattr(ladder, "draw_task", kept)
    return drawn


def backwards(task):
    return ladder.reply(task, range(task.info["level"])[::-1], "A")


@pytest.mark.parametrize("family", ["journey", "report"])
def test_the_wrong_order_is_consistent_and_not_right(family, tasks):
    write = lambda place, prompt: backwards(tasks[place])  # noqa: E731
    marks = graded(write, skills.ladder_answers, family, 4, 3)
    assert [parts for parts, _ in marks[:3]] == [{"level 1": 1.0}] * 3
    assert all(consistent for _, consistent in marks)
    assert [parts for parts, _ in marks[-3:]] == [{"level 4": 0.0}] * 3
    write = lambda place, prompt: "<answer> who knows</answer>"  # noqa: E731
    tasks.clear()
    assert not any(
        consistent for _, consistent in graded(write, skills.ladder_answers, family, 2, 2)
    )


def test_questions_count_where_they_are_valid():
    frame = ladder.frames("journey", "train")[0]

    def write(place, prompt):
        (_, line) = prompt.split("\n")[1:3]
        words = line.replace(":", "").replace(".", "").split()
        source = ladder.Source("journey", words[3], tuple(words[5::2]))
        return ladder.proposal(source, 2 if place else 9, frame)

    marks = graded(write, skills.ladder_proposals, "journey", 4, 3)
    assert marks[0] == ({"valid": 0.0}, False), "more steps than there are"
    expected = {"valid": 1.0, **{f"asks level {level}": float(level == 2) for level in range(1, 5)}}
    assert marks[1:] == [(expected, True)] * 2


@pytest.mark.parametrize("role", ["judge", "grade"])
def test_one_verdict_for_all_is_right_in_about_half(role):
    write = lambda place, prompt: "<answer> yes</answer>"  # noqa: E731
    yes = graded(write, skills.ladder_verdicts, role, 5, 200)
    write = lambda place, prompt: "<answer> no</answer>"  # noqa: E731
    no = graded(write, skills.ladder_verdicts, role, 5, 200)
    right = sum(parts["right"] for parts, _ in yes)
    assert 80 < right < 130
    assert [a["right"] + b["right"] for (a, _), (b, _) in zip(yes, no, strict=True)] == [1.0] * 200
    write = lambda place, prompt: "<answer> perhaps</answer>"  # noqa: E731
    assert graded(write, skills.ladder_verdicts, role, 5, 3) == [({"right": 0.0}, False)] * 3


def test_rubrics_are_marked_by_right_and_by_listed_points(tasks):
    def write(place, prompt):
        first = tasks[place].gold[0]
        return "" if place == 0 else f"<rubric> {first}</rubric><rubric> {first} twice</rubric>"

    marks = graded(write, skills.ladder_rubrics, 5, 3)
    assert marks[0] == ({"points listed": 0.0}, False)
    for task, (parts, well) in zip(tasks[1:], marks[1:], strict=True):
        assert well and parts == {"points right": 0.5, "points listed": 1 / len(task.gold)}


def test_held_out_wordings_and_names_are_used():
    seen = []
    write = lambda place, prompt: seen.append(prompt) or ""  # noqa: E731
    graded(write, skills.ladder_answers, "journey", 3, 5)
    trained = {*ladder.names("person", "train"), *ladder.names("town", "train")}
    assert not trained & set(" ".join(seen).replace(".", " ").split())


@pytest.mark.parametrize("town", [False, True])
@pytest.mark.parametrize("noise", [0, 4])
def test_a_check_has_what_its_proposer_found_among_noise_and_may_start_at_a_town(town, noise):
    asked = []

    def write(place, prompt):
        asked.append(prompt)
        return "<answer> nobody</answer>"

    grades = graded(write, skills.chain_checks, 2, noise, town)
    assert len(grades) == 16 and all(set(parts.values()) == {0.0} for parts, _ in grades)
    links = QUEST.links_of("heldout")
    for place, prompt in enumerate(dict.fromkeys(asked)):
        start, relations = QUEST.parse(prompt.rpartition("Question: ")[2])
        assert start.startswith("somebody of") == town and len(relations) == place // 2 + 1
        facts = re.findall(r"In (\w+) the (\w+) of (\w+) is (\w+)\.", prompt)
        assert all(links[relation, who] == other for _, relation, who, other in facts)
        found = {(relation, who) for _, relation, who, _ in facts}
        people = [who for home, _, who, _ in facts if not town or start.endswith(home)]
        ways = [who for who in (people if town else [start]) if leads(links, found, who, relations)]
        assert ways, "the chain of somebody meant is among the documents"
        assert len(facts) <= 2 * len(relations) + noise
    sizes = [len(re.findall(r"\n?\[\d+\]", prompt)) for prompt in asked]
    assert max(sizes[:2]) <= 2 + noise and (noise == 0 or min(sizes) > 4)


def leads(links, found, who, relations):
    """Whether all sentences of a chain are there."""
    for relation in relations:
        if (relation, who) not in found:
            return False
        who = links[relation, who]
    return True


def test_what_is_told_are_the_sentences_of_a_chain_and_two_others():
    links, others = CHAIN.links_of("heldout"), []

    def write(place, prompt):
        start, relations = CHAIN.parse(prompt.rpartition("Question: ")[2])
        others.append(len(re.findall(r"\[\d\]", prompt)) - len(relations))
        return f"<answer> {follow(links, start, relations)[-1]}</answer>"

    marks = graded(write, skills.chain_answers, 2, CHAIN, True)
    assert marks == [({f"level {1 + place // 2}": 1.0}, True) for place in range(12)]
    assert {*others} == {2}


def test_questions_by_search_count_by_their_level_and_their_searches():
    links, turns = CHAIN.links_of("heldout"), Counter()

    def write(place, prompt):
        target = re.search(r"Answer: (\w+)", prompt)[1]
        turns[prompt] += 1
        if turns[prompt] <= 3:
            return f"<search> {CHAIN.query('host', target)}</search>"
        start = before(links, "guide", before(links, "host", target))
        return f"<question> Who is the host of the guide of {start}?</question>"

    expected = {"valid": 1.0} | {f"asks level {one}": float(one == 2) for one in range(1, 7)}
    expected |= {"valid after 3 searches": 1.0}
    assert graded(write, skills.chain_proposals, 4, CHAIN) == [(expected, True)] * 4


# --- a reasoner's


@pytest.mark.parametrize("grounded", [True, False])
def test_a_challengers_tasks_have_the_oracles_word(grounded):
    """All are of two steps; every second one states another word."""
    rng = random.Random(0)

    def write(place, prompt):
        entry = segments.draw_entry(rng, "code", 4, "heldout")
        if grounded:
            entry = segments.read_segment(prompt)[0]
        task = segments.write_task(entry, 2, "string", rng)
        return segments.challenge(entry, 2, replace(task, answer="ZZ") if place % 2 else task)

    said = {"valid": 1.0, "self_contained": 1.0, "leaks": 0.0}
    said |= {"faithful": 1.0} if grounded else {}
    said |= {f"asks level {one}": float(one == 2) for one in range(1, 7)}
    marks = graded(write, skills.challenges, "string", 6, grounded)
    assert marks == [(said | {"right": float(place % 2 == 0)}, True) for place in range(6)]


def test_programs_are_run_to_tell_which_are_valid():
    one = "<program> {}</program><input> 0</input>"
    texts = [one.format("x + 3"), one.format("4 % x"), "nothing"]
    marks = graded(lambda place, prompt: texts[place % 3], skills.programs_proposed, "deduction", 6)
    assert marks == [({"valid": 1.0}, True), ({"valid": 0.0}, True), ({"valid": 0.0}, False)] * 2


def test_programs_of_each_level_are_solved_by_running_them():
    levels = []

    def write(place, prompt):
        program, x = re.findall(r"(?:Program|Input): ([^\n<]*)", prompt)
        levels.append(program.count("* 2"))
        return f"<answer> {programs.run(program, int(x))}</answer>"

    marks = graded(write, skills.programs_solved, "deduction", 2)
    assert marks == [({f"level {level}": 1.0}, True) for level in levels]
    assert levels == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


# --- a reporter's

PEOPLE = groups.everybody("heldout")


def test_a_report_is_measured_by_points_sections_and_searches():
    """Of several people one is searched for and told of, twice."""
    turns = Counter()

    def write(place, prompt):
        kind, people, level = groups.parse(prompt.rpartition("Task: ")[2])
        turns[prompt] += 1
        if turns[prompt] == 1:
            return f"<search> {groups.query(people[-1])}</search>"
        told = groups.points(kind, [PEOPLE[people[-1]]], level) * 2
        return f"<answer> {groups.report(told)}</answer>"

    marks = graded(write, report_skills.reports, "plan", 4)
    assert len(marks) == 8
    for level, (parts, well) in enumerate(marks, 1):
        share = parts[f"level {level}"]
        expected = {f"level {level}": share, f"consistent level {level}": 1.0}
        assert parts == expected | {"repeated": share, "searched for": share} and well
        assert share in (1 / 3, 1 / 4, 1 / 5)


@pytest.mark.parametrize(("searching", "ours"), [(True, True), (False, True), (True, False)])
def test_a_task_counts_by_whom_it_is_about_and_when_it_is_written(searching, ours):
    turns = Counter()

    def write(place, prompt):
        kind, searches = re.search(r"Type: (\w+)\nQueries: (\d)", prompt).groups()
        first, others = re.search(r"With (\w+) went ([\w, ]+)\.", prompt).groups()
        group = [first, *others.split(", ")]
        turns[prompt] += 1
        if searching and turns[prompt] <= int(searches):
            return f"<search> {groups.query(first)}</search>"
        people = group if ours else [who for who in PEOPLE if who not in group]
        frame = groups.TYPES[kind]["questions"]["train"][0]
        return f"<task> {groups.question(kind, people[:3], 2, frame)}</task>"

    valid = {"valid": 1.0} | {f"asks level {one}": float(one == 2) for one in range(1, 9)}
    expected = {"identifiable": 1.0, "about its document": float(ours)}
    expected |= valid if ours else {"valid": 0.0}
    assert graded(write, report_skills.tasks_proposed, 8) == [(expected, searching)] * 8


def test_a_rubrics_points_are_counted_among_those_listed_and_among_the_oracles():
    """Three points, of which the last is the oracle's."""

    def write(place, prompt):
        kind, people, level = groups.parse(prompt.rpartition("Task: ")[2])
        last = groups.points(kind, [PEOPLE[people[-1]]], level)
        sizes.append(len(people))
        return "".join(f"<rubric> {point}</rubric>" for point in ("one", "two", *last))

    sizes = []
    marks = graded(write, report_skills.rubrics_written, 32)
    assert len(marks) == 4 * 8 and {*sizes} == {3, 4, 5}
    for place, (size, (parts, well)) in enumerate(zip(sizes, marks, strict=True)):
        assert well and parts == {f"right level {place % 8 + 1}": 1 / 3, "listed": 1 / size}


def test_half_of_the_points_that_are_graded_are_stated():
    """In the fourth kind of reports beside another order of the same."""
    asked = []
    write = lambda place, prompt: asked.append(prompt) or "<answer> yes</answer>"  # noqa: E731
    marks = graded(write, report_skills.points_graded, 40)
    for place, (prompt, (parts, well)) in enumerate(zip(asked, marks, strict=True)):
        response, point = re.search("Response: (.*)\nPoint: (.*)", prompt).groups()
        (who,) = (word for word in {*point.split()} if word in PEOPLE)
        told = groups.sections(response)
        assert (point in told) == (place % 4 in (0, 3)) and well
        assert [*parts.values()] == [float(point in told)]
        assert sum(who in part.split() for part in told) == (1, 1, 0, 2)[place % 4]


@pytest.mark.parametrize("gate", report_skills.GATES)
def test_every_second_task_passes_a_gate(gate):
    asked = []
    write = lambda place, prompt: asked.append(prompt) or "<answer> yes</answer>"  # noqa: E731
    marks = graded(write, report_skills.gates, gate, 20)
    assert marks == [({"passes": 1.0}, True), ({"stopped": 0.0}, True)] * 10
    for place, prompt in enumerate(asked):
        document, _, task = prompt.rpartition("Task: ")
        named = [who for who in re.findall(r"\w+", task) if who in PEOPLE]
        if gate == "relevant":
            assert len(named) == 3 and (f"{named[1]}" in document) == (place % 2 == 0)
        else:
            assert len(named) == (3 if place % 2 == 0 else 0)
