"""Committed notebooks carry the outputs of the committed run, and only what belongs there."""

import base64
import hashlib
import io
import re

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from spnb.core.params import variants_at
from spnb.core.paths import ROOT
from spnb.report.exhibits import catalogue
from spnb.train import provenance
from tools import stored
from tools.stored import StoredError, faults, source_hash, store

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EVERY = list(variants_at("spell", "cpu"))
CODE = ['scale = "cpu"', "train()", "table"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_outputs_that_belong_to_its_code_and_to_no_machine(path):
    assert faults(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize(
    ("changed", "equal"),
    [
        ("from spnb.lab import one, two\nx = 1", True),
        ("from spnb.testbed import two\nfrom spnb.core import one\nx = 1", True),
        ("from spnb.testbed import (\n    one,\n    two,\n)\nx = 1", True),
        ("from spnb.testbed import one, three\nx = 1", False),
        ("from spnb.testbed import one, two as three\nx = 1", False),
        ("from spnb.testbed import one, two\nx = 2", False),
        ("from other.testbed import one, two\nx = 1", False),
        ("import spnb.testbed\nx = 1", False),
        ("%matplotlib inline", False),
    ],
)
def test_a_name_that_moved_within_spnb_is_the_same_code_and_nothing_else_is(changed, equal):
    before = [new_code_cell("from spnb.testbed import one, two\nx = 1")]
    assert (source_hash([new_code_cell(changed)]) == source_hash(before)) is equal


def picture():
    """A PNG of 4,096 colours in base64."""
    colours = np.arange(64 * 64 * 3).reshape(64, 64, 3) // 3 * [1, 7, 31] % 256
    png = io.BytesIO()
    Image.fromarray(colours.astype("uint8")).save(png, format="png")
    return base64.b64encode(png.getvalue()).decode()


OUTPUTS = [
    new_output("stream", name="stdout", text="0 runs: 0step [00:00, ?step/s]\n4 runs\n"),
    new_output("stream", name="stdout", text=" 33%|###      | 1/3\r100%|######| 3/3\n"),
    new_output("stream", name="stderr", text="WARNING: a log"),
    new_output("display_data", {"text/plain": " 50%|#####     | 2/4 steps [00:07<00:07]"}),
    new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "H"}),
    new_output("execute_result", {"text/plain": "<Figure>", "image/png": picture()}),
    new_output("display_data", {"text/html": "<table>a/b</table>", "text/plain": "a/b"}),
    new_output("execute_result", {"text/plain": f"PosixPath('{ROOT}/figures/a.png'), 44 %"}),
]


@pytest.fixture
def pair(tmp_path):
    """A source without outputs, and `make(outputs, parameters, ...)` that writes its copy."""
    source, executed = tmp_path / "source.ipynb", tmp_path / "executed.ipynb"
    tagged = {"tags": ["parameters"]}
    cells = [new_markdown_cell("# A"), new_code_cell(CODE[0], metadata=tagged)]
    cells += map(new_code_cell, CODE[1:])
    nbformat.write(new_notebook(cells=cells), source)

    def make(outputs=(), parameters=None, exception=None, code="table", count=4):
        injected = new_code_cell("scale = 'cpu'", metadata={"tags": ["injected-parameters"]})
        ran = [new_markdown_cell("# An older text"), cells[1].copy(), injected, cells[2].copy()]
        for place, cell in enumerate(ran[1:], 1):
            cell.execution_count = place
        last = new_code_cell(code, outputs=list(outputs), execution_count=count)
        record = {"parameters": {"scale": "cpu"} if parameters is None else parameters}
        record |= {"exception": exception, "start_time": "2026-11-22T06:52:25.974075+00:00"}
        copy = new_notebook(cells=[*ran, last], metadata={"papermill": record, "widgets": {"a": 1}})
        nbformat.write(copy, executed)
        return executed, source

    return make


