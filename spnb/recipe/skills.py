"""What a policy of the document world can do: every benchmark and role, by difficulty, answer type
and gold class.

    report(model, tokenizer)                           # everything of `NAMES`
    measure(model, tokenizer, "judge", count=500)      # one of them

Roles that no benchmark covers (asking, writing rubrics, playing) have exercises of their own here,
about held-out names and graded by the oracle. Every output is greedy but for parts named "sampled"
and games (temperature 1: Kuhn poker has 12 prompts only, so greedy answers would repeat).
"""

import collections
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pandas as pd

from spnb.core import prompts
from spnb.core.grading import extract_boxed
from spnb.core.search import search_texts
from spnb.core.stats import mean_interval, share_interval
from spnb.core.types import Chat, Sampling, derive_seed
from spnb.corpus.retrieval import Retriever, make_retriever
from spnb.games import Match
from spnb.games.negotiation import NEGOTIATION
from spnb.methods.proposals import Proposal, read_proposal
from spnb.recipe import check
from spnb.recipe.demos import KUHN, TICTACTOE, TICTACTOE_PLAIN
from spnb.testbed import oracle
from spnb.testbed.oracle import HELDOUT_FRAMES, Query
from spnb.testbed.suites import (
    BENCHMARKS,
    POOL,
    SEARCH_SETS,
    SEED,
    Item,
    benchmark,
    search_corpus,
    search_world,
)
from spnb.testbed.tasks import (
    LETTERS,
    Level,
    OpenTask,
    Task,
    hops_label,
    path_task,
    questions_of,
    value_type,
)
from spnb.testbed.texts import Fact, facts_in, facts_of
from spnb.testbed.world import SUFFIXES
from spnb.train.engines.torch import TorchEngine

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
"""What the instruct policy is to reach, careful style, greedy (judge: also the balanced
accuracy)."""
FORMATS: dict[str, Callable[[str], bool]] = {
    "answer": lambda text: prompts.field(text, "answer") is not None,
    "letter": lambda text: prompts.field(text, "answer") in list(LETTERS),
    "verdict": lambda text: prompts.verdict(text) is not None,
}
CONTEXT = Level(hops=3, documents=4, same_relation=1.0, facts=2)
"""Documents to ask about, as the proposer study shows them: four, a chain of three facts among
them."""
OPEN_SETS = tuple(name for name in BENCHMARKS if name.startswith("open-"))
BASELINE = "baseline: any value of the last noun"
GAMES = (KUHN, TICTACTOE, TICTACTOE_PLAIN, NEGOTIATION)

Marks = dict[str, float]
"""What one text is worth, 0 to 1, for each part of the table that it counts in."""
Marked = tuple[Marks, bool]
"""The marks of a text and whether it is well-formed."""


@dataclass(frozen=True)
class Exercise:
    """One prompt, and how a text given to it is marked and found well-formed.

    `question` is said again after the results of a search.
    """

    messages: prompts.Messages
    marks: Callable[[str], Marks]
    parsed: Callable[[str], bool]
    question: str = ""


def outputs(
    model: Any, tokenizer: Any, prompts: Sequence[prompts.Messages], temperature: float = 0.0
) -> list[str]:
    """One answer to every prompt; greedy unless a temperature is given."""
    chat, sampling = Chat(tokenizer), Sampling(NEW_TOKENS, temperature)
    requests = [
        chat.request(prompt, sampling, derive_seed("skills", index))
        for index, prompt in enumerate(prompts)
    ]
    return [done.text for done in TorchEngine(model, tokenizer, max_batch=256).generate(requests)]


@cache
def library() -> Retriever:
    """BM25 over the corpus of the `search-*` sets."""
    return make_retriever("bm25", list(search_corpus()))


def work(
    model: Any,
    tokenizer: Any,
    exercises: Sequence[Exercise],
    search: bool = False,
    temperature: float = 0.0,
) -> list[Marked]:
    """A policy's marks on exercises, with the search tool or without."""
    if search:
        texts = search_texts(
            TorchEngine(model, tokenizer), tokenizer, library(), exercises, temperature, NEW_TOKENS
        )
    else:
        texts = outputs(
            model, tokenizer, [exercise.messages for exercise in exercises], temperature
        )
    return [
        (exercise.marks(text), exercise.parsed(text))
        for exercise, text in zip(exercises, texts, strict=True)
    ]


