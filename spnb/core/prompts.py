"""The prompts of the roles in document and search games, and how their outputs are read.

One place for words that several papers share (`prompts.yaml`): answering (with documents, without,
by choice, by search), asking, judging, writing and applying rubrics. Every output is text with
tags: `<think>`, `<search>`, `<question>`, `<answer>`, `<rubric>`. The embedded policies are
pre-trained on exactly these prompts, `exam` apart, which asks for the published benchmarks; any
chat model can follow them. Content words stand after a space, so that a name is the same token
everywhere.

One rule says what counts of an output, whoever reads it, in tags, boxes or JSON. Thoughts do not
(`outside`). Of several answers the one that begins last counts, and none does where that one is cut
off, for it takes back those before. Of a list (rubrics, inputs) all that are closed count.
"""

import re
from collections.abc import Sequence
from typing import Literal

from spnb.core.paths import packaged_yaml
from spnb.core.types import Messages

Style = Literal["careful", "plain", "steps"]
SearchStyle = Literal["careful", "plain"]
TaskType = Literal["question", "summary", "plan", "writing"]
AskKind = Literal["question", "choice", "task"]
Exam = Literal["closed", "choice", "text", "figure", "text choice", "conversation"]
OPTION = re.compile(r"- (?P<text>.+) \((?P<letter>[A-D])\)")
MARKED = re.compile(r"(?:- )?\**\(?(?P<letter>[A-D])[).:]\**\s*(?P<text>.+)")
"""Two ways to write one of a question's options."""
BREAK = re.compile(r"([\n\r\v\f\x85\u2028\u2029]+)")
PART = re.compile(
    r"[\W_]*(?:(?:the|an?)\s)?(?:task|type|document|response|point|first|second)\b[\W\d_]*:", re.I
)
"""What would begin a part of a judge's prompt at the beginning of a line."""
YES = "yes"
NO = "no"

WORDS = packaged_yaml("core/prompts.yaml")
"""What the prompts say; embedded policies are trained on exactly these words."""
TASK_TYPES: dict[str, str] = WORDS["types"]
RUBRICS = {"plain": WORDS["rubric"], "careful": WORDS["rubric careful"]}
CALLS: dict[str, dict[str, str]] = WORDS["calls"]
"""By a tool's syntax, what a request says of it in the place of the tags of xml."""


def _user(*parts: str) -> Messages:
    return [{"role": "user", "content": "\n".join(part for part in parts if part)}]


def _part(name: str, text: str) -> str:
    """A part of a judge's prompt. None begins inside it: what it judges may have been written to
    speak to it."""
    first, *rest = BREAK.split(text)
    lines = zip(rest[::2], rest[1::2], strict=True)
    later = (f" {line.lstrip()}" if PART.match(line) else mark + line for mark, line in lines)
    return f"{name}: {first}{''.join(later)}"


def listing(documents: Sequence[str]) -> str:
    """Documents as a numbered list, one a line (tables keep their own lines)."""
    return "\n".join(f"[{number}] {text}" for number, text in enumerate(documents, 1))


def answer(question: str, documents: Sequence[str], style: Style = "careful") -> Messages:
    """A question about documents; `style` decides which instruction stands before them."""
    return _user(WORDS["answer"][style], listing(documents), f"Question: {question}")


def closed(question: str) -> Messages:
    """A question without documents."""
    return _user(WORDS["closed"], f"Question: {question}")


def reason(question: str) -> Messages:
    """A question that holds all that is needed, its options too where it has some."""
    return _user(WORDS["reason"], f"Question: {question}")


def choice(question: str, options: Sequence[str], documents: Sequence[str] = ()) -> Messages:
    """A multiple-choice question, options lettered from A, with or without documents."""
    return _user(WORDS["choice"], listing(documents), f"Question: {question}", lettered(options))


def lettered(options: Sequence[str]) -> str:
    """Options, one a line, with their letters from A."""
    letters = zip("ABCDEFGHIJ", options, strict=False)
    return "\n".join(f"- {option} ({letter})" for letter, option in letters)


def read_options(text: str) -> tuple[str, list[str]]:
    """A question's text, on one line, and the options after it, one a line and in order, as
    `lettered` writes them or behind A), (A), A. or A:; the whole text and none where they do not
    stand so."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    matches = [OPTION.fullmatch(line) or MARKED.fullmatch(line) for line in lines]
    after = 1 + max((at for at, match in enumerate(matches) if not match), default=0)
    options = [match["text"] for match in matches[after:]]
    listed = [match["letter"] for match in matches[after:]] == [*"ABCD"[: len(options)]]
    return (" ".join(lines[:after]), options) if options and listed else (text.strip(), [])


def search(question: str, style: SearchStyle = "careful") -> Messages:
    """A question to be answered with a search tool; `information` writes what comes back."""
    return _user(WORDS["search"][style], f"Question: {question}")


def information(documents: Sequence[str]) -> str:
    """Search results as they are put into the policy's turn."""
    return f"\n<information>\n{listing(documents)}\n</information>\n"


def ask(
    documents: Sequence[str], earlier: Sequence[str] = (), kind: AskKind = "question", form=""
) -> Messages:
    """Asks for a question with its answer, a multiple-choice one, or a task, in a stated form;
    beyond `earlier` ones where there are some."""
    before = "\n".join(f"- {question}" for question in earlier)
    instruction = WORDS["ask"][kind] + form + (WORDS["ask beyond"] if earlier else "")
    return _user(instruction, before, listing(documents))


