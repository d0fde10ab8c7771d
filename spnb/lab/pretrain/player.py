"""What a player is shown: it answers on the ladders, by search too, and plays SPIRAL's games.

On the ladder it takes the steps of a journey or a report in order. A count it works out in its
thoughts at times, else it states it at once; the end of a chain it looks up by search at times,
else it guesses. So thinking and searching are known and not relied upon: what reinforcement
learning can add is to do them. Games are played as in `spnb.lab.pretrain.demos`: by the rules,
without skill.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerFast

from spnb.core.types import Task
from spnb.games import make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.lab import ladder
from spnb.lab.chain import CHAIN, queries
from spnb.lab.ladder import WORLDS
from spnb.lab.pretrain import build as games
from spnb.lab.pretrain import demos
from spnb.lab.pretrain.demos import KUHN, TICTACTOE, TICTACTOE_PLAIN, Demo
from spnb.lab.pretrain.ladder_lessons import Lessons
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import Row, Segment, turn
from spnb.lab.pretrain.searcher import Searching
from spnb.lab.pretrain.vocabulary import ladder_tokenizer

OPENINGS = ("<think>", "<think>", "<answer>", "<answer>", "<answer>")
"""What an answer begins with where it may think or search first: two times in five it does."""
NEGOTIATION_SHARE = 0.3
OTHER_GAME_SHARES = {TICTACTOE: 0.5, KUHN: 0.4, TICTACTOE_PLAIN: 0.1}
"""Negotiation's share of the game turns, and what the other games' demonstrations are made of."""
SHORTEST_PHRASE = 12
"""Characters of the games' fixed phrases that become one token each."""


def game_demos(seed: int) -> Iterator[Demo]:
    """Endless turns of the three games in legal, unskilled play, and questions about boards."""
    rng = random.Random(seed)
    others = demos.demos(seed, OTHER_GAME_SHARES)
    game = make_game(NEGOTIATION)
    trades = (demo for _ in itertools.count() for demo in demos.game_demos(game, rng))
    while True:
        yield next(trades if rng.random() < NEGOTIATION_SHARE else others)


class Playing(Lessons):
    """Rows of one player."""

    most = CHAIN.highest

    def __init__(self, recipe: LearnerRecipe):
        super().__init__(recipe)
        self.chains = Searching(recipe)
        self.chains.rng = self.rng
        self.demos = game_demos(recipe.seed)
        self.drills.append(self.chains.drill)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The ladder's tokens, and the games' fixed phrases."""
        texts = games.demo_texts(game_demos(self.recipe.seed))
        phrases = [text for text in games.phrases(texts, 20) if len(text) >= SHORTEST_PHRASE]
        return ladder_tokenizer(self.recipe.vocabulary, further=texts, phrases=phrases)

    def level(self, highest: int = 0) -> int:
        """Any level: the low ones are those that can be answered at once."""
        return self.rng.randint(1, highest or self.cap)

    def answer(self) -> Row:
        """A question answered right: a count worked out first or not, steps told in order."""
        task = self.task()
        text = ladder.reply(task, range(task.info["level"]))
        if WORLDS[task.info["family"]] == "journey":
            return turn(task.messages, (text, True))
        opening = self.rng.choice(OPENINGS)
        worked = text if opening == "<think>" else ladder.tag("answer", task.gold[0])
        return opened(task, worked)

    def search(self) -> Row:
        """A question about a chain: its relations followed in order by search, or a guess."""
        self.chains.progress = self.progress
        links = self.chains.links()
        task = self.chains.question_of(links)
        if self.rng.choice(OPENINGS) == "<answer>":
            return opened(task, ladder.tag("answer", self.chains.person(links)))
        order = range(task.info["level"])
        turns, answer = CHAIN.reply(task, order)
        results = [self.chains.results(links, *query) for query in queries(task, order)]
        pieces: Row = []
        for told, text in zip(results, [*turns[1:], answer], strict=True):
            pieces += [(told, False), (text, True)]
        return opened(task, turns[0], pieces)

    def game(self) -> Row:
        """A turn of a game, or a question about one."""
        demo = next(self.demos)
        return turn(demo.messages, (demo.answer, True))


def opened(task: Task, text: str, further: Sequence[Segment] = ()) -> Row:
    """A turn whose first tag is drawn from the openings."""
    opening = next(one for one in OPENINGS if text.startswith(one))
    rest = text.removeprefix(opening)
    return turn(task.messages, (opening, OPENINGS), (rest, True), *further)
