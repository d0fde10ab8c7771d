"""TextArena's environments behind `spnb.games.base.Match`, with TextArena's own text.

The environments are made without wrappers (id + "-raw"); this module puts their messages in order
itself. What to know about TextArena 0.7.4 (https://github.com/LeonGuertler/TextArena):

- It seeds and uses the global `random`, some games `numpy.random`. Here each match has its own
  states of both, swapped in around every call.
- Its KuhnPoker is not Kuhn poker: a bet or call moves no chips, so a fold costs as much as a lost
  call. `kuhn_poker` (OpenSpiel) is the correct game. Seat 1 starts, first movers alternate, and the
  match goes to whoever leads after all rounds.
- SimpleNegotiation lasts one turn more than it says (11 for 10).
- Snake's moves are simultaneous: each seat gives one before either is carried out, and the second
  is not shown the first's. 40 turns of its limit are 20 steps.
- PigDice counts rolls as turns and looks at its limit only when the dice change hands.
- TruthAndDeception's guess is its last turn. The environment takes a guess of both facts at once
  as right; the list of two that a seat has here rules that out. Seat 0 always deceives.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import textarena
from textarena import ObservationType
from textarena.envs.KuhnPoker.env import KuhnPokerEnv
from textarena.envs.registration import ENV_REGISTRY
from textarena.envs.SimpleNegotiation.env import SimpleNegotiationEnv
from textarena.envs.TicTacToe.env import TicTacToeEnv
from textarena.state import TwoPlayerState

from spnb.games.base import InvalidAction, Match, sent

TURN_CAP = 50
"""Turns after which a match is a draw; twice the environment's own limit where that is more."""
NO_LIMIT = 500
"""The same where an environment has no limit of its own."""
SIZE = 5
LINE = 4
"""Cells along a side of the larger tic-tac-toe board, and marks in a row that win."""
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))
MORE_RESOURCES = {"Stone": 20, "Coal": 30, "Cloth": 35}
"""Base values; each seat's own is within 20 % and at most 40, as TextArena draws them."""
KUHN_ROUNDS = 5
"""Rounds of SPIRAL's Kuhn poker."""


@dataclass(frozen=True)
class GameSettings:
    """How one family of environments is shown, and where its legal moves stand.

    `history` shows past messages, `chat` the players' words. `legal` is a pattern whose group is a
    legal move in the latest message of kind `listed`; None means free text. `moves` are legal moves
    that are always the same. `talk`: a seat speaks freely until there is a list.
    """

    history: bool = True
    chat: bool = True
    legal: str | None = None
    listed: ObservationType = ObservationType.GAME_BOARD
    moves: tuple[str, ...] = ()
    talk: bool = False
    deterministic: bool = False


QUOTED = r"'\[(\w+)\]'"
BOARD_ONLY = {"history": False, "chat": False}  # as SPIRAL shows tic-tac-toe
SETTINGS = {
    "TicTacToe": GameSettings(**BOARD_ONLY, legal=QUOTED, deterministic=True),
    "KuhnPoker": GameSettings(chat=False, legal=QUOTED),  # the game itself repeats each move
    "SimpleNegotiation": GameSettings(),
    "Snake": GameSettings(**BOARD_ONLY, moves=("up", "down", "left", "right")),
    "PigDice": GameSettings(**BOARD_ONLY, legal=QUOTED),  # the board holds all that matters
    "TruthAndDeception": GameSettings(
        legal=r"'\[(Fact \d)\]'", listed=ObservationType.GAME_MESSAGE, talk=True
    ),
}


