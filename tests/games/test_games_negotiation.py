"""Simple Negotiation: gains by hand, positions, and two ways to play it."""

import random
import re

import pytest

from spnb.core.episodes import run
from spnb.core.stats import share_interval
from spnb.games import make_game
from spnb.games.negotiation import (
    ACCEPT,
    DENY,
    Offer,
    Position,
    affordable,
    greedy_action,
    is_negotiation,
    negotiation_action,
    negotiation_remark,
    position,
    worth,
)
from spnb.games.players import make_player, play_match

STOCK = {"Wheat": 9, "Wood": 2, "Sheep": 6, "Brick": 9, "Ore": 5}
VALUES = {"Wheat": 5, "Wood": 9, "Sheep": 15, "Brick": 24, "Ore": 37}


def negotiated(*actions, seed=7):
    """A match after the actions. With seed 7 a unit is worth, to seats 0 and 1: wheat 5, 6; wood
    12, 11; ore 33, 33."""
    match = make_game("SimpleNegotiation-v0").match(seed)
    for action in actions:
        match.play(action)
    return match


def gains(match):
    return tuple(match.game_state["inventory_value"][seat]["change"] for seat in (0, 1))


def test_valuations_come_from_the_seed_and_differ_by_seat():
    values = [negotiated(seed=seed).game_state["player_values"] for seed in (7, 7, 8)]
    assert values[0] == values[1] != values[2]
    assert [values[0][seat][name] for seat in (0, 1) for name in ("Wheat", "Wood", "Ore")] == [
        5,
        12,
        33,
        6,
        11,
        33,
    ]


@pytest.mark.parametrize(
    ("actions", "gained", "returns"),
    [
        (["[Offer: 1 Wheat -> 1 Ore]", "[Accept]"], (28, -27), (1, -1)),  # 33 - 5 and 6 - 33
        (
            ["[Offer: 2 Wheat -> 1 Wood]", "[Accept]"],
            (2, 1),
            (1, -1),
        ),  # 12 - 10 and 12 - 11: both gain
        (
            ["[Offer: 9 Wheat, 1 Wood -> 2 Ore]", "[Accept]"],
            (9, -1),
            (1, -1),
        ),  # 66 - 57 and 65 - 66
        (
            ["Hello.", "[Offer: 2 Wheat -> 1 Wood]", "[Accept]"],
            (-2, -1),
            (-1, 1),
        ),  # 10 - 12 and 11 - 12: both lose
        (["[Offer: 1 Ore -> 1 Ore]", "[Accept]"], (0, 0), (0, 0)),
        (
            ["[Offer: 2 Wheat -> 1 Wood]", "[Accept]", "[Offer: 1 Wood -> 1 Wood]", "[Accept]"],
            (2, 1),
            (1, -1),
        ),
        (["[Offer: 1 Wheat -> 1 Ore]", "[Deny]"], (0, 0), (0, 0)),
    ],
)
def test_the_outcome_is_the_sign_of_the_difference_of_gains(actions, gained, returns):
    match = negotiated(*actions)
    while match.player is not None:
        match.play("Let us stop here.")
    assert gains(match) == gained
    assert match.returns() == returns


def test_a_position_is_what_the_seat_to_move_knows():
    match = negotiated("I need ore. [Offer: 1 Wheat -> 2 Ore]")
    here = position(match)
    assert here.seat == 1 and here.offer == Offer(gets={"Wheat": 1}, gives={"Ore": 2})
    assert (here.stock["Wheat"], here.values["Wheat"]) == (7, 6)
    assert (
        f"[Wheat]   Qty: {here.stock['Wheat']}    Value: {here.values['Wheat']}"
        in match.observation()
    )


@pytest.mark.parametrize("text", ["Offer: 1 Wheat -> 2 Ore", "offer 1 Wheat -> 2 Ore"])
def test_an_offer_in_a_box_needs_no_square_brackets(text):
    """TextArena gets them added, and scripted players see what it sees."""
    here = position(negotiated(text))
    assert here.offer == Offer(gets={"Wheat": 1}, gives={"Ore": 2})
    later = position(negotiated(text, "[I have no ore.]", "Then not."))
    assert later.offer is None


def test_worth_and_what_can_be_paid():
    assert worth({"Wheat": 3, "Ore": 2}, VALUES) == 3 * 5 + 2 * 37
    here = Position(0, STOCK, VALUES, Offer({"Ore": 1}, {"Wood": 2}))
    assert affordable(here)
    assert not affordable(Position(0, STOCK, VALUES, Offer({"Ore": 1}, {"Wood": 3})))
    assert not affordable(Position(0, STOCK, VALUES, None))


@pytest.mark.parametrize(
    ("offer", "answer"),
    [
        (Offer({"Ore": 1}, {"Wheat": 7}), ACCEPT),  # 37 for 35
        (Offer({"Wheat": 3}, {"Sheep": 1}), "offer"),  # 15 for 15
        (Offer({"Ore": 1}, {"Wheat": 8}), "offer"),  # 37 for 40
        (Offer({"Ore": 1}, {"Wood": 3}), "offer"),  # a gain, but it has only two
        (None, "offer"),
    ],
)
def test_greedy_accepts_what_it_can_pay_and_gains_by(offer, answer):
    action = greedy_action(Position(0, STOCK, VALUES, offer), turn=0)
    assert action == (ACCEPT if answer == ACCEPT else "[Offer: 8 Wheat -> 2 Ore]")


