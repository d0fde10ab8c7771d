"""What the notebook of the shipped policies shows: learning curves, skills, missed bars."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from spnb.lab.ladder import HIGHEST
from spnb.lab.pretrain import ladder_skills, reasoner_skills, search_skills, skills
from spnb.lab.pretrain.build import CURVE_FILE
from spnb.lab.pretrain.ladder_lessons import LearnerRecipe
from spnb.lab.pretrain.learner import RECIPES
from spnb.lab.pretrain.pretrain import WorldRecipe
from spnb.report import plots
from spnb.report.exhibits import save_exhibit
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import Policy

PARTS = ("all", "balanced", "gold: yes", "gold: no", skills.BASELINE, "beyond", "sampled, all")
"""The parts of a skills table that its exhibit shows."""
SIZES = ("base", "instruct")
FEW = ("reading-1", "reading-8", "numeric", "judge", "ask")


def curve_of(folder: Path, title: str, window: int) -> tuple[Figure, pd.DataFrame]:
    """A policy's loss over steps or millions of tokens (running mean), and the numbers."""
    curve = pd.read_csv(folder / CURVE_FILE)
    counted = curve.columns[0]
    tokens = counted == "tokens"
    figure, (ax,) = plots.panels(1, height=3.0)
    smooth = curve["loss"].rolling(window, min_periods=1).mean()
    ax.plot(curve[counted] / (1e6 if tokens else 1), smooth, color=plots.PALETTE[0])
    label = "tokens (millions)" if tokens else "training step"
    ax.set(xlabel=label, ylabel="loss (nats per token)", title=title, ylim=(0, None))
    plt.close(figure)
    return figure, curve


def world_curve(folder: Path, recipe: WorldRecipe, figures: str) -> Figure:
    """Draws and saves the document world's learning curve, with the recipe's stops and courses."""
    figure, curve = curve_of(folder, "Supervised training, n = 1", 40)
    (ax,) = figure.axes
    marks = {"unskilled": recipe.unskilled_at, "base": recipe.base_at}
    marks |= {"roles begin": recipe.reading_until, "practice begins": recipe.roles_until}
    for name, at in marks.items():
        ax.axvline(at / 1e6, color="0.6", linestyle=":")
        top = ax.get_ylim()[1] * 0.98
        ax.text(at / 1e6, top, f" {name}", rotation=90, va="top", fontsize=8)
    save_exhibit(
        "embedded/learning-curve",
        figure,
        [],
        caption="Loss of the one run behind all three policies; dotted lines: where each was taken "
        "or a course begins.",
        protocol="The project's own; one seed. Running mean over 40 batches.",
        folder=figures,
        data=curve,
    )
    return figure


def measure(policies: Mapping[str, Policy], scale: str) -> pd.DataFrame:
    """The skills of `SIZES`: all of instruct, reading of the base ones, what has a bar of others.

    At the scale smoke 12 items of `FEW`, else 500 of each benchmark and role.
    """
    count, names = (12, FEW) if scale == "smoke" else (500, skills.NAMES)
    barred = [name for name in names if name in skills.BARS or name == "ask"]
    reading = [name for name in barred if name.startswith("reading")]
    tables = []
    for size in SIZES:
        own = names if size == "instruct" else reading if size.startswith("base") else barred
        policy = policies[size]
        table = skills.report(policy.model, policy.tokenizer, count, own)
        tables.append(table.assign(policy=size))
    table = pd.concat(tables, ignore_index=True)
    table.loc[~table["policy"].str.startswith("instruct"), "bar"] = None
    return table


def skills_table(table: pd.DataFrame, figures: str) -> pd.DataFrame:
    """The whole benchmarks and roles of `measure`, saved."""
    whole = table[table["part"].isin(PARTS)]
    whole = whole.set_index(["policy", "benchmark", "part"]).round(3)
    save_exhibit(
        "embedded/skills",
        whole,
        [],
        caption="Held-out benchmarks and roles, greedy, careful prompts: share right with 95 % "
        "interval (Wilson's, or t where an item can be half right), share well-formed, bar. "
        "Baseline: guessing by the relation alone.",
        protocol="The project's own; supervised policies before any reinforcement learning, one "
        "training seed a size.",
        folder=figures,
    )
    return whole


def by_level(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Measured skills of policies in per cent: a line a skill, a column a level, then the other
    parts; answers also by how many are consistent."""
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for name, table in tables.items():
        for row in table.to_dict("records"):
            skill, _, level = row["part"].rpartition("level ")
            skill = f"{row['benchmark']}: {skill.strip() or 'right'}"
            column = level if level.isdigit() else row["part"]
            line = skill if level.isdigit() else row["benchmark"]
            lines.setdefault((name, line), {})[column] = 100 * row["value"]
            if line.startswith("answer"):
                consistent = line.replace("right", "consistent")
                lines.setdefault((name, consistent), {})[column] = 100 * row["parsed"]
    columns = [str(level) for level in range(1, HIGHEST + 1)]
    columns = [level for level in columns if any(level in line for line in lines.values())]
    shown = pd.DataFrame(lines).T.rename_axis(["policy", "skill"]).round(1)
    return shown[columns + [name for name in shown if name not in columns]]


def learner_table(policies: Mapping[str, Policy], scale: str, figures: str) -> pd.DataFrame:
    """What learners and searcher can do; saved."""
    count, tables = 12 if scale == "smoke" else 200, {}
    for name, policy in policies.items():
        engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
        if name == "searcher":
            tables[name] = search_skills.measure(engine, count)
        else:
            highest = LearnerRecipe(**RECIPES[name]).highest
            tables[name] = ladder_skills.measure(engine, highest, count)
    shown = by_level(tables)
    save_exhibit(
        "embedded/learner",
        shown,
        [],
        caption="What learners and searcher can do before any reinforcement learning, in per "
        "cent, by level.",
        protocol=f"Sampled at temperature 1, names and wordings held out, {count} items a level or "
        "skill. Consistent: each step once, as its note says, in any order. One training seed.",
        folder=figures,
    )
    return shown


def reasoner_table(policies: Mapping[str, Policy], scale: str, figures: str) -> pd.DataFrame:
    """What reasoners can do; saved."""
    count, tables = 12 if scale == "smoke" else 200, {}
    for name, policy in policies.items():
        engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
        tables[name] = reasoner_skills.measure(engine, count)
    shown = by_level(tables)
    save_exhibit(
        "embedded/reasoner",
        shown,
        [],
        caption="What reasoners can do before any reinforcement learning, in per cent, by level: "
        "answers of SPICE's suites; tasks from documents (challenge) and from nothing (alone), as "
        "the oracle judges them; Absolute Zero's tasks.",
        protocol=f"Sampled at temperature 1, names and wordings held out, {count} items a level or "
        "skill. Consistent: each step once, as its note says, in any order. One training seed.",
        folder=figures,
    )
    return shown


def misses(table: pd.DataFrame) -> pd.DataFrame:
    """Where instruct is below its bar, or writes fewer than 95 % well-formed outputs."""
    rows = table[(table["policy"] == "instruct") & table["part"].isin(["all", "balanced"])]
    missed = rows[(rows["value"] < rows["bar"]) | (rows["parsed"] < 0.95)]
    return missed[["benchmark", "part", "value", "bar", "parsed"]].reset_index(drop=True)
