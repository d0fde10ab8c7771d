"""TextArena's environments behind `spnb.games.Match`, with TextArena's own text.

The environments are made without wrappers (id + "-raw"); this module puts their messages in order
itself. Larger and differently decided ones stand in `spnb.games.variants`. Nothing here needs a
network. What to know about TextArena 0.7.4 (https://github.com/LeonGuertler/TextArena):

- It seeds and uses the global `random`, some games `numpy.random`. Here each match has its own
  states of both, swapped in around every call.
- Its KuhnPoker is not Kuhn poker: a bet or call moves no chips, the pot is always the two antes, so
  a fold costs as much as a lost call and never folding is weakly dominant. `kuhn_poker` (OpenSpiel)
  is the correct game.
- KuhnPoker alternates the first mover and seat 1 starts; the match goes to whoever leads after all
  rounds.
- SimpleNegotiation lasts one turn more than it says (11 for 10), and a rejected offer can still be
  accepted later.
- Snake's moves are simultaneous: each seat gives one before either is carried out, and the second
  is not shown the first's. A turn of its limit is one seat's move, so 40 turns are 20 steps. The
  first apples may share a cell, and the board draws both bodies alike.
- PigDice counts rolls as turns and looks at its limit only when the dice change hands; the same
  seat moves until then.
- TruthAndDeception promises the guess after the conversation, but the guess is its last turn. The
  environment takes a guess of both facts at once as right; the list of two that a seat has here
  rules that out. Seat 0 always deceives.
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
from spnb.games.variants import VARIANTS

TURN_CAP = 50
"""Turns after which an unfinished match is a draw; where the environment has a limit of its own,
twice that if more."""


@dataclass(frozen=True)
class GameSettings:
    """How one family of environments is shown: past messages, the players' own words, and where
    legal moves stand.

    `legal` is a pattern whose first group matches each legal move in the latest message of kind
    `listed`; None means free text. `moves` are the legal moves where they are always the same.
    `talk` says that a seat speaks freely until there is a list.
    """

    history: bool = True
    chat: bool = True
    legal: str | None = None
    listed: ObservationType = ObservationType.GAME_BOARD
    moves: tuple[str, ...] = ()
    talk: bool = False
    deterministic: bool = False


QUOTED = r"'\[(\w+)\]'"
SETTINGS = {
    "TicTacToe": GameSettings(
        history=False, chat=False, legal=QUOTED, deterministic=True
    ),  # as SPIRAL shows it
    "KuhnPoker": GameSettings(chat=False, legal=QUOTED),  # the game itself repeats each move
    "SimpleNegotiation": GameSettings(),
    "Snake": GameSettings(history=False, chat=False, moves=("up", "down", "left", "right")),
    "PigDice": GameSettings(
        history=False, chat=False, legal=QUOTED
    ),  # the board holds all that matters
    "TruthAndDeception": GameSettings(
        legal=r"'\[(Fact \d)\]'", listed=ObservationType.GAME_MESSAGE, talk=True
    ),
}


def names() -> list[str]:
    """Every id that TextArena registers, without the wrapper suffixes, and the variants of this
    package."""
    return [
        *(name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")),
        *VARIANTS,
    ]


def has(name: str) -> bool:
    """Whether there is a variant of that name, or TextArena has an unwrapped environment of that
    id."""
    return name in VARIANTS or f"{name}-raw" in ENV_REGISTRY


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
    """One match. Zero-sum by construction: its result is the sign of the reward difference,
    whatever the scale."""

    def __init__(self, name: str, settings: GameSettings, seed: int):
        self.name = name
        self.history: list[str] = []
        self._settings = settings
        self._refused = False
        self._random_states = (
            random.Random(seed).getstate(),
            np.random.RandomState(seed % 2**32).get_state(),
        )
        self._messages: dict[int, list[tuple[int, str, ObservationType]]] = {0: [], 1: []}
        with self._own_random():
            self._env = _reset(name, seed)
            self._read()
        self._cap = max(TURN_CAP, 2 * (self._env.state.max_turns or 0))

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """Lends this match's generator states to the global generators and puts the caller's back,
        also on errors."""
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
        over = self._env.state.done or self._refused or len(self.history) >= self._cap
        return None if over else self._env.state.current_player_id

    @property
    def game_state(self) -> dict[str, Any]:
        """The environment's own record, both seats' secrets included: for scripted players and
        measures to read."""
        return self._env.state.game_state

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
        return self._latest(ObservationType.GAME_BOARD)

    def _latest(self, wanted: ObservationType) -> str:
        """The seat to move's last message of a kind, empty if it has none."""
        messages = self._messages[self._env.state.current_player_id]
        return next((text for _, text, kind in reversed(messages) if kind == wanted), "")

    def legal_actions(self) -> list[str] | None:
        """The moves as the settings find them, without brackets; None where any text is one, empty
        when over."""
        settings = self._settings
        if settings.legal is None and not settings.moves:
            return None
        if self.player is None:
            return []
        if settings.moves:
            return list(settings.moves)
        found = re.findall(settings.legal, self._latest(settings.listed))
        return None if settings.talk and not found else found

    def play(self, action: str) -> None:
        """Plays one move, in brackets if it has none of its own.

        Raises:
            InvalidAction: the move is not in the legal list (the match is unchanged), or in a
                free-text game the environment refuses it (which ends the match there).
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
                raise InvalidAction(
                    f"{self.name}: action {action!r}; {info.get('reason', 'against the rules')}"
                )
            self.history.append(action)
            self._read()

    def returns(self) -> tuple[float, float]:
        """+1 and -1 for the seat with the higher reward and the other, 0 and 0 for equal rewards or
        the turn cap."""
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
    """A fresh environment for two seats in which the first invalid move counts; ValueError if it
    does not start.

    Any error counts: one-player environments assert, word games look for files that are not
    installed.
    """
    try:
        env = VARIANTS[name]() if name in VARIANTS else textarena.make(f"{name}-raw")
        env.reset(num_players=2, seed=seed)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"game {name!r} does not start for two players: {type(error).__name__}: {reason}"
        ) from error
    env.state.error_allowance = 0
    return env


def _line(sender: int, text: str, kind: ObservationType) -> str:
    """A message as shown; a player's words stay on one line, so that they cannot pass for the
    game's."""
    return (
        f"Player {sender} says: {' '.join(text.split())}"
        if kind == ObservationType.PLAYER_ACTION
        else text
    )
