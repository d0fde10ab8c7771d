"""OpenSpiel's rules behind `spnb.games.Match`, with observation text of our own.

OpenSpiel (https://github.com/google-deepmind/open_spiel) supplies rules, chance and payoffs. A game in `TEXTS` has
plain words; any other game shows OpenSpiel's own state string and its numbered actions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyspiel

from spnb.games import InvalidAction

CARDS = "JQK"


@dataclass(frozen=True)
class GameText:
    """How one game reads: its rules, what a seat sees of a state (legal moves last), and the legal actions by name."""

    rules: str
    view: Callable[[Any, int], str]
    actions: Callable[[Any], dict[str, int]]


def _kuhn_actions(state: Any) -> dict[str, int]:
    """OpenSpiel's pass (0) and bet (1) by their poker names, which depend on whether there is a bet to answer."""
    facing_bet = 1 in state.history()[2:]
    return {"fold": 0, "call": 1} if facing_bet else {"check": 0, "bet": 1}


def _kuhn_view(state: Any, seat: int) -> str:
    cards, actions = state.history()[:2], state.history()[2:]
    betting = [f"seat {i % 2} {'bets' if action else 'checks'}" for i, action in enumerate(actions)]
    return (
        f"You are seat {seat}.\n"
        f"Your card: {CARDS[cards[seat]]}\n"
        f"Betting so far: {', '.join(betting) or 'none'}\n"
        f"Pot: {2 + sum(actions)} chips\n"
        f"Legal moves: {', '.join(_kuhn_actions(state))}"
    )


def _cells(state: Any) -> dict[str, int]:
    return {str(action): action for action in state.legal_actions()}


def _tictactoe_view(state: Any, seat: int) -> str:
    marks = str(state).replace("\n", "")
    cells = [str(i) if mark == "." else mark for i, mark in enumerate(marks)]
    rows = "\n".join(" ".join(cells[i : i + 3]) for i in (0, 3, 6))
    return (
        f"You are seat {seat} and play {'xo'[seat]}.\n"
        f"Board (a free cell shows its number):\n{rows}\n"
        f"Legal moves: {', '.join(_cells(state))}"
    )


TEXTS = {
    "kuhn_poker": GameText(
        rules=(
            "Kuhn poker. The cards are J, Q and K; K is highest and J is lowest. Both players put 1 chip into the pot "
            "and get one card each. Seat 0 moves first. With no bet made, a player can check or bet 1 more chip. "
            "After a bet, the other player can call by adding 1 chip, or fold and lose the pot. After two checks or "
            "a call, the higher card wins the pot."
        ),
        view=_kuhn_view,
        actions=_kuhn_actions,
    ),
    "tic_tac_toe": GameText(
        rules=(
            "Tic-tac-toe. Seat 0 plays x and moves first, seat 1 plays o. The players take turns to mark one free "
            "cell of a 3 by 3 board. Three of your marks in a row, a column or a diagonal win. A full board without "
            "such a line is a draw."
        ),
        view=_tictactoe_view,
        actions=_cells,
    ),
}


def names() -> list[str]:
    """Every short name that OpenSpiel knows."""
    return list(pyspiel.registered_names())


def has(name: str) -> bool:
    """Whether OpenSpiel knows the short name in front of any parameters."""
    return name.split("(")[0] in names()


