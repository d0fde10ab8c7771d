"""Demonstrations for policies that play games: legal but unskilled play, with remarks.

Every demonstrator plays at random (`random_action`), whatever it has just remarked. The text
teaches a policy to read a game, to say true things about it and to answer in the format, and
nothing about good play: what self-play gains afterwards was never demonstrated. A third of the
answers has no remark, a third a short one, a third a full one.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spnb.core.types import Messages
from spnb.games import Game, make_game
from spnb.games.base import messages
from spnb.games.demonstrations import answer_text
from spnb.games.negotiation import NEGOTIATION
from spnb.games.players import random_action
from spnb.games.questions import questions

KUHN = "kuhn_poker"
TICTACTOE = "TicTacToe-v0"
TICTACTOE_PLAIN = "tic_tac_toe"
OTHER_POKER = "KuhnPoker-v0-short"
LARGE_BOARD = "TicTacToe-v0-5x5"
"""Shown without remarks: a policy that cannot read them forfeits every match, and nothing about
skill is measured."""
QUESTION_SHARE = 0.4
GAME_SHARES = {
    **{TICTACTOE: 0.38, KUHN: 0.34, NEGOTIATION: 0.14, TICTACTOE_PLAIN: 0.08},
    **{OTHER_POKER: 0.04, LARGE_BOARD: 0.02},
}
POOL = 4096


@dataclass(frozen=True)
class Demo:
    """One prompt as chat messages and one answer; `source` is the game, or "question"."""

    source: str
    messages: Messages
    answer: str


def game_demos(game: Game, rng: random.Random) -> Iterator[Demo]:
    """Both seats' turns of one random match, each a demonstration."""
    match = game.match(rng.getrandbits(32))
    while match.player is not None:
        action = random_action(match, rng)
        yield Demo(game.name, messages(match), answer_text(match, rng.randrange(3), action))
        match.play(action)


def demos(seed: int, shares: Mapping[str, float] = GAME_SHARES) -> Iterator[Demo]:
    """An endless stream of whole matches and questions shuffled in pools; the same for a seed.

    `QUESTION_SHARE` and `shares` (by game) count draws; a match of tic-tac-toe has about seven
    turns, of Kuhn poker two (TextArena's: eleven), of negotiation eleven, on the larger board 25.
    """
    rng = random.Random(seed)
    games = {name: make_game(name) for name in shares}
    while True:
        pool: list[Demo] = []
        while len(pool) < POOL:
            if rng.random() < QUESTION_SHARE:
                question = rng.choice(questions(4, rng.getrandbits(32)))
                pool.append(Demo("question", question.messages, f"\\boxed{{{question.gold[0]}}}"))
            else:
                (name,) = rng.choices(list(shares), list(shares.values()))
                pool.extend(game_demos(games[name], rng))
        rng.shuffle(pool)
        yield from pool
