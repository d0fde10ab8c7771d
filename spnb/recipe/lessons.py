"""What the embedded policies are shown: rows of text about fresh worlds, one function a lesson.

Two courses. `READING` teaches to find a fact about an entity among documents (and, by recall rows,
to copy names). `LESSONS` teaches every role's format. Roles that reinforcement learning is to
improve are shown at a stated, mixed quality (`PLAIN_THINKS`, `SLIP` and so on): a policy that
learned from them knows the good behaviour and does not rely on it. Every row has a world of its
own, so no fact is ever seen twice; names of both pools occur (as words they must be known),
held-out question frames never.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from spnb.core import prompts
from spnb.core.prompts import Messages
from spnb.games import make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.recipe import demos
from spnb.recipe.build import END, START
from spnb.recipe.demos import KUHN, TICTACTOE, TICTACTOE_PLAIN, Demo
from spnb.testbed import oracle
from spnb.testbed.oracle import Answer, Op, Query
from spnb.testbed.suites import needles
from spnb.testbed.tasks import (
    LETTERS,
    NUMERIC_OPS,
    Level,
    OpenKind,
    Task,
    draw_figure,
    open_task,
    options,
    path_task,
    questions_of,
    report_task,
    value_type,
)
from spnb.testbed.texts import Fact, article, say, sentence, table_row, wordings
from spnb.testbed.world import BY_NOUN, SUFFIXES, WORDS, Pool, World, names

Segment = tuple[str, bool]
Row = list[Segment]
"""A row of text in pieces; True marks what a policy is to say."""

PLAIN_THINKS, PLAIN_DIRECT_RIGHT, PLAIN_THINK_RIGHT = 0.4, 0.1, 0.9
SEARCHES, SEARCH_RIGHT = 0.35, 0.9
SLIP = 0.4
"""Chance that a demonstration in the style "steps" goes wrong at each hop after the first."""
OPEN_KINDS: tuple[OpenKind, ...] = ("summarise", "compare", "explain", "plan")
ASK_HOPS = (0.6, 0.25, 0.1, 0.05)
RETRIEVED = 2


def turn(messages: Messages, *said: Segment) -> Row:
    """One user turn and the assistant's answer, whose pieces from outside are marked False."""
    content = messages[-1]["content"]
    return [
        (f"{START}user\n{content}{END}\n{START}assistant\n", False),
        *said,
        (END, True),
        ("\n", False),
    ]


def say_answer(text: str) -> str:
    """An answer in its tag."""
    return f"<answer> {text}</answer>"


def thoughts(facts: Sequence[Fact]) -> str:
    """Facts in the order of the steps, inside the thinking tag."""
    return f"<think> {' '.join(sentence(fact) for fact in facts)}</think>"


def solution(query: Query, gold: Answer) -> str:
    """The right answer to a question, thinking first where it takes figures or more than one
    fact."""
    if query.op in NUMERIC_OPS:
        return f"<think> {working(query.op, gold)}</think>{say_answer(gold.text)}"
    return (thoughts(gold.facts) if len(gold.facts) > 1 else "") + say_answer(gold.text)


def working(op: Op, gold: Answer) -> str:
    """The lines of the table that a numeric answer rests on, and the sum where there is one."""
    cells = [(company, *label.split(), value) for company, label, value in gold.facts]
    lines = " ".join(
        f"{table_row(year, company, metric, value)}." for company, metric, year, value in cells
    )
    values = [value for *_, value in cells]
    worked = {
        "sum": "{0} + {1} = {2}.",
        "difference": "{1} - {0} = {2}.",
        "margin": "{0} - {1} = {2}.",
    }
    return f"{lines} {worked[op].format(*values, gold.text)}" if op in worked else lines


def other_value(task: Task, rng: random.Random) -> str:
    """A wrong answer of the right type: one that the documents state if there is one, three times
    in four."""
    wrong, letter = options(task, rng)
    gold = LETTERS.index(letter)
    return rng.choice([option for index, option in enumerate(wrong) if index != gold])


