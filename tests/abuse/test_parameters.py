"""Bad parameters and commands: one sentence, exit code 2, no folder, at once."""

import os
import re
import resource
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from spnb.cli import app
from spnb.core.paths import ROOT
from tests.abuse.parameters import CASES, absent, commands, refused, texts, years

SECONDS = 6
"""Of a processor, from the start of the process; it needs one or two, and up to twice that on a
machine that does much else."""


def started(*_):
    raise AssertionError("a run was started")


def prepared(case, folder):
    """The command with a folder for runs; the case's files are written into a project."""
    if case.files:
        shutil.copytree(ROOT / "params/spiral", folder / "params/spiral")
    for name, text in case.files:
        (folder / name).write_text(text)
    runs = ["--runs", str(folder / "runs")] if case.arguments[0] == "run" else []
    return [*case.arguments, *runs]


def check(case, code, said, folder):
    """One sentence a fault, and nothing left."""
    assert code == 2, said
    assert re.search(case.says, said, re.MULTILINE), said
    assert "Traceback" not in said and said.startswith("error: ")
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_wrong_is_said(case, tmp_path, monkeypatch):
    monkeypatch.setattr("spnb.train.plan.start_together", started)
    arguments = prepared(case, tmp_path)
    if case.files:
        monkeypatch.setattr("spnb.core.params.ROOT", tmp_path)
    done = CliRunner().invoke(app, arguments)
    check(case, done.exit_code, done.stderr, tmp_path)


def test_there_are_enough_cases():
    assert len({(case.arguments, case.files) for case in CASES}) == len(CASES) >= 250


SOME = [list(part())[::step] for part, step in ((refused, 25), (absent, 8), (years, 20))]
SOME += [list(texts())[::11], list(commands())[::12]]


@pytest.mark.slow
@pytest.mark.parametrize("case", sum(SOME, []), ids=str)
def test_it_is_said_at_once_by_a_process(case, tmp_path):
    arguments = prepared(case, tmp_path)
    home = {"SPNB_HOME": str(tmp_path)} if case.files else {}
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | home
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "spnb.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    check(case, done.returncode, done.stderr, tmp_path)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS
