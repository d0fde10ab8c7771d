"""Held-out benchmarks: questions about worlds and in wordings that nothing is trained on.

    tasks = benchmark("reading-8")              # 500 tasks
    grade_text("<answer> Arnford</answer>", tasks[0])   # 1.0 or 0.0; a share for needles-*, open-*

All are drawn from fixed seeds with held-out names (which the embedded policies know as words, never
their facts) and `HELDOUT_FRAMES`; more tasks begin with the same ones. `suites.yaml` lists all with
their levels of difficulty, which take turns. The seven `search-*` sets share `search_corpus()` and
have the shape of the sets that search papers evaluate on: three of single facts (in the question's
words, reworded, of a rarer form) and four of several hops. (`reasoning-gym` has sums and syllogisms
too, but builds a C extension, and 8 % of its syllogism labels are wrong.)
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from spnb.core import prompts
from spnb.core.grading import variants
from spnb.core.method import Suite
from spnb.core.params import require, unknown
from spnb.core.types import Chat, Messages, Sampling, Task, derive_seed
from spnb.evaluate.items import ask_suite
from spnb.lab import oracle, tasks
from spnb.lab.oracle import HELDOUT_FRAMES, Query
from spnb.lab.tasks import Level
from spnb.lab.texts import facts_of, report, say, sections, sentence
from spnb.lab.world import METRICS, RELATIONS, SUFFIXES, WORDING, Pool, World, relations_of

SEED, COUNT, SEARCH_SEED = 20, 500, 21
POOL: Pool = "heldout"
ATTEMPTS = 200
BENCHMARKS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text()
)
"""By name what a benchmark asks (`about`), how its tasks are drawn, prompt styles, levels."""
SEARCH_SETS = tuple(name for name in BENCHMARKS if name.startswith("search-"))


# --- reading, figures, choice, needles


def _reading(
    rng: random.Random, style: prompts.Style, hops: int, documents: int, distances: Sequence[int]
) -> Task:
    level = Level(hops, documents, 1.0, 2, tuple(distances))
    return tasks.path_task(rng, level, POOL, HELDOUT_FRAMES, style)


def _choice(rng: random.Random, hops: int, documents: int) -> Task:
    """Four options; `hops` 0 is a question about a report."""
    if hops:
        task = tasks.path_task(rng, Level(hops, documents, 1.0, 2), POOL, HELDOUT_FRAMES)
    else:
        op = rng.choice(tasks.NUMERIC_OPS[:3])
        task = tasks.report_task(rng, op, documents, POOL, HELDOUT_FRAMES)
    return tasks.choice_task(task, rng)


def needles(rng: random.Random, count: int, documents: int, pool: Pool, frame: str) -> Task:
    """One question for `count` facts, each in another of `documents` documents.

    The gold values differ from each other, in the order of the question; graded by the share named.

    Raises:
        ValueError: fewer than two facts, fewer documents than facts.
    """
    if not 2 <= count <= documents:
        allowed = f"2 to {documents}, the number of documents"
        raise ValueError(f"count of needles is {count}; allowed: {allowed}")
    world = World(rng.getrandbits(48), pool=pool)
    subjects: list[str] = []
    while len(subjects) < documents:
        subjects.append(world.draw(rng, rng.choice(list(SUFFIXES)), but=subjects))
    shown = [rng.sample(facts_of(world, subject), 2) for subject in subjects]
    wanted: dict[str, str] = {}  # what is asked for, by its value
    for facts in shown:
        entity, noun, value = rng.choice(facts)
        if len(wanted) < count:
            wanted.setdefault(value, oracle.phrase(Query("path", entity, (noun,))))
    if len(wanted) < count:
        return needles(rng, count, documents, pool, frame)
    texts = [say(facts, rng, (0,)) for facts in shown]
    rng.shuffle(texts)
    *phrases, last = wanted.values()
    question = frame.format(x=f"{', '.join(phrases)} and {last}")
    info = {"documents": tuple(texts)}
    return Task(prompts.answer(question, texts), question, tuple(wanted), "shares", info=info)


# --- judging, rubrics, open-ended tasks


def _verdict(messages: Messages, question: str, holds: bool, *documents: str) -> Task:
    gold = prompts.YES if holds else prompts.NO
    return Task(messages, question, (gold,), "verdict", info={"documents": documents})


def _judge(rng: random.Random, holds: bool, reworded: bool) -> Task:
    task = tasks.path_task(rng, Level(1, 4), POOL, HELDOUT_FRAMES)
    first = second = task.gold[0]
    listed, _ = tasks.options(task, rng)
    if not holds:
        second = rng.choice([value for value in listed if value != first])
    if reworded:
        kind = tasks.value_type(task.info["query"])
        ways = list(zip(variants(first, kind), variants(second, kind), strict=True))
        (first, _), (_, second) = rng.sample(ways, 2)
    messages = prompts.judge(task.question, first, second)
    return _verdict(messages, task.question, holds)


def _rubric_grading(rng: random.Random, holds: bool, entities: int) -> Task:
    """Whether a text with the same two relations of some entities states a point.

    If not, its value stands there all the same: of another entity, or the entity does not.
    """
    facts, point = [], None
    while point is None or (point in facts) != holds:
        world = World(rng.getrandbits(48), pool=POOL)
        kind = rng.choice(list(SUFFIXES))
        subjects: list[str] = []
        while len(subjects) <= entities:
            subjects.append(world.draw(rng, kind, but=subjects))
        absent = subjects.pop()
        nouns = [relation.noun for relation in rng.sample(relations_of(kind), 2)]
        facts = [(s, noun, str(world.value(s, noun))) for s in subjects for noun in nouns]
        right = entity, noun, value = rng.choice(facts)
        other = rng.choice([fact[2] for fact in facts if fact[1] == noun and fact[0] != entity])
        wrong = (entity, noun, other) if rng.random() < 0.5 else (absent, noun, value)
        point = right if holds else wrong
    rng.shuffle(facts)
    response = say(facts, rng)
    messages = prompts.grade(response, sentence(point))
    return _verdict(messages, sentence(point), holds, response)


# --- arithmetic and logic


def _arithmetic(rng: random.Random, terms: int, digits: int) -> Task:
    """A chain of additions and subtractions of whole numbers with a result of 0 or more."""
    result = -1
    while result < 0:
        first, *others = [rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(terms)]
        signed = [rng.choice((1, -1)) * number for number in others]
        result = first + sum(signed)
    text = " ".join([str(first), *(f"{'+' if n > 0 else '-'} {abs(n)}" for n in signed)])
    question = rng.choice(HELDOUT_FRAMES).format(x=text)
    return Task(prompts.closed(question), question, (str(result),), info={"documents": ()})


QUANTIFIERS = ("All {} are {}", "No {} are {}", "Some {} are {}", "Some {} are not {}")
STATEMENT = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")


@cache
def _models() -> list[frozenset[tuple[bool, bool, bool]]]:
    """All ways that the 8 kinds of thing over three terms can exist, no term empty."""
    kinds = list(itertools.product((False, True), repeat=3))
    choices = itertools.product((False, True), repeat=8)
    sets = (frozenset(itertools.compress(kinds, choice)) for choice in choices)
    return [model for model in sets if model and all(map(any, zip(*model, strict=True)))]


def follows(premises: list[str], conclusion: str) -> bool:
    """Whether a categorical conclusion holds in every model of the premises."""
    parts = [part for text in (*premises, conclusion) for part in STATEMENT.findall(text)]
    terms = sorted({term for part in parts for term in (part[1], part[3])})

    def holds(part: tuple[str, str, str, str], model: frozenset[tuple[bool, bool, bool]]) -> bool:
        quantifier, subject, negated, predicate = part
        both = [kind[terms.index(predicate)] for kind in model if kind[terms.index(subject)]]
        if quantifier == "Some":
            return not all(both) if negated else any(both)
        return all(both) if quantifier == "All" else not any(both)

    models = (m for m in _models() if all(holds(part, m) for part in parts[:-1]))
    return all(holds(parts[-1], model) for model in models)


def _logic(rng: random.Random, holds: bool, one_premise: bool) -> Task:
    """A syllogism; `one_premise`: the conclusion speaks of the first premise's terms."""
    conclusion, premises = "", [""]
    while conclusion in premises or follows(premises, conclusion) != holds:
        first, middle, last = rng.sample(WORDING["logic_terms"], 3)
        pairs = [[first, middle], [middle, last], [first, middle] if one_premise else [first, last]]
        parts = [rng.choice(QUANTIFIERS).format(*rng.sample(pair, 2)) for pair in pairs]
        *premises, conclusion = parts
    conclusion = conclusion[0].lower() + conclusion[1:]
    question = f"{premises[0]}. {premises[1]}. Does it follow that {conclusion}?"
    return _verdict(prompts.closed(question), question, holds)


