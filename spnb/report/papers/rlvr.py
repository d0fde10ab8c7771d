"""RLVR's exhibits that are more than a measure over steps: gains, and kinds of gain."""

from collections.abc import Sequence

import pandas as pd

from spnb.core.stats import bootstrap_interval, mean_interval
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import Frames, format_interval, load_measures, records, within
from spnb.report.tables import load_own
from spnb.train.plan import Plan
from spnb.train.runs import Run

WATCHED = {"think": "thinks", "search": "searches"}
"""RLVR's tasks, and the behaviour of each that may be selected."""


def gains(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Start, end and gain of each task beside its controls, a line a task and measure."""
    frames = frames.with_own(load_own("rlvr")["rlvr/gains"].variants)
    measures = load_measures("rlvr")
    right = [name for name in measures if name.startswith("right, ")]
    tasks = {task: [act] for task, act in WATCHED.items()}
    tasks |= {name: [*WATCHED.values()] for name in frames.own}
    lines = []
    for task, acts in tasks.items():
        shown = [f"{act}, held-out, {how}" for act in acts for how in ("sampled", "greedy")]
        for name in [*right, *shown]:
            level = measures[name]
            gain = level.model_copy(update={"change": "difference"})
            own = frames.only([task])
            more = gain.difference(frames, task, f"{task}-random")
            intervals = {
                "start": level.interval(own, task, 0),
                "end": level.interval(own, task),
                "gain": gain.interval(own, task),
                "gain of control": gain.interval(frames, f"{task}-random"),
                "more than control": within(more, gain.reach()),
            }
            seeds = intervals["end"][3]
            line = {key: format_interval(*each[:3]) for key, each in intervals.items()}
            if seeds:
                items = int(level.select(own)[0]["n"].max())
                labels = {"task": task, "measure (%)": name}
                lines.append(labels | line | {"seeds": seeds, "items": items})
    return ExhibitContent(pd.DataFrame(lines), frames.runs) if lines else None


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
    """The split of each task's sampled held-out gain, in points, and the kind of gain.

    Selecting a behaviour, if more than half of the gain is selected; else sharpening, if greedy
    accuracy gained less than half of the rest; else improving a skill.
    """
    greedy = load_measures("rlvr")["right, held-out, greedy"]
    greedy = greedy.model_copy(update={"change": "difference"})
    rows: dict[str, dict[str, str]] = {}
    for task, act in WATCHED.items():
        ends = [_answers(run, act) for run in frames.runs if run.variant == task]
        if not ends:
            continue
        splits = [100 * pd.Series(split(*pair)) for pair in ends]
        numbers = pd.DataFrame(splits).set_axis(["gain", "selected", "within"], axis=1)
        mean = numbers.mean()
        sharpened = greedy.interval(frames, task)[0] < mean["within"] / 2
        kind = "sharpening" if sharpened else "improving a skill"
        kind = "selecting a behaviour" if mean["selected"] > mean["within"] else kind
        kind = kind if mean["gain"] > 0 else "no gain"
        over = {name: within(mean_interval(numbers[name]), (-100, 100)) for name in numbers}
        cells = {name: format_interval(*interval[:3]) for name, interval in over.items()}
        for when, tables in zip(("start", "end"), zip(*ends, strict=True), strict=True):
            cells[f"rate, {when}"] = _level([table["did"] for table in tables])
            for word, did in (("done", True), ("not", False)):
                right = [table.loc[table["did"] == did, "right"] for table in tables]
                cells[f"right if {word}, {when}"] = _level(right)
        rows[task] = {"behaviour": act, "kind": kind} | cells
    return pd.DataFrame(rows)


def _answers(run: Run, act: str) -> list[pd.DataFrame]:
    """The sampled held-out answers before and after training: columns did and right."""
    rows = records([run]).query("suite == 'held-out' and decoding == 'sampled'")
    rows = rows.assign(did=rows[act].astype(bool), right=rows["score"] == 1.0)
    steps = (rows["step"].min(), rows["step"].max())
    return [rows.loc[rows["step"] == step, ["did", "right"]] for step in steps]


def _level(seeds: Sequence[pd.Series]) -> str:
    """The share of each seed's answers (%), over seeds and answers; equal seeds count once."""
    values = [each.to_numpy(float) for each in seeds if len(each)]
    if all(each.tobytes() == values[0].tobytes() for each in values):
        values = values[:1]
    shares = [{"": 100 * each / len(each)} for each in values]
    return format_interval(*bootstrap_interval(shares, (0, 100))[:3])


MAKERS = {"rlvr/gains": gains}
