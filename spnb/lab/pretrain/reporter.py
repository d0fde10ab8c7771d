"""What a reporter is shown: every role of SCOPE on reports about groups of people.

As `spnb.lab.pretrain.ladder_lessons`, with whose policy it begins. A solver searches for each
person of a task, leaves one out now and then, and tells the stops in any order, sometimes again in
another one. A challenger names the steps that it asks for one by one, mostly few; deep tasks are
drawn as often as short ones, how often one stops is in the targets. The judge's work is right:
rubrics in order, grades point by point, gates.
"""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from spnb.core import prompts
from spnb.core.types import Messages
from spnb.lab import groups, ladder
from spnb.lab.groups import FEWEST, READ, SIZE, TYPES
from spnb.lab.ladder import NUMBERS, ORDINALS, Source
from spnb.lab.pretrain.ladder_lessons import Lessons
from spnb.lab.pretrain.rows import Row, Segment, by_ordinals, corrected_text, turn
from spnb.lab.pretrain.vocabulary import POOLS, report_tokenizer, with_tokens
from spnb.lab.world import names

DONE = "done"
"""The thought before a text is written."""
NOTHING = "nothing"
"""What a report says about somebody whom it does not tell of."""
UNTOLD = 0.2
"""The share of grades of a point on somebody whom the report does not tell of."""
NOT_AGAIN = 9
"""Sections that are not told again, for each that is."""
NOT_LEFT_OUT = 9
"""People searched for, for each that is left out."""
ASTRAY = 0.08
"""The share of tasks that name nobody, and of those that are on others than the document."""


