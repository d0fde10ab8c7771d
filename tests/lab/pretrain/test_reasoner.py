"""What a reasoner is shown: consistent work in any order, valid tasks, and no held-out wording."""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import cycle, islice
from math import factorial, prod
from statistics import fmean

import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

from spnb.core import prompts
from spnb.core.grading import grade
from spnb.core.method import POLICY
from spnb.core.paths import ROOT, embedded_policies
from spnb.core.types import Chat
from spnb.games import programs
from spnb.lab import embedded_path, groups
from spnb.lab.ladder import ORDINALS, order_of
from spnb.lab.pretrain import skill_suites, skills
from spnb.lab.pretrain.build import PAD
from spnb.lab.pretrain.ladder_lessons import places_of
from spnb.lab.pretrain.make import lessons_of
from spnb.lab.pretrain.reasoner_lessons import TASKS
from spnb.lab.pretrain.recipes import TABLES, LearnerRecipe
from spnb.lab.pretrain.rows import END
from spnb.lab.pretrain.training import build
from spnb.lab.pretrain.vocabulary import reasoner_words
from spnb.lab.segments import HIGHEST, KINDS, judge, read_segment, result, suite_tasks
from spnb.lab.world import names
from spnb.methods import absolute_zero, spice_prompts
from spnb.train.engines.torch import TorchEngine
from spnb.train.plan import make_plan
from spnb.train.policies import load_policy

GATES = TABLES["gates"]
PLAY = ("games", "games-rival")
"""Those whose gates are legal moves: see test_game_skills."""


def lessons(progress=1.0, **values):
    made = lessons_of("reasoner", **values)
    made.progress = progress
    return made


def read(row):
    """The prompt of a lesson and the reply to it."""
    (prompt, by_policy), *pieces = row
    assert not by_policy
    reply, end, _ = "".join(text for text, _ in pieces).partition(END)
    assert end
    return prompt, reply


def test_answers_are_consistent_in_every_order(monkeypatch):
    made, tasks, orders, kinds = lessons(), [], Counter(), Counter()
    draw = made.task
    monkeypatch.setattr(made, "task", lambda: tasks.append(draw()) or tasks[-1])
    for _ in range(400):
        prompt, reply = read(made.answer())
        task = tasks[-1]
        order, level = order_of(task, reply), task.info["level"]
        assert order == tuple(task.info["order"])
        orders[level, order == tuple(range(level))] += 1
        kinds[task.info["source"].family, task.kind, "\n[1] " in prompt] += 1
        for place, step in enumerate(task.info["source"].steps):
            assert re.search(rf"\b{ORDINALS[place]}\b[^.]*\b{step}\b|\b{step}\b", prompt)
    assert len(kinds) == 2 * len(set(TASKS))  # each kind and type, from notes and from documents
    assert orders[5, False] > 10 * orders[5, True] and orders[2, True] > 5 < orders[2, False]


def test_drills_join_steps_and_find_letters():
    made = lessons()
    for _ in range(20):
        for (given, _), (stated, by_policy), _ in zip(*[iter(made.joined())] * 3, strict=True):
            *steps, makes = given.split()
            kind = "code" if steps[0].isalpha() else "formula"
            assert makes == "makes" and by_policy and stated == f" {result(kind, steps)}"
        row = made.options()
        assert len(row) == 4 * 13
        for at in range(0, len(row), 13):
            letters = dict(re.findall(r"- (\w+) \(([A-D])\)", row[at][0]))
            for (asked, _), (letter, _), _ in zip(*[iter(row[at + 1 : at + 13])] * 3, strict=True):
                assert letter == f" ({letters[asked.split()[1]]})"


def test_a_challengers_options_are_often_other_orders_of_a_word():
    made, orders = lessons(), 0
    for _ in range(100):
        options = made.around("code", "KBQRS", 5)
        assert len({*options}) == 4 and "KBQRS" in options
        orders += sum(sorted(one) == sorted("KBQRS") for one in options) - 1
    assert 0.35 < orders / 300 < 0.65


