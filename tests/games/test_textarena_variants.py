"""Larger sizes and other results: TextArena's sentences, OpenSpiel's outcomes, and what SPIRAL's
rules reward."""

import random
import re
from functools import cache

import pytest

from spnb.core.episodes import run
from spnb.games import InvalidAction, make_game, match_at
from spnb.games.exact import kuhn_equilibrium
from spnb.games.players import make_player, play_match

LARGE = "TicTacToe-v0-5x5"
OPENSPIELS = "mnk(m=5,n=5,k=4)"
EIGHT = "SimpleNegotiation-v0-8resources"


def prompt(match):
    """The rules alone, without the board."""
    return match.observation().split("Current Board:")[0]


def test_the_large_board_is_shown_as_the_small_one():
    small, large = (match_at(make_game(name), ["4"]) for name in ("TicTacToe-v0", LARGE))
    sizes = {"four in a row": "three in a row", "(0-24)": "(0-8)", "'[12]'": "'[4]'"}
    text = prompt(large)
    for larger, smaller in sizes.items():
        assert text.count(larger) == 1
        text = text.replace(larger, smaller)
    assert text == prompt(small)
    board = large.observation().removeprefix(prompt(large))
    assert board.startswith(
        "Current Board:\n\n  0 |  1 |  2 |  3 |  O \n----+----+----+----+----\n"
        "  5 |  6 |  7 |  8 |  9 \n"
    )
    assert board.endswith(
        "\n\nAvailable Moves: '[0]', '[1]', '[2]', '[3]', " + listed(range(5, 25))
    )
    assert large.player == 1 and large.legal_actions() == [
        "0",
        "1",
        "2",
        "3",
        *map(str, range(5, 25)),
    ]


def listed(cells):
    return ", ".join(f"'[{cell}]'" for cell in cells)


@pytest.mark.parametrize("name", [LARGE, OPENSPIELS])
@pytest.mark.parametrize(
    ("moves", "returns"),
    [
        ([0, 5, 1, 6, 2, 7, 3], (1, -1)),  # a row of the first seat
        ([0, 4, 1, 9, 2, 14, 8, 19], (-1, 1)),  # a column of the second; the first has only three
        ([6, 0, 12, 1, 18, 2, 24], (1, -1)),  # a diagonal that touches no corner but one
        ([3, 0, 7, 1, 11, 2, 15], (1, -1)),  # the other direction, off the middle
    ],
)
def test_four_in_a_line_win_on_the_large_board(name, moves, returns):
    match = match_at(make_game(name), [str(move) for move in moves])
    assert match.player is None and match.returns() == returns


@pytest.mark.parametrize("name", [LARGE, OPENSPIELS])
def test_a_line_does_not_go_around_the_edge(name):
    assert match_at(make_game(name), [str(move) for move in [3, 10, 4, 12, 5, 16, 6]]).player == 1


@pytest.mark.slow
def test_the_large_boards_of_both_libraries_agree_on_random_games():
    ours, theirs, results = make_game(LARGE), make_game(OPENSPIELS), []
    for seed in range(60):
        rng, first, second = random.Random(seed), ours.match(0), theirs.match(0)
        while first.player is not None:
            assert first.player == second.player and first.legal_actions() == second.legal_actions()
            action = rng.choice(first.legal_actions())
            first.play(action)
            second.play(action)
        assert second.player is None and first.returns() == second.returns()
        results.append(first.returns()[0])
    assert {1.0, -1.0} <= set(results)


def test_a_taken_cell_of_the_large_board_is_refused():
    match = match_at(make_game(LARGE), ["24"])
    with pytest.raises(InvalidAction, match="action '24'; legal: 0, 1"):
        match.play("24")


def test_eight_resources_are_shown_as_five():
    five, eight = (
        make_game(name).match(7).observation() for name in ("SimpleNegotiation-v0", EIGHT)
    )
    rows = [re.findall(r"\[(\w+)\] +Qty: (\d+) +Value: (\d+)", text) for text in (five, eight)]
    assert [name for name, _, _ in rows[0]] == ["Wheat", "Wood", "Sheep", "Brick", "Ore"]
    assert [name for name, _, _ in rows[1]] == [
        "Wheat",
        "Wood",
        "Sheep",
        "Brick",
        "Ore",
        "Stone",
        "Coal",
        "Cloth",
    ]
    plain = [[line for line in text.splitlines() if "Qty" not in line] for text in (five, eight)]
    assert plain[0] == plain[1]


def test_eight_resources_have_values_within_a_fifth_of_their_base():
    base = {"Stone": (16, 24), "Coal": (24, 36), "Cloth": (28, 40)}
    seen = {name: set() for name in base}
    for seed in range(100):
        match = make_game(EIGHT).match(seed)
        for values in match.game_state["player_values"].values():
            for name in base:
                seen[name].add(values[name])
        assert all(
            5 <= units <= 25
            for stock in match.game_state["player_resources"].values()
            for units in stock.values()
        )
    assert {name: (min(values), max(values)) for name, values in seen.items()} == base


