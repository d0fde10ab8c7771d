"""Exact measures of play in Kuhn poker and tic-tac-toe; no model in here, only rules, tables and
OpenSpiel's solvers.

A Kuhn policy maps OpenSpiel's 12 information-state keys to the probabilities of pass (check or
fold) and bet (bet or call). A key is the card (0, 1, 2 = J, Q, K), then the actions (p = pass, b =
bet): "0", "1p", "2b", "0pb", ... Values are chips a hand. With five cards there are 20 keys of the
same kind (0 to 4 = T to A).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyspiel

from spnb.games import InvalidAction
from spnb.games.openspiel import KUHN_CARDS, OpenSpielGame, OpenSpielMatch


def kuhn_keys(name: str = "kuhn_poker") -> tuple[str, ...]:
    """The information states of a Kuhn poker by name: every card, from the lowest, after each line
    of actions.

    Raises:
        ValueError: the game is neither kuhn_poker nor kuhn_poker_5cards.
    """
    if name not in KUHN_CARDS:
        raise ValueError(f"game is {name!r}; allowed: {', '.join(KUHN_CARDS)}")
    return tuple(
        f"{card}{actions}"
        for actions in ("", "p", "b", "pb")
        for card in range(len(KUHN_CARDS[name]))
    )


KUHN_KEYS = kuhn_keys()
KUHN_GAME_VALUE = -1 / 18
"""Chips a hand for seat 0 when both play an equilibrium (Kuhn 1950)."""

KuhnPolicy = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class KuhnState:
    """One information state: OpenSpiel's key, the seat to move, and a match that stands there."""

    key: str
    seat: int
    match: OpenSpielMatch


def kuhn_states(name: str = "kuhn_poker") -> list[KuhnState]:
    """The information states in the order of `kuhn_keys`; the hidden card is one of the possible
    ones, never shown."""
    game = OpenSpielGame(name)
    states = []
    for key in kuhn_keys(name):
        seat, card = len(key[1:]) % 2, int(key[0])
        other = (card + 1) % len(KUHN_CARDS[name])
        state = game.rules.new_initial_state()
        for dealt in (card, other) if seat == 0 else (other, card):
            state.apply_action(dealt)
        for mark in key[1:]:
            state.apply_action(state.legal_actions()["pb".index(mark)])
        states.append(KuhnState(key, seat, game.match_from_state(state)))
    return states


def kuhn_equilibrium(alpha: float = 1 / 3) -> dict[str, tuple[float, float]]:
    """The equilibrium of Kuhn's one-parameter family in which seat 0 bets the jack with probability
    `alpha`.

    Seat 0 bets the king three times as often and calls with the queen with alpha + 1/3; seat 1's
    play is unique.

    Raises:
        ValueError: `alpha` is not in [0, 1/3].
    """
    if not 0 <= alpha <= 1 / 3:
        raise ValueError(f"alpha is {alpha!r}; allowed: 0 to 1/3")
    third = 1 / 3
    bet = {"0": alpha, "1": 0.0, "2": 3 * alpha, "0p": third, "1p": 0.0, "2p": 1.0}
    call = {"0b": 0.0, "1b": third, "2b": 1.0, "0pb": 0.0, "1pb": alpha + third, "2pb": 1.0}
    return {key: (1 - p, p) for key, p in (bet | call).items()}


def kuhn_exploitability(probabilities: KuhnPolicy, name: str = "kuhn_poker") -> float:
    """What best responses win on average over both seats, chips a hand: NashConv / 2; 0 in an
    equilibrium only.

    Lanctot et al. 2017, "A unified game-theoretic approach to multiagent reinforcement learning".
    Uniform play: 0.4583 with three cards, 0.425 with five.
    """
    return pyspiel.exploitability(_kuhn(name), _tabular(probabilities, kuhn_keys(name), name))


def kuhn_best_response_values(probabilities: KuhnPolicy) -> tuple[float, float]:
    """For each seat, what the best response in that seat wins against the policy in the other,
    chips a hand."""
    policy, root = _tabular(probabilities, KUHN_KEYS), _kuhn().new_initial_state()
    first, second = (
        pyspiel.TabularBestResponse(_kuhn(), seat, policy).value_from_state(root) for seat in (0, 1)
    )
    return first, second


def kuhn_value(first: KuhnPolicy, second: KuhnPolicy) -> float:
    """Expected chips a hand for seat 0 when `first` plays seat 0 and `second` seat 1; each needs
    its own six states."""
    policies = [
        _tabular(probabilities, [key for key in KUHN_KEYS if len(key[1:]) % 2 == seat])
        for seat, probabilities in enumerate((first, second))
    ]
    return pyspiel.expected_returns(_kuhn().new_initial_state(), policies, -1, True)[0]


