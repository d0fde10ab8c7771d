"""Proposed questions in numbers: how many are valid, how hard they are, how much they differ."""

from typing import Any

import pandas as pd

from spnb.evaluate.items import Records, Rows, mean_row, share_row

SUITE = "proposals"
"""A record's item is the set of sources, its score validity; it has the question's level,
p (the solver's share of right answers) and what that pays."""


def proposal_rows(records: Records) -> Rows:
    """valid; over the valid ones level, success (mean p), pay, and mixed (right and wrong)."""
    valid = [one for one in records if one["score"] == 1]
    rows = [share_row(SUITE, "valid", [one["score"] for one in records])]
    for metric in ("level", "success", "pay"):
        rows.append(mean_row(SUITE, metric, [one[metric] for one in valid]))
    return [*rows, share_row(SUITE, "mixed", [float(0 < one["success"] < 1) for one in valid])]


def question_metrics(questions: Records) -> dict[str, float]:
    """A step's valid questions: how many, mean level, success and pay, the share with right and
    wrong answers, the share of each level."""
    numbers: dict[str, Any] = {"questions": len(questions)}
    if questions:
        frame = pd.DataFrame(questions, dtype=float)
        numbers |= frame.mean().to_dict()
        numbers["mixed"] = frame["success"].between(0, 1, inclusive="neither").mean()
        levels = frame["level"].value_counts(normalize=True).sort_index()
        numbers |= {f"level/{level:.0f}": share for level, share in levels.items()}
    return {f"method/{key}": float(value) for key, value in numbers.items()}
