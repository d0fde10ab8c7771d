"""Documents that state results and what leads to them, and tasks that stand on their own.

An entry of a document lists somebody's steps by number, each with the result so far. A challenger
reads a segment of one and writes a task: notes on the first `level` steps in any order, the rule, a
question for the result, and that result, which the document states. Whoever answers has the
question alone: it holds all that is needed, and they have to put the steps in order, as on the
ladder (`spnb.lab.ladder`). Kinds: ledger (a count), formula (a polynomial), code (a word).

    entry = draw_entry(random.Random(0), "ledger", 3)
    written = write_task(entry, 2, "integer", random.Random(0))
    judge(written, [entry])     # the oracle's: is it right, faithful, ...

It reads a task back by its content words: a note is a sentence that names one person, one ordinal
and one step, a question one that names one person and one number, in any wording. SPICE's suites
are five closed-book ones and three whose notes stand in documents, among those on somebody else.
"""

import itertools
import random
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.documents import Context, Judgement, Proposal
from spnb.core.grading import grade
from spnb.core.method import Suite
from spnb.core.params import require
from spnb.core.types import Chat, Messages, Sampling, Task, derive_seed
from spnb.corpus.segments import GRADES, SegmentSource
from spnb.corpus.store import Corpus
from spnb.evaluate.items import ask_suite
from spnb.lab import ladder
from spnb.lab.ladder import COUNTS, LETTERS, NUMBERS, ORDINALS, RIVALS, WORDING, Source
from spnb.lab.world import PEOPLE, Pool, names

Half = Literal["math", "general"]
HALVES: tuple[Half, ...] = ("math", "general")
HIGHEST = 6
"""Steps of an entry at most."""
SHORTEST = 4
"""And at least, in a document."""
ENTRIES = (3, 4, 5)
"""How many entries a document has, one of these."""
MAKES = "makes"
"""Stands before a result, in a document and in a challenger's thought."""


@dataclass(frozen=True)
class Kind:
    """A kind of documents: its half of the corpus, the answers that it allows, its words."""

    half: Half
    types: list[str]
    steps: list[str]
    title: str
    rule: str
    notes: dict[Pool, list[str]]
    questions: dict[Pool, list[str]]


KINDS = {name: Kind(**words) for name, words in WORDING["kinds"].items()}


@dataclass(frozen=True)
class Entry(Source):
    """Somebody's steps in a document of a kind (`family`), in order."""

    @property
    def text(self) -> str:
        """The entry as a line of a document: each step by number, and the result so far."""
        results = (result(self.family, self.steps[: n + 1]) for n in range(len(self.steps)))
        parts = zip(NUMBERS, self.steps, results, strict=False)
        stated = ", ".join(f"{number} {step} {MAKES} {so_far}" for number, step, so_far in parts)
        return f"{KINDS[self.family].title.format(e=self.subject)}: {stated}."

    def result(self, order: Sequence[int]) -> str:
        """See `result`, of the steps in an order (places from 0)."""
        return result(self.family, [self.steps[place] for place in order])


def kinds_of(half: str, types: Sequence[str]) -> list[str]:
    """The kinds of a half of the corpus on which a task of one of these types can be written."""
    require("half of the corpus", half, HALVES, ValueError)
    return [
        name for name, kind in KINDS.items() if kind.half == half and set(kind.types) & set(types)
    ]


def result(kind: str, steps: Sequence[str]) -> str:
    """What steps come to in the order given: a count, a polynomial in x, a word."""
    if kind == "ledger":
        return str(ladder.counts(steps)[-1])
    if kind == "code":
        return "".join(steps)
    powers = ["", "x", *(f"x^{power}" for power in range(2, len(steps)))]
    return " + ".join(map("".join, zip(steps, powers, strict=False)))


# --- documents


def draw_entry(
    rng: random.Random, kind: str, length: int, pool: Pool = "train", but: Sequence[str] = ()
) -> Entry:
    """An entry of `length` different steps on somebody not in `but`.

    Raises ValueError for a kind that there is not, or a length that it does not have.
    """
    require("kind of documents", kind, list(KINDS), ValueError)
    ladder.check_level(length, HIGHEST)
    subject = rng.choice([name for name in names("person", pool) if name not in but])
    return Entry(kind, subject, tuple(rng.sample(KINDS[kind].steps, length)))


draw_entries = partial(ladder.draw_sources, draw=draw_entry)
"""Entries of a kind on different people: see `ladder.draw_sources`."""


