"""README, RESULTS and the notebooks' texts: links lead somewhere, numbers are those of exhibits."""

import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import nbformat
import pytest

from spnb.core import params
from spnb.core.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = {
    "spell": "01_spell",
    "spice": "02_spice",
    "spiral": "04_spiral",
    "ssp": "05_ssp",
    "scope": "03_scope",
}
SHARED = ("10_rlvr", "11_proposer")
"""Shared notebooks whose texts name intervals."""
PLAIN = ("README.md", "RESULTS.md")
PAGES = [*(ROOT / name for name in PLAIN), *NOTEBOOKS]
LINK = re.compile(r"\]\(([^)#\s]+)")
NUMBER = r"([-+]?\d+(?:\.\d+)?)"
INTERVAL = re.compile(rf"{NUMBER} (?:%|points )? ?\[{NUMBER}, {NUMBER}\]")
EXHIBIT = re.compile(r'"(\w+/[\w-]+)"')


def texts(path: Path) -> list[str]:
    """A page's texts: its Markdown cells, or all of it."""
    if path.suffix == ".md":
        return [path.read_text()]
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_relative_links_lead_to_files(path):
    links = [link for text in texts(path) for link in LINK.findall(text)]
    targets = [link for link in links if "://" not in link]
    assert [link for link in targets if not (path.parent / link).exists()] == []


def test_the_readme_is_short_and_names_the_commands():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100 and lines.index("```python") < 40
    for command in ("make lab", "make reproduce", "make test"):
        assert any(f"`{command}" in line for line in lines)


@cache
def measured() -> set[tuple[float, ...]]:
    """Every value with its interval in the committed exhibits, and the negative of each."""
    values = set()
    for path in (ROOT / "figures").glob("*/*.md"):
        for found in INTERVAL.findall(path.read_text()):
            value, low, high = map(float, found)
            values |= {(value, low, high), (-value, -high, -low)}
    return values


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLAIN, *LESSONS.values(), *SHARED])
def test_every_interval_in_the_texts_is_one_of_a_committed_exhibit(name):
    path = ROOT / name if name.endswith(".md") else ROOT / f"notebooks/{name}.ipynb"
    found = [each for text in texts(path) for each in INTERVAL.findall(text)]
    assert found and [each for each in found if not known(tuple(map(float, each)))] == []


@pytest.mark.parametrize("name", PLAIN)
def test_no_number_is_missing_in_the_texts(name):
    """A template's empty value is "-"."""
    assert re.findall(r"[^|\n]* - (?:%|points)[^|\n]*", (ROOT / name).read_text()) == []


def known(given: tuple[float, ...]) -> bool:
    """Whether some exhibit has the value and its interval, perhaps with more digits."""
    pairs = (zip(given, values, strict=True) for values in measured())
    return any(all(abs(one - other) < 0.0501 for one, other in pair) for pair in pairs)


@pytest.mark.parametrize("paper", LESSONS)
def test_a_notebook_folds_all_variants_but_the_headline_ones(paper):
    text = "\n".join(texts(ROOT / f"notebooks/{LESSONS[paper]}.ipynb"))
    folded = text[text.index("variant | what it changes") : text.index("</details>")]
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", folded, re.MULTILINE)
    known = params.variants(paper)
    assert rows == [
        (name, known[name]["about"]) for name in known if not known[name].get("headline")
    ]


@pytest.mark.parametrize(("paper", "name"), [*LESSONS.items(), ("rlvr", "10_rlvr")])
def test_a_loop_is_a_picture_that_the_web_draws(paper, name):
    text = "\n".join(texts(ROOT / f"notebooks/{name}.ipynb"))
    assert f"](../figures/loops/{paper}.svg)" in text and "```mermaid" in text
    svg = ElementTree.parse(ROOT / f"figures/loops/{paper}.svg").getroot()
    assert svg.get("viewBox").split()[2] == "900"
    heads = [each.text for each in svg.iter() if each.get("class") == "head"]
    steps = [int(head[0]) for head in heads if head[0].isdigit()]
    assert sorted(steps) == list(range(1, len(steps) + 1)) and len(steps) >= 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_exhibit_without_output_is_linked_below(path):
    cells = nbformat.read(path, as_version=4).cells
    for number, cell in enumerate(cells):
        if cell.cell_type == "code" and "sp.exhibit(" in cell.source and not cell.outputs:
            below = next(each.source for each in cells[number:] if each.cell_type == "markdown")
            for exhibit in EXHIBIT.findall(cell.source):
                assert f"../figures/{exhibit}." in below, exhibit
