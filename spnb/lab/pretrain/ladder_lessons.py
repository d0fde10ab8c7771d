"""What a learner is shown on the ladder: every role, and the order of nothing.

Every lesson shows well-formed, consistent work. But whoever answers takes the steps in any order:
so level k is in order by chance 1/k!, and what reinforcement learning can add is the order. Whoever
asks, asks mostly for few steps (`easy`), as a language model does, evenly for all levels (`even`),
or mostly for many steps (`hard`). Names of both pools occur, held-out wordings never.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedTokenizerFast

from spnb.core import prompts
from spnb.core.types import Messages, Task
from spnb.lab import ladder
from spnb.lab.ladder import HIGHEST, LETTERS, ORDINALS, RIVALS, WORDING, WORLDS, Source
from spnb.lab.pretrain.recipes import TABLES, LearnerRecipe
from spnb.lab.pretrain.rows import Drills, Row, Segment, by_ordinals, corrected_text, turn
from spnb.lab.pretrain.vocabulary import ladder_tokenizer
from spnb.lab.world import Pool, names

COIN = 0.5
"""The chance of each of two ways to write something."""
RARER = 0.5
"""How much rarer each level is among easy questions than the one below; among hard ones, than the
one above."""
GOES_ON = 30
"""How often at most a hard question goes on after a fact, for each time that it ends there."""
SOURCES = (1, 2, 2, 2, 2, 3, 4)
"""How many sources a questioner reads, one of these."""
SHORTEST = 6
"""The fewest steps of a source that a questioner reads."""
REWORDED = 0.3
"""The shares of documents whose notes, and of questions, are in random words."""
CROWDED = 0.2
LATER = 3
OTHERS = 3
LEFT_OUT = 8
"""The share of answers among many notes; of these, the most on later steps, other people, and the
most notes on them."""
OFFERED = 0.7
"""The share of choices that have among their options what the order taken comes to."""
JUDGED = 8
"""Verdicts of ten that are right."""
LISTED = 0.8
"""The share of points that a rubric lists."""
WARM = 0.3
"""The share of the training in which levels grow and drills are frequent."""


class Lessons(Drills):
    """Rows of one learner; `progress` (0 to 1) says how far its training is.

    Raises ValueError for a recipe whose highest level is above `most`, the steps that there are.
    """

    most = HIGHEST
    earlier_share = 0.3
    """Of questions that are written with earlier ones in sight."""

    def __init__(self, recipe: LearnerRecipe):
        if recipe.highest > self.most:
            raise ValueError(f"highest is {recipe.highest}; allowed: 1 to {self.most}")
        super().__init__(recipe)
        shares: dict[str, float] = TABLES["shares"][type(self).__name__]
        if unknown := {*recipe.leaves_out} - {*shares}:
            allowed = f"allowed: {', '.join(shares)}"
            raise ValueError(f"leaves_out is {', '.join(sorted(unknown))}; {allowed}")
        self.shares = {name: at for name, at in shares.items() if name not in recipe.leaves_out}
        self.progress = 1.0
        self.work: list[Callable[[], Row]] = [getattr(self, name) for name in self.shares]
        self.drills: list[Callable[[], Row]] = [self.recall, self.drill]
        if "choice" in recipe.families:
            self.drills.append(self.options)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The policy's tokens, where it starts from scratch."""
        return ladder_tokenizer(self.recipe.vocabulary)

    def go_on(self, model: Any, tokenizer: Any) -> tuple[Any, Any]:
        """The start's model and tokenizer as these lessons need them."""
        return model, tokenizer

    @property
    def warmed(self) -> float:
        """How far the training's first part is, 0 to 1."""
        return min(1.0, self.progress / WARM)

    @property
    def cap(self) -> int:
        """The highest level so far."""
        return min(2, self.recipe.highest) + round(max(0, self.recipe.highest - 2) * self.warmed)

    def rows(self) -> Iterator[Row]:
        """Endless rows: drills at first, then mostly answers and questions."""
        while True:
            drills = max(0.1, 0.7 * (1 - self.warmed))
            work = dict(zip(self.work, self.shares.values(), strict=True))
            lessons = [(lesson, share * (1 - drills)) for lesson, share in work.items()]
            lessons += [(lesson, drills / len(self.drills)) for lesson in self.drills]
            yield self.rng.choices(*zip(*lessons, strict=True))[0]()

    def level(self, highest: int = 0) -> int:
        """A level to answer, up to the cap where nothing else is said; the high ones, which take
        most practice, are more frequent."""
        levels = range(1, (highest or self.cap) + 1)
        return self.rng.choices(levels, [level + 2 for level in levels])[0]

    def asked(self, highest: int) -> int:
        """A level to ask for, as the recipe says."""
        levels = range(1, highest + 1)
        rarer = {"easy": RARER, "even": 1.0, "hard": 1 / RARER}[self.recipe.asks]
        return self.rng.choices(levels, [rarer**level for level in levels])[0]

    def drill(self) -> Row:
        """Notes on several people, and then the step of each name and ordinal in turn; or sums."""
        pool = self.pool()
        family = self.rng.choice(self.recipe.families)
        if WORLDS[family] == "ledger" and self.rng.random() < COIN:
            return self.sums()
        count = self.rng.choice((2, 2, 3))
        return self.found(ladder.draw_sources(self.rng, family, count, self.cap, pool))

    def found(self, sources: Sequence[Source]) -> Row:
        """Notes on sources of one family, and then the step of each name and ordinal in turn."""
        places = [(source, place) for source in sources for place in range(len(source.steps))]
        places = self.rng.sample(places, min(len(places), self.rng.choice((4, 6, 10))))
        plain = self.rng.random() < COIN
        wordings = ["{e} {n} {v}."] if plain else self.wordings(sources[0].family)
        notes = (ladder.note(source, place, self.rng.choice(wordings)) for source, place in places)
        return self.looked_up("".join(f" {note}" for note in notes), places)

    def looked_up(self, text: str, places: Sequence[tuple[Source, int]]) -> Row:
        """A text, and then the step of each name and ordinal in any order."""
        row: Row = [(text, False)]
        for source, place in self.shuffled(places):
            row.append((f" {source.subject} {ORDINALS[place]}", False))
            row += [(f" {source.steps[place]}", True), (".", False)]
        return row

    def answer(self) -> Row:
        """A question answered in any order."""
        task = self.task()
        level = task.info["level"]
        order = self.shuffled(range(level))
        guess = self.rng.choice(LETTERS)
        if task.kind == "letter" and self.rng.random() < OFFERED:
            task = self.offer(task, order)
        return self.answered(task, order, guess)

    def answered(self, task: Task, order: Sequence[int], guess: str) -> Row:
        """An answer that takes the steps in this order; what is guessed may be any letter."""
        text = ladder.reply(task, order, guess)
        steps = ORDINALS[: len(order)]
        if task.kind != "letter" or "(" in text:
            return turn(task.messages, *by_ordinals(text, steps))
        thought, _, letter = text.removesuffix("</answer>").rpartition(" ")
        guessed = (f" {letter}", tuple(f" {one}" for one in LETTERS))
        return turn(task.messages, *by_ordinals(thought, steps), guessed, ("</answer>", True))

    def offer(self, task: Task, order: Sequence[int]) -> Task:
        """A choice that has among its options what this order comes to."""
        count = str(ladder.counts([task.info["source"].steps[place] for place in order])[-1])
        options = list(task.info["options"])
        if count not in options:
            wrong = [place for place in range(4) if LETTERS[place] != task.gold[0]]
            options[self.rng.choice(wrong)] = count
        messages = prompts.choice(task.question, options, task.info["documents"])
        return replace(task, messages=messages, info=task.info | {"options": tuple(options)})

    def task(self, family: str | None = None) -> Task:
        """A question of any level about a source of a family, else of any that the recipe has."""
        level = self.level()
        pool = self.pool()
        crowded = self.rng.random() < CROWDED
        length = min(level + self.rng.randint(0, LATER), HIGHEST) if crowded else level
        family = family or self.rng.choice(self.recipe.families)
        source = ladder.draw_source(self.rng, family, length, pool)
        wordings = self.wordings(source.family)
        documents = ladder.draw_notes(source, level, self.rng, pool, wordings, RIVALS)
        if crowded:
            documents += self.crowd(source, level, pool, wordings)
            self.rng.shuffle(documents)
        return ladder.pose(source, level, documents, self.rng, self.frame(source.family))

    def crowd(self, source: Source, level: int, pool: Pool, wordings: Sequence[str]) -> list[str]:
        """Notes that an answer leaves out: on later steps, and on several other people."""
        steps = len(source.steps)
        notes = [(source, place) for place in range(level, steps)]
        people = ladder.draw_sources(self.rng, source.family, OTHERS, steps, pool)
        others = [one for one in people if one.subject != source.subject]
        for _ in range(self.rng.randint(1, LEFT_OUT)):
            notes.append((self.rng.choice(others), self.rng.randrange(steps)))
        return [ladder.note(*note, self.rng.choice(wordings)) for note in dict.fromkeys(notes)]

    def frame(self, family: str) -> str:
        """A question's wording."""
        return self.question_frame(WORDING["families"][family]["questions"], ["{e}", "{k}"])

    def question_frame(self, wordings: Mapping[Pool, Sequence[str]], slots: Sequence[str]) -> str:
        """A wording of training, or such words at random around the slots, never a held-out one."""
        frames = wordings["train"]
        if self.rng.random() > REWORDED:
            return self.rng.choice(frames)
        words = re.findall(r"\b[A-Za-z]{2,}", " ".join(frames))
        parts = [*self.shuffled(slots), ""]
        made = []
        for slot in parts:
            made += [*self.rng.choices(words, k=self.rng.randint(0, 3)), slot]
        text = " ".join(" ".join(made).split()) + self.rng.choice(".?")
        return text if text not in wordings["heldout"] else frames[0]

    def wordings(self, family: str) -> Sequence[str]:
        """Notes in the wordings of training, or in such words at random."""
        return self.reworded(WORDING[WORLDS[family]]["notes"]["train"], HELD_OUT)

    def reworded(self, notes: Sequence[str], held_out: Collection[str]) -> Sequence[str]:
        """These notes, or ones of their words at random: which words stand between the names
        should not matter. None has a held-out one's words in their places."""
        if self.rng.random() > REWORDED:
            return notes
        words = [word for text in notes for word in re.findall(r"\b[A-Za-z]{2,}", text)]
        made = []
        for _ in notes:  # name and ordinal in any order, then the step, up to a word before each
            slots = [*self.shuffled(["{e}", "{n}"]), "{v}"]
            parts = (f"{self.rng.choice(['', self.rng.choice(words)])} {slot}" for slot in slots)
            made.append(" ".join(" ".join(parts).split()) + ".")
        return [text for text in made if places_of(text) not in held_out] or notes

    def any_order(self, task: Task) -> str:
        """A consistent answer."""
        level = task.info["level"]
        return ladder.reply(task, self.shuffled(range(level)), self.rng.choice(LETTERS))

    def closed(self) -> Row:
        """A question without documents: a guess."""
        task = self.task()
        level = self.asked(self.cap)
        guess = ladder.draw_source(self.rng, task.info["family"], level, self.pool())
        text = ladder.result(guess, level)
        return turn(prompts.closed(task.question), (ladder.tag("answer", text), True))

    def ask(self) -> Row:
        """A valid question about one of several sources, beyond earlier ones where there are."""
        sources, source = self.reading()
        highest = min(self.cap, len(source.steps))
        floor, earlier = self.earlier(source.family, highest)
        level = floor + self.asked(highest - floor)
        thought, end, worded = self.proposal(source, level).partition("</think>")
        _, subject, *words = thought.split()
        row: Row = [("<think>", True), (f" {subject}", tuple(f" {one.subject}" for one in sources))]
        row += self.stopping(source, [*(f" {word}" for word in words), end], floor + 1, highest)
        return turn(ladder.ask(sources, earlier), *row, (worded, True))

    def word(self) -> Row:
        """The wording of a question of any level whose facts are given: to stop here is not
        practised."""
        sources, source = self.reading()
        level = self.rng.randint(1, min(self.cap, len(source.steps)))
        thought, end, worded = self.proposal(source, level).partition("</think>")
        return turn(ladder.ask(sources), (thought + end, False), (worded, True))

    def reading(self) -> tuple[list[Source], Source]:
        """Sources that a questioner reads, and the one it asks about."""
        pool = self.pool()
        family = self.rng.choice(self.recipe.families)
        length = self.rng.randint(min(SHORTEST, self.recipe.highest), self.recipe.highest)
        sources = ladder.draw_sources(self.rng, family, self.rng.choice(SOURCES), length, pool)
        return sources, self.rng.choice(sources)

    def earlier(self, family: str, highest: int) -> tuple[int, list[str]]:
        """Earlier questions at times, and the highest level among them, below `highest`."""
        if highest == 1 or self.rng.random() > self.earlier_share:
            return 0, []
        levels = [self.asked(highest - 1) for _ in range(self.rng.choice((1, 2)))]
        return max(levels), [self.question(family, level) for level in levels]

    def question(self, family: str, level: int) -> str:
        """A question of a level about anybody."""
        frame = self.rng.choice(ladder.frames(family, "train"))
        subject = self.rng.choice(names("person", self.pool()))
        return ladder.question(family, subject, level, frame)

    def proposal(self, source: Source, level: int) -> str:
        """A valid proposal in any wording."""
        choice = source.family == "choice"
        options = ladder.draw_options(source.steps[:level], self.rng) if choice else ()
        frame = self.rng.choice(ladder.frames(source.family, "train"))
        return ladder.proposal(source, level, frame, options)

    def stopping(
        self, source: Source, words: Sequence[str], lowest: int, highest: int
    ) -> Iterator[Segment]:
        """A questioner's thought, which may end after the facts from `lowest` on."""
        choice = source.family == "choice"
        size = 1 if WORLDS[source.family] == "journey" else 2
        ends = [f" ({letter})" for letter in LETTERS] if choice else ["</think>"]
        for place, word in enumerate(words):
            facts, within = divmod(place, size)
            if within or facts < lowest:
                yield word, True
                continue
            further = [f" {step}" for step in source.steps[facts : facts + 1]]
            yield word, (*ends, *further * self.further(facts, highest) * len(ends))

    def further(self, facts: int, highest: int) -> int:
        """How often a question goes on after so many facts, for each time that it ends there."""
        left = highest - facts
        if self.recipe.asks == "hard":
            return min(GOES_ON, 2 ** (left + 1) - 2)
        return left if self.recipe.asks == "even" else min(1, left)

    def judge(self) -> Row:
        """Whether two answers are the same."""
        task = self.task()
        first, second = (prompts.field(self.any_order(task), "answer") or "" for _ in range(2))
        if self.rng.random() < COIN:
            second = first
        state = self.statement(task)
        prompt = prompts.judge(task.question, first, state(second))
        return self.compare(prompt, state(first), state(second))

    def statement(self, task: Task) -> Callable[[str], str]:
        """How a questioner states answers to a question: as they are."""
        return str

    def rubric(self) -> Row:
        """Points of a report, in any order, some left out."""
        task = self.task("report")
        points = [point for point in task.gold if self.rng.random() < LISTED] or [task.gold[0]]
        text = "".join(ladder.tag("rubric", point) for point in self.shuffled(points))
        prompt = prompts.rubric(task.question, task.info["documents"])
        return turn(prompt, *by_ordinals(text, ORDINALS[: task.info["level"]]))

    def grade(self) -> Row:
        """Whether a report states a point: what it states, the point's step, and the verdict, not
        always right."""
        task = self.task("report")
        response = prompts.field(self.any_order(task), "answer") or ""
        who, ordinal, step = self.rng.choice(task.gold).split()
        if self.rng.random() < COIN:
            step = self.rng.choice(names("town", self.pool()))
        words = response.split()
        at = words.index(ordinal)
        point = f"{who} {ordinal} {step}"
        return self.compare(prompts.grade(response, point), point, " ".join(words[at - 1 : at + 2]))

    def compare(self, prompt: Messages, first: str, second: str) -> Row:
        """Reads the second text along the first up to where they differ; then a verdict, which is
        right in `JUDGED` of ten cases."""
        thought = " ".join(corrected_text(first.split(), second.split()))
        right = prompts.YES if first == second else prompts.NO
        wrong = prompts.NO if first == second else prompts.YES
        verdicts = (*[f" {right}"] * JUDGED, *[f" {wrong}"] * (10 - JUDGED))
        said = (self.rng.choice(verdicts), verdicts)
        return turn(prompt, (f"<think> {thought}</think><answer>", True), said, ("</answer>", True))


def places_of(wording: str) -> str:
    """A wording without the order of name and ordinal."""
    return re.sub("{[en]}", "{}", wording)


HELD_OUT = {
    places_of(text) for world in set(WORLDS.values()) for text in WORDING[world]["notes"]["heldout"]
}
