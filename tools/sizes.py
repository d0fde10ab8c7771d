"""How large the code is: lines of code and of docstrings a room, without blanks and comments.

    python -m tools.sizes

writes the table of `spnb/README.md` again, between its two markers.
"""

import ast
import io
import tokenize
from collections.abc import Collection
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "spnb"
README = PACKAGE / "README.md"
MARKERS = ("<!-- sizes -->", "<!-- end of sizes -->")
STOREYS = {
    "helper": ("core", "methods", "train"),
    "environments": ("games", "corpus", "evaluate"),
    "laboratory": ("lab",),
    "results": ("report", "reference"),
    "command line": ("cli",),
}
"""The rooms of each storey; the facade `spnb/__init__.py` counts to the command line's."""
FACADE = ("__init__", "cli")
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Size = tuple[int, int]
"""Lines of code, lines of docstrings."""


@cache
def lines_of(source: str) -> Size:
    """Lines of code and of docstrings of a module's text; a blank line in a docstring is none.

    What stands in quotes alone, below a constant too, is a docstring.
    """
    told: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(alone, ast.Constant) and isinstance(alone.value, str):
            told.update(range(alone.lineno, (alone.end_lineno or alone.lineno) + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            used.update(range(token.start[0], token.end[0] + 1))
    filled = {place for place, line in enumerate(source.splitlines(), 1) if line.strip()}
    return len(used & filled - told), len(told & filled)


def room_sizes(package: Path = PACKAGE) -> dict[str, Size]:
    """The lines of each room; a room is a folder of the package, or `cli`."""
    sizes: dict[str, Size] = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        room = "cli" if room in FACADE else room
        code, told = lines_of(path.read_text())
        before = sizes.get(room, (0, 0))
        sizes[room] = before[0] + code, before[1] + told
    return sizes


def table(sizes: dict[str, Size]) -> str:
    """The table of storeys and rooms, with sums, in Markdown."""
    rows = ["| storey | room | code | docstrings | lines |", "| --- | --- | ---: | ---: | ---: |"]
    for storey, rooms in STOREYS.items():
        for room in rooms:
            rows.append(_row(storey, f"`{room}`", sizes[room]))
        if len(rooms) > 1:
            rows.append(_row(storey, "together", total(sizes, rooms)))
    return "\n".join([*rows, _row("**all**", "", total(sizes, sizes))])


def total(sizes: dict[str, Size], rooms: Collection[str]) -> Size:
    """The sum over some rooms."""
    parts = [size for room, size in sizes.items() if room in rooms]
    return sum(code for code, _ in parts), sum(told for _, told in parts)


def _row(storey: str, room: str, size: Size) -> str:
    cells = [storey, room, *(f"{number:,}" for number in (*size, sum(size)))]
    return f"| {' | '.join(cells)} |"


def with_table(text: str, rows: str, markers: tuple[str, str] = MARKERS) -> str:
    """A text with the table between its markers."""
    first, last = markers
    before, _, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise ValueError(f"the text has no markers; allowed: {first} before {last}")
    return f"{before}{first}\n{rows}\n{last}{after}"


def write(readme: Path = README) -> str:
    """Writes today's table into a file, and returns it."""
    rows = table(room_sizes())
    readme.write_text(with_table(readme.read_text(), rows))
    return rows


if __name__ == "__main__":
    print(write())
