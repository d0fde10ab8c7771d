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
from spnb.core.types import Completion, Sample, derive_seed
from spnb.evaluate.items import play_suite
from spnb.lab import chain, ladder, oracle
from spnb.lab.questions import draw_task, level_of, library
from spnb.lab.tasks import Level
from spnb.lab.texts import facts_in
from spnb.lab.world import names
from spnb.methods.rlvr import Method, Params
from spnb.train.engines.torch import TorchEngine
from spnb.train.guards import token_logps
from spnb.train.plan import make_plan, run_one

SMALL = dict(prompts_per_step=3, group_size=4, eval_items=6)


LADDER = dict(task="ladder", family="journey", mix=[1, 0, 2])


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


def truth(question, prompt):
    """The answer that follows from a prompt's own documents, None where none does."""
    found = oracle.answer_from(oracle.parse(question), facts_in(prompt))
    return found and found.text


def right(question, prompt, index):
    return f"<answer> {truth(question, prompt)}</answer>"


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
        assert row.role == "read" and row.info["gold"] and not row.invalid and set(row.mask) == {1}
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


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (dict(task="read", hops=[2], documents=3), r"Read the documents with care(.|\n)*\[3\]"),
        (dict(task="think"), "You may write down the facts"),
        (dict(task="steps", hops=[1, 2]), "one fact at a time"),
        (dict(task="search"), "You can query a library"),
        (dict(task="choice"), r"Choose the option(.|\n)*\(D\)"),
        (dict(task="numeric", companies=2), r"Accounts of (.|\n)*\[2\] Accounts of "),
    ],
)
def test_each_task_has_its_prompt_and_the_rule_knows_its_answer(values, pattern):
    params = Params(**values)
    for index in range(6):
        task = draw_task(params, random.Random(index), index, "train", False)
        content, answer = task.messages[0]["content"], ", ".join(task.gold)
        assert re.search(pattern, content) and task.question in content
        assert grade_text(f"<answer> {answer}</answer>", task) == 1
        assert grade_text("<answer> Nobody</answer>", task) == grade_text(answer, task) == 0
    drawn = [draw_task(params, random.Random(index), index, "train", False) for index in range(10)]
    kinds = params.operations if params.task == "numeric" else params.hops
    assert len({task.difficulty for task in drawn}) == len(kinds)


def test_held_out_questions_share_no_name_and_no_frame_with_training_and_no_seed_with_the_run():
    known = {name for kind in ("person", "town", "company") for name in names(kind, "train")}
    requests = []
    for seed in (0, 1):
        engine, variant = Reader(right), method(seed=seed, transfer_hops=[2], documents=2)
        rows = evaluated(variant, engine, step=7 * seed)
        requests.append(engine.requests)
    assert requests[0] == requests[1] and len(requests[0]) == 6 * 4
    prompts = ["".join(map(chr, request.prompt_ids)) for request in requests[0]]
    assert not any(word.strip(".?") in known for prompt in prompts for word in prompt.split())
    assert all(re.search("Question: (Tell me|Do you know)", prompt) for prompt in prompts)
    samplings = {request.sampling.temperature for request in engine.requests}
    assert samplings == {0.0, 1.0}
    labels = ("suite", "decoding", "difficulty", "metric")
    value = {tuple(row[key] for key in labels): (row["value"], row["n"]) for row in rows}
    arms = {(a, b) for a in ("held-out", "transfer") for b in ("sampled", "greedy")}
    assert {key[:2] for key in value} == arms
    for suite, decoding in (("held-out", "greedy"), ("transfer", "sampled")):
        assert value[suite, decoding, "", "accuracy"] == (1, 6)
    assert value["held-out", "greedy", "", "thinks"] == (0, 6)


def test_accuracy_by_hops_and_wilsons_bounds():
    def half(question, prompt, index):
        return (
            right(question, prompt, index)
            if len(oracle.parse(question).nouns) == 1
            else "<answer> No</answer>"
        )

    rows = evaluated(method(hops=[1, 2], eval_items=10), Reader(half))
    value = {
        row["difficulty"]: row
        for row in rows
        if (row["decoding"], row["metric"]) == ("greedy", "accuracy")
    }
    assert (value[""]["value"], value[""]["n"]) == (0.5, 10)
    assert (value["1 hop"]["value"], value["2 hops"]["value"]) == (1, 0)
    # Wilson, 5 of 10: 0.5 -+ 1.96 sqrt(0.25 / 10 + 1.96^2 / 400) / (1 + 1.96^2 / 10).
    bounds = (value[""]["low"], value[""]["high"])
    assert bounds == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_searching_finds_the_librarys_facts():
    """A policy that asks for the path's entity reads the fact in the result: right without having
    seen a document."""

    def seek(question, prompt, index):
        query = oracle.parse(question)
        found = truth(question, prompt)
        return f"<answer> {found}</answer>" if found else f"<search> {query.entity}</search>"

    rows, found = collect(seek, task="search", max_length=4000, results=4)
    assert found["method/searches"] == 1 and found["method/accuracy"] > 0.5
    good = next(row for row in rows if row.reward == 1)
    text = "".join(map(chr, good.completion_ids))
    assert (
        set(good.mask) == {0, 1} and good.info["text"] == text and len(good.info["searches"]) == 1
    )
    outside = "".join(
        chr(i) for i, mask in zip(good.completion_ids, good.mask, strict=True) if not mask
    )
    assert outside.startswith("\n<information>\n[1] ") and "Question:" in outside
    assert library("train") is library("train") and len(library("heldout").store) == 6 * 48


