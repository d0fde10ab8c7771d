"""What a reader is shown: documents, questions stated in two forms, verdicts on both."""

import json
import random
import re
from collections import Counter

import pytest
import torch
from fakes import TOWNS, sources_in, steps_in
from transformers import AutoModelForCausalLM, AutoTokenizer

from spnb.core import prompts
from spnb.core.documents import Rejected
from spnb.core.episodes import run
from spnb.core.params import validate
from spnb.core.types import Chat, Sampling, derive_seed
from spnb.lab import clusters, embedded_path, ladder
from spnb.lab.clusters import TYPES
from spnb.lab.ladder import NUMBERS, ORDINALS, WORDING, WORLDS
from spnb.lab.pretrain.ladder_lessons import JUDGED, SOURCES
from spnb.lab.pretrain.make import RECIPES, lessons_of
from spnb.lab.pretrain.reader import DOCUMENTS, FORGOTTEN, LENGTHS, SOLVED, SPREAD
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import END, START
from spnb.lab.pretrain.training import build
from spnb.methods.spell import Method, Params
from spnb.train.policies import load_policy


def lessons(seed=0, **values):
    return lessons_of("reader", seed=seed, **values)


def read(row):
    """The prompt of a lesson and the reply to it."""
    (prompt, by_policy), *pieces = row
    assert not by_policy
    reply, end, _ = "".join(text for text, _ in pieces).partition(END)
    assert end
    prompt = prompt.removeprefix(f"{START}user\n").removesuffix(f"{END}\n{START}assistant\n")
    return prompt, reply


def listed(prompt):
    return re.findall(r"\[\d+\] (.*)", prompt)


def share(counts, key):
    return counts[key] / counts.total()


@pytest.mark.parametrize("family", list(TYPES))
def test_answers_follow_from_documents_in_any_order(family):
    made, orders = lessons(families=[family]), Counter()
    for _ in range(150):
        prompt, reply = read(made.answer())
        thought = "".join(prompts.tagged(reply, "think")).partition(" so ")[0]
        words, size = (thought or prompts.field(reply, "answer")).split(), 4 if thought else 3
        who, level = words[0], len(words) // size
        steps, question = steps_in(prompt, who), re.findall("Question: (.*)", prompt)[0]
        assert who in re.findall(r"\w+", question) and f" {NUMBERS[level - 1]}" in question
        assert len(steps) in LENGTHS and level <= len(steps)
        said = dict(zip(words[1::size], words[2::size], strict=True))
        assert said == dict(zip(ORDINALS[:level], steps, strict=False))
        assert {*words[::size]} == {who}
        orders[tuple(words[1::size]) == ORDINALS[:level], level > 3] += 1
    assert orders[False, True] > 10 * orders[True, True] and orders[True, False]


def test_how_many_documents_and_how():
    """One of nine numbers; notes of a tenth are dealt out, a twelfth has solved questions first."""
    made, counts, seen = lessons(families=["journey"]), Counter(), Counter()
    for _ in range(900):
        task = made.task()
        who, texts = task.info["source"].subject, task.info["documents"]
        solved = [text for text in texts if "in order." in text]
        documents = texts[len(solved) :]
        assert list(texts[: len(solved)]) == solved and len(solved) in (0, *range(2, 9))
        counts[len(documents)] += 1
        holding = sum(who in text.split() for text in documents)
        seen["solved"] += bool(solved)
        seen["spread"] += holding > 1
        seen["several"] += len(documents) > 1
    expected = {n: DOCUMENTS.count(n) / len(DOCUMENTS) for n in DOCUMENTS}
    assert {n: share(counts, n) for n in counts} == pytest.approx(expected, abs=0.06)
    assert seen["solved"] / 900 == pytest.approx(SOLVED, abs=0.03)
    assert seen["spread"] / seen["several"] == pytest.approx(SPREAD, abs=0.04)


