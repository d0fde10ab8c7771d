"""The house: rooms import only from floors below, without circles; nothing that a paper needs
imports the laboratory; the facade is light."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import spnb
from tools.sizes import lines_of

PACKAGE = Path(spnb.__file__).parent
FLOORS = [
    {"core"},
    {"games", "corpus", "reference"},
    {"evaluate"},
    {"methods", "lab"},
    {"train"},
    {"report"},
    {"lab.pretrain"},
    {"cli"},
]
"""What imports what: only from floors below, or from the own room. `lab` are the generated worlds;
`lab.pretrain`, which makes the shipped policies with all the rest, is a room at the top."""
NO_LABORATORY = ("core", "games", "corpus", "evaluate", "methods", "train")
"""Rooms that reach the laboratory by name alone (`spnb.core.documents.open_source`)."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem == "cli"
)
METHODS = {path.stem for path in (PACKAGE / "methods").glob("*.py")} - {"__init__"}


def module_name(path):
    """`spnb/core/types.py` as `core.types`, a package's `__init__.py` as the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


def room_of(name):
    """The room of a module's name."""
    parts = name.split(".")
    return "lab.pretrain" if parts[:2] == ["lab", "pretrain"] else parts[0]


@cache
def imports(path):
    """Modules of spnb that a module imports, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "spnb":
            base = node.module.removeprefix("spnb").removeprefix(".")
            inside = [f"{base}.{alias.name}".strip(".") for alias in node.names]
            names = [name if name in NAMES else base for name in inside]
        elif isinstance(node, ast.Import):
            names = [a.name.removeprefix("spnb.") for a in node.names if a.name.startswith("spnb.")]
        found += [name for name in names if name]
    return found


def in_laboratory(name):
    """Whether a module is of the laboratory."""
    return name.split(".")[0] == "lab"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_rooms_import_from_floors_below_or_their_own(path):
    name = module_name(path)
    room = room_of(name)
    others = {room_of(other) for other in imports(path)} - {room}
    above = {other for other in others if FLOOR[other] >= FLOOR[room]}
    assert not above, f"{name} (floor {FLOOR[room]}) imports {above}"


def test_the_laboratory_is_reached_by_name_alone():
    found = {
        module_name(path): used
        for path in MODULES
        if room_of(module_name(path)) in NO_LABORATORY
        and (used := {other for other in imports(path) if in_laboratory(other)})
    }
    assert found == {}


def test_no_circles():
    graph = {module_name(path): set(imports(path)) - {module_name(path)} for path in MODULES}
    done = set()

    def visit(name, path):
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_code_outside_methods_imports_no_method_by_name(path):
    if room_of(module_name(path)) in ("methods", "lab.pretrain"):
        return  # what a shipped policy is taught are the methods' own prompts
    named = [name for name in imports(path) if name.startswith("methods.")]
    assert not named, f"{module_name(path)} imports {named}"


def test_core_knows_no_torch():
    for path in (PACKAGE / "core").glob("*.py"):
        tree = ast.parse(path.read_text())
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {getattr(node, "module", None) or node.names[0].name for node in nodes}
        assert not {module for module in modules if module.split(".")[0] in ("torch", "trl")}, path


@pytest.mark.slow
def test_the_facade_has_its_names_and_does_not_import_torch():
    code = (
        "import sys, spnb, spnb.rewards\n"
        "names = 'make_plan run_all run_one load_policy make_estimator rewards grade pass_at_k "
        "reference exhibit make_game Chat Sampling parallel run'.split()\n"
        "light = [n for n in names if n not in ('load_policy',)]\n"
        "[getattr(spnb, n) for n in light]\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "[getattr(spnb, n) for n in names]\n"
        "assert spnb.evaluation.pass_at_k(4, 1, 2) == 0.5 and callable(spnb.reference.load)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_of_the_facade_is_answered():
    with pytest.raises(AttributeError, match="spnb has no 'make_plam'; it has: "):
        spnb.make_plam  # noqa: B018


@pytest.mark.slow
def test_sizes():
    """What is one thing is one file, up to 400 lines of code and docstrings; a room's limit is in
    test_sizes.py."""
    larger = {
        "spell.py": 500,  # Algorithm 1, its memory, its parameters
        "ssp.py": 480,  # Algorithm 1, its filters and batch strategies, its parameters
        "scope.py": 524,  # Algorithm 1, three roles and their rewards, its parameters
        "run.py": 432,  # a run from its parameters to final weights: stages, evaluation, resume
        "skills.py": 420,  # every start's skills, suite by suite
        "tables.py": 410,  # rows, columns and cells, and the paper's beside them
        "loaders.py": 410,  # every layout in which benchmarks are published, as tasks
        "frame.py": 460,  # every reader of items and logs, and the one measure on them
    }
    for path in MODULES:
        lines = sum(lines_of(path.read_text()))
        assert lines <= larger.get(path.name, 400), (path, lines)
