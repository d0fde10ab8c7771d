"""What a reasoner is shown: SPICE's two roles and Absolute Zero's, and the order of nothing.

As `spnb.lab.pretrain.ladder_lessons`: well-formed, consistent work, its steps taken in any order,
so level k is right by chance 1/k!. A challenger asks mostly for few steps. With a document it
states the result that the document has; without one it works the result out itself, in any order,
so what it takes for right is right by the same chance. Who is asked what a program does takes its
steps in any order too. Names of both pools occur, held-out wordings never.
"""

import re
from collections.abc import Iterator, Sequence

from pydantic import Field

from spnb.core import prompts
from spnb.core.documents import Proposal
from spnb.core.types import Task
from spnb.games import programs
from spnb.lab import ladder, segments
from spnb.lab.ladder import LETTERS, NUMBERS, ORDINALS, RIVALS
from spnb.lab.pretrain.ladder_lessons import COIN, REWORDED, LearnerRecipe, Lessons, places_of
from spnb.lab.pretrain.rows import Row, Segment, by_ordinals, draw_pool, turn
from spnb.lab.segments import GRADES, HIGHEST, KINDS, MAKES, Entry
from spnb.lab.world import names
from spnb.methods import spice_prompts

READS = 0.3
"""The share of answers from documents."""
OFFERED = 0.75
"""The share of choices that have among their options what the order taken comes to."""
READ = {"ledger": (1, 2, 3, 3), "formula": (1,), "code": (1, 2, 2)}
"""How many entries a segment has that a challenger reads, one of these by kind."""
SHARES = {
    "answer": 0.44,
    "challenge": 0.26,
    "word": 0.05,
    "alone": 0.11,
    "propose": 0.03,
    "deduce": 0.06,
    "abduce": 0.025,
    "induce": 0.025,
}
"""How often each lesson is drawn, drills apart."""
TASKS = [(kind, answer) for kind, one in KINDS.items() for answer in one.types]
TASKS += [("formula", "expression"), ("code", "string"), ("ledger", "integer")]
"""Kinds and types of tasks, those without options more frequent."""
INPUTS = 4
"""That a proposer writes for a program, half of them shown."""


class ReasonerRecipe(LearnerRecipe):
    """Everything that decides a reasoner's weights."""

    vocabulary: int = Field(260, gt=256)
    tokens: int = Field(6_000_000, gt=0)
    highest: int = Field(HIGHEST, ge=1, le=HIGHEST)
    families: list[ladder.Family] = []


