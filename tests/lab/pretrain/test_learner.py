"""What a learner is shown: consistent work in any order, and no held-out wording."""

import itertools
import json
import random
import re
from collections import Counter

import pytest
from transformers import AutoTokenizer

from spnb.core import prompts
from spnb.core.types import Chat
from spnb.lab import embedded_path, ladder
from spnb.lab.ladder import ORDINALS, WORDING, WORLDS
from spnb.lab.pretrain import skill_suites, skills
from spnb.lab.pretrain.build import PAD, encode
from spnb.lab.pretrain.make import lessons_of
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import END, corrected_text
from spnb.lab.pretrain.training import build, rate
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy

EVERY = list(WORLDS)


def lessons(seed=0, progress=1.0, **values):
    made = lessons_of("learner", seed=seed, **values)
    made.progress = progress
    return made


def read(row):
    """The prompt of a lesson and the reply to it."""
    (prompt, by_policy), *pieces = row
    assert not by_policy
    reply, end, _ = "".join(text for text, _ in pieces).partition(END)
    assert end
    return prompt, reply


@pytest.mark.parametrize("family", EVERY)
def test_answers_take_the_steps_in_every_order(family):
    made = lessons(families=[family])
    orders = Counter()
    for _ in range(200):
        row = made.answer()
        assert all(by_policy for _, by_policy in row[1:-1])
        _, reply = read(row)
        answer = prompts.field(reply, "answer")
        assert answer is not None
        thought = "".join(prompts.tagged(reply, "think")).partition(" so ")[0]
        words = thought.split()[1::4] if thought else answer.split()[1::3]
        assert set(words) == set(ORDINALS[: len(words)])  # each step once
        orders[tuple(words) == ORDINALS[: len(words)], len(words)] += 1
    assert orders[False, 5] > 10 * orders[True, 5]
    assert orders[True, 2] and orders[False, 2]


@pytest.mark.parametrize("family", EVERY)
def test_questions_are_valid_and_mostly_easy_or_even_or_mostly_hard(family):
    shares, deepest = {}, Counter()
    for asks in ("easy", "even", "hard"):
        made = lessons(families=[family], asks=asks)
        levels = Counter()
        for _ in range(400):
            prompt, reply = read(made.ask())
            sources = [
                ladder.Source(family, who, tuple(steps.split()[1::2]))
                for who, steps in re.findall(r"\] \w+ of (\w+): ([\w ]+)\.", prompt)
            ]
            assert 1 <= len(sources) <= 4 and 6 <= len(sources[0].steps) <= made.recipe.highest
            source, level, _ = ladder.read_proposal(reply, sources)
            levels[level] += prompts.WORDS["ask beyond"] not in prompt
            deepest[asks] += level == len(sources[0].steps)
        shares[asks] = [levels[level] / levels.total() for level in range(1, 13)]
    assert shares["easy"][0] == pytest.approx(0.5, abs=0.1)
    assert shares["easy"][1] == pytest.approx(0.25, abs=0.1)
    assert max(shares["even"]) < 0.2 and min(shares["even"]) > 0
    assert deepest["hard"] > 400 * 0.4 > 400 * 0.25 > deepest["even"]


def test_levels_grow_and_drills_become_rare():
    early, late = lessons(progress=0.0), lessons(progress=1.0)
    assert (early.cap, lessons(progress=0.15).cap, lessons(progress=0.3).cap) == (2, 7, 12)
    assert late.cap == 12
    counts = [
        sum(END not in "".join(text for text, _ in row) for row in itertools.islice(m.rows(), 400))
        for m in (early, late)
    ]
    assert counts[0] > 180 and counts[1] < 80


def test_high_levels_are_practised_most():
    """Level n of twelve in n + 2 of 102 answers."""
    made = lessons()
    drawn = Counter(made.level() for _ in range(4000))
    shares = [drawn[level] / 4000 for level in range(1, 13)]
    assert shares == pytest.approx([(level + 2) / 102 for level in range(1, 13)], abs=0.025)
    assert shares[0] < 0.05 and {made.level(3) for _ in range(50)} == {1, 2, 3}


