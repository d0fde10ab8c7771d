"""What the policies of the document world are shown: rows of text, one function a lesson.

`LESSONS` teach every role's format, in the mixes of `mixes.yaml`. Roles that reinforcement learning
is to improve are shown at a stated, mixed quality (`PLAIN_THINKS`, `SLIP` and so on): a policy that
learned from them knows the good behaviour and does not rely on it. Every row has a world of its
own, so no fact is seen twice; names of both pools occur, held-out question frames never.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from spnb.core import prompts
from spnb.core.grading import variants
from spnb.core.types import Task
from spnb.games import make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.lab import oracle, suites, tasks, texts
from spnb.lab.oracle import Query, questions_of
from spnb.lab.pretrain import demos, rows
from spnb.lab.pretrain.demos import KUHN, TICTACTOE, TICTACTOE_PLAIN, Demo
from spnb.lab.pretrain.drills import drill, recall
from spnb.lab.pretrain.rows import (
    Row,
    Segment,
    answer_tag,
    fresh_task,
    thoughts,
    turn,
    wrong_answer,
)
from spnb.lab.tasks import LETTERS, NUMERIC_OPS, Level, stated
from spnb.lab.texts import Fact, sentence
from spnb.lab.world import BY_NOUN, SUFFIXES

MIXES_FILE = Path(__file__).with_name("mixes.yaml")
MIXES: dict[str, dict[str, float]] = yaml.safe_load(MIXES_FILE.read_text())
"""The lessons of each course: roles, practice, and tokenizer (the sample it is made from)."""
PLAIN_THINKS, PLAIN_DIRECT_RIGHT, PLAIN_THINK_RIGHT = 0.4, 0.1, 0.9
SEARCHES, SEARCH_RIGHT = 0.35, 0.9
SLIP = 0.4
"""Chance that a demonstration in the style "steps" goes wrong at each hop after the first."""
OPEN_KINDS: tuple[tasks.OpenKind, ...] = ("summarise", "compare", "explain", "plan")
FIGURE_QUESTIONS = {1: 5, 2: 4, 3: 2}
"""Questions about so many tables; more would not fit."""
NEGOTIATION_SHARE, OTHER_GAME_SHARES = 0.3, {TICTACTOE: 0.5, KUHN: 0.4, TICTACTOE_PLAIN: 0.1}
"""Negotiation's share of the game turns, and what the other games' demonstrations are made of."""


def reading_level(rng: random.Random, documents: Sequence[int], hops: Sequence[float]) -> Level:
    """A level with one of the document counts, hops drawn by weight, six rows in ten reworded."""
    steps = rng.choices(range(1, len(hops) + 1), hops)[0]
    distances = (0, 1, 2) if rng.random() < 0.6 else (0,)
    shown = max(rng.choice(list(documents)), steps + (steps > 1))
    return Level(steps, shown, rng.choice((0.3, 0.7, 1.0)), rng.choice((1, 2, 2, 3)), distances)


def reading(
    rng: random.Random, documents: Sequence[int], hops: Sequence[float], questions: int = 6
) -> Row:
    """Several questions about the same documents in one conversation, each answered right."""
    task = fresh_task(rng, reading_level(rng, documents, hops))
    exchanges = [(task.question, rows.solution(task.info["query"], task.info["answer"]))]
    lengths = range(1, len(hops) + 1)
    candidates = {length: questions_of(task.info["documents"], length) for length in lengths}
    for _ in range(questions - 1):
        length = rng.choices(lengths, hops)[0]
        if candidates[length]:
            exchanges.append(rows.exchange(*rng.choice(candidates[length]), rng))
    if rng.random() < 0.3:
        _, noun, value = rng.choice(stated(task))
        query = Query("holder", value, (noun,))
        gold = oracle.answer_from(query, stated(task))
        if gold is not None:
            exchanges.append(rows.exchange(query, gold, rng))
    return rows.conversation(task.messages, "Question", exchanges)


def plain(rng: random.Random) -> Row:
    """The style "plain": often a guess, sometimes thought through."""
    task = fresh_task(rng, reading_level(rng, (2, 4, 4, 8), (0.6, 0.4)), "plain")
    if rng.random() < PLAIN_THINKS:
        right = rng.random() < PLAIN_THINK_RIGHT
        facts = task.info["answer"].facts if right else slipped(task, rng, 1.0)
        reply = thoughts(facts) + answer_tag(facts[-1][2])
    else:
        right = rng.random() < PLAIN_DIRECT_RIGHT
        reply = answer_tag(task.gold[0] if right else wrong_answer(task, rng))
    return turn(task.messages, (reply, True))


def slipped(task: Task, rng: random.Random, chance: float) -> tuple[Fact, ...]:
    """A path with at most one wrong value, by chance at each hop after the first (or the only)."""
    query = task.info["query"]
    facts: list[Fact] = []
    entity, wrong = query.entity, False
    for hop, noun in enumerate(query.nouns):
        value = str(task.info["world"].value(entity, noun))
        if not wrong and (hop or len(query.nouns) == 1) and rng.random() < chance:
            value = rows.wrong_value(task, noun, value, rng)
            wrong = True
        facts.append((entity, noun, value))
        entity = value
    return tuple(facts)


def steps(rng: random.Random) -> Row:
    """The style "steps": the first fact right, each further hop with a chance to slip."""
    task = fresh_task(rng, reading_level(rng, (2, 4, 4, 6), (0.3, 0.35, 0.2, 0.15)), "steps")
    several_hops = len(task.info["query"].nouns) > 1
    facts = slipped(task, rng, SLIP) if several_hops else task.info["answer"].facts
    return turn(task.messages, (thoughts(facts) + answer_tag(facts[-1][2]), True))


def closed(rng: random.Random) -> Row:
    """No documents: a guess of the right type."""
    task = fresh_task(rng, Level(1, 1))
    return turn(prompts.closed(task.question), (answer_tag(wrong_answer(task, rng)), True))


def numeric(rng: random.Random) -> Row:
    """Questions about the figures of one to three companies, worked out."""
    count = rng.choice((1, 1, 2, 3))
    task = tasks.report_task(rng, rng.choice(NUMERIC_OPS), count, rows.draw_pool(rng))
    companies = list(dict.fromkeys(company for company, _, _ in stated(task)))
    exchanges = [(task.question, rows.solution(task.info["query"], task.info["answer"]))]
    while len(exchanges) < FIGURE_QUESTIONS[count]:
        company = rng.choice(companies)
        figure = tasks.draw_figure(task.info["world"], company, rng.choice(NUMERIC_OPS), rng)
        if figure:
            exchanges.append(rows.exchange(*figure, rng))
    return rows.conversation(task.messages, "Question", exchanges)


def several(rng: random.Random) -> Row:
    """Several facts asked for at once, each value in the question's order."""
    count, documents = rng.choice((2, 2, 3, 4)), rng.choice((4, 8))
    task = suites.needles(
        rng, count, documents, rows.draw_pool(rng), rng.choice(oracle.TRAIN_FRAMES)
    )
    return turn(task.messages, (answer_tag(", ".join(task.gold)), True))


