"""SPIRAL's exhibits for which policies play, speak or answer again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from spnb import reference
from spnb.core.stats import bootstrap_interval
from spnb.core.types import Sampling, derive_seed
from spnb.evaluate import matches, patterns
from spnb.evaluate.items import play_suite
from spnb.games import exact, make_game
from spnb.games.base import messages
from spnb.games.players import fixed_player, make_player
from spnb.games.questions import questions
from spnb.report import curves, plots
from spnb.report.exhibits import ExhibitContent
from spnb.report.frame import KEYS, RESULTS, RUN, Frames, format_interval, read_yaml
from spnb.report.policies import load_engine, run_params
from spnb.report.tables import Table, beside_paper, forfeited, load_tables, printed_table
from spnb.train.plan import Plan
from spnb.train.runs import Run, read_run

WHEN = {
    "start": plots.Look("start", plots.PALETTE[7]),
    "end": plots.Look("end of self-play", plots.PALETTE[0]),
}
"""How figure 4 draws the policy before and after training."""
MOVES = {"kuhn_poker": ["bet"], "TicTacToe-v0": ["0", "3", "1", "4"]}
"""The moves before the decisions that table 7 shows."""
MANY = 500
"""Matches a game of random play against experts in table 5."""


def main_runs(frames: Frames) -> list[Run]:
    """The runs of `full`, or of the first variant of one's own."""
    return frames.only(["full" if "full" in frames.variants else frames.own[0]]).runs


def judge(plan: Plan) -> patterns.Judge:
    """Rules for the embedded policy; at the larger scales the starting policy, prompt in words."""
    if plan.scale in ("smoke", "cpu"):
        return patterns.label_by_rules
    params = plan.params(plan.variants[0])
    engine, chat = load_engine(params.policy, params)
    sampling = Sampling(1024, 0.0)
    return lambda texts: patterns.label_by_model(texts, {"policy": engine}, chat, sampling)


@cache
def _spoken(path: str, folder: Path) -> list[tuple[str, str]]:
    run = read_run(folder)
    params = run_params(run)
    engine, chat = load_engine(path, params)
    games = [make_game(name) for name in params.games]
    suite = questions(params.eval_questions, seed=derive_seed("transfer suite"))
    count = min(40, params.eval_matches)
    how = (chat, Sampling(params.max_new_tokens))
    return matches.spoken({"policy": engine}, *how, games, suite, count, run.seed)


def spoken(frames: Frames) -> pd.DataFrame:
    """What the policy says before and after training: columns when, seed, where, text."""
    rows = []
    for run in main_runs(frames):
        for when, path in (("start", run.params["policy"]), ("end", str(run.weights()))):
            rows += [(when, run.seed, *each) for each in _spoken(path, run.folder)]
    return pd.DataFrame(rows, columns=["when", "seed", "where", "text"])


def figure_4(plan: Plan, frames: Frames) -> ExhibitContent:
    """How often each pattern of reasoning appears before and after self-play, beside the paper's.

    Places and patterns that less than 1 % of the texts show are left out, but for the places that
    the paper has; the data have them all.
    """
    shares = patterns.pattern_shares(judge(plan), spoken(frames), ["when", "where", "seed"])
    rows = shares.assign(value=100 * shares["value"])
    means = rows.groupby(["when", "where", "pattern"])["value"].mean().reset_index()
    seen = means[means["value"] >= min(1, means["value"].max())]
    labels = read_yaml("spiral", "tables.yaml")
    shown = {*seen["where"], *labels["reasoning"]["places"]}
    rows = rows[rows["where"].isin(shown) & rows["pattern"].isin(seen["pattern"])]
    names = labels["arena"]["games"]
    places = list(rows["where"].unique())
    with plots.style():
        figure, axes = plots.panels(len(places), height=3.8)
        figure.suptitle("Patterns of reasoning before and after self-play")
        for ax, where in zip(axes, places, strict=True):
            part = rows[rows["where"] == where]
            paper = printed_shares(where, list(part["pattern"].unique()))
            plots.bars(ax, part, "pattern", "value", hue="when", order=WHEN, paper=paper)
            ax.set(title=names.get(where, [where])[0], xlabel="", ylabel="")
            ax.tick_params(axis="x", labelrotation=90)
        axes[0].set_ylabel("texts with the pattern (%)")
        plt.setp(axes, ylim=(0, max(ax.get_ylim()[1] for ax in axes)))
    return ExhibitContent(figure, main_runs(frames), shares)


