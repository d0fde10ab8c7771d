"""SPELL's exhibits that are more than a measure over steps: pass@k, shapes, levels, seconds."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from spnb import reference
from spnb.core import rewards
from spnb.core.params import variants
from spnb.core.types import Chat
from spnb.evaluate.proposals import DIFFICULTY
from spnb.lab import clusters as long_context
from spnb.lab.clusters import LENGTH, TYPES
from spnb.report import curves, pass_at_k, plots
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import Frames, records
from spnb.report.tables import load_own
from spnb.train.plan import Plan
from spnb.train.runs import Run

OWN = load_own("spell")
MEAN = "mean, "
SHAPES = "(a) Reward"
LOOKS = {
    "start": plots.Look("start", plots.PALETTE[6]),
    "end": plots.Look("after training", plots.PALETTE[0]),
    "first": plots.Look("SPELL, first half", plots.PALETTE[5]),
    "second": plots.Look("SPELL, second half", plots.PALETTE[4]),
}
"""How figures draw parts of a training."""
PHASES = ("questioning", "grounding", "responding", "verifying", "updating")


def figure_3(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """pass@k before and after training: means at both numbers of documents, types at the larger."""
    entry = OWN["spell/figure-3"]
    used = frames.with_own(entry.variants)
    if not used.runs:
        return None
    data = pass_curves(used)
    if data.empty:
        return None
    looks = curves.looks("spell", list(data["variant"].unique()))
    titles = list(data["panel"].unique())
    panels = {each: {"label": "pass@k (%)" if MEAN in each else ""} for each in titles}
    shown = {"title": entry.title, "note": entry.note, "layout": "AAABBB;CCDDEE", "height": 5.4}
    own = {"x": "k", "ylim": (0, 104), "variants": list(looks), "looks": looks, "panels": panels}
    drawn = curves.Curves(**shown, **own)
    figure = drawn.draw(data.rename(columns={"panel": "quantity"}))
    for ax in figure.axes:
        ax.set_xlabel("answers k")
    if sum(MEAN in each for each in titles) == 2:
        mark_paper(figure.axes[1], {name: looks[name] for name in data["variant"].unique()})
    plots.legend_below(figure, note=drawn.words)
    return ExhibitContent(figure, used.runs, data.drop(columns="paper"))


def pass_curves(frames: Frames) -> pd.DataFrame:
    """What figure 3 draws, in per cent: the rows of `pass_at_k.curve`."""
    both = pass_at_k.ends(pass_at_k.passes(frames.runs))
    counts = frames.runs[0].params["eval_documents"]
    groups = {count: both[both["questions"] == f"{count} documents"] for count in counts}
    parts = [rows.assign(questions=MEAN + rows["questions"]) for rows in groups.values()]
    longer = groups[counts[-1]]
    parts.append(longer.assign(questions=longer["suite"].map(suite_words)))
    data = pass_at_k.curve(pd.concat(parts, ignore_index=True))
    return data.assign(**(100 * data[["value", "low", "high"]].astype(float)))


def mark_paper(ax: Axes, looks: plots.Order) -> None:
    """The paper's pass@8 of each line, a dash at k = 8."""
    printed = reference.table("spell", "spell/figure-3")["100K average pass@8"]
    rows = OWN["spell/figure-3"].words["printed"]
    for place, variant in enumerate(name for name in rows if name in looks):
        look = {"colors": looks[variant].colour, "linestyles": [plots.DASHED], "linewidth": 1.5}
        ax.hlines(printed[rows[variant]], 7.4, 8.6, label="" if place else "paper", **look)


