"""Documents with results, tasks written from them, and the oracle that reads tasks back."""

import itertools
import random
import re
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core.documents import Context, Document, Judgement, Proposal
from spnb.core.grading import grade_text
from spnb.core.prompts import read_options
from spnb.lab import segments
from spnb.lab.ladder import LETTERS, NUMBERS, ORDINALS, order_of, reply
from spnb.lab.segments import (
    GRADES,
    HIGHEST,
    KINDS,
    Entry,
    challenge,
    documents,
    draw_entry,
    draw_task,
    judge,
    kinds_of,
    read_segment,
    result,
    write_task,
)
from spnb.lab.world import names

ALICE = Entry("ledger", "Alana", ("3", "4", "9"))
EVERY = [(kind, answer) for kind, one in KINDS.items() for answer in one.types]


def test_results_by_hand():
    assert result("ledger", ["3", "4", "9"]) == "29"  # 3, 2 * 3 + 4, 2 * 10 + 9
    assert result("ledger", ["9", "8", "7", "6", "5"]) == "53"  # 9, 26, 59, 124, 53
    assert result("formula", ["3", "4", "9", "1"]) == "3 + 4x + 9x^2 + 1x^3"
    assert result("code", ["K", "B", "Q"]) == "KBQ"
    assert ALICE.text == "Payments of Alana: one 3 makes 3, two 4 makes 10, three 9 makes 29."


@pytest.mark.parametrize("half", segments.HALVES)
def test_documents_state_steps_and_results_and_are_read_back(half):
    made = documents(half, 30)
    assert made == documents(half, 30) and len({row["text"] for row in made}) == 30
    for row in made:
        entries = read_segment(row["text"])
        assert [entry.text for entry in entries] == row["text"].split("\n")
        assert {KINDS[entry.family].half for entry in entries} == {half}
        assert {entry.family for entry in entries} == {row["metadata"]["kind"]}
        assert len({entry.subject for entry in entries}) == len(entries) in segments.ENTRIES
        for entry in entries:
            assert entry.subject in names("person", "train")
            assert segments.SHORTEST <= len(entry.steps) <= HIGHEST
            for level, number in enumerate(NUMBERS[: len(entry.steps)], 1):
                step, made_of = entry.steps[level - 1], result(entry.family, entry.steps[:level])
                assert f"{number} {step} makes {made_of}" in entry.text
    kinds = [row["metadata"]["kind"] for row in made]
    assert {kinds.count(kind) for kind in kinds_of(half, list(GRADES))} == {30 // len(set(kinds))}


def test_documents_are_of_kinds_that_allow_the_answers():
    assert kinds_of("math", ["choice"]) == kinds_of("math", ["integer"]) == ["ledger"]
    assert kinds_of("math", ["expression", "string"]) == ["formula"]
    assert {row["metadata"]["kind"] for row in documents("math", 6, ["choice"])} == {"ledger"}
    assert documents("general", 3, ["integer"]) == []
    with pytest.raises(ValueError, match="half of the corpus is 'maths'.*did you mean 'math'"):
        documents("maths", 1)


def generated(**values):
    params = dict(corpus=["math", "general"], task_types=["choice"], segment_tokens=999)
    params |= dict(documents=5) | values
    return segments.GeneratedSegments(SimpleNamespace(**params), CharTokenizer())


def test_halves_share_the_documents_where_they_have_any():
    assert len(generated().training) == 3 + 3, "half of five, and no half less than that"
    assert len(generated(task_types=["integer"], documents=6).training) == 3
    assert len(generated(corpus=["math"]).training) == 5


def test_what_the_oracle_cannot_read_it_does_not_judge():
    made, strange = generated(), Context("string", (Document("Ann went home."),))
    (row, *_) = documents("math", 1)
    known = Context("integer", (Document(row["text"]),))
    asked = Proposal("Why?", "7", kind="integer")
    assert made.judge(asked, strange) is made.judge(asked, Context("integer")) is None
    assert made.judge(asked, known) == Judgement(self_contained=False, faithful=False, leaks=False)


@pytest.mark.parametrize("cut_at", range(10, 60, 7))
def test_a_cut_segment_keeps_the_steps_that_it_has_from_the_first(cut_at):
    (entry,) = read_segment(ALICE.text[:cut_at]) or [Entry("ledger", "Alana", ())]
    assert entry.steps == ALICE.steps[: len(entry.steps)]
    assert len(entry.steps) == sum(cut_at >= at for at in (24, 40, 59))
    assert read_segment(ALICE.text[cut_at:]) == []  # nobody knows whose they are


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["train", "heldout"])
@pytest.mark.parametrize(("kind", "answer_type"), EVERY)
def test_the_oracles_tasks_pass_its_own_judgement(kind, answer_type, pool):
    for seed in range(40):
        rng = random.Random(seed)
        entry = draw_entry(rng, kind, HIGHEST, pool)
        level = seed % HIGHEST + 1
        written = write_task(entry, level, answer_type, rng, pool)
        judged = judge(written, [entry])
        assert (judged.level, judged.answerable) == (level, True), written
        assert judged.grade == {"ledger": "integer", "code": "exact"}.get(kind, "expression")
        assert judged.self_contained and judged.right and judged.faithful, written
        assert judged.leaks == (level == 1 or stands(written, kind)), written
        others = {"train": "heldout", "heldout": "train"}[pool]
        assert not set(re.findall(r"\w+", written.question)) & set(names("person", others))


