"""Documents that state results and what leads to them, and tasks that stand on their own.

An entry of a document lists somebody's steps by number, each with the result so far. A challenger
reads a segment of one and writes a task: notes on the first `level` steps in any order, the rule, a
question for the result, and that result, which the document states. Whoever answers has the
question alone: it holds all that is needed, and they have to put the steps in order, as on the
ladder (`spnb.lab.ladder`). Kinds: ledger (a count), formula (a polynomial), code (a word).

    entry = draw_entry(random.Random(0), "ledger", 3)
    written = write_task(entry, 2, "integer", random.Random(0))
    judge(written, [entry])     # of `spnb.lab.segment_oracle`: is it right, faithful, ...
"""

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from spnb.core import prompts
from spnb.core.documents import Proposal
from spnb.core.params import unknown
from spnb.core.types import Task
from spnb.corpus.segments import GRADES
from spnb.lab import ladder
from spnb.lab.ladder import COUNTS, LETTERS, NUMBERS, ORDINALS, RIVALS, SO
from spnb.lab.world import Pool, names

AnswerType = Literal["choice", "integer", "expression", "string"]
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
    types: tuple[AnswerType, ...]
    steps: tuple[str, ...]
    title: str
    rule: str
    notes: dict[Pool, list[str]]
    questions: dict[Pool, list[str]]


def _kind(words: dict[str, Any]) -> Kind:
    borrowed = ladder.WORDING[words.pop("ladder")] if "ladder" in words else {}
    texts = {name: borrowed.get(name) or words[name] for name in ("rule", "notes", "questions")}
    lists = {name: tuple(words[name]) for name in ("types", "steps")}
    return Kind(half=words["half"], title=words["title"], **lists, **texts)


WORDS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
KINDS: dict[str, Kind] = {name: _kind(words) for name, words in WORDS.items()}


@dataclass(frozen=True)
class Entry:
    """Somebody's steps in a document, in order."""

    kind: str
    subject: str
    steps: tuple[str, ...]

    @property
    def text(self) -> str:
        """The entry as a line of a document: each step by number, and the result so far."""
        results = (result(self.kind, self.steps[: n + 1]) for n in range(len(self.steps)))
        parts = zip(NUMBERS, self.steps, results, strict=False)
        stated = ", ".join(f"{number} {step} {MAKES} {so_far}" for number, step, so_far in parts)
        return f"{KINDS[self.kind].title.format(e=self.subject)}: {stated}."


def check_kind(kind: str) -> None:
    """Raises ValueError for a kind of documents that there is not."""
    if kind not in KINDS:
        raise ValueError(unknown("kind of documents", kind, list(KINDS)))


def kinds_of(half: str, types: Sequence[str]) -> list[str]:
    """The kinds of a half of the corpus on which a task of one of these types can be written."""
    if half not in HALVES:
        raise ValueError(unknown("half of the corpus", half, HALVES))
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
    check_kind(kind)
    ladder.check_level(length, HIGHEST)
    subject = rng.choice([name for name in names("person", pool) if name not in but])
    return Entry(kind, subject, tuple(rng.sample(KINDS[kind].steps, length)))


def draw_entries(
    rng: random.Random, kind: str, count: int, length: int, pool: Pool = "train"
) -> list[Entry]:
    """Entries of a kind on different people."""
    entries: list[Entry] = []
    while len(entries) < count:
        but = [entry.subject for entry in entries]
        entries.append(draw_entry(rng, kind, length, pool, but))
    return entries


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


TITLES = {
    name: re.compile(re.escape(kind.title).replace(r"\{e\}", f"({ladder.NAME})"))
    for name, kind in KINDS.items()
}


def read_segment(text: str) -> list[Entry]:
    """The entries of a segment, as far as it has them: a cut may leave the first steps of one."""
    entries = []
    for line in text.splitlines():
        title, _, stated = line.partition(": ")
        for kind, pattern in TITLES.items():
            if match := pattern.fullmatch(title.strip()):
                steps = _stated(stated, KINDS[kind])
                entries += [Entry(kind, match[1], steps)] if steps else []
    return entries


def _stated(text: str, kind: Kind) -> tuple[str, ...]:
    """The steps that a line states one after the other from the first."""
    parts = zip(NUMBERS, (part.split() for part in text.split(", ")), strict=False)
    good = itertools.takewhile(lambda p: p[1][:1] == [p[0]] and p[1][1:2] != [], parts)
    steps = (words[1] for _, words in good)
    return tuple(itertools.takewhile(kind.steps.__contains__, steps))


def kind_of(text: str) -> str | None:
    """The kind of a segment's first entry, None where it has none."""
    return next((entry.kind for entry in read_segment(text)), None)


# --- tasks


