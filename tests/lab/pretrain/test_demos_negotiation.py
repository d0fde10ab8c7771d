"""Demonstrations of negotiation: accepted by the environment, unskilled, with remarks that the
prompt bears out."""

import math
import random
import re
from collections import Counter

import pytest

from spnb.games import InvalidAction, make_game
from spnb.games.base import messages, parse_action
from spnb.games.negotiation import (
    CHAT,
    MOST_UNITS,
    NEGOTIATION,
    Offer,
    Position,
    negotiation_action,
    position,
)
from spnb.lab.pretrain.demos import game_demos

pytestmark = pytest.mark.slow
MATCHES = 200
TURNS = 11
LONGEST_PROMPT = 2500  # characters; the policies' rows have room for about that much
MADE = re.compile(
    r"Player (\d) made the following offer to Player \d: "
    r"Offered items: (.*) -> Requested items: (.*)"
)
OFFER = re.compile(r"\[Offer: (\d+) (\w+) -> (\d+) (\w+)\]")


@pytest.fixture(scope="module")
def matches():
    """The demonstrations of 200 matches, of the seeds 0 to 199."""
    return [
        list(game_demos(make_game(NEGOTIATION), random.Random(seed))) for seed in range(MATCHES)
    ]


@pytest.fixture(scope="module")
def turns(matches):
    return [(demo, read(demo), *parts(demo)) for match in matches for demo in match]


def parts(demo):
    """Remark and action of an answer."""
    return re.fullmatch(r"(?:(.+) )?\\boxed\{(.+)\}", demo.answer).groups(default="")


def goods(text):
    return {name: int(units) for units, name in re.findall(r"(\d+) (\w+)", text)}


def read(demo):
    """The position as the prompt alone tells it: opening stock, changed by each trade accepted
    since."""
    text = demo.messages[0]["content"]
    seat = int(re.search(r"You are Player (\d)", text).group(1))
    rows = re.findall(r"\[(\w+)\] +Qty: (\d+) +Value: (\d+)", text)
    stock, values = {n: int(q) for n, q, _ in rows}, {n: int(v) for n, _, v in rows}
    lines = text.split("\n\nReason step by step")[0].splitlines()
    made = None
    for line in lines:
        if found := MADE.fullmatch(line):
            made = int(found.group(1)), goods(found.group(2)), goods(found.group(3))
        elif re.fullmatch(r"Player \d accepted the trade offer from Player \d\.", line):
            maker, offered, asked = made
            sign = 1 if maker == seat else -1
            for name in stock:
                stock[name] += sign * (asked.get(name, 0) - offered.get(name, 0))
    last = MADE.fullmatch(lines[-1])
    return Position(
        seat, stock, values, Offer(made[1], made[2]) if last and made[0] != seat else None
    )


def kind(action):
    """Offer, Accept, Deny or chat."""
    found = re.match(r"\[(Offer|Accept|Deny)", action)
    return found.group(1) if found else "chat"


def value(items, values):
    return sum(units * values[name] for name, units in items.items())


def balance(here):
    """What the open offer would add to the seat's goods, in its own values."""
    return value(here.offer.gets, here.values) - value(here.offer.gives, here.values)


def within(share, expected, n, deviations=4):
    """Whether a share of n trials is within some standard errors of its expectation."""
    return abs(share - expected) <= deviations * math.sqrt(expected * (1 - expected) / n)


def assert_stock_remark(here, remark):
    said = re.fullmatch(
        r"My largest stock is (\d+) (\w+)"
        r"(?:, worth (\d+) each\. My dearest is (\w+), worth (\d+) each)?\.",
        remark,
    )
    units, most, each, dearest, price = said.groups()
    assert int(units) == here.stock[most] == max(here.stock.values())
    if each:
        assert int(each) == here.values[most]
        assert int(price) == here.values[dearest] == max(here.values.values())


def assert_offer_remark(here, remark):
    said = re.fullmatch(r"Player (\d) offers (.*?) for (.*?)\.( .*)?", remark)
    who, gets, gives, verdict = said.groups()
    assert int(who) == 1 - here.seat
    assert (goods(gets), goods(gives)) == (here.offer.gets, here.offer.gives)
    if verdict == " I do not have that.":
        assert any(here.stock[name] < units for name, units in here.offer.gives.items())
    elif verdict:
        assert all(here.stock[name] >= units for name, units in here.offer.gives.items())
        get, give, change = re.fullmatch(
            r" I would get (\d+) and give (\d+): I would (.*)\.", verdict
        ).groups()
        assert (int(get), int(give)) == (
            value(here.offer.gets, here.values),
            value(here.offer.gives, here.values),
        )
        net = balance(here)
        assert change == (
            "gain nothing" if net == 0 else f"{'gain' if net > 0 else 'lose'} {abs(net)}"
        )


def test_every_demonstrated_action_is_accepted_and_does_what_it_says(matches):
    """Replays each match from the answers' text; `play` raises where the environment refuses."""
    game = make_game(NEGOTIATION)
    for seed, demos in enumerate(matches):
        match = game.match(random.Random(seed).getrandbits(32))
        for demo in demos:
            assert demo.source == NEGOTIATION and demo.messages == messages(match)
            seat, action, trades = (
                match.player,
                parse_action(demo.answer, match.legal_actions()),
                match.game_state,
            )
            before = trades["current_offer"]
            match.play(action)
            after = trades["current_offer"]
            if kind(action) == "Offer":
                assert after["from_player"] == seat and after is not before
            elif kind(action) == "Accept":
                assert before["from_player"] == 1 - seat and after is None
            else:
                assert after == before
            held = trades["player_resources"].values()
            assert min(units for stock in held for units in stock.values()) >= 0
        assert sum(match.returns()) == 0


