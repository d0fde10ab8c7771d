"""The outputs that committed notebooks carry: those of the committed run, small and portable.

`python -m tools.stored NAME ...` takes them out of `runs/notebooks/<NAME>-cpu.ipynb`, where
`spnb reproduce` leaves its executed copies, and puts them into `notebooks/<NAME>.ipynb`. Those of
`00_tour` and `20_gpu` are of scale smoke: neither shows a result of its runs. `faults`
says what is wrong with a notebook's stored outputs; a test calls it for each.
"""

import ast
import base64
import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from spnb.core import params
from spnb.core.paths import ROOT, resolve
from spnb.report.exhibits import catalogue, small_png
from spnb.train import provenance

SCALES = defaultdict(lambda: "cpu", {"00_tour": "smoke", "20_gpu": "smoke"})
"""The scale of a notebook's stored outputs."""
LIMIT = 400_000
"""Bytes of a notebook with its outputs."""
KINDS = ("image/png", "text/html", "text/markdown", "text/latex", "text/plain")
"""What is kept of an output: the first of these that it has."""
BAR = re.compile(r"\d+%\||\[\d+:\d\d[<,]")
"""What a line of a progress bar has, and no other: "33%|" or "[00:07<00:14"."""
LEFT_OUT = "not-stored"
"""The tag of a cell that has links to its exhibits instead, because all would be too large."""
PATH = re.compile(r"(?<![\w<:/.)])(?:/[\w.-]+){2,}")
"""An absolute path in text or HTML, not a closing tag, a URL or a/b."""
PICTURE = re.compile(r"base64,[\w+/=]+")
"""A picture inside HTML."""
COMMAND = "make store"


class StoredError(RuntimeError):
    """Outputs that cannot be stored; the message says why and what to do."""


def store(executed: Path, source: Path) -> None:
    """Puts the outputs of an executed copy into the notebook that it was made from.

    A cell with the tag `not-stored` gets links to its exhibits in figures/. The parameters' cell
    says which command made the outputs, where that had other values than stand in the cell.

    Args:
        executed: what papermill wrote.
        source: the notebook; its cells stay as they are, earlier outputs are replaced.

    Raises:
        StoredError: the copy is of another source, of another run than the committed one or failed;
            an output has a path of this machine; the notebook would be too large. Nothing changes.
    """
    if not executed.exists():
        raise StoredError(f"{executed} does not exist; run first: make reproduce")
    copy, notebook = (nbformat.read(path, as_version=4) for path in (executed, source))
    given = _given(copy, executed, SCALES[source.stem])
    cells = [cell for cell in code_cells(copy) if "injected-parameters" not in _tags(cell)]
    if source_hash(cells) != source_hash(code_cells(notebook)):
        raise StoredError(f"{executed} has other code than {source}; run make reproduce again")
    for cell, ran in zip(code_cells(notebook), cells, strict=True):
        portable = (_portable(output) for output in ran.outputs)
        cell.outputs = [output for output in portable if output]
        if LEFT_OUT in _tags(cell):
            cell.outputs = links(_exhibits(ran.outputs))
        if "parameters" in _tags(cell) and (words := made_by(source.stem, cell.source, given)):
            cell.outputs = [nbformat.v4.new_output("display_data", {"text/markdown": words})]
        cell.execution_count = None
    notebook.metadata["spnb"] = {
        "source": source_hash(cells),
        "scale": SCALES[source.stem],
        "executed": copy.metadata.papermill.start_time[:10],
        "commit": provenance.commit(),
    }
    if found := faults(notebook):
        raise StoredError(f"{source.name} with the outputs of {executed}: " + "; ".join(found))
    source.write_text(_text(notebook), encoding="utf-8")


def links(exhibit_ids: Sequence[str]) -> list[NotebookNode]:
    """Outputs in place of exhibits: the picture in figures/ if it has one, and the gallery."""
    outputs = []
    for exhibit_id in exhibit_ids:
        paper, name = exhibit_id.split("/")
        page = f"../figures/{paper}/README.md#{name}"
        text = f"[{exhibit_id}]({page}): {catalogue()[exhibit_id].title}"
        if (ROOT / f"figures/{exhibit_id}.png").is_file():
            text = f"[![{exhibit_id}](../figures/{exhibit_id}.png)]({page})\n\n{text}"
        outputs.append(nbformat.v4.new_output("display_data", {"text/markdown": text}))
    return outputs


def _exhibits(outputs: Sequence[NotebookNode]) -> list[str]:
    """The exhibits that outputs show: their text is the id, or begins with it."""
    texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
    ids = (text.partition(":")[0] for text in texts)
    return list(dict.fromkeys(name for name in ids if name in catalogue()))


def made_by(name: str, cell: str, given: Mapping[str, Any]) -> str:
    """A line that says which command made a notebook's outputs; "" if the cell's values did.

    Args:
        name: of the notebook, for instance 01_spell.
        cell: the parameters' cell.
        given: what papermill was told.
    """
    lines = [line for line in ast.parse(cell).body if isinstance(line, ast.Assign)]
    shown = {ast.unparse(line.targets[0]): ast.unparse(line.value) for line in lines}
    told = {key: repr(given[key]) for key in ("scale", "variants") if key in given}
    if all(shown.get(key) == value for key, value in told.items()):
        return ""
    paper = name.partition("_")[2]
    scale = SCALES[name]
    command = f"papermill {name}.ipynb {name}-{scale}.ipynb -p scale {scale}"
    if paper in params.papers():
        every = set(params.variants_at(paper, scale))
        names = given.get("variants") or []
        variants = "all" if set(names) == every else ",".join(names)
        command = f"make reproduce PAPER={paper}" + (f" VARIANTS={variants}" if names else "")
    return f"*The outputs below are those of* `{command}`."


def faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with a notebook's stored outputs, a phrase each; empty if nothing is.

    A notebook without outputs has one fault, that they are missing.
    """
    cells = code_cells(notebook)
    if not any(cell.outputs for cell in cells):
        return [f"no outputs are stored; {COMMAND}"]
    found = []
    if notebook.metadata.get("spnb", {}).get("source") != source_hash(cells):
        found.append(f"the code is not what was executed; make reproduce, then {COMMAND}")
    for number, cell in enumerate(cells, 1):
        if "exhibit(" in cell.source and not cell.outputs:
            found.append(f"code cell {number}: an exhibit without output; {COMMAND}")
        found += [f"code cell {number}: {fault}" for o in cell.outputs if (fault := _fault(o))]
    if (size := len(_text(notebook).encode())) > LIMIT:
        sizes = {number: len(str(cell.outputs)) for number, cell in enumerate(cells, 1)}
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
        shown = ", ".join(f"{number} ({sizes[number] // 1000} kB)" for number in largest)
        found.append(
            f"{size // 1000} kB, allowed {LIMIT // 1000}; the largest code cells are {shown}; the "
            f"tag {LEFT_OUT!r} leaves links in a cell"
        )
    return found


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """A notebook's code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def source_hash(cells: list[NotebookNode]) -> str:
    """SHA-256 of the sources of code cells, in order.

    What is imported from spnb counts by its names alone: outputs stay those of the code where a
    name moved to another module.
    """
    return hashlib.sha256("\0".join(_code(cell.source) for cell in cells).encode()).hexdigest()


def _code(source: str) -> str:
    """A cell's source, its imports from spnb as names behind the rest."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a cell with a magic
        return source
    imports = [
        node
        for node in statements
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "spnb"
    ]
    names = [name for node in imports for name in node.names]
    spelled = sorted(f"{name.name} as {name.asname or name.name}" for name in names)
    taken = {line for node in imports for line in range(node.lineno, node.end_lineno + 1)}
    lines = [line for n, line in enumerate(source.split("\n"), 1) if n not in taken]
    return "\n".join([*lines, *spelled])


def _given(copy: NotebookNode, executed: Path, scale: str) -> dict[str, Any]:
    """What papermill was told; StoredError where that is not the committed run or it failed."""
    record = copy.metadata.get("papermill", {})
    if record.get("exception"):
        raise StoredError(f"{executed} ended with an error; run make reproduce again")
    if any(cell.source.strip() and cell.execution_count is None for cell in code_cells(copy)):
        raise StoredError(f"{executed} was not executed to its end; run make reproduce again")
    values = dict(record.get("parameters", {}))
    figures = resolve(values.get("figures", provenance.COMMITTED))
    other = values.keys() - {"scale", "figures", "variants"}
    if values.get("scale") != scale or figures != resolve(provenance.COMMITTED) or other:
        raise StoredError(
            f"{executed} was executed with {values}; allowed: scale {scale!r}, variants, and "
            f"figures {provenance.COMMITTED!r}"
        )
    return values


def _portable(output: NotebookNode) -> NotebookNode | None:
    """An output as it is stored: one kind of data, no bars, widgets or logs; None if none is left.

    Paths inside the project become relative to it.
    """
    if output.output_type == "stream":
        lines = [line.rpartition("\r")[2] for line in output.text.split("\n")]
        text = _relative("\n".join(line for line in lines if not BAR.search(line)))
        shown = output.name == "stdout" and text.strip()
        return nbformat.v4.new_output("stream", name="stdout", text=text) if shown else None
    if output.output_type == "error":
        return output  # a fault, named by `faults`
    kind = next((kind for kind in KINDS if kind in output.data), None)
    if kind is None or any("jupyter.widget" in each for each in output.data):
        return None
    value = output.data[kind]
    if kind == "image/png":
        small = base64.b64encode(small_png(base64.b64decode(value))).decode()
        return nbformat.v4.new_output("display_data", {kind: small})
    if "<progress" in value or (kind == "text/plain" and BAR.search(value)):
        return None
    return nbformat.v4.new_output("display_data", {kind: _relative(value)})


def _fault(output: NotebookNode) -> str:
    """What a stored output must not have, "" if nothing."""
    if output.output_type == "error":
        return f"an error, {output.ename}"
    if output.get("name") == "stderr":
        return "a log (stderr)"
    data = output.get("data", {})
    if wrong := [kind for kind in data if kind not in KINDS]:
        return f"an output of the kind {wrong[0]}"
    text = "".join([output.get("text", ""), *(v for k, v in data.items() if k != "image/png")])
    if BAR.search(text):
        return "a progress bar"
    path = PATH.search(PICTURE.sub("", text))
    return f"the path {path[0]}, which is of one machine" if path else ""


def _relative(text: str) -> str:
    return text.replace(f"{ROOT}/", "")


def _tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def _text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook, version=4) + "\n"


def main(names: list[str]) -> int:
    """Stores the outputs of the named notebooks, of all if none is named; 1 if one cannot be."""
    sources = [ROOT / "notebooks" / f"{name}.ipynb" for name in names]
    failed = 0
    for source in sources or sorted((ROOT / "notebooks").glob("*.ipynb")):
        try:
            store(resolve("runs/notebooks") / f"{source.stem}-{SCALES[source.stem]}.ipynb", source)
            print(f"{source.stem}: {source.stat().st_size // 1000} kB with its outputs")
        except (StoredError, FileNotFoundError) as error:
            failed = 1
            print(f"{source.stem}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