def stands(written, kind):
    """Whether the count happens to be one of the payments."""
    text, options = read_options(written.question)
    answer = options[LETTERS.index(written.answer)] if options else written.answer
    return kind == "ledger" and answer in re.findall(r"\d+", text.partition("A count")[0])


NOTES = "Then first Alana paid 3. Alana gave third just 9. As second Alana spent 4."
RULE = KINDS["ledger"].rule
ASKED = "Give the count of Alana, payments in all: three."


def said(answer="29", notes=NOTES, asked=ASKED, rule=RULE, answer_type="integer"):
    return judge(Proposal(f"{notes} {rule} {asked}", answer, kind=answer_type), [ALICE])


def test_the_oracle_reads_any_wording():
    found = dict(self_contained=True, faithful=True, leaks=False, gold="29", grade="integer")
    assert said() == Judgement(level=3, answerable=True, right=True, **found)
    odd = "Nine towns on, Alana got second 4. 9 was third, Alana. first Alana 3."
    assert said(notes=odd, asked="Tell me, three, of Alana") == said()


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (dict(answer="30"), {"right"}),
        (dict(answer="10"), {"right"}),
        (dict(notes=NOTES[:48]), {"self_contained", "right"}),  # a note is missing
        (dict(notes=f"{NOTES} As second Alana spent 4."), {"self_contained", "right"}),  # twice
        (dict(notes=NOTES.replace("9", "8")), {"right", "faithful"}),
        (dict(notes=NOTES.replace("9", "8"), answer="28"), {"faithful"}),
        (dict(notes=NOTES.replace("first", "second")), {"self_contained", "right", "faithful"}),
        (dict(asked=ASKED.replace("three", "two")), {"self_contained", "right", "level"}),
        (dict(notes=f"{NOTES} It makes 29."), {"leaks", "faithful"}),
        (dict(notes="It is known."), {"self_contained", "right", "faithful"}),
        (dict(asked="What is it?"), {"self_contained", "right", "faithful", "level"}),
    ],
)
def test_the_oracle_names_each_fault(change, faults):
    good, judged = said(), said(**change)
    found = {
        name
        for name in ("self_contained", "right", "faithful", "leaks", "level")
        if getattr(judged, name) != getattr(good, name)
    }
    assert found == faults


def test_a_task_without_a_rule_cannot_be_read():
    nothing = Judgement(self_contained=False, faithful=False, leaks=False)
    assert said(rule="") == nothing
    leaking = Judgement(self_contained=False, leaks=True, faithful=None)
    assert judge(Proposal("Why 7?", "7", kind="integer")) == leaking


def test_an_answer_leaks_only_as_a_whole_word_and_outside_of_options():
    text = f"{NOTES} {RULE} {ASKED}"
    assert not judge(Proposal(f"{text} 129 290", "29", kind="integer")).leaks
    options = "\n- 29 (A)\n- 3 (B)\n- 5 (C)\n- 30 (D)"
    assert not judge(Proposal(text + options, "A", kind="choice")).leaks
    assert judge(Proposal(text + options, "B", kind="choice")).leaks  # 3 stands in a note
    for letter, right in zip(LETTERS, (True, False, False, False), strict=True):
        assert judge(Proposal(text + options, letter, kind="choice")).right == right
    assert not judge(Proposal(text + options, "E", kind="choice")).right


def test_an_expression_is_right_in_any_form():
    entry = Entry("formula", "Alana", ("3", "4"))
    written = write_task(entry, 2, "expression", random.Random(0))
    assert written.answer == "3 + 4x"
    for answer, right in (("4*x+3", True), ("$3+4x$", True), ("4 + 3x", False), ("3+4x+", False)):
        assert judge(Proposal(written.question, answer, kind="expression"), [entry]).right == right


