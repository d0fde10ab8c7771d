"""RLVR with scripted answers: rewards, advantages, the control, held-out questions, search, a whole
run."""

import json
import random
import re
from collections import Counter

import pytest
from fakes import CharTokenizer, step_of

from spnb.core.grading import grade_text
from spnb.core.method import Share
from spnb.core.params import ParamError, validate
from spnb.core.types import Completion, Sample, Trajectory, derive_seed
from spnb.evaluate.items import play_suite
from spnb.lab import ladder
from spnb.lab.chain import CHAIN as CHAINS_OF_PEOPLE
from spnb.lab.ladder_suites import library
from spnb.lab.world import names
from spnb.methods.rlvr import Method, Params, behaviour
from spnb.train.engines.torch import TorchEngine
from spnb.train.guards import token_logps
from spnb.train.plan import make_plan, run_one

SMALL = dict(prompts_per_step=3, group_size=4, eval_items=6)


LADDER = dict(family="journey", mix=[1, 0, 2])
CHAIN = dict(family="chain", max_length=4000)


class Reader:
    """Answers with `choose(question, documents' text, index of the request)`; keeps what it was
    asked."""

    def __init__(self, choose):
        self.choose, self.requests = choose, []

    def generate(self, requests):
        answers = []
        for request in requests:
            prompt = "".join(map(chr, request.prompt_ids))
            question = re.findall(r"Question: (.*)", prompt)[-1]
            text = self.choose(question, prompt, len(self.requests))
            self.requests.append(request)
            answers.append(Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop"))
        return answers


def facts(question, prompt):
    """The steps of a question of the ladder, in order, as the notes state them."""
    who, level = ladder.parse("journey", question)
    notes = [set(re.findall(r"\w+", line)) for line in re.findall(r"\[\d+\] (.*)", prompt)]
    towns = {*names("town", "train"), *names("town", "heldout")}
    found = []
    for ordinal in ladder.ORDINALS[:level]:
        (words,) = [words for words in notes if {who, ordinal} <= words]
        found.append(f"{who} {ordinal} {next(iter(words & towns))}")
    return found


def right(question, prompt, index):
    return f"<answer> {' '.join(facts(question, prompt))}</answer>"


def every_second(question, prompt, index):
    return (
        right(question, prompt, index)
        if index % 2
        else "<think> hm</think><answer> Nobody</answer>"
    )


def first_group_only(question, prompt, index):
    return right(question, prompt, index) if index % 4 == 0 and index < 4 else "no answer"


def method(**values):
    return Method(Params(**{**SMALL, **values}), CharTokenizer())


def collect(choose, step=0, share=None, **values):
    fresh = method(**values)
    fresh.share = share or Share()
    return step_of(fresh, Reader(choose), step), fresh.metrics


def evaluated(variant, engine, step=0):
    suites = variant.suites(step)
    return [row for suite in suites for row in play_suite(suite, {"policy": engine})[1]]


def test_a_right_answer_is_rewarded_and_compared_within_its_question():
    rows, found = collect(every_second)
    assert len(rows) == 12 and Counter(row.group for row in rows) == {0: 4, 1: 4, 2: 4}
    # Two of four right: mean 0.5, sample deviation sqrt(4 * 0.25 / 3) = 0.57735, z = 0.866.
    for index, row in enumerate(rows):
        assert row.reward == index % 2 and row.advantage == pytest.approx(
            0.8660254 * (1 if index % 2 else -1)
        )
        assert (
            row.role == "ladder" and row.info["gold"] and not row.invalid and set(row.mask) == {1}
        )
    shares = {"accuracy": 0.5, "mixed": 1, "parsed": 1, "thinks": 0.5, "searches": 0}
    assert found == {f"method/{key}": value for key, value in shares.items()}


def test_rows_without_an_advantage_are_not_trained_and_the_rest_weighted():
    """One of four right: mean 0.25, deviation 0.5, z = 1.5 and -0.5; 4 of 12 rows stay, so 1/3."""
    rows, found = collect(first_group_only)
    assert [row.advantage for row in rows] == pytest.approx([1.5, -0.5, -0.5, -0.5] + [0] * 8)
    assert [row.weight for row in rows] == pytest.approx([1 / 3] * 4 + [0] * 8)
    assert [row.invalid for row in rows[:4]] == [False, True, True, True]
    assert found["method/accuracy"] == pytest.approx(1 / 12)
    assert found["method/mixed"] == pytest.approx(1 / 3)
    for grpo in ({"beta": 0.1}, {"loss_type": "dapo"}):
        rows, _ = collect(first_group_only, grpo=grpo)
        assert len(rows) == 12 and {row.weight for row in rows} == {1}
    assert {row.weight for row in collect(right)[0]} == {0}


def test_a_thought_without_an_end_is_none_and_a_documents_answer_is_not_the_policys():
    for said in ("<think> hm", "hm"):
        trajectory = Trajectory((1,), searches=["x"])
        trajectory.append_policy(Completion((2,), (-1.0,), said, "stop"))
        trajectory.append_observation((3,), "<answer> x</answer>")
        assert behaviour(trajectory) == {"parsed": False, "thinks": False, "searches": True}


def test_prompts_are_shared_by_the_processes():
    """4 and 3 of 7 questions, none of them twice."""
    parts = [collect(right, share=Share(rank, 2), prompts_per_step=7)[0] for rank in range(2)]
    assert [len(rows) for rows in parts] == [16, 12]
    first, second = ({row.prompt_ids for row in rows} for rows in parts)
    assert not first & second and len(first | second) == 7


def test_the_control_permutes_the_rewards_of_the_step():
    keep = dict(prompts_per_step=16, roles={"solver": {"estimator": "raw"}})
    rows, found = collect(every_second, reward="random", **keep)
    plain, _ = collect(every_second, **keep)
    assert (
        Counter(row.reward for row in rows)
        == Counter(row.reward for row in plain)
        == {0: 32, 1: 32}
    )
    assert [row.reward for row in rows] != [row.reward for row in plain]
    assert found["method/accuracy"] == 0.5  # what the policy can do, not what it is paid
    per_group = [sum(row.reward for row in rows if row.group == group) for group in range(16)]
    assert len(set(per_group)) > 1  # a group's mean is not kept
    assert [row.reward for row in collect(every_second, reward="random", **keep)[0]] == [
        row.reward for row in rows
    ]


def test_questions_are_fixed_by_seed_step_and_rank():
    def prompts(**values):
        return {row.prompt_ids for row in collect(every_second, **values)[0]}

    first = prompts()
    others = ({"step": 1}, {"share": Share(1, 1)}, {"seed": 1})
    assert first == prompts() and len(first) == 3
    assert all(not first & prompts(**other) for other in others)


def test_each_held_out_mix_has_questions_of_its_own():
    engine = Reader(right)
    evaluated(method(mix=[1], transfer=[1]), engine)
    counts = Counter(request.prompt_ids for request in engine.requests)
    assert len(counts) == 2 * 6 and {*counts.values()} == {2}, "sampled and greedy"


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (dict(family="journey"), "You may write down the facts"),
        (dict(family="ledger"), "You may write down the facts"),
        (dict(family="choice"), r"Choose the option(.|\n)*\(D\)"),
        (dict(family="report"), "Do the task"),
        (dict(family="chain"), "You can query a library"),
    ],
)
def test_each_family_has_its_prompt_and_the_rule_knows_its_answer(values, pattern):
    fresh = method(mix=[1, 1, 1], **values)
    drawn = fresh.draw(20, random.Random(0))
    for task in drawn:
        content, answer = task.messages[0]["content"], " ".join(task.gold)
        assert re.search(pattern, content) and task.question in content
        assert grade_text(f"<answer> {answer}</answer>", task) == 1
        assert grade_text("<answer> Nobody</answer>", task) == grade_text(answer, task) == 0
    assert {task.difficulty for task in drawn} == {"level 1", "level 2", "level 3"}


