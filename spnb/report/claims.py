"""Claims as data: what a paper says, the runs that could show it here, an interval over seeds and a
verdict.

`reference/<paper>/claims.yaml` lists a paper's claims beside its numbers: they say what was
claimed, whatever runs a scale has. A claim has parts that must all hold; a part compares a measure
of one variant with another variant's, paired by seed, or with a constant. Verdicts, from the 95 %
t-interval of the difference:

- supported: the interval lies wholly on the claimed side, beyond `minimal_effect`; for `near`,
  within the margin
- contradicted: it lies wholly on the other side of 0; for `near`, wholly outside of the margin
- not decided: everything between
- not measured: runs or measure are missing, or fewer than two seeds have them

Intervals are not corrected for the number of claims: one in twenty comparisons without any
difference leaves 0 out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml
from pydantic import Field, model_validator

from spnb import reference
from spnb.core.params import ParamError, StrictData, unknown, validate
from spnb.core.stats import mean_interval, paired_difference
from spnb.report.exhibits import format_interval
from spnb.report.frame import INDEX, by_step

SUPPORTED, CONTRADICTED = "supported", "contradicted"
NOT_DECIDED, NOT_MEASURED = "not decided", "not measured"
COLUMNS = ("claim", "part", "paper", "here", "n", "verdict", "note")


class Measure(StrictData):
    """One number a run: the mean over `names`, at the end of training or from its start to its
    end."""

    table: Literal["evals", "metrics"]
    names: list[str] = Field(
        min_length=1, description="evaluations or metrics columns; * stands for anything"
    )
    weights: dict[str, float] = Field(
        {}, description="evals only: metrics to add up and their factors, {win: 100}"
    )
    change: Literal["none", "difference", "percent"] = Field(
        "none", description="of the end: as it is, minus the start, or in per cent of the start"
    )
    window: float = Field(
        0, ge=0, le=1, description="share of the training steps that is averaged at each end"
    )
    unit: str = ""

    @model_validator(mode="after")
    def _weighted(self) -> "Measure":
        if self.table == "evals" and not self.weights:
            raise ValueError(
                "weights is empty; allowed with table evals: one metric or more, such as {win: 100}"
            )
        if self.table == "metrics" and self.weights:
            raise ValueError(f"weights is {self.weights}; allowed with table metrics: none")
        return self


class Part(StrictData):
    """One comparison: `measure` of the variant `of` against a variant's or a constant, in the units
    of the measure."""

    text: str = Field(min_length=1)
    measure: Measure
    of: str
    against: float | str = Field(description="a variant or a number")
    direction: Literal["greater", "less", "near"]
    margin: float | None = Field(
        None, gt=0, description="near only: how far the difference may be from 0"
    )
    minimal_effect: float = Field(
        0, ge=0, description="greater and less: the smallest difference that matters"
    )
    paper: dict[str, float] = Field({}, description="the paper's numbers by label")

    @model_validator(mode="after")
    def _together(self) -> "Part":
        if (self.direction == "near") != (self.margin is not None):
            raise ValueError(
                f"margin is {self.margin} with direction {self.direction}; allowed: a margin with near only"
            )
        if self.direction == "near" and self.minimal_effect:
            raise ValueError(
                f"minimal_effect is {self.minimal_effect}; allowed with direction near: none"
            )
        if self.of == self.against:
            raise ValueError(
                f"against is {self.against!r}; allowed: another variant than `of`, or a number"
            )
        return self

    @property
    def variants(self) -> list[str]:
        """The variants whose runs are compared."""
        return [self.of, self.against] if isinstance(self.against, str) else [self.of]


class Claim(StrictData):
    """What the paper says, in our words, where it says it, and the parts that must all hold."""

    id: str
    text: str = Field(min_length=1)
    source: str = Field(min_length=1)
    parts: list[Part] = Field(min_length=1)


class _File(StrictData):
    """A file of claims: measures by name, and claims whose parts name one each."""

    measures: dict[str, dict[str, Any]]
    claims: list[dict[str, Any]] = Field(min_length=1)


def load_claims(paper: str) -> list[Claim]:
    """The claims of a paper ("spiral").

    Raises:
        ParamError: no claims are kept for the paper, or a fault in the file, as in `read_claims`.
    """
    found = reference.sources("claims.yaml")
    if paper not in found:
        raise ParamError(unknown("paper", paper, found))
    return read_claims(found[paper], paper)


def read_claims(source: Path | Traversable, paper: str) -> list[Claim]:
    """Claims from a YAML file of measures and claims; [exhibit, row, column] stands for a printed
    number of the paper.

    Raises:
        ParamError: anything unknown, missing, of the wrong type or not allowed; says where, the
            key, the value and what is allowed.
    """
    with _where(source.name):
        try:
            content = yaml.safe_load(source.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise ParamError(f"not valid YAML: {error}") from None
        file = validate(_File, content if isinstance(content, dict) else {})
        measures = {}
        for name, values in file.measures.items():
            with _where(f"measure {name!r}"):
                measures[name] = validate(Measure, values)
        claims = [_claim(values, measures, paper) for values in file.claims]
        ids = [claim.id for claim in claims]
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise ParamError(
                f"claim id {twice[0]!r} is there more than once; allowed: each id once"
            )
    return claims


def _claim(values: Mapping[str, Any], measures: Mapping[str, Measure], paper: str) -> Claim:
    """A claim with its measures and the paper's numbers in place of their names."""
    with _where(f"claim {values.get('id')!r}"):
        parts = values.get("parts")
        resolved = []
        for number, part in enumerate(parts if isinstance(parts, list) else [], 1):
            with _where(f"part {number}"):
                resolved.append(_part(part, measures, paper))
        return validate(Claim, {**values, "parts": resolved} if "parts" in values else values)


