"""What the notebook of the shipped policies shows: learning curves and skills.

    python -m spnb.lab.pretrain.exhibits

makes the tables of the policies that the notebook does not measure: `embedded/readers`,
`embedded/games`.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from spnb.core.types import Chat
from spnb.lab.ladder import HIGHEST
from spnb.lab.pretrain import skill_suites, skills
from spnb.lab.pretrain.build import CURVE_FILE
from spnb.report import plots
from spnb.report.exhibits import save_exhibit
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import Policy, load_policy, policy_path

READERS = ("reader", "reader-even", "reader-large", "learner-hard", "player")
PLAYERS = ("games", "games-rival", "player")
"""Those of `embedded/readers`, and of `embedded/games`."""
COUNTED = re.compile(r"(?:(.+) )?(?:level (\d+)|after (\d+) searches)")
"""A part of a skill: what is measured, and the level or the number of searches."""


def curve_of(folder: Path, title: str) -> tuple[Figure, pd.DataFrame]:
    """A policy's loss over steps or millions of tokens, means over some steps, and the numbers."""
    curve = pd.read_csv(folder / CURVE_FILE)
    counted = curve.columns[0]
    tokens = counted == "tokens"
    figure, (ax,) = plots.panels(1, height=3.0)
    ax.plot(curve[counted] / (1e6 if tokens else 1), curve["loss"], color=plots.PALETTE[0])
    label = "tokens (millions)" if tokens else "training step"
    ax.set(xlabel=label, ylabel="loss (nats per token)", title=title, ylim=(0, None))
    plt.close(figure)
    return figure, curve


def by_level(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Measured skills of policies in per cent: a line a skill, a column a level or number of
    searches, then the other parts; answers also by how many are consistent."""
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for name, table in tables.items():
        for row in table.to_dict("records"):
            line, column = row["benchmark"], row["part"]
            if counted := COUNTED.fullmatch(column):
                skill, level, searches = counted.groups()
                column = level or searches
                line += f": {skill or 'right'}" + " by searches" * (level is None)
            lines.setdefault((name, line), {})[column] = 100 * row["value"]
            if line.startswith("answer"):
                consistent = line.replace("right", "consistent")
                lines.setdefault((name, consistent), {})[column] = 100 * row["parsed"]
    columns = [str(level) for level in range(HIGHEST + 1)]
    columns = [level for level in columns if any(level in line for line in lines.values())]
    shown = pd.DataFrame(lines).T.rename_axis(["policy", "skill"]).round(1)
    return shown[columns + [name for name in shown if name not in columns]]


def parted(table: pd.DataFrame) -> list[pd.DataFrame]:
    """Two tables of one by level: the levels, and the other parts; neither has an empty line."""
    levels = [name for name in table if name.isdigit()]
    halves = table[levels], table[sorted(set(table) - set(levels))]
    return [half.dropna(how="all") for half in halves]


def games_table(policies: Mapping[str, Policy], scale: str, figures: str) -> pd.DataFrame:
    """How policies play: legal moves, true remarks, skill, 200 items behind each number (8 at smoke
    scale); saved. Columns policy and those of `skills.measure_games`."""
    count = 8 if scale == "smoke" else 200
    tables = {}
    for name, policy in policies.items():
        suites = skills.game_skills(Chat(policy.tokenizer), count)
        tables[name] = skills.measure_games(policy.engine(), suites)
    shown = pd.concat(tables, names=["policy"]).reset_index("policy").reset_index(drop=True)
    save_exhibit(
        "embedded/games",
        shown.round(4),
        [],
        caption="How the policies that play begin, before any reinforcement learning: shares of "
        "legal moves and true remarks, and skill beside that of random play; 95 % intervals.",
        protocol=f"Sampled at temperature 1; n: the answers, matches or questions behind a row, "
        f"{count} of each, or all positions of tic-tac-toe. One training seed.",
        folder=figures,
        policies=[source_of(name, policy) for name, policy in policies.items()],
    )
    return shown


def skills_table(
    exhibit: str, what: str, policies: Mapping[str, Policy], scale: str, figures: str
) -> pd.DataFrame:
    """The skills of policies, 200 items behind each number (2 at smoke scale); saved."""
    count = 2 if scale == "smoke" else 200
    tables = {}
    for name, policy in policies.items():
        engine = TorchEngine(policy.model, policy.tokenizer, max_batch=256)
        suites = skills.skills_of(name, Chat(policy.tokenizer), count)
        tables[name] = skill_suites.measure(engine, suites)
    shown = by_level(tables)
    save_exhibit(
        exhibit,
        shown,
        [],
        caption=f"What {what} before any reinforcement learning, in per cent, by level.",
        protocol="Sampled at temperature 1, names and wordings held out (of checks and gates the "
        f"wording is a training one, which questioners use), at most {count} items a level or "
        "skill. Consistent: each step once, as its note says, in any order. One training seed.",
        folder=figures,
        policies=[source_of(name, policy) for name, policy in policies.items()],
    )
    return shown


READERS_CAN = "readers, the learner that asks for too much and the player can do"
SEEKERS_CAN = "SSP's start policies can do (checks of towns: hacked questions that would pass)"
REPORTERS_CAN = "SCOPE's start policies can do (reports: points told, sections in any order)"
learner_table = partial(skills_table, "embedded/learner", "learners, searcher and reasoners can do")
reader_table = partial(skills_table, "embedded/readers", READERS_CAN)
seeker_table = partial(skills_table, "ssp/start", SEEKERS_CAN)
reporter_table = partial(skills_table, "scope/start", REPORTERS_CAN)
"""Each with the arguments policies, scale and figures."""


def source_of(name: str, policy: Policy) -> str:
    """Where a policy was loaded from: "embedded/<name>" if it is the shipped one of that name."""
    shipped = f"embedded/{name}"
    loaded = policy.model.name_or_path
    return shipped if loaded == policy_path(shipped) else loaded


def main() -> None:
    """Measures and saves both tables: some twenty minutes of one core."""
    for names, table in ((READERS, reader_table), (PLAYERS, games_table)):
        table({name: load_policy(f"embedded/{name}") for name in names}, "cpu", "figures")


if __name__ == "__main__":
    main()
