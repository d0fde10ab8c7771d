"""Absolute Zero with scripted policies: what is valid, what is paid, what is kept."""

import json
import re
from collections import Counter

import pytest
from spice_world import method, rows_of

from spnb.core.episodes import run
from spnb.core.method import Share
from spnb.core.types import Completion, Trajectory
from spnb.evaluate.proposals import CHALLENGES
from spnb.games import programs
from spnb.methods import absolute_zero

ZERO = {"algorithm": "absolute_zero", "pay": "absolute_zero", "corpus": [], "group_size": 6}
PROPOSED = "<program> (x * 2 + 3) * 2 + {n}</program><input> {n}</input>"
INPUTS = "<input> 1</input><input> 5</input><input> 7</input><input> 0</input>"


class Machine:
    """Proposes what `proposes(kind, index)` says; `right(index)`: whether an answer is right."""

    def __init__(self, right=lambda index: True, proposes=None, wrong="<answer> 99</answer>"):
        self.right, self.proposes, self.wrong = right, proposes or self.good, wrong
        self.proposed, self.solved = Counter(), []

    @staticmethod
    def good(kind, index):
        return INPUTS if kind == "induction" else PROPOSED.format(n=index % 10)

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, x)), (-1.0,) * len(x), x, "stop") for x in texts]

    def reply(self, prompt):
        if "Write" in prompt.partition("\n")[0] and "Answer the question" not in prompt:
            kinds = {"say what comes out": "deduction", "say what went in": "abduction"}
            kind = next((kind for words, kind in kinds.items() if words in prompt), "induction")
            self.proposed[kind] += 1
            self.prompts = [*getattr(self, "prompts", []), (kind, prompt)]
            return self.proposes(kind, self.proposed[kind] - 1)
        self.solved.append(prompt)
        if not self.right(len(self.solved) - 1):
            return self.wrong
        return f"<answer> {self.solve(prompt)}</answer>"

    @staticmethod
    def solve(prompt):
        found = dict(re.findall(r"(Program|Input|Output): (.*)", prompt))
        if "What comes out" in prompt:
            return programs.run(found["Program"], int(found["Input"]))
        if "What went in" in prompt:
            output = int(found["Output"])
            return next(x for x in range(100) if programs.run(found["Program"], x) == output)
        pairs = [tuple(map(int, pair)) for pair in re.findall(r"(\d+), output: (\d+)", prompt)]
        known = [*KNOWN, "x"]
        return next(one for one in known if all(programs.run(one, x) == y for x, y in pairs))


KNOWN = [f"(x * 2 + 3) * 2 + {n}" for n in range(10)]


def rollout(machine, step=0, made=None, **values):
    made = made or method(**ZERO | values)
    return made, run(made.rollout(step), {"policy": machine})


def test_a_third_of_the_proposals_is_of_each_kind_and_all_are_checked_by_running():
    machine = Machine()
    made, samples = rollout(machine)
    assert machine.proposed == {"deduction": 6, "abduction": 6, "induction": 6}  # 3 documents x 6
    assert len(machine.solved) == 18 * 4
    assert {one.reward for one in rows_of(samples, "reasoner")} == {1.0}
    assert {one.reward for one in rows_of(samples, "challenger")} == {0.0}  # all are right: 1 - p
    assert made.metrics["method/valid"] == made.metrics["method/success"] == 1
    kinds = Counter(one.role for one in samples)
    assert kinds["challenger", "deduction"] == 6 and kinds["reasoner", "induction"] == 24
    for kind, prompt in machine.prompts:
        if kind == "induction":  # of a program that this step has proposed
            assert prompt.partition("Program: ")[2] in KNOWN


def test_what_a_third_leaves_over_is_of_another_kind_in_each_process():
    """Of four proposals a process two are of one kind."""
    most = []
    for rank in range(3):
        made, machine = method(**ZERO | {"documents_per_step": 6, "group_size": 2}), Machine()
        made.share = Share(rank, 3)
        rollout(machine, made=made)
        assert sorted(machine.proposed.values()) == [1, 1, 2]
        most.append(max(machine.proposed, key=machine.proposed.get))
    assert most == ["induction", "abduction", "deduction"]


