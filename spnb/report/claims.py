"""Claims as data: what a paper says or a study asks, the runs that could show it, and a verdict.

A part of a claim compares a measure of one variant with another variant's, paired by seed, or with
a constant. Its verdict rests on the 95 % interval of the difference: Student's t over the seeds,
beside a constant at least as wide as the measure's own interval over seeds and items.

- `greater`, `less`: supported if the interval lies on the claimed side beyond `minimal_effect`,
  contradicted if all of it falls short of that; else "equal within" `margin` if one is set and the
  interval lies within it. Beside them stands P(better), the share of seeds in which the claimed
  side is better.
- `near`: supported if the interval lies within `margin` of 0, contradicted if outside of it.
- `reaches`, `rises`: bars that were set before the runs, met or not met. `reaches`: the mean is at
  least `bar`; `rises`: the interval lies above 0. A bar not met does not say that nothing is there.
- `no gain`: met if the whole interval is at most `margin`, not met if it lies above `margin`. A
  wide interval shows no absence: it decides nothing.
- `compare`: "equal within" `margin` if one is set and the interval lies within it; else higher or
  lower, the side of 0 on which the interval lies.

Where none of these holds the verdict is "not decided". With fewer than two seeds a bar and a
comparison are not decided, the others not measured. A part whose variants cannot be run says why
where they have no runs (`not_comparable`), and has no verdict. Intervals are not corrected for the
number of claims. Beside them stand the smallest difference that the seeds could show, half of the
interval's width, and the p of the difference, adjusted for the number of the claim's parts (Holm).
What is shown of an interval stays within what is possible (points: from -100 to 100); verdict, p
and width are those of the whole one. The columns for start and end show levels, whose intervals are
bootstrapped over seeds and items (`Measure.interval`).
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Literal

import pandas as pd
from pydantic import Field, model_validator

from spnb import reference
from spnb.core.params import ParamError, StrictData, validate
from spnb.core.stats import holm, improvement_interval, p_value
from spnb.core.strict_yaml import own_yaml
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import (
    Frames,
    Interval,
    Measure,
    format_interval,
    measures_of,
    pick,
    read_yaml,
    seed_interval,
    widened,
    within,
)
from spnb.train.provenance import file_at
from spnb.train.runs import Run

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
NOT_DECIDED = "not decided"
NOT_MEASURED = "not measured"
NOT_COMPARABLE = "not comparable"
EQUAL = "equal within"
HIGHER, LOWER = "higher", "lower"
MET = "met"
NOT_MET = "not met"
COLUMNS = ("claim", "part", "paper", "here", "smallest visible", "P(better)", "p (Holm)", "n")
COLUMNS += ("verdict", "note")
LEVELS = ("start", "end", "other end")
ALONE = ("reaches", "rises", "no gain", "compare")
"""Directions whose parts are judged one by one: their claim has no verdict as a whole."""
FINER = {"nats": 2, "steps": 1}
"""How many more decimals a small unit is shown with."""


class Part(StrictData):
    """One comparison: `measure` of the variant `of` against a variant's or a constant."""

    text: str
    measure: Measure
    of: str
    against: float | str = Field(0.0, description="a variant or a number")
    other: Measure | None = Field(None, description="of the variant `against`, where not `measure`")
    direction: Literal["greater", "less", "near", "reaches", "rises", "no gain", "compare"]
    bar: float = Field(0, description="reaches: the least mean")
    margin: float = Field(
        0, ge=0, description="how far from 0 counts as equal; no gain: how far above 0"
    )
    not_comparable: str = Field("", description="why there are no runs, where there are none")
    minimal_effect: float = Field(0, description="greater, less: the least that matters")
    paper: dict[str, float] = Field({}, description="the paper's numbers by label")

    @model_validator(mode="after")
    def _margin(self) -> "Part":
        if self.direction in ("near", "no gain") and not self.margin:
            raise ValueError(f"margin is 0 with direction {self.direction}; allowed: above 0")
        return self

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
    """A file of claims, and the exhibit that shows their verdicts, with its texts."""

    claims: list[Claim]
    margin: float = Field(0, ge=0, description="of parts in points that have none of their own")
    digits: int = Field(1, description="decimals shown, but for small units")
    exhibit: str
    file: str = Field("claims.yaml", description="in the paper's reference folder")
    caption: str
    protocol: str
    columns: dict[str, str] = Field({name: name for name in COLUMNS}, description="of `verdicts`")

    @property
    def variants(self) -> list[str]:
        """The variants whose runs are compared."""
        parts = (part for claim in self.claims for part in claim.parts)
        return list(dict.fromkeys(name for part in parts for name in part.variants))

    def content(self, frames: Frames) -> ExhibitContent | None:
        """The exhibit of these runs; None where nothing is measured."""
        table = verdict_table(self, frames)
        used = frames.only(self.variants).runs
        since = fixed(self.exhibit.partition("/")[0], used, self.file)
        protocol = f"{self.protocol} {since}".strip()
        return ExhibitContent(table, used, None, self.caption, protocol) if len(table) else None


