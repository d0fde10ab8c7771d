"""How large each room may be, that the README's table is up to date, and what counts as a line."""

import pytest

from tools.sizes import (
    MARKERS,
    README,
    STOREYS,
    lines_of,
    room_sizes,
    table,
    total,
    with_table,
    write,
)

BUDGET = {  # lines of code and docstrings: today's, to the next 10
    "core": 2_770,
    "methods": 3_060,
    "train": 5_140,
    "games": 1_240,
    "corpus": 1_600,
    "evaluate": 1_520,
    "lab": 4_650,
    "report": 6_030,
    "reference": 100,
    "cli": 400,
}
HELPER = 10_960
"""Core, methods and train together; 6,500 is where they should be."""
EVERYTHING = 26_410
"""18,000 is where it should be before `report` is rebuilt, 15,200 after that."""


@pytest.fixture(scope="module")
def sizes():
    return room_sizes()


MODULE = '''"""Two lines of
docstring, and a blank one that does not count.

"""
# a comment

X = 1  # code
"""Below a constant."""


def f(
    a,
):
    """One."""
    text = """a

    string"""
    return text + \\
        str(a)
'''


def test_what_counts_as_a_line():
    """Code: X, the three lines of def, two of the string, two of return; its blank line is none."""
    assert lines_of(MODULE) == (8, 5)
    assert lines_of("") == (0, 0) and lines_of("x = 1; y = 2\n\n# z\n") == (1, 0)


@pytest.mark.parametrize("room", BUDGET)
def test_no_room_outgrows_its_budget(room, sizes):
    assert sum(sizes[room]) <= BUDGET[room]


def test_the_helper_and_the_whole_stay_within_theirs(sizes):
    assert sum(total(sizes, STOREYS["helper"])) <= HELPER
    assert sum(total(sizes, sizes)) <= EVERYTHING


def test_every_room_is_in_one_storey_and_has_a_budget(sizes):
    rooms = [room for storey in STOREYS.values() for room in storey]
    assert sorted(rooms) == sorted(sizes) == sorted(BUDGET)


def test_the_readme_has_todays_table(sizes):
    text = README.read_text()
    assert text == with_table(text, table(sizes)), "run: python -m tools.sizes"


def test_the_table_has_rooms_and_sums(sizes):
    round_ones = dict.fromkeys(sizes, (1000, 10)) | {"core": (1, 2)}
    lines = table(round_ones).splitlines()
    assert "| helper | `core` | 1 | 2 | 3 |" in lines
    assert "| helper | together | 2,001 | 22 | 2,023 |" in lines
    assert lines[-1] == "| **all** |  | 9,001 | 92 | 9,093 |"


def test_a_text_without_markers_is_named():
    assert with_table(f"a\n{MARKERS[0]}\nold\n{MARKERS[1]}\nb", "new") == (
        f"a\n{MARKERS[0]}\nnew\n{MARKERS[1]}\nb"
    )
    with pytest.raises(ValueError, match="has no markers; allowed: <!-- sizes --> before"):
        with_table("a", "new")


def test_the_command_writes_the_table_between_the_markers(tmp_path, sizes):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKERS[0]}\nold\n{MARKERS[1]}\nafter\n")
    assert write(readme) == table(sizes)
    assert readme.read_text() == f"before\n{MARKERS[0]}\n{table(sizes)}\n{MARKERS[1]}\nafter\n"
