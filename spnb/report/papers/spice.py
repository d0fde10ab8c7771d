"""SPICE's exhibits that are more than a measure over steps: methods, cross-play, texts to read."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from spnb import reference
from spnb.core import episodes
from spnb.core.disk import write_lines
from spnb.core.method import Suite
from spnb.core.types import Engine
from spnb.evaluate.items import Records, play_suite, play_suites
from spnb.evaluate.proposals import CHALLENGES, task_numbers
from spnb.lab import segments as evaluation
from spnb.lab.segments import KINDS, kind_of
from spnb.methods import method_class
from spnb.report import curves, plots
from spnb.report.curves import START
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import KEYS, RESULTS, RUN, Frames, load_measures, measures_of
from spnb.report.policies import CachedEngine, Greedy, load_engine, run_params
from spnb.report.tables import load_own
from spnb.train.config import RunParams
from spnb.train.plan import Plan
from spnb.train.runs import Run

OWN = load_own("spice")
OVERALL = "overall"
GROUPS = ("mathematics", "general", OVERALL)
"""The measures of figure 1."""
COUNTED = {"valid": 100, "success": 100, "level": 1, "right": 100, "self_contained": 100}
"""What cross-play counts of the tasks, and the factors that make shares per cent."""
CROSS_PLAY = "cross_play"
"""The record of a run that says how its checkpoints play each other."""
OF_RIGHT = "success, right"
"""The pass rate over the tasks whose stated answer is right."""


def figure_1(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Bars of the methods by group of suites, and of SPICE without one part each."""
    entry = OWN["spice/figure-1"]
    used = frames.with_own(entry.variants)
    if "full" not in used.variants or len(used.variants) < 2:
        return None
    data = compared(used)
    looks = curves.looks("spice", frames.own) | {START: plots.Look(START, plots.PALETTE[6])}
    methods = [*entry.words["methods"], *frames.own]
    parts = {
        "Methods": (methods, data),
        "Without one part": (entry.words["parts"], data[data["group"] == OVERALL]),
    }
    with plots.style():
        figure = plots.new_figure(4.2, entry.title)
        axes = plots.multiples(figure, list(parts), "AAAB", sharey=True)
        for ax, (names, rows) in zip(axes.values(), parts.values(), strict=True):
            shown = [name for name in names if name in set(rows["variant"])]
            own = {"hue": "variant", "order": {name: looks[name] for name in shown}}
            plots.bars(ax, rows[rows["variant"].isin(shown)], "group", "value", **own)
            mark_paper(ax, shown)
            ax.set(xlabel="", ylabel="", ylim=(0, 100))
        axes["Methods"].set_ylabel("right (%)")
        plots.legend_below(figure, note=entry.note)
    return ExhibitContent(figure, used.runs, data)


def compared(frames: Frames) -> pd.DataFrame:
    """Columns variant, seed, group, value: right answers (%) at the end, and once at the start."""
    parts = []
    for group in GROUPS:
        measure = load_measures("spice")[group]
        before = measure.of_runs(frames.only(["full"]), 0)[:1].assign(variant=START)
        parts += [each.assign(group=group) for each in (before, measure.of_runs(frames))]
    return pd.concat(parts, ignore_index=True)[["variant", "seed", "group", "value"]]


def mark_paper(ax: Axes, names: list[str]) -> None:
    """The paper's overall number across the last bar of each method that it has."""
    printed = reference.table("spice", "spice/table-1")["Overall"]
    rows = OWN["spice/figure-1"].words["methods"]
    look = {"color": "0.1", "linestyles": [plots.DASHED], "linewidth": 1.5, "label": "paper"}
    for name, bars in zip(names, ax.containers, strict=True):
        if rows.get(name):
            last = bars.patches[-1]
            ax.hlines(printed[rows[name]], last.get_x(), last.get_x() + last.get_width(), **look)