def test_orders_are_drawn_among_the_ordinals_that_are_left():
    made = lessons()
    for _ in range(50):
        left = None
        for text, draw in made.answer()[1:]:
            if isinstance(draw, tuple) and text.strip() in ORDINALS:
                assert text in draw and (left is None or set(draw) == left)
                left = set(draw) - {text}


@pytest.mark.slow
def test_tasks_from_segments_pass_the_oracle_and_are_mostly_easy():
    made, levels, types = lessons(), Counter(), Counter()
    for lesson in [made.challenge] * 300 + [made.word] * 60:
        prompt, reply = read(lesson())
        answer_type = type_of(prompt)
        entries = read_segment(prompt.partition("\n")[2].partition("\n")[2].partition(END)[0])
        written = spice_prompts.read_task("plain", reply, answer_type)
        judged = judge(written, entries)
        assert judged.self_contained and judged.right and judged.faithful, reply
        thought = prompts.tagged(reply, "think")[0].split()
        assert len(thought) >= 2 + 2 * judged.level and "makes" in thought
        types[answer_type] += 1
        levels[judged.level] += lesson == made.challenge
    shares = [levels[level] / levels.total() for level in range(1, HIGHEST + 1)]
    assert shares[0] == pytest.approx(0.5, abs=0.08) and shares[1] == pytest.approx(0.25, abs=0.08)
    assert shares[4] > 0 and len(types) == 4


def type_of(prompt):
    wanted = spice_prompts.WANTED.items()
    return next(answer for answer, words_ in wanted if f"Write {words_}" in prompt)


@pytest.mark.slow
def test_tasks_from_nothing_are_right_by_chance():
    """Level 1 always, level 2 in half of the cases, from level 4 on hardly ever."""
    made, right = lessons(), Counter()
    for _ in range(600):
        prompt, reply = read(made.alone())
        assert "ocument" not in prompt
        judged = judge(spice_prompts.read_task("plain", reply, type_of(prompt)))
        assert judged.self_contained
        right[judged.level, judged.right] += 1
    share = {n: right[n, True] / (right[n, True] + right[n, False]) for n in (1, 2, 4)}
    assert share[1] == 1 and 0.35 < share[2] < 0.65 and share[4] < 0.3


def test_programs_and_what_comes_out():
    made, right = lessons(), Counter()
    for _ in range(200):
        prompt, reply = read(made.propose())
        kind = "induction" if "Program: " in prompt else "deduction"
        program = prompt.partition("Program: ")[2].partition("<")[0]
        trajectory = type("Text", (), {"policy_text": reply})()
        assert absolute_zero.read(kind, trajectory, program).task is not None
        prompt, reply = read(made.deduce())
        program, x = re.findall(r"(?:Program|Input): ([^\n<]*)", prompt)
        level = program.count("* 2")
        values = [int(v) for v in prompts.tagged(reply, "think")[0].split()[2::3]]
        assert len(values) == level and prompts.field(reply, "answer") == str(values[-1])
        right["deduce", level] += programs.run(program, int(x)) == values[-1]
        prompt, reply = read(made.abduce())
        program, output = re.findall(r"(?:Program|Output): ([^\n<]*)", prompt)
        said = prompts.field(reply, "answer")
        right["abduce", 0] += grade(said, (program, output), "input")
        prompt, reply = read(made.induce())
        pairs = [" ".join(pair) for pair in re.findall(r"Input: (\d+), output: (\d+)", prompt)]
        right["induce", 0] += grade(prompts.field(reply, "answer"), pairs, "program")
    assert right["deduce", 6] < 5 < right["deduce", 1]
    assert 80 < right["abduce", 0] < 160 and 80 < right["induce", 0] < 140


