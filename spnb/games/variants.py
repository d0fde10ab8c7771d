"""TextArena environments with other sizes or another result, derived from its own: same sentences,
same moves.

- `TicTacToe-v0-5x5`: 5 by 5 cells, four marks in a row win. SPIRAL (table 8) does not say how long
  its line is; with five, 62 % of random games are draws, with three whoever moves first can force a
  win, and with four 7 % are draws.
- `SimpleNegotiation-v0-8resources`: three more resources between the cheapest and the dearest
  (table 8 again).
- `KuhnPoker-v1`: SPIRAL's own rule set. As TextArena's, five rounds, but whoever wins the last
  round wins the match, whatever the chips say, so that the first four rounds do not matter. The
  text still promises the match to the player with the most chips.
"""

import itertools
from collections.abc import Callable
from typing import Any

from textarena import ObservationType
from textarena.core import Env
from textarena.envs.KuhnPoker.env import KuhnPokerEnv
from textarena.envs.SimpleNegotiation.env import SimpleNegotiationEnv
from textarena.envs.TicTacToe.env import TicTacToeEnv
from textarena.state import TwoPlayerState

SIZE, LINE = 5, 4
"""Cells along a side of the larger tic-tac-toe board, and marks in a row that win."""
MORE_RESOURCES = {"Stone": 20, "Coal": 30, "Cloth": 35}
"""Base values; each seat's own value is within 20 % and at most 40, as TextArena draws them."""
ROUNDS = 5
"""Rounds of SPIRAL's Kuhn poker."""


class LargeTicTacToe(TicTacToeEnv):
    """Tic-tac-toe on 5 by 5 cells; TextArena's class is written for 3 by 3 from the board to the
    check for a line."""

    def __init__(self) -> None:
        super().__init__()
        self.cell_mapping = {cell: divmod(cell, SIZE) for cell in range(SIZE**2)}
        self._lines = _lines()

    def reset(self, num_players: int, seed: int | None = None) -> None:
        """Starts a match with an empty board and shows it."""
        self.state = TwoPlayerState(num_players=num_players, seed=seed)
        board = [[""] * SIZE for _ in range(SIZE)]
        self.state.reset(game_state={"board": board}, player_prompt_function=self._prompt)
        self._observer_current_state()

    def _prompt(self, player_id: int, game_state: dict[str, Any]) -> str:
        sizes = {
            "three in a row": "four in a row",
            "(0-8)": f"(0-{SIZE**2 - 1})",
            "'[4]'": f"'[{SIZE**2 // 2}]'",
        }
        text = super()._prompt(player_id, game_state)
        for small, large in sizes.items():
            text = text.replace(small, large)
        return text

    def _render_board(self) -> str:
        shown = [f" {self._mark(cell) or cell:>2} " for cell in self.cell_mapping]
        rows = ["|".join(shown[start : start + SIZE]) for start in range(0, SIZE**2, SIZE)]
        return ("\n" + "+".join(["----"] * SIZE) + "\n").join(rows)

    def _mark(self, cell: int) -> str:
        row, column = self.cell_mapping[cell]
        return self.state.game_state["board"][row][column]

    def _observer_current_state(self) -> None:
        moves = ", ".join(f"'[{cell}]'" for cell in self.cell_mapping if not self._mark(cell))
        text = f"Current Board:\n\n{self._render_board()}\n\nAvailable Moves: {moves}"
        self.state.add_observation(message=text, observation_type=ObservationType.GAME_BOARD)

    def _check_winner(self) -> bool:
        return any({self._mark(cell) for cell in line} in ({"X"}, {"O"}) for line in self._lines)


def _lines() -> list[list[int]]:
    """Every winning line as cells: from each cell, right, down and along both diagonals, as far as
    the board goes."""
    lines = []
    for row, column in itertools.product(range(SIZE), repeat=2):
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            cells = [(row + step * down, column + step * right) for step in range(LINE)]
            if all(0 <= r < SIZE and 0 <= c < SIZE for r, c in cells):
                lines.append([r * SIZE + c for r, c in cells])
    return lines


class EightResources(SimpleNegotiationEnv):
    """Simple Negotiation with eight resources instead of five, ten turns."""

    def __init__(self) -> None:
        super().__init__(max_turns=10)
        self.base_values = self.base_values | MORE_RESOURCES
        self.resource_names = list(self.base_values)


class LastRoundKuhn(KuhnPokerEnv):
    """TextArena's Kuhn poker decided as SPIRAL decides it: by the last round alone."""

    def __init__(self) -> None:
        super().__init__(max_rounds=ROUNDS)

    def _set_round_winner(self, player_id: int, reason: str) -> None:
        """Ends a round; after the last one, its winner takes the match from whoever has more
        chips."""
        super()._set_round_winner(player_id, reason)
        if self.state.done:
            self.state.set_winner(
                player_id, reason=f"Player {player_id} won the last of {ROUNDS} rounds."
            )


VARIANTS: dict[str, Callable[[], Env]] = {
    "TicTacToe-v0-5x5": LargeTicTacToe,
    "SimpleNegotiation-v0-8resources": EightResources,
    "KuhnPoker-v1": LastRoundKuhn,
}
"""Names that TextArena does not have, and what makes a fresh environment of each."""
