"""pass@k of runs of any papers whose suites have several answers an item.

`passes` makes it a column of the items, by variant, seed, step, suite and k; `ends` has start and
end of training, `curve` what a figure draws of them, `gains` says in numbers whether training
sharpened (one answer is right more often) or extended (more is right at least once). SPELL, eq. 11
and section 5.2, figure 3; Chen et al. 2021, arXiv 2107.03374.
"""

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from spnb.core.stats import TOLERANCE, mean_interval, pass_at_k
from spnb.report.curves import SHADES, START, chosen, small_multiples, stacked
from spnb.report.exhibits import ExhibitContent, exhibit_info
from spnb.report.frame import RUN, Frames, format_interval, read_yaml, widened, within
from spnb.report.items import KEYS, Interval, first_weights, item_gains, item_interval
from spnb.train.runs import Run, config_hash

KS = range(1, 9)
MARGIN = 0.02
"""A gain of pass@k that is smaller, all of its interval, is none."""
LABEL = "pass@k (share of questions)"
CELL = [key for key in KEYS if key != "difficulty"]
"""What is averaged with equal weights: a suite with its opponent, role and decoding."""
ITEM = ["questions", *KEYS, "item"]
COLUMNS = [*RUN, "begun", "step", *ITEM, "answers", "k", "value"]
STATES = ("never", "sometimes", "always")
"""How often an item's answers are right."""


def passes(runs: Sequence[Run], ks: Sequence[int] = KS) -> pd.DataFrame:
    """pass@k of every item that has several answers, a row each: `COLUMNS`.

    A score of 1 is a right answer, a game's move (`action`) none. An item with fewer than k answers
    has no pass@k. `begun` stands for the weights that a run began with, `questions` for the group
    of suites that a figure puts together: those about as many documents, or the suite alone.
    """
    known = read_yaml("pass_at_k", "exhibits.yaml")["papers"]
    tables = [pd.DataFrame(columns=COLUMNS)]
    for run in runs:
        rows = [row for row in run.rows("items") if "sample" in row and "action" not in row]
        if not any(row["sample"] for row in rows):
            continue
        table = pd.DataFrame(rows).reindex(columns=["step", *KEYS, "item", "score"])
        table[[*KEYS, "item"]] = table[[*KEYS, "item"]].fillna("").astype(str)
        table["right"] = table["score"] == 1
        right = table.groupby(["step", *KEYS, "item"], sort=False)["right"]
        items = right.agg(answers="size", right="sum").query("answers > 1").reset_index()
        pattern = known.get(run.paper, {}).get("documents", "")
        names = {suite: _group(suite, pattern) for suite in items["suite"].unique()}
        own = {key: run.params[key] for key in RUN} | {"begun": config_hash(first_weights(run))}
        items = items.assign(**own, questions=items["suite"].map(names))
        for k in ks:
            part = items[items["answers"] >= k]
            pairs = part[["answers", "right"]].itertuples(index=False)
            tables.append(part.assign(k=k, value=[pass_at_k(n, c, k) for n, c in pairs])[COLUMNS])
    return stacked(tables)


def headline(passed: pd.DataFrame) -> pd.DataFrame:
    """Of each paper all variants if there are few, else those that are run by default and those
    `beside` these."""
    known = read_yaml("pass_at_k", "exhibits.yaml")["papers"]
    parts = [passed[:0]]
    for paper, rows in passed.groupby("paper", sort=False):
        names = chosen(paper, list(rows["variant"].unique()))
        names = [*names, *known.get(paper, {}).get("beside", [])]
        parts.append(rows[rows["variant"].isin(names)])
    return pd.concat(parts[1:] or parts)


def _group(suite: str, pattern: str) -> str:
    """A suite's group of questions: "4 documents" of "journey-4", itself without a pattern."""
    match = re.search(pattern, suite) if pattern else None
    return f"{match[1]} documents" if match else suite


def ends(passed: pd.DataFrame) -> pd.DataFrame:
    """Start and end of training: `passes` at both, and the column `before`.

    What was measured before training stands under a variant of its own, "start", which `before`
    names ("start of a, b" where variants of a paper began with other weights). Runs that began with
    the same weights are one measurement there: their items are averaged.
    """
    parts = [passed[:0].assign(before="")]
    same = ["paper", "scale", "begun", "step", *ITEM, "answers", "k"]
    for _, rows in passed.groupby("paper", sort=False):
        begun = rows.groupby("variant", sort=False)["begun"].agg(frozenset)
        for weights in dict.fromkeys(begun):
            variants = list(begun.index[begun == weights])
            label = START if begun.nunique() == 1 else f"{START} of {', '.join(variants)}"
            own = rows[rows["variant"].isin(variants)].assign(before=label)
            first = own[own["step"] == 0].groupby([*same, "before"], sort=False)["value"].mean()
            first = first.reset_index().assign(variant=label)
            last = own.groupby(["variant", "seed"])["step"].transform("max")
            parts.append(first.assign(seed=pd.factorize(first["begun"])[0]))
            parts.append(own[(own["step"] == last) & (last > 0)])
    return stacked(parts)


