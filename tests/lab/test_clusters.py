"""Clusters of documents: what each holds, how a proposal is read and judged, the oracle on both."""

import random
import re

import pytest
from fakes import steps_in

from spnb.core import prompts
from spnb.core.documents import Proposal, Rejected
from spnb.core.grading import grade_text
from spnb.lab import ladder
from spnb.lab.clusters import (
    LENGTH,
    TYPES,
    agrees,
    draw_cluster,
    draw_task,
    messages,
    read_proposal,
    same_meaning,
    states,
    truth,
)
from spnb.lab.ladder import WORDING, WORLDS, Source
from spnb.lab.world import names

ALANA = Source("journey", "Alana", ("Arnford", "Belford", "Calford"))
FULL = "Alana first Arnford Alana second Belford"
PAID = Source("ledger", "Alana", ("3", "4", "9"))
CHOOSE = Source("choice", "Alana", ("3", "4", "9"))


def truths(cluster):
    return [document.truth for document in cluster.documents]


def notes_of(world, pool):
    """Patterns of a world's notes."""
    texts = [re.escape(text) for text in WORDING[world]["notes"][pool]]
    return [re.sub(r"\\\{[env]\\\}", r"(\\w+)", text) for text in texts]


@pytest.mark.parametrize("family", list(TYPES))
def test_a_document_holds_all_steps_of_one_person_in_any_order(family):
    orders = set()
    for seed in range(12):
        cluster = draw_cluster(family, 5, random.Random(seed), name="c")
        assert (cluster.name, cluster.kind, len(cluster.documents)) == ("c", family, 5)
        people = [source.subject for source in truths(cluster)]
        assert len(set(people)) == 5 and set(people) <= set(names("person", "train"))
        for source, text in zip(truths(cluster), cluster.texts, strict=True):
            assert len(source.steps) == LENGTH and tuple(steps_in(text, source.subject)) == (
                source.steps
            )
            assert not any(steps_in(text, other) for other in people if other != source.subject)
            patterns = notes_of(WORLDS[family], "train")
            notes = [note for note in re.findall(r"[^.]+\.", text) if note]
            assert all(any(re.fullmatch(p, n.strip()) for p in patterns) for n in notes)
            said = re.findall("|".join(ladder.ORDINALS[:LENGTH]), text)
            orders.add(tuple(said))
    assert len(orders) > 40  # of 60 documents


def test_a_questioner_reads_a_record_and_an_answerer_notes():
    cluster = draw_cluster("journey", 2, random.Random(0))
    for document in cluster.documents:
        assert document.record == document.truth.text != document.text
        assert document.record.endswith(f"six {document.truth.steps[5]}.")
    assert draw_cluster("journey", 2, random.Random(0)) == cluster


@pytest.mark.parametrize("family", [*TYPES, "report"])
def test_a_tasks_answer_is_what_its_documents_say(family):
    for seed in range(30):
        level, count = seed % LENGTH + 1, seed % 4 + 1
        task = draw_task(family, level, random.Random(seed), "heldout", count)
        source, prompt = task.info["source"], task.messages[0]["content"]
        assert len(task.info["documents"]) == count and f"[{count}] " in prompt
        assert f"[{count + 1}] " not in prompt and task.difficulty == f"level {level}"
        steps = steps_in(" ".join(task.info["documents"]), source.subject)
        read = Source(family, source.subject, tuple(steps))
        gold = ladder.result(read, level)
        if family == "choice":
            gold = "ABCD"[task.info["options"].index(gold)]
        assert " ".join(task.gold) == gold
        assert grade_text(f"<answer> {gold}</answer>", task) == 1
        assert ladder.parse(family, task.question) == (source.subject, level)
        trained = {*names("person", "train"), *names("town", "train")}
        assert not trained & set(re.findall(r"[A-Z]\w+", prompt))


def test_notes_are_dealt_out_where_they_are_spread():
    for seed in range(10):
        task = draw_task("journey", 3, random.Random(seed), documents=4, spread=True)
        texts, source = task.info["documents"], task.info["source"]
        assert [len(re.findall(r"\.", text)) for text in texts] == [LENGTH] * 4
        assert tuple(steps_in(" ".join(texts), source.subject)) == source.steps
        holding = [text for text in texts if source.subject in text.split()]
        assert len(holding) > 1  # no document has all of a person's steps


