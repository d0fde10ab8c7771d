"""A tiny R-Zero for tests: challenger and solver, two sets of weights trained in turn.

python tests/train/rzero.py RUN_FOLDER [EVENT]

EVENT, at which it dies without a word: a number (in the rollout of that step), row-N (after the
metrics of step N were written), move-N (after N moves of final weights), mark-N
(when the weights of stage N are written, before it is marked as done), finish (before finished.json
is written). 1:EVENT is for the process of rank 1 alone, among several.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

from spnb.core import rewards
from spnb.core.advantages import make_estimator
from spnb.core.episodes import ask_group, parallel, single_turn
from spnb.core.grading import majority_vote
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.types import derive_seed
from spnb.evaluate.items import record, share_row
from spnb.train import run as run_module
from spnb.train.runs import Run, open_run, read_run

DIE_AT = None


class Params(MethodParams):
    role_names = ("challenger", "solver")


class Method(SelfPlayMethod):
    """The challenger writes something; the solver is right where it says what most say."""

    Params = Params

    def default_roles(self):
        sampling = self.params.sampling
        return {
            name: Role(sampling, make_estimator("group_mean"), policy=name)
            for name in ("challenger", "solver")
        }

    def request(self, role, text, *seed):
        messages = [{"role": "user", "content": text}]
        one = self.roles[role]
        return self.chat.request(messages, one.sampling, derive_seed(*seed), one.policy)

    def answer(self, place, question, copy, *seed):
        request = self.request("solver", question.text, *seed, place, copy)
        return (yield from single_turn(request))

    def rollout(self, step):
        if step == DIE_AT:
            os._exit(9)
        seed = (self.params.seed, "train", step)
        requests = [self.request("challenger", "Ask.", *seed, index) for index in range(6)]
        questions = yield from parallel(*map(single_turn, requests))
        groups = yield from ask_group(
            questions, 4, lambda place, question, copy: self.answer(place, question, copy, *seed)
        )
        rows, asked = [], []
        for place, (question, answers) in enumerate(zip(questions, groups, strict=True)):
            words = [answer.policy_text[:1] for answer in answers]
            right = [float(word == majority_vote(words)) for word in words]
            asked.append(question.sample(rewards.r_zero(sum(right) / 4), "challenger", 0))
            rows += [a.sample(r, "solver", place) for a, r in zip(answers, right, strict=True)]
        return asked + rows

    def suites(self, step):
        def ask(index):
            trajectory = yield from single_turn(self.request("solver", "Ask.", "eval", index))
            return [record("first", str(index), float("1" in trajectory.text))]

        def summarise(records):
            return [share_row("first", "one", [row["score"] == 1 for row in records])]

        return [Suite("first", list(range(5)), ask, summarise)]


def make_run(root, **values):
    """The folder of a run of this method, two stages by two stages."""
    identity = {
        "paper": "rzero", "scale": "smoke", "variant": "full", "seed": 0,
        "policy": "embedded/games",
        "policies": {"challenger": "embedded/games", "solver": "embedded/games"},
        "stages": [{"policy": name, "steps": 2} for name in ("challenger", "solver") * 2],
        "steps": 8, "max_new_tokens": 6, "max_length": 64, "save_every": 1, "eval_every": 4,
        "grpo": {"learning_rate": 1e-3},
    } | values  # fmt: skip
    return open_run(Path(root), identity)


def train(run):
    """Trains the run with this method in place of the registered ones."""
    run_module.method_module = lambda paper: SimpleNamespace(Method=Method)
    run_module.method_class = lambda paper, params: Method
    return run_module.train_run(run)


def dies(*conditions):
    """A function that ends the process once the conditions hold, otherwise does nothing."""
    if all(conditions):
        os._exit(9)


def arrange(event):
    """Makes the process die at an event."""
    global DIE_AT
    name, _, number = event.partition("-")
    count = int(number or 0)
    if name.isdigit():
        DIE_AT = int(name)
    append, move, collect = Run.append, os.replace, run_module._collect_models
    write = run_module.write_json
    moves = []

    def appended(self, record, *rows):
        append(self, record, *rows)
        dies(name == "row", record == "metrics", count in [row["step"] for row in rows])

    def collected(*arguments):
        run_module.os.replace = moved
        collect(*arguments)
        dies(name == "finish")

    def moved(source, target):
        move(source, target)
        moves.append(target)
        dies(name == "move", len(moves) == count)

    def marked(path, value):
        dies(name == "mark", path.name == run_module.DONE, path.parent.name == number)
        write(path, value)

    Run.append, run_module._collect_models = appended, collected
    run_module.write_json = marked


if __name__ == "__main__":
    rank, _, event = sys.argv[-1].rpartition(":") if len(sys.argv) > 2 else ("none", "", "")
    if rank in ("", os.environ.get("RANK")):
        arrange(event)
    train(read_run(Path(sys.argv[1])))
