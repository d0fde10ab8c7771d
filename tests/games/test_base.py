"""Games by name, prompts around an observation, and which answers count as an action."""

import pytest

from spnb.games import TESTED, InvalidAction, make_game, match_at
from spnb.games.base import (
    FREE_TEXT_CHARACTERS,
    FREE_TEXT_WORDS,
    INVALID_PENALTY,
    messages,
    parse_action,
)

KUHN = ["check", "bet"]


def test_messages_frame_the_observation():
    match = make_game("tic_tac_toe").match(seed=0)
    (message,) = messages(match)
    opening, *observation, closing = message["content"].split("\n\n")
    assert message["role"] == "user"
    assert "two-player zero-sum game" in opening
    assert "\n\n".join(observation) == match.observation()
    assert "step by step" in closing
    assert r"\boxed{}" in closing


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (r"\boxed{bet}", "bet"),
        (r"I hold the king. \boxed{[bet]}", "bet"),
        (r"\boxed{\text{bet}}", "bet"),
        (r"\boxed{\texttt{Bet}}", "bet"),
        (r"\boxed{ BET }", "bet"),
        (r"\boxed{[ bet ]}", "bet"),
        (r"\boxed{check} or rather \boxed{bet}", "bet"),
        ("bet", None),
        ("", None),
        (r"\boxed{}", None),
        (r"\boxed{call}", None),
        (r"\boxed{I bet}", None),
        (r"\boxed{check, bet}", None),
        (r"\boxed{bet", None),
        (r"\boxed{check} but \boxed{be", None),
    ],
)
def test_parse_action_against_a_legal_list(text, action):
    assert parse_action(text, KUHN) == action


def test_a_legal_move_as_it_is_spelled_comes_first():
    for move in ("bxc3", "Bxc3"):
        assert parse_action(rf"\boxed{{{move}}}", ["bxc3", "Bxc3", "e4"]) == move


def test_parse_action_returns_the_legal_spelling():
    assert parse_action(r"\boxed{all   IN}", ["Fold", "All in"]) == "All in"
    assert parse_action(r"\boxed{04}", ["4"]) is None


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (r"\boxed{[Offer: 3 Wood -> 2 Ore]}", "[Offer: 3 Wood -> 2 Ore]"),
        (
            r"\boxed{Let us trade. [Offer: 1 Ore -> 2 Wheat]}",
            "Let us trade. [Offer: 1 Ore -> 2 Wheat]",
        ),
        (r"\boxed{}", None),
        ("[Accept]", None),
        (r"\boxed{" + "a" * FREE_TEXT_CHARACTERS + "}", "a" * FREE_TEXT_CHARACTERS),
        (r"\boxed{" + "a" * (FREE_TEXT_CHARACTERS + 1) + "}", None),
        (r"\boxed{" + "a " * (FREE_TEXT_WORDS - 1) + "b}", "a " * (FREE_TEXT_WORDS - 1) + "b"),
        (r"\boxed{" + "a " * FREE_TEXT_WORDS + "b}", None),
    ],
)
def test_parse_action_in_free_text(text, action):
    assert parse_action(text, None) == action


def test_the_penalty_is_worse_than_the_worst_legal_loss():
    assert INVALID_PENALTY > 1


@pytest.mark.parametrize(
    "name", ["kuhn_poker", "tic_tac_toe", "leduc_poker", "connect_four(rows=4)", "matrix_rps"]
)
def test_openspiel_names(name):
    game = make_game(name)
    assert game.name == name
    assert game.match(seed=1).player == 0


@pytest.mark.parametrize("name", TESTED)
def test_tested_names(name):
    match = make_game(name).match(seed=1)
    assert match.name == name and match.player in (0, 1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kuhn_pocker", "game is 'kuhn_pocker'; allowed: kuhn_poker, .*did you mean kuhn_poker"),
        ("TicTacToe", "did you mean TicTacToe-v0"),
        (
            "TicTacToe-v0-train",
            "allowed: kuhn_poker, .* any other OpenSpiel short name or TextArena id",
        ),
        ("kuhn_poker_6cards", "did you mean kuhn_poker_5cards"),
        ("SimpleNegotiation-v0-8resource", "did you mean .*SimpleNegotiation-v0-8resources"),
        ("hearts", "has 4 players; allowed: games for two"),
        ("kuhn_poker(players=3)", "has 3 players; allowed: games for two"),
        ("bargaining", "utility GENERAL_SUM; allowed: zero-sum"),
        ("mfg_garnet", "has 1 players"),
        ("kuhn_poker(cards=9)", "cannot load: Unknown parameter 'cards'"),
        ("SecretMafia-v0", "does not start for two players.*between 5 and 15"),
        ("FrozenLake-v0", "does not start for two players"),
    ],
)
def test_refused_names(name, says):
    with pytest.raises(ValueError, match=says):
        make_game(name)


@pytest.mark.parametrize("name", ["tic_tac_toe", "TicTacToe-v0"])
def test_match_at_stands_after_the_given_moves(name):
    match = match_at(make_game(name), ["4", "0", "8"])
    assert match.player == 1
    assert match.history == ["4", "0", "8"]
    assert match.legal_actions() == ["1", "2", "3", "5", "6", "7"]


def test_match_at_refuses_chance_and_illegal_moves():
    with pytest.raises(ValueError, match="'kuhn_poker' has chance in it"):
        match_at(make_game("kuhn_poker"), ["bet"])
    with pytest.raises(ValueError, match="has chance in it"):
        match_at(make_game("KuhnPoker-v0"), ["bet"])
    with pytest.raises(InvalidAction, match="action '4'; legal: 0, 1"):
        match_at(make_game("tic_tac_toe"), ["4", "4"])