def in_order(question, prompt, index):
    """The steps of a question of the ladder in order; reversed from the third step on."""
    who, level = ladder.parse("journey", question)
    notes = [set(re.findall(r"\w+", line)) for line in re.findall(r"\[\d+\] (.*)", prompt)]
    towns = {*names("town", "train"), *names("town", "heldout")}
    facts = []
    for ordinal in ladder.ORDINALS[:level]:
        (words,) = [words for words in notes if {who, ordinal} <= words]
        facts.append(f"{who} {ordinal} {next(iter(words & towns))}")
    return f"<answer> {' '.join(facts if level < 3 else facts[::-1])}</answer>"


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
    start, relations = chain.parse(question.partition("?")[0] + "?")
    stated = re.findall(r"The (\w+) of (\w+) is (\w+)\.", prompt)
    links = {(relation, person): other for relation, person, other in stated}
    person, left = start, list(relations)
    while left and (left[0], person) in links:
        person = links[left.pop(0), person]
    if not left or (len(relations) > 2 and len(left) < len(relations)):
        return f"<answer> {person}</answer>"
    return f"<search> {chain.query(left[0], person)}</search>"


def test_the_chain_is_answered_by_search():
    rows, found = collect(
        follow, task="ladder", family="chain", mix=[0, 1, 1], prompts_per_step=30, max_length=4000
    )
    levels = Counter(len(row.info["searches"]) for row in rows[::4])
    assert set(levels) == {1, 2}  # two steps, or given up after one of three
    right = found["method/accuracy"] - levels[2] / 30
    assert 0 <= right < 0.1  # who stops early may meet the right person
    outside = [chr(i) for i, m in zip(rows[0].completion_ids, rows[0].mask, strict=True) if not m]
    assert re.fullmatch(
        r"(\n<information>\n(\[\d\] The .*\n){2}</information>\n)+", "".join(outside)
    )
    variant = method(task="ladder", family="chain", mix=[1, 1, 1], eval_items=2, max_length=4000)
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
        ({"hops": [5]}, "level.hops is 5; allowed: 1 to 4"),
        ({"hops": [3], "documents": 2}, "level.documents is 2; allowed: hops"),
        ({"transfer_hops": [4], "documents": 3}, "level.documents is 3; allowed: hops"),
        ({"hops": []}, "hops is "),
        ({"task": "sing"}, "task is 'sing'; allowed: 'read', 'think'"),
        ({"operations": ["path"]}, "operation is 'path', which is unknown; allowed: cell"),
        ({"task": "numeric", "transfer_hops": [2]}, "transfer_hops is .* with task numeric"),
        ({"task": "search", "transfer_documents": 8}, "transfer_documents is 8 with task search"),
        ({"distances": [3]}, "distances.0 is 3"),
        ({"task": "ladder", "mix": [1]}, "family is None with task ladder; allowed: a family"),
        ({"task": "ladder", "family": "novel", "mix": [1]}, "family is 'novel'"),
        ({**LADDER, "mix": [0, 0]}, r"mix is \[0.0, 0.0\] with family journey; allowed: 1 to"),
        ({**LADDER, "mix": [1] * 17}, "mix"),
        ({**LADDER, "family": "chain", "mix": [1] * 7}, "family chain; allowed: 1 to 6 weights"),
        ({**LADDER, "mix": [-1, 2]}, "mix.0 is -1"),
        ({"mix": [1]}, "family and mix are set with task read; allowed: with ladder"),
        ({**LADDER, "transfer_hops": [2]}, "transfer_hops is .* with task ladder"),
        ({"fixed": 0}, "fixed is 0"),
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
            text = "<search> Arnford</search>" if first and request.sampling.stop else done.text
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


def test_parameters_put_a_level_together():
    params = validate(Params, dict(documents=6, same_relation=0.25, facts=3, distances=[0, 2]))
    assert level_of(params, 2) == Level(2, 6, 0.25, 3, (0, 2))
    assert level_of(params, 2, 9).documents == 9
    with pytest.raises(ParamError, match="documents is 49; allowed: 48 or fewer"):
        validate(Params, {"documents": 49})


def test_held_out_questions_are_sampled_and_answered_greedily():
    made = Method(validate(Params, SMALL | dict(max_new_tokens=5, eval_top_p=0.9)), CharTokenizer())
    reader = Reader(right)
    for suite in made.suites(0):
        play_suite(suite, {"policy": reader})
    used = {(one.sampling.max_new_tokens, one.sampling.temperature) for one in reader.requests}
    assert used == {(5, 1.0), (5, 0.0)}
    assert {one.sampling.top_p for one in reader.requests if one.sampling.temperature} == {0.9}
