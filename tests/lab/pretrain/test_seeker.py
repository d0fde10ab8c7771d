"""What a seeker is shown: searches, hacked questions now and then, checks among noise."""

import re
from collections import Counter

import pytest
import torch

from spnb.core import prompts
from spnb.lab.chain import CHAIN, QUEST
from spnb.lab.ladder import ORDINALS
from spnb.lab.pretrain.make import lessons_of
from spnb.lab.pretrain.rows import END
from spnb.train.policies import load_policy

PEOPLE = {*QUEST.people("train"), *QUEST.people("heldout")}
FACT = r"In (\w+) the (\w+) of (\w+) is (\w+)\."


def lessons(**values):
    return lessons_of("seeker", **values)


def stated(row):
    """Who is what to whom, and who lives where, as a row's outside pieces say."""
    text = "".join(text for text, by_policy in row if not by_policy)
    facts = re.findall(FACT, text)
    return {(r, e): v for _, r, e, v in facts}, {e: town for town, _, e, _ in facts}


def own(row):
    return "".join(text for text, by_policy in row if by_policy).partition(END)[0]


def question_of(row):
    return re.search("Question: (.*?)<", row[0][0])[1]


def test_answers_search_from_person_to_person_or_first_for_somebody_of_a_town():
    made, starts = lessons(), Counter()
    for _ in range(300):
        row = made.answer()
        found, homes = stated(row)
        searches = prompts.fields(own(row), "search")
        relations = {o: r for o, r in QUEST.step.findall(question_of(row))}
        by_town = "somebody of" in question_of(row)
        starts[by_town] += 1
        if by_town:
            assert searches[0] == re.search(r"somebody of \w+", question_of(row))[0]
            first = searches.pop(0).split()[-1]
            assert homes[searches[0].split(" of ")[1]] == first
        person = searches[0].split(" of ")[1]
        for ordinal, search in zip(prompts.tagged(own(row), "think"), searches, strict=True):
            assert search == f"{relations.pop(ordinal)} of {person}"
            person = found[search.split(" of ")[0], person]
        assert prompts.field(own(row), "answer") == person and not relations
    assert 0.05 < starts[True] / 300 < 0.16


def test_questions_go_back_at_every_depth_alike_and_a_tenth_is_hacked():
    made, depths, hacked = lessons(), Counter(), 0
    for _ in range(400):
        row = made.ask()
        found, homes = stated(row)
        start, relations = QUEST.parse(prompts.field(own(row), "question"))
        depths[len(relations)] += 1
        target = re.search(r"Answer: (\w+)<", row[0][0])[1]
        if start.startswith("somebody"):
            hacked += 1
            residents = {person for person, town in homes.items() if start.endswith(town)}
            ends = {end_of(found, person, relations) for person in residents}
            assert target in ends, "it fits what was found"
        else:
            assert end_of(found, start, relations) == target
        (first, *_) = [draw for _, draw in row if isinstance(draw, tuple) and "<question>" in draw]
        assert first.count("<question>") == first.count("<search>"), "easy ones stop as often"
    assert {*depths} == {*range(1, 9)} and min(depths.values()) > 25
    assert 0.06 < hacked / 400 < 0.15


def test_a_lesson_on_order_draws_each_ordinal_once_and_tells_its_relation():
    made, firsts = lessons(), Counter()
    for _ in range(200):
        row = made.order()
        steps = dict(QUEST.step.findall(row[0][0]))
        drawn = [(text, draw) for text, draw in row if isinstance(draw, tuple)]
        assert 5 <= len(drawn) == len(steps) <= 8
        assert {text.strip() for text, _ in drawn} == {*steps} == {*ORDINALS[: len(steps)]}
        for done, (text, draw) in enumerate(drawn):
            assert {*draw} == {text for text, _ in drawn[done:]} and text in draw
        told = [
            text.strip()
            for text, draw in row
            if draw is True and text.strip() in {*QUEST.relations}
        ]
        assert told == [steps[text.strip()] for text, _ in drawn]
        firsts[drawn[0][0]] += 1
    assert len(firsts) == 8 and row[-2] == ("<answer>", True)


def test_some_of_a_faltering_seekers_questions_do_not_lead_to_their_answer():
    made, kinds = lessons_of("seeker-half"), Counter()
    for _ in range(400):
        row = made.ask()
        found, _ = stated(row)
        start, relations = QUEST.parse(prompts.field(own(row), "question"))
        target = re.search(r"Answer: (\w+)<", row[0][0])[1]
        if start.startswith("somebody"):
            continue
        searched = [text.split()[-1] for text in prompts.fields(own(row), "search")]
        right = end_of(found, start, relations) == target
        assert right or start in searched, "a wrong start stands on the way back"
        kinds["right" if right else "names its answer" if start == target else "too early"] += 1
    assert 0.67 < kinds["right"] / kinds.total() < 0.83
    assert min(kinds["names its answer"], kinds["too early"]) > 20


