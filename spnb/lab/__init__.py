"""The laboratory of scale cpu: generated worlds, their oracles and suites, the shipped policies.

Methods reach its sources by name alone, `open_source("lab:...")` of `spnb.core.documents`.
"""

import importlib
from typing import Any

from spnb.core.documents import DocumentSource
from spnb.core.params import ParamError, unknown
from spnb.core.paths import embedded_path

__all__ = ["SOURCES", "embedded_path", "open_source"]

SOURCES = {"ladder": "spnb.lab.ladder_suites"}
"""Sources by name, each the module whose `make_source(params, tokenizer)` sets it up."""


def open_source(name: str, params: Any, tokenizer: Any) -> DocumentSource:
    """The source of this name, set up by a method's parameters.

    Raises:
        ParamError: there is none of that name.
    """
    if name not in SOURCES:
        known = [f"lab:{one}" for one in SOURCES]
        raise ParamError(unknown("source", f"lab:{name}", known))
    return importlib.import_module(SOURCES[name]).make_source(params, tokenizer)
