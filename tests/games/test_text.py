"""Prompts and answers: two sentences around the observation, and which answers count as an
action."""

import pytest

from spnb.games import make_game
from spnb.games.text import INVALID_PENALTY, messages, parse_action

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
    ],
)
def test_parse_action_in_free_text(text, action):
    assert parse_action(text, None) == action


def test_the_penalty_is_worse_than_the_worst_legal_loss():
    assert INVALID_PENALTY > 1
