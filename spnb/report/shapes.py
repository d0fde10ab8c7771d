"""What a question pays its proposer, from the share of right answers: exact, without simulation.

A solver that is right with probability p gives G answers; a reward R sees the share c / G of right
ones. c is binomial, so what a question is paid is a finite sum: its mean is R's Bernstein
polynomial of degree G. The exhibits shapes/* and SPICE's figure 7.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import comb

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spnb.core import rewards
from spnb.report import plots
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import read_yaml

Reward = Callable[[np.ndarray], np.ndarray]
REWARDS: dict[str, Reward] = {
    "SPELL": rewards.gaussian,
    "SPELL, sigma 1/12": partial(rewards.gaussian, sigma=1 / 12),
    "SPELL, sigma 1/4": partial(rewards.gaussian, sigma=1 / 4),
    "SPICE": rewards.variance,
    "R-Zero, SCOPE": rewards.r_zero,
    "threshold": rewards.threshold,
    "Absolute Zero": rewards.absolute_zero,
    "SSP": rewards.one_minus,
}
"""By the name that figures give them. SCOPE's tent with tau = 1/2 is R-Zero's reward."""
ANSWERS = (4, 8, 16)
GRID = np.linspace(0, 1, 1001)
"""True p of a solver, evenly from 0 to 1."""
SPICE_ABLATION = ("threshold", "Absolute Zero", "R-Zero, SCOPE", "SPICE")
"""The rewards of SPICE's figure 7, in its order."""


def shares(answers: int) -> np.ndarray:
    """The shares of right answers that can be seen: 0, 1/G, ..., 1."""
    return np.arange(answers + 1) / answers


def chances(p: Sequence[float] | np.ndarray, answers: int) -> np.ndarray:
    """The chance of each share at each true p: P x (G + 1), rows add up to 1."""
    right = np.arange(answers + 1)
    ways = np.array([comb(answers, count) for count in right])
    true = np.asarray(p, dtype=float)[:, None]
    return ways * true**right * (1 - true) ** (answers - right)


def pay(reward: Reward, p: Sequence[float] | np.ndarray, answers: int) -> pd.DataFrame:
    """Mean and standard deviation of what a question of each true p is paid; index p."""
    paid = reward(shares(answers))
    chance = chances(p, answers)
    mean = chance @ paid
    variance = chance @ paid**2 - mean**2
    spread = np.sqrt(np.maximum(variance, 0))
    return pd.DataFrame({"mean": mean, "std": spread}, index=pd.Index(p, name="p"))


def distribution(reward: Reward, p: float, answers: int) -> pd.Series:
    """The chance of each amount that a question of true p may be paid, the least first."""
    paid = pd.Series(reward(shares(answers)), name="paid").round(12)
    return pd.Series(chances([p], answers)[0], name="chance").groupby(paid).sum()


def target(reward: Reward, answers: int) -> tuple[float, float, float]:
    """The true p that is paid most on average, and the ends of what is paid half of that or more.

    On a grid of thousandths.
    """
    mean = pay(reward, GRID, answers)["mean"]
    enough = mean.index[mean >= mean.max() / 2]
    return float(mean.idxmax()), float(enough.min()), float(enough.max())


def signal(reward: Reward, answers: int) -> float:
    """The share of the pay's variance that is due to the question, true p being uniform.

    The rest is chance: other answers to the same question would have been paid otherwise.
    """
    table = pay(reward, GRID, answers)
    between = table["mean"].var(ddof=0)
    return float(between / (between + (table["std"] ** 2).mean()))


def advantages(
    reward: Reward, p: Sequence[float] | np.ndarray, answers: int, divide: bool
) -> pd.Series:
    """The mean advantage of questions of these true p, equally many of each in a large batch.

    Pay minus the batch's mean, and divided by the batch's standard deviation where `divide`; both
    are over questions and chance.
    """
    table = pay(reward, p, answers)
    centred = table["mean"] - table["mean"].mean()
    variance = (table["std"] ** 2).mean() + table["mean"].var(ddof=0)
    return centred / np.sqrt(variance) if divide else centred


def paid_more(reward: Reward, p: float, other: float, answers: int) -> float:
    """The chance that a question of true p is paid more than one of another; ties count half."""
    paid = reward(shares(answers)).round(12)
    first, second = chances([p, other], answers)
    ahead = 0.5 + 0.5 * np.sign(paid[:, None] - paid)
    return float(first @ ahead @ second)


def wrong_share(reward: Reward, p: float, answers: int, share: float = 0.2) -> float:
    """The part of all pay that goes to questions with a wrong reference answer.

    Args:
        p: how often the solver agrees with a wrong reference.
        share: of the questions with a wrong reference; the others' true p are uniform.
    """
    wrong = share * pay(reward, [p], answers)["mean"].iloc[0]
    right = (1 - share) * pay(reward, GRID, answers)["mean"].mean()
    return float(wrong / (wrong + right))


