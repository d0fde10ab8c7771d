"""The process that compares formulas: its time limit, in threads and forked processes too."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spnb.core import formulas

HARD = r"(9^{9999})^{9999}"
"""A number of 95 million digits: no signal stops the operation in C that multiplies it out."""


@pytest.fixture
def limit(monkeypatch):
    """A short time limit and a process of its own."""
    monkeypatch.setattr(formulas, "LIMIT", 1.0)
    for function in (formulas._comparer, formulas.are_equal, formulas.has_value):
        function.cache_clear()
    yield formulas.LIMIT
    for function in (formulas._comparer, formulas.are_equal, formulas.has_value):
        function.cache_clear()


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("2*x**2", r"2\cdot x^2"),
        ("x^(1/2)", "x^{1/2}"),
        ("sqrt((x+1)^2)", r"\sqrt {(x+1)^2}"),
        ("4.5e-19", r"4.5\cdot 10^{-19}"),
        ("2 pi", r"2 \pi "),
        ("silent", None),
        ("is", None),
        ("5 km", None),
        ("3 1/2", r"3\frac{1}{2}"),
        ("2 3/4 5", None),
        ("__import__('os')", None),
        (r"\int x", None),
        ("", None),
        ("…", None),
    ],
)
def test_formulas_in_latex(text, latex):
    assert formulas.latex(text) == latex


@pytest.mark.slow
def test_a_formula_that_takes_too_long_is_unequal_and_the_next_one_is_compared(limit):
    start = time.monotonic()
    assert not formulas.has_value(HARD)
    assert not formulas.are_equal(HARD, "1")
    assert formulas.are_equal("x+1", "1+x")
    assert time.monotonic() - start < 60


@pytest.mark.slow
def test_in_threads(limit):
    with ThreadPoolExecutor(4) as pool:
        pairs = [(f"{n}x+1", f"1+{n + n % 2}x") for n in range(2, 12)]
        answers = list(pool.map(lambda pair: formulas.are_equal(*pair), pairs))
        assert answers == [n % 2 == 0 for n in range(2, 12)]
        assert not pool.submit(formulas.has_value, HARD).result()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform does not fork")
def test_in_a_forked_process(limit):
    assert formulas.are_equal("x+1", "1+x")  # the parent's process runs
    child = os.fork()
    if not child:
        try:
            right = formulas.are_equal("2x+1", "1+2x") and not formulas.has_value(HARD)
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert formulas.are_equal("3x+1", "1+3x")


@pytest.mark.slow
def test_the_process_ends_with_the_one_that_started_it():
    program = (
        "from spnb.core import formulas as f; f.are_equal('x', 'y');"
        "print(f._comparer(f.os.getpid()).process.pid)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not run.stderr
    end = time.monotonic() + 20
    while time.monotonic() < end and os.path.exists(f"/proc/{int(run.stdout)}"):
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{int(run.stdout)}")


@pytest.mark.slow
def test_a_process_that_was_killed_is_started_again(limit):
    assert formulas.are_equal("x+1", "1+x")
    process = formulas._comparer(os.getpid()).process
    process.kill()
    process.wait()
    assert formulas.are_equal("x+2", "2+x")


@pytest.mark.slow
def test_without_math_verify_it_says_so(limit, monkeypatch, tmp_path):
    (tmp_path / "math_verify.py").write_text("raise ImportError('no such thing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ImportError, match="math-verify does not load: .*no such thing"):
        formulas.has_value("x+1")
