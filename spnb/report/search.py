"""A search for the settings of a paper's arms, on seeds and questions that decide no claim.

`params/<paper>/search.yaml` names arms, a grid of settings and the search's seeds. Every arm runs
at every setting, evaluated on questions like the held-out ones (`eval_draw`). The table says what a
setting gives each arm, how far seeds spread, how wide the interval of a paired difference of ten
seeds would be, the most that so few seeds do not rule out, and what a run costs. `common` marks the
setting with the highest mean over the arms, of those where no half-width is above `widest`; `best`
each arm's own; both say which values lie at an edge of what was tried.

    spnb search spell    # or proposer/search-two, another file of the paper's
"""

import itertools
from collections.abc import Mapping, Sequence
from math import inf, nan, sqrt
from typing import Any

import pandas as pd
from pydantic import Field, model_validator

from spnb.core.params import StrictData, search_values, validate
from spnb.report.exhibits import ExhibitContent, ExhibitError
from spnb.report.frame import Frames, Measure, gather, load_measures, pick
from spnb.train.config import merge
from spnb.train.plan import Plan, make_plan

DRAW = "search"
"""What `eval_draw` is in a search."""
AS_IS = ""
"""Instead of a value that a setting does not change."""
TEN = 10
"""Seeds that the width of an interval is foretold for."""
MEASURED = ("mean", "spread", "half-width", "at most", "minutes")
"""Columns that are shown with one decimal."""


class Search(StrictData):
    """The content of a file `search.yaml`."""

    arms: list[str] = Field(min_length=1)
    controls: list[str] = Field(
        [], description="arms whose mean does not choose the common setting"
    )
    against: str = Field("full", description="the arm that the others are paired with")
    seeds: list[int] = Field(min_length=2)
    measure: str = Field(description="of the paper's tables, at the end of the training")
    window: float = Field(0, ge=0, le=1, description="share of the training averaged at its end")
    widest: float = Field(inf, gt=0, description="half-width that the common setting may have")
    set: dict[str, Any] = Field({}, description="parameters of all runs")
    grid: dict[str, list[bool | int | float | str]] = Field(
        min_length=1, description="crossed; grpo.beta names a key inside"
    )
    crossed: bool = Field(True, description="false: each value alone, beside the arms as they are")

    @model_validator(mode="after")
    def _known(self) -> "Search":
        for name in [self.against, *self.controls]:
            if name not in self.arms:
                raise ValueError(f"{name} is no arm of the search; allowed: {', '.join(self.arms)}")
        if empty := [key for key, values in self.grid.items() if not values]:
            raise ValueError(f"grid.{empty[0]} is empty; allowed: one value or more")
        if own := sorted({"eval_draw", "runs", "seeds", "variants"} & {*self.set, *self.grid}):
            raise ValueError(f"set or grid has {own[0]}; allowed: other parameters of a run")
        if len({*self.seeds}) < len(self.seeds):
            raise ValueError(f"seeds is {self.seeds}; allowed: each once")
        return self

    @property
    def choosing(self) -> list[str]:
        """The arms whose mean chooses the common setting."""
        return [arm for arm in self.arms if arm not in self.controls]

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every setting, by the grid's keys."""
        if not self.crossed:
            return [{}, *({key: value} for key in self.grid for value in self.grid[key])]
        points = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, point, strict=True)) for point in points]


def load_search(paper: str, name: str = "search") -> Search:
    """A paper's search; ParamError where it has none or a fault."""
    file = f"{paper}/{name}.yaml: "
    search = validate(Search, search_values(paper, name), file)
    pick(load_measures(paper), search.measure, file)
    return search


def plans(paper: str, scale: str, search: Search, runs: str = "runs/search") -> list[Plan]:
    """A plan for each setting; their runs lie apart from others."""
    made = []
    for setting in search.settings:
        exact = merge(search.set, *(nested(key, value) for key, value in setting.items()))
        chosen = {"variants": search.arms, "seeds": search.seeds, "runs": runs}
        made.append(make_plan(paper, scale, exact=exact | {"eval_draw": DRAW}, **chosen))
    return made


