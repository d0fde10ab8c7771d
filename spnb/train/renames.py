"""Names of parameters that earlier runs were made with, and today's (`renames.yaml`)."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

EVERY = "every"
"""In `renames.yaml`: the runs of all papers."""


@cache
def _renames() -> dict[str, dict[str, Any]]:
    text = (files("spnb") / "train" / "renames.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def current(params: Mapping[str, Any]) -> dict[str, Any]:
    """A run's parameters under today's names.

    A parameter that is gone is left out if it has the value that every such run has today, and kept
    otherwise: that run has no counterpart.
    """
    params = dict(params)
    for group in (EVERY, params.get("paper", "")):
        for old, new in _renames()["renamed"].get(group, {}).items():
            if old in params:
                params[new] = params.pop(old)
        for name, values in _renames()["values"].get(group, {}).items():
            if name in params:
                params[name] = values.get(params[name], params[name])
        for name, value in _renames()["removed"].get(group, {}).items():
            if name in params and params[name] == value:
                del params[name]
    return params