def test_pictures_tables_and_text_are_stored_and_nothing_else(pair):
    executed, source = pair(OUTPUTS)
    store(executed, source)
    notebook = nbformat.read(source, as_version=4)
    assert [cell.source for cell in notebook.cells] == ["# A", *CODE]
    *others, last = stored.code_cells(notebook)
    assert [cell.outputs for cell in others] == [[], []]
    text, figure, table, relative = last.outputs
    assert text.text == "4 runs\n"
    assert list(figure.data) == ["image/png"]
    small = Image.open(io.BytesIO(base64.b64decode(figure.data["image/png"])))
    assert small.size == (64, 64) and len(small.convert("RGB").getcolors()) <= 256
    assert dict(table.data) == {"text/html": "<table>a/b</table>"}
    assert dict(relative.data) == {"text/plain": "PosixPath('figures/a.png'), 44 %"}
    assert notebook.metadata["spnb"] == {
        "source": hashlib.sha256("\0".join(CODE).encode()).hexdigest(),
        "scale": "cpu",
        "executed": "2026-11-22",
        "commit": provenance.commit(),
    }
    assert "widgets" not in notebook.metadata
    assert faults(notebook) == []


def test_changed_code_makes_outputs_stale_and_changed_text_does_not(pair):
    executed, source = pair(OUTPUTS)
    store(executed, source)
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[0].source = "# Better words"
    assert faults(notebook) == []
    notebook.cells[2].source = "train(seeds=[0])"
    assert faults(notebook) == [
        "the code is not what was executed; make reproduce, then make store"
    ]
    for cell in stored.code_cells(notebook):
        cell.outputs = []
    assert faults(notebook) == ["no outputs are stored; make store"]


def test_storing_again_replaces(pair):
    store(*pair(OUTPUTS))
    _, source = pair(OUTPUTS[:1])
    store(*pair(OUTPUTS[:1]))
    notebook = nbformat.read(source, as_version=4)
    assert [output.text for output in notebook.cells[-1].outputs] == ["4 runs\n"]


def test_an_exhibit_that_is_not_stored_is_a_linked_picture(pair):
    shown = [
        new_output("display_data", {"image/png": picture(), "text/plain": "spell/figure-8"}),
        new_output("display_data", {"text/html": "<p>", "text/plain": "spell/figure-8: saved"}),
        new_output("display_data", {"text/html": "<p>", "text/plain": "spell/table-2: saved"}),
        new_output("stream", text="many words"),
    ]
    executed, source = pair(shown)
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[-1].metadata["tags"] = ["not-stored"]
    nbformat.write(notebook, source)
    store(executed, source)
    notebook = nbformat.read(source, as_version=4)
    figure, table = [output.data["text/markdown"] for output in notebook.cells[-1].outputs]
    page = "../figures/spell/README.md"
    link = (
        f"[![spell/figure-8](../figures/spell/figure-8.png)]({page}#figure-8)\n\n[spell/figure-8]("
    )
    assert figure.startswith(link) and figure.endswith(catalogue()["spell/figure-8"].title)
    assert table.startswith(f"[spell/table-2]({page}#table-2): ")


