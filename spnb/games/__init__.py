"""Two-player text games: OpenSpiel by short name, TextArena by id, those of plugins by theirs."""

import difflib
import math
import random
from collections.abc import Callable

from spnb.core import plugins
from spnb.core.plugins import PluginError
from spnb.games.base import Game, InvalidAction, Match, match_at

__all__ = ["TESTED", "Game", "InvalidAction", "Match", "make_game", "match_at", "register_game"]

TESTED = (
    *("kuhn_poker", "tic_tac_toe", "TicTacToe-v0", "SimpleNegotiation-v0"),
    *("KuhnPoker-v0", "KuhnPoker-v0-short", "KuhnPoker-v1"),  # other rules
    *("kuhn_poker_5cards", "SimpleNegotiation-v0-8resources"),  # larger, as the two boards
    "TicTacToe-v0-5x5",
    *("Snake-v0", "PigDice-v0", "PigDice-v0-50", "TruthAndDeception-v0"),  # unseen in training
)
"""Names with tests of their own."""
TRIED = 3
"""Matches in which a new game is tried."""
MOST_MOVES = 1000
"""Of a match that is tried."""


def make_game(name: str) -> Game:
    """The game of an OpenSpiel short name, a TextArena id, one of either's `VARIANTS`, or one that
    a plugin registered.

    OpenSpiel parameters may follow in its own notation ("connect_four(rows=4)").

    Raises:
        ValueError: nothing has the name, or it is no zero-sum game for two.
    """
    from spnb.games import openspiel

    if make := plugins.find("game", name):
        return make()
    if name.split("(")[0] in openspiel.names():
        return openspiel.OpenSpielGame(name)
    own = plugins.names("game")
    known = [*TESTED, *own, *openspiel.names()]
    if "-v" in name:  # every id has it, and TextArena's import is slow
        from spnb.games import textarena

        if name in textarena.names():
            return textarena.TextArenaGame(name)
        known += textarena.names()
    near = difflib.get_close_matches(name, dict.fromkeys(known), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    named = ", ".join([f"{', '.join(TESTED)} (tested)", *own])
    allowed = f"{named}, any other OpenSpiel short name or TextArena id"
    raise ValueError(f"game is {name!r}; allowed: {allowed}{hint}")


def register_game(name: str, make: Callable[[], Game]) -> None:
    """A zero-sum game for two, which `games` names; `make`, a class or a function, makes it.

    It is tried in a few random matches.

    Raises:
        PluginError: the name is taken, or the game is not one for two, zero-sum, with an end.
    """
    from spnb.games import openspiel

    if name in openspiel.names():
        raise PluginError(f"game is {name!r}, which OpenSpiel has; allowed: another name")
    for seed in range(TRIED):
        _try_game(name, make(), seed)
    plugins.register("game", name, make)


def _try_game(name: str, game: Game, seed: int) -> None:
    """Plays a match at random, as far as moves are listed; PluginError for what it gets wrong."""

    def need(holds: bool, what: str, value: object, allowed: str) -> None:
        if not holds:
            shown = f"{value!r:.80}"
            raise PluginError(f"{what} of game {name!r} is {shown}; allowed: {allowed}")

    match = game.match(seed)
    need(game.name == match.name == name, "name", (game.name, match.name), f"{name!r} twice")
    need(isinstance(game.deterministic, bool), "deterministic", game.deterministic, "True or False")
    rng = random.Random(seed)
    for _ in range(MOST_MOVES):
        if match.player is None:
            break
        need(match.player in (0, 1), "player", match.player, "0, 1, or None at the end")
        legal = match.legal_actions()
        texts = legal is None or (legal and all(isinstance(move, str) for move in legal))
        need(bool(texts), "legal_actions", legal, "moves as text, None where any text is one")
        text = match.observation()
        need(isinstance(text, str), "observation", text, "text")
        if legal is None:
            return
        match.play(rng.choice(legal))
    need(match.player is None, "end", None, f"within {MOST_MOVES} random moves")
    first, second = returns = match.returns()
    zero_sum = math.isfinite(first) and abs(first + second) < 1e-9 and abs(first) <= 1
    need(zero_sum, "returns", returns, "two numbers from -1 to 1 whose sum is 0")
