"""The house: rooms import only from floors below, without circles, and the facade is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import spnb

PACKAGE = Path(spnb.__file__).parent
FLOORS = [
    {"core"},
    {"games", "lab", "corpus", "reference"},
    {"evaluate"},
    {"methods"},
    {"train"},
    {"report"},
    {"recipe"},
    {"cli"},
]
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


def imports(path):
    """Modules of spnb that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "spnb":
            base = node.module.removeprefix("spnb").removeprefix(".")
            inside = [f"{base}.{alias.name}".strip(".") for alias in node.names]
            names = [name if name in NAMES else base for name in inside]
        elif isinstance(node, ast.Import):
            names = [a.name.removeprefix("spnb.") for a in node.names if a.name.startswith("spnb.")]
        yield from (name for name in names if name)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_rooms_import_from_floors_below_or_their_own(path):
    room = module_name(path).split(".")[0]
    others = {name.split(".")[0] for name in imports(path)} - {room}
    above = {other for other in others if FLOOR[other] >= FLOOR[room]}
    assert not above, f"{module_name(path)} (floor {FLOOR[room]}) imports {above}"


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
    if module_name(path).split(".")[0] in ("methods", "recipe"):
        return
    named = [name for name in imports(path) if name.startswith("methods.")]
    assert not named, f"{module_name(path)} imports {named}"


def test_core_knows_no_torch():
    for path in (PACKAGE / "core").glob("*.py"):
        tree = ast.parse(path.read_text())
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {getattr(node, "module", None) or node.names[0].name for node in nodes}
        assert not {module for module in modules if module.split(".")[0] in ("torch", "trl")}, path


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


def test_sizes():
    """DESIGN: a method file about 300 lines, a module 400, the package 10,500 (see the README)."""
    for path in MODULES:
        lines = path.read_text().count("\n")
        assert lines <= (300 if path.parent.name == "methods" else 400), (path, lines)