class LargeTicTacToe(TicTacToeEnv):
    """Tic-tac-toe on 5 by 5 cells, four marks in a row win; TextArena's class is for 3 by 3.

    SPIRAL (table 8) does not say how long its line is; with five, 62 % of random games are draws,
    with four 7 %, and with three whoever moves first can force a win.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cell_mapping = {cell: divmod(cell, SIZE) for cell in range(SIZE**2)}

    def reset(self, num_players: int, seed: int | None = None) -> None:
        """Starts a match with an empty board and shows it."""
        self.state = TwoPlayerState(num_players=num_players, seed=seed)
        board = [[""] * SIZE for _ in range(SIZE)]
        self.state.reset(game_state={"board": board}, player_prompt_function=self._prompt)
        self._observer_current_state()

    def _prompt(self, player_id: int, game_state: dict[str, Any]) -> str:
        text = super()._prompt(player_id, game_state)
        text = text.replace("three in a row", "four in a row")
        return text.replace("(0-8)", f"(0-{SIZE**2 - 1})").replace("'[4]'", f"'[{SIZE**2 // 2}]'")

    def _observer_current_state(self) -> None:
        marks = list(itertools.chain(*self.state.game_state["board"]))
        shown = [f" {mark or cell:>2} " for cell, mark in enumerate(marks)]
        rows = ["|".join(shown[start : start + SIZE]) for start in range(0, SIZE**2, SIZE)]
        board = ("\n" + "+".join(["----"] * SIZE) + "\n").join(rows)
        moves = ", ".join(f"'[{cell}]'" for cell, mark in enumerate(marks) if not mark)
        text = f"Current Board:\n\n{board}\n\nAvailable Moves: {moves}"
        self.state.add_observation(message=text, observation_type=ObservationType.GAME_BOARD)

    def _check_winner(self) -> bool:
        board = self.state.game_state["board"]
        marks = {place: board[place[0]][place[1]] for place in self.cell_mapping.values()}
        for (row, column), (down, right) in itertools.product(marks, DIRECTIONS):
            line = {marks.get((row + n * down, column + n * right)) for n in range(LINE)}
            if line in ({"X"}, {"O"}):
                return True
        return False


class EightResources(SimpleNegotiationEnv):
    """Simple Negotiation with eight resources instead of five (SPIRAL, table 8), ten turns."""

    def __init__(self) -> None:
        super().__init__(max_turns=10)
        self.base_values = self.base_values | MORE_RESOURCES
        self.resource_names = list(self.base_values)


class LastRoundKuhn(KuhnPokerEnv):
    """SPIRAL's own rule: whoever wins the last of five rounds wins the match, whatever the chips.

    The text still promises the match to the player with the most chips.
    """

    def __init__(self) -> None:
        super().__init__(max_rounds=KUHN_ROUNDS)

    def _set_round_winner(self, player_id: int, reason: str) -> None:
        super()._set_round_winner(player_id, reason)
        if self.state.done:
            why = f"Player {player_id} won the last of {KUHN_ROUNDS} rounds."
            self.state.set_winner(player_id, reason=why)


VARIANTS: dict[str, Callable[[], Any]] = {
    "TicTacToe-v0-5x5": LargeTicTacToe,
    "SimpleNegotiation-v0-8resources": EightResources,
    "KuhnPoker-v1": LastRoundKuhn,
}
"""Names that TextArena does not have, and what makes a fresh environment of each."""


def names() -> list[str]:
    """Every id of TextArena, without the wrapper suffixes, and the variants."""
    raw = [name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")]
    return [*raw, *VARIANTS]


class TextArenaGame:
    """One TextArena environment for two, by id."""

    def __init__(self, name: str):
        self.name = name
        self.settings = SETTINGS.get(name.split("-v")[0], GameSettings())
        self.deterministic = self.settings.deterministic
        self.match(seed=0)  # an environment that does not take two players says so now

    def match(self, seed: int) -> "TextArenaMatch":
        """A new match; TextArena's randomness in it comes from `seed` alone."""
        return TextArenaMatch(self.name, self.settings, seed)