def test_held_out_questions_share_no_name_and_no_wording_with_training_and_no_seed_with_the_run():
    known = {name for kind in ("person", "town") for name in names(kind, "train")}
    frames = [ladder.frames("journey", pool) for pool in ("train", "heldout")]
    requests = []
    for seed in (0, 1):
        engine, variant = Reader(right), method(seed=seed, mix=[1], transfer=[0, 0, 1])
        rows = evaluated(variant, engine, step=7 * seed)
        requests.append(engine.requests)
    assert requests[0] == requests[1] and len(requests[0]) == 6 * 4
    prompts = ["".join(map(chr, request.prompt_ids)) for request in requests[0]]
    assert not any(word.strip(".?") in known for prompt in prompts for word in prompt.split())
    openings = {frame.split("{")[0] for frame in frames[1]}
    assert all(any(opening in prompt for opening in openings) for prompt in prompts)
    samplings = {request.sampling.temperature for request in engine.requests}
    assert samplings == {0.0, 1.0}
    labels = ("suite", "decoding", "difficulty", "metric")
    value = {tuple(row[key] for key in labels): (row["value"], row["n"]) for row in rows}
    arms = {(a, b) for a in ("held-out", "transfer") for b in ("sampled", "greedy")}
    assert {key[:2] for key in value} == arms
    for suite, decoding in (("held-out", "greedy"), ("transfer", "sampled")):
        assert value[suite, decoding, "", "accuracy"] == (1, 6)
    assert value["held-out", "greedy", "", "thinks"] == (0, 6)
    asked = [re.findall(r"Question: (.*)", prompt)[-1].split("<")[0] for prompt in prompts]
    levels = [ladder.parse("journey", question)[1] for question in asked]
    assert levels == [1] * 12 + [3] * 12