class Reporting(Lessons):
    """Rows of one reporter."""

    most = groups.HIGHEST

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A token for each name, ordinal, number and fixed phrase."""
        return report_tokenizer(self.recipe.vocabulary)

    def go_on(self, model: Any, tokenizer: Any) -> tuple[Any, Any]:
        """A learner with a reporter's tokens."""
        people = [name for pool in POOLS for name in names("person", pool)]
        return with_tokens(model, tokenizer, self.tokenizer(), people)

    # --- the world of a row

    def group(self) -> list[Source]:
        """Five people with stops of their own."""
        pool = self.pool()
        towns = names("town", pool)
        steps = max(self.cap, FEWEST)
        return [
            Source("report", who, tuple(self.rng.sample(towns, steps)))
            for who in self.rng.sample(names("person", pool), SIZE)
        ]

    def some(self, group: Sequence[Source]) -> list[Source]:
        """As many of a group as a task is on; fewer at first."""
        fewest = FEWEST if self.warmed == 1 else 1
        return self.rng.sample(group, self.rng.randint(fewest, SIZE))

    def passage(self, source: Source) -> str:
        """Everybody's stops, as the library has them."""
        return groups.passage(source, self.rng)

    def kind(self) -> str:
        """Any type of task."""
        return self.rng.choice(list(TYPES))

    def text(self, kind: str, people: Sequence[str], level: int) -> str:
        """A task in a wording of training, or in such words at random that tell its type."""
        frame = ""
        while not any(key in frame for key in TYPES[kind]["keys"]):
            frame = self.question_frame(TYPES[kind]["questions"], ["{s}", "{k}"])
        return groups.question(kind, people, level, frame)

    def document(self, group: Sequence[Source]) -> str:
        """What a challenger reads: who went together, and the passages on two of them."""
        told = [self.passage(source) for source in group[:READ]]
        return " ".join([groups.roster([source.subject for source in group]), *told])

    def drill(self) -> Row:
        """Passages on one to three people, and then the stop of each name and ordinal in turn."""
        who = self.group()[: self.rng.randint(1, 3)]
        told = " ".join(self.passage(source) for source in who)
        places = [(source, place) for source in who for place in range(len(source.steps))]
        return self.looked_up(f" {told}", places)

    # --- the solver

    def answer(self) -> Row:
        """A task done by search, the stops in any order."""
        kind = self.kind()
        level = self.level()
        people = self.some(self.group())
        subjects = [source.subject for source in people]
        pieces: Row = []
        searched: list[Source] = []
        at = 0
        while at < len(people):
            after = at + (self.rng.random() < 1 / (1 + NOT_LEFT_OUT) and at > 0)
            pieces += self.thought(subjects[at:], first=at == 0)
            if after >= len(people):
                break
            pieces[-1] = (f" {subjects[after]}", pieces[-1][1])
            pieces += self.searching(people[after])
            searched.append(people[after])
            at = after + 1
        if at >= len(people):
            pieces += [("<think>", True), (f" {DONE}", True)]
        else:
            pieces[-1] = (f" {DONE}", pieces[-1][1])
        pieces.append(("</think><answer>", True))
        text = self.text(kind, subjects, level)
        return turn(prompts.report(text), *pieces, *self.told(kind, searched, level))

    def thought(self, left: Sequence[str], first: bool) -> Row:
        """Whom to look for next: the next person, now and then the one after, or nobody."""
        after = [*left[1:2], DONE][0]
        options = (f" {left[0]}",) * NOT_LEFT_OUT + (f" {after}",)
        return [("<think>", True), (f" {left[0]}", True if first else options)]

    def searching(self, source: Source) -> Row:
        """A search for somebody, and what it finds."""
        query = groups.query(source.subject)
        found = prompts.information([self.passage(source)])
        return [(f"</think><search> {query}</search>", True), (found, False)]

    def told(self, kind: str, people: Sequence[Source], level: int) -> Row:
        """Sections on these people, the stops of each in any order; some are told again."""
        pieces: Row = []
        left = list(people)
        now = left.pop(0)
        pieces += self.section(kind, now, level, (f" {now.subject}",))
        while True:
            again = self.rng.random() < 1 / (1 + NOT_AGAIN)
            following = [f" {left[0].subject}"] * NOT_AGAIN if left else []
            named = (*following, f" {now.subject}")
            if not left and not again:
                return [*pieces, ("</answer>", ("</answer>",) * NOT_AGAIN + (f" {groups.MARK}",))]
            ending = ("</answer>",) * NOT_AGAIN + (f" {groups.MARK}",)
            pieces.append((f" {groups.MARK}", True if left else ending))
            now = now if again else left.pop(0)
            pieces += self.section(kind, now, level, named)

    def section(self, kind: str, source: Source, level: int, named: tuple[str, ...]) -> Row:
        """The stops of one person in any order."""
        text = f" {groups.section(kind, source, self.shuffled(range(level)))}"
        head, name, rest = text.partition(f" {source.subject}")
        pieces: Row = [(head, True)] if head else []
        return [*pieces, (name, named), *by_ordinals(rest, ORDINALS[:level])]

    def short(self) -> Row:
        """A short question by search."""
        group = self.group()
        people = self.rng.sample(group, self.rng.choice((1, 1, 2)))
        asked = [(source, self.rng.randrange(len(source.steps))) for source in people]
        question = groups.short_question(asked, "train")
        pieces: Row = []
        for source in people:
            pieces.append((f"<think> {source.subject}", True))
            pieces += self.searching(source)
        facts = [ladder.fact(*stop) for stop in asked]
        stops = " ".join(fact.split()[-1] for fact in facts)
        text = f"<think> {' '.join(facts)}</think><answer> {stops}</answer>"
        pieces.append((text, True))
        return turn(prompts.search(question, "plain"), *pieces)

    # --- the challenger

    def ask(self) -> Row:
        """A task on a document, after as many searches as it is told to make."""
        group = self.group()
        searches = self.rng.randint(1, SIZE - READ)
        kind = self.kind()
        people = group[: READ + searches]
        pieces: Row = []
        for source in people[READ:]:
            pieces.append((f"<think> {source.subject}", True))
            pieces += self.searching(source)
        level = self.rng.randint(1, self.cap)
        pieces += [("<think>", True), *self.counted(level), ("<task>", True)]
        prompt = prompts.ask_report(self.document(group), kind, searches)
        return turn(prompt, *pieces, (f" {self.asked_for(kind, people, level)}</task>", True))

    def counted(self, level: int) -> Row:
        """The steps named one by one; to stop is as likely as to go on, or as the recipe says."""
        row: Row = [(f" {NUMBERS[0]}", True)]
        for place in range(1, level + 1):
            further = [f" {NUMBERS[place]}"] * self.further(place, self.cap)
            word = f" {NUMBERS[place]}" if place < level else "</think>"
            row.append((word, ("</think>", *further)))
        return row

    def asked_for(self, kind: str, people: Sequence[Source], level: int) -> str:
        """The task; now and then it names nobody, or is on others."""
        subjects = [source.subject for source in people]
        draw = self.rng.random()
        if draw < ASTRAY:
            subjects = [groups.WORDS["unnamed"]]
        elif draw < 2 * ASTRAY:
            subjects = self.rng.sample(names("person", self.pool()), len(people))
        frame = self.rng.choice(TYPES[kind]["questions"]["train"])
        return groups.question(kind, subjects, level, frame)

    # --- the judge

    def rubric(self) -> Row:
        """A section for each person of a task, in the right order."""
        group = self.group()
        kind = self.kind()
        people = group[: READ + self.rng.randint(1, SIZE - READ)]
        level = self.level()
        text = self.text(kind, [source.subject for source in people], level)
        read = [self.document(group), *(self.passage(source) for source in people[READ:])]
        points = groups.points(kind, people, level)
        listed = "".join(ladder.tag("rubric", point) for point in points)
        return turn(prompts.rubric(text, read), (listed, True))

    def grade(self) -> Row:
        """Whether a report states a point: the point as far as a section has it, what that has
        instead, and the verdict."""
        kind = self.kind()
        level = self.level()
        people = self.some(self.group())
        orders = [groups.in_order(kind, level)] * 2
        told = []
        for source in people:
            for _ in range(1 + (self.rng.random() < 1 / NOT_AGAIN)):
                order = self.rng.choice([*orders, self.near(orders[0]), self.shuffled(orders[0])])
                told.append(groups.section(kind, source, order))
        source = self.rng.choice(people)
        (point,) = groups.points(kind, [source], level)
        if self.rng.random() < UNTOLD:
            told = [part for part in told if source.subject not in part] or [DONE]
        own = [part.split() for part in told if source.subject in part]
        wanted = point.split()
        best = max(own, key=lambda words: agreement(wanted, words), default=[NOTHING])
        thought = " ".join(corrected_text(wanted, best)) if own else NOTHING
        verdict = prompts.YES if point in told else prompts.NO
        return self.verdict(prompts.grade(groups.report(told), point), thought, verdict)

    def near(self, order: Sequence[int]) -> list[int]:
        """An order with two neighbours exchanged, where there are two."""
        changed = list(order)
        if len(changed) > 1:
            at = self.rng.randrange(len(changed) - 1)
            changed[at : at + 2] = changed[at : at + 2][::-1]
        return changed

    def gate(self) -> Row:
        """Whether a task names somebody, and whether they are in a document."""
        group = self.group()
        kind = self.kind()
        level = self.level()
        draw = self.rng.random()
        subjects = [source.subject for source in group[: READ + self.rng.randint(1, SIZE - READ)]]
        if draw < 1 / 3:
            subjects = [groups.WORDS["unnamed"]]
        elif draw < 2 / 3:
            subjects = self.rng.sample(names("person", self.pool()), len(subjects))
        text = self.text(kind, subjects, level)
        named = prompts.YES if draw >= 1 / 3 else prompts.NO
        if self.rng.random() < 1 / 2:
            return self.verdict(prompts.identifiable(text), subjects[0], named)
        members = {source.subject for source in group}
        about = prompts.YES if {*subjects} <= members else prompts.NO
        thought = f"{group[0].subject} {subjects[0]}"
        return self.verdict(prompts.relevant(self.document(group), text), thought, about)

    def verdict(self, prompt: Messages, thought: str, said: str) -> Row:
        """A thought, and yes or no."""
        text: Segment = (f"<think> {thought}</think><answer> {said}</answer>", True)
        return turn(prompt, text)


def agreement(wanted: Sequence[str], words: Sequence[str]) -> int:
    """How many words two texts share from their beginning on."""
    pairs = zip(wanted, words, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(wanted), len(words)))
