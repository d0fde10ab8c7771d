"""Measures of the embedded policy: each on hand-made answers, then all of them on the policy that
ships."""

import pytest
from transformers import AutoModelForCausalLM

from spnb.core.types import Chat, Completion
from spnb.evaluate.items import play_suite
from spnb.games import make_game, match_at
from spnb.games.exact import decision_positions, kuhn_states, move_values
from spnb.games.negotiation import NEGOTIATION
from spnb.lab import embedded_path
from spnb.lab.pretrain import skills
from spnb.lab.pretrain.demos import (
    GAME_SHARES,
    KUHN,
    LARGE_BOARD,
    OTHER_POKER,
    TICTACTOE,
    TICTACTOE_PLAIN,
)
from spnb.lab.pretrain.recipes import TABLES
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy

GAMES = (KUHN, TICTACTOE, TICTACTOE_PLAIN)
COUNT = 96


@pytest.fixture(scope="module")
def measured(tokenizer):
    """The shipped policy's report."""
    model = AutoModelForCausalLM.from_pretrained(embedded_path("games"))
    suites = skills.game_skills(Chat(tokenizer), COUNT)
    return skills.measure_games(TorchEngine(model, tokenizer), suites)


def rows_of(table, metric):
    """The rows of a metric by game, or by difficulty."""
    return table[table["metric"] == metric].set_index("suite")


def test_chance_is_the_share_of_optimal_moves_in_uniform_play():
    tables = [list(move_values(history).values()) for history in decision_positions()]
    share = sum(values.count(max(values)) / len(values) for values in tables) / len(tables)
    assert share == pytest.approx(skills.CHANCE_OPTIMAL, abs=5e-4)


@pytest.mark.parametrize("name", GAMES)
def test_positions_have_a_seat_to_move_and_follow_the_seed(name):
    matches = skills.positions(name, 60, seed=1)
    assert len(matches) == 60 and {match.player for match in matches} == {0, 1}
    assert (
        len({tuple(match.history) for match in matches}) >= 4
    )  # Kuhn poker has no more: none, check, bet, check bet
    seen = [match.observation() for match in matches]
    assert seen == [match.observation() for match in skills.positions(name, 60, seed=1)]
    assert seen != [match.observation() for match in skills.positions(name, 60, seed=2)]


class Always:
    """An engine that gives one answer."""

    def __init__(self, text):
        self.text = text

    def generate(self, requests):
        return [Completion((0,), (0.0,), self.text, "stop") for _ in requests]


def test_moves_are_graded_at_the_positions_they_are_asked_for(tokenizer):
    suite = skills.moves(TICTACTOE_PLAIN, Chat(tokenizer), 40, seed=0)
    records, rows = play_suite(suite, {"policy": Always(r"I can win at 4. \boxed{4}")})
    free = ["4" in match.legal_actions() for match in skills.positions(TICTACTOE_PLAIN, 40, seed=0)]
    assert [one["score"] for one in records] == list(map(float, free)) and 0 < sum(free) < 40
    found = {row["metric"]: row for row in rows}
    assert found["legal moves"]["value"] == sum(free) / 40
    assert found["short remark true"]["n"] == 40 and found["full remark true"]["n"] == 0
    assert 0 < found["short remark true"]["value"] < 1


KING = kuhn_states()["2"]
THREAT = match_at(
    make_game("tic_tac_toe"), ["0", "4", "1", "8"]
)  # x has 0 and 1, o has 4 and 8; x to move