def test_accuracy_by_level_and_wilsons_bounds():
    def half(question, prompt, index):
        found = facts(question, prompt)
        return f"<answer> {found[0]}</answer>"

    rows = evaluated(method(mix=[1, 1], transfer=[1], eval_items=10), Reader(half))
    value = {
        row["difficulty"]: row
        for row in rows
        if (row["suite"], row["decoding"], row["metric"]) == ("held-out", "greedy", "accuracy")
    }
    assert (value["level 1"]["value"], value["level 2"]["value"]) == (1, 0)
    share, n = value[""]["value"], value[""]["n"]
    assert n == 10 and share * 10 == value["level 1"]["n"]
    # Wilson: the middle (p + z^2 / 2n) / (1 + z^2 / n), half the width z sqrt(...) / (1 + z^2 / n).
    z = 1.959964
    middle = (share + z * z / 20) / (1 + z * z / 10)
    width = z * (share * (1 - share) / 10 + z * z / 400) ** 0.5 / (1 + z * z / 10)
    bounds = (value[""]["low"], value[""]["high"])
    assert bounds == pytest.approx((middle - width, middle + width), abs=1e-4)


def in_order(question, prompt, index):
    """The steps of a question in order; reversed from the third step on."""
    found = facts(question, prompt)
    return f"<answer> {' '.join(found if len(found) < 3 else found[::-1])}</answer>"


