"""The laboratory of scale cpu: generated worlds, their oracles and suites, the shipped policies.

Methods reach its sources by name alone, `open_source("lab:...")` of `spnb.core.documents`.
"""

import importlib
from typing import Any

from spnb.core.documents import DocumentSource
from spnb.core.params import ParamError, unknown
from spnb.core.paths import embedded_path

__all__ = ["SOURCES", "check_source", "embedded_path", "open_source"]

SOURCES = {
    "ladder": "spnb.lab.ladder_suites",
    "targets": "spnb.lab.targets",
    "clusters": "spnb.lab.clusters",
    "segments": "spnb.lab.segments",
    "groups": "spnb.lab.groups",
}
"""Sources by name, each the module whose `make_source(params, tokenizer)` sets it up; what its
`check(params)` does not take, if it has one, is a ValueError."""


def open_source(name: str, params: Any, tokenizer: Any) -> DocumentSource:
    """The source of this name, set up by a method's parameters.

    Raises:
        ParamError: there is none of that name.
    """
    return _module(name).make_source(params, tokenizer)


def check_source(name: str, params: Any) -> None:
    """ValueError for parameters that the source of this name does not take."""
    module = _module(name)
    if hasattr(module, "check"):
        module.check(params)


def _module(name: str) -> Any:
    if name not in SOURCES:
        raise ParamError(unknown("source", f"lab:{name}", [f"lab:{one}" for one in SOURCES]))
    return importlib.import_module(SOURCES[name])