def documents(
    half: str, count: int, types: Sequence[str] = tuple(GRADES), pool: Pool = "train"
) -> list[dict[str, Any]]:
    """A half of the corpus: `count` documents, always the same, of the kinds that allow one of
    these types of answers, in turn, about people of a pool."""
    made = []
    kinds = itertools.cycle(kinds_of(half, types)) if kinds_of(half, types) else ()
    for number, kind in zip(range(count), kinds, strict=False):
        rng = random.Random(f"{half} {pool} {number}")
        length = rng.randint(SHORTEST, HIGHEST)
        entries = draw_entries(rng, kind, rng.choice(ENTRIES), length, pool)
        text = "\n".join(entry.text for entry in entries)
        row = {"id": f"{half}-{number}", "title": kind, "text": text, "metadata": {"kind": kind}}
        made.append(row)
    return made


TITLES = {name: ladder.pattern_of(kind.title) for name, kind in KINDS.items()}


def read_segment(text: str) -> list[Entry]:
    """The entries of a segment, as far as it has them: a cut may leave the first steps of one."""
    entries = []
    for line in text.splitlines():
        title, _, stated = line.partition(": ")
        for kind, pattern in TITLES.items():
            if match := pattern.fullmatch(title.strip()):
                steps = _stated(stated, KINDS[kind])
                entries += [Entry(kind, match["e"], steps)] if steps else []
    return entries


def _stated(text: str, kind: Kind) -> tuple[str, ...]:
    """The steps that a line states one after the other from the first."""
    parts = zip(NUMBERS, (part.split() for part in text.split(", ")), strict=False)
    good = itertools.takewhile(lambda p: p[1][:1] == [p[0]] and p[1][1:2] != [], parts)
    steps = (words[1] for _, words in good)
    return tuple(itertools.takewhile(kind.steps.__contains__, steps))


def kind_of(text: str) -> str | None:
    """The kind of a segment's first entry, None where it has none."""
    return next((entry.family for entry in read_segment(text)), None)


# --- tasks


def draw_notes(
    entry: Entry, level: int, rng: random.Random, wordings: Sequence[str], rivals: int = 0
) -> list[str]:
    """Notes on the first `level` steps of an entry in random order, among some on a rival."""
    length = len(entry.steps)
    pool: Pool = "train" if entry.subject in names("person", "train") else "heldout"
    rival = draw_entry(rng, entry.family, length, pool, [entry.subject])
    places = [(entry, place) for place in range(level)]
    places += [(rival, place) for place in rng.sample(range(level), min(rivals, level))]
    return [ladder.note(*one, rng.choice(wordings)) for one in rng.sample(places, len(places))]


def question(kind: str, subject: str, level: int, frame: str, notes: Sequence[str] = ()) -> str:
    """A question for what somebody's first `level` steps come to, with the notes that it carries
    and the rule."""
    asked = frame.format(e=subject, k=NUMBERS[level - 1])
    return " ".join([*notes, KINDS[kind].rule, asked])


def draw_options(kind: str, steps: Sequence[str], rng: random.Random) -> list[str]:
    """Four results in random order: the right one, what other orders come to, others of the same
    kind where there are no more."""
    others = [result(kind, rng.sample(steps, len(steps))) for _ in range(12)]
    others += [random_result(kind, len(steps), rng) for _ in range(12)]
    right = result(kind, steps)
    while len({*others} - {right}) < 3:
        others.append(random_result(kind, len(steps), rng))
    return ladder.among_others(right, others, rng)


def random_result(kind: str, level: int, rng: random.Random) -> str:
    """A result that has nothing to do with any steps."""
    if kind == "ledger":
        return str(rng.randrange(COUNTS))
    return result(kind, rng.sample(KINDS[kind].steps, level))


def write_task(
    entry: Entry,
    level: int,
    answer_type: str,
    rng: random.Random,
    wording: Pool = "train",
    options: Sequence[str] = (),
) -> Proposal:
    """The oracle's task on the first `level` steps of an entry: self-contained, faithful, right.

    Raises ValueError for a level above its steps, or an answer that its kind does not have.
    """
    ladder.check_level(level, len(entry.steps))
    kind = KINDS[entry.family]
    require(f"type of answers to {entry.family}", answer_type, kind.types, ValueError)
    notes = draw_notes(entry, level, rng, kind.notes[wording])
    text = question(entry.family, entry.subject, level, rng.choice(kind.questions[wording]), notes)
    gold = result(entry.family, entry.steps[:level])
    if answer_type == "choice":
        options = options or draw_options(entry.family, entry.steps[:level], rng)
        text = f"{text}\n{prompts.lettered(options)}"
        gold = LETTERS[list(options).index(gold)]
    return Proposal(text, gold, kind=answer_type)


