"""Pre-trains the readers: learners that go on to long contexts and to SPELL's three roles.

As `spnb.lab.pretrain.ladder_lessons`, but notes stand in documents (`spnb.lab.clusters`), one to
sixteen of them. A questioner states a journey's answer by its steps alone, and a judge compares a
response, which names person and ordinals too, with such a statement: a rule of words does not see
that they agree. The order of steps is still shown in any order.
"""

from spnb.core import prompts
from spnb.core.types import Task
from spnb.lab import clusters, ladder
from spnb.lab.ladder import LETTERS, Source
from spnb.lab.pretrain.ladder_lessons import Lessons
from spnb.lab.pretrain.rows import Row, turn

DOCUMENTS = (1, 2, 4, 4, 4, 8, 8, 16)
"""How many documents an answerer reads, one of these."""
SOURCES = (1, 2, 2, 3, 4, 4)
"""How many records a questioner reads, one of these."""
LENGTHS = (4, 5, 6, 6, 6, 7, 8)
"""Steps of a document, one of these."""
SPREAD = 0.1
SOLVED = 0.08
"""Shares of answers over notes dealt out to all documents, and behind solved questions."""


class Reading(Lessons):
    """Rows of one reader."""

    most = 8
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
        sources = ladder.draw_sources(self.rng, family, self.rng.choice(DOCUMENTS), length, pool)
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
        """A question without documents: a guess."""
        task = self.task()
        if task.kind != "letter":
            level = task.info["level"]
            source = ladder.draw_source(self.rng, task.info["family"], level, self.pool())
            guess = ladder.tag("answer", ladder.result(source, level))
            return turn(prompts.closed(task.question), (guess, True))
        letters = tuple(f" {letter}" for letter in LETTERS)
        prompt = prompts.choice(task.question, task.info["options"])
        return turn(prompt, ("<answer>", True), (letters[0], letters), ("</answer>", True))

    def reading(self) -> tuple[list[Source], Source]:
        """Sources that a questioner reads, and the one it asks about."""
        pool = self.pool()
        family = self.rng.choice([one for one in self.recipe.families if one in clusters.TYPES])
        count = self.rng.choice(SOURCES)
        length = self.rng.choice(LENGTHS)
        sources = ladder.draw_sources(self.rng, family, count, length, pool)
        return sources, self.rng.choice(sources)

    def stated(self, task: Task, answer: str) -> str:
        """An answer as a questioner states it: of a journey its steps alone."""
        return " ".join(answer.split()[2::3]) if task.info["family"] == "journey" else answer
