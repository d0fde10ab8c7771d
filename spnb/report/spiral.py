"""SPIRAL's exhibits for which policies play, speak or answer again."""

from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from spnb import reference
from spnb.core.types import Chat, Engine, Sampling, derive_seed
from spnb.evaluate import matches, patterns
from spnb.evaluate.items import play_suite
from spnb.games import make_game
from spnb.games.base import messages
from spnb.games.players import fixed_player, make_player
from spnb.games.questions import questions
from spnb.report import plots
from spnb.report.exhibits import Made
from spnb.report.frame import Frames, over_seeds
from spnb.report.tables import beside_paper, load_tables, read_yaml
from spnb.train.config import RunParams
from spnb.train.plan import Plan
from spnb.train.runs import Run, read_run

SPECIALISTS = {
    "TicTacToe Specialist": "only-tictactoe",
    "Poker Specialist": "only-kuhn",
    "Negotiation Specialist": "only-negotiation",
}
MOVES = {"kuhn_poker": ["bet"], "TicTacToe-v0": ["0", "3", "1", "4"]}
"""The moves before the decisions that table 7 shows."""


def load_engine(path: str | Path, params: RunParams) -> tuple[Engine, Chat]:
    """A policy from a folder or by name, with the chat that its tokenizer needs."""
    from spnb.train.engines.torch import TorchEngine
    from spnb.train.policies import load_policy

    plain = {"backend": "transformers", "engine": "torch", "load_in_4bit": False}
    policy = load_policy(str(path), params.model_copy(update=plain), trained=False)
    return TorchEngine(policy.model, policy.tokenizer), Chat(policy.tokenizer)


def run_params(run: Run) -> RunParams:
    """A run's parameters; its module needs torch, which this one does not import."""
    from spnb.train import run as trained

    return trained.run_params(run)


def main_runs(frames: Frames) -> list[Run]:
    """The runs of `full`, or of the first variant there is."""
    return frames.only(["full" if "full" in frames.variants else frames.variants[0]]).runs


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
        for when, path in (("start", run.params["policy"]), ("end", str(run.model))):
            rows += [(when, run.seed, *each) for each in _spoken(path, run.folder)]
    return pd.DataFrame(rows, columns=["when", "seed", "where", "text"])


def figure_4(plan: Plan, frames: Frames) -> Made:
    """How often each pattern of reasoning appears before and after self-play."""
    texts = spoken(frames)
    shares = patterns.pattern_shares(judge(plan), texts, ["when", "where", "seed"])
    places = list(dict.fromkeys(texts["where"]))
    figure, axes = plots.panels(len(places), height=3.8)
    for ax, where in zip(axes, places, strict=True):
        part = shares[shares["where"] == where].assign(value=lambda rows: 100 * rows["value"])
        plots.bars(ax, part, "pattern", "value", hue="when", order=["start", "end"])
        ax.set(title=where.split("-v")[0], xlabel="", ylabel="")
        ax.tick_params(axis="x", labelrotation=90)
    axes[0].set_ylabel("texts with the pattern (%)")
    plt.setp(axes, ylim=(0, max(ax.get_ylim()[1] for ax in axes)))
    return Made(figure, main_runs(frames), shares)


def table_2(plan: Plan, frames: Frames) -> Made:
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
    return Made(table, main_runs(frames))


def table_4(plan: Plan, frames: Frames) -> Made | None:
    """Specialists of one game against each other, on every game: each meets both others."""
    used = frames.only(list(SPECIALISTS.values()))
    if len(used.variants) < len(SPECIALISTS):
        return None
    count = 4 if plan.scale == "smoke" else 100  # of each pair in each game
    cells = []
    for seed in sorted({run.seed for run in used.runs}):
        runs = {run.variant: run for run in used.runs if run.seed == seed}
        params = run_params(runs["only-kuhn"])
        loaded = {k: load_engine(runs[name].model, params) for k, name in SPECIALISTS.items()}
        engines = {label: engine for label, (engine, _) in loaded.items()}
        sampling = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
        how = (loaded["Poker Specialist"][1], sampling, list(SPECIALISTS), count, seed)
        for column, name in read_yaml("spiral", "tables.yaml")["arena"].items():
            pairs = matches.cross_play(engines, make_game(name), *how)
            rows = pairs.rename(columns={"policy": "row"}).assign(seed=seed)
            won = rows.assign(column=column, value=100 * pairs["score"])
            lost = rows.assign(column=f"forfeits (%): {column}", value=100 * pairs["invalid"])
            cells += [won, lost]
    paper = reference.load("spiral").query("exhibit == 'spiral/table-4'")
    return Made(beside_paper(paper, over_seeds(pd.concat(cells), ["row", "column"])), used.runs)


def table_5(plan: Plan, frames: Frames) -> Made | None:
    """The table of measures, and random play against the experts: 1,000 matches."""
    table = load_tables("spiral")["spiral/table-5"]
    if table.missing(frames.variants):
        return None
    cells = []
    for column in list(table.columns)[:3]:
        game = make_game(table.columns[column].suite[0])
        players = (make_player("random"), fixed_player("expert", game))
        suite = matches.match_suite(game, *players, 1000, derive_seed("random policy"), "expert")
        scores = pd.DataFrame(play_suite(suite, {})[0])["score"]
        rows = pd.DataFrame({"seed": scores.index, "value": 100 * scores, "column": column})
        cells.append(over_seeds(rows, ["column"]).assign(row="Random Policy", n=1))
    used = frames.only(table.variants)
    return Made(table.fill(used, cells), used.runs, None, table.caption, table.protocol)


def table_6(plan: Plan, frames: Frames) -> Made:
    """The paper's hyper-parameters beside those of the plan's first variant."""
    params = plan.params(plan.variants[0]).model_dump()
    params |= {f"grpo.{key}": value for key, value in params["grpo"].items()}
    printed = reference.table("spiral", "spiral/table-6")["Value"].map("{:g}".format)
    keys = read_yaml("spiral", "tables.yaml")["settings"]
    here = {label: f"{params.get(key, key.removeprefix('='))}" for label, key in keys.items()}
    table = pd.DataFrame({"paper": printed, "here": pd.Series(here)})
    return Made(table.loc[printed.index].rename_axis("setting"), [])


def table_7(plan: Plan, frames: Frames) -> Made:
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
    table["problem (its end)"] = [prompt[-1]["content"][-160:] for prompt in problems.values()]
    policies: dict[str, str | Path] = {"start": params.policy}
    for path in sorted(run.folder.glob("kept/step-*"), key=lambda path: int(path.name[5:])):
        policies[path.name.replace("-", " ")] = path
    sampling = Sampling(params.max_new_tokens, 0.0)
    for label, path in (policies | {f"step {params.steps}": run.model}).items():
        engine, chat = load_engine(path, params)
        requests = [chat.request(prompt, sampling, 0) for prompt in problems.values()]
        table[label] = [reply.text for reply in engine.generate(requests)]
    return Made(table, [run])


MAKERS = {
    "spiral/figure-4": figure_4,
    "spiral/table-2": table_2,
    "spiral/table-4": table_4,
    "spiral/table-5": table_5,
    "spiral/table-6": table_6,
    "spiral/table-7": table_7,
}
