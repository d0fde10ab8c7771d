"""Rewards, games and sources of one's own: a Python file that every process of a run loads.

    # mine.py
    import spnb as sp

    sp.register_reward("hump", lambda p: 4 * p * (1 - p))
    sp.register_game("stones", Stones)
    sp.register_source("letters", Letters)

The parameter `plugins: mine.py` loads the file before the other parameters are read. A process
executes it once; where its content has changed, the new names take the place of the old ones. The
content is part of a run's identity: of this file, not of files that it reads or imports.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from numbers import Real
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ValidationInfo

from spnb.core import rewards
from spnb.core.errors import OneLine
from spnb.core.paths import resolve

Kind = Literal["reward", "game", "source"]
NAME = re.compile(r"[a-z][a-z0-9_]*")
"""The name of a reward, game or source."""
TRIED = [place / 8 for place in range(9)]
"""Shares of right answers that a new reward is tried with."""


class PluginError(OneLine, ValueError):
    """A plugin does not import, or registers what cannot be used."""


@dataclass
class Plugin:
    """What a file registered, by kind and name; `digest` is of its content."""

    path: Path
    digest: str
    values: dict[tuple[Kind, str], Any] = field(default_factory=dict)


LOADED: dict[Path, Plugin] = {}
"""The plugins of this process."""
_LOADING: list[Plugin] = []


def register_reward(name: str, reward: Callable[[float], float]) -> None:
    """A proposer's reward by the share p of right answers, which `pay` and `mapping` name.

    SPELL's `mapping` pays 0 where nobody or everybody is right, whatever the reward.

    Raises:
        PluginError: the name is taken, or the reward of some p is not a finite number.
    """
    if hasattr(rewards, str(name)):
        raise PluginError(f"reward is {name!r}, which spnb has; allowed: another name")
    checked = partial(_pay, name, reward)
    for p in TRIED:
        checked(p)
    register("reward", name, checked)


def register_source(name: str, make: Callable[[Any, Any], Any]) -> None:
    """Documents to ask about, which `corpus` names; `make` has the run's parameters and the
    policy's tokenizer and returns a `spnb.corpus.clusters.Clusters` for SPELL, a
    `spnb.corpus.segments.SegmentSource` for SPICE.

    Raises:
        PluginError: the name is taken.
    """
    register("source", name, make)


def register(kind: Kind, name: str, value: Any) -> None:
    """Keeps a value under its name for the plugin that is being loaded.

    Raises:
        PluginError: the name is taken or cannot be one, or no plugin is being loaded.
    """
    if not _LOADING:
        allowed = "in a file that the parameter `plugins` names, so that runs load it too"
        raise PluginError(f"register_{kind} is called with {name!r}; allowed: {allowed}")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        allowed = "small letters, digits and _, the first a letter"
        raise PluginError(f"{kind} is {name!r}; allowed: {allowed}")
    if owner := _owner(kind, name):
        known = f"which {owner.path.name} registers already"
        raise PluginError(f"{kind} is {name!r}, {known}; allowed: another name")
    _LOADING[-1].values[kind, name] = value


def load(file: str) -> None:
    """Loads a plugin, unless this process has loaded the same content before.

    Raises:
        PluginError: there is no such file, it does not import, or it registers what cannot be used.
    """
    path = _path(file)
    plugin = Plugin(path, digest(file))
    if path in LOADED and LOADED[path].digest == plugin.digest:
        return
    LOADED.pop(path, None)
    module = ModuleType(f"spnb_plugin_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for the names of their fields
    _LOADING.append(plugin)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise PluginError(f"plugins is {file!r}, {_reason(error, path)}") from None
    finally:
        _LOADING.pop()
    LOADED[path] = plugin


def digest(file: str) -> str:
    """12 hex digits over a plugin's content; PluginError where there is no such file."""
    path = _path(file)
    if not path.is_file():
        raise PluginError(f"plugins is {file!r}; allowed: an existing file, {path} is none")
    return sha256(path.read_bytes()).hexdigest()[:12]


def _path(file: str) -> Path:
    """A plugin's one path, however it is spelled."""
    return resolve(file).resolve()


def _reason(error: BaseException, path: Path) -> str:
    """What stopped a plugin, and at which of its lines."""
    trace = extract_tb(error.__traceback__)
    lines = [place.lineno for place in trace if place.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    where = f"line {lines[-1]}" if lines else "its code"
    said = " ".join(str(error).split())
    if isinstance(error, PluginError):
        return f"{where}: {said}"
    return f"{where}: {type(error).__name__}: {said}; allowed: a Python file that imports"


def _owner(kind: Kind, name: str) -> Plugin | None:
    return next((one for one in [*LOADED.values(), *_LOADING] if (kind, name) in one.values), None)


def names(kind: Kind, file: str | None = None) -> list[str]:
    """The registered names of a kind: those of a file ("": of none), or all of this process."""
    path = _path(file) if file else None
    chosen = [one for one in LOADED.values() if file is None or one.path == path]
    return [name for one in chosen for of, name in one.values if of == kind]


def find(kind: Kind, name: str) -> Any:
    """What is registered under a name; None where nothing is."""
    owner = _owner(kind, name)
    return owner.values[kind, name] if owner else None


def foreign(kind: Kind, wanted: Sequence[str], file: str) -> list[str]:
    """Those of the wanted names that another plugin than `file` registered: a run, which loads its
    own plugin alone, would not find them."""
    return [name for name in wanted if find(kind, name) and name not in names(kind, file)]


def reward(name: str) -> Callable[..., float]:
    """The reward of a name: of `spnb.core.rewards`, or registered."""
    return find("reward", name) or getattr(rewards, name)


def _pay(name: str, reward: Callable[[float], float], p: float) -> float:
    """A registered reward of p; PluginError where it is not a finite number."""
    value = reward(p)
    if not isinstance(value, Real) or not math.isfinite(value):
        shown = f"{value!r:.80}"
        raise PluginError(f"reward {name!r} is {shown} at p = {p:g}; allowed: a finite number")
    return float(value)


def _known_reward(shipped: tuple[str, ...], name: str, info: ValidationInfo) -> str:
    allowed = [*shipped, *names("reward", info.data.get("plugins", ""))]
    if name not in allowed:
        raise ValueError(f"{', '.join(allowed)}, or one that the file under `plugins` registers")
    return name


def reward_name(*shipped: str) -> Any:
    """The type of a parameter that names a reward: one of these, or one of the run's plugin."""
    return Annotated[str, AfterValidator(partial(_known_reward, shipped))]
