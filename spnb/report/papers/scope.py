"""SCOPE's exhibits that are more than a measure over steps: judges, swaps, texts to read."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pandas as pd

from spnb.core import prompts
from spnb.core.documents import open_source
from spnb.core.episodes import parallel, run, single_turn
from spnb.core.grading import grade_text
from spnb.core.params import variants_at
from spnb.core.search import Tool, search_rollouts
from spnb.core.stats import mean_interval
from spnb.core.types import Engine, Request, Trajectory, derive_seed
from spnb.evaluate.reports import SUITE, TASKS
from spnb.lab.groups import SHORT
from spnb.report import curves, plots
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import Frames, format_interval, load_measures, within
from spnb.report.papers.ssp import ends, turns
from spnb.report.policies import load_engine, run_params
from spnb.report.tables import load_own, settings_table
from spnb.train.plan import Plan
from spnb.train.runs import Run

SWAPPED = 2
"""Held-out tasks of each type and level that searches and answers are swapped on."""


def figure_4(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Bars of the oracle's score and the judge's grade, a bar a judge that the scale has."""
    entry = load_own("scope")["scope/figure-4"]
    used = frames.with_own(entry.variants)
    there = variants_at("scope", used.runs[0].scale) if used.runs else {}
    if not there or not {*entry.variants} & {*there} <= {*used.variants}:
        return None
    measures = load_measures("scope")
    parts = [measures[name].of_runs(used).assign(by=name) for name in ("oracle", "judge")]
    data = pd.concat(parts, ignore_index=True)
    looks = curves.looks("scope", used.variants)
    with plots.style():
        figure = plots.new_figure(3.8, entry.title)
        (ax,) = plots.multiples(figure, [""]).values()
        order = {name: looks[name] for name in used.variants}
        plots.bars(ax, data, "by", "value", hue="variant", order=order)
        ax.set(xlabel="who reads the held-out reports", ylabel="score (%)")
        plots.legend_below(figure, note=entry.note)
    return ExhibitContent(figure, used.runs, data)


# --- searches of one iteration, answers of another


def swaps(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Held-out reports and short questions, the searches by one iteration's solver and the answer
    by another's; a row a pair, its gain over the early one in both parts paired by seed."""
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
            for kind, gain in gains.items():
                reach = 100 if kind in kinds else 200
                over = within(mean_interval(gain.tolist()), (-reach, reach))
                line[f"{kind}: gain"] = format_interval(*over[:3])
        lines.append(line)
    return ExhibitContent(pd.DataFrame(lines).fillna("-"), runs)


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
            found = run(search_rollouts(requests, [""] * len(requests), tool), engines)
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
    replies = run(parallel(*map(single_turn, asked)), engines)
    return [reply.policy_text for reply in replies]


# --- texts to read


def rubrics(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """One held-out task's points by the runs' judge, and whether the oracle would write them."""
    entry = load_own("scope")["scope/table-10"]
    runs = frames.only(["full"]).runs[:1]
    if not runs:
        return None
    params = run_params(runs[0])
    lines = []
    engine, chat = load_engine(params.policies["judge"], params)
    tasks = open_source("lab:groups", params, chat.tokenizer).heldout(1)
    task = tasks[entry.words["task"] % len(tasks)]
    asked = prompts.rubric(task.question, task.info["documents"], params.style)
    request = chat.request(asked, params.eval_sampling, 0)
    request = replace(request, sampling=replace(request.sampling, temperature=0.0))
    trajectory = run(single_turn(request), {"policy": engine})
    for point in prompts.points(trajectory.policy_text):
        right = "yes" if point in task.gold else "no"
        lines.append({"judge": "judge", "point": point, "the oracle's too": right})
    lines += [{"judge": "oracle", "point": point, "the oracle's too": "yes"} for point in task.gold]
    table = pd.DataFrame(lines).assign(task=task.question)
    return ExhibitContent(table[["task", "judge", "point", "the oracle's too"]], runs)


def tasks_written(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """A challenger's tasks on one held-out document, after the first and the last iteration, turn
    by turn, with the mean grade of the answers to each."""
    runs = frames.only(["full"]).runs[:1]
    found = dict(ends(runs[0], TASKS, after=1)) if runs else {}
    if not found:
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
    "scope/table-9": settings_table,
    "scope/table-10": rubrics,
    "scope/figure-15": tasks_written,
    "scope/figure-17": answers_written,
}
