"""spnb: self-play reinforcement learning for language models, in notebooks.

    import spnb as sp

    plan = sp.make_plan("spiral", "cpu", seeds=[0])
    runs = sp.run_all(plan)
    sp.exhibit("spiral/table-11", plan)

Storeys: the helper (`core`, `methods`, `train`) is a paper's algorithm and its training. The
environments (`games`, `corpus`, `evaluate`) are played, read and measured in. The laboratory
(`lab`) has generated worlds and small policies. The results (`report`, `reference`) are tables,
figures and the papers' numbers. `cli` is the command. `spnb/README.md` says what to read first.

This page of names is what a notebook needs. Importing it does not import torch: each name is loaded
from its room when it is first used. In a notebook, importing it gives all tables one style.
"""

import importlib
import sys
from typing import Any

from spnb.core import rewards

__version__ = "0.1.0"
sys.modules[f"{__name__}.rewards"] = rewards

_ROOMS = {
    "spnb.core.advantages": ("make_estimator",),
    "spnb.core.episodes": ("ask_group", "parallel", "run", "single_turn"),
    "spnb.core.documents": ("Context", "Proposal"),
    "spnb.core.grading": ("extract_boxed", "grade", "graded", "majority_vote", "read_answer"),
    "spnb.core.plugins": ("register_reward", "register_source"),
    "spnb.core.stats": ("pass_at_k",),
    "spnb.core.types": ("Chat", "Request", "Sample", "Sampling", "Task", "derive_seed"),
    "spnb.corpus.segments": ("cut",),
    "spnb.games": ("make_game", "register_game"),
    "spnb.train.plan": ("deviations", "make_plan", "run_all", "run_one"),
    "spnb.train.policies": ("load_policy",),
    "spnb.report": ("exhibit",),
    "spnb.report.compare": ("compare",),
    "spnb.report.display": ("excerpt", "over_training", "token_table", "toy_curves"),
    "spnb.report.live": ("LiveCurves",),
    "spnb.report.notebooks": ("describe",),
    "spnb.report.quick": ("quick",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
_MODULES = {
    "evaluation": "spnb.evaluate",
    "games": "spnb.games",
    "prompts": "spnb.core.prompts",
    "reference": "spnb.reference",
}

__all__ = ["rewards", *sorted(_HOME), *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"spnb has no {name!r}; it has: {', '.join(__all__)}")


def style_tables() -> None:
    """Shows every DataFrame of a notebook by `table_html`; importing spnb in one calls this."""
    from IPython import get_ipython

    def html(table: Any) -> str:
        from spnb.report.display import table_html

        return table_html(table)

    if shell := get_ipython():
        formatters = shell.display_formatter.formatters
        formatters["text/html"].for_type_by_name("pandas", "DataFrame", html)


def __dir__() -> list[str]:
    return sorted(__all__)


if "IPython" in sys.modules:
    style_tables()
