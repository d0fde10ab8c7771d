"""SSP's exhibits that are more than a measure over steps: gains at a glance, rounds to read."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from spnb.evaluate.proposals import SUITE, UNVERIFIED
from spnb.report import curves
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import Frames, load_measures
from spnb.report.tables import load_own
from spnb.train.plan import Plan
from spnb.train.runs import Run

FOUND = re.compile(r"\n<information>\n(.*?)\n</information>\n", re.DOTALL)
"""What a search put into a trajectory: its tokens are not trained."""


def figure_1(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Bars of the gain at each level, a bar an arm."""
    entry = load_own("ssp")["ssp/figure-1"]
    used = frames.with_own(entry.variants)
    if "full" not in used.variants:
        return None
    gains = {
        name.removeprefix("level "): measure.model_copy(update={"change": "difference"})
        for name, measure in load_measures("ssp").items()
        if name.startswith("level ") and name[-1].isdigit()
    }
    words = {"xlabel": "searches that a question takes", "ylabel": "gain (points)"}
    return curves.bars_of("ssp", entry, used, gains, "level", words)


def rounds(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """A round for a held-out answer, first and last: the deepest valid question that some attempts
    answer, else the deepest, with its searches and two attempts, a row a turn. None where the first
    run has no texts: packed records keep those of the first seed."""
    runs = frames.only(["full"]).runs
    lines = []
    for step, records in ends(runs[0], SUITE) if runs else ():
        if valid := [one for one in records if one["score"] == 1 and "text" in one]:
            best = max(valid, key=lambda one: (0 < one.get("success", 0) < 1, one["level"]))
            lines += told(best, f"step {step}")
    return ExhibitContent(pd.DataFrame(lines), runs[:1]) if lines else None


def hacks(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Questions that are not valid and follow the rules, one that the verifier caught and one that
    it did not, with the attempts at it, from the first run that has one and kept its text."""
    lines, made = [], []
    variants = load_own("ssp")["ssp/table-13"].variants
    runs = sorted(frames.only(variants).runs, key=lambda run: variants.index(run.variant))
    for passed in (False, True):
        for run in runs:
            wanted = "" if passed else UNVERIFIED
            hacked = [
                (step, one)
                for step, records in ends(run, SUITE)
                for one in records
                if one["score"] == 0 and one["reason"] == wanted and "text" in one
            ]
            if hacked:
                step, one = max(
                    hacked, key=lambda pair: ("somebody of" in pair[1]["text"], pair[0])
                )
                verdict = "not caught" if passed else "caught"
                lines += told(one, f"{verdict}: {run.variant}, step {step}")
                made += [run] if run not in made else []
                break
    return ExhibitContent(pd.DataFrame(lines), made) if lines else None


def ends(run: Run, suite: str, after: int = 0) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The records of a suite at a run's first evaluation, without so many, and at its last."""
    records = [one for one in run.rows("items") if one["suite"] == suite]
    steps = sorted({one["step"] for one in records})
    for step in dict.fromkeys([*steps[after:][:1], *steps[-1:]]):
        yield step, [one for one in records if one["step"] == step]


def told(one: Mapping[str, Any], where: str) -> Iterator[dict[str, str]]:
    """A proposal's turns, then those of the attempts at it."""
    yield from turns(one["text"], f"{where}: proposer of {one['answer']}")
    for number, (reward, text) in enumerate(one.get("attempts", ()), 1):
        yield from turns(text, f"{where}: attempt {number}, reward {reward:g}")


def turns(text: str, who: str) -> Iterator[dict[str, str]]:
    """A trajectory turn by turn: what the policy wrote, which is trained, and what it then found,
    which is not."""
    pieces = FOUND.split(text)
    for place in range(0, len(pieces), 2):
        found = pieces[place + 1] if place + 1 < len(pieces) else ""
        yield {"who": who, "written (trained)": pieces[place], "found (not trained)": found}


MAKERS = {"ssp/figure-1": figure_1, "ssp/table-7": rounds, "ssp/table-13": hacks}
