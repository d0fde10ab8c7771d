"""Claims as data: what a paper says or a study asks, the runs that could show it, and a verdict.

A part of a claim compares a measure of one variant with another variant's, paired by seed, or with
a constant. It is supported if the 95 % t-interval of the difference lies on the claimed side beyond
`minimal_effect` (`near`: within the margin), contradicted if it lies on the other side of 0
(`near`: outside of the margin), else not decided; not measured without two seeds.

A bar that was set before the runs is met or not met: `reaches` if the mean is at least the bar,
`rises` if the interval lies above 0, `no gain` if the mean is at most the bar and the interval
reaches down to 0; `compare` says on which side of 0 the interval lies. One seed decides none of
them. Intervals are not corrected for the number of claims.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from spnb import reference
from spnb.core.params import ParamError, StrictData, validate
from spnb.report.frame import Frames, Interval, Measure, format_interval
from spnb.report.tables import measures_of, pick, read_yaml

SUPPORTED, CONTRADICTED = "supported", "contradicted"
NOT_DECIDED, NOT_MEASURED = "not decided", "not measured"
MET, NOT_MET = "met", "not met"
COLUMNS = ("claim", "part", "paper", "here", "n", "verdict", "note")
BARS = ("reaches", "rises", "no gain", "compare")


class Part(StrictData):
    """One comparison: `measure` of the variant `of` against a variant's or a constant."""

    text: str
    measure: Measure
    of: str
    against: float | str = Field(0.0, description="a variant or a number")
    direction: Literal["greater", "less", "near", "reaches", "rises", "no gain", "compare"]
    bar: float = Field(0, description="reaches: the least mean; no gain: the largest")
    margin: float = Field(0, description="near: how far from 0 it may be")
    minimal_effect: float = Field(0, description="greater, less: the least that matters")
    paper: dict[str, float] = Field({}, description="the paper's numbers by label")

    @property
    def variants(self) -> list[str]:
        """The variants whose runs are compared."""
        return [name for name in (self.of, self.against) if isinstance(name, str)]


class Claim(StrictData):
    """What is said, where it is said, and the parts that must all hold."""

    id: str
    text: str
    source: str
    parts: list[Part]


class Claims(StrictData):
    """A file of claims, and the exhibit that shows their verdicts."""

    claims: list[Claim]
    digits: int = Field(1, description="decimals shown")
    exhibit: str = Field("", description="lines whose variants have no runs are left out there")
    caption: str = ""
    protocol: str = ""
    columns: dict[str, str] = Field({name: name for name in COLUMNS}, description="of `verdicts`")


def load_claims(paper: str) -> Claims:
    """The claims of a paper or a study ("spiral", "rlvr"); ParamError if it has none or a fault."""
    return claims_of(read_yaml(paper, "claims.yaml"), paper)


def claims_of(content: Mapping[str, Any], paper: str) -> Claims:
    """Claims from a file's content; [exhibit, row, column] stands for a printed number."""
    measures = measures_of(content)
    claims = []
    for claim in content["claims"]:
        where = f"claim {claim['id']!r}: "
        parts = []
        for part in claim["parts"]:
            own = {"measure": pick(measures, part["measure"], where)}
            own["paper"] = {k: _printed(paper, v) for k, v in part.get("paper", {}).items()}
            parts.append(validate(Part, {**part, **own}, where))
        claims.append({**claim, "parts": parts})
    other = {key: value for key, value in content.items() if key != "measures"}
    return validate(Claims, {**other, "claims": claims})


def _printed(paper: str, value: Any) -> Any:
    """A number as it is, or the printed one behind [exhibit, row, column]."""
    try:
        return reference.value(paper, *value) if isinstance(value, list) else value
    except (KeyError, TypeError) as error:
        raise ParamError(f"paper has {value}; allowed: [exhibit, row, column]: {error}") from None


def verdicts(claims: Claims, frames: Frames) -> pd.DataFrame:
    """Every claim against the runs, a line a part; claims of several parts end with one for all.

    Columns claim, part, of, against, paper (its numbers), start, end, other end (of the measure:
    `of` before and after training, `against` after it), here (of the difference to a variant, or of
    the measure beside a constant), bar, n (seeds), verdict, note (what is missing).
    """
    rows = []
    for claim in claims.claims:
        lines = [judge(part, frames, claims.digits) for part in claim.parts]
        if len(lines) > 1 and not any(part.direction in BARS for part in claim.parts):
            whole = {"verdict": together([line["verdict"] for line in lines]), "note": ""}
            n = min(line["n"] for line in lines)
            lines.append(dict.fromkeys(lines[0], "-") | {"part": "all parts", "n": n} | whole)
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
    frames = frames.only(part.variants)
    numbers = "; ".join(f"{label}: {value:g}" for label, value in part.paper.items())
    bars = {"reaches": f"{part.bar:g} or more", "rises": "above 0"}
    bars["no gain"] = f"at most {part.bar:g}, interval down to 0"
    row = dict.fromkeys(("start", "end", "other end", "here"), "-")
    row |= {"part": part.text, "of": part.of, "against": part.against, "paper": numbers or "-"}
    row |= {"bar": bars.get(part.direction, "-"), "n": 0, "verdict": NOT_MEASURED}
    if missing := _missing(part, frames):
        return row | {"note": missing}
    level = part.measure.model_copy(update={"change": "none"})

    def shown(variant: str, share: float) -> str:
        return format_interval(*level.interval(frames, variant, share)[:3], digits)

    zero = 0.0
    if isinstance(part.against, str):
        mean, low, high, n = part.measure.difference(frames, part.of, part.against)
        row["other end"] = shown(part.against, 1)
    else:
        zero = part.against
        mean, low, high, n = part.measure.interval(frames, part.of)
    here = f"{format_interval(mean, low, high, digits)} {part.measure.unit}".strip()
    row |= {"start": shown(part.of, 0), "end": shown(part.of, 1), "here": here, "n": n}
    if n < 2:
        verdict = NOT_DECIDED if n and part.direction in BARS else NOT_MEASURED
        return row | {"verdict": verdict, "note": f"{n} seed(s) with the whole measure; needed: 2"}
    verdict = decide(part, (mean - zero, low - zero, high - zero, n))
    small = {"greater": low > zero, "less": high < zero}.get(part.direction)
    note = f"perhaps smaller than {part.minimal_effect:g}"
    return row | {"verdict": verdict, "note": note if small and verdict == NOT_DECIDED else ""}


def decide(part: Part, difference: Interval) -> str:
    """The verdict on the interval of a difference."""
    mean, low, high, _ = difference
    if part.direction == "compare":
        return "higher" if low > 0 else "lower" if high < 0 else "no difference seen"
    met = {"reaches": mean >= part.bar, "rises": low > 0}
    met["no gain"] = mean <= part.bar and low <= 0
    if part.direction in met:
        return MET if met[part.direction] else NOT_MET
    if part.direction == "near":
        holds = -part.margin <= low and high <= part.margin
        fails = low > part.margin or high < -part.margin
    else:
        if part.direction == "less":
            low, high = -high, -low
        holds = low > part.minimal_effect
        fails = high < 0
    return SUPPORTED if holds else CONTRADICTED if fails else NOT_DECIDED


def _missing(part: Part, frames: Frames) -> str:
    """Which runs or rows a comparison lacks, in words; empty if none."""
    table = frames.results if part.measure.source == "evals" else frames.metrics
    absent = [variant for variant in part.variants if variant not in set(table["variant"])]
    return f"no runs of {', '.join(absent)}" if absent else part.measure.select(frames)[1]
