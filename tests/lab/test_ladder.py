"""The ladder: its oracle against brute force, every wording read back, what a level needs."""

import itertools
import random
import re

import pytest
from fakes import CharTokenizer

from spnb.core.documents import Document, Rejected
from spnb.core.grading import grade, grade_text
from spnb.lab import ladder
from spnb.lab.ladder import (
    HIGHEST,
    NUMBERS,
    ORDINALS,
    WORDING,
    WORLDS,
    counts,
    draw_options,
    draw_source,
    draw_task,
    frames,
    make_task,
    order_of,
    parse,
    proposal,
    question,
    read_proposal,
    reply,
)
from spnb.lab.ladder_suites import LadderContext, LadderSource
from spnb.lab.world import names
from spnb.methods.proposer import Params

FAMILIES = list(WORLDS)
POOLS = ("train", "heldout")


def steps_in(task):
    """The asked person's steps by ordinal, read from the documents by brute force."""
    subject, found = task.info["source"].subject, {}
    for text in task.info["documents"]:
        if re.search(rf"\b{subject}\b", text):
            (ordinal,) = [word for word in re.findall(r"[a-z]+", text) if word in ORDINALS]
            others = [word for word in re.findall(r"[A-Z][a-z]+|[0-9]", text) if word != subject]
            found[ordinal] = next(word for word in others if word.isdigit() or word in ALL_TOWNS)
    return [found[ordinal] for ordinal in ORDINALS[: len(found)]]


ALL_TOWNS = {name for pool in POOLS for name in names("town", pool)}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_documents_hold_exactly_what_the_gold_answer_needs(family, pool):
    for seed in range(40):
        rng = random.Random(seed)
        level = seed % HIGHEST + 1
        task = make_task(draw_source(rng, family, level, pool), level, rng, pool)
        steps = steps_in(task)
        assert tuple(steps) == task.info["source"].steps[:level]
        if family == "report":
            who = task.info["source"].subject
            expected = [f"{who} {a} {b}" for a, b in zip(ORDINALS, steps, strict=False)]
            assert list(task.gold) == expected
        elif family == "journey":
            assert task.gold[0].split()[2::3] == steps
        else:
            total = sum(2 ** (level - place) * int(s) for place, s in enumerate(steps, 1)) % 100
            options = task.info.get("options")
            assert task.gold == (("ABCD"[options.index(str(total))] if options else str(total)),)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_an_order_is_right_only_where_it_comes_to_the_same(family, level):
    task = draw_task(family, level, random.Random(level))
    steps = task.info["source"].steps
    for order in itertools.permutations(range(level)):
        text = reply(task, order, "")
        assert order_of(task, text) == order
        taken = [steps[place] for place in order]
        if family in ("ledger", "choice"):
            right = counts(taken)[-1] == counts(steps)[-1]
        else:
            right = list(order) == sorted(order)
        graded = grade_text(text, task)
        fixed = sum(place == at for at, place in enumerate(order))
        expected = max(0, 2 * fixed - level) / level if family == "report" else float(right)
        assert graded == expected


def test_a_start_that_takes_notes_in_any_order_finds_a_steep_ladder():
    """Chance of a random order: 1, a half, about a sixth, about a twenty-fourth."""
    for family, slack in (("journey", 0.0), ("ledger", 0.08), ("report", 0.05)):
        for level, chance in ((1, 1), (2, 1 / 2), (3, 1 / 6), (4, 1 / 24), (5, 1 / 120)):
            task = draw_task(family, level, random.Random(3))
            orders = list(itertools.permutations(range(level)))
            mean = sum(grade_text(reply(task, order), task) for order in orders) / len(orders)
            assert chance - 1e-9 <= mean <= chance + slack + 1e-9, (family, level, mean)


def test_counts_by_hand():
    assert counts(["3", "4", "9"]) == [3, 10, 29]
    assert counts(["9"] * 4) == [9, 27, 63, 35]  # 135 has two digits kept


@pytest.mark.parametrize("family", FAMILIES)
def test_every_wording_is_read_back(family):
    for pool, level in itertools.product(POOLS, range(1, HIGHEST + 1)):
        for frame in frames(family, pool):
            assert parse(family, question(family, "Alana", level, frame)) == ("Alana", level)
            assert parse(family, "  ".join(question(family, "Alana", level, frame).split()))
    for text in (
        "",
        "Where is Alana?",
        question(family, "Alana", 2, frames(family, "train")[0])[1:],
    ):
        assert parse(family, text) is None


@pytest.mark.parametrize("world", ["journey", "ledger"])
def test_held_out_wordings_and_names_are_others(world):
    for key in ("notes", "questions"):
        assert not set(WORDING[world][key]["train"]) & set(WORDING[world][key]["heldout"])
    for kind in ("person", "town"):
        assert not set(names(kind, "train")) & set(names(kind, "heldout"))
    for seed in range(20):
        rng = random.Random(seed)
        task = draw_task(world, 3, rng, "heldout")
        trained = set(names("person", "train")) | set(names("town", "train"))
        words = re.findall("[A-Z][a-z]+", " ".join(task.info["documents"]) + task.question)
        assert not trained & set(words)