def pool_of(rng: random.Random) -> Pool:
    """Which names a row uses: a policy is to know all of them as words; the facts are new in every
    row."""
    return "train" if rng.random() < 2 / 3 else "heldout"


def fresh_task(rng: random.Random, level: Level) -> Task:
    """A path task in a world of its own, with names of either pool."""
    return path_task(rng, level, pool_of(rng))


# --- reading


def reading_level(rng: random.Random, documents: Sequence[int], hops: Sequence[float]) -> Level:
    """A level with one of the given document counts, hops drawn by weight, six rows in ten
    reworded."""
    steps = rng.choices(range(1, len(hops) + 1), hops)[0]
    distances = (0, 1, 2) if rng.random() < 0.6 else (0,)
    shown = max(rng.choice(list(documents)), steps + (steps > 1))
    return Level(steps, shown, rng.choice((0.3, 0.7, 1.0)), rng.choice((1, 2, 2, 3)), distances)


def reading(
    rng: random.Random, documents: Sequence[int], hops: Sequence[float], questions: int = 6
) -> Row:
    """Several questions about the same documents in one conversation, each answered right."""
    task = fresh_task(rng, reading_level(rng, documents, hops))
    asked = [(task.question, solution(task.query, task.gold))]
    known = {length: questions_of(task.documents, length) for length in range(1, len(hops) + 1)}
    for _ in range(questions - 1):
        length = rng.choices(range(1, len(hops) + 1), hops)[0]
        if known[length]:
            asked.append(question_and_solution(*rng.choice(known[length]), rng))
    if rng.random() < 0.3:
        asked += holder_questions(task, rng)
    return conversation(asked, task.documents)


def question_and_solution(query: Query, gold: Answer, rng: random.Random) -> tuple[str, str]:
    """A question in one of the training frames, and its solution."""
    return oracle.ask(query, rng.choice(oracle.TRAIN_FRAMES)), solution(query, gold)


def conversation(asked: Sequence[tuple[str, str]], documents: Sequence[str]) -> Row:
    """Questions about the same documents with their solutions, one turn after the other."""
    row = turn(prompts.answer(asked[0][0], documents), (asked[0][1], True))
    for question, reply in asked[1:]:
        row += turn([{"role": "user", "content": f"Question: {question}"}], (reply, True))
    return row


