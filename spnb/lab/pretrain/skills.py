"""What a shipped policy can do before any self-play.

`report` measures a policy of the document world: every benchmark and role, by difficulty, answer
type and gold class. Roles that no benchmark covers (asking, writing rubrics, playing) have
exercises here, about held-out names and graded by the oracle. Answers are greedy but for parts
named "sampled" and games.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import pandas as pd

from spnb.core import prompts
from spnb.core.grading import extract_boxed, grade, grade_text
from spnb.core.search import Retriever, search_texts
from spnb.core.types import Chat, Sampling, Task, derive_seed
from spnb.corpus.retrieval import make_retriever
from spnb.evaluate.items import score_row
from spnb.games.negotiation import NEGOTIATION
from spnb.lab import oracle, suites, tasks, texts
from spnb.lab.oracle import HELDOUT_FRAMES, Query
from spnb.lab.pretrain import game_skills
from spnb.lab.pretrain.demos import KUHN, TICTACTOE, TICTACTOE_PLAIN
from spnb.lab.suites import BENCHMARKS, SEARCH_SETS, SEED, benchmark
from spnb.lab.texts import Fact
from spnb.lab.world import SUFFIXES
from spnb.train.engines.torch import TorchEngine

NEW_TOKENS = 120
NOISE = 3.5
"""Standard errors that count as noise; over all of `NAMES`, equal policies pass with some 98 %."""
BARS = {
    **{"reading-1": 0.95, "reading-4": 0.90, "reading-8": 0.85, "reading-two-hops": 0.85},
    **{"numeric": 0.70, "choice": 0.85, "judge": 0.85},
}
"""What the instruct policy is to reach, greedy (judge: also the balanced accuracy)."""
BASELINE = "baseline: any value of the last noun"
CONTEXT = tasks.Level(hops=3, documents=4, same_relation=1.0, facts=2)
"""Documents to ask about, as the proposer study shows them: a chain of three facts among four."""
GAMES = (KUHN, TICTACTOE, TICTACTOE_PLAIN, NEGOTIATION)
Mark = tuple[dict[str, float], bool]
"""A text's grade (0 to 1) in each part of the table it counts in; whether it is well-formed."""
Exercise = tuple[Task, Callable[[str], Mark]]
"""A task, and how a text that answers it is marked."""


