"""SPIRAL's exhibits that are more than a table of measures: policies play, speak and answer again."""

from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from spnb import reference
from spnb.core.types import Chat, Engine, Sampling, derive_seed
from spnb.evaluate import matches, patterns
from spnb.evaluate.items import play_suite
from spnb.games import make_game
from spnb.games.base import match_at, messages
from spnb.games.players import fixed_player, make_player
from spnb.games.questions import questions
from spnb.report import plots
from spnb.report.frame import Frames, Measure, over_seeds
from spnb.report.made import Made
from spnb.report.tables import beside_paper, load_tables, read_yaml
from spnb.train.config import RunParams
from spnb.train.plan import Plan
from spnb.train.runs import Run, read_run

SPECIALISTS = {
    "TicTacToe Specialist": "only-tictactoe",
    "Poker Specialist": "only-kuhn",
    "Negotiation Specialist": "only-negotiation",
}
ARENA = {
    "TicTacToe": "TicTacToe-v0",
    "Kuhn Poker": "kuhn_poker",
    "Simple Negotiation": "SimpleNegotiation-v0",
    "Snake": "Snake-v0",
    "Pig Dice": "PigDice-v0-50",
    "Truth and Deception": "TruthAndDeception-v0",
}
MOVES = {"kuhn_poker": ["bet"], "TicTacToe-v0": ["0", "3", "1", "4"]}
"""The moves before the decisions that table 7 shows."""


def load_engine(path: str | Path, params: RunParams) -> tuple[Engine, Chat]:
    """A policy from a folder or by name, with the chat that its tokenizer needs."""
    from spnb.train.engines.torch import TorchEngine
    from spnb.train.policies import load_policy

    plain = {"backend": "transformers", "engine": "torch", "load_in_4bit": False}
    policy = load_policy(str(path), params.model_copy(update=plain))
    return TorchEngine(policy.model, policy.tokenizer), Chat(policy.tokenizer)


def run_params(run: Run) -> RunParams:
    """A run's parameters."""
    from spnb.train.run import run_params as read

    return read(run)


def quantities(plan: Plan) -> dict[str, Measure]:
    """What a run of self-play is compared by, for `spnb.report.frame.compare`."""
    score = {"win": 100, "draw": 50}
    games = plan.params(plan.variants[0]).games
    measures = {
        f"{name}: score vs random in %": Measure(suite=name, opponent="random", weights=score)
        for name in games
    }
    for name in games:
        forfeits = Measure(suite=name, opponent="random", weights={"invalid": 100})
        measures[f"{name}: forfeits in %"] = forfeits
    poker = Measure(suite="kuhn_poker", weights={"exploitability": 1})
    measures["poker: exploitability, chips a hand"] = poker
    optimal = Measure(suite="TicTacToe-v0", weights={"optimal": 100})
    measures["tic-tac-toe: optimal moves in %"] = optimal
    tokens = Measure(suite=games, opponent="random", weights={"tokens": 1})
    measures["tokens per turn"] = tokens
    right = Measure(suite="transfer", weights={"accuracy": 100})
    return measures | {"questions right in %": right}


def main_runs(frames: Frames) -> list[Run]:
    """The runs of `full`, or of the first variant there is."""
    main = "full" if "full" in frames.variants else frames.variants[0]
    return [run for run in frames.runs if run.variant == main]


def judge(plan: Plan) -> patterns.Judge:
    """Rules for the embedded policy; at the larger scales the starting policy, asked in words."""
    if plan.scale in ("smoke", "cpu"):
        return patterns.label_by_rules
    params = plan.params(plan.variants[0])
    engine, chat = load_engine(params.policy, params)
    sampling = Sampling(1024, 0.0)
    return lambda texts: patterns.label_by_model(texts, {"policy": engine}, chat, sampling)


@cache
def _spoken(path: str, folder: Path) -> list[tuple[str, str]]:
    """What a policy says in matches against itself and to the questions of a run's suite."""
    run = read_run(folder)
    params = run_params(run)
    engine, chat = load_engine(path, params)
    games = [make_game(name) for name in params.games]
    suite = questions(params.eval_questions, seed=derive_seed("transfer suite"))
    sampling = Sampling(params.max_new_tokens)
    count = min(40, params.eval_matches)
    return matches.spoken({"policy": engine}, chat, sampling, games, suite, count, run.seed)


