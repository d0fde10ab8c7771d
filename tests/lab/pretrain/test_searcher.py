"""What a searcher is shown: consistent searches in any order, and valid questions."""

import re
from collections import Counter

import pytest

from spnb.core import prompts
from spnb.core.types import Chat
from spnb.lab.chain import CHAIN
from spnb.lab.ladder import ORDINALS
from spnb.lab.pretrain import skill_suites, skills
from spnb.lab.pretrain.make import lessons_of
from spnb.lab.pretrain.rows import END
from spnb.lab.world import names
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy

PEOPLE = {*names("person", "train"), *names("person", "heldout")}
TOKENIZER = lessons_of("searcher").tokenizer()


def lessons(**values):
    return lessons_of("searcher", **values)


def stated(row):
    """Who is what to whom, as a row's outside pieces say."""
    text = "".join(text for text, by_policy in row if not by_policy)
    return {(r, e): v for r, e, v in re.findall(r"The (\w+) of (\w+) is (\w+)\.", text)}


def own(row):
    """What the policy writes."""
    return "".join(text for text, by_policy in row if by_policy).partition(END)[0]


def asked_of(row):
    """Start and relations of a row's question, in whatever words."""
    text = re.search("Question: (.*?)<", row[0][0])[1]
    steps = {ORDINALS.index(o): r for o, r in CHAIN.step.findall(text)}
    (start,) = [word for word in re.findall(r"\w+", text) if word in PEOPLE]
    return start, tuple(steps[place] for place in range(len(steps)))


def test_answers_follow_the_relations_in_every_order():
    made, orders = lessons(), Counter()
    for _ in range(200):
        row = made.answer()
        found, text = stated(row), own(row)
        asked = [one.split(" of ") for one in prompts.fields(text, "search")]
        start, relations = asked_of(row)
        person, left = start, set(ORDINALS[: len(relations)])
        for ordinal, (relation, who) in zip(prompts.tagged(text, "think"), asked, strict=True):
            assert who == person and relations[ORDINALS.index(ordinal)] == relation
            person = found[relation, who]
            (draw,) = [d for t, d in row if t == f" {ordinal}" and isinstance(d, tuple)]
            assert set(draw) == {f" {one}" for one in left}
            left.remove(ordinal)
        assert prompts.field(text, "answer") == person and not left
        orders[tuple(r for r, _ in asked) == relations, len(relations)] += 1
    assert orders[False, 5] > 10 * orders[True, 5]
    assert orders[True, 2] and orders[False, 2]


@pytest.mark.parametrize("asks", ["easy", "even"])
def test_questions_go_back_from_the_answer(asks):
    made, levels = lessons(asks=asks), Counter()
    for _ in range(300):
        row = made.ask()
        found, text = stated(row), own(row)
        person, relations = CHAIN.parse(prompts.field(text, "question"))
        assert len(prompts.fields(text, "search")) == len(relations)
        for relation in relations:
            person = found[relation, person]
        assert f"Answer: {person}<" in row[0][0]
        levels[len(relations)] += 1
        stops = [d for t, d in row if isinstance(d, tuple) and "<question>" in d]
        shares = [draw.count("<question>") / len(draw) for draw in stops]
        going = range(1, len(relations) + 1)
        assert shares == [1 / (7 - n) if asks == "even" else 1 if n == 6 else 0.5 for n in going]
    expected = [1 / 6] * 6 if asks == "even" else [32 / 63, 16 / 63, 8 / 63, 4 / 63, 2 / 63, 1 / 63]
    shares = [levels[level] / 300 for level in range(1, 7)]
    assert shares == pytest.approx(expected, abs=0.1)


def test_told_answers_and_drills_say_what_the_sentences_say():
    made = lessons()
    for _ in range(50):
        row = made.told()
        start, relations = asked_of(row)
        reached, person = [], start
        for relation in relations:
            person = stated(row)[relation, person]
            reached.append(person)
        assert prompts.tagged(own(row), "think")[0].split()[2::3] == reached
        assert prompts.field(own(row), "answer") == reached[-1]
        row = made.drill()
        links = stated(row)
        back = {(relation, other): person for (relation, person), other in links.items()}
        for (key, _), (name, by_policy), _ in zip(*[iter(row[1:])] * 3, strict=True):
            one, two = key.split()
            assert by_policy and name.strip() == (links.get((two, one)) or back[one, two])


def test_pieces_that_are_drawn_are_one_token_each():
    made = lessons()
    for _ in range(100):
        for row in (made.answer(), made.ask()):
            for _, draw in row:
                if isinstance(draw, tuple):
                    ids = TOKENIZER(list(draw), add_special_tokens=False)["input_ids"]
                    assert all(len(one) == 1 for one in ids), draw


@pytest.mark.slow
def test_the_shipped_searcher_searches_and_knows_no_order():
    policy = load_policy("embedded/searcher")
    engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
    table = skill_suites.measure(engine, skills.search_skills(Chat(policy.tokenizer), 60))
    found = table[table["benchmark"] == "answer chain"]
    assert found["parsed"].mean() > 0.9
    share = found["value"].tolist()
    assert share[0] > 0.9 and 0.25 < share[1] < 0.75 and max(share[3:]) < 0.2
    asked = table[table["benchmark"] == "ask chain"].set_index("part")["value"]
    assert asked["valid"] > 0.9 and 0.35 < asked["asks level 1"] < 0.65
