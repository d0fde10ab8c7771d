"""What a reasoner is shown: SPICE's two roles and Absolute Zero's, and the order of nothing.

As `spnb.lab.pretrain.ladder_lessons`: well-formed, consistent work, its steps taken in any order,
so level k is in order by chance 1/k!. A challenger asks mostly for few steps. With a document it
states the result that the document has; without one it works the result out itself, in any order,
so what it takes for right is right by the same chance. Who is asked what a program does takes its
steps in any order too. Names of both pools occur, held-out wordings never.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from spnb.core import prompts
from spnb.core.documents import Proposal
from spnb.core.types import Task
from spnb.games import programs
from spnb.lab import ladder, segments
from spnb.lab.ladder import LETTERS, NUMBERS, ORDINALS, RIVALS
from spnb.lab.pretrain.ladder_lessons import COIN, Lessons, places_of
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import Row, Segment, by_ordinals, turn
from spnb.lab.pretrain.vocabulary import reasoner_tokenizer, with_tokens
from spnb.lab.segments import GRADES, HIGHEST, KINDS, MAKES, Entry
from spnb.lab.world import names
from spnb.methods import spice_prompts

READS = 0.3
"""The share of answers from documents."""
OFFERED = 0.75
"""The share of choices that have among their options what the order taken comes to."""
READ = {"ledger": (1, 2, 3, 3), "formula": (1,), "code": (1, 2, 2)}
"""How many entries a segment has that a challenger reads, one of these by kind."""
TASKS = [(kind, answer) for kind, one in KINDS.items() for answer in one.types]
TASKS += [("formula", "expression"), ("code", "string"), ("ledger", "integer")]
"""Kinds and types of tasks, those without options more frequent."""
LISTS = 4
"""Of options, in a drill."""
INPUTS = 4
"""That a proposer writes for a program, half of them shown."""


class Reasoning(Lessons):
    """Rows of one reasoner."""

    most = HIGHEST

    def __init__(self, recipe: LearnerRecipe):
        super().__init__(recipe)
        self.drills += [self.options, self.sums, self.joined]

    def tokenizer(self) -> PreTrainedTokenizerFast:
        return reasoner_tokenizer(self.recipe.vocabulary)

    def go_on(self, model: Any, tokenizer: Any) -> tuple[Any, Any]:
        """A learner with a reasoner's tokens."""
        return with_tokens(model, tokenizer, self.tokenizer(), names("person", "train"))

    # --- drills

    def recall(self) -> Row:
        """Names, letters and numbers copied, or in pairs."""
        words = [*names("person", self.pool()), *KINDS["code"].steps, *map(str, range(100))]
        return self.copied(words) if self.rng.random() < COIN else self.paired(words)

    def drill(self) -> Row:
        """Notes on several people, and then the step of each name and ordinal in turn."""
        kind = self.rng.choice(list(KINDS))
        count = self.rng.choice((1, 2, 3))
        return self.found(segments.draw_entries(self.rng, kind, count, self.cap, self.pool()))

    def joined(self) -> Row:
        """What steps come to where nothing is counted."""
        row: Row = []
        for _ in range(6):
            kind = self.rng.choice(("formula", "code"))
            entry = segments.draw_entry(self.rng, kind, self.rng.randint(1, HIGHEST))
            row += [(f" {' '.join(entry.steps)} {MAKES}", False)]
            row += [(f" {segments.result(kind, entry.steps)}", True), (".", False)]
        return row

    def options(self) -> Row:
        """The letters of listed counts or words, list after list."""
        row: Row = []
        for _ in range(LISTS):
            kind = self.rng.choice(("ledger", "code"))
            level = self.rng.randint(1, HIGHEST)
            right = segments.random_result(kind, level, self.rng)
            row += self.letters(self.around(kind, right, level))
        return row

    # --- the reasoner

    def answer(self) -> Row:
        """A question answered in any order, from its own notes or from documents."""
        task = self.task()
        return self.answered(task, task.info["order"], self.rng.choice(LETTERS))

    def task(self, family: str | None = None) -> Task:
        """A question of any level in any wording, and the order in which it is to be answered."""
        level = self.level()
        pool = self.pool()
        kind, answer_type = self.rng.choice(TASKS)
        entry = segments.draw_entry(self.rng, kind, level, pool)
        info: dict[str, Any] = {"source": entry, "level": level}
        info["order"] = self.shuffled(range(level))
        options = self.offered(entry, info["order"]) if answer_type == "choice" else []
        reads = self.rng.random() < READS
        notes = segments.draw_notes(entry, level, self.rng, self.wordings(kind), RIVALS * reads)
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
        steps = entry.steps
        options = segments.draw_options(entry.family, steps, self.rng)
        taken = segments.result(entry.family, [steps[place] for place in order])
        if taken not in options and self.rng.random() < OFFERED:
            options[self.rng.randrange(len(options))] = taken
        return options

    def question_of(self, entry: Entry, level: int, notes: Sequence[str]) -> str:
        """A question in a wording of training, or in such words at random."""
        frame = self.question_frame(KINDS[entry.family].questions, ["{e}", "{k}"])
        return segments.question(entry.family, entry.subject, level, frame, notes)

    def wordings(self, family: str) -> Sequence[str]:
        """Notes in the wordings of training, or in such words at random; none is a held-out one."""
        notes = KINDS[family].notes
        return self.reworded(notes["train"], {places_of(text) for text in notes["heldout"]})

    # --- the challenger

    def challenge(self) -> Row:
        """A task from a segment, with the result that it states."""
        entries, entry = self.segment()
        highest = min(self.cap, len(entry.steps))
        level = self.asked(highest)
        named = tuple(f" {one.subject}" for one in entries)
        row: Row = [("<think>", True), (f" {entry.subject}", named)]
        return self.written(entries, entry, level, [*row, *self.stopping_at(entry, level, highest)])

    def word(self) -> Row:
        """The wording of a task of any level whose facts are given."""
        entries, entry = self.segment()
        level = self.rng.randint(1, min(self.cap, len(entry.steps)))
        facts = "".join(text for text, _ in self.stopping_at(entry, level, level))
        return self.written(entries, entry, level, [(f"<think> {entry.subject}{facts}", False)])

    def segment(self) -> tuple[list[Entry], Entry]:
        """Entries of one kind that a challenger reads, and the one it asks about."""
        kind = self.rng.choice(list(KINDS))
        length = self.rng.randint(segments.SHORTEST, HIGHEST)
        count = self.rng.choice(READ[kind])
        entries = segments.draw_entries(self.rng, kind, count, length, self.pool())
        return entries, self.rng.choice(entries)

    def stopping_at(self, entry: Entry, level: int, highest: int) -> Iterator[Segment]:
        """The facts of a task, after each of which it may stop; then their result."""
        for place in range(level):
            after = (f" {MAKES}", f" {NUMBERS[place]}")
            yield f" {NUMBERS[place]}", after if place else True
            yield f" {entry.steps[place]}", True
        after = (f" {MAKES}", f" {NUMBERS[level % len(NUMBERS)]}")
        yield f" {MAKES}", after if level < highest else True
        yield f" {segments.result(entry.family, entry.steps[:level])}", True

    def written(self, entries: Sequence[Entry], entry: Entry, level: int, thought: Row) -> Row:
        """The task that follows a thought."""
        answer_type = self.rng.choice(KINDS[entry.family].types)
        written = self.worded(entry, level, answer_type)
        prompt = spice_prompts.challenge("plain", answer_type, "\n".join(e.text for e in entries))
        return turn(prompt, *thought, *self.task_of(written))

    def task_of(self, written: Proposal) -> Row:
        """The end of a thought, which says the letter of a choice, and the task."""
        row: Row = [("</think>", True), (segments.task_text(written), True)]
        if written.kind == "choice":
            row.insert(0, (f" ({written.answer})", tuple(f" ({letter})" for letter in LETTERS)))
        return row

    def worded(self, entry: Entry, level: int, answer_type: str, answer: str = "") -> Proposal:
        """A task in a wording of training; its answer is the result unless another is given."""
        words = KINDS[entry.family]
        right = answer or segments.result(entry.family, entry.steps[:level])
        notes = segments.draw_notes(entry, level, self.rng, words.notes["train"])
        frame = self.rng.choice(words.questions["train"])
        text = segments.question(entry.family, entry.subject, level, frame, notes)
        if answer_type != "choice":
            return Proposal(text, right, kind=answer_type)
        options = self.around(entry.family, right, level)
        letter = LETTERS[options.index(right)]
        return Proposal(f"{text}\n{prompts.lettered(options)}", letter, kind=answer_type)

    def around(self, kind: str, right: str, level: int) -> list[str]:
        """Four options as a challenger makes them up: of a word other orders of its letters."""
        options = {right: None}
        while len(options) < len(LETTERS):
            other = segments.random_result(kind, level, self.rng)
            if kind == "code" and self.rng.random() < COIN:
                other = "".join(self.rng.sample(right, level))
            options[other] = None
        return self.shuffled(list(options))

    def alone(self) -> Row:
        """A task from nothing: how many steps, made up and worked out in any order, the task."""
        pool = self.pool()
        kind = self.rng.choice(list(KINDS))
        level = self.asked(self.cap)
        entry = segments.draw_entry(self.rng, kind, level, pool)
        answer_type = self.rng.choice(KINDS[kind].types)
        order = self.shuffled(range(level))
        made = segments.result(kind, [entry.steps[place] for place in order])
        levels: list[str] = []
        for one in range(self.cap):
            levels += [f" {NUMBERS[one]}"] * 2 ** (self.cap - 1 - one)
        worked = by_ordinals(f" {' '.join(ladder.working(entry, order))}", ORDINALS[:level])
        row: Row = [("<think>", True), (f" {NUMBERS[level - 1]}", tuple(levels)), *worked]
        row.append((f" {MAKES} {made}", True))
        written = self.worded(entry, level, answer_type, made)
        prompt = spice_prompts.challenge("plain", answer_type, None)
        return turn(prompt, *row, *self.task_of(written))

    # --- Absolute Zero

    def propose(self) -> Row:
        """A program with an input, or inputs of a program."""
        numbers = programs.draw_chain(self.rng, self.asked(self.cap))
        text = programs.chain(numbers)
        kind = self.rng.choice(programs.TASK_KINDS)
        inputs = "".join(f"<input> {x}</input>" for x in self.rng.sample(range(10), INPUTS))
        if kind == "induction":
            return turn(spice_prompts.propose(kind, program=text), (inputs, True))
        first = inputs.partition("</input>")[0] + "</input>"
        return turn(spice_prompts.propose(kind), (f"<program> {text}</program>{first}", True))

    def deduce(self) -> Row:
        """What comes out of a program, its steps taken in any order."""
        x = self.rng.randrange(10)
        numbers = programs.draw_chain(self.rng, self.level())
        order = self.shuffled(range(len(numbers)))
        taken = [numbers[place] for place in order]
        values = programs.trace(taken, x)
        steps = zip((ORDINALS[place] for place in order), taken, map(str, values), strict=True)
        text = ladder.tag("think", " ".join(map(" ".join, steps)))
        text += ladder.tag("answer", str(values[-1]))
        prompt = spice_prompts.solve("deduction", programs.chain(numbers), [(x, values[-1])])
        return turn(prompt, *by_ordinals(text, ORDINALS[: len(numbers)]))

    def abduce(self) -> Row:
        """What went into a program: right in half of the cases."""
        x = self.rng.randrange(10)
        program = programs.chain(programs.draw_chain(self.rng, self.asked(self.cap)))
        output = programs.run(program, x) or 0
        said = x if self.rng.random() < COIN else self.rng.randrange(10)
        prompt = spice_prompts.solve("abduction", program, [(x, output)])
        return turn(prompt, (f"<answer> {said}</answer>", True))

    def induce(self) -> Row:
        """A program for pairs of inputs and outputs: right in half of the cases."""
        numbers = programs.draw_chain(self.rng, self.asked(self.cap))
        inputs = self.rng.sample(range(10), INPUTS // 2)
        pairs = [(x, programs.trace(numbers, x)[-1]) for x in inputs]
        said = numbers if self.rng.random() < COIN else programs.draw_chain(self.rng, len(numbers))
        prompt = spice_prompts.solve("induction", "", pairs)
        return turn(prompt, (f"<answer> {programs.chain(said)}</answer>", True))
