"""Pre-trains the readers: learners that go on to long contexts and to SPELL's three roles.

As `spnb.lab.pretrain.ladder_lessons`, but notes stand in documents (`spnb.lab.clusters`), one to
sixteen of them (a row over 512 tokens is left out: nine in ten of those with sixteen). A questioner
states a journey's answer in full or by its steps alone, and a judge compares a response, which
names person and ordinals too, with such a statement: where it is the steps alone, a rule of words
does not see that they agree. A questioner forgets the answer at times.
What everybody knows (`clusters.KNOWN`) is answered without documents too. The order of steps is
still shown in any order.
"""

from collections.abc import Callable
from dataclasses import replace

from spnb.core import prompts
from spnb.core.types import Task
from spnb.lab import clusters, ladder
from spnb.lab.ladder import LETTERS, ORDINALS, Source
from spnb.lab.pretrain.ladder_lessons import COIN, Lessons
from spnb.lab.pretrain.rows import Row, by_ordinals, turn

DOCUMENTS = (1, 2, 4, 4, 4, 8, 8, 16)
"""How many documents an answerer reads, one of these."""
SOURCES = (1, 2, 2, 3, 4, 4)
"""How many records a questioner reads, one of these."""
LENGTHS = (4, 5, 6, 6, 6, 7, 8)
"""Steps of a document, one of these."""
FORGOTTEN = 1 / 3
"""The share of proposals without an answer."""
SPREAD = 0.1
SOLVED = 0.08
"""Shares of answers over notes dealt out to all documents, and behind solved questions."""


class Reading(Lessons):
    """Rows of one reader."""

    most = clusters.MOST
    earlier_share = 0.6

    @property
    def warmed(self) -> float:
        """A reader has had its drills."""
        return 1.0

    def task(self, family: str | None = None) -> Task:
        """A question of any level about one of several documents."""
        pool = self.pool()
        family = family or self.rng.choice(self.recipe.families)
        length = self.rng.choice(LENGTHS)
        sources = clusters.draw_sources(self.rng, family, self.rng.choice(DOCUMENTS), length, pool)
        wordings = self.wordings(family)
        texts = clusters.write_documents(sources, self.rng, wordings, self.rng.random() < SPREAD)
        if self.rng.random() < SOLVED:
            levels = [self.asked(length) for _ in range(self.rng.randint(2, 8))]
            texts = [*(self.question(family, level) for level in levels), *texts]
        level = self.level(length)
        return ladder.pose(self.rng.choice(sources), level, texts, self.rng, self.frame(family))

    def question(self, family: str, level: int) -> str:
        """A question of a level about anybody, with its answer."""
        source = ladder.draw_source(self.rng, family, level, self.pool())
        frame = self.rng.choice(ladder.frames(family, "train"))
        answer = ladder.result(source, level)
        if family == "choice":
            answer = self.rng.choice(LETTERS)
        return clusters.with_answer(ladder.question(family, source.subject, level, frame), answer)

    def closed(self) -> Row:
        """A question without documents: what is known, in any order, else a guess."""
        task = self.task()
        if task.kind != "letter":
            level = task.info["level"]
            source = task.info["source"]
            if source.subject not in clusters.KNOWN and self.rng.random() < COIN:
                task, source = self.about_known(task)
            if source.subject not in clusters.KNOWN:
                steps = ladder.draw_source(self.rng, source.family, level, self.pool()).steps
                source = replace(source, steps=steps)
            said = ladder.tag("answer", source.result(self.shuffled(range(level))))
            return turn(prompts.closed(task.question), *by_ordinals(said, ORDINALS[:level]))
        letters = tuple(f" {letter}" for letter in LETTERS)
        prompt = prompts.choice(task.question, task.info["options"])
        return turn(prompt, ("<answer>", True), (letters[0], letters), ("</answer>", True))

    def about_known(self, task: Task) -> tuple[Task, Source]:
        """The same question about somebody known, and what is known."""
        subject = self.rng.choice(clusters.KNOWN)
        source = clusters.known(replace(task.info["source"], subject=subject))
        asked = task.question.replace(task.info["source"].subject, subject)
        return replace(task, question=asked), source

    def reading(self) -> tuple[list[Source], Source]:
        """Sources that a questioner reads, and the one it asks about."""
        pool = self.pool()
        family = self.rng.choice([one for one in self.recipe.families if one in clusters.TYPES])
        count = self.rng.choice(SOURCES)
        length = self.rng.choice(LENGTHS)
        sources = clusters.draw_sources(self.rng, family, count, length, pool)
        return sources, self.rng.choice(sources)

    def proposal(self, source: Source, level: int) -> str:
        """A proposal in any wording, a journey's answer in full or by its steps alone; at times
        without the answer."""
        asked, start, stated = super().proposal(source, level).partition("<answer>")
        if self.rng.random() < FORGOTTEN:
            return asked
        if source.family == "journey" and self.rng.random() < COIN:
            return asked + ladder.tag("answer", ladder.result(source, level))
        return asked + start + stated

    def statement(self, task: Task) -> Callable[[str], str]:
        """How a questioner states answers: of a journey in full or by the steps alone."""
        short = task.info["family"] == "journey" and self.rng.random() < COIN
        return lambda answer: " ".join(answer.split()[2::3]) if short else answer
