"""One file a paper: its game as its algorithm reads. A paper's module has `Params` and `Method`."""

import importlib
from types import ModuleType

from spnb.core.params import ParamError, papers, unknown


def method_module(paper: str) -> ModuleType:
    """The module of a paper; ParamError where there is none."""
    if paper not in papers():
        raise ParamError(unknown("paper", paper, papers()))
    return importlib.import_module(f"spnb.methods.{paper}")