def test_a_fifth_of_the_questions_has_notes_that_are_left_out():
    made, crowded, later = lessons(families=["journey"]), 0, 0
    for _ in range(600):
        task = made.task()
        source, level = task.info["source"], task.info["level"]
        notes = [re.findall(r"\w+", text) for text in task.info["documents"]]
        own = [words for words in notes if source.subject in words]
        asked = {*ORDINALS[:level]}
        assert {one for words in own for one in words if one in asked} == asked
        crowded += len(notes) - len(own) > ladder.RIVALS
        later += len(own) > level
    assert 0.12 < crowded / 600 < 0.24 and 0.1 < later / 600 < 0.2


def test_a_rubric_lists_four_of_five_points(monkeypatch):
    made, tasks, listed = lessons(), [], 0
    draw = made.task
    monkeypatch.setattr(made, "task", lambda family: tasks.append(draw(family)) or tasks[-1])
    for _ in range(200):
        points = prompts.fields(read(made.rubric())[1], "rubric")
        assert {*points} <= {*tasks[-1].gold}
        listed += len(points)
    assert listed / sum(len(task.gold) for task in tasks) == pytest.approx(0.8, abs=0.05)


def test_names_are_repeated_or_asked_for_by_their_partners():
    made, kinds = lessons(), Counter()
    for _ in range(60):
        (given, by_policy), *rest = made.recall()
        kinds[len(rest) == 1] += 1
        assert not by_policy
        if len(rest) == 1:
            assert rest == [(given, True)]
            continue
        pairs = dict(pair.split() for pair in given.removesuffix(".").split("."))
        said = {}
        for (key, _), (value, by_policy), _ in zip(*[iter(rest)] * 3, strict=True):
            assert by_policy
            said[key.strip()] = value.strip()
        assert said == pairs
    assert min(kinds[True], kinds[False]) > 15


def test_counts_are_found_by_their_letters():
    made = lessons(families=["choice"])
    for _ in range(20):
        (listed, _), *rest = made.options()
        letters = dict(re.findall(r"- (\d+) \(([A-D])\)", listed))
        for (asked, _), (letter, by_policy), _ in zip(*[iter(rest)] * 3, strict=True):
            assert by_policy and letter == f" ({letters[asked.split()[1]]})"
        assert len(letters) == 4 and len(rest) == 12


def test_drills_ask_for_what_the_notes_say():
    made = lessons(families=["journey"])
    for _ in range(50):
        (notes, _), *rest = made.drill()
        for (key, _), (step, by_policy), _ in zip(*[iter(rest)] * 3, strict=True):
            who, ordinal = key.split()
            text = next(t for t in notes.split(".") if who in t.split() and ordinal in t.split())
            assert by_policy and step.strip() in text.split()


def test_a_choice_often_offers_what_was_worked_out_and_takes_its_letter():
    made, found = lessons(families=["choice"]), Counter()
    for _ in range(200):
        prompt, reply = read(made.answer())
        options = dict(re.findall(r"- (\d+) \(([A-D])\)", prompt))
        assert len(options) == 4
        count = prompts.tagged(reply, "think")[0].partition(" so ")[2].split()[0]
        found[count in options] += 1
        if count in options:
            letter = options[count]
            assert reply.endswith(f" so {count} ({letter})</think><answer> {letter}</answer>")
    assert found[True] > 130 and found[False] > 20


def test_sums_are_right():
    row = lessons().sums()
    for (given, _), (result, by_policy), _ in zip(*[iter(row)] * 3, strict=True):
        count, paid = map(int, given.split())
        assert by_policy and int(result) == (2 * count + paid) % 100


