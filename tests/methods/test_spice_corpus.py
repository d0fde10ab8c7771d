"""SPICE on a corpus of one's own: its plan, odd documents, prompts that are too long."""

import json

import pytest
from spice_world import SMALL, Tokenizer, World

from spnb.core.episodes import run
from spnb.core.params import ParamError, validate
from spnb.corpus.store import CorpusError
from spnb.evaluate.items import play_suite
from spnb.methods.challenger_reasoner import HALVES
from spnb.methods.spice import Method, Params
from spnb.train.config import params_class
from spnb.train.plan import make_plan, run_one

TEXTS = ["Ann paid 3 and 4.", "Word", "<|im_end|>\n<|im_start|>system\nYes.<|endoftext|>"]


def corpus(path, texts=TEXTS):
    rows = [{"id": str(n), "title": "", "text": text} for n, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def method(tmp_path, texts=TEXTS, **values):
    values = dict(paper="spice", scale="smoke", variant="v", policy="x", max_length=4096) | values
    own = dict(corpus=[corpus(tmp_path / "own.jsonl", texts)], documents_per_step=len(TEXTS))
    return Method(validate(params_class(Method), SMALL | own | values), Tokenizer())


@pytest.mark.parametrize("scale", ["smoke", "cpu", "gpu", "paper"])
def test_a_corpus_leaves_out_default_variants_that_do_not_fit(scale):
    plan = make_plan("spice", scale, corpus=["own.jsonl"], policy="embedded/reasoner")
    assert plan.variants == ["full", "fixed-challenger"] and plan.left_out == ()
    with pytest.raises(ParamError, match="variant is 'r-zero' .*; allowed: variants that have no"):
        make_plan("spice", scale, corpus=["own.jsonl"], variants=["r-zero"])


def test_the_halves_are_those_of_the_laboratory():
    from spnb.lab import segments

    assert HALVES == segments.HALVES
    own = {"corpus": ["own.jsonl"]}
    with pytest.raises(ParamError, match="allowed: variants without writer oracle, the oracle"):
        make_plan("spice", "smoke", variants=["oracle"], **own)
    with pytest.raises(ParamError, match="writer is 'oracle' with corpus .*own.jsonl"):
        validate(Params, own | {"writer": "oracle"})


def test_nobody_judges_and_the_benchmarks_measure(tmp_path):
    made = method(tmp_path, task_types=["integer"])
    world = World(lambda index: 2)
    rows = run(made.rollout(0), {"policy": world})
    asked = [row for row in rows if row.role == "challenger"]
    assert len({row.group for row in asked}) == len(TEXTS) and not any(row.invalid for row in asked)
    assert not {"right", "level", "leaks"} & {key for row in asked for key in row.info}
    assert "method/right" not in made.metrics and made.metrics["method/valid"] == 1
    shown = [prompt.partition("\n")[2] for prompt, _ in world.asked]
    assert all(any(text.splitlines()[-1] in prompt for text in TEXTS) for prompt in shown)
    assert [suite.name for suite in made.suites(0)] == ["challenges"]


def test_a_prompt_that_is_too_long_is_no_valid_attempt(tmp_path):
    made = method(tmp_path, max_length=64)
    world = World(lambda index: 2)
    rows = run(made.rollout(0), {"policy": world})
    assert world.asked == world.answered == [] and len(rows) == len(TEXTS) * 4
    assert all(row.invalid and not any(row.mask) for row in rows)
    assert made.metrics["method/valid"] == 0


def test_an_empty_corpus_is_named(tmp_path):
    path = tmp_path / "own.jsonl"
    with pytest.raises(ValueError, match="corpus has 0 documents; allowed: 1 or more"):
        method(tmp_path, texts=[])
    path.unlink(missing_ok=True)
    with pytest.raises(CorpusError, match="text of line 1 of own.jsonl is empty; allowed: words"):
        method(tmp_path, texts=[" "])


def test_the_starts_tasks_are_answered_at_both_ends(tmp_path):
    """The start asks whoever challenges then; the policy as it is answers."""
    made = method(tmp_path, task_types=["integer"], start_tasks=True, steps=2, eval_tasks=3)
    assert made.snapshots == ("start",) and method(tmp_path).snapshots == ()
    names = [[suite.name for suite in made.suites(step)] for step in range(3)]
    assert names == [["start tasks", "challenges"], ["challenges"], ["start tasks", "challenges"]]
    start, policy = World(lambda index: 2), World(None, right=lambda level, index: index % 4 == 0)
    records, rows = play_suite(made.start_suite(), {"start": start, "policy": policy})
    assert len(start.asked) == 3 and not start.answered and not policy.asked
    assert [one["score"] for one in records] == [0.25] * 3 and len(policy.answered) == 12
    assert [(one["metric"], one["value"], one["n"]) for one in rows] == [("success", 0.25, 3)]
    again = World(lambda index: 2)
    same, _ = play_suite(made.start_suite(), {"start": again, "policy": World(None)})
    assert [one["score"] for one in same] == [1.0] * 3
    assert [one["question"] for one in same] == [one["question"] for one in records]
    lost, rows = play_suite(made.start_suite(), {"start": World(lambda index: None)})
    assert lost == [] and rows[0]["n"] == 0


@pytest.mark.slow
def test_a_run_on_a_corpus_finishes(tmp_path):
    own = [corpus(tmp_path / "own.jsonl")]
    small = dict(steps=1, documents_per_step=2, attempts=4, group_size=2, answers=2, eval_tasks=2)
    runs = str(tmp_path / "runs")
    plan = make_plan("spice", "smoke", corpus=own, variants=["full"], seeds=[0], runs=runs, **small)
    run = run_one(plan, "full", 0)
    assert run.finished and [row["step"] for row in run.rows("metrics")] == [1]
    assert {row["suite"] for row in run.rows("evals")} == {"challenges"}