def test_no_held_out_wording_is_shown():
    held_out = {places_of(text) for kind in KINDS.values() for text in kind.notes["heldout"]}
    made = lessons()
    for kind in KINDS:
        for _ in range(100):
            assert not {places_of(text) for text in made.wordings(kind)} & held_out
        frames = [made.question_of(entry_of(kind), 2, []) for _ in range(100)]
        for text in KINDS[kind].questions["heldout"]:
            assert not any(frame.endswith(text.format(e="Alana", k="two")) for frame in frames)


def entry_of(kind):
    return read_segment(f"{KINDS[kind].title.format(e='Alana')}: {STATED[kind]}.")[0]


STATED = {
    "ledger": "one 3 makes 3, two 4 makes 10",
    "formula": "one 3 makes 3, two 4 makes 3 + 4x",
    "code": "one K makes K, two L makes KL",
}


def test_levels_grow_and_drills_become_rare():
    early, late = lessons(progress=0.0), lessons(progress=1.0)
    assert (early.cap, late.cap) == (2, HIGHEST)
    counts = [
        sum(END not in "".join(text for text, _ in row) for row in itertools.islice(m.rows(), 400))
        for m in (early, late)
    ]
    assert counts[0] > 180 and counts[1] < 120  # a tenth, and lists of options


def test_words_of_the_world_are_one_token_each():
    tokenizer = lessons().tokenizer()
    for word in reasoner_words():
        assert len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) == 1, word
    made = lessons()
    for row in itertools.islice(made.rows(), 300):
        text = "".join(piece for piece, _ in row)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text and len(ids) < 300


@pytest.mark.parametrize("name", ["reasoner", "reasoner-large"])
def test_the_shipped_reasoners_are_their_recipes(name):
    made, folder = lessons_of(name), embedded_path(name)
    assert LearnerRecipe(**json.loads((folder / "recipe.json").read_text())) == made.recipe
    shipped = AutoTokenizer.from_pretrained(folder)
    assert shipped.get_vocab() == made.tokenizer().get_vocab()
    assert (shipped.pad_token, shipped.eos_token) == (PAD, END)


@pytest.mark.parametrize("name", ["learner", "learner-large"])
def test_it_goes_on_from_a_learner_with_tokens_of_its_own(name):
    start = load_policy(f"embedded/{name}")
    old, model = start.tokenizer, start.model
    before = model.get_input_embeddings().weight.detach().clone()
    body = model.model.layers[1].mlp.up_proj.weight.detach().clone()
    model, new = lessons().go_on(model, old)
    after = model.get_input_embeddings().weight.detach()
    assert new.get_vocab() == lessons().tokenizer().get_vocab()
    assert len(after) == len(new) == model.config.vocab_size
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, body)
    for text in (" first", " 17", " Oseric", "<think>"):
        ids = [one(text, add_special_tokens=False)["input_ids"] for one in (old, new)]
        assert torch.equal(before[ids[0][0]], after[ids[1][0]]) and len(ids[1]) == 1, text
    people = [f" {person}" for person in names("person", "train")]
    alike = before[[old(who, add_special_tokens=False)["input_ids"][0] for who in people]]
    fresh = [f" {step}" for step in KINDS["code"].steps]
    known = {old.decode([place]) for place in range(len(old))}
    fresh = [new(s, add_special_tokens=False)["input_ids"][0] for s in fresh if s not in known]
    away = [(one - alike.mean(0)).norm() for one in (*alike, *after[fresh])]
    people_away, fresh_away = away[: len(people)], away[len(people) :]
    assert 0.5 * min(people_away) < min(fresh_away) and max(fresh_away) < 2 * max(people_away)
    assert lessons().go_on(model, new) == (model, new), "a reasoner is as it is"