def test_the_ladder_is_drawn_by_its_mix_and_graded_by_level():
    rows, found = collect(in_order, **LADDER, prompts_per_step=60)
    levels = Counter(len(row.info["gold"].split()) // 3 for row in rows[::4])
    assert set(levels) == {1, 3} and 30 < levels[3] < 50  # two thirds of 60
    assert found["method/accuracy"] == pytest.approx(levels[1] / 60)
    variant = method(**LADDER, eval_items=2)
    (suite,) = variant.suites(0)
    _, scores = play_suite(suite, {"policy": Reader(in_order)})
    scores = {row["difficulty"]: row["value"] for row in scores if row["metric"] == "accuracy"}
    assert scores["level 1"] == scores["level 2"] == 1 and scores["level 3"] == 0


def follow(question, prompt, index):
    """The next search of a chain, or its answer; from the third step on it stops after one."""
    start, relations = CHAINS_OF_PEOPLE.parse(question.partition("?")[0] + "?")
    stated = re.findall(r"The (\w+) of (\w+) is (\w+)\.", prompt)
    links = {(relation, person): other for relation, person, other in stated}
    person, left = start, list(relations)
    while left and (left[0], person) in links:
        person = links[left.pop(0), person]
    if not left or (len(relations) > 2 and len(left) < len(relations)):
        return f"<answer> {person}</answer>"
    return f"<search> {CHAINS_OF_PEOPLE.query(left[0], person)}</search>"


def test_the_chain_is_answered_by_search():
    rows, found = collect(follow, **CHAIN, mix=[0, 1, 1], prompts_per_step=30)
    assert found["method/searches"] == 1 and found["method/thinks"] == 0
    levels = Counter(len(row.info["searches"]) for row in rows[::4])
    assert set(levels) == {1, 2}  # two steps, or given up after one of three
    right = found["method/accuracy"] - levels[2] / 30
    assert 0 <= right < 0.1  # who stops early may meet the right person
    outside = [chr(i) for i, m in zip(rows[0].completion_ids, rows[0].mask, strict=True) if not m]
    assert re.fullmatch(
        r"(\n<information>\n(\[\d\] The .*\n){2}</information>\n)+", "".join(outside)
    )
    assert library("train") is library("train") and len(library("heldout").store) == 6 * 48
    variant = method(**CHAIN, mix=[1, 1, 1], eval_items=2)
    (suite,) = variant.suites(0)
    records, scores = play_suite(suite, {"policy": Reader(follow)})
    scores = {row["difficulty"]: row["value"] for row in scores if row["metric"] == "accuracy"}
    assert scores["level 1"] == scores["level 2"] == 1 and scores["level 3"] == 0


def test_a_fixed_set_comes_again_and_none_of_it_twice_before_all_have_come():
    def asked(seed, step, **values):
        rows, _ = collect(every_second, step=step, seed=seed, prompts_per_step=4, **values)
        return [row.prompt_ids for row in rows[::4]]

    steps = [asked(0, step, fixed=6) for step in range(8)]
    assert len({prompt for prompts in steps for prompt in prompts}) == 6
    assert all(len(set(prompts)) == 4 for prompts in steps) and steps[0] != steps[1]
    small = asked(0, 0, fixed=3)
    assert Counter(Counter(small).values()) == {1: 2, 2: 1}
    assert not {*asked(1, 0, fixed=6)} & {*steps[0]}
    assert len({prompt for step in range(8) for prompt in asked(0, step)}) == 32


def test_a_restored_method_goes_on_as_if_it_had_never_stopped():
    straight, resumed = method(), method()
    step_of(straight, Reader(every_second))
    resumed.load_state_dict(json.loads(json.dumps(straight.state_dict())))
    expected = step_of(straight, Reader(every_second), 1)
    assert step_of(resumed, Reader(every_second), 1) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"family": "novel"}, "family is 'novel'; allowed: 'journey', 'ledger'"),
        ({**LADDER, "mix": [0, 0]}, r"mix is \[0.0, 0.0\]; allowed: weights of levels"),
        ({**LADDER, "mix": []}, "mix is "),
        ({**LADDER, "transfer": [0]}, r"transfer is \[0.0\]; allowed: weights of levels"),
        ({**LADDER, "mix": [1] * 17}, "level is 17; allowed: 1 to 16"),
        ({**LADDER, "family": "chain", "mix": [1] * 7}, "level is 7; allowed: 1 to 6"),
        ({**LADDER, "family": "chain", "transfer": [1] * 7}, "level is 7; allowed: 1 to 6"),
        ({**LADDER, "mix": [-1, 2]}, "mix.0 is -1"),
        ({"task": "read"}, "task"),
        ({"fixed": 0}, "fixed is 0"),
        ({"roles": {"solver": {"policy": "start"}}}, "allowed: a solver that learns"),
    ],
)
def test_what_is_not_allowed_is_named(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, values)


