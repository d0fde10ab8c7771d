"""Parameters: files, variants by name, and errors that name the key, the value, what is allowed."""

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from spnb.core.paths import ROOT

SCALES = ("smoke", "cpu", "gpu", "paper")


class ParamError(ValueError):
    """A parameter is unknown, of the wrong type, or outside what is allowed."""


class StrictData(BaseModel):
    """Read-only; a key that it does not know, an infinity or a nan is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


P = TypeVar("P", bound=BaseModel)


def validate(model: type[P], values: Mapping[str, Any], prefix: str = "") -> P:
    """Values as an instance of a parameter class.

    Args:
        prefix: what the keys stand under ("grpo."), for the messages.

    Raises:
        ParamError: one line a fault, each with the key, the value and what is allowed.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(model, item, prefix) for item in error.errors()]
        raise ParamError("\n".join(lines)) from None


def _explain(model: type[BaseModel], item: Mapping[str, Any], prefix: str) -> str:
    key = prefix + ".".join(map(str, item["loc"]))
    cause = item.get("ctx", {}).get("error")
    if not item["loc"] or isinstance(cause, ParamError):  # the message names the keys itself
        return str(cause or item["msg"])
    if item["type"] == "extra_forbidden":
        allowed = list(model.model_fields) if len(item["loc"]) == 1 else []
        return unknown("parameter", key, allowed)
    if item["type"] == "missing":
        return f"{key} is missing; it has no default"
    field = model.model_fields.get(str(item["loc"][0]))
    about = f" ({field.description})" if field is not None and field.description else ""
    allowed = item["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{key} is {_short(item['input'])}; allowed: {allowed}{about}"


def _short(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + " ..."


def unknown(what: str, value: Any, allowed: Collection[str]) -> str:
    """The sentence for a name that does not exist: the name, the nearest one, all allowed ones."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    names = f"allowed: {', '.join(sorted(allowed))}" if allowed else "allowed: nothing there"
    return f"{what} is {value!r}, which is unknown; {hint}{names}"


def papers() -> list[str]:
    """The papers and studies that have parameter files."""
    return sorted(folder.parent.name for folder in (ROOT / "params").glob("*/variants.yaml"))


def scale_values(paper: str, scale: str) -> dict[str, Any]:
    """The values of a scale's parameter file.

    Raises:
        ParamError: unknown paper or scale, or a file that is not a mapping or of another scale.
    """
    folder = _folder(paper)
    if scale not in SCALES or not (folder / f"{scale}.yaml").is_file():
        there = [name for name in SCALES if (folder / f"{name}.yaml").is_file()]
        raise ParamError(unknown("scale", scale, there))
    values = _mapping(folder / f"{scale}.yaml")
    if values.pop("scale", None) != scale:
        raise ParamError(f"params/{paper}/{scale}.yaml: scale is another one; allowed: {scale}")
    return values


def variants(paper: str) -> dict[str, dict[str, Any]]:
    """The paper's variants by name.

    `about` (one sentence), `set` (changed parameters), `at` (further ones by scale), `headline`
    (run by default).

    Raises:
        ParamError: unknown paper, or an entry that is not such a mapping.
    """
    path = _folder(paper) / "variants.yaml"
    entries = _mapping(path)
    for name, entry in entries.items():
        parts = [entry.get(key, {}) for key in ("set", "at")] if isinstance(entry, dict) else [None]
        if not all(isinstance(part, dict) for part in parts):
            raise ParamError(f"{path}: variant {name} is {_short(entry)}; allowed: about, set, at")
    return entries


def _folder(paper: str) -> Path:
    if paper not in papers():
        raise ParamError(unknown("paper", paper, papers()))
    return ROOT / "params" / paper


def _mapping(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, RecursionError) as error:
        raise ParamError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ParamError(f"{path} holds {type(values).__name__}; allowed: a mapping of names")
    return values


def require(holds: Any, message: str) -> None:
    """A check of several parameters together: a ValueError where it does not hold."""
    if not holds:
        raise ValueError(message)
