"""Demonstrations for the embedded policy: legal but unskilled play, with a short remark before the
action.

Every demonstrator plays at random, whatever it has just remarked: uniformly over the legal moves;
in negotiation it draws whether to offer, accept, deny or chat and what to offer, without a look at
any value. The text teaches a policy to read a game, to say true things about it and to answer in
the format, and nothing about good play. So what a policy gains by self-play afterwards is visible,
and none of it was demonstrated.

A third of the answers has no remark, a third a short one, a third a full one. Two more games, poker
by TextArena's rules and a larger board, are shown without remarks.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from spnb.games import Game, Match, make_game
from spnb.games.negotiation import NEGOTIATION, position
from spnb.games.play import random_action
from spnb.games.questions import completing_cells, questions
from spnb.games.text import messages
from spnb.recipe.negotiation import negotiation_remark

KUHN, TICTACTOE, TICTACTOE_PLAIN = "kuhn_poker", "TicTacToe-v0", "tic_tac_toe"
OTHER_POKER, LARGE_BOARD = "KuhnPoker-v0-short", "TicTacToe-v0-5x5"
"""Shown without remarks: who cannot read them forfeits every match, and nothing about skill is
measured."""
QUESTION_SHARE = 0.4
GAME_SHARES = {
    **{TICTACTOE: 0.38, KUHN: 0.34, NEGOTIATION: 0.14, TICTACTOE_PLAIN: 0.08},
    **{OTHER_POKER: 0.04, LARGE_BOARD: 0.02},
}
POOL = 4096
RANKS = {"J": "lowest", "Q": "middle", "K": "highest"}


@dataclass(frozen=True)
class Demo:
    """One prompt as chat messages and one answer."""

    source: str
    messages: list[dict[str, str]]
    answer: str


def kuhn_remark(match: Match, detail: int) -> str:
    """What the seat to move in Kuhn poker knows: its card (detail 1) and what a showdown may cost
    (detail 2)."""
    card = "JQK"[match.state.history()[match.player]]  # type: ignore[attr-defined]
    remark = f"My card is {card}, the {RANKS[card]}."
    if detail == 2:
        facing_bet = "call" in match.legal_actions()
        remark += (
            " A fold loses 1, a call risks 2." if facing_bet else " A check risks 1, a bet risks 2."
        )
    return remark


def board_of(match: Match) -> list[str]:
    """Nine cells, "." where free, else the number (0, 1) of the seat that took it."""
    cells = ["."] * 9
    for turn, action in enumerate(match.history):
        cells[int(action)] = str(turn % 2)
    return cells


def tictactoe_remark(match: Match, detail: int) -> str:
    """True words on a board: who can complete a line where (detail 1), after both sides' cells
    (detail 2)."""
    cells, seat = board_of(match), match.player
    mine, theirs = str(seat), str(1 - seat)
    wins, threats = completing_cells(cells, mine), completing_cells(cells, theirs)
    parts = []
    if detail == 2:
        parts += [
            f"{who} {' '.join(str(i) for i in range(9) if cells[i] == mark) or 'none'}."
            for who, mark in (("Mine:", mine), ("Theirs:", theirs))
        ]
    if wins:
        parts.append(f"I can win at {wins[0]}.")
    elif threats:
        parts.append(f"They can win at {threats[0]}.")
    else:
        parts.append("No line is open.")
    return " ".join(parts)


REMARKS: dict[str, Callable[[Match, int], str]] = {
    KUHN: kuhn_remark,
    TICTACTOE: tictactoe_remark,
    TICTACTOE_PLAIN: tictactoe_remark,
    NEGOTIATION: lambda match, detail: negotiation_remark(position(match), detail),
}


def answer_text(match: Match, detail: int, action: str) -> str:
    """An answer of the seat to move: a true remark (detail 0: none, 1: short, 2: full), then the
    move in its box.

    Games outside of `REMARKS` have none.
    """
    remark = REMARKS[match.name](match, detail) + " " if detail and match.name in REMARKS else ""
    return f"{remark}\\boxed{{{action}}}"


def game_demos(game: Game, rng: random.Random) -> Iterator[Demo]:
    """Both seats' turns of one random match, each a demonstration."""
    match = game.match(rng.getrandbits(32))
    while match.player is not None:
        action = random_action(match, rng)
        yield Demo(game.name, messages(match), answer_text(match, rng.randrange(3), action))
        match.play(action)


def demos(seed: int, shares: Mapping[str, float] = GAME_SHARES) -> Iterator[Demo]:
    """An endless stream of demonstrations, whole matches and questions shuffled in pools; the same
    for the same seed.

    `QUESTION_SHARE` and `shares` (by game) count draws; a match of tic-tac-toe has seven turns or
    so, one of poker two (of TextArena's poker eleven), one of negotiation eleven, one on the larger
    board up to 25.
    """
    rng = random.Random(seed)
    games = {name: make_game(name) for name in shares}
    names, weights = list(shares), list(shares.values())
    while True:
        pool: list[Demo] = []
        while len(pool) < POOL:
            if rng.random() < QUESTION_SHARE:
                question = rng.choice(questions(4, rng.getrandbits(32)))
                answer = f"\\boxed{{{question.answer}}}"
                pool.append(Demo("question", [{"role": "user", "content": question.text}], answer))
            else:
                pool.extend(game_demos(games[rng.choices(names, weights)[0]], rng))
        rng.shuffle(pool)
        yield from pool
