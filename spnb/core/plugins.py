"""Rewards, games and sources of one's own by name: a Python file that every process of a run loads.

    # mine.py
    import spnb as sp

    sp.register_reward("hump", lambda p: 4 * p * (1 - p))
    sp.register_game("nim", Nim)
    sp.register_source("letters", Letters)

The parameter `plugins: mine.py` loads it, before the other parameters are read. The file's content
is part of a run's identity.
"""

import math
import random
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from typing import Annotated, Any

from pydantic import AfterValidator

from spnb.core import rewards
from spnb.core.paths import resolve

REGISTERED: dict[str, dict[str, Any]] = {"reward": {}, "game": {}, "source": {}}
"""What was registered: kind, then name."""
LOADED: dict[str, list[tuple[str, str]]] = {}
"""What each file registered (kind, name), by its path and content."""
TRIED = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of right answers that a new reward is tried with."""


def register_reward(name: str, reward: Callable[[float], float]) -> None:
    """A reward of a proposer by the share p of right answers; `pay` and `mapping` take its name.

    Raises:
        ValueError: the name is taken, or the reward of some p is not a finite number.
    """
    for p in TRIED:
        value = reward(p)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"reward {name!r} of {p} is {value!r}; allowed: a finite number")
    _register("reward", name, reward, hasattr(rewards, name))


def register_game(name: str, make: Callable[[], Any]) -> None:
    """A two-player zero-sum game (`spnb.games.base.Game`), which `games` takes by its name.

    Raises:
        ValueError: the name is taken, or three random matches are not those of such a game.
    """
    for seed in range(3):
        _check_match(name, make(), seed)
    _register("game", name, make)


def register_source(name: str, make: Callable[[Any, Any], Any]) -> None:
    """A source of documents and questions, made from a method's parameters and a tokenizer;
    `corpus` takes its name. Subclass `spnb.corpus.clusters.Clusters` for SPELL,
    `spnb.corpus.segments.SegmentSource` for SPICE.

    Raises:
        ValueError: the name is taken.
    """
    _register("source", name, make)


def _register(kind: str, name: str, value: Any, taken: bool = False) -> None:
    if taken or name in REGISTERED[kind]:
        raise ValueError(f"{kind} {name!r} is registered already; allowed: a name that is not")
    REGISTERED[kind][name] = value


def _check_match(name: str, game: Any, seed: int) -> None:
    """ValueError where a random match of a game is not of two players, or not zero-sum."""
    if game.name != name:
        raise ValueError(f"game {name!r} has the name {game.name!r}; allowed: the same")
    match = game.match(seed)
    rng = random.Random(seed)
    for _ in range(1000):
        if match.player is None:
            break
        if match.player not in (0, 1):
            raise ValueError(f"game {name!r} has player {match.player!r}; allowed: 0, 1 or None")
        match.play(rng.choice(match.legal_actions() or ["pass"]))
    if match.player is None and (len(match.returns()) != 2 or abs(sum(match.returns())) > 1e-9):
        raise ValueError(f"game {name!r} returns {match.returns()}; allowed: two numbers, sum 0")


def load(file: str) -> None:
    """Loads a plugin once; a changed file takes the place of what it registered before.

    Raises:
        ValueError: it does not import, with the reason.
    """
    path = resolve(file)
    try:
        key = f"{path}:{sha256(path.read_bytes()).hexdigest()}"
        if key in LOADED:
            return
        for before in [one for one in LOADED if one.startswith(f"{path}:")]:
            for kind, name in LOADED.pop(before):
                REGISTERED[kind].pop(name, None)
        there = _names()
        spec = spec_from_file_location(f"spnb_plugin_{path.stem}", path)
        spec.loader.exec_module(module_from_spec(spec))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        allowed = "a Python file that imports and registers new names"
        raise ValueError(
            f"plugins is {file!r}, which fails with {reason}; allowed: {allowed}"
        ) from None
    LOADED[key] = [one for one in _names() if one not in there]


def _names() -> list[tuple[str, str]]:
    return [(kind, name) for kind, known in REGISTERED.items() for name in known]


def reward(name: str) -> Callable[..., float]:
    """The reward of a name: of `spnb.core.rewards`, or registered."""
    return REGISTERED["reward"].get(name) or getattr(rewards, name)


def _known_reward(shipped: tuple[str, ...], name: str) -> str:
    allowed = [*shipped, *REGISTERED["reward"]]
    if name not in allowed:
        raise ValueError(f"{', '.join(allowed)}, or a reward that `plugins` registers")
    return name


def reward_name(*shipped: str) -> Any:
    """The type of a parameter that names a reward: one of these, or a registered one."""
    return Annotated[str, AfterValidator(partial(_known_reward, shipped))]
