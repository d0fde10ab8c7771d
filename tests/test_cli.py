"""The command line: what a user gets wrong is one clear message."""

import itertools
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from spnb.cli import app
from spnb.corpus.build import load_corpus
from spnb.testbed import suites
from spnb.testbed.suites import search_corpus
from spnb.testbed.texts import documents
from spnb.train.doctor import missing, report

RUNNER = CliRunner()


def test_doctor_reports_versions_engines_and_what_is_missing():
    printed = RUNNER.invoke(app, ["doctor"])
    assert printed.exit_code == 0
    for part in (
        "python 3.11",
        "torch          2.13.0",
        "engine torch: can run",
        "scale cpu: ready",
        "GPU:",
    ):
        assert part in printed.output
    assert missing("cpu") == [] and "scale gpu:" in report()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "spiral", "--scale", "laptop"],
            "scale is 'laptop', which is unknown; allowed: cpu, gpu, paper, smoke",
        ),
        (["run", "spirall"], "paper is 'spirall', which is unknown; did you mean 'spiral'?"),
        (
            ["run", "spiral", "--variant", "x"],
            "variant is 'x', which is unknown; allowed: batch-mean",
        ),
        (["run", "spiral", "--set", "steps"], "--set is 'steps'; allowed: key=value"),
        (["run", "spiral", "--set", "steps=many"], "steps is 'many'; allowed: a valid integer"),
        (["run", "spiral", "--set", "steps=[1"], "--set is 'steps=[1'; allowed: a value in YAML"),
        (["run", "spiral", "--set", "steps=!!python/x 1"], "allowed: a value in YAML"),
        (["run", "spiral", "--set", "seed=1"], "--set is seed=1; allowed: other parameters, seed"),
        (["run", "spiral", "--set", "grpo.bet=1"], "'grpo.bet', which is unknown; did you mean"),
        (["embedded", "/nowhere", "--recipe", "chess"], "recipe is 'chess'"),
        (["reproduce", "--paper", "chess"], "paper is 'chess', which is unknown"),
        (
            ["reproduce", "--paper", "spiral", "--seeds", "0,x"],
            "seeds is '0,x'; allowed: comma-separated integers",
        ),
        (["exhibit", "spiral/table-99"], "spiral/table-99"),
    ],
)
def test_bad_input_is_one_clear_message(arguments, message):
    printed = RUNNER.invoke(app, arguments)
    assert printed.exit_code == 2
    assert message in printed.stderr and "Traceback" not in printed.stderr


def test_a_corpus_is_kept_free_of_our_own_benchmarks(tmp_path, monkeypatch):
    """Documents that benchmarks are about are dropped, others stay."""
    held, other = list(itertools.islice(search_corpus(), 20)), list(documents(20))
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in [*held, *other]))
    lookup = {"search-lookup": suites.BENCHMARKS["search-lookup"]}
    monkeypatch.setattr(suites, "BENCHMARKS", lookup)
    settings = [
        part for value in ("min_words=5", "min_chars=20", "domains=2") for part in ("--set", value)
    ]
    done = RUNNER.invoke(
        app, ["corpus", str(source), str(tmp_path / "out"), "--benchmarks", "world", *settings]
    )
    assert done.exit_code == 0, done.output
    kept = {row["text"] for row in load_corpus(tmp_path / "out")}
    assert not kept & {document["text"] for document in held}
    assert kept & {document["text"] for document in other}


def test_a_wrong_name_is_answered_before_torch_is_imported():
    code = "import sys; from spnb.cli import app; app(['run', 'spirall'], standalone_mode=False)"
    script = f"try:\n    {code}\nexcept BaseException:\n    pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "did you mean 'spiral'" in done.stderr and done.stdout.strip() == "False"


def test_bench_is_a_command():
    assert "two minutes" in RUNNER.invoke(app, ["bench", "--help"]).output
