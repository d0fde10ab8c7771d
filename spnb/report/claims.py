"""Claims as data: what a paper says or a study asks, the runs that could show it, and a verdict.

`reference/<paper>/claims.yaml` lists the claims of a paper or a study: they say what was claimed,
whatever runs a scale has. A part compares a measure of one variant with another variant's, paired
by seed, or with a constant. Verdicts on claims, from the 95 % t-interval of the difference:

- supported: the interval lies wholly on the claimed side, beyond `minimal_effect`; for `near`,
  within the margin
- contradicted: it lies wholly on the other side of 0; for `near`, wholly outside of the margin
- not decided: everything between
- not measured: runs or measure are missing, or fewer than two seeds have them

A bar that was set before the runs is met or not met: `reaches` if the mean is at least the bar,
`rises` if the interval lies above 0, `no gain` if the mean is at most the bar and the interval
reaches down to 0. `compare` only says on which side of 0 the interval lies. With one seed these are
not decided. Intervals are not corrected for the number of claims: one in twenty comparisons without
any difference leaves 0 out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from pydantic import Field, model_validator

from spnb import reference
from spnb.core.params import ParamError, StrictData, unknown, validate
from spnb.core.stats import mean_interval
from spnb.report.frame import Frames, Interval, Measure, format_interval, paired_difference
from spnb.report.tables import measures_of, read_yaml

SUPPORTED, CONTRADICTED = "supported", "contradicted"
NOT_DECIDED, NOT_MEASURED = "not decided", "not measured"
MET, NOT_MET = "met", "not met"
COLUMNS = ("claim", "part", "paper", "here", "n", "verdict", "note")
BARS = ("reaches", "rises", "no gain", "compare")


class Part(StrictData):
    """One comparison: `measure` of the variant `of` against a variant's or a constant."""

    text: str = Field(min_length=1)
    measure: Measure
    of: str
    against: float | str = Field(0.0, description="a variant or a number")
    direction: Literal["greater", "less", "near", "reaches", "rises", "no gain", "compare"]
    bar: float = Field(0, description="reaches: the least mean; no gain: the largest")
    margin: float | None = Field(None, gt=0, description="near: how far from 0 it may be")
    minimal_effect: float = Field(
        0, ge=0, description="greater and less: the smallest difference that matters"
    )
    paper: dict[str, float] = Field({}, description="the paper's numbers by label")

    @model_validator(mode="after")
    def _together(self) -> "Part":
        if (self.direction == "near") != (self.margin is not None):
            way = f"margin is {self.margin} with direction {self.direction}"
            raise ValueError(f"{way}; allowed: a margin with near only")
        if self.of == self.against:
            raise ValueError(f"against is {self.against!r}; allowed: another variant, or a number")
        return self

    @property
    def variants(self) -> list[str]:
        """The variants whose runs are compared."""
        return [self.of, self.against] if isinstance(self.against, str) else [self.of]

    @property
    def bar_shown(self) -> str:
        """The bar in words."""
        words = {"reaches": f"{self.bar:g} or more", "rises": "above 0"}
        return (words | {"no gain": f"at most {self.bar:g}, or falling"}).get(self.direction, "-")


class Claim(StrictData):
    """What is said, in our words, where it is said, and the parts that must all hold."""

    id: str
    text: str = Field(min_length=1)
    source: str = Field(min_length=1)
    parts: list[Part] = Field(min_length=1)


class Claims(StrictData):
    """A file of claims, and the exhibit that shows their verdicts."""

    claims: list[Claim] = Field(min_length=1)
    digits: int = Field(1, ge=0, description="decimals shown")
    exhibit: str = Field("", description="lines whose variants have no runs are left out there")
    caption: str = ""
    protocol: str = ""
    columns: dict[str, str] = Field(
        {name: name for name in COLUMNS}, description="the exhibit's columns, of `verdicts`"
    )


def load_claims(paper: str) -> Claims:
    """The claims of a paper or a study ("spiral", "rlvr").

    Raises:
        ParamError: it has none, or a fault in the file: the claim, the key, the value and what is
            allowed.
    """
    return claims_of(read_yaml(paper, "claims.yaml"), paper)


def claims_of(content: Mapping[str, Any], paper: str) -> Claims:
    """Claims from a file's content; [exhibit, row, column] stands for a printed number."""
    measures = measures_of(content)
    claims = []
    for claim in content.get("claims", []):
        parts = []
        for part in claim.get("parts", []):
            where = f"claim {claim.get('id')!r}: "
            if part.get("measure") not in measures:
                raise ParamError(where + unknown("measure", part.get("measure"), measures))
            printed = {k: _printed(paper, v) for k, v in part.get("paper", {}).items()}
            values = {**part, "measure": measures[part["measure"]], "paper": printed}
            parts.append(validate(Part, values, where))
        claims.append({**claim, "parts": parts})
    other = {key: value for key, value in content.items() if key not in ("measures", "claims")}
    return validate(Claims, {"claims": claims, **other})