@pytest.mark.slow
def test_the_shipped_reasoner_writes_valid_tasks_and_knows_no_order():
    policy = load_policy("embedded/reasoner")
    engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
    chat = Chat(policy.tokenizer)
    tasks = suite_tasks("string", 60)
    suite = skill_suites.answers("string", chat, tasks, order_of, "reasoner")
    table = skill_suites.measure(engine, [suite])
    assert table["parsed"].mean() > 0.9
    share = table["value"].tolist()
    assert share[0] > 0.9 and 0.3 < share[1] < 0.7 and 0.03 < share[2] < 0.4
    assert max(share[4:]) < 0.1
    written = skill_suites.measure(engine, [skills.challenges(chat, "string", 100, grounded=True)])
    share = written.set_index("part")["value"]
    assert share["valid"] > 0.9 and 0.35 < share["asks level 1"] < 0.65


def test_every_shipped_policy_has_gates():
    assert sorted(GATES) == sorted(embedded_policies())


def up_to_the_highest_gate(suite, gates, items):
    """A suite that goes level by level, without the levels that have no gate."""
    levels = [int(part.split()[1]) for part in gates if re.fullmatch(r"level \d+", part)]
    whole = len(levels) < len(gates)
    return suite if whole else replace(suite, parts=suite.parts[: items * max(levels)])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GATES if name not in PLAY])
def test_the_shipped_policies_reach_their_gates(name):
    policy = load_policy(f"embedded/{name}")
    engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
    close = {"reporter": 100, "reasoner": 200, "searcher": 200, "seeker-half": 200}
    items = close.get(name, 50)  # those are close to their gates
    suites = [
        up_to_the_highest_gate(suite, GATES[name][suite.name], items)
        for suite in skills.skills_of(name, Chat(policy.tokenizer), items)
        if suite.name in GATES[name]
    ]
    table = skill_suites.measure(engine, suites)
    value = table.set_index(["benchmark", "part"])["value"]
    for suite, parts in GATES[name].items():
        for part, least in parts.items():
            assert value[suite, part] >= least, (suite, part)


@pytest.mark.parametrize(("arm", "chance"), TABLES["chance_hits"].items())
def test_what_chance_gives_of_the_hardest_level(arm, chance):
    """Points by luck, by type of task where there are several. A ladder has less than .3 in a run;
    the four that have more are named as such."""
    paper, variant = arm.split("/")
    params = make_plan(paper, "cpu", variants=[variant]).params(variant)
    answers = prod(
        name if isinstance(name, int) else getattr(params, name) for name in chance["answers"]
    )
    if stages := getattr(params, "stages", []):
        assert chance["answers"][0] == sum(s.steps for s in stages if s.policy == POLICY)
    points = answers * chance.get("points", 1) / factorial(chance["level"])
    expected = chance["expected"]
    if "consistent" in chance:
        kinds = Counter(islice(cycle(params.kinds), params.tasks_per_step))
        shares = {kind: n / params.tasks_per_step for kind, n in kinds.items()}
        hits = {kind: points * shares[kind] * chance["consistent"][kind] for kind in shares}
        assert hits == pytest.approx(expected, rel=0.02)
        expected = points = sum(hits.values())
    assert points == pytest.approx(expected, rel=0.05)
    above = {"spell/full", "spice/full", "rlvr/chain-even", "scope/six"}
    assert (points > 0.3) == (arm in above)


def test_the_points_of_a_report_by_luck_are_of_the_start_that_was_measured():
    chance = TABLES["chance_hits"]["scope/full"]
    start = pd.read_csv(ROOT / "figures/scope/start.csv").set_index("skill")
    for kind, share in chance["consistent"].items():
        highest = start.loc[f"report {kind}: consistent", str(chance["level"])]
        assert highest == pytest.approx(100 * share), kind
    assert chance["points"] == fmean(range(groups.FEWEST, groups.SIZE + 1))
    assert chance["level"] == groups.HIGHEST


@pytest.mark.slow
def test_a_tiny_reasoner_is_built_and_the_same_again(tmp_path):
    size = dict(hidden=32, layers=2, heads=2, feed_forward=64, tokens=20_000, warmup_tokens=1000)
    for name in ("first", "second"):
        build(lessons(**size), tmp_path / name, report=lambda text: None)
    first, second = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("first", "second"))
    assert first == second