def holder_questions(task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """One question from a value back to its entity, where it has one answer."""
    stated = task.stated
    _, noun, value = rng.choice(stated)
    query = Query("holder", value, (noun,))
    found = oracle.answer_from(query, stated)
    return [] if found is None else [question_and_solution(query, found, rng)]


def words(rng: random.Random) -> list[str]:
    """Random words of the world as bare strings: names of both pools, values, numbers."""
    kind = rng.choice([*SUFFIXES, *SUFFIXES, "word", "number"])
    if kind == "word":
        return list(rng.choice(list(WORDS.values())))
    if kind == "number":
        return [str(number) for number in range(10, 100)]
    return [*names(kind, "train"), *names(kind, "heldout")]


def recall(rng: random.Random) -> Row:
    """Copying rows: a list said again, pairs whose second part is asked for, or triples with a
    relation's noun."""
    form = rng.randrange(3)
    if form == 0:
        listed = [rng.choice(words(rng)) for _ in range(rng.randint(8, 24))]
        return [(" " + " ".join(listed), False), (" " + " ".join(listed), True)]
    count = rng.randint(4, 14)
    values = [rng.choice(words(rng)) for _ in range(count)]
    keys = [rng.choice(words(rng)) for _ in range(count)]
    if form == 2:
        nouns = list(BY_NOUN)
        some = rng.sample(keys, max(1, count // 2))
        keys = [f"{rng.choice(some)} {rng.choice(nouns)}" for _ in range(count)]
    pairs = dict(zip(keys, values, strict=True))
    row: Row = [("".join(f" {key} {value}." for key, value in pairs.items()), False)]
    for key in rng.choices(list(pairs), k=count):
        row += [(f" {key}", False), (f" {pairs[key]}", True), (".", False)]
    return row


# --- roles


def careful(rng: random.Random) -> Row:
    """One question, answered right."""
    return reading(rng, (1, 2, 4, 8, 8), (0.5, 0.3, 0.12, 0.08), questions=4)


def plain(rng: random.Random) -> Row:
    """The same task in the style "plain": often a guess, sometimes thought through."""
    task = fresh_task(rng, reading_level(rng, (2, 4, 4, 8), (0.6, 0.4)))
    if rng.random() < PLAIN_THINKS:
        facts = task.gold.facts if rng.random() < PLAIN_THINK_RIGHT else slipped(task, rng, 1.0)
        reply = thoughts(facts) + say_answer(facts[-1][2])
    else:
        reply = say_answer(
            task.gold.text if rng.random() < PLAIN_DIRECT_RIGHT else other_value(task, rng)
        )
    return turn(prompts.answer(task.question, task.documents, "plain"), (reply, True))


def slipped(task: Task, rng: random.Random, chance: float) -> tuple[Fact, ...]:
    """The steps of a path that slip to another value by chance, once, at a hop after the first (at
    one hop: there)."""
    facts: list[Fact] = []
    entity, slip = task.query.entity, False
    for hop, noun in enumerate(task.query.nouns):
        value = str(task.world.value(entity, noun))
        if not slip and (hop or len(task.query.nouns) == 1) and rng.random() < chance:
            value, slip = another(task, noun, value, rng), True
        facts.append((entity, noun, value))
        entity = value
    return tuple(facts)


def another(task: Task, noun: str, value: str, rng: random.Random) -> str:
    """Another value of a relation: one that the documents state if there is one, else any."""
    kind = BY_NOUN[noun].value
    rivals = [v for _, n, v in task.stated if BY_NOUN[n].value == kind and v != value]
    if rivals:
        return rng.choice(rivals)
    if kind in SUFFIXES:
        return rng.choice([name for name in names(kind, task.world.pool) if name != value])
    if kind in WORDS:
        return rng.choice([word for word in WORDS[kind] if word != value])
    return str(int(value) + rng.choice((-3, -2, -1, 1, 2, 3)))


def steps(rng: random.Random) -> Row:
    """Style "steps": one fact right, each further hop with a chance to slip; difficulty grows with
    the hops."""
    task = fresh_task(rng, reading_level(rng, (2, 4, 4, 6), (0.3, 0.35, 0.2, 0.15)))
    facts = slipped(task, rng, SLIP) if len(task.query.nouns) > 1 else task.gold.facts
    return turn(
        prompts.answer(task.question, task.documents, "steps"),
        (thoughts(facts) + say_answer(facts[-1][2]), True),
    )


def closed(rng: random.Random) -> Row:
    """No documents: a guess of the right type."""
    task = fresh_task(rng, Level(1, 1))
    return turn(prompts.closed(task.question), (say_answer(other_value(task, rng)), True))


FIGURE_QUESTIONS = {1: 5, 2: 4, 3: 2}
"""How many questions are asked about so many tables; more would not fit."""


def numeric(rng: random.Random) -> Row:
    """Questions about the figures of one to three companies, worked out."""
    companies = rng.choice((1, 1, 2, 3))
    task = report_task(rng, rng.choice(NUMERIC_OPS), companies, pool_of(rng))
    shown = list(dict.fromkeys(fact[0] for fact in task.stated))
    asked = [(task.question, solution(task.query, task.gold))]
    while len(asked) < FIGURE_QUESTIONS[companies]:
        found = draw_figure(task.world, rng.choice(shown), rng.choice(NUMERIC_OPS), rng)
        if found:
            asked.append(question_and_solution(*found, rng))
    return conversation(asked, task.documents)


def several(rng: random.Random) -> Row:
    """Several facts asked for at once among four or eight documents, each value given in the
    question's order."""
    item = needles(
        rng,
        rng.choice((2, 2, 3, 4)),
        rng.choice((4, 8)),
        pool_of(rng),
        rng.choice(oracle.TRAIN_FRAMES),
    )
    return turn(item.messages, (say_answer(item.answer), True))


def arithmetic(rng: random.Random) -> Row:
    """Eight short sums, each a turn's question in the closed style."""
    row: Row = []
    for index in range(8):
        a, b = rng.randint(1, 29), rng.randint(1, 29)
        text, value = (
            (f"{a} + {b}", a + b)
            if rng.random() < 0.5
            else (f"{max(a, b)} - {min(a, b)}", abs(a - b))
        )
        question = f"What is {text}?"
        messages = (
            prompts.closed(question)
            if index == 0
            else [{"role": "user", "content": f"Question: {question}"}]
        )
        row += turn(messages, (say_answer(str(value)), True))
    return row


def choice(rng: random.Random) -> Row:
    """Multiple choice: the fact, then the letter; one in eight without documents, a guess."""
    if rng.random() < 0.15:
        task = report_task(rng, rng.choice(NUMERIC_OPS[:3]), 1, pool_of(rng))
        thought = f"<think> {working(task.query.op, task.gold)}"
    else:
        task = fresh_task(rng, reading_level(rng, (1, 2, 4, 8), (0.7, 0.3)))
        thought = thoughts(task.gold.facts).removesuffix("</think>")
    listed, letter = options(task, rng)
    if rng.random() < 0.125:
        return turn(prompts.choice(task.question, listed), (say_answer(rng.choice(LETTERS)), True))
    note = f"{thought} {task.gold.text} ({letter})</think>"
    return turn(
        prompts.choice(task.question, listed, task.documents), (note + say_answer(letter), True)
    )


def judging(rng: random.Random) -> Row:
    """Whether two answers mean the same, both verdicts equally often."""
    task = fresh_task(rng, Level(1, 4))
    first, kind = task.gold.text, value_type(task.query)
    yes = rng.random() < 0.5
    second = first if yes else other_value(task, rng)
    shown = [rng.choice(oracle.variants(text, kind)) for text in (first, second)]
    return turn(
        prompts.judge(task.question, *shown), (say_answer(prompts.YES if yes else prompts.NO), True)
    )


def open_level(rng: random.Random) -> Level:
    """A level for open-ended tasks."""
    return Level(
        2, rng.choice((2, 3, 4)), 0.5, rng.choice((1, 2, 3)), rng.choice(((0,), (0, 1, 2)))
    )


def rubric(rng: random.Random) -> Row:
    """The points of an open-ended task."""
    task = open_task(rng, rng.choice(OPEN_KINDS), open_level(rng), pool_of(rng))
    points = "".join(f"<rubric> {point}</rubric>" for point in task.rubric())
    return turn(prompts.rubric(task.text, task.documents), (points, True))


def writing(rng: random.Random) -> Row:
    """An open-ended task done: all of its points, or some of them."""
    task = open_task(rng, rng.choice(OPEN_KINDS), open_level(rng), pool_of(rng))
    points = task.rubric()
    kept = points if rng.random() < 0.5 else points[: rng.randint(1, len(points))]
    return turn(prompts.task(task.text, task.documents), (say_answer(" ".join(kept)), True))


def grading(rng: random.Random) -> Row:
    """Whether a response states each of three points; yes and no equally often, the noes wrong in
    one part."""
    task = fresh_task(rng, Level(1, rng.choice((2, 3, 4)), 1.0, rng.choice((1, 2))))
    facts = list(dict.fromkeys(task.stated))
    response = say(facts, rng, rng.choice(((0,), (0, 1, 2))))
    row: Row = []
    for said in rng.sample(facts, min(3, len(facts))):
        point, note, yes = graded_point(task, said, rng)
        messages = (
            [{"role": "user", "content": f"Point: {point}"}]
            if row
            else prompts.grade(response, point)
        )
        row += turn(
            messages,
            (f"<think> {note}</think>{say_answer(prompts.YES if yes else prompts.NO)}", True),
        )
    return row


def graded_point(task: Task, said: Fact, rng: random.Random) -> tuple[str, str, bool]:
    """A point about a stated fact, what a grader notes (both values side by side), and whether it
    is stated."""
    entity, noun, value = said
    yes = rng.random() < 0.5
    if not yes and rng.random() < 0.4:
        kind, held = BY_NOUN[noun].subject, [fact[0] for fact in task.stated]
        return sentence((task.world.draw(rng, kind, but=held), noun, value)), "Nothing.", False
    claimed = value if yes else another(task, noun, value, rng)
    return (
        sentence((entity, noun, claimed)),
        f"{sentence(said)} First: {value}\nSecond: {claimed}",
        yes,
    )


def retrieved(task: Task, fact: Fact, rng: random.Random) -> list[str]:
    """What a search returns: the document with the fact among others of the same world."""
    world, first = task.world, [fact[0]]
    while len(first) < RETRIEVED:
        first.append(world.draw(rng, rng.choice(list(SUFFIXES)), but=first))
    shown = [article(world, entity, rng)["text"] for entity in first]
    rng.shuffle(shown)
    return shown


def searched(task: Task, rng: random.Random, right: float) -> Row:
    """A search for each fact, then the answer."""
    said: Row = []
    for hop, fact in enumerate(task.gold.facts):
        query = f"the {fact[1]} of {fact[0]}"
        lead = thoughts([task.gold.facts[hop - 1]]) if hop else ""
        said.append((f"{lead}<search> {query}</search>", True))
        said.append((prompts.information(retrieved(task, fact, rng), task.question), False))
    answer = task.gold.text if rng.random() < right else other_value(task, rng)
    last = thoughts([task.gold.facts[-1]]) if len(task.gold.facts) > 1 else ""
    said.append((last + say_answer(answer), True))
    return said


def search_careful(rng: random.Random) -> Row:
    """Search first, always."""
    task = fresh_task(rng, Level(rng.choice((1, 1, 2)), 4))
    return turn(prompts.search(task.question), *searched(task, rng, 1.0))


def search_plain(rng: random.Random) -> Row:
    """Style "plain": mostly a guess at once, sometimes a search."""
    task = fresh_task(rng, Level(rng.choice((1, 1, 2)), 4))
    if rng.random() < SEARCHES:
        return turn(prompts.search(task.question, "plain"), *searched(task, rng, SEARCH_RIGHT))
    return turn(prompts.search(task.question, "plain"), (say_answer(other_value(task, rng)), True))


def asking(
    rng: random.Random,
    documents: Sequence[int] = (2, 4, 4, 6),
    hops: Sequence[float] = ASK_HOPS,
    facts: Sequence[int] = (1, 2, 2, 3),
) -> Row:
    """A question with its answer after the documents' sentences; beyond earlier questions where
    there are some."""
    task = fresh_task(
        rng, replace(reading_level(rng, documents, hops), facts=rng.choice(list(facts)))
    )
    earlier: list[str] = []
    if rng.random() < 0.3 and len(task.query.nouns) > 1:
        easy = questions_of(task.documents, len(task.query.nouns) - 1) or questions_of(
            task.documents, 1
        )
        chosen = rng.sample(easy, min(len(easy), rng.randint(1, 2)))
        earlier = [oracle.ask(query, rng.choice(oracle.TRAIN_FRAMES)) for query, _ in chosen]
    note = f"<think>{quoted(task)}</think>"
    reply = f"{note}<question> {task.question}</question>{say_answer(task.gold.text)}"
    return turn(prompts.ask(task.documents, earlier), (reply, True))


def asking_far(rng: random.Random) -> Row:
    """The same about more and shorter documents, most questions of several facts."""
    return asking(rng, (4, 6, 6, 8), (0.3, 0.4, 0.2, 0.1), (1, 1, 2))


def quoted(task: Task) -> str:
    """The first fact's document from its number up to that fact, then the sentences of the other
    facts.

    Word for word, so that all of it is copying: a policy that has to say a fact in a form of its
    own makes facts up.
    """
    first, *others = task.gold.facts
    text, said = task.documents[task.support[0]], wordings(task.documents)
    start = text[: text.index(said[first]) + len(said[first])]
    return " ".join([f"\n[{task.support[0] + 1}] {start}", *(said[fact] for fact in others)])


def drill(rng: random.Random) -> Row:
    """Many short exercises of one kind in a row: what takes most practice and single lessons hold
    little of."""
    return rng.choice((table_drill, option_drill, sum_drill, sum_drill, figure_drill, same_drill))(
        rng
    )


def table_drill(rng: random.Random) -> Row:
    """Lines of one or two tables asked for again."""
    task = report_task(rng, "cell", rng.choice((1, 2)), pool_of(rng))
    row: Row = [("\n".join(task.documents) + "\n", False)]
    for company, label, figure in rng.sample(task.stated, 10):
        metric, year = label.split()
        start, end = table_row(year, company, metric, figure).rsplit(" ", 1)
        row += [(start, False), (f" {end}", True), (".\n", False)]
    return row


def option_drill(rng: random.Random) -> Row:
    """The letters of listed options."""
    listed = dict(zip(rng.sample(words(rng), 4), LETTERS, strict=True))
    row: Row = [
        ("\n".join(f"- {word} ({letter})" for word, letter in listed.items()) + "\n", False)
    ]
    for word in rng.choices(list(listed), k=8):
        row += [(f" {word} (", False), (f"{listed[word]})", True)]
    return row


def sum_drill(rng: random.Random) -> Row:
    """Sums and differences of numbers as reports hold them."""
    row: Row = []
    for _ in range(14):
        a, b = rng.randint(1, 29), rng.randint(10, 29)
        a, sign, b = (a, "+", b) if rng.random() < 0.5 else (max(a, b), "-", min(a, b))
        row += [(f" {a} {sign} {b} =", False), (f" {a + b if sign == '+' else a - b}.", True)]
    return row


def figure_drill(rng: random.Random) -> Row:
    """Facts with numbers and years, said again in the relation's own noun."""
    world = World(rng.getrandbits(48), pool=pool_of(rng))
    nouns = [relation for relation in BY_NOUN.values() if relation.value in ("number", "year")]
    facts = []
    for _ in range(rng.randint(2, 8)):
        relation = rng.choice(nouns)
        entity = world.draw(rng, relation.subject)
        facts.append((entity, relation.noun, str(world.value(entity, relation.noun))))
    row: Row = [(" " + say(facts, rng) + "\n", False)]
    for fact in rng.choices(facts, k=8):
        start, figure = sentence(fact).rsplit(" ", 1)
        row += [(f" {start}", False), (f" {figure}", True)]
    return row


def same_drill(rng: random.Random) -> Row:
    """Whether two sentences about the same relation say the same."""
    row: Row = []
    for _ in range(6):
        task = fresh_task(rng, Level(1, 1))
        fact, yes = task.gold.facts[0], rng.random() < 0.5
        other = fact if yes else (*fact[:2], another(task, fact[1], fact[2], rng))
        row += [
            (f" {sentence(fact)} {sentence(other)}", False),
            (f" {prompts.YES if yes else prompts.NO}", True),
        ]
    return row


def asking_by_search(rng: random.Random) -> Row:
    """Given an answer: search for it, then a question about the entity that has it as a value."""
    task = fresh_task(rng, Level(1, 1))
    fact = task.gold.facts[0]
    info = prompts.information(retrieved(task, fact, rng))
    question = f"{thoughts([fact])}<question> {task.question}</question>"
    return turn(
        prompts.ask_search(fact[2]),
        (f"<search> {fact[2]}</search>", True),
        (info, False),
        (question, True),
    )


LESSONS: dict[str, Callable[[random.Random], Row]] = {
    "careful": careful,
    "plain": plain,
    "steps": steps,
    "closed": closed,
    "numeric": numeric,
    "several": several,
    "arithmetic": arithmetic,
    "choice": choice,
    "judge": judging,
    "rubric": rubric,
    "task": writing,
    "grade": grading,
    "search": search_careful,
    "search_plain": search_plain,
    "ask": asking,
    "ask_far": asking_far,
    "ask_search": asking_by_search,
    "recall": recall,
    "drill": drill,
}
SHARES = {
    "careful": 0.14,
    "plain": 0.06,
    "steps": 0.06,
    "closed": 0.01,
    "numeric": 0.08,
    "several": 0.03,
    "arithmetic": 0.01,
    "choice": 0.08,
    "judge": 0.05,
    "rubric": 0.03,
    "task": 0.03,
    "grade": 0.07,
    "search": 0.06,
    "search_plain": 0.05,
    "ask": 0.12,
    "ask_search": 0.03,
    "recall": 0.02,
    "drill": 0.15,
    "games": 0.06,
}
"""What the roles course is made of: weights of the lessons, and the share of games."""
PRACTICE_SHARES = {
    "careful": 0.1,
    "plain": 0.05,
    "steps": 0.05,
    "closed": 0.01,
    "numeric": 0.14,
    "several": 0.02,
    "arithmetic": 0.01,
    "choice": 0.04,
    "judge": 0.03,
    "rubric": 0.02,
    "task": 0.02,
    "grade": 0.04,
    "search": 0.04,
    "search_plain": 0.04,
    "ask": 0.1,
    "ask_far": 0.25,
    "ask_search": 0.02,
    "drill": 0.03,
    "games": 0.04,
}
"""What the last course is made of: everything once more, mostly what is learned last (asking,
figures)."""
TOKENIZER_SHARES = {
    "careful": 0.16,
    "plain": 0.08,
    "steps": 0.08,
    "closed": 0.02,
    "numeric": 0.12,
    "arithmetic": 0.06,
    "choice": 0.1,
    "judge": 0.08,
    "rubric": 0.03,
    "task": 0.03,
    "grade": 0.07,
    "search": 0.05,
    "search_plain": 0.06,
    "ask": 0.1,
    "ask_search": 0.03,
    "recall": 0.04,
    "games": 0.1,
}
"""What the tokenizer's sample is made of; other shares would make other tokens."""


NEGOTIATION_SHARE = 0.3
"""Of the game turns; the others are poker, tic-tac-toe and questions about boards."""
OTHER_GAME_SHARES = {TICTACTOE: 0.5, KUHN: 0.4, TICTACTOE_PLAIN: 0.1}
"""Of the draws of those: matches by game."""


def game_demos(seed: int) -> Iterator[Demo]:
    """An endless stream of turns of the three games in legal, unskilled play, and questions about
    boards and hands."""
    rng, others, negotiating = random.Random(seed), demos.demos(seed, OTHER_GAME_SHARES), iter(())
    trade = make_game(NEGOTIATION)
    while True:
        if rng.random() >= NEGOTIATION_SHARE:
            yield next(others)
            continue
        demo = next(negotiating, None)
        if demo is None:
            negotiating = demos.game_demos(trade, rng)
            demo = next(negotiating)
        yield demo


def role_rows(seed: int, shares: Mapping[str, float] = SHARES) -> Iterator[Row]:
    """An endless stream of role lessons and game turns; the same for the same seed and shares."""
    rng, games = random.Random(seed), game_demos(seed)
    names_of = [name for name in shares if name != "games"]
    weights = [shares[name] for name in names_of]
    while True:
        if rng.random() < shares["games"]:
            demo = next(games)
            yield turn(demo.messages, (demo.answer, True))
        else:
            yield LESSONS[rng.choices(names_of, weights)[0]](rng)


def reading_rows(
    seed: int, documents: Sequence[int], hops: Sequence[float], recall_share: float
) -> Iterator[Row]:
    """An endless stream of reading conversations and recall rows."""
    rng = random.Random(seed)
    while True:
        yield recall(rng) if rng.random() < recall_share else reading(rng, documents, hops)