def test_pay_by_hand():
    """Nobody, one, three or all of four are right, in turn."""
    rights = (0, 1, 3, 4)
    machine = Machine(lambda index: index % 4 < rights[index // 4 % 4])
    made, samples = rollout(machine)
    pays = [one.reward for one in rows_of(samples, "challenger")]
    assert pays == [(0, 0.75, 0.25, 0)[n % 4] for n in range(18)]
    answers = rows_of(samples, "reasoner")
    for index, one in enumerate(answers):
        assert one.reward == (1.0 if index % 4 < rights[index // 4 % 4] else -0.5)
    assert made.metrics["method/mixed"] == pytest.approx(9 / 18)
    machine = Machine(lambda index: False, wrong="I do not know")
    _, samples = rollout(machine)
    assert {one.reward for one in rows_of(samples, "reasoner")} == {-1.0}


BAD = {
    "<program> loop(1, x)</program><input> 3</input>": -0.5,  # does not end
    "<program> x +</program><input> 3</input>": -0.5,
    "<program> 4 + 5</program><input> 3</input>": -0.5,  # does not use its input
    "<program> x</program>": -1.0,
    "<program> x</program><input> many</input>": -1.0,
    "<input> 3</input>": -1.0,
    "I cannot": -1.0,
}


@pytest.mark.parametrize("text", list(BAD))
def test_what_is_not_valid_is_paid_by_what_is_wrong_with_it(text):
    def proposes(kind, index):
        return text if kind == "deduction" else Machine.good(kind, index)

    made, samples = rollout(Machine(lambda index: index % 2, proposes))
    for one in rows_of(samples, "challenger"):
        bad = one.role[1] == "deduction"
        assert one.reward == (BAD[text] if bad else 0.5) and one.invalid == bad
    assert made.metrics["method/valid/deduction"] == 0
    assert made.metrics["method/valid"] == pytest.approx(2 / 3)


def test_an_induction_shows_half_of_its_pairs_and_checks_all():
    read = absolute_zero.read("induction", Trajectory((), policy_text=INPUTS), "x * 2 + 3")
    assert read.task.gold == ("1 5", "5 13", "7 17", "0 3")
    prompt = read.task.messages[0]["content"]
    assert "Input: 1, output: 5\nInput: 5, output: 13" in prompt and "17" not in prompt
    few = absolute_zero.read("induction", Trajectory((), policy_text=INPUTS[:40]), "x")
    assert few.task is None and few.pay == -1 and not few.readable
    again = INPUTS.replace("> 7", "> 1")  # the same input twice
    assert absolute_zero.read("induction", Trajectory((), policy_text=again), "x").task is None


def test_rows_are_compared_by_role_and_kind_and_one_answer_a_task_trains():
    rights = {"deduction": 1, "abduction": 2, "induction": 3}
    machine = Machine(lambda index: index % 4 < list(rights.values())[index // 24])
    made, samples = rollout(machine)
    made.estimate(samples)
    for kind in rights:
        rows = [one for one in rows_of(samples, "reasoner") if one.role[1] == kind]
        trained = [one for one in rows if one.weight]
        assert len(rows) == 24 and len(trained) == 6
        assert Counter(one.group for one in trained).most_common(1)[0][1] == 1
        mean = sum(one.reward for one in trained) / 6
        spread = (sum((one.reward - mean) ** 2 for one in trained) / 5) ** 0.5
        for one in trained:
            assert one.advantage == pytest.approx((one.reward - mean) / spread if spread else 0)
        assert {one.advantage for one in rows if not one.weight} == {0.0}
    made.select(samples)
    asked = [one for one in samples if one.role[0] == "challenger" and one.weight]
    assert not asked  # within a kind all proposals pay the same here


def test_programs_are_kept_for_inductions_and_references_and_survive_a_restart():
    made, _ = rollout(Machine(), references=2)
    assert made.programs == KNOWN[:6] * 2  # deductions' and abductions'
    again = method(**ZERO, references=2)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    assert again.programs == made.programs
    machine = Machine()
    rollout(machine, step=1, made=again)
    for kind, prompt in machine.prompts:
        shown = re.findall(r"\n- (.*)", prompt)
        assert len(shown) == (0 if kind == "induction" else 2) and set(shown) <= {*KNOWN}
    made.programs = ["x"] * 300
    rollout(Machine(), made=made)
    assert len(made.programs) == absolute_zero.KEPT


def test_without_programs_inductions_are_about_the_first_one():
    machine = Machine(proposes=lambda kind, index: INPUTS if kind == "induction" else "no")
    made, samples = rollout(machine)
    asked = [prompt for kind, prompt in machine.prompts if kind == "induction"]
    assert {prompt.partition("Program: ")[2] for prompt in asked} == {absolute_zero.FIRST}
    assert made.metrics["method/valid/induction"] == 1 and made.programs == []


def test_it_has_the_suites_but_no_tasks_from_documents():
    names = [suite.name for suite in method(**ZERO).suites(0)]
    assert len(names) == 8 and CHALLENGES not in names


def test_every_proposal_and_answer_has_a_seed_of_its_own():
    class Noted(Machine):
        def generate(self, requests):
            self.seeds = [*getattr(self, "seeds", []), *(one.seed for one in requests)]
            return super().generate(requests)

    machine = Noted()
    rollout(machine)
    assert len(machine.seeds) == 18 + 72 == len({*machine.seeds})
