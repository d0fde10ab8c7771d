"""Two-player text games behind one interface: OpenSpiel by short name, TextArena by id.

A `Game` deals a `Match` from a seed; a match shows text to the seat that moves and takes its action
as text. Rules come from the libraries, text from this package, and every match owns its random
generator, so matches can be interleaved in any order without changing each other's deals.
"""

import difflib
from collections.abc import Sequence
from typing import Protocol

TESTED = (
    *(
        "kuhn_poker",
        "tic_tac_toe",
        "TicTacToe-v0",
        "KuhnPoker-v0",
        "KuhnPoker-v0-short",
        "KuhnPoker-v1",
    ),
    *("SimpleNegotiation-v0", "kuhn_poker_5cards", "tic_tac_toe_5x5", "TicTacToe-v0-5x5"),
    *(
        "SimpleNegotiation-v0-8resources",
        "Snake-v0",
        "PigDice-v0",
        "PigDice-v0-50",
        "TruthAndDeception-v0",
    ),
)
"""Names with tests of their own: training games, other rules for poker, larger variants, unseen
games."""


class InvalidAction(ValueError):
    """An action that the rules do not allow where it was played."""


class Match(Protocol):
    """One deal of a game, from the first move to the result.

    `player` is the seat to move (0 or 1), None when the match is over. `history` lists the actions
    so far, chance left out.
    """

    name: str
    history: list[str]

    @property
    def player(self) -> int | None:
        """The seat to move, None when the match is over."""
        ...

    def observation(self) -> str:
        """What the seat to move reads: rules, its private state, the public state, the legal
        moves."""
        ...

    def legal_actions(self) -> list[str] | None:
        """The moves allowed now; None where any text may be one."""
        ...

    def play(self, action: str) -> None:
        """Plays one move. Raises InvalidAction; where a legal list exists the match is unchanged
        then."""
        ...

    def returns(self) -> tuple[float, float]:
        """Zero-sum utilities by seat in [-1, 1], as shares of the largest possible payoff; only
        when over."""
        ...


class Game(Protocol):
    """A set of rules that deals matches. `deterministic` says that there is no chance in it, not
    even the deal."""

    name: str
    deterministic: bool

    def match(self, seed: int) -> Match:
        """A new match; equal seeds give equal deals."""
        ...


def make_game(name: str) -> Game:
    """The game of that name: an OpenSpiel short name ("kuhn_poker") or a TextArena id
    ("TicTacToe-v0").

    OpenSpiel parameters may follow in its own notation ("connect_four(rows=4)"). Names of our own
    stand among both: `VARIANTS` in `spnb.games.openspiel` and in `spnb.games.variants`.

    Raises:
        ValueError: neither library has the name, or the game is not a zero-sum game for two who
            move in turn.
    """
    from spnb.games import openspiel

    if openspiel.has(name):
        return openspiel.OpenSpielGame(name)
    from spnb.games import textarena

    if textarena.has(name):
        return textarena.TextArenaGame(name)
    near = difflib.get_close_matches(name, [*openspiel.names(), *textarena.names()], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(
        f"game is {name!r}; allowed: {', '.join(TESTED)} (tested), any other OpenSpiel short name or TextArena id{hint}"
    )


def match_at(game: Game, history: Sequence[str]) -> Match:
    """A match of a deterministic game after the given actions, to ask a player about one chosen
    position.

    Raises:
        ValueError: the game has chance in it, so that actions alone do not fix a position.
        InvalidAction: an action in `history` is not legal where it stands.
    """
    if not game.deterministic:
        raise ValueError(
            f"game {game.name!r} has chance in it; a position needs more than a list of actions"
        )
    match = game.match(seed=0)
    for action in history:
        match.play(action)
    return match
