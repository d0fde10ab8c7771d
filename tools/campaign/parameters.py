"""Bad parameters and commands, from the list of the tests: each is refused in one sentence."""

from unittest.mock import patch

from typer.testing import CliRunner

from spnb.cli import app
from spnb.core import params
from tests.abuse.parameters import CASES
from tests.abuse.test_parameters import check, prepared, started
from tools.campaign import Part


def parameters(part: Part) -> None:
    """Cases of tests/abuse/parameters.py, all of them in the full campaign."""
    chosen = part.some(CASES)
    for place, case in enumerate(chosen):
        if part.late:
            return part.leave_out(f"{len(chosen) - place} cases: no time was left")
        folder = part.folder / str(place)
        folder.mkdir()
        arguments = prepared(case, folder)
        root = folder if case.files else params.ROOT
        with patch("spnb.train.plan.start_together", started), patch.object(params, "ROOT", root):
            done = CliRunner().invoke(app, arguments)
        try:
            check(case, done.exit_code, done.stderr, folder)
            part.end("survived")
        except AssertionError:
            end = "traceback" if done.exit_code == 1 else "wrong"
            part.end(end, f"{case}: exit code {done.exit_code}, {done.stderr or done.exception!r}")
