"""Held-out benchmarks: questions about worlds and in wordings that nothing is trained on, with
exact grading.

    reading = benchmark("reading-8")            # 500 items
    item = reading.items[0]
    item.messages, item.difficulty, item.gold
    item.grade("<answer> Arnford</answer>")     # 1.0 or 0.0; a share for `needles-*` and `open-*`

Everything is drawn from fixed seeds with `pool="heldout"` names (which the embedded policies know
as words, never their facts) and the question frames `HELDOUT_FRAMES`; the same
name, count and seed give the same items, and more items begin with the same ones. `BENCHMARKS`
lists all with their levels of difficulty, which take turns. The seven `search-*` sets share one
corpus, `search_corpus()`; they have the shape of the sets that search papers evaluate on: three of
single facts (in the question's words, reworded, of a rarer form) and four of several hops. A
syllogism's label is what holds in all models of its premises. (`reasoning-gym` has sums and
syllogisms too, but builds a C extension, and 8 % of its syllogism labels are wrong.)
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.types import derive_seed
from spnb.testbed import oracle
from spnb.testbed.oracle import HELDOUT_FRAMES, Query
from spnb.testbed.tasks import (
    LETTERS,
    NUMERIC_OPS,
    Level,
    OpenKind,
    OpenTask,
    Task,
    draw_path,
    open_task,
    options,
    path_task,
    report_task,
    value_type,
)
from spnb.testbed.texts import facts_of, report, say, sections, sentence
from spnb.testbed.world import METRICS, RELATIONS, SUFFIXES, Pool, World, relations_of

SEED, COUNT, SEARCH_SEED = 20, 500, 21
POOL: Pool = "heldout"
Grading = Literal["answer", "letter", "verdict", "shares", "open"]
WORDINGS: dict[str, tuple[int, ...]] = {"own words": (0,), "reworded": (0, 1, 2)}


@dataclass(frozen=True)
class Item:
    """One held-out item.

    `gold` is the answer; several for `needles-*` (one a question) and `open-*` (the sentences a
    good text states). `question` and `documents` are what the prompt in `messages` is made of.
    `grading` says how `grade` reads an answer.
    """

    messages: prompts.Messages
    question: str
    gold: tuple[str, ...]
    grading: Grading = "answer"
    documents: tuple[str, ...] = ()
    open_task: OpenTask | None = None
    id: str = ""
    benchmark: str = ""
    difficulty: str = ""

    @property
    def answer(self) -> str:
        """A text that, inside the answer tag, gets the full grade."""
        return (" " if self.grading == "open" else ", ").join(self.gold)

    def grade(self, text: str) -> float:
        """The grade of a policy's whole output, 0 to 1; 0 where it has no well-formed answer."""
        given = prompts.field(text, "answer")
        return 0.0 if given is None else float(GRADERS[self.grading](self, given))


def shares(item: Item, given: str) -> float:
    """Share of several gold values that a list names; a list longer than asked for is divided by
    its own length."""
    parts = [part for part in re.split(r",|;|\n|\band\b", given) if part.strip()]
    found = sum(any(oracle.same(gold, part) for part in parts) for gold in item.gold)
    return found / max(len(item.gold), len(parts))


def _letter(item: Item, given: str) -> bool:
    return given.strip(" .()").upper() == item.gold[0]


def _verdict(item: Item, given: str) -> bool:
    return given.strip(" .").lower() == item.gold[0]


def _open(item: Item, given: str) -> float:
    return item.open_task.score(given) if item.open_task else 0.0


GRADERS: dict[Grading, Callable[[Item, str], float]] = {
    "answer": lambda item, given: oracle.same(item.gold[0], given),
    "letter": _letter,
    "verdict": _verdict,
    "shares": shares,
    "open": _open,
}


# --- reading, figures, choice, needles


def _read(task: Task, style: prompts.Style) -> Item:
    return Item(
        prompts.answer(task.question, task.documents, style),
        task.question,
        (task.gold.text,),
        "answer",
        task.documents,
    )