def figure_5(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """The curves of `figures.yaml`, and the shapes of the rewards before them."""
    entry = curves.load_curves("spell")["spell/figure-5"]
    used = frames.with_own(entry.variants)
    data = entry.data(used)
    if not entry.shows(frames, data):
        return None
    drawn = shapes(unrun(entry.variants) | {run.variant: run.params for run in used.runs})
    titles = [title for title in entry.panels if title in set(data["quantity"])]
    with plots.style():
        figure = plots.new_figure(entry.height, entry.title)
        axes = entry.draw_on(figure, [SHAPES, *titles], data)
        order = entry.order(data) | plots.free_looks(frames.own, entry.looks)
        draw_shapes(axes[SHAPES], drawn, order, used.variants)
        plots.legend_below(figure, note=entry.words)
    both = pd.concat([drawn.assign(quantity=SHAPES), data], ignore_index=True)
    return ExhibitContent(figure, used.runs, both, entry.caption, entry.protocol)


def unrun(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What variants set of a run's parameters that decide its mapping, the others as they are."""
    known = variants("spell")
    default = {"mapping": "gaussian", "sigma": 1 / 6}
    return {name: default | known[name].get("set", {}) for name in names}


def shapes(runs: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """What each variant's mapping pays, by its runs' parameters: columns variant, step (p, from 0
    to 1), value."""
    p = np.linspace(0, 1, 201)
    parts = []
    for name, params in runs.items():
        mapping = params["mapping"]
        more = {"sigma": params["sigma"]} if mapping == "gaussian" else {}
        if hasattr(rewards, mapping):  # not one of a plugin
            pays = getattr(rewards, mapping)(p, **more)
            parts.append(pd.DataFrame({"variant": name, "step": p, "value": pays}))
    return pd.concat(parts, ignore_index=True)


def draw_shapes(ax: Axes, drawn: pd.DataFrame, looks: plots.Order, known: list[str]) -> None:
    """A line a mapping, with dots at the shares of eight answers; named where no run names it."""
    for name, rows in drawn.groupby("variant", sort=False):
        look = looks[name]
        label = "" if name in known else look.label
        inside = rows[rows["step"].between(0, 1, inclusive="neither")]
        line = {"color": look.colour, "linestyle": look.line, "label": label}
        ax.plot(inside["step"], inside["value"], **line)
        eighths = rows[(8 * rows["step"]).round(6) % 1 == 0]
        ax.plot(eighths["step"], eighths["value"], "o", color=look.colour, markersize=3)
    ax.set(xlabel="mean reward p of 8 answers", ylabel="pay")


def figure_6(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Levels of the proposals before and after training by task type; tokens of test prompts."""
    entry = OWN["spell/figure-6"]
    used = frames.only(entry.variants)
    if not used.runs:
        return None
    asked = proposals(used)
    if asked.empty:
        return None
    lengths = contexts(used.runs[0])
    of = dict(iter(asked.groupby("family")))
    panels = {f"Asked: {words}": of[family] for family, words in TYPES.items() if family in of}
    layout = "ABC"[: len(panels)]
    with plots.style():
        figure = plots.new_figure(7.0, entry.title)
        below = "ABCD"[len(panels)] * len(panels)
        axes = plots.multiples(figure, [*panels, "Test contexts"], f"{layout};{below}")
        contexts_ax = axes.pop("Test contexts")
        looks = {when: LOOKS[when] for when in ("start", "end")}
        for (title, ax), rows in zip(axes.items(), panels.values(), strict=True):
            plots.bars(ax, rows, "level", "value", hue="when", order=looks)
            ax.set(title=title, xlabel="level", ylabel="", ylim=(0, 100))
        next(iter(axes.values())).set_ylabel("proposals (%)")
        draw_lengths(contexts_ax, lengths)
        plots.legend_below(figure, note=entry.note)
    levels = asked.assign(quantity="proposals (%)")
    tokens = lengths.assign(quantity="tokens of a prompt")
    return ExhibitContent(figure, used.runs, pd.concat([levels, tokens], ignore_index=True))


def proposals(frames: Frames) -> pd.DataFrame:
    """Shares (%) of the proposals by level, also 0: columns family, when, seed, level, value."""
    columns = ["suite", "kind", "seed", "step", "level"]
    every = records(frames.runs).reindex(columns=columns)
    rows = every[every["suite"] == DIFFICULTY]
    parts = [pd.DataFrame(columns=["kind", "seed", "level", "value", "when"])] if rows.empty else []
    for when, step in () if parts else (("start", rows["step"].min()), ("end", rows["step"].max())):
        at = rows[rows["step"] == step].groupby(["kind", "seed"])["level"]
        shares = at.value_counts(normalize=True).unstack(fill_value=0.0)
        shares = 100 * shares.reindex(columns=range(LENGTH + 1), fill_value=0.0)
        parts.append(shares.stack().rename("value").reset_index().assign(when=when))
    table = pd.concat(parts, ignore_index=True).rename(columns={"kind": "family"})
    return table.assign(level=table["level"].astype(int).astype(str))


def contexts(run: Run) -> pd.DataFrame:
    """How long the prompts of a run's suites are: columns suite (in words), item, tokens."""
    from transformers import AutoTokenizer

    from spnb.train.policies import policy_path
    from spnb.train.run import run_params

    params = run_params(run)
    chat = Chat(AutoTokenizer.from_pretrained(policy_path(params.policy)))
    rows = []
    for suite in long_context.suites(params, chat, params.eval_documents, ends=True):
        for place in dict(suite.parts):  # of several answers to an item the first
            (request,) = next(suite.ask((place, 0)))
            rows.append((suite_words(suite.name), place, len(request.prompt_ids)))
    return pd.DataFrame(rows, columns=["suite", "item", "tokens"])


def suite_words(name: str) -> str:
    """A suite's name in words; a number is that of its documents."""
    family, _, count = name.rpartition("-")
    forms = OWN["spell/figure-6"].words
    return forms[name] if name in forms else f"{TYPES[family]}, {count}"


def draw_lengths(ax: Axes, lengths: pd.DataFrame) -> None:
    """A box a suite, the shortest contexts first."""
    tokens = dict(iter(lengths.groupby("suite")["tokens"]))
    order = sorted(tokens, key=lambda suite: tokens[suite].median())
    look = {"boxprops": {"facecolor": plots.PALETTE[5]}, "medianprops": {"color": "0.2"}}
    place = {"orientation": "horizontal", "tick_labels": order, "widths": 0.6}
    boxes = [tokens[suite] for suite in order]
    ax.boxplot(boxes, **place, **look, patch_artist=True, whis=(0, 100))
    ax.invert_yaxis()
    ax.set(xlabel="tokens of a prompt", xlim=(0, None))


def figure_7(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Shares of the phases in a step by variant, and early and late in SPELL's training."""
    entry = OWN["spell/figure-7"]
    used = frames.with_own(entry.variants)
    whole = shares(used, 1)
    timed = {*zip(whole["variant"], whole["seed"], strict=True)}
    if not timed or {(run.variant, run.seed) for run in used.runs} - timed:
        return None  # no runs, or records that were unpacked, which have no times of phases
    halves = shares(used.only(["full"]), 2)
    looks = curves.looks("spell", [*entry.variants, *frames.own])
    panels = {"All of the training": (whole, "variant", looks)}
    if len(halves):
        panels["SPELL"] = (halves, "half", {half: LOOKS[half] for half in ("first", "second")})
    medians = used.metrics[used.metrics["metric"] == "seconds/step"].groupby("variant")["value"]
    seconds = [f"{looks[name].label} {medians.median()[name]:.2g}" for name in used.variants]
    with plots.style():
        figure, axes = plots.panels(len(panels), height=4.4)
        figure.suptitle(entry.title)
        for ax, (title, (rows, hue, order)) in zip(axes, panels.items(), strict=True):
            plots.bars(ax, rows, "phase", "value", hue=hue, order=order)
            ax.set(title=title, xlabel="", ylabel="")
            ax.tick_params(axis="x", labelrotation=90)
        axes[0].set_ylabel("of a step's seconds (%)")
        plots.legend_below(figure, note=entry.note.format(", ".join(seconds)))
    return ExhibitContent(figure, used.runs, pd.concat([whole, halves], ignore_index=True))


def shares(frames: Frames, parts: int) -> pd.DataFrame:
    """Each seed's median share (%) of a phase in a step's seconds, in equal parts of its training.

    Columns variant, seed, phase, half ("first", "second"; "" for one part), value.
    """
    keys = ["variant", "seed", "step"]
    names = frames.metrics["metric"].map({"seconds/update": "updating"})
    names = names.fillna(frames.metrics["role"].where(frames.metrics["metric"] == "method/seconds"))
    rows = frames.metrics.assign(phase=names)[names.notna() & (frames.metrics["value"] > 0)]
    whole = frames.metrics[frames.metrics["metric"] == "seconds/step"].set_index(keys)["value"]
    rows = rows.join(whole.rename("whole"), on=keys)
    steps = rows.groupby(["variant", "seed"])["step"].transform("max")
    half = (parts * (rows["step"] - 1) // steps).map({0: "first", 1: "second"})
    rows = rows.assign(half=half if parts > 1 else "", value=100 * rows["value"] / rows["whole"])
    table = rows.groupby(["variant", "seed", "phase", "half"])["value"].median().reset_index()
    return table.sort_values("phase", key=lambda names: names.map(PHASES.index), ignore_index=True)


MAKERS = {
    "spell/figure-3": figure_3,
    "spell/figure-5": figure_5,
    "spell/figure-6": figure_6,
    "spell/figure-7": figure_7,
}
