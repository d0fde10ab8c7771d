"""Demonstrations of TextArena's SimpleNegotiation for the embedded policy: legal but unskilled trading.

Whether to offer, accept, deny or chat, and what to offer, is drawn at random without a look at any value; the remark
before the action is drawn by itself. So a policy learns to read the game, to say true things about it and to write
moves that the environment takes, and whatever it gains by self-play was not demonstrated.

A third of the answers has no remark, a third a short one, a third a full one. What a remark says of stocks is today's
count: the prompt gives only the opening stocks and the trades since, and never the other seat's goods.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spnb.embedded.demos import Demo
from spnb.games import Match, make_game
from spnb.games.text import messages

NEGOTIATION = "SimpleNegotiation-v0"
Goods = Mapping[str, int]
"""Units by name of the resource, or values a unit."""

TALK_SHARE = 0.1
ANSWER_SHARE = 0.8
"""Of the turns with an offer open to the seat and no chat: how many accept or deny; the others make an offer."""
MOST_UNITS = 5
"""Most units on one side of an offer. A seat starts with 5 or more of everything, so early requests can be met."""
ACCEPT, DENY = "[Accept]", "[Deny]"
CHAT = ("Do you want {}?", "Do you have {}?", "Tell me what you need.", "What will you give me?")
"""Lines that claim nothing. None may start with "Offer": the adapter adds the brackets that make a bad offer of it."""


@dataclass(frozen=True)
class Offer:
    """A trade proposed to the seat to move: what it would get and what it would give."""

    gets: Goods
    gives: Goods


@dataclass(frozen=True)
class Position:
    """What the seat to move has, what a unit is worth to it, and the offer just made to it, if one was."""

    seat: int
    stock: Goods
    values: Goods
    offer: Offer | None


def position(match: Match) -> Position:
    """Reads a SimpleNegotiation match from the side of the seat to move.

    Only an offer made in the turn before is open here. The environment keeps a rejected one until the next offer or
    trade, lets it be accepted later, and even lets its maker accept it; no demonstration does that.
    """
    state: dict[str, Any] = match._env.state.game_state  # type: ignore[attr-defined]
    seat, current = match.player, state["current_offer"]
    if seat is None:
        raise ValueError(f"{match.name}: the match is over, no seat has a position")
    offer = None
    if current and current["to_player"] == seat and "[offer" in match.history[-1].lower():
        offer = Offer(gets=current["offered_resources"], gives=current["requested_resources"])
    return Position(seat, state["player_resources"][seat], state["player_values"][seat], offer)


def listed(goods: Goods) -> str:
    """Goods as the environment writes them: "2 Wheat, 1 Ore"."""
    return ", ".join(f"{units} {name}" for name, units in goods.items())


def worth(goods: Goods, values: Goods) -> int:
    """Total value of some goods."""
    return sum(units * values[name] for name, units in goods.items())


def affordable(here: Position) -> bool:
    """Whether the seat holds what the open offer asks; accepting without it ends the match as an invalid move."""
    return here.offer is not None and all(here.stock[name] >= units for name, units in here.offer.gives.items())


def offer_action(stock: Goods, rng: random.Random) -> str:
    """An offer of one resource that the seat holds for another, 1 to `MOST_UNITS` units each, all uniform."""
    given = rng.choice([name for name, units in stock.items() if units])
    asked = rng.choice([name for name in stock if name != given])
    amount = rng.randint(1, min(MOST_UNITS, stock[given]))
    return f"[Offer: {amount} {given} -> {rng.randint(1, MOST_UNITS)} {asked}]"


def negotiation_action(here: Position, rng: random.Random) -> str:
    """A random move that the environment takes: chat, an answer to an open offer, or an offer."""
    if rng.random() < TALK_SHARE:
        return rng.choice(CHAT).format(rng.choice(list(here.stock)))
    if here.offer and rng.random() < ANSWER_SHARE:
        return ACCEPT if rng.random() < 0.5 and affordable(here) else DENY
    return offer_action(here.stock, rng)


def negotiation_remark(here: Position, detail: int) -> str:
    """True words on a position, never on the move to come.

    Without an open offer: the seat's largest stock (detail 1), its value and the dearest resource (detail 2). With one:
    what is offered (detail 1), what it would bring and take in the seat's own values (detail 2).
    """
    if here.offer:
        offered = f"Player {1 - here.seat} offers {listed(here.offer.gets)} for {listed(here.offer.gives)}."
        return f"{offered} {offer_verdict(here, here.offer)}" if detail == 2 else offered
    most = max(here.stock, key=lambda name: here.stock[name])
    stock = f"My largest stock is {here.stock[most]} {most}"
    if detail == 1:
        return f"{stock}."
    dearest = max(here.values, key=lambda name: here.values[name])
    return f"{stock}, worth {here.values[most]} each. My dearest is {dearest}, worth {here.values[dearest]} each."


def offer_verdict(here: Position, offer: Offer) -> str:
    """What the offer is worth to the seat: both sides and the balance, or that it cannot pay."""
    if not affordable(here):
        return "I do not have that."
    gets, gives = worth(offer.gets, here.values), worth(offer.gives, here.values)
    balance = f"gain {gets - gives}" if gets > gives else f"lose {gives - gets}" if gets < gives else "gain nothing"
    return f"I would get {gets} and give {gives}: I would {balance}."


def negotiation_demos(rng: random.Random) -> Iterator[Demo]:
    """Both seats' turns of one random match, each a demonstration; the same for the same state of `rng`."""
    match = make_game(NEGOTIATION).match(rng.getrandbits(32))
    while match.player is not None:
        here = position(match)
        action = negotiation_action(here, rng)
        detail = rng.randrange(3)
        remark = negotiation_remark(here, detail) + " " if detail else ""
        yield Demo(NEGOTIATION, messages(match), f"{remark}\\boxed{{{action}}}")
        match.play(action)
