"""Evaluation rows as a paper's numbers: scores by step, cells of a table, the evaluation nearest to a share of training.

The rows are those of `evals.jsonl` of any runs (`spnb.experiment.gather`): variant, seed, step, evaluation, metric,
value. What is asked for is named by evaluations and by `weights`, metrics to add up with their factors.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd

from spnb.stats import over_seeds

SCORE = {"win": 100.0, "draw": 50.0}
"""A win rate in % in which draws count half."""
INDEX = ["variant", "seed", "step"]
When = Literal["start", "end"]
Named = tuple[Sequence[str], Mapping[str, float]]
"""Evaluations and weights: what a column of a table measures, the mean over the evaluations."""


def by_step(evals: pd.DataFrame, names: Sequence[str], weights: Mapping[str, float]) -> pd.DataFrame:
    """The weighted sum of metrics at every step of every run: index variant, seed, step; a column an evaluation.

    A step that lacks one of the metrics has nan there; an evaluation that no run has is a column of nan.
    """
    rows = evals[evals["evaluation"].isin(names) & evals["metric"].isin(weights)]
    parts = rows.pivot_table(index=[*INDEX, "evaluation"], columns="metric", values="value")
    factors = pd.Series(weights)
    sums = (parts.reindex(columns=factors.index) * factors).sum(axis=1, skipna=False)
    return sums.unstack("evaluation").reindex(columns=list(names))


def scores(evals: pd.DataFrame, names: Sequence[str], weights: Mapping[str, float] = SCORE) -> pd.DataFrame:
    """The mean over evaluations that a run has at a step, as rows variant, seed, step, value: what `plots.curve` takes."""
    return by_step(evals, names, weights).mean(axis=1).dropna().rename("value").reset_index()


def cells(evals: pd.DataFrame, rows: Mapping[str, tuple[str, When]], columns: Mapping[str, Named]) -> pd.DataFrame:
    """A table's cells for `exhibits.beside_paper`: row, column, value, low, high, n (seeds).

    Args:
        rows: label to a variant and when: at the first or at the last step that it has.
        columns: label to evaluations and weights. A run counts if it has all of them then.

    A cell without any run is left out. An interval is over seeds; with one seed its ends are nan.
    """
    found = []
    for column, (names, weights) in columns.items():
        values = by_step(evals, names, weights).mean(axis=1, skipna=False).dropna().rename("value").reset_index()
        for row, (variant, when) in rows.items():
            mine = values[values["variant"] == variant]
            ends = mine.groupby("seed")["step"].transform("min" if when == "start" else "max")
            found.append(over_seeds(mine[mine["step"] == ends].assign(row=row, column=column), ["row", "column"]))
    return pd.concat(found, ignore_index=True)


def at_share(rows: pd.DataFrame, share: float, last: int, row: str, column: str) -> pd.DataFrame:
    """One cell: the mean over seeds at the step nearest to a share of training, and `at`, which step that is.

    Args:
        rows: seed, step, value, of one variant; may be empty, then so is the cell.
        last: the last step of training.
    """
    step = min(rows["step"].unique(), key=lambda step: abs(step - share * last), default=None)
    line = over_seeds(rows[rows["step"] == step].assign(row=row, column=column), ["row", "column"])
    return line.assign(at=f"step {step} of {last}")
