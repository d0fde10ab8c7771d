"""Reports on groups of people: the oracle on reports by hand, wordings, the source of tasks."""

import random
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core.documents import Context, Proposal, Rejected, open_source
from spnb.core.grading import grade
from spnb.corpus.passages import SEARCHES
from spnb.lab import groups
from spnb.lab.groups import TYPES, oracle
from spnb.lab.ladder import ORDINALS

PARAMS = SimpleNamespace(
    kinds=list(TYPES), style="plain", highest=3, results=1, max_searches=5, max_length=999,
    short_items=2, eval_seed=lambda *labels: str(labels),
)  # fmt: skip


def source():
    return open_source("lab:groups", PARAMS, CharTokenizer())


def answer(*told):
    return f"<think> done</think><answer> {groups.report(told)}</answer>"


def task(kind="question", level=3, seed=0, pool="train"):
    return groups.draw_task(kind, level, random.Random(seed), pool)


def test_a_library_has_a_passage_on_everybody_and_pools_share_nobody():
    for pool in groups.POOLS:
        people = groups.everybody(pool)
        assert len(people) == 5 * len(groups.groups(pool)) and {*groups.passages(pool)} == {*people}
        for who, told in groups.passages(pool).items():
            notes = [note.split() for note in told.rstrip(".").split(". ")]
            steps = {ordinal: step for name, ordinal, step in notes if name == who}
            assert [steps[one] for one in ORDINALS[:8]] == list(people[who].steps)
            (hit,) = groups.library(pool).search([groups.query(who)], 1)[0]
            assert hit.text == told == groups.passage_of(who)
    assert not {*groups.everybody("train")} & {*groups.everybody("heldout")}


@pytest.mark.parametrize(("kind", "wanted"), [
    ("question", "A first x A second y"), ("summary", "briefly A first x A second y"),
    ("plan", "A second y A first x"), ("writing", "once A first x A second y"),
])  # fmt: skip
def test_a_type_of_task_has_its_own_form(kind, wanted):
    who = groups.Source("report", "A", ("x", "y", "z"))
    assert groups.points(kind, [who], 2) == groups.points(kind, [who, who], 2) == (wanted,)
    assert groups.is_consistent(kind, [who], 2, wanted)
    backwards = groups.section(kind, who, groups.in_order(kind, 2)[::-1])
    assert backwards != wanted and groups.is_consistent(kind, [who], 2, backwards)
    for wrong in ("A first x", wanted.replace("y", "z"), wanted.replace("A", "B"), ""):
        assert not groups.is_consistent(kind, [who], 2, wrong)


@pytest.mark.parametrize("kind", TYPES)
def test_the_oracle_takes_off_what_is_wrong_or_told_again(kind):
    """Three points: what is told, less what tells none or one again, never below 0."""
    for seed in range(30):
        one = task(kind, 3, seed)
        if len(one.gold) == 3:
            break
    first, second, third = one.gold
    who = one.info["people"][0]
    wrong = groups.section(kind, who, [0, 2, 1])
    cases = [
        ([first, second, third], 1, 1, 0, 1),
        ([first, second], 2 / 3, 2 / 3, 0, 1),
        ([first, first, second, third], 2 / 3, 1, 1 / 3, 1),
        ([wrong, first], 0, 1 / 3, 1 / 3, 1),
        ([wrong], 0, 0, 0, 1),
        ([second, "nothing"], 0, 1 / 3, 0, 0.5),
    ]
    for told, score, points, repeated, consistent in cases:
        said = oracle(one, answer(*told))
        wanted = {"score": score, "points": points, "repeated": repeated, "consistent": consistent}
        assert said == pytest.approx(wanted), told
        assert grade(groups.report(told), one.gold, "report") == pytest.approx(score)
    assert oracle(one, "no answer") == dict.fromkeys(said, 0)


def test_every_wording_is_read_and_held_out_ones_are_others():
    for kind, words in TYPES.items():
        assert not {*words["questions"]["train"]} & {*words["questions"]["heldout"]}
        for frames in words["questions"].values():
            for frame in frames:
                assert any(key in frame for key in words["keys"])
                text = groups.question(kind, ["Belana", "Cora", "Dino"], 4, frame)
                assert groups.parse(text) == (kind, ("Belana", "Cora", "Dino"), 4)
                assert groups.parse(groups.question(kind, ["they"], 4, frame)) == (kind, (), 4)
                assert groups.parse(text + " Now.") is None
                others = {"summary", "plan", "writing"} - {kind}
                assert not any(key in text for one in others for key in TYPES[one]["keys"])