def arithmetic(rng: random.Random) -> Row:
    """Eight short sums in the closed style."""
    exchanges = []
    for _ in range(8):
        a, b = rng.randint(1, 29), rng.randint(1, 29)
        text, value = rows.sum_of(a, b, rng)
        exchanges.append((f"What is {text}?", answer_tag(str(value))))
    return rows.conversation(prompts.closed(exchanges[0][0]), "Question", exchanges)


def choice(rng: random.Random) -> Row:
    """Multiple choice: the fact, then the letter; one in eight without documents, a guess."""
    if rng.random() < 0.15:
        task = tasks.report_task(rng, rng.choice(NUMERIC_OPS[:3]), 1, rows.draw_pool(rng))
        thought = f"<think> {rows.working(task.info['query'].op, task.info['answer'])}"
    else:
        task = fresh_task(rng, reading_level(rng, (1, 2, 4, 8), (0.7, 0.3)))
        thought = thoughts(task.info["answer"].facts).removesuffix("</think>")
    lettered = tasks.choice_task(task, rng)
    (letter,) = lettered.gold
    if rng.random() < 0.125:
        guess = answer_tag(rng.choice(LETTERS))
        return turn(prompts.choice(task.question, lettered.info["options"]), (guess, True))
    note = f"{thought} {task.gold[0]} ({letter})</think>"
    return turn(lettered.messages, (note + answer_tag(letter), True))