def paid_table() -> pd.DataFrame:
    """What each reward pays for c right answers of 16; half and a quarter of the rows: of 8, 4."""
    count = np.arange(17)
    table: dict[str, object] = {"of 16": count}
    for answers in (8, 4):
        step = 16 // answers
        table[f"of {answers}"] = [f"{c // step}" if c % step == 0 else "" for c in count]
    return pd.DataFrame(table | {name: each(count / 16).round(4) for name, each in REWARDS.items()})


def target_table() -> pd.DataFrame:
    """Each reward's target by number of answers, and how much of the pay is signal."""
    lines = []
    for name, reward in REWARDS.items():
        line: dict[str, str] = {"reward": name}
        for answers in ANSWERS:
            best, low, high = target(reward, answers)
            line[f"best p, {answers} answers"] = f"{best:.2f}"
            line[f"half or more, {answers}"] = f"{low:.2f} to {high:.2f}"
            line[f"signal, {answers}"] = f"{signal(reward, answers):.2f}"
        lines.append(line)
    return pd.DataFrame(lines).set_index("reward")


def panels(
    exhibit_id: str, titles: Sequence[str], draw: Callable[[Axes, str], pd.DataFrame]
) -> tuple[Figure, pd.DataFrame]:
    """A figure with its texts; `draw` draws a panel, by its title, and gives its numbers."""
    texts = read_yaml("shapes", "exhibits.yaml")[exhibit_id]
    with plots.style():
        figure = plots.new_figure(texts["height"], texts["title"])
        axes = plots.multiples(figure, titles, sharey=True)
        parts = [draw(ax, title) for title, ax in axes.items()]
        plots.legend_below(figure, texts["columns"], note=texts["note"])
    return figure, pd.concat(parts, ignore_index=True)


def draw_compared(ax: Axes, title: str) -> pd.DataFrame:
    """SPICE's figure 7, the four rewards that it compares, with an open circle where it draws
    another value: columns reward (that line is "Absolute Zero, as drawn"), p, paid."""
    p = shares(8)
    inside = GRID[1:-1]
    looks = plots.free_looks(list(REWARDS))
    parts = []
    for place, name in enumerate(SPICE_ABLATION):
        colour = looks[name].colour
        ax.plot(inside, REWARDS[name](inside), color=colour, label=name, zorder=3)
        size = 9 - 2 * place  # equal values are rings around each other
        dots = {"linestyle": "", "markersize": size, "color": colour, "clip_on": False, "zorder": 4}
        ax.plot(p, REWARDS[name](p), "o", **dots)
        parts.append(pd.DataFrame({"reward": name, "p": p, "paid": REWARDS[name](p)}))
    drawn = rewards.one_minus(p)
    dots |= {"color": looks["Absolute Zero"].colour, "markersize": 7, "zorder": 5}
    open_ = {"markerfacecolor": "white", "label": "1 - p at p = 0, as drawn in the paper"}
    ax.plot(0, drawn[0], "o", **dots, **open_)
    ax.set(xlabel="pass rate p", ylabel="reward", ylim=(0, 1.02), xlim=(0, 1))
    parts.append(pd.DataFrame({"reward": "Absolute Zero, as drawn", "p": p, "paid": drawn}))
    return pd.concat(parts)


def draw_noise(ax: Axes, name: str) -> pd.DataFrame:
    """A reward's shape, and what a question of true p is paid on average: columns reward, answers,
    p, mean, std."""
    ax.plot(GRID[1:-1], REWARDS[name](GRID[1:-1]), color="0.6", lw=1.2, label="shape")
    parts = {}
    for answers, colour, line in zip(ANSWERS, plots.PALETTE, plots.LINES, strict=False):
        table = pay(REWARDS[name], GRID[::10], answers)
        look = {"color": colour, "linestyle": line, "lw": 1.5}
        ax.plot(table["mean"], label=f"mean, {answers} answers", **look)
        if answers == 8:
            ends = [(table["mean"] + sign * table["std"]).clip(0, 1) for sign in (-1, 1)]
            ax.fill_between(table.index, *ends, color=colour, alpha=0.15, lw=0)
        parts[name, answers] = table
    side = "paid" if ax.get_subplotspec().is_first_col() else ""
    ax.set(ylim=(0, 1.04), xlabel=ax.get_xlabel() and "true p", ylabel=side)
    return pd.concat(parts, names=["reward", "answers"]).reset_index()


MAKERS: dict[str, Callable[[], tuple[Figure, pd.DataFrame] | pd.DataFrame]] = {
    "spice/figure-7": partial(panels, "spice/figure-7", [""], draw_compared),
    "shapes/noise": partial(panels, "shapes/noise", list(REWARDS), draw_noise),
    "shapes/paid": paid_table,
    "shapes/targets": target_table,
}


def make(exhibit_id: str) -> ExhibitContent:
    """An exhibit that needs no run, with its caption and protocol."""
    texts = read_yaml("shapes", "exhibits.yaml")[exhibit_id]
    made = MAKERS[exhibit_id]()
    item, data = made if isinstance(made, tuple) else (made, None)
    return ExhibitContent(item, [], data, texts["caption"], texts["protocol"])
