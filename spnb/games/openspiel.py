"""OpenSpiel's rules, chance and payoffs behind `spnb.games.base.Match`.

A game in `TEXTS` has words of our own; any other shows the state string and numbered actions of
OpenSpiel (https://github.com/google-deepmind/open_spiel).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyspiel

from spnb.games.base import InvalidAction, Match

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "kuhn_poker_5cards": (
        "universal_poker",
        {"betting": "limit", "numPlayers": 2, "numRounds": 1, "numSuits": 1, "numRanks": 5}
        | {"numHoleCards": 1, "numBoardCards": "0", "blind": "1 1", "raiseSize": "1"}
        | {"maxRaises": "1", "firstPlayer": "1", "stack": "2 2"},
    )
}
"""A larger game (SPIRAL, table 8) by a name of our own: OpenSpiel's game and parameters.

One suit, antes of 1 and a single bet of 1 make poker Kuhn's."""


@dataclass(frozen=True)
class GameText:
    """A game in words: its rules, a state seen from a seat (legal moves last), legal actions."""

    rules: str
    view: Callable[[Any, int], str]
    actions: Callable[[Any], dict[str, int]]


def _kuhn_text(cards: str) -> GameText:
    """Kuhn poker in words, for a deck whose lowest card comes first."""

    def view(state: Any, seat: int) -> str:
        bets = _bets(state)
        betting = [f"seat {i % 2} {'bets' if bet else 'checks'}" for i, bet in enumerate(bets)]
        return (
            f"You are seat {seat}.\n"
            f"Your card: {cards[state.history()[seat]]}\n"
            f"Betting so far: {', '.join(betting) or 'none'}\n"
            f"Pot: {2 + sum(bets)} chips\n"
            f"Legal moves: {', '.join(_kuhn_actions(state))}"
        )

    rules = (
        f"Kuhn poker. The cards are {', '.join(cards[:-1])} and {cards[-1]}; {cards[-1]} is "
        f"highest and {cards[0]} is lowest. Both players put 1 chip into the pot and get one card "
        "each. Seat 0 moves first. With no bet made, a player can check or bet 1 more chip. After "
        "a bet, the other player can call by adding 1 chip, or fold and lose the pot. After two "
        "checks or a call, the higher card wins the pot."
    )
    return GameText(rules, view, _kuhn_actions)


def _bets(state: Any) -> list[bool]:
    """Of each action so far, whether it was a bet (1 in kuhn_poker, 2 in universal_poker)."""
    bet = 1 if state.get_game().get_type().short_name == "kuhn_poker" else 2
    return [action == bet for action in state.history()[2:]]


def _kuhn_actions(state: Any) -> dict[str, int]:
    """OpenSpiel's two legal actions, pass then bet, by their names in poker."""
    names = ("fold", "call") if any(_bets(state)) else ("check", "bet")
    return dict(zip(names, state.legal_actions(), strict=True))


def _numbered(state: Any) -> dict[str, int]:
    return {str(action): action for action in state.legal_actions()}


TICTACTOE_RULES = (
    "Tic-tac-toe. Seat 0 plays x and moves first, seat 1 plays o. The players take turns to mark "
    "one free cell of a 3 by 3 board. Three of your marks in a row, a column or a diagonal win. A "
    "full board without such a line is a draw."
)


def _tictactoe_view(state: Any, seat: int) -> str:
    marks = enumerate(str(state).replace("\n", ""))
    cells = [str(place) if mark == "." else mark for place, mark in marks]
    rows = "\n".join(" ".join(cells[start : start + 3]) for start in (0, 3, 6))
    return (
        f"You are seat {seat} and play {'xo'[seat]}.\n"
        f"Board (a free cell shows its number):\n{rows}\n"
        f"Legal moves: {', '.join(_numbered(state))}"
    )


def _generic_text(kind: Any) -> GameText:
    """OpenSpiel's state string, then each legal action's number and what it means.

    With hidden information the information state is shown where there is one: it holds the past.
    """
    perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    observed = perfect and kind.provides_observation_string
    past = kind.provides_information_state_string and not observed

    def view(state: Any, seat: int) -> str:
        shown = state.information_state_string(seat) if past else state.observation_string(seat)
        moves = [f"{a}: {state.action_to_string(seat, a)}" for a in state.legal_actions()]
        lines = [f"You are player {seat}.", shown, "Legal moves (answer with the number):", *moves]
        return "\n".join(lines)

    rules = f"The game is {kind.long_name}. Players 0 and 1 play against each other."
    return GameText(rules, view, _numbered)


