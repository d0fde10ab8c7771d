"""Demonstrated turns: a true remark on the position or none, then the boxed move.

Remarks say what a prompt bears out and nothing about the move to come.
"""

import itertools
import random
from collections.abc import Callable, Iterator

from spnb.core.episodes import run
from spnb.core.types import Messages, derive_seed
from spnb.games.base import Game, Match, messages
from spnb.games.negotiation import NEGOTIATION, negotiation_remark, position
from spnb.games.players import TICTACTOE_GAMES, Player, make_player
from spnb.games.questions import completing_cells

RANKS = {"J": "lowest", "Q": "middle", "K": "highest"}


def kuhn_remark(match: Match, detail: int) -> str:
    """The card of the seat to move (detail 1), and what a showdown may cost (detail 2)."""
    card = "JQK"[match.state.history()[match.player]]  # type: ignore[attr-defined]
    remark = f"My card is {card}, the {RANKS[card]}."
    moves = "fold loses 1, a call" if "call" in match.legal_actions() else "check risks 1, a bet"
    return remark if detail == 1 else f"{remark} A {moves} risks 2."


def tictactoe_remark(match: Match, detail: int) -> str:
    """Who can complete a line where (detail 1), after both sides' cells (detail 2)."""
    cells = ["."] * 9  # where free, else the number (0, 1) of the seat that took it
    for turn, action in enumerate(match.history):
        cells[int(action)] = str(turn % 2)
    sides = {"Mine:": str(match.player), "Theirs:": str(1 - match.player)}
    wins, threats = (completing_cells(cells, mark) for mark in sides.values())
    parts = []
    for side, mark in sides.items() if detail == 2 else ():
        taken = " ".join(str(cell) for cell in range(9) if cells[cell] == mark)
        parts.append(f"{side} {taken or 'none'}.")
    chance = f"They can win at {threats[0]}." if threats else "No line is open."
    return " ".join([*parts, f"I can win at {wins[0]}." if wins else chance])


REMARKS: dict[str, Callable[[Match, int], str]] = {
    "kuhn_poker": kuhn_remark,
    NEGOTIATION: lambda match, detail: negotiation_remark(position(match), detail),
} | dict.fromkeys(TICTACTOE_GAMES, tictactoe_remark)


def answer_text(match: Match, detail: int, action: str) -> str:
    """A remark (detail 0: none, 1: short, 2: full; none in other games), then the boxed move."""
    remark = REMARKS[match.name](match, detail) + " " if detail and match.name in REMARKS else ""
    return f"{remark}\\boxed{{{action}}}"


def expert_turns(game: Game, expert: Player, seat: int, seed: int) -> list[tuple[Messages, str]]:
    """Prompts and answers of the expert in a match against random play; none if it does not win."""
    match = game.match(seed)
    rng = random.Random(derive_seed(seed, "remarks"))
    other = make_player("random")
    turns = []
    while match.player is not None:
        player = expert if match.player == seat else other
        turn = run(player.move(match, derive_seed(seed, len(match.history))), {})
        action = turn.action or ""
        if player is expert:
            turns.append((messages(match), answer_text(match, rng.randrange(3), action)))
        match.play(action)
    return turns if match.returns()[seat] > 0 else []


def winning_turns(
    game: Game, expert: Player, seed: int, first: int = 0
) -> Iterator[tuple[int, int, tuple[Messages, str]]]:
    """Turns of won matches without end, with match and seat; the expert takes seats in turn, from
    `first` on."""
    for index in itertools.count():
        seat = (index + first) % 2
        for turn in expert_turns(game, expert, seat, derive_seed(seed, game.name, index)):
            yield index, seat, turn