def test_options_are_four_of_which_one_is_right():
    assert read_options("Why?\n- a (A)\n- b (B)") == ("Why?", ["a", "b"])
    assert read_options("Why?\n- a (B)\n- b (A)")[1] == [] == read_options("")[1]
    for marked in ("A) a\nB) b", "(A) a\n(B) b", "A. a\n\nB: b ", "- A: a\n- b (B)"):
        assert read_options(f"Why?\n{marked}") == ("Why?", ["a", "b"]), marked
    assert read_options("Why?\n- A. Smith (A)")[1] == ["A. Smith"]
    for stem in ("If x > 1\nwhy?\nOptions:", "A) why?"):
        assert read_options(f"{stem}\n**A)** a\nB. b") == (" ".join(stem.split()), ["a", "b"])
    assert read_options("Why?\nA) a\nC) b")[1] == [] == read_options("Why?\nA) a\nb")[1]
    for kind in ("ledger", "code"):
        for seed in range(60):
            steps = draw_entry(random.Random(seed), kind, 1 + seed % HIGHEST).steps
            options = segments.draw_options(kind, steps, random.Random(seed))
            assert len(options) == len(set(options)) == 4 and result(kind, steps) in options


def test_a_formula_of_one_step_has_wrong_answers_where_chance_repeats_the_right_one():
    entry = segments.Entry("formula", "Belana", ("3",))
    proposal = Proposal("q", "3", kind="expression")
    wrong = segments.misstated(proposal, entry, 1, random.Random(218))
    assert wrong.answer != "3"


@pytest.mark.slow
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(("kind", "answer_type"), EVERY)
def test_an_order_is_right_only_where_it_comes_to_the_same(kind, answer_type, reads):
    for level in (1, 2, 3, 4):
        task = draw_task(kind, answer_type, level, random.Random(level), "heldout", reads)
        entry = task.info["source"]
        for order in itertools.permutations(range(level)):
            text = reply(task, order, "A")
            taken = result(kind, [entry.steps[place] for place in order])
            assert order_of(task, text) == order
            right = taken == result(kind, entry.steps)
            guessed = answer_type == "choice" and taken not in task.info["options"]
            expected = task.gold == ("A",) if guessed else right
            assert grade_text(text, task) == expected, (order, text)


@pytest.mark.parametrize(("kind", "answer_type"), EVERY)
def test_a_closed_book_question_holds_all_notes_and_a_reader_has_documents(kind, answer_type):
    rng = random.Random(5)
    closed, read = (draw_task(kind, answer_type, 4, rng, "heldout", reads) for reads in (0, 1))
    for task, text in ((closed, closed.question), (read, read.messages[0]["content"])):
        for place, step in enumerate(task.info["source"].steps):
            noted = [s for s in re.split(r"[.\n]", text) if ORDINALS[place] in s.split()]
            assert any(re.search(rf"\b{step}\b", one) for one in noted)
    assert not any(ordinal in read.question.partition(KINDS[kind].rule)[2] for ordinal in ORDINALS)
    assert judge(Proposal(closed.question, closed.gold[0], kind=answer_type)).right
    assert not judge(Proposal(read.question, read.gold[0], kind=answer_type)).self_contained
    notes = re.findall(r"\n\[\d\] (.*)", read.messages[0]["content"])
    rivals = [note for note in notes if read.info["source"].subject not in note]
    assert (len(notes), len(rivals)) == (4 + 2, 2)


def test_inconsistent_answers_have_no_order():
    task = draw_task("ledger", "integer", 3, random.Random(0))
    good = reply(task, (2, 0, 1))
    assert order_of(task, good) == (2, 0, 1)
    for bad in ("", good[:-9], good.replace(" third", " second"), good.replace(" first", " sixth")):
        assert order_of(task, bad) is None


def test_a_challenger_states_what_the_document_has():
    written = write_task(ALICE, 2, "integer", random.Random(0))
    text = challenge(ALICE, 2, written)
    assert text.startswith("<think> Alana one 3 two 4 makes 10</think><question> ")
    assert text.endswith(f"{written.question}</question><answer> 10</answer>")
    assert "one 3 makes 3, two 4 makes 10" in ALICE.text
    chosen = write_task(ALICE, 2, "choice", random.Random(0))
    assert f"two 4 makes 10 ({chosen.answer})</think>" in challenge(ALICE, 2, chosen)


def test_bad_input_is_named():
    rng = random.Random(0)
    with pytest.raises(ValueError, match="kind of documents is 'story'.*code, formula, ledger"):
        draw_entry(rng, "story", 3)
    with pytest.raises(ValueError, match="level is 7; allowed: 1 to 6"):
        draw_entry(rng, "code", 7)
    with pytest.raises(ValueError, match="level is 4; allowed: 1 to 3, the steps there are"):
        write_task(ALICE, 4, "integer", rng)
    with pytest.raises(ValueError, match="type of answers to ledger is 'string'.*choice, integer"):
        write_task(ALICE, 1, "string", rng)