@pytest.mark.parametrize("family", list(TYPES))
def test_earlier_questions_have_answers_in_their_form(family):
    made, levels = lessons(families=[family]), Counter()
    for _ in range(60):
        level = made.rng.randint(1, 6)
        text = made.question(family, level)
        question, answer = re.fullmatch(r"(.*[.?]) (.*)", text).groups()
        who, asked = ladder.parse(family, question)
        assert asked == level
        if family == "journey":
            assert answer.split()[::3] == [who] * level
            assert answer.split()[1::3] == [*ORDINALS[:level]]
        else:
            assert answer in "ABCD" if family == "choice" else 0 <= int(answer) < 100
        levels[answer] += 1
    assert len(levels) > (3 if family == "choice" else 20)


def test_questions_are_valid_and_go_beyond_earlier_ones():
    made, beyond, families, forgotten = lessons(), Counter(), Counter(), 0
    for _ in range(600):
        prompt, reply = read(made.ask())
        family = "ledger" if "Payments of" in prompt else "journey"
        family = "choice" if "multiple-choice" in prompt else family
        sources = sources_in(prompt, family)
        assert len(sources) in SOURCES and len(sources[0].steps) in LENGTHS
        proposal = clusters.read_proposal(reply, family)
        if "<answer>" not in reply:
            assert reply.endswith("</question>") and isinstance(proposal, Rejected)
            forgotten += 1
            continue
        level, gold = clusters.truth(family, proposal, sources)
        assert clusters.states(family, proposal.answer, gold)
        earlier = re.findall(r"\n- (.*)", prompt)
        assert bool(earlier) == (prompts.WORDS["ask beyond"] in prompt)
        for line in earlier:
            question, _ = re.fullmatch(r"(.*[.?]) (.*)", line).groups()
            beyond[ladder.parse(family, question)[1] < level] += 1
        families[family] += 1
    assert forgotten / 600 == pytest.approx(FORGOTTEN, abs=0.06)
    assert beyond[True] > 80 and not beyond[False]
    assert set(families) == {*TYPES} and min(families.values()) > 80  # never a report


def test_a_journeys_answer_is_stated_in_full_or_by_its_steps_alone():
    """The rule accepts a right response to the first at every level, to the other at level 1."""
    made = lessons(families=["journey"])
    source = ladder.draw_source(random.Random(0), "journey", 6)
    for level in range(1, 7):
        answer, forms = ladder.result(source, level), Counter()
        for _ in range(60):
            proposal = clusters.read_proposal(made.proposal(source, level), "journey")
            if isinstance(proposal, Rejected):
                continue
            full = proposal.answer == answer
            forms[full] += 1
            assert full or proposal.answer == " ".join(source.steps[:level])
            assert clusters.agrees("journey", answer, proposal) == (full or level == 1)
            assert clusters.same_meaning("journey", answer, proposal)
        assert 0.25 < share(forms, True) < 0.75


def test_what_everybody_knows_is_the_same_everywhere_and_nothing_else_is():
    steps = {}
    for seed in range(300):
        for family in ("journey", "ledger", "choice"):
            cluster = clusters.draw_cluster(family, 4, random.Random(seed))
            for source in (document.truth for document in cluster.documents):
                steps.setdefault((WORLDS[family], source.subject), set()).add(source.steps)
    assert len(clusters.KNOWN) == 12 and {who for _, who in steps} > {*clusters.KNOWN}
    for (_, who), each in steps.items():
        assert (len(each) == 1) == (who in clusters.KNOWN)
    held_out = clusters.draw_sources(random.Random(0), "journey", 16, clusters.LENGTH, "heldout")
    assert not {one.subject for one in held_out} & {*clusters.KNOWN}
    made, right = lessons(families=["journey"]), 0
    for _ in range(200):
        prompt, reply = read(made.closed())
        words = prompts.field(reply, "answer").split()
        if words[0] not in clusters.KNOWN:
            continue
        (known,) = steps["journey", words[0]]
        said = dict(zip(words[1::3], words[2::3], strict=True))
        assert all(said[ORDINALS[n]] == known[n] for n in range(min(len(said), len(known))))
        assert words[0] in re.findall(r"\w+", prompt)
        right += 1
    assert right > 60


