"""How many seeds would decide the parts of claims that are not decided, and how long they take.

    python -m tools.undecided    # writes the table of RESULTS.md

A part is decided once its interval lies on one side of the bound and its least effect, or within
the margin (a part that is to be near: within or without), if mean and spread of the seeds stay what
they are. Both are those of the measure in `figures/<paper>/seeds.csv`
(differences paired by seed); where that file lacks it, those of the interval that the committed
claims show, rounded. An interval that the claims show wider than that of the seeds is the items':
more seeds do not narrow it.
Minutes: the seeds that are missing, times those of a run of each of its variants (`timings.json`;
the median of the paper's arms, where a variant was not timed: the table says so), on two cores.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from spnb.core.params import variants_at
from spnb.core.paths import ROOT
from spnb.core.stats import mean_interval
from spnb.report.claims import (
    CONTRADICTED,
    EQUAL,
    HIGHER,
    LOWER,
    NOT_COMPARABLE,
    NOT_DECIDED,
    SUPPORTED,
    Claims,
    Part,
    load_claims,
)
from spnb.report.frame import Measure, load_measures
from spnb.report.notebooks import minutes_of, timings
from spnb.train.plan import make_plan
from tools.sizes import with_table

FILES = {
    "SPELL": ("spell", "claims.yaml"),
    "SPICE": ("spice", "claims.yaml"),
    "SPIRAL": ("spiral", "claims.yaml"),
    "SSP": ("ssp", "claims.yaml"),
    "SCOPE": ("scope", "claims.yaml"),
    "proposer study": ("proposer", "claims-when.yaml"),
}
"""Name in the table: paper and its file of claims."""
FIGURES = ROOT / "figures"
OURS = re.compile(r"^Not in the paper\.|\(ours?\b")
"""In the text of a claim, or a part of one, that a paper does not make."""
COUNTS = ("<!-- counts -->", "<!-- end of counts -->")
DECIDED = {"supported": SUPPORTED, "contradicted": CONTRADICTED, "equal": EQUAL}
DECIDED |= {"higher": HIGHER, "lower": LOWER}
"""Columns of the counts, and how their verdicts begin; the last two are of parts without a side."""
MARKERS = ("<!-- undecided -->", "<!-- end of undecided -->")
RESULTS = ROOT / "RESULTS.md"
MOST = 200
"""More seeds than these are no plan: the effect is too small for this world."""
NUMBER = r"(-?\d+(?:\.\d+)?)"
INTERVAL = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]")


class Price(NamedTuple):
    """What would decide a part: seeds (0: no number up to `MOST`) and minutes for the missing ones.

    `own`: half the width of the seeds' interval as text, where the part's is that of the items.
    `guessed`: whether a variant was not timed, so that the minutes are of the median.
    """

    part: str
    seeds: int
    minutes: float
    own: str = ""
    guessed: bool = False


def undecided(name: str) -> Iterator[Price]:
    """The price of each part of `FILES[name]` that is not decided; of one with one seed nothing is
    known."""
    paper, file = FILES[name]
    claims, measures, ends = load_claims(paper, file), load_measures(paper), ends_by_seed(paper)
    have = ends.groupby("variant")["seed"].nunique()
    run = [name for name in claims.variants if name in variants_at(paper, "cpu")]
    minutes = minutes_of(make_plan(paper, "cpu", variants=run))
    timed = timings()[paper]["cpu"]
    for line in shown(claims):
        if line["verdict"] != NOT_DECIDED or line.get("part") == "all parts" or line["n"] == "1":
            continue
        part = part_of(claims, line)
        values = seed_values(part, measures, ends)
        n = int(line["n"])
        seeds, own = seeds_needed(part, line["here"], n, values, claims.digits)
        more = [max(0, seeds - have.get(v, n)) * minutes[v] for v in {*part.variants}]
        text = line.get("part", f"{part.of} against {part.against}, {part.text}")
        guessed = not timed.keys() >= {*part.variants}
        yield Price(text, seeds, sum(more) / 2, own, guessed)


def shown(claims: Claims) -> list[dict[str, str]]:
    """The lines of the committed exhibit of some claims, by the columns of `verdicts`."""
    table = pd.read_csv(FIGURES / f"{claims.exhibit}.csv", dtype=str)
    return table.rename(columns=claims.columns).to_dict("records")


def part_of(claims: Claims, line: Mapping[str, str]) -> Part:
    """The part that a line of `shown` is of."""
    for claim in claims.claims:
        for part in claim.parts:
            texts = {"claim": claim.text, "part": part.text, "of": part.of}
            texts["against"] = str(part.against)
            if all(line[key] == text for key, text in texts.items() if key in line):
                return part
    raise ValueError(f"{claims.exhibit} has {line}; allowed: parts of {claims.file}")


def ends_by_seed(paper: str) -> pd.DataFrame:
    """Columns measure, variant, seed, end of a paper's `seeds.csv`; no rows without that file."""
    path = FIGURES / paper / "seeds.csv"
    columns = ["measure", "variant", "seed", "end"]
    return pd.read_csv(path)[columns] if path.exists() else pd.DataFrame(columns=columns)