def test_a_match_has_eleven_turns_and_its_prompts_fit(matches):
    assert {len(match) for match in matches} == {TURNS}
    lengths = [len(demo.messages[0]["content"]) for match in matches for demo in match]
    assert max(lengths) < LONGEST_PROMPT


def test_remarks_are_true(turns):
    remarked = [(here, remark) for _, here, remark, _ in turns if remark]
    assert len(remarked) > 1000
    for here, remark in remarked:
        (assert_offer_remark if here.offer else assert_stock_remark)(here, remark)


def test_remarks_say_everything_they_can(turns):
    heard = " ".join(remark for _, _, remark, _ in turns)
    for phrase in (
        "My dearest is",
        "I would gain",
        "I would lose",
        "I do not have that",
        "Player 0 o",
        "Player 1 o",
    ):
        assert phrase in heard


def test_offers_are_of_goods_in_stock(turns):
    offers = [
        (here, OFFER.fullmatch(action).groups())
        for _, here, _, action in turns
        if kind(action) == "Offer"
    ]
    assert len(offers) > 1000
    for here, (units, given, wanted, asked) in offers:
        assert given != asked and asked in here.stock
        assert (
            1 <= int(units) <= min(MOST_UNITS, here.stock[given]) and 1 <= int(wanted) <= MOST_UNITS
        )


def test_an_offer_just_made_is_accepted_or_denied_about_equally_often(turns):
    kinds = Counter((here.offer is not None, kind(action)) for _, here, _, action in turns)
    assert set(kinds) == {(True, k) for k in ("Offer", "Accept", "Deny", "chat")} | {
        (False, "Offer"),
        (False, "chat"),
    }
    assert 0.4 < kinds[True, "Accept"] / (kinds[True, "Accept"] + kinds[True, "Deny"]) < 0.55
    assert within((kinds[True, "chat"] + kinds[False, "chat"]) / len(turns), 0.1, len(turns))


def test_offers_gain_the_offering_seat_as_often_as_not(turns):
    nets = []
    for _, here, _, action in turns:
        if found := OFFER.fullmatch(action):
            units, given, wanted, asked = found.groups()
            nets.append(int(wanted) * here.values[asked] - int(units) * here.values[given])
    gaining = [net > 0 for net in nets if net]
    assert 0.45 < sum(gaining) / len(gaining) < 0.55


def test_good_and_bad_offers_are_accepted_alike(turns):
    """Among offers the seat can pay, whatever was said of them, the same share is accepted."""
    shares = {}
    for good in (True, False):
        met = [
            kind(action) == "Accept"
            for _, here, _, action in turns
            if here.offer
            and (balance(here) > 0) == good
            and all(here.stock[name] >= units for name, units in here.offer.gives.items())
        ]
        shares[good] = sum(met) / len(met)
        assert len(met) > 300 and within(shares[good], 0.9 * 0.8 * 0.5, len(met))


def test_a_third_each_has_no_a_short_and_a_full_remark(turns):
    full = ("I would", "I do not have", "dearest")
    details = Counter(bool(said) + any(part in said for part in full) for _, _, said, _ in turns)
    assert all(within(details[detail] / len(turns), 1 / 3, len(turns)) for detail in (0, 1, 2))


def test_either_seat_wins_matches(matches):
    """The last demonstrated answer is played too, so the result is known only from a replay."""
    game, results = make_game(NEGOTIATION), Counter()
    for seed, demos in enumerate(matches):
        match = game.match(random.Random(seed).getrandbits(32))
        for demo in demos:
            match.play(parts(demo)[1])
        results[match.returns()] += 1
    assert results[1.0, -1.0] > MATCHES / 4 and results[-1.0, 1.0] > MATCHES / 4


def test_the_same_seed_gives_the_same_demonstrations(matches):
    assert list(game_demos(make_game(NEGOTIATION), random.Random(0))) == matches[0]
    assert matches[0] != matches[1]


STOCK = {"Wheat": 9, "Wood": 2, "Sheep": 6, "Brick": 9, "Ore": 5}
VALUES = {"Wheat": 5, "Wood": 9, "Sheep": 15, "Brick": 24, "Ore": 37}


def test_what_cannot_be_paid_is_never_accepted():
    here, rng = Position(1, STOCK, VALUES, Offer({"Ore": 1}, {"Wood": 3})), random.Random(2)
    assert {kind(negotiation_action(here, rng)) for _ in range(500)} == {"Offer", "Deny", "chat"}


def test_only_the_offer_of_the_turn_before_is_open():
    match = make_game(NEGOTIATION).match(4)
    for action, is_open in [
        ("[Offer: 1 Wheat -> 1 Ore]", True),
        ("[Deny]", False),
        ("Hello.", False),
    ]:
        match.play(action)
        assert (position(match).offer is not None) == is_open


@pytest.mark.parametrize("line", CHAT)
def test_chat_claims_nothing_and_is_no_offer(line):
    match = make_game(NEGOTIATION).match(4)
    match.play(line.format("Ore"))
    assert "Player 0 made no new trade offer." in match.observation()


def test_chat_that_starts_like_an_offer_would_end_the_match():
    """Why the lines of `CHAT` do not: the adapter's brackets complete the environment's pattern."""
    with pytest.raises(InvalidAction, match="incorrect format"):
        make_game(NEGOTIATION).match(4).play("Offer me something.")


def test_a_finished_match_has_no_position():
    match = make_game(NEGOTIATION).match(4)
    while match.player is not None:
        match.play("[Deny]")
    with pytest.raises(ValueError, match="the match is over"):
        position(match)