@pytest.mark.parametrize(
    ("match", "text", "expected"),
    [
        (KING, r"\boxed{bet}", ("none", True)),
        (KING, r"My card is K, the highest. \boxed{bet}", ("short", True)),
        (KING, r"My card is Q, the middle. \boxed{bet}", ("short", False)),
        (
            KING,
            r"My card is K, the highest. A check risks 1, a bet risks 2. \boxed{bet}",
            ("full", True),
        ),
        (
            KING,
            r"My card is K, the highest. A fold loses 1, a call risks 2. \boxed{bet}",
            ("full", False),
        ),
        (THREAT, r"\boxed{2}", ("none", True)),
        (THREAT, r"I can win at 2. \boxed{3}", ("short", True)),
        (THREAT, r"No line is open. \boxed{3}", ("short", False)),
        (THREAT, r"Mine: 0 1. Theirs: 4 8. I can win at 2. \boxed{3}", ("full", True)),
        (THREAT, r"Mine: 0 2. Theirs: 4 8. I can win at 2. \boxed{3}", ("full", False)),
        (THREAT, "Mine: 0 1. Theirs: 4 8. I can win at 2.", ("full", True)),
    ],
)
def test_remarks_are_graded_word_for_word(match, text, expected):
    assert skills.remark_of(match, text) == expected


@pytest.mark.slow
def test_the_report_has_a_row_a_metric_with_an_interval(measured):
    columns = ["suite", "metric", "difficulty", "value", "low", "high", "n", "compare"]
    assert list(measured.columns) == columns
    played = ["legal moves", "short remark true", "full remark true", "utility"]
    metrics = {KUHN: [*played, "exploitability"], NEGOTIATION: played}
    metrics |= dict.fromkeys((TICTACTOE, TICTACTOE_PLAIN), [*played, "optimal"])
    metrics |= dict.fromkeys((OTHER_POKER, LARGE_BOARD), ["legal moves", "utility"])
    expected = [(game, metric, "") for game, names in metrics.items() for metric in names]
    kinds = ("", "line", "card", "chips", "count")
    expected += [("transfer", "accuracy", kind) for kind in kinds]
    labels = measured[["suite", "metric", "difficulty"]].itertuples(index=False, name=None)
    assert sorted(labels) == sorted(expected)
    assert measured[["value", "low", "high", "n"]].notna().all(axis=None)
    # A plug-in figure may leave its bootstrap interval.
    inside = measured[measured["metric"] != "exploitability"]
    assert (inside["low"] <= inside["value"]).all() and (inside["value"] <= inside["high"]).all()
    assert rows_of(measured, "legal moves")["n"].tolist() == [COUNT] * 6
    assert rows_of(measured, "accuracy")["n"].tolist()[0] == COUNT
    assert rows_of(measured, "exploitability")["n"].tolist() == [COUNT // 12 * 12]
    assert rows_of(measured, "legal moves")["compare"].tolist() == ["bar 0.98"] * 6
    assert set(rows_of(measured, "accuracy")["compare"]) == {""}


@pytest.mark.slow
def test_the_shipped_policy_plays_legally_and_no_better_than_chance(measured):
    """Loose gates for 96 answers; the notebook about the embedded policy measures a thousand."""
    check_gates("games", rows_of(measured, "legal moves")["value"])
    assert (rows_of(measured, "utility")["low"] <= 0).all()


@pytest.mark.slow
def test_the_rival_plays_mostly_legally():
    policy = load_policy("embedded/games-rival")
    suites = [skills.moves(name, Chat(policy.tokenizer), COUNT, 0) for name in GAME_SHARES]
    found = skills.measure_games(policy.engine(), suites)
    check_gates("games-rival", rows_of(found, "legal moves")["value"])


def check_gates(name, legal):
    """Legal moves by game beside the least shares of `recipes.yaml`."""
    least = {game: gate["legal moves"] for game, gate in TABLES["gates"][name].items()}
    assert sorted(least) == sorted(legal.index)
    assert all(legal[game] >= share for game, share in least.items()), legal


@pytest.mark.slow
def test_the_shipped_policy_remarks_and_does_not_say_the_same_always(measured):
    for metric in ("short remark true", "full remark true"):
        assert rows_of(measured, metric)["n"].between(COUNT // 8, COUNT // 2).all()


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
    assert skills.is_trade(action, match) is expected
    match.play("[Offer: 1 Ore -> 2 Wood]")
    assert skills.is_trade(action, match) is (expected or action == "[Accept]")
