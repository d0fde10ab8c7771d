"""What a seeker is shown: a searcher's work in the world `QUEST`, and to check questions.

As `spnb.lab.pretrain.searcher`, with whose policy it begins, but for three things. A tenth of the
questions start at "somebody of" a town, which is SSP's own hack. Deep questions are drawn as often
as short ones; how often one stops is in the targets. And whoever checks a question reads what its
proposer found, in the order that the question tells, among noise: how many documents there are says
nothing of the level.
"""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerFast

from spnb.core import prompts
from spnb.lab import ladder
from spnb.lab.chain import CHAIN, QUEST, Links, follow
from spnb.lab.ladder import ORDINALS
from spnb.lab.pretrain.rows import END, Row, turn
from spnb.lab.pretrain.searcher import Searching
from spnb.lab.pretrain.vocabulary import POOLS, quest_tokenizer, with_tokens

PEOPLE = 40
"""Of the world of one row."""
TOWN_STARTS = 0.1
"""The share of questions that start at somebody of a town."""
MANY = 5
"""The fewest steps of a lesson on their order."""
NOISE = 10
"""The most sentences on others among those that a question is checked by."""
FALTERS = 0.25
"""The share of a faltering seeker's rows that start too early; its policy does so more often."""
BOTH = 0.7
"""The share of checks that have both sentences of each search, as a proposer finds them."""


class Seeking(Searching):
    """Rows of one seeker."""

    chains = QUEST
    most = QUEST.highest

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A token for each name, relation and ordinal."""
        return quest_tokenizer(self.recipe.vocabulary)

    def go_on(self, model: Any, tokenizer: Any) -> tuple[Any, Any]:
        """A searcher with a seeker's tokens: to match 384 names is not learned from nothing in
        eight million tokens, but what a searcher does with its 144 it does with other ones too."""
        people = [name for pool in POOLS for name in CHAIN.people(pool)]
        return with_tokens(model, tokenizer, self.tokenizer(), people)

    def recall(self) -> Row:
        """People and towns repeated, or pairs of which the second is asked for."""
        words = [*QUEST.people(self.pool()), *QUEST.towns(self.pool())]
        return self.copied(words) if self.rng.random() < 1 / 2 else self.paired(words)

    def links(self) -> Links:
        """Relations of one row."""
        pool = self.pool()
        return QUEST.draw_links(self.rng, pool, self.rng.sample(QUEST.people(pool), PEOPLE))

    def depth(self) -> int:
        """Any: the targets say how often a question stops."""
        return self.rng.randint(1, self.cap)

    def start(self, links: Links, person: str) -> str:
        """The person, or somebody of the town where they live."""
        by_town = self.rng.random() < TOWN_STARTS
        return QUEST.somebody(links.homes[person]) if by_town else person

    def answer(self) -> Row:
        """A question answered by search; one that names a town begins with a search for it."""
        if self.rng.random() > TOWN_STARTS:
            return super().answer()
        links = self.links()
        task = self.question_of(links)
        start = task.info["start"]
        town = QUEST.somebody(links.homes[start])
        question = task.question.replace(start, town)
        neighbours = [one for one, home in links.homes.items() if home == links.homes[start]]
        found = [self.fact_on(links, start), self.fact_on(links, self.rng.choice(neighbours))]
        first = (f"<search> {town}</search>", True)
        told = (prompts.information(self.shuffled(found)), False)
        row = self.answer_to(task)
        (prompt, _), *rest = turn(prompts.search(question, "plain"), first, told)
        return [(prompt, False), *rest[:2], *row[1:]]

    def order(self) -> Row:
        """Many steps as a question tells them, and the ordinals of an answer to it with their
        relations: that no ordinal comes twice is what takes longest to learn."""
        relations = self.rng.sample(QUEST.relations, self.rng.randint(MANY, QUEST.highest))
        start, *people = self.rng.sample(QUEST.people(self.pool()), 1 + len(relations))
        frame = self.question_frame(QUEST.words["questions"], ["{e}", "{s}"])
        row: Row = [(f" {QUEST.pose(start, relations, self.rng, frame)}", False)]
        places = self.shuffled(range(len(relations)))
        for done, place in enumerate(places):
            left = tuple(f" {ORDINALS[one]}" for one in sorted(places[done:]))
            row += [("<think>", False), (f" {ORDINALS[place]}", left), ("</think><search>", True)]
            row += [(f" {relations[place]}", True), (f" of {people[done]}</search>", False)]
        return [*row, ("<answer>", True), (END, False)]

    def told(self) -> Row:
        """A question checked by what its proposer found, among noise: who it starts at is named
        first. Of somebody of a town any resident in the documents may be meant; where a chain ends
        among the documents, the check ends."""
        links = self.links()
        start = self.person(links)
        relations = self.rng.sample(QUEST.relations, self.rng.randint(1, self.cap))
        subject = self.start(links, start)
        facts = self.found(links, start, relations)
        facts += self.rng.sample(list(links), self.rng.randint(0, NOISE))
        facts = self.shuffled(list(dict.fromkeys(facts)))
        steps = list(zip(ORDINALS, relations, strict=False))
        frame = self.question_frame(QUEST.words["questions"], ["{e}", "{s}"])
        question = QUEST.question(subject, steps, frame)
        residents = {person for _, person in facts if links.homes[person] == links.homes[start]}
        first = start if subject == start else self.rng.choice(sorted(residents))
        thought = [first]
        for relation in relations:
            if (relation, thought[-1]) not in facts:
                break
            thought += [relation, links[relation, thought[-1]]]
        named = True if subject == start else tuple(f" {person}" for person in sorted(residents))
        rest = "".join(f" {word}" for word in thought[1:])
        told = f"{rest}</think>" + ladder.tag("answer", thought[-1])
        documents = [QUEST.fact(links, *key) for key in facts]
        prompt = prompts.answer(question, documents, "plain")
        return turn(prompt, ("<think>", True), (f" {first}", named), (told, True))

    def found(self, links: Links, start: str, relations: Sequence[str]) -> list[tuple[str, str]]:
        """Relation and person of the sentences that a chain takes; mostly also of the other one of
        each search for it."""
        people = [start, *follow(links, start, relations)]
        keys = list(zip(relations, people, strict=False))
        if self.rng.random() < BOTH:
            keys += zip(relations, people[1:], strict=True)
        return keys

    def fact_on(self, links: Links, person: str) -> str:
        """Any sentence on a person."""
        return QUEST.fact(links, self.rng.choice(QUEST.relations), person)


class Faltering(Seeking):
    """Rows of a seeker about half of whose questions do not lead to their answer."""

    def begin(self, links: Links, passed: Sequence[str]) -> str:
        """Some questions start too early on the way back, or at their own answer."""
        falters = self.rng.random() < FALTERS
        return self.rng.choice(passed[:-1]) if falters else super().begin(links, passed)