def fixed(paper: str, runs: Sequence[Run], file: str = "claims.yaml") -> str:
    """Whether a paper's claims were fixed before these runs, in a sentence: the file has the same
    ones at the commits that the runs were trained at, but for texts and the paper's numbers. Named
    are parts that came or changed after runs which they compare, and those of then that are gone.
    Empty where git does not know the commits."""
    path = reference.sources(file)[paper]
    commits = sorted({run.commit or "" for run in runs})
    then = [commit and file_at(commit, path) for commit in commits]
    if not then or not all(then):
        return ""
    now, *each = (_deciding(own_yaml(text)) for text in (path.read_text(), *then))
    before = dict(zip(commits, each, strict=True))
    names = ", ".join(commit[:9] for commit in commits)
    later = [
        text
        for key, (text, compared) in now.items()
        if any(key not in before[run.commit] for run in runs if run.variant in compared)
    ]
    texts = {text for text, _ in now.values()}
    past = {text for parts in each for key, (text, _) in parts.items() if key not in now}
    gone = sorted(past - texts)
    but = [f", but for what was added or changed later: {'; '.join(later)}"] if later else []
    but += [f"; gone: {'; '.join(gone)}"] if gone else []
    said = f"Claims, measures and margins were committed before the runs, which are of {names}"
    return f"{said}{''.join(but)}."


def _deciding(content: Mapping[str, Any]) -> dict[str, tuple[str, tuple[Any, Any]]]:
    """Each part's text and the arms that it compares, by all that decides its verdict."""
    parts = {}
    for claim in content["claims"]:
        for part in claim["parts"]:
            own = {key: value for key, value in part.items() if key not in ("text", "paper")}
            for key in {"measure", "other"} & {*own}:
                own[key] = content["measures"][own[key]]
            key = json.dumps([claim["id"], content.get("margin"), own], sort_keys=True)
            parts[key] = part["text"], (part["of"], part.get("against"))
    return parts


def load_claims(paper: str, file: str = "claims.yaml") -> Claims:
    """The claims of a paper or a study ("spiral", "rlvr"); ParamError if it has none or a fault."""
    return claims_of(read_yaml(paper, file) | {"file": file}, paper)


def claims_of(content: Mapping[str, Any], paper: str) -> Claims:
    """Claims from a file's content; [exhibit, row, column] stands for a printed number."""
    measures = measures_of(content)
    claims = []
    for claim in content["claims"]:
        where = f"claim {claim['id']!r}: "
        parts = []
        for part in claim["parts"]:
            named = [key for key in ("measure", "other") if key in part]
            own = {key: pick(measures, part[key], where) for key in named}
            if own["measure"].unit == "points" and part["direction"] in ("greater", "less"):
                own["margin"] = part.get("margin", content.get("margin", 0))
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


def verdicts(claims: Claims, frames: Frames, levels: bool = True) -> pd.DataFrame:
    """Every claim against the runs, a line a part; claims of several parts end with one for all.
    Without `levels` the columns of `LEVELS` are "-": their intervals take most of the time.

    Columns claim, part, of, against, paper (its numbers), start, end, other end (levels: `of`
    before and after training, `against` after it), here (the difference to a variant, or the
    measure beside a constant, with Student's t over seeds), smallest visible, P(better), p (Holm),
    bar, n (seeds), verdict, note (what is missing).
    """
    rows = []
    for claim in claims.claims:
        lines = [judge(part, frames, claims.digits, levels) for part in claim.parts]
        adjusted = holm([line["p (Holm)"] for line in lines])
        for line, p in zip(lines, adjusted, strict=True):
            line["p (Holm)"] = f"{p:.2g}" if isfinite(p) else "-"
        if len(lines) > 1 and not _alone(claim):
            whole = {"verdict": together([line["verdict"] for line in lines]), "note": ""}
            n = min((line["n"] for line in lines if line["verdict"] != NOT_COMPARABLE), default=0)
            lines.append(dict.fromkeys(lines[0], "-") | {"part": "all parts", "n": n} | whole)
        rows += [{"claim": claim.text, **line} for line in lines]
    return pd.DataFrame(rows)


def verdict_table(claims: Claims, frames: Frames) -> pd.DataFrame:
    """The verdicts in the columns that the file asks for; empty where nothing is measured.

    A part that is judged alone is left out where its variants have no runs, but for one that says
    why; a claim that needs all of its parts keeps them.
    """
    table = verdicts(claims, frames, not {*LEVELS}.isdisjoint(claims.columns.values()))
    alone = [claim.text for claim in claims.claims if _alone(claim)]
    kept = ~table["claim"].isin(alone) | (table["verdict"] == NOT_COMPARABLE)
    shown = (table["n"] > 0) | (kept & (table["n"] > 0).any())
    table = table[shown].reset_index(drop=True)
    return table[list(claims.columns.values())].set_axis(list(claims.columns), axis=1)


def _alone(claim: Claim) -> bool:
    return any(part.direction in ALONE for part in claim.parts)


