"""SCOPE's exhibits that are more than a measure over steps: judges, swaps, texts to read."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pandas as pd

from spnb.core import prompts
from spnb.core.advantages import make_estimator
from spnb.core.documents import open_source
from spnb.core.episodes import parallel, run, single_turn
from spnb.core.grading import grade_text
from spnb.core.method import Role, RoleParams
from spnb.core.params import variants_at
from spnb.core.search import Tool, search_rollouts
from spnb.core.stats import mean_interval
from spnb.core.types import Engine, Request, Trajectory, derive_seed
from spnb.evaluate.reports import SUITE, TASKS
from spnb.lab.groups import SHORT
from spnb.report import curves
from spnb.report.claims import Part, decide, load_claims, together
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import (
    KEYS,
    RESULTS,
    RUN,
    Frames,
    Interval,
    format_interval,
    load_measures,
    within,
)
from spnb.report.papers.ssp import ends, turns
from spnb.report.policies import load_engine, run_params
from spnb.report.tables import load_own
from spnb.train.plan import Plan
from spnb.train.runs import Run

SWAPPED = 2
"""Held-out tasks of each type and level that searches and answers are swapped on."""
CLAIMED = {("last", "first"): "multi-hop", ("first", "last"): "single-hop"}
"""Where the paper sees better searches, and better answers, gain more."""
ACCEPTED = 0.5
"""The score from which on an answer is accepted."""


def figure_4(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Bars of the oracle's score and the judge's grade, a bar a judge that the scale has."""
    entry = load_own("scope")["scope/figure-4"]
    used = frames.with_own(entry.variants)
    there = variants_at("scope", used.runs[0].scale) if used.runs else {}
    if not there or not {*entry.variants} & {*there} <= {*used.variants}:
        return None
    measures = load_measures("scope")
    names = ("oracle", "judge", "judge minus oracle", "told twice")
    words = {"xlabel": "held-out reports", "ylabel": "% (judge minus oracle: points)"}
    return curves.bars_of("scope", entry, used, {n: measures[n] for n in names}, "by", words)


def with_acceptance(frames: Frames) -> Frames:
    """The same runs with shares of held-out answers among their results: those that the judge
    accepts and the oracle does not, and the reverse, at every evaluation."""
    rows = [
        {key: run.params[key] for key in RUN}
        | dict.fromkeys(KEYS, "")
        | {"suite": SUITE, "step": step, "metric": metric, "value": share, "n": len(answers)}
        for run in frames.runs
        for (step, suite, *_), answers in frames.answers(run).items()
        if suite == SUITE
        for metric, share in accepted_alone(answers).items()
    ]
    results = pd.concat([frames.results, pd.DataFrame(rows)], ignore_index=True)
    return replace(frames, results=results[RESULTS])


def accepted_alone(answers: pd.DataFrame) -> dict[str, float]:
    """Shares of answers (columns judge, score) that one accepts and the other does not."""
    judge, oracle = (answers[name] >= ACCEPTED for name in ("judge", "score"))
    alone = {"judge": judge & ~oracle, "oracle": oracle & ~judge}
    return {f"accepted by the {name} alone": float(one.mean()) for name, one in alone.items()}


# --- searches of one iteration, answers of another