def _reading(
    rng: random.Random, style: prompts.Style, hops: int, documents: int, distances: tuple[int, ...]
) -> Item:
    return _read(
        path_task(rng, Level(hops, documents, 1.0, 2, distances), POOL, HELDOUT_FRAMES), style
    )


def _numeric(rng: random.Random, style: prompts.Style, op: Any, tables: int) -> Item:
    return _read(report_task(rng, op, tables, POOL, HELDOUT_FRAMES), style)


def _choice(rng: random.Random, style: prompts.Style, hops: int, documents: int) -> Item:
    """Four options; `hops` 0 is a question about a report."""
    if hops:
        task = path_task(rng, Level(hops, documents, 1.0, 2), POOL, HELDOUT_FRAMES)
    else:
        task = report_task(rng, rng.choice(NUMERIC_OPS[:3]), documents, POOL, HELDOUT_FRAMES)
    listed, letter = options(task, rng)
    messages = prompts.choice(task.question, listed, task.documents)
    return Item(messages, task.question, (letter,), "letter", task.documents)


def needles(
    rng: random.Random,
    count: int,
    documents: int,
    pool: Pool = POOL,
    frame: str = HELDOUT_FRAMES[0],
) -> Item:
    """One question for `count` facts about different entities, each in one of `documents`
    documents.

    The gold values differ from each other, in the order of the question; graded by the share named
    (`shares`).

    Raises:
        ValueError: fewer than two facts, fewer documents than facts.
    """
    if not 2 <= count <= documents:
        raise ValueError(
            f"count of needles is {count}; allowed: 2 to {documents}, the number of documents"
        )
    world, subjects, asked = World(rng.getrandbits(48), pool=pool), [], []
    while len(subjects) < documents:
        subjects.append(world.draw(rng, rng.choice(list(SUFFIXES)), but=subjects))
    shown = [rng.sample(facts_of(world, subject), 2) for subject in subjects]
    for facts in shown:
        fact = rng.choice(facts)
        if len(asked) < count and fact[2] not in {other[2] for other in asked}:
            asked.append(fact)
    if len(asked) < count:
        return needles(rng, count, documents, pool, frame)
    texts = [say(facts, rng, (0,)) for facts in shown]
    rng.shuffle(texts)
    phrases = [oracle.phrase(Query("path", fact[0], (fact[1],))) for fact in asked]
    question = frame.format(x=f"{', '.join(phrases[:-1])} and {phrases[-1]}")
    return Item(
        prompts.answer(question, texts),
        question,
        tuple(fact[2] for fact in asked),
        "shares",
        tuple(texts),
    )


def _needles(rng: random.Random, style: prompts.Style, count: int, documents: int) -> Item:
    return needles(rng, count, documents, frame=rng.choice(HELDOUT_FRAMES))


# --- judging, rubrics, open-ended tasks


def _judge(rng: random.Random, style: prompts.Style, yes: bool, reworded: bool) -> Item:
    task = path_task(rng, Level(1, 4), POOL, HELDOUT_FRAMES)
    listed, letter = options(task, rng)
    first = task.gold.text
    second = (
        first
        if yes
        else rng.choice([value for value in listed if value != listed[LETTERS.index(letter)]])
    )
    if reworded:
        kind = value_type(task.query)
        ways = zip(oracle.variants(first, kind), oracle.variants(second, kind), strict=True)
        (first, _), (_, second) = rng.sample(list(ways), 2)
    messages = prompts.judge(task.question, first, second)
    return Item(messages, task.question, (prompts.YES if yes else prompts.NO,), "verdict")


