"""The graded answers and matches behind evaluated numbers, for intervals over seeds and items.

An evaluated number (a row of `evals.jsonl`) that is the mean of a column of the records
(`items.jsonl`) is taken apart into what each item adds to it. Items of one suite, opponent, role,
decoding and difficulty at one step are a stratum. Other numbers (exploitability, pass@k, a ratio of
sums) have no items.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spnb.core.method import POLICY
from spnb.evaluate.matches import OUTCOMES
from spnb.train.runs import Run, config_hash

ARM = ["step", "suite", "opponent", "decoding"]
PART = ["role", "difficulty"]
TOLERANCE = 1e-9


class Stratum(NamedTuple):
    """The records of one stratum: their items and columns, and which columns are true or false."""

    items: np.ndarray
    columns: Mapping[str, np.ndarray]
    shares: frozenset[str]


class ItemContributions(NamedTuple):
    """What each item adds to a number, by stratum (items, values); `bounded`: items from 0 to 1."""

    strata: Mapping[tuple[Any, ...], tuple[np.ndarray, np.ndarray]]
    bounded: bool

    @property
    def values(self) -> list[np.ndarray]:
        """What each item adds, a list of strata."""
        return [values for _, values in self.strata.values()]


Answers = Mapping[tuple[Any, ...], Mapping[tuple[str, str], Stratum]]
"""By the columns of `ARM`, then by those of `PART`."""


def read_answers(run: Run) -> Answers:
    """The records of a run, with those columns only that evaluated numbers are means of."""
    metrics = dict.fromkeys(row["metric"] for row in run.rows("evals"))
    known = [*ARM, *PART, "item", "score", "outcome"]
    columns = [name for name in metrics if name not in (*OUTCOMES, *known)]
    wanted = [*known, *columns]
    records = pd.DataFrame(run.rows("items")).reindex(columns=wanted)
    labels = [*ARM[1:], *PART]
    records[labels] = records[labels].fillna("").astype(str)
    records["item"] = records["item"].astype(str)
    answers: dict[tuple[Any, ...], dict[tuple[str, str], Stratum]] = {}
    for key, rows in records.groupby([*ARM, *PART], sort=False):
        values = {"score": rows["score"].to_numpy(float)}
        if rows["outcome"].notna().all():
            values |= {name: (rows["outcome"] == name).to_numpy(float) for name in OUTCOMES}
        shares = {*values}
        for name in columns:
            if rows[name].notna().all() and all(isinstance(v, int | float) for v in rows[name]):
                values[name] = rows[name].to_numpy(float)
                shares |= {name} if all(isinstance(v, bool) for v in rows[name]) else set()
        stratum = Stratum(rows["item"].to_numpy(), values, frozenset(shares))
        answers.setdefault(key[: len(ARM)], {})[key[len(ARM) :]] = stratum
    return answers


def item_contributions(
    answers: Answers, rows: pd.DataFrame, weights: Mapping[str, float]
) -> ItemContributions | None:
    """What each item adds to the mean over cells of the weighted sum of a cell's metrics.

    Metrics of one cell are added up item by item: a match is a win or a draw. None where one of the
    numbers has no items.

    Args:
        rows: evaluated numbers of one run; a cell is what they share beside the metric.
    """
    sums: dict[tuple[Any, ...], np.ndarray] = {}
    items: dict[tuple[Any, ...], np.ndarray] = {}
    bounded = True
    cells = len(rows) / len(weights)
    for *arm, role, difficulty, metric, value in rows[[*ARM, *PART, "metric", "value"]].values:
        parts = {
            part: stratum
            for part, stratum in answers.get(tuple(arm), {}).items()
            if role in ("", part[0]) and difficulty in ("", part[1])
        }
        name = _column(parts, metric, value)
        if name is None:
            return None
        count = sum(len(stratum.items) for stratum in parts.values())
        for part, stratum in parts.items():
            key = (*arm, *part)
            bounded = bounded and name in stratum.shares
            own = stratum.columns[name] * (weights[metric] / cells / count)
            sums[key] = sums.get(key, 0.0) + own
            items[key] = stratum.items
    return ItemContributions({key: _by_item(items[key], sums[key]) for key in sums}, bounded)


def pooled(runs: Sequence[ItemContributions]) -> ItemContributions:
    """Several measurements of the same weights as one; answers to one item are drawn together."""
    strata = {}
    for key in dict.fromkeys(key for run in runs for key in run.strata):
        parts = [run.strata[key] for run in runs if key in run.strata]
        items, values = (np.concatenate(side) for side in zip(*parts, strict=True))
        strata[key] = _by_item(items, values / len(runs))
    return ItemContributions(strata, all(run.bounded for run in runs))


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


def _column(parts: Mapping[Any, Stratum], metric: str, value: float) -> str | None:
    """The column whose mean is this number: one of the metric's name, else the score."""
    for name in (metric, "score"):
        if parts and all(name in stratum.columns for stratum in parts.values()):
            mean = np.concatenate([stratum.columns[name] for stratum in parts.values()]).mean()
            if abs(mean - value) <= TOLERANCE:
                return name
    return None


def _by_item(items: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Items with what they add; several answers to one item are drawn together."""
    unique, codes = np.unique(items, return_inverse=True)
    return (items, values) if len(unique) == len(items) else (unique, np.bincount(codes, values))
