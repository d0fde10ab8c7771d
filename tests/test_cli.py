"""The command line: what a user gets wrong is one clear message."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from papermill import PapermillExecutionError
from typer.testing import CliRunner

from spnb.cli import app
from spnb.core.errors import Stopped
from spnb.core.paths import ROOT, WEIGHTS
from spnb.corpus.store import load_corpus
from spnb.lab import ladder
from spnb.train.doctor import missing, report
from tools.sizes import lines_of

RUNNER = CliRunner()


def test_doctor_reports_versions_engines_and_what_is_missing():
    printed = RUNNER.invoke(app, ["doctor"])
    assert printed.exit_code == 0
    for part in ("python 3.11", "torch          2.13.0", "scale cpu: ready", "GPU:"):
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
            "variant of spiral is 'x', which is unknown; allowed: batch-mean",
        ),
        (["run", "spiral", "--set", "steps"], "--set is 'steps'; allowed: key=value"),
        (["run", "spiral", "--set", "steps=many"], "steps is 'many'; allowed: a valid integer"),
        (["run", "spiral", "--set", "steps=[1"], "--set is 'steps=[1', which cannot be read: "),
        (["run", "spiral", "--set", "steps=!!python/x 1"], "allowed: a value in YAML"),
        (["run", "spiral", "--set", "seed=1"], "seed=1; allowed: other parameters of a run"),
        (["run", "spiral", "--set", "grpo.bet=1"], "'grpo.bet', which is unknown; did you mean"),
        (["run", "spiral", "--set", "grpo=1", "--set", "grpo.beta=1"], "grpo itself or keys in it"),
        (
            ["run", "spiral", "--set", "grpo.beta=1", "--set", "grpo={}"],
            "grpo itself or keys in it",
        ),
        (["run", "spiral", "--set", "games=connect_five"], "did you mean connect_four"),
        (["run", "spiral", "--set", "policy=embedded/chess"], "embedded policy is 'chess'; allowe"),
        (["embedded", "/nowhere", "--recipe", "chess"], "recipe is 'chess'"),
        (["reproduce", "--paper", "chess"], "paper is 'chess', which is unknown"),
        (
            ["reproduce", "--paper", "rlvr", "--variants", "thnik"],
            "'thnik', which is unknown; did yo",
        ),
        (
            ["reproduce", "--variants", "nothing"],
            "variant of proposer is 'nothing', which is unknown; allowed",
        ),
        (
            ["reproduce", "--paper", "spiral", "--seeds", "0,x"],
            "seeds is '0,x'; allowed: comma-separated integers",
        ),
        (
            ["plan", "spiral", "--processes", "8"],
            "processes is 8 without memory; allowed: with --memory",
        ),
        (
            ["plan", "spiral", "--scale", "cpu", "--memory"],
            "memory is True with scale cpu; allowed: with gpu or paper",
        ),
        (
            ["serve-retriever", "corpus.jsonl", "--encoder", "e5"],
            "encoder is 'e5' with kind bm25; allowed: with a dense kind",
        ),
        (["reproduce", "--paper", "spiral", "--seeds", ","], "seeds is ','; allowed: "),
        (["reproduce", "--paper", "spiral", "--variants", ","], "',' names nothing; allowed: "),
        (["plan", "spiral", "--set", "steps="], "steps is None; allowed: "),
        (["exhibit", "shapes/paid", "--scale", "laptop"], "scale is 'laptop', which is unknown; "),
        (["migrate", "no/such"], "runs is 'no/such'; allowed: a folder of runs"),
        (["embedded", __file__], "File exists"),
        (["search", "spell/search/typo"], "spell has no search/typo.yaml; allowed: "),
        (["exhibit", "spiral/table-99"], "exhibit is 'spiral/table-99', which is unknown; did you"),
        (["exhibit", "table-3"], "did you mean 'ssp/table-3'? allowed: 123 names, the nearest are"),
    ],
)
def test_bad_input_is_one_clear_message(arguments, message):
    printed = RUNNER.invoke(app, arguments)
    assert printed.exit_code == 2
    assert message in printed.stderr and "Traceback" not in printed.stderr


@pytest.mark.slow
def test_a_corpus_is_kept_free_of_the_texts_that_are_named(tmp_path):
    """Documents that these texts stand in are dropped, others stay."""
    rng = random.Random(0)
    texts = [ladder.draw_source(rng, "journey", 16).text for _ in range(40)]
    source, named = tmp_path / "texts.jsonl", tmp_path / "named.txt"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    named.write_text("\n".join(texts[:20]))
    settings = [
        part for value in ("min_words=5", "min_chars=20", "domains=2") for part in ("--set", value)
    ]
    arguments = [str(source), str(tmp_path / "out"), "--benchmarks", str(named)]
    done = RUNNER.invoke(app, ["corpus", *arguments, *settings])
    assert done.exit_code == 0, done.output
    kept = {row["text"] for row in load_corpus(tmp_path / "out")}
    assert kept and kept <= {*texts[20:]}


WRONG = [
    ["run", "spirall"],
    ["run", "spiral", "--scale", "cpuu"],
    ["run", "spiral", "--variant", "no-rea"],
    ["reproduce", "--paper", "spirall"],
    ["reproduce", "--paper", "spiral", "--variants", "no-rea"],
    ["exhibit", "spiral/tabl-3"],
]
WRONG_VALUES = [
    ["run", "spiral", "--set", "stepz=1"],
    ["run", "spiral", "--set", "grpo.bet=1"],
    ["run", "spiral", "--set", "games=connect_five"],
]
WRONG_GAME = [["run", "spiral", "--scale", "cpu", "--set", "games=[TicTacToe]"]]
SCRIPT = """
import sys
from typer.testing import CliRunner
from spnb.cli import app
for arguments in {arguments!r}:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and "did you mean" in done.stderr, done.output
print([name for name in {heavy!r} if name in sys.modules])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (WRONG, ["torch", "transformers", "trl", "pandas", "scipy", "matplotlib"]),
        (WRONG_VALUES, ["torch", "transformers", "trl", "matplotlib"]),
        (WRONG_GAME, ["torch", "transformers", "trl", "textarena", "nltk", "scipy"]),
    ],
)
def test_a_wrong_name_is_answered_before_anything_heavy_is_imported(arguments, heavy):
    script = SCRIPT.format(arguments=arguments, heavy=heavy)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_wrong_name_is_answered_soon():
    """A third of a second of work; the bar leaves room for a machine that does much else."""
    command = [sys.executable, "-m", "spnb.cli", "run", "spiral", "--variant", "nope"]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    assert time.monotonic() - started < 15
    assert done.returncode == 2 and "did you mean 'no-rae'" in done.stderr