def test_tasks_are_drawn_of_every_size_and_a_wrong_type_or_level_is_named():
    sizes = Counter(len(task(seed=seed).gold) for seed in range(60))
    assert set(sizes) == {3, 4, 5}
    one = task("plan", 2, 1, "heldout")
    assert one.difficulty == "level 2" and groups.parse(one.question)[0] == "plan"
    assert one.info["documents"] == tuple(map(groups.passage_of, groups.parse(one.question)[1]))
    with pytest.raises(ValueError, match="type of task is 'novel', which is unknown"):
        task("novel")
    with pytest.raises(ValueError, match="level is 9; allowed: 1 to 8"):
        task(level=9)


def test_a_document_holds_two_passages_of_a_group_and_searches_come_as_four_to_three_to_two():
    made = source()
    drawn = [made.draw(random.Random(seed), seed) for seed in range(900)]
    for context in drawn[:20]:
        names = [one.subject for one in context.documents[0].truth]
        (text,) = context.texts
        assert text.startswith(f"With {names[0]} went {', '.join(names[1:])}. ")
        assert all((groups.passage_of(who) in text) == (who in names[:2]) for who in names)
        assert {*names} <= {*groups.everybody("train")}
    counts = Counter(context.searches for context in drawn)
    assert [counts[one] / 900 for one in (1, 2, 3)] == pytest.approx(
        [4 / 9, 3 / 9, 2 / 9], abs=0.06
    )
    assert SEARCHES == {1: 4, 2: 3, 3: 2}
    assert [context.kind for context in drawn[:5]] == [*TYPES, "question"]
    prompt = made.ask(drawn[1])[0]["content"]
    assert f"Type: summary\nQueries: {drawn[1].searches}\nDocument: With" in prompt


def test_the_oracle_judges_what_a_task_is_about():
    made = source()
    context = made.draw(random.Random(1), 0)
    names = [one.subject for one in context.documents[0].truth]
    others = [who for who in groups.everybody("train") if who not in names]
    frame = TYPES["question"]["questions"]["train"][0]

    def judged(people, kind="question", level=2, text=None):
        wording = frame if kind == "question" else TYPES[kind]["questions"]["train"][0]
        text = text or groups.question(kind, people, level, wording)
        return made.judge(Proposal(text, "", kind=kind), context)

    fine = judged(names[:3])
    assert (fine.level, fine.right, fine.self_contained, fine.faithful) == (2, True, True, True)
    assert not judged(names[:2]).right and not judged([*names[:2], names[0]]).right
    assert not judged(names[:3], "plan").right, "not the type that was asked for"
    stray = judged(others[:3])
    assert (stray.right, stray.self_contained, stray.faithful) == (False, True, False)
    nobody = judged(["they"])
    assert (nobody.right, nobody.self_contained, nobody.faithful) == (False, False, False)
    assert judged(names, text="Sing a song.").level == 0
    assert not judged(names[:3], level=9).answerable, "nobody made nine stops"


def test_rubrics_and_tasks_follow_from_the_text():
    made = source()
    context = made.draw(random.Random(1), 0)
    people = context.documents[0].truth[:3]
    frame = TYPES["question"]["questions"]["train"][0]
    text = groups.question("question", [one.subject for one in people], 2, frame)
    proposal = made.read(f"<think> x</think><task> {text}</task>", context)
    assert proposal == Proposal(text, "", kind="question")
    assert made.read("<think> x</think>", context) == Rejected("no task")
    gold = groups.points("question", people, 2)
    assert made.rubric(proposal, context) == gold == made.task(proposal, context).gold
    assert made.task(proposal, context).messages[0]["content"].endswith(f"Task: {text}")
    lost = Proposal("Sing a song.", "")
    assert made.rubric(lost, context) is None and made.task(lost, context).gold == ()
    assert made.oracle(made.task(lost, context), answer("x")) == {}
    assert made.states(groups.report(["a b", "c"]), "c") and not made.states("a b", "a")
    assert made.agrees(proposal, "anything") == 0 and isinstance(context, Context)


@pytest.mark.parametrize("pool", groups.POOLS)
@pytest.mark.parametrize("number", groups.SHORT)
def test_a_short_question_asks_for_a_stop_of_each(number, pool):
    known = groups.everybody(pool)
    for seed in range(20):
        one = groups.short_task(number, random.Random(seed), pool)
        asked = re.findall(r"the (\w+) of (\w+)", one.question)
        stops = [known[who].steps[ORDINALS.index(ordinal)] for ordinal, who in asked]
        assert len(asked) == number and one.gold == (" ".join(stops),)
        assert one.info["documents"] == tuple(groups.passage_of(who) for _, who in asked)
        assert one.difficulty == groups.SHORT[number]


def test_held_out_tasks_are_of_every_type_and_level():
    tasks = source().heldout(2)
    kinds = Counter((one.info["kind"], one.info["level"]) for one in tasks)
    assert kinds == {(kind, level): 2 for kind in TYPES for level in (1, 2, 3)}
    assert all({*groups.parse(one.question)[1]} <= {*groups.everybody("heldout")} for one in tasks)
    assert [one.question for one in source().heldout(2)] == [one.question for one in tasks]