def ask_search(target: str, searches: int = 0, examples: Sequence[str] = ()) -> Messages:
    """Asks for a question whose answer is `target`, with a search tool; where a number of searches
    is named, one that takes so many. It is like the `examples`; with a number and without any, like
    `WORDS["corpus"]["examples"]`."""
    deeper = WORDS["corpus"]["deeper"].format(n=searches) if searches else ""
    shown = examples or (WORDS["corpus"]["examples"] if searches else ())
    how = f"{deeper} {WORDS['corpus']['like']}".strip() if shown else ""
    lines = "\n".join(f"- {example}" for example in shown)
    return _user(WORDS["ask by search"], how, lines, f"Answer: {target}")


def judge(question: str, first: str, second: str) -> Messages:
    """Asks whether two answers mean the same; each is one line, so that none can pass for two."""
    parts = {"Question": question, "First": first, "Second": second}
    lines = (f"{name}: {' '.join(part.split())}" for name, part in parts.items())
    return _user(WORDS["judge"], *lines)


def task(text: str, documents: Sequence[str]) -> Messages:
    """An open-ended task over documents."""
    return _user(WORDS["task"], listing(documents), f"Task: {text}")


def report(text: str, style: SearchStyle = "plain", searches: int = 0) -> Messages:
    """An open-ended task to be done with a search tool; `searches`: how often it may be used."""
    most = f"Queries, at most: {searches}" if searches else ""
    return _user(WORDS["report"][style], most, f"Task: {text}")


def ask_report(
    document: str, kind: TaskType, searches: int, style: SearchStyle = "plain"
) -> Messages:
    """Asks for a task of a type about a document, after so many searches."""
    what = TASK_TYPES[kind] if style == "careful" else kind
    parts = f"Type: {what}", f"Queries: {searches}", f"Document: {document}"
    return _user(WORDS["ask by reading"][style], *parts)


def identifiable(text: str) -> Messages:
    """Asks whether a task names what it is about."""
    return _user(WORDS["identifiable"], _part("Task", text))


def relevant(document: str, text: str) -> Messages:
    """Asks whether a task is about a document."""
    return _user(WORDS["relevant"], _part("Document", document), _part("Task", text))


def rubric(
    text: str, documents: Sequence[str], style: SearchStyle = "plain", kind: str = ""
) -> Messages:
    """Asks for the points that a good response to an open-ended task must state; a careful judge
    knows its type."""
    what = _part("Type", kind) if kind and style == "careful" else ""
    return _user(RUBRICS[style], listing(documents), what, _part("Task", text))


def grade(response: str, point: str, text: str = "") -> Messages:
    """Asks whether a response states one point of a rubric; strictly where its task is given."""
    parts = _part("Response", response), _part("Point", point)
    if text:
        return _user(WORDS["grade careful"], _part("Task", text), *parts)
    return _user(WORDS["grade"], *parts)


def better(text: str, first: str, second: str) -> Messages:
    """Asks whether the first of two responses to a task is better than the second."""
    parts = {"Task": text, "First": first, "Second": second}
    return _user(WORDS["exam"]["better"], *(_part(name, part) for name, part in parts.items()))


def exam(kind: Exam, question: str, options: Sequence[str], text: str) -> Messages:
    """A question of a published benchmark, its text before it and its options after it, if any."""
    return _user(WORDS["exam"][kind], text, f"Question: {question}", lettered(options))


def outside(text: str) -> str:
    """A text without its thoughts: `<think> ... </think>`, all before a `</think>` that closes
    nothing (the prompt may have opened it), all after a `<think>` that nothing closes."""
    first, *rest = re.split("(</?think>)", text)
    said = [first]
    thinking = False
    for mark, part in zip(rest[::2], rest[1::2], strict=True):
        if mark == "</think>" and not thinking:
            said = []
        thinking = mark == "<think>"
        said += [] if thinking else [part]
    return "".join(said)


def tagged(text: str, tag: str) -> list[str]:
    """The contents of all closed `<tag> ... </tag>`, in thoughts too, without outer spaces."""
    contents = re.findall(rf"<{tag}>((?:(?!</?{tag}>).)*)</{tag}>", text, re.DOTALL)
    return [content.strip() for content in contents]


def fields(text: str, tag: str) -> list[str]:
    """The contents of all closed `<tag> ... </tag>` outside of thoughts, without outer spaces."""
    return tagged(outside(text), tag)


def points(text: str) -> list[str]:
    """The points of a rubric; a priority in their tags is passed over."""
    return fields(re.sub(r"<rubric [^<>]*>", "<rubric>", text), "rubric")


def field(text: str, tag: str) -> str | None:
    """The content of the `<tag> ... </tag>` outside of thoughts that begins last; None where there
    is none, and where it is empty or not closed."""
    _, begun, rest = outside(text).rpartition(f"<{tag}>")
    content, closed, _ = rest.partition(f"</{tag}>")
    return content.strip() or None if begun and closed else None


def verdict(text: str) -> bool | None:
    """A yes or no answer as a truth value, None where it is neither."""
    return {YES: True, NO: False}.get((field(text, "answer") or "").lower().strip(" ."))