@pytest.fixture(scope="module")
def tiny_policy(tmp_path_factory):
    """A random Qwen3 of 2 layers with the world's tokenizer, in a folder."""
    from transformers import AutoTokenizer

    from spnb.lab import embedded_path
    from spnb.lab.pretrain.build import Recipe, build_model

    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("games"))
    build_model(Recipe(hidden=32, layers=2, heads=2, feed_forward=64), tokenizer).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_a_search_row_passes_the_trainer(tiny_policy, tmp_path, monkeypatch):
    """A whole run whose rollouts are forced to search: results are in the rows, and the trainer
    takes them."""
    generate = TorchEngine.generate

    def forced(self, requests):
        """The policy's own tokens, then a query where it has not asked yet; half of the rows are
        answered."""
        answers = []
        for request, done in zip(requests, generate(self, requests), strict=True):
            first = "\n<information>\n" not in self.tokenizer.decode(request.prompt_ids)
            text = (
                "<search> guide of Alana</search>" if first and request.sampling.stop else done.text
            )
            ids = (
                self.tokenizer(text, add_special_tokens=False)["input_ids"]
                if text != done.text
                else done.ids
            )
            answers.append(Completion(tuple(ids), self.scores(request, ids), text, "stop"))
        return answers

    def scores(self, request, ids):
        sample = Sample(request.prompt_ids, tuple(ids), (1,) * len(ids), None, 0.0, "r", 0)
        return tuple(token_logps(self.model, sample).tolist())

    monkeypatch.setattr(TorchEngine, "generate", forced)
    monkeypatch.setattr(TorchEngine, "scores", scores, raising=False)
    monkeypatch.setattr(
        "spnb.core.grading.grade_text", lambda text, task: float(derive_seed(text) % 2)
    )
    small = dict(steps=1, eval_items=2, max_new_tokens=8, prompts_per_step=2, group_size=4)
    folders = dict(policy=str(tiny_policy), runs=str(tmp_path), figures=str(tmp_path))
    plan = make_plan("rlvr", "smoke", variants=["search"], **small, **folders)
    run = run_one(plan, "search", 0)
    (row,) = run.rows("metrics")
    assert row["method/searches"] == 1 and row["samples"] > 0
    assert all("\n<information>\n" in sample["text"] for sample in run.rows("rollouts"))


@pytest.mark.slow
def test_a_whole_run_with_its_control(tiny_policy, tmp_path):
    small = dict(steps=1, eval_items=4, max_new_tokens=8, prompts_per_step=2, group_size=2)
    folders = dict(policy=str(tiny_policy), runs=str(tmp_path), figures=str(tmp_path))
    plan = make_plan("rlvr", "smoke", variants=["think", "think-random"], **small, **folders)
    for variant in plan.variants:
        run = run_one(plan, variant, 0)
        assert [row["method/accuracy"] for row in run.rows("metrics")] == [0]
        assert {row["step"] for row in run.rows("evals")} == {0, 1}


def test_every_answer_has_a_seed_of_its_own():
    engine = Reader(every_second)
    step_of(method(prompts_per_step=7), engine)
    assert len({request.seed for request in engine.requests}) == 7 * 4


def test_held_out_chains_are_searched_for_in_the_held_out_library():
    rows = evaluated(method(**CHAIN, mix=[1], transfer=[0, 1]), Reader(follow))
    found = [r["value"] for r in rows if r["metric"] == "accuracy" and not r["difficulty"]]
    assert found == [1] * 4
