"""The laboratory of scale cpu: generated worlds, their oracles and suites, the shipped policies.

Methods reach its sources by name alone, `open_source("lab:...")` of `spnb.core.documents`.
"""

import importlib
from pathlib import Path
from typing import Any

from spnb.core.documents import DocumentSource
from spnb.core.params import ParamError, unknown

SOURCES = {
    "clusters": "spnb.lab.clusters",
    "segments": "spnb.lab.segments",
    "ladder": "spnb.lab.ladder_suites",
}
"""Sources by name, each the module whose `make_source(params, tokenizer)` sets it up."""

WEIGHTS = Path(__file__).resolve().parent / "weights"


def embedded_path(name: str) -> Path:
    """The folder of a shipped policy.

    Raises:
        ValueError: there is none of that name.
    """
    known = sorted(path.parent.name for path in WEIGHTS.glob("*/config.json"))
    if name not in known:
        raise ValueError(f"embedded policy is {name!r}; allowed: {', '.join(known)}")
    return WEIGHTS / name


def open_source(name: str, params: Any, tokenizer: Any) -> DocumentSource:
    """The source of this name, set up by a method's parameters.

    Raises:
        ParamError: there is none of that name.
    """
    if name not in SOURCES:
        known = [f"lab:{one}" for one in SOURCES]
        raise ParamError(unknown("source", f"lab:{name}", known))
    return importlib.import_module(SOURCES[name]).make_source(params, tokenizer)
