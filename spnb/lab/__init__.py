"""The laboratory of scale cpu: generated worlds, their oracles and suites, the shipped policies.

Methods reach its sources by name alone, `open_source("lab:...")` of `spnb.core.documents`.
"""

import importlib
from typing import Any

from spnb.core.params import require
from spnb.core.paths import embedded_path

__all__ = ["SOURCES", "embedded_path", "source_module"]

SOURCES = {
    "ladder": "spnb.lab.ladder_suites",
    "targets": "spnb.lab.targets",
    "clusters": "spnb.lab.clusters",
    "segments": "spnb.lab.segments",
    "groups": "spnb.lab.groups",
}
"""Sources by name, each the module whose `make_source(params, tokenizer)` sets it up; what its
`check(params)` does not take is a ValueError."""


def source_module(name: str) -> Any:
    """The module of the source of this name; ParamError where there is none."""
    require("source", f"lab:{name}", [f"lab:{one}" for one in SOURCES])
    return importlib.import_module(SOURCES[name])
