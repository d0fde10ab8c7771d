"""What a policy of the document world can do: every benchmark and role, by difficulty and by the answer's type."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from spnb import roles
from spnb.data.benchmarks import BENCHMARKS, SEARCH_SETS, Item, benchmark, search_corpus
from spnb.data.oracle import parse
from spnb.data.tasks import value_type
from spnb.engines.torch import TorchEngine
from spnb.rollout import Chat, Sampling, derive_seed
from spnb.stats import share_interval

NEW_TOKENS = 120
BARS = {
    "reading-1": 0.95,
    "reading-4": 0.90,
    "reading-8": 0.85,
    "reading-two-hops": 0.85,
    "numeric": 0.70,
    "choice": 0.85,
    "judge": 0.85,
}
"""What the instruct policy is to reach, careful style, greedy (judge: both verdicts are equally frequent)."""
FORMATS: dict[str, Callable[[str], bool]] = {
    "answer": lambda text: roles.field(text, "answer") is not None,
    "letter": lambda text: roles.field(text, "answer") in list("ABCD"),
    "verdict": lambda text: roles.verdict(text) is not None,
}


def outputs(model: Any, tokenizer: Any, prompts: Sequence[roles.Messages], temperature: float = 0.0) -> list[str]:
    """One answer to every prompt; greedy unless a temperature is given."""
    chat, sampling = Chat(tokenizer), Sampling(NEW_TOKENS, temperature)
    requests = [chat.request(prompt, sampling, derive_seed("skills", index)) for index, prompt in enumerate(prompts)]
    return [done.text for done in TorchEngine(model, tokenizer, max_batch=256).generate(requests)]


def row(name: str, part: str, grades: Sequence[float], parsed: Sequence[bool]) -> dict[str, Any]:
    """A share with its Wilson interval (for shares of an item the interval of their sum, rounded) and n."""
    low, high = share_interval(round(sum(grades)), len(grades))
    value = sum(grades) / len(grades)
    known = {"benchmark": name, "part": part, "value": value, "low": low, "high": high, "n": len(grades)}
    return known | {"parsed": sum(parsed) / len(parsed)}


def answer_type(item: Item) -> str:
    """The type of the answer that a question of the world asks for; "other" for any other question."""
    query = parse(item.question)
    return "other" if query is None else value_type(query)


def measure(
    model: Any, tokenizer: Any, name: str, count: int = 500, style: str = "careful", temperature: float = 0.0
) -> pd.DataFrame:
    """A policy on one benchmark: all items, by difficulty, and for readings by answer type.

    Columns: benchmark, part, value (0 to 1), low, high (95 %), n, parsed (share of well-formed outputs).
    """
    items = benchmark(name, count, style=style).items
    if name in SEARCH_SETS:
        from spnb.data.retrieval import make_retriever
        from spnb.methods.search import search_texts

        retriever = make_retriever("bm25", list(search_corpus()))
        texts = search_texts(TorchEngine(model, tokenizer), tokenizer, retriever, items, temperature)
    else:
        texts = outputs(model, tokenizer, [item.messages for item in items], temperature)
    grades = [item.grade(text) for item, text in zip(items, texts, strict=True)]
    well = [FORMATS.get(item.grading, FORMATS["answer"])(text) for item, text in zip(items, texts, strict=True)]
    parts: dict[str, list[int]] = collections.defaultdict(list)
    for index, item in enumerate(items):
        parts["all"].append(index)
        parts[item.difficulty].append(index)
        if name.startswith("reading"):
            parts[f"answer: {answer_type(item)}"].append(index)
    rows = [row(name, part, [grades[i] for i in some], [well[i] for i in some]) for part, some in parts.items()]
    return pd.DataFrame(rows)


def report(model: Any, tokenizer: Any, count: int = 500, names: Sequence[str] = tuple(BENCHMARKS)) -> pd.DataFrame:
    """`measure` for several benchmarks, greedy with the careful prompts, and the bar where there is one."""
    table = pd.concat([measure(model, tokenizer, name, count) for name in names], ignore_index=True)
    table["bar"] = table.benchmark.map(BARS).where(table.part == "all")
    return table
