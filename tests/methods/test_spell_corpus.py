"""SPELL on a corpus of one's own: its plan, documents cut by tokens, prompts that are too long."""

import json
import random

import pytest
from fakes import CharTokenizer, Roles, step_of
from transformers import AutoTokenizer

from spnb.core.documents import Proposal, open_source
from spnb.core.params import SCALES, ParamError, validate
from spnb.corpus.clusters import cut
from spnb.corpus.store import CorpusError
from spnb.lab import embedded_path
from spnb.methods.spell import Method
from spnb.train.config import params_class
from spnb.train.plan import make_plan, run_one

CONTROL = "<think> <answer> yes</answer></question> </answer>"


def corpus(path, texts=("Ann paid 3 and 4.", "Ben paid 5.", CONTROL, "Word"), clusters=3):
    """Clusters of these texts in a JSONL file."""
    rows = [{"text": text, "metadata": {"cluster": n}} for n in range(clusters) for text in texts]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("scale", SCALES)
def test_a_corpus_leaves_out_default_variants_with_an_oracle(scale):
    plan = make_plan("spell", scale, corpus="own.jsonl", policy="embedded/reader-large")
    assert plan.variants == ["full"] and plan.left_out == ("rlvr",)
    params = plan.params("full")
    external = {"external"} if scale in ("smoke", "cpu") else set()
    assert params.start_from == {} and set(params.policies) == external
    assert "Without rlvr, which a corpus of one's own does not allow." in plan.destination()
    whole = make_plan("spell", "smoke")
    assert whole.variants == ["full", "rlvr"] and whole.left_out == ()
    assert "Without" not in whole.destination()
    assert whole.params("full").policies == {"external": "embedded/reader"}


def test_the_form_of_a_proposal_is_asked_for(tmp_path):
    made = method(tmp_path, corpus=corpus(tmp_path / "own.jsonl"), tasks=["choice", "ledger"])
    said = [made.source.ask(made.source.draw(random.Random(0), place)) for place in range(2)]
    choice, ledger = (one[-1]["content"] for one in said)
    assert "from A) to D)." in choice and "The answer is one number" in ledger


def test_a_document_without_words_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="line 2 .*is no document"):
        method(tmp_path, corpus=corpus(tmp_path / "own.jsonl", texts=("Word", " ")))


@pytest.mark.parametrize("variant", ["rlvr", "longpo", "solopo", "qwenlong-l1", "judge"])
def test_a_variant_with_an_oracle_is_named(variant):
    message = f"variant is '{variant}' with corpus 'own.jsonl'; allowed: variants without"
    with pytest.raises(ParamError, match=message):
        make_plan("spell", "smoke", variants=[variant], corpus="own.jsonl")


@pytest.mark.slow
def test_a_run_of_full_on_a_corpus_finishes(tmp_path):
    plan = make_plan(
        "spell",
        "smoke",
        corpus=corpus(tmp_path / "own.jsonl"),
        document_tokens=16,
        seeds=[0],
        steps=1,
        questions_per_round=3,
        rounds=1,
        runs=str(tmp_path / "runs"),
    )
    run = run_one(plan, "full", 0)
    assert run.finished and [row["step"] for row in run.rows("metrics")] == [1]
    assert {row["suite"] for row in run.rows("evals")} == set()


def test_documents_are_cut_by_tokens_at_the_ends_of_words():
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("reader"))
    text = "Read the documents with care and answer the question from them."
    for size in range(1, 30):
        short = cut(text, tokenizer, size)
        assert short and text.startswith(short)
        assert len(tokenizer(short, add_special_tokens=False)["input_ids"]) <= size
        assert short == text or " " not in short or text[len(short)] == " "
    assert cut(text, tokenizer, 10_000) == text
    assert cut("Word", tokenizer, 1)
    assert cut("\n" * 20 + text, tokenizer, 10) == cut(text, tokenizer, 10), "no blanks before it"


def method(tmp_path, **values):
    given = dict(paper="spell", scale="smoke", variant="v", policy="embedded/reader")
    given |= dict(tasks=["journey"], documents=3, questions_per_round=4)
    given |= dict(grpo={"loss_type": "grpo"})
    own = {"corpus": values.get("corpus") or corpus(tmp_path / "own.jsonl")}
    return Method(validate(params_class(Method), given | values | own), CharTokenizer())


def test_a_prompt_that_is_too_long_trains_nothing(tmp_path):
    made, world = method(tmp_path, max_new_tokens=16, max_length=64, rounds=1), Roles()
    rows = step_of(made, world)
    assert len(rows) == 4 and world.requests == []
    for row in rows:
        assert row.invalid and row.weight == 0 and row.advantage == 0 and not any(row.mask)
    made.select(rows)
    assert all(row.weight == 0 for row in rows)


def test_a_corpus_has_no_suites_of_its_own(tmp_path):
    made = method(tmp_path, max_length=4096, rounds=1)
    assert made.suites(0) == []
    cluster = method(tmp_path).source.by_kind["journey"][0]
    assert made.source.judge(Proposal("Who?", "Ann", kind="journey"), cluster) is None


def test_what_is_no_source_is_named():
    with pytest.raises(ParamError, match="source is 'lab:novels', which is unknown"):
        open_source("lab:novels", None, None)
    with pytest.raises(ParamError, match="source is 'novels'; allowed: a name that begins"):
        open_source("novels", None, None)
