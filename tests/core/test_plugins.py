"""Plugins: a file's rewards, games and sources by name, and one sentence for each thing wrong."""

import shutil
import sys
from pathlib import Path

import pytest

import spnb as sp
from spnb.core import paths, plugins
from spnb.core.params import ParamError
from spnb.core.plugins import PluginError
from spnb.methods import method_class
from spnb.report.frame import gather
from spnb.train.plan import run_all
from spnb.train.run import run_params, train_run
from spnb.train.runs import RunError

OWN = Path(__file__).parents[1] / "own_plugin.py"
REGISTER = "from spnb import register_{} as r\n"
HUMP = 'import spnb as sp\nsp.register_reward("hump", lambda p: {0} * p * (1 - p))\n'


@pytest.fixture
def write(tmp_path):
    """Writes the plugin of a test; returns its path as a parameter has it."""

    def write(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def plan_of(paper, variant, tmp_path, **values):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    return sp.make_plan(paper, "smoke", variants=[variant], seeds=[0], **folders, **values)


def test_what_a_file_registers_is_found_by_its_name(write):
    plugins.load(str(OWN))
    assert plugins.reward("hump")(0.5) == 1.0 and plugins.reward("tent") is sp.rewards.tent
    assert sp.make_game("stones").match(0).legal_actions() == ["1", "2", "3"]
    assert plugins.names("source") == ["letters", "notes"] and plugins.find("game", "hump") is None
    with pytest.raises(ValueError, match="game is 'stone'; allowed: .*stones.*did you mean stones"):
        sp.make_game("stone")


def test_a_file_is_executed_once_and_a_changed_one_again(write, monkeypatch):
    counted = "import sys\nsys.argv.append('executed')\n"
    file = write(counted)
    monkeypatch.setattr(sys, "argv", [])
    for _ in range(3):
        plugins.load(file)
    assert sys.argv == ["executed"]
    for factor in (4, 5):  # as long as the one before, and written in the same second
        write(HUMP.format(factor))
        plugins.load(file)
        assert plugins.reward("hump")(0.5) == factor / 4
    write("import spnb")
    plugins.load(file)
    assert plugins.names("reward") == []


def test_a_relative_path_is_the_projects(monkeypatch, tmp_path, write):
    write(HUMP.format(4))
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.chdir("/")
    plugins.load("mine.py")
    plugins.load("../" + tmp_path.name + "/./mine.py")
    assert plugins.names("reward", "mine.py") == plugins.names("reward") == ["hump"]
    with pytest.raises(PluginError, match="plugins is 'his.py'; allowed: an existing file, /.*his"):
        plugins.load("his.py")


def test_what_a_dataclass_needs_is_there(write):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    plugins.load(write(text + "@dataclass\nclass A:\n    b: int = 0\n", "shapes.py"))
    assert "spnb_plugin_shapes" in sys.modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import spnb\nx = (", r"line 2: SyntaxError: .*; allowed: a Python file that imports"),
        ("import spnb\nimport nowhere_at_all", "line 2: ModuleNotFoundError: No module named 'no"),
        ("x = 1\n\nx / 0", "line 3: ZeroDivisionError: division by zero; allowed: a Python file"),
        ("import sys\nsys.exit(3)", "line 2: SystemExit: 3; allowed: a Python file that imports"),
        (HUMP.format(4) * 2, "line 4: reward is 'hump', which mine.py registers already; all"),
        (HUMP.format("float('nan')"), "line 2: reward 'hump' is nan at p = 0; allowed: a finite"),
        (HUMP.format("[1]").replace("p * (1 - p)", "2"), r"reward 'hump' is \[1, 1\] at p = 0"),
        (HUMP.format("1 / p"), "line 2: ZeroDivisionError: .*; allowed: a Python file"),
        (REGISTER.format("reward") + "r('tent', abs)", "reward is 'tent', which spnb has"),
        (REGISTER.format("reward") + "r('My hump', abs)", "is 'My hump'; allowed: small"),
        (REGISTER.format("reward") + "r(7, abs)", "reward is 7; allowed: small letters"),
        (REGISTER.format("game") + "r('nim', 7)", "game is 'nim', which OpenSpiel has; a"),
        (REGISTER.format("source") + "r('lab:x', 7)", "source is 'lab:x'; allowed: small"),
    ],
)
def test_what_a_file_gets_wrong_is_one_sentence_and_leaves_nothing(text, message, write):
    file = write(text)
    for _ in range(2):
        with pytest.raises(PluginError, match=f"plugins is '{file}', .*{message}") as caught:
            plugins.load(file)
        assert "\n" not in str(caught.value)
    assert not plugins.names("reward") and not plugins.LOADED
    write(HUMP.format(4))
    plugins.load(file)
    assert plugins.names("reward") == ["hump"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(-1.0, 1.0)", "(-1.0, 0.5)"), r"returns of game 'stones' is \(.*; allowed: two numbers"),
        (("(1.0, -1.0)", "(9.0, -9.0)"), "returns of game 'stones' is .*; allowed: two numbers"),
        (("(1.0, -1.0)", "(1.0, -1.0, 0.0)"), "line .*: ValueError: too many values"),
        (("1 - self.player", "2"), "player of game 'stones' is 2; allowed: 0, 1, or None at the"),
        (('name = "stones"', 'name = "nim"'), r"name of game 'stones' is \('stones', 'nim'\); al"),
        (("self.stones -= int(action)", "pass"), "end of game 'stones' is None; allowed: within"),
        (("str(n)", "n"), r"legal_actions of game 'stones' is \[1, 2, 3\]; allowed: moves as text"),
        (("def legal_actions", "def moves"), "AttributeError: .* no attribute 'legal_actions'"),
    ],
)
def test_a_game_that_is_not_zero_sum_for_two_is_refused(change, message, write):
    text = OWN.read_text()
    assert change[0] in text
    with pytest.raises(PluginError, match=message) as caught:
        plugins.load(write(text.replace(*change)))
    assert "\n" not in str(caught.value) and plugins.names("game") == []