def printed_shares(where: str, shown: Sequence[str]) -> dict[str, float]:
    """The paper's share (%) of each pattern in a place, where it has the place."""
    labels = read_yaml("spiral", "tables.yaml")["reasoning"]
    if where not in labels["places"]:
        return {}
    printed = reference.table("spiral", "spiral/figure-4")[labels["places"][where]]
    return {pattern: float(printed[labels["patterns"][pattern]]) for pattern in shown}


def table_2(plan: Plan, frames: Frames) -> ExhibitContent:
    """The first text that shows each pattern, by place."""
    label = judge(plan)
    texts = spoken(frames).query("when == 'end'")
    table = pd.DataFrame(index=pd.Index(list(patterns.PATTERNS), name="pattern"))
    for where, part in texts.groupby("where", sort=False):
        unique = part["text"].drop_duplicates().tolist()
        pairs = list(zip(unique, label(unique), strict=True))
        table[where] = [
            next((text for text, seen in pairs if pattern in (seen or ())), "none")
            for pattern in table.index
        ]
    return ExhibitContent(table, main_runs(frames))


def table_4(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """Specialists of one game against each other, on every game: each meets both others."""
    arena = read_yaml("spiral", "tables.yaml")["arena"]
    used = frames.only(list(arena["policies"]))
    if len(used.variants) < len(arena["policies"]):
        return None
    count = 4 if plan.scale == "smoke" else 100  # of each pair in each game
    parts = []
    for seed in sorted({run.seed for run in used.runs}):
        runs = {run.variant: run for run in used.runs if run.seed == seed}
        params = run_params(next(iter(runs.values())))
        loaded = {name: load_engine(run.weights(), params) for name, run in runs.items()}
        engines = {name: engine for name, (engine, _) in loaded.items()}
        _, chat = next(iter(loaded.values()))
        sampling = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
        for name in arena["games"]:
            how = (chat, sampling, list(engines), count, seed)
            pairs = matches.cross_play(engines, make_game(name), *how)
            parts.append(pairs.assign(seed=seed, game=name))
    rows, columns = (dict(arena[key].values()) for key in ("policies", "games"))
    names = {key: name for part in arena.values() for key, (name, _) in part.items()}
    cells = arena_cells(pd.concat(parts)).replace({"row": names, "column": names})
    beside = ({name: [label] for name, label in each.items()} for each in (rows, columns))
    return ExhibitContent(beside_paper(cells, printed_table("spiral/table-4"), *beside), used.runs)


def arena_cells(pairs: pd.DataFrame) -> pd.DataFrame:
    """Cells for `beside_paper` of `cross_play`'s pairs with a column seed: row, column, text, n.

    A dash where almost all matches end by an invalid answer of either side.
    """
    sides = [["game", "seed", "policy", "opponent"], ["game", "seed", "opponent", "policy"]]
    both = pairs.merge(pairs, left_on=sides[0], right_on=sides[1], suffixes=("", "_other"))
    keys = ["policy", "game"]
    scores = over_seeds(both.assign(value=100 * both["score"]), keys)
    forfeits = both.assign(value=100 * (both["invalid"] + both["invalid_other"]))
    ended = over_seeds(forfeits, keys)["value"]
    pairs_of = zip(ended, scores[["value", "low", "high"]].itertuples(index=False), strict=True)
    texts = [forfeited(percent) or format_interval(*number) for percent, number in pairs_of]
    cells = {"row": scores["policy"], "column": scores["game"], "text": texts, "n": scores["n"]}
    return pd.DataFrame(cells)


def table_5(plan: Plan, frames: Frames) -> ExhibitContent | None:
    """The table of measures, and random play against the experts."""
    table = load_tables("spiral")["spiral/table-5"]
    if not table.shows(frames):
        return None
    return table.content(frames, [random_play(table, 4 if plan.scale == "smoke" else MANY)])


def over_seeds(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean and bootstrap interval over seeds by group: columns `by`, value, low, high, n (seeds).

    Rows of one seed in a group (several games, say) are averaged first.
    """
    means = frame.groupby([*by, "seed"], sort=False)["value"].mean().groupby(list(by), sort=False)
    rows = [(*keys, *bootstrap_interval([{"": [v]} for v in values])) for keys, values in means]
    return pd.DataFrame(rows, columns=[*by, "value", "low", "high", "n"])


def random_play(table: Table, count: int) -> pd.DataFrame:
    """Cells of random play in a table's columns against experts, `count` matches a game."""
    columns = [each for each in table.columns if each.measure.opponent == ["expert"]]
    games = dict.fromkeys(name for each in columns for name in each.measure.suite)
    scores = pd.DataFrame()
    for name in games:
        game = make_game(name)
        players = (make_player("random"), fixed_player("expert", game))
        suite = matches.match_suite(game, *players, count, derive_seed("random policy"), "expert")
        scores[name] = [100 * one["score"] for one in play_suite(suite, {})[0]]
    cells = []
    for column in columns:
        means = scores[column.measure.suite].mean(axis=1)
        interval = bootstrap_interval([{"": means / count}])
        cells.append(("random play", column.name, column.shown(interval), 0))
    return pd.DataFrame(cells, columns=["row", "column", "text", "n"])


def table_7(plan: Plan, frames: Frames) -> ExhibitContent:
    """A question and a decision of each game, answered greedily at checkpoints of the first run."""
    run = main_runs(frames)[0]
    params = run_params(run)
    problems = {"question": questions(1, seed=derive_seed("transfer suite"))[0].messages}
    for name in params.games:
        match = make_game(name).match(seed=3)
        for action in MOVES.get(name, []):
            match.play(action)
        problems[name] = messages(match)
    table = pd.DataFrame(index=pd.Index(list(problems), name="from"))
    table["problem"] = [prompt[-1]["content"] for prompt in problems.values()]
    policies: dict[str, str | Path] = {"start": params.policy}
    policies |= {f"step {step}": path for step, path in run.kept().items()}
    sampling = Sampling(params.max_new_tokens, 0.0)
    for label, path in (policies | {f"step {params.steps}": run.weights()}).items():
        engine, chat = load_engine(path, params)
        requests = [chat.request(prompt, sampling, 0) for prompt in problems.values()]
        table[label] = [reply.text for reply in engine.generate(requests)]
    return ExhibitContent(table, [run])


def with_averages(frames: Frames) -> Frames:
    """The same runs, with the exploitability of their average policy among the results."""
    rows = []
    for run in frames.with_own(load_tables("spiral")["spiral/poker-equilibrium"].variants).runs:
        if policies := poker_policies(run):
            row = {key: run.params[key] for key in RUN} | dict.fromkeys(KEYS, "")
            row |= {"suite": "kuhn_poker", "step": max(policies)}
            value = average_exploitability(policies)
            rows.append(row | {"metric": "average exploitability", "value": value})
    averages = pd.DataFrame(rows).reindex(columns=RESULTS)
    return replace(frames, results=curves.stacked([frames.results, averages]))


def average_exploitability(policies: Mapping[int, exact.KuhnPolicy]) -> float:
    """Exploitability of the average of a run's policies over the second half of its training."""
    half = max(policies) / 2
    later = [policy for step, policy in policies.items() if step >= half]
    return exact.kuhn_exploitability(exact.kuhn_average(later))


def poker_policies(run: Run) -> dict[int, exact.KuhnPolicy]:
    """The policy at Kuhn poker's 12 decisions at each evaluated step, read from its answers."""
    answers = {key: [*match.legal_actions(), None] for key, match in exact.kuhn_states().items()}
    counts: dict[int, np.ndarray] = {}
    for one in run.rows("items"):
        if (one["suite"], one["opponent"]) == ("kuhn_poker", ""):
            table = counts.setdefault(one["step"], np.zeros((len(answers), 3), dtype=int))
            place = exact.KUHN_KEYS.index(one["item"])
            table[place, answers[one["item"]].index(one["action"])] += 1
    return {step: matches.kuhn_table(table) for step, table in counts.items()}


MAKERS = {
    "spiral/figure-4": figure_4,
    "spiral/table-2": table_2,
    "spiral/table-4": table_4,
    "spiral/table-5": table_5,
    "spiral/table-7": table_7,
}