def _rubric_grade(rng: random.Random, style: prompts.Style, yes: bool, entities: int) -> Item:
    """Whether a text with the same two relations of some entities states a point.

    If not, its value is the text's all the same: that of another entity there, or said of an entity
    that is not there.
    """
    while True:
        world, kind, subjects = (
            World(rng.getrandbits(48), pool=POOL),
            rng.choice(list(SUFFIXES)),
            [],
        )
        while len(subjects) <= entities:
            subjects.append(world.draw(rng, kind, but=subjects))
        *subjects, absent = subjects
        nouns = [relation.noun for relation in rng.sample(relations_of(kind), 2)]
        facts = [
            (subject, noun, str(world.value(subject, noun)))
            for subject in subjects
            for noun in nouns
        ]
        entity, noun, value = rng.choice(facts)
        other = rng.choice([fact[2] for fact in facts if fact[1] == noun and fact[0] != entity])
        wrong = (entity, noun, other) if rng.random() < 0.5 else (absent, noun, value)
        point = (entity, noun, value) if yes else wrong
        if (point in facts) == yes:
            break
    rng.shuffle(facts)
    response = say(facts, rng)
    messages = prompts.grade(response, sentence(point))
    return Item(
        messages, sentence(point), (prompts.YES if yes else prompts.NO,), "verdict", (response,)
    )


OPEN_WORDINGS = (
    (re.compile(r"^Summarise what "), "Tell me what "),
    (re.compile(r"^Compare (.+) by their (\w+)\.$"), r"Tell me how \1 compare by their \2."),
    (re.compile(r"^(?:Explain|Plan) how "), "Tell me how "),
)
"""Open-ended tasks in words that training tasks don't use."""


def _open_item(rng: random.Random, style: prompts.Style, kind: OpenKind, documents: int) -> Item:
    task = open_task(rng, kind, Level(2, documents, 0.5, 2), POOL)
    text = task.text
    for pattern, heldout in OPEN_WORDINGS:
        text = pattern.sub(heldout, text)
    task = replace(task, text=text)
    return Item(
        prompts.task(text, task.documents), text, tuple(task.rubric()), "open", task.documents, task
    )


# --- arithmetic and logic


def _arithmetic(rng: random.Random, style: prompts.Style, terms: int, digits: int) -> Item:
    """A chain of additions and subtractions of whole numbers with a result of 0 or more, in a
    held-out frame."""
    while True:
        numbers = [rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(terms)]
        signs = [rng.choice((1, -1)) for _ in numbers[1:]]
        result = numbers[0] + sum(
            sign * number for sign, number in zip(signs, numbers[1:], strict=True)
        )
        if result >= 0:
            break
    rest = (
        f" {'+' if sign > 0 else '-'} {number}"
        for sign, number in zip(signs, numbers[1:], strict=True)
    )
    question = rng.choice(HELDOUT_FRAMES).format(x=f"{numbers[0]}{''.join(rest)}")
    return Item(prompts.closed(question), question, (str(result),))


QUANTIFIERS = ("All {} are {}", "No {} are {}", "Some {} are {}", "Some {} are not {}")
TERMS = (
    "bakers",
    "sailors",
    "swimmers",
    "readers",
    "dancers",
    "hunters",
    "singers",
    "runners",
    "painters",
    "farmers",
)
STATEMENT = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")


@cache
def _models() -> list[frozenset[tuple[bool, bool, bool]]]:
    """All ways that the 8 kinds of thing over three terms can exist, no term empty."""
    kinds = list(itertools.product((False, True), repeat=3))
    sets = (
        frozenset(itertools.compress(kinds, kept))
        for kept in itertools.product((False, True), repeat=8)
    )
    return [model for model in sets if all(any(kind[term] for kind in model) for term in range(3))]


def follows(premises: list[str], conclusion: str) -> bool:
    """Whether a categorical conclusion holds in every model of the premises (three terms, none
    empty)."""
    parts = [part for text in (*premises, conclusion) for part in STATEMENT.findall(text)]
    terms = sorted({term for part in parts for term in (part[1], part[3])})

    def holds(part: tuple[str, str, str, str], model: frozenset[tuple[bool, bool, bool]]) -> bool:
        quantifier, subject, negated, predicate = part
        both = [kind[terms.index(predicate)] for kind in model if kind[terms.index(subject)]]
        if quantifier == "Some":
            return not all(both) if negated else any(both)
        return all(both) if quantifier == "All" else not any(both)

    return all(
        holds(parts[-1], model)
        for model in _models()
        if all(holds(part, model) for part in parts[:-1])
    )