def test_prompts_have_the_documents_or_none():
    texts = ("One.", "Two.")
    plain = Proposal("Who?", "Alana")
    assert messages("journey", plain, texts) == prompts.answer("Who?", texts, "plain")
    assert messages("journey", plain, ()) == prompts.closed("Who?")
    chosen = Proposal("Which?", "B", ("1", "2", "3", "4"))
    for documents in (texts, ()):
        (turn,) = messages("choice", chosen, documents)
        assert turn["content"].endswith("Question: Which?\n- 1 (A)\n- 2 (B)\n- 3 (C)\n- 4 (D)")
        assert ("[2] Two." in turn["content"]) == bool(documents)


# --- proposals


@pytest.mark.parametrize("family", list(TYPES))
def test_proposals_in_the_right_form_are_read(family):
    source = Source(family, "Alana", ("3", "4", "9") if family != "journey" else ALANA.steps)
    options = ("10", "11", "7", "1") if family == "choice" else ()
    frame = ladder.frames(family, "train")[0]
    read = read_proposal(ladder.proposal(source, 2, frame, options), family)
    answer = {"journey": "Arnford Belford", "ledger": "10", "choice": "A"}[family]
    assert read == Proposal(ladder.question(family, "Alana", 2, frame), answer, options, family)
    assert truth(family, read, [source]) == (2, FULL if family == "journey" else answer)


LISTED = "- 1 (A)\n- 2 (B)\n- 3 (C)\n- 4 (D)"


@pytest.mark.parametrize(
    ("family", "question", "answer", "right"),
    [
        ("journey", "Anything at all", "anything", True),  # whether it is true is not looked at
        ("journey", "Who?", " ".join(["a"] * 40), True),
        ("journey", "Who?", "", False),
        ("journey", "", "Alana", False),
        ("ledger", "How many?", "12", True),
        ("ledger", "How many?", "-1,200.5", True),
        ("ledger", "How many?", "twelve", False),
        ("ledger", "How many?", "12 or 13", False),
        ("choice", f"Which?\n{LISTED}", "B", True),
        ("choice", f"Which?\n{LISTED}", "E", False),
        ("choice", f"Which?\n{LISTED}", "2", False),
        ("choice", f"Which?\n{LISTED}", "AB", False),
        ("choice", f"Which?\n{LISTED}", "ABCD", False),
        ("choice", "Which?\n- 1 (A)\n- 2 (B)\n- 3 (C)", "B", False),
        ("choice", "Which?\n- 1 (A)\n- 2 (B)\n- 2 (C)\n- 4 (D)", "B", False),
        ("choice", "Which?\n- 1 (A)\n- 2 (C)\n- 3 (B)\n- 4 (D)", "B", False),
        ("choice", f"Which?\n{LISTED}\n- 5 (A)", "B", False),
        ("choice", f"Which?\n{LISTED}\nor none", "B", False),
        ("choice", "Which?", "B", False),
    ],
)
def test_the_form_of_a_proposal(family, question, answer, right):
    text = f"<think> hm</think><question> {question}</question><answer> {answer}</answer>"
    read = read_proposal(text, family)
    assert isinstance(read, Proposal) == right
    if right:
        assert (read.question, read.answer) == (question.split("\n")[0], answer)
        assert read.options == (("1", "2", "3", "4") if family == "choice" else ())


def test_tags_that_are_not_closed_are_no_proposal():
    nothing = Rejected("no question or no answer")
    assert read_proposal("<question> Who?</question><answer> Alana", "journey") == nothing
    assert read_proposal("<question> Who?<answer> Alana</answer>", "journey") == nothing
    assert read_proposal("Who? Alana", "journey") == nothing