def figure_3(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Pass rates of the first kept checkpoint with later ones, in either role."""
    runs = with_checkpoints(frames)
    if not runs:
        return None
    entry = OWN["spice/figure-3"]
    content = {"title": entry.title, "caption": entry.caption, "note": entry.note}
    content |= entry.words["figure"]
    drawn = curves.curves_of("spice/figure-3", content, measures_of(entry.words), {})
    data = drawn.data(with_cross_play(frames))
    figure = drawn.draw(data)
    shown = [panel for title, panel in drawn.panels.items() if title in {*data["quantity"]}]
    for ax, panel in zip(figure.axes, shown, strict=True):
        role = next(iter(panel.lines.values())).measure.role[0]
        ax.set_xlabel(f"{role}'s training step")
    return ExhibitContent(figure, runs, pd.concat(map(crossed, runs), ignore_index=True))


def with_checkpoints(frames: Frames) -> list[Run]:
    """SPICE's runs with an early checkpoint and later ones, or what they came to."""
    runs = frames.only(["full"]).runs
    return [run for run in runs if len(run.kept()) > 1 or run.rows(CROSS_PLAY)]


def with_cross_play(frames: Frames) -> Frames:
    """The same runs with cross-play among their results: the suite `cross-play`; step and role say
    whose checkpoint changes."""
    tables = [frames.results]
    for run in with_checkpoints(frames):
        rows = crossed(run).rename(columns={"number": "metric"})
        labels = dict.fromkeys(KEYS, "") | {"suite": "cross-play", "role": rows["role"]}
        tables.append(rows.assign(**labels, **{key: run.params[key] for key in RUN}))
    return replace(frames, results=pd.concat(tables, ignore_index=True)[RESULTS])


def crossed(run: Run) -> pd.DataFrame:
    """Columns variant, seed, role (whose checkpoint changes), step, number, value. Played once: a
    finished run's folder keeps them."""
    if rows := run.rows(CROSS_PLAY):
        return pd.DataFrame(rows)
    table = cross_play(run)
    early = min(run.kept())
    parts = []
    for role, other in (("challenger", "reasoner"), ("reasoner", "challenger")):
        rows = table[table[other] == early].rename(columns={role: "step"}).drop(columns=other)
        parts.append(rows.assign(role=role))
    made = pd.concat(parts, ignore_index=True).assign(variant=run.variant, seed=run.seed)
    if run.finished:  # else there are checkpoints to come
        write_lines(run.folder / f"{CROSS_PLAY}.jsonl", made.to_dict("records"))
    return made


def cross_play(run: Run) -> pd.DataFrame:
    """The first kept checkpoint of a run with each, in either role: what its tasks are, how often
    they are answered as stated. Columns challenger, reasoner (steps), number, value."""
    params = run_params(run)
    loaded = {step: load_engine(path, params) for step, path in run.kept().items()}
    early = min(loaded)
    pairs = dict.fromkeys(pair for step in loaded for pair in ((step, early), (early, step)))
    method = method_class(run.paper, params)(params, loaded[early][1].tokenizer)
    suites = [paired(method, *pair).challenge_suite() for pair in pairs]
    engines = {str(step): CachedEngine(engine) for step, (engine, _) in loaded.items()}
    rows = []
    for pair, (records, _) in zip(pairs, play_suites(suites, engines), strict=True):
        rows += [(*pair, *each) for each in counted(records).items()]
    return pd.DataFrame(rows, columns=["challenger", "reasoner", "number", "value"])


def paired(method: Any, challenger: int, reasoner: int) -> Any:
    """The method with a policy of its own for each role, named by its step."""
    made = copy(method)
    policies = {"challenger": str(challenger), "reasoner": str(reasoner)}
    made.roles = {name: replace(method.roles[name], policy=policies[name]) for name in policies}
    return made


def counted(records: Records) -> dict[str, float]:
    """What cross-play counts of a pair's tasks; all but `valid` over the valid ones alone."""
    tasks = [one for one in records if one["score"] == 1]
    right = [one["success"] for one in tasks if one.get("right")]
    numbers = task_numbers(tasks) | {"valid": len(tasks) / len(records)}
    shown = {name: by * numbers[name] for name, by in COUNTED.items() if name in numbers}
    return shown | ({OF_RIGHT: 100 * sum(right) / len(right)} if right else {})


def figure_5(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """A document of each half, and the task that is written on it at the start and at the end."""
    runs = frames.only(["full"]).runs
    tasks = written(runs[0]) if runs else {}
    if not tasks:
        return None
    params = run_params(runs[0])
    steps = (min(tasks), max(tasks))
    lines = []
    for place, text in first_of_halves(params, tasks[steps[0]].keys() & tasks[steps[1]].keys()):
        for step, shown in zip(steps, (text, "the same"), strict=True):
            one = tasks[step][place]
            line = {"document": shown, "policy": f"step {step}" if step else START}
            line |= {"question": one["question"], "stated answer": one["answer"]}
            agree = f"{round(params.answers * one['success'])} of {params.answers}"
            lines.append(line | {"oracle": oracle_words(one), "answers that agree": agree})
    return ExhibitContent(pd.DataFrame(lines), runs[:1]) if lines else None


def written(run: Run) -> dict[int, dict[int, dict[str, Any]]]:
    """The records of a run's valid tasks on held-out documents, by step and place."""
    tasks: dict[int, dict[int, dict[str, Any]]] = {}
    for one in run.rows("items"):
        if one["suite"] == CHALLENGES and one["score"] == 1 and "question" in one:
            tasks.setdefault(one["step"], {})[int(one["item"])] = one
    return tasks


def first_of_halves(params: RunParams, places: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The first place with a held-out document of each half, and the document's text."""
    from transformers import AutoTokenizer

    from spnb.train.policies import policy_path

    tokenizer = AutoTokenizer.from_pretrained(policy_path(params.policy))
    drawn = params.model_copy(update={"selection": "drawn"})  # no policy is asked for the type
    method = method_class(params.paper, drawn)(drawn, tokenizer)
    halves = set()
    for place in sorted(places):
        _, context = episodes.run(method.challenge_context(place), {})
        kind = kind_of(context.texts[0])
        half = KINDS[kind].half if kind else ""
        if half not in halves:
            halves.add(half)
            yield place, context.texts[0]


def oracle_words(task: Mapping[str, Any]) -> str:
    """What the oracle says of a task, in words."""
    if not task.get("level"):
        return "cannot be read"
    words = OWN["spice/figure-5"].words
    said = [words[name][not task[name]] for name in words if task.get(name) is not None]
    return ", ".join([f"level {task['level']:g}", *filter(None, said)])


def figure_6(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """A held-out task of each half, and its solutions at the start and at the end."""
    runs = frames.only(["full"]).runs
    if not runs or not runs[0].facts().get("weights", True):  # or unpacked records, without weights
        return None
    params = run_params(runs[0])
    lines = []
    loaded = [load_engine(path, params) for path in (params.policy, runs[0].weights())]
    method = method_class(params.paper, params)(params, loaded[0][1].tokenizer)
    suites = {suite.name: suite for suite in method.suites(0)}
    for half, (name, *_) in evaluation.GROUPS.items():
        before, after = (solved(suites[name], engine) for engine, _ in loaded)
        pairs = list(zip(before, after, strict=True))
        place = next((n for n, (first, last) in enumerate(pairs) if last[1] > first[1]), 0)
        task = evaluation.suite_tasks(name, params.eval_items)[place]
        said = (f"{text}\n({'right' if score else 'wrong'})" for text, score in pairs[place])
        lines.append((half, task.question, *said))
    columns = ["from", "task", START, f"step {params.steps}"]
    return ExhibitContent(pd.DataFrame(lines, columns=columns), runs[:1])


def solved(suite: Suite, engine: Engine) -> list[tuple[str, float]]:
    """A policy's most likely answer to each question of a suite, and its score."""
    greedy = Greedy(engine)
    records, _ = play_suite(suite, {"policy": greedy})
    return [(text, one["score"]) for text, one in zip(greedy.texts, records, strict=True)]


MAKERS = {
    "spice/figure-1": figure_1,
    "spice/figure-3": figure_3,
    "spice/figure-5": figure_5,
    "spice/figure-6": figure_6,
}
