"""OpenSpiel's rules behind the match interface: stakes, text, chance, invalid actions."""

import itertools

import pytest

from spnb.games import InvalidAction, make_game, match_at

LINES = {  # actions after the deal -> chips won by seat 0 with the higher card, with the lower
    ("check", "check"): (1, -1),
    ("bet", "fold"): (1, 1),
    ("bet", "call"): (2, -2),
    ("check", "bet", "fold"): (-1, -1),
    ("check", "bet", "call"): (2, -2),
}


def kuhn_match(cards, actions=(), name="kuhn_poker"):
    game = make_game(name)
    state = game.rules.new_initial_state()
    for card in cards:
        state.apply_action(card)
    match = game.match_from_state(state)
    for action in actions:
        match.play(action)
    return match


@pytest.mark.parametrize("cards", list(itertools.permutations(range(3), 2)))
@pytest.mark.parametrize("line", LINES)
def test_kuhn_stakes_by_hand(cards, line):
    match = kuhn_match(cards, line)
    chips = LINES[line][0 if cards[0] > cards[1] else 1]
    assert match.player is None
    assert match.returns() == (chips / 2, -chips / 2)
    assert match.history == list(line)


@pytest.mark.parametrize("cards", list(itertools.permutations(range(5), 2)))
@pytest.mark.parametrize("line", LINES)
def test_the_stakes_with_five_cards_are_those_with_three(cards, line):
    match = kuhn_match(cards, line, "kuhn_poker_5cards")
    chips = LINES[line][0 if cards[0] > cards[1] else 1]
    assert match.returns() == (chips / 2, -chips / 2)
    assert match.history == list(line)


def test_five_cards_are_shown_as_three():
    three, five = (
        kuhn_match((2, 0), ("check", "bet")),
        kuhn_match((3, 0), ("check", "bet"), "kuhn_poker_5cards"),
    )
    rules = five.observation().replace(
        "T, J, Q, K and A; A is highest and T", "J, Q and K; K is highest and J"
    )
    assert rules == three.observation() != five.observation()


def test_five_cards_are_dealt_all_and_hidden_from_the_other_seat():
    game = make_game("kuhn_poker_5cards")
    deals = {tuple(game.match(seed).state.history()) for seed in range(200)}
    assert deals == set(itertools.permutations(range(5), 2))
    views = {
        kuhn_match((1, other), (), "kuhn_poker_5cards").observation() for other in (0, 2, 3, 4)
    }
    assert len(views) == 1 and "Your card: J" in views.pop()


def test_a_lost_call_costs_more_than_a_fold():
    fold, call = (
        kuhn_match((0, 2), ("check", "bet", "fold")),
        kuhn_match((0, 2), ("check", "bet", "call")),
    )
    assert fold.returns()[0] == -0.5
    assert call.returns()[0] == -1.0


def test_kuhn_observation_tells_the_own_card_the_betting_and_the_pot():
    match = kuhn_match((2, 0), ("check", "bet"))
    assert match.player == 0
    assert match.observation().split("\n\n")[1] == (
        "You are seat 0.\n"
        "Your card: K\n"
        "Betting so far: seat 0 checks, seat 1 bets\n"
        "Pot: 3 chips\n"
        "Legal moves: fold, call"
    )


def test_kuhn_observation_hides_the_other_card():
    assert kuhn_match((1, 0)).observation() == kuhn_match((1, 2)).observation()
    assert kuhn_match((1, 0), ["bet"]).observation() == kuhn_match((2, 0), ["bet"]).observation()


def test_deals_follow_the_seed_and_cover_all_six():
    game = make_game("kuhn_poker")
    deals = [tuple(game.match(seed).state.history()) for seed in range(60)]
    assert deals == [tuple(game.match(seed).state.history()) for seed in range(60)]
    assert set(deals) == set(itertools.permutations(range(3), 2))


def test_match_from_state_keeps_the_given_state_apart():
    first = kuhn_match((0, 1), ["check"])
    second = make_game("kuhn_poker").match_from_state(first.state)
    assert second.history == ["check"]
    second.play("bet")
    assert (first.history, first.player) == (["check"], 1)
    assert (second.history, second.player) == (["check", "bet"], 0)


def test_tic_tac_toe_observation():
    match = match_at(make_game("tic_tac_toe"), ["4", "0"])
    assert match.observation().split("\n\n")[1] == (
        "You are seat 0 and play x.\n"
        "Board (a free cell shows its number):\n"
        "o 1 2\n3 x 5\n6 7 8\n"
        "Legal moves: 1, 2, 3, 5, 6, 7, 8"
    )


def test_tic_tac_toe_results():
    game = make_game("tic_tac_toe")
    assert match_at(game, "03142").returns() == (1, -1)
    assert match_at(game, "031485").returns() == (-1, 1)
    assert match_at(game, "012435768").returns() == (0, 0)


def test_invalid_actions_leave_the_match_unchanged():
    match = kuhn_match((0, 1), ["check"])
    for action in ("call", "Bet", "", "1"):
        with pytest.raises(InvalidAction, match="legal: check, bet"):
            match.play(action)
    assert (match.history, match.player) == (["check"], 1)
    match.play("check")
    with pytest.raises(InvalidAction, match="the match is over"):
        match.play("check")
    assert match.legal_actions() == []


def test_no_result_before_the_end():
    with pytest.raises(ValueError, match="not over, seat 0 is to move"):
        make_game("tic_tac_toe").match(seed=0).returns()


def test_other_games_show_openspiels_text_and_numbered_actions():
    match = make_game("leduc_poker").match(seed=3)
    assert match.legal_actions() == ["1", "2"]
    assert match.observation().endswith("Legal moves (answer with the number):\n1: Call\n2: Raise")
    assert "[Private: " in match.observation()
    match.play("1")
    assert "[Round1: 1]" in match.observation(), "what was played before is shown"


def test_a_simultaneous_game_is_played_in_turn_without_showing_the_first_choice():
    game = make_game("matrix_rps")
    seen = set()
    for first in "012":
        match = game.match(seed=0)
        match.play(first)
        seen.add(match.observation())
    assert len(seen) == 1
    match.play("0")  # scissors against rock
    assert match.returns() == (-1, 1)