@lru_cache
def _kuhn(name: str = "kuhn_poker") -> Any:
    return OpenSpielGame(name).rules


@lru_cache
def _kuhn_rows(name: str) -> dict[str, tuple[str, list[int]]]:
    """By key: OpenSpiel's information-state string and its numbers for pass and bet."""
    positions = {state.key: state.match.state for state in kuhn_states(name)}
    return {
        key: (at.information_state_string(), at.legal_actions()) for key, at in positions.items()
    }


def _tabular(probabilities: KuhnPolicy, keys: Sequence[str], name: str = "kuhn_poker") -> Any:
    """pyspiel's policy of the given states; ValueError for a missing state or a pair that is no
    distribution."""
    for key in keys:
        if key not in probabilities:
            raise ValueError(f"Kuhn policy has no state {key!r}; needed: {', '.join(keys)}")
        passing, betting = probabilities[key]
        if min(passing, betting) < 0 or not np.isclose(passing + betting, 1):
            raise ValueError(
                f"Kuhn policy at {key!r} is ({passing}, {betting}); allowed: two shares that sum to 1"
            )
    rows = {
        string: (numbers, key) for key, (string, numbers) in _kuhn_rows(name).items() if key in keys
    }
    return pyspiel.TabularPolicy(
        {
            s: list(zip(numbers, map(float, probabilities[key]), strict=True))
            for s, (numbers, key) in rows.items()
        }
    )


@lru_cache(maxsize=1)
def position_values() -> dict[str, int]:
    """Minimax value for seat 0 (1, 0 or -1) of all 5,478 tic-tac-toe positions, by board: nine of
    "x", "o", "."."""
    values: dict[str, int] = {}

    def value(state: Any) -> int:
        board = _board(state)
        if board not in values:
            if state.is_terminal():
                values[board] = int(state.returns()[0])
            else:
                best = max if state.current_player() == 0 else min
                values[board] = best(value(state.child(action)) for action in state.legal_actions())
        return values[board]

    value(_position([]))
    return values


def move_values(history: Sequence[str]) -> dict[str, int]:
    """Minimax value of each legal move for the seat that moves, after the tic-tac-toe moves in
    `history`."""
    return _move_values(_position(history))


def optimal_moves(history: Sequence[str]) -> list[str]:
    """The moves that keep the minimax value, in cell order."""
    values = move_values(history)
    return [move for move, value in values.items() if value == max(values.values())]


def value_lost(history: Sequence[str], action: str) -> int:
    """How much of the minimax value a move gives away: 0, 1 or 2 (from a win to a loss)."""
    values = move_values(history)
    if action not in values:
        raise InvalidAction(
            f"tic-tac-toe after {list(history)}: action {action!r}; legal: {', '.join(values)}"
        )
    return max(values.values()) - values[action]


@lru_cache(maxsize=1)
def decision_positions() -> tuple[tuple[str, ...], ...]:
    """The 431 positions where a mistake is possible, one of each symmetry class, as action
    histories.

    Every class is represented by its first position in order of length, then cells.
    """
    found, layer, seen = [], [()], {_canonical("." * 9)}
    while layer:
        following = []
        for history in layer:
            state = _position(history)
            if state.is_terminal():
                continue
            if len(set(_move_values(state).values())) > 1:
                found.append(history)
            for action in state.legal_actions():
                board = _canonical(_board(state.child(action)))
                if board not in seen:
                    seen.add(board)
                    following.append((*history, str(action)))
        layer = following
    return tuple(found)


def _position(history: Sequence[str]) -> Any:
    state = pyspiel.load_game("tic_tac_toe").new_initial_state()
    for action in history:
        legal = [] if state.is_terminal() else [str(cell) for cell in state.legal_actions()]
        if action not in legal:
            raise InvalidAction(
                f"tic-tac-toe history {list(history)}: {action!r} is not legal where it stands"
            )
        state.apply_action(int(action))
    return state


def _board(state: Any) -> str:
    return str(state).replace("\n", "")


def _move_values(state: Any) -> dict[str, int]:
    sign = 1 if state.current_player() == 0 else -1
    return {str(a): sign * position_values()[_board(state.child(a))] for a in state.legal_actions()}


def _canonical(board: str) -> str:
    """The smallest of the board's eight rotations and reflections."""
    cells = np.array(list(board)).reshape(3, 3)
    turned = [np.rot90(side, k) for side in (cells, cells.T) for k in range(4)]
    return min("".join(side.ravel()) for side in turned)