@pytest.mark.parametrize(
    ("family", "answer", "stated", "rule"),
    [
        ("journey", FULL, FULL, True),
        ("journey", f"so {FULL}.", FULL, True),  # the stated answer stands in it
        ("journey", "Alana first Arnford", "Arnford", True),
        ("journey", FULL, "Arnford Belford", False),  # what the rule cannot see
        ("journey", "Arnford", FULL, False),  # never the other way round
        ("journey", None, FULL, False),
        ("ledger", "12", "12.0", True),
        ("ledger", "1001.5", "1000", True),  # within 0.15 % of the stated number
        ("ledger", "1001.6", "1000", False),
        ("ledger", "998.5", "1000", True),
        ("ledger", "-12", "12", False),
        ("ledger", "about twelve", "12", False),
        ("choice", "b.", "B", True),
        ("choice", "A", "B", False),
        ("choice", None, "B", False),
    ],
)
def test_the_rule_of_each_task_type(family, answer, stated, rule):
    assert agrees(family, answer, Proposal("?", stated, kind=family)) is rule


@pytest.mark.parametrize(
    ("answer", "stated", "same"),
    [
        (FULL, FULL, True),
        (FULL, "Arnford Belford", True),  # in full and by its steps alone
        ("Arnford Belford", FULL, True),
        ("Arnford Belford", "Arnford Belford", True),
        ("Belford Arnford", "Arnford Belford", False),
        (FULL.replace("Alana", "Belana"), FULL, False),  # of somebody else
        (FULL, "Arnford", False),
        (FULL, "Arnford Belford Calford", False),
        ("Arnford Belford Calford", "Calford", False),
        ("Calford", "Arnford Belford Calford", False),
        (f"so {FULL}", FULL, False),
        (None, FULL, False),
    ],
)
def test_a_perfect_judge_sees_what_the_rule_does_not(answer, stated, same):
    assert same_meaning("journey", answer, Proposal("?", stated, kind="journey")) is same


def test_a_perfect_judge_of_numbers_and_letters_is_the_rule():
    assert same_meaning("ledger", "1001.5", Proposal("?", "1000"))
    assert same_meaning("choice", "b", Proposal("?", "B"))
    assert not same_meaning("choice", None, Proposal("?", "B"))


def test_the_oracle_knows_a_questions_level_and_answer():
    def of(family, subject, level, *options, source=PAID):
        frame = ladder.frames(family, "heldout")[1]
        text = ladder.question(family, subject, level, frame)
        return truth(family, Proposal(text, "x", options), [source])

    assert of("ledger", "Alana", 3) == (3, "29")  # ((3) * 2 + 4) * 2 + 9
    assert of("ledger", "Alana", 4) is None  # more steps than there are
    assert of("ledger", "Belana", 3) is None  # nobody in the documents
    assert of("choice", "Alana", 2, "1", "10", "11", "7", source=CHOOSE) == (2, "B")
    assert of("choice", "Alana", 2, "1", "2", "11", "7", source=CHOOSE) is None
    assert of("journey", "Alana", 2, source=ALANA) == (2, FULL)
    assert truth("journey", Proposal("Why?", "x"), [ALANA]) is None
    assert truth("journey", Proposal("Why?", "x"), []) is None


@pytest.mark.parametrize(
    ("family", "text", "reason"),
    [
        ("ledger", "<question> ?</question><answer> many</answer>", "the answer is no number"),
        ("choice", "<question> ?</question><answer> A</answer>", "not four different options"),
        (
            "journey",
            f"<question> ?</question><answer>{41 * 'a '}</answer>",
            "the answer is too long",
        ),
        (
            "choice",
            f"<question> ?\n{LISTED}</question><answer> E</answer>",
            "the answer is no option's letter",
        ),
    ],
)
def test_why_a_proposal_is_rejected(family, text, reason):
    assert read_proposal(text, family) == Rejected(reason)


def test_a_true_answer_may_be_stated_by_its_steps_alone():
    assert states("journey", FULL, FULL) and states("journey", " Arnford  Belford", FULL)
    assert not states("journey", "Arnford", FULL) and not states("journey", "Belford", FULL)
    assert states("ledger", "29", "29") and not states("ledger", "2", "29")
    assert states("choice", "B", "B") and not states("choice", "A", "B")


def test_what_is_no_task_type_is_named():
    for family in ("report", "novel"):
        with pytest.raises(
            ValueError, match=f"task type is '{family}', which is unknown; .*choice"
        ):
            draw_cluster(family, 2, random.Random(0))
    with pytest.raises(ValueError, match="family is 'novel'"):
        draw_task("novel", 2, random.Random(0))