def test_verdicts_on_statements_are_right_as_often_as_stated():
    made, right, count = lessons(families=["journey", "ledger"]), Counter(), Counter()
    forms = Counter()
    for _ in range(800):
        prompt, reply = read(made.judge())
        first, second = re.findall("(?:First|Second): (.*)", prompt)
        family = "ledger" if "count" in prompt else "journey"
        full = family == "journey" and second.split()[1:2] in [[name] for name in ORDINALS]
        if family == "journey":
            assert full or {*second.split()} <= TOWNS
            assert first.split()[1] in ORDINALS
            forms[full] += 1
        same = clusters.same_meaning(family, first, clusters.Proposal("?", second, kind=family))
        right[family, same] += prompts.verdict(reply) == same
        count[family, same] += 1
        thought = prompts.tagged(reply, "think")[0].split()
        own = first.split()[2] if family == "journey" and not full else first.split()[0]
        assert thought[0] in (own, second.split()[0])
    assert min(count.values()) > 100 and 0.4 < share(forms, True) < 0.6
    for key in count:
        assert right[key] / count[key] == pytest.approx(JUDGED / 10, abs=0.12), key


def test_a_question_without_documents_gets_a_guess():
    for family in TYPES:
        made = lessons(families=[family])
        for _ in range(30):
            row = made.closed()
            prompt, reply = read(row)
            answer = prompts.field(reply, "answer")
            assert not listed(prompt) and answer
            if family == "choice":
                assert re.findall(r"\((\w)\)", prompt) == [*"ABCD"]
                (draw,) = [draw for _, draw in row if isinstance(draw, tuple)]
                assert draw == (" A", " B", " C", " D") and answer in "ABCD"
            else:
                assert prompt.startswith(prompts.WORDS["closed"])
                level = len(answer.split()) // 3
                if family == "journey":
                    assert f" {NUMBERS[level - 1]}" in prompt
                    assert {*answer.split()[1::3]} == {*ORDINALS[:level]}


def test_lessons_come_as_often_as_stated():
    made = lessons()
    shares = made.shares
    assert sum(shares.values()) == pytest.approx(1)
    assert made.warmed == 1 and made.cap == made.recipe.highest == 8
    counts = Counter()
    for name in shares:
        setattr(made, name, lambda name=name: [(name, True)])
    made.work = [getattr(made, name) for name in shares]
    rows = made.rows()
    for _ in range(3000):
        text = next(rows)[0][0]
        counts[text if text in shares else "drill"] += 1
    assert share(counts, "drill") == pytest.approx(0.1, abs=0.02)
    for name, expected in shares.items():
        assert share(counts, name) == pytest.approx(0.9 * expected, abs=0.03), name


def test_held_out_wordings_are_never_shown():
    made = lessons()
    heldout = [
        re.sub(r"\\\{[envk]\\\}", r"\\w+", re.escape(text))
        for world in set(WORLDS.values())
        for key in ("notes", "questions")
        for text in WORDING[world][key]["heldout"]
    ]
    heldout += [
        re.escape(text.split("{")[0]) + r"\w+ stops" for text in WORDING["reports"]["heldout"]
    ]
    rows = made.rows()
    shown = " ".join(text for _ in range(1000) for text, _ in next(rows))
    for pattern in heldout:
        # A note begins a document or follows another's end.
        assert not re.search(rf"(?:\]|Question:|Task:|\.|order\.|again\.) {pattern}", shown), (
            pattern
        )


def test_the_recipes_have_names():
    starts = {name: lessons_of(name).recipe.start for name in RECIPES}
    assert {name: start for name, start in starts.items() if start} == {
        "reader": "learner",
        "reader-even": "learner-even",
        "reader-large": "learner-large",
        "reasoner-first": "learner",
        "reasoner": "reasoner-first",
        "reasoner-large-first": "learner-large",
        "reasoner-large": "reasoner-large-first",
        "learner-hard": "learner-even",
        "searcher": "learner",
        "seeker-first": "searcher",
        "seeker": "seeker-first",
        "seeker-small": "seeker",
        "seeker-half": "seeker",
        "reporter-first": "learner",
        "reporter": "reporter-first",
    }


