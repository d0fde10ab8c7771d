"""Two-player text games behind one interface, a turn's prompt, the rule for invalid answers.

Every match owns its random generator, so matches can be interleaved in any order.

An answer without a legal action is invalid and ends the match: that seat gets -INVALID_PENALTY and
the other +INVALID_PENALTY. This is zero-sum and worse than the worst legal loss (-1), so that
breaking the format never pays. (SPIRAL's code gives -1.5 and +0.5, which is not zero-sum.)
"""

import re
from collections.abc import Sequence
from typing import Protocol

from spnb.core.grading import extract_boxed
from spnb.core.types import Messages

INVALID_PENALTY = 1.5
FREE_TEXT_WORDS = 100
FREE_TEXT_CHARACTERS = 400
"""A longer free-text action is invalid: it would stand in every later prompt of the match."""

OPENING = "You are playing a two-player zero-sum game; play to win."
CLOSING = "Reason step by step, then give your move inside \\boxed{}."


class InvalidAction(ValueError):
    """An action that the rules do not allow where it was played."""


class Match(Protocol):
    """One deal of a game; `history` lists the actions so far, chance left out."""

    name: str
    history: list[str]

    @property
    def player(self) -> int | None:
        """The seat to move (0 or 1), None when the match is over."""

    def observation(self) -> str:
        """What the seat to move reads: rules, its private state, public state, legal moves."""

    def legal_actions(self) -> list[str] | None:
        """The moves allowed now; None where any text may be one, empty when the match is over."""

    def play(self, action: str) -> None:
        """Plays one move.

        Raises:
            InvalidAction: the move is not legal; where a legal list exists the match is unchanged.
        """

    def returns(self) -> tuple[float, float]:
        """Zero-sum utilities by seat, as shares of the largest possible payoff; only when over."""


class Game(Protocol):
    """Rules that deal matches; `deterministic` says that not even the deal has chance in it."""

    name: str
    deterministic: bool

    def match(self, seed: int) -> Match:
        """A new match; equal seeds give equal deals."""


def match_at(game: Game, history: Sequence[str]) -> Match:
    """A match of a deterministic game after the actions in `history`.

    Raises:
        ValueError: the game has chance in it, so that actions alone do not fix a position.
        InvalidAction: an action is not legal where it stands.
    """
    if not game.deterministic:
        raise ValueError(f"game {game.name!r} has chance in it; actions alone fix no position")
    match = game.match(seed=0)
    for action in history:
        match.play(action)
    return match


def messages(match: Match) -> Messages:
    """The prompt of the seat to move, one user message: opening, observation, what to answer."""
    return [{"role": "user", "content": f"{OPENING}\n\n{match.observation()}\n\n{CLOSING}"}]


def sent(action: str) -> str:
    """An action as TextArena reads it: in square brackets."""
    return action if "[" in action else f"[{action}]"


def parse_action(text: str, legal: Sequence[str] | None) -> str | None:
    """The action in the last box of an answer, in its legal spelling; None if it is not legal.

    Case, outer square brackets and extra spaces do not matter. In a free-text game (`legal` None)
    the boxed text itself is the action, None if it is empty or too long.
    """
    boxed = extract_boxed(text)
    if not boxed:
        return None
    if legal is not None:
        if boxed in legal:  # two moves may differ in case alone
            return boxed
        return {_plain(action): action for action in legal}.get(_plain(boxed))
    too_long = len(boxed) > FREE_TEXT_CHARACTERS or len(boxed.split()) > FREE_TEXT_WORDS
    return None if too_long else boxed


def _plain(action: str) -> str:
    """Lower case, one space between words, no outer brackets."""
    bare = re.sub(r"(?s)\A\[(.*)\]\Z", r"\1", action.strip())
    return " ".join(bare.split()).casefold()