def test_questions_go_beyond_earlier_ones_where_they_can():
    made, seen = lessons(families=["journey"], asks="even"), Counter()
    for _ in range(300):
        prompt, reply = read(made.ask())
        earlier = [ladder.parse("journey", text) for text in re.findall("\n- (.*)", prompt)]
        if earlier:
            (_, level) = ladder.parse("journey", prompts.field(reply, "question"))
            seen[all(before < level for _, before in earlier)] += 1
    assert 50 < seen[True] < 150 and not seen[False]


def stated_on(point, response):
    """What a response says about a point's step."""
    words, (_, ordinal, _) = response.split(), point.split()
    place = words.index(ordinal)
    return words[place - 1 : place + 2]


def test_verdicts_and_rubrics_are_right_as_often_as_stated():
    made, right = lessons(), Counter()
    for _ in range(400):
        prompt, reply = read(made.judge())
        first, second = re.findall("(?:First|Second): (.*?)(?:\n|<)", prompt)
        right["judge"] += prompts.verdict(reply) == (first == second)
        prompt, reply = read(made.grade())
        response, point = re.findall("(?:Response|Point): (.*?)(?:\n|<)", prompt)
        right["grade"] += prompts.verdict(reply) == (point in response)
        assert prompts.tagged(reply, "think")[0].split()[:3] == stated_on(point, response)
        prompt, reply = read(made.rubric())
        points = prompts.fields(reply, "rubric")
        assert len(points) == len(set(points)) > 0
        assert all(re.search(rf"\b{word}\b", prompt) for p in points for word in p.split())
    assert right["judge"] / 400 == pytest.approx(0.8, abs=0.07)
    assert right["grade"] / 400 == pytest.approx(0.8, abs=0.07)


def test_held_out_wordings_are_never_shown():
    made = lessons(families=EVERY)
    heldout = [
        re.sub(r"\{[envk]\}", r"\\w+", re.escape(text).replace(r"\{", "{").replace(r"\}", "}"))
        for world in set(WORLDS.values())
        for key in ("notes", "questions")
        for text in WORDING[world][key]["heldout"]
    ] + [re.escape(text.split("{")[0]) + r"\w+ stops" for text in WORDING["reports"]["heldout"]]
    shown = " ".join(text for row in itertools.islice(made.rows(), 1500) for text, _ in row)
    for pattern in heldout:
        assert not re.search(rf"(?:\]|Question:|Task:|order\.|again\.) {pattern}", shown), pattern


def test_words_of_the_ladder_are_one_token_each():
    tokenizer = lessons().tokenizer()
    ladder.check_names(tokenizer)
    for word in (*ORDINALS, *ladder.NUMBERS, "0", "99", *ladder.names("town", "heldout")):
        assert len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) == 1, word
    ids, weights, _ = encode(lessons(families=["ledger"]).answer(), tokenizer, 0.2)
    assert tokenizer.decode(ids).count(END) == 2 and len(ids) == len(weights)


@pytest.mark.parametrize(("first", "second", "words"), [
    ("a b c", "a b c", "a b c"),
    ("a b c", "a d c", "a d b"),
    ("12", "13", "13 12"),
    ("a b", "a", "a b"),
])  # fmt: skip
def test_texts_are_read_along_up_to_where_they_differ(first, second, words):
    assert " ".join(corrected_text(first.split(), second.split())) == words


def test_the_next_ordinal_is_drawn_from_those_that_are_left():
    made = lessons(families=["report"])
    for row in (made.answer(), made.order(), made.rubric()):
        pieces = [(text, draw) for text, draw in row if isinstance(draw, tuple)]
        left = set(pieces[0][1])
        for text, draw in pieces:
            assert set(draw) == left and len(draw) == len(left) and text in draw
            left.remove(text)


