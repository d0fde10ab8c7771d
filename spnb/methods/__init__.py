"""One file a paper: its game as its algorithm reads. A paper's module has `Params` and `Method`."""

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from spnb.core.params import ParamError, papers, require


def method_module(paper: str) -> ModuleType:
    """The module of a paper; ParamError where there is none."""
    require("paper", paper, papers())
    if importlib.util.find_spec(f"spnb.methods.{paper}") is None:
        raise ParamError(f"paper is {paper!r}; allowed: one whose spnb/methods/{paper}.py exists")
    return importlib.import_module(f"spnb.methods.{paper}")


def method_class(paper: str, params: Any) -> type:
    """The method that a run's parameters name: the paper's, or another `algorithm` that it is
    compared with (`METHODS` of its module)."""
    module = method_module(paper)
    algorithm = getattr(params, "algorithm", "")
    others: Mapping[str, str] = getattr(module, "METHODS", {})
    return importlib.import_module(others.get(algorithm, module.__name__)).Method
