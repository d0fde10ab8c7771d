"""Proposed questions in numbers: how many are valid, how hard they are, how much they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from spnb.core.rewards import gaussian
from spnb.evaluate.items import Records, Rows, mean_row

SUITE = "proposals"
"""A record's item is the set of documents, its score validity; it has hops, query (what is asked
for, whatever its words) and each judge's share of right answers under the judge's name."""


def proposal_rows(records: Records, judges: Sequence[str], hard_hops: int) -> Rows:
    """Means over sets of documents, as the proposals about one set are no independent draws.

    valid; of the valid ones hard (from `hard_hops`), hops, distinct; by judge (column opponent)
    success (mean p) and difficulty_reward.
    """
    frame = pd.DataFrame(records)
    valid = frame[frame["score"] == 1]
    valid = valid.assign(hard=valid["hops"] >= hard_hops).groupby("item", sort=False)
    rows = [_row("valid", frame.groupby("item", sort=False)["score"].mean())]
    rows += [_row("hard", valid["hard"].mean()), _row("hops", valid["hops"].mean())]
    rows.append(_row("distinct", valid["query"].nunique() / valid.size()))
    for judge in judges:
        rewards = valid[judge].agg(lambda values: values.map(gaussian).mean())
        rows.append(_row("difficulty_reward", rewards, judge))
        rows.append(_row("success", valid[judge].mean(), judge))
    return rows


def _row(metric: str, means: pd.Series, judge: str = "") -> dict[str, Any]:
    return mean_row(SUITE, metric, means.tolist(), opponent=judge)


def proposal_metrics(
    records: Records, judge: str, hard_hops: int, max_hops: int
) -> Mapping[str, float]:
    """Means over all proposals, those after `valid` over the valid ones; left out where none is."""
    frame = pd.DataFrame(records)
    valid = frame[frame["score"] == 1]
    numbers = {"valid": frame["score"]}
    if len(valid):
        numbers |= {"success": valid[judge], "difficulty_reward": valid[judge].map(gaussian)}
        numbers |= {"hops_mean": valid["hops"], "hard_share": valid["hops"] >= hard_hops}
        numbers["distinct"] = ~valid.duplicated(["item", "query"])
        numbers |= {f"hops/{n}": valid["hops"] == n for n in range(1, max_hops + 1)}
    return {key: float(values.mean()) for key, values in numbers.items()}