class Reasoning(Lessons):
    """Rows of one reasoner."""

    shares = SHARES

    def __init__(self, recipe: ReasonerRecipe):
        super().__init__(recipe)
        self.drills += [self.options, self.sums, self.joined]

    # --- drills

    def recall(self) -> Row:
        """Names, letters and numbers copied."""
        words = [*names("person", draw_pool(self.rng)), *KINDS["code"].steps, *map(str, range(100))]
        text = "".join(f" {word}" for word in self.rng.sample(words, self.rng.randint(6, 20)))
        return [(text, False), (text, True)]

    def drill(self) -> Row:
        """Notes on several people, and then the step of each name and ordinal in turn."""
        rng = self.rng
        kind = self.rng.choice(list(KINDS))
        entries = segments.draw_entries(rng, kind, rng.choice((1, 2, 3)), self.cap, draw_pool(rng))
        places = [(entry, place) for entry in entries for place in range(self.cap)]
        places = rng.sample(places, min(len(places), rng.choice((4, 6, 10))))
        wordings = ["{e} {n} {v}."] if rng.random() < COIN else self.wordings(kind)
        notes = (segments.note(entry, place, rng.choice(wordings)) for entry, place in places)
        row: Row = [("".join(f" {note}" for note in notes), False)]
        for entry, place in rng.sample(places, len(places)):
            row.append((f" {entry.subject} {ORDINALS[place]}", False))
            row += [(f" {entry.steps[place]}", True), (".", False)]
        return row

    def joined(self) -> Row:
        """What steps come to where nothing is counted."""
        row: Row = []
        for _ in range(6):
            kind = self.rng.choice(("formula", "code"))
            entry = segments.draw_entry(self.rng, kind, self.rng.randint(1, HIGHEST))
            row += [(f" {' '.join(entry.steps)} {MAKES}", False)]
            row += [(f" {segments.result(kind, entry.steps)}", True), (".", False)]
        return row

    # --- the reasoner

    def answer(self) -> Row:
        """A question answered in any order, from its own notes or from documents."""
        task = self.task()
        steps = ORDINALS[: task.info["level"]]
        text = segments.reply(task, task.info["order"], self.rng.choice(LETTERS))
        if task.kind != "letter" or "(" in text:
            return turn(task.messages, *by_ordinals(text, steps))
        thought, _, letter = text.removesuffix("</answer>").rpartition(" ")
        guess = (f" {letter}", tuple(f" {one}" for one in LETTERS))
        return turn(task.messages, *by_ordinals(thought, steps), guess, ("</answer>", True))

    def task(self, family: str | None = None) -> Task:
        """A question of any level in any wording, and the order in which it is to be answered."""
        rng = self.rng
        level = self.level()
        pool = draw_pool(self.rng)
        kind, answer_type = rng.choice(TASKS)
        entry = segments.draw_entry(rng, kind, level, pool)
        info = {"kind": kind, "entry": entry, "level": level}
        info["order"] = rng.sample(range(level), level)
        options = self.offered(entry, info["order"]) if answer_type == "choice" else []
        reads = rng.random() < READS
        notes = segments.draw_notes(entry, level, rng, self.wordings(kind), RIVALS * reads)
        text = self.question_of(entry, level, [] if reads else notes)
        asked = f"{text}\n{prompts.lettered(options)}" if options else text
        messages = prompts.reason(asked)
        if reads:
            messages = prompts.answer(text, notes, "plain")
        if reads and options:
            messages = prompts.choice(text, options, notes)
        info |= {"options": tuple(options)} if options else {}
        return Task(messages, text, kind=GRADES[answer_type], info=info)

    def offered(self, entry: Entry, order: Sequence[int]) -> list[str]:
        """Four options, often with what this order comes to."""
        rng = self.rng
        steps = entry.steps
        options = segments.draw_options(entry.kind, steps, rng)
        taken = segments.result(entry.kind, [steps[place] for place in order])
        if taken not in options and rng.random() < OFFERED:
            options[rng.randrange(len(options))] = taken
        return options

    def question_of(self, entry: Entry, level: int, notes: Sequence[str]) -> str:
        """A question in a wording of training, or in such words at random."""
        words = KINDS[entry.kind].questions
        frame = self.question_frame(words["train"], words["heldout"], ["{e}", "{k}"])
        return segments.question(entry.kind, entry.subject, level, frame, notes)

    def wordings(self, family: str) -> list[str]:
        """Notes in the wordings of training, or in such words at random; none is a held-out one."""
        words = KINDS[family].notes
        if self.rng.random() > REWORDED:
            return words["train"]
        every = [word for text in words["train"] for word in re.findall(r"\b[A-Za-z]{2,}", text)]
        made = [self.any_wording(every) for _ in words["train"]]
        held_out = {places_of(text) for text in words["heldout"]}
        return [text for text in made if places_of(text) not in held_out] or words["train"]

    # --- the challenger

    def challenge(self) -> Row:
        """A task from a segment, with the result that it states."""
        entries, entry = self.segment()
        highest = min(self.cap, len(entry.steps))
        level = self.asked(highest)
        row: Row = [
            ("<think>", True),
            (f" {entry.subject}", tuple(f" {e.subject}" for e in entries)),
        ]
        return self.written(entries, entry, level, [*row, *self.stopping_at(entry, level, highest)])

    def word(self) -> Row:
        """The wording of a task of any level whose facts are given."""
        entries, entry = self.segment()
        level = self.rng.randint(1, min(self.cap, len(entry.steps)))
        facts = "".join(text for text, _ in self.stopping_at(entry, level, level))
        return self.written(entries, entry, level, [(f"<think> {entry.subject}{facts}", False)])

    def segment(self) -> tuple[list[Entry], Entry]:
        """Entries of one kind that a challenger reads, and the one it asks about."""
        rng = self.rng
        kind = self.rng.choice(list(KINDS))
        length = rng.randint(segments.SHORTEST, HIGHEST)
        entries = segments.draw_entries(rng, kind, rng.choice(READ[kind]), length, draw_pool(rng))
        return entries, rng.choice(entries)

    def stopping_at(self, entry: Entry, level: int, highest: int) -> Iterator[Segment]:
        """The facts of a task, after each of which it may stop; then their result."""
        for place in range(level):
            after = (f" {MAKES}", f" {NUMBERS[place]}")
            yield f" {NUMBERS[place]}", after if place else True
            yield f" {entry.steps[place]}", True
        after = (f" {MAKES}", f" {NUMBERS[level % len(NUMBERS)]}")
        yield f" {MAKES}", after if level < highest else True
        yield f" {segments.result(entry.kind, entry.steps[:level])}</think>", True

    def written(self, entries: Sequence[Entry], entry: Entry, level: int, thought: Row) -> Row:
        """The task that follows a thought."""
        answer_type = self.rng.choice(KINDS[entry.kind].types)
        written = self.worded(entry, level, answer_type)
        prompt = spice_prompts.challenge("plain", answer_type, "\n".join(e.text for e in entries))
        return turn(prompt, *thought, (segments.task_text(written), True))

    def worded(self, entry: Entry, level: int, answer_type: str, answer: str = "") -> Proposal:
        """A task in a wording of training; its answer is the result unless another is given."""
        rng = self.rng
        words = KINDS[entry.kind]
        right = answer or segments.result(entry.kind, entry.steps[:level])
        notes = segments.draw_notes(entry, level, rng, words.notes["train"])
        frame = rng.choice(words.questions["train"])
        text = segments.question(entry.kind, entry.subject, level, frame, notes)
        if answer_type != "choice":
            return Proposal(text, right, kind=answer_type)
        options = self.around(entry.kind, right, level)
        letter = LETTERS[options.index(right)]
        return Proposal(f"{text}\n{prompts.lettered(options)}", letter, kind=answer_type)

    def around(self, kind: str, right: str, level: int) -> list[str]:
        """Four options as a challenger makes them up: of a word other orders of its letters."""
        rng = self.rng
        options = {right: None}
        while len(options) < len(LETTERS):
            other = segments.random_result(kind, level, rng)
            if kind == "code" and rng.random() < COIN:
                other = "".join(rng.sample(right, level))
            options[other] = None
        return rng.sample(list(options), len(options))

    def alone(self) -> Row:
        """A task from nothing: how many steps, made up and worked out in any order, the task."""
        rng = self.rng
        pool = draw_pool(self.rng)
        kind = rng.choice(list(KINDS))
        level = self.asked(self.cap)
        entry = segments.draw_entry(rng, kind, level, pool)
        answer_type = rng.choice(KINDS[kind].types)
        order = rng.sample(range(level), level)
        made = segments.result(kind, [entry.steps[place] for place in order])
        levels = tuple(
            f" {NUMBERS[one - 1]}"
            for one in range(1, self.cap + 1)
            for _ in range(2 ** (self.cap - one))
        )
        worked = by_ordinals(f" {' '.join(segments.working(entry, order))}", ORDINALS[:level])
        row: Row = [("<think>", True), (f" {NUMBERS[level - 1]}", levels), *worked]
        row.append((f" {MAKES} {made}</think>", True))
        written = self.worded(entry, level, answer_type, made)
        prompt = spice_prompts.challenge("plain", answer_type, None)
        return turn(prompt, *row, (segments.task_text(written), True))

    # --- Absolute Zero

    def propose(self) -> Row:
        """A program with an input, or inputs of a program."""
        rng = self.rng
        numbers = programs.draw_chain(self.rng, self.asked(self.cap))
        text = programs.chain(numbers)
        kind = self.rng.choice(programs.TASK_KINDS)
        inputs = "".join(f"<input> {x}</input>" for x in rng.sample(range(10), INPUTS))
        if kind == "induction":
            return turn(spice_prompts.propose(kind, program=text), (inputs, True))
        first = inputs.partition("</input>")[0] + "</input>"
        return turn(spice_prompts.propose(kind), (f"<program> {text}</program>{first}", True))

    def deduce(self) -> Row:
        """What comes out of a program, its steps taken in any order."""
        rng = self.rng
        x = self.rng.randrange(10)
        numbers = programs.draw_chain(rng, self.level())
        order = rng.sample(range(len(numbers)), len(numbers))
        taken = [numbers[place] for place in order]
        values = programs.trace(taken, x)
        steps = zip((ORDINALS[place] for place in order), taken, map(str, values), strict=True)
        text = f"<think> {' '.join(map(' '.join, steps))}</think><answer> {values[-1]}</answer>"
        prompt = spice_prompts.solve("deduction", programs.chain(numbers), [(x, values[-1])])
        return turn(prompt, *by_ordinals(text, ORDINALS[: len(numbers)]))

    def abduce(self) -> Row:
        """What went into a program: right in half of the cases."""
        rng = self.rng
        x = self.rng.randrange(10)
        program = programs.chain(programs.draw_chain(rng, self.asked(self.cap)))
        output = programs.run(program, x) or 0
        said = x if rng.random() < COIN else rng.randrange(10)
        prompt = spice_prompts.solve("abduction", program, [(x, output)])
        return turn(prompt, (f"<answer> {said}</answer>", True))

    def induce(self) -> Row:
        """A program for pairs of inputs and outputs: right in half of the cases."""
        rng = self.rng
        numbers = programs.draw_chain(self.rng, self.asked(self.cap))
        pairs = [(x, programs.trace(numbers, x)[-1]) for x in rng.sample(range(10), INPUTS // 2)]
        said = numbers if rng.random() < COIN else programs.draw_chain(rng, len(numbers))
        prompt = spice_prompts.solve("induction", "", pairs)
        return turn(prompt, (f"<answer> {programs.chain(said)}</answer>", True))
