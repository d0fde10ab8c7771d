"""Two-player text games: OpenSpiel by short name, TextArena by id."""

import difflib

from spnb.core.plugins import REGISTERED
from spnb.games.base import Game, InvalidAction, Match, match_at

__all__ = ["TESTED", "Game", "InvalidAction", "Match", "make_game", "match_at"]

TESTED = (
    *("kuhn_poker", "tic_tac_toe", "TicTacToe-v0", "SimpleNegotiation-v0"),
    *("KuhnPoker-v0", "KuhnPoker-v0-short", "KuhnPoker-v1"),  # other rules
    *("kuhn_poker_5cards", "SimpleNegotiation-v0-8resources"),  # larger, as the two boards
    *("tic_tac_toe_5x5", "TicTacToe-v0-5x5"),
    *("Snake-v0", "PigDice-v0", "PigDice-v0-50", "TruthAndDeception-v0"),  # unseen in training
)
"""Names with tests of their own."""
VERSION = "-v"
"""What every TextArena id has: a name without it is refused before TextArena's slow import."""


def make_game(name: str) -> Game:
    """The game of an OpenSpiel short name, a TextArena id, one of either's `VARIANTS`, or one that
    was registered (`spnb.core.plugins`).

    OpenSpiel parameters may follow in its own notation ("connect_four(rows=4)").

    Raises:
        ValueError: neither library has the name, or it is no zero-sum game for two.
    """
    from spnb.games import openspiel

    if name in REGISTERED["game"]:
        return REGISTERED["game"][name]()
    if name.split("(")[0] in openspiel.names():
        return openspiel.OpenSpielGame(name)
    known = [*TESTED, *REGISTERED["game"], *openspiel.names()]
    if VERSION in name:
        from spnb.games import textarena

        if name in textarena.names():
            return textarena.TextArenaGame(name)
        known += textarena.names()
    near = difflib.get_close_matches(name, dict.fromkeys(known), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    allowed = f"{', '.join(TESTED)} (tested), any other OpenSpiel short name or TextArena id"
    raise ValueError(f"game is {name!r}; allowed: {allowed}{hint}")