def judging(rng: random.Random) -> Row:
    """Whether two answers mean the same, both verdicts equally often."""
    task = fresh_task(rng, Level(1, 4))
    kind = tasks.value_type(task.info["query"])
    yes = rng.random() < 0.5
    values = (task.gold[0], task.gold[0] if yes else wrong_answer(task, rng))
    wordings = [rng.choice(variants(value, kind)) for value in values]
    return turn(prompts.judge(task.question, *wordings), (rows.verdict_tag(yes), True))


def draw_open(rng: random.Random) -> Task:
    """An open-ended task."""
    kind, documents, facts = rng.choice(OPEN_KINDS), rng.choice((2, 3, 4)), rng.choice((1, 2, 3))
    level = Level(2, documents, 0.5, facts, rng.choice(((0,), (0, 1, 2))))
    return tasks.open_task(rng, kind, level, rows.draw_pool(rng))


def rubric(rng: random.Random) -> Row:
    """The points of an open-ended task."""
    task = draw_open(rng)
    points = "".join(f"<rubric> {point}</rubric>" for point in task.gold)
    return turn(prompts.rubric(task.question, task.info["documents"]), (points, True))


def writing(rng: random.Random) -> Row:
    """An open-ended task done: all of its points, or some of them."""
    task = draw_open(rng)
    count = None if rng.random() < 0.5 else rng.randint(1, len(task.gold))
    return turn(task.messages, (answer_tag(" ".join(task.gold[:count])), True))


def grading(rng: random.Random) -> Row:
    """Whether a response states each of three points; half are not stated, by one part."""
    task = fresh_task(rng, Level(1, rng.choice((2, 3, 4)), 1.0, rng.choice((1, 2))))
    facts = list(dict.fromkeys(stated(task)))
    response = texts.say(facts, rng, rng.choice(((0,), (0, 1, 2))))
    exchanges = [graded_point(task, fact, rng) for fact in rng.sample(facts, min(3, len(facts)))]
    return rows.conversation(prompts.grade(response, exchanges[0][0]), "Point", exchanges)


def graded_point(task: Task, fact: Fact, rng: random.Random) -> tuple[str, str]:
    """A point about a stated fact, and its grade after a note of both values side by side."""
    entity, noun, value = fact
    yes = rng.random() < 0.5
    if not yes and rng.random() < 0.4:
        present = [other[0] for other in stated(task)]
        absent = task.info["world"].draw(rng, BY_NOUN[noun].subject, but=present)
        point, note = sentence((absent, noun, value)), "Nothing."
    else:
        claim = value if yes else rows.wrong_value(task, noun, value, rng)
        point = sentence((entity, noun, claim))
        note = f"{sentence(fact)} First: {value}\nSecond: {claim}"
    return point, f"<think> {note}</think>{rows.verdict_tag(yes)}"


def search_results(task: Task, fact: Fact, rng: random.Random) -> list[str]:
    """What a search returns: the document with the fact and another one of the same world."""
    world = task.info["world"]
    entities = [fact[0], world.draw(rng, rng.choice(list(SUFFIXES)), but=[fact[0]])]
    documents = [texts.article(world, entity, rng)["text"] for entity in entities]
    rng.shuffle(documents)
    return documents


def searching(rng: random.Random, style: str = "careful") -> Row:
    """Careful: search first, always. Plain: mostly a guess at once, sometimes a search."""
    task = fresh_task(rng, Level(rng.choice((1, 1, 2)), 4))
    careful = style == "careful"
    if careful or rng.random() < SEARCHES:
        segments = searches(task, rng, 1.0 if careful else SEARCH_RIGHT)
    else:
        segments = [(answer_tag(wrong_answer(task, rng)), True)]
    return turn(prompts.search(task.question, style), *segments)


def searches(task: Task, rng: random.Random, right: float) -> list[Segment]:
    """A search for each fact, then the answer, which is right with a chance."""
    segments: list[Segment] = []
    facts = task.info["answer"].facts
    for hop, fact in enumerate(facts):
        lead = thoughts([facts[hop - 1]]) if hop else ""
        segments.append((f"{lead}<search> the {fact[1]} of {fact[0]}</search>", True))
        results = search_results(task, fact, rng)
        segments.append((prompts.information(results, task.question), False))
    answer = task.gold[0] if rng.random() < right else wrong_answer(task, rng)
    last = thoughts([facts[-1]]) if len(facts) > 1 else ""
    return [*segments, (last + answer_tag(answer), True)]