# --- search


@cache
def search_world() -> World:
    """The world of all `search-*` sets and of their corpus."""
    return World(SEARCH_SEED, pool=POOL)


def _reworded(entity: str) -> bool:
    """Whether the corpus's article on an entity avoids the relations' nouns: every second one."""
    _, index = search_world().index(entity)
    return index % 2 == 1


def search_corpus() -> Iterator[dict[str, Any]]:
    """The documents that the `search-*` sets are about: id, title, text, metadata.

    An article for each of the world's 288 entities (every second one reworded), a report for each
    company, and a guide in sections for every second town.
    """
    world = search_world()
    for kind, index in itertools.product(SUFFIXES, range(world.size)):
        name = world.name(kind, index)
        rng = random.Random(derive_seed(SEARCH_SEED, name))
        facts = facts_of(world, name)
        rng.shuffle(facts)
        text = say(facts, rng, (1, 2) if _reworded(name) else (0,))
        metadata = {"kind": "article", "world": SEARCH_SEED, "reworded": _reworded(name)}
        yield {"id": f"article:{name}", "title": name, "text": text, "metadata": metadata}
        if kind == "company":
            yield report(world, name)
        if kind == "town" and index % 2 == 0:
            yield sections(world, name, rng)


def _search(
    rng: random.Random, style: prompts.SearchStyle, hops: int, reworded: bool | None
) -> Task:
    """A path; `reworded` says how the articles on it are worded, None: any way."""
    while True:
        query = tasks.draw_path(search_world(), rng, hops)
        facts = oracle.answer(search_world(), query).facts
        if reworded is None or all(_reworded(entity) == reworded for entity, _, _ in facts):
            return tasks.search_task(search_world(), query, rng, HELDOUT_FRAMES, style)


