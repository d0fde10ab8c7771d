"""Rows that train one ability many times over: copying, reading tables, options, sums, sameness.

Like every lesson, a drill takes a source of chance and returns a `Row` about a world of its own.
"""

import random

from spnb.core import prompts
from spnb.lab.pretrain.rows import Row, draw_pool, fresh_task, sum_of, wrong_value
from spnb.lab.tasks import LETTERS, Level, report_task, stated
from spnb.lab.texts import say, sentence, table_row
from spnb.lab.world import BY_NOUN, SUFFIXES, WORDS, World, names


def words(rng: random.Random) -> list[str]:
    """Words of the world of one random kind: names of both pools, values, numbers."""
    kind = rng.choice([*SUFFIXES, *SUFFIXES, "word", "number"])
    if kind == "word":
        return list(rng.choice(list(WORDS.values())))
    if kind == "number":
        return [str(number) for number in range(10, 100)]
    return [*names(kind, "train"), *names(kind, "heldout")]


def recall(rng: random.Random) -> Row:
    """Copying: a list repeated, pairs whose second part is asked for, or names with a relation."""
    form = rng.randrange(3)
    if form == 0:
        text = "".join(f" {rng.choice(words(rng))}" for _ in range(rng.randint(8, 24)))
        return [(text, False), (text, True)]
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


def table_drill(rng: random.Random) -> Row:
    """Lines of one or two tables asked for again."""
    task = report_task(rng, "cell", rng.choice((1, 2)), draw_pool(rng))
    row: Row = [("\n".join(task.info["documents"]) + "\n", False)]
    for company, label, figure in rng.sample(stated(task), 10):
        metric, year = label.split()
        start, end = table_row(year, company, metric, figure).rsplit(" ", 1)
        row += [(start, False), (f" {end}", True), (".\n", False)]
    return row


def option_drill(rng: random.Random) -> Row:
    """The letters of listed options."""
    letters = dict(zip(rng.sample(words(rng), 4), LETTERS, strict=True))
    lines = "".join(f"- {word} ({letter})\n" for word, letter in letters.items())
    row: Row = [(lines, False)]
    for word in rng.choices(list(letters), k=8):
        row += [(f" {word} (", False), (f"{letters[word]})", True)]
    return row


def sum_drill(rng: random.Random) -> Row:
    """Sums and differences of numbers as reports hold them."""
    row: Row = []
    for _ in range(14):
        a, b = rng.randint(1, 29), rng.randint(10, 29)
        text, value = sum_of(a, b, rng)
        row += [(f" {text} =", False), (f" {value}.", True)]
    return row


def figure_drill(rng: random.Random) -> Row:
    """Facts with numbers and years, repeated in the relation's own noun."""
    world = World(rng.getrandbits(48), pool=draw_pool(rng))
    relations = [relation for relation in BY_NOUN.values() if relation.value in ("number", "year")]
    facts = []
    for _ in range(rng.randint(2, 8)):
        relation = rng.choice(relations)
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
        ((entity, noun, value),) = task.info["answer"].facts
        same = rng.random() < 0.5
        other = value if same else wrong_value(task, noun, value, rng)
        pair = f" {sentence((entity, noun, value))} {sentence((entity, noun, other))}"
        row += [(pair, False), (f" {prompts.YES if same else prompts.NO}", True)]
    return row


DRILLS = (table_drill, option_drill, sum_drill, sum_drill, figure_drill, same_drill)


def drill(rng: random.Random) -> Row:
    """Many short exercises of one kind: what takes most practice and lessons hold little of."""
    return rng.choice(DRILLS)(rng)