def stop():
    raise KeyboardInterrupt


def stop_in_a_notebook():
    place = {"cell_index": 3, "exec_count": 2, "source": "", "traceback": ["long"]}
    raise PapermillExecutionError(**place, ename="Stopped", evalue=str(Stopped()))


@pytest.mark.parametrize("action", [stop, stop_in_a_notebook])
def test_stopping_is_one_line_and_exit_code_130(monkeypatch, action):
    monkeypatch.setattr("spnb.report.show.regenerate", lambda *arguments: action())
    done = RUNNER.invoke(app, ["exhibit", "spiral/table-3"])
    assert done.exit_code == 130
    assert done.stderr == "stopped; finished runs are kept, start again to go on\n"


def test_an_exhibits_files_are_printed(monkeypatch):
    monkeypatch.setattr("spnb.report.show.regenerate", lambda *asked: [Path(f"{asked}.csv")])
    done = RUNNER.invoke(app, ["exhibit", "spiral/table-3", "--scale", "smoke"])
    assert done.stdout == "written: ('spiral/table-3', 'smoke').csv\n"


@pytest.fixture
def project(tmp_path):
    """A copy of the project without figures, notebooks and weights."""
    for name in ("spnb", "params", "tests"):
        left_out = shutil.ignore_patterns("__pycache__", "weights")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    (tmp_path / "spnb/lab/weights").symlink_to(WEIGHTS)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "spell",
            "NAME is 'spell', which .*params/spell/cpu.yaml has; allowed: a name that is not",
        ),
        ("sft", "NAME is 'sft', which .*methods/sft.py has; allowed: a name that is not taken"),
        ("speed", "NAME is 'speed', which .*exhibits.yaml has; allowed: a name that is not taken"),
        ("Mirror", "NAME is 'Mirror'; allowed: small letters, digits and _, a letter first, no wo"),
        ("../x", "NAME is '../x'; allowed: small letters"),
        ("7up", "NAME is '7up'; allowed: small letters"),
        ("import", "NAME is 'import'; allowed: small letters"),
    ],
)
def test_a_method_needs_a_name_that_is_not_taken(name, message, project):
    before = sorted(project.rglob("*"))
    printed = RUNNER.invoke(app, ["new-method", name, "--folder", str(project)])
    assert printed.exit_code == 2 and re.search(message, printed.output)
    assert sorted(project.rglob("*")) == before


def test_a_method_is_written_into_a_checkout_alone(tmp_path):
    printed = RUNNER.invoke(app, ["new-method", "mirror", "--folder", str(tmp_path)])
    assert printed.exit_code == 2 and "allowed: a checkout of spnb" in printed.output


def test_a_new_method_is_short_and_has_the_houses_style(project):
    printed = RUNNER.invoke(app, ["new-method", "mirror", "--folder", str(project)])
    assert printed.exit_code == 0 and "spnb run mirror --scale smoke" in printed.output
    method = project / "spnb/methods/mirror.py"
    code, _ = lines_of(method.read_text())
    assert code <= 65 and "NAME" not in method.read_text()
    files = [str(method), str(project / "tests/methods/test_mirror.py")]
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, *files]
        done = subprocess.run(ruff, cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    known = yaml.safe_load((project / "spnb/reference/exhibits.yaml").read_text())
    assert known["mirror"][0]["id"] == "mirror/learning" and "spiral" in known


@pytest.mark.slow
def test_a_new_method_trains_and_passes_its_test_and_makes_its_exhibit(project):
    def python(*arguments):
        environment = os.environ | {"PYTHONPATH": str(project)}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("-m", "spnb.cli", "new-method", "mirror")
    assert "2 passed" in python("-m", "pytest", "tests/methods/test_mirror.py", "-v")
    told = python("-m", "spnb.cli", "exhibit", "mirror/learning", "--scale", "smoke")
    assert "written: " in told and list(project.glob("runs/figures/smoke/mirror/learning.png"))
    (run,) = project.glob("runs/mirror/smoke/full/seed-0")
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