def _figure(rng: random.Random, style: prompts.SearchStyle) -> Task:
    """One figure of a company's report."""
    world = search_world()
    company = world.draw(rng, "company")
    years = (rng.choice(list(world.years(company))),)
    query = Query("cell", company, metric=rng.choice(METRICS), years=years)
    return tasks.search_task(world, query, rng, HELDOUT_FRAMES, style)


def _reverse(rng: random.Random, style: prompts.SearchStyle, entities: bool) -> Task:
    """The only entity with a value: a name (`entities`) or a word, number or year."""
    world = search_world()
    relations = [relation for relation in RELATIONS if (relation.value in SUFFIXES) == entities]
    while True:
        relation = rng.choice(relations)
        value = str(world.value(world.draw(rng, relation.subject), relation.noun))
        query = Query("holder", value, (relation.noun,))
        if oracle.answer(world, query):
            return tasks.search_task(world, query, rng, HELDOUT_FRAMES, style)


# --- a benchmark's tasks

DRAWS: dict[str, Callable[..., Task]] = {
    "reading": _reading,
    "numeric": partial(tasks.report_task, pool=POOL, frames=HELDOUT_FRAMES),
    "choice": _choice,
    "needles": lambda rng, **level: needles(
        rng, pool=POOL, frame=rng.choice(HELDOUT_FRAMES), **level
    ),
    "judge": _judge,
    "rubric-grading": _rubric_grading,
    "open": lambda rng, kind, documents: tasks.open_task(
        rng, kind, Level(2, documents, 0.5, 2), POOL, wording=POOL
    ),
    "arithmetic": _arithmetic,
    "logic": _logic,
    "search": _search,
    "figure": _figure,
    "reverse": _reverse,
}


