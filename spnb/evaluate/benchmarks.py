"""What the published benchmarks are (`benchmarks.yaml`), and how a run names those it measures."""

import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from spnb.core.params import ParamError, StrictData, require, validate
from spnb.core.paths import packaged_yaml
from spnb.core.prompts import Exam

HUB = "hub"
SEARCH = "search"
REPORT = "report"
BY_SEARCH = (SEARCH, REPORT)
"""The prompts of benchmarks whose questions are answered with the run's retriever; reports are
graded by a rubric."""


class Each(StrictData):
    """The items of a list, each written by a template over the item: of a column, or by dots of a
    mapping in it. `times`, over the row, is a number by which those of the items are multiplied."""

    column: str
    text: str = "{}"
    times: str = ""


Template = str | Each | list[str | Each]
"""One text or several over a row's columns, in Python's format syntax."""


class Asking(StrictData):
    """How a benchmark is asked; None is decided elsewhere."""

    samples: int | None = Field(None, ge=1, description="answers to each question")
    temperature: float | None = Field(None, ge=0, description="0 is greedy")
    top_p: float | None = Field(None, gt=0, le=1)
    max_new_tokens: int | None = Field(None, ge=1)
    limit: int | None = Field(None, ge=1, description="tokens of a prompt; cuts long texts")
    count: int | None = Field(None, ge=1, description="questions, drawn from all")

    def settings(self) -> dict[str, Any]:
        """What is not None."""
        return self.model_dump(include=set(Asking.model_fields), exclude_none=True)


class Protocol(Asking):
    """How a paper asks a benchmark, and the column of its tables that it stands in."""

    column: str


class Use(Asking):
    """How a run asks a benchmark: what is None as its paper does, else as its other evaluations."""

    path: str = Field(HUB, description="hub, or a local file or folder")
    revision: str | None = Field(None, description="of the hub's dataset: a commit, a tag")
    every: bool = Field(False, description="at every evaluation, not only at both ends of the run")


class Beside(StrictData):
    """A second file of a benchmark, with a row for each of the first's that has the same value in a
    column, and a text made of it, by a template over it."""

    file: str
    column: str
    text: str


class Benchmark(StrictData):
    """An entry of benchmarks.yaml, which explains the fields."""

    about: str
    size: int = Field(1000, ge=1)
    dataset: str
    config: str | None = None
    split: str
    revision: str | None = None
    files: str | None = None
    beside: Beside | None = None
    where: dict[str, Any] = {}
    chat: str | None = None
    question: str
    documents: Template = []
    options: Template = []
    shuffle: bool = False
    answer: Template
    weights: Template = []
    pattern: str | None = None
    difficulty: str = ""
    prompt: Exam | Literal["search", "report"]
    kind: str
    tolerance: float = Field(0.0, ge=0)
    tag: Literal["answer", "boxed"]
    papers: dict[str, Protocol]

    def asking(self, paper: str, use: Use) -> dict[str, Any]:
        """How it is asked: as a run says, else as its paper does."""
        return self.papers.get(paper, Asking()).settings() | use.settings()

    @property
    def names(self) -> list[str]:
        """Of two files, in a local folder; empty where there is one."""
        both = (self.files or "", self.beside.file) if self.beside else ()
        return [Path(file).name for file in both]

    @property
    def columns(self) -> list[str]:
        """The columns that a file must have."""
        columns = [*self.where]
        own = (self.question, self.documents, self.options, self.answer, self.difficulty)
        for spec in (*own, self.weights):
            for part in spec if isinstance(spec, list) else [spec]:
                text = part if isinstance(part, str) else f"{{{part.column}}}{part.times}"
                fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
                columns += [re.split(r"[.\[]", field)[0] for field in fields]
        if self.chat:
            columns = [self.chat, *(name for name in columns if name not in ("turns", "last"))]
        return list(dict.fromkeys(columns))


BENCHMARKS = {
    name: validate(Benchmark, entry, f"{name}.")
    for name, entry in packaged_yaml("evaluate/benchmarks.yaml").items()
}


def read_uses(value: Any) -> Any:
    """A run's parameter `benchmarks`, where a path or null (the hub) may stand for a whole `Use`.

    Raises:
        ParamError: a name that is no benchmark, a revision of what is not on the hub.
    """
    if not isinstance(value, Mapping):
        return value
    uses = {}
    for name, use in value.items():
        require("benchmark", name, BENCHMARKS)
        use = HUB if use is None else use
        uses[name] = use = {"path": use} if isinstance(use, str) else use
        pinned = use.get("revision") if isinstance(use, Mapping) else None
        if pinned and (BENCHMARKS[name].dataset == "json" or use.get("path", HUB) != HUB):
            key = f"benchmarks.{name}.revision"
            raise ParamError(f"{key} is {pinned!r}; allowed: none, it is no dataset of the hub")
    return uses