def _logic(rng: random.Random, style: prompts.Style, yes: bool, one_premise: bool) -> Item:
    """A syllogism; `one_premise`: the conclusion speaks of the first premise's terms, the other is
    beside the point."""
    while True:
        first, middle, last = rng.sample(TERMS, 3)
        pairs = [[first, middle], [middle, last], [first, middle] if one_premise else [first, last]]
        *premises, conclusion = (
            rng.choice(QUANTIFIERS).format(*rng.sample(pair, 2)) for pair in pairs
        )
        if conclusion not in premises and follows(premises, conclusion) == yes:
            break
    question = f"{premises[0]}. {premises[1]}. Does it follow that {conclusion[0].lower()}{conclusion[1:]}?"
    return Item(
        prompts.closed(question), question, (prompts.YES if yes else prompts.NO,), "verdict"
    )


# --- search


@cache
def search_world() -> World:
    """The world of all `search-*` sets and of their corpus."""
    return World(SEARCH_SEED, pool=POOL)


def _reworded(entity: str) -> bool:
    """Whether the corpus's article on an entity avoids the relations' own nouns: every second
    one."""
    found = search_world().index(entity)
    return found is not None and found[1] % 2 == 1


def search_corpus() -> Iterator[dict[str, Any]]:
    """The documents that the `search-*` sets are about, in the shape of any corpus: id, title,
    text, metadata.

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


def _searched(rng: random.Random, style: prompts.Style, query: Query) -> Item:
    gold = oracle.answer(search_world(), query)
    question = oracle.ask(query, rng.choice(HELDOUT_FRAMES))
    return Item(prompts.search(question, style), question, (gold.text if gold else "",))


def _search(
    rng: random.Random, style: prompts.Style, hops: int, reworded: bool | None = None
) -> Item:
    """A path; `reworded` says how the articles on it are worded, None: any way."""
    while True:
        query = draw_path(search_world(), rng, hops)
        gold = oracle.answer(search_world(), query)
        if gold and (
            reworded is None or all(_reworded(fact[0]) == reworded for fact in gold.facts)
        ):
            return _searched(rng, style, query)


def _figure(rng: random.Random, style: prompts.Style) -> Item:
    """One figure of a company's report."""
    world = search_world()
    company = world.draw(rng, "company")
    year = rng.choice(list(world.years(company)))
    return _searched(rng, style, Query("cell", company, metric=rng.choice(METRICS), years=(year,)))


def _reverse(rng: random.Random, style: prompts.Style, entities: bool) -> Item:
    """The only entity with a value: a name (`entities`) or a word, number or year."""
    world = search_world()
    nouns = [relation for relation in RELATIONS if (relation.value in SUFFIXES) == entities]
    while True:
        relation = rng.choice(nouns)
        value = str(world.value(world.draw(rng, relation.subject), relation.noun))
        query = Query("holder", value, (relation.noun,))
        if oracle.answer(world, query):
            return _searched(rng, style, query)


# --- the registry

Draw = Callable[[random.Random, prompts.Style], Item]


@dataclass(frozen=True)
class Suite:
    """A benchmark before its items are drawn: what it asks, its levels in turn, and the prompt
    styles it takes."""

    about: str
    levels: tuple[tuple[str, Draw], ...]
    styles: tuple[str, ...] = ("careful",)


@dataclass(frozen=True)
class Benchmark:
    """A named list of items."""

    name: str
    about: str
    items: tuple[Item, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)


READING_STYLES = ("careful", "plain", "steps")
NUMBER_WORDS = {2: "two", 3: "three", 4: "four"}


