"""Parameters: files, variants by name, and errors that name the key, the value, what is allowed.

`params/<paper>/<scale>.yaml` is a papermill parameter file. Its names are those of the notebooks'
`parameters` cell: `scale`, `variants`, `seeds`, `jobs` and `run`, the parameters of a run.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import to_jsonable_python

from spnb.core.errors import OneLine
from spnb.core.paths import PACKAGED_PARAMS, ROOT
from spnb.core.strict_yaml import YamlError, read_yaml

PLAN_KEYS = ("variants", "seeds", "jobs")
"""What a parameter file may set beside `scale` and `run`."""
Scale = Literal["smoke", "cpu", "gpu", "paper"]
SCALES: tuple[str, ...] = get_args(Scale)
MOST_NAMES = 100
"""So many allowed names are all listed."""
VARIANT = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""The name of a variant; a folder has it too."""


class ParamError(OneLine, ValueError):
    """A parameter is unknown, of the wrong type, or outside what is allowed."""


class StrictData(BaseModel):
    """Read-only; a key that it does not know, an infinity or a nan is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Settings(StrictData):
    """What a person sets: where a list is wanted, one name or number stands for a list of one."""

    @field_validator("*", mode="before")
    @classmethod
    def _list_of_one(cls, value: Any, info: ValidationInfo) -> Any:
        wants_list = get_origin(cls.model_fields[str(info.field_name)].annotation) is list
        single = isinstance(value, str | int | float) and not isinstance(value, bool)
        return [value] if wants_list and single else value

    def need(self, holds: Any, keys: str, allowed: Any) -> None:
        """A check of several parameters together.

        Args:
            keys: their names, the faulty one first; dots lead inside ("roles.opponent.policy").

        Raises:
            ValueError: it does not hold; the keys, their values and what is allowed.
        """
        if holds:
            return
        first, *others = keys.split()
        values = ", ".join(f"{key} {_value(self, key)!r}" for key in others)
        beside = f" with {values}" if others else ""
        raise ValueError(f"{first} is {_value(self, first)!r}{beside}; allowed: {allowed}")


class Entry(StrictData):
    """An entry of variants.yaml; `set` and `at` change parameters, at every scale and at one."""

    about: str = ""
    headline: bool = False
    set: dict[str, Any] = {}
    at: dict[Scale, dict[str, Any]] = {}
    seeds: dict[Scale, list[int] | int] = {}
    scales: list[Scale] = []


def _value(settings: Any, key: str) -> Any:
    """What stands under a key, None where nothing does."""
    for part in key.split("."):
        known = dict(settings) if isinstance(settings, BaseModel | Mapping) else {}
        settings = known.get(part)
    return to_jsonable_python(settings, exclude_none=True)


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
        where, outer = (prefix, "") if prefix.endswith(": ") else ("", prefix)
        kind: Any = model
        for part in item["loc"][:-1]:
            outer += f"{part}."
            fields = getattr(kind, "model_fields", {})
            inside = next(reversed(get_args(kind)), None)
            kind = fields[part].annotation if part in fields else inside
        allowed = [outer + name for name in getattr(kind, "model_fields", {})]
        return where + unknown("parameter", key.removeprefix(where), allowed)
    if item["type"] == "missing":
        return f"{key} is missing; it has no default"
    field = model.model_fields.get(str(item["loc"][0]))
    about = f" ({field.description})" if field is not None and field.description else ""
    allowed = item["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{key} is {shortened(item['input'])}; allowed: {allowed}{about}"


def shortened(value: Any, limit: int = 200) -> str:
    """A value as Python writes it, cut after so many characters."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + " ..."


def unknown(what: str, value: Any, allowed: Collection[str]) -> str:
    """The sentence for a name that does not exist: the name, the nearest one, all allowed ones; of
    more than `MOST_NAMES` the nearest five."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    names = f"allowed: {', '.join(sorted(allowed))}" if allowed else "allowed: nothing there"
    if len(allowed) > MOST_NAMES:
        five = difflib.get_close_matches(str(value), list(allowed), n=5, cutoff=0)
        names = f"allowed: {len(allowed)} names, the nearest are {', '.join(five)}"
    return f"{what} is {shortened(value)}, which is unknown; {hint}{names}"


def require(
    what: str, value: Any, allowed: Collection[str], error: type[ValueError] = ParamError
) -> None:
    """Raises the error of a name that does not exist; see `unknown`."""
    if value not in allowed:
        raise error(unknown(what, value, allowed))


def papers() -> list[str]:
    """The papers and studies that have parameter files."""
    return sorted({path.parent.name for at in _places() for path in at.glob("*/variants.yaml")})


def _places() -> tuple[Path, Path]:
    """The folders of parameter files: the project's, and those of an installed package."""
    return ROOT / "params", PACKAGED_PARAMS


