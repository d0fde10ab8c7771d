"""What a searcher is shown: to answer and to ask by search, in any order.

As `spnb.lab.pretrain.ladder_lessons`, for the chain of `spnb.lab.chain`; relations are new in
every lesson.
"""

from collections.abc import Sequence

from spnb.core import prompts
from spnb.core.types import Task
from spnb.lab import ladder
from spnb.lab.chain import CHAIN, Links, before, follow, queries
from spnb.lab.ladder import ORDINALS
from spnb.lab.pretrain.ladder_lessons import Lessons
from spnb.lab.pretrain.rows import Row, by_ordinals, turn

OTHERS = 2
"""Sentences beside those that a question takes."""


class Searching(Lessons):
    """Rows of one searcher."""

    chains = CHAIN
    most = CHAIN.highest

    def drill(self) -> Row:
        """Sentences, and then in turn who is what to somebody, and to whom somebody is it."""
        links = self.links()
        pairs = []
        row: Row = [("", False)]
        for relation, person in self.rng.sample(list(links), 8):
            row[0] = (f"{row[0][0]} {self.chains.fact(links, relation, person)}", False)
            other = links[relation, person]
            pairs.append((f" {person} {relation}", f" {other}"))
            pairs.append((f" {relation} {other}", f" {person}"))
        for key, name in self.shuffled(pairs):
            row += [(key, False), (name, True), (".", False)]
        return row

    def answer(self) -> Row:
        """A question answered by search, the relations followed in any order."""
        return self.answer_to(self.question_of(self.links()))

    def answer_to(self, task: Task) -> Row:
        """This question answered by search."""
        level = task.info["level"]
        order = self.shuffled(range(level))
        turns, answer = self.chains.reply(task, order)
        pieces: Row = []
        for done, (text, query) in enumerate(zip(turns, queries(task, order), strict=True)):
            pieces += by_ordinals(text, [ORDINALS[place] for place in sorted(order[done:])])
            pieces.append((self.results(task.info["links"], *query), False))
        return turn(task.messages, *pieces, (answer, True))

    def question_of(self, links: Links) -> Task:
        """A question of any level in a wording of training."""
        start = self.person(links)
        relations = self.rng.sample(self.chains.relations, self.level())
        frame = self.question_frame(self.chains.words["questions"], ["{e}", "{s}"])
        text = self.chains.pose(start, relations, self.rng, frame)
        return self.chains.make_task(text, start, relations, links)

    def person(self, links: Links) -> str:
        """Anybody whom the relations know."""
        first = self.chains.relations[0]
        return self.rng.choice([person for relation, person in links if relation == first])

    def results(self, links: Links, relation: str, person: str) -> str:
        """What a search returns, in any order."""
        others = [person, before(links, relation, person)]
        facts = [self.chains.fact(links, relation, other) for other in others]
        return prompts.information(self.shuffled(facts))

    def ask(self) -> Row:
        """A question whose answer is given: back from it by search, as far as the recipe says."""
        links = self.links()
        passed = [self.person(links)]
        relations = self.rng.sample(self.chains.relations, self.depth())
        pieces: Row = []
        for place, relation in enumerate(relations):
            ending = ("<question>", *["<search>"] * self.further(place, self.cap))
            left = tuple(f" {one}" for one in self.chains.relations if one not in relations[:place])
            rest = self.chains.query(relation, passed[-1]).removeprefix(relation)
            pieces.append(("<search>", ending if place else True))
            pieces += [(f" {relation}", left), (f"{rest}</search>", True)]
            pieces.append((self.results(links, relation, passed[-1]), False))
            passed.append(before(links, relation, passed[-1]))
        ending = ("<question>", *["<search>"] * self.further(len(relations), self.cap))
        pieces.append(("<question>", ending))
        steps = list(zip(ORDINALS, reversed(relations), strict=False))
        frame = self.rng.choice(self.chains.words["questions"]["train"])
        text = self.chains.question(self.begin(links, passed), steps, frame)
        return turn(prompts.ask_search(passed[0]), *pieces, (f" {text}</question>", True))

    def depth(self) -> int:
        """How far back a question goes."""
        return self.asked(self.cap)

    def begin(self, links: Links, passed: Sequence[str]) -> str:
        """What a question starts at whose proposer went back from the first of `passed` to the
        last."""
        return self.start(links, passed[-1])

    def start(self, links: Links, person: str) -> str:
        """How a question names who it starts at."""
        return person

    def told(self) -> Row:
        """A question answered from the sentences that its chain takes, among others."""
        links = self.links()
        task = self.question_of(links)
        documents = [*task.info["documents"]]
        documents += [self.chains.fact(links, *key) for key in self.rng.sample(list(links), OTHERS)]
        relations = task.info["relations"]
        reached = follow(links, task.info["start"], relations)
        told = map(" ".join, zip(ORDINALS, relations, reached, strict=False))
        text = ladder.tag("think", " ".join(told)) + ladder.tag("answer", reached[-1])
        messages = prompts.answer(task.question, self.shuffled(documents), "plain")
        return turn(messages, (text, True))

    def links(self) -> Links:
        """Relations of one row."""
        return self.chains.draw_links(self.rng, self.pool())
