"""Evaluation and training rows as a paper's numbers: scores by step, and cells of a table at shares
of the training.

Rows are those of `evals.jsonl` and `metrics.jsonl` of any runs (`spnb.train.plan.gather`). What is
asked for is named by evaluations and by `weights`, metrics to add up with their factors.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import pandas as pd

from spnb.core.stats import over_seeds

SCORE = {"win": 100.0, "draw": 50.0}
"""A win rate in % in which draws count half."""
INDEX = ["variant", "seed", "step"]


def by_step(
    evals: pd.DataFrame, names: Sequence[str], weights: Mapping[str, float]
) -> pd.DataFrame:
    """The weighted sum of metrics at every step of every run: index variant, seed, step; a column
    an evaluation.

    A step that lacks one of the metrics has nan there; an evaluation that no run has is a column of
    nan.
    """
    rows = evals[evals["evaluation"].isin(names) & evals["metric"].isin(weights)]
    parts = rows.pivot_table(index=[*INDEX, "evaluation"], columns="metric", values="value")
    factors = pd.Series(weights)
    sums = (parts.reindex(columns=factors.index) * factors).sum(axis=1, skipna=False)
    return sums.unstack("evaluation").reindex(columns=list(names))


def scores(
    evals: pd.DataFrame,
    names: Sequence[str],
    weights: Mapping[str, float] = SCORE,
    whole: bool = False,
) -> pd.DataFrame:
    """The mean over evaluations at every step: rows variant, seed, step, value, as for
    `plots.curve`.

    Of the evaluations that a run has at a step; with `whole`, a step without all of them is left
    out.
    """
    return (
        by_step(evals, names, weights)
        .mean(axis=1, skipna=not whole)
        .dropna()
        .rename("value")
        .reset_index()
    )


def logged(metrics: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The mean over columns of the training log, * stands for anything: rows variant, seed, step,
    value."""
    columns = [column for column in metrics if any(fnmatchcase(column, name) for name in names)]
    return metrics[INDEX].assign(value=metrics[columns].mean(axis=1)).dropna()


def near(rows: pd.DataFrame, share: float, window: float = 0) -> pd.DataFrame:
    """Those of one variant's rows whose step is nearest to a share of the training, or within
    `window` (a share)."""
    last = rows["step"].max()
    distance = (rows["step"] - max(share * last, rows["step"].min())).abs()
    return rows[distance <= max(distance.min(), window * last)]


def cells(
    columns: Mapping[str, pd.DataFrame], rows: Mapping[str, tuple[str, float]], window: float = 0
) -> pd.DataFrame:
    """A table's cells for `exhibits.beside_paper`: row, column, value, low, high, n (seeds), at
    (its steps).

    Args:
        columns: label to rows variant, seed, step, value.
        rows: label to a variant and a share of its training, 0 the start and 1 the end.
        window: as in `near`.

    A cell without any run is left out. An interval is over seeds; with one seed its ends are nan.
    Before training all seeds have the same weights: if they agree exactly, that is one measurement,
    n = 1.
    """
    found = []
    for column, values in columns.items():
        for row, (variant, share) in rows.items():
            mine = near(values[values["variant"] == variant], share, window)
            if share == 0 and mine["value"].nunique() == 1:
                mine = mine[:1]
            first, last = mine["step"].min(), mine["step"].max()
            cell = over_seeds(
                mine[["seed", "value"]].assign(row=row, column=column), ["row", "column"]
            )
            found.append(
                cell.assign(at=f"step {first}" if first == last else f"steps {first}-{last}")
            )
    return pd.concat(found, ignore_index=True)
