"""The house: rooms import only from floors below, and only a method's own files know a paper's
name."""

import ast
from pathlib import Path

import pytest

import spnb

PACKAGE = Path(spnb.__file__).parent
FLOORS = [
    [
        "paths",
        "params",
        "rollout",
        "advantages",
        "grading",
        "stats",
        "roles",
        "reference",
        "provenance",
        "doctor",
        "data",
        "games",
        "embedded",
        "patterns",
    ],
    ["engines", "methods", "evaluation", "runs"],
    ["policy", "exhibits", "plots", "dynamics", "results", "tables", "claims"],
    ["trainer"],
    ["experiment", "live"],
    ["notebooks"],
    ["cli"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
INSIDE = {"embedded/check.py": 3, "embedded/skills.py": 3}
"""Files that stand higher than their folder: embedded policies are measured with engines,
evaluation and methods."""
SHARED = {"__init__", "base", "search", "proposals"}
"""Modules of `methods` that are no method but serve several."""
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    """Rooms of spnb that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{alias.name}" if node.module == "spnb" else node.module
                for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("spnb."))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_rooms_import_from_floors_below_or_their_own(path):
    inside = path.relative_to(PACKAGE)
    room = inside.parts[0].removesuffix(".py")
    if room == "__init__":
        return
    floor = INSIDE.get(str(inside), FLOOR[room])
    higher = {other for other in imports(path) if FLOOR[other] > floor}
    assert not higher, f"{inside} (floor {floor + 1}) imports {higher}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_code_outside_a_method_imports_no_method_by_name(path):
    if path.parent.name == "methods":
        return
    papers = {other.stem for other in (PACKAGE / "methods").glob("*.py")} - SHARED
    tree = ast.parse(path.read_text())
    named = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    assert not [
        name for name in named if name.startswith("spnb.methods.") and name.split(".")[-1] in papers
    ]