def note(entry: Entry, place: int, wording: str) -> str:
    """One step of an entry, from place 0, with its ordinal."""
    return wording.format(e=entry.subject, n=ORDINALS[place], v=entry.steps[place])


def draw_notes(
    entry: Entry, level: int, rng: random.Random, wordings: Sequence[str], rivals: int = 0
) -> list[str]:
    """Notes on the first `level` steps of an entry in random order, among some on a rival."""
    length = len(entry.steps)
    pool: Pool = "train" if entry.subject in names("person", "train") else "heldout"
    rival = draw_entry(rng, entry.kind, length, pool, [entry.subject])
    places = [(entry, place) for place in range(level)]
    places += [(rival, place) for place in rng.sample(range(level), min(rivals, level))]
    return [note(*one, rng.choice(wordings)) for one in rng.sample(places, len(places))]


def question(kind: str, subject: str, level: int, frame: str, notes: Sequence[str] = ()) -> str:
    """A question for what somebody's first `level` steps come to, with the notes that it carries
    and the rule."""
    asked = frame.format(e=subject, k=NUMBERS[level - 1])
    return " ".join([*notes, KINDS[kind].rule, asked])


def draw_options(kind: str, steps: Sequence[str], rng: random.Random) -> list[str]:
    """Four results in random order: the right one, what other orders come to, others of the same
    kind where there are no more."""
    right = result(kind, steps)
    wrong = [result(kind, rng.sample(steps, len(steps))) for _ in range(12)]
    wrong += [random_result(kind, len(steps), rng) for _ in range(12)]
    return rng.sample([right, *[one for one in dict.fromkeys(wrong) if one != right][:3]], 4)


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
    kind = KINDS[entry.kind]
    if answer_type not in kind.types:
        raise ValueError(unknown(f"type of answers to {entry.kind}", answer_type, kind.types))
    notes = draw_notes(entry, level, rng, kind.notes[wording])
    text = question(entry.kind, entry.subject, level, rng.choice(kind.questions[wording]), notes)
    gold = result(entry.kind, entry.steps[:level])
    if answer_type == "choice":
        options = options or draw_options(entry.kind, entry.steps[:level], rng)
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
    info = {"kind": kind, "entry": entry, "level": level}
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


# --- answers and challenges


def reply(task: Task, order: Sequence[int], guess: str = "") -> str:
    """The text of somebody who takes the steps of `draw_task`'s task in `order` (places from 0).

    A choice repeats what this order comes to, notes its letter, and takes `guess` where no option
    is it.
    """
    entry = task.info["entry"]
    options = task.info.get("options", ())
    steps = [entry.steps[place] for place in order]
    lines = working(entry, order)
    answer = result(entry.kind, steps)
    if options:
        letter = LETTERS[options.index(answer)] if answer in options else ""
        lines += [SO, answer, f"({letter})"] if letter else [SO, answer]
        answer = letter or guess
    return f"<think> {' '.join(lines)}</think><answer> {answer}</answer>"


def working(entry: Entry, order: Sequence[int]) -> list[str]:
    """Steps in an order, each as who, its ordinal, what; in a ledger also the count so far."""
    steps = [entry.steps[place] for place in order]
    lines = [f"{entry.subject} {ORDINALS[place]} {entry.steps[place]}" for place in order]
    if entry.kind == "ledger":
        lines = [f"{line} {count}" for line, count in zip(lines, ladder.counts(steps), strict=True)]
    return lines


def order_of(task: Task, text: str) -> tuple[int, ...] | None:
    """The order in which a text takes a task's steps; None where it is not consistent: each step
    once, with what its note says, and the answer follows from the order, be it right or not."""
    thought = (prompts.field(text, "think") or "").partition(f" {SO} ")[0].split()
    size = 4 if task.info["kind"] == "ledger" else 3
    order = tuple(ORDINALS.index(word) for word in thought[1::size] if word in ORDINALS)
    if sorted(order) != list(range(task.info["level"])):
        return None
    answer = prompts.field(text, "answer") or ""
    guess = answer if answer in LETTERS else ""
    return order if text.strip() == reply(task, order, guess) else None


def challenge(entry: Entry, level: int, written: Proposal) -> str:
    """The text of a challenger that writes this task from a segment: first the steps and their
    result as the document has them, a choice after each whether to go on; then the task."""
    steps = " ".join(map(" ".join, zip(NUMBERS, entry.steps[:level], strict=False)))
    stated = f"{entry.subject} {steps} {MAKES} {result(entry.kind, entry.steps[:level])}"
    return f"<think> {stated}</think>{task_text(written)}"


def task_text(written: Proposal) -> str:
    """A task in its tags."""
    return f"<question> {written.question}</question><answer> {written.answer}</answer>"