def benchmark(
    name: str, count: int = COUNT, seed: int = SEED, style: str = "careful"
) -> list[Task]:
    """The tasks of a benchmark, none twice; the levels of difficulty take turns.

    `style` is the instruction before the question ("plain", "steps" where the suite takes them).

    Raises:
        ValueError: unknown name or style, a count below 1 or above what the world's facts allow.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark is {name!r}; allowed: {', '.join(BENCHMARKS)}")
    styles = BENCHMARKS[name]["styles"]
    if style not in styles:
        raise ValueError(f"style of benchmark {name} is {style!r}; allowed: {', '.join(styles)}")
    if count < 1:
        raise ValueError(f"count of benchmark {name} is {count!r}; allowed: 1 or more")
    seen: set[tuple[Any, ...]] = set()
    return [_new_task(name, index, seed, style, seen) for index in range(count)]


def _new_task(name: str, index: int, seed: int, style: str, seen: set[tuple[Any, ...]]) -> Task:
    """Task number `index`, whose question (in whatever frame) and documents are put in `seen`."""
    suite = BENCHMARKS[name]
    level = dict(suite["levels"][index % len(suite["levels"])])
    difficulty = level.pop("difficulty")
    draw = DRAWS[level.pop("draw", suite["draw"])]
    if len(suite["styles"]) > 1:
        level["style"] = style
    for attempt in range(ATTEMPTS):
        task = draw(random.Random(derive_seed(seed, name, index, attempt)), **level)
        key = (oracle.parse(task.question) or task.question, task.info["documents"])
        if key not in seen:
            seen.add(key)
            return replace(task, difficulty=difficulty)
    problem = f"count of benchmark {name} is above {index}"
    raise ValueError(f"{problem}; allowed: fewer, its facts are used up")


def texts(name: str, count: int = COUNT, seed: int = SEED) -> list[str]:
    """What a training corpus must not hold: questions and documents (search: the corpus)."""
    tasks = benchmark(name, count, seed)
    documents = [text for task in tasks for text in task.info["documents"]]
    if name in SEARCH_SETS:
        documents = [str(document["text"]) for document in search_corpus()]
    return list(dict.fromkeys([*(task.question for task in tasks), *documents]))


# --- as a source


BENCHMARK_TOKENS = 120


def check(params: Any) -> None:
    """ValueError for `eval_benchmarks` that there are not."""
    for name in params.eval_benchmarks:
        require(name in BENCHMARKS, unknown("benchmark", name, BENCHMARKS))


class Benchmarks:
    """The benchmarks that `params.eval_benchmarks` name, `params.eval_questions` tasks of each."""

    def __init__(self, params: Any, tokenizer: Any):
        self.params = params

    def suites(self, chat: Chat, params: Any, end: bool) -> list[Suite]:
        """At both ends of a run, answered greedily."""
        names = params.eval_benchmarks if end else []
        return [benchmark_suite(chat, name, params.eval_questions) for name in names]


def benchmark_suite(chat: Chat, name: str, count: int) -> Suite:
    """The first `count` tasks of a benchmark of the document world, answered greedily."""
    sampling = Sampling(BENCHMARK_TOKENS, temperature=0.0)
    tasks = benchmark(name, count)
    how = {"seed_of": lambda place, _: derive_seed("benchmark", place), "metric": "grade"}
    return ask_suite(name, tasks, chat, sampling, **how)


make_source = Benchmarks