def together(parts: Sequence[str]) -> str:
    """The verdict on all parts that can be compared: one contradicted part decides, then one that
    is equal, then one unmeasured."""
    order = (CONTRADICTED, EQUAL, NOT_MEASURED, NOT_DECIDED, SUPPORTED, NOT_COMPARABLE)
    found = [EQUAL if part.startswith(EQUAL) else part for part in parts]
    verdict = next(verdict for verdict in order if verdict in found)
    return "not supported" if verdict == EQUAL else verdict


def judge(part: Part, frames: Frames, digits: int, levels: bool) -> dict[str, Any]:
    """One part's line of `verdicts`, without the claim."""
    frames = frames.only(part.variants)
    digits += FINER.get(part.measure.unit, 0)
    numbers = "; ".join(f"{label}: {value:g}" for label, value in part.paper.items())
    bars = {"reaches": f"{part.bar:g} or more", "rises": "above 0"}
    bars["no gain"] = f"whole interval at most {part.margin:g}"
    if part.margin:
        bars["compare"] = f"{EQUAL} {part.margin:g}"
    row = dict.fromkeys((*LEVELS, "here", "smallest visible", "P(better)"), "-")
    row["p (Holm)"] = float("nan")
    row |= {"part": part.text, "of": part.of, "against": part.against, "paper": numbers or "-"}
    row |= {"bar": bars.get(part.direction, "-"), "n": 0, "verdict": NOT_MEASURED}
    if missing := _missing(part, frames):
        why = {"verdict": NOT_COMPARABLE} if part.not_comparable else {}
        return row | why | {"note": part.not_comparable or missing}

    def shown(variant: str, share: float, measure: Measure = part.measure) -> str:
        if not levels:
            return "-"
        level = measure.model_copy(update={"change": "none"})
        return format_interval(*level.interval(frames, variant, share)[:3], digits)

    zero, ends = 0.0, part.measure.range
    if isinstance(part.against, str):
        ends = part.measure.reach(part.other)
        mean, low, high, n = part.measure.difference(frames, part.of, part.against, part.other)
        row["other end"] = shown(part.against, 1, part.other or part.measure)
        if part.direction in ("greater", "less"):
            found = part.measure.differences(frames, part.of, part.against, part.other)
            sign = 1 if part.direction == "greater" else -1
            better = improvement_interval([sign * value for value in found])
            row["P(better)"] = format_interval(*better[:3], 2)
    else:
        zero = part.against
        over_seeds = seed_interval(part.measure.of_runs(frames))
        level_ends = part.measure.interval(frames, part.of)[1:3]
        mean, low, high, n = widened(over_seeds, level_ends)
    cut = within((mean, low, high, n), ends)
    here = f"{format_interval(*cut[:3], digits)} {part.measure.unit}".strip()
    row |= {"start": shown(part.of, 0), "end": shown(part.of, 1), "here": here, "n": n}
    if n < 2:
        verdict = NOT_DECIDED if n and part.direction in ALONE else NOT_MEASURED
        return row | {"verdict": verdict, "note": f"{n} seed(s) with the whole measure; needed: 2"}
    row["smallest visible"] = f"{(high - low) / 2:.{digits}f}"
    row["p (Holm)"] = p_value((mean, low, high, n), zero)
    verdict = decide(part, (mean - zero, low - zero, high - zero, n))
    small = {"greater": low > zero, "less": high < zero}.get(part.direction)
    note = f"perhaps smaller than {part.minimal_effect:g}"
    return row | {"verdict": verdict, "note": note if small and verdict == NOT_DECIDED else ""}


def decide(part: Part, difference: Interval) -> str:
    """The verdict on the interval of a difference."""
    mean, low, high, _ = difference
    equal = part.margin > 0 and -part.margin <= low and high <= part.margin
    undecided = f"{EQUAL} {part.margin:g}" if equal else NOT_DECIDED
    if part.direction == "compare":
        if equal:
            return undecided
        return HIGHER if low > 0 else LOWER if high < 0 else NOT_DECIDED
    if part.direction == "no gain":
        return MET if high <= part.margin else NOT_MET if low > part.margin else NOT_DECIDED
    bars = {"reaches": mean >= part.bar, "rises": low > 0}
    if part.direction in bars:
        return MET if bars[part.direction] else NOT_MET
    if part.direction == "near":
        fails = low > part.margin or high < -part.margin
        return SUPPORTED if equal else CONTRADICTED if fails else NOT_DECIDED
    if part.direction == "less":
        low, high = -high, -low
    holds = low > part.minimal_effect
    fails = high < part.minimal_effect
    return SUPPORTED if holds else CONTRADICTED if fails else undecided


def _missing(part: Part, frames: Frames) -> str:
    """Which runs or rows a comparison lacks, in words; empty if none."""
    table = frames.results if part.measure.source == "evals" else frames.metrics
    absent = [variant for variant in part.variants if variant not in set(table["variant"])]
    return f"no runs of {', '.join(absent)}" if absent else part.measure.select(frames)[1]
