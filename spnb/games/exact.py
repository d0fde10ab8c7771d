"""Exact measures of play in Kuhn poker and tic-tac-toe, from rules and OpenSpiel's solvers.

A Kuhn policy maps 12 information states to the probabilities of pass (check or fold) and bet (bet
or call). A state is the card (0, 1, 2 = J, Q, K), then the actions (p = pass, b = bet): "0", "1p",
"2b", "0pb", ... Values are chips a hand.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyspiel

from spnb.games.openspiel import OpenSpielGame, OpenSpielMatch

KUHN_KEYS = tuple(f"{card}{actions}" for actions in ("", "p", "b", "pb") for card in range(3))

KUHN = OpenSpielGame("kuhn_poker")
TICTACTOE = pyspiel.load_game("tic_tac_toe")
KuhnPolicy = Mapping[str, tuple[float, float]]


def kuhn_states() -> dict[str, OpenSpielMatch]:
    """By information state, in the order of `KUHN_KEYS`, a match that stands there; the hidden card
    is a possible one, never shown."""
    states = {}
    for key in KUHN_KEYS:
        card = int(key[0])
        seat = len(key[1:]) % 2
        cards = [card, (card + 1) % 3]
        state = KUHN.rules.new_initial_state()
        for action in [*(cards[::-1] if seat else cards), *map("pb".index, key[1:])]:
            state.apply_action(action)
        states[key] = KUHN.match_from_state(state)
    return states


def kuhn_equilibrium() -> dict[str, tuple[float, float]]:
    """The equilibrium in which seat 0 bets the jack most often, in a third of the cases (Kuhn 1950:
    alpha = 1/3), and always the king. Seat 1's play is unique; seat 0 wins -1/18."""
    third = 1 / 3
    bet = {"0": third, "1": 0.0, "2": 1.0, "0p": third, "1p": 0.0, "2p": 1.0}
    call = {"0b": 0.0, "1b": third, "2b": 1.0, "0pb": 0.0, "1pb": third + third, "2pb": 1.0}
    return {key: (1 - p, p) for key, p in (bet | call).items()}


def kuhn_exploitability(policy: KuhnPolicy) -> float:
    """What best responses win on average over both seats: NashConv / 2; uniform play: 11/24.

    It is 0 in an equilibrium only (Lanctot et al. 2017, "A unified game-theoretic approach ...").
    """
    return pyspiel.exploitability(KUHN.rules, _tabular(policy))


def kuhn_best_response_values(policy: KuhnPolicy) -> tuple[float, float]:
    """For each seat, what the best response in it wins against the policy in the other."""
    table = _tabular(policy)
    root = KUHN.rules.new_initial_state()
    responses = [pyspiel.TabularBestResponse(KUHN.rules, seat, table) for seat in (0, 1)]
    return responses[0].value_from_state(root), responses[1].value_from_state(root)


def kuhn_average(policies: Sequence[KuhnPolicy]) -> dict[str, tuple[float, float]]:
    """The policy that plays as if one of `policies` were drawn, each as often, before each hand.

    A seat's second decision weights each policy by its own probability of passing first, which is
    how the seat comes there; where none does, all count alike. It is the average strategy of
    extensive-form fictitious play (Heinrich et al. 2015) and of CFR (Zinkevich et al. 2007).

    Raises:
        ValueError: no policies, or one that is none (see `kuhn_exploitability`).
    """
    if not policies:
        raise ValueError("policies is empty; allowed: one policy or more")
    tables = np.array([[policy[key] for key in KUHN_KEYS] for policy in map(_checked, policies)])
    reach = np.ones(tables.shape[:2])
    for place, key in enumerate(KUHN_KEYS):
        if key.endswith("pb"):
            passing = tables[:, KUHN_KEYS.index(key[0]), 0]
            reach[:, place] = passing if passing.any() else 1.0
    shares = (tables * reach[..., None]).sum(axis=0) / reach.sum(axis=0)[:, None]
    return {key: (float(a), float(b)) for key, (a, b) in zip(KUHN_KEYS, shares, strict=True)}


def _checked(policy: KuhnPolicy) -> KuhnPolicy:
    """The policy; ValueError for a missing state or a pair that is no distribution."""
    for key in KUHN_KEYS:
        if key not in policy:
            raise ValueError(f"Kuhn policy has no state {key!r}; needed: {', '.join(KUHN_KEYS)}")
        passing, betting = map(float, policy[key])
        if min(passing, betting) < 0 or not np.isclose(passing + betting, 1):
            pair = f"({passing}, {betting})"
            raise ValueError(f"Kuhn policy at {key!r} is {pair}; allowed: two shares that sum to 1")
    return policy


def _tabular(policy: KuhnPolicy) -> Any:
    table = _checked(policy)
    rows = {key: list(enumerate(map(float, table[key]))) for key in KUHN_KEYS}
    return pyspiel.TabularPolicy(rows)


@cache
def position_values() -> dict[str, int]:
    """Minimax value for seat 0 of all 5,478 tic-tac-toe boards, each nine of "x", "o", "."."""
    values: dict[str, int] = {}

    def value(state: Any) -> int:
        board = _board(state)
        if board not in values:
            best = max if state.current_player() == 0 else min
            below = [value(state.child(action)) for action in state.legal_actions()]
            values[board] = best(below) if below else int(state.returns()[0])
        return values[board]

    value(_position([]))
    return values


def move_values(history: Sequence[str]) -> dict[str, int]:
    """Minimax value of each legal move for the seat that moves after `history`."""
    state = _position(history)
    sign = 1 if state.current_player() == 0 else -1
    return {str(a): sign * position_values()[_board(state.child(a))] for a in state.legal_actions()}


def optimal_moves(history: Sequence[str]) -> list[str]:
    """The moves that keep the minimax value, in cell order."""
    values = move_values(history)
    return [move for move, value in values.items() if value == max(values.values())]


@cache
def decision_positions() -> tuple[tuple[str, ...], ...]:
    """The 431 positions where a mistake is possible, one of each symmetry class, as histories.

    Every class is represented by its first position in order of length, then cells.
    """
    queue = [()]
    seen = {_canonical("." * 9)}
    for history in queue:  # it grows as it is read
        state = _position(history)
        for action in state.legal_actions():
            board = _canonical(_board(state.child(action)))
            if board not in seen:
                seen.add(board)
                queue.append((*history, str(action)))
    return tuple(history for history in queue if len(set(move_values(history).values())) > 1)


def _position(history: Sequence[str]) -> Any:
    state = TICTACTOE.new_initial_state()
    for action in history:
        state.apply_action(int(action))
    return state


def _board(state: Any) -> str:
    return str(state).replace("\n", "")


def _canonical(board: str) -> str:
    """The smallest of the board's eight rotations and reflections."""
    cells = np.array(list(board)).reshape(3, 3)
    turned = [np.rot90(side, k) for side in (cells, cells.T) for k in range(4)]
    return min("".join(side.ravel()) for side in turned)