def shared_file(name: str) -> Path:
    """A file that lies beside the papers' folders of parameter files."""
    return next(place / name for place in _places() if (place / name).is_file())


def check_names(paper: str, scale: str, chosen: Collection[str] = ()) -> None:
    """Looks up a paper, one of its scales and some of its variants: files only, no method.

    Raises:
        ParamError: the first name that does not exist.
    """
    scale_file(paper, scale)
    known = variants(paper)
    for name in chosen:
        require(f"variant of {paper}", name, known)


def scale_file(paper: str, scale: str) -> Path:
    """Where the parameter file of a scale is.

    Raises:
        ParamError: unknown paper or scale.
    """
    folder = _folder(paper)
    there = [name for name in SCALES if (folder / f"{name}.yaml").is_file()]
    if scale not in there:
        missing = f", and {folder / scale}.yaml does not exist" if scale in SCALES else ""
        allowed = ", ".join(there) or "a scale with a file"
        message = f"scale is {scale!r}{missing}; allowed: {allowed}"
        raise ParamError(message if missing else unknown("scale", scale, there))
    return folder / f"{scale}.yaml"


def scale_values(paper: str, scale: str) -> dict[str, Any]:
    """The values of a scale's parameter file: `PLAN_KEYS` and, beside them, those under `run`.

    Raises:
        ParamError: unknown paper or scale, or a file of another scale or with other names.
    """
    path = scale_file(paper, scale)
    values = _mapping(path)
    allowed = ("scale", "run", *PLAN_KEYS)
    for key in values:
        require(f"{path}: parameter", key, allowed)
    if values.pop("scale", None) != scale:
        raise ParamError(f"{path}: scale is another one; allowed: {scale}")
    run = values.pop("run", None) or {}
    if not isinstance(run, dict) or set(run) & {"scale", *PLAN_KEYS}:
        raise ParamError(f"{path}: run is {shortened(run)}; allowed: parameters of a run by name")
    return values | run


def variants(paper: str) -> dict[str, dict[str, Any]]:
    """The paper's variants by name.

    `about` (one sentence), `set` (changed parameters), `at` (further ones by scale), `seeds` (by
    scale, instead of the parameter file's), `headline` (run by default), `scales` (the only ones
    that it can be run at).

    Raises:
        ParamError: unknown paper, or an entry that is not such a mapping.
    """
    path = _folder(paper) / "variants.yaml"
    entries = _mapping(path)
    for name, entry in entries.items():
        if not isinstance(name, str) or not VARIANT.fullmatch(name):
            allowed = "small letters, digits, dots and hyphens, the first a letter or digit"
            raise ParamError(f"{path}: variant is {name!r}; allowed: {allowed}")
        where = f"{path}: variant {name}"
        if not isinstance(entry, dict):
            allowed = ", ".join(Entry.model_fields)
            raise ParamError(f"{where} is {shortened(entry)}; allowed: {allowed}")
        validate(Entry, entry, f"{where}: ")
    return entries


def search_values(paper: str, name: str = "search") -> dict[str, Any]:
    """The content of a paper's file `search.yaml` or `search-*.yaml`; ParamError: no such."""
    files = [path for each in papers() for path in sorted(_folder(each).glob("search*.yaml"))]
    having = [f"{path.parent.name}/{path.stem}".removesuffix("/search") for path in files]
    if f"{paper}/{name}".removesuffix("/search") not in having:
        raise ParamError(f"{paper} has no {name}.yaml; allowed: {', '.join(having)}")
    return _mapping(_folder(paper) / f"{name}.yaml")


def variants_at(paper: str, scale: str) -> dict[str, dict[str, Any]]:
    """The paper's variants that can be run at a scale."""
    entries = variants(paper).items()
    return {name: entry for name, entry in entries if scale in entry.get("scales", SCALES)}


def _folder(paper: str) -> Path:
    known = papers()
    for place in _places():
        if paper in known and (place / paper / "variants.yaml").is_file():
            return place / paper
        if paper not in known and paper and (place / paper).is_dir():
            missing = place / paper / "variants.yaml"
            raise ParamError(f"paper is {paper!r}; allowed: one whose {missing} exists")
    raise ParamError(unknown("paper", paper, known))


def _mapping(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path.read_text())
    except (YamlError, UnicodeDecodeError) as error:
        raise ParamError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ParamError(f"{path} holds {type(values).__name__}; allowed: a mapping of names")
    return values
