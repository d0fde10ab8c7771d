"""Who plays a match, and what is recorded of it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from spnb.core.episodes import Episode
from spnb.core.types import Chat, Completion, Request, Sampling, derive_seed
from spnb.games import negotiation
from spnb.games.base import INVALID_PENALTY, Game, InvalidAction, Match, messages, parse_action
from spnb.games.exact import kuhn_equilibrium, optimal_moves

TICTACTOE_GAMES = ("tic_tac_toe", "TicTacToe-v0")
CLAIMS = ("Fact 1 is correct.", "Fact 2 is correct.")
"""What random play says in TruthAndDeception before the guess."""


@dataclass
class Turn:
    """A seat's move; request and completion are None if scripted, `action` if invalid."""

    seat: int | None
    request: Request | None
    completion: Completion | None
    action: str | None


@dataclass
class Transcript:
    """One match from deal to result; `returns` by seat has the penalty if `invalid_seat` is set."""

    game: str
    seed: int
    turns: list[Turn]
    returns: tuple[float, float]
    invalid_seat: int | None = None

    def outcome(self, seat: int) -> Literal["win", "draw", "loss", "invalid"]:
        """One seat's result: "invalid" if its own answer ended the match, "win" if the other's."""
        if seat == self.invalid_seat:
            return "invalid"
        utility = self.returns[seat]
        return "win" if utility > 0 else "loss" if utility < 0 else "draw"


class Player(Protocol):
    """Chooses moves; without state, so one player can play many matches and both seats."""

    def move(self, match: Match, seed: int) -> Episode[Turn]:
        """An episode that ends with a turn; ValueError in a game the player does not fit."""


@dataclass(frozen=True)
class PolicyPlayer:
    """A model that reads the observation and answers in a box.

    `has_room`: whether a prompt leaves room for an answer; one that does not is not asked and loses
    the match.
    """

    chat: Chat
    sampling: Sampling
    policy: str = "policy"
    has_room: Callable[[Sequence[int]], bool] = bool

    def move(self, match: Match, seed: int) -> Episode[Turn]:
        """Asks the engine once; an answer without a legal action gives the action None."""
        request = self.chat.request(messages(match), self.sampling, seed, self.policy)
        if not self.has_room(request.prompt_ids):
            return Turn(match.player, None, None, None)
        (completion,) = yield [request]
        if not completion.ids:
            return Turn(match.player, None, None, None)
        action = parse_action(completion.text, match.legal_actions())
        return Turn(match.player, request, completion, action)


@dataclass(frozen=True)
class ScriptedPlayer:
    """A player by rule: `choose` has the match and a generator of the turn's own."""

    choose: Callable[[Match, random.Random], str]

    def move(self, match: Match, seed: int) -> Episode[Turn]:
        yield from ()
        return Turn(match.player, None, None, self.choose(match, random.Random(seed)))


def plays_at_random(match: Match) -> bool:
    """Whether `random_action` knows what to play: a listed move, or words of its own."""
    talks = negotiation.is_negotiation(match.name) or match.name.startswith("TruthAndDeception")
    return talks or match.legal_actions() is not None


def random_action(match: Match, rng: random.Random) -> str:
    """A legal move, all equally likely; where words are moves, a random trade or a random claim.

    Raises:
        ValueError: not `plays_at_random`.
    """
    legal = match.legal_actions()
    if legal is None and negotiation.is_negotiation(match.name):
        return negotiation.negotiation_action(negotiation.position(match), rng)
    if legal is None and not plays_at_random(match):
        problem = f"needs a list of legal actions; game {match.name!r} takes free text"
        raise ValueError(f"player 'random' {problem}")
    return rng.choice(CLAIMS if legal is None else legal)


def equilibrium_action(match: Match, rng: random.Random) -> str:
    """Unexploitable Kuhn poker at alpha = 1/3; ValueError in any game but OpenSpiel's."""
    if match.name != "kuhn_poker":
        raise ValueError(f"player 'equilibrium' plays kuhn_poker; game is {match.name!r}")
    passing, betting = match.legal_actions()
    _, bet_share = kuhn_equilibrium()[match.state.information_state_string()]
    return betting if rng.random() < bet_share else passing


def minimax_action(match: Match, rng: random.Random) -> str:
    """Perfect tic-tac-toe: uniform over the moves that keep the minimax value."""
    if match.name not in TICTACTOE_GAMES:
        games = " and ".join(TICTACTOE_GAMES)
        raise ValueError(f"player 'minimax' plays {games}; game is {match.name!r}")
    return rng.choice(optimal_moves(match.history))


def greedy_trade(match: Match, rng: random.Random) -> str:
    """A negotiator that gains by every trade; it draws no lots."""
    if not negotiation.is_negotiation(match.name):
        raise ValueError(f"player 'greedy' plays SimpleNegotiation; game is {match.name!r}")
    return negotiation.greedy_action(negotiation.position(match), turn=len(match.history) // 2)


SCRIPTED = {"random": random_action, "equilibrium": equilibrium_action}
SCRIPTED |= {"minimax": minimax_action, "greedy": greedy_trade}
EXPERTS = {"kuhn_poker": "equilibrium", negotiation.NEGOTIATION: "greedy"}
EXPERTS |= dict.fromkeys(TICTACTOE_GAMES, "minimax")
EXPERTS |= {f"{negotiation.NEGOTIATION.split('-')[0]}-v0-8resources": "greedy"}
"""The best scripted player of each game that has one."""


def make_player(name: str) -> Player:
    """A scripted player by name; ValueError for an unknown one."""
    if name not in SCRIPTED:
        raise ValueError(f"player is {name!r}; allowed: {', '.join(SCRIPTED)}")
    return ScriptedPlayer(SCRIPTED[name])


def fixed_player(kind: str, game: Game) -> Player:
    """The fixed opponent "random" or "expert" (one of `EXPERTS`).

    Raises:
        ValueError: the game has no expert.
    """
    if kind == "expert" and game.name not in EXPERTS:
        known = f"games with one: {', '.join(EXPERTS)}"
        raise ValueError(f"opponent is 'expert', which game {game.name!r} has not; {known}")
    return make_player(EXPERTS[game.name] if kind == "expert" else kind)


def play_match(game: Game, players: tuple[Player, Player], seed: int) -> Episode[Transcript]:
    """Plays one match, `players` by seat; deal from `seed`, turn t from derive_seed(seed, t)."""
    match = game.match(seed)
    turns: list[Turn] = []
    while (seat := match.player) is not None:
        turn = yield from players[seat].move(match, derive_seed(seed, len(turns)))
        turns.append(turn)
        try:
            if turn.action is None:
                raise InvalidAction("no action")
            match.play(turn.action)
        except InvalidAction:
            turn.action = None
            first = INVALID_PENALTY if seat else -INVALID_PENALTY
            return Transcript(game.name, seed, turns, (first, -first), invalid_seat=seat)
    return Transcript(game.name, seed, turns, match.returns())