def end_of(found, person, relations):
    for relation in relations:
        person = found.get((relation, person))
    return person


def test_checks_follow_the_chain_in_order_and_their_length_says_nothing():
    made, sizes, both = lessons(), {}, 0
    for _ in range(600):
        row = made.told()
        found, homes = stated(row)
        steps = QUEST.step.findall(question_of(row))
        assert [ordinal for ordinal, _ in steps] == [*ORDINALS[: len(steps)]], "told in order"
        person, *words = prompts.tagged(own(row), "think")[0].split()
        assert prompts.field(own(row), "answer") == [person, *words][-1]
        if "somebody" not in question_of(row):
            (subject,) = [w for w in re.findall(r"\w+", question_of(row)) if w in PEOPLE]
            assert person == subject and words[::2] == [relation for _, relation in steps]
            ends = [found.get((r, p)) for r, p in zip(words[::2], words[1::2], strict=True)]
            both += None not in ends
        for relation, reached in zip(words[::2], words[1::2], strict=True):
            assert found[relation, person] == reached
            person = reached
        sizes.setdefault(len(steps), []).append(len(re.findall(r"\[\d+\]", row[0][0])))
    assert 0.6 < both / 540 < 0.8, "both sentences of each search"
    assert min(sizes[1]) == 1 and max(sizes[1]) > 9 > min(sizes[6]), "levels overlap"


def test_of_somebody_of_a_town_any_resident_among_the_documents_is_meant():
    made, others, rows = lessons(), 0, 0
    while rows < 100:
        row = made.told()
        town = re.search(r"somebody of (\w+)", question_of(row))
        if not town:
            continue
        rows += 1
        _, homes = stated(row)
        residents = {f" {person}" for person, home in homes.items() if home == town[1]}
        first, drawn = row[2]
        assert {*drawn} == residents and first in residents
        steps = QUEST.step.findall(question_of(row))
        done = (len(prompts.tagged(own(row), "think")[0].split()) - 1) / 2
        others += done < len(steps)
    assert others > 20, "a wrong resident's chain breaks off"


def test_words_are_one_token_each():
    tokenizer = lessons().tokenizer()
    words = [*QUEST.relations, *ORDINALS[:8], "somebody"]
    for pool in ("train", "heldout"):
        words += [*QUEST.people(pool), *QUEST.towns(pool)]
    for word in words:
        assert len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) == 1, word
    assert len(tokenizer) <= lessons().recipe.vocabulary


def test_a_recipe_of_too_many_levels_is_refused():
    with pytest.raises(ValueError, match="highest is 9; allowed: 1 to 8"):
        lessons(highest=9)


def test_it_goes_on_from_the_searcher_with_tokens_of_its_own():
    start = load_policy("embedded/searcher")
    old, model = start.tokenizer, start.model
    before = model.get_input_embeddings().weight.detach().clone()
    body = model.model.layers[1].mlp.up_proj.weight.detach().clone()
    model, new = lessons().go_on(model, old)
    after = model.get_input_embeddings().weight.detach()
    assert len(after) == len(new) == model.config.vocab_size and model.lm_head.weight is not None
    assert model.config.eos_token_id == model.generation_config.eos_token_id == new.eos_token_id
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, body)
    for text in (" first", " seventh", " guide", "<search>", " is"):
        ids = [one(text, add_special_tokens=False)["input_ids"] for one in (old, new)]
        assert torch.equal(before[ids[0][0]], after[ids[1][0]]) and len(ids[1]) == 1
    assert lessons().go_on(model, new) == (model, new), "a seeker is as it is"
    people = [f" {name}" for pool in ("train", "heldout") for name in CHAIN.people(pool)]
    alike = before[[old(name, add_special_tokens=False)["input_ids"][0] for name in people]]
    fresh = after[[new(f" {name}", add_special_tokens=False)["input_ids"][0] for name in PEOPLE]]
    spread = (alike - alike.mean(0)).pow(2).mean().sqrt().item()
    assert (fresh - alike.mean(0)).pow(2).mean().sqrt().item() == pytest.approx(spread, rel=0.1)
    assert (fresh.mean(0) - alike.mean(0)).norm() < (alike.mean(0)).norm() / 4
    assert torch.pdist(fresh).min() > torch.pdist(alike).min() / 2, "no two are the same"