TEXTS = {
    "kuhn_poker": _kuhn_text("JQK"),
    "kuhn_poker_5cards": _kuhn_text("TJQKA"),
    "tic_tac_toe": GameText(TICTACTOE_RULES, _tictactoe_view, _numbered),
}


def names() -> list[str]:
    """Every short name of OpenSpiel, and the variants."""
    return [*pyspiel.registered_names(), *VARIANTS]


def _load(name: str) -> Any:
    """The pyspiel game, a simultaneous one turn by turn; ValueError where two cannot play it."""
    try:
        game = pyspiel.load_game(*VARIANTS.get(name, (name,)))
    except Exception as error:  # SpielError, IndexError and more, by game and parameter
        reason = str(error)[:200]
        raise ValueError(f"game is {name!r}, which OpenSpiel cannot load: {reason}") from error
    kind = game.get_type()
    seeded = kind.chance_mode != pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
    dynamics = kind.dynamics.name
    utility = kind.utility.name
    for ok, problem, allowed in (
        (game.num_players() == 2, f"{game.num_players()} players", "games for two"),
        (utility == "ZERO_SUM", f"utility {utility}", "zero-sum games"),
        (seeded, "chance that it draws itself, without a seed", "explicit chance"),
        (dynamics != "MEAN_FIELD", f"dynamics {dynamics}", "moves in turn or simultaneous"),
    ):
        if not ok:
            raise ValueError(f"game {name!r} has {problem}; allowed: {allowed}")
    return pyspiel.convert_to_turn_based(game) if dynamics == "SIMULTANEOUS" else game


class OpenSpielGame:
    """One OpenSpiel game for two, by short name with optional parameters."""

    def __init__(self, name: str):
        self.name = name
        self.rules = _load(name)
        kind = self.rules.get_type()
        self.deterministic = kind.chance_mode == pyspiel.GameType.ChanceMode.DETERMINISTIC
        self.scale = max(abs(self.rules.max_utility()), abs(self.rules.min_utility()))
        self.text = TEXTS.get(name) or _generic_text(kind)

    def match(self, seed: int) -> "OpenSpielMatch":
        """A new match whose chance is drawn from `seed`."""
        return OpenSpielMatch(self, self.rules.new_initial_state(), seed, [])

    def match_from_state(self, state: Any) -> "OpenSpielMatch":
        """A match that goes on from a pyspiel state."""
        history = []
        replay = self.rules.new_initial_state()
        for action in state.history():
            if not replay.is_chance_node():
                names = {number: name for name, number in self.text.actions(replay).items()}
                history.append(names[action])
            replay.apply_action(action)
        return OpenSpielMatch(self, replay, 0, history)


class OpenSpielMatch(Match):
    """One match; `state` is the pyspiel state, for exact players and measures to read."""

    def __init__(self, game: OpenSpielGame, state: Any, seed: int, history: list[str]):
        self.name = game.name
        self.history = history
        self.state = state
        self._game = game
        self._rng = np.random.default_rng(seed)
        self._draw_chance()

    def _draw_chance(self) -> None:
        while self.state.is_chance_node():
            actions, probabilities = zip(*self.state.chance_outcomes(), strict=True)
            weights = np.array(probabilities) / sum(probabilities)
            self.state.apply_action(int(self._rng.choice(actions, p=weights)))

    @property
    def player(self) -> int | None:
        return None if self.state.is_terminal() else self.state.current_player()

    def observation(self) -> str:
        text = self._game.text
        return f"{text.rules}\n\n{text.view(self.state, self.state.current_player())}"

    def legal_actions(self) -> list[str]:
        return [] if self.state.is_terminal() else list(self._game.text.actions(self.state))

    def play(self, action: str) -> None:
        """Plays a legal move, then any chance that follows; else InvalidAction, and no change."""
        if action not in self.legal_actions():
            allowed = ", ".join(self.legal_actions()) or "none, the match is over"
            raise InvalidAction(f"{self.name}: action {action!r}; legal: {allowed}")
        self.state.apply_action(self._game.text.actions(self.state)[action])
        self.history.append(action)
        self._draw_chance()

    def returns(self) -> tuple[float, float]:
        """Payoffs by seat, divided by the largest possible one (in Kuhn poker 2 chips)."""
        if not self.state.is_terminal():
            raise ValueError(f"{self.name}: the match is not over, seat {self.player} is to move")
        first, second = self.state.returns()
        return first / self._game.scale, second / self._game.scale