def part_rows(name: str, marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """A row for each part: its mean grade with an interval, and the share of well-formed texts.

    Parts stand in the order of the marks; after them, sorted by name, those with a colon.
    """
    grades = [(part, value, well) for parts, well in marks for part, value in parts.items()]
    frame = pd.DataFrame(grades, columns=["part", "grade", "parsed"])
    rows = []
    for part, group in frame.groupby("part", sort=False):
        row = score_row(name, "grade", group["grade"].tolist())
        bounds = {"low": max(row["low"], 0.0), "high": min(row["high"], 1.0), "n": row["n"]}
        parsed = float(group["parsed"].mean())
        columns = {"benchmark": name, "part": part, "value": row["value"]}
        rows.append(columns | bounds | {"parsed": parsed})
    return sorted(rows, key=lambda row: row["part"] if ": " in row["part"] else "")


def balanced_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean of the two gold classes' accuracies, where both were shown.

    Its interval is Newcombe's hybrid score method: wider than 0 also where a class is all right.
    """
    classes = [row for row in rows if row["part"].startswith("gold: ")]
    if len(classes) != 2:
        return []
    value = sum(row["value"] for row in classes) / 2
    below = math.hypot(*(row["value"] - row["low"] for row in classes)) / 2
    above = math.hypot(*(row["high"] - row["value"] for row in classes)) / 2
    n = sum(row["n"] for row in classes)
    columns = {"value": value, "low": value - below, "high": value + above, "n": n}
    return [rows[0] | {"part": "balanced"} | columns]


def marks_of(
    engine: TorchEngine,
    exercises: Sequence[Exercise],
    search: bool = False,
    temperature: float = 0.0,
) -> list[Mark]:
    """The marks of a policy's answers to exercises, with the search tool or without."""
    chat, sampling = Chat(engine.tokenizer), Sampling(NEW_TOKENS, temperature)
    items = [task for task, _ in exercises]
    if search:
        answers = search_texts(engine, chat.tokenizer, library(), items, NEW_TOKENS)
    else:
        requests = [
            chat.request(task.messages, sampling, derive_seed("skills", place))
            for place, task in enumerate(items)
        ]
        answers = [completion.text for completion in engine.generate(requests)]
    return [mark(text) for (_, mark), text in zip(exercises, answers, strict=True)]


@cache
def library() -> Retriever:
    """BM25 over the corpus of the `search-*` sets."""
    return make_retriever("bm25", list(suites.search_corpus()))


def has_answer(text: str, kind: str = "exact") -> bool:
    """Whether a text has an answer of the form that its kind of task asks for."""
    if kind == "verdict":
        return prompts.verdict(text) is not None
    answer = prompts.field(text, "answer")
    return answer in list(tasks.LETTERS) if kind == "letter" else answer is not None


def mark_answer(text: str, task: Task) -> Mark:
    """A benchmark's parts: all, the difficulty, the type of a world question's answer, the gold."""
    parts, query = ["all", task.difficulty], oracle.parse(task.question)
    if query:
        parts.append(f"answer: {tasks.value_type(query)}")
    if task.kind == "verdict":
        parts.append(f"gold: {task.gold[0]}")
    return dict.fromkeys(parts, grade_text(text, task)), has_answer(text, task.kind)


def noun_chance(task: Task) -> float:
    """Chance of a right guess by a policy that looks for the last relation, not for the entity."""
    query = oracle.parse(task.question)
    facts = [fact for text in task.info["documents"] for fact in texts.facts_in(text)]
    values = {value for _, noun, value in facts if query and noun == query.nouns[-1]}
    return (task.gold[0] in values) / max(len(values), 1)


def benchmark_rows(engine: TorchEngine, name: str, count: int) -> list[dict[str, Any]]:
    """A benchmark's rows, with balanced accuracy for verdicts and `noun_chance` for reading."""
    items = benchmark(name, count)
    exercises = [(task, partial(mark_answer, task=task)) for task in items]
    rows = part_rows(name, marks_of(engine, exercises, name in SEARCH_SETS))
    rows += balanced_rows(rows)
    if name.startswith(("reading-", "long-")):
        labels = [(BASELINE, f"baseline: {task.difficulty}") for task in items]
        chances = map(noun_chance, items)
        guesses = [dict.fromkeys(*pair) for pair in zip(labels, chances, strict=True)]
        rows += part_rows(name, [(guess, True) for guess in guesses])
    return rows


def question_in(text: str) -> Query | None:
    """What the question of a text asks for; None where there is none that the oracle can read."""
    question = prompts.field(text, "question")
    return oracle.parse(question) if question else None


def hops_of(query: Query | None) -> int:
    """Relations to follow, 1 for a question about figures; 0 where there is no question."""
    return max(1, len(query.nouns)) if query else 0


def mark_question(text: str, facts: Sequence[Fact], earlier_hops: int) -> Mark:
    """Whether a question with its answer is valid, and needs more facts than earlier ones did."""
    query, proposal = question_in(text), oracle.read_question(text, facts)
    valid = float(proposal is not None)
    parts = {"all": valid}
    if earlier_hops:
        beyond = float(proposal is not None and hops_of(proposal[1]) > earlier_hops)
        parts |= {"beyond": beyond, f"beyond: after {tasks.hops_label(earlier_hops)}": beyond}
    else:
        parts[f"asked: {tasks.hops_label(hops_of(query))}"] = valid
    return parts, query is not None and has_answer(text)


def ask_exercises(name: str, count: int) -> list[Exercise]:
    """Held-out documents to ask about; "ask-beyond": after earlier questions of one or two hops."""
    exercises = []
    for index in range(count):
        rng = random.Random(derive_seed(SEED, name, index))
        task = tasks.path_task(rng, CONTEXT, suites.POOL, HELDOUT_FRAMES)
        documents, hops, earlier = task.info["documents"], 0, []
        if name == "ask-beyond":
            hops = 1 + index % 2
            queries = [query for query, _ in oracle.questions_of(documents, hops)]
            for query in rng.sample(queries, rng.randint(1, 2)):
                earlier.append(oracle.ask(query, rng.choice(HELDOUT_FRAMES)))
        mark = partial(mark_question, facts=tasks.stated(task), earlier_hops=hops)
        exercises.append((Task(prompts.ask(documents, earlier)), mark))
    return exercises


def ask(engine: TorchEngine, count: int) -> list[Mark]:
    """A question with its answer from documents, greedy and sampled."""
    exercises = ask_exercises("ask", count)
    sampled = marks_of(engine, exercises, temperature=1.0)
    renamed = [
        ({f"sampled, {part}": grade for part, grade in parts.items()}, well)
        for parts, well in sampled
    ]
    return marks_of(engine, exercises) + renamed


def mark_target(text: str, fact: Fact) -> Mark:
    """Whether a question has a fact's value as its only answer in the searched world."""
    entity, noun, value = fact
    query = question_in(text)
    gold = oracle.answer(suites.search_world(), query) if query else None
    right = float(gold is not None and gold.text == value)
    kind = tasks.value_type(Query("path", entity, (noun,)))
    return {"all": right, f"answer: {kind}": right}, query is not None


def targets() -> list[Fact]:
    """A fact for every value in the searched world, in random order."""
    world = suites.search_world()
    entities = [world.name(kind, index) for kind in SUFFIXES for index in range(world.size)]
    facts = [fact for entity in entities for fact in texts.facts_of(world, entity)]
    distinct = list({fact[2]: fact for fact in facts}.values())
    random.Random(derive_seed(SEED, "ask-search")).shuffle(distinct)
    return distinct


def search_exercises(count: int) -> list[Exercise]:
    """Values to search a question for; none twice, so there may be fewer."""
    facts = targets()[:count]
    return [(Task(prompts.ask_search(fact[2])), partial(mark_target, fact=fact)) for fact in facts]


def mark_rubric(text: str, name: str, task: Task) -> Mark:
    """The grade of all points together: copying all documents does not pay."""
    points = prompts.fields(text, "rubric")
    score = grade(" ".join(points), task.gold, task.kind)
    return {"all": score, name: score}, bool(points)


def rubric_exercises(count: int) -> list[Exercise]:
    """Tasks of the `open-*` benchmarks, which take turns, to write a rubric for."""
    names = [name for name in BENCHMARKS if name.startswith("open-")]
    items = [benchmark(name, -(-count // len(names))) for name in names]
    exercises = []
    for index in range(count):
        place, turn = index % len(names), index // len(names)
        task = items[place][turn]
        mark = partial(mark_rubric, name=names[place].removeprefix("open-"), task=task)
        exercises.append((Task(prompts.rubric(task.question, task.info["documents"])), mark))
    return exercises


def games(engine: TorchEngine, count: int) -> list[Mark]:
    """Whether answers at positions of random play are legal, sampled, as many of each game."""
    marks = []
    for name in GAMES:
        for match, text in game_skills.answers(engine, name, -(-count // len(GAMES)), SEED):
            legal = float(game_skills.is_legal(match, text))
            marks.append(({"all": legal, name: legal}, extract_boxed(text) is not None))
    return marks


ROLES: dict[str, Callable[[TorchEngine, int], list[Mark]]] = {
    "ask": ask,
    "ask-beyond": lambda engine, count: marks_of(engine, ask_exercises("ask-beyond", count)),
    "ask-search": lambda engine, count: marks_of(engine, search_exercises(count), search=True),
    "rubric": lambda engine, count: marks_of(engine, rubric_exercises(count)),
    "games": games,
}
"""What a policy gets for so many exercises of a role."""
NAMES = (*BENCHMARKS, *ROLES)


def measure(engine: TorchEngine, name: str, count: int = 500) -> pd.DataFrame:
    """A policy on one benchmark (with the careful prompts) or role: all tasks and parts of them.

    Columns: benchmark, part, value (0 to 1), low, high (95 %), n, parsed (share of well-formed
    outputs). Parts of benchmarks: each difficulty, "answer: <type>", "gold: yes", "gold: no" and
    "balanced" for verdicts, "baseline: ..." (no output of the policy: `noun_chance`) for reading.

    Raises:
        ValueError: unknown name, a count below 1.
    """
    check_names([name])
    if name in BENCHMARKS:
        return pd.DataFrame(benchmark_rows(engine, name, count))
    if count < 1:
        raise ValueError(f"count of role {name} is {count!r}; allowed: 1 or more")
    return pd.DataFrame(part_rows(name, ROLES[name](engine, count)))


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError for a name that is neither a benchmark nor a role."""
    for name in names:
        if name not in NAMES:
            raise ValueError(f"benchmark is {name!r}; allowed: {', '.join(NAMES)}")


def report(
    model: Any, tokenizer: Any, count: int = 500, names: Sequence[str] = NAMES
) -> pd.DataFrame:
    """`measure` for several benchmarks and roles, and the bar where there is one.

    Raises:
        ValueError: as `measure`; an unknown name before anything is measured.
    """
    check_names(names)
    engine = TorchEngine(model, tokenizer, max_batch=256)
    table = pd.concat([measure(engine, name, count) for name in names], ignore_index=True)
    table["bar"] = table.benchmark.map(BARS).where(table.part.isin(["all", "balanced"]))
    return table


def compare(table: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Two policies' reports side by side, whole benchmarks only.

    Columns: benchmark, value, other, difference, noise (`NOISE` standard errors of the difference,
    read off the two 95 % intervals as if each policy had items of its own, some 7 points at 500
    items), within (whether the difference is no larger).
    """
    columns = ["benchmark", "value", "low", "high"]
    first, second = (frame.loc[frame.part == "all", columns] for frame in (table, other))
    both = first.merge(second, on="benchmark", suffixes=("", "_other"))
    widths = (both.high - both.low) ** 2 + (both.high_other - both.low_other) ** 2
    both["noise"] = NOISE * widths**0.5 / (2 * 1.96)
    both["difference"] = both.value - both.value_other
    both["within"] = both.difference.abs() <= both.noise
    both = both.rename(columns={"value_other": "other"})
    return both[["benchmark", "value", "other", "difference", "noise", "within"]]