def test_the_new_resources_are_traded_and_count():
    match = make_game(EIGHT).match(7)
    values = [dict(values) for values in match.game_state["player_values"].values()]
    for action in ("[Offer: 2 Stone -> 1 Cloth]", "[Accept]", *["[Deny]"] * 9):
        match.play(action)
    gain = [match.game_state["inventory_value"][seat]["change"] for seat in (0, 1)]
    assert gain == [
        values[0]["Cloth"] - 2 * values[0]["Stone"],
        2 * values[1]["Stone"] - values[1]["Cloth"],
    ]
    assert match.returns()[0] == (gain[0] > gain[1]) - (gain[0] < gain[1])


# Kuhn poker as TextArena and SPIRAL have it, played by rule.

cached_game = cache(make_game)


def never_fold(match, rng):
    return match.legal_actions()[-1] if "call" in match.legal_actions() else "bet"


def uniform(match, rng):
    return rng.choice(match.legal_actions())


def last_round_only(match, rng):
    return (
        never_fold(match, rng)
        if match.game_state["current_round"] == 5
        else match.legal_actions()[0]
    )


def equilibrium(match, rng):
    """The equilibrium of real Kuhn poker, by the card and the actions of this round."""
    marks = ""
    for action in match.history:
        marks += "b" if action in ("bet", "call") else "p"
        if action in ("fold", "call") or marks == "pp":
            marks = ""
    _, bet = kuhn_equilibrium()[f"{match.game_state['player_cards'][match.player]}{marks}"]
    passing, betting = ("fold", "call") if "call" in match.legal_actions() else ("check", "bet")
    return betting if rng.random() < bet else passing


def finished(name, first, second, seed):
    """A match of two rules by seat, played to its end."""
    match, rng = cached_game(name).match(seed), random.Random(seed)
    while match.player is not None:
        match.play((first, second)[match.player](match, rng))
    return match


def share_won(name, rule, opponent, n=400):
    """Share of matches that `rule` wins, half of them in each seat; no match of an odd number of
    rounds is a draw."""
    won = 0
    for seed in range(n):
        seats = (rule, opponent) if seed % 2 == 0 else (opponent, rule)
        won += finished(name, *seats, seed).returns()[seed % 2] == 1
    return won / n


@pytest.mark.parametrize(
    ("name", "rule", "opponent", "share"),
    [
        ("KuhnPoker-v0-short", never_fold, uniform, 0.84),
        ("KuhnPoker-v0-short", never_fold, equilibrium, 0.67),
        ("KuhnPoker-v0-short", equilibrium, uniform, 0.49),
        ("KuhnPoker-v1", never_fold, uniform, 0.69),
        ("KuhnPoker-v1", last_round_only, uniform, 0.69),
        ("KuhnPoker-v1", last_round_only, never_fold, 0.50),
    ],
)
@pytest.mark.slow
def test_what_the_other_kuhn_pokers_reward(name, rule, opponent, share):
    """400 matches, so a standard error of at most 0.025; the shares are of 4,000 matches each."""
    assert share_won(name, rule, opponent) == pytest.approx(share, abs=0.075)


@pytest.mark.parametrize(("name", "share"), [("KuhnPoker-v1", 0.29), ("KuhnPoker-v0-short", 0)])
@pytest.mark.slow
def test_the_last_round_decides_against_the_chips(name, share):
    """Of random matches, three in ten go to the seat with fewer chips; by TextArena's own rules
    none does."""
    upsets = 0
    for seed in range(300):
        match = finished(name, uniform, uniform, seed)
        chips = match.game_state["player_chips"]
        upsets += (chips[0] > chips[1]) != (match.returns()[0] == 1)
    assert upsets / 300 == pytest.approx(share, abs=0.08)


def test_the_seat_that_gave_four_rounds_away_wins_by_the_fifth():
    """Seat 1 folds four rounds to bets and calls in the fifth, which a showdown decides: it never
    leads in chips."""
    returns = set()
    for seed in range(20):
        match = finished("KuhnPoker-v1", never_fold, last_round_only, seed)
        chips = match.game_state["player_chips"]
        assert chips[0] > chips[1] and match.history[-1] == "call"
        returns.add(match.returns())
    assert returns == {(1.0, -1.0), (-1.0, 1.0)}


def test_spirals_kuhn_poker_reads_as_textarenas():
    texts = [
        make_game(name).match(3).observation() for name in ("KuhnPoker-v1", "KuhnPoker-v0-short")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", [LARGE, EIGHT, "KuhnPoker-v1", "kuhn_poker_5cards", OPENSPIELS])
def test_random_players_finish_a_variant_and_follow_the_seed(name):
    game, players = make_game(name), (make_player("random"), make_player("random"))
    played = [run(play_match(game, players, seed), {}) for seed in (0, 0, 1)]
    assert played[0] == played[1] != played[2]
    assert all(match.invalid_seat is None and sum(match.returns) == 0 for match in played)
