"""Who plays a match and what is recorded of it; the rule for invalid answers is stated in
`spnb.games.text`."""

import random
from dataclasses import dataclass
from typing import Literal, Protocol

from spnb.core.episodes import Episode
from spnb.core.types import Chat, Completion, Request, Sampling, derive_seed
from spnb.games import Game, InvalidAction, Match
from spnb.games.exact import kuhn_equilibrium, optimal_moves
from spnb.games.negotiation import greedy_action, is_negotiation, negotiation_action, position
from spnb.games.text import INVALID_PENALTY, messages, parse_action

Outcome = Literal["win", "draw", "loss", "invalid"]
Move = tuple[Request | None, Completion | None, str | None]
"""What a player was asked and answered (None for a scripted player), and its action (None if
invalid)."""

TICTACTOE_GAMES = ("tic_tac_toe", "TicTacToe-v0")
PLAYERS = ("policy", "random", "equilibrium", "minimax", "greedy")
CLAIMS = ("Fact 1 is correct.", "Fact 2 is correct.")
"""What random play says in TruthAndDeception before the guess."""


@dataclass
class Turn:
    """One move of one seat; `action` is None for an invalid answer, request and completion for a
    scripted player."""

    seat: int
    request: Request | None
    completion: Completion | None
    action: str | None


@dataclass
class Transcript:
    """One match from deal to result. `returns` are the utilities by seat, with the penalty if
    `invalid_seat` is set."""

    game: str
    seed: int
    turns: list[Turn]
    returns: tuple[float, float]
    invalid_seat: int | None = None

    def outcome(self, seat: int) -> Outcome:
        """The result for one seat; "invalid" if its own invalid answer ended the match (a "win" for
        the other seat)."""
        if seat == self.invalid_seat:
            return "invalid"
        utility = self.returns[seat]
        return "win" if utility > 0 else "loss" if utility < 0 else "draw"


class Player(Protocol):
    """Chooses moves. A player holds no state between moves, so one player can play many matches and
    both seats."""

    def move(self, match: Match, seed: int) -> Episode[Move]:
        """An episode that ends with the move of the seat to move. Raises ValueError in a game it
        does not fit."""
        ...


@dataclass(frozen=True)
class PolicyPlayer:
    """A model that reads the observation and answers in a box."""

    chat: Chat
    sampling: Sampling
    engine: str = "policy"

    def move(self, match: Match, seed: int) -> Episode[Move]:
        """Asks the engine once; an answer without a legal action gives the action None."""
        request = self.chat.request(messages(match), self.sampling, seed, self.engine)
        (completion,) = yield [request]
        return request, completion, parse_action(completion.text, match.legal_actions())


def plays_at_random(match: Match) -> bool:
    """Whether `random_action` knows what to play: a listed move, or words of a game that it has
    words for."""
    talks = is_negotiation(match.name) or match.name.startswith("TruthAndDeception")
    return talks or match.legal_actions() is not None


def random_action(match: Match, rng: random.Random) -> str:
    """A legal move, all equally likely; where words are moves, a random trade or a random claim.

    Raises:
        ValueError: a free-text game of another kind, which has nothing to draw from.
    """
    legal = match.legal_actions()
    if legal is not None:
        return rng.choice(legal)
    if is_negotiation(match.name):
        return negotiation_action(position(match), rng)
    if match.name.startswith("TruthAndDeception"):
        return rng.choice(CLAIMS)
    raise ValueError(
        f"player 'random' needs a list of legal actions; game {match.name!r} takes free text"
    )


class RandomPlayer:
    """Uniform over the legal actions; in negotiation legal random trading, as `random_action`
    says."""

    def move(self, match: Match, seed: int) -> Episode[Move]:
        """Draws from `seed`; ValueError in a free-text game that it knows nothing to say in."""
        yield from ()
        return None, None, random_action(match, random.Random(seed))


class KuhnEquilibriumPlayer:
    """Unexploitable Kuhn poker, from the family that `spnb.games.exact.kuhn_equilibrium`
    describes."""

    def __init__(self, alpha: float = 1 / 3):
        self.probabilities = kuhn_equilibrium(alpha)

    def move(self, match: Match, seed: int) -> Episode[Move]:
        """Draws pass or bet from the table; ValueError in any game but OpenSpiel's kuhn_poker."""
        yield from ()
        if match.name != "kuhn_poker":
            raise ValueError(f"player 'equilibrium' plays kuhn_poker; game is {match.name!r}")
        passing, betting = match.legal_actions()
        _, bet_share = self.probabilities[match.state.information_state_string()]
        return None, None, betting if random.Random(seed).random() < bet_share else passing


class MinimaxPlayer:
    """Perfect tic-tac-toe: uniform over the moves that keep the minimax value."""

    def move(self, match: Match, seed: int) -> Episode[Move]:
        """Replays the match's history in the solver; ValueError in any game but the two
        tic-tac-toes."""
        yield from ()
        if match.name not in TICTACTOE_GAMES:
            raise ValueError(
                f"player 'minimax' plays {' and '.join(TICTACTOE_GAMES)}; game is {match.name!r}"
            )
        return None, None, random.Random(seed).choice(optimal_moves(match.history))


class GreedyPlayer:
    """A negotiator that gains by every trade, as `spnb.games.negotiation.greedy_action` says; it
    draws no lots."""

    def move(self, match: Match, seed: int) -> Episode[Move]:
        """Plays what the position and the turn ask for; ValueError in any game but Simple
        Negotiation."""
        yield from ()
        if not is_negotiation(match.name):
            raise ValueError(f"player 'greedy' plays SimpleNegotiation; game is {match.name!r}")
        return None, None, greedy_action(position(match), turn=len(match.history) // 2)


def make_player(name: str, chat: Chat | None = None, sampling: Sampling | None = None) -> Player:
    """A player by name; `chat` and `sampling` are for "policy", which answers through the engine
    "policy".

    Raises:
        ValueError: an unknown name, or "policy" without chat and sampling.
    """
    if name == "policy":
        if chat is None or sampling is None:
            raise ValueError("player 'policy' needs chat and sampling")
        return PolicyPlayer(chat, sampling)
    scripted = {
        "random": RandomPlayer,
        "equilibrium": KuhnEquilibriumPlayer,
        "minimax": MinimaxPlayer,
        "greedy": GreedyPlayer,
    }
    if name not in scripted:
        raise ValueError(f"player is {name!r}; allowed: {', '.join(PLAYERS)}")
    return scripted[name]()


def play_match(game: Game, players: tuple[Player, Player], seed: int) -> Episode[Transcript]:
    """Plays one match to its end, `players` by seat; the deal comes from `seed`, turn t from
    derive_seed(seed, t)."""
    match, turns = game.match(seed), []
    while (seat := match.player) is not None:
        request, completion, action = yield from players[seat].move(
            match, derive_seed(seed, len(turns))
        )
        if not _played(match, action):
            turns.append(Turn(seat, request, completion, None))
            return Transcript(game.name, seed, turns, invalid_returns(seat), invalid_seat=seat)
        turns.append(Turn(seat, request, completion, action))
    return Transcript(game.name, seed, turns, match.returns())


def invalid_returns(seat: int) -> tuple[float, float]:
    """The utilities of a match that `seat` ended by an invalid answer."""
    return (-INVALID_PENALTY, INVALID_PENALTY) if seat == 0 else (INVALID_PENALTY, -INVALID_PENALTY)


def _played(match: Match, action: str | None) -> bool:
    """Plays the action if there is one; whether it was legal."""
    if action is None:
        return False
    try:
        match.play(action)
    except InvalidAction:
        return False
    return True