def _reading_suites() -> dict[str, Suite]:
    def levels(pairs: list[tuple[int, int]]) -> tuple[tuple[str, Draw], ...]:
        return tuple(
            (
                f"{hops} hop{'s' * (hops > 1)}, {documents} documents, {wording}",
                partial(_reading, **kept),
            )
            for hops, documents in pairs
            for wording, distances in WORDINGS.items()
            for kept in [{"hops": hops, "documents": documents, "distances": distances}]
        )

    about = "A fact among {} documents, read."
    suites = {
        f"reading-{n}": Suite(about.format(n), levels([(1, n)]), READING_STYLES) for n in (1, 4, 8)
    }
    for hops, word in NUMBER_WORDS.items():
        about = f"A chain of {word} facts in {hops + 2} or 8 documents."
        suites[f"reading-{word}-hops"] = Suite(
            about, levels([(hops, hops + 2), (hops, 8)]), READING_STYLES
        )
    for name, documents in (("long-8", 8), ("long-32", 32)):
        about = f"One or two facts among {documents} documents: {documents // 8} times the training length."
        suites[name] = Suite(about, levels([(1, documents), (2, documents)]), READING_STYLES)
    return suites


def _figure_suites() -> dict[str, Suite]:
    numeric = [
        (f"{op}, {tables} table{'s' * (tables > 1)}", partial(_numeric, op=op, tables=tables))
        for tables in (1, 2, 3)
        for op in NUMERIC_OPS
    ]
    choice = [
        *(
            (f"{h} hop, {n} documents", partial(_choice, hops=h, documents=n))
            for h, n in ((1, 4), (1, 8))
        ),
        ("2 hops, 4 documents", partial(_choice, hops=2, documents=4)),
        ("report", partial(_choice, hops=0, documents=1)),
    ]
    sums = [
        (
            f"{terms} numbers of {digits} digit{'s' * (digits > 1)}",
            partial(_arithmetic, terms=terms, digits=digits),
        )
        for terms, digits in ((2, 1), (2, 2), (3, 1), (3, 2))
    ]
    return {
        "numeric": Suite(
            "Figures of a company's accounts, looked up or worked out.",
            tuple(numeric),
            READING_STYLES,
        ),
        "choice": Suite(
            "Four options, one of them the answer to a question about documents.", tuple(choice)
        ),
        "arithmetic": Suite("Short sums without documents.", tuple(sums)),
    }


def _verdict_suites() -> dict[str, Suite]:
    def turns(draw: Any, key: str, levels: dict[str, Any]) -> tuple[tuple[str, Draw], ...]:
        """Each level once with each verdict, so that both are equally frequent."""
        return tuple(
            (label, partial(draw, yes=yes, **{key: value}))
            for label, value in levels.items()
            for yes in (True, False)
        )

    judged = turns(_judge, "reworded", {"as written": False, "reworded": True})
    graded = turns(_rubric_grade, "entities", {"4 facts": 2, "8 facts": 4})
    logic = turns(_logic, "one_premise", {"one premise": True, "two premises": False})
    return {
        "judge": Suite("Whether two answers mean the same; yes and no equally often.", judged),
        "rubric-grading": Suite("Whether a text states a point; yes and no equally often.", graded),
        "logic": Suite(
            "Whether a conclusion follows from two statements; yes and no equally often.", logic
        ),
    }


def _text_suites() -> dict[str, Suite]:
    suites = {}
    for count in (2, 4, 8):
        sizes = (8, 16) if count < 8 else (16, 24)
        levels = [(f"{n} documents", partial(_needles, count=count, documents=n)) for n in sizes]
        suites[f"needles-{count}"] = Suite(f"{count} facts asked for at once.", tuple(levels))
    kinds: tuple[OpenKind, ...] = ("summarise", "compare", "explain", "plan")
    for kind in kinds:
        levels = [(f"{n} documents", partial(_open_item, kind=kind, documents=n)) for n in (3, 6)]
        suites[f"open-{kind}"] = Suite(
            f"Texts that {kind}, graded by the facts that they state.", tuple(levels)
        )
    return suites