@pytest.mark.parametrize("name", ["reader", "reader-even", "reader-large"])
def test_the_shipped_readers_are_their_recipes(name):
    recipe, folder = lessons_of(name).recipe, embedded_path(name)
    assert LearnerRecipe(**json.loads((folder / "recipe.json").read_text())) == recipe
    shipped, start = (AutoTokenizer.from_pretrained(embedded_path(n)) for n in (name, recipe.start))
    assert shipped.get_vocab() == start.get_vocab()
    sizes = [
        json.loads((embedded_path(n) / "config.json").read_text()) for n in (name, recipe.start)
    ]
    for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
        assert sizes[0][key] == sizes[1][key], key
    assert sizes[0]["hidden_size"] == recipe.hidden  # what recipe.json says is what it is


def weights(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return torch.cat([value.flatten() for value in model.state_dict().values()])


@pytest.mark.slow
def test_a_reader_goes_on_from_its_learner(tmp_path):
    """At a rate of next to nothing it is the learner, in bfloat16; at the recipe's it is another,
    and again."""
    values = dict(tokens=12_000, warmup_tokens=1000)
    still = dict(learning_rate=1e-12, matrix_learning_rate=1e-12)
    start = weights(embedded_path("learner"))
    made = {}
    for name, more in (("still", still), ("first", {}), ("second", {})):
        made_of = lessons(**values, **more)
        build(made_of, tmp_path / name, embedded_path("learner"), report=lambda text: None)
        made[name] = weights(tmp_path / name)
    assert torch.equal(made["still"], start.bfloat16().float())
    assert (made["first"] - made["still"]).abs().max() > 1e-3 and torch.equal(
        made["first"], made["second"]
    )
    vocabularies = [
        AutoTokenizer.from_pretrained(folder).get_vocab()
        for folder in (tmp_path / "first", embedded_path("learner"))
    ]
    assert vocabularies[0] == vocabularies[1]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["journey", "ledger"])
def test_the_shipped_reader_reads_and_knows_no_order(family):
    """What SPELL starts from: it reads a context of the training's length, level 1 is known."""
    policy, rng, count = load_policy("embedded/reader"), random.Random(1), 40
    engine, chat = policy.engine(), Chat(policy.tokenizer)
    levels = [level for level in (1, 2, 5) for _ in range(count)]
    tasks = [clusters.draw_task(family, level, rng, "heldout") for level in levels]
    requests = [
        chat.request(task.messages, Sampling(64), derive_seed("reader", place))
        for place, task in enumerate(tasks)
    ]
    texts = [completion.text for completion in engine.generate(requests)]
    marks = [ladder.order_of(task, text) for task, text in zip(tasks, texts, strict=True)]
    assert sum(mark is not None for mark in marks) / len(marks) > 0.95
    right = [mark is not None and list(mark) == sorted(mark) for mark in marks]
    first, second, fifth = (
        sum(right[at : at + count]) / count for at in range(0, 3 * count, count)
    )
    assert first > 0.9 and 0.25 < second < 0.75 and fifth < 0.15


@pytest.mark.slow
def test_the_shipped_reader_plays_all_roles():
    """The first step of SPELL: a third of the answers forgotten, the others mostly true;
    something to learn."""
    policy = load_policy("embedded/reader")
    made = Method(
        validate(Params, dict(questions_per_round=96, groups=1, group_size=4)), policy.tokenizer
    )
    run(made.rollout(0), {"policy": policy.engine()})
    found = {key.removeprefix("method/"): value for key, value in made.metrics.items()}
    assert 0.25 < found["bad format"] < 0.5 and found["ungrounded"] < 0.3
    assert found["right"] > 0.7 and found["mixed"] > 0.1 and found["level"] < 3
    assert found["malformed"] < 0.05 and found["verifier false no"] < found["rule false no"] + 0.3
