"""Pre-trains the readers: learners that go on to long contexts and to SPELL's three roles.

As `spnb.lab.pretrain.ladder_lessons`, but notes stand in documents (`spnb.lab.clusters`), one to
sixteen of them. A questioner states a journey's answer by its steps alone, and a judge compares a
response, which names person and ordinals too, with such a statement: a rule of words does not see
that they agree. The order of steps is still shown in any order.
"""

from typing import Any

from pydantic import Field

from spnb.core import prompts
from spnb.core.types import Task
from spnb.lab import clusters, ladder
from spnb.lab.ladder import LETTERS, Source
from spnb.lab.pretrain.ladder_lessons import COIN, LearnerRecipe, Lessons
from spnb.lab.pretrain.rows import Row, answer_tag, draw_pool, turn

DOCUMENTS = (1, 2, 4, 4, 4, 8, 8, 16)
"""How many documents an answerer reads, one of these."""
SOURCES = (1, 2, 2, 3, 4, 4)
"""How many records a questioner reads, one of these."""
LENGTHS = (4, 5, 6, 6, 6, 7, 8)
"""Steps of a document, one of these."""
SPREAD = 0.1
SOLVED = 0.08
"""Shares of answers over notes dealt out to all documents, and behind solved questions."""
SHARES = {"answer": 0.4, "order": 0.03, "ask": 0.34, "word": 0.03, "closed": 0.02, "judge": 0.18}


class ReaderRecipe(LearnerRecipe):
    """Everything that decides a reader's weights, beside those that it starts from."""

    start: str = Field("learner", description="the embedded policy that it goes on from")
    highest: int = Field(8, ge=1, le=8)
    tokens: int = Field(7_000_000, gt=0)
    learning_rate: float = Field(1.5e-3, gt=0)
    matrix_learning_rate: float = Field(0.01, gt=0)


RECIPES: dict[str, dict[str, Any]] = {
    "reader": {},
    "reader-even": {"start": "learner-even", "asks": "even", "dtype": "bfloat16"},
    "reader-large": {
        "start": "learner-large",
        "hidden": 128,
        "feed_forward": 384,
        "dtype": "bfloat16",
    },
}
"""What the recipes set; sizes are those of the policies that they start from."""


class Reading(Lessons):
    """Rows of one reader."""

    shares = SHARES
    earlier_share = 0.6

    @property
    def warmed(self) -> float:
        """A reader has had its drills."""
        return 1.0

    def task(self, family: str | None = None) -> Task:
        """A question of any level about one of several documents."""
        rng = self.rng
        pool = draw_pool(self.rng)
        family = family or rng.choice(self.recipe.families)
        length = rng.choice(LENGTHS)
        sources = ladder.draw_sources(rng, family, rng.choice(DOCUMENTS), length, pool)
        wordings = self.wordings(family)
        texts = clusters.write_documents(sources, rng, wordings, rng.random() < SPREAD)
        if rng.random() < SOLVED:
            levels = [self.asked(length) for _ in range(rng.randint(2, 8))]
            texts = [*(self.question(family, level) for level in levels), *texts]
        levels = range(1, length + 1)
        (level,) = rng.choices(levels, [level + 2 for level in levels])
        return ladder.pose(rng.choice(sources), level, texts, rng, self.frame(family))

    def question(self, family: str, level: int) -> str:
        """A question of a level about anybody, with its answer."""
        source = ladder.draw_source(self.rng, family, level, draw_pool(self.rng))
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
            source = self.source(level, draw_pool(self.rng), family=task.info["family"])
            guess = answer_tag(ladder.result(source, level))
            return turn(prompts.closed(task.question), (guess, True))
        letters = tuple(f" {letter}" for letter in LETTERS)
        prompt = prompts.choice(task.question, task.info["options"])
        return turn(prompt, ("<answer>", True), (letters[0], letters), ("</answer>", True))

    def reading(self) -> tuple[list[Source], Source]:
        """Sources that a questioner reads, and the one it asks about."""
        rng = self.rng
        pool = draw_pool(self.rng)
        family = rng.choice([one for one in self.recipe.families if one in clusters.TYPES])
        count = rng.choice(SOURCES)
        length = rng.choice(LENGTHS)
        sources = ladder.draw_sources(rng, family, count, length, pool)
        return sources, rng.choice(sources)

    def judge(self) -> Row:
        """Whether a response agrees with a stated answer, of a journey by its steps alone."""
        task = self.task()
        first, second = (prompts.field(self.any_order(task), "answer") or "" for _ in range(2))
        if self.rng.random() < COIN:
            second = first
        compared = first
        if task.info["family"] == "journey":
            compared, second = (" ".join(text.split()[2::3]) for text in (first, second))
        return self.compare(prompts.judge(task.question, first, second), compared, second)