def _part(values: Any, measures: Mapping[str, Measure], paper: str) -> Part:
    if not isinstance(values, dict):
        raise ParamError(f"is {values!r}; allowed: a mapping of {', '.join(Part.model_fields)}")
    given = dict(values)
    if "measure" in values:
        name = str(values["measure"])
        if name not in measures:
            raise ParamError(unknown("measure", name, measures))
        given["measure"] = measures[name]
    if isinstance(printed := values.get("paper"), dict):
        given["paper"] = {label: _printed(paper, value) for label, value in printed.items()}
    return validate(Part, given)


def _printed(paper: str, value: Any) -> Any:
    """A number as it is, or the printed one behind [exhibit, row, column]."""
    if not isinstance(value, list):
        return value
    if len(value) != 3:
        raise ParamError(
            f"paper has {value!r}; allowed: a number, or [exhibit, row, column] of a printed one"
        )
    try:
        return reference.value(paper, *value)
    except KeyError as error:
        raise ParamError(error.args[0]) from None


@contextmanager
def _where(place: str) -> Iterator[None]:
    """Puts a place before the message of a ParamError."""
    try:
        yield
    except ParamError as error:
        raise ParamError(f"{place}: {error}") from None


def verdicts(claims: Sequence[Claim], evals: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Every claim against the runs, a line a part; claims of several parts end with a line for all
    of them.

    Args:
        evals, metrics: rows of the runs with variant, seed and step (`spnb.train.plan.gather`).

    Returns:
        Columns claim, part (our words), paper (its numbers), here (mean [low, high] over seeds: of
        the difference to a variant, or of the measure itself beside a constant), n (seeds),
        verdict, note (what is missing).
    """
    tables = {"evals": evals, "metrics": metrics}
    rows = []
    for claim in claims:
        found = [judge(part, tables[part.measure.table]) for part in claim.parts]
        rows += [{"claim": claim.text, **row} for row in found]
        if len(found) > 1:
            whole = {"part": "all parts", "paper": "-", "here": "-", "note": ""}
            seeds, verdict = (
                min(row["n"] for row in found),
                together([row["verdict"] for row in found]),
            )
            rows.append({"claim": claim.text, **whole, "n": seeds, "verdict": verdict})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def together(parts: Sequence[str]) -> str:
    """The verdict on a claim all of whose parts must hold: one contradicted part decides, then one
    unmeasured."""
    return next(
        verdict
        for verdict in (CONTRADICTED, NOT_MEASURED, NOT_DECIDED, SUPPORTED)
        if verdict in parts
    )


def judge(part: Part, frame: pd.DataFrame) -> dict[str, Any]:
    """One part's line of `verdicts`, without the claim."""
    row = {
        "part": part.text,
        "paper": "; ".join(f"{label}: {value:g}" for label, value in part.paper.items()) or "-",
    }
    missing = _missing(part, frame)
    if missing:
        return row | {"here": "-", "n": 0, "verdict": NOT_MEASURED, "note": missing}
    values = measured(part.measure, frame[frame["variant"].isin(part.variants)])
    if isinstance(part.against, str):
        zero, (mean, low, high, n) = 0.0, paired_difference(values, part.of, part.against)
    else:
        zero, (mean, low, high, n) = part.against, mean_interval(values["value"].tolist())
    row |= {"here": f"{format_interval(mean, low, high)} {part.measure.unit}".strip(), "n": n}
    if n < 2:
        return row | {
            "verdict": NOT_MEASURED,
            "note": f"{n} seed(s) with the whole measure; needed: 2",
        }
    found = decide(part, low - zero, high - zero)
    sides = {"greater": low - zero, "less": zero - high}
    small = found == NOT_DECIDED and sides.get(part.direction, 0) > 0
    return row | {
        "verdict": found,
        "note": f"perhaps smaller than {part.minimal_effect:g}" if small else "",
    }


def decide(part: Part, low: float, high: float) -> str:
    """The verdict on the interval of a difference."""
    if part.margin is not None:
        if -part.margin <= low and high <= part.margin:
            return SUPPORTED
        return CONTRADICTED if low > part.margin or high < -part.margin else NOT_DECIDED
    if part.direction == "less":
        low, high = -high, -low
    if low > part.minimal_effect:
        return SUPPORTED
    return CONTRADICTED if high < 0 else NOT_DECIDED


def _missing(part: Part, frame: pd.DataFrame) -> str:
    """Which runs or names a comparison lacks, in words; empty if none."""
    known = set(frame["variant"]) if "variant" in frame else set()
    if absent := [variant for variant in part.variants if variant not in known]:
        return f"no runs of {', '.join(absent)}"
    names = _names(part.measure, frame[frame["variant"].isin(part.variants)])
    absent = [
        name for name in part.measure.names if not any(fnmatchcase(known, name) for known in names)
    ]
    return f"no {part.measure.table} named {', '.join(absent)}" if absent else ""


def _names(measure: Measure, frame: pd.DataFrame) -> list[str]:
    """The evaluations or columns in `frame` that the measure names."""
    known = (
        frame["evaluation"].unique()
        if measure.table == "evals"
        else frame.dropna(axis=1, how="all").columns
    )
    return [name for name in known if any(fnmatchcase(name, wanted) for wanted in measure.names)]


def measured(measure: Measure, frame: pd.DataFrame) -> pd.DataFrame:
    """The measure of every run in `frame` that has all of it: columns variant, seed, value.

    All runs are measured on the same names, those that any of them has: a step counts for a run if
    it has every one, and a run without such a step, or with just one where a change is asked for,
    has no line.
    """
    names = _names(measure, frame)
    evals = measure.table == "evals"
    wide = by_step(frame, names, measure.weights) if evals else frame.set_index(INDEX)[names]
    steps = wide.mean(axis=1, skipna=False).dropna()
    rows = [
        {
            "variant": variant,
            "seed": seed,
            "value": _at_end(measure, run.droplevel(["variant", "seed"])),
        }
        for (variant, seed), run in steps.groupby(level=["variant", "seed"])
    ]
    return pd.DataFrame(rows, columns=["variant", "seed", "value"]).dropna()


def _at_end(measure: Measure, run: pd.Series) -> float:
    """One run's values by step as one number; nan for a change of a run with one step only."""
    first, last = run.index.min(), run.index.max()
    reach = measure.window * (last - first)
    start, end = run[run.index <= first + reach].mean(), run[run.index >= last - reach].mean()
    if measure.change == "none":
        return float(end)
    if first == last:
        return float("nan")
    return float(end - start if measure.change == "difference" else 100 * end / start)