def draw_task(
    kind: str,
    answer_type: str,
    level: int,
    rng: random.Random,
    pool: Pool = "train",
    reads: bool = False,
) -> Task:
    """A question of a level on an entry of its own, names and wordings of one pool.

    Closed-book, its notes in the question; or, where whoever answers `reads`, as documents among
    those on a rival.
    """
    entry = draw_entry(rng, kind, level, pool)
    info = {"source": entry, "level": level}
    words = KINDS[kind]
    gold = result(kind, entry.steps)
    options = draw_options(kind, entry.steps, rng) if answer_type == "choice" else []
    if options:
        info["options"] = tuple(options)
        gold = LETTERS[options.index(gold)]
    if not reads:
        written = write_task(entry, level, answer_type, rng, pool, options)
        messages = prompts.reason(written.question)
        text = written.question
    else:
        read = draw_notes(entry, level, rng, words.notes[pool], RIVALS)
        text = question(kind, entry.subject, level, rng.choice(words.questions[pool]))
        messages = prompts.answer(text, read, "plain")
        if options:
            messages = prompts.choice(text, options, read)
    return Task(messages, text, (gold,), GRADES[answer_type], f"level {level}", info)


def misstated(written: Proposal, entry: Entry, level: int, rng: random.Random) -> Proposal:
    """The same task with a wrong stated answer: another letter, or what another order or other
    steps come to."""
    answers = draw_options(entry.family, entry.steps[:level], rng)
    if written.kind == "choice":
        answers = list(LETTERS)
    wrong = [answer for answer in answers if answer != written.answer]
    return replace(written, answer=rng.choice(wrong))


# --- challenges


def challenge(entry: Entry, level: int, written: Proposal) -> str:
    """The text of a challenger that writes this task from a segment: first the steps and their
    result as the document has them, a choice after each whether to go on, and of a choice the
    letter that it will have; then the task."""
    steps = " ".join(map(" ".join, zip(NUMBERS, entry.steps[:level], strict=False)))
    stated = f"{entry.subject} {steps} {MAKES} {result(entry.family, entry.steps[:level])}"
    if written.kind == "choice":
        stated += f" ({written.answer})"
    return ladder.tag("think", stated) + task_text(written)


def task_text(written: Proposal) -> str:
    """A task in its tags."""
    return ladder.tag("question", written.question) + ladder.tag("answer", written.answer)


# --- the oracle


def judge(written: Proposal, entries: Sequence[Entry] | None = None) -> Judgement:
    """Reads a task back; `entries` are those of the segment that it was written from.

    self_contained: the question holds each step up to the one asked for, once; it is answerable
    then. faithful: its notes are facts of the segment (None without one). leaks: the stated answer
    stands in the question, options apart. `grade` is "" where the question is of no kind: then all
    is False, the level 0.
    """
    text, options = prompts.read_options(written.question)
    said = written.answer.strip()
    if written.kind == "choice":
        said = dict(zip(LETTERS, options, strict=False)).get(said.strip(" .()").upper(), "")
    leaks = bool(said) and bool(re.search(rf"(?<!\w){re.escape(said)}(?!\w)", text))
    faithful = None if entries is None else False
    kind = next((name for name, one in KINDS.items() if one.rule in text), None)
    if kind is None:
        return Judgement(self_contained=False, leaks=leaks, faithful=faithful)
    before, _, after = text.partition(KINDS[kind].rule)
    subject, number = _one_each(after, PEOPLE, NUMBERS) or ("", "")
    level = NUMBERS.index(number) + 1 if number else 0
    sentences = re.split(r"(?<=\.)\s+", before.strip())
    facts = [_one_each(one, PEOPLE, ORDINALS, KINDS[kind].steps) for one in sentences]
    own = [(ORDINALS.index(fact[1]), fact[2]) for fact in facts if fact and fact[0] == subject]
    complete = bool(level) and sorted(place for place, _ in own) == list(range(level))
    grading = GRADES[KINDS[kind].types[0]]
    gold = result(kind, [step for _, step in sorted(own)]) if complete else ""
    right = complete and bool(grade(said, gold, grading))
    if entries is not None:
        known = {ladder.fact(entry, at) for entry in entries for at in range(len(entry.steps))}
        faithful = bool(own) and all(" ".join(fact or ()) in known for fact in facts)
    return Judgement(level, complete, right, complete, faithful, leaks, gold, grading)


def _one_each(text: str, *vocabularies: Collection[str]) -> tuple[str, ...] | None:
    """The word of each vocabulary that a text has; None unless it has exactly one of each."""
    words = re.findall(r"[A-Za-z]+|[0-9]+", text)
    found = [[word for word in words if word in known] for known in vocabularies]
    return tuple(one[0] for one in found) if all(len(one) == 1 for one in found) else None


