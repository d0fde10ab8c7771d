"""What a notebook shows of an error that a user made, in a real IPython shell without a kernel."""

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from spnb.core.errors import Stopped
from spnb.core.params import ParamError
from spnb.report.exhibits import ExhibitError
from spnb.train.guards import TrainerError
from spnb.train.policies import PolicyError
from spnb.train.runs import RunError


@pytest.fixture(scope="module")
def shell():
    config = Config()
    config.HistoryManager.enabled = False
    yield InteractiveShell.instance(config=config, colors="nocolor")
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("error", [ParamError, PolicyError, RunError, TrainerError, ExhibitError])
def test_a_users_error_is_one_line(shell, capsys, error):
    shell.user_ns["error"] = error
    assert not shell.run_cell("def deep():\n    raise error('x is 3')\ndeep()").success
    assert capsys.readouterr().out.strip() == f"{error.__name__}: x is 3"


def test_stopping_is_one_line(shell, capsys):
    shell.user_ns["Stopped"] = Stopped
    code = (
        "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    raise Stopped from None"
    )
    assert not shell.run_cell(code).success
    shown = capsys.readouterr()
    assert (
        shown.out + shown.err
    ).strip() == "stopped; finished runs are kept, start again to go on"


def test_another_error_keeps_its_traceback(shell, capsys):
    assert not shell.run_cell("1 / 0").success
    assert "Traceback" in capsys.readouterr().out


def test_a_misspelt_parameter_is_corrected_in_the_same_shell(shell, capsys):
    cell = "import spnb as sp\nplan = sp.make_plan('spiral', 'smoke', variants=['full'], **run)"
    shell.user_ns["run"] = {"stepz": 5}
    assert not shell.run_cell(cell).success
    (line,) = capsys.readouterr().out.strip().splitlines()
    assert line.startswith("ParamError: parameter is 'stepz', which is unknown; did you mean 'ste")
    shell.user_ns["run"] = {"steps": 5}
    assert shell.run_cell(cell).success and shell.user_ns["plan"].params("full").steps == 5
    shell.user_ns["run"] = {}
    assert shell.run_cell(cell).success and shell.user_ns["plan"].params("full").steps == 2
