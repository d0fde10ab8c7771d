"""What the studies of RLVR and of the proposer show beside their claims and curves."""

from collections.abc import Sequence

import pandas as pd

from spnb.core.stats import mean_interval
from spnb.report.claims import load_claims
from spnb.report.frame import Frames, Measure, compare, format_interval, records
from spnb.report.made import Made
from spnb.report.tables import load_measures
from spnb.train.plan import Plan

WATCHED = {"read": "thinks", "think": "thinks", "search": "searches"}
"""RLVR's tasks, and the behaviour of each that may be selected."""
HELD_OUT = "right, held-out, sampled", "right, held-out, greedy"


def gains(plan: Plan, frames: Frames) -> Made | None:
    """RLVR: start, end and gain of each task beside its controls, a line a task and measure."""
    measures = load_measures("rlvr")
    right = [name for name in measures if name.startswith("right, ")]
    lines = []
    for task, act in WATCHED.items():
        control, unskilled = f"{task}-random", f"{task}-unskilled"
        for name in [*right, *(f"{act}, held-out, {how}" for how in ("sampled", "greedy"))]:
            level = measures[name]
            gain = {"gain": level.model_copy(update={"change": "difference"})}

            def cell(variant: str, minus: str | None = None, of: dict = gain) -> str:
                return compare(frames, of, [variant], minus, digits=1).iat[0, 0]

            mean, *_, n = level.interval(frames, task)
            if n == 0:
                continue
            lines.append(
                {
                    "task": task,
                    "measure (%)": name,
                    "start": f"{level.interval(frames, task, 0)[0]:.1f}",
                    "end": cell(task, of={"end": level}),
                    "gain": cell(task),
                    "gain of control": cell(control),
                    "more than control": cell(task, control),
                    "gain without the skill": cell(unskilled),
                    "seeds": n,
                    "items": int(level.select(frames.only([task]))[0]["n"].max()),
                }
            )
    if not lines:
        return None
    caption = (
        "RLVR: start, end and gain of each task beside its controls, in points, with 95 % intervals "
        "over seeds."
    )
    return Made(pd.DataFrame(lines), frames.runs, caption, load_claims("rlvr").protocol)


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
    rows: dict[str, dict[str, str]] = {}
    for task, act in WATCHED.items():
        parts = [_of_run(run, act) for run in frames.runs if run.variant == task]
        if not parts:
            continue
        numbers = 100 * pd.DataFrame(parts)
        greedy = load_measures("rlvr")[HELD_OUT[1]].model_copy(update={"change": "difference"})
        mean = numbers.mean()
        if mean["gain"] <= 0:
            kind = "no gain"
        elif mean["selected"] > mean["within"]:
            kind = "selecting a behaviour"
        else:
            sharpened = greedy.interval(frames, task)[0] < mean["within"] / 2
            kind = "sharpening" if sharpened else "improving a skill"
        cells = {name: _shown(numbers[name], 1) for name in numbers}
        rows[task] = {"behaviour": act, "kind": kind} | cells
    return pd.DataFrame(rows)


def _of_run(run, act: str) -> dict[str, float]:
    """A run's first and last sampled held-out answers: change, its parts, rates, accuracies."""
    rows = records([run])
    rows = rows[(rows["suite"] == "held-out") & (rows["decoding"] == "sampled")]
    rows = rows.assign(did=rows[act].astype(bool), right=rows["score"] == 1.0)
    before, after = (
        rows[rows["step"] == step] for step in (rows["step"].min(), rows["step"].max())
    )
    values = dict(zip(("gain", "selected", "within"), split(before, after), strict=True))
    for when, part in (("start", before), ("end", after)):
        values[f"rate, {when}"] = part["did"].mean()
        values[f"right if done, {when}"] = part.loc[part["did"], "right"].mean()
        values[f"right if not, {when}"] = part.loc[~part["did"], "right"].mean()
    return values


def asked(frames: Frames, variants: Sequence[str], steps: int = 5) -> pd.DataFrame:
    """The proposer: means of what is asked in the first and the last steps of training.

    Shares of hops among valid proposals, share of different ones, success of the solver.
    """
    rows = frames.only(variants).metrics
    rows = rows[rows["metric"].isin(["method/hops", "method/distinct", "method/success"])]
    names = rows["metric"].str.removeprefix("method/")
    rows = rows.assign(what=(names + " " + rows["role"]).str.strip())
    last = rows.groupby("variant")["step"].transform("max")
    parts = {
        "first steps": rows[rows["step"] <= steps],
        "last steps": rows[rows["step"] > last - steps],
    }
    tables = {
        when: part.pivot_table("value", "what", "variant", sort=False)
        for when, part in parts.items()
    }
    return pd.concat(tables, axis=1).swaplevel(axis=1).sort_index(axis=1).round(2)


def by_difficulty(frames: Frames, variants: Sequence[str], control: str) -> pd.DataFrame:
    """The proposer: held-out accuracy (%) by hops, each arm's end and its difference to a control."""
    rows = frames.results[frames.results["suite"] == "solver"]
    parts = []
    for decoding in ("sampled", "greedy"):
        levels = rows.loc[rows["decoding"] == decoding, "difficulty"].unique()
        how = {"suite": "solver", "decoding": decoding, "weights": {"accuracy": 100}}
        measures = {level or "all": Measure(**how, difficulty=level) for level in levels}
        ends = compare(frames, measures, variants, digits=1)
        start = compare(frames, measures, variants[:1], share=0, digits=1).set_axis(["start"])
        others = [name for name in variants if name != control]
        minus = compare(frames, measures, others, control, digits=1)
        minus.index = [f"{name} minus {control}" for name in others]
        parts.append(pd.concat([start, ends, minus]))
    return pd.concat(dict(zip(("sampled", "greedy"), parts, strict=True)), axis=1)


def frontier_held(frames: Frames, variants: Sequence[str]) -> pd.DataFrame:
    """The proposer: does it stay near one half? A line an arm."""
    known = load_measures("proposer")
    names = {
        "distance of p from 1/2": "distance of p from 1/2",
        "difficulty reward, current solver": "difficulty, current solver",
        "hard share": "hard",
        "valid share": "valid",
        "distinct share": "distinct",
    }
    return compare(frames, {label: known[name] for label, name in names.items()}, variants)


def _shown(values: pd.Series, digits: int) -> str:
    return format_interval(*mean_interval(values.tolist())[:3], digits)


MAKERS = {"rlvr/gains": gains}