@pytest.mark.parametrize("family", EVERY)
@pytest.mark.parametrize("asks", ["easy", "even", "hard"])
def test_a_questioner_stops_as_often_as_its_recipe_says(family, asks):
    made = lessons(families=[family], asks=asks)
    source = ladder.draw_source(random.Random(0), family, 6)
    words = [f" {word}" for word in made.proposal(source, 6).split("</think>")[0].split()[2:]]
    going, shares = 1.0, []
    for text, draw in [*made.stopping(source, [*words, "</think>"], 1, 6)]:
        if isinstance(draw, tuple):
            on = draw.count(text) / len(draw) if len(shares) < 5 else 0.0
            shares.append(going * (1 - on))
            going *= on
    expected = {
        "easy": [0.5**level for level in (1, 2, 3, 4, 5, 5)],
        "even": [1 / 6] * 6,
        "hard": stops([1 / 31, 1 / 31, 1 / 15, 1 / 7, 1 / 3, 1]),  # 1 in 2^left - 1, 31 at most
    }
    assert shares == pytest.approx(expected[asks])


def stops(chances):
    """The share that stops at each place, from the chance to stop there."""
    left, shares = 1.0, []
    for chance in chances:
        shares.append(left * chance)
        left -= shares[-1]
    return shares


def test_the_rate_is_constant_and_then_falls_to_0():
    recipe = LearnerRecipe(tokens=1_000_000, warmup_tokens=100)
    assert [rate(recipe, at) for at in (99, 400_000, 1_000_000)] == pytest.approx([1, 1, 0])
    assert rate(recipe, 700_000) == pytest.approx(0.5)
    assert rate(recipe, 24) == pytest.approx(0.25), "it warms up"


@pytest.mark.parametrize(
    "name", ["learner", "learner-even", "learner-hard", "learner-large", "searcher"]
)
def test_the_shipped_learners_are_their_recipes(name):
    made = lessons_of(name)
    folder = embedded_path(name)
    assert LearnerRecipe(**json.loads((folder / "recipe.json").read_text())) == made.recipe
    shipped = AutoTokenizer.from_pretrained(folder)
    assert shipped.get_vocab() == made.tokenizer().get_vocab()
    assert (shipped.pad_token, shipped.eos_token) == (PAD, END)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["journey", "ledger", "report"])
def test_the_shipped_learner_reads_and_knows_no_order(family):
    """What every study on the ladder stands on."""
    policy = load_policy("embedded/learner")
    engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
    chat = Chat(policy.tokenizer)
    table = skill_suites.measure(engine, [skills.ladder_answers(chat, family, 10, 60)])
    assert table["parsed"].mean() > 0.95
    share = table["value"].tolist()
    assert share[0] > 0.93 and 0.3 < share[1] < 0.7 and 0.05 < share[2] < 0.4
    assert max(share[4:]) < 0.1
    asked = skill_suites.measure(engine, [skills.ladder_proposals(chat, family, 10, 150)])
    share = asked.set_index("part")["value"]
    assert share["valid"] > 0.8
    assert 0.35 < share["asks level 1"] < 0.65 and share["asks level 2"] > 0.1


@pytest.mark.slow
def test_the_hard_start_asks_mostly_for_many_steps():
    policy = load_policy("embedded/learner-hard")
    engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
    chat = Chat(policy.tokenizer)
    asked = skill_suites.measure(engine, [skills.ladder_proposals(chat, "journey", 10, 150)])
    share = asked.set_index("part")["value"]
    assert share["valid"] > 0.5
    deep = sum(share.get(f"asks level {level}", 0) for level in (8, 9, 10))
    assert deep > 0.5 > 0.2 > share["asks level 1"]
    table = skill_suites.measure(engine, [skills.ladder_answers(chat, "journey", 3, 60)])
    assert table["parsed"].mean() > 0.9 and table["value"].iloc[0] > 0.93


@pytest.mark.slow
def test_a_tiny_learner_is_built_and_the_same_again(tmp_path):
    size = dict(hidden=32, layers=2, heads=2, feed_forward=64, tokens=20_000, warmup_tokens=1000)
    for name in ("first", "second"):
        build(lessons(**size), tmp_path / name, report=lambda text: None)
    first, second = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("first", "second"))
    assert first == second
