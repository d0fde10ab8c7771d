"""Demonstrated turns: remarks by hand, and the experts' won matches."""

import itertools

import pytest

from spnb.games import make_game, match_at
from spnb.games.base import parse_action
from spnb.games.demonstrations import answer_text, expert_turns, winning_turns
from spnb.games.exact import optimal_moves
from spnb.games.players import fixed_player


@pytest.mark.parametrize(
    ("moves", "detail", "remark"),
    [
        ("", 1, "No line is open."),
        ("", 2, "Mine: none. Theirs: none. No line is open."),
        ("0314", 1, "I can win at 2."),
        ("031", 1, "They can win at 2."),
        ("0314", 2, "Mine: 0 1. Theirs: 3 4. I can win at 2."),
    ],
)
def test_remarks_on_a_board_by_hand(moves, detail, remark):
    match = match_at(make_game("tic_tac_toe"), list(moves))
    assert answer_text(match, detail, "8") == rf"{remark} \boxed{{8}}"
    assert answer_text(match, 0, "8") == r"\boxed{8}"


def test_remarks_on_a_card_by_hand():
    game = make_game("kuhn_poker")
    state = game.rules.new_initial_state()
    for card in (2, 0):
        state.apply_action(card)
    match = game.match_from_state(state)
    assert answer_text(match, 1, "bet") == r"My card is K, the highest. \boxed{bet}"
    assert "A check risks 1, a bet risks 2." in answer_text(match, 2, "bet")
    match.play("bet")
    full = r"My card is J, the lowest. A fold loses 1, a call risks 2. \boxed{fold}"
    assert answer_text(match, 2, "fold") == full


def test_games_without_remarks_have_the_move_alone():
    assert answer_text(make_game("TicTacToe-v0-5x5").match(0), 2, "3") == r"\boxed{3}"


@pytest.mark.parametrize("name", ["kuhn_poker", "TicTacToe-v0", "SimpleNegotiation-v0"])
def test_only_matches_that_the_expert_wins_are_shown(name):
    game = make_game(name)
    expert = fixed_player("expert", game)
    lengths = [len(expert_turns(game, expert, seed % 2, seed)) for seed in range(40)]
    assert 0 in lengths and max(lengths) > 0
    seats = set()
    for _, seat, (prompt, answer) in itertools.islice(winning_turns(game, expert, 1), 60):
        assert prompt[0]["content"] and parse_action(answer, None)
        seats.add(seat)
    assert seats == {0, 1}


def test_the_experts_moves_are_the_experts():
    game = make_game("tic_tac_toe")
    expert = fixed_player("expert", game)
    games = (expert_turns(game, expert, 0, seed) for seed in itertools.count())
    turns = next(turns for turns in games if turns)
    assert parse_action(turns[0][1], None) in optimal_moves([])
    for _, answer in turns:
        assert answer.endswith(rf"\boxed{{{parse_action(answer, None)}}}")
