"""The prompts of the roles in document and search games, and how their outputs are read.

One place for words that several papers share: answering (with documents, without, by choice, by
search), asking, judging, writing and applying rubrics. Every output is text with tags: `<think>`,
`<search>`, `<question>`, `<answer>`, `<rubric>`; `field` reads them. The embedded policies are
pre-trained on exactly these prompts, `exam` apart, which asks for the published benchmarks; any
chat model can follow them. Content words stand after a space, so that a name is the same token
everywhere.
"""

import re
from collections.abc import Sequence
from typing import Literal

from spnb.core.types import Messages

Style = Literal["careful", "plain", "steps"]
SearchStyle = Literal["careful", "plain"]
AskKind = Literal["question", "choice", "task"]
Exam = Literal["closed", "choice", "text", "figure", "text choice", "conversation"]
YES = "yes"
NO = "no"

ANSWERING: dict[str, str] = {
    "careful": (
        "Read the documents with care and answer the question from them. If it takes more than one "
        "fact, write the facts inside <think> and </think> first. "
        "Give the answer inside <answer> and </answer>."
    ),
    "plain": (
        "Answer the question about the documents. You may write down the facts you use inside "
        "<think> and </think>. Give the answer inside <answer> and </answer>."
    ),
    "steps": (
        "Follow the question through the documents one fact at a time, each written inside <think> "
        "and </think>. Then give the answer inside <answer> and </answer>."
    ),
}
CLOSED = "Answer the question from what you know. Give the answer inside <answer> and </answer>."
REASON = (
    "Answer the question. Write down the steps that lead to it inside <think> and </think>, then "
    "give the answer, of options the letter, inside <answer> and </answer>."
)
CHOICE = (
    "Choose the option that answers the question. You may note the option inside <think> and "
    "</think>. Give its letter inside <answer> and </answer>."
)
SEARCHING: dict[str, str] = {
    "careful": (
        "Find the answer to the question in a library before you reply. Write a query inside "
        "<search> and </search>; results come back inside <information> and </information>. Search "
        "for each fact you need, then give the answer inside <answer> and </answer>."
    ),
    "plain": (
        "Answer the question. You can query a library inside <search> and </search>; results come "
        "back inside <information> and </information>. "
        "Give the answer inside <answer> and </answer>."
    ),
}
ASK = (
    "Write a question that the documents answer, and its answer. Put the facts that lead to it "
    "inside <think> and </think>, the question inside <question> and </question>, the answer "
    "inside <answer> and </answer>."
)
ASKING: dict[str, str] = {
    "question": ASK,
    "choice": (
        "Write a multiple-choice question that the documents answer, with four options, one of "
        "them right. Put the facts that lead to it inside <think> and </think>, the question with "
        "its options inside <question> and </question>, the letter inside <answer> and </answer>."
    ),
    "task": (
        "Write a task that takes a report on the documents. Put the facts that it has to state "
        "inside <think> and </think>, the task inside <question> and </question>."
    ),
}
ASK_BEYOND = " These questions were asked before; write one that needs more facts than they do:"
ASK_SEARCH = (
    "Write a question whose only answer is the one given. Query the library inside <search> and "
    "</search> to learn about it; results come back inside <information> and </information>. Then "
    "put the question inside <question> and </question>."
)
JUDGE = (
    "Two answers to the same question follow. Do they mean the same? "
    "Give yes or no inside <answer> and </answer>."
)
TASK = "Do the task with the documents. Put your text inside <answer> and </answer>."
RUBRIC = (
    "A task about the documents follows. List what a good response must state, each point inside "
    "<rubric> and </rubric>."
)
GRADE = (
    "A response and a point that it should state follow. Note what the response says about it "
    "inside <think> and </think>. Does it state the point? "
    "Give yes or no inside <answer> and </answer>."
)
EXAMS: dict[Exam, str] = {
    "closed": (
        "Solve the problem step by step. Then put the final answer, and nothing else, in \\boxed{}."
    ),
    "choice": (
        "Think step by step about which one of the options answers the question. Then put its "
        "letter, and nothing else, in \\boxed{}."
    ),
    "text": (
        "Read the text, then answer the question below it. Work out the answer from what the text "
        "says, and give it in as few words as it takes inside <answer> and </answer>."
    ),
    "figure": (
        "Read the text, then work out the figure that the question below it asks for, one step of "
        "the calculation at a time. Give the bare number inside <answer> and </answer>: no unit, "
        "no percent sign (12.5 for 12.5 %), and thousands or millions as the question wants them."
    ),
    "text choice": (
        "Read the text, then find out which one of the options answers the question below it. Say "
        "what speaks for it, and give its letter alone inside <answer> and </answer>."
    ),
    "conversation": (
        "Read the conversation, then do what the request below it asks. Give what it asks for, and "
        "not a word more, inside <answer> and </answer>."
    ),
}
"""Instructions of published benchmarks: without a text (answers in a box) and about a long one."""