def test_an_exhibit_without_output_is_a_fault(pair):
    executed, source = pair(OUTPUTS)
    store(executed, source)
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[-2].source = 'sp.exhibit("spell/table-2")'
    assert "code cell 2: an exhibit without output; make store" in faults(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_stored_outputs_link_to_is_there(path):
    cells = stored.code_cells(nbformat.read(path, as_version=4))
    texts = [
        o.data["text/markdown"]
        for c in cells
        for o in c.outputs
        if "text/markdown" in o.get("data", {})
    ]
    for link in re.findall(r"\]\(([^)#]+)", "".join(texts)):
        assert (path.parent / link).is_file(), link


CELL = 'scale = "cpu"  # a scale\nvariants = None\nrun = {"steps": 1}'


@pytest.mark.parametrize(
    ("name", "given", "command"),
    [
        ("01_spell", {"scale": "cpu"}, ""),
        ("01_spell", {"scale": "cpu", "figures": "figures"}, ""),
        (
            "01_spell",
            {"variants": ["full", "even"]},
            "make reproduce PAPER=spell VARIANTS=full,even",
        ),
        ("01_spell", {"variants": EVERY}, "make reproduce PAPER=spell VARIANTS=all"),
        ("00_tour", {"scale": "gpu"}, "papermill 00_tour.ipynb 00_tour-smoke.ipynb -p scale smoke"),
    ],
)
def test_outputs_of_other_values_than_the_cell_shows_name_their_command(name, given, command):
    words = f"*The outputs below are those of* `{command}`." if command else ""
    assert stored.made_by(name, CELL, given) == words


def test_the_command_stands_below_the_parameters(pair):
    executed, source = pair(OUTPUTS, parameters={"scale": "cpu", "variants": ["full"]})
    store(executed, source)
    first = stored.code_cells(nbformat.read(source, as_version=4))[0]
    assert (
        first.outputs[0]
        .data["text/markdown"]
        .endswith("papermill source.ipynb source-cpu.ipynb -p scale cpu`.")
    )


REFUSED = {
    "scale": ({"parameters": {"scale": "smoke"}}, "'scale': 'smoke'.*allowed: scale 'cpu'"),
    "no scale": ({"parameters": {}}, "executed with {}; allowed"),
    "seeds": ({"parameters": {"scale": "cpu", "seeds": [7]}}, "'seeds': \\[7\\].*allowed"),
    "figures": ({"parameters": {"scale": "cpu", "figures": "runs/figures"}}, "runs/figures"),
    "failed": ({"exception": True}, "ended with an error; run make reproduce"),
    "killed": ({"count": None}, "was not executed to its end; run make reproduce"),
    "code": ({"code": "other"}, "has other code than .*source.ipynb; run make reproduce"),
    "error": (
        {"outputs": [new_output("error", ename="ValueError", evalue="", traceback=[])]},
        "code cell 3: an error, ValueError",
    ),
    "path": (
        {"outputs": [new_output("stream", text="in /srv/me/x, and/or 1/2/3 </td> http://a/b/c")]},
        "code cell 3: the path /srv/me/x, which is of one machine$",
    ),
    "size": (
        {"outputs": [new_output("stream", text="many words " * 40_000)]},
        "44[01] kB, allowed 400; the largest code cells are 3 \\(440 kB\\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_of_the_committed_run_is_refused_and_changes_nothing(case, pair):
    wrong, words = REFUSED[case]
    executed, source = pair(**wrong)
    before = source.read_bytes()
    with pytest.raises(StoredError, match=words):
        store(executed, source)
    assert source.read_bytes() == before


def test_variants_and_the_committed_folder_may_be_given(pair):
    given = {"scale": "cpu", "variants": ["full"], "figures": str(ROOT / "figures")}
    store(*pair(OUTPUTS, parameters=given))
    executed, source = pair(OUTPUTS)
    executed.unlink()
    with pytest.raises(StoredError, match="executed.ipynb does not exist; run first: make reprod"):
        store(executed, source)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (new_output("stream", name="stderr", text="x"), "a log"),
        (new_output("stream", text="40%|####      |"), "a progress bar"),
        (
            new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}}),
            "an output of the kind application/vnd.jupyter.widget-view",
        ),
    ],
)
def test_what_a_person_saved_by_hand_is_found(output, words, pair):
    executed, source = pair(OUTPUTS)
    store(executed, source)
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[-1].outputs.append(output)
    (fault,) = faults(notebook)
    assert fault.startswith(f"code cell 3: {words}")


def test_the_command_stores_the_named_notebooks_and_says_what_failed(tmp_path, monkeypatch, capsys):
    calls = []

    def record(executed, source):
        calls.append((executed.relative_to(ROOT).as_posix(), source.relative_to(ROOT).as_posix()))
        if "10" in source.name:
            raise StoredError("too large")

    monkeypatch.setattr(stored, "store", record)
    assert stored.main(["04_spiral", "10_rlvr"]) == 1
    assert calls[0] == ("runs/notebooks/04_spiral-cpu.ipynb", "notebooks/04_spiral.ipynb")
    assert "10_rlvr: too large" in capsys.readouterr().err
    calls.clear()
    stored.main([])
    assert len(calls) == len(NOTEBOOKS)