def nested(key: str, value: Any) -> dict[str, Any]:
    """{"grpo": {"beta": value}} of grpo.beta."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def table(exhibit: str, search: Search, made: Sequence[Plan]) -> ExhibitContent:
    """The search's table: a line a setting and arm, from finished runs.

    Raises:
        ExhibitError: no run of an arm has the measure.
    """
    paper = exhibit.partition("/")[0]
    measure = load_measures(paper)[search.measure].model_copy(update={"window": search.window})
    lines = []
    runs = []
    for setting, plan in zip(search.settings, made, strict=True):
        frames = gather([run for run in plan.all() if run.finished])
        runs += [run for run in frames.runs if run.variant in search.arms]
        for arm in search.arms:
            values = dict.fromkeys(search.grid, AS_IS) | setting | {"arm": arm}
            lines.append(values | numbers(measure, frames, arm, search.against))
    rows = pd.DataFrame(lines)
    if absent := rows.loc[rows["n"] == 0, "arm"].tolist():
        raise ExhibitError(f"{exhibit}: no run of {absent[0]} measures {search.measure!r}")
    rows = marked(rows, search).round(dict.fromkeys(MEASURED, 1))
    caption = (
        f"Every arm at every setting: the measure {search.measure!r} at the end of training, mean "
        "over seeds and spread (standard deviation); half-width: half of the 95 % interval that a "
        f"difference to {search.against} would have with {TEN} paired seeds, as estimated from "
        "these seeds, and at most: the upper 95 % bound of that estimate."
    )
    taken = f"Mean of the evaluations in the last {search.window:.0%} of the training"
    narrow = "" if search.widest == inf else f", where no half-width is above {search.widest:g}"
    protocol = (
        f"Seeds {', '.join(map(str, search.seeds))}, on questions that are not the held-out ones. "
        f"{taken if search.window else 'The last evaluation'}. Common: highest mean over "
        f"{', '.join(search.choosing)}{narrow}; edge: a value at an end of "
        "what was tried. Minutes: wall time of a run on one core."
    )
    return ExhibitContent(rows, runs, None, caption, protocol)


def numbers(measure: Measure, frames: Frames, arm: str, against: str) -> dict[str, Any]:
    """What one arm's seeds give at one setting."""
    values = measure.of_runs(frames.only([arm, against]))
    values = values.pivot(index="seed", columns="variant", values="value")
    values = values.reindex(columns=list({arm, against}))
    facts = [run.facts() for run in frames.runs if run.variant == arm]
    minutes = [fact["seconds"] / 60 for fact in facts if not fact["resumed"]]
    line = {"mean": values[arm].mean(), "spread": values[arm].std()}
    paired = (values[arm] - values[against]).dropna()
    line["half-width"], line["at most"] = half_width(paired) if arm != against else (nan, nan)
    return line | {"minutes": pd.Series(minutes).mean(), "n": int(values[arm].count())}


def half_width(differences: pd.Series) -> tuple[float, float]:
    """Half of the 95 % t-interval of `TEN` differences that spread as these do, and the most it may
    be: with the upper 95 % bound of their standard deviation (chi-squared)."""
    from scipy import stats  # late: 0.7 s

    half = float(stats.t.ppf(0.975, TEN - 1) * differences.std() / sqrt(TEN))
    free = len(differences) - 1
    return half, half * sqrt(free / stats.chi2.ppf(0.05, free)) if free > 0 else nan


def marked(rows: pd.DataFrame, search: Search) -> pd.DataFrame:
    """The lines with `common` and `best`: yes at these settings; none common if none is narrow."""
    keys = list(search.grid)
    widths = rows["half-width"].where(rows["arm"] != search.against, 0.0).fillna(inf)
    widest = widths.groupby([rows[key] for key in keys]).transform("max")
    taught = rows[rows["arm"].isin(search.choosing) & (widest <= search.widest)]
    means = taught.groupby(keys, sort=False)["mean"].transform("mean")
    common = taught.loc[means == means.max(), keys].apply(tuple, axis=1).tolist()[:1]
    best = rows.groupby("arm")["mean"].idxmax()
    yes = pd.Series({at: "yes" + edge(row, search) for at, row in rows.iterrows()})
    points = rows[keys].apply(tuple, axis=1)
    return rows.assign(
        common=yes.where([point in common for point in points], ""),
        best=yes.where(rows.index.isin(best), ""),
    )


def edge(row: Mapping[str, Any], search: Search) -> str:
    """Which of a setting's numbers lie at an end of what was tried."""
    ends = [
        key
        for key, values in search.grid.items()
        if len(values) > 1 and {*map(type, values)} <= {int, float}
        if row[key] in (min(values), max(values))
    ]
    return f" (edge: {', '.join(ends)})" if ends else ""
