"""Simple Negotiation seen from a seat, whatever the resources: random and greedy play, remarks.

Both seats start with 5 to 25 units of every resource and value a unit within 20 % of a common base,
each its own way. A match goes to the seat whose goods gained more in its own values; trades are
offered and accepted in words, so there is no list of legal moves.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from spnb.games.base import Match, sent

NEGOTIATION = "SimpleNegotiation-v0"
Goods = Mapping[str, int]
"""Units by name of the resource, or values a unit."""

TALK_SHARE = 0.1
ANSWER_SHARE = 0.8
"""Of random play's turns with an offer open and no chat: how many accept or deny; others offer."""
MOST_UNITS = 5
"""Most units asked in an offer, and given in a random one. A seat starts with 5 or more of each."""
ACCEPT = "[Accept]"
DENY = "[Deny]"
CHAT = ("Do you want {}?", "Do you have {}?", "Tell me what you need.", "What will you give me?")
"""Lines that claim nothing. None starts with "Offer": in the adapter's brackets it were one."""
FIRST_PERCENT = 60
STEP = 10
LAST_PERCENT = 90
"""Greedy play pays this much of the worth of what it asks: at first, more each turn, at most."""


@dataclass(frozen=True)
class Offer:
    """A trade proposed to the seat to move: what it would get and what it would give."""

    gets: Goods
    gives: Goods


@dataclass(frozen=True)
class Position:
    """The seat to move, its goods, their values to it, the offer just made to it if any."""

    seat: int
    stock: Goods
    values: Goods
    offer: Offer | None


def is_negotiation(name: str) -> bool:
    """Whether a game is Simple Negotiation, of whatever length and number of resources."""
    return name.split("-v")[0] == NEGOTIATION.split("-v")[0]


def position(match: Match) -> Position:
    """Reads a negotiation from the side of the seat to move.

    Only an offer made in the turn before is open here. The environment keeps a rejected one until
    the next offer or trade, and even lets its maker accept it; nothing that reads a position does.

    Raises:
        ValueError: the match is over.
    """
    state = match.game_state  # type: ignore[attr-defined]
    seat = match.player
    current = state["current_offer"]
    if seat is None:
        raise ValueError(f"{match.name}: the match is over, no seat has a position")
    offer = None
    if current and current["to_player"] == seat and "[offer" in sent(match.history[-1]).lower():
        offer = Offer(gets=current["offered_resources"], gives=current["requested_resources"])
    return Position(seat, state["player_resources"][seat], state["player_values"][seat], offer)


def worth(goods: Goods, values: Goods) -> int:
    """Total value of some goods."""
    return sum(units * values[name] for name, units in goods.items())


def affordable(here: Position) -> bool:
    """Whether the seat holds what the open offer asks; accepting without it is an invalid move."""
    gives = here.offer.gives.items() if here.offer else ()
    return here.offer is not None and all(here.stock[name] >= units for name, units in gives)


def negotiation_action(here: Position, rng: random.Random) -> str:
    """A random move that the environment takes: chat, an answer to an open offer, or an offer of
    one resource in stock for another, 1 to `MOST_UNITS` units each, all uniform."""
    if rng.random() < TALK_SHARE:
        return rng.choice(CHAT).format(rng.choice(list(here.stock)))
    if here.offer and rng.random() < ANSWER_SHARE:
        return ACCEPT if rng.random() < 0.5 and affordable(here) else DENY
    give = rng.choice([name for name, units in here.stock.items() if units])
    get = rng.choice([name for name in here.stock if name != give])
    amount = rng.randint(1, min(MOST_UNITS, here.stock[give]))
    return f"[Offer: {amount} {give} -> {rng.randint(1, MOST_UNITS)} {get}]"


def greedy_action(here: Position, turn: int) -> str:
    """Accepts an offer that it can pay and gains by; otherwise makes one (`turn`: of its own).

    Its offer is its cheapest resource in stock for its dearest: as many units, up to `MOST_UNITS`,
    as it can pay for with the part of their worth that `FIRST_PERCENT`, `STEP` and `LAST_PERCENT`
    say, so that it gains by every trade. It denies when it holds nothing cheaper than its dearest.
    """
    values = here.values
    offer = here.offer
    if offer and affordable(here) and worth(offer.gets, values) > worth(offer.gives, values):
        return ACCEPT
    dearest = max(values, key=values.__getitem__)
    stock = [name for name, units in here.stock.items() if units and values[name] < values[dearest]]
    if not stock:
        return DENY
    cheapest = min(stock, key=values.__getitem__)
    percent = min(FIRST_PERCENT + STEP * turn, LAST_PERCENT)
    for units in range(MOST_UNITS, 0, -1):
        price = percent * units * values[dearest] // (100 * values[cheapest])
        if 1 <= price <= here.stock[cheapest]:
            return f"[Offer: {price} {cheapest} -> {units} {dearest}]"
    return f"[Offer: {here.stock[cheapest]} {cheapest} -> 1 {dearest}]"


def negotiation_remark(here: Position, detail: int) -> str:
    """True words on a position. Stocks are today's, which the prompt tells only by the trades.

    Without an open offer: the seat's largest stock (detail 1), its value and the dearest resource
    (detail 2). With one: what is offered (1), what it would bring and take in own values (2).
    """
    values = here.values
    offer = here.offer
    if offer is None:
        most = max(here.stock, key=here.stock.__getitem__)
        stock = f"My largest stock is {here.stock[most]} {most}"
        name = max(values, key=values.__getitem__)
        more = f", worth {values[most]} each. My dearest is {name}, worth {values[name]} each."
        return stock + (more if detail == 2 else ".")
    sides = [", ".join(f"{n} {name}" for name, n in g.items()) for g in (offer.gets, offer.gives)]
    remark = f"Player {1 - here.seat} offers {sides[0]} for {sides[1]}."
    if detail == 1:
        return remark
    if not affordable(here):
        return f"{remark} I do not have that."
    get = worth(offer.gets, values)
    give = worth(offer.gives, values)
    change = f"{'lose' if get < give else 'gain'} {abs(get - give) or 'nothing'}"
    return f"{remark} I would get {get} and give {give}: I would {change}."