def _search_suites() -> dict[str, Suite]:
    def paths(hops: int, *wordings: tuple[str, bool | None]) -> tuple[tuple[str, Draw], ...]:
        return tuple(
            (
                f"{hops} hop{'s' * (hops > 1)}, {label}",
                partial(_search, hops=hops, reworded=reworded),
            )
            for label, reworded in wordings
        )

    own, reworded, mixed = ("own words", False), ("reworded", True), ("mixed", None)
    rarer = (
        ("from a name", partial(_reverse, entities=True)),
        ("a figure", _figure),
        ("from a word or number", partial(_reverse, entities=False)),
        ("a figure", _figure),
    )
    sets = {
        "search-lookup": ("One fact, in the question's words.", paths(1, own)),
        "search-reworded": ("One fact, in other words than the question's.", paths(1, reworded)),
        "search-rarer": ("The one entity that has a value, or a figure of a report.", rarer),
        "search-two-hops": ("Two facts, worded either way.", paths(2, own, mixed)),
        "search-two-reworded": (
            "Two facts, both in other words than the question's.",
            paths(2, reworded),
        ),
        "search-three-hops": ("Three facts.", paths(3, mixed)),
        "search-four-hops": ("Four facts.", paths(4, mixed)),
    }
    return {
        name: Suite(about, levels, ("careful", "plain")) for name, (about, levels) in sets.items()
    }


BENCHMARKS: dict[str, Suite] = {
    **_reading_suites(),
    **_figure_suites(),
    **_verdict_suites(),
    **_text_suites(),
    **_search_suites(),
}
SEARCH_SETS = tuple(name for name in BENCHMARKS if name.startswith("search-"))
ATTEMPTS = 200


def benchmark(name: str, count: int = COUNT, seed: int = SEED, style: str = "careful") -> Benchmark:
    """The items of a benchmark, no prompt twice.

    Args:
        name: one of `BENCHMARKS`.
        count: how many; the levels of difficulty take turns.
        style: the instruction before the question ("plain", "steps" where the suite takes them);
            the items are the same otherwise.

    Raises:
        ValueError: unknown name or style, a count below 1 or above what the world's facts allow.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark is {name!r}; allowed: {', '.join(BENCHMARKS)}")
    suite = BENCHMARKS[name]
    if style not in suite.styles:
        raise ValueError(
            f"style of benchmark {name} is {style!r}; allowed: {', '.join(suite.styles)}"
        )
    if count < 1:
        raise ValueError(f"count of benchmark {name} is {count!r}; allowed: 1 or more")
    items: list[Item] = []
    seen: set[tuple[Any, ...]] = set()
    for index in range(count):
        item = _new_item(name, index, seed, style, seen)
        seen.add(_asks(item))
        items.append(item)
    return Benchmark(name, suite.about, tuple(items))


def _asks(item: Item) -> tuple[Any, ...]:
    """What makes an item a repetition: its question and documents (a frame's wording does not make
    it new)."""
    query = oracle.parse(item.question)
    return (query or item.question, item.documents)


def _new_item(name: str, index: int, seed: int, style: str, seen: set[tuple[Any, ...]]) -> Item:
    levels = BENCHMARKS[name].levels
    difficulty, draw = levels[index % len(levels)]
    for attempt in range(ATTEMPTS):
        item = draw(random.Random(derive_seed(seed, name, index, attempt)), style)
        if _asks(item) not in seen:
            return replace(item, id=f"{name}/{index}", benchmark=name, difficulty=difficulty)
    raise ValueError(
        f"count of benchmark {name} is above {index}; allowed: fewer, its facts are used up"
    )


def texts(name: str, count: int = COUNT, seed: int = SEED) -> list[str]:
    """What a training corpus must not hold: each item's question, and the documents behind it
    (search: the corpus)."""
    items = benchmark(name, count, seed).items
    if name in SEARCH_SETS:
        documents = [str(document["text"]) for document in search_corpus()]
    else:
        documents = [text for item in items for text in item.documents]
    return list(dict.fromkeys([*(item.question for item in items), *documents]))