def test_a_free_text_game_is_tried_as_far_as_moves_are_listed(write):
    text = OWN.read_text().replace(
        "return [str(n) for n in (1, 2, 3) if n <= self.stones]", "return"
    )
    text = text.replace("', '.join(self.legal_actions())", "'any'")
    plugins.load(write(text))
    assert plugins.names("game") == ["stones"]


def test_registering_outside_of_a_plugin_is_refused():
    with pytest.raises(
        PluginError, match="register_reward is called with 'hump'; allowed: in a fil"
    ):
        sp.register_reward("hump", abs)


def test_a_reward_is_checked_at_every_share(write):
    plugins.load(write(HUMP.format("float('nan' if p == 0.3 else 1)")))
    with pytest.raises(PluginError, match="reward 'hump' is nan at p = 0.3; allowed: a finite num"):
        plugins.reward("hump")(0.3)


def test_a_name_belongs_to_the_plugin_of_the_run(write, tmp_path):
    plugins.load(str(OWN))
    other = write("import spnb")
    for paper, variant, values, message in (
        (
            "proposer",
            "learning",
            {"pay": "hump"},
            "pay is 'hump'; allowed: gaussian, .*, or one that",
        ),
        (
            "spell",
            "full",
            {"mapping": "hump"},
            "mapping is 'hump'; allowed: gaussian, absolute_zero",
        ),
        (
            "spice",
            "full",
            {"pay": "hump"},
            "pay is 'hump'; allowed: variance, .*`plugins` registers",
        ),
        (
            "spiral",
            "full",
            {"games": ["stones"]},
            r"games is \['stones'\] with .*this run's plugin",
        ),
        (
            "spell",
            "full",
            {"corpus": "letters"},
            "corpus is 'letters' with plugins .*; allowed: a pa",
        ),
        ("spice", "full", {"corpus": ["notes"]}, r"corpus is \['notes'\] with plugins "),
        ("spice", "full", {"corpus": ["notes", "math"], "plugins": str(OWN)}, "corpus is .*alone"),
    ):
        for given in ({}, {"plugins": other}):
            with pytest.raises(ParamError, match=message):
                plan_of(paper, variant, tmp_path, **given | values)
    with pytest.raises(ParamError, match="plugins is 7; allowed: a valid string"):
        plan_of("proposer", "learning", tmp_path, plugins=7)
    with pytest.raises(ParamError, match="^plugins is 'x.py'; allowed: an existing file"):
        plan_of("proposer", "learning", tmp_path, plugins="x.py", pay="hump")