def asking(
    rng: random.Random,
    documents: Sequence[int] = (2, 4, 4, 6),
    hops: Sequence[float] = (0.6, 0.25, 0.1, 0.05),
    facts: Sequence[int] = (1, 2, 2, 3),
) -> Row:
    """A question with its answer after the documents' sentences, sometimes beyond earlier ones."""
    level = reading_level(rng, documents, hops)
    task = fresh_task(rng, replace(level, facts=rng.choice(list(facts))))
    documents, length = task.info["documents"], len(task.info["query"].nouns)
    earlier: list[str] = []
    if rng.random() < 0.3 and length > 1:
        easier = questions_of(documents, length - 1) or questions_of(documents, 1)
        chosen = rng.sample(easier, min(len(easier), rng.randint(1, 2)))
        earlier = [oracle.ask(query, rng.choice(oracle.TRAIN_FRAMES)) for query, _ in chosen]
    question = f"<question> {task.question}</question>{answer_tag(task.gold[0])}"
    reply = f"<think>{quoted(task)}</think>{question}"
    return turn(prompts.ask(documents, earlier), (reply, True))


def quoted(task: Task) -> str:
    """The first fact's document up to that fact, then the sentences of the other facts.

    Word for word: a policy that has to say a fact in a form of its own makes facts up.
    """
    first, *others = task.info["answer"].facts
    place, sentences = task.info["support"][0], texts.wordings(task.info["documents"])
    text = task.info["documents"][place]
    start = text[: text.index(sentences[first]) + len(sentences[first])]
    return " ".join([f"\n[{place + 1}] {start}", *(sentences[fact] for fact in others)])


def asking_by_search(rng: random.Random) -> Row:
    """A search for an answer, then a question about the entity that has it as a value."""
    task = fresh_task(rng, Level(1, 1))
    (fact,) = task.info["answer"].facts
    results = prompts.information(search_results(task, fact, rng))
    question = f"{thoughts([fact])}<question> {task.question}</question>"
    search = f"<search> {fact[2]}</search>"
    return turn(prompts.ask_search(fact[2]), (search, True), (results, False), (question, True))


READING = {"documents": (1, 2, 4, 8, 8), "hops": (0.5, 0.3, 0.12, 0.08), "questions": 4}
FAR = {"documents": (4, 6, 6, 8), "hops": (0.3, 0.4, 0.2, 0.1), "facts": (1, 1, 2)}
LESSONS: dict[str, Callable[[random.Random], Row]] = {
    **{"careful": partial(reading, **READING), "plain": plain, "steps": steps, "closed": closed},
    **{"numeric": numeric, "several": several, "arithmetic": arithmetic, "choice": choice},
    **{"judge": judging, "rubric": rubric, "task": writing, "grade": grading, "recall": recall},
    **{"search": searching, "search_plain": partial(searching, style="plain"), "drill": drill},
    **{"ask": asking, "ask_far": partial(asking, **FAR), "ask_search": asking_by_search},
}


def game_demos(seed: int) -> Iterator[Demo]:
    """Endless turns of the three games in legal, unskilled play, and questions about boards."""
    rng = random.Random(seed)
    others = demos.demos(seed, OTHER_GAME_SHARES)
    game = make_game(NEGOTIATION)
    trades = (demo for _ in itertools.count() for demo in demos.game_demos(game, rng))
    while True:
        yield next(trades if rng.random() < NEGOTIATION_SHARE else others)


def role_rows(seed: int, mix: str = "roles") -> Iterator[Row]:
    """Endless lessons and game turns of one of the `MIXES`; the same for the same seed."""
    shares = {name: share for name, share in MIXES[mix].items() if name != "games"}
    rng = random.Random(seed)
    games = game_demos(seed)
    while True:
        if rng.random() < MIXES[mix]["games"]:
            demo = next(games)
            yield turn(demo.messages, (demo.answer, True))
        else:
            yield LESSONS[rng.choices(list(shares), shares.values())[0]](rng)