def seed_values(rows: pd.DataFrame) -> pd.Series:
    """pass@k by seed, of one variant, step and k: the mean over suites of the mean over items."""
    suites = rows.groupby(["seed", *CELL], sort=False)["value"].mean()
    return suites.groupby("seed").mean()


def level(rows: pd.DataFrame) -> Interval:
    """Mean over seeds, its 95 % bootstrap interval over seeds and items, and the number of seeds.

    `rows`: of one variant, step and k. Items are drawn within each suite and difficulty.
    """
    return item_interval(contributions(rows), (0, 1))


def contributions(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows`, of one variant, step and k, with what each item adds to its seed's value."""
    sizes = rows.groupby(["seed", *CELL])["value"].transform("size")
    suites = rows[["seed", *CELL]].drop_duplicates()["seed"].value_counts()
    return rows.assign(value=rows["value"] / sizes / rows["seed"].map(suites), bounded=True)


def gain(start: pd.DataFrame, end: pd.DataFrame) -> Interval:
    """End minus start with Student's t over seeds, at least as wide as a bootstrap of what items
    gained: seeds share the start's chance and the items, which their spread does not show.

    Args:
        start, end: rows of `passes`, of one k; of one variant, or the ends of two.
    """
    pairs = (seed_values(end) - seed_values(start)).dropna()
    over = mean_interval(pairs.tolist())
    if over[3] == 0:
        return over
    last, first = (contributions(rows[rows["seed"].isin(pairs.index)]) for rows in (end, start))
    return within(widened(over, item_interval(item_gains(last, first), (-1, 1))[1:3]), (-1, 1))


def reading(one: Interval, many: Interval) -> str:
    """What training did, in words, from the gains of pass@1 and of pass@k."""
    if one[3] < 2:
        return "not decided (n = 1)"
    if many[1] > 0:
        return "extends"
    words = ["sharpens"] if one[1] > 0 and many[2] < MARGIN else []
    words += ["narrows"] if many[2] < 0 else []
    return " and ".join(words) or "not decided"


def largest(passed: pd.DataFrame) -> int:
    """The largest k that every item has; 1 where there is none."""
    items = passed["k"].value_counts()
    return int(max(items[items == items.max()].index, default=1))


def gains(passed: pd.DataFrame) -> pd.DataFrame:
    """Before and after training in per cent, of the least k and the largest that every item has;
    a line a group of questions and variant. `passed`: what `passes` gives."""
    papers = read_yaml("pass_at_k", "exhibits.yaml")["papers"]
    ks = list(dict.fromkeys((min(passed["k"], default=1), largest(passed))))
    keys = ["paper", "questions"]
    steps = dict(list(passed.groupby(keys, sort=False)))
    lines = []
    for group, rows in ends(passed).groupby(keys, sort=False):
        others = papers.get(group[0], {}).get("minus", [])
        for variant in rows.loc[rows["variant"] != rows["before"], "variant"].unique():
            line = dict(zip([*keys, "variant"], [*group, variant], strict=True))
            changes = []
            for each in ks:
                tables = [table[table["k"] == each] for table in (rows, steps[group])]
                numbers = _numbers(*tables, variant, others)
                changes.append(numbers["gain"])
                line |= {f"pass@{each}, {name}": _percent(x) for name, x in numbers.items()}
            line |= {"training": reading(changes[0], changes[-1]), "seeds": changes[0][3]}
            lines.append(line)
    return pd.DataFrame(lines).fillna("-")


def _numbers(
    rows: pd.DataFrame, steps: pd.DataFrame, variant: str, others: Sequence[str]
) -> dict[str, Interval]:
    """A variant's start, end, gain and difference to others; of one group of questions and k.

    `rows` and `steps` are what `ends` and `passes` have of these.
    """
    of = dict(list(rows.groupby("variant")))
    end = of[variant]
    start = of[end["before"].iloc[0]]
    own = steps[(steps["variant"] == variant) & (steps["step"] == 0)]
    numbers = {"start": level(start), "end": level(end), "gain": gain(own, end)}
    there = [other for other in others if other in of and other != variant]
    return numbers | {f"minus {other}": gain(of[other], end) for other in there}


def _percent(interval: Interval) -> str:
    return format_interval(*(100 * number for number in interval[:3]))


def moves(passed: pd.DataFrame) -> pd.DataFrame:
    """Per cent of items by how often they were right before training (rows) and after (columns).

    A row a paper, group of questions, variant and state before; all seeds of a variant together.
    """
    both = ends(passed[passed["k"] == 1])
    bins = [-1, 0, 1 - TOLERANCE, 1]
    both["after training"] = pd.cut(both["value"], bins, labels=list(STATES))
    same = ["paper", "begun", *ITEM]
    start = both["variant"] == both["before"]
    before = both[start].rename(columns={"after training": "before training"})
    pairs = both[~start].merge(before[[*same, "before training"]], on=same)
    keys = ["paper", "questions", "variant"]
    lines = {}
    for key, rows in pairs.groupby(keys, sort=False):
        states = [rows["before training"], rows["after training"]]
        lines[key] = 100 * pd.crosstab(*states, normalize=True, dropna=False)
    return pd.concat(lines, names=keys) if lines else pd.DataFrame()


def flows(passed: pd.DataFrame) -> pd.DataFrame:
    """Per cent of items that were never right and then were, and the other way round.

    Without any training both are luck, and on average alike.
    """
    table = moves(passed)
    if table.empty:
        return table
    known = table.index.get_level_values("before training") != "never"
    shares = {
        "never to right": table.loc[~known, list(STATES[1:])].sum(axis=1),
        "right to never": table.loc[known, "never"],
    }
    keys = ["paper", "questions", "variant"]
    return pd.DataFrame(
        {name: each.groupby(keys, sort=False).sum() for name, each in shares.items()}
    )


def curve(both: pd.DataFrame, by: str = "k") -> pd.DataFrame:
    """What a figure draws: columns paper, panel, variant, `by`, seed, value, low, high.

    A mean and its interval have no seed; where there are several seeds each has a row of its own.

    Args:
        both: rows of `ends`; a panel is a group of questions.
        by: the horizontal axis, k or difficulty.
    """
    lines: list[tuple[Any, ...]] = []
    for key, rows in both.groupby(["paper", "questions", "variant", by], sort=False):
        value, low, high, n = level(rows)
        lines.append((*key, None, value, low, high))
        if n > 1:
            lines += [(*key, seed, each, None, None) for seed, each in seed_values(rows).items()]
    columns = ["paper", "panel", "variant", by, "seed", "value", "low", "high"]
    return pd.DataFrame(lines, columns=columns).astype({"seed": "Int64", "low": float})


def exhibit(
    exhibit_id: str, frames: Frames, passed: pd.DataFrame | None = None
) -> ExhibitContent | None:
    """An exhibit of pass@k; None where no item has several answers.

    Args:
        passed: what `passes` gives for these runs, if it is there; its `headline` is taken.
    """
    passed = headline(passes(frames.runs) if passed is None else passed)
    if passed.empty:
        return None
    content = read_yaml("pass_at_k", "exhibits.yaml")
    there = set(zip(passed["paper"], passed["variant"], strict=True))
    used = [run for run in frames.runs if (run.paper, run.variant) in there]
    k = largest(passed)
    caption = content["exhibits"][exhibit_id]["caption"].format(k=k, margin=100 * MARGIN)
    protocol = content["protocol"].format(**_counts(passed))
    if exhibit_id == "pass_at_k/gains":
        return ExhibitContent(gains(passed), used, None, caption, protocol)
    both = ends(passed)
    by = "k"
    if exhibit_id == "pass_at_k/levels":
        both = both[both["k"].isin([1, k]) & (both["difficulty"] != "")]
        by = "difficulty"
        both = both.assign(questions=both["questions"] + ", pass@" + both["k"].astype(str))
    if both.empty:
        return None
    data = curve(both, by)
    figure = small_multiples(data, exhibit_info(exhibit_id).title, LABEL, x=by, ylim=(0, None))
    return ExhibitContent(figure, used, data, f"{caption} {SHADES}", protocol)


def _counts(passed: pd.DataFrame) -> dict[str, Any]:
    """Which runs, suites and items, for the protocol."""
    lists = {key: ", ".join(passed[key].unique()) for key in ("paper", "variant", "suite")}
    items = len(passed[["paper", *KEYS, "item"]].drop_duplicates())
    answers = " or ".join(str(count) for count in sorted(passed["answers"].unique()))
    return {**lists, "items": items, "answers": answers}