def texts(frames: Frames) -> pd.DataFrame:
    """What the policy says before and after training: columns when, seed, where, text."""
    rows = []
    for run in main_runs(frames):
        for when, path in (("start", run.params["policy"]), ("end", str(run.model))):
            rows += [(when, run.seed, *each) for each in _spoken(path, run.folder)]
    return pd.DataFrame(rows, columns=["when", "seed", "where", "text"])


def figure_4(plan: Plan, frames: Frames) -> Made:
    """How often each pattern of reasoning appears before and after self-play."""
    spoken = texts(frames)
    shares = patterns.pattern_shares(judge(plan), spoken, ["when", "where", "seed"])
    places = list(dict.fromkeys(spoken["where"]))
    figure, axes = plots.panels(len(places), height=3.8)
    for ax, where in zip(axes, places, strict=True):
        part = shares[shares["where"] == where].assign(value=lambda rows: 100 * rows["value"])
        plots.bars(ax, part, "pattern", "value", hue="when", order=["start", "end"])
        ax.set(title=where.split("-v")[0], xlabel="", ylabel="")
        ax.tick_params(axis="x", labelrotation=90)
    axes[0].set_ylabel("texts with the pattern (%)")
    plt.setp(axes, ylim=(0, max(ax.get_ylim()[1] for ax in axes)))
    caption = "Share of texts that show each reasoning pattern, before and after self-play."
    protocol = (
        "Paper: GPT-4.1 reads 290 poker games and 46,792 solutions of mathematics, three "
        "checkpoints. Here: rules on the remarks of the embedded policy, self-play turns and "
        "generated questions; t-intervals over seeds."
    )
    return Made(figure, main_runs(frames), caption, protocol, shares)


def table_2(plan: Plan, frames: Frames) -> Made:
    """The first text that shows each pattern, by place."""
    label, spoken = judge(plan), texts(frames)
    late = spoken[spoken["when"] == "end"]
    rows: dict[str, dict[str, str]] = {pattern: {} for pattern in patterns.PATTERNS}
    for where, part in late.groupby("where", sort=False):
        said = part["text"].drop_duplicates().tolist()
        labels = label(said)
        for pattern, row in rows.items():
            pairs = zip(said, labels, strict=True)
            row[where] = next((text for text, seen in pairs if pattern in (seen or ())), "none")
    table = pd.DataFrame(rows.values(), index=pd.Index(rows, name="pattern"))
    caption = "The first text of the trained policy that shows each pattern, by place."
    protocol = (
        "Paper: excerpts of poker games and mathematics. Here: the embedded policy's whole answers."
    )
    return Made(table, main_runs(frames), caption, protocol)


def table_4(plan: Plan, frames: Frames) -> Made | None:
    """Specialists of one game against each other, on every game: each meets both others."""
    mine = frames.only(list(SPECIALISTS.values()))
    if len(mine.variants) < len(SPECIALISTS):
        return None
    count = 4 if plan.scale == "smoke" else 100  # of each pair in each game
    met = []
    for seed in sorted({run.seed for run in mine.runs}):
        runs = {run.variant: run for run in mine.runs if run.seed == seed}
        params = run_params(runs["only-kuhn"])
        loaded = {k: load_engine(runs[name].model, params) for k, name in SPECIALISTS.items()}
        engines = {label: engine for label, (engine, _) in loaded.items()}
        chat = loaded["Poker Specialist"][1]
        sampling = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
        for column, name in ARENA.items():
            who = (chat, sampling, list(SPECIALISTS), count, seed)
            pairs = matches.cross_play(engines, make_game(name), *who)
            for label, key in ((column, "score"), (f"forfeits (%): {column}", "invalid")):
                value = 100 * pairs[key]
                cells = {"row": pairs["policy"], "column": label, "seed": seed, "value": value}
                met.append(pd.DataFrame(cells))
    paper = reference.load("spiral").query("exhibit == 'spiral/table-4'")
    table = beside_paper(paper, over_seeds(pd.concat(met), ["row", "column"]))
    caption = (
        "Specialists of one game head to head: score (%; draws count half) against the others."
    )
    protocol = (
        "Paper: opponent not named, presumably each other. Here: those of a seed; intervals over "
        "seeds."
    )
    return Made(table, mine.runs, caption, protocol)


