"""Exact measures against published and hand-computed values."""

from functools import cache

import pytest

from spnb.games import make_game, match_at
from spnb.games.exact import (
    KUHN_KEYS,
    decision_positions,
    kuhn_average,
    kuhn_best_response_values,
    kuhn_equilibrium,
    kuhn_exploitability,
    kuhn_states,
    move_values,
    optimal_moves,
    position_values,
)

UNIFORM = {key: (0.5, 0.5) for key in KUHN_KEYS}
ALWAYS_BET = {key: (0.0, 1.0) for key in KUHN_KEYS}
ALWAYS_PASS = {key: (1.0, 0.0) for key in KUHN_KEYS}


def test_the_twelve_states_are_in_bijection_with_prompts_and_keys():
    states = kuhn_states()
    assert list(states) == list(KUHN_KEYS)
    assert len(set(KUHN_KEYS)) == 12
    assert len({match.observation() for match in states.values()}) == 12
    for key, match in states.items():
        facing_bet = key.endswith("b")
        assert match.state.information_state_string() == key
        assert match.player == {"": 0, "p": 1, "b": 1, "pb": 0}[key[1:]]
        assert match.legal_actions() == (["fold", "call"] if facing_bet else ["check", "bet"])
        assert f"Your card: {'JQK'[int(key[0])]}" in match.observation()
        assert f"Pot: {3 if facing_bet else 2} chips" in match.observation()


def test_every_reachable_decision_is_one_of_the_twelve():
    game, found = make_game("kuhn_poker"), set()

    def visit(state):
        if state.is_terminal():
            return
        if not state.is_chance_node():
            found.add(state.information_state_string())
        for action in state.legal_actions():
            visit(state.child(action))

    visit(game.rules.new_initial_state())
    assert found == set(KUHN_KEYS)


def test_kuhn_reference_values():
    assert kuhn_exploitability(UNIFORM) == pytest.approx(11 / 24)  # 0.4583
    assert kuhn_exploitability(ALWAYS_BET) == pytest.approx(1 / 3)
    assert kuhn_best_response_values(UNIFORM) == pytest.approx((1 / 2, 5 / 12))
    assert sum(kuhn_best_response_values(UNIFORM)) / 2 == pytest.approx(
        kuhn_exploitability(UNIFORM)
    )


def test_passing_always_loses_the_ante_to_a_bet():
    """Seat 0 wins 1 by betting every hand. Seat 1 is checked to and bets every hand: 1 as well."""
    assert kuhn_best_response_values(ALWAYS_PASS) == pytest.approx((1, 1))


def test_the_equilibrium_cannot_be_exploited():
    equilibrium = kuhn_equilibrium()
    assert kuhn_exploitability(equilibrium) == pytest.approx(0, abs=1e-12)
    first, second = kuhn_best_response_values(equilibrium)
    assert (first, second) == pytest.approx((-1 / 18, 1 / 18))


def test_an_average_plays_as_if_one_policy_were_drawn_before_each_hand():
    """Only always-pass comes to a second decision, so the average folds there.

    Seat 1 then wins 1/3 from a bet (2 with the king, 0 with the queen, -1 with the jack) and 1
    from a pass, in half of the hands each: 2/3. Seat 0 wins 3/2, 1/2 and -1/2 by betting the
    king, queen and jack, against someone who calls every second time: 1/2.
    """
    average = kuhn_average([ALWAYS_PASS, ALWAYS_BET])
    assert average["0"] == average["2p"] == average["1b"] == (0.5, 0.5)
    assert average["0pb"] == average["2pb"] == (1, 0)
    assert kuhn_best_response_values(average) == pytest.approx((1 / 2, 2 / 3))
    assert kuhn_exploitability(average) == pytest.approx(7 / 12)


def test_second_decisions_are_weighted_by_how_often_a_policy_comes_there():
    """Passes of 0.25 and 0.75: calls of 1 and 0 average to 0.25, not to 0.5."""
    seldom = UNIFORM | {"0": (0.25, 0.75), "0pb": (0, 1)}
    often = UNIFORM | {"0": (0.75, 0.25), "0pb": (1, 0)}
    average = kuhn_average([seldom, often])
    assert average["0"] == (0.5, 0.5) and average["0pb"] == pytest.approx((0.75, 0.25))
    assert kuhn_average([ALWAYS_BET, ALWAYS_BET | {"1pb": (1, 0)}])["1pb"] == (0.5, 0.5)
    equilibrium = kuhn_equilibrium()
    assert kuhn_average([equilibrium] * 3)["2pb"] == pytest.approx(equilibrium["2pb"])
    with pytest.raises(ValueError, match="policies is empty"):
        kuhn_average([])


def test_bad_kuhn_tables_are_refused():
    with pytest.raises(ValueError, match="no state '2pb'"):
        kuhn_exploitability({key: (0.5, 0.5) for key in KUHN_KEYS[:-1]})
    with pytest.raises(ValueError, match=r"at '0' is \(0.5, 0.6\)"):
        kuhn_exploitability(UNIFORM | {"0": (0.5, 0.6)})
    with pytest.raises(ValueError, match=r"at '1pb' is \(1.5, -0.5\); allowed: two shares"):
        kuhn_exploitability(UNIFORM | {"1pb": (1.5, -0.5)})


def test_tic_tac_toe_position_values():
    values = position_values()
    assert len(values) == 5478
    assert values["........."] == 0
    assert values["xx.oo...."] == 1
    assert set(values.values()) == {-1, 0, 1}


def test_optimal_moves_by_hand():
    assert optimal_moves(["4"]) == ["0", "2", "6", "8"]
    assert optimal_moves(["0"]) == ["4"]
    assert optimal_moves(list("0314")) == ["2"]
    assert optimal_moves([]) == list("012345678")


def test_move_values_by_hand():
    assert move_values(["0"])["4"] == 0
    assert move_values(["0"])["1"] == -1  # a draw becomes a loss
    assert move_values(list("0314"))["2"] == 1
    assert move_values(list("0314"))["8"] == -1  # a win becomes a loss: o completes the middle row


def test_decision_positions():
    positions = decision_positions()
    assert len(positions) == len(set(positions)) == 431
    assert positions[:3] == (("0",), ("1",), ("4",))
    for history in positions:
        values = move_values(history)
        assert min(values.values()) < max(values.values())
        assert max(values.values()) >= 0
    boards = {match_at(make_game("tic_tac_toe"), history).observation() for history in positions}
    assert len(boards) == 431


@pytest.mark.parametrize(
    ("players", "expected"),
    [
        (("random", "random"), 0.297),
        (("minimax", "random"), 0.968),
        (("random", "minimax"), -0.777),
    ],
)
@pytest.mark.slow
def test_expected_scores_between_uniform_and_optimal_players(players, expected):
    """The exact expectation over all lines of play, from the matches' own rules and results."""
    game = make_game("tic_tac_toe")

    @cache
    def value(board):
        history = seen[board]
        match = match_at(game, history)
        if match.player is None:
            return match.returns()[0]
        moves = (
            match.legal_actions() if players[match.player] == "random" else optimal_moves(history)
        )
        return sum(value(name(history, move)) for move in moves) / len(moves)

    seen = {}

    def name(history, move):
        after = (*history, move)
        board = (frozenset(after[::2]), frozenset(after[1::2]))
        return seen.setdefault(board, after) and board

    seen[None] = ()
    assert value(None) == pytest.approx(expected, abs=5e-4)
