"""What demonstrations of TextArena's SimpleNegotiation remark before a move, whatever the move will
be.

What a remark says of stocks is today's count: the prompt gives only the opening stocks and the
trades since, and never the other seat's goods.
"""

from spnb.games.negotiation import Goods, Offer, Position, affordable, worth


def listed(goods: Goods) -> str:
    """Goods as the environment writes them: "2 Wheat, 1 Ore"."""
    return ", ".join(f"{units} {name}" for name, units in goods.items())


def negotiation_remark(here: Position, detail: int) -> str:
    """True words on a position, never on the move to come.

    Without an open offer: the seat's largest stock (detail 1), its value and the dearest resource
    (detail 2). With one: what is offered (detail 1), what it would bring and take in the seat's own
    values (detail 2).
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
    balance = (
        f"gain {gets - gives}"
        if gets > gives
        else f"lose {gives - gets}"
        if gets < gives
        else "gain nothing"
    )
    return f"I would get {gets} and give {gives}: I would {balance}."