def _load(name: str) -> Any:
    """The pyspiel game, a simultaneous one in its turn-based form; ValueError where two cannot play it in turn."""
    try:
        game = pyspiel.load_game(name)
    except Exception as error:  # a missing or wrong parameter: SpielError, IndexError and more, by game
        raise ValueError(f"game is {name!r}, which OpenSpiel cannot load: {str(error)[:200]}") from error
    kind = game.get_type()
    if game.num_players() != 2:
        raise ValueError(f"game {name!r} has {game.num_players()} players; allowed: games for two")
    if kind.utility != pyspiel.GameType.Utility.ZERO_SUM:
        raise ValueError(f"game {name!r} has utility {kind.utility.name}; allowed: zero-sum games")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise ValueError(f"game {name!r} draws its chance itself and cannot be seeded; allowed: explicit chance")
    if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        return pyspiel.convert_to_turn_based(game)
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ValueError(f"game {name!r} has dynamics {kind.dynamics.name}; allowed: moves in turn or simultaneous")
    return game


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
        """A new match whose chance is drawn from its own generator."""
        return OpenSpielMatch(self, self.rules.new_initial_state(), np.random.default_rng(seed), [])

    def match_from_state(self, state: Any, seed: int = 0) -> "OpenSpielMatch":
        """A match that goes on from a pyspiel state of this game; chance still to come is drawn from `seed`."""
        history, replay = [], self.rules.new_initial_state()
        for action in state.history():
            if not replay.is_chance_node():
                history.append(_name_of(self.text.actions(replay), action))
            replay.apply_action(action)
        return OpenSpielMatch(self, replay, np.random.default_rng(seed), history)


class OpenSpielMatch:
    """One match; `state` is the pyspiel state, for exact players and measures to read."""

    def __init__(self, game: OpenSpielGame, state: Any, rng: np.random.Generator, history: list[str]):
        self.name = game.name
        self.history = history
        self.state = state
        self._game = game
        self._rng = rng
        self._draw_chance()

    def _draw_chance(self) -> None:
        while self.state.is_chance_node():
            actions, probabilities = zip(*self.state.chance_outcomes(), strict=True)
            weights = np.array(probabilities) / sum(probabilities)
            self.state.apply_action(int(self._rng.choice(actions, p=weights)))

    @property
    def player(self) -> int | None:
        """The seat to move, None when the match is over."""
        return None if self.state.is_terminal() else self.state.current_player()

    def observation(self) -> str:
        """Rules, what the seat to move sees, and the legal moves."""
        return f"{self._game.text.rules}\n\n{self._game.text.view(self.state, self.state.current_player())}"

    def legal_actions(self) -> list[str]:
        """The legal moves by name, in OpenSpiel's order; empty when the match is over."""
        return [] if self.state.is_terminal() else list(self._game.text.actions(self.state))

    def play(self, action: str) -> None:
        """Plays a legal move, then any chance that follows. Raises InvalidAction and leaves the match unchanged."""
        legal = {} if self.state.is_terminal() else self._game.text.actions(self.state)
        if action not in legal:
            raise InvalidAction(
                f"{self.name}: action {action!r}; legal: {', '.join(legal) or 'none, the match is over'}"
            )
        self.state.apply_action(legal[action])
        self.history.append(action)
        self._draw_chance()

    def returns(self) -> tuple[float, float]:
        """Payoffs of both seats divided by the largest possible one (Kuhn poker: 2 chips, so half or whole units)."""
        if not self.state.is_terminal():
            raise ValueError(f"{self.name}: the match is not over, seat {self.player} is to move")
        first, second = self.state.returns()
        return first / self._game.scale, second / self._game.scale


def _name_of(actions: dict[str, int], action: int) -> str:
    return next(name for name, number in actions.items() if number == action)


def _generic_text(kind: Any) -> GameText:
    """Text for any other game: OpenSpiel's state string, then each legal action's number and what it means.

    With hidden information the information state is shown where there is one, because it holds the past as well.
    """
    perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    past = kind.provides_information_state_string and not (perfect and kind.provides_observation_string)

    def view(state: Any, seat: int) -> str:
        shown = state.information_state_string(seat) if past else state.observation_string(seat)
        lines = [f"{action}: {state.action_to_string(seat, action)}" for action in state.legal_actions()]
        return "\n".join([f"You are player {seat}.", shown, "Legal moves (answer with the number):", *lines])

    rules = f"The game is {kind.long_name}. Players 0 and 1 play against each other."
    return GameText(rules=rules, view=view, actions=_cells)