class TextArenaMatch(Match):
    """One match. Zero-sum: its result is the sign of the reward difference, whatever the scale."""

    def __init__(self, name: str, settings: GameSettings, seed: int):
        self.name = name
        self.history: list[str] = []
        self._settings = settings
        self._refused = False
        self._random = random.Random(seed).getstate()
        self._numpy = np.random.MT19937()
        self._numpy.state = np.random.RandomState(seed % 2**32).get_state(legacy=False)
        self._messages: dict[int, list[tuple[int, str, ObservationType]]] = {0: [], 1: []}
        with self._own_random():
            self._env = _reset(name, seed)
            self._read()
        limit = self._env.state.max_turns
        self._cap = max(TURN_CAP, 2 * limit) if limit else NO_LIMIT

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """Lends this match's states to the global generators, and puts the caller's back."""
        outside = random.getstate(), np.random.get_bit_generator()
        random.setstate(self._random)
        np.random.set_bit_generator(self._numpy)
        try:
            yield
        finally:
            self._random = random.getstate()
            random.setstate(outside[0])
            np.random.set_bit_generator(outside[1])

    def _read(self) -> None:
        """Moves the new messages of the seat to move from the environment's queue to our record."""
        if not self._env.state.done:
            seat, new = self._env.get_observation()
            self._messages[seat].extend(new or [])

    @property
    def player(self) -> int | None:
        over = self._env.state.done or self._refused or len(self.history) >= self._cap
        return None if over else self._env.state.current_player_id

    @property
    def game_state(self) -> dict[str, Any]:
        """The environment's own record, both seats' secrets too: for scripted players, measures."""
        return self._env.state.game_state

    def observation(self) -> str:
        rules = []
        past = []
        for sender, text, kind in self._messages[self._env.state.current_player_id]:
            if kind == ObservationType.PROMPT:
                rules.append(text)
            elif kind == ObservationType.PLAYER_ACTION and self._settings.chat:
                # On one line, so that a player's words cannot pass for the game's.
                past.append(f"Player {sender} says: {' '.join(text.split())}")
            elif kind not in (ObservationType.PLAYER_ACTION, ObservationType.GAME_BOARD):
                past.append(text)
        board = self._latest(ObservationType.GAME_BOARD)
        parts = ["\n".join(rules), "\n".join(past) if self._settings.history else "", board]
        return "\n\n".join(part.strip("\n") for part in parts if part)

    def _latest(self, wanted: ObservationType) -> str:
        past = self._messages[self._env.state.current_player_id]
        return next((text for _, text, kind in reversed(past) if kind == wanted), "")

    def legal_actions(self) -> list[str] | None:
        settings = self._settings
        if self.player is None:
            return []
        if settings.moves or settings.legal is None:
            return list(settings.moves) or None
        actions = re.findall(settings.legal, self._latest(settings.listed))
        return None if settings.talk and not actions else actions

    def play(self, action: str) -> None:
        """Plays one move; InvalidAction where it is not listed or, which ends it, is refused."""
        seat = self.player
        legal = self.legal_actions()
        if seat is None or (legal is not None and action not in legal):
            allowed = ", ".join(legal or []) or "none, the match is over"
            raise InvalidAction(f"{self.name}: action {action!r}; legal: {allowed}")
        with self._own_random():
            self._env.step(sent(action))
            info = self._env.state.game_info[seat]
            self._refused = info["invalid_move"]
            if self._refused:
                reason = info.get("reason", "against the rules")
                raise InvalidAction(f"{self.name}: action {action!r}; {reason}")
            self.history.append(action)
            self._read()

    def returns(self) -> tuple[float, float]:
        """1 for the seat of the higher reward, -1 for the other; 0 if equal or at the turn cap."""
        if self.player is not None:
            raise ValueError(f"{self.name}: the match is not over, seat {self.player} is to move")
        rewards = (self._env.state.rewards if self._env.state.done else None) or {}
        sign = float(np.sign(rewards.get(0, 0) - rewards.get(1, 0)))
        return sign, -sign


def _reset(name: str, seed: int) -> Any:
    """A fresh environment for two in which the first invalid move counts; ValueError if it fails.

    One-player environments assert, word games look for files not installed.
    """
    try:
        env = VARIANTS[name]() if name in VARIANTS else textarena.make(f"{name}-raw")
        env.reset(num_players=2, seed=seed)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(f"game {name!r} does not start for two players: {reason}") from error
    env.state.error_allowance = 0
    return env