# --- the table


def row(name: str, part: str, grades: Sequence[float], parsed: Sequence[bool]) -> dict[str, Any]:
    """Mean grade, its 95 % interval and n: Wilson's for right or wrong, where any grade is a share
    a t-interval over the items, cut to 0 and 1 (its ends are nan for one item)."""
    value, low, high, n = mean_interval(grades)
    low, high = max(low, 0.0), min(high, 1.0)
    if all(grade in (0, 1) for grade in grades):
        low, high = share_interval(int(sum(grades)), n)
    known = {"benchmark": name, "part": part, "value": value, "low": low, "high": high, "n": n}
    return known | {"parsed": sum(parsed) / len(parsed)}


def rows(name: str, found: Sequence[Marked]) -> list[dict[str, Any]]:
    """A row for each part: plain parts in the order of the marks, then those with a colon in the
    alphabet's."""
    parts: dict[str, list[tuple[float, bool]]] = collections.defaultdict(list)
    for marks, parsed in found:
        for part, grade in marks.items():
            parts[part].append((grade, parsed))
    order = sorted(parts, key=lambda part: part if ": " in part else "")
    return [row(name, part, *zip(*parts[part], strict=True)) for part in order]


def balanced(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean of the two gold classes' accuracies, where both were shown.

    Interval: Wilson's of both classes put together by their squared distances (Newcombe's hybrid
    score method), which, unlike the normal approximation, has a width where a class is all right or
    all wrong.
    """
    classes = [known for known in table if known["part"].startswith("gold: ")]
    if len(classes) != 2:
        return []
    value, n = (sum(known[key] for known in classes) for key in ("value", "n"))
    below, above = (
        math.hypot(*(known["value"] - known[key] for known in classes)) for key in ("low", "high")
    )
    bounds = {"value": value / 2, "low": (value - below) / 2, "high": (value + above) / 2}
    return [{**table[0], "part": "balanced", **bounds, "n": n}]


def noun_marks(item: Item) -> Marks:
    """`noun_chance` as the marks of an item, in all and by difficulty."""
    return dict.fromkeys((BASELINE, f"baseline: {item.difficulty}"), noun_chance(item))


def noun_chance(item: Item) -> float:
    """Chance of a right guess among the values that the documents state for the question's last
    relation.

    What a policy gets that looks for the relation only and not for the entity, as an exact
    expectation.
    """
    query = oracle.parse(item.question)
    stated = [fact for text in item.documents for fact in facts_in(text)]
    values = {value for _, noun, value in stated if query and noun == query.nouns[-1]}
    return (item.gold[0] in values) / max(len(values), 1)


# --- benchmarks


def exercise_of(item: Item) -> Exercise:
    """A benchmark's item; its parts: all, the difficulty, the type of the answer that a question of
    the world asks for, the gold verdict."""
    parts, query = ["all", item.difficulty], oracle.parse(item.question)
    parts += [f"answer: {value_type(query)}"] if query else []
    parts += [f"gold: {item.gold[0]}"] if item.grading == "verdict" else []
    parsed = FORMATS.get(item.grading, FORMATS["answer"])
    return Exercise(
        item.messages, lambda text: dict.fromkeys(parts, item.grade(text)), parsed, item.question
    )


def benchmark_rows(
    model: Any, tokenizer: Any, name: str, count: int, style: str
) -> list[dict[str, Any]]:
    """A benchmark's rows, with balanced accuracy for verdicts and the noun-only baseline for
    reading."""
    items = benchmark(name, count, style=style).items
    found = rows(
        name, work(model, tokenizer, [exercise_of(item) for item in items], name in SEARCH_SETS)
    )
    found += balanced(found)
    if name.startswith(("reading-", "long-")):
        found += rows(name, [(noun_marks(item), True) for item in items])
    return found


# --- roles without a benchmark


def contexts(name: str, count: int) -> Iterator[tuple[Task, random.Random]]:
    """Held-out documents to ask about, each set of a world of its own, and a source of chance for
    what goes with it."""
    for index in range(count):
        rng = random.Random(derive_seed(SEED, name, index))
        yield path_task(rng, CONTEXT, POOL, HELDOUT_FRAMES), rng


def asked(text: str) -> Query | None:
    """What the question of a text asks for; None where there is none that the oracle can read."""
    question = prompts.field(text, "question")
    return oracle.parse(question) if question else None


def well_asked(text: str) -> bool:
    """Whether a text has a question that the oracle can read, and an answer."""
    return asked(text) is not None and FORMATS["answer"](text)


def ask_marks(text: str, stated: Sequence[Fact]) -> Marks:
    """Whether a proposal is valid, also among those with as many hops."""
    valid = float(read_proposal(text, stated) is not None)
    return {"all": valid, f"asked: {hops_label(Proposal(0, query=asked(text)).hops)}": valid}


def ask(model: Any, tokenizer: Any, count: int) -> list[Marked]:
    """A question with its answer from documents, greedy and sampled: share valid, by the hops
    asked."""
    exercises = [
        Exercise(prompts.ask(task.documents), partial(ask_marks, stated=task.stated), well_asked)
        for task, _ in contexts("ask", count)
    ]
    sampled = work(model, tokenizer, exercises, temperature=1.0)
    relabelled = [
        ({f"sampled, {part}": grade for part, grade in marks.items()}, well)
        for marks, well in sampled
    ]
    return work(model, tokenizer, exercises) + relabelled


def beyond_marks(text: str, stated: Sequence[Fact], earlier: int) -> Marks:
    """Whether a proposal is valid, and whether it is and needs more facts than the earlier
    questions."""
    read = read_proposal(text, stated)
    beyond = float(read is not None and Proposal(0, *read).hops > earlier)
    return {
        "all": float(read is not None),
        "beyond": beyond,
        f"beyond: after {hops_label(earlier)}": beyond,
    }


def ask_beyond(model: Any, tokenizer: Any, count: int) -> list[Marked]:
    """The same after one or two questions of one hop or, in turn, of two: share valid, share valid
    and beyond them."""
    exercises = []
    for index, (task, rng) in enumerate(contexts("ask-beyond", count)):
        hops = 1 + index % 2
        known = [query for query, _ in questions_of(task.documents, hops)]
        before = [
            oracle.ask(query, rng.choice(HELDOUT_FRAMES))
            for query in rng.sample(known, rng.randint(1, 2))
        ]
        marks = partial(beyond_marks, stated=task.stated, earlier=hops)
        exercises.append(Exercise(prompts.ask(task.documents, before), marks, well_asked))
    return work(model, tokenizer, exercises)


def target_marks(text: str, fact: Fact) -> Marks:
    """Whether a question has the value of a fact as its only answer in the searched world; by the
    value's type."""
    query = asked(text)
    gold = oracle.answer(search_world(), query) if query else None
    right = float(gold is not None and gold.text == fact[2])
    return {"all": right, f"answer: {value_type(Query('path', fact[0], (fact[1],)))}": right}


