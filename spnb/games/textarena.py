"""TextArena's environments behind `spnb.games.Match`, with TextArena's own text.

The environments are made without wrappers (id + "-raw"); this module puts their messages in order itself. Nothing here
needs a network. What to know about TextArena 0.7.4 (https://github.com/LeonGuertler/TextArena):

- It seeds and uses the global `random`, some games `numpy.random`. Here each match has its own states of both, swapped
  in around every call.
- Its KuhnPoker is not Kuhn poker: a bet or call moves no chips, the pot is always the two antes, so a fold costs as
  much as a lost call and never folding is weakly dominant. `kuhn_poker` (OpenSpiel) is the correct game.
- KuhnPoker alternates the first mover and seat 1 starts; the match goes to whoever leads after all rounds.
- SimpleNegotiation lasts one turn more than it says (11 for 10), and a rejected offer can still be accepted later.
"""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import textarena
from textarena import ObservationType
from textarena.envs.registration import ENV_REGISTRY

from spnb.games import InvalidAction

TURN_CAP = 50
"""Turns after which an unfinished match is a draw."""


@dataclass(frozen=True)
class GameSettings:
    """How one family of environments is shown: past messages, the players' own words, and where legal moves stand.

    `legal` is a pattern whose first group matches each legal move in the latest board message; None means free text.
    """

    history: bool = True
    chat: bool = True
    legal: str | None = None
    deterministic: bool = False


QUOTED = r"'\[(\w+)\]'"
SETTINGS = {
    "TicTacToe": GameSettings(history=False, chat=False, legal=QUOTED, deterministic=True),  # as SPIRAL shows it
    "KuhnPoker": GameSettings(chat=False, legal=QUOTED),  # the game itself repeats each move
    "SimpleNegotiation": GameSettings(),
}


def names() -> list[str]:
    """Every id that TextArena registers, without the wrapper suffixes."""
    return [name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")]


def has(name: str) -> bool:
    """Whether TextArena has an unwrapped environment of that id."""
    return f"{name}-raw" in ENV_REGISTRY


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


class TextArenaMatch:
    """One match. Zero-sum by construction: its result is the sign of the reward difference, whatever the scale."""

    def __init__(self, name: str, settings: GameSettings, seed: int):
        self.name = name
        self.history: list[str] = []
        self._settings = settings
        self._refused = False
        self._random_states = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()
        self._messages: dict[int, list[tuple[int, str, ObservationType]]] = {0: [], 1: []}
        with self._own_random():
            self._env = _reset(name, seed)
            self._read()

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """Lends this match's generator states to the global generators and puts the caller's back, also on errors."""
        outside = _global_states()
        _set_global_states(self._random_states)
        try:
            yield
        finally:
            self._random_states = _global_states()
            _set_global_states(outside)

    def _read(self) -> None:
        """Moves the new messages of the seat to move from the environment's queue to our record."""
        if self._env.state.done:
            return
        seat, messages = self._env.get_observation()
        self._messages[seat].extend(messages or [])

    @property
    def player(self) -> int | None:
        """The seat to move, None when the match is over or at the turn cap."""
        over = self._env.state.done or self._refused or len(self.history) >= TURN_CAP
        return None if over else self._env.state.current_player_id

    def observation(self) -> str:
        """The rules, the messages so far as the settings say, and the latest board."""
        messages = self._messages[self._env.state.current_player_id]
        rules = [text for _, text, kind in messages if kind == ObservationType.PROMPT]
        past = [_line(*message) for message in messages if self._shown(message[2])]
        parts = ["\n".join(rules), "\n".join(past) if self._settings.history else "", self._board()]
        return "\n\n".join(part.strip("\n") for part in parts if part)

    def _shown(self, kind: ObservationType) -> bool:
        if kind == ObservationType.PLAYER_ACTION:
            return self._settings.chat
        return kind not in (ObservationType.PROMPT, ObservationType.GAME_BOARD)

    def _board(self) -> str:
        messages = self._messages[self._env.state.current_player_id]
        boards = [text for _, text, kind in messages if kind == ObservationType.GAME_BOARD]
        return boards[-1] if boards else ""

    def legal_actions(self) -> list[str] | None:
        """The moves named in the latest board, without brackets; None in free-text games, empty when over."""
        if self._settings.legal is None:
            return None
        return [] if self.player is None else re.findall(self._settings.legal, self._board())

    def play(self, action: str) -> None:
        """Plays one move, in brackets if it has none of its own.

        Raises:
            InvalidAction: the move is not in the legal list (the match is unchanged), or in a free-text game the
                environment refuses it (which ends the match there).
        """
        seat, legal = self.player, self.legal_actions()
        if seat is None or (legal is not None and action not in legal):
            allowed = ", ".join(legal or []) or "none, the match is over"
            raise InvalidAction(f"{self.name}: action {action!r}; legal: {allowed}")
        with self._own_random():
            self._env.step(action if "[" in action else f"[{action}]")
            info = self._env.state.game_info[seat]
            if info["invalid_move"]:
                self._refused = True
                raise InvalidAction(f"{self.name}: action {action!r}; {info.get('reason', 'against the rules')}")
            self.history.append(action)
            self._read()

    def returns(self) -> tuple[float, float]:
        """+1 and -1 for the seat with the higher reward and the other, 0 and 0 for equal rewards or the turn cap."""
        if self.player is not None:
            raise ValueError(f"{self.name}: the match is not over, seat {self.player} is to move")
        rewards = (self._env.state.rewards if self._env.state.done else None) or {}
        margin = rewards.get(0, 0) - rewards.get(1, 0)
        sign = float((margin > 0) - (margin < 0))
        return sign, -sign


def _global_states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _set_global_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _reset(name: str, seed: int) -> Any:
    """A fresh environment for two seats in which the first invalid move counts; ValueError if it does not start.

    Any error counts: one-player environments assert, word games look for files that are not installed.
    """
    try:
        env = textarena.make(f"{name}-raw")
        env.reset(num_players=2, seed=seed)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"game {name!r} does not start for two players: {type(error).__name__}: {reason}") from error
    env.state.error_allowance = 0
    return env


def _line(sender: int, text: str, kind: ObservationType) -> str:
    """A message as shown; a player's words stay on one line, so that they cannot pass for the game's."""
    return f"Player {sender} says: {' '.join(text.split())}" if kind == ObservationType.PLAYER_ACTION else text