def swaps(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Held-out reports and short questions, the searches by one iteration's solver and the answer
    by another's; a row a pair, its gain over the early one in both parts paired by seed, and the
    verdict on what the paper claims of it."""
    runs = [one for one in frames.only(["full"]).runs if len(one.kept()) > 1]
    if not runs:
        return None
    found = pd.concat([swapped(one) for one in runs], ignore_index=True)
    kinds = list(dict.fromkeys(found["kind"]))
    parts = {
        pair: rows.pivot(index="seed", columns="kind", values="value")[kinds]
        for pair, rows in found.groupby(["search", "answer"], sort=False)
    }
    early = parts["first", "first"]
    lines = []
    for (search, answer), own in parts.items():
        line = {"search": search, "answer": answer} | own.mean().map("{:.1f}".format).to_dict()
        if (search, answer) != ("first", "first"):
            gains = own - early
            gains["multi-hop minus single-hop"] = gains["multi-hop"] - gains["single-hop"]
            over = {kind: mean_interval(gain.tolist()) for kind, gain in gains.items()}
            for kind, each in over.items():
                reach = 100 if kind in kinds else 200
                line[f"{kind}: gain"] = format_interval(*within(each, (-reach, reach))[:3])
            line |= claimed(CLAIMED.get((search, answer), ""), over)
        lines.append(line)
    protocol = load_own("scope")["scope/table-4"].protocol
    protocol += f" {len(runs)} seeds, those whose weights are kept."
    return ExhibitContent(pd.DataFrame(lines).fillna("-"), runs, protocol=protocol)


def claimed(kind: str, gains: dict[str, Interval]) -> dict[str, str]:
    """What the paper claims of one part, a gain on a kind of questions and a larger one than on the
    other kind, with the verdict on each and on both; nothing without a kind."""
    if not kind:
        return {}
    _, low, high, n = difference = gains["multi-hop minus single-hop"]
    measure = load_measures("scope")[kind]
    rule = {"text": kind, "measure": measure, "of": "full", "margin": load_claims("scope").margin}
    side = "greater" if kind == "multi-hop" else "less"
    gain = decide(Part(direction="greater", **rule), gains[kind])
    larger = decide(Part(direction=side, **rule), difference)
    return {
        "claim": f"a gain on {kind}, larger than on the other",
        "a gain": gain,
        "larger": larger,
        "verdict": together([gain, larger]),
        "smallest visible": f"{(high - low) / 2:.1f}" if n > 1 else "-",
    }


def swapped(one: Run) -> pd.DataFrame:
    """Columns seed, search, answer ("first", "last"), kind, value (%)."""
    params = run_params(one)
    paths = list(one.kept().values())
    engines = {}
    for name, path in (("first", paths[0]), ("last", paths[-1])):
        engines[name], chat = load_engine(path, params)
    source = open_source("lab:groups", params, chat.tokenizer)
    tasks = {"reports": source.heldout(SWAPPED)}
    tasks |= {name: source.short_tasks(number) for number, name in SHORT.items()}
    limits = params.results, params.max_searches, params.max_length, params.syntax
    tool = Tool(chat.tokenizer, source.retriever("heldout"), *limits)
    rows = []
    for search in engines:
        for kind, asked in tasks.items():
            requests = [
                chat.request(task.messages, params.eval_sampling, derive_seed(kind, place), search)
                for place, task in enumerate(asked)
            ]
            found = run(search_rollouts(requests, tool), engines)
            for answer in engines:
                texts = answered(requests, found, answer, engines)
                scores = [grade_text(text, task) for task, text in zip(asked, texts, strict=True)]
                rows.append((one.seed, search, answer, kind, 100 * fmean(scores)))
    return pd.DataFrame(rows, columns=["seed", "search", "answer", "kind", "value"])


def answered(
    requests: Sequence[Request],
    found: Sequence[Trajectory],
    policy: str,
    engines: dict[str, Engine],
) -> list[str]:
    """The last turns that a policy writes after the searches of trajectories."""
    asked = []
    for request, trajectory in zip(requests, found, strict=True):
        own = trajectory.mask[::-1]
        last = own.index(0) if 0 in own else len(own)
        before = trajectory.completion_ids[: len(own) - last]
        asked.append(replace(request, prompt_ids=(*request.prompt_ids, *before), policy=policy))
    return [reply.policy_text for reply in run(parallel(*map(single_turn, asked)), engines)]


# --- texts to read


def rubrics(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """One held-out task's points by each judge, and whether the oracle would write them."""
    entry = load_own("scope")["scope/table-10"]
    runs = [one for name in entry.variants for one in frames.only([name]).runs[:1]]
    lines = []
    for one in runs:
        params = run_params(one)
        judge = Role(params.eval_sampling, make_estimator("raw"), "judge")
        judge = judge.changed(params.roles.get("rubric", RoleParams()))
        engine, chat = load_engine(params.policies[judge.policy], params)
        tasks = open_source("lab:groups", params, chat.tokenizer).heldout(1)
        task = tasks[entry.words["task"] % len(tasks)]
        asked = prompts.rubric(task.question, task.info["documents"], params.style)
        trajectory = run(single_turn(chat.request(asked, judge.sampling, 0)), {"policy": engine})
        who = entry.words[one.variant]
        lines += [(task, who, point) for point in prompts.points(trajectory.policy_text)]
    if not lines:
        return None
    lines += [(task, "oracle", point) for point in task.gold]
    table = pd.DataFrame(lines, columns=["task", "judge", "point"])
    table["the oracle's too"] = ["yes" if point in task.gold else "no" for task, _, point in lines]
    return ExhibitContent(table.assign(task=task.question), runs)


def tasks_written(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """A challenger's tasks on one held-out document, after the first and the last iteration, turn
    by turn, with the mean grade of the answers to each."""
    runs = frames.only(["full"]).runs[:1]
    found = dict(ends(runs[0], TASKS, after=1)) if runs else {}
    if not found or not all("text" in one for records in found.values() for one in records):
        return None
    tasks = [{one["item"]: one for one in records} for records in found.values()]
    usable = {place: sum(not one[place]["reason"] for one in tasks) for place in tasks[0]}
    chosen = max(usable, key=lambda place: (usable[place], tasks[-1][place]["level"]))
    lines = []
    for step, one in zip(found, tasks, strict=True):
        about = one[chosen]
        who = f"step {step}, level {about['level']}, mean grade {about['success']:.2f}"
        lines += turns(about["text"], who)
    return ExhibitContent(pd.DataFrame(lines), runs)


def answers_written(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """An answer to one held-out task, after the first and the last iteration, turn by turn."""
    runs = frames.only(["full"]).runs[:1]
    lines = []
    for step, records in ends(runs[0], SUITE, after=1) if runs else ():
        told = [one for one in records if "text" in one]
        for one in told[len(told) // 2 : len(told) // 2 + 1]:
            who = f"step {step}, {one['role']}, {one['difficulty']}: oracle {one['score']:.2f}"
            lines += turns(one["text"], f"{who}, judge {one['judge']:.2f}")
    return ExhibitContent(pd.DataFrame(lines), runs) if lines else None


MAKERS = {
    "scope/figure-4": figure_4,
    "scope/table-4": swaps,
    "scope/table-10": rubrics,
    "scope/figure-15": tasks_written,
    "scope/figure-17": answers_written,
}
