"""What the study of RLVR shows beside its claims and curves: gains, and kinds of gain."""

import pandas as pd

from spnb.core.stats import mean_interval
from spnb.report.exhibits import Made
from spnb.report.frame import Frames, format_interval, records
from spnb.report.tables import load_measures
from spnb.train.plan import Plan
from spnb.train.runs import Run

WATCHED = {"read": "thinks", "think": "thinks", "search": "searches"}
"""RLVR's tasks, and the behaviour of each that may be selected."""


def gains(plan: Plan, frames: Frames) -> Made | None:
    """RLVR: start, end and gain of each task beside its controls, a line a task and measure."""
    measures = load_measures("rlvr")
    right = [name for name in measures if name.startswith("right, ")]
    lines = []
    for task, act in WATCHED.items():
        for name in [*right, f"{act}, held-out, sampled", f"{act}, held-out, greedy"]:
            level = measures[name]
            gain = level.model_copy(update={"change": "difference"})
            own = frames.only([task])
            intervals = {
                "start": level.interval(own, task, 0),
                "end": level.interval(own, task),
                "gain": gain.interval(own, task),
                "gain of control": gain.interval(frames, f"{task}-random"),
                "more than control": gain.difference(frames, task, f"{task}-random"),
                "gain without the skill": gain.interval(frames, f"{task}-unskilled"),
            }
            seeds = intervals["end"][3]
            line = {key: format_interval(*each[:3]) for key, each in intervals.items()}
            line |= {"start": f"{intervals['start'][0]:.1f}", "seeds": seeds}
            if seeds:
                items = int(level.select(own)[0]["n"].max())
                lines.append({"task": task, "measure (%)": name} | line | {"items": items})
    return Made(pd.DataFrame(lines), frames.runs) if lines else None


def split(before: pd.DataFrame, after: pd.DataFrame) -> tuple[float, float, float]:
    """(Whole change, selected, within) of accuracy between two tables with columns did and right.

    Selected is what comes from showing a behaviour more often, within what comes from being right
    more often with the same behaviour. Where one table has no answer of a kind, the other's
    accuracy stands in, so that its appearance counts as selected.
    """
    both = [False, True]
    share = [f["did"].value_counts(normalize=True).reindex(both).fillna(0) for f in (before, after)]
    right = [frame.groupby("did")["right"].mean().reindex(both) for frame in (before, after)]
    right = [right[0].fillna(right[1]).fillna(0), right[1].fillna(right[0]).fillna(0)]
    whole = after["right"].mean() - before["right"].mean()
    selected = ((share[1] - share[0]) * (right[0] + right[1]) / 2).sum()
    return whole, selected, whole - selected


def kinds_of_gain(frames: Frames) -> pd.DataFrame:
    """RLVR: the split of each task's sampled held-out gain, in points, and the kind of gain.

    Selecting a behaviour, if more than half of the gain is selected; else sharpening, if greedy
    accuracy gained less than half of the rest; else improving a skill.
    """
    greedy = load_measures("rlvr")["right, held-out, greedy"]
    greedy = greedy.model_copy(update={"change": "difference"})
    rows: dict[str, dict[str, str]] = {}
    for task, act in WATCHED.items():
        parts = [_split_of(run, act) for run in frames.runs if run.variant == task]
        if not parts:
            continue
        numbers = 100 * pd.DataFrame(parts)
        mean = numbers.mean()
        sharpened = greedy.interval(frames, task)[0] < mean["within"] / 2
        kind = "sharpening" if sharpened else "improving a skill"
        kind = "selecting a behaviour" if mean["selected"] > mean["within"] else kind
        kind = kind if mean["gain"] > 0 else "no gain"
        cells = {name: format_interval(*mean_interval(numbers[name])[:3]) for name in numbers}
        rows[task] = {"behaviour": act, "kind": kind} | cells
    return pd.DataFrame(rows)


def _split_of(run: Run, act: str) -> dict[str, float]:
    rows = records([run]).query("suite == 'held-out' and decoding == 'sampled'")
    rows = rows.assign(did=rows[act].astype(bool), right=rows["score"] == 1.0)
    ends = [rows[rows["step"] == step] for step in (rows["step"].min(), rows["step"].max())]
    values = dict(zip(("gain", "selected", "within"), split(*ends), strict=True))
    for when, part in zip(("start", "end"), ends, strict=True):
        values[f"rate, {when}"] = part["did"].mean()
        values[f"right if done, {when}"] = part.loc[part["did"], "right"].mean()
        values[f"right if not, {when}"] = part.loc[~part["did"], "right"].mean()
    return values


MAKERS = {"rlvr/gains": gains}