def seed_values(part: Part, measures: Mapping[str, Measure], ends: pd.DataFrame) -> list[float]:
    """What a part compares, seed by seed: the measure, or differences of pairs; empty where `ends`
    lacks it."""

    def at_end(measure: Measure, variant: str) -> pd.Series:
        names = [name for name, each in measures.items() if each == measure]
        own = ends[ends["measure"].isin(names) & (ends["variant"] == variant)]
        return own.drop_duplicates("seed").set_index("seed")["end"].astype(float)

    values = at_end(part.measure, part.of)
    if isinstance(part.against, str):
        values = values - at_end(part.other or part.measure, part.against)
    return values.dropna().tolist()


def seeds_needed(
    part: Part, here: str, n: int, values: Sequence[float], digits: int
) -> tuple[int, str]:
    """The fewest seeds that would decide a part (0: no number up to `MOST`), and half the width of
    the seeds' own interval where the one shown is that of the items ("" elsewhere).

    Args:
        here, n, digits: the interval that the claims show, its seeds, its decimals.
        values: `seed_values`; with fewer than two, the spread is that of `here`.
    """
    bound = part.against if isinstance(part.against, float | int) else 0.0
    mean, low, high = map(float, INTERVAL.match(here).groups())
    own = mean_interval(values)
    if own[3] > 1:
        if max(own[1] - low, high - own[2]) > 10**-digits:  # what rounding cannot be
            return 0, f"{(own[2] - own[1]) / 2:.{digits}f}"
        mean, low, high, n = own
    return seeds_to_decide(to_decision(part, mean - bound), (high - low) / 2, n), ""


def seeds_to_decide(distance: float, half: float, n: int, most: int = MOST) -> int:
    """The fewest seeds, more than `n`, whose 95 % t-interval would have half a width below a
    distance, if mean and spread stay; 0 where `most` are too few.

    `half`: of the interval that `n` seeds have.
    """
    counts = np.arange(n, most + 1)
    widths = stats.t.ppf(0.975, counts - 1) / np.sqrt(counts)
    enough = counts[half * widths / widths[0] < distance]
    return int(enough[enough > n][0]) if (enough > n).any() else 0


def to_decision(part: Part, mean: float) -> float:
    """How far the mean of a difference is from where `spnb.report.claims.decide` would settle."""
    if part.direction == "near":
        return abs(part.margin - abs(mean))
    if part.direction == "no gain":
        return abs(part.margin - mean)
    claimed = -mean if part.direction == "less" else mean
    return max(abs(claimed - part.minimal_effect), part.margin - abs(mean))


def counts() -> str:
    """How many parts of each paper's claims are decided, and of ours beside them, in Markdown."""
    rows = [f"| paper | parts | {' | '.join(DECIDED)} | open | decided | ours, decided |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (paper, file) in FILES.items():
        own, ours = [], []
        for line in shown(load_claims(paper, file)):
            if "claim" in line and line["part"] != "all parts":
                side = ours if any(OURS.search(line[key]) for key in ("claim", "part")) else own
                side += [line["verdict"]] if line["verdict"] != NOT_COMPARABLE else []
        if own:
            found = [sum(v.startswith(kind) for v in own) for kind in DECIDED.values()]
            numbers = [len(own), *found, len(own) - sum(found), f"{sum(found) / len(own):.0%}"]
            decided = sum(v.startswith(tuple(DECIDED.values())) for v in ours)
            numbers.append(f"{decided} of {len(ours)}")
            rows.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(rows)


def table() -> str:
    """The parts of all files, in Markdown."""
    rows = ["| paper | not decided | seeds that would decide | minutes more |"]
    rows.append("| --- | --- | --- | --- |")
    for name in FILES:
        for part, seeds, more, own, guessed in undecided(name):
            words = " (median of the paper's arms)" * guessed
            numbers = f"about {seeds} | {more:.0f}{words}" if seeds else f"more than {MOST} | -"
            if own:
                width = f"the width is that of the items, not of the seeds (half of theirs: {own})"
                numbers = f"none: {width} | -"
            rows.append(f"| {name} | {part} | {numbers} |")
    return "\n".join(rows)


if __name__ == "__main__":
    text = with_table(RESULTS.read_text(), counts(), COUNTS)
    RESULTS.write_text(with_table(text, table(), MARKERS))
    print(counts(), end="\n\n")
    print(table())
