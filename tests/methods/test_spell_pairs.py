"""Preference pairs of LongPO and SoLoPO with scripted answers."""

import re
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core.episodes import run
from spnb.core.grading import grade_text
from spnb.core.method import Share
from spnb.core.params import validate
from spnb.core.types import Completion, Task
from spnb.lab.ladder import reply
from spnb.methods.spell import Method, Params
from spnb.methods.spell_pairs import pick

SMALL = dict(
    question_source="static",
    judgments_per_answer=0,
    static_questions=12,
    documents=3,
    group_size=4,
    groups=2,
)


class Scripted:
    """Answers with `say(task, number of documents, index of the request)`."""

    def __init__(self, tasks, say):
        self.tasks, self.say, self.requests = tasks, say, []

    def generate(self, requests):
        answers = []
        for request in requests:
            prompt = text_of(request.prompt_ids)
            (task,) = [one for one in self.tasks if one.question in prompt]
            text, finish = self.say(task, len(re.findall(r"^\[\d+\]", prompt, re.M)), len(answers))
            self.requests.append(request)
            answers.append(Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, finish))
        return answers


def text_of(ids):
    return "".join(map(chr, ids))


def method(**values):
    return Method(validate(Params, SMALL | values), CharTokenizer())


def pairs_of(one, say, attempt=0):
    engine = Scripted(one.static[0], say)
    return run(one.pairs(attempt), {"policy": engine}), engine


def right(task):
    return reply(task, tuple(range(task.info["level"])))


def test_longpo_prefers_the_answer_from_the_short_context():
    one = method(alignment="longpo", roles={"responder": {"temperature": 0}})
    pairs, engine = pairs_of(one, lambda task, documents, _: (f"from {documents}", "stop"))
    assert len(pairs) == 12 and len(engine.requests) == 24
    assert all(request.sampling.temperature == 0 for request in engine.requests)
    for pair, task in zip(pairs, one.static[0], strict=True):
        assert text_of(pair.chosen_ids) == "from 1" and text_of(pair.rejected_ids) == "from 3"
        short, long = text_of(pair.short_ids), text_of(pair.long_ids)
        assert task.question in short and task.question in long
        context = one.static_question(task).context
        (document,) = [context.texts[place] for place in context.places]
        others = [text for text in task.info["documents"] if text != document]
        assert task.info["source"].subject in document and document in short and document in long
        assert all(text in long and text not in short for text in others) and len(others) == 2
        assert long == task.messages[-1]["content"] and pair.rewards == (0.0, 0.0)


def test_longpo_drops_a_chosen_answer_that_was_cut():
    one = method(alignment="longpo")
    first = one.static[0][0]

    def say(task, documents, _):
        cut = task is first and documents == 1 or task is one.static[0][1] and documents == 3
        return "so", "length" if cut else "stop"

    pairs, _ = pairs_of(one, say)
    assert len(pairs) == 11
    assert not any(first.question in text_of(pair.long_ids) for pair in pairs)


def test_an_answer_that_nobody_could_be_asked_for_is_in_no_pair():
    """The model has room for the short context alone."""
    one = method(alignment="longpo")
    pairs, _ = pairs_of(one, lambda _, documents, __: ("so" * (documents == 1), "stop"))
    assert pairs == []


def test_solopo_takes_the_first_right_and_the_first_wrong_answer_from_the_short_context():
    one = method(alignment="solopo")
    never, always = one.static[0][:2]

    def say(task, documents, index):
        assert documents == 1
        wrong = f"<answer> wrong {index % 4}</answer>"
        if task in (never, always):
            return (right(task) if task is always else wrong), "stop"
        return (right(task) if index % 4 in (1, 3) else wrong), "stop"

    pairs, engine = pairs_of(one, say)
    assert len(engine.requests) == 12 * 4 and len(pairs) == 10  # two questions give none
    for pair, task in zip(pairs, one.static[0][2:], strict=True):
        assert grade_text(text_of(pair.chosen_ids), task) == 1.0 and pair.rewards == (1.0, 0.0)
        assert text_of(pair.rejected_ids) == "<answer> wrong 0</answer>"


def test_the_judge_decides_which_answer_is_right():
    one = method()
    task = next(task for task in one.static[0] if task.info["family"] == "journey")
    question = one.static_question(task)
    question.answers = [SimpleNamespace(policy_text=f"<answer> {task.gold[0]} perhaps</answer>")]
    for judge, rewards in (("rule", [1.0]), ("oracle", [0.0])):  # the true answer stands in it
        question.settle(one.params.model_copy(update={"judge": judge}), one.source)
        assert question.rewards == rewards


def test_a_pair_needs_two_rewards():
    answers = [SimpleNamespace(finish="stop")] * 3
    assert pick("solopo", answers, [0.0, 1.0, 0.0]) == (1, 0)
    assert pick("solopo", answers, [1.0, 1.0, 1.0]) is None
    assert pick("longpo", answers[:2], [0.0, 1.0]) == (0, 1)


@pytest.mark.parametrize("alignment", ["longpo", "solopo"])
def test_pairs_depend_on_the_seed_alone_and_processes_share_them(alignment):
    def seeds(rank=0, processes=1, attempt=0, **values):
        one = method(alignment=alignment, **values)
        one.share = Share(rank, processes)
        _, engine = pairs_of(one, lambda task, *_: ("x", "stop"), attempt)
        return [(request.prompt_ids, request.seed) for request in engine.requests]

    assert seeds() == seeds()
    assert len({seed for _, seed in seeds()}) == len(seeds())
    parts = [seeds(rank, 2) for rank in range(2)]
    assert {prompt for part in parts for prompt, _ in part} == {prompt for prompt, _ in seeds()}
    assert not {seed for _, seed in parts[0]} & {seed for _, seed in parts[1]}
    first, second = seeds(attempt=1), seeds(attempt=2)
    assert [ids for ids, _ in first] == [ids for ids, _ in second] == [ids for ids, _ in seeds()]
    assert len({seed for _, seed in (*seeds(), *first, *second)}) == 3 * len(seeds())
    assert not seeds(attempt=1, roles={"responder": {"temperature": 0}})  # the same answers again
    other = method(alignment=alignment, seed=1).static[0]
    assert isinstance(other[0], Task) and other != method(alignment=alignment).static[0]