def _user(*parts: str) -> Messages:
    return [{"role": "user", "content": "\n".join(part for part in parts if part)}]


def listing(documents: Sequence[str]) -> str:
    """Documents as a numbered list, one a line (tables keep their own lines)."""
    return "\n".join(f"[{number}] {text}" for number, text in enumerate(documents, 1))


def answer(question: str, documents: Sequence[str], style: Style = "careful") -> Messages:
    """A question about documents; `style` decides which instruction stands before them."""
    return _user(ANSWERING[style], listing(documents), f"Question: {question}")


def closed(question: str) -> Messages:
    """A question without documents."""
    return _user(CLOSED, f"Question: {question}")


def reason(question: str) -> Messages:
    """A question that holds all that is needed, its options too where it has some."""
    return _user(REASON, f"Question: {question}")


def choice(question: str, options: Sequence[str], documents: Sequence[str] = ()) -> Messages:
    """A multiple-choice question, options lettered from A, with or without documents."""
    return _user(CHOICE, listing(documents), f"Question: {question}", lettered(options))


def lettered(options: Sequence[str]) -> str:
    """Options, one a line, with their letters from A."""
    letters = zip("ABCDEFGHIJ", options, strict=False)
    return "\n".join(f"- {option} ({letter})" for letter, option in letters)


def search(question: str, style: SearchStyle = "careful") -> Messages:
    """A question to be answered with a search tool; `information` writes what comes back."""
    return _user(SEARCHING[style], f"Question: {question}")


def information(documents: Sequence[str], question: str = "") -> str:
    """Search results as they are put into the policy's turn, the question repeated after them where
    there is one."""
    repeated = f"\nQuestion: {question}" if question else "\n"
    return f"\n<information>\n{listing(documents)}\n</information>{repeated}"


def ask(
    documents: Sequence[str], earlier: Sequence[str] = (), kind: AskKind = "question"
) -> Messages:
    """Asks for a question with its answer, a multiple-choice one, or a task; beyond `earlier` ones
    where there are some."""
    before = "\n".join(f"- {question}" for question in earlier)
    return _user(ASKING[kind] + (ASK_BEYOND if earlier else ""), before, listing(documents))


def ask_search(target: str) -> Messages:
    """Asks for a question whose answer is `target`, with a search tool."""
    return _user(ASK_SEARCH, f"Answer: {target}")


def judge(question: str, first: str, second: str) -> Messages:
    """Asks whether two answers mean the same."""
    return _user(JUDGE, f"Question: {question}", f"First: {first}", f"Second: {second}")


def task(text: str, documents: Sequence[str]) -> Messages:
    """An open-ended task over documents."""
    return _user(TASK, listing(documents), f"Task: {text}")


def rubric(text: str, documents: Sequence[str]) -> Messages:
    """Asks for the points that a good response to an open-ended task must state."""
    return _user(RUBRIC, listing(documents), f"Task: {text}")


def grade(response: str, point: str) -> Messages:
    """Asks whether a response states one point of a rubric."""
    return _user(GRADE, f"Response: {response}", f"Point: {point}")


def exam(kind: Exam, question: str, options: Sequence[str], text: str) -> Messages:
    """A question of a published benchmark, its text before it and its options after it, if any."""
    return _user(EXAMS[kind], text, f"Question: {question}", lettered(options))


def fields(text: str, tag: str) -> list[str]:
    """The contents of all well-formed `<tag> ... </tag>`, without outer spaces."""
    contents = re.findall(rf"<{tag}>((?:(?!</?{tag}>).)*)</{tag}>", text, re.DOTALL)
    return [content.strip() for content in contents]


def field(text: str, tag: str) -> str | None:
    """The content of the last well-formed `<tag> ... </tag>`; None without one or an empty one."""
    contents = fields(text, tag)
    return contents[-1] or None if contents else None


def verdict(text: str) -> bool | None:
    """A yes or no answer as a truth value, None where it is neither."""
    return {YES: True, NO: False}.get((field(text, "answer") or "").lower().strip(" ."))
