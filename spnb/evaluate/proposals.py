"""Proposed questions in numbers: how many are valid, how hard they are, how much they differ."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from spnb.core.rewards import gaussian
from spnb.evaluate.items import Records, Rows, mean_row
from spnb.testbed.oracle import MAX_HOPS

SUITE = "proposals"
"""A record's item is the set of documents, its score validity; it has the question, its hops, the
query (what it asks for, whatever its words) and p, a judge's share of right answers, by judge."""


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


def proposal_metrics(records: Records, judge: str, hard_hops: int) -> dict[str, float]:
    """valid, questions (different valid ones), and means over the valid ones if there are any."""
    frame = pd.DataFrame(records)
    valid = frame[frame["score"] == 1]
    questions = len(valid.drop_duplicates(["item", "question"]))
    numbers = {"valid": frame["score"].mean(), "questions": questions}
    if len(valid):
        numbers |= {
            "success": valid[judge].mean(),
            "difficulty_reward": valid[judge].map(gaussian).mean(),
            "hops_mean": valid["hops"].mean(),
            "hard_share": (valid["hops"] >= hard_hops).mean(),
            "distinct": 1 - valid.duplicated(["item", "query"]).mean(),
        }
        numbers |= {f"hops/{n}": (valid["hops"] == n).mean() for n in range(1, MAX_HOPS + 1)}
    return {f"method/{key}": float(value) for key, value in numbers.items()}
