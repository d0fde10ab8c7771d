"""One file a paper: its game as its algorithm reads. A module named after the paper holds `Params`
and `Method`."""

import importlib
from types import ModuleType

from spnb.core.params import ParamError, papers, unknown


def method_module(paper: str) -> ModuleType:
    """The module of a paper.

    Raises:
        ParamError: no such paper.
    """
    if paper not in papers():
        raise ParamError(unknown("paper", paper, papers()))
    return importlib.import_module(f"spnb.methods.{paper}")