@pytest.mark.parametrize("family", FAMILIES)
def test_proposals_are_read_back_and_only_right_ones(family):
    rng = random.Random(1)
    first = draw_source(rng, family, 6)
    second = draw_source(rng, family, 6, but=[first.subject])
    for level, frame in itertools.product(range(1, 7), frames(family, "train")):
        options = draw_options(second.steps[:level], rng) if family == "choice" else ()
        text = proposal(second, level, frame, options)
        assert read_proposal(text, [first, second]) == (second, level, tuple(options))
        assert read_proposal(text, [first]) is None  # nobody the documents speak of
        short = ladder.Source(family, second.subject, second.steps[: level - 1])
        assert read_proposal(text, [short]) is None  # more steps than there are
        if family != "report":
            wrong = text.replace("<answer> ", "<answer> 7")
            assert read_proposal(wrong, [first, second]) is None
    assert read_proposal("<question> Why?</question><answer> 3</answer>", [first]) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_a_question_that_is_broken_over_lines_is_asked_whole_or_not_valid(family):
    rng = random.Random(2)
    source = draw_source(rng, family, 3)
    options = draw_options(source.steps, rng) if family == "choice" else ()
    text = proposal(source, 3, frames(family, "train")[0], options)
    broken = re.sub(rf"(<question>.*?) {source.subject}", rf"\1\n{source.subject}", text)
    assert broken != text
    judges = LadderSource(Params(seed=0, family=family, pay="r_zero"), CharTokenizer())
    documents = (Document("", truth=source),)
    context = LadderContext(kind=family, documents=documents, rng=rng, pool="train")
    if family == "choice":  # whose lines are its options
        assert judges.read(broken, context) == Rejected("no valid question")
    for one in (text,) if family == "choice" else (text, broken):
        found = judges.read(one, context)
        assert judges.judge(found, context).level == 3
        assert len(judges.task(found, context).info["source"].steps) >= 3


def test_a_choice_needs_four_different_options_with_the_right_count():
    source = ladder.Source("choice", "Alana", ("3", "4"))
    frame = frames("choice", "train")[0]
    assert read_proposal(proposal(source, 2, frame, ["10", "11", "7", "1"]), [source])
    for options in (["10", "10", "7", "1"], ["9", "11", "7", "1"]):
        assert read_proposal(proposal(source, 2, frame, options), [source]) is None
    steps, by_order = ("3", "4", "9"), 0
    orders = {str(counts(order)[-1]) for order in itertools.permutations(steps)}
    for seed in range(50):
        options = draw_options(steps, random.Random(seed))
        assert len(set(options)) == 4 and "29" in options
        by_order += {*options} <= orders
    assert len(orders) == 6 and by_order > 45, "what other orders come to, where they can"


def test_a_wrong_statement_cancels_a_right_one():
    golds = ("Alana first Arnford", "Alana second Belford", "Alana third Calford")
    assert grade(" ".join(golds), golds, "points") == 1.0
    assert grade(" ".join(golds[:2]), golds, "points") == pytest.approx(1 / 3)
    assert grade(" ".join(golds[:1] + golds[:0:-1]), golds, "points") == 0.0
    four = " ".join([*golds, "Alana fourth Dorford"])
    assert grade(four, golds, "points") == pytest.approx(2 / 3)
    assert grade("", golds, "points") == 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_inconsistent_answers_have_no_order(family):
    task = draw_task(family, 3, random.Random(0))
    good = reply(task, (2, 0, 1), "A")
    assert order_of(task, good) == (2, 0, 1)
    for bad in (
        "",
        good[:-9],
        good.replace(" third", " second", 1),
        good.replace("first", "sixth"),
    ):
        assert order_of(task, bad) is None


def test_rivals_have_ordinals_of_the_same_range():
    for rivals in (0, 2, 8):
        task = draw_task("journey", 4, random.Random(2), rivals=rivals)
        subject = task.info["source"].subject
        others = [text for text in task.info["documents"] if subject not in text]
        assert len(others) <= rivals and bool(others) == bool(rivals)
        for text in others:
            assert any(word in ORDINALS[:4] for word in text.replace(".", "").split())


@pytest.mark.parametrize("rivals", [0, 1])
def test_a_source_has_as_many_rivals_as_its_parameters_say(rivals):
    params = Params(seed=0, family="journey", pay="r_zero", rivals=rivals)
    task = LadderSource(params, CharTokenizer()).exercise(4, random.Random(2))
    assert len(task.info["documents"]) == 4 + rivals


def test_bad_input_is_named():
    rng = random.Random(0)
    with pytest.raises(ValueError, match="family is .novel.*choice, journey, ledger, report"):
        draw_source(rng, "novel", 3)
    with pytest.raises(ValueError, match="level is 17; allowed: 1 to 16"):
        draw_source(rng, "journey", 17)
    with pytest.raises(ValueError, match="level is 5; allowed: 1 to 4, the steps there are"):
        make_task(draw_source(rng, "journey", 4), 5, rng)
    with pytest.raises(ValueError, match="level is 0; allowed: 1 to 16"):
        draw_task("journey", 0, rng)
    assert len(NUMBERS) == len(ORDINALS) == HIGHEST