# --- suites


HELD_OUT = partial(derive_seed, "evaluation")
"""Seeds of the held-out questions."""
SUITES: dict[str, dict[str, Any]] = WORDING["suites"]
"""What a suite asks: of a half of the corpus (group), the kind of entries, the type of the answer,
from documents (reads) or not."""
GROUPS = {half: [name for name, one in SUITES.items() if one["group"] == half] for half in HALVES}
"""The suites of the paper's two groups."""


def suite_tasks(
    name: str,
    items: int,
    prompt: Callable[[str], Messages] = prompts.reason,
    tag: str = "answer",
    seed_of: Callable[..., int] = HELD_OUT,
) -> list[Task]:
    """`items` held-out questions of each level of a suite, always the same for a `seed_of`.

    `prompt` and `tag`: how the questions are put, and where their answers stand; by default as the
    embedded policies know it.
    """
    asked = SUITES[name]
    kind, answer_type, reads = asked["kind"], asked["answer_type"], asked.get("reads", False)
    rng = random.Random(seed_of("segments", name))
    tasks = []
    for level in [level for level in range(1, HIGHEST + 1) for _ in range(items)]:
        task = draw_task(kind, answer_type, level, rng, "heldout", reads)
        if tag != "answer":
            body = task.messages[0]["content"].split("\n", 1)[1]
            task = replace(task, messages=prompt(body), info=task.info | {"tag": tag})
        tasks.append(task)
    return tasks


def segment_suites(
    items: int,
    chat: Chat,
    sampling: Sampling,
    prompt: Callable[[str], Messages] = prompts.reason,
    tag: str = "answer",
    policy: str = "policy",
    seed_of: Callable[..., int] = HELD_OUT,
    decoding: str = "",
) -> list[Suite]:
    """All suites, each with `items` questions of every level, one answer each; accuracy in all and
    by level. `seed_of` draws the questions, `decoding` is a label."""
    suites = []
    for name in SUITES:
        tasks = suite_tasks(name, items, prompt, tag, seed_of)
        answers = lambda place, _, name=name: derive_seed("segments", name, place)  # noqa: E731
        labels = {"policy": policy, "decoding": decoding}
        suites.append(ask_suite(name, tasks, chat, sampling, answers, **labels))
    return suites


# --- as a source


def check(params: Any) -> None:
    """ValueError for a corpus and types of answers that do not fit, or a strong challenger where
    the oracle does not know every document."""
    known = [name for name in params.corpus if name in HALVES]
    kinds = [kind for half in known for kind in kinds_of(half, params.task_types)]
    params.need(kinds or not known, "task_types corpus", "types that its documents have")
    fits = params.writer == "policy" or (known and known == params.corpus)
    params.need(fits, "writer corpus", list(HALVES))


class GeneratedSegments(SegmentSource):
    """Halves of the generated corpus, and corpora by path; the oracle reads what is generated."""

    def __init__(self, params: Any, tokenizer: Any):
        self.halves = [name for name in params.corpus if name in HALVES]
        if self.halves or not params.corpus:
            ladder.check_names(tokenizer)
        super().__init__(params, tokenizer)

    def rows(self, name: str, pool: Any, count: int) -> Corpus:
        """A half's share of `count` documents on people of a pool; a corpus by its path."""
        if name not in self.halves:
            return name
        return documents(name, -(-count // len(self.halves)), self.kinds, pool)

    def allowed(self, text: str) -> list[str]:
        """The types of answers that the segment's kind has."""
        kind = kind_of(text)
        return [one for one in self.kinds if kind is None or one in KINDS[kind].types]

    def judge(self, proposal: Proposal, context: Context) -> Judgement | None:
        """What the oracle says of a task; None where it can read neither the segment nor, without
        one, the question."""
        if not context.documents:
            judgement = judge(proposal)
            return judgement if judgement.grade else None
        entries = read_segment(context.texts[0])
        return judge(proposal, entries) if entries else None

    def write(self, context: Context, rng: random.Random) -> Proposal | None:
        """The oracle's task on a segment: self-contained, of any level that there is, and right but
        for a share of `writer_wrong`."""
        read = read_segment(context.texts[0])
        entries = [entry for entry in read if context.kind in KINDS[entry.family].types]
        if not entries:
            return None
        entry = rng.choice(entries)
        level = rng.randint(1, len(entry.steps))
        written = write_task(entry, level, context.kind, rng)
        wrong = rng.random() < self.params.writer_wrong
        return misstated(written, entry, level, rng) if wrong else written

    suites = staticmethod(segment_suites)


make_source = GeneratedSegments