def test_two_plugins_cannot_register_one_name(write):
    plugins.load(write(HUMP.format(4)))
    with pytest.raises(PluginError, match="'hump', which mine.py registers already"):
        plugins.load(write(HUMP.format(5), "yours.py"))


def test_the_content_is_part_of_a_runs_identity(write, tmp_path):
    def plan():
        given = {"plugins": file, "pay": "hump"}
        return plan_of("proposer", "learning", tmp_path, **given)

    file = write(HUMP.format(4))
    first = plan()
    run = first.open("learning")
    assert run_params(run).pay == "hump"
    assert plan().open("learning").folder == run.folder
    write(HUMP.format(5))
    assert first.open("learning").folder == run.folder, "a plan is what it was when it was made"
    assert plan().open("learning").folder != run.folder
    with pytest.raises(RunError, match="plugins of its data has changed; allowed: as pro"):
        train_run(run)
    write(HUMP.format(4))
    assert plan().open("learning").folder == run.folder
    assert (
        "plugins" not in plan_of("proposer", "learning", tmp_path).identity("learning", 0)["data"]
    )


@pytest.mark.parametrize("paper", ["spice", "scope"])
@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "makes a dict; allowed: "), ("Clusters.__new__(Clusters)", "makes a Clusters; all")],
)
def test_a_source_is_of_the_kind_that_a_method_takes(
    text, message, paper, write, tokenizer, tmp_path
):
    made = f'sp.register_source("notes", lambda params, tokenizer: {text})'
    file = write(OWN.read_text().replace('sp.register_source("notes", Notes)', made))
    chosen = plan_of(paper, "full", tmp_path, plugins=file, corpus="notes").params("full")
    with pytest.raises(ParamError, match=f"source 'notes' {message}"):
        method_class(paper, chosen)(chosen, tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "variant", "values"),
    [
        ("spell", "full", {"mapping": "hump", "corpus": "letters"}),
        ("spice", "full", {"pay": "hump", "corpus": "notes"}),
        ("proposer", "learning", {"pay": "hump"}),
        ("spiral", "full", {"games": ["stones"]}),
    ],
)
def test_ones_own_trains_in_processes_of_runs(paper, variant, values, tmp_path):
    """Each in a run of its own process, which loads a copy of the plugin."""
    file = str(shutil.copy(OWN, tmp_path / "copied.py"))
    plan = plan_of(paper, variant, tmp_path, plugins=file, **values)
    (run,) = [one for one in run_all(plan) if one.variant == variant]
    assert [row["step"] for row in run.rows("metrics")] == [1, 2]
    if paper == "spiral":
        table = sp.over_training(gather([run]), "spiral", ["training games"])
        assert table.notna().all().all() and {row["suite"] for row in run.rows("evals")} >= {
            "stones"
        }


@pytest.mark.slow
def test_spawned_runs_load_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr("spnb.train.plan.FORKED", frozenset())
    plan = plan_of("proposer", "learning", tmp_path, plugins=str(OWN), pay="hump", steps=1)
    (run,) = run_all(plan)
    assert run.finished and len(list(run.rows("metrics"))) == 1