def table_5(plan: Plan, frames: Frames) -> Made | None:
    """The table of measures, and random play against the experts: 1,000 matches."""
    table = load_tables("spiral")["spiral/table-5"]
    if table.missing(frames.variants):
        return None
    cells = []
    for column, name in zip(list(table.columns)[:3], list(ARENA.values())[:3], strict=True):
        game = make_game(name)
        players = make_player("random"), fixed_player("expert", game)
        suite = matches.match_suite(game, *players, 1000, derive_seed("random policy"), "expert")
        scores = pd.DataFrame(play_suite(suite, {})[0])["score"]
        row = over_seeds(pd.DataFrame({"seed": range(len(scores)), "value": 100 * scores}), [])
        cells.append(row.assign(row="Random Policy", column=column, n=1))
    mine = frames.only(table.variants)
    return Made(table.fill(mine, cells), mine.runs, table.caption, table.protocol)


def table_6(plan: Plan, frames: Frames) -> Made:
    """The paper's hyper-parameters beside those of the plan's first variant."""
    params = plan.params(plan.variants[0]).model_dump()
    printed = reference.table("spiral", "spiral/table-6")["Value"]
    here = {}
    for label, key in read_yaml("spiral", "tables.yaml")["settings"].items():
        value: Any = params
        for part in key.removeprefix("=").split("."):
            value = key[1:] if key.startswith("=") else value[part]
        here[label] = f"{value}"
    columns = {"paper": printed.map("{:g}".format), "here": pd.Series(here)}
    table = pd.DataFrame(columns).loc[printed.index].rename_axis("setting")
    caption = "Hyper-parameters of the paper and of this scale."
    protocol = (
        "Paper: table 6; two lost values from its released scripts. Here: the parameters of the "
        "first variant."
    )
    return Made(table, [], caption, protocol)


def table_7(plan: Plan, frames: Frames) -> Made:
    """A question and a decision of each game, answered greedily at checkpoints of the first run."""
    run = main_runs(frames)[0]
    params = run_params(run)
    problems = {"question": questions(1, seed=derive_seed("transfer suite"))[0].messages}
    for name in params.games:
        problems[name] = messages(match_at(make_game(name), MOVES.get(name, []), seed=3))
    ends = {name: asked[-1]["content"][-160:] for name, asked in problems.items()}
    policies: dict[str, str | Path] = {"start": params.policy}
    kept = sorted(run.folder.glob("kept/step-*"), key=_step)
    policies |= {f"step {_step(path)}": path for path in kept if _step(path) < params.steps}
    policies[f"step {params.steps}"] = run.model
    answers: dict[str, dict[str, str]] = {"problem (its end)": ends}
    for label, path in policies.items():
        engine, chat = load_engine(path, params)
        sampling = Sampling(params.max_new_tokens, 0.0)
        requests = [chat.request(each, sampling, 0) for each in problems.values()]
        replies = [done.text for done in engine.generate(requests)]
        answers[label] = dict(zip(problems, replies, strict=True))
    table = pd.DataFrame(answers).rename_axis("from")
    caption = "The same problems answered at three checkpoints of one run."
    protocol = (
        "Paper: a problem of Minerva Math at steps 16, 128, 400. Here: greedy answers to four "
        "problems."
    )
    return Made(table, [run], caption, protocol)


def _step(path: Path) -> int:
    return int(path.name.rsplit("-", 1)[1])


MAKERS = {
    "spiral/figure-4": figure_4,
    "spiral/table-2": table_2,
    "spiral/table-4": table_4,
    "spiral/table-5": table_5,
    "spiral/table-6": table_6,
    "spiral/table-7": table_7,
}