def targets() -> list[Fact]:
    """A fact for every value in the searched world, in random order."""
    world = search_world()
    names = [world.name(kind, index) for kind in SUFFIXES for index in range(world.size)]
    facts = list({fact[2]: fact for name in names for fact in facts_of(world, name)}.values())
    random.Random(derive_seed(SEED, "ask-search")).shuffle(facts)
    return facts


def ask_search(model: Any, tokenizer: Any, count: int) -> list[Marked]:
    """A question to a given answer with the search tool; no answer twice, so at most as many as
    there are values."""
    exercises = [
        Exercise(
            prompts.ask_search(fact[2]),
            partial(target_marks, fact=fact),
            lambda text: asked(text) is not None,
        )
        for fact in targets()[:count]
    ]
    return work(model, tokenizer, exercises, search=True)


def rubric_marks(text: str, name: str, task: OpenTask) -> Marks:
    """`OpenTask.score` of the points together: copying all documents does not pay."""
    score = task.score(" ".join(prompts.fields(text, "rubric")))
    return {"all": score, name: score}


def rubric(model: Any, tokenizer: Any, count: int) -> list[Marked]:
    """The points of a rubric for the tasks of the `open-*` benchmarks, which take turns."""
    suites = [benchmark(name, -(-count // len(OPEN_SETS))).items for name in OPEN_SETS]
    exercises = [
        Exercise(
            prompts.rubric(item.question, item.documents),
            partial(rubric_marks, name=item.benchmark.removeprefix("open-"), task=item.open_task),
            lambda text: bool(prompts.fields(text, "rubric")),
        )
        for turn in zip(*suites, strict=True)
        for item in turn
    ]
    return work(model, tokenizer, exercises[:count])


def games(model: Any, tokenizer: Any, count: int) -> list[Marked]:
    """Share of legal answers at positions of random play, sampled; as many of each game.
    Well-formed: has a box."""
    engine, found = TorchEngine(model, tokenizer), []
    for name in GAMES:
        for match, text in check.answers(engine, name, -(-count // len(GAMES)), SEED):
            found.append((legal_marks(text, match), extract_boxed(text) is not None))
    return found


def legal_marks(text: str, match: Match) -> Marks:
    """Whether an answer holds a move that the game takes."""
    legal = float(check.is_legal(match, text))
    return {"all": legal, match.name: legal}


ROLES: dict[str, Callable[[Any, Any, int], list[Marked]]] = {
    "ask": ask,
    "ask-beyond": ask_beyond,
    "ask-search": ask_search,
    "rubric": rubric,
    "games": games,
}
"""Roles without a benchmark: a policy's marks on so many exercises."""
NAMES = (*BENCHMARKS, *ROLES)


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError for a name that is neither a benchmark nor a role."""
    for name in names:
        if name not in NAMES:
            raise ValueError(f"benchmark is {name!r}; allowed: {', '.join(NAMES)}")


def measure(
    model: Any, tokenizer: Any, name: str, count: int = 500, style: str = "careful"
) -> pd.DataFrame:
    """A policy on one benchmark or role: all items and parts of them.

    Columns: benchmark, part, value (0 to 1), low, high (95 %), n, parsed (share of well-formed
    outputs). Parts of benchmarks: each difficulty, "answer: <type>", "gold: yes", "gold: no" and
    "balanced" for verdicts, "baseline: ..." (no output of the policy: `noun_chance`) for reading.
    Parts of roles are in their functions (`ROLES`).

    Raises:
        ValueError: unknown name, a style that it does not have, a count below 1.
    """
    check_names([name])
    if name not in ROLES:
        return pd.DataFrame(benchmark_rows(model, tokenizer, name, count, style))
    if style != "careful":
        raise ValueError(f"style of role {name} is {style!r}; allowed: careful")
    if count < 1:
        raise ValueError(f"count of role {name} is {count!r}; allowed: 1 or more")
    return pd.DataFrame(rows(name, ROLES[name](model, tokenizer, count)))


def report(
    model: Any, tokenizer: Any, count: int = 500, names: Sequence[str] = NAMES
) -> pd.DataFrame:
    """`measure` for several benchmarks and roles with the careful prompts, and the bar where there
    is one.

    Raises:
        ValueError: as `measure`; an unknown name before anything is measured.
    """
    check_names(names)
    table = pd.concat([measure(model, tokenizer, name, count) for name in names], ignore_index=True)
    table["bar"] = table.benchmark.map(BARS).where(table.part.isin(["all", "balanced"]))
    return table


NOISE = 3.5
"""Standard errors of a difference that count as noise; over all of `NAMES`, equal policies pass
with some 98 %."""


def compare(table: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Two policies' reports side by side, whole benchmarks only.

    Columns: benchmark, value, other, difference, noise (`NOISE` standard errors of the difference,
    read off the two 95 % intervals as if each policy had items of its own, some 7 points at 500
    items), within (whether the difference is no larger).
    """
    columns = ["benchmark", "value", "low", "high"]
    first, second = (frame.loc[frame.part == "all", columns] for frame in (table, other))
    both = first.merge(second, on="benchmark", suffixes=("", "_other"))
    widths = [both.high - both.low, both.high_other - both.low_other]
    noise = NOISE * sum((width / (2 * 1.96)) ** 2 for width in widths) ** 0.5
    found = both[["benchmark", "value"]].assign(
        other=both.value_other, difference=both.value - both.value_other
    )
    return found.assign(noise=noise, within=found.difference.abs() <= noise)