@pytest.mark.parametrize(
    ("turn", "wheat", "action"),
    [
        (0, 25, "[Offer: 22 Wheat -> 5 Ore]"),  # 60 % of 185 is 111: 22 wheat of 5
        (1, 25, "[Offer: 25 Wheat -> 5 Ore]"),  # 70 % of 185 is 129.5
        (2, 25, "[Offer: 23 Wheat -> 4 Ore]"),  # 80 % of 148 is 118.4; five ore would cost 29
        (3, 25, "[Offer: 19 Wheat -> 3 Ore]"),  # 90 % of 111 is 99.9; four ore would cost 26
        (9, 25, "[Offer: 19 Wheat -> 3 Ore]"),  # never more than 90 %
        (0, 3, "[Offer: 3 Wheat -> 1 Ore]"),  # one ore is worth 4 wheat at 60 %: all it has
        (0, 0, "[Offer: 2 Wood -> 1 Ore]"),  # then wood: 22.2 of 37, two of 9
    ],
)
def test_greedy_offers_its_cheapest_for_its_dearest_and_concedes(turn, wheat, action):
    assert greedy_action(Position(0, STOCK | {"Wheat": wheat}, VALUES, None), turn) == action


def test_greedy_concedes_with_each_turn_of_its_own():
    match = negotiated(*["Hello."] * 4)
    action = run(make_player("greedy").move(match, 0), {}).action
    offers = [greedy_action(position(match), turn) for turn in range(5)]
    assert action == offers[2] not in (offers[0], offers[1])
    match = negotiated(*["Hello."] * 2)
    action = run(make_player("greedy").move(match, 0), {}).action
    assert action == offers[1] != offers[2]


def test_greedy_denies_when_it_has_nothing_cheaper_to_give():
    stock = dict.fromkeys(STOCK, 0) | {"Ore": 5}
    assert greedy_action(Position(0, stock, VALUES, None), turn=0) == DENY


@pytest.mark.parametrize("name", ["SimpleNegotiation-v0", "SimpleNegotiation-v0-8resources"])
@pytest.mark.slow
def test_greedy_beats_random_and_never_trades_at_a_loss(name):
    game, players = make_game(name), (make_player("greedy"), make_player("random"))
    matches = [run(play_match(game, players[:: 1 - 2 * (n % 2)], n), {}) for n in range(120)]
    wins = sum(match.outcome(n % 2) == "win" for n, match in enumerate(matches))
    assert share_interval(wins, 120)[0] > 0.8
    assert {match.invalid_seat for match in matches} == {None}
    for seed in range(20):
        match, rng = game.match(seed), random.Random(seed)
        gain = 0
        while match.player is not None:
            action = run(players[match.player].move(match, rng.getrandbits(32)), {}).action
            match.play(action)
            assert gains(match)[0] >= gain
            gain = gains(match)[0]


def test_greedy_players_find_trades_that_gain_both():
    game, greedy = make_game("SimpleNegotiation-v0"), make_player("greedy")
    both = 0
    for seed in range(40):
        match = game.match(seed)
        while match.player is not None:
            match.play(run(greedy.move(match, 0), {}).action)
        assert min(gains(match)) >= 0
        both += min(gains(match)) > 0
    assert both > 5


@pytest.mark.parametrize(
    "players", [("greedy", "greedy"), ("greedy", "random"), ("random", "random")]
)
def test_equal_seeds_give_equal_negotiations(players):
    game, seats = make_game("SimpleNegotiation-v0"), tuple(make_player(name) for name in players)
    first, again, other = (run(play_match(game, seats, seed), {}) for seed in (3, 3, 4))
    assert first == again != other
    assert first.invalid_seat is None and len(first.turns) == 11


def test_random_offers_are_of_up_to_five_units_in_stock():
    here, rng = Position(0, STOCK, VALUES, None), random.Random(0)
    given, asked = {name: set() for name in STOCK}, set()
    for _ in range(600):
        if found := re.fullmatch(
            r"\[Offer: (\d) (\w+) -> (\d) (\w+)\]", negotiation_action(here, rng)
        ):
            assert found[2] != found[4]
            given[found[2]].add(int(found[1]))
            asked.add(int(found[3]))
    five = {1, 2, 3, 4, 5}
    assert given == dict.fromkeys(STOCK, five) | {"Wood": {1, 2}} and asked == five


def test_negotiation_names():
    names = ("SimpleNegotiation-v0", "SimpleNegotiation-v0-long", "SimpleNegotiation-v0-8resources")
    assert all(is_negotiation(name) for name in names)
    assert not is_negotiation("Negotiation-v0") and not is_negotiation("kuhn_poker")


@pytest.mark.parametrize(
    ("offer", "detail", "remark"),
    [
        (None, 1, "My largest stock is 9 Wheat."),
        (None, 2, "My largest stock is 9 Wheat, worth 5 each. My dearest is Ore, worth 37 each."),
        (Offer({"Ore": 2}, {"Sheep": 4}), 1, "Player 0 offers 2 Ore for 4 Sheep."),
        (
            Offer({"Ore": 2}, {"Sheep": 4}),  # 74 - 60
            2,
            "Player 0 offers 2 Ore for 4 Sheep. I would get 74 and give 60: I would gain 14.",
        ),
        (
            Offer({"Wheat": 1, "Wood": 1}, {"Brick": 1}),  # 14 - 24
            2,
            "Player 0 offers 1 Wheat, 1 Wood for 1 Brick. "
            "I would get 14 and give 24: I would lose 10.",
        ),
        (
            Offer({"Wheat": 3}, {"Sheep": 1}),  # 15 - 15
            2,
            "Player 0 offers 3 Wheat for 1 Sheep. "
            "I would get 15 and give 15: I would gain nothing.",
        ),
        (
            Offer({"Ore": 1}, {"Wood": 3}),
            2,
            "Player 0 offers 1 Ore for 3 Wood. I do not have that.",
        ),
    ],
)
def test_remarks_by_hand(offer, detail, remark):
    assert negotiation_remark(Position(1, STOCK, VALUES, offer), detail) == remark
