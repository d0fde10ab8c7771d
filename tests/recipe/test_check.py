"""Measures of the embedded policy: each on hand-made answers, then all of them on the policy that
ships."""

import pytest
from transformers import AutoModelForCausalLM

from spnb.core.types import Completion
from spnb.games import make_game, match_at
from spnb.games.exact import decision_positions, kuhn_states, move_values
from spnb.games.negotiation import NEGOTIATION, position
from spnb.recipe import check
from spnb.recipe.demos import KUHN, LARGE_BOARD, OTHER_POKER, TICTACTOE, TICTACTOE_PLAIN
from spnb.testbed import embedded_path

GAMES = (KUHN, TICTACTOE, TICTACTOE_PLAIN)
COUNT = 150


@pytest.fixture(scope="module")
def found(tokenizer):
    """The shipped policy's report."""
    return check.report(
        AutoModelForCausalLM.from_pretrained(embedded_path("games")), tokenizer, count=COUNT
    )


def value(found, measure):
    """The rows of a measure by game."""
    return found[found["measure"] == measure].set_index("game")


def test_chance_is_the_share_of_optimal_moves_in_uniform_play():
    tables = [list(move_values(history).values()) for history in decision_positions()]
    share = sum(values.count(max(values)) / len(values) for values in tables) / len(tables)
    assert share == pytest.approx(check.CHANCE_OPTIMAL, abs=5e-4)


@pytest.mark.parametrize("name", GAMES)
def test_positions_have_a_seat_to_move_and_follow_the_seed(name):
    matches = check.positions(name, 60, seed=1)
    assert len(matches) == 60 and {match.player for match in matches} == {0, 1}
    assert (
        len({tuple(match.history) for match in matches}) >= 4
    )  # Kuhn poker has no more: none, check, bet, check bet
    seen = [match.observation() for match in matches]
    assert seen == [match.observation() for match in check.positions(name, 60, seed=1)]
    assert seen != [match.observation() for match in check.positions(name, 60, seed=2)]


class Always:
    """An engine that gives one answer."""

    def __init__(self, tokenizer, text):
        self.tokenizer, self.text = tokenizer, text

    def generate(self, requests):
        return [Completion((0,), (0.0,), self.text, "stop") for _ in requests]


def test_answers_stand_beside_the_positions_they_were_given_at(tokenizer):
    given = check.answers(Always(tokenizer, r"\boxed{4}"), TICTACTOE_PLAIN, 20, seed=0)
    assert [text for _, text in given] == [r"\boxed{4}"] * 20
    expected = check.positions(TICTACTOE_PLAIN, 20, seed=0)
    assert [match.history for match, _ in given] == [match.history for match in expected]


KING = kuhn_states()[2].match
THREAT = match_at(
    make_game("tic_tac_toe"), ["0", "4", "1", "8"]
)  # x has 0 and 1, o has 4 and 8; x to move


@pytest.mark.parametrize(
    ("match", "text", "expected"),
    [
        (KING, r"\boxed{bet}", (0, True)),
        (KING, r"My card is K, the highest. \boxed{bet}", (1, True)),
        (KING, r"My card is Q, the middle. \boxed{bet}", (1, False)),
        (
            KING,
            r"My card is K, the highest. A check risks 1, a bet risks 2. \boxed{bet}",
            (2, True),
        ),
        (
            KING,
            r"My card is K, the highest. A fold loses 1, a call risks 2. \boxed{bet}",
            (2, False),
        ),
        (THREAT, r"\boxed{2}", (0, True)),
        (THREAT, r"I can win at 2. \boxed{3}", (1, True)),
        (THREAT, r"No line is open. \boxed{3}", (1, False)),
        (THREAT, r"Mine: 0 1. Theirs: 4 8. I can win at 2. \boxed{3}", (2, True)),
        (THREAT, r"Mine: 0 2. Theirs: 4 8. I can win at 2. \boxed{3}", (2, False)),
        (THREAT, "Mine: 0 1. Theirs: 4 8. I can win at 2.", (2, True)),
    ],
)
def test_remarks_are_graded_word_for_word(match, text, expected):
    assert check.remark_detail(match, text) == expected


def test_the_report_has_a_row_a_measure_with_an_interval(found):
    assert set(found.columns) == {"game", "measure", "value", "low", "high", "n", "compare"}
    played = ["legal moves", "short remark true", "full remark true", "utility against random play"]
    expected = [(KUHN, measure) for measure in (*played, "exploitability")]
    expected += [
        (game, measure) for game in (TICTACTOE, TICTACTOE_PLAIN) for measure in (*played, "optimal")
    ]
    expected += [(NEGOTIATION, measure) for measure in played]
    expected += [
        (game, measure) for game in (OTHER_POKER, LARGE_BOARD) for measure in (played[0], played[3])
    ]
    expected += [("questions", measure) for measure in ("all", "line", "card", "chips", "count")]
    assert sorted(zip(found["game"], found["measure"], strict=True)) == sorted(expected)
    assert found[["value", "low", "high", "n"]].notna().all(axis=None)
    inside = found[
        found["measure"] != "exploitability"
    ]  # a plug-in figure may leave its bootstrap interval
    assert (inside["low"] <= inside["value"]).all() and (inside["value"] <= inside["high"]).all()
    assert value(found, "legal moves")["n"].tolist() == [COUNT] * 6
    assert value(found, "all")["n"].tolist() == [COUNT]
    assert value(found, "exploitability")["n"].tolist() == [COUNT // 12]
    assert value(found, "legal moves")["compare"].tolist() == ["bar 0.98"] * 6
    assert set(found[found["game"] == "questions"]["compare"]) == {""}


def test_the_shipped_policy_plays_legally_and_no_better_than_chance(found):
    """Loose gates for 150 answers; the notebook about the embedded policy measures a thousand."""
    legal = value(found, "legal moves")["value"]
    assert (legal.drop(LARGE_BOARD) >= 0.95).all() and legal[LARGE_BOARD] > 0.75
    assert (value(found, "utility against random play")["low"] <= 0).all()


def test_the_shipped_policy_remarks_and_does_not_say_the_same_always(found):
    for measure in ("short remark true", "full remark true"):
        assert value(found, measure)["n"].between(COUNT // 8, COUNT // 2).all()


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("[Offer: 1 Ore -> 2 Wood]", True),
        ("Do you want Ore?", True),
        ("Tell me what you need.", True),
        ("Do you want?", False),
        ("[Accept]", False),  # nothing is on offer
        ("4", False),
    ],
)
def test_a_negotiators_turn_is_an_offer_a_reply_or_a_line_of_chat(action, expected):
    match = make_game(NEGOTIATION).match(1)
    assert check.is_trade(action, position(match)) is expected
    match.play("[Offer: 1 Ore -> 2 Wood]")
    assert check.is_trade(action, position(match)) is (expected or action == "[Accept]")