def _printed(paper: str, value: Any) -> Any:
    """A number as it is, or the printed one behind [exhibit, row, column]."""
    if not isinstance(value, list):
        return value
    try:
        return reference.value(paper, *value)
    except (KeyError, TypeError) as error:
        raise ParamError(f"paper has {value}; allowed: [exhibit, row, column]: {error}") from None


def verdicts(claims: Claims, frames: Frames) -> pd.DataFrame:
    """Every claim against the runs, a line a part; claims of several parts end with one for all.

    Returns:
        Columns claim, part (our words), of, against, paper (its numbers), start, end, other end
        (of the measure itself: `of` before and after training, `against` after it), here (mean
        [low, high] over seeds: of the difference to a variant, or of the measure beside a
        constant), bar, n (seeds), verdict, note (what is missing).
    """
    rows = []
    for claim in claims.claims:
        lines = [judge(part, frames, claims.digits) for part in claim.parts]
        if len(lines) > 1 and not any(part.direction in BARS for part in claim.parts):
            whole = together([line["verdict"] for line in lines])
            n = min(line["n"] for line in lines)
            blank = {key: "" if key == "note" else "-" for key in lines[0]}
            lines.append(blank | {"part": "all parts", "n": n, "verdict": whole})
        rows += [{"claim": claim.text, **line} for line in lines]
    return pd.DataFrame(rows)


def verdict_table(claims: Claims, frames: Frames) -> pd.DataFrame:
    """The verdicts in the columns that the file asks for."""
    table = verdicts(claims, frames)
    if claims.exhibit:
        table = table[table["n"] > 0].reset_index(drop=True)
    return table[list(claims.columns.values())].set_axis(list(claims.columns), axis=1)


def together(parts: Sequence[str]) -> str:
    """The verdict on all parts: one contradicted part decides, then one unmeasured."""
    order = (CONTRADICTED, NOT_MEASURED, NOT_DECIDED, SUPPORTED)
    return next(verdict for verdict in order if verdict in parts)


def judge(part: Part, frames: Frames, digits: int = 1) -> dict[str, Any]:
    """One part's line of `verdicts`, without the claim."""
    measure = part.measure
    compared = frames.only(part.variants)
    row = dict.fromkeys(("start", "end", "other end", "here"), "-")
    numbers = "; ".join(f"{label}: {value:g}" for label, value in part.paper.items())
    row |= {"part": part.text, "of": part.of, "against": part.against, "paper": numbers or "-"}
    row |= {"bar": part.bar_shown, "n": 0, "verdict": NOT_MEASURED}
    if missing := _missing(part, compared):
        return row | {"note": missing}
    values = measure.of_runs(compared)
    level = measure.model_copy(update={"change": "none"})
    if isinstance(part.against, str):
        zero = 0.0
        interval = paired_difference(values, part.of, part.against)
        row["other end"] = format_interval(*level.interval(compared, part.against)[:3], digits)
    else:
        zero = part.against
        interval = mean_interval(values["value"].tolist())
    mean, low, high, n = interval
    for key, share in (("start", 0), ("end", 1)):
        row[key] = format_interval(*level.interval(compared, part.of, share)[:3], digits)
    row |= {"here": f"{format_interval(mean, low, high, digits)} {measure.unit}".strip(), "n": n}
    if n < 2:
        verdict = NOT_DECIDED if n and part.direction in BARS else NOT_MEASURED
        note = f"{n} seed(s) with the whole measure; needed: 2"
        return row | {"verdict": verdict, "note": note}
    verdict = decide(part, (mean - zero, low - zero, high - zero, n))
    sides = {"greater": low - zero, "less": zero - high}
    small = verdict == NOT_DECIDED and sides.get(part.direction, 0) > 0
    note = f"perhaps smaller than {part.minimal_effect:g}" if small else ""
    return row | {"verdict": verdict, "note": note}


def decide(part: Part, difference: Interval) -> str:
    """The verdict on the interval of a difference."""
    mean, low, high, _ = difference
    if part.direction == "compare":
        return "higher" if low > 0 else "lower" if high < 0 else "no difference seen"
    if part.direction in BARS:
        met = {"reaches": mean >= part.bar, "rises": low > 0}
        met["no gain"] = mean <= part.bar and low <= 0
        return MET if met[part.direction] else NOT_MET
    if part.margin is not None:
        if -part.margin <= low and high <= part.margin:
            return SUPPORTED
        return CONTRADICTED if low > part.margin or high < -part.margin else NOT_DECIDED
    if part.direction == "less":
        low, high = -high, -low
    if low > part.minimal_effect:
        return SUPPORTED
    return CONTRADICTED if high < 0 else NOT_DECIDED


def _missing(part: Part, frames: Frames) -> str:
    """Which runs or rows a comparison lacks, in words; empty if none."""
    table = frames.results if part.measure.source == "evals" else frames.metrics
    known = set(table["variant"])
    if absent := [variant for variant in part.variants if variant not in known]:
        return f"no runs of {', '.join(absent)}"
    return part.measure.select(frames)[1]
