"""What items add to a number: graded answers, by stratum.

An evaluated number (a row of `evals.jsonl`) that is the mean of a column of the graded answers
(`items.jsonl`) is taken apart into what each item adds to it. Items of one suite, opponent, role,
decoding and difficulty (`KEYS`) are a stratum; an item is the same one at every step. Other numbers
(exploitability, a ratio of sums) have no items.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from spnb.core.method import POLICY
from spnb.core.stats import TOLERANCE, bootstrap_interval
from spnb.evaluate.matches import OUTCOMES
from spnb.train.runs import Run, config_hash

KEYS = ["suite", "opponent", "role", "decoding", "difficulty"]
ARM = ["step", "suite", "opponent", "decoding"]
STRATUM = ["step", *KEYS]
Ends = tuple[float, float]
"""The least and the largest value."""
Interval = tuple[float, float, float, int]
"""A mean, its ends and n."""
Answers = Mapping[tuple[Any, ...], pd.DataFrame]
"""Graded answers by the columns of `ARM`, with `STRATUM` and item as index."""


def read_answers(run: Run) -> Answers:
    """The graded answers of a run: the score, outcomes as 0 or 1, and what numbers are means of."""
    metrics = dict.fromkeys(row["metric"] for row in run.rows("evals"))
    known = [*STRATUM, "item", "score", "outcome"]
    columns = [name for name in metrics if name not in (*OUTCOMES, *known)]
    table = pd.DataFrame(run.rows("items")).reindex(columns=[*known, *columns])
    table[KEYS] = table[KEYS].fillna("").astype(str)
    table["item"] = table["item"].astype(str)
    played = table["outcome"].notna()
    shares = {name: (table["outcome"] == name).astype(float).where(played) for name in OUTCOMES}
    table = table.assign(**shares).drop(columns="outcome").set_index([*STRATUM, "item"])
    return dict(list(table.groupby(level=ARM, sort=False)))


def item_contributions(
    answers: Answers, rows: pd.DataFrame, weights: Mapping[str, float]
) -> pd.DataFrame | None:
    """What each item adds to the mean over cells of the weighted sum of a cell's metrics.

    Metrics of one cell are added up item by item: a match is a win or a draw. Several answers to
    one item are put together. None where one of the numbers has no items.

    Args:
        rows: evaluated numbers of one run; a cell is what they share beside the metric.

    Returns:
        Columns `KEYS`, item, value, and bounded: whether its answers are from 0 to 1.
    """
    cells = len(rows) / len(weights)
    parts = []
    for row in rows.to_dict("records"):
        table = answers.get(tuple(row[key] for key in ARM), pd.DataFrame())
        for key in ("role", "difficulty"):
            if row[key] and len(table):
                table = table[table.index.get_level_values(key) == row[key]]
        column = _column(table, row["metric"], row["value"])
        if column is None:
            return None
        bounded = column.name in ("score", *OUTCOMES) or column.map(type).eq(bool).all()
        value = column.astype(float) * (weights[row["metric"]] / cells / len(column))
        parts.append(pd.DataFrame({"value": value, "bounded": bounded}))
    return by_item(pd.concat(parts).reset_index())


def _column(answers: pd.DataFrame, metric: str, value: float) -> pd.Series | None:
    """The column whose mean is this number: one of the metric's name, else the score."""
    for name in (metric, "score"):
        own = answers.get(name, pd.Series(dtype=object))
        numeric = len(own) and own.map(lambda each: isinstance(each, int | float)).all()
        if numeric and abs(own.astype(float).mean(skipna=False) - value) <= TOLERANCE:
            return own
    return None


def by_item(rows: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Rows of `item_contributions`, one an item (and `by`): what they add to it is summed."""
    items = rows.groupby([*by, *KEYS, "item"], sort=False)
    return items.agg({"value": "sum", "bounded": "all"}).reset_index()


def item_gains(last: pd.DataFrame, first: pd.DataFrame) -> pd.DataFrame:
    """What items add to `last` less `first`; `ends`: of the last alone (1), the first (2), both."""
    both = pd.concat([last.assign(ends=1), first.assign(value=-first["value"], ends=2)])
    both["ends"] = both.groupby(["seed", *KEYS, "item"])["ends"].transform("sum")
    return by_item(both, ["seed", "ends"])


def item_interval(rows: pd.DataFrame, bounds: Ends) -> Interval:
    """Mean over seeds of what items add up to, and its bootstrap interval over seeds and items.

    Args:
        rows: columns seed, `KEYS`, item, value, bounded and, of gains, ends; drawn by stratum.
        bounds: the least and the largest value of a seed, where all items are bounded.
    """
    keys, seeds = [*rows.columns.intersection(["ends"]), *KEYS], []
    for _, run in rows.sort_values("item", kind="stable").groupby("seed"):
        seeds.append({key: each.to_numpy() for key, each in run.groupby(keys)["value"]})
    return bootstrap_interval(seeds, bounds if rows["bounded"].all() else None)


def different_weights(runs: Sequence[Run]) -> int:
    """How many different weights some runs start from; of policies that they train, that is."""
    return len({config_hash(first_weights(run)) for run in runs})


def first_weights(run: Run) -> dict[str, Any]:
    """What decides the weights that a run's trained policies begin with."""
    stages = run.params.get("stages") or [{"policy": POLICY}]
    trained = {stage["policy"] for stage in stages} | {*run.params.get("co_trained", {})}
    starts = run.params.get("starts", {})
    own = {name: start for name, start in starts.items() if name in trained}
    return {"weights": run.params.get("weights"), "starts": own}
